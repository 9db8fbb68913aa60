package requestfit

// This file estimates which share of the prompt tokens came from the prefix cache where nothing states it
// (spec#cached-share). A cached token costs no prefill, so that the share is one more parameter of the fit:
// it and the cost of a prompt token are separated by the prior of that cost, by attention over
// long prompts, and by the engine's capacity.

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// shareEstimate is the estimate in a fit of the share c of prompt tokens that came from the prefix
// cache, where nothing states it. Its scale is s = -log(1-c), in which the prompt tokens that are
// computed are exp(-s) of all.
type shareEstimate struct {
	assumed float64   // s of the replays
	mode    float64   // likeliest s, which may be below 0
	sd      float64   // its standard error
	along   []float64 // by how much the free terms move with s
}

// shareOf returns the share of a point on the scale.
func shareOf(s float64) float64 { return 1 - math.Exp(-s) }

// pointOf returns the point on the scale of a share.
func pointOf(share float64) float64 { return -math.Log(1 - share) }

// Constants of the estimate. s is the scale of shareEstimate.
const (
	shareStep     = 0.3   // s, of the derivative by differences
	offElasticity = 0.3   // prior standard deviation of d log(work)/ds of a term
	leastShareSD  = 0.002 // s: clocks and blocks make no estimate better
	shareNear     = 0.02  // s: estimates this near to what was assumed are that
	mostShareFits = 6     // fits, each with the share that the one before found
	mostShare     = 0.95  // that a fit assumes
	leastStep     = -0.9  // lower bound of the step in estimateShare: log1p(step) needs step > -1
	mostWidenings = 30    // passes that widen the prior
	widenedNear   = 0.01  // relative change of its precision that ends them
)

// hasUnstated reports whether nothing states what a prompt of the loads found in the prefix cache.
func hasUnstated(loads []*Load) bool { return countUnstated(loads) > 0 }

// countUnstated returns the number of requests (and load levels) of whose cached tokens nothing is
// stated.
func countUnstated(loads []*Load) int {
	n := 0
	for _, l := range loads {
		if l.Point != nil && l.isUnstated(0) {
			n++ // a level counts as one
			continue
		}
		for i := range l.Requests[:len(l.Requests)-l.later] {
			if l.isUnstated(i) {
				n++
			}
		}
	}
	return n
}

// isUnstated reports whether nothing is stated of the cached tokens of request i.
func (l *Load) isUnstated(i int) bool { return i < len(l.Unstated) && l.Unstated[i] }

// assume takes a share of every prompt of which nothing is stated as cached. It changes l.Requests in place; Before
// and Later share that slice.
func (l *Load) assume(share float64) {
	l.simulated = nil
	for i := range l.Requests {
		r := &l.Requests[i]
		switch {
		case !l.isUnstated(i):
		case share > 0:
			r.CachedTokens = trace.Some(min(r.PromptTokens-1, trace.Int(share*float64(r.PromptTokens))))
		default:
			r.CachedTokens = trace.Opt[int64]{}
		}
	}
}

// withShare returns a copy of the load with a share assumed.
func (l *Load) withShare(share float64) *Load {
	out := *l
	out.Requests = append([]sim.Request(nil), l.Requests...)
	out.assume(share)
	return &out
}

// fitShare returns the fit of the loads and, if nothing states what their prompts found in the
// prefix cache, fits them again with the share that the fit finds, until it finds the share with
// which it was made. A share that could be chance is set to 0. all are loads of the same prompts,
// of which some are not used by the fit. The answer is the fit with the smallest objective.
func fitShare(ctx context.Context, loads, all []*Load, prior *Prior, o Options) (*Learned, error) {
	// assume sets the share of the prompts, s on the estimate's scale, in all loads. The loads of the fit also store s in
	// assumed.
	assume := func(s float64) {
		for _, l := range slices.Concat(all, loads) {
			l.assume(shareOf(s))
		}
		for _, l := range loads {
			l.assumed = s
		}
	}
	learned, err := Fit(ctx, loads, prior, o)
	if err != nil || learned.share == nil {
		return learned, err
	}
	best := learned
	for fits := 1; fits < mostShareFits; fits++ {
		found := learned.share
		next := math.Min(math.Max(0, found.mode), pointOf(mostShare))
		if found.assumed == 0 && !found.isPresent() { // it could be chance
			next = 0
		}
		if math.Abs(next-found.assumed) <= shareNear {
			break
		}
		// Half a step only: as the share changes, batches enter or leave CUDA graph sizes, so the estimate can oscillate.
		if fits > 1 {
			next = (next + found.assumed) / 2
		}
		assume(next)
		if learned, err = Fit(ctx, loads, prior, o); err != nil {
			return nil, err
		}
		if learned.share == nil { // with this share assumed the times decide nothing about it
			break
		}
		if learned.Level.Objective < best.Level.Objective {
			best = learned
		}
	}
	if best != learned { // the loads keep the share of the fit that is returned
		assume(best.share.assumed)
	}
	return best, nil
}

// learnedWithShare returns the answer, whose covariance includes what the unknown share of cached
// tokens adds.
func (l *learner) learnedWithShare(s *state, post []float64, u *result.RequestScatter) (*Learned, error) {
	e, err := l.estimateShare(s)
	if err != nil {
		return nil, err
	}
	if e == nil {
		return l.learned(s, post, u), nil
	}
	out := l.learned(s, e.widen(post), u)
	out.share = e
	out.Level.CachedShare = e.result(countUnstated(l.loads))
	return out, nil
}

// isPresent reports whether more is cached than could be chance.
func (e *shareEstimate) isPresent() bool { return e.mode > stat.Normal95*e.sd }

// posterior returns the distribution of s, normal with mode and sd but cut off below 0: values of s on
// a grid and their weights.
func (e *shareEstimate) posterior() (at, weight []float64) {
	const points = 4000
	const widths = 6 // standard errors
	to := math.Max(e.mode, 0) + widths*e.sd
	total := 0.0
	for k := range points {
		s := to * (float64(k) + 0.5) / points
		z := (s - e.mode) / e.sd
		nearest := math.Min(e.mode, 0) / e.sd // keeps the largest weight near 1
		w := math.Exp(-(z*z - nearest*nearest) / 2)
		at = append(at, s)
		weight = append(weight, w)
		total += w
	}
	for k := range weight {
		weight[k] /= total
	}
	return at, weight
}

// interval returns the 95 % interval of the share: from 0 if the share could be chance.
func (e *shareEstimate) interval() (low, high float64) {
	from, until := 0.0, 0.95
	if e.isPresent() {
		from, until = 0.025, 0.975
	}
	at, weight := e.posterior()
	sum := 0.0
	high = shareOf(at[len(at)-1])
	for k, s := range at {
		if sum < from && sum+weight[k] >= from {
			low = shareOf(s)
		}
		if sum < until && sum+weight[k] >= until {
			high = shareOf(s)
		}
		sum += weight[k]
	}
	return low, high
}

// result returns the estimate as fit.json has it.
func (e *shareEstimate) result(requests int) *result.CachedShare {
	low, high := e.interval()
	return &result.CachedShare{Share: shareOf(e.assumed), Low: low, High: high, Requests: requests}
}

// widen returns a covariance of the free terms plus what the unknown share adds to it.
func (e *shareEstimate) widen(covariance []float64) []float64 {
	at, weight := e.posterior()
	square := 0.0 // mean of (s - assumed)^2
	for k, s := range at {
		square += weight[k] * (s - e.assumed) * (s - e.assumed)
	}
	n := len(e.along)
	out := append([]float64(nil), covariance...)
	for k := range n {
		for i := range n {
			out[k*n+i] += square * e.along[k] * e.along[i]
		}
	}
	return out
}

// shareRow is one measured time with its derivatives.
type shareRow struct {
	weight  float64   // 0: not used
	off     float64   // measured less simulated: us of a request, ms of a load level
	by      []float64 // derivatives of the simulated time by the free terms
	byShare float64   // its derivative by s
}

// estimateShare returns the estimate after one Gauss-Newton step from a candidate in the free terms
// and the share together; nil if everything is stated, or if the share decides nothing.
func (l *learner) estimateShare(s *state) (*shareEstimate, error) {
	if !hasUnstated(l.loads) {
		return nil, nil
	}
	assumed := l.loads[0].assumed
	moved := make([]*Load, len(l.loads))
	for i, load := range l.loads {
		moved[i] = load.withShare(shareOf(assumed + shareStep))
	}
	var rows []shareRow
	var err error
	if l.loads[0].Point != nil {
		rows, err = l.shareRowsOfLevels(s, moved)
	} else {
		rows, err = l.shareRowsOfRequests(s, moved)
	}
	if err != nil {
		return nil, err
	}
	if !l.smoothShare(rows, s, shareOf(assumed)) {
		return nil, nil
	}
	answer, covariance := l.solveWithShare(s, rows)
	n := len(l.m.free)
	if covariance == nil || !(covariance[(n+1)*(n+1)-1] > 0) {
		return nil, nil
	}
	last := covariance[n*(n+1):]
	// The candidate meets the measured times, so that the step moves along cost*exp(-s) = constant, the cost
	// being that of a computed token. A linear step by x changes the cost to cost*(1+x), and s by log(1+x).
	step := math.Max(leastStep, answer[n])
	e := &shareEstimate{
		assumed: assumed,
		mode:    assumed + math.Log1p(step),
		sd:      math.Max(leastShareSD, math.Sqrt(last[n])/(1+step)),
	}
	e.mode -= e.sd * e.sd // every share is as likely beforehand: a density of exp(-s) in this scale
	// Given s, the terms are expected at their covariance with s over its variance times its distance.
	for k := range n {
		e.along = append(e.along, last[k]/last[n])
	}
	return e, nil
}

// solveWithShare returns one Gauss-Newton step of the free terms and, last, of the share from a
// candidate, and the covariance of both. Nil if the equations are singular.
//
// Only the prior separates the share from the cost of a prompt token, so that with too narrow a prior an
// error of the library would look like cached tokens. How well it describes this server is shown by the
// terms that the times determine: the prior is widened until their distance from it is what their
// number makes likely (MacKay 1992, Bayesian Interpolation), and never narrower than stated.
func (l *learner) solveWithShare(s *state, rows []shareRow) (step, covariance []float64) {
	n := len(l.m.free)
	data := make([]float64, (n+1)*(n+1))
	pull := make([]float64, n+1) // of the measured times
	x := make([]float64, n+1)
	for _, row := range rows {
		copy(x, row.by)
		x[n] = row.byShare
		for k, v := range x {
			pull[k] += row.weight * row.off * v
			for i, u := range x {
				data[k*(n+1)+i] += row.weight * v * u
			}
		}
	}
	narrow := 1.0 // factor on the prior's precision
	for range mostWidenings {
		information := slices.Clone(data)
		gradient := slices.Clone(pull)
		for k := range n {
			for i := range n {
				information[k*(n+1)+i] += narrow * l.m.precision[k*n+i]
				gradient[k] += narrow * l.m.precision[k*n+i] * (l.m.mean[i] - s.values[i])
			}
		}
		if covariance = stat.Inverse(information, n+1); covariance == nil {
			return nil, nil
		}
		step = make([]float64, n+1)
		for k := range step {
			step[k] = ridge.Dot(covariance[k*(n+1):(k+1)*(n+1)], gradient)
		}
		distance := 0.0          // squared, from the prior, in its standard errors
		determined := float64(n) // number of terms that the times determine
		for k := range n {
			for i := range n {
				precision := l.m.precision[k*n+i]
				distance += (s.values[k] + step[k] - l.m.mean[k]) * precision * (s.values[i] + step[i] - l.m.mean[i])
				determined -= narrow * precision * covariance[i*(n+1)+k]
			}
		}
		next := math.Min(1, determined/distance) // MacKay's gamma/d^2
		if !(next > 0) || math.Abs(next-narrow) <= widenedNear*narrow {
			break
		}
		narrow = next
	}
	return step, covariance
}

// smoothShare replaces the differences between replays with and without the share by what they have
// in common, and reports whether it could. Steps begin at other times where prompts take less, so
// that a difference scatters by parts of a step. Cached tokens change the work of the terms, and a
// time by its derivatives by them: byShare is a combination of these, near the one that follows
// from the arithmetic of computed tokens.
func (l *learner) smoothShare(rows []shareRow, s *state, share float64) bool {
	n := len(l.m.free)
	along := make([]float64, n) // the change of each term's work by s, as a change of its coefficient
	information := make([]float64, n*n)
	gradient := make([]float64, n)
	for k, name := range l.m.names {
		switch name {
		case stepPrefix + features.PrefillLinearCompute: // in proportion to the tokens that are computed
			along[k] = -s.values[k]
		case stepPrefix + features.PrefillAttention: // in proportion to (1-c)(1+c)
			along[k] = -s.values[k] * 2 * share / (1 + share)
		}
		// The prior lets the work of each term change by about offElasticity per unit of s.
		sd := offElasticity * math.Max(math.Abs(s.values[k]), l.m.sd[k])
		if k >= l.m.beta {
			sd = 1e-6 * l.m.sd[k] // delays outside the engine do not depend on the cache
		}
		information[k*n+k] = 1 / (sd * sd)
	}
	// Least squares of the differences on the derivatives by the terms, with that prior.
	for _, row := range rows {
		weight := row.weight * shareStep * shareStep / 2 // the error of a difference of two replays
		off := row.byShare - ridge.Dot(row.by, along)
		for k, v := range row.by {
			gradient[k] += weight * off * v
			for i, u := range row.by {
				information[k*n+i] += weight * v * u
			}
		}
	}
	covariance := stat.Inverse(information, n)
	if covariance == nil {
		return false
	}
	for k := range n {
		along[k] += ridge.Dot(covariance[k*n:(k+1)*n], gradient)
	}
	for i := range rows {
		rows[i].byShare = ridge.Dot(rows[i].by, along)
	}
	return true
}

// shareRowsOfRequests returns a row for each measured time of a request. It replays the loads twice,
// with the assumed share and, as moved, with s larger by shareStep: the difference of a time over
// shareStep is its derivative by s.
func (l *learner) shareRowsOfRequests(s *state, moved []*Load) ([]shareRow, error) {
	asAssumed := l.newRepeats(s)
	if err := asAssumed.replayAll(); err != nil {
		return nil, err
	}
	// The moved loads need a learner of their own, because a learner replays the loads that it has.
	other := &learner{Options: l.Options, ctx: l.ctx, loads: moved, m: l.m}
	for _, load := range moved {
		other.twins = append(other.twins, twinsOf(load, l.Options))
	}
	moreCached := &repeats{learner: other, values: s.values, rows: make([][]replayRow, len(moved))}
	if err := moreCached.replayAll(); err != nil {
		return nil, err
	}
	l.steps.Add(other.steps.Load())
	// Match the times of both replays by request and metric: a request may finish in one alone.
	var out []shareRow
	for i, load := range l.loads {
		type key struct{ request, metric int }
		afterUs := map[key]float64{}
		for _, row := range moreCached.rows[i] {
			afterUs[key{row.request, row.metric}] = row.us
		}
		for k := range asAssumed.rows[i] {
			row := &asAssumed.rows[i][k]
			weight, measured := asAssumed.weightOf(row, load)
			movedUs, isThere := afterUs[key{row.request, row.metric}]
			if weight > 0 && isThere {
				out = append(out, shareRow{weight: weight, off: measured - row.us, by: row.by, byShare: (movedUs - row.us) / shareStep})
			}
		}
	}
	return out, nil
}

// shareRowsOfLevels returns a row for each measured mean (TPOT and TTFT) of each load level, in ms. It
// simulates a level twice, with the assumed share and, as moved, with s larger by shareStep: the
// difference of a mean over shareStep is its derivative by s. A level of which the simulated server
// does not finish the requests has no rows.
func (l *learner) shareRowsOfLevels(s *state, moved []*Load) ([]shareRow, error) {
	rows := make([][]shareRow, len(l.loads))
	err := par.Try(l.ctx, l.Workers, len(l.loads), func(i int) error {
		load := l.loads[i]
		cfg, err := load.config(l.m, s.values)
		if err != nil {
			return err
		}
		cfg.Done = l.ctx.Done()
		means, err := load.meansAt(l.m, s.values, l.ctx.Done())
		if err != nil {
			return nil // not finished
		}
		after, err := sim.MeansOf(cfg, moved[i].Requests)
		if err != nil {
			return nil // not finished
		}
		p := load.Point
		rows[i] = append(rows[i],
			l.levelRow(p.TPOTMs, means.TPOTMs, after.TPOTMs, means.TPOTBy, pointTPOTSD),
			l.levelRow(p.TTFTMs, means.TTFTMs, after.TTFTMs, means.TTFTBy, pointTTFTSD))
		return nil
	}, nil)
	var out []shareRow
	for _, list := range rows {
		for _, row := range list {
			if row.weight > 0 {
				out = append(out, row)
			}
		}
	}
	return out, err
}

// levelRow returns the row for one mean of a level: want as measured, got and moved as simulated, ms.
// sd is the standard error of log(got/want). The row is weighted as in Point.assess: by that error in
// ms, sd*want, and less beyond robustAt standard errors. Its weight is 0 if the mean was not measured.
func (l *learner) levelRow(want, got, moved float64, by []float64, sd float64) shareRow {
	off := math.Log(got / want)
	if !(want > 0) || !isNumber(off) || !isNumber(moved) {
		return shareRow{}
	}
	pull := math.Min(1, robustAt*sd/math.Abs(off))
	row := shareRow{
		weight:  pull / (sd * sd * want * want),
		off:     want - got,
		byShare: (moved - got) / shareStep,
	}
	for _, j := range l.m.free {
		row.by = append(row.by, by[j])
	}
	return row
}

// shareFinding reports the estimate, and what would replace it.
func shareFinding(e *result.CachedShare, tier string) trace.Finding {
	what := "prompts"
	state := "shared_prefix_tokens under client in run.yaml, or --shared-prefix-tokens TOKENS (0: nothing)"
	if tier == TierPoints {
		what = "load levels"
		state = "a column cached_tokens, " + state
	}
	assumed := "fitted uncached"
	if e.Share > 0 {
		assumed = fmt.Sprintf("fitted with %.2g %% of each prompt cached", 100*e.Share)
	}
	return trace.Findingf(validate.ReplayAssumes,
		"prefix caching is on and nothing states what %d %s share: %s, which the intervals of what a prompt token costs include; %s. State it: %s",
		e.Requests, what, e, assumed, state)
}
