package rows

import (
	"math"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit/recordings"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// TestStatedQueueDelays: queueing delays that a server states in its answers to clients (vLLM's per-request metrics)
// make the rows that its journeys make, although they have no stamps: the same delays, joined to the same steps.
func TestStatedQueueDelays(t *testing.T) {
	for _, l := range recordings.Shared(t, "smoke60") {
		sp, err := features.New(features.V11, l.Deployment)
		if err != nil {
			t.Fatal(err)
		}
		journeys, err := Rebuild(l.Run, l.Deployment, features.V11)
		if err != nil {
			t.Fatal(err)
		}
		want, err := journeys.Alpha(sp, Options{Target: coeff.Queue})
		if err != nil {
			t.Fatal(err)
		}
		run := *l.Run
		run.Requests = nil
		run.Observed = nil
		const deliveryNs = 350_000 // of the first chunk, on the way to the client
		for i := range l.Run.Requests {
			r := &l.Run.Requests[i]
			if !r.FirstTokenNs.OK || !r.ScheduledNs.OK || !r.QueuedNs.OK {
				continue
			}
			run.Observed = append(run.Observed, trace.ObservedRequest{ID: r.CoreID.V, PromptTokens: r.PromptTokens, Success: trace.Some(true),
				QueueUs:      trace.Some(float64(r.ScheduledNs.V-r.QueuedNs.V) / 1e3),
				ServerTTFTUs: trace.Some(float64(r.FirstTokenNs.V-r.ScheduledNs.V) / 1e3),
				FirstChunkNs: trace.Some(r.FirstTokenNs.V + deliveryNs)})
		}
		stated, err := Rebuild(&run, l.Deployment, features.V11)
		if err != nil {
			t.Fatal(err)
		}
		got, err := stated.Alpha(sp, Options{Target: coeff.Queue})
		if err != nil {
			t.Fatal(err)
		}
		if got.Read != len(run.Observed) || got.Kept < want.Kept*9/10 {
			t.Errorf("%s: %d of %d rows, %d of journeys", l.Run.ID, got.Kept, got.Read, want.Kept)
		}
		y := map[string]float64{}
		for i, id := range want.ID {
			y[id] = want.Y[i]
		}
		var off []float64
		for i, id := range got.ID {
			if v, ok := y[id]; ok {
				off = append(off, math.Abs(got.Y[i]-v))
			}
		}
		if len(off) == 0 || stat.Median(off) > 1 {
			t.Errorf("%s: %d delays, off by %.3g us in the median", l.Run.ID, len(off), stat.Median(off))
		}
	}
}
