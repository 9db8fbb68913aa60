package identity

import (
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestClientsBesideStockSpans: the clients' file of a server without journeys is compared with the spans of the same
// responses, by times and by tokens.
func TestClientsBesideStockSpans(t *testing.T) {
	times := func(factor float64) func(*trace.ObservedRequest, *trace.Request) {
		return func(o *trace.ObservedRequest, _ *trace.Request) {
			o.TTFTUs.V *= factor
			o.E2EUs.V *= factor
			o.FirstChunkNs.V = o.SendNs.V + trace.Ns(o.TTFTUs.V)
			o.LastChunkNs.V = o.SendNs.V + trace.Ns(o.E2EUs.V)
			o.EndNs = o.LastChunkNs
		}
	}
	for _, c := range []struct {
		name   string
		change func(*trace.ObservedRequest, *trace.Request)
		want   string // violated identities with their effects
	}{
		{"honest", func(*trace.ObservedRequest, *trace.Request) {}, ""},
		{"0.7 times the times", times(0.7), "client_encloses_server fails"},
		{"1.3 times the times", times(1.3), "client_encloses_server insufficient"},
		{"half of the prompts", func(o *trace.ObservedRequest, _ *trace.Request) { o.PromptTokens.V /= 2 }, "client_tokens fails"},
		{"1.3 times the outputs", func(o *trace.ObservedRequest, _ *trace.Request) { o.OutputTokens.V = o.OutputTokens.V * 13 / 10 }, "client_tokens fails"},
		{"no template", func(o *trace.ObservedRequest, q *trace.Request) { q.PromptTokens.V += 30 }, "client_tokens named"},
		{"other ids", func(o *trace.ObservedRequest, q *trace.Request) {
			o.ID = "other" + o.ID
			o.PromptTokens.V /= 2
		}, ""},
	} {
		run, dep := honest(t)
		for i := range run.Requests {
			q, o := &run.Requests[i], &run.Observed[i]
			ttftMs, _ := q.TTFTMs()
			e2eMs, _ := q.E2EMs()
			*q = trace.Request{
				Source: trace.SourceStock, APIID: trace.Some("cmpl-" + o.ID + "-0"), StartWallNs: q.ArrivedNs, EndWallNs: q.DepartedNs,
				StockTTFTUs: trace.Some(ttftMs * 1e3), StockE2EUs: trace.Some(e2eMs * 1e3), PromptTokens: q.PromptTokens, OutputTokens: q.OutputTokens,
				Success: trace.Some(true),
			}
			o.CoreID = trace.Opt[string]{}
			c.change(o, q)
		}
		run.Steps, run.Snapshots = nil, nil
		var violated []string
		for _, id := range compared(t, run, dep, nil) {
			if id.Status == result.IdentityViolated {
				violated = append(violated, id.Name+" "+id.Effect)
			}
		}
		slices.Sort(violated)
		if got := strings.Join(violated, ", "); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
