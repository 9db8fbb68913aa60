package report

import "html/template"

// The types below are what page.html shows. Strings are plain text; the
// template escapes them. template.HTML is only ever made of what inlineSVG
// and prose return.

type section struct {
	ID, Nav, Title, Lead string
	Missing              string // why the section is empty and which command fills it
	Blocks               []block
}

// block is one thing in a section; exactly one field is set.
type block struct {
	Heading  string
	Text     string
	Code     string
	Facts    []fact
	Cards    []card
	List     []string
	Causes   []cause
	Findings []findingGroup
	Table    *table
	Figure   *figureView
}

// fact is a name and its value in a definition list.
type fact struct{ Name, Value string }

// card is one large number with its unit and what it is compared with.
type card struct {
	Name, Value, Sub string
	Class            string // good | bad | warn | ""
}

// cause is one diagnosis: why gates failed, and the figure that shows it.
type cause struct{ Label, Scope, Sentence, Gates, Anchor, FigureTitle string }

// findingGroup is every finding of one code.
type findingGroup struct {
	Code     string
	Count    int
	Messages []string
	More     int
}

// table is sortable by every column.
type table struct {
	ID, Caption, Note string
	Cols              []column
	Rows              []row
	More              string
	Closed            bool // shown folded
	total             int  // rows there are, when grow left some out
}

type column struct {
	Head, Unit, Help string
	Num              bool
}

type row struct {
	Class string
	Cells []cell
}

// cell is shown as Text, sorted by Key when it is not empty, else by Text.
type cell struct {
	Text, Sub, Key, Class string
	Href                  string // where Text leads
	Mini                  template.HTML
}

// figureView is a figure as the page shows it.
type figureView struct {
	ID, Title, Note, More string
	Wide, Closed          bool
	Panels                []template.HTML
	Legend                []keyView
}

type keyView struct {
	Mini template.HTML
	Text string
}

func (f *figure) view() *figureView {
	v := &figureView{ID: f.id, Title: f.title, Note: f.note, More: f.more, Wide: f.wide(), Closed: f.closed}
	for _, p := range f.panels {
		html := inlineSVG(p.d, p.desc)
		if p.narrow != nil {
			html = `<div class="wd">` + html + `</div><div class="nr">` + inlineSVG(p.narrow, p.desc) + `</div>`
		}
		v.Panels = append(v.Panels, template.HTML(html))
	}
	for _, k := range f.legend {
		v.Legend = append(v.Legend, keyView{template.HTML(k.svg()), k.text})
	}
	return v
}

func (k key) svg() string {
	d := drawing{w: 22, h: 10}
	if k.area {
		d.rect(point{0, 1}, point{22, 9}, k.p, 0, "")
	} else {
		d.seg(point{0, 5}, point{22, 5}, k.p, 2, k.dash)
	}
	return inlineSVG(&d, k.text)
}
