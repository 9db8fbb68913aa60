package identity

// This file looks for a part of the requests or passes that differs from the rest: times in another unit or cut off,
// tokens counted in another way, and clocks that were set back. A file of which every value is wrong contradicts other
// streams; one of which every tenth is wrong has the right medians, so that each value is compared with those of its own
// kind. A reading (identity.go) has what was compared, how much of it contradicts, and a sentence.

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Tolerances of a part of the values.
const (
	mostApart     = 0.03          // share of the values that may be unlike the rest
	fewestApart   = 5             // values that are a part and no accident
	fewestOfPart  = 50            // values of which a part is looked for
	neighbours    = 15            // values before a value, and as many behind it, that it is compared with
	leastFactor   = 2.5           // from the median of its neighbours
	mostScatters  = 16            // times the median deviation of the values from those of their neighbours
	overtakers    = 3             // later requests that get their first token earlier
	overtakeUs    = 20_000        // by which they get it earlier, at least
	laterUs       = 100_000       // from which a request was sent later: a front end may hand over requests of one moment in another order
	overtakeGaps  = 4             // times between tokens, by which they get it earlier
	mostSingle    = 8             // times between tokens that an answer of one token may take after it
	chunkShare    = 0.3           // of the tokens that an answer has in chunks, where most have as many
	gapShare      = 0.02          // between the sum of the gaps and the time after the first token
	mostChunksOff = 0.02          // from one chunk a token, for the median of answers that have a chunk for each token
	passFactor    = 1.5           // between the time of an answer over its passes and the median of all
	passSlackUs   = 20_000        // by which such an answer is off the median, at least
	leastOfPasses = 0.9           // of the elapsed times of its passes that an answer takes
	mostOfPasses  = 5             // times them, with what lies between two passes of a small model
	pairSlackNs   = 3_000_000_000 // between a first token and its pass, beyond the offset of most
	mostPassRatio = 3             // between the elapsed time of a decode pass and those just before and after it
	fewestPlaced  = 200           // decode passes between others
	clockBackNs   = 1_000_000_000 // beyond the longest request, by which a clock was set back
	mostJumpShare = 0.02          // share of the requests at whose places a clock may have been set
	alikeJumps    = 0.9           // between the sizes of jumps that are of two clocks
)

// isPart reports whether so many of all values are a part that differs from the rest.
func isPart(n, all int) bool { return n >= fewestApart && float64(n) > mostApart*float64(all) }

// clientTurns counts the requests that several later ones overtake on the way to the first token. vLLM starts prompts
// in the order in which they came (vllm/v1/core/sched/request_queue.py: FCFSRequestQueue). largest is by how many s a
// request is overtaken.
func clientTurns(f *facts) reading {
	for _, key := range otherReasonsToWait {
		if f.dep.Engine.Extra[key] != nil {
			return notChecked("%s changes the order of prompts", key)
		}
	}
	if f.dep.Engine.LongPrefillThreshold > 0 {
		return notChecked("long_prefill_token_threshold changes the order of first tokens")
	}
	if policy := f.dep.Engine.SchedulingPolicy; policy != "" && policy != vllm.DefaultSchedulingPolicy {
		return notChecked("scheduling_policy %s changes the order of prompts", policy)
	}
	if f.dep.DP > 1 {
		return notChecked("several engines have queues of their own")
	}
	n := len(f.loads)
	if n < fewestOfPart {
		return notChecked("fewer than %d requests with times of clients or stock spans", fewestOfPart)
	}
	slackUs := math.Max(overtakeUs, overtakeGaps*f.medianGapUs())
	order := make([]*clientRequest, n)
	for i := range f.loads {
		order[i] = &f.loads[i]
	}
	slices.SortStableFunc(order, func(a, b *clientRequest) int { return cmp.Compare(a.sentUs, b.sentUs) })
	r := reading{checked: n}
	var earliest []float64 // first tokens of the requests from position later on: the earliest, as many as overtakers
	later := n             // position in order of the first request that was sent later than l
	for _, l := range slices.Backward(order) {
		for later > 0 && order[later-1].sentUs >= l.sentUs+laterUs {
			later--
			firstUs := order[later].sentUs + order[later].ttftUs
			at, _ := slices.BinarySearch(earliest, firstUs)
			earliest = slices.Insert(earliest, at, firstUs)
			earliest = earliest[:min(len(earliest), overtakers)]
		}
		if len(earliest) < overtakers {
			continue
		}
		if us := l.sentUs + l.ttftUs - earliest[overtakers-1]; us > slackUs {
			r.violated++
			r.largest = math.Max(r.largest, us/1e6)
		}
	}
	r.broken = isPart(r.violated, n)
	r.sentence = fmt.Sprintf("%d of %d requests get their first token after at least %d requests that were sent later, by up to %.3g s: times or stamps of a part "+
		"have another unit or clock, or are of other rows, or the server has another order than first come, first served", r.violated, n, overtakers, r.largest)
	return r
}

// medianGapUs returns the median TPOT of all requests, 0 without any.
func (f *facts) medianGapUs() float64 {
	var gaps []float64
	for i := range f.loads {
		if l := &f.loads[i]; l.itlUs > 0 && l.output >= leastStreamed {
			gaps = append(gaps, l.itlUs)
		}
	}
	if len(gaps) == 0 {
		return 0
	}
	return stat.Median(gaps)
}

// ratiosToNeighbours takes the logarithms of values in some order. It returns the logarithms of their ratios to the
// median of their neighbours, and the median deviation of these from 0.
func ratiosToNeighbours(logs []float64) (ratios []float64, scatter float64) {
	ratios = make([]float64, len(logs))
	deviations := make([]float64, len(logs))
	for i := range logs {
		from, to := max(0, i-neighbours), min(len(logs), i+neighbours+1)
		ratios[i] = logs[i] - stat.Median(slices.Clone(logs[from:to]))
		deviations[i] = math.Abs(ratios[i])
	}
	if len(logs) > 0 {
		scatter = stat.Median(deviations)
	}
	return ratios, scatter
}

// byDecoding returns the requests with an answer of leastStreamed tokens and more, by how many decode beside them.
func (f *facts) byDecoding() []*clientRequest {
	var list []*clientRequest
	for i := range f.loads {
		if l := &f.loads[i]; l.itlUs > 0 && l.output >= leastStreamed {
			list = append(list, l)
		}
	}
	slices.SortStableFunc(list, func(a, b *clientRequest) int { return cmp.Compare(a.decoding, b.decoding) })
	return list
}

// partOfUnits adds to the reading of client_units the requests whose TPOT is far from that of requests with as
// many decodes beside them, and the answers of one token that take as long as several.
func (f *facts) partOfUnits(r *reading) {
	list := f.byDecoding()
	if len(list) < fewestOfPart {
		return
	}
	logs := make([]float64, len(list))
	for i, l := range list {
		logs[i] = math.Log(l.itlUs)
	}
	ratios, scatter := ratiosToNeighbours(logs)
	most := math.Max(math.Log(leastFactor), mostScatters*scatter)
	n := 0
	largest := 0.0
	for _, ratio := range ratios {
		if math.Abs(ratio) > most {
			n++
			largest = math.Max(largest, math.Exp(math.Abs(ratio)))
		}
	}
	if isPart(n, len(list)) {
		*r = reading{checked: len(list), violated: n, largest: largest, broken: true}
		r.sentence = fmt.Sprintf("in %d of %d requests the TPOT is %.3g times and more off that of requests with as many others beside them, by up to "+
			"%.3g times: a part of the times has another unit or was cut off, or a part of the outputs is not in tokens", n, len(list), math.Exp(most), largest)
		return
	}
	single, gapUs := 0, f.medianGapUs()
	longestUs := 0.0
	for i := range f.loads {
		if l := &f.loads[i]; l.output <= 1 && l.e2eUs-l.ttftUs > mostSingle*gapUs {
			single++
			longestUs = math.Max(longestUs, l.e2eUs-l.ttftUs)
		}
	}
	if isPart(single, len(f.loads)) {
		*r = reading{checked: len(f.loads), violated: single, largest: longestUs / gapUs, broken: true}
		r.sentence = fmt.Sprintf("%d of %d answers have one token and go on after it, for up to %.3g ms, where others have a token every %.3g ms: their output tokens "+
			"were not counted", single, len(f.loads), longestUs/1e3, gapUs/1e3)
	}
}

// clientChunks compares the chunks of answers with their tokens, where nearly all answers have as many, and the sum of
// the gaps between chunks with the time after the first. largest is in ms for the gaps, and a ratio (foldChange) for
// the chunks.
func clientChunks(f *facts) reading {
	var r reading
	var ratios []float64 // chunks over tokens
	unlike, sums := 0, 0 // answers with another ratio; answers whose gaps can be added up
	worst := 0.0         // us between the sum of the gaps and the time after the first token
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		if o.Uncounted() {
			continue
		}
		if o.Chunks.V > 0 && o.OutputTokens.V > 0 {
			ratios = append(ratios, float64(o.Chunks.V)/float64(o.OutputTokens.V))
		}
		if len(o.ChunkGapsUs) > 0 && o.TTFTUs.OK && o.E2EUs.OK {
			sumUs := 0.0
			for _, us := range o.ChunkGapsUs {
				sumUs += us
			}
			sums++
			afterUs := o.E2EUs.V - o.TTFTUs.V
			if off := math.Abs(sumUs - afterUs); off > gapShare*math.Max(sumUs, afterUs)+clientSlackUs {
				r.violated++
				worst = math.Max(worst, off)
			}
		}
	}
	r.checked = max(len(ratios), sums)
	if r.checked < fewestOfPart {
		return notChecked("fewer than %d answers with chunks", fewestOfPart)
	}
	if isPart(r.violated, sums) {
		r.broken = true
		r.largest = worst / 1e3
		r.sentence = fmt.Sprintf("in %d of %d answers the gaps between chunks do not add up to the time after the first token, by up to %.3g ms: one of the two was "+
			"changed or has another unit", r.violated, sums, r.largest)
		return r
	}
	r.violated = 0
	if len(ratios) < fewestOfPart || f.speculates() || math.Abs(stat.Median(slices.Clone(ratios))-1) > mostChunksOff {
		return r
	}
	for _, ratio := range ratios {
		r.largest = math.Max(r.largest, foldChange(ratio))
		if ratio < chunkShare || ratio > 1/chunkShare {
			unlike++
		}
	}
	r.violated = unlike
	r.broken = isPart(unlike, len(ratios))
	r.sentence = fmt.Sprintf("%d of %d answers have other numbers of chunks than of tokens, by up to %.3g times, where the others have a chunk a token: their output "+
		"tokens are of another row, not in tokens, or their times were cut off", unlike, len(ratios), r.largest)
	return r
}

// passSpan is the time of a request and of the logged passes that made its tokens.
type passSpan struct {
	ttftUs, firstUs  float64 // to the first token; elapsed time of its pass
	afterUs, passUs  float64 // after it; elapsed times of the passes of the other tokens
	stampNs, chunkNs trace.Opt[int64]
}

// passSpans returns the requests whose pass of the first token is known, where no pass is missing.
func (f *facts) passSpans() []passSpan {
	its := f.run.Iterations
	at := map[int64]int{}               // position of a pass by its number
	sums := make([]float64, len(its)+1) // elapsed times of the passes before a position
	for i := range its {
		at[its[i].Index] = i
		sums[i+1] = sums[i] + its[i].ElapsedUs
	}
	var out []passSpan
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		k, isKnown := at[o.Iteration.V]
		last := k + int(o.OutputTokens.V) - 1
		if !o.Iteration.OK || !isKnown || o.Engine.OK || o.Uncounted() || !o.TTFTUs.OK || !o.E2EUs.OK || last < k || last >= len(its) ||
			its[last].Index != o.Iteration.V+int64(last-k) {
			continue
		}
		out = append(out, passSpan{
			ttftUs:  o.TTFTUs.V,
			firstUs: its[k].ElapsedUs,
			afterUs: o.E2EUs.V - o.TTFTUs.V,
			passUs:  sums[last+1] - sums[k+1],
			stampNs: its[k].StampNs,
			chunkNs: o.FirstChunkNs,
		})
	}
	return out
}

// answerPasses compares the times of requests with the elapsed times of the passes that made their tokens. largest is a
// ratio (foldChange).
func answerPasses(f *facts) reading {
	if f.speculates() {
		return notChecked("steps verify drafted tokens")
	}
	if f.async {
		return notChecked("an asynchronous engine may log a pass with the time of another")
	}
	spans := f.passSpans()
	if len(spans) < fewestOfPart {
		return notChecked("fewer than %d requests whose pass is known", fewestOfPart)
	}
	r := reading{checked: len(spans)}
	var ratios, offsets []float64 // time of an answer over that of its passes; ns from a pass to its first token
	for i := range spans {
		if s := &spans[i]; s.passUs > 0 && s.afterUs > 0 {
			ratios = append(ratios, s.afterUs/s.passUs)
		}
		if s := &spans[i]; s.stampNs.OK && s.chunkNs.OK {
			offsets = append(offsets, float64(s.chunkNs.V-s.stampNs.V))
		}
	}
	if len(ratios) < fewestOfPart {
		return notChecked("fewer than %d answers of several tokens whose passes are known", fewestOfPart)
	}
	median := stat.Median(slices.Clone(ratios))
	r.largest = foldChange(median)
	if median < leastOfPasses || median > mostOfPasses {
		r.violated = len(ratios)
		r.broken = true
		r.sentence = fmt.Sprintf("after the first token %d requests take %.3g times the elapsed times of the passes that made the others (median): times of clients or "+
			"of passes have another unit, or the two are of different runs", len(ratios), median)
		return r
	}
	off, early, apart := 0, 0, 0 // of the three contradictions in the sentences below
	offset := 0.0
	if len(offsets) > 0 {
		offset = stat.Median(slices.Clone(offsets))
	}
	for i := range spans {
		s := &spans[i]
		if s.firstUs > 0 && s.ttftUs < leastOfPasses*s.firstUs {
			early++
		}
		if s.passUs > 0 && s.afterUs/s.passUs/median != 1 {
			ratio := foldChange(math.Max(0, s.afterUs/s.passUs/median))
			if math.Abs(s.afterUs-median*s.passUs) > passSlackUs && ratio > passFactor {
				off++
				r.largest = math.Max(r.largest, ratio)
			}
		}
		if s.stampNs.OK && s.chunkNs.OK && math.Abs(float64(s.chunkNs.V-s.stampNs.V)-offset) > pairSlackNs {
			apart++
		}
	}
	r.violated = max(off, early, apart)
	r.broken = isPart(r.violated, len(spans))
	switch r.violated {
	case off:
		r.sentence = fmt.Sprintf("after the first token %d of %d requests take other times than the passes that made their other tokens, by up to %.3g times: a part of "+
			"the times has another unit or was cut off, or a part of the outputs is not in tokens", off, len(spans), r.largest)
	case early:
		r.sentence = fmt.Sprintf("%d of %d requests get their first token in less time than its pass took: a part of the times has another unit or was filled in", early,
			len(spans))
	default:
		r.sentence = fmt.Sprintf("%d of %d first tokens are more than %d s from their pass, by the offset of most of the others: a clock was set, or two recordings "+
			"were put together", apart, len(spans), int64(pairSlackNs/1e9))
	}
	return r
}

// Tolerances of first passes.
const (
	fewestAlone    = 20   // requests that had the engine alone
	mostBeside     = 2    // decodes beside a prompt, where too few had it alone: each makes the step before it longer
	mostFirstScale = 1.15 // by which the time to the first token may grow faster than the elapsed time of its pass
	frontTokenUs   = 0.5  // of a front end for a token of a prompt
	leastFirsts    = 1.5  // ratio of the long passes to the short ones (P90, P10)
)

// firstPasses compares how fast the time to the first token grows with the elapsed time of the pass that computed the
// whole prompt, with no other prompt and the fewest decodes. What lies between the two, the way to the client and the
// rest of a step before, is the same for short and long passes; a factor is not. largest is the slope.
func firstPasses(f *facts) reading {
	if f.async {
		return notChecked("an asynchronous engine may log a pass with the time of another")
	}
	at := map[int64]*trace.Iteration{} // by number
	for i := range f.run.Iterations {
		if it := &f.run.Iterations[i]; it.Form == trace.IterationLog && it.ContextReqs == 1 && !it.Sampled {
			at[it.Index] = it
		}
	}
	var elapsed, ttft []float64 // us
	for beside := int64(0); beside <= mostBeside && len(elapsed) < fewestAlone; beside++ {
		elapsed, ttft = nil, nil
		for i := range f.run.Observed {
			o := &f.run.Observed[i]
			it := at[o.Iteration.V]
			isKnown := o.Iteration.OK && it != nil && !o.Engine.OK && !o.Uncounted() && o.TTFTUs.OK
			if isKnown && it.GenerationReqs <= beside && it.ContextTokens+o.CachedTokens.V >= o.PromptTokens.V {
				elapsed = append(elapsed, it.ElapsedUs)
				ttft = append(ttft, o.TTFTUs.V-frontTokenUs*float64(o.PromptTokens.V))
			}
		}
	}
	r := reading{checked: len(elapsed)}
	sorted := stat.Sorted(elapsed)
	if r.checked < fewestAlone || stat.Quantile(sorted, 0.9) < leastFirsts*stat.Quantile(sorted, 0.1) {
		return notChecked("fewer than %d requests whose pass is known and has their whole prompt almost alone, or no different passes", fewestAlone)
	}
	slope, lo, hi := stat.Slope(elapsed, ttft)
	r.largest = slope
	r.broken = lo > mostFirstScale || hi < 1/mostFirstScale
	if r.broken {
		r.violated = r.checked
	}
	r.sentence = fmt.Sprintf("the times to the first token of %d requests grow %.3g times as fast as the elapsed times of the passes that computed their prompts (%.3g to "+
		"%.3g): the log's times, or the client's, were changed or have another unit", r.checked, slope, lo, hi)
	return r
}

// passUnits compares the elapsed time of each decode pass with those of the two before and the two behind it. largest
// is a ratio (foldChange).
func passUnits(f *facts) reading {
	its := f.run.Iterations
	isDecode := func(it *trace.Iteration) bool {
		return it.ContextTokens == 0 && it.GenerationTokens > 0 && it.ElapsedUs > 0 && !it.Sampled && it.Form != trace.IterationChunks
	}
	var r reading
	for i := 2; i+2 < len(its); i++ {
		near := its[i-2 : i+3]
		var us []float64
		for k := range near {
			if isDecode(&near[k]) {
				us = append(us, near[k].ElapsedUs)
			}
		}
		if len(us) < len(near) {
			continue
		}
		r.checked++
		off := foldChange(its[i].ElapsedUs / stat.Median(us))
		r.largest = math.Max(r.largest, off)
		if off > mostPassRatio {
			r.violated++
		}
	}
	if r.checked < fewestPlaced {
		return notChecked("fewer than %d logged passes that decode between others", fewestPlaced)
	}
	r.broken = isPart(r.violated, r.checked)
	r.sentence = fmt.Sprintf("%d of %d passes that decode take over %d times as long or as short as those beside them, by up to %.3g times: a part of the elapsed "+
		"times has another unit", r.violated, r.checked, mostPassRatio, r.largest)
	return r
}

// clientClock looks for a few places at which the stamps of requests, in the order of their numbers or of the lines of
// their file, go back by more than any request takes. A file that is written as requests end is out of order by less;
// one in no order at all goes back often. violated counts such places, and largest is by how many s one goes back.
func clientClock(f *facts) reading {
	type row struct {
		number int // of its id, or its line
		sentNs int64
	}
	files := map[string][]row{} // by file, phase and the text of the ids before their number
	longestNs := int64(0)       // of any request
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		sentNs := o.SentNs()
		if sentNs == 0 {
			continue
		}
		prefix, number, isNumbered := numbered(o.ID)
		if !isNumbered {
			prefix = ""
			number = int(o.Line)
		}
		key := o.Source + " " + o.Phase.V + " " + prefix
		files[key] = append(files[key], row{number: number, sentNs: sentNs})
		if o.E2EUs.OK {
			longestNs = max(longestNs, trace.Ns(o.E2EUs.V))
		}
	}
	var r reading
	for _, key := range slices.Sorted(maps.Keys(files)) {
		rows := files[key]
		stat.SortStable(rows, func(a, b row) int { return cmp.Compare(a.number, b.number) })
		isOrder := slices.ContainsFunc(rows, func(a row) bool { return a.number != rows[0].number })
		if len(rows) < fewestOfPart || !isOrder {
			continue
		}
		r.checked += len(rows)
		var jumpsNs []float64
		for i := 1; i < len(rows); i++ {
			if back := rows[i-1].sentNs - rows[i].sentNs; back > longestNs+clockBackNs {
				jumpsNs = append(jumpsNs, float64(back))
			}
		}
		if len(jumpsNs) == 0 {
			continue
		}
		sorted := stat.Sorted(jumpsNs)
		isAlike := stat.Quantile(sorted, 0.1) > alikeJumps*stat.Quantile(sorted, 0.9) // by about one time: two clocks
		if isAlike || float64(len(jumpsNs)) <= mostJumpShare*float64(len(rows)) {
			r.violated += len(jumpsNs)
			r.largest = math.Max(r.largest, sorted[len(sorted)-1]/1e9)
		}
	}
	if r.checked == 0 {
		return notChecked("fewer than %d requests in a known order", fewestOfPart)
	}
	r.broken = r.violated > 0
	r.sentence = fmt.Sprintf("at %d places of %d requests, in the order of their numbers or lines, the time of sending goes back by up to %.4g s, which no request takes: "+
		"the clock was set, or the file was put together from several", r.violated, r.checked, r.largest)
	return r
}

// clientSums compares, by their scatter, three readings of a client's times: E2E as it is stated, E2E that lacks the
// time to the first token, and E2E that has it twice. Requests with as many others beside them have about one TPOT.
// largest is the ratio of the stated scatter to that of the likelier reading.
func clientSums(f *facts) reading {
	list := f.byDecoding()
	if len(list) < 2*fewestOfPart {
		return notChecked("fewer than %d requests with a TPOT", 2*fewestOfPart)
	}
	ttft := make([]float64, len(list))
	for i, l := range list {
		ttft[i] = math.Log(math.Max(1, l.ttftUs))
	}
	median := stat.Median(slices.Clone(ttft))
	for i := range ttft {
		ttft[i] = math.Abs(ttft[i] - median)
	}
	if stat.Median(ttft) < leastWaits {
		return notChecked("all requests wait about as long for their first token")
	}
	scatterOf := func(times float64) float64 { // of the TPOT with TTFT so many times more in E2E
		var logs []float64
		for _, l := range list {
			if us := l.e2eUs - l.ttftUs + times*l.ttftUs; us > 0 {
				logs = append(logs, math.Log(us/(l.output-1)))
			}
		}
		if len(logs) < len(list)*9/10 {
			return math.Inf(1)
		}
		_, scatter := ratiosToNeighbours(logs)
		return scatter
	}
	stated := scatterOf(0)
	r := reading{checked: len(list)}
	for _, other := range []struct {
		times float64
		what  string
	}{
		{times: 1, what: "lacks the time to the first token"},
		{times: -1, what: "has the time to the first token twice"},
	} {
		ratio := stated / scatterOf(other.times)
		if ratio > r.largest {
			r.largest = ratio
			r.sentence = fmt.Sprintf("the times between tokens of %d requests with as many others beside them scatter %.3g times as much as if E2E %s: one of the columns is "+
				"another time than its name says", len(list), ratio, other.what)
		}
	}
	r.broken = r.largest > leastLessScatter
	if r.broken {
		r.violated = r.checked
	}
	return r
}

// Tolerances of other readings of E2E.
const (
	leastLessScatter = 1.67 // ratio of scatters from which another reading is the likelier one
	leastWaits       = 0.2  // median deviation of the logarithm of TTFT: a late first chunk scatters less, and is in no E2E
)
