package ridge

import (
	"math"
)

// Gram is the Gram matrix of weighted rows: the sums that a weighted squared error depends on.
type Gram struct {
	P int       `json:"-"`
	N int64     `json:"rows"`
	W float64   `json:"w"`   // sum w
	Q float64   `json:"wyy"` // sum w y^2
	B []float64 `json:"wxy"` // sum w x y, P
	G []float64 `json:"wxx"` // sum w x x', P x P, both triangles; in a file the upper one
}

// New returns the Gram matrix of no rows over p columns.
func New(p int) *Gram {
	return &Gram{P: p, B: make([]float64, p), G: make([]float64, p*p)}
}

// AddScaled adds the rows of o with their weights multiplied by c.
func (g *Gram) AddScaled(c float64, o *Gram) {
	g.N += o.N
	g.W += c * o.W
	g.Q += c * o.Q
	for j, v := range o.B {
		g.B[j] += c * v
	}
	for k, v := range o.G {
		g.G[k] += c * v
	}
}

// AddRow adds one row with weight w.
func (g *Gram) AddRow(w float64, x []float64, y float64) {
	g.N++
	g.W += w
	g.Q += w * y * y
	for j, v := range x {
		if v == 0 {
			continue
		}
		g.B[j] += w * v * y
		for k, u := range x {
			g.G[j*g.P+k] += w * v * u
		}
	}
}

// Add adds the rows of o.
func (g *Gram) Add(o *Gram) { g.AddScaled(1, o) }

// SSE returns sum w(y - x.beta)^2 = q - 2 beta'g + beta'G beta, never below 0.
func (g *Gram) SSE(beta []float64) float64 {
	var lin, quad float64
	for i, b := range beta {
		if b == 0 {
			continue
		}
		lin += b * g.B[i]
		quad += b * Dot(g.G[i*g.P:(i+1)*g.P], beta)
	}
	return math.Max(0, g.Q-2*lin+quad)
}

// Score returns SSE/sum w y^2, the weighted relative squared error; NaN without targets.
func (g *Gram) Score(beta []float64) float64 {
	if g.Q <= 0 {
		return math.NaN()
	}
	return g.SSE(beta) / g.Q
}

// Scale returns s_j = sqrt(sum w x_j^2/W) and ybar = sqrt(sum w y^2/W) (spec#scaling).
func (g *Gram) Scale() (s []float64, ybar float64) {
	s = make([]float64, g.P)
	for j := range s {
		s[j] = math.Sqrt(g.G[j*g.P+j] / g.W)
	}
	return s, math.Sqrt(g.Q / g.W)
}

// Dot returns x.beta, added up from the first column to the last. coeff.Set.Predict adds up in the
// same order, so that a fit and the validation of its file report the same figures.
func Dot(x, beta []float64) float64 {
	var sum float64
	for j, v := range x {
		sum += v * beta[j]
	}
	return sum
}
