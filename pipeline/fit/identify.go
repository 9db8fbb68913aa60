package fit

// This file reports which step-time terms the recordings determine, before a fit is made
// (blis-train inspect --identify).

import (
	"context"
	"errors"
	"math"

	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Identify reports from the recordings alone which step-time terms can be determined and
// how well, which kinds of steps are missing, and which further experiment would shrink
// which interval most. Runs that cannot be fitted give an empty answer with the reason.
func Identify(ctx context.Context, sources []Source, o Options) (*result.Identify, error) {
	o.BetaOnly = true
	o.Models = []string{}
	o.AlphaTargets = nil
	out := &result.Identify{Terms: []result.IdentifyTerm{}, NullDirections: []string{}, MissingRegimes: []string{},
		Experiments: []result.Experiment{}, Warnings: []trace.Finding{}}
	st, err := FitStepTime(ctx, sources, o)
	if err == nil {
		fillTerms(st, out)
	}
	if e := (*trace.Error)(nil); errors.As(err, &e) && e.Code == CodeNoRows {
		out.Warnings = append(out.Warnings, trace.Finding{Code: CodeNoRows, Message: e.Msg})
		return out, nil
	}
	return out, err
}

// fillTerms fills in the answer from a fitted step time.
func fillTerms(st *StepTime, out *result.Identify) {
	s := st.Model
	tags := ridge.Identify(s.Train.WithinVariation(s.Weights))
	conf := Confidence(s, tags)
	diag := DiagnoseRows(s, st.Options.Workers)
	for j, t := range s.Terms {
		it := result.IdentifyTerm{Name: t.Name, Identified: tags[j], VIF: result.OrNull(diag.VIF[j])}
		if s.Fit.DFTerm != nil {
			it.DF = result.OrNull(s.Fit.DFTerm[j])
		}
		if conf != nil {
			it.HalfWidth = relativeHalfWidth(conf.Terms[j])
		}
		out.Terms = append(out.Terms, it)
	}
	if err := diag.Err; err != nil {
		out.Warnings = append(out.Warnings, trace.Finding{Code: CodeNoRows, Message: err.Error()})
	}
	for _, g := range diag.Null {
		out.NullDirections = append(out.NullDirections, notSeparated(s.Terms, g))
	}
	out.MissingRegimes = report.MissingKinds(kindsOfSteps(st.Runs))
	out.Experiments = experiments(st, out.Terms)
	out.Warnings = append(append(out.Warnings, st.Warnings...), s.Findings...)
}

// relativeHalfWidth returns how far the 95 % interval of an estimate reaches above it, divided by the
// estimate; nil without an interval or for an estimate of 0. Below, the interval may be cut at 0.
func relativeHalfWidth(t ridge.Interval) *float64 {
	if t.Method == ridge.FromNothing || !(t.Center > 0) {
		return nil
	}
	return result.OrNull((math.Max(t.Hi, t.Center) - t.Center) / t.Center)
}

// smallBatch is the number of decodes below which a step counts as one of few.
const smallBatch = 4

// kindsOfSteps returns the numbers of steps of all runs by kind. It reads them from histograms, in which
// Edges[i] is the lower end of the bin with Counts[i] steps.
func kindsOfSteps(runs []*Run) report.KindsOfSteps {
	var k report.KindsOfSteps
	for _, p := range runs {
		c := &p.Coverage
		k.ManyPrefillTokens += c.Heavy
		for i, n := range c.DecodeBatch.Counts {
			lo := c.DecodeBatch.Edges[i]
			if n > 0 {
				k.LargestBatch = max(k.LargestBatch, int(lo))
			}
			if lo >= report.LargeBatch {
				k.LargeDecodes += n
			} else if lo < smallBatch {
				k.SmallDecodes += n
			}
		}
		for i, n := range c.Context.Counts {
			lo := c.Context.Edges[i]
			if n > 0 {
				k.LongestContext = max(k.LongestContext, int(lo))
			}
			if lo >= report.LongContext {
				k.LongContexts += n
			}
		}
		for i, n := range c.KVUsage.Counts {
			if c.KVUsage.Edges[i] >= report.FullUsageFrac {
				k.FullCache += n
			}
		}
	}
	return k
}
