package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// unknown is how a null is shown.
const unknown = "–"

// maxRows is the most rows of one table on the page; the JSON files hold all.
const maxRows = 150

// pct prints a fraction as percent with one decimal, small ones with two
// digits, so that a column of them is quiet; the space does not break.
func pct(v float64) string {
	p := v * 100
	a := math.Abs(p)
	switch {
	case math.IsNaN(p) || math.IsInf(p, 0):
		return "n/a"
	case a >= 99.95:
		return groupDigits(strconv.FormatFloat(p, 'f', 0, 64)) + percentSign
	case a >= 0.1 || a < 1e-9:
		return minus(strconv.FormatFloat(p, 'f', 1, 64)) + percentSign
	case a >= 0.001:
		return minus(strconv.FormatFloat(p, 'f', 3, 64)) + percentSign
	}
	return short(p) + percentSign
}

// percentSign follows a no-break space.
const percentSign = "\u00a0%"

// thresholdPct is pct without a needless decimal.
func thresholdPct(v float64) string { return short(v*100) + percentSign }

// share3 prints a statistic between 0 and 1 with three decimals.
func share3(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

// brief prints two significant digits.
func brief(v float64) string {
	return short(roundTo2(v))
}

func roundTo2(v float64) float64 {
	out, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 2, 64), 64)
	return out
}

func pctOr(v *float64) string {
	if v == nil {
		return unknown
	}
	return pct(*v)
}

func shortOr(v *float64) string {
	if v == nil {
		return unknown
	}
	return short(*v)
}

// signed prints a fraction as percent with its sign.
func signed(v float64) string {
	if v*100 >= 1e-9 {
		return "+" + pct(v)
	}
	return pct(v)
}

func sortKey(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

func text(s string) cell  { return cell{Text: s} }
func words(s string) cell { return cell{Text: s, Class: "w"} }
func name(s string) cell  { return cell{Text: s, Class: "id"} }

// number is a right-aligned cell; nil is shown as unknown and sorts last.
func number(v *float64) cell { return shown(v, short) }

// percent is number for a fraction.
func percent(v *float64) cell { return shown(v, pct) }

// millis is number for microseconds shown as milliseconds.
func millis(v *float64) cell {
	return shown(v, func(us float64) string { return short(us / 1000) })
}

func shown(v *float64, print func(float64) string) cell {
	if v == nil {
		return cell{Text: unknown, Class: "n dim"}
	}
	return cell{Text: print(*v), Key: sortKey(*v), Class: "n"}
}

func num(v float64) cell       { return number(&v) }
func percentOf(v float64) cell { return percent(&v) }

func count(n int) cell {
	return cell{Text: groupDigits(strconv.Itoa(n)), Key: strconv.Itoa(n), Class: "n"}
}

// zeroDim greys a zero, so that the counts that matter stand out.
func zeroDim(n int) cell {
	c := count(n)
	if n == 0 {
		c.Class = "n dim"
	}
	return c
}

// reasons prints counts by reason, largest first, ties by name.
func reasons(m map[string]int) string {
	type pair struct {
		name string
		n    int
	}
	var ps []pair
	for k, n := range m {
		if n != 0 {
			ps = append(ps, pair{k, n})
		}
	}
	slices.SortFunc(ps, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.name, b.name))
	})
	var out []string
	for i, p := range ps {
		if i == 8 {
			out = append(out, fmt.Sprintf("and %d other reasons", len(ps)-8))
			break
		}
		out = append(out, fmt.Sprintf("%s %s", p.name, groupDigits(strconv.Itoa(p.n))))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// grow adds a row while there is room and counts it in any case, so that a
// table of thousands costs no more than the rows it shows.
func (t *table) grow(fill func() row) {
	t.total++
	if len(t.Rows) < maxRows {
		t.Rows = append(t.Rows, fill())
	}
}

// capped cuts a table to maxRows and says so. where names the file and key
// that hold every row; how says which rows came first.
func capped(t *table, how, where string) *table {
	t.dropEmpty()
	t.total = max(t.total, len(t.Rows))
	if t.total > maxRows {
		t.More = fmt.Sprintf("%d of %d rows shown, %s; all of them are in %s.", maxRows, t.total, how, where)
		t.Rows = t.Rows[:maxRows]
	}
	return t
}

// dropEmpty removes columns in which no row says anything, not even that a
// value is unknown.
func (t *table) dropEmpty() {
	for j := len(t.Cols) - 1; j >= 0; j-- {
		empty := len(t.Rows) > 0
		for _, r := range t.Rows {
			c := r.Cells[j]
			empty = empty && c.Text == "" && c.Sub == "" && c.Mini == ""
		}
		if !empty {
			continue
		}
		t.Cols = slices.Delete(t.Cols, j, j+1)
		for i := range t.Rows {
			t.Rows[i].Cells = slices.Delete(t.Rows[i].Cells, j, j+1)
		}
	}
}

// tables returns the block of a table, or nothing for one without rows.
func tables(t *table) []block {
	if t == nil || len(t.Rows) == 0 {
		return nil
	}
	return []block{{Table: t}}
}

// Bounds of what findings show.
const maxCodes, maxMessages = 40, 5

// findings groups by code in the order the codes first appear.
func findings(lists ...[]trace.Finding) []findingGroup {
	index := map[trace.Code]int{}
	var out []findingGroup
	for _, fs := range lists {
		for _, f := range fs {
			i, seen := index[f.Code]
			if !seen {
				i = len(out)
				index[f.Code] = i
				out = append(out, findingGroup{Code: string(f.Code)})
			}
			g := &out[i]
			g.Count++
			switch {
			case slices.Contains(g.Messages, f.Message):
			case len(g.Messages) < maxMessages:
				g.Messages = append(g.Messages, f.Message)
			default:
				g.More++
			}
		}
	}
	return out[:min(len(out), maxCodes)]
}

func findingBlocks(title string, lists ...[]trace.Finding) []block {
	gs := findings(lists...)
	if len(gs) == 0 {
		return nil
	}
	return []block{{Heading: title}, {Findings: gs}}
}

// headed puts a sub-heading before blocks, when there are any.
func headed(title string, bs []block) []block {
	if len(bs) == 0 {
		return nil
	}
	return append([]block{{Heading: title}}, bs...)
}
