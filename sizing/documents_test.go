package sizing

import (
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
)

// onL4 is a question about a GPU without kernel tables: its steps take the datasheet's roofline, so that the answer does not
// change with the tables.
func onL4(load predict.Load, slo string, tp ...int64) *Question {
	q := question(load, slo, tp...)
	q.Server.Model = "meta-llama/Llama-3.1-8B"
	q.Hardware = []string{"L4"}
	q.Prices = map[string]float64{"L4": 0.8}
	q.measured = 150
	q.replications = 2
	return q
}

// everyFortyMs is a workload of 60 requests in 2.4 s.
func everyFortyMs() *workload.Workload {
	w := &workload.Workload{}
	for i := range int64(60) {
		w.Requests = append(w.Requests, sim.Request{ID: string(rune('a' + i)), ArrivalUs: 40_000 * i, PromptTokens: 200 + i, OutputTokens: 5})
	}
	return w
}

// TestAnswersOnTheRoofline compares every figure of five answers: of arrivals on servers of all kinds, of a closed
// loop, of a target for a share of requests, of a workload, and of one that no server meets.
func TestAnswersOnTheRoofline(t *testing.T) {
	rate := onL4(predict.Load{RateRPS: 40, InputTokens: 300, OutputTokens: 10}, "ttft.p90=600ms,tpot.mean=80ms", 1, 2)
	rate.Pools = true
	rate.Speculative = `{"method":"ngram","num_speculative_tokens":3,"synthetic_acceptance_length":2}`
	loop := onL4(predict.Load{Clients: 24, InputTokens: 300, OutputTokens: 10}, "itl.p50=56ms,ttft.p90=300ms", 1)
	loop.Routing = "least-requests"
	share := onL4(predict.Load{RateRPS: 20, InputTokens: 300, OutputTokens: 10}, "ttft=300ms,goodput=80%", 1)
	recorded := onL4(predict.Load{Workload: everyFortyMs()}, "ttft.p90=100ms", 1)
	refused := onL4(predict.Load{Workload: everyFortyMs()}, "ttft.p90=1ms", 1)
	refused.MostGPUs = 3
	for name, q := range map[string]*Question{"rate": rate, "loop": loop, "share": share, "recorded": recorded, "refused": refused} {
		a := answered(t, q)
		testkit.Document(t, name, a, "trust", "warnings", "stated_error_low_ms", "stated_error_high_ms")
		for i := range a.Rows {
			checkStatedErrors(t, q, &a.Rows[i])
		}
	}
}

// checkStatedErrors compares the figures of a row with the error that its server states.
func checkStatedErrors(t *testing.T, q *Question, r *Row) {
	t.Helper()
	stated := oneServer(t, q).server.StatedErrors(nil)
	for _, f := range r.Figures {
		if r.Bound {
			if f.ErrorLow != 0 || f.ErrorHigh != 0 {
				t.Errorf("bound, %s %s: got a stated error from %g to %g, want none", f.Metric, f.Statistic, f.ErrorLow, f.ErrorHigh)
			}
			continue
		}
		e := stated.Of(f.Metric)
		if f.Metric == predict.E2E { // has those of TTFT and TPOT by their shares (predict.Prediction.StatedErrors)
			e = f.ErrorHigh/f.Ms.Value - 1
			if e < min(stated.TTFT, stated.TPOT) || e > max(stated.TTFT, stated.TPOT) {
				t.Errorf("%s: got a stated error of %g, want one between those of TTFT and TPOT, %g and %g", f.Statistic, e, stated.TTFT, stated.TPOT)
			}
		}
		if !near(f.ErrorLow, f.Ms.Value/(1+e)) || !near(f.ErrorHigh, f.Ms.Value*(1+e)) {
			t.Errorf("%s %s of %g ms: got a stated error from %g to %g, want a factor of %g", f.Metric, f.Statistic, f.Ms.Value, f.ErrorLow, f.ErrorHigh, 1+e)
		}
	}
}

// TestOrderOfRows: rows that meet the targets come first, then bounds, then refusals; of equal rank the cheaper or the
// smaller, then the plainer, then the one with more headroom.
func TestOrderOfRows(t *testing.T) {
	row := func(name string, change func(*Row)) Row {
		r := Row{Family: name, Met: MetYes, GPUs: 4, price: 8, Headroom: 0.2}
		change(&r)
		return r
	}
	rows := []Row{
		row("refused", func(r *Row) { r.Refused, r.GPUs, r.price = "no room", 0, 0 }),
		row("bound", func(r *Row) { r.Met, r.Bound, r.GPUs, r.price = MetBound, true, 1, 1 }),
		row("drafts", func(r *Row) { r.Drafts, r.Headroom = true, 0.9 }),
		row("pools", func(r *Row) { r.Pools, r.Headroom = true, 0.8 }),
		row("spare", func(r *Row) { r.Headroom = 0.3 }),
		row("plain", func(*Row) {}),
		row("small and dear", func(r *Row) { r.GPUs, r.price = 2, 9 }),
		row("large and cheap", func(r *Row) { r.GPUs, r.price, r.Met = 6, 7, MetEstimate }),
	}
	for byPrice, want := range map[bool]string{
		true:  "large and cheap, spare, plain, drafts, pools, small and dear, bound, refused",
		false: "small and dear, spare, plain, drafts, pools, large and cheap, bound, refused",
	} {
		slices.SortFunc(rows, func(a, b Row) int { return compareRows(&a, &b, byPrice) })
		var names []string
		for _, r := range rows {
			names = append(names, r.Family)
		}
		if got := strings.Join(names, ", "); got != want {
			t.Errorf("by price %t: got %s, want %s", byPrice, got, want)
		}
	}
	for met, want := range map[string]bool{MetYes: true, MetEstimate: true, MetBound: false, "": false} {
		a := &Answer{Rows: []Row{{Met: met}}}
		if got := a.Best(); (got != nil) != want {
			t.Errorf("%q: got %v", met, got)
		}
	}
	if (&Answer{}).Best() != nil {
		t.Error("no rows: got a best one")
	}
}

// TestCandidatesOnce: two names of one GPU are one candidate.
func TestCandidatesOnce(t *testing.T) {
	q := onL4(predict.Load{RateRPS: 1, InputTokens: 100, OutputTokens: 10}, "tpot.mean=80ms", 1, 2)
	q.Hardware = []string{q.Hardware[0], strings.ToLower(q.Hardware[0]), "H100", "H100-SXM-80GB"}
	found, err := q.candidates()
	if err != nil || len(found) != 4 {
		t.Errorf("got %d candidates, %v, want two GPUs with two widths", len(found), err)
	}
}

// TestNoCandidates: a question without GPUs, and one of which no server can be built, are errors.
func TestNoCandidates(t *testing.T) {
	load := predict.Load{RateRPS: 1, InputTokens: 100, OutputTokens: 10}
	none := onL4(load, "tpot.mean=80ms")
	unknown := onL4(load, "tpot.mean=80ms", 1)
	unknown.Server.Model = "no-such-model"
	for want, q := range map[string]*Question{"no GPU or no tensor-parallel size": none, "no-such-model": unknown} {
		if _, err := q.Answer(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
