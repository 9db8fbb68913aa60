package predictor

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
)

// What README.md and docs/predictor.md say of trees and physics, on the composed and on
// the real runs of shared/data, with coefficients refitted without the rows of each test:
// physics beats trees on the composed runs in the next minutes and under a higher load,
// and a random split flatters trees.
func TestEvalRace(t *testing.T) {
	repo.NeedEval(t)
	for _, set := range []struct {
		folder         string
		trees, physics [2]float64 // the most TTFT error on time and on load-up
		treesLose      bool
	}{
		{"composed", [2]float64{0.42, 0.40}, [2]float64{0.15, 0.13}, true},
		{"real_vllm_cpu", [2]float64{0.29, 0.27}, [2]float64{0.26, 0.25}, false},
	} {
		t.Run(set.folder, func(t *testing.T) {
			runs, o := recorded(t, filepath.Join(repo.Shared(t, "data"), set.folder))
			for _, target := range o.targets {
				done := map[string]*raced{}
				for _, name := range splitNames {
					r := race(t, runs, target, name, o, o.physics)
					done[name] = r
					t.Logf("%s %s: %s", target, name, r.text())
				}
				for _, name := range []string{nameTrees, treesQ90, namePhysics, nameResidual} {
					before, after, adaptive := done[byTime].coverage(t, name, o)
					t.Logf("%s time, P90 of %s: %.3f, calibrated %.3f, adaptive %.3f", target, name, before, after, adaptive)
				}
				a := gather(runs, target, o.features)
				for _, p := range pitfalls {
					mape, coverage, claimed := under(t, a, p.habits, target, o)
					t.Logf("%s %s: MAPE %.1f %%, P90 covers %.3f, claims %.1f %%", target, p.name, 100*mape, coverage, 100*claimed)
				}
				if target != targetTTFT {
					continue
				}
				for k, name := range []string{byTime, loadUp} {
					if got := done[name].mape(nameTrees); got > set.trees[k] {
						t.Errorf("%s: trees %.3f, want at most %g", name, got, set.trees[k])
					}
					if got := done[name].mape(namePhysics); got > set.physics[k] {
						t.Errorf("%s: physics %.3f, want at most %g", name, got, set.physics[k])
					}
					if d, shown := done[name].beats(namePhysics, nameTrees, o.Seed); set.treesLose && (d >= 0 || !shown) {
						t.Errorf("%s: physics - trees %.3f, shown %v, want below 0 and shown", name, d, shown)
					}
				}
				if leak, honest := done[random].mape(nameTrees), done[byTime].mape(nameTrees); leak > honest {
					t.Errorf("random: trees %.3f, on time %.3f, want the random split to flatter", leak, honest)
				}
			}
		})
	}
}

// recorded are the rows of a folder of runs, and physics with the coefficients fitted on them.
func recorded(t *testing.T, folder string) ([]*runRows, TrainOptions) {
	t.Helper()
	ctx, out := context.Background(), t.TempDir()
	eo := pipeline.DefaultExtractOptions()
	eo.Out = out
	ext, err := pipeline.Extract(ctx, []string{folder}, eo)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := pipeline.Fit(ctx, out, pipeline.DefaultFitOptions())
	if err != nil {
		t.Fatal(err)
	}
	set, err := export.Native(doc, nil)
	if err != nil {
		t.Fatal(err)
	}
	ro := DefaultOptions()
	ro.PrefixScore = prefixActual
	made, err := MakeRows(ctx, out, out, ext, ro, result.Header{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	list, err := readRuns(out, made)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultTrainOptions()
	withPhysics(&o, out, ext, list, made, &Coefficients{Set: set, Fit: doc})
	return list, o
}
