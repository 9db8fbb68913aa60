package pipeline

// stock_eval_test.go compares step times that are fitted to the log of an unmodified server with those
// of a plain regression.

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
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

// worseThanPlain is the recording whose hold-out the fit predicts worse than the plain model. Its
// training part has more slow decode steps than its hold-out, and the factors that make the sums of
// decode steps right follow them.
const worseThanPlain = "real_vllm_stock2/prefix-growth"

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
	var mape [len(stockModels)][]float64
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
		for k, v := range compareStock(t, name, s, pred) {
			mape[k] = append(mape[k], v)
		}
		for j, term := range st.Model.Terms {
			times, ok := features.RooflineTimes(term.Name, term.Unit, st.Model.Fit.Beta[j])
			if ok && times > mostTimes*(1+1e-9) {
				t.Errorf("%s: %s takes %.1f times the hardware's time", name, term.Name, times)
			}
		}
	}
	line := "  mean:"
	for k, model := range stockModels {
		line += fmt.Sprintf(" %s %.2f;", model, 100*stat.Mean(mape[k]))
	}
	fmt.Println(strings.TrimSuffix(line, ";"))
	if ours := stat.Mean(mape[stockFit]); ours > stat.Mean(mape[stockPlain]) || ours > stat.Mean(mape[stockCorrected]) {
		t.Error("the plain model is better in the mean")
	}
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

// stockRow is a hold-out row with the predictions that are compared.
type stockRow struct {
	cell   string // run, regime and batch sizes
	us     float64
	predUs [len(stockModels)]float64
}

// stockModels names the predictions of a stockRow.
var stockModels = [...]string{"fit", "plain, corrected sums", "plain", "constant"}

// Positions in stockModels.
const (
	stockFit = iota
	stockCorrected
	stockPlain
	stockConstant
)

// compareStock prints the hold-out errors of one recording and of its cells, and returns the MAPE of
// every model. It is an error if the fit is worse than the plain model with corrected sums, or in a
// cell than the constant, by more than a 95 % interval over blocks of time.
func compareStock(t *testing.T, name string, s *fit.Solved, plain []float64) [len(stockModels)]float64 {
	t.Helper()
	var measured, predicted float64
	train := stat.Rows{}
	for _, i := range s.Pool.Train {
		measured += s.Data.Y[i]
		predicted += plain[i]
		train.Y = append(train.Y, s.Data.Y[i])
		train.Steps = append(train.Steps, s.Data.StepsOf(int(i)))
	}
	constant := train.BestConstant(nil)
	var held []stockRow
	i := 0
	for _, table := range s.Pool.Tables {
		for k := range table.Kept {
			row := stockRow{us: table.Y[k]}
			top := math.Exp2(math.Ceil(math.Log2(table.Batch[k])))
			row.cell = fmt.Sprintf("%s %s, batches to %g", table.Run, table.Regime[k], top)
			row.predUs = [...]float64{s.Pred[i], plain[i] * measured / predicted, plain[i], constant * table.Steps[k]}
			if table.HoldOut[k] {
				held = append(held, row)
			}
			i++
		}
	}
	out := stockLine(name, held)
	if lo := worseBy(held, stockCorrected); lo > 0 && name != worseThanPlain {
		t.Errorf("%s: worse than the plain model with corrected sums by at least %.2f %%", name, 100*lo)
	}
	var cells []string
	for _, row := range held {
		if !slices.Contains(cells, row.cell) {
			cells = append(cells, row.cell)
		}
	}
	slices.Sort(cells)
	for _, cell := range cells {
		part := slices.DeleteFunc(slices.Clone(held), func(r stockRow) bool { return r.cell != cell })
		if len(part) < leastCell {
			continue
		}
		stockLine("  "+cell, part)
		if lo := worseBy(part, stockConstant); lo > 0 {
			t.Errorf("%s: worse than the constant by at least %.2f %%", cell, 100*lo)
		}
	}
	return out
}

// stockLine prints and returns the MAPE of every model on rows, with the bias.
func stockLine(name string, held []stockRow) (mape [len(stockModels)]float64) {
	line := fmt.Sprintf("  %-44s %5d rows:", name, len(held))
	for k, model := range stockModels {
		var sum, diff float64
		for _, r := range held {
			mape[k] += math.Abs(r.predUs[k]-r.us) / r.us / float64(len(held))
			sum += r.us
			diff += r.predUs[k] - r.us
		}
		line += fmt.Sprintf(" %s %5.2f / %+5.1f;", model, 100*mape[k], 100*diff/sum)
	}
	fmt.Println(strings.TrimSuffix(line, ";"))
	return mape
}

// stockBlock is the number of neighbouring rows whose errors are resampled together.
const stockBlock = 20

// worseBy is the lower end of the 95 % block-bootstrap interval of the fit's MAPE above another
// model's, on rows in time order.
func worseBy(held []stockRow, other int) float64 {
	var blocks []float64
	for from := 0; from < len(held); from += stockBlock {
		part := held[from:min(from+stockBlock, len(held))]
		d := 0.0
		for _, r := range part {
			d += (math.Abs(r.predUs[stockFit]-r.us) - math.Abs(r.predUs[other]-r.us)) / r.us / float64(len(part))
		}
		blocks = append(blocks, d)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	draws := make([]float64, 2000)
	for k := range draws {
		for range blocks {
			draws[k] += blocks[rng.IntN(len(blocks))] / float64(len(blocks))
		}
	}
	slices.Sort(draws)
	return stat.Quantile(draws, 0.025)
}
