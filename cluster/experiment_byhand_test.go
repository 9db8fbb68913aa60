package cluster

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/trace"
)

// evidenceOf is a contrast with an interval and a corrected p value.
func evidenceOf(lo, hi, holm float64) contrastDoc {
	return contrastDoc{Lo: &lo, Hi: &hi, Holm: &holm}
}

// TestVerdictByHand: what decides about a statement, just at and just beyond each limit.
func TestVerdictByHand(t *testing.T) {
	d := &Document{Preset: "sweep", Label: "stationary", Rho: 1.5, HorizonS: 40, Seeds: seedsOf(3)}
	const tail = " (preset sweep, stationary, rho 1.50, 40 s of arrivals, 3 seeds)"
	above, below := evidenceOf(0.001, 2, 0.05), evidenceOf(-2, -0.001, 0.05)
	for name, c := range map[string]struct {
		blocked  []string
		evidence []contrastDoc
		seeds    int
		want     string
		why      string
	}{
		"all above":            {nil, []contrastDoc{above, above}, 8, confirmed, "every endpoint lies above its bound, and its interval excludes 0"},
		"one below":            {nil, []contrastDoc{above, below}, 8, refuted, "an endpoint lies below its bound, and its interval excludes 0"},
		"one touches 0":        {nil, []contrastDoc{above, evidenceOf(0, 2, 0.01)}, 8, inconclusive, "an endpoint is not significant: its interval contains 0, or its corrected p is above 0.05"},
		"0 from below":         {nil, []contrastDoc{evidenceOf(-2, 0, 0.01)}, 8, inconclusive, "an endpoint is not significant: its interval contains 0, or its corrected p is above 0.05"},
		"p above 5 %":          {nil, []contrastDoc{evidenceOf(1, 2, 0.0501)}, 8, inconclusive, "an endpoint is not significant: its interval contains 0, or its corrected p is above 0.05"},
		"p above 5 % below":    {nil, []contrastDoc{evidenceOf(-2, -1, 0.0501)}, 8, inconclusive, "an endpoint is not significant: its interval contains 0, or its corrected p is above 0.05"},
		"no interval":          {nil, []contrastDoc{above, {}}, 8, inconclusive, "an endpoint has no finite difference"},
		"no corrected p":       {nil, []contrastDoc{{Lo: num(1), Hi: num(2)}}, 8, inconclusive, "an endpoint has no finite difference"},
		"nothing":              {nil, nil, 8, inconclusive, "an endpoint has no finite difference"},
		"seven seeds":          {nil, []contrastDoc{above}, 7, inconclusive, "7 seeds are too few for a verdict, at least 8 are needed"},
		"blocked before seeds": {[]string{"a", "b"}, []contrastDoc{above}, 7, notTestable, "a; b"},
	} {
		s := &statement{id: "H", text: "text", blocked: c.blocked, evidence: c.evidence}
		got := s.verdict(&lab{seeds: seedsOf(c.seeds)}, d)
		if got.Verdict != c.want || got.Why != c.why+tail || got.ID != "H" || got.Statement != "text" || got.Evidence == nil || len(got.Evidence) != len(c.evidence) {
			t.Errorf("%s: got %s, %q", name, got.Verdict, got.Why)
		}
	}
	// The p values of all statements are corrected together: the smallest of three by 3, the next by 2.
	l := &lab{seeds: seedsOf(8)}
	p := func(v float64) contrastDoc { return contrastDoc{Lo: num(1), Hi: num(2), P: &v} }
	list := []statement{{id: "a", evidence: []contrastDoc{p(0.02), p(0.03)}}, {id: "b", evidence: []contrastDoc{p(0.01)}}}
	got := l.verdicts(d, list)
	if len(got) != 2 || !close9(*got[0].Evidence[0].Holm, 0.04) || !close9(*got[0].Evidence[1].Holm, 0.04) || !close9(*got[1].Evidence[0].Holm, 0.03) {
		t.Errorf("got %+v", got)
	}
	if !math.IsNaN(knownOrNaN(nil)) || knownOrNaN(num(3)) != 3 {
		t.Error("got another value of an unknown one")
	}
}

// TestConfirmedByControllers: what the reason of a verdict adds about the controllers.
func TestConfirmedByControllers(t *testing.T) {
	for want, kinds := range map[string]map[string]string{
		"": {"same": inconclusive, "fitted": refuted},
		"; confirmed only for controller same, the upper bound":        {"same": confirmed, "fitted": inconclusive},
		"; confirmed for every controller: fitted, same":               {"same": confirmed, "fitted": confirmed, "biased-0.7": ""},
		"; confirmed for controllers fitted, not for biased-0.7, same": {"same": refuted, "fitted": confirmed, "biased-0.7": inconclusive},
	} {
		d := &Document{Verdicts: []verdictDoc{{ID: "H14-4", Why: "why"}}}
		for _, kind := range []string{"biased-0.7", "fitted", "same"} {
			if v := kinds[kind]; v != "" {
				d.Controllers = append(d.Controllers, controllerDoc{Kind: kind, Verdicts: map[string]string{"H14-4": v, "H14-3": confirmed}})
			}
		}
		if carryVerdicts(d); d.Verdicts[0].Why != "why"+want {
			t.Errorf("got %q, want %q", d.Verdicts[0].Why, want)
		}
	}
}

// TestFrontierPointsByHand: points between settings, and the common range of two frontiers.
func TestFrontierPointsByHand(t *testing.T) {
	f := []point{{10, 0.1, 0.3}, {20, 0.2, 0.5}, {40, 0.6, 0.4}}
	for x, want := range map[float64]point{
		5: {5, 0.1, 0.3}, 10: {10, 0.1, 0.3}, 15: {15, 0.15, 0.4}, 20: {20, 0.2, 0.5}, 25: {25, 0.3, 0.475}, 40: {40, 0.6, 0.4}, 50: {50, 0.6, 0.4},
	} {
		if got := pointAt(f, x); !close9(got.p99, want.p99) || !close9(got.admitted, want.admitted) || !close9(got.goodput, want.goodput) {
			t.Errorf("at %g ms: got %+v, want %+v", x, got, want)
		}
	}
	if got := pointAt(f[:1], 99); got != (point{99, 0.1, 0.3}) {
		t.Errorf("one setting: got %+v", got)
	}
	if got := pointAt([]point{{10, 0.1, 0.3}, {10, 0.2, 0.5}}, 10); got != (point{10, 0.1, 0.3}) {
		t.Errorf("two settings of one P99: got %+v", got)
	}
	for _, c := range []struct {
		b    []point
		want float64
		ok   bool
	}{
		{[]point{{30, 0, 0}, {90, 0, 0}}, 35, true}, {[]point{{40, 0, 0}, {90, 0, 0}}, 40, true}, {[]point{{1, 0, 0}, {10, 0, 0}}, 10, true},
		{[]point{{41, 0, 0}}, 40.5, false}, {nil, 0, false},
	} {
		if got, ok := commonP99(f, c.b); ok != c.ok || got != c.want {
			t.Errorf("%v: got %g, %v", c.b, got, ok)
		}
		if got, ok := commonP99(c.b, f); ok != c.ok || got != c.want {
			t.Errorf("%v, exchanged: got %g, %v", c.b, got, ok)
		}
	}
}

// ownOutcome is a run whose figures have values of their own: goodput g, of which the others are multiples.
func ownOutcome(g float64) *outcome {
	n := func(share float64) int { return int(math.Round(share * 1e6)) }
	return &outcome{
		Goodput: &Goodput{
			All:      Class{Arrived: 1e6, Admitted: n(g * 1.5), Good: n(g)},
			Classes:  []Class{{Name: "critical", Arrived: 1e6, Good: n(g / 2)}},
			Critical: 200 * g, Admitted: 150 * g, Everybody: 400 * g, OutputPerS: 5000 * g, PotentialShare: g / 4, PotentialCV: g,
			Live: audit{MedianAPE: g / 5, Bias: g / 6, Coverage90: g / 7}, Shadow: audit{MedianAPE: g / 8, Coverage90: g / 9},
		},
		Worst: 300 * g, Slope: 9 * g, Seats: g / 3, LifetimeS: 2 * g, Digest: fmt.Sprintf("%.6f", g),
	}
}

// ownLab is an experiment of three seeds whose i-th cell has the goodput 0.2 + 0.01 i, and 0.001 more with each further seed.
func ownLab() *lab {
	l := &lab{seeds: seedsOf(3), rate: 300, capacity: 200, preset: preset{Name: "seed", Seconds: 50, WarmupS: 10}}
	l.Instances = 4
	l.gate.Kind = "fitted"
	l.plant.Name = "engines"
	l.warnings = []trace.Finding{{Code: "c"}}
	l.cells = slices.Concat(presetCells(), extraCells(), frontiers())
	for i := range l.cells {
		var runs []*outcome
		for s := range l.seeds {
			runs = append(runs, ownOutcome(0.2+0.01*float64(i)+0.001*float64(s)))
		}
		l.runs = append(l.runs, runs)
	}
	return l
}

// goodputIn returns the mean goodput of a cell of ownLab.
func goodputIn(t *testing.T, l *lab, name string) float64 {
	t.Helper()
	i := slices.IndexFunc(l.cells, func(c cell) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no cell %q", name)
	}
	return 0.2 + 0.01*float64(i) + 0.001
}

// TestExperimentDocumentByHand states the figures of experiment.json that the runs of the cells decide.
func TestExperimentDocumentByHand(t *testing.T) {
	l := ownLab()
	main := l.runsOf(mainCell)
	main[0].Points = []pair{{PredictedMs: 1, TookMs: 2, Shadow: true}}
	for s := range main {
		main[s].Reliability[3] = reliability{N: 2, Expected: 0.7, Met: 0.5 + 0.1*float64(s)}
	}
	l.load.Newcomer = true
	for _, name := range []string{mainCell, noFloorCell, alwaysCell} {
		for s, o := range l.runsOf(name) {
			o.Newcomer = newcomer{Ratio: []float64{0.5 + 0.1*float64(s)}, SecondS: trace.Some(float64(4 + s))}
		}
	}
	l.runsOf(noFloorCell)[1].Newcomer.SecondS = trace.Opt[float64]{}
	main[2].Newcomer.Ratio = append(main[2].Newcomer.Ratio, 0.9)
	d := l.documentOfRuns()
	mainG, oldG := goodputIn(t, l, mainCell), goodputIn(t, l, oldCell)
	if d.Preset != "seed" || d.Label != "stationary" || d.Controller != "fitted" || d.Plant != "engines" || d.Instances != 4 || d.RateRPS != 300 ||
		d.CapacityRPS != 200 || d.Rho != 1.5 || d.HorizonS != 50 || d.WindowS != [2]float64{10, 50} || !close9(d.LifetimeS, 2*mainG) || !slices.Equal(d.Seeds, seedsOf(3)) ||
		d.ArrivalDigest != "0.200.200.20" || !close9(*d.MatchedCV, oldG) || len(d.Warnings) != 1 {
		t.Errorf("got %+v", d)
	}
	// Cells: 13 of the preset, 9 further ones and 13 of the frontiers.
	if len(d.Cells) != 35 {
		t.Fatalf("got %d cells", len(d.Cells))
	}
	for i, c := range d.Cells {
		g := 0.2 + 0.01*float64(i) + 0.001
		f := c.Figures["goodput"]
		half := stat.StudentT(0.975, 2) * 0.001 / math.Sqrt(3)
		if c.Name != l.cells[i].Name || c.Role != l.cells[i].Role || !close9(*f.Mean, g) || math.Abs(*f.Hi-g-half) > 1e-6 || math.Abs(g-half-*f.Lo) > 1e-6 || f.N != 3 || f.Infinite != 0 ||
			(c.Parameter != nil) != (c.Role == roleFrontier) || c.Stationary != (9*g < 3) || c.Scheduler != l.cells[i].Spec.Scheduler {
			t.Errorf("cell %d: got %+v", i, c)
		}
	}
	byName := map[string]cellDoc{}
	for _, c := range d.Cells {
		byName[c.Name] = c
	}
	if c := byName[robinCell]; c.PublishedNumber != 5 || c.Admission != "always-admit" || c.Routing != "round-robin" || c.Scheduler != "fcfs" {
		t.Errorf("got %+v", c)
	}
	if c := byName[matchedCell]; c.Admission != "random-matched" || c.Routing != scorersNew {
		t.Errorf("got %+v", c)
	}
	if c := byName["slo-gated threshold 16"]; *c.Parameter != 16 || c.Admission != "slo-gated" {
		t.Errorf("got %+v", c)
	}
	// Published figures beside ours.
	if p := d.Published[3]; len(d.Published) != 5 || p.Cell != gatedCell || p.PublishedNumber != 2 || p.PublishedMs != 120 || p.Statistic != "critical" || *p.Rejected != 0.5 {
		t.Errorf("got %+v", d.Published)
	} else if g := goodputIn(t, l, gatedCell); !close9(*p.CriticalMs, 200*g) || !close9(*p.PooledMs, 150*g) || !close9(*p.WorstMs, 300*g) || !close9(*p.OurRejected, 1-1.5*g) {
		t.Errorf("got %g, %g, %g ms, %g rejected", *p.CriticalMs, *p.PooledMs, *p.WorstMs, *p.OurRejected)
	}
	if d.Published[2].Rejected != nil || *d.Published[0].Rejected != 0 {
		t.Error("shares that were not published, or 0")
	}
	if len(d.Scatter) != 1 || d.Scatter[0] != (pointDoc{1, 2, true}) {
		t.Errorf("got %+v", d.Scatter)
	}
	// The newcomer's curves, with means over the seeds that got so far.
	if len(d.Newcomer) != 3 || d.Newcomer[0].Cell != mainCell || !close9(*d.Newcomer[0].Ratio[0], 0.6) || *d.Newcomer[0].Ratio[1] != 0.9 || *d.Newcomer[0].ReachedS != 5 ||
		d.Newcomer[1].ReachedS != nil || len(d.Newcomer[1].Ratio) != 1 {
		t.Errorf("got %+v", d.Newcomer)
	}
	if len(d.Reliability) != 1 || d.Reliability[0].From != 0.3 || d.Reliability[0].To != 0.4 || d.Reliability[0].Requests != 6 || !close9(d.Reliability[0].Expected, 0.35) || !close9(d.Reliability[0].Met, 1.8/6) {
		t.Errorf("got %+v", d.Reliability)
	}
	if best := "predictive eps 0.5"; d.Hindsight.Cell != best || !close9(d.Hindsight.Goodput, goodputIn(t, l, best)) {
		t.Errorf("got %+v", d.Hindsight)
	}
	// Ten pairs and the nine further cells, five figures each.
	if len(d.Contrasts) != 5*(10+9) {
		t.Errorf("got %d contrasts", len(d.Contrasts))
	}
	for i, want := range []struct {
		a, b, figure string
		factor       float64
	}{{mainCell, alwaysCell, "goodput", 1}, {mainCell, alwaysCell, "goodput_critical", 0.5}, {mainCell, alwaysCell, "admitted_share", 1.5}, {mainCell, alwaysCell, "ttft_p99_critical_ms", 200},
		{mainCell, alwaysCell, "output_tokens_per_s", 5000}, {mainCell, gatedCell, "goodput", 1}} {
		c := d.Contrasts[i]
		if c.A != want.a || c.B != want.b || c.Figure != want.figure || math.Abs(*c.Effect-want.factor*(goodputIn(t, l, want.a)-goodputIn(t, l, want.b))) > 1e-5*want.factor || c.N != 3 {
			t.Errorf("contrast %d: got %+v", i, c)
		}
	}
	if c := d.Contrasts[len(d.Contrasts)-5]; c.A != mainCell || c.B != "today's qd, predictive pa4qd3 priority" {
		t.Errorf("got %+v", c)
	}
	// A preset that is called transient is so, and one whose backlog grows by 1 % of the rate.
	l.preset.Transient = true
	if got := l.documentOfRuns().Label; got != "transient" {
		t.Errorf("got %s", got)
	}
	l.preset.Transient, l.preset.Name, l.load.Newcomer = false, "sweep", false
	l.rate = 899 * mainG
	if got := l.documentOfRuns(); got.Label != "transient" || len(got.Published) != 0 || len(got.Newcomer) != 0 {
		t.Errorf("got %s, %d published", got.Label, len(got.Published))
	}
	l.rate = 901 * mainG
	if !l.isStationary(main) {
		t.Error("a backlog that grows by less than 1 % of the rate is not stationary")
	}
}

// TestStatementsByHand: what the four statements compare, and what blocks them.
func TestStatementsByHand(t *testing.T) {
	l := ownLab()
	own := l.sides()
	d := l.documentOfRuns()
	mainG, gatedG, matchedG := goodputIn(t, l, mainCell), goodputIn(t, l, gatedCell), goodputIn(t, l, matchedCell)
	cache, latency, tokens := l.cacheStatement(d, own), l.latencyStatement(own), throughput(own)
	for _, c := range []struct {
		s     statement
		id    string
		i     int
		a, b  string
		named string
		want  float64
	}{
		{cache, "H14-2", 0, mainCell, matchedCell, "potential_share", mainG/4 - matchedG/4},
		{latency, "H14-3", 0, "100 ms", mainCell, "ttft_p99_admitted_ms", 100 - 150*mainG},
		{latency, "H14-3", 1, mainCell, gatedCell + " less 1 point", "goodput", mainG - gatedG + 0.01},
		{tokens, "H14-4", 0, mainCell, "0.95 x " + gatedCell, "output_tokens_per_s", 5000 * (mainG - 0.95*gatedG)},
	} {
		e := c.s.evidence[c.i]
		if c.s.id != c.id || e.A != c.a || e.B != c.b || e.Figure != c.named || math.Abs(*e.Effect-c.want) > 1e-5*math.Max(1, math.Abs(c.want)) {
			t.Errorf("%s: got %+v with an effect of %g, want %g", c.id, e, *e.Effect, c.want)
		}
	}
	if len(cache.blocked)+len(latency.blocked)+len(tokens.blocked) != 0 {
		t.Errorf("got %q, %q, %q", cache.blocked, latency.blocked, tokens.blocked)
	}
	// Preconditions, at their limits.
	d.LifetimeS = 4
	if got := l.cacheStatement(d, own).blocked; len(got) != 0 {
		t.Errorf("ten lifetimes: got %q", got)
	}
	d.LifetimeS = 4.1
	if got := l.cacheStatement(d, own).blocked; len(got) != 1 || got[0] != "the window of 40 s is shorter than ten lifetimes of 4.1 s" {
		t.Errorf("got %q", got)
	}
	l.preset.Seconds = 40
	if got := l.latencyStatement(own).blocked; len(got) != 0 {
		t.Errorf("30 s: got %q", got)
	}
	l.preset.Seconds = 39
	l.rate = 100
	if got := l.latencyStatement(own).blocked; len(got) != 2 || got[0] != "the window of 29 s is shorter than 30 s" || !strings.Contains(got[1], "not stationary") {
		t.Errorf("got %q", got)
	}
	rejecting := func(share, cv float64) []string {
		o := &outcome{Goodput: &Goodput{All: Class{Arrived: 1000, Admitted: int(math.Round(1000 * (1 - share)))}}}
		return selectionBlocks(&Document{MatchedCV: &cv}, []*outcome{o})
	}
	if got := rejecting(0.051, 0.201); len(got) != 0 {
		t.Errorf("got %q", got)
	}
	if got := rejecting(0.049, 0.2); len(got) != 2 || got[0] != "predictive rejects 4.9 %, want more than 5 %" || !strings.Contains(got[1], "CV 0.20, want above 0.2") {
		t.Errorf("got %q", got)
	}
	// The rows of a controller.
	l = ownLab()
	c := l.controllerDoc(&rival{Gate: gate{Kind: "same"}, Label: "label"}, own, l.documentOfRuns())
	alwaysG := goodputIn(t, l, alwaysCell)
	if c.Kind != "same" || c.Label != "label" || c.RateRPS != 300 || c.Rho != 1.5 || c.HorizonS != 50 || !close9(*c.Seats, alwaysG/3) || math.Abs(*c.Goodput.Effect-(mainG-alwaysG)) > 1e-6 ||
		math.Abs(*c.Admitted-1.5*mainG) > 1e-6 || !close9(*c.MedianAPE, mainG/5) || !close9(*c.Bias, mainG/6) || !close9(*c.Coverage, mainG/7) || !close9(*c.ShadowAPE, mainG/8) || !close9(*c.ShadowCov, mainG/9) ||
		len(c.Verdicts) != 3 || c.Verdicts["H14-2"] != inconclusive {
		t.Errorf("got %+v", c)
	}
	// Frontiers that meet at no P99, and those that do: predictive admits 1.5 times as much at the same goodput.
	if got := l.equalTailStatement(d, own.main); got.id != "H14-1" || len(got.evidence) != 0 || !slices.Contains(got.blocked, "the two frontiers share a critical P99 with 0 of 3 seeds") {
		t.Errorf("got %+v", got)
	}
	for i := range l.cells {
		for s, o := range l.runs[i] {
			o.Critical = 100 + l.cells[i].Parameter + float64(s)
			o.All = Class{Arrived: 1000, Admitted: 400, Good: 300}
			if l.cells[i].Spec.Admission.Policy == "predictive" {
				o.Critical = 100 + 100*l.cells[i].Parameter
				o.All.Admitted = 600
				o.All.Good = 350
			}
		}
	}
	tail := l.equalTailStatement(d, own.main)
	if len(tail.evidence) != 2 || !close9(*tail.evidence[0].Effect, 0.6-1.3*0.4) || !close9(*tail.evidence[1].Effect, 0.05) || tail.evidence[0].Figure != "admitted_share" || tail.evidence[1].Figure != "goodput" || tail.evidence[0].N != 3 {
		t.Errorf("got %+v", tail)
	}
	for i := range l.cells { // an infinite P99 is no setting of a frontier
		if l.cells[i].Role == roleFrontier {
			l.runs[i][0].Critical = math.Inf(1)
			l.runs[i][1].Critical = math.NaN()
		}
	}
	if got := l.frontierPoints("predictive"); len(got[0]) != 0 || len(got[1]) != 0 || len(got[2]) != 6 || got[2][0].p99 != 101 || got[2][5].p99 != 150 {
		t.Errorf("got %v", got)
	}
}

// TestBacklogByHand: in 100 s one request a second is admitted, and gets no first token; with a first token it is no backlog.
func TestBacklogByHand(t *testing.T) {
	w := window{FromUs: 10e6, ToUs: 110e6}
	var recs []record
	for i := range int64(100) {
		recs = append(recs, record{})
		recs[i].ArrivalUs = 10_500_000 + i*1e6
	}
	if got := backlogSlope(recs, w); math.Abs(got-1) > 1e-9 {
		t.Errorf("got a growth of %g requests/s, want 1", got)
	}
	for i := range recs {
		recs[i].FirstTokenUs = trace.Some(recs[i].ArrivalUs)
	}
	if got := backlogSlope(recs, w); math.Abs(got) > 1e-9 {
		t.Errorf("got a growth of %g requests/s, want none", got)
	}
	for i := range recs {
		recs[i].FirstTokenUs = trace.Opt[int64]{}
		recs[i].Instance = -1
		if i%2 == 0 {
			recs[i].Instance = 0
			recs[i].ArrivalUs = 110e6 // outside
		}
	}
	if got := backlogSlope(recs, w); got != 0 {
		t.Errorf("rejected, or after the window: got a growth of %g", got)
	}
}

// TestNewcomerByHand: in second 0 the newcomer has 1 of 2 and the others 1 of 1, in second 1 it has 2 of 5 and they 1 of 2.
func TestNewcomerByHand(t *testing.T) {
	at := func(us int64, group uint64, instance int) record {
		r := record{Group: group, Instance: instance, Tries: 1}
		r.ArrivalUs = us
		return r
	}
	recs := []record{
		at(1e6, 1, -1), // before the newcomer
		at(5e6, 7, 0), at(5_500_000, 1, 0), at(5_999_999, 7, -1),
		at(6e6, 7, 0), at(6_100_000, 7, 0), at(6_200_000, 7, -1), at(6_300_000, 7, -1), at(6_400_000, 7, -1), at(6_500_000, 1, -1), at(6_900_000, 2, 1),
		at(8e6, 7, -1), // after the window
	}
	got := newcomerOf(recs, 7, window{FromUs: 1e6, ToUs: 8e6})
	if len(got.Ratio) != 2 || got.Ratio[0] != 0.5 || !close9(got.Ratio[1], 0.8) || got.SecondS != trace.Some(1.0) {
		t.Errorf("got %+v", got)
	}
	if got := newcomerOf(recs, 9, window{FromUs: 1e6, ToUs: 8e6}); len(got.Ratio) != 0 || got.SecondS.OK {
		t.Errorf("no newcomer: got %+v", got)
	}
	if got := newcomerOf(recs[:4], 7, window{FromUs: 1e6, ToUs: 8e6}); got.SecondS.OK {
		t.Errorf("never reached: got %+v", got)
	}
}

// TestCellsByHand: thresholds and tolerances of the frontiers, and what the control cells change.
func TestCellsByHand(t *testing.T) {
	var thresholds, tolerances []float64
	for _, c := range frontiers() {
		switch c.Spec.Admission.Policy {
		case "slo-gated":
			if c.Spec.Admission.Thresholds["standard"] != 2*c.Parameter || c.Spec.Admission.Thresholds["sheddable"] != c.Parameter || c.Spec.Admission.Signal != maxQueueDepth {
				t.Errorf("got %+v", c.Spec.Admission)
			}
			thresholds = append(thresholds, c.Parameter)
		default:
			if c.Spec.Admission.Eps["standard"] != c.Parameter || c.Spec.Admission.Eps["sheddable"] != c.Parameter || c.Spec.ShadowShare != 0 {
				t.Errorf("got %+v", c.Spec)
			}
			tolerances = append(tolerances, c.Parameter)
		}
	}
	if !slices.Equal(thresholds, []float64{1, 2, 4, 8, 16, 32, 64}) || !slices.Equal(tolerances, []float64{0.01, 0.03, 0.1, 0.2, 0.35, 0.5}) {
		t.Errorf("got %v, %v", thresholds, tolerances)
	}
	for _, c := range extraCells() {
		predicts := strings.HasPrefix(c.Name, "predictive") || strings.HasPrefix(c.Name, "clairvoyant") || strings.HasPrefix(c.Name, "size-only") || strings.Contains(c.Name, ", predictive")
		if (c.Spec.ShadowShare == 0.02) != predicts || c.Matched != (c.Name == matchedCell) || c.Role != roleExtra || c.Spec.Scheduler != "priority-fcfs" {
			t.Errorf("%s: got a shadow share of %g", c.Name, c.Spec.ShadowShare)
		}
		if c.Name == noFloorCell && *c.Spec.Admission.Floor != 0 {
			t.Errorf("%s: got a floor of %g", c.Name, *c.Spec.Admission.Floor)
		}
	}
	got := targetsOf(map[string]target{"a": {TTFTUs: 1500, ITLUs: 2500, E2EUs: 3500}})
	if got["a"] != (targetSpec{TTFTMs: 1.5, ITLMs: 2.5, E2EMs: 3.5}) {
		t.Errorf("got %+v", got)
	}
	if got := seedsOf(5); !slices.Equal(got, []int64{42, 123, 7777, 1, 2}) {
		t.Errorf("got seeds %v", got)
	}
}

// TestGoodputRows: means and limits in percent, of every configuration but those of a frontier and those without a value.
func TestGoodputRows(t *testing.T) {
	x := func(v float64) *float64 { return &v }
	of := func(name, role string, f figureDoc) cellDoc {
		return cellDoc{Name: name, Role: role, Figures: map[string]figureDoc{"goodput": f}}
	}
	rows, top := goodputRows(&Document{Cells: []cellDoc{
		of("a pa4qd3 priority", "cell", figureDoc{Mean: x(0.5), Lo: x(0.4), Hi: x(0.7), N: 9}), of("f", "frontier", figureDoc{Mean: x(0.9)}),
		of("b pa4qd3 priority", "extra", figureDoc{Mean: x(0.25), N: 1}), of("c", "cell", figureDoc{}),
	}})
	if len(rows) != 2 || rows[0].Name != "a pa4qd3 priority" || rows[1].Name != "b" || !rows[0].Join || top != 70 {
		t.Fatalf("got %+v up to %g", rows, top)
	}
	m := rows[0].Marks
	if len(m) != 3 || m[0].V != 50 || m[0].Bar || m[0].Tip != "a pa4qd3 priority: "+report.Pct(0.5)+", 9 seeds" || m[1].V != 40 || !m[1].Bar || m[2].V != 70 || !m[2].Bar {
		t.Errorf("got %+v", m)
	}
	if m := rows[1].Marks; len(m) != 1 || m[0].V != 25 {
		t.Errorf("without an interval: got %+v", m)
	}
	if _, top := goodputRows(&Document{Cells: []cellDoc{of("b", "cell", figureDoc{Mean: x(0.75), Lo: x(0.5), Hi: x(0.7)})}}); top != 75 {
		t.Errorf("a mean above its interval: got up to %g, want 75", top)
	}
	if goodputFigure(&Document{}) != nil {
		t.Error("got a figure without rows")
	}
}
