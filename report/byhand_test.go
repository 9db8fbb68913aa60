package report

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/result"
)

// TestTicksByDecades: below 1.5 decades five ticks a decade, below 3 three, then one, and from 7 decades on every second.
func TestTicksByDecades(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   []float64
	}{
		{1, 31, []float64{1, 2, 3, 5, 7, 10, 20, 30}},
		{1, 32, []float64{1, 2, 5, 10, 20}},
		{1, 999, []float64{1, 2, 5, 10, 20, 50, 100, 200, 500}},
		{1, 1000, []float64{1, 10, 100, 1000}},
		{1, 1e6, []float64{1, 10, 100, 1000, 1e4, 1e5, 1e6}},
		{1, 1e8, []float64{1, 100, 1e4, 1e6, 1e8}},
		{5, 5, []float64{3, 5, 7, 10}}, // one value: from half of it to twice
	} {
		var got []float64
		for _, tick := range Logarithmic("x", c.lo, c.hi).Ticks {
			got = append(got, math.Round(tick.V*1e6)/1e6)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%g to %g: got %v, want %v", c.lo, c.hi, got, c.want)
		}
	}
	if a := Logarithmic("x", 0, 5); a.Lo != 5e-6 || a.Hi != 5 {
		t.Errorf("from 0 to 5: got %g to %g, want a millionth of the largest", a.Lo, a.Hi)
	}
	if a := Logarithmic("x", 0, 1e-5); a.Lo != 1e-9 {
		t.Errorf("from 0 to 1e-5: got %g, want 1e-9", a.Lo)
	}
	for raw, want := range map[float64]float64{0: 1, -3: 1, 1: 1, 1.01: 2, 2: 2, 2.1: 5, 5: 5, 5.1: 10, 0.03: 0.05} {
		if got := niceStep(raw); math.Abs(got-want) > 1e-12 {
			t.Errorf("at least %g: got a step of %g, want %g", raw, got, want)
		}
	}
}

func TestFoldsAreCounted(t *testing.T) {
	for _, c := range []struct {
		prints []string
		want   string
	}{
		{nil, Unknown}, {[]string{"a", "b"}, "2, all with coefficients of their own"}, {[]string{"a", "b", "a"}, "3, but only 2 distinct: NOT a cross-validation"},
	} {
		if got := foldsText(c.prints); got != c.want {
			t.Errorf("%v: got %q, want %q", c.prints, got, c.want)
		}
	}
}

func TestBinsOfALogarithmicPlot(t *testing.T) {
	good := result.Bin2D{X: 1, Y: 2, N: 3}
	if got := positiveBins([]result.Bin2D{{X: 0, Y: 2, N: 3}, {X: 1, Y: 0, N: 3}, {X: 1, Y: 2, N: 0}, good}); !reflect.DeepEqual(got, []result.Bin2D{good}) {
		t.Errorf("got %v, want that with positive values", got)
	}
	var many []result.Bin2D
	for i := range 1501 {
		many = append(many, result.Bin2D{X: 1, Y: 1, N: i + 1})
	}
	got := positiveBins(many)
	if len(got) != 1500 || got[0].N != 1501 || got[1499].N != 2 {
		t.Errorf("got %d bins of %d to %d rows, want the fullest", len(got), got[0].N, got[len(got)-1].N)
	}
	if got := positiveBins(many[:1500]); got[0].N != 1 {
		t.Error("as many bins as fit are sorted")
	}
}

func TestDriftOfARun(t *testing.T) {
	curve := []result.DriftPoint{{StartS: 0, Factor: 1.05}, {StartS: 30, Factor: 0.88}, {StartS: 40, Factor: 1.1}}
	if got := blockLengthS(curve); got != 10 {
		t.Errorf("got blocks of %g s, want the smallest distance, 10", got)
	}
	if got := blockLengthS(curve[:2]); got != 30 {
		t.Errorf("got blocks of %g s, want 30", got)
	}
	if got := blockLengthS(curve[:1]); got != 20 {
		t.Errorf("one block: got %g s, want 20", got)
	}
	if got := farthestDrift(result.ValidationRun{Drift: curve}); math.Abs(got-0.12) > 1e-12 {
		t.Errorf("got a drift of %g, want 0.12", got)
	}
}

// TestWidthsOfColumns: two columns of 10 and 20 take 30 and 6 around them; the wider is shortened first.
func TestWidthsOfColumns(t *testing.T) {
	for _, c := range []struct {
		width int
		want  []int
		ok    bool
	}{
		{36, []int{10, 20}, true}, {0, []int{10, 20}, true}, {35, []int{10, 19}, true}, {26, []int{10, 10}, true}, {25, []int{9, 10}, true}, {24, []int{9, 9}, true},
		{16, []int{5, 5}, true}, {14, []int{4, 4}, true}, {13, nil, false},
	} {
		got, ok := fitWidths([]int{10, 20}, []int{4, 4}, c.width)
		if !slices.Equal(got, c.want) || ok != c.ok {
			t.Errorf("%d wide: got %v, %v, want %v", c.width, got, ok, c.want)
		}
	}
}

func TestEmptyColumnsGo(t *testing.T) {
	table := func(texts ...[3]string) *Table {
		x := &Table{Cols: []Column{{Head: "a"}, {Head: "b"}, {Head: "c"}}}
		for _, row := range texts {
			var r Row
			for _, text := range row {
				r.Cells = append(r.Cells, Cell{Text: text})
			}
			x.Rows = append(x.Rows, r)
		}
		return x
	}
	heads := func(x *Table) (out string) {
		for _, c := range x.Cols {
			out += c.Head
		}
		return out
	}
	x := table([3]string{Unknown, "1", ""}, [3]string{"", "", Unknown})
	if x.dropEmpty(); heads(x) != "b" || len(x.Rows[0].Cells) != 1 || x.Rows[0].Cells[0].Text != "1" {
		t.Errorf("got columns %q of %+v, want b", heads(x), x.Rows)
	}
	x = table([3]string{"", "1", ""})
	x.Rows[0].Cells[0].Sub = "note"
	if x.dropEmpty(); heads(x) != "ab" {
		t.Errorf("a note under a value: got columns %q, want ab", heads(x))
	}
	x = table()
	if x.dropEmpty(); heads(x) != "abc" {
		t.Errorf("no rows: got columns %q, want all", heads(x))
	}
}

func TestTextOfThePage(t *testing.T) {
	for text, want := range map[string]string{"a `b` c": "a <code>b</code> c", "a ` c": "a ` c", "`<`": "<code>&lt;</code>", "": ""} {
		if got := string(proseHTML(text)); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := limitText(strings.Repeat("x", 1200)); len(got) != 1200 {
		t.Errorf("%d bytes: got %d", 1200, len(got))
	}
	if got := limitText(strings.Repeat("x", 1201)); got != strings.Repeat("x", 1200)+"…" {
		t.Errorf("one byte more: got %d bytes", len(got))
	}
	if got := limitText(strings.Repeat("x", 1199) + "é"); got != strings.Repeat("x", 1199)+"…" {
		t.Error("a character is cut in two")
	}
}
