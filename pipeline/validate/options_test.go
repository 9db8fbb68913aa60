package validate

import (
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/result"
)

// TestOptionsOutOfRange: each option at both ends of its range.
func TestOptionsOutOfRange(t *testing.T) {
	us := func(v float64) *float64 { return &v }
	tokens := func(v int64) *int64 { return &v }
	for name, c := range map[string]struct {
		change func(o *Options)
		want   string
	}{
		"defaults":        {func(*Options) {}, ""},
		"split 0":         {func(o *Options) { o.Split = 0 }, ""},
		"split 1":         {func(o *Options) { o.Split = 1 }, ""},
		"split above":     {func(o *Options) { o.Split = 1.01 }, "--split: got 1.01,"},
		"split below":     {func(o *Options) { o.Split = -0.01 }, "--split: got -0.01,"},
		"purpose":         {func(o *Options) { o.For = "steps" }, ""},
		"no purpose":      {func(o *Options) { o.For = "step" }, `--for: got "step",`},
		"noise":           {func(o *Options) { o.Noise = "residual" }, ""},
		"none":            {func(o *Options) { o.Noise = "none" }, ""},
		"empty noise":     {func(o *Options) { o.Noise = "" }, ""},
		"no noise":        {func(o *Options) { o.Noise = "white" }, `--noise: got "white",`},
		"roofline":        {func(o *Options) { o.Latency = "roofline" }, ""},
		"no latency":      {func(o *Options) { o.Latency = "learned" }, `--latency: got "learned",`},
		"no shared":       {func(o *Options) { o.SharedPrefix = tokens(0) }, ""},
		"shared below":    {func(o *Options) { o.SharedPrefix = tokens(-1) }, "--shared-prefix-tokens: got -1 tokens,"},
		"overhead 0":      {func(o *Options) { o.OverheadUs = us(0) }, ""},
		"overhead below":  {func(o *Options) { o.OverheadUs = us(-1) }, "--overhead-us: got -1 us,"},
		"egress longest":  {func(o *Options) { o.EgressUs = us(999_999_999) }, ""},
		"egress too long": {func(o *Options) { o.EgressUs = us(1e9) }, "--egress-us: got 1e+09 us,"},
		"egress no time":  {func(o *Options) { o.EgressUs = us(math.NaN()) }, "--egress-us: got NaN us,"},
		"all rows":        {func(o *Options) { o.MaxRows = 0 }, ""},
		"rows below":      {func(o *Options) { o.MaxRows = -2 }, "--max-rows: got -2"},
	} {
		o := DefaultOptions()
		c.change(&o)
		err := o.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	fit := &result.Fit{}
	fit.Options.Split = 0.7
	for split, refused := range map[float64]bool{0.69: true, 0.7: false, 0.8: false} {
		if err := checkSplit(fit, split); (err != nil) != refused {
			t.Errorf("split %g of a fit's 0.7: got %v", split, err)
		}
	}
}

// TestWorstLevels: TTFTs of 10 and 20 ms predicted as 13 and 14 are +30 and -30 %, of 40 as 20 -50 %; a level that was not
// predicted does not count. TPOTs of 5 and 4 ms predicted as 6 and 3 are +20 and -25 %.
func TestWorstLevels(t *testing.T) {
	ms := func(v float64) *float64 { return &v }
	levels := []result.LevelHoldout{
		{Name: "a", TTFTMs: ms(10), PredictedTTFTMs: ms(13), TPOTMs: 5, PredictedTPOTMs: ms(6)},
		{Name: "b", TTFTMs: ms(40), PredictedTTFTMs: ms(20), TPOTMs: 4, PredictedTPOTMs: ms(3)},
		{Name: "c", TTFTMs: ms(1), TPOTMs: 1},
		{Name: "d", PredictedTTFTMs: ms(9), TPOTMs: 0, PredictedTPOTMs: ms(9)},
	}
	want := "without recorded steps no cause can be told apart; worst TTFT: b, -50 %; worst TPOT: b, -25 %"
	if got := worstLevels(levels); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := worstLevel(levels[2:3], levelTTFT); got != "none was predicted" {
		t.Errorf("got %q", got)
	}
}
