package extract

// This file compares the tokens that a server counts in its log every ten seconds with those of the requests that were recorded.

import (
	"math"
	"slices"
	"time"

	gonum "gonum.org/v1/gonum/stat"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

const (
	mostSeconds     = 1 << 19 // of requests, 6 days: what is kept of more would take much memory
	fewestLines     = 8       // of a log, within the time of the requests
	leastLikeness   = 0.5     // correlation of the two counts, where the zone of the log is right
	jumpedIntervals = 1.5     // times the usual time between two lines, from which lines are missing between them
	edgeNs          = 5e8     // between a token and its count
)

// tokenSum counts the tokens of prompts and outputs.
type tokenSum struct{ prompts, outputs float64 }

// plus returns the sum with so many times another one.
func (s tokenSum) plus(times float64, o tokenSum) tokenSum {
	return tokenSum{prompts: s.prompts + times*o.prompts, outputs: s.outputs + times*o.outputs}
}

// tokenTimes has the tokens of requests by the second of the wall clock in which the server makes them: those of a prompt with
// the first output token, the other outputs evenly until the last.
type tokenTimes struct {
	bySecond        map[int64]tokenSum
	firstNs, lastNs int64 // when requests arrived and ended
}

// add adds a request that arrived at a time of the wall clock.
func (t *tokenTimes) add(arrivedNs int64, ttftUs, e2eUs float64, prompt, output int64) {
	if t == nil || !(ttftUs >= 0 && e2eUs >= ttftUs) || len(t.bySecond) > mostSeconds {
		return
	}
	if t.bySecond == nil {
		t.bySecond = map[int64]tokenSum{}
		t.firstNs = arrivedNs
	}
	t.firstNs = min(t.firstNs, arrivedNs)
	t.lastNs = max(t.lastNs, arrivedNs+trace.Ns(e2eUs))
	firstS := float64(arrivedNs)/1e9 + ttftUs/1e6
	lastS := firstS + (e2eUs-ttftUs)/1e6
	put := func(second int64, s tokenSum) { t.bySecond[second] = t.bySecond[second].plus(1, s) }
	put(int64(firstS), tokenSum{prompts: float64(prompt), outputs: math.Min(1, float64(output))})
	for second := int64(firstS); output > 1 && second <= int64(lastS) && len(t.bySecond) <= mostSeconds; second++ {
		part := 1.0 // of the time after the first token
		if lastS > firstS {
			part = (math.Min(lastS, float64(second+1)) - math.Max(firstS, float64(second))) / (lastS - firstS)
		}
		put(second, tokenSum{outputs: part * float64(output-1)})
	}
}

// logInterval is the time between two lines of a log, on the clock of the log, and what the server counted in it.
type logInterval struct {
	fromNs, toNs int64
	counted      tokenSum
}

// intervalsOf returns the intervals of a log's lines of statistics, without the first, which is of an unknown time; nil for
// lines without stamps, and for those of several engines, which need not have the same requests.
func intervalsOf(lines []enginelog.Statistics) []logInterval {
	var gaps []float64
	for i := range lines {
		l := &lines[i]
		if !l.StampNs.OK || l.Engine != lines[0].Engine || l.StampWall != lines[0].StampWall {
			return nil
		}
		if i > 0 {
			gaps = append(gaps, float64(l.StampNs.V-lines[i-1].StampNs.V))
		}
	}
	if len(gaps) < fewestLines {
		return nil
	}
	usual := stat.Median(gaps)
	var out []logInterval
	for i, gap := range gaps {
		if gap*jumpedIntervals < usual {
			continue // the server started again
		}
		if gap > jumpedIntervals*usual {
			gap = usual // lines of an idle server are left out
		}
		l := &lines[i+1]
		seconds := gap / 1e9
		out = append(out, logInterval{
			fromNs: l.StampNs.V - int64(gap), toNs: l.StampNs.V,
			counted: tokenSum{prompts: l.PromptRate * seconds, outputs: l.OutputRate * seconds},
		})
	}
	return out
}

// compare returns the sums of the server's counts and of the requests in the intervals that lie within the time of the requests;
// nil where the log has too few such lines, or none whose counts go with the requests.
func (t *tokenTimes) compare(lines []enginelog.Statistics, of string) *result.ServerCount {
	intervals := intervalsOf(lines)
	if t == nil || len(intervals) == 0 || len(t.bySecond) == 0 || len(t.bySecond) > mostSeconds {
		return nil
	}
	upTo := t.cumulative()
	offsets := []int64{0} // from the clock of the log to that of the requests
	if !lines[0].StampWall {
		// The log has the local time of a year that it does not name, counted as one of a leap year: a day more after February.
		newYear := time.Date(time.Unix(0, t.firstNs).UTC().Year(), 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
		offsets = nil
		for zone := -38 * time.Hour; zone <= 14*time.Hour; zone += 15 * time.Minute {
			offsets = append(offsets, newYear+zone.Nanoseconds())
		}
	}
	likeness := leastLikeness
	var within []logInterval // on the clock of the requests
	for _, offset := range offsets {
		var list []logInterval
		var counted, recorded []float64
		for _, in := range intervals {
			in.fromNs += offset
			in.toNs += offset
			if in.fromNs < t.firstNs || in.toNs > t.lastNs {
				continue
			}
			list = append(list, in)
			sum := upTo(in.toNs).plus(-1, upTo(in.fromNs))
			counted = append(counted, in.counted.prompts, in.counted.outputs)
			recorded = append(recorded, sum.prompts, sum.outputs)
		}
		if len(list) < fewestLines {
			continue
		}
		if r := gonum.Correlation(counted, recorded, nil); r > likeness {
			likeness = r
			within = list
		}
	}
	if within == nil {
		return nil
	}
	out := &result.ServerCount{Of: of, Lines: len(within)}
	step := lines[0].StampStepNs + edgeNs
	for i := 0; i < len(within); {
		first := within[i].fromNs
		last := first
		for ; i < len(within) && within[i].fromNs <= last+lines[0].StampStepNs; i++ {
			last = within[i].toNs
			out.Prompts.Server += within[i].counted.prompts
			out.Outputs.Server += within[i].counted.outputs
		}
		least := upTo(last-step).plus(-1, upTo(first+step))
		most := upTo(last+step).plus(-1, upTo(first-step))
		out.Prompts.Least += least.prompts
		out.Prompts.Most += most.prompts
		out.Outputs.Least += least.outputs
		out.Outputs.Most += most.outputs
	}
	for i := range lines {
		out.HitFrac = math.Max(out.HitFrac, lines[i].HitFrac)
	}
	return out
}

// cumulative returns the tokens of all requests up to a time.
func (t *tokenTimes) cumulative() func(ns int64) tokenSum {
	var seconds []int64
	for second := range t.bySecond {
		seconds = append(seconds, second)
	}
	slices.Sort(seconds)
	sums := make([]tokenSum, len(seconds)+1) // of the seconds before each
	for i, second := range seconds {
		sums[i+1] = sums[i].plus(1, t.bySecond[second])
	}
	return func(ns int64) tokenSum {
		second := ns / 1e9
		i, isThere := slices.BinarySearch(seconds, second)
		if !isThere {
			return sums[i]
		}
		return sums[i].plus(float64(ns%1e9)/1e9, t.bySecond[second])
	}
}

// countServer compares the log's counts of tokens with the spans of an unmodified vLLM and with the clients' requests.
func (x *extraction) countServer() (out []result.ServerCount) {
	if x.logs == nil || len(x.logs.Statistics) == 0 {
		return nil
	}
	clients := &tokenTimes{}
	for i := range x.observed {
		o := &x.observed[i]
		if !o.SendWallNs.OK || !o.TTFTUs.OK || !o.E2EUs.OK || !o.PromptTokens.OK || !o.OutputTokens.OK {
			clients = &tokenTimes{} // how many tokens it lacks is not known
			break
		}
		clients.add(o.SendWallNs.V, o.TTFTUs.V, o.E2EUs.V, o.PromptTokens.V*max(1, o.N.V), o.OutputTokens.V)
	}
	ofSpans := x.spans.stock.compare(x.logs.Statistics, result.CountSpans)
	ofClients := clients.compare(x.logs.Statistics, result.CountClients)
	for _, c := range []*result.ServerCount{ofSpans, ofClients} {
		if c != nil {
			out = append(out, *c)
		}
	}
	return out
}
