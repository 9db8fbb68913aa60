package build

import (
	"context"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/vllm"
)

// near fails unless got is want to a part in a billion.
func near(t *testing.T, name string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 1e-9*math.Max(1, math.Abs(want))) {
		t.Errorf("%s: got %.12g, want %.12g", name, got, want)
	}
}

// TestCorrectionParameters: the prior means, first those of a step and the overhead, then two for each GPU, by name.
func TestCorrectionParameters(t *testing.T) {
	c := newCorrection([]string{"H100", "B200", "H100"})
	if len(c.Theta) != 20 || c.gpuIndex("B200") != 16 || c.gpuIndex("H100") != 18 || c.gpuIndex("L40S") != -1 ||
		c.gpuOf(15) != "" || c.gpuOf(16) != "B200" || c.gpuOf(17) != "B200" || c.gpuOf(19) != "H100" || c.prior(19).Name != "prompt_scale" {
		t.Errorf("got %+v", c)
	}
	near(t, "gpu_scale", c.Theta[library.ScaleGPU], 1)
	near(t, "overhead", c.Theta[15], 8000)
	near(t, "what H100 differs by", c.Theta[18], 0)
	near(t, "standard error of the prior", c.se(15), 3000)
	c.Theta[18], c.Theta[16], c.Theta[19] = 0.25, -0.75, 0.125
	if h := c.stepValuesOn("H100"); h[library.ScaleGPU] != 1.25 || h[library.ScalePrompt] != 0.125 || h[library.HostStep] != 200 {
		t.Errorf("H100: got %v", h)
	}
	if b := c.stepValuesOn("B200"); b[library.ScaleGPU] != 0.5 { // not below its least value
		t.Errorf("B200: got %v", b)
	}
	if l := c.stepValuesOn("L40S"); l[library.ScaleGPU] != 1 {
		t.Errorf("L40S: got %v", l)
	}
	by := make([]float64, 16)
	for i := range by {
		by[i] = float64(i + 1)
	}
	d := c.derivativesOf("H100", by)
	if d[0] != 1 || d[15] != 16 || d[16] != 0 || d[17] != 0 || d[18] != float64(library.ScaleGPU+1) || d[19] != float64(library.ScalePrompt+1) {
		t.Errorf("got %v", d)
	}
	e := relativeEvidence(20, 10, []float64{4, 8}, 0.5, 3)
	near(t, "log", e.log, math.Log(2))
	if e.by[0] != 0.2 || e.by[1] != 0.4 || e.sd != 0.5 || e.weight != 3 {
		t.Errorf("got %+v", e)
	}
	m := means{at: []float64{1, 2}}
	near(t, "a linear change", m.changeTo(&correction{Theta: []float64{1.5, 1}}, []float64{10, 3}), 10*0.5-3)
	if got := gpusOf([]*load{{dep: &deploy.Deployment{Hardware: deploy.Hardware{Name: "B"}}}}, []*cycles{{gpu: "C"}, {gpu: "A"}, {gpu: "B"}}); !reflect.DeepEqual(got, []string{"A", "B", "C"}) {
		t.Errorf("got %v", got)
	}
}

// TestGaussNewtonStep: with one evidence on the overhead (mean 8000, SD 3000) the step is that of two weighted values,
// and its standard error that of both. Beyond two standard deviations the weight falls with the size.
func TestGaussNewtonStep(t *testing.T) {
	const k = 15
	one := func(log, by, sd, weight float64) evidence {
		e := evidence{log: log, by: make([]float64, 16), sd: sd, weight: weight}
		e.by[k] = by
		return e
	}
	for _, c := range []struct {
		name  string
		e     evidence
		huber float64
	}{{"within", one(0.19, 1e-3, 0.1, 2), 1}, {"at two deviations", one(-0.2, 1e-3, 0.1, 2), 1}, {"at four deviations", one(0.4, 1e-3, 0.1, 2), 0.5}} {
		got := newCorrection(nil)
		got.gaussNewtonStep([]evidence{c.e})
		prior := 1 / (3000.0 * 3000)
		w := 2 / (0.1 * 0.1) * c.huber
		normal := prior + w*1e-3*1e-3
		near(t, c.name, got.Theta[k], 8000-w*1e-3*c.e.log/normal)
		near(t, c.name+", standard error", got.se(k), math.Sqrt(1/normal))
		near(t, c.name+", host_step_us", got.Theta[library.HostStep], 200)
		near(t, c.name+", host_step_us, standard error", got.se(int(library.HostStep)), 30)
	}
	// A second step from a value away from the mean is drawn back to it: without evidence to the mean itself.
	c := newCorrection(nil)
	c.Theta[k] = 9000
	c.gaussNewtonStep(nil)
	near(t, "without evidence", c.Theta[k], 8000)
}

// TestSolveHoldsAtLeast: host_step_us and host_rank_us (200 with SD 30, 80 with SD 20, neither below 0) share an evidence
// that their sum is far too large. host_rank_us would fall to -20 first, is held at 0, and the other is solved with it.
func TestSolveHoldsAtLeast(t *testing.T) {
	c := newCorrection(nil)
	a, b := int(library.HostStep), int(library.HostRank)
	c.Theta[b] = 20
	e := evidence{log: 1, by: make([]float64, 16), sd: 1, weight: 1}
	e.by[a], e.by[b] = 0.01, 0.03
	pa, pb := 1/900.0, 1/400.0
	rhsA, rhsB := -0.01, 60*pb-0.03*30 // of the prior's pull of 60 towards 80, and of the evidence 30 times as heavy
	e2 := evidence{log: 29, by: make([]float64, 16), sd: 1e9, weight: 1e18}
	e2.by[b] = 0.03
	c.gaussNewtonStep([]evidence{e, e2})
	// host_rank_us held: a move of -20, which the shared evidence passes on to host_step_us.
	want := (rhsA - 0.01*0.03*-20) / (pa + 0.01*0.01)
	if rhsB > 0 {
		t.Fatal("the case has no parameter to hold")
	}
	near(t, "host_rank_us", c.Theta[b], 0)
	near(t, "host_step_us", c.Theta[a], 200+want)
}

// TestInterval90: of four errors the conformal rank 0.9 x 5 / 4 is beyond the largest; of 19 it is 18/19 of 18 gaps.
func TestInterval90(t *testing.T) {
	near(t, "four", interval90([]float64{0.4, 0.1, 0.3, 0.2}), 0.4)
	var v []float64
	for i := range 19 {
		v = append(v, float64(18-i))
	}
	near(t, "19", interval90(v), 18*18.0/19)
}

// TestJudgement: three points of a family, one of them of unknown flags. TPOT errors +10, -20 and +30 %: mean 20 %. TTFT
// -5, +15, +25 %: median 15 %. The first takes 100 + 9 x 10 = 190 ms, predicted 95 + 99 = 194, an error of 2.1 %.
func TestJudgement(t *testing.T) {
	decoder := &model.Decoder{KVBytes: 2}
	dep := func(tp int64) *deploy.Deployment {
		return &deploy.Deployment{TP: tp, DP: 1, PP: 1, Model: model.Model{Layered: decoder}}
	}
	fp8 := &served{More: vllm.Values{"kv_cache_dtype": "fp8"}}
	list := []judged{
		{&load{family: "F", group: "F", dep: dep(4), step: &library.Step{Family: "F"}, ttftMs: 100, tpotMs: 10, point: &point{model: "b", served: fp8,
			Level: requestfit.Level{InputTokens: 1000, OutputTokens: 10, Concurrency: 4}}}, 0.1, -0.05, 0.1, 0.5},
		{&load{family: "F", group: "F", dep: dep(2), step: &library.Step{Family: "F"}, ttftMs: 200, tpotMs: 20, point: &point{model: "a", served: fp8,
			Level: requestfit.Level{InputTokens: 2000, OutputTokens: 11, Concurrency: 8}}}, -0.2, 0.15, 0.2, 0.5},
		{&load{family: "F", group: "F", dep: dep(2), step: &library.Step{Family: "F"}, ttftMs: 400, tpotMs: 40, point: &point{model: "a",
			Level: requestfit.Level{InputTokens: 500, OutputTokens: 21, Concurrency: 16}}}, 0.3, 0.25, 0.1, 0.5},
	}
	got := judgementOf("F", list)
	if got.Family != "F" || got.Model != "a and b" || !reflect.DeepEqual(got.TP, []int64{2, 4}) || got.Points != 3 || !got.Unknown ||
		!reflect.DeepEqual(got.Flags, []string{"--kv-cache-dtype fp8 (2 of 3)"}) {
		t.Errorf("got %+v", got)
	}
	near(t, "mean TPOT", got.TPOTMape, 0.2)
	near(t, "median TTFT", got.TTFTMedian, 0.15)
	near(t, "TPOT interval", got.Intervals.ITL, 0.3)
	near(t, "TTFT interval", got.Intervals.TTFT, 0.25)
	// E2E: 194 of 190; 230 + 160 = 390 of 400; 500 + 1040 = 1540 of 1200, the largest: 28.3 %. Throughput is its inverse.
	near(t, "E2E interval", got.Intervals.E2E, 0.283)
	near(t, "throughput interval", got.Intervals.Throughput, 0.221)
	if one := judgementOf("F", list[:1]); one.Unknown || one.Intervals.E2E != 0.0211 && one.Intervals.E2E != 0.021 {
		t.Errorf("one point: got %+v", one)
	}

	c := newCorrection([]string{"H100"})
	c.Theta[16], c.Theta[15] = 0.0123456, 7654.321
	hidden := judged{&load{group: "gpt-oss 120b", step: &library.Step{Family: "hidden"}, point: &point{Level: requestfit.Level{Concurrency: 512}}}, 9, 9, 1, 1}
	out := c.published("v1", append(list, hidden))
	if out.Version != "v1" || len(out.Judged) != 1 || out.Unseen != got.Intervals || out.GPUs["H100"]["gpu_scale"] != [2]float64{0.01235, 0.003} ||
		out.Step["overhead_us"] != [2]float64{7654, 3000} || len(out.Step) != 16 || len(out.GPUs["H100"]) != 2 {
		t.Errorf("got %+v", out)
	}
	hidden.point.Concurrency = 511
	if !hidden.listed() || !(&load{group: "gpt-oss"}).listed() || (&load{group: "gpt-oss", point: &point{Level: requestfit.Level{Concurrency: 512}}}).listed() ||
		!(&load{group: "other", point: &point{Level: requestfit.Level{Concurrency: 512}}}).listed() {
		t.Error("the points of gpt-oss at 512 clients are not listed, all others are")
	}
	text, err := Text(out, []result.Input{{Name: "a.csv", SHA256: "ff"}})
	if err != nil || !strings.HasPrefix(string(text), "# Made by `blis-train library build`; nothing is written by hand.\n# from a.csv, sha256 ff\nversion: v1\n") {
		t.Errorf("got %.200s and %v", text, err)
	}
}

const flagsText = `id,tp,dp,expert_parallel,max_num_seqs,max_num_batched_tokens,gpu_memory_utilization,further_vllm_keys
p1,2,1,0,64,2048,0.85,"{""kv_cache_dtype"":""fp8"",""block_size"":32,""max_cudagraph_capture_size"":128,""compilation_config"":""{\""pass_config\"":{\""fuse_allreduce_rms\"":true}}""}"
p2,4,2,1,128,4096,1,
`

// TestFlags: every column of a file of flags, how it changes the deployment, how it is shown, and what is refused.
func TestFlags(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "flags.csv")
	repo.Write(t, flagsText, path)
	got, in, err := readFlags(path)
	if err != nil || in.Name != "flags.csv" || len(got) != 2 {
		t.Fatalf("got %v, %+v and %v", got, in, err)
	}
	if p := got["p2"]; !reflect.DeepEqual(*p, served{TP: 4, DP: 2, ExpertParallel: true, MaxNumSeqs: 128, TokenBudget: 4096, MemoryShare: 1}) {
		t.Errorf("got %+v", p)
	}
	p := got["p1"]
	if p.TP != 2 || p.DP != 1 || p.ExpertParallel || p.MaxNumSeqs != 64 || p.TokenBudget != 2048 || p.MemoryShare != 0.85 {
		t.Errorf("got %+v", p)
	}
	if flags := p.shown(); !reflect.DeepEqual(flags, []string{"--kv-cache-dtype fp8", "--max-cudagraph-capture-size 128", "fuse_allreduce_rms"}) {
		t.Errorf("got %q", flags)
	}
	if (*served)(nil).shown() != nil {
		t.Error("unknown flags are not shown")
	}
	d, m := &deploy.Deployment{Engine: pointEngine}, &model.Decoder{KVBytes: 2}
	if err := p.apply(d, m); err != nil || d.TP != 2 || d.DP != 1 || d.Engine.MaxNumSeqs != 64 || d.Engine.MaxNumBatchedTokens != 2048 || d.Engine.GPUMemoryUtilization != 0.85 ||
		d.Engine.BlockSize != 32 || m.KVBytes != 1 || d.Engine.ExpertParallel {
		t.Errorf("got %+v, %g and %v", d, m.KVBytes, err)
	}
	for _, c := range []struct{ old, new, want string }{
		{"p1,2,", "p1,0,", `:2: flags of measured points: tp: got "0", want a whole number of at least 1`},
		{",64,", ",x,", `:2: flags of measured points: max_num_seqs: got "x", want a whole number`}, {"0.85", "0", `gpu_memory_utilization: got "0", want a share in (0, 1]`},
		{",1,\n", ",1.01,\n", `:3: flags of measured points: gpu_memory_utilization: got "1.01"`}, {"p2,", "p1,", `:3: flags of measured points: got id "p1" twice`},
		{"id,tp,", "id,tq,", `got no column "tp"`}, {`"{""kv`, `"[""kv`, ":2: flags of measured points: further_vllm_keys"}, {flagsText, "id\n", "got no rows"},
	} {
		repo.Write(t, strings.Replace(flagsText, c.old, c.new, 1), path)
		if _, _, err := readFlags(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.new, err, c.want)
		}
	}
	for _, more := range []vllm.Values{{"kv_cache_dtype": "nothing"}, {"compilation_config": "{"}} {
		if err := (&served{More: more}).apply(d, m); err == nil {
			t.Errorf("%v was applied", more)
		}
	}
}

// TestLearnPoints: two points of an 8B model on one H100 become closed loops of ten requests for each client, and the
// corrections learned from them name what they left out.
func TestLearnPoints(t *testing.T) {
	dir := t.TempDir()
	repo.Write(t, `{"model_type":"llama","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,"vocab_size":128256,"torch_dtype":"bfloat16"}`,
		dir, "org--m_config.json")
	repo.Write(t, "id,model,system,weights,tp,input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms,engine_version,measured,moe_ep\n"+
		"p1,org/m,H100,bf16,1,100,4,1,20,8,0.11.0,,\np2,org/m,H100,bf16,1,100,4,2,25,9,0.11.0,,\np3,org/m,H100,bf16,1,100,4,2,25.02,9,0.11.0,,\np4,org/m,H100,bf16,1,100,4,2,25.03,9,0.11.0,,\n", dir, "points.csv")
	repo.Write(t, "id,tp,dp,expert_parallel,max_num_seqs,max_num_batched_tokens,gpu_memory_utilization,further_vllm_keys\np1,1,1,0,64,2048,0.9,\n", dir, "flags.csv")
	src := Sources{Points: []string{filepath.Join(dir, "points.csv")}, Flags: filepath.Join(dir, "flags.csv"), Models: dir}
	m, err := Read(context.Background(), src)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.points) != 3 || len(m.Inputs) != 2 || m.points[2].name != "p4" { // p3 is within a thousandth of p2, p4 is not
		t.Fatalf("got %d points, %+v", len(m.points), m.Inputs)
	}
	a, b := m.points[0], m.points[1]
	if len(a.reqs) != 10 || len(b.reqs) != 20 || a.group != "m bf16, H100-SXM-80GB" || a.ttftMs != 20 || a.tpotMs != 8 || a.tpotWeight != 1 || a.ttftWeight != 1 ||
		b.tpotWeight != 0 || b.ttftWeight != 0 || a.dep.Engine.MaxNumSeqs != 64 || b.dep.Engine.MaxNumSeqs != 1024 || a.dep.Engine.VLLMVersion != "0.11.0" {
		t.Errorf("got %+v\n%+v", a, b)
	}
	got, err := m.Learn(context.Background(), "v", 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Judged) != 1 || got.Judged[0].Points != 3 || !got.Judged[0].Unknown || got.Judged[0].Model != "org/m" || got.GPUs["H100-SXM-80GB"] == nil {
		t.Errorf("got %+v", got)
	}
	// The fit moves the prediction of the point towards what was measured.
	prior := newCorrection([]string{"H100-SXM-80GB"})
	of, err := prior.simulateAll(context.Background(), m.points, 1)
	if err != nil {
		t.Fatal(err)
	}
	before, err := prior.predictLoads(context.Background(), m.points[:1], 1)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "the error of TPOT", before[0].tpotErr, of[a].TPOTMs/8-1)
	near(t, "the error of TTFT", before[0].ttftErr, of[a].TTFTMs/20-1)
	after, err := fitCorrection(prior, m.points, of, nil).predictLoads(context.Background(), m.points[:1], 1)
	if err != nil || !(math.Abs(after[0].ttftErr) < math.Abs(before[0].ttftErr)) {
		t.Errorf("TTFT: got an error of %g after %g, %v", after[0].ttftErr, before[0].ttftErr, err)
	}
}

// TestVersions: numbers are compared as numbers.
func TestVersions(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"0.9.1", "0.14.0", -1}, {"0.14.0", "0.9.1", 1}, {"1.2", "1.2", 0}, {"1.2", "1.2.1", -1}, {"a", "b", -1}} {
		if got := compareVersions(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: got %d", c.a, c.b, got)
		}
	}
}
