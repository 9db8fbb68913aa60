package packed

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// columns are the kinds of columns a row has here, one number a row.
var columns = []func(rng *rand.Rand, i int) float64{
	func(*rand.Rand, int) float64 { return 0 },
	func(*rand.Rand, int) float64 { return 0.1 },
	func(_ *rand.Rand, i int) float64 { return float64(i) },
	func(rng *rand.Rand, _ int) float64 { return float64(rng.IntN(200) - 100) },
	func(rng *rand.Rand, _ int) float64 { return float64(rng.IntN(1 << 16)) },
	func(rng *rand.Rand, _ int) float64 { return -float64(rng.Int64N(1 << 32)) },
	func(rng *rand.Rand, _ int) float64 { return math.Float64frombits(rng.Uint64()) },
	func(rng *rand.Rand, _ int) float64 { return float64(rng.Int64N(1 << 52)) },
	func(rng *rand.Rand, _ int) float64 { return 1 / float64(1+rng.IntN(40)) },
	func(rng *rand.Rand, _ int) float64 { return 1 / float64(1+rng.IntN(120)) },
	func(rng *rand.Rand, _ int) float64 { return rng.Float64() },
	func(rng *rand.Rand, _ int) float64 { return math.Copysign(0, float64(rng.IntN(2))-0.5) },
	func(rng *rand.Rand, _ int) float64 {
		odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, 5e-324, 1 << 53, -(1 << 53)}
		return odd[rng.IntN(len(odd))]
	},
	func(_ *rand.Rand, i int) float64 { return []float64{0, 1e9, 0.5}[(i/300)%3] },
}

func rowsOf(seed uint64, n int) [][]float64 {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([][]float64, n)
	for i := range out {
		for _, c := range columns {
			out[i] = append(out[i], c(rng, i))
		}
	}
	return out
}

func listOf(rows [][]float64) *Floats {
	f := NewFloats(len(columns))
	for _, row := range rows {
		f.Append(row)
	}
	return f
}

func sameBits(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return math.Float64bits(x) == math.Float64bits(y) })
}

// TestRowsComeBackBitForBit: in order, backwards and at random, sealed or not, as
// rows, as single numbers and as columns of a block.
func TestRowsComeBackBitForBit(t *testing.T) {
	for _, n := range []int{0, 1, 2, blockRows - 1, blockRows, blockRows + 1, 5*blockRows + 17} {
		want := rowsOf(uint64(n), n)
		for _, sealed := range []bool{false, true} {
			f := listOf(want)
			if sealed {
				f.Seal()
			}
			r, rng := f.Reader(), rand.New(rand.NewPCG(1, 2))
			for k := range 3 * n {
				i := []int{k, 2*n - 1 - k, rng.IntN(n)}[k/n]
				if got := r.Row(i); !sameBits(got, want[i]) {
					t.Fatalf("%d rows, sealed %v, row %d: got %x, want %x", n, sealed, i, got, want[i])
				}
				j := k % len(columns)
				lo, hi := r.Block(i)
				got := r.At(i, j)
				if col := r.Column(j); col != nil && math.Float64bits(col[i-lo]) != math.Float64bits(got) || col == nil && got != 0 || hi <= i {
					t.Fatalf("%d rows, row %d: column %d differs", n, i, j)
				}
				if math.Float64bits(got) != math.Float64bits(want[i][j]) {
					t.Fatalf("%d rows, row %d, column %d: got %x, want %x", n, i, j, got, want[i][j])
				}
			}
			if f.Len() != n {
				t.Errorf("got %d rows, want %d", f.Len(), n)
			}
		}
	}
}

// TestJoinedAndFiltered: joined lists are their rows one after the other, a filtered
// list those that were kept.
func TestJoinedAndFiltered(t *testing.T) {
	var lists []*Floats
	var want [][]float64
	for k, n := range []int{300, 1, 0, 700} {
		rows := rowsOf(uint64(k), n)
		want = append(want, rows...)
		lists = append(lists, listOf(rows))
	}
	all := Joined(lists...)
	r := all.Reader()
	for i := range want {
		if !sameBits(r.Row(i), want[i]) {
			t.Fatalf("joined row %d differs", i)
		}
	}
	kept := all.Filtered(func(i int) bool { return i%3 != 0 })
	r, i := kept.Reader(), 0
	for k := range want {
		if k%3 == 0 {
			continue
		}
		if !sameBits(r.Row(i), want[k]) {
			t.Fatalf("kept row %d differs", i)
		}
		i++
	}
	if kept.Len() != i || all.Len() != 0 || lists[0].Len() != 300 || !sameBits(lists[3].Reader().Row(699), want[1000]) {
		t.Errorf("got %d rows, want %d, and the lists as they were", kept.Len(), i)
	}
}

// TestCountsTakeOneByte: what repeats itself is small.
func TestCountsTakeOneByte(t *testing.T) {
	f := NewFloats(4)
	for i := range 4 * blockRows {
		f.Append([]float64{0, float64(i % 7), 0.1 * float64(i%5), 3})
	}
	size := 0
	for _, b := range f.list {
		size += len(b.data)
	}
	if rows := 4 * blockRows; size > 3*rows {
		t.Errorf("got %d bytes for %d rows, want at most 3 a row", size, rows)
	}
}

func BenchmarkPacked(b *testing.B) {
	const n = 64 * blockRows
	rows := rowsOf(1, n)
	f := listOf(rows)
	each := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n/float64(len(columns)), "ns/number")
	}
	b.Run("read", func(b *testing.B) {
		for range b.N {
			r := f.Reader()
			for i := range n {
				_ = r.Row(i)
			}
		}
		each(b)
	})
	b.Run("write", func(b *testing.B) {
		for range b.N {
			listOf(rows)
		}
		each(b)
	})
}
