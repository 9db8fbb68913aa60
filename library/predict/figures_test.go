package predict

import (
	"cmp"
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// onL4 is a question about a GPU without kernel tables: its steps take the datasheet's roofline, so that the answers do
// not change with the tables.
func onL4(clients int, rateRPS float64) Question {
	return Question{Model: "meta-llama/Llama-3.1-8B-Instruct", Hardware: "L4", InputTokens: 200, OutputTokens: 20,
		Concurrency: clients, RateRPS: rateRPS}
}

// TestPredictionOnTheRoofline compares every figure of two answers: of a closed loop with targets and its start, and of
// arrivals at a rate.
func TestPredictionOnTheRoofline(t *testing.T) {
	loop := onL4(4, 0)
	loop.Start = true
	loop.SLO = Targets{Limits: []Target{{TTFT, 0.95, 2000}, {TPOT, 0, 60}}}
	p, err := loop.Predict(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	testkit.Document(t, "loop", p, "unjudged", "sentence")
	rate := onL4(0, 2)
	rate.Start = true
	if p, err = rate.Predict(context.Background()); err != nil {
		t.Fatal(err)
	}
	testkit.Document(t, "rate", p, "unjudged", "sentence")
}

// TestHighestLoad: the highest rate meets the target and is at most 2 % below one that does not.
func TestHighestLoad(t *testing.T) {
	q := onL4(0, 2)
	p, _, err := q.Server(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	targets := Targets{Limits: []Target{{TPOT, 0, 60}}}
	load := q.load()
	highest, err := p.searchMaxLoad(&load, 1, &targets)
	if err != nil {
		t.Fatal(err)
	}
	if highest.RateRPS < 2 || highest.Concurrency != 0 || highest.Goodput != 0 ||
		!reflect.DeepEqual(highest.SLO, []Bound{{TPOT, "mean", 60}}) {
		t.Errorf("got %+v", highest)
	}
	// A probe has 500 requests, whose chance is more than a thousandth of the rate changes.
	missedAbove := ""
	for thousandths := 1000; thousandths <= 1021; thousandths++ {
		s, err := p.probe(load.WithAmount(highest.RateRPS*float64(thousandths)/1000), 1)
		if err != nil {
			t.Fatal(err)
		}
		broken := Broken([]*Sample{s}, &targets)
		if thousandths > 1000 {
			missedAbove = cmp.Or(missedAbove, broken)
			continue
		}
		if broken != "" {
			t.Errorf("the highest load misses %s", broken)
		}
		if perS := float64(s.Tokens) / s.ServedS; perS != highest.TokensPerS {
			t.Errorf("tokens: got %g/s, want %g", highest.TokensPerS, perS)
		}
	}
	if missedAbove != "tpot mean" {
		t.Errorf("up to 2.1 %% above the highest load: got %q missed, want tpot mean", missedAbove)
	}
	impossible := Targets{Limits: []Target{{TPOT, 0, 1}}, Goodput: 0.9}
	none, err := p.searchMaxLoad(&load, 1, &impossible)
	if err != nil || none.RateRPS != 0 || none.Breaks != "goodput 0 %, want at least 90 %" || none.Goodput != 0.9 {
		t.Errorf("a target no load meets: got %+v, %v", none, err)
	}
}

// samplesOf are replications with a value each: TTFT v, TPOT 2v and E2E 3v ms.
func samplesOf(values ...float64) []*Sample {
	var out []*Sample
	for _, v := range values {
		out = append(out, &Sample{TTFT: []float64{v}, TPOT: []float64{2 * v}, E2E: []float64{3 * v}, gaps: stat.NewHistogram()})
	}
	return out
}

func TestBroken(t *testing.T) {
	samples := samplesOf(9, 11)
	saturated := samplesOf(1, 1, 1, 1)
	for _, s := range saturated[:2] {
		s.Saturated = true
	}
	limit := func(metric string, ms float64) []Target { return []Target{{metric, 0, ms}} }
	for _, c := range []struct {
		name    string
		samples []*Sample
		targets Targets
		want    string
	}{
		{"at the limit", samples, Targets{Limits: limit(TTFT, 10)}, ""},
		{"above it", samples, Targets{Limits: limit(TTFT, 9.99)}, "ttft mean"},
		{"the first that is missed", samples, Targets{Limits: []Target{{TTFT, 0, 10}, {TPOT, 0.9, 19}, {E2E, 0, 1}}}, "tpot p90"},
		{"half of the requests, of 50 %", samples, Targets{Limits: limit(TTFT, 10), Goodput: 0.5}, ""},
		{"half of the requests, of 51 %", samples, Targets{Limits: limit(TTFT, 10), Goodput: 0.51}, "goodput"},
		{"no gaps", samples, Targets{Limits: limit(ITL, 10)}, "itl mean"},
		{"half of the replications saturated", saturated, Targets{}, ""},
		{"more than half", append(saturated[:3:3], saturated[0]), Targets{}, "saturated"},
	} {
		if got := Broken(c.samples, &c.targets); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	one := samplesOf(12)[0]
	for want, targets := range map[string]Targets{
		"":                                 {Limits: limit(TTFT, 12)},
		"TTFT mean 12 ms, want at most 11": {Limits: limit(TTFT, 11)},
		"E2E p50 36 ms, want at most 35":   {Limits: []Target{{E2E, 0.5, 35}}},
		"goodput 0 %, want at least 90 %":  {Limits: limit(TTFT, 11), Goodput: 0.9},
		"goodput 0 %, want at least 57 %":  {Limits: limit(TTFT, 11), Goodput: 0.57}, // 100 * 0.57 is a rounding error less
	} {
		if got := brokenText(one, &targets); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	one.Saturated = true
	if got := brokenText(one, &Targets{}); got != "the engine does not keep up" {
		t.Errorf("got %q", got)
	}
}

func TestTightenedTargets(t *testing.T) {
	targets := Targets{Goodput: 0.9, Limits: []Target{{TTFT, 0.5, 150}, {TPOT, 0, 125}, {ITL, 0, 250}, {E2E, 0, 300}}}
	got := targets.Tightened(Errors{TTFT: 0.5, TPOT: 0.25, E2E: 0.2})
	want := Targets{Goodput: 0.9, Limits: []Target{{TTFT, 0.5, 100}, {TPOT, 0, 100}, {ITL, 0, 200}, {E2E, 0, 250}}}
	if !reflect.DeepEqual(got, want) || targets.Limits[0].LimitMs != 150 {
		t.Errorf("got %v, want %v, and the targets as they were", got, want)
	}
}

// TestFiguresOfARecording: 20 requests, whose ten parts have means 1.5, 3.5, ... 19.5.
func TestFiguresOfARecording(t *testing.T) {
	s := &Sample{gaps: stat.NewHistogram()}
	var parts []float64
	for i := 1.0; i <= 20; i++ {
		s.TTFT = append(s.TTFT, i)
		s.TPOT = append(s.TPOT, 2*i)
		s.gaps.Add(21_000, 1)
		if i > 10 {
			parts = append(parts, 2*(i-10)-0.5)
		}
	}
	half := stat.StudentT(0.975, 9) * stat.StdErr(parts)
	isNear := func(a, b float64) bool { return math.Abs(a-b) < 0.05*math.Abs(b) }
	if got := s.OfRecording(TTFT, 0); got.Value != 10.5 || math.Abs(got.High-10.5-half) > 1e-9 || math.Abs(10.5-got.Low-half) > 1e-9 {
		t.Errorf("TTFT: got %+v, want 10.5 +- %g", got, half)
	}
	if got := s.OfRecording(ITL, 0); !isNear(got.Value, 21) || !isNear(got.High-got.Value, 2*half) {
		t.Errorf("ITL: got %+v, want 21 +- %g as TPOT varies", got, 2*half)
	}
	if got := (&Sample{TTFT: []float64{5}, gaps: s.gaps}).OfRecording(TTFT, 0); got != (Value{5, 5, 5}) {
		t.Errorf("one request: got %+v, want 5 without a width", got)
	}
}

func TestFiguresWithoutValues(t *testing.T) {
	s := &Sample{gaps: stat.NewHistogram()}
	for _, metric := range Metrics {
		if got := s.Figure(metric, 0.5); !math.IsNaN(got) {
			t.Errorf("%s: got %g, want NaN", metric, got)
		}
	}
	s.lost = 1
	if got := figuresOf([]*Sample{s}, TTFT); got != (Figures{}) {
		t.Errorf("only a lost request: got %+v, want no figures", got)
	}
}

// TestNoMoreThanArrives: at a rate, no more requests are served than arrive, and their tokens are fewer by the same share.
func TestNoMoreThanArrives(t *testing.T) {
	of := func(v float64) Value { return Value{v, v - 1, v + 1} }
	workload := func(int64) (*workload.Workload, error) { return nil, nil }
	for name, c := range map[string]struct {
		load             Load
		requests, tokens Value
	}{
		"more":       {Load{RateRPS: 4}, Value{4, 3.2, 4.8}, Value{40, 39.2, 40.8}},
		"fewer":      {Load{RateRPS: 6}, of(5), of(50)},
		"clients":    {Load{Clients: 4}, of(5), of(50)},
		"a workload": {Load{RateRPS: 4, Draw: workload}, of(5), of(50)},
	} {
		requests, tokens := c.load.NoMoreThanArrives(of(5), of(50))
		for _, pair := range [][2]Value{{requests, c.requests}, {tokens, c.tokens}} {
			got, want := pair[0], pair[1]
			if !near(got.Value, want.Value) || !near(got.Low, want.Low) || !near(got.High, want.High) {
				t.Errorf("%s: got %+v, want %+v", name, got, want)
			}
		}
	}
}

// TestAnswersOfOneToken: where no answer has a gap, limits on gaps are kept; where one was lost, they are not.
func TestAnswersOfOneToken(t *testing.T) {
	one := &Sample{TTFT: []float64{5}, TPOT: []float64{0}, E2E: []float64{5}, oneToken: []int{0}, gaps: stat.NewHistogram()}
	for text, want := range map[string]string{"tpot.mean=1ms": "", "itl.p99=1ms": "", "tpot=1ms,goodput=100%": "", "ttft.p50=6ms,tpot.p50=1ms": "", "ttft.p50=4ms": "ttft p50"} {
		targets, err := ParseTargets(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Broken([]*Sample{one}, &targets); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	targets := Targets{Limits: []Target{{Metric: TPOT, LimitMs: 1}}}
	for name, s := range map[string]*Sample{
		"one lost":    {TTFT: one.TTFT, TPOT: one.TPOT, E2E: one.E2E, oneToken: one.oneToken, lost: 1, gaps: one.gaps},
		"two tokens":  {TTFT: []float64{5}, TPOT: []float64{2}, E2E: []float64{7}, gaps: one.gaps},
		"no requests": {gaps: one.gaps},
	} {
		if got := Broken([]*Sample{s}, &targets); got != "tpot mean" {
			t.Errorf("%s: got %q, want tpot mean", name, got)
		}
	}
}

// TestShortAnswers: answers of few tokens have as many on average, so that E2E is TTFT and a TPOT for each token behind the first.
func TestShortAnswers(t *testing.T) {
	for _, tokens := range []int64{2, 3, 8, 20} {
		q := Question{Model: "Qwen/Qwen3-8B", Hardware: "H100", InputTokens: 100, OutputTokens: tokens, Concurrency: 1}
		p, err := q.Predict(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := *p.TTFT.Mean + float64(tokens-1)**p.ITL.Mean
		if math.Abs(*p.E2E.Mean/want-1) > 0.03 || math.Abs(*p.TPOT.Mean / *p.ITL.Mean - 1) > 0.01 {
			t.Errorf("%d tokens: got E2E %.2f and TPOT %.2f ms, want %.2f and %.2f", tokens, *p.E2E.Mean, *p.TPOT.Mean, want, *p.ITL.Mean)
		}
	}
}

// TestSampleOfASimulation: four requests of which one is warm-up, one has no answer and one has a single token.
func TestSampleOfASimulation(t *testing.T) {
	us := trace.Some[int64]
	requests := []sim.RequestResult{
		{ArrivalUs: 0, FirstTokenUs: us(100_000), DepartedUs: us(300_000), FinishedUs: us(300_000), OutputTokens: 5, Outcome: sim.OutcomeFinished},
		{ArrivalUs: 1_000_000, FirstTokenUs: us(1_050_000), DepartedUs: us(1_250_000), FinishedUs: us(1_250_000), OutputTokens: 11, Outcome: sim.OutcomeFinished},
		{ArrivalUs: 2_000_000},
		{ArrivalUs: 3_000_000, FirstTokenUs: us(3_070_000), DepartedUs: us(3_070_000), FinishedUs: us(3_070_000), OutputTokens: 1, Outcome: sim.OutcomeFinished},
	}
	stretch := &Stretch{Requests: make([]sim.Request, 4), from: 1, until: 4, meanSpanS: 4}
	stretch.markUnmeasured()
	s := NewSample(requests, nil, stretch)
	if !reflect.DeepEqual(s.TTFT, []float64{50, 70}) || !reflect.DeepEqual(s.TPOT, []float64{20, 0}) ||
		!reflect.DeepEqual(s.E2E, []float64{250, 70}) || s.lost != 1 {
		t.Errorf("got TTFT %v, TPOT %v, E2E %v, %d lost", s.TTFT, s.TPOT, s.E2E, s.lost)
	}
	// The answer of one token has no TPOT and keeps any limit on it.
	s.lost = 0
	if mean, most := s.Figure(TPOT, 0), s.Figure(TPOT, 0.99); mean != 20 || most != 20 {
		t.Errorf("got a mean TPOT of %g ms and P99 of %g, want 20", mean, most)
	}
	for limit, want := range map[float64]float64{19: 0.5, 20: 1} {
		if got := s.Goodput([]Target{{Metric: TPOT, LimitMs: limit}}); got != want {
			t.Errorf("TPOT of %g ms: got %g of the requests, want %g", limit, got, want)
		}
	}
	s.lost = 1
	// Answers left from 1.25 to 3.07 s: the last is counted, the first begins the count. Arrivals took 2 s of the 4 s that
	// they take on average; from 1 to 3 s one request ran for 0.25 s and the lost one from 2 s on.
	if math.Abs(s.ServedS-1.82) > 1e-12 || s.Served != 1 || s.Tokens != 1 || s.excess != 0.5 || math.Abs(s.MeanInFlight-0.625) > 1e-12 {
		t.Errorf("got %g s, %d served, %d tokens, excess %g, %g in flight", s.ServedS, s.Served, s.Tokens, s.excess, s.MeanInFlight)
	}
	// From 1 to 3 s three arrived, the first of which begins the count, and one left: half of two, and as many as the rate has
	// in half of the mean time.
	if s.grew != 0.5 || s.behind != 0 {
		t.Errorf("got %g more in the system and %g behind the rate, want 0.5 and 0", s.grew, s.behind)
	}
	stretch.from, stretch.until = 0, 0
	stretch.markUnmeasured()
	if s := NewSample(requests, nil, stretch); len(s.TTFT) != 0 || s.ServedS != 0 || s.Served != 0 {
		t.Errorf("nothing measured: got %+v", s)
	}
}

func TestLimits(t *testing.T) {
	p := &Prediction{MaxNumSeqs: 8, KVTokens: 12_345}
	shares := []Share{{"computing tokens", 0.3}, {"collectives", 0.45}, {"the host", 0.25}}
	for _, c := range []struct {
		name   string
		engine sim.Result
		peak   float64
		rate   float64
		shares []Share
		want   string
	}{
		{"preempted", sim.Result{Preemptions: 3}, 0, 0, nil, "KV cache (12,345 tokens, 3 preemptions)"},
		{"the cache is full", sim.Result{PeakWaiting: 1}, 0.971, 0, nil, "KV cache (12,345 tokens, 0 preemptions)"},
		{"the cache is full, none waits", sim.Result{}, 0.971, 0, nil, ""},
		{"the cache is nearly full", sim.Result{PeakWaiting: 1}, 0.97, 0, nil, ""},
		{"the batch is full", sim.Result{PeakWaiting: 1, PeakRunning: 8}, 0, 0, nil, "batch limit (max_num_seqs 8)"},
		{"the batch is not full", sim.Result{PeakWaiting: 1, PeakRunning: 7}, 0, 0, nil, ""},
		{"idle", sim.Result{BusyUs: 89, EndUs: 100}, 0, 1, shares, "arrivals (the engine idles 11 % of the time)"},
		{"busy", sim.Result{BusyUs: 90, EndUs: 100}, 0, 1, shares, "interconnect (collectives takes 45 % of the steps)"},
		{"idle clients", sim.Result{BusyUs: 89, EndUs: 100}, 0, 0, shares, "interconnect (collectives takes 45 % of the steps)"},
	} {
		p.KVPeakShare, p.RateRPS, p.Shares = c.peak, c.rate, c.shares
		if got := p.limit(&c.engine); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	for share, want := range map[string]string{"reading weights": "memory bandwidth", "reading the KV cache": "memory bandwidth",
		"computing tokens": "compute", "small kernels": "launches and host work", "the host": "launches and host work"} {
		if got := resourceOf(share); got != want {
			t.Errorf("%s: got %s, want %s", share, got, want)
		}
	}
	if (*stepBreakdown)(nil).shares() != nil || (&stepBreakdown{}).shares() != nil {
		t.Error("no steps have no shares")
	}
	w := stepBreakdown{us: [numShares]float64{readWeights: 1, readKV: 2, computeTokens: 3, collectives: 4, smallKernels: 5, hostWork: 5}}
	want := []Share{{"reading weights", 0.05}, {"reading the KV cache", 0.1}, {"computing tokens", 0.15}, {"collectives", 0.2},
		{"small kernels", 0.25}, {"the host", 0.25}}
	if got := w.shares(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSweep(t *testing.T) {
	q := Question{Model: "m", Hardware: "H100", Concurrency: 4, InputTokens: 100, OutputTokens: 10}
	got, err := q.Sweep("tp=1,2 concurrency=2..8,100")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, v := range got {
		words = append(words, strings.Join(v.Set, ",")+" "+trace.Thousands(int64(v.Concurrency)))
	}
	want := "tensor_parallel_size=1 2;tensor_parallel_size=1 4;tensor_parallel_size=1 8;tensor_parallel_size=1 100;" +
		"tensor_parallel_size=2 2;tensor_parallel_size=2 4;tensor_parallel_size=2 8;tensor_parallel_size=2 100"
	if strings.Join(words, ";") != want {
		t.Errorf("got %q", words)
	}
	for text, change := range map[string]func(*Question){
		"model=x":        func(q *Question) { q.Model = "x" },
		"hardware=L4":    func(q *Question) { q.Hardware = "L4" },
		"ep=true":        func(q *Question) { q.Set = []string{"vllm.enable_expert_parallel=true"} },
		"rate=0.5":       func(q *Question) { q.RateRPS, q.Concurrency = 0.5, 0 },
		"concurrency=9":  func(q *Question) { q.Concurrency = 9 },
		"input-len=7":    func(q *Question) { q.InputTokens = 7 },
		"output-len=1e3": func(q *Question) { q.OutputTokens = 1000 },
	} {
		own := q
		change(&own)
		if got, err := q.Sweep(text); err != nil || !reflect.DeepEqual(got, []Question{own}) {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
	if got, err := (Question{RateRPS: 3, InputTokens: 1, OutputTokens: 2}).Sweep("concurrency=9"); err != nil || got[0].RateRPS != 0 {
		t.Errorf("clients in place of a rate: got %+v, %v", got, err)
	}
	for _, text := range []string{"tp=0", "tp=1.5", "tp=x", "ep=1", "rate=0", "concurrency=0", "concurrency=1073741825", "batch=1", "tp=4..2", "tp=0..2",
		"tp=a..2", "tp=1..1048577", "tp=1,2 tp=4", "concurrency=2,4 rate=1,2", "rate=1 input-len=2 concurrency=3",
		"output-len=1", "input-len=0", "concurrency=16385", "rate=1e6"} {
		if got, err := q.Sweep(text); err == nil {
			t.Errorf("%s: got %d questions, want an error", text, len(got))
		}
	}
}

// TestAnswersToAList: a question that cannot be answered is a row with its reason.
func TestAnswersToAList(t *testing.T) {
	unknown := onL4(4, 0)
	unknown.Model = "no-such-model"
	small := onL4(0, 3)
	small.Set = []string{"vllm.gpu_memory_utilization=0.5"}
	got, err := All(context.Background(), []Question{unknown, small}, 2)
	if err != nil {
		t.Fatal(err)
	}
	a, b := got[0], got[1]
	if a.Model != "no-such-model" || a.Hardware != "L4" || a.Concurrency != 4 || a.InputTokens != 200 || a.OutputTokens != 20 || a.Refused == "" {
		t.Errorf("got %+v", a)
	}
	if b.Model != "meta-llama/Meta-Llama-3.1-8B" || b.Hardware != "L4-24GB" || b.TP != 1 || b.GPUs != 1 || b.RateRPS != 3 ||
		!strings.Contains(b.Refused, "room for") || b.Hint != "raise --tp to 2" {
		t.Errorf("got %+v", b)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := All(cancelled, []Question{unknown}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
}

func TestAmounts(t *testing.T) {
	clients, rate := Load{Clients: 4}, Load{RateRPS: 2.5}
	if clients.Amount() != 4 || rate.Amount() != 2.5 {
		t.Errorf("got %g clients and %g/s", clients.Amount(), rate.Amount())
	}
	if got := clients.WithAmount(7.9); got.Clients != 7 || got.RateRPS != 0 {
		t.Errorf("got %+v, want 7 clients", got)
	}
	if got := clients.WithAmount(0.5); got.Clients != 1 {
		t.Errorf("got %+v, want 1 client", got)
	}
	if got := rate.WithAmount(7.9); got.RateRPS != 7.9 || got.Clients != 0 {
		t.Errorf("got %+v, want 7.9/s", got)
	}
}

// TestArrivalsAtTheMeanRate: arrivals that took 1 s in place of 2 s are stretched.
func TestArrivalsAtTheMeanRate(t *testing.T) {
	s := &Stretch{Requests: []sim.Request{{ArrivalUs: 500_000}, {ArrivalUs: 1_000_000}, {ArrivalUs: 2_000_000}, {ArrivalUs: 2_100_000}},
		from: 1, until: 3, meanSpanS: 2}
	s.AtMeanRate()
	for i, want := range []int64{1_000_000, 2_000_000, 4_000_000, 4_200_000} {
		if got := s.Requests[i].ArrivalUs; got != want {
			t.Errorf("request %d: got %d us, want %d", i, got, want)
		}
	}
	s.until = 2
	s.AtMeanRate()
	if got := s.Requests[3].ArrivalUs; got != 4_200_000 {
		t.Errorf("one measured request has no rate: got %d us", got)
	}
}

func TestPromptsOfAWorkload(t *testing.T) {
	w := &workload.Workload{Requests: []sim.Request{{PromptTokens: 99}, {PromptTokens: 100, ArrivalUs: 5}, {PromptTokens: 101}}}
	l := Load{Workload: w, CachedShare: 0.25}
	if got := l.CountLonger(100); got != 2 {
		t.Errorf("got %d prompts without room for a token in 100, want 2", got)
	}
	l.markCached(w.Requests)
	if got := w.Requests[2].CachedTokens; got != trace.Some[int64](25) {
		t.Errorf("a quarter of 101 tokens: got %v, want 25", got)
	}
	for _, c := range []struct {
		load Load
		want bool
	}{
		{Load{}, false},
		{Load{Workload: w}, true},
		{Load{Workload: w, Clients: 1}, false},
		{Load{Workload: w, RateRPS: 1}, true}, // its arrivals, scaled
		{Load{Workload: &workload.Workload{Requests: make([]sim.Request, 3)}, RateRPS: 1}, false},
	} {
		if got := c.load.IsRecording(); got != c.want {
			t.Errorf("%+v: got %t", c.load, got)
		}
	}
}

// TestLoadsThatCannotBeDrawn and what the error asks for.
func TestLoadsThatCannotBeDrawn(t *testing.T) {
	two := func(arrivalUs int64) *workload.Workload {
		return &workload.Workload{Requests: []sim.Request{{PromptTokens: 5, OutputTokens: 5}, {PromptTokens: 5, OutputTokens: 5, ArrivalUs: arrivalUs}}}
	}
	for want, l := range map[string]Load{
		"want at least 2":  {Workload: &workload.Workload{Requests: make([]sim.Request, 1)}},
		"without arrivals": {Workload: two(0)},
		"drawn":            {Draw: func(int64) (*workload.Workload, error) { return nil, errors.New("drawn") }},
	} {
		if _, err := l.Stretch(1, 1, 0, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	l := Load{Draw: func(seed int64) (*workload.Workload, error) { return two(10_000_000 * seed), nil }, RateRPS: 0.5}
	s, err := l.Stretch(2, 1, 0, 1)
	if err != nil || s.Requests[1].ArrivalUs != 4_000_000 {
		t.Errorf("two requests in 20 s at 0.5/s: got %+v, %v, want the second after 4 s", s, err)
	}
}

// TestEdgesOfARecordingAreNotMeasured: the first and the last fifth at most.
func TestEdgesOfARecordingAreNotMeasured(t *testing.T) {
	measured := func(warmUpS float64) string {
		var requests []sim.Request
		for i := range int64(11) {
			requests = append(requests, sim.Request{ArrivalUs: i * 1_000_000})
		}
		requests = append(requests, sim.Request{After: 1}, sim.Request{After: 4})
		out := ""
		for _, r := range recordedStretch(requests, warmUpS).Requests {
			if r.Unmeasured {
				out += "-"
			} else {
				out += "+"
			}
		}
		return out
	}
	for warmUpS, want := range map[float64]string{0: "+++++++++++++", 1: "-+++++++++--+", 2: "--+++++++---+", 9: "--+++++++---+"} {
		if got := measured(warmUpS); got != want {
			t.Errorf("%g s of warm-up: got %s, want %s", warmUpS, got, want)
		}
	}
}

// TestPartsOfAPrediction: the shares of a step add up to one and the parts of the TTFT to its mean, whatever the tables
// are; the largest share limits the load.
func TestPartsOfAPrediction(t *testing.T) {
	q := Question{Model: "meta-llama/Llama-3.1-8B", Hardware: "H100", InputTokens: 500, OutputTokens: 20, Concurrency: 8}
	p, err := q.Predict(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	share, largest := 0.0, Share{}
	for _, s := range p.Shares {
		share += s.Share
		if s.Share > largest.Share {
			largest = s
		}
	}
	if len(p.Shares) != int(numShares) || math.Abs(share-1) > 1e-9 || !strings.HasPrefix(p.LimitedBy, resourceOf(largest.Name)+" ("+largest.Name) {
		t.Errorf("got shares %v and the limit %q", p.Shares, p.LimitedBy)
	}
	ttft := 0.0
	for _, part := range p.TTFTParts {
		ttft += part.MeanMs
		if !(part.LowMs >= 0 && part.LowMs <= part.MeanMs && part.HighMs >= part.MeanMs) {
			t.Errorf("%s: got %g ms, %g to %g", part.Name, part.MeanMs, part.LowMs, part.HighMs)
		}
	}
	if math.Abs(ttft / *p.TTFT.Mean - 1) > 0.01 {
		t.Errorf("parts of TTFT: got %g ms together, want %g", ttft, *p.TTFT.Mean)
	}
}

// TestDrawnExcess: the excess of drawn arrivals is that of the rate over what was drawn.
func TestDrawnExcess(t *testing.T) {
	requests := make([]sim.Request, 400)
	for i := 1; i < len(requests); i += 2 {
		requests[i].After = i
	}
	excess := drawSessions(requests, 8, 3)
	if want := 1 - float64(lastArrivalUs(requests))/1e6*8/400; math.Abs(excess-want) > 1e-6 || excess == 0 {
		t.Errorf("sessions: got an excess of %g, want %g", excess, want)
	}
	excess = drawArrivals(requests, 8, 3)
	if want := 1 - float64(lastArrivalUs(requests))/1e6*8/400; math.Abs(excess-want) > 1e-6 || excess == 0 {
		t.Errorf("arrivals: got an excess of %g, want %g", excess, want)
	}
}

// TestSaturatedServers: above its capacity a server answers as many requests per second as at its capacity, however many
// arrive, and below it as many as arrive.
func TestSaturatedServers(t *testing.T) {
	served := func(rateRPS float64) *Prediction {
		t.Helper()
		q := onH100("")
		q.Concurrency = 0
		q.RateRPS = rateRPS
		p, err := q.Predict(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if p.RequestsPerS > rateRPS {
			t.Errorf("%g requests/s arrive: got %g answers/s", rateRPS, p.RequestsPerS)
		}
		return p
	}
	capacity := served(1000)
	if !capacity.Saturated {
		t.Errorf("1000 requests/s: got %g answers/s, not saturated", capacity.RequestsPerS)
	}
	for _, share := range []float64{1.2, 2} {
		p := served(share * capacity.RequestsPerS)
		if ratio := p.RequestsPerS / capacity.RequestsPerS; !p.Saturated || math.Abs(ratio-1) > 0.1 {
			t.Errorf("%g of the capacity: got %.3f of its answers, saturated %t", share, ratio, p.Saturated)
		}
	}
	if p := served(0.8 * capacity.RequestsPerS); p.Saturated || p.RequestsPerS < 0.76*capacity.RequestsPerS {
		t.Errorf("four fifths of the capacity: got %g of %g answers/s, saturated %t", p.RequestsPerS, capacity.RequestsPerS, p.Saturated)
	}
}

// TestHighestRateFromFarAbove: the search does not depend on the rate that was asked.
func TestHighestRateFromFarAbove(t *testing.T) {
	highest := map[float64]float64{}
	for _, rate := range []float64{1, 1000} {
		q := onL4(0, rate)
		p, _, err := q.Server(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		load := q.load()
		found, err := p.searchMaxLoad(&load, 1, &Targets{Limits: []Target{{TPOT, 0, 60}}})
		if err != nil {
			t.Fatal(err)
		}
		highest[rate] = found.RateRPS
	}
	if a, b := highest[1], highest[1000]; !(a > 0) || math.Abs(a/b-1) > 0.05 {
		t.Errorf("got %g and %g requests/s", a, b)
	}
}

// TestLengthsStayWithinTheModel: requests near max_model_len are answered as well as shorter ones.
func TestLengthsStayWithinTheModel(t *testing.T) {
	q := onH100("--max-model-len 2000")
	q.InputTokens = 1990
	q.OutputTokens = 10
	q.Concurrency = 1
	p, err := q.Predict(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if p.TTFT.Mean == nil || p.E2E.P99 == nil || *p.E2E.P99 > 1.1**p.E2E.Mean {
		t.Errorf("got TTFT %+v, E2E %+v", p.TTFT, p.E2E)
	}
}

// TestStagesWaitForTheToken: with pipeline stages a lone request's next token takes all stages, as one stage of the whole
// model does, though asynchronous scheduling forms the step before: the first stage needs the token that the last samples.
func TestStagesWaitForTheToken(t *testing.T) {
	var tpot []float64
	for _, stages := range []string{"1", "2"} {
		q := onH100("--pipeline-parallel-size " + stages)
		q.Concurrency = 1
		p, err := q.Predict(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		tpot = append(tpot, *p.TPOT.Mean)
	}
	if tpot[1] < 0.98*tpot[0] {
		t.Errorf("got %g ms in one stage and %g in two", tpot[0], tpot[1])
	}
}

// TestSharesOfModules: a row of a whole attention module counts as reading the KV cache only for what the context adds.
func TestSharesOfModules(t *testing.T) {
	share := func(input int64) (kv float64) {
		q := Question{Model: "deepseek-ai/DeepSeek-V3", Hardware: "B200", Serve: "-tp 8", InputTokens: input, OutputTokens: 10, Concurrency: 1}
		p, err := q.Predict(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range p.Shares {
			if s.Name == shareNames[readKV] {
				kv = s.Share
			}
		}
		return kv
	}
	if short, long := share(100), share(60_000); short > 0.05 || long < 2*short {
		t.Errorf("got %.3f of the steps at 100 tokens, %.3f at 60,000", short, long)
	}
}

// TestExchangeIsInTheTables: measured tables have the exchange between data-parallel ranks; only without them is it
// estimated from the datasheet's link, and said so.
func TestExchangeIsInTheTables(t *testing.T) {
	for hardware, isEstimated := range map[string]bool{"H200": false, "MI300X": true} {
		q := DefaultQuestion()
		q.Model = "deepseek-ai/DeepSeek-V3"
		q.Hardware = hardware
		q.Set = []string{"data_parallel_size=8"}
		p, _, err := q.Server(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		said := slices.ContainsFunc(p.Warnings, func(f trace.Finding) bool {
			return strings.Contains(f.Message, "exchange between ranks") && !strings.Contains(f.Message, "(0 us")
		})
		if said != isEstimated || p.Bound != isEstimated {
			t.Errorf("%s: got an estimate %v, bound %v, want %v: %v", hardware, said, p.Bound, isEstimated, p.Warnings)
		}
	}
}
