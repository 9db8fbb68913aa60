package predict

// TPOTUs is the estimated mean time per output token after the first, in us: a
// step of the decodes and the request, with the prompt tokens that come at the
// recent rate while it runs.
func (e *Engine) TPOTUs(s *State, r *Request) (float64, error) {
	decodes, tokens := s.Decodes+s.StepRequests+1, s.DecodeTokens+s.StepTokens+r.PromptTokens+int64(s.OutputTokens/2)
	if n := e.admitted(s); n > 0 {
		decodes, tokens = decodes+n, tokens+s.AheadTokens*n/s.AheadRequests
	}
	decodes = min(e.seats, decodes)
	plain, err := e.stepUs(decodes, tokens)
	if err != nil {
		return 0, err
	}
	us := plain
	for range 3 {
		n := int64(s.PrefillPerS * us / 1e6)
		if n = min(n, e.budget-decodes); n < 1 {
			break
		}
		e.batch.AddPrefill(0, n, n)
		if us, err = e.stepUs(decodes, tokens); err != nil {
			return 0, err
		}
	}
	return us, nil
}

// admitted is how many of the requests ahead will decode beside the request:
// those there are blocks for.
func (e *Engine) admitted(s *State) int64 {
	if s.AheadRequests < 1 || s.FreeBlocks < 0 {
		return s.AheadRequests
	}
	blocks := max(1, (s.AheadTokens/s.AheadRequests+e.blockSize-1)/e.blockSize)
	return min(s.AheadRequests, s.FreeBlocks/blocks)
}
