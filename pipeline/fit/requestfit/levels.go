package requestfit

// This file adds the load levels of a run to a fit, drops those that cannot be compared, and predicts
// each level with coefficients that were not fitted to it.

import (
	"context"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// addLevels adds the load levels of a run to the fitted loads, or to the held-out ones.
func (c *collection) addLevels(points []trace.LoadPoint, dep *deploy.Deployment, out *result.FitRun) error {
	c.deployment, c.config = dep, out.Config
	out.Used = !slices.Contains(c.evidence.Holdout, out.ID)
	list := &c.loads
	if !out.Used {
		list = &c.held
		out.Reason = "held out (--holdout)"
	}
	if shared := c.evidence.SharedPrefix; shared != nil {
		stated := *dep
		stated.Client.SharedPrefixTokens = trace.Some(*shared)
		dep = &stated
	}
	for i := range points {
		l, err := loadOfLevel(&points[i], dep)
		if err != nil {
			return err
		}
		c.warnings = append(c.warnings, overrun(&points[i])...)
		c.warnings = append(c.warnings, contradicted(&points[i], dep)...)
		c.runOfLevel[l] = out.ID
		*list = append(*list, l)
	}
	return nil
}

// loadOfLevel returns the load of a load level: the requests that its benchmark sent, as stated, or
// by the assumed harness.
func loadOfLevel(l *trace.LoadPoint, d *deploy.Deployment) (*Load, error) {
	level, err := LevelOf(l, d)
	if err != nil {
		return nil, err
	}
	requests, err := level.Requests(level.Harness())
	out := &Load{
		Name:       l.Name,
		Tier:       TierPoints,
		Deployment: level.Deployment,
		Requests:   requests,
		Point:      &Point{TTFTMs: level.TTFTMs, TPOTMs: level.TPOTMs},
	}
	if !level.CachedTokens.OK {
		out.Unstated = slices.Repeat([]bool{true}, len(requests))
	}
	return out, err
}

// keptUpShare is the smallest share of the offered rate that a server must have served to count as
// having kept up.
const keptUpShare = 0.8

// overrun returns a warning about a level whose arrivals the server did not keep up with.
func overrun(l *trace.LoadPoint) []trace.Finding {
	// With clients of a closed loop the server decides the rate.
	isOpen := l.OfferedRPS.OK && l.RateRPS.OK && !l.Clients.OK
	if !isOpen || l.RateRPS.V >= keptUpShare*l.OfferedRPS.V {
		return nil
	}
	return []trace.Finding{{
		Code:    rows.Saturated,
		Message: report.LevelOverrun(l.Name, l.RateRPS.V, l.OfferedRPS.V),
	}}
}

// contradicted returns a warning about a level whose file has another share of cached tokens than
// was stated.
func contradicted(l *trace.LoadPoint, dep *deploy.Deployment) []trace.Finding {
	stated := dep.Client.SharedPrefixTokens
	if !dep.Engine.PrefixCaching || !stated.OK || !l.CachedTokens.OK {
		return nil
	}
	tokens := min(float64(stated.V), l.PromptTokens)
	if math.Abs(tokens-l.CachedTokens.V) <= trace.MostGuessed*l.PromptTokens {
		return nil
	}
	return []trace.Finding{trace.Findingf(validate.SharingContradicted,
		"%s: the file has %.3g %% of the prompt tokens as cached, --shared-prefix-tokens or run.yaml states %.3g %%: the former is used",
		l.Name, 100*l.CachedTokens.V/l.PromptTokens, 100*tokens/l.PromptTokens)}
}

// dropLevelsBesideRequests drops the load levels if any run has requests. A level is a mean over
// other requests, and would weigh as much as a single request.
func (c *collection) dropLevelsBesideRequests() {
	isLevel := func(l *Load) bool { return l.Point != nil }
	isRequests := func(l *Load) bool { return l.Point == nil }
	if !slices.ContainsFunc(c.loads, isLevel) || !slices.ContainsFunc(c.loads, isRequests) {
		return
	}
	c.loads = slices.DeleteFunc(c.loads, isLevel)
	c.held = slices.DeleteFunc(c.held, isLevel)
	withLevels := map[string]bool{}
	for _, id := range c.runOfLevel {
		withLevels[id] = true
	}
	for i := range c.runs {
		r := &c.runs[i]
		if r.Used && withLevels[r.ID] {
			r.Used = false
			r.Reason = LevelsNotFitted
			c.warnings = append(c.warnings, LevelsIgnored(r.ID, LevelsNotFitted))
		}
	}
}

// dropLevelsBeyondCache drops the load levels whose measured times show that the server's KV
// cache is larger than stated.
func (c *collection) dropLevelsBeyondCache(prior *Prior) error {
	var left []*Load
	for _, l := range c.loads {
		ttftMs, full, err := l.Full(prior)
		if err != nil {
			return err
		}
		if !full {
			left = append(left, l)
			continue
		}
		c.warnings = append(c.warnings, trace.Finding{
			Code:    ReplayUnlike,
			Message: report.LevelBeyondCache(l.Name, ttftMs, l.Point.TTFTMs),
		})
	}
	c.loads = left
	return nil
}

// levelFolds is the number of folds of the cross-validation over load levels.
const levelFolds = 5

// predictLevels returns predictions of every load level with coefficients that were not fitted to
// it: held-out levels with the answer; if there are none, the fitted ones by cross-validation.
func (c *collection) predictLevels(ctx context.Context, prior *Prior, answer *coeff.Set, o Options) ([]result.LevelHoldout, error) {
	var out []result.LevelHoldout
	for _, l := range c.held {
		if l.Point == nil {
			continue
		}
		predicted, err := c.predictLevel(l, answer)
		if err != nil {
			return nil, err
		}
		out = append(out, predicted)
	}
	if len(out) > 0 || len(c.loads) < 2 {
		return out, nil
	}
	o.valuesAlone = true
	folds := min(levelFolds, len(c.loads))
	sets := make([]*coeff.Set, folds)
	for k := range sets {
		var others []*Load
		for i, l := range c.loads {
			if i%folds != k {
				others = append(others, l)
			}
		}
		learned, err := Fit(ctx, others, prior, o)
		if err != nil {
			return nil, err
		}
		sets[k] = learned.Set
	}
	for i, l := range c.loads {
		predicted, err := c.predictLevel(l, sets[i%folds])
		if err != nil {
			return nil, err
		}
		out = append(out, predicted)
	}
	return out, nil
}

// predictLevel returns the prediction of one load level with a coefficient set.
func (c *collection) predictLevel(l *Load, set *coeff.Set) (result.LevelHoldout, error) {
	predicted, err := l.PredictPoint(set)
	return result.LevelHoldout{
		Run:             c.runOfLevel[l],
		Name:            l.Name,
		TTFTMs:          result.OrNull(l.Point.TTFTMs),
		TPOTMs:          l.Point.TPOTMs,
		PredictedTTFTMs: result.OrNull(predicted.TTFTMs),
		PredictedTPOTMs: result.OrNull(predicted.TPOTMs),
	}, err
}
