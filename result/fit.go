package result

// This file is the document fit.json.

import (
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// Fit is fit.json.
type Fit struct {
	Header
	Options FitOptions `json:"options"`
	// FeatureSet identifies the features behind the coefficients.
	FeatureSet coeff.FeatureSet `json:"feature_set"`
	Runs       []FitRun         `json:"runs"`
	Configs    []FitConfig      `json:"configs"`
	Beta       Model            `json:"beta"`   // the time of a step
	Alpha      []Model          `json:"alpha"`  // one per alpha target (a delay outside the steps), sorted by target
	Models     []Model          `json:"models"` // other models fitted to the same rows: blackbox, trained-physics, roofline
	// Recipes are the recipes of the step time that were compared (spec#recipe-choice); absent where
	// one was asked for.
	Recipes  []RecipeScore   `json:"recipes,omitempty"`
	Warnings []trace.Finding `json:"warnings"`
	// TrainingDate is the UTC date of the latest wall-clock stamp in the inputs.
	TrainingDate string `json:"training_date"`
	// Requests describes a fit from requests or load levels; nil: the fit is from steps.
	Requests *RequestLevel `json:"requests,omitempty"`
	// Cross are the coefficients that judge the replays; nil: none were fitted, as from Gram files
	// and load levels.
	Cross *CrossFits `json:"cross_fits,omitempty"`
}

// AlphaNamed returns the model of one alpha target (a delay outside the steps); nil if the fit has
// none.
func (f *Fit) AlphaNamed(target string) *Model {
	for i := range f.Alpha {
		if f.Alpha[i].Target == target || f.Alpha[i].Name == target {
			return &f.Alpha[i]
		}
	}
	return nil
}

// MedianDelayUs returns the median prediction of an alpha target on the hold-out rows of a
// configuration: the mean over its runs, weighted by rows. If c is nil or none of its runs has
// rows, it is the median over all configurations. scope is the configuration's label, or "all
// configurations". ok is false if the fit has no model of the target.
func (f *Fit) MedianDelayUs(target string, c *FitConfig) (us float64, scope string, ok bool) {
	m := f.AlphaNamed(target)
	if m == nil {
		return 0, "", false
	}
	sum, rows := 0.0, 0.0
	for i := range m.AlphaRuns {
		r := &m.AlphaRuns[i]
		if c == nil || r.Config != c.Key {
			continue
		}
		if n, median := medianPrediction(r.Interval, r.Errors); median != nil {
			rows += float64(n)
			sum += float64(n) * *median
		}
	}
	if rows > 0 {
		return sum / rows, c.Label, true
	}
	_, median := medianPrediction(m.Interval, m.TargetErrors)
	if median == nil {
		return 0, "", false
	}
	return *median, "all configurations", true
}

// medianPrediction returns the median prediction of a delay and the number of its rows, from whichever
// errors its target has; nil without any.
func medianPrediction(interval *IntervalErrors, errors *TargetErrors) (rows int, us *float64) {
	switch {
	case interval != nil:
		return interval.Rows, interval.MedianPredUs
	case errors != nil:
		return errors.Rows, errors.MedianPredUs
	}
	return 0, nil
}

// AllWarnings returns the warnings of the fit and of its models, without repetitions.
func (f *Fit) AllWarnings() []trace.Finding {
	lists := [][]trace.Finding{f.Warnings, f.Beta.Warnings}
	for i := range f.Alpha {
		lists = append(lists, f.Alpha[i].Warnings)
	}
	var all []trace.Finding
	for _, list := range lists {
		for _, w := range list {
			if !slices.Contains(all, w) {
				all = append(all, w)
			}
		}
	}
	return all
}

// HoldoutOf returns the MAPE of the step time on the hold-out rows of configurations, and their number: that of the
// cells by regime, weighted by rows. It is nil without such rows.
func (f *Fit) HoldoutOf(configs ...string) (mape *float64, rows int) {
	sum, n := 0.0, 0
	for i := range f.Beta.Cells {
		if c := &f.Beta.Cells[i]; slices.Contains(configs, c.Config) && c.Bucket == "" && c.MAPE != nil {
			sum += *c.MAPE * float64(c.Rows)
			n += c.Rows
		}
	}
	if n == 0 {
		return nil, 0
	}
	return OrNull(sum / float64(n)), n
}

// FitOptions are the options of the fit that change its numbers.
type FitOptions struct {
	Spec       string   `json:"spec"`                // version of the list of features
	Recipe     string   `json:"recipe"`              // spec#recipe-choice
	BetaTarget string   `json:"beta_target"`         // what is fitted of a step: cadence or duration
	Objective  string   `json:"objective"`           // within, cross or minimax (spec#selection)
	Selection  string   `json:"selection,omitempty"` // minimum or one-standard-error
	Split      float64  `json:"split"`               // training share of each phase
	Seed       int64    `json:"seed"`
	Bootstraps int      `json:"bootstraps"`
	RefitAll   bool     `json:"refit_all"`          // the coefficients are of all rows, hold-out included
	Prior      string   `json:"prior"`              // zero, roofline, library or the name of a coefficient file
	Without    []string `json:"without"`            // runs that were not used, by id
	MaxRows    *int     `json:"max_rows,omitempty"` // largest number of rows fitted, 0: all; absent: the default, 10,000,000
}

// RecipeScore is the cross-validated error of the step time under one recipe.
type RecipeScore struct {
	Spec   string   `json:"spec"`
	Prior  string   `json:"prior"`          // library or zero
	Form   string   `json:"form,omitempty"` // chosen form of the step time, without a prior
	Lambda *float64 `json:"lambda"`
	RelErr *float64 `json:"weighted_relative_error"` // mean over the parts held out
	// Uncalibrated is the error of the prior's own step times on the same rows, without a fit; nil without a
	// prior, and with several configurations.
	Uncalibrated *float64 `json:"uncalibrated_relative_error,omitempty"`
	SE           *float64 `json:"se"`       // standard error of RelErr
	HeldOut      string   `json:"held_out"` // configurations or blocks
	Parts        int      `json:"parts"`    // held out, one at a time
	Chosen       bool     `json:"chosen"`
}

// What RecipeScore.HeldOut names.
const (
	HeldOutConfigs = "configurations"
	HeldOutBlocks  = "blocks"
)

// FitRun states whether the fit used a run, and if not, why.
type FitRun struct {
	ID        string          `json:"id"`
	Config    string          `json:"config"`
	Used      bool            `json:"used"`
	Saturated bool            `json:"saturated"`
	Reason    string          `json:"reason"` // why it was not used; empty when used
	Steps     StepQuality     `json:"steps"`
	Findings  []trace.Finding `json:"findings"`
}

// StepQuality counts the steps of a run by how their batch is known.
type StepQuality struct {
	Recorded       int      `json:"recorded"`       // steps with a summary
	Known          int      `json:"known"`          // of these: the sum of the next three
	FromSnapshots  int      `json:"from_snapshots"` // from the snapshots of all their requests
	Reconstructed  int      `json:"reconstructed"`  // from the journeys of requests
	Approximate    int      `json:"approximate"`    // from the totals of the batch alone
	Contradictions int      `json:"contradictions"` // the journeys contradict the summary
	KnownShare     *float64 `json:"known_share"`    // known / recorded
}

// Join adds the counts of another part of the run.
func (q *StepQuality) Join(o StepQuality) {
	q.Recorded += o.Recorded
	q.Known += o.Known
	q.FromSnapshots += o.FromSnapshots
	q.Reconstructed += o.Reconstructed
	q.Approximate += o.Approximate
	q.Contradictions += o.Contradictions
	q.KnownShare = Share(q.Known, q.Recorded)
}

// FitConfig is one configuration (spec#configuration) of the fit.
type FitConfig struct {
	Key        string            `json:"key"`   // stable id
	Label      string            `json:"label"` // model/hardware/tp for people
	Runs       []string          `json:"runs"`
	Deployment deploy.Deployment `json:"deployment"`
	// Means over the configuration's finished requests; null when unknown. The
	// exporters linearise the step time there.
	MeanPromptTokens *float64 `json:"mean_prompt_tokens"`
	MeanOutputTokens *float64 `json:"mean_output_tokens"`
	// Covered is the load and the lengths that the recordings reached (spec#covered-region).
	// It is absent if unknown, as in fits from Gram files.
	Covered *Covered `json:"covered,omitempty"`
}

// Covered is the largest load and the longest requests of the recordings (spec#covered-region). A
// prediction beyond them extrapolates.
type Covered struct {
	Running      int64    `json:"running"`        // most requests running at once
	RequestsPerS *float64 `json:"requests_per_s"` // over the busiest 50 gaps between arrivals; null with fewer, or with sampled journeys
	PromptTokens int64    `json:"prompt_tokens"`  // longest prompt of a finished request
	OutputTokens int64    `json:"output_tokens"`  // longest output of one
}
