package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// spoiledRun extracts a run of a client whose files a change has spoiled.
func spoiledRun(t *testing.T, rate float64, n int, spoil func(t *testing.T, dir string)) (*result.Extract, string, error) {
	t.Helper()
	parent := t.TempDir()
	dir, dep := chunkRun(t, parent, "r")
	truth, err := fit.LibraryFor(dep)
	if err != nil {
		t.Fatal(err)
	}
	recordChunks(t, dir, dep, truth, rate, n, 0)
	if err := os.Remove(filepath.Join(dir, "trace.itl.csv")); err != nil {
		t.Fatal(err)
	}
	spoil(t, dir)
	eo := DefaultExtractOptions()
	eo.Out, eo.MaxBadFrac = t.TempDir(), 1
	ext, err := Extract(context.Background(), []string{parent}, eo)
	return ext, eo.Out, err
}

// TestTooFewKVBlocks: half the KV blocks that the server had fail the gates of the
// replay, and the diagnosis names the requests that waited for them; all of them pass;
// and of a client that held requests back the replay decides nothing.
func TestTooFewKVBlocks(t *testing.T) {
	for blocks, verdict := range map[int]string{27_000: coeff.VerdictPass, 400: coeff.VerdictFail} {
		ext, out, err := spoiledRun(t, 12, 120, func(t *testing.T, dir string) {
			edited(t, filepath.Join(dir, "run.yaml"), func(s string) string {
				return strings.Replace(s, "kv_blocks_total_gpu: 27000", fmt.Sprintf("kv_blocks_total_gpu: %d", blocks), 1)
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		said := slices.ContainsFunc(ext.Runs[0].Warnings, func(f trace.Finding) bool { return f.Code == "run_contradicted" })
		if said != (verdict == coeff.VerdictFail) {
			t.Errorf("%d blocks: contradicted %v: %v", blocks, said, ext.Runs[0].Warnings)
		}
		options := DefaultFitOptions()
		options.Bootstraps = 50
		fit, err := Fit(context.Background(), out, options)
		if err != nil {
			t.Fatal(err)
		}
		judged := func(ext *result.Extract) *result.Validation {
			o := validate.DefaultOptions()
			o.Noise = "none" // the gates need no such replays
			v, err := ValidateTables(context.Background(), out, ext, fit, o, result.Header{})
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		v := judged(ext)
		if v.Verdict != verdict || v.For != coeff.PurposeReplay {
			t.Errorf("%d blocks: verdict %s for %s, want %s: %v", blocks, v.Verdict, v.For, verdict, v.Missing)
		}
		if verdict == coeff.VerdictPass {
			ext.Runs[0].Warnings = append(ext.Runs[0].Warnings, trace.Findingf(clients.CodeCapped, "at most 8 in flight"))
			if v := judged(ext); v.Verdict != coeff.VerdictInsufficient {
				t.Errorf("capped client: verdict %s, want that it decides nothing", v.Verdict)
			}
			continue
		}
		if len(v.Diagnoses) != 1 || v.Diagnoses[0].Regime != "requests that waited for KV blocks" {
			t.Errorf("%d blocks: got %+v", blocks, v.Diagnoses)
		}
	}
}

func edited(t *testing.T, path string, change func(text string) string) {
	t.Helper()
	b := repo.Read(t, path)
	repo.Write(t, change(string(b)), path)
}

// TestBrokenClientFiles: what is broken about a client's files has a finding or a
// counted drop of its own.
func TestBrokenClientFiles(t *testing.T) {
	edit := func(name string, change func(text string) string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) { edited(t, filepath.Join(dir, name), change) }
	}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		code  string
	}{
		"nothing":       {func(*testing.T, string) {}, ""},
		"truncated CSV": {edit("trace.csv", func(s string) string { return s[:len(s)-60] }), "unreadable"},
		"ms as us": {func(t *testing.T, dir string) {
			edit("trace.csv", func(s string) string { return strings.ReplaceAll(s, "000000", "") })(t, dir)
			edit("trace.yaml", func(s string) string { return strings.Replace(s, "time_unit: us", "time_unit: ms", 1) })(t, dir)
		}, `time_unit: got "ms", want microseconds`},
		"truncated JSON": {func(t *testing.T, dir string) {
			const cut = `{"load_summary":{"requested_rate":2},"successes":{"count":10,"lat`
			repo.Write(t, cut, dir, "stage_0_lifecycle_metrics.json")
		}, "unknown_client_file"},
		"warm-up missing": {edit("trace.yaml", func(s string) string {
			return strings.Replace(s, "warm_up_requests: 0", "warm_up_requests: 200", 1)
		}), "of the warm-up are not in the file"},
	} {
		ext, _, err := spoiledRun(t, 4, 30, c.spoil)
		var text string
		if err != nil {
			text = err.Error()
		}
		if ext != nil {
			for _, f := range ext.Runs[0].Warnings {
				text += " " + string(f.Code) + ": " + f.Message
			}
			for code := range ext.Runs[0].Records.Dropped {
				text += " " + code
			}
		}
		if !strings.Contains(text, c.code) || c.code == "" && (strings.Contains(text, "unreadable") || strings.Contains(text, "implausible")) {
			t.Errorf("%s: got %q, want %q", name, text, c.code)
		}
	}
}

// TestRefusedFormSaysWhatRemains: where BLIS's terms cannot be written, the error says
// that the fit is.
func TestRefusedFormSaysWhatRemains(t *testing.T) {
	_, out, err := spoiledRun(t, 4, 40, func(*testing.T, string) {})
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultFitOptions()
	if _, err := Fit(context.Background(), out, o); err != nil {
		t.Fatal(err)
	}
	edited(t, filepath.Join(out, "fit.json"), func(s string) string { return strings.ReplaceAll(s, `"replay": true`, `"replay": false`) })
	o.Form, o.Out = FormTrained, out
	if err := o.writeForm(context.Background()); trace.CodeOf(err) == "" || !strings.Contains(trace.HintOf(err), "the fit itself is written") {
		t.Errorf("got %v, want a refusal whose hint says that the fit is written", err)
	}
}

// pythonPredictions builds the wheel twice, imports it from there, and predicts.
const pythonPredictions = `
import importlib.util, json, os, sys, zipfile
root, out, coefficients = sys.argv[1:4]
spec = importlib.util.spec_from_file_location("backend", os.path.join(root, "backend.py"))
backend = importlib.util.module_from_spec(spec); spec.loader.exec_module(backend)
first, again = os.path.join(out, "a"), os.path.join(out, "b")
os.mkdir(first); os.mkdir(again)
wheel = backend.build_wheel(first)
backend.build_wheel(again)
assert open(os.path.join(first, wheel), "rb").read() == open(os.path.join(again, wheel), "rb").read(), "two wheels differ"
zipfile.ZipFile(os.path.join(first, wheel)).extractall(os.path.join(out, "site"))
sys.path.insert(0, os.path.join(out, "site"))
import blis_train_coefficients as btc
assert os.path.exists(os.path.join(out, "site", "blis_train_coefficients", "py.typed")), "the wheel is not typed"
steps, request = json.load(sys.stdin)
got = []
for label in ("llama-3.1-8b H100-SXM-80GB tp1", "llama-3.1-8b H100-SXM-80GB tp2"):
    c = btc.load(coefficients, label)
    got.append([c.step_us(s) for s in steps] + [c.delay_us("overhead", request)])
try:
    btc.load(coefficients, "nowhere")
except btc.CoefficientError as e:
    assert e.code == "no_configuration", e.code
print(json.dumps(got))
`

// TestPythonReadme runs the page's Python in the repository, and predict with a program that answers what it was asked.
func TestPythonReadme(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("skipped: no python3 on PATH")
	}
	root := repo.Root(t)
	program := filepath.Join(t.TempDir(), "blis-train")
	repo.Write(t, "#!/bin/sh\necho \"{\\\"asked\\\": \\\"$*\\\"}\"\n", program)
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	script := ""
	page := string(repo.Read(t, root, "python", "README.md"))
	for _, block := range regexp.MustCompile("(?ms)^```python\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		script += block[1]
	}
	script += `
import sys
assert us == btc.step_time(c, [(4096, 512, 1)] * 32) and 1 < before < 1e6 and len(features) == 16 and other.step_us({}) >= 1
asked = btc.predict("m", "H100", binary=sys.argv[1], tp=2, input_len=2000)["asked"]
assert asked == "predict --json --model m --hardware H100 --tp 2 --input-len 2000", asked
try:
    btc.predict("m", "H100", binary="false")
    raise AssertionError("a failure is no document")
except btc.CoefficientError as e:
    assert e.code == "failed", e.code
`
	cmd := exec.Command(python, "-c", script, program)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "PYTHONPATH=python", "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestPythonPackage: the wheel loads a coefficient file and predicts what we predict, on both of its
// configurations.
func TestPythonPackage(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("skipped: no python3 on PATH")
	}
	f := testkit.PhysicsFit()
	f.Beta.DeploymentFactors = []result.DeploymentFactor{{Deployment: f.Configs[0].Deployment.Label(), Factor: 1.25, Prompt: 0.8}}
	set, err := fit.Native(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := coefficientFile(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "coefficients.yaml")
	repo.Write(t, data, file)
	batches := [][]trace.Chunk{{{Computed: 700, Prompt: 512, New: 1}, {Computed: 300, Prompt: 256, New: 1}},
		{{Prompt: 512, New: 512}, {Computed: 100, Prompt: 90, New: 1}}, {{Computed: 1024, Prompt: 4096, New: 2048}}}
	queue := sim.Queue{Running: 12, Waiting: 3, FreeBlocks: 900, TotalBlocks: 4000, PromptTokens: 700}
	var steps []map[string]float64
	var want [2][]float64
	for k := range want {
		d := &f.Configs[k].Deployment
		space, err := features.New(features.V11, d)
		if err != nil {
			t.Fatal(err)
		}
		model, err := NewStepTimes(set, d)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			us, err := model.StepUs(b)
			if err != nil {
				t.Fatal(err)
			}
			want[k] = append(want[k], us)
			if in := space.Sum(b); k == 0 {
				steps = append(steps, map[string]float64{"prefill_tokens": in.PrefillTokens, "decode_tokens": in.DecodeTokens,
					"scheduled_tokens": in.ScheduledTokens, "num_prefill_reqs": in.NumPrefillReqs, "num_decode_reqs": in.NumDecodeReqs,
					"num_sampled_seqs": in.NumSampledSeqs, "prefill_causal_work": in.PrefillCausalWork,
					"decode_context_tokens": in.DecodeContextTokens, "kv_read_tokens": in.KVReadTokens, "running_depth": in.RunningDepth})
			}
		}
		delay, err := sim.NewAlphaDelay(set, coeff.Overhead, d)
		if err != nil {
			t.Fatal(err)
		}
		us, err := delay.DelayUs(&queue)
		if err != nil {
			t.Fatal(err)
		}
		want[k] = append(want[k], us)
	}
	in, err := json.Marshal([]any{steps, map[string]float64{"running_depth": 12, "waiting_depth": 3, "kv_usage_ratio": 1 - 900.0/4000,
		"prompt_tokens": 700, "kv_free_blocks": 900}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-B", "-c", pythonPredictions, filepath.Join("..", "python"), dir, file)
	var stderr bytes.Buffer
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	var got [2][]float64
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	for k := range want {
		for i := range want[k] {
			if i >= len(got[k]) || !(math.Abs(got[k][i]-want[k][i]) <= 1e-12*want[k][i]) {
				t.Fatalf("configuration %d: got %v us, want %v", k+1, got[k], want[k])
			}
		}
	}
}

// inspectClients inspects a recorded load without its chunk file, changed by edit.
func inspectClients(t *testing.T, rate float64, n int, edit func(dir string)) result.InspectRun {
	t.Helper()
	parent := t.TempDir()
	dir, dep := chunkRun(t, parent, "r")
	recordChunks(t, dir, dep, testkit.PlantedOn(dep), rate, n, 0)
	if err := os.Remove(filepath.Join(dir, "trace.itl.csv")); err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(dir)
	}
	doc, err := Inspect(context.Background(), []string{parent}, DefaultInspectOptions())
	if err != nil {
		t.Fatal(err)
	}
	return doc.Runs[0]
}

// TestLearnable: what requests teach is said before any fit: a quiet load shows what a
// step costs and not what a delay does, an overload is called one.
func TestLearnable(t *testing.T) {
	r := inspectClients(t, 2, 200, nil)
	if r.Unfit || r.Tier != requestfit.TierRequests || r.Saturated || r.NoiseFloor == nil || len(r.Learnable) != 9 {
		t.Fatalf("got unfit %v (%s), tier %s, %d directions, floor %v", r.Unfit, r.Reason, r.Tier, len(r.Learnable), r.NoiseFloor)
	}
	for i, shown := range []bool{true, true, true, true, false, true, false, false, false} {
		if d := r.Learnable[i]; d.Shown != shown || (d.Adds == "") != shown {
			t.Errorf("%s: shown %v, want %v (%s; %s)", d.Direction, d.Shown, shown, d.Got, d.Adds)
		}
	}
	if r := inspectClients(t, 60, 600, nil); !r.Saturated || r.Learnable[5].Shown {
		t.Errorf("an overload: saturated %v, overhead shown %v (%s): %+v", r.Saturated, r.Learnable[5].Shown, r.Learnable[5].Got, r.Saturation)
	}
	points := inspectClients(t, 2, 2, func(dir string) {
		for _, name := range []string{"trace.csv", "trace.yaml"} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		const levels = "input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms\n500,100,1,20,10\n500,100,16,40,12\n3000,100,4,90,11\n"
		repo.Write(t, levels, dir, "levels.csv")
	})
	if points.Unfit || points.Tier != requestfit.TierPoints || points.Points != 3 || !points.Learnable[0].Shown || !points.Learnable[1].Shown ||
		points.Learnable[5].Shown {
		t.Errorf("levels: got %+v", points)
	}
}

// TestGainIsNotChance: a set that is off by 20 % gains nothing, neither does the prior itself; what is right where the prior is off by
// 20 % says nothing.
func TestGainIsNotChance(t *testing.T) {
	d := testkit.Llama8B()
	right := requestfit.Roofline(d).Set
	off := *right
	off.Beta = slices.Clone(right.Beta)
	for j := range off.Beta {
		off.Beta[j].Value *= 1.2
	}
	l := &requestfit.Load{Name: "load", Deployment: d}
	for i := range int64(50) {
		l.Requests = append(l.Requests, sim.Request{ArrivalUs: i * 500_000, PromptTokens: 100 + 37*(i%11), OutputTokens: 20 + i%7})
	}
	var err error
	if l.Seen, err = l.Predict(right); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		learned, prior *coeff.Set
		want           string
	}{"worse": {&off, right, "by 0.0 % with the prior"}, "alike": {&off, &off, "+0.0 to +0.0 points"}, "better": {right, &off, ""}} {
		g, err := requestfit.GainOf([]*requestfit.Load{l}, c.learned, c.prior)
		if err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprint(g.Findings())
		if (said == "[]") != (c.want == "") || !strings.Contains(said, c.want) {
			t.Errorf("%s: got %s (%+v), want %q", name, said, g, c.want)
		}
	}
}
