package requestfit

// This file reconstructs from clients' stamps which requests decoded when and which steps ran prompts,
// and makes the rows of the regression (regression.go) from it. It needs no simulator.

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

// occupancy is which requests decoded at which time, reconstructed from the clients' stamps of
// first and last tokens. A regression on it needs no simulator, so the fit starts near the answer
// even if the prior's step times are far off.
type occupancy struct {
	load       *Load
	m          *model
	space      *features.Space
	in         features.StepInput // scratch of stepFeatures
	steps      []prefill          // steps that ran prompts, in order of time
	stepEndsUs []float64          // when each of them ended
	stretches  []stretch          // in order of time
	stamped    []int              // requests with both stamps, in order of their first token
	computed   map[uint64]bool    // prompt contents (groups and block hashes) seen so far
}

// prefill is one step with prompts in it, as far as the clients' stamps show it.
type prefill struct {
	endUs       float64
	x           []float64 // step features
	firstTokens int       // requests whose prompt it completed
}

// stretch is a period between two consecutive stamps. The same requests decode during all of it.
type stretch struct {
	fromUs, toUs float64
	decodes      int64
	context      float64   // tokens of all of them, at its middle
	x            []float64 // features of one of its steps
}

// compareEnd compares the end of a stretch with a time, for binary searches.
func (s stretch) compareEnd(us float64) int { return cmp.Compare(s.toUs, us) }

// compareStart compares the start of a stretch with a time, for binary searches.
func (s stretch) compareStart(us float64) int { return cmp.Compare(s.fromUs, us) }

// sameStep is the largest distance between first tokens of one step, as a share of
// the median gap between tokens of a request. Those of the next step come about a whole gap later.
const sameStep = 0.4

// newOccupancy reconstructs a load. It returns nil if no request of the load has both stamps and
// more than one token.
func newOccupancy(load *Load, m *model) (*occupancy, error) {
	space, err := features.New(m.set.SpecVersion, load.Deployment)
	if err != nil {
		return nil, err
	}
	o := &occupancy{load: load, m: m, space: space, computed: map[uint64]bool{}}
	var gaps []float64
	for i := range load.Seen {
		if !isNumber(load.first(i)) || !isNumber(load.last(i)) {
			continue
		}
		o.stamped = append(o.stamped, i)
		if n := load.Requests[i].OutputTokens - 1; n > 0 {
			gaps = append(gaps, load.stamps(i).SpanUs/float64(n))
		}
	}
	if len(gaps) == 0 {
		return nil, nil
	}
	stat.SortStable(o.stamped, func(a, b int) int { return cmp.Compare(load.first(a), load.first(b)) })
	o.cutStretches()
	o.groupPrefills(sameStep * stat.Median(gaps))
	return o, nil
}

// stepFeatures returns the features of one step of prompt chunks and decodes.
func (o *occupancy) stepFeatures(b *sim.Batch) []float64 {
	x := make([]float64, o.m.columns.step)
	b.Running = b.PrefillReqs + b.DecodeReqs
	sim.FillStepInput(o.space.Version(), b, &o.in)
	_, _ = o.space.Beta(&o.in, x)
	return x
}

// cutStretches cuts the time at every first and last token. The context of a
// decoding request is taken to grow evenly between them.
func (o *occupancy) cutStretches() {
	type edge struct {
		atUs        float64
		n           int64   // decoding requests
		base, perUs float64 // their context at time t: base + perUs*t tokens
	}
	var edges []edge
	for _, i := range o.stamped {
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
	stat.SortStable(edges, func(a, b edge) int { return cmp.Compare(a.atUs, b.atUs) })
	// The sum of all edges so far is the state of the engine: decoding requests and their contexts.
	var now edge
	for k, e := range edges {
		if k > 0 && now.n > 0 && e.atUs > now.atUs {
			middleUs := (now.atUs + e.atUs) / 2
			s := stretch{
				fromUs:  now.atUs,
				toUs:    e.atUs,
				decodes: now.n,
				context: now.base + now.perUs*middleUs,
			}
			b := &sim.Batch{}
			b.AddDecodes(s.decodes, int64(s.context), wholeBlocks(s.context, o.load.Deployment.Engine.BlockSize))
			s.x = o.stepFeatures(b)
			o.stretches = append(o.stretches, s)
		}
		now.atUs = e.atUs
		now.n += e.n
		now.base += e.base
		now.perUs += e.perUs
	}
}

// wholeBlocks returns the number of KV blocks that a sum of contexts fills completely. The partly
// filled last block of each request is not counted.
func wholeBlocks(context float64, size int64) int64 { return int64(context) / max(1, size) }

// groupPrefills groups prompts into steps: first tokens within togetherUs of each other come from
// one step.
func (o *occupancy) groupPrefills(togetherUs float64) {
	for k := 0; k < len(o.stamped); {
		end := k + 1
		for end < len(o.stamped) && o.load.first(o.stamped[end])-o.load.first(o.stamped[k]) <= togetherUs {
			end++
		}
		o.addPromptSteps(o.stamped[k:end])
		k = end
	}
}

// addPromptSteps adds the steps that compute the prompts of requests whose first tokens came
// together. Prompts that exceed the token budget (max_num_batched_tokens) need several steps; all
// of them get the end of the last one, because no stamp shows the others.
func (o *occupancy) addPromptSteps(requests []int) {
	engine := &o.load.Deployment.Engine
	endUs := o.load.first(requests[0])
	decodes, context := o.decodingAt(endUs)
	budget := engine.MaxNumBatchedTokens - decodes
	if !engine.ChunkedPrefill || budget < 1 {
		budget = math.MaxInt64
	}
	b := &sim.Batch{}
	used := int64(0) // tokens of the budget
	endStep := func(firstTokens int) {
		b.AddDecodes(decodes, int64(context), wholeBlocks(context, engine.BlockSize))
		o.steps = append(o.steps, prefill{endUs: endUs, x: o.stepFeatures(b), firstTokens: firstTokens})
		o.stepEndsUs = append(o.stepEndsUs, endUs)
		b = &sim.Batch{}
		used = 0
	}
	for _, i := range requests {
		r := &o.load.Requests[i]
		for computed := o.cachedTokens(r); computed < r.PromptTokens; {
			if used == budget {
				endStep(0)
			}
			n := min(r.PromptTokens-computed, budget-used)
			b.AddPrefill(computed, r.PromptTokens, n)
			computed += n
			used += n
		}
	}
	endStep(len(requests))
}

// cachedTokens returns the number of leading tokens of a prompt that the prefix cache has: as
// recorded, or else those that an earlier prompt has computed, in whole blocks. As in vLLM at least
// one token is always computed. Evictions are not modelled.
func (o *occupancy) cachedTokens(r *sim.Request) int64 {
	e := &o.load.Deployment.Engine
	shared := r.CachedTokens.Or(0)
	if e.PrefixCaching && !r.CachedTokens.OK {
		if r.Group != 0 && o.computed[r.Group] {
			shared = r.GroupTokens
		}
		for n, h := range r.Hashes {
			if !o.computed[h] {
				break
			}
			shared = max(shared, int64(n+1)*r.HashTokens)
		}
		for _, h := range append(r.Hashes[:len(r.Hashes):len(r.Hashes)], r.Group) {
			o.computed[h] = true
		}
	}
	size := max(1, e.BlockSize)
	return max(0, min(shared, r.PromptTokens-1)/size*size)
}

// decodingAt returns how many requests decode just before a time, and the context
// tokens of all of them.
func (o *occupancy) decodingAt(us float64) (n int64, context float64) {
	k, _ := slices.BinarySearchFunc(o.stretches, us, stretch.compareEnd)
	if k < len(o.stretches) && o.stretches[k].fromUs < us {
		return o.stretches[k].decodes, o.stretches[k].context
	}
	return 0, 0
}

// leastPart bounds the scale of a relative error from below: it is the candidate's
// time, but at least 1/leastPart of the measured one.
const leastPart = 10

// addRows adds the rows of the regression, with the step times of a candidate: one
// row for the span of every request, one for the TTFT of requests that waited for no
// other prompt, and one for the rest of E2E after TTFT and span.
func (o *occupancy) addRows(values []float64, r *regression) {
	cumulative := o.cumulativeSums(o.stepCoefficients(values))
	fixed := o.stepCoefficients(make([]float64, len(o.m.free)))                           // with 0 in place of the free ones
	x := make([]float64, o.m.columns.step)                                                // step features of the row in work, which relative reads
	block := func(i int) int { return int(float64(o.load.sent(i)) / float64(r.blockUs)) } // of time
	relative := func(kind, i int, row []float64, us float64) {
		// The fixed terms' part of the time is known; the row is an equation for the rest.
		known := ridge.Dot(x, fixed)
		scale := math.Max(us/leastPart, known+ridge.Dot(row, values))
		r.addRow(kind, block(i), row, us-known, scale)
	}
	for _, i := range o.stamped {
		seen := &o.load.Seen[i]
		if o.load.Requests[i].OutputTokens > 1 && seen.SpanUs > 0 {
			cumulative.sumSpan(o, i, x)
			relative(rowSpan, i, o.freeColumns(x), seen.SpanUs)
		}
		if seen.TTFTUs > 0 && o.metNoPrompt(i, o.enterUs(i, values), x) {
			row := o.freeColumns(x)
			o.setOverhead(i, row)
			relative(rowTTFT, i, row, seen.TTFTUs)
		}
		if rest := seen.E2EUs - seen.TTFTUs - seen.SpanUs; isNumber(rest) { // delay of the last token
			row := make([]float64, len(o.m.free))
			o.m.setNamed(row, "egress/base_bias", 1)
			r.addRow(rowEgress, block(i), row, rest, 1)
		}
	}
}

// stepCoefficients returns all coefficients of the step time at a candidate, fixed ones
// included.
func (o *occupancy) stepCoefficients(values []float64) []float64 {
	return o.m.theta(o.load, values)[:o.m.columns.step]
}

// freeColumns returns the entries of step features that belong to free columns. The entries of delays
// are 0.
func (o *occupancy) freeColumns(x []float64) []float64 {
	free := make([]float64, len(o.m.free))
	for k, j := range o.m.free[:o.m.beta] {
		free[k] = x[j]
	}
	return free
}

// setNamed sets the entry of the column of that name in a row of the free columns. It does nothing if
// the column is not free.
func (m *model) setNamed(row []float64, name string, v float64) {
	if k := slices.Index(m.names, name); k >= 0 {
		row[k] = v
	}
}

// setOverhead sets, in a row of the free columns (the coefficients that are fitted), the features of
// the API overhead of request i: the constant, and the term in prompt tokens if the feature space
// can compute it.
func (o *occupancy) setOverhead(i int, free []float64) {
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

// sums are cumulative sums of step features in order of time, so that the sum over
// an interval is a difference. Element k is the sum over the first k.
type sums struct {
	prefillX [][]float64 // steps that ran prompts
	stretchN []float64   // number of decode steps in the stretches
	stretchX [][]float64 // features of those
}

// leastDecoding is the least share of a stretch that is left to decode steps. The
// candidate's prefill steps can take longer than the whole stretch.
const leastDecoding = 0.02

// cumulativeSums returns estimates of how many decode steps ran in every stretch: its time, less
// that of prefill steps, divided by the step time at the coefficients beta.
func (o *occupancy) cumulativeSums(beta []float64) *sums {
	s := &sums{
		prefillX: [][]float64{make([]float64, len(beta))},
		stretchN: []float64{0},
		stretchX: [][]float64{make([]float64, len(beta))},
	}
	busyUs := make([]float64, len(o.stretches)) // time of each stretch that prompts took
	for k := range o.steps {
		p := &o.steps[k]
		s.prefillX = append(s.prefillX, scaledSum(s.prefillX[k], p.x, 1))
		leftUs := math.Max(0, ridge.Dot(p.x, beta))
		// The step ended at endUs: distribute its time backwards over the stretches.
		at, _ := slices.BinarySearchFunc(o.stretches, p.endUs, stretch.compareEnd)
		for at = min(at, len(o.stretches)-1); at >= 0 && leftUs > 0; at-- {
			t := &o.stretches[at]
			if t.fromUs < p.endUs {
				partUs := math.Min(leftUs, math.Min(t.toUs, p.endUs)-t.fromUs)
				busyUs[at] += partUs
				leftUs -= partUs
			}
		}
	}
	for k := range o.stretches {
		t := &o.stretches[k]
		lengthUs := t.toUs - t.fromUs
		n := math.Max(leastDecoding*lengthUs, lengthUs-busyUs[k]) / math.Max(1, ridge.Dot(t.x, beta))
		s.stretchN = append(s.stretchN, s.stretchN[k]+n)
		s.stretchX = append(s.stretchX, scaledSum(s.stretchX[k], t.x, n))
	}
	return s
}

// scaledSum returns a + c*x.
func scaledSum(a, x []float64, c float64) []float64 {
	out := make([]float64, len(a))
	for j := range a {
		out[j] = a[j] + c*x[j]
	}
	return out
}

// sumSpan puts into x the features of the steps between a request's first and last
// token. Their number is known: one for every token after the first. Steps with
// prompts are known one by one; the others are the average decode step of the
// stretches in between.
func (s *sums) sumSpan(o *occupancy, i int, x []float64) {
	first, last := o.load.first(i), o.load.last(i)
	tokens := float64(o.load.Requests[i].OutputTokens - 1)
	from := stampsUntil(o.stepEndsUs, first)
	to := stampsUntil(o.stepEndsUs, last)
	recorded := float64(to - from)
	withPrompts := math.Min(tokens, recorded) // of the prefill steps
	for j := range x {
		x[j] = s.prefillX[to][j] - s.prefillX[from][j]
	}
	// A request gets at most one token a step. More steps with prompts than tokens are an error of the
	// grouping, so they are scaled down.
	if recorded > withPrompts {
		for j := range x {
			x[j] *= withPrompts / recorded
		}
	}
	fromStretch := firstFrom(o.stretches, first)
	toStretch := firstFrom(o.stretches, last)
	// All other tokens of the request came from decode steps.
	if weight := s.stretchN[toStretch] - s.stretchN[fromStretch]; weight > 0 {
		for j := range x {
			x[j] += (tokens - withPrompts) * (s.stretchX[toStretch][j] - s.stretchX[fromStretch][j]) / weight
		}
	}
}

// stampsUntil returns the number of stamps at or before a time.
func stampsUntil(stampsUs []float64, us float64) int {
	return sort.Search(len(stampsUs), func(k int) bool { return stampsUs[k] > us })
}

// firstFrom returns the position of the first stretch that begins at or after a time.
func firstFrom(stretches []stretch, us float64) int {
	k, _ := slices.BinarySearchFunc(stretches, us, stretch.compareStart)
	return k
}

// enterUs returns when a request reaches the engine, by the overhead of the candidate and
// at the latest just before its first token.
func (o *occupancy) enterUs(i int, values []float64) float64 {
	row := make([]float64, len(values))
	o.setOverhead(i, row)
	return math.Min(float64(o.load.sent(i))+ridge.Dot(row, values), o.load.first(i)-1)
}

// metNoPrompt reports whether no other prompt ran between a request's arrival and its
// first token, and puts the features of the steps until its first token into x. On
// average a request waits for half of the step that runs when it arrives. That is not
// so for a request that a closed loop sends upon an answer: it arrives at the end of a
// step, so it qualifies only if no request decodes.
func (o *occupancy) metNoPrompt(i int, entersUs float64, x []float64) bool {
	sent := float64(o.load.sent(i))
	first := o.load.first(i)
	if !isNumber(first) || first <= sent {
		return false
	}
	from := stampsUntil(o.stepEndsUs, sent)
	clear(x)
	firstTokens := 0
	for k := from; k < len(o.steps) && o.steps[k].endUs <= first+1; k++ {
		firstTokens += o.steps[k].firstTokens
		for j := range x {
			x[j] += o.steps[k].x[j]
		}
	}
	engine := &o.load.Deployment.Engine
	n, _ := o.decodingAt(entersUs)
	arrivesAtStepEnd := n > 0 && o.load.Requests[i].After > 0
	if firstTokens != 1 || arrivesAtStepEnd || n >= engine.MaxNumSeqs {
		return false
	}
	if n > 0 {
		k, _ := slices.BinarySearchFunc(o.stretches, entersUs, stretch.compareEnd)
		wait := 0.5 // steps
		if engine.IsAsync() {
			wait++ // asynchronous scheduling has already submitted the next step
		}
		for j := range x {
			x[j] += wait * o.stretches[k].x[j]
		}
	}
	return true
}
