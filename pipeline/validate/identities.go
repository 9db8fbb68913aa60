package validate

// This file runs the identities of package identity on a recording and turns their violations into
// findings and diagnoses. An identity is an equation between two kinds of records of a run that holds
// if both are complete and correct, such as tokens counted by the client and by the server.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/pipeline/validate/identity"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// compareStreams returns what must hold between the streams (kinds of records) of a run, and
// whether it does (spec#identities). steps is nil for a run whose batches are not rebuilt. A part
// of a longer run is not checked, because the streams of a part do not end together.
func compareStreams(run *trace.Run, dep *deploy.Deployment, steps *rows.Steps, extracted []trace.Finding,
	counted []result.ServerCount) ([]result.Identity, error) {
	if run.Slice != nil {
		return nil, nil
	}
	return identity.Check(identity.Evidence{Run: run, Deployment: dep, Steps: steps, Findings: extracted, Counted: counted})
}

// identityFindings returns a finding for each violated identity. Those that repeat findings of the
// extraction have none.
func identityFindings(runID string, identities []result.Identity) []trace.Finding {
	var out []trace.Finding
	for i := range identities {
		id := &identities[i]
		if id.Status != result.IdentityViolated || identity.RepeatsExtraction(id.Name) {
			continue
		}
		code := StreamsDisagree
		if id.Kind == identity.KindLoss {
			code = incomplete
		}
		out = append(out, trace.Findingf(code, "run %s: %s: %s", runID, id.Name, id.Sentence))
	}
	return out
}

// namedFindings returns the findings of the violated identities of a run that decide no verdict. A user of the coefficients
// has to see them beside a pass: what they doubt, such as the device that run.yaml describes, is not judged.
func namedFindings(runID string, identities []result.Identity) []trace.Finding {
	named := slices.DeleteFunc(slices.Clone(identities), func(id result.Identity) bool { return id.Effect != result.IdentityNamed })
	return identityFindings(runID, named)
}

// contradiction returns why a run contradicts itself for a purpose, in one sentence; "" if it does
// not.
func contradiction(runID string, identities []result.Identity, purpose string) string {
	violated := result.Violated(identities, purpose, result.IdentityFails)
	if len(violated) == 0 {
		return ""
	}
	return fmt.Sprintf("run %s contradicts itself: %s", runID, violated[0].Sentence)
}

// streamDiagnoses returns explanations of the gates that failed because streams contradict each
// other.
func (j *job) streamDiagnoses(v *result.Validation) []result.Diagnosis {
	var out []result.Diagnosis
	_, failed := gate.FailedByScope(v.Gates)
	for i := range v.Configs {
		c := &v.Configs[i]
		var gates []string
		for _, name := range failed[c.Scope] {
			if gate.JudgesStreams(name) {
				gates = append(gates, name)
			}
		}
		if len(gates) == 0 {
			continue
		}
		var sentences []string
		for _, id := range gate.IdentitiesOf(c, v.Runs) {
			isCause := id.Status == result.IdentityViolated && id.Effect == result.IdentityFails
			if isCause && !slices.Contains(sentences, id.Sentence) {
				sentences = append(sentences, id.Sentence)
			}
		}
		out = append(out, result.Diagnosis{
			Scope:    c.Scope,
			Gates:    gates,
			Cause:    result.CauseStreams,
			Sentence: strings.Join(sentences, "; "),
		})
	}
	return out
}

// blameDoubtfulStreams names, for a failed replay without another cause, the comparisons between the
// streams of its run that leave the verdict open by themselves: one of the streams is probably wrong,
// such as times in another unit.
func blameDoubtfulStreams(v *result.Validation, diagnoses []result.Diagnosis) {
	for i := range diagnoses {
		d := &diagnoses[i]
		if d.Cause != result.CauseUnknown {
			continue
		}
		for k := range v.Runs {
			if v.Runs[k].ID != gate.RunOf(d.Scope) {
				continue
			}
			var sentences []string
			for _, id := range result.Violated(v.Runs[k].Identities, coeff.PurposeReplay, result.IdentityUndecided) {
				if id.Kind != identity.KindLoss {
					sentences = append(sentences, id.Sentence)
				}
			}
			if len(sentences) > 0 {
				d.Cause = result.CauseStreams
				d.Sentence = strings.Join(sentences, "; ")
				break
			}
		}
	}
}

// withStreams returns the diagnoses with those of contradictions first. If one explains a failure,
// a diagnosis that found no cause is dropped: the contradiction is the cause.
func (j *job) withStreams(v *result.Validation, others []result.Diagnosis) []result.Diagnosis {
	blameDoubtfulStreams(v, others)
	streams := j.streamDiagnoses(v)
	if len(streams) == 0 {
		return others
	}
	explained := map[string]bool{gate.ScopeAll: true} // scopes and runs whose failure a contradiction explains
	for _, d := range streams {
		explained[d.Scope] = true
		for i := range v.Configs {
			for _, run := range v.Configs[i].Runs {
				if v.Configs[i].Scope == d.Scope {
					explained[run] = true
				}
			}
		}
	}
	out := streams
	for _, d := range others {
		if d.Cause != result.CauseUnknown || !explained[d.Scope] && !explained[gate.RunOf(d.Scope)] {
			out = append(out, d)
		}
	}
	return out
}
