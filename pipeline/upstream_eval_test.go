package pipeline

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// original is a run of the fork, with its own fit.
type original struct {
	name, dir string
	run       *trace.Run
	dep       *deploy.Deployment
	steps     *rows.Steps
	holdout   *rows.Table
	all       *rows.Table
	whole     []float64 // times of all rows by the fit from the whole trace, us
	full      float64   // hold-out MAPE of that fit
	apart     bool      // it separates the KV-read term from that of decodes
}

// originals extracts and fits every run of a set alone; those that cannot be
// fitted from the whole trace have nothing to be compared with.
func originals(t *testing.T, set string) []*original {
	t.Helper()
	parent := repo.Shared(t, "data", set)
	o := DefaultExtractOptions()
	o.Out, o.Batches = t.TempDir(), nil
	ext, err := Extract(context.Background(), []string{parent}, o)
	if err != nil {
		t.Fatal(err)
	}
	var out []*original
	sources := FitSources(o.Out, ext)
	for i := range ext.Runs {
		r := &ext.Runs[i]
		p := &original{name: r.ID, dir: filepath.Join(parent, filepath.FromSlash(r.Folder)), dep: r.Deployment}
		if p.run, err = sources[i].Load(); err != nil {
			t.Fatal(err)
		}
		st, err := stepTime(sources[i])
		if err != nil {
			fmt.Printf("  %-28s not fitted from the whole trace: %v\n", p.name, err)
			continue
		}
		if p.steps, err = rows.Rebuild(p.run, p.dep, features.V11); err != nil {
			t.Fatal(err)
		}
		p.judgedBy(t, st)
		out = append(out, p)
	}
	return out
}

// judgedBy makes the hold-out rows of the whole trace, at the lag its fit found.
func (p *original) judgedBy(t *testing.T, st *fit.StepTime) {
	t.Helper()
	space, err := features.New(features.V11, p.dep)
	if err != nil {
		t.Fatal(err)
	}
	all, err := p.steps.Beta(space, rows.Options{Lag: st.Runs[0].Lag.Lag})
	if err != nil {
		t.Fatal(err)
	}
	rows.Clean([]*rows.Table{all}, rows.Relative)
	p.all, p.holdout = all, all.Select(func(i int) bool { return all.HoldOut[i] })
	p.whole, p.full, p.apart = predicted(all, st), p.judge(st), separates(st)
}

// separates says that no unknown combination holds both the KV-read term and the
// per-decode term.
func separates(st *fit.StepTime) bool {
	for _, g := range fit.DiagnoseRows(st.Model, 1).Null {
		kv, decode := false, false
		for _, j := range g.Terms {
			kv = kv || st.Model.Terms[j].Name == "kv_cache_read"
			decode = decode || st.Model.Terms[j].Name == "batch_utilization"
		}
		if kv && decode {
			return false
		}
	}
	return true
}

func stepTime(src fit.Source) (*fit.StepTime, error) {
	o := fit.DefaultOptions()
	o.AlphaTargets = nil
	o.Models = []string{}
	o.BetaOnly = true
	return fit.FitStepTime(context.Background(), []fit.Source{src}, o)
}

// judge is the MAPE of coefficients on the hold-out rows of the whole trace.
func (p *original) judge(st *fit.StepTime) float64 {
	scored := stat.Rows{Y: p.holdout.Y, Pred: predicted(p.holdout, st)}
	return scored.Errors(nil).MAPE
}

// predicted are the times of a table's rows by a fit, us.
func predicted(t *rows.Table, st *fit.StepTime) []float64 {
	pred := make([]float64, t.Kept)
	for i := range pred {
		pred[i] = ridge.Dot(t.Row(i), st.Model.Fit.Beta)
	}
	return pred
}

// differs is by how much the times of a fit differ from those of the whole trace's on the run's
// own batches: the median of the rows, and the sum.
func (p *original) differs(st *fit.StepTime) (median, sum float64) {
	var off []float64
	whole := 0.0
	for i, v := range predicted(p.all, st) {
		off = append(off, math.Abs(v/p.whole[i]-1))
		sum, whole = sum+v, whole+p.whole[i]
	}
	return stat.Median(off), math.Abs(sum/whole - 1)
}

// told is what came of a rewritten run.
type told struct {
	run         *trace.Run
	mape        float64
	median, sum float64 // differences of the predictions on the run's own batches
	apart       bool
	err         error
}

// tell rewrites a run, extracts and fits it.
func (p *original) tell(t *testing.T, w rewriting) told {
	t.Helper()
	dir := w.folder(t, p.dir, p.run, p.dep)
	defer os.RemoveAll(dir)
	o := DefaultExtractOptions()
	o.Out, o.Batches = t.TempDir(), nil
	defer os.RemoveAll(o.Out)
	ext, err := Extract(context.Background(), []string{dir}, o)
	if err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	src := FitSources(o.Out, ext)[0]
	src.Judge = nil
	got := told{}
	if got.run, err = src.Load(); err != nil {
		t.Fatal(err)
	}
	p.sameCounts(t, w, ext, got.run)
	st, err := stepTime(src)
	if err != nil {
		got.err = err
		return got
	}
	got.mape, got.apart = p.judge(st), separates(st)
	got.median, got.sum = p.differs(st)
	return got
}

// sameCounts: every pass of the step table is read back with its counts.
func (p *original) sameCounts(t *testing.T, w rewriting, ext *result.Extract, run *trace.Run) {
	t.Helper()
	passes := w.passes(p.run, p.dep)
	if len(run.Iterations) != len(passes) || len(ext.Runs[0].Records.Dropped) > 0 {
		t.Errorf("%s: got %d iterations, %v dropped, want %d", p.name, len(run.Iterations), ext.Runs[0].Records.Dropped, len(passes))
		return
	}
	for i := range passes {
		it, s := &run.Iterations[i], passes[i].step
		counts := [4]int64{int64(s.NumPrefillReqs), int64(s.PrefillTokens), int64(s.NumDecodeReqs), int64(s.DecodeTokens)}
		if w.form != "fpm" && counts != [4]int64{it.ContextReqs, it.ContextTokens, it.GenerationReqs, it.GenerationTokens} {
			t.Errorf("%s: iteration %d: got %+v, want step %+v", p.name, i, it, s)
			return
		}
	}
}

// contextError is the median relative error of the contexts that were filled in.
func (p *original) contextError(w rewriting, run *trace.Run) float64 {
	var filled []float64
	var errs []float64
	if len(run.Aggregate.Totals) == 0 {
		return math.NaN()
	}
	for i := range run.Aggregate.Totals {
		if tt := &run.Aggregate.Totals[i]; tt.Prefill+tt.Decode > 0 {
			filled = append(filled, tt.DecodeContext)
		}
	}
	for i, q := range w.passes(p.run, p.dep) {
		st := p.steps.At(q.id)
		if st.Known() && st.In.DecodeContextTokens > 0 && i < len(filled) {
			errs = append(errs, math.Abs(filled[i]-st.In.DecodeContextTokens)/st.In.DecodeContextTokens)
		}
	}
	return stat.Median(errs)
}

// TestEvalRewritten: every composed and real run of the fork, told as logs of
// unmodified vLLM and as a forward-pass trace, and fitted from those.
func TestEvalRewritten(t *testing.T) {
	repo.NeedEval(t)
	kinds := []struct {
		name string
		w    rewriting
		most float64 // median ratio to the fit from the whole trace
		same bool    // the times of each run's own batches agree with those of the whole trace's
	}{
		{"log, precise, clients", rewriting{form: "core", precise: true, stamps: true, clients: true, constant: 1000}, 1.25, true},
		{"log with usage, precise, clients", rewriting{form: "front", precise: true, stamps: true, clients: true, constant: 1000}, 1.25, true},
		{"log with usage, precise", rewriting{form: "front", precise: true, stamps: true, constant: 2000}, 1.25, false},
		{"log, precise, nothing else", rewriting{form: "core", precise: true, stamps: true, constant: 1000}, 1.25, false},
		{"forward-pass trace", rewriting{form: "fpm", constant: 1000}, 1.10, false},
		{"log with usage, whole seconds, clients", rewriting{form: "front", stamps: true, clients: true, constant: 1000}, 1.3, true},
	}
	for _, set := range []string{"composed", "real_vllm_cpu"} {
		list := originals(t, set)
		for _, k := range kinds {
			var ratios, contexts []float64
			full, also := 0, 0 // runs whose whole trace separates the terms, and those of them that this separates
			fmt.Printf("%s, %s: hold-out MAPE %% from the whole trace, from this\n", set, k.name)
			for _, p := range list {
				got := p.tell(t, k.w)
				note := ""
				switch a := got.run.Aggregate; {
				case got.err != nil:
					note = fmt.Sprintf("refused: %v", got.err)
				default:
					ratios = append(ratios, got.mape/p.full)
					if p.apart {
						full++
						if got.apart {
							also++
						}
					}
					if k.same && set == "real_vllm_cpu" && a.Audit.Time != "ticks" && (got.median > 0.03 || got.sum > 0.02) {
						t.Errorf("%s, %s: own batches off by %.3f, their sum by %.3f, want 0.03 and 0.02", p.name, k.name, got.median, got.sum)
					}
					c := p.contextError(k.w, got.run)
					if k.w.clients {
						contexts = append(contexts, c)
					}
					note = fmt.Sprintf("%6.2f  x%.2f  own batches off by %.2f %% (sum %.2f %%)  time %s, contexts %s off by %.2f %%", 100*got.mape,
						got.mape/p.full, 100*got.median, 100*got.sum, a.Audit.Time, a.Contexts, 100*c)
				}
				fmt.Printf("  %-28s async %-5v %6.2f %s\n", p.name, p.dep.Engine.IsAsync(), 100*p.full, note)
			}
			m := stat.Median(ratios)
			fmt.Printf("  median ratio %.3f (want at most %.2f) over %d runs; contexts off by %.2f %% (median of medians)\n", m, k.most, len(ratios),
				100*stat.Median(contexts))
			fmt.Printf("  KV-read and per-decode terms separated in %d of %d runs whose whole trace separates them\n", also, full)
			if k.w.clients && also < full {
				t.Errorf("%s, %s: %d of %d runs separate the terms", set, k.name, also, full)
			}
			if len(ratios) > 0 && m > k.most {
				t.Errorf("%s, %s: median ratio %.3f, want at most %.2f", set, k.name, m, k.most)
			}
		}
	}
}

// TestEvalAsynchronousElapsed: without stamps the logs of engines that are asynchronous, or may be, by run.yaml or by
// their version, are refused. Under a wrong description they are refused if the times do not follow the batches;
// if they do, they are taken, and are no worse than those of synchronous engines. Logs of synchronous engines are taken.
func TestEvalAsynchronousElapsed(t *testing.T) {
	repo.NeedEval(t)
	says := []struct {
		name    string
		w       rewriting
		isWrong bool // an asynchronous engine is described as a synchronous one
	}{
		{"run.yaml as it is", rewriting{form: "core", constant: 1000}, false},
		{"not stated, no release number", rewriting{form: "core", constant: 1000, silent: true, version: "dev"}, false},
		{"not stated, version before the default", rewriting{form: "core", constant: 1000, silent: true, version: "0.12.0"}, true},
		{"stated as synchronous", rewriting{form: "core", constant: 1000, stated: true}, true},
		{"early, not stated, version before the default", rewriting{form: "core", constant: 1000, silent: true, version: "0.12.0", early: true}, false},
		{"early, stated as synchronous", rewriting{form: "core", constant: 1000, stated: true, early: true}, false},
	}
	for _, set := range []string{"composed", "real_vllm_cpu"} {
		list := originals(t, set)
		for _, k := range says {
			refused := 0
			var synchronous, asynchronous []float64 // error over that of the whole trace, of runs whose times were taken
			for _, p := range list {
				got := p.tell(t, k.w)
				switch isAsync := p.dep.Engine.IsAsync(); {
				case isAsync && got.run.Aggregate.Refused != nil:
					refused++
				case isAsync:
					asynchronous = append(asynchronous, got.mape/p.full)
					if !k.isWrong {
						t.Errorf("%s, %s, %s: elapsed of an asynchronous engine was taken, error x%.2f; audit %+v", set, p.name, k.name, got.mape/p.full,
							got.run.Aggregate.Audit)
					}
				case got.err == nil:
					synchronous = append(synchronous, got.mape/p.full)
				default:
					fmt.Printf("  %-28s synchronous and refused: %v\n", p.name, got.run.Aggregate.Refused)
				}
			}
			fmt.Printf("%s, elapsed only, %s: asynchronous refused %d, taken %d, median ratio %.3f; synchronous taken %d, median ratio %.3f\n", set, k.name,
				refused, len(asynchronous), stat.Median(asynchronous), len(synchronous), stat.Median(synchronous))
			if a, s := stat.Median(asynchronous), stat.Median(synchronous); k.isWrong && len(asynchronous) > 0 && a > 1.1*s {
				t.Errorf("%s, %s: asynchronous engines x%.2f, synchronous ones x%.2f", set, k.name, a, s)
			}
		}
	}
}

// stepsOf keeps the steps of a simulation.
type stepsOf struct{ run *trace.Run }

func (r *stepsOf) Step(s *sim.StepView) {
	ns := plantedNs + s.StartUs*1000
	r.run.Steps = append(r.run.Steps, trace.Step{ID: s.StepID, TsStartNs: ns, TsEndNs: ns + 200e3, DurationUs: 200, RunningDepth: int32(s.Running),
		WaitingDepth: int32(s.Waiting), NumPrefillReqs: int32(s.LabelledPrefillReqs), NumDecodeReqs: int32(s.LabelledDecodeReqs), ScheduledTokens: int32(s.Tokens()),
		PrefillTokens: int32(s.LabelledPrefillTokens), DecodeTokens: int32(s.LabelledDecodeTokens), BlocksTotal: s.TotalBlocks, BlocksFree: s.FreeBlocks,
		KVUsage: 1 - float64(s.FreeBlocks)/float64(s.TotalBlocks)})
}

func (r *stepsOf) Event(*sim.Event) {}

// hour simulates an hour of load with planted coefficients and residual noise.
func hour(t *testing.T, dep *deploy.Deployment, rps float64) (*trace.Run, *coeff.Set) {
	t.Helper()
	set := testkit.PlantedOn(dep)
	model, err := sim.NewPhysics(set, dep)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 7))
	var reqs []sim.Request
	for at, i := 0.0, 0; at < 3600e6; i++ {
		out := 2 + int64(60*math.Exp(0.7*rng.NormFloat64()))
		reqs = append(reqs, sim.Request{ID: fmt.Sprintf("c%05d", i), ArrivalUs: int64(at), OutputTokens: out, MaxTokens: out,
			PromptTokens: 8 + int64(250*math.Exp(0.8*rng.NormFloat64()))})
		at += rng.ExpFloat64() / rps * 1e6
	}
	c := sim.DefaultConfig(dep, model)
	c.Async = true
	c.Overhead = sim.Const(2000)
	c.Egress = sim.Const(2000)
	noise := []sim.Quantile{{Q: 0.05, Ratio: 0.93}, {Q: 0.5, Ratio: 1}, {Q: 0.95, Ratio: 1.08}}
	c.Noise = &sim.Noise{Decode: noise, Prefill: noise, Mixed: noise}
	rec := &stepsOf{&trace.Run{ID: "hour"}}
	res, err := sim.Run(c, reqs, rec)
	if err != nil {
		t.Fatal(err)
	}
	ns := func(us trace.Opt[int64]) trace.Opt[int64] {
		return trace.Opt[int64]{V: plantedNs + us.V*1000, OK: us.OK}
	}
	for i := range res.Requests {
		q := &res.Requests[i]
		rec.run.Requests = append(rec.run.Requests, trace.Request{CoreID: trace.Some(q.ID), APIID: trace.Some("a" + q.ID),
			Source: trace.SourceFork, Link: "parent", ArrivedNs: trace.Some(plantedNs + q.ArrivalUs*1000), QueuedNs: ns(q.QueuedUs),
			ScheduledNs:  ns(q.ScheduledUs),
			FirstTokenNs: ns(q.FirstTokenUs), FinishedNs: ns(q.FinishedUs), DepartedNs: ns(q.DepartedUs), QueuedStep: trace.Some(q.QueuedStep),
			ScheduledStep: trace.Some(q.ScheduledStep), FirstTokenStep: trace.Some(q.FirstStep), FinishedStep: trace.Some(q.FinishedStep),
			PromptTokens: trace.Some(q.PromptTokens), CachedTokens: trace.Some(int64(0)), OutputTokens: trace.Some(q.OutputTokens),
			MaxTokens: trace.Some(q.OutputTokens), Preemptions: trace.Some(int64(q.Preemptions)), FinishStatus: trace.Some(trace.FinishLength),
			Success: trace.Some(true)})
	}
	return rec.run, set
}

// TestEvalWholeSeconds: an hour of an asynchronous engine's log with vLLM's own
// stamps alone, on three deployments with planted coefficients and noise.
func TestEvalWholeSeconds(t *testing.T) {
	repo.NeedEval(t)
	for _, c := range []struct {
		name string
		rps  float64
	}{{"h100-codellama-34b-tp1", 4}, {"a100-llama-2-70b-tp4", 3}, {"h100-llama-3.1-8b-tp1", 8}} {
		dir := repo.Shared(t, "data", "composed", c.name)
		dep, err := deploy.LoadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		dep.Engine.PrefixCaching = false
		run, _ := hour(t, dep, c.rps)
		p := &original{name: c.name, dir: dir, run: run, dep: dep}
		st, err := stepTime(fit.Source{ID: c.name, Deployment: *dep, Load: func() (*trace.Run, error) { return run, nil }})
		if err != nil {
			t.Fatal(err)
		}
		if p.steps, err = rows.Rebuild(run, dep, features.V11); err != nil {
			t.Fatal(err)
		}
		p.judgedBy(t, st)
		for _, w := range []rewriting{{form: "core", stamps: true, constant: 800}, {form: "core", stamps: true, clients: true, constant: 800}} {
			got := p.tell(t, w)
			if got.err != nil {
				t.Errorf("%s: %v", c.name, got.err)
				continue
			}
			fmt.Printf("  %-24s an hour, %d passes, %d rows between seconds, contexts %s: hold-out MAPE %.2f %% from the whole trace, %.2f %% from "+
				"seconds, x%.2f\n", c.name, len(got.run.Iterations), len(got.run.Steps), got.run.Aggregate.Contexts, 100*p.full, 100*got.mape,
				got.mape/p.full)
			if got.run.Aggregate.Audit.Time != "ticks" || got.mape > 2*p.full {
				t.Errorf("%s: time %s, ratio %.2f, want ticks and 2", c.name, got.run.Aggregate.Audit.Time, got.mape/p.full)
			}
		}
	}
}

// plantedNs is the stamp of simulated time 0.
const plantedNs = int64(1000e9)

// referenceBatches are decodes, the tokens of their context, and tokens of a prompt: one of
// each kind of kindOf. A kind of which a run recorded few steps is outside what it can tell.
var referenceBatches = [][3]int64{{1, 300, 0}, {4, 1200, 0}, {8, 3000, 0}, {0, 0, 200}, {4, 1200, 300}}

// TestEvalRequestsAgainstSteps says, for every unsaturated real run, what five
// batches take by a fit of its steps and by a fit of its client's timings alone, and how
// far both are from the time that its recorded steps took, by kind.
func TestEvalRequestsAgainstSteps(t *testing.T) {
	repo.NeedEval(t)
	shared := repo.Shared(t, "data", "real_vllm_cpu")
	ctx, out := context.Background(), t.TempDir()
	eo := DefaultExtractOptions()
	eo.Out = out
	ext, err := Extract(ctx, []string{shared}, eo)
	if err != nil {
		t.Fatal(err)
	}
	within := 0
	withinSeen := 0
	near := 0
	nearSteps := 0
	far := 0
	all := 0
	for i := range ext.Runs {
		one := *ext
		one.Runs = ext.Runs[i : i+1]
		o := DefaultFitOptions()
		if o.Options, err = o.Resolve(); err != nil {
			t.Fatal(err)
		}
		steps, err := FitTables(ctx, out, &one, o.Options, folder.Header("", nil), nil)
		if err != nil {
			t.Logf("%-18s no fit of its steps: %v", ext.Runs[i].ID, err)
			continue
		}
		o.From = fit.FromRequests.Name
		requests, err := FitDocument(ctx, Tables{Extract: &one, Dir: out}, nil, o)
		if err != nil {
			t.Errorf("%s: %v", ext.Runs[i].ID, err)
			continue
		}
		worst, worstSeen := 0.0, 0.0
		a := batchTimes(t, steps, ext.Runs[i].Deployment)
		b := batchTimes(t, requests, ext.Runs[i].Deployment)
		_, _, rows := recorded(t, out, &ext.Runs[i], steps)
		line := ""
		for k := range a {
			off := 100 * (b[k]/a[k] - 1)
			worst = math.Max(worst, math.Abs(off))
			if rows[k] >= fewRows {
				worstSeen = math.Max(worstSeen, math.Abs(off))
				line += fmt.Sprintf(" %+.1f", off)
			} else {
				line += fmt.Sprintf(" (%+.1f)", off)
			}
		}
		if all++; worst <= 10 {
			within++
		}
		if worstSeen <= 10 {
			withinSeen++
		}
		n := 0
		for _, l := range requests.Requests.Loads {
			n += l.Requests
		}
		u := requests.Requests.Scatter
		text, byRequests := replayed(t, out, &ext.Runs[i], steps, requests)
		t.Logf("   %s", text)
		if byRequests[0] > 0.20 || byRequests[1] > 0.22 || byRequests[2] > 0.30 {
			t.Errorf("%s: KS of TTFT, span and E2E %.2f by requests, want at most 0.20, 0.22 and 0.30", ext.Runs[i].ID, byRequests)
		}
		for k, doc := range []*result.Fit{steps, requests} {
			off, worst, _ := recorded(t, out, &ext.Runs[i], doc)
			t.Logf("   off the recorded time of%s by %s", off, [2]string{"steps", "requests"}[k])
			if worst <= 10 {
				*[2]*int{&nearSteps, &near}[k]++
			}
			if worst > 40 { // two fits may be further apart on a batch that the run never ran: a whole prompt where all prompts hit the cache
				far++
			}
		}
		last := requests.Requests.Passes[len(requests.Requests.Passes)-1]
		t.Logf("   steps scatter by %.0f %%, the speed drifts by %.1f %%; %s", 100*u.StepFrac, 100*u.DriftFrac, last.Name)
		t.Logf("%-18s %4d requests, spans known to %.1f %%:%s %% worst %.1f %%", ext.Runs[i].ID, n,
			100**requests.Requests.SpanErrorFrac, line, worst)
	}
	t.Logf("within 10 %% of the fit of steps: %d of %d runs at all five batches, %d at those of whose kind %d steps are (others in brackets)",
		within, all, withinSeen, fewRows)
	t.Logf("within 10 %% of the recorded time in each kind: %d by requests, %d by steps", near, nearSteps)
	if all < 11 || within < 1 || near < 4 || far > 0 {
		t.Errorf("got %d runs, %d of them within 10 %% of their steps, %d of the recorded time, %d beyond 40 %% of it, want 11, 1, 4 and 0", all,
			within, near, far)
	}
}

// fewRows of a kind say nothing of its time.
const fewRows = 20

// recorded is by how much a fit is off the sum of the recorded steps, by kind, in words,
// the worst, %, and the rows of each kind.
func recorded(t *testing.T, out string, r *result.ExtractRun, doc *result.Fit) (text string, worst float64, count [5]int) {
	t.Helper()
	run, err := table.ReadLean(table.RunDir(out, r.ID))
	if err != nil {
		t.Fatal(err)
	}
	set, err := fit.Native(doc, nil)
	if err != nil {
		t.Fatal(err)
	}
	set = features.On(set, r.Deployment)
	space, err := features.New(set.SpecVersion, r.Deployment)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := rows.Rebuild(run, r.Deployment, set.SpecVersion)
	if err != nil {
		t.Fatal(err)
	}
	tab, err := steps.Beta(space, rows.Options{Target: coeff.Cadence, Lag: rows.AssumedLag(run, r.Deployment)})
	if err != nil {
		t.Fatal(err)
	}
	kinds := []string{"1-2 decodes", "3-5", "more", "prompts", "both"}
	type sum struct{ rows, got, want float64 }
	sums := make([]sum, len(kinds))
	for i := range tab.Kept {
		s := &sums[kindOf(tab, i)]
		s.rows, s.want = s.rows+1, s.want+tab.Y[i]
		for j, v := range tab.Row(i) {
			s.got += v * set.Beta[j].Value
		}
	}
	for k, s := range sums {
		count[k] = int(s.rows)
		if s.rows >= fewRows {
			off := 100 * (s.got/s.want - 1)
			text += fmt.Sprintf(" %s %+.1f %%,", kinds[k], off)
			worst = math.Max(worst, math.Abs(off))
		}
	}
	return text, worst, count
}

func kindOf(tab *rows.Table, i int) int {
	switch n := tab.Batch[i]; {
	case tab.Regime[i] == rows.Prefill:
		return 3
	case tab.Regime[i] == rows.Mixed:
		return 4
	case n <= 2:
		return 0
	case n <= 5:
		return 1
	}
	return 2
}

// replayed are the KS distances of TTFT, span and E2E of all requests of a run, replayed
// with the coefficients of the fit of its steps and with those of its requests, in words, and the latter.
func replayed(t *testing.T, out string, r *result.ExtractRun, steps, requests *result.Fit) (text string, byRequests [3]float64) {
	t.Helper()
	run, err := table.ReadLean(table.RunDir(out, r.ID))
	if err != nil {
		t.Fatal(err)
	}
	loads, _ := requestfit.LoadsOf(run, r.Deployment, false, nil)
	text = "KS of TTFT, span, E2E by steps and by requests:"
	for k := range timesOf {
		for _, doc := range []*result.Fit{steps, requests} {
			set, err := fit.Native(doc, nil)
			if err != nil {
				t.Fatal(err)
			}
			var real, simulated []float64
			for _, l := range loads {
				got, err := l.Predict(set)
				if err != nil {
					t.Fatal(err)
				}
				for i := range got {
					if want := timesOf[k](&l.Seen[i]); want > 0 {
						real = append(real, want)
						simulated = append(simulated, timesOf[k](&got[i]))
					}
				}
			}
			byRequests[k] = stat.KolmogorovSmirnov(real, simulated).D
			text += fmt.Sprintf(" %.2f", byRequests[k])
		}
		text += ";"
	}
	return text, byRequests
}

func batchTimes(t *testing.T, doc *result.Fit, d *deploy.Deployment) []float64 {
	t.Helper()
	set, err := fit.Native(doc, nil)
	if err != nil {
		t.Fatal(err)
	}
	return stepTimes(t, set, d)
}

func stepTimes(t *testing.T, set *coeff.Set, d *deploy.Deployment) []float64 {
	t.Helper()
	p, err := NewStepTimes(set, d)
	if err != nil {
		t.Fatal(err)
	}
	var out []float64
	for _, q := range referenceBatches {
		var batch []trace.Chunk
		for range q[0] {
			batch = append(batch, trace.Chunk{Computed: q[1] / q[0], Prompt: 100, New: 1})
		}
		if q[2] > 0 {
			batch = append(batch, trace.Chunk{Prompt: q[2], New: q[2]})
		}
		us, err := p.StepUs(batch)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, us)
	}
	return out
}
