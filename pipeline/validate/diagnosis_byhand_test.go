package validate

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// handScope is the scope of one run on a device that the fit saw, with a set of version 1.1 whose coefficients are 1e6.
func handScope(d *deploy.Deployment) (*scope, *coeff.Set) {
	set := &coeff.Set{SpecVersion: features.V11, Beta: features.NewCoefficients(features.BetaFeatures(features.V11)), Configs: []coeff.Config{{Deployment: *d}}}
	for i := range set.Beta {
		set.Beta[i].Value = 1e6
	}
	t := &judgedRun{id: "r", set: set}
	t.Deployment = d
	return &scope{name: "r", runs: []*judgedRun{t}}, set
}

// handResiduals are n rows whose only feature j, of a ms, costs factor times what is predicted.
func handResiduals(set *coeff.Set, n, j int, factor float64) *residuals {
	r := &residuals{}
	for i := range n {
		x := make([]float64, len(set.Beta))
		x[j] = 1e-3 * float64(1+i%3)
		predicted := 1e6 * x[j]
		r.rows = append(r.rows, x)
		r.y = append(r.y, factor*predicted)
		r.us = append(r.us, (factor-1)*predicted)
		r.weight = append(r.weight, 1/(factor*predicted*float64(n)))
		r.regime = append(r.regime, rows.Mixed)
	}
	all := *r
	r.all = &all
	return r
}

// TestResidualsByHand: the change of a term with the least loss, what is left, and the regime that gains most.
func TestResidualsByHand(t *testing.T) {
	r := &residuals{us: []float64{10, 40, -6, 3}, y: []float64{100, 200, 50, 10}, weight: []float64{1, 1, 2, 5}, regime: []rows.Regime{0, 1, 1, 0}, rows: [][]float64{{1, 5}, {2, 6}, {3, 7}, {0, 8}}}
	x := r.column(0)
	if !slices.Equal(x, []float64{1, 2, 3, 0}) || !slices.Equal(r.column(1), []float64{5, 6, 7, 8}) {
		t.Errorf("got columns %v, %v", x, r.column(1))
	}
	// Ratios 10, 20 and -2 with weights 1, 2 and 6.
	if got := r.bestChange(x); got != -2 {
		t.Errorf("got a change of %g, want the weighted median", got)
	}
	if got := r.bestChange([]float64{0, 0, 0, 0}); got != 0 {
		t.Errorf("a term that is nowhere: got %g", got)
	}
	if got := r.without(2, x); !slices.Equal(got, []float64{8, 36, -12, 3}) {
		t.Errorf("got %v", got)
	}
	if got := r.loss(2, x); got != 8+36+24+15 {
		t.Errorf("got a loss of %g", got)
	}
	if got := r.loss(0, nil); got != 10+40+12+15 {
		t.Errorf("got a loss of %g", got)
	}
	// Regime 0 gains 2, regime 1 gains 4 - 12; over it the predictions are -13 of 110 too long.
	if regime, bias := r.regimeOfChange(2, x); regime != 0 || !near(bias, -13./110) {
		t.Errorf("got regime %v, bias %g", regime, bias)
	}
	if regime, bias := r.regimeOfChange(-2, x); regime != 1 || !near(bias, -34./250) {
		t.Errorf("got regime %v, bias %g", regime, bias)
	}
	if _, bias := (&residuals{}).regimeOfChange(1, nil); bias != 0 {
		t.Errorf("no rows: got a bias of %g", bias)
	}
}

// TestTermsAtFaultByHand: one term whose cost is another, and why it cannot be the cause.
func TestTermsAtFaultByHand(t *testing.T) {
	d := testkit.Llama8B()
	j := slices.IndexFunc(features.BetaFeatures(features.V11), func(f features.Feature) bool { return f.Name == "prefill_attention" })
	for name, c := range map[string]struct {
		n        int
		factor   float64
		change   func(s *scope, set *coeff.Set)
		want     string // change
		excluded string
	}{
		"twice":          {20, 2, func(*scope, *coeff.Set) {}, "prefill_attention times 2.00", ""},
		"a tenth":        {20, 10, func(*scope, *coeff.Set) {}, "prefill_attention times 10.00", ""},
		"beyond physics": {20, 11, func(*scope, *coeff.Set) {}, "prefill_attention times 11.00", "11 times its roofline"},
		"too fast":       {20, 0.79, func(*scope, *coeff.Set) {}, "prefill_attention times 0.79", "0.79 times its roofline"},
		"few rows":       {19, 2, func(*scope, *coeff.Set) {}, "prefill_attention times 2.00", rows.Mixed.String() + ": fewer than 20 rows"},
		"another device": {20, 2, func(s *scope, set *coeff.Set) { set.Configs[0].Deployment.TP++ }, "prefill_attention times 2.00", "the fit saw no such hardware"},
		"made by hand":   {20, 2, func(s *scope, set *coeff.Set) { set.Configs = nil }, "prefill_attention times 2.00", ""},
	} {
		own := *d
		s, set := handScope(&own)
		r := handResiduals(set, c.n, j, c.factor)
		c.change(s, set)
		total := r.loss(0, nil)
		got := s.rescaleTerm(set, r, total, j)
		bias := 1/c.factor - 1
		if got.change != c.want || got.excluded != c.excluded || got.cause != result.CauseModelError || got.term != "prefill_attention" || got.regime != rows.Mixed.String() || !near(got.share, 1) || !near(got.shareAll, 1) || math.Abs(got.left) > 1e-9 || !near(got.evidence, bias) ||
			got.premise != rows.Mixed.String()+" steps are predicted "+biasText(bias) {
			t.Errorf("%s: got %+v", name, got)
		}
		if best := s.termCandidate(set, r, total); best.term != "prefill_attention" || best.excluded != c.excluded {
			t.Errorf("%s: got %+v as the best", name, best)
		}
	}
	// A coefficient of 0 is replaced, and none falls below 0.
	s, set := handScope(d)
	r := handResiduals(set, 20, j, 2)
	set.Beta[j].Value = 0
	if got := s.rescaleTerm(set, r, r.loss(0, nil), j); got.change != "a prefill_attention of 1e+06 us/s where it is 0" {
		t.Errorf("got %q", got.change)
	}
	set.Beta[j].Value = 4e5
	for i := range r.us {
		r.us[i] *= -1
	}
	if got := s.rescaleTerm(set, r, r.loss(0, nil), j); got.change != "prefill_attention times 0.00" || !near(got.share, 0.4) {
		t.Errorf("got %q, %g", got.change, got.share)
	}
	// Two terms that are always in proportion: neither can be blamed.
	s, set = handScope(d)
	k := slices.IndexFunc(features.BetaFeatures(features.V11), func(f features.Feature) bool { return f.Name == "decode_attention" })
	r = handResiduals(set, 20, j, 2)
	for i := range r.rows {
		r.rows[i][k] = r.rows[i][j]
	}
	if got := s.termCandidate(set, r, r.loss(0, nil)); !strings.HasSuffix(got.excluded, " would do as well") {
		t.Errorf("got %+v", got)
	}
	// Other hardware: prompts take twice as long, and the rest three times.
	own := *d
	own.Hardware.Name = "another"
	s, set = handScope(d)
	s.runs[0].Deployment = &own
	r = &residuals{}
	for i := range 40 {
		x := make([]float64, len(set.Beta))
		at, factor := j, 2.0
		if i%2 == 1 {
			at, factor = k, 3
		}
		x[at] = 1e-3
		r.rows = append(r.rows, x)
		r.y = append(r.y, factor*1e3)
		r.us = append(r.us, (factor-1)*1e3)
		r.weight = append(r.weight, 1/(factor*1e3))
		r.regime = append(r.regime, rows.Mixed)
	}
	all := *r
	r.all = &all
	got := s.hardwareCandidate(r, r.loss(0, nil))
	if got == nil || got.cause != result.CauseHardware || !near(got.share, 1) || !near(got.shareAll, 1) || !near(got.evidence, 3) || got.change != "other hardware, terms on prompts times 2.00 and the others times 3.00," || got.excluded != "" || !strings.HasPrefix(got.premise, "the hardware is not the another at tensor_parallel_size") {
		t.Errorf("got %+v", got)
	}
	s.runs[0].Deployment = d
	if s.hardwareCandidate(r, 1) != nil {
		t.Error("the device of the fit alone is at fault")
	}
}

// TestStarvedRequestsAreNamed: requests that waited for KV blocks hold half of the error, and wait longer in the replay.
func TestStarvedRequestsAreNamed(t *testing.T) {
	run := &judgedRun{id: "r", starved: map[string]starvedRequests{}}
	run.Deployment = testkit.Llama8B()
	run.Deployment.Engine.KVBlocksGPU = trace.Some(int64(321))
	for name, c := range map[string]struct {
		of   starvedRequests
		want string
	}{
		"half":              {starvedRequests{Requests: 3, Of: 9, ErrorShare: 0.5, SimulatedMs: 70, RecordedMs: 70}, result.CauseScheduler},
		"less":              {starvedRequests{Requests: 3, Of: 9, ErrorShare: 0.49, SimulatedMs: 80, RecordedMs: 70}, result.CauseUnknown},
		"shorter in replay": {starvedRequests{Requests: 3, Of: 9, ErrorShare: 0.9, SimulatedMs: 69, RecordedMs: 70}, result.CauseUnknown},
	} {
		run.starved["x"] = c.of
		got := run.diagnoseRequests("x", []string{"g"})
		if got.Cause != c.want || got.Scope != "x" || !slices.Equal(got.Gates, []string{"g"}) || (got.Evidence != nil) != (c.want == result.CauseScheduler) {
			t.Errorf("%s: got %+v", name, got)
		}
		if c.want == result.CauseScheduler && got.Sentence != "3 of 9 requests waited for KV blocks in the replay and hold 50 % of the error of TTFT: 70 ms in the median there, 70 ms as measured; run.yaml gives the engine 321 KV blocks: compare vllm.kv_blocks_total_gpu with the server's start-up log" {
			t.Errorf("%s: got %q", name, got.Sentence)
		}
	}
}

// TestErrorOutsideTheRange: the share of the error in rows beyond 1.5 times what was trained, a step, if there are 20 of them.
func TestErrorOutsideTheRange(t *testing.T) {
	s, set := handScope(testkit.Llama8B())
	n := len(set.Beta)
	set.Beta[2].Range = &[2]float64{0, 4}
	set.Beta[3].Range = &[2]float64{0, 1}
	with := func(outside, inside int, x float64) (share float64, slot int) {
		run := s.runs[0]
		run.beta = &rows.Table{P: n, Kept: outside + inside}
		run.pred = nil
		for i := range outside + inside {
			row := make([]float64, n)
			row[2] = 12 // of two steps: 1.5 times 4 each
			if i < outside {
				row[2] = x
			}
			run.beta.X = append(run.beta.X, row...)
			run.beta.Steps = append(run.beta.Steps, 2)
			run.beta.Y = append(run.beta.Y, 100)
			run.pred = append(run.pred, 90)
			if i < outside {
				run.pred[i] = 130
			}
		}
		run.sample = &rows.Sample{Table: run.beta, Part: rows.Whole}
		return s.unseenErrorShare(set)
	}
	if share, slot := with(20, 30, 12.01); !near(share, 6./9) || slot != 2 {
		t.Errorf("got a share of %g, slot %d, want 20 x 0.3 of 20 x 0.3 + 30 x 0.1", share, slot)
	}
	if share, _ := with(19, 30, 12.01); share != 0 {
		t.Errorf("19 rows: got a share of %g", share)
	}
	if share, _ := with(20, 30, 12); share != 0 {
		t.Errorf("at the limit: got a share of %g", share)
	}
	if share, _ := with(0, 0, 0); share != 0 {
		t.Errorf("no rows: got a share of %g", share)
	}
}

// speedResiduals are n decode and n mixed rows of 1 to 4 ms by one term, and as much again by another, that take so many
// times what is predicted.
func speedResiduals(set *coeff.Set, n int, decode, mixed float64) *residuals {
	r := &residuals{}
	for i := range 2 * n {
		regime, factor := rows.Decode, decode
		if i >= n {
			regime, factor = rows.Mixed, mixed
		}
		x := make([]float64, len(set.Beta))
		x[i%2] = 1e-3 * float64(1+i%4)
		x[2+i%3] = x[i%2]
		predicted := 2e6 * x[i%2]
		r.rows = append(r.rows, x)
		r.y = append(r.y, factor*predicted)
		r.us = append(r.us, (factor-1)*predicted)
		r.weight = append(r.weight, 1/(factor*predicted*float64(n)))
		r.regime = append(r.regime, regime)
	}
	all := *r
	r.all = &all
	return r
}

// TestOneSpeedByHand: all steps are longer or shorter by one factor, and it is no cause where kinds of steps differ.
func TestOneSpeedByHand(t *testing.T) {
	const differ = "steps of different work differ by different factors"
	for name, c := range map[string]struct {
		n                         int
		decode, mixed             float64
		premise, change, excluded string
	}{
		"longer":            {40, 1.15, 1.15, "all steps are 15 % longer than the coefficients say", "one factor of 1.15", ""},
		"shorter":           {40, 0.93, 0.93, "all steps are 7 % shorter than the coefficients say", "one factor of 0.93", ""},
		"to a quarter":      {40, 1.20, 1.24, "all steps are 20 % longer than the coefficients say", "one factor of 1.20", ""},
		"mixed ones longer": {40, 1.20, 1.26, "all steps are 20 % longer than the coefficients say", "one factor of 1.20", differ},
		"to two percent":    {40, 1.03, 1.049, "all steps are 3 % longer than the coefficients say", "one factor of 1.03", ""},
	} {
		_, set := handScope(testkit.Llama8B())
		r := speedResiduals(set, c.n, c.decode, c.mixed)
		got := speedCandidate(r, r.loss(0, nil))
		if got == nil || got.cause != result.CauseSpeed || got.premise != c.premise || got.change != c.change || got.excluded != c.excluded {
			t.Errorf("%s: got %+v", name, got)
		} else if c.decode == c.mixed && (!near(got.share, 1) || !near(got.shareAll, 1) || !near(got.evidence, c.decode)) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	_, set := handScope(testkit.Llama8B())
	if r := speedResiduals(set, 40, 1, 1); speedCandidate(r, r.loss(0, nil)) != nil {
		t.Error("steps that take what is predicted have another speed")
	}
}
