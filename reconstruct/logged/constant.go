package logged

// This file measures the time between two passes that the log does not contain.

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// gapConstant returns the time between two passes that elapsed does not include, us: the mean of precise
// cadences less elapsed, or the slope over whole seconds, or else what the clients' times give; 0 if
// nothing does. It also sets constantUs of each pass.
func (f *filler) gapConstant(precise, second bool, out *trace.TimeAudit) float64 {
	c := 0.0
	ok := false
	switch {
	case precise:
		c, ok = f.cadenceConstant(out)
	case second:
		c, ok = f.tickConstant(out)
	}
	if !ok {
		c, ok = f.clientConstant(out)
	}
	if ok {
		out.ConstantUs = trace.Some(c)
	}
	return math.Max(0, c)
}

// clientTolerance is the largest relative difference between the clients' tokens and the decodes of
// the passes with which both are taken for the same requests.
const clientTolerance = 0.02

// clientConstant returns the constant (the time between two passes that elapsed times do not
// include, us) computed from the clients' ITL values. The time from the first to the last
// chunk of a request is the sum of (elapsed + constant) of its passes. Summed over requests, each
// pass counts once for each of its decodes.
func (f *filler) clientConstant(out *trace.TimeAudit) (float64, bool) {
	// Tokens after the first of each answer and their time, us, as clients saw them; decodes and their
	// elapsed time, us, as the log has them.
	tokens := 0.0
	spanUs := 0.0
	decodes := 0.0
	elapsedUs := 0.0
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		if o.FirstChunkNs.OK && o.LastChunkNs.OK && o.OutputTokens.OK {
			tokens += float64(max(0, o.OutputTokens.V-1))
			spanUs += float64(o.LastChunkNs.V-o.FirstChunkNs.V) / 1000
		}
	}
	for i := range f.passes {
		n := float64(f.passes[i].decodes)
		decodes += n
		elapsedUs += n * f.passes[i].it.ElapsedUs
	}
	// Both must be of the same requests.
	if decodes == 0 || math.Abs(tokens-decodes) > clientTolerance*decodes {
		return 0, false
	}
	c := (spanUs - elapsedUs) / decodes
	for i := range f.passes {
		f.passes[i].constantUs = math.Max(0, c)
	}
	out.SumOverWall = trace.Some(elapsedUs / spanUs)
	return c, true
}

// cadenceConstant returns the mean of the inner 80 % of (cadence - elapsed) of neighbouring passes with
// stamps, us; false without such passes.
func (f *filler) cadenceConstant(out *trace.TimeAudit) (float64, bool) {
	var gaps []float64
	elapsed := 0.0 // us, sum over these passes
	wall := 0.0    // us, sum of the cadences
	for i := 1; i < len(f.passes); i++ {
		a, b := f.passes[i-1].it, f.passes[i].it
		if !f.passes[i].follows || f.passes[i].afterClockSet || !a.StampNs.OK || !b.StampNs.OK {
			continue
		}
		cadence := float64(b.StampNs.V-a.StampNs.V) / 1000
		gaps = append(gaps, cadence-b.ElapsedUs)
		elapsed += b.ElapsedUs
		wall += cadence
	}
	if len(gaps) == 0 {
		return 0, false
	}
	out.SumOverWall = trace.Some(elapsed / math.Max(wall, 1))
	// A trimmed mean: stamps with few digits give few distinct gaps, so that a median would be coarse.
	gaps = stat.Sorted(gaps)
	c := stat.Mean(gaps[len(gaps)/10 : len(gaps)-len(gaps)/10])
	for i := range f.passes {
		f.passes[i].constantUs = math.Max(0, c)
	}
	return c, true
}
