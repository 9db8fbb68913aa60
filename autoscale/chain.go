package autoscale

// This file solves the queueing models: the birth-death chain of requests in one server, whose
// moments model.go and corrected.go turn into latencies.
//
// Words: a seat is one of the N requests that can be in service at once (max_num_seqs, or fewer if
// the KV cache is smaller); the chain is the birth-death chain of the number n of requests in the
// system, and p_n the probability of n; lambda is the arrival rate; tau(n) is the time a request
// stays in service while n are; k and m are the mean prompt and output tokens; c is the number of
// chunks of a prompt, the parts in which the token budget of a step lets it be computed.

import (
	"math"
	"math/bits"
)

// point is the steady state of a server at one arrival rate. Latencies are means.
type point struct {
	RateRPS          float64 // offered, requests per second
	ThroughputRPS    float64 // accepted
	WaitMs           float64 // Wq, before service
	ServiceMs        float64 // S, in service
	InService        float64 // X, mean requests in service
	PrefillMs, ITLMs float64
	TTFTMs           float64 // the TTFT that the flavour uses for sizing
	TunerTTFTMs      float64 // the TTFT that the flavour's tuner compares with windows; wva-3p omits one ITL
	MaxRateRPS       float64 // N/tau(N): more than this is blocked
}

// MaxRateRPS returns the largest throughput of the server, N/tau(N), requests per second.
func (q *model) MaxRateRPS() float64 { return 1000 * float64(q.seats) / q.tauMs(q.seats) }

// Solve returns the steady state at a rate above 0, requests per second. Above MaxRateRPS the
// throughput levels off and the rest of the arrivals is blocked.
func (q *model) Solve(rateRPS float64) point {
	pt := point{RateRPS: rateRPS, MaxRateRPS: q.MaxRateRPS()}
	c := q.chain(rateRPS / 1000)
	pt.ThroughputRPS = rateRPS * c.accepted
	perMs := pt.ThroughputRPS / 1000
	pt.InService = c.inService
	pt.WaitMs = c.queued / perMs
	if q.flavour == corrected {
		q.seatWait(&pt)
	}
	pt.ServiceMs = c.inService / perMs
	q.phases(&pt, &c)
	return pt
}

// moments are sums over the states of the chain.
type moments struct {
	inService, queued float64 // means
	accepted, blocked float64 // shares of arrivals; they add up to 1
	// Shares of the accepted arrivals by what they find: an idle engine (idle), or some requests in
	// service but fewer than N (busy); the others queue. busyN is the mean number in service that the second kind finds,
	// times its share.
	idle, busy, busyN float64
}

// Probabilities are not normalised while they are summed. Numbers outside [small, large] are scaled
// by powers of two, which an exponent counts, so that nothing overflows.
const (
	large    = 0x1p+400
	small    = 0x1p-400
	stepBits = 400
)

// head is the sums over the states n < N, and p_N, all in units of 2^base with a common base.
type head struct {
	none  float64 // p_0
	zero  float64 // sum of p_n, n < N
	first float64 // sum of n p_n, n < N
	p     float64 // p * 2^shift is the probability of the state reached
	shift int     // 0 or below
}

// times moves h to the next state, which is ratio times as likely.
func (h *head) times(ratio float64) {
	h.p *= ratio
	if h.p < small || h.p > large {
		h.rescale()
	}
}

// rescale brings p back into range. If p has become small only p and shift change: its terms are
// too small to matter in the sums.
func (h *head) rescale() {
	switch {
	case h.p == 0: // stays so
	case h.p < small:
		h.p *= 0x1p+400
		h.shift -= stepBits
	case h.shift < 0: // it was small and grows again
		h.p *= 0x1p-400
		h.shift += stepBits
	default: // it is large: a new unit for the sums too
		h.p *= 0x1p-400
		h.none *= 0x1p-400
		h.zero *= 0x1p-400
		h.first *= 0x1p-400
	}
}

// chain returns the moments of the chain at arrival rate lambda, requests per ms. It solves p_{n+1}
// = p_n lambda tau(n+1)/(n+1) for n < N; the states of the waiting room follow geometrically.
func (q *model) chain(lambda float64) moments {
	states := head{none: 1, p: 1}
	for n := 0; n < q.seats; {
		// A prompt has the same number of chunks up to last requests; there the time in service is linear
		// in n, and so is the ratio of neighbouring probabilities times n+1.
		chunks := q.chunksAt(float64(n + 1))
		last := q.seats
		if q.flavour.chunked() {
			last = int(math.Min(float64(q.seats), q.fitting(chunks)))
		}
		base, perRequest := q.lineAt(chunks, lambda) // tau(n) = base + perRequest*n, ms
		base, perRequest = base*lambda, perRequest*lambda
		// Local variables stay in registers, which halves the time of a calibration.
		p, zero, first := states.p, states.zero, states.first
		for ; n < last; n++ {
			if states.shift == 0 { // otherwise p is too small to matter
				zero += p
				first += p * float64(n)
			}
			if n+1 == q.seats { // p_N is made below
				continue
			}
			p *= base/float64(n+1) + perRequest
			if p < small || p > large {
				states.p, states.zero, states.first = p, zero, first
				states.rescale()
				p, zero, first = states.p, states.zero, states.first
			}
		}
		states.p, states.zero, states.first = p, zero, first
	}
	// With all seats taken each further request waits, and the ratio is constant.
	r := lambda * q.tauMs(q.seats) / float64(q.seats)
	states.times(r)
	return q.finish(&states, r)
}

// finish returns the moments of head h together with the waiting room, which has Q places: states N to N+Q,
// geometric with ratio r = lambda tau(N)/N. The tail is summed in units of its largest member, p_N if r <= 1 and
// p_{N+Q} otherwise, so that nothing overflows or cancels.
func (q *model) finish(h *head, r float64) moments {
	places := q.limits.Queue
	seats := float64(q.seats)
	var notLast, last, waiting float64 // sums over 0 <= j < Q and j = Q of p_{N+j}, and of j p_{N+j}
	unit := math.Ldexp(h.p, h.shift)   // the largest member in the head's units
	if r <= 1 {
		notLast, waiting = geometric(r, places)
		last = math.Pow(r, float64(places))
		waiting += float64(places) * last
	} else {
		sum, fromTop := geometric(1/r, places) // over 0 <= i < Q, member j = Q - i is r^-i
		last = 1
		notLast = sum / r
		waiting = float64(places)*sum - fromTop
		// Against such a tail the head, whose members are at most `large`, is nothing.
		if unit = topUnit(h.p, h.shift, r, places); unit > 0x1p+900 {
			h.none = 0
			h.zero = 0
			h.first = 0
			unit = 1
		}
	}
	notLast *= unit
	last *= unit
	waiting *= unit
	total := h.zero + notLast + last
	taken := h.zero + notLast // in which an arrival is accepted
	return moments{
		inService: (h.first + seats*(notLast+last)) / total,
		queued:    waiting / total,
		accepted:  taken / total,
		blocked:   last / total,
		idle:      h.none / taken,
		busy:      (h.zero - h.none) / taken,
		busyN:     h.first / taken,
	}
}

// topUnit returns p * 2^shift * r^q.
func topUnit(p float64, shift int, r float64, q int) float64 {
	if shift == 0 {
		return p * math.Pow(r, float64(q))
	}
	return math.Exp2(math.Log2(p) + float64(shift) + float64(q)*math.Log2(r))
}

// geometric returns the sums of r^j and of j r^j over 0 <= j < n, by doubling. Every term is
// positive, so nothing cancels near r = 1.
func geometric(r float64, n int) (sum, weighted float64) {
	power, done := 1.0, 0.0 // sum and weighted hold `done` terms, power is r^done
	for bit := bits.Len(uint(n)); bit > 0; bit-- {
		weighted += power * (weighted + done*sum)
		sum += power * sum
		power = power * power
		done *= 2
		if n>>(bit-1)&1 == 1 {
			sum += power
			weighted += done * power
			power = power * r
			done++
		}
	}
	return sum, weighted
}
