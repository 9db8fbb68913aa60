package sim

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// twin is the pool written down slowly: the free list as a list, content as a
// list of blocks by hash in the order they became findable.
type twin struct {
	free   []int32
	refs   map[int32]int
	byHash map[uint64][]int32
	hash   map[int32]uint64
}

func (w *twin) take() int32 {
	b := w.free[0]
	w.free = w.free[1:]
	w.refs[b] = 1
	if h, ok := w.hash[b]; ok {
		w.byHash[h] = slices.DeleteFunc(w.byHash[h], func(x int32) bool { return x == b })
		delete(w.hash, b)
	}
	return b
}

func (w *twin) drop(ids []int32) {
	for _, b := range slices.Backward(ids) {
		if w.refs[b]--; w.refs[b] == 0 {
			w.free = append(w.free, b)
		}
	}
}

// TestPoolAgainstSlowTwin: random requests that share content come and go; the
// pool hands out, finds and forgets the blocks its slow twin does.
func TestPoolAgainstSlowTwin(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		total := 4 + rng.Int64N(40)
		p := newPool(total, true)
		w := &twin{refs: map[int32]int{}, byHash: map[uint64][]int32{}, hash: map[int32]uint64{}}
		for b := range int32(total) {
			w.free = append(w.free, b)
		}
		live := map[int]*held{}
		for i := range 300 {
			if keys := slices.Sorted(maps.Keys(live)); len(keys) > 0 && rng.IntN(2) == 0 {
				k := keys[rng.IntN(len(keys))]
				w.drop(live[k].IDs)
				p.Drop(live[k])
				delete(live, k)
				continue
			}
			c := Content{PromptTokens: 4 * (1 + rng.Int64N(8)), Group: uint64(rng.IntN(4)), GroupTokens: 4 * rng.Int64N(6), Own: uint64(i)}
			if h := admit(p, w, &c); h != nil {
				live[i] = h
			}
			if err := p.Check(slices.Collect(maps.Values(live))); err != nil {
				t.Fatalf("seed %d, request %d: %v", seed, i, err)
			}
			for _, h := range live {
				for _, b := range h.IDs {
					if w.refs[b] == 0 {
						t.Fatalf("seed %d, request %d: block %d is held and the twin's is free", seed, i, b)
					}
				}
			}
		}
	}
}

// admit looks the content up, takes what is missing and registers it; nil when
// it does not fit, or when pool and twin disagree on a block's number.
func admit(p *pool, w *twin, c *Content) *held {
	blocks := c.PromptTokens / 4
	var hits []int32
	missing := blocks
	for b := range blocks {
		hash, _ := c.Block(b, 4)
		found, ok := p.Lookup(hash)
		if slow := w.byHash[hash]; ok != (len(slow) > 0) || ok && slow[0] != found {
			panic("the index and its twin differ")
		}
		if !ok {
			break
		}
		hits = append(hits, found)
		if p.InUse(found) {
			missing--
		}
	}
	if missing > p.Free {
		return nil
	}
	h := &held{}
	p.Share(h, hits)
	for _, b := range hits {
		if w.refs[b] == 0 {
			w.free = slices.DeleteFunc(w.free, func(x int32) bool { return x == b })
		}
		w.refs[b]++
	}
	p.Grow(h, blocks)
	for b := int64(len(hits)); b < blocks; b++ {
		if id := w.take(); id != h.IDs[b] {
			panic("the free list and its twin differ")
		}
		hash, own := c.Block(b, 4)
		p.Register(h, hash, own)
		if !own {
			w.byHash[hash] = append(w.byHash[hash], h.IDs[b])
			w.hash[h.IDs[b]] = hash
		}
	}
	return h
}

// TestContentIsSharedExactlyWhereItIs: equal hashes up to where two prompts are
// known to be equal, and no further.
func TestContentIsSharedExactlyWhereItIs(t *testing.T) {
	same := func(a, b Content, block int64) bool {
		x, _ := a.Block(block, 16)
		y, _ := b.Block(block, 16)
		return x == y
	}
	group := func(own uint64, tokens int64) Content {
		return Content{PromptTokens: 100, Group: 7, GroupTokens: tokens, Own: own}
	}
	if !same(group(1, 64), group(2, 48), 2) || same(group(1, 64), group(2, 48), 3) {
		t.Error("groups: want blocks 0 to 2 shared and block 3 not")
	}
	spans := func(own uint64, ids ...uint64) Content {
		return Content{PromptTokens: 100, Hashes: ids, HashTokens: 32, Own: own}
	}
	if !same(spans(1, 5, 6), spans(2, 5, 9), 1) || same(spans(1, 5, 6), spans(2, 5, 9), 2) || same(spans(1, 4, 6), spans(2, 5, 6), 2) {
		t.Error("spans: want what follows a different span to differ")
	}
	if _, own := (&Content{PromptTokens: 20, Group: 1, GroupTokens: 64, Own: 3}).Block(1, 16); !own {
		t.Error("a block beyond the prompt is nobody else's")
	}
}

// TestSharedBlocksComeFirst: the leading blocks that others may have are those
// that are not the request's own.
func TestSharedBlocksComeFirst(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		c := Content{PromptTokens: 1 + rng.Int64N(100), Own: 1}
		if rng.IntN(2) == 0 {
			c.Group, c.GroupTokens = 1, rng.Int64N(120)
		}
		if rng.IntN(2) == 0 {
			c.Hashes, c.HashTokens = make([]uint64, rng.IntN(8)), 1+rng.Int64N(32)
		}
		shared := c.Shared(16)
		for b := range int64(8) {
			if _, own := c.Block(b, 16); own != (b >= shared) {
				t.Fatalf("%+v: block %d: own %t, shared blocks %d", c, b, own, shared)
			}
		}
	}
}
