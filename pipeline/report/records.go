package report

import (
	"fmt"

	"github.com/blis-train/blis-train/result"
)

// recordBlocks is the account of extraction: every record read is kept or
// dropped for a reason.
func recordBlocks(e *result.Extract) []Block {
	t := &Table{ID: "records", Caption: "Records: read = kept + dropped",
		Cols: []Column{{Head: "Run"}, {Head: "Files", Num: true}, {Head: "Bytes", Num: true}, {Head: "Read", Num: true},
			{Head: "Kept", Num: true}, {Head: "Dropped, by reason"},
			{Head: "Bad", Num: true, Help: "unreadable bytes or records dropped by an error, whichever share is larger"},
			{Head: "Steps", Num: true}, {Head: "Missing", Num: true}, {Head: "Requests", Num: true}, {Head: "Linked to API", Num: true},
			{Head: "Span events lost", Num: true}, {Head: "Truncated", Num: true}, {Head: "Duplicate spans", Num: true}}}
	for _, r := range e.Runs {
		var bytes int64
		for _, f := range r.Files {
			bytes += f.Bytes
		}
		t.Rows = append(t.Rows, Row{Cells: []Cell{
			Name(r.ID), Count(len(r.Files)), Count64(bytes), Count64(r.Records.Read), Count64(r.Records.Kept),
			Prose(reasons64(r.Records.Dropped)), PercentOf(r.Records.BadFrac),
			Count64(r.Steps.Summaries), dim64(r.Steps.Missing), Count64(r.Requests.Engine + r.Requests.Stock),
			Count64(r.Requests.APILinked),
			dim64(r.Losses.DroppedSpanEvents), dim64(r.Losses.TruncatedMessages), dim64(r.Losses.DuplicateSpans),
		}})
	}
	out := append([]Block{{Text: totalsText(e)}}, Tables(Capped(t, "in the order of the file", "extract.json, runs"))...)
	return append(out, Tables(exampleTable(e))...)
}

// exampleTable shows the first drops of each reason where they happened.
func exampleTable(e *result.Extract) *Table {
	t := &Table{ID: "drops", Caption: "Dropped records, first of each reason", Closed: true,
		Cols: []Column{{Head: "Run"}, {Head: "Reason"}, {Head: "Where"}, {Head: "What"}}}
	for _, r := range e.Runs {
		for _, x := range r.Examples {
			t.Rows = append(t.Rows, Row{Cells: []Cell{Name(r.ID), Name(string(x.Reason)), {Text: x.Place, Class: "mono nb"},
				Prose(x.What)}})
		}
	}
	return Capped(t, "in the order of the file", "extract.json, runs")
}

// totalsText is the sentence above the accounts.
func totalsText(e *result.Extract) string {
	r := e.Totals.Records
	return fmt.Sprintf("%s records read from %s bytes: %s kept, dropped: %s.", grouped(fmt.Sprint(r.Read)),
		grouped(fmt.Sprint(e.Totals.BytesRead)), grouped(fmt.Sprint(r.Kept)), reasons64(r.Dropped))
}
