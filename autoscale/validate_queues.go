package autoscale

// This file validates the parameters of queue.json: on windows of other recordings, and by the
// gates that a calibration has to pass.

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// ValidateQueues scores the parameters of a document on servers of other recordings. Each server is
// scored with the parameters of the fitted server of the same id, or of the one named by. requests
// is the number of requests of each simulation; 0 for none.
func ValidateQueues(ctx context.Context, fitted *Queue, servers []*Server, by string, o *Options,
	requests int) ([]QueueServer, error) {
	out := make([]QueueServer, len(servers))
	err := par.Try(ctx, o.Workers, len(servers), func(i int) error {
		id := cmp.Or(by, servers[i].ID)
		from := fitted.Server(id)
		if from == nil {
			var known []string
			for _, q := range fitted.Servers {
				known = append(known, q.ID)
			}
			return trace.Errorf(badModel, "parameters of server %q: got none, have %s", id,
				trace.OneOf(known)).WithHint("--server ID takes those of another server")
		}
		doc, err := validateServer(from, servers[i], o, requests, ctx.Done())
		if err == nil {
			out[i] = *doc
		}
		return err
	}, nil)
	return out, err
}

// SeenBefore returns a warning for each recording or sweep among inputs that the parameters of a document were fitted to, by
// the digest of its content. run.yaml and config.json are no recordings: different runs may share them.
func SeenBefore(fitted *Queue, inputs []result.Input) (out []trace.Finding) {
	for _, in := range inputs {
		isSame := func(used result.Input) bool { return used.SHA256 == in.SHA256 }
		if isRecording(in) && slices.ContainsFunc(fitted.Inputs, isSame) {
			out = append(out, trace.Findingf(judgedOnTraining,
				"%s: the parameters were fitted to it: its errors are those of the fit, not of another day", in.Name))
		}
	}
	return out
}

// ReadTwice returns an error for a recording whose content is that of one that was read before: its windows would count
// twice.
func ReadTwice(before, inputs []result.Input) error {
	for _, in := range inputs {
		for _, earlier := range before {
			if isRecording(in) && in.SHA256 == earlier.SHA256 {
				return option.Misusef("%s: got the content of %s again, want each recording once", in.Name, earlier.Name)
			}
		}
	}
	return nil
}

// isRecording reports whether an input is a recording and not the description of one, which several may share.
func isRecording(in result.Input) bool {
	base := path.Base(in.Name)
	return in.SHA256 != "" && base != deploy.RunFile && base != "config.json"
}

// Largest errors with which a validation passes: an autoscaler can use parameters within them.
const (
	MaxTTFTWape = 0.20
	MaxITLWape  = 0.10
)

// validateServer scores the parameters of an earlier fit on windows of a server that were not used
// in the fit, together with two alternatives: the medians of the fitted windows and, for flavours
// whose parameters are a step time, the simulator with the same parameters (if requests > 0). It
// returns the document of the server with these scores and the fitted parameters.
func validateServer(fitted *QueueServer, s *Server, o *Options, requests int, done <-chan struct{}) (*QueueServer,
	error) {
	f := &Calibrated{Server: s}
	f.describeServer(o)
	doc := f.Doc
	doc.Physical = fitted.Physical
	doc.Effective = fitted.Effective
	doc.Steps = fitted.Steps
	doc.Fitted = fitted.Fitted
	if s.Reason != "" {
		return &doc, nil
	}
	if len(s.Windows) == 0 {
		doc.Reason = s.withoutWindows("no window is left").Error()
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

// withoutWindows returns the error of a server that has no windows: what, and the reasons for which all were dropped. The
// hint is one that helps against the most frequent of them.
func (s *Server) withoutWindows(what string) *trace.Error {
	var why []string
	most := ""
	for _, reason := range slices.Sorted(maps.Keys(s.Account.Dropped)) {
		why = append(why, fmt.Sprintf("%s %d", reason, s.Account.Dropped[reason]))
		if most == "" || s.Account.Dropped[reason] > s.Account.Dropped[most] {
			most = reason
		}
	}
	if len(why) > 0 {
		what += " (" + strings.Join(why, ", ") + ")"
	}
	err := trace.Errorf(noWindows, "%s", what)
	switch {
	case most == string(fewRequests):
		return err.WithHint("use a shorter --window or fewer --min-requests")
	case most != "":
		return err.WithHint("blis-train explain " + most)
	}
	return err
}

// validation is the name of the set of windows of another recording.
const validation = "validation"

// valuesOf returns the values of parameters.
func valuesOf(params []queueParameter) []float64 {
	var out []float64
	for _, q := range params {
		out = append(out, q.Value)
	}
	return out
}

// simulated scores the simulator with parameters p on the windows, each simulated with the window's
// rate and lengths and n requests.
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

// Passed reports whether the errors of a validated server are within the limits: those of the
// effective parameters or, if there are none, of the physical ones.
func Passed(s *QueueServer) bool {
	for _, x := range s.Scores {
		decides := x.Estimator == estEffective || x.Estimator == estPhysical && len(s.Effective) == 0
		if decides && x.Set == validation {
			return x.Unpredicted == 0 && x.TTFTWape != nil && *x.TTFTWape <= MaxTTFTWape && *x.ITLWape <= MaxITLWape
		}
	}
	return false
}

// Limits of the gates that a calibration has to pass before an autoscaler gets it
// (spec#queue-verdict).
const (
	maxHeldTTFTWape = 0.25
	maxHeldITLWape  = 0.10
)

// verdict judges the parameters of a server by the hold-out, windows to which they were not fitted:
// effective parameters by a fit to the training windows alone, and physical parameters, if there
// are no others, as they are. It returns nil without parameters.
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
	none := fmt.Sprintf("%.4g windows%s, none predicted of a hold-out; %d and more have one", independentWindows(f.Windows),
		f.withoutOverlap(), leastHoldOut)
	v.AtMost("hold_out_ttft_wape", q.ID, ttft, maxHeldTTFTWape, none)
	v.AtMost("hold_out_itl_wape", q.ID, itl, maxHeldITLWape, none)
	failing := 0.0
	for _, p := range params {
		if p.Identified != measured && p.Identified != held {
			failing++
		}
	}
	v.AtMost("parameters_neither_measured_nor_held", q.ID, &failing, 0, "")
	v.AtMost("hold_out_load_outside_fitted", q.ID, f.loadBeyondFitFrac(), 0, none)
	return v
}

// withoutOverlap returns words for a number of windows, if some of them overlap.
func (f *Calibrated) withoutOverlap() string {
	if overlapOf(f.Windows) > 1 {
		return " without overlap"
	}
	return ""
}

// loadBeyondFitFrac returns the distance of the hold-out's median rate from the range of fitted
// rates, as a share of the nearer end of that range, 0 inside; nil without a hold-out.
func (f *Calibrated) loadBeyondFitFrac() *float64 {
	if len(f.heldOut()) == 0 || f.Split == 0 {
		return nil
	}
	var rates []float64
	for _, w := range f.Windows {
		rates = append(rates, w.RateRPS)
	}
	lo := slices.Min(rates[:f.Split])
	hi := slices.Max(rates[:f.Split])
	mid := stat.Median(rates[f.Split+f.Gap:])
	return new(max(0, mid/hi-1, 1-mid/lo))
}

// VerdictOf returns the worst verdict of the servers that an export uses (the one with the id, or
// all if id is ""), and the gates that failed or could not be evaluated. Servers without a verdict,
// in files of earlier versions, are skipped; without any the verdict is "".
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
