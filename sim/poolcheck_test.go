package sim

import "fmt"

// Check verifies the pool against everything that is held of it: allocated +
// free = total, every reference has a holder, the queue has every free block, and what the index finds has the content it was asked for.
func (p *pool) Check(held []*held) error {
	sum, holders := int64(0), make(map[int32]int32)
	for _, h := range held {
		sum += h.N
		for _, b := range h.IDs {
			holders[b]++
		}
		if p.Caching && int64(len(h.IDs)) != h.N {
			return fmt.Errorf("a request holds %d blocks and %d identities", h.N, len(h.IDs))
		}
	}
	if p.Caching {
		sum = int64(len(holders))
	}
	if sum+p.Free != p.Total {
		return fmt.Errorf("%d blocks held + %d free, want %d", sum, p.Free, p.Total)
	}
	if !p.Caching {
		return nil
	}
	listed, free := 0, int64(0)
	for b := range p.blocks {
		at := &p.blocks[b]
		if holders[int32(b)] != at.ref {
			return fmt.Errorf("block %d has %d references, %d holders", b, at.ref, holders[int32(b)])
		}
		if at.listed {
			listed++
		}
	}
	for i := p.head; i != p.tail; i++ {
		if b := p.queue[i&uint64(len(p.queue)-1)]; b != none {
			free++
			if p.blocks[b].ref != 0 {
				return fmt.Errorf("block %d is held and queued for eviction", b)
			}
		}
	}
	if free != p.Free {
		return fmt.Errorf("%d blocks queued for eviction, counted %d", free, p.Free)
	}
	return p.checkIndex(listed)
}

func (p *pool) checkIndex(listed int) error {
	for _, first := range p.index {
		if first == none {
			continue
		}
		hash := p.content[first].hash
		if p.index.find(p.content, hash) != first {
			return fmt.Errorf("block %d is in the index and not found", first)
		}
		for b := first; b != none; b = p.content[b].dup {
			listed--
			if !p.blocks[b].hashed || !p.blocks[b].listed || p.content[b].hash != hash {
				return fmt.Errorf("block %d is listed under a hash it does not have", b)
			}
		}
	}
	if listed != 0 {
		return fmt.Errorf("%d listed blocks are not in the index", listed)
	}
	return nil
}
