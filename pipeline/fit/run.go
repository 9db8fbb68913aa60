package fit

// This file makes the rows of one run: it rebuilds the batches, excludes saturated spans, measures the
// lag and makes a table for each target. A run that is too long for memory is made slice by slice, and
// the tables of its slices are joined.

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Run is the rows of one run, without its recording.
type Run struct {
	runFacts
	Src      Source
	Contexts string      // source of the contexts of logged iterations; empty for step traces
	Spans    []rows.Span // saturated spans, which give no rows
	Beta     *rows.Table
	Alpha    map[string]*rows.Table // by alpha target
	Frozen   *rows.Table            // 1.0 features with the cadence as target, for the comparison with 1.0
	Covered  *result.Covered
	Blocks   []result.CrossBlocks // of time, which fits leave out in turn
	Coverage rows.Coverage        // of the steps; only with Options.BetaOnly

	kept   int             // beta rows
	noRows string          // Reason if the run has no beta rows: the most frequent drop
	lost   trace.Code      // the code of that drop
	steps  *rows.Steps     // for rows under other bases; rebuilt by Again
	space  *features.Space // features of the fit's version on the run's deployment
}

// Load returns one run with its batches rebuilt, its lag (steps from schedule() to the execution)
// measured and its targets audited. It makes no rows.
func Load(ctx context.Context, src Source, o Options) (*Run, *rows.Steps, *features.Space, error) {
	return loadSlice(ctx, src, o, nil)
}

// loadSlice does what Load does for one slice of a run. The lag and the audit are those of its
// first slice, so that all rows of a run have one lag. lagOfFirst waits until the first slice has been
// made, and returns its lag; nil for the first slice itself.
func loadSlice(ctx context.Context, src Source, o Options, lagOfFirst func() result.RunLag) (*Run, *rows.Steps, *features.Space, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, nil, err
	}
	run, err := src.Load()
	if err != nil {
		return nil, nil, nil, err
	}
	p := &Run{
		Src:   src,
		Alpha: map[string]*rows.Table{},
		runFacts: runFacts{
			Config:     src.Deployment.Config(),
			Deployment: src.Deployment,
			WallNs:     LatestWall(run),
			Lengths:    lengthsOf(run),
		},
	}
	if src.Judge != nil {
		p.excludeSaturated(run, o)
	}
	tracedShare := src.Deployment.Tracing.JourneySampleRate
	p.Covered = coveredBy(run, p.Spans, tracedShare.OK && tracedShare.V < 1)
	p.Blocks = rows.Blocks(run, &src.Deployment)
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
	if lagOfFirst != nil {
		p.Lag = lagOfFirst()
		return p, steps, space, nil
	}
	if err := p.chooseLag(ctx, steps, space, o); err != nil {
		return nil, nil, nil, fmt.Errorf("run %s: lag: %w", src.ID, err)
	}
	p.Audit = steps.Audit(space)
	return p, steps, space, nil
}

// Make returns one run with every table that the fit needs.
func Make(ctx context.Context, src Source, o Options, gammas []float64) (*Run, error) {
	if src.Rows != "" {
		return restore(src)
	}
	return makeParts(ctx, src, o, gammas, func(q *Run) error {
		// The slice is valid only during its visit. The space keeps its source in memory.
		q.steps = nil
		q.space = nil
		return nil
	})
}

// makePart returns a slice, or a whole run that is not sliced, with its tables; lagOfFirst as in
// loadSlice.
func makePart(ctx context.Context, src Source, o Options, gammas []float64, lagOfFirst func() result.RunLag) (*Run, error) {
	p, steps, space, err := loadSlice(ctx, src, o, lagOfFirst)
	if err != nil {
		return nil, err
	}
	if o.BetaOnly {
		p.Coverage = steps.Coverage()
	}
	aggregate := steps.Run.Aggregate
	if aggregate != nil {
		p.Contexts = aggregate.Contexts
		if refused := aggregate.Refused; refused != nil && p.Reason == "" {
			p.Reason = strings.TrimPrefix(refused.Msg, "run "+src.ID+": ") + "; " + refused.Hint
			p.Findings = append(p.Findings, trace.Findingf(refused.Code, "%s; %s", refused.Msg, refused.Hint))
		}
	}
	// A saturated run of step traces still gives the rows of its steps with preemptions,
	// because runs that are not saturated seldom have any (spec#saturation).
	hasPreemptionRows := p.Saturated && aggregate == nil && steps.Preempts()
	if p.Reason != "" && !hasPreemptionRows {
		return p, nil
	}
	if err := p.makeTables(ctx, steps, space, o, gammas); err != nil {
		return nil, fmt.Errorf("run %s: %w", src.ID, err)
	}
	code, n := p.Beta.Largest("no step summaries")
	p.kept = p.Beta.Kept
	p.lost = code
	p.noRows = report.NoStepRows(string(code), n, p.Beta.Read)
	p.steps = withoutRequests(steps)
	p.space = space
	return p, nil
}

// makeParts returns the run with tables made slice by slice. It calls done with each slice, one after
// the other, before joining it to the previous ones; done may remove the tables of the slice.
func makeParts(ctx context.Context, src Source, o Options, gammas []float64, done func(*Run) error) (p *Run, err error) {
	turns := par.NewTurns()
	var firstLag result.RunLag // set before the first slice ends
	err = visitParts(src, o, func(k int, part Source) error {
		defer turns.End(k)
		var lagOfFirst func() result.RunLag
		if k > 0 {
			lagOfFirst = func() result.RunLag {
				turns.After(0)
				return firstLag
			}
		}
		q, err := makePart(ctx, part, o, gammas, lagOfFirst)
		turns.After(k - 1)
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
			firstLag = q.Lag
			src.reserveRows(p.Beta)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.Src = src // that of the whole run; the visit's is gone
	if p.Reason == "" && p.kept == 0 {
		p.Reason = p.noRows
		p.Findings = append(p.Findings, trace.Findingf(CodeNoRows, "%s: %s", src.ID, p.Reason))
	}
	return p, nil
}

// join adds the next slice of the run. The run is saturated if every slice is.
func (p *Run) join(q *Run) {
	p.Saturated = p.Saturated && q.Saturated
	p.Spans = append(p.Spans, q.Spans...)
	p.Findings = append(p.Findings, q.Findings...)
	p.Quality.Join(q.Quality)
	p.Covered = Cover(p.Covered, q.Covered)
	p.Blocks = rows.JoinBlocks(p.Blocks, q.Blocks)
	p.Lengths.add(q.Lengths)
	p.WallNs = max(p.WallNs, q.WallNs)
	p.kept += q.kept
	p.Beta = joinTables(p.Beta, q.Beta)
	p.Frozen = joinTables(p.Frozen, q.Frozen)
	for target, t := range q.Alpha {
		p.Alpha[target] = joinTables(p.Alpha[target], t)
	}
}

// joinTables returns the table with the rows of the next slice of a run appended; either may be
// nil.
func joinTables(t, next *rows.Table) *rows.Table {
	if t == nil || next == nil {
		return orOther(t, next)
	}
	t.Join(next)
	return t
}

// orOther returns a, or b if a is nil.
func orOther[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// makeTables makes the beta table and the alpha tables, with every Stride-th row.
func (p *Run) makeTables(ctx context.Context, steps *rows.Steps, space *features.Space, o Options, gammas []float64) error {
	common := rows.Options{
		Gammas:    gammas,
		Split:     o.Split,
		Saturated: p.Spans,
		Stride:    p.Src.Stride,
	}
	ofBeta := common
	ofBeta.Target = o.BetaTarget
	ofBeta.Lag = p.Lag.Lag
	ofBeta.Preempting = true
	ofBeta.Slim = o.Rows == nil
	withoutDelays := o.BetaOnly || o.noDelays
	var targets []string
	if !withoutDelays {
		targets = o.AlphaTargets
	}
	delays := make([]*rows.Table, len(targets))
	err := par.Try(ctx, o.Workers, 1+len(targets), func(i int) (err error) {
		if i == 0 {
			p.Beta, err = steps.Beta(space, ofBeta)
			return err
		}
		ofAlpha := common
		ofAlpha.Target = targets[i-1]
		delays[i-1], err = steps.Alpha(space, ofAlpha)
		return err
	}, nil)
	if err != nil || withoutDelays {
		return err
	}
	for i, target := range targets {
		p.Alpha[target] = delays[i]
	}
	for _, name := range o.Models { // some are not defined for every deployment
		if _, err := Vectorizer(name, space); err != nil {
			p.Findings = append(p.Findings, trace.Findingf(ModelSkipped, "%s: %s: %v", p.Src.ID, name, err))
		}
	}
	if o.Spec.Base() != features.V10 {
		p.makeTable10(steps, o)
	}
	return nil
}

// makeTable10 makes the rows with features of version 1.0, which the cross-validation over
// configurations compares with. With one configuration there is no such comparison: the rows are not
// made, and only a finding is added if they could not be.
func (p *Run) makeTable10(steps *rows.Steps, o Options) {
	var err error
	if o.OneConfig {
		err = p.checkSupports10(steps)
	} else {
		p.Frozen, err = p.frozenTable(steps, o)
	}
	if err != nil {
		p.Findings = append(p.Findings, trace.Findingf(ModelSkipped, "%s: %v", p.Src.ID, err))
	}
}

// checkSupports10 returns the reason why the run can have no rows with 1.0 features.
func (p *Run) checkSupports10(steps *rows.Steps) error {
	if err := steps.Refused10(); err != nil {
		return err
	}
	_, err := features.New(features.V10, &p.Src.Deployment)
	return err
}

// frozenTable makes the run's cadence rows with 1.0 features. It returns an error if
// the steps lack an input of these.
func (p *Run) frozenTable(ofSpec *rows.Steps, o Options) (*rows.Table, error) {
	steps, err := ofSpec.As(features.V10)
	if err != nil {
		return nil, err
	}
	space, err := features.New(features.V10, &p.Src.Deployment)
	if err != nil {
		return nil, err
	}
	return steps.Beta(space, rows.Options{
		Target:    coeff.Cadence,
		Lag:       p.Lag.Lag,
		Split:     o.Split,
		Saturated: p.Spans,
		Stride:    p.Src.Stride,
		Slim:      true,
	})
}

// excludeSaturated excludes a saturated run from the fit, and the saturated spans of
// other runs.
func (p *Run) excludeSaturated(run *trace.Run, o Options) {
	if run.Slice != nil {
		p.excludeSaturatedSlice(run, o)
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

// excludeSaturatedSlice excludes a saturated slice, or the saturated spans of another. It gives the
// slice no Reason: the run is fitted as long as another slice has rows.
func (p *Run) excludeSaturatedSlice(run *trace.Run, o Options) {
	slice := run.Slice
	asked := *run // only with the requests that arrived in the slice, not those around it
	asked.Requests = nil
	for i := range run.Requests {
		if run.AsksFor(&run.Requests[i]) {
			asked.Requests = append(asked.Requests, run.Requests[i])
		}
	}
	reason, spans := p.Src.Judge(&asked)
	p.Saturated = reason != ""
	if p.Saturated {
		spans = []rows.Span{{StartNs: slice.FromNs, EndNs: slice.ToNs}}
		p.Findings = append(p.Findings, trace.Finding{
			Code:    rows.Saturated,
			Message: report.SliceSaturated(p.Src.ID, sinceStartS(slice, slice.FromNs), sinceStartS(slice, slice.ToNs), reason),
		})
	}
	if o.KeepSaturated {
		return
	}
	for _, s := range spans {
		inSlice := rows.Span{
			StartNs: max(s.StartNs, slice.FromNs),
			EndNs:   min(s.EndNs, slice.ToNs),
		}
		if inSlice.StartNs < inSlice.EndNs {
			p.Spans = append(p.Spans, inSlice)
		}
	}
}

// sinceStartS returns a boundary of a slice in seconds since the first step of the run. The
// first and the last slice are unbounded on one side; there it is the run's own end.
func sinceStartS(slice *trace.Slice, ns int64) float64 {
	return float64(min(max(ns, slice.FirstNs), slice.LastNs)-slice.FirstNs) / 1e9
}

// Again reads the recording and rebuilds its batches once more, for rows under other
// bases. It does nothing for stored rows, and for slices, which are read for each basis.
func (p *Run) Again(ctx context.Context, o Options) error {
	if p.Src.Rows != "" || p.Src.Slices != nil {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
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

// withoutRequests returns the steps without the request tables, so that only the batches stay in
// memory.
func withoutRequests(steps *rows.Steps) *rows.Steps {
	less := *steps.Run
	less.Requests = nil
	less.Observed = nil
	less.KVEvents = nil
	steps.Run = &less
	return steps
}
