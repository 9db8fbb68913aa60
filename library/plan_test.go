package library

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/vllm"
)

// operatorUs is the time of an operator's single run in 8 decodes; 0 where the plan has none of that name.
func operatorUs(s *Step, name string) float64 {
	b := decodes(8, 1000)
	in := s.stateOf(&b)
	for i := range s.Operators {
		if s.Operators[i].Name == name {
			return s.Operators[i].us(&in)
		}
	}
	return 0
}

// TestFusedQuantization: an fp8 layer behind a norm or an activation is 2 us shorter where the engine compiles; attention's output, engines
// that do not compile and GPUs without rows in fp8 keep theirs.
func TestFusedQuantization(t *testing.T) {
	for gpu, saved := range map[string]float64{"H100": 2, "A100": 0} {
		d := deploymentOn(t, gpu, 2, fp8)
		compiled := bound(t, d)
		d.Engine.Extra = vllm.Values{"compilation_config": map[string]any{"custom_ops": []any{"+quant_fp8"}}}
		apart := bound(t, d)
		for _, name := range []string{"q_proj+k_proj+v_proj", "up_proj", "down_proj", "o_proj"} {
			want := saved
			if name == "o_proj" {
				want = 0
			}
			got := operatorUs(apart, name) - operatorUs(compiled, name)
			if math.Abs(got-want) > 0.3 || operatorUs(compiled, name) == 0 {
				t.Errorf("%s %s: got %.2f us less, want %.2f", gpu, name, got, want)
			}
		}
	}
}

// TestEvenDraw: where tokens choose as many experts as there are, the time is what neighbours give, log-log.
func TestEvenDraw(t *testing.T) {
	c := curve{x: []float64{16, 32, 64}, y: []float64{100, 120, 400}}
	for x, want := range map[float64]float64{32: 200, 16: 100, 64: 400, 20: 100} {
		if got := c.raisedAt(x); x != 20 && math.Abs(got.usAt(x, 1)-want) > 1e-9 || x == 20 && got.y[1] != 120 {
			t.Errorf("raised at %g: got %v, want %g there", x, got.y, want)
		}
	}
	if got := (curve{x: []float64{16, 32, 64}, y: []float64{100, 300, 400}}).raisedAt(32); got.y[1] != 300 {
		t.Errorf("a time above its neighbours: got %g, want 300", got.y[1])
	}
}

// TestFloatRouter: MiniMax-M2's router is multiplied in float32, in proportion to its inputs with few tokens.
func TestFloatRouter(t *testing.T) {
	d, err := deploy.LoadSettings("model.id=MiniMaxAI/MiniMax-M2.5", "hardware.name=B200-SXM-180GB", "vllm.version=0.19.0",
		"vllm.max_num_seqs=256", "vllm.max_num_batched_tokens=8192", "vllm.max_model_len=10000", "vllm.kv_blocks_total_gpu=20000",
		"tensor_parallel_size=4")
	if err != nil {
		t.Fatal(err)
	}
	s := bound(t, d)
	if got, want := operatorUs(s, "gate"), 13.6/2; math.Abs(got-want) > 1e-9 {
		t.Errorf("got %g us, want %g", got, want)
	}
	if got := operatorUs(s, "gate_cast"); got < 2 {
		t.Errorf("the cast of its input: got %g us", got)
	}
}

// TestActivationsBesideExperts: shared experts and an MLP beside the routed ones each have an activation of their own,
// of three matrices and two bytes on each of four GPUs.
func TestActivationsBesideExperts(t *testing.T) {
	d, err := deploy.LoadSettings("model.id=MiniMaxAI/MiniMax-M2.5", "hardware.name=B200-SXM-180GB", "vllm.version=0.19.0",
		"vllm.max_num_seqs=256", "vllm.max_num_batched_tokens=8192", "vllm.max_model_len=10000", "vllm.kv_blocks_total_gpu=20000",
		"tensor_parallel_size=4")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		shared, beside int64
		want           string
	}{{0, 0, ""}, {0, 1000, "1500 B per token"}, {2000, 0, "3000 B per token"}, {2000, 1000, "3000 B per token, 1500 B per token"}} {
		m := *d.Model.Decoder
		ffn := *m.Layers[0].FFN
		ffn.SharedWidth, ffn.BesideWidth = c.shared, c.beside
		m.Layers = slices.Clone(m.Layers)
		for i := range m.Layers {
			m.Layers[i].FFN = &ffn
		}
		s, err := Bound(d, Options{Decoder: &m})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, op := range s.Operators {
			if op.Name == "activation" {
				got = append(got, op.Shape)
				if op.Count != float64(len(m.Layers)) {
					t.Errorf("got %g activations, want one of each of %d layers", op.Count, len(m.Layers))
				}
			}
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("shared %d, beside %d: got %v, want %s", c.shared, c.beside, got, c.want)
		}
	}
}

// TestReplacedRows: a GPU's rows that others contradict are named by table and dtype.
func TestReplacedRows(t *testing.T) {
	g, err := For(&deploymentOn(t, "H100", 2, fp8).Hardware)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range g.ReplacedRows([]string{"Qwen/Qwen3-32B-FP8"}) {
		if r.Table == "gemm" && strings.HasPrefix(r.DType, "fp8") && r.Most > 1.4 && r.Plans > 0 {
			return
		}
	}
	t.Error("got no row of an fp8 layer, want one: the small layers of Qwen3-32B-FP8 are launch-bound")
}

// TestEagerReduce: outside of graphs an all-reduce takes the rows of graphs, with the copy into the buffer of vLLM's custom kernel below its
// 8 MiB, and never more than the eager rows, which contain a copy that no engine makes.
func TestEagerReduce(t *testing.T) {
	d := deploymentOn(t, "H100", 2, fp8)
	s := bound(t, d)
	reduce := func(in *state) float64 {
		for i := range s.Operators {
			if s.Operators[i].Name == "all_reduce" {
				return s.Operators[i].us(in)
			}
		}
		t.Fatal("no all_reduce")
		return 0
	}
	const perToken = 2 * 5120
	for tokens, copied := range map[float64]float64{100: 2 * 100 * perToken / (0.8 * 3.35e6), 1600: 0, 8000: 0} {
		extra := 0.0
		if copied > 0 {
			extra = copied + 2
		}
		graph := reduce(&state{run: tokens, captured: true})
		eager := reduce(&state{run: tokens})
		if math.Abs(eager-graph-extra) > 0.02*graph {
			t.Errorf("%g tokens: got %.1f us in a graph and %.1f outside, want %.1f more", tokens, graph, eager, extra)
		}
	}
}

// TestChosenFP8: FlashInfer chooses the kernel of each fp8 product on Blackwell alone, four a layer.
func TestChosenFP8(t *testing.T) {
	for gpu, want := range map[string]float64{"B200": 4 * 64, "RTX-PRO-6000": 4 * 64, "H100": 0} {
		d := deploymentOn(t, gpu, 2, fp8)
		s := bound(t, d)
		var x, plain [NumStep]float64
		b := Batch{Tokens: 4096, Sequences: 1, Prefills: 1, PrefillTokens: 4096, PrefillPairs: 4096 * 4097 / 2}
		s.NewPricer().Columns(&b, &x)
		decode := decodes(8, 1000)
		s.NewPricer().Columns(&decode, &plain)
		if x[EagerFP8] != want || plain[EagerFP8] != 0 {
			t.Errorf("%s: got %g products of a prompt and %g of decodes, want %g and 0", gpu, x[EagerFP8], plain[EagerFP8], want)
		}
	}
}

// TestUnmeasuredShares: of a step whose kernels have all but one a table, with and without experts that are spread.
func TestUnmeasuredShares(t *testing.T) {
	theta := [NumStep]float64{ScaleGPU: 1, HostStep: 25}
	flat := func(name, table string, us float64) Operator {
		return Operator{Name: name, Count: 1, found: found{Table: table, Reached: Analytic}, us: func(*state) float64 { return us }}
	}
	s := Step{
		GPU:       &GPU{Hardware: "x"},
		graphs:    vllm.GraphSizes{1, 4096},
		Operators: []Operator{flat("linear", "gemm", 60), flat("norm", "", 15)},
	}
	decode, prompt := s.UnmeasuredShares(&theta, 100, &Asked{})
	if math.Abs(decode-0.47) > 1e-9 || math.Abs(prompt-0.75) > 1e-9 {
		t.Errorf("got %g and %g", decode, prompt)
	}
	s.spreadExperts = true
	if own, spread := s.UnmeasuredShares(&theta, 100, &Asked{}); own != decode || math.Abs(spread-prompt-0.12) > 1e-9 {
		t.Errorf("got %g and %g", own, spread)
	}
	if a, b := (&Step{}).UnmeasuredShares(&theta, 100, &Asked{}); a != 1 || b != 1 {
		t.Errorf("without operators: got %g and %g", a, b)
	}
}

// TestUnmeasuredSharesOfCachedPrompts: of 1,000 tokens that take a us each 900 are in the cache: 100 us beside the 100 of the front
// end and the 25 of the host.
func TestUnmeasuredSharesOfCachedPrompts(t *testing.T) {
	theta := [NumStep]float64{ScaleGPU: 1, HostStep: 25}
	s := Step{
		GPU:    &GPU{Hardware: "x"},
		graphs: vllm.GraphSizes{1, 4096},
		Operators: []Operator{{Name: "linear", Count: 1, depends: onPrefills, found: found{Table: "gemm", Reached: Analytic},
			us: func(in *state) float64 { return in.chunk }}},
	}
	for share, want := range map[float64]float64{0: promptFloor + 125./1125, 0.9: promptFloor + 125./225} {
		if _, got := s.UnmeasuredShares(&theta, 100, &Asked{InputTokens: 1000, CachedShare: share}); math.Abs(got-want) > 1e-9 {
			t.Errorf("%g cached: got %g, want %g", share, got, want)
		}
	}
}

// reduceUs returns the time of one all-reduce of activations in a deployment's step, us.
func reduceUs(t *testing.T, s *Step, in state) float64 {
	t.Helper()
	for i := range s.Operators {
		if op := &s.Operators[i]; op.Name == "all_reduce" {
			return op.us(&in)
		}
	}
	t.Fatal("no all_reduce")
	return 0
}

// TestReduceOverPCIe: over PCIe, vLLM's custom kernel serves two GPUs alone. With more NCCL reduces tensors of every size, so
// that times grow with the tokens and the two tables of it agree. The tensors of 1,000 and 1,024 tokens lie on both sides of
// the custom kernel's 8 MiB.
func TestReduceOverPCIe(t *testing.T) {
	for _, gpu := range []string{"L40S", "RTX-PRO-6000"} {
		for _, tp := range []int64{4, 8} {
			s := bound(t, deploymentOn(t, gpu, tp, ""))
			before := 0.0
			for tokens := 100.0; tokens < 3000; tokens += 10 {
				us := reduceUs(t, s, state{run: tokens})
				if us < before {
					t.Errorf("%s tp %d: got %.0f us with %g tokens, %.0f with fewer", gpu, tp, us, tokens, before)
				}
				if graph := reduceUs(t, s, state{run: tokens, captured: true}); graph != us {
					t.Errorf("%s tp %d, %g tokens: got %.0f us outside of graphs and %.0f within, want no copy for a custom kernel", gpu, tp, tokens, us, graph)
				}
				before = us
			}
		}
	}
}

// TestCustomReduceDisabled: with --disable-custom-all-reduce NCCL reduces, which takes several times as long for small tensors.
// The kernel that is fused with the norms (H100) stays.
func TestCustomReduceDisabled(t *testing.T) {
	for gpu, times := range map[string]float64{"A100": 2, "H100": 1} {
		d := deploymentOn(t, gpu, 4, "")
		d.Engine.VLLMVersion = "0.24.0"
		own := reduceUs(t, bound(t, d), state{run: 8, captured: true})
		d.Engine.Keep("disable_custom_all_reduce", true)
		without := reduceUs(t, bound(t, d), state{run: 8, captured: true})
		if times == 1 && without != own || times > 1 && without < times*own {
			t.Errorf("%s: got %.1f us with the custom kernel and %.1f without, want at least %g times as long", gpu, own, without, times)
		}
	}
}
