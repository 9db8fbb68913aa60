package autoscale

// This file is the wait for a seat in the flavour corrected (spec#queue-seats): that of a chain with the
// variance of real work, as derived below. Words are those of chain.go.

import (
	"math"
)

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
//  - The density of work is continuous at the point where all seats are taken, and a request more is less work
//    below it than above, so the density of the number of requests is higher by 1/(psi (1-r)) above that point.
//
// All this is about many requests. With few of them two facts hold instead, and a diffusion that is cut into whole requests
// violates both: the mean number of waiting requests, not the logarithm of their ratio, is (1+c)/2 times that of the chain,
// and at a low load the engine is as often full as in the chain. So the tail has that mean (tailRatio), and the factor at
// the point where all seats are taken grows from 1 at no load to 1/(psi (1-r)) at load 1.
//
// For exponential outputs, no prompts and steps of constant cost this is the chain itself. With one seat and without
// prompts it is the formula of Pollaczek and Khinchine for M/G/1. With the
// engine always full it is the G/G/1 formula of Kingman (1961), doi:10.1017/S0305004100036094; with
// seats always free it is the state-space collapse of processor sharing, Gromoll (2004),
// doi:10.1214/105051604000000035.

// seatWait sets pt.WaitMs, the mean queueing delay of the corrected flavour (spec#queue-seats): that
// of a chain whose number of requests has the same drift but the variance of the work, as derived
// above.
func (q *model) seatWait(pt *point) {
	lambda := pt.RateRPS / 1000
	fullMs := q.tauMs(q.seats) / float64(q.seats) // E[U]: from one departure to the next with all seats taken
	// r, the share of time spent on prompts, at the mean number in service and with all seats taken.
	share := lambda * q.prefillWork(q.chunksAt(pt.InService))
	fullShare := q.prefillWork(q.chunksAt(float64(q.seats))) / fullMs
	if share >= 1 || fullShare >= 1 {
		return // requests without decodes: the wait of the chain stays
	}
	// Below N. Birth and death rates grow by `more` times their sum, which keeps the drift and raises
	// the variance to (1 + 2*more) times the chain's.
	cv2, psi := q.variability(math.Max(1, pt.InService), share)
	more := math.Max(0, (1+cv2)/(2*psi*(1-share)*(1-share))-1) / 2
	h := q.seatHead(lambda, more, lambda*fullMs*float64(q.seats))
	// From N on.
	cv2, psi = q.variability(float64(q.seats), fullShare)
	load := lambda * fullMs
	h.p /= 1 + math.Min(1, load)*(psi*(1-fullShare)-1)
	queue := q.finish(&h, tailRatio(load, cv2))
	pt.WaitMs = queue.queued / (pt.ThroughputRPS / 1000)
}

// tailRatio returns how much likelier each further waiting request is, with all seats taken at a load of the full engine
// and work of this squared coefficient of variation. Below a load of 1 the mean number of a geometric tail is (1+cv2)/2
// times that of the chain, above it its logarithm is.
func tailRatio(load, cv2 float64) float64 {
	varies := (1 + cv2) / 2
	if load >= 1 {
		return math.Pow(load, 1/varies)
	}
	waiting := varies * load / (1 - load)
	return waiting / (1 + waiting)
}

// variability returns two properties of the work of a request with n in service, if prompts take
// the share r of the time: cv2 is its squared coefficient of variation, for log-normal lengths, and
// psi the expected remaining share of the decodes of a request in service.
func (q *model) variability(n, r float64) (cv2, psi float64) {
	decodes := q.seatSteps(q.chunksAt(n))*q.params.AlphaMs/n + q.correctedDecodeWork() // ms of the full engine
	// Shares of these that come from reading the prompt, and from reading the output, which grows with
	// its square.
	prompt := q.params.GammaMs * q.decodeSteps() * q.shape.Prompt / decodes
	output := q.params.GammaMs * (q.secondMoment() - q.shape.Output) / 2 / decodes
	spread := 1 + q.shape.OutputCV2
	byOutput := (1 - r) * (1 + output) // power of the output length with which the work grows
	both := (1 - r) * prompt           // share of the work that grows with prompt times output
	cv2 = math.Expm1(byOutput*byOutput*math.Log(spread)) + q.shape.PromptCV2*((r+both)*(r+both)+both*both*q.shape.OutputCV2)
	return cv2, (1-output)*spread/2 + 2*output*spread*spread/3
}

// seatHead returns the head (sums below N, and p_N) of the chain of seatWait. With t =
// lambda*tau(n), and t = last for n = N, its birth rate is 1 + more*(1+n/t) and its death rate n/t +
// more*(1+n/t), both in units of lambda.
func (q *model) seatHead(lambda, more, last float64) head {
	h := head{none: 1, zero: 1, p: 1}
	birth, over := 1+more, 1.0 // the birth rate of the state reached is birth/over
	for n := 1; n < q.seats; {
		c := q.chunksAt(float64(n))
		segment := int(math.Min(float64(q.seats-1), q.fitting(c)))
		a, b := q.lineAt(c, lambda)
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
	h.times(birth * last / (over * (more*last + (1+more)*float64(q.seats))))
	return h
}
