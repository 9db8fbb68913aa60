package pipeline

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// pythonCase is what we say of one deployment and one batch, or one request.
type pythonCase struct {
	File       string             `json:"file"` // of coefficients; empty: features alone
	Spec       features.Version   `json:"spec"`
	Deployment *deploy.Deployment `json:"deployment"`
	Step       map[string]float64 `json:"step,omitempty"`
	Request    map[string]float64 `json:"request,omitempty"`

	want []float64 // features, then us
}

// pythonCases evaluates cases: features, then with a file the step time or the overhead.
const pythonCases = `
import json, sys
sys.path.insert(0, sys.argv[1])
import blis_train_coefficients as btc
from blis_train_coefficients import _yaml
files, out = {}, []
for version in ("1.4", "experimental", "1.0+queue-pole", "1.1+oak", "1.1+split-gates+log-queue", "1.2+log-queue+log-queue"):
    try:
        btc.step_of([], version)
        sys.exit("%s is not refused" % version)
    except btc.CoefficientError as e:
        assert e.code == "unknown_spec_version", e.code
for c in json.load(sys.stdin):
    space = btc.Space(c["deployment"], c["spec"])
    got = (space.beta(c["step"]) if "step" in c else space.alpha(c["request"]))[0]
    if c["file"]:
        document = files.get(c["file"])
        if document is None:
            with open(c["file"]) as f:
                document = files[c["file"]] = _yaml.loads(f.read())
        on = btc.Coefficients(document, deployment=c["deployment"])
        got += [on.step_us(c["step"]) if "step" in c else on.delay_us("overhead", c["request"])]
    out.append(got)
print(json.dumps(out))
`

// pythonBatches are steps of every kind, up to sizes beyond CUDA graphs.
func pythonBatches() [][]trace.Chunk {
	decodes := func(n, context int64) (out []trace.Chunk) {
		for i := range n {
			out = append(out, trace.Chunk{Computed: context + 7*i, Prompt: context / 2, New: 1})
		}
		return out
	}
	return [][]trace.Chunk{decodes(1, 900), decodes(37, 300), decodes(200, 4000), {{Prompt: 513, New: 513}},
		append(decodes(12, 700), trace.Chunk{Computed: 512, Prompt: 3000, New: 1024}, trace.Chunk{Prompt: 200, New: 200}),
		{{Computed: 2048, Prompt: 9000, New: 4096}, {Prompt: 90, New: 90}}}
}

// pythonDeployment is a server of a device, by weights, kind of model and tp; some do not schedule ahead, some
// fuse their all-reduces.
func pythonDeployment(t *testing.T, device, weights string, moe bool, tp int64) *deploy.Deployment {
	t.Helper()
	h, ok := deploy.Datasheet(device)
	if !ok {
		t.Fatalf("no device %q", device)
	}
	d := &deploy.Deployment{Hardware: h, TP: tp, PP: 1, DP: 1, Model: model.Model{ID: "lab/m-70b", NumLayers: 32, HiddenSize: 8192,
		NumHeads: 64, NumKVHeads: 8, HeadDim: 128, IntermediateSize: 28672, VocabSize: 128256, NumMLPProj: 3, BytesPerParam: 2, BytesPerWeight: 2,
		BytesPerKV: 2, BytesPerActivation: 2, BytesPerLMHead: 2, LinearCompute: "native"}}
	d.Engine = vllm.Engine{VLLMVersion: []string{"0.13.0", "0.16.0"}[tp%2], MaxNumSeqs: 256, MaxNumBatchedTokens: 8192, ChunkedPrefill: true,
		BlockSize: 16, GPUMemoryUtilization: 0.9, KVBlocksGPU: trace.Some(int64(20000))}
	if tp == 4 {
		d.Engine.Extra = map[string]any{"compilation_config": "fuse_allreduce_rms"}
	}
	if weights == "fp8" {
		d.Model.BytesPerWeight = 1
		d.Model.LinearCompute = "fp8"
	}
	if moe {
		d.Model.NumExperts = 16
		d.Model.TopK = 2
		d.Model.MoEIntermediateSize = 6400
		d.Model.NumMoELayers = 30
		d.Model.SharedExpertSize = 512
	}
	return d
}

// casesOf are every batch and request state on a deployment; set may be nil.
func casesOf(t *testing.T, file string, set *coeff.Set, spec features.Version, d *deploy.Deployment) (out []pythonCase) {
	t.Helper()
	space, err := features.New(spec, d)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range pythonBatches() {
		in := space.Sum(b)
		x := make([]float64, len(features.BetaFeatures(spec)))
		if _, err := space.Beta(&in, x); err != nil {
			t.Fatal(err)
		}
		c := pythonCase{File: file, Spec: spec, Deployment: d, want: x, Step: map[string]float64{
			"prefill_tokens": in.PrefillTokens, "decode_tokens": in.DecodeTokens, "scheduled_tokens": in.ScheduledTokens,
			"num_prefill_reqs": in.NumPrefillReqs, "num_decode_reqs": in.NumDecodeReqs, "num_sampled_seqs": in.NumSampledSeqs,
			"prefill_causal_work": in.PrefillCausalWork, "decode_context_tokens": in.DecodeContextTokens, "kv_read_tokens": in.KVReadTokens,
			"running_depth": in.RunningDepth}}
		if set != nil {
			c.want = append(x, features.On(set, d).Predict(x))
		}
		out = append(out, c)
	}
	for _, q := range []sim.Queue{{FreeBlocks: 20000, TotalBlocks: 20000, PromptTokens: 512},
		{Running: 200, Waiting: 31, FreeBlocks: 100, TotalBlocks: 20000, PromptTokens: 3000}} {
		in := features.QueueInput{RunningDepth: float64(q.Running), WaitingDepth: float64(q.Waiting),
			KVUsageRatio: 1 - float64(q.FreeBlocks)/float64(q.TotalBlocks), PromptTokens: float64(q.PromptTokens),
			KVFreeBlocks: float64(q.FreeBlocks)}
		x := make([]float64, len(features.AlphaFeatures(spec)))
		if _, err := space.Alpha(&in, x); err != nil {
			t.Fatal(err)
		}
		c := pythonCase{File: file, Spec: spec, Deployment: d, want: x, Request: map[string]float64{"running_depth": in.RunningDepth,
			"waiting_depth": in.WaitingDepth, "kv_usage_ratio": in.KVUsageRatio, "prompt_tokens": in.PromptTokens,
			"kv_free_blocks": in.KVFreeBlocks}}
		if set != nil {
			delay, err := sim.NewAlphaDelay(set, coeff.Overhead, d)
			if err != nil {
				t.Fatal(err)
			}
			us, err := delay.DelayUs(&q)
			if err != nil {
				t.Fatal(err)
			}
			c.want = append(x, max(0, us))
		}
		out = append(out, c)
	}
	return out
}

// TestPythonAgrees: the Python package gives what we give, to 1e-12, for every file of the library and of the
// examples (fitted to composed and to real recordings), and for every version. These truths are
// our own; those of others are the golden vectors (TestPython of the features). CUDA graphs are those of a third
// of the combinations of release, flags and limits.
func TestPythonAgrees(t *testing.T) { testPythonAgrees(t, 3) }

// TestEvalPythonAgrees: the same with every combination.
func TestEvalPythonAgrees(t *testing.T) {
	repo.NeedEval(t)
	testPythonAgrees(t, 1)
}

func testPythonAgrees(t *testing.T, every int) {
	t.Helper()
	python := pythonHere(t)
	var cases []pythonCase
	counts := map[string]int{}
	add := func(kind string, cs []pythonCase) {
		cases = append(cases, cs...)
		counts[kind] += len(cs)
	}
	for _, hardware := range []string{"A100", "H100", "B200"} {
		for _, tp := range []int64{1, 2, 4, 8} {
			d := pythonDeployment(t, hardware, "bf16", false, tp)
			set, err := fit.LibraryFor(d)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "library.yaml")
			var text bytes.Buffer
			if err := set.Save(&text); err != nil {
				t.Fatal(err)
			}
			repo.Write(t, text.String(), path)
			add("library", casesOf(t, path, set, set.SpecVersion, d))
		}
	}
	for _, of := range []string{"composed", "real"} {
		path := filepath.Join("..", "docs", "examples", of, "coefficients.yaml")
		data := repo.Read(t, path)
		set, err := coeff.Load(bytes.NewReader(data), path, features.CheckSet)
		if err != nil {
			t.Fatal(err)
		}
		for i := range set.Configs {
			add("examples "+of, casesOf(t, path, set, set.SpecVersion, &set.Configs[i].Deployment))
		}
	}
	for _, spec := range []features.Version{features.V11, features.V12, features.V12 + features.Components} {
		for _, moe := range []bool{false, true} {
			add("versions", casesOf(t, "", nil, spec, pythonDeployment(t, "B200", "bf16", moe, 4)))
		}
	}
	// Which CUDA graphs there are depends on the release and on flags.
	for i, version := range []string{"0.16.0", "0.22.1", "0.23.0", "0.28.0", "0.29.0", "main"} {
		for j, extra := range []map[string]any{nil, {"max_cudagraph_capture_size": 100}, {"performance_mode": "interactivity"},
			{"cudagraph_capture_sizes": []any{8, 64, 40, 512}}, {"compilation_config": map[string]any{"cudagraph_capture_sizes": []any{1, 300}}}} {
			for k, most := range []int64{8192, 203, 210} {
				if (i+j+k)%every > 0 {
					continue
				}
				d := pythonDeployment(t, []string{"H100", "B200"}[most%2], "bf16", false, 8)
				d.Engine.VLLMVersion = version
				d.Engine.Extra = extra
				d.Engine.MaxNumBatchedTokens = most
				d.Engine.MaxNumSeqs = 203
				add("graphs", casesOf(t, "", nil, features.V12, d))
			}
		}
	}
	got := pythonAnswers(t, python, pythonCases, cases, len(cases))
	worst := 0.0
	numbers := 0
	wrong := 0
	for i := range cases {
		c := &cases[i]
		if len(got[i]) != len(c.want) {
			t.Fatalf("%s %s: got %d numbers, want %d", c.File, c.Spec, len(got[i]), len(c.want))
		}
		for j, want := range c.want {
			off := math.Abs(got[i][j] - want)
			if want != 0 {
				off /= math.Abs(want)
			}
			numbers, worst = numbers+1, math.Max(worst, off)
			if !(off <= 1e-12) && wrong < 10 {
				wrong++
				t.Errorf("%s %s %s, step %v, request %v, number %d: got %v, want %v", c.File, c.Spec, c.Deployment.Label(), c.Step, c.Request, j+1,
					got[i][j], want)
			}
		}
	}
	if len(cases) < 319 {
		t.Errorf("%d cases, want at least 319", len(cases))
	}
	t.Logf("%d cases: %v, %d numbers, largest relative difference %.1e", len(cases), counts, numbers, worst)
}

// pythonLayers evaluates files of spec 1.3 from themselves alone, in a folder without a config.json.
const pythonLayers = `
import json, sys
sys.path.insert(0, sys.argv[1])
import blis_train_coefficients as btc
asked, out = json.load(sys.stdin), []
for path in asked["files"]:
    c = btc.load(path)
    got = [c.step_us(btc.step_of(b, "1.3", reaches=c.space.reaches)) for b in asked["batches"]]
    assert got == [btc.step_time(c, b) for b in asked["batches"]]
    out.append(got + [c.delay_us("overhead", r) for r in asked["requests"]])
try:
    btc.Space(c.deployment, "1.3")
    sys.exit("a deployment without the sums over its layers is not refused")
except btc.CoefficientError as e:
    assert e.code == "bad_coefficient_file", e.code
print(json.dumps(out))
`

// TestPythonEvaluatesLayers: coefficients of spec 1.3 for every sixteenth built-in model are a file below 64 kB, and the
// Python package gives from that file alone what we give, to 1e-9.
func TestPythonEvaluatesLayers(t *testing.T) { pythonEvaluatesLayers(t, 16) }

// TestEvalPythonEvaluatesLayers: the same for every built-in model.
func TestEvalPythonEvaluatesLayers(t *testing.T) {
	repo.NeedEval(t)
	pythonEvaluatesLayers(t, 1)
}

func pythonEvaluatesLayers(t *testing.T, every int) {
	t.Helper()
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(13, 1))
	var asked struct {
		Files    []string             `json:"files"`
		Batches  [][][3]int64         `json:"batches"`
		Requests []map[string]float64 `json:"requests"`
	}
	batches := append(pythonBatches(), []trace.Chunk{{Computed: 40000, Prompt: 60000, New: 8192}, {Computed: 130, Prompt: 100, New: 1}})
	for _, b := range batches {
		var of [][3]int64
		for _, c := range b {
			of = append(of, [3]int64{c.Computed, c.Prompt, c.New})
		}
		asked.Batches = append(asked.Batches, of)
	}
	queue := sim.Queue{Running: 12, Waiting: 3, FreeBlocks: 9000, TotalBlocks: 20000, PromptTokens: 7000}
	asked.Requests = []map[string]float64{{"running_depth": 12, "waiting_depth": 3, "kv_usage_ratio": 1 - 9000.0/20000, "prompt_tokens": 7000,
		"kv_free_blocks": 9000}}
	var want [][]float64
	largest, unlike := 0, 0
	for i, id := range model.BuiltInIDs() {
		if i%every > 0 {
			continue
		}
		d, err := deploy.LoadSettings("model.id="+id, "hardware.name="+[]string{"H200", "B200", "L40S"}[i%3],
			fmt.Sprintf("tensor_parallel_size=%d", []int{1, 4, 8}[i/3%3]), fmt.Sprintf("data_parallel_size=%d", 1+i%2),
			"vllm.version="+[]string{"0.19.1", "0.29.0"}[i/2%2], "vllm.max_num_seqs=256", "vllm.max_num_batched_tokens=8192",
			"vllm.max_model_len=100000", "vllm.kv_blocks_total_gpu=20000")
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		d.Engine.ExpertParallel = d.Model.IsMoE()
		if _, err := features.New(features.V13, d); err != nil {
			d.TP = 1 // vLLM would not load the model so
		}
		if d.Model.Layered != nil {
			unlike++
		}
		set := &coeff.Set{SchemaVersion: coeff.SchemaVersion, SpecVersion: features.V13, BetaTarget: coeff.Cadence, Gamma: 0.3,
			Beta: features.NewCoefficients(features.BetaFeatures(features.V13)), Configs: []coeff.Config{coeff.ConfigOf(d, []string{"planted"}, 1)},
			Alpha: []coeff.AlphaModel{{Target: coeff.Overhead, Replay: true,
				Coefficients: features.NewCoefficients(features.AlphaFeatures(features.V13))}}}
		set.Configs[0].Layers = set.Configs[0].Deployment.LayerSums()
		for _, cs := range [][]coeff.Coefficient{set.Beta, set.Alpha[0].Coefficients} {
			for j := range cs {
				if cs[j].Value = 100 * r.Float64(); cs[j].Unit == "us/s" {
					cs[j].Value = 1e6 * (1 + r.Float64())
				}
			}
		}
		file := filepath.Join(dir, strings.ReplaceAll(id, "/", "--")+".yaml")
		data, err := folder.SetBytes(set)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		repo.Write(t, data, file)
		if set, _, err = folder.LoadCoefficients(file, false); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		if largest = max(largest, len(data)); len(data) >= 64<<10 {
			t.Errorf("%s: a file of %d bytes, want less than 64 kB", id, len(data))
		}
		on := &set.Configs[0].Deployment
		step, err := NewStepTimes(set, on)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		var own []float64
		for _, b := range batches {
			us, err := step.StepUs(b)
			if err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			own = append(own, us)
		}
		delay, err := sim.NewAlphaDelay(set, coeff.Overhead, on)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		us, err := delay.DelayUs(&queue)
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		asked.Files = append(asked.Files, file)
		want = append(want, append(own, us))
	}
	python := pythonHere(t)
	got := pythonAnswers(t, python, pythonLayers, &asked, len(want))
	worst := 0.0
	for i := range want {
		for j, v := range want[i] {
			off := math.Abs(got[i][j]/v - 1)
			if worst = math.Max(worst, off); !(off <= 1e-9) {
				t.Errorf("%s, number %d: got %v us, want %v", asked.Files[i], j+1, got[i][j], v)
			}
		}
	}
	t.Logf("%d models, %d of unlike layers: largest file %d bytes, largest relative difference %.1e", len(want), unlike, largest, worst)
}

// pythonHere is the interpreter; without one the test is skipped.
func pythonHere(t *testing.T) string {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("skipped: no python3 on PATH")
	}
	return python
}

// pythonAnswers are the n rows of numbers that a script beside our Python package gives to a question.
func pythonAnswers(t *testing.T, python, script string, question any, n int) (got [][]float64) {
	t.Helper()
	in, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-B", "-c", script, filepath.Join("..", "python"))
	var stderr bytes.Buffer
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	if err := json.Unmarshal(out, &got); err != nil || len(got) != n {
		t.Fatalf("got %d answers of %d: %v", len(got), n, err)
	}
	return got
}
