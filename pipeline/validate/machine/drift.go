// Package machine says how a recorded machine differed from its prediction: its speed
// over time (drift), how single steps scatter around it, and a latency model that
// repeats both.
package machine

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
	"github.com/blis-train/blis-train/trace"
)

const (
	driftBlockNs   = int64(20e9)
	driftMinRows   = 5 // a block with fewer rows takes its predecessor's factor
	driftLo        = 0.9
	driftHi        = 1.1
	nsPerS         = 1e9
	driftRangeText = "0.9-1.1"
)

// Drift is the machine's speed over time: the median of y/prediction in blocks
// of 20 seconds. A factor above 1 is a slower machine, or a model that predicts
// too little.
type Drift struct {
	OriginNs int64 // monotonic, start of block 0: the first row
	Points   []result.DriftPoint
	factors  []float64 // by block, gaps filled from the block before
	median   float64   // of factors
}

// DriftOf makes the curve of rows in any order; timeNs monotonic, y and pred in us.
func DriftOf(timeNs []int64, y, pred []float64) *Drift {
	d := &Drift{}
	if len(timeNs) == 0 {
		return d
	}
	d.OriginNs = slices.Min(timeNs)
	ratios := map[int64][]float64{}
	last := int64(0)
	for i, t := range timeNs {
		b := (t - d.OriginNs) / driftBlockNs
		last = max(last, b)
		ratios[b] = append(ratios[b], y[i]/pred[i])
	}
	for b := int64(0); b <= last; b++ {
		if r := ratios[b]; len(r) >= driftMinRows {
			start := float64(b) * float64(driftBlockNs) / nsPerS
			d.Points = append(d.Points, result.DriftPoint{StartS: start, Factor: stat.Median(r), Rows: len(r)})
		}
	}
	d.fill(last + 1)
	return d
}

func (d *Drift) fill(blocks int64) {
	if len(d.Points) == 0 {
		return
	}
	factor, next := d.Points[0].Factor, 0
	for b := int64(0); b < blocks; b++ {
		start := float64(b) * float64(driftBlockNs) / nsPerS
		if next < len(d.Points) && d.Points[next].StartS <= start {
			factor, next = d.Points[next].Factor, next+1
		}
		d.factors = append(d.factors, factor)
	}
	d.median = stat.Median(d.factors)
}

// At is the factor at a monotonic stamp; the ends hold beyond the curve, and
// without a curve it is 1.
func (d *Drift) At(ns int64) float64 {
	if len(d.factors) == 0 {
		return 1
	}
	b := (ns - d.OriginNs) / driftBlockNs
	return d.factors[max(0, min(b, int64(len(d.factors)-1)))]
}

// Follow is a step time as the machine was at a stamp: times the factor there over
// the curve's median, which leaves what the model gets wrong all the time.
func (d *Drift) Follow(us float64, ns int64) float64 {
	if len(d.factors) == 0 {
		return us
	}
	return us * d.At(ns) / d.median
}

// Farthest is the factor farthest from 1 in ratio, and whether there is one.
func (d *Drift) Farthest() (float64, bool) {
	best, found := 1.0, false
	for _, p := range d.Points {
		if !found || math.Abs(math.Log(p.Factor)) > math.Abs(math.Log(best)) {
			best, found = p.Factor, true
		}
	}
	return best, found
}

// Swing is the largest factor over the smallest: drift that no one coefficient
// set can follow, whatever its bias.
func (d *Drift) Swing() float64 {
	if len(d.Points) == 0 {
		return 1
	}
	lo, hi := d.Points[0].Factor, d.Points[0].Factor
	for _, p := range d.Points {
		lo, hi = min(lo, p.Factor), max(hi, p.Factor)
	}
	return hi / lo
}

// Finding is machine_drift when the curve leaves 0.9-1.1, else none.
func (d *Drift) Finding(run string) []trace.Finding {
	far, ok := d.Farthest()
	if !ok || (far >= driftLo && far <= driftHi) {
		return nil
	}
	return []trace.Finding{trace.Findingf(codeMachineDrift,
		"run %s: measured/predicted step time reaches %.2f in a 20-second block, want %s", run, far, driftRangeText)}
}
