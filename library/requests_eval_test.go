package library

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/planted"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// fromOther is the error on a run of step cycles of a fit to the other run whose
// prior is a library that has seen neither.
func (b *builder) fromOther(t *testing.T, c *correction, ys []*cycles, y *cycles) float64 {
	t.Helper()
	f, err := b.familyOf(y.dep)
	if err != nil {
		t.Fatal(err)
	}
	_, scale, se, _ := c.on(f)
	cov := c.spread(f, scale, se)
	k := slices.IndexFunc(ys, func(o *cycles) bool { return o != y })
	rows := ys[k].Data
	rows.Config = make([]int32, len(rows.Y))
	o := termOptions(betaSlots)
	o.Prior = c.coefficients(f, y.dep)[:betaSlots]
	chol := make([]float64, betaSlots*betaSlots)
	for j := range betaSlots {
		for k := range betaSlots {
			chol[j*betaSlots+k] = cov[j][k]
		}
		chol[j*betaSlots+j] += 1e-6*cov[j][j] + 1e-6 // terms nobody has seen
	}
	if stat.Cholesky(chol, betaSlots) < betaSlots {
		t.Fatal("a library's covariance is not positive definite")
	}
	o.Precision = stat.CholeskyInverse(chol, betaSlots)
	fit, err := ridge.FitRows(&rows, ridge.Weights(&rows, o), nil, cycleSD*cycleSD/cycleCount, o)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i, us := range y.Y {
		sum += math.Abs(ridge.Dot(y.Row(i), fit.Beta)/us-1) / float64(len(y.Y))
	}
	return sum
}

// servedRequest is one measured request.
type servedRequest struct{ arrivalUs, prompt, output, ttftMs, tpotMs, e2eMs float64 }

// realRequests are runs that recorded requests alone.
func realRequests(t *testing.T) (deps []*deploy.Deployment, lists [][]servedRequest) {
	t.Helper()
	out, doc := planted.Extracted(t, "real_requests_llmservingsim")
	for i := range doc.Runs {
		run, err := table.Read(table.RunDir(out, doc.Runs[i].ID))
		if err != nil {
			t.Fatal(err)
		}
		deps, lists = append(deps, doc.Runs[i].Deployment), append(lists, servedRequests(run))
	}
	return deps, lists
}

// servedRequests takes TTFT and E2E from the engine's pick-up, whose clock both stamps share.
func servedRequests(run *trace.Run) []servedRequest {
	var out []servedRequest
	for i := range run.Observed {
		r := &run.Observed[i]
		if !r.SendWallNs.OK || !r.QueuedNs.OK || !r.EngineFirstNs.OK || !r.EngineLastNs.OK || r.OutputTokens.Or(0) < 2 {
			continue
		}
		q := servedRequest{arrivalUs: float64(r.SendWallNs.V) / 1e3, prompt: float64(r.PromptTokens.V), output: float64(r.OutputTokens.V),
			ttftMs: float64(r.EngineFirstNs.V-r.QueuedNs.V) / 1e6, e2eMs: float64(r.EngineLastNs.V-r.QueuedNs.V) / 1e6}
		q.tpotMs = (q.e2eMs - q.ttftMs) / (q.output - 1)
		out = append(out, q)
	}
	slices.SortFunc(out, func(a, b servedRequest) int { return cmp.Compare(a.arrivalUs, b.arrivalUs) })
	return out
}

// requests prints runs that recorded requests alone, on GPUs without kernel tables: the L40S's
// coefficients at the GPU's own peaks, and the roofline.
func (p *page) requests(t *testing.T, b *builder, c *correction) {
	t.Helper()
	p.line("\nRequests of runs at 10 requests/s, above what these GPUs sustain. No kernel table has them: the library's row takes the " +
		"coefficients of the\nL40S at the GPU's own peaks. TTFT and E2E from the engine's pick-up.\n")
	p.line("| requests | prediction | n | TPOT median error / bias, %% | TTFT median error / bias, %% | E2E median error / bias, %% |\n" +
		"|---|---|---|---|---|---|")
	deps, lists := realRequests(t)
	for i, d := range deps {
		near := *d
		near.Hardware.Name = "L40S-48GB"
		f, err := b.familyOf(&near)
		if err != nil {
			t.Fatal(err)
		}
		physics, err := sim.NewPhysics(setOf(c.coefficients(f, &near)), d)
		if err != nil {
			t.Fatal(err)
		}
		roofline, err := sim.NewRoofline(d)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("%s on %s", d.Model.ID, d.Hardware.Name)
		p.line("| %s | library of L40S-48GB | %d | %s |", name, len(lists[i]), replayed(t, d, physics, lists[i]))
		p.line("|  | roofline | %d | %s |", len(lists[i]), replayed(t, d, roofline, lists[i]))
	}
}

// replayed are the paired errors of a replay of the arrivals.
func replayed(t *testing.T, d *deploy.Deployment, step sim.Model, list []servedRequest) string {
	t.Helper()
	reqs := make([]sim.Request, len(list))
	for i, r := range list {
		reqs[i] = sim.Request{ArrivalUs: int64(r.arrivalUs - list[0].arrivalUs), PromptTokens: int64(r.prompt), OutputTokens: int64(r.output)}
	}
	errs := [3][]float64{}
	_, err := sim.Stream(sim.DefaultConfig(d, step), reqs, nil, func(i int, r *sim.RequestResult) bool {
		ttft, ok1 := r.TTFTUs()
		itl, ok2 := r.ITLUs()
		if m := list[i]; ok1 && ok2 {
			e2e := ttft/1e3 + itl/1e3*(m.output-1)
			for k, e := range []float64{itl / 1e3 / m.tpotMs, ttft / 1e3 / m.ttftMs, e2e / m.e2eMs} {
				errs[k] = append(errs[k], e-1)
			}
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	out := ""
	for k, e := range errs {
		sizes := make([]float64, len(e))
		for i, v := range e {
			sizes[i] = math.Abs(v)
		}
		if k > 0 {
			out += " | "
		}
		out += fmt.Sprintf("%.0f / %+.0f", 100*stat.Median(sizes), 100*stat.Mean(e))
	}
	return out
}
