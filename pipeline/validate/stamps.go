// Package measured reads requests as a recording tells them: which clock and stamps
// say when they came, produced and left, whatever recorded them, and why one cannot
// be compared with a replay.
package validate

import "github.com/blis-train/blis-train/trace"

// ttftMs is FIRST_TOKEN - ARRIVED in ms, or a stock span's time to first token.
func ttftMs(r *trace.Request) (float64, bool) {
	if r.Source == trace.SourceStock {
		return r.StockTTFTUs.V / 1e3, r.StockTTFTUs.OK
	}
	return betweenMs(r.ArrivedNs, r.FirstTokenNs)
}

// e2EMs is DEPARTED - ARRIVED in ms, or a stock span's e2e. Only requests that
// succeeded have one.
func e2EMs(r *trace.Request) (float64, bool) {
	if r.Success.OK && !r.Success.V {
		return 0, false
	}
	if r.Source == trace.SourceStock {
		return r.StockE2EUs.V / 1e3, r.StockE2EUs.OK
	}
	return betweenMs(r.ArrivedNs, r.DepartedNs)
}

// itlMs is (FINISHED - FIRST_TOKEN)/(outputs - 1) in ms, or a stock span's decode
// time over the same count; requests with at least two output tokens have one.
func itlMs(r *trace.Request) (float64, bool) {
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

// arrivalNs is ARRIVED, else QUEUED, else the stock span's wall-clock start.
func arrivalNs(r *trace.Request) (int64, bool) {
	for _, at := range []trace.Opt[int64]{r.ArrivedNs, r.QueuedNs} {
		if at.OK {
			return at.V, true
		}
	}
	return r.StartWallNs.V, r.StartWallNs.OK && r.Source == trace.SourceStock
}

// clientDisconnect is the reason of an abort that the client asked for.
const clientDisconnect = "client_disconnect"

// isFailure reports a request that ended without success through no wish of its client.
func isFailure(r *trace.Request) bool {
	return r.Success.OK && !r.Success.V && !isClientAbort(r)
}

// isClientAbort reports a request that its client gave up.
func isClientAbort(r *trace.Request) bool {
	if !r.Success.OK || r.Success.V {
		return false
	}
	if r.AbortReason.OK {
		return r.AbortReason.V == clientDisconnect
	}
	return r.FinishStatus.Or("") == trace.FinishAborted
}

// departureNs is when the request left, on the clock of ArrivalNs.
func departureNs(r *trace.Request) (int64, bool) {
	if r.Source == trace.SourceStock {
		return r.StartWallNs.V + int64(r.StockE2EUs.V*1e3), r.StockE2EUs.OK && r.StartWallNs.OK
	}
	for _, at := range []trace.Opt[int64]{r.DepartedNs, r.FinishedNs, r.AbortedNs} {
		if at.OK {
			return at.V, true
		}
	}
	return 0, false
}
