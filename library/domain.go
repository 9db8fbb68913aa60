package library

// This file compares what a prediction is for with what the measured servers of its family ran, and
// names the axes on which it lies outside.

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/vllm"
)

// Intervals are half widths, relative to the prediction, of the intervals that contain nine in ten
// held-out measurements. A measured point states TTFT and the time per output token; its E2E and
// throughput are derived: E2E is TTFT + (n - 1) TPOT with n output tokens, throughput clients / E2E.
type Intervals struct {
	TTFT       float64 `yaml:"ttft" json:"ttft"`
	ITL        float64 `yaml:"itl" json:"itl"`
	E2E        float64 `yaml:"e2e" json:"e2e"`
	Throughput float64 `yaml:"throughput" json:"throughput"`
}

// Domain is what the servers of a family were measured with: of numbers the least and the most, of
// words all.
type Domain struct {
	InputTokens  [2]int64 `yaml:"input_tokens,flow" json:"input_tokens"`
	OutputTokens [2]int64 `yaml:"output_tokens,flow" json:"output_tokens"`
	Clients      [2]int64 `yaml:"clients,flow" json:"clients"` // of closed loops
	// Parameters of the models, and those that a token passes, in 1e9.
	Parameters       [2]float64 `yaml:"parameters_1e9,flow" json:"parameters_1e9"`
	ActiveParameters [2]float64 `yaml:"active_parameters_1e9,flow" json:"active_parameters_1e9"`
	BatchedTokens    [2]int64   `yaml:"max_num_batched_tokens,flow" json:"max_num_batched_tokens"`
	Releases         []string   `yaml:"vllm,flow" json:"vllm"`
	KVBytes          []float64  `yaml:"kv_bytes,flow" json:"kv_bytes"`       // of a cached value
	Graphs           []string   `yaml:"cuda_graphs,flow" json:"cuda_graphs"` // which steps ran in CUDA graphs, see graphsOf
	Scheduling       []string   `yaml:"scheduling,flow" json:"scheduling"`   // asynchronous or synchronous
}

// Asked is what a prediction is for, in the axes of a domain, whose fields have the same units. A zero
// field is not known.
type Asked struct {
	InputTokens, OutputTokens int64   // of a request
	Clients                   int64   // of a closed loop, over all data-parallel ranks
	RateRPS                   float64 // requests per second of an open loop
	Workload                  bool    // arrivals and lengths of a file
	CachedShare               float64 // of each prompt that is in the prefix cache
	Parameters                float64 // 1e9
	ActiveParameters          float64 // that a token passes, 1e9
	BatchedTokens             int64   // max_num_batched_tokens
	Version                   string  // release of vLLM
	KVBytes                   float64 // of a cached value
	DP                        int64   // data-parallel ranks
	WeightsFloat32            bool
	LoRA                      bool
	Graphs                    string // see graphsOf
	Scheduling                string // see schedulingOf
	MaxNumSeqs                int64
	LargestGraph              int64    // tokens; 0: no graphs
	UnreadKeys                []string // of config.json, which may change a size
	Saturated                 bool     // more is asked for than the server does, or requests lose their cache
}

// AskedOf returns the axes of a deployment; those of the load are left for the caller to fill.
func AskedOf(d *deploy.Deployment) Asked {
	lora, _ := d.Engine.Extra["enable_lora"].(bool)
	parameters, active := parametersOf(d)
	return Asked{
		Parameters:       parameters,
		ActiveParameters: active,
		BatchedTokens:    d.Engine.MaxNumBatchedTokens,
		Version:          d.Engine.VLLMVersion,
		KVBytes:          d.Model.BytesPerKV,
		DP:               d.DP,
		WeightsFloat32:   d.Model.BytesPerActivation > 2,
		LoRA:             lora || d.Engine.Extra["lora_modules"] != nil,
		Graphs:           graphsOf(d),
		Scheduling:       schedulingOf(d),
		MaxNumSeqs:       d.Engine.MaxNumSeqs,
		LargestGraph:     largestGraphOf(d),
		UnreadKeys:       d.Model.UnknownKeys,
	}
}

// schedulingOf returns how a deployment's engine schedules, in the words of a domain.
func schedulingOf(d *deploy.Deployment) string {
	if d.Engine.IsAsync() {
		return "asynchronous"
	}
	return "synchronous"
}

// largestGraphOf returns the tokens of a deployment's largest CUDA graph; 0 without graphs.
func largestGraphOf(d *deploy.Deployment) int64 {
	largest := int64(0)
	for _, tokens := range d.GraphSizes() {
		largest = max(largest, tokens)
	}
	return largest
}

// parametersOf returns the parameters of a deployment's model and those that a token passes, in 1e9 and with
// three digits; 0 where its layers are not known.
func parametersOf(d *deploy.Deployment) (all, active float64) {
	if d.Model.Layered == nil && d.Model.NumLayers*d.Model.HiddenSize == 0 {
		return 0, 0
	}
	layers := d.Model.Layers()
	return stat.Round(float64(layers.TotalParams())/1e9, 3), stat.Round(float64(layers.ActiveParams())/1e9, 3)
}

// graphsOf returns which steps a deployment runs in CUDA graphs, in the words of a domain.
func graphsOf(d *deploy.Deployment) string {
	switch {
	case d.GraphSizes() == nil:
		return "no steps"
	case d.Engine.GraphsOfDecodesOnly():
		return "decodes alone"
	}
	return "all small steps"
}

// Factors from a measured value within which a prediction still counts as measured.
const (
	lengthFactor = 2 // of inputs in both directions, and of longer outputs
	// Shorter answers change little but the share of steps with prompts.
	shortAnswerFactor = 8
	fewClientsFactor  = 8
	moreClientsFactor = 1 // none: more clients than were measured are outside
	// A model of another size has other shapes, and the host takes another share of its steps.
	parametersFactor = 2
	batchedFactor    = 2
)

// Outside returns the axes on which a prediction lies outside of the measured domain, with the
// value asked for and the measured range.
func (m *Domain) Outside(a *Asked) (axes []string) {
	add := func(format string, args ...any) { axes = append(axes, fmt.Sprintf(format, args...)) }
	// between adds an axis whose value n is more than a factor of below under the measured range, or of above
	// over it.
	between := func(axis string, n int64, measured [2]int64, below, above int64) {
		switch {
		case n == 0 || n*below >= measured[0] && n <= measured[1]*above:
		case measured[0] == measured[1]:
			add("%s %d, measured %d", axis, n, measured[0])
		default:
			add("%s %d, measured %d to %d", axis, n, measured[0], measured[1])
		}
	}
	between("input tokens", a.InputTokens, m.InputTokens, lengthFactor, lengthFactor)
	between("output tokens", a.OutputTokens, m.OutputTokens, shortAnswerFactor, lengthFactor)
	between("clients", a.Clients, m.Clients, fewClientsFactor, moreClientsFactor)
	parameters := func(axis string, n float64, measured [2]float64) {
		switch {
		case n == 0 || measured[0] == 0 || n*parametersFactor >= measured[0] && n <= measured[1]*parametersFactor:
		case measured[0] == measured[1]:
			add("%s %ge9, measured %ge9", axis, n, measured[0])
		default:
			add("%s %ge9, measured %ge9 to %ge9", axis, n, measured[0], measured[1])
		}
	}
	parameters("parameters", a.Parameters, m.Parameters)
	if 2*m.ActiveParameters[1] < m.Parameters[1] { // experts; a token passes nearly all of a dense model
		parameters("parameters of a token", a.ActiveParameters, m.ActiveParameters)
	}
	between("max_num_batched_tokens", a.BatchedTokens, m.BatchedTokens, batchedFactor, batchedFactor)
	if a.Workload {
		add("arrivals and lengths of a workload, measured closed loops of equal requests")
	}
	if a.CachedShare > 0 {
		add("%.3g of each prompt in the prefix cache, measured without", a.CachedShare)
	}
	if a.RateRPS > 0 {
		add("arrivals at a rate, measured closed loops")
	}
	if r, known := vllm.ParseRelease(a.Version); known && len(m.Releases) > 0 {
		oldest, _ := vllm.ParseRelease(m.Releases[0])
		newest, _ := vllm.ParseRelease(m.Releases[len(m.Releases)-1])
		if r.Before(oldest) || newest.Before(r) {
			add("vLLM %s, measured %s", r, strings.Join(m.Releases, ", "))
		}
	}
	if a.KVBytes > 0 && !slices.ContainsFunc(m.KVBytes, func(b float64) bool { return math.Abs(b-a.KVBytes) < 0.01 }) {
		add("a KV cache of %g bytes a value, measured %v", a.KVBytes, m.KVBytes)
	}
	if a.DP > 1 {
		add("data parallelism %d, measured 1", a.DP)
	}
	if a.WeightsFloat32 {
		add("float32, measured bfloat16")
	}
	if a.LoRA {
		add("LoRA, measured without")
	}
	if a.Graphs != "" && len(m.Graphs) > 0 && !slices.Contains(m.Graphs, a.Graphs) {
		add("CUDA graphs of %s, measured of %s", a.Graphs, strings.Join(m.Graphs, " and "))
	}
	if a.Scheduling != "" && len(m.Scheduling) > 0 && !slices.Contains(m.Scheduling, a.Scheduling) {
		add("%s scheduling, measured %s", a.Scheduling, strings.Join(m.Scheduling, " and "))
	}
	perRank := (a.Clients + max(1, a.DP) - 1) / max(1, a.DP) // clients of the busiest engine
	if a.MaxNumSeqs > 0 && perRank > a.MaxNumSeqs {
		add("%d clients for a max_num_seqs of %d, measured no more clients than that", perRank, a.MaxNumSeqs)
	}
	if decodes := min(perRank, max(1, a.MaxNumSeqs)); a.LargestGraph > 0 && decodes > a.LargestGraph {
		add("%d requests beyond the largest CUDA graph of %d tokens, measured within", decodes, a.LargestGraph)
	}
	if len(a.UnreadKeys) > 0 {
		add("keys of config.json that are not read: %s", strings.Join(a.UnreadKeys, ", "))
	}
	if a.Saturated {
		add("a saturated server, measured within capacity")
	}
	return axes
}

// measuredOfAll returns the domain that all families together were measured in, for families that were not measured.
func (c *Corrections) measuredOfAll() (all Domain) {
	for i := range c.Judged {
		m := &c.Judged[i].Measured
		if i == 0 {
			all = *m
			all.KVBytes = slices.Clone(m.KVBytes)
			all.Graphs = slices.Clone(m.Graphs)
			all.Scheduling = slices.Clone(m.Scheduling)
			continue
		}
		for _, r := range []struct{ of, more *[2]int64 }{
			{&all.InputTokens, &m.InputTokens},
			{&all.OutputTokens, &m.OutputTokens},
			{&all.Clients, &m.Clients},
			{&all.BatchedTokens, &m.BatchedTokens},
		} {
			r.of[0] = min(r.of[0], r.more[0])
			r.of[1] = max(r.of[1], r.more[1])
		}
		for _, r := range []struct{ of, more *[2]float64 }{
			{&all.Parameters, &m.Parameters},
			{&all.ActiveParameters, &m.ActiveParameters},
		} {
			r.of[0] = math.Min(r.of[0], r.more[0])
			r.of[1] = math.Max(r.of[1], r.more[1])
		}
		all.KVBytes = slices.Concat(all.KVBytes, m.KVBytes)
		all.Graphs = slices.Concat(all.Graphs, m.Graphs)
		all.Scheduling = slices.Concat(all.Scheduling, m.Scheduling)
	}
	// Releases differ between families and say little of one that was not measured.
	all.Releases = nil
	all.KVBytes = distinct(all.KVBytes)
	all.Graphs = distinct(all.Graphs)
	all.Scheduling = distinct(all.Scheduling)
	return all
}

// Widen adds one measurement to the domain: its tokens and clients, and the deployment that was measured. kvBytes is
// the bytes of a cached value.
func (m *Domain) Widen(input, output, clients int64, d *deploy.Deployment, kvBytes float64) {
	span := func(of *[2]int64, n int64) {
		if of[0] == 0 || n < of[0] {
			of[0] = n
		}
		of[1] = max(of[1], n)
	}
	span(&m.InputTokens, input)
	span(&m.OutputTokens, output)
	span(&m.Clients, clients)
	span(&m.BatchedTokens, d.Engine.MaxNumBatchedTokens)
	spanOfSizes := func(of *[2]float64, n float64) {
		if of[0] == 0 || n < of[0] {
			of[0] = n
		}
		of[1] = math.Max(of[1], n)
	}
	parameters, active := parametersOf(d)
	spanOfSizes(&m.Parameters, parameters)
	spanOfSizes(&m.ActiveParameters, active)
	if graphs := graphsOf(d); !slices.Contains(m.Graphs, graphs) {
		m.Graphs = append(m.Graphs, graphs)
		slices.Sort(m.Graphs)
	}
	if scheduling := schedulingOf(d); !slices.Contains(m.Scheduling, scheduling) {
		m.Scheduling = append(m.Scheduling, scheduling)
		slices.Sort(m.Scheduling)
	}
	if r, known := vllm.ParseRelease(d.Engine.VLLMVersion); known && !slices.Contains(m.Releases, r.String()) {
		m.Releases = append(m.Releases, r.String())
		stat.SortStable(m.Releases, func(a, b string) int {
			ra, _ := vllm.ParseRelease(a)
			rb, _ := vllm.ParseRelease(b)
			if ra.Before(rb) {
				return -1
			}
			return 1
		})
	}
	if !slices.Contains(m.KVBytes, kvBytes) {
		m.KVBytes = append(m.KVBytes, kvBytes)
		slices.Sort(m.KVBytes)
	}
}
