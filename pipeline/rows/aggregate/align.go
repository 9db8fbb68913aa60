package aggregate

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/stat"
	"github.com/blis-train/blis-train/trace"
)

// occupant is one request as its client saw it, on the log's clock once aligned.
type occupant struct {
	prompt, output  int64
	firstNs, lastNs int64 // first and last chunk
	ttftUs          float64
	passes          int64 // decodes so far
	done            int64 // prompt tokens computed so far
}

// Rules of the alignment of clients (spec#iteration-clients).
const (
	voteWindowNs   = 60_000_000    // first chunks reach their client within this of one another
	coarseWindowNs = 2_000_000_000 // the same where stamps are whole seconds
	mostVoters     = 3000          // passes that vote
	leastVotes     = 5
	voteShare      = 0.5 // of the voters must agree
)

// align moves the passes to the clock of the clients, plus the time a chunk takes
// to reach them: every pass with one context request votes with each first chunk
// of a prompt of its length, and the votes agree on one offset.
func (f *filler) align(a *audit) {
	f.found = nil
	byPrompt := map[int64][]int64{}
	for i := range f.run.Observed {
		o := &f.run.Observed[i]
		if !o.FirstChunkNs.OK || !o.LastChunkNs.OK || !o.PromptTokens.OK || !o.OutputTokens.OK {
			continue
		}
		f.found = append(f.found, occupant{prompt: o.PromptTokens.V, output: o.OutputTokens.V, firstNs: o.FirstChunkNs.V, lastNs: o.LastChunkNs.V,
			ttftUs: o.TTFTUs.Or(0)})
		byPrompt[o.PromptTokens.V] = append(byPrompt[o.PromptTokens.V], o.FirstChunkNs.V)
	}
	if len(f.found) == 0 {
		return
	}
	slices.SortStableFunc(f.found, func(a, b occupant) int { return cmp.Compare(a.firstNs, b.firstNs) })
	voters := f.voters(byPrompt)
	window := int64(voteWindowNs)
	if a.time != timeCadence {
		window = coarseWindowNs
	}
	offset, n := densest(f.votes(stat.Thin(voters, mostVoters), byPrompt), window)
	share := float64(n) / float64(max(1, min(len(voters), mostVoters)))
	if n < leastVotes || share < voteShare {
		f.finding(codeNotAligned, "%d requests of clients: %.0f %% of the passes with one prompt agree on an offset of the clocks, want %.0f %%",
			len(f.found), 100*share, 100*voteShare)
		f.found = nil
		return
	}
	f.out.OffsetNs = trace.Some(offset)
	f.move(byPrompt, offset, window)
	f.starts(a)
}

// move shifts the passes to the clients' clock. Where the passes' clock is known
// to a second only, each busy stretch goes where its own votes say.
func (f *filler) move(byPrompt map[int64][]int64, offset, window int64) {
	free := int64(0) // end of the stretch before
	f.stretches(func(from, to int) {
		shift := offset
		if window > voteWindowNs {
			var near []int64
			for i := from; i < to; i++ {
				if f.votesAt(i, byPrompt) {
					for _, first := range byPrompt[f.passes[i].prefillTokens] {
						if v := first - f.passes[i].endNs; v >= offset-window && v <= offset+window {
							near = append(near, v)
						}
					}
				}
			}
			slices.Sort(near)
			if at, n := densest(near, voteWindowNs); n > 0 {
				shift = at
			}
		}
		if from > 0 {
			first := &f.passes[from]
			shift = max(shift, free-first.endNs+int64((first.it.ElapsedUs+first.constantUs)*1000))
		}
		for i := from; i < to; i++ {
			p := &f.passes[i]
			p.endNs, p.tickNs = p.endNs+shift, p.tickNs+shift
		}
		free = f.passes[to-1].endNs
	})
}

// votesAt says whether a pass can vote: it ran one prompt, whole, of a length that
// clients sent.
func (f *filler) votesAt(i int, byPrompt map[int64][]int64) bool {
	p := &f.passes[i]
	return p.prefills == 1 && p.cut == 0 && p.hasEnd && len(byPrompt[p.prefillTokens]) > 0
}

func (f *filler) voters(byPrompt map[int64][]int64) []int {
	var out []int
	for i := range f.passes {
		if f.votesAt(i, byPrompt) {
			out = append(out, i)
		}
	}
	return out
}

// votes are the offsets that passes tell, sorted.
func (f *filler) votes(voters []int, byPrompt map[int64][]int64) []int64 {
	var out []int64
	for _, i := range voters {
		for _, first := range byPrompt[f.passes[i].prefillTokens] {
			out = append(out, first-f.passes[i].endNs)
		}
	}
	slices.Sort(out)
	return out
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
