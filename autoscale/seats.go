package autoscale

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
)

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
