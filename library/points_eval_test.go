package library

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// TestEvalPoints says, for each group of measured points, how a few points of it,
// learned with the library that has never seen the group as their prior, predict the
// others: points chosen for what they teach, random ones, the library alone, one
// factor for the group, and AIConfigurator.
func TestEvalPoints(t *testing.T) {
	b, m, points := realData(t)
	ctx := context.Background()
	for _, g := range groupsOf(m.points) {
		var in []*load
		for _, l := range m.points {
			if l.group != g {
				in = append(in, l)
			}
		}
		c, err := b.learn(ctx, append(in, m.served...), m.cycles)
		if err != nil {
			t.Fatal(err)
		}
		var loads []*learn.Load
		var others []point
		for i := range points {
			p := &points[i]
			if p.Group() != g {
				continue
			}
			l, err := p.load(p.Harness(), 1)
			if err != nil {
				t.Fatal(err)
			}
			loads = append(loads, &learn.Load{Name: p.ID, Deployment: p.Deployment, Requests: l.reqs,
				Point: &learn.Point{TTFTMs: p.TTFTMs, TPOTMs: p.TPOTMs}})
			others = append(others, *p)
		}
		f, err := b.familyOf(loads[0].Deployment)
		if err != nil {
			t.Fatal(err)
		}
		prior := &learn.Prior{Name: "library without " + g, Set: b.artifact(f, c, coeff.ExpectedError{}, nil)}
		t.Logf("%s, %d points", g, len(loads))
		t.Logf("   AIConfigurator            %s", otherErrors(others))
		judgeGroup(t, loads, prior)
		if slices.ContainsFunc(loads, func(l *learn.Load) bool { return isFull(t, l, prior) }) {
			t.Log("   the same with a KV cache of 8 bits")
			for _, l := range loads {
				d := *l.Deployment
				d.Model.BytesPerKV = 1
				l.Deployment = &d
			}
			judgeGroup(t, loads, prior)
		}
	}
}

// judgeGroup prints the errors of all methods on a group; levels that say that the KV
// cache is larger than stated are named, in no fit, and judged apart.
func judgeGroup(t *testing.T, loads []*learn.Load, prior *learn.Prior) {
	var fair, full []*learn.Load
	for _, l := range loads {
		if isFull(t, l, prior) {
			t.Logf("   %s: the simulated server runs out of KV blocks, the measured one did not", l.Name)
			full = append(full, l)
		} else {
			fair = append(fair, l)
		}
	}
	none := map[int]bool{}
	alone := restErrors(t, fair, none, prior.Set)
	t.Logf("   library alone             %s", alone)
	mostFor(t, "library alone", alone, 0.07, 0.21)
	o := learn.DefaultOptions()
	o.Search = learn.SearchNone
	for _, n := range []int{9, 3} {
		chosen, err := learn.Choose(context.Background(), fair, prior, n, o)
		if err != nil {
			t.Fatal(err)
		}
		rest, set := fitRest(t, fair, chosen, prior, o)
		t.Logf("   %d points, chosen          %s", n, rest)
		mostFor(t, fmt.Sprintf("%d points, chosen", n), rest, 0.06, 0.18)
		if len(full) > 0 {
			t.Logf("   %d points, the %d left out  %s", n, len(full), restErrors(t, full, none, set))
		}
		rest, _ = fitRest(t, fair, rand.New(rand.NewPCG(1, uint64(n))).Perm(len(fair))[:n], prior, o)
		t.Logf("   %d points, random          %s", n, rest)
		mostFor(t, fmt.Sprintf("%d points, random", n), rest, 0.07, 0.18)
		t.Logf("   %d points, one factor      %s", n, factorErrors(t, fair, chosen, prior.Set))
	}
}

// mostFor are the limits of what a method leaves, a little above what it leaves today.
func mostFor(t *testing.T, method string, e *pointErrors, tpot, ttft float64) {
	t.Helper()
	if stat.Mean(e.tpot) > tpot || stat.Median(e.ttft) > ttft {
		t.Errorf("%s: %s, want at most %.1f and %.1f %%", method, e, 100*tpot, 100*ttft)
	}
}

func isFull(t *testing.T, l *learn.Load, prior *learn.Prior) bool {
	t.Helper()
	_, full, err := l.Full(prior)
	if err != nil {
		t.Fatal(err)
	}
	return full
}

func fitRest(t *testing.T, loads []*learn.Load, chosen []int, prior *learn.Prior, o learn.Options) (*pointErrors, *coeff.Set) {
	t.Helper()
	var seen []*learn.Load
	left := map[int]bool{}
	for _, i := range chosen {
		seen, left[i] = append(seen, loads[i]), true
	}
	got, err := learn.Fit(context.Background(), seen, prior, o)
	if err != nil {
		t.Fatal(err)
	}
	return restErrors(t, loads, left, got.Set), got.Set
}

type pointErrors struct{ tpot, ttft []float64 }

func (e *pointErrors) String() string {
	return fmt.Sprintf("TPOT MAPE %.1f %%, TTFT median %.1f %%, mean %.1f %%", 100*stat.Mean(e.tpot), 100*stat.Median(e.ttft),
		100*stat.Mean(e.ttft))
}

func (e *pointErrors) add(tpot, ttft float64) {
	e.tpot, e.ttft = append(e.tpot, math.Abs(tpot-1)), append(e.ttft, math.Abs(ttft-1))
}

func restErrors(t *testing.T, loads []*learn.Load, without map[int]bool, set *coeff.Set) *pointErrors {
	t.Helper()
	e := &pointErrors{}
	for i, l := range loads {
		if without[i] {
			continue
		}
		p, err := l.PredictPoint(set)
		if err != nil {
			t.Fatal(err)
		}
		e.add(p.TPOTMs/l.Point.TPOTMs, p.TTFTMs/l.Point.TTFTMs)
	}
	return e
}

// factorErrors take one factor on TPOT and one on TTFT from the chosen points.
func factorErrors(t *testing.T, loads []*learn.Load, chosen []int, set *coeff.Set) string {
	t.Helper()
	left := map[int]bool{}
	var tpot, ttft []float64
	all := make([]learn.Point, len(loads))
	for i, l := range loads {
		var err error
		if all[i], err = l.PredictPoint(set); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range chosen {
		left[i] = true
		tpot, ttft = append(tpot, loads[i].Point.TPOTMs/all[i].TPOTMs), append(ttft, loads[i].Point.TTFTMs/all[i].TTFTMs)
	}
	e := &pointErrors{}
	for i, l := range loads {
		if !left[i] {
			e.add(stat.Median(tpot)*all[i].TPOTMs/l.Point.TPOTMs, stat.Median(ttft)*all[i].TTFTMs/l.Point.TTFTMs)
		}
	}
	return e.String()
}

func otherErrors(points []point) string {
	e := &pointErrors{}
	for i := range points {
		if p := &points[i]; !math.IsNaN(p.OtherTPOTMs) && !math.IsNaN(p.OtherTTFTMs) {
			e.add(p.OtherTPOTMs/p.TPOTMs, p.OtherTTFTMs/p.TTFTMs)
		}
	}
	return e.String()
}

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
	out, doc := extractedSet(t, "real_requests_llmservingsim")
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
