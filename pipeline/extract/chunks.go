// This file recovers an engine's steps from the chunks that all of its clients
// received (spec#chunk-steps): chunks that come together end one step, so who decoded
// in it, over which contexts, and which prompts ended follow by counting.
//
// What comes in is every request one engine served; what goes out are iterations as
// Dynamo's forward-pass trace would have them, exact but for prompts that nothing
// delivered in between, and figures that say whether the clusters are steps at all.
//
// Where an unknown part of a prompt may have been cached, the steps before its first chunk are left out.

package extract

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Rules of the clusters.
const (
	shortStep   = 0.05 // quantile of the gaps between a request's chunks: a short step
	apart       = 0.5  // of it lies between clusters
	leastSteps  = 100
	wholeShare  = 0.95 // of the clusters must have one chunk of every running request
	tokensOff   = 0.02 // by which chunks may miss the tokens that were served
	mostJitter  = 0.1  // of a median step
	leastStamps = 1000 // ns: clients write microseconds
)

// quality says how good the clusters are.
type quality struct {
	Clusters   int
	WholeShare float64    // in which every running request has exactly one chunk
	TokenShare float64    // chunks over tokens served
	JitterUs   [3]float64 // a chunk behind the first of its cluster: p50, p90, p99
	StepUs     float64    // median distance of clusters with decodes
}

// Verdict says in words why the clusters are no steps; "" where they are.
func (q *quality) Verdict() string {
	switch {
	case q.Clusters < leastSteps:
		return "too few of them"
	case math.Abs(q.TokenShare-1) > tokensOff:
		return "chunks are not tokens, or some answers have none"
	case q.WholeShare < wholeShare:
		return "requests run through clusters without a chunk, as with other clients of the engine, or chunks of several tokens"
	case q.JitterUs[0] > mostJitter*q.StepUs:
		return "chunks of a step come too far apart"
	}
	return ""
}

// event is a chunk: the k-th of request i.
type event struct {
	ns   int64
	i, k int
}

// cluster are the chunks of one step.
type cluster struct {
	ns    int64 // the first of them
	from  int   // events[from:to]
	to    int
	whole bool
	held  bool // some request ran on from the cluster before

	decodes, context int64 // tokens in KV
	prompts          []part
	left             int64 // of the budget
	hidden           bool  // steps that delivered nothing lie before it
	incomplete       bool  // its prompts are not known
}

// part is what of a prompt a step computed.
type part struct{ tokens, before, prompt int64 }

// recoverSteps finds the steps behind the chunks of rows; budget is the engine's
// max_num_batched_tokens, most its long_prefill_token_threshold (0: none). A prompt whose
// part in the prefix cache is not known leaves the steps that computed it unknown.
func recoverSteps(rows []trace.ObservedRequest, e *vllm.Engine) ([]trace.Iteration, quality) {
	r := &recovery{rows: rows, budget: e.MaxNumBatchedTokens, most: e.LongPrefillThreshold, caching: e.PrefixCaching,
		clusterOf: make([][]int, len(rows))}
	if !r.read() {
		return nil, r.q
	}
	r.cluster()
	r.count()
	r.place()
	return r.iterations(), r.q
}

type recovery struct {
	rows         []trace.ObservedRequest
	budget, most int64
	caching      bool
	events       []event
	threshold    int64
	clusters     []cluster
	clusterOf    [][]int // of each chunk of each request
	from         int64   // before it nobody knows who ran
	q            quality
}

// read lists the chunks in order of time; false without any.
func (r *recovery) read() bool {
	n := stat.Sum(r.rows, func(o trace.ObservedRequest) int { return 1 + len(o.ChunkGapsUs) })
	r.events = make([]event, 0, n)
	gaps := make([]float64, 0, n)
	chunks, tokens := int64(0), int64(0)
	for i := range r.rows {
		o := &r.rows[i]
		tokens += o.OutputTokens.V
		if o.LoadOnly.V {
			r.from = max(r.from, o.SendNs.V)
		}
		if !o.FirstChunkNs.OK || !o.Chunks.OK && len(o.ChunkGapsUs) == 0 {
			continue
		}
		at := float64(o.FirstChunkNs.V)
		r.events = append(r.events, event{o.FirstChunkNs.V, i, 0})
		for k, gap := range o.ChunkGapsUs {
			at += gap * 1000
			r.events = append(r.events, event{int64(math.Round(at)), i, k + 1})
			gaps = append(gaps, gap*1000)
		}
		chunks += int64(1 + len(o.ChunkGapsUs))
		r.clusterOf[i] = make([]int, 1+len(o.ChunkGapsUs))
	}
	if len(gaps) == 0 || tokens == 0 {
		return false
	}
	r.q.TokenShare = float64(chunks) / float64(tokens)
	r.threshold = max(leastStamps, int64(apart*stat.Quantile(stat.Sorted(gaps), shortStep)))
	slices.SortFunc(r.events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(a.i, b.i), cmp.Compare(a.k, b.k))
	})
	return true
}

// cluster puts chunks that come together into one step, at most one of each request.
func (r *recovery) cluster() {
	seen := make([]int, len(r.rows)) // cluster of a request's latest chunk, from 1
	for n, e := range r.events {
		if n == 0 || e.ns-r.events[n-1].ns > r.threshold || seen[e.i] == len(r.clusters) {
			r.clusters = append(r.clusters, cluster{ns: e.ns, from: n, left: r.budget})
		}
		at := len(r.clusters)
		seen[e.i], r.clusters[at-1].to = at, n+1
		r.clusterOf[e.i][e.k] = at - 1
	}
}

// count says who decoded in each cluster, and whether everybody did who ran.
func (r *recovery) count() {
	running := make([]int, len(r.clusters)+1)
	for i := range r.rows {
		if at := r.clusterOf[i]; len(at) > 0 {
			running[at[0]]++
			running[at[len(at)-1]+1]--
		}
	}
	jitter := make([]float64, 0, len(r.events))
	steps := make([]float64, 0, len(r.clusters))
	now, whole := 0, 0
	for c := range r.clusters {
		cl := &r.clusters[c]
		now += running[c]
		cl.whole = cl.to-cl.from == now && cl.ns > r.from
		if cl.to-cl.from == now {
			whole++
		}
		for _, e := range r.events[cl.from:cl.to] {
			if e.ns > cl.ns || cl.to-cl.from > 1 {
				jitter = append(jitter, float64(e.ns-cl.ns)/1000)
			}
			if e.k == 0 {
				continue
			}
			cl.decodes++
			cl.context += r.rows[e.i].PromptTokens.V + int64(e.k) - 1
			cl.held = cl.held || r.clusterOf[e.i][e.k-1] == c-1
		}
		cl.left -= cl.decodes
		if cl.held {
			steps = append(steps, float64(cl.ns-r.clusters[c-1].ns)/1000)
		}
	}
	r.q.Clusters = len(r.clusters)
	r.q.WholeShare = float64(whole) / float64(max(1, len(r.clusters)))
	if len(jitter) > 0 {
		jitter = stat.Sorted(jitter)
		for k, p := range []float64{0.5, 0.9, 0.99} {
			r.q.JitterUs[k] = stat.Quantile(jitter, p)
		}
	}
	if len(steps) > 0 {
		r.q.StepUs = stat.Median(steps)
	}
}

// place says which steps computed each prompt: the one that its first chunk ends, and
// as many before it as its tokens did not fit into, each as far as its budget went.
func (r *recovery) place() {
	var ended []int
	for c := range r.clusters {
		cl := &r.clusters[c]
		ended = ended[:0]
		for _, e := range r.events[cl.from:cl.to] {
			if e.k == 0 {
				ended = append(ended, e.i)
			}
		}
		slices.SortStableFunc(ended, func(a, b int) int { return cmp.Compare(r.rows[a].SendNs.V, r.rows[b].SendNs.V) })
		for _, i := range ended {
			r.prompt(i, c)
		}
	}
}

// prompt places the prompt of request i, whose first chunk is in cluster c.
func (r *recovery) prompt(i, c int) {
	o := &r.rows[i]
	if r.caching && !o.KnowsCached() || !o.PromptTokens.OK {
		r.clusters[c].incomplete = true
		return
	}
	need := max(1, o.PromptTokens.V-o.CachedTokens.V)
	left := func(c int) int64 {
		if r.most > 0 {
			return min(r.most, r.clusters[c].left)
		}
		return r.clusters[c].left
	}
	first, sum := c, left(c)
	for sum < need && first > 0 && r.clusters[first].held && r.clusters[first-1].ns > o.SendNs.V && left(first-1) > 0 {
		first--
		sum += left(first)
	}
	if sum < need { // steps that delivered nothing computed the rest
		for k := first; k <= c; k++ {
			r.clusters[k].incomplete = true
		}
		r.clusters[first].hidden = true
		return
	}
	done := o.CachedTokens.V
	for k := first; k <= c; k++ {
		n := min(left(k), need)
		r.clusters[k].prompts = append(r.clusters[k].prompts, part{n, done, o.PromptTokens.V})
		r.clusters[k].left -= n
		done, need = done+n, need-n
	}
}

// iterations are the whole clusters as passes; others leave a gap in the index.
func (r *recovery) iterations() []trace.Iteration {
	n := stat.Count(r.clusters, func(x cluster) bool { return x.whole })
	out := make([]trace.Iteration, 0, n)
	index := int64(0)
	stamp := max(leastStamps, int64(r.q.JitterUs[0]*1000))
	for c := range r.clusters {
		cl := &r.clusters[c]
		if index++; cl.hidden {
			index++
		}
		if !cl.whole || cl.incomplete {
			continue
		}
		it := trace.Iteration{Index: index, Form: trace.IterationChunks, StampNs: trace.Some(cl.ns), StampStepNs: trace.Some(stamp),
			GenerationReqs: cl.decodes, GenerationTokens: cl.decodes, DecodeKVTokens: trace.Some(cl.context), ContextReqs: int64(len(cl.prompts)),
			ContextKVTokens: trace.Some(int64(0))}
		var lengths []float64
		for _, p := range cl.prompts {
			it.ContextTokens += p.tokens
			it.ContextKVTokens.V += p.before
			lengths = append(lengths, float64(p.prompt))
		}
		if len(lengths) > 0 {
			mean, sum := stat.Mean(lengths), 0.0
			for _, n := range lengths {
				sum += (n - mean) * (n - mean)
			}
			it.PromptVariance = trace.Some(sum / float64(len(lengths)))
		}
		if cl.held {
			it.ElapsedUs = float64(cl.ns-r.clusters[c-1].ns) / 1000
		}
		out = append(out, it)
	}
	return out
}
