package report

import "fmt"

func auditSection(in Input, figs []*figure) section {
	s := section{ID: "audit", Nav: "Audit", Title: "Target and lag audit",
		Lead: "Whether the numbers that were fitted are what they are called."}
	audits := auditsOf(in)
	evidence, used := lagsOf(in)
	if len(audits) == 0 && len(evidence) == 0 {
		s.Missing = "No target audit: it is made by `blis-train fit OUT` and by `blis-train inspect OUT`."
		return s
	}
	s.Blocks = append(s.Blocks, figureBlocks(figs)...)
	t := &table{ID: "audit-table", Caption: "Medians of what the stamps measure",
		Cols: []column{{Head: "Run"}, {Head: "step.duration", Unit: "ms", Num: true}, {Head: "Cadence", Unit: "ms", Num: true},
			{Head: "Floor", Unit: "ms", Num: true, Help: "weight bytes over memory bandwidth"},
			{Head: "ARRIVED to QUEUED", Unit: "ms, P50", Num: true}, {Head: "same", Unit: "ms, P90", Num: true},
			{Head: "QUEUED to SCHEDULED", Unit: "ms, P50", Num: true}, {Head: "same", Unit: "ms, P90", Num: true}, {Head: "Verdict"}}}
	for _, a := range audits {
		t.Rows = append(t.Rows, row{Cells: []cell{
			name(a.Run), millis(a.DurationUsP50), millis(a.CadenceUsP50), millis(a.PhysicalFloorUs),
			millis(a.ArrivedToQueuedUs.P50), millis(a.ArrivedToQueuedUs.P90),
			millis(a.QueuedToScheduledUs.P50), millis(a.QueuedToScheduledUs.P90), words(a.Verdict),
		}})
	}
	s.Blocks = append(s.Blocks, tables(capped(t, "in the order of the file", "fit.json, beta.target_audit"))...)
	lt := &table{ID: "lag-table", Caption: "Lag evidence", Closed: true,
		Cols: []column{{Head: "Run"}, {Head: "Lag", Num: true}, {Head: "MAPE on intervals with prefill", Num: true}, {Head: "Intervals", Num: true}, {Head: "Verdict"}, {Head: "Used"}}}
	for _, e := range evidence {
		mark := cell{}
		if u, ok := used[e.Run]; ok && u.Lag == e.Lag {
			mark.Text = "used, assumed"
			if u.Measured {
				mark.Text = "used, measured"
			}
		}
		lt.Rows = append(lt.Rows, row{Cells: []cell{name(e.Run), count(e.Lag), percent(e.HoldoutMAPEPrefill), count(e.N), text(e.Verdict), mark}})
	}
	s.Blocks = append(s.Blocks, tables(capped(lt, "in the order of the file", "fit.json, beta.lag_evidence"))...)
	if len(evidence) == 0 {
		s.Blocks = append(s.Blocks, block{Text: fmt.Sprintf("No lag evidence was recorded for %s: it needs intervals with more than 64 prefill tokens.", plural(len(audits), "run"))})
	}
	return s
}
