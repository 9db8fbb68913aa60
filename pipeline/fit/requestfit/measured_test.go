package requestfit

import (
	"math"
	"testing"

	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// TestMeasuredTimes: 12 ms to the first of 5 tokens with 3 ms between them, 30 ms in all, are 12000, 4 x 3000 and 30000 us.
// A request aborted 50 ms after it came counts for none, but has decoded for 50 - 12 = 38 ms.
func TestMeasuredTimes(t *testing.T) {
	none := math.NaN()
	whole := validate.Request{ArrivalNs: 7e6, Output: 5, TTFTMs: trace.Some(12.0), ITLMs: trace.Some(3.0), E2EMs: trace.Some(30.0)}
	single := whole
	single.Output = 1
	aborted := validate.Request{ArrivalNs: 7e6, Output: 9, Excluded: "aborted", TTFTMs: trace.Some(12.0), EndNs: trace.Some(int64(57e6))}
	early := aborted
	early.EndNs = trace.Some(int64(8e6))
	for name, c := range map[string]struct {
		o              validate.Request
		times, stamped sim.Measured
	}{
		"whole":    {whole, sim.Measured{TTFTUs: 12000, SpanUs: 12000, E2EUs: 30000}, sim.Measured{TTFTUs: 12000, SpanUs: 12000, E2EUs: 30000}},
		"1 token":  {single, sim.Measured{TTFTUs: 12000, SpanUs: none, E2EUs: 30000}, sim.Measured{TTFTUs: 12000, SpanUs: none, E2EUs: 30000}},
		"aborted":  {aborted, sim.Measured{TTFTUs: none, SpanUs: none, E2EUs: none}, sim.Measured{TTFTUs: 12000, SpanUs: 38000, E2EUs: none}},
		"early":    {early, sim.Measured{TTFTUs: none, SpanUs: none, E2EUs: none}, sim.Measured{TTFTUs: 12000, SpanUs: 0, E2EUs: none}},
		"no times": {validate.Request{Output: 3}, sim.Measured{TTFTUs: none, SpanUs: none, E2EUs: none}, sim.Measured{TTFTUs: none, SpanUs: none, E2EUs: none}},
	} {
		for _, p := range [][2]sim.Measured{{measuredTimes(&c.o), c.times}, {stampsOf(&c.o), c.stamped}} {
			for _, v := range [][2]float64{{p[0].TTFTUs, p[1].TTFTUs}, {p[0].SpanUs, p[1].SpanUs}, {p[0].E2EUs, p[1].E2EUs}} {
				if math.Abs(v[0]-v[1]) > 1e-6 || math.IsNaN(v[0]) != math.IsNaN(v[1]) {
					t.Errorf("%s: got %+v, want %+v", name, p[0], p[1])
					break
				}
			}
		}
	}
}
