package trace

import "math"

// This file reads requests as a recording tells them: which clock and stamps say when they
// came, produced and left, whatever recorded them.

// TTFTMs is FIRST_TOKEN - ARRIVED in ms, or a stock span's time to first token.
func (r *Request) TTFTMs() (float64, bool) {
	if r.Source == SourceStock {
		return r.StockTTFTUs.V / 1e3, r.StockTTFTUs.OK
	}
	return BetweenMs(r.ArrivedNs, r.FirstTokenNs)
}

// E2EMs is DEPARTED - ARRIVED in ms, or a stock span's e2e. Only requests that
// succeeded have one.
func (r *Request) E2EMs() (float64, bool) {
	if r.Success.OK && !r.Success.V {
		return 0, false
	}
	if r.Source == SourceStock {
		return r.StockE2EUs.V / 1e3, r.StockE2EUs.OK
	}
	return BetweenMs(r.ArrivedNs, r.DepartedNs)
}

// BetweenMs is the time between two stamps, in ms.
func BetweenMs(from, to Opt[int64]) (float64, bool) {
	if !from.OK || !to.OK {
		return 0, false
	}
	return float64(to.V-from.V) / 1e6, true
}

// ArrivalNs is ARRIVED, else QUEUED, else the stock span's wall-clock start.
func (r *Request) ArrivalNs() (int64, bool) {
	for _, at := range []Opt[int64]{r.ArrivedNs, r.QueuedNs} {
		if at.OK {
			return at.V, true
		}
	}
	return r.StartWallNs.V, r.StartWallNs.OK && r.Source == SourceStock
}

// clientDisconnect is the reason of an abort that the client asked for.
const clientDisconnect = "client_disconnect"

// Failed reports whether the request ended without success through no wish of its client.
func (r *Request) Failed() bool {
	return r.Success.OK && !r.Success.V && !r.ClientAborted()
}

// ClientAborted reports whether its client gave the request up.
func (r *Request) ClientAborted() bool {
	if !r.Success.OK || r.Success.V {
		return false
	}
	if r.AbortReason.OK {
		return r.AbortReason.V == clientDisconnect
	}
	return r.FinishStatus.Or("") == FinishAborted
}

// DepartureNs is when the request left, on the clock of ArrivalNs.
func (r *Request) DepartureNs() (int64, bool) {
	if r.Source == SourceStock {
		return r.StartWallNs.V + Ns(r.StockE2EUs.V), r.StockE2EUs.OK && r.StartWallNs.OK
	}
	for _, at := range []Opt[int64]{r.DepartedNs, r.FinishedNs, r.AbortedNs} {
		if at.OK {
			return at.V, true
		}
	}
	return 0, false
}

// RunsBackwards reports whether a later event of the request has an earlier stamp.
func (r *Request) RunsBackwards() bool {
	last := int64(math.MinInt64)
	for _, at := range []Opt[int64]{r.ArrivedNs, r.QueuedNs, r.ScheduledNs, r.FirstTokenNs, r.FinishedNs, r.DepartedNs} {
		if !at.OK {
			continue
		}
		if at.V < last {
			return true
		}
		last = at.V
	}
	return false
}
