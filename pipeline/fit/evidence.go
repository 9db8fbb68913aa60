package fit

// This file has the kinds of evidence a fit can learn from, and the options that do not apply to each.

import (
	"context"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Evidence is the input of a fit: Steps and Grams of this package, Requests and Points of package
// requestfit.
type Evidence interface {
	// Kind names the evidence and the options that do not apply to it.
	Kind() Kind
	// Fit fits the coefficients. The result has no header yet.
	Fit(ctx context.Context, o Options, progress trace.Progress) (*result.Fit, error)
}

// Kind is one kind of evidence.
type Kind struct {
	Name     string   // the value of --from, or the name of the files
	Excludes []string // options that do not apply to this evidence and are therefore refused
}

// Kinds of evidence, with the options that do not apply to each. Both the command line and the
// stage check options by this list.
var (
	// FromSteps is step traces.
	FromSteps = Kind{
		Name:     "steps",
		Excludes: []string{"search", "holdout", "form", "budget", "deployment"},
	}
	// FromRequests is what clients or stock spans recorded of requests (spec#request-level).
	FromRequests = Kind{
		Name:     "requests",
		Excludes: append([]string{"deployment"}, stepsAlone...),
	}
	// FromPoints is tables of load levels: means of a benchmark's requests.
	FromPoints = Kind{
		Name:     "points",
		Excludes: append([]string{"only", "exclude", "without", "split", "keep-saturated", "holdout"}, stepsAlone...),
	}
	// FromGrams is Gram files: sums of rows that Save made elsewhere.
	FromGrams = Kind{
		Name: "Gram files",
		Excludes: []string{"save-gram", "dump-rows", "refit-all", "only", "exclude", "keep-saturated", "shared-prefix-tokens",
			"holdout", "deployment", "from", "search", "form", "budget", "max-rows"},
	}
)

// stepsAlone are options that apply only to a fit from steps.
var stepsAlone = []string{"save-gram", "dump-rows", "refit-all", "lag", "objective", "model", "alpha-target", "max-rows"}

// Refusal returns the error for an option that does not apply to this evidence, with the kinds of
// evidence that it applies to; nil if it applies. name is that of the flag, without dashes.
func (k Kind) Refusal(name string) error {
	if !slices.Contains(k.Excludes, name) {
		return nil
	}
	var with []string
	for _, other := range []Kind{FromSteps, FromRequests, FromPoints, FromGrams} {
		if !slices.Contains(other.Excludes, name) {
			with = append(with, other.Name)
		}
	}
	refusal := &option.Misuse{Msg: name + ": goes with a fit from " + strings.Join(with, " or ") + " only"}
	if name == "holdout" && k.Name == FromSteps.Name {
		refusal.Hint = "a run that --without excludes from a fit from steps is a test run of validate"
	}
	return refusal
}

// Steps is the evidence of step traces.
type Steps struct {
	Sources  []Source
	prepared *fitter // with the rows of the sources, if ChooseRecipe has made them; else nil
}

// Kind returns FromSteps.
func (Steps) Kind() Kind { return FromSteps }

// Fit returns the fit of every model asked for, as the function of the same name does. The steps of
// a RecipeChoice are fitted with its options.
func (s Steps) Fit(ctx context.Context, o Options, progress trace.Progress) (*result.Fit, error) {
	if s.prepared != nil {
		return s.prepared.fit(ctx)
	}
	return Fit(ctx, s.Sources, o, progress)
}

// Grams is the evidence of Gram files.
type Grams struct{ Files []ridge.File }

// Kind returns FromGrams.
func (Grams) Kind() Kind { return FromGrams }

// Fit returns the fit of the step time, as FitGrams does.
func (g Grams) Fit(ctx context.Context, o Options, _ trace.Progress) (*result.Fit, error) {
	return FitGrams(ctx, g.Files, o)
}
