package validate

import "github.com/blis-train/blis-train/trace"

// TTFTMs is FIRST_TOKEN - ARRIVED in ms, or a stock span's time to first token.
func TTFTMs(r *trace.Request) (float64, bool) {
	if r.Source == trace.SourceStock {
		return r.StockTTFTUs.V / 1e3, r.StockTTFTUs.OK
	}
	return betweenMs(r.ArrivedNs, r.FirstTokenNs)
}

// E2EMs is DEPARTED - ARRIVED in ms, or a stock span's e2e. Only requests that
// succeeded have one.
func E2EMs(r *trace.Request) (float64, bool) {
	if r.Success.OK && !r.Success.V {
		return 0, false
	}
	if r.Source == trace.SourceStock {
		return r.StockE2EUs.V / 1e3, r.StockE2EUs.OK
	}
	return betweenMs(r.ArrivedNs, r.DepartedNs)
}

// ITLMs is (FINISHED - FIRST_TOKEN)/(outputs - 1) in ms, or a stock span's decode
// time over the same count; requests with at least two output tokens have one.
func ITLMs(r *trace.Request) (float64, bool) {
	if !r.OutputTokens.OK || r.OutputTokens.V < 2 {
		return 0, false
	}
	total, ok := betweenMs(r.FirstTokenNs, r.FinishedNs)
	if r.Source == trace.SourceStock {
		total, ok = r.StockDecodeUs.V/1e3, r.StockDecodeUs.OK
	}
	return total / float64(r.OutputTokens.V-1), ok
}

func betweenMs(from, to trace.Opt[int64]) (float64, bool) {
	if !from.OK || !to.OK {
		return 0, false
	}
	return float64(to.V-from.V) / 1e6, true
}
