package predictor

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestVerdictOfAPredictor: trees just as good as a constant and 10 % short of the quantile pass; a little more of either
// fails, and a target without scores is insufficient.
func TestVerdictOfAPredictor(t *testing.T) {
	p := testkit.Ptr
	for _, c := range []struct {
		name           string
		mape, coverage *float64
		want           string
	}{
		{"at both limits", p(0.5), p(0.8), coeff.VerdictPass}, {"worse than a constant", p(0.501), p(0.9), coeff.VerdictFail}, {"short of the quantile", p(0.4), p(0.799), coeff.VerdictFail},
		{"no errors", nil, p(0.9), coeff.VerdictInsufficient}, {"no coverage", p(0.4), nil, coeff.VerdictInsufficient},
	} {
		d := newScores()
		d.Options.Rows.Target = TargetE2E
		d.Models = []modelScore{{Scope: scopeAll, Target: targetE2E, Model: "other"}, {Scope: scopeAll, Target: targetTTFT, Model: nameTrees, MAPE: p(9), MAPEConst: p(1)},
			{Scope: scopeAll, Target: targetE2E, Model: nameTrees, MAPE: c.mape, MAPEConst: p(0.5), Coverage: c.coverage},
			{Scope: "one configuration", Target: targetE2E, Model: nameTrees, MAPE: p(9), MAPEConst: p(1), Coverage: p(0)}}
		got := verdictOf(d, "")
		if got.Verdict != c.want || len(got.Gates) != 2 {
			t.Errorf("%s: got %+v", c.name, got)
			continue
		}
		over, short := got.Gates[0], got.Gates[1]
		if c.mape != nil && *over.Value != *c.mape/0.5 || c.coverage != nil && math.Abs(*short.Value-(0.9-*c.coverage)) > 1e-12 || over.Threshold != 1 || short.Threshold != 0.1 {
			t.Errorf("%s: got %+v", c.name, got.Gates)
		}
	}
	both := verdictOf(newScores(), "")
	if len(both.Gates) != 4 || both.Gates[0].Scope != targetTTFT || both.Gates[2].Scope != targetTPOT {
		t.Errorf("TTFT and TPOT: got %+v", both.Gates)
	}
}

// TestVerdictOfAnEvaluation: trees that are worse than the best constant for the judged rows fail only beyond chance, and
// a target without rows, or without trees, says so.
func TestVerdictOfAnEvaluation(t *testing.T) {
	p := testkit.Ptr
	for _, c := range []struct {
		name string
		band *[2]float64
		want string
	}{{"beyond chance", &[2]float64{0.51, 0.7}, coeff.VerdictFail}, {"within chance", &[2]float64{0.5, 0.7}, coeff.VerdictInsufficient}, {"too few rows for an interval", nil, coeff.VerdictInsufficient}} {
		d := newScores()
		d.Options.Rows.Target = TargetE2E
		d.Options.Evaluate = true
		d.HoldOut = []HoldOut{{Scope: scopeAll, Target: targetE2E, Test: 100}}
		d.Models = []modelScore{{Scope: scopeAll, Target: targetE2E, Model: nameTrees, MAPE: p(0.6), MAPEBand: c.band, MAPEConst: p(0.5), Coverage: p(0.9)}}
		if got := verdictOf(d, ""); got.Verdict != c.want {
			t.Errorf("%s: got %+v, want %s", c.name, got, c.want)
		}
		d.Options.Evaluate = false // the constant of a fit is that of the training rows
		if got := verdictOf(d, ""); got.Verdict != coeff.VerdictFail {
			t.Errorf("%s, of a fit: got %+v, want fail", c.name, got)
		}
	}
	for mape, want := range map[float64]string{0.4: coeff.VerdictInsufficient, 0.6: coeff.VerdictFail} { // worse than a constant even there
		d := newScores()
		d.Options.Rows.Target = TargetE2E
		d.Options.Evaluate = true
		d.HoldOut = []HoldOut{{Scope: scopeAll, Target: targetE2E, Test: 100}}
		d.Models = []modelScore{{Scope: scopeAll, Target: targetE2E, Model: nameTrees, MAPE: &mape, MAPEBand: &[2]float64{mape, mape}, MAPEConst: p(0.5), Coverage: p(0.9)}}
		got := verdictOf(d, "seen before")
		if got.Verdict != want || !slices.Contains(got.Failed(), "e2e_ms: p90_coverage_short: seen before") {
			t.Errorf("error of %g on the training rows: got %s, %q, want %s", mape, got.Verdict, got.Failed(), want)
		}
		if mape == 0.4 && verdictOf(d, "").Verdict != coeff.VerdictPass {
			t.Error("the same on other rows: want a pass")
		}
	}
	d := newScores()
	d.Options.Evaluate = true
	d.HoldOut = []HoldOut{{Scope: scopeAll, Target: targetTTFT, Reason: "3 rows, want 20"}}
	want := []string{"ttft_ms: trees_mape_over_constant: 3 rows, want 20", "ttft_ms: p90_coverage_short: 3 rows, want 20",
		"tpot_ms: trees_mape_over_constant: the predictor has no trees for it", "tpot_ms: p90_coverage_short: the predictor has no trees for it"}
	if got := verdictOf(d, ""); got.Verdict != coeff.VerdictInsufficient || !slices.Equal(got.Failed(), want) {
		t.Errorf("no rows: got %s, %q, want %q", got.Verdict, got.Failed(), want)
	}
}

// TestPredictorOptions: each option with a value that it takes and one that it refuses, and the values of shared prefixes.
func TestPredictorOptions(t *testing.T) {
	for _, c := range []struct {
		change func(o *Options)
		want   string
	}{
		{func(o *Options) {}, ""}, {func(o *Options) { o.Target = TargetE2E }, ""}, {func(o *Options) { o.Target = "x" }, `--target: got "x", want token or e2e`}, {func(o *Options) { o.Features = "x" }, `--features: got "x"`},
		{func(o *Options) { o.State = "x" }, `--state: got "x"`}, {func(o *Options) { o.PrefixScore = "x" }, `--prefix-score: got "x"`}, {func(o *Options) { o.StalenessUs = -1 }, "--staleness-us: got -1 us, want >= 0"},
		{func(o *Options) { o.StalenessUs = 0 }, ""}, {func(o *Options) { o.Shared = []string{"r*=5", "7"} }, ""}, {func(o *Options) { o.Shared = []string{"r*=-5"} }, "--shared-prefix-tokens"}, {func(o *Options) { o.Shared = []string{"[=5"} }, "--shared-prefix-tokens"},
	} {
		o := DefaultOptions()
		c.change(&o)
		err := o.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", o, err, c.want)
		}
	}
	if runs, tokens, err := parseShare("a=b=12"); runs != "a=b" || tokens != 12 || err != nil {
		t.Errorf("got %s, %d and %v", runs, tokens, err)
	}
	o := DefaultOptions()
	o.StalenessUs, o.KeepSaturated = 50, true
	if err := (&sharesValue{&o.Shared}).Set("5, r1=7"); err != nil || !reflect.DeepEqual(o.Shared, []string{"*=5", "r1=7"}) {
		t.Errorf("got %q and %v", o.Shared, err)
	}
	if err := (&sharesValue{&o.Shared}).Set("x"); err == nil {
		t.Error("x is no number of tokens")
	}
	command := option.Command("predictor rows", o.Flags())
	if want := "predictor rows --features full --keep-saturated --prefix-score index --shared-prefix-tokens *=5 --shared-prefix-tokens r1=7 --staleness-us 50 --state auto"; command != want {
		t.Errorf("got %q, want %q", command, want)
	}
	for rows, ok := range map[string]bool{"auto": true, "none": true, "1": true, "0": false, "x": false} {
		train := DefaultTrainOptions()
		train.BucketRows = rows
		if err := train.Check(); (err == nil) != ok {
			t.Errorf("--bucket-rows %s: got %v", rows, err)
		}
	}
	train := DefaultTrainOptions()
	train.Weights = "x"
	if err := train.Check(); err == nil || !strings.Contains(err.Error(), `--weights: got "x"`) {
		t.Errorf("got %v", err)
	}
	train = DefaultTrainOptions()
	train.Seed = 9
	if b := train.boost(); b.Seed != 9 || b.Bins != MaxBins || train.Weights != weightsNatural {
		t.Errorf("got %+v", b)
	}
	made := &RowsDocument{}
	made.Command = "predictor rows --x"
	train.BucketRows, train.Weights = "12", weightsSqrt
	if got := FitCommand(made, "f.json", train); got != "predictor fit --fit f.json --bucket-rows 12 --seed 9 --weights sqrt # predictor rows --x" {
		t.Errorf("got %q", got)
	}
	if got := FitCommand(made, "", train); got != "predictor fit --bucket-rows 12 --seed 9 --weights sqrt # predictor rows --x" {
		t.Errorf("got %q", got)
	}
	made.Options.Features = "llmd"
	recorded := optionsOf(made, &Coefficients{Name: "c"}, train)
	if recorded.Physics != "c" || recorded.Seed != 9 || recorded.BucketRows != "12" || recorded.Weights != weightsSqrt || recorded.Rows.Features != "llmd" || recorded.IsRefit {
		t.Errorf("got %+v", recorded)
	}
	if got := optionsOf(made, nil, train); got.Physics != "" {
		t.Errorf("got %+v", got)
	}
}

// TestPredictorWarnings: warnings of the rows and of their runs, a score that is measured afterwards, and recordings that a
// predictor was trained on.
func TestPredictorWarnings(t *testing.T) {
	made := &RowsDocument{Warnings: []trace.Finding{{Message: "a"}}, Runs: []runAccount{{Warnings: []trace.Finding{{Message: "b"}}}, {}}}
	made.Options.PrefixScore = prefixActual
	got := warningsOf(made)
	if len(got) != 3 || got[0].Message != "a" || got[1].Message != "b" || got[2].Code != codeOtherColumns {
		t.Errorf("got %+v", got)
	}
	made.Options.PrefixScore = prefixIndex
	if got = warningsOf(made); len(got) != 2 {
		t.Errorf("got %+v", got)
	}
	p := &Document{}
	p.Inputs = []result.Input{{Name: "x", SHA256: "1"}, {Name: "run.yaml", SHA256: "2"}, {Name: "config.json", SHA256: "3"}}
	seen := seenBefore(p, &result.Extract{Header: result.Header{Inputs: []result.Input{{Name: "r/traces.jsonl", SHA256: "1"}, {Name: "r/run.yaml", SHA256: "2"}, {Name: "r/config.json", SHA256: "3"}, {Name: "new", SHA256: "4"}}}})
	if len(seen) != 1 || !strings.HasPrefix(seen[0].Message, "r/traces.jsonl: the predictor was trained on it") {
		t.Errorf("got %+v", seen)
	}
}

// TestPredictorParts: names of forests, rows of buckets, digests of rows, test rows, and stages in run.yaml.
func TestPredictorParts(t *testing.T) {
	trees, median, high := &forest.Forest{}, forest.LevelForest{Level: 0.5}, forest.LevelForest{Level: 0.99}
	target := &forest.Target{Trees: trees, Quantiles: []forest.LevelForest{median, high}}
	for name, want := range map[string]*forest.Forest{"trees": trees, "trees-q50": &target.Quantiles[0].Forest, "trees-q99": &target.Quantiles[1].Forest, "trees-q90": nil, "x": nil} {
		if got, err := forestOf(target, name); got != want || (err == nil) != (want != nil) {
			t.Errorf("%s: got %p and %v", name, got, err)
		}
	}
	var values []float64
	for _, v := range bulkValues(7, 3) {
		values = append(values, *v.Value)
	}
	if !reflect.DeepEqual(values, []float64{7, ServerBucketRows, 1000, 10}) || !strings.Contains(bulkValues(7, 3)[0].Effect, "3 more are not in it") {
		t.Errorf("got %v", values)
	}
	rows := func(n int) *runRows {
		r := &runRows{ID: "r"}
		for i := range n {
			r.Rows = append(r.Rows, Row{RequestID: "q", DecisionNs: int64(10 * i), TTFTMs: 5})
		}
		return r
	}
	for n, want := range map[int]int64{0: math.MaxInt64, 1: 0, 5: 40, 10: 80, 11: 80} {
		if got := rows(n).testStartNs(); got != want {
			t.Errorf("%d rows: got the first test row at %d, want %d", n, got, want)
		}
	}
	if got := hiddenTails([]*runRows{rows(10)}); !reflect.DeepEqual(got, []hidden{{"r", 80, math.MaxInt64}}) {
		t.Errorf("got %+v", got)
	}
	a, b := rows(3), rows(3)
	if rowsDigest([]*runRows{a}) != rowsDigest([]*runRows{b}) || len(rowsDigest(nil)) != 64 {
		t.Error("equal rows have equal digests")
	}
	for name, change := range map[string]func(r *Row){"decision": func(r *Row) { r.DecisionNs++ }, "TTFT": func(r *Row) { r.TTFTMs++ }, "TPOT": func(r *Row) { r.TPOTMs.V++ }, "request": func(r *Row) { r.RequestID = "z" }} {
		b = rows(3)
		change(&b.Rows[1])
		if rowsDigest([]*runRows{a}) == rowsDigest([]*runRows{b}) {
			t.Errorf("another %s has the same digest", name)
		}
	}
	for _, c := range []struct {
		values any
		want   []int64
	}{{[]any{1, int64(2), 3.0}, []int64{1, 2, 3}}, {[]any{1, "x"}, nil}, {nil, nil}} {
		if got := stageRequests(&deploy.Deployment{Workload: map[string]any{"stage_requests": c.values}}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("got %v, want %v", got, c.want)
		}
	}
	some := trace.Some[int64]
	if at, wall := arrivalOf(&trace.ObservedRequest{SendNs: some(5), SendWallNs: some(7)}); at.V != 5 || wall {
		t.Errorf("got %v, %t", at, wall)
	}
	if at, wall := arrivalOf(&trace.ObservedRequest{SendWallNs: some(7)}); at.V != 7 || !wall {
		t.Errorf("got %v, %t", at, wall)
	}
	if _, wall := arrivalOf(&trace.ObservedRequest{}); wall {
		t.Error("an unknown arrival is on no clock")
	}
	for _, h := range []struct {
		h    HoldOut
		want string
	}{{HoldOut{Train: 10}, "0 of 10 rows"}, {HoldOut{Train: 10, Grown: 8}, "8 of 10 rows, no limit"}, {HoldOut{Train: 10, Grown: 8, Bucket: 3}, "8 of 10 rows, at most 3 a bucket"}} {
		if got := h.h.trainedOn(false); got != h.want {
			t.Errorf("got %q, want %q", got, h.want)
		}
	}
	if rangeWords(nil).Text != "–" || rangeWords(&[2]float64{0.25, 0.5}).Text != "25.0\u00a0% to 50.0\u00a0%" {
		t.Errorf("got %q", rangeWords(&[2]float64{0.25, 0.5}).Text)
	}
	types := map[string]bool{}
	for _, c := range ColumnsOf(true, featuresFull) {
		types[c.Type] = true
	}
	if !types["int"] || !types["float"] {
		t.Errorf("got the types %v", types)
	}
}
