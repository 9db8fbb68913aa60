package sections

import (
	"fmt"

	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
)

// recordBlocks is the account of extraction: every record read is kept or
// dropped for a reason.
func recordBlocks(e *result.Extract) []page.Block {
	t := &page.Table{ID: "records", Caption: "Records: read = kept + dropped",
		Cols: []page.Column{{Head: "Run"}, {Head: "Files", Num: true}, {Head: "Bytes", Num: true}, {Head: "Read", Num: true},
			{Head: "Kept", Num: true}, {Head: "Dropped, by reason"},
			{Head: "Bad", Num: true, Help: "unreadable bytes or records dropped by an error, whichever share is larger"},
			{Head: "Steps", Num: true}, {Head: "Missing", Num: true}, {Head: "Requests", Num: true}, {Head: "Linked to API", Num: true},
			{Head: "Span events lost", Num: true}, {Head: "Truncated", Num: true}, {Head: "Duplicate spans", Num: true}}}
	for _, r := range e.Runs {
		var bytes int64
		for _, f := range r.Files {
			bytes += f.Bytes
		}
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{
			page.Name(r.ID), page.Count(len(r.Files)), page.Count64(bytes), page.Count64(r.Records.Read), page.Count64(r.Records.Kept),
			page.Prose(words.Reasons64(r.Records.Dropped)), page.PercentOf(r.Records.BadFrac),
			page.Count64(r.Steps.Summaries), page.Dim64(r.Steps.Missing), page.Count64(r.Requests.Engine + r.Requests.Stock),
			page.Count64(r.Requests.APILinked),
			page.Dim64(r.Losses.DroppedSpanEvents), page.Dim64(r.Losses.TruncatedMessages), page.Dim64(r.Losses.DuplicateSpans),
		}})
	}
	out := append([]page.Block{{Text: totalsText(e)}}, page.Tables(page.Capped(t, "in the order of the file", "extract.json, runs"))...)
	return append(out, page.Tables(exampleTable(e))...)
}

// exampleTable shows the first drops of each reason where they happened.
func exampleTable(e *result.Extract) *page.Table {
	t := &page.Table{ID: "drops", Caption: "Dropped records, first of each reason", Closed: true,
		Cols: []page.Column{{Head: "Run"}, {Head: "Reason"}, {Head: "Where"}, {Head: "What"}}}
	for _, r := range e.Runs {
		for _, x := range r.Examples {
			t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Name(r.ID), page.Name(string(x.Reason)), {Text: x.Place, Class: "mono nb"},
				page.Prose(x.What)}})
		}
	}
	return page.Capped(t, "in the order of the file", "extract.json, runs")
}

// totalsText is the sentence above the accounts.
func totalsText(e *result.Extract) string {
	r := e.Totals.Records
	return fmt.Sprintf("%s records read from %s bytes: %s kept, dropped: %s.", words.Grouped(fmt.Sprint(r.Read)),
		words.Grouped(fmt.Sprint(e.Totals.BytesRead)), words.Grouped(fmt.Sprint(r.Kept)), words.Reasons64(r.Dropped))
}
