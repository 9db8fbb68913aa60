package export

// This file compares two coefficient files term by term.

import (
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// DiffDoc lists what changed from artifact A to artifact B; an artifact is a coefficient file.
type DiffDoc struct {
	SchemaVersion string       `json:"schema_version"`
	ToolVersion   string       `json:"tool_version"`
	A             result.Input `json:"a"`
	B             result.Input `json:"b"`
	// Significance is the source of the standard errors: stored intervals or a block bootstrap.
	Significance string       `json:"significance"`
	Level        float64      `json:"level"`     // family-wise, Holm
	Tolerance    float64      `json:"tolerance"` // relative change of a prediction that counts
	Terms        []TermDiff   `json:"terms"`
	Predictions  []Prediction `json:"predictions"`
	Settings     []string     `json:"settings"` // other differences, one sentence each
	Changed      bool         `json:"changed"`
	Reasons      []string     `json:"reasons"` // why Changed is true
}

// TermDiff is one coefficient in both artifacts.
type TermDiff struct {
	Model       string   `json:"model"` // beta or the alpha target
	Name        string   `json:"name"`
	Unit        string   `json:"unit"`
	A           float64  `json:"a"`
	B           float64  `json:"b"`
	Delta       float64  `json:"delta"`
	Ratio       *float64 `json:"ratio"` // B/A; null when A is 0
	SE          *float64 `json:"se"`    // of the difference; null when unknown
	P           *float64 `json:"p"`     // two-sided normal, before the correction
	Significant *bool    `json:"significant"`
	Note        string   `json:"note,omitempty"`
}

// Prediction is one figure of the reference workload under both artifacts.
type Prediction struct {
	Scope    string  `json:"scope"` // configuration
	Workload string  `json:"workload"`
	Metric   string  `json:"metric"` // ttft | itl | e2e and the statistic
	AMs      float64 `json:"a_ms"`
	BMs      float64 `json:"b_ms"`
	Change   float64 `json:"relative_change"` // B/A - 1
}

// DiffOptions decide what counts as a change.
type DiffOptions struct {
	Level     float64 // family-wise error of "moved", in (0, 1)
	Tolerance float64 // relative change of a prediction, > 0
	// Bootstrap has the coefficients of a fit on the given tables, by model. If it is set, the
	// intervals of these coefficients replace the stored ones.
	Bootstrap map[string][]result.Coefficient
}

// DefaultDiffOptions returns a family-wise error of 5 % and a tolerance of 1 % of a prediction.
func DefaultDiffOptions() DiffOptions { return DiffOptions{Level: 0.05, Tolerance: 0.01} }

// Check returns an error for an option out of range.
func (o DiffOptions) Check() error {
	switch {
	case !(o.Level > 0 && o.Level < 1):
		return trace.Errorf(notComparable, "--level: got %g, want in (0, 1)", o.Level)
	case !(o.Tolerance > 0) || math.IsInf(o.Tolerance, 0):
		return trace.Errorf(notComparable, "--tolerance: got %g, want > 0", o.Tolerance)
	}
	return nil
}

// Where the standard errors of a diff come from.
const (
	fromStored    = "stored_intervals"
	fromBootstrap = "block_bootstrap"
)

// Diff compares two artifacts of one version of the specification term by term, and returns the
// document with the predictions given for both. It returns the code not_comparable for artifacts of
// different versions.
//
// A term moved significantly if (B-A)/se exceeds what Holm's correction at Level allows over all
// terms with a known se. From stored intervals se^2 is the sum of both fits' squares, each half
// width/1.96, which treats the two data sets as independent; from a bootstrap on given tables it is
// twice the square of that fit's se. A term that either fit could not identify never counts as
// moved.
func Diff(a, b *coeff.Set, preds []Prediction, opt DiffOptions) (*DiffDoc, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	if a.SpecVersion != b.SpecVersion {
		return nil, trace.Errorf(notComparable,
			"spec_version: got %q and %q, want the same: the terms mean different things", a.SpecVersion,
			b.SpecVersion)
	}
	if a.BetaTarget != b.BetaTarget {
		return nil, trace.Errorf(notComparable, "beta_target: got %q and %q, want the same", a.BetaTarget, b.BetaTarget)
	}
	d := &DiffDoc{SchemaVersion: result.SchemaVersion, Significance: fromStored, Level: opt.Level,
		Tolerance:   opt.Tolerance,
		Predictions: preds, Settings: settings(a, b), Terms: diffTerms("beta", a.Beta, b.Beta, opt)}
	if opt.Bootstrap != nil {
		d.Significance = fromBootstrap
	}
	if d.Predictions == nil {
		d.Predictions = []Prediction{}
	}
	d.Terms = append(d.Terms, diffFactors(a, b)...)
	for i := range a.Alpha {
		if mb := b.AlphaModel(a.Alpha[i].Target); mb != nil {
			d.Terms = append(d.Terms, diffTerms(a.Alpha[i].Target, a.Alpha[i].Coefficients, mb.Coefficients, opt)...)
		}
	}
	holm(d.Terms, opt.Level)
	d.setChanged(opt)
	return d, nil
}

// settings returns a sentence for each difference between the artifacts that is no coefficient.
func settings(a, b *coeff.Set) []string {
	out := []string{}
	differ := func(what, va, vb string) {
		if va != vb {
			out = append(out, what+": "+va+" -> "+vb)
		}
	}
	differ("recipe", a.Recipe, b.Recipe)
	differ("lambda", sixDigits(a.TrainedOn.Lambda), sixDigits(b.TrainedOn.Lambda))
	differ("gamma", sixDigits(a.Gamma), sixDigits(b.Gamma))
	differ("training_date", a.TrainedOn.Date, b.TrainedOn.Date)
	differ("n_samples", sixDigits(float64(a.TrainedOn.Samples)), sixDigits(float64(b.TrainedOn.Samples)))
	for _, t := range a.AlphaTargets() {
		if b.AlphaModel(t) == nil {
			out = append(out, "alpha target "+t+" is gone")
		}
	}
	for _, t := range b.AlphaTargets() {
		if a.AlphaModel(t) == nil {
			out = append(out, "alpha target "+t+" is new")
		}
	}
	return out
}

// diffTerms returns the differences of the coefficients of one model.
func diffTerms(model string, a, b []coeff.Coefficient, opt DiffOptions) []TermDiff {
	var out []TermDiff
	for i := range a {
		ca, cb := &a[i], &b[i]
		t := TermDiff{Model: model, Name: ca.Name, Unit: ca.Unit, A: ca.Value, B: cb.Value, Delta: cb.Value - ca.Value}
		if ca.Value != 0 {
			t.Ratio = new(cb.Value / ca.Value)
		}
		switch {
		case ca.Value == cb.Value:
			t.Significant = new(false)
		case ca.Identified == coeff.PriorOnly || cb.Identified == coeff.PriorOnly:
			t.Significant = new(false)
			t.Note = "not identified"
		default:
			t.SE = standardError(model, i, ca, cb, opt)
			if t.SE == nil {
				t.Note = "no interval"
			} else if p := twoSided(t.Delta / *t.SE); !math.IsNaN(p) {
				t.P = &p
			}
		}
		out = append(out, t)
	}
	return out
}

// diffFactors returns the differences of the factors of all devices and deployments in either set;
// a missing factor is 1. Factors have no interval.
func diffFactors(a, b *coeff.Set) []TermDiff {
	names := map[string]bool{}
	of := func(s *coeff.Set) map[string]float64 {
		m := map[string]float64{}
		maps.Copy(m, s.HardwareFactors)
		maps.Copy(m, s.DeploymentFactors)
		for name, f := range s.PromptFactors {
			m[name+", prompt work"] = f
		}
		for name := range m {
			names[name] = true
		}
		return m
	}
	factorsA := of(a) // of also notes the names
	factorsB := of(b)
	var out []TermDiff
	for _, name := range slices.Sorted(maps.Keys(names)) {
		va, vb := 1.0, 1.0
		if v, ok := factorsA[name]; ok {
			va = v
		}
		if v, ok := factorsB[name]; ok {
			vb = v
		}
		t := TermDiff{Model: "factor", Name: name, Unit: "1", A: va, B: vb, Delta: vb - va, Ratio: new(vb / va)}
		if va == vb {
			t.Significant = new(false)
		} else {
			t.Note = "no interval"
		}
		out = append(out, t)
	}
	return out
}

// standardError returns the standard error of the difference of coefficient i; nil if it is
// unknown.
func standardError(model string, i int, a, b *coeff.Coefficient, opt DiffOptions) *float64 {
	if opt.Bootstrap != nil {
		cs := opt.Bootstrap[model]
		if i >= len(cs) || cs[i].Name != a.Name || cs[i].Interval() == nil {
			return nil
		}
		return new(math.Sqrt2 * halfWidth(*cs[i].Interval()))
	}
	if a.Interval() == nil || b.Interval() == nil {
		return nil
	}
	return new(math.Hypot(halfWidth(*a.Interval()), halfWidth(*b.Interval())))
}

// halfWidth returns the standard error to which a 95 % interval corresponds: its half width over 1.96.
func halfWidth(ci [2]float64) float64 { return (ci[1] - ci[0]) / (2 * stat.Normal95) }

// twoSided returns the two-sided p-value of z under the normal distribution. For a standard error
// of 0, z is infinite and the result 0.
func twoSided(z float64) float64 { return math.Erfc(math.Abs(z) / math.Sqrt2) }

// holm sets Significant for the terms whose p-value survives Holm's step-down at level.
func holm(terms []TermDiff, level float64) {
	var at []int
	for i := range terms {
		if terms[i].P != nil {
			at = append(at, i)
		}
	}
	sort.SliceStable(at, func(x, y int) bool { return *terms[at[x]].P < *terms[at[y]].P })
	// In order of p, each is compared with level over the number of terms not yet decided; the first
	// that is larger ends the rejections.
	rejected := true
	for k, i := range at {
		rejected = rejected && *terms[i].P <= level/float64(len(at)-k)
		terms[i].Significant = new(rejected)
	}
}

// setChanged sets d.Changed and d.Reasons, in the order of the document.
func (d *DiffDoc) setChanged(opt DiffOptions) {
	d.Reasons = []string{}
	for i := range d.Terms {
		t := &d.Terms[i]
		switch {
		case t.Significant != nil && *t.Significant:
			d.Reasons = append(d.Reasons, t.Model+" "+t.Name+" moved significantly: "+strings.TrimSuffix(
				sixDigits(t.A)+" -> "+sixDigits(t.B)+" "+t.Unit, " 1"))
		case t.Significant == nil && math.Abs(t.Delta) > opt.Tolerance*math.Abs(t.A):
			d.Reasons = append(d.Reasons, t.Model+" "+t.Name+" moved, significance unknown: "+strings.TrimSuffix(
				sixDigits(t.A)+" -> "+sixDigits(t.B)+" "+t.Unit, " 1"))
		}
	}
	for _, p := range d.Predictions {
		if !(math.Abs(p.Change) <= opt.Tolerance) {
			d.Reasons = append(d.Reasons,
				p.Scope+": "+p.Metric+" on "+p.Workload+" "+sixDigits(p.AMs)+" -> "+sixDigits(p.BMs)+" ms")
		}
	}
	d.Changed = len(d.Reasons) > 0
}

// sixDigits returns a number with six significant digits.
func sixDigits(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
