package export

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// graphNodes are the primitives of one layer kind of a graph of BLIS's catalog, release 0.2.1.
type graphNodes struct {
	layers  int64
	gemms   [][3]float64 // n, k, bytes a weight
	norms   []float64    // bytes a token; 0: those of a hidden state
	reduces int
	// Attention: query heads, cached heads, width of a head, window. Latent attention has one cached head of one vector.
	heads, cached, width, window float64
	latent                       bool
	// Experts: n, k, how many, top k, shared experts, their inner width, bytes a weight.
	experts   [7]float64
	recurrent string
}

// catalogGraphs are graphs as the catalog publishes them, head last.
var catalogGraphs = []struct {
	name, id, device string
	tp               int64
	kinds            []graphNodes
}{
	{"deepseek-v3", "deepseek-ai/DeepSeek-V3", "h200", 8, []graphNodes{
		{layers: 3, gemms: [][3]float64{{2112, 7168, 1}, {24576, 1536, 1}, {32768, 512, 1}, {7168, 16384, 1}, {36864, 7168, 1}, {7168, 18432, 1}},
			norms: []float64{0, 6144, 2048, 0}, reduces: 2, heads: 128, cached: 1, width: 576, latent: true},
		{layers: 58, gemms: [][3]float64{{2112, 7168, 1}, {24576, 1536, 1}, {32768, 512, 1}, {7168, 16384, 1}},
			norms: []float64{0, 6144, 2048, 0}, reduces: 2, heads: 128, cached: 1, width: 576, latent: true,
			experts: [7]float64{2048, 7168, 256, 8, 1, 2048, 1}},
		{gemms: [][3]float64{{129280, 7168, 1}}}}},
	{"kimi-k2.5", "moonshotai/Kimi-K2.5", "h200", 8, []graphNodes{
		{layers: 1, gemms: [][3]float64{{2112, 7168, 2}, {12288, 1536, 2}, {16384, 512, 2}, {7168, 8192, 2}, {36864, 7168, .5}, {7168, 18432, .5}},
			norms: []float64{0, 6144, 2048, 0}, reduces: 2, heads: 64, cached: 1, width: 576, latent: true},
		{layers: 60, gemms: [][3]float64{{2112, 7168, 2}, {12288, 1536, 2}, {16384, 512, 2}, {7168, 8192, 2}},
			norms: []float64{0, 6144, 2048, 0}, reduces: 2, heads: 64, cached: 1, width: 576, latent: true,
			experts: [7]float64{2048, 7168, 384, 8, 1, 2048, .5}},
		{gemms: [][3]float64{{163840, 7168, .5}}}}},
	{"gpt-oss-120b", "openai/gpt-oss-120b", "h100", 2, []graphNodes{
		{layers: 18, gemms: [][3]float64{{5120, 2880, 2}, {2880, 4096, 2}}, norms: []float64{0, 0}, reduces: 2, heads: 64, cached: 8, width: 64,
			window: 128, experts: [7]float64{2880, 2880, 128, 4, 0, 0, .5}},
		{layers: 18, gemms: [][3]float64{{5120, 2880, 2}, {2880, 4096, 2}}, norms: []float64{0, 0}, reduces: 2, heads: 64, cached: 8, width: 64,
			experts: [7]float64{2880, 2880, 128, 4, 0, 0, .5}},
		{gemms: [][3]float64{{201088, 2880, 2}}}}},
	{"minimax-m2.5", "MiniMaxAI/MiniMax-M2.5", "h200", 4, []graphNodes{
		{layers: 62, gemms: [][3]float64{{8192, 3072, 1}, {3072, 6144, 1}}, norms: []float64{0, 0}, reduces: 2, heads: 48, cached: 8, width: 128,
			experts: [7]float64{1536, 3072, 256, 8, 0, 0, 1}},
		{gemms: [][3]float64{{200064, 3072, 1}}}}},
	{"qwen3.5-397b-a17b", "Qwen/Qwen3.5-397B-A17B", "h200", 8, []graphNodes{
		{layers: 45, gemms: [][3]float64{{4096, 8192, 2}}, norms: []float64{0, 0}, reduces: 2, recurrent: "gdn",
			experts: [7]float64{1024, 4096, 512, 10, 1, 1024, 2}},
		{layers: 15, gemms: [][3]float64{{9216, 4096, 2}, {4096, 8192, 2}}, norms: []float64{0, 0}, reduces: 2, heads: 32, cached: 2, width: 256,
			experts: [7]float64{1024, 4096, 512, 10, 1, 1024, 2}},
		{gemms: [][3]float64{{248320, 4096, 2}}}}},
	{"nemotron-3.5-lightning-30b-a3b-nvfp4", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", "b200", 1, []graphNodes{
		{layers: 23, gemms: [][3]float64{{2688, 4096, 1}}, norms: []float64{0}, reduces: 1, recurrent: "mamba2"},
		{layers: 23, norms: []float64{0}, reduces: 1, experts: [7]float64{1856, 2688, 128, 6, 1, 3712, .5}},
		{layers: 6, gemms: [][3]float64{{4608, 2688, 2}, {2688, 4096, 2}}, norms: []float64{0}, reduces: 1, heads: 32, cached: 2, width: 128},
		{gemms: [][3]float64{{131072, 2688, 2}}}}},
	{"llama-4-scout-17b-16e-instruct-fp8-dynamic", "meta-llama/Llama-4-Scout-17B-16E-Instruct", "h100", 4, []graphNodes{
		{layers: 48, gemms: [][3]float64{{7168, 5120, 1}, {5120, 5120, 1}}, norms: []float64{0, 0}, reduces: 2, heads: 40, cached: 8, width: 128,
			experts: [7]float64{8192, 5120, 16, 1, 0, 0, 1}},
		{gemms: [][3]float64{{202048, 5120, 1}}}}},
	{"mixtral-8x7b-v0.1", "mistralai/Mixtral-8x7B-v0.1", "h100", 2, []graphNodes{
		{layers: 32, gemms: [][3]float64{{6144, 4096, 2}, {4096, 4096, 2}}, norms: []float64{0, 0}, reduces: 2, heads: 32, cached: 8, width: 128,
			experts: [7]float64{14336, 4096, 8, 2, 0, 0, 2}},
		{gemms: [][3]float64{{32000, 4096, 2}}}}},
}

// pricedNodes is a step as the kernel prices it from a graph's nodes and the entries of its registry, every resource's time one after the
// other (blis-latency-kernel kernel.go and internal/price/plan.go at 070f510), written out node by node.
func pricedNodes(kinds []graphNodes, d *deploy.Deployment, part catalogPart, chip string, v map[string]float64, batch []trace.Chunk) float64 {
	tp := float64(d.TP)
	hidden := float64(d.Model.HiddenSize)
	products := "bf16"
	peak := part.bf16 * 1e6
	if _, ok := v["gemm_eps_max_fp8"]; ok {
		products = "fp8"
		peak = part.fp8 * 1e6
	}
	bw := part.memory * 1e6 * v["hbm_derate"]
	var rows, context float64
	var decodes, prompts bool
	for _, c := range batch {
		rows += float64(c.New)
		if c.New > 1 {
			prompts = true
		} else {
			context += float64(c.Computed + c.New)
			decodes = true
		}
	}
	eff := v["gemm_eps_max_"+products] * rows / (rows + v["gemm_m_half_"+products])
	layers := int64(0)
	caching := 0.0
	for _, k := range kinds {
		if layers += k.layers; k.heads > 0 {
			caching += float64(k.layers)
		}
	}
	us := v["host_replay_graph_per_step"] * float64(layers+1)
	for _, k := range kinds {
		one := 0.0
		for _, g := range k.gemms {
			one += 2*g[0]*g[1]*rows/tp/(peak*eff) + g[0]*g[1]*g[2]/tp/bw
		}
		for _, n := range k.norms {
			if n == 0 {
				n = 4 * hidden
			}
			one += rows * n / tp / bw
		}
		if e := k.experts; e[2] > 0 {
			matrices := 3 * e[0] * e[1]
			one += rows * e[3] * 2 * matrices * v["moe_routing_imbalance_median"] / (peak * eff)
			one += e[2] * (1 - math.Pow(1-e[3]/e[2], rows)) * matrices * e[6] / tp / bw
			shared := 3 * e[5] * e[1] * e[4]
			one += 2*shared*rows/tp/(peak*eff) + shared*e[6]/tp/bw
		}
		if k.recurrent != "" {
			one += v["recurrent_decode_floor_"+k.recurrent] + rows/v["recurrent_decode_rate_"+k.recurrent]
		}
		if k.heads > 0 {
			of := ""
			perToken := 2 * math.Max(k.cached/tp, 1) * k.width * d.Model.BytesPerKV
			switch {
			case k.latent:
				of = "_mla"
				perToken = k.width * d.Model.BytesPerKV
			case k.window > 0:
				of = "_swa"
			}
			if decodes {
				one += v["attention_decode_floor"+of] + context*perToken*caching/float64(layers)/v["attention_decode_rate"+of]
			}
			if prompts {
				pairs := 0.0
				for _, c := range batch {
					if s, before := float64(c.New), float64(c.Computed); c.New > 1 && k.window > 0 {
						within := math.Max(0, math.Min(s, k.window-before))
						pairs += within*before + within*within/2 + (s-within)*k.window
					} else if c.New > 1 {
						pairs += s*before + s*s/2
					}
				}
				one += v["attention_prefill_floor"] + 4*pairs*k.heads*k.width/tp/(peak*eff*v["attention_prefill_work_scale"])
			}
		}
		if tp > 1 {
			of := fmt.Sprintf("_all_reduce_fp16_%drank_%s", d.TP, chip)
			bytes := rows * hidden * 2
			one += float64(k.reduces) * math.Max(v["collective_floor"+of]+bytes/v["collective_transition_rate"+of],
				bytes/v["collective_peak_rate"+of])
		}
		us += one * float64(max(k.layers, 1))
	}
	return us
}

// catalogDeployment is a built-in model on a part of the catalog.
func catalogDeployment(t *testing.T, id string, tp int64, name string) deploy.Deployment {
	t.Helper()
	opts := model.Options{ID: id, MaxModelLen: trace.Some[int64](8192)}
	if strings.Contains(name, "fp8-dynamic") {
		opts.Quantization = "fp8"
	}
	m, err := model.LoadBuiltIn(opts)
	if err != nil {
		t.Fatal(err)
	}
	d := testkit.DeploymentOf(tp)
	d.Model = m
	d.Engine.MaxModelLen = trace.Some[int64](8192)
	return d
}

// TestCatalogGraphs: the sums over the layers of our reading of a model give, with the entries that are written, the steps that the
// kernel prices from the catalog's own graph: MLA, windows, experts, recurrent layers, and weights of 16, 8 and 4 bits.
func TestCatalogGraphs(t *testing.T) {
	for _, c := range catalogGraphs {
		d := catalogDeployment(t, c.id, c.tp, c.name)
		plan := kernelPlanOf(&d, c.name, c.device)
		if plan.refused != nil {
			t.Errorf("%s: %v", c.name, plan.refused)
			continue
		}
		law := newKernelMode(&d, plan.graph, plan.served.weights, plan.part, 96)
		law.Values = [kernelTerms]float64{1500, 1.3, 0.4, 1.2, 14, 1.6, 30, 2.5, 9, 8, 0.02}
		v := map[string]float64{}
		for _, e := range kernelValues(law, &d, c.device, []float64{11180, 520, 0}) {
			v[e.Name] = e.value
		}
		for i, batch := range [][]trace.Chunk{{{Computed: 300, Prompt: 200, New: 1}}, {{Prompt: 700, New: 700}},
			{{Computed: 1024, Prompt: 2000, New: 976}, {Computed: 90, Prompt: 80, New: 1}, {Computed: 500, Prompt: 80, New: 1}}} {
			b := sim.NewBatch(d.Reaches())
			for _, x := range batch {
				b.Add(x.Computed, x.Prompt, x.New, 0, 1)
			}
			got, err := law.StepUs(b)
			want := pricedNodes(c.kinds, &d, plan.part, c.device, v, batch)
			// A window's pairs are counted to half a pair a token.
			if err != nil || !(math.Abs(got/want-1) < 2e-5) {
				t.Errorf("%s, batch %d: law %g us, the kernel's reading of the catalog's graph %g, %v", c.name, i, got, want, err)
			}
		}
	}
	d := catalogDeployment(t, "meta-llama/Llama-4-Maverick-17B-128E-Instruct", 8, "fp8-dynamic")
	if p := kernelPlanOf(&d, "llama-4-scout-17b-16e-instruct-fp8-dynamic", "h200"); p.refused == nil || !strings.Contains(p.refused.Error(),
		"got 48 layers of 5120 with 1 of 128 experts, want 48 layers of 5120 with 1 of 16 experts as llama-4-scout") {
		t.Errorf("other experts: %v", p.refused)
	}
	for _, part := range deploy.BLISRegistry.Spelled() {
		if catalogParts[part].node == 0 {
			t.Errorf("%s is a part of the registry without peaks", part)
		}
	}
	for name, says := range map[string]string{"glm-5.2-fp8": selectsTokens, "kimi-k3": notRead, "nemotron-3-ultra-550b-a55b-nvfp4": splitsExperts} {
		d := testkit.DeploymentOf(1)
		if p := kernelPlanOf(&d, name, "h100"); p.refused == nil || !strings.Contains(p.refused.Error(), name+" with "+says) {
			t.Errorf("%s: %v", name, p.refused)
		}
	}
}

// TestScenarioFormats: what the kernel mode would infer of weights and cache is stated where the deployment differs.
func TestScenarioFormats(t *testing.T) {
	for _, c := range []struct {
		id, quantization, cache, name     string
		wantQuantization, wantCache, rate string
	}{
		{"meta-llama/Meta-Llama-3.1-8B", "", "", "llama-3.1-8b-instruct", "", "", "bf16"},
		{"meta-llama/Meta-Llama-3.1-8B", "", "fp8", "llama-3.1-8b-instruct", "", "fp8", "bf16"},
		{"meta-llama/Meta-Llama-3.1-8B", "fp8", "", "llama-3.1-8b-instruct", "fp8", "bfloat16", "fp8"},
		{"MiniMaxAI/MiniMax-M2.5", "", "", "minimax-m2.5", "", "bfloat16", "fp8"},
		{"MiniMaxAI/MiniMax-M2.5", "", "fp8", "minimax-m2.5", "", "", "fp8"},
		{"moonshotai/Kimi-K2.5", "", "", "kimi-k2.5", "", "", "bf16"},
		{"openai/gpt-oss-120b", "", "", "gpt-oss-120b", "", "", "bf16"},
	} {
		m, err := model.LoadBuiltIn(model.Options{ID: c.id, Quantization: c.quantization, KVCacheDType: c.cache,
			MaxModelLen: trace.Some[int64](4096)})
		if err != nil {
			t.Fatal(err)
		}
		d := testkit.DeploymentOf(1)
		d.Model = m
		d.Engine.MaxModelLen = trace.Some[int64](4096)
		p := kernelPlanOf(&d, c.name, "h100")
		_, rate := p.part.products(p.served.weights)
		if got := p.cacheDType(m.BytesPerKV); p.refused != nil || p.quantization != c.wantQuantization || got != c.wantCache || rate != c.rate {
			t.Errorf("%s %s %s: quantization %q, cache %q, rate %q, %v", c.id, c.quantization, c.cache, p.quantization, got, rate, p.refused)
		}
	}
	for _, c := range []struct {
		format string
		part   string
		tflops float64
		of     string
	}{{"fp8", "a100-sxm", 312, "bf16"}, {"nvfp4", "b300", 14000, "nvfp4"}, {"mxfp4", "h100", 1979, "fp8"}, {"int4", "b200", 2250, "bf16"}} {
		if rate, of := catalogParts[c.part].products(c.format); rate != c.tflops || of != c.of {
			t.Errorf("%s on %s: %g %s", c.format, c.part, rate, of)
		}
	}
}

// consumerSet is a CoefficientSet with every key that blis-schemas v0.2.2 has, for strict reading.
type consumerSet struct {
	Kind         string
	Name         string
	Coefficients []map[string]struct {
		Value      *float64
		Units      string
		Method     string
		Fitted     *bool
		Scope      map[string]yaml.Node
		CI95       []float64 `yaml:"ci95"`
		Sources    []struct{ Kind, Cite, Role string }
		Rationale  string
		CopiedFrom string `yaml:"copied_from"`
		Supersedes string
	}
}

// checkSet applies the checks of blis-schemas docs/reference/coefficients.md@b228df0, and returns name and scope of each entry.
func checkSet(t *testing.T, data []byte) (entries []string) {
	t.Helper()
	var doc consumerSet
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if doc.Kind != "CoefficientSet" || doc.Name == "" || len(doc.Coefficients) == 0 {
		t.Errorf("%q %q with %d entries", doc.Kind, doc.Name, len(doc.Coefficients))
	}
	for _, entry := range doc.Coefficients {
		if len(entry) != 1 {
			t.Errorf("an entry with %d names", len(entry))
		}
		for name, e := range entry {
			var scope []string
			for _, key := range []string{"hardware", "model", "tp"} {
				node := e.Scope[key]
				if node.Kind != yaml.SequenceNode || len(node.Content) != 1 {
					t.Errorf("%s: scope %s: want one value, never a cross product", name, key)
					continue
				}
				scope = append(scope, node.Content[0].Value)
			}
			id := name + " " + strings.Join(scope, " ")
			if slices.Contains(entries, id) {
				t.Errorf("%s: twice", id)
			}
			entries = append(entries, id)
			charged := e.Method != "not_charged"
			switch {
			case e.Value == nil || math.IsNaN(*e.Value) || math.IsInf(*e.Value, 0) || charged != (*e.Value != 0):
				t.Errorf("%s: value %v with method %s", id, e.Value, e.Method)
			case !slices.Contains(registryUnits, e.Units) || !slices.Contains(registryMethods, e.Method):
				t.Errorf("%s: %s %s", id, e.Units, e.Method)
			case e.Fitted == nil || *e.Fitted && e.Method != "measured" || e.Method != "measured" && e.Rationale == "":
				t.Errorf("%s: fitted %v, method %s, rationale %q", id, e.Fitted, e.Method, e.Rationale)
			case len(e.Scope) != 3 || e.CI95 != nil && !(len(e.CI95) == 2 && e.CI95[0] <= *e.Value && *e.Value <= e.CI95[1]):
				t.Errorf("%s: scope %v, interval %v", id, e.Scope, e.CI95)
			}
			for _, s := range e.Sources {
				if !slices.Contains(registryKinds, s.Kind) || !slices.Contains(registryRoles, s.Role) || s.Cite == "" {
					t.Errorf("%s: source %+v", id, s)
				}
			}
		}
	}
	return entries
}

// TestExportsAgreeOnNames: the scenario's set and the host set of one fit name hardware, model, width and host costs alike, in ten fits.
func TestExportsAgreeOnNames(t *testing.T) {
	for i, c := range []struct {
		device string
		tp     int64
		id     string
		model  string // --option model
		name   string // in both
	}{
		{"H100-SXM-80GB", 1, "Qwen/Qwen3-30B-A3B", "", "qwen3-30b-a3b"},
		{"H100-SXM-80GB", 2, "mistralai/Mixtral-8x7B-v0.1", "", "mixtral-8x7b-v0.1"},
		{"H200-SXM-141GB", 8, "moonshotai/Kimi-K2.5", "", "kimi-k2.5"},
		{"H200-SXM-141GB", 8, "deepseek-ai/DeepSeek-V3", "", "deepseek-v3"},
		{"H100-SXM-80GB", 2, "openai/gpt-oss-120b", "", "gpt-oss-120b"},
		{"H200-SXM-141GB", 4, "MiniMaxAI/MiniMax-M2.5", "", "minimax-m2.5"},
		{"H200-SXM-141GB", 8, "Qwen/Qwen3.5-397B-A17B", "", "qwen3.5-397b-a17b"},
		{"B200-SXM-180GB", 1, "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", "nemotron-3.5-lightning-30b-a3b-nvfp4",
			"nemotron-3.5-lightning-30b-a3b-nvfp4"},
		{"B200-SXM-180GB", 1, "meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b-instruct", "llama-3.1-8b-instruct"},
		{"A100-SXM-80GB", 4, "meta-llama/Meta-Llama-3.1-70B", "llama-3.1-70b-instruct", "llama-3.1-70b-instruct"},
	} {
		src := hostSource()
		src.Fit.Configs = src.Fit.Configs[:1]
		d := &src.Fit.Configs[0].Deployment
		*d = catalogDeployment(t, c.id, c.tp, c.name)
		d.Hardware.Name = c.device
		src.Step = func(deploy.Deployment) (StepTimer, error) { return affine{9000, 30, 0.05}, nil }
		opt := Options{Force: "poor_projection,unlearned_value", Settings: Settings{"model": c.model}}
		scenario := mustExport(t, src, FormatScenario, opt)
		var set []byte
		for _, f := range scenario.Files {
			if strings.HasPrefix(f.Suffix, ".registry/coefficients/") {
				set = f.Data
			}
		}
		ofScenario := checkSet(t, set)
		ofHost := checkSet(t, fileOf(t, mustExport(t, src, FormatRegistryHost, opt), ""))
		for _, entry := range ofHost {
			if !slices.Contains(ofScenario, entry) {
				t.Errorf("fit %d: %q of the host set is no entry of the scenario's, %v", i, entry, ofScenario)
			}
		}
		if want := fmt.Sprintf(" %s %s %d", partOf(c.device), c.name, c.tp); len(ofHost) != 4 || !strings.HasSuffix(ofHost[0], want) {
			t.Errorf("fit %d: %v, want four entries of%s", i, ofHost, want)
		}
		var s struct{ Model string }
		if err := yaml.Unmarshal(fileOf(t, scenario, ""), &s); err != nil || s.Model != c.name {
			t.Errorf("fit %d: the scenario simulates %q, %v", i, s.Model, err)
		}
	}
}

// TestOneEntryAConfiguration: two models on two devices have two entries of each host cost, not four, and two configurations with one
// scope have one.
func TestOneEntryAConfiguration(t *testing.T) {
	src := hostSource()
	other := &src.Fit.Configs[1].Deployment
	other.Hardware.Name = "A100-SXM-80GB"
	other.Model.ID = "codellama/CodeLlama-34b-Instruct-hf"
	out := mustExport(t, src, FormatRegistryHost, Options{})
	var completions []string
	for _, entry := range checkSet(t, fileOf(t, out, "")) {
		if strings.HasPrefix(entry, hostCompletion+" ") {
			completions = append(completions, entry)
		}
	}
	if want := []string{"host_completion h100 llama-3.1-8b 1", "host_completion a100-sxm codellama-34b-instruct-hf 2"}; !slices.Equal(completions, want) {
		t.Errorf("got %q, want %q", completions, want)
	}
	if !slices.ContainsFunc(out.Warnings, func(f trace.Finding) bool {
		return f.Code == BadEntry && strings.Contains(f.Message, "no model llama-3.1-8b, so its entries apply to no scenario (--option model=")
	}) {
		t.Errorf("a name that the catalog lacks: %v", out.Warnings)
	}
	if _, err := Export(src, writerOf(FormatRegistryHost), Options{Settings: Settings{"model": "llama-3.1-8b-instruct"}}); trace.CodeOf(err) != BadEntry {
		t.Errorf("one name for two models: %v", err)
	}
	src = hostSource()
	src.Fit.Configs[1].Deployment = src.Fit.Configs[0].Deployment
	src.Fit.Configs[1].Deployment.Engine.MaxNumSeqs = 7
	if n := len(checkSet(t, fileOf(t, mustExport(t, src, FormatRegistryHost, Options{}), ""))); n != 4 {
		t.Errorf("two configurations with one scope: %d entries, want 4", n)
	}
}
