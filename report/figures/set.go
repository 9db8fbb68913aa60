package figures

import (
	"github.com/blis-train/blis-train/report/draw"
	"github.com/blis-train/blis-train/report/input"
)

// Set holds every figure of a page by section, in reading order.
type Set struct {
	Data, Audit, Coeff, Fit, Replay []*draw.Figure
}

func New(in input.Input) Set {
	return Set{
		Data:   keep(coverageFigure(in), loadFigure(in)),
		Audit:  keep(targetFigure(in), pickupFigure(in), lagFigure(in)),
		Coeff:  keep(utilisationFigure(in), surfaceFigure(in)),
		Fit:    fitFigures(in),
		Replay: keep(ecdfFigure(in), qqFigure(in), driftFigure(in)),
	}
}

func (s Set) All() []*draw.Figure {
	var out []*draw.Figure
	for _, fs := range [][]*draw.Figure{s.Data, s.Audit, s.Coeff, s.Fit, s.Replay} {
		out = append(out, fs...)
	}
	return out
}
