package logged

// This file finds when passes ended from stamps of whole seconds, as vLLM's log lines have them
// (spec#iteration-times). A tick is the change of the whole second between the stamps of two passes.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

const secondNs = int64(1e9)

// markTicks marks the passes whose end crosses a whole second, by the stamps.
func (f *filler) markTicks() {
	for i := 1; i < len(f.passes); i++ {
		a, b := f.passes[i-1].it, f.passes[i].it
		p := &f.passes[i]
		isKnown := p.next && !p.afterClockSet && a.StampNs.OK && b.StampNs.OK
		p.tick = isKnown && b.StampNs.V/secondNs > a.StampNs.V/secondNs
		if p.tick {
			p.tickNs = b.StampNs.V / secondNs * secondNs
		}
	}
}

// eachBusyStretch calls use with every longest range [from, to) of passes without idle time in it, on a clock that was not
// set.
func (f *filler) eachBusyStretch(use func(from, to int)) {
	from := 0
	for i := 1; i <= len(f.passes); i++ {
		if i == len(f.passes) || !f.passes[i].follows || f.passes[i].afterClockSet {
			use(from, i)
			from = i
		}
	}
}

// secondsBetweenTicks returns the total busy time between the first and last tick of each stretch, s.
func (f *filler) secondsBetweenTicks() float64 {
	f.markTicks()
	total := int64(0)
	f.eachBusyStretch(func(from, to int) {
		first, last := int64(0), int64(0)
		for i := from + 1; i < to; i++ {
			if p := &f.passes[i]; p.tick {
				if first == 0 {
					first = p.tickNs
				}
				last = p.tickNs
			}
		}
		total += last - first
	})
	return float64(total) / 1e9
}

// tickRegression estimates the time between passes that elapsed does not include: the slope, sxy/sxx, of
// (time of a tick - sum of elapsed up to it) over the number of passes before the tick, pooled over
// stretches. sxx and sxy are the sums of squares and of products of the deviations from a stretch's means.
type tickRegression struct{ sxx, sxy float64 }

// addStretch adds the ticks (changes of the stamp's whole second) of one busy stretch and returns
// their number less one. A tick happens during the pass whose line is the first with the new second, on
// average in its middle. The time of the tick less the elapsed times up to that middle therefore
// grows by the constant with every pass.
func (s *tickRegression) addStretch(passes []pass) (ticks int) {
	var at []float64   // of each tick: the number of passes before it
	var rest []float64 // of each tick: its time less the elapsed times before it, us
	sum := 0.0         // of elapsed, us
	for i := range passes {
		p := &passes[i]
		sum += p.it.ElapsedUs
		if i > 0 && p.tick {
			at = append(at, float64(i)-0.5)
			rest = append(rest, float64(p.tickNs-passes[0].it.StampNs.V)/1000-(sum-p.it.ElapsedUs/2))
		}
	}
	meanAt := stat.Mean(at)
	meanRest := stat.Mean(rest)
	for k := range at {
		s.sxx += (at[k] - meanAt) * (at[k] - meanAt)
		s.sxy += (at[k] - meanAt) * (rest[k] - meanRest)
	}
	return max(0, len(at)-1)
}

// ticksPerBlock is the number of ticks that one constant is estimated from. The constant drifts, so
// one for the whole run would be wrong.
const ticksPerBlock = 20

// tickConstant sets the constant of every pass from whole-second stamps, block by block of busy
// time, and returns their mean. ok is false if no stretch has two ticks.
func (f *filler) tickConstant(out *trace.TimeAudit) (c float64, ok bool) {
	f.markTicks()
	var all, block tickRegression // over the run, and over the block of stretches under way
	from := 0                     // first pass of the block
	ticks := 0                    // in the block
	// endBlock gives the passes up to `to` the slope of their block, or of the block before without one.
	endBlock := func(to int) {
		if block.sxx > 0 {
			for i := from; i < to; i++ {
				f.passes[i].constantUs = math.Max(0, block.sxy/block.sxx)
			}
		} else if from > 0 {
			for i := from; i < to; i++ {
				f.passes[i].constantUs = f.passes[from-1].constantUs
			}
		}
		from = to
		ticks = 0
		block = tickRegression{}
	}
	f.eachBusyStretch(func(a, b int) {
		all.addStretch(f.passes[a:b])
		if ticks += block.addStretch(f.passes[a:b]); ticks >= ticksPerBlock {
			endBlock(b)
		}
	})
	endBlock(len(f.passes))
	if all.sxx == 0 {
		return 0, false
	}
	elapsed := 0.0   // us, sum over the passes that follow another
	constants := 0.0 // us, the same
	n := 0
	for i := range f.passes {
		if p := &f.passes[i]; p.follows {
			elapsed += p.it.ElapsedUs
			constants += p.constantUs
			n++
		}
	}
	c = constants / float64(max(1, n))
	// A slope below 0 is returned as it is: then elapsed is longer than the time that passed.
	if raw := all.sxy / all.sxx; raw < 0 {
		c = raw
	}
	if total := elapsed + c*float64(n); total > 0 {
		out.SumOverWall = trace.Some(elapsed / total)
	}
	return c, true
}

// layEndToEnd sets the ends of the passes of each busy stretch: cumulative sums of elapsed times and of
// the constant time between passes (gapConstant), from an origin estimated by the stamps of the stretch.
// Stretches do not overlap.
func (f *filler) layEndToEnd() {
	f.markTicks()
	free := int64(math.MinInt64) // end of the stretch before
	movedNs := int64(0)          // what the stamps' jumps, where the clock was set, left over
	f.eachBusyStretch(func(from, to int) {
		// Each stamp bounds the start of the stretch: the stamp less the time of the passes until then.
		origin := stretchOrigin{lo: math.Inf(-1), hi: math.Inf(1)}
		sum := 0.0 // ns from the start of the stretch
		for i := from; i < to; i++ {
			p := &f.passes[i]
			cycleNs := (p.it.ElapsedUs + p.constantUs) * 1000
			sum += cycleNs
			origin.addStamp(i, p, sum, cycleNs, i == from)
		}
		sum = 0
		for i := from; i < to; i++ {
			p := &f.passes[i]
			sum += (p.it.ElapsedUs + p.constantUs) * 1000
			p.endNs = trace.Int(math.Trunc(sum+origin.originFor(i, free))) + movedNs
			p.hasEnd = true
			if i > from { // the origin varies from tick to tick, but ends must not run backwards
				p.endNs = max(p.endNs, f.passes[i-1].endNs)
			}
		}
		first := &f.passes[from]
		// The time by which the stretch would begin before the one before it ends.
		overlap := free - first.endNs + trace.Ns(first.it.ElapsedUs+first.constantUs)
		if first.afterClockSet { // the engine ran: the stretch begins where the one before it ends
			movedNs += overlap
		}
		if from > 0 && (overlap > 0 || first.afterClockSet) {
			for i := from; i < to; i++ {
				f.passes[i].endNs += overlap
			}
		}
		free = f.passes[to-1].endNs
	})
}

// stretchOrigin estimates when a busy stretch began, ns. Every stamp gives bounds of it. Every tick
// or precise stamp gives an estimate with an error of up to one pass.
type stretchOrigin struct {
	lo, hi float64   // bounds that follow from all stamps, ns
	index  []int     // passes with a tick or a precise stamp, ascending
	ticks  []float64 // the origin that follows from each of them, ns
	smooth []float64 // ticks averaged over tickWindow neighbours, ns; nil until originFor needs it
}

// tickWindow is the number of ticks on either side over which estimates are averaged, because a
// single one can be off by a pass. It is not the whole stretch, because the time between passes
// drifts.
const tickWindow = 8

// addStamp adds what the stamp of p, pass i, shows about the origin. endNs is the time from the start of the
// stretch to the end of the pass, cycleNs the elapsed time and constant of the pass. The line of a pass is
// stamped at its end and the stamp rounded down to a multiple of StampStepNs, which bounds the origin. A
// precise stamp also gives an estimate. A tick gives one too, as if it had happened in the middle of the
// pass, but not in the first pass of the stretch, because it may have happened in the idle time before.
func (z *stretchOrigin) addStamp(i int, p *pass, endNs, cycleNs float64, isFirst bool) {
	stamp, step := p.it.StampNs, p.it.StampStepNs.V
	if stamp.OK {
		z.lo = math.Max(z.lo, float64(stamp.V)-endNs)
		z.hi = math.Min(z.hi, float64(stamp.V+step)-endNs)
	}
	isPrecise := stamp.OK && step <= preciseNs
	switch {
	case isPrecise:
		z.index = append(z.index, i)
		z.ticks = append(z.ticks, float64(stamp.V+step/2)-endNs)
	case p.tick && !isFirst:
		z.index = append(z.index, i)
		z.ticks = append(z.ticks, float64(p.tickNs)-(endNs-cycleNs/2))
	}
}

// originFor returns the estimated start of the stretch for placing pass i, ns, interpolated between
// ticks. Without ticks or bounds it lies a second after free, the end of the stretch before.
func (z *stretchOrigin) originFor(i int, free int64) float64 {
	if len(z.ticks) == 0 {
		switch {
		case !math.IsInf(z.lo, 0):
			return (z.lo + z.hi) / 2
		case free > math.MinInt64:
			return float64(free + secondNs)
		}
		return 0
	}
	// A tick is off by up to a pass, so the origin is smoothed over neighbouring ticks.
	if z.smooth == nil {
		for k := range z.ticks {
			near := z.ticks[max(0, k-tickWindow):min(len(z.ticks), k+tickWindow+1)]
			z.smooth = append(z.smooth, stat.Mean(near))
		}
	}
	k, _ := slices.BinarySearch(z.index, i)
	switch {
	case k == 0:
		return z.smooth[0]
	case k == len(z.index):
		return z.smooth[k-1]
	}
	share := float64(i-z.index[k-1]) / float64(z.index[k]-z.index[k-1])
	return z.smooth[k-1]*(1-share) + z.smooth[k]*share
}

// placeBetweenTicks spaces the ends of the passes between two ticks of a busy stretch evenly. Those before
// the first and behind the last tick have no time.
func (f *filler) placeBetweenTicks() {
	f.markTicks()
	f.eachBusyStretch(func(from, to int) {
		last := -1
		for i := from + 1; i < to; i++ {
			p := &f.passes[i]
			if !p.tick {
				continue
			}
			if last >= 0 {
				fromNs := f.passes[last].tickNs
				for k := last; k < i; k++ {
					place := float64(k-last) + 0.5 // a tick lies in the middle of its pass, which ends half a pass later
					f.passes[k].endNs = fromNs + int64(float64(p.tickNs-fromNs)*place/float64(i-last))
					f.passes[k].hasEnd = true
				}
			}
			last = i
		}
	})
}
