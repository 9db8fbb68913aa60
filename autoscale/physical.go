package autoscale

// This file fits the physical parameters: the coefficients of an engine iteration from recorded
// steps, without a queueing model.

import (
	"context"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Physical is the parameters of an iteration from the recorded steps.
type Physical struct {
	Params params         // ms; of the three-parameter flavours
	CI95   [3]*[2]float64 // ms
	Floor  [3]float64     // ms: the least time that the hardware allows
	Bound  [3]bool        // whether the fit was 0, so that the parameter is set to its floor
	Errors *result.Errors // on steps held out of the fit
	// Mean lengths, for which the four-parameter form is computed.
	Prompt, Output float64
	steps          *fit.Iteration // measured and predicted times of the steps
}

// SetPhysical fits the recorded steps of a run: iteration = alpha + beta*(tokens computed) +
// gamma*(KV tokens read) is a linear model of a step. A recording has thousands of steps, of which
// the composition is known, but only two means a window (spec#queue-physical). A run without steps
// gets a finding.
func (s *Server) SetPhysical(ctx context.Context, src fit.Source, o fit.Options) error {
	it, err := fit.FitIteration(ctx, src, o)
	if err != nil {
		return err
	}
	s.takeIteration(it)
	return nil
}

// takeIteration sets the physical parameters of a fitted iteration; a run that could not be fitted gets a finding.
func (s *Server) takeIteration(it *fit.Iteration) {
	s.Findings = append(s.Findings, it.Findings...)
	if it.Model == nil {
		s.Findings = append(s.Findings, trace.Findingf(heldParameter, "%s: %s", s.ID, it.Reason))
		return
	}
	p := &Physical{Errors: it.Model.Holdout}
	names := corrected.Parameters()
	values := [3]float64{}
	scale := meanScale(it.Model.Train) / 1000 // from us of the typical step to ms of the mean one
	for i, c := range it.Model.Coefficients {
		values[i] = c.Value * scale
		p.Floor[i] = it.FloorUs[i] / 1000
		p.CI95[i] = s.interval(names[i], values[i], c.CI95)
		if values[i] > 0 {
			continue
		}
		values[i] = p.Floor[i]
		p.Bound[i] = true
		p.CI95[i] = nil
		s.Findings = append(s.Findings, trace.Findingf(heldParameter,
			"%s: %s is not shown by the steps; the hardware's %.3g ms is used", s.ID, names[i], p.Floor[i]))
	}
	p.Params = params{AlphaMs: values[0], BetaMs: values[1], GammaMs: values[2]}
	if it.Lengths[0] != nil { // mean prompt and output
		p.Prompt = *it.Lengths[0]
		p.Output = *it.Lengths[1]
	}
	p.steps = it
	s.Physical = p
}

// interval returns the 95 % interval us, of the fit without penalty, in ms. The penalty may have
// moved the value out of it; the interval is then widened to include the value, with a finding.
func (s *Server) interval(name string, value float64, us *[2]float64) *[2]float64 {
	if us == nil {
		return nil
	}
	out := &[2]float64{us[0] / 1000, us[1] / 1000}
	if value < out[0] || value > out[1] {
		s.Findings = append(s.Findings, trace.Findingf(heldParameter,
			"%s: %s of %.4g ms was outside %.4g to %.4g ms, the interval of the fit without penalty", s.ID, name,
			value, out[0], out[1]))
		out[0] = math.Min(out[0], value)
		out[1] = math.Max(out[1], value)
	}
	return out
}

// meanScale returns the factor by which predictions have to be multiplied to have the same sum as
// the training steps. The fit minimises relative errors, so it follows the typical step; queueing
// models predict means, which rare long steps are part of.
func meanScale(e *result.Errors) float64 {
	if e == nil || e.Bias == nil || !(*e.Bias > -1) {
		return 1
	}
	return 1 / (1 + *e.Bias)
}

// vector returns the physical parameters in the form of flavour f; nil without recorded steps. The
// four-parameter form is the same iteration at the mean lengths: a decode of n requests computes n
// tokens and reads n(k + m/2), a prefill of n prompts computes and reads n k, so that its delta is
// beta + gamma.
func (p *Physical) vector(f Flavour) []float64 {
	switch {
	case p == nil:
		return nil
	case f != wvA4P:
		return p.Params.Vector(f)
	}
	q := p.Params
	return []float64{q.AlphaMs, q.BetaMs + q.GammaMs*(p.Prompt+p.Output/2), q.AlphaMs, q.BetaMs + q.GammaMs}
}

// units returns the units of the parameters, in the flavour's order.
func units(f Flavour) []string {
	if f == wvA4P {
		return []string{"ms", "ms/request", "ms", "ms/(token request)"}
	}
	return []string{"ms/iteration", "ms/token computed", "ms/KV token read"}
}

// document returns the parameters with their intervals in the form of the document.
func (p *Physical) document(f Flavour) []queueParameter {
	if p == nil {
		return nil
	}
	var out []queueParameter
	x := p.vector(f)
	for i, name := range f.Parameters() {
		q := queueParameter{Name: name, Unit: units(f)[i], Value: x[i], Identified: measured}
		if f != wvA4P {
			q.CI95 = p.CI95[i]
			q.Floor = result.OrNull(p.Floor[i])
			q.Utilisation = result.OrNull(p.Floor[i] / x[i])
			if p.Bound[i] {
				q.Identified = atBound
			}
		}
		out = append(out, q)
	}
	return out
}

// parameterFindings returns findings on parameters below the limit of the hardware, and on
// effective ones that differ from the physical ones by more than a factor of two.
func (s *Server) parameterFindings(f Flavour, params []queueParameter) (out []trace.Finding) {
	for i := range params {
		q := &params[i]
		if q.Utilisation != nil && *q.Utilisation > 1 {
			out = append(out, trace.Findingf(unlikelyParameter,
				"%s: %s of %.3g ms is below the hardware's %.3g ms (implied utilisation %.2f)",
				s.ID, q.Name, q.Value, *q.Floor, *q.Utilisation))
		}
		if q.Shift != nil && math.Abs(math.Log(*q.Shift)) > math.Ln2 {
			out = append(out, trace.Findingf(unlikelyParameter,
				"%s: effective %s is %.2g times the physical one (%s)", s.ID, q.Name, *q.Shift, f))
		}
	}
	return out
}

// speeds returns the mean step time of the machine in each window relative to the prediction,
// divided by the median of the first `split` windows: above 1 the machine was slower than usual.
// Nil without recorded steps.
func (s *Server) speeds(split int) []float64 {
	if s.Physical == nil || split == 0 {
		return nil
	}
	out := make([]float64, len(s.Windows))
	for i := range s.Windows {
		out[i] = s.Physical.speedIn(&s.Windows[i])
	}
	usual := stat.Median(out[:split])
	for i := range out {
		out[i] /= usual
	}
	return out
}

// speedIn returns measured over predicted time of the steps that begin in the window.
func (p *Physical) speedIn(w *window) float64 {
	lo, _ := slices.BinarySearch(p.steps.TimeNs, w.StartNs)
	hi, _ := slices.BinarySearch(p.steps.TimeNs, w.EndNs)
	return validate.DriftOf(p.steps.TimeNs[lo:hi], p.steps.Us[lo:hi], p.steps.PredUs[lo:hi], false).At(w.StartNs)
}

// atSpeed scores parameters x whose times are multiplied by the machine's speed in each window. The
// speed is that of steps of the same window, so this is no forecast: it shows the error that
// remains without the drift of the machine.
func atSpeed(windows []window, f Flavour, x, speed []float64) queueScore {
	return evaluateAny(windows, func(i int, w *window) (ttft, itl float64, ok bool) {
		scaled := slices.Clone(x)
		for j := range scaled {
			scaled[j] *= speed[i]
		}
		return predictWindow(f, w, scaled, asSized)
	})
}
