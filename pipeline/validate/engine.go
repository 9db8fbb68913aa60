package validate

import (
	"hash/maphash"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// engine is how a run is replayed: the coefficients' step times (or the latency
// model of the options), delays from the artifact or the options.
func (j *job) engine(t *judgedRun, run *trace.Run, dep *deploy.Deployment) (engine, []trace.Finding, error) {
	e := engine{Config: sim.DefaultConfig(dep, nil), Drift: t.drift, overheadUs: j.o.OverheadUs, egressUs: j.o.EgressUs}
	e.Seed, e.Done = j.o.Seed, j.done
	if t.beta != nil {
		e.Async = t.Lag > 0
	}
	if j.set.Gamma > 0 {
		e.GammaEMA = j.set.Gamma
	}
	findings := j.idleDelays(&e, run)
	if err := j.models(&e, dep); err != nil {
		return e, nil, err
	}
	if j.o.Noise == "residual" {
		e.residuals = sim.SetNoise(j.set)
	}
	for _, f := range dep.AssumedInSimulation() {
		findings = append(findings, trace.Findingf(f.Code, "run %s: %s", run.ID, f.Message))
	}
	return e, findings, nil
}

// idleDelays takes the delays of requests that met an idle server, where asked for.
func (j *job) idleDelays(e *engine, run *trace.Run) []trace.Finding {
	if !j.o.IdleDelays {
		return nil
	}
	if idle, ok := measureIdle(run); ok {
		e.overheadUs, e.egressUs = &idle.OverheadUs, &idle.EgressUs
		return nil
	}
	if run.Aggregate != nil && j.set.AlphaModel(coeff.Overhead) == nil {
		e.overheadUs = new(float64) // nothing of the run tells it, as the finding says
	}
	return []trace.Finding{trace.Findingf(ReplayAssumes, "run %s: no request met an idle server", run.ID)}
}

// models makes the step times and the delays outside the engine: a constant, or the
// artifact's alphas. They have scratch space of their own.
func (j *job) models(e *engine, dep *deploy.Deployment) (err error) {
	if j.o.Latency == "roofline" {
		e.Latency, err = sim.NewRoofline(dep)
	} else {
		e.Latency, err = sim.NewPhysics(j.set, dep)
	}
	if err != nil {
		return err
	}
	if e.overheadUs != nil {
		e.Overhead = sim.Const(*e.overheadUs)
	} else if e.Overhead, err = sim.NewAlphaDelay(j.set, coeff.Overhead, dep); err != nil {
		return trace.Errorf(NoReplay, "replay: %v", err).WithHint("give --overhead-us")
	}
	if e.egressUs != nil {
		e.Egress = sim.Const(*e.egressUs)
	} else if j.set.AlphaModel(coeff.Egress) != nil {
		e.Egress, err = sim.NewAlphaDelay(j.set, coeff.Egress, dep)
	}
	return err
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
	seen := &batchLog{requests: f.Requests}
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
			sum += memberSum(m.CoreID, m.Computed, m.Prompt, m.New)
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
	requests []sim.Request
	sums     []uint64
}

// Step adds the members that were scheduled.
func (l *batchLog) Step(v *sim.StepView) {
	sum := uint64(0)
	for _, m := range v.Members {
		sum += memberSum(l.requests[m.Request].ID, m.Computed, m.Prompt, m.New)
	}
	for int64(len(l.sums)) < v.StepID {
		l.sums = append(l.sums, 0)
	}
	l.sums[v.StepID-1] = sum
}

// Event is not needed.
func (l *batchLog) Event(*sim.Event) {}

var memberSeed = maphash.MakeSeed()

// memberSum is 0 for a member that did nothing, so that it does not count.
func memberSum(id string, computed, prompt, scheduled int64) uint64 {
	if scheduled == 0 {
		return 0
	}
	return maphash.Comparable(memberSeed, struct {
		id     string
		counts [3]int64
	}{id, [3]int64{computed, prompt, scheduled}})
}
