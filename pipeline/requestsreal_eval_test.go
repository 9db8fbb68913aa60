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
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace/table"
)

// TestEvalRealServersFromRequests says, for recordings of real servers without step
// traces, how the later part of the requests is predicted by a fit of the earlier one,
// by the prior alone and by a constant. The fit is nearer than a constant and within 10 %, or says that its
// replay is of another server; and it is nearer than the prior, or not farther beyond chance, at five places to cut.
//
// Beyond chance: 95 % of the difference of the medians over all held-out requests of the recording, as blocks of consecutive
// requests have it (requestfit.GainOf, whose finding the user reads). Of jan20-prefill-llama7b-tp1-1 the prior alone is within
// 3 % in every phase, bursts that fill the KV cache included, so little is left to learn.
func TestEvalRealServersFromRequests(t *testing.T) {
	repo.NeedEval(t)
	nearer := 0
	for _, set := range []string{"real_stock_otlp", "real_requests_llmservingsim"} {
		dir := repo.Shared(t, "data", set)
		ext, out := extractedFrom(t, dir)
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
			if ttft, span, ok := requestfit.NoiseFloor(run, r.Deployment, 1); ok {
				t.Logf("%s: noise floor: sends that differ by a millisecond move TTFT by %.1f %% and span by %.1f %%", r.ID, 100*ttft, 100*span)
			}
			loads, findings := requestfit.LoadsOf(run, r.Deployment, true, nil)
			for _, f := range findings {
				t.Logf("%s: %s", r.ID, f.Message)
			}
			prior := requestfit.Roofline(r.Deployment)
			if set, err := fit.LibraryFor(r.Deployment); err == nil {
				prior = &requestfit.Prior{Name: fit.PriorLibrary, Set: set}
			}
			for _, split := range []float64{0.3, 0.4, 0.5, 0.6, 0.7} {
				if isNearer := judgeSplit(t, loads, prior, split); isNearer && split == 0.5 {
					nearer++
				}
			}
		}
	}
	if nearer < 4 {
		t.Errorf("cut in the middle, fits of %d recordings are nearer than the prior beyond chance, want 4 of 5", nearer)
	}
}

// judgeSplit fits what was sent in the first share of the loads' time and judges it by the rest; true where it is nearer than the
// prior beyond chance.
func judgeSplit(t *testing.T, loads []*requestfit.Load, prior *requestfit.Prior, split float64) bool {
	t.Helper()
	var early []*requestfit.Load
	for _, l := range loads {
		early = append(early, l.Before(split))
	}
	o := requestfit.DefaultOptions()
	o.Search = requestfit.SearchNone
	got, err := requestfit.Fit(context.Background(), early, prior, o)
	if err != nil {
		t.Errorf("%s: %v", loads[0].Name, err)
		return false
	}
	t.Logf("%s, cut at %g (%s): %+v", loads[0].Name, split, prior.Name, *got.Level)
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
	var held []*requestfit.Load
	for k := range loads {
		l := loads[k].Later(split)
		held = append(held, l)
		learned, e := laterErrors(t, l, got.Set)
		before, _ := laterErrors(t, l, prior.Set)
		constant, c := constantErrors(l, loads[k].Before(split))
		t.Logf("   %-14s learned  %s", l.Name, learned)
		t.Logf("   %-14s prior    %s", "", before)
		t.Logf("   %-14s constant %s", "", constant)
		if !unlike && split == 0.5 && (e > c || e > 0.1) {
			t.Errorf("%s, cut at %g: median error of E2E %.1f %%, of a constant %.1f, want less and at most 10", l.Name, split, 100*e, 100*c)
		}
	}
	g, err := requestfit.GainOf(held, got.Set, prior.Set)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range g.Findings() {
		t.Logf("   %s: %s", f.Code, f.Message)
	}
	if !unlike && g.Low > 0 {
		t.Errorf("%s, cut at %g: median error of E2E %.1f %%, of the prior %.1f, want no difference of which 95 %% lie above 0, got %+.1f to %+.1f",
			loads[0].Run, split, 100*g.Learned, 100*g.Prior, 100*g.Low, 100*g.High)
	}
	return g.High < 0
}

// timesOf are TTFT, span and E2E of requests.
var timesOf = []func(m *sim.Measured) float64{func(m *sim.Measured) float64 { return m.TTFTUs },
	func(m *sim.Measured) float64 { return m.SpanUs }, func(m *sim.Measured) float64 { return m.E2EUs }}

// laterErrors compare what a set predicts for a load with what is measured of it, in words,
// and are the median error of E2E.
func laterErrors(t *testing.T, l *requestfit.Load, set *coeff.Set) (text string, e2e float64) {
	t.Helper()
	got, err := l.Predict(set)
	if err != nil {
		t.Fatal(err)
	}
	for k, name := range []string{"TTFT", "span", "E2E"} {
		var a, b []float64
		for i := range got {
			if want := timesOf[k](&l.Seen[i]); want > 0 {
				a = append(a, want)
				b = append(b, timesOf[k](&got[i]))
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
func constantErrors(later, earlier *requestfit.Load) (text string, e2e float64) {
	for k, name := range []string{"TTFT", "span", "E2E"} {
		var known, a, b []float64
		for i := range earlier.Seen {
			if v := timesOf[k](&earlier.Seen[i]); v > 0 {
				known = append(known, v)
			}
		}
		for i := range later.Seen {
			if want := timesOf[k](&later.Seen[i]); want > 0 && len(known) > 0 {
				a = append(a, want)
				b = append(b, stat.Median(known))
			}
		}
		words, median := errorText(a, b)
		text, e2e = text+name+" "+words+"  ", median
	}
	return text, e2e
}

// extractedFrom extracts a folder by the default options into one that ends with the test.
func extractedFrom(t *testing.T, dir string) (ext *result.Extract, out string) {
	t.Helper()
	o := DefaultExtractOptions()
	o.Out = t.TempDir()
	ext, err := Extract(context.Background(), []string{dir}, o)
	if err != nil {
		t.Fatal(err)
	}
	return ext, o.Out
}
