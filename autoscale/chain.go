package autoscale

// This file solves the queueing models: the birth-death chain of requests in one server (Solve),
// and how each flavour derives latencies from it. The comments below derive the corrected flavour.
//
// Words: a seat is one of the N requests that can be in service at once (max_num_seqs, or fewer if
// the KV cache is smaller); the chain is the birth-death chain of the number n of requests in the
// system, and p_n the probability of n; lambda is the arrival rate; tau(n) is the time a request
// stays in service while n are; k and m are the mean prompt and output tokens; c is the number of
// chunks of a prompt.

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// point is the steady state of a server at one arrival rate. Latencies are means.
type point struct {
	RateRPS          float64 // offered, requests per second
	ThroughputRPS    float64 // accepted
	BlockedFrac      float64 // of the arrivals
	WaitMs           float64 // Wq, before service
	ServiceMs        float64 // S, in service
	InService        float64 // X, mean requests in service
	PrefillMs, ITLMs float64
	TTFTMs           float64 // the TTFT that the flavour uses for sizing
	TunerTTFTMs      float64 // the TTFT that the flavour's tuner compares with windows; wva-3p omits one ITL
	MaxRateRPS       float64 // N/tau(N): more than this is blocked
}

// MaxRateRPS returns the largest throughput of the server, N/tau(N), requests per second.
func (m *model) MaxRateRPS() float64 { return 1000 * float64(m.n) / m.tauMs(m.n) }

// Solve returns the steady state at a rate above 0, requests per second. Above MaxRateRPS the
// throughput levels off and the rest of the arrivals is blocked.
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

// moments are sums over the states of the chain.
type moments struct {
	inService, queued float64 // means
	accepted, blocked float64 // shares of arrivals; they add up to 1
	// The accepted arrivals by what they find: an idle engine (idle), or fewer than N requests in
	// service (busy); the others queue. busyN is the mean number in service of the second kind
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
	p     float64 // the probability of the state reached, p * 2^shift with shift <= 0
	shift int
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
	case h.p == 0:
	case h.p < small:
		h.p *= 0x1p+400
		h.shift -= stepBits
	case h.shift < 0:
		h.p *= 0x1p-400
		h.shift += stepBits
	default:
		h.p *= 0x1p-400
		h.none *= 0x1p-400
		h.zero *= 0x1p-400
		h.first *= 0x1p-400
	}
}

// chain returns the moments of the chain at arrival rate lambda, requests per ms. It solves p_{n+1}
// = p_n lambda tau(n+1)/(n+1) for n < N; the states of the waiting room follow geometrically.
func (m *model) chain(lambda float64) moments {
	states := head{none: 1, p: 1}
	for n := 0; n < m.n; {
		// A prompt has the same number of chunks up to last requests; there the time in service is linear
		// in n, and so is the ratio of neighbouring probabilities times n+1.
		chunks := m.chunksAt(float64(n + 1))
		last := m.n
		if m.flavour.chunked() {
			last = int(math.Min(float64(m.n), m.fitting(chunks)))
		}
		base, perRequest := m.lineAt(chunks, lambda)
		base, perRequest = base*lambda, perRequest*lambda
		// Local variables stay in registers, which halves the time of a calibration.
		p, zero, first := states.p, states.zero, states.first
		for ; n < last; n++ {
			if states.shift == 0 {
				zero += p
				first += p * float64(n)
			}
			if n+1 == m.n {
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
	r := lambda * m.tauMs(m.n) / float64(m.n)
	states.times(r)
	return m.finish(&states, r)
}

// finish returns the moments of head h together with the waiting room: states N to N+Q, geometric
// with ratio r = lambda/mu(N). The tail is summed in units of its largest member, p_N if r <= 1 and
// p_{N+Q} otherwise, so that nothing overflows or cancels.
func (m *model) finish(h *head, r float64) moments {
	places := m.v.Queue
	seats := float64(m.n)
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
		if unit = topUnit(h.p, h.shift, r, places); unit > 0x1p+900 {
			h.none = 0
			h.zero = 0
			h.first = 0
			unit = 1 // the head is 2^-400 of the tail
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

// The queueing delay depends on how much the work in the system varies, and real work varies
// differently from that of a birth-death chain. An arrival brings work U: the time for which its
// prompt, its steps and its context occupy the full engine. Work is a diffusion with drift
// lambda*E[U]-1 and variance lambda*E[U^2], whatever the order of service. The number of requests
// follows from it:
//
//  - If all N seats are taken, each further request waits with work E[U]. The number of requests varies as in the
//    chain, times (1+c)/2, where c is the squared coefficient of variation of U.
//  - Otherwise requests share the engine, and a prompt is prefilled on arrival. A request in service has
//    E[U](1-r)*psi of work left, its remaining decodes: psi = (1 + cv2 of the outputs)/2 for steps of equal cost.
//    The number varies as in the chain, times (1+c)/(2 psi (1-r)^2), where r is the share of time spent on prompts.
//  - Work is continuous at the point where all seats are taken, so the density of the number of requests is higher
//    by 1/(psi (1-r)) below that point than above.
//
// For exponential outputs, no prompts and steps of constant cost this is the chain itself. With the
// engine always full it is the G/G/1 formula of Kingman (1961), doi:10.1017/S0305004100036094; with
// seats always free it is the state-space collapse of processor sharing, Gromoll (2004),
// doi:10.1214/105051604000000035.

// variability returns two properties of the work of a request with n in service, if prompts take
// the share r of the time: c is its squared coefficient of variation, psi the expected remaining
// share of the decodes of a request in service.
func (m *model) variability(n, r float64) (c, psi float64) {
	decodes := m.seatSteps(m.chunksAt(n))*m.p.AlphaMs/n + m.correctedDecodeWork()
	// parts of the cost of decodes that come from reading the prompt and from reading the output,
	// which grows with its square
	prompt := m.p.GammaMs * m.decodeSteps() * m.s.Prompt / decodes
	output := m.p.GammaMs * (m.secondMoment() - m.s.Output) / 2 / decodes
	spread := 1 + m.s.OutputCV2
	// power of the output length with which the work grows: 1 if the context cost nothing
	byOutput := (1 - r) * (1 + output)
	both := (1 - r) * prompt
	c = math.Expm1(byOutput*byOutput*math.Log(spread)) + m.s.PromptCV2*((r+both)*(r+both)+both*both*m.s.OutputCV2)
	return c, (1-output)*spread/2 + 2*output*spread*spread/3
}

// seatWait sets p.WaitMs, the mean queueing delay of the corrected flavour (spec#queue-seats): that
// of a chain whose number of requests has the same drift but the variance of the work, as derived
// above.
func (m *model) seatWait(p *point) {
	lambda := p.RateRPS / 1000
	full := m.tauMs(m.n) / float64(m.n)
	share := lambda * m.prefillWork(m.chunksAt(p.InService))
	last := m.prefillWork(m.chunksAt(float64(m.n))) / full
	if share >= 1 || last >= 1 {
		return // requests without decodes
	}
	c, psi := m.variability(math.Max(1, p.InService), share)
	// birth and death rates grow by this factor times their sum, which keeps the drift and raises
	// the variance
	more := math.Max(0, (1+c)/(2*psi*(1-share)*(1-share))-1) / 2
	h := m.seatHead(lambda, more, lambda*full*float64(m.n))
	c, psi = m.variability(float64(m.n), last)
	h.p /= psi * (1 - last)
	queue := m.finish(&h, math.Pow(lambda*full, 2/(1+c)))
	p.WaitMs = queue.queued / (p.ThroughputRPS / 1000)
}

// seatHead returns the head of the chain of seatWait. With t = lambda*tau(n), and t = last for n =
// N, its birth rate is 1 + more*(1+n/t) and its death rate n/t + more*(1+n/t), both in units of
// lambda.
func (m *model) seatHead(lambda, more, last float64) head {
	h := head{none: 1, zero: 1, p: 1}
	birth, over := 1+more, 1.0 // the birth rate of the state reached is birth/over
	for n := 1; n < m.n; {
		c := m.chunksAt(float64(n))
		segment := int(math.Min(float64(m.n-1), m.fitting(c)))
		a, b := m.lineAt(c, lambda)
		a, b = a*lambda, b*lambda
		for ; n <= segment; n++ {
			seats := float64(n)
			t := a + b*seats
			h.times(birth * t / (over * (more*t + (1+more)*seats)))
			if h.shift == 0 {
				h.zero += h.p
			}
			birth, over = (1+more)*t+more*seats, t
		}
	}
	h.times(birth * last / (over * (more*last + (1+more)*float64(m.n))))
	return h
}

// The corrected flavour follows one vLLM engine step by step where inferno-3p
// takes the mean batch:
//
//   - A request takes c prefill steps and m-1 decode steps: the first token comes
//     out of the prefill.
//   - Prompts come at rate lambda whatever the batch is. With n requests in service, of which the
//     share s = (m-1)/(c+m-1) decodes, a step lasts T(n) = b(n)/(1-r) on average, where
//     b(n) = alpha + n*s*d, d is the work of one decode, r = lambda*wp and wp the work of one
//     prompt. At max_num_seqs prompts come as fast as requests leave: T = alpha + N*w/(c+m-1),
//     w the work of a whole request.
//   - The step after a long one is long, because more prompts arrived meanwhile. The
//     prompts per step are a self-exciting count with branching ratio r, so the
//     variance of a step is T*lambda*E[wp^2]/(1-r^2), and the running step that an
//     arrival meets lasts E[T^2]/E[T] = T(n) + kappa.
//   - An arrival at a busy engine waits for half of that step. All requests that arrive within one
//     step are prefilled in the next; prompts that do not fit its token budget take further steps.
//   - The last chunk of a prompt that the budget cuts leaves room in its step, which waiting prompts
//     use: for the share of time that prefills take.
//   - For the same reason the decodes right after one's own prefill are slow (own), and
//     the number in service varies more than the chain has it, by 1/(1-r)^2 over a
//     lifetime (slow): a batch that is larger when steps are long makes the mean gap
//     between tokens longer than the mean step.
//   - Long requests hold more context, and more of them are in service at any time:
//     the mean context of a decode is k + E[m^2]/2E[m], not k + m/2.
//   - The number of requests in service is also limited by the KV cache and by the token budget.
//   - Tokens found in the prefix cache are read and not computed.
//   - With asynchronous scheduling a step is formed while the one before it executes:
//     an arrival at a busy engine waits one step more, and a seat stays taken for one.
//   - The wait for a seat is that of a second chain, see seatWait.
//
// TTFT is the mean over requests; ITL is the mean over tokens, like vLLM's histogram of inter-token
// latency. Preemption is not modelled, and of the distribution of lengths only two moments are used;
// higher ones are those of log-normal lengths.

// decodeSteps returns the number of decode steps of a request: its output tokens but the first.
func (m *model) decodeSteps() float64 { return m.s.Output - 1 }

// seatSteps returns how many steps a request with c prefill steps occupies its seat. With
// asynchronous scheduling the step after its last one is formed before its end is known.
func (m *model) seatSteps(c float64) float64 {
	if m.v.Async {
		c++
	}
	return c + m.decodeSteps()
}

// secondMoment returns E[m^2] of the output length.
func (m *model) secondMoment() float64 { return m.s.Output * m.s.Output * (1 + m.s.OutputCV2) }

// residentTokens returns the mean number of KV tokens of a request in service.
func (m *model) residentTokens() float64 {
	return m.s.Prompt + m.secondMoment()/(2*m.s.Output)
}

// correctedSeats returns N, the number of requests that fit into max_num_seqs, the KV cache and the
// token budget.
func (m *model) correctedSeats() int {
	n := float64(m.v.MaxBatch)
	if kv := m.v.KVTokens; kv != nil && *kv > 0 {
		n = math.Min(n, *kv/m.residentTokens())
	}
	if tokens := m.s.Prompt + m.decodeSteps(); tokens > 0 {
		budget := float64(m.v.MaxBatchedTokens)
		n = math.Min(n, budget*(math.Ceil(m.s.Prompt/budget)+m.decodeSteps())/tokens)
	}
	return int(math.Max(1, n))
}

// correctedDecodeWork returns the work of a request's m-1 decodes, ms. The j-th of them reads k+j
// tokens.
func (m *model) correctedDecodeWork() float64 {
	context := m.decodeSteps()*m.s.Prompt + (m.secondMoment()-m.s.Output)/2
	return m.p.BetaMs*m.decodeSteps() + m.p.GammaMs*context
}

// lineAt returns tau(n) = a + b*n for n < N at arrival rate lambda, ms. Only the corrected flavour
// depends on the rate, because prompts of other requests make its steps longer.
func (m *model) lineAt(c, lambda float64) (a, b float64) {
	idle := 1 - lambda*m.prefillWork(c)
	if m.flavour != corrected || idle <= 0 {
		return m.serviceLine(c)
	}
	return m.seatSteps(c) * m.p.AlphaMs / idle, m.correctedDecodeWork() / idle
}

// stepwise is the parts of a step of the corrected flavour at one rate. Letters are those of the
// derivation above.
type stepwise struct {
	chunks  float64 // prefill steps of a request
	steps   float64 // all steps of a request in its seat
	prompt  float64 // wp, the work of one prompt, ms
	perSeat float64 // share of one request in service of b(n), ms
	branch  float64 // r, the share of time spent on prompts
	kappa   float64 // mean excess of the running step that an arrival meets, ms
	full    float64 // duration of a step with all seats taken, ms
}

// stepwise returns the parts of a step for a mean number of requests in service and an arrival rate
// lambda, per ms.
func (m *model) stepwise(inService, lambda float64) stepwise {
	s := stepwise{chunks: m.chunksAt(inService)}
	s.steps = m.seatSteps(s.chunks)
	s.prompt = m.prefillWork(s.chunks)
	s.perSeat = m.correctedDecodeWork() / s.steps
	s.branch = lambda * s.prompt
	s.kappa = lambda * s.prompt * s.prompt * (1 + m.s.PromptCV2) / (1 - s.branch*s.branch)
	s.full = m.p.AlphaMs + float64(m.n)*(s.prompt/s.steps+s.perSeat)
	return s
}

// correctedPhases sets the latencies of p from the moments h of the chain: TTFT is queueing delay +
// overhead + prefill, with what an arrival finds (idle, busy or full engine) weighted by its share.
func (m *model) correctedPhases(p *point, h *moments) {
	lambda := p.RateRPS / 1000
	s := m.stepwise(p.InService, lambda)
	waiting := 1 - h.idle - h.busy // share that finds all seats taken
	alone := s.chunks*m.p.AlphaMs + s.prompt
	// sums over what accepted arrivals meet, each weighted by its share
	prefill := h.idle*alone +
		waiting*(s.chunks*(m.p.AlphaMs+float64(m.n)*s.perSeat)+s.prompt*(1+float64(m.n)/s.steps))
	oneStepLate := waiting * s.full // one step more, for asynchronous scheduling
	var extraITL float64
	if s.branch < 1 {
		decodeStepMs := h.busy*m.p.AlphaMs + h.busyN*s.perSeat
		runningStepMs := decodeStepMs / (1 - s.branch)
		busyStepMs := runningStepMs + h.busy*s.kappa
		prefill += busyStepMs*(0.5+s.branch) + s.chunks*decodeStepMs + h.busy*s.prompt
		prefill += m.spilledSteps(p.InService, lambda, busyStepMs, h.busy) * (decodeStepMs + s.branch*busyStepMs)
		prefill += m.sharedStepMs(p.InService, &s, lambda, decodeStepMs)
		oneStepLate += runningStepMs
		extraITL = (1 - waiting) * m.extraGap(&s, lambda)
	} else {
		prefill += h.busy * (1.5*s.full + s.prompt)
		oneStepLate += h.busy * s.full
	}
	if m.v.Async {
		prefill += oneStepLate
	}
	p.PrefillMs = prefill
	p.TTFTMs = m.v.OverheadMs + p.WaitMs + prefill
	p.TunerTTFTMs = p.TTFTMs
	p.ITLMs = math.Min(p.ServiceMs/s.steps+extraITL, math.Max(s.full, p.ServiceMs/s.steps))
}

// extraGap returns by how much the effects "own" and "slow" of the derivation lengthen the mean gap
// between tokens, ms.
func (m *model) extraGap(s *stepwise, lambda float64) float64 {
	if m.decodeSteps() == 0 {
		return 0
	}
	g := 1 - s.branch
	own := (s.prompt + s.branch*s.kappa) * s.branch / g / m.decodeSteps()
	free := g - lambda*m.correctedDecodeWork()
	if free <= 0 {
		return own
	}
	// mean overlap of two lifetimes over the mean lifetime, for log-normal outputs
	overlap := 1 - math.Erf(math.Sqrt(math.Log1p(m.s.OutputCV2))/2)
	return own + m.correctedDecodeWork()/m.decodeSteps()/free*(1/(g*g)-1)*overlap
}

// sharedStepMs returns the time that other prompts add to the last chunk of a prompt that is cut,
// ms: they use the rest of the step's token budget whenever one is waiting. base is the time of a
// step without prompts.
func (m *model) sharedStepMs(inService float64, s *stepwise, lambda, base float64) float64 {
	if s.chunks < 2 {
		return 0
	}
	budget := math.Max(1, float64(m.v.MaxBatchedTokens)-inService)
	steps := m.s.Prompt / budget
	waiting := math.Min(1, lambda*(steps*base+s.prompt))
	return waiting * (s.chunks - steps) * s.prompt / steps
}

// spilledSteps returns the mean number of steps that a prompt takes beyond its own, because prompts
// before it in the same step fill the token budget.
func (m *model) spilledSteps(inService, lambda, running, busy float64) float64 {
	perStep := math.Max(1, float64(m.v.MaxBatchedTokens)-inService) / m.s.Prompt
	ahead := lambda * running / 2
	if busy > 0 {
		ahead /= busy
	}
	if !(perStep < 64) || ahead <= 0 {
		return 0
	}
	var mean float64
	p := math.Exp(-ahead)
	for a := 0.0; a < 64 && (p > 1e-9 || a < ahead); a++ {
		mean += p * (math.Ceil((a+1)/perStep) - math.Ceil(1/perStep))
		p *= ahead / (a + 1)
	}
	return mean
}

// params are the coefficients of an iteration. In the three-parameter flavours iteration = alpha +
// beta*(tokens computed) + gamma*(KV tokens read). In wva-4p decode = alpha + beta*n and prefill =
// gamma + delta*k*n, for n requests in the batch and prompts of k tokens.
type params struct {
	AlphaMs float64 // ms
	BetaMs  float64 // ms per computed token; wva-4p: ms per request
	GammaMs float64 // ms per KV token read; wva-4p: ms
	DeltaMs float64 // wva-4p only: ms per prompt token and request
}

// shape is how long requests are: means over requests. Only the corrected flavour uses more than
// the two mean lengths.
type shape = workload.Lengths

// defaultMaxBatchedTokens is the token budget that queue-analysis assumes
// (pkg/analyzer/queueanalyzer.go@cfadd1c).
const defaultMaxBatchedTokens = 8192

// model is one flavour with its numbers. It is a value without pointers to changing data, so it can
// be copied and used from several goroutines.
type model struct {
	flavour Flavour
	p       params
	s       shape
	v       Limits
	n       int // N, the number of seats: MaxBatch, or fewer where the KV cache is smaller
}

// New returns a model, or an error that names a number out of range.
func New(f Flavour, p params, s shape, v Limits) (model, error) {
	v.MaxBatchedTokens = cmp.Or(v.MaxBatchedTokens, defaultMaxBatchedTokens)
	m := model{
		flavour: f,
		p:       p,
		s:       s,
		v:       v,
		n:       v.MaxBatch,
	}
	if err := m.checkInputs(); err != nil {
		return model{}, err
	}
	if f == corrected {
		m.n = m.correctedSeats()
	}
	return m, nil
}

// number is a named value with its lower bound; the upper bound of all is mostWanted.
type number struct {
	name         string
	value, least float64
}

// checkRange returns an error if the value is out of range.
func (x number) checkRange() error {
	if !(x.value >= x.least && x.value <= mostWanted) {
		return trace.Errorf(badModel, "%s: got %g, want %g to %g", x.name, x.value, x.least, mostWanted)
	}
	return nil
}

// checkInputs returns an error for the first number of the model out of range.
func (m *model) checkInputs() error {
	if err := m.flavour.checkName(); err != nil {
		return err
	}
	var kv float64
	if m.v.KVTokens != nil {
		kv = *m.v.KVTokens
	}
	numbers := [...]number{
		{"alpha ms", m.p.AlphaMs, 0}, {"beta ms", m.p.BetaMs, 0}, {"gamma ms", m.p.GammaMs, 0},
		{"delta ms", m.p.DeltaMs, 0},
		{"prompt tokens", m.s.Prompt, 0}, {"output tokens", m.s.Output, 1},
		{"cached tokens", m.s.Cached, 0}, {"prompt cv2", m.s.PromptCV2, 0}, {"output cv2", m.s.OutputCV2, 0},
		{"max batch", float64(m.v.MaxBatch), 1}, {"queue", float64(m.v.Queue), 0},
		{"max batched tokens", float64(m.v.MaxBatchedTokens), 1},
		{"kv tokens", kv, 0}, {"overhead ms", m.v.OverheadMs, 0},
	}
	if m.s.Cached > m.s.Prompt {
		return trace.Errorf(badModel, "cached tokens: got %g, want at most the %g of the prompt", m.s.Cached,
			m.s.Prompt)
	}
	for _, x := range numbers {
		if err := x.checkRange(); err != nil {
			return err
		}
	}
	if tau := m.tauMs(1); !(tau > 0) || math.IsInf(tau, 0) {
		return trace.Errorf(badModel, "time in service ms: got %g, want a finite number > 0", tau)
	}
	return nil
}

// Flavour is the name of a queueing model; see the package comment.
type Flavour string

// The flavours.
const (
	wvA4P     Flavour = "wva-4p"
	wvA3P     Flavour = "wva-3p"
	inferno3P Flavour = "inferno-3p"
	corrected Flavour = "corrected"
)

// flavours lists the flavours in the order of the help text.
var flavours = []Flavour{wvA4P, wvA3P, inferno3P, corrected}

// checkName returns an error for a name that is no flavour.
func (f Flavour) checkName() error {
	if slices.Contains(flavours, f) {
		return nil
	}
	return trace.Errorf(badOption, "flavour: got %q, want %s", f, trace.OneOf(flavours))
}

// Parameters returns the names of the flavour's parameters, in the order of a state vector.
func (f Flavour) Parameters() []string {
	if f == wvA4P {
		return []string{"alpha", "beta", "gamma", "delta"}
	}
	return []string{"alpha", "beta", "gamma"}
}

// chunked reports whether the flavour models that prompts are cut by the token budget.
func (f Flavour) chunked() bool { return f == inferno3P || f == corrected }

// Vector returns the parameters as a state vector of flavour f.
func (p params) Vector(f Flavour) []float64 {
	if f == wvA4P {
		return []float64{p.AlphaMs, p.BetaMs, p.GammaMs, p.DeltaMs}
	}
	return []float64{p.AlphaMs, p.BetaMs, p.GammaMs}
}

// fromVector returns the parameters of a state vector; the inverse of Vector.
func fromVector(x []float64) params {
	p := params{AlphaMs: x[0], BetaMs: x[1], GammaMs: x[2]}
	if len(x) > 3 {
		p.DeltaMs = x[3]
	}
	return p
}

// serviceLine returns the time in service with n requests in service and prompts of c chunks, as
// tau(n) = a + b*n, ms:
//
//	wva-4p      gamma + delta*k*n + (m-1)(alpha + beta*n); without prompts the
//	            prefill is nothing, and one decode is left for m = 1
//	wva-3p      T(n) + (beta+gamma)k + m(T(n) + beta + gamma(k+m/2)) with
//	            T(n) = alpha + n(beta(k+m)/(m+1) + gamma(k+m/2)); without prompts
//	            the prefill is nothing
//	inferno-3p  (c+m)*alpha + n*w, w the work of one request
//
// Source: workload-variant-autoscaler pkg/analyzer/queueanalyzer.go@ce39598 (4p) and @b08b1c7
// (wva-3p), llm-inferno/queue-analysis pkg/analyzer/queueanalyzer.go@cfadd1c.
func (m *model) serviceLine(c float64) (a, b float64) {
	p := m.p
	k := m.s.Prompt
	out := m.s.Output
	switch m.flavour {
	case wvA4P:
		decodes := out - 1
		if k == 0 {
			if out == 1 {
				decodes = 1
			}
			return decodes * p.AlphaMs, decodes * p.BetaMs
		}
		return p.GammaMs + decodes*p.AlphaMs, p.DeltaMs*k + decodes*p.BetaMs
	case wvA3P:
		slope := m.wvaSlope()
		decode := p.BetaMs + p.GammaMs*(k+out/2)
		if k == 0 {
			return out * (p.AlphaMs + decode), out * slope
		}
		return (1+out)*p.AlphaMs + (p.BetaMs+p.GammaMs)*k + out*decode, (1 + out) * slope
	}
	if m.flavour == corrected {
		return (c + m.decodeSteps()) * p.AlphaMs, m.prefillWork(c) + m.correctedDecodeWork()
	}
	return (c + out) * p.AlphaMs, m.prefillWork(c) + m.decodeWork()
}

// wvaSlope returns by how much one more request in service lengthens an iteration in the flavour
// wva-3p, ms: its share of the computed tokens times beta, and its mean context times gamma.
func (m *model) wvaSlope() float64 {
	k, out := m.s.Prompt, m.s.Output
	return m.p.BetaMs*(k+out)/(out+1) + m.p.GammaMs*(k+out/2)
}

// prefillWork returns the work of a request's own prompt in inferno-3p and corrected, ms. Each of c
// chunks reads the part of the prompt that is in the KV cache by then.
func (m *model) prefillWork(c float64) float64 {
	computed := m.s.Prompt
	if m.flavour == corrected {
		computed -= m.s.Cached
	}
	return m.p.BetaMs*computed + m.p.GammaMs*(c+1)/2*m.s.Prompt
}

// decodeWork returns the work of a request's own decodes in inferno-3p, ms.
func (m *model) decodeWork() float64 {
	out := m.s.Output
	return m.p.BetaMs*out + m.p.GammaMs*out*(m.s.Prompt+(out+1)/2)
}

// tauMs returns the time in service with n requests in service, ms.
func (m *model) tauMs(n int) float64 {
	a, b := m.serviceLine(m.chunksAt(float64(n)))
	return a + b*float64(n)
}

// chunksAt returns the number of steps into which a prompt is cut with n requests in the batch; 1
// for a flavour without chunked prefill. The corrected flavour leaves a prompt the token budget M
// less one token for each request. In inferno-3p the answer is the smallest number i of chunks for
// which (i+m)(M-k/i)/(k+m) >= n, where k and m are the mean prompt and output tokens: the upper root
// of the quadratic M i^2 + (m M - k - n(k+m)) i - m k, rounded up.
func (m *model) chunksAt(n float64) float64 {
	if !m.flavour.chunked() {
		return 1
	}
	n = math.Floor(n + 0.5)
	n = math.Min(math.Max(n, 1), float64(m.n))
	budget := float64(m.v.MaxBatchedTokens)
	k := m.s.Prompt
	out := m.s.Output
	if m.flavour == corrected {
		return math.Max(1, math.Ceil(k/math.Max(1, budget-n)))
	}
	if m.fitting(1) >= n {
		return 1
	}
	half := (out*budget - k - n*(k+out)) / 2
	root := (math.Sqrt(half*half+budget*out*k) - half) / budget
	c := math.Max(1, math.Ceil(root))
	// Rounding can put the root a chunk off to either side.
	const mostOff = 4
	for range mostOff {
		if c == 1 || m.fitting(c-1) < n {
			break
		}
		c--
	}
	for range mostOff {
		if m.fitting(c) >= n {
			break
		}
		c++
	}
	return c
}

// fitting returns the largest batch in which prompts need no more than c chunks.
func (m *model) fitting(c float64) float64 {
	k, out := m.s.Prompt, m.s.Output
	if m.flavour == corrected {
		if c >= k {
			return math.Inf(1)
		}
		return math.Floor(float64(m.v.MaxBatchedTokens) - k/c)
	}
	return math.Floor(math.Max(0, (c+out)*(float64(m.v.MaxBatchedTokens)-k/c)/(k+out)))
}

// phases sets the latencies of p: it divides the time in service, p.ServiceMs, into prefill and
// decode as the flavour does.
func (m *model) phases(p *point, h *moments) {
	switch m.flavour {
	case corrected:
		m.correctedPhases(p, h)
		return
	case wvA4P:
		n := m.effectiveBatch(p.ServiceMs)
		if m.s.Prompt > 0 {
			p.PrefillMs = m.p.GammaMs + m.p.DeltaMs*m.s.Prompt*n
		}
		p.ITLMs = m.p.AlphaMs + m.p.BetaMs*n
		p.TTFTMs = p.WaitMs + p.PrefillMs
		p.TunerTTFTMs = p.TTFTMs
		return
	case wvA3P:
		if m.s.Prompt > 0 {
			p.PrefillMs = m.p.AlphaMs + p.InService*m.wvaSlope() + (m.p.BetaMs+m.p.GammaMs)*m.s.Prompt
		}
	default:
		p.PrefillMs = m.prefillMs(p.InService)
	}
	p.ITLMs = (p.ServiceMs - p.PrefillMs) / m.s.Output
	p.TTFTMs = p.WaitMs + p.PrefillMs + p.ITLMs
	p.TunerTTFTMs = p.TTFTMs
	if m.flavour == wvA3P {
		p.TunerTTFTMs = p.WaitMs + p.PrefillMs
	}
}

// prefillMs returns the prefill time of inferno-3p with x requests in service, ms: c iterations
// shared with the other requests, and the prompt's own work.
func (m *model) prefillMs(x float64) float64 {
	c := m.chunksAt(x)
	share := (m.prefillWork(c) + m.decodeWork()) / (c + m.s.Output)
	return c*math.Max(0, m.p.AlphaMs+(x-1)*share) + m.prefillWork(c)
}

// effectiveBatch returns the number n of requests in service, 0 to N, at which the prefill and the
// decodes of wva-4p, gamma + delta*k*n + (m-1)(alpha + beta*n), add up to serviceMs. Without prompts
// serviceLine has no gamma, and one decode for m = 1, so there n does not invert it.
func (m *model) effectiveBatch(serviceMs float64) float64 {
	decodes := m.s.Output - 1
	n := (serviceMs - m.p.GammaMs - m.p.AlphaMs*decodes) / (m.p.DeltaMs*m.s.Prompt + m.p.BetaMs*decodes)
	return math.Min(math.Max(n, 0), float64(m.n))
}
