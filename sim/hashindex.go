package sim

// index finds a block by its hash: open addressing with linear probing over
// block numbers, at most half full. The hashes are mixed already, so their low
// bits are the place.
type index []int32

func newIndex(blocks int64) index {
	size := int64(16)
	for size < 2*blocks {
		size *= 2
	}
	x := make(index, size)
	for i := range x {
		x[i] = none
	}
	return x
}

func (x index) mask() uint64 { return uint64(len(x) - 1) }

// place is the place of the hash, or the free place where it would be.
func (x index) place(known []content, hash uint64) uint64 {
	i := hash & x.mask()
	for x[i] != none && known[x[i]].hash != hash {
		i = (i + 1) & x.mask()
	}
	return i
}

func (x index) find(known []content, hash uint64) int32 { return x[x.place(known, hash)] }

// insert adds a hash that is not there.
func (x index) insert(hash uint64, b int32) {
	i := hash & x.mask()
	for x[i] != none {
		i = (i + 1) & x.mask()
	}
	x[i] = b
}

// replace makes another block of the same content the one that is found.
func (x index) replace(known []content, hash uint64, b int32) { x[x.place(known, hash)] = b }

// remove takes the hash out and closes the gap in its run of places.
func (x index) remove(known []content, hash uint64) {
	gap := x.place(known, hash)
	for i := (gap + 1) & x.mask(); x[i] != none; i = (i + 1) & x.mask() {
		home := known[x[i]].hash & x.mask()
		if (i-home)&x.mask() >= (i-gap)&x.mask() { // its probe passes the gap
			x[gap], gap = x[i], i
		}
	}
	x[gap] = none
}
