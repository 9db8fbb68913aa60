package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
)

// round is a request's place in its session: the position of the round before, from 1 (0: it is
// the first or in no session), and the recorded think time between the two, us.
type round struct {
	before  int
	thinkUs int64
}

// HasSessions reports whether some request follows another one of its session.
func (w *Workload) HasSessions() bool {
	return slices.ContainsFunc(w.rounds, func(r round) bool { return r.before > 0 })
}

// CloseSessions has each round of a session arrive when the one before has been answered and its
// reader has thought: by think, us, or as recorded where that is nil. First rounds come at their
// recorded times; stops count from the arrival.
func (w *Workload) CloseSessions(think func() int64) {
	release(w.Requests)
	for i, r := range w.rounds[:len(w.Requests)] {
		if r.before == 0 {
			continue
		}
		q := &w.Requests[i]
		if q.After, q.ArrivalUs, q.ThinkUs = r.before, 0, r.thinkUs; think != nil {
			q.ThinkUs = think()
		}
	}
}

// EarlyRounds tells, of each result in workload order, whether it is a round of a session that came
// before the answer of the round before, as it may at recorded times.
func (w *Workload) EarlyRounds() func(*sim.RequestResult) bool {
	var left []int64
	return func(r *sim.RequestResult) bool {
		before := w.rounds[len(left)].before
		left = append(left, r.DepartedUs.Or(math.MaxInt64))
		return before > 0 && r.ArrivalUs < left[before-1]
	}
}

// ThinkTime draws think times, us, from what a user states: constant:value=500ms, or
// lognormal:mu=2.0,sigma=0.6,min=3s,max=30s, mu and sigma of the logarithm of seconds.
func ThinkTime(text string, seed int64) (func() int64, error) {
	kind, rest, _ := strings.Cut(text, ":")
	allowed := map[string][]string{"constant": {"value"}, "lognormal": {"mu", "sigma", "min", "max"}}[kind]
	v := map[string]float64{"max": math.MaxInt32}
	for part := range strings.SplitSeq(rest, ",") {
		name, said, _ := strings.Cut(part, "=")
		x, err := strconv.ParseFloat(said, 64)
		if span, wrong := time.ParseDuration(said); err != nil && wrong == nil && name != "mu" && name != "sigma" {
			x, err = span.Seconds(), nil
		}
		if err != nil || !slices.Contains(allowed, name) || math.Abs(x) > math.MaxInt32 || math.IsNaN(x) || name != "mu" && x < 0 {
			return nil, fmt.Errorf("got %q, want constant:value=500ms or lognormal:mu=2.0,sigma=0.6,min=3s,max=30s", text)
		}
		v[name] = x
	}
	if _, ok := v[allowed[0]]; !ok || v["min"] > v["max"] {
		return nil, fmt.Errorf("got %q, want %s, and min at most max", text, allowed[0])
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 0x7417))
	return func() int64 {
		s := v["value"]
		if kind == "lognormal" {
			s = max(v["min"], min(v["max"], stat.Exp(v["mu"]+float64(v["sigma"]*rng.NormFloat64()))))
		}
		return sim.ToUs(s * 1e6)
	}, nil
}
