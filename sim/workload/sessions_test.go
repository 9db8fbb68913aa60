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
