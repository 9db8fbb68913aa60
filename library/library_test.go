package library

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/trace"
)

// plantedTerms is a family whose tables are the terms themselves.
func plantedTerms(t *testing.T, beta []float64) *fitted {
	t.Helper()
	h, _ := deploy.Datasheet("H100")
	f := &fitted{tables: &Tables{GPU: "h100_sxm", Hardware: h}, design: &design{family: family{"h100_sxm", libraryBf16, false}}}
	f.P = betaSlots
	x := make([]float64, betaSlots)
	for run, d := range f.family.deployments(h, nil) {
		space, err := features.New(features.V12, d)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(f.models); n == 0 || f.models[n-1] != d.Model.ID {
			f.models = append(f.models, d.Model.ID)
		}
		f.deps = append(f.deps, d)
		q := learn.NewDraws(5, uint64(run))
		for i := range 60 {
			in := space.Sum(q.Batch(int32(i)%learn.NumRegimes, nil))
			if _, err := space.Beta(&in, x); err != nil {
				t.Fatal(err)
			}
			forget(x)
			us := 0.0
			for j, v := range x {
				us += beta[j] * v
			}
			f.X, f.Y = append(f.X, x...), append(f.Y, us)
			f.Config, f.Run = append(f.Config, int32(len(f.models)-1)), append(f.Run, int32(run))
			f.Regime, f.Time = append(f.Regime, int32(i)%learn.NumRegimes), append(f.Time, int64(i))
		}
	}
	return f
}

// plantedBeta has a cost for every term that dense models show.
func plantedBeta() []float64 {
	beta := make([]float64, betaSlots)
	for j, f := range features.BetaFeatures(features.V12) {
		if f.IsTime() {
			beta[j] = 1e6 * (1 + 0.1*float64(j))
		}
	}
	return beta
}

// TestFitFindsPlantedTerms: tables that are a sum of terms give the terms back,
// so that the design tells every one of them apart.
func TestFitFindsPlantedTerms(t *testing.T) {
	want := plantedBeta()
	f := plantedTerms(t, want)
	fit, err := f.solve(termOptions(betaSlots))
	if err != nil {
		t.Fatal(err)
	}
	f.beta = fit.Beta
	f.assess()
	for r := range learn.NumRegimes {
		if q := f.regimes[r]; q.Worst > 1e-3 || q.Rows == 0 {
			t.Errorf("%s: worst deployment %g over %d rows, want the terms to hold the planted tables", regimeNames[r], q.Worst, q.Rows)
		}
	}
	for _, slot := range []int{1, 3, 5, 11, 18, 19} {
		if got := fit.Beta[slot-1]; math.Abs(got/want[slot-1]-1) > 0.02 {
			t.Errorf("slot %d: got %g, want %g", slot, got, want[slot-1])
		}
	}
}

// TestCorrectionFindsPlantedHost: points and served runs simulated with other host times and
// another factor on kernels lead back to them.
func TestCorrectionFindsPlantedHost(t *testing.T) {
	f := plantedTerms(t, plantedBeta())
	f.beta, f.covariance = plantedBeta(), make([][]float64, betaSlots)
	for j := range f.covariance {
		f.covariance[j] = make([]float64, betaSlots)
	}
	b := &builder{Options: Options{Workers: 2}, families: []*fitted{f}}
	truth := newCorrection([]string{f.tables.Hardware.Name}, Engine)
	copy(truth.Theta, []float64{900, 220, 2, 1100, 30, 9000, 1.04})
	var ls []*load
	for _, version := range []string{"0.12.0", "0.16.0"} {
		for _, tp := range []int64{1, 2, 4, 8} {
			for _, clients := range []int{1, 8, 64} {
				d := &deploy.Deployment{Model: shapes[5].model(libraryBf16, 2), Hardware: f.tables.Hardware, TP: tp, PP: 1, DP: 1, Engine: designEngine}
				d.Engine.VLLMVersion = version
				p := point{ID: "p", Weights: libraryBf16, Level: learn.Level{InputTokens: 512, OutputTokens: 40, Concurrency: clients, Deployment: d}}
				l, err := p.load(learn.Harness{PromptLeast: 0.8, PromptMost: 1, OutputLeast: 0.8, OutputMost: 1, Rounds: 4}, 1)
				if err != nil {
					t.Fatal(err)
				}
				o, err := l.simulate(setOf(truth.coefficients(f, d)), false)
				if err != nil {
					t.Fatal(err)
				}
				l.ttftMs, l.tpotMs = o.TTFTMs, o.TPOTMs
				ls = append(ls, l)
			}
		}
	}
	prior := newCorrection(truth.GPUs, Engine)
	before, err := b.judge(context.Background(), prior, ls)
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.learn(context.Background(), ls, nil)
	if err != nil {
		t.Fatal(err)
	}
	after, err := b.judge(context.Background(), c, ls)
	if err != nil {
		t.Fatal(err)
	}
	was, is := errorsOf(before, nil), errorsOf(after, nil)
	if is.TPOTMape > 0.015 || is.TPOTMape > was.TPOTMape/5 {
		t.Errorf("TPOT: got %.2f %% after %.2f %%, parameters %.4g", 100*is.TPOTMape, 100*was.TPOTMape, c.Theta)
	}
	if got := c.Theta[hostRank]; math.Abs(got-220) > 40 {
		t.Errorf("host time per rank: got %g us, want 220", got)
	}
}

// TestHeldParametersStayAtTheirLeast: evidence that asks for a negative time
// leaves it at 0 and moves the others to what is best with that.
func TestHeldParametersStayAtTheirLeast(t *testing.T) {
	c := newCorrection([]string{"H100-SXM-80GB"}, Engine)
	n := len(c.Theta)
	by := make([]float64, n)
	by[hostStep], by[hostRank] = 1e-4, 1e-5
	es := []evidence{{log: 0.3, by: by, sd: 0.001, weight: 100}}
	c.step(es)
	if c.Theta[hostStep] != 0 || c.Theta[hostRank] >= common[hostRank].mean {
		t.Errorf("got %g and %g us, want 0 and less than the prior's", c.Theta[hostStep], c.Theta[hostRank])
	}
}

func writePoints(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"points.csv", "models/m/config.json"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		data := text
		if strings.HasSuffix(name, ".json") {
			data = `{"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
				"intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16"}`
		}
		repo.Write(t, data, dir, name)
	}
	return filepath.Join(dir, "points.csv")
}

// TestBadPointsAreNamed: a file without concurrency, a row without a number, and
// times in microseconds each have an error of their own with its line.
func TestBadPointsAreNamed(t *testing.T) {
	const header = "id,model,system,weights,tp,input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms\n"
	good := "a,x/M,h100_sxm,bfloat16,1,1024,128,8,100,10\n"
	if ps, in, err := readPoints(writePoints(t, header+good)); err != nil || len(ps) != 1 || ps[0].Concurrency != 8 || len(in.SHA256) != 64 {
		t.Fatalf("got %v, %v, %v", ps, in, err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"no concurrency": {strings.Replace(header, "concurrency,", "", 1) + "a,x/M,h100_sxm,bfloat16,1,1024,128,100,10\n", `:1:1: measured points: got no column "concurrency"`},
		"not a number":   {header + strings.Replace(good, ",8,", ",many,", 1), `:2:1: measured points: concurrency: got "many"`},
		"microseconds":   {header + strings.Replace(good, "100,10", "100000,10000", 1), ":2:1: measured points: tpot_ms: got 10000"},
		"seconds":        {header + strings.Replace(good, "100,10", "0.1,0.01", 1), ":2:1: measured points: tpot_ms: got 0.01"},
		"empty":          {header, ":2:1: measured points: got no row"},
		"no device":      {header + strings.Replace(good, "h100_sxm", "abacus", 1), `system: got "abacus"`},
	} {
		if _, _, err := readPoints(writePoints(t, c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// TestBuildIsReproducible from tables alone: the same files for any number of
// workers, and each loads.
func TestBuildIsReproducible(t *testing.T) {
	dir := repo.Shared(t, "data", "kernels")
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	var texts [2]map[string]string
	for k, workers := range []int{1, 3} {
		o := DefaultOptions()
		o.Batches, o.Workers = 20, workers
		files, err := BuildFiles(context.Background(), Sources{Kernels: dir}, o)
		if err != nil {
			t.Fatal(err)
		}
		texts[k] = map[string]string{}
		for _, f := range files {
			var b strings.Builder
			if err := f.Set.Save(&b); err != nil {
				t.Fatalf("%s: %v", f.Name, err)
			}
			texts[k][f.Name] = b.String()
		}
	}
	if len(texts[0]) != 18 {
		t.Errorf("got %d files, want 18", len(texts[0]))
	}
	for name, text := range texts[0] {
		if texts[1][name] != text {
			t.Errorf("%s differs between 1 and 3 workers", name)
		}
	}
}

func TestMissingTablesAreNamed(t *testing.T) {
	_, err := BuildFiles(context.Background(), Sources{Kernels: t.TempDir()}, DefaultOptions())
	if coded, ok := err.(*trace.Error); !ok || coded.Code != noTables {
		t.Errorf("got %v, want %s", err, noTables)
	}
}

// Errors sums judged points up.
type Errors struct {
	N                              int
	TPOTMape, TPOTMedian, TPOTBias float64
	TTFTMape, TTFTMedian, TTFTBias float64
	E2EMape, E2EMedian, E2EBias    float64
}

// errorsOf are the errors of the points that keep selects; nil keeps all.
func errorsOf(js []judged, keep func(j *judged) bool) Errors {
	var tpot, ttft, e2e []float64
	e := Errors{}
	for i := range js {
		if keep != nil && !keep(&js[i]) {
			continue
		}
		tpot, ttft = append(tpot, math.Abs(js[i].TPOTErr)), append(ttft, math.Abs(js[i].TTFTErr))
		e2e = append(e2e, math.Abs(js[i].E2EErr))
		e.E2EBias += js[i].E2EErr
		e.TPOTBias += js[i].TPOTErr
		e.TTFTBias += js[i].TTFTErr
	}
	e.N = len(tpot)
	n := float64(max(1, e.N))
	e.TPOTMape, e.TPOTMedian, e.TPOTBias = stat.Mean(tpot), stat.Median(tpot), e.TPOTBias/n
	e.TTFTMape, e.TTFTMedian, e.TTFTBias = stat.Mean(ttft), stat.Median(ttft), e.TTFTBias/n
	e.E2EMape, e.E2EMedian, e.E2EBias = stat.Mean(e2e), stat.Median(e2e), e.E2EBias/n
	return e
}
