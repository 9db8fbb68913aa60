package forecast

// This file estimates the time to first token of a request.

import (
	"math"
)

// TTFT is an estimate of a time to first token, us. Us is the mean, LikelyUs the estimate for the
// likelier of two cases: that no other prompt is computed in the request's own step, or that some
// are. Compare observed times with LikelyUs, which with exact coefficients is right for most
// requests.
type TTFT struct{ Us, LikelyUs float64 }

// TTFT estimates the time to first token of r, us, on an engine in state s
// (spec#predictor-physics).
//
// Prompts that arrive while the request waits for the running step are computed in the same step as
// its own and make that step longer. They are not known at the decision. With ComingPerS 0 they are
// ignored: most estimates are exact, and the mean is too small (on a simulated engine by 0 to 4 %
// at half load, 6 to 10 % where the queue grows). With ComingPerS and ComingPrompt the estimate
// lies between median and mean (rollout.joinOthers). TestTTFTOnSimulatedEngine and, behind a
// gateway, cluster's TestPredictionOnOneEngine print both errors.
func (e *Engine) TTFT(s *State, r *Request) (TTFT, error) {
	overhead, err := e.OverheadUs(s, r)
	if err != nil {
		return TTFT{}, err
	}
	x := rollout{
		Engine:       e,
		decodes:      float64(s.Decodes),
		tokens:       float64(s.DecodeTokens),
		freeSeqs:     float64(e.maxSeqs - s.Decodes - s.StepRequests - s.NextRequests),
		blocks:       float64(s.FreeBlocks),
		hasAllKV:     s.FreeBlocks < 0,
		ahead:        s.AheadTokens,
		requests:     s.AheadRequests,
		behind:       s.BehindTokens,
		own:          max(1, r.PromptTokens-r.CachedTokens),
		context:      r.CachedTokens,
		prompt:       r.PromptTokens,
		queuedUs:     overhead,
		betterPerS:   s.BetterPerS,
		betterPrompt: math.Max(1, s.BetterPrompt),
		comingPerS:   s.ComingPerS,
		comingPrompt: s.ComingPrompt,
	}
	if s.OutputTokens > 0 {
		x.leaving = 1 / s.OutputTokens
	}
	if len(s.Leaving) > 0 {
		x.windows = s.Leaving
		x.windowSteps = s.LeavingSteps
		x.windowLeft = s.LeavingSteps
		x.leaving = x.windows[0]
	}
	if s.Decodes > 0 { // a decode that leaves has, on average, half an output more than one of now
		x.blocksOfOne = (float64(s.DecodeTokens)/float64(s.Decodes) + s.OutputTokens/2) / float64(e.blockSize)
	}
	if err := x.finishStep(s); err != nil {
		return TTFT{}, err
	}
	first := x.now
	for range maxSteps {
		if x.own <= 0 {
			break
		}
		if err := x.playStep(); err != nil {
			return TTFT{}, err
		}
	}
	x.extrapolate(first)
	return TTFT{Us: x.now, LikelyUs: x.now - x.moreUs}, nil
}
