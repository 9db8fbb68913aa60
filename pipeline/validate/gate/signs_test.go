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
			set.Beta[i].Value, set.Beta[i].CI95 = 0, &[2]float64{0, 0}
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

// A term of every server is impossible below 0, and at 0 only where its interval ends there; the remark says what it is.
func TestTermsAtZero(t *testing.T) {
	for _, c := range []struct {
		value  float64
		ci95   *[2]float64
		want   float64
		remark string
	}{
		{1, nil, 0, ""},
		{0, nil, 0, "decode_weight_load is at its bound of 0: another term took its cost"},
		{0, &[2]float64{0, 1}, 0, "decode_weight_load is at its bound of 0: another term took its cost"},
		{0, &[2]float64{0, 0}, 1, "decode_weight_load is at its bound of 0, where its interval ends: another term took its cost"},
		{-1, &[2]float64{-2, 1}, 1, "decode_weight_load is negative"},
	} {
		set := &coeff.Set{Beta: []coeff.Coefficient{{Name: "decode_weight_load", Identified: coeff.Within, Value: c.value, CI95: c.ci95}}}
		if got := impossibleSigns(set); got.value == nil || *got.value != c.want || got.remark != c.remark {
			t.Errorf("%g in %v: got %+v", c.value, c.ci95, got)
		}
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
