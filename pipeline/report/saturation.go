package report

import (
	"strings"

	"github.com/blis-train/blis-train/result"
)

// saturationTable has one column per check, named by the first run.
func saturationTable(i *result.Inspect) *Table {
	t := &Table{ID: "saturation", Caption: "Saturation checks",
		Note: "A value over its threshold is marked. Two or more marks: the run is saturated and left out of the fit.",
		Cols: []Column{{Head: "Run"}, {Head: "Saturated"}}}
	var names []string
	for _, r := range i.Runs {
		for _, c := range r.Saturation {
			if len(AppendNew(names, c.Name)) > len(names) {
				names = append(names, c.Name)
				t.Cols = append(t.Cols, Column{Head: strings.ReplaceAll(c.Name, "_", " "), Unit: "≤ " + Short(c.Threshold), Help: c.Doc,
					Num: true})
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	for _, r := range i.Runs {
		verdict := Cell{Text: "no", Class: "dim"}
		if r.Saturated {
			verdict = Cell{Text: "yes", Class: "ko"}
		}
		cells := []Cell{Name(r.ID), verdict}
		for _, n := range names {
			cells = append(cells, saturationCell(r.Saturation, n))
		}
		t.Rows = append(t.Rows, Row{Cells: cells})
	}
	return Capped(t, "in the order of the file", "inspect.json, runs")
}

func saturationCell(checks []result.SaturationCheck, name string) Cell {
	for _, c := range checks {
		if c.Name == name {
			out := Number(c.Value)
			if c.Hit {
				out.Class, out.Text = "n ko", "▲ "+out.Text
			}
			return out
		}
	}
	return Number(nil)
}
