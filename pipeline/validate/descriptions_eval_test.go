package validate_test

import (
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/result"
)

// descriptions are lies about the device and the sizes of the model, each with the number of composed recordings that it
// can be told about and that stay usable for steps under it: those whose step times stay within 1.3 times the library's,
// whose weights are a small part of the memory, and the two whose KV cache was set by hand.
func descriptions() []struct {
	what         string
	tell         func(*deploy.Deployment) bool // false: it is no lie about this deployment
	told, usable int
} {
	on := func(name string) func(*deploy.Deployment) bool {
		return func(d *deploy.Deployment) bool {
			h, _ := deploy.Datasheet(name)
			isLie := h.Name != d.Hardware.Name
			d.Hardware = h
			return isLie
		}
	}
	half := func(sizes ...func(*deploy.Deployment) *int64) func(*deploy.Deployment) bool {
		return func(d *deploy.Deployment) bool {
			for _, size := range sizes {
				*size(d) /= 2
			}
			d.Model.Decoder = nil // its layers have the sizes of before
			return true
		}
	}
	mlp := func(d *deploy.Deployment) *int64 { return &d.Model.IntermediateSize }
	expert := func(d *deploy.Deployment) *int64 { return &d.Model.MoEIntermediateSize }
	return []struct {
		what         string
		tell         func(*deploy.Deployment) bool
		told, usable int
	}{
		{"A100", on("A100-80GB"), 11, 0},
		{"H100", on("H100"), 9, 0},
		{"H200", on("H200"), 16, 1},
		{"B200", on("B200"), 12, 0},
		{"L40S", on("L40S"), 16, 0},
		{"half of the layers", half(func(d *deploy.Deployment) *int64 { return &d.Model.NumLayers }), 16, 0},
		{"half of the hidden size", half(func(d *deploy.Deployment) *int64 { return &d.Model.HiddenSize }), 16, 6},
		{"half of the KV heads", half(func(d *deploy.Deployment) *int64 { return &d.Model.NumKVHeads }), 16, 2},
		{"heads of half the size", half(func(d *deploy.Deployment) *int64 { return &d.Model.HeadDim }), 16, 2},
		{"half of the MLP", half(mlp, expert), 16, 6},
		{"twice the MLP", func(d *deploy.Deployment) bool {
			*mlp(d) *= 2
			*expert(d) *= 2
			d.Model.Decoder = nil
			return true
		}, 16, 1},
	}
}

// TestEvalDescriptions: wrong descriptions of composed recordings leave as few of them usable as is known.
func TestEvalDescriptions(t *testing.T) {
	repo.NeedEval(t)
	recordings := honestRuns(t, traced, filepath.Join(repo.Shared(t, "data"), "composed"))
	for _, c := range descriptions() {
		told, usable := 0, 0
		for _, h := range recordings {
			dep := *h.dep
			if !c.tell(&dep) {
				continue
			}
			told++
			got := h.inspect(t, &lie{what: c.what, dep: func(d *deploy.Deployment) { c.tell(d) }})
			for _, use := range got.Usable {
				if use.Purpose == coeff.PurposeSteps && use.Status == result.UseAllowed {
					usable++
					t.Logf("%s of %s: usable, violated %v", c.what, h.name, violations(&got))
				}
			}
		}
		t.Logf("%s: usable %d of %d", c.what, usable, told)
		if told != c.told || usable != c.usable {
			t.Errorf("%s: got %d of %d recordings usable, want %d of %d", c.what, usable, told, c.usable, c.told)
		}
	}
}
