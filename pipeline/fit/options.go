package fit

// This file has the options of a fit, their defaults and their limits. flags.go makes command-line
// flags of them.

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Recipes: how rows are cleaned and weighted, and how lambda is chosen (spec#recipe).
const (
	Relative = "relative" // relative errors count
	Frozen   = "frozen"   // that of earlier coefficients (spec 1.0), kept unchanged so that they can be made again
)

// Priors of the time-like coefficients.
const (
	PriorZero     = "zero"
	PriorRoofline = "roofline" // 1e6 us/s: the hardware's peak
	// PriorLibrary is the sums of each deployment's measured kernels, with their
	// covariance. It needs spec 1.2 or 1.3.
	PriorLibrary = "library"
)

// Options decide a fit. Resolve replaces zero values by the defaults given below.
type Options struct {
	Spec         features.Version // default 1.1, or 1.3 if a deployment needs it
	Recipe       string           // default: frozen for spec 1.0, else relative
	BetaTarget   string           // default: duration for spec 1.0, else cadence
	AlphaTargets []string         // default: queue for spec 1.0, else overhead, admission and egress

	// Objective is within, cross or minimax. Empty is within for one or two
	// configurations and cross for more.
	Objective string

	// Selection is SelectMinimum (the default) or SelectOneStandard, for the lambda of the step
	// time under Relative and within one or two configurations.
	Selection string

	Split float64 // training share of each phase, (0, 1]; default 0.8
	Lag   *int    // nil: measured for each run

	// Prior is zero (the default), roofline, library or the name of a coefficient file
	// of version 1.2 or later with a covariance.
	Prior string
	// Library returns the set of a deployment for PriorLibrary; nil is LibraryFor.
	Library func(*deploy.Deployment) (*coeff.Set, error)

	Bootstraps    int      // block bootstrap draws; default 500, at least MinBootstraps
	Seed          int64    // DefaultOptions has 1; 0 is a seed like any other
	RefitAll      bool     // refit with the chosen lambda, gamma and lag on all rows
	Models        []string // default blackbox, roofline, trained-physics
	Without       []string // ids of runs to exclude
	KeepSaturated bool     // do not exclude saturated runs
	MaxRows       int      // largest number of step rows to fit; 0: no limit
	Workers       int      // 0: all cores; never changes a result

	// Rows receives the rows behind the fit, once they are final; may be nil.
	Rows func(*Dump) error

	OneConfig bool // all runs have one configuration: no leave-one-configuration-out
	BetaOnly  bool // only rows and coverage of the step time are needed, of whole runs (no slices)
	noDelays  bool // rows of the step time alone, slice by slice, for ChooseRecipe

	slicesAtOnce int // slices of a run that are in memory at the same time; up to 1: one
}

// DefaultOptions returns the options of spec 1.1.
func DefaultOptions() Options {
	o, _ := Options{Seed: 1, MaxRows: rows.DefaultMaxRows}.Resolve()
	return o
}

// BareOptions returns DefaultOptions without those that depend on the version of the specification.
// Resolve sets recipe, targets and models once the version is known.
func BareOptions() Options {
	d := DefaultOptions()
	return Options{Split: d.Split, Bootstraps: d.Bootstraps, Seed: d.Seed, MaxRows: d.MaxRows}
}

// PriorOpen reports whether the options leave the prior to the deployments (spec#prior-default):
// none of them sets the prior or anything that a library prior does not support.
func (o *Options) PriorOpen() bool {
	allowsRecipe := o.Recipe == "" || o.Recipe == Relative
	allowsTarget := o.BetaTarget == "" || o.BetaTarget == coeff.Cadence
	return o.Prior == "" && o.Spec == "" && allowsRecipe && allowsTarget
}

// Command returns the `command` of fit.json: the stage and every option that can
// change its numbers (spec#documents).
func (o Options) Command() (string, error) {
	o, err := o.Resolve()
	return option.Command("fit", o.Flags()), err
}

// MinBootstraps is the smallest useful number of draws for a 95 % interval.
const MinBootstraps = 50

// Resolve returns the options with defaults set, and an error for one out of range.
func (o Options) Resolve() (Options, error) {
	// The prior and the version come first, because the defaults below depend on the version.
	o.Prior = cmp.Or(o.Prior, PriorZero)
	if o.FromSets() && o.Spec == "" {
		o.Spec = features.V12 // sets with a covariance have at least this version
	}
	o.Spec = cmp.Or(o.Spec, features.V11)
	if err := features.CheckVersion(o.Spec); err != nil {
		return o, err
	}
	recipe := Relative
	alphaTargets := []string{coeff.Admission, coeff.Egress, coeff.Overhead}
	if o.Spec == features.V10 {
		recipe = Frozen
		alphaTargets = []string{coeff.Queue}
	}
	o.Recipe = cmp.Or(o.Recipe, recipe)
	o.BetaTarget = cmp.Or(o.BetaTarget, rows.DefaultBetaTarget(o.Spec))
	if len(o.AlphaTargets) == 0 {
		o.AlphaTargets = alphaTargets
	}
	if o.Models == nil {
		o.Models = []string{Blackbox, Roofline, TrainedPhysics}
	}
	o.AlphaTargets = sortedSet(o.AlphaTargets)
	o.Models = sortedSet(o.Models)
	o.Without = sortedSet(o.Without)
	o.Selection = cmp.Or(o.Selection, SelectMinimum)
	o.Split = cmp.Or(o.Split, rows.DefaultSplit)
	o.Bootstraps = cmp.Or(o.Bootstraps, 500)
	return o, o.checkValues()
}

// sortedSet returns a sorted copy without duplicates, so that the recorded command does not
// depend on the order of flags.
func sortedSet(list []string) []string {
	sorted := slices.Clone(list)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// checkValues returns an error for the first option outside its range.
func (o Options) checkValues() error {
	bad := func(name string, got any, want string) error {
		return trace.Errorf(rows.BadOption, "%s: got %v, want %s", name, got, want)
	}
	switch {
	case o.Recipe != Relative && o.Recipe != Frozen:
		return bad("recipe", o.Recipe, "relative or frozen")
	case o.BetaTarget != coeff.Cadence && o.BetaTarget != coeff.Duration:
		return bad("beta-target", o.BetaTarget, "cadence or duration")
	case o.Selection != SelectMinimum && o.Selection != SelectOneStandard:
		return bad("selection", o.Selection, "minimum or one-standard-error")
	case !(o.Split > 0 && o.Split <= 1):
		return bad("split", o.Split, "a share in (0, 1]")
	case o.FromSets() && o.Prior != PriorLibrary && !isRegularFile(o.Prior):
		return bad("prior", strconv.Quote(o.Prior), "zero, roofline, library or a coefficient file")
	case o.FromSets() && (o.Spec == features.V10 || o.Spec == features.V11):
		return bad("prior", o.Prior, "zero or roofline with spec 1.0 and 1.1")
	case o.FromSets() && o.Recipe == Frozen:
		return bad("prior", o.Prior, "zero or roofline with the frozen recipe")
	case o.Bootstraps < MinBootstraps:
		return bad("bootstraps", o.Bootstraps, fmt.Sprintf("at least %d", MinBootstraps))
	case o.Lag != nil && (*o.Lag < 0 || *o.Lag > 2):
		return bad("lag", *o.Lag, "0, 1 or 2")
	}
	switch ridge.Objective(o.Objective) {
	case ridge.Auto, ridge.Within, ridge.Cross, ridge.Minimax:
	default:
		return bad("objective", o.Objective, "within, cross or minimax")
	}
	for _, target := range o.AlphaTargets {
		switch target {
		case coeff.Overhead, coeff.Admission, coeff.Egress, coeff.Queue:
		default:
			return bad("alpha-target", target, "overhead, admission, egress or queue")
		}
	}
	for _, model := range o.Models {
		switch model {
		case Blackbox, Roofline, TrainedPhysics, Linear3:
		default:
			return bad("model", model, "blackbox, trained-physics, roofline or linear3")
		}
	}
	return rows.CheckMaxRows(o.MaxRows)
}

// Others reports whether the fit has other models with rows of their own. Roofline is
// computed from the rows of the step time.
func (o *Options) Others() bool {
	return slices.ContainsFunc(o.Models, func(name string) bool { return name != Roofline })
}

// FromSets reports whether the prior is a coefficient set: the library's or that of a file.
func (o *Options) FromSets() bool { return o.Prior != PriorZero && o.Prior != PriorRoofline }

// isRegularFile reports whether there is a regular file at the path.
func isRegularFile(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode().IsRegular()
}

// Record returns the options as fit.json has them.
func (o Options) Record() result.FitOptions {
	r := result.FitOptions{
		Spec:       string(o.Spec),
		Recipe:     o.Recipe,
		BetaTarget: o.BetaTarget,
		Objective:  o.Objective,
		Split:      o.Split,
		Seed:       o.Seed,
		Bootstraps: o.Bootstraps,
		RefitAll:   o.RefitAll,
		Prior:      o.Prior,
		Selection:  o.Selection,
		Without:    append([]string{}, o.Without...),
	}
	if o.MaxRows != rows.DefaultMaxRows {
		r.MaxRows = &o.MaxRows
	}
	return r
}
