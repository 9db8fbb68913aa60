package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/simulate"
)

// TestServersByHand: in order of arrival the requests go to one server after the other; a server without a request has
// no result. Every routing has the servers asked for, and any other is refused.
func TestServersByHand(t *testing.T) {
	engine := sim.DefaultConfig(testkit.Llama8B(), &sim.Blackbox{Beta: []float64{1000, 0, 0}})
	reqs := []sim.Request{
		{ID: "c", ArrivalUs: 300_000, PromptTokens: 10, OutputTokens: 4},
		{ID: "a", ArrivalUs: 100_000, PromptTokens: 20, OutputTokens: 5},
		{ID: "b", ArrivalUs: 200_000, PromptTokens: 30, OutputTokens: 6},
	}
	for _, c := range []struct {
		n       int
		routing string
		served  []int // requests by engine
	}{
		{1, RouteRoundRobin, []int{3}}, {1, "none", []int{3}}, {2, RouteRoundRobin, []int{2, 1}}, {4, RouteRoundRobin, []int{1, 1, 1}},
		{2, RouteLeastRequests, nil}, {3, RoutePrefix, nil},
	} {
		name := fmt.Sprint(c.n, " ", c.routing)
		requests, engines, err := Servers(engine, c.n, c.routing, reqs)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for i, r := range requests {
			if r.ArrivalUs != reqs[i].ArrivalUs || r.OutputTokens != reqs[i].OutputTokens || r.Outcome != sim.OutcomeFinished {
				t.Errorf("%s: request %d: got %+v", name, i, r)
			}
		}
		if c.served == nil {
			if len(engines) != c.n {
				t.Errorf("%s: got %d engines", name, len(engines))
			}
			continue
		}
		var served []int
		for _, e := range engines {
			served = append(served, len(e.Requests))
		}
		if !slices.Equal(served, c.served) {
			t.Errorf("%s: got %v requests by engine, want %v", name, served, c.served)
		}
		if c.n == 2 && (engines[0].Requests[0].OutputTokens != 5 || engines[0].Requests[1].OutputTokens != 4) {
			t.Errorf("%s: got %+v on the first engine, want a and c", name, engines[0].Requests)
		}
	}
	if _, _, err := Servers(engine, 2, "none", reqs); err == nil || !strings.Contains(err.Error(), `router: got "none", want round-robin, least-requests or prefix-affinity`) {
		t.Errorf("got %v", err)
	}
	for _, follower := range []sim.Request{{After: 1}, {Loop: 1}, {With: 1}} {
		if !followsAnswers([]sim.Request{{}, follower}) {
			t.Errorf("%+v: follows no answer", follower)
		}
	}
	if followsAnswers(reqs) {
		t.Error("arrivals alone follow answers")
	}
}

// TestEventsAreForgotten: of 5000 events that were applied none is applied again, and those that are due later still are.
func TestEventsAreForgotten(t *testing.T) {
	e := newEvents(10)
	for i := range 5000 {
		e.Add(1, int64(i), uint64(i), true)
	}
	e.Add(0, 5000, 3, true)
	e.Add(1, 6000, 3, false)
	to := make([]int64, 2)
	match := func(nowUs, zero, one int64) {
		t.Helper()
		clear(to)
		if e.Match([]uint64{3}, nowUs, to); to[0] != zero || to[1] != one {
			t.Errorf("at %d us: got %v, want %d and %d", nowUs, to, zero, one)
		}
	}
	match(12, 0, 0)
	match(13, 0, 1)
	match(5009, 0, 1)
	if len(e.queue) != 2 || e.head != 0 {
		t.Errorf("got %d events and %d applied, want the two that are left", len(e.queue), e.head)
	}
	match(5010, 1, 1)
	match(6010, 1, 0)
	if e.where[3] != 1 {
		t.Errorf("block 3 is at %b", e.where[3])
	}
	e.Add(0, 6001, 3, false)
	if match(7000, 0, 0); len(e.where) != 4999 {
		t.Errorf("got %d blocks, want 4999", len(e.where))
	}
}

// TestPathsBesideAFile: relative paths count from the file that has them.
func TestPathsBesideAFile(t *testing.T) {
	for _, c := range [][3]string{{"a/c.yaml", "d.json", "a/d.json"}, {"", "d.json", "d.json"}, {"a/c.yaml", "/d.json", "/d.json"}} {
		if got := pathBeside(c[0], c[1]); got != c[2] {
			t.Errorf("%v: got %s", c, got)
		}
	}
	for _, c := range []struct {
		o    Options
		want bool
	}{{Options{}, false}, {Options{File: "f"}, true}, {Options{Instances: 1}, true}, {Options{Instances: -1}, true}} {
		if got := c.o.Asked(); got != c.want {
			t.Errorf("%+v: got %v", c.o, got)
		}
	}
}

// TestRolesOfInstances: an instance of a role has no stages and the model of the others; one without connects to none.
func TestRolesOfInstances(t *testing.T) {
	s := &simulation{Simulation: &simulate.Simulation{Deployment: testkit.Llama8B()}}
	for _, c := range []struct {
		role   string
		change func(d *deploy.Deployment)
		want   string
	}{
		{"", func(*deploy.Deployment) {}, ""}, {"prefill", func(*deploy.Deployment) {}, ""},
		{"", func(d *deploy.Deployment) { d.PP = 2 }, ""},
		{"prefill", func(d *deploy.Deployment) { d.PP = 2 }, "got pipeline_parallel_size 2 in a prefill instance, want 1"},
		{"decode", func(d *deploy.Deployment) { d.Model.ID = "other" }, `got model "other" in a decode instance, want "` + testkit.Llama8B().Model.ID + `"`},
		{"", func(d *deploy.Deployment) { d.Model.ID = "other" }, ""},
	} {
		d := testkit.Llama8B()
		c.change(d)
		err := s.checkRole(d, 0, c.role)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("role %q: got %v, want %q", c.role, err, c.want)
		}
	}
}

// TestGroupsByZipf: of three groups the first has 6 of 11 requests, the second 3 and the third 2.
func TestGroupsByZipf(t *testing.T) {
	l := &load{Groups: 3}
	for _, c := range []struct {
		u    float64
		want int
	}{{0, 0}, {6.0/11 - 1e-9, 0}, {6.0/11 + 1e-9, 1}, {9.0/11 - 1e-9, 1}, {9.0/11 + 1e-9, 2}, {1 - 1e-12, 2}, {1.5, 2}} {
		if got := l.zipf(c.u); got != c.want {
			t.Errorf("%g: got group %d, want %d", c.u, got, c.want)
		}
	}
}

// TestWordsOfALoad: what a workload has is named, and what it does not have is not.
func TestWordsOfALoad(t *testing.T) {
	l := &load{Groups: 1, Prefix: [2]int64{11, 12}, Own: [2]int64{13, 14}, UniqueLen: [2]int64{15, 16}, Output: [2]int64{17, 18}, CV: 1.5}
	const rest = "17 to 18 outputs, gaps of CV 1.5, 33/34/33 % critical, standard, sheddable"
	check := func(want string) {
		t.Helper()
		if got := l.Words(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	check("one prefix of 11 tokens, 13 to 14 own tokens, " + rest)
	l.Groups, l.Unique, l.Newcomer = 2, 0.25, true
	check("2 prefix groups of 11 to 12 tokens, 13 to 14 own tokens, 25 % unique prompts of 15 to 16, " + rest + ", one more group from half-time")
}

// TestBlindInstances: with instances whose state is not known, nothing may predict.
func TestBlindInstances(t *testing.T) {
	for _, c := range []struct {
		change func(s *Spec)
		want   string
	}{
		{func(*Spec) {}, ""},
		{func(s *Spec) { s.Admission.Policy = "slo-gated" }, ""},
		{func(s *Spec) { s.Admission.Policy = "predictive" }, `admission policy: got "predictive" with x, want one that predicts nothing`},
		{func(s *Spec) { s.Admission.Policy = "size-only" }, `got "size-only" with x`},
		{func(s *Spec) { s.Admission.Policy = "clairvoyant" }, `got "clairvoyant" with x`},
		{func(s *Spec) { s.Admission.Policy = "predictive-seed" }, `got "predictive-seed" with x`},
		{func(s *Spec) { s.Admission.Policy = "latency-slo"; s.Admission.Predictor = "f" }, `got "latency-slo" with x`},
		{func(s *Spec) { s.Routing.Policy = LLMD; s.Routing.Predictor = "f" }, `routing policy: got "llmd" with x, want round-robin, least-loaded or weighted`},
		{func(s *Spec) { s.ShadowShare = 0.5 }, "shadow_share: got 0.5 with x, want 0"},
	} {
		s := defaultSpec()
		c.change(&s)
		err := s.checkBlind("x")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

// TestPolicyOfASpec: each policy has the parameters of the file, times in us.
func TestPolicyOfASpec(t *testing.T) {
	p := &parts{Seed: 9, Engines: []sim.Config{sim.DefaultConfig(testkit.Llama8B(), &sim.Blackbox{})}}
	of := func(name string) Policy {
		s := defaultSpec()
		s.Admission = admission{Policy: name, Capacity: 1, Refill: 2, Signal: "s", Thresholds: map[string]float64{"critical": 3}, QueueThreshold: 4,
			KVThreshold: 5, K: 6, Power: 7, Variant: "a", Headroom: 8, StepMs: 10, Beta0: 11, Beta1: 12, BudgetsMs: map[string]float64{"critical": 13}, AdmitUnmatched: true}
		return s.policy(p, nil)
	}
	if got := *of("token-bucket").(*tokenBucket); got.Capacity != 1 || got.RefillPerS != 2 {
		t.Errorf("token-bucket: got %+v", got)
	}
	if got := *of("slo-gated").(*sloGated); got.Signal != "s" || got.Thresholds["critical"] != 3 {
		t.Errorf("slo-gated: got %+v", got)
	}
	if got := *of("gaie-legacy").(*gaieLegacy); got.Queue != 4 || got.KV != 5 {
		t.Errorf("gaie-legacy: got %+v", got)
	}
	if got := *of("probabilistic").(*probabilistic); got.Queue != 4 || got.KV != 5 || got.K != 6 || got.Power != 7 || got.Seed != 9 {
		t.Errorf("probabilistic: got %+v", got)
	}
	if got := *of("predictive-seed").(*Seed); got.Variant != "a" || got.Headroom != 8 || got.StepUs != 10_000 || got.Beta0 != 11 || got.Beta1 != 12 ||
		got.BudgetUs["critical"] != 13_000 || !got.AdmitUnmatched {
		t.Errorf("predictive-seed: got %+v", got)
	}
	if _, ok := of("latency-slo").(*latencySLO).Estimate.(*Rollout); !ok {
		t.Error("latency-slo: does not roll out")
	}
	if got := of("always-admit"); got != (Always{}) {
		t.Errorf("always-admit: got %+v", got)
	}
	s := defaultSpec()
	for _, c := range []struct {
		scheduler, engine string
		want              bool
	}{{"", "fcfs", false}, {"", "priority", true}, {priorityFCFS, "fcfs", true}, {"fcfs", "priority", false}} {
		s.Scheduler = c.scheduler
		p.Engines[0].Deployment.Engine.SchedulingPolicy = c.engine
		if got := s.byPriority(p.Engines); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// TestContrastCells: shares and goodputs are points of percent, and other figures are as they are.
func TestContrastCells(t *testing.T) {
	x := func(v float64) *float64 { return &v }
	for _, c := range []struct {
		figure string
		v      *float64
		want   string
	}{
		{"goodput", x(0.25), "25"}, {"goodput_critical", x(-0.5), "-50"}, {"admitted_share", x(0.125), "12.5"}, {"ttft_p99_critical_ms", x(0.25), "0.25"},
		{"output_tokens_per_s", x(40), "40"}, {"goodput", nil, report.Unknown}, {"share", x(2), "2"},
	} {
		if got := strings.ReplaceAll(differenceText(c.figure, c.v), "−", "-"); got != c.want {
			t.Errorf("%s: got %s, want %s", c.figure, got, c.want)
		}
	}
	contrasts := []contrastDoc{{A: "a", B: "b", Figure: "goodput", Effect: x(0.1)}, {A: "a", B: "b", Figure: "admitted_share", Effect: x(0.2)},
		{A: "a", B: "b", Figure: "output_tokens_per_s", Effect: x(30)}, {A: "a", B: "c", Figure: "goodput_critical", Effect: x(0.4)},
		{A: "a", B: "b", Figure: "goodput_critical", Effect: x(0.5)}, {A: "a", B: "b", Figure: "ttft_p99_critical_ms", Effect: x(6)}}
	texts := func(row []report.Cell) (out []string) {
		for _, c := range row {
			out = append(out, c.Text)
		}
		return out
	}
	table := componentTable(contrasts)
	if len(table.Rows) != 1 || !slices.Equal(texts(table.Rows[0].Cells), []string{"a", "b", "10", "50", "20", "6", "30"}) {
		t.Errorf("components: got %+v", table.Rows)
	}
	at := &loadDoc{Rho: 0.69, RateRPS: 12, WindowS: [2]float64{3, 4}, Contrasts: contrasts, Cells: []loadCellDoc{
		{Name: "b", Figures: map[string]figureDoc{"goodput": {Mean: x(0.5)}}},
		{Name: "a", Figures: map[string]figureDoc{"goodput": {Mean: x(0.25)}, "admitted_share": {Mean: x(0.75)}, "miss_share_standard": {Mean: x(0.0625)},
			"miss_share_sheddable": {Mean: x(0.125)}, "ttft_p99_critical_ms": {Mean: x(80)}}},
	}}
	table = loadTable(3, at)
	if want := "The gates at 0.69 of capacity, 12 requests/s, arrivals from 3 to 4 s: every effect must vanish"; table.Caption != want {
		t.Errorf("got %q, want %q", table.Caption, want)
	}
	want := []string{"a", report.Percent(x(0.25)).Text, report.Percent(x(0.75)).Text, report.Percent(x(0.0625)).Text, report.Percent(x(0.125)).Text,
		report.Number(x(80)).Text, "10", "20", "30"}
	if len(table.Rows) != 2 || !slices.Equal(texts(table.Rows[1].Cells), want) {
		t.Errorf("load: got %q, want %q", texts(table.Rows[1].Cells), want)
	}
	at.Rho = 0.7
	if got := loadTable(3, at).Caption; strings.Contains(got, "vanish") {
		t.Errorf("at 0.7 of capacity: got %q", got)
	}
}

// TestIndexAtTheFirstToken: the first token of a request enters its blocks into the index only where that is asked for.
func TestIndexAtTheFirstToken(t *testing.T) {
	for update, want := range map[string]uint64{OnRoute: 0, onFirstToken: 1 << 1, kvEvents: 0} {
		cfg := &Config{Policy: Always{}}
		cfg.Routing.IndexUpdate = update
		c := &cluster{cfg: cfg, seen: []Request{{Hashes: []uint64{7}, Blocks: 1}}, view: View{Ledger: newLedger(2, 1)}, index: newIndex(2, 10)}
		c.out.Records = make([]record, 1)
		c.firstToken(0, 1, 50)
		if got := c.index.where[7]; got != want {
			t.Errorf("%s: block 7 is at %b, want %b", update, got, want)
		}
	}
}
