package predict

import (
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// TestEstimatesByHand: means with their intervals, and with six replications the regression on the excess of arrivals.
func TestEstimatesByHand(t *testing.T) {
	of := func(s *Sample) float64 { return s.ServedS }
	samples := func(values, excess []float64) (out []*Sample) {
		for i := range values {
			out = append(out, &Sample{ServedS: values[i], excess: excess[i], TTFT: make([]float64, 10)})
		}
		return out
	}
	if got := ValueOf(samples([]float64{7}, []float64{0.1}), of); got != (Value{7, 7, 7}) {
		t.Errorf("one replication: got %+v", got)
	}
	three := samples([]float64{6, 8, 10}, []float64{-0.1, 0, 0.1})
	half := stat.StudentT(0.975, 2) * 2 / math.Sqrt(3)
	if got := ValueOf(three, of); !near(got.Value, 8) || !near(got.Low, 8-half) || !near(got.High, 8+half) {
		t.Errorf("three: got %+v, want 8 +- %g", got, half)
	}
	// Values 10 + 20 x excess +- 1: the mean excess is 0.05 and the squares of the excess about it are 0.175.
	excess := []float64{-0.2, -0.1, 0, 0.1, 0.2, 0.3}
	values := []float64{7, 7, 11, 11, 13, 17}
	e := estimateOf(samples(values, excess), of)
	mean := 11.0
	products := -0.25*-4 + -0.15*-4 + -0.05*0 + 0.05*0 + 0.15*2 + 0.25*6
	slope := products / 0.175
	squares := 0.0
	for i, x := range excess {
		off := values[i] - mean - slope*(x-0.05)
		squares += off * off
	}
	residual := math.Sqrt(squares / 4)
	wantHalf := stat.StudentT(0.975, 4) * residual * math.Sqrt(1./6+0.05*0.05/0.175)
	if !near(e.slope, slope) || !near(e.mean, mean-slope*0.05) || !near(e.residual, residual) || !near(e.half, wantHalf) {
		t.Errorf("got %+v, want %g +- %g, slope %g, residual %g", e, mean-slope*0.05, wantHalf, slope, residual)
	}
	if got := estimateOf(samples(values[:5], excess[:5]), of); got.slope != 0 {
		t.Errorf("five replications: got %+v", got)
	}
	if got := estimateOf(samples(values, make([]float64, 6)), of); got.slope != 0 || !near(got.mean, 11) {
		t.Errorf("no excess: got %+v", got)
	}
	values[0] = math.Inf(1)
	if got := estimateOf(samples(values, excess), of); got.slope != 0 {
		t.Errorf("an infinite value: got %+v", got)
	}
	// A repetition of 40 requests where a replication has 10, at most 10 % wide.
	same := samples([]float64{6, 8, 10}, make([]float64, 3))
	perReplication := estimateOf(same, of)
	own := half / 1.96
	repeated := 1.96 * math.Sqrt(perReplication.residual*perReplication.residual*10/40+own*own)
	if got := Widened(same, of, 40, 10); !near(got.High-8, math.Max(half, repeated)) || !near(8-got.Low, got.High-8) {
		t.Errorf("got %+v, want 8 +- %g", got, repeated)
	}
	if got := Widened(samples([]float64{8, 8.1, 7.9}, make([]float64, 3)), of, 1, 0.1); !near(got.High-got.Value, 0.4) {
		t.Errorf("no wider than 10 %%: got %+v", got)
	}
}

// TestTargetsByHand: statistics and shares at the ends of their ranges.
func TestTargetsByHand(t *testing.T) {
	for figure, want := range map[string]float64{"": 0.9, "mean": 0, "p50": 0.5, "p1": 0.01, "p99.9": 0.999, "p0.99": -1, "p99.91": -1, "50": -1, "px": -1, "p": -1} {
		if got, ok := parseFigure(figure); ok != (want >= 0) || ok && !near(got, want) {
			t.Errorf("%q: got %g, %v", figure, got, ok)
		}
	}
	for text, want := range map[string]float64{"95%": 0.95, "95": 0.95, "0.95": 0.95, "1": 1, "100%": 1, "0.5%": 0.005, "0": -1, "101%": -1, "-1": -1, "x": -1} {
		if got, err := parseShare(text); (err == nil) != (want >= 0) || err == nil && !near(got, want) {
			t.Errorf("%q: got %g, %v", text, got, err)
		}
	}
	for metric, want := range map[string]float64{TTFT: 0.5, TPOT: 0.2, ITL: 0.2, E2E: 0.5} {
		if got := ErrorOf(metric, 0.5, 0.2); got != want {
			t.Errorf("%s: got %g", metric, got)
		}
	}
	if ErrorOf(E2E, 0.1, 0.2) != 0.2 {
		t.Error("the larger error bounds E2E")
	}
	for tokens, want := range map[int64][2]int64{1000: {int64(1000 * (1 - lengthSpread)), int64(1000 * (1 + lengthSpread))}, 1: {1, 1}} {
		if got := spread(tokens); got.Min != want[0] || got.Max != want[1] || got.Kind != "uniform" {
			t.Errorf("%d tokens: got %+v", tokens, got)
		}
	}
	requests := []sim.Request{{ID: "a"}, {ID: "b", After: 1, Hashes: []uint64{5}}}
	for n, want := range map[int]int{1: 2, 2: 2, 3: 4, 4: 4, 5: 6} {
		got := repeated(slices.Clone(requests), n)
		if len(got) != want {
			t.Errorf("at least %d: got %d", n, len(got))
		}
		if want > 2 && (got[3].ID != "b+3" || got[3].After != 3 || got[3].Hashes[0] != 5^2<<40 || got[2].After != 0 || requests[1].Hashes[0] != 5) {
			t.Errorf("got %+v", got[3])
		}
	}
}

// TestStretchesByHand: how many requests come before and after those that are measured.
func TestStretchesByHand(t *testing.T) {
	for name, c := range map[string]struct {
		load          Load
		before, after int
		meanSpanS     float64
	}{
		"arrivals": {Load{RateRPS: 3, InputTokens: 10, OutputTokens: 5}, 8, 8, 4. / 3}, // 7.5 in 2.5 s
		"clients":  {Load{Clients: 5, InputTokens: 10, OutputTokens: 5}, 10, 7, 0},
	} {
		s, err := c.load.Stretch(1, 5, 2.5, 1)
		if err != nil || s.from != c.before || s.until != c.before+5 || len(s.Requests) != c.before+5+c.after || !near(s.meanSpanS, c.meanSpanS) {
			t.Errorf("%s: got %d to %d of %d, %g s, %v", name, s.from, s.until, len(s.Requests), s.meanSpanS, err)
		}
		measured := 0
		for i := range s.Requests {
			if !s.Requests[i].Unmeasured {
				measured++
			}
		}
		if measured != 5 || s.Requests[c.before].Unmeasured || !s.Requests[c.before+5].Unmeasured {
			t.Errorf("%s: got %d measured", name, measured)
		}
		start, err := c.load.Start(1, 2.5)
		first := map[string]int{"arrivals": 8, "clients": 5}[name]
		if err != nil || start.from != 0 || start.until != first {
			t.Errorf("%s: the start has %d to %d, %v", name, start.from, start.until, err)
		}
	}
	if _, err := (&Load{Clients: 5}).Start(1, 1); err == nil {
		t.Error("a load without lengths starts")
	}
	w := &workload.Workload{Requests: []sim.Request{{PromptTokens: 5}, {PromptTokens: 6, ArrivalUs: 4}, {PromptTokens: 7, ArrivalUs: 3}}}
	l := &Load{Workload: w}
	for tokens, want := range map[int64]int{5: 3, 6: 2, 7: 1, 8: 0} {
		if got := l.CountLonger(tokens); got != want {
			t.Errorf("longer than %d: got %d", tokens, got)
		}
	}
	if lastArrivalUs(w.Requests) != 4 || !l.IsRecording() || !(&Load{Workload: w, RateRPS: 3}).IsRecording() || (&Load{Workload: w, Clients: 3}).IsRecording() || (&Load{}).IsRecording() {
		t.Error("a recording is a workload without clients")
	}
	l = &Load{CachedShare: 0.5}
	if l.markCached(w.Requests); w.Requests[0].CachedTokens != trace.Some[int64](2) || w.Requests[2].CachedTokens != trace.Some[int64](3) {
		t.Errorf("got %+v", w.Requests)
	}
	l = &Load{Workload: w, Clients: 2}
	s, err := l.drawWorkload(1, 3, 0.5)
	if err != nil || s.from != 4 || s.until != len(s.Requests)-4 || len(s.Requests) != 12 {
		t.Errorf("clients: got %d to %d of %d, %v", s.from, s.until, len(s.Requests), err)
	}
	l = &Load{Workload: w, RateRPS: 1000}
	if s, err = l.drawWorkload(1, 3, 0); err != nil || lastArrivalUs(s.Requests) != 3000 {
		t.Errorf("three requests at 1000 per s: the last comes at %d us, %v", lastArrivalUs(s.Requests), err)
	}
}

// TestPartsOfTTFTByHand: two requests, of which the first waits in the front end, in the queue and for the running step.
func TestPartsOfTTFTByHand(t *testing.T) {
	us := trace.Some[int64]
	w := &stepParts{steps: map[int64][library.NumTimeParts]float64{3: {library.LinearTime: 100}, 4: {library.LinearTime: 200, library.LaunchTime: 50}, 5: {library.LinearTime: 1e9}}}
	r := sim.RequestResult{ArrivalUs: 1000, EnqueuedUs: us(1300), ScheduledUs: us(2000), FirstTokenUs: us(3000), FirstStep: 4}
	r.ScheduledStep = 3
	res := &sim.Result{Requests: []sim.RequestResult{r, r, r, r}}
	res.Requests[1].Preemptions = 1
	res.Requests[2].ScheduledStep = 0
	s := &Stretch{Requests: make([]sim.Request, 4)}
	s.Requests[3].Unmeasured = true
	var got requestParts
	w.addRequests(s, res, &got)
	ttft, _ := r.TTFTUs()
	want := requestParts{requests: 1, frontUs: ttft - 1700, queueUs: 700, waitUs: 1000 - 350}
	want.stepsUs[library.LinearTime], want.stepsUs[library.LaunchTime] = 300, 50
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	res.Requests[3].ScheduledStep = 1
	s.Requests[3].Unmeasured = false
	if w.addRequests(s, res, &got); got.requests != 3 {
		t.Errorf("got %g requests", got.requests)
	}
	var list []string
	for i := range numShares {
		list = append(list, resourceOf(shareNames[i]))
	}
	if !slices.Equal(list, []string{"memory bandwidth", "memory bandwidth", "compute", "interconnect", "launches and host work", "launches and host work"}) {
		t.Errorf("got %q", list)
	}
	b := &stepBreakdown{us: [numShares]float64{1, 2, 3, 4, 5, 5}}
	for i, share := range b.shares() {
		if share.Name != shareNames[i] || !near(share.Share, b.us[i]/20) {
			t.Errorf("got %+v", share)
		}
	}
	if (&stepBreakdown{}).shares() != nil || (*stepBreakdown)(nil).shares() != nil {
		t.Error("no step has shares")
	}
}

// TestSamplesByHand: three measured requests in 10 s, of which one got no answer, and one before them.
func TestSamplesByHand(t *testing.T) {
	us := trace.Some[int64]
	answered := func(at, first, left, tokens int64) sim.RequestResult {
		return sim.RequestResult{ArrivalUs: at * 1e6, QueuedUs: us(at * 1e6), FirstTokenUs: us(first * 1e6), FinishedUs: us(left * 1e6), DepartedUs: us(left * 1e6), OutputTokens: tokens, Outcome: sim.OutcomeFinished}
	}
	results := []sim.RequestResult{answered(0, 2, 12, 11), answered(10, 11, 14, 4), {ArrivalUs: 15e6, QueuedUs: us(15e6), Outcome: sim.OutcomeUnfinished}, answered(20, 22, 30, 5)}
	s := &Stretch{Requests: make([]sim.Request, 4), meanSpanS: 8}
	s.Requests[0].Unmeasured = true
	m := NewSample(results, []*sim.Result{{}}, s)
	if !slices.Equal(m.TTFT, []float64{1000, 2000}) || !slices.Equal(m.E2E, []float64{4000, 10_000}) || !slices.Equal(m.TPOT, []float64{1000, 2000}) || m.lost != 1 {
		t.Errorf("got %v, %v, %v, %d lost", m.TTFT, m.E2E, m.TPOT, m.lost)
	}
	// From the first answer at 14 s to the last at 30 one more was answered; in flight from 10 to 20 s were the first for 2,
	// the second for 4 and the third for 5.
	if m.ServedS != 16 || m.Served != 1 || m.Tokens != 5 || !near(m.MeanInFlight, 1.1) || !near(m.excess, 1-10./8) {
		t.Errorf("got %g s, %d, %d tokens, %g in flight, an excess of %g", m.ServedS, m.Served, m.Tokens, m.MeanInFlight, m.excess)
	}
	for _, c := range []struct {
		metric   string
		quantile float64
		want     float64
	}{{TTFT, 0.5, 2000}, {TTFT, 0.25, 1500}, {TTFT, 0, math.Inf(1)}, {E2E, 0.5, 10_000}, {TPOT, 0.5, 2000}} {
		if got := m.Figure(c.metric, c.quantile); got != c.want {
			t.Errorf("%s %g: got %g, want %g", c.metric, c.quantile, got, c.want)
		}
	}
	if got := m.Goodput([]Target{{Metric: TTFT, LimitMs: 1000}, {Metric: E2E, LimitMs: 4000}}); !near(got, 1./3) {
		t.Errorf("got a goodput of %g", got)
	}
	if got := m.Goodput([]Target{{Metric: TPOT, LimitMs: 999}}); got != 0 {
		t.Errorf("got a goodput of %g", got)
	}
	first := m.ascending(TTFT)
	if again := m.ascending(TTFT); &first[0] != &again[0] {
		t.Error("the values are sorted again")
	}
}
