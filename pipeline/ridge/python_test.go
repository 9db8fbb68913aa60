package ridge_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/blis-train/blis-train/pipeline/ridge"
)

// peerResult is what testdata/sklearn_selection.py prints.
type peerResult struct {
	Seconds float64 `json:"seconds"`
	Score   float64 `json:"score"`
	Lag     int     `json:"lag"`
	Gamma   float64 `json:"gamma"`
	Lambda  float64 `json:"lambda"`
	Nested  float64 `json:"nested"`
	Fits    int     `json:"fits"`
	OneFit  float64 `json:"one_sklearn_fit_seconds"`
}

// BenchmarkSelect1MAgainstPython runs the same selection on the same rows here
// and in testdata/sklearn_selection.py (interpreter: BLIS_TRAIN_PYTHON, else
// python3), compares the choice and prints the ratio of the best seconds.
func BenchmarkSelect1MAgainstPython(b *testing.B) {
	python := os.Getenv("BLIS_TRAIN_PYTHON")
	if python == "" {
		python = "python3"
	}
	if out, err := exec.Command(python, "-c", "import numpy, scipy, sklearn").CombinedOutput(); err != nil {
		fmt.Printf("no comparison: %s lacks numpy, scipy or scikit-learn (%v %.80s)\n", python, err, out)
		b.Skip("no python to compare with")
	}
	lags, o := benchData(), benchOptions()
	folder := b.TempDir()
	exportRows(b, folder, lags, o)
	var best ridge.Selection
	ours := time.Duration(math.MaxInt64)
	for b.Loop() {
		start := time.Now()
		best, _ = selectAll(b, lags, o)
		ours = min(ours, time.Since(start))
	}
	peer := runPeer(b, python, folder)
	if again := runPeer(b, python, folder); again.Seconds < peer.Seconds {
		peer = again
	}
	if peer.Lambda != best.Lambda || peer.Gamma != best.Gamma || math.Abs(peer.Score-best.Score) > 1e-8*best.Score ||
		math.Abs(peer.Nested-best.NestedMean()) > 1e-8*peer.Nested {
		b.Errorf("choice: here lambda %g gamma %g score %v nested %v, there %g, %g, %v, %v",
			best.Lambda, best.Gamma, best.Score, best.NestedMean(), peer.Lambda, peer.Gamma, peer.Score, peer.Nested)
	}
	b.Logf("same choice (lambda %g, gamma %g, score %.6g); here %.2f s, numpy and scipy on Gram matrices %.2f s: ratio %.1f; "+
		"one scikit-learn Ridge(positive=True) on the rows takes %.2f s and the selection holds %d fits",
		best.Lambda, best.Gamma, best.Score, ours.Seconds(), peer.Seconds, peer.Seconds/ours.Seconds(), peer.OneFit, peer.Fits)
	b.ReportMetric(peer.Seconds/ours.Seconds(), "python/here")
}

func runPeer(b *testing.B, python, folder string) peerResult {
	out, err := exec.Command(python, filepath.Join("testdata", "sklearn_selection.py"), folder).Output()
	if err != nil {
		b.Fatalf("sklearn_selection.py: %v", err)
	}
	var peer peerResult
	if err := json.Unmarshal(out, &peer); err != nil {
		b.Fatal(err)
	}
	return peer
}

// exportRows writes the benchmark's rows as raw arrays.
func exportRows(b *testing.B, folder string, lags []*ridge.Data, o ridge.Options) {
	write := func(name string, v any) {
		f, err := os.Create(filepath.Join(folder, name))
		if err == nil {
			err = binary.Write(f, binary.LittleEndian, v)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	d := lags[0]
	meta := map[string]any{
		"rows": d.Len(), "columns": d.P, "configs": benchConfigs, "lags": len(lags), "penalty": o.Penalty,
		"lambdas": o.Lambdas, "folds": o.Folds, "eps_us": o.EpsUs, "min_cell_rows": o.MinCellRows,
		"gamma_column": d.Variants[0].Cols[0], "draws": ridge.DefaultOptions(1).Draws, "blocks": 40,
	}
	var gammas []float64
	for _, v := range d.Variants {
		gammas = append(gammas, v.Gamma)
	}
	meta["gammas"], meta["embargo"] = gammas, slices.Repeat([]int{o.EmbargoRows}, len(gammas))
	js, err := json.Marshal(meta)
	if err != nil {
		b.Fatal(err)
	}
	write("meta.json", js)
	write("config.i32", d.Config)
	for l, d := range lags {
		suffix := "_" + string(rune('0'+l))
		write("x"+suffix+".f64", d.X)
		write("y"+suffix+".f64", d.Y)
		write("regime"+suffix+".i32", d.Regime)
		for k, v := range d.Variants {
			write("gamma"+suffix+"_"+string(rune('0'+k))+".f64", v.Values[0])
		}
	}
}
