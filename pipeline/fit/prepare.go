// Package prepare turns one recording into the rows of a fit: batches, lag, targets and
// tables, under every basis asked for.
package fit

import (
	"errors"
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Load loads one run, rebuilds its batches, measures its lag and audits its
// targets: all that comes before rows.
func Load(src OptionsSource, o OptionsOptions) (*Run, *rows.Steps, *features.Space, error) {
	return loadSlice(src, o, nil)
}

// loadSlice is Load; a slice has lag and audit of the slices before it.
func loadSlice(src OptionsSource, o OptionsOptions, before *Run) (*Run, *rows.Steps, *features.Space, error) {
	run, err := src.Load()
	if err != nil {
		return nil, nil, nil, err
	}
	p := &Run{Src: src, Config: src.Deployment.Config(), Alpha: map[string]*rows.Table{},
		WallNs: latestWall(run), Lengths: lengthsOf(run)}
	if src.Judge != nil {
		p.judge(run, o)
	}
	rate := src.Deployment.Tracing.JourneySampleRate
	p.Covered = coveredBy(run, p.Spans, rate.OK && rate.V < 1)
	steps, err := rows.RebuildLean(run, &src.Deployment, o.Spec)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("run %s: %w", src.ID, err)
	}
	p.Quality = rows.StepQuality(steps.Quality)
	p.Findings = append(p.Findings, steps.Findings...)
	space, err := features.New(o.Spec, &src.Deployment)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("run %s: %w", src.ID, err)
	}
	if before != nil {
		p.Lag = before.Lag
		return p, steps, space, nil
	}
	if err := p.chooseLag(steps, space, o); err != nil {
		return nil, nil, nil, fmt.Errorf("run %s: lag: %w", src.ID, err)
	}
	p.Audit = rows.ScoreAudit(steps.Run.ID, steps.Audit(space))
	return p, steps, space, nil
}

// Make makes every table the fit needs of one run.
func Make(src OptionsSource, o OptionsOptions, gammas []float64) (*Run, error) {
	if src.Rows != "" {
		return restore(src)
	}
	return makeParts(src, o, gammas, func(q *Run) error { q.steps = nil; return nil })
}

// makePart makes the tables of a slice, or of a run that has none.
func makePart(src OptionsSource, o OptionsOptions, gammas []float64, before *Run) (*Run, error) {
	p, steps, space, err := loadSlice(src, o, before)
	if err != nil {
		return nil, err
	}
	if o.BetaOnly {
		p.Coverage = steps.Coverage()
	}
	if a := steps.Run.Aggregate; a != nil {
		p.Contexts = a.Contexts
	}
	if a := steps.Run.Aggregate; a != nil && a.Refused != nil && p.Reason == "" {
		p.Reason = strings.TrimPrefix(a.Refused.Msg, "run "+src.ID+": ") + "; " + a.Refused.Hint
		p.Findings = append(p.Findings, trace.Findingf(a.Refused.Code, "%s; %s", a.Refused.Msg, a.Refused.Hint))
	}
	if p.Reason != "" {
		return p, nil
	}
	if err := p.tables(steps, space, o, gammas); err != nil {
		return nil, fmt.Errorf("run %s: %w", src.ID, err)
	}
	p.kept, p.largest = p.Beta.Kept, largestReason(p.Beta)
	p.steps, p.space = withoutRequests(steps), space
	return p, nil
}

func largestReason(t *rows.Table) string {
	best := rows.CodeCount{Code: "no step summaries"}
	for _, c := range t.Dropped {
		if c.N > best.N {
			best = c
		}
	}
	return fmt.Sprintf("%s (%d of %d candidates)", best.Code, best.N, t.Read)
}

func latestWall(run *trace.Run) int64 {
	var latest int64
	for i := range run.Requests {
		latest = max(latest, run.Requests[i].EndWallNs.Or(0))
	}
	for i := range run.Steps {
		latest = max(latest, run.Steps[i].WallNs)
	}
	return latest
}

// judge leaves a saturated run out, and of other runs their saturated spans. A slice is a span.
func (p *Run) judge(run *trace.Run, o OptionsOptions) {
	if run.Slice != nil {
		p.judgeSlice(run, o)
		return
	}
	reason, spans := p.Src.Judge(run)
	p.Saturated = reason != ""
	if p.Saturated {
		p.Findings = append(p.Findings, trace.Findingf(rows.Saturated, "%s: %s", p.Src.ID, reason))
	}
	if o.KeepSaturated {
		return
	}
	if p.Saturated {
		p.Reason = "saturated: " + reason
	}
	p.Spans = spans
}

// tables makes the beta table and the alpha tables, thinned.
func (p *Run) tables(steps *rows.Steps, space *features.Space, o OptionsOptions, gammas []float64) error {
	var err error
	p.Beta, err = steps.Beta(space, rows.BetaOptions{Target: o.BetaTarget, Lag: p.Lag.Lag, Gammas: gammas, Split: o.Split, Saturated: p.Spans,
		Slim: o.Rows == nil})
	if err != nil {
		return err
	}
	p.Beta.Thin(p.Src.Stride)
	if o.BetaOnly {
		return nil
	}
	for _, target := range o.AlphaTargets {
		p.Alpha[target], err = steps.Alpha(space, rows.AlphaOptions{Target: target, Gammas: gammas, Split: o.Split, Saturated: p.Spans})
		if err != nil {
			return err
		}
		p.Alpha[target].Thin(p.Src.Stride)
	}
	p.skipOthers(space, o)
	if o.Spec.Base() != features.V10 {
		p.tables10(steps, o)
	}
	return nil
}

// tables10 makes the rows with 1.0 features for the comparison in
// leave-one-configuration-out.
func (p *Run) tables10(steps *rows.Steps, o OptionsOptions) {
	var err error
	if o.OneConfig {
		err = p.refused10(steps)
	} else {
		p.Frozen, err = p.frozenTable(steps, o)
	}
	p.Frozen.Thin(p.Src.Stride)
	if err != nil {
		p.Findings = append(p.Findings, trace.Findingf(ModelSkipped, "%s: %v", p.Src.ID, err))
	}
}

// errEnough ends a visit of slices after the first.
var errEnough = errors.New("enough")

// MeasureLag is the lag of one run with its evidence, as a fit would use it.
func MeasureLag(src OptionsSource, o OptionsOptions) (result.RunLag, []result.LagEvidence, error) {
	o, err := o.Resolve()
	if err != nil {
		return result.RunLag{}, nil, err
	}
	var p *Run
	err = parts(src, o, func(src OptionsSource) (err error) {
		if p, _, _, err = Load(src, o); err == nil {
			err = errEnough
		}
		return err
	})
	if !errors.Is(err, errEnough) {
		return result.RunLag{}, nil, err
	}
	return p.Lag, p.Evidence, nil
}
