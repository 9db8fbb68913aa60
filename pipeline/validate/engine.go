package validate

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// engine is how a run is replayed: the coefficients' step times (or the latency
// model of the options), delays from the artifact or the options.
func (j *job) engine(t *judgedRun, run *trace.Run, dep *deploy.Deployment) (engine, []trace.Finding, error) {
	e := engine{Async: t.lag.lag > 0, Gamma: j.set.Gamma, Renewal: features.RenewalOf(j.set),
		Seed: j.o.Seed, Drift: t.drift, Done: j.done}
	if t.beta == nil {
		e.Async = dep.Engine.IsAsync()
	}
	var err error
	if j.o.Latency != nil {
		e.Latency, err = j.o.Latency(dep)
	} else {
		e.Latency, err = sim.NewPhysics(j.set, dep)
	}
	if err != nil {
		return e, nil, err
	}
	findings, err := j.delays(&e, run, dep)
	if err != nil {
		return e, nil, err
	}
	if j.o.Noise {
		e.Noise = sim.SetNoise(j.set)
	}
	for _, f := range dep.AssumedInSimulation() {
		findings = append(findings, trace.Findingf(f.Code, "run %s: %s", run.ID, f.Message))
	}
	return e, findings, nil
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
