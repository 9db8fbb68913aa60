package export

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/google/go-cmp/cmp"
)

func exampleSet(t *testing.T) *coeff.Set {
	t.Helper()
	set, err := fit.Native(testkit.PhysicsFit(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// constantVector is x in every slot.
func constantVector(n int, x float64) Vectorizer {
	return func(*deploy.Deployment, []trace.Chunk) ([]float64, error) {
		v := make([]float64, n)
		for i := range v {
			v[i] = x
		}
		return v, nil
	}
}

func TestCheckMatches(t *testing.T) {
	set := exampleSet(t)
	d := testkit.DeploymentOf(2)
	d.Engine.VLLMVersion = "0.15.9" // a patch release
	got, beyond, err := Check(set, &d, constantVector(len(set.Beta), 1.5))
	if err != nil || len(got) != 0 || len(beyond) != 0 {
		t.Errorf("got %v %v, want no mismatch", got, err)
	}
}

// Each mismatch is one line with a code of its own.
func TestCheckMismatches(t *testing.T) {
	for _, tc := range []struct {
		name string
		edit func(*coeff.Set, *deploy.Deployment)
		x    float64
		want trace.Code
	}{
		{"model", func(_ *coeff.Set, d *deploy.Deployment) { d.Model.ID = "other/model" }, 1, coeff.OutsideTraining},
		{"GPU", func(_ *coeff.Set, d *deploy.Deployment) { d.Hardware.Name = "L40S-48GB" }, 1, coeff.OutsideTraining},
		{"tp", func(_ *coeff.Set, d *deploy.Deployment) { d.TP = 8 }, 1, coeff.OutsideTraining},
		{"engine", func(_ *coeff.Set, d *deploy.Deployment) { d.Engine.VLLMVersion = "0.16.0" }, 1, coeff.OutsideTraining},
		{"knob", func(_ *coeff.Set, d *deploy.Deployment) { d.Engine.ChunkedPrefill = false }, 1, coeff.OutsideTraining},
		{"precision", func(_ *coeff.Set, d *deploy.Deployment) { d.Model.BytesPerWeight = 1 }, 1, coeff.OutsideTraining},
		{"range", func(s *coeff.Set, d *deploy.Deployment) {
			d.Engine.GPUMemoryUtilization = 0.5 // no configuration of the training data
			for i := range s.Beta {
				if i != 4 {
					s.Beta[i].Range = &[2]float64{0, 100}
				}
			}
		}, 1.6, coeff.OutsideTraining},
		{"not learned", func(s *coeff.Set, d *deploy.Deployment) {
			d.Engine.GPUMemoryUtilization = 0.5
			s.Beta[0].Value = 0
		}, 1, coeff.OutsideTraining},
		{"a negative term", func(s *coeff.Set, _ *deploy.Deployment) { s.Beta[0].Value = -5 }, 1, coeff.ImpossibleCoefficient},
		{"no overhead", func(s *coeff.Set, _ *deploy.Deployment) { s.Alpha = s.Alpha[:1] }, 1, NotReplayable},
	} {
		set, d := exampleSet(t), testkit.DeploymentOf(1)
		tc.edit(set, &d)
		got, _, err := Check(set, &d, constantVector(len(set.Beta), tc.x))
		if err != nil || len(got) != 1 || got[0].Code != tc.want || strings.Contains(got[0].Message, "\n") {
			t.Errorf("%s: got %v (%v), want one line with %s", tc.name, got, err, tc.want)
			continue
		}
		if words := map[string]string{
			"range": set.Beta[4].Name + ": up to ", "not learned": set.Beta[0].Name + ": not learned, but a prompt of ",
		}[tc.name]; !strings.HasPrefix(got[0].Message, words) {
			t.Errorf("%s: got %q, want %q", tc.name, got[0].Message, words)
		}
	}
}

// A file fits a deployment of its training data, whose largest batches no recording came near.
func TestCheckOfItsOwnDeployment(t *testing.T) {
	set, d := exampleSet(t), testkit.DeploymentOf(1)
	for i := range set.Beta {
		set.Beta[i].Range = &[2]float64{0, 100}
	}
	got, beyond, err := Check(set, &d, constantVector(len(set.Beta), 151))
	if err != nil || len(got) != 0 || len(beyond) != len(set.Beta) {
		t.Errorf("got %v and %v (%v), want no mismatch, and each term beyond", got, beyond, err)
	}
	d.Engine.MaxModelLen = trace.Some(d.LongestSequence().V * 2)
	if got, beyond, _ := Check(set, &d, constantVector(len(set.Beta), 151)); len(got) != len(set.Beta) || len(beyond) != 0 {
		t.Errorf("a longer context: got %v and %v, want a mismatch of each term", got, beyond)
	}
}

// The probes are batches the engine can really form.
func TestCheckProbesFit(t *testing.T) {
	d := testkit.DeploymentOf(1)
	for _, p := range probes(&d) {
		var tokens, blocks int64
		for _, c := range p.batch {
			tokens += c.New
			blocks += (c.Computed + c.New + d.Engine.BlockSize - 1) / d.Engine.BlockSize
		}
		if tokens > d.Engine.MaxNumBatchedTokens || blocks > d.Engine.KVBlocksGPU.V || int64(len(p.batch)) > d.Engine.MaxNumSeqs {
			t.Errorf("%s: %d tokens, %d blocks, %d sequences", p.what, tokens, blocks, len(p.batch))
		}
	}
}

func TestDiffOfEqualSets(t *testing.T) {
	d, err := Diff(exampleSet(t), exampleSet(t), []Prediction{{Metric: "ttft_p50", AMs: 10, BMs: 10}}, DefaultDiffOptions())
	if err != nil || d.Changed || len(d.Settings) != 0 {
		t.Errorf("err %v, changed %v for %v, settings %v", err, d.Changed, d.Reasons, d.Settings)
	}
}

// A move is judged against both intervals, with Holm's correction: 38 terms at
// 5 % ask for p <= 0.0013, so 2.5 standard errors are noise and 5 are a move.
func TestDiffSignificance(t *testing.T) {
	a, b := exampleSet(t), exampleSet(t)
	move := func(i int, z float64) {
		c := &b.Beta[i]
		se := math.Sqrt2 * halfWidth(*c.CI95)
		c.Value += z * se
		c.CI95 = &[2]float64{c.CI95[0] + z*se, c.CI95[1] + z*se}
	}
	move(0, 5)
	move(1, 2.5)
	move(2, 5)
	b.Beta[2].Identified = coeff.PriorOnly
	for i := 3; i < len(b.Beta); i++ { // tiny moves, so that every term is tested
		move(i, 0.01)
	}
	d, err := Diff(a, b, nil, DefaultDiffOptions())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]bool{0: true, 1: false, 2: false, 3: false} {
		if got := d.Terms[i].Significant; got == nil || *got != want {
			t.Errorf("term %d (%s): significant %v, want %v", i, d.Terms[i].Name, got, want)
		}
	}
	if !d.Changed || len(d.Reasons) != 1 || !strings.Contains(d.Reasons[0], a.Beta[0].Name) {
		t.Errorf("reasons %v", d.Reasons)
	}
	if p := *d.Terms[0].P; math.Abs(p-5.733e-7) > 1e-9 {
		t.Errorf("p of 5 standard errors: %g", p)
	}
}

// With tables the bootstrap's intervals replace the stored ones.
func TestDiffBootstrap(t *testing.T) {
	a, b := exampleSet(t), exampleSet(t)
	b.Beta[0].Value *= 1.01
	opt := DefaultDiffOptions()
	d, _ := Diff(a, b, nil, opt)
	if *d.Terms[0].Significant {
		t.Fatal("1 % is inside the stored intervals of 10 %")
	}
	tight := make([]result.Coefficient, len(a.Beta))
	for i := range tight {
		v := a.Beta[i].Value
		tight[i] = result.Coefficient{Coefficient: coeff.Coefficient{Name: a.Beta[i].Name, Value: v, CI95: &[2]float64{v * 0.999, v * 1.001}}}
	}
	opt.Bootstrap = map[string][]result.Coefficient{"beta": tight}
	d, _ = Diff(a, b, nil, opt)
	if !*d.Terms[0].Significant || d.Significance != fromBootstrap {
		t.Errorf("with tight intervals: %+v", d.Terms[0])
	}
}

func TestDiffPredictionsAndUnknownIntervals(t *testing.T) {
	a, b := exampleSet(t), exampleSet(t)
	d, _ := Diff(a, b, []Prediction{{Scope: "c1", Workload: "w", Metric: "itl_p50", AMs: 10, BMs: 10.2, Change: 0.02}}, DefaultDiffOptions())
	if !d.Changed || !strings.Contains(d.Reasons[0], "itl_p50") {
		t.Errorf("a prediction moved by 2 %%: %v", d.Reasons)
	}
	b.Beta[1].CI95 = nil
	b.Beta[1].Value = b.Beta[1].Value * 2
	d, _ = Diff(a, b, nil, DefaultDiffOptions())
	if !d.Changed || d.Terms[1].Significant != nil || !strings.Contains(d.Reasons[0], "significance unknown") {
		t.Errorf("doubled without an interval: %v", d.Reasons)
	}
	if !slices.ContainsFunc(d.Terms, func(t TermDiff) bool { return t.Model == "overhead" }) {
		t.Error("alpha terms are missing")
	}
}

// A device's factor multiplies every step there, so its move counts like a term's.
func TestDiffHardwareFactors(t *testing.T) {
	a, b := exampleSet(t), exampleSet(t)
	b.HardwareFactors = map[string]float64{"H100-SXM-80GB": 1.2}
	d, err := Diff(a, b, nil, DefaultDiffOptions())
	if err != nil || !d.Changed || !strings.Contains(d.Reasons[0], "factor H100-SXM-80GB") {
		t.Errorf("%v %v", err, d.Reasons)
	}
	if d, _ := Diff(b, b, nil, DefaultDiffOptions()); d.Changed {
		t.Errorf("equal factors: %v", d.Reasons)
	}
}

func TestDiffRefuses(t *testing.T) {
	a, b := exampleSet(t), exampleSet(t)
	b.BetaTarget = "duration"
	if _, err := Diff(a, b, nil, DefaultDiffOptions()); trace.CodeOf(err) != notComparable {
		t.Errorf("other target: %v", err)
	}
	b = exampleSet(t)
	b.SpecVersion = "1.0"
	if _, err := Diff(a, b, nil, DefaultDiffOptions()); trace.CodeOf(err) != notComparable {
		t.Errorf("other spec: %v", err)
	}
	if _, err := Diff(a, a, nil, DiffOptions{Level: 2, Tolerance: 1}); trace.CodeOf(err) != notComparable {
		t.Errorf("level 2: %v", err)
	}
}

// TestSince: verdicts and gates that turned come first, then what moved by more than
// 1 %; what did not move is counted.
func TestSince(t *testing.T) {
	yes, no := true, false
	num := func(v float64) *float64 { return &v }
	gate := func(name string, v float64, pass *bool) coeff.Gate {
		return coeff.Gate{Name: name, Scope: "a", Value: num(v), Op: "<", Threshold: 0.15, Pass: pass}
	}
	v := &result.Validation{}
	for _, g := range []coeff.Gate{gate("same", 0.1, &yes), gate("little", 0.1005, &yes), gate("moved", 0.12, &yes),
		gate("turned", 0.151, &no), gate("new", 0.1, &yes)} {
		v.Gates = append(v.Gates, result.Gate{Gate: g})
	}
	p := result.PurposeVerdict{}
	p.Purpose = coeff.PurposeReplay
	p.Scope = "a"
	p.Verdict = coeff.VerdictFail
	v.Purposes = []result.PurposeVerdict{p}
	old := &Old{Name: "old", Gates: []coeff.Gate{gate("same", 0.1, &yes), gate("little", 0.1, &yes), gate("moved", 0.06, &yes),
		gate("turned", 0.149, &yes)},
		Purposes: []coeff.PurposeVerdict{{Purpose: coeff.PurposeReplay, Scope: "a", Verdict: coeff.VerdictPass}}}
	got := Since(old, v, nil)
	var names []string
	for _, r := range got.Rows {
		names = append(names, r.Name)
	}
	if len(names) != 3 || names[0] != coeff.PurposeReplay || names[1] != "turned" || names[2] != "moved" {
		t.Errorf("changes: got %v, want replay, turned, moved", names)
	}
	if got.Same != 2 {
		t.Errorf("same: got %d, want 2", got.Same)
	}
	if len(got.Notes) != 1 {
		t.Errorf("notes: got %q, want that there are no coefficients", got.Notes)
	}
}

func entry(n int) Entry {
	return Entry{SchemaVersion: result.SchemaVersion, Time: fmt.Sprintf("2026-02-17T00:00:%02dZ", n), Stage: "fit", ToolVersion: "0.1.0",
		Command:  "fit --seed 1",
		Inputs:   []result.Input{{Name: "a", Bytes: 1, SHA256: strings.Repeat("f", 64)}},
		Artifact: &result.Input{Name: "coefficients.yaml", Bytes: 9, SHA256: "cd"},
		Headline: NewHeadline(testkit.ExampleFit(), nil)}
}

// Safe when two jobs append at once.
func TestLedgerConcurrentAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	const jobs, each = 8, 25
	var wg sync.WaitGroup
	for j := range jobs {
		wg.Go(func() {
			for i := range each {
				e := entry(i)
				e.Command = strings.Repeat("x", 5000) + fmt.Sprint(j) // longer than a pipe's atomic write
				if err := Append(path, e); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	data := repo.Read(t, path)
	got, bad := Read(bytes.NewReader(data), path)
	if len(got) != jobs*each || len(bad) != 0 {
		t.Errorf("%d entries, %d bad lines, want %d and 0", len(got), len(bad), jobs*each)
	}
}

func TestLedgerRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	want := entry(3)
	if err := Append(path, want); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(path)
	got, bad := Read(bytes.NewReader(data), path)
	if len(bad) != 0 || len(got) != 1 {
		t.Fatalf("%d entries, bad %v", len(got), bad)
	}
	if d := cmp.Diff(want, got[0]); d != "" {
		t.Error(d)
	}
}

// A line cut by a crash costs that line only, and is named with its place.
func TestLedgerTornLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "l")
	if err := Append(path, entry(1)); err != nil {
		t.Fatal(err)
	}
	f, _ := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	f.WriteString(`{"schema_version":"1","ti`)
	f.Close()
	if err := Append(path, entry(2)); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(path)
	got, bad := Read(bytes.NewReader(data), "l")
	if len(got) != 2 || len(bad) != 1 || trace.CodeOf(bad[0]) != BadLedger || !strings.HasPrefix(bad[0].Error(), "l:2: ") {
		t.Errorf("%d entries, bad %v", len(got), bad)
	}
}

func TestHeadline(t *testing.T) {
	val := &result.Validation{Verdict: "pass", Gates: []result.Gate{{Gate: coeff.Gate{Name: "ks_ttft", Value: testkit.Ptr(0.1)}},
		{Gate: coeff.Gate{Name: "ks_ttft", Value: testkit.Ptr(0.12)}}, {Gate: coeff.Gate{Name: "ks_itl"}}}}
	h := NewHeadline(testkit.ExampleFit(), val)
	if *h.KSTTFT != 0.12 || h.KSITL != nil || *h.BetaMAPE != 0.05 || *h.OverheadInside != 0.97 || h.Rows != 100 || h.Configs != 2 ||
		h.Verdict != "pass" {
		t.Errorf("%+v", h)
	}
}
