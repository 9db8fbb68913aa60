package requestfit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// levelAt is a load level of so many clients, with prompts of 400 and answers of 11 tokens.
func levelAt(clients int64, ttftMs, tpotMs float64) trace.LoadPoint {
	return trace.LoadPoint{Name: fmt.Sprintf("%d clients", clients), File: "a.csv", Line: 3, Clients: trace.Some(clients), PromptTokens: 400, OutputTokens: 11,
		TTFTMs: trace.Some(ttftMs), TPOTMs: tpotMs}
}

// TestFiguresOfALevel: what a benchmark printed, the clients or the rate that follow from it, and what it may not be.
func TestFiguresOfALevel(t *testing.T) {
	d := h100(t)
	d.Engine.PrefixCaching = true
	d.Engine.MaxModelLen = trace.Some[int64](411)
	of := func(change func(p *trace.LoadPoint)) (*Level, error) {
		p := levelAt(8, 30, 12)
		p.CachedTokens = trace.Some(100.0)
		p.PromptSD, p.OutputSD, p.Requests = trace.Some(40.0), trace.Some(2.0), trace.Some[int64](77)
		change(&p)
		return LevelOf(&p, d)
	}
	got, err := of(func(*trace.LoadPoint) {})
	if err != nil || got.Version != "0.16.0" || got.InputTokens != 400 || got.OutputTokens != 11 || got.Concurrency != 8 || got.TTFTMs != 30 || got.TPOTMs != 12 ||
		got.CachedTokens != trace.Some(100.0) || got.promptSD != 40 || got.outputSD != 2 || got.count != 77 || got.rateRPS != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = of(func(p *trace.LoadPoint) { p.PromptTokens, p.OutputTokens, p.TTFTMs.OK = 0.2, 1.2, false }); err != nil || got.InputTokens != 1 || got.OutputTokens != 2 || !math.IsNaN(got.TTFTMs) {
		t.Errorf("short: got %+v, %v", got, err)
	}
	// A request takes 30 + 10 x 12 = 150 ms, so that 48 a second are 7.2 at once, nine tenths of eight clients.
	for _, c := range []struct {
		name    string
		change  func(p *trace.LoadPoint)
		clients int
		rate    float64
		count   int
		want    string
	}{
		{"busy clients", func(p *trace.LoadPoint) { p.RateRPS, p.OfferedRPS = trace.Some(48.0), trace.Some(60.0) }, 8, 0, 77, ""},
		{"idle clients", func(p *trace.LoadPoint) { p.RateRPS, p.OfferedRPS = trace.Some(47.9), trace.Some(60.0) }, 8, 60, 77, ""},
		{"a rate", func(p *trace.LoadPoint) { p.Clients, p.OfferedRPS = trace.Opt[int64]{}, trace.Some(60.0) }, 0, 60, 77, ""},
		{"in flight", func(p *trace.LoadPoint) { p.Clients, p.RateRPS = trace.Opt[int64]{}, trace.Some(40.0) }, 6, 0, 77, ""},
		{"in flight, by the latency", func(p *trace.LoadPoint) {
			p.Clients, p.RateRPS, p.E2EMs = trace.Opt[int64]{}, trace.Some(40.0), trace.Some(50.0)
		}, 2, 0, 77, ""},
		{"few in flight", func(p *trace.LoadPoint) { p.Clients, p.RateRPS = trace.Opt[int64]{}, trace.Some(0.1) }, 1, 0, 77, ""},
		{"of two ranks", func(p *trace.LoadPoint) { p.DP = trace.Some[int64](2); p.Clients = trace.Some[int64](9) }, 5, 0, 39, ""},
		{"nothing", func(p *trace.LoadPoint) { p.Clients = trace.Opt[int64]{} }, 0, 0, 0, "got neither clients nor a rate"},
		{"as many clients as there may be", func(p *trace.LoadPoint) { p.Clients = trace.Some[int64](1 << 14) }, 1 << 14, 0, 77, ""},
		{"too many clients", func(p *trace.LoadPoint) { p.Clients = trace.Some[int64](1<<14 + 1) }, 0, 0, 0, "got 16385 clients or more, want at most 16384"},
		{"too many in flight", func(p *trace.LoadPoint) { p.Clients, p.RateRPS = trace.Opt[int64]{}, trace.Some(1e9) }, 0, 0, 0, "got 16385 clients or more"},
		{"too long", func(p *trace.LoadPoint) { p.PromptTokens = 401 }, 0, 0, 0, "412 tokens together, want at most max_model_len 411"},
		{"seconds", func(p *trace.LoadPoint) { p.TPOTMs = 0.012 }, 0, 0, 0, "tpot_ms: got 0.012, want "},
	} {
		got, err := of(c.change)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "bad_points: a.csv:3:") && !strings.Contains(err.Error(), "a.csv:3") {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
			continue
		}
		if err != nil || got.Concurrency != c.clients || got.rateRPS != c.rate || got.count != c.count {
			t.Errorf("%s: got %d clients, %g/s, %d requests, %v", c.name, got.Concurrency, got.rateRPS, got.count, err)
		}
	}
	stated := func(change func(d *deploy.Deployment), p trace.LoadPoint) trace.Opt[float64] {
		own := *d
		change(&own)
		got, err := LevelOf(&p, &own)
		if err != nil {
			t.Fatal(err)
		}
		return got.CachedTokens
	}
	for name, c := range map[string]struct {
		change func(d *deploy.Deployment)
		want   trace.Opt[float64]
	}{
		"not stated":  {func(*deploy.Deployment) {}, trace.Opt[float64]{}},
		"no caching":  {func(d *deploy.Deployment) { d.Engine.PrefixCaching = false }, trace.Some(0.0)},
		"shared":      {func(d *deploy.Deployment) { d.Client.SharedPrefixTokens = trace.Some[int64](70) }, trace.Some(70.0)},
		"more shared": {func(d *deploy.Deployment) { d.Client.SharedPrefixTokens = trace.Some[int64](700) }, trace.Some(400.0)},
	} {
		if got := stated(c.change, levelAt(8, 30, 12)); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	bounds, ok := d.TokenTimes()
	if !ok {
		t.Fatal("no token times of an H100")
	}
	leastMs, mostMs := bounds.LeastUs/1e3, bounds.MostUs/1e3
	for ms, want := range map[float64]bool{leastMs: true, mostMs: true, leastMs * 0.999: false, mostMs * 1.001: false} {
		if err := (&Level{Deployment: d, TPOTMs: ms}).CheckUnit("a", 1); (err == nil) != want {
			t.Errorf("%g ms: got %v", ms, err)
		}
	}
	experts := *d
	for ep, want := range map[int64]bool{1: false, 2: false} { // a dense model has no experts
		p := levelAt(8, 30, 12)
		p.EP = trace.Some(ep)
		if got, err := LevelOf(&p, &experts); err != nil || got.Deployment.Engine.ExpertParallel != want || got.Deployment != &experts {
			t.Errorf("ep %d: got %+v, %v", ep, got, err)
		}
	}
}

// TestRequestsOfALevel: how many a benchmark sends, when, and how long they are.
func TestRequestsOfALevel(t *testing.T) {
	lengths := func(reqs []sim.Request) (least, most, leastOut, mostOut int64) {
		least, leastOut = 1<<30, 1<<30
		for i := range reqs {
			least, most = min(least, reqs[i].PromptTokens), max(most, reqs[i].PromptTokens)
			leastOut, mostOut = min(leastOut, reqs[i].OutputTokens), max(mostOut, reqs[i].OutputTokens)
		}
		return least, most, leastOut, mostOut
	}
	for _, c := range []struct {
		name                 string
		level                Level
		n                    int
		least, most, lo, top int64
	}{
		{"of a known release", Level{Version: "0.11.0", InputTokens: 1000, OutputTokens: 100, Concurrency: 40}, 400, 1000, 1000, 98, 100},
		{"of another", Level{InputTokens: 10, OutputTokens: 5, Concurrency: 40}, 400, 8, 10, 4, 5},
		{"so many", Level{InputTokens: 10, OutputTokens: 5, Concurrency: 40, count: 333}, 333, 8, 10, 4, 5},
		{"at most", Level{InputTokens: 10, OutputTokens: 5, Concurrency: 40, count: 3333}, 2000, 8, 10, 4, 5},
		{"one of a client at least", Level{InputTokens: 10, OutputTokens: 5, Concurrency: 40, count: 3}, 40, 8, 10, 4, 5},
		{"arrivals", Level{InputTokens: 10, OutputTokens: 1, rateRPS: 5}, 300, 8, 10, 2, 2},
		{"as stated", Level{InputTokens: 100, OutputTokens: 100, Concurrency: 40, promptSD: 3 / math.Sqrt(3), outputSD: 2 / math.Sqrt(3)}, 400, 97, 103, 98, 102},
		{"no longer than twice", Level{InputTokens: 3, OutputTokens: 4, Concurrency: 100, promptSD: 50, outputSD: 50}, 1000, 1, 6, 2, 8},
	} {
		reqs, err := c.level.Requests(c.level.Harness())
		least, most, lo, top := lengths(reqs)
		if err != nil || len(reqs) != c.n || least != c.least || most != c.most || lo != c.lo || top != c.top {
			t.Errorf("%s: got %d requests of %d to %d and %d to %d tokens, %v", c.name, len(reqs), least, most, lo, top, err)
		}
	}
	open := Level{InputTokens: 10, OutputTokens: 5, rateRPS: 5}
	reqs, _ := open.Requests(SpreadHarness)
	if lastS := float64(reqs[299].ArrivalUs) / 1e6; math.Abs(lastS-60) > 3*math.Sqrt(300)/5 {
		t.Errorf("300 arrivals at 5 a second: the last after %g s", lastS)
	}
	ramp := Level{InputTokens: 10, OutputTokens: 5, Concurrency: 4}
	h := SpreadHarness
	h.RampS = 2
	if reqs, _ = ramp.Requests(h); reqs[3].ArrivalUs != 1_500_000 || len(reqs) != 40 {
		t.Errorf("clients that start within 2 s: got %d us, %d requests", reqs[3].ArrivalUs, len(reqs))
	}
}

// TestFindingsOfLevels: a server that served less than four fifths of the rate; a file that has another share in the cache than is stated.
func TestFindingsOfLevels(t *testing.T) {
	for _, c := range []struct {
		change func(p *trace.LoadPoint)
		want   string
	}{
		{func(p *trace.LoadPoint) { p.RateRPS.V = 7.99 }, "open"},
		{func(p *trace.LoadPoint) { p.RateRPS.V = 8 }, ""},
		{func(p *trace.LoadPoint) { p.RateRPS = trace.Opt[float64]{} }, ""},
		{func(p *trace.LoadPoint) { p.OfferedRPS.OK = false }, ""},
		{func(p *trace.LoadPoint) { p.RateRPS.V = 7; p.Clients = trace.Some[int64](1) }, ""},
	} {
		p := trace.LoadPoint{Name: "open", OfferedRPS: trace.Some(10.0), RateRPS: trace.Some(7.0)}
		c.change(&p)
		got := overrun(&p)
		if len(got) != min(1, len(c.want)) || len(got) > 0 && (got[0].Code != rows.Saturated || !strings.Contains(got[0].Message, "7.99") || !strings.Contains(got[0].Message, "10")) {
			t.Errorf("%+v: got %v", p, got)
		}
	}
	d := h100(t)
	for _, c := range []struct {
		stated int64
		cached float64
		change func(d *deploy.Deployment, p *trace.LoadPoint)
		want   int
	}{
		{100, 120, nil, 0}, // a twentieth of the prompt's 400 tokens apart
		{100, 121, nil, 1},
		{100, 80, nil, 0},
		{100, 79, nil, 1},
		{900, 380, nil, 0}, // all of the prompt
		{100, 121, func(d *deploy.Deployment, _ *trace.LoadPoint) { d.Engine.PrefixCaching = false }, 0},
		{100, 121, func(d *deploy.Deployment, _ *trace.LoadPoint) { d.Client.SharedPrefixTokens.OK = false }, 0},
		{100, 121, func(_ *deploy.Deployment, p *trace.LoadPoint) { p.CachedTokens.OK = false }, 0},
	} {
		own := *d
		own.Engine.PrefixCaching = true
		own.Client.SharedPrefixTokens = trace.Some(c.stated)
		p := levelAt(1, 1, 1)
		p.CachedTokens = trace.Some(c.cached)
		if c.change != nil {
			c.change(&own, &p)
		}
		got := contradicted(&p, &own)
		if len(got) != c.want || c.want > 0 && got[0].Code != validate.SharingContradicted {
			t.Errorf("%d stated, %g in the file: got %v", c.stated, c.cached, got)
		}
		if c.want > 0 && c.cached == 121 && got[0].Message != "1 clients: the file has 30.2 % of the prompt tokens as cached, --shared-prefix-tokens or run.yaml states 25 %: the former is used" {
			t.Errorf("got %q", got[0].Message)
		}
	}
	if got := shareFinding(&result.CachedShare{Share: 0.25}, TierPoints); !strings.Contains(got.Message, "load levels") || !strings.Contains(got.Message, "25 % of each prompt") || !strings.Contains(got.Message, "a column cached_tokens") {
		t.Errorf("got %q", got.Message)
	}
	if got := shareFinding(&result.CachedShare{}, TierRequests); strings.Contains(got.Message, "load levels") || strings.Contains(got.Message, "% of each prompt cached") {
		t.Errorf("got %q", got.Message)
	}
}

// clientsRun is a run of n requests, 20 ms apart, with a TTFT of 20 ms and four gaps of 10 ms.
func clientsRun(id string, n int) *trace.Run {
	run := &trace.Run{ID: id}
	for i := range int64(n) {
		ns := 5e9 + i*20e6
		run.Observed = append(run.Observed, trace.ObservedRequest{
			ID: fmt.Sprint(id, i), SendNs: trace.Some(ns), SendWallNs: trace.Some(1_700_000_000_000_000_000 + ns), FirstChunkNs: trace.Some(ns + 20e6), LastChunkNs: trace.Some(ns + 60e6), TTFTUs: trace.Some(20e3),
			E2EUs: trace.Some(60e3), PromptTokens: trace.Some(100 + i), OutputTokens: trace.Some(int64(5)), Success: trace.Some(true),
		})
	}
	return run
}

func asRun(run *trace.Run, d *deploy.Deployment) Run {
	return Run{ID: run.ID, Deployment: d, Load: func() (*trace.Run, error) { return run, nil }}
}

// TestRunsOfAFit: which runs are fitted, held out or left out, with the reason.
func TestRunsOfAFit(t *testing.T) {
	d := h100(t)
	other := *d
	other.TP = 2
	points := &trace.Run{ID: "levels", Points: []trace.LoadPoint{levelAt(1, 30, 12), levelAt(2, 31, 13)}}
	both := clientsRun("both", 20)
	both.Points = points.Points
	unstamped := clientsRun("unstamped", 3)
	for i := range unstamped.Observed {
		o := &unstamped.Observed[i]
		o.SendNs, o.SendWallNs, o.FirstChunkNs, o.LastChunkNs = trace.Opt[int64]{}, trace.Opt[int64]{}, trace.Opt[int64]{}, trace.Opt[int64]{}
	}
	collect := func(o fit.Options, holdout []string, runs ...Run) (*collection, error) {
		c := &collection{evidence: Requests{Runs: runs, Holdout: holdout}, o: o, runOfLevel: map[*Load]string{}}
		return c, c.addRuns()
	}
	reasons := func(c *collection) string {
		var out []string
		for _, r := range c.runs {
			out = append(out, fmt.Sprintf("%s %v %s", r.ID, r.Used, r.Reason))
		}
		return strings.Join(out, "; ")
	}
	o := fit.DefaultOptions()
	without := o
	without.Without = []string{"b"}
	for _, c := range []struct {
		name              string
		o                 fit.Options
		holdout           []string
		runs              []Run
		want              string // of the runs, or of the error
		loads, whole, hld int
		warnings          int
	}{
		{"two", o, nil, []Run{asRun(clientsRun("a", 20), d), asRun(clientsRun("b", 20), d)}, "a true ; b true ", 2, 2, 2, 0},
		{"one left out", without, nil, []Run{asRun(clientsRun("a", 20), d), asRun(clientsRun("b", 20), d)}, "a true ; b false excluded (--without)", 1, 1, 1, 0},
		{"one held out", o, []string{"b"}, []Run{asRun(clientsRun("a", 20), d), asRun(clientsRun("b", 20), d)}, "a true ; b false held out (--holdout)", 1, 1, 1, 0},
		{"an unknown one held out", o, []string{"c"}, []Run{asRun(clientsRun("a", 20), d)}, `--holdout: got "c", want the id of a run`, 0, 0, 0, 0},
		{"all held out", o, []string{"a"}, []Run{asRun(clientsRun("a", 20), d)}, "--holdout: got every run with a request", 0, 0, 0, 0},
		{"another configuration", o, nil, []Run{asRun(clientsRun("a", 20), d), asRun(clientsRun("b", 20), &other)}, "got run b of ", 0, 0, 0, 0},
		{"levels", o, nil, []Run{asRun(points, d)}, "levels true ", 2, 0, 0, 0},
		{"levels held out", o, []string{"levels"}, []Run{asRun(points, d), asRun(clientsRun("a", 20), d)}, "levels false held out (--holdout); a true ", 1, 1, 2, 0},
		{"levels beside requests", o, nil, []Run{asRun(points, d), asRun(clientsRun("a", 20), d)}, "levels false " + LevelsNotFitted + "; a true ", 1, 1, 1, 1},
		{"levels and requests in one", o, nil, []Run{asRun(both, d)}, "both true ", 1, 1, 1, 1},
		{"no stamps", o, nil, []Run{asRun(unstamped, d)}, "got 3 requests without a start time in run unstamped", 0, 0, 0, 0},
		{"nothing", o, nil, []Run{asRun(&trace.Run{ID: "x"}, d), asRun(&trace.Run{ID: "y"}, d)}, "got no request with a time in 2 runs", 0, 0, 0, 0},
		{"not read", o, nil, []Run{{ID: "z", Deployment: d, Load: func() (*trace.Run, error) { return nil, errors.New("not read") }}}, "not read", 0, 0, 0, 0},
	} {
		got, err := collect(c.o, c.holdout, c.runs...)
		if err != nil {
			if c.loads > 0 || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
			continue
		}
		if reasons(got) != c.want || len(got.loads) != c.loads || len(got.whole) != c.whole || len(got.held) != c.hld || len(got.warnings) != c.warnings {
			t.Errorf("%s: got %q, %d loads, %d whole, %d held, %v", c.name, reasons(got), len(got.loads), len(got.whole), len(got.held), got.warnings)
		}
	}
	got, err := collect(o, nil, asRun(clientsRun("a", 20), d))
	if err != nil {
		t.Fatal(err)
	}
	// Requests were sent until 380 ms; the first four fifths of that time are 304 ms, the first 16 requests.
	if got.loads[0].Seen[15].TTFTUs != 20e3 || got.held[0].IsMeasured() == false || !math.IsNaN(got.held[0].Seen[15].TTFTUs) || got.held[0].Seen[16].TTFTUs != 20e3 {
		t.Errorf("got %+v fitted, %+v held", got.loads[0].Seen, got.held[0].Seen)
	}
	shared := int64(70)
	withShared := &collection{evidence: Requests{Runs: []Run{asRun(points, d)}, SharedPrefix: &shared}, o: o, runOfLevel: map[*Load]string{}}
	if err := withShared.addRuns(); err != nil || withShared.runOfLevel[withShared.loads[1]] != "levels" || withShared.loads[1].Point.TTFTMs != 31 || withShared.loads[1].Point.TPOTMs != 13 {
		t.Errorf("got %+v, %v", withShared.loads, err)
	}
	bad := levelAt(0, 1, 1)
	bad.Clients.OK = false
	if _, err := collect(o, nil, asRun(&trace.Run{ID: "bad", Points: []trace.LoadPoint{bad}}, d)); err == nil {
		t.Error("a level without a load is fitted")
	}
	caching := *d
	caching.Engine.PrefixCaching = true
	for _, c := range []struct {
		shared *int64
		want   int64
		open   bool
	}{{nil, 0, true}, {&shared, 70, false}} {
		own := &collection{evidence: Requests{Runs: []Run{asRun(points, &caching)}, SharedPrefix: c.shared}, o: o, runOfLevel: map[*Load]string{}}
		if err := own.addRuns(); err != nil {
			t.Fatal(err)
		}
		l := own.loads[0]
		if (l.Unstated != nil) != c.open || c.open && (len(l.Unstated) != len(l.Requests) || !l.Unstated[0]) || l.Requests[0].PromptTokens == 400 && l.Requests[0].CachedTokens.V != c.want {
			t.Errorf("shared %v: got %v, %+v", c.shared, l.Unstated, l.Requests[0])
		}
	}
	if (Requests{}).Kind().Name != fit.FromRequests.Name || (Points{}).Kind().Name != fit.FromPoints.Name || fit.FromRequests.Name == fit.FromPoints.Name {
		t.Error("the kinds of evidence")
	}
	if got := LevelsIgnored("run7", LevelsNotFitted); !strings.Contains(got.Message, "run7") {
		t.Errorf("got %v", got)
	}
}

// TestFitOfLevels: two levels are predicted by each other's fit, a held-out one by the answer.
func TestFitOfLevels(t *testing.T) {
	d := h100(t)
	levels := &trace.Run{ID: "levels", Points: []trace.LoadPoint{levelAt(1, 30, 12), levelAt(2, 31, 13)}}
	o := fit.DefaultOptions()
	o.Seed = 7
	o.Prior = fit.PriorRoofline
	doc, err := Points{Requests{Runs: []Run{asRun(levels, d)}, MaxSteps: 1}}.Fit(context.Background(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Prompts are those of the harness of a known release: constant, with answers that stop within 2 %.
	c := &doc.Configs[0]
	if doc.Options.Split != o.Split || doc.Options.Seed != 7 || doc.Options.Prior != fit.PriorRoofline || doc.Options.Spec == "" || doc.Options.BetaTarget == "" || doc.Options.Recipe == "" ||
		*c.MeanPromptTokens != 400 || *c.MeanOutputTokens < 10 || *c.MeanOutputTokens > 11 || !slices.Equal(c.Runs, []string{"levels"}) ||
		doc.Requests == nil || doc.Requests.Gain != nil || doc.Requests.StepsPerSecond <= 0 || doc.Cross != nil || len(doc.Runs) != 1 {
		t.Errorf("got %+v, %+v", doc.Options, doc.Requests)
	}
	if len(doc.Requests.Levels) != 2 {
		t.Fatalf("got %+v", doc.Requests.Levels)
	}
	for i, l := range doc.Requests.Levels {
		if l.Run != "levels" || l.Name != levels.Points[i].Name || *l.TTFTMs != 30+float64(i) || l.TPOTMs != 12+float64(i) || l.PredictedTTFTMs == nil || *l.PredictedTTFTMs <= 0 || *l.PredictedTPOTMs <= 0 {
			t.Errorf("got %+v", l)
		}
	}
	one := &trace.Run{ID: "one", Points: levels.Points[:1]}
	if doc, err = (Points{Requests{Runs: []Run{asRun(one, d)}, MaxSteps: 1}}).Fit(context.Background(), o, nil); err != nil || len(doc.Requests.Levels) != 0 {
		t.Errorf("one level: got %+v, %v", doc, err)
	}
	held := &trace.Run{ID: "held", Points: levels.Points[1:]}
	if doc, err = (Points{Requests{Runs: []Run{asRun(one, d), asRun(held, d)}, MaxSteps: 1, Holdout: []string{"held"}}}).Fit(context.Background(), o, nil); err != nil ||
		len(doc.Requests.Levels) != 1 || doc.Requests.Levels[0].Run != "held" || len(doc.Requests.Holdout) != 0 {
		t.Errorf("one held out: got %+v, %v", doc, err)
	}
}

// TestFitOfRequests: the figures of its document.
func TestFitOfRequests(t *testing.T) {
	d := h100(t)
	o := fit.DefaultOptions()
	o.Without = []string{}
	doc, err := Requests{Runs: []Run{asRun(clientsRun("a", 30), d), asRun(clientsRun("b", 30), d)}, MaxSteps: 1, Holdout: []string{"b"}}.Fit(context.Background(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &doc.Configs[0]
	if doc.TrainingDate != "" { // of the measurements, which have no wall clock, not of the prior
		t.Errorf("got the date %q", doc.TrainingDate)
	}
	if *c.MeanPromptTokens != 114.5 || *c.MeanOutputTokens != 5 || doc.Requests.Gain == nil || len(doc.Requests.Holdout) != 1 || doc.Options.Prior != fit.PriorLibrary {
		t.Fatalf("got %g and %g tokens, gain %+v, %d held out, %q, prior %q", *c.MeanPromptTokens, *c.MeanOutputTokens, doc.Requests.Gain, len(doc.Requests.Holdout), doc.TrainingDate, doc.Options.Prior)
	}
	h := doc.Requests.Holdout[0]
	if h.Requests != 30 || h.Metrics.TTFT.RealMs.P50 != 20 || h.Metrics.ITL.RealMs.P50 != 10 || h.Metrics.E2E.RealMs.P50 != 60 || h.Metrics.TTFT.NSim != 30 {
		t.Errorf("got %+v", h)
	}
	g := doc.Requests.Gain
	if g.Calibrated < 0 || g.Uncalibrated <= 0 || g.Difference95[0] > g.Difference95[1] || math.Abs(g.Calibrated-*h.Metrics.E2E.MedianRelErrPaired) > 1e-9 {
		t.Errorf("got %+v beside %+v", g, h.Metrics.E2E)
	}
	if _, err := (Requests{Runs: []Run{asRun(clientsRun("a", 30), d)}}).Fit(context.Background(), fit.Options{Prior: "no such file", Split: 0.8}, nil); err == nil {
		t.Error("a prior that does not exist is read")
	}
	if _, err := (Requests{}).Fit(context.Background(), o, nil); err == nil {
		t.Error("no run is fitted")
	}
}

// TestPriorsByName: the library's by default, the roofline by name or for a device without tables.
func TestPriorsByName(t *testing.T) {
	d := h100(t)
	unknown := *d
	unknown.Hardware.Name = "Q1"
	for _, c := range []struct {
		d           *deploy.Deployment
		asked, want string
	}{{d, fit.PriorZero, fit.PriorLibrary}, {d, fit.PriorRoofline, fit.PriorRoofline}, {&unknown, fit.PriorZero, fit.PriorRoofline}, {d, fit.PriorLibrary, fit.PriorLibrary}} {
		if got, err := priorFor(c.d, fit.Options{Prior: c.asked}); err != nil || got.Name != c.want || got.Set == nil {
			t.Errorf("%q on %s: got %+v, %v", c.asked, c.d.Hardware.Name, got, err)
		}
	}
}

// TestDocumentOfASet: coefficients, the overhead's constant, an egress of 0 where the set has none, and BLIS's terms.
func TestDocumentOfASet(t *testing.T) {
	d := h100(t)
	set, err := fit.LibraryFor(d)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := Document(set, d)
	if err != nil {
		t.Fatal(err)
	}
	on := features.On(set, d)
	if doc.Beta.Name != "beta" || doc.Beta.Target != on.BetaTarget || doc.Beta.SpecVersion != string(on.SpecVersion) || doc.Beta.Recipe != on.Recipe || *doc.Beta.GammaEMA != on.Gamma || len(doc.Beta.Covariance) != len(on.Covariance) ||
		doc.TrainingDate != on.TrainedOn.Date || doc.Configs[0].Key != d.Config() || doc.Configs[0].Label != d.Label() || len(doc.Inputs) != len(on.Inputs) || doc.Command != on.Command {
		t.Errorf("got %+v", doc.Beta)
	}
	for i, c := range doc.Beta.Coefficients {
		if c.Value != on.Beta[i].Value {
			t.Errorf("%s: got %g, want %g", c.Name, c.Value, on.Beta[i].Value)
		}
	}
	for i := range on.Alpha {
		base := on.Alpha[i].Coefficients[3].Value
		if a := &doc.Alpha[i]; a.Target != on.Alpha[i].Target || a.Replay != on.Alpha[i].Replay || *a.Interval.MedianPredUs != base || *a.TargetErrors.MedianPredUs != base || a.Name != "alpha" {
			t.Errorf("got %+v, want a base of %g", a, base)
		}
	}
	if on.AlphaModel(coeff.Egress) == nil {
		last := &doc.Alpha[len(doc.Alpha)-1]
		if last.Target != coeff.Egress || !last.Replay || *last.TargetErrors.MedianPredUs != 0 {
			t.Errorf("got %+v", last)
		}
	}
	m := &doc.Models[0]
	if m.Name != "trained-physics" || m.Holdout.Rows < 500 || m.Holdout.Rows > 1200 || *m.Holdout.MAPE <= 0 || *m.Holdout.MAPE > 0.25 {
		t.Errorf("got %+v, %+v", m, m.Holdout)
	}
	// One batch each, within the documented error.
	tp, err := features.NewTrainedPhysics(d)
	if err != nil {
		t.Fatal(err)
	}
	space, err := features.New(on.SpecVersion, d)
	if err != nil {
		t.Fatal(err)
	}
	var z [32]float64
	x := make([]float64, len(on.Beta))
	batch := []trace.Chunk{{Computed: 900, Prompt: 400, New: 1}, {Computed: 0, Prompt: 512, New: 512}}
	if _, err := space.Beta(new(space.Sum(batch)), x); err != nil {
		t.Fatal(err)
	}
	tp.Beta(new(features.BasisSum(batch)), z[:len(m.Coefficients)])
	sum := 0.0
	for j, c := range m.Coefficients {
		sum += c.Value * z[j]
	}
	if want := on.Predict(x); math.Abs(sum/want-1) > 0.3 {
		t.Errorf("a batch: BLIS's terms have %g us, the set %g", sum, want)
	}
}

// TestReplaysUnlikeTheServer: a median TTFT three times the simulated one, or a third of it.
func TestReplaysUnlikeTheServer(t *testing.T) {
	_, prior, _ := plant(t)
	d := h100(t)
	l := planted(t, d, prior.Set, 2, 5, 1)
	same := slices.Clone(l.Seen)
	for factor, want := range map[float64]int{1: 0, 2.99: 0, 3.01: 1, 1 / 2.99: 0, 1 / 3.01: 1} {
		for i := range l.Seen {
			l.Seen[i].TTFTUs = factor * same[i].TTFTUs
		}
		if got, err := l.Unlike(prior.Set); err != nil || len(got) != want || want > 0 && got[0].Code != ReplayUnlike {
			t.Errorf("%g times: got %v, %v", factor, got, err)
		}
	}
	gain, err := GainOf([]*Load{l}, prior.Set, prior.Set)
	if err != nil || gain.Learned > 1e-9 || gain.Prior > 1e-9 || gain.Low != 0 || gain.High != 0 {
		t.Errorf("of itself: got %+v, %v", gain, err)
	}
	for i := range l.Seen {
		l.Seen[i].E2EUs = 2 * same[i].E2EUs
	}
	if gain, err = GainOf([]*Load{l}, prior.Set, prior.Set); err != nil || math.Abs(gain.Learned-0.5) > 1e-9 || math.Abs(gain.Prior-0.5) > 1e-9 {
		t.Errorf("half of what was measured: got %+v, %v", gain, err)
	}
	for i := range l.Seen {
		l.Seen[i].TTFTUs = math.NaN()
	}
	if got, err := l.Unlike(prior.Set); err != nil || got != nil {
		t.Errorf("nothing measured: got %v, %v", got, err)
	}
	l.Point = &Point{}
	l.Seen = nil
	if got, err := l.Unlike(prior.Set); err != nil || got != nil {
		t.Errorf("a level: got %v, %v", got, err)
	}
}

// TestInspectedRequests: what inspect prints of a run of requests, of levels and of steps.
func TestInspectedRequests(t *testing.T) {
	d := h100(t)
	run := clientsRun("a", 170)
	run.Points = []trace.LoadPoint{levelAt(1, 30, 12)}
	var out result.InspectRun
	Inspect(&out, run, d)
	shown := map[string]string{}
	for _, l := range out.Learnable {
		shown[l.Direction] = fmt.Sprintf("%v %s %s", l.Shown, l.Got, l.Adds)
	}
	if out.Tier != TierRequests || out.Points != 1 || len(out.Saturation) == 0 || out.Saturated || out.NoiseFloor == nil ||
		shown["per-step constant (weights, layers, step)"] != "true 170 of them " || shown["overhead, apart from the rest of the running step"] != "true 170 of them " {
		t.Errorf("got tier %s, %d points, saturated %v, noise %+v, %q", out.Tier, out.Points, out.Saturated, out.NoiseFloor, shown)
	}
	out = result.InspectRun{}
	Inspect(&out, clientsRun("b", 19), d)
	for _, l := range out.Learnable {
		if l.Direction == "per-step constant (weights, layers, step)" && (l.Shown || l.Adds != "a quiet stretch: 20 requests with 1 to 4 running") {
			t.Errorf("19 requests: got %+v", l)
		}
	}
	out = result.InspectRun{}
	if Inspect(&out, &trace.Run{Points: run.Points}, d); out.Tier != TierPoints || out.Points != 1 || out.NoiseFloor != nil || len(out.Learnable) == 0 || out.Saturation != nil {
		t.Errorf("levels: got %+v", out)
	}
	out = result.InspectRun{}
	if Inspect(&out, &trace.Run{Steps: make([]trace.Step, 1)}, d); out.Tier != TierSteps || out.Learnable != nil {
		t.Errorf("steps: got %+v", out)
	}
	for i := range run.Observed { // 13, 6, 6 ms apart, so that a request arrives while others decode
		by := int64(i)*12e6 - int64(i%3)*2e6
		for _, ns := range []*trace.Opt[int64]{&run.Observed[i].SendNs, &run.Observed[i].FirstChunkNs, &run.Observed[i].LastChunkNs} {
			ns.V -= by
		}
	}
	ttft, span, ok := NoiseFloor(run, d, 1)
	otherTTFT, otherSpan, _ := NoiseFloor(run, d, 2)
	// A step of this model takes some 6 ms: an arrival a millisecond earlier or later waits so much longer or shorter.
	if !ok || ttft < 0.01 || ttft > 0.3 || span < 0 || span > 0.3 || ttft == otherTTFT || math.Abs(ttft/otherTTFT-1) > 0.3 || math.Abs(span-otherSpan) > 0.01 {
		t.Errorf("got a noise floor of %v %g and %g, with another seed %g and %g", ok, ttft, span, otherTTFT, otherSpan)
	}
	unknown := *d
	unknown.Hardware.Name = "Q1"
	if _, _, ok := NoiseFloor(run, &unknown, 1); ok {
		t.Error("a device without tables has a noise floor")
	}
	if _, _, ok := NoiseFloor(&trace.Run{}, d, 1); ok {
		t.Error("nothing recorded has a noise floor")
	}
}

// TestPlannedPoints: within the model's length and the seats, each once.
func TestPlannedPoints(t *testing.T) {
	d := h100(t)
	d.Engine.MaxNumSeqs = 4
	d.Engine.MaxModelLen = trace.Some[int64](256)
	got, err := PlanPoints(context.Background(), d, 5)
	if err != nil || len(got) != 2 {
		t.Fatalf("got %+v, %v, want the levels of 128 and 128 tokens with 1 and 4 clients", got, err)
	}
	for _, p := range got {
		if p.InputTokens != 128 || p.OutputTokens != 128 || p.Clients != 1 && p.Clients != 4 {
			t.Errorf("got %+v", p)
		}
	}
	d.Engine.MaxModelLen = trace.Some[int64](255)
	if got, err = PlanPoints(context.Background(), d, 5); err != nil || got != nil {
		t.Errorf("no room for the shortest: got %+v, %v", got, err)
	}
}

// TestBlocksWithoutMeasurements: a load of which one block of time has everything cannot be cross-fitted.
func TestBlocksWithoutMeasurements(t *testing.T) {
	_, prior, _ := plant(t)
	l := planted(t, h100(t), prior.Set, 2, 20, 1)
	for i := 1; i < len(l.Seen)-1; i++ {
		unsee(l.Seen, i)
	}
	unsee(l.Seen, len(l.Seen)-1)
	c := &collection{whole: []*Load{l}, deployment: l.Deployment}
	cross, found, err := c.crossFit(&Learned{equations: &repeats{}})
	if err != nil || cross != nil || len(found) != 1 || found[0].Code != fit.CodeFewRows {
		t.Errorf("got %+v, %v, %v", cross, found, err)
	}
	if cross, found, err = (&collection{}).crossFit(&Learned{}); cross != nil || found != nil || err != nil {
		t.Errorf("no requests: got %+v, %v, %v", cross, found, err)
	}
	short := *l
	short.Seen = short.Seen[:3]
	if err := short.checkMeasured(); err == nil || !strings.Contains(err.Error(), "got 3 measured of 20 requests") {
		t.Errorf("got %v", err)
	}
}
