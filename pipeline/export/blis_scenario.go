package export

// This file writes a scenario of BLIS, which describes a deployment to be simulated.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// kernelRows are the values of gemm_m_half that a projection tries, the rows at which a matrix product
// has half of its largest rate.
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
	GPUsPerNode int64  `yaml:"gpus_per_node"`
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
	Quantization        string `yaml:"quantization,omitempty"` // where it is not the checkpoint's own
	CacheDType          string `yaml:"cache_dtype,omitempty"`  // where it is not what the kernel mode infers
	PrefixCaching       bool   `yaml:"enable_prefix_caching"`
}

// catalogEngine is the release of the only published pack of BLIS's kernel mode.
const catalogEngine = "0.29.0"

// scenarioOf returns both documents. With cudagraph mode PIECEWISE every graph replay costs the
// same whatever the batch, which is what the set's host_replay_graph_per_step assumes.
func scenarioOf(name, part string, p *kernelPlan, d *deploy.Deployment) (*scenarioDoc, *scenarioDeployment) {
	s := &scenarioDoc{
		Kind:          "Scenario",
		Name:          name,
		Model:         p.name,
		EngineVersion: catalogEngine,
		Coefficients: []string{"cost-model-primitives", "cost-model-collectives", "cost-model-host-overheads",
			"cost-model-attention", "cost-model-recurrent", "cost-model-memory", name},
		Cluster: scenarioCluster{Hardware: part, Nodes: 1, GPUsPerNode: p.part.node},
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
			Quantization:        p.quantization,
			CacheDType:          p.cacheDType(d.Model.BytesPerKV),
			PrefixCaching:       d.Engine.PrefixCaching,
		},
	}
	return s, &scenarioDeployment{Kind: "Deployment", Name: name, Pools: []scenarioPool{pool}}
}

// kernelPlan is what BLIS's kernel mode makes of a deployment.
type kernelPlan struct {
	name         string // of the model in BLIS's catalog
	part         catalogPart
	served       catalogModel
	quantization string        // engine.quantization; empty: the checkpoint's own
	graph        *catalogGraph // nil if the formula has no term for some layer; refused then has the reason
	refused      *trace.Error  // why the scenario cannot be written; nil if it can
}

// kernelPlanOf returns the plan of a deployment. model and part are names in BLIS's catalog.
func kernelPlanOf(d *deploy.Deployment, model, part string) *kernelPlan {
	p := &kernelPlan{name: model, part: catalogParts[part]}
	var entry catalogModel
	known := inCatalog(model)
	if known != nil {
		entry = *known
	}
	// The plan is made as far as possible even for a model or part that the catalog lacks, so that the error
	// can include how far off BLIS would be: with weights in 16 bits, and below on an H100.
	entry.weights = cmp.Or(entry.weights, "bf16")
	own := shapeOf(&d.Model)
	var format, wanted string // in what the formats of the weights differ; empty: in nothing
	p.served, p.quantization, format, wanted = entry.servedAs(d.Model.Layers())
	graph, unpriced := p.served.graphOf(d)
	unpriced = cmp.Or(entry.unpriced, unpriced)
	p.graph = graph
	ranks := d.Parallel()
	var got, want, hint string
	switch {
	case p.part == (catalogPart{}):
		p.part = catalogParts["h100"]
		got = "hardware " + d.Hardware.Name
		want = trace.OneOf(deploy.BLISRegistry.Spelled()) + ", the parts of BLIS's catalog"
	case known == nil:
		got = "model " + model
		want = "a model of BLIS's catalog"
		hint = catalogHint(&d.Model)
	case unpriced != "":
		got = model + " with " + unpriced
		want = "layers that the formula of this export has terms for"
	case !entry.isLike(&own):
		got = own.sizes()
		want = entry.sizes() + " as " + model + " has"
		hint = catalogHint(&d.Model)
	case format != "":
		got = format
		want = wanted + " as " + model + " has"
	case ranks.Experts || ranks.DP > 1 || ranks.PP > 1:
		got = "expert, data or pipeline parallelism"
		want = "tensor parallelism alone"
	case !slices.Contains([]int64{1, 2, 4, 8}, ranks.TP) || ranks.TP > p.part.node:
		got = fmt.Sprintf("tensor-parallel size %d", ranks.TP)
		want = fmt.Sprintf("1, 2, 4 or 8 within a node of %d", p.part.node)
	case !d.LongestSequence().OK:
		got = "no max_model_len"
		want = "one"
	default:
		return p
	}
	p.refused = trace.Errorf(BadEntry, "%s: got %s, want %s", FormatScenario, got, want).
		WithHint(cmp.Or(hint, "--format native or aic-fpm hold any deployment's steps"))
	return p
}

// cacheDType returns engine.cache_dtype for a KV cache of so many bytes a value; empty where the kernel
// mode infers it: from the weights' format, or 2 bytes for one below a byte (new.go: cacheDTypeBytes).
func (p *kernelPlan) cacheDType(bytes float64) string {
	inferred := formatBytes[p.served.weights]
	if inferred < 1 {
		inferred = 2
	}
	switch bytes {
	case inferred:
		return ""
	case 1:
		return "fp8"
	}
	return "bfloat16"
}

// projectOnKernelMode returns the projection of the target on the kernel mode with the rows (m_half)
// that fit best. The efficiencies are shares of the part's peaks, none above 1. A batch has the more weight
// the nearer its number of requests is to one of busy; without busy all weigh the same.
func projectOnKernelMode(t Target, plan *kernelPlan, busy []float64) (of *kernelMode, best *Projection, err error) {
	// An efficiency of at most 1 is a coefficient (1/efficiency) of at least 1.
	least := []float64{kernelDense: 1, kernelMemory: 1, kernelStates: 0}
	reaches := t.Deployment.Reaches()
	// The ramp of matrix products is not linear in its rows, so the fit tries a few and keeps the best.
	for _, rows := range kernelRows {
		k := newKernelMode(t.Deployment, plan.graph, plan.served.weights, plan.part, rows)
		p, err := project([]Target{t}, []law{{least: least, busy: busy, terms: func(batch []trace.Chunk) []float64 {
			b := sim.NewBatch(reaches)
			for _, c := range batch {
				b.Add(c.Computed, c.Prompt, c.New, 0, 1)
			}
			return slices.Clone(k.Terms(b))
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

// fitKernelMode fits the entry twice: first to all batches alike, then mainly to batches as large as
// they are on average at the compared loads (Little's law). The kernel mode has a single bend
// between memory-bound and compute-bound batches, so it cannot fit all sizes equally well. It
// returns the fitted kernel mode.
func (e *blisEntry) fitKernelMode(src *Source, t Target, plan *kernelPlan) (law *kernelMode, err error) {
	for range 2 {
		var busy []float64 // mean numbers of running requests; none in the first pass, before any load is simulated
		for _, l := range e.loads {
			busy = append(busy, math.Max(1, l.RateRPS*l.E2EMs/1e3))
		}
		var p *Projection
		if law, p, err = projectOnKernelMode(t, plan, busy); err != nil {
			return nil, err
		}
		e.beta, e.fits = p.Beta, *p
		if e.alpha, err = blisAlphas(src.Fit, e.config); err != nil {
			return nil, err
		}
		e.waitUs = 0
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
	g := k.graph
	bytesPerUs := catalogParts[part].memory * 1e6
	rate := func(i int) float64 { return bytesPerUs / math.Max(v[i], none) }
	// The table below has an entry a line: name, units, value, assumed.
	type entry = struct {
		name, units string
		value       float64
		assumed     string // why the value is a constant; empty: it is fitted
	}
	entries := []entry{
		{"gemm_eps_max_" + k.Products, "dimensionless", 1 / v[kernelDense], ""},
		{"gemm_m_half_" + k.Products, "tokens", k.MHalf, ""},
		{"gemm_n_half_" + k.Products, "tokens", none, rowsAlone},
		{"gemm_k_half_" + k.Products, "tokens", none, rowsAlone},
		{"hbm_derate", "dimensionless", 1 / v[kernelMemory], ""},
		{"attention_decode_floor" + g.decodeNames, "us_per_transfer", v[kernelDecodes], ""},
		{"attention_decode_rate" + g.decodeNames, "bytes_per_us", rate(kernelDecodeKV), ""},
		{"attention_prefill_floor", "us_per_transfer", v[kernelPrefills], ""},
		{"attention_prefill_work_scale", "dimensionless", v[kernelDense] / math.Max(v[kernelPrefillPairs], none), ""},
		{"host_replay_graph_per_step", "us_per_step", v[kernelStep] / (g.layers + 1), ""},
		{"host_launch_eager_per_layer", "us_per_layer", v[kernelStep] / g.layers, ""},
		{"host_launch_per_kernel", "us_per_transfer", 0, ""},
		{hostRequest, "us_per_request", alpha[0], ""},
		{hostAdmission, "us_per_token", 0, ""},
		{hostOutput, "us_per_token", alpha[2], ""},
		{hostCompletion, "us_per_request", alpha[1], ""},
	}
	if len(g.windows) > 0 {
		entries = append(entries,
			entry{"attention_decode_floor_swa", "us_per_transfer", math.Max(v[kernelDecodes], none), ""},
			entry{"attention_decode_rate_swa", "bytes_per_us", bytesPerUs / none, windowInFloor})
	}
	if g.recurrent > 0 {
		entries = append(entries,
			entry{"recurrent_decode_floor_" + g.recurrentNames, "us_per_transfer", none, stateInStep},
			entry{"recurrent_decode_rate_" + g.recurrentNames, "tokens", 1 / math.Max(v[kernelStates], none), ""})
	}
	if g.experts > 0 {
		imbalance := math.Max(v[kernelExperts], none) / v[kernelDense]
		entries = append(entries, entry{"moe_routing_imbalance_median", "dimensionless", imbalance, ""})
	}
	if d.TP > 1 {
		of := fmt.Sprintf("_all_reduce_fp16_%drank_%s", d.TP, strings.ReplaceAll(part, "-", "_"))
		entries = append(entries, entry{"collective_floor" + of, "us_per_transfer", v[kernelReduces], ""},
			entry{"collective_transition_rate" + of, "bytes_per_us", rate(kernelReduceBytes), ""},
			entry{"collective_peak_rate" + of, "bytes_per_us", rate(kernelReduceBytes), ""})
	}
	out := make([]blisValue, len(entries))
	for i, e := range entries {
		e.value, _ = strconv.ParseFloat(fmt.Sprintf("%.6g", e.value), 64) // six digits, for readers of the file
		out[i] = blisValue{blisTerm: blisTerm{Name: e.name, Units: e.units, Role: "its term of the step",
			Zero: "this cost is in other entries of the set"}, value: e.value, identified: "derived", learned: true,
			origin: "projection of the step-time model on the kernel mode's law"}
		if e.assumed != "" {
			out[i].identified = "by definition"
			out[i].learned = false
			out[i].origin = e.assumed
		}
	}
	return out
}

// Why entries of a set are constants.
const (
	rowsAlone     = "efficiency of matrix products was fitted as a function of rows alone, without their other sizes"
	windowInFloor = "decodes within a window take the floor, at every context"
	stateInStep   = "the constant time of recurrent layers is in the host's time of a step"
)

// catalogSettings are the options of formats that name models as BLIS's catalog does.
var catalogSettings = []Setting{
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
	part := partOf(d.Hardware.Name)
	plan := kernelPlanOf(d, catalogName(opt.Settings["model"], d.Model.ID), part)
	if plan.graph == nil {
		return nil, plan.refused
	}
	timer, err := src.Timer(*c)
	if err != nil {
		return nil, err
	}
	lengths, warn := opt.MeanLengths(*c)
	e := blisEntry{config: c, region: RegionOf(d, lengths.Prompt, lengths.Output), limits: kernelLimits, isKernelMode: true}
	law, err := e.fitKernelMode(&src, Target{Deployment: d, Model: timer, Region: e.region}, plan)
	// A deployment that the kernel mode cannot represent is refused only now, so that the error can
	// include how far off BLIS would be.
	if refused := plan.refused; refused != nil {
		for i, l := range e.loads {
			off := fmt.Sprintf("%+.1f %% at %.0f %%", 100*(l.E2ERatio-1), 100*l.LoadFrac)
			if i == 0 {
				refused.Msg += "; with layers as BLIS reads them mean E2E is off by " + off + " load"
			} else {
				refused.Msg += ", " + off
			}
		}
		return nil, refused
	}
	if err != nil {
		return nil, err
	}
	forced, err := opt.Refuse(e.refusals(src.Fit), forceHint)
	if err != nil {
		return nil, err
	}
	// The files: the coefficient set, and a scenario that lists it by name.
	name := fmt.Sprintf("blis-train-%s-%s-tp%d", plan.name, part, d.TP)
	values := kernelValues(law, d, part, numbers(e.alpha))
	for i := range values {
		switch values[i].Name {
		case hostRequest:
			values[i].origin = e.alphaValues()[0].origin
			values[i].note = e.waitNote()
		case hostCompletion:
			values[i].origin = e.alpha[1].origin
		}
	}
	set, err := kernelSet(src, c, name, plan.name, values)
	if err != nil {
		return nil, err
	}
	doc, deployment := scenarioOf(name, part, plan, d)
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
		File{Suffix: ".registry/coefficients/" + name + ".yaml", Data: set})
	if err == nil {
		out.Projections = []Projected{e.projected()}
	}
	return out, err
}

// kernelSet returns the values as a coefficient set in YAML, called name. Its entries apply to the
// hardware, model and tensor-parallel size of c; model is the model's name in BLIS's catalog. An entry
// of value 0 or by definition replaces the source and the rationale of a fitted one with its own.
func kernelSet(src Source, c *result.FitConfig, name, model string, values []blisValue) ([]byte, error) {
	set := regSet{Kind: "CoefficientSet", Name: name}
	scope := hostScopes([]result.FitConfig{*c}, model)[0]
	for _, v := range values {
		e := scope.entry(src, v.value, v.Units)
		switch {
		case v.value == 0:
			e.Method = "not_charged"
			e.Fitted = false
			e.Sources = nil
			e.Rationale = v.Zero
		case v.identified == "by definition":
			e.Method = "assumed"
			e.Fitted = false
			e.Rationale = v.origin
		case v.note != "":
			e.Rationale = strings.TrimPrefix(e.Rationale+"; "+v.note, "; ")
		}
		set.Coefficients = append(set.Coefficients, map[string]regEntry{v.Name: *e})
	}
	return set.file()
}
