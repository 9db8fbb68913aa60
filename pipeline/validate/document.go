package validate

// This file assembles validation.json from the results of all runs.

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// document returns validation.json, with the runs in the order of the sources.
func (j *job) document(fit *result.Fit) *result.Validation {
	v, groups := j.decided(fit)
	v.Diagnoses = j.withStreams(v, j.diagnoses(v, groups))
	for _, t := range j.runs {
		v.Warnings = append(v.Warnings, namedFindings(t.id, t.Identities)...)
	}
	v.Warnings = append(v.Warnings, changedTerms(j.set, fit)...)
	if j.refit {
		v.Warnings = append(v.Warnings,
			trace.Findingf(notHeldOut, "the coefficients were refitted on all rows: what is called hold-out here is in-sample"))
	}
	return v
}

// decided returns the document with its errors and gates and without explanations of those that failed, and the
// configurations that it judges.
func (j *job) decided(fit *result.Fit) (*result.Validation, []*scope) {
	v := &result.Validation{
		Options: result.ValidationOptions{
			Split:      j.o.Split,
			StepsOnly:  j.o.StepsOnly && j.o.Unreplayed == "",
			Seed:       j.o.Seed,
			OverheadUs: j.o.OverheadUs,
			EgressUs:   j.o.EgressUs,
			Latency:    j.o.Latency,
			Thresholds: j.rules.Thresholds(),
		},
		Configs:   []result.ConfigErrors{},
		Diagnoses: []result.Diagnosis{},
		Warnings:  append([]trace.Finding{}, j.warnings...),
	}
	// The order below matters: gates are decided on the errors.
	groups := groupRuns(j.runs, configLabels(j.runs))
	scored := newScores(groups, j.set, j.o.Workers)
	for _, g := range groups {
		v.Configs = append(v.Configs, scored.config(g))
	}
	v.Configs = append(v.Configs, j.configsWithoutSteps(fit, v.Configs)...)
	v.Steps = scored.steps.Errors()
	j.fillStepErrors(groups, scored)
	for i := range j.entries {
		j.entries[i][0].Findings = append(j.entries[i][0].Findings, j.runs[i].Findings...)
		j.entries[i][0].Identities = j.runs[i].Identities
		v.Runs = append(v.Runs, j.entries[i]...)
	}
	if drawn, kept := v.LimitFigures(); drawn > kept {
		v.Warnings = append(v.Warnings, trace.Findingf(figuresLeftOut, "%d of %d comparisons have their curves here: those that gate "+
			"first, then the largest plain KS", kept, drawn))
	}
	var terms []string
	for _, c := range j.set.Beta {
		terms = append(terms, c.Name)
	}
	v.Figures = scored.steps.Figures(terms)
	j.rules.Decide(v, fit, j.set, j.o.For)
	return v, groups
}

// fillStepErrors puts the teacher-forced errors of each run on its first entry.
func (j *job) fillStepErrors(groups []*scope, scored *scores) {
	for i, t := range j.runs {
		grouped := slices.ContainsFunc(groups, func(s *scope) bool { return slices.Contains(s.runs, t) })
		if !grouped {
			continue
		}
		first := &j.entries[i][0]
		first.Steps = scored.steps.Errors(t.sample)
		first.StepCells = append(scored.steps.Cells(t.sample, false), scored.steps.StressCells(t.sample)...)
		first.Alpha = scored.alphaErrors([]*judgedRun{t})
	}
}

// changedTerms warns of terms whose value is not that of the fit's report: the set was edited, or another
// fit made it.
func changedTerms(set *coeff.Set, fit *result.Fit) []trace.Finding {
	if fit == nil {
		return nil
	}
	var out []trace.Finding
	for i, c := range fit.Beta.Coefficients {
		if i >= len(set.Beta) || set.Beta[i].Name != c.Name || set.Beta[i].Value == c.Value {
			continue
		}
		out = append(out, trace.Findingf(notTheFit, "%s: got %.6g %s, want %.6g as in the fit's report", c.Name, set.Beta[i].Value,
			c.Unit, c.Value))
	}
	return out
}

// configsWithoutSteps returns the entries of configurations and test runs whose steps were not
// recorded. Coefficients fitted to requests are validated there by their replays alone
// (spec#replay-of-requests). known are the entries with steps.
func (j *job) configsWithoutSteps(fit *result.Fit, known []result.ConfigErrors) []result.ConfigErrors {
	if fit == nil || fit.Requests == nil {
		return nil
	}
	var out []result.ConfigErrors
	label := configLabels(j.runs)
	for _, t := range j.runs {
		if t.beta != nil || t.Saturation.Run.Saturated { // it has steps, or is excluded from the gates
			continue
		}
		c := result.ConfigErrors{
			Scope:   t.id,
			Config:  t.Deployment.Config(),
			Runs:    []string{t.id},
			Seen:    t.seen,
			TestRun: !t.training,
		}
		if t.training {
			c.Scope = label(c.Config)
			c.Seen = true
		}
		isSame := func(o result.ConfigErrors) bool { return o.Scope == c.Scope && o.TestRun == c.TestRun }
		if i := slices.IndexFunc(out, isSame); i >= 0 {
			out[i].Runs = append(out[i].Runs, t.id)
		} else if !slices.ContainsFunc(known, isSame) {
			out = append(out, c)
		}
	}
	return out
}

// entryWithoutReplay returns the entry of a run that is not replayed.
func (t *judgedRun) entryWithoutReplay() result.ValidationRun {
	kind := result.SplitTestRun
	if t.training {
		kind = result.SplitHoldout
	}
	v := result.ValidationRun{
		Split:    result.Split{Kind: kind},
		Excluded: map[string]int{},
		Findings: []trace.Finding{},
	}
	t.describe(&v, &deploy.Phase{Load: deploy.LoadOpen})
	return v
}

// describe fills in the fields of an entry that describe the run and the phase, replayed or not.
func (t *judgedRun) describe(v *result.ValidationRun, p *deploy.Phase) {
	v.ID = t.id
	v.Config = t.Deployment.Config()
	v.Phase = p.Name
	v.Load = cmp.Or(v.Load, p.Load) // as it was replayed, before what run.yaml states
	v.Source = t.Source
	v.Informs = t.informs
	if v.Load != deploy.LoadClosed {
		v.Informs = cmp.Or(t.informs, t.capped)
	}
	if rate := t.Deployment.Tracing.JourneySampleRate; rate.OK {
		v.JourneySampleRate = &rate.V
	}
	saturation := t.Saturation.Phase(p.Name)
	v.Saturated = saturation.Saturated
	v.SaturationHits = saturation.Hits()
	v.SaturationChecks = map[string]*float64{}
	for _, c := range saturation.Checks {
		v.SaturationChecks[c.Name] = c.Value
	}
	v.Drift = append([]result.DriftPoint{}, t.drift.Points...)
	if v.Replay != nil && t.Quality.Recorded > 0 {
		v.Replay.KnownBatchesShare = t.Quality.KnownShare
		v.Replay.IdenticalBatchesShare = t.Identical
	}
	if v.Findings == nil {
		v.Findings = []trace.Finding{}
	}
}
