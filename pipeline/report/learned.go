package report

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/result"
)

// learnedBlocks say what requests or load levels decided, what they did not, and how levels came out
// that the coefficients never saw; nothing of a fit from steps.
func learnedBlocks(f *result.Fit) []Block {
	r := f.Requests
	if r == nil {
		return nil
	}
	learned, requests := 0, 0
	var tiers []string
	loads, directions := tableOf("loads"), tableOf("directions")
	for _, l := range r.Loads {
		tiers, requests = AppendNew(tiers, l.Tier), requests+l.Requests
		loads.Put(Name(l.Name), Plain(l.Tier), Count(l.Requests))
	}
	for _, d := range r.Directions {
		decides := Cell{Text: "prior", Class: "dim"}
		if d.Learned {
			learned++
			decides = Cell{Text: "data", Class: "ok"}
		}
		directions.Put(Prose(strings.Join(d.Terms, " with ")), PercentOf(d.LearnedFrac), decides, Prose(d.Needs))
	}
	facts := knownFacts(FactOf("Recorded", listOf(tiers, 3)), FactOf("Loads", fmt.Sprintf("%d, of %d requests", len(r.Loads), requests)),
		FactOf("Prior", r.Prior), FactOf("Decided", fmt.Sprintf("%d of %d directions", learned, len(r.Directions))),
		FactOf("Objective", Short(r.Objective)), FactOf("of which jitter", Short(r.NoiseFloor)))
	out := headed("Fitted to requests, without steps", append([]Block{{Facts: facts}}, Tables(directions)...))
	if t := levelTable(r.Levels); len(t.Rows) > 0 {
		out = append(out, Block{Table: t})
	}
	loads.Closed = true
	return append(out, Tables(Capped(loads, "in the order of the file", "fit.json, requests"))...)
}

// levelFigure is TTFT and TPOT of load levels, predicted against measured.
func levelFigure(f *result.Fit) *Figure {
	fig := figureOf("level-means")
	if f == nil || f.Requests == nil {
		return fig
	}
	for _, name := range []string{"TTFT", "TPOT"} {
		var s Span
		var points [][2]*float64
		for i := range f.Requests.Levels {
			l := &f.Requests.Levels[i]
			p := [2]*float64{l.TTFTMs, l.PredictedTTFTMs}
			if name == "TPOT" {
				p = [2]*float64{&l.TPOTMs, l.PredictedTPOTMs}
			}
			if p[0] != nil && p[1] != nil {
				s.Take(*p[0], *p[1])
				points = append(points, p)
			}
		}
		if len(points) == 0 {
			continue
		}
		p := NewFrame(PanelW, PanelH, name+" · mean of each level", timeAxis("real "+name, s), timeAxis("simulated "+name, s))
		p.Diagonal(1, ink, Solid)
		for _, xy := range points {
			p.Dot(p.At(*xy[0], *xy[1]), 3.5, Decode, 0, "")
		}
		fig.Panels = append(fig.Panels, Panel{D: &p.Drawing, Desc: "mean " + name + " of load levels, simulated against real"})
	}
	return fig
}

func levelTable(levels []result.LevelHoldout) *Table {
	t := tableOf("levels")
	off := func(measured, predicted *float64) Cell {
		if measured == nil || predicted == nil || *measured == 0 {
			return Percent(nil)
		}
		e := *predicted / *measured - 1
		return Cell{Text: Signed(e), Key: sortKey(e), Class: "n"}
	}
	for _, l := range levels {
		t.Put(Name(l.Name), Number(l.TTFTMs), Number(l.PredictedTTFTMs), off(l.TTFTMs, l.PredictedTTFTMs), Num(l.TPOTMs),
			Number(l.PredictedTPOTMs), off(&l.TPOTMs, l.PredictedTPOTMs))
	}
	return Capped(t, "in the order of the file", "fit.json, requests.levels")
}
