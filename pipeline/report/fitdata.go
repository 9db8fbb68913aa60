package report

import "github.com/blis-train/blis-train/result"

// fitRunTable says which runs the fit used and why not the others.
func fitRunTable(f *result.Fit) *Table {
	t := &Table{ID: "fit-runs", Caption: "What the fit used",
		Cols: []Column{{Head: "Run"}, {Head: "Used"}, {Head: "Rows read", Num: true}, {Head: "Kept", Num: true},
			{Head: "Dropped, by reason"}, {Head: "Configuration"}, {Head: "Steps recorded", Num: true}, {Head: "Known", Num: true},
			{Head: "From snapshots", Num: true}, {Head: "Rebuilt", Num: true}, {Head: "Contradictions", Num: true}}}
	byRun := map[string]result.RunRows{}
	for _, r := range f.Beta.Rows.ByRun {
		byRun[r.Run] = r
	}
	labels := configLabels(f)
	for _, r := range f.Runs {
		used := Cell{Text: "yes", Class: "ok"}
		if !r.Used {
			used = Cell{Text: "no", Class: "na w", Sub: r.Reason}
		}
		rows := byRun[r.ID]
		t.Rows = append(t.Rows, Row{Cells: []Cell{
			Name(r.ID), used, Count(rows.Read), Count(rows.Kept), Prose(Reasons(rows.Dropped)),
			Name(label(labels, r.Config)), Count(r.Steps.Recorded), Percent(r.Steps.KnownShare),
			ZeroDim(r.Steps.FromSnapshots), ZeroDim(r.Steps.Reconstructed), ZeroDim(r.Steps.Contradictions),
		}})
	}
	return Capped(t, "in the order of the file", "fit.json, runs")
}

// rowTable accounts for the rows of every model: read = kept + dropped.
func rowTable(f *result.Fit) *Table {
	t := &Table{ID: "rows", Caption: "Rows: read = kept + dropped",
		Cols: []Column{{Head: "Model"}, {Head: "Read", Num: true}, {Head: "Kept", Num: true}, {Head: "of these held out", Num: true},
			{Head: "Dropped, by reason"}}}
	add := func(m result.Model) {
		t.Rows = append(t.Rows, Row{Cells: []Cell{
			Name(m.Name), Count(m.Rows.Read), Count(m.Rows.Kept), Count(m.Rows.Holdout),
			Prose(Reasons(m.Rows.Dropped))}})
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
