package result

import (
	"bytes"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/trace"
)

func ptr(v float64) *float64 { return &v }

// equalPtr reports whether both are nil or have one value.
func equalPtr(a, b *float64) bool { return a == b || a != nil && b != nil && *a == *b }

func TestNumbersAndNulls(t *testing.T) {
	inf := math.Inf(1)
	for v, want := range map[float64]*float64{2.5: ptr(2.5), 0: ptr(0), inf: nil, -inf: nil} {
		if got := OrNull(v); !equalPtr(got, want) {
			t.Errorf("OrNull(%g): got %v", v, got)
		}
	}
	if OrNull(math.NaN()) != nil || TextOrNull("") != nil || *TextOrNull("a") != "a" {
		t.Error("what is unknown is nil, and nothing else is")
	}
	if got := Share(3, 4); *got != 0.75 || Share(0, 0) != nil {
		t.Errorf("3 of 4: got %v", *got)
	}
	if e := NewEstimate(2, 1, inf); e.Value != 2 || *e.Lo != 1 || e.Hi != nil {
		t.Errorf("got %+v", e)
	}
	if NewEstimate(math.NaN(), 1, 2) != nil {
		t.Error("an estimate of NaN: got one, want nil")
	}
	if got := Interval(1, 2); *got != [2]float64{1, 2} || Interval(1, inf) != nil || Interval(-inf, 2) != nil {
		t.Errorf("got %v", got)
	}
	if got := GateClause("ks_ttft"); got != Book+"#gate-ks-ttft" {
		t.Errorf("got %s", got)
	}
}

func TestCachedShare(t *testing.T) {
	var none *CachedShare
	if none.IsSmall() || !(&CachedShare{High: 0.05}).IsSmall() || (&CachedShare{High: 0.0501}).IsSmall() {
		t.Error("a share is small up to 0.05")
	}
	for want, c := range map[string]CachedShare{
		"cached share 3 to 9.9 %, estimated from TTFT": {Low: 0.03, High: 0.0994},
		"cached share 3 to 10 %, estimated from TTFT":  {Low: 0.03, High: 0.1},
	} {
		if got := c.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// planned is a fit with two configurations, two delays and a value of its own in each place.
func planned() *Fit {
	few := trace.Findingf("few_rows", "few")
	return &Fit{
		Warnings: []trace.Finding{few},
		Beta: Model{
			Warnings: []trace.Finding{few, trace.Findingf("condition", "large")},
			Cells: []Cell{
				{Config: "a", Regime: "decode", Errors: Errors{MAPE: ptr(0.1), Rows: 30}},
				{Config: "a", Regime: "mixed", Errors: Errors{MAPE: ptr(0.2), Rows: 10}},
				{Config: "a", Regime: "mixed", Bucket: "b8", Errors: Errors{MAPE: ptr(0.9), Rows: 10}},
				{Config: "a", Regime: "prefill", Errors: Errors{Rows: 7}},
				{Config: "b", Regime: "decode", Errors: Errors{MAPE: ptr(0.4), Rows: 5}},
			},
		},
		Alpha: []Model{
			{
				Name: "alpha1", Target: "overhead", Interval: &IntervalErrors{Rows: 9, MedianPredUs: ptr(700)},
				Warnings: []trace.Finding{trace.Findingf("condition", "large"), trace.Findingf("lag", "1")},
				AlphaRuns: []AlphaRun{
					{Config: "a", Interval: &IntervalErrors{Rows: 1, MedianPredUs: ptr(100)}},
					{Config: "a", Interval: &IntervalErrors{Rows: 3, MedianPredUs: ptr(300)}},
					{Config: "b", Interval: &IntervalErrors{Rows: 4}},
				},
			},
			{Name: "alpha2", Target: "egress", TargetErrors: &TargetErrors{Rows: 5, MedianPredUs: ptr(40)}},
			{Name: "alpha3", Target: "admission"},
		},
	}
}

func TestFiguresOfAFit(t *testing.T) {
	f := planned()
	a := &FitConfig{Key: "a", Label: "A"}
	b := &FitConfig{Key: "b", Label: "B"}
	for _, c := range []struct {
		target string
		config *FitConfig
		us     float64
		scope  string
		ok     bool
	}{
		{"overhead", a, 250, "A", true},
		{"alpha1", a, 250, "A", true},
		{"overhead", b, 700, "all configurations", true},
		{"overhead", nil, 700, "all configurations", true},
		{"egress", a, 40, "all configurations", true},
		{"admission", a, 0, "", false},
		{"queue", a, 0, "", false},
	} {
		us, scope, ok := f.MedianDelayUs(c.target, c.config)
		if us != c.us || scope != c.scope || ok != c.ok {
			t.Errorf("%s of %v: got %g of %q, %t, want %g of %q", c.target, c.config, us, scope, ok, c.us, c.scope)
		}
	}
	for configs, want := range map[string]struct {
		mape *float64
		rows int
	}{"a": {ptr((0.1*30 + 0.2*10) / 40), 40}, "b": {ptr(0.4), 5}, "c": {}, "a b": {ptr((0.1*30 + 0.2*10 + 0.4*5) / 45), 45}} {
		if got, rows := f.HoldoutOf(strings.Fields(configs)...); !equalPtr(got, want.mape) || rows != want.rows {
			t.Errorf("hold-out of %s: got %v of %d rows", configs, got, rows)
		}
	}
	var codes []trace.Code
	for _, w := range f.AllWarnings() {
		codes = append(codes, w.Code)
	}
	if !slices.Equal(codes, []trace.Code{"few_rows", "condition", "lag"}) {
		t.Errorf("warnings: got %v", codes)
	}
}

func TestStepQualityOfTwoParts(t *testing.T) {
	q := StepQuality{Recorded: 10, Known: 5, FromSnapshots: 4, Reconstructed: 3, Approximate: 2, Contradictions: 1}
	q.Join(StepQuality{Recorded: 30, Known: 25, FromSnapshots: 20, Reconstructed: 15, Approximate: 11, Contradictions: 7})
	share := q.KnownShare
	q.KnownShare = nil
	if want := (StepQuality{Recorded: 40, Known: 30, FromSnapshots: 24, Reconstructed: 18, Approximate: 13, Contradictions: 8}); q != want ||
		*share != 0.75 {
		t.Errorf("got %+v, known share %g, want %+v, 0.75", q, *share, want)
	}
}

func TestCachedTokensOfAnExtraction(t *testing.T) {
	one := CachedTokens{Phase: "a", Requests: 1, PromptTokens: 2, HitTokens: 3, Chains: 4, Usage: 5, Exact: 6, Bounded: 7, Unpaired: 8}
	two := CachedTokens{Phase: "b", Requests: 10, PromptTokens: 20, HitTokens: 30, Chains: 40, Usage: 50, Exact: 60, Bounded: 70, Unpaired: 80,
		CounterTokens: trace.Some[int64](90)}
	e := &Extract{Runs: []ExtractRun{
		{ID: "clients", CachedTokens: []CachedTokens{one, two}},
		{ID: "traced", CachedTokens: []CachedTokens{one}, Requests: ExtractRequests{Engine: 1}},
	}}
	want := CachedTokens{Requests: 11, PromptTokens: 22, HitTokens: 33, Chains: 44, Usage: 55, Exact: 66, Bounded: 77, Unpaired: 88,
		CounterTokens: trace.Opt[int64]{OK: true}}
	if got := e.CachedTokens(); got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	e.Runs[0].CachedTokens = e.Runs[0].CachedTokens[:1]
	if got := e.CachedTokens(); got.CounterTokens.OK {
		t.Error("no phase has the counter: got one")
	}
	if e.Run("traced") != &e.Runs[1] || e.Run("other") != nil {
		t.Error("a run is found by its id")
	}
}

func TestUsesOfARun(t *testing.T) {
	ids := []Identity{
		{Name: "order", Status: IdentityViolated, Effect: IdentityFails, Harms: []string{"steps", "replay"}},
		{Name: "loss", Status: IdentityViolated, Effect: IdentityUndecided, Harms: []string{"replay", "requests"}},
		{Name: "names", Status: IdentityViolated, Effect: IdentityNamed, Harms: []string{"capacity"}},
		{Name: "time", Status: IdentityHolds, Effect: IdentityFails, Harms: []string{"capacity"}},
	}
	got := UsesOf(ids, []string{"steps", "replay", "requests", "capacity"})
	want := []PurposeUse{
		{"steps", UseContradicted, []string{"order"}},
		{"replay", UseContradicted, []string{"order"}},
		{"requests", UseInsufficient, []string{"loss"}},
		{"capacity", UseAllowed, nil},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if both := Violated(ids, "replay", IdentityFails, IdentityUndecided); len(both) != 2 || both[1] != &ids[1] {
		t.Errorf("got %d violated, want two", len(both))
	}
}

func TestVerdictForAPurpose(t *testing.T) {
	verdict := func(purpose, scope, verdict string, failed, missing []string) PurposeVerdict {
		return PurposeVerdict{coeff.PurposeVerdict{Purpose: purpose, Scope: scope, Verdict: verdict}, failed, missing}
	}
	v := &Validation{
		For:   "steps",
		Gates: []Gate{{Gate: coeff.Gate{Name: "mape"}}, {Gate: coeff.Gate{Name: "ks_ttft"}}},
		Purposes: []PurposeVerdict{
			verdict("steps", "all", coeff.VerdictPass, []string{"f1"}, []string{"m1"}),
			verdict("replay", "all", coeff.VerdictFail, []string{"f1", "f2"}, []string{"m2"}),
			verdict("steps", "a", coeff.VerdictInsufficient, nil, []string{"m3"}),
		},
	}
	for _, c := range []PurposeVerdict{
		verdict("steps", "all", coeff.VerdictPass, []string{"f1"}, []string{"m1"}),
		verdict(coeff.PurposeAll, "all", coeff.VerdictFail, []string{"f1", "f2"}, []string{"m1", "m2"}),
		verdict("steps", "a", coeff.VerdictInsufficient, []string{}, []string{"m3"}),
		verdict("steps", "b", coeff.VerdictNotApplicable, []string{}, []string{}),
	} {
		if got := v.VerdictFor(c.Purpose, c.Scope); !reflect.DeepEqual(got, c) {
			t.Errorf("got %+v, want %+v", got, c)
		}
	}
	gates, purposes, decides := v.Verdicts()
	if len(gates) != 2 || gates[1].Name != "ks_ttft" || len(purposes) != 3 || purposes[1].Verdict != coeff.VerdictFail || decides != "steps" {
		t.Errorf("got %v, %v, %q", gates, purposes, decides)
	}
	if gates, purposes, decides = (*Validation)(nil).Verdicts(); gates != nil || purposes != nil || decides != "" {
		t.Error("no validation has no verdicts")
	}
}

// TestRanksOfReplays: what is gated is drawn first, then what is in-sample, a figure, and not gated.
func TestRanksOfReplays(t *testing.T) {
	some := &Metrics{TTFT: &Metric{KSD: 0.1}, ITL: &Metric{KSD: 0.3}, E2E: &Metric{KSD: 0.2}}
	figure := ValidationRun{Split: Split{Kind: SplitHoldout}, Metrics: some}
	figure.MakeFigure()
	if !figure.IsFigure() || (&ValidationRun{Split: Split{Kind: SplitHoldout}}).IsFigure() {
		t.Error("a figure is what MakeFigure marked")
	}
	inSample := figure
	inSample.Split.Kind = SplitInSample
	if inSample.IsFigure() {
		t.Error("an in-sample replay is no figure")
	}
	for _, c := range []struct {
		name string
		run  ValidationRun
		rank int
	}{
		{"gated", ValidationRun{Metrics: some}, 0},
		{"in-sample", ValidationRun{Metrics: some, Split: Split{Kind: SplitInSample}}, 1},
		{"figure", figure, 2},
		{"undecided", ValidationRun{Metrics: some, Undecided: "record more"}, 2},
		{"not compared", ValidationRun{}, 2},
		{"closed loop", ValidationRun{Metrics: some, Load: "closed"}, 3},
		{"saturated", ValidationRun{Metrics: some, Saturated: true}, 3},
	} {
		if got := c.run.ReplayRank(); got != c.rank {
			t.Errorf("%s: got rank %d, want %d", c.name, got, c.rank)
		}
	}
	r := ValidationRun{Metrics: some}
	less := ValidationRun{Metrics: &Metrics{ITL: &Metric{KSD: 0.29}}}
	if r.LargestKS() != 0.3 || less.LargestKS() != 0.29 || (&ValidationRun{}).LargestKS() != -1 {
		t.Errorf("largest KS: got %g, %g, want 0.3, 0.29", r.LargestKS(), less.LargestKS())
	}
	if r.ByReplayRank(&less) >= 0 || less.ByReplayRank(&r) <= 0 || r.ByReplayRank(&figure) >= 0 || r.ByReplayRank(&r) != 0 {
		t.Error("the order is by rank, then by the largest KS")
	}
}

func TestBlocksOfAPhase(t *testing.T) {
	c := &CrossFits{Blocks: []CrossBlocks{{Run: "r", Phase: "a"}, {Run: "r", Phase: "b"}, {Run: "s", Phase: "b"}}}
	if c.BlocksOf("r", "b") != &c.Blocks[1] || c.BlocksOf("s", "b") != &c.Blocks[2] || c.BlocksOf("s", "a") != nil {
		t.Error("blocks are those of the run and the phase")
	}
	if (*CrossFits)(nil).BlocksOf("r", "a") != nil {
		t.Error("no cross-validation has no blocks")
	}
}

func TestBelowFloor(t *testing.T) {
	for _, c := range []struct {
		cadence, floor *float64
		want           bool
	}{
		{ptr(99), ptr(100), true}, {ptr(100), ptr(100), false}, {nil, ptr(100), false}, {ptr(99), nil, false},
	} {
		if got := (&TargetAudit{CadenceUsP50: c.cadence, PhysicalFloorUs: c.floor}).BelowFloor(); got != c.want {
			t.Errorf("%v of %v: got %t", c.cadence, c.floor, got)
		}
	}
}

func TestNameOfAFactor(t *testing.T) {
	d := DeploymentFactor{Deployment: "m on H100", Config: "key"}
	if d.Name() != "key" {
		t.Errorf("got %s, want the configuration's key", d.Name())
	}
	if d.Config = ""; d.Name() != "m on H100" {
		t.Errorf("got %s, want the deployment", d.Name())
	}
}

// TestDocumentsAreReadStrictly: other versions, unknown keys and keys that occur twice are errors.
func TestDocumentsAreReadStrictly(t *testing.T) {
	for _, c := range []struct {
		doc        any
		text, want string // want "": no error
	}{
		{&Fit{}, `{"schema_version": "1"}`, ""},
		{&Fit{}, `{"schema_version": "2"}`, `schema_version: got "2", want "1"`},
		{&Validation{}, `{"schema_version": "2"}`, ""},
		{&Validation{}, `{"schema_version": "1"}`, `schema_version: got "1", want "2"`},
		{&Fit{}, `{"schema_version": "1", "x": 1}`, `unknown field "x"`},
		{&Fit{}, `{"schema_version": "1", "schema_version": "1"}`, `got the key "schema_version" twice`},
		{&Fit{}, `{`, "unexpected end"},
	} {
		err := Read([]byte(c.text), c.doc)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%T from %s: got %v, want %q", c.doc, c.text, err, c.want)
		}
	}
}

func TestWriteIsMarshal(t *testing.T) {
	doc := &Inspect{Header: NewHeader("1", "inspect")}
	var b bytes.Buffer
	text, err := Marshal(doc)
	if err != nil || Write(&b, doc) != nil || !bytes.Equal(b.Bytes(), text) || !bytes.HasSuffix(text, []byte("}\n")) {
		t.Errorf("got %q, %v", b.Bytes(), err)
	}
	if err := Write(&b, math.NaN()); err == nil {
		t.Error("NaN is no JSON: got no error")
	}
	if text, err := Marshal(map[string]int{"a": 1}); err != nil || string(text) != "{\n  \"a\": 1\n}\n" {
		t.Errorf("a document without a digest: got %q, %v", text, err)
	}
}
