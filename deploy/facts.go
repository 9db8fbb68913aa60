package deploy

import (
	"math"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// What follows from a description without being written in it. Every package asks
// here, so that a fit, a replay and a simulation of one run.yaml agree.

// asyncSchedulingSince is the first vLLM version that schedules asynchronously
// unless told otherwise (release notes of v0.14.0, "Breaking Changes").
var asyncSchedulingSince = [2]int{0, 14}

// IsAsync reports whether the engine schedules asynchronously: as stated, else
// as vLLM decides for its version. A version that cannot be read counts as the
// newest; [Deployment.Assumed] says so.
func (e *Engine) IsAsync() bool {
	if e.AsyncScheduling.OK {
		return e.AsyncScheduling.V
	}
	v, known := parseVersion(e.VLLMVersion)
	return (!known || !less(v, asyncSchedulingSince)) && e.asyncExcluded() == ""
}

// asyncExcluded names what makes vLLM switch asynchronous scheduling off when
// nobody asked for it, "" for nothing: the executor Ray, the CPU back end and
// drafters that it cannot overlap (vllm/config/vllm.py of 0.15.1 to 0.33.0).
func (e *Engine) asyncExcluded() string {
	switch {
	case e.Extra["distributed_executor_backend"] == "ray":
		return "the executor ray"
	case e.Extra["device"] == "cpu" || strings.HasSuffix(e.VLLMVersion, "+cpu"):
		return "the CPU back end"
	}
	if s, err := e.Speculation(); err == nil && s != nil && !s.IsEagle() {
		if since, ok := asyncDraftersSince[s.Method]; !ok || !e.isSince(since) {
			return "drafts by " + s.Method
		}
	}
	return ""
}

// asyncDraftersSince is the first release that schedules asynchronously with drafters
// other than EAGLE and MTP; n-gram from 0.33 on with model runner V2, its default.
var asyncDraftersSince = map[string][2]int{"ngram_gpu": {0, 19}, "dspark": {0, 26}, "dflash": {0, 23}, "draft_model": {0, 28},
	"ngram": {0, 33}}

// Assumed says what a fit or a simulation takes for granted: what is not modelled
// ([Deployment.NotModelled]), and what the description does not state and nothing
// else decides: async_assumed.
func (d *Deployment) Assumed() []trace.Finding {
	e, out := &d.Engine, d.NotModelled()
	if _, known := parseVersion(e.VLLMVersion); known || e.AsyncScheduling.OK || e.asyncExcluded() != "" {
		return out
	}
	return append(out, trace.Findingf(asyncAssumed,
		"%s: vllm.version %q is no release number; asynchronous scheduling is taken as on, the default since vLLM %d.%d, and the "+
			"scheduler's rules are those of the newest one",
		d.Name, e.VLLMVersion, asyncSchedulingSince[0], asyncSchedulingSince[1]))
}

// AssumedInSimulation is [Deployment.Assumed] and what only a simulation rests
// on: kv_blocks_assumed where the size of the KV cache was estimated.
func (d *Deployment) AssumedInSimulation() []trace.Finding {
	one := *d.Plain(false)
	one.DP = 1 // every rank is simulated
	out := append(one.Assumed(), d.estimated()...)
	if _, known := d.Engine.Release(); !known && d.Engine.AsyncScheduling.OK { // else said there
		out = append(out, trace.Findingf(asyncAssumed,
			"%s: vllm.version %q is no release number; the scheduler's rules are those of the newest one", d.Name, d.Engine.VLLMVersion))
	}
	if n, estimated, err := d.KVBlocks(); err == nil && estimated {
		out = append(out, trace.Findingf(kvBlocksAssumed, "%s: %s KV blocks estimated from memory", d.Name, trace.Thousands(n)))
	}
	return out
}

// MaxModelLen returns the longest sequence in tokens, prompt and output
// together: as stated, else the model's position limit, as vLLM takes it;
// unknown where the model has none.
func (d *Deployment) MaxModelLen() trace.Opt[int64] {
	return longest(d.Engine.MaxModelLen, d.Model.MaxPositionEmbeddings)
}

func longest(stated trace.Opt[int64], positions int64) trace.Opt[int64] {
	if !stated.OK && positions > 0 {
		return trace.Some(positions)
	}
	return stated
}

// LongestSequence returns the longest sequence the engine can hold in tokens:
// [Deployment.MaxModelLen], and no more than the KV cache has room for. Unknown
// where neither is known.
func (d *Deployment) LongestSequence() trace.Opt[int64] {
	n := d.MaxModelLen()
	if blocks, _, err := d.KVBlocks(); err == nil {
		u := d.KVUnits()
		return trace.Some(min(n.Or(math.MaxInt64), max(1, blocks/u.Blocks-u.Side(n.Or(maxTokens)))*u.Block))
	}
	return n
}

// Seats returns how many sequences of the given length run at a time: the
// engine's seats, and no more than the KV cache has room for; at least 1.
func (d *Deployment) Seats(tokens float64) int64 {
	n := d.Engine.MaxNumSeqs
	if blocks, _, err := d.KVBlocks(); err == nil {
		u := d.KVUnits()
		n = min(n, int64(float64(blocks/u.Blocks)/(math.Ceil(tokens/float64(u.Block))+float64(u.Side(int64(tokens))))))
	}
	return max(1, n)
}

// IsComposed reports whether the recording was put together from measured kernels
// and never ran as a server (`provenance` of run.yaml says so): its noise is drawn,
// and no machine could have been quieter.
func (d *Deployment) IsComposed() bool {
	return strings.Contains(strings.ToLower(d.Provenance), "composed")
}
