package rows

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

// A run of more recorded steps than SliceSteps is read in slices of that length with SliceMargin
// steps around each (spec#slices).
const (
	SliceSteps  = 1 << 18
	SliceMargin = 4096
)

// Join adds the rows of the next slice of the run.
func (t *Table) Join(next *Table) {
	t.alignVariants(next)
	next.alignVariants(t)
	var behind []column
	next.each(func(c column) { behind = append(behind, c) })
	t.each(func(c column) { c.join(behind[0]); behind = behind[1:] })
	t.Read += next.Read
	t.Kept += next.Kept
	t.Findings = append(t.Findings, next.Findings...)
	for _, c := range next.Dropped {
		t.drop(c.Code, c.N)
	}
	for j, n := range next.Hits {
		t.Hits[j] += n
	}
	for j := range next.Min {
		t.Min[j], t.Max[j] = math.Min(t.Min[j], next.Min[j]), math.Max(t.Max[j], next.Max[j])
	}
	t.check()
}

// alignVariants gives the table's variants the columns that differ in the other's.
func (t *Table) alignVariants(other *Table) {
	for k := range t.Variants {
		v := &t.Variants[k]
		for _, j := range other.Variants[k].Cols {
			if at, known := slices.BinarySearch(v.Cols, j); !known {
				v.Cols, v.Values = slices.Insert(v.Cols, at, j), slices.Insert(v.Values, at, t.column(j, t.Kept))
			}
		}
	}
}

const second = int64(1e9)

// ticks marks the passes whose end crosses a whole second, by the stamps.
func (f *filler) ticks() {
	for i := 1; i < len(f.passes); i++ {
		a, b := f.passes[i-1].it, f.passes[i].it
		p := &f.passes[i]
		if p.tick = p.next && a.StampNs.OK && b.StampNs.OK && b.StampNs.V/second > a.StampNs.V/second; p.tick {
			p.tickNs = b.StampNs.V / second * second
		}
	}
}

// stretches calls use with every range [from, to) of passes between which nothing
// was idle.
func (f *filler) stretches(use func(from, to int)) {
	from := 0
	for i := 1; i <= len(f.passes); i++ {
		if i == len(f.passes) || !f.passes[i].held {
			use(from, i)
			from = i
		}
	}
}

// tickTime is the busy time between ticks, s.
func (f *filler) tickTime() float64 {
	f.ticks()
	total := int64(0)
	f.stretches(func(from, to int) {
		first, last := int64(0), int64(0)
		for i := from + 1; i < to; i++ {
			if p := &f.passes[i]; p.tick {
				if first == 0 {
					first = p.tickNs
				}
				last = p.tickNs
			}
		}
		total += last - first
	})
	return float64(total) / 1e9
}

// slope is a pooled regression of what ticks leave unexplained on the passes before
// them.
type slope struct{ sxx, sxy float64 }

// add takes the ticks of one busy stretch: a second passes while the pass runs
// whose line is the first with the new stamp, so time of the ticks less the
// elapsed times up to the middle of that pass grows by the constant with every
// pass.
func (s *slope) add(passes []pass) (ticks int) {
	var at, rest []float64
	sum := 0.0
	for i := range passes {
		p := &passes[i]
		sum += p.it.ElapsedUs
		if i > 0 && p.tick {
			at = append(at, float64(i)-0.5)
			rest = append(rest, float64(p.tickNs-passes[0].it.StampNs.V)/1000-(sum-p.it.ElapsedUs/2))
		}
	}
	mx, my := stat.Mean(at), stat.Mean(rest)
	for k := range at {
		s.sxx += (at[k] - mx) * (at[k] - mx)
		s.sxy += (at[k] - mx) * (rest[k] - my)
	}
	return max(0, len(at)-1)
}

// blockTicks is how many seconds of busy time a constant is read from: the machine
// drifts.
const blockTicks = 20

// tickConstant finds the constant of every pass from whole seconds, in blocks of
// busy time, and their mean. ok is false without two ticks in one stretch.
func (f *filler) tickConstant(out *trace.TimeAudit) (c float64, ok bool) {
	f.ticks()
	var all, block slope
	from, ticks := 0, 0
	endBlock := func(to int) {
		if block.sxx > 0 {
			for i := from; i < to; i++ {
				f.passes[i].constantUs = math.Max(0, block.sxy/block.sxx)
			}
		} else if from > 0 {
			for i := from; i < to; i++ {
				f.passes[i].constantUs = f.passes[from-1].constantUs
			}
		}
		from = to
		ticks = 0
		block = slope{}
	}
	f.stretches(func(a, b int) {
		all.add(f.passes[a:b])
		if ticks += block.add(f.passes[a:b]); ticks >= blockTicks {
			endBlock(b)
		}
	})
	endBlock(len(f.passes))
	if all.sxx == 0 {
		return 0, false
	}
	elapsed := 0.0
	constants := 0.0
	n := 0
	for i := range f.passes {
		if p := &f.passes[i]; p.held {
			elapsed += p.it.ElapsedUs
			constants += p.constantUs
			n += 1
		}
	}
	c = constants / float64(max(1, n))
	if raw := all.sxy / all.sxx; raw < 0 {
		c = raw
	}
	if total := elapsed + c*float64(n); total > 0 {
		out.SumOverWall = trace.Some(elapsed / total)
	}
	return c, true
}

// clock puts the passes on one clock: when each ended, and began where that is
// known.
func (f *filler) clock(a *audit) {
	switch a.time {
	case timeCadence:
		for i := range f.passes {
			p := &f.passes[i]
			p.endNs = p.it.StampNs.V
			p.hasEnd = p.it.StampNs.OK
		}
	case timeElapsed:
		f.rebuild()
		if c := a.constantUs; a.figures.ConstantUs.OK {
			f.finding(codeFilledIn, "elapsed plus %.2f ms a pass is the step time", c/1000)
		} else {
			f.finding(codeFilledIn, "elapsed is the step time as it stands: nothing tells what lies between passes")
		}
	case timeTicks:
		f.interpolate()
	}
	f.starts(a)
}

// starts says when each pass began: where the one before ended, or, behind idle
// time, elapsed and constant before its own end; unknown where elapsed is not its
// own time.
func (f *filler) starts(a *audit) {
	for i := range f.passes {
		p := &f.passes[i]
		own := p.endNs - trace.Ns(p.it.ElapsedUs+p.constantUs)
		isNext := i > 0 && p.next && p.hasEnd && f.passes[i-1].hasEnd
		if isNext {
			before := f.passes[i-1].endNs
			p.idle = !p.held && (!a.sync || float64(own-before)/1000 > (idleFactor-1)*p.constantUs+idleUs)
			if p.idle {
				own = max(own, before)
			} else {
				own = before
			}
		} else {
			p.idle = true
		}
		p.startNs = own
		p.hasStart = p.hasEnd && (a.sync || !p.idle)
	}
}

// rebuild lays elapsed times and the constant end to end within each busy stretch
// and puts the stretch where the seconds of its stamps say.
func (f *filler) rebuild() {
	f.ticks()
	free := int64(math.MinInt64) // end of the stretch before
	f.stretches(func(from, to int) {
		z := zeros{lo: math.Inf(-1), hi: math.Inf(1)}
		sum := 0.0
		for i := from; i < to; i++ {
			p := &f.passes[i]
			cycle := (p.it.ElapsedUs + p.constantUs) * 1000
			sum += cycle
			z.see(p, sum, i > from, cycle, i)
		}
		sum = 0
		for i := from; i < to; i++ {
			p := &f.passes[i]
			sum += (p.it.ElapsedUs + p.constantUs) * 1000
			p.endNs = trace.Int(math.Trunc(sum + z.at(i, free)))
			p.hasEnd = true
			if i > from {
				p.endNs = max(p.endNs, f.passes[i-1].endNs)
			}
		}
		first := &f.passes[from]
		if late := free - first.endNs + trace.Ns(first.it.ElapsedUs+first.constantUs); from > 0 && late > 0 {
			for i := from; i < to; i++ {
				f.passes[i].endNs += late
			}
		}
		free = f.passes[to-1].endNs
	})
}

// zeros tell where a stretch's clock starts: by every stamp within bounds, and at
// each tick to within one pass.
type zeros struct {
	lo, hi float64
	index  []int     // of the passes with a tick
	ticks  []float64 // the zero that each tells
	smooth []float64
}

// tickWindow is how many ticks on either side are averaged: one tick is known to a
// pass, and the time between passes drifts slowly.
const tickWindow = 8

func (z *zeros) see(p *pass, sum float64, inside bool, cycle float64, i int) {
	if p.it.StampNs.OK {
		z.lo = math.Max(z.lo, float64(p.it.StampNs.V)-sum)
		z.hi = math.Min(z.hi, float64(p.it.StampNs.V+p.it.StampStepNs.V)-sum)
	}
	switch fine := p.it.StampNs.OK && p.it.StampStepNs.V <= preciseNs; {
	case fine:
		z.index = append(z.index, i)
		z.ticks = append(z.ticks, float64(p.it.StampNs.V+p.it.StampStepNs.V/2)-sum)
	case inside && p.tick:
		z.index = append(z.index, i)
		z.ticks = append(z.ticks, float64(p.tickNs)-(sum-cycle/2))
	}
}

// at is the zero that pass i is placed by; free is when the stretch before ended.
func (z *zeros) at(i int, free int64) float64 {
	if len(z.ticks) == 0 {
		switch {
		case !math.IsInf(z.lo, 0):
			return (z.lo + z.hi) / 2
		case free > math.MinInt64:
			return float64(free + second)
		}
		return 0
	}
	if z.smooth == nil {
		for k := range z.ticks {
			z.smooth = append(z.smooth, stat.Mean(z.ticks[max(0, k-tickWindow):min(len(z.ticks), k+tickWindow+1)]))
		}
	}
	k, _ := slices.BinarySearch(z.index, i)
	switch {
	case k == 0:
		return z.smooth[0]
	case k == len(z.index):
		return z.smooth[k-1]
	}
	share := float64(i-z.index[k-1]) / float64(z.index[k]-z.index[k-1])
	return z.smooth[k-1]*(1-share) + z.smooth[k]*share
}

// interpolate places the passes between ticks evenly.
func (f *filler) interpolate() {
	f.ticks()
	f.stretches(func(from, to int) {
		last := -1
		for i := from + 1; i < to; i++ {
			p := &f.passes[i]
			if !p.tick {
				continue
			}
			if last >= 0 {
				a := &f.passes[last]
				for k := last; k < i; k++ {
					f.passes[k].endNs = a.tickNs + int64(float64(p.tickNs-a.tickNs)*(float64(k-last)+0.5)/float64(i-last))
					f.passes[k].hasEnd = true
				}
			}
			last = i
		}
	})
}
