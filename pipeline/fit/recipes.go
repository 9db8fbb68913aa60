package fit

// This file decides whether a fit keeps the library's prior, by cross-validation (spec#recipe-choice).

import (
	"context"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// mostFromPrior is the largest error of the library's prior, as a multiple of the error without a
// prior, at which the prior is kept in any case.
const mostFromPrior = 1.5

// RecipeChoice is the result of ChooseRecipe.
type RecipeChoice struct {
	Options Options              // of the chosen recipe
	Scores  []result.RecipeScore // of all recipes
	Steps   Steps                // to be fitted with Options
}

// ChooseRecipe compares the step time under the options o, whose prior is the library's, with that
// of spec 1.1 without a prior, and returns the options that predict held-out configurations better,
// or held-out blocks of time if there is one configuration (spec#recipe-choice). The library's
// prior is given up only if both hold: its error is at least mostFromPrior times as large, and the
// gain exceeds the standard error of the differences. The reason is that it also covers loads that
// were not recorded: blocks of one recording are alike, and a model that follows them more closely
// can be far off at another load. The hold-out takes no part in the choice.
func ChooseRecipe(ctx context.Context, sources []Source, o Options, progress trace.Progress) (RecipeChoice, error) {
	plain := o
	plain.Prior = PriorZero
	plain.Spec = features.V11
	withoutPrior := withoutStoredRows(sources)
	ofPlain, plainErrs, err := scorePlain(ctx, withoutPrior, plain)
	if err != nil {
		return RecipeChoice{}, err
	}
	// The fitter of the first recipe is kept, with all rows of a fit: this recipe is seldom given up,
	// and its rows need not be made twice.
	f, err := newFitter(ctx, sources, o, progress)
	if err != nil {
		return RecipeChoice{}, err
	}
	ofPrior, priorErrs, err := f.scoreRecipe()
	if err != nil {
		return RecipeChoice{}, err
	}
	gain := make([]float64, len(priorErrs))
	for k := range gain {
		gain[k] = priorErrs[k] - plainErrs[k]
	}
	choice := RecipeChoice{
		Options: o,
		Scores:  []result.RecipeScore{ofPrior, ofPlain},
		Steps:   Steps{Sources: sources, prepared: f},
	}
	isLarge := stat.Mean(priorErrs) > mostFromPrior*mostFromPrior*stat.Mean(plainErrs) // scores are squares
	best := 0
	if isLarge && stat.Mean(gain) > stat.StdErr(gain) {
		best = 1
		choice.Options = plain
		choice.Steps = Steps{Sources: withoutPrior}
	}
	choice.Scores[best].Chosen = true
	return choice, nil
}

// CompareUncalibrated returns a finding if the chosen recipe predicts held-out parts no better than the library does
// without the measurements.
func CompareUncalibrated(scores []result.RecipeScore) []trace.Finding {
	var uncalibrated, chosen float64
	for _, s := range scores {
		if s.Uncalibrated != nil {
			uncalibrated = *s.Uncalibrated
		}
		if s.Chosen && s.RelErr != nil {
			chosen = *s.RelErr
		}
	}
	if uncalibrated == 0 || chosen == 0 || chosen < uncalibrated {
		return nil
	}
	return []trace.Finding{trace.Findingf(NoGain,
		"the library alone predicts the step times with %.3g %% error, the fit those held out with %.3g %%: these "+
			"measurements add nothing to it; record more loads, or use --coefficients library", 100*uncalibrated, 100*chosen)}
}

// scorePlain returns the score of the recipe without a prior, of which no rows but those of the step
// time are made.
func scorePlain(ctx context.Context, sources []Source, o Options) (score result.RecipeScore, errs []float64, err error) {
	o.noDelays = true
	o.Models = []string{}
	f, err := newFitter(ctx, sources, o, nil)
	if err != nil {
		return score, nil, err
	}
	return f.scoreRecipe()
}

// scoreRecipe returns the cross-validated error of the step time. errs are the errors of the held-out
// parts.
func (f *fitter) scoreRecipe() (score result.RecipeScore, errs []float64, err error) {
	s, m, err := f.selectBeta()
	if err != nil {
		return score, nil, err
	}
	sel := &m.Rel[f.gamma]
	errs, part := heldOutScores(sel)
	mean := stat.Mean(errs)
	score = result.RecipeScore{
		Spec:    string(f.o.Spec),
		Prior:   f.o.Prior,
		Form:    s.formName(),
		Lambda:  result.OrNull(sel.Lambda),
		RelErr:  result.OrNull(math.Sqrt(mean)),
		SE:      result.OrNull(stat.StdErr(errs) / (2 * math.Sqrt(mean))),
		HeldOut: part,
		Parts:   len(errs),
	}
	// The library's own error is compared with blocks of known configurations only: a configuration that was
	// held out whole is predicted by a fit of others, which may well be worse than the library.
	if f.prior != nil && part == result.HeldOutBlocks {
		score.Uncalibrated = result.OrNull(f.uncalibratedError(s))
	}
	return score, errs, nil
}

// heldOutScores returns the scores of the parts that a selection held out, and what the parts are.
// With three configurations or more, lambda is chosen without the held-out one.
func heldOutScores(sel *ridge.Selection) (scores []float64, part string) {
	if len(sel.Nested) > 0 {
		for _, n := range sel.Nested {
			scores = append(scores, n.Outer)
		}
		return scores, result.HeldOutConfigs
	}
	if p := &sel.Grid[sel.Index]; p.Loco != nil {
		return p.Loco, result.HeldOutConfigs
	}
	return sel.Grid[sel.Index].FoldScores, result.HeldOutBlocks
}

// withoutStoredRows returns the sources without their stored rows (Source.Rows). Rows are stored for
// the library's prior; the recipe without a prior has another version of the features, and makes its
// rows from the recordings.
func withoutStoredRows(sources []Source) []Source {
	out := slices.Clone(sources)
	for i := range out {
		out[i].Rows = ""
	}
	return out
}
