package clients

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// This file compares what a result of `vllm bench serve` or SGLang's bench_serving states of itself (its
// model, totals, means, limit and rate) with run.yaml and with the lists of its own requests
// (spec#client-traps). The tool computes the totals and means from the lists before it writes both, so
// that they differ only in a file that was changed or put together from several.

// totalKeys are the keys of a result that are compared with its requests.
var totalKeys = []string{"model_id", "completed", "total_input_tokens", "total_output_tokens", "duration", "mean_ttft_ms", "mean_itl_ms",
	"mean_e2el_ms", "mean_e2e_latency_ms", "request_rate", "burstiness", "ramp_up_strategy"}

// Tolerances of what a result states of itself.
const (
	totalTolerance = 0.02 // of totals and means, which have all digits
	endTolerance   = 0.25 // of E2E, which some versions measure to the end of the connection
	overLimit      = 1.05 // times max_concurrency in flight, and one more: requests that end as others begin
	underLimit     = 0.5  // of max_concurrency in flight, by a client that always has requests to send
	sendsPerS      = 200  // requests that a client is certain to send in a second
	fewestSends    = 20   // requests of which a rate is taken
	rateTolerance  = 0.1  // of the rate, besides rateDeviations of its chance
	rateDeviations = 5    // standard deviations of the number of arrivals
	slowestClient  = 1.5  // times that a client may send more slowly than it was asked
)

// benchContradictions are what one result states that its own requests contradict.
type benchContradictions struct {
	name   string // of the load
	model  string // model_id
	totals []string
	load   []string
}

// contradictions compares the totals of a result with its lists.
func (b *benchResult) contradictions(name string) benchContradictions {
	out := benchContradictions{name: name}
	out.model, _ = b.stated["model_id"].(string)
	var (
		completed, inputs, outputs, gaps float64
		ttftS, gapS, endS                float64
		first, last                      = math.Inf(1), math.Inf(-1)
	)
	for i := range b.inputs {
		succeeded := b.outputs[i] > 0
		if len(b.errors) > 0 {
			succeeded = b.errors[i] == ""
		}
		if !succeeded {
			continue
		}
		lengthS := b.lengthS(i)
		completed++
		inputs += b.inputs[i]
		outputs += b.outputs[i]
		ttftS += b.ttfts[i]
		endS += lengthS
		if len(b.itls) > 0 {
			for _, gap := range b.itls[i] {
				gapS += gap
				gaps++
			}
		}
		if len(b.starts) > 0 {
			first = math.Min(first, b.starts[i])
			last = math.Max(last, b.starts[i]+lengthS)
		}
	}
	n := math.Max(1, completed)
	for _, total := range []struct {
		key, what          string
		isKnown            bool
		of                 float64
		tolerance, divisor float64
	}{
		{"completed", "completed requests", true, completed, 0, 1},
		{"total_input_tokens", "prompt tokens", true, inputs, totalTolerance, 1},
		{"total_output_tokens", "output tokens", true, outputs, totalTolerance, 1},
		{"mean_ttft_ms", "ms to the first token on the mean", true, ttftS / n, totalTolerance, 1e3},
		{"mean_itl_ms", "ms between tokens on the mean", gaps > 0, gapS / math.Max(1, gaps), totalTolerance, 1e3},
		{"mean_e2el_ms", "ms of a request on the mean", len(b.itls) > 0, endS / n, endTolerance, 1e3},
		{"mean_e2e_latency_ms", "ms of a request on the mean", len(b.itls) > 0, endS / n, endTolerance, 1e3},
	} {
		stated, isNumber, _ := asNumber(b.stated[total.key])
		stated /= total.divisor
		if !total.isKnown || !isNumber || math.IsNaN(total.of) || math.Abs(stated-total.of) <= total.tolerance*math.Max(stated, total.of) {
			continue
		}
		out.totals = append(out.totals, fmt.Sprintf("%s states %.4g %s, its requests have %.4g", total.key, stated*total.divisor, total.what,
			total.of*total.divisor))
	}
	if stated, isNumber, _ := asNumber(b.stated["duration"]); isNumber && last-first > stated*(1+totalTolerance) {
		out.totals = append(out.totals, fmt.Sprintf("duration states %.4g s, its requests take %.4g s", stated, last-first))
	}
	if completed > 0 {
		out.load = b.unlikeLoad(endS / completed)
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

// unlikeLoad compares the limit and the rate of a result with the times at which its requests were sent. A request
// takes meanS.
func (b *benchResult) unlikeLoad(meanS float64) (unlike []string) {
	n := len(b.starts)
	if n < fewestSends || slices.ContainsFunc(b.starts, math.IsNaN) {
		return nil
	}
	rate, isRate, _ := asNumber(b.stated["request_rate"])
	isRate = isRate && rate > 0 && !math.IsInf(rate, 0)
	most := b.mostInFlight()
	if limit := float64(b.concurrency.V); b.concurrency.OK && limit > 0 {
		couldFill := !isRate && float64(n) >= 2*limit && limit >= 4 && meanS >= limit/sendsPerS
		if most > overLimit*limit+1 || couldFill && most < underLimit*limit {
			unlike = append(unlike, fmt.Sprintf("max_concurrency states %.0f requests at once, its %d requests are up to %.0f", limit, n, most))
		}
		isRate = isRate && most < limit // the limit held requests back
	}
	span := slices.Max(b.starts) - slices.Min(b.starts)
	if !isRate || b.stated["ramp_up_strategy"] != nil || !(span > 0) {
		return unlike
	}
	burstiness, isNumber, _ := asNumber(b.stated["burstiness"])
	if !isNumber || !(burstiness > 0) {
		burstiness = 1
	}
	chance := 1 + rateTolerance + rateDeviations/math.Sqrt(float64(n)*burstiness)
	measured := float64(n-1) / span
	if measured > rate*chance || measured < rate/math.Max(slowestClient, chance) {
		unlike = append(unlike, fmt.Sprintf("request_rate states %.4g requests a second, its %d requests were sent at %.4g", rate, n, measured))
	}
	return unlike
}

// mostInFlight returns the most requests between send and last chunk at once.
func (b *benchResult) mostInFlight() float64 {
	type edge struct{ atS, open float64 }
	var edges []edge
	for i, start := range b.starts {
		if lengthS := b.lengthS(i); lengthS > 0 {
			edges = append(edges, edge{start, 1}, edge{start + lengthS, -1})
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

// reportBenchResults reports the results whose statements their own requests or run.yaml contradict.
func (c *Reader) reportBenchResults(dep *deploy.Deployment) {
	for i := range c.results {
		r := &c.results[i]
		switch {
		case len(r.totals) > 0:
			c.addFinding(source.CodeClientTotals, "%s: %s: the requests of the file were changed, or some are of another run", r.name,
				strings.Join(r.totals, "; "))
		case len(r.load) > 0:
			c.addFinding(source.CodeClientLoad, "%s: %s: the file was put together from several, its requests were changed, or the client could not "+
				"send as it was asked", r.name, strings.Join(r.load, "; "))
		}
		if namesOtherModel(r.model, dep.Model.ID) {
			c.addFinding(source.CodeRunContradicted, "%s: model_id is %q, run.yaml names %q: the file is of another server, or run.yaml is", r.name,
				r.model, dep.Model.ID)
		}
	}
}

// namesOtherModel reports whether the name that a client has for its model is that of another one. A name without
// digits is an alias, as of --served-model-name.
func namesOtherModel(client, run string) bool {
	a, b := model.NameKey(client), model.NameKey(run)
	return strings.ContainsAny(a, "0123456789") && b != "" && !strings.Contains(a, b) && !strings.Contains(b, a)
}
