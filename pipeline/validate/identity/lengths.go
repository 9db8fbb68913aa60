package identity

// This file compares the lengths that a recording states for requests and passes with the steps and times that they
// took, to find columns that are mixed up, of other rows, or not in tokens. Where a time must grow with a length, rank
// correlations show it: the correlation of a time with its own length must not be smaller than that with another
// column or with the lengths of neighbouring rows. A reading (identity.go) has what was compared, how much of it
// contradicts, and a sentence.

import (
	"fmt"
	"math"
	"slices"

	gonum "gonum.org/v1/gonum/stat"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Tolerances of lengths.
const (
	slackTokens     = 2    // between the counts of a client and of the server
	slackShare      = 0.05 // of them
	mostOtherSums   = 0.1  // by which clients may count more tokens than all passes
	fewestLengths   = 50   // requests or passes whose times are compared with their lengths
	rankMargin      = 0.3  // by which a time may correlate better with another column
	rankDeviations  = 4    // standard deviations of the difference, if that is more
	leastStreamed   = 8    // tokens of an answer that takes time after its first
	mostUnstreamed  = 0.1  // share of such answers that may come at once
	fewestDrafted   = 500  // steps in which drafts would have been verified
	fewestExact     = 20   // answers that reached their length, of which half have a token for each step
	leastAccepted   = 0.01 // drafts accepted in a step of a request
	leastTokenRatio = 8    // of tokens of passes (P95 over P5), from which elapsed times must correlate with them
	leastSpread     = 0.3  // standard deviation of the logarithm of lengths, from which times must correlate with them
)

// outputSteps compares the output tokens of each journey with the steps between its first and its last token: a running
// request gets a token in every step. largest is in tokens, with drafts the output tokens a step.
func outputSteps(f *facts) reading {
	var r reading
	tokens, steps := 0.0, 0.0 // after the first of each request
	exact, inexact := 0, 0    // requests that reached their length
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		if !q.FirstTokenStep.OK || !q.FinishedStep.OK || !q.OutputTokens.OK || q.Preemptions.Or(0) > 0 || q.DroppedEvents > 0 ||
			q.FinishStatus.Or("") == trace.FinishAborted {
			continue
		}
		r.checked++
		tokens += float64(q.OutputTokens.V - 1)
		steps += float64(q.FinishedStep.V - q.FirstTokenStep.V)
		off := math.Abs(float64(q.OutputTokens.V - 1 - (q.FinishedStep.V - q.FirstTokenStep.V)))
		r.largest = math.Max(r.largest, off)
		if off > slackTokens {
			r.violated++
		}
		// An answer that ends of itself may be noticed a step later.
		switch {
		case q.FinishStatus.Or("") != trace.FinishLength:
		case off > 0:
			inexact++
		default:
			exact++
		}
	}
	if r.checked == 0 {
		return notChecked("no journey states the steps of its first and last token")
	}
	if f.speculates() {
		// Where drafts are verified, some are accepted.
		r.violated = r.checked
		r.largest = tokens / math.Max(1, steps)
		r.broken = steps >= fewestDrafted && tokens <= (1+leastAccepted)*steps
		r.effect = result.IdentityNamed
		r.sentence = fmt.Sprintf("run.yaml states that drafts are verified, and %d journeys have %.4g output tokens a step: no draft was accepted, or the "+
			"server had none", r.checked, r.largest)
		return r
	}
	r.broken = float64(r.violated) > mostBackwards*float64(r.checked)
	if !r.broken && exact+inexact >= fewestExact && inexact > exact {
		r.broken = true
		r.violated, r.checked = inexact, exact+inexact
	}
	r.sentence = fmt.Sprintf("%d of %d journeys have other output tokens than steps between their first and last token, by up to %.0f: the counts were "+
		"changed, or the server verifies drafts and run.yaml has no speculative_config", r.violated, r.checked, r.largest)
	return r
}

// Tolerances of the prompts of clients that have all output tokens of a log.
const (
	mostOfOthers  = 0.05 // share of the output tokens that may be of other requests
	mostOfPrompts = 0.15 // share of the prompt tokens that these may have, and templates of few tokens
)

// clientTokens compares the lengths that clients state with those of the joined journeys or spans, or their sums with
// those of all logged passes. largest is in tokens of a request, or a ratio of sums.
func clientTokens(f *facts) reading {
	servers := f.servers()
	var r reading
	var prompts, outputs float64 // tokens: computed of prompts, and after the first of outputs
	stated := true               // what prompts found in the cache
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		prompts += float64(o.PromptTokens.V - o.CachedTokens.V)
		outputs += math.Max(0, float64(o.OutputTokens.V-1))
		stated = stated && (o.CachedTokens.OK || !f.dep.Engine.PrefixCaching)
		q := servers[i]
		if q == nil || !o.Success.Or(true) || o.N.Or(1) > 1 {
			continue
		}
		r.checked++
		off := math.Max(lengthsApart(o.PromptTokens, q.PromptTokens), lengthsApart(o.OutputTokens, q.OutputTokens))
		r.largest = math.Max(r.largest, off)
		if off > 0 {
			r.violated++
		}
	}
	r.broken = float64(r.violated) > mostOffSteps*float64(r.checked)
	r.sentence = fmt.Sprintf("%d of %d requests have other prompt or output tokens in the client's file than by the server, by up to %.0f: columns "+
		"are mixed up, of other rows, or not in tokens", r.violated, r.checked, r.largest)
	if r.checked > 0 {
		f.nameTemplate(&r, servers)
	}
	// A file that has requests twice shows in the sums alone.
	sums := f.tokensOfPasses(prompts, outputs, stated)
	if r.checked == 0 || !r.broken && sums.broken {
		return sums
	}
	return r
}

// tokensOfPasses compares sums of clients' tokens with those of all logged passes: computed ones of prompts and those
// after the first of outputs. stated: it is known what prompts found in the cache. largest is the ratio of the client's
// sum to that of the passes.
func (f *facts) tokensOfPasses(prompts, outputs float64, stated bool) reading {
	var context, generated float64 // tokens of prompts and of outputs in all passes
	for i := range f.run.Iterations {
		it := &f.run.Iterations[i]
		if it.Sampled || it.Form == trace.IterationChunks {
			return notChecked("not every pass is logged")
		}
		context += float64(it.ContextTokens)
		generated += float64(it.GenerationTokens)
	}
	if generated == 0 || outputs == 0 || passesComplete(f).broken {
		return notChecked("no journeys, spans or complete passes beside the requests of clients")
	}
	r := reading{checked: len(f.run.Observed), largest: outputs / generated}
	what := fmt.Sprintf("%.0f output tokens after the first, the passes of the log made %.0f", outputs, generated)
	if excess := prompts / math.Max(1, context); stated && excess > r.largest {
		r.largest = excess
		what = fmt.Sprintf("%.0f prompt tokens that were not cached, the passes of the log computed %.0f", prompts, context)
	}
	r.broken = r.largest > 1+mostOtherSums
	if r.broken {
		r.violated = r.checked
	}
	r.sentence = "the requests of the client have " + what + ": columns are mixed up or not in tokens, requests are counted twice, or passes are missing"
	if !r.broken && outputs > (1-mostOfOthers)*generated && prompts < (1-mostOfPrompts)*context {
		r.broken = true
		r.violated = r.checked
		r.effect = result.IdentityNamed
		r.largest = prompts / context
		r.sentence = fmt.Sprintf("the requests of the client have %.0f prompt tokens, the passes of the log computed %.0f, although their output tokens are those of "+
			"the log: prompts are counted without their template, or not in tokens", prompts, context)
	}
	return r
}

// nameTemplate downgrades broken lengths to "named" if every server count of a prompt exceeds the client's by about the
// same number: the client does not count the chat template. The prompts must differ by more than that number, because
// with equal prompts a wrong factor gives the same number too.
func (f *facts) nameTemplate(r *reading, servers []*trace.Request) {
	var prompts, more []float64
	for i, q := range servers {
		o := &f.run.Observed[i]
		if q == nil || q.Source != trace.SourceStock || !q.PromptTokens.OK || !o.PromptTokens.OK {
			continue
		}
		if lengthsApart(o.OutputTokens, q.OutputTokens) > 0 {
			return
		}
		prompts = append(prompts, float64(o.PromptTokens.V))
		more = append(more, float64(q.PromptTokens.V-o.PromptTokens.V))
	}
	if !r.broken || len(more) < r.checked || slices.Min(more) < 1 || slices.Max(more)-slices.Min(more) > slackTokens ||
		slices.Max(prompts)-slices.Min(prompts) < 2*slices.Max(more) {
		return
	}
	r.effect = result.IdentityNamed
	r.sentence = fmt.Sprintf("the client counts %.0f tokens fewer in each of %d prompts than the server: it counts them without their template", slices.Max(more), len(more))
}

// passPrompts compares the prompt tokens of each logged pass with the only prompt that ends in it and is the only one
// that runs in it: a pass computes no more of a prompt than there is. largest is in tokens.
func passPrompts(f *facts) reading {
	at := map[int64]int{} // by number: positions of passes with one prompt
	for i := range f.run.Iterations {
		if it := &f.run.Iterations[i]; it.Form == trace.IterationLog && it.ContextReqs == 1 {
			at[it.Index] = i
		}
	}
	ended := map[int64]int{} // prompts that end in a pass, by its number
	for i := range f.run.Observed {
		ended[f.run.Observed[i].Iteration.V]++
	}
	var r reading
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		k, isKnown := at[o.Iteration.V]
		if !o.Iteration.OK || !isKnown || o.Engine.OK || o.Uncounted() || !o.PromptTokens.OK || ended[o.Iteration.V] > 1 {
			continue
		}
		r.checked++
		if over := float64(f.run.Iterations[k].ContextTokens - o.PromptTokens.V + o.CachedTokens.V); over > slackTokens+slackShare*float64(o.PromptTokens.V) {
			r.violated++
			r.largest = math.Max(r.largest, over)
		}
	}
	if r.checked < fewestOfPart {
		return notChecked("fewer than %d requests whose pass is known and has one prompt", fewestOfPart)
	}
	r.broken = isPart(r.violated, r.checked)
	r.sentence = fmt.Sprintf("in %d of %d passes with one prompt more prompt tokens were computed than the request has that got its first token there, by up to "+
		"%.0f: prompts are of other rows or not in tokens", r.violated, r.checked, r.largest)
	return r
}

// lengthsApart returns by how many tokens two counts differ, 0 within the tolerance.
func lengthsApart(a, b trace.Opt[int64]) float64 {
	off := math.Abs(float64(a.V - b.V))
	if !a.OK || !b.OK || off <= slackTokens+slackShare*float64(b.V) {
		return 0
	}
	return off
}

// clientStreams counts the answers of several tokens whose first token comes with the last. largest is the share of
// such answers.
func clientStreams(f *facts) reading {
	var r reading
	untimed := 0
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		if o.OutputTokens.V < leastStreamed || !o.Streaming.Or(true) {
			continue
		}
		if !o.TTFTUs.OK && !o.Uncounted() {
			untimed++
		}
		if !o.TTFTUs.OK || !o.E2EUs.OK {
			continue
		}
		r.checked++
		if o.TTFTUs.V == o.E2EUs.V {
			r.violated++
		}
	}
	r.largest = share(r.violated, r.checked)
	r.broken = r.largest > mostUnstreamed
	r.sentence = fmt.Sprintf("%d of %d answers of %d tokens and more come at once: the client did not stream, and its TTFT is E2E", r.violated, r.checked,
		leastStreamed)
	isReported := slices.ContainsFunc(f.Findings, func(w trace.Finding) bool { return w.Code == source.CodeFirstToken })
	if all := r.checked + untimed; !r.broken && r.checked > 0 && !isReported && isPart(untimed, all) {
		r = reading{checked: all, violated: untimed, largest: share(untimed, all), broken: true, effect: result.IdentityUndecided}
		r.sentence = fmt.Sprintf("%d of %d answers of %d tokens and more have no time to the first token, or one of 0: it was not measured, rounded away or filled in",
			untimed, all, leastStreamed)
	}
	return r
}

// clientLengths compares how well the times of requests correlate with their own lengths and with other columns, by rank.
// largest is the difference of two rank correlations.
func clientLengths(f *facts) reading {
	n := len(f.loads)
	if n < fewestLengths {
		return notChecked("fewer than %d requests with times of clients or stock spans", fewestLengths)
	}
	var prompts, outputs, ttft, decode []float64
	for i := range f.loads {
		l := &f.loads[i]
		prompts = append(prompts, l.prompt)
		outputs = append(outputs, l.output)
		ttft = append(ttft, l.ttftUs)
		decode = append(decode, l.e2eUs-l.ttftUs)
	}
	r := reading{checked: n}
	r.goesWith(decode, outputs, prompts, "the time after the first token goes with the prompt, not with the output")
	r.goesWithOwn(ttft, prompts, "TTFT goes with the prompt of the request %s")
	r.goesWithOwn(decode, outputs, "the time after the first token goes with the output of the request %s")
	if !r.broken {
		r.goesAtAll(decode, outputs, "the time after the first token does not go with the output tokens")
	}
	return r
}

// goesAtAll adds to the reading whether times correlate with lengths that differ much. If a time is its length times a factor of
// its own, their correlation is the spread of the lengths over that of the times; half of it is required.
func (r *reading) goesAtAll(times, lengths []float64, what string) {
	var logTimes, logLengths []float64
	for i := range times {
		if times[i] > 0 && lengths[i] > 1 {
			logTimes = append(logTimes, math.Log(times[i]))
			logLengths = append(logLengths, math.Log(lengths[i]-1))
		}
	}
	n := len(logTimes)
	if n < fewestLengths {
		return
	}
	spread := gonum.StdDev(logLengths, nil)
	if spread < leastSpread {
		return
	}
	want := math.Min(1, spread/gonum.StdDev(logTimes, nil))
	got := correlation(logTimes, logLengths)
	if got < want/2-rankDeviations/math.Sqrt(float64(n)) {
		r.broken = true
		r.violated = n
		r.largest = want - got
		r.sentence = fmt.Sprintf("in %d rows %s (correlation %.2f of their logarithms, where lengths as different as these give %.2f): columns are mixed up or "+
			"of other rows", n, what, got, want)
	}
}

// passOrder compares how well the elapsed times of logged passes correlate with their own tokens and with those of the
// passes before and after them. largest is the difference of the two rank correlations.
func passOrder(f *facts) reading {
	var tokens, elapsed []float64
	most := 0.0
	its := f.run.Iterations
	for i := range its {
		it := &its[i]
		if it.Sampled || it.Form == trace.IterationChunks {
			return notChecked("not every pass is logged")
		}
		isNearPrompt := it.ContextTokens > 0 || i > 0 && its[i-1].ContextTokens > 0 || i+1 < len(its) && its[i+1].ContextTokens > 0
		if !isNearPrompt { // like those beside it
			continue
		}
		tokens = append(tokens, float64(it.ContextTokens+it.GenerationTokens))
		elapsed = append(elapsed, it.ElapsedUs)
	}
	if len(tokens) > 0 {
		sorted := stat.Sorted(tokens)
		most = stat.Quantile(sorted, 0.95) / stat.Quantile(sorted, 0.05)
	}
	if len(tokens) < fewestLengths {
		return notChecked("fewer than %d logged passes", fewestLengths)
	}
	r := reading{checked: len(tokens)}
	r.goesWithOwn(elapsed, tokens, "the elapsed time goes with the tokens of the pass %s")
	own := correlation(ranks(elapsed), ranks(tokens))
	if !r.broken && most > leastTokenRatio && len(tokens) >= fewestWorked && own < leastWorkRank {
		r.broken = true
		r.violated = r.checked
		r.largest = 1 - own
		r.sentence = fmt.Sprintf("the elapsed times of %d passes with and beside prompts do not go with their tokens (rank correlation %.2f): they are of other "+
			"passes", r.checked, own)
	}
	return r
}

// goesWithOwn compares the rank correlation of times with values of their own rows and of the rows beside them.
func (r *reading) goesWithOwn(times, values []float64, what string) {
	n := len(times)
	r.goesWith(times[1:], values[1:], values[:n-1], fmt.Sprintf(what, "before"))
	r.goesWith(times[:n-1], values[:n-1], values[1:], fmt.Sprintf(what, "after"))
}

// goesWith adds to the reading whether times correlate with the values of their own column (own), as they
// must, or rather with those of another (other): the difference of the two rank correlations. The
// largest difference of all calls decides whether columns are mixed up.
func (r *reading) goesWith(times, own, other []float64, what string) {
	times = ranks(times)
	withOther := correlation(times, ranks(other))
	withOwn := correlation(times, ranks(own))
	if withOther-withOwn <= r.largest {
		return
	}
	r.largest = withOther - withOwn
	// A difference beyond the margin and beyond chance.
	if r.largest > math.Max(rankMargin, rankDeviations*math.Sqrt(2/float64(r.checked))) {
		r.broken = true
		r.violated = r.checked
	}
	r.sentence = fmt.Sprintf("in %d rows %s (rank correlation %.2f, with their own %.2f): columns are mixed up or of other rows", r.checked, what,
		withOther, withOwn)
}

// ranks returns the ranks of values less their mean; equal values have their mean rank.
func ranks(values []float64) []float64 {
	order := stat.Order(values)
	out := make([]float64, len(values))
	for from := 0; from < len(order); {
		to := from
		for to < len(order) && values[order[to]] == values[order[from]] {
			to++
		}
		for _, i := range order[from:to] { // the mean of from to to-1, less (len-1)/2, the mean of all
			out[i] = float64(from+to-len(order)) / 2
		}
		from = to
	}
	return out
}

// correlation returns the correlation of two columns; 0 if one is constant.
func correlation(a, b []float64) float64 {
	r := gonum.Correlation(a, b, nil)
	if math.IsNaN(r) {
		return 0
	}
	return r
}
