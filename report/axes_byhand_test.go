package report

import (
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/result"
)

// TestLinearByHand: ticks at round steps around the range; a range of one value is half a unit wider on each side.
func TestLinearByHand(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		about  int
		want   string
	}{
		{3, 3, 2, "2.5 3.0 3.5"}, {5, 4, 2, "4.5 5.0 5.5"}, {0, 10, 5, "0 2 4 6 8 10"}, {1, 9, 5, "0 2 4 6 8 10"}, {0.1, 0.3, 2, "0.1 0.2 0.3"}, {0, 1, 0, "0 1"},
	} {
		a := Linear("x", c.lo, c.hi, c.about)
		var labels []string
		for _, tick := range a.Ticks {
			labels = append(labels, tick.Label)
		}
		n := len(a.Ticks) - 1
		if strings.Join(labels, " ") != c.want || a.Label != "x" || math.Abs(a.Lo-a.Ticks[0].V) > 1e-12 || math.Abs(a.Hi-a.Ticks[n].V) > 1e-12 {
			t.Errorf("%g to %g by %d: got %v in %g to %g, want %s", c.lo, c.hi, c.about, labels, a.Lo, a.Hi, c.want)
		}
	}
}

// TestInsideTheAxes: values on the edges are inside.
func TestInsideTheAxes(t *testing.T) {
	f := &frame{X: axis{Lo: 1, Hi: 2}, y: axis{Lo: 3, Hi: 4}}
	for _, c := range []struct {
		x, y float64
		want bool
	}{{1, 3, true}, {2, 4, true}, {1.5, 3.5, true}, {0.99, 3.5, false}, {2.01, 3.5, false}, {1.5, 2.99, false}, {1.5, 4.01, false}, {math.NaN(), 3.5, false}} {
		if got := f.Inside(c.x, c.y); got != c.want {
			t.Errorf("%g, %g: got %v", c.x, c.y, got)
		}
	}
}

// TestSlugs: letters in lower case, digits and hyphens; every other character is a hyphen; at most 60 bytes.
func TestSlugs(t *testing.T) {
	for s, want := range map[string]string{"azAZ09-": "azaz09-", "a/b c_d": "a-b-c-d", "@[`{/:": "------", "": "", strings.Repeat("a", 60) + "b": strings.Repeat("a", 60)} {
		if got := slug(s); got != want {
			t.Errorf("%s: got %s, want %s", s, got, want)
		}
	}
}

// TestCellsOfAFigure: errors of a regime alone are drawn, those of a bucket, of a set or without a value are not.
func TestCellsOfAFigure(t *testing.T) {
	x := 0.25
	for name, c := range map[string]struct {
		cell result.Cell
		want bool
	}{
		"regime": {result.Cell{Run: "r", Regime: "decode", Errors: result.Errors{MAPE: &x}}, true}, "bucket": {result.Cell{Run: "r", Regime: "decode", Bucket: "b", Errors: result.Errors{MAPE: &x}}, false},
		"set": {result.Cell{Run: "r", Regime: "decode", Set: "s", Errors: result.Errors{MAPE: &x}}, false}, "run": {result.Cell{Run: "r", Errors: result.Errors{MAPE: &x}}, false}, "none": {result.Cell{Run: "r", Regime: "decode"}, false},
	} {
		f := &result.Fit{}
		f.Beta.Cells = []result.Cell{c.cell}
		if got := cellFigure(f) != nil; got != c.want {
			t.Errorf("%s: got a figure: %v", name, got)
		}
	}
}

// TestChangesInMarkdown: the numbers of changes, and a table where there are any.
func TestChangesInMarkdown(t *testing.T) {
	c := &result.Changes{Against: "v1", Same: 3}
	if got := changesMarkdown(c); got != "**Since v1:** 0 changes, 3 figures as they were\n\n" {
		t.Errorf("none: got %q", got)
	}
	c.Rows = make([]result.Change, 22)
	got := changesMarkdown(c)
	if !strings.HasPrefix(got, "**Since v1:** ") || !strings.HasSuffix(got, "\nAnd 2 more in the report.\n\n") || !strings.Contains(got, "\n|") {
		t.Errorf("got %q", got)
	}
}
