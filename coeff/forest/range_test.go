package forest

import "testing"

// TestIsOutside: a column of -2 to 6 may be exceeded by half of its width of 8, to -6 and 10; one of 1 to 6 by half of 6, to
// -2 and 9; a category never is.
func TestIsOutside(t *testing.T) {
	e := &Evaluated{waiting: 0, prefix: 1}
	e.Columns = []Column{{Min: -2, Max: 6}, {Min: 1, Max: 6}, {Min: 0, Max: 1, IsCategory: true}}
	for _, c := range []struct {
		x    []float64
		want bool
	}{
		{[]float64{10, 9, 99}, false}, {[]float64{-6, -2, -99}, false}, {[]float64{10.1, 9, 0}, true}, {[]float64{-6.1, 1, 0}, true},
		{[]float64{0, 9.1, 0}, true}, {[]float64{0, -2.1, 0}, true},
	} {
		if got := e.IsOutside(c.x); got != c.want {
			t.Errorf("%v: got %t", c.x, got)
		}
	}
	for x, want := range map[[2]float64]int{{0, 0}: 0, {0, 0.5}: 1, {0, 0.49}: 0, {1, 0}: 2, {0.1, 1}: 3} {
		if got := e.group(x[:]); got != want {
			t.Errorf("%v: got the group %d, want %d", x, got, want)
		}
	}
	if got := (&Evaluated{waiting: -1, prefix: -1}).group([]float64{1, 1}); got != 0 {
		t.Errorf("no such columns: got the group %d", got)
	}
}
