package validate

import (
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/result"
)

// clientConfigs are the entries of configurations, and of test runs, of which nobody
// recorded steps: coefficients learned from requests have a verdict there by their
// replays alone (spec#replay-of-requests).
func (j *job) clientConfigs(fit *result.Fit, known []result.ConfigErrors) []result.ConfigErrors {
	if fit == nil || fit.Requests == nil {
		return nil
	}
	var out []result.ConfigErrors
	label := configLabels(j.all)
	for _, t := range j.all {
		if t.beta != nil || t.sat.Run.Saturated {
			continue
		}
		c := result.ConfigErrors{Scope: t.id, Config: t.dep.Config(), Runs: []string{t.id}, Seen: t.seen, TestRun: !t.training}
		if t.training {
			c.Scope, c.Seen = label(c.Config), true
		}
		at := func(o result.ConfigErrors) bool { return o.Scope == c.Scope && o.TestRun == c.TestRun }
		if i := slices.IndexFunc(out, at); i >= 0 {
			out[i].Runs = append(out[i].Runs, t.id)
		} else if !slices.ContainsFunc(known, at) {
			out = append(out, c)
		}
	}
	return out
}

// clientRun is the run without steps that the scope of a replay gate names; nil: none.
func (j *job) clientRun(scope string) *judgedRun {
	for _, t := range j.all {
		if t.beta == nil && t.id == runOfScope(scope) {
			return t
		}
	}
	return nil
}

// mostOfError is the share of a replay's error that a regime must hold to be named.
const mostOfError = 0.5

// diagnoseRequests says what requests have in common whose replay fails where no steps
// were recorded (spec#diagnosis).
func (t *judgedRun) diagnoseRequests(scope string, failed []string) result.Diagnosis {
	d := result.Diagnosis{Scope: scope, Gates: failed, Cause: result.CauseUnknown, Figure: "ecdf"}
	s := t.starved[scope]
	if s.ErrorShare < mostOfError || s.SimulatedMs < s.RecordedMs {
		d.Sentence = fmt.Sprintf("no steps were recorded, so that no cause can be told; too few KV blocks in run.yaml are none: %d of %d "+
			"requests waited for some in the replay and hold %.0f %% of the error of TTFT", s.Requests, s.Of, 100*s.ErrorShare)
		return d
	}
	blocks, _, _ := t.dep.KVBlocks()
	d.Cause, d.Regime, d.Evidence = result.CauseScheduler, "requests that waited for KV blocks", &s.ErrorShare
	d.Sentence = fmt.Sprintf("%d of %d requests waited for KV blocks in the replay and hold %.0f %% of the error of TTFT: %.0f ms in the "+
		"median there, %.0f ms as measured; run.yaml gives the engine %d KV blocks: compare vllm.kv_blocks_total_gpu with "+
		"the server's start-up log",
		s.Requests, s.Of, 100*s.ErrorShare, s.SimulatedMs, s.RecordedMs, blocks)
	return d
}
