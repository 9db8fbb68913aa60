package library

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// someCorrections are corrections with a family F, measured at tp 2 and 4 on H100. Its intervals are learned from others, those of
// other families from it too.
func someCorrections() *Corrections {
	return &Corrections{
		Version: "v", Step: map[string][2]float64{"gpu_scale": {1.1, 0.03}, "overhead_us": {7000, 500}}, GPUs: map[string]map[string][2]float64{"H100": {"gpu_scale": {0.2, 0.04}}, "bad": {"gpu_scale": {-9, 0}}},
		PerShare: Intervals{TTFT: 0.4, ITL: 0.15, E2E: 0.16, Throughput: 0.17},
		Unseen:   Intervals{TTFT: 0.5, ITL: 0.2, E2E: 0.3, Throughput: 0.4},
		Judged: []Judged{{Family: "F, H100", PerShare: Intervals{TTFT: 0.6, ITL: 0.1, E2E: 0.12, Throughput: 0.13}, Model: "m", TP: []int64{2, 4}, Points: 12, Flags: []string{"--x (3 of 12)"}, TPOTMape: 0.05, TTFTMedian: 0.11,
			Measured: Domain{InputTokens: [2]int64{1000, 4000}, OutputTokens: [2]int64{800, 800}, Clients: [2]int64{8, 64}}, Intervals: Intervals{TTFT: 0.9, ITL: 0.9, E2E: 0.9, Throughput: 0.9}}},
	}
}

// TestCorrectionValues: a parameter of a GPU that was measured, of one that was not, one that no server changed, and one
// that would fall below its least value.
func TestCorrectionValues(t *testing.T) {
	c := someCorrections()
	for _, w := range []struct {
		k         int
		gpu       string
		value, se float64
	}{
		{ScaleGPU, "H100", 1.3, 0.05}, {ScaleGPU, "A100", 1.1, math.Hypot(0.03, 0.003)}, {ScaleGPU, "bad", 0.5, 0.03}, {HostStep, "H100", 200, 30}, {NumStep, "", 7000, 500},
		{ScalePrompt, "A100", 0, math.Hypot(0.045, 0.05)},
	} {
		if value, se := c.Value(w.k, w.gpu); math.Abs(value-w.value) > 1e-12 || math.Abs(se-w.se) > 1e-12 {
			t.Errorf("%s on %s: got %g +- %g, want %g +- %g", Parameters[w.k].Name, w.gpu, value, se, w.value, w.se)
		}
	}
	if on := c.On("H100"); math.Abs(on[ScaleGPU]-1.3) > 1e-12 || on[HostRank] != 80 || c.OverheadUs() != 7000 {
		t.Errorf("got %v", on)
	}
	if text, err := c.YAML(); err != nil || !strings.HasPrefix(string(text), "version: v\n") {
		t.Errorf("got %.60s and %v", text, err)
	}
}

// TestTrust: what is stated of a step within what its family was measured with, outside of it, of another size, of
// another family on the same GPU, with kernels that no server ran and on a GPU without servers. A step without operators
// rests on nothing measured, so that its shares are 1.
func TestTrust(t *testing.T) {
	c := someCorrections()
	step := func(family string, tp int64, doubt float64, unjudged ...string) *Step {
		_, gpu, _ := strings.Cut(family, ", ")
		return &Step{GPU: &GPU{Hardware: gpu}, Family: family, TP: tp, Doubt: doubt, Unjudged: unjudged}
	}
	inside := Asked{InputTokens: 2000, OutputTokens: 800, Clients: 16}
	outside := Asked{InputTokens: 9000, OutputTokens: 800, Clients: 16}
	for _, w := range []struct {
		name     string
		s        *Step
		a        *Asked
		want     Intervals
		axes     int
		sentence string
	}{
		{"inside", step("F, H100", 2, 0), &inside, Intervals{0.6, 0.1, 0.12, 0.13}, 0,
			"validated on 12 measured points of m with --x (3 of 12), held out of the fit: TPOT within 5 % (mean), nine in ten within 10 %, TTFT within 11 % (median), nine in ten within 60 %"},
		{"with doubt", step("F, H100", 2, 0.25), &inside, Intervals{0.85, 0.35, 0.37, 0.38}, 0, "nine in ten within 35 %"},
		{"outside", step("F, H100", 4, 0), &outside, Intervals{0.6, 0.2, 0.3, 0.4}, 1,
			"not validated here: servers of m were measured under other conditions (input tokens 9000, measured 1000 to 4000): expect TPOT within 20 %, TTFT within 60 % and throughput within 40 %; nine in ten servers of model families unknown to the fit were that close"},
		{"another size", step("F, H100", 1, 0), &inside, Intervals{0.4, 0.15, 0.16, 0.17}, 0, "not validated (F, H100: measured at tp 2 and 4, not at 1): "},
		{"another family", step("G, H100", 2, 0), &inside, Intervals{0.4, 0.15, 0.16, 0.17}, 0, "not validated (no server of G, H100 was measured): "},
		{"another family, outside of what all were measured with", step("G, H100", 2, 0), &outside, Intervals{0.5, 0.2, 0.3, 0.4}, 0, "not validated (no server of G, H100 was measured): "},
		{"another GPU", step("F, A100", 2, 0), &inside, Intervals{0.5, 0.2, 0.3, 0.4}, 0, "not validated (no server of F, A100 was measured): "},
		{"pipeline", step("F, H100", 2, 0, "pipeline stages", "a CPU tier"), &inside, Intervals{0.5, 0.2, 0.3, 0.4}, 0, "not validated (pipeline stages; a CPU tier): "},
	} {
		got, axes := c.IntervalsOf(w.s, w.a)
		if !reflect.DeepEqual(got, w.want) || len(axes) != w.axes {
			t.Errorf("%s: got %+v, %q, want %+v", w.name, got, axes, w.want)
		}
		if s := c.SentenceFor(w.s, w.a); !strings.Contains(s, w.sentence) {
			t.Errorf("%s: got %q", w.name, s)
		}
	}
	c.Judged[0].Unknown = true
	if got, _ := c.IntervalsOf(step("F, H100", 2, 0), &inside); got.ITL != 0.9 || got.TTFT != 0.9 {
		t.Errorf("a family of unknown flags: got %+v, want its own errors", got)
	}
	if s := c.Sentence(step("F, H100", 2, 0)); !strings.Contains(s, "of m with --x (3 of 12) with flags that are not known, held out") {
		t.Errorf("got %q", s)
	}
	for want, sizes := range map[string][]int64{"": nil, "2": {2}, "2 and 4": {2, 4}, "1, 2 and 4": {1, 2, 4}} {
		if got := listOfSizes(sizes); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestOutside: each axis of a domain just within the factor that still counts as measured, and just beyond.
func TestOutside(t *testing.T) {
	m := Domain{InputTokens: [2]int64{1000, 4000}, OutputTokens: [2]int64{800, 800}, Clients: [2]int64{16, 64}, Parameters: [2]float64{8, 70}, ActiveParameters: [2]float64{3, 12}, BatchedTokens: [2]int64{2048, 8192},
		Releases: []string{"0.9", "0.11"}, KVBytes: []float64{1, 2}, Graphs: []string{"all small steps"}, Scheduling: []string{"asynchronous"}}
	for _, c := range []struct {
		name   string
		change func(a *Asked)
		want   string // "": within
	}{
		{"nothing known", func(a *Asked) {}, ""},
		{"input at the least", func(a *Asked) { a.InputTokens = 500 }, ""}, {"input below", func(a *Asked) { a.InputTokens = 499 }, "input tokens 499, measured 1000 to 4000"},
		{"input at the most", func(a *Asked) { a.InputTokens = 8000 }, ""}, {"input above", func(a *Asked) { a.InputTokens = 8001 }, "input tokens 8001, measured 1000 to 4000"},
		{"output at the least", func(a *Asked) { a.OutputTokens = 100 }, ""}, {"output below", func(a *Asked) { a.OutputTokens = 99 }, "output tokens 99, measured 800"},
		{"output above", func(a *Asked) { a.OutputTokens = 1601 }, "output tokens 1601, measured 800"},
		{"clients at the least", func(a *Asked) { a.Clients = 2 }, ""}, {"clients below", func(a *Asked) { a.Clients = 1 }, "clients 1, measured 16 to 64"}, {"clients at the most", func(a *Asked) { a.Clients = 64 }, ""},
		{"clients above", func(a *Asked) { a.Clients = 65 }, "clients 65"},
		{"parameters at the least", func(a *Asked) { a.Parameters = 4 }, ""}, {"parameters below", func(a *Asked) { a.Parameters = 3.9 }, "parameters 3.9e9, measured 8e9 to 70e9"},
		{"parameters at the most", func(a *Asked) { a.Parameters = 140 }, ""}, {"parameters above", func(a *Asked) { a.Parameters = 141 }, "parameters 141e9"},
		{"parameters of a token", func(a *Asked) { a.ActiveParameters = 25 }, "parameters of a token 25e9, measured 3e9 to 12e9"},
		{"budget at the least", func(a *Asked) { a.BatchedTokens = 1024 }, ""}, {"budget below", func(a *Asked) { a.BatchedTokens = 1023 }, "max_num_batched_tokens 1023, measured 2048 to 8192"},
		{"budget above", func(a *Asked) { a.BatchedTokens = 16385 }, "max_num_batched_tokens 16385"},
		{"a workload", func(a *Asked) { a.Workload = true }, "arrivals and lengths of a workload"}, {"a rate", func(a *Asked) { a.RateRPS = 0.1 }, "arrivals at a rate"},
		{"a release within", func(a *Asked) { a.Version = "0.10.2" }, ""}, {"the oldest", func(a *Asked) { a.Version = "0.9.1" }, ""}, {"an older one", func(a *Asked) { a.Version = "0.8.5" }, "vLLM 0.8, measured 0.9, 0.11"},
		{"a newer one", func(a *Asked) { a.Version = "0.12.0" }, "vLLM 0.12"}, {"fp8 cache", func(a *Asked) { a.KVBytes = 1.009 }, ""}, {"another cache", func(a *Asked) { a.KVBytes = 4 }, "a KV cache of 4 bytes a value, measured [1 2]"},
		{"ranks", func(a *Asked) { a.DP = 2 }, "data parallelism 2"}, {"one rank", func(a *Asked) { a.DP = 1 }, ""}, {"float32", func(a *Asked) { a.WeightsFloat32 = true }, "float32"}, {"LoRA", func(a *Asked) { a.LoRA = true }, "LoRA"},
		{"graphs", func(a *Asked) { a.Graphs = "no steps" }, "CUDA graphs of no steps, measured of all small steps"}, {"synchronous", func(a *Asked) { a.Scheduling = "synchronous" }, "synchronous scheduling, measured asynchronous"},
		{"as many seats", func(a *Asked) { a.Clients, a.MaxNumSeqs = 16, 16 }, ""}, {"too few seats", func(a *Asked) { a.Clients, a.MaxNumSeqs = 17, 16 }, "17 clients for a max_num_seqs of 16"},
		{"as large a graph", func(a *Asked) { a.Clients, a.MaxNumSeqs, a.LargestGraph = 16, 32, 16 }, ""},
		{"too small a graph", func(a *Asked) { a.Clients, a.MaxNumSeqs, a.LargestGraph = 17, 32, 16 }, "17 requests beyond the largest CUDA graph of 16 tokens"},
		{"saturated", func(a *Asked) { a.Saturated = true }, "a saturated server"},
		{"cached prompts", func(a *Asked) { a.CachedShare = 0.9 }, "0.9 of each prompt in the prefix cache, measured without"},
	} {
		var a Asked
		c.change(&a)
		got := m.Outside(&a)
		if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], c.want)) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	dense := Domain{Parameters: [2]float64{8, 8}, ActiveParameters: [2]float64{7.5, 7.5}}
	if got := dense.Outside(&Asked{ActiveParameters: 1, Parameters: 17}); len(got) != 1 || got[0] != "parameters 17e9, measured 8e9" {
		t.Errorf("got %q", got)
	}
}

// TestWiden: a domain from the least to the most of what was measured, and the axes of a deployment.
func TestWiden(t *testing.T) {
	d := deploymentOn(t, "H100", 2, "")
	d.Engine.MaxNumBatchedTokens, d.Engine.VLLMVersion = 2048, "0.11.0"
	var m Domain
	m.Widen(1000, 50, 8, d, 2)
	d.Engine.MaxNumBatchedTokens, d.Engine.VLLMVersion = 512, "0.9.1"
	d.Engine.AsyncScheduling = trace.Some(true)
	m.Widen(2000, 20, 4, d, 1)
	m.Widen(1500, 30, 6, d, 1)
	asked := AskedOf(d)
	if m.InputTokens != [2]int64{1000, 2000} || m.OutputTokens != [2]int64{20, 50} || m.Clients != [2]int64{4, 8} || m.BatchedTokens != [2]int64{512, 2048} ||
		!reflect.DeepEqual(m.Releases, []string{"0.9", "0.11"}) || !reflect.DeepEqual(m.KVBytes, []float64{1, 2}) || len(m.Graphs) != 1 || !reflect.DeepEqual(m.Scheduling, []string{"asynchronous", "synchronous"}) || m.Parameters != [2]float64{asked.Parameters, asked.Parameters} {
		t.Errorf("got %+v", m)
	}
	if asked.BatchedTokens != 512 || asked.Version != "0.9.1" || asked.LoRA || asked.WeightsFloat32 || asked.DP != d.DP || !(asked.Parameters > 1) || asked.ActiveParameters > asked.Parameters {
		t.Errorf("got %+v", asked)
	}
	d.Engine.Extra = vllm.Values{"enable_lora": true}
	d.Model.BytesPerActivation = 4
	if a := AskedOf(d); !a.LoRA || !a.WeightsFloat32 {
		t.Errorf("got %+v", a)
	}
}

// TestTimeOfAStep: the parts of a step's time add up to it, operators to the kernels, and of kernels and launches outside
// CUDA graphs the shorter does not count.
func TestTimeOfAStep(t *testing.T) {
	s := bound(t, deploymentOn(t, "H100", 2, ""))
	theta := Learned().On(s.GPU.Hardware)
	prompt := promptBehind(700, 0)
	for name, b := range map[string]Batch{"8 decodes": decodes(8, 1000), "a prompt": prompt} {
		time := s.Time(&b)
		kernels := 0.0
		for _, ms := range time.OperatorsMs {
			kernels += ms
		}
		parts := s.NewPricer().TimeParts(&b, &theta)
		sum := 0.0
		for _, us := range parts {
			sum += us
		}
		if math.Abs(kernels-time.KernelsMs) > 1e-9 || math.Abs(sum/1e3-time.StepMs) > 1e-9 || !(time.StepMs > time.KernelsMs) || parts[HostTime] < 100 || time.StepMs > 100 {
			t.Errorf("%s: got %g ms of kernels, %g ms, parts %v", name, time.KernelsMs, time.StepMs, parts)
		}
	}
	x := [NumStep]float64{ScaleGPU: 100, SmallKernel: 5, EagerLayer: 1, HostStep: 1}
	ones := [NumStep]float64{ScaleGPU: 1, SmallKernel: 1, EagerLayer: 104, HostStep: 200}
	kept := x
	if Slower(&ones, &kept); kept[EagerLayer] != 0 || kept[ScaleGPU] != 100 || kept[SmallKernel] != 5 || kept[HostStep] != 1 {
		t.Errorf("launches of 104 us beside kernels of 105: got %v", kept)
	}
	ones[EagerLayer] = 106
	kept = x
	if Slower(&ones, &kept); kept[EagerLayer] != 1 || kept[ScaleGPU] != 0 || kept[SmallKernel] != 0 || kept[HostStep] != 1 {
		t.Errorf("launches of 106 us: got %v", kept)
	}
	// The launches count from the largest graph, in proportion up to 1.6 times as many tokens.
	step := Step{graphs: vllm.GraphSizes{100}}
	for tokens, want := range map[float64]float64{100: 0, 130: 0.5, 160: 1, 400: 1, 50: 0} {
		if got := step.launchShare(&Batch{Tokens: tokens}); math.Abs(got-want) > 1e-12 {
			t.Errorf("%g tokens: got %g, want %g", tokens, got, want)
		}
	}
	if got := (&Step{}).launchShare(&Batch{Tokens: 1}); got != 1 {
		t.Errorf("without graphs: got %g", got)
	}
	step.decodesOnly = true
	if got := step.launchShare(&Batch{Tokens: 1, Prefills: 1}); got != 1 {
		t.Errorf("a prompt where decodes alone have graphs: got %g", got)
	}
	eager := Step{Layers: 10, expertLayers: 4, latentLayers: 2, GPU: &GPU{Hardware: "x"}}
	if us, se := eager.LaunchUs(&Corrections{}); us != 10*150+4*1500+2*1000 || se != 10*100+4*700+2*300 {
		t.Errorf("got %g +- %g us", us, se)
	}
	eager.decodesOnly = true
	eager.chosenFP8 = 70
	if us, _ := eager.LaunchUs(&Corrections{}); us != 10*150+4*1500+2*1000+10*600+70*52 {
		t.Errorf("got %g us", us)
	}
}

// TestPriorsOfParameters: times are never negative, whole steps take at least half of the model's time, and what is added in
// shares takes away at most half.
func TestPriorsOfParameters(t *testing.T) {
	least := func(name string) float64 {
		switch {
		case strings.HasSuffix(name, "_us"):
			return 0
		case name == "gpu_scale":
			return 0.5
		}
		return -0.5
	}
	for _, p := range Parameters {
		if p.AtLeast != least(p.Name) || p.Mean < p.AtLeast || !(p.SD > 0) {
			t.Errorf("got %+v", p)
		}
	}
	for _, p := range ByGPU {
		if p.AtLeast != -0.5 || p.Mean != 0 || !(p.SD > 0) {
			t.Errorf("of a GPU: got %+v", p)
		}
	}
}
