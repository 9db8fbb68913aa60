package stat

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
)

// TestGolden checks the KS vectors of an independent implementation.
func TestGolden(t *testing.T) {
	dir := os.Getenv("BLIS_TRAIN_GOLDEN_RIDGE")
	if dir == "" {
		dir = "testdata"
	}
	var doc struct {
		Tolerance struct {
			Statistic float64 `json:"statistic_absolute"`
			PRel      float64 `json:"p_relative"`
			PAbs      float64 `json:"p_absolute"`
		}
		Cases []struct {
			ID         string
			A, B       []float64
			N, M       int
			Statistic  float64
			EffectiveN float64 `json:"effective_n"`
			PLimit     float64 `json:"p_kolmogorov_limit"`
			PExact     float64 `json:"p_exact"`
			Critical   float64 `json:"critical_5pct"`
			Enough     bool    `json:"enough_data_for_0_15"`
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "ks.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	near := func(got, want float64) bool {
		return math.Abs(got-want) <= math.Max(doc.Tolerance.PAbs, doc.Tolerance.PRel*math.Abs(want))
	}
	for _, c := range doc.Cases {
		k := KolmogorovSmirnov(c.A, c.B)
		if math.Abs(k.D-c.Statistic) > doc.Tolerance.Statistic {
			t.Errorf("%s: D: got %v, want %v", c.ID, k.D, c.Statistic)
		}
		if k.N != c.N || k.M != c.M || !near(effectiveN(k.N, k.M), c.EffectiveN) {
			t.Errorf("%s: n, m: got %d, %d, want %d, %d", c.ID, k.N, k.M, c.N, c.M)
		}
		if !near(k.PAsymptotic, c.PLimit) {
			t.Errorf("%s: asymptotic p: got %v, want %v", c.ID, k.PAsymptotic, c.PLimit)
		}
		if !near(k.PExact, c.PExact) {
			t.Errorf("%s: exact p: got %v, want %v", c.ID, k.PExact, c.PExact)
		}
	}
	fmt.Printf("golden: %d cases of two-sample KS\n", len(doc.Cases))
	if len(doc.Cases) == 0 {
		t.Error("no cases")
	}
}
