package validate

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// engine is how a run is replayed: the coefficients' step times (or the latency
// model of the options), delays from the artifact or the options.
func (j *job) engine(t *judgedRun, run *trace.Run, dep *deploy.Deployment) (engine, []trace.Finding, error) {
	e := engine{Drift: t.drift}
	step, err := j.stepTime(dep)
	if err != nil {
		return e, nil, err
	}
	e.Config = sim.DefaultConfig(dep, step)
	e.Seed, e.Done = j.o.Seed, j.done
	if t.beta != nil {
		e.Async = t.Lag > 0
	}
	if j.set.Gamma > 0 {
		e.GammaEMA, e.Renewal = j.set.Gamma, features.RenewalOf(j.set)
	}
	findings, err := j.delays(&e, run, dep)
	if err != nil {
		return e, nil, err
	}
	if j.o.Noise {
		e.residuals = sim.SetNoise(j.set)
	}
	for _, f := range dep.AssumedInSimulation() {
		findings = append(findings, trace.Findingf(f.Code, "run %s: %s", run.ID, f.Message))
	}
	return e, findings, nil
}

// stepTime is the model of the replays: the coefficients, or that of the options.
func (j *job) stepTime(dep *deploy.Deployment) (sim.Model, error) {
	if j.o.Latency != nil {
		return j.o.Latency(dep)
	}
	return sim.NewPhysics(j.set, dep)
}

// delays sets what happens outside the engine: a constant that was given, one
// measured on idle requests, or the artifact's alphas.
func (j *job) delays(e *engine, run *trace.Run, dep *deploy.Deployment) ([]trace.Finding, error) {
	var findings []trace.Finding
	overhead, egress := j.o.OverheadUs, j.o.EgressUs
	if j.o.IdleDelays {
		idle, ok := measureIdle(run)
		if !ok {
			findings = append(findings, trace.Findingf(ReplayAssumes, "run %s: no request met an idle server", run.ID))
			if run.Aggregate != nil && j.set.AlphaModel(coeff.Overhead) == nil {
				overhead = new(float64) // nothing of the run tells it: the finding above says so
			}
		} else {
			overhead, egress = &idle.OverheadUs, &idle.EgressUs
		}
	}
	switch {
	case overhead != nil:
		e.Overhead = sim.Const(*overhead)
	default:
		d, err := sim.NewAlphaDelay(j.set, coeff.Overhead, dep)
		if err != nil {
			return nil, trace.Errorf(NoReplay, "replay of run %s: %v", run.ID, err).WithHint("give --overhead-us")
		}
		e.Overhead = d
	}
	switch {
	case egress != nil:
		e.Egress = sim.Const(*egress)
	case j.set.AlphaModel(coeff.Egress) != nil:
		d, err := sim.NewAlphaDelay(j.set, coeff.Egress, dep)
		if err != nil {
			return nil, err
		}
		e.Egress = d
	}
	return findings, nil
}

// ContentOf tells what requests of the run share, from package workload. Runs
// it cannot read (stock spans, client files) share their first sharedPrefix tokens;
// 0: nothing.
func ContentOf(run *trace.Run, dep *deploy.Deployment, sharedPrefix int64) (Content, []trace.Finding) {
	if !dep.Engine.PrefixCaching {
		return nil, nil
	}
	w, err := workload.FromRun(run, dep, workload.RunOptions{})
	if err != nil {
		return sharedContent(run, sharedPrefix)
	}
	at := make(map[string]*sim.Request, len(w.Requests))
	for i := range w.Requests {
		at[w.Requests[i].ID] = &w.Requests[i]
	}
	var findings []trace.Finding
	for _, n := range w.Notes {
		if n.Code == workload.CodePrefixUnknown {
			findings = append(findings, trace.Findingf(ReplayAssumes, "run %s: %s", run.ID, n.Message))
		}
	}
	return func(id string, r *sim.Request) {
		if from := at[id]; from != nil {
			r.Group, r.GroupTokens, r.Hashes, r.HashTokens = from.Group, from.GroupTokens, from.Hashes, from.HashTokens
			r.CachedTokens = from.CachedTokens
		}
	}, findings
}

// sharedGroup is the content group of requests that share what the options say.
const sharedGroup = 1

func sharedContent(run *trace.Run, n int64) (Content, []trace.Finding) {
	if n == 0 {
		return nil, []trace.Finding{trace.Findingf(ReplayAssumes,
			"run %s: prefix caching is on and nothing says what requests share; replayed uncached (--shared-prefix-tokens)", run.ID)}
	}
	return func(_ string, r *sim.Request) {
			r.Group, r.GroupTokens = sharedGroup, min(n, r.PromptTokens)
		}, []trace.Finding{trace.Findingf(ReplayAssumes,
			"run %s: all requests are taken to share their first %d prompt tokens", run.ID, n)}
}

// identicalBatches replays the whole run with the recorded step times and the
// recorded pick-ups (by step where step times are missing) and returns the share
// of known recorded batches that the simulator's scheduler reproduces: same step
// id, same requests, same computed and new tokens. It separates a wrong scheduler
// from wrong step times. Nil when the run cannot be forced (f is nil); an error when
// its snapshots cannot be read.
func identicalBatches(f *workload.Forced, dep *deploy.Deployment, steps *rows.Steps, async bool) (*float64, error) {
	if f == nil {
		return nil, nil
	}
	f.Under(async)
	c := sim.DefaultConfig(dep, f.Timeline)
	c.Async = f.Async
	seen := &batchLog{ids: idSums(f.Requests)}
	if _, err := sim.Run(c, f.Requests, seen); err != nil {
		return nil, nil
	}
	known, same := 0, 0
	err := steps.Each(func(st *rows.Step, members []trace.Member) {
		if members == nil || st.Recorded < 0 {
			return
		}
		known++
		sum := uint64(0)
		for _, m := range members {
			sum += memberSum(stringSum(m.CoreID), m.Computed, m.Prompt, m.New)
		}
		if st.ID >= 1 && st.ID <= int64(len(seen.sums)) && seen.sums[st.ID-1] == sum {
			same++
		}
	})
	return result.Share(same, known), err
}

// batchLog keeps one number per simulated step: the sum of its members' hashes,
// which does not depend on their order and costs 8 bytes a step.
type batchLog struct {
	ids  []uint64
	sums []uint64
}

// Step adds the members that were scheduled.
func (l *batchLog) Step(v *sim.StepView) {
	sum := uint64(0)
	for _, m := range v.Members {
		sum += memberSum(l.ids[m.Request], m.Computed, m.Prompt, m.New)
	}
	for int64(len(l.sums)) < v.StepID {
		l.sums = append(l.sums, 0)
	}
	l.sums[v.StepID-1] = sum
}

// Event is not needed.
func (l *batchLog) Event(*sim.Event) {}

func idSums(reqs []sim.Request) []uint64 {
	out := make([]uint64, len(reqs))
	for i := range reqs {
		out[i] = stringSum(reqs[i].ID)
	}
	return out
}

// memberSum is 0 for a member that did nothing, so that it does not count.
func memberSum(id uint64, computed, prompt, scheduled int64) uint64 {
	if scheduled == 0 {
		return 0
	}
	h := id
	for _, v := range [...]int64{computed, prompt, scheduled} {
		h = (h ^ uint64(v)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// stringSum is FNV-1a.
func stringSum(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
