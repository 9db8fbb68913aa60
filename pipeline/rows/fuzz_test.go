package rows

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// FuzzFill: no sequence of iterations panics; steps come in order with finite sums,
// or the run is refused.
func FuzzFill(f *testing.F) {
	dep := deployment(f, synchronous(false))
	run, _ := engine{constant: 500, seconds: 3, stampStep: 1e9, gap: 0.2}.record()
	var seed []byte
	for i := range run.Iterations {
		it := &run.Iterations[i]
		seed = binary.LittleEndian.AppendUint16(seed, uint16(it.ContextTokens))
		seed = append(seed, byte(it.ContextReqs), byte(it.GenerationReqs), byte(it.ElapsedUs/100), byte(i%7))
	}
	f.Add(seed, int64(1e9), true)
	f.Add(seed[:30], int64(1000), false)
	f.Fuzz(func(t *testing.T, data []byte, step int64, clients bool) {
		if step <= 0 || step > 1e9 || len(data) > 6*5000 {
			return
		}
		run := &trace.Run{ID: "fuzz"}
		stamp, index := int64(1e18), int64(0)
		for ; len(data) >= 6; data = data[6:] {
			index += 1 + int64(data[5]&1)*int64(data[4])
			it := trace.Iteration{Index: index, Form: trace.IterationLog, ContextTokens: int64(binary.LittleEndian.Uint16(data)),
				ContextReqs: int64(data[2]), GenerationReqs: int64(data[3]), GenerationTokens: int64(data[3]) + int64(data[5]>>6),
				ElapsedUs: float64(data[4]) * 100, Dummy: data[5]&32 > 0}
			stamp += int64(data[4])*1e5 + int64(data[5]&8)*1e8 - int64(data[5]&16)*1e7
			if data[5]&2 == 0 {
				it.StampNs, it.StampStepNs = trace.Some(stamp/step*step), trace.Some(step)
			}
			run.Iterations = append(run.Iterations, it)
			if clients && it.ContextReqs > 0 {
				run.Observed = append(run.Observed, trace.ObservedRequest{SendNs: trace.Some(stamp - 1e18 - 1e8),
					FirstChunkNs: trace.Some(stamp - 1e18), LastChunkNs: trace.Some(stamp - 1e18 + int64(data[2])*1e8),
					PromptTokens: trace.Some(it.ContextTokens), OutputTokens: trace.Some(int64(data[2])), TTFTUs: trace.Some(1e5)})
			}
		}
		if len(run.Iterations) == 0 {
			return
		}
		if err := Fill(run, dep); err != nil {
			t.Fatal(err)
		}
		if run.Aggregate.Refused != nil && len(run.Steps) > 0 {
			t.Errorf("refused with %d steps", len(run.Steps))
		}
		for i := range run.Steps {
			if i > 0 && (run.Steps[i].ID <= run.Steps[i-1].ID || run.Steps[i].TsStartNs < run.Steps[i-1].TsStartNs) {
				t.Fatalf("step %+v after %+v", run.Steps[i], run.Steps[i-1])
			}
		}
		for i := range run.Aggregate.Totals {
			tt := &run.Aggregate.Totals[i]
			for _, v := range []float64{tt.CausalWork, tt.DecodeContext, tt.PrefillContext} {
				if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
					t.Fatalf("got %+v", tt)
				}
			}
			if tt.Prefill < 0 || tt.Decode < 0 || tt.PrefillReqs < 0 || tt.Sampled < 0 {
				t.Fatalf("got %+v", tt)
			}
		}
	})
}
