package stat

// This file counts a stream of values in bins, for its quantiles.

import (
	"math"
	"sync"
)

// Histogram counts values >= 0 in bins of a fixed relative width of about 0.4 %. It gives quantiles
// of a stream without keeping the values. Bin 0 has the values up to 1, and the last one all from 2^binOctaves.
type Histogram struct {
	count []int64               // of the values in each bin
	sums  []float64             // of the values in each bin
	near  *[1 << nearBits]int16 // see nearBins
	n     int64                 // number of values
	sum   float64               // of all values
	max   float64               // largest value ever added
}

const (
	binsPerOctave = 177 // 2^(1/177) - 1 = 0.39 %
	binOctaves    = 48  // from 1 to 2^48: in µs nine years
)

// NewHistogram returns an empty histogram.
func NewHistogram() *Histogram {
	const bins = binsPerOctave*binOctaves + 1
	return &Histogram{count: make([]int64, bins), sums: make([]float64, bins), near: nearBins()}
}

// nearBits is how many bits of the mantissa find the bin of most values without a logarithm.
const nearBits = 12

// nearBins returns the bin of x in [1, 2), less 1, by the first bits of its mantissa; -1 where these do not
// decide.
var nearBins = sync.OnceValue(func() *[1 << nearBits]int16 {
	var bins [1 << nearBits]int16
	bin := func(i int) int { return int(math.Log2(1+float64(i)/float64(len(bins))) * binsPerOctave) }
	for i := range bins {
		bins[i] = -1
		if bin(i) == bin(i+1) {
			bins[i] = int16(bin(i))
		}
	}
	return &bins
})

// binOf returns the bin of x, and bin 0 for NaN. It takes the logarithm from the bits of x: the exponent is the octave.
func (h *Histogram) binOf(x float64) int {
	if !(x > 1) {
		return 0
	}
	const mantissaBits, bias = 52, 1023
	bits := math.Float64bits(x)
	bin := int(h.near[bits>>(mantissaBits-nearBits)&(1<<nearBits-1)])
	if bin < 0 {
		bin = int(math.Log2(x) * binsPerOctave)
	} else {
		bin += (int(bits>>mantissaBits) - bias) * binsPerOctave
	}
	return min(len(h.count)-1, 1+bin)
}

// Add counts the value x (>= 0) w times. A negative w removes counted values.
func (h *Histogram) Add(x float64, w int64) {
	bin := h.binOf(x)
	h.count[bin] += w
	h.n += w
	h.sums[bin] += x * float64(w)
	h.sum += x * float64(w)
	h.max = math.Max(h.max, x)
}

// Merge adds the values of another histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i, w := range other.count {
		h.count[i] += w
		h.sums[i] += other.sums[i]
	}
	h.n, h.sum, h.max = h.n+other.n, h.sum+other.sum, math.Max(h.max, other.max)
}

// N returns the number of values.
func (h *Histogram) N() int64 { return h.n }

// Mean returns the exact mean; 0 without values.
func (h *Histogram) Mean() float64 {
	if h.n == 0 {
		return 0
	}
	return h.sum / float64(h.n)
}

// Quantile returns the p-quantile to within 0.4 %: the mean of the bin in which it lies; 0 without
// values.
func (h *Histogram) Quantile(p float64) float64 {
	want := int64(math.Ceil(p * float64(h.n)))
	seen := int64(0)
	for bin, c := range h.count {
		seen += c
		if c == 0 || seen < want {
			continue
		}
		return math.Min(h.max, h.sums[bin]/float64(c))
	}
	return h.max
}
