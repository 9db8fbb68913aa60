package coeff_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
)

// A configuration of the fit has its own factors, another configuration of its
// deployment the deployment's, another deployment the device's; prompt factors
// multiply the terms of prompt work alone, on top. They survive the file.
func TestFactorsOnADeployment(t *testing.T) {
	s, _ := ownOverhead()
	d := testDeployment()
	s.DeploymentFactors = map[string]float64{d.Label(): 2, d.Config(): 3}
	s.PromptFactors = map[string]float64{d.Label(): 5, d.Config(): 7}
	s.HardwareFactors = map[string]float64{d.Hardware.Name: 11}
	other, elsewhere := *d, *d
	other.Engine.MaxNumSeqs++
	elsewhere.TP *= 8
	var b bytes.Buffer
	if err := s.Save(&b); err != nil {
		t.Fatal(err)
	}
	read, err := Load(&b, "c.yaml", features.CheckSet)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []*Set{s, read} {
		got := [][2]float64{}
		on := [...]*Set{features.On(set, d), features.On(set, &other), features.On(set, &elsewhere)}
		for _, o := range on {
			got = append(got, [2]float64{o.Beta[0].Value / s.Beta[0].Value, o.Beta[2].Value / s.Beta[2].Value})
		}
		want := [][2]float64{{21, 3}, {10, 2}, {11, 11}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("factors of prefill_linear_compute and decode_weight_load: %s", diff)
		}
		if v := on[0].Covariance; len(v) > 2 && s.Covariance[0][2] != 0 && v[0][2] != 63*s.Covariance[0][2] {
			t.Errorf("covariance: got %g, want 63 times %g", v[0][2], s.Covariance[0][2])
		}
	}
}
