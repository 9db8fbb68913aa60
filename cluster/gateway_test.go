package cluster

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// slow is the index as the words have it: lists of hashes, the last sent first.
type slow struct {
	capacity int
	lists    [][]uint64
}

func (s *slow) record(r *Request, i int) {
	hashes := slices.Clone(r.Hashes)
	for b := int64(len(r.Hashes)); b < r.Blocks; b++ {
		hashes = append(hashes, 1<<40+uint64(r.Index)*1000+uint64(b))
	}
	for _, h := range hashes {
		s.lists[i] = slices.DeleteFunc(s.lists[i], func(x uint64) bool { return x == h })
		s.lists[i] = append(s.lists[i], h)
		if over := len(s.lists[i]) - s.capacity; over > 0 {
			s.lists[i] = slices.Delete(s.lists[i], 0, over)
		}
	}
}

func (s *slow) match(hashes []uint64, i int) (n int64) {
	for _, h := range hashes {
		if !slices.Contains(s.lists[i], h) {
			break
		}
		n++
	}
	return n
}

// The index says what a list of hashes would, with its blocks going one by one.
func TestIndexAgainstLists(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		const instances = 5
		x, s := newIndex(instances, 60), &slow{60, make([][]uint64, instances)}
		got := make([]int64, instances)
		for k := range 600 {
			r := &Request{Index: k, Blocks: rng.Int64N(30)}
			for b := range min(r.Blocks, rng.Int64N(20)) {
				r.Hashes = append(r.Hashes, rng.Uint64N(3)*100+uint64(b)+1)
				if b > 0 {
					r.Hashes[b] = r.Hashes[0]/100*100 + uint64(b) + 1
				}
			}
			x.Match(r.Hashes, got)
			for i := range instances {
				if want := s.match(r.Hashes, i); got[i] != want {
					t.Fatalf("seed %d, request %d, instance %d: got %d blocks, want %d", seed, k, i, got[i], want)
				}
			}
			i := rng.IntN(instances)
			x.Record(r, i)
			s.record(r, i)
		}
	}
}

// Events count from their delay on, lost ones as well.
func TestEventsArriveLater(t *testing.T) {
	e := newEvents(50)
	e.Add(0, 100, 7, true)
	e.Add(1, 110, 7, true)
	e.Add(1, 120, 8, true)
	e.Add(0, 130, 7, false)
	got := make([]int64, 2)
	for _, c := range []struct {
		at   int64
		want []int64
	}{{149, []int64{0, 0}}, {150, []int64{1, 0}}, {169, []int64{1, 1}}, {170, []int64{1, 2}}, {180, []int64{0, 2}}} {
		if e.Match([]uint64{7, 8}, c.at, got); !slices.Equal(got, c.want) {
			t.Errorf("at %d: got %v, want %v", c.at, got, c.want)
		}
	}
}

// scene is a view of four instances.
func scene() *View {
	v := &View{BlockSize: 16, Ledger: newLedger(4, 100), Match: []int64{0, 10, 20, 40}, Exact: []int64{0, 5, 10, 20}}
	for _, s := range []snapshot{{QueueDepth: 0, BatchSize: 8, FreeBlocks: 100}, {QueueDepth: 5, BatchSize: 2, FreeBlocks: 75},
		{QueueDepth: 10, BatchSize: 0, FreeBlocks: 50}, {QueueDepth: 20, BatchSize: 4, FreeBlocks: 0}} {
		s.TotalBlocks = 100
		v.Snapshots = append(v.Snapshots, s)
	}
	v.Ledger.Of[2].InFlight = 2
	return v
}

// Scores by hand: shares of blocks, min-max of depths, 1 - usage, 1/(1 + load).
func TestScores(t *testing.T) {
	even := func(v *View) {
		for i := range v.Snapshots {
			v.Snapshots[i].QueueDepth, v.Snapshots[i].BatchSize, v.Ledger.Of[i].InFlight, v.Exact[i] = 3, 1, 0, 7
		}
	}
	for _, c := range []struct {
		scorer string
		change func(*View)
		blocks int64
		want   []float64
	}{
		{"pa", nil, 40, []float64{0, 0.25, 0.5, 1}},
		{"pa", nil, 80, []float64{0, 0.125, 0.25, 0.5}},
		{"pa", nil, 0, []float64{0, 0, 0, 0}},
		{"qd", nil, 40, []float64{1, 0.75, 0.5, 0}},
		{"qd", even, 40, []float64{1, 1, 1, 1}},
		{"qd", func(v *View) { v.Snapshots[0].QueueDepth = 20 }, 40, []float64{0, 1, 10.0 / 15, 0}},
		{"qde", nil, 40, []float64{16.0 / 17, 1, 12.0 / 17, 0}},
		{"qde", func(v *View) { v.Ledger.Of[0].InFlight = 16 }, 40, []float64{0, 1, 12.0 / 17, 0}},
		{"qde", even, 40, []float64{1, 1, 1, 1}},
		{"kv", nil, 40, []float64{1, 0.75, 0.5, 0}},
		{"kv", func(v *View) { v.Snapshots[3].TotalBlocks = 0 }, 40, []float64{1, 0.75, 0.5, 1}},
		{"lb", nil, 40, []float64{1.0 / 9, 1.0 / 8, 1.0 / 13, 1.0 / 25}},
		{"lb", even, 40, []float64{0.2, 0.2, 0.2, 0.2}},
		{"ppc", nil, 40, []float64{0, 0.25, 0.5, 1}},
		{"ppc", even, 40, []float64{1, 1, 1, 1}},
	} {
		v := scene()
		if c.change != nil {
			c.change(v)
		}
		list, err := ParseScorers(c.scorer + ":1")
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float64, 4)
		scorers[list[0].Name](&Request{Blocks: c.blocks}, v, got)
		for i := range got {
			if d := got[i] - c.want[i]; d > 1e-15 || d < -1e-15 {
				t.Errorf("%s of %d blocks: got %v, want %v", c.scorer, c.blocks, got, c.want)
				break
			}
		}
	}
}

// Where requests go: sums by hand, ratios alone count, ties by the key of the
// request, turns of those that were sent.
func TestRouters(t *testing.T) {
	for _, c := range []struct {
		policy, scorers string
		change          func(*View)
		want            int
	}{
		{Weighted, "pa:1", nil, 3},
		{Weighted, "qd:1", nil, 0},
		{Weighted, "pa:3,qd:2,kv:2", nil, 0}, // 4/7, (0.75+1.5+1.5)/7, (1.5+1+1)/7, 3/7
		{Weighted, "pa:30,qd:20,kv:20", nil, 0},
		{Weighted, "pa:4,qd:3", nil, 3}, // 3, 1 + 2.25, 2 + 1.5, 4
		{Weighted, "pa:4,qd:4", func(v *View) { v.Match[3] = 39 }, 0},
		{Weighted, "kv:1", func(v *View) { v.Snapshots[2].FreeBlocks = 101 }, 0}, // held within 1: a tie of 0 and 2
		{LeastLoaded, "", nil, 1},
		{LeastLoaded, "", func(v *View) { v.Ledger.Of[1].InFlight = 9 }, 0},
	} {
		var list []Scorer
		if c.scorers != "" {
			var err error
			if list, err = ParseScorers(c.scorers); err != nil {
				t.Fatal(err)
			}
		}
		v := scene()
		if c.change != nil {
			c.change(v)
		}
		r, err := newRouter(routed(c.policy), list, tie{choose: func(int) int { return 0 }}, 4)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Route(&Request{Blocks: 40}, v); got != c.want {
			t.Errorf("%s %s: got %d, want %d", c.policy, c.scorers, got, c.want)
		}
	}
	turns, _ := newRouter(routed(RoundRobin), nil, tie{}, 3)
	for _, c := range []struct {
		want int
		sent bool // one that is not sent takes no turn
	}{{0, false}, {0, true}, {1, true}, {2, false}, {2, true}, {0, true}} {
		if got := turns.Route(nil, nil); got != c.want {
			t.Errorf("turn: got %d, want %d", got, c.want)
		}
		if c.sent {
			turns.Routed(nil, c.want)
		}
	}
	equal := scene()
	for i := range equal.Snapshots {
		equal.Snapshots[i] = snapshot{}
		equal.Ledger.Of[i].InFlight = 0
	}
	least, _ := newRouter(routed(LeastLoaded), nil, tie{seed: 5}, 4)
	count := make([]int, 4)
	for k := range 4000 {
		i := least.Route(&Request{Index: k}, equal)
		if i != least.Route(&Request{Index: k}, equal) {
			t.Fatal("a tie was decided twice")
		}
		count[i]++
	}
	if slices.Min(count) < 900 {
		t.Errorf("ties: got %v of 4000", count)
	}
}

func TestScorersRefused(t *testing.T) {
	for _, text := range []string{"", "pa", "pa:0", "pa:x", "pa:-1", "pa:inf", "what:1", "pa:1,prefix-affinity:2"} {
		if _, err := ParseScorers(text); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
	if _, err := newRouter(routed("what"), nil, tie{}, 2); err == nil {
		t.Error("policy what: got no error")
	}
}

// The ledger adds up: what was sent is waiting, then decodes, then is gone.
func TestLedgerAddsUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	const n = 5000
	l := newLedger(3, n)
	l.Class("standard", 3)
	l.Class("batch", -1)
	where, started := map[int]int{}, map[int]bool{}
	next := 0
	for now := int64(1); next < n; now++ {
		if rng.IntN(2) == 0 {
			i := rng.IntN(3)
			l.Sent(&Request{Index: next, Class: rng.IntN(2), PromptTokens: 1 + rng.Int64N(100)}, i, now, rng.Int64N(50))
			where[next] = i
			next++
		}
		for k := range where {
			if p := rng.IntN(40); p == 0 && !started[k] {
				l.FirstToken(k, where[k], now)
				started[k] = true
			} else if p == 1 {
				l.Left(k, where[k], 0, 5, started[k])
				delete(where, k)
			}
			if rng.IntN(8) == 0 {
				break
			}
		}
		for i := range l.Of {
			var flying, decoding, todo, requests int64
			for k, at := range where {
				if at != i {
					continue
				}
				flying++
				if started[k] {
					decoding++
				} else {
					todo, requests = todo+max(1, l.entries[k].prompt-l.entries[k].cached), requests+1
				}
			}
			a := &l.Of[i]
			visited := int64(0)
			l.Waiting(&a.All, func(_ int, _, tokens int64) bool { visited += tokens; return true })
			if a.InFlight != flying || a.Decodes != decoding || a.All.Tokens != todo || a.All.Requests != requests || visited != todo ||
				a.Pending[0].Tokens+a.Pending[1].Tokens != todo {
				t.Fatalf("at %d, instance %d: got %d, %d, %d, %d, %d, want %d, %d, %d, %d", now, i, a.InFlight, a.Decodes, a.All.Tokens,
					a.All.Requests, visited, flying, decoding, todo, requests)
			}
		}
		if now > 800 {
			break
		}
	}
}

// routed is a cluster with a policy of routing.
func routed(policy string) *Config { return &Config{Spec: Spec{Routing: Routing{Policy: policy}}} }
