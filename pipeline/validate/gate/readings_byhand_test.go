package gate

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/result"
)

// TestOutliersAreRemarked: 3 of 600 rows are half a percent; without outliers there is no remark.
func TestOutliersAreRemarked(t *testing.T) {
	value, largest := 0.25, 7.5
	r := largestError(&value, 3, 600, &largest)
	if *r.value != 0.25 || r.missing != noteNoRows || r.remark != "3 of 600 rows are outliers (0.5 %; left out here up to 1 %), the largest error 7.5 times the median" {
		t.Errorf("got %+v", r)
	}
	if r := largestError(nil, 0, 600, nil); r.value != nil || r.remark != "" {
		t.Errorf("without: got %+v", r)
	}
}

// TestReadingsOfWindows: the size of a reading is its number of windows, at least one.
func TestReadingsOfWindows(t *testing.T) {
	read := ofWindows(func(e *result.TargetErrors) reading { return reading{size: 99, remark: strings.Repeat("x", e.Rows)} })
	if _, ok := read(&result.ConfigErrors{}, nil); ok {
		t.Error("no delays have a reading")
	}
	c := &result.ConfigErrors{Alpha: &result.AlphaErrors{}}
	if _, ok := read(c, nil); ok {
		t.Error("no admission delay has a reading")
	}
	c.Alpha.Admission = &result.TargetErrors{Rows: 2}
	for windows, want := range map[int]int{0: 1, 1: 1, 2: 2, 7: 7} {
		c.Alpha.Admission.Windows = windows
		if r, ok := read(c, nil); !ok || int(r.size) != want || r.remark != "xx" {
			t.Errorf("%d windows: got %+v, %v, want a size of %d", windows, r, ok, want)
		}
	}
}
