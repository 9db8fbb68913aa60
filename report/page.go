package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"html/template"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed style.css
	styleCSS string
	//go:embed page.js
	pageJS string
)

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"prose": prose}).Parse(pageHTML))

// prose escapes a sentence and sets what stands between backticks as code.
func prose(s string) template.HTML {
	parts := strings.Split(html.EscapeString(s), "`")
	if len(parts)%2 == 0 {
		return template.HTML(strings.Join(parts, "`"))
	}
	var b strings.Builder
	for i, p := range parts {
		if i%2 == 1 {
			p = "<code>" + p + "</code>"
		}
		b.WriteString(p)
	}
	return template.HTML(b.String())
}

// Write executes the template. The error is w's, or the template's.
func Write(w io.Writer, h Head, sections []Section) error {
	style := sheetCSS()
	p := page{
		Title:    "blis-train report",
		Policy:   policy(style, pageJS),
		Style:    template.CSS(style),
		Script:   template.JS(pageJS),
		Head:     h,
		Sections: sections,
	}
	p.limit()
	return pageTemplate.Execute(w, p)
}

// Page is the sections that have something, and the page of them as one HTML file.
func Page(h Head, sections []Section) ([]byte, []Section, error) {
	sections = slices.DeleteFunc(sections, func(x Section) bool { return len(x.Blocks) == 0 && x.Missing == "" })
	var b bytes.Buffer
	err := Write(&b, h, sections)
	return b.Bytes(), sections, err
}

// sheetCSS is the style sheet with the colours of both schemes.
func sheetCSS() string {
	light, dark := cssVars(false), cssVars(true)
	return ":root{color-scheme:light;" + light + "}\n" + "@media (prefers-color-scheme:dark){:root{color-scheme:dark;" + dark + "}}\n" +
		":root[data-theme=light]{color-scheme:light;" + light + "}\n" +
		":root[data-theme=dark]{color-scheme:dark;" + dark + "}\n" +
		"@media print{:root,:root[data-theme]{color-scheme:light;" + light + "}}\n" +
		cssMarks() + styleCSS
}

// policy allows this file's own style and script, by hash, and nothing else:
// no network, no other code, whatever a recording may have put into a string.
func policy(style, script string) string {
	return "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; style-src '" +
		digest(style) + "'; script-src '" + digest(script) + "'"
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Head is the answer at the top of the page.
type Head struct {
	Class, Badge, Kicker, Sentence string
	Lines                          []line
	Failed                         []string
	Next                           []string // what to do about it
	Facts                          []Fact
}

// The types below are what page.html shows. Strings are plain text; the
// template escapes them. template.HTML is only ever made of what inlineSVG
// and prose return.

// Section is one section of the page.
type Section struct {
	ID, Nav, Title, Lead string
	Missing              string // why the section is empty and which command fills it
	Blocks               []Block
}

// Block is one thing in a section; exactly one field is set.
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
	Head     Head
	Sections []Section
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

// limit cuts and cleans every string of the page, as any may have come from a recording. The
// lines of code stay lines; text inside figures is limited where it is written.
func (p *page) limit() { limitStrings(reflect.ValueOf(p).Elem()) }

func limitStrings(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.CanSet() && v.Type() == reflect.TypeFor[string]() { // not what is HTML, a style or a script already
			v.SetString(limited(v.String()))
		}
	case reflect.Slice:
		for i := range v.Len() {
			limitStrings(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			limitStrings(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			limitStrings(v.Field(i))
		}
	}
}

// maxText is the most bytes of one string on the page: enough for a
// sentence, a path or a command, not for a hostile one.
const maxText = 1200

func limited(s string) string {
	if len(s) <= maxText {
		return printable(s)
	}
	return printable(strings.ToValidUTF8(s[:maxText], "")) + "…"
}

// printable drops what XML 1.0 cannot hold and bidirectional overrides, which
// would let a run's name rewrite the words around it.
func printable(s string) string {
	out := make([]rune, 0, len(s))
	for _, r := range s {
		switch {
		case r == '\t' || r == '\n':
			out = append(out, ' ')
		case r < 0x20 || r == 0x7f || r == 0xfffe || r == 0xffff || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069):
			out = append(out, '\uFFFD')
		default:
			out = append(out, r)
		}
	}
	return string(out)
}

// FigureBlocks are the blocks of figures, none for one without panels.
func FigureBlocks(fs []*Figure) []Block {
	some := stat.Filter(fs, func(f *Figure) bool { return f != nil && len(f.Panels) > 0 })
	return stat.Map(some, func(f *Figure) Block { return Block{Figure: f} })
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

func FindingBlocks(title string, lists ...[]trace.Finding) []Block {
	gs := findings(lists...)
	if len(gs) == 0 {
		return nil
	}
	n := stat.Sum(gs, func(g findingGroup) int { return g.Count })
	return folded(fmt.Sprintf("%s (%d)", title, n), []Block{{Findings: gs}})
}
