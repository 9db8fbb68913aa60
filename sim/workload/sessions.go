package workload

// This file handles sessions: requests (rounds) of one conversation, each of which follows the
// answer of the one before.

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blis-train/blis-train/sim"
)

// round is a request's place in its session: the position of the round before, from 1 (0: it is
// the first or in no session), and the recorded think time between the two, us.
type round struct {
	before  int
	thinkUs int64
}

// isFirst reports whether the round waits for no other one.
func (r round) isFirst() bool { return r.before == 0 }

// HasSessions reports whether some request follows another one of its session.
func (w *Workload) HasSessions() bool {
	return slices.ContainsFunc(w.rounds, func(r round) bool { return !r.isFirst() })
}

// CloseSessions makes each round of a session arrive when the round before has been answered and a
// think time has passed: think() us, or the recorded time if think is nil. First rounds arrive at
// their recorded times; aborts count from the arrival. The workload must have sessions (HasSessions).
func (w *Workload) CloseSessions(think func() int64) {
	releaseArrivals(w.Requests)
	for i, r := range w.rounds[:len(w.Requests)] {
		if r.isFirst() {
			continue
		}
		q := &w.Requests[i]
		q.After = r.before
		q.ArrivalUs = 0
		q.ThinkUs = r.thinkUs
		if think != nil {
			q.ThinkUs = think()
		}
	}
}

// EarlyRounds returns a function that must be called once with each result, in workload order, because it
// counts its calls. It reports whether the request is a round that arrived before the answer of the round
// before it. Only workloads whose rounds keep their recorded arrivals can have such rounds.
func (w *Workload) EarlyRounds() func(*sim.RequestResult) bool {
	var departedUs []int64 // of the requests so far
	return func(r *sim.RequestResult) bool {
		own := w.rounds[len(departedUs)]
		departedUs = append(departedUs, r.DepartedUs.Or(math.MaxInt64))
		return !own.isFirst() && r.ArrivalUs < departedUs[own.before-1]
	}
}

// ThinkTime returns a function that draws think times, us, for a text in the form of BLIS's flag
// --think-time-dist, such as constant:value=500ms or lognormal:mu=2.0,sigma=0.6,min=3s,max=30s. mu and sigma
// are those of the logarithm of seconds. A time without a unit is in seconds.
func ThinkTime(text string, seed int64) (func() int64, error) {
	kind, rest, _ := strings.Cut(text, ":")
	// The parameters of each kind; the first one must be given.
	allowed := map[string][]string{"constant": {"value"}, "lognormal": {"mu", "sigma", "min", "max"}}[kind]
	v := map[string]float64{"max": math.MaxInt32} // by parameter; times in s
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(part, "=")
		x, err := strconv.ParseFloat(value, 64)
		if isTime := name != "mu" && name != "sigma"; err != nil && isTime {
			var span time.Duration
			span, err = time.ParseDuration(value)
			x = span.Seconds()
		}
		isFinite := math.Abs(x) <= math.MaxInt32 // false for NaN
		if err != nil || !slices.Contains(allowed, name) || !isFinite || name != "mu" && x < 0 {
			return nil, fmt.Errorf("got %q, want constant:value=500ms or lognormal:mu=2.0,sigma=0.6,min=3s,max=30s",
				text)
		}
		v[name] = x
	}
	if _, ok := v[allowed[0]]; !ok || v["min"] > v["max"] {
		return nil, fmt.Errorf("got %q, want %s, and min at most max", text, allowed[0])
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 0x7417)) // not the numbers that a generator draws from the same seed
	return func() int64 {
		s := v["value"]
		if kind == "lognormal" {
			s = max(v["min"], min(v["max"], math.Exp(v["mu"]+v["sigma"]*rng.NormFloat64())))
		}
		return sim.ToUs(s * 1e6)
	}, nil
}
