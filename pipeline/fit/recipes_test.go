package fit

import (
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
)

// TestRecipeIsChosenByHeldOutData: with several configurations they are held out in turn, with one blocks
// of time are. The library's prior is left only for a much smaller error.
func TestRecipeIsChosenByHeldOutData(t *testing.T) {
	demo := SourcesOf(t, filepath.Join(repo.Root(t), "testdata", "traces", "demo"))
	for _, c := range []struct {
		sources []Source
		heldOut string
		parts   int
	}{
		{demo, result.HeldOutConfigs, 3},
		{demo[:1], result.HeldOutBlocks, 6},
	} {
		o := Quick()
		o.KeepSaturated = true
		o.Spec = features.V12
		o.Prior = PriorLibrary
		choice, err := ChooseRecipe(t.Context(), c.sources, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		chosen, scores := choice.Options, choice.Scores
		if len(scores) != 2 {
			t.Fatalf("%d recipes, want 2", len(scores))
		}
		best := scores[0]
		if scores[1].Chosen {
			best = scores[1]
		}
		if scores[0].Chosen == scores[1].Chosen || *best.RelErr > *scores[0].RelErr {
			t.Errorf("chosen %v and %v, errors %v and %v", scores[0].Chosen, scores[1].Chosen, *scores[0].RelErr, *scores[1].RelErr)
		}
		for _, s := range scores {
			if s.HeldOut != c.heldOut || s.Parts != c.parts {
				t.Errorf("prior %s: %d %s held out, want %d %s", s.Prior, s.Parts, s.HeldOut, c.parts, c.heldOut)
			}
		}
		if chosen.Prior != best.Prior || string(chosen.Spec) != best.Spec {
			t.Errorf("spec %s with prior %s, want %s with %s", chosen.Spec, chosen.Prior, best.Spec, best.Prior)
		}
	}
}

// TestHoldOutDecidesNoRecipe: other times in the hold-out change no score.
func TestHoldOutDecidesNoRecipe(t *testing.T) {
	sources := Bundled(t)
	fitted := func(scale float64) *Solved {
		f, err := newFitter(t.Context(), sources, stepsOnly(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.used {
			for i := range p.Beta.Y {
				if p.Beta.HoldOut[i] {
					p.Beta.Y[i] *= scale
				}
			}
		}
		s, m, err := f.selectBeta()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.SolveAt(m, f.gamma, false); err != nil {
			t.Fatal(err)
		}
		return s
	}
	as, longer := fitted(1), fitted(1.05)
	if as.form != longer.form {
		t.Errorf("form %s, with other hold-out %s", as.formName(), longer.formName())
	}
	for j, b := range as.Fit.Beta {
		if b != longer.Fit.Beta[j] {
			t.Errorf("%s: %v, with other hold-out %v", as.Terms[j].Name, b, longer.Fit.Beta[j])
		}
	}
}

// TestFormsAreBounded: on recordings of real machines no published term is beyond its limit unless the
// unbounded form was chosen, and all forms are in the document.
func TestFormsAreBounded(t *testing.T) {
	doc := fitted(t, Bundled(t), Quick())
	unbounded, chosen := false, 0
	for _, c := range doc.Beta.Candidates {
		if c.Chosen {
			chosen++
			unbounded = c.Name == FormUnbounded
		}
	}
	if len(doc.Beta.Candidates) != 3 || chosen != 1 {
		t.Fatalf("%d forms, %d chosen, want 3 and 1", len(doc.Beta.Candidates), chosen)
	}
	for _, c := range doc.Beta.Coefficients {
		times, ok := features.RooflineTimes(c.Name, c.Unit, c.Value)
		if ok && !unbounded && times > mostTimesPeak*(1+1e-9) {
			t.Errorf("%s takes %.1f times the hardware's time", c.Name, times)
		}
	}
}
