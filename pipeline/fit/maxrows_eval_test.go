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
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

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
	o.MaxRows, o.Workers, o.Bootstraps, o.KeepSaturated = n, 1, 500, true
	from := time.Now()
	doc := fitted(t, sources, o)
	c := &cappedFit{model: &doc.Beta, configs: len(doc.Configs), seconds: time.Since(from).Seconds()}
	st, err := FitStepTime(context.Background(), sources, o)
	if err != nil {
		t.Fatal(err)
	}
	c.rows, c.data, c.hold = len(st.Model.Pool.Train), st.Model.Pool.Data, st.Model.Pool.Hold
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
		if k.CI95 == nil || k.Identified != string(coeff.Within) || half(all.model, j) == 0 || k.Name == NominalTerm {
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
