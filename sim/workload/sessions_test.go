package workload

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
)

// 40 sessions in a closed loop: each round comes exactly when the one before has left and its
// reader has thought, whatever the recorded times; in the fixed mode at those.
func TestSessionsInAClosedLoop(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	var text strings.Builder
	text.WriteString("request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming," +
		"input_tokens,output_tokens,arrival_time_us,send_time_us,think_time_us\n")
	before, think := map[int]int{}, map[int]int64{} // by session: its last row; by row: its think time
	var follows []int
	for row := range 200 {
		s := row % 40
		if rng.IntN(3) == 0 {
			s = rng.IntN(40)
		}
		follows = append(follows, before[s]-1)
		before[s], think[row] = row+1, rng.Int64N(50_000)
		fmt.Fprintf(&text, "%d,c,t,,s%d,0,,0,true,%d,%d,%d,0,%d\n", row, s, 20+rng.IntN(200), 1+rng.IntN(20), row*2000, think[row])
	}
	w, err := ReadTraceV2([]byte(text.String()), "trace.csv", nil)
	if err != nil {
		t.Fatal(err)
	}
	run := func(w Workload) []sim.RequestResult {
		cfg := sim.DefaultConfig(testkit.Small(2000), &sim.Blackbox{Beta: []float64{900, 3, 20}})
		cfg.Egress = sim.Const(70)
		res, err := sim.Run(cfg, w.Requests, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res.Requests
	}
	isEarly, early := w.EarlyRounds(), 0
	for i, r := range run(*w) {
		if isEarly(&r) {
			early++
		}
		if r.ArrivalUs != int64(i*2000) {
			t.Fatalf("fixed: request %d arrives at %d us", i, r.ArrivalUs)
		}
	}
	if early == 0 || !w.HasSessions() {
		t.Errorf("%d early rounds, want some", early)
	}
	for _, constant := range []int64{-1, 7000} {
		own := *w
		own.Requests = append([]sim.Request(nil), w.Requests...)
		var drawn func() int64
		if constant >= 0 {
			drawn = func() int64 { return constant }
		}
		own.CloseSessions(drawn)
		res := run(own)
		for i, k := range follows {
			want := int64(i * 2000)
			if k >= 0 {
				if want = res[k].DepartedUs.V + think[i]; constant >= 0 {
					want = res[k].DepartedUs.V + constant
				}
			}
			if res[i].ArrivalUs != want {
				t.Errorf("think %d: request %d arrives at %d us, want %d", constant, i, res[i].ArrivalUs, want)
			}
		}
	}
}

func TestThinkTimes(t *testing.T) {
	for text, want := range map[string][2]int64{
		"constant:value=500ms": {500_000, 500_000}, "constant:value=2": {2e6, 2e6},
		"lognormal:mu=2.0,sigma=0.6,min=3s,max=30s": {3e6, 30e6}, "lognormal:mu=-1,sigma=0": {367_879, 367_880},
	} {
		draw, err := ThinkTime(text, 1)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for range 200 {
			if us := draw(); us < want[0] || us > want[1] {
				t.Errorf("%s: %d us, want %d to %d", text, us, want[0], want[1])
			}
		}
	}
	for _, text := range []string{"", "constant", "constant:", "constant:value=-1s", "constant:mu=1", "lognormal:sigma=1", "lognormal:mu=NaN",
		"lognormal:mu=1,sigma=1,min=3s,max=2s", "normal:mu=1", "constant:value=1e99", "lognormal:mu=1,sigma=-1", "lognormal:mu=1s"} {
		if _, err := ThinkTime(text, 1); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

const weka = `{"id": "a", "block_size": 64, "requests": [
  {"t": 0.5, "type": "n", "in": 130, "out": 10, "hash_ids": [1, 2], "api_time": 2.0},
  {"t": 1.0, "type": "subagent", "in": 900, "out": 10, "hash_ids": [], "api_time": 9.0},
  {"t": 4.0, "type": "s", "in": 260, "out": 0, "hash_ids": [1, 2, 3, 4], "api_time": 1.5},
  {"t": 5.0, "type": "s", "in": 300, "out": 7, "hash_ids": [1, 2, 3, 4], "api_time": 1.5}]}
`

// Sessions of Weka's traces: rounds follow answers by what passed between them, none where a request overlaps the one before;
// ids are a session's own unless they are said to be global; sub-agents are counted.
func TestWekaSessions(t *testing.T) {
	for _, scope := range []string{"", "global"} {
		text := weka + strings.Replace(weka, `"id": "a"`, `"id": "b"`, 1)
		if scope != "" {
			text = strings.ReplaceAll(text, `"id"`, `"hash_id_scope": "global", "id"`)
		}
		w, _, err := Read([]byte(text), "weka.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Requests) != 6 || len(w.Notes) != 1 || !strings.Contains(w.Notes[0].Message, "2 requests of sub-agents") {
			t.Fatalf("got %d requests, %v", len(w.Requests), w.Notes)
		}
		a, b := w.Requests[0], w.Requests[3]
		if a.ArrivalUs != 500_000 || a.PromptTokens != 130 || a.OutputTokens != 10 || a.HashTokens != 64 || w.Requests[1].OutputTokens != 1 {
			t.Errorf("got %+v", a)
		}
		if same := a.Hashes[0] == b.Hashes[0]; same != (scope == "global") || a.Hashes[0] != w.Requests[1].Hashes[0] {
			t.Errorf("scope %q: first ids %v and %v", scope, a.Hashes, b.Hashes)
		}
		w.CloseSessions(nil)
		for i, want := range []struct {
			after int
			think int64
		}{{0, 0}, {1, 1_500_000}, {2, 0}, {0, 0}, {4, 1_500_000}, {5, 0}} {
			if q := w.Requests[i]; q.After != want.after || want.after > 0 && q.ThinkUs != want.think {
				t.Errorf("request %d: after %d with %d us, want %+v", i, q.After, q.ThinkUs, want)
			}
		}
	}
	for text, want := range map[string]string{
		weka + `{"requests": [{"t": 1, "in": 0, "out": 3}]}`:                   "weka.json:6: request 1: got t 1 s, api_time 0 s, 0 input, 3 output tokens",
		weka + "\n" + `{"requests": [{"t": -1, "in": 4, "out": 3}]}`:           "weka.json:7: request 1: got t -1 s",
		weka + `{"block_size": 0, "requests": []}`:                             "weka.json:6: got no JSON object",
		weka + `{"requests": [{"t": 1, "in": 4, "out": 3`:                      "unexpected EOF",
		weka + `{"requests": [{"t": 1, "in": 1e9, "out": 3}]}`:                 "weka.json:6: ",
		weka + `{"requests": [{"t": 1, "in": 4, "out": 3, "hash_ids": [-1]}]}`: "weka.json:6: got no JSON object",
		`{"requests": []}`: "got no request",
	} {
		if _, _, err := Read([]byte(text), "weka.json"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want %q", text[max(0, len(text)-60):], err, want)
		}
	}
}
