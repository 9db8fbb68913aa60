package logged

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// occupant is one request as its client saw it, on the log's clock once aligned.
type occupant struct {
	prompt, output  int64
	firstNs, lastNs int64 // first and last chunk
	ttftUs          float64
	passes          int64            // decodes so far
	each            float64          // tokens of a decode
	done            int64            // prompt tokens in KV so far, those of the prefix cache included
	ended           trace.Opt[int64] // iteration that ended its prompt, where counting tells it (spec#counted-hits)
	whole           bool             // the answer came in one piece: nobody saw the first token
}

// Rules of the alignment of clients (spec#iteration-clients).
//
// With fewer than five requests that met an idle engine the overhead is the delay that most intervals [start of the
// pass before - send, start of the own - send] hold. Clocks and overhead end with the next line where first chunks
// follow that more closely (asynchronous engines that log while the batch runs).
const (
	voteWindowNs   = 60_000_000    // first chunks reach their client within this of one another
	coarseWindowNs = 2_000_000_000 // the same where stamps are whole seconds
	mostVoters     = 3000          // passes that vote
	leastVotes     = 5
	voteShare      = 0.5 // of the voters must agree
)

// align moves the passes to the clock of the clients, plus the time a chunk takes
// to reach them: every pass with one context request votes with each first chunk
// of a prompt of its length, and the votes agree on one offset. Where prefix hits
// shorten prompts, each first chunk of a prompt at least as long has a vote.
func (f *filler) align(a *audit) {
	v := &ballot{exact: map[int64][]int64{}}
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		samples := max(1, o.N.Or(1))
		output := o.OutputTokens.Or(o.Chunks.V) / samples
		each := 1.0 // who left early read a token a chunk
		if !o.LastChunkNs.OK || !o.PromptTokens.OK || output < 1 {
			continue
		}
		if n := int64(len(o.ChunkGapsUs)); f.out.Drafts && n > 0 { // one chunk a pass
			output, each = n+1, float64(output-1)/float64(n)
		}
		f.found = append(f.found, slices.Repeat([]occupant{{prompt: o.PromptTokens.V, output: output, each: each, firstNs: o.FirstChunkNs.V,
			lastNs: o.LastChunkNs.V, ttftUs: o.TTFTUs.Or(0), done: o.CachedTokens.Or(0), ended: o.Iteration,
			whole: !o.FirstChunkNs.OK}}, int(samples))...)
	}
	if f.recovered {
		f.out.OffsetNs = trace.Some(int64(0))
	}
	if len(f.found) == 0 {
		return
	}
	slices.SortStableFunc(f.found, func(a, b occupant) int { return cmp.Compare(a.firstNs, b.firstNs) })
	if f.recovered {
		return
	}
	for i := range f.found {
		if !f.found[i].whole {
			v.exact[f.found[i].prompt] = append(v.exact[f.found[i].prompt], f.found[i].firstNs)
		}
	}
	for i := range f.found {
		if o := &f.found[i]; o.ended.OK {
			v.paired = append(v.paired, *o)
		}
	}
	slices.SortStableFunc(v.paired, func(a, b occupant) int { return cmp.Compare(a.ended.V, b.ended.V) })
	if v.window = voteWindowNs; a.time != timeCadence {
		v.window = coarseWindowNs
	}
	offset, share := f.count(v)
	switch isPaired := len(v.paired)*2 >= len(f.found); {
	case share >= voteShare || len(v.paired) == 0:
	case !isPaired:
		v.paired = nil
		offset, share = f.count(v)
	case share > 0: // counting is sure of them
		share = 1
	}
	if share < voteShare {
		f.finding(codeFilledIn, "%d requests of clients: %.0f %% of the passes with one prompt agree on an offset of the clocks, want %.0f %%",
			len(f.found), 100*math.Max(0, share), 100*voteShare)
		f.found = nil
		return
	}
	f.out.OffsetNs = trace.Some(offset)
	f.move(v, offset)
	f.starts(a)
	f.place()
}

// place finds where the prompts of answers ended that came in one piece: a pass a token before the last.
func (f *filler) place() {
	for i := range f.found {
		if o := &f.found[i]; o.whole {
			last := sort.Search(len(f.passes), func(k int) bool { return f.passes[k].middle() > o.lastNs }) - 1
			if first := last + 1 - int(o.output); first >= 0 {
				o.ended = trace.Some(f.passes[last].it.Index + 1 - o.output)
				o.firstNs = f.passes[first].endNs
			}
		}
	}
	slices.SortStableFunc(f.found, func(a, b occupant) int { return cmp.Compare(a.firstNs, b.firstNs) })
}

// ballot is who may vote for what.
type ballot struct {
	exact  map[int64][]int64 // first chunks by length of the prompt, in order of time
	paired []occupant        // in order of the iteration that ended them; no others vote where there are any
	window int64             // ns that votes for one offset lie within
}

// may says whether a pass has a vote: it ran one whole prompt of a length that
// clients sent.
func (v *ballot) may(p *pass) bool {
	if len(v.paired) > 0 {
		return p.hasEnd && len(v.of(p)) > 0
	}
	return p.prefills == 1 && p.cut == 0 && p.hasEnd && len(v.exact[p.prefillTokens]) > 0
}

// of are the prompts that a pass ended.
func (v *ballot) of(p *pass) []occupant {
	at := func(index int64) int {
		i, _ := slices.BinarySearchFunc(v.paired, index, func(o occupant, index int64) int { return cmp.Compare(o.ended.V, index) })
		return i
	}
	return v.paired[at(p.it.Index):at(p.it.Index+1)]
}

// each calls use with the first chunks of a pass's vote that lie within [lo, hi].
func (v *ballot) each(p *pass, lo, hi int64, use func(firstNs int64)) {
	if len(v.paired) > 0 {
		for _, o := range v.of(p) {
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

// count finds the offset that most votes agree on, and the share of the voters by
// which these exceed what chance would put into any window.
func (f *filler) count(v *ballot) (offset int64, share float64) {
	var voters []int
	for i := range f.passes {
		if v.may(&f.passes[i]) {
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
		v.each(p, math.MinInt64, math.MaxInt64, func(first int64) { votes = append(votes, first-p.endNs) })
	}
	if len(votes) == 0 {
		return 0, 0
	}
	slices.Sort(votes)
	offset, n := densest(votes, v.window)
	span := votes[len(votes)-1] - votes[0] + v.window
	return offset, (float64(n) - float64(len(votes))*float64(v.window)/float64(span)) / float64(len(voters))
}

// move shifts the passes to the clients' clock. Where the passes' clock is known
// to a second only, each busy stretch goes where its own votes say.
func (f *filler) move(v *ballot, offset int64) {
	free := int64(0) // end of the stretch before
	f.stretches(func(from, to int) {
		shift := offset
		if v.window > voteWindowNs {
			var near []int64
			for i := from; i < to; i++ {
				if p := &f.passes[i]; v.may(p) {
					at := p.endNs + offset
					v.each(p, at-v.window, at+v.window, func(first int64) { near = append(near, first-p.endNs) })
				}
			}
			slices.Sort(near)
			if at, n := densest(near, voteWindowNs); n > 0 {
				shift = at
			}
		}
		if from > 0 {
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

// densest is the middle of the window that holds most of sorted votes, and how
// many it holds.
func densest(votes []int64, window int64) (middle int64, n int) {
	at := 0
	for lo, hi := 0, 0; lo < len(votes); lo++ {
		for hi < len(votes) && votes[hi]-votes[lo] <= window {
			hi++
		}
		if hi-lo > n {
			n, at = hi-lo, lo
		}
	}
	if n == 0 {
		return 0, 0
	}
	return votes[at+n/2], n
}
