package main

import (
	"strings"
	"testing"

	"github.com/mattn/go-runewidth"
)

// A table keeps to the terminal's width: cells are wrapped first, and a very
// narrow terminal gets a list with every cell.
func TestTableKeepsToTheWidth(t *testing.T) {
	header := cells{"run", "read", "note"}
	rows := []cells{{"cpu-gqa-async", 20198, "the cadence is the step time; the duration is scheduler CPU time"}, {"b", 1, ""}}
	for _, c := range []struct {
		width int
		want  string
	}{
		{0, " cpu-gqa-async │ 20198 │ the cadence is the step time; the duration is scheduler CPU time\n"},
		{60, " cpu-gqa-async │ 20198 │ the cadence is the step time; the\n"},
		{30, "   note: the cadence is the\n     step time; the duration\n"},
	} {
		got := tableOf("a title", header, rows).Terminal(c.width)
		if !strings.HasPrefix(got, " a title\n") || !strings.Contains(got, c.want) {
			t.Errorf("width %d: got\n%s\nwant %q in it", c.width, got, c.want)
		}
		for _, line := range strings.Split(got, "\n") {
			if n := runewidth.StringWidth(line); c.width > 0 && n > c.width {
				t.Errorf("width %d: %d columns: %q", c.width, n, line)
			}
			if strings.TrimRight(line, " ") != line {
				t.Errorf("width %d: trailing blanks: %q", c.width, line)
			}
		}
		for _, word := range []string{"20198", "scheduler", "CPU"} {
			if !strings.Contains(got, word) {
				t.Errorf("width %d: %q is lost:\n%s", c.width, word, got)
			}
		}
	}
}
