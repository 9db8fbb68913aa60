package requestfit

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
)

// repeats simulates recordings as the server would make them with the fitted
// coefficients, and takes the slope of the fit's equations at these coefficients on
// each. Its mean is what the equations are biased by, its scatter how far one
// recording leads astray, whatever requests share (spec#request-intervals).
//
// Where that step moves replays three times and five standard deviations over twins away from the requests, or steps
// scatter by over a quarter, the answer stays and the step left out counts, squared, as one more error.
type repeats struct {
	*learner
	values  []float64
	rows    [][]replayRow // by load
	scale   [numRowKinds]float64
	weight  struct{ regression, replay float64 } // of the two sorts of equations
	scatter result.RequestScatter
	chunk   int // time blocks whose slopes are one draw
}

// Recordings of few requests are simulated mostRepeats times, of many at least
// leastRepeats times, of others so often that simulatedRequests are in them.
const (
	mostRepeats       = 48
	leastRepeats      = 8
	simulatedRequests = 24_000
	fewerRepeats      = 4 // a quarter of them for what comes first
)

// refitted is a Gauss-Newton step from a candidate with the bias of the equations
// taken off, and the covariance of its errors: those of the recording as simulated
// ones show them, and those of the prior. A first step with a few recordings comes near
// enough for the bias to be that of the answer.
func (l *learner) refitted(s *state) (values, covariance []float64, u *result.RequestScatter, err error) {
	r := l.newRepeats(s)
	size := 0
	for _, load := range l.loads {
		size += len(load.Requests)
	}
	count := max(leastRepeats, min(mostRepeats, simulatedRequests/size))
	few := max(1, count/fewerRepeats)
	for k, n := range []int{few, count} {
		if err := r.replayAll(); err != nil {
			return nil, nil, nil, err
		}
		real, err := r.regression(l.loads)
		if err != nil {
			return nil, nil, nil, err
		}
		if r.scale = real.scales(r.values); k == 0 {
			if err := r.measure(real, few); err != nil {
				return nil, nil, nil, err
			}
		}
		if r.values, covariance, err = r.step(real, n); err != nil {
			return nil, nil, nil, err
		}
	}
	r.scatter.Recordings = count + few
	return r.values, covariance, &r.scatter, nil
}

// step is the step from the candidate by count recordings.
func (r *repeats) step(real *regression, count int) (values, covariance []float64, err error) {
	r.chunk = (r.blocks()*count + mostRepeats - 1) / mostRepeats
	draws := make([][][]float64, count)
	err = par.Try(r.ctx, r.Workers, count, func(k int) error {
		loads, err := r.record(k, r.scatter)
		if err != nil {
			return err
		}
		reg, err := r.regression(loads)
		draws[k] = r.slopes(loads, reg)
		return err
	}, nil)
	if err != nil {
		return nil, nil, err
	}
	n := len(r.m.free)
	bias, meat := moments(draws, n)
	g := r.information(real)
	slope := make([]float64, n)
	for _, v := range r.slopes(r.loads, real) {
		addTo(slope, v)
	}
	for k := range n {
		g.B[k] = ridge.Dot(g.G[k*n:(k+1)*n], r.values) + slope[k] - bias[k]
	}
	o := ridge.DefaultOptions(n)
	o.Prior, o.Precision = r.m.mean, r.m.precision
	fit, err := ridge.Solve(g, 1/g.Q, o)
	if err != nil {
		return nil, nil, err
	}
	covariance, err = r.sandwich(g.G, meat, count)
	return fit.Beta, covariance, err
}

// newRepeats weighs the equations as they are at a candidate.
func (l *learner) newRepeats(s *state) *repeats {
	r := &repeats{learner: l, values: s.values, rows: make([][]replayRow, len(l.loads))}
	e := l.weigh(s)
	r.weight.replay = 1 / (e.variance * e.design)
	if l.stamps != nil {
		r.weight.regression = 1 / l.stamps.design
	}
	return r
}

// replayAll replays the loads with the candidate.
func (r *repeats) replayAll() error {
	return par.Try(r.ctx, r.Workers, len(r.loads), func(i int) (err error) {
		r.rows[i], err = r.replayed(i)
		return err
	}, nil)
}

// replayed are the rows of a load.
func (r *repeats) replayed(i int) ([]replayRow, error) {
	load := r.loads[i]
	cfg, err := load.config(r.m, r.values)
	if err != nil {
		return nil, err
	}
	cfg.Gradient, cfg.Restarts, cfg.Done = true, true, r.ctx.Done()
	all := make([]replayRow, 3*len(load.Requests))
	count := make([]float64, 3*len(load.Requests))
	for _, reqs := range r.twins[i] {
		res, err := sim.Stream(cfg, reqs, nil, func(q int, res *sim.RequestResult) bool {
			if res.Gradient == nil || res.Outcome != sim.OutcomeFinished {
				return true
			}
			for k, d := range [3]*sim.Derivative{&res.Gradient.TTFT, &res.Gradient.Span, &res.Gradient.E2E} {
				w := &all[3*q+k]
				if w.by == nil {
					w.by = make([]float64, len(r.m.free))
				}
				count[3*q+k]++
				w.request = q
				w.metric = k
				w.us += d.Us
				for c, j := range r.m.free {
					w.by[c] += d.By[j]
				}
			}
			return true
		})
		if err != nil {
			return nil, err
		}
		r.steps.Add(res.Steps)
	}
	kept := all[:0]
	for i, w := range all {
		if w.us /= count[i]; !(w.us > 0) {
			continue
		}
		for c := range w.by {
			w.by[c] /= count[i]
		}
		kept = append(kept, w)
	}
	return kept, nil
}

// weightOf is the weight of a replay's row on a recording; 0: nothing measured.
func (r *repeats) weightOf(w *replayRow, load *Load) (weight, measured float64) {
	seen := &load.Seen[w.request]
	measured = [3]float64{seen.TTFTUs, seen.SpanUs, seen.E2EUs}[w.metric]
	if !(measured > 0) {
		return 0, 0
	}
	return r.weight.replay * sim.Pull(w.us, measured) / (w.us * w.us), measured
}

// regression are the rows on who decoded when; none where the fit does without.
func (r *repeats) regression(loads []*Load) (*regression, error) {
	reg := &regression{m: r.m, blockUs: r.BlockUs}
	for i, load := range loads {
		o, err := newOccupancy(load, r.m)
		if err != nil {
			return nil, err
		}
		if reg.offset = i * r.blocks(); o != nil {
			o.rows(r.values, reg)
		}
	}
	return reg, nil
}

// blocks are the time blocks of the longest load.
func (r *repeats) blocks() int {
	n := 1
	for _, load := range r.loads {
		n = max(n, 1+r.block(load, len(load.Requests)-1))
	}
	return n
}

func (r *repeats) block(load *Load, i int) int { return int(load.sent(i) / r.BlockUs) }

// slopes of the equations at the candidate, by chunk of time blocks.
func (r *repeats) slopes(loads []*Load, reg *regression) [][]float64 {
	n, blocks := len(r.m.free), r.blocks()
	out := make([][]float64, (len(loads)*blocks+r.chunk-1)/r.chunk)
	add := func(block int, weight float64, x []float64) {
		at := &out[min(block/r.chunk, len(out)-1)]
		if *at == nil {
			*at = make([]float64, n)
		}
		for k, v := range x {
			(*at)[k] += weight * v
		}
	}
	for i := range reg.rows {
		w := &reg.rows[i]
		add(w.block, r.weight.regression*w.weight(r.values, r.scale)*w.residual(r.values)*w.scale, w.x)
	}
	for i, load := range loads {
		for k := range r.rows[i] {
			w := &r.rows[i][k]
			if weight, measured := r.weightOf(w, load); weight > 0 {
				add(i*blocks+r.block(load, w.request), weight*(measured-w.us), w.by)
			}
		}
	}
	return out
}

// information is that of all equations on the real recording.
func (r *repeats) information(reg *regression) *ridge.Gram {
	g := ridge.New(len(r.m.free))
	for i := range reg.rows {
		w := &reg.rows[i]
		g.AddRow(r.weight.regression*w.weight(r.values, r.scale), w.x, w.y)
	}
	for i, load := range r.loads {
		for k := range r.rows[i] {
			if weight, measured := r.weightOf(&r.rows[i][k], load); weight > 0 {
				g.AddRow(weight, r.rows[i][k].by, measured)
			}
		}
	}
	return g
}

// moments are the mean of the slopes' sums and the covariance of one, chunks taken
// as independent of each other.
func moments(draws [][][]float64, n int) (mean, covariance []float64) {
	mean = make([]float64, n)
	covariance = make([]float64, n*n)
	for c := range draws[0] {
		at := make([]float64, n)
		for _, d := range draws {
			addTo(at, d[c])
		}
		for k := range at {
			mean[k] += at[k] / float64(len(draws))
		}
		for _, d := range draws {
			if d[c] == nil {
				d[c] = make([]float64, n)
			}
			for k := range n {
				by := (d[c][k] - at[k]/float64(len(draws))) / float64(len(draws)-1)
				for i := range n {
					covariance[k*n+i] += by * (d[c][i] - at[i]/float64(len(draws)))
				}
			}
		}
	}
	return mean, covariance
}

func addTo(sum, v []float64) {
	for k := range v {
		sum[k] += v[k]
	}
}

// sandwich is the covariance of the step's answer: its slope scatters as meat does, its
// bias is the mean of count draws, and the truth scatters about the prior as that has it. A
// covariance of few draws has smallest axes that are too short: the usual factor of
// predictions from such a one makes up for them (Hotelling).
func (r *repeats) sandwich(information, meat []float64, count int) ([]float64, error) {
	n := len(r.m.free)
	sum := slices.Clone(information)
	middle := make([]float64, n*n)
	addTo(sum, r.m.precision)
	bread, err := r.m.inverse(sum)
	if err != nil {
		return nil, err
	}
	known := 0.0 // directions, as the data know them
	for k := range n {
		known += 1 - ridge.Dot(bread[k*n:(k+1)*n], r.m.precision[k*n:(k+1)*n])
	}
	draws := float64(mostRepeats)
	wider := (1 + 1/float64(count)) * (draws - 1) / math.Max(1, draws-2-known)
	for k := range middle {
		middle[k] = wider*meat[k] + r.m.precision[k]
	}
	out := ridge.Product(ridge.Product(bread, middle, n), bread, n)
	for k := r.m.beta; k < n; k++ {
		out[k*n+k] += stampSD * stampSD
	}
	return out, nil
}

// stampSD is the deviation, us, whose 95 % hold those of the error of a stamp that is
// rounded to a microsecond: no delay is known better.
const stampSD = 0.475 / normal95

// replayRow is one time of a request and its derivatives, the mean of the twins.
type replayRow struct {
	request, metric int
	us              float64
	by              []float64 // by the free columns
}
