package export

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// DiffDoc is what changed from artifact A to artifact B.
type DiffDoc struct {
	SchemaVersion string       `json:"schema_version"`
	ToolVersion   string       `json:"tool_version"`
	A             result.Input `json:"a"`
	B             result.Input `json:"b"`
	// Significance says where the standard errors come from.
	Significance string       `json:"significance"` // stored_intervals | block_bootstrap
	Level        float64      `json:"level"`        // family-wise, Holm
	Tolerance    float64      `json:"tolerance"`    // relative change of a prediction that counts
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
	// Bootstrap holds a fit's coefficients on the given tables, by model; when
	// set, their intervals replace the stored ones.
	Bootstrap map[string][]result.Coefficient
}

// DefaultDiffOptions are 5 % family-wise and 1 % of a prediction.
func DefaultDiffOptions() DiffOptions { return DiffOptions{Level: 0.05, Tolerance: 0.01} }

// Check names the option out of range.
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

// Diff compares two artifacts of one spec version term by term, and judges the
// predictions given for both. Code: not_comparable.
//
// A term moved significantly when (B-A)/se exceeds what Holm's correction at
// Level allows over all terms with a known se. From stored intervals se^2 is
// the sum of both fits' squares, each half width/1.96, which treats the two
// data sets as independent; from a bootstrap on given tables it is twice the
// square of that fit's se. A term that either fit could not identify is never
// called moved.
func Diff(a, b *coeff.Set, preds []Prediction, opt DiffOptions) (*DiffDoc, error) {
	if err := opt.Check(); err != nil {
		return nil, err
	}
	if a.SpecVersion != b.SpecVersion {
		return nil, trace.Errorf(notComparable, "spec_version: got %q and %q, want the same: the terms mean different things", a.SpecVersion,
			b.SpecVersion)
	}
	if a.BetaTarget != b.BetaTarget {
		return nil, trace.Errorf(notComparable, "beta_target: got %q and %q, want the same", a.BetaTarget, b.BetaTarget)
	}
	d := &DiffDoc{SchemaVersion: result.SchemaVersion, Significance: fromStored, Level: opt.Level, Tolerance: opt.Tolerance,
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
	d.judge(opt)
	return d, nil
}

// settings are differences that are no coefficients.
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

// diffFactors compares the factors of the devices and deployments either set
// knows; one without has 1. Factors carry no interval.
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
	fa, fb := of(a), of(b)
	var out []TermDiff
	for _, name := range slices.Sorted(maps.Keys(names)) {
		va, vb := 1.0, 1.0
		if v, ok := fa[name]; ok {
			va = v
		}
		if v, ok := fb[name]; ok {
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

// standardError of the difference, nil when unknown.
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

// halfWidth is the standard error behind a 95 % interval.
func halfWidth(ci [2]float64) float64 { return (ci[1] - ci[0]) / (2 * 1.959963984540054) }

// twoSided is the normal p-value of z; 0 for a zero standard error.
func twoSided(z float64) float64 { return math.Erfc(math.Abs(z) / math.Sqrt2) }

// holm marks the terms whose p-value survives Holm's step-down at level.
func holm(terms []TermDiff, level float64) {
	var at []int
	for i := range terms {
		if terms[i].P != nil {
			at = append(at, i)
		}
	}
	sort.SliceStable(at, func(x, y int) bool { return *terms[at[x]].P < *terms[at[y]].P })
	rejected := true
	for k, i := range at {
		rejected = rejected && *terms[i].P <= level/float64(len(at)-k)
		terms[i].Significant = new(rejected)
	}
}

// judge decides Changed and says why, in the order of the document.
func (d *DiffDoc) judge(opt DiffOptions) {
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
			d.Reasons = append(d.Reasons, p.Scope+": "+p.Metric+" on "+p.Workload+" "+sixDigits(p.AMs)+" -> "+sixDigits(p.BMs)+" ms")
		}
	}
	d.Changed = len(d.Reasons) > 0
}

func sixDigits(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// Old is what is known of an older validation.
type Old struct {
	Name     string // file or folder, for people
	Gates    []coeff.Gate
	Purposes []coeff.PurposeVerdict
	Set      *coeff.Set // nil: a validation.json alone
}

// OldSet is what a coefficient file says of its validation.
func OldSet(name string, set *coeff.Set) *Old {
	return &Old{Name: name, Gates: set.Gates, Purposes: set.Purposes, Set: set}
}

// AddValidation takes gates and verdicts from a validation.json.
func (o *Old) AddValidation(v *result.Validation) {
	o.Gates, o.Purposes, _ = v.Verdicts()
}

// figureTolerance is the relative change of a gate's value that counts: half of the last
// digit that reports show of two.
const figureTolerance = 0.01

// Since says what a validation and its coefficients say other than before: verdicts,
// gates in both whose value moved by more than 1 % or whose verdict turned, and the
// terms that moved significantly, or by more than 1 % where no interval tells. set may
// be nil.
func Since(old *Old, v *result.Validation, set *coeff.Set) *result.Changes {
	out := &result.Changes{Against: old.Name}
	verdictChanges(out, old, v)
	gateChanges(out, old, v)
	if old.Set == nil || set == nil {
		out.Notes = append(out.Notes, "no coefficients to compare with")
		return out
	}
	d, err := Diff(old.Set, set, nil, DefaultDiffOptions())
	if err != nil {
		out.Notes = append(out.Notes, err.Error())
		return out
	}
	for i := range d.Terms {
		t := &d.Terms[i]
		moved := t.Significant == nil && math.Abs(t.Delta) > figureTolerance*math.Abs(t.A) || t.Significant != nil && *t.Significant
		if !moved {
			out.Same++
			continue
		}
		out.Rows = append(out.Rows, result.Change{Kind: result.ChangeTerm, Name: t.Name, Scope: t.Model, Unit: t.Unit, Old: &t.A, New: &t.B,
			P: t.P})
	}
	out.Notes = append(out.Notes, d.Settings...)
	return out
}

func verdictChanges(out *result.Changes, old *Old, v *result.Validation) {
	was := stat.Keyed(old.Purposes, func(p coeff.PurposeVerdict) ([2]string, string) { return [2]string{p.Purpose, p.Scope}, p.Verdict })
	for _, p := range v.Purposes {
		before, known := was[[2]string{p.Purpose, p.Scope}]
		switch {
		case !known:
			if p.Scope != coeff.ScopeAll && len(old.Purposes) > 0 && p.Purpose == coeff.PurposeSteps {
				out.Notes = append(out.Notes, fmt.Sprintf("%s is new", p.Scope))
			}
		case before == p.Verdict:
			out.Same++
		default:
			out.Rows = append(out.Rows, result.Change{Kind: result.ChangeVerdict, Name: p.Purpose, Scope: p.Scope, Was: before, Is: p.Verdict})
		}
	}
	if len(old.Purposes) == 0 {
		out.Notes = append(out.Notes, "no verdicts by purpose before")
	}
}

func gateChanges(out *result.Changes, old *Old, v *result.Validation) {
	was := map[[2]string]*coeff.Gate{}
	for i := range old.Gates {
		g := &old.Gates[i]
		was[[2]string{g.Name, g.Scope}] = g
	}
	var rows []result.Change
	for i := range v.Gates {
		g := &v.Gates[i]
		before := was[[2]string{g.Name, g.Scope}]
		if before == nil || before.Value == nil && g.Value == nil {
			continue
		}
		c := result.Change{Kind: result.ChangeGate, Name: g.Name, Scope: g.Scope, Old: before.Value, New: g.Value, Was: passWord(before.Pass),
			Is: passWord(g.Pass)}
		if c.Was == c.Is && relative(c.Old, c.New) <= figureTolerance {
			out.Same++
			continue
		}
		rows = append(rows, c)
	}
	stat.SortStable(rows, func(a, b result.Change) int {
		return cmp.Or(cmp.Compare(turned(b), turned(a)), cmp.Compare(relative(b.Old, b.New), relative(a.Old, a.New)))
	})
	out.Rows = append(out.Rows, rows...)
}

// turned is 1 for a gate whose verdict is another one.
func turned(c result.Change) int {
	if c.Was != c.Is {
		return 1
	}
	return 0
}

func passWord(pass *bool) string {
	switch {
	case pass == nil:
		return "not judged"
	case *pass:
		return coeff.VerdictPass
	}
	return coeff.VerdictFail
}

// relative is the size of the change over the old value; infinite where one is unknown
// or the old one zero.
func relative(a, b *float64) float64 {
	switch {
	case a == nil || b == nil:
		return math.Inf(1)
	case *a == *b:
		return 0
	}
	return math.Abs(*b-*a) / math.Abs(*a)
}

// rangeFactor is how far above its training maximum a feature may go (spec#training-range).
const rangeFactor = 1.5

// Vectorizer returns the beta features of one batch in a deployment, in slot order.
type Vectorizer func(d *deploy.Deployment, batch []trace.Chunk) ([]float64, error)

// Check compares an artifact with a deployment and returns one finding per
// mismatch: model, GPU, tp, engine version, knobs, weight widths, features that
// the largest batches of the deployment push out of the trained range, terms
// that were not learned, and whether the artifact can drive a replay. With a
// nil deployment only the artifact itself is judged.
func Check(set *coeff.Set, d *deploy.Deployment, vec Vectorizer) ([]trace.Finding, error) {
	out := slices.Concat(set.FileWarnings(), replayable(set), impossible(set))
	if d == nil {
		return out, nil
	}
	out = append(out, set.Outside(d)...)
	out = append(out, widths(set, d)...)
	out = append(out, knobs(set, d)...)
	if vec == nil {
		return out, nil
	}
	ranges, err := featureRanges(set, d, vec)
	return append(out, ranges...), err
}

func replayable(set *coeff.Set) []trace.Finding {
	if m := set.AlphaModel(coeff.Overhead); m != nil && m.Replay {
		return nil
	}
	return []trace.Finding{trace.Findingf(NotReplayable, "no replayable overhead target, got %q: a replay needs --overhead-us",
		set.AlphaTargets())}
}

// widths catches the same model name in another precision.
func widths(set *coeff.Set, d *deploy.Deployment) []trace.Finding {
	var have []string
	for i := range set.Configs {
		m := &set.Configs[i].Deployment.Model
		if m.ID != d.Model.ID {
			continue
		}
		if widthText(m) == widthText(&d.Model) {
			return nil
		}
		have = append(have, widthText(m))
	}
	if len(have) == 0 {
		return nil
	}
	slices.Sort(have)
	return []trace.Finding{trace.Findingf(coeff.OutsideTraining, "precision of %s: got %s, trained on %s", d.Model.ID, widthText(&d.Model),
		strings.Join(slices.Compact(have), "; "))}
}

func widthText(m *model.Model) string {
	return fmt.Sprintf("weights %g B, KV %g B, activations %g B, compute %s", m.BytesPerWeight, m.BytesPerKV, m.BytesPerActivation,
		m.LinearCompute)
}

// knobs compares the switches that change what a step is made of. Sizes
// (sequences, tokens) are left to the feature ranges, which know what they cost.
func knobs(set *coeff.Set, d *deploy.Deployment) []trace.Finding {
	var out []trace.Finding
	for _, k := range []struct {
		name string
		of   func(*deploy.Deployment) any
	}{
		{"enable_chunked_prefill", func(d *deploy.Deployment) any { return d.Engine.ChunkedPrefill }},
		{"cpu_offloading", func(d *deploy.Deployment) any { return d.Engine.CPUOffloading }},
		{"block_size", func(d *deploy.Deployment) any { return d.Engine.BlockSize }},
	} {
		got := k.of(d)
		var trained []string
		seen := false
		for i := range set.Configs {
			v := k.of(&set.Configs[i].Deployment)
			seen = seen || v == got
			trained = append(trained, fmt.Sprint(v))
		}
		if seen || len(trained) == 0 {
			continue
		}
		slices.Sort(trained)
		out = append(out, trace.Findingf(coeff.OutsideTraining, "%s: got %v, trained on %s", k.name, got,
			strings.Join(slices.Compact(trained), ", ")))
	}
	return out
}

// probe is one extreme batch a deployment can form.
type probe struct {
	what  string
	batch []trace.Chunk
}

// probes are the batches at the corners of what the engine allows: a full
// token budget of one long prompt, and a full house of decodes as deep as the
// KV cache holds.
func probes(d *deploy.Deployment) []probe {
	e := &d.Engine
	longest := d.LongestSequence().Or(e.MaxNumBatchedTokens)
	prompt := max(1, min(longest, e.MaxNumBatchedTokens))
	seats := d.Seats(1)
	depth := max(1, longest-1)
	if blocks, _, err := d.KVBlocks(); err == nil {
		depth = max(1, min(depth, blocks/seats*e.BlockSize-1)) // whole blocks a seat
	}
	house := make([]trace.Chunk, seats)
	for i := range house {
		house[i] = trace.Chunk{Computed: depth, Prompt: depth, New: 1}
	}
	return []probe{
		{fmt.Sprintf("a prompt of %d tokens in one step", prompt), []trace.Chunk{{Prompt: prompt, New: prompt}}},
		{fmt.Sprintf("%d decodes at %d tokens of context", seats, depth), house},
	}
}

// featureRanges lists the slots whose value in a probe exceeds 1.5 x the
// training maximum, and the not-learned slots a probe uses, each slot once.
func featureRanges(set *coeff.Set, d *deploy.Deployment, vec Vectorizer) ([]trace.Finding, error) {
	var out []trace.Finding
	reported := map[int]bool{}
	unlearned := features.NotLearned(set)
	for _, p := range probes(d) {
		x, err := vec(d, p.batch)
		if err != nil {
			return nil, fmt.Errorf("features of %s: %w", p.what, err)
		}
		for i := range set.Beta {
			c := &set.Beta[i]
			if i >= len(x) || reported[i] || x[i] <= 0 {
				continue
			}
			switch {
			case slices.Contains(unlearned, i+1):
				out = append(out, trace.Findingf(coeff.OutsideTraining, "%s: not learned, but %s uses it", c.Name, p.what))
			case c.Range != nil && x[i] > rangeFactor*c.Range[1]:
				out = append(out, trace.Findingf(coeff.OutsideTraining, "%s: up to %s with %s, trained up to %s", c.Name, three(x[i]), p.what,
					three(c.Range[1])))
			default:
				continue
			}
			reported[i] = true
		}
	}
	return out, nil
}

func three(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e6 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Inputs is what became of the files that coefficients were made from.
type Inputs struct {
	Verified int `json:"verified"` // there, and the same bytes
	Changed  int `json:"changed"`
	Absent   int `json:"absent"`
}

// CheckInputs looks for the recorded inputs below a folder and compares their digests. A file
// that is not there is counted, and is no mismatch.
func CheckInputs(inputs []coeff.Input, dir string) (n Inputs, changed []trace.Finding, err error) {
	for _, in := range inputs {
		path := filepath.Join(dir, filepath.FromSlash(in.Name))
		st, err := os.Stat(path)
		switch {
		case !filepath.IsLocal(filepath.FromSlash(in.Name)), errors.Is(err, fs.ErrNotExist), err == nil && !st.Mode().IsRegular():
			n.Absent++
			continue
		case err != nil:
			return n, nil, err
		}
		_, sum, err := files.Hash(path)
		switch {
		case err != nil:
			return n, nil, err
		case sum == in.SHA256:
			n.Verified++
		default:
			n.Changed++
			changed = append(changed, trace.Findingf(inputChanged, "%s: sha256 %.12s, the coefficients were made from %.12s", path, sum, in.SHA256))
		}
	}
	return n, changed, nil
}

// impossible lists the step-time coefficients of the wrong sign: the relative
// recipe never fits one, so that somebody's hand did. Empty when there is none.
func impossible(s *coeff.Set) []trace.Finding {
	if s.Recipe != "relative" {
		return nil
	}
	var fs []trace.Finding
	for i, f := range features.BetaFeatures(s.SpecVersion) {
		if c := s.Beta[i]; c.Value < 0 && !f.Free {
			fs = append(fs, trace.Findingf(coeff.ImpossibleCoefficient, "%s: got %g %s, want >= 0: work cannot shorten a step",
				c.Name, c.Value, c.Unit))
		}
	}
	return fs
}
