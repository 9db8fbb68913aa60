package logged

// This file aligns the clock of clients with that of the engine's log.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// clientRequest is one request as its client saw it, on the log's clock once aligned.
type clientRequest struct {
	prompt  int64            // tokens
	output  int64            // tokens; with speculative decoding, passes
	firstNs int64            // first chunk
	lastNs  int64            // last chunk
	ttftUs  float64          // by the client
	passes  int64            // decodes so far, while contextsFromClients goes through the passes
	each    float64          // tokens of a decode: 1, more with speculative decoding
	done    int64            // prompt tokens in KV so far, those of the prefix cache included
	ended   trace.Opt[int64] // index of the iteration that ended its prompt, if the counts determine it (spec#counted-hits)
	whole   bool             // the answer came in one piece, so the first token has no stamp
}

// Rules of the alignment of clients (spec#iteration-clients).
const (
	voteWindowNs   = 60_000_000    // the delays of first chunks differ by at most this
	coarseWindowNs = 2_000_000_000 // the same where stamps are whole seconds
	mostVoters     = 3000          // passes that vote, which bounds the work
	leastVotes     = 5             // voters, of which fewer prove nothing
	voteShare      = 0.5           // of the voters must agree
)

// alignClients finds the offset from the passes' clock to that of the clients, which includes the
// time a chunk takes to reach them, and shifts the passes by it. Every pass that ran one whole prompt gives a
// vote for each first chunk of a prompt of that length: the offset with which the chunk came at the end of the
// pass. The offset with the most votes is used if enough passes agree. Otherwise the clients' requests are not
// used (f.requests becomes empty).
func (f *filler) alignClients(a *timeAudit) {
	v := &ballot{exact: map[int64][]int64{}}
	hasStamps := false
	// The clients' requests, one for each answer. A row with several answers (N) has their sum of tokens.
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		samples := max(1, o.N.Or(1))
		output := o.OutputTokens.Or(o.Chunks.V) / samples
		each := 1.0
		if !o.LastChunkNs.OK && !o.Iteration.OK || !o.PromptTokens.OK || output < 1 {
			continue
		}
		hasStamps = hasStamps || o.LastChunkNs.OK
		// With speculative decoding every chunk is one pass of several tokens.
		if gaps := int64(len(o.ChunkGapsUs)); f.out.Drafts && gaps > 0 {
			each = float64(output-1) / float64(gaps)
			output = gaps + 1
		}
		request := clientRequest{
			prompt:  o.PromptTokens.V,
			output:  output,
			each:    each,
			firstNs: o.FirstChunkNs.V,
			lastNs:  o.LastChunkNs.V,
			ttftUs:  o.TTFTUs.Or(0),
			done:    o.CachedTokens.Or(0),
			ended:   o.Iteration,
			whole:   !o.FirstChunkNs.OK,
		}
		for range samples {
			f.requests = append(f.requests, request)
		}
	}
	if f.isFromChunks {
		f.out.OffsetNs = trace.Some(int64(0))
	}
	if len(f.requests) == 0 {
		return
	}
	if !hasStamps {
		// Results without start times: the counts alone say which passes a request was in, and the passes keep
		// their own clock.
		stat.SortStable(f.requests, func(a, b clientRequest) int { return cmp.Compare(a.ended.V, b.ended.V) })
		return
	}
	stat.SortStable(f.requests, func(a, b clientRequest) int { return cmp.Compare(a.firstNs, b.firstNs) })
	if f.isFromChunks {
		return
	}
	// What votes: first chunks by the length of their prompt, and requests whose pass is known.
	for i := range f.requests {
		if !f.requests[i].whole {
			v.exact[f.requests[i].prompt] = append(v.exact[f.requests[i].prompt], f.requests[i].firstNs)
		}
	}
	for i := range f.requests {
		o := f.requests[i]
		if !o.ended.OK {
			continue
		}
		if o.whole { // the pass of the last token votes
			o.ended.V += o.output - 1
			o.firstNs = o.lastNs
		}
		v.paired = append(v.paired, o)
	}
	stat.SortStable(v.paired, func(a, b clientRequest) int { return cmp.Compare(a.ended.V, b.ended.V) })
	v.window = voteWindowNs
	if a.time != timeCadence {
		v.window = coarseWindowNs
	}
	// Requests whose pass is known vote for themselves; if they are few, all first chunks vote instead.
	offset, share := f.countVotes(v)
	switch isPaired := len(v.paired)*2 >= len(f.requests); {
	case share >= voteShare || len(v.paired) == 0:
	case !isPaired:
		v.paired = nil
		offset, share = f.countVotes(v)
	case share > 0: // pairs that the counts determine are certain, so any agreement above chance is enough
		share = 1
	}
	if share < voteShare {
		f.out.Apart = fmt.Sprintf("%d requests of clients: %.0f %% of the passes with one prompt agree on an offset of the clocks, want %.0f %%",
			len(f.requests), 100*math.Max(0, share), 100*voteShare)
		f.addFinding(codeFilledIn, "%s", f.out.Apart)
		f.requests = nil
		return
	}
	f.out.OffsetNs = trace.Some(offset)
	f.shiftPasses(v, offset)
	f.setStarts(a)
	f.placeWholeAnswers()
}

// placeWholeAnswers finds, for answers that came in one piece, the pass that ended the prompt: the
// last token was made by the last pass before the chunk, and each token before it took one pass.
func (f *filler) placeWholeAnswers() {
	for i := range f.requests {
		o := &f.requests[i]
		switch {
		case !o.whole:
		case o.ended.OK:
			first, ok := slices.BinarySearchFunc(f.passes, o.ended.V, func(p pass, index int64) int {
				return cmp.Compare(p.it.Index, index)
			})
			if ok {
				o.firstNs = f.passes[first].endNs
			}
		default: // the last pass whose middle is before the chunk made the last token
			last := sort.Search(len(f.passes), func(k int) bool { return f.passes[k].middle() > o.lastNs }) - 1
			if first := last + 1 - int(o.output); first >= 0 {
				o.ended = trace.Some(f.passes[last].it.Index + 1 - o.output)
				o.firstNs = f.passes[first].endNs
			}
		}
	}
	stat.SortStable(f.requests, func(a, b clientRequest) int { return cmp.Compare(a.firstNs, b.firstNs) })
}

// ballot has the first chunks that passes vote for, see alignClients.
type ballot struct {
	exact  map[int64][]int64 // stamps of first chunks (ns) by length of the prompt (tokens), in order of time
	paired []clientRequest   // requests whose pass is known, by its index; if any, only their passes vote
	window int64             // ns: votes within it are for the same offset
}

// canVote reports whether a pass votes: it ran exactly one whole prompt, of a length that clients
// sent.
func (v *ballot) canVote(p *pass) bool {
	if len(v.paired) > 0 {
		return p.hasEnd && len(v.promptsEndedBy(p)) > 0
	}
	return p.prefills == 1 && p.cutPrompts == 0 && p.hasEnd && len(v.exact[p.prefillTokens]) > 0
}

// promptsEndedBy returns the prompts that a pass ended.
func (v *ballot) promptsEndedBy(p *pass) []clientRequest {
	at := func(index int64) int {
		i, _ := slices.BinarySearchFunc(v.paired, index, func(o clientRequest, index int64) int {
			return cmp.Compare(o.ended.V, index)
		})
		return i
	}
	return v.paired[at(p.it.Index):at(p.it.Index+1)]
}

// eachVote calls use with the first chunks of a pass's vote that lie within [lo, hi].
func (v *ballot) eachVote(p *pass, lo, hi int64, use func(firstNs int64)) {
	if len(v.paired) > 0 {
		for _, o := range v.promptsEndedBy(p) {
			if o.firstNs >= lo && o.firstNs <= hi {
				use(o.firstNs)
			}
		}
		return
	}
	list := v.exact[p.prefillTokens]
	from, _ := slices.BinarySearch(list, lo)
	for _, first := range list[from:] {
		if first > hi {
			return
		}
		use(first)
	}
}

// countVotes returns the offset (ns) on which most votes agree, and the number of these votes, less what
// chance would put into any window, as a share of the voters.
func (f *filler) countVotes(v *ballot) (offset int64, share float64) {
	var voters []int
	for i := range f.passes {
		if v.canVote(&f.passes[i]) {
			voters = append(voters, i)
		}
	}
	if len(voters) < leastVotes {
		return 0, 0
	}
	voters = stat.Thin(voters, mostVoters)
	var votes []int64
	for _, i := range voters {
		p := &f.passes[i]
		v.eachVote(p, math.MinInt64, math.MaxInt64, func(first int64) { votes = append(votes, first-p.endNs) })
	}
	if len(votes) == 0 {
		return 0, 0
	}
	// By chance, votes are spread evenly over their span; these are subtracted.
	slices.Sort(votes)
	offset, n := densestWindow(votes, v.window)
	span := votes[len(votes)-1] - votes[0] + v.window
	return offset, (float64(n) - float64(len(votes))*float64(v.window)/float64(span)) / float64(len(voters))
}

// shiftPasses shifts the passes to the clients' clock. Where stamps are whole seconds, each busy
// stretch is shifted by the offset of its own votes.
func (f *filler) shiftPasses(v *ballot, offset int64) {
	free := int64(0) // end of the stretch before, on the clients' clock
	f.eachBusyStretch(func(from, to int) {
		shift := offset
		// The stamps of a stretch in whole seconds are off by the same part of a second, which its votes show.
		if v.window > voteWindowNs {
			var near []int64
			for i := from; i < to; i++ {
				if p := &f.passes[i]; v.canVote(p) {
					at := p.endNs + offset
					v.eachVote(p, at-v.window, at+v.window, func(first int64) { near = append(near, first-p.endNs) })
				}
			}
			slices.Sort(near)
			if at, n := densestWindow(near, voteWindowNs); n > 0 {
				shift = at
			}
		}
		if from > 0 { // stretches do not overlap
			first := &f.passes[from]
			shift = max(shift, free-first.endNs+trace.Ns(first.it.ElapsedUs+first.constantUs))
		}
		for i := from; i < to; i++ {
			p := &f.passes[i]
			p.endNs += shift
			p.tickNs += shift
		}
		free = f.passes[to-1].endNs
	})
}

// densestWindow returns the median vote of the window with the most of the sorted votes, and their
// number.
func densestWindow(votes []int64, window int64) (middle int64, n int) {
	at := 0
	for lo, hi := 0, 0; lo < len(votes); lo++ {
		for hi < len(votes) && votes[hi]-votes[lo] <= window {
			hi++
		}
		if hi-lo > n {
			n = hi - lo
			at = lo
		}
	}
	if n == 0 {
		return 0, 0
	}
	return votes[at+n/2], n
}
