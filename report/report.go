// Package report makes everything that people read of the results: the HTML report, tables on the
// terminal, the Markdown summary of a CI job, the JUnit form of the gates, figures as SVG. The documents of
// package result have codes and figures, of which sentences are made here. Only what depends on the
// recording itself, a finding, a diagnosis or a violated identity, has its sentence in the document.
//
// [Render] writes the HTML report from an [Input], the documents of the stages. A nil document becomes a
// sentence with the command that would make it. The way of a figure on the page:
//
//   - report.go lists the [Section]s in order; each has a file: verdict.go and gates.go, changes.go, data.go
//     and audit.go, coefficients.go, accuracy.go, replay.go, provenance.go, glossary.go.
//   - A section fills tables from a layout (layouts.go, table.go) and figures from a caption (captions.go).
//     Figures are panels of charts (chart.go), which draw marks in pixels (drawing.go).
//   - page.go renders sections with html/template, which escapes every string from a recording, into one
//     self-contained file: it asks the network for nothing, which a content security policy enforces,
//     prints well, follows the reader's light or dark preference and can be read on a phone.
//
// head.go makes the verdict at the top; lines.go has its lines on each configuration, next.go what to do
// next. [SummaryMarkdown] and [JUnit] show the same on CI, [Table.Terminal] on the terminal.
//
// The package computes nothing but pixels, orders and counts: every number on the page is in a result
// struct. A table or a set of panels that would make the file too large is cut, worst rows first, with a
// line that counts the rest and names the JSON file with all. The same Input gives the same bytes; the
// package reads no clock, environment or file.
package report

import (
	"io"
	"slices"

	"github.com/blis-train/blis-train/result"
)

// Input is what the report shows. Any pointer may be nil: its section then names the command that makes the
// document.
type Input struct {
	Extract    *result.Extract
	Fit        *result.Fit
	Validation *result.Validation
	Inspect    *result.Inspect
	Changes    *result.Changes // since an older validation; nil: there is nothing to compare with
	// Use is what has the judged coefficients, for a sentence that begins with "use", with file names and commands between
	// backquotes; "": coefficients.yaml beside the report.
	Use string
}

// Render writes the report as one HTML file. The error is w's, or a template's.
func Render(w io.Writer, in Input) error {
	return Write(w, headOf(in), allSections(in, newFigures(in)))
}

// Sections returns the sections of the page without figures, for the terminal.
func Sections(in Input) []Section { return allSections(in, figureSet{}) }

// allSections returns the sections in the order of the page.
func allSections(in Input, figs figureSet) []Section {
	all := []Section{verdictSection(in, figs)}
	if in.Changes != nil {
		all = append(all, changesSection(in))
	}
	return append(all,
		dataSection(in, figs.Data),
		auditSection(in, figs.Audit),
		coefficientSection(in, figs.Coeff),
		accuracySection(in, figs.Fit),
		replaySection(in, figs.Replay),
		provenanceSection(in),
		glossarySection())
}

// Figures calls write with every figure that the documents have data for, as <id>.svg, in the order
// of the page. It returns write's first error.
func Figures(write func(name string, data []byte) error, in Input) error {
	for _, f := range newFigures(in).all() {
		if err := write(f.ID+".svg", f.SVG()); err != nil {
			return err
		}
	}
	return nil
}

// SVG returns the figure as a file.
func (f *Figure) SVG() []byte { return svg(f.Sheet(), f.Title) }

// figureSet is the figures of a page by section, in the order of the page.
type figureSet struct {
	First, Data, Audit, Coeff, Fit, Replay []*Figure
}

// newFigures draws every figure for which the documents have data.
func newFigures(in Input) figureSet {
	return figureSet{
		First:  withPanels(firstECDFs(in), levelFigure(in.Fit)),
		Data:   withPanels(coverageFigure(in), loadFigure(in)),
		Audit:  withPanels(targetFigure(in), pickupFigure(in), lagFigure(in)),
		Coeff:  withPanels(utilisationFigure(in), surfaceFigure(in)),
		Fit:    fitFigures(in),
		Replay: withPanels(otherECDFs(in), qqFigure(in), driftFigure(in)),
	}
}

// all returns every figure in the order of the page.
func (s figureSet) all() []*Figure {
	return slices.Concat(s.First, s.Data, s.Audit, s.Coeff, s.Fit, s.Replay)
}
