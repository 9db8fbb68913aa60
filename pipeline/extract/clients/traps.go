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
	"github.com/blis-train/blis-train/trace/tracev2"
)

// traceFile is one TraceV2 file: its rows and what stands around them.
type traceFile struct {
	stem             string
	header           tracev2.Header
	from, to         int // of the rows
	counted          int // prompts that the server counted
	missing, unknown []string
}

func (c *Reader) stemAt(row int) string {
	for _, f := range c.traceFiles {
		if row >= f.from && row < f.to {
			return f.stem
		}
	}
	return ""
}

func (c *Reader) finding(code trace.Code, format string, args ...any) {
	c.Findings = append(c.Findings, trace.Findingf(code, format, args...))
}

// audit looks for the traps of the files (spec#client-traps).
func (c *Reader) audit(dep *deploy.Deployment) {
	for i := range c.traceFiles {
		f := &c.traceFiles[i]
		rows := c.Rows[f.from:f.to]
		c.columns(f)
		c.server(f, dep)
		if n := f.to - f.from; n > f.counted {
			c.finding(CodeClientFile, "%s: the server counted %d of %d prompts; the others are as their client says", f.stem, f.counted, n)
		}
		c.warmUp(f, rows)
		if ms := f.header.Network.RTTMs; ms > 0 {
			c.finding(CodeClientFile, "%s: the round trip takes %.3g ms by the file; it is part of TTFT and E2E and learned as overhead", f.stem, ms)
		}
	}
	c.order()
	c.tokens()
	c.inFlight()
	c.clock()
	c.shared()
	c.unit(dep)
	c.blocks(dep)
}

// blocks tells of a KV cache that is smaller than what requests held at once: the
// prompt and the tokens so far of each that was between its first and last one.
func (c *Reader) blocks(dep *deploy.Deployment) {
	total, estimated, err := dep.KVBlocks()
	if err != nil || dep.Engine.BlockSize < 1 || estimated {
		return
	}
	type edge struct{ at, n, base, slope float64 }
	var edges []edge
	for i := range c.Rows {
		r := &c.Rows[i]
		first := float64(r.SentNs() + trace.Ns(r.TTFTUs.V))
		last := float64(r.SentNs() + trace.Ns(r.E2EUs.V))
		if dep.Engine.PrefixCaching && !r.CachedTokens.OK || r.CachedTokens.V > 0 || r.PrefixTokens.V > 0 {
			return // shared blocks are held once
		}
		if !r.TTFTUs.OK || !(last > first) {
			continue
		}
		slope := float64(r.OutputTokens.V) / (last - first)
		base := float64(r.PromptTokens.V) - slope*first
		edges = append(edges, edge{first, 1, base, slope}, edge{last, -1, -base, -slope})
	}
	stat.SortStable(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	var now edge
	most, running := 0.0, 0.0
	for _, e := range edges {
		if held := now.base + now.slope*e.at; held > most {
			most, running = held, now.n
		}
		now.n += e.n
		now.base += e.base
		now.slope += e.slope
	}
	if held := most / float64(dep.Engine.BlockSize); held > beyondCache*float64(total) {
		c.finding(source.CodeRunContradicted, "%.0f requests were between first and last token at once, with %.0f tokens in %.0f KV blocks of %d; run.yaml "+
			"gives the engine %d: it preempted some, or has more",
			running, most, held, dep.Engine.BlockSize, total)
	}
}

// beyondCache is by how much more than the cache requests must hold, since tokens are
// taken to come evenly.
const beyondCache = 1.02

// unit tells of times that no device can have: those of another unit.
func (c *Reader) unit(dep *deploy.Deployment) {
	least, most, ok := dep.TokenTimesUs()
	if !ok {
		return
	}
	var each []float64
	for i := range c.Rows {
		if r := &c.Rows[i]; r.TTFTUs.OK && r.E2EUs.OK && r.OutputTokens.V > 1 && r.Success.V {
			each = append(each, (r.E2EUs.V-r.TTFTUs.V)/float64(r.OutputTokens.V-1))
		}
	}
	if len(each) < leastAnswers {
		return
	}
	if us := stat.Median(each); us < least || us > most {
		c.finding(source.CodeRunContradicted, "a token takes %.3g ms in the median, want %.3g to %.3g: reading the weights takes %.3g; "+
			"the times are of another unit", us/1e3, least/1e3, most/1e3, 2*least/1e3)
	}
}

// columns tells of columns that vary by version.
func (c *Reader) columns(f *traceFile) {
	var words []string
	if len(f.missing) > 0 {
		words = append(words, "lacks "+strings.Join(f.missing, ", ")+", which count as unknown")
	}
	if len(f.unknown) > 0 {
		words = append(words, "has "+strings.Join(f.unknown, ", ")+", which nobody here knows")
	}
	if len(words) > 0 {
		c.finding(CodeClientFile, "%s: %s", f.stem, strings.Join(words, "; "))
	}
}

// server compares the header's server with run.yaml and lists what neither states.
func (c *Reader) server(f *traceFile, dep *deploy.Deployment) {
	s, e := &f.header.Server, &dep.Engine
	var unlike []string
	differ := func(name string, header, run int64) {
		if header > 0 && run > 0 && header != run {
			unlike = append(unlike, fmt.Sprintf("%s %d against %d", name, header, run))
		}
	}
	differ("tensor_parallel", s.TensorParallel, dep.TP)
	differ("max_num_seqs", s.MaxNumSeqs, e.MaxNumSeqs)
	differ("block_size", s.BlockSize, e.BlockSize)
	differ("max_model_len", s.MaxModelLen, e.MaxModelLen.Or(0))
	if len(unlike) > 0 {
		c.finding(source.CodeRunContradicted, "%s: the header says %s in run.yaml", f.stem, strings.Join(unlike, ", "))
	}
	var assumed []string
	if !e.KVBlocksGPU.OK {
		if n, _, err := dep.KVBlocks(); err == nil {
			assumed = append(assumed, fmt.Sprintf("kv_blocks_total_gpu %d, estimated from memory", n))
		} else {
			assumed = append(assumed, "kv_blocks_total_gpu without any limit")
		}
	}
	if n := dep.MaxModelLen(); !e.MaxModelLen.OK && n.OK {
		assumed = append(assumed, fmt.Sprintf("max_model_len %d, the model's", n.V))
	}
	if !e.AsyncScheduling.OK {
		assumed = append(assumed, fmt.Sprintf("async_scheduling %v, by version", e.IsAsync()))
	}
	if len(assumed) > 0 {
		c.finding(CodeClientFile, "%s: the header names the server %q and the model %q; neither it nor run.yaml states %s",
			f.stem, s.Type, s.Model, strings.Join(assumed, "; "))
	}
}

// warmUp marks the rows whose state at the start nobody knows: those sent before the
// longest answer of the file could have ended that began with the first of them.
func (c *Reader) warmUp(f *traceFile, rows []trace.ObservedRequest) {
	w := int64(f.header.WarmUpRequests)
	if w <= 0 || len(rows) == 0 {
		return
	}
	first := int64(math.MaxInt64)
	longest := 0.0
	present := 0
	for i := range rows {
		r := &rows[i]
		first = min(first, r.SentNs())
		longest = math.Max(longest, r.E2EUs.Or(0))
		if id, err := strconv.ParseInt(r.ID, 10, 64); err == nil && id < w {
			present++
		}
	}
	if int64(present)*2 >= w {
		for i := range rows {
			if id, err := strconv.ParseInt(rows[i].ID, 10, 64); err == nil && id < w {
				rows[i].LoadOnly = trace.Some(true)
			}
		}
		c.finding(CodeClientFile, "%s: warm_up_requests is %d, and %d of them stand in the file; they are load and compared with nothing",
			f.stem, w, present)
		return
	}
	drained, n := first+trace.Ns(longest), 0
	for i := range rows {
		if rows[i].SentNs() < drained {
			rows[i].LoadOnly = trace.Some(true)
			n++
		}
	}
	c.finding(CodeClientFile, "%s: %d requests of the warm-up are not in the file but were in the server; the longest answer took %.1f s, "+
		"so the %d of %d rows sent in that time are load and compared with nothing", f.stem, w, longest/1e6, n, len(rows))
}

// order tells of rows that do not come as they were sent.
func (c *Reader) order() {
	late := 0
	for i := 1; i < len(c.Rows); i++ {
		if a, b := &c.Rows[i-1], &c.Rows[i]; a.Source == b.Source && a.Line < b.Line && b.SentNs() < a.SentNs() {
			late++
		}
	}
	if late > 0 {
		c.finding(CodeClientFile, "%d of %d rows were sent before the row above them; they are sorted", late, len(c.Rows))
	}
}

// Rules of token counts: by how many chunks an answer may differ.
const (
	mostly       = 0.8 // of the answers show it
	leastAnswers = 5
	moreChunks   = 1.02 // chunks per token, in all: lengths were counted from text
	twoAToken    = 1.6  // stamps per token: each has two, and they are no chunks
)

// tokens compares chunks with tokens: one each, one more, or too few tokens.
func (c *Reader) tokens() {
	n := 0
	one := 0
	chunks := int64(0)
	tokens := int64(0)
	for i := range c.Rows {
		r := &c.Rows[i]
		if !comparable(r) {
			continue
		}
		n++
		if chunks, tokens = chunks+r.Chunks.V, tokens+r.OutputTokens.V; r.Chunks.V == r.OutputTokens.V+1 {
			one++
		}
	}
	switch ratio := float64(chunks) / float64(tokens); {
	case n < leastAnswers:
	case float64(one) >= mostly*float64(n):
		for i := range c.Rows {
			if r := &c.Rows[i]; comparable(r) && r.Chunks.V == r.OutputTokens.V+1 {
				dropChunk(r)
			}
		}
		c.finding(CodeClientFile, "%d of %d answers have one chunk more than tokens; the one without a token is left out", one, n)
	case ratio >= twoAToken:
		for i := range c.Rows {
			if r := &c.Rows[i]; comparable(r) {
				r.Chunks = trace.Opt[int64]{}
				r.ChunkGapsUs = nil
			}
		}
		c.finding(CodeClientFile, "%d answers have %.2f stamps a token: they are not chunks and are left out", n, ratio)
	case ratio > moreChunks:
		for i := range c.Rows {
			if r := &c.Rows[i]; comparable(r) && r.Chunks.V > r.OutputTokens.V {
				r.OutputTokens = r.Chunks
			}
		}
		c.finding(CodeClientFile, "%d answers have %d chunks and %d tokens, %.0f %% too few: no chunk is without a token, so chunks count", n,
			chunks, tokens, 100*(1-1/ratio))
	}
}

// comparable says that an answer has both counts.
func comparable(r *trace.ObservedRequest) bool {
	return r.Success.Or(true) && r.Chunks.V > 1 && r.OutputTokens.V > 0 && r.N.Or(1) == 1
}

// dropChunk leaves out the chunk without a token: the nearer of the first and last to
// its neighbour.
func dropChunk(r *trace.ObservedRequest) {
	r.Chunks.V--
	n := len(r.ChunkGapsUs)
	if n < 1 {
		return
	}
	if first, last := r.ChunkGapsUs[0], r.ChunkGapsUs[n-1]; n > 1 && first < last {
		r.ChunkGapsUs = r.ChunkGapsUs[1:]
		if r.FirstChunkNs.OK {
			r.FirstChunkNs.V += trace.Ns(first)
			r.TTFTUs = gapUs(r.SendNs, r.FirstChunkNs)
		}
		return
	} else if r.LastChunkNs.OK {
		r.LastChunkNs.V -= trace.Ns(last)
		r.E2EUs = gapUs(r.SendNs, r.LastChunkNs)
	}
	r.ChunkGapsUs = r.ChunkGapsUs[:n-1]
}

// Rules of a client's limit.
const (
	leastCap   = 4    // requests in flight
	capSends   = 20   // that met the maximum, at least
	capShare   = 0.05 // of the sends
	closedSent = 0.9  // of the sends at the maximum: a closed loop, which says so itself
	atOnce     = 0.1  // of the mean gap between sends: this soon behind an answer is because of it
)

// inFlight finds a flat maximum of requests in flight.
func (c *Reader) inFlight() {
	type edge struct {
		ns   int64
		step int
	}
	var edges []edge
	for i := range c.Rows {
		r := &c.Rows[i]
		end := r.LastChunkNs.Or(r.EndNs.V)
		if from := r.SentNs(); end > from && from != 0 {
			edges = append(edges, edge{from, 1}, edge{end, -1})
		}
	}
	stat.SortStable(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.ns, b.ns), cmp.Compare(a.step, b.step)) })
	if len(edges) == 0 {
		return
	}
	type count struct{ sends, follow int }
	counts := map[int]count{}
	gap := atOnce * float64(edges[len(edges)-1].ns-edges[0].ns) / float64(len(edges)/2)
	now := 0
	most := 0
	all := 0
	for i, e := range edges {
		if now += e.step; e.step > 0 {
			n := counts[now]
			n.sends++
			if i > 0 && edges[i-1].step < 0 && float64(e.ns-edges[i-1].ns) < gap {
				n.follow++
			}
			counts[now] = n
			most, all = max(most, now), all+1
		}
	}
	at := counts[most].sends
	isFlat := at >= capSends && float64(at) >= capShare*float64(all) && at >= counts[most-1].sends && 2*counts[most].follow >= at
	if most < leastCap || !isFlat || float64(at) > closedSent*float64(all) {
		return
	}
	c.finding(CodeCapped, "the client kept at most %d requests in flight, and sent %d of %d requests at that limit: the recorded send "+
		"times are replayed, and the verdict is for information only", most, at, all)
}

// wallYear is a stamp that only the wall clock has: 2001.
const wallYear = int64(1e18)

// clock tells of stamps on the wall clock.
func (c *Reader) clock() {
	n := stat.Count(c.Rows, func(o trace.ObservedRequest) bool { return o.SendNs.V > wallYear })
	if n > 0 {
		c.finding(CodeClientFile, "the stamps of %d of %d requests are of the wall clock: a step of it within the run would stand in their "+
			"times", n, len(c.Rows))
	}
}

// shared tells of prompts that share prefixes by the file; what the server counted stands in
// the account of cached tokens.
func (c *Reader) shared() {
	if n := stat.Count(c.Rows, func(r trace.ObservedRequest) bool { return r.PrefixGroup.OK && r.PrefixTokens.V > 0 }); n > 0 {
		c.finding(CodeClientFile, "%d of %d requests share prefixes by the file", n, len(c.Rows))
	}
}
