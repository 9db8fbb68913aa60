// Package report renders what the stages found as one self-contained HTML file
// that a performance engineer can act on, and each of its figures as SVG and
// PNG. The page opens from disk, asks the network for nothing (a content
// security policy in the file forbids it), prints well, follows the reader's
// light or dark preference and stays readable on a phone.
//
// The steps, each in its own files:
//
//	Input            pointers to the result structs of the stages; a nil one becomes a sentence
//	                 that says which command would fill the section
//	sections (sec*)  result structs -> section: tables, figures, findings, words
//	charts (fig*)    result structs -> figure: panels of marks in pixels
//	drawing          marks -> inline SVG (colours by CSS class, so both schemes work),
//	                 standalone SVG
//	page             sections -> HTML through html/template, which escapes every
//	                 string that came out of a recording
//
// The package does no arithmetic of its own beyond scaling to pixels, sorting and
// counting what it shows: every number on the page stands in a result struct.
// It refuses nothing and hides nothing silently: a table or a set of panels
// that would make the file too large is cut, worst rows first, and the line
// below says how many rows were left out and which JSON file holds them.
//
// The same Input gives the same bytes. The package reads no clock, no
// environment and no file.
package report

import (
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/result"
)

// Input is what the report shows. Any pointer may be nil: its section then says
// what is missing and which command makes it.
type Input struct {
	Extract    *result.Extract
	Fit        *result.Fit
	Validation *result.Validation
	Inspect    *result.Inspect
	Changes    *result.Changes // since an older validation; nil: there is nothing to compare with
}

// Render writes the report as one HTML file. The same Input gives the same
// bytes. The error is w's, or a template's.
func Render(w io.Writer, in Input) error {
	return Write(w, head(in), sections(in, New(in)))
}

// Sections are those of the page without its figures: what a terminal can show of them.
func Sections(in Input) []Section { return sections(in, set{}) }

func sections(in Input, figs set) []Section {
	all := []Section{section(in, figs)}
	if in.Changes != nil {
		all = append(all, changesSection(in))
	}
	return append(all,
		data(in, figs.Data),
		targetAudit(in, figs.Audit),
		coefficients(in, figs.Coeff),
		accuracy(in, figs.Fit),
		replay(in, figs.Replay),
		provenance(in),
		glossary())
}

// Figures hands every figure that the Input can fill to write, as <id>.svg, in the
// order of the page. It stops at write's first error.
func Figures(write func(name string, data []byte) error, in Input) error {
	for _, f := range New(in).All() {
		if err := write(f.ID+".svg", f.SVG()); err != nil {
			return err
		}
	}
	return nil
}

// SVG is the figure as a file of its own.
func (f *Figure) SVG() []byte { return svg(f.Sheet(), f.Title) }

// set holds every figure of a page by section, in reading order.
type set struct {
	First, Data, Audit, Coeff, Fit, Replay []*Figure
}

func New(in Input) set {
	return set{
		First:  keep(ecdfFigure(in, "ecdf"), levelFigure(in.Fit)),
		Data:   keep(coverageFigure(in), loadFigure(in)),
		Audit:  keep(targetFigure(in), pickupFigure(in), lagFigure(in)),
		Coeff:  keep(utilisationFigure(in), surfaceFigure(in)),
		Fit:    fitFigures(in),
		Replay: keep(ecdfFigure(in, "ecdf-more"), qqFigure(in), driftFigure(in)),
	}
}

func (s set) All() []*Figure {
	return slices.Concat(s.First, s.Data, s.Audit, s.Coeff, s.Fit, s.Replay)
}

//go:embed words.yaml
var wordsYAML []byte

// wording is what the page says beside numbers: words.yaml.
type wording struct {
	Columns  map[string]columns `yaml:"columns"` // that several tables share
	Tables   map[string]Table   `yaml:"tables"`
	Figures  map[string]Figure  `yaml:"figures"`
	Gates    map[string]Meaning `yaml:"gates"`
	Reasons  map[string]Meaning `yaml:"reasons"` // of a failed gate, and others
	Purposes map[string]string  `yaml:"purposes"`
	Glossary []struct{ Word, Meaning string }
}

// Meaning says in plain words what a gate compares or a cause is and, for somebody who
// simulates with the coefficients, what it means and what to do. Of names the package that prints it, or is empty.
type Meaning struct{ Of, What, Means, Do string }

// Failing is the sentence under a gate that failed.
func (m Meaning) Failing() string { return m.Means + "; " + m.Do }

// Gates are those of every gate, by name.
func Gates() map[string]Meaning { return words().Gates }

// SaidReasons are those of causes of a diagnosis and of every other word that is printed as a reason, by name.
func SaidReasons() map[string]Meaning { return words().Reasons }

var words = files.Embedded[wording](wordsYAML, "words.yaml")

// tableOf is the table of that name without rows. One that is made for each of several things says of which.
func tableOf(name string, of ...string) *Table {
	t, known := words().Tables[name]
	if !known {
		panic("report: words.yaml has no table " + name)
	}
	t.ID, t.Cols = name, slices.Clone(t.Cols)
	if len(of) > 0 {
		t.ID, t.Caption = name+"-"+slug(of[0]), fmt.Sprintf(t.Caption, of[0])
	}
	return &t
}

// figureOf is the figure of that name without panels.
func figureOf(name string) *Figure {
	f, known := words().Figures[name]
	if !known {
		panic("report: words.yaml has no figure " + name)
	}
	f.ID, f.Legend = name, slices.Clone(f.Legend)
	return &f
}

// columns are written as one line each, "# Spread [ms] ? P95 - P5 of the offset": # for numbers, the unit in brackets,
// help behind the question mark. A list in the list is taken apart.
type columns []Column

// UnmarshalYAML reads them.
func (l *columns) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode {
			if err := l.UnmarshalYAML(item); err != nil {
				return err
			}
			continue
		}
		*l = append(*l, columnOf(item.Value))
	}
	return nil
}

func columnOf(text string) (c Column) {
	text, c.Help, _ = strings.Cut(text, " ? ")
	text, c.Unit, _ = strings.Cut(strings.TrimSuffix(text, "]"), " [")
	c.Head, c.Num = strings.CutPrefix(text, "# ")
	return c
}

// UnmarshalText reads a key of a legend, "prefill dashed waiting": paint, shape (area, line or dashed), text.
func (k *Key) UnmarshalText(text []byte) error {
	paint, rest, _ := strings.Cut(string(text), " ")
	shape, words, _ := strings.Cut(rest, " ")
	i := slices.IndexFunc(*paints(), func(p paintValue) bool { return p.Name == paint })
	if i < 0 {
		return fmt.Errorf("legend: got paint %q", paint)
	}
	*k = Key{P: Paint(i), Area: shape == "area", Text: words}
	if shape == "dashed" {
		k.Dash = Dashed
	}
	return nil
}
