package autoscale

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
)

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
func (m *model) correctedPhases(p *point, h *moments) latencies {
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
		prefill += float64(m.spill(p.InService, &s, lambda, running, h.busy) * (base + float64(s.branch*running)))
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
	l := latencies{prefillMs: prefill, ttftMs: m.v.OverheadMs + p.WaitMs + prefill}
	l.tunerTTFTMs = l.ttftMs
	l.itlMs = math.Min(p.ServiceMs/s.steps+extraITL, math.Max(s.full, p.ServiceMs/s.steps))
	return l
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
func (m *model) spill(inService float64, s *stepwise, lambda, running, busy float64) float64 {
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
