package report

// This file writes tables as text, for the terminal and in Markdown. Widths are in terminal
// columns.

import (
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
)

// withoutMarkup returns a copy of the table for output as text: without columns of drawings, with units in
// the headings and common spaces for no-break spaces. With subLines, the remark under a cell (Sub) becomes a
// second line of its text; otherwise it is left out.
func (t *Table) withoutMarkup(subLines bool) *Table {
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
			if subLines && cell.Sub != "" {
				cell.Text += "\n" + cell.Sub
			}
			cell.Text = strings.ReplaceAll(cell.Text, "\u00a0", " ")
			out.Rows[i].Cells = append(out.Rows[i].Cells, cell)
		}
	}
	return out
}

// Markdown returns the table in GitHub's form. escape is applied to the texts of cells; nil means
// that they are Markdown already.
func (t *Table) Markdown(escape func(string) string) string {
	t = t.withoutMarkup(false)
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	var heads []string
	for _, c := range t.Cols {
		heads = append(heads, c.Head)
	}
	line(heads)
	b.WriteString("|" + strings.Repeat("---|", len(t.Cols)) + "\n")
	for _, r := range t.Rows {
		var cells []string
		for _, c := range r.Cells {
			text := c.Text
			switch {
			case c.Href != "": // a link has a name of this program, which needs no escaping
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

// Terminal returns the table as text of at most width columns; 0 sets no limit. Long cells wrap; if
// that is not enough, every row is written as a list.
func (t *Table) Terminal(width int) string {
	t = t.withoutMarkup(true)
	var b strings.Builder
	b.WriteString(" " + t.Caption + "\n")
	widths, longest := t.widths()
	limits, fits := fitWidths(widths, longest, width)
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

// widths returns the columns' widths without wrapping, and the widths of their longest words.
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

// fitWidths returns the widths of columns after shortening the widest ones until the table fits
// into width; false if that would break words.
func fitWidths(widths, longest []int, width int) ([]int, bool) {
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

// list writes every row as a list, one line for each cell.
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

// Wrap breaks text at spaces into lines of at most width columns; all lines but the first are hang
// columns shorter. A word that is longer gets a line of its own.
func Wrap(s string, width, hang int) []string {
	var lines []string
	for part := range strings.SplitSeq(s, "\n") {
		if runewidth.StringWidth(part) <= width { // unchanged, with its spaces
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
