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
	rateTolerance   = 0.1  // of the rate, besides rateDeviations of its chance
	rateDeviations  = 5    // standard deviations of the number of arrivals
	slowestClient   = 1.5  // times that a client may send more slowly than it was asked
	mostDerived     = 0.03 // share of the requests whose derived figures may be others
	fewestDerived   = 5    // such requests
)

// statedLoad is what a client's file states of the requests of one load that they contradict.
type statedLoad struct {
	name         string // of the load
	model        string
	totals       []string
	placeholders []string // totals that an exporter writes where it has none
	load         []string
}

// requestSums are the sums over the requests of a load that succeeded, by the file's own figures.
type requestSums struct {
	requests                float64
	prompts, outputs        float64
	serverPrompts           float64 // by the server's count, with its template; 0: not known
	ttftS, ttfts            float64 // sum, and requests that have it
	endS, ends              float64
	gapS, gaps              float64
	derived, contradicting  int    // requests with derived figures, and those in which they are others
	contradictingFor, place string // the first of them
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

// derive compares figures of one request that the tool derives from others: each pair must be equal.
func (s *requestSums) derive(place string, pairs []derivedFigure) {
	s.derived++
	for _, p := range pairs {
		if p.stated > 0 && p.of > 0 && math.Abs(p.stated-p.of) > totalTolerance*math.Max(p.stated, p.of) {
			s.contradicting++
			if s.place == "" {
				s.place = place
				s.contradictingFor = fmt.Sprintf("%s states %.4g, its other figures give %.4g", p.key, p.stated, p.of)
			}
			return
		}
	}
}

// derivedFigure is a figure that a file states of a request, and what others give for it; 0 if one is not there.
type derivedFigure struct {
	key        string
	stated, of float64
}

// contradictions returns the sentence about the derived figures of a file; none if a few are others.
func (s *requestSums) contradictions() []string {
	if s.contradicting < fewestDerived || float64(s.contradicting) <= mostDerived*float64(s.derived) {
		return nil
	}
	return []string{fmt.Sprintf("in %d of %d requests figures that the tool derives are not those of the others, first in %s: %s", s.contradicting, s.derived,
		s.place, s.contradictingFor)}
}

// statedTotal is one total or mean that a file states, and what its requests have.
type statedTotal struct {
	key, what  string
	stated, of float64 // NaN: one of them is not known
	tolerance  float64
	times      float64 // in the text, of the value that is compared
}

// unlike returns the statement that the requests contradict, "" if they do not.
func (t *statedTotal) unlike() string {
	if math.IsNaN(t.stated) || math.IsNaN(t.of) || math.Abs(t.stated-t.of) <= t.tolerance*math.Max(t.stated, t.of) {
		return ""
	}
	times := cmp.Or(t.times, 1)
	return fmt.Sprintf("%s states %.4g %s, its requests have %.4g", t.key, t.stated*times, t.what, t.of*times)
}

// isPlaceholder reports whether a total is what exporters write that did not compute it.
func (t *statedTotal) isPlaceholder() bool {
	return t.stated == 0 || t.stated*cmp.Or(t.times, 1) == 1 || t.stated < 0
}

// compare adds the totals that the requests contradict.
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

// contradictions compares the totals of a result of vllm bench serve with its lists.
func (b *benchResult) contradictions(name string) statedLoad {
	out := statedLoad{name: name}
	out.model, _ = b.stated["model_id"].(string)
	var sums requestSums
	load := offeredLoad{
		rateKey: "request_rate", rate: numberOr(b.stated["request_rate"]), burstiness: numberOr(b.stated["burstiness"]),
		limitKey: "max_concurrency", limit: float64(b.concurrency.Or(0)), isRampUp: b.stated["ramp_up_strategy"] != nil,
	}
	first, last := math.Inf(1), math.Inf(-1)
	for i := range b.inputs {
		lengthS := b.lengthS(i)
		if len(b.starts) > 0 {
			load.sends = append(load.sends, sentRequest{b.starts[i], lengthS})
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
			first = math.Min(first, b.starts[i])
			last = math.Max(last, b.starts[i]+lengthS)
		}
	}
	n := math.Max(1, sums.requests)
	endS := math.NaN()
	if len(b.itls) > 0 {
		endS = sums.endS / n
	}
	out.compare([]statedTotal{
		{"completed", "completed requests", numberOr(b.stated["completed"]), sums.requests, 0, 1},
		{"total_input_tokens", "prompt tokens", numberOr(b.stated["total_input_tokens"]), sums.prompts, totalTolerance, 1},
		{"total_output_tokens", "output tokens", numberOr(b.stated["total_output_tokens"]), sums.outputs, totalTolerance, 1},
		{"mean_ttft_ms", "ms to the first token on the mean", numberOr(b.stated["mean_ttft_ms"]) / 1e3, sums.ttftS / n, totalTolerance, 1e3},
		{"mean_itl_ms", "ms between tokens on the mean", numberOr(b.stated["mean_itl_ms"]) / 1e3, mean(sums.gapS, sums.gaps), totalTolerance, 1e3},
		{"mean_e2el_ms", "ms of a request on the mean", numberOr(b.stated["mean_e2el_ms"]) / 1e3, endS, endTolerance, 1e3},
		{"mean_e2e_latency_ms", "ms of a request on the mean", numberOr(b.stated["mean_e2e_latency_ms"]) / 1e3, endS, endTolerance, 1e3},
	})
	if stated := numberOr(b.stated["duration"]); last-first > stated*(1+totalTolerance) {
		text := fmt.Sprintf("duration states %.4g s, its requests take %.4g s", stated, last-first)
		if stated <= 1 {
			out.placeholders = append(out.placeholders, text)
		} else {
			out.totals = append(out.totals, text)
		}
	}
	if sums.requests > 0 {
		out.load = load.unlike()
	}
	return out
}

// lengthS returns the time of a request from its send to its last chunk.
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
// keep a sample (--sample-requests), and requests of the warm-up that are in no mean.
func guideTotals(out *statedLoad, metrics map[string]any, s *requestSums) {
	isMeanOf := func(key string, n float64) float64 { // the stated mean, of so many requests
		if numberAt(metrics, key+".successful.count") != n {
			return math.NaN()
		}
		return numberOr(valueAt(metrics, key+".successful.mean"))
	}
	out.compare([]statedTotal{
		{"prompt_token_count", "prompt tokens on the mean", isMeanOf("prompt_token_count", s.requests), mean(s.prompts, s.requests), totalTolerance, 1},
		{"output_token_count", "output tokens on the mean", isMeanOf("output_token_count", s.requests), mean(s.outputs, s.requests), totalTolerance, 1},
		{"time_to_first_token_ms", "ms to the first token on the mean", isMeanOf("time_to_first_token_ms", s.ttfts) / 1e3, mean(s.ttftS, s.ttfts),
			totalTolerance, 1e3},
		{"request_latency", "s of a request on the mean", isMeanOf("request_latency", s.ends), mean(s.endS, s.ends), totalTolerance, 1},
	})
	out.totals = append(out.totals, s.contradictions()...)
}

// sentRequest is a request by when it was sent and how long it took.
type sentRequest struct{ atS, lengthS float64 }

// sendsOf returns the requests that have both.
func sendsOf(requests []trace.ObservedRequest) []sentRequest {
	var out []sentRequest
	for i := range requests {
		if r := &requests[i]; r.SendNs.OK && r.E2EUs.OK {
			out = append(out, sentRequest{float64(r.SendNs.V) / 1e9, r.E2EUs.V / 1e6})
		}
	}
	return out
}

// offeredLoad is a load as a client's file states it, with the requests that were sent.
type offeredLoad struct {
	rateKey, limitKey string
	rate, burstiness  float64 // NaN or 0: not stated
	limit             float64 // of requests at once; 0: none
	isRampUp          bool    // the rate changes
	sends             []sentRequest
}

// unlike compares the limit and the rate with the times at which requests were sent.
func (o *offeredLoad) unlike() (unlike []string) {
	n := len(o.sends)
	isUnknown := func(s sentRequest) bool { return math.IsNaN(s.atS) }
	if n < fewestSends || slices.ContainsFunc(o.sends, isUnknown) {
		return nil
	}
	isRate := o.rate > 0 && !math.IsInf(o.rate, 0)
	first, last := math.Inf(1), math.Inf(-1)
	meanS, answered := 0.0, 0.0
	for _, s := range o.sends {
		first = math.Min(first, s.atS)
		last = math.Max(last, s.atS)
		if s.lengthS > 0 {
			meanS += s.lengthS
			answered++
		}
	}
	most := mostInFlight(o.sends)
	if o.limit > 0 {
		couldFill := !isRate && float64(n) >= 2*o.limit && o.limit >= 4 && meanS/math.Max(1, answered) >= o.limit/sendsPerS
		if most > overLimit*o.limit+1 || couldFill && most < underLimit*o.limit {
			unlike = append(unlike, fmt.Sprintf("%s states %.0f requests at once, its %d requests are up to %.0f", o.limitKey, o.limit, n, most))
		}
		isRate = isRate && most < o.limit // the limit held requests back
	}
	if !isRate || o.isRampUp || !(last > first) {
		return unlike
	}
	burstiness := o.burstiness
	if !(burstiness > 0) {
		burstiness = 1
	}
	chance := 1 + rateTolerance + rateDeviations/math.Sqrt(float64(n)*burstiness)
	measured := float64(n-1) / (last - first)
	if measured > o.rate*chance || measured < o.rate/math.Max(slowestClient, chance) {
		unlike = append(unlike, fmt.Sprintf("%s states %.4g requests a second, its %d requests were sent at %.4g", o.rateKey, o.rate, n, measured))
	}
	return unlike
}

// mostInFlight returns the most requests between send and last chunk at once.
func mostInFlight(sends []sentRequest) float64 {
	type edge struct{ atS, open float64 }
	var edges []edge
	for _, s := range sends {
		if s.lengthS > 0 {
			edges = append(edges, edge{s.atS, 1}, edge{s.atS + s.lengthS, -1})
		}
	}
	stat.SortStable(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.atS, b.atS), cmp.Compare(a.open, b.open)) })
	var now, most float64
	for _, e := range edges {
		now += e.open
		most = math.Max(most, now)
	}
	return most
}

// besideFile is a file of requests whose tool writes its summary to a file of its own.
type besideFile struct {
	name, form string // of the tool, as in levelFormats
	sums       requestSums
	sends      []sentRequest
}

// summaryFile is the load levels of a file.
type summaryFile struct {
	name, form string
	levels     []Level
}

// compareSummaries compares each file of requests with the summaries of its tool in its folder. A run of several stages has one
// summary of each, which are compared together.
func (c *Reader) compareSummaries() {
	for i := range c.beside {
		f := &c.beside[i]
		folder := path.Dir(f.name)
		isLike := func(form, name string) bool { return form == f.form && path.Dir(name) == folder }
		if slices.ContainsFunc(c.beside, func(b besideFile) bool { return b.name != f.name && isLike(b.form, b.name) }) {
			continue // which of them the summaries are of is not known
		}
		var stages, others []summaryFile
		for _, s := range c.summaries {
			switch {
			case !isLike(s.form, s.name):
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
			if texts := f.unlikeSummary(s.levels); len(texts) > 0 {
				c.addFinding(source.CodeClientSummary, "%s: %s: the summary is of other requests than those of %s, or one of the two was changed", s.name,
					strings.Join(texts, "; "), f.name)
			}
		}
	}
}

// unlikeSummary returns what the levels of a summary state that the requests contradict.
func (f *besideFile) unlikeSummary(levels []Level) []string {
	var requests, prompts, outputs, ttftS, endS float64
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
		return nil
	}
	orNaN := func(v float64) float64 { // a mean of 0 is not given
		if v == 0 {
			return math.NaN()
		}
		return v
	}
	prompt := prompts / requests
	counted := mean(f.sums.prompts, f.sums.requests)
	if byServer := mean(f.sums.serverPrompts, f.sums.requests); math.Abs(byServer-prompt) < math.Abs(counted-prompt) {
		counted = byServer
	}
	var out statedLoad
	out.compare([]statedTotal{
		{"its number of requests", "requests", requests, f.sums.requests, besideTolerance, 1},
		{"its mean prompt", "tokens", orNaN(prompt), counted, besideTolerance, 1},
		{"its mean output", "tokens", orNaN(outputs / requests), mean(f.sums.outputs, f.sums.requests), besideTolerance, 1},
		{"its mean TTFT", "ms", orNaN(ttftS / requests), mean(f.sums.ttftS, f.sums.ttfts), besideTolerance, 1e3},
		{"its mean E2E", "ms", orNaN(endS / requests), mean(f.sums.endS, f.sums.ends), endTolerance, 1e3},
	})
	if len(levels) == 1 && len(out.totals) == 0 {
		load := offeredLoad{rateKey: "its load", rate: levels[0].OfferedRPS, limitKey: "its load", limit: float64(levels[0].Clients), sends: f.sends}
		out.totals = load.unlike()
	}
	return append(out.totals, out.placeholders...)
}

// reportStated reports the loads whose statements their own requests or run.yaml contradict.
func (c *Reader) reportStated(dep *deploy.Deployment) {
	for i := range c.stated {
		l := &c.stated[i]
		switch {
		case len(l.totals) > 0:
			c.addFinding(source.CodeClientTotals, "%s: %s: the requests of the file were changed, or some are of another run", l.name,
				strings.Join(append(l.totals, l.placeholders...), "; "))
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

// namesOtherModel reports whether the name that a client has for its model is that of another one. A name without
// digits is an alias, as of --served-model-name.
func namesOtherModel(client, run string) bool {
	a, b := model.NameKey(client), model.NameKey(run)
	return strings.ContainsAny(a, "0123456789") && b != "" && !strings.Contains(a, b) && !strings.Contains(b, a)
}
