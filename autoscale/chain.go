package autoscale

import (
	"math"
	"math/bits"

	"github.com/blis-train/blis-train/internal/stat"
)

// point is the steady state of one server at one arrival rate.
type point struct {
	RateRPS          float64 // offered, requests per second
	ThroughputRPS    float64 // accepted
	BlockedFrac      float64 // of the arrivals
	WaitMs           float64 // Wq, before service
	ServiceMs        float64 // S, in service
	InService        float64 // X, mean requests in service
	PrefillMs, ITLMs float64
	TTFTMs           float64 // as the flavour sizes
	TunerTTFTMs      float64 // as the flavour's tuner observes it; wva-3p leaves out one ITL
	MaxRateRPS       float64 // N/tau(N): more than this is blocked
}

// MaxRateRPS is the largest throughput, N/tau(N).
func (m *model) MaxRateRPS() float64 { return 1000 * float64(m.n) / m.tauMs(m.n) }

// Solve gives the steady state at a rate of > 0 requests per second. It has an
// answer at any rate: above MaxRateRPS the throughput levels off and the rest
// is blocked.
func (m *model) Solve(rateRPS float64) point {
	pt := point{RateRPS: rateRPS, MaxRateRPS: m.MaxRateRPS()}
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
	m.phases(&pt, &c)
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
	c = stat.Expm1(byOutput*byOutput*stat.Log(spread)) + float64(m.s.PromptCV2*(float64((r+both)*(r+both))+float64(both*both*m.s.OutputCV2)))
	return c, float64((1-output)*spread/2) + 2*output*spread*spread/3
}

// seatWait replaces the chain's wait for a seat by that of a chain whose number in the system
// has the same drift and the variance of the work (spec#queue-seats).
//
// c is the squared coefficient of variation of U. With all seats taken the number in the system varies (1 + c)/2 times
// the chain's; with seats free (1 + c)/(2 psi (1 - r)^2) times, at least once, and 1/(psi (1 - r)) denser; psi is the
// remaining share of decodes.
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

// The corrected flavour follows one vLLM engine step by step where inferno-3p
// takes the mean batch:
//
//   - A request takes c prefill steps and m-1 decode steps: the first token comes
//     out of the prefill.
//   - Prompts come at rate lambda whatever the batch is. With n requests in service,
//     share s = (m-1)/(c+m-1) of them decoding, a step lasts T(n) = b(n)/(1-r) on
//     average, b(n) = alpha + n*s*d, d the work of one decode, r = lambda*wp, wp that
//     of one prompt. With all seats taken prompts come as fast as requests leave:
//     T = alpha + N*w/(c+m-1), w the work of a whole request.
//   - The step after a long one is long, because more prompts arrived meanwhile. The
//     prompts per step are a self-exciting count with branching ratio r, so the
//     variance of a step is T*lambda*E[wp^2]/(1-r^2), and the running step that an
//     arrival meets lasts E[T^2]/E[T] = T(n) + kappa.
//   - An arrival at a busy engine waits for half of that step; whoever arrives within
//     it is prefilled in the same step as it is, and what does not fit the token budget
//     together takes steps more.
//   - A prompt that the budget cuts leaves room in its last step, which others fill
//     whenever one is waiting: for the share of time that prefills take.
//   - For the same reason the decodes right after one's own prefill are slow (own), and
//     the number in service varies more than the chain has it, by 1/(1-r)^2 over a
//     lifetime (slow): a batch that is larger when steps are long makes the mean gap
//     between tokens longer than the mean step.
//   - Long requests hold more context, and more of them are in service at any time:
//     the mean context of a decode is k + E[m^2]/2E[m], not k + m/2.
//   - Seats end where the KV cache or the token budget of a step ends.
//   - Tokens found in the prefix cache are read and not computed.
//   - With asynchronous scheduling a step is formed while the one before it executes:
//     an arrival at a busy engine waits one step more, and a seat stays taken for one.
//   - The wait for a seat is that of a second chain, see seatWait.
//
// TTFT is the mean over requests; ITL is the mean over tokens, as vLLM's histogram
// of inter-token latency has it. Left out: preemption, any law of the lengths beyond
// two moments (those of log-normal lengths stand for higher ones).

// decodes is the number of decode steps of a request.
func (m *model) decodes() float64 { return m.s.Output - 1 }

// seatSteps is how many steps a request keeps its seat: with asynchronous scheduling the
// step after its last one is formed before it is known to have ended.
func (m *model) seatSteps(c float64) float64 {
	if m.v.Async {
		c++
	}
	return c + m.decodes()
}

// secondMoment is E[m^2] of the output length.
func (m *model) secondMoment() float64 { return float64(m.s.Output * m.s.Output * (1 + m.s.OutputCV2)) }

// residentTokens is the mean KV footprint of a request in service, tokens.
func (m *model) residentTokens() float64 {
	return m.s.Prompt + m.secondMoment()/(2*m.s.Output)
}

// correctedSeats is how many requests fit: seats, KV cache, token budget.
func (m *model) correctedSeats() int {
	n := float64(m.v.MaxBatch)
	if kv := m.v.KVTokens; kv != nil && *kv > 0 {
		n = math.Min(n, *kv/m.residentTokens())
	}
	if tokens := m.s.Prompt + m.decodes(); tokens > 0 {
		budget := float64(m.v.MaxBatchedTokens)
		n = math.Min(n, budget*(math.Ceil(m.s.Prompt/budget)+m.decodes())/tokens)
	}
	return int(math.Max(1, n))
}

// correctedDecodeWork is the work of a request's m-1 decodes, the j-th of which
// reads k+j tokens, ms.
func (m *model) correctedDecodeWork() float64 {
	context := float64(m.decodes()*m.s.Prompt) + float64((m.secondMoment()-m.s.Output)/2)
	return float64(m.p.BetaMs*m.decodes()) + float64(m.p.GammaMs*context)
}

// lineAt is tau(n) = a + b*n for n < N at arrival rate lambda; the same as line
// in all flavours but corrected.
func (m *model) lineAt(c, lambda float64) (a, b float64) {
	idle := 1 - float64(lambda*m.prefillWork(c))
	if m.flavour != corrected || idle <= 0 {
		return m.line(c)
	}
	return m.seatSteps(c) * m.p.AlphaMs / idle, m.correctedDecodeWork() / idle
}

// stepwise is what a step of the corrected flavour is made of at one rate, ms.
type stepwise struct {
	chunks, steps float64 // prefill steps, and all steps in a seat
	prompt        float64 // wp
	perSeat       float64 // what one request in service adds to b(n)
	branch        float64 // r
	kappa         float64
	full          float64 // a step with all seats taken
}

func (m *model) stepwise(inService, lambda float64) stepwise {
	s := stepwise{chunks: m.chunksAt(inService)}
	s.steps = m.seatSteps(s.chunks)
	s.prompt = m.prefillWork(s.chunks)
	s.perSeat = m.correctedDecodeWork() / s.steps
	s.branch = lambda * s.prompt
	s.kappa = lambda * s.prompt * s.prompt * (1 + m.s.PromptCV2) / (1 - float64(s.branch*s.branch))
	s.full = m.p.AlphaMs + float64(float64(m.n)*(s.prompt/s.steps+s.perSeat))
	return s
}

// correctedPhases are the latencies at a solution of the chain.
func (m *model) correctedPhases(p *point, h *moments) {
	lambda := p.RateRPS / 1000
	s := m.stepwise(p.InService, lambda)
	waiting := 1 - h.idle - h.busy // share that finds all seats taken
	alone := float64(s.chunks*m.p.AlphaMs) + s.prompt
	// sums over what accepted arrivals meet, each weighted by its share
	prefill := float64(h.idle*alone) +
		float64(waiting*(float64(s.chunks*(m.p.AlphaMs+float64(float64(m.n)*s.perSeat)))+float64(s.prompt*(1+float64(m.n)/s.steps))))
	late := float64(waiting * s.full) // one step more, for asynchronous scheduling
	var extraITL float64
	if s.branch < 1 {
		base := float64(h.busy*m.p.AlphaMs) + float64(h.busyN*s.perSeat)
		step := base / (1 - s.branch)
		running := step + float64(h.busy*s.kappa)
		prefill += float64(running*(0.5+s.branch)) + float64(s.chunks*base) + float64(h.busy*s.prompt)
		prefill += float64(m.spill(p.InService, lambda, running, h.busy) * (base + float64(s.branch*running)))
		prefill += m.shared(p.InService, &s, lambda, base)
		late += step
		extraITL = (1 - waiting) * m.extraGap(&s, lambda)
	} else {
		prefill += float64(h.busy * (float64(1.5*s.full) + s.prompt))
		late += float64(h.busy * s.full)
	}
	if m.v.Async {
		prefill += late
	}
	p.PrefillMs, p.TTFTMs = prefill, m.v.OverheadMs+p.WaitMs+prefill
	p.TunerTTFTMs = p.TTFTMs
	p.ITLMs = math.Min(p.ServiceMs/s.steps+extraITL, math.Max(s.full, p.ServiceMs/s.steps))
}

// extraGap is what own and slow add to the mean gap between tokens.
func (m *model) extraGap(s *stepwise, lambda float64) float64 {
	if m.decodes() == 0 {
		return 0
	}
	g := 1 - s.branch
	own := (s.prompt + float64(s.branch*s.kappa)) * s.branch / g / m.decodes()
	free := g - float64(lambda*m.correctedDecodeWork())
	if free <= 0 {
		return own
	}
	// mean overlap of two lifetimes over the mean lifetime, for log-normal outputs
	overlap := 1 - math.Erf(math.Sqrt(stat.Log1p(m.s.OutputCV2))/2)
	return own + float64(m.correctedDecodeWork()/m.decodes()/free*(1/(g*g)-1)*overlap)
}

// shared is what other prompts add to the last step of one that is cut into chunks: they
// fill what it leaves of the budget whenever one is waiting, ms.
func (m *model) shared(inService float64, s *stepwise, lambda, base float64) float64 {
	if s.chunks < 2 {
		return 0
	}
	budget := math.Max(1, float64(m.v.MaxBatchedTokens)-inService)
	steps := m.s.Prompt / budget
	waiting := math.Min(1, lambda*(float64(steps*base)+s.prompt))
	return waiting * (s.chunks - steps) * s.prompt / steps
}

// spill is the mean number of steps a prompt takes beyond its own because those
// ahead of it in the same step fill the token budget.
func (m *model) spill(inService, lambda, running, busy float64) float64 {
	perStep := math.Max(1, float64(m.v.MaxBatchedTokens)-inService) / m.s.Prompt
	ahead := lambda * running / 2
	if busy > 0 {
		ahead /= busy
	}
	if !(perStep < 64) || ahead <= 0 {
		return 0
	}
	var mean float64
	p := stat.Exp(-ahead)
	for a := 0.0; a < 64 && (p > 1e-9 || a < ahead); a++ {
		mean += float64(p * (math.Ceil((a+1)/perStep) - math.Ceil(1/perStep)))
		p *= ahead / (a + 1)
	}
	return mean
}
