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
	"io"

	"github.com/blis-train/blis-train/result"
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
	all := []Section{section(in, figs.All())}
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
		if err := write(f.ID+".svg", svg(f.Sheet(), f.Title)); err != nil {
			return err
		}
	}
	return nil
}

// set holds every figure of a page by section, in reading order.
type set struct {
	Data, Audit, Coeff, Fit, Replay []*Figure
}

func New(in Input) set {
	return set{
		Data:   keep(coverageFigure(in), loadFigure(in)),
		Audit:  keep(targetFigure(in), pickupFigure(in), lagFigure(in)),
		Coeff:  keep(utilisationFigure(in), surfaceFigure(in)),
		Fit:    fitFigures(in),
		Replay: keep(ecdfFigure(in), qqFigure(in), driftFigure(in)),
	}
}

func (s set) All() []*Figure {
	var out []*Figure
	for _, fs := range [][]*Figure{s.Data, s.Audit, s.Coeff, s.Fit, s.Replay} {
		out = append(out, fs...)
	}
	return out
}
