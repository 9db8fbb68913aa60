package clients

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file compares what a client's file states of itself with its own requests (spec#client-traps):
// totals and means with the sums over the requests, a rate and a limit with the times at which these
// were sent, figures that the tool derives for each request with those that it derived them from, and
// a model with run.yaml. The tool computes one from the other before it writes both, so that they
// differ only in a file that was changed or put together from several. A summary in a file of its own
// may be of another run, and nothing reads it where there are requests: it is compared too, and only
// named.

// totalKeys are the keys of a result of vllm bench serve that are compared with its requests.
var totalKeys = []string{"model_id", "completed", "total_input_tokens", "total_output_tokens", "duration", "mean_ttft_ms", "mean_itl_ms",
	"mean_e2el_ms", "mean_e2e_latency_ms", "request_rate", "burstiness", "ramp_up_strategy"}

// Tolerances of what a file states of itself.
const (
	totalTolerance  = 0.02 // of totals and means, which have all digits
	endTolerance    = 0.25 // of E2E, which some versions measure to the end of the connection
	besideTolerance = 0.05 // of a summary in another file, which may leave out a few requests
	overLimit       = 1.05 // times max_concurrency in flight, and one more: requests that end as others begin
	underLimit      = 0.5  // of max_concurrency in flight, by a client that always has requests to send
	sendsPerS       = 200  // requests that a client is certain to send in a second
	fewestSends     = 20   // requests of which a rate is taken
	rateTolerance   = 0.1  // of the rate, in addition to what chance explains (rateDeviations)
	rateDeviations  = 5    // standard deviations of the number of arrivals
	slowestClient   = 1.5  // times that a client may send more slowly than it was asked
	mostDerived     = 0.03 // share of the requests whose derived figures may not follow from the others
	fewestDerived   = 5    // such requests, below which they are not reported
)

// statedLoad is what a client's file states of the requests of one load, or of the server, that these
// contradict, each as a text.
type statedLoad struct {
	name         string   // of the load
	model        string   // the model's name in the file; "" without one
	totals       []string // totals and means, and derived figures
	placeholders []string // totals that an exporter writes where it has none
	load         []string // the rate and the limit of requests at once
	isFast       bool     // the rate is one of load, and the requests came faster
}

// requestSums are the sums over the requests of a load that succeeded, by the file's own figures. Means
// are formed of a sum and the number of requests that have the value.
type requestSums struct {
	requests                float64
	prompts, outputs        float64 // tokens
	serverPrompts           float64 // prompt tokens by the server's count, with its template; 0: not known
	ttftS, ttfts            float64 // TTFT: sum in s, and requests that have it
	endS, ends              float64 // E2E: the same
	gapS, gaps              float64 // time between chunks: sum in s, and their number
	derived, contradicting  int     // requests with derived figures, and those in which one does not follow
	contradictingFor, place string  // the first of the latter: what it states, and where
}

// add adds a request. A time that it lacks is NaN.
func (s *requestSums) add(prompt, output, ttftS, endS float64) {
	s.requests++
	s.prompts += prompt
	s.outputs += output
	if !math.IsNaN(ttftS) {
		s.ttftS += ttftS
		s.ttfts++
	}
	if !math.IsNaN(endS) {
		s.endS += endS
		s.ends++
	}
}

// derive compares figures of one request that the tool derives from others. The request counts as
// contradicting, once, if one of them is not what the others give.
func (s *requestSums) derive(place string, figures []derivedFigure) {
	s.derived++
	for _, f := range figures {
		isKnown := f.stated > 0 && f.computed > 0
		if isKnown && math.Abs(f.stated-f.computed) > totalTolerance*math.Max(f.stated, f.computed) {
			s.contradicting++
			if s.place == "" {
				s.place = place
				s.contradictingFor = fmt.Sprintf("%s states %.4g, its other figures give %.4g", f.key, f.stated, f.computed)
			}
			return
		}
	}
}

// derivedFigure is a figure that a file states of a request, and what the request's other figures give for
// it, in the same unit; 0 if one is not there.
type derivedFigure struct {
	key              string
	stated, computed float64
}

// contradictions returns a sentence about the derived figures of a file; none if they follow from the
// others in nearly all requests.
func (s *requestSums) contradictions() []string {
	if s.contradicting < fewestDerived || float64(s.contradicting) <= mostDerived*float64(s.derived) {
		return nil
	}
	return []string{fmt.Sprintf("in %d of %d requests figures that the tool derives are not those of the others, first in %s: %s", s.contradicting, s.derived,
		s.place, s.contradictingFor)}
}

// statedTotal is one total or mean that a file states, and what its requests have.
type statedTotal struct {
	key, what        string  // its name in the file, and its unit in words
	stated, computed float64 // NaN: not known
	tolerance        float64 // relative
	textFactor       float64 // the text has the values times this, in the unit of what; 0 for 1
}

// unlike returns the statement that the requests contradict, "" if they do not or if one side is not known.
func (t *statedTotal) unlike() string {
	if math.IsNaN(t.stated) || math.IsNaN(t.computed) ||
		math.Abs(t.stated-t.computed) <= t.tolerance*math.Max(t.stated, t.computed) {
		return ""
	}
	factor := cmp.Or(t.textFactor, 1)
	return fmt.Sprintf("%s states %.4g %s, its requests have %.4g", t.key, t.stated*factor, t.what, t.computed*factor)
}

// isPlaceholder reports whether a total is what exporters write that did not compute it: 0, 1 in the unit
// of the file, or a negative number.
func (t *statedTotal) isPlaceholder() bool {
	return t.stated == 0 || t.stated*cmp.Or(t.textFactor, 1) == 1 || t.stated < 0
}

// compare adds the texts of the totals that the requests contradict to l.
func (l *statedLoad) compare(totals []statedTotal) {
	for i := range totals {
		switch text := totals[i].unlike(); {
		case text == "":
		case totals[i].isPlaceholder():
			l.placeholders = append(l.placeholders, text)
		default:
			l.totals = append(l.totals, text)
		}
	}
}

// mean returns a sum over n, NaN of none.
func mean(sum, n float64) float64 {
	if n == 0 {
		return math.NaN()
	}
	return sum / n
}

// numberOr returns a value of JSON as a number, NaN if it is none.
func numberOr(v any) float64 {
	if n, isNumber, _ := asNumber(v); isNumber {
		return n
	}
	return math.NaN()
}

// contradictions returns the totals and the load that a result of vllm bench serve states and its lists
// contradict. name is that of the load.
func (b *benchResult) contradictions(name string) statedLoad {
	out := statedLoad{name: name}
	out.model, _ = b.stated["model_id"].(string)
	stated := func(key string) float64 { return numberOr(b.stated[key]) } // NaN without the key
	var sums requestSums
	load := offeredLoad{
		rateKey:    "request_rate",
		rate:       stated("request_rate"),
		burstiness: stated("burstiness"),
		limitKey:   "max_concurrency",
		limit:      float64(b.concurrency.Or(0)),
		isRampUp:   b.stated["ramp_up_strategy"] != nil,
	}
	firstS := math.Inf(1) // send of the first request that succeeded
	lastS := math.Inf(-1) // last chunk of them
	for i := range b.inputs {
		lengthS := b.lengthS(i)
		if len(b.starts) > 0 {
			load.sends = append(load.sends, sentRequest{atS: b.starts[i], lengthS: lengthS})
		}
		succeeded := b.outputs[i] > 0
		if len(b.errors) > 0 {
			succeeded = b.errors[i] == ""
		}
		if !succeeded {
			continue
		}
		sums.add(b.inputs[i], b.outputs[i], b.ttfts[i], lengthS)
		if len(b.itls) > 0 {
			for _, gap := range b.itls[i] {
				sums.gapS += gap
				sums.gaps++
			}
		}
		if len(b.starts) > 0 {
			firstS = math.Min(firstS, b.starts[i])
			lastS = math.Max(lastS, b.starts[i]+lengthS)
		}
	}
	n := math.Max(1, sums.requests)
	endS := math.NaN() // not compared without the gaps: lengthS is then the latency as the file states it
	if len(b.itls) > 0 {
		endS = sums.endS / n
	}
	count := func(key, what string, computed, tolerance float64) statedTotal {
		return statedTotal{key: key, what: what, stated: stated(key), computed: computed, tolerance: tolerance}
	}
	ms := func(key, what string, computedS, tolerance float64) statedTotal { // compared in s, written in ms
		return statedTotal{key: key, what: what, stated: stated(key) / 1e3, computed: computedS, tolerance: tolerance, textFactor: 1e3}
	}
	out.compare([]statedTotal{
		count("completed", "completed requests", sums.requests, 0),
		count("total_input_tokens", "prompt tokens", sums.prompts, totalTolerance),
		count("total_output_tokens", "output tokens", sums.outputs, totalTolerance),
		ms("mean_ttft_ms", "ms to the first token on average", sums.ttftS/n, totalTolerance),
		ms("mean_itl_ms", "ms between tokens on average", mean(sums.gapS, sums.gaps), totalTolerance),
		ms("mean_e2el_ms", "ms of a request on average", endS, endTolerance),
		ms("mean_e2e_latency_ms", "ms of a request on average", endS, endTolerance), // SGLang's name of the same
	})
	// A duration may be longer than its requests, by the start and the end of the client, but not shorter.
	if durationS := stated("duration"); lastS-firstS > durationS*(1+totalTolerance) {
		text := fmt.Sprintf("duration states %.4g s, its requests take %.4g s", durationS, lastS-firstS)
		if durationS <= 1 {
			out.placeholders = append(out.placeholders, text)
		} else {
			out.totals = append(out.totals, text)
		}
	}
	if sums.requests > 0 {
		out.load, out.isFast = load.unlike()
	}
	return out
}

// lengthS returns the time of the i-th request from its send to its last chunk, s.
func (b *benchResult) lengthS(i int) float64 {
	if len(b.itls) == 0 {
		return b.latencies[i]
	}
	lengthS := b.ttfts[i]
	for _, gap := range b.itls[i] {
		lengthS += gap
	}
	return lengthS
}

// guideTotals compares the means of a benchmark of GuideLLM with its requests, where it keeps all that the means are of. It may
// keep a sample (--sample-requests), and requests of the warm-up that are in no mean. What they contradict is added to out.
func guideTotals(out *statedLoad, metrics map[string]any, s *requestSums) {
	statedMean := func(key string, n float64) float64 { // NaN if it is not a mean of n requests
		if numberAt(metrics, key+".successful.count") != n {
			return math.NaN()
		}
		return numberOr(valueAt(metrics, key+".successful.mean"))
	}
	out.compare([]statedTotal{
		{
			key:       "prompt_token_count",
			what:      "prompt tokens on average",
			stated:    statedMean("prompt_token_count", s.requests),
			computed:  mean(s.prompts, s.requests),
			tolerance: totalTolerance,
		},
		{
			key:       "output_token_count",
			what:      "output tokens on average",
			stated:    statedMean("output_token_count", s.requests),
			computed:  mean(s.outputs, s.requests),
			tolerance: totalTolerance,
		},
		{
			key:        "time_to_first_token_ms",
			what:       "ms to the first token on average",
			stated:     statedMean("time_to_first_token_ms", s.ttfts) / 1e3,
			computed:   mean(s.ttftS, s.ttfts),
			tolerance:  totalTolerance,
			textFactor: 1e3,
		},
		{
			key:       "request_latency",
			what:      "s of a request on average",
			stated:    statedMean("request_latency", s.ends),
			computed:  mean(s.endS, s.ends),
			tolerance: totalTolerance,
		},
	})
	out.totals = append(out.totals, s.contradictions()...)
}

// sentRequest is a request by when it was sent, on the client's clock, and how long it took, s.
type sentRequest struct{ atS, lengthS float64 }

// sendsOf returns the requests that have both.
func sendsOf(requests []trace.ObservedRequest) []sentRequest {
	var out []sentRequest
	for i := range requests {
		if r := &requests[i]; r.SendNs.OK && r.E2EUs.OK {
			out = append(out, sentRequest{atS: float64(r.SendNs.V) / 1e9, lengthS: r.E2EUs.V / 1e6})
		}
	}
	return out
}

// offeredLoad is a load as a client's file states it, with the requests that were sent.
type offeredLoad struct {
	rateKey, limitKey string  // names in the file, for texts
	rate              float64 // requests/s; NaN or 0: not stated
	burstiness        float64 // shape of the gamma distribution of the times between sends, as of vllm bench serve; NaN or 0: not stated
	limit             float64 // of requests at once; 0: none
	isRampUp          bool    // the rate changes
	sends             []sentRequest
}

// unlike returns what the file states of the load and the times of its requests contradict: more requests at
// once than the limit, or far fewer although the client had more to send; and another rate of sends. isFast is
// set if they were sent at a higher rate, which no slow client explains.
func (o *offeredLoad) unlike() (unlike []string, isFast bool) {
	n := len(o.sends)
	isUnknown := func(s sentRequest) bool { return math.IsNaN(s.atS) }
	if n < fewestSends || slices.ContainsFunc(o.sends, isUnknown) {
		return nil, false
	}
	firstS := math.Inf(1) // sends
	lastS := math.Inf(-1)
	sumS := 0.0 // of the requests' times
	answered := 0.0
	for _, s := range o.sends {
		firstS = math.Min(firstS, s.atS)
		lastS = math.Max(lastS, s.atS)
		if s.lengthS > 0 {
			sumS += s.lengthS
			answered++
		}
	}
	hasRate := o.rate > 0 && !math.IsInf(o.rate, 0) // infinite: all requests are sent at once
	most := mostInFlight(o.sends)
	isHeld := false // by the limit, below the rate
	if o.limit > 0 {
		// Without a rate, the client sends requests up to the limit as fast as it can. They reach it if there
		// are enough of them and if an answer takes longer than it takes to send that many.
		canFill := !hasRate && float64(n) >= 2*o.limit && o.limit >= 4 && sumS/math.Max(1, answered) >= o.limit/sendsPerS
		if most > overLimit*o.limit+1 || canFill && most < underLimit*o.limit {
			unlike = append(unlike, fmt.Sprintf("%s states %.0f requests at once, its %d requests are up to %.0f", o.limitKey, o.limit, n, most))
		}
		isHeld = most >= o.limit
	}
	if !hasRate || o.isRampUp || !(lastS > firstS) {
		return unlike, false
	}
	burstiness := o.burstiness
	if !(burstiness > 0) {
		burstiness = 1 // a Poisson process
	}
	// The standard deviation of the number of arrivals is 1/sqrt(n x burstiness) of it.
	chance := 1 + rateTolerance + rateDeviations/math.Sqrt(float64(n)*burstiness)
	measured := float64(n-1) / (lastS - firstS)
	isFast = measured > o.rate*chance
	if isFast || !isHeld && measured < o.rate/math.Max(slowestClient, chance) {
		unlike = append(unlike, fmt.Sprintf("%s states %.4g requests a second, its %d requests were sent at %.4g", o.rateKey, o.rate, n, measured))
	}
	return unlike, isFast
}

// mostInFlight returns the most requests between send and last chunk at once.
func mostInFlight(sends []sentRequest) float64 {
	type edge struct{ atS, change float64 } // change of the number in flight: +1 or -1
	var edges []edge
	for _, s := range sends {
		if s.lengthS > 0 {
			edges = append(edges, edge{s.atS, 1}, edge{s.atS + s.lengthS, -1})
		}
	}
	// Of edges at one time, ends come first.
	stat.SortStable(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.atS, b.atS), cmp.Compare(a.change, b.change)) })
	inFlight := 0.0
	most := 0.0
	for _, e := range edges {
		inFlight += e.change
		most = math.Max(most, inFlight)
	}
	return most
}

// besideFile is a file of requests whose tool writes its summary to a file of its own, beside it.
type besideFile struct {
	name  string
	form  string // of the tool's summaries, as in levelFormats
	sums  requestSums
	sends []sentRequest
}

// summaryFile is the load levels of a file.
type summaryFile struct {
	name   string
	form   string // as in levelFormats
	levels []Level
}

// compareSummaries compares each file of requests with the summaries of its tool in its folder. A run of several stages has one
// summary of each, which are compared together.
func (c *Reader) compareSummaries() {
	for i := range c.beside {
		f := &c.beside[i]
		folder := path.Dir(f.name)
		isOfSameTool := func(form, name string) bool { return form == f.form && path.Dir(name) == folder }
		hasTwin := slices.ContainsFunc(c.beside, func(b besideFile) bool { return b.name != f.name && isOfSameTool(b.form, b.name) })
		if hasTwin {
			continue // which of them the summaries are of is not known
		}
		var stages, others []summaryFile
		for _, s := range c.summaries {
			switch {
			case !isOfSameTool(s.form, s.name):
			case matchesName(s.name, "stage_*"):
				stages = append(stages, s)
			default:
				others = append(others, s)
			}
		}
		if len(stages) > 0 {
			all := summaryFile{name: stages[0].name}
			for _, s := range stages {
				all.levels = append(all.levels, s.levels...)
			}
			others = append(others, all)
		}
		for _, s := range others {
			texts, isFast := f.unlikeSummary(s.levels)
			code := source.CodeClientSummary
			if isFast {
				code = source.CodeClientRate
			}
			if len(texts) > 0 {
				c.addFinding(code, "%s: %s: the summary is of other requests than those of %s, or one of the two was changed", s.name,
					strings.Join(texts, "; "), f.name)
			}
		}
	}
}

// unlikeSummary returns what the levels of a summary (one, or all stages of a run) state that the requests
// contradict, and whether that is a rate which they exceed. Means of several levels are weighted by their requests.
func (f *besideFile) unlikeSummary(levels []Level) (texts []string, isFast bool) {
	var requests, prompts, outputs, ttftS, endS float64 // sums over the requests of all levels
	for i := range levels {
		l := &levels[i]
		n := float64(l.Requests)
		requests += n
		prompts += n * l.PromptTokens
		outputs += n * l.OutputTokens
		ttftS += n * l.TTFTMeanMs / 1e3
		endS += n * l.E2EMs / 1e3
	}
	if requests == 0 {
		return nil, false
	}
	orNaN := func(v float64) float64 { // a mean of 0 is not given
		if v == 0 {
			return math.NaN()
		}
		return v
	}
	// The tool's count of prompt tokens or the server's, whichever is nearer: releases state one or the other.
	prompt := prompts / requests
	counted := mean(f.sums.prompts, f.sums.requests)
	if byServer := mean(f.sums.serverPrompts, f.sums.requests); math.Abs(byServer-prompt) < math.Abs(counted-prompt) {
		counted = byServer
	}
	count := func(key, what string, stated, computed float64) statedTotal {
		return statedTotal{key: key, what: what, stated: stated, computed: computed, tolerance: besideTolerance}
	}
	ms := func(key string, statedS, computedS, tolerance float64) statedTotal { // compared in s, written in ms
		return statedTotal{key: key, what: "ms", stated: statedS, computed: computedS, tolerance: tolerance, textFactor: 1e3}
	}
	var out statedLoad
	out.compare([]statedTotal{
		count("its number of requests", "requests", requests, f.sums.requests),
		count("its mean prompt", "tokens", orNaN(prompt), counted),
		count("its mean output", "tokens", orNaN(outputs/requests), mean(f.sums.outputs, f.sums.requests)),
		ms("its mean TTFT", orNaN(ttftS/requests), mean(f.sums.ttftS, f.sums.ttfts), besideTolerance),
		ms("its mean E2E", orNaN(endS/requests), mean(f.sums.endS, f.sums.ends), endTolerance),
	})
	// The load of a summary is compared only if it seems to be of these requests.
	if len(levels) == 1 && len(out.totals) == 0 {
		load := offeredLoad{
			rateKey:  "its load",
			rate:     levels[0].OfferedRPS,
			limitKey: "its load",
			limit:    float64(levels[0].Clients),
			sends:    f.sends,
		}
		out.totals, isFast = load.unlike()
	}
	return append(out.totals, out.placeholders...), isFast
}

// reportStated reports the loads whose statements their own requests or run.yaml contradict: the gravest
// kind of each load, because the others may follow from it.
func (c *Reader) reportStated(dep *deploy.Deployment) {
	for i := range c.stated {
		l := &c.stated[i]
		switch {
		case len(l.totals) > 0:
			c.addFinding(source.CodeClientTotals, "%s: %s: the requests of the file were changed, or some are of another run", l.name,
				strings.Join(append(l.totals, l.placeholders...), "; "))
		case l.isFast:
			c.addFinding(source.CodeClientRate, "%s: %s: the file was put together from several, or the times at which requests were sent were changed", l.name,
				strings.Join(l.load, "; "))
		case len(l.load) > 0:
			c.addFinding(source.CodeClientLoad, "%s: %s: the file was put together from several, its requests were changed, or the client could not "+
				"send as it was asked", l.name, strings.Join(l.load, "; "))
		case len(l.placeholders) > 0:
			c.addFinding(source.CodeClientSummary, "%s: %s: the program that wrote the file did not compute these, and they are not used", l.name,
				strings.Join(l.placeholders, "; "))
		}
		if namesOtherModel(l.model, dep.Model.ID) {
			c.addFinding(source.CodeRunContradicted, "%s: model_id is %q, run.yaml names %q: the file is of another server, or run.yaml is", l.name,
				l.model, dep.Model.ID)
		}
	}
}

// namesOtherModel reports whether the name that a client has for its model is that of another one than
// run.yaml's. Names are compared without owner and punctuation, and one may be the beginning of the other. A
// name without digits is an alias, as of --served-model-name.
func namesOtherModel(client, run string) bool {
	clientKey := model.NameKey(client)
	runKey := model.NameKey(run)
	isAlias := !strings.ContainsAny(clientKey, "0123456789")
	return !isAlias && runKey != "" && !strings.Contains(clientKey, runKey) && !strings.Contains(runKey, clientKey)
}
