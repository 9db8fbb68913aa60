package pipeline

// stock_eval_test.go compares step times that are fitted to the log of an unmodified server with those
// of a plain regression.

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// stockRecordings are the public recordings of unmodified servers whose logs have iteration lines.
var stockRecordings = []string{
	"real_vllm_stock/gqa-a", "real_vllm_stock/mha-core", "real_vllm_stock2/dp2", "real_vllm_stock2/prefix-growth",
	"real_vllm_stock2/spec-ngram",
}

// leastCell is the number of hold-out rows from which a cell of regime and batch size is compared.
const leastCell = 100

// mostTimes is the largest multiple of the hardware's time that a term may take.
const mostTimes = 5

// TestEvalStockSteps fits the step times of every stock recording and compares the last fifth of
// each phase with a constant and with weighted least squares on four figures of the log line: 1,
// decoding requests, prompt tokens and prompts. Relative weights make a least-squares fit too small
// on average, which lowers relative errors and makes sums wrong, so the plain model is shown with
// its sums corrected too, as ours are.
func TestEvalStockSteps(t *testing.T) {
	repo.NeedEval(t)
	fmt.Println("stock recordings: hold-out MAPE % / bias %")
	var ours, plain, corrected []float64
	for _, name := range stockRecordings {
		o := DefaultExtractOptions()
		o.Out = t.TempDir()
		o.Batches = nil
		ext, err := Extract(context.Background(), []string{repo.Shared(t, filepath.Join("data", name))}, o)
		if err != nil {
			t.Fatal(err)
		}
		fo := fit.BareOptions()
		fo.Bootstraps = fit.MinBootstraps
		fo.Models = []string{}
		fo.Rows = func(*fit.Dump) error { return nil } // tables keep the steps of each row
		st, err := fit.FitStepTime(context.Background(), FitSources(o.Out, ext), fo)
		if err != nil {
			t.Fatal(err)
		}
		s := st.Model
		labels := make([]string, len(s.Pool.Configs))
		copy(labels, s.Pool.Configs)
		fit.Deployments(s, labels, &result.Model{})
		var figures [][]float64
		for k, rowsOf := range s.Pool.Tables {
			figures = append(figures, logFigures(t, st.Runs[k].Src, st.Options.Spec, rowsOf)...)
		}
		pred := leastSquares(t, s, figures)
		m := compareStock(t, name, s, pred)
		ours = append(ours, m[0])
		corrected = append(corrected, m[1])
		plain = append(plain, m[2])
		for j, term := range st.Model.Terms {
			times, ok := features.RooflineTimes(term.Name, term.Unit, st.Model.Fit.Beta[j])
			if ok && times > mostTimes*(1+1e-9) {
				t.Errorf("%s: %s takes %.1f times the hardware's time", name, term.Name, times)
			}
		}
	}
	fmt.Printf("  mean: fit %.2f, plain with corrected sums %.2f, plain %.2f\n", 100*stat.Mean(ours), 100*stat.Mean(corrected),
		100*stat.Mean(plain))
}

// logFigures returns the four figures of a log line for each row of a run, summed over its steps.
func logFigures(t *testing.T, src fit.Source, v features.Version, table *rows.Table) [][]float64 {
	t.Helper()
	run, err := src.Load()
	if err != nil {
		t.Fatal(err)
	}
	steps, err := rows.Rebuild(run, &src.Deployment, v)
	if err != nil {
		t.Fatal(err)
	}
	out := make([][]float64, table.Kept)
	for i := range out {
		out[i] = make([]float64, 4)
		for u := table.FirstStep[i]; u <= table.LastStep[i]; u++ {
			in := &steps.At(u).In
			out[i][0]++
			out[i][1] += in.NumDecodeReqs
			out[i][2] += in.PrefillTokens
			out[i][3] += in.NumPrefillReqs
		}
	}
	return out
}

// leastSquares predicts every row of a model by least squares on figures of the training rows, with
// weights 1/y^2.
func leastSquares(t *testing.T, s *fit.Solved, figures [][]float64) []float64 {
	t.Helper()
	p := len(figures[0])
	a := make([]float64, p*p)
	beta := make([]float64, p)
	for _, i := range s.Pool.Train {
		y := s.Data.Y[i]
		for j, x := range figures[i] {
			beta[j] += x / y
			for k, z := range figures[i] {
				a[j*p+k] += x * z / (y * y)
			}
		}
	}
	if stat.Cholesky(a, p) < p {
		t.Fatal("the figures of the log are not independent")
	}
	stat.CholeskySolve(a, p, beta)
	pred := make([]float64, len(figures))
	for i, x := range figures {
		for j, v := range x {
			pred[i] += v * beta[j]
		}
	}
	return pred
}

// compareStock prints the hold-out errors of one recording and of its cells, and returns the MAPE of
// the fit, of the plain model with its sums corrected, and of the plain model.
func compareStock(t *testing.T, name string, s *fit.Solved, plain []float64) [3]float64 {
	t.Helper()
	var measured, predicted float64
	for _, i := range s.Pool.Train {
		measured += s.Data.Y[i]
		predicted += plain[i]
	}
	corrected := fit.Scaled(plain, measured/predicted)
	preds := [][]float64{s.Pred, corrected, plain}
	var whole [3]*result.Errors
	var cells [3][]result.Cell
	for k, pred := range preds {
		all, groups := s.Samples(rows.HoldOut, pred)
		e := rows.JudgeSteps(groups, false, 0)
		whole[k] = e.Errors()
		for _, one := range all {
			cells[k] = append(cells[k], e.Cells(one, true)...)
		}
	}
	stockLine(name, whole)
	for i, c := range cells[0] {
		if c.Bucket == "" || c.Rows < leastCell {
			continue
		}
		stockLine("  "+c.Run+" "+c.Regime+" "+c.Bucket, [3]*result.Errors{&c.Errors, &cells[1][i].Errors, &cells[2][i].Errors})
		if !(*c.MAPE < *c.MAPEConst) {
			t.Errorf("%s %s %s: MAPE %.1f %%, constant %.1f %%", c.Run, c.Regime, c.Bucket, 100**c.MAPE, 100**c.MAPEConst)
		}
	}
	if *whole[0].MAPE > *whole[1].MAPE {
		t.Errorf("%s: MAPE %.2f %%, plain model with its sums corrected %.2f %%", name, 100**whole[0].MAPE, 100**whole[1].MAPE)
	}
	return [3]float64{*whole[0].MAPE, *whole[1].MAPE, *whole[2].MAPE}
}

// stockLine prints the errors of the fit, of the plain model with its sums corrected, of the plain
// model, and of the constant.
func stockLine(name string, e [3]*result.Errors) {
	fmt.Printf("  %-44s %5d rows: fit %5.2f / %+5.1f, plain with corrected sums %5.2f / %+5.1f, plain %5.2f / %+5.1f, constant %5.2f\n",
		name, e[0].Rows, 100**e[0].MAPE, 100**e[0].Bias, 100**e[1].MAPE, 100**e[1].Bias, 100**e[2].MAPE, 100**e[2].Bias, 100**e[0].MAPEConst)
}
