package rows

import (
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// StepQuality are the figures of rebuilt batches. Known batches are those any row
// may use, approximated ones included.
func StepQuality(q Quality) result.StepQuality {
	out := result.StepQuality{
		Recorded: q.Recorded, Known: q.Recorded - q.Unknown, FromSnapshots: q.Rich, Reconstructed: q.Journey,
		Approximate: q.Approximate, Contradictions: q.Contradictions,
	}
	if q.Recorded > 0 {
		share := float64(out.Known) / float64(q.Recorded)
		out.KnownShare = &share
	}
	return out
}

// JoinedQuality are the figures of two parts of a run together.
func JoinedQuality(a, b result.StepQuality) result.StepQuality {
	return StepQuality(Quality{
		Recorded: a.Recorded + b.Recorded, Unknown: a.Recorded - a.Known + b.Recorded - b.Known, Rich: a.FromSnapshots + b.FromSnapshots,
		Journey: a.Reconstructed + b.Reconstructed, Approximate: a.Approximate + b.Approximate,
		Contradictions: a.Contradictions + b.Contradictions,
	})
}

// Audit is the target audit of one run.
func ScoreAudit(run string, a Audit) result.TargetAudit {
	known := func(v trace.Opt[float64]) *float64 {
		if !v.OK {
			return nil
		}
		return &v.V
	}
	pair := func(q Quantiles) result.Quantiles {
		if q.N == 0 {
			return result.Quantiles{}
		}
		return result.Quantiles{P50: &q.P50, P90: &q.P90}
	}
	return result.TargetAudit{
		Run: run, DurationUsP50: known(a.DurationUsP50), CadenceUsP50: known(a.CadenceUsP50), PhysicalFloorUs: known(a.FloorUsP50),
		QueuedToScheduledUs: pair(a.QueuedToScheduledUs), ArrivedToQueuedUs: pair(a.ArrivedToQueuedUs), Verdict: a.Verdict,
	}
}
