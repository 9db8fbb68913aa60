package sim

// index finds a block by its content hash. It is a hash table of block numbers with linear probing, at
// most half full. The low bits of a content hash are well mixed, so they are used as the place. It
// stores no hashes: its methods get the contents of all blocks (known), by the block's number.
type index []int32

// newIndex returns an empty index with room for a number of blocks.
func newIndex(blocks int64) index {
	size := int64(16)
	for size < 2*blocks {
		size *= 2
	}
	x := make(index, size)
	x.clear()
	return x
}

// clear removes all hashes.
func (x index) clear() {
	for i := range x {
		x[i] = none
	}
}

// withRoom returns x, or a copy with twice its places, so that it may list every known block.
func (x index) withRoom(known []content) index {
	if 2*len(known) <= len(x) {
		return x
	}
	wider := newIndex(int64(len(x)))
	for _, b := range x {
		if b != none {
			wider.insert(known[b].hash, b)
		}
	}
	return wider
}

// mask returns the bits of a hash that are a place in the table.
func (x index) mask() uint64 { return uint64(len(x) - 1) }

// place returns the position in x of the block with the hash, or the free position at which it would
// be inserted.
func (x index) place(known []content, hash uint64) uint64 {
	i := hash & x.mask()
	for x[i] != none && known[x[i]].hash != hash {
		i = (i + 1) & x.mask()
	}
	return i
}

// find returns the block with the hash, or none if the index does not have it.
func (x index) find(known []content, hash uint64) int32 { return x[x.place(known, hash)] }

// insert adds block b with a hash that is not in the index.
func (x index) insert(hash uint64, b int32) {
	i := hash & x.mask()
	for x[i] != none {
		i = (i + 1) & x.mask()
	}
	x[i] = b
}

// replace makes find return another block with the same hash.
func (x index) replace(known []content, hash uint64, b int32) { x[x.place(known, hash)] = b }

// remove removes the hash, and moves later entries so that no probe stops at the gap.
func (x index) remove(known []content, hash uint64) {
	gap := x.place(known, hash)
	for i := (gap + 1) & x.mask(); x[i] != none; i = (i + 1) & x.mask() {
		home := known[x[i]].hash & x.mask()
		if (i-home)&x.mask() >= (i-gap)&x.mask() { // the probe for this entry passes the gap
			x[gap], gap = x[i], i
		}
	}
	x[gap] = none
}
