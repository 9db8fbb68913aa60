// Package machine says how a recorded machine differed from its prediction: its speed
// over time (drift), how single steps scatter around it, and a latency model that
// repeats both.
package validate

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/portable"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

const (
	driftMinRows   = 5    // a block with fewer rows takes its predecessor's factor
	worthAShorter  = 0.01 // of a step: how much nearer shorter blocks must come, on rows they were not made of
	driftLo        = 0.9
	driftHi        = 1.1
	nsPerS         = 1e9
	driftRangeText = "0.9-1.1"
)

// driftBlocksNs are the lengths a block may have, longest first.
var driftBlocksNs = [...]int64{20e9, 10e9, 5e9}

// thinBlockRows is how many rows the shortest blocks of thinned rows have in the mean.
const thinBlockRows = 20

// drift is the machine's speed over time: the median of y/prediction in blocks
// of 20, 10 or 5 seconds (spec#drift). A factor above 1 is a slower machine, or a
// model that predicts too little.
type drift struct {
	OriginNs int64 // monotonic, start of block 0: the first row
	BlockNs  int64
	Points   []result.DriftPoint
	factors  []float64 // by block, gaps filled from the block before
	median   float64   // of factors
}

// DriftOf makes the curve of rows in any order; timeNs monotonic, y and pred in us.
// Blocks are as short as the rows bear out: the curve of every second row must come
// nearer to the other rows, by 1 % of a step, than the one of longer blocks does. Of thinned
// rows all lengths are longer by the same factor where so few are left (spec#max-rows).
func DriftOf(timeNs []int64, y, pred []float64, thinned bool) *drift {
	if len(timeNs) == 0 {
		return &drift{}
	}
	var halves [2]ratios
	all := ratios{originNs: slices.Min(timeNs)}
	for n, i := range inTime(timeNs) {
		all.add(timeNs[i], y[i]/pred[i])
		halves[n%2].originNs = all.originNs
		halves[n%2].add(timeNs[i], y[i]/pred[i])
	}
	blocks := driftBlocksNs
	if thinned {
		shortest := float64(blocks[len(blocks)-1]) * float64(len(timeNs))
		factor := max(1, int64(math.Ceil(thinBlockRows*float64(slices.Max(timeNs)-all.originNs)/shortest)))
		for i := range blocks {
			blocks[i] *= factor
		}
	}
	best, least := blocks[0], math.Inf(1)
	for _, blockNs := range blocks {
		a, b := halves[0].curve(blockNs), halves[1].curve(blockNs)
		if err := a.error(&halves[1]) + b.error(&halves[0]); err < least-float64(worthAShorter*float64(len(timeNs))) {
			best, least = blockNs, err
		}
	}
	return all.curve(best)
}

// inTime are the positions of the stamps in ascending order, equal ones as given.
func inTime(timeNs []int64) []int {
	order := make([]int, len(timeNs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(timeNs[a], timeNs[b]) })
	return order
}

// ratios are measured over predicted step times at their stamps.
type ratios struct {
	originNs int64
	at       []int64
	of       []float64
}

func (r *ratios) add(ns int64, ratio float64) { r.at, r.of = append(r.at, ns), append(r.of, ratio) }

// curve is the drift in blocks of one length.
func (r *ratios) curve(blockNs int64) *drift {
	d := &drift{OriginNs: r.originNs, BlockNs: blockNs}
	byBlock := map[int64][]float64{}
	last := int64(0)
	for i, ns := range r.at {
		b := (ns - r.originNs) / blockNs
		last = max(last, b)
		byBlock[b] = append(byBlock[b], r.of[i])
	}
	for b := int64(0); b <= last; b++ {
		if in := byBlock[b]; len(in) >= driftMinRows {
			d.Points = append(d.Points, result.DriftPoint{StartS: d.startS(b), Factor: stat.Median(in), Rows: len(in)})
		}
	}
	d.fill(last + 1)
	return d
}

// error is the sum of |log(ratio/factor)| over rows.
func (d *drift) error(r *ratios) float64 {
	sum := 0.0
	for i, ns := range r.at {
		if r.of[i] > 0 {
			sum += math.Abs(portable.Log(r.of[i] / d.At(ns)))
		}
	}
	return sum
}

func (d *drift) startS(block int64) float64 { return float64(block) * float64(d.BlockNs) / nsPerS }

func (d *drift) fill(blocks int64) {
	if len(d.Points) == 0 {
		return
	}
	factor, next := d.Points[0].Factor, 0
	for b := int64(0); b < blocks; b++ {
		if next < len(d.Points) && d.Points[next].StartS <= d.startS(b) {
			factor, next = d.Points[next].Factor, next+1
		}
		d.factors = append(d.factors, factor)
	}
	d.median = stat.Median(d.factors)
}

// At is the factor at a monotonic stamp; the ends hold beyond the curve, and
// without a curve it is 1.
func (d *drift) At(ns int64) float64 {
	if len(d.factors) == 0 {
		return 1
	}
	b := (ns - d.OriginNs) / d.BlockNs
	return d.factors[max(0, min(b, int64(len(d.factors)-1)))]
}

// Follow is a step time as the machine was at a stamp: times the factor there over
// the curve's median, which leaves what the model gets wrong all the time.
func (d *drift) Follow(us float64, ns int64) float64 {
	if len(d.factors) == 0 {
		return us
	}
	return us * d.At(ns) / d.median
}

// Farthest is the factor farthest from 1 in ratio, and whether there is one.
func (d *drift) Farthest() (float64, bool) {
	best, found := 1.0, false
	for _, p := range d.Points {
		if !found || math.Abs(portable.Log(p.Factor)) > math.Abs(portable.Log(best)) {
			best, found = p.Factor, true
		}
	}
	return best, found
}

// Swing is the largest factor over the smallest: drift that no one coefficient
// set can follow, whatever its bias.
func (d *drift) Swing() float64 {
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
func (d *drift) Finding(run string) []trace.Finding {
	far, ok := d.Farthest()
	if !ok || (far >= driftLo && far <= driftHi) {
		return nil
	}
	return []trace.Finding{trace.Findingf(rows.MachineDrift,
		"run %s: measured/predicted step time reaches %.2f in a %.0f-second block, want %s", run, far, d.startS(1), driftRangeText)}
}
