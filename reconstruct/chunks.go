package reconstruct

// This file rebuilds steps from the times at which clients got the chunks of their answers.

import (
	"cmp"
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Limits of the rules by which chunks become clusters, and clusters steps (spec#chunk-steps).
const (
	shortStepQuantile = 0.05 // of the gaps between a request's chunks: the time of a short step
	clusterGapShare   = 0.5  // of a short step must lie between clusters
	minClusters       = 100  // too few for shares below
	minWholeShare     = 0.95 // of the clusters must have one chunk of every running request
	maxTokensOff      = 0.02 // by which the number of chunks may miss the number of tokens
	maxJitterShare    = 0.1  // of the median step, by which chunks of one step may be apart in the median
	stampResolutionNs = 1000 // clients write microseconds
)

// ChunkQuality has the figures that decide whether clusters of chunks are engine steps
// (spec#chunk-steps).
type ChunkQuality struct {
	Clusters   int
	WholeShare float64    // of the clusters in which every running request has exactly one chunk
	TokenShare float64    // chunks over tokens served
	JitterUs   [3]float64 // of a chunk behind the first of its cluster: p50, p90, p99
	StepUs     float64    // median time between clusters with decodes
}

// Problem returns why the clusters cannot be engine steps; "" if they can.
func (q *ChunkQuality) Problem() string {
	switch {
	case q.Clusters < minClusters:
		return "too few of them"
	case math.Abs(q.TokenShare-1) > maxTokensOff:
		return "chunks are not tokens, or some answers have none"
	case q.WholeShare < minWholeShare:
		return "requests run through clusters without a chunk, as with other clients of the engine, or chunks of several tokens"
	case q.JitterUs[0] > maxJitterShare*q.StepUs:
		return "chunks of a step come too far apart"
	}
	return ""
}

// FromChunks returns the steps of an engine, found from the times at which its clients received
// chunks of answers: chunks that arrive together were made by one step. rows are all requests that
// the engine served. The steps are exact iterations in the form of Dynamo's forward-pass trace. A
// gap in the index of iterations stands for steps that delivered no token, or whose prompts are
// unknown because part of a prompt may have come from the prefix cache.
func FromChunks(rows []trace.ObservedRequest, e *vllm.Engine) ([]trace.Iteration, ChunkQuality) {
	c := &chunkClusters{
		rows:          rows,
		prefixCaching: e.PrefixCaching,
		budget:        budgetOf(e, 0),
		clusterOf:     make([][]int, len(rows)),
	}
	// Without chunked prefill the budget is large enough for every prompt (vLLM refuses a smaller
	// one), so cutting at the budget is right in both cases.
	c.budget.Chunked = true
	if !c.listChunks() {
		return nil, c.quality
	}
	c.cluster()
	c.countDecodes()
	c.placePrompts()
	return c.iterations(), c.quality
}

// chunkClusters groups the chunks of all requests into steps.
type chunkClusters struct {
	rows          []trace.ObservedRequest
	prefixCaching bool
	budget        Budget // of a step without decodes

	chunks    []clientChunk // in order of time
	maxGapNs  int64         // between neighbouring chunks of one cluster
	knownNs   int64         // batches before this time are unknown: requests ran of which no times are known
	clusters  []cluster     // in order of time
	clusterOf [][]int       // by row, then by number of the chunk: index in clusters
	quality   ChunkQuality
}

// clientChunk is one chunk of the answer to a request: its time, the row of the request, and its
// number in the answer.
type clientChunk struct {
	ns     int64
	row    int
	number int
}

// cluster is the chunks that one step delivered.
type cluster struct {
	ns       int64 // of its first chunk
	from, to int   // range of chunkClusters.chunks
	isWhole  bool  // every running request has exactly one chunk in it
	follows  bool  // some request also has a chunk in the cluster before, so the engine was not idle in between

	decodes          int64        // requests that got another token than their first
	contextTokens    int64        // in the KV cache before these decodes
	prompts          []promptPart // that the step computed
	budget           Budget       // that is left for further prompts
	followsHidden    bool         // steps that delivered no token came before it
	hasUnknownPrompt bool
}

// promptPart is the chunk of one prompt that a step computed.
type promptPart struct {
	tokens       int64 // computed in the step
	tokensBefore int64 // in the KV cache before, those of the prefix cache included
	promptTokens int64 // of the whole prompt
}

// listChunks lists the chunks of all answers by time and sets the largest gap within a cluster. It
// returns false if there are no chunks.
func (c *chunkClusters) listChunks() bool {
	var gapsNs []float64 // between consecutive chunks of one answer
	var tokens int64     // of all answers
	for i := range c.rows {
		o := &c.rows[i] // the answer as its client saw it
		tokens += o.OutputTokens.V
		if o.LoadOnly.V {
			c.knownNs = max(c.knownNs, o.SendNs.V)
		}
		if !o.FirstChunkNs.OK || !o.Chunks.OK && len(o.ChunkGapsUs) == 0 {
			continue
		}
		at := float64(o.FirstChunkNs.V)
		c.chunks = append(c.chunks, clientChunk{ns: o.FirstChunkNs.V, row: i})
		for k, gapUs := range o.ChunkGapsUs {
			at += gapUs * 1000
			c.chunks = append(c.chunks, clientChunk{ns: int64(math.Round(at)), row: i, number: k + 1})
			gapsNs = append(gapsNs, gapUs*1000)
		}
		c.clusterOf[i] = make([]int, 1+len(o.ChunkGapsUs))
	}
	if len(gapsNs) == 0 || tokens == 0 {
		return false
	}
	c.quality.TokenShare = float64(len(c.chunks)) / float64(tokens)
	// Chunks of one step arrive closer together than half of a short step.
	shortStepNs := stat.Quantile(stat.Sorted(gapsNs), shortStepQuantile)
	c.maxGapNs = max(stampResolutionNs, int64(clusterGapShare*shortStepNs))
	stat.SortStable(c.chunks, func(a, b clientChunk) int {
		return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(a.row, b.row), cmp.Compare(a.number, b.number))
	})
	return true
}

// cluster groups chunks whose gaps are at most maxGapNs. A second chunk of a request starts a new
// cluster, because a step gives a request one token.
func (c *chunkClusters) cluster() {
	latest := make([]int, len(c.rows)) // number of clusters at the request's latest chunk
	for n, chunk := range c.chunks {
		isFar := n == 0 || chunk.ns-c.chunks[n-1].ns > c.maxGapNs
		isSecond := latest[chunk.row] == len(c.clusters) // the request has a chunk in the current cluster
		if isFar || isSecond {
			c.clusters = append(c.clusters, cluster{ns: chunk.ns, from: n, budget: c.budget})
		}
		at := len(c.clusters) - 1
		c.clusters[at].to = n + 1
		latest[chunk.row] = at + 1
		c.clusterOf[chunk.row][chunk.number] = at
	}
}

// countDecodes counts the decodes of each cluster and their context tokens, and whether every
// running request has exactly one chunk in it. A request runs from the cluster of its first chunk to that of
// its last. It also sets the quality of the clusters.
func (c *chunkClusters) countDecodes() {
	changes := make([]int, len(c.clusters)+1) // of the number of running requests
	for _, at := range c.clusterOf {
		if len(at) > 0 {
			changes[at[0]]++
			changes[at[len(at)-1]+1]--
		}
	}
	var jitterUs, stepsUs []float64 // of chunks after the first of their cluster; between clusters that follow each other
	running := 0                    // requests
	whole := 0                      // clusters with one chunk of each
	for n := range c.clusters {
		cl := &c.clusters[n]
		running += changes[n]
		size := cl.to - cl.from
		if size == running {
			whole++
			cl.isWhole = cl.ns > c.knownNs
		}
		for _, chunk := range c.chunks[cl.from:cl.to] {
			if size > 1 { // a single chunk has nothing to be apart from
				jitterUs = append(jitterUs, float64(chunk.ns-cl.ns)/1000)
			}
			if chunk.number == 0 {
				continue // the end of a prompt
			}
			cl.decodes++
			cl.contextTokens += c.rows[chunk.row].PromptTokens.V + int64(chunk.number) - 1
			if c.clusterOf[chunk.row][chunk.number-1] == n-1 {
				cl.follows = true
			}
		}
		cl.budget.Left -= cl.decodes
		if cl.follows {
			stepsUs = append(stepsUs, float64(cl.ns-c.clusters[n-1].ns)/1000)
		}
	}
	c.quality.Clusters = len(c.clusters)
	c.quality.WholeShare = float64(whole) / float64(max(1, len(c.clusters)))
	if len(jitterUs) > 0 {
		jitterUs = stat.Sorted(jitterUs)
		for k, p := range []float64{0.5, 0.9, 0.99} {
			c.quality.JitterUs[k] = stat.Quantile(jitterUs, p)
		}
	}
	if len(stepsUs) > 0 {
		c.quality.StepUs = stat.Median(stepsUs)
	}
}

// placePrompts assigns the chunks of all prompts to steps, by the time of the first token, then by
// the send time: the order in which the scheduler served them, first come, first served.
func (c *chunkClusters) placePrompts() {
	var ended []int // rows
	for n := range c.clusters {
		cl := &c.clusters[n]
		ended = ended[:0]
		for _, chunk := range c.chunks[cl.from:cl.to] {
			if chunk.number == 0 {
				ended = append(ended, chunk.row)
			}
		}
		stat.SortStable(ended, func(a, b int) int {
			return cmp.Compare(c.rows[a].SendNs.V, c.rows[b].SendNs.V)
		})
		for _, row := range ended {
			c.placePrompt(row, n)
		}
	}
}

// placePrompt assigns one prompt, whose first token came in cluster `last`, to that step and as
// many steps before it as its tokens need, each up to its budget.
func (c *chunkClusters) placePrompt(row, last int) {
	o := &c.rows[row]
	if c.prefixCaching && !o.KnowsCached() || !o.PromptTokens.OK {
		c.clusters[last].hasUnknownPrompt = true
		return
	}
	// Go back from the step of the first token until the steps have room for all tokens to compute.
	need := max(1, o.PromptTokens.V-o.CachedTokens.V)
	room := func(n int) int64 { return c.clusters[n].budget.Chunk(math.MaxInt64) }
	// mayStartBefore: the step before the n-th was just before it, ended after the request was sent, and had
	// room for a chunk.
	mayStartBefore := func(n int) bool {
		return n > 0 && c.clusters[n].follows && c.clusters[n-1].ns > o.SendNs.V && room(n-1) > 0
	}
	first := last
	sum := room(last)
	for sum < need && mayStartBefore(first) {
		first--
		sum += room(first)
	}
	if sum < need { // the rest was computed by steps that delivered no token
		for n := first; n <= last; n++ {
			c.clusters[n].hasUnknownPrompt = true
		}
		c.clusters[first].followsHidden = true
		return
	}
	// Fill the steps in order, each to its budget.
	done := o.CachedTokens.V
	for n := first; n <= last; n++ {
		cl := &c.clusters[n]
		tokens := cl.budget.Chunk(need)
		cl.prompts = append(cl.prompts, promptPart{tokens: tokens, tokensBefore: done, promptTokens: o.PromptTokens.V})
		cl.budget.Left -= tokens
		done += tokens
		need -= tokens
	}
}

// iterations returns the clusters whose batch is known, as iterations of the engine. Their indexes have
// gaps where steps are unknown.
func (c *chunkClusters) iterations() []trace.Iteration {
	var out []trace.Iteration
	index := int64(0)
	stampStepNs := max(stampResolutionNs, int64(c.quality.JitterUs[0]*1000)) // a step is stamped to within the jitter of its chunks
	for n := range c.clusters {
		cl := &c.clusters[n]
		index++
		if cl.followsHidden { // a step that delivered no token came before
			index++
		}
		if !cl.isWhole || cl.hasUnknownPrompt {
			continue
		}
		it := trace.Iteration{
			Index:            index,
			Form:             trace.IterationChunks,
			StampNs:          trace.Some(cl.ns),
			StampStepNs:      trace.Some(stampStepNs),
			GenerationReqs:   cl.decodes,
			GenerationTokens: cl.decodes,
			DecodeKVTokens:   trace.Some(cl.contextTokens),
			ContextReqs:      int64(len(cl.prompts)),
			ContextKVTokens:  trace.Some(int64(0)),
		}
		var lengths []float64
		for _, p := range cl.prompts {
			it.ContextTokens += p.tokens
			it.ContextKVTokens.V += p.tokensBefore
			lengths = append(lengths, float64(p.promptTokens))
		}
		if len(lengths) > 0 {
			mean := stat.Mean(lengths)
			squares := 0.0
			for _, length := range lengths {
				squares += (length - mean) * (length - mean)
			}
			it.PromptVariance = trace.Some(squares / float64(len(lengths)))
		}
		if cl.follows {
			it.ElapsedUs = float64(cl.ns-c.clusters[n-1].ns) / 1000
		}
		out = append(out, it)
	}
	return out
}
