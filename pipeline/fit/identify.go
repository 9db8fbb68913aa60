package fit

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
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
		out.NullDirections = append(out.NullDirections, NullSentence(s.Terms, g, len(s.Pool.Configs)))
	}
	var all []kinds
	for _, p := range st.Runs {
		all = append(all, kindsOf(p.Coverage))
	}
	out.MissingRegimes = missingKinds(all)
	out.Experiments = experiments(st, out.Terms)
	out.Warnings = append(append(out.Warnings, st.Warnings...), s.Findings...)
}

// relativeHalfWidth is half of a 95 % interval over its centre, before signs;
// nil where there is no interval or nothing to compare it with.
func relativeHalfWidth(t ridge.Interval) *float64 {
	if t.Method == ridge.FromNothing || !(t.Center > 0) {
		return nil
	}
	return result.OrNull((math.Max(t.Hi, t.Center) - t.Center) / t.Center)
}

// kinds counts the steps a simulator will meet.
type kinds struct {
	heavy, decodeSmall, decodeLarge, longContext, fullCache int
	batch, context                                          int // largest seen: lower end of the last bin with steps
}

// enough is how many steps of a kind make it present.
const enough = 20

// Where small ends and large begins.
const (
	largeBatch  = 32
	longContext = 4096
	fullUsage   = 0.9
)

func kindsOf(c rows.Coverage) kinds {
	k := kinds{heavy: c.Heavy}
	for i, n := range c.DecodeBatch.Counts {
		lo := c.DecodeBatch.Edges[i]
		if n > 0 {
			k.batch = int(lo)
		}
		if lo >= largeBatch {
			k.decodeLarge += n
		} else if lo < 4 {
			k.decodeSmall += n
		}
	}
	for i, n := range c.Context.Counts {
		lo := c.Context.Edges[i]
		if n > 0 {
			k.context = int(lo)
		}
		if lo >= longContext {
			k.longContext += n
		}
	}
	for i, n := range c.KVUsage.Counts {
		if c.KVUsage.Edges[i] >= fullUsage {
			k.fullCache += n
		}
	}
	return k
}

// missingKinds describes the kinds of steps that the runs together have too few of.
func missingKinds(all []kinds) []string {
	var sum kinds
	for _, k := range all {
		sum.heavy += k.heavy
		sum.decodeSmall += k.decodeSmall
		sum.decodeLarge += k.decodeLarge
		sum.longContext += k.longContext
		sum.fullCache += k.fullCache
		sum.batch = max(sum.batch, k.batch)
		sum.context = max(sum.context, k.context)
	}
	out := []string{}
	for _, r := range []struct {
		n    int
		what string
	}{
		{sum.heavy, "steps with more than 64 prefill tokens: the prefill cost is not identifiable"},
		{sum.decodeSmall, "decode batches below 4 requests"},
		{sum.decodeLarge, fmt.Sprintf("decode batches of %d requests and more (largest seen: about %d)", largeBatch, sum.batch)},
		{sum.longContext, fmt.Sprintf("contexts of %d tokens and more (longest seen: about %d)", longContext, sum.context)},
		{sum.fullCache, fmt.Sprintf("KV usage above %g", fullUsage)},
	} {
		if r.n < enough {
			out = append(out, fmt.Sprintf("%d %s", r.n, r.what))
		}
	}
	return out
}
