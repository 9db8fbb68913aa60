package stat

import (
	"math"

	"github.com/blis-train/blis-train/internal/portable"
)

// Histogram counts values >= 0 in bins of a fixed relative width of about 0.4 %:
// quantiles of a stream, no sample kept.
type Histogram struct {
	count []int64 // by bin
	n     int64
	sum   float64
	max   float64
}

const (
	binsPerOctave = 177 // 2^(1/177) - 1 = 0.39 %
	binOctaves    = 48
)

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram {
	return &Histogram{count: make([]int64, binsPerOctave*binOctaves+1)}
}

// Add counts x (>= 0) w times.
func (h *Histogram) Add(x float64, w int64) {
	bin := 0
	if x > 1 {
		bin = min(len(h.count)-1, 1+int(portable.Log2(x)*binsPerOctave))
	}
	h.count[bin] += w
	h.n += w
	h.sum += float64(x * float64(w))
	h.max = math.Max(h.max, x)
}

// Merge adds the values of another histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i, w := range other.count {
		h.count[i] += w
	}
	h.n, h.sum, h.max = h.n+other.n, h.sum+other.sum, math.Max(h.max, other.max)
}

// N is the number of values.
func (h *Histogram) N() int64 { return h.n }

// Mean is exact; 0 without values.
func (h *Histogram) Mean() float64 {
	if h.n == 0 {
		return 0
	}
	return h.sum / float64(h.n)
}

// Quantile is the p-quantile within 0.4 %: the geometric middle of the bin that
// holds it (0 without values).
func (h *Histogram) Quantile(p float64) float64 {
	want := int64(math.Ceil(p * float64(h.n)))
	seen := int64(0)
	for bin, c := range h.count {
		seen += c
		if c == 0 || seen < want {
			continue
		}
		if bin == 0 {
			return math.Min(1, h.max)
		}
		return math.Min(h.max, portable.Exp2((float64(bin-1)+0.5)/binsPerOctave))
	}
	return h.max
}
