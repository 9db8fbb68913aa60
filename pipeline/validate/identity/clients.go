package identity

// This file compares the times of clients and of stock spans (those of an unmodified vLLM) with each other, with those of
// the server, and with the shortest that the hardware allows. A reading (identity.go) has what was compared, how much of
// it contradicts, and a sentence.

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Tolerances of clients' times.
const (
	longestOfPriced = 0.5    // s that the quickest first token may come after its prompt's kernels
	mostUnits       = 50     // times the median that a TPOT may be
	spanSlackUs     = 50_000 // between the times of a span
	spanSlackShare  = 0.1    // of the longer
)

// quickest is the smallest of some delays, each the time of a client less the server's for the same request.
type quickest struct {
	n  int     // number of delays
	us float64 // the smallest; without any +Inf
}

// noDelays is the smallest of no delays.
var noDelays = quickest{us: math.Inf(1)}

// add adds a delay.
func (q *quickest) add(us float64) {
	q.n++
	q.us = math.Min(q.us, us)
}

// clientDelays compares the time to the first token that clients state with the server's, or, where the server states
// none, with the library's time of the prompt. The smallest difference over all requests is network and front end, or
// time that the client wrongly counts into TTFT. If that is small, the times to the end are compared in the same way.
// largest is the smallest difference in s.
func clientDelays(f *facts) reading {
	first, end := f.delaysOfJourneys()
	what := "than the server took"
	most := longestOfLeast // s
	if a := f.run.Aggregate; first.n == 0 && a != nil && len(a.DelaysUs) > 0 {
		first = quickest{n: len(f.loads), us: stat.Median(a.DelaysUs)} // of requests that found the server idle
	}
	if first.n < fewestDelays && f.price != nil {
		alone := 0 // requests that found the server idle and had it alone until their first token
		first, alone = f.delaysOfKernels()
		what = "than its prompt's kernels take on " + f.dep.Hardware.Name
		if alone < fewestDelays {
			most = longestOfPriced
		}
	}
	if first.n < fewestDelays {
		return notChecked("fewer than %d requests with times of client and server", fewestDelays)
	}
	r := reading{checked: first.n, largest: first.us / 1e6}
	if r.largest > most {
		r.violated = first.n
		r.broken = true
	}
	r.sentence = fmt.Sprintf("each of %d requests takes the client at least %.3g s longer to the first token %s: something between the two waits, every "+
		"request was queued, or TTFT counts more than the server", first.n, r.largest, what)
	if end.n >= fewestDelays && !r.broken && end.us/1e6 > longestOfLeast {
		r.largest = end.us / 1e6
		r.checked = end.n
		r.violated = end.n
		r.broken = true
		r.sentence = fmt.Sprintf("each of %d requests ends for the client at least %.3g s later than in the server, and its first token does not come later: E2E "+
			"counts more than the request", end.n, r.largest)
	}
	return r
}

// delaysOfJourneys returns the smallest delays of the first token and of the end, of the requests that have a journey.
func (f *facts) delaysOfJourneys() (first, end quickest) {
	first, end = noDelays, noDelays
	byID := map[string]*trace.Request{}
	for i := range f.run.Requests {
		if q := &f.run.Requests[i]; q.CoreID.OK {
			byID[q.CoreID.V] = q
		}
	}
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		q := byID[o.CoreID.V]
		if !o.CoreID.OK || q == nil || !o.TTFTUs.OK {
			continue
		}
		if ms, ok := trace.BetweenMs(q.ArrivedNs, q.FirstTokenNs); ok {
			first.add(o.TTFTUs.V - ms*1e3)
		}
		if ms, ok := trace.BetweenMs(q.ArrivedNs, q.FinishedNs); ok && o.E2EUs.OK {
			end.add(o.E2EUs.V - ms*1e3)
		}
	}
	return first, end
}

// delaysOfKernels returns the smallest delay of the first token beyond the library's time of the prompt, and how many
// requests had the server alone until then. The others wait for each other too.
func (f *facts) delaysOfKernels() (first quickest, alone int) {
	first = noDelays
	for i := range f.loads {
		l := &f.loads[i]
		first.add(l.ttftUs - f.prefillTime(l.prompt-l.cached).mostUs)
		if l.isAlone {
			alone++
		}
	}
	return first, alone
}

// clientTotals repeats what the extraction found of files of clients whose totals are not those of their requests. A total that
// nothing uses, in a file of its own or not computed, is only named.
func clientTotals(f *facts) reading {
	r := f.foundOfClients(source.CodeClientTotals)
	if r.broken || r.why != "" {
		return r
	}
	r = f.foundOfClients(source.CodeClientSummary)
	r.effect = result.IdentityNamed
	return r
}

// clientLoads repeats what the extraction found of files of clients that state another load than their requests are. A client may be
// slower than it was asked to be, and none is faster: then the verdict stays open.
func clientLoads(f *facts) reading {
	if fast := f.foundOfClients(source.CodeClientRate); fast.broken {
		fast.effect = result.IdentityUndecided
		return fast
	}
	return f.foundOfClients(source.CodeClientLoad)
}

// foundOfClients joins the findings of the extraction with a code.
func (f *facts) foundOfClients(code trace.Code) reading {
	if len(f.run.Observed) == 0 {
		return notChecked("no requests of clients")
	}
	r := reading{checked: len(f.run.Observed)}
	var sentences []string
	for _, w := range f.Findings {
		if w.Code == code {
			sentences = append(sentences, w.Message)
		}
	}
	r.violated = len(sentences)
	r.largest = float64(r.violated)
	r.broken = r.violated > 0
	r.sentence = strings.Join(sentences, "; ")
	return r
}

// mostOthers is the share of the decodes of a log that may be of other requests than the clients'.
const mostOthers = 0.1

// clientPasses returns the reading of whether requests of clients run when the passes of the log do. It is not checked
// if other clients sent requests too, which would explain a difference.
func clientPasses(f *facts) reading {
	a := f.run.Aggregate
	if a == nil || len(f.run.Observed) < fewestLengths {
		return notChecked("no logged passes beside %d requests of clients", fewestLengths)
	}
	if math.Abs(a.Others) > mostOthers {
		return notChecked("%.0f %% of the decodes of the log are of other requests", 100*a.Others)
	}
	r := reading{checked: len(f.run.Observed)}
	if a.Apart != "" {
		r.broken = true
		r.violated = r.checked
		r.sentence = a.Apart + ", although clients have all decodes of the log: the two are of different runs, or the times at which requests were sent or " +
			"answered, or their prompts, are wrong"
	}
	return r
}

// clientsDiffer counts the requests whose lengths and times are those of another one. largest is their share.
func clientsDiffer(f *facts) reading {
	type row struct {
		prompt, output, ttftUs, e2eUs float64
		sentUs                        float64 // where times may be equal by chance
	}
	seen := map[row]bool{}
	var r reading
	for i := range f.loads {
		l := &f.loads[i]
		key := row{prompt: l.prompt, output: l.output, ttftUs: l.ttftUs, e2eUs: l.e2eUs}
		if isWhole(l.ttftUs/1e3) || isWhole(l.e2eUs/1e3) { // whole ms may be equal by chance
			if isWhole(l.sentUs / 1e3) {
				continue
			}
			key.sentUs = l.sentUs
		}
		if l.output <= 1 { // its only time may be that of another one by chance
			key.sentUs = l.sentUs
		}
		r.checked++
		if seen[key] {
			r.violated++
		}
		seen[key] = true
	}
	if r.checked == 0 {
		return notChecked("no times finer than 1 ms")
	}
	r.largest = share(r.violated, r.checked)
	r.broken = r.largest > mostBackwards
	r.sentence = fmt.Sprintf("%d of %d requests have the lengths and times of another one: they are counted twice", r.violated, r.checked)
	return r
}

// Tolerances of equal times.
const (
	fewestEqual = 5    // requests of different lengths with one time
	mostEqual   = 0.02 // share of the requests
)

// timesEqual counts the requests that share their time to the first token, or the time of the whole request, with
// others of other lengths. violated is the number of requests that share one time, and largest their share.
func timesEqual(f *facts) reading {
	var r reading
	for _, column := range []struct {
		what string
		of   func(*clientRequest) (us, length float64)
	}{
		{what: "time to the first token", of: func(l *clientRequest) (us, length float64) { return l.ttftUs, l.prompt }},
		{what: "time of the whole request", of: func(l *clientRequest) (us, length float64) { return l.e2eUs, l.output }},
	} {
		type one struct{ sentUs, length float64 }
		shared := map[int64][]one{} // requests by their time, ns
		n := 0
		for i := range f.loads {
			us, length := column.of(&f.loads[i])
			if us > 0 && !isWhole(us/1e3) {
				n++
				key := int64(math.Round(us * 1e3))
				shared[key] = append(shared[key], one{sentUs: f.loads[i].sentUs, length: length})
			}
		}
		r.checked += n
		for _, key := range slices.Sorted(maps.Keys(shared)) { // of equal numbers, the shortest time is named
			requests := shared[key]
			sends, lengths := map[float64]bool{}, map[float64]bool{}
			for _, q := range requests {
				sends[q.sentUs] = true
				lengths[q.length] = true
			}
			// Requests that were sent together get their tokens in the same steps, and equal ones take equal times in a simulation.
			equal := min(len(sends), len(lengths))
			if equal < fewestEqual || share(equal, n) <= mostEqual || equal <= r.violated {
				continue
			}
			r.violated = equal
			r.broken = true
			r.largest = share(equal, n)
			r.sentence = fmt.Sprintf("%d of %d requests of different lengths that were sent at different times have the same %s, %.6g ms to the ns: times were cut "+
				"off or replaced, or are of requests that timed out", equal, n, column.what, float64(key)/1e6)
		}
	}
	if r.checked == 0 {
		return notChecked("no times finer than 1 ms")
	}
	if !r.broken {
		f.gapsCutOff(&r)
	}
	return r
}

// Tolerances of gaps that were cut off.
const (
	fewestCutOff = 20   // gaps of the largest value
	mostCutOff   = 0.01 // share of the gaps
)

// gapsCutOff adds to the reading whether many gaps between chunks have the largest value of all, where gaps are measured finely.
func (f *facts) gapsCutOff(r *reading) {
	n, atMost, fine := 0, 0, 0 // gaps, those of the largest value so far, and those finer than 1 ms
	mostUs := 0.0
	for i := range f.run.Observed {
		for _, us := range f.run.Observed[i].ChunkGapsUs {
			n++
			switch {
			case us > mostUs:
				mostUs = us
				atMost = 1
			case us == mostUs:
				atMost++
			}
			if !isWhole(us / 1e3) {
				fine++
			}
		}
	}
	if atMost < fewestCutOff || share(atMost, n) <= mostCutOff || 2*fine < n {
		return
	}
	*r = reading{checked: n, violated: atMost, largest: share(atMost, n), broken: true}
	r.sentence = fmt.Sprintf("%d of %d gaps between chunks take exactly %.6g ms, the longest of all: longer ones were cut off", atMost, n, mostUs/1e3)
}

// Tolerances of equal step times.
const (
	fewestEqualSteps   = 20   // steps of one time
	fewestEqualBatches = 5    // different numbers of scheduled tokens among them
	mostEqualSteps     = 0.05 // share of the steps
)

// stepsEqual counts the busy steps of different batches that take one time to the ns. largest is their share.
func stepsEqual(f *facts) reading {
	steps := f.run.Steps
	if f.run.Aggregate != nil || len(steps) < fewestOfPart {
		return notChecked("fewer than %d step summaries", fewestOfPart)
	}
	byTime := map[int64][]int64{} // scheduled tokens of the steps of one time
	var r reading
	for i := 0; i+1 < len(steps); i++ {
		s, next := &steps[i], &steps[i+1]
		ns := next.TsStartNs - s.TsStartNs
		if next.ID != s.ID+1 || s.RunningDepth == 0 || next.RunningDepth == 0 || ns%1000 == 0 {
			continue
		}
		r.checked++
		byTime[ns] = append(byTime[ns], int64(s.ScheduledTokens))
	}
	timeNs := int64(0) // the time that most steps share; of equal numbers the shortest, whatever the order of the map
	for ns, tokens := range byTime {
		batches := map[int64]int{} // by scheduled tokens
		for _, n := range tokens {
			batches[n]++
		}
		if len(batches) < fewestEqualBatches {
			continue
		}
		if len(tokens) > r.violated || len(tokens) == r.violated && ns < timeNs {
			r.violated = len(tokens)
			timeNs = ns
		}
	}
	if r.checked == 0 {
		return notChecked("no times finer than 1 us")
	}
	r.largest = share(r.violated, r.checked)
	r.broken = r.violated >= fewestEqualSteps && r.largest > mostEqualSteps
	r.sentence = fmt.Sprintf("%d of %d steps of different batches take %.6g ms to the ns: their stamps were put on a grid or made from a mean", r.violated, r.checked,
		float64(timeNs)/1e6)
	return r
}

// isWhole reports whether a number has no digits after the point, to 6 digits.
func isWhole(v float64) bool { return math.Abs(v-math.Round(v)) < 1e-6 }

// clientUnits counts the requests whose TPOT is far from the median of all. largest is a ratio (foldChange).
func clientUnits(f *facts) reading {
	var itl []float64
	for i := range f.loads {
		if l := &f.loads[i]; l.itlUs > 0 && l.output >= leastStreamed {
			itl = append(itl, l.itlUs)
		}
	}
	if len(itl) < fewestPriced {
		return notChecked("fewer than %d requests with a TPOT", fewestPriced)
	}
	median := stat.Median(itl)
	r := reading{checked: len(itl)}
	for _, us := range itl {
		off := foldChange(us / median)
		r.largest = math.Max(r.largest, off)
		if off > mostUnits {
			r.violated++
		}
	}
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("in %d of %d requests the TPOT is over %d times or below 1/%d of the median %.3g ms: the times have several units",
		r.violated, r.checked, mostUnits, mostUnits, median/1e3)
	if !r.broken {
		f.partOfUnits(&r)
	}
	return r
}

// spanSums compares the times within each stock span (vllm/v1/engine/output_processor.py: do_tracing()). largest is by
// how many ms one is too long.
func spanSums(f *facts) reading {
	var r reading
	what := ""
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		if q.Source != trace.SourceStock || !q.StockE2EUs.OK {
			continue
		}
		r.checked++
		offUs := 0.0
		// exceeds notes by how much time a is longer than b, beyond the tolerance.
		exceeds := func(a, b trace.Opt[float64], statement string) {
			over := a.V - b.V - spanSlackUs - spanSlackShare*math.Abs(b.V)
			if a.OK && b.OK && over > offUs {
				offUs = over
				what = statement
			}
		}
		sum := func(a, b trace.Opt[float64]) trace.Opt[float64] {
			return trace.Opt[float64]{V: a.V + b.V, OK: a.OK && b.OK}
		}
		if q.StartWallNs.OK && q.EndWallNs.OK {
			length := trace.Some(float64(q.EndWallNs.V-q.StartWallNs.V) / 1e3)
			exceeds(q.StockE2EUs, length, "E2E is longer than the span")
			exceeds(length, q.StockE2EUs, "the span is longer than E2E")
		}
		exceeds(q.StockTTFTUs, q.StockE2EUs, "TTFT is longer than E2E")
		exceeds(sum(q.StockQueueUs, q.StockPrefillUs), q.StockTTFTUs, "queue and prefill are longer than TTFT")
		exceeds(sum(q.StockQueueUs, q.StockInferUs), q.StockE2EUs, "queue and inference are longer than E2E")
		exceeds(sum(q.StockPrefillUs, q.StockDecodeUs), q.StockInferUs, "prefill and decode are longer than inference")
		exceeds(q.StockInferUs, sum(q.StockPrefillUs, q.StockDecodeUs), "inference is longer than prefill and decode")
		if offUs > 0 {
			r.violated++
			r.largest = math.Max(r.largest, offUs/1e3)
		}
	}
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("%d of %d stock spans contradict themselves, by up to %.3g ms (%s): their times have another unit or are mixed up", r.violated,
		r.checked, r.largest, what)
	return r
}

// floorRatios are ratios of measured times to those of one request alone at the datasheet's peak, of requests or of the
// means of load levels.
type floorRatios struct {
	itl, ttft []float64
	below     int // times between tokens below the floor of one token alone
	early     int // first tokens below the floor of a step of one token
}

// add adds the times of a request or of the mean of a level. computed are the tokens of the prompt that
// were not cached; 0: not known.
func (r *floorRatios) add(space *features.Space, prompt, computed, output, itlUs, ttftUs float64) {
	if output > 1 && itlUs > 0 {
		context := prompt + output/2
		in := features.StepInput{ScheduledTokens: 1, DecodeTokens: 1, NumDecodeReqs: 1, NumSampledSeqs: 1, DecodeContextTokens: context, KVReadTokens: context}
		roof := space.Roofline(&in)
		ratio := itlUs / 1e6 / math.Max(roof.LinearS, roof.WeightS+roof.KVS)
		r.itl = append(r.itl, ratio)
		if ratio < floorShare && output >= leastStreamed { // a late first chunk shortens the time of few tokens
			r.below++
		}
	}
	if !(ttftUs > 0) {
		return
	}
	in := features.StepInput{ScheduledTokens: 1, PrefillTokens: 1, NumPrefillReqs: 1, NumSampledSeqs: 1}
	roof := space.Roofline(&in)
	if ttftUs/1e6 < floorShare*math.Max(roof.LinearS, roof.WeightS) { // even of a prompt that was cached
		r.early++
	}
	if computed > 0 {
		in := features.StepInput{ScheduledTokens: computed, PrefillTokens: computed, NumPrefillReqs: 1, NumSampledSeqs: 1}
		roof := space.Roofline(&in)
		r.ttft = append(r.ttft, ttftUs/1e6/math.Max(roof.LinearS, roof.WeightS))
	}
}

// addRequests adds the requests of clients or stock spans.
func (r *floorRatios) addRequests(f *facts, space *features.Space) {
	for i := range f.loads {
		l := &f.loads[i]
		computed := 0.0 // not known: all may have been cached
		if l.knowsCached {
			computed = l.prompt - l.cached
		}
		r.add(space, l.prompt, computed, l.output, l.itlUs, l.ttftUs)
	}
}

// addLevels adds the load levels, and returns how many there are. space is that of the deployment; levels of other
// tensor-parallel sizes have one of their own.
func (r *floorRatios) addLevels(f *facts, space *features.Space) (n int, err error) {
	dep := *f.dep
	for i := range f.run.Points {
		p := &f.run.Points[i]
		if p.EP.Or(1) > 1 || p.DP.Or(1) > 1 {
			continue
		}
		n++
		if tp := p.TP.Or(f.dep.TP); tp != dep.TP {
			dep.TP = tp
			if space, err = features.New(features.DefaultVersion(&dep), &dep); err != nil {
				return n, err
			}
		}
		computed := 0.0
		if p.CachedTokens.OK || !f.dep.Engine.PrefixCaching {
			computed = p.PromptTokens - p.CachedTokens.V
		}
		r.add(space, p.PromptTokens, computed, p.OutputTokens, p.TPOTMs*1e3, p.TTFTMs.V*1e3)
	}
	return n, nil
}

// requestFloor compares the times between tokens and to the first token with those of one request alone at the
// datasheet's peak. largest is the median ratio to them.
func requestFloor(f *facts) reading {
	if f.speculates() {
		return notChecked("steps verify drafted tokens")
	}
	dep := *f.dep
	space, err := features.New(features.DefaultVersion(&dep), &dep)
	if err != nil {
		return notChecked("the floor of this model is not known")
	}
	var ratios floorRatios
	ratios.addRequests(f, space)
	levels, err := ratios.addLevels(f, space)
	if err != nil {
		return notChecked("the floor of this model is not known")
	}
	fewest := fewestPriced
	if levels > 0 {
		fewest = fewestLevels
	}
	if len(ratios.itl) < fewest {
		return notChecked("fewer than %d requests or load levels with a TPOT", fewest)
	}
	r := reading{checked: len(ratios.itl) + len(ratios.ttft)}
	what := "tokens after the first"
	r.largest = stat.Median(ratios.itl)
	if len(ratios.ttft) >= fewest && stat.Median(ratios.ttft) < r.largest {
		what = "first tokens"
		r.largest = stat.Median(ratios.ttft)
	}
	r.sentence = fmt.Sprintf("%s take %.3g times what one request alone takes at the peak of %s with tp %d (median): hardware, tensor_parallel_size, model or "+
		"dtype in run.yaml is wrong, lengths are not in tokens, or the times have another unit", what, r.largest, f.dep.Hardware.Name, f.dep.TP)
	if r.largest < floorShare {
		r.broken = true
		r.violated = r.checked
		return r
	}
	single := len(f.loads) // requests, as opposed to means of load levels
	if part := max(ratios.early, ratios.below); isPart(part, single) {
		r.broken = true
		r.violated = part
		what = "first tokens"
		if ratios.below > ratios.early {
			what = "times between tokens"
		}
		r.sentence = fmt.Sprintf("%d of %d %s are shorter than %s takes with tp %d to read the weights once: a part of the times has another unit, was cut off or "+
			"filled in, or a part of the outputs is not in tokens", part, single, what, f.dep.Hardware.Name, f.dep.TP)
	}
	return r
}
