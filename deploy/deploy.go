// Package deploy describes what was running: model, hardware and vLLM's settings, together a
// [Deployment], and how it was recorded.
//
// [LoadRun] reads the run.yaml of a recording and the config.json beside it, [Datasheet] a
// built-in device. Optional keys of run.yaml have vLLM's own defaults; the others are required, and
// one error names all that are missing. [FromCommandLine] and [FromLog] write a run.yaml ([Draft])
// from the command that started a server or from its log.
//
// Every field is resolved once, at load; after that a zero means zero and an unknown value is an
// unknown [trace.Opt]. [Deployment.Check] applies the rules of every spec version,
// [Deployment.CheckSupported] those of versions 1.1 and 1.2, [Deployment.CheckLayers] those of
// 1.3; every rejection has a code. [Deployment.Config] is the configuration: runs with equal
// strings are fitted, weighted and validated together.
package deploy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Hardware is one device's datasheet (spec#hardware).
type Hardware struct {
	Name                     string  `json:"name"`
	TFlopsPeak               float64 `json:"TFlopsPeak"`                  // 1e12 FLOP/s, dense 16-bit
	TFlopsFP8                float64 `json:"TFlopsFP8"`                   // 0 = none
	BwPeakTBs                float64 `json:"BwPeakTBs"`                   // 1e12 B/s
	MemoryGB                 float64 `json:"memory_gb"`                   // nominal, as vendors print it: GiB (usableShare)
	PCIeBandwidthGBs         float64 `json:"pcie_bandwidth_gb_s"`         // 1e9 B/s, one direction
	PCIeEfficiency           float64 `json:"pcie_efficiency"`             // (0, 1]
	InterconnectBandwidthGBs float64 `json:"interconnect_bandwidth_gb_s"` // 1e9 B/s, both directions
	InterconnectLatencyUs    float64 `json:"interconnect_latency_us"`
}

// Tracing is how the run was recorded. Rates are shares in [0, 1].
type Tracing struct {
	JourneySampleRate trace.Opt[float64] `json:"journey_tracing_sample_rate"`      // of requests
	StepSampleRate    trace.Opt[float64] `json:"step_tracing_sample_rate"`         // of steps
	RichSubsampleRate trace.Opt[float64] `json:"step_tracing_rich_subsample_rate"` // of the sampled steps
	ClosureInterval   trace.Opt[int64]   `json:"step_tracing_closure_interval"`    // steps
	EventCountLimit   trace.Opt[int64]   `json:"otel_span_event_count_limit"`      // events of a span
	API               string             `json:"api,omitempty"`
	Published         string             `json:"published,omitempty"`
}

// Phase is one part of a run, [StartNs, EndNs) on the monotonic clock.
type Phase struct {
	Name    string `json:"name"`
	StartNs int64  `json:"start_ns"`
	EndNs   int64  `json:"end_ns"`
	Load    string `json:"load"` // open | closed
	// SharedPrefixTokens is the length of the prefix that all prompts of the phase share, as stated.
	SharedPrefixTokens trace.Opt[int64] `json:"shared_prefix_tokens,omitzero"`
}

// Client is what is stated about the client that sent the requests.
type Client struct {
	// SharedPrefixTokens is the length of the prefix that all prompts share. 0 states that they share
	// nothing; unknown states nothing.
	SharedPrefixTokens trace.Opt[int64] `json:"shared_prefix_tokens,omitzero"`
}

// WarmupPhase is the name of a phase that fits and tests exclude.
const WarmupPhase = "warmup"

// Load kinds of a phase.
const (
	LoadOpen   = "open"
	LoadClosed = "closed"
)

// Files names the recordings of a run directory; globs allowed, nil = none.
type Files struct {
	Traces         []string `json:"traces"`
	KVEvents       []string `json:"kv_events"`
	ClientRequests []string `json:"client_requests"`
	// Iterations are logs of the server and forward-pass traces.
	Iterations []string `json:"iterations,omitempty"`
	// StatesTraces and StatesKVEvents are set if run.yaml has the keys files.traces and files.kv_events, also where they are
	// null: then spans, or events, are in these files alone.
	StatesTraces, StatesKVEvents bool `json:"-"`
}

// Deployment is one run.yaml with all defaults and derived values filled in: the properties of the
// running server that features, simulator and coefficient files need.
type Deployment struct {
	Name       string      `json:"name"`
	Provenance string      `json:"provenance,omitempty"`
	Model      model.Model `json:"model"`
	Hardware   Hardware    `json:"hardware"`
	TP         int64       `json:"tensor_parallel_size"`
	PP         int64       `json:"pipeline_parallel_size"`
	DP         int64       `json:"data_parallel_size"`
	Engine     vllm.Engine `json:"vllm"`
	// Drafter is the model of speculative_config with weights of its own; nil: none, or not known.
	Drafter  *model.Model `json:"-"`
	Tracing  Tracing      `json:"tracing"`
	Phases   []Phase      `json:"phases,omitempty"`
	Client   Client       `json:"client,omitzero"`
	Workload vllm.Values  `json:"workload,omitempty"`
	Files    Files        `json:"files"`
	// Read are the files the description was read from, as opened: run.yaml, the
	// model's config.json, hardware.json. The loaders fill it.
	Read []string `json:"-"`
	// Sums is set if step times are sums of measured kernels (package library). Kernels were measured with experts
	// that are whole on a GPU too, so that these times are not an estimate then.
	Sums bool `json:"-"`
	// FoundFiles is set if run.yaml names no files, so that Files were found by their names.
	FoundFiles bool `json:"-"`
}

// PhaseAt returns the phase that a monotonic stamp lies in, or nil.
func (d *Deployment) PhaseAt(ns int64) *Phase {
	if i := slices.IndexFunc(d.Phases, func(p Phase) bool { return ns >= p.StartNs && ns < p.EndNs }); i >= 0 {
		return &d.Phases[i]
	}
	return nil
}

// SharedPrefixAt returns the length of the prefix that run.yaml states for prompts sent at a
// monotonic stamp: that of the phase, else that of the client.
func (d *Deployment) SharedPrefixAt(ns int64) trace.Opt[int64] {
	if p := d.PhaseAt(ns); p != nil && p.SharedPrefixTokens.OK {
		return p.SharedPrefixTokens
	}
	return d.Client.SharedPrefixTokens
}

// Config returns the configuration as one string: a label for people, and eight hex digits that
// stand for model, hardware, tp and every engine setting. Two deployments are the same
// configuration exactly when the strings are equal (spec#configuration).
//
//	llama-3.1-8b H100-SXM-80GB tp1 #0f1e2d3c
func (d *Deployment) Config() string {
	sum := sha256.Sum256([]byte(d.configKey()))
	return d.Label() + " #" + hex.EncodeToString(sum[:4])
}

// Label returns model, hardware and parallelism for people: "llama-3.1-8b H100-SXM-80GB tp1".
func (d *Deployment) Label() string {
	label := fmt.Sprintf("%s %s tp%d", model.Name(d.Model.ID), d.Hardware.Name, d.TP)
	if d.DP > 1 && d.Model.IsMoE() {
		label += fmt.Sprintf(" dp%d", d.DP)
	}
	if d.Engine.ExpertParallel {
		label += " ep"
	}
	return label
}

// configKey returns every field of a configuration in a fixed order, as text. Files have hashes of it, so fields that
// came later are written only where they apply.
func (d *Deployment) configKey() string {
	m := &d.Model
	h := &d.Hardware
	e := &d.Engine
	var b strings.Builder
	for _, v := range []string{model.Name(m.ID), m.ModelType, m.LinearCompute, h.Name} {
		b.WriteString(strconv.Quote(v) + " ")
	}
	for _, v := range []int64{m.NumLayers, m.HiddenSize, m.NumHeads, m.NumKVHeads, m.HeadDim, m.IntermediateSize, m.VocabSize,
		m.NumMLPProj, m.NumExperts, m.TopK, m.MoEIntermediateSize, m.NumMoELayers, m.SharedExpertSize,
		d.TP, e.MaxNumSeqs, e.MaxNumBatchedTokens, e.BlockSize, e.KVBlocksGPU.Or(-1), e.KVBlocksCPU} {
		b.WriteString(strconv.FormatInt(v, 10) + " ")
	}
	for _, v := range []float64{m.BytesPerWeight, m.BytesPerKV, m.BytesPerActivation, m.BytesPerLMHead,
		h.TFlopsPeak, h.TFlopsFP8, h.BwPeakTBs, h.PCIeBandwidthGBs, h.PCIeEfficiency, h.InterconnectBandwidthGBs,
		h.InterconnectLatencyUs, e.GPUMemoryUtilization} {
		b.WriteString(strconv.FormatFloat(v, 'g', -1, 64) + " ")
	}
	for _, v := range []bool{e.ChunkedPrefill, e.PrefixCaching, e.CPUOffloading} {
		b.WriteString(strconv.FormatBool(v) + " ")
	}
	if m.Layered != nil {
		_ = json.NewEncoder(&b).Encode(m.Layered) // plain numbers and texts
	}
	if m.Sizes != nil {
		fmt.Fprintf(&b, "%g %g ", m.Sizes.WeightBytesPerGPU, m.Sizes.BytesPerBlock)
	}
	if d.Engine.ExpertParallel || d.DP > 1 && m.IsMoE() {
		fmt.Fprintf(&b, "dp%d ep %t ", d.DP, d.Engine.ExpertParallel)
	}
	return b.String()
}

// Served returns the deployment without what does not affect serving: names, load, recording
// settings and files.
func (d *Deployment) Served() Deployment {
	out := *d
	out.Name = ""
	out.Provenance = ""
	out.Phases = nil
	out.Client = Client{}
	out.Workload = nil
	out.Engine.Extra = nil
	out.Tracing, out.Files = Tracing{}, Files{}
	return out
}
