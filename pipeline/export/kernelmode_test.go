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
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// catalogued is the example with a name that BLIS's catalog has, dense or with experts.
func catalogued(tp int64, experts int64) deploy.Deployment {
	d := testkit.DeploymentOf(tp)
	d.Engine.MaxModelLen = trace.Some[int64](4096)
	if m := &d.Model; experts > 0 {
		m.NumExperts = experts
		m.TopK = 2
		m.MoEIntermediateSize = 1024
		m.NumMoELayers = m.NumLayers - 1
		m.SharedExpertSize = 512
	}
	return d
}

// priced is a step as the kernel prices it from the entries of its registry: every resource's time one after the other
// (blis-latency-kernel kernel.go@070f510), written out layer by layer for the test.
func priced(d *deploy.Deployment, part string, v map[string]float64, batch []trace.Chunk) float64 {
	m, tp := &d.Model, float64(d.TP)
	peak := catalogParts[part].bf16 * 1e6
	bw := catalogParts[part].memory * 1e6 * v["hbm_derate"]
	var rows, pairs, context float64
	var decodes, prompts bool
	for _, c := range batch {
		rows += float64(c.New)
		if c.New > 1 {
			pairs = pairs + float64(c.New*c.Computed) + float64(c.New*c.New)/2
			prompts = true
		} else {
			context = context + float64(c.Computed+c.New)
			decodes = true
		}
	}
	eff := v["gemm_eps_max_bf16"] * rows / (rows + v["gemm_m_half_bf16"])
	us := v["host_replay_graph_per_step"] * float64(m.NumLayers+1)
	product := func(n, k int64, share float64) {
		us += 2*float64(n*k)*rows/share/(peak*eff) + 2*float64(n*k)/share/bw
	}
	product(m.VocabSize, m.HiddenSize, tp)
	for l := range m.NumLayers {
		product((m.NumHeads+2*m.NumKVHeads)*m.HeadDim, m.HiddenSize, tp)
		product(m.NumHeads*m.HeadDim, m.HiddenSize, tp)
		us += rows * 2 * 2 * float64(m.HiddenSize) * 2 / tp / bw // two norms, read and written
		if decodes {
			us += v["attention_decode_floor"] + context*2*float64(m.NumKVHeads)/tp*float64(m.HeadDim)*m.BytesPerKV/v["attention_decode_rate"]
		}
		if prompts {
			us += v["attention_prefill_floor"] + 4*pairs*float64(m.NumHeads*m.HeadDim)/tp/(peak*eff*v["attention_prefill_work_scale"])
		}
		if tp > 1 {
			of := fmt.Sprintf("_all_reduce_fp16_%drank_%s", d.TP, part)
			bytes := rows * float64(m.HiddenSize) * 2
			us += 2 * math.Max(v["collective_floor"+of]+bytes/v["collective_transition_rate"+of], bytes/v["collective_peak_rate"+of])
		}
		if m.NumExperts == 0 || l == 0 {
			product(3*m.IntermediateSize, m.HiddenSize, tp)
			continue
		}
		product(3*m.SharedExpertSize, m.HiddenSize, tp)
		one := 3 * float64(m.MoEIntermediateSize*m.HiddenSize)
		us += rows * float64(m.TopK) * 2 * one * v["moe_routing_imbalance_median"] / (peak * eff)
		touched := float64(m.NumExperts) * (1 - math.Pow(1-float64(m.TopK)/float64(m.NumExperts), rows))
		us += touched * one * 2 / tp / bw
	}
	return us
}

// TestKernelModeLaw: the coefficient set that is written, read as the kernel reads it, gives the steps of the law that was fitted, and
// a law is found again from its own steps.
func TestKernelModeLaw(t *testing.T) {
	for _, c := range []struct{ tp, experts int64 }{{1, 0}, {2, 0}, {1, 8}, {2, 16}} {
		d := catalogued(c.tp, c.experts)
		plan := kernelPlanOf(&d, "llama-3.1-8b-instruct", "h100")
		planted := newKernelMode(&d, plan.graph, plan.served.weights, plan.part, 96)
		planted.Values = [kernelTerms]float64{1500, 1.3, 0.4, 1.2, 14, 1.6, 30, 2.5, 9, 8}
		model := stepsOf(func(batch []trace.Chunk) float64 {
			var b sim.Batch
			for _, c := range batch {
				b.Add(c.Computed, c.Prompt, c.New, 0, 1)
			}
			us, _ := planted.StepUs(&b)
			return us
		})
		law, p, err := projectOnKernelMode(Target{Deployment: &d, Model: model, Region: RegionOf(&d, 400, 120)}, plan, []float64{8, 30})
		if err != nil {
			t.Fatal(err)
		}
		if law.MHalf != 96 || !(p.Errors[0].MAPE < 1e-3) {
			t.Errorf("tp %d, %d experts: m_half %g, mean error %g, want 96 and less than 0.001", c.tp, c.experts, law.MHalf, p.Errors[0].MAPE)
		}
		v := map[string]float64{}
		for _, e := range kernelValues(planted, &d, "h100", []float64{11180, 520, 0}) {
			v[e.Name] = e.value
		}
		for _, batch := range [][]trace.Chunk{{{Computed: 300, Prompt: 200, New: 1}}, {{Prompt: 700, New: 700}},
			{{Computed: 1024, Prompt: 2000, New: 976}, {Computed: 90, Prompt: 80, New: 1}, {Computed: 500, Prompt: 80, New: 1}}} {
			want := priced(&d, "h100", v, batch)
			got := model(batch)
			if !(math.Abs(got/want-1) < 1e-5) {
				t.Errorf("tp %d, %d experts, %d chunks: law %g us, the kernel's own reading %g", c.tp, c.experts, len(batch), got, want)
			}
		}
	}
}

type stepsOf func([]trace.Chunk) float64

func (f stepsOf) StepUs(batch []trace.Chunk) (float64, error) { return f(batch), nil }

// TestBLISScenario: the two documents and the set have the keys, units and methods of blis-schemas, what the law lacks is refused by
// name, and a law that misses the loads by more than 5 % of E2E with the figure.
func TestBLISScenario(t *testing.T) {
	src := exampleSource()
	opt := Options{Settings: Settings{"model": "llama-3.1-8b-instruct"}}
	src.Fit.Configs = src.Fit.Configs[1:2]
	src.Fit.Configs[0].Deployment.Engine.MaxModelLen = trace.Some[int64](4096)
	src.Step = func(deploy.Deployment) (StepTimer, error) { return affine{9000, 30, 0.05}, nil }
	loads := src.Loads
	src.Loads = func(d deploy.Deployment, a []float64, p, o float64, m ConsumerModel) (*OnLoads, error) {
		on, err := loads(d, a, p, o, m)
		on.Points = on.Points[:1]
		return on, err
	}
	opt.Force = "unlearned_value"
	out := mustExport(t, src, FormatScenario, opt)
	golden(t, "testdata/scenario.yaml", string(fileOf(t, out, "")))
	const name = "blis-train-llama-3.1-8b-instruct-h100-tp2"
	set := fileOf(t, out, ".registry/coefficients/"+name+".yaml")
	golden(t, "testdata/kernelset.yaml", string(set))
	checkScenario(t, fileOf(t, out, ""), name)
	var doc struct {
		Kind, Name   string
		Coefficients []map[string]regEntry
	}
	dec := yaml.NewDecoder(bytes.NewReader(set))
	dec.KnownFields(true)
	if err := dec.Decode(&doc); err != nil || doc.Kind != "CoefficientSet" || doc.Name != name || len(doc.Coefficients) != 19 {
		t.Fatalf("set: %v, %+v", err, doc)
	}
	for _, c := range doc.Coefficients {
		for key, e := range c {
			share := strings.HasPrefix(key, "gemm_eps") || key == "hbm_derate"
			if !slices.Contains(registryUnits, e.Units) || !slices.Contains(registryMethods, e.Method) || share && !(e.Value > 0 && e.Value <= 1) ||
				e.Value < 0 || !slices.Equal(e.Scope.Model, []string{"llama-3.1-8b-instruct"}) || !slices.Equal(e.Scope.TP, []int64{2}) {
				t.Errorf("%s: %+v", key, e)
			}
		}
	}
	for says, edit := range map[string]func(d *deploy.Deployment, o *Options){
		"got model llama-3.1-8b, want":  func(_ *deploy.Deployment, o *Options) { o.Settings = Settings{"model": ""} },
		"qwen3-14b has; with layers as": func(_ *deploy.Deployment, o *Options) { o.Settings = Settings{"model": "qwen3-14b"} },
		", the parts of BLIS's catalog": func(d *deploy.Deployment, _ *Options) { d.Hardware.Name = "L4" },
		"got expert, data or pipeline":  func(d *deploy.Deployment, _ *Options) { d.DP = 2 },
		"got attention of 8 bits, want 16 (bf16) as llama-3.1-8b-instruct has": func(d *deploy.Deployment, _ *Options) {
			d.Model.BytesPerWeight = 1
		},
		"got tensor-parallel size 3, want 1, 2, 4 or 8 within a node of 8": func(d *deploy.Deployment, _ *Options) { d.TP = 3 },
	} {
		bad, o := src, opt
		bad.Fit = testkit.ExampleFit()
		bad.Fit.Configs = []result.FitConfig{src.Fit.Configs[0]}
		edit(&bad.Fit.Configs[0].Deployment, &o)
		if _, err := Export(bad, writerOf(FormatScenario), o); trace.CodeOf(err) != BadEntry || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	src.Loads = loads
	if _, err := Export(src, writerOf(FormatScenario), opt); trace.CodeOf(err) != PoorProjection ||
		!strings.Contains(err.Error(), "mean E2E 0.93 times the model's at 80 % load, want within 5 %") {
		t.Errorf("a law that misses the loads: %v", err)
	}
}

// checkScenario reads both documents strictly.
func checkScenario(t *testing.T, data []byte, name string) {
	t.Helper()
	var s struct {
		Kind, Name, Model string
		EngineVersion     string `yaml:"engine_version"`
		Coefficients      []string
		Cluster           struct {
			Hardware    string
			Nodes       int
			GPUsPerNode int `yaml:"gpus_per_node"`
		}
	}
	var d struct {
		Kind, Name string
		Pools      []struct {
			Role     string
			Nodes    int
			Parallel struct{ TP, PP, DP int }
			Engine   struct {
				BlockSize int    `yaml:"block_size"`
				Budget    int    `yaml:"max_num_batched_tokens"`
				Seqs      int    `yaml:"max_num_seqs"`
				Longest   int    `yaml:"max_model_len"`
				Graphs    string `yaml:"cudagraph_mode"`
				Caching   bool   `yaml:"enable_prefix_caching"`
			}
		}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&s); err != nil {
		t.Fatal(err)
	}
	if err := dec.Decode(&d); err != nil {
		t.Fatal(err)
	}
	if s.Kind != "Scenario" || s.Coefficients[len(s.Coefficients)-1] != name || s.EngineVersion != "0.29.0" || s.Cluster.Hardware != "h100" ||
		d.Kind != "Deployment" || d.Name != s.Name || len(d.Pools) != 1 || d.Pools[0].Engine.Longest < 1 || d.Pools[0].Engine.Seqs < 1 ||
		d.Pools[0].Engine.Graphs != "PIECEWISE" {
		t.Errorf("scenario %+v, deployment %+v", s, d)
	}
}
