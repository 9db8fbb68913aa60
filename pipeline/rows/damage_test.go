package rows

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// odd draws numbers a damaged recording may hold.
func odd(r *rand.Rand, near int64) int64 {
	switch r.IntN(6) {
	case 0:
		return -near
	case 1:
		return 0
	case 2:
		return math.MaxInt64 - r.Int64N(3)
	case 3:
		return math.MinInt64 + r.Int64N(3)
	case 4:
		return near + r.Int64N(5) - 2
	}
	return r.Int64N(4096)
}

func damage(r *rand.Rand, run *trace.Run) {
	for range 1 + r.IntN(6) {
		q := &run.Requests[r.IntN(len(run.Requests))]
		s := &run.Steps[r.IntN(len(run.Steps))]
		p := &run.Snapshots[r.IntN(len(run.Snapshots))]
		fields := []*int64{&q.ScheduledStep.V, &q.FirstTokenStep.V, &q.FinishedStep.V, &q.PromptTokens.V, &q.OutputTokens.V, &q.QueuedNs.V,
			&q.ArrivedNs.V,
			&s.TsStartNs, &s.DurationUs, &s.BlocksFree,
			nil, nil, nil, nil, nil, nil, // one of counts
			&p.ComputedTokens, &p.PromptTokens, &p.ScheduledTokens, &p.EffectivePromptLen.V}
		counts := []*int32{&s.ScheduledTokens, &s.NumPrefillReqs, &s.NumDecodeReqs, &s.PrefillTokens, &s.RunningDepth, &s.NumPreempted}
		if f := fields[r.IntN(len(fields))]; f != nil {
			*f = odd(r, *f)
		} else { // the table of a damaged count has the nearest that fits
			n := counts[r.IntN(len(counts))]
			*n = int32(min(max(odd(r, int64(*n)), math.MinInt32), math.MaxInt32))
		}
		if r.IntN(3) == 0 {
			s.KVUsage = []float64{math.NaN(), -1, 2, math.Inf(1)}[r.IntN(4)]
		}
		if r.IntN(4) == 0 {
			q.FirstTokenStep.OK = !q.FirstTokenStep.OK
		}
	}
}

// TestDamagedTablesGiveFiniteRows: whatever a table holds, nothing panics, rows
// read = kept + dropped, and every kept number is finite.
func TestDamagedTablesGiveFiniteRows(t *testing.T) {
	for seed := range uint64(100) {
		y, _ := play(seed%20, seed%2 == 0, true)
		r := rand.New(rand.NewPCG(seed, 5))
		run := thin(y, slices.Clone(y.run.Snapshots))
		run.Requests = slices.Clone(run.Requests)
		damage(r, run)
		d := toyDeployment(y)
		for _, v := range features.Versions() {
			s, err := Rebuild(run, d, v)
			if err != nil {
				if c := trace.CodeOf(err); c != codeChunkedNoSnapshots && c != codeBadStepIDs {
					t.Errorf("seed %d: %v", seed, err)
				}
				continue
			}
			s.Each(func(*Step, []trace.Member) {})
			sp := testSpace(t, d, v)
			for lag := range 3 {
				table, err := s.Beta(sp, Options{Target: coeff.Cadence, Lag: lag})
				finite(t, seed, table, err)
			}
			for _, target := range []string{coeff.Overhead, coeff.Admission, coeff.Egress, coeff.Queue} {
				table, err := s.Alpha(sp, Options{Target: target})
				finite(t, seed, table, err)
			}
			if _, err := s.LagEvidence(context.Background(), sp, Options{}, 0); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			s.Coverage()
			s.Audit(sp)
		}
	}
}

func finite(t *testing.T, seed uint64, table *Table, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	sum := table.Kept
	for _, d := range table.Dropped {
		sum += d.N
	}
	if sum != table.Read {
		t.Errorf("seed %d: read %d, kept %d, dropped %v", seed, table.Read, table.Kept, table.Dropped)
	}
	for _, column := range [][]float64{table.X, table.Y, table.Lo, table.Steps, table.Factor, table.FloorUs, table.Context} {
		for _, v := range column {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("seed %d %s: %g", seed, table.Target, v)
			}
		}
	}
}
