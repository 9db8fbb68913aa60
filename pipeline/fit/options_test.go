package fit

import (
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
)

// TestPriorIsOpen: the deployments choose the prior unless an option sets it or rules the library's out.
func TestPriorIsOpen(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Options
		want bool
	}{
		{"nothing set", BareOptions(), true},
		{"more draws", Options{Bootstraps: 900}, true},
		{"the library's recipe and target", Options{Recipe: Relative, BetaTarget: coeff.Cadence}, true},
		{"a prior", Options{Prior: PriorZero}, false},
		{"the library's prior", Options{Prior: PriorLibrary}, false},
		{"a version", Options{Spec: features.V12}, false},
		{"another recipe", Options{Recipe: Frozen}, false},
		{"another target", Options{BetaTarget: coeff.Duration}, false},
	} {
		if got := c.o.PriorOpen(); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

// TestDefaultsFollowTheVersion: what an option leaves open is what its spec version has.
func TestDefaultsFollowTheVersion(t *testing.T) {
	of11 := []string{coeff.Admission, coeff.Egress, coeff.Overhead}
	for _, c := range []struct {
		name                  string
		o                     Options
		prior, recipe, target string
		spec                  features.Version
		alpha                 []string
	}{
		{"nothing set", Options{}, PriorZero, Relative, coeff.Cadence, features.V11, of11},
		{"1.0", Options{Spec: features.V10}, PriorZero, Frozen, coeff.Duration, features.V10, []string{coeff.Queue}},
		{"1.3", Options{Spec: features.V13}, PriorZero, Relative, coeff.Cadence, features.V13, of11},
		{"roofline's prior", Options{Prior: PriorRoofline}, PriorRoofline, Relative, coeff.Cadence, features.V11, of11},
		{"library's prior", Options{Prior: PriorLibrary}, PriorLibrary, Relative, coeff.Cadence, features.V12, of11},
		{"library's prior, 1.3", Options{Prior: PriorLibrary, Spec: features.V13}, PriorLibrary, Relative, coeff.Cadence,
			features.V13, of11},
		{"targets twice", Options{AlphaTargets: []string{coeff.Queue, coeff.Egress, coeff.Queue}}, PriorZero, Relative, coeff.Cadence,
			features.V11, []string{coeff.Egress, coeff.Queue}},
	} {
		o, err := c.o.Resolve()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if o.Prior != c.prior || o.Recipe != c.recipe || o.BetaTarget != c.target || o.Spec != c.spec ||
			!slices.Equal(o.AlphaTargets, c.alpha) {
			t.Errorf("%s: got prior %s, recipe %s, target %s, spec %s, %v", c.name, o.Prior, o.Recipe, o.BetaTarget, o.Spec, o.AlphaTargets)
		}
		if o.Bootstraps != 500 || o.Selection != SelectMinimum || o.Split <= 0 || !slices.Equal(o.Models, []string{Blackbox, Roofline, TrainedPhysics}) {
			t.Errorf("%s: got %d draws, selection %s, split %g, models %v", c.name, o.Bootstraps, o.Selection, o.Split, o.Models)
		}
	}
}

// TestRangesOfOptions: the last value inside each range is taken, the first outside is refused.
func TestRangesOfOptions(t *testing.T) {
	lag := func(n int) *int { return &n }
	for _, c := range []struct {
		name    string
		in, out Options
	}{
		{"bootstraps", Options{Bootstraps: 50}, Options{Bootstraps: 49}},
		{"split, high", Options{Split: 1}, Options{Split: 1.0001}},
		{"split, low", Options{Split: 0.0001}, Options{Split: -0.0001}},
		{"lag, high", Options{Lag: lag(2)}, Options{Lag: lag(3)}},
		{"lag, low", Options{Lag: lag(0)}, Options{Lag: lag(-1)}},
		{"library and recipe", Options{Prior: PriorLibrary, Recipe: Relative}, Options{Prior: PriorLibrary, Recipe: Frozen}},
		{"library and version", Options{Prior: PriorLibrary, Spec: features.V12}, Options{Prior: PriorLibrary, Spec: features.V10}},
		{"library and a version asked for", Options{Prior: PriorLibrary}, Options{Prior: PriorLibrary, Spec: features.V11}},
		{"roofline and version", Options{Prior: PriorRoofline, Spec: features.V10}, Options{Prior: "roof", Spec: features.V10}},
	} {
		if _, err := c.in.Resolve(); err != nil {
			t.Errorf("%s: refused inside its range: %v", c.name, err)
		}
		if _, err := c.out.Resolve(); err == nil {
			t.Errorf("%s: taken outside its range", c.name)
		}
	}
}
