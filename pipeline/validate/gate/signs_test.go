package gate

import (
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
)

// A term added in front moves every slot; the signs of the same terms are checked.
func TestSignsAreCheckedByName(t *testing.T) {
	terms := features.NewCoefficients(features.BetaFeatures(features.V11))
	for i := range terms {
		terms[i].Value = 1
		terms[i].Identified = coeff.Within
		if !slices.Contains(mustBePositive, terms[i].Name) {
			terms[i].Value = 0 // legal for every term but three
		}
	}
	set := &coeff.Set{Beta: append([]coeff.Coefficient{{Name: "single_prefill", Identified: coeff.Within}}, terms...)}
	if got := impossibleSigns(set); got.value == nil || *got.value != 0 {
		t.Errorf("got %+v, want no violation", got)
	}
	for i := range set.Beta {
		if slices.Contains(mustBePositive, set.Beta[i].Name) {
			set.Beta[i].Value = 0
		} else {
			set.Beta[i].Value = -1
		}
	}
	if got := impossibleSigns(set); got.value == nil || *got.value != 4 {
		t.Errorf("got %+v, want 4 violations", got)
	}
	for i := range set.Beta {
		set.Beta[i].Identified = coeff.PriorOnly
	}
	if got := impossibleSigns(set); got.value != nil || !got.optional {
		t.Errorf("got %+v, want no value where no term is identified", got)
	}
}

// The names of the sign check are names of the feature list.
func TestCheckedSignsExist(t *testing.T) {
	names := features.Names(features.BetaFeatures(features.V11))
	for _, want := range append(slices.Clone(mustBePositive), mayBeZero) {
		if !slices.Contains(names, want) {
			t.Errorf("%s is no term of 1.1", want)
		}
	}
}
