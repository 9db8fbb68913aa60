package fit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// The overhead returns on composed runs whose API delay is known: the
// median prediction is within 20 % of the emulation's median on every run with 50
// informative rows, each run fitted alone and all of them in one pooled fit.
func TestEvalOverheadOfComposedRuns(t *testing.T) {
	sources := evaluation(t, "composed")
	pooled := overheads(t, sources)
	fmt.Println("composed: median overhead, us, of each run fitted alone and in one pooled fit; * is judged (50 informative rows)")
	misses, judged := map[string]int{}, 0
	for _, src := range sources {
		want := emulatedOverhead(t, src)
		alone := overheads(t, []Source{src})[src.ID]
		together := pooled[src.ID]
		mark := " "
		if alone.InformativeRows >= 50 {
			judged++
			mark = "*"
		}
		verdict := func(name string, i *result.IntervalErrors) string {
			off := *i.MedianPredUs/want - 1
			word := "ok"
			if math.Abs(off) > overheadAim {
				word = "off"
				if mark == "*" {
					misses[name]++
					word = "MISSES"
				}
			}
			return fmt.Sprintf("%s %5.0f (%+5.1f %% %s)", name, *i.MedianPredUs, 100*off, word)
		}
		fmt.Printf("%s %-24s rows %4d informative %4d exact %3d width %6.0f: emulated %5.0f %s %s\n", mark, src.ID, alone.Rows,
			alone.InformativeRows, alone.ExactRows, *alone.MedianWidthUs, want, verdict("alone", alone), verdict("pooled", together))
	}
	for _, name := range []string{"alone", "pooled"} {
		fmt.Printf("  %s: %d of %d judged runs within %.0f %%\n", name, judged-misses[name], judged, 100*overheadAim)
		if misses[name] > 0 || judged < 9 {
			t.Errorf("%s: %d of %d judged runs miss %.0f %%", name, misses[name], judged, 100*overheadAim)
		}
	}
}

// overheadAim is the distance aimed at from the emulated overhead.
const overheadAim = 0.2

// overheads is how the overhead meets the intervals of every run, all of its rows:
// the hold-out alone has too few that say something.
func overheads(t *testing.T, sources []Source) map[string]*result.IntervalErrors {
	t.Helper()
	f, err := newFitter(context.Background(), sources, stepsOnly(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, alphas, err := f.choose(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	a := alphas.byTarget(coeff.Overhead)
	if _, err := f.alphaModel(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	all, groups := a.s.Samples(rows.Whole, a.s.Pred)
	whole := rows.JudgeDelays(groups)
	out := map[string]*result.IntervalErrors{}
	for k, one := range all {
		out[a.s.Pool.Runs[k]] = whole.Intervals(func(s *rows.Sample) bool { return s == one })
	}
	return out
}

// emulatedOverhead is the median of data/composed/README.md's API delay over a
// run's requests: 0.30 ms + 0.40 ms per 1000 prompt tokens + 0.008 ms per
// concurrent request of the load stage, times a lognormal of mean 1 and cv 0.25,
// within 0.3 and 3 ms, us.
func emulatedOverhead(t *testing.T, src Source) float64 {
	t.Helper()
	median := 1 / math.Sqrt(1+0.25*0.25)
	var out []float64
	stages := stagesOf(t, src)
	for k, stage := range stages {
		concurrent := stageConcurrency(t, src, stage, k, len(stages))
		for _, r := range stage {
			out = append(out, math.Min(3000, math.Max(300, median*(300+0.4*float64(r.PromptTokens.V)+8*concurrent))))
		}
	}
	return stat.Median(out)
}

// stageConcurrency is the concurrency of a load stage's emulated delays: equal
// steps up to half of max_num_seqs in the last stage, whatever the number of
// requests that run. The stamps of the other delay it enters confirm it: DEPARTED -
// FINISHED is 0.2 ms + 0.0006 ms per output token + 0.010 ms per concurrent
// request, times a noise of mean 1.
func stageConcurrency(t *testing.T, src Source, stage []*trace.Request, k, stages int) float64 {
	t.Helper()
	nominal := float64(src.Deployment.Engine.MaxNumSeqs) / 2 * float64(k+1) / float64(stages)
	var n, sum, squares float64
	for _, r := range stage {
		if r.FinishedNs.OK && r.DepartedNs.OK && r.OutputTokens.OK {
			c := (rows.SpanUs(r.FinishedNs.V, r.DepartedNs.V) - 200 - 0.6*float64(r.OutputTokens.V)) / 10
			n += 1
			sum += c
			squares += c * c
		}
	}
	mean := sum / n
	if se := math.Sqrt((squares/n - mean*mean) / n); !(math.Abs(mean-nominal) < 3.5*se) {
		t.Errorf("%s: stage %d: concurrency %.1f, its %0.f departures say %.1f +- %.1f", src.ID, k+1, nominal, n, mean, se)
	}
	return nominal
}

// stagesOf are the requests of each load stage, in order of arrival.
func stagesOf(t *testing.T, src Source) [][]*trace.Request {
	t.Helper()
	run, err := src.Load()
	if err != nil {
		t.Fatal(err)
	}
	var list []*trace.Request
	for i := range run.Requests {
		if r := &run.Requests[i]; r.ArrivedNs.OK && r.PromptTokens.OK {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *trace.Request) int { return int(a.ArrivedNs.V - b.ArrivedNs.V) })
	sizes, _ := src.Deployment.Workload["stage_requests"].([]any)
	var total float64
	for _, s := range sizes {
		total += toFloat(s)
	}
	share := float64(len(list)) / math.Max(total, 1) // journeys may be sampled
	var out [][]*trace.Request
	for k, s := range sizes {
		n := min(len(list), int(math.Round(toFloat(s)*share)))
		if k == len(sizes)-1 {
			n = len(list)
		}
		out, list = append(out, list[:n]), list[n:]
	}
	return out
}

func toFloat(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case int:
		return float64(v)
	case int64:
		return float64(v)
	}
	return 0
}

// On synchronous real runs the intervals hold the prediction.
func TestEvalOverheadOfRealRuns(t *testing.T) {
	fmt.Println("real CPU runs, each fitted alone: share of non-exact hold-out intervals that hold the prediction, %")
	var shares []float64
	for _, src := range evaluation(t, "real_vllm_cpu") {
		o := stepsOnly()
		o.KeepSaturated = true
		doc, err := Fit(context.Background(), []Source{src}, o, nil)
		if err != nil || len(doc.Alpha) == 0 || len(doc.Alpha[0].AlphaRuns) == 0 {
			fmt.Printf("  %-16s no overhead (%v)\n", src.ID, err)
			continue
		}
		i := doc.Alpha[0].AlphaRuns[0].Interval
		sync := !src.Deployment.Engine.IsAsync()
		fmt.Printf("  %-16s sync %-5v rows %4d informative %4d exact %3d: inside %s exact WAPE %s median prediction %4.0f us, "+
			"width %6.0f us\n", src.ID, sync, i.Rows, i.InformativeRows, i.ExactRows, pct(i.InsideShare), pct(i.ExactWAPE), *i.MedianPredUs,
			*i.MedianWidthUs)
		if sync && i.InsideShare != nil {
			shares = append(shares, *i.InsideShare)
			if *i.InsideShare < 0.90 {
				t.Errorf("%s: %s %% inside, want at least 90 %%", src.ID, pct(i.InsideShare))
			}
		}
	}
	m := stat.Median(shares)
	fmt.Printf("  median of %d synchronous runs %.2f %%\n", len(shares), 100*m)
	if !(m >= 0.95) || len(shares) < 8 {
		t.Errorf("median of %d runs %.4f, want at least 0.95", len(shares), m)
	}
}

func (a alphaFits) byTarget(target string) *alphaFit {
	for _, f := range a {
		if f.target == target && f.s != nil {
			return f
		}
	}
	return nil
}

// Of half and of a fifth of its rows a fit learns what it learns of all: every coefficient that the data tell stays
// within half of its half interval, and the step times of the whole hold-out err by at most a twentieth more. A
// twentieth of these small sets, 110 to 150 rows a configuration, is too little for the first.
func TestEvalMaxRows(t *testing.T) {
	for _, set := range []string{"composed", "real_vllm_cpu"} {
		sources := evaluation(t, set)
		most := int64(0)
		for i := range sources {
			run, err := sources[i].Load()
			if err != nil {
				t.Fatal(err)
			}
			sources[i].Most = int64(len(run.Steps))
			most += sources[i].Most
		}
		all := capped(t, sources, 0)
		fmt.Printf("%s: %d steps, %d rows learned from, %d configurations, hold-out: median error %s %%, MAPE %s %%, fitted in %.1f s\n", set,
			most, all.rows, all.configs, pct(&all.median), pct(&all.mape), all.seconds)
		for _, part := range []int64{2, 5, 20} {
			n := int((most + part - 1) / part)
			c := capped(t, sources, n)
			median, mape := c.errors(all.data, all.hold)
			moved, wider := c.moved(all)
			fmt.Printf("  --max-rows %6d: %6d rows, %5.0f a configuration: coefficients move by %.2f of their half interval, median "+
				"of %d, at most %.2f (%s); intervals x%.2f; whole hold-out: median error %s %%, MAPE %s %%; the fit says %s %%; %.1f s\n", n, c.rows,
				float64(c.rows)/float64(c.configs), stat.Median(moved), len(moved), slices.Max(moved), c.farthest, stat.Median(wider), pct(&median),
				pct(&mape), pct(&c.median), c.seconds)
			if part < 20 && (slices.Max(moved) > 0.5 || median > 1.05*all.median) || median > 1.15*all.median {
				t.Errorf("%s, a part of 1/%d: coefficients move by up to %.2f half intervals, median error %s %%", set, part, slices.Max(moved),
					pct(&median))
			}
		}
	}
}

// cappedFit is a fit of at most so many rows, and how it meets its hold-out.
type cappedFit struct {
	model         *result.Model
	rows, configs int // training rows
	median, mape  float64
	seconds       float64 // of one core
	data          *ridge.Data
	hold          []int32
	farthest      string // the coefficient that moved most
}

func capped(t *testing.T, sources []Source, n int) *cappedFit {
	t.Helper()
	o := stepsOnly()
	o.MaxRows = n
	o.Workers = 1
	o.Bootstraps = 500
	o.KeepSaturated = true
	from := time.Now()
	doc := fitted(t, sources, o)
	c := &cappedFit{model: &doc.Beta, configs: len(doc.Configs), seconds: time.Since(from).Seconds()}
	st, err := FitStepTime(context.Background(), sources, o)
	if err != nil {
		t.Fatal(err)
	}
	c.rows = len(st.Model.Pool.Train)
	c.data = st.Model.Pool.Data
	c.hold = st.Model.Pool.Hold
	c.median, c.mape = c.errors(c.data, c.hold)
	return c
}

// errors are the median and the mean error of the fit on some rows.
func (c *cappedFit) errors(data *ridge.Data, list []int32) (median, mape float64) {
	at := slices.IndexFunc(data.Variants, func(v ridge.Variant) bool { return v.Gamma == *c.model.GammaEMA })
	data = data.With(at).Subset(list)
	beta := make([]float64, data.P)
	for j := range beta {
		beta[j] = c.model.Coefficients[j].Value
	}
	scored := stat.Rows{Y: data.Y, Pred: ridge.Predict(data, beta)}
	e := scored.Errors(nil)
	return e.MedianAPE, e.MAPE
}

// moved are the changes of the coefficients that the data tell, in units of the half of their interval with all rows,
// and how many times wider their intervals are.
func (c *cappedFit) moved(all *cappedFit) (moved, wider []float64) {
	half := func(m *result.Model, j int) float64 { ci := m.Coefficients[j].CI95; return (ci[1] - ci[0]) / 2 }
	for j, k := range all.model.Coefficients {
		if k.CI95 == nil || k.Identified != string(coeff.Within) || half(all.model, j) == 0 || k.Name == features.FixedStepOverhead {
			continue
		}
		d := math.Abs(c.model.Coefficients[j].Value-k.Value) / half(all.model, j)
		if len(moved) == 0 || d > slices.Max(moved) {
			c.farthest = k.Name
		}
		moved = append(moved, d)
		if ci := c.model.Coefficients[j].CI95; ci != nil {
			wider = append(wider, half(c.model, j)/half(all.model, j))
		}
	}
	return moved, wider
}
