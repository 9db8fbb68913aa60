package validate

// This file measures how the speed of a machine changes during a run: a factor on predicted step times
// for each block of time.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

const (
	driftMinRows = 5   // a block with fewer rows takes its predecessor's factor
	driftLow     = 0.9 // a curve that leaves this range is a finding
	driftHigh    = 1.1
	nsPerS       = 1e9

	// shorterBlocksGain is by how much shorter blocks must reduce the mean |log(ratio/factor)| of rows that
	// they were not made of.
	shorterBlocksGain = 0.01

	// thinBlockRows is how many rows the shortest blocks of thinned rows have on average.
	thinBlockRows = 20
)

// driftBlocksNs are the lengths a block may have, longest first.
var driftBlocksNs = [...]int64{20e9, 10e9, 5e9}

// drift is the machine's speed over time: the median of measured/predicted step time in blocks of 20, 10
// or 5 seconds (spec#drift). A factor above 1 is a slower machine, or a model that predicts too little.
type drift struct {
	OriginNs int64 // monotonic, start of block 0: the first row
	BlockNs  int64
	Points   []result.DriftPoint
	factors  []float64 // by block; a block without a point has the factor of the block before
	median   float64   // of factors
}

// DriftOf returns the curve of rows in any order; timeNs is monotonic, measuredUs and predictedUs are
// step times. Blocks are as short as the rows support: the curve of every second row must be nearer to
// the other rows, by shorterBlocksGain, than that of longer blocks. Blocks of thinned rows are longer,
// all by the same factor, if few rows are left (spec#max-rows).
func DriftOf(timeNs []int64, measuredUs, predictedUs []float64, thinned bool) *drift {
	if len(timeNs) == 0 {
		return &drift{}
	}
	originNs := slices.Min(timeNs)
	all := stepRatios{originNs: originNs}
	// Every second row goes to one half, so that the curve of each half can be compared with rows that
	// it was not made of.
	var halves [2]stepRatios
	for n, i := range stat.Order(timeNs) {
		all.add(timeNs[i], measuredUs[i]/predictedUs[i])
		half := &halves[n%2]
		half.originNs = originNs
		half.add(timeNs[i], measuredUs[i]/predictedUs[i])
	}
	blocks := driftBlocksNs
	if thinned {
		// Few rows are left of thinned ones: lengthen the blocks until the shortest has enough in the
		// mean.
		shortest := float64(blocks[len(blocks)-1]) * float64(len(timeNs))
		factor := max(1, int64(math.Ceil(thinBlockRows*float64(slices.Max(timeNs)-originNs)/shortest)))
		for i := range blocks {
			blocks[i] *= factor
		}
	}
	// From the longest blocks on: shorter ones must predict the other half of the rows better.
	best, leastError := blocks[0], math.Inf(1)
	for _, blockNs := range blocks {
		crossError := halves[0].curve(blockNs).logError(&halves[1]) + halves[1].curve(blockNs).logError(&halves[0])
		if crossError < leastError-shorterBlocksGain*float64(len(timeNs)) {
			best, leastError = blockNs, crossError
		}
	}
	return all.curve(best)
}

// stepRatios are measured over predicted step times with their stamps.
type stepRatios struct {
	originNs int64
	timeNs   []int64
	ratio    []float64
}

// add adds the ratio of one row.
func (r *stepRatios) add(ns int64, ratio float64) {
	r.timeNs = append(r.timeNs, ns)
	r.ratio = append(r.ratio, ratio)
}

// curve returns the drift in blocks of one length.
func (r *stepRatios) curve(blockNs int64) *drift {
	d := &drift{OriginNs: r.originNs, BlockNs: blockNs}
	byBlock := map[int64][]float64{}
	last := int64(0)
	for i, ns := range r.timeNs {
		block := (ns - r.originNs) / blockNs
		last = max(last, block)
		byBlock[block] = append(byBlock[block], r.ratio[i])
	}
	for block := int64(0); block <= last; block++ {
		if ratios := byBlock[block]; len(ratios) >= driftMinRows {
			d.Points = append(d.Points, result.DriftPoint{StartS: d.startS(block), Factor: stat.Median(ratios), Rows: len(ratios)})
		}
	}
	d.fillFactors(last + 1)
	return d
}

// logError returns the sum of |log(ratio/factor)| over rows.
func (d *drift) logError(r *stepRatios) float64 {
	sum := 0.0
	for i, ns := range r.timeNs {
		if r.ratio[i] > 0 {
			sum += math.Abs(math.Log(r.ratio[i] / d.At(ns)))
		}
	}
	return sum
}

// startS returns the start of a block, s after the first row.
func (d *drift) startS(block int64) float64 { return float64(block) * float64(d.BlockNs) / nsPerS }

// fillFactors sets the factor of every block, that of the last known block before it if it has
// none.
func (d *drift) fillFactors(blocks int64) {
	if len(d.Points) == 0 {
		return
	}
	factor, next := d.Points[0].Factor, 0
	for b := range blocks {
		if next < len(d.Points) && d.Points[next].StartS <= d.startS(b) {
			factor = d.Points[next].Factor
			next++
		}
		d.factors = append(d.factors, factor)
	}
	d.median = stat.Median(d.factors)
}

// At returns the factor at a monotonic stamp. Before the curve it is the first factor, after it the
// last, and without a curve 1.
func (d *drift) At(ns int64) float64 {
	if len(d.factors) == 0 {
		return 1
	}
	block := (ns - d.OriginNs) / d.BlockNs
	return d.factors[max(0, min(block, int64(len(d.factors)-1)))]
}

// follow returns a predicted step time as the machine was at a stamp: times the factor there over
// the curve's median, so that a bias of the model stays in it.
func (d *drift) follow(us float64, ns int64) float64 {
	if len(d.factors) == 0 {
		return us
	}
	return us * d.At(ns) / d.median
}

// farthest returns the factor farthest from 1 in ratio, and whether there is one.
func (d *drift) farthest() (factor float64, ok bool) {
	factor = 1
	for _, p := range d.Points {
		if !ok || math.Abs(math.Log(p.Factor)) > math.Abs(math.Log(factor)) {
			factor, ok = p.Factor, true
		}
	}
	return factor, ok
}

// swing returns the largest factor divided by the smallest. A constant factor of bias cancels in
// it; the rest is drift, which no coefficients can follow.
func (d *drift) swing() float64 {
	if len(d.Points) == 0 {
		return 1
	}
	lo, hi := d.Points[0].Factor, d.Points[0].Factor
	for _, p := range d.Points {
		lo = min(lo, p.Factor)
		hi = max(hi, p.Factor)
	}
	return hi / lo
}

// finding returns machine_drift if the curve leaves the range from driftLow to driftHigh, else
// nothing.
func (d *drift) finding(run string) []trace.Finding {
	far, ok := d.farthest()
	if !ok || (far >= driftLow && far <= driftHigh) {
		return nil
	}
	return []trace.Finding{trace.Findingf(rows.MachineDrift,
		"run %s: measured/predicted step time reaches %.2f in a %.0f-second block, want %.1f-%.1f", run, far, d.startS(1), driftLow, driftHigh)}
}
