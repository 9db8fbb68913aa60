package report

import "strings"

// NewTable is a table with these headings.
func NewTable(caption string, heads ...string) *Table {
	t := &Table{Caption: caption}
	for _, h := range heads {
		t.Cols = append(t.Cols, Column{Head: h})
	}
	return t
}

// Add appends a row of plain cells.
func (t *Table) Add(cells ...string) {
	var r Row
	for _, c := range cells {
		r.Cells = append(r.Cells, Plain(c))
	}
	t.Rows = append(t.Rows, r)
}

// Markdown is the table in GitHub's form. Cells are Markdown: escape escapes what stands in
// them, nil where they may hold marks.
func (t *Table) Markdown(escape func(string) string) string {
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
