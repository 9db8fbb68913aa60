package build

// This file fits the corrections of package library to measured servers: a least-squares fit under
// priors, in which each family of measurements is also predicted by a fit without it.

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
)

// correction has the values of the parameters: those of library.Parameters that all GPUs share, then
// those of library.ByGPU for each GPU.
type correction struct {
	GPUs       []string  // datasheet names, sorted
	Theta      []float64 // the shared parameters, then len(library.ByGPU) ones of each GPU
	Covariance []float64 // of Theta, len(Theta)^2, row-major; nil: the prior's
}

const (
	numCommon = library.NumStep + 1 // parameters that GPUs share: those of a step, and the overhead

	// Standard deviations that are assumed of the log of a measured time. A step cycle (the time from one step to the
	// next) has the smallest, because no load generator is part of it.
	tpotSD  = 0.05
	ttftSD  = 0.30
	cycleSD = 0.025

	ttftCount  = 4   // effective number of TTFT points per family, because all share one unknown load generator
	cycleCount = 15  // effective number of step cycles per run, however many there are
	huberSD    = 2.0 // standard deviations beyond which a residual counts in proportion to its size, not its square
	passes     = 8   // steps of Gauss-Newton, after which the parameters no longer move
)

// newCorrection returns the prior means.
func newCorrection(gpus []string) *correction {
	c := &correction{GPUs: slices.Compact(slices.Sorted(slices.Values(gpus)))}
	for k := range numCommon + len(library.ByGPU)*len(c.GPUs) {
		c.Theta = append(c.Theta, c.prior(k).Mean)
	}
	return c
}

// prior returns the parameter at an index of Theta.
func (c *correction) prior(k int) library.Parameter {
	if k < numCommon {
		return library.Parameters[k]
	}
	return library.ByGPU[(k-numCommon)%len(library.ByGPU)]
}

// gpuOf returns the GPU that the parameter at an index of Theta belongs to; "" for a shared one.
func (c *correction) gpuOf(k int) string {
	if k < numCommon {
		return ""
	}
	return c.GPUs[(k-numCommon)/len(library.ByGPU)]
}

// gpuIndex returns the index of a GPU's first parameter in Theta; -1 for a GPU that was not measured.
func (c *correction) gpuIndex(gpu string) int {
	i := slices.Index(c.GPUs, gpu)
	if i < 0 {
		return -1
	}
	return numCommon + i*len(library.ByGPU)
}

// stepIndex returns the index in library.Parameters of the parameter that library.ByGPU has at i.
func stepIndex(i int) int {
	return slices.IndexFunc(library.Parameters[:], func(p library.Parameter) bool { return p.Name == library.ByGPU[i].Name })
}

// stepValuesOn returns the values of a step's parameters on a GPU.
func (c *correction) stepValuesOn(gpu string) (out [library.NumStep]float64) {
	copy(out[:], c.Theta)
	at := c.gpuIndex(gpu)
	for i := range library.ByGPU {
		if k := stepIndex(i); at >= 0 {
			out[k] = math.Max(library.Parameters[k].AtLeast, out[k]+c.Theta[at+i])
		}
	}
	return out
}

// derivativesOf returns the derivatives of a time on a GPU by all of Theta, from its derivatives by a step's
// parameters and, if it has one, by the overhead (by). A GPU's own parameter is added to the shared one, so both
// have the same derivative; those of other GPUs are 0.
func (c *correction) derivativesOf(gpu string, by []float64) []float64 {
	out := make([]float64, len(c.Theta))
	copy(out, by)
	if at := c.gpuIndex(gpu); at >= 0 {
		for i := range library.ByGPU {
			out[at+i] = by[stepIndex(i)]
		}
	}
	return out
}

// evidence is one measured number: the error of its prediction, and how that changes with each
// parameter.
type evidence struct {
	log    float64   // log predicted - log measured
	by     []float64 // the derivatives of log, in the order of Theta
	sd     float64   // standard deviation of log that is expected
	weight float64   // as how many measurements it counts
}

// simulated returns the simulated means of a load under the correction, with derivatives if
// gradient is set.
func (c *correction) simulated(l *load, gradient bool) (*sim.Means, error) {
	cfg := c.configOf(l)
	cfg.Gradient = gradient
	return sim.MeansOf(cfg, l.reqs)
}

// configOf returns the simulation of a load under the correction.
func (c *correction) configOf(l *load) sim.Config {
	cfg := sim.DefaultConfig(l.dep, sim.NewTables(l.step, c.stepValuesOn(l.dep.Hardware.Name)))
	cfg.Overhead = sim.Const(c.Theta[numCommon-1])
	if l.inProcess {
		cfg.Overhead = sim.Const(0)
	}
	cfg.KVBlocks = l.kvBlocks
	return cfg
}

// relativeEvidence returns the evidence of one predicted time and its derivatives in the order of Theta:
// dividing them by the prediction gives those of its log.
func relativeEvidence(predicted, measured float64, by []float64, sd, weight float64) evidence {
	e := evidence{log: math.Log(predicted / measured), by: slices.Clone(by), sd: sd, weight: weight}
	for k := range e.by {
		e.by[k] /= predicted
	}
	return e
}

// means has the simulated means of a load with their derivatives, and the parameters they were
// simulated under. Means under other parameters are extrapolated linearly.
type means struct {
	*sim.Means
	at []float64 // Theta
}

// simulateAll returns the means of every load, simulated under the corrections of its GPU, with
// derivatives.
func (c *correction) simulateAll(ctx context.Context, ls []*load, workers int) (map[*load]means, error) {
	list := make([]means, len(ls))
	err := par.Try(ctx, workers, len(ls), func(i int) (err error) {
		list[i].at = slices.Clone(c.Theta)
		list[i].Means, err = c.simulated(ls[i], true)
		return err
	}, nil)
	out := map[*load]means{}
	for i, l := range ls {
		out[l] = list[i]
	}
	return out, err
}

// simulateAtFit returns the means of all loads for fits: those of points simulated under the prior, those of runs under
// a first fit to all. Requests of a run wait for each other near capacity, where a straight line from the prior misses.
func (m *Measured) simulateAtFit(ctx context.Context, prior *correction, workers int) (map[*load]means, error) {
	of, err := prior.simulateAll(ctx, slices.Concat(m.points, m.served), workers)
	if err != nil {
		return nil, err
	}
	first := fitCorrection(prior, slices.Concat(m.points, m.served), of, m.cycles)
	again, err := first.simulateAll(ctx, m.served, workers)
	maps.Copy(of, again)
	return of, err
}

// changeTo returns the change of a mean from the simulated parameters to those of c, by its
// derivatives.
func (m *means) changeTo(c *correction, by []float64) float64 {
	sum := 0.0
	for k, v := range by {
		sum += v * (c.Theta[k] - m.at[k])
	}
	return sum
}

// evidenceOf returns the evidence in all measurements, predicted under c: TPOT and TTFT of each load, then
// the step cycles. of has the simulated means of each load, from which they are extrapolated.
func (c *correction) evidenceOf(ls []*load, of map[*load]means, ys []*cycles) []evidence {
	var out []evidence
	for _, l := range ls {
		m := of[l]
		gpu := l.dep.Hardware.Name
		tpotBy := c.derivativesOf(gpu, m.TPOTBy[:library.NumStep+1])
		ttftBy := c.derivativesOf(gpu, m.TTFTBy[:library.NumStep+1])
		if l.inProcess { // simulated without the overhead
			tpotBy[numCommon-1] = 0
			ttftBy[numCommon-1] = 0
		}
		out = append(out, relativeEvidence(m.TPOTMs+m.changeTo(c, tpotBy), l.tpotMs, tpotBy, tpotSD, l.tpotWeight),
			relativeEvidence(math.Max(l.ttftMs/leastTTFT, m.TTFTMs+m.changeTo(c, ttftBy)), l.ttftMs, ttftBy, ttftSD, l.ttftWeight))
	}
	for _, y := range ys {
		theta := c.stepValuesOn(y.gpu)
		for i, us := range y.us {
			predicted, x := y.timeOf(i, &theta)
			out = append(out, relativeEvidence(predicted, us, c.derivativesOf(y.gpu, x[:]), cycleSD, cycleCount/float64(len(y.us))))
		}
	}
	return out
}

// timeOf returns the predicted time of a cycle in us, and the features that it is linear in.
func (y *cycles) timeOf(i int, theta *[library.NumStep]float64) (us float64, x [library.NumStep]float64) {
	x = y.x[i]
	library.Slower(theta, &x)
	for k, v := range theta {
		us += v * x[k]
	}
	return us, x
}

// leastTTFT is by how many times a linear extrapolation may make a TTFT smaller than the measured one: it
// could otherwise reach 0, which has no log.
const leastTTFT = 20

// fitCorrection returns a correction fitted to simulated loads and cycles, by Gauss-Newton on the
// logs of the times.
func fitCorrection(from *correction, ls []*load, of map[*load]means, ys []*cycles) *correction {
	c := newCorrection(from.GPUs)
	for range passes {
		c.gaussNewtonStep(c.evidenceOf(ls, of, ys))
	}
	return c
}

// gpusOf returns the GPUs of loads and cycles.
func gpusOf(ls []*load, ys []*cycles) []string {
	var names []string
	for _, l := range ls {
		names = append(names, l.dep.Hardware.Name)
	}
	for _, y := range ys {
		names = append(names, y.gpu)
	}
	return distinct(names)
}

// gaussNewtonStep moves the parameters by one Gauss-Newton step under the prior, with Huber's
// weights, for the least sum of squares of (log/sd), each times its weight, and of the parameters' distances
// from their priors. Parameters stay at or above their least value.
func (c *correction) gaussNewtonStep(es []evidence) {
	numParameters := len(c.Theta)
	normal := make([]float64, numParameters*numParameters) // matrix of the normal equations, row-major
	right := make([]float64, numParameters)                // their right side
	// The priors, as evidence on each parameter.
	for k := range numParameters {
		p := c.prior(k)
		normal[k*numParameters+k] += 1 / (p.SD * p.SD)
		right[k] += (p.Mean - c.Theta[k]) / (p.SD * p.SD)
	}
	// The measurements. Residuals beyond huberSD standard deviations count in proportion to their
	// size, not to its square.
	for _, e := range es {
		weight := e.weight / (e.sd * e.sd)
		if z := math.Abs(e.log) / e.sd; z > huberSD {
			weight *= huberSD / z
		}
		for k, by := range e.by {
			right[k] -= weight * by * e.log
			for other, otherBy := range e.by {
				normal[k*numParameters+other] += weight * by * otherBy
			}
		}
	}
	c.solve(normal, right)
}

// solve moves the parameters by the solution of the normal equations a x = rhs. A parameter that would fall
// below its least value is held there, which fixes its move, and the others are solved again.
func (c *correction) solve(a, rhs []float64) {
	n := len(rhs)
	held := make([]bool, n)
	for {
		matrix := slices.Clone(a)
		moves := slices.Clone(rhs)
		// Take the known moves of held parameters out of the equations of the others.
		for k := range n {
			if !held[k] {
				continue
			}
			move := c.prior(k).AtLeast - c.Theta[k]
			for l := range n {
				if l != k {
					moves[l] -= matrix[l*n+k] * move
					matrix[l*n+k], matrix[k*n+l] = 0, 0
				}
			}
			moves[k] = matrix[k*n+k] * move
		}
		stat.Cholesky(matrix, n)
		stat.CholeskySolve(matrix, n, moves)
		again := false
		for k := range n {
			if !held[k] && c.Theta[k]+moves[k] < c.prior(k).AtLeast {
				held[k], again = true, true
			}
		}
		if again {
			continue
		}
		for k := range n {
			c.Theta[k] = math.Max(c.prior(k).AtLeast, c.Theta[k]+moves[k])
		}
		c.Covariance = stat.CholeskyInverse(matrix, n)
		return
	}
}

// judged is a measured load with the errors of its prediction, predicted/measured - 1.
type judged struct {
	*load
	tpotErr, ttftErr float64
	// decodeShare and promptShare are of library.Step.UnmeasuredShares, under the correction that predicted.
	decodeShare, promptShare float64
}

// predictLoads returns predictions of loads with a correction, compared with the measurements.
func (c *correction) predictLoads(ctx context.Context, ls []*load, workers int) ([]judged, error) {
	out := make([]judged, len(ls))
	err := par.Try(ctx, workers, len(ls), func(i int) error {
		o, err := c.simulated(ls[i], false)
		if err == nil {
			out[i] = ls[i].judged(o.TTFTMs, o.TPOTMs)
			theta := c.stepValuesOn(ls[i].dep.Hardware.Name)
			asked := ls[i].asked()
			out[i].decodeShare, out[i].promptShare = ls[i].step.UnmeasuredShares(&theta, c.Theta[numCommon-1], &asked)
		}
		return err
	}, nil)
	return out, err
}

// judged returns the load compared with a prediction of its means, ms.
func (l *load) judged(ttftMs, tpotMs float64) judged {
	return judged{load: l, tpotErr: tpotMs/l.tpotMs - 1, ttftErr: ttftMs/l.ttftMs - 1}
}

// asked returns the axes of the load that its intervals depend on.
func (l *load) asked() library.Asked {
	a := library.AskedOf(l.dep)
	if l.point != nil {
		a.InputTokens = l.point.InputTokens
		a.OutputTokens = l.point.OutputTokens
		a.Clients = int64(l.point.Concurrency)
	}
	return a
}

// errorsOf returns the absolute errors of a point's figures. It states TTFT and TPOT; E2E is TTFT +
// (n - 1) TPOT, and throughput the clients over E2E.
func (j *judged) errorsOf() library.Intervals {
	gaps := float64(j.point.OutputTokens - 1)
	measured := j.ttftMs + gaps*j.tpotMs
	predicted := j.ttftMs*(1+j.ttftErr) + gaps*j.tpotMs*(1+j.tpotErr)
	return library.Intervals{
		TTFT:       math.Abs(j.ttftErr),
		ITL:        math.Abs(j.tpotErr),
		E2E:        math.Abs(predicted/measured - 1),
		Throughput: math.Abs(measured/predicted - 1),
	}
}

// perShare returns the intervals for each share of time that rests on no measured kernel, from all
// points of known flags that are not of the family; "" for all.
func perShare(js []judged, without string) library.Intervals {
	var ttft, itl, e2e, throughput []float64
	for i := range js {
		j := &js[i]
		if j.step.Family == without || j.point.served == nil {
			continue
		}
		errors := j.errorsOf()
		ttft = append(ttft, errors.TTFT/j.promptShare)
		itl = append(itl, errors.ITL/j.decodeShare)
		e2e = append(e2e, errors.E2E/j.decodeShare)
		throughput = append(throughput, errors.Throughput/j.decodeShare)
	}
	if len(ttft) == 0 { // nothing else was measured
		return library.Intervals{}
	}
	return library.Intervals{
		TTFT:       stat.Round(interval90(ttft), 3),
		ITL:        stat.Round(interval90(itl), 3),
		E2E:        stat.Round(interval90(e2e), 3),
		Throughput: stat.Round(interval90(throughput), 3),
	}
}

// leaveOut returns predictions of all points of m, each family by a correction that was fitted without it. The recorded
// runs are in every fit.
func leaveOut(ctx context.Context, from *correction, m *Measured, of map[*load]means, workers int) ([]judged, error) {
	var out []judged
	var families []string
	for _, l := range m.points {
		families = append(families, l.family)
	}
	for _, family := range distinct(families) {
		var left []*load
		rest := slices.Clone(m.served)
		for _, l := range m.points {
			if l.family == family {
				left = append(left, l)
			} else {
				rest = append(rest, l)
			}
		}
		predictions, err := fitCorrection(from, rest, of, m.cycles).predictLoads(ctx, left, workers)
		if err != nil {
			return nil, err
		}
		out = append(out, predictions...)
	}
	return out, nil
}

// Sources name the files from which corrections are learned.
type Sources struct {
	Points []string // files of measured points
	Flags  string   // file with what the points' servers ran; "": unknown
	Models string   // folder of the points' config.json
	Runs   []string // folders of real runs: step cycles or stock spans
}

// Measured has the measurements of real servers.
type Measured struct {
	points []*load   // means of load levels, from files of points
	served []*load   // recorded runs whose requests have times, but whose steps have none
	cycles []*cycles // recorded runs whose steps have times
	Inputs []result.Input
}

// Read returns the measurements from which corrections are learned, read from the files in src: means
// of load levels (points) and recorded runs.
func Read(ctx context.Context, src Sources) (*Measured, error) {
	m := &Measured{}
	var err error
	if m.points, m.Inputs, err = loadsOf(&src); err != nil {
		return nil, err
	}
	ys, served, ins, err := readRuns(ctx, src.Runs)
	m.cycles = ys
	m.served = served
	m.Inputs = append(m.Inputs, ins...)
	return m, err
}

// se returns the standard error of a parameter.
func (c *correction) se(k int) float64 {
	if n := len(c.Theta); c.Covariance != nil {
		return math.Sqrt(c.Covariance[k*n+k])
	}
	return c.prior(k).SD
}

// Learn returns the corrections to embed, learned from all measurements. Each family is validated
// with corrections that were fitted without it.
func (m *Measured) Learn(ctx context.Context, version string, workers int) (*library.Corrections, error) {
	prior := newCorrection(gpusOf(slices.Concat(m.points, m.served), m.cycles))
	all := slices.Concat(m.points, m.served)
	of, err := m.simulateAtFit(ctx, prior, workers)
	if err != nil {
		return nil, err
	}
	left, err := leaveOut(ctx, prior, m, of, workers)
	if err != nil {
		return nil, err
	}
	return fitCorrection(prior, all, of, m.cycles).published(version, left), nil
}

// published returns the corrections in the form of the file. left are the held-out predictions.
func (c *correction) published(version string, left []judged) *library.Corrections {
	out := &library.Corrections{
		Version: version,
		GPUs:    map[string]map[string][2]float64{},
		Step:    map[string][2]float64{},
	}
	for k, v := range c.Theta {
		pair := [2]float64{stat.Round(v, 4), stat.Round(c.se(k), 4)}
		gpu := c.gpuOf(k)
		if gpu == "" {
			out.Step[c.prior(k).Name] = pair
			continue
		}
		if out.GPUs[gpu] == nil {
			out.GPUs[gpu] = map[string][2]float64{}
		}
		out.GPUs[gpu][c.prior(k).Name] = pair
	}
	ofFamily := map[string][]judged{}
	var families []string
	for _, j := range left {
		if j.listed() {
			families = append(families, j.step.Family)
			ofFamily[j.step.Family] = append(ofFamily[j.step.Family], j)
		}
	}
	listed := slices.DeleteFunc(slices.Clone(left), func(j judged) bool { return !j.listed() })
	out.PerShare = perShare(listed, "")
	for _, f := range distinct(families) {
		judgement := judgementOf(f, ofFamily[f])
		judgement.PerShare = perShare(listed, f)
		out.Judged = append(out.Judged, judgement)
	}
	out.Unseen = widestOf(out.Judged)
	return out
}

// widestOf returns the widest of the families' own intervals of each figure: the floor under the intervals of what no
// server was measured for.
func widestOf(judged []library.Judged) (out library.Intervals) {
	for i := range judged {
		own := &judged[i].Intervals
		out.TTFT = math.Max(out.TTFT, own.TTFT)
		out.ITL = math.Max(out.ITL, own.ITL)
		out.E2E = math.Max(out.E2E, own.E2E)
		out.Throughput = math.Max(out.Throughput, own.Throughput)
	}
	return out
}

// judgementOf returns what the predictions of a family show that was held out of the fit.
func judgementOf(family string, js []judged) library.Judged {
	judgement := library.Judged{Family: family, Points: len(js)}
	var tpot, ttft, e2e, throughput []float64 // errors
	var models, flags []string
	for _, j := range js {
		measuredPoint := j.point
		flags = append(flags, measuredPoint.served.shown()...)
		models = append(models, measuredPoint.model)
		judgement.TP = append(judgement.TP, j.dep.TP)
		judgement.Unknown = judgement.Unknown || measuredPoint.served == nil
		judgement.Measured.Widen(measuredPoint.InputTokens, measuredPoint.OutputTokens, int64(measuredPoint.Concurrency), j.dep, j.dep.Model.Layered.KVBytes)
		errors := j.errorsOf()
		tpot = append(tpot, errors.ITL)
		ttft = append(ttft, errors.TTFT)
		e2e = append(e2e, errors.E2E)
		throughput = append(throughput, errors.Throughput)
	}
	judgement.Model, judgement.TP = strings.Join(distinct(models), " and "), distinct(judgement.TP)
	for _, flag := range distinct(slices.Clone(flags)) {
		count := 0
		for _, f := range flags {
			if f == flag {
				count++
			}
		}
		judgement.Flags = append(judgement.Flags, fmt.Sprintf("%s (%d of %d)", flag, count, judgement.Points))
	}
	judgement.TPOTMape = stat.Round(stat.Mean(tpot), 3)
	judgement.TTFTMedian = stat.Round(stat.Median(ttft), 3)
	judgement.Intervals = library.Intervals{
		TTFT:       stat.Round(interval90(ttft), 3),
		ITL:        stat.Round(interval90(tpot), 3),
		E2E:        stat.Round(interval90(e2e), 3),
		Throughput: stat.Round(interval90(throughput), 3),
	}
	return judgement
}

// interval90 returns a bound that nine in ten errors of further measurements stay within: the
// conformal quantile of n given errors, that of 0.9 (n+1)/n (spec#library-step).
func interval90(errors []float64) float64 {
	n := float64(len(errors))
	return stat.Quantile(stat.Sorted(errors), min(1, 0.9*(n+1)/n))
}

// listed reports whether a measurement is fitted and counted in means. The points of gpt-oss at 512
// clients are not: their published TPOT equals that of 4 clients.
func (l *load) listed() bool {
	return !(strings.Contains(l.group, "gpt-oss") && l.point != nil && l.point.Concurrency >= 512)
}

// Text returns the corrections as a file, with the inputs from which they were learned.
func Text(c *library.Corrections, inputs []result.Input) ([]byte, error) {
	body, err := c.YAML()
	if err != nil {
		return nil, err
	}
	text := "# Made by `blis-train library build`; nothing is written by hand.\n"
	for _, in := range inputs {
		text += fmt.Sprintf("# from %s, sha256 %s\n", in.Name, in.SHA256)
	}
	return append([]byte(text), body...), nil
}
