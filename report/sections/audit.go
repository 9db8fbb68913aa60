package sections

import (
	"fmt"

	"github.com/blis-train/blis-train/report/draw"
	"github.com/blis-train/blis-train/report/input"
	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/words"
)

func TargetAudit(in input.Input, figs []*draw.Figure) page.Section {
	s := page.Section{ID: "audit", Nav: "Audit", Title: "Target and lag audit",
		Lead: "Whether the numbers that were fitted are what they are called."}
	audits := input.AuditsOf(in)
	evidence, used := input.LagsOf(in)
	if len(audits) == 0 && len(evidence) == 0 {
		s.Missing = "No target audit: it is made by `blis-train fit OUT` and by `blis-train inspect OUT`."
		return s
	}
	s.Blocks = append(s.Blocks, page.FigureBlocks(figs)...)
	t := &page.Table{ID: "audit-table", Caption: "Medians of what the stamps measure",
		Cols: []page.Column{{Head: "Run"}, {Head: "step.duration", Unit: "ms", Num: true}, {Head: "Cadence", Unit: "ms", Num: true},
			{Head: "Floor", Unit: "ms", Num: true, Help: "weight bytes over memory bandwidth"},
			{Head: "ARRIVED to QUEUED", Unit: "ms, P50", Num: true}, {Head: "same", Unit: "ms, P90", Num: true},
			{Head: "QUEUED to SCHEDULED", Unit: "ms, P50", Num: true}, {Head: "same", Unit: "ms, P90", Num: true}, {Head: "Verdict"}}}
	for _, a := range audits {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{
			page.Name(a.Run), page.Millis(a.DurationUsP50), page.Millis(a.CadenceUsP50), page.Millis(a.PhysicalFloorUs),
			page.Millis(a.ArrivedToQueuedUs.P50), page.Millis(a.ArrivedToQueuedUs.P90),
			page.Millis(a.QueuedToScheduledUs.P50), page.Millis(a.QueuedToScheduledUs.P90), page.Prose(a.Verdict),
		}})
	}
	lt := &page.Table{ID: "lag-table", Caption: "Lag evidence", Closed: true,
		Cols: []page.Column{{Head: "Run"}, {Head: "Lag", Num: true}, {Head: "MAPE on intervals with prefill", Num: true},
			{Head: "Intervals", Num: true}, {Head: "Verdict"}, {Head: "Used"}}}
	for _, e := range evidence {
		mark := page.Cell{}
		if u, ok := used[e.Run]; ok && u.Lag == e.Lag {
			mark.Text = "used, assumed"
			if u.Measured {
				mark.Text = "used, measured"
			}
		}
		lt.Rows = append(lt.Rows, page.Row{Cells: []page.Cell{page.Name(e.Run), page.Count(e.Lag), page.Percent(e.HoldoutMAPEPrefill),
			page.Count(e.N), page.Plain(e.Verdict), mark}})
	}
	s.Blocks = append(s.Blocks, page.Folded("For experts: medians of the stamps and evidence of the lag, run by run",
		page.Tables(page.Capped(t, "in the order of the file", "fit.json, beta.target_audit")),
		page.Tables(page.Capped(lt, "in the order of the file", "fit.json, beta.lag_evidence")))...)
	if len(evidence) == 0 {
		s.Blocks = append(s.Blocks, page.Block{Text: fmt.Sprintf("No lag evidence was recorded for %s: it needs intervals with more than 64 "+
			"prefill tokens.", words.Plural(len(audits), "run"))})
	}
	return s
}
