package fit

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// codes are the codes of findings, in their order.
func codes(found []trace.Finding) (out []trace.Code) {
	for _, f := range found {
		out = append(out, f.Code)
	}
	return out
}

// TestDelayWithoutAnAnswer: a delay whose fit does not converge is left out with a warning; other errors are errors.
func TestDelayWithoutAnAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"intervals":   {fmt.Errorf("grid: %w", &ridge.Error{Code: ridge.IntervalNotConverged, Msg: "no certificate after 10000 passes"}), true},
		"certificate": {&ridge.Error{Code: ridge.CertificateFailed, Msg: "gradient 3"}, true},
		"few rows":    {&ridge.Error{Code: ridge.TooFewRows, Msg: "3 rows"}, false},
		"other":       {errors.New("disk full"), false},
		"none":        {nil, false},
	} {
		a := &alphaFit{target: coeff.Overhead, s: &Solved{}}
		if got := a.warnNotConverged(c.err); got != c.want || (a.s == nil) != c.want || len(a.findings) == 1 != c.want {
			t.Errorf("%s: got %v with %d warnings", name, got, len(a.findings))
		}
		if c.want && (a.findings[0].Code != NotConverged || !strings.HasPrefix(a.findings[0].Message, "alpha overhead: ")) {
			t.Errorf("%s: got %v", name, a.findings[0])
		}
	}
}

func TestFindingsAboutATerm(t *testing.T) {
	term := &Term{Name: "decode_attention"}
	of := func(value float64, identified string, most float64, notLearned bool) result.Coefficient {
		r := [2]float64{0, most}
		c := result.Coefficient{NotLearned: notLearned}
		c.Name = term.Name
		c.Unit = "us/s"
		c.Value = value
		c.Identified = identified
		c.Range = &r
		return c
	}
	for _, c := range []struct {
		name    string
		c       result.Coefficient
		configs int
		ofSteps bool
		want    []trace.Code
	}{
		{"at 0.8 of the roofline's time", of(0.8e6, coeff.Within, 1, false), 2, true, nil},
		{"below it", of(0.799e6, coeff.Within, 1, false), 2, true, []trace.Code{absorbs}},
		{"ten times", of(10e6, coeff.Within, 1, false), 2, true, nil},
		{"more", of(10.01e6, coeff.Within, 1, false), 2, true, []trace.Code{absorbs}},
		{"of a delay", of(10.01e6, coeff.Within, 1, false), 2, false, nil},
		{"no time", of(0, coeff.Within, 1, false), 2, true, nil},
		{"no cost found", of(0, coeff.Within, 1, true), 2, true, []trace.Code{NotIdentified}},
		{"never there", of(0, coeff.Within, 0, true), 2, true, nil},
		{"differs between configurations alone", of(1e6, "between", 1, false), 2, true, []trace.Code{NotIdentified}},
		{"of one configuration", of(1e6, "between", 1, false), 1, true, nil},
		{"never there", of(1e6, "between", 0, false), 2, true, nil},
	} {
		if got := codes(termFindings(term, c.c, c.configs, c.ofSteps)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTermsAtTheirLimit(t *testing.T) {
	terms := []Term{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	for _, c := range []struct {
		upper, beta []float64
		want        int
	}{
		{[]float64{5, 5, 0}, []float64{5, 4, 3}, 1},
		{[]float64{5, 5, 0}, []float64{5 * (1 - 0.5e-9), 4, 3}, 1},
		{[]float64{5, 5, 0}, []float64{5 * (1 - 1e-7), 4, 3}, 0},
		{nil, []float64{5, 4, 3}, 0},
	} {
		if got := limitFindings(terms, c.upper, c.beta); len(got) != c.want {
			t.Errorf("%v of %v: got %v, want %d findings", c.beta, c.upper, got, c.want)
		}
	}
}

// TestPredictionsThatFall: a decoding token that costs more to load than a prompt's to compute.
func TestPredictionsThatFall(t *testing.T) {
	for _, c := range []struct {
		load, compute float64
		want          int
	}{{3, 2, 1}, {2, 2, 0}, {3, 0, 0}, {1, 2, 0}} {
		m := &result.Model{Coefficients: make([]result.Coefficient, 2)}
		m.Coefficients[0].Name = "decode_weight_load"
		m.Coefficients[0].Value = c.load
		m.Coefficients[1].Name = "prefill_linear_compute"
		m.Coefficients[1].Value = c.compute
		if orderFinding(m); len(m.Warnings) != c.want {
			t.Errorf("%+v: got %v, want %d findings", c, m.Warnings, c.want)
		}
	}
}

func TestDriftIsNamed(t *testing.T) {
	block := func(run string, k int, bias float64) result.DriftBlock {
		return result.DriftBlock{Run: run, Block: k, Bias: bias}
	}
	for _, c := range []struct {
		name  string
		drift []result.DriftBlock
		want  []string
	}{
		{"a tenth", []result.DriftBlock{block("a", 1, 0.1), block("a", 2, -0.1)}, nil},
		{"more", []result.DriftBlock{block("a", 1, 0.05), block("a", 2, -0.101), block("b", 1, 0.101)}, []string{"a", "b"}},
		{"composed", []result.DriftBlock{block("made", 1, 0.5)}, nil},
	} {
		m := &result.Model{}
		driftFindings(m, c.drift, func(run string) bool { return run != "made" })
		if len(m.Warnings) != len(c.want) {
			t.Errorf("%s: got %v, want those of %v", c.name, m.Warnings, c.want)
		}
	}
}

// TestDriftByHand: 20 hold-out rows are five blocks of four; the third is predicted 10 % too long. 19 rows are too few.
// A block that took no time has no relative error.
func TestDriftByHand(t *testing.T) {
	of := func(n int, blockUs ...float64) []result.DriftBlock {
		s := &Solved{Pool: &Pool{Tables: make([]*rows.Table, 2), Runs: []string{"none", "r"}, Data: &ridge.Data{}}, Data: &ridge.Data{}}
		for i := range n {
			s.Pool.Hold = append(s.Pool.Hold, int32(i))
			s.Pool.Data.Run = append(s.Pool.Data.Run, 1)
			s.Data.Y = append(s.Data.Y, 100)
			s.Pred = append(s.Pred, 100)
			if i/4 == 2 {
				s.Pred[i] = 110
			}
			if i/4 < len(blockUs) {
				s.Data.Y[i] = blockUs[i/4]
			}
		}
		return s.Drift()
	}
	got := of(20)
	for b := range got {
		want := result.DriftBlock{Run: "r", Block: b + 1, Rows: 4}
		if b == 2 {
			want.Bias = 0.1
		}
		if math.Abs(got[b].Bias-want.Bias) > 1e-12 || got[b].Rows != 4 || got[b].Block != b+1 || got[b].Run != "r" {
			t.Errorf("got %+v, want %+v", got[b], want)
		}
	}
	if len(got) != 5 || of(19) != nil {
		t.Errorf("got %d blocks and %v, want 5 and none", len(got), of(19))
	}
	if got := of(20, 0); len(got) != 4 || got[0].Block != 2 {
		t.Errorf("a first block of no time: got %+v, want blocks 2 to 5", got)
	}
}

func TestMeasurementsThatAddNothing(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	score := func(rel, uncalibrated *float64, chosen bool) result.RecipeScore {
		return result.RecipeScore{RelErr: rel, Uncalibrated: uncalibrated, Chosen: chosen}
	}
	for _, c := range []struct {
		name   string
		scores []result.RecipeScore
		want   string
	}{
		{"better", []result.RecipeScore{score(v(0.04), v(0.05), true)}, ""},
		{"as good", []result.RecipeScore{score(v(0.05), v(0.05), true)},
			"the library alone predicts the step times with 5 % error, the fit those held out with 5 %: " +
				"these measurements add nothing to it; record more loads, or use --coefficients library"},
		{"the other recipe is worse", []result.RecipeScore{score(v(0.09), v(0.05), false), score(v(0.04), nil, true)}, ""},
		{"no library", []result.RecipeScore{score(v(0.05), nil, true)}, ""},
		{"no folds", []result.RecipeScore{score(nil, v(0.05), true)}, ""},
	} {
		got := ""
		for _, f := range CompareUncalibrated(c.scores) {
			got += f.Message
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestFactorsByHand: predicted decode steps take 100 and 10 of prompts, those with prompts 50 and 200.
func TestFactorsByHand(t *testing.T) {
	for _, c := range []struct {
		name            string
		y, rest, prompt [2]float64
		all, more       float64
	}{
		// 2*100 + 2*3*10 and 2*50 + 2*3*200
		{"both", [2]float64{260, 1300}, [2]float64{100, 50}, [2]float64{10, 200}, 2, 3},
		{"no prompts", [2]float64{150, 0}, [2]float64{100, 0}, [2]float64{}, 1.5, 1},
		{"nothing predicted", [2]float64{150, 0}, [2]float64{}, [2]float64{}, 1, 1},
		// 2*100 + 0.1*2*10 and 2*50 + 0.1*2*200: prompt work below a fifth is not believed
		{"too little for prompts", [2]float64{202, 140}, [2]float64{100, 50}, [2]float64{10, 200}, 342.0 / 360, 1},
		{"a fifth and more", [2]float64{2 * (100 + 0.21*10), 2 * (50 + 0.21*200)}, [2]float64{100, 50}, [2]float64{10, 200}, 2, 0.21},
	} {
		r := runTotals{y: c.y, rest: c.rest, prompt: c.prompt}
		if all, more := r.factors(); math.Abs(all-c.all) > 1e-9 || math.Abs(more-c.more) > 1e-9 {
			t.Errorf("%s: got %g and %g, want %g and %g", c.name, all, more, c.all, c.more)
		}
	}
}

// TestTypicalLevelByHand: blocks of 20 s that are measured 2, 3 and 10 times as long as predicted; the median weighs the
// first with 300 us, the others with 200.
func TestTypicalLevelByHand(t *testing.T) {
	of := func(seconds, x, y []float64) float64 {
		d := &ridge.Data{P: 1, X: x, Y: y}
		for _, s := range seconds {
			d.Time = append(d.Time, 7e9+int64(s*1e9))
		}
		return typicalLevel(&Solved{Train: d, Fit: ridge.Fit{Beta: []float64{100}}})
	}
	seconds := []float64{0, 10, 19.99, 20, 39.99, 40, 59}
	x := []float64{1, 1, 1, 1, 1, 1, 1}
	if got := of(seconds, x, []float64{200, 200, 200, 300, 300, 1000, 1000}); got != 3 {
		t.Errorf("got %g, want the middle block's 3", got)
	}
	if got, want := of(seconds[:5], x[:5], []float64{200, 200, 200, 300, 300}), 1200.0/500; math.Abs(got-want) > 1e-12 {
		t.Errorf("two blocks: got %g, want that of the sums, %g", got, want)
	}
	if got := of(seconds[:2], []float64{0, 0}, []float64{5, 5}); got != 1 {
		t.Errorf("nothing predicted: got %g, want 1", got)
	}
}

func TestScaledCoefficients(t *testing.T) {
	s := &Solved{
		Terms: []Term{{Name: "a"}, {Name: "b", Prompt: true}},
		Pool:  &Pool{Configs: []string{"first", "second"}},
		Fit:   ridge.Fit{Beta: []float64{10, 100}},
		Data:  &ridge.Data{P: 2, X: []float64{1, 1, 1, 1}, Y: []float64{0, 0}, Config: []int32{0, 1}},
		Pred:  make([]float64, 2),
	}
	if got := s.betaIn(1); !slices.Equal(got, []float64{10, 100}) {
		t.Errorf("without factors: got %v", got)
	}
	s.ScaleBy([]result.DeploymentFactor{{Config: "second", Factor: 2, Prompt: 3}})
	if !slices.Equal(s.betaIn(0), []float64{10, 100}) || !slices.Equal(s.betaIn(1), []float64{20, 600}) || !slices.Equal(s.Pred, []float64{110, 620}) {
		t.Errorf("got %v, %v and predictions %v", s.betaIn(0), s.betaIn(1), s.Pred)
	}
	rest, prompt := splitPrompt(s, []float64{3, 2})
	if rest != 30 || prompt != 200 {
		t.Errorf("got %g and %g of prompts, want 30 and 200", rest, prompt)
	}
}

func TestBatchesWithinLimits(t *testing.T) {
	batch := func() []trace.Chunk { return []trace.Chunk{{New: 1}, {New: 1}, {New: 50}, {New: 50}} }
	for _, c := range []struct {
		seqs, tokens int64
		want         []int64
	}{
		{4, 200, []int64{1, 1, 50, 50}}, {3, 200, []int64{1, 1, 50}}, {4, 102, []int64{1, 1, 50, 50}}, {4, 101, []int64{1, 1, 50, 49}},
		{4, 52, []int64{1, 1, 50}}, {4, 53, []int64{1, 1, 50, 1}}, {4, 2, []int64{1, 1}},
	} {
		var got []int64
		for _, m := range Within(batch(), &vllm.Engine{MaxNumSeqs: c.seqs, MaxNumBatchedTokens: c.tokens}) {
			got = append(got, m.New)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%d requests, %d tokens: got %v, want %v", c.seqs, c.tokens, got, c.want)
		}
	}
}

// TestFactsOfARun: mean lengths of successful requests, of clients only where an engine's log has no spans.
func TestFactsOfARun(t *testing.T) {
	some := func(v int64) trace.Opt[int64] { return trace.Some(v) }
	run := &trace.Run{
		Requests: []trace.Request{
			{Success: trace.Some(true), PromptTokens: some(10), OutputTokens: some(4), EndWallNs: some(5)},
			{Success: trace.Some(true), PromptTokens: some(30), OutputTokens: some(5)},
			{Success: trace.Some(false), PromptTokens: some(999), OutputTokens: some(99), EndWallNs: some(8)},
			{Success: trace.Some(true), PromptTokens: some(999)},
		},
		Steps: []trace.Step{{WallNs: 7}},
		Observed: []trace.ObservedRequest{
			{Success: trace.Some(true), PromptTokens: some(100), OutputTokens: some(50)},
			{PromptTokens: some(999), OutputTokens: some(99)},
			{Success: trace.Some(true), OutputTokens: some(99)},
		},
	}
	if got := lengthsOf(run); got != (lengths{2, 40, 9}) {
		t.Errorf("spans: got %v, want 2 requests with 40 and 9 tokens", got)
	}
	l := lengthsOf(run)
	if prompt, output := l.means(); *prompt != 20 || *output != 4.5 {
		t.Errorf("got means %g and %g, want 20 and 4.5", *prompt, *output)
	}
	if got := LatestWall(run); got != 8 {
		t.Errorf("latest stamp: got %d, want 8", got)
	}
	run.Steps[0].WallNs = 9
	if got := LatestWall(run); got != 9 {
		t.Errorf("latest stamp: got %d, want 9", got)
	}
	run.Requests = nil
	if got := lengthsOf(run); got != (lengths{}) {
		t.Errorf("no log: got %v, want none", got)
	}
	run.Aggregate = &trace.Aggregate{}
	if got := lengthsOf(run); got != (lengths{1, 100, 50}) {
		t.Errorf("clients: got %v, want 1 request with 100 and 50 tokens", got)
	}
	var empty lengths
	if prompt, output := empty.means(); prompt != nil || output != nil || LatestWall(&trace.Run{}) != 0 {
		t.Error("no requests have means or a stamp")
	}
	for ns, want := range map[int64]string{0: "", -1: "", 86_400e9 - 1: "1970-01-01", 86_400e9: "1970-01-02"} {
		if got := DateOf(ns); got != want {
			t.Errorf("%d ns: got %q, want %q", ns, got, want)
		}
	}
	slice := &trace.Slice{FirstNs: 1e9, LastNs: 11e9}
	for ns, want := range map[int64]float64{math.MinInt64: 0, 1e9: 0, 3_500_000_000: 2.5, 11e9: 10, math.MaxInt64: 10} {
		if got := sinceStartS(slice, ns); got != want {
			t.Errorf("%d ns: got %g s, want %g", ns, got, want)
		}
	}
}

func TestPriorsThatFit(t *testing.T) {
	for _, c := range []struct {
		of, want          features.Version
		beta, rows, terms int
		fits              bool
	}{
		{features.V12, features.V12, 11, 11, 11, true}, {features.V12, features.V12, 11, 11, 12, false}, {features.V11, features.V12, 11, 11, 11, false},
		{features.V12, features.V13, 11, 11, 13, true}, {features.V12, features.V13, 11, 11, 11, true}, {features.V12, features.V13, 13, 13, 12, false},
		{features.V12, features.V13, 11, 10, 13, false}, {features.V13, features.V13, 13, 13, 13, true}, {features.V13, features.V13, 13, 12, 13, false},
	} {
		set := &coeff.Set{SpecVersion: c.of, Beta: make([]coeff.Coefficient, c.beta), Covariance: make([][]float64, c.rows)}
		if got := priorFits(set, c.want, c.terms); got != c.fits {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestIntervalsOfCoefficients(t *testing.T) {
	of := func(i ridge.Interval, posterior bool) *coeff.Coefficient {
		c := &coeff.Coefficient{Value: 7}
		setInterval(c, i, posterior)
		return c
	}
	c := of(ridge.Interval{Lo: 2, Hi: 6, Center: 4}, false)
	if *c.CI95 != [2]float64{2, 7} || *c.Estimate != 4 || *c.EstimateCI95 != [2]float64{2, 6} || c.CI95Given != "" {
		t.Errorf("got %+v, want 2 to the value, estimate 4 in 2 to 6", c)
	}
	c = of(ridge.Interval{Lo: 2, Hi: 9, Center: 4}, true)
	if *c.CI95 != [2]float64{2, 9} || c.Estimate != nil || c.EstimateCI95 != nil || c.CI95Given != coeff.GivenPrior {
		t.Errorf("posterior: got %+v", c)
	}
	for _, i := range []ridge.Interval{{Lo: math.Inf(-1), Hi: 1}, {Lo: 1, Hi: math.Inf(1)}, {Lo: 1, Hi: 2, Method: ridge.FromNothing}} {
		if c := of(i, false); c.CI95 != nil || c.Estimate != nil {
			t.Errorf("%+v: got %+v, want none", i, c)
		}
	}
}

func TestRunsThatOnlyPreempted(t *testing.T) {
	table := func(config string, saturated int, holdOut bool) *rows.Table {
		t := &rows.Table{Config: config, Kept: 1, Read: 1, HoldOut: []bool{holdOut}, Y: []float64{1}, X: []float64{1}, P: 1}
		if saturated > 0 {
			t.Kept = 2
			t.HoldOut = append(t.HoldOut, holdOut)
			t.Filter(rows.Saturated, func(i int) bool { return i == 0 })
		}
		return t
	}
	p := &Pool{Tables: []*rows.Table{table("a", 1, false), table("a", 0, false), table("b", 1, false), table("c", 1, true)}}
	for run, want := range []bool{true, false, true, false} {
		if p.saturated(int32(run)) != want {
			t.Errorf("run %d: got %v", run, !want)
		}
	}
	for config, want := range map[string]bool{"a": false, "b": true, "c": false} {
		if p.saturatedConfig(config) != want {
			t.Errorf("configuration %s: got %v", config, !want)
		}
	}
}

func TestNamesInFindings(t *testing.T) {
	p := &Pool{Runs: []string{"r0", "r1"}, Configs: []string{"c0", "c1"}}
	for _, c := range []struct {
		run, config int32
		want        string
	}{{0, 0, "run r0: x"}, {1, -1, "run r1: x"}, {2, 1, "configuration c1: x"}, {-1, 0, "configuration c0: x"}, {-1, 2, "x"}, {-1, -1, "x"}} {
		got := p.Words([]ridge.Finding{{Run: c.run, Config: c.config, Code: ridge.TooFewRows, Message: "x"}})
		if got[0].Message != c.want || got[0].Code != CodeFewRows {
			t.Errorf("%+v: got %+v", c, got[0])
		}
	}
}

// TestRunsBelowTheFloor: steps of 90 us whose weights take 100 us to read, two steps a row.
func TestRunsBelowTheFloor(t *testing.T) {
	for y, want := range map[float64]bool{180: true, 200: false, 220: false} {
		table := &rows.Table{Run: "r", Y: []float64{y, y, y}, FloorUs: []float64{200, 200, 200}, Steps: []float64{2, 2, 2}}
		if got := tableBelowFloor(table, coeff.Cadence); (got != nil) != want {
			t.Errorf("%g us of two steps: got %v", y, got)
		}
	}
}

// TestRepeatedFoldsNameTheirModel: a finding names the model whose folds repeat each other, unless it is a constant.
func TestRepeatedFoldsNameTheirModel(t *testing.T) {
	m := result.Model{Name: "egress", FoldFingerprints: []string{"x", "y", "y"}}
	warnRepeatedFolds(&m)
	if len(m.Warnings) != 1 || m.Warnings[0].Message != "egress: folds 2 and 3 have the same coefficients" || m.Warnings[0].Code != CodeFewRows {
		t.Errorf("got %+v", m.Warnings)
	}
	constant := result.Model{Name: "egress", FoldFingerprints: m.FoldFingerprints, Coefficients: make([]result.Coefficient, 1)}
	constant.Coefficients[0].Name = "base_bias"
	if warnRepeatedFolds(&constant); len(constant.Warnings) > 0 {
		t.Errorf("a constant: got %+v", constant.Warnings)
	}
}
