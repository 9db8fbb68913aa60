package sections

import (
	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
)

// fitRunTable says which runs the fit used and why not the others.
func fitRunTable(f *result.Fit) *page.Table {
	t := &page.Table{ID: "fit-runs", Caption: "What the fit used",
		Cols: []page.Column{{Head: "Run"}, {Head: "Used"}, {Head: "Rows read", Num: true}, {Head: "Kept", Num: true},
			{Head: "Dropped, by reason"}, {Head: "Configuration"}, {Head: "Steps recorded", Num: true}, {Head: "Known", Num: true},
			{Head: "From snapshots", Num: true}, {Head: "Rebuilt", Num: true}, {Head: "Contradictions", Num: true}}}
	byRun := map[string]result.RunRows{}
	for _, r := range f.Beta.Rows.ByRun {
		byRun[r.Run] = r
	}
	labels := configLabels(f)
	for _, r := range f.Runs {
		used := page.Cell{Text: "yes", Class: "ok"}
		if !r.Used {
			used = page.Cell{Text: "no", Class: "na w", Sub: r.Reason}
		}
		rows := byRun[r.ID]
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{
			page.Name(r.ID), used, page.Count(rows.Read), page.Count(rows.Kept), page.Prose(words.Reasons(rows.Dropped)),
			page.Name(label(labels, r.Config)), page.Count(r.Steps.Recorded), page.Percent(r.Steps.KnownShare),
			page.ZeroDim(r.Steps.FromSnapshots), page.ZeroDim(r.Steps.Reconstructed), page.ZeroDim(r.Steps.Contradictions),
		}})
	}
	return page.Capped(t, "in the order of the file", "fit.json, runs")
}

// rowTable accounts for the rows of every model: read = kept + dropped.
func rowTable(f *result.Fit) *page.Table {
	t := &page.Table{ID: "rows", Caption: "Rows: read = kept + dropped",
		Cols: []page.Column{{Head: "Model"}, {Head: "Read", Num: true}, {Head: "Kept", Num: true}, {Head: "of these held out", Num: true},
			{Head: "Dropped, by reason"}}}
	add := func(m result.Model) {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{
			page.Name(m.Name), page.Count(m.Rows.Read), page.Count(m.Rows.Kept), page.Count(m.Rows.Holdout),
			page.Prose(words.Reasons(m.Rows.Dropped))}})
	}
	add(f.Beta)
	for _, m := range f.Alpha {
		add(m)
	}
	return t
}

func configLabels(f *result.Fit) map[string]string {
	out := map[string]string{}
	for _, c := range f.Configs {
		out[c.Key] = c.Label
	}
	return out
}

func label(labels map[string]string, key string) string {
	if l := labels[key]; l != "" {
		return l
	}
	return key
}
