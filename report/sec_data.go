package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func dataSection(in Input, figs []*figure) section {
	s := section{ID: "data", Nav: "Data", Title: "Data quality",
		Lead: "What was recorded, what was lost, and which runs are fit to learn from. Nothing below is worth more than this section."}
	if in.Inspect == nil && in.Fit == nil && in.Extract == nil {
		s.Missing = "No inspect.json, extract.json or fit.json: run `blis-train inspect OUT -o OUT` for the data-quality report."
		return s
	}
	if in.Inspect == nil {
		s.Missing = "No inspect.json: run `blis-train inspect OUT -o OUT` for losses, clocks, saturation and coverage. What the other stages saw of the data follows."
	} else {
		s.Blocks = append(s.Blocks, unfitBlocks(in.Inspect)...)
		s.Blocks = append(s.Blocks, tables(inspectTable(in.Inspect))...)
		s.Blocks = append(s.Blocks, tables(saturationTable(in.Inspect))...)
		s.Blocks = append(s.Blocks, tables(clockTable(in.Inspect))...)
	}
	if in.Extract != nil {
		s.Blocks = append(s.Blocks, recordBlocks(in.Extract)...)
	}
	s.Blocks = append(s.Blocks, figureBlocks(figs)...)
	if in.Fit != nil {
		s.Blocks = append(s.Blocks, tables(fitRunTable(in.Fit))...)
		s.Blocks = append(s.Blocks, tables(rowTable(in.Fit))...)
	}
	s.Blocks = append(s.Blocks, findingBlocks("Findings about the data", dataFindings(in)...)...)
	return s
}

func dataFindings(in Input) [][]trace.Finding {
	var lists [][]trace.Finding
	if in.Inspect != nil {
		lists = append(lists, in.Inspect.Warnings)
		for _, r := range in.Inspect.Runs {
			lists = append(lists, ofRun(r.ID, r.Findings))
		}
	}
	if in.Extract != nil {
		for _, r := range in.Extract.Runs {
			lists = append(lists, ofRun(r.ID, r.Warnings))
		}
	}
	if in.Fit != nil {
		for _, r := range in.Fit.Runs {
			lists = append(lists, ofRun(r.ID, r.Findings))
		}
	}
	return lists
}

// ofRun names the run in findings that do not.
func ofRun(id string, findings []trace.Finding) []trace.Finding {
	out := slices.Clone(findings)
	for i := range out {
		if !strings.Contains(out[i].Message, id) {
			out[i].Message = id + ": " + out[i].Message
		}
	}
	return out
}

func unfitBlocks(i *result.Inspect) []block {
	var lines []string
	for _, r := range i.Runs {
		if r.Unfit {
			lines = append(lines, r.ID+": "+r.Reason)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return []block{{Heading: "Runs unfit for a fit"}, {List: firstOf(lines, 30, "inspect.json")}}
}

func inspectTable(i *result.Inspect) *table {
	t := &table{
		ID: "runs", Caption: "Runs",
		Cols: []column{
			{Head: "Run"}, {Head: "Verdict"}, {Head: "Model, hardware, TP"},
			{Head: "Span", Unit: "s", Num: true}, {Head: "Requests", Num: true}, {Head: "Failed", Num: true}, {Head: "Aborted", Num: true},
			{Head: "No API span", Num: true, Help: "core spans without an API span"}, {Head: "No core span", Num: true, Help: "API spans without a core span"},
			{Head: "Preempted", Num: true},
			{Head: "Steps recorded", Num: true, Help: "share of the step ids between the first and the last that were recorded"},
			{Head: "Steps known", Num: true, Help: "share of recorded steps whose batch is known from snapshots or could be rebuilt"},
			{Head: "Contradictions", Num: true, Help: "rebuilt batches that disagree with the step's own summary"},
			{Head: "Span events lost", Num: true}, {Head: "Records dropped", Num: true},
		},
	}
	for _, r := range i.Runs {
		verdict := cell{Text: "fit", Class: "ok nb"}
		switch {
		case r.Unfit:
			verdict = cell{Text: "unfit", Class: "ko nb"}
		case r.Saturated:
			verdict = cell{Text: "saturated", Class: "na nb"}
		}
		dropped := cell{Text: unknown, Class: "n dim"}
		if r.Losses.RecordsDropped != nil {
			dropped = zeroDim(*r.Losses.RecordsDropped)
		}
		t.Rows = append(t.Rows, row{Cells: []cell{
			name(r.ID), verdict, name(fmt.Sprintf("%s · %s · tp%d", r.Model, r.Hardware, r.TP)),
			number(r.SpanS), count(r.Requests.Total), zeroDim(r.Requests.Failed), zeroDim(r.Requests.Aborted),
			zeroDim(r.Requests.APIUnlinked), zeroDim(r.Requests.CoreMissing), zeroDim(r.Requests.Preempted),
			percent(r.Losses.RecordedStepShare), percent(r.Steps.KnownShare), zeroDim(r.Steps.Contradictions),
			zeroDim(r.Losses.DroppedSpanEvents), dropped,
		}})
	}
	return capped(t, "in the order of the file", "inspect.json, runs")
}

// saturationTable has one column per check, named by the first run.
func saturationTable(i *result.Inspect) *table {
	t := &table{ID: "saturation", Caption: "Saturation checks",
		Note: "A value over its threshold is marked. Two or more marks: the run is saturated and left out of the fit.",
		Cols: []column{{Head: "Run"}, {Head: "Saturated"}}}
	var names []string
	for _, r := range i.Runs {
		for _, c := range r.Saturation {
			if len(appendNew(names, c.Name)) > len(names) {
				names = append(names, c.Name)
				t.Cols = append(t.Cols, column{Head: strings.ReplaceAll(c.Name, "_", " "), Unit: "≤ " + short(c.Threshold), Help: c.Doc, Num: true})
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	for _, r := range i.Runs {
		verdict := cell{Text: "no", Class: "dim"}
		if r.Saturated {
			verdict = cell{Text: "yes", Class: "ko"}
		}
		cells := []cell{name(r.ID), verdict}
		for _, n := range names {
			cells = append(cells, saturationCell(r.Saturation, n))
		}
		t.Rows = append(t.Rows, row{Cells: cells})
	}
	return capped(t, "in the order of the file", "inspect.json, runs")
}

func saturationCell(checks []result.SaturationCheck, name string) cell {
	for _, c := range checks {
		if c.Name == name {
			out := number(c.Value)
			if c.Hit {
				out.Class, out.Text = "n ko", "▲ "+out.Text
			}
			return out
		}
	}
	return number(nil)
}

func clockTable(i *result.Inspect) *table {
	t := &table{ID: "clocks", Caption: "Clocks and engines", Closed: true,
		Cols: []column{{Head: "Run"}, {Head: "Engines", Num: true}, {Head: "Wall − monotonic", Unit: "s", Num: true},
			{Head: "Spread", Unit: "ms", Num: true, Help: "P95 − P5 of the offset"}, {Head: "Negative intervals", Num: true},
			{Head: "Steps missing", Num: true}, {Head: "Adjacent", Num: true, Help: "recorded steps whose successor is recorded too"}, {Head: "Orphan snapshots", Num: true}}}
	for _, r := range i.Runs {
		t.Rows = append(t.Rows, row{Cells: []cell{
			name(r.ID), count(r.Clocks.Engines), number(r.Clocks.OffsetS), number(r.Clocks.OffsetSpreadMs), zeroDim(r.Clocks.NegativeIntervals),
			zeroDim(r.Losses.MissingSteps), percent(r.Losses.AdjacentShare), zeroDim(r.Losses.OrphanSnapshots),
		}})
	}
	return capped(t, "in the order of the file", "inspect.json, runs")
}

// fitRunTable says which runs the fit used and why not the others.
func fitRunTable(f *result.Fit) *table {
	t := &table{ID: "fit-runs", Caption: "What the fit used",
		Cols: []column{{Head: "Run"}, {Head: "Used"}, {Head: "Rows read", Num: true}, {Head: "Kept", Num: true}, {Head: "Dropped, by reason"}, {Head: "Configuration"}, {Head: "Steps recorded", Num: true}, {Head: "Known", Num: true},
			{Head: "From snapshots", Num: true}, {Head: "Rebuilt", Num: true}, {Head: "Contradictions", Num: true}}}
	byRun := map[string]result.RunRows{}
	for _, r := range f.Beta.Rows.ByRun {
		byRun[r.Run] = r
	}
	labels := configLabels(f)
	for _, r := range f.Runs {
		used := cell{Text: "yes", Class: "ok"}
		if !r.Used {
			used = cell{Text: "no", Class: "na w", Sub: r.Reason}
		}
		rows := byRun[r.ID]
		t.Rows = append(t.Rows, row{Cells: []cell{
			name(r.ID), used, count(rows.Read), count(rows.Kept), words(reasons(rows.Dropped)), name(label(labels, r.Config)), count(r.Steps.Recorded), percent(r.Steps.KnownShare),
			zeroDim(r.Steps.FromSnapshots), zeroDim(r.Steps.Reconstructed), zeroDim(r.Steps.Contradictions),
		}})
	}
	return capped(t, "in the order of the file", "fit.json, runs")
}

// rowTable accounts for the rows of every model: read = kept + dropped.
func rowTable(f *result.Fit) *table {
	t := &table{ID: "rows", Caption: "Rows: read = kept + dropped",
		Cols: []column{{Head: "Model"}, {Head: "Read", Num: true}, {Head: "Kept", Num: true}, {Head: "of these held out", Num: true}, {Head: "Dropped, by reason"}}}
	add := func(m result.Model) {
		t.Rows = append(t.Rows, row{Cells: []cell{
			name(m.Name), count(m.Rows.Read), count(m.Rows.Kept), count(m.Rows.Holdout), words(reasons(m.Rows.Dropped))}})
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
