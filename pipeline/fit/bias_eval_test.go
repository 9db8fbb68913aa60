package fit

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// TestEvalHoldoutBias: what of the bias on the hold-out of the bundled real recordings is the machine's. The fit is
// unbiased over the rows that it was made of and over every fifth block of time that it was not made of. On the last
// fifth of time it is off by as much as the mean time of the most alike batches of the earlier time, which is no model,
// and no factor that the earlier time gives, over all of it or its last fifth, makes it better.
func TestEvalHoldoutBias(t *testing.T) {
	repo.NeedEval(t)
	pool := func() (*Pool, *fitter) {
		o := stepsOnly()
		o.KeepSaturated = true
		f, err := newFitter(t.Context(), SourcesOf(t, filepath.Join(repo.Root(t), "testdata", "traces", "real")), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		tables := tablesOf(f.used, func(p *Run) *rows.Table { return p.Beta })
		rows.Clean(tables, rows.Relative)
		return Pooled(tables, []float64{features.DefaultGamma}), f
	}
	fitted := func(p *Pool, f *fitter) []float64 { // predictions of all rows
		s := &Solved{Pool: p, Terms: featureTerms(features.BetaFeatures(f.o.Spec), len(p.Configs), f.o.Prior)}
		s.Opt = ridgeOptions(s.Terms, EpsBetaUs, f.o)
		s.Opt.EmbargoRows = embargo(1)
		s.Opt.EachBlock, s.Opt.SmallestWithin = true, true
		sels, err := s.chooseForm(0)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SolveRelative(0, &sels[0], false); err != nil {
			t.Fatal(err)
		}
		ApplyDeploymentFactors(s, p.Configs, &result.Model{})
		return s.Pred
	}
	bias := func(p *Pool, pred []float64, of []int32, run int32) float64 {
		var off, sum float64
		for _, i := range of {
			if run < 0 || p.Data.Run[i] == run {
				off += pred[i] - p.Data.Y[i]
				sum += p.Data.Y[i]
			}
		}
		return off / sum
	}
	show := func(what string, p *Pool, pred []float64, of []int32) float64 {
		fmt.Printf("  %-58s %+6.1f %%", what, 100*bias(p, pred, of, -1))
		for k, name := range p.Runs {
			fmt.Printf("  %s %+6.1f", name, 100*bias(p, pred, of, int32(k)))
		}
		fmt.Println()
		return bias(p, pred, of, -1)
	}
	p, f := pool()
	pred := fitted(p, f)
	show("the fit, rows it was made of", p, pred, p.Train)
	ofFit := show("the fit, last fifth of time", p, pred, p.Hold)
	alike := show("most alike batches of the earlier time, last fifth", p, likeBatches(p, p.Train), p.Hold)
	show("most alike batches of the hold-out itself, last fifth", p, likeBatches(p, p.Hold), p.Hold)

	scaled := func(from []int32) []float64 { // by the sums of a part of the earlier time of each run
		out := slices.Clone(pred)
		for i := range out {
			out[i] /= 1 + bias(p, pred, from, p.Data.Run[i])
		}
		return out
	}
	all := show("the fit times the factor of all earlier time", p, scaled(p.Train), p.Hold)
	var late []int32
	for k := range p.Runs {
		var mine []int32
		for _, i := range p.Train {
			if p.Data.Run[i] == int32(k) {
				mine = append(mine, i)
			}
		}
		late = append(late, mine[4*len(mine)/5:]...)
	}
	latest := show("the fit times the factor of the last fifth of it", p, scaled(late), p.Hold)

	// Each block of time held out in turn: what bias the estimator has without drift.
	const blocks = 5
	var offs []float64
	for block := range blocks {
		q, g := pool()
		q.Train, q.Hold = nil, nil
		for i := range int32(q.Data.Len()) {
			table, row := q.rowOf(i)
			if isHeld := row*4*blocks/table.Kept%blocks == block; isHeld {
				q.Hold = append(q.Hold, i)
			} else {
				q.Train = append(q.Train, i)
			}
		}
		offs = append(offs, show(fmt.Sprintf("every fifth block of time from block %d on", block+1), q, fitted(q, g), q.Hold))
	}
	fmt.Printf("  mean over the five: %+.1f %%\n", 100*stat.Mean(offs))
	if math.Abs(ofFit) > 0.1 || math.Abs(stat.Mean(offs)) > 0.01 {
		t.Errorf("bias %.3f on the last fifth, want within 10 %%; %.3f over every fifth block, want within 1 %%", ofFit, stat.Mean(offs))
	}
	const aim = 0.05
	if least := min(math.Abs(alike), math.Abs(all), math.Abs(latest)); least < aim {
		t.Errorf("a predictor from the earlier time alone has a bias of %.3f on the last fifth: the fit, %.3f, should reach that", least, ofFit)
	}
}

// likeBatches predicts every row of a pool by the mean time of the 15 rows most like it among the given ones, itself
// excepted.
func likeBatches(p *Pool, among []int32) []float64 {
	const nearest = 15
	d := p.Data
	scale := make([]float64, d.P)
	for i := range d.Len() {
		for j, x := range d.Row(i) {
			scale[j] += math.Pow(x/d.Steps[i], 2) / float64(d.Len())
		}
	}
	out := make([]float64, d.Len())
	for i := range out {
		distance := make([]float64, len(among))
		for k, other := range among {
			if int(other) == i || d.Regime[other] != d.Regime[i] {
				distance[k] = math.Inf(1)
				continue
			}
			for j, x := range d.Row(i) {
				if scale[j] > 0 {
					distance[k] += math.Pow(x/d.Steps[i]-d.Row(int(other))[j]/d.Steps[other], 2) / scale[j]
				}
			}
		}
		for _, k := range stat.Order(distance)[:nearest] {
			out[i] += d.Y[among[k]] / d.Steps[among[k]] / nearest * d.Steps[i]
		}
	}
	return out
}
