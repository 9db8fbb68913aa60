package report

import "io"

// input is what the report shows. Any pointer may be nil.
type input = Input

// Render writes the report as one HTML file. The same Input gives the same
// bytes. The error is w's, or a template's.
func Render(w io.Writer, in input) error {
	figs := New(in)
	all := []PageSection{section(in, figs.All())}
	if in.Changes != nil {
		all = append(all, changesSection(in))
	}
	return Write(w, head(in), append(all,
		data(in, figs.Data),
		targetAudit(in, figs.Audit),
		coefficients(in, figs.Coeff),
		accuracy(in, figs.Fit),
		replay(in, figs.Replay),
		provenance(in),
		glossary()))
}

// Figures hands every figure that the Input can fill to write, as <id>.svg, in the
// order of the page. It stops at write's first error.
func Figures(write func(name string, data []byte) error, in input) error {
	for _, f := range New(in).All() {
		if err := write(f.ID+".svg", svg(f.Sheet(), f.Title)); err != nil {
			return err
		}
	}
	return nil
}
