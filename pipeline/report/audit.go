package report

import "fmt"

func targetAudit(in Input, figs []*Figure) PageSection {
	s := PageSection{ID: "audit", Nav: "Audit", Title: "Target and lag audit",
		Lead: "Whether the numbers that were fitted are what they are called."}
	audits := auditsOf(in)
	evidence, used := lagsOf(in)
	if len(audits) == 0 && len(evidence) == 0 {
		s.Missing = "No target audit: it is made by `blis-train fit OUT` and by `blis-train inspect OUT`."
		return s
	}
	s.Blocks = append(s.Blocks, FigureBlocks(figs)...)
	t := &Table{ID: "audit-table", Caption: "Medians of what the stamps measure",
		Cols: []Column{{Head: "Run"}, {Head: "step.duration", Unit: "ms", Num: true}, {Head: "Cadence", Unit: "ms", Num: true},
			{Head: "Floor", Unit: "ms", Num: true, Help: "weight bytes over memory bandwidth"},
			{Head: "ARRIVED to QUEUED", Unit: "ms, P50", Num: true}, {Head: "same", Unit: "ms, P90", Num: true},
			{Head: "QUEUED to SCHEDULED", Unit: "ms, P50", Num: true}, {Head: "same", Unit: "ms, P90", Num: true}, {Head: "Verdict"}}}
	for _, a := range audits {
		t.Rows = append(t.Rows, Row{Cells: []Cell{
			Name(a.Run), millis(a.DurationUsP50), millis(a.CadenceUsP50), millis(a.PhysicalFloorUs),
			millis(a.ArrivedToQueuedUs.P50), millis(a.ArrivedToQueuedUs.P90),
			millis(a.QueuedToScheduledUs.P50), millis(a.QueuedToScheduledUs.P90), Prose(a.Verdict),
		}})
	}
	lt := &Table{ID: "lag-table", Caption: "Lag evidence", Closed: true,
		Cols: []Column{{Head: "Run"}, {Head: "Lag", Num: true}, {Head: "MAPE on intervals with prefill", Num: true},
			{Head: "Intervals", Num: true}, {Head: "Verdict"}, {Head: "Used"}}}
	for _, e := range evidence {
		mark := Cell{}
		if u, ok := used[e.Run]; ok && u.Lag == e.Lag {
			mark.Text = "used, assumed"
			if u.Measured {
				mark.Text = "used, measured"
			}
		}
		lt.Rows = append(lt.Rows, Row{Cells: []Cell{Name(e.Run), Count(e.Lag), Percent(e.HoldoutMAPEPrefill),
			Count(e.N), Plain(e.Verdict), mark}})
	}
	s.Blocks = append(s.Blocks, folded("For experts: medians of the stamps and evidence of the lag, run by run",
		Tables(Capped(t, "in the order of the file", "fit.json, beta.target_audit")),
		Tables(Capped(lt, "in the order of the file", "fit.json, beta.lag_evidence")))...)
	if len(evidence) == 0 {
		s.Blocks = append(s.Blocks, Block{Text: fmt.Sprintf("No lag evidence was recorded for %s: it needs intervals with more than 64 "+
			"prefill tokens.", Plural(len(audits), "run"))})
	}
	return s
}
