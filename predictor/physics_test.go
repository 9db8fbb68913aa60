package predictor

import (
	"math"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim/forecast"
	"github.com/blis-train/blis-train/trace"
)

// TestPhysicsIsInMilliseconds: the targets are in ms, the forecast is in us. TPOT lies between one step
// of an empty engine and a second, and the time of an answer is its first token and the mean
// length of the others; without a finished request that length is unknown.
func TestPhysicsIsInMilliseconds(t *testing.T) {
	dep := testkit.Llama8B()
	set := testkit.PlantedOn(dep)
	engine, err := forecast.New(set, dep)
	if err != nil {
		t.Fatal(err)
	}
	row := Row{InputTokenLength: 700, OwnUncachedTokens: 500, DecodeBatch: 4, DecodeTokensResident: 3000, FreeBlocks: 1000}
	finished := row
	finished.MeanOutputTokens = trace.Some(11.0)
	list := []Row{row, finished}
	got, err := estimatesOf(set, dep, list)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		s, r := stateOf(&list[i])
		if r.PromptTokens != 700 || r.CachedTokens != 200 || s.Decodes != 4 || s.DecodeTokens != 3000 {
			t.Errorf("row %d: got the request %+v in the state %+v", i, r, s)
		}
		ttft, err := engine.TTFT(&s, &r)
		if err != nil {
			t.Fatal(err)
		}
		tpotUs, err := engine.TPOTUs(&s, &r, ttft.Us)
		if err != nil {
			t.Fatal(err)
		}
		if tpotUs < 1000 || tpotUs > 1e6 {
			t.Errorf("row %d: the forecast of TPOT is %g us, want one between a millisecond and a second", i, tpotUs)
		}
		wantE2E := math.NaN()
		if i == 1 {
			wantE2E = (ttft.Us + 10*tpotUs) / 1e3
		}
		for target, want := range map[string]float64{targetTTFT: ttft.Us / 1e3, targetTPOT: tpotUs / 1e3, targetE2E: wantE2E} {
			if v := got[target][i]; math.Abs(v-want) > 1e-9*want || math.IsNaN(v) != math.IsNaN(want) {
				t.Errorf("row %d: %s: got %g ms, want %g", i, target, v, want)
			}
		}
	}
}
