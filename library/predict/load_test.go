package predict

import (
	"fmt"
	"math"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim/workload"
)

func TestParseTargets(t *testing.T) {
	for text, want := range map[string]string{
		"ttft.p95=1s,tpot.mean=40ms": "ttft.p95=1000ms tpot.mean=40ms",
		"itl=30ms":                   "itl.p90=30ms",
		"E2E.p99.9=10s":              "e2e.p99.9=10000ms",
	} {
		got, err := ParseTargets(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		words := ""
		for i, l := range got.Limits {
			if i > 0 {
				words += " "
			}
			words += l.String()
		}
		if words != want || got.Goodput != 0 {
			t.Errorf("%s: got %q, goodput %g, want %q", text, words, got.Goodput, want)
		}
	}
	for _, text := range []string{"ttft=1s,goodput=95%", "ttft=1s,goodput=95", "ttft=1s,goodput=0.95"} {
		if got, err := ParseTargets(text); err != nil || math.Abs(got.Goodput-0.95) > 1e-12 {
			t.Errorf("%s: got goodput %g, %v, want 0.95", text, got.Goodput, err)
		}
	}
	for _, text := range []string{"", "goodput=95%", "ttft.p95=1s,goodput=95%", "itl=40ms,goodput=95%", "ttft=0s", "ttft.p0=1s", "ttft.p100=1s",
		"latency=1s", "ttft=1", "ttft=1s,goodput=120%", "ttft.q95=1s"} {
		if got, err := ParseTargets(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

// TestGoodput counts requests by hand.
func TestGoodput(t *testing.T) {
	s := &Sample{TTFT: []float64{1, 2, 3, 4}, TPOT: []float64{10, 10, 30, 10}, E2E: []float64{1, 1, 1, 1}, lost: 1, gaps: stat.NewHistogram()}
	limits := []Target{{Metric: TTFT, LimitMs: 3}, {Metric: TPOT, LimitMs: 20}}
	if got := s.Goodput(limits); got != 2.0/5 {
		t.Errorf("got goodput %g, want 2 of 5", got)
	}
	if got := s.Figure(TTFT, 0.99); !math.IsInf(got, 1) {
		t.Errorf("p99 with a lost request: got %g, want infinite", got)
	}
	if got := s.Figure(TTFT, 0.25); got != 2 {
		t.Errorf("p25 of 1, 2, 3, 4 and a lost one: got %g, want 2", got)
	}
}

// TestSteadyState: the clients of a closed loop start one after another, and the first ones are not measured.
func TestSteadyState(t *testing.T) {
	l := Load{Clients: 8, InputTokens: 100, OutputTokens: 10}
	s, err := l.Stretch(1, 40, 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	measured := 0
	for i := range s.Requests {
		if !s.Requests[i].Unmeasured {
			measured++
		}
	}
	if measured != 40 || len(s.Requests) != 40+2*8+8+4 {
		t.Errorf("got %d measured of %d, want 40 of 68", measured, len(s.Requests))
	}
	if got := s.Requests[7].ArrivalUs; got != 3_500_000 {
		t.Errorf("client 8 starts at %d us, want 7/8 of 4 s", got)
	}
}

// TestWorkloadOfLengths: a table without arrivals is served at a rate.
func TestWorkloadOfLengths(t *testing.T) {
	w, _, err := workload.Read([]byte("num_prefill_tokens,num_decode_tokens\n100,20\n200,10\n300,30\n"), "lengths.csv")
	if err != nil {
		t.Fatal(err)
	}
	l := Load{RateRPS: 2, Workload: w}
	s, err := l.Stretch(1, 0, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	tokens := int64(0)
	for i := range s.Requests {
		tokens += s.Requests[i].PromptTokens
	}
	if len(s.Requests) != 3 || tokens != 600 || lastArrivalUs(s.Requests) == 0 {
		t.Errorf("got %d requests, %d prompt tokens, last arrival %d us, want 3, 600 and Poisson arrivals", len(s.Requests), tokens,
			lastArrivalUs(s.Requests))
	}
	l.RateRPS = 0
	if _, err := l.Stretch(1, 0, 0, 1); err == nil {
		t.Error("lengths without arrivals or rate: got no error")
	}
}

// TestSessionsAtARate: first rounds arrive so that all rounds together reach the rate, later ones follow answers; in
// a loop that repeats a recording the copies of a session follow each other and share no prompt with the first.
func TestSessionsAtARate(t *testing.T) {
	text := "trace_version: 2\nsession_context_growth: accumulate\n" +
		"request_id,session_id,round_index,input_tokens,output_tokens,arrival_time_us\n"
	for i := range 200 {
		text += fmt.Sprintf("%d,s%d,%d,100,20,%d\n", i, i/5, i%5, i*1000)
	}
	w, _, err := workload.Read([]byte(text), "sessions.csv")
	if err != nil {
		t.Fatal(err)
	}
	l := Load{RateRPS: 10, Workload: w}
	s, err := l.Stretch(1, 0, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	firsts := 0
	for i := range s.Requests {
		if s.Requests[i].After == 0 {
			firsts++
		}
		if hasArrival := s.Requests[i].ArrivalUs > 0; hasArrival != (s.Requests[i].After == 0) {
			t.Fatalf("request %d after %d: got an arrival %t, want one of first rounds alone", i, s.Requests[i].After, hasArrival)
		}
	}
	if got := float64(lastArrivalUs(s.Requests)) / 1e6; firsts != 40 || got < 10 || got > 40 {
		t.Errorf("%d first rounds within %.3g s, want 40 at 2 sessions/s", firsts, got)
	}
	l = Load{Clients: 60, Workload: w}
	if s, err = l.Stretch(1, 0, 1, 1); err != nil {
		t.Fatal(err)
	}
	if a, b := &s.Requests[6], &s.Requests[206]; b.After != a.After+200 || b.Hashes[0] == a.Hashes[0] || a.PromptTokens != 220 {
		t.Errorf("round 2 follows %d with %d tokens, its copy follows %d, want the copy in a session of its own", a.After, a.PromptTokens, b.After)
	}
}

// TestControlledValue: a statistic that follows the excess of arrivals exactly is known without error, and its
// interval is widened to what a repetition may have.
func TestControlledValue(t *testing.T) {
	var samples []*Sample
	for _, excess := range []float64{-0.02, 0.01, 0.03, -0.01, 0.02, 0.005} {
		samples = append(samples, &Sample{excess: excess, TTFT: []float64{100 * (1 + 2*excess)}, gaps: stat.NewHistogram()})
	}
	mean := func(s *Sample) float64 { return s.Figure(TTFT, 0) }
	if v := ValueOf(samples, mean); math.Abs(v.Value-100) > 1e-9 || v.High-v.Low > 1e-9 {
		t.Errorf("got %+v, want 100 without width", v)
	}
	half := 1.96 * 200 / math.Sqrt(10000) // 200 by an excess of 1, whose variance is one over the requests
	if v := Widened(samples, mean, 10000, 0.15); math.Abs(v.High-100-half) > 1e-6 {
		t.Errorf("got %+v, want 100 +- %g", v, half)
	}
	if v := Widened(samples, mean, 10000, 0.05); math.Abs(v.High-102.5) > 1e-6 {
		t.Errorf("got %+v, want at most 5 %% wide", v)
	}
}

// TestUnlike: a figure that misses its limit by less than its digits is printed with more.
func TestUnlike(t *testing.T) {
	for _, c := range []struct {
		v, limit float64
		want     string
	}{{1000.04, 1000, "1000.04"}, {1203.4, 1000, "1203"}, {40.0004, 40, "40.0004"}, {94.9996, 95, "94.9996"}, {1000.4, 1000.3, "1000.4"}, {99.996, 99.999, "99.996"}, {math.Inf(1), 40, "+Inf"}} {
		if got := unlike(c.v, c.limit); got != c.want {
			t.Errorf("%v against %v: got %s, want %s", c.v, c.limit, got, c.want)
		}
	}
}
