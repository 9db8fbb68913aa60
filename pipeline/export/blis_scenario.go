package export

// This file writes a scenario of BLIS, which describes a deployment to be simulated.

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// kernelModels are the layers and hidden sizes of the models in BLIS's catalog 0.2 whose graph kernelMode
// covers: full attention, equal layers, 16 bits. Only the catalog's derive_graph.py makes such graphs.
var kernelModels = map[string][2]int64{
	"codellama-34b-instruct-hf":  {48, 8192},
	"llama-2-70b-hf":             {80, 8192},
	"llama-2-7b-hf":              {32, 4096},
	"llama-3.1-70b-instruct":     {80, 8192},
	"llama-3.1-8b-instruct":      {32, 4096},
	"mistral-nemo-instruct-2407": {40, 5120},
	"mixtral-8x22b-v0.1":         {56, 6144},
	"mixtral-8x7b-v0.1":          {32, 4096},
	"qwen2.5-7b-instruct":        {28, 3584},
	"qwen3-14b":                  {40, 5120},
	"qwen3-30b-a3b":              {48, 2048},
	"yi-34b":                     {60, 7168},
}

// kernelPeaks are the peaks of the catalog's parts, 1e12 FLOP/s in 16 bits and 1e12 bytes/s
// (hardware/*.yaml at b20b7f1). The efficiencies of the kernel mode are shares of them.
var kernelPeaks = map[string][2]float64{
	"a100-sxm":    {312, 2.039},
	"b200":        {2250, 7.7},
	"b300":        {2250, 7.75},
	"gb200-nvl72": {2500, 8},
	"h100":        {989.5, 3.35},
	"h200":        {989.5, 4.8},
	"l40s":        {362.05, 0.864},
}

// kernelRows are the values of gemm_m_half_bf16 that a projection tries.
var kernelRows = []float64{8, 16, 32, 64, 96, 128, 192, 256, 384}

// scenarioDoc is a scenario, which names the model, the coefficient sets and the devices. With a
// scenarioDeployment it is what blis run reads (inference-sim docs/guide/latency-models.md@a919bf9,
// blis-schemas v0.2).
type scenarioDoc struct {
	Kind          string          `yaml:"kind"`
	Name          string          `yaml:"name"`
	Model         string          `yaml:"model"`
	EngineVersion string          `yaml:"engine_version"`
	Coefficients  []string        `yaml:"coefficients,flow"`
	Cluster       scenarioCluster `yaml:"cluster,flow"`
}

// scenarioCluster describes the devices of a scenario.
type scenarioCluster struct {
	Hardware    string `yaml:"hardware"`
	Nodes       int    `yaml:"nodes"`
	GPUsPerNode int    `yaml:"gpus_per_node"`
}

// scenarioDeployment describes how the model is served: its pools of engines.
type scenarioDeployment struct {
	Kind  string         `yaml:"kind"`
	Name  string         `yaml:"name"`
	Pools []scenarioPool `yaml:"pools"`
}

// scenarioPool is a pool of equal engines.
type scenarioPool struct {
	Role     string           `yaml:"role"`
	Nodes    int              `yaml:"nodes"`
	Parallel map[string]int64 `yaml:"parallel,flow"`
	Engine   scenarioEngine   `yaml:"engine,flow"`
}

// scenarioEngine has the settings of vLLM in a scenario.
type scenarioEngine struct {
	BlockSize           int64  `yaml:"block_size"`
	MaxNumBatchedTokens int64  `yaml:"max_num_batched_tokens"`
	MaxNumSeqs          int64  `yaml:"max_num_seqs"`
	MaxModelLen         int64  `yaml:"max_model_len"`
	GraphMode           string `yaml:"cudagraph_mode"`
	PrefixCaching       bool   `yaml:"enable_prefix_caching"`
}

// catalogEngine is the release of the only published pack of BLIS's kernel mode.
const catalogEngine = "0.29.0"

// scenarioOf returns both documents. With cudagraph mode PIECEWISE every graph replay costs the
// same whatever the batch, which is what the set's host_replay_graph_per_step assumes.
func scenarioOf(name, model, part string, d *deploy.Deployment) (*scenarioDoc, *scenarioDeployment) {
	s := &scenarioDoc{
		Kind:          "Scenario",
		Name:          name,
		Model:         model,
		EngineVersion: catalogEngine,
		Coefficients: []string{"cost-model-primitives", "cost-model-collectives", "cost-model-host-overheads",
			"cost-model-attention", "cost-model-recurrent", "cost-model-memory", name},
		Cluster: scenarioCluster{Hardware: part, Nodes: 1, GPUsPerNode: 8},
	}
	pool := scenarioPool{
		Role:     "colocated",
		Nodes:    1,
		Parallel: map[string]int64{"tp": d.TP, "pp": 1, "dp": 1},
		Engine: scenarioEngine{
			BlockSize:           d.Engine.BlockSize,
			MaxNumBatchedTokens: d.Engine.MaxNumBatchedTokens,
			MaxNumSeqs:          d.Engine.MaxNumSeqs,
			MaxModelLen:         d.LongestSequence().V,
			GraphMode:           "PIECEWISE",
			PrefixCaching:       d.Engine.PrefixCaching,
		},
	}
	return s, &scenarioDeployment{Kind: "Deployment", Name: name, Pools: []scenarioPool{pool}}
}

// kernelLacks returns the error for a deployment that BLIS's kernel mode cannot represent; nil if
// it can. model and part are names in BLIS's catalog.
func kernelLacks(d *deploy.Deployment, model, part string) *trace.Error {
	p := d.Parallel()
	sizes, inCatalog := kernelModels[model]
	var got, want string
	switch {
	case kernelPeaks[part][0] == 0:
		got, want = "hardware "+d.Hardware.Name, "a part of BLIS's catalog"
	case d.Model.WhyLayered() != "":
		got, want = d.Model.WhyLayered(), "full attention and equal layers"
	case !inCatalog:
		got = "model " + model
		want = trace.OneOf(slices.Sorted(maps.Keys(kernelModels))) + " (--option model=NAME)"
	case sizes != [2]int64{d.Model.NumLayers, d.Model.HiddenSize}:
		got = fmt.Sprintf("%d layers of %d", d.Model.NumLayers, d.Model.HiddenSize)
		want = fmt.Sprintf("%d of %d as %s has", sizes[0], sizes[1], model)
	case d.Model.BytesPerWeight != 2 || d.Model.BytesPerActivation != 2:
		got, want = fmt.Sprintf("%g bytes a weight", d.Model.BytesPerWeight), "2"
	case p.Experts || p.DP > 1 || p.PP > 1:
		got, want = "expert, data or pipeline parallelism", "tensor parallelism alone"
	case !slices.Contains([]int64{1, 2, 4, 8}, p.TP):
		got, want = fmt.Sprintf("tensor parallelism %d", p.TP), "1, 2, 4 or 8"
	case !d.LongestSequence().OK:
		got, want = "no max_model_len", "one"
	default:
		return nil
	}
	return trace.Errorf(BadEntry, "%s: got %s, want %s", FormatScenario, got, want).
		WithHint("--format native or aic-fpm hold any deployment's steps")
}

// onKernelMode returns the projection of the target on the kernel mode with the rows (m_half) that
// fit best. The efficiencies are shares of the peaks of part, none above 1, and the model has the
// layers that BLIS reads. A batch has the more weight the nearer its number of requests is to one
// of busy; without busy all weigh the same.
func onKernelMode(t Target, part string, busy []float64) (of *kernelMode, best *Projection, err error) {
	// The deployment as BLIS sees it: layers as it reads them, peaks of its own catalog.
	own := *t.Deployment
	own.Model = own.Model.AsBLISReads()
	own.Hardware.TFlopsPeak = kernelPeaks[part][0]
	own.Hardware.BwPeakTBs = kernelPeaks[part][1]
	// An efficiency of at most 1 is a coefficient (1/efficiency) of at least 1.
	least := []float64{kernelDense: 1, kernelMemory: 1, kernelReduceBytes: 0}
	// The ramp of matrix products is not linear in its rows, so the fit tries a few and keeps the best.
	for _, rows := range kernelRows {
		k := newKernelMode(&own, rows)
		p, err := project([]Target{t}, []law{{least: least, busy: busy, terms: func(batch []trace.Chunk) []float64 {
			var b sim.Batch
			for _, c := range batch {
				b.Add(c.Computed, c.Prompt, c.New, 0, 1)
			}
			return slices.Clone(k.Terms(&b))
		}}})
		if err != nil {
			return nil, nil, err
		}
		if best == nil || p[0].fitted < best.fitted {
			of = k
			best = &p[0]
			k.Values = [kernelTerms]float64(p[0].Beta)
		}
	}
	return of, best, nil
}

// onKernelMode fits the entry twice: first to all batches alike, then mainly to batches as large as
// they are on average at the compared loads (Little's law). The kernel mode has a single bend
// between memory-bound and compute-bound batches, so it cannot fit all sizes equally well. It
// returns the fitted kernel mode.
func (e *blisEntry) onKernelMode(src *Source, t Target, part string) (law *kernelMode, err error) {
	for range 2 {
		var busy []float64 // mean numbers of running requests; none in the first pass, before any load is simulated
		for _, l := range e.loads {
			busy = append(busy, math.Max(1, l.RateRPS*l.E2EMs/1e3))
		}
		var p *Projection
		if law, p, err = onKernelMode(t, part, busy); err != nil {
			return nil, err
		}
		e.beta, e.fits = p.Beta, *p
		if e.alpha, err = blisAlphas(src.Fit, e.config); err != nil {
			return nil, err
		}
		if _, err = e.compareLoads(src, func(alpha []float64) (sim.Parts, error) {
			return sim.Parts{Step: law, Overhead: sim.Const(alpha[0]), Egress: sim.Const(alpha[1]),
				TokenUs: alpha[2]}, nil
		}); err != nil {
			return nil, err
		}
	}
	return law, nil
}

// kernelValues returns the entries of a registry for a fitted kernel mode, with the delays of a
// request before the queue and at completion, us (alpha). A value of 0 replaces the registry's own
// if another entry includes that time.
func kernelValues(k *kernelMode, d *deploy.Deployment, part string, alpha []float64) []blisValue {
	const none = 1e-9 // smallest share of a peak, so that a rate stays finite where a term takes no time
	v := k.Values
	bytesPerUs := kernelPeaks[part][1] * 1e6
	rate := func(i int) float64 { return bytesPerUs / math.Max(v[i], none) }
	type entry = struct {
		name, units string
		value       float64
	}
	entries := []entry{
		{"gemm_eps_max_bf16", "dimensionless", 1 / v[kernelDense]},
		{"gemm_m_half_bf16", "tokens", k.MHalf},
		{"hbm_derate", "dimensionless", 1 / v[kernelMemory]},
		{"attention_decode_floor", "us_per_transfer", v[kernelDecodes]},
		{"attention_decode_rate", "bytes_per_us", rate(kernelDecodeKV)},
		{"attention_prefill_floor", "us_per_transfer", v[kernelPrefills]},
		{"attention_prefill_work_scale", "dimensionless", v[kernelDense] / math.Max(v[kernelPrefillPairs], none)},
		{"host_replay_graph_per_step", "us_per_step", v[kernelStep] / float64(d.Model.NumLayers+1)},
		{"host_launch_eager_per_layer", "us_per_layer", v[kernelStep] / float64(d.Model.NumLayers)},
		{"host_launch_per_kernel", "us_per_transfer", 0},
		{hostRequest, "us_per_request", alpha[0]},
		{hostAdmission, "us_per_token", 0},
		{hostOutput, "us_per_token", alpha[2]},
		{hostCompletion, "us_per_request", alpha[1]},
	}
	if d.Model.IsMoE() {
		imbalance := math.Max(v[kernelExperts], none) / v[kernelDense]
		entries = append(entries, entry{"moe_routing_imbalance_median", "dimensionless", imbalance})
	}
	if d.TP > 1 {
		of := fmt.Sprintf("_all_reduce_fp16_%drank_%s", d.TP, strings.ReplaceAll(part, "-", "_"))
		entries = append(entries, entry{"collective_floor" + of, "us_per_transfer", v[kernelReduces]},
			entry{"collective_transition_rate" + of, "bytes_per_us", rate(kernelReduceBytes)},
			entry{"collective_peak_rate" + of, "bytes_per_us", rate(kernelReduceBytes)})
	}
	out := make([]blisValue, len(entries))
	for i, e := range entries {
		e.value, _ = strconv.ParseFloat(fmt.Sprintf("%.6g", e.value), 64)
		out[i] = blisValue{blisTerm: blisTerm{Name: e.name, Units: e.units, Role: "its term of the step",
			Zero: "this cost is in other entries of the set"}, value: e.value, identified: "derived", learned: true,
			origin: "projection of the step-time model on the kernel mode's law"}
	}
	return out
}

// scenarioSettings are the options of blis-scenario.
var scenarioSettings = []Setting{
	{Key: "model", Usage: "the model's name in BLIS's catalog; default its own in lower case"},
}

// blisScenario returns the files of format blis-scenario: a scenario of BLIS's kernel mode, and the
// coefficient set that the scenario lists last, in the folder of a registry.
func blisScenario(src Source, opt Options) (*Output, error) {
	c, err := src.onlyConfig(opt, FormatScenario)
	if err != nil {
		return nil, err
	}
	d := &c.Deployment
	model := cmp.Or(opt.Settings["model"], slug(model.Name(d.Model.ID)))
	part := partOf(d.Hardware.Name)
	lacks := kernelLacks(d, model, part)
	timer, err := src.Timer(*c)
	if err != nil {
		return nil, err
	}
	lengths, warn := opt.MeanLengths(*c)
	e := blisEntry{config: c, region: RegionOf(d, lengths.Prompt, lengths.Output), limits: kernelLimits}
	law, err := e.onKernelMode(&src, Target{Deployment: d, Model: timer, Region: e.region}, part)
	// A deployment that the kernel mode cannot represent is refused only now, so that the error can
	// include how far off BLIS would be.
	if lacks != nil {
		for i, l := range e.loads {
			format := []string{"; with layers as BLIS reads them mean E2E is off by %+.1f %% at %.0f %% load",
				", %+.1f %% at %.0f %%"}[min(i, 1)]
			lacks.Msg += fmt.Sprintf(format, 100*(l.E2ERatio-1), 100*l.LoadFrac)
		}
		return nil, lacks
	}
	if err != nil {
		return nil, err
	}
	forced, err := opt.Refuse(e.refusals(src.Fit), forceHint)
	if err != nil {
		return nil, err
	}
	// The files: the coefficient set, and a scenario that lists it by name.
	name := fmt.Sprintf("blis-train-%s-%s-tp%d", model, part, d.TP)
	values := kernelValues(law, d, part, numbers(e.alpha))
	set, err := kernelSet(src, c, name, model, values)
	if err != nil {
		return nil, err
	}
	doc, deployment := scenarioOf(name, model, part, d)
	scenario, err := resourceYAML(nil, doc, deployment)
	if err != nil {
		return nil, err
	}
	// The sidecar: where each coefficient is from, and how to run BLIS with the files.
	side := src.Sidecar(opt, FormatScenario,
		"BLIS's kernel mode (blis-latency-kernel v0.4.0, law at 070f510), blis run --scenario")
	side.Values = sideValues("coefficients", values)
	config := e.sideConfig(blisCatalog)
	config.CommandLine = "blis run --scenario FILE --scenarios . --registry REGISTRY --catalog CATALOG"
	config.DefaultsCommandLine = ""
	config.Note = strings.TrimPrefix(config.Note+"; KV blocks come from the kernel's own memory terms", "; ")
	side.Configs = []SideConfig{config}
	side.Warnings = append(append(src.ValidationWarnings(), warn...), forced...)
	out, err := side.OutputWith(append(warn, forced...), File{Data: scenario},
		File{".registry/coefficients/" + name + ".yaml", set})
	if err == nil {
		out.Projections = []Projected{e.projected()}
	}
	return out, err
}

// kernelSet returns the coefficient set of the values as YAML, for one deployment under its names
// in the catalog.
func kernelSet(src Source, c *result.FitConfig, name, model string, values []blisValue) ([]byte, error) {
	set := regSet{Kind: "CoefficientSet", Name: name}
	for _, v := range values {
		e := measuredHost(src, []result.FitConfig{*c}, v.value, v.Units)
		if e.Scope.Model = []string{model}; v.value == 0 {
			e.Method = "not_charged"
			e.Fitted = false
			e.Sources = nil
			e.Rationale = v.Zero
		}
		set.Coefficients = append(set.Coefficients, map[string]regEntry{v.Name: *e})
	}
	return set.file()
}
