package autoscale

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
)

// Limits of a validation: the errors that an autoscaler can live with.
const (
	MaxTTFTWape = 0.20
	MaxITLWape  = 0.10
)

// validateServer scores the parameters of an earlier fit on the windows of a server they have not
// seen, beside the medians of the fitted windows and, for flavours whose parameters are a
// step time, the simulator with the same parameters (requests > 0). The document is the
// fitted server's, with the scores of set "validation" and this server's windows.
func validateServer(fitted *QueueServer, s *Server, o *Options, requests int, done <-chan struct{}) (*QueueServer, error) {
	f := &Calibrated{Server: s}
	f.describe(o)
	doc := f.Doc
	doc.Physical, doc.Effective, doc.Steps = fitted.Physical, fitted.Effective, fitted.Steps
	if s.Reason != "" {
		return &doc, nil
	}
	if len(s.Windows) == 0 {
		why := stat.Map(slices.Sorted(maps.Keys(doc.Windows.Dropped)), func(reason string) string {
			return fmt.Sprintf("%s %d", reason, doc.Windows.Dropped[reason])
		})
		doc.Reason = trace.Errorf(noWindows, "no window is left (%s)", strings.Join(why, ", ")).Error()
		return &doc, nil
	}
	for _, e := range []struct {
		name   string
		params []queueParameter
	}{{estEffective, fitted.Effective}, {estPhysical, fitted.Physical}} {
		if len(e.params) == 0 {
			continue
		}
		x := valuesOf(e.params)
		doc.Scores = append(doc.Scores, scoreOf(e.name, validation, evaluate(s.Windows, o.Flavour, x, asSized)))
		if o.Flavour == wvA4P || requests == 0 {
			continue
		}
		score, err := s.simulated(fromVector(x), requests, done)
		if err != nil {
			return nil, err
		}
		doc.Scores = append(doc.Scores, scoreOf("simulator:"+e.name, validation, score))
	}
	if l := fitted.Load; l != nil {
		constant := []window{{TTFTMs: l.TTFTMs, ITLMs: l.ITLMs}}
		doc.Scores = append(doc.Scores, scoreOf(estConstant, validation, evaluateConstant(constant, s.Windows)))
	}
	return &doc, nil
}

// validation is the set of windows of another recording.
const validation = "validation"

func valuesOf(params []queueParameter) []float64 {
	return stat.Map(params, func(q queueParameter) float64 { return q.Value })
}

// simulated scores the simulator on the windows: each window's rate and lengths, n requests.
func (s *Server) simulated(p params, n int, done <-chan struct{}) (queueScore, error) {
	var failed error
	score := evaluateAny(s.Windows, func(_ int, w *window) (ttft, itl float64, ok bool) {
		got, err := simulate(p, w.Limits, trafficOf(w.Shape, w.RateRPS, n, 1), done)
		if err != nil {
			failed = err
			return 0, 0, false
		}
		return got.TTFTMs, got.ITLMs, got.ITLMs > 0
	})
	return score, failed
}

// Passed reports whether the effective parameters of a validated server, or the physical
// ones without them, are within the limits.
func Passed(s *QueueServer) bool {
	for _, x := range s.Scores {
		if x.Set == validation && (x.Estimator == estEffective || x.Estimator == estPhysical && len(s.Effective) == 0) {
			return x.Unpredicted == 0 && x.TTFTWape != nil && *x.TTFTWape <= MaxTTFTWape && *x.ITLWape <= MaxITLWape
		}
	}
	return false
}

// summarize says how consistent a filter's run was: MeanNIS is 2 for one whose noise is right; below 2 it is underconfident
// (its R or P is too large), above 2 overconfident. Innovations that are white leave nothing to learn.
func summarize(windows []window, steps []step) queueTrack {
	s := queueTrack{Windows: len(steps)}
	var nis float64
	predicted, rejected := 0, 0
	var innovations [2][]float64
	for i := range steps {
		st := &steps[i]
		if st.Accepted() {
			s.Accepted++
			s.LockedOut = 0
		} else {
			s.LockedOut++
		}
		if math.IsNaN(st.NIS) {
			s.Unpredicted++
			continue
		}
		predicted++
		nis += st.NIS
		if st.Verdict == rejectedNIS || st.Verdict == acceptedOpening {
			rejected++
		}
		w := &windows[st.Window]
		innovations[0] = append(innovations[0], st.Innovation[0]/w.TTFTMs)
		innovations[1] = append(innovations[1], st.Innovation[1]/w.ITLMs)
	}
	if predicted > 0 {
		s.MeanNIS = result.OrNull(nis / float64(predicted))
		s.RejectedFrac = float64(rejected) / float64(predicted)
	}
	for m := range innovations {
		s.Whiteness[m] = result.OrNull(lag1(innovations[m]))
	}
	return s
}

// lag1 is the correlation of neighbours; NaN below three values.
func lag1(v []float64) float64 {
	if len(v) < 3 {
		return math.NaN()
	}
	mean := stat.Mean(v)
	var next, all float64
	for i, x := range v {
		all += float64((x - mean) * (x - mean))
		if i > 0 {
			next += float64((x - mean) * (v[i-1] - mean))
		}
	}
	if all == 0 {
		return math.NaN()
	}
	return next / all
}

// evaluate scores parameters on windows; those without a prediction are counted apart.
func evaluate(windows []window, f Flavour, x []float64, as observation) queueScore {
	return evaluateAny(windows, func(_ int, w *window) (float64, float64, bool) { return predictWindow(f, w, x, as) })
}

// evaluateConstant scores the medians of the training windows.
func evaluateConstant(train, windows []window) queueScore {
	a := stat.Median(stat.Map(train, func(w window) float64 { return w.TTFTMs }))
	b := stat.Median(stat.Map(train, func(w window) float64 { return w.ITLMs }))
	return evaluateAny(windows, func(int, *window) (float64, float64, bool) { return a, b, len(train) > 0 })
}

// evaluateAny scores any predictor: TTFT and ITL of window i in ms, or none. WAPE is the sum of absolute errors over
// the sum of observations, the bias that of signed errors.
func evaluateAny(windows []window, predicted func(i int, w *window) (ttft, itl float64, ok bool)) queueScore {
	var s queueScore
	var ttft, itl, ttftOff, itlOff, ttftBias, itlBias float64
	for i := range windows {
		w := &windows[i]
		a, b, ok := predicted(i, w)
		if !ok {
			s.Unpredicted++
			continue
		}
		s.Windows++
		ttft, itl = ttft+w.TTFTMs, itl+w.ITLMs
		ttftOff, itlOff = ttftOff+math.Abs(a-w.TTFTMs), itlOff+math.Abs(b-w.ITLMs)
		ttftBias, itlBias = ttftBias+(a-w.TTFTMs), itlBias+(b-w.ITLMs)
	}
	s.TTFTWape, s.TTFTBias = result.OrNull(ttftOff/ttft), result.OrNull(ttftBias/ttft)
	s.ITLWape, s.ITLBias = result.OrNull(itlOff/itl), result.OrNull(itlBias/itl)
	return s
}

// evaluateAhead scores what an online estimator predicted of each window before it used it.
func evaluateAhead(windows []window, steps []step) queueScore {
	used := stat.Map(steps, func(s step) window { return windows[s.Window] })
	return evaluateAny(used, func(i int, w *window) (ttft, itl float64, ok bool) {
		y := steps[i].Innovation
		return w.TTFTMs - y[0], w.ITLMs - y[1], y != [2]float64{}
	})
}

// Limits of the gates that a calibration passes before an autoscaler gets it (spec#queue-verdict).
const (
	maxHeldTTFTWape = 0.25
	maxHeldITLWape  = 0.10
)

// verdict judges the parameters by the windows they were not fitted to: the fitted ones by those of a fit to the
// training windows, the physical ones, of a server without fitted ones, as they are. Null without parameters.
func (f *Calibrated) verdict() *coeff.Judgement {
	q := &f.Doc
	params, by := q.Effective, estEffective
	if len(params) == 0 {
		params, by = q.Physical, estPhysical
	}
	if len(params) == 0 {
		return nil
	}
	v := &coeff.Judgement{Verdict: coeff.VerdictPass}
	var ttft, itl *float64
	for i := range q.Scores {
		if s := &q.Scores[i]; s.Set == holdOut && s.Estimator == by && s.Unpredicted == 0 {
			ttft, itl = s.TTFTWape, s.ITLWape
		}
	}
	none := fmt.Sprintf("%d windows, none predicted of a hold-out; %d and more have one", len(f.Windows), leastHoldOut)
	v.AtMost("hold_out_ttft_wape", q.ID, ttft, maxHeldTTFTWape, none)
	v.AtMost("hold_out_itl_wape", q.ID, itl, maxHeldITLWape, none)
	unknown := 0.0
	for _, p := range params {
		if p.Identified != measured && p.Identified != held {
			unknown++
		}
	}
	v.AtMost("parameters_neither_measured_nor_held", q.ID, &unknown, 0, "")
	v.AtMost("hold_out_load_outside_fitted", q.ID, f.outside(), 0, none)
	return v
}

// outside is by what share of the fitted loads' nearer end the median load of the hold-out is beyond them, requests/s;
// nil without a hold-out.
func (f *Calibrated) outside() *float64 {
	if f.Split >= len(f.Windows) || f.Split == 0 {
		return nil
	}
	rates := stat.Map(f.Windows, func(w window) float64 { return w.RateRPS })
	lo, hi, mid := slices.Min(rates[:f.Split]), slices.Max(rates[:f.Split]), stat.Median(rates[f.Split:])
	return new(max(0, mid/hi-1, 1-mid/lo))
}

// VerdictOf is the worst verdict of the servers that an export takes (id; "": all), with what failed or is missing. Servers of
// an older file without one were not validated.
func (q *Queue) VerdictOf(id string) (verdict string, why []string) {
	for i := range q.Servers {
		s := &q.Servers[i]
		if s.Verdict == nil || id != "" && id != s.ID {
			continue
		}
		verdict = coeff.WorseVerdict(verdict, s.Verdict.Verdict)
		why = append(why, s.Verdict.Failed()...)
	}
	return verdict, why
}
