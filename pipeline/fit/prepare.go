package fit

import (
	"fmt"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/score"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// prepared is one run as rows, its recording released.
type prepared struct {
	src       Source
	config    string
	reason    string // why it takes no part; empty when used
	saturated bool
	spans     []rows.Span // saturated parts of a run that is not
	quality   result.StepQuality
	findings  []trace.Finding
	lag       result.RunLag
	evidence  []result.LagEvidence
	audit     result.TargetAudit
	beta      *rows.Table
	alpha     map[string]*rows.Table // per alpha target
	other     map[string]*rows.Table // per other parameterisation, the same rows
	frozen    *rows.Table            // 1.0 duration-free comparison: 1.0 features on the cadence
	wallNs    int64                  // latest wall-clock stamp
	lengths   lengths
	kinds     kinds // for Identify
}

// begin loads one run, rebuilds its batches, measures its lag and audits its
// targets: all that comes before rows.
func begin(src Source, o Options) (*prepared, *rows.Steps, *features.Space, error) {
	run, err := src.Load()
	if err != nil {
		return nil, nil, nil, err
	}
	p := &prepared{src: src, config: src.Deployment.Config(), alpha: map[string]*rows.Table{}, other: map[string]*rows.Table{}, wallNs: latestWall(run), lengths: lengthsOf(run)}
	if src.Judge != nil {
		p.judge(run, o)
	}
	steps, err := rows.Rebuild(run, &src.Deployment, o.Spec)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("run %s: %w", src.ID, err)
	}
	p.quality = score.StepQuality(steps.Quality)
	p.findings = append(p.findings, steps.Findings...)
	space, err := features.New(o.Spec, &src.Deployment)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("run %s: %w", src.ID, err)
	}
	if err := p.chooseLag(steps, space, o); err != nil {
		return nil, nil, nil, fmt.Errorf("run %s: lag: %w", src.ID, err)
	}
	p.audit = score.Audit(steps.Run.ID, steps.Audit(space))
	return p, steps, space, nil
}

// prepare makes every table the fit needs of one run.
func prepare(src Source, o Options, gammas []float64) (*prepared, error) {
	p, steps, space, err := begin(src, o)
	if err != nil {
		return nil, err
	}
	if o.betaOnly {
		p.kinds = kindsOf(steps.Coverage())
	}
	if p.reason != "" {
		return p, nil
	}
	if err := p.tables(steps, space, o, gammas); err != nil {
		return nil, fmt.Errorf("run %s: %w", src.ID, err)
	}
	if p.beta.Kept == 0 {
		p.reason = "no beta rows: " + largestReason(p.beta)
		p.findings = append(p.findings, trace.Findingf(RunLeftOut, "%s: %s", src.ID, p.reason))
	}
	return p, nil
}

// judge leaves a saturated run out, and of other runs their saturated spans.
func (p *prepared) judge(run *trace.Run, o Options) {
	reason, spans := p.src.Judge(run)
	p.saturated = reason != ""
	if p.saturated {
		p.findings = append(p.findings, trace.Findingf(SaturatedRun, "%s: %s", p.src.ID, reason))
	}
	if o.KeepSaturated {
		return
	}
	if p.saturated {
		p.reason = "saturated: " + reason
	}
	p.spans = spans
}

// tables makes the beta table and the alpha tables.
func (p *prepared) tables(steps *rows.Steps, space *features.Space, o Options, gammas []float64) error {
	var err error
	p.beta, err = steps.Beta(space, rows.BetaOptions{Target: o.BetaTarget, Lag: p.lag.Lag, Gammas: gammas, Split: o.Split, Saturated: p.spans})
	if err != nil || o.betaOnly {
		return err
	}
	for _, target := range o.AlphaTargets {
		p.alpha[target], err = steps.Alpha(space, rows.AlphaOptions{Target: target, Gammas: gammas, Split: o.Split, Saturated: p.spans})
		if err != nil {
			return err
		}
	}
	p.skipOthers(space, o)
	if o.Spec == features.V11 {
		p.tables10(steps, o)
	}
	return nil
}

// tables10 makes the rows with 1.0 features for the comparison in
// leave-one-configuration-out. It ends the life of steps.
func (p *prepared) tables10(steps *rows.Steps, o Options) {
	var err error
	if o.lone {
		err = p.refused10(steps)
	} else {
		run := steps.Run
		*steps = rows.Steps{}
		p.frozen, err = p.frozenTable(run, o)
	}
	if err != nil {
		p.findings = append(p.findings, trace.Findingf(NoSpec10, "%s: %v", p.src.ID, err))
	}
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

// lengths are sums over finished requests, for the configuration's means.
type lengths struct{ requests, prompt, output int64 }

func (l *lengths) add(o lengths) {
	l.requests += o.requests
	l.prompt += o.prompt
	l.output += o.output
}

// means are the mean prompt and output, nil without requests.
func (l *lengths) means() (prompt, output *float64) {
	if l.requests == 0 {
		return nil, nil
	}
	n := float64(l.requests)
	return num(float64(l.prompt) / n), num(float64(l.output) / n)
}

func lengthsOf(run *trace.Run) lengths {
	var l lengths
	for i := range run.Requests {
		if r := &run.Requests[i]; r.Success.Or(false) && r.PromptTokens.OK && r.OutputTokens.OK {
			l.requests++
			l.prompt += r.PromptTokens.V
			l.output += r.OutputTokens.V
		}
	}
	return l
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
