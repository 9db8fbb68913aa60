package logged

// This file measures the delay between clients and the engine.

import (
	"cmp"
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// clientDelays measures the time from the client to the engine and back. For a request that arrived
// at an idle engine it is exact. For any other it is bounded, because its prompt ran in the first
// pass that was scheduled after it arrived: it lies between the start of the pass before that less the send,
// and the start of the pass less the send. Asynchronous engines log while the batch runs; where first chunks
// follow the next line more closely, that line is taken as the end of the pass (lag).
type clientDelays struct {
	idle   []float64    // us, exact ones
	bounds []delayBound // of the others: the two ends of each interval
	lag    int          // number of passes between the one that ran a prompt and the one whose log line precedes the first chunk
	lateNs int64        // correction of the chunks' clock for lag
	ahead  int          // number of passes that were not finished when a pass was scheduled: 1 with asynchronous scheduling
}

// findDelayLag returns an empty clientDelays with its lag set: 0, or 1 if log lines are written
// while their batches run. It is the lag with which first chunks follow the ends of passes with the
// least scatter, over requests whose pass is certain.
func (f *filler) findDelayLag() clientDelays {
	var afterOwn, afterNext []float64 // ns from the end of the prompt's pass, and of the next one, to the first chunk
	next := 0                         // request
	for i := 0; i+1 < len(f.passes); i++ {
		own := &f.passes[i]
		following := &f.passes[i+1]
		for ; next < len(f.requests) && f.requests[next].ended.OK && f.requests[next].ended.V <= own.it.Index; next++ {
			o := &f.requests[next]
			if o.ended.V == own.it.Index && following.follows && own.hasEnd && following.hasEnd {
				afterOwn = append(afterOwn, float64(o.firstNs-own.endNs))
				afterNext = append(afterNext, float64(o.firstNs-following.endNs))
			}
		}
	}
	if len(afterOwn) < leastVotes || !(medianDeviation(afterNext) < reconstruct.LagMargin*medianDeviation(afterOwn)) {
		if f.dep.Engine.IsAsync() && f.run.Iterations[0].Form == trace.IterationLog {
			return clientDelays{ahead: 1}
		}
		return clientDelays{}
	}
	return clientDelays{lag: 1, lateNs: trace.Ns(-stat.Median(afterNext) / 1000)}
}

// medianDeviation returns the median absolute distance from the median.
func medianDeviation(list []float64) float64 {
	middle := stat.Median(list)
	off := make([]float64, len(list))
	for i, v := range list {
		off[i] = math.Abs(v - middle)
	}
	return stat.Median(off)
}

// delayBound is one end of an interval of possible delays.
type delayBound struct {
	at    float64 // us
	opens bool    // it is the lower end
}

// idleRequests is the number of exact delays from which on the bounds are not used.
const idleRequests = 5

// addRequests adds the delays of the requests whose prompts ended in the i-th pass.
func (d *clientDelays) addRequests(passes []pass, i int, ended []*clientRequest) {
	p := &passes[i]
	if i <= d.ahead || i+d.lag >= len(passes) || !p.hasStart || !passes[i-1].hasEnd {
		return
	}
	line := &passes[i+d.lag] // its log line precedes the first chunks
	// The prompts waited when p was scheduled, which is when the pass ahead of it began, and not yet when
	// the pass before that one was.
	scheduled := &passes[i-d.ahead]
	before := &passes[i-d.ahead-1]
	for _, o := range ended {
		if !(o.ttftUs > 0) {
			continue
		}
		sent := float64(o.firstNs+d.lateNs)/1000 - o.ttftUs // us, as the other times here
		switch {
		case p.idle && len(ended) == 1 && p.decodes == 0 && sent >= float64(passes[i-1].endNs)/1000:
			d.idle = append(d.idle, o.ttftUs-float64(line.endNs-p.startNs)/1000)
		case !p.idle && scheduled.hasStart && before.hasStart:
			if hi := float64(scheduled.startNs)/1000 - sent; hi > 0 {
				lo := max(0, float64(before.startNs)/1000-sent)
				d.bounds = append(d.bounds, delayBound{at: lo, opens: true}, delayBound{at: hi})
			}
		}
	}
}

// delaysUs returns the exact delays. If there are fewer than idleRequests of them, it returns the
// one delay that lies in the most intervals, if any.
func (d *clientDelays) delaysUs() []float64 {
	if len(d.idle) >= idleRequests || len(d.bounds) == 0 {
		return d.idle
	}
	stat.SortStable(d.bounds, func(a, b delayBound) int { return cmp.Compare(a.at, b.at) })
	open := 0 // intervals that have the delay of the bound
	most := 0
	from := 0.0 // where most of them overlap
	to := 0.0
	for i, b := range d.bounds {
		if !b.opens {
			open--
			continue
		}
		if open++; open > most && i+1 < len(d.bounds) {
			most = open
			from = b.at
			to = d.bounds[i+1].at
		}
	}
	return []float64{(from + to) / 2}
}
