package report

import (
	"fmt"
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
}

// Render writes the report as one HTML file. The same Input gives the same
// bytes. The error is w's, or a template's.
func Render(w io.Writer, in Input) error {
	return pageTemplate.Execute(w, newPage(in))
}

// Figures hands every figure that the Input can fill to write, as <id>.svg and
// <id>.png, in the order of the page. It stops at write's first error.
func Figures(write func(name string, data []byte) error, in Input) error {
	for _, f := range newFigureSet(in).all() {
		d := f.sheet()
		if err := write(f.id+".svg", fileSVG(d, f.title)); err != nil {
			return err
		}
		png, err := filePNG(d)
		if err != nil {
			return fmt.Errorf("draw %s.png: %w", f.id, err)
		}
		if err := write(f.id+".png", png); err != nil {
			return err
		}
	}
	return nil
}
