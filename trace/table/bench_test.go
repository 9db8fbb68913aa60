package table_test

import (
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// snapshotsLike are snapshots as a busy engine writes them: steps of running
// requests whose context grows by one token a step.
func snapshotsLike(steps, running int) []trace.Snapshot {
	rng := rand.New(rand.NewSource(1))
	out := make([]trace.Snapshot, 0, steps*running)
	for s := range steps {
		for r := range running {
			id, age := (s+r*7)/97*running+r, int64((s+r*7)%97)
			out = append(out, trace.Snapshot{StepID: int64(s + 1), CoreID: fmt.Sprintf("cmpl-%016x-0-%08x", id*7919, id), Phase: "DECODE",
				PromptTokens:   int64(100 + id%700),
				ComputedTokens: int64(100+id%700) + age, OutputTokens: age, ScheduledTokens: 1, BlocksAllocated: int64(10 + id%40),
				BlocksCached:       int64(rng.Intn(40)),
				EffectivePromptLen: trace.Some(int64(100 + id%700))})
		}
	}
	return out
}

func stepsLike(n int) []trace.Step {
	rng := rand.New(rand.NewSource(2))
	out := make([]trace.Step, n)
	at := int64(20e12)
	for i := range out {
		at += 12e6 + rng.Int63n(5e6)
		out[i] = trace.Step{ID: int64(i + 1), TsStartNs: at, TsEndNs: at + 4e5 + rng.Int63n(1e5), DurationUs: 400 + rng.Int63n(100),
			RunningDepth: 16, NumDecodeReqs: 16, ScheduledTokens: 16,
			DecodeTokens: 16, KVUsage: rng.Float64(), BlocksTotal: 5000, BlocksFree: rng.Int63n(5000), WallNs: 1771362150e9 + at,
			SpanSequence: int64(i / 100), NumSnapshots: 16}
	}
	return out
}

func requestsLike(n int) []trace.Request {
	out := rows[trace.Request](n)
	for i := range out {
		r := &out[i]
		r.ArrivedNs = trace.Some(int64(i) * 1e7)
		r.CoreID, r.APIID = trace.Some(fmt.Sprintf("cmpl-%016x-0-%08x", i*7919, i)), trace.Some(fmt.Sprintf("cmpl-%016x", i*7919))
		r.TraceID, r.CoreSpanID = trace.Some(fmt.Sprintf("%032x", i*104729)), trace.Some(fmt.Sprintf("%016x", i*15485863))
	}
	return out
}

func benchRead[T any](b *testing.B, name string, want []T) {
	for _, format := range []table.Format{table.Parquet, table.Arrow} {
		b.Run(fmt.Sprintf("%s/%s", name, format), func(b *testing.B) {
			dir := b.TempDir()
			if err := table.Write(dir, name, format, want); err != nil {
				b.Fatal(err)
			}
			path := filepath.Join(dir, name+"."+string(format))
			st, err := os.Stat(path)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(st.Size())
			b.ReportAllocs()
			for b.Loop() {
				got, err := table.ReadFile[T](path)
				if err != nil || len(got) != len(want) {
					b.Fatalf("got %d rows and %v, want %d", len(got), err, len(want))
				}
			}
			b.ReportMetric(float64(len(want)*b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}

// BenchmarkRead reads whole tables back.
func BenchmarkRead(b *testing.B) {
	benchRead(b, table.Steps, stepsLike(200_000))
	benchRead(b, table.Snapshots, snapshotsLike(20_000, 20))
	benchRead(b, table.Requests, requestsLike(30_000))
}
