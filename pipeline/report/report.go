package report

import "io"

// Input is what the report shows. Any pointer may be nil.
type Input = InputInput

// Render writes the report as one HTML file. The same Input gives the same
// bytes. The error is w's, or a template's.
func Render(w io.Writer, in Input) error {
	figs := New(in)
	all := []PageSection{Section(in, figs.All())}
	if in.Changes != nil {
		all = append(all, ChangesSection(in))
	}
	return Write(w, Head(in), append(all,
		Data(in, figs.Data),
		TargetAudit(in, figs.Audit),
		Coefficients(in, figs.Coeff),
		Accuracy(in, figs.Fit),
		Replay(in, figs.Replay),
		Provenance(in),
		Glossary()))
}

// Figures hands every figure that the Input can fill to write, as <id>.svg, in the
// order of the page. It stops at write's first error.
func Figures(write func(name string, data []byte) error, in Input) error {
	for _, f := range New(in).All() {
		if err := write(f.ID+".svg", SVG(f.Sheet(), f.Title)); err != nil {
			return err
		}
	}
	return nil
}
