package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func data(in Input, figs []*Figure) Section {
	s := Section{ID: "data", Nav: "Data", Title: "Data quality",
		Lead: "What was recorded, what was lost, and which runs can be used. No result below is better than these data."}
	if in.Inspect == nil && in.Fit == nil && in.Extract == nil {
		s.Missing = "No inspect.json, extract.json or fit.json: run `blis-train inspect OUT -o OUT` for the data-quality report."
		return s
	}
	if in.Inspect == nil {
		s.Missing = "No inspect.json: run `blis-train inspect OUT -o OUT` for losses, clocks, saturation and coverage. What the other " +
			"stages saw of the data follows."
	} else {
		s.Blocks = append(s.Blocks, unfitBlocks(in.Inspect)...)
		s.Blocks = append(s.Blocks, Tables(inspectTable(in.Inspect))...)
		s.Blocks = append(s.Blocks, Tables(saturationTable(in.Inspect))...)
	}
	s.Blocks = append(s.Blocks, FigureBlocks(figs)...)
	s.Blocks = append(s.Blocks, folded("For experts: losses, clocks, records and rows, read = kept + dropped", accounts(in))...)
	s.Blocks = append(s.Blocks, FindingBlocks("Findings about the data", dataFindings(in)...)...)
	return s
}

// accounts say of every record and row what became of it.
func accounts(in Input) []Block {
	var out []Block
	if in.Inspect != nil {
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

func dataFindings(in Input) [][]trace.Finding {
	var lists [][]trace.Finding
	if in.Inspect != nil {
		lists = append(lists, in.Inspect.Warnings)
		lists = append(lists, stat.Map(in.Inspect.Runs, func(r result.InspectRun) []trace.Finding { return ofRun(r.ID, r.Findings) })...)
	}
	if in.Extract != nil {
		lists = append(lists, stat.Map(in.Extract.Runs, func(r result.ExtractRun) []trace.Finding { return ofRun(r.ID, r.Warnings) })...)
	}
	if in.Fit != nil {
		lists = append(lists, stat.Map(in.Fit.Runs, func(r result.FitRun) []trace.Finding { return ofRun(r.ID, r.Findings) })...)
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

func unfitBlocks(i *result.Inspect) []Block {
	lines := stat.Map(stat.Filter(i.Runs, func(r result.InspectRun) bool { return r.Unfit }), func(r result.InspectRun) string {
		return r.ID + ": " + r.Reason
	})
	if len(lines) == 0 {
		return nil
	}
	return []Block{{Heading: "Runs that cannot be used"}, {List: FirstOf(lines, 30, "inspect.json")}}
}

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
		t.Put(Name(r.ID), verdict, Name(fmt.Sprintf("%s · %s · tp%d", r.Model, r.Hardware, r.TP)), Number(r.SpanS),
			sent, ZeroDim(r.Requests.Failed), ZeroDim(r.Requests.Aborted), ZeroDim(r.Requests.Preempted),
			Percent(r.Losses.RecordedStepShare), Percent(r.Steps.KnownShare))
	}
	return Capped(t, "in the order of the file", "inspect.json, runs")
}

// lossTable says what of each run was lost or does not fit together.
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

func clockTable(i *result.Inspect) *Table {
	t := clocksLayout.blank()
	for _, r := range i.Runs {
		t.Put(Name(r.ID), Count(r.Clocks.Engines), Number(r.Clocks.OffsetS), Number(r.Clocks.OffsetSpreadMs),
			ZeroDim(r.Clocks.NegativeIntervals), ZeroDim(r.Losses.MissingSteps), Percent(r.Losses.AdjacentShare),
			ZeroDim(r.Losses.OrphanSnapshots))
	}
	return Capped(t, "in the order of the file", "inspect.json, runs")
}

// checkNames are the names of saturation checks as a reader writes them.
var checkNames = strings.NewReplacer("_", " ", "ttft", "TTFT", "e2e", "E2E", "p99", "P99", "p50", "P50", "r2", "R²")

// saturationTable has one column per check, named by the first run.
func saturationTable(i *result.Inspect) *Table {
	t := saturationLayout.blank()
	var names []string
	for _, r := range i.Runs {
		for _, c := range r.Saturation {
			if len(appendNew(names, c.Name)) > len(names) {
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

// fitRunTable says which runs the fit used and why not the others.
func fitRunTable(f *result.Fit) *Table {
	t := fitRunsLayout.blank()
	byRun := stat.Keyed(f.Beta.Rows.ByRun, func(r result.RunRows) (string, result.RunRows) { return r.Run, r })
	labels := stat.Keyed(f.Configs, func(c result.FitConfig) (string, string) { return c.Key, c.Label })
	for _, r := range f.Runs {
		used := Cell{Text: "yes", Class: "ok"}
		if !r.Used {
			used = Cell{Text: "no", Class: "na w", Sub: r.Reason}
		}
		rows := byRun[r.ID]
		t.Put(Name(r.ID), used, Count(rows.Read), Count(rows.Kept), Prose(Reasons(rows.Dropped)), Name(label(labels, r.Config)),
			Count(r.Steps.Recorded), Percent(r.Steps.KnownShare), ZeroDim(r.Steps.FromSnapshots), ZeroDim(r.Steps.Reconstructed),
			ZeroDim(r.Steps.Contradictions))
	}
	return Capped(t, "in the order of the file", "fit.json, runs")
}

// rowTable accounts for the rows of every model: read = kept + dropped.
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

func label(labels map[string]string, key string) string {
	if l := labels[key]; l != "" {
		return l
	}
	return key
}

// recordBlocks is the account of extraction: every record read is kept or
// dropped for a reason.
func recordBlocks(e *result.Extract) []Block {
	t := recordsLayout.blank()
	for _, r := range e.Runs {
		bytes := stat.Sum(r.Files, func(f result.ExtractFile) int64 { return f.Bytes })
		t.Put(Name(r.ID), Count(len(r.Files)), Count(bytes), Count(r.Records.Read), Count(r.Records.Kept),
			Prose(Reasons(r.Records.Dropped)), PercentOf(r.Records.BadFrac), Count(r.Steps.Summaries), ZeroDim(r.Steps.Missing),
			Count(r.Requests.Engine+r.Requests.Stock), Count(r.Requests.APILinked), ZeroDim(r.Losses.DroppedSpanEvents),
			ZeroDim(r.Losses.TruncatedMessages), ZeroDim(r.Losses.DuplicateSpans))
	}
	out := append([]Block{{Text: totalsText(e)}}, Tables(Capped(t, "in the order of the file", "extract.json, runs"))...)
	return append(out, Tables(exampleTable(e))...)
}

// exampleTable shows the first drops of each reason where they happened.
func exampleTable(e *result.Extract) *Table {
	t := dropsLayout.blank()
	for _, r := range e.Runs {
		for _, x := range r.Examples {
			t.Put(Name(r.ID), Name(string(x.Reason)), Cell{Text: x.Place, Class: "mono nb"}, Prose(x.What))
		}
	}
	return Capped(t, "in the order of the file", "extract.json, runs")
}

// totalsText is the sentence above the accounts.
func totalsText(e *result.Extract) string {
	r := e.Totals.Records
	return fmt.Sprintf("%s records read from %s bytes: %s kept, dropped: %s.", grouped(fmt.Sprint(r.Read)),
		grouped(fmt.Sprint(e.Totals.BytesRead)), grouped(fmt.Sprint(r.Kept)), Reasons(r.Dropped))
}

// coverageNames orders the histograms and says what each is for.
var coverageNames = []struct{ Name, title string }{
	{"prefill_tokens", "prefill tokens per step"},
	{"decode_batch", "decode requests per step"},
	{"context_tokens", "context tokens per decode"},
	{"kv_usage", "KV-cache usage"},
}

// coverageFigure shows which loads were recorded, one row per run.
func coverageFigure(in Input) *Figure {
	if in.Inspect == nil {
		return nil
	}
	fig := coverageCaption.blank()
	runs := in.Inspect.Runs
	if len(runs) > maxChartRows {
		fig.More = fmt.Sprintf("The first %d of %d runs.", maxChartRows, len(runs))
		runs = runs[:maxChartRows]
	}
	for _, c := range coverageNames {
		fig.Panels = append(fig.Panels, BothWidths("histogram of "+c.title+", one row per run", func(w float64) *Drawing {
			return coveragePanel(w, runs, c.Name, c.title)
		})...)
	}
	return fig
}

func coveragePanel(w float64, runs []result.InspectRun, name, title string) *Drawing {
	var rows []result.InspectRun
	var hs []result.Histogram
	for _, r := range runs {
		for _, h := range r.Coverage {
			if h.Name == name && h.Rows > 0 && len(h.Edges) >= len(h.Counts) {
				rows, hs = append(rows, r), append(hs, h)
			}
		}
	}
	if len(hs) == 0 {
		return nil
	}
	bins := usedBins(hs)
	const ch, top = 15.0, 24.0
	d := &Drawing{W: w, H: top + ch*float64(len(hs)) + 42}
	d.Heading(At(0, 13), title, headSize, ink, anchorStart)
	left := nameWidth(w, stat.Map(rows, func(r result.InspectRun) string { return r.ID }))
	cw := (w - left - 20) / float64(max(bins, 1))
	for i, h := range hs {
		y := top + ch*float64(i)
		d.Label(At(left-12, y+11), clip(rows[i].ID, labelSize, left-14), labelSize, ink, anchorEnd)
		for j, n := range h.Counts[:min(bins, len(h.Counts))] {
			x := left + cw*float64(j)
			p, tip := binPaint(n, h.Rows), ""
			if n > 0 {
				tip = fmt.Sprintf("%s: %s: %d of %d rows", rows[i].ID, binWords(h, j), n, h.Rows)
			}
			if p != none {
				d.Rect(At(x, y+1), At(x+cw-1, y+ch-1), p, 0, tip)
			}
		}
	}
	edgeLabels(d, hs[0], bins, left, cw, top+ch*float64(len(hs)))
	return d
}

// usedBins is how many bins any run reaches, and one more, so that the end of
// what was recorded is seen.
func usedBins(hs []result.Histogram) int {
	last := 0
	for _, h := range hs {
		for j, n := range h.Counts {
			if n > 0 {
				last = max(last, j+1)
			}
		}
	}
	return min(last+1, max(last, len(hs[0].Counts)))
}

// binWords names a bin by its edges; the last one may be open.
func binWords(h result.Histogram, j int) string {
	if j+1 < len(h.Edges) {
		return Short(h.Edges[j]) + " to " + Short(h.Edges[j+1]) + " " + unitWords(h.Unit)
	}
	return "from " + Short(h.Edges[j]) + " " + unitWords(h.Unit)
}

// unitWords says the unit of a pure number.
func unitWords(unit string) string {
	if unit == "" || unit == "1" {
		return "share"
	}
	return unit
}

// binPaint is the colour of n of rows; a bin with any row is visible.
func binPaint(n, rows int) Paint {
	if n <= 0 {
		return none
	}
	return ramp(0.15 + 0.85*float64(n)/float64(rows)*2)
}

func edgeLabels(d *Drawing, h result.Histogram, bins int, left, cw, y float64) {
	d.Seg(At(left, y+1), At(left+cw*float64(bins), y+1), AxisLine, 1, Solid)
	right := 0.0
	for j, e := range h.Edges[:min(bins, len(h.Edges))] {
		x := left + cw*float64(j)
		s := Short(e)
		if w := textWidth(s, tickSize); x-w/2 > right+6 {
			d.Label(At(x, y+15), s, tickSize, Mute, anchorMiddle)
			right = x + w/2
		}
	}
	axisTitle(d, axis{P0: left, P1: left + cw*float64(bins)}, "lower edge of the bin ("+unitWords(h.Unit)+")")
}

// maxLoadRuns is how many runs get a panel of load over time.
const maxLoadRuns = 15

// loadFigure shows running and waiting requests over each run.
func loadFigure(in Input) *Figure {
	if in.Inspect == nil {
		return nil
	}
	fig := loadCaption.blank()
	n := 0
	for _, r := range in.Inspect.Runs {
		if r.Series == nil || len(r.Series.Running) == 0 {
			continue
		}
		if n++; n <= maxLoadRuns {
			fig.Panels = append(fig.Panels, Panel{D: loadPanel(r), Desc: "running and waiting requests of " + r.ID + " over time"})
		}
	}
	if n > maxLoadRuns {
		fig.More = "The first " + strconv.Itoa(maxLoadRuns) + " of " + strconv.Itoa(n) + " runs."
	}
	return fig
}

func loadPanel(r result.InspectRun) *Drawing {
	s := r.Series
	running := seriesPoints(s.Running, s.BinS)
	waiting := seriesPoints(s.Waiting, s.BinS)
	var ys Span
	ys.Take(0, 1)
	for _, xy := range append(append([][2]float64{}, running...), waiting...) {
		ys.Take(xy[1])
	}
	title := r.ID
	if r.Saturated {
		title += " · saturated"
	}
	p := NewFrame(PanelW, 190, title, Linear("time (s)", 0, s.BinS*float64(len(s.Running)), 5), Linear("requests", 0, ys.Hi, 4))
	p.Curve(running, Decode, 1.6, Solid)
	p.Curve(waiting, Prefill, 1.6, Dashed)
	return &p.Drawing
}

// seriesPoints places known bins at their middle; an unknown one is a gap.
func seriesPoints(vs []*float64, binS float64) [][2]float64 {
	var out [][2]float64
	for i, v := range vs {
		if v != nil {
			out = append(out, [2]float64{(float64(i) + 0.5) * binS, *v})
		} else if len(out) > 0 {
			out = append(out, gap)
		}
	}
	return out
}

func targetAudit(in Input, figs []*Figure) Section {
	s := Section{ID: "audit", Nav: "Audit", Title: "Target and lag audit", Lead: "Whether the fitted times measure what their names say."}
	audits := auditsOf(in)
	evidence, used := lagsOf(in)
	if len(audits) == 0 && len(evidence) == 0 {
		s.Missing = "No target audit: it is made by `blis-train fit OUT` and by `blis-train inspect OUT`."
		if in.Fit != nil && in.Fit.Requests != nil {
			s.Missing = "No steps were recorded: the coefficients were fitted to requests or load levels, and there is no step time to audit."
		}
		return s
	}
	s.Blocks = append(s.Blocks, FigureBlocks(figs)...)
	t := auditLayout.blank()
	for _, a := range audits {
		t.Put(Name(a.Run), millis(a.DurationUsP50), millis(a.CadenceUsP50), millis(a.PhysicalFloorUs), millis(a.ArrivedToQueuedUs.P50),
			millis(a.ArrivedToQueuedUs.P90), millis(a.QueuedToScheduledUs.P50), millis(a.QueuedToScheduledUs.P90), Prose(a.Verdict))
	}
	lt := lagLayout.blank()
	for _, e := range evidence {
		mark := Cell{}
		if u, ok := used[e.Run]; ok && u.Lag == e.Lag {
			mark.Text = "used, assumed"
			if u.Measured {
				mark.Text = "used, measured"
			}
		}
		lt.Put(Name(e.Run), Count(e.Lag), Percent(e.HoldoutMAPEPrefill), Count(e.N), Plain(e.Verdict), mark)
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

// auditsOf are the target audits of the fit, or of the inspection without one.
func auditsOf(in Input) []result.TargetAudit {
	if in.Fit != nil && len(in.Fit.Beta.TargetAudit) > 0 {
		return in.Fit.Beta.TargetAudit
	}
	var out []result.TargetAudit
	if in.Inspect != nil {
		for _, r := range in.Inspect.Runs {
			if r.Audit != nil {
				out = append(out, *r.Audit)
			}
		}
	}
	return out
}

// lagsOf is the lag evidence of the fit, or of the inspection without one.
func lagsOf(in Input) (evidence []result.LagEvidence, used map[string]result.RunLag) {
	if in.Fit != nil && len(in.Fit.Beta.LagEvidence) > 0 {
		return in.Fit.Beta.LagEvidence, in.Fit.Beta.PipelineLag
	}
	used = map[string]result.RunLag{}
	if in.Inspect != nil {
		for _, r := range in.Inspect.Runs {
			evidence = append(evidence, r.LagEvidence...)
			if r.Lag != nil {
				used[r.ID] = *r.Lag
			}
		}
	}
	return evidence, used
}

// auditMark is a median of an audit in its figure.
type auditMark struct {
	us   func(*result.TargetAudit) *float64
	p    Paint
	what string
}

// auditFigure is a row of medians for each run.
func auditFigure(in Input, caption Figure, label string, isJoined bool, marks ...auditMark) *Figure {
	var s Span
	var rows []ChartRow
	for _, a := range auditsOf(in) {
		r := ChartRow{Name: a.Run, Join: isJoined}
		for _, m := range marks {
			if us := m.us(&a); us != nil && *us > 0 {
				s.Take(*us / 1000)
				r.Marks = append(r.Marks, RowMark{V: *us / 1000, P: m.p, Bar: m.p == ink,
					Tip: fmt.Sprintf("%s: %s %s ms", a.Run, m.what, Short(*us/1000))})
			}
		}
		if len(r.Marks) > 0 {
			rows = append(rows, r)
		}
	}
	return rowFigure(caption.blank(), rows, s, label, len(rows))
}

// targetFigure shows what step.duration_us and the cadence are beside the
// physical floor.
func targetFigure(in Input) *Figure {
	return auditFigure(in, targetAuditCaption, "median (ms, logarithmic)", true,
		auditMark{func(a *result.TargetAudit) *float64 { return a.PhysicalFloorUs }, ink, "floor"},
		auditMark{func(a *result.TargetAudit) *float64 { return a.DurationUsP50 }, Prefill, "duration"},
		auditMark{func(a *result.TargetAudit) *float64 { return a.CadenceUsP50 }, Decode, "cadence"})
}

// pickupFigure shows where the wait for the running step hides.
func pickupFigure(in Input) *Figure {
	return auditFigure(in, pickupAuditCaption, "wait (ms, logarithmic)", false,
		auditMark{func(a *result.TargetAudit) *float64 { return a.ArrivedToQueuedUs.P50 }, Decode, "arrived to queued, median"},
		auditMark{func(a *result.TargetAudit) *float64 { return a.ArrivedToQueuedUs.P90 }, Mixed, "arrived to queued, P90"},
		auditMark{func(a *result.TargetAudit) *float64 { return a.QueuedToScheduledUs.P50 }, Prefill, "queued to scheduled, median"},
		auditMark{func(a *result.TargetAudit) *float64 { return a.QueuedToScheduledUs.P90 }, Other, "queued to scheduled, P90"})
}

// lagFigure shows the hold-out error of each candidate lag.
func lagFigure(in Input) *Figure {
	evidence, used := lagsOf(in)
	fig := lagAuditCaption.blank()
	lagPaints := []Paint{Decode, Prefill, Mixed}
	var s Span
	var rows []ChartRow
	index := map[string]int{}
	for _, e := range evidence {
		if e.HoldoutMAPEPrefill == nil || !(*e.HoldoutMAPEPrefill > 0) || e.Lag < 0 || e.Lag >= len(lagPaints) {
			continue
		}
		i, ok := index[e.Run]
		if !ok {
			i = len(rows)
			index[e.Run] = i
			rows = append(rows, ChartRow{Name: e.Run, Join: true})
		}
		v := *e.HoldoutMAPEPrefill * 100
		s.Take(v)
		tip := fmt.Sprintf("%s: lag %d %s, %d intervals", e.Run, e.Lag, Pct(v/100), e.N)
		rows[i].Marks = append(rows[i].Marks, RowMark{V: v, P: lagPaints[e.Lag], Tip: tip})
		if u, ok := used[e.Run]; ok && u.Lag == e.Lag {
			rows[i].Marks = append(rows[i].Marks, RowMark{V: v, P: ink, Ring: true, Tip: tip + ", used"})
		}
	}
	return rowFigure(fig, rows, s, "MAPE on intervals with prefill (%, logarithmic)", len(rows))
}
