package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// maxRows is the most rows of one table on the page; the JSON files hold all.
const maxRows = 150

// Grow adds a row while the table is not full and counts it in any case, so that a
// table of thousands costs no more than the rows it shows.
func (t *Table) Grow(fill func() Row) {
	t.Total++
	if len(t.Rows) < maxRows {
		t.Rows = append(t.Rows, fill())
	}
}

// Capped cuts a table to maxRows and says so. where names the file and key
// that hold every row; how says which rows came first.
func Capped(t *Table, how, where string) *Table {
	t.dropEmpty()
	t.Total = max(t.Total, len(t.Rows))
	if t.Total > maxRows {
		t.More = fmt.Sprintf("%d of %d rows shown, %s; all of them are in %s.", maxRows, t.Total, how, where)
		t.Rows = t.Rows[:maxRows]
	}
	return t
}

// dropEmpty removes columns in which no row says anything, not even that a
// value is unknown.
func (t *Table) dropEmpty() {
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

// Tables are the blocks of tables, none for one without rows.
func Tables(ts ...*Table) []Block {
	some := stat.Filter(ts, func(t *Table) bool { return t != nil && len(t.Rows) > 0 })
	return stat.Map(some, func(t *Table) Block { return Block{Table: t} })
}

// slug makes an id of a name.
func slug(s string) string {
	keep := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}
	return strings.Map(keep, s[:min(len(s), 60)])
}

func Plain(s string) Cell { return Cell{Text: s} }

func Prose(s string) Cell { return Cell{Text: s, Class: "w"} }

func Name(s string) Cell { return Cell{Text: s, Class: "id"} }

// Number is a right-aligned cell; nil is shown as unknown and sorts last.
func Number(v *float64) Cell { return Shown(v, Short) }

// Percent is number for a fraction.
func Percent(v *float64) Cell { return Shown(v, Pct) }

// millis is number for microseconds shown as milliseconds.
func millis(v *float64) Cell {
	return Shown(v, func(us float64) string { return Short(us / 1000) })
}

func Shown(v *float64, print func(float64) string) Cell {
	if v == nil {
		return Cell{Text: Unknown, Class: "n dim"}
	}
	return Cell{Text: print(*v), Key: sortKey(*v), Class: "n"}
}

func Num(v float64) Cell { return Number(&v) }

func PercentOf(v float64) Cell { return Percent(&v) }

// Count is a cell of a count.
func Count[N int | int64](n N) Cell {
	return Cell{Text: trace.Thousands(int64(n)), Key: strconv.FormatInt(int64(n), 10), Class: "n"}
}

// ZeroDim greys a zero, so that the counts that matter stand out.
func ZeroDim[N int | int64](n N) Cell {
	c := Count(n)
	if n == 0 {
		c.Class = "n dim"
	}
	return c
}

// headed puts a sub-heading before blocks, when there are any.
func headed(title string, bs []Block) []Block {
	if len(bs) == 0 {
		return nil
	}
	return append([]Block{{Heading: title}}, bs...)
}

// NewTable is a table without rows. A column is written in one line, "# Spread [ms] ? P95 - P5 of the
// offset": # for numbers, the unit in brackets, help behind the question mark.
func NewTable(id, caption string, heads ...string) *Table {
	return &Table{ID: id, Caption: caption, Cols: ColumnsOf(heads...)}
}

// ColumnsOf are columns written as for NewTable.
func ColumnsOf(heads ...string) []Column {
	columns := make([]Column, len(heads))
	for i, head := range heads {
		columns[i] = parseColumn(head)
	}
	return columns
}

func parseColumn(text string) (c Column) {
	text, c.Help, _ = strings.Cut(text, " ? ")
	text, c.Unit, _ = strings.Cut(strings.TrimSuffix(text, "]"), " [")
	c.Head, c.Num = strings.CutPrefix(text, "# ")
	return c
}

// Put appends a row.
func (t *Table) Put(cells ...Cell) { t.Rows = append(t.Rows, Row{Cells: cells}) }

// Add appends a row of plain cells.
func (t *Table) Add(cells ...string) {
	t.Put(stat.Map(cells, Plain)...)
}

// First keeps the first n rows and says how many others there are.
func (t *Table) First(n int) (others int) {
	others = max(len(t.Rows)-n, 0)
	t.Rows = t.Rows[:len(t.Rows)-others]
	return others
}

// text is the table as text alone can show it: without the columns of drawings, units behind their headings, what
// stands below the text of a cell on a line of its own where there is room for lines.
func (t *Table) text(lines bool) *Table {
	out := &Table{Caption: t.Caption, Rows: make([]Row, len(t.Rows))}
	for j, c := range t.Cols {
		if slices.ContainsFunc(t.Rows, func(r Row) bool { return j < len(r.Cells) && r.Cells[j].Mini != "" }) {
			continue
		}
		if c.Unit != "" {
			c.Head += " [" + c.Unit + "]"
		}
		out.Cols = append(out.Cols, c)
		for i, r := range t.Rows {
			cell := Cell{}
			if j < len(r.Cells) {
				cell = r.Cells[j]
			}
			if lines && cell.Sub != "" {
				cell.Text += "\n" + cell.Sub
			}
			cell.Text = strings.ReplaceAll(cell.Text, "\u00a0", " ")
			out.Rows[i].Cells = append(out.Rows[i].Cells, cell)
		}
	}
	return out
}

// Markdown is the table in GitHub's form. Cells are Markdown: escape escapes what stands in
// them, nil where they may hold marks.
func (t *Table) Markdown(escape func(string) string) string {
	t = t.text(false)
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(stat.Map(t.Cols, func(c Column) string { return c.Head }))
	b.WriteString("|" + strings.Repeat("---|", len(t.Cols)) + "\n")
	for _, r := range t.Rows {
		var cells []string
		for _, c := range r.Cells {
			text := c.Text
			switch {
			case c.Href != "": // what leads somewhere is a name of ours
				text = "[" + text + "](" + c.Href + ")"
			case escape != nil:
				text = escape(text)
			}
			cells = append(cells, text)
		}
		line(cells)
	}
	return b.String()
}

// Terminal is the table as text within width columns; 0 sets no limit. Long cells are wrapped
// first; where that is not enough every row becomes a list of its cells.
func (t *Table) Terminal(width int) string {
	t = t.text(true)
	var b strings.Builder
	b.WriteString(" " + t.Caption + "\n")
	widths, longest := t.widths()
	limits, fits := fitted(widths, longest, width)
	if !fits {
		t.list(&b, width)
		return b.String()
	}
	var head Row
	rules := make([]string, len(limits))
	for i, c := range t.Cols {
		head.Cells = append(head.Cells, Cell{Text: c.Head})
		rules[i] = strings.Repeat("─", limits[i]+2)
	}
	t.line(&b, head, limits)
	b.WriteString(strings.Join(rules, "┼") + "\n")
	for _, r := range t.Rows {
		t.line(&b, r, limits)
	}
	return b.String()
}

// widths are the columns' natural widths, and the widths of their longest words.
func (t *Table) widths() (widths, longest []int) {
	widths = make([]int, len(t.Cols))
	longest = make([]int, len(t.Cols))
	see := func(i int, s string) {
		for line := range strings.SplitSeq(s, "\n") {
			widths[i] = max(widths[i], runewidth.StringWidth(line))
		}
		for _, word := range strings.Fields(s) {
			longest[i] = max(longest[i], runewidth.StringWidth(word))
		}
	}
	for i, c := range t.Cols {
		see(i, c.Head)
		for _, r := range t.Rows {
			see(i, r.Cells[i].Text)
		}
	}
	return widths, longest
}

// fitted shortens the widest columns until the table fits into width; it says whether that can be
// done without breaking a word.
func fitted(widths, longest []int, width int) ([]int, bool) {
	limits := append([]int(nil), widths...)
	total := 3 * len(widths) // " cell │" around each
	for _, w := range widths {
		total += w
	}
	for ; width > 0 && total > width; total-- {
		widest := -1
		for i, w := range limits {
			if w > longest[i] && (widest < 0 || w > limits[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return nil, false
		}
		limits[widest]--
	}
	return limits, true
}

// line writes one row, on as many lines as its longest cell needs.
func (t *Table) line(b *strings.Builder, r Row, limits []int) {
	cells := make([][]string, len(limits))
	height := 1
	for i := range limits {
		cells[i] = Wrap(r.Cells[i].Text, limits[i], 0)
		height = max(height, len(cells[i]))
	}
	for k := range height {
		var parts []string
		for i, limit := range limits {
			text := ""
			if k < len(cells[i]) {
				text = cells[i][k]
			}
			pad := strings.Repeat(" ", max(0, limit-runewidth.StringWidth(text)))
			if t.Cols[i].Num {
				text = pad + text
			} else {
				text += pad
			}
			parts = append(parts, " "+text+" ")
		}
		b.WriteString(strings.TrimRight(strings.Join(parts, "│"), " ") + "\n")
	}
}

// list writes every row as one line a cell.
func (t *Table) list(b *strings.Builder, width int) {
	for _, r := range t.Rows {
		for i, c := range r.Cells {
			indent, name := "   ", t.Cols[i].Head+": "
			if i == 0 {
				indent, name = " - ", ""
			}
			if c.Text == "" {
				continue
			}
			for k, l := range Wrap(name+c.Text, max(width-5, 16), 0) {
				if k > 0 {
					indent = "     "
				}
				b.WriteString(indent + l + "\n")
			}
		}
	}
}

// Wrap breaks text at spaces into lines of at most width columns, all but the first of them
// hang columns shorter; a longer word has a line of its own.
func Wrap(s string, width, hang int) []string {
	var lines []string
	for part := range strings.SplitSeq(s, "\n") {
		if runewidth.StringWidth(part) <= width { // as it stands, with its spaces
			lines = append(lines, part)
			continue
		}
		line, limit := "", width
		for _, word := range strings.Fields(part) {
			switch {
			case line == "":
				line = word
			case runewidth.StringWidth(line)+1+runewidth.StringWidth(word) <= limit:
				line += " " + word
			default:
				lines, line = append(lines, line), word
				limit = width - hang
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// Short prints a tick or a value with at most three significant digits.
func Short(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "n/a"
	case a >= 1e7 || a < 1e-3:
		s := strconv.FormatFloat(v, 'e', 2, 64)
		mant, exp, _ := strings.Cut(s, "e")
		n, _ := strconv.Atoi(exp)
		return minus(trimmed(mant)) + "e" + strconv.Itoa(n)
	case a >= 100:
		return grouped(strconv.FormatFloat(v, 'f', 0, 64))
	default:
		return minus(trimmed(strconv.FormatFloat(v, 'f', max(2-int(math.Floor(math.Log10(a))), 0), 64)))
	}
}

// trimmed is a number without zeros at the end of its decimals.
func trimmed(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// minus sets a typographic minus before a number.
func minus(s string) string {
	if strings.HasPrefix(s, "-") && strings.Trim(s, "-0.,") != "" {
		return "−" + s[1:]
	}
	return strings.TrimPrefix(s, "-")
}

// grouped puts a comma between thousands.
func grouped(s string) string {
	sign, frac := "", ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	if i := strings.IndexByte(s, '.'); i >= 0 {
		s, frac = s[:i], s[i:]
	}
	s = trace.Grouped(s)
	if sign != "" && strings.Trim(s+frac, "0.,") == "" {
		sign = ""
	}
	return minus(sign + s + frac)
}

// Milli is a time in us, or a rate per us, in the unit people read: ms. Other units come
// back as they are.
func Milli(v float64, unit string) (float64, string) {
	if rest, ok := strings.CutPrefix(unit, "us"); ok && (rest == "" || rest[0] == '/') {
		return v / 1000, "ms" + rest
	}
	return v, unit
}

// FourDigits prints four significant digits, thousands apart and no exponent down to 1e-4,
// so that the numbers of a column can be compared by eye.
func FourDigits(v float64) string {
	a := math.Abs(v)
	switch {
	case v == 0:
		return "0"
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "n/a"
	case a < 1e-4 || a >= 1e12:
		return Short(v)
	}
	return grouped(trimmed(strconv.FormatFloat(v, 'f', max(3-int(math.Floor(math.Log10(a))), 0), 64)))
}

// Range prints an interval.
func Range(lo, hi float64) string { return FourDigits(lo) + " .. " + FourDigits(hi) }

// Unknown is how a null is shown.
const Unknown = "–"

// Pct prints a fraction as percent with one decimal, small ones with two
// digits, so that a column of them is quiet; the space does not break.
func Pct(v float64) string {
	p := v * 100
	a := math.Abs(p)
	switch {
	case math.IsNaN(p) || math.IsInf(p, 0):
		return "n/a"
	case a >= 99.95:
		return grouped(strconv.FormatFloat(p, 'f', 0, 64)) + percentSign
	case a >= 0.1 || a < 1e-9:
		return minus(strconv.FormatFloat(p, 'f', 1, 64)) + percentSign
	case a >= 0.001:
		return minus(strconv.FormatFloat(p, 'f', 3, 64)) + percentSign
	}
	return Short(p) + percentSign
}

// percentSign follows a no-break space.
const percentSign = "\u00a0%"

// threshold is pct without a needless decimal.
func threshold(v float64) string { return Short(v*100) + percentSign }

// statistic prints a statistic between 0 and 1 with three decimals.
func statistic(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

// brief prints two significant digits.
func brief(v float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 2, 64), 64)
	return Short(rounded)
}

func pctOr(v *float64) string { return Shown(v, Pct).Text }

// ShortOr is Short of a number that may be unknown.
func ShortOr(v *float64) string { return Shown(v, Short).Text }

// Signed prints a fraction as percent with its sign.
func Signed(v float64) string {
	if v*100 >= 1e-9 {
		return "+" + Pct(v)
	}
	return Pct(v)
}

func sortKey(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// sentence starts with a capital and ends with a full stop.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	r, n := utf8.DecodeRuneInString(s)
	s = string(unicode.ToUpper(r)) + s[n:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// Reasons prints counts by reason, largest first, ties by name.
func Reasons[N int | int64](m map[string]N) string {
	type pair struct {
		name string
		n    N
	}
	var ps []pair
	for k, n := range m {
		if n != 0 {
			ps = append(ps, pair{k, n})
		}
	}
	stat.SortStable(ps, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.name, b.name))
	})
	var out []string
	for i, p := range ps {
		if i == 8 {
			out = append(out, fmt.Sprintf("and %d other reasons", len(ps)-8))
			break
		}
		out = append(out, fmt.Sprintf("%s %s", p.name, trace.Thousands(int64(p.n))))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// FirstOf is the first n lines and a count of the rest.
func FirstOf(lines []string, n int, where string) []string {
	if len(lines) <= n {
		return lines
	}
	return append(slices.Clone(lines[:n]), fmt.Sprintf("and %d more in %s", len(lines)-n, where))
}

func appendNew(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// listOf joins the first n names and counts the rest.
func listOf(names []string, n int) string {
	if len(names) > n {
		return strings.Join(names[:n], ", ") + fmt.Sprintf(" and %d more", len(names)-n)
	}
	return strings.Join(names, ", ")
}

func pluralVerb(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
