package sim

// This file describes one step, for latency models.

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
)

// Batch is one step as sums over its sequences, the input of a latency model. Letters below: a
// sequence has c tokens in KV before the step, a prompt of p tokens, and n tokens scheduled. It is
// a decode if c >= p and n = 1, otherwise a prefill.
type Batch struct {
	StepID          int64
	StartUs         int64           // start of schedule()
	PrefillTokens   int64           // tokens
	DecodeTokens    int64           // tokens: one and its drafts for each decode request
	PrefillReqs     int64           // requests
	DecodeReqs      int64           // requests
	CausalWork      int64           // token pairs: sum over prefill of n*c + n(n+1)/2
	PrefillAttnWork int64           // sum over prefill of (c+n)*n, the form of feature version 1.0
	PromptAttnTwice int64           // twice (to stay whole) the sum over c < p of n*(p + n/2), the form of BLIS's trained physics
	PromptTokens    int64           // tokens of chunks with c < p
	DecodeContext   int64           // tokens: sum over decodes of c+1, over each draft of one more
	PastPrompt      int64           // tokens: sum over chunks with c >= p of c
	KVRead          int64           // tokens: sum over all of c+n
	DecodeBlocks    int64           // blocks allocated to the decodes
	Running         int64           // requests running after admission
	Waiting         int64           // requests waiting after admission
	Preempted       int64           // requests preempted in this step
	PreemptionEMA   float64         // share of preempted requests, averaged; this step included
	StoreBlocks     int64           // blocks whose copy GPU->CPU begins with this step
	LoadBlocks      int64           // blocks whose copy CPU->GPU begins with this step
	Among           *features.Group // the ranks that run the step in lockstep; nil for an engine alone
	DraftTokens     int64           // the part of DecodeTokens that verifies drafts
	PrefillContext  int64           // tokens: sum over prefill of c
	LongestDecode   int64           // tokens: the largest c of a decode; removing a sequence leaves it

	reaches []model.Reach     // windows of the model's attention layers without full attention
	reached *features.Reached // sums within these windows; nil: not counted
}

// begin empties the batch for step number step, which starts at startUs. reaches are the windows of
// the model's attention layers without full attention, sums is memory for the sums within them.
func (b *Batch) begin(step, startUs int64, reaches []model.Reach, sums *features.Reached) {
	*b = Batch{StepID: step, StartUs: startUs}
	if len(reaches) > 0 {
		*sums = features.Reached{}
		b.reaches = reaches
		b.reached = sums
	}
}

// NewBatch returns an empty batch that also sums the token pairs within the reaches of a model's
// attention (deploy.Deployment.Reaches).
func NewBatch(reaches []model.Reach) *Batch {
	b := new(Batch)
	b.begin(0, 0, reaches, new(features.Reached))
	return b
}

// PrefillPairs returns the token pairs of prompts within the reach at that position.
func (b *Batch) PrefillPairs(reach int) int64 {
	if b.reached == nil {
		return b.CausalWork
	}
	return b.reached[reach].PrefillPairs
}

// Tokens returns the number of all scheduled tokens.
func (b *Batch) Tokens() int64 { return b.PrefillTokens + b.DecodeTokens }

// Add adds a sequence to the sums: n new tokens, c tokens already in KV, a prompt of p tokens, and
// its allocated blocks. Sign -1 removes it again.
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
	b.LongestDecode = max(b.LongestDecode, c)
	b.DecodeBlocks += sign * blocks
	b.PastPrompt += sign * c
}

// reach adds the token pairs of a sequence within attention windows, if the model has any.
func (b *Batch) reach(isDecode bool, c, n, sign int64) {
	if b.reached != nil {
		b.reached.Add(b.reaches, isDecode, c, n, sign)
	}
}

// AddVerify adds a decode of n tokens, n-1 of which verify drafts. All of them read the KV once.
// The other arguments are those of Add.
func (b *Batch) AddVerify(c, n, blocks, sign int64) {
	b.reach(true, c, n, sign)
	b.KVRead += sign * (c + n)
	b.DecodeTokens += sign * n
	b.DraftTokens += sign * (n - 1)
	b.DecodeReqs += sign
	b.DecodeContext += sign * (n*c + n*(n+1)/2)
	b.LongestDecode = max(b.LongestDecode, c)
	b.DecodeBlocks += sign * blocks
	b.PastPrompt += sign * c
}

// AddPrefill adds a chunk of n tokens of a prompt of p tokens, with c tokens of the request already
// in KV.
func (b *Batch) AddPrefill(c, p, n int64) { b.addPrefill(c, p, n, 1) }

// addPrefill does what AddPrefill does if sign is 1, and removes the chunk again if it is -1.
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

// AddDecodes adds n decodes that together have context tokens in KV and hold a number of blocks.
// The sums within attention windows cannot be computed from totals and stay as they are.
func (b *Batch) AddDecodes(n, context, blocks int64) {
	b.KVRead += context + n
	b.DecodeTokens += n
	b.DecodeReqs += n
	b.DecodeContext += context + n
	b.PastPrompt += context
	b.DecodeBlocks += blocks
}

// Regime returns the regime of the step: coeff.RegimeDecode, RegimePrefill or RegimeMixed.
func (b *Batch) Regime() string {
	switch {
	case b.PrefillReqs == 0:
		return coeff.RegimeDecode
	case b.DecodeReqs == 0:
		return coeff.RegimePrefill
	}
	return coeff.RegimeMixed
}

// Queue is the state of the engine that a request meets, the input of a Delay model: at its arrival
// for the overhead before the engine, at its finish for the egress after it.
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

// BasisStep returns the batch as the input of BLIS's latency models, which count the tokens of a chunk
// as prefill only if it begins inside the prompt.
func (b *Batch) BasisStep() features.Step {
	return features.Step{
		PrefillTokens: float64(b.PromptTokens),
		DecodeTokens:  float64(b.Tokens() - b.PromptTokens),
		Requests:      float64(b.PrefillReqs + b.DecodeReqs),
		PrefillAttn:   float64(b.PromptAttnTwice) / 2,
		DecodeContext: float64(b.PastPrompt),
	}
}
