package report

import (
	"io"

	"github.com/blis-train/blis-train/report/draw"
	"github.com/blis-train/blis-train/report/figures"
	"github.com/blis-train/blis-train/report/input"
	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/sections"
	"github.com/blis-train/blis-train/report/verdict"
)

// Input is what the report shows. Any pointer may be nil.
type Input = input.Input

// Render writes the report as one HTML file. The same Input gives the same
// bytes. The error is w's, or a template's.
func Render(w io.Writer, in Input) error {
	figs := figures.New(in)
	all := []page.Section{verdict.Section(in, figs.All())}
	if in.Changes != nil {
		all = append(all, verdict.ChangesSection(in))
	}
	return page.Write(w, verdict.Head(in), append(all,
		sections.Data(in, figs.Data),
		sections.TargetAudit(in, figs.Audit),
		sections.Coefficients(in, figs.Coeff),
		sections.Accuracy(in, figs.Fit),
		sections.Replay(in, figs.Replay),
		sections.Provenance(in),
		sections.Glossary()))
}

// Figures hands every figure that the Input can fill to write, as <id>.svg, in the
// order of the page. It stops at write's first error.
func Figures(write func(name string, data []byte) error, in Input) error {
	for _, f := range figures.New(in).All() {
		if err := write(f.ID+".svg", draw.SVG(f.Sheet(), f.Title)); err != nil {
			return err
		}
	}
	return nil
}
