package autoscale

// This file fits the effective parameters of each server and scores them on windows that the fit
// has not seen.

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Estimators, as they are named in the scores and in windows.parquet.
const (
	estPhysical  = "physical"
	estEffective = "effective"
	estConstant  = "constant"
	estAtSpeed   = "effective_at_speed" // effective parameters scaled by the machine's speed in the window's own steps
)

// Sets of windows, as they are named in the scores.
const (
	Train   = "train"
	holdOut = "hold_out"
)

// Calibrated is a server and the fit of its effective parameters.
type Calibrated struct {
	*Server
	Doc   QueueServer
	X     []float64 // effective parameters, nil without
	Split int       // number of training windows, which are the first ones
	Gap   int       // number of windows after these that share time with training and with held-out windows, and count as neither
	speed []float64 // speed of the machine in each window, relative to its usual one; nil without recorded steps
}

// calibrate estimates the effective parameters of a server, and scores a second fit to its training
// windows on the others (spec#queue-hold-out). If the windows do not determine the parameters, the
// document gets the reason, and no error is returned.
func calibrate(s *Server, o *Options) (*Calibrated, error) {
	f := &Calibrated{Server: s, Split: len(s.Windows)}
	f.describeServer(o)
	if s.Reason != "" {
		return f, nil
	}
	if len(s.Windows) == 0 {
		why := s.withoutWindows("windows: got none")
		f.Doc.Reason = why.Error()
		if why.Hint != "" {
			f.Doc.Reason += "; hint: " + why.Hint
		}
		return f, nil
	}
	f.split(o.HoldOut)
	f.speed = s.speeds(f.Split)
	opt := defaultFit(o.Flavour)
	opt.Physical = s.Physical.vector(o.Flavour)
	opt.Medians = s.Source == fromSweep && !o.Sweep.Mean
	all, err := Fit(s.Windows, opt)
	if err != nil {
		var refused *trace.Error
		if !errors.As(err, &refused) || refused.Code == badOption {
			return nil, err
		}
		f.Doc.Reason = refused.Error()
		if refused.Hint != "" {
			f.Doc.Reason += "; hint: " + refused.Hint
		}
		return f, nil
	}
	f.X = all.X
	f.Doc.Findings = append(f.Doc.Findings, all.Findings...)
	f.Doc.Effective = s.effective(o.Flavour, all)
	f.Doc.Findings = append(f.Doc.Findings, widenIntervals(f.Doc.Effective, s.Windows, all, opt)...)
	for j := range f.Doc.Effective {
		if q := &f.Doc.Effective[j]; q.judgeInterval() {
			f.Doc.Findings = append(f.Doc.Findings, trace.Findingf(heldParameter,
				"%s: the windows do not determine %s: its 95 %% interval is too wide or has no ends", s.ID, q.Name))
		}
	}
	f.Doc.Findings = append(f.Doc.Findings, s.parameterFindings(o.Flavour, f.Doc.Effective)...)
	f.Doc.Identify = identifyDoc(&all.Evaluated)
	f.Doc.Objective = &queueObjective{Value: result.OrNull(all.Objective), NelderMead: result.OrNull(all.NelderMead)}
	f.Doc.Noise = noiseOf(s.Windows, o.Flavour, all.X)
	f.Doc.Covar = all.Cov
	f.Doc.Points = f.operatingPoints(o.Flavour)
	f.scoreEstimators(o, opt)
	f.Doc.Verdict = f.verdict()
	return f, nil
}

// split divides the windows into training windows, the first ones, and a hold-out, if there are enough: windows that
// overlap count as many as would cover their time without overlap.
func (f *Calibrated) split(holdOut float64) {
	n := len(f.Windows)
	if independentWindows(f.Windows) < leastHoldOut {
		return
	}
	f.Split = n - int(math.Ceil(holdOut*float64(n)))
	firstNs := int64(math.MaxInt64) // start of the hold-out
	for _, w := range f.Windows[f.Split:] {
		firstNs = min(firstNs, w.StartNs)
	}
	for f.Split > 0 && f.Windows[f.Split-1].EndNs > firstNs {
		f.Split--
		f.Gap++
	}
}

// heldOut returns the windows of the hold-out.
func (f *Calibrated) heldOut() []window { return f.Windows[f.Split+f.Gap:] }

// calibrationPoints is the number of operating points in the document.
const calibrationPoints = 8

// operatingPoints returns the windows that are most informative about the parameters.
func (f *Calibrated) operatingPoints(flavour Flavour) []queueOperating {
	out := []queueOperating{}
	for _, i := range informative(f.Windows, flavour, f.X, calibrationPoints) {
		w := &f.Windows[i]
		out = append(out, queueOperating{
			Name:         w.Name,
			RateRPS:      w.RateRPS,
			PromptTokens: w.Shape.Prompt,
			OutputTokens: w.Shape.Output,
			TTFTMs:       w.TTFTMs,
			ITLMs:        w.ITLMs,
		})
	}
	return out
}

// describeServer fills in the parts of the document that do not depend on the fit.
func (f *Calibrated) describeServer(o *Options) {
	s := f.Server
	f.Doc = QueueServer{
		ID:          s.ID,
		Source:      s.Source,
		Model:       s.Model,
		Accelerator: s.Accelerator,
		AccCount:    s.AccCount,
		Reason:      s.Reason,
		Limits:      s.Limits,
		Load:        loadOf(s.Windows),
		Fitted:      rangeOf(s.Windows),
		Physical:    s.Physical.document(o.Flavour),
		Windows:     s.Account,
		Findings:    append([]trace.Finding{}, s.Findings...),
		Scores:      []queueScore{},
		Tracks:      []queueTrack{},
	}
	if s.Physical != nil {
		f.Doc.Steps = s.Physical.Errors
		f.Doc.Findings = append(f.Doc.Findings, s.parameterFindings(o.Flavour, f.Doc.Physical)...)
	}
}

// loadOf returns the medians of rate, lengths and latencies over the windows; nil if there are
// none.
func loadOf(w []window) *queueLoad {
	if len(w) == 0 {
		return nil
	}
	medianOf := func(field func(*window) float64) float64 {
		var values []float64
		for i := range w {
			values = append(values, field(&w[i]))
		}
		return stat.Median(values)
	}
	return &queueLoad{
		RateRPS:      medianOf(func(w *window) float64 { return w.RateRPS }),
		PromptTokens: medianOf(func(w *window) float64 { return w.Shape.Prompt }),
		CachedTokens: medianOf(func(w *window) float64 { return w.Shape.Cached }),
		OutputTokens: medianOf(func(w *window) float64 { return w.Shape.Output }),
		PromptCV2:    medianOf(func(w *window) float64 { return w.Shape.PromptCV2 }),
		OutputCV2:    medianOf(func(w *window) float64 { return w.Shape.OutputCV2 }),
		TTFTMs:       medianOf(func(w *window) float64 { return w.TTFTMs }),
		ITLMs:        medianOf(func(w *window) float64 { return w.ITLMs }),
	}
}

// effective returns the parameters of a fit in the form of the document.
func (s *Server) effective(f Flavour, fit *fitted) []queueParameter {
	physical := s.Physical.vector(f)
	out := make([]queueParameter, len(fit.X))
	for i, name := range f.Parameters() {
		q := queueParameter{
			Name:       name,
			Unit:       units(f)[i],
			Value:      fit.X[i],
			Identified: measured,
			PriorShare: result.OrNull(fit.PriorPart[i]),
		}
		if !math.IsNaN(fit.Lo[i]) {
			q.CI95 = &[2]float64{fit.Lo[i], fit.Hi[i]}
		}
		if fit.Held[i] {
			q.Identified = held
		}
		if physical != nil {
			q.Shift = result.OrNull(fit.X[i] / physical[i])
			if f != wvA4P {
				q.Floor = result.OrNull(s.Physical.Floor[i])
				q.Utilisation = result.OrNull(s.Physical.Floor[i] / fit.X[i])
			}
		}
		out[i] = q
	}
	return out
}

// Methods by which an interval was computed.
const (
	byCurvature = "curvature"
	byJackknife = "jackknife"
	bySimulator = "simulator"
)

// Rules of the jackknife over groups of windows (shapes of requests, or load stages): it needs at
// least leastGroups, and makes at most mostGroups fits, each without one group. If the widened
// interval is more than muchModelError times as wide as that from the curvature, a finding reports
// the error of the queueing model.
const (
	leastGroups    = 4
	mostGroups     = 20
	muchModelError = 2
)

// groupOf returns the name of the group of a window. The error of a queueing model is similar for
// all windows of a group: those of one shape of requests in a sweep, or of one load stage in a
// recording.
func groupOf(w *window, sweep bool) string {
	if sweep {
		return fmt.Sprintf("%.0f/%.0f tokens", w.Shape.Prompt, w.Shape.Output)
	}
	return w.Phase
}

// widenIntervals widens the intervals of parameters to include the error of the queueing model,
// which uses only mean lengths (spec#queue-effective, spec#queue-simulated). Residuals do not show
// that error, because it is common to all windows of a group. It is estimated by a jackknife over the
// groups or, for sweeps with mean TTFTs, from the parameters with which the simulator reproduces the
// windows, for each distribution of lengths that is possible. It returns findings for parameters of
// which this error dominates.
func widenIntervals(params []queueParameter, windows []window, all *fitted, opt fitOptions) []trace.Finding {
	shapes := map[string]bool{} // of requests
	for i := range windows {
		shapes[groupOf(&windows[i], true)] = true
	}
	// Only the benchmarks of a sweep have no times. With few shapes they are grouped by stage instead.
	sweep := windows[0].StartNs == windows[0].EndNs && len(shapes) >= leastGroups
	group := map[string]int{} // number by name, below mostGroups: of more names, several have one number
	for i := range windows {
		group[groupOf(&windows[i], sweep)] = 0
	}
	for i, name := range slices.Sorted(maps.Keys(group)) {
		group[name] = i % mostGroups
	}
	var groupOfWindow []int // number of each window's group
	for i := range windows {
		groupOfWindow = append(groupOfWindow, group[groupOf(&windows[i], sweep)])
	}
	groups := min(len(group), mostGroups)
	method := bySimulator
	var intervals []logInterval
	if sweep && !opt.Medians {
		for _, law := range lawsOf(windows) {
			e := newEngine(windows, all.X, law, opt.Flavour)
			if e == nil {
				continue
			}
			x, se := e.gaussNewtonStep(groupOfWindow, -1)
			half := jackknife(groups, func(without int) []float64 {
				theta, _ := e.gaussNewtonStep(groupOfWindow, without)
				return theta
			})
			for j := range half {
				half[j] = math.Max(half[j], stat.Normal95*se[j])
			}
			intervals = append(intervals, logInterval{centre: x, half: half})
		}
	}
	if len(intervals) == 0 && groups >= leastGroups {
		method = byJackknife
		opt.Near = all.X
		half := jackknife(groups, func(without int) []float64 {
			var rest []window
			for i, w := range windows {
				if groupOfWindow[i] != without {
					rest = append(rest, w)
				}
			}
			fit, err := Fit(rest, opt)
			if err != nil {
				return nil
			}
			return logsOf(fit.X)
		})
		intervals = append(intervals, logInterval{centre: logsOf(all.X), half: half})
	}
	return widenTo(params, intervals, all.Held, method)
}

// logInterval is an interval of the logarithm of each parameter, centre ± half. half is nil if there
// were too few groups for a jackknife.
type logInterval struct{ centre, half []float64 }

// widenTo sets the intervals of parameters that are not held so that they include all given ones, those of the
// simulator in place of the curvature's. It returns the findings of [widenIntervals].
func widenTo(params []queueParameter, intervals []logInterval, held []bool, method string) (out []trace.Finding) {
	for j := range params {
		q := &params[j]
		if q.CI95 == nil {
			continue
		}
		q.CI95Method = byCurvature
		narrow := math.Log(q.CI95[1] / q.CI95[0])
		lo := math.Log(q.CI95[0])
		hi := math.Log(q.CI95[1])
		if method == bySimulator {
			lo = math.Log(q.Value)
			hi = math.Log(q.Value)
		}
		widened := false
		for _, v := range intervals {
			if v.half != nil && !held[j] {
				widened = true
				lo = math.Min(lo, v.centre[j]-v.half[j])
				hi = math.Max(hi, v.centre[j]+v.half[j])
				q.ModelError = result.OrNull((hi - lo) / narrow)
			}
		}
		if widened && (method == bySimulator || !(hi-lo <= narrow)) { // also if it is not a number
			q.CI95 = &[2]float64{math.Exp(lo), math.Exp(hi)}
			q.CI95Method = method
		}
		if q.ModelError != nil && hi-lo > muchModelError*narrow { // nil: without ends, see judgeInterval
			out = append(out, trace.Findingf(sizingRemark,
				"%s: the queueing model's own error moves it %.1f times as much as the scatter of the windows "+
					"explains: ci95 holds it (%s)", q.Name, (hi-lo)/narrow, method))
		}
	}
	return out
}

// mostSpread is the largest ratio of the ends of an interval with which a parameter counts as measured.
// A parameter with little effect at the recorded loads has a wide one, a factor of 200 with real sweeps,
// which still bounds its part of the latencies. Those of parameters without effect span ten orders of
// magnitude and more.
const mostSpread = 1000

// judgeInterval tags a parameter whose interval is missing or too wide as undetermined and reports
// whether it did. An interval without ends becomes nil, as JSON has no infinity.
func (q *queueParameter) judgeInterval() bool {
	ci := q.CI95
	if q.Identified == held || ci != nil && ci[1] <= mostSpread*ci[0] {
		return false
	}
	q.Identified = unknown
	if ci != nil && !(ci[0] > 0 && ci[1] <= math.MaxFloat64) {
		q.CI95 = nil
	}
	return true
}

// jackknife returns the 95 % half widths of parameters from fits that each leave one group out.
// With g such fits the variance is (g - 1)/g times the sum of their squared deviations, with g - 1
// degrees of freedom (Tukey 1958). It returns nil if fewer than leastGroups fits succeed.
func jackknife(groups int, fitWithout func(group int) []float64) (half []float64) {
	var fits [][]float64
	for g := range groups {
		if x := fitWithout(g); x != nil {
			fits = append(fits, x)
		}
	}
	if len(fits) < leastGroups {
		return nil
	}
	g := float64(len(fits))
	for j := range fits[0] {
		var values []float64
		for _, f := range fits {
			values = append(values, f[j])
		}
		sum := 0.0
		mean := stat.Mean(values)
		for _, v := range values {
			sum += (v - mean) * (v - mean)
		}
		half = append(half, stat.StudentT(0.975, g-1)*math.Sqrt(sum*(g-1)/g))
	}
	return half
}

// identifyDoc returns which directions the windows determine, in the form of the document.
func identifyDoc(id *identifiability) *queueIdentify {
	out := &queueIdentify{
		Condition: result.OrNull(id.Condition),
		Rank:      id.Rank,
		Null:      append([]queueDirection{}, id.Null...),
		Sweep:     append([]queuePoint{}, id.Sweep...),
	}
	if len(id.Null) > 0 {
		out.After = result.OrNull(id.After)
	}
	return out
}

// scoreEstimators adds the scores of each estimator on the training windows and on the hold-out. The
// effective parameters of a score are fitted to the training windows alone; if there is no hold-out,
// or that fit fails, they are those of all windows. The other estimators are the physical parameters,
// the effective ones at the machine's speed, and a constant (the medians of the training windows).
func (f *Calibrated) scoreEstimators(o *Options, opt fitOptions) {
	train := f.Windows[:f.Split]
	held := f.heldOut()
	add := func(estimator, set string, s queueScore) {
		f.Doc.Scores = append(f.Doc.Scores, scoreOf(estimator, set, s))
	}
	x := f.X
	if len(held) > 0 {
		fit, err := Fit(train, opt)
		if err != nil {
			f.Doc.Findings = append(f.Doc.Findings, trace.Findingf(noWindows,
				"%s: no hold-out score, the first %d windows alone: %v", f.ID,
				len(train), err))
			held = nil
		} else {
			x = fit.X
		}
	}
	for _, part := range []struct {
		name    string
		windows []window
		from    int // index of the first of these windows among all
	}{
		{name: Train, windows: train, from: 0},
		{name: holdOut, windows: held, from: f.Split + f.Gap},
	} {
		if len(part.windows) == 0 {
			continue
		}
		add(estEffective, part.name, evaluate(part.windows, o.Flavour, x, asSized))
		if f.Physical != nil {
			add(estPhysical, part.name, evaluate(part.windows, o.Flavour, f.Physical.vector(o.Flavour), asSized))
		}
		if f.speed != nil && len(f.heldOut()) > 0 { // there is a hold-out
			add(estAtSpeed, part.name, atSpeed(part.windows, o.Flavour, x, f.speed[part.from:]))
		}
		add(estConstant, part.name, evaluateConstant(train, part.windows))
	}
}

// scoreOf returns score s with the names of its estimator and set of windows.
func scoreOf(estimator, set string, s queueScore) queueScore {
	s.Estimator, s.Set = estimator, set
	return s
}

// noiseOf returns the median relative standard error of the windows, and the median relative error
// of the fit x.
func noiseOf(w []window, f Flavour, x []float64) *queueNoise {
	var ttftSe, itlSe, ttftResidual, itlResidual []float64
	for i := range w {
		ttftSe = append(ttftSe, w[i].TTFTSeMs/w[i].TTFTMs)
		itlSe = append(itlSe, w[i].ITLSeMs/w[i].ITLMs)
		if ttft, itl, ok := predictWindow(f, &w[i], x, asSized); ok {
			ttftResidual = append(ttftResidual, math.Abs(ttft/w[i].TTFTMs-1))
			itlResidual = append(itlResidual, math.Abs(itl/w[i].ITLMs-1))
		}
	}
	median := func(v []float64) *float64 { return result.OrNull(stat.Median(v)) }
	return &queueNoise{
		TTFTRel:      median(ttftSe),
		ITLRel:       median(itlSe),
		TTFTResidual: median(ttftResidual),
		ITLResidual:  median(itlResidual),
	}
}

// leastHoldOut is the number of windows without overlap from which on some are held out.
const leastHoldOut = 10
