package features

// field names one number of an input as golden vectors, tables and formulas do.
type field[T any] struct {
	name, unit string
	isFrac     bool // legal range 0..1
	at         func(*T) *float64
}

var stepFields = []field[StepInput]{
	{"prefill_tokens", "tokens", false, func(in *StepInput) *float64 { return &in.PrefillTokens }},
	{"decode_tokens", "tokens", false, func(in *StepInput) *float64 { return &in.DecodeTokens }},
	{"scheduled_tokens", "tokens", false, func(in *StepInput) *float64 { return &in.ScheduledTokens }},
	{"num_prefill_reqs", "requests", false, func(in *StepInput) *float64 { return &in.NumPrefillReqs }},
	{"num_decode_reqs", "requests", false, func(in *StepInput) *float64 { return &in.NumDecodeReqs }},
	{"num_sampled_seqs", "requests", false, func(in *StepInput) *float64 { return &in.NumSampledSeqs }},
	{"prefill_causal_work", "token pairs", false, func(in *StepInput) *float64 { return &in.PrefillCausalWork }},
	{"sum_prefill_attn_work", "token pairs", false, func(in *StepInput) *float64 { return &in.SumPrefillAttnWork }},
	{"decode_context_tokens", "tokens", false, func(in *StepInput) *float64 { return &in.DecodeContextTokens }},
	{"kv_read_tokens", "tokens", false, func(in *StepInput) *float64 { return &in.KVReadTokens }},
	{"sum_decode_kv_blocks", "blocks", false, func(in *StepInput) *float64 { return &in.SumDecodeKVBlocks }},
	{"running_depth", "requests", false, func(in *StepInput) *float64 { return &in.RunningDepth }},
	{"preemption_ema", "1", false, func(in *StepInput) *float64 { return &in.PreemptionEMA }},
	{"transfer_blocks", "blocks", false, func(in *StepInput) *float64 { return &in.TransferBlocks }},
	{"cpu_resident_read_blocks", "blocks", false, func(in *StepInput) *float64 { return &in.CPUResidentReadBlocks }},
}

var queueFields = []field[QueueInput]{
	{"running_depth", "requests", false, func(in *QueueInput) *float64 { return &in.RunningDepth }},
	{"waiting_depth", "requests", false, func(in *QueueInput) *float64 { return &in.WaitingDepth }},
	{"kv_usage_ratio", "1", true, func(in *QueueInput) *float64 { return &in.KVUsageRatio }},
	{"prompt_tokens", "tokens", false, func(in *QueueInput) *float64 { return &in.PromptTokens }},
	{"prefix_hit_ratio", "1", true, func(in *QueueInput) *float64 { return &in.PrefixHitRatio }},
	{"kv_free_bytes", "B", false, func(in *QueueInput) *float64 { return &in.KVFreeBytes }},
	{"kv_free_blocks", "blocks", false, func(in *QueueInput) *float64 { return &in.KVFreeBlocks }},
	{"preemption_ema", "1", false, func(in *QueueInput) *float64 { return &in.PreemptionEMA }},
}

// Quantity is one named number: an input, a dimension or a derived constant.
type Quantity struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Formula string  `json:"formula,omitempty"` // how it is derived; empty when given
}

// Values lists the input's fields in a fixed order under the names that tables,
// golden vectors and formulas use.
func (in *StepInput) Values() []Quantity {
	values := make([]Quantity, len(stepFields))
	for i, f := range stepFields {
		values[i] = Quantity{Name: f.name, Value: *f.at(in), Unit: f.unit}
	}
	return values
}
