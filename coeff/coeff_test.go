package coeff_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	. "github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// sample is a full set with awkward numbers.
func sample() *Set {
	ptr := func(v float64) *float64 { return &v }
	yes := true
	d := testDeployment()
	s := &Set{
		SchemaVersion: SchemaVersion, ToolVersion: "test", Command: "fit --seed 1",
		Inputs:      []Input{{"r1/traces.jsonl", 12, strings.Repeat("ab", 32)}},
		SpecVersion: features.V11, Recipe: "relative",
		TrainedOn: TrainedOn{Models: []string{"m"}, Hardware: []string{"H100-SXM-80GB"}, TPs: []int64{1, 2}, VLLMVersions: []string{"0.15.1"},
			Date: "2026-02-03", Samples: 1234, Lambda: 3e-6, Gamma: 0.3, HoldOutRMSE: map[string]float64{"cadence": 123.456, "overhead": 0.1}},
		BetaTarget: Cadence, Gamma: 0.3,
		Beta: features.NewCoefficients(features.BetaFeatures(features.V11)),
		Alpha: []AlphaModel{{Target: Admission, Lambda: 1, Coefficients: features.NewCoefficients(features.AlphaFeatures(features.V11))},
			{Target: Overhead, Replay: true, Lambda: 0.1, Coefficients: features.NewCoefficients(features.AlphaFeatures(features.V11))}},
		Residuals:   map[string][][2]float64{"decode": {{0.05, 0.9}, {0.5, 1}, {0.95, 1.1}}},
		PipelineLag: map[string]RunLag{"r1": {1, true}, "r2": {}},
		Gates: []Gate{{Name: "beta_mape", Scope: "all", Value: ptr(0.05), Op: "<", Threshold: 0.15, Pass: &yes},
			{Name: "ks_ttft", Scope: "r1", Op: "<", Threshold: 0.15, Note: "insufficient data"}},
		Identifiability: []string{"f3 and f11 cannot be told apart: only their sum is known"},
		Certificate:     &Certificate{MinZeroGradient: ptr(-1e-9), MaxActiveGradient: 1e-12, OK: true},
		Warnings:        []trace.Finding{{Code: "lag_assumed", Message: "r2: lag assumed"}},
		Configs:         []Config{ConfigOf(d, []string{"r1", "r2"}, 1234)},
	}
	for i := range s.Beta {
		s.Beta[i].Value = 1e6 / float64(i+3)
		s.Beta[i].CI95 = &[2]float64{s.Beta[i].Value / 3, s.Beta[i].Value * 3}
		s.Beta[i].Range = &[2]float64{0, math.Pi * 1e-7 * float64(i+1)}
		s.Beta[i].Identified = Within
	}
	s.Beta[12].Value = 0
	s.Beta[12].Identified = PriorOnly
	s.Beta[0].CI95 = nil
	n := len(s.Beta)
	s.Covariance = make([][]float64, n)
	for i := range s.Covariance {
		s.Covariance[i] = make([]float64, n)
		s.Covariance[i][i] = 1.0 / 3
	}
	return s
}

func testDeployment() *deploy.Deployment {
	h, _ := deploy.Datasheet("H100")
	return &deploy.Deployment{Name: "r1", TP: 1, PP: 1, DP: 1, Hardware: h,
		Model: model.Model{ID: "m", ModelType: "llama", NumLayers: 2, HiddenSize: 64, NumHeads: 4, NumKVHeads: 2, HeadDim: 16,
			IntermediateSize: 128, VocabSize: 100, NumMLPProj: 3, BytesPerParam: 0.5, BytesPerWeight: 0.5, BytesPerKV: 2, BytesPerActivation: 2,
			BytesPerLMHead: 2, LinearCompute: "native"},
		Engine: vllm.Engine{VLLMVersion: "0.15.1", MaxNumSeqs: 8, MaxNumBatchedTokens: 64, BlockSize: 16, KVBlocksGPU: trace.Some(int64(10)),
			SchedulingPolicy: "fcfs"},
		Phases: []deploy.Phase{{Name: "p", EndNs: 1}}}
}

func save(t testing.TB, s *Set) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// saved is a set's file, and the set read back from it, which is the same.
func saved(t *testing.T, want *Set) (string, *Set) {
	t.Helper()
	text := save(t, want)
	got, err := Load(strings.NewReader(text), "c.yaml", features.CheckSet)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("read back differs (-want +got):\n%s", diff)
	}
	return text, got
}

// Writing and reading back is exact; same set, same bytes.
func TestRoundTripIsExact(t *testing.T) {
	text, got := saved(t, sample())
	if again := save(t, got); again != text {
		t.Error("writing what was read gives other bytes")
	}
}

// Each fault of a file has its own code and a line.
func TestFaultsHaveTheirOwnCode(t *testing.T) {
	text := save(t, sample())
	edit := func(old, with string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("the sample has no %q", old)
		}
		return strings.Replace(text, old, with, 1)
	}
	first := text[strings.Index(text, "    - name: prefill_linear_compute"):strings.Index(text, "    - name: prefill_attention")]
	cases := []struct {
		name, text string
		want       trace.Code
	}{
		{"unknown key at the top", "surprise: 1\n" + text, BadFile},
		{"unknown key in a term", edit("identified: within", "identified: within\n      surprise: 1"), BadFile},
		{"unknown key in a deployment", edit("num_hidden_layers: 2", "num_hidden_layers: 2\n          surprise: 1"), BadFile},
		{"wrong length", edit(first, ""), BadFile},
		{"NaN", edit("value: 250000", "value: .nan"), BadFile},
		{"infinity", edit("value: 250000", "value: -.inf"), BadFile},
		{"wrong spec version", edit(`spec_version: "1.1"`, `spec_version: "2.0"`), features.UnknownSpecVersion},
		{"unquoted spec version is a string too", edit(`spec_version: "1.1"`, `spec_version: 1.9`), features.UnknownSpecVersion},
		{"wrong name order", edit("name: prefill_linear_compute", "name: prefill_attention"), BadFile},
		{"wrong unit", edit("unit: us/s", "unit: us"), BadFile},
		{"unknown schema", edit(`schema_version: "1"`, `schema_version: "9"`), BadFile},
		{"wait as a delay", edit("replay: false", "replay: true"), BadFile},
		{"not YAML", "a: [", BadFile},
		{"empty", "", BadFile}, {"comments alone", "# by blis-train\n\n", BadFile},
		{"flat form of 1.1", edit("    - name: prefill_linear_compute", "    - 1\n    - name: prefill_linear_compute"), BadFile},
		{"duplicate key", text + "command: x\n", BadFile},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(strings.NewReader(c.text), "c.yaml", features.CheckSet)
			var syntax *trace.SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("got %v, want a trace.SyntaxError", err)
			}
			if syntax.Code != c.want {
				t.Errorf("got code %q (%v), want %q", syntax.Code, err, c.want)
			}
			if syntax.Line == 0 && c.name != "empty" && c.want != BadFile {
				t.Errorf("%v: no line", err)
			}
			t.Log(err)
		})
	}
}

func TestSaveRefusesWhatLoadRefuses(t *testing.T) {
	s := sample()
	s.Alpha[1].Coefficients[3].Value = math.NaN()
	err := s.Save(&bytes.Buffer{})
	if trace.CodeOf(err) != BadFile || !strings.Contains(err.Error(), "alpha[1].coefficients[3].value: got NaN") {
		t.Errorf("got %v, want %s with the path of the number", err, BadFile)
	}
}

// The flat form of spec 1.0.
func TestFlatFormOfTheFrozenText(t *testing.T) {
	list := func(n int) string { return "[" + strings.Repeat("1.5, ", n-1) + "2]" }
	text := fmt.Sprintf("physics_coefficients:\n  spec_version: \"1.0\"\n  trained_on: {model: m, hardware: h, tp: 1}\n  "+
		"alpha_coefficients: %s\n  beta_coefficients: %s\n", list(11), list(16))
	s, err := Load(strings.NewReader(text), "flat.yaml", features.CheckSet)
	if err != nil {
		t.Fatal(err)
	}
	if s.Beta[15].Value != 2 || s.Beta[15].Name != "bias" || s.Alpha[0].Target != Queue || s.Alpha[0].Replay {
		t.Errorf("got %+v", s)
	}
	_, err = Load(strings.NewReader(strings.Replace(text, list(11), list(10), 1)), "flat.yaml", features.CheckSet)
	if trace.CodeOf(err) != BadFile {
		t.Errorf("ten alphas: got %v, want %s", err, BadFile)
	}
}

// Predictions in use are clipped, counted and warned about.
func TestPredictClipsCountsAndWarnsOnce(t *testing.T) {
	s := sample()
	p := features.BetaPredictor(s)
	x := make([]float64, len(s.Beta))
	if us, err := p.Predict(x, 0); err != nil || us != 1 {
		t.Errorf("empty vector: got %g us, %v, want 1 us", us, err)
	}
	if w := p.Warnings(); len(w) != 0 {
		t.Errorf("got warnings %v, want none inside the training range", w)
	}
	x[0], x[12] = 2*s.Beta[0].Range[1], 1e-12
	for range 3 {
		us, err := p.Predict(x, 1<<5)
		if want := math.Max(1, s.Beta[0].Value*x[0]); err != nil || us != want {
			t.Errorf("got %g us, %v, want %g", us, err, want)
		}
	}
	var codes []trace.Code
	for _, w := range p.Warnings() {
		codes = append(codes, w.Code)
	}
	if diff := cmp.Diff([]trace.Code{OutsideTraining, OutsideTraining, features.FeatureOutOfRange}, codes); diff != "" {
		t.Error(diff)
	}
	x[0] = 1.4 * s.Beta[0].Range[1]
	x[12] = 0
	q := features.BetaPredictor(s)
	if _, err := q.PredictRow(x, 1, 0); err != nil || len(q.Warnings()) != 0 {
		t.Errorf("1.4 x the training maximum: got %v %v, want no warning", err, q.Warnings())
	}
	x[0] *= 20
	if _, err := q.PredictRow(x, 20, 0); err != nil || len(q.Warnings()) != 0 {
		t.Errorf("the same per step over 20 steps: got %v %v, want no warning", err, q.Warnings())
	}
	x[3] = math.Inf(1)
	if _, err := q.Predict(x, 0); trace.CodeOf(err) != features.BadInput {
		t.Errorf("infinite feature: got %v, want %s", err, features.BadInput)
	}
	if _, err := q.Predict(x[:3], 0); trace.CodeOf(err) != features.WrongFeatureSet {
		t.Errorf("short vector: got %v, want %s", err, features.WrongFeatureSet)
	}
}

// A wait is never a delay.
func TestAWaitIsNeverADelay(t *testing.T) {
	s := sample()
	if _, err := features.DelayPredictor(s, Admission); trace.CodeOf(err) != "no_such_target" {
		t.Errorf("admission: got %v, want %s", err, "no_such_target")
	}
	if _, err := features.DelayPredictor(s, Overhead); err != nil {
		t.Errorf("overhead: %v", err)
	}
	if _, err := features.AlphaPredictor(s, Egress); trace.CodeOf(err) != "no_such_target" {
		t.Errorf("egress: got %v, want %s", err, "no_such_target")
	}
}

// Outside the training data is a warning each.
func TestOutsideTheTrainingData(t *testing.T) {
	s := sample()
	d := testDeployment()
	if fs := s.Outside(d); len(fs) != 0 {
		t.Errorf("got %v, want none", fs)
	}
	d.Model.ID = "other"
	d.Hardware.Name = "other"
	d.TP = 8
	if fs := s.Outside(d); len(fs) != 3 {
		t.Errorf("got %v, want three", fs)
	}
	d = testDeployment()
	d.TP = 3 - d.TP // 1 and 2 are both in trained_on, but one configuration alone is listed
	if fs := s.Outside(d); len(fs) != 1 || !strings.Contains(fs[0].Message, "together") {
		t.Errorf("got %v, want one warning of model, hardware and tensor_parallel_size together", fs)
	}
}

func TestPredictAllocatesNothing(t *testing.T) {
	s := sample()
	p := features.BetaPredictor(s)
	x := make([]float64, len(s.Beta))
	if n := testing.AllocsPerRun(100, func() { _, _ = p.Predict(x, 0) }); n != 0 {
		t.Errorf("got %g allocations, want 0", n)
	}
}

// TestChangedFileIsSaid: a value edited by hand is used with a warning that travels
// with the set; another line ending is no edit. A file without its digest, or cut, is refused unless it
// states that it was made by hand.
func TestChangedFileIsSaid(t *testing.T) {
	old := repo.Read(t, "testdata/example/coefficients.yaml")
	load := func(text string) *Set {
		t.Helper()
		set, err := Load(strings.NewReader(text), "test.yaml", features.CheckSet)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	save := func(set *Set) string {
		t.Helper()
		var b bytes.Buffer
		if err := set.Save(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	text := save(load(string(old)))
	edited := strings.Replace(text, "gamma: 0.3", "gamma: 0.25", 1)
	for _, c := range []struct {
		name, text string
		warnings   int
	}{
		{"as written", text, 0},
		{"line ends of Windows", strings.ReplaceAll(text, "\n", "\r\n"), 0},
		{"a value", edited, 1},
		{"the digest", text[:len(text)-3] + "0\"\n", 1},
		{"a remark after the digest", text + "# mine\n", 1},
	} {
		set := load(c.text)
		if len(set.FileWarnings()) != c.warnings {
			t.Errorf("%s: got %v, want %d warnings", c.name, set.FileWarnings(), c.warnings)
		}
		if again := load(save(set)); len(again.FileWarnings()) != 0 || len(again.Warnings) != len(set.Warnings) ||
			c.warnings > 0 && (len(again.Warnings) == 0 || again.Warnings[0] != set.FileWarnings()[0]) {
			t.Errorf("%s: written again: of the file %v, warnings %v", c.name, again.FileWarnings(), again.Warnings)
		}
	}
	withPlatform := "platform: linux/amd64/v1\n" + text[:strings.LastIndex(text, "digest: ")]
	lines := strings.SplitAfter(withPlatform, "\n")
	for _, n := range []int{len(lines), len(lines) - 5} {
		if _, err := Load(strings.NewReader(strings.Join(lines[:n], "")), "test.yaml", nil); err == nil {
			t.Errorf("%d of %d lines, no digest: got no error", n, len(lines))
		}
	}
	hand := load("origin: hand\n" + withPlatform)
	if got := hand.FileWarnings(); len(got) != 1 || got[0].Code != HandMade || hand.Warnings[0] != got[0] {
		t.Errorf("origin hand: got %v, want one warning hand_made that travels with the set", got)
	}
	if again := load(save(hand)); again.Origin != OriginHand {
		t.Error("origin hand: lost where the set was written again")
	}
	if _, err := Load(strings.NewReader("origin: mine\n"+withPlatform), "test.yaml", nil); err == nil {
		t.Error("origin mine: got no error")
	}
}
