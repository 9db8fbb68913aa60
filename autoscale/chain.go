package autoscale

import (
	"math"
	"math/bits"

	"github.com/blis-train/blis-train/internal/stat"
)

// point is the steady state of one server at one arrival rate.
type point struct {
	RateRPS       float64 // offered, requests per second
	ThroughputRPS float64 // accepted
	BlockedFrac   float64 // of the arrivals
	ResponseMs    float64 // W, in the system
	WaitMs        float64 // Wq, before service
	ServiceMs     float64 // S = W - Wq
	InService     float64 // X, mean requests in service
	Rho           float64 // X/N
	PrefillMs     float64
	ITLMs         float64
	TTFTMs        float64 // as the flavour sizes
	TunerTTFTMs   float64 // as the flavour's tuner observes it; wva-3p leaves out one ITL
	MaxRateRPS    float64 // N/tau(N): more than this is blocked
	Overloaded    bool    // rate above it
}

// MaxRateRPS is the largest throughput, N/tau(N).
func (m *model) MaxRateRPS() float64 { return 1000 * float64(m.n) / m.tauMs(m.n) }

// Solve gives the steady state at a rate of > 0 requests per second. It has an
// answer at any rate: above MaxRateRPS the throughput levels off and the rest
// is blocked.
func (m *model) Solve(rateRPS float64) point {
	pt := point{RateRPS: rateRPS, MaxRateRPS: m.MaxRateRPS()}
	pt.Overloaded = rateRPS > pt.MaxRateRPS
	c := m.chain(rateRPS / 1000)
	pt.BlockedFrac = c.blocked
	pt.ThroughputRPS = rateRPS * c.accepted
	perMs := pt.ThroughputRPS / 1000
	pt.InService = c.inService
	pt.WaitMs = c.queued / perMs
	if m.flavour == corrected {
		m.seatWait(&pt)
	}
	pt.ServiceMs = c.inService / perMs
	pt.ResponseMs = pt.WaitMs + pt.ServiceMs
	pt.Rho = math.Min(pt.InService/float64(m.n), 1)
	l := m.phases(&pt, &c)
	pt.PrefillMs, pt.ITLMs, pt.TTFTMs, pt.TunerTTFTMs = l.prefillMs, l.itlMs, l.ttftMs, l.tunerTTFTMs
	return pt
}

// moments are what the birth-death chain is solved for.
type moments struct {
	inService, queued float64 // means
	accepted, blocked float64 // shares of arrivals; they add up to 1
	// of the accepted arrivals: those who meet nobody, those who meet fewer than N (and the
	// mean of that number times their share); the rest waits for a seat
	idle, busy, busyN float64
}

// Products are kept in [small, large] by moving powers of two into an exponent.
const (
	large    = 0x1p+400
	small    = 0x1p-400
	stepBits = 400
)

// head holds the states n < N and p_N, all in units of 2^base.
type head struct {
	none  float64 // p_0
	zero  float64 // sum of p_n, n < N
	first float64 // sum of n p_n, n < N
	p     float64 // the state reached: p * 2^shift, shift <= 0
	shift int
}

// times goes to the next state.
func (h *head) times(ratio float64) {
	if h.p *= ratio; h.p < small || h.p > large {
		h.rescale()
	}
}

// rescale brings p back into range. The sums follow it up; while it is far below them
// (shift < 0) its terms are too small to count.
func (h *head) rescale() {
	switch {
	case h.p == 0:
	case h.p < small:
		h.p, h.shift = h.p*0x1p+400, h.shift-stepBits
	case h.shift < 0:
		h.p, h.shift = h.p*0x1p-400, h.shift+stepBits
	default:
		h.p, h.none, h.zero, h.first = h.p*0x1p-400, h.none*0x1p-400, h.zero*0x1p-400, h.first*0x1p-400
	}
}

// chain solves p_{n+1} = p_n lambda tau(n+1)/(n+1) for n < N and the geometric
// tail of the waiting room, lambda in requests per ms.
func (m *model) chain(lambda float64) moments {
	h := head{none: 1, p: 1}
	for n := 0; n < m.n; {
		c := m.chunksAt(float64(n + 1))
		last := m.n
		if m.flavour.chunked() {
			last = int(math.Min(float64(m.n), m.fitting(c)))
		}
		a, b := m.lineAt(c, lambda)
		a, b = float64(a*lambda), float64(b*lambda)
		for ; n < last; n++ {
			if h.shift == 0 {
				h.zero += h.p
				h.first += float64(h.p * float64(n))
			}
			if n+1 < m.n {
				h.times(a/float64(n+1) + b)
			}
		}
	}
	r := lambda * m.tauMs(m.n) / float64(m.n)
	h.times(r)
	return m.finish(&h, r)
}

// finish adds the waiting room to the head: states N..N+Q, geometric with ratio
// r = lambda/mu(N). The tail is summed in units of its largest member, p_N when
// r <= 1 and p_{N+Q} when r > 1, so that nothing overflows and nothing cancels.
func (m *model) finish(h *head, r float64) moments {
	q, seats := m.v.Queue, float64(m.n)
	var notLast, last, waiting float64 // sums over 0 <= j < Q and j = Q of p_{N+j}, and of j p_{N+j}
	unit := math.Ldexp(h.p, h.shift)   // the largest member in the head's units
	if r <= 1 {
		notLast, waiting = geometric(r, q)
		last = stat.Pow(r, float64(q))
		waiting += float64(float64(q) * last)
	} else {
		sum, fromTop := geometric(1/r, q) // over 0 <= i < Q, member j = Q - i is r^-i
		last = 1
		notLast = sum / r
		waiting = float64(float64(q)*sum) - fromTop
		if unit = topUnit(h.p, h.shift, r, q); unit > 0x1p+900 {
			h.none, h.zero, h.first, unit = 0, 0, 0, 1 // the head is 2^-400 of the tail
		}
	}
	notLast, last, waiting = float64(notLast*unit), float64(last*unit), waiting*unit
	total := h.zero + notLast + last
	taken := h.zero + notLast // in which an arrival is accepted
	return moments{
		inService: (h.first + float64(seats*(notLast+last))) / total,
		queued:    waiting / total,
		accepted:  taken / total,
		blocked:   last / total,
		idle:      h.none / taken,
		busy:      (h.zero - h.none) / taken,
		busyN:     h.first / taken,
	}
}

// topUnit is p * 2^shift * r^q.
func topUnit(p float64, shift int, r float64, q int) float64 {
	if shift == 0 {
		return p * stat.Pow(r, float64(q))
	}
	return stat.Exp2(stat.Log2(p) + float64(shift) + float64(float64(q)*stat.Log2(r)))
}

// geometric sums r^j and j r^j over 0 <= j < n by doubling: every term is
// positive, so nothing cancels near r = 1.
func geometric(r float64, n int) (sum, weighted float64) {
	power, done := 1.0, 0.0 // sum and weighted hold `done` terms, power is r^done
	for bit := bits.Len(uint(n)); bit > 0; bit-- {
		weighted += float64(power * (weighted + float64(done*sum)))
		sum += float64(power * sum)
		power = float64(power * power)
		done *= 2
		if n>>(bit-1)&1 == 1 {
			sum += power
			weighted += float64(done * power)
			power = float64(power * r)
			done++
		}
	}
	return sum, weighted
}

// The wait for a seat is decided by how much the work in the system varies, and that is not
// what a birth-death chain has. An arrival brings work U: what its prompt, its steps and its
// context keep the full engine busy for. Work is a diffusion with drift lambda*E[U]-1 and
// variance lambda*E[U^2], whoever is served first. The number of requests follows from it:
//
//   - With all seats taken one more request waits, and brings E[U]. The number varies as that of
//     a chain does, times (1+c)/2, c the squared coefficient of variation of U.
//   - With seats free the engine is shared, and a prompt is prefilled when it comes. One more
//     request in service is E[U](1-r)*psi of work: its decodes alone, and of them what is left, psi =
//     (1 + cv2 of the outputs)/2 for steps that cost the same. The number varies as that of
//     a chain does, times (1+c)/(2 psi (1-r)^2), r the prompts' share of the time.
//   - Where the last seat is taken the work is continuous, so that the numbers are denser
//     by 1/(psi (1-r)) below than above.
//
// For exponential outputs, no prompts and steps of constant cost this is the chain itself;
// with all seats taken always, the G/G/1 formula of Kingman (1961), doi:10.1017/S0305004100036094;
// with enough seats, the state-space collapse of processor sharing, Gromoll (2004),
// doi:10.1214/105051604000000035.

// variability of the work of a request with n in service, of which prompts are the share r:
// c is its squared coefficient of variation, psi what is left of the decodes of one in service.
func (m *model) variability(n, r float64) (c, psi float64) {
	decodes := m.seatSteps(m.chunksAt(n))*m.p.AlphaMs/n + m.correctedDecodeWork()
	// what reading prompts and outputs has of the decodes: the latter grows with the square of the output
	prompt := m.p.GammaMs * m.decodes() * m.s.Prompt / decodes
	output := m.p.GammaMs * (m.secondMoment() - m.s.Output) / 2 / decodes
	spread := 1 + m.s.OutputCV2
	byOutput := (1 - r) * (1 + output) // the power of the output that the work goes with: 1 without growth of the context
	both := float64((1 - r) * prompt)
	c = stat.Expm1(byOutput*byOutput*stat.Log(spread)) +
		float64(m.s.PromptCV2*(float64((r+both)*(r+both))+float64(both*both*m.s.OutputCV2)))
	return c, float64((1-output)*spread/2) + 2*output*spread*spread/3
}

// seatWait replaces the chain's wait for a seat by that of a chain whose number in the system
// has the same drift and the variance of the work (spec#queue-seats).
func (m *model) seatWait(p *point) {
	lambda := p.RateRPS / 1000
	full := m.tauMs(m.n) / float64(m.n)
	share, last := float64(lambda*m.prefillWork(m.chunksAt(p.InService))), m.prefillWork(m.chunksAt(float64(m.n)))/full
	if share >= 1 || last >= 1 {
		return // nothing but prompts
	}
	c, psi := m.variability(math.Max(1, p.InService), share)
	// birth and death rates grow by this times their sum: the drift stays, the variance does not
	more := math.Max(0, (1+c)/(2*psi*(1-share)*(1-share))-1) / 2
	h := m.seatHead(lambda, more, lambda*full*float64(m.n))
	c, psi = m.variability(float64(m.n), last)
	h.p /= psi * (1 - last)
	queue := m.finish(&h, stat.Pow(lambda*full, 2/(1+c)))
	p.WaitMs = queue.queued / (p.ThroughputRPS / 1000)
}

// seatHead is the head of that chain: lambda tau(n) = t, with last for n = N, makes births
// 1 + more(1+n/t) and deaths n/t + more(1+n/t) an arrival.
func (m *model) seatHead(lambda, more, last float64) head {
	h := head{none: 1, zero: 1, p: 1}
	birth, over := 1+more, 1.0 // of the state reached, birth/over
	for n := 1; n < m.n; {
		c := m.chunksAt(float64(n))
		segment := int(math.Min(float64(m.n-1), m.fitting(c)))
		a, b := m.lineAt(c, lambda)
		a, b = float64(a*lambda), float64(b*lambda)
		for ; n <= segment; n++ {
			seats := float64(n)
			t := a + float64(b*seats)
			h.times(birth * t / (over * (float64(more*t) + float64((1+more)*seats))))
			if h.shift == 0 {
				h.zero += h.p
			}
			birth, over = float64((1+more)*t)+float64(more*seats), t
		}
	}
	h.times(birth * last / (over * (float64(more*last) + float64((1+more)*float64(m.n)))))
	return h
}
