package report

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
