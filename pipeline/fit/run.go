package fit

import (
	"fmt"
	"math"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Run is one run as rows, its recording released.
type Run struct {
	runFacts
	Src      Source
	Contexts string      // where those of a logged pass come from; empty for steps of the fork
	Spans    []rows.Span // saturated parts of a run that is not
	Beta     *rows.Table
	Alpha    map[string]*rows.Table // per alpha target
	Frozen   *rows.Table            // 1.0 duration-free comparison: 1.0 features on the cadence
	Covered  *result.Covered
	Coverage rows.Coverage // of the steps; with BetaOnly

	kept    int         // beta rows
	largest string      // reason for which there are none
	steps   *rows.Steps // for rows under other bases; rebuilt by Again
	space   *features.Space
}

// Load loads one run, rebuilds its batches, measures its lag and audits its
// targets: all that comes before rows.
func Load(src Source, o Options) (*Run, *rows.Steps, *features.Space, error) {
	return loadSlice(src, o, nil)
}

// loadSlice is Load; a slice has lag and audit of the slices before it.
func loadSlice(src Source, o Options, before *Run) (*Run, *rows.Steps, *features.Space, error) {
	run, err := src.Load()
	if err != nil {
		return nil, nil, nil, err
	}
	p := &Run{Src: src, Alpha: map[string]*rows.Table{}, runFacts: runFacts{Config: src.Deployment.Config(), Deployment: src.Deployment,
		WallNs: LatestWall(run), Lengths: lengthsOf(run)}}
	if src.Judge != nil {
		p.judge(run, o)
	}
	rate := src.Deployment.Tracing.JourneySampleRate
	p.Covered = coveredBy(run, p.Spans, rate.OK && rate.V < 1)
	steps, err := rows.Rebuild(run, &src.Deployment, o.Spec)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("run %s: %w", src.ID, err)
	}
	p.Quality = steps.Quality.StepQuality
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
	p.Audit = steps.Audit(space)
	return p, steps, space, nil
}

// Make makes every table the fit needs of one run.
func Make(src Source, o Options, gammas []float64) (*Run, error) {
	if src.Rows != "" {
		return restore(src)
	}
	return makeParts(src, o, gammas, func(q *Run) error { q.steps = nil; return nil })
}

// makePart makes the tables of a slice, or of a run that has none.
func makePart(src Source, o Options, gammas []float64, before *Run) (*Run, error) {
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
	if p.Reason != "" && (!p.Saturated || steps.Run.Aggregate != nil || !steps.Preempts()) {
		return p, nil
	}
	if err := p.tables(steps, space, o, gammas); err != nil {
		return nil, fmt.Errorf("run %s: %w", src.ID, err)
	}
	code, n := p.Beta.Largest("no step summaries")
	p.kept, p.largest = p.Beta.Kept, fmt.Sprintf("%s (%d of %d candidates)", code, n, p.Beta.Read)
	p.steps, p.space = withoutRequests(steps), space
	return p, nil
}

// makeParts makes the tables of a run part by part. done is called with each part before it
// joins those before it, and may take its tables away.
func makeParts(src Source, o Options, gammas []float64, done func(*Run) error) (p *Run, err error) {
	err = parts(src, o, func(src Source) error {
		q, err := makePart(src, o, gammas, p)
		if err == nil {
			err = done(q)
		}
		if err != nil {
			return err
		}
		if p != nil {
			p.join(q)
		} else {
			p = q
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.Src = src
	if p.Reason == "" && p.kept == 0 {
		p.Reason = "no beta rows: " + p.largest
		p.Findings = append(p.Findings, trace.Findingf(CodeNoRows, "%s: %s", src.ID, p.Reason))
	}
	return p, nil
}

// join adds the next slice of the run.
func (p *Run) join(q *Run) {
	p.Saturated = p.Saturated && q.Saturated
	p.Spans = append(p.Spans, q.Spans...)
	p.Findings = append(p.Findings, q.Findings...)
	p.Quality.Join(q.Quality)
	p.Covered = Cover(p.Covered, q.Covered)
	p.Lengths.add(q.Lengths)
	p.WallNs = max(p.WallNs, q.WallNs)
	p.kept += q.kept
	p.Beta, p.Frozen = joinTables(p.Beta, q.Beta), joinTables(p.Frozen, q.Frozen)
	for target, t := range q.Alpha {
		p.Alpha[target] = joinTables(p.Alpha[target], t)
	}
}

// joinTables is the rows of a run and its next slice; either may be nil.
func joinTables(t, next *rows.Table) *rows.Table {
	if t == nil || next == nil {
		return orOther(t, next)
	}
	t.Join(next)
	return t
}

func orOther[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// tables makes the beta table and the alpha tables, thinned.
func (p *Run) tables(steps *rows.Steps, space *features.Space, o Options, gammas []float64) error {
	var err error
	p.Beta, err = steps.Beta(space, rows.Options{Target: o.BetaTarget, Lag: p.Lag.Lag, Gammas: gammas, Split: o.Split, Saturated: p.Spans,
		Preempting: true, Stride: p.Src.Stride, Slim: o.Rows == nil})
	if err != nil {
		return err
	}
	if o.BetaOnly {
		return nil
	}
	for _, target := range o.AlphaTargets {
		p.Alpha[target], err = steps.Alpha(space, rows.Options{Target: target, Gammas: gammas, Split: o.Split, Saturated: p.Spans,
			Stride: p.Src.Stride})
		if err != nil {
			return err
		}
	}
	// A finding for every basis that the deployment has no form of.
	for _, name := range o.Models {
		if _, err := Vectorizer(name, space); err != nil {
			p.Findings = append(p.Findings, trace.Findingf(ModelSkipped, "%s: %s: %v", p.Src.ID, name, err))
		}
	}
	if o.Spec.Base() != features.V10 {
		p.tables10(steps, o)
	}
	return nil
}

// tables10 makes the rows with 1.0 features for the comparison in
// leave-one-configuration-out.
func (p *Run) tables10(steps *rows.Steps, o Options) {
	var err error
	if o.OneConfig {
		err = p.refused10(steps)
	} else {
		p.Frozen, err = p.frozenTable(steps, o)
	}
	if err != nil {
		p.Findings = append(p.Findings, trace.Findingf(ModelSkipped, "%s: %v", p.Src.ID, err))
	}
}

// refused10 is the reason why the run could have no rows with 1.0 features. They are not
// made for one configuration, which has no other to be compared with.
func (p *Run) refused10(steps *rows.Steps) error {
	if err := steps.Refused10(); err != nil {
		return err
	}
	_, err := features.New(features.V10, &p.Src.Deployment)
	return err
}

// frozenTable is the run's cadence rows with 1.0 features, an error where 1.0 has
// no input for them.
func (p *Run) frozenTable(as *rows.Steps, o Options) (*rows.Table, error) {
	steps, err := as.As(features.V10)
	if err != nil {
		return nil, err
	}
	space, err := features.New(features.V10, &p.Src.Deployment)
	if err != nil {
		return nil, err
	}
	return steps.Beta(space, rows.Options{Target: coeff.Cadence, Lag: p.Lag.Lag, Split: o.Split, Saturated: p.Spans, Stride: p.Src.Stride,
		Slim: true})
}

// judge leaves a saturated run out, and of other runs their saturated spans. A slice is a span.
func (p *Run) judge(run *trace.Run, o Options) {
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
		spans = []rows.Span{{StartNs: math.MinInt64, EndNs: math.MaxInt64}}
	}
	p.Spans = spans
}

// judgeSlice drops the rows of a saturated slice, or of its saturated spans.
func (p *Run) judgeSlice(run *trace.Run, o Options) {
	asked, of := *run, run.Slice
	asked.Requests = nil
	for i := range run.Requests {
		if run.AsksFor(&run.Requests[i]) {
			asked.Requests = append(asked.Requests, run.Requests[i])
		}
	}
	reason, spans := p.Src.Judge(&asked)
	if p.Saturated = reason != ""; p.Saturated {
		spans = []rows.Span{{StartNs: of.FromNs, EndNs: of.ToNs}}
		p.Findings = append(p.Findings, trace.Findingf(rows.Saturated, "%s: from %s to %s s after its first step: %s", p.Src.ID,
			sinceStart(of, of.FromNs), sinceStart(of, of.ToNs), reason))
	}
	for _, s := range spans {
		if s = (rows.Span{StartNs: max(s.StartNs, of.FromNs), EndNs: min(s.EndNs, of.ToNs)}); s.StartNs < s.EndNs && !o.KeepSaturated {
			p.Spans = append(p.Spans, s)
		}
	}
}

// sinceStart is when a border of a slice lies, in seconds since the first step of the run.
func sinceStart(of *trace.Slice, ns int64) string {
	return fmt.Sprintf("%.0f", float64(min(max(ns, of.FirstNs), of.LastNs)-of.FirstNs)/1e9)
}

// Again reads the recording and rebuilds its batches once more, for rows under other
// bases. Of stored rows there is nothing to do, and slices are read for each basis.
func (p *Run) Again(o Options) error {
	if p.Src.Rows != "" || p.Src.Slices != nil {
		return nil
	}
	run, err := p.Src.Load()
	if err != nil {
		return err
	}
	steps, err := rows.Rebuild(run, &p.Src.Deployment, o.Spec)
	if err != nil {
		return err
	}
	p.steps = withoutRequests(steps)
	p.space, err = features.New(o.Spec, &p.Src.Deployment)
	return err
}

// withoutRequests keeps of the requests only the batches.
func withoutRequests(steps *rows.Steps) *rows.Steps {
	less := *steps.Run
	less.Requests = nil
	less.Observed = nil
	less.KVEvents = nil
	steps.Run = &less
	return steps
}
