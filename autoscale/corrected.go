package autoscale

// This file is the flavour corrected: the steps of one vLLM engine in place of a mean batch
// (spec#queue-corrected). seat_wait.go is its wait for a seat. Letters and words are those of
// chain.go.

import (
	"math"
)

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
//     lifetime of many steps and less over a short one (slow, dispersion): a batch
//     that is larger when steps are long makes the mean gap between tokens longer
//     than the mean step.
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
func (q *model) decodeSteps() float64 { return q.shape.Output - 1 }

// seatSteps returns how many steps a request with c prefill steps occupies its seat. With
// asynchronous scheduling the step after its last one is formed before its end is known.
func (q *model) seatSteps(c float64) float64 {
	if q.limits.Async {
		c++
	}
	return c + q.decodeSteps()
}

// secondMoment returns E[m^2] of the output length.
func (q *model) secondMoment() float64 {
	return q.shape.Output * q.shape.Output * (1 + q.shape.OutputCV2)
}

// residentTokens returns the mean number of KV tokens of a request in service.
func (q *model) residentTokens() float64 {
	return q.shape.Prompt + q.secondMoment()/(2*q.shape.Output)
}

// correctedSeats returns N, the number of requests that fit into max_num_seqs, the KV cache and the
// token budget.
func (q *model) correctedSeats() int {
	n := float64(q.limits.MaxBatch)
	if kv := q.limits.KVTokens; kv != nil && *kv > 0 {
		n = math.Min(n, *kv/q.residentTokens())
	}
	if tokens := q.shape.Prompt + q.decodeSteps(); tokens > 0 {
		budget := float64(q.limits.MaxBatchedTokens)
		n = math.Min(n, budget*(math.Ceil(q.shape.Prompt/budget)+q.decodeSteps())/tokens)
	}
	return int(math.Max(1, n))
}

// correctedDecodeWork returns the work of a request's m-1 decodes, ms. The j-th of them reads k+j
// tokens.
func (q *model) correctedDecodeWork() float64 {
	context := q.decodeSteps()*q.shape.Prompt + (q.secondMoment()-q.shape.Output)/2
	return q.params.BetaMs*q.decodeSteps() + q.params.GammaMs*context
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
func (q *model) stepwise(inService, lambda float64) stepwise {
	s := stepwise{chunks: q.chunksAt(inService)}
	s.steps = q.seatSteps(s.chunks)
	s.prompt = q.prefillWork(s.chunks)
	s.perSeat = q.correctedDecodeWork() / s.steps
	s.branch = lambda * s.prompt
	s.kappa = lambda * s.prompt * s.prompt * (1 + q.shape.PromptCV2) / (1 - s.branch*s.branch)
	s.full = q.params.AlphaMs + float64(q.seats)*(s.prompt/s.steps+s.perSeat)
	return s
}

// correctedPhases sets the latencies of pt from the moments h of the chain: TTFT is queueing delay +
// overhead + prefill, with what an arrival finds (idle, busy or full engine) weighted by its share.
func (q *model) correctedPhases(pt *point, h *moments) {
	lambda := pt.RateRPS / 1000
	s := q.stepwise(pt.InService, lambda)
	waiting := 1 - h.idle - h.busy // share that finds all seats taken
	alone := s.chunks*q.params.AlphaMs + s.prompt
	// sums over what accepted arrivals meet, each weighted by its share
	prefill := h.idle*alone +
		waiting*(s.chunks*(q.params.AlphaMs+float64(q.seats)*s.perSeat)+s.prompt*(1+float64(q.seats)/s.steps))
	oneStepLate := waiting * s.full // one step more, for asynchronous scheduling
	var extraITL float64
	if s.branch < 1 {
		decodeStepMs := h.busy*q.params.AlphaMs + h.busyN*s.perSeat // b(n)
		runningStepMs := decodeStepMs / (1 - s.branch)              // T(n)
		busyStepMs := runningStepMs + h.busy*s.kappa                // the step that an arrival meets
		// Half of the running step; the other prompts that arrived during it, which are computed in the
		// same step as the own one; the own prompt with its decodes beside it.
		prefill += busyStepMs*(0.5+s.branch) + s.chunks*decodeStepMs + h.busy*s.prompt
		prefill += q.spilledSteps(pt.InService, lambda, busyStepMs, h.busy) * (decodeStepMs + s.branch*busyStepMs)
		prefill += q.sharedStepMs(pt.InService, &s, lambda, decodeStepMs)
		oneStepLate += runningStepMs
		extraITL = (1 - waiting) * q.extraGap(&s, lambda)
	} else { // prompts take all the time, so every step is full: half of one, a whole one and the own prompt
		prefill += h.busy * (1.5*s.full + s.prompt)
		oneStepLate += h.busy * s.full
	}
	if q.limits.Async {
		prefill += oneStepLate
	}
	pt.PrefillMs = prefill
	pt.TTFTMs = q.limits.OverheadMs + pt.WaitMs + prefill
	pt.TunerTTFTMs = pt.TTFTMs
	// The extra gap comes from longer steps, none of which is longer than one with all seats taken.
	pt.ITLMs = math.Min(pt.ServiceMs/s.steps+extraITL, math.Max(s.full, pt.ServiceMs/s.steps))
}

// extraGap returns by how much the effects "own" and "slow" of the derivation lengthen the mean gap
// between tokens, ms.
func (q *model) extraGap(s *stepwise, lambda float64) float64 {
	if q.decodeSteps() == 0 {
		return 0
	}
	g := 1 - s.branch
	// Of the gaps after the own prefill the first is longer by r times it, the next by r^2, and so on. With asynchronous
	// scheduling the prompts that arrive during a step are computed in the one after the next: every second gap is longer.
	longer := q.decodeSteps()
	if q.limits.Async {
		longer = math.Floor(longer / 2)
	}
	own := (s.prompt + s.branch*s.kappa) * s.branch * (1 - math.Pow(s.branch, longer)) / g / q.decodeSteps()
	free := g - lambda*q.correctedDecodeWork()
	if free <= 0 {
		return own
	}
	// mean overlap of two lifetimes over the mean lifetime, for log-normal outputs
	overlap := 1 - math.Erf(math.Sqrt(math.Log1p(q.shape.OutputCV2))/2)
	return own + q.correctedDecodeWork()/q.decodeSteps()/free*(dispersion(s.branch, math.Max(1, longer))-1)*overlap
}

// dispersion returns the variance over the mean of the number of prompts within steps steps, a self-exciting count with
// branching ratio r: 1/(1-r^2) within one step, and near 1/(1-r)^2 within many.
func dispersion(r, steps float64) float64 {
	g := 1 - r
	return ((1+r)/g - 2*r*(1-math.Pow(r, steps))/(steps*g*g)) / (1 - r*r)
}

// sharedStepMs returns the time that other prompts add to the last chunk of a prompt that is cut,
// ms: they use the rest of the step's token budget whenever one is waiting. base is the time of a
// step without prompts.
func (q *model) sharedStepMs(inService float64, s *stepwise, lambda, base float64) float64 {
	if s.chunks < 2 {
		return 0
	}
	budget := math.Max(1, float64(q.limits.MaxBatchedTokens)-inService) // tokens of a step for prompts
	steps := q.shape.Prompt / budget                                    // whole steps' worth of tokens, not rounded up
	waiting := math.Min(1, lambda*(steps*base+s.prompt))                // probability that a prompt waits
	return waiting * (s.chunks - steps) * s.prompt / steps
}

// spilledSteps returns the mean number of steps that a prompt takes beyond its own, because prompts
// before it in the same step fill the token budget: those that arrived earlier during the running
// step, a Poisson number. busyStepMs is the duration of that step times busy, the share of arrivals
// that meet one.
func (q *model) spilledSteps(inService, lambda, busyStepMs, busy float64) float64 {
	perStep := math.Max(1, float64(q.limits.MaxBatchedTokens)-inService) / q.shape.Prompt // prompts that fit a step
	ahead := lambda * busyStepMs / 2                                                      // mean number of earlier prompts
	if busy > 0 {
		ahead /= busy
	}
	const most = 64 // earlier prompts that are considered; if that many fit a step, none spills
	if !(perStep < most) || ahead <= 0 {
		return 0
	}
	var mean float64
	p := math.Exp(-ahead) // probability of a earlier prompts
	for a := 0.0; a < most && (p > 1e-9 || a < ahead); a++ {
		mean += p * (math.Ceil((a+1)/perStep) - math.Ceil(1/perStep))
		p *= ahead / (a + 1)
	}
	return mean
}
