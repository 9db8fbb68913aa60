package export

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestCatalogOfModels: the sizes of a model as BLIS reads them, each with a value of its own, and layouts that it does not read.
func TestCatalogOfModels(t *testing.T) {
	m := model.Model{ID: "org/M", ModelType: "llama", NumLayers: 12, HiddenSize: 64, NumHeads: 8, NumKVHeads: 2, HeadDim: 16, VocabSize: 1000, IntermediateSize: 256,
		BytesPerWeight: 1, BytesPerActivation: 2, MaxPositionEmbeddings: 4096, NumMLPProj: 3}
	configs := func(change func(m *model.Model)) []result.FitConfig {
		own := m
		change(&own)
		c := result.FitConfig{Label: "c", Deployment: deploy.Deployment{Model: own}}
		return []result.FitConfig{c, c}
	}
	read := func(change func(m *model.Model)) map[string]any {
		t.Helper()
		files, err := catalogOf(configs(change))
		if err != nil || len(files) != 2 || files[0].Suffix != ".catalog/models/m/config.json" || files[1].Suffix != ".catalog/models/m/model.yaml" {
			t.Fatalf("got %v, %v", files, err)
		}
		if card := string(files[1].Data); card != "name: m\nsource:\n    provider: huggingface\n    repo: org/M\n    revision: main\n" {
			t.Errorf("got %s", card)
		}
		var doc map[string]any
		if err := json.Unmarshal(files[0].Data, &doc); err != nil {
			t.Fatal(err)
		}
		return doc
	}
	want := map[string]any{"model_type": "llama", "num_hidden_layers": 12.0, "hidden_size": 64.0, "num_attention_heads": 8.0, "num_key_value_heads": 2.0, "head_dim": 16.0, "vocab_size": 1000.0,
		"intermediate_size": 256.0, "hidden_act": "silu", "torch_dtype": "bfloat16", "max_position_embeddings": 4096.0,
		"quantization_config": map[string]any{"quant_method": "compressed-tensors", "bits": 8.0}}
	if got := read(func(*model.Model) {}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	got := read(func(m *model.Model) { m.BytesPerWeight, m.BytesPerActivation, m.MaxPositionEmbeddings = 4, 4, 0 })
	if got["torch_dtype"] != "float32" || got["quantization_config"] != nil || got["max_position_embeddings"] != nil {
		t.Errorf("float32: got %v", got)
	}
	experts := func(layers int64) func(m *model.Model) {
		return func(m *model.Model) {
			m.NumExperts, m.TopK, m.MoEIntermediateSize, m.SharedExpertSize, m.NumMoELayers = 32, 4, 128, 96, layers
		}
	}
	got = read(experts(12))
	if got["num_local_experts"] != 32.0 || got["num_experts_per_tok"] != 4.0 || got["moe_intermediate_size"] != 128.0 || got["shared_expert_intermediate_size"] != 96.0 || got["interleave_moe_layer_step"] != nil {
		t.Errorf("experts in all layers: got %v", got)
	}
	if got = read(experts(4)); got["interleave_moe_layer_step"] != 2.0 || got["intermediate_size_mlp"] != 256.0 {
		t.Errorf("experts in every third layer: got %v", got)
	}
	_, err := catalogOf(configs(experts(5)))
	if trace.CodeOf(err) != BadEntry || !strings.Contains(err.Error(), "c: got experts in 5 of 12 layers, want them in all layers or in every n-th") {
		t.Errorf("got %v", err)
	}
}

// TestSumsOfLayers: the parameters, bytes and cache of each kind of layer, by hand for 16 hidden values and four ranks.
func TestSumsOfLayers(t *testing.T) {
	const hidden = 16
	d := &deploy.Deployment{TP: 4, Model: model.Model{BytesPerKV: 2}}
	c := catalogModel{weights: "bf16", experts: "fp8"}
	for _, m := range []struct {
		name  string
		mixer model.Mixer
		want  catalogGraph
		why   string
	}{
		// (4 x 8 + 2 x 16 + 4 x 8) x 16 parameters; each rank has one of two KV heads.
		{"grouped queries", model.Mixer{Kind: model.GQA, Heads: 4, KVHeads: 2, DimK: 8, DimV: 8},
			catalogGraph{matrices: 1536, bytes: 3072, blocks: 1, normBytes: 64, attending: 1, headWidth: 32, cachedBytes: 32}, ""},
		{"eight KV heads of four ranks", model.Mixer{Kind: model.GQA, Heads: 8, KVHeads: 8, DimK: 8, DimV: 4},
			catalogGraph{matrices: (64 + 96 + 32) * 16, bytes: (64 + 96 + 32) * 32, blocks: 1, normBytes: 64, attending: 1, headWidth: 64, cachedBytes: 48}, ""},
		// Queries 5 x 16 + 4 x 8 x 5, latent 13 x 16, heads 4 x (5 + 6) x 10, output 4 x 6 x 16.
		{"latent", model.Mixer{Kind: model.MLA, Heads: 4, DimK: 8, DimV: 6, KVRank: 10, Rope: 3, QRank: 5},
			catalogGraph{matrices: 240 + 208 + 440 + 384, bytes: 2 * 1272, blocks: 1, normBytes: 64 + 20 + 40, attending: 1, headWidth: 52, cachedBytes: 26, decodeNames: "_mla"}, ""},
		{"latent, whole queries", model.Mixer{Kind: model.MLA, Heads: 4, DimK: 8, DimV: 6, KVRank: 10, Rope: 3},
			catalogGraph{matrices: 512 + 208 + 440 + 384, bytes: 2 * 1544, blocks: 1, normBytes: 64 + 40, attending: 1, headWidth: 52, cachedBytes: 26, decodeNames: "_mla"}, ""},
		{"recurrent", model.Mixer{Kind: model.Mamba2, Heads: 4, DimV: 6}, catalogGraph{matrices: 384, bytes: 768, blocks: 1, normBytes: 64, recurrent: 1, recurrentNames: string(model.Mamba2)}, ""},
		{"gated delta", model.Mixer{Kind: model.Delta, Form: "gdn", Heads: 4, DimV: 6}, catalogGraph{matrices: 384, bytes: 768, blocks: 1, normBytes: 64, recurrent: 1, recurrentNames: "gdn"}, ""},
		{"another delta", model.Mixer{Kind: model.Delta, Form: "kda", Heads: 4, DimV: 6}, catalogGraph{}, fmt.Sprintf("layers of kind %s", model.Delta)},
		{"an index", model.Mixer{Kind: model.MLA, Index: &model.Index{}}, catalogGraph{}, selectsTokens},
		{"compressed", model.Mixer{Kind: model.GQA, Ratio: 4}, catalogGraph{}, selectsTokens},
	} {
		var g catalogGraph
		why := g.addMixer(c, d, &m.mixer, hidden)
		if why != m.why || why == "" && !reflect.DeepEqual(g, m.want) {
			t.Errorf("%s: got %+v, %q, want %+v, %q", m.name, g, why, m.want, m.why)
		}
	}
	for _, f := range []struct {
		name string
		ffn  model.FFN
		want catalogGraph
		why  string
	}{
		{"dense", model.FFN{Kind: model.Dense, Width: 10}, catalogGraph{matrices: 480, bytes: 960, blocks: 1, normBytes: 64}, ""},
		{"experts", model.FFN{Kind: model.Experts, Width: 10, Experts: 8, TopK: 2, SharedWidth: 5},
			catalogGraph{matrices: 240, bytes: 240, blocks: 1, normBytes: 64, experts: 8, topK: 2, routed: 480, routedBytes: 480}, ""},
		{"latent experts", model.FFN{Kind: model.Experts, Latent: 3}, catalogGraph{}, splitsExperts},
		{"experts beside a dense part", model.FFN{Kind: model.Experts, BesideWidth: 3}, catalogGraph{}, splitsExperts},
	} {
		var g catalogGraph
		why := g.addFFN(c, &f.ffn, hidden)
		if why != f.why || why == "" && !reflect.DeepEqual(g, f.want) {
			t.Errorf("%s: got %+v, %q, want %+v, %q", f.name, g, why, f.want, f.why)
		}
	}
	for _, other := range []model.FFN{{Kind: model.Experts, Experts: 16, TopK: 2}, {Kind: model.Experts, Experts: 8, TopK: 1}} {
		g := catalogGraph{experts: 8, topK: 2}
		if why := g.addFFN(c, &other, hidden); why != "experts unlike those of earlier layers" {
			t.Errorf("%+v: got %q", other, why)
		}
	}
	var g catalogGraph
	own := c
	own.noShared = true
	if g.addFFN(own, &model.FFN{Kind: model.Experts, Width: 10, SharedWidth: 5}, hidden); g.matrices != 0 || g.routed != 480 {
		t.Errorf("shared experts elsewhere: got %+v", g)
	}
	for _, w := range []windowLayers{{2, 10}, {5, 7}, {2, 3}} {
		g.addWindow(w.reach, w.headWidth)
	}
	if !slices.Equal(g.windows, []windowLayers{{2, 13}, {5, 7}}) {
		t.Errorf("got %v", g.windows)
	}
	part := catalogPart{bf16: 1, fp8: 2, fp4: 3}
	for format, want := range map[string]string{"bf16": "1 bf16", "fp16": "1 bf16", "int4": "1 bf16", "fp8": "2 fp8", "int8": "2 fp8", "nvfp4": "3 nvfp4", "mxfp4": "3 nvfp4"} {
		rate, of := part.products(format)
		if got := fmt.Sprint(rate, " ", of); got != want {
			t.Errorf("%s: got %s, want %s", format, got, want)
		}
	}
	part.fp4 = 0
	if rate, of := part.products("nvfp4"); rate != 2 || of != "fp8" {
		t.Errorf("without 4 bits: got %g of %s", rate, of)
	}
	part.fp8 = 0
	if rate, of := part.products("fp8"); rate != 1 || of != "bf16" {
		t.Errorf("without 8 bits: got %g of %s", rate, of)
	}
}

// TestCommandOfBLIS: every flag, with the values of a deployment.
func TestCommandOfBLIS(t *testing.T) {
	d := deploy.Deployment{TP: 2, DP: 3, PP: 1, Hardware: deploy.Hardware{Name: "H100"}, Model: model.Model{ID: "Org/M", NumExperts: 8, MaxPositionEmbeddings: 5000}}
	e := &d.Engine
	e.MaxNumSeqs, e.MaxNumBatchedTokens, e.BlockSize, e.ExpertParallel = 11, 12, 16, true
	e.KVBlocksGPU, e.MaxModelLen = trace.Some(int64(77)), trace.Some(int64(900))
	const want = "blis replay --trace-header TRACE.yaml --trace-data TRACE.csv --results-path results.json --horizon 9007199254740992 --cache-signal-delay 0 --latency-model trained-physics C " +
		"--model org/m --model-config-folder MODELDIR --hardware H100 --hardware-config FILE.hardware.json --tp 2 --max-num-seqs 11 --max-num-batched-tokens 12 --block-size-in-tokens 16 " +
		"--dp 3 --enable-expert-parallel --total-kv-blocks 77 --max-model-len 900"
	if got := blisCommand(blisFolders, d, "C"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := blisCommand(blisCatalog, d, "C"); !strings.Contains(got, " --model m --catalog FILE.catalog --hardware") {
		t.Errorf("got %s", got)
	}
	d.DP, d.Model.NumExperts, e.MaxModelLen, d.Model.MaxPositionEmbeddings = 1, 0, trace.Opt[int64]{}, 0
	if got := blisCommand(blisFolders, d, "C"); strings.Contains(got, "--dp") || strings.Contains(got, "expert") || strings.Contains(got, "--max-model-len") {
		t.Errorf("got %s", got)
	}
}

// TestValuesThatBLISRefuses: delays and terms that are not finite or below 0, and those that nothing measured.
func TestValuesThatBLISRefuses(t *testing.T) {
	for value, want := range map[float64]string{0: "", 5: "", -1: "alpha[0] queue = -1 us: BLIS stops at start-up with \"must be a finite non-negative number\"",
		math.Inf(1): "alpha[0] queue = +Inf us: BLIS stops at start-up"} {
		v := blisValue{value: value, learned: true}
		v.Name, v.Units = "queue", "us"
		got := refusals([]blisValue{v})
		if (len(got) == 1) != (want != "") || want != "" && (got[0].Code != impossibleValue || !strings.HasPrefix(got[0].Sentence, want)) {
			t.Errorf("%g: got %v, want %q", value, got, want)
		}
	}
	nan := blisValue{value: math.NaN(), learned: true}
	unlearned := blisValue{value: 3, origin: "no target"}
	unlearned.Name, unlearned.Units, unlearned.Zero = "egress", "us", "is 0"
	got := refusals([]blisValue{nan, unlearned})
	if len(got) != 2 || got[0].Code != impossibleValue || got[1] != (Refusal{unlearnedValue, "alpha[1] egress = 3 us: no target; inside BLIS is 0"}) {
		t.Errorf("got %v", got)
	}
}

// TestEntriesThatBLISRefuses: step terms that are not finite, and terms without a value that the deployment uses.
func TestEntriesThatBLISRefuses(t *testing.T) {
	fit := &result.Fit{}
	for k, name := range []string{"x", "y", "z"} {
		var c result.Coefficient
		c.Name, c.Value = name, float64(k)
		if k < 2 {
			c.Identified = "prior-only"
		}
		fit.Beta.Coefficients = append(fit.Beta.Coefficients, c)
	}
	for _, c := range []struct {
		name string
		beta float64
		seen []float64
		want string
	}{
		{"good", 1, []float64{0, 5, 5}, ""},
		{"infinite", math.Inf(1), nil, "c: " + blisBetaTerms[0].Name + " = +Inf: BLIS stops at start-up with \"must be a finite non-negative number\""},
		{"no number", math.NaN(), nil, "c: " + blisBetaTerms[0].Name + " = NaN: BLIS stops"},
		{"a term without a value", 1, []float64{5, 5, 5}, "c: x has no value, neither learned nor prior, and this deployment would use it"},
	} {
		e := &blisEntry{config: &result.FitConfig{Label: "c"}, beta: []float64{c.beta}, fits: Projection{Seen: c.seen, Errors: make([]Error, 4)}, limits: blisLimits}
		got := ""
		for _, r := range e.refusals(fit) {
			got += r.Sentence
		}
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	// Boards of the catalog: 4 GPUs of a GB system share a node, else 8; 8 bits are twice as fast as 16.
	for name, part := range catalogParts {
		node := int64(8)
		if strings.HasPrefix(name, "gb") {
			node = 4
		}
		if part.node != node || part.fp8 != 0 && math.Abs(part.fp8/part.bf16-2) > 0.03 || !(part.memory > 0.5 && part.memory <= 8) {
			t.Errorf("%s: got %+v", name, part)
		}
	}
}

// TestWhyAProjectionMisses: the kind of batch that is off most, of those that the exceeded limits concern, and what BLIS's
// terms cannot represent there.
func TestWhyAProjectionMisses(t *testing.T) {
	dense, experts := &result.FitConfig{}, &result.FitConfig{}
	experts.Deployment.Model.NumExperts = 8
	errors := func(worst int) []Error {
		list := []Error{{MAPE: 0.2}, {Kind: decode, MAPE: 0.1}, {Kind: mixed, MAPE: 0.125}, {Kind: prefill, MAPE: 0.11}}
		if worst > 0 {
			list[worst].MAPE = 0.257
		}
		return list
	}
	biased := errors(1)
	biased[2].Bias = 0.08
	biased[3].Bias = -0.09
	fits := errors(3)
	fits[0].MAPE = 0.1
	few := errors(1)
	few[0].MAPE = 0.1
	loads := func(ttft, itl, e2e float64) []LoadPoint {
		return []LoadPoint{{LoadFrac: 0.3, TTFTRatio: 1, ITLRatio: 1, E2ERatio: 1}, {LoadFrac: 0.6, TTFTRatio: ttft, ITLRatio: itl, E2ERatio: e2e}}
	}
	for _, c := range []struct {
		config *result.FitConfig
		kernel bool
		errors []Error
		loads  []LoadPoint
		want   string
	}{
		{dense, false, errors(1), nil, "worst for decode batches (25.7 % on average); a likely cause: decode steps are not linear in requests and context"},
		{dense, false, errors(2), nil, "worst for mixed batches (25.7 % on average); a likely cause: the time of a prompt does not grow with its length as BLIS's terms do"},
		{dense, false, errors(3), nil, "worst for prefill batches (25.7 % on average); a likely cause: the time of a prompt does not grow"},
		{experts, false, errors(1), nil, "worst for decode batches (25.7 % on average); a likely cause: a step loads the experts that its tokens reach"},
		{experts, true, errors(1), nil, "worst for decode batches (25.7 % on average); a likely cause: the kernel mode has no term for the number of requests in a batch"},
		{dense, false, biased, loads(2, 2, 2), "worst for prefill batches (-9.0 % together); a likely cause: the time of a prompt does not grow"},
		{dense, false, fits, loads(1, 1, 1), "worst for prefill batches (25.7 % on average)"},
		{dense, false, fits, loads(1, 0.9, 1), "worst for mixed batches (12.5 % on average)"},
		{dense, false, fits, loads(1, 0.9, 0.8), "worst for prefill batches (25.7 % on average)"},
		{dense, false, few, loads(1.2, 1, 1), "worst for mixed batches (12.5 % on average)"},
		{dense, false, few, loads(1.2, 0.9, 1), "worst for decode batches (25.7 % on average)"},
		{dense, false, errors(3), loads(1, 0.9, 1), "worst for prefill batches (25.7 % on average)"},
	} {
		e := &blisEntry{config: c.config, limits: blisLimits, isKernelMode: c.kernel, loads: c.loads, fits: Projection{Errors: c.errors}}
		if got := e.likelyCause(); !strings.HasPrefix(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// atRate takes 500 us and 2 us a token.
type atRate struct{}

func (atRate) StepUs(batch []trace.Chunk) (float64, error) { return 500 + 2*float64(batch[0].New), nil }

// TestRateOfPrompts: prompts of 800 tokens take 2.1 ms, 381 tokens a ms; the slope is that of the tokens alone.
func TestRateOfPrompts(t *testing.T) {
	d := testkit.Llama8B()
	d.Engine.MaxNumBatchedTokens = 800
	src := &Source{Step: func(deploy.Deployment) (StepTimer, error) { return atRate{}, nil }}
	c := &result.FitConfig{Label: "c", Deployment: *d}
	r, err := prefillRateOf(src, c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Chunk != 800 || !near(r.TTFTMs, 2.1) || !near(r.PerS, 800/2100.0*1e6) || !near(r.SlopeUs, 2) || r.CI95 != nil {
		t.Errorf("got %+v", r)
	}
	if got := r.Sentence(); got != "V_P 380952 tokens/s: a prompt of 800 tokens on an idle engine has a TTFT of 2.1 ms" {
		t.Errorf("got %q", got)
	}
	src.OverheadUs = func(_ deploy.Deployment, n int64) (float64, error) { return float64(n) + 900, nil }
	if r, err = prefillRateOf(src, c); err != nil || !near(r.TTFTMs, 3.8) || !near(r.SlopeUs, 3) {
		t.Errorf("with a delay: got %+v, %v", r, err)
	}
	r.CI95 = &[2]float64{1000, 3000}
	if got := r.Sentence(); !strings.Contains(got, " tokens/s (95 %: 1000 to 3000, of the step time's coefficients): a prompt") {
		t.Errorf("got %q", got)
	}
}

// TestOldVerdicts: the verdicts and gates of a validation take the place of those of the coefficients.
func TestOldVerdicts(t *testing.T) {
	old := OldSet("f", &coeff.Set{Purposes: []coeff.PurposeVerdict{{Purpose: "a", Verdict: "pass"}}, Gates: []coeff.Gate{{Name: "g"}}})
	if old.Name != "f" || len(old.Purposes) != 1 || old.Purposes[0].Verdict != "pass" || old.Gates[0].Name != "g" || old.Set == nil {
		t.Errorf("got %+v", old)
	}
	v := &result.Validation{}
	old.AddValidation(v)
	if gates, purposes, _ := v.Verdicts(); !reflect.DeepEqual(old.Gates, gates) || !reflect.DeepEqual(old.Purposes, purposes) {
		t.Errorf("got %+v", old)
	}
	// A file alone, without a deployment: only what it says of itself.
	set := &coeff.Set{Recipe: "relative", Beta: []coeff.Coefficient{{Name: "x", Value: -1}}}
	mismatches, beyond, err := Check(set, nil, nil)
	if err != nil || len(beyond) != 0 || len(mismatches) == 0 {
		t.Errorf("got %v, %v, %v", mismatches, beyond, err)
	}
}

// TestAdmissionOfAScope: two configurations with mean prompts of 100 and 300 tokens, whose overheads are 1000 us and 2 a token, and
// 400 us and 4 a token: 700 us and 3 a token, 1400 us for their prompts.
func TestAdmissionOfAScope(t *testing.T) {
	short, long := 100.0, 300.0
	a, b := &result.FitConfig{Label: "a", MeanPromptTokens: &short}, &result.FitConfig{Label: "b", MeanPromptTokens: &long}
	a.Deployment.TP, b.Deployment.TP = 1, 2
	learnedTerm := func(value float64) result.Coefficient {
		var c result.Coefficient
		c.Name, c.Value, c.CI95 = "admission_compute", value, &[2]float64{0.5 * value, 1.5 * value}
		return c
	}
	src := Source{Fit: &result.Fit{Alpha: []result.Model{{Target: coeff.Overhead, Coefficients: []result.Coefficient{learnedTerm(2)}}}}}
	s := &hostScope{cfgs: []*result.FitConfig{a, b}}
	if e, _, why, err := s.admission(src); e != nil || why != "no overhead target in the fit" || err != nil {
		t.Errorf("no overheads: got %+v, %q, %v", e, why, err)
	}
	src.OverheadUs = func(d deploy.Deployment, n int64) (float64, error) {
		if d.TP == 1 {
			return 1000 + 2*float64(n), nil
		}
		return 400 + 4*float64(n), nil
	}
	e, us, why, err := s.admission(src)
	if err != nil || why != "" || !near(us, 700) || !near(e.Value, 3) || e.Units != "us_per_token" || len(e.CI95) != 2 || !near(e.CI95[0], 1.5) || !near(e.CI95[1], 4.5) {
		t.Errorf("got %+v, %g us, %q, %v", e, us, why, err)
	}
	src.Fit.Alpha[0].Coefficients[0] = learnedTerm(0)
	if e, us, why, err := s.admission(src); e != nil || !near(us, (1200+1600)/2) || why != "the overhead does not grow with the prompt in these data" || err != nil {
		t.Errorf("nothing learned: got %+v, %g us, %q, %v", e, us, why, err)
	}
	src.OverheadUs = func(deploy.Deployment, int64) (float64, error) { return 0, fmt.Errorf("torn") }
	if _, _, _, err := s.admission(src); err == nil || err.Error() != "a: overhead: torn" {
		t.Errorf("got %v", err)
	}
	for _, c := range [][3]float64{{5, -1, 9}, {5, 6, 9}, {5, 1, 4}} {
		got := within(c[0], c[1], c[2])
		if want := c[1] < 0; (got != nil) != want || want && (got[0] != 0 || got[1] != 9) {
			t.Errorf("%v: got %v", c, got)
		}
	}
}

// TestTargetsOfKEDA: a prompt of 100 tokens takes 100 ms at 1000 tokens a second: a target of that leaves no time for others.
func TestTargetsOfKEDA(t *testing.T) {
	d := testkit.Llama8B()
	d.Engine.MaxNumBatchedTokens = 800
	prompt, output := 100.0, 10.0
	fit := &result.Fit{Configs: []result.FitConfig{{Label: "c", Deployment: *d, MeanPromptTokens: &prompt, MeanOutputTokens: &output}}}
	src := Source{Fit: fit, Step: func(deploy.Deployment) (StepTimer, error) { return thousand{}, nil }}
	of := func(ms, cached, path string) error {
		_, err := keda(src, Options{Settings: Settings{"ttft-ms": ms, "statistic": "mean", "cached-tokens": cached, "name": "n", "path": path}})
		return err
	}
	if err := of("100", "0", "direct"); trace.CodeOf(err) != impossibleValue || !strings.Contains(err.Error(), "c: a prompt of 100 uncached tokens alone takes 100 ms, want less than the target of 100 ms") {
		t.Errorf("got %v", err)
	}
	if err := of("101", "0", "direct"); err != nil {
		t.Errorf("a target of 101 ms: got %v", err)
	}
	if err := of("51", "50", "direct"); err != nil {
		t.Errorf("half is cached: got %v", err)
	}
	if err := of("0", "0", "direct"); trace.CodeOf(err) != NothingToExport || !strings.Contains(err.Error(), "got no TTFT target") {
		t.Errorf("no target: got %v", err)
	}
	if err := of("100", "0", "pd"); trace.CodeOf(err) != NothingToExport || !strings.Contains(err.Error(), "path=pd") {
		t.Errorf("prefill apart: got %v", err)
	}
}

// thousand computes a thousand tokens of prompts a second.
type thousand struct{}

func (thousand) StepUs(batch []trace.Chunk) (float64, error) {
	return 1000 * float64(batch[0].New), nil
}
