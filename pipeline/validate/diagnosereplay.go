package validate

// This file names why a replay failed although its step times passed.

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim/workload"
)

const (
	reproducedShare = 0.90 // of the batches; the scheduler differs where fewer are reproduced
	otherCacheFrac  = 0.02 // the KV cache is another one where the stated number of blocks differs by more
	starvedShare    = 0.5  // of a replay's error, from which on requests that waited for KV blocks are named
)

// diagnoseReplay returns why a replay failed whose step times passed (spec#diagnosis): the engine
// had another KV cache than the one in run.yaml; the simulator's scheduler forms other batches; the
// machine drifted, and the drift-corrected replay passes; or it is unknown.
func (j *job) diagnoseReplay(v *result.Validation, t *judgedRun, scopeName string, failed []string) result.Diagnosis {
	diagnosis := result.Diagnosis{Scope: scopeName, Gates: failed, Cause: result.CauseUnknown, Figure: "ecdf"}
	var tried []string
	// A KV cache of another size than the recorded one.
	if t.Blocks > 0 {
		stated, _, err := t.Deployment.KVBlocks()
		ratio := float64(stated) / float64(t.Blocks)
		if err == nil && math.Abs(ratio-1) > otherCacheFrac {
			diagnosis.Cause = result.CauseScheduler
			diagnosis.Evidence = &ratio
			diagnosis.Sentence = fmt.Sprintf("run.yaml gives the engine %d KV blocks, its steps recorded %d: correct vllm.kv_blocks_total_gpu",
				stated, t.Blocks)
			return diagnosis
		}
		tried = append(tried, "the KV cache has the recorded size")
	}
	// Other batches than the recorded ones.
	if t.Identical != nil {
		if *t.Identical < reproducedShare {
			j.blameScheduling(&diagnosis, t)
			return diagnosis
		}
		tried = append(tried, fmt.Sprintf("%.0f %% of the simulated batches are the recorded ones", 100**t.Identical))
	}
	// A machine whose speed changed.
	if !t.Deployment.IsComposed() {
		if run := replayNamed(v, scopeName); run != nil && j.rules.ReplayPasses(run.MetricsDrift) {
			swing := t.drift.swing()
			diagnosis.Cause = result.CauseMachineDrift
			diagnosis.Figure = "drift"
			diagnosis.Evidence = &swing
			diagnosis.Sentence = fmt.Sprintf("the machine changed its speed by a factor of %.2f while it was measured: "+
				"the drift-corrected replay passes", swing)
			return diagnosis
		}
		tried = append(tried, "the drift-corrected replay fails too")
	}
	// A bias of step times that is too small for the gates on steps, but adds up over a request.
	steps := diagnoseSteps(&scope{name: scopeName, runs: []*judgedRun{t}}, failed, nil)
	if steps.Cause != result.CauseUnknown {
		steps.Sentence = "step times pass their gates, but " + steps.Sentence
		return steps
	}
	diagnosis.Sentence = "step times pass their gates, and no single change explains the error of the replay: " + strings.Join(tried, "; ")
	return diagnosis
}

// blameScheduling names the cause of batches that the simulator does not reproduce: a wrong lag where the
// other way of scheduling, with or without async scheduling, reproduces them, else the scheduler's settings.
func (j *job) blameScheduling(d *result.Diagnosis, t *judgedRun) {
	if lag, share, ok := j.lagOfBatches(t); ok {
		d.Cause = result.CauseLag
		d.Evidence = &share
		d.Sentence = fmt.Sprintf("steps are joined to the wrong batches: with a lag of %d in place of %d the simulator forms %.0f %% of the "+
			"recorded batches as they were, not %.0f %%", lag, t.Lag, 100*share, 100**t.Identical)
		return
	}
	d.Cause = result.CauseScheduler
	d.Evidence = t.Identical
	d.Sentence = fmt.Sprintf("the simulator forms %.0f %% of the recorded batches as they were: compare max_num_seqs, "+
		"max_num_batched_tokens, scheduling_policy, chunked prefill and prefix caching of run.yaml with the server's", 100**t.Identical)
}

// lagOfBatches returns the lag of the other way of scheduling and the share of batches it
// reproduces. Not ok: it does not reproduce them either.
func (j *job) lagOfBatches(t *judgedRun) (lag int, share float64, ok bool) {
	steps, forced, err := j.rebuild(t)
	if err != nil {
		return 0, 0, false
	}
	async := !t.IsAsync
	same, err := identicalBatches(forced, t.Deployment, steps, async)
	if err != nil || same == nil || *same < reproducedShare {
		return 0, 0, false
	}
	if async { // a step executes while the next one is scheduled
		lag = 1
	}
	return lag, *same, true
}

// rebuild returns the run, loaded again, with its batches.
func (j *job) rebuild(t *judgedRun) (*rows.Steps, *workload.Forced, error) {
	run, dep, err := j.sources[slices.Index(j.runs, t)].Load()
	if err != nil {
		return nil, nil, err
	}
	forced, _ := workload.ForceLater(run, dep) // nil for a run that cannot be forced
	steps, err := rows.Rebuild(run, dep, t.set.SpecVersion)
	return steps, forced, err
}

// replayNamed returns the entry that a replay gate's scope names; nil: none.
func replayNamed(v *result.Validation, scopeName string) *result.ValidationRun {
	for i := range v.Runs {
		if gate.ReplayScope(&v.Runs[i]) == scopeName {
			return &v.Runs[i]
		}
	}
	return nil
}

// runWithoutSteps returns the run without recorded steps that the scope of a replay gate names;
// nil: none.
func (j *job) runWithoutSteps(scopeName string) *judgedRun {
	for _, t := range j.runs {
		if t.beta == nil && t.id == gate.RunOf(scopeName) {
			return t
		}
	}
	return nil
}

// diagnoseRequests returns what the requests of a failed replay have in common, for a run without
// recorded steps (spec#diagnosis).
func (t *judgedRun) diagnoseRequests(scopeName string, failed []string) result.Diagnosis {
	diagnosis := result.Diagnosis{Scope: scopeName, Gates: failed, Cause: result.CauseUnknown, Figure: "ecdf"}
	starved := t.starved[scopeName]
	if starved.ErrorShare < starvedShare || starved.SimulatedMs < starved.RecordedMs {
		diagnosis.Sentence = fmt.Sprintf("without recorded steps no cause can be told apart; too few KV blocks in run.yaml are none: %d of %d "+
			"requests waited for some in the replay and hold %.0f %% of the error of TTFT", starved.Requests, starved.Of, 100*starved.ErrorShare)
		return diagnosis
	}
	blocks, _, _ := t.Deployment.KVBlocks()
	diagnosis.Cause = result.CauseScheduler
	diagnosis.Regime = "requests that waited for KV blocks"
	diagnosis.Evidence = &starved.ErrorShare
	diagnosis.Sentence = fmt.Sprintf("%d of %d requests waited for KV blocks in the replay and hold %.0f %% of the error of TTFT: %.0f ms in the "+
		"median there, %.0f ms as measured; run.yaml gives the engine %d KV blocks: compare vllm.kv_blocks_total_gpu with "+
		"the server's start-up log",
		starved.Requests, starved.Of, 100*starved.ErrorShare, starved.SimulatedMs, starved.RecordedMs, blocks)
	return diagnosis
}
