package cluster

import (
	"cmp"
	"math"

	"gonum.org/v1/gonum/optimize"

	"github.com/blis-train/blis-train/internal/stat"
)

// Value is one answer of the function: value and slack, which must not be negative,
// with their variances.
type Value struct {
	Value, Variance, Slack, SlackVariance float64
}

// Call is one call; calls that were made before may be handed in again.
type Call struct {
	N      int       `json:"call"`
	Method string    `json:"method"`
	X      []float64 `json:"x"`
	Value
}

// search looks for the largest value of a function on the unit cube.
type search struct {
	Dims        int
	Method      string // gp, random or grid
	Start       int    // calls before the process is asked
	Calls       int    // calls after them
	Seed        int64
	Constrained bool
	Made        []Call           // at first those of an interrupted search
	Told        func(Call) error // called after every new call; may be nil
}

// Methods of searching.
const (
	methodGP     = "gp"
	methodRandom = "random"
	methodGrid   = "grid"
)

// found is what a search recommends.
type found struct {
	X    []float64
	Mean float64 // posterior, at X
}

// maximise calls f and recommends a point.
func (s *search) maximise(f func(x []float64) (Value, error)) (*found, error) {
	for n := len(s.Made); n < s.Start+s.Calls; n++ {
		x := s.next(n)
		v, err := f(x)
		if err != nil {
			return nil, err
		}
		c := Call{N: n, Method: s.Method, X: x, Value: v}
		if s.Made = append(s.Made, c); s.Told != nil {
			if err := s.Told(c); err != nil {
				return nil, err
			}
		}
	}
	best, mean := s.among(s.processes())
	return &found{X: s.Made[best].X, Mean: mean}, nil
}

// next is the point of call n.
func (s *search) next(n int) []float64 {
	switch {
	case s.Method == methodGrid:
		return s.gridPoint(n)
	case s.Method == methodRandom:
		x := make([]float64, s.Dims)
		for k := range x {
			x[k] = stat.Draw(uint64(s.Seed), uint64(n), uint64(k))
		}
		return x
	case n < s.Start:
		return halton(n, s.Dims, s.Seed)
	}
	return s.propose(n)
}

// gridPoint walks the finest full grid that the calls allow, in a seeded order.
func (s *search) gridPoint(n int) []float64 {
	side := max(2, int(math.Floor(stat.Pow(float64(s.Start+s.Calls), 1/float64(s.Dims))+1e-9)))
	x := make([]float64, s.Dims)
	for k := range x {
		x[k] = float64(n%side) / float64(side-1)
		n /= side
	}
	return x
}

// halton is point n of the Halton sequence, shifted by the seed.
func halton(n, dims int, seed int64) []float64 {
	primes := []int{2, 3, 5, 7, 11, 13, 17, 19, 23, 29}
	x := make([]float64, dims)
	for k := range x {
		base, f, v := primes[k%len(primes)], 1.0, stat.Draw(uint64(seed), 77, uint64(k))
		for i := n + 1; i > 0; i /= base {
			f /= float64(base)
			v += float64(f * float64(i%base))
		}
		x[k] = v - math.Floor(v)
	}
	return x
}

// processes are those of value and slack; the second is nil without a constraint.
func (s *search) processes() (value, slack *process) {
	var x [][]float64
	var y, vy, c, vc []float64
	for _, call := range s.Made {
		x, y, vy = append(x, call.X), append(y, call.Value.Value), append(vy, call.Variance)
		c, vc = append(c, call.Slack), append(vc, call.SlackVariance)
	}
	if value = regress(x, y, vy); s.Constrained {
		slack = regress(x, c, vc)
	}
	return value, slack
}

// candidates of a proposal, and how many of them are refined.
const (
	candidates = 300
	refined    = 3
)

// propose maximises log expected improvement times the chance that the slack holds.
func (s *search) propose(n int) []float64 {
	value, slack := s.processes()
	_, best := s.among(value, slack)
	gain := func(x []float64) float64 {
		for _, v := range x {
			if v < 0 || v > 1 {
				return math.Inf(-1)
			}
		}
		m, sd := value.at(x)
		g := logImprovement(m, sd, best)
		if slack != nil {
			cm, csd := slack.at(x)
			g += stat.Log(math.Max(1e-12, normalBelow(cm/csd)))
		}
		return g
	}
	type scored struct {
		x []float64
		g float64
	}
	all := make([]scored, candidates)
	for k := range all {
		x := halton(1000+n*candidates+k, s.Dims, s.Seed+1)
		all[k] = scored{x, gain(x)}
	}
	stat.SortStable(all, func(a, b scored) int { return cmp.Compare(b.g, a.g) })
	top := all[:refined]
	for i := range top {
		res, err := optimize.Minimize(optimize.Problem{Func: func(x []float64) float64 { return -gain(x) }}, top[i].x,
			&optimize.Settings{FuncEvaluations: 40 * s.Dims}, &optimize.NelderMead{})
		if err == nil && -res.F > top[i].g {
			top[i] = scored{append([]float64(nil), res.X...), -res.F}
		}
		if top[i].g > top[0].g {
			top[0] = top[i]
		}
	}
	return top[0].x
}

// among is the call with the best posterior mean of those that probably keep the
// constraint; of all, by their slack, where none does.
func (s *search) among(value, slack *process) (best int, mean float64) {
	best, mean = -1, math.Inf(-1)
	safest, chance := 0, math.Inf(-1)
	for i, c := range s.Made {
		m, _ := value.at(c.X)
		p := 1.0
		if slack != nil {
			cm, csd := slack.at(c.X)
			p = normalBelow(cm / csd)
			if cm > chance {
				safest, chance = i, cm
			}
		}
		if p >= 0.5 && m > mean {
			best, mean = i, m
		}
	}
	if best < 0 {
		best = safest
		mean, _ = value.at(s.Made[best].X)
	}
	return best, mean
}

// process is a Gaussian process on the unit cube: Matern 5/2 with one length per
// dimension, the noise of each observation known, values standardised.
//
// Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006),
// algorithm 2.1 and equation 4.17.
type process struct {
	x           [][]float64
	mean, scale float64
	alpha       []float64 // K^-1 y
	chol        []float64
	noise       []float64 // variances of standardised values
	lengths     []float64
	amp         float64
}

// jitter keeps the matrix positive definite.
const jitter = 1e-6

func (p *process) kernel(a, b []float64) float64 {
	r2 := 0.0
	for k := range a {
		d := (a[k] - b[k]) / p.lengths[k]
		r2 += float64(d * d)
	}
	r := math.Sqrt(5 * r2)
	return p.amp * (1 + r + r*r/3) * stat.Exp(-r)
}

// regress fits lengths and amplitude to values y at x by the largest marginal
// likelihood, with weak priors that keep lengths between a tenth and a few cubes.
func regress(x [][]float64, y, variance []float64) *process {
	p := &process{x: x, mean: stat.Mean(y), noise: make([]float64, len(y)), lengths: make([]float64, len(x[0]))}
	for _, v := range y {
		p.scale += float64((v - p.mean) * (v - p.mean))
	}
	if p.scale = math.Sqrt(p.scale / float64(len(y))); !(p.scale > 0) {
		p.scale = 1
	}
	z := make([]float64, len(y))
	for i, v := range y {
		z[i], p.noise[i] = (v-p.mean)/p.scale, variance[i]/p.scale/p.scale
	}
	cost := func(theta []float64) float64 {
		sum := 0.0
		for k := range p.lengths {
			p.lengths[k] = stat.Exp(theta[k])
			d := (theta[k] - stat.Log(0.5)) / 1.2
			sum += float64(d * d / 2)
		}
		p.amp = stat.Exp(theta[len(theta)-1])
		sum += float64(theta[len(theta)-1] * theta[len(theta)-1] / 8)
		return sum - p.solve(z)
	}
	start := make([]float64, len(p.lengths)+1)
	for k := range p.lengths {
		start[k] = stat.Log(0.5)
	}
	best, value := append([]float64(nil), start...), math.Inf(1)
	for _, shift := range []float64{0, -0.9, 0.7} {
		from := append([]float64(nil), start...)
		for k := range p.lengths {
			from[k] += shift
		}
		res, err := optimize.Minimize(optimize.Problem{Func: cost}, from, &optimize.Settings{FuncEvaluations: 40 * len(start)},
			&optimize.NelderMead{})
		if res != nil && (err == nil || res.F < value) && res.F < value {
			value, best = res.F, append(best[:0], res.X...)
		}
	}
	cost(best)
	return p
}

// solve factors the matrix for standardised values and is their log likelihood.
func (p *process) solve(z []float64) float64 {
	n := len(z)
	a := make([]float64, n*n)
	for i := range n {
		for j := range i + 1 {
			a[i*n+j] = p.kernel(p.x[i], p.x[j])
			a[j*n+i] = a[i*n+j]
		}
		a[i*n+i] += p.noise[i] + jitter
	}
	if stat.Cholesky(a, n) < n {
		return math.Inf(-1)
	}
	p.chol, p.alpha = a, append([]float64(nil), z...)
	stat.CholeskySolve(a, n, p.alpha)
	like := -float64(n) / 2 * stat.Log(2*math.Pi)
	for i := range n {
		like -= stat.Log(a[i*n+i]) + float64(z[i]*p.alpha[i]/2)
	}
	return like
}

// at is the posterior mean and standard deviation of the function itself.
func (p *process) at(x []float64) (mean, sd float64) {
	n := len(p.x)
	k := make([]float64, n)
	for i := range n {
		k[i] = p.kernel(x, p.x[i])
		mean += float64(k[i] * p.alpha[i])
	}
	v := append([]float64(nil), k...)
	stat.CholeskySolve(p.chol, n, v)
	rest := p.amp
	for i := range n {
		rest -= float64(k[i] * v[i])
	}
	return p.mean + float64(p.scale*mean), p.scale * math.Sqrt(math.Max(1e-12, rest))
}

// normalBelow is the standard normal distribution function.
func normalBelow(x float64) float64 { return 0.5 * math.Erfc(-x/math.Sqrt2) }

// logImprovement is the logarithm of the expected improvement over best, by its
// asymptote where it underflows (Ament et al., NeurIPS 2023).
func logImprovement(mean, sd, best float64) float64 {
	u := (mean - best) / sd
	if u < -6 {
		return stat.Log(sd) - float64(u*u/2) - float64(stat.Log(2*math.Pi)/2) - float64(2*stat.Log(-u))
	}
	return stat.Log(sd) + stat.Log(stat.Exp(-u*u/2)/math.Sqrt(2*math.Pi)+float64(u*normalBelow(u)))
}
