package report

// figureSet holds every figure of a page by section, in reading order.
type figureSet struct {
	data, audit, coeff, fit, replay []*figure
}

func newFigureSet(in Input) figureSet {
	return figureSet{
		data:   keep(coverageFigure(in), loadFigure(in)),
		audit:  keep(targetFigure(in), pickupFigure(in), lagFigure(in)),
		coeff:  keep(utilisationFigure(in), surfaceFigure(in)),
		fit:    fitFigures(in),
		replay: keep(ecdfFigure(in), qqFigure(in), driftFigure(in)),
	}
}

// keep drops figures without panels.
func keep(fs ...*figure) []*figure {
	var out []*figure
	for _, f := range fs {
		if f != nil && len(f.panels) > 0 {
			out = append(out, f)
		}
	}
	return out
}

func (s figureSet) all() []*figure {
	var out []*figure
	for _, fs := range [][]*figure{s.data, s.audit, s.coeff, s.fit, s.replay} {
		out = append(out, fs...)
	}
	return out
}

func figureBlocks(fs []*figure) []block {
	var out []block
	for _, f := range fs {
		out = append(out, block{Figure: f.view()})
	}
	return out
}
