package library

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/vllm"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// handTable is a table with a row for each combination of the values of its columns, in which words are columns of text, and
// for each size. us returns the time of a row.
func handTable(name, version string, columns []string, values [][]any, size string, sizes []int64, us func(at func(string) float64, x float64) float64) *Table {
	t := &Table{Name: name, Version: version, Path: "hand/" + name}
	for j, c := range columns {
		col := Column{Name: c}
		for _, v := range values[j] {
			if word, ok := v.(string); ok {
				col.Words = append(col.Words, word)
			}
		}
		slices.Sort(col.Words)
		t.Columns = append(t.Columns, col)
	}
	t.Columns = append(t.Columns, Column{Name: size})
	var add func(key []int64)
	add = func(key []int64) {
		if j := len(key); j < len(columns) {
			for _, v := range values[j] {
				if word, ok := v.(string); ok {
					add(append(slices.Clone(key), t.Columns[j].Word(word)))
				} else {
					add(append(slices.Clone(key), int64(v.(int))))
				}
			}
			return
		}
		at := func(column string) float64 { return float64(key[t.Column(column)]) }
		s := Series{Key: key, X: sizes}
		for _, x := range sizes {
			s.Q = append(s.Q, Quantized(us(at, float64(x))))
		}
		t.Series = append(t.Series, s)
		t.Rows += len(sizes)
	}
	add(nil)
	return t
}

// handGPU is a GPU with tables whose times follow from their keys, in which each column counts.
func handGPU(hardware string, sm int64) *GPU {
	g := &GPU{Hardware: hardware, SM: sm, Bandwidth: 2e12, FLOPS: 5e14, Link: 4e11, packed: map[string]*lazyTable{}, name: "hand"}
	sizes := []int64{1, 16, 64, 256, 1024, 4096, 16384}
	long := []int64{16, 128, 1024, 4096, 16384}
	mix := func(columns ...string) func(at func(string) float64, x float64) float64 {
		return func(at func(string) float64, x float64) float64 {
			us := 5.0
			for i, c := range columns {
				us *= 1 + at(c)/float64(100*(i+1))
			}
			return us * (1 + x/50)
		}
	}
	g.Tables = []*Table{
		handTable("gemm", "0.1", []string{"kernel_source", "gemm_dtype", "n", "k"}, [][]any{{"a", "b"}, {bf16, fp8}, {512, 4096, 65536}, {512, 4096, 16384}}, "m", sizes,
			func(at func(string) float64, x float64) float64 {
				return 3 + at("kernel_source") + at("n")*at("k")*(2-at("gemm_dtype"))/1.5e6*(1+x/300)
			}),
		handTable("context_attention", "0.2", []string{"kernel_source", "batch_size", "num_heads", "num_key_value_heads", "head_dim", "kv_cache_dtype", "window_size"},
			[][]any{{"f"}, {1, 4}, {8, 16, 32}, {1, 4, 8}, {64, 128}, {bf16}, {0}}, "isl", long, func(at func(string) float64, x float64) float64 {
				return 6 + at("batch_size")*at("num_heads")*at("head_dim")*x*(x+100*at("num_key_value_heads"))/1e10
			}),
		handTable("generation_attention", "0.3", []string{"kernel_source", "batch_size", "num_heads", "num_key_value_heads", "head_dim", "kv_cache_dtype", "window_size"},
			[][]any{{"f"}, {1, 8, 64}, {8, 16, 32}, {1, 4, 8}, {64, 128}, {bf16}, {0}}, "isl", long, func(at func(string) float64, x float64) float64 {
				return 7 + at("batch_size")*at("num_key_value_heads")*at("head_dim")*x/1e6 + at("num_heads")/9
			}),
		handTable("moe", "0.4", []string{"kernel_source", "moe_dtype", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "distribution"},
			[][]any{{"k"}, {bf16, fp8}, {2048}, {768}, {8}, {128}, {1, 2}, {1, 4}, {defaultLoad, "balanced"}}, "num_tokens", sizes,
			func(at func(string) float64, x float64) float64 {
				return 9 + (200+80*at("moe_dtype")+x)/at("moe_tp_size")/at("moe_ep_size")*(1+at("distribution"))
			}),
		handTable("nccl", "0.5", []string{"op_name", "nccl_dtype", "num_gpus"}, [][]any{{"all_gather", "all_reduce", "reduce_scatter"}, {"half"}, {2, 4}}, "message_size",
			[]int64{1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26}, func(at func(string) float64, x float64) float64 {
				return 12 + 3*at("op_name") + x/3e4*at("num_gpus")
			}),
		handTable("custom_allreduce", "0.6", []string{"allreduce_dtype", "num_gpus", "backend"}, [][]any{{bf16}, {2, 4}, {"vllm_eager", "vllm_graph"}}, "message_size",
			[]int64{1 << 10, 1 << 14, 1 << 18, 1 << 22, 1 << 26}, func(at func(string) float64, x float64) float64 {
				return 8 - 3*at("backend") + x/4e4*at("num_gpus")
			}),
		handTable("gdn", "0.7", []string{"kernel_source", "phase", "batch_size", "d_model", "num_k_heads", "num_v_heads"},
			[][]any{{"conv", "rule"}, {"context", "generation"}, {1, 32}, {2048}, {16}, {32}}, "seq_len", []int64{1, 64, 4096}, mix("kernel_source", "phase", "batch_size")),
		handTable("mhc_module", "0.8", []string{"op_name", "kernel_source", "hidden_size"}, [][]any{{"post", "pre"}, {"t"}, {4096}}, "num_tokens", sizes, mix("op_name")),
		handTable("wideep_deepep_ll_dispatch", "0.9", []string{"node_num", "hidden_size", "num_topk", "num_experts"}, [][]any{{1}, {2048}, {8}, {128}}, "num_token", sizes, mix("num_topk")),
		handTable("wideep_deepep_ll_combine", "0.9", []string{"node_num", "hidden_size", "num_topk", "num_experts"}, [][]any{{1}, {2048}, {8}, {128}}, "num_token", sizes, mix("num_topk", "node_num")),
	}
	for i, name := range []string{"mla", "msa", "dsa"} {
		models := []any{"deepseek-ai/DeepSeek-V3.2", "zai-org/GLM-5"}
		columns := []string{"kernel_source", "model", "kv_cache_dtype", "gemm_type", "num_heads", "batch_size", "step"}
		g.Tables = append(g.Tables,
			handTable(name+"_context_module", fmt.Sprint("1.", i), columns, [][]any{{"M"}, models, {bf16}, {bf16, fp8Block}, {16, 64}, {1, 4}, {0}}, "isl", long, mix("model", "gemm_type", "num_heads", "batch_size")),
			handTable(name+"_generation_module", fmt.Sprint("2.", i), columns, [][]any{{"M"}, models, {bf16}, {bf16}, {16, 64}, {1, 4}, {0}}, "isl", long, mix("model", "num_heads", "batch_size")))
	}
	for i, name := range []string{"csa", "hca"} {
		columns := []string{"kernel_source", "num_heads", "tp_size", "batch_size", "step"}
		g.Tables = append(g.Tables,
			handTable("dsv4_"+name+"_context_module", fmt.Sprint("3.", i), columns, [][]any{{"S"}, {64}, {1}, {1, 2}, {0, 4096, 8192}}, "isl", []int64{1024}, mix("step", "batch_size")),
			handTable("dsv4_"+name+"_generation_module", fmt.Sprint("4.", i), columns, [][]any{{"S"}, {64}, {1}, {1, 2}, {0}}, "isl", long, mix("batch_size")))
		c := g.Tables[len(g.Tables)-2]
		for _, b := range []int64{1, 2} { // chunks of 32,768 tokens, also behind 12,288
			for _, step := range []int64{0, 4096, 12_288} {
				c.Series = append(c.Series, Series{Key: []int64{0, 64, 1, b, step}, X: []int64{32_768}, Q: []int16{Quantized(4000 + float64(step)/4)}})
			}
		}
	}
	for _, t := range g.Tables {
		l := &lazyTable{}
		l.once.Do(func() {})
		g.packed[t.Name] = l
	}
	return g
}

// plannedOperator is an operator of a plan in a document, with its times in some batches.
type plannedOperator struct {
	Name, Shape, DType, Source, Reached, Note string
	Count                                     float64
	Kind, Rank                                int
	Unlike                                    bool
	Contradicted                              float64
	Us                                        []float64
}

// TestPlansOfTablesByHand compares every operator of plans from tables whose times are known, in batches of decodes, of prompts,
// of both and beyond the CUDA graphs.
func TestPlansOfTablesByHand(t *testing.T) {
	batches := []Batch{
		decodes(8, 1000), decodes(600, 300), {Tokens: 700, Sequences: 1, Prefills: 1, PrefillTokens: 700, PrefillPairs: 700 * 701 / 2}, promptBehind(300, 5000),
		{Tokens: 260, Sequences: 6, Decodes: 4, DecodeContext: 9000, LongestDecode: 4000, Prefills: 2, PrefillTokens: 256, PrefillPairs: 40_000},
		{Tokens: 20_000, Sequences: 3, Prefills: 3, PrefillTokens: 20_000, PrefillPairs: 3 * 6_000 * 6_001 / 2, Run: 20_480, All: 40_960, Imbalance: 1.5},
	}
	type plan struct {
		Family, DType, Error       string
		Layers, ExpertLayers       float64
		LatentLayers, SmallKernels float64
		Unjudged                   []string
		Operators                  []plannedOperator
		Parts                      []Parts
		TimeParts                  [][NumTimeParts]float64
	}
	theta := [NumStep]float64{1.1, 0.2, 0.3, 100, 50, 2, 700, 11, 0.05, 0.7, 130, 900, 800, 600}
	plans := map[string]plan{}
	gpus := map[string]*GPU{}
	for name, c := range map[string]struct {
		hardware string
		sm       int64
		model    string
		settings []string
		o        Options
	}{
		"dense":            {"H100-SXM-80GB", 90, "Qwen/Qwen3-8B", nil, Options{}},
		"dense on two":     {"H100-SXM-80GB", 90, "Qwen/Qwen3-8B", []string{"tensor_parallel_size=2"}, Options{}},
		"dense on four":    {"B200-SXM-180GB", 100, "Qwen/Qwen3-32B", []string{"tensor_parallel_size=4"}, Options{}},
		"fp8":              {"H100-SXM-80GB", 90, "Qwen/Qwen3-8B-FP8", nil, Options{}},
		"fp8 by channels":  {"H100-SXM-80GB", 90, "nvidia/Llama-3.1-70B-Instruct-FP8", []string{"tensor_parallel_size=4"}, Options{}},
		"fp8 as bfloat16":  {"H100-SXM-80GB", 90, "Qwen/Qwen3-8B-FP8", nil, Options{BF16: true}},
		"experts":          {"H100-SXM-80GB", 90, "Qwen/Qwen3-30B-A3B", nil, Options{}},
		"experts, raw":     {"H100-SXM-80GB", 90, "Qwen/Qwen3-30B-A3B", nil, Options{RawExperts: true, Load: "balanced"}},
		"experts of fp8":   {"H100-SXM-80GB", 90, "Qwen/Qwen3-30B-A3B-FP8", []string{"tensor_parallel_size=2"}, Options{}},
		"whole experts":    {"H100-SXM-80GB", 90, "Qwen/Qwen3-30B-A3B", []string{"tensor_parallel_size=4", "vllm.enable_expert_parallel=true"}, Options{}},
		"ranks of experts": {"H100-SXM-80GB", 90, "Qwen/Qwen3-30B-A3B", []string{"data_parallel_size=4", "vllm.enable_expert_parallel=true"}, Options{}},
		"DeepEP":           {"H100-SXM-80GB", 90, "Qwen/Qwen3-30B-A3B", []string{"data_parallel_size=4", "vllm.enable_expert_parallel=true", "vllm.all2all_backend=deepep_low_latency"}, Options{}},
		"latent":           {"H100-SXM-80GB", 90, "deepseek-ai/DeepSeek-V3", []string{"tensor_parallel_size=8"}, Options{}},
		"sparse latent":    {"B200-SXM-180GB", 100, "deepseek-ai/DeepSeek-V3.2", []string{"tensor_parallel_size=8"}, Options{}},
		"windows":          {"H100-SXM-80GB", 90, "openai/gpt-oss-120b", nil, Options{}},
		"gated rule":       {"H100-SXM-80GB", 90, "Qwen/Qwen3-Next-80B-A3B-Instruct", nil, Options{}},
		"state space":      {"B200-SXM-180GB", 100, "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", nil, Options{}},
		"float router":     {"B200-SXM-180GB", 100, "MiniMaxAI/MiniMax-M2.5", []string{"tensor_parallel_size=2"}, Options{}},
		"compressed":       {"B200-SXM-180GB", 100, "deepseek-ai/DeepSeek-V4-Flash", nil, Options{}},
		"sparse attention": {"B200-SXM-180GB", 100, "MiniMaxAI/MiniMax-M3", []string{"tensor_parallel_size=4"}, Options{}},
		"other latent":     {"H100-SXM-80GB", 90, "deepseek-ai/DeepSeek-V2-Lite-Chat", nil, Options{}},
		"no graphs":        {"A100-SXM-80GB", 80, "Qwen/Qwen3-8B", []string{"vllm.enforce_eager=true"}, Options{}},
		"no table of it":   {"H100-SXM-80GB", 90, "moonshotai/Kimi-Linear-48B-A3B-Instruct", nil, Options{}},
	} {
		settings := append([]string{"model.id=" + c.model, "hardware.name=" + c.hardware, "vllm.version=0.19.0", "vllm.max_num_seqs=512",
			"vllm.max_num_batched_tokens=8192", "vllm.max_model_len=10000", "vllm.kv_blocks_total_gpu=20000"}, c.settings...)
		d, err := deploy.LoadSettings(settings...)
		if err != nil {
			t.Fatal(name, err)
		}
		if gpus[c.hardware] == nil {
			gpus[c.hardware] = handGPU(c.hardware, c.sm)
		}
		s, err := gpus[c.hardware].Bind(d, c.o)
		var p plan
		if err != nil {
			p.Error = err.Error()
		}
		if s != nil {
			p.Family, p.DType, p.Layers, p.ExpertLayers, p.LatentLayers, p.SmallKernels, p.Unjudged = s.Family, s.DType, s.Layers, s.expertLayers, s.latentLayers, s.small, s.Unjudged
			for _, op := range s.Operators {
				p.Operators = append(p.Operators, plannedOperator{op.Name, op.Shape, op.DType, strings.Join([]string{op.Table, op.Kernel, op.Version}, " "), op.Reached.String(), op.Note, op.Count,
					int(op.Kind), int(op.rank), op.unlike, op.Contradicted, nil})
			}
			pricer := s.NewPricer()
			for _, b := range batches {
				for i, us := range s.Us(&b) {
					p.Operators[i].Us = append(p.Operators[i].Us, us)
				}
				p.Parts = append(p.Parts, pricer.Parts(&b))
				p.TimeParts = append(p.TimeParts, pricer.TimeParts(&b, &theta))
			}
		}
		plans[name] = p
	}
	testkit.Document(t, "plans_by_hand", plans)
}

// TestCurvesByHand: a measured time between its sizes and beyond them.
func TestCurvesByHand(t *testing.T) {
	c := curve{x: []float64{2, 4, 8}, y: []float64{10, 30, 50}}
	for _, w := range []struct{ x, power, us, line float64 }{
		{1, 1, 10, 10}, {2, 1, 10, 10}, {3, 1, 20, 20}, {4, 2, 30, 30}, {5, 2, 35, 35}, {8, 1, 50, 50}, {8, 2, 50, 50}, {16, 1, 100, 90}, {16, 2, 200, 90}, {24, 2, 450, 130},
	} {
		if got, line := c.usAt(w.x, w.power), c.usOnLine(w.x); got != w.us || line != w.line {
			t.Errorf("at %g, power %g: got %g and %g on the line, want %g and %g", w.x, w.power, got, line, w.us, w.line)
		}
	}
	falls := curve{x: []float64{2, 4}, y: []float64{10, 6}}
	if got := falls.usOnLine(9); got != 6 {
		t.Errorf("beyond a time that falls: got %g", got)
	}
	one := curve{x: []float64{4}, y: []float64{6}}
	if one.usOnLine(8) != 12 || one.usOnLine(4) != 6 {
		t.Errorf("one point: got %g", one.usOnLine(8))
	}
	if got := falls.envelope(); !slices.Equal(got.y, []float64{6, 6}) || falls.y[0] != 10 {
		t.Errorf("got %v", got.y)
	}
	if got := c.scaled(3); !slices.Equal(got.y, []float64{30, 90, 150}) || c.y[0] != 10 {
		t.Errorf("got %v", got.y)
	}
	// A quarter of the bytes: what reading them takes is saved, but a launch and a quarter of the time remain.
	light := c.lighter(0.25, func(x float64) float64 { return x / 2 })
	if !slices.Equal(light.y, []float64{0.25*10 + 2, 30 - 0.75*2*10, 50 - 0.75*4*10}) {
		t.Errorf("got %v", light.y)
	}
	// Geometric means by weights, on the sizes of all.
	mean := blend([]curve{{x: []float64{1, 3}, y: []float64{8, 8}}, {x: []float64{3, 9}, y: []float64{64, 64}}}, []float64{0.5, 0.5})
	if !slices.Equal(mean.x, []float64{1, 3, 9}) || !near(mean.y[0], math.Sqrt(8*64)) || !near(mean.y[1], math.Sqrt(8*64)) || !near(mean.y[2], math.Sqrt(24*64)) {
		t.Errorf("got %v at %v", mean.y, mean.x)
	}
	if got := blend([]curve{c}, []float64{0.3}); got.y[2] != 50 {
		t.Errorf("one curve: got %v", got.y)
	}
	// Rows of requests: linear between, proportional beyond.
	g := grid{x: []float64{1, 4}, rows: []curve{{x: []float64{10, 20}, y: []float64{5, 9}}, {x: []float64{10, 20}, y: []float64{11, 21}}}}
	for _, w := range [][3]float64{{1, 10, 5}, {0.5, 10, 5}, {4, 20, 21}, {2, 10, 7}, {3, 20, 17}, {8, 10, 22}, {8, 30, 62}} {
		if got := g.usAt(w[0], w[1]); !near(got, w[2]) {
			t.Errorf("%g requests of %g: got %g, want %g", w[0], w[1], got, w[2])
		}
	}
	if c := g.curveAt(2); !slices.Equal(c.x, []float64{10, 20}) || !near(c.y[1], 13) {
		t.Errorf("got %v", c)
	}
	// The row of 8 requests ends at 20; beyond it the row of 2, which was measured at 40, gives 4 times its time and allows as much more.
	g = grid{byRequests: true, x: []float64{1, 2, 8}, rows: []curve{{x: []float64{10, 80}, y: []float64{10, 80}}, {x: []float64{10, 40}, y: []float64{20, 80}}, {x: []float64{10, 20}, y: []float64{80, 90}}}}
	for _, w := range [][2]float64{{20, 90}, {30, 240 / 1.4}, {40, 320 / 1.4}, {50, 400 / 1.4}, {80, 640 / 1.4}} {
		if got := g.usInRow(2, w[0]); !near(got, w[1]) {
			t.Errorf("8 requests of %g: got %g, want %g", w[0], got, w[1])
		}
	}
	g.rows[2].y[1] = 500
	if got := g.usInRow(2, 40); !near(got, 1.4*320+4) {
		t.Errorf("a row that rises too steeply: got %g", got)
	}
	if g.byRequests = false; g.usInRow(2, 40) != 1340 {
		t.Errorf("by other sizes: got %g", g.usInRow(2, 40))
	}
	// 1.2 times a time of larger sizes may be; more was disturbed.
	d := grid{x: []float64{1, 2}, rows: []curve{{x: []float64{1, 2, 4}, y: []float64{12, 12.5, 9}}, {x: []float64{2, 3}, y: []float64{10, 11}}}}.withoutDisturbed()
	if !slices.Equal(d.rows[0].y, []float64{9, 9, 9}) || !slices.Equal(d.rows[1].y, []float64{10, 11}) {
		t.Errorf("got %v", d.rows)
	}
	d = grid{x: []float64{1, 2}, rows: []curve{{x: []float64{2}, y: []float64{12}}, {x: []float64{2}, y: []float64{10}}}}.withoutDisturbed()
	if d.rows[0].y[0] != 12 {
		t.Errorf("1.2 times: got %v", d.rows[0].y)
	}
	merged := mergeRows([]row{{2, 1, 7}, {1, 0, 3}, {2, 0, 5}, {2, 0, 9}, {2, 0, 8}, {2, 1, 8.5}, {4, 1, 1}, {4, 1, 3}})
	if !slices.Equal(merged.x, []float64{1, 2, 4}) || !slices.Equal(merged.y, []float64{3, 7.75, 2}) {
		t.Errorf("got %v", merged)
	}
	for _, w := range []struct{ v, n, window, want float64 }{{0, 4, 0, 10}, {6, 4, 0, 34}, {6, 4, 10, 34}, {6, 4, 9, 33}, {6, 4, 6, 24}, {6, 4, 5, 20}, {0, 4, 2, 7}} {
		if got := pairs(w.v, w.n, w.window); got != w.want {
			t.Errorf("%g tokens behind %g in a window of %g: got %g, want %g", w.n, w.v, w.window, got, w.want)
		}
	}
	for _, usPerToken := range []float64{0, 1} {
		launch, of := chunkTimes(curve{x: []float64{10, 20}, y: []float64{5, 12}}, 0, func(context float64) float64 { return usPerToken * context })
		if launch != 5 || of(10, 0) != 5 {
			t.Errorf("a whole prompt: got %g and %g", launch, of(10, 0))
		}
		for v, whole := range map[float64]float64{10: 12, 30: 48, 90: 300} {
			if got, want := of(10, v), max(5, usPerToken*(v+10), whole*pairs(v, 10, 0)/pairs(0, v+10, 0)); !near(got, want) {
				t.Errorf("10 tokens behind %g, %g us to read one: got %g, want %g", v, usPerToken, got, want)
			}
		}
	}
}

// TestShapesByHand: neighbours of a size, bytes and peaks of dtypes, and the least times of experts.
func TestShapesByHand(t *testing.T) {
	sizes := []int64{100, 400, 1600}
	for _, w := range []struct {
		v, lo, hi int64
		t, scale  float64
	}{{400, 400, 400, 0, 1}, {50, 100, 100, 0, 1}, {200, 100, 400, 0.5, 1}, {800, 400, 1600, 0.5, 1}, {1600, 1600, 1600, 0, 1}, {4000, 1600, 1600, 0, 2.5}} {
		if lo, hi, part, scale := between(sizes, w.v); lo != w.lo || hi != w.hi || !near(part, w.t) || scale != w.scale {
			t.Errorf("%d: got %d, %d, %g, %g", w.v, lo, hi, part, scale)
		}
	}
	for dtype, want := range map[string]struct{ bytes, ampere, ada, blackwell float64 }{
		bf16: {2, 1, 1, 1}, fp8: {1, 1, 2, 2}, fp8Block: {1, 1, 2, 2}, "int8": {1, 2, 2, 2}, "int8_wo": {1, 1, 1, 1}, "int4_wo": {0.5, 1, 1, 1}, nvfp4: {0.5, 1, 1, 4}, "w4a16_mxfp4": {0.5, 1, 1, 1},
		"w4a8_mxfp4_mxfp8": {0.5, 1, 2, 2},
	} {
		got := []float64{bytesOf(dtype), (&GPU{SM: 80, FLOPS: 1}).peakOf(dtype), (&GPU{SM: 89, FLOPS: 1}).peakOf(dtype), (&GPU{SM: 100, FLOPS: 1}).peakOf(dtype)}
		if !slices.Equal(got, []float64{want.bytes, want.ampere, want.ada, want.blackwell}) {
			t.Errorf("%s: got %v, want %v", dtype, got, want)
		}
	}
	for sm, want := range map[int64]float64{80: 15, 86: 4, 89: 4, 90: 15, 99: 4, 100: 30, 103: 30, 119: 30, 120: 4} {
		if got := (&GPU{SM: sm, FLOPS: 60}).floatRate(); got != 60/want {
			t.Errorf("capability %d: got %g", sm, got)
		}
	}
	g := &GPU{SM: 90, FLOPS: 4e14, Bandwidth: 1e12}
	s := expertShape{dtypes: []string{fp8}, hidden: 1000, inter: 500, topK: 2, experts: 8, tp: 2, ep: 5, projections: 3}
	if got := []float64{s.touched(1), s.touched(2), s.touched(1e6)}; !near(got[0], 1) || !near(got[1], 1.75) || !near(got[2], 4) {
		t.Errorf("got %v of the experts of a token", got)
	}
	// A token uses 3 x 1000 x 500 x 2 / (2 x 5) = 300,000 weights of a byte.
	readUs, computeUs := g.expertsRoofline(&s, fp8, 2)
	if !near(readUs, 0.3*1.75) || !near(computeUs, 1e6*2*3e5*2/8e14) || !near(g.expertsReadUs(&s, 2), 0.7*0.3*1.75) {
		t.Errorf("got %g and %g us", readUs, computeUs)
	}
	if readUs, _ := g.expertsRoofline(&s, bf16, 2); !near(readUs, 0.6*1.75) {
		t.Errorf("bfloat16: got %g us", readUs)
	}
	if matricesOf(2688, 1856, 128) != 2 || matricesOf(2688, 1856, 64) != 3 {
		t.Error("the experts of Nemotron-3 Nano have two matrices, others three")
	}
	for want, q := range map[string]model.Quant{
		bf16: {}, nvfp4: {Algorithm: "NVFP4", ActivationBits: 4, BytesPerWeight: 0.5}, "w4a8_mxfp4_mxfp8": {Algorithm: "mxfp4", ActivationBits: 8}, "w4a16_mxfp4": {Algorithm: "mxfp4", ActivationBits: 16},
		fp8Block: {Algorithm: "fp8_block", ActivationBits: 8, BytesPerWeight: 1}, fp8: {Algorithm: "fp8", ActivationBits: 8, BytesPerWeight: 1}, "int4_wo": {Algorithm: "awq", ActivationBits: 16, BytesPerWeight: 0.5},
		"int8_wo": {Algorithm: "int8", ActivationBits: 16, BytesPerWeight: 1}, "int8": {Algorithm: "int8", ActivationBits: 8, BytesPerWeight: 1}, "awq": {Algorithm: "awq", ActivationBits: 16, BytesPerWeight: 1},
		"int4": {Algorithm: "int4", ActivationBits: 8, BytesPerWeight: 0.5}} {
		if got := DTypeOf(&q); got != want {
			t.Errorf("%+v: got %s, want %s", q, got, want)
		}
	}
	if got := DTypeOf(&model.Quant{Algorithm: "fp8", BytesPerWeight: 1.03}); got != fp8Block {
		t.Errorf("fp8 with scales of blocks: got %s", got)
	}
	a := linearGroup{columns: 8, times: 3}
	for name, c := range map[string]struct {
		change func(o *linearGroup)
		want   bool
	}{
		"alike":                  {func(*linearGroup) {}, true},
		"output":                 {func(o *linearGroup) { o.isOut = true }, false},
		"other inputs":           {func(o *linearGroup) { o.columns = 9 }, false},
		"other dtype":            {func(o *linearGroup) { o.quant.ActivationBits = 8 }, false},
		"more often":             {func(o *linearGroup) { o.times = 4 }, false},
		"apart":                  {func(o *linearGroup) { o.isApart = true }, false},
		"placed in another way":  {func(o *linearGroup) { o.placement = model.Sharded }, true},
		"both apart, other ways": {func(o *linearGroup) { o.isApart = true; o.placement = model.Sharded }, false},
	} {
		own, o := a, a
		own.isApart = strings.HasPrefix(name, "both")
		if c.change(&o); own.canFuse(&o) != c.want || o.canFuse(&own) != c.want {
			t.Errorf("%s: want fused %v", name, c.want)
		}
	}
	own := linearGroup{isApart: true}
	if same := own; !own.canFuse(&same) {
		t.Error("matrices that are apart are not fused with their like")
	}
}

// handStep is a step of operators with constant times.
func handStep(ops ...Operator) *Step {
	s := &Step{TP: 1, Ranks: 1, GPU: &GPU{Hardware: "x"}, DType: bf16}
	s.Operators = append(s.Operators, ops...)
	return s
}

func constantUs(name string, us float64, change func(op *Operator)) Operator {
	op := Operator{Name: name, Count: 1, us: func(*state) float64 { return us }}
	if change != nil {
		change(&op)
	}
	return op
}

// TestOrderByHand: what a reference contradicts is lowered to it, or to 1.4 times its time and 4 us.
func TestOrderByHand(t *testing.T) {
	e := &vllm.Engine{MaxNumSeqs: 4, MaxNumBatchedTokens: 16}
	in := state{run: 1, decodes: 1, prefills: 1}
	for name, c := range map[string]struct {
		us, least  float64
		own, other func(op *Operator)
		tp         int64
		want       float64
		note       string
	}{
		"in order":                     {us: 144, least: 100, want: 144},
		"just beyond":                  {us: 144.1, least: 100, want: 144, note: "rows take up to 1.4 times those of ref: lowered to 1.4 times"},
		"three times":                  {us: 300, least: 100, want: 144, note: "rows take up to 3.0 times those of ref: lowered to 1.4 times"},
		"more than three times":        {us: 301, least: 100, want: 100, note: "rows take up to 3.0 times those of ref, which stand in"},
		"on worse evidence":            {us: 200, least: 100, own: func(op *Operator) { op.rank = ofOther }, want: 100, note: "which stand in"},
		"by worse evidence":            {us: 999, least: 100, other: func(op *Operator) { op.rank = ofOther }, want: 999},
		"by what was contradicted":     {us: 200, least: 100, other: func(op *Operator) { op.rank = ofOther; op.Contradicted = 2 }, want: 144, note: "lowered"},
		"of the roofline":              {us: 999, least: 100, own: func(op *Operator) { op.Reached = Analytic }, want: 999},
		"by the roofline":              {us: 999, least: 100, other: func(op *Operator) { op.Reached = Analytic }, want: 999},
		"collective":                   {us: 200, least: 100, own: func(op *Operator) { op.Kind = Collective }, want: 144, note: "lowered"},
		"collective of other ranks":    {us: 999, least: 100, own: func(op *Operator) { op.Kind = Collective }, tp: 2, want: 999},
		"of other ranks":               {us: 200, least: 100, tp: 2, want: 144, note: "lowered"},
		"another count":                {us: 999, least: 100, other: func(op *Operator) { op.Count = 2 }, want: 999},
		"another name":                 {us: 999, least: 100, other: func(op *Operator) { op.Name = "b" }, want: 999},
		"no time":                      {us: 999, least: 0, want: 999},
		"of a driver that never comes": {us: 200, least: 100, own: func(op *Operator) { op.depends = onPrefills }, want: 144, note: "lowered"},
	} {
		s, ref := handStep(constantUs("a", c.us, c.own)), handStep(constantUs("a", c.least, c.other))
		ref.TP = max(1, c.tp)
		s.replaceSlower(ref, "of ref", e)
		op := &s.Operators[0]
		if got := op.us(&in); !near(got, c.want) || !strings.Contains(op.Note, c.note) || (op.Note == "") != (c.note == "") {
			t.Errorf("%s: got %g us, %q, want %g, %q", name, got, op.Note, c.want, c.note)
		}
		if c.note == "" {
			if op.Contradicted != 0 || op.measured != nil {
				t.Errorf("%s: got %+v", name, op)
			}
			continue
		}
		if !near(op.Contradicted, c.us/c.least) || op.Reached != Substituted || op.measured(&in) != c.us || s.AsMeasured().Operators[0].us(&in) != c.us {
			t.Errorf("%s: got %+v", name, op)
		}
		if got, want := s.doubt(e), 1-c.want/c.us; !near(got, want) {
			t.Errorf("%s: got a doubt of %g, want %g", name, got, want)
		}
	}
	// What was contradicted without rows of its own counts by its size.
	if got := handStep(constantUs("a", 30, nil), constantUs("b", 10, func(op *Operator) { op.Contradicted = 7 }), constantUs("c", 5, func(op *Operator) { op.depends = onPrefills; op.Contradicted = 9 })).doubt(e); !near(got, 1-45./145) {
		t.Errorf("got a doubt of %g", got)
	}
	pairs := handStep(constantUs("a", 1, nil), constantUs("b", 1, nil), constantUs("a", 1, nil)).samePlace(handStep(constantUs("b", 1, nil), constantUs("a", 1, nil), constantUs("a", 1, nil)))
	if len(pairs) != 3 || pairs[0] != 1 || pairs[1] != 0 || pairs[2] != 2 {
		t.Errorf("got %v", pairs)
	}
	if pairs := handStep(constantUs("a", 1, nil), constantUs("b", 1, nil)).samePlace(handStep(constantUs("a", 1, nil), constantUs("a", 1, nil), constantUs("b", 1, nil))); len(pairs) != 1 || pairs[1] != 2 {
		t.Errorf("names that are not equally frequent: got %v", pairs)
	}
	// The states at which operators are compared.
	s := handStep()
	states := s.orderStates(e)
	count := map[bool]int{}
	for _, in := range states {
		count[in.prefills > 0]++
		switch {
		case in.prefills > 0 && (in.run != in.chunk || in.chunk > 16 || in.sequences != 1):
			t.Errorf("got %+v", in)
		case in.prefills == 0 && (in.decodes > 4 || in.run != in.decodes):
			t.Errorf("got %+v", in)
		}
	}
	if count[false] != 3*4 || count[true] != 5*4 || states[0].context != 1000 || states[1].cached != 0 || !near(states[7].cached, 7000) || states[6].context != 8000 {
		t.Errorf("got %d decodes and %d prompts, the first behind %g, %g", count[false], count[true], states[0].context, states[1].cached)
	}
	most := handStep().orderStates(&vllm.Engine{MaxNumSeqs: 1 << 20, MaxNumBatchedTokens: 1 << 20})
	if len(most) != 15*4*2 || most[len(most)-1].chunk != 8192 || most[11*8].decodes != 1024 || most[12*8].decodes != 2048 {
		t.Errorf("got %d states", len(most))
	}
	batches := sampleBatches(e)
	if len(batches) != 3*2+5*2 || batches[0] != (Batch{Tokens: 1, Sequences: 1, Decodes: 1, DecodeContext: 500}) || batches[3] != (Batch{Tokens: 1, Sequences: 1, Prefills: 1, PrefillTokens: 1, PrefillPairs: 3501}) ||
		batches[5] != (Batch{Tokens: 2, Sequences: 1, Prefills: 1, PrefillTokens: 2, PrefillPairs: 3}) {
		t.Errorf("got %d batches: %+v", len(batches), batches)
	}
	all := sampleBatches(&vllm.Engine{MaxNumSeqs: 1 << 20, MaxNumBatchedTokens: 1 << 20})
	if i := slices.IndexFunc(all, func(b Batch) bool { return b.Tokens > 8192 }); i >= 0 || len(all) != 25*4 || all[0].Tokens != 1 || all[99].Tokens != 8192 ||
		!slices.IsSortedFunc(all, func(a, b Batch) int { return cmp.Compare(a.Tokens, b.Tokens) }) {
		t.Errorf("of an engine without limits: got %d batches", len(all))
	}
	var list []Replaced
	for _, op := range []Operator{{found: found{Table: "gemm", Contradicted: 2}, DType: fp8}, {found: found{Table: "gemm", Contradicted: 3}, DType: fp8}, {found: found{Table: "gemm", Contradicted: 1.5}, DType: fp8},
		{found: found{Table: "moe", Contradicted: 5}, DType: fp8}, {found: found{Table: "gemm", Contradicted: 9}, DType: nvfp4}} {
		list = addReplaced(list, &op)
	}
	if !slices.Equal(list, []Replaced{{"gemm", fp8, 3, 3}, {"moe", fp8, 5, 1}, {"gemm", nvfp4, 9, 1}}) {
		t.Errorf("got %v", list)
	}
}

// TestSlowerRowsByHand: rows are named from 3 % and half a percent of the step, with the batch in which they cost most.
func TestSlowerRowsByHand(t *testing.T) {
	e := &vllm.Engine{MaxNumSeqs: 4, MaxNumBatchedTokens: 1}
	rising := func(name string, perToken float64) Operator {
		return Operator{Name: name, Count: 1, us: func(in *state) float64 { return 100 + perToken*in.run }}
	}
	for name, c := range map[string]struct {
		own, than *Step
		want      []string
	}{
		"3 %":                {handStep(constantUs("a", 103, nil)), handStep(constantUs("a", 100, nil)), nil},
		"more than 3 %":      {handStep(constantUs("a", 104, nil)), handStep(constantUs("a", 100, nil)), []string{"a (4 % at 1 tokens)"}},
		"faster":             {handStep(constantUs("a", 90, nil)), handStep(constantUs("a", 100, nil)), nil},
		"a share too small":  {handStep(constantUs("a", 5, nil), constantUs("b", 1000, nil)), handStep(constantUs("a", 1, nil), constantUs("b", 1000, nil)), nil},
		"more of the step":   {handStep(constantUs("a", 7, nil), constantUs("b", 1000, nil)), handStep(constantUs("a", 1, nil), constantUs("b", 1000, nil)), []string{"a (600 % at 1 tokens)"}},
		"at four tokens":     {handStep(rising("a", 50)), handStep(constantUs("a", 100, nil)), []string{"a (200 % at 4 tokens)"}},
		"collective":         {handStep(constantUs("a", 999, func(op *Operator) { op.Kind = Collective })), handStep(constantUs("a", 100, nil)), nil},
		"of no time":         {handStep(constantUs("a", 999, nil), constantUs("b", 5, nil)), handStep(constantUs("a", 0, nil), constantUs("b", 5, nil)), nil},
		"the second of them": {handStep(constantUs("a", 100, nil), constantUs("a", 500, nil)), handStep(constantUs("a", 100, nil), constantUs("a", 200, nil)), []string{"a (150 % at 1 tokens)"}},
		"another count":      {handStep(constantUs("a", 500, nil)), handStep(constantUs("a", 100, func(op *Operator) { op.Count = 2 })), nil},
	} {
		if got := c.own.slowerThan(c.than, e); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestStatesByHand: the part of a batch that times depend on.
func TestStatesByHand(t *testing.T) {
	s := &Step{Ranks: 3, graphs: vllm.GraphSizes{8, 16}}
	for name, c := range map[string]struct {
		b    Batch
		only bool // graphs are of decodes only
		want state
	}{
		"decodes": {Batch{Tokens: 9, Sequences: 9, Decodes: 9, DecodeContext: 900, LongestDecode: 150}, false,
			state{run: 16, all: 48, routed: 48, captured: true, sequences: 9, decodes: 9, context: 100, longest: 150}},
		"alike":       {Batch{Tokens: 9, Decodes: 9, DecodeContext: 900}, false, state{run: 16, all: 48, routed: 48, captured: true, decodes: 9, context: 100, longest: 100}},
		"many":        {Batch{Tokens: 17, Decodes: 17, Imbalance: 2}, false, state{run: 17, all: 51, routed: 102, decodes: 17}},
		"imbalance 0": {Batch{Tokens: 17, Imbalance: 0.5}, false, state{run: 17, all: 51, routed: 51}},
		"prompts": {Batch{Tokens: 10, Sequences: 2, Prefills: 2, PrefillTokens: 10, PrefillPairs: 2 * (5*7 + 15)}, false,
			state{run: 16, all: 48, routed: 48, captured: true, sequences: 2, prefills: 2, chunk: 5, cached: 7}},
		"prompts without graphs": {Batch{Tokens: 10, Prefills: 1, PrefillTokens: 10, PrefillPairs: 55}, true, state{run: 10, all: 30, routed: 30, prefills: 1, chunk: 10}},
		"of one of the ranks":    {Batch{Tokens: 3, Run: 8, All: 24}, false, state{run: 8, all: 24, routed: 24, captured: true}},
		"of unlike ranks":        {Batch{Tokens: 3, Run: 8, All: 20}, false, state{run: 8, all: 20, routed: 20}},
		"padded by none":         {Batch{Tokens: 3, Run: 5, All: 15}, false, state{run: 5, all: 15, routed: 15}},
		"fewer pairs than can":   {Batch{Tokens: 4, Prefills: 1, PrefillTokens: 4, PrefillPairs: 2}, false, state{run: 8, all: 24, routed: 24, captured: true, prefills: 1, chunk: 4}},
	} {
		if s.decodesOnly = c.only; s.stateOf(&c.b) != c.want {
			t.Errorf("%s: got %+v, want %+v", name, s.stateOf(&c.b), c.want)
		}
	}
	for driver, want := range map[driver][3]bool{onTokens: {true, true, true}, onSequences: {true, true, true}, onDecodes: {false, true, false}, onPrefills: {false, false, true}} {
		op := Operator{depends: driver}
		for i, in := range []state{{}, {decodes: 1}, {prefills: 1}} {
			if op.runs(&in) != want[i] {
				t.Errorf("driver %d, %+v: got %v", driver, in, !want[i])
			}
		}
	}
	// The features of steps in graphs and outside of them.
	p := handStep(constantUs("a", 100, nil), constantUs("b", 30, func(op *Operator) { op.Kind = Experts }), constantUs("c", 7, func(op *Operator) { op.Kind = Collective })).NewPricer()
	p.graphs, p.TP, p.Layers, p.expertLayers, p.latentLayers, p.small = vllm.GraphSizes{10}, 4, 11, 12, 13, 14
	var x [NumStep]float64
	if p.Columns(&Batch{Tokens: 8, Sequences: 8, Decodes: 8}, &x); x != [NumStep]float64{ScaleGPU: 137, ScaleExpert: 30, ScaleReduce: 7, HostStep: 1, HostRank: 3, HostSequence: 8, SmallKernel: 14} {
		t.Errorf("in a graph: got %v", x)
	}
	p.sync, p.decodesOnly = true, true
	if p.Columns(&Batch{Tokens: 8, Sequences: 2, Prefills: 2, PrefillTokens: 8}, &x); x != [NumStep]float64{ScaleGPU: 137, ScaleExpert: 30, ScaleReduce: 7, HostStep: 1, HostRank: 3, HostSequence: 2, SyncStep: 1, SyncSequence: 2,
		ScalePrompt: 137, SmallKernel: 14, EagerLayer: 11, EagerExperts: 12, EagerLatent: 13, EagerWhole: 11} {
		t.Errorf("a prompt outside of graphs: got %v", x)
	}
	p.decodesOnly = false
	if p.Columns(&Batch{Tokens: 13, Sequences: 2, Prefills: 2, PrefillTokens: 13}, &x); !near(x[EagerLayer], 5.5) || !near(x[EagerExperts], 6) || !near(x[EagerLatent], 6.5) || x[EagerWhole] != 0 {
		t.Errorf("half way to launches: got %v", x)
	}
	for want, op := range map[TimePart]Operator{
		ExpertsTime: {Kind: Experts}, CollectiveTime: {Kind: Collective}, SmallTime: {found: found{Reached: Analytic}}, AttentionTime: {Name: "mla_decode"}, LinearTime: {Name: "up_proj"},
	} {
		if got := partOf(&op); got != want {
			t.Errorf("%+v: got %d, want %d", op, got, want)
		}
	}
	if got := partOf(&Operator{Name: "attention_prefill", found: found{Reached: Analytic, Table: "x"}}); got != AttentionTime {
		t.Errorf("got %d", got)
	}
}

// TestCodesByHand: times of 1/64 octave, and what a damaged table is refused for.
func TestCodesByHand(t *testing.T) {
	for us, want := range map[float64]int16{0: zeroTime, -1: zeroTime, 1: 0, 2: 64, 1024: 640, 0.5: -64, 1.0109: 1} {
		if got := Quantized(us); got != want || want != zeroTime && math.Abs(Us(got)/us-1) > 0.0055 || want == zeroTime && Us(got) != 0 {
			t.Errorf("%g us: got %d, which is %g us", us, got, Us(got))
		}
	}
	table := func() *Table {
		return &Table{Rows: 5, Columns: []Column{{Name: "w", Words: []string{"a", "b"}}, {Name: "n"}, {Name: "x"}}, Series: []Series{
			{Key: []int64{0, 7}, X: []int64{1, 5}, Q: []int16{-9, 30}}, {Key: []int64{1, 3}, X: []int64{1, 5}, Q: []int16{4, 5}}, {Key: []int64{1, 4}, X: []int64{2}, Q: []int16{zeroTime}}}}
	}
	packed := table().pack()
	got := table()
	got.Series = nil
	if err := got.unpack(packed); err != nil || fmt.Sprint(got.Series) != fmt.Sprint(table().Series) {
		t.Errorf("got %v, %v", got.Series, err)
	}
	// Files of older formats are read, and written in the present one.
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	ofAge := func(age int) (*Table, []byte) {
		old := table()
		old.age = age
		packedOld := enc.EncodeAll(old.encoded(), nil)
		got := table()
		got.Series, got.age = nil, age
		if err := got.unpack(packedOld); err != nil || fmt.Sprint(got.Series) != fmt.Sprint(table().Series) {
			t.Errorf("age %d: got %v, %v", age, got.Series, err)
		}
		return old, packedOld
	}
	_, second := ofAge(withZstd)
	old, packedOld := ofAge(seriesAlone)
	if bytes.Equal(packedOld, second) {
		t.Errorf("both old formats: got the same bytes %q", second)
	}
	old.Name, old.Bytes = "t", len(packedOld)
	header, err := json.Marshal(&GPU{Bandwidth: 1, FLOPS: 1, Link: 1, Tables: []*Table{old}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := Read(fmt.Appendf(nil, "%s%d\n%s\n%s", magics[seriesAlone], len(header), header, packedOld), "old")
	if err != nil {
		t.Fatal(err)
	}
	if read, err := g.Table("t"); err != nil || fmt.Sprint(read.Series) != fmt.Sprint(table().Series) {
		t.Errorf("a file of the first format: got %v, %v", read, err)
	}
	var rewritten bytes.Buffer
	if err := g.Write(&rewritten); err != nil || !bytes.HasPrefix(rewritten.Bytes(), []byte(magics[present])) || !bytes.HasSuffix(rewritten.Bytes(), packed) {
		t.Errorf("written again: got %q, %v", rewritten.Bytes(), err)
	}
	for name, c := range map[string]struct {
		change func(t *Table)
		want   string
	}{
		"rows":       {func(t *Table) { t.Rows = 4 }, "got 5 rows, want 4"},
		"words":      {func(t *Table) { t.Columns[0].Words = []string{"a"} }, "column w: got word 1, want one of 1"},
		"fewer keys": {func(t *Table) { t.Columns = t.Columns[1:] }, ""},
	} {
		got := table()
		if c.change(got); name == "" {
			continue
		}
		if err := got.unpack(packed); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	torn := &Table{Series: []Series{{X: []int64{1, 160}}, {X: []int64{10}}, {X: []int64{9}}}}
	if got := torn.dropTorn([]*Series{&torn.Series[1], &torn.Series[2]}); len(got) != 1 || got[0] != &torn.Series[1] {
		t.Errorf("got %d series of one sixteenth of the largest size and less", len(got))
	}
}

// TestLinksByHand: collectives of as many GPUs as were measured, and of more in proportion to what each of a ring sends.
func TestLinksByHand(t *testing.T) {
	g := handGPU("H100-SXM-80GB", 90)
	of := func(n int64) float64 {
		c, f, err := g.collective("nccl", "nccl_dtype", "op_name", "all_reduce", n)
		if err != nil {
			t.Fatal(err)
		}
		if (f.Reached == Substituted) != (n > 4) || n > 4 && f.Note != fmt.Sprintf("%d GPUs as one node of 4", n) {
			t.Errorf("%d GPUs: got %+v", n, f)
		}
		return c.usAt(2*1<<18, 1) // 1 << 18 elements of two bytes
	}
	want := Us(Quantized(12 + 3 + float64(1<<18)/3e4*4))
	if got := of(4); !near(got, want) {
		t.Errorf("4 GPUs: got %g us, want %g", got, want)
	}
	if got := of(16); !near(got, want*(15./16)*(4./3)) {
		t.Errorf("16 GPUs: got %g us, want %g", got, want*(15./16)*(4./3))
	}
	if _, _, err := g.collective("nccl", "nccl_dtype", "op_name", "all_reduce", 3); err == nil || !strings.Contains(err.Error(), "got no rows of nccl_dtype bfloat16 or half or float16, op_name all_reduce, num_gpus 3") {
		t.Errorf("3 GPUs: got %v", err)
	}
}
