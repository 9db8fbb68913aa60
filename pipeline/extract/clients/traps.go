package clients

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file looks for known errors of client files (spec#client-traps). It corrects those for which the file
// has the right values, and reports the others.

// addFinding adds a finding about the files.
func (c *Reader) addFinding(code trace.Code, format string, args ...any) {
	c.Findings = append(c.Findings, trace.Findingf(code, format, args...))
}

// findTraps looks for known errors in all files that were read. The order of the checks matters: those
// that remove a TTFT come before those that use it, and what a client or server states comes before what
// is inferred from times.
func (c *Reader) findTraps(dep *deploy.Deployment) {
	for i := range c.traceFiles {
		f := &c.traceFiles[i]
		c.reportColumns(f)
		c.compareHeader(f, dep)
		if n := f.to - f.from; n > f.serverCounted {
			c.addFinding(CodeClientFile,
				"%s: the server counted %d of %d prompts; the others have the client's counts", f.stem,
				f.serverCounted, n)
		}
		c.markWarmUp(f)
		if ms := f.header.Network.RTTMs; ms > 0 {
			c.addFinding(CodeClientFile,
				"%s: the round trip takes %.3g ms by the file; it is part of TTFT and E2E and learned as overhead",
				f.stem, ms)
		}
	}
	c.reportStated(dep)
	c.reportOrder()
	c.reportNoStart()
	c.reportUncounted()
	c.dropWholeAnswers(dep.Engine.SpeculativeDecoding)
	c.compareChunksWithTokens()
	c.dropStatedLate()
	c.dropStatedHidden()
	c.dropHiddenFirst(dep)
	c.dropUncounted()
	c.dropImpossible(dep)
	c.reportServerTimes()
	c.findCap()
	c.reportWallClock()
	c.reportSharedPrefixes()
	c.checkTimeUnit(dep)
	c.checkKVBlocks(dep)
}

// reportColumns reports columns that vary by version.
func (c *Reader) reportColumns(f *traceFile) {
	var parts []string
	if len(f.missingColumns) > 0 {
		parts = append(parts, "lacks "+strings.Join(f.missingColumns, ", ")+", which count as unknown")
	}
	if len(f.unknownColumns) > 0 {
		parts = append(parts, "has "+strings.Join(f.unknownColumns, ", ")+", which are not known and not read")
	}
	if len(parts) > 0 {
		c.addFinding(CodeClientFile, "%s: %s", f.stem, strings.Join(parts, "; "))
	}
}

// compareHeader compares the server of a trace's header with run.yaml, and lists the settings
// that neither states, with the values that are assumed.
func (c *Reader) compareHeader(f *traceFile, dep *deploy.Deployment) {
	server := &f.header.Server
	engine := &dep.Engine
	settings := []struct {
		key         string // of run.yaml
		name        string // in the header
		header, run int64  // 0: not stated
	}{
		{"tensor_parallel_size", "tensor_parallel", server.TensorParallel, dep.TP},
		{"vllm.max_num_seqs", "max_num_seqs", server.MaxNumSeqs, engine.MaxNumSeqs},
		{"vllm.block_size", "block_size", server.BlockSize, engine.BlockSize},
		{"vllm.max_model_len", "max_model_len", server.MaxModelLen, engine.MaxModelLen.Or(0)},
	}
	for _, s := range settings {
		if s.header > 0 && s.run > 0 && s.header != s.run {
			c.Findings = append(c.Findings, trace.Findingf(source.CodeRunContradicted,
				"%s: the header states %s %d, run.yaml %d", f.stem, s.name, s.header, s.run).About(s.key))
		}
	}
	var assumed []string
	if !engine.KVBlocksGPU.OK {
		if n, _, err := dep.KVBlocks(); err == nil {
			assumed = append(assumed, fmt.Sprintf("kv_blocks_total_gpu %d, estimated from memory", n))
		} else {
			assumed = append(assumed, "kv_blocks_total_gpu without any limit")
		}
	}
	if n := dep.MaxModelLen(); !engine.MaxModelLen.OK && n.OK {
		assumed = append(assumed, fmt.Sprintf("max_model_len %d, the model's", n.V))
	}
	if !engine.AsyncScheduling.OK {
		assumed = append(assumed, fmt.Sprintf("async_scheduling %v, by version", engine.IsAsync()))
	}
	if len(assumed) > 0 {
		c.addFinding(CodeClientFile,
			"%s: the header names the server %q and the model %q; neither it nor run.yaml states %s",
			f.stem, server.Type, server.Model, strings.Join(assumed, "; "))
	}
}

// markWarmUp marks the warm-up requests of a trace, which a replay sends as load but compares with
// nothing. If the file does not contain them, the server's state at the start is unknown. Then
// requests are marked that were sent before the longest answer in the file could have ended, had it
// begun with the first request.
func (c *Reader) markWarmUp(f *traceFile) {
	rows := c.Requests[f.from:f.to]
	warmUps := int64(f.header.WarmUpRequests)
	if warmUps <= 0 || len(rows) == 0 {
		return
	}
	isOfWarmUp := func(r *trace.ObservedRequest) bool { // warm-up requests have the first ids
		id, err := strconv.ParseInt(r.ID, 10, 64)
		return err == nil && id < warmUps
	}
	present := int64(0)
	firstNs := int64(math.MaxInt64)
	longestUs := 0.0
	for i := range rows {
		r := &rows[i]
		firstNs = min(firstNs, r.SentNs())
		longestUs = math.Max(longestUs, r.E2EUs.Or(0))
		if isOfWarmUp(r) {
			present++
		}
	}
	if present*2 >= warmUps { // the file contains the warm-up
		for i := range rows {
			if isOfWarmUp(&rows[i]) {
				rows[i].LoadOnly = trace.Some(true)
			}
		}
		c.addFinding(CodeClientFile,
			"%s: warm_up_requests is %d, and the file has %d of them; they are load and compared with nothing",
			f.stem, warmUps, present)
		return
	}
	drainedNs := firstNs + trace.Ns(longestUs) // by then the last request of the warm-up has ended
	marked := 0
	for i := range rows {
		if rows[i].SentNs() < drainedNs {
			rows[i].LoadOnly = trace.Some(true)
			marked++
		}
	}
	c.addFinding(CodeClientFile,
		"%s: %d requests of the warm-up are not in the file but were in the server; the longest answer took %.1f "+
			"s, so the %d of %d requests sent in that time are load and compared with nothing", f.stem, warmUps,
		longestUs/1e6, marked, len(rows))
}

// reportOrder reports requests that are not in the order in which they were sent.
func (c *Reader) reportOrder() {
	late := 0
	for i := 1; i < len(c.Requests); i++ {
		a := &c.Requests[i-1]
		b := &c.Requests[i]
		if a.Source == b.Source && a.Line < b.Line && b.SentNs() < a.SentNs() {
			late++
		}
	}
	if late > 0 {
		c.addFinding(CodeClientFile,
			"%d of %d requests were sent before the one above them in the file; they are sorted", late,
			len(c.Requests))
	}
}

// Rules for comparing the chunks of answers with their tokens.
const (
	leastAnswers      = 5    // for a comparison
	leastOneMoreShare = 0.8  // of the answers must have one chunk more than tokens
	chunksPerToken    = 1.02 // above it, over all answers, the client counted the tokens itself, from the text, and too few
	stampsPerToken    = 1.6  // above it each token has two stamps, and they are no chunks
)

// compareChunksWithTokens corrects answers in which the numbers of chunks and of tokens disagree in
// a systematic way: one chunk too many in each, two stamps for each token, or too few tokens.
func (c *Reader) compareChunksWithTokens() {
	var answers []*trace.ObservedRequest // that have both counts
	oneMore := 0                         // of them, answers with one chunk more than tokens
	chunks := int64(0)
	tokens := int64(0)
	for i := range c.Requests {
		r := &c.Requests[i]
		if !r.Success.Or(true) || r.Chunks.V <= 1 || r.OutputTokens.V <= 0 || r.N.Or(1) != 1 {
			continue
		}
		answers = append(answers, r)
		chunks += r.Chunks.V
		tokens += r.OutputTokens.V
		if r.Chunks.V == r.OutputTokens.V+1 {
			oneMore++
		}
	}
	n := len(answers)
	if n < leastAnswers {
		return
	}
	ratio := float64(chunks) / float64(tokens)
	switch {
	case float64(oneMore) >= leastOneMoreShare*float64(n):
		for _, r := range answers {
			if r.Chunks.V == r.OutputTokens.V+1 {
				dropEmptyChunk(r)
			}
		}
		c.addFinding(CodeClientFile,
			"%d of %d answers have one chunk more than tokens; the one without a token is not used", oneMore, n)
	case ratio >= stampsPerToken:
		for _, r := range answers {
			r.Chunks = trace.Opt[int64]{}
			r.ChunkGapsUs = nil
		}
		c.addFinding(CodeClientFile,
			"%d answers have %.2f stamps a token: they are not chunks and are not used", n, ratio)
	case ratio > chunksPerToken:
		for _, r := range answers {
			if r.Chunks.V > r.OutputTokens.V {
				r.OutputTokens = r.Chunks
			}
		}
		c.addFinding(CodeClientFile,
			"%d answers have %d chunks and %d tokens, %.0f %% too few: no chunk is without a token, so chunks count", n,
			chunks, tokens, 100*(1-1/ratio))
	}
}

// dropEmptyChunk removes the chunk without a token: the first or the last, whichever is nearer to
// its neighbour, because it is sent together with another chunk of the same pass.
func dropEmptyChunk(r *trace.ObservedRequest) {
	r.Chunks.V--
	n := len(r.ChunkGapsUs)
	if n < 1 {
		return
	}
	first := r.ChunkGapsUs[0]
	last := r.ChunkGapsUs[n-1]
	if n > 1 && first < last {
		r.ChunkGapsUs = r.ChunkGapsUs[1:]
		if r.FirstChunkNs.OK {
			r.FirstChunkNs.V += trace.Ns(first)
			r.TTFTUs = sinceUs(r.SendNs, r.FirstChunkNs)
		}
		return
	}
	r.ChunkGapsUs = r.ChunkGapsUs[:n-1]
	if r.LastChunkNs.OK {
		r.LastChunkNs.V -= trace.Ns(last)
		r.E2EUs = sinceUs(r.SendNs, r.LastChunkNs)
	}
}

// Rules for a client that limits its requests in flight.
const (
	leastCap       = 4    // requests in flight, below which a maximum is reached often by chance
	leastCapSends  = 20   // sends that reached the maximum
	leastCapShare  = 0.05 // share of all sends that reached it
	mostCapShare   = 0.9  // above this share the load is a closed loop, which is stated elsewhere
	followGapShare = 0.1  // of the mean gap between sends: a send this soon after an answer was caused by it
)

// findCap looks for a client that limited its requests in flight: their number has a flat maximum,
// which is filled again right after answers. Arrivals then followed the server.
func (c *Reader) findCap() {
	type edge struct {
		ns     int64
		change int // of the requests in flight: +1 a send, -1 an end
	}
	var edges []edge
	for i := range c.Requests {
		r := &c.Requests[i]
		sent := r.SentNs()
		end := r.LastChunkNs.Or(r.EndNs.V)
		if end > sent && sent != 0 {
			edges = append(edges, edge{sent, 1}, edge{end, -1})
		}
	}
	if len(edges) == 0 {
		return
	}
	stat.SortStable(edges, func(a, b edge) int { // ends before sends at the same time
		return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(a.change, b.change))
	})
	sends := len(edges) / 2
	followGapNs := followGapShare * float64(edges[len(edges)-1].ns-edges[0].ns) / float64(sends)

	sendsAt := map[int]int{}   // number of sends, by the requests in flight that they made
	followsAt := map[int]int{} // of those, the sends right after an answer
	inFlight := 0
	most := 0
	for i, e := range edges {
		inFlight += e.change
		if e.change < 0 {
			continue
		}
		sendsAt[inFlight]++
		if i > 0 && edges[i-1].change < 0 && float64(e.ns-edges[i-1].ns) < followGapNs {
			followsAt[inFlight]++
		}
		most = max(most, inFlight)
	}
	// With a limit many sends reach the maximum, at least as many as the number below it, and most of them
	// come right after an answer.
	atMost := sendsAt[most]
	isFlat := atMost >= leastCapSends && float64(atMost) >= leastCapShare*float64(sends) && atMost >= sendsAt[most-1]
	isRefilled := 2*followsAt[most] >= atMost
	isClosedLoop := float64(atMost) > mostCapShare*float64(sends)
	if most < leastCap || !isFlat || !isRefilled || isClosedLoop {
		return
	}
	c.addFinding(CodeCapped, "the client kept at most %d requests in flight, and sent %d of %d requests at that "+
		"limit: a replay takes the recorded send times, so its verdict is for information only, unless the load is "+
		"replayed as a closed loop", most, atMost, sends)
}

// leastWallNs is later than any stamp of a monotonic clock: 2001 on the wall clock.
const leastWallNs = int64(1e18)

// reportWallClock reports stamps of the wall clock.
func (c *Reader) reportWallClock() {
	n := 0
	for i := range c.Requests {
		if c.Requests[i].SendNs.V > leastWallNs {
			n++
		}
	}
	if n > 0 {
		c.addFinding(CodeClientFile,
			"the stamps of %d of %d requests are of the wall clock: a step of it within the run would be in their times", n, len(c.Requests))
	}
}

// reportSharedPrefixes reports prompts that share prefixes by the file. What the server counted
// is in the account of cached tokens.
func (c *Reader) reportSharedPrefixes() {
	n := 0
	for i := range c.Requests {
		if r := &c.Requests[i]; r.PrefixGroup.OK && r.PrefixTokens.V > 0 {
			n++
		}
	}
	if n > 0 {
		c.addFinding(CodeClientFile, "%d of %d requests share prefixes by the file", n, len(c.Requests))
	}
}

// checkTimeUnit reports token times that the hardware cannot have, which suggests another unit.
func (c *Reader) checkTimeUnit(dep *deploy.Deployment) {
	bounds, ok := dep.TokenTimes()
	if !ok {
		return
	}
	var tokenUs []float64
	for i := range c.Requests {
		r := &c.Requests[i]
		if r.TTFTUs.OK && r.E2EUs.OK && r.OutputTokens.V > 1 && r.Success.V {
			tokenUs = append(tokenUs, (r.E2EUs.V-r.TTFTUs.V)/float64(r.OutputTokens.V-1))
		}
	}
	if len(tokenUs) < leastAnswers {
		return
	}
	if us := stat.Median(tokenUs); us < bounds.LeastUs || us > bounds.MostUs {
		c.addFinding(source.CodeRunContradicted,
			"a token takes %.3g ms in the median, want %.3g to %.3g: reading the weights takes %.3g; the times "+
				"are of another unit", us/1e3, bounds.LeastUs/1e3, bounds.MostUs/1e3, bounds.ReadUs/1e3)
	}
}

// mostOfCache is the ratio of the tokens of requests to the KV cache from which on they contradict
// the stated size of the cache. Their tokens at a moment are estimated by assuming that output
// comes evenly, which may be off by a little.
const mostOfCache = 1.02

// checkKVBlocks reports a stated KV cache that is smaller than what requests used at once: the
// prompt and the tokens so far of each request between its first and last token. It reports nothing
// if blocks may be shared, or if the size of the cache is an estimate.
func (c *Reader) checkKVBlocks(dep *deploy.Deployment) {
	total, isEstimate, err := dep.KVBlocks()
	if err != nil || dep.Engine.BlockSize < 1 || isEstimate {
		return
	}
	// Between its first and its last token a request has base + slope*time tokens: its prompt, and output
	// that grows evenly. At the first token an edge adds its figures to those of all running requests (now),
	// and at the last an edge with their negatives takes them away. The sum is largest just before an edge.
	type edge struct{ ns, requests, base, slope float64 }
	var edges []edge
	for i := range c.Requests {
		r := &c.Requests[i]
		// Blocks of this prompt may be shared with others, so they cannot be added up.
		if dep.Engine.PrefixCaching && !r.CachedTokens.OK || r.CachedTokens.V > 0 || r.PrefixTokens.V > 0 {
			return
		}
		first := float64(r.SentNs() + trace.Ns(r.TTFTUs.V))
		last := float64(r.SentNs() + trace.Ns(r.E2EUs.V))
		if !r.TTFTUs.OK || !(last > first) {
			continue
		}
		slope := float64(r.OutputTokens.V) / (last - first)
		base := float64(r.PromptTokens.V) - slope*first
		edges = append(edges, edge{first, 1, base, slope}, edge{last, -1, -base, -slope})
	}
	stat.SortStable(edges, func(a, b edge) int { return cmp.Compare(a.ns, b.ns) })
	var now edge      // the sum over the running requests
	mostTokens := 0.0 // at once
	running := 0.0    // requests at that time
	for _, e := range edges {
		if tokens := now.base + now.slope*e.ns; tokens > mostTokens {
			mostTokens = tokens
			running = now.requests
		}
		now.requests += e.requests
		now.base += e.base
		now.slope += e.slope
	}
	blocks := mostTokens / float64(dep.Engine.BlockSize)
	if blocks > mostOfCache*float64(total) {
		c.addFinding(source.CodeRunContradicted,
			"%.0f requests were between first and last token at once, with %.0f tokens in %.0f KV blocks of %d; "+
				"run.yaml gives the engine %d: it preempted some, or has more", running, mostTokens, blocks,
			dep.Engine.BlockSize, total)
	}
}
