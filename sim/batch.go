package sim

import (
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
)

// Batch is one step as sums over its sequences. A sequence has c tokens in KV
// before the step, a prompt of p tokens, and n tokens scheduled; a decode has
// c >= p and n = 1, everything else is prefill.
type Batch struct {
	StepID          int64
	StartUs         int64           // start of schedule()
	PrefillTokens   int64           // tokens
	DecodeTokens    int64           // tokens: one and its drafts for each decode request
	PrefillReqs     int64           // requests
	DecodeReqs      int64           // requests
	CausalWork      int64           // token pairs: sum over prefill of n*c + n(n+1)/2
	PrefillAttnWork int64           // sum over prefill of (c+n)*n, as version 1.0 has it
	PromptAttnTwice int64           // twice the sum over c < p of n*(p + n/2), the trained-physics form
	PromptTokens    int64           // tokens of chunks with c < p
	DecodeContext   int64           // tokens: sum over decodes of c+1, over each draft of one more
	PastPrompt      int64           // tokens: sum over chunks with c >= p of c
	KVRead          int64           // tokens: sum over all of c+n
	DecodeBlocks    int64           // blocks allocated to the decodes
	Running         int64           // requests running after admission
	Waiting         int64           // requests waiting after admission
	Preempted       int64           // requests preempted in this step
	PreemptionEMA   float64         // share of preempted requests, averaged; this step included
	StoreBlocks     int64           // blocks copied GPU->CPU with this step
	LoadBlocks      int64           // blocks copied CPU->GPU with this step
	Among           *features.Group // ranks that the step goes in lockstep with; nil: alone
	DraftTokens     int64           // of DecodeTokens those that verify drafts
	PrefillContext  int64           // tokens: sum over prefill of c

	reaches []model.Reach     // of the model's attention that is not full attention
	reached *features.Reached // sums within them; nil: not counted
}

// begin empties the batch for a step; pairs within the reaches are counted in sums.
func (b *Batch) begin(step, startUs int64, reaches []model.Reach, sums *features.Reached) {
	*b = Batch{StepID: step, StartUs: startUs}
	if len(reaches) > 0 {
		*sums = features.Reached{}
		b.reaches = reaches
		b.reached = sums
	}
}

// Tokens is everything scheduled in the step.
func (b *Batch) Tokens() int64 { return b.PrefillTokens + b.DecodeTokens }

// Add puts a sequence with n new tokens and the given blocks into the sums, with
// c tokens of it already in KV and a prompt of p tokens; sign -1 takes it out.
func (b *Batch) Add(c, p, n, blocks, sign int64) {
	if c < p || n != 1 {
		b.addPrefill(c, p, n, sign)
		return
	}
	b.reach(true, c, 1, sign)
	b.KVRead += sign * (c + 1)
	b.DecodeTokens += sign
	b.DecodeReqs += sign
	b.DecodeContext += sign * (c + 1)
	b.DecodeBlocks += sign * blocks
	b.PastPrompt += sign * c
}

// reach puts a sequence's pairs within the reaches into their sums.
func (b *Batch) reach(isDecode bool, c, n, sign int64) {
	if b.reached != nil {
		b.reached.Add(b.reaches, isDecode, c, n, sign)
	}
}

// AddVerify puts a decode of n tokens, n - 1 of them drafts, into the sums: it reads its
// KV once. The rest is as in Add.
func (b *Batch) AddVerify(c, n, blocks, sign int64) {
	b.reach(true, c, n, sign)
	b.KVRead += sign * (c + n)
	b.DecodeTokens += sign * n
	b.DraftTokens += sign * (n - 1)
	b.DecodeReqs += sign
	b.DecodeContext += sign * (n*c + n*(n+1)/2)
	b.DecodeBlocks += sign * blocks
	b.PastPrompt += sign * c
}

// AddPrefill puts a chunk of n tokens into the sums, with c tokens of the request
// already in KV and a prompt of p tokens.
func (b *Batch) AddPrefill(c, p, n int64) { b.addPrefill(c, p, n, 1) }

func (b *Batch) addPrefill(c, p, n, sign int64) {
	b.reach(false, c, n, sign)
	b.PrefillContext += sign * c
	b.KVRead += sign * (c + n)
	b.PrefillTokens += sign * n
	b.PrefillReqs += sign
	b.CausalWork += sign * (n*c + n*(n+1)/2)
	b.PrefillAttnWork += sign * (c + n) * n
	if c < p {
		b.PromptTokens += sign * n
		b.PromptAttnTwice += sign * n * (2*p + n)
	} else {
		b.PastPrompt += sign * c
	}
}

// AddDecodes puts n decodes into the sums, with context tokens in KV and blocks
// allocated to them, all together; within reaches they are not counted.
func (b *Batch) AddDecodes(n, context, blocks int64) {
	b.KVRead += context + n
	b.DecodeTokens += n
	b.DecodeReqs += n
	b.DecodeContext += context + n
	b.PastPrompt += context
	b.DecodeBlocks += blocks
}

// Regime of a step, the key of the residual quantiles.
const (
	RegimeDecode  = "decode"
	RegimePrefill = "prefill"
	regimeMixed   = "mixed"
)

// Regime names what the step did.
func (b *Batch) Regime() string {
	switch {
	case b.PrefillReqs == 0:
		return RegimeDecode
	case b.DecodeReqs == 0:
		return RegimePrefill
	}
	return regimeMixed
}

// Queue is what a request meets: the engine's state at its arrival (overhead)
// or at its finish (egress).
type Queue struct {
	NowUs         int64
	Running       int64 // requests
	Waiting       int64 // requests
	FreeBlocks    int64
	TotalBlocks   int64
	PreemptionEMA float64
	PromptTokens  int64
	CachedBlocks  int64 // blocks a prefix-cache lookup finds now (overhead only)
	OutputTokens  int64 // produced (egress only)
}

// BasisStep is the batch as the bases of the other models see it.
func (b *Batch) BasisStep() features.Step {
	return features.Step{
		PrefillTokens: float64(b.PromptTokens),
		DecodeTokens:  float64(b.Tokens() - b.PromptTokens),
		Requests:      float64(b.PrefillReqs + b.DecodeReqs),
		PrefillAttn:   float64(b.PromptAttnTwice) / 2,
		DecodeContext: float64(b.PastPrompt),
	}
}
