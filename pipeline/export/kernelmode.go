package export

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// kernelModels are the models of BLIS's catalog 0.2 whose graph has the nodes of kernelMode's law (full attention, equal layers, 16
// bits), with their layers and hidden size. A graph is made by the catalog's derive_graph.py alone.
var kernelModels = map[string][2]int64{"codellama-34b-instruct-hf": {48, 8192}, "llama-2-70b-hf": {80, 8192}, "llama-2-7b-hf": {32, 4096},
	"llama-3.1-70b-instruct": {80, 8192}, "llama-3.1-8b-instruct": {32, 4096}, "mistral-nemo-instruct-2407": {40, 5120},
	"mixtral-8x22b-v0.1": {56, 6144}, "mixtral-8x7b-v0.1": {32, 4096}, "qwen2.5-7b-instruct": {28, 3584}, "qwen3-14b": {40, 5120},
	"qwen3-30b-a3b": {48, 2048}, "yi-34b": {60, 7168}}

// kernelPeaks are 1e12 FLOP/s of 16 bits and 1e12 bytes/s of the catalog's parts (hardware/*.yaml at b20b7f1), which the law's
// efficiencies are shares of.
var kernelPeaks = map[string][2]float64{"a100-sxm": {312, 2.039}, "b200": {2250, 7.7}, "b300": {2250, 7.75}, "gb200-nvl72": {2500, 8},
	"h100": {989.5, 3.35}, "h200": {989.5, 4.8}, "l40s": {362.05, 0.864}}

// kernelRows are the m_half of gemm_m_half_bf16 that are tried.
var kernelRows = []float64{8, 16, 32, 64, 96, 128, 192, 256, 384}

// scenarioText is a scenario and its deployment (inference-sim docs/guide/latency-models.md@a919bf9, blis-schemas v0.2). Every
// replay costs the same in PIECEWISE, whatever the batch; one unit of our set is written so.
const scenarioText = `kind: Scenario
name: {{.Name}}
model: {{.Model}}
engine_version: "0.29.0"
coefficients: [cost-model-primitives, cost-model-collectives, cost-model-host-overheads, cost-model-attention, cost-model-recurrent, ` +
	`cost-model-memory, {{.Name}}]
cluster: {hardware: {{.Part}}, nodes: 1, gpus_per_node: 8}
---
kind: Deployment
name: {{.Name}}
pools:
  - {role: colocated, nodes: 1, parallel: {tp: {{.TP}}, pp: 1, dp: 1}, engine: {block_size: {{.E.BlockSize}}, ` +
	`max_num_batched_tokens: {{.E.MaxNumBatchedTokens}}, max_num_seqs: {{.E.MaxNumSeqs}}, max_model_len: {{.Longest}}, ` +
	`cudagraph_mode: PIECEWISE, enable_prefix_caching: {{.E.PrefixCaching}}}}
`

// kernelLacks says what the law does not have of a deployment.
func kernelLacks(d *deploy.Deployment, model, part string) *trace.Error {
	p, sizes := d.Parallel(), kernelModels[model]
	for _, x := range []struct {
		lacks     bool
		got, want string
	}{{kernelPeaks[part][0] == 0, "hardware " + d.Hardware.Name, "a part of BLIS's catalog"},
		{d.Model.WhyLayered() != "", d.Model.WhyLayered(), "full attention and equal layers"},
		{sizes[0] == 0, "model " + model, trace.OneOf(slices.Sorted(maps.Keys(kernelModels))) + " (--option model=NAME)"},
		{sizes != [2]int64{d.Model.NumLayers, d.Model.HiddenSize}, fmt.Sprintf("%d layers of %d", d.Model.NumLayers, d.Model.HiddenSize),
			fmt.Sprintf("%d of %d as %s has", sizes[0], sizes[1], model)},
		{d.Model.BytesPerWeight != 2 || d.Model.BytesPerActivation != 2, fmt.Sprintf("%g bytes a weight", d.Model.BytesPerWeight), "2"},
		{p.Experts || p.DP > 1 || p.PP > 1, "expert, data or pipeline parallelism", "tensor parallelism alone"},
		{!slices.Contains([]int64{1, 2, 4, 8}, p.TP), fmt.Sprintf("tensor parallelism %d", p.TP), "1, 2, 4 or 8"},
		{!d.LongestSequence().OK, "no max_model_len", "one"},
	} {
		if x.lacks {
			return trace.Errorf(BadEntry, "%s: got %s, want %s", FormatScenario, x.got, x.want).
				WithHint("--format native or aic-fpm hold any deployment's steps")
		}
	}
	return nil
}

// onKernelMode projects the target on the law with the m_half that fits best; its efficiencies are shares of the peaks of part, none
// above 1. The model's layers are as BLIS reads them. Batches weigh by how near their requests are to those of busy.
func onKernelMode(t Target, part string, busy []float64) (of *kernelMode, best *Projection, err error) {
	own := *t.Deployment
	own.Model = own.Model.AsBLISReads()
	own.Hardware.TFlopsPeak, own.Hardware.BwPeakTBs = kernelPeaks[part][0], kernelPeaks[part][1]
	least := []float64{kernelDense: 1, kernelMemory: 1, kernelReduceBytes: 0}
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
			of, best, k.Values = k, &p[0], [kernelTerms]float64(p[0].Beta)
		}
	}
	return of, best, nil
}

// onKernelMode fits the entry twice: to all batches alike, and to those that are as large as the loads at which it is compared have
// them on average (Little's law), because one bend of the law has to do for a memory-bound and for a busy engine.
func (e *blisEntry) onKernelMode(src *Source, t Target, part string) (law *kernelMode, err error) {
	for range 2 {
		busy := stat.Map(e.loads, func(l LoadPoint) float64 { return math.Max(1, l.RateRPS*l.E2EMs/1e3) })
		var p *Projection
		if law, p, err = onKernelMode(t, part, busy); err != nil {
			return nil, err
		}
		e.beta, e.fits = p.Beta, *p
		if e.alpha, err = blisAlphas(src.Fit, e.config); err != nil {
			return nil, err
		}
		if _, err = e.simulate(src, func(alpha []float64) (sim.Parts, error) {
			return sim.Parts{Step: law, Overhead: sim.Const(alpha[0]), Egress: sim.Const(alpha[1]), TokenUs: alpha[2]}, nil
		}); err != nil {
			return nil, err
		}
	}
	return law, nil
}

// kernelValues are the registry's entries of a law, with the delays of a request before the queue and at completion, us.
// A value of 0 takes the place of the registry's own where the law has its time in another entry.
func kernelValues(k *kernelMode, d *deploy.Deployment, part string, alpha []float64) []blisValue {
	const none = 1e-9 // of a peak: in place of a rate without bound
	v, bytesPerUs := k.Values, kernelPeaks[part][1]*1e6
	rate := func(i int) float64 { return bytesPerUs / math.Max(v[i], none) }
	type entry = struct {
		name, units string
		value       float64
	}
	entries := []entry{{"gemm_eps_max_bf16", "dimensionless", 1 / v[kernelDense]}, {"gemm_m_half_bf16", "tokens", k.MHalf},
		{"hbm_derate", "dimensionless", 1 / v[kernelMemory]},
		{"attention_decode_floor", "us_per_transfer", v[kernelDecodes]}, {"attention_decode_rate", "bytes_per_us", rate(kernelDecodeKV)},
		{"attention_prefill_floor", "us_per_transfer", v[kernelPrefills]},
		{"attention_prefill_work_scale", "dimensionless", v[kernelDense] / math.Max(v[kernelPrefillPairs], none)},
		{"host_replay_graph_per_step", "us_per_step", v[kernelStep] / float64(d.Model.NumLayers+1)},
		{"host_launch_eager_per_layer", "us_per_layer", v[kernelStep] / float64(d.Model.NumLayers)},
		{"host_launch_per_kernel", "us_per_transfer", 0}, {hostRequest, "us_per_request", alpha[0]}, {hostAdmission, "us_per_token", 0},
		{hostOutput, "us_per_token", alpha[2]}, {hostCompletion, "us_per_request", alpha[1]}}
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

// blisScenario writes a scenario of BLIS's kernel mode, and the coefficient set that is listed last in it, in the folder of a registry.
func blisScenario(src Source, opt Options) (*Output, error) {
	c, err := src.one(opt, FormatScenario)
	if err != nil {
		return nil, err
	}
	d := &c.Deployment
	model, part := cmp.Or(opt.Settings["model"], slug(deploy.ModelName(d.Model.ID))), partOf(d.Hardware.Name)
	lacks := kernelLacks(d, model, part)
	timer, err := src.Timer(*c)
	if err != nil {
		return nil, err
	}
	l, warn := opt.MeanLengths(*c)
	e := blisEntry{config: c, region: RegionOf(d, l.Prompt, l.Output), limits: kernelLimits}
	law, err := e.onKernelMode(&src, Target{Deployment: d, Model: timer, Region: e.region}, part)
	if lacks != nil {
		for i, l := range e.loads {
			says := []string{"; with layers as BLIS reads them mean E2E is off by %+.1f %% at %.0f %% load", ", %+.1f %% at %.0f %%"}[min(i, 1)]
			lacks.Msg += fmt.Sprintf(says, 100*(l.E2ERatio-1), 100*l.LoadFrac)
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
	name := fmt.Sprintf("blis-train-%s-%s-tp%d", model, part, d.TP)
	values := kernelValues(law, d, part, numbers(e.alpha))
	set, err := kernelSet(src, c, name, model, values)
	if err != nil {
		return nil, err
	}
	scenario, err := fill(scenarioText, map[string]any{"Name": name, "Model": model, "Part": part, "TP": d.TP, "E": d.Engine,
		"Longest": d.LongestSequence().V})
	if err != nil {
		return nil, err
	}
	side := src.Sidecar(opt, FormatScenario, "BLIS's kernel mode (blis-latency-kernel v0.4.0, law at 070f510), blis run --scenario")
	side.Values = sideValues("coefficients", values)
	line := e.side(blisCatalog)
	line.CommandLine = "blis run --scenario FILE --scenarios . --registry REGISTRY --catalog CATALOG"
	line.DefaultsCommandLine, line.Note = "", strings.TrimPrefix(line.Note+"; KV blocks come from the kernel's own memory terms", "; ")
	side.Configs, side.Warnings = []SideConfig{line}, append(append(src.ValidationWarnings(), warn...), forced...)
	out, err := side.Beside(append(warn, forced...), File{Data: scenario}, File{".registry/coefficients/" + name + ".yaml", set})
	if err == nil {
		out.Projections = []Projected{e.projected()}
	}
	return out, err
}

// kernelSet is the coefficient set of the values, for one deployment by its names in the catalog.
func kernelSet(src Source, c *result.FitConfig, name, model string, values []blisValue) ([]byte, error) {
	set := regSet{Kind: "CoefficientSet", Name: name}
	for _, v := range values {
		e := measuredHost(src, []result.FitConfig{*c}, v.value, v.Units)
		if e.Scope.Model = []string{model}; v.value == 0 {
			e.Method, e.Fitted, e.Sources, e.Rationale = "not_charged", false, nil, v.Zero
		}
		set.Coefficients = append(set.Coefficients, map[string]regEntry{v.Name: *e})
	}
	return set.file()
}

// Positions of the terms of BLIS's kernel mode.
const (
	kernelStep         = iota // 1: host time of a step, us
	kernelDense               // time of matrix products at peak and the ramp's rows: 1/eps
	kernelExperts             // the same of routed experts, not divided by tensor parallelism: imbalance/eps
	kernelMemory              // time of weights, reached experts and norms at peak bandwidth: 1/derate
	kernelDecodes             // layers of a step with decodes: floor, us
	kernelDecodeKV            // time of their keys and values at peak bandwidth: peak/rate
	kernelPrefills            // layers of a step with prompts: floor, us
	kernelPrefillPairs        // time of their query-key pairs at peak and the ramp's rows: 1/(eps*scale)
	kernelReduces             // all-reduces of a step: floor, us
	kernelReduceBytes         // time of their bytes at the memory's peak bandwidth: that/rate
	kernelTerms               // how many there are
)

// kernelMode is the step of BLIS's kernel mode as a sum of terms times coefficients: the NoOverlap estimate of
// inference-sim/blis-latency-kernel (kernel.go, internal/price at 070f510), whose largest rate of a collective is the one within its
// range, and whose host time of a step is one number. It is the law of models with full attention and equal layers in 16 bits, on
// tensor-parallel ranks. A prompt's chunk of one token is a prompt's here and a decode there.
//
// Units: us a term where its coefficient is a ratio, a count where the coefficient is in us.
type kernelMode struct {
	Values [kernelTerms]float64
	// MHalf is the rows at which a matrix product has half of its largest rate.
	MHalf float64

	layers                      float64
	dense, expert               float64 // us a row at peak
	weights, experts, norms     float64 // us: of all weights outside routed experts, of all routed experts, of a row's norms
	missed                      float64 // log of the share of experts that a row leaves untouched
	kv, pairs, reduces, reduced float64 // us a cached token, us a pair at peak, launches, us a row
	x                           [kernelTerms]float64
}

// newKernelMode is the law of a deployment.
func newKernelMode(d *deploy.Deployment, mHalf float64) *kernelMode {
	m, h, tp := &d.Model, &d.Hardware, float64(max(1, d.TP))
	flops, bytes := h.TFlopsPeak*1e6, h.BwPeakTBs*1e6 // a us
	layers, moe, hid := float64(m.NumLayers), float64(m.NumMoELayers), float64(m.HiddenSize)
	heads, kv := float64(m.NumHeads*m.HeadDim), float64(m.NumKVHeads*m.HeadDim)
	parameters := float64(2*layers*hid*(heads+kv)) + float64((layers-moe)*3*hid*float64(m.IntermediateSize)) +
		float64(moe*3*hid*float64(m.SharedExpertSize)) + float64(hid*float64(m.VocabSize))
	routed := moe * 3 * hid * float64(m.MoEIntermediateSize)
	k := &kernelMode{MHalf: mHalf, layers: layers, dense: 2 * parameters / tp / flops, weights: m.BytesPerWeight * parameters / tp / bytes,
		norms: layers * 8 * hid / tp / bytes, expert: 2 * float64(m.TopK) * routed / flops,
		experts: m.BytesPerWeight * float64(m.NumExperts) * routed / tp / bytes, missed: math.Inf(-1),
		kv:    layers * 2 * math.Max(float64(m.NumKVHeads)/tp, 1) * float64(m.HeadDim) * m.BytesPerKV / bytes,
		pairs: 4 * layers * heads / tp / flops}
	if m.TopK < m.NumExperts {
		k.missed = stat.Log1p(-float64(m.TopK) / float64(m.NumExperts))
	}
	if tp > 1 {
		k.reduces, k.reduced = 2*layers, 4*layers*hid/bytes
	}
	return k
}

// Terms are a batch's, by position; valid until the next call.
func (k *kernelMode) Terms(b *sim.Batch) []float64 {
	rows := float64(b.Tokens())
	ramp := rows + k.MHalf
	k.x = [kernelTerms]float64{kernelStep: 1, kernelDense: k.dense * ramp, kernelExperts: k.expert * ramp,
		kernelMemory:   k.weights + float64(k.norms*rows) - float64(k.experts*stat.Expm1(rows*k.missed)),
		kernelDecodeKV: k.kv * float64(b.DecodeContext), kernelReduces: k.reduces, kernelReduceBytes: k.reduced * rows}
	if b.DecodeReqs > 0 {
		k.x[kernelDecodes] = k.layers
	}
	if b.PrefillReqs > 0 {
		k.x[kernelPrefills] = k.layers
		k.x[kernelPrefillPairs] = k.pairs * ramp / rows * (float64(2*b.CausalWork-b.PrefillTokens) / 2)
	}
	return k.x[:]
}

// StepUs is the sum of the terms times their coefficients.
func (k *kernelMode) StepUs(b *sim.Batch) (us float64, err error) {
	for i, x := range k.Terms(b) {
		us += float64(x * k.Values[i])
	}
	return us, nil
}
