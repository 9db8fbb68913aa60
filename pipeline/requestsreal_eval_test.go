package pipeline

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace/table"
)

// TestEvalRealServersFromRequests says, for recordings of real servers without step
// traces, how the later half of the requests is predicted by a fit of the earlier half,
// by the prior alone and by a constant. The fit is nearer than both, or says that its
// replay is of another server.
func TestEvalRealServersFromRequests(t *testing.T) {
	repo.NeedEval(t)
	for _, set := range []string{"real_stock_otlp", "real_requests_llmservingsim"} {
		dir := repo.Shared(t, "data", set)
		out := t.TempDir()
		eo := DefaultExtractOptions()
		eo.Out = out
		ext, err := Extract(context.Background(), []string{dir}, eo)
		if err != nil {
			t.Fatal(err)
		}
		for i := range ext.Runs {
			r := &ext.Runs[i]
			run, err := table.ReadLean(table.RunDir(out, r.ID))
			if err != nil {
				t.Fatal(err)
			}
			verdict := rows.VerdictsOf(run, r.Deployment)
			if len(run.Requests) == 0 {
				verdict = validate.OfClients(run, r.Deployment)
			}
			for _, p := range verdict.Phases {
				if p.Saturated {
					t.Logf("%s %s is saturated: %s", r.ID, p.Name, rows.HitText(p.Checks))
				}
			}
			if ttft, span, ok := noiseFloor(run, r.Deployment, 1); ok {
				t.Logf("%s: noise floor: sends that differ by a millisecond move TTFT by %.1f %% and span by %.1f %%", r.ID, 100*ttft, 100*span)
			}
			loads, findings := clientLoads(run, r.Deployment, true, 0)
			for _, f := range findings {
				t.Logf("%s: %s", r.ID, f.Message)
			}
			prior := learn.Roofline(r.Deployment)
			if set, err := fit.LibraryFor(r.Deployment); err == nil {
				prior = &learn.Prior{Name: fit.PriorLibrary, Set: set}
			}
			var early []*learn.Load
			for _, l := range loads {
				early = append(early, l.Before(0.5))
			}
			o := learn.DefaultOptions()
			o.Search = learn.SearchNone
			got, err := learn.Fit(context.Background(), early, prior, o)
			if err != nil {
				t.Errorf("%s: %v", r.ID, err)
				continue
			}
			t.Logf("%s (%s): %+v", r.ID, prior.Name, *got.Level)
			unlike := false
			for _, l := range early {
				more, err := l.Unlike(got.Set)
				if err != nil {
					t.Fatal(err)
				}
				unlike = unlike || len(more) > 0
				for _, f := range more {
					t.Logf("%s: %s", f.Code, f.Message)
				}
			}
			for k := range loads {
				l := loads[k].Later(0.5)
				learned, e := laterErrors(t, l, got.Set)
				before, p := laterErrors(t, l, prior.Set)
				constant, c := constantErrors(l, loads[k].Before(0.5))
				t.Logf("   %-14s learned  %s", l.Name, learned)
				t.Logf("   %-14s prior    %s", "", before)
				t.Logf("   %-14s constant %s", "", constant)
				if !unlike && (e > min(p, c) || e > 0.1) {
					t.Errorf("%s: median error of E2E %.1f %%, of the prior %.1f, of a constant %.1f, want less than both and at most 10", l.Name,
						100*e, 100*p, 100*c)
				}
			}
		}
	}
}

// timesOf are TTFT, span and E2E of requests.
var timesOf = []func(m *sim.Measured) float64{func(m *sim.Measured) float64 { return m.TTFTUs },
	func(m *sim.Measured) float64 { return m.SpanUs }, func(m *sim.Measured) float64 { return m.E2EUs }}

// laterErrors compare what a set predicts for a load with what is measured of it, in words,
// and are the median error of E2E.
func laterErrors(t *testing.T, l *learn.Load, set *coeff.Set) (text string, e2e float64) {
	t.Helper()
	got, err := l.Predict(set)
	if err != nil {
		t.Fatal(err)
	}
	for k, name := range []string{"TTFT", "span", "E2E"} {
		var a, b []float64
		for i := range got {
			if want := timesOf[k](&l.Seen[i]); want > 0 {
				a, b = append(a, want), append(b, timesOf[k](&got[i]))
			}
		}
		words, median := errorText(a, b)
		text, e2e = text+name+" "+words+"  ", median
	}
	return text, e2e
}

func errorText(measured, predicted []float64) (text string, median float64) {
	if len(measured) == 0 {
		return "-", 0
	}
	var off []float64
	for i := range measured {
		off = append(off, math.Abs(predicted[i]/measured[i]-1))
	}
	return fmt.Sprintf("KS %.2f median %4.1f %% mean %+5.1f %%", stat.KolmogorovSmirnov(measured, predicted).D, 100*stat.Median(off),
		100*(stat.Mean(predicted)/stat.Mean(measured)-1)), stat.Median(off)
}

// constantErrors are those of the medians of the earlier requests.
func constantErrors(later, earlier *learn.Load) (text string, e2e float64) {
	for k, name := range []string{"TTFT", "span", "E2E"} {
		var known, a, b []float64
		for i := range earlier.Seen {
			if v := timesOf[k](&earlier.Seen[i]); v > 0 {
				known = append(known, v)
			}
		}
		for i := range later.Seen {
			if want := timesOf[k](&later.Seen[i]); want > 0 && len(known) > 0 {
				a, b = append(a, want), append(b, stat.Median(known))
			}
		}
		words, median := errorText(a, b)
		text, e2e = text+name+" "+words+"  ", median
	}
	return text, e2e
}
