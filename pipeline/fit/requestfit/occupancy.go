package requestfit

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/sim"
)

// occupancy is who decoded when, by the clients' stamps: a regression on it needs
// no simulator, and no wrong step time can send it astray.
type occupancy struct {
	load  *Load
	m     *model
	space *features.Space
	in    features.StepInput
	steps []prefill // steps that ran prompts, in order of time
	spans []stretch // of constant decodes between two stamps, in order of time
	ends  []float64 // of steps, us
	alive []int     // requests with both stamps, in order of their first token

	groups map[uint64]bool // contents that some prompt has computed before
}

// prefill is one step with prompts in it, as far as the clients' stamps show it.
type prefill struct {
	endUs float64
	x     []float64
	tasks int // requests whose first token it made
}

// stretch is a time in which the same requests decode.
type stretch struct {
	fromUs, toUs float64
	decodes      int64
	context      float64 // tokens of all of them, at its middle
	x            []float64
}

// sameStep is how near two first tokens are that one step made, in typical gaps.
const sameStep = 0.4

// newOccupancy reads the stamps of a load; nil when there are none to read.
func newOccupancy(load *Load, m *model) (*occupancy, error) {
	space, err := features.New(m.set.SpecVersion, load.Deployment)
	if err != nil {
		return nil, err
	}
	o := &occupancy{load: load, m: m, space: space, groups: map[uint64]bool{}}
	var gaps []float64
	for i := range load.Seen {
		if !isNumber(load.first(i)) || !isNumber(load.last(i)) {
			continue
		}
		o.alive = append(o.alive, i)
		if n := load.Requests[i].OutputTokens - 1; n > 0 {
			gaps = append(gaps, load.stamps(i).SpanUs/float64(n))
		}
	}
	if len(gaps) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(o.alive, func(a, b int) int { return cmp.Compare(load.first(a), load.first(b)) })
	o.stretches()
	o.prefills(sameStep * stat.Median(gaps))
	return o, nil
}

// features are those of one step of prompt chunks and decodes.
func (o *occupancy) features(b *sim.Batch) []float64 {
	x := make([]float64, o.m.columns.step)
	b.Running = b.PrefillReqs + b.DecodeReqs
	sim.FillStepInput(o.space.Version(), b, &o.in)
	_, _ = o.space.Beta(&o.in, x)
	return x
}

// stretches cuts the time at every first and last token.
func (o *occupancy) stretches() {
	type edge struct {
		at            float64
		n             int64
		base, perSlow float64 // context of those who decode: base + perSlow*t
	}
	var edges []edge
	for _, i := range o.alive {
		first := o.load.first(i)
		last := o.load.last(i)
		r := &o.load.Requests[i]
		if last <= first {
			continue
		}
		slope := float64(r.OutputTokens-1) / (last - first)
		base := float64(r.PromptTokens+1) - slope*first
		edges = append(edges, edge{first, 1, base, slope}, edge{last, -1, -base, -slope})
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return cmp.Compare(a.at, b.at) })
	var now edge
	for k, e := range edges {
		if k > 0 && now.n > 0 && e.at > now.at {
			mid := (now.at + e.at) / 2
			s := stretch{fromUs: now.at, toUs: e.at, decodes: now.n, context: now.base + now.perSlow*mid}
			b := &sim.Batch{}
			b.AddDecodes(s.decodes, int64(s.context), wholeBlocks(s.context, o.load.Deployment.Engine.BlockSize))
			s.x = o.features(b)
			o.spans = append(o.spans, s)
		}
		now.at = e.at
		now.n += e.n
		now.base += e.base
		now.perSlow += e.perSlow
	}
}

func wholeBlocks(context float64, size int64) int64 { return int64(context) / max(1, size) }

// prefills puts prompts into steps: first tokens that come together were one
// step's work, a prompt beyond the budget takes several.
func (o *occupancy) prefills(togetherUs float64) {
	for k := 0; k < len(o.alive); {
		end := k + 1
		for end < len(o.alive) && o.load.first(o.alive[end])-o.load.first(o.alive[k]) <= togetherUs {
			end++
		}
		o.prompts(o.alive[k:end])
		k = end
	}
}

// prompts are the steps that compute the prompts of requests with one first token.
func (o *occupancy) prompts(requests []int) {
	at := o.load.first(requests[0])
	decodes, context := o.decoding(at)
	budget := o.load.Deployment.Engine.MaxNumBatchedTokens - decodes
	if !o.load.Deployment.Engine.ChunkedPrefill || budget < 1 {
		budget = math.MaxInt64
	}
	b, used := &sim.Batch{}, int64(0)
	step := func(tasks int) {
		b.AddDecodes(decodes, int64(context), wholeBlocks(context, o.load.Deployment.Engine.BlockSize))
		o.steps = append(o.steps, prefill{endUs: at, x: o.features(b), tasks: tasks})
		o.ends = append(o.ends, at)
		b, used = &sim.Batch{}, 0
	}
	for _, i := range requests {
		r := &o.load.Requests[i]
		cached := o.cached(r)
		for c := cached; c < r.PromptTokens; {
			if used == budget {
				step(0)
			}
			n := min(r.PromptTokens-c, budget-used)
			b.AddPrefill(c, r.PromptTokens, n)
			c, used = c+n, used+n
		}
	}
	step(len(requests))
}

// cached are the leading tokens of a prompt that the prefix cache has: those that a
// recording says, or that an earlier prompt has computed, in whole blocks and never
// all of them. Nothing is taken to be evicted.
func (o *occupancy) cached(r *sim.Request) int64 {
	e := &o.load.Deployment.Engine
	shared := r.CachedTokens.Or(0)
	if e.PrefixCaching && !r.CachedTokens.OK {
		if r.Group != 0 && o.groups[r.Group] {
			shared = r.GroupTokens
		}
		for n, h := range r.Hashes {
			if !o.groups[h] {
				break
			}
			shared = max(shared, int64(n+1)*r.HashTokens)
		}
		for _, h := range append(r.Hashes[:len(r.Hashes):len(r.Hashes)], r.Group) {
			o.groups[h] = true
		}
	}
	size := max(1, e.BlockSize)
	return max(0, min(shared, r.PromptTokens-1)/size*size)
}

// decoding is who decodes just before a moment.
func (o *occupancy) decoding(at float64) (n int64, context float64) {
	k, _ := slices.BinarySearchFunc(o.spans, at, func(s stretch, t float64) int { return cmp.Compare(s.toUs, t) })
	if k < len(o.spans) && o.spans[k].fromUs < at {
		return o.spans[k].decodes, o.spans[k].context
	}
	return 0, 0
}

// leastPart of what was measured is the least that a candidate's time weighs as.
const leastPart = 10

// rows are those of the regression with step times of the candidate: one for the
// span of every request, one for the TTFT of those that waited for no other prompt,
// one for what is left of E2E.
func (o *occupancy) rows(values []float64, r *regression) {
	c := o.cumulate(o.step(values))
	fixed := o.step(make([]float64, len(o.m.free)))
	x := make([]float64, o.m.columns.step)
	block := func(i int) int { return int(float64(o.load.sent(i)) / float64(r.blockUs)) }
	relative := func(kind, i int, row []float64, us float64) {
		known := ridge.Dot(x, fixed)
		r.add(kind, block(i), row, us-known, math.Max(us/leastPart, known+ridge.Dot(row, values)))
	}
	for _, i := range o.alive {
		seen := &o.load.Seen[i]
		if q := &o.load.Requests[i]; q.OutputTokens > 1 && seen.SpanUs > 0 {
			c.span(o, i, x)
			relative(rowSpan, i, o.freeOf(x), seen.SpanUs)
		}
		if seen.TTFTUs > 0 && o.metNoPrompt(i, o.enters(i, values), x) {
			row := o.freeOf(x)
			o.entry(i, row)
			relative(rowTTFT, i, row, seen.TTFTUs)
		}
		if rest := seen.E2EUs - seen.TTFTUs - seen.SpanUs; isNumber(rest) {
			row := make([]float64, len(o.m.free))
			o.m.setNamed(row, "egress/base_bias", 1)
			r.add(rowEgress, block(i), row, rest, 1)
		}
	}
}

// step are the step's coefficients of a candidate.
func (o *occupancy) step(values []float64) []float64 {
	return o.m.theta(o.load, values)[:o.m.columns.step]
}

// freeOf are the free columns of step features.
func (o *occupancy) freeOf(x []float64) []float64 {
	free := make([]float64, len(o.m.free))
	for k, j := range o.m.free[:o.m.beta] {
		free[k] = x[j]
	}
	return free
}

// setNamed sets a free column by its name, if it is free.
func (m *model) setNamed(row []float64, name string, v float64) {
	if k := slices.Index(m.names, name); k >= 0 {
		row[k] = v
	}
}

// entry is what the overhead's terms make of a request.
func (o *occupancy) entry(i int, free []float64) {
	o.m.setNamed(free, "overhead/base_bias", 1)
	alpha := make([]float64, o.m.columns.overhead)
	in := features.QueueInput{PromptTokens: float64(o.load.Requests[i].PromptTokens), KVFreeBlocks: 1}
	if _, err := o.space.Alpha(&in, alpha); err != nil {
		return
	}
	if k := slices.Index(o.m.names, "overhead/admission_compute"); k >= 0 {
		free[k] = alpha[o.m.free[k]-o.m.columns.step]
	}
}

// sums are features of steps by time: of those that ran prompts, and of decodes
// with the number of steps they must have been.
type sums struct {
	prefillX [][]float64
	stretchN []float64 // steps of the stretches so far
	stretchX [][]float64
}

func (o *occupancy) cumulate(beta []float64) *sums {
	s := &sums{prefillX: [][]float64{make([]float64, len(beta))},
		stretchN: []float64{0}, stretchX: [][]float64{make([]float64, len(beta))}}
	busy := make([]float64, len(o.spans)) // time of each stretch that prompts took
	for k := range o.steps {
		p := &o.steps[k]
		s.prefillX = append(s.prefillX, scaledSum(s.prefillX[k], p.x, 1))
		took := math.Max(0, ridge.Dot(p.x, beta))
		at, _ := slices.BinarySearchFunc(o.spans, p.endUs, func(t stretch, us float64) int { return cmp.Compare(t.toUs, us) })
		for ; at >= 0 && took > 0; at-- {
			if at < len(o.spans) && o.spans[at].fromUs < p.endUs {
				part := math.Min(took, math.Min(o.spans[at].toUs, p.endUs)-o.spans[at].fromUs)
				busy[at] += part
				took -= part
			}
			if at == 0 {
				break
			}
		}
	}
	for k := range o.spans {
		t := &o.spans[k]
		length := t.toUs - t.fromUs
		n := math.Max(0.02*length, length-busy[k]) / math.Max(1, ridge.Dot(t.x, beta))
		s.stretchN = append(s.stretchN, s.stretchN[k]+n)
		s.stretchX = append(s.stretchX, scaledSum(s.stretchX[k], t.x, n))
	}
	return s
}

func scaledSum(a, x []float64, c float64) []float64 {
	out := make([]float64, len(a))
	for j := range a {
		out[j] = a[j] + c*x[j]
	}
	return out
}

// span sums the features of the steps between a request's first and last token.
func (s *sums) span(o *occupancy, i int, x []float64) {
	first, last := o.load.first(i), o.load.last(i)
	tokens := float64(o.load.Requests[i].OutputTokens - 1)
	from := stampsUntil(o.ends, first)
	to := stampsUntil(o.ends, last)
	all := float64(to - from)
	n := math.Min(tokens, all)
	for j := range x {
		x[j] = s.prefillX[to][j] - s.prefillX[from][j]
	}
	if all > n {
		for j := range x {
			x[j] *= n / all
		}
	}
	a := firstFrom(o.spans, first)
	b := firstFrom(o.spans, last)
	if weight := s.stretchN[b] - s.stretchN[a]; weight > 0 {
		for j := range x {
			x[j] += (tokens - n) * (s.stretchX[b][j] - s.stretchX[a][j]) / weight
		}
	}
}

// stampsUntil is the number of stamps at or before t.
func stampsUntil(ends []float64, t float64) int {
	return sort.Search(len(ends), func(k int) bool { return ends[k] > t })
}

// firstFrom is the first stretch that begins at t or later.
func firstFrom(spans []stretch, t float64) int {
	k, _ := slices.BinarySearchFunc(spans, t, func(s stretch, t float64) int { return cmp.Compare(s.fromUs, t) })
	return k
}

// enters is when a request reaches the engine by the overhead of the candidate, at the
// latest just before its first token.
func (o *occupancy) enters(i int, values []float64) float64 {
	row := make([]float64, len(values))
	o.entry(i, row)
	return math.Min(float64(o.load.sent(i))+ridge.Dot(row, values), o.load.first(i)-1)
}

// metNoPrompt reports whether a request met no other prompt, and puts the features of the
// steps until its first token into x. On average it waits for half of the step that runs
// when it arrives. A request that a closed loop sends upon an answer arrives at the end of
// a step, and counts only while no request decodes.
func (o *occupancy) metNoPrompt(i int, entersUs float64, x []float64) bool {
	sent := float64(o.load.sent(i))
	first := o.load.first(i)
	if !isNumber(first) || first <= sent {
		return false
	}
	from := stampsUntil(o.ends, sent)
	clear(x)
	tasks := 0
	for k := from; k < len(o.steps) && o.steps[k].endUs <= first+1; k++ {
		tasks += o.steps[k].tasks
		for j := range x {
			x[j] += o.steps[k].x[j]
		}
	}
	n, _ := o.decoding(entersUs)
	if tasks != 1 || n > 0 && o.load.Requests[i].After > 0 || n >= o.load.Deployment.Engine.MaxNumSeqs {
		return false
	}
	if n > 0 {
		k, _ := slices.BinarySearchFunc(o.spans, entersUs, func(s stretch, t float64) int { return cmp.Compare(s.toUs, t) })
		wait := 0.5 // of the running step; an asynchronous engine has the next one scheduled already
		if o.load.Deployment.Engine.IsAsync() {
			wait++
		}
		for j := range x {
			x[j] += wait * o.spans[k].x[j]
		}
	}
	return true
}
