package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// artifactFit is a fit with everything export, check and diff read: the
// roofline as coefficients, and plausible overheads.
func artifactFit() *result.Fit {
	d := testkit.DeploymentOf(1)
	d.Name, d.Provenance, d.Engine.AsyncScheduling = "", "", trace.Some(false)
	v := func(x float64) *float64 { return &x }
	terms := func(fs []features.Feature, of func(features.Feature) float64) (cs []result.Coefficient) {
		for _, f := range fs {
			x := of(f)
			cs = append(cs, result.Coefficient{Coefficient: coeff.Coefficient{
				Name: f.Name, Value: x, Unit: f.CoefficientUnit(), CI95: &[2]float64{0.95 * x, 1.05 * x}, Identified: "within",
				Range: &[2]float64{0, 1e6},
			}})
		}
		return cs
	}
	fit := &result.Fit{
		Header: result.Header{SchemaVersion: result.SchemaVersion, ToolVersion: "0.1.0", Command: "fit --seed 1",
			Inputs: []result.Input{{Name: "a/traces.jsonl", Bytes: 1, SHA256: "aa"}}},
		Options: result.FitOptions{Spec: "1.1", Without: []string{}},
		Runs:    []result.FitRun{{ID: "a", Used: true, Findings: []trace.Finding{}}},
		Configs: []result.FitConfig{{Key: d.Config(), Label: d.Label(), Runs: []string{"a"}, Deployment: d, MeanPromptTokens: v(300),
			MeanOutputTokens: v(80)}},
		TrainingDate: "2026-02-17",
		Beta: result.Model{Name: "beta", SpecVersion: "1.1", Recipe: "relative", Target: "cadence", Lambda: v(1e-4), GammaEMA: v(0.3),
			Holdout: &result.Errors{RMSEUs: v(100), MAPE: v(0.05)},
			Coefficients: terms(features.BetaFeatures(features.V11), func(f features.Feature) float64 {
				switch f.Name {
				case "bias", "fixed_step_overhead":
					return 500
				}
				if f.IsTime() {
					return 1.4e6
				}
				return 1
			})},
		Alpha: []result.Model{
			{Name: "overhead", SpecVersion: "1.1", Target: "overhead", Replay: true, Lambda: v(0.01),
				Interval: &result.IntervalErrors{MedianPredUs: v(1500)},
				Coefficients: terms(features.AlphaFeatures(features.V11), func(f features.Feature) float64 {
					if f.Name == "base_bias" {
						return 1500
					}
					return 0
				})},
		},
	}
	tp := result.Model{Name: "trained-physics", Target: "cadence"}
	for i, t := range features.TrainedPhysicsBeta() {
		tp.Coefficients = append(tp.Coefficients, result.Coefficient{Coefficient: coeff.Coefficient{
			Name: t.Name, Value: 0.5 + float64(i), Unit: t.Unit, Identified: "within",
		}})
	}
	fit.Models = []result.Model{tp}
	return fit
}

// writeFit puts a document into a folder of its own and returns its path.
func writeFit(t *testing.T, fit *result.Fit) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), folder.FitFile)
	if err := folder.WriteDocument(path, fit); err != nil {
		t.Fatal(err)
	}
	return path
}

// call runs the program and returns its exit code and both outputs.
func call(args ...string) (int, string, string) {
	var out, err bytes.Buffer
	rc := run(append([]string{"blis-train"}, args...), strings.NewReader(""), &out, &err)
	return rc, out.String(), err.String()
}

func nativeFile(t *testing.T, fit *result.Fit) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), folder.CoefficientsFile)
	if rc, _, stderr := call("export", writeFit(t, fit), "-o", path, "--quiet"); rc != 0 {
		t.Fatalf("export: %d %s", rc, stderr)
	}
	return path
}

// The native file reads back into the same bytes.
func TestExportNativeRoundTrip(t *testing.T) {
	path := nativeFile(t, artifactFit())
	set, in, err := (&console{}).loadSet(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := folder.SetBytes(set)
	if err != nil {
		t.Fatal(err)
	}
	if folder.InputOf(folder.CoefficientsFile, again).SHA256 != in.SHA256 {
		t.Error("load and save changed the file")
	}
}

func TestExportEveryFormat(t *testing.T) {
	host, egressUs := artifactFit(), 250.5
	host.Alpha = []result.Model{{Name: "egress", Target: "egress", Replay: true, TargetErrors: &result.TargetErrors{MedianPredUs: &egressUs}}}
	all := writeFit(t, artifactFit())
	measured := writeFit(t, host)
	names := []export.Format{export.FormatNative}
	for _, w := range fitFormats() {
		names = append(names, w.Format)
	}
	for _, f := range names {
		fit := all
		if f == export.FormatRegistryHost { // has nothing to say without a measured delay
			fit = measured
		}
		path := filepath.Join(t.TempDir(), "file")
		const codes = "unlearned_value,poor_projection,bad_entry"
		args := []string{"export", "--format", string(f), fit, "-o", path, "--force", codes, "--json"}
		if f == "vllm-sim" { // is of one engine
			args = append(args, "--config", artifactFit().Configs[0].Label)
		}
		if f == export.FormatScenario { // has names of its own
			args = append(args, "--option", "model=llama-3.1-8b-instruct")
		}
		if f == export.FormatKEDA { // scales for a target
			args = append(args, "--option", "ttft-ms=2000", "--option", "rate-rps=20")
		}
		rc, stdout, stderr := call(args...)
		if rc != 0 {
			t.Errorf("%s: exit %d: %s", f, rc, stderr)
			continue
		}
		var doc exportDoc
		if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
			t.Errorf("%s: --json is not one document: %v", f, err)
		}
		for _, file := range doc.Files {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), file.Name)); err != nil {
				t.Errorf("%s: %v", f, err)
			}
		}
	}
}

func TestExportUsage(t *testing.T) {
	fit := writeFit(t, artifactFit())
	out := filepath.Join(t.TempDir(), "x")
	for name, tc := range map[string]struct {
		args []string
		rc   int
		says string
	}{
		"no output":      {[]string{"export", fit}, 2, "-o FILE"},
		"no input":       {[]string{"export", "-o", out}, 2, "want one fit.json"},
		"unknown format": {[]string{"export", fit, "-o", out, "--format", "toml"}, 2, "blis-defaults"},
		"missing fit":    {[]string{"export", "nowhere.json", "-o", out}, 2, "nowhere.json"},
		"refused":        {[]string{"export", fit, "-o", out, "--format", "blis-defaults"}, 1, "--force"},
		"no such config": {[]string{"export", fit, "-o", out, "--format", "inferno-models", "--config", "x"}, 1, "llama"},
		"bad length": {[]string{"export", fit, "-o", out, "--format", "wva-4p", "--prompt-tokens", "-3", "--output-tokens", "9"}, 2,
			"--prompt-tokens"},
		"missing verdict": {[]string{"export", fit, "-o", out, "--validation", "no.json"}, 2, "no.json"},
	} {
		rc, _, stderr := call(tc.args...)
		if rc != tc.rc || !strings.Contains(stderr, tc.says) {
			t.Errorf("%s: exit %d, %q; want %d and %q", name, rc, stderr, tc.rc, tc.says)
		}
		if _, err := os.Stat(out); err == nil {
			t.Fatalf("%s: a refused export left a file", name)
		}
	}
}

const runYAML = `name: d
model: {id: meta-llama/Llama-3.1-8B, config: config.json}
hardware: {name: %s}
tensor_parallel_size: %s
vllm: {version: "0.15.1", max_model_len: 8192, max_num_seqs: 64, max_num_batched_tokens: 2048, enable_chunked_prefill: true,
	enable_prefix_caching: false, block_size: 16, kv_blocks_total_gpu: 4000}
`

// runFolder writes a run.yaml and config.json of the fit's model.
func runFolder(t *testing.T, hardware, tp string) string {
	t.Helper()
	dir := t.TempDir()
	config := `{"model_type":"llama","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,"vocab_size":128256,"torch_dtype":"bfloat16","max_position_embeddings":131072}`
	text := strings.Replace(strings.Replace(runYAML, "%s", hardware, 1), "%s", tp, 1)
	for name, data := range map[string]string{"run.yaml": text, "config.json": config} {
		repo.Write(t, data, dir, name)
	}
	return filepath.Join(dir, "run.yaml")
}

// Exit 0 or 3, each mismatch one line.
func TestCheckCommand(t *testing.T) {
	file := nativeFile(t, artifactFit())
	if rc, out, stderr := call("check", file); rc != 0 || !strings.Contains(out, "replayable") {
		t.Errorf("alone: %d %q %q", rc, out, stderr)
	}
	if rc, out, stderr := call("check", file, "--against", runFolder(t, "H100-SXM-80GB", "1")); rc != 0 {
		t.Errorf("against its own deployment: %d %q %q", rc, out, stderr)
	}
	rc, out, stderr := call("check", file, "--against", runFolder(t, "L40S-48GB", "2"))
	if lines := strings.Count(out, "\n"); rc != 3 || lines != 2 || !strings.Contains(out, "outside_training: ") ||
		!strings.Contains(out, "outside_training: ") {
		t.Errorf("against another GPU and tp: exit %d, %d lines: %q %q", rc, lines, out, stderr)
	}
	if rc, _, _ := call("check"); rc != 2 {
		t.Errorf("no file: exit %d, want 2", rc)
	}
}

// Unknown key, wrong length, NaN, wrong spec version, wrong order: exit 1
// and an error that names the place, each another one.
func TestCheckRejects(t *testing.T) {
	good := repo.Read(t, nativeFile(t, artifactFit()))
	seen := map[string]string{}
	for name, edit := range map[string]func(string) string{
		"unknown key": func(s string) string { return strings.Replace(s, "recipe:", "receipe: x\n  recipe:", 1) },
		"wrong length": func(s string) string {
			i := strings.Index(s, "    - name: bias")
			j := strings.Index(s, "  alpha:")
			return s[:i] + s[j:]
		},
		"NaN":          func(s string) string { return strings.Replace(s, "value: 1.4e+06", "value: .nan", 1) },
		"spec version": func(s string) string { return strings.Replace(s, `spec_version: "1.1"`, `spec_version: "7.0"`, 1) },
		"order": func(s string) string {
			s = strings.Replace(s, "name: prefill_attention", "name: \x00", 1)
			s = strings.Replace(s, "name: decode_attention", "name: prefill_attention", 1)
			return strings.Replace(s, "\x00", "decode_attention", 1)
		},
	} {
		bad := edit(string(good))
		if bad == string(good) {
			t.Errorf("%s: the edit did not apply", name)
			continue
		}
		path := filepath.Join(t.TempDir(), "c.yaml")
		repo.Write(t, bad, path)
		rc, _, stderr := call("check", path)
		if rc != 1 || !strings.Contains(stderr, path) {
			t.Errorf("%s: exit %d, %q; want 1 and the file's name", name, rc, stderr)
		}
		if other, ok := seen[stderr]; ok {
			t.Errorf("%s and %s give the same message", name, other)
		}
		seen[stderr] = name
	}
}

func TestDiffCommand(t *testing.T) {
	a := nativeFile(t, artifactFit())
	moved := artifactFit()
	c := &moved.Beta.Coefficients[2] // decode_weight_load
	c.Value *= 1.3
	c.CI95 = &[2]float64{0.95 * c.Value, 1.05 * c.Value}
	b := nativeFile(t, moved)

	if rc, _, stderr := call("diff", a, a, "--fail-on-change"); rc != 0 || !strings.Contains(stderr, "no term moved") {
		t.Errorf("equal files: %d %q", rc, stderr)
	}
	rc, out, stderr := call("diff", a, b, "--json", "--requests", "60")
	if rc != 0 {
		t.Fatalf("diff: %d %s", rc, stderr)
	}
	var doc export.DiffDoc
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	var significant []string
	for _, term := range doc.Terms {
		if term.Significant != nil && *term.Significant {
			significant = append(significant, term.Name)
		}
	}
	if len(significant) != 1 || significant[0] != "decode_weight_load" || !doc.Changed {
		t.Errorf("significant %v, changed %v", significant, doc.Changed)
	}
	if len(doc.Predictions) != 6 {
		t.Fatalf("%d predictions, want p50 and p99 of three metrics", len(doc.Predictions))
	}
	for _, p := range doc.Predictions {
		if p.Metric == "itl_p50" && !(p.Change > 0.05 && p.Change < 0.6) {
			t.Errorf("weights 30 %% dearer: ITL %g -> %g ms", p.AMs, p.BMs)
		}
	}
	if rc, _, _ := call("diff", a, b, "--fail-on-change", "--requests", "60"); rc != 3 {
		t.Errorf("--fail-on-change: exit %d, want 3", rc)
	}
	if rc, _, _ := call("diff", a); rc != 2 {
		t.Errorf("one file: exit %d, want 2", rc)
	}
	if rc, _, stderr := call("diff", a, b, "--load", "1.5"); rc != 2 || !strings.Contains(stderr, "--load") {
		t.Errorf("load 1.5: exit %d %q", rc, stderr)
	}
}

func TestExplainCommand(t *testing.T) {
	if rc, out, _ := call("explain", "unlearned_value"); rc != 0 || !strings.Contains(out, "--force") {
		t.Errorf("%d %q", rc, out)
	}
	if rc, out, _ := call("explain", "client_turns"); rc != 0 || !strings.Contains(out, "Tolerance: overtaken by fewer than 3") || !strings.Contains(out, "leaves undecided replay") {
		t.Errorf("an identity: %d %q", rc, out)
	}
	if rc, _, stderr := call("explain", "no_such_code_at_all"); rc != 2 || !strings.Contains(stderr, "no code") {
		t.Errorf("%d %q", rc, stderr)
	}
	if rc, out, _ := call("explain", "--json"); rc != 0 || !json.Valid([]byte(out)) || strings.Count(out, `"code"`) < 50 {
		t.Errorf("list: exit %d, %d codes", rc, strings.Count(out, `"code"`))
	}
}

// The ledger is written by stages and read by log.
func TestLogCommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	fit := artifactFit()
	for _, mape := range []float64{0.08, 0.06, 0.07} {
		fit.Beta.Holdout.MAPE = &mape
		if err := (&console{}).appendLedger(path, "fit", fit.Header, fit, nil, ""); err != nil {
			t.Fatal(err)
		}
	}
	rc, out, stderr := call("log", path)
	if rc != 0 || !strings.Contains(out, "8.00 %") || !strings.Contains(out, "beta_mape") {
		t.Errorf("%d %q %q", rc, out, stderr)
	}
	rc, out, _ = call("log", path, "--json", "--last", "2")
	var doc ledgerDoc
	if err := json.Unmarshal([]byte(out), &doc); rc != 0 || err != nil {
		t.Fatal(rc, err)
	}
	if len(doc.Entries) != 2 || doc.Trends[0].Best != 0.06 || doc.Trends[0].Slope < 0.009 || doc.Trends[0].Slope > 0.011 {
		t.Errorf("%d entries, trend %+v", len(doc.Entries), doc.Trends[0])
	}
	if rc, _, stderr := call("log", filepath.Join(t.TempDir(), "none")); rc != 2 || stderr == "" {
		t.Errorf("missing ledger: %d", rc)
	}
}
