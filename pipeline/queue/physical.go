package queue

import (
	"math"

	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/queueing"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Physical is what the steps of a recording say of an iteration.
type Physical struct {
	Params queueing.Params // ms; of the three-parameter flavours
	CI95   [3]*[2]float64  // ms
	Floor  [3]float64      // ms: what the hardware allows
	Bound  [3]bool         // not shown by the steps: the floor stands in
	Errors *result.Errors  // on the steps' hold-out
	// Lengths the four-parameter form is made at.
	Prompt, Output float64
}

// SetPhysical fits the run's steps: iteration = alpha + beta*(tokens computed) +
// gamma*(KV tokens read) is a linear model of a step, thousands of rows with their
// composition instead of two means a minute (spec#queue-physical). A run without step rows gets a finding.
func (s *Server) SetPhysical(src fit.Source, o fit.Options) error {
	it, err := fit.FitIteration(src, o)
	if err != nil {
		return err
	}
	s.Findings = append(s.Findings, it.Findings...)
	if it.Model == nil {
		s.Findings = append(s.Findings, trace.Findingf(noPhysical, "%s: %s", s.ID, it.Reason))
		return nil
	}
	p := &Physical{Errors: it.Model.Holdout}
	values, scale := [3]float64{}, meanScale(it.Model.Train)/1000
	for i, c := range it.Model.Coefficients {
		values[i], p.Floor[i] = c.Value*scale, it.FloorUs[i]/1000
		if c.CI95 != nil {
			p.CI95[i] = &[2]float64{c.CI95[0] * scale, c.CI95[1] * scale}
		}
		if values[i] > 0 {
			continue
		}
		values[i], p.Bound[i] = p.Floor[i], true
		s.Findings = append(s.Findings, trace.Findingf(atFloor, "%s: %s is not shown by the steps; the hardware's %.3g ms stands in", s.ID,
			names3[i], p.Floor[i]))
	}
	p.Params = queueing.Params{AlphaMs: values[0], BetaMs: values[1], GammaMs: values[2]}
	if it.Lengths[0] != nil {
		p.Prompt, p.Output = *it.Lengths[0], *it.Lengths[1]
	}
	s.Physical = p
	return nil
}

// meanScale makes a fit in relative error, which follows the typical step, predict the sum of
// the training steps: queueing models predict means, and rare long steps are part of them.
func meanScale(e *result.Errors) float64 {
	if e == nil || e.Bias == nil || !(*e.Bias > -1) {
		return 1
	}
	return 1 / (1 + *e.Bias)
}

var names3 = queueing.Corrected.Parameters()

// vector is the physical parameters as the flavour has them. The four-parameter form is
// the same iteration at the mean lengths: a decode of n requests computes n tokens and
// reads n(k + m/2), a prefill of n prompts computes and reads n k, so that its delta is
// beta + gamma.
func (p *Physical) vector(f queueing.Flavour) []float64 {
	if f != queueing.WVA4P {
		return p.Params.Vector(f)
	}
	q := p.Params
	return []float64{q.AlphaMs, q.BetaMs + q.GammaMs*(p.Prompt+p.Output/2), q.AlphaMs, q.BetaMs + q.GammaMs}
}

// units of the parameters, in the flavour's order.
func units(f queueing.Flavour) []string {
	if f == queueing.WVA4P {
		return []string{"ms", "ms/request", "ms", "ms/(token request)"}
	}
	return []string{"ms/iteration", "ms/token computed", "ms/KV token read"}
}

// document is the parameters with what is known of them.
func (p *Physical) document(f queueing.Flavour) []result.QueueParameter {
	if p == nil {
		return nil
	}
	var out []result.QueueParameter
	x := p.vector(f)
	for i, name := range f.Parameters() {
		q := result.QueueParameter{Name: name, Unit: units(f)[i], Value: x[i], Identified: measured}
		if f != queueing.WVA4P {
			q.CI95, q.Floor = p.CI95[i], result.OrNull(p.Floor[i])
			q.Utilisation = result.OrNull(p.Floor[i] / x[i])
			if p.Bound[i] {
				q.Identified = atBound
			}
		}
		out = append(out, q)
	}
	return out
}

// How a parameter came to its value.
const (
	measured = "measured" // the data show it
	Held     = "held"     // at the physical value: the windows do not show it
	atBound  = "bound"    // at the hardware's limit
	given    = "given"    // by hand
)

// judge adds findings on effective parameters below the hardware's limit, and on those that
// are far from the physical ones.
func (s *Server) judge(f queueing.Flavour, params []result.QueueParameter) (out []trace.Finding) {
	for i := range params {
		q := &params[i]
		if q.Utilisation != nil && *q.Utilisation > 1 {
			out = append(out, trace.Findingf(fasterThanHW, "%s: %s of %.3g ms is below the hardware's %.3g ms (implied utilisation %.2f)",
				s.ID, q.Name, q.Value, *q.Floor, *q.Utilisation))
		}
		if q.Shift != nil && math.Abs(math.Log(*q.Shift)) > math.Ln2 {
			out = append(out, trace.Findingf(largeShift, "%s: effective %s is %.2g times the physical one (%s)", s.ID, q.Name, *q.Shift, f))
		}
	}
	return out
}
