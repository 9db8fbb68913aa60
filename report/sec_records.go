package report

import (
	"fmt"
	"strconv"

	"github.com/blis-train/blis-train/result"
)

// recordBlocks is the account of extraction: every record read is kept or
// dropped for a reason.
func recordBlocks(e *result.Extract) []block {
	t := &table{ID: "records", Caption: "Records: read = kept + dropped",
		Cols: []column{{Head: "Run"}, {Head: "Files", Num: true}, {Head: "Bytes", Num: true}, {Head: "Read", Num: true}, {Head: "Kept", Num: true}, {Head: "Dropped, by reason"},
			{Head: "Bad", Num: true, Help: "unreadable bytes or records dropped by an error, whichever share is larger"},
			{Head: "Steps", Num: true}, {Head: "Missing", Num: true}, {Head: "Requests", Num: true}, {Head: "Linked to API", Num: true},
			{Head: "Span events lost", Num: true}, {Head: "Truncated", Num: true}, {Head: "Duplicate spans", Num: true}}}
	for _, r := range e.Runs {
		var bytes int64
		for _, f := range r.Files {
			bytes += f.Bytes
		}
		t.Rows = append(t.Rows, row{Cells: []cell{
			name(r.ID), count(len(r.Files)), count64(bytes), count64(r.Records.Read), count64(r.Records.Kept), words(reasons64(r.Records.Dropped)), percentOf(r.Records.BadFrac),
			count64(r.Steps.Summaries), dim64(r.Steps.Missing), count64(r.Requests.Engine + r.Requests.Stock), count64(r.Requests.APILinked),
			dim64(r.Losses.DroppedSpanEvents), dim64(r.Losses.TruncatedMessages), dim64(r.Losses.DuplicateSpans),
		}})
	}
	out := append([]block{{Text: totalsText(e)}}, tables(capped(t, "in the order of the file", "extract.json, runs"))...)
	return append(out, tables(exampleTable(e))...)
}

// exampleTable shows the first drops of each reason where they happened.
func exampleTable(e *result.Extract) *table {
	t := &table{ID: "drops", Caption: "Dropped records, first of each reason", Closed: true,
		Cols: []column{{Head: "Run"}, {Head: "Reason"}, {Head: "Where"}, {Head: "What"}}}
	for _, r := range e.Runs {
		for _, x := range r.Examples {
			t.Rows = append(t.Rows, row{Cells: []cell{name(r.ID), name(string(x.Reason)), {Text: x.Place, Class: "mono nb"}, words(x.What)}})
		}
	}
	return capped(t, "in the order of the file", "extract.json, runs")
}

func count64(n int64) cell {
	s := strconv.FormatInt(n, 10)
	return cell{Text: groupDigits(s), Key: s, Class: "n"}
}

func dim64(n int64) cell {
	c := count64(n)
	if n == 0 {
		c.Class = "n dim"
	}
	return c
}

func reasons64(m map[string]int64) string {
	out := make(map[string]int, len(m))
	for k, n := range m {
		out[k] = int(n)
	}
	return reasons(out)
}

// totalsText is the sentence above the accounts.
func totalsText(e *result.Extract) string {
	r := e.Totals.Records
	return fmt.Sprintf("%s records read from %s bytes: %s kept, dropped: %s.", groupDigits(fmt.Sprint(r.Read)), groupDigits(fmt.Sprint(e.Totals.BytesRead)), groupDigits(fmt.Sprint(r.Kept)), reasons64(r.Dropped))
}
