package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/folder"
)

// TestHowWrong: the figures of docs/how-wrong.md are those of the examples; -update
// rewrites them.
func TestHowWrong(t *testing.T) {
	root := repo.Root(t)
	composed, configs := judgedErrors(t, filepath.Join(root, "docs/examples/composed"))
	noisy, real := judgedErrors(t, filepath.Join(root, "docs/examples/real"))
	metrics := []string{"beta_mape", "median_rel_err_ttft", "median_rel_err_itl", "median_rel_err_e2e"}
	rows := []string{
		fmt.Sprintf("| traces of the configuration, a machine without noise | %d composed GPU configurations |%s", configs,
			cellsOf(composed, metrics...)),
		fmt.Sprintf("| traces of the configuration, a shared machine that drifts | %d configurations of real runs on two noisy cores |%s", real,
			cellsOf(noisy, metrics...)),
		fmt.Sprintf("| traces of other configurations only | the same %d, each left out in turn |%s | | |", configs,
			cellsOf(composed, "beta_mape_loco")),
	}
	path := filepath.Join(root, "docs/how-wrong.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), "docs/examples -->\n")
	_, tail, ended := strings.Cut(rest, "<!-- end -->")
	if !ok || !ended {
		t.Fatal("the marks around the measured rows are gone")
	}
	want := head + "docs/examples -->\n" + strings.Join(rows, "\n") + "\n<!-- end -->" + tail
	if want == string(text) {
		return
	}
	if !*updateScripts {
		t.Fatalf("docs/how-wrong.md: got other figures than the examples have, want\n%s\n(-update rewrites them)", strings.Join(rows, "\n"))
	}
	if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// judgedErrors are the judged values of every gate of an example, and of how many
// configurations.
func judgedErrors(t *testing.T, example string) (map[string][]float64, int) {
	t.Helper()
	set, _, err := folder.LoadCoefficients(filepath.Join(example, folder.CoefficientsFile), false)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]float64{}
	for _, g := range set.Gates {
		if g.Pass != nil && g.Value != nil {
			out[g.Name] = append(out[g.Name], *g.Value)
		}
	}
	return out, len(out["beta_mape"])
}

// cellsOf are "median / worst" of gates as cells of a table.
func cellsOf(values map[string][]float64, names ...string) string {
	var b strings.Builder
	for _, n := range names {
		v := values[n]
		fmt.Fprintf(&b, " %.0f %% / %.0f %% |", 100*stat.Median(v), 100*slices.Max(v))
	}
	return b.String()
}
