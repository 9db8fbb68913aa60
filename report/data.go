package report

// This file makes the section on the recordings. An identity is a relation that must hold between
// the streams of a recording (spans, logs, client files). A violated one fails the purposes it harms,
// leaves them undecided ("insufficient"), or is only named as a warning.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// dataSection returns the section on the recordings: what was recorded and lost, and which runs can
// be used.
func dataSection(in Input, figs []*Figure) Section {
	s := Section{ID: "data", Nav: "Data", Title: "Data quality",
		Lead: "What was recorded, what was lost, and which runs can be used."}
	if in.Inspect == nil && in.Fit == nil && in.Extract == nil {
		s.Missing = "No inspect.json, extract.json or fit.json: run `blis-train inspect OUT -o OUT` for the data-quality report."
		return s
	}
	if in.Inspect == nil {
		s.Missing = "No inspect.json: run `blis-train inspect OUT -o OUT` for losses, clocks, saturation and coverage. The tables of the " +
			"other stages follow."
	} else {
		s.Blocks = append(s.Blocks, unfitBlocks(in.Inspect)...)
		s.Blocks = append(s.Blocks, Tables(inspectTable(in.Inspect))...)
		s.Blocks = append(s.Blocks, Tables(violatedTable(in.Inspect))...)
		s.Blocks = append(s.Blocks, Tables(saturationTable(in.Inspect))...)
	}
	s.Blocks = append(s.Blocks, FigureBlocks(figs)...)
	s.Blocks = append(s.Blocks, folded("For experts: losses, clocks, records and rows, read = kept + dropped", accountTables(in))...)
	s.Blocks = append(s.Blocks, FindingBlocks("Findings about the data", dataFindings(in)...)...)
	return s
}

// accountTables returns all identities, what the runs lost and how their clocks differ, then what
// became of the records and rows: read = kept + dropped by reason.
func accountTables(in Input) []Block {
	var out []Block
	if in.Inspect != nil {
		out = append(out, Tables(identitiesTable(in.Inspect))...)
		out = append(out, Tables(lossTable(in.Inspect))...)
		out = append(out, Tables(clockTable(in.Inspect))...)
	}
	if in.Extract != nil {
		out = append(out, recordBlocks(in.Extract)...)
	}
	if in.Fit != nil {
		out = append(out, Tables(fitRunTable(in.Fit))...)
		out = append(out, Tables(rowTable(in.Fit))...)
	}
	return out
}

// dataFindings returns the findings about the recordings, one list for each source.
func dataFindings(in Input) [][]trace.Finding {
	var lists [][]trace.Finding
	if in.Inspect != nil {
		lists = append(lists, in.Inspect.Warnings)
		for _, r := range in.Inspect.Runs {
			lists = append(lists, namingRun(r.ID, r.Findings))
		}
	}
	if in.Extract != nil {
		for _, r := range in.Extract.Runs {
			lists = append(lists, namingRun(r.ID, r.Warnings))
		}
	}
	if in.Fit != nil {
		for _, r := range in.Fit.Runs {
			lists = append(lists, namingRun(r.ID, r.Findings))
		}
	}
	return lists
}

// namingRun returns the findings, with the run's name before each message that does not contain it.
func namingRun(id string, findings []trace.Finding) []trace.Finding {
	out := slices.Clone(findings)
	for i := range out {
		if !strings.Contains(out[i].Message, id) {
			out[i].Message = id + ": " + out[i].Message
		}
	}
	return out
}

// unfitBlocks returns the runs that cannot be used, with the reasons.
func unfitBlocks(i *result.Inspect) []Block {
	var lines []string
	for _, r := range i.Runs {
		if r.Unfit {
			lines = append(lines, r.ID+": "+r.Reason)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return []Block{{Heading: "Runs that cannot be used"}, {List: FirstOf(lines, 30, "inspect.json")}}
}

// inspectTable returns one row for each inspected run.
func inspectTable(i *result.Inspect) *Table {
	t := runsLayout.blank()
	for _, r := range i.Runs {
		verdict := Cell{Text: "fit", Class: "ok nb"}
		switch {
		case r.Unfit:
			verdict = Cell{Text: "unfit", Class: "ko nb"}
		case r.Saturated:
			verdict = Cell{Text: "saturated", Class: "na nb"}
		}
		sent := Count(r.Requests.Total)
		if r.Requests.Total == 0 && r.Points > 0 {
			sent = Cell{Text: Plural(r.Points, "load level"), Class: "n nb"}
		}
		t.Put(Name(r.ID), verdict, Prose(fmt.Sprintf("%s · %s · tp%d", r.Model, r.Hardware, r.TP)), Number(r.SpanS),
			sent, ZeroDim(r.Requests.Failed), ZeroDim(r.Requests.Aborted), ZeroDim(r.Requests.Preempted),
			Percent(r.Losses.RecordedStepShare), Percent(r.Steps.KnownShare))
	}
	return Capped(t, "in the order of the file", "inspect.json, runs")
}

// violatedTable returns the violated identities of each run: those that fail purposes first, then
// those that leave them undecided, then warnings.
func violatedTable(i *result.Inspect) *Table {
	t := violatedLayout.blank()
	for _, effect := range []string{result.IdentityFails, result.IdentityUndecided, result.IdentityNamed} {
		for _, r := range i.Runs {
			for k := range r.Identities {
				id := &r.Identities[k]
				if id.Status != result.IdentityViolated || id.Effect != effect {
					continue
				}
				class := "na nb"
				if effect == result.IdentityFails {
					class = "ko nb"
				}
				t.Put(Name(r.ID), Name(id.Name), Plain(strings.Join(id.Harms, ", ")), Cell{Text: effect, Class: class}, Count(id.Violated),
					Count(id.Checked), Prose(id.Sentence))
			}
		}
	}
	return Capped(t, "unusable ones first", "inspect.json, runs")
}

// identitiesTable returns, for each identity, in how many runs it is true, is violated and could not
// be checked.
func identitiesTable(i *result.Inspect) *Table {
	t := identitiesLayout.blank()
	type count struct {
		holds, violated, notChecked int // runs
		comparisons                 int
	}
	counts := map[string]*count{} // by the name of the identity
	var order []*result.Identity  // the first of each name
	for _, r := range i.Runs {
		for k := range r.Identities {
			id := &r.Identities[k]
			c := counts[id.Name]
			if c == nil {
				c = &count{}
				counts[id.Name] = c
				order = append(order, id)
			}
			switch id.Status {
			case result.IdentityHolds:
				c.holds++
			case result.IdentityViolated:
				c.violated++
			default:
				c.notChecked++
			}
			c.comparisons += id.Checked
		}
	}
	for _, id := range order {
		c := counts[id.Name]
		t.Put(Name(id.Name), Prose(id.Holds), Prose(id.Tolerance), Count(c.holds), ZeroDim(c.violated), ZeroDim(c.notChecked), Count(c.comparisons))
	}
	return t
}

// lossTable returns, for each run, what was lost and what contradicts itself.
func lossTable(i *result.Inspect) *Table {
	t := lossesLayout.blank()
	for _, r := range i.Runs {
		dropped := Cell{Text: Unknown, Class: "n dim"}
		if r.Losses.RecordsDropped != nil {
			dropped = ZeroDim(*r.Losses.RecordsDropped)
		}
		t.Put(Name(r.ID), ZeroDim(r.Requests.APIUnlinked), ZeroDim(r.Requests.CoreMissing), ZeroDim(r.Steps.Contradictions),
			ZeroDim(r.Losses.DroppedSpanEvents), dropped)
	}
	return Capped(t, "in the order of the file", "inspect.json, runs")
}

// clockTable returns a table with a row for each run: the number of engines, the offset between wall
// and monotonic clock (s) and its spread (ms), the numbers of negative intervals and missing steps,
// the share of recorded steps whose successor is recorded too, and the number of orphan snapshots.
func clockTable(i *result.Inspect) *Table {
	t := clocksLayout.blank()
	for _, r := range i.Runs {
		t.Put(Name(r.ID), Count(r.Clocks.Engines), Number(r.Clocks.OffsetS), Number(r.Clocks.OffsetSpreadMs),
			ZeroDim(r.Clocks.NegativeIntervals), ZeroDim(r.Losses.MissingSteps), Percent(r.Losses.AdjacentShare),
			ZeroDim(r.Losses.OrphanSnapshots))
	}
	return Capped(t, "in the order of the file", "inspect.json, runs")
}

// checkNames turns the keys of saturation checks into words.
var checkNames = strings.NewReplacer("_", " ", "ttft", "TTFT", "e2e", "E2E", "p99", "P99", "p50", "P50", "r2", "R²")

// saturationTable returns one row for each run and one column for each saturation check that any
// run has; nil without checks.
func saturationTable(i *result.Inspect) *Table {
	t := saturationLayout.blank()
	var names []string
	for _, r := range i.Runs {
		for _, c := range r.Saturation {
			if c.Name != "" && !slices.Contains(names, c.Name) {
				names = append(names, c.Name)
				t.Cols = append(t.Cols, Column{Head: checkNames.Replace(c.Name), Unit: "≤ " + Short(c.Threshold), Help: c.Doc, Num: true})
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

// saturationCell returns the value of the named check, marked if it is above its threshold.
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

// fitRunTable returns the runs that the fit used, and why it did not use the others.
func fitRunTable(f *result.Fit) *Table {
	t := fitRunsLayout.blank()
	byRun := map[string]result.RunRows{} // rows of step times
	for _, r := range f.Beta.Rows.ByRun {
		byRun[r.Run] = r
	}
	labels := map[string]string{} // of configurations, by their keys
	for _, c := range f.Configs {
		labels[c.Key] = c.Label
	}
	for _, r := range f.Runs {
		used := Cell{Text: "yes", Class: "ok"}
		if !r.Used {
			used = Cell{Text: "no", Class: "na w", Sub: r.Reason}
		}
		rows := byRun[r.ID]
		t.Put(Name(r.ID), used, Count(rows.Read), Count(rows.Kept), Prose(Reasons(rows.Dropped)), Name(labelOf(labels, r.Config)),
			Count(r.Steps.Recorded), Percent(r.Steps.KnownShare), ZeroDim(r.Steps.FromSnapshots), ZeroDim(r.Steps.Reconstructed),
			ZeroDim(r.Steps.Contradictions))
	}
	return Capped(t, "in the order of the file", "fit.json, runs")
}

// rowTable returns the rows of every model: read = kept + dropped.
func rowTable(f *result.Fit) *Table {
	t := rowsLayout.blank()
	add := func(m result.Model) {
		t.Put(Name(m.Name), Count(m.Rows.Read), Count(m.Rows.Kept), Count(m.Rows.Holdout), Prose(Reasons(m.Rows.Dropped)))
	}
	add(f.Beta)
	for _, m := range f.Alpha {
		add(m)
	}
	return t
}

// labelOf returns the label of a configuration, or its key if it has none.
func labelOf(labels map[string]string, key string) string {
	if l := labels[key]; l != "" {
		return l
	}
	return key
}

// recordBlocks returns what became of the records: each was kept or dropped for a reason.
func recordBlocks(e *result.Extract) []Block {
	t := recordsLayout.blank()
	for _, r := range e.Runs {
		var bytes int64
		for _, f := range r.Files {
			bytes += f.Bytes
		}
		t.Put(Name(r.ID), Count(len(r.Files)), Count(bytes), Count(r.Records.Read), Count(r.Records.Kept),
			Prose(Reasons(r.Records.Dropped)), PercentOf(r.Records.BadFrac), Count(r.Steps.Summaries), ZeroDim(r.Steps.Missing),
			Count(r.Requests.Engine+r.Requests.Stock), Count(r.Requests.APILinked), ZeroDim(r.Losses.DroppedSpanEvents),
			ZeroDim(r.Losses.TruncatedMessages), ZeroDim(r.Losses.DuplicateSpans))
	}
	out := append([]Block{{Text: totalsText(e)}}, Tables(Capped(t, "in the order of the file", "extract.json, runs"))...)
	return append(out, Tables(exampleTable(e))...)
}

// exampleTable returns the first dropped records of each reason, with their place in the file.
func exampleTable(e *result.Extract) *Table {
	t := dropsLayout.blank()
	for _, r := range e.Runs {
		for _, x := range r.Examples {
			t.Put(Name(r.ID), Name(string(x.Reason)), Cell{Text: x.Place, Class: "mono nb"}, Prose(x.What))
		}
	}
	return Capped(t, "in the order of the file", "extract.json, runs")
}

// totalsText returns the sentence above the tables of recordBlocks.
func totalsText(e *result.Extract) string {
	r := e.Totals.Records
	return fmt.Sprintf("%s records read from %s bytes: %s kept, dropped: %s.", grouped(fmt.Sprint(r.Read)),
		grouped(fmt.Sprint(e.Totals.BytesRead)), grouped(fmt.Sprint(r.Kept)), Reasons(r.Dropped))
}
