package fit

import (
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

// Recipes (spec#recipe).
const (
	Relative = "relative"
	Frozen   = "frozen"
)

// Priors of the time-like coefficients.
const (
	PriorZero     = "zero"
	PriorRoofline = "roofline" // 1e6 us/s: the hardware's peak
	PriorLibrary  = "library"  // the sums of each deployment's measured kernels, with their covariance; spec 1.2 or 1.3
)

// Options decide a fit. The zero value of a field is its default unless said otherwise.
type Options struct {
	Spec         features.Version // default 1.1, or 1.3 where a deployment needs it
	Recipe       string           // default: relative for 1.1, frozen for 1.0
	BetaTarget   string           // default: cadence for 1.1, duration for 1.0
	AlphaTargets []string         // default: overhead, admission, egress for 1.1, queue for 1.0
	Objective    string           // within | cross | minimax; empty: within for one or two configurations, else cross
	Split        float64          // training share of each phase, (0, 1]; default 0.8
	Lag          *int             // nil: measured per run
	Prior        string           // zero (default), roofline, library, or a coefficient file of version 1.2 with a covariance
	// Library gives the sets of Prior library in place of LibraryFor; nil: that.
	Library       func(*deploy.Deployment) (*coeff.Set, error)
	Bootstraps    int      // block bootstrap draws; default 500, at least 50
	Seed          int64    // 0 is seed 0; 1 in DefaultOptions
	RefitAll      bool     // refit with the chosen lambda, gamma and lag on all rows
	Models        []string // default blackbox, roofline, trained-physics
	Without       []string // run ids to leave out
	KeepSaturated bool     // do not exclude saturated runs
	MaxRows       int      // rows of steps learned from, at most; 0: all of them
	Workers       int      // 0: all cores; never changes a result
	// Rows receives the rows behind the fit, once they are final; may be nil.
	Rows func(*Dump) error

	OneConfig bool // all runs have one configuration: none is left out
	BetaOnly  bool // rows and coverage of the step time are all that is needed
}

// Default are the options of spec 1.1.
func DefaultOptions() Options {
	o, _ := Options{Seed: 1, MaxRows: rows.DefaultMaxRows}.Resolve()
	return o
}

// BareOptions are DefaultOptions but for what depends on the spec version: recipe,
// targets and models are filled in by Resolve.
func BareOptions() Options {
	d := DefaultOptions()
	return Options{Split: d.Split, Bootstraps: d.Bootstraps, Seed: d.Seed, MaxRows: d.MaxRows}
}

// PriorOpen reports that neither a prior was asked for nor anything that excludes a library's
// prior, so that it may be chosen by the deployments (spec#prior-default).
func (o *Options) PriorOpen() bool {
	usual := (o.Recipe == "" || o.Recipe == Relative) && (o.BetaTarget == "" || o.BetaTarget == coeff.Cadence)
	return usual && o.Prior == "" && o.Spec == ""
}

// Command is the `command` of fit.json: the stage and every option that can
// change its numbers (spec#documents).
func (o Options) Command() (string, error) {
	o, err := o.Resolve()
	return option.Command("fit", o.Flags()), err
}

// MinBootstraps is the smallest useful number of draws for a 95 % interval.
const MinBootstraps = 50

// Resolve fills defaults and checks ranges.
func (o Options) Resolve() (Options, error) {
	if setDefault(&o.Prior, PriorZero); o.FromSets() && (o.Spec == "" || o.Spec == features.V11) {
		o.Spec = features.V12 // the version of such sets
	}
	if o.Spec == "" {
		o.Spec = features.V11
	}
	if err := features.CheckVersion(o.Spec); err != nil {
		return o, err
	}
	old := o.Spec == features.V10
	if old {
		setDefault(&o.Recipe, Frozen)
	}
	setDefault(&o.Recipe, Relative)
	setDefault(&o.BetaTarget, rows.DefaultBetaTarget(o.Spec))
	if len(o.AlphaTargets) == 0 {
		o.AlphaTargets = []string{coeff.Admission, coeff.Egress, coeff.Overhead}
		if old {
			o.AlphaTargets = []string{coeff.Queue}
		}
	}
	if o.Models == nil {
		o.Models = []string{Blackbox, Roofline, TrainedPhysics}
	}
	for _, list := range []*[]string{&o.AlphaTargets, &o.Models, &o.Without} { // the order in which they are recorded
		*list = slices.Clone(*list)
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if o.Split == 0 {
		o.Split = rows.DefaultSplit
	}
	if o.Bootstraps == 0 {
		o.Bootstraps = 500
	}
	return o, o.check()
}

func (o Options) check() error {
	bad := func(name string, got any, want string) error {
		return trace.Errorf(rows.BadOption, "%s: got %v, want %s", name, got, want)
	}
	switch {
	case o.Recipe != Relative && o.Recipe != Frozen:
		return bad("recipe", o.Recipe, "relative or frozen")
	case o.BetaTarget != coeff.Cadence && o.BetaTarget != coeff.Duration:
		return bad("beta-target", o.BetaTarget, "cadence or duration")
	case !(o.Split > 0 && o.Split <= 1):
		return bad("split", o.Split, "a share in (0, 1]")
	case o.FromSets() && o.Prior != PriorLibrary && !isSetFile(o.Prior):
		return bad("prior", strconv.Quote(o.Prior), "zero, roofline, library or a coefficient file")
	case o.FromSets() && o.Spec == features.V10:
		return bad("prior", o.Prior, "zero or roofline with spec 1.0")
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
	known := []string{coeff.Overhead, coeff.Admission, coeff.Egress, coeff.Queue}
	for _, t := range o.AlphaTargets {
		if !slices.Contains(known, t) {
			return bad("alpha-target", t, "overhead, admission, egress or queue")
		}
	}
	for _, m := range o.Models {
		if !slices.Contains([]string{Blackbox, Roofline, TrainedPhysics, Linear3}, m) {
			return bad("model", m, "blackbox, trained-physics, roofline or linear3")
		}
	}
	return rows.CheckMaxRows(o.MaxRows)
}

// Others reports whether a model is asked for that has rows of its own.
func (o *Options) Others() bool {
	return slices.ContainsFunc(o.Models, func(name string) bool { return name != Roofline })
}

// FromSets reports whether the prior is a coefficient set.
func (o *Options) FromSets() bool { return o.Prior != PriorZero && o.Prior != PriorRoofline }

func isSetFile(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode().IsRegular()
}

// Record is the options as the document has them.
func (o Options) Record() result.FitOptions {
	r := result.FitOptions{
		Spec: string(o.Spec), Recipe: o.Recipe, BetaTarget: o.BetaTarget, Objective: o.Objective, Split: o.Split,
		Seed: o.Seed, Bootstraps: o.Bootstraps, RefitAll: o.RefitAll, Prior: o.Prior, Without: append([]string{}, o.Without...),
	}
	if o.MaxRows != rows.DefaultMaxRows {
		r.MaxRows = &o.MaxRows
	}
	return r
}

func setDefault(s *string, v string) {
	if *s == "" {
		*s = v
	}
}
