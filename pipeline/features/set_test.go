package features

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/trace"
)

// A fit made with another list under the same version is refused, and the
// message names the terms that differ.
func TestFeatureSetsNameTheTermsThatDiffer(t *testing.T) {
	ours := SetOf(V11)
	beta, alpha := Names(BetaFeatures(V11)), Names(AlphaFeatures(V11))
	if len(ours.Hash) != 16 || len(ours.Beta) != len(beta) || SetOf(V10).Hash == ours.Hash {
		t.Fatalf("got %+v", ours)
	}
	if err := checkFeatures(ours, V11, beta, alpha); err != nil {
		t.Error(err)
	}
	if err := checkFeatures(coeff.FeatureSet{}, V11, nil, nil); err != nil {
		t.Errorf("a file without a set: %v", err)
	}
	grown := coeff.FeatureSet{Hash: "0", Beta: append(slices.Clone(ours.Beta), "abcdef"), Alpha: slices.Clone(ours.Alpha)}
	grown.Beta[0], grown.Alpha[2] = "000000", "111111"
	err := checkFeatures(grown, V11, append(slices.Clone(beta[:15]), "single_prefill"), alpha)
	var coded *trace.Error
	if !errors.As(err, &coded) || coded.Code != WrongFeatureSet {
		t.Fatalf("got %v, want %s", err, WrongFeatureSet)
	}
	for _, want := range []string{"single_prefill is not in this build", beta[15] + " is not in the file",
		beta[0] + " has another definition", alpha[2] + " has another definition"} {
		if !strings.Contains(coded.Msg, want) {
			t.Errorf("got %q, want %q in it", coded.Msg, want)
		}
	}
	moved := coeff.FeatureSet{Hash: "1", Beta: slices.Clone(ours.Beta), Alpha: ours.Alpha}
	moved.Beta[0], moved.Beta[1] = ours.Beta[1], ours.Beta[0]
	swapped := slices.Clone(beta)
	swapped[0], swapped[1] = beta[1], beta[0]
	if err := checkFeatures(moved, V11, swapped, alpha); err == nil || !strings.Contains(err.Error(), "another order of terms") {
		t.Errorf("got %v", err)
	}
}

// Every part of a definition is in its digest.
func TestDigestCoversTheDefinition(t *testing.T) {
	base := BetaFeatures(V11)[0]
	seen := map[string]bool{base.digest(): true}
	for _, change := range []func(*Feature){
		func(f *Feature) { f.Name = "x" }, func(f *Feature) { f.Kind = Ratio }, func(f *Feature) { f.Formula += "*2" },
		func(f *Feature) { f.Bound *= 2 }, func(f *Feature) { f.Prompt = !f.Prompt },
	} {
		f := base
		change(&f)
		if d := f.digest(); seen[d] {
			t.Errorf("%+v has the digest %s of another", f, d)
		} else {
			seen[d] = true
		}
	}
}
