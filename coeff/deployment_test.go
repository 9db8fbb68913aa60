package coeff_test

import (
	"bytes"
	"strings"
	"testing"

	. "github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// ownOverhead is the sample with an overhead of its own on the test deployment.
func ownOverhead() (*Set, []float64) {
	s := sample()
	m := s.AlphaModel(Overhead)
	values := make([]float64, len(m.Coefficients))
	for i := range values {
		values[i] = 100 / float64(i+3)
	}
	m.Coefficients[3].CI95 = &[2]float64{1, 2}
	m.Deployments = map[string][]float64{testDeployment().Label(): values, "other/H100-SXM-80GB/tp2": make([]float64, len(values))}
	return s, values
}

// Values of deployments are read back exactly, and faults in them are found.
func TestDeploymentValues(t *testing.T) {
	want, _ := ownOverhead()
	text, _ := saved(t, want)
	for _, c := range []struct {
		old, with string
		want      trace.Code
	}{{": [33.333333333333336, ", ": [", BadFile}, {"[33.333333333333336, ", "[.nan, ", BadFile}} {
		_, err := Load(strings.NewReader(strings.Replace(text, c.old, c.with, 1)), "c.yaml", features.CheckSet)
		if trace.CodeOf(err) != c.want {
			t.Errorf("%q: got %v, want %s", c.with, err, c.want)
		}
	}
}

// A delay on a deployment of the fit has that deployment's values and no interval;
// elsewhere, and for other targets, the common ones stay. Beta's factors do not
// touch it.
func TestAlphaOnADeployment(t *testing.T) {
	s, values := ownOverhead()
	s.DeploymentFactors = map[string]float64{testDeployment().Label(): 2}
	on := features.On(s, testDeployment())
	m := on.AlphaModel(Overhead)
	if diff := cmp.Diff(values, Values(m.Coefficients)); diff != "" || m.Coefficients[3].CI95 != nil || m.Deployments != nil {
		t.Errorf("got %+v, want the deployment's values\n%s", m, diff)
	}
	if on.Beta[0].Value != 2*s.Beta[0].Value {
		t.Errorf("beta: got %g, want twice %g", on.Beta[0].Value, s.Beta[0].Value)
	}
	if again := features.On(on, testDeployment()); cmp.Diff(on, again, cmpopts.EquateEmpty()) != "" {
		t.Error("a set that holds on a deployment changes when it is asked again")
	}
	elsewhere := testDeployment()
	elsewhere.TP = 8
	if got := features.On(s, elsewhere).AlphaModel(Overhead).Coefficients; got[3].CI95 == nil || got[3].Value != 0 {
		t.Errorf("elsewhere: got %+v, want the common coefficient", got[3])
	}
	if s.AlphaModel(Overhead).Deployments == nil || s.AlphaModel(Overhead).Coefficients[3].CI95 == nil {
		t.Error("On changed the set itself")
	}
}

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
