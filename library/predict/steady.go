package predict

// This file says how much of a load is simulated until servers are in their steady state, and how many requests are
// measured there.

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
)

// A warm-up lasts leastWarmUp answers under load at least, which take longer than on an idle server, but at most
// mostWarmUp times that of WarmUpS (20 answers of the idle server) and mostWarmUpS: above capacity answers never stop
// growing. A simulation is repeated at most mostRepeats times for it.
const (
	leastWarmUp = 2
	mostWarmUp  = 20.0 / WarmUpAnswers
	mostWarmUpS = 300
	mostRepeats = 4
)

// clearlyMore is the ratio of the load to what servers that were full at the start answered above which a few requests show
// an overload.
const clearlyMore = 1.2

// leastOfStart is the share of the time in which the clients of a closed loop start that has to be over when measuring
// begins. Servers whose seats are full before all clients have started answer more than two requests of each by then;
// three are enough, since the clients start within two answers.
const leastOfStart = 0.8

// startLeft is the share of the number of requests in the system that the start of a simulation may still change in the
// measured part.
const startLeft = 0.05

// mostFilled is the share of the seats that are taken at the start at most: with all of them taken, requests would lose
// their KV cache to others, and a server that could do the load might never get out of that.
const mostFilled = 0.8

// overloadSDs is by how many standard deviations of the number of requests in the system that number has to grow for
// stat.Overloaded to call it an overload; leastOverload is the smallest overload that is to be seen, as a share of the
// arrivals.
const (
	overloadSDs   = 4
	leastOverload = 0.05
)

// SteadyState is what is simulated of a load on servers that are alike.
type SteadyState struct {
	WarmUpS  float64 // the warm-up that is simulated, s
	Measured int     // requests
	load     Load    // of all servers
	idleS    float64 // the warm-up that an idle server needs, s
	seats    float64 // requests that the servers run at once, at most
	repeats  int     // how often the start was changed
	riseS    float64 // by how much an answer takes longer with one request more in the system, s; 0: not known
}

// SteadyState returns what is simulated first of the load of so many servers of this kind, with the warm-up of an idle
// server. A rate far above what the servers can do warms them up with no more requests than twice those that they would
// answer in that time if each took as long as on an idle server: they fill them, and more would only lengthen the queue.
func (p *Prediction) SteadyState(load Load, servers int, idleS float64, measured int) SteadyState {
	running := p.MaxNumSeqs
	// In the mean half of an answer is in the KV cache.
	if tokens := load.InputTokens + load.OutputTokens/2; tokens > 0 {
		running = min(running, p.KVTokens/tokens)
	}
	seats := float64(servers) * float64(p.DP) * float64(running)
	warmUpS := idleS
	if load.Clients == 0 {
		warmUpS = min(idleS, 2*seats*WarmUpAnswers/load.RateRPS)
	}
	return SteadyState{WarmUpS: warmUpS, Measured: measured, load: load, idleS: idleS, seats: seats}
}

// BeginLike changes what is simulated first of a load to what is known from another load of the same lengths on the same
// servers, so that fewer simulations have to be repeated.
func (st *SteadyState) BeginLike(other *SteadyState) {
	if st.load.RateRPS == 0 || other.riseS == 0 {
		return
	}
	inFlight := st.settled(other.riseS)
	st.begin(inFlight)
	if st.seats/2 < inFlight && inFlight < mostFilled*st.seats {
		st.Measured = max(st.Measured, other.Measured)
		st.load.Tail = other.load.Tail
	}
}

// Stretch returns the requests of one seed that are simulated; servers is that of [Load.Stretch].
func (st *SteadyState) Stretch(seed int64, servers int) (*Stretch, error) {
	return st.load.Stretch(seed, st.Measured, st.WarmUpS, servers)
}

// Lengthen changes what is simulated if the measured part of a simulation was not the steady state of the servers, or too
// short to tell it from an overload: what is in flight at first, the warm-up, the measured part and the load after it. It
// reports whether it changed anything: then the simulation is to be repeated.
func (st *SteadyState) Lengthen(s *Sample) bool {
	hasAnswers := len(s.E2E) > 0
	if st.load.Clients > 0 || st.load.IsWorkload() {
		if s.Saturated || !hasAnswers || st.repeats == mostRepeats {
			return false
		}
		isShort := st.warmUpOf(s) > st.WarmUpS
		isEarly := !st.load.IsWorkload() && st.load.Before == 0 && s.startS < leastOfStart*st.WarmUpS
		if !isShort && !isEarly {
			return false
		}
		if isShort {
			st.WarmUpS = st.warmUpOf(s)
		}
		if isEarly {
			st.load.Before = st.load.Clients
		}
		st.repeats++
		return true
	}
	if hasAnswers && s.MeanInFlight > 0 {
		st.riseS = math.Max(0, stat.Mean(s.E2E)/1e3-st.idleS/WarmUpAnswers) / s.MeanInFlight
	}
	if hasAnswers && st.repeats < mostRepeats && st.restart(s) {
		st.repeats++
		return true
	}
	measured := int(overloadSDs / leastOverload * math.Sqrt(st.seats))
	isOverload := s.Saturated && st.load.RateRPS*s.ServedS > clearlyMore*float64(s.Served)
	switch {
	case isOverload:
		return false
	case s.Drained && st.load.Tail == 0:
		// Twice as many requests as the servers run at once keep them busy until the measured ones are answered, and
		// the waves in which they admit them average out over as many.
		st.load.Tail = int(2 * st.seats)
		st.Measured = max(st.Measured, st.load.Tail, measured)
		return true
	case st.Measured < measured && s.MeanInFlight > st.seats/2:
		// With fewer requests in the system the servers can do clearly more than this.
		st.Measured = measured
		return true
	}
	return false
}

// warmUpOf returns the warm-up, s, that a load needs whose answers take as long as those of the sample.
func (st *SteadyState) warmUpOf(s *Sample) float64 {
	return min(mostWarmUpS, mostWarmUp*st.idleS, leastWarmUp*stat.Mean(s.E2E)/1e3)
}

// restart reports whether the number of requests in the system was still far from that of the steady state when
// measuring began. Then the simulation begins with so many in flight.
func (st *SteadyState) restart(s *Sample) bool {
	if st.riseS == 0 {
		return false
	}
	// While one request is answered, the share 1 - idle/E2E of the difference to the steady state stays: near the highest
	// load an idle server fills very slowly.
	e2eS := stat.Mean(s.E2E) / 1e3
	answers := st.WarmUpS / e2eS // that the warm-up lasted
	inFlight := st.settled(st.riseS)
	left := math.Abs(inFlight-float64(st.load.InFlight)) / inFlight * math.Pow(1-st.idleS/WarmUpAnswers/e2eS, answers)
	if left <= startLeft {
		return false
	}
	st.begin(inFlight)
	return true
}

// settled returns the number of requests in the system in the steady state, if an answer takes riseS longer with each of
// them: where it takes e + riseS n with n requests in the system, e being that of an idle server, n = rate e / (1 - rate riseS).
func (st *SteadyState) settled(riseS float64) float64 {
	inFlight := mostFilled * st.seats
	if freeShare := 1 - st.load.RateRPS*riseS; freeShare > 0 {
		inFlight = math.Min(inFlight, st.load.RateRPS*st.idleS/WarmUpAnswers/freeShare)
	}
	return inFlight
}

// begin makes the simulation begin with so many requests in flight.
func (st *SteadyState) begin(inFlight float64) {
	st.load.InFlight = int(math.Round(inFlight))
	st.WarmUpS = min(mostWarmUpS, leastWarmUp*inFlight/st.load.RateRPS) // an answer takes inFlight/rate then
}
