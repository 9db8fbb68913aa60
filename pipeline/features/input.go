package features

// This file has the inputs of the features: the work of one step, and the state of the queue at an
// arrival.

import (
	"reflect"
)

// StepInput is the work of one step, as sums over its requests (spec#step-sums,
// spec#frozen-sourcing, spec#input-table). Fields that only one version uses are 0 in the others.
type StepInput struct {
	PrefillTokens         float64 `name:"prefill_tokens" unit:"tokens"` // tokens; phases by c, p, n in 1.1 (spec#phases), as labelled in 1.0
	DecodeTokens          float64 `name:"decode_tokens" unit:"tokens"`
	ScheduledTokens       float64 `name:"scheduled_tokens" unit:"tokens"`
	NumPrefillReqs        float64 `name:"num_prefill_reqs" unit:"requests"`
	NumDecodeReqs         float64 `name:"num_decode_reqs" unit:"requests"`
	NumSampledSeqs        float64 `name:"num_sampled_seqs" unit:"requests"`         // 1.1: sequences that get logits
	PrefillCausalWork     float64 `name:"prefill_causal_work" unit:"token pairs"`   // 1.1: token pairs, sum n*c + n(n+1)/2
	SumPrefillAttnWork    float64 `name:"sum_prefill_attn_work" unit:"token pairs"` // 1.0: sum (computed+n)*n
	DecodeContextTokens   float64 `name:"decode_context_tokens" unit:"tokens"`      // tokens; definitions differ by version
	KVReadTokens          float64 `name:"kv_read_tokens" unit:"tokens"`             // 1.1: tokens, sum c+n over all rows
	SumDecodeKVBlocks     float64 `name:"sum_decode_kv_blocks" unit:"blocks"`       // 1.0: blocks
	RunningDepth          float64 `name:"running_depth" unit:"requests"`
	PreemptionEMA         float64 `name:"preemption_ema" unit:"1"`                // preemptions per running request (spec#preemption-average)
	TransferBlocks        float64 `name:"transfer_blocks" unit:"blocks"`          // blocks GPU->CPU
	CPUResidentReadBlocks float64 `name:"cpu_resident_read_blocks" unit:"blocks"` // blocks CPU->GPU

	PrefillContext float64  // 1.3: tokens, sum c over prefill chunks
	Reached        *Reached // 1.3: sums within the reaches of [Space.Reaches]; nil: not counted, or full attention alone
}

// QueueInput is the queue and cache state at the arrival of a request (spec#queue-inputs).
type QueueInput struct {
	RunningDepth   float64 `name:"running_depth" unit:"requests"`
	WaitingDepth   float64 `name:"waiting_depth" unit:"requests"`
	KVUsageRatio   float64 `name:"kv_usage_ratio" unit:"1" range:"0..1"`
	PromptTokens   float64 `name:"prompt_tokens" unit:"tokens"`
	PrefixHitRatio float64 `name:"prefix_hit_ratio" unit:"1" range:"0..1"`
	KVFreeBytes    float64 `name:"kv_free_bytes" unit:"B"`       // 1.0 (spec#kv-free-bytes)
	KVFreeBlocks   float64 `name:"kv_free_blocks" unit:"blocks"` // 1.1
	PreemptionEMA  float64 `name:"preemption_ema" unit:"1"`
}

// field is one number of an input with the name that tables, formulas and golden vectors give it.
type field[T any] struct {
	name, unit string
	isFrac     bool // legal range 0..1
	at         func(*T) *float64
}

// fieldsOf returns the fields of an input that have a name tag.
func fieldsOf[T any]() (out []field[T]) {
	for i, f := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if f.Tag.Get("name") == "" {
			continue
		}
		out = append(out, field[T]{
			name:   f.Tag.Get("name"),
			unit:   f.Tag.Get("unit"),
			isFrac: f.Tag.Get("range") == "0..1",
			at: func(in *T) *float64 {
				return reflect.ValueOf(in).Elem().Field(i).Addr().Interface().(*float64)
			},
		})
	}
	return out
}

var (
	stepFields  = fieldsOf[StepInput]()
	queueFields = fieldsOf[QueueInput]()
)

// Quantity is one named number: an input, a dimension or a derived constant.
type Quantity struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Formula string  `json:"formula,omitempty"` // how it is derived; empty when given
}

// Values returns the input's fields in a fixed order under the names that tables, golden vectors
// and formulas use.
func (in *StepInput) Values() []Quantity {
	var out []Quantity
	for _, f := range stepFields {
		out = append(out, Quantity{Name: f.name, Value: *f.at(in), Unit: f.unit})
	}
	return out
}
