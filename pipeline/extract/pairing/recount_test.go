package pairing

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// busyPeriod is one busy period of 150 requests of one engine, whose prompts never fill a pass, with what the client
// saw on a clock of its own.
func busyPeriod(seed uint64) ([]trace.ObservedRequest, []trace.Iteration) {
	rng := rand.New(rand.NewPCG(seed, 58))
	var rows []trace.ObservedRequest
	var its []trace.Iteration
	left := map[int]int64{} // tokens to come, by request
	last := map[int]int64{}
	ns := int64(1e12)
	for i := 0; i < 150 || len(left) > 0; {
		it := trace.Iteration{Index: int64(len(its)), Form: trace.IterationLog, ElapsedUs: 9000, StampNs: trace.Some(ns + 9e6), StampStepNs: trace.Some(int64(1e6)),
			StampWall: true, GenerationReqs: int64(len(left)), GenerationTokens: int64(len(left)), Line: int64(len(its) + 1)}
		for k := range left {
			last[k] = ns + 9e6
			if left[k]--; left[k] == 0 {
				delete(left, k)
			}
		}
		for n := 1 + rng.IntN(2); n > 0 && i < 150 && len(its)%9 == 0; n-- {
			prompt := int64(40 + rng.IntN(700))
			output := int64(20 + rng.IntN(60))
			it.ContextReqs++
			it.ContextTokens += prompt
			left[i] = output - 1
			last[i] = ns + 9e6
			rows = append(rows, trace.ObservedRequest{ID: fmt.Sprint(i), Success: trace.Some(true), SendNs: trace.Some(ns - 3e6 + int64(i)),
				PromptTokens: trace.Some(prompt), OutputTokens: trace.Some(output), FirstChunkNs: trace.Some(ns + 10e6 + int64(i))})
			i++
		}
		its = append(its, it)
		ns += 10e6
	}
	for i := range rows {
		rows[i].LastChunkNs = trace.Some(last[i] + 1e6)
	}
	return rows, its
}

func reader(its []trace.Iteration) func(add func(int, *trace.Iteration)) error {
	return func(add func(int, *trace.Iteration)) error {
		for i := range its {
			add(0, &its[i])
		}
		return nil
	}
}

// TestOneRequestMore: a request that only the log or only the client has unpairs itself, not its busy period.
func TestOneRequestMore(t *testing.T) {
	for _, caching := range []bool{false, true} {
		rules := Rules{Block: 16, Budget: 8192, Chunked: true, Caching: caching}
		for name, change := range map[string]func([]trace.ObservedRequest) []trace.ObservedRequest{
			"all":         func(r []trace.ObservedRequest) []trace.ObservedRequest { return r },
			"one missing": func(r []trace.ObservedRequest) []trace.ObservedRequest { return slices.Delete(r, 70, 71) },
			"three missing": func(r []trace.ObservedRequest) []trace.ObservedRequest {
				return slices.Delete(slices.Delete(r, 20, 21), 90, 92)
			},
			"one more": func(r []trace.ObservedRequest) []trace.ObservedRequest {
				more := r[70]
				more.PromptTokens = trace.Some(int64(1234))
				return slices.Insert(r, 71, more)
			},
		} {
			rows, its := busyPeriod(1)
			rows = change(rows)
			g, err := Pair(rows, rules, 1, reader(its))
			if err != nil {
				t.Fatal(err)
			}
			if g.Paired < len(rows)-8 {
				t.Errorf("%s, caching %v: %d of %d paired", name, caching, g.Paired, len(rows))
			}
			g.Fill()
			for i := range rows {
				if r := &rows[i]; r.Iteration.OK && its[r.Iteration.V].ContextTokens < r.PromptTokens.V-r.CachedTokens.V {
					t.Errorf("%s: request %s has the wrong pass", name, r.ID)
				}
			}
		}
	}
}

// TestServerLengths: the server's prompts win over the client's: a constant longer or shorter, or each by a factor
// of its own.
func TestServerLengths(t *testing.T) {
	for name, c := range map[string]struct {
		client func(rng *rand.Rand, tokens int64) int64
		says   string
		exact  bool
	}{
		"chat template": {func(_ *rand.Rand, n int64) int64 { return n - 13 }, "13 tokens longer", true},
		"BOS":           {func(_ *rand.Rand, n int64) int64 { return n - 1 }, "1 tokens longer", true},
		"special token": {func(_ *rand.Rand, n int64) int64 { return n + 2 }, "2 tokens shorter", true},
		"other tokeniser": {func(rng *rand.Rand, n int64) int64 {
			return int64(math.Round(float64(n) / (1.03 + 0.5*rng.Float64())))
		}, "another factor", false},
		"five times as many": {func(rng *rand.Rand, n int64) int64 { return int64(math.Round(float64(n) / (4 + rng.Float64()))) }, "another factor", false},
		"the same":           {func(_ *rand.Rand, n int64) int64 { return n }, "", true},
	} {
		rows, its := busyPeriod(2)
		rng := rand.New(rand.NewPCG(3, 58))
		var want []int64
		for i := range rows {
			want = append(want, rows[i].PromptTokens.V)
			rows[i].PromptTokens.V = max(1, c.client(rng, rows[i].PromptTokens.V))
		}
		rules := Rules{Block: 16, Budget: 8192, Chunked: true}
		g, err := Pair(rows, rules, 1, reader(its))
		if err != nil {
			t.Fatal(err)
		}
		got, said, err := Recount(rows, rules, 1, g.Paired, reader(its))
		if err != nil || !strings.Contains(said, c.says) || c.says == "" && said != "" {
			t.Errorf("%s: said %q, %v, want %q", name, said, err, c.says)
			continue
		}
		if c.says == "" {
			continue
		}
		off := 0.0
		for i := range got {
			off += math.Abs(math.Log(float64(got[i]) / float64(want[i])))
		}
		if off /= float64(len(got)); c.exact && off > 0 || off > 0.1 {
			t.Errorf("%s: lengths are %.1f %% off in the mean", name, 100*off)
		}
	}
}
