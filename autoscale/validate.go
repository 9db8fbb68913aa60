package autoscale

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/sim/workload"
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
func validateServer(fitted *QueueServer, s *Server, o *Options, requests int, done <-chan struct{}) (*QueueServer,
	error) {
	f := &Calibrated{Server: s}
	f.describe(o)
	doc := f.Doc
	doc.Physical, doc.Effective, doc.Steps = fitted.Physical, fitted.Effective, fitted.Steps
	if s.Reason != "" {
		return &doc, nil
	}
	if len(s.Windows) == 0 {
		var why []string
		for _, reason := range slices.Sorted(maps.Keys(doc.Windows.Dropped)) {
			why = append(why, fmt.Sprintf("%s %d", reason, doc.Windows.Dropped[reason]))
		}
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
	x := make([]float64, len(params))
	for i := range params {
		x[i] = params[i].Value
	}
	return x
}

// simulated scores the simulator on the windows: each window's rate and lengths, n requests.
func (s *Server) simulated(p params, n int, done <-chan struct{}) (queueScore, error) {
	var failed error
	score := evaluateAny(s.Windows, func(_ int, w *window) (ttft, itl float64, ok bool) {
		t := workload.Traffic{Shape: w.Shape, Prompts: workload.LogNormalLaw, Output: workload.LogNormalLaw,
			RateRPS: w.RateRPS, Requests: n, Seed: 1}
		got, _, err := simulate(p, w.Limits, t, done)
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
