package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/blis-train/blis-train/internal/shown"
)

// show prints rows for people on stdout; nothing with --json or --quiet. On a
// terminal too narrow for it, long cells are wrapped, and when that is not
// enough every row becomes a list of its cells.
func (con *console) show(title string, header table.Row, rows []table.Row) {
	if con.json || con.quiet || con.summary || len(rows) == 0 {
		return
	}
	con.mu.Lock()
	defer con.mu.Unlock()
	con.clearBar()
	for i := range rows {
		for k, cell := range rows[i] {
			if s, ok := cell.(string); ok {
				rows[i][k] = shown.Line(s)
			}
		}
	}
	fmt.Fprintln(con.text, tableText(shown.Line(title), header, rows, con.outWidth))
}

// tableText is the table within width columns; 0 sets no limit.
func tableText(title string, header table.Row, rows []table.Row, width int) string {
	widths, words := columnWidths(header, rows)
	limits, fits := columnLimits(widths, words, width)
	if !fits {
		return listText(title, header, rows, width)
	}
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Options.SeparateRows = false
	t.Style().Options.DrawBorder = false
	t.Style().Format.Header = text.FormatDefault
	var configs []table.ColumnConfig
	for i, limit := range limits {
		configs = append(configs, table.ColumnConfig{Number: i + 1, WidthMax: limit, WidthMaxEnforcer: text.WrapSoft})
	}
	t.SetColumnConfigs(configs)
	t.AppendHeader(header)
	t.AppendRows(rows)
	var b strings.Builder
	fmt.Fprintf(&b, " %s\n", title)
	for _, line := range strings.Split(t.Render(), "\n") {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// columnWidths are the columns' natural widths, and the widths of their longest words.
func columnWidths(header table.Row, rows []table.Row) (widths, words []int) {
	widths, words = make([]int, len(header)), make([]int, len(header))
	for _, row := range append([]table.Row{header}, rows...) {
		for i, cell := range row {
			s := fmt.Sprint(cell)
			widths[i] = max(widths[i], text.LongestLineLen(s))
			for _, word := range strings.Fields(s) {
				words[i] = max(words[i], text.StringWidth(word))
			}
		}
	}
	return widths, words
}

// columnLimits shortens the widest columns until the table fits into width; it
// says whether that can be done without breaking a word.
func columnLimits(widths, words []int, width int) ([]int, bool) {
	limits := append([]int(nil), widths...)
	room := width - 3*len(widths) // " cell │" around each
	for width > 0 && total(limits) > room {
		widest := -1
		for i, w := range limits {
			if w > words[i] && (widest < 0 || w > limits[widest]) {
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

func total(widths []int) (sum int) {
	for _, w := range widths {
		sum += w
	}
	return sum
}

// listText prints every row as one line a cell.
func listText(title string, header table.Row, rows []table.Row, width int) string {
	var b strings.Builder
	fmt.Fprintf(&b, " %s\n", title)
	for _, row := range rows {
		for i, cell := range row {
			indent, name := "   ", fmt.Sprint(header[i])+": "
			if i == 0 {
				indent, name = " - ", ""
			}
			if s := fmt.Sprint(cell); s != "" {
				lines := strings.Split(text.WrapSoft(name+s, max(width-5, 16)), "\n")
				fmt.Fprintf(&b, "%s%s\n", indent, strings.TrimRight(lines[0], " "))
				for _, l := range lines[1:] {
					fmt.Fprintf(&b, "     %s\n", strings.TrimSpace(l))
				}
			}
		}
	}
	return b.String()
}
