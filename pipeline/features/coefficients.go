package features

// This file connects features with the terms of coefficient files, by position and by name.

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/trace"
)

// NewCoefficients returns coefficients of value 0 with the names and units of the features.
func NewCoefficients(fs []Feature) []coeff.Coefficient {
	var out []coeff.Coefficient
	for _, f := range fs {
		out = append(out, coeff.Coefficient{Name: f.Name, Unit: f.CoefficientUnit()})
	}
	return out
}

// CheckSet returns an error for a coefficient set whose version this build does not have, or whose
// terms differ from the version's in name, unit or definition (spec#artifact-load). The flat form
// of 1.0 has neither names nor units, so its terms get those of their slots. [coeff.Load] uses this
// function as its check. Codes: unknown_spec_version, wrong_feature_set, bad_coefficient_file.
func CheckSet(s *coeff.Set) error {
	if err := CheckVersion(s.SpecVersion); err != nil {
		return err
	}
	beta := BetaFeatures(s.SpecVersion)
	alpha := AlphaFeatures(s.SpecVersion)
	var alphaNames []string // all delays share one list
	for i := range s.Alpha {
		alphaNames = names(s.Alpha[i].Coefficients)
	}
	if err := checkFeatures(s.FeatureSet, s.SpecVersion, names(s.Beta), alphaNames); err != nil {
		return err
	}
	if err := checkTerms(s.SpecVersion, "beta_coefficients", s.Beta, beta); err != nil {
		return err
	}
	for i := range s.Alpha {
		m := &s.Alpha[i]
		if err := checkTerms(s.SpecVersion, "alpha."+m.Target+".coefficients", m.Coefficients, alpha); err != nil {
			return err
		}
	}
	return nil
}

// checkTerms compares coefficients with the features of the version. path is their place in the
// file, for the error.
func checkTerms(v Version, path string, cs []coeff.Coefficient, fs []Feature) error {
	if len(cs) != len(fs) {
		return trace.Errorf(coeff.BadFile, "%s: got %d coefficients, want %d", path, len(cs), len(fs))
	}
	for i := range cs {
		c, f := &cs[i], &fs[i]
		if c.Name == "" && v == V10 {
			c.Name, c.Unit = f.Name, f.CoefficientUnit()
		}
		if c.Name != f.Name {
			return trace.Errorf(coeff.BadFile, "%s[%d].name: got %q, want %q", path, i, c.Name, f.Name)
		}
		if c.Unit != f.CoefficientUnit() {
			return trace.Errorf(coeff.BadFile, "%s[%d].unit: got %q for %s, want %q", path, i, c.Unit, c.Name, f.CoefficientUnit()).
				WithHint("time-like terms are us/s, all others us")
		}
	}
	return nil
}

// names returns the coefficients' names in order.
func names(cs []coeff.Coefficient) []string {
	var out []string
	for _, c := range cs {
		out = append(out, c.Name)
	}
	return out
}
