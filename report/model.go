package report

// This file has the parts of a page, which page.html shows: sections, blocks, tables and cells.
// Strings are plain text, which the template escapes. The exceptions are template.HTML: what inline,
// proseHTML and Cell.HTML return, and the drawings in Cell.Mini. Fields called Class are CSS classes of
// style.css. Those of cells: n is a number, set flush right; ok, ko and na colour a verdict as good, bad or
// neither; dim is grey; nb does not wrap, w may wrap; id is a name, mono a place in a file.

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Head is the top of the page.
type Head struct {
	Class    string // of the badge: pass, fail, insufficient or none
	Badge    string // the verdict in capitals
	Kicker   string // line above the sentence
	Sentence string
	Lines    []UseLine // what each configuration can be used for
	Failed   []string  // sentences on failed or undecided gates
	Next     []string  // what to do about it
	Facts    []Fact
}

// IdentitiesTable is the ID of the table with every comparison between streams.
const IdentitiesTable = "identities"

// Section is one section of the page.
type Section struct {
	ID      string // anchor
	Nav     string // its name in the page's navigation
	Title   string
	Lead    string // sentence under the title
	Missing string // why the section is empty and which command fills it
	Blocks  []Block
}

// Block is one part of a section; exactly one field is set.
type Block struct {
	Heading  string
	Text     string
	Code     []string // lines
	Facts    []Fact
	Cards    []card
	List     []string
	Causes   []cause
	Findings []findingGroup
	Table    *Table
	Figure   *Figure
	Fold     *fold
}

// fold is a part of the page that is closed until a reader opens it; it is closed on paper too.
type fold struct {
	Title  string
	Blocks []Block
}

// folded returns blocks in a closed part of the page with this title; nil without blocks.
func folded(title string, bs ...[]Block) []Block {
	all := slices.Concat(bs...)
	if len(all) == 0 {
		return nil
	}
	return []Block{{Fold: &fold{Title: title, Blocks: all}}}
}

// Fact is a name and its value in a definition list.
type Fact struct{ Name, Value string }

// FactOf returns a Fact.
func FactOf(name, value string) Fact { return Fact{name, value} }

// card is one large number with its unit and what it is compared with.
type card struct {
	Name, Value, Sub string
	Class            string // good | bad | warn | ""
}

// cause is one diagnosis: why gates failed, and the figure that shows it.
type cause struct {
	Label       string // the cause in a few words
	Scope       string
	Sentence    string
	Gates       string // that it explains
	Anchor      string // ID of the figure
	FigureTitle string
}

// findingGroup is all findings of one code.
type findingGroup struct {
	Code     string
	Count    int      // of the findings
	Messages []string // the first different messages, at most maxMessages
	More     int      // number of findings with other messages
}

// Table is a table of the page, sortable by every column.
type Table struct {
	ID      string // anchor
	Caption string
	Note    string // what to look for, below the table
	Cols    []Column
	Rows    []Row
	More    string // line below the table: how many rows are not shown, and where they are
	Closed  bool   // shown folded
	Total   int    // number of rows including those that Grow did not keep; 0: those in Rows
}

// Column is the heading of a column with its unit and a tooltip.
type Column struct {
	Head, Unit, Help string
	Num              bool // of numbers, which are set flush right
}

// Row is one row of a table with its style.
type Row struct {
	Class string
	Cells []Cell
}

// Cell is one cell of a table: Text, with Sub on a second line. The column sorts by Key, or by Text
// if Key is empty.
type Cell struct {
	Text, Sub, Key, Class string
	Href                  string        // where Text leads
	Mini                  template.HTML // small drawing before Text, such as the bar of an interval
}

// HTML returns the text, escaped. A name may be broken after its underscores, and nowhere else if it
// fits, so that no word is cut in print.
func (c Cell) HTML() template.HTML {
	text := template.HTMLEscapeString(c.Text)
	if c.Class == "id" {
		text = strings.ReplaceAll(text, "_", "_<wbr>")
	}
	return template.HTML(text)
}

// FigureBlocks returns the figures that have panels as blocks.
func FigureBlocks(fs []*Figure) []Block {
	var blocks []Block
	for _, f := range withPanels(fs...) {
		blocks = append(blocks, Block{Figure: f})
	}
	return blocks
}

// Largest numbers of findings that are shown.
const (
	maxCodes    = 40
	maxMessages = 5 // of a code
)

// groupFindings groups findings by code, in the order in which the codes first appear, and returns the
// first maxCodes groups.
func groupFindings(lists ...[]trace.Finding) []findingGroup {
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

// FindingBlocks returns findings grouped by code, folded under a title with the number of all of them;
// nil without any.
func FindingBlocks(title string, lists ...[]trace.Finding) []Block {
	gs := groupFindings(lists...)
	if len(gs) == 0 {
		return nil
	}
	n := 0
	for _, findings := range lists {
		n += len(findings)
	}
	return folded(fmt.Sprintf("%s (%d)", title, n), []Block{{Findings: gs}})
}
