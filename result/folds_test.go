package result

import "testing"

// TestRepeatedFoldsByHand: folds that repeat an earlier one, and the delays that are constants.
func TestRepeatedFoldsByHand(t *testing.T) {
	m := Model{Name: "overhead", FoldFingerprints: []string{"x", "y", "z", "y", "x"}}
	if a, b, found := m.RepeatedFold(); m.RepeatedFolds() != 2 || a != 1 || b != 3 || !found {
		t.Errorf("got %d, folds %d and %d (%v), want 2, 1 and 3", m.RepeatedFolds(), a, b, found)
	}
	if m.IsConstantDelay() {
		t.Error("a model without coefficients is a constant")
	}
	m.FoldFingerprints = m.FoldFingerprints[:3]
	if _, _, found := m.RepeatedFold(); m.RepeatedFolds() != 0 || found {
		t.Error("distinct folds repeat each other")
	}
	m.Coefficients = make([]Coefficient, 2)
	base, slope := &m.Coefficients[0], &m.Coefficients[1]
	base.Name, base.FoldSpread = "base_bias", &[2]float64{1, 2}
	slope.Name, slope.Range = "admission_compute", &[2]float64{0, 0.5}
	for _, c := range []struct {
		name   string
		spread *[2]float64
		want   bool
	}{
		{"overhead", &[2]float64{0, 0}, true},
		{"overhead", &[2]float64{0, 0.002}, true}, // 1 ns
		{"overhead", &[2]float64{0, 0.0021}, false},
		{"overhead", &[2]float64{-0.0021, 0}, false},
		{"overhead", nil, false},
		{"beta", &[2]float64{0, 0}, false},
	} {
		m.Name, slope.FoldSpread = c.name, c.spread
		if got := m.IsConstantDelay(); got != c.want {
			t.Errorf("%s %v: got %v", c.name, c.spread, got)
		}
	}
	m.Name, slope.FoldSpread, slope.Range = "overhead", &[2]float64{0, 0}, nil
	if m.IsConstantDelay() {
		t.Error("a term of unknown range is 0")
	}
}
