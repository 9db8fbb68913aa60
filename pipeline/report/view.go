package report

import (
	"html/template"
	"slices"
)

// Head is the answer at the top of the page.
type PageHead struct {
	Class, Badge, Kicker, Sentence string
	Lines                          []use
	Failed                         []string
	Next                           []string // what to do about it
	Facts                          []Fact
}

// use says what one configuration's coefficients are good for: up to where, and how well.
type use struct{ Class, Scope, Uses, Region, Error string }

// The types below are what page.html shows. Strings are plain text; the
// template escapes them. template.HTML is only ever made of what Inline
// and prose return.

type PageSection struct {
	ID, Nav, Title, Lead string
	Missing              string // why the section is empty and which command fills it
	Blocks               []Block
}

// Block is one thing in a section; exactly one field is set.
type Block struct {
	Heading  string
	Text     string
	Code     string
	Facts    []Fact
	Cards    []card
	List     []string
	Causes   []cause
	Findings []findingGroup
	Table    *Table
	Figure   *figureView
	Fold     *fold
}

// fold is what experts open: closed on the page, and on paper.
type fold struct {
	Title  string
	Blocks []Block
}

// folded puts blocks, when there are any, behind a line.
func folded(title string, bs ...[]Block) []Block {
	all := slices.Concat(bs...)
	if len(all) == 0 {
		return nil
	}
	return []Block{{Fold: &fold{Title: title, Blocks: all}}}
}

// Fact is a name and its value in a definition list.
type Fact struct{ Name, Value string }

// FactOf is a fact.
func FactOf(name, value string) Fact { return Fact{name, value} }

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

// page is the whole document.
type page struct {
	Title    string
	Policy   string
	Style    template.CSS
	Script   template.JS
	Head     PageHead
	Sections []PageSection
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

// Table is sortable by every column.
type Table struct {
	ID, Caption, Note string
	Cols              []Column
	Rows              []Row
	More              string
	Closed            bool // shown folded
	Total             int  // rows there are, when grow left some out
}

type Column struct {
	Head, Unit, Help string
	Num              bool
}

type Row struct {
	Class string
	Cells []Cell
}

// Cell is shown as Text, sorted by Key when it is not empty, else by Text.
type Cell struct {
	Text, Sub, Key, Class string
	Href                  string // where Text leads
	Mini                  template.HTML
}
