package queue

import (
	"fmt"
	"math"
	"strings"

	"github.com/blis-train/blis-train/queueing"
)

// miss is one flavour's error in one cell with what decides it.
type miss struct {
	f         queueing.Flavour
	at        queueing.Point
	s         queueing.Shape
	v         queueing.Server
	p         queueing.Params
	ttft, itl float64    // signed relative errors
	noise     [2]float64 // twice the simulation's standard error, relative
}

// Errors beyond which a cell is a miss.
const (
	missTTFT = 0.10
	missITL  = 0.05
)

// cause says which approximation breaks; empty for a hit.
func (m *miss) cause() string {
	var why []string
	if math.Abs(m.ttft) > missTTFT {
		why = append(why, "TTFT: "+m.ttftCause())
	}
	if math.Abs(m.itl) > missITL {
		why = append(why, "ITL: "+m.itlCause())
	}
	return strings.Join(why, "; ")
}

// prefillShare is the share of time that prompts alone keep the engine busy.
func (m *miss) prefillShare() float64 {
	return m.at.RateRPS / 1000 * (float64(m.p.BetaMs*(m.s.Prompt-m.s.Cached)) + float64(m.p.GammaMs*m.s.Prompt))
}

// together is how many prompts fit into one step beside the decodes.
func (m *miss) together() float64 {
	return (float64(m.v.MaxBatchedTokens) - m.at.InService) / m.s.Prompt
}

func (m *miss) ttftCause() string {
	waits := m.at.WaitMs > 0.05*m.at.TTFTMs
	switch {
	case math.Abs(m.ttft) < m.noise[0]:
		return fmt.Sprintf("within twice the simulation's standard error, %.0f %%", 100*m.noise[0])
	case m.f == queueing.WVA4P && m.ttft > 0:
		return "every request is charged the prefill of the whole batch, gamma + delta k n"
	case m.f == queueing.Corrected && m.prefillShare() > 0.5:
		return fmt.Sprintf("prompts keep the engine busy %.0f %% of the time: bursts of them beyond the second moment", 100*m.prefillShare())
	case m.f == queueing.Corrected && waits:
		return fmt.Sprintf("%.0f %% of it is the wait for a seat, of which two moments of the work are known", 100*m.at.WaitMs/m.at.TTFTMs)
	case waits && m.ttft > 0:
		return fmt.Sprintf("%.0f %% of it is the wait for a seat, which a birth-death chain has for exponential times in service; "+
			"these vary less (outputs with cv2 %.2g)", 100*m.at.WaitMs/m.at.TTFTMs, m.s.OutputCV2)
	case waits:
		return "the wait for a seat grows with the spread of the lengths, of which the chain knows only the mean"
	case m.f != queueing.Corrected && m.ttft > 0:
		return "one ITL is added to the prefill, though the first token comes out of the prefill's last step"
	case m.together() < 2:
		return fmt.Sprintf("no more than %.3g prompts fit into a step, so prompts queue for steps of their own (they keep the engine busy "+
			"%.0f %% of the time)", m.together(), 100*m.prefillShare())
	case m.f != queueing.Corrected:
		return "the rest of the running step that an arrival waits for is left out, and so is who arrives within it"
	case m.ttft > 0:
		return "more seats are taken in the chain than in the engine"
	}
	return "the step that an arrival meets is longer than the mean over steps by more than the second moment of the prompts says"
}

func (m *miss) itlCause() string {
	switch {
	case math.Abs(m.itl) < m.noise[1]:
		return fmt.Sprintf("within twice the simulation's standard error, %.0f %%", 100*m.noise[1])
	case m.f == queueing.WVA4P && m.itl < 0:
		return fmt.Sprintf("decode steps are taken without the prefills that share them (%.0f %% of the time)", 100*m.prefillShare())
	case m.f == queueing.WVA3P && m.itl > 0:
		return "a request's own work is counted twice"
	case m.f != queueing.Corrected && m.itl < 0:
		return fmt.Sprintf("the mean context is taken as k + m/2; long requests hold more, and longer (cv2 %.2g)", m.s.OutputCV2)
	case m.itl > 0:
		return fmt.Sprintf("prompts keep the engine busy %.0f %% of the time: their bunching within a step is known to the second moment only",
			100*m.prefillShare())
	}
	return "the number in service varies more than the chain has it"
}
