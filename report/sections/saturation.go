package sections

import (
	"strings"

	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
)

// saturationTable has one column per check, named by the first run.
func saturationTable(i *result.Inspect) *page.Table {
	t := &page.Table{ID: "saturation", Caption: "Saturation checks",
		Note: "A value over its threshold is marked. Two or more marks: the run is saturated and left out of the fit.",
		Cols: []page.Column{{Head: "Run"}, {Head: "Saturated"}}}
	var names []string
	for _, r := range i.Runs {
		for _, c := range r.Saturation {
			if len(words.AppendNew(names, c.Name)) > len(names) {
				names = append(names, c.Name)
				t.Cols = append(t.Cols, page.Column{Head: strings.ReplaceAll(c.Name, "_", " "), Unit: "≤ " + words.Short(c.Threshold), Help: c.Doc,
					Num: true})
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	for _, r := range i.Runs {
		verdict := page.Cell{Text: "no", Class: "dim"}
		if r.Saturated {
			verdict = page.Cell{Text: "yes", Class: "ko"}
		}
		cells := []page.Cell{page.Name(r.ID), verdict}
		for _, n := range names {
			cells = append(cells, saturationCell(r.Saturation, n))
		}
		t.Rows = append(t.Rows, page.Row{Cells: cells})
	}
	return page.Capped(t, "in the order of the file", "inspect.json, runs")
}

func saturationCell(checks []result.SaturationCheck, name string) page.Cell {
	for _, c := range checks {
		if c.Name == name {
			out := page.Number(c.Value)
			if c.Hit {
				out.Class, out.Text = "n ko", "▲ "+out.Text
			}
			return out
		}
	}
	return page.Number(nil)
}
