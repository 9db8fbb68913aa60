package rows

import (
	"fmt"
	"testing"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// longRun is n steps of about 30 concurrent requests: one arrives every 7 steps
// with a prompt of 300 tokens and leaves after 200 outputs.
func longRun(n int64) *trace.Run {
	run := &trace.Run{ID: "long"}
	prefill, decode := make([]int64, n+1), make([]int64, n+1)
	for s := int64(1); s+200 < n; s += 7 {
		id := fmt.Sprintf("r%d", s)
		at := s * 20 * ms
		r := request(id, at-ms, at+200*20*ms)
		r.ScheduledStep, r.FirstTokenStep, r.FinishedStep = trace.Some(s), trace.Some(s), trace.Some(s+199)
		r.PromptTokens, r.OutputTokens = trace.Some(int64(300)), trace.Some(int64(200))
		r.FinishStatus = trace.Some(trace.FinishLength)
		run.Requests = append(run.Requests, r)
		prefill[s]++
		for u := s + 1; u <= s+199; u++ {
			decode[u]++
		}
	}
	for id := int64(1); id <= n-200; id++ {
		run.Steps = append(run.Steps, trace.Step{ID: id, TsStartNs: id * 20 * ms, DurationUs: 200, RunningDepth: prefill[id] + decode[id],
			NumPrefillReqs: prefill[id], NumDecodeReqs: decode[id], PrefillTokens: 300 * prefill[id], DecodeTokens: decode[id],
			ScheduledTokens: 300*prefill[id] + decode[id], BlocksTotal: 4000, BlocksFree: 2000, KVUsage: 0.5})
	}
	return run
}

func BenchmarkRebuild(b *testing.B) {
	for _, n := range []int64{100_000, 1_000_000} {
		run, d := longRun(n), testDeployment()
		b.Run(fmt.Sprintf("%dsteps", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s, err := Rebuild(run, d, features.V11)
				if err != nil || s.Quality.Reconstructed != len(run.Steps) {
					b.Fatalf("%v %+v", err, s.Quality)
				}
			}
			b.ReportMetric(float64(len(run.Steps))*float64(b.N)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}

func BenchmarkRows(b *testing.B) {
	run, d := longRun(1_000_000), testDeployment()
	s, err := Rebuild(run, d, features.V11)
	if err != nil {
		b.Fatal(err)
	}
	sp, err := features.New(features.V11, d)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("beta", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if t, err := s.Beta(sp, Options{Lag: 1}); err != nil || t.Kept < 990_000 {
				b.Fatal(err, t.Kept, t.Dropped)
			}
		}
		b.ReportMetric(float64(len(run.Steps))*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	})
	b.Run("alpha", func(b *testing.B) {
		for b.Loop() {
			if t, err := s.Alpha(sp, Options{}); err != nil || t.Kept < 100_000 {
				b.Fatal(err, t.Kept)
			}
		}
		b.ReportMetric(float64(len(run.Requests))*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	})
}
