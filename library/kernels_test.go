package library

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

func deploymentOn(t *testing.T, gpu string, tp int64, linear string) *deploy.Deployment {
	t.Helper()
	h, ok := deploy.Datasheet(gpu)
	if !ok {
		t.Fatal(gpu)
	}
	d := &deploy.Deployment{Hardware: h, TP: tp, PP: 1, DP: 1, Model: model.Model{ID: "m", NumLayers: 64, HiddenSize: 5120, NumHeads: 64,
		NumKVHeads: 8, HeadDim: 128, IntermediateSize: 25600, VocabSize: 151936, NumMLPProj: 3, BytesPerWeight: 2, BytesPerKV: 2,
		BytesPerActivation: 2, LinearCompute: linear}}
	if linear == fp8 {
		d.Model.BytesPerWeight = 1
	}
	d.Engine = vllm.Engine{VLLMVersion: "0.16.0", MaxNumSeqs: 256, MaxNumBatchedTokens: 8192, ChunkedPrefill: true, BlockSize: 16}
	return d
}

func bound(t *testing.T, d *deploy.Deployment) *Step {
	t.Helper()
	s, err := Bound(d, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// steps are batches of decodes, prompts and both.
func steps() []Batch {
	decode := trace.Chunk{Computed: 2000, Prompt: 1, New: 1}
	prompt := trace.Chunk{Prompt: 2048, New: 2048}
	behind := trace.Chunk{Computed: 4096, Prompt: 6144, New: 2048}
	var out []Batch
	for _, n := range []int{1, 8, 64} {
		var chunks []trace.Chunk
		for range n {
			chunks = append(chunks, decode)
		}
		out = append(out, BatchOf(chunks), BatchOf(append(chunks, prompt, behind)))
	}
	return append(out, BatchOf([]trace.Chunk{prompt}), BatchOf([]trace.Chunk{behind}))
}

// TestOrderOfGPUsAndRanks: over all tables and kinds of models, a step's kernels take no longer on twice the ranks, with weights of fewer
// bits than bfloat16, or on H200 than on H100, where the answer does not name the rows that say so.
func TestOrderOfGPUsAndRanks(t *testing.T) {
	models := []string{"nvidia/Llama-3.1-70B-Instruct-FP8", "nvidia/Kimi-K2.5-NVFP4", "openai/gpt-oss-120b"}
	compared, named := 0, map[string]int{}
	for _, gpu := range []string{"H200", "B200", "RTX-PRO-6000"} {
		for _, id := range models {
			for _, tp := range []int64{4, 8} {
				d, err := deploy.LoadSettings("model.id="+id, "hardware.name="+gpu, "vllm.version=0.24.0", "vllm.max_num_seqs=256",
					"vllm.max_num_batched_tokens=8192", "vllm.max_model_len=10000", "vllm.kv_blocks_total_gpu=20000",
					fmt.Sprintf("tensor_parallel_size=%d", tp))
				if err != nil {
					t.Fatalf("%s: %v", id, err)
				}
				s, err := Bound(d, Options{})
				if err != nil {
					continue
				}
				said := strings.Join(Contradictions(d, s, Options{}), "; ")
				half, h100 := *d, *d
				half.TP /= 2
				h100.Hardware, _ = deploy.Datasheet("H100")
				for _, c := range []struct {
					words string
					asked bool
					d     *deploy.Deployment
					o     Options
				}{{"tensor parallelism", tp > 1, &half, Options{}}, {"bfloat16", true, d, Options{BF16: true}},
					{"H100", gpu == "H200", &h100, Options{}}} {
					if !c.asked {
						continue
					}
					other, err := Bound(c.d, c.o)
					if err != nil {
						continue
					}
					compared++
					own, theirs := s.NewPricer(), other.NewPricer()
					for _, b := range steps() {
						p, q := own.Parts(&b), theirs.Parts(&b)
						us := p[Compute] + p[Experts]
						least := q[Compute] + q[Experts]
						switch {
						case us <= 1.03*least:
						case strings.Contains(said, c.words):
							named[c.words]++
						default:
							t.Errorf("%s on %d x %s: got %.0f us, %.0f by %s, said %q: %+v", id, tp, gpu, us, least, c.words, said, b)
						}
					}
				}
			}
		}
	}
	if compared < 20 || named["bfloat16"] == 0 {
		t.Errorf("got %d comparisons, of which rows contradict %v", compared, named)
	}
	t.Logf("%d comparisons, of which rows contradict, and are named, %v", compared, named)
}

// TestPricerAddsUpOperators: what is priced once per number of tokens is what the operators say one by one.
// TestRanksOfExperts: ranks in lockstep pay for the experts' tokens of all of them and for the exchange, and pad alike or not at all.
func TestRanksOfExperts(t *testing.T) {
	of := func(dp int64, eager bool, backend string) *Step {
		d, err := deploy.LoadSettings("model.id=Qwen/Qwen3-30B-A3B-FP8", "hardware.name=H200", "vllm.version=0.24.0", "vllm.max_num_seqs=256",
			"vllm.max_num_batched_tokens=8192", "vllm.enable_expert_parallel=true", fmt.Sprintf("data_parallel_size=%d", dp),
			fmt.Sprintf("vllm.enforce_eager=%t", eager), "vllm.all2all_backend="+cmp.Or(backend, "naive"))
		if err != nil {
			t.Fatal(err)
		}
		return bound(t, d)
	}
	us := func(s *Step, b Batch, name string) float64 {
		for i, v := range s.Us(&b) {
			if s.Operators[i].Name == name {
				return v
			}
		}
		return math.NaN()
	}
	four := of(4, false, "allgather_reducescatter")
	alone := Batch{Tokens: 8, Sequences: 8, Decodes: 8, DecodeContext: 8000}
	beside := alone
	beside.Run, beside.All = 256, 1024
	for _, name := range []string{"experts", "dispatch", "combine", "o_proj"} {
		if few, many := us(four, alone, name), us(four, beside, name); !(many > few) {
			t.Errorf("%s: got %g us among ranks of 8 tokens and %g beside one of 256, want more", name, few, many)
		}
	}
	if few, many := us(four, alone, "attention_decode"), us(four, beside, "attention_decode"); few != many {
		t.Errorf("attention_decode: got %g and %g us, want the rank's own", few, many)
	}
	if !four.Captured(&beside) {
		t.Error("ranks padded alike: got no graph, want one")
	}
	if beside.All = 8 + 3*256; four.Captured(&beside) {
		t.Error("ranks that are not padded: got a graph, want none")
	}
	if s := of(1, false, ""); !math.IsNaN(us(s, alone, "dispatch")) || len(s.Unjudged) > 0 {
		t.Errorf("one engine: got a dispatch or %v, want neither", s.Unjudged)
	}
	if s := of(16, false, "naive"); s.Operators[len(s.Operators)-1].Reached == Substituted || !strings.Contains(s.Unjudged[0], "network") ||
		!(us(s, alone, "dispatch") > us(of(8, false, "naive"), alone, "dispatch")) {
		t.Errorf("16 ranks: got %g us of dispatch, %v", us(s, alone, "dispatch"), s.Unjudged)
	}
	if s := of(1, true, ""); s.Captured(&alone) || len(s.Unjudged) == 0 {
		t.Errorf("eager: got graphs or %v, want none and a reason", s.Unjudged)
	}
	if s := of(8, false, "deepep_low_latency"); !(us(s, alone, "dispatch") > 10 && us(s, alone, "dispatch") < 1e4) || len(s.Unjudged) == 0 {
		t.Errorf("DeepEP: got a dispatch of %g us over 48 layers and %v", us(s, alone, "dispatch"), s.Unjudged)
	}
}

func TestPricerAddsUpOperators(t *testing.T) {
	s := bound(t, deploymentOn(t, "B200", 4, "native"))
	p := s.NewPricer()
	for range 2 {
		for _, b := range steps() {
			sum := 0.0
			for _, us := range s.Us(&b) {
				sum += us
			}
			if parts := p.Parts(&b); math.Abs(parts.Total()/sum-1) > 1e-12 {
				t.Errorf("%+v: got %g us, operators %g", b, parts.Total(), sum)
			}
		}
	}
}

// TestLookupsSayHowTheyWereReached: a measured column, one between, one beyond, and rows that are not there.
func TestLookupsSayHowTheyWereReached(t *testing.T) {
	g, err := For(&deploymentOn(t, "H100", 1, "native").Hardware)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n, k int64
		want Reached
	}{{8192, 8192, Measured}, {9000, 8192, Interpolated}, {100_000, 8192, Beyond}} {
		curve, f, err := g.gemm(bf16, c.n, c.k)
		if err != nil || f.Reached != c.want || f.Kernel == "" || f.Version != "0.24.0" || f.Table != "gemm" {
			t.Errorf("%d x %d: got %+v, %v, want %s", c.n, c.k, f, err, c.want)
		}
		for i := 1; i < len(curve.y); i++ {
			if curve.y[i] < curve.y[i-1] {
				t.Errorf("%d x %d: more tokens take less: %g after %g us", c.n, c.k, curve.y[i], curve.y[i-1])
			}
		}
	}
	wide, _, _ := g.gemm(bf16, 8192, 8192)
	light, f, err := g.gemm("int4_wo", 8192, 8192) // weights of a quarter of the bytes that compute as before
	if first, last := light.y[0]/wide.y[0], light.usAt(8192, 1)/wide.usAt(8192, 1); err != nil || !f.unlike || f.Reached != Substituted ||
		first < 0.25 || first > 0.4 || last < 0.9 || last > 1 {
		t.Errorf("int4_wo: got %+v, %v, %g of bfloat16 at one token and %g at 8192", f, err, first, last)
	}
	full, _, _, _ := g.attention("context_attention", heads{kvDType: bf16, dim: 128, query: 32, kvHeads: 8})
	seen, _, f, err := g.attention("context_attention", heads{kvDType: bf16, dim: 128, query: 32, kvHeads: 8, window: 1000})
	one, all := seen.curveAt(1), full.curveAt(1)
	if got, want := one.usAt(16000, 2)/all.usAt(16000, 2), pairs(0, 16000, 1000)/pairs(0, 16000, 0); err != nil || !f.unlike ||
		math.Abs(got/want-1) > 0.1 {
		t.Errorf("window: got %+v, %v, %g of full attention, want %g", f, err, got, want)
	}
	if _, _, f, err := g.attention("generation_attention", heads{kvDType: bf16, dim: 96, query: 32, kvHeads: 8}); err != nil ||
		!strings.Contains(f.Note, "from heads of 128") {
		t.Errorf("heads of 96: got %+v, %v", f, err)
	}
	if _, _, err := g.collective("nccl", "nccl_dtype", "op_name", "broadcast", 4); trace.CodeOf(err) != NoRows ||
		!strings.Contains(err.Error(), "nearest nccl_dtype") {
		t.Errorf("got %v", err)
	}
	of := expertShape{dtypes: []string{"fp8_block"}, hidden: 4096, inter: 1536, topK: 8, experts: 128, tp: 8, ep: 1, projections: 3, load: defaultLoad}
	if _, f, err := g.experts(of); err != nil || f.Reached != Substituted || !strings.Contains(f.Note, "scaled from 4") {
		t.Errorf("experts at tp 8: got %+v, %v", f, err)
	}
	if of.tp, of.ep = 1, 8; true {
		if _, f, err := g.experts(of); err != nil || !strings.Contains(f.Kernel, "flashinfer_cutlass") || f.Reached != Measured {
			t.Errorf("whole experts: got %+v, %v", f, err)
		}
	}
}

// TestSeriesThatBrokeOff: GB200's rows of one shape of experts end at one token; others stand for them.
func TestSeriesThatBrokeOff(t *testing.T) {
	of := expertShape{dtypes: []string{nvfp4}, hidden: 2048, inter: 512, topK: 8, experts: 256, tp: 1, ep: 1, projections: 3, load: defaultLoad}
	long := map[string]float64{}
	for _, name := range []string{"B200", "GB200"} {
		h, _ := deploy.Datasheet(name)
		g, err := For(&h)
		if err != nil {
			t.Fatal(err)
		}
		c, f, err := g.experts(of)
		if want := map[string]Reached{"GB200": Substituted}[name]; err != nil || f.Reached != want {
			t.Errorf("%s: got %+v, %v, want %s", name, f, err, want)
		}
		long[name] = c.usAt(8192, 1)
	}
	if r := long["GB200"] / long["B200"]; r < 0.5 || r > 2 {
		t.Errorf("8192 tokens: got %v us", long)
	}
}

// TestExpertsOfFewBits: weights that compute as bfloat16 take a kernel of their dtype before others of as many bits, and where there are
// none of few bits the bytes of those that the tokens touch are saved.
func TestExpertsOfFewBits(t *testing.T) {
	of := expertShape{dtypes: []string{"int4_wo"}, hidden: 2048, inter: 768, topK: 8, experts: 128, tp: 1, ep: 1, projections: 3, load: defaultLoad}
	for name, kernel := range map[string]string{"B200": "marlin", "H100": "marlin", "A100": "vllm_fused_moe"} {
		h, _ := deploy.Datasheet(name)
		g, err := For(&h)
		if err != nil {
			t.Fatal(err)
		}
		c, f, err := g.experts(of)
		if err != nil || !f.unlike || !strings.Contains(f.Kernel, kernel) {
			t.Errorf("%s: got %+v, %v", name, f, err)
		}
		wide := of
		wide.dtypes = []string{bf16}
		full, _, err := g.experts(wide)
		if r := c.usAt(32, 1) / full.usAt(32, 1); err != nil || r < 0.2 || r > 0.6 {
			t.Errorf("%s: 32 tokens: got %g of bfloat16, %v", name, r, err)
		}
	}
}

// TestCacheIsRead: beyond its rows attention takes no less than its cache takes to be read, of decodes and of a chunk behind it.
func TestCacheIsRead(t *testing.T) {
	for _, gpu := range []string{"H100", "B200", "L40S"} {
		s := bound(t, deploymentOn(t, gpu, 1, "native"))
		for _, c := range []struct {
			name            string
			batch           Batch
			requests, cache float64
		}{{"attention_decode", Batch{Tokens: 512, Sequences: 512, Decodes: 512, DecodeContext: 512 * 60000}, 512, 60000},
			{"attention_prefill", BatchOf([]trace.Chunk{{Computed: 60000, Prompt: 60016, New: 16}}), 1, 60000}} {
			for i, us := range s.Us(&c.batch) {
				least := 1e6 * 64 * 8 * 2 * 128 * 2 * c.requests * c.cache / s.GPU.Bandwidth
				if op := &s.Operators[i]; op.Name == c.name && us < 0.999*least {
					t.Errorf("%s, %s: got %.0f us, want at least %.0f", gpu, c.name, us, least)
				}
			}
		}
	}
}

// TestLaunchBoundColumns: block-scaled fp8 on B200 was timed with its host's launches; it takes no more than per-tensor fp8 and 1 us.
func TestLaunchBoundColumns(t *testing.T) {
	g, err := For(&deploymentOn(t, "B200", 1, "native").Hardware)
	if err != nil {
		t.Fatal(err)
	}
	block, f, err := g.gemm(fp8Block, 2048, 3072)
	if err != nil || !strings.Contains(f.Note, "launch-bound") {
		t.Fatalf("got %+v, %v", f, err)
	}
	if plain, _, _ := g.gemm(fp8, 2048, 3072); block.usAt(16, 1) > plain.usAt(16, 1)+1.001 {
		t.Errorf("got %g us, per tensor %g", block.usAt(16, 1), plain.usAt(16, 1))
	}
	if _, f, _ := g.gemm(bf16, 2048, 3072); f.Note != "" {
		t.Errorf("bf16: got %q", f.Note)
	}
}

// TestFiguresAreOfTheirOwnFamily: an answer carries the error of its family alone, or says that it is unjudged.
func TestFiguresAreOfTheirOwnFamily(t *testing.T) {
	c := Learned()
	for _, d := range []struct {
		gpu, linear string
		tp          int64
		judged      bool
	}{{"H100", "native", 2, true}, {"H100", "native", 1, false}, {"H100", fp8, 2, true}, {"H200", "native", 2, false},
		{"B200", "native", 2, false}, {"L40S", "native", 2, false}} {
		s := bound(t, deploymentOn(t, d.gpu, d.tp, d.linear))
		j, why := c.JudgedAs(s)
		if (j != nil) != d.judged || j != nil && j.Family != s.Family || j == nil && why == "" {
			t.Errorf("%s %s tp %d: got %+v, %q", d.gpu, d.linear, d.tp, j, why)
		}
		if said := strings.Contains(c.Sentence(s), "not validated"); said == d.judged {
			t.Errorf("%s %s tp %d: says %q", d.gpu, d.linear, d.tp, c.Sentence(s))
		}
	}
}

// TestKernelsAskedForAreAnotherFamily: gpt-oss on H100 was measured with Marlin's experts, not with those that vLLM takes by itself.
func TestKernelsAskedForAreAnotherFamily(t *testing.T) {
	for backend, judged := range map[string]bool{"marlin": true, "auto": false, "triton": false} {
		d, err := deploy.LoadSettings("model.id=openai/gpt-oss-120b", "hardware.name=H100", "vllm.version=0.24.0", "tensor_parallel_size=2",
			"vllm.max_num_seqs=64", "vllm.max_num_batched_tokens=8192", "vllm.moe_backend="+backend)
		if err != nil {
			t.Fatal(err)
		}
		if j, why := Learned().JudgedAs(bound(t, d)); (j != nil) != judged {
			t.Errorf("%s: got %+v, %q", backend, j, why)
		}
	}
}

// TestFiguresNameTheirServersFlags: what was measured with flags that change kernels says so, whatever is asked.
func TestFiguresNameTheirServersFlags(t *testing.T) {
	for model, want := range map[string][]string{"nvidia/Llama-3.1-70B-Instruct-FP8": {" with --kv-cache-dtype fp8 (60 of 60)",
		" with fuse_allreduce_rms (60 of 60)"}, "MiniMaxAI/MiniMax-M2.5": {" with --kv-cache-dtype fp8 ("}, "nvidia/Kimi-K2.5-NVFP4": {
		" with --kv-cache-dtype fp8 (11 of 43)", " with fuse_allreduce_rms (43 of 43)"}} {
		d, err := deploy.LoadSettings("model.id="+model, "hardware.name=B200", "vllm.version=0.24.0", "tensor_parallel_size=4",
			"vllm.max_num_seqs=64", "vllm.max_num_batched_tokens=8192")
		if err != nil {
			t.Fatal(err)
		}
		said := Learned().Sentence(bound(t, d))
		for _, flag := range want {
			if !strings.Contains(said, flag) {
				t.Errorf("%s: says %q, want%s", model, said, flag)
			}
		}
	}
}

func BenchmarkBind(b *testing.B) {
	h, _ := deploy.Datasheet("B200")
	d := &deploy.Deployment{Hardware: h, TP: 4, PP: 1, DP: 1, Model: model.Model{NumLayers: 80, HiddenSize: 8192, NumHeads: 64, NumKVHeads: 8,
		HeadDim: 128, IntermediateSize: 28672, VocabSize: 128256, NumMLPProj: 3, BytesPerWeight: 2, BytesPerKV: 2, BytesPerActivation: 2}}
	d.Engine.MaxNumSeqs = 256
	for b.Loop() {
		if _, err := Bound(d, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestContradictedExpertsAreReplaced: rows of fp8 experts that take several times those of bfloat16 where reading weights decides do not
// answer; bfloat16's time by their bytes does, between the roofline of fp8 and bfloat16's own time, and the answer names it. Rows that keep
// the order stay, and those of weight-only formats, which are slower only where multiplying counts.
func TestContradictedExpertsAreReplaced(t *testing.T) {
	scout := expertShape{dtypes: []string{fp8}, hidden: 5120, inter: 8192, topK: 1, experts: 16, tp: 2, ep: 1, projections: 3, load: defaultLoad}
	super := expertShape{dtypes: []string{fp8}, hidden: 1024, inter: 2688, topK: 22, experts: 512, tp: 1, ep: 1, projections: 2, load: defaultLoad}
	kimi := expertShape{dtypes: []string{"int4_wo"}, hidden: 7168, inter: 2048, topK: 8, experts: 384, tp: 1, ep: 1, projections: 3, load: defaultLoad}
	for _, c := range []struct {
		gpu   string
		shape expertShape
		wrong bool
	}{{"H100", scout, true}, {"B200", scout, false}, {"H200", super, true}, {"H200", kimi, false}, {"B200", kimi, false}} {
		g, err := For(&deploymentOn(t, c.gpu, 2, "native").Hardware)
		if err != nil {
			t.Fatal(err)
		}
		got, f, err := g.experts(c.shape)
		if err != nil {
			t.Fatal(err)
		}
		wide := c.shape
		wide.dtypes = []string{bf16}
		plain, _, err := g.experts(wide)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(f.Note, "times those of bfloat16") != c.wrong {
			t.Errorf("%s, %v: got %+v", c.gpu, c.shape, f)
		}
		for i, x := range got.x {
			us, plainUs := got.y[i], plain.usAt(x, 1)
			if c.wrong && us > 1.001*plainUs || !c.wrong && c.shape.dtypes[0] == fp8 && us > 2*plainUs {
				t.Errorf("%s, %v, %g tokens: got %.0f us, bfloat16 %.0f", c.gpu, c.shape, x, us, plainUs)
			}
			readUs, computeUs := g.expertsRoofline(&c.shape, c.shape.dtypes[0], x)
			if least := min(plainUs, max(readUs, computeUs)); c.wrong && us < 0.999*least {
				t.Errorf("%s, %v, %g tokens: got %.0f us, roofline %.0f", c.gpu, c.shape, x, us, least)
			}
		}
	}
}

// TestOutsideOfTheMeasuredDomain: an axis beyond what the servers were measured with is named, and the error of families that were
// held out is stated in place of the family's own.
func TestOutsideOfTheMeasuredDomain(t *testing.T) {
	c := Learned()
	s := bound(t, deploymentOn(t, "H100", 2, fp8))
	j, _ := c.JudgedAs(s)
	if j == nil {
		t.Fatal("dense fp8 on H100 was measured")
	}
	inside := Asked{InputTokens: 1024, OutputTokens: 1024, Clients: 16, Version: "0.11.2", KVBytes: 2, DP: 1,
		Parameters: 70.6, ActiveParameters: 69.5, BatchedTokens: 8192}
	theta := c.On("H100-SXM-80GB")
	decode, prompt := s.UnmeasuredShares(&theta, c.OverheadUs(), &inside)
	if !(decode > 0.12 && decode < 0.42 && prompt > 0.15 && prompt < 0.75) {
		t.Errorf("got unmeasured shares %.2f and %.2f", decode, prompt)
	}
	if got, axes := c.IntervalsOf(s, &inside); len(axes) > 0 || got.ITL != stat.Round(j.PerShare.ITL*decode, 3) || got.TTFT != stat.Round(j.PerShare.TTFT*prompt, 3) {
		t.Errorf("inside: got %+v, %q", got, axes)
	}
	for _, x := range []struct {
		axis   string
		change func(a *Asked)
	}{
		{"input tokens", func(a *Asked) { a.InputTokens = 38_000 }},
		{"input tokens", func(a *Asked) { a.InputTokens = 10 }},
		{"output tokens", func(a *Asked) { a.OutputTokens = 20_000 }},
		{"output tokens", func(a *Asked) { a.OutputTokens = 2 }},
		{"clients", func(a *Asked) { a.Clients = 4096 }},
		{"rate", func(a *Asked) { a.RateRPS = 3; a.Clients = 0 }},
		{"vLLM 0.24", func(a *Asked) { a.Version = "0.24.0" }},
		{"parameters 8", func(a *Asked) { a.Parameters, a.ActiveParameters = 8, 7.5 }},
		{"parameters 405", func(a *Asked) { a.Parameters, a.ActiveParameters = 405, 404 }},
		{"max_num_batched_tokens 512", func(a *Asked) { a.BatchedTokens = 512 }},
		{"workload", func(a *Asked) { a.Workload = true }},
		{"vLLM 0.8", func(a *Asked) { a.Version = "0.8.5" }},
		{"vLLM 0.33", func(a *Asked) { a.Version = "0.33.0" }},
		{"KV cache", func(a *Asked) { a.KVBytes = 1 }},
		{"data parallelism", func(a *Asked) { a.DP = 8 }},
		{"float32", func(a *Asked) { a.WeightsFloat32 = true }},
		{"LoRA", func(a *Asked) { a.LoRA = true }},
		{"config.json", func(a *Asked) { a.UnreadKeys = []string{"use_cla"} }},
	} {
		asked := inside
		x.change(&asked)
		got, axes := c.IntervalsOf(s, &asked)
		said := c.SentenceFor(s, &asked)
		if len(axes) != 1 || !strings.Contains(axes[0], x.axis) || !strings.Contains(said, "not validated here") || !(got.ITL >= c.Unseen.ITL) {
			t.Errorf("%s: got %+v, %q, %q", x.axis, got, axes, said)
		}
	}
}

// TestExpertsCountTheirMatrices: rows of experts with two matrices (Nemotron-3) are scaled to three for gated experts of
// about their size, which take rows of gated ones where there are any, and no experts take less than reading them.
func TestExpertsCountTheirMatrices(t *testing.T) {
	qwen := expertShape{dtypes: []string{bf16}, hidden: 3584, inter: 2560, topK: 8, experts: 64, tp: 1, ep: 1, projections: 3, load: defaultLoad}
	nano := expertShape{dtypes: []string{bf16}, hidden: 2688, inter: 1856, topK: 6, experts: 128, tp: 1, ep: 1, projections: 2, load: defaultLoad}
	gated := nano
	gated.projections = 3
	for _, g := range GPUs() {
		own, source, err := g.experts(nano)
		if err != nil {
			t.Fatal(err)
		}
		wider, _, err := g.experts(gated)
		if err != nil {
			t.Fatal(err)
		}
		if r := wider.usAt(256, 1) / own.usAt(256, 1); math.Abs(r-1.5) > 1e-9 {
			t.Errorf("%s, %s: got %g times as long with three matrices", g.Hardware, source.Note, r)
		}
		like, source, err := g.experts(qwen)
		if err != nil {
			t.Fatal(err)
		}
		for _, tokens := range []float64{1, 8, 32, 128, 1024} {
			readUs, computeUs := g.expertsRoofline(&qwen, bf16, tokens)
			least := 0.8 * max(readUs, computeUs)
			if strings.HasPrefix(g.Hardware, "L40S") { // whose cache holds experts of few tokens
				least = 0
			}
			if us := like.usAt(tokens, 1); us < least {
				t.Errorf("%s, %g tokens, %s: got %.0f us, the datasheet %.0f", g.Hardware, tokens, source.Note, us, max(readUs, computeUs))
			}
		}
	}
}
