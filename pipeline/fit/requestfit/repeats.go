package requestfit

// This file measures bias and uncertainty of a fit on simulated recordings: repeats.correctedStep simulates the
// loads many times with the fitted coefficients and applies the same equations to each.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
)

// repeats simulates recordings as the server would make them with the fitted
// coefficients, and evaluates the gradient of the fit's equations at these
// coefficients on each (spec#request-intervals). The mean of the gradients is the
// bias of the equations. Their scatter is the sampling error of one recording; it
// includes the correlation between requests, because requests of a simulated
// recording share steps and queues as real ones do.
//
// biasRemoved rejects the resulting step if replays of it are too unlike the
// requests. The answer then stays as it was, and the square of the rejected step
// is added to its variance.
type repeats struct {
	*learner
	values  []float64                            // candidate: the free coefficients
	rows    [][]replayRow                        // by load, of the candidate's replays
	scale   [numRowKinds]float64                 // typical errors of the regression's rows, by kind
	weight  struct{ regression, replay float64 } // of the two kinds of equations; 0: not used
	scatter result.RequestScatter
	bias    []float64 // mean gradient of the equations on simulated recordings
	chunk   int       // time blocks whose gradients are summed into one draw, so that there are about mostRepeats draws
}

// The number of simulated recordings is chosen so that they have about
// simulatedRequests requests together, within leastRepeats and mostRepeats.
const (
	mostRepeats       = 48
	leastRepeats      = 8
	simulatedRequests = 24_000
	fewerRepeats      = 4 // the first of two steps uses this fraction (1/4) of the recordings
)

// refitted makes a Gauss-Newton step from a candidate, corrected for the bias of the equations, and
// returns the equations at the answer and the covariance of the answer's errors: sampling error of
// the recording and uncertainty of the prior. The bias depends on the coefficients, so a first step
// with few recordings moves close to the answer, and a second one with all of them is made from
// there.
func (l *learner) refitted(s *state) (r *repeats, covariance []float64, err error) {
	r = l.newRepeats(s)
	size := 0
	for _, load := range l.loads {
		size += len(load.Requests)
	}
	count := max(leastRepeats, min(mostRepeats, simulatedRequests/size))
	few := count / fewerRepeats
	for pass, n := range []int{few, count} {
		if err := r.replayAll(); err != nil {
			return nil, nil, err
		}
		real, err := r.regression(l.loads)
		if err != nil {
			return nil, nil, err
		}
		r.scale = real.scales(r.values)
		if pass == 0 {
			if err := r.measureScatter(real, few); err != nil {
				return nil, nil, err
			}
		}
		if r.values, covariance, err = r.correctedStep(real, n); err != nil {
			return nil, nil, err
		}
	}
	r.scatter.Recordings = count + few
	return r, covariance, nil
}

// correctedStep returns the result of a Gauss-Newton step from the candidate with the bias and scatter of
// count simulated recordings.
func (r *repeats) correctedStep(real *regression, count int) (values, covariance []float64, err error) {
	r.chunk = (r.countBlocks()*count + mostRepeats - 1) / mostRepeats
	draws := make([][][]float64, count)
	err = par.Try(r.ctx, r.Workers, count, func(k int) error {
		loads, err := r.record(k, r.scatter)
		if err != nil {
			return err
		}
		equations, err := r.regression(loads)
		draws[k] = r.gradients(loads, equations)
		return err
	}, nil)
	if err != nil {
		return nil, nil, err
	}
	// At the coefficients that a recording was simulated with, equations without bias have a mean gradient
	// of 0.
	bias, meat := moments(draws, len(r.m.free))
	r.bias = bias
	values, information, err := r.solve(real)
	if err != nil {
		return nil, nil, err
	}
	covariance, err = r.sandwich(information, meat, count)
	return values, covariance, err
}

// solve takes the Gauss-Newton step from the candidate on the real recording, less the
// bias, and returns the information of the equations too.
func (r *repeats) solve(real *regression) (values, information []float64, err error) {
	n := len(r.m.free)
	g := r.information(real)
	gradient := make([]float64, n)
	for _, v := range r.gradients(r.loads, real) {
		addTo(gradient, v)
	}
	// The normal equations G*answer = B of a step from values along the gradient less its bias.
	for k := range n {
		g.B[k] = ridge.Dot(g.G[k*n:(k+1)*n], r.values) + gradient[k] - r.bias[k]
	}
	o := ridge.DefaultOptions(n)
	o.Prior, o.Precision = r.m.mean, r.m.precision
	fit, err := ridge.Solve(g, 1/g.Q, o)
	return fit.Beta, g.G, err
}

// newRepeats returns the equations at a candidate. Both kinds of equations are weighted by their
// variance there.
func (l *learner) newRepeats(s *state) *repeats {
	r := &repeats{learner: l, values: s.values, rows: make([][]replayRow, len(l.loads))}
	e := l.weigh(s)
	r.weight.replay = 1 / (e.variance * e.design)
	if l.stamps != nil {
		r.weight.regression = 1 / l.stamps.design
	}
	return r
}

// replayAll replays all loads with the candidate.
func (r *repeats) replayAll() error {
	return par.Try(r.ctx, r.Workers, len(r.loads), func(i int) (err error) {
		r.rows[i], err = r.replayLoad(i)
		return err
	}, nil)
}

// replayLoad replays a load with the candidate and returns the mean over its twins
// of every time and of its derivatives. Times that no twin has are omitted.
func (r *repeats) replayLoad(i int) ([]replayRow, error) {
	load := r.loads[i]
	cfg, err := load.config(r.m, r.values)
	if err != nil {
		return nil, err
	}
	cfg.Gradient = true
	cfg.Restarts = true
	cfg.Done = r.ctx.Done()
	all := make([]replayRow, numMetrics*len(load.Requests)) // by request, then by metric
	count := make([]float64, len(all))                      // twins that have the time
	for _, reqs := range r.twins[i] {
		res, err := sim.Stream(cfg, reqs, nil, func(request int, res *sim.RequestResult) bool {
			if res.Gradient == nil || res.Outcome != sim.OutcomeFinished {
				return true
			}
			times := [numMetrics]*sim.Derivative{&res.Gradient.TTFT, &res.Gradient.Span, &res.Gradient.E2E}
			for metric, time := range times {
				row := &all[numMetrics*request+metric]
				if row.by == nil {
					row.by = make([]float64, len(r.m.free))
				}
				count[numMetrics*request+metric]++
				row.request = request
				row.metric = metric
				row.us += time.Us
				for column, j := range r.m.free {
					row.by[column] += time.By[j]
				}
			}
			return true
		})
		if err != nil {
			return nil, err
		}
		r.steps.Add(res.Steps)
	}
	// Turn sums into means, and drop the times that no twin has.
	kept := all[:0]
	for i, row := range all {
		row.us /= count[i]
		if !(row.us > 0) { // NaN without a finished twin
			continue
		}
		for column := range row.by {
			row.by[column] /= count[i]
		}
		kept = append(kept, row)
	}
	return kept, nil
}

// weightOf returns the weight of a replay's row on a recording and the time
// measured there, us. Errors count relative to the simulated time, with Huber's loss (sim.Pull). The
// weight is 0 if the time was not measured.
func (r *repeats) weightOf(w *replayRow, load *Load) (weight, measured float64) {
	seen := &load.Seen[w.request]
	measured = [numMetrics]float64{seen.TTFTUs, seen.SpanUs, seen.E2EUs}[w.metric]
	if !(measured > 0) {
		return 0, 0
	}
	return r.weight.replay * sim.Pull(w.us, measured) / (w.us * w.us), measured
}

// regression returns the rows of the regression on occupancy at the candidate: of the real loads, or of
// simulated recordings of them. Loads without client stamps add none.
func (r *repeats) regression(loads []*Load) (*regression, error) {
	reg := &regression{m: r.m, blockUs: r.BlockUs}
	for i, load := range loads {
		o, err := newOccupancy(load, r.m)
		if err != nil {
			return nil, err
		}
		reg.offset = i * r.countBlocks() // as gradients numbers the blocks
		if o != nil {
			o.addRows(r.values, reg)
		}
	}
	return reg, nil
}

// countBlocks returns the number of time blocks of the longest load.
func (r *repeats) countBlocks() int {
	n := 1
	for _, load := range r.loads {
		n = max(n, 1+r.blockOf(load, len(load.Requests)-1))
	}
	return n
}

// blockOf returns the time block in which a request was sent.
func (r *repeats) blockOf(load *Load, request int) int {
	return int(load.sent(request) / r.BlockUs)
}

// gradients returns the gradient of the equations at the candidate, summed by chunk of time blocks.
// A chunk without equations is nil.
func (r *repeats) gradients(loads []*Load, equations *regression) [][]float64 {
	n := len(r.m.free)
	blocks := r.countBlocks()
	out := make([][]float64, (len(loads)*blocks+r.chunk-1)/r.chunk)
	add := func(block int, weight float64, x []float64) {
		k := min(block/r.chunk, len(out)-1)
		if out[k] == nil {
			out[k] = make([]float64, n)
		}
		for j, v := range x {
			out[k][j] += weight * v
		}
	}
	// First the equations of the regression, then those of the replays: weight * residual * derivative.
	for i := range equations.rows {
		w := &equations.rows[i]
		weight := r.weight.regression * w.weight(r.values, r.scale)
		add(w.block, weight*w.residual(r.values)*w.scale, w.x)
	}
	for i, load := range loads {
		for k := range r.rows[i] {
			w := &r.rows[i][k]
			weight, measured := r.weightOf(w, load)
			if weight > 0 {
				add(i*blocks+r.blockOf(load, w.request), weight*(measured-w.us), w.by)
			}
		}
	}
	return out
}

// information returns the sum of the Gram matrices of all equations on the real recording.
func (r *repeats) information(reg *regression) *ridge.Gram {
	gram := ridge.New(len(r.m.free))
	for i := range reg.rows {
		w := &reg.rows[i]
		gram.AddRow(r.weight.regression*w.weight(r.values, r.scale), w.x, w.y)
	}
	for i, load := range r.loads {
		for k := range r.rows[i] {
			w := &r.rows[i][k]
			weight, measured := r.weightOf(w, load)
			if weight > 0 {
				gram.AddRow(weight, w.by, measured)
			}
		}
	}
	return gram
}

// moments returns the mean over recordings of the gradient, summed over its chunks,
// and the covariance of one recording's gradient. Chunks are treated as independent,
// so that their covariances add up and few recordings of many chunks serve as well
// as mostRepeats recordings. draws is by recording, chunk and column.
func moments(draws [][][]float64, n int) (mean, covariance []float64) {
	mean = make([]float64, n)
	covariance = make([]float64, n*n)
	count := float64(len(draws))
	for chunk := range draws[0] {
		sum := make([]float64, n)
		for _, d := range draws {
			addTo(sum, d[chunk])
		}
		for k := range sum {
			mean[k] += sum[k] / count
		}
		for _, d := range draws {
			if d[chunk] == nil {
				d[chunk] = make([]float64, n)
			}
			for k := range n {
				deviation := (d[chunk][k] - sum[k]/count) / (count - 1)
				for i := range n {
					covariance[k*n+i] += deviation * (d[chunk][i] - sum[i]/count)
				}
			}
		}
	}
	return mean, covariance
}

// addTo adds v to sum, element by element.
func addTo(sum, v []float64) {
	for k := range v {
		sum[k] += v[k]
	}
}

// sandwich returns the covariance of the step's answer, bread*middle*bread. The middle is
// the covariance of the gradient (meat), with the error of its bias as the mean of
// count draws, plus the precision of the prior. A covariance estimated from few
// draws is too small along its smallest axes; Hotelling's factor for predictions
// from an estimated covariance corrects that.
func (r *repeats) sandwich(information, meat []float64, count int) ([]float64, error) {
	n := len(r.m.free)
	curvature := slices.Clone(information)
	addTo(curvature, r.m.precision)
	bread, err := r.m.inverse(curvature)
	if err != nil {
		return nil, err
	}
	known := 0.0 // effective number of directions that the data determine
	for k := range n {
		known += 1 - ridge.Dot(bread[k*n:(k+1)*n], r.m.precision[k*n:(k+1)*n])
	}
	// Chunks count as recordings of their own (moments), so there are always about mostRepeats draws.
	draws := float64(mostRepeats)
	wider := (1 + 1/float64(count)) * (draws - 1) / math.Max(1, draws-2-known)
	middle := make([]float64, n*n)
	for k := range middle {
		middle[k] = wider*meat[k] + r.m.precision[k]
	}
	out := ridge.Product(ridge.Product(bread, middle, n), bread, n)
	for k := r.m.beta; k < n; k++ { // the delays come after the terms of the step time
		out[k*n+k] += stampSD * stampSD
	}
	return out, nil
}

// stampSD is a lower bound on the standard error of a delay, us: client stamps are
// rounded to a microsecond, so 95 % of their errors lie within 0.475 us.
const stampSD = 0.475 / stat.Normal95

// numMetrics counts the times of a request that replays are compared by: TTFT,
// span and E2E, in this order.
const numMetrics = 3

// replayRow is one time of a request and its derivatives, averaged over the twins.
type replayRow struct {
	request int
	metric  int // below numMetrics
	us      float64
	by      []float64 // derivative by each free column
}
