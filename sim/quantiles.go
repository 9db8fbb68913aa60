package sim

import "math"

// Quantiles is a streaming histogram with a fixed relative width of about 0.4 %
// per bin: counts only, no samples kept.
type Quantiles struct {
	count []int64 // by bin
	n     int64
	sum   float64
	max   float64
}

const (
	binsPerOctave = 177 // 2^(1/177) - 1 = 0.39 %
	binOctaves    = 48
)

// NewQuantiles returns an empty histogram.
func NewQuantiles() *Quantiles { return &Quantiles{count: make([]int64, binsPerOctave*binOctaves+1)} }

// Add counts x (>= 0) w times.
func (q *Quantiles) Add(x float64, w int64) {
	bin := 0
	if x > 1 {
		bin = min(len(q.count)-1, 1+int(math.Log2(x)*binsPerOctave))
	}
	q.count[bin] += w
	q.n += w
	q.sum += x * float64(w)
	q.max = math.Max(q.max, x)
}

// N is the number of values.
func (q *Quantiles) N() int64 { return q.n }

// Mean is exact; 0 without values.
func (q *Quantiles) Mean() float64 {
	if q.n == 0 {
		return 0
	}
	return q.sum / float64(q.n)
}

// At is the p-quantile within 0.4 %: the geometric middle of the bin that
// holds it (0 without values).
func (q *Quantiles) At(p float64) float64 {
	want := int64(math.Ceil(p * float64(q.n)))
	seen := int64(0)
	for bin, c := range q.count {
		seen += c
		if c == 0 || seen < want {
			continue
		}
		if bin == 0 {
			return math.Min(1, q.max)
		}
		return math.Min(q.max, math.Exp2((float64(bin-1)+0.5)/binsPerOctave))
	}
	return q.max
}
