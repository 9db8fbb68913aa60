package validate

import (
	"fmt"
	"math"
	"strings"

	"github.com/blis-train/blis-train/result"
)

// otherCache is how far the stated number of KV blocks may be from the recorded one.
const otherCache = 0.02

// diagnoseReplay says why a replay fails whose step times passed (spec#diagnosis):
// the engine had another KV cache than run.yaml says; the simulator's scheduler
// forms other batches; the machine drifted, and the drift-corrected replay is good;
// or it is unknown.
func (j *job) diagnoseReplay(v *result.Validation, t *judgedRun, scopeName string, failed []string) result.Diagnosis {
	d := result.Diagnosis{Scope: scopeName, Gates: failed, Cause: result.CauseUnknown, Figure: "ecdf"}
	var tried []string
	if t.blocks > 0 {
		if stated, _, err := t.dep.KVBlocks(); err == nil && math.Abs(float64(stated)/float64(t.blocks)-1) > otherCache {
			ratio := float64(stated) / float64(t.blocks)
			d.Cause, d.Evidence = result.CauseScheduler, &ratio
			d.Sentence = fmt.Sprintf("run.yaml gives the engine %d KV blocks, its steps recorded %d: correct vllm.kv_blocks_total_gpu",
				stated, t.blocks)
			return d
		}
		tried = append(tried, "the KV cache is the recorded one")
	}
	if t.identical != nil {
		if lag, share, ok := j.lagOfBatches(t); *t.identical < sameBatches && ok {
			d.Cause, d.Evidence = result.CauseLag, &share
			d.Sentence = fmt.Sprintf("steps are joined to the wrong batches: with a lag of %d in place of %d the simulator forms %.0f %% of the "+
				"recorded batches as they were, not %.0f %%", lag, t.lag.lag, 100*share, 100**t.identical)
			return d
		}
		if *t.identical < sameBatches {
			d.Cause, d.Evidence = result.CauseScheduler, t.identical
			d.Sentence = fmt.Sprintf("the simulator forms %.0f %% of the recorded batches as they were: compare max_num_seqs, "+
				"max_num_batched_tokens, chunked prefill and prefix caching of run.yaml with the server's", 100**t.identical)
			return d
		}
		tried = append(tried, fmt.Sprintf("%.0f %% of the batches are reproduced", 100**t.identical))
	}
	if !t.dep.IsComposed() {
		if run := replayOf(v, scopeName); run != nil && j.rules.Good(run.MetricsDrift) {
			swing := t.drift.Swing()
			d.Cause, d.Figure, d.Evidence = result.CauseMachineDrift, "drift", &swing
			d.Sentence = fmt.Sprintf("the machine changed its speed by a factor of %.2f while it was measured: "+
				"the drift-corrected replay passes", swing)
			return d
		}
		tried = append(tried, "the drift-corrected replay fails too")
	}
	if steps := diagnose(&scope{name: scopeName, runs: []*judgedRun{t}}, failed, nil); steps.Cause != result.CauseUnknown {
		steps.Sentence = "step times pass their gates, but " + steps.Sentence
		return steps
	}
	d.Sentence = "step times pass and no cause is found; " + strings.Join(tried, "; ")
	return d
}

// replayOf is the entry that a replay gate's scope names.
func replayOf(v *result.Validation, scope string) *result.ValidationRun {
	for i := range v.Runs {
		if scopeOf(&v.Runs[i]) == scope {
			return &v.Runs[i]
		}
	}
	return nil
}
