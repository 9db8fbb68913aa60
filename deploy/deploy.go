// Package deploy holds the nouns of what was running: the model, the hardware
// and the engine's knobs, together a [Deployment], with strict loaders for
// run.yaml, Hugging Face config.json and hardware datasheets.
//
// [LoadRun] reads a run directory's description, [LoadModel] the architecture
// behind it, [Datasheet] a built-in device. What run.yaml
// may leave out has vLLM's own default, all of them in engine.go; what cannot
// be guessed is required, and everything missing is named in one error.
// [FromCommandLine] and [FromLog] write the description from what a server was
// started with or printed.
//
// Every field is resolved once, at load; after that a zero means zero and an
// unknown value is an unknown [trace.Opt]. [Deployment.Check] holds the rules
// of both spec versions, [Deployment.CheckSupported] those of 1.1;
// every rejection has a code. [Deployment.Config] is the configuration:
// runs with equal strings are fitted, weighted and judged together.
package deploy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Model is the loaded architecture (spec#model-fields). Counts are whole-model; Bytes*
// are bytes per value.
type Model struct {
	ID                    string       `json:"id"`
	ModelType             string       `json:"model_type,omitempty"`
	NumLayers             int64        `json:"num_hidden_layers"`
	HiddenSize            int64        `json:"hidden_size"`
	NumHeads              int64        `json:"num_attention_heads"`
	NumKVHeads            int64        `json:"num_key_value_heads"`
	HeadDim               int64        `json:"head_dim"`
	IntermediateSize      int64        `json:"intermediate_size"`
	VocabSize             int64        `json:"vocab_size"`
	NumMLPProj            int64        `json:"n_mlp_proj"`
	NumExperts            int64        `json:"num_experts"` // 0 when dense
	TopK                  int64        `json:"top_k"`
	MoEIntermediateSize   int64        `json:"moe_intermediate_size"`
	NumMoELayers          int64        `json:"num_moe_layers"`
	SharedExpertSize      int64        `json:"shared_expert_size"` // total width of the shared experts
	BytesPerParam         float64      `json:"bytes_per_param"`    // 1.0's one width; = BytesPerWeight when loaded
	BytesPerWeight        float64      `json:"bytes_per_weight"`
	BytesPerKV            float64      `json:"bytes_per_kv"`
	BytesPerActivation    float64      `json:"bytes_per_activation"`
	BytesPerLMHead        float64      `json:"bytes_per_lm_head"`
	LinearCompute         string       `json:"linear_compute"` // native | fp8
	MaxPositionEmbeddings int64        `json:"max_position_embeddings,omitempty"`
	Warnings              []trace.Code `json:"warnings,omitempty"`
	Encoders              []string     `json:"encoders,omitempty"`     // keys of config.json that tell of images, video or audio
	UnknownKeys           []string     `json:"unknown_keys,omitempty"` // keys of config.json that this version does not know
	BLIS                  *BLISReading `json:"blis_reading,omitempty"` // what BLIS takes the config.json for; nil: for the fields above
	Tied                  bool         `json:"tie_word_embeddings,omitempty"`
	Decoder               *Decoder     `json:"-"` // the layers as config.json has them, nil where the fields above were stated
	// Layered is the decoder where the fields above cannot say it: then they hold layers, hidden size, vocabulary and bytes per
	// activation and cached value alone.
	Layered *Decoder     `json:"layers,omitempty"`
	Sizes   *StatedSizes `json:"stated_sizes,omitempty"` // of a model whose layers are not known: all there is of it
}

// StatedSizes are the bytes of a model of an architecture that is not known, as run.yaml states them (spec#model-stated).
type StatedSizes struct {
	WeightBytesPerGPU float64 `json:"weight_bytes_per_gpu"`
	BytesPerBlock     float64 `json:"bytes_per_block,omitempty"` // of the KV cache, on one GPU
	Why               string  `json:"why"`                       // the layers are not known
}

// Hardware is one device's datasheet (spec#hardware).
type Hardware struct {
	Name                     string  `json:"name"`
	TFlopsPeak               float64 `json:"TFlopsPeak"`                  // 1e12 FLOP/s, dense 16-bit
	TFlopsFP8                float64 `json:"TFlopsFP8"`                   // 0 = none
	BwPeakTBs                float64 `json:"BwPeakTBs"`                   // 1e12 B/s
	MemoryGB                 float64 `json:"memory_gb"`                   // nominal, 1e9 B
	PCIeBandwidthGBs         float64 `json:"pcie_bandwidth_gb_s"`         // 1e9 B/s, one direction
	PCIeEfficiency           float64 `json:"pcie_efficiency"`             // (0, 1]
	InterconnectBandwidthGBs float64 `json:"interconnect_bandwidth_gb_s"` // 1e9 B/s, both directions
	InterconnectLatencyUs    float64 `json:"interconnect_latency_us"`
}

// Engine is vLLM's knobs under vLLM's own names (spec#engine-knobs).
type Engine struct {
	VLLMVersion          string           `json:"version"`
	MaxModelLen          trace.Opt[int64] `json:"max_model_len"`
	MaxNumSeqs           int64            `json:"max_num_seqs"`
	MaxNumBatchedTokens  int64            `json:"max_num_batched_tokens"`
	ChunkedPrefill       bool             `json:"enable_chunked_prefill"`
	PrefixCaching        bool             `json:"enable_prefix_caching"`
	BlockSize            int64            `json:"block_size"`             // tokens
	GPUMemoryUtilization float64          `json:"gpu_memory_utilization"` // 0..1
	KVBlocksGPU          trace.Opt[int64] `json:"kv_blocks_total_gpu"`    // without the null block
	CPUOffloading        bool             `json:"cpu_offloading"`
	KVBlocksCPU          int64            `json:"kv_blocks_total_cpu"`
	AsyncScheduling      trace.Opt[bool]  `json:"async_scheduling"`               // unknown: by version (spec#async-scheduling)
	SchedulingPolicy     string           `json:"scheduling_policy"`              // fcfs | priority
	LongPrefillThreshold int64            `json:"long_prefill_token_threshold"`   // 0 = off
	SpeculativeDecoding  bool             `json:"speculative_decoding,omitempty"` // loaded only to be rejected
	ExpertParallel       bool             `json:"enable_expert_parallel,omitempty"`
	Extra                Values           `json:"extra,omitempty"` // other vllm serve flags, provenance only
	Draft                *Model           `json:"-"`               // of speculative_config, with weights of its own; nil: none, or not known
}

// Tracing is how the run was recorded.
type Tracing struct {
	JourneySampleRate trace.Opt[float64] `json:"journey_tracing_sample_rate"`
	StepSampleRate    trace.Opt[float64] `json:"step_tracing_sample_rate"`
	RichSubsampleRate trace.Opt[float64] `json:"step_tracing_rich_subsample_rate"`
	ClosureInterval   trace.Opt[int64]   `json:"step_tracing_closure_interval"`
	EventCountLimit   trace.Opt[int64]   `json:"otel_span_event_count_limit"`
	API               string             `json:"api,omitempty"`
	Published         string             `json:"published,omitempty"`
}

// Phase is one part of a run, [StartNs, EndNs) on the monotonic clock.
type Phase struct {
	Name    string `json:"name"`
	StartNs int64  `json:"start_ns"`
	EndNs   int64  `json:"end_ns"`
	Load    string `json:"load"` // open | closed
}

// WarmupPhase is the phase name that is left out of every fit and test.
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
}

// Deployment is one run.yaml, resolved: everything a feature, the simulator or
// a coefficient file needs to know about what was running.
type Deployment struct {
	Name       string   `json:"name"`
	Provenance string   `json:"provenance,omitempty"`
	Model      Model    `json:"model"`
	Hardware   Hardware `json:"hardware"`
	TP         int64    `json:"tensor_parallel_size"`
	PP         int64    `json:"pipeline_parallel_size"`
	DP         int64    `json:"data_parallel_size"`
	Engine     Engine   `json:"vllm"`
	Tracing    Tracing  `json:"tracing"`
	Phases     []Phase  `json:"phases,omitempty"`
	Workload   Values   `json:"workload,omitempty"`
	Files      Files    `json:"files"`
	// Read are the files the description was read from, as opened: run.yaml, the
	// model's config.json, hardware.json. The loaders fill it.
	Read []string `json:"-"`
	// Sums says that steps are sums of measured kernels, which have whole experts: nothing of them is an estimate.
	Sums bool `json:"-"`
	// FoundFiles says that run.yaml names no files: Files were found by their names.
	FoundFiles bool `json:"-"`
}

// PhaseAt returns the phase holding the monotonic stamp, or nil.
func (d *Deployment) PhaseAt(ns int64) *Phase {
	if i := slices.IndexFunc(d.Phases, func(p Phase) bool { return ns >= p.StartNs && ns < p.EndNs }); i >= 0 {
		return &d.Phases[i]
	}
	return nil
}

// ModelName is the last element of a Hugging Face id, in lower case.
func ModelName(id string) string {
	id = strings.TrimRight(id, "/")
	return strings.ToLower(id[strings.LastIndexByte(id, '/')+1:])
}

// Release is the engine's vLLM release, major and minor; ok is false when the
// version does not say.
func (e *Engine) Release() (v [2]int, ok bool) { return parseVersion(e.VLLMVersion) }

// Config is the configuration as one string: a label people read and eight hex
// digits that stand for model, hardware, tp and every engine knob. Two deployments
// are one configuration exactly when the strings are equal (spec#configuration).
//
//	llama-3.1-8b H100-SXM-80GB tp1 #0f1e2d3c
func (d *Deployment) Config() string {
	sum := sha256.Sum256([]byte(d.configKey()))
	return d.Label() + " #" + hex.EncodeToString(sum[:4])
}

// Label names model, hardware and tp for people: "llama-3.1-8b H100-SXM-80GB tp1".
func (d *Deployment) Label() string {
	label := fmt.Sprintf("%s %s tp%d", ModelName(d.Model.ID), d.Hardware.Name, d.TP)
	if d.DP > 1 && d.Model.IsMoE() {
		label += fmt.Sprintf(" dp%d", d.DP)
	}
	if d.Engine.ExpertParallel {
		label += " ep"
	}
	return label
}

// configKey writes every field of a configuration in a fixed order.
func (d *Deployment) configKey() string {
	m := &d.Model
	h := &d.Hardware
	e := &d.Engine
	var b strings.Builder
	for _, v := range []string{ModelName(m.ID), m.ModelType, m.LinearCompute, h.Name} {
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

// Values are settings that nobody reads by type. Their whole numbers stay whole through JSON:
// a wall-clock stamp in nanoseconds has more digits than a float64 holds.
type Values map[string]any

// UnmarshalJSON reads an object.
func (v *Values) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var all map[string]any
	if err := d.Decode(&all); err != nil {
		return err
	}
	for key, value := range all {
		all[key] = whole(value)
	}
	*v = all
	return nil
}

// whole is what YAML makes of a value that came with its digits.
func whole(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = whole(value)
		}
	case []any:
		for i, value := range v {
			v[i] = whole(value)
		}
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return v
}

// Served is what serves alone: the deployment without names, load, recording settings and files.
func (d *Deployment) Served() Deployment {
	out := *d
	out.Name = ""
	out.Provenance = ""
	out.Phases = nil
	out.Workload = nil
	out.Engine.Extra = nil
	out.Tracing, out.Files = Tracing{}, Files{}
	return out
}
