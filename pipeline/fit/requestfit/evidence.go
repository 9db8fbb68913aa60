package requestfit

// This file makes the evidence of a fit from recorded runs: Requests and Points are what `fit --from
// requests` and `--from points` learn from. A collection gathers the loads of all runs, fits them
// (fitShare) and validates the answer on the requests that were held out.

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Run is one recorded run whose steps are not used.
type Run struct {
	ID         string
	Deployment *deploy.Deployment
	Load       func() (*trace.Run, error)
}

// Requests is the evidence of requests: what clients or stock spans measured of
// recorded runs. It is a fit.Evidence.
type Requests struct {
	Runs []Run
	// Holdout names runs that are held out of the fit to validate it. Without any, the
	// last arrivals of every run are held out, by Options.Split.
	Holdout []string
	Search  string // SearchNone and others
	// MaxSteps limits the simulated steps: once they are used up, no further pass of the
	// fit or of a search begins. 0 is no limit.
	MaxSteps int64
	// SharedPrefix is the number of first prompt tokens that all requests share, for
	// recordings that do not state it; 0: they share nothing; nil: not stated.
	SharedPrefix *int64
}

// Kind returns fit.FromRequests.
func (Requests) Kind() fit.Kind { return fit.FromRequests }

// Points is the evidence of load levels alone. It is a fit.Evidence.
type Points struct{ Requests }

// Kind returns fit.FromPoints.
func (Points) Kind() fit.Kind { return fit.FromPoints }

// Fit returns the fit of the runs of the first configuration that has an unsaturated run; a run of
// another configuration is an error.
func (r Requests) Fit(ctx context.Context, o fit.Options, _ trace.Progress) (*result.Fit, error) {
	c := &collection{evidence: r, o: o, runOfLevel: map[*Load]string{}}
	if err := c.addRuns(); err != nil {
		return nil, err
	}
	prior, err := priorFor(c.deployment, o)
	if err != nil {
		return nil, err
	}
	if err := c.dropLevelsBeyondCache(prior); err != nil {
		return nil, err
	}
	learning := DefaultOptions()
	learning.Seed = o.Seed
	learning.Workers = o.Workers
	learning.Search = r.Search
	learning.Steps = r.MaxSteps
	learning.Holdout = c.held
	start := time.Now()
	// The held-out and whole loads have the same prompts, and have to assume the same share of cached ones.
	learned, err := fitShare(ctx, c.loads, slices.Concat(c.held, c.whole), prior, learning)
	if err != nil {
		return nil, err
	}
	if share := learned.Level.CachedShare; share != nil {
		c.warnings = append(c.warnings, shareFinding(share, c.loads[0].Tier))
	}
	seconds := time.Since(start).Seconds()
	// Warn of loads that the fitted server does not resemble, and of a fit that predicts held-out
	// requests no better than its prior.
	for _, l := range c.loads {
		found, err := l.Unlike(learned.Set)
		if err != nil {
			return nil, err
		}
		c.warnings = append(c.warnings, found...)
	}
	gain, err := GainOf(c.held, learned.Set, prior.Set)
	if err != nil {
		return nil, err
	}
	c.warnings = append(c.warnings, gain.Findings()...)
	doc, err := c.document(learned)
	if err != nil {
		return nil, err
	}
	if gain.Learned >= 0 { // NaN without held-out requests
		doc.Requests.Gain = &result.CalibrationGain{
			Calibrated:   gain.Learned,
			Uncalibrated: gain.Prior,
			Difference95: [2]float64{gain.Low, gain.High},
		}
	}
	doc.Requests.StepsPerSecond = float64(learned.Level.SimulatedSteps) / seconds
	if c.loads[0].Point != nil {
		if doc.Requests.Levels, err = c.predictLevels(ctx, prior, learned.Set, learning); err != nil {
			return nil, err
		}
	}
	if len(r.Holdout) > 0 {
		if doc.Requests.Holdout, err = c.predictHeldRuns(learned.Set); err != nil {
			return nil, err
		}
	}
	cross, found, err := c.crossFit(learned)
	doc.Cross = cross
	doc.Warnings = append(doc.Warnings, found...)
	return doc, err
}

// priorFor returns the prior that o.Prior names. The default, PriorZero, means the library's prior, or
// the roofline for a device that the library does not have.
func priorFor(d *deploy.Deployment, o fit.Options) (*Prior, error) {
	switch o.Prior {
	case fit.PriorRoofline:
		return Roofline(d), nil
	case fit.PriorZero:
		set, err := fit.LibraryFor(d)
		if err != nil {
			return Roofline(d), nil
		}
		return &Prior{Name: fit.PriorLibrary, Set: set}, nil
	}
	sets, err := fit.PriorSets(&o)
	if err != nil {
		return nil, err
	}
	set, err := sets(d)
	return &Prior{Name: o.Prior, Set: set}, err
}

// collection is the loads of all runs of one fit, and what the document reports of the runs.
type collection struct {
	evidence   Requests
	o          fit.Options
	deployment *deploy.Deployment // of the one configuration that is fitted
	config     string             // its key
	runs       []result.FitRun
	loads      []*Load // that are fitted: without --holdout, the first part of each load of whole
	whole      []*Load // the loads of requests to which the coefficients are fitted, with all of their requests
	// held are the loads that validate the fit: those of held-out runs, or else the fitted
	// loads with only their last arrivals compared.
	held         []*Load
	runOfLevel   map[*Load]string // the run's id of each load that is a load level
	warnings     []trace.Finding
	latestWallNs int64
}

// LevelsNotFitted is the reason why the load levels of a run with requests are not fitted.
const LevelsNotFitted = "its requests are fitted, not its load levels"

// LevelsIgnored returns the finding about a run whose load levels are not fitted.
func LevelsIgnored(run, why string) trace.Finding {
	return trace.Finding{Code: clients.CodeClientFile, Message: report.LevelsIgnored(run, why)}
}

// addRuns makes the loads of all runs.
func (c *collection) addRuns() error {
	for _, id := range c.evidence.Holdout {
		if !slices.ContainsFunc(c.evidence.Runs, func(r Run) bool { return r.ID == id }) {
			return trace.Errorf(rows.BadOption, "--holdout: got %q, want the id of a run of this folder", id)
		}
	}
	for i := range c.evidence.Runs {
		if err := c.addRun(&c.evidence.Runs[i]); err != nil {
			return err
		}
	}
	saturated := slices.ContainsFunc(c.runs, func(r result.FitRun) bool { return r.Saturated })
	switch {
	case len(c.loads) > 0:
		c.dropLevelsBesideRequests()
		return nil
	case len(c.held) > 0:
		return trace.Errorf(rows.BadOption, "--holdout: got every run with a request, want at least one left to fit")
	case saturated:
		return trace.Errorf(NothingMeasured,
			"fit --from requests: got only saturated runs, want at least one that the server kept up with").
			WithHint("the key keep-saturated: true in pipeline.yaml (--config FILE) fits them all the same, " +
				"but replays of saturated runs cannot validate the fit")
	}
	if len(c.runs) == 1 && c.runs[0].Reason != "" {
		return trace.Errorf(NothingMeasured, "fit --from requests: got %s in run %s, want requests with a start time",
			c.runs[0].Reason, c.runs[0].ID).WithHint("record with a newer client, or fit the loads' means with fit --from points")
	}
	return trace.Errorf(NothingMeasured, "fit --from requests: got no request with a time in %d runs", len(c.evidence.Runs)).
		WithHint("blis-train inspect lists what each run has")
}

// addRun adds a run to the document and, unless it is excluded, its loads.
func (c *collection) addRun(r *Run) error {
	run, err := r.Load()
	if err != nil {
		return err
	}
	out := result.FitRun{ID: r.ID, Config: r.Deployment.Config(), Findings: []trace.Finding{}}
	if v := verdictsOf(run, r.Deployment).Run; v.Saturated {
		out.Saturated = true
		out.Reason = rows.HitText(v.Checks)
		c.warnings = append(c.warnings, trace.Finding{
			Code:    rows.Saturated,
			Message: report.RunSaturated(r.ID, out.Reason, c.o.KeepSaturated),
		})
	}
	switch {
	case slices.Contains(c.o.Without, r.ID):
		out.Reason = "excluded (--without)"
	case out.Saturated && !c.o.KeepSaturated:
	case c.config != "" && c.config != out.Config:
		return trace.Errorf(rows.BadOption, "fit --from requests: got run %s of %s and runs of %s, want one configuration",
			r.ID, out.Config, c.config).
			WithHint("exclude it with --without " + r.ID + ", or fit it into a folder of its own")
	default:
		if err := c.addLoads(run, r.Deployment, &out); err != nil {
			return err
		}
	}
	c.runs = append(c.runs, out)
	return nil
}

// withoutStart returns the number of client requests of a run if none of them has a start time, else 0.
func withoutStart(run *trace.Run) int {
	for i := range run.Observed {
		if run.Observed[i].SentNs() != 0 {
			return 0
		}
	}
	return len(run.Observed)
}

// addLoads adds the loads of one run to the fitted or to the held-out ones.
func (c *collection) addLoads(run *trace.Run, dep *deploy.Deployment, out *result.FitRun) error {
	loads, findings := LoadsOf(run, dep, c.o.KeepSaturated, c.evidence.SharedPrefix)
	c.latestWallNs = max(c.latestWallNs, fit.LatestWall(run))
	if len(loads) == 0 && len(run.Points) > 0 {
		return c.addLevels(run.Points, dep, out)
	}
	out.Findings = append(out.Findings, findings...)
	if len(run.Points) > 0 {
		c.warnings = append(c.warnings, LevelsIgnored(out.ID, LevelsNotFitted))
	}
	if len(loads) == 0 {
		out.Reason = "no request with a time"
		if n := withoutStart(run); n > 0 {
			out.Reason = fmt.Sprintf("%d requests without a start time", n)
		}
		return nil
	}
	c.deployment, c.config = dep, out.Config
	if slices.Contains(c.evidence.Holdout, out.ID) {
		c.held = append(c.held, loads...)
		out.Reason = "held out (--holdout)"
		return nil
	}
	out.Used = true
	c.whole = append(c.whole, loads...)
	if len(c.evidence.Holdout) > 0 {
		c.loads = append(c.loads, loads...)
		return nil
	}
	for _, l := range loads {
		if later := l.Later(c.o.Split); later.IsMeasured() {
			c.held = append(c.held, later)
		}
		c.loads = append(c.loads, l.Before(c.o.Split))
	}
	return nil
}

// document returns the fit in the form that every consumer of a fit reads.
func (c *collection) document(learned *Learned) (*result.Fit, error) {
	doc, err := Document(learned.Set, c.deployment)
	if err != nil {
		return nil, err
	}
	doc.Options = result.FitOptions{
		Spec:       string(learned.Set.SpecVersion),
		Recipe:     learned.Set.Recipe,
		BetaTarget: learned.Set.BetaTarget,
		Split:      c.o.Split,
		Seed:       c.o.Seed,
		Prior:      learned.Level.Prior,
		Without:    append([]string{}, c.o.Without...),
	}
	var prompts, outputs, requests float64
	for _, l := range c.loads {
		for i := range l.Requests {
			prompts += float64(l.Requests[i].PromptTokens)
			outputs += float64(l.Requests[i].OutputTokens)
			requests++
		}
	}
	config := &doc.Configs[0]
	config.MeanPromptTokens = result.OrNull(prompts / requests)
	config.MeanOutputTokens = result.OrNull(outputs / requests)
	for i := range c.runs {
		if c.runs[i].Used {
			config.Runs = append(config.Runs, c.runs[i].ID)
		}
	}
	doc.Runs = c.runs
	doc.TrainingDate = fit.DateOf(c.latestWallNs) // Document has set the prior's date
	doc.Warnings = append([]trace.Finding{}, c.warnings...)
	doc.Requests = learned.Level
	return doc, nil
}
