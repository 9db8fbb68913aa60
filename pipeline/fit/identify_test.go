package fit

import (
	"context"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/features"
)

// inspect --identify: the bundled runs cannot tell attention from cache reads,
// hold no long context, and prompts of different length would shrink the
// interval of prefill attention.
func TestIdentify(t *testing.T) {
	id, err := Identify(context.Background(), Bundled(t), DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if len(id.Terms) != len(features.BetaFeatures(features.V11)) || len(id.Experiments) == 0 || len(id.Experiments) > 12 {
		t.Fatalf("%d terms, %d experiments", len(id.Terms), len(id.Experiments))
	}
	if !strings.Contains(strings.Join(id.NullDirections, "\n"), "decode_attention and kv_cache_read cannot be told apart") {
		t.Errorf("%q", id.NullDirections)
	}
	if !strings.Contains(strings.Join(id.MissingRegimes, "\n"), "contexts of 4096 tokens") {
		t.Errorf("%q", id.MissingRegimes)
	}
	var seen bool
	for _, e := range id.Experiments {
		if e.HalfWidth != nil && e.After != nil && !(*e.After < worthwhile**e.HalfWidth) {
			t.Errorf("%s: %v does not shrink to %v", e.Description, *e.HalfWidth, *e.After)
		}
		seen = seen || e.Term == "prefill_attention" && strings.Contains(e.Description, "prompts")
	}
	if !seen {
		t.Errorf("no experiment for prefill_attention: %+v", id.Experiments)
	}
	one := DefaultOptions()
	one.Workers = 1
	again, err := Identify(context.Background(), Bundled(t), one)
	if err != nil || BytesOf(t, again) != BytesOf(t, id) {
		t.Errorf("1 worker: other bytes (%v)", err)
	}
}

// Every variant of a deployment differs from it, and describes one change.
func TestVariantsDiffer(t *testing.T) {
	base := Bundled(t)[0].Deployment
	seen := map[string]bool{}
	for _, v := range variants(base) {
		if v.dep.Label() == base.Label() && v.dep.Model.NumLayers == base.Model.NumLayers && v.dep.Model.HiddenSize == base.Model.HiddenSize &&
			v.dep.Model.NumKVHeads == base.Model.NumKVHeads && v.dep.Model.NumExperts == base.Model.NumExperts {
			t.Errorf("%s: nothing changed", v.what)
		}
		if seen[v.what] {
			t.Errorf("%s: twice", v.what)
		}
		seen[v.what] = true
		if _, err := features.New(features.V11, &v.dep); err != nil {
			t.Errorf("%s: %v", v.what, err)
		}
	}
	for _, l := range loadsOf(&base) {
		for _, b := range l.batches {
			var tokens int64
			for _, c := range b {
				tokens += c.New
			}
			if tokens > base.Engine.MaxNumBatchedTokens || int64(len(b)) > base.Engine.MaxNumSeqs {
				t.Errorf("%s: a batch of %d requests and %d tokens", l.what, len(b), tokens)
			}
		}
	}
}
