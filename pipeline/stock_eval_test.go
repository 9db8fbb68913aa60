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

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
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
// its sums corrected too, as ours are. The machine's speed is said to have changed only where the
// plain model misses a block of the hold-out too.
func TestEvalStockSteps(t *testing.T) {
	repo.NeedEval(t)
	fmt.Println("stock recordings: hold-out MAPE % / bias %")
	var mape [len(stockModels)][]float64
	drifting := 0
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
		fit.ApplyDeploymentFactors(s, labels, &result.Model{})
		var figures [][]float64
		for k, rowsOf := range s.Pool.Tables {
			figures = append(figures, logFigures(t, st.Runs[k].Src, st.Options.Spec, rowsOf)...)
		}
		pred := leastSquares(t, s, figures)
		for k, v := range compareStock(t, name, s, pred) {
			mape[k] = append(mape[k], v)
		}
		drifting += compareDrift(t, o.Out, ext, s, pred)
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
	fmt.Printf("  machine_drift is named for %d runs\n", drifting)
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

// compareDrift counts the runs for which a fit names machine_drift. It is an error if the plain model
// misses no block of the run's hold-out by as much, whether its sums are corrected or not.
func compareDrift(t *testing.T, dir string, ext *result.Extract, s *fit.Solved, plain []float64) (named int) {
	t.Helper()
	o := fit.DefaultOptions()
	o.Bootstraps = fit.MinBootstraps
	o.Models = []string{}
	o.AlphaTargets = []string{coeff.Overhead}
	doc, err := FitTables(context.Background(), dir, ext, o, result.Header{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var measured, predicted float64
	for _, i := range s.Pool.Train {
		measured += s.Data.Y[i]
		predicted += plain[i]
	}
	corrected := make([]float64, len(plain))
	for i, v := range plain {
		corrected[i] = v * measured / predicted
	}
	worst := map[string]float64{}
	raw, level := *s, *s
	raw.Pred, level.Pred = plain, corrected
	levels := level.Drift()
	for k, d := range raw.Drift() {
		least := math.Min(math.Abs(d.Bias), math.Abs(levels[k].Bias))
		worst[d.Run] = math.Max(worst[d.Run], least)
	}
	for _, run := range s.Pool.Runs {
		isNamed := slices.ContainsFunc(doc.Beta.Warnings, func(w trace.Finding) bool {
			return w.Code == rows.MachineDrift && strings.Contains(w.Message, run)
		})
		fmt.Printf("  %s: machine_drift %v, largest block bias of the plain model %.1f %%\n", run, isNamed, 100*worst[run])
		if isNamed {
			named++
			if worst[run] <= 0.1 {
				t.Errorf("%s: machine_drift is named, and the plain model does not see it", run)
			}
		}
	}
	return named
}

// stockRow is a hold-out row with the predictions that are compared.
type stockRow struct {
	cell   string // run, regime and batch sizes
	run    string
	timeNs int64
	us     float64
	predUs [len(stockModels)]float64
}

// stockModels names the predictions of a stockRow.
var stockModels = [...]string{"fit", "plain, corrected sums", "plain", "constant", "fit, least relative error"}

// Positions in stockModels.
const (
	stockFit = iota
	stockCorrected
	stockPlain
	stockConstant
	stockLevel // the fit times the factor that has the least relative error on its training rows
)

// compareStock prints the hold-out errors of one recording and of its cells, and returns the MAPE of
// every model. It is an error if the fit is worse than the plain model or the constant, as a whole or in a
// cell, or as a whole than the plain model with corrected sums, by more than a 95 % interval over blocks
// of time.
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
	level := leastRelativeLevel(s)
	var held []stockRow
	i := 0
	for _, table := range s.Pool.Tables {
		for k := range table.Kept {
			row := stockRow{us: table.Y[k], run: table.Run, timeNs: table.TimeNs[k]}
			top := math.Exp2(math.Ceil(math.Log2(table.Batch[k])))
			row.cell = fmt.Sprintf("%s %s, batches to %g", table.Run, table.Regime[k], top)
			row.predUs = [...]float64{s.Pred[i], plain[i] * measured / predicted, plain[i], constant * table.Steps[k], level * s.Pred[i]}
			if table.HoldOut[k] {
				held = append(held, row)
			}
			i++
		}
	}
	judge := func(what string, part []stockRow, others ...int) {
		for _, other := range others {
			if lo := worseBy(part, other); lo > 0 {
				t.Errorf("%s: worse than the %s model by at least %.2f %%", what, stockModels[other], 100*lo)
			}
		}
	}
	out := stockLine(name, held)
	judge(name, held, stockCorrected, stockPlain, stockConstant)
	var cells []string
	for _, row := range held {
		if !slices.Contains(cells, row.cell) {
			cells = append(cells, row.cell)
		}
	}
	slices.Sort(cells)
	for _, cell := range cells {
		part := slices.DeleteFunc(slices.Clone(held), func(r stockRow) bool { return r.cell != cell })
		if len(part) >= leastCell {
			stockLine("  "+cell, part)
			judge(cell, part, stockPlain, stockConstant)
		}
	}
	return out
}

// leastRelativeLevel returns the factor of a fit's predictions with the least relative error on its training rows: the
// median of measured over predicted times, weighted by predicted over measured ones.
func leastRelativeLevel(s *fit.Solved) float64 {
	var ratio []float64
	total := 0.0
	for _, i := range s.Pool.Train {
		ratio = append(ratio, s.Data.Y[i]/s.Pred[i])
		total += s.Pred[i] / s.Data.Y[i]
	}
	slices.Sort(ratio)
	sum := 0.0
	for _, r := range ratio {
		if sum += 1 / r; sum >= total/2 {
			return r
		}
	}
	return 1
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

// stockBlock is the time over which errors are resampled together. The machines keep a speed for 10 to
// 30 s: errors of rows correlate over up to 120 of them.
const stockBlock = 20 * 1e9

// worseBy is the lower end of the 95 % block-bootstrap interval of the fit's MAPE above another
// model's, on rows in time order.
func worseBy(held []stockRow, other int) float64 {
	type block struct {
		sum  float64
		rows float64
	}
	var blocks []block
	var run string
	var at int64
	for _, r := range held {
		if number := r.timeNs / stockBlock; len(blocks) == 0 || r.run != run || number != at {
			blocks = append(blocks, block{})
			run = r.run
			at = number
		}
		b := &blocks[len(blocks)-1]
		b.rows++
		b.sum += (math.Abs(r.predUs[stockFit]-r.us) - math.Abs(r.predUs[other]-r.us)) / r.us
	}
	rng := rand.New(rand.NewPCG(5, 6))
	draws := make([]float64, 2000)
	for k := range draws {
		var drawn block
		for range blocks {
			b := blocks[rng.IntN(len(blocks))]
			drawn.sum += b.sum
			drawn.rows += b.rows
		}
		draws[k] = drawn.sum / drawn.rows
	}
	slices.Sort(draws)
	return stat.Quantile(draws, 0.025)
}
