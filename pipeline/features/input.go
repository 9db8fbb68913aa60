package features

// StepInput is what one step did, as sums (spec#step-sums, spec#frozen-sourcing, spec#input-table).
// Fields of one version only are zero in the other.
type StepInput struct {
	PrefillTokens         float64 // tokens; phases by c, p, n in 1.1 (spec#phases), as labelled in 1.0
	DecodeTokens          float64 // tokens
	ScheduledTokens       float64 // tokens
	NumPrefillReqs        float64 // requests
	NumDecodeReqs         float64 // requests
	NumSampledSeqs        float64 // 1.1: sequences that get logits
	PrefillCausalWork     float64 // 1.1: token pairs, sum n*c + n(n+1)/2
	SumPrefillAttnWork    float64 // 1.0: sum (computed+n)*n
	DecodeContextTokens   float64 // tokens; definitions differ by version
	KVReadTokens          float64 // 1.1: tokens, sum c+n over all rows
	SumDecodeKVBlocks     float64 // 1.0: blocks
	RunningDepth          float64 // requests
	PreemptionEMA         float64 // preemptions per running request (spec#preemption-average)
	TransferBlocks        float64 // blocks GPU->CPU
	CPUResidentReadBlocks float64 // blocks CPU->GPU
}

// QueueInput is the queue and cache state a request meets (spec#queue-inputs).
type QueueInput struct {
	RunningDepth   float64 // requests
	WaitingDepth   float64 // requests
	KVUsageRatio   float64 // 0..1
	PromptTokens   float64 // tokens
	PrefixHitRatio float64 // 0..1
	KVFreeBytes    float64 // 1.0 (spec#kv-free-bytes)
	KVFreeBlocks   float64 // 1.1
	PreemptionEMA  float64
}
