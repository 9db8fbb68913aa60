package main

import (
	"testing"

	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
)

// TestRecipeWords: the chosen recipe comes first; one with a smaller error that was not chosen has the reason.
func TestRecipeWords(t *testing.T) {
	prior := func(err float64, chosen bool) result.RecipeScore {
		return result.RecipeScore{Spec: "1.2", Prior: fit.PriorLibrary, RelErr: &err, Chosen: chosen}
	}
	plain := func(err float64, chosen bool) result.RecipeScore {
		return result.RecipeScore{Spec: "1.1", Prior: fit.PriorZero, RelErr: &err, Chosen: chosen}
	}
	for want, recipes := range map[string][]result.RecipeScore{
		"library's prior, held-out error 3 % (spec 1.1 without it: 5 %)": {prior(0.03, true), plain(0.05, false)},
		"library's prior, held-out error 3 % (spec 1.1 without it: 2.9 %, too small a gain to give up what the prior knows of other loads)": {
			prior(0.03, true), plain(0.029, false)},
		"spec 1.1 without a prior, held-out error 3 % (with the library's prior: 9 %)": {prior(0.09, false), plain(0.03, true)},
		"": nil,
	} {
		if got := recipeWords(&result.Fit{Recipes: recipes}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
