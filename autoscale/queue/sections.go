package queue

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/report/draw"
	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
)

// writePage writes the page of queue.json as one HTML file: the parameters and where they come
// from, how well they hold, what online tuners would have said, and what follows.
func writePage(w io.Writer, q *result.Queue) error {
	sections := []page.Section{
		parameterSection(q), scoreSection(q), showSection(q), trackSection(q), sizeSection(q), planSection(q),
		originSection(q),
	}
	sections = slices.DeleteFunc(sections, func(x page.Section) bool { return len(x.Blocks) == 0 && x.Missing == "" })
	return page.Write(w, headOf(q), sections)
}

func headOf(q *result.Queue) page.Head {
	h := page.Head{Class: "none", Badge: "QUEUE", Kicker: "Parameters of an autoscaler's queueing model",
		Sentence: "The flavours of queueing models beside the simulator."}
	fitted := 0
	for i := range q.Servers {
		s := &q.Servers[i]
		if len(s.Effective) > 0 {
			fitted++
		}
		if s.Reason != "" {
			h.Failed = append(h.Failed, s.ID+": "+s.Reason)
		}
	}
	if len(q.Servers) > 0 {
		h.Sentence = fmt.Sprintf("%d of %s have effective parameters of %s.", fitted, words.Plural(len(q.Servers), "server"), q.Flavour)
	}
	h.Failed = words.FirstOf(h.Failed, 12, "queue.json")
	h.Facts = []page.Fact{
		page.FactOf("Flavour", q.Flavour), page.FactOf("Window", fmt.Sprintf("%g s every %g s, at least %d requests, by %s", q.Options.WindowS,
			q.Options.HopS, q.Options.MinRequests, q.Options.Semantics)),
		page.FactOf("Hold-out", words.Pct(q.Options.HoldOut)+" of the windows"), page.FactOf("Waiting room",
			fmt.Sprintf("%g times the seats", q.Options.QueueRatio)),
	}
	return h
}

func parameterSection(q *result.Queue) page.Section {
	x := page.Section{ID: "parameters", Nav: "Parameters", Title: "Parameters, physical and effective",
		Lead: "Physical: what the steps say. Effective: what the queueing model needs to give the windows' latencies. The shift between them " +
			"is the model's error; held means that the windows do not show it."}
	t := &page.Table{ID: "parameter-table", Caption: "Parameters",
		Cols: []page.Column{{Head: "Server"}, {Head: "From"}, {Head: "Parameter"}, {Head: "Value", Num: true}, {Head: "95 %"}, {Head: "Unit"},
			{Head: "Identified"}, {Head: "Floor", Num: true, Help: "what the hardware allows"}, {Head: "Utilisation", Num: true,
				Help: "floor / value"}, {Head: "Shift", Num: true, Help: "effective / physical"},
			{Head: "Prior", Num: true, Help: "share of what is known that the physical value brought"}}}
	for i := range q.Servers {
		s := &q.Servers[i]
		for _, set := range []struct {
			name string
			list []result.QueueParameter
		}{{"steps", s.Physical}, {"latencies", s.Effective}} {
			for _, p := range set.list {
				t.Grow(func() page.Row {
					return page.Row{Cells: []page.Cell{page.Name(s.ID), page.Plain(set.name), page.Name(p.Name), page.Num(p.Value), span(p.CI95),
						page.Plain(p.Unit), page.Plain(p.Identified),
						page.Number(p.Floor), page.Number(p.Utilisation), page.Number(p.Shift), page.Percent(p.PriorShare)}}
				})
			}
		}
	}
	x.Blocks = page.Tables(page.Capped(t, "in the order of the file", "queue.json, servers"))
	return x
}

func span(b *[2]float64) page.Cell {
	if b == nil {
		return page.Plain(words.Unknown)
	}
	return page.Cell{Text: words.Short(b[0]) + " to " + words.Short(b[1]), Class: "nb"}
}

func scoreSection(q *result.Queue) page.Section {
	x := page.Section{ID: "scores", Nav: "Errors", Title: "Errors on windows",
		Lead: "WAPE of the windows' mean TTFT and ITL. The constant is the median of the training windows; a model must beat it to be worth " +
			"anything. one_ahead: each window predicted from those before it."}
	x.Blocks = page.FigureBlocks(figuresOf(scoreFigure(q, "ttft", "TTFT"), scoreFigure(q, "itl", "ITL")))
	t := &page.Table{ID: "score-table", Caption: "Errors by estimator",
		Cols: []page.Column{{Head: "Server"}, {Head: "Estimator"}, {Head: "Windows of"}, {Head: "Windows", Num: true},
			{Head: "TTFT WAPE", Num: true}, {Head: "TTFT bias", Num: true}, {Head: "ITL WAPE", Num: true}, {Head: "ITL bias",
				Num: true}, {Head: "No answer", Num: true}}}
	for i := range q.Servers {
		for _, s := range q.Servers[i].Scores {
			t.Grow(func() page.Row {
				return page.Row{Cells: []page.Cell{page.Name(q.Servers[i].ID), page.Name(s.Estimator), page.Plain(s.Set), page.Count(s.Windows),
					page.Percent(s.TTFTWape), page.Shown(s.TTFTBias, words.Signed),
					page.Percent(s.ITLWape), page.Shown(s.ITLBias, words.Signed), page.ZeroDim(s.Unpredicted)}}
			})
		}
	}
	x.Blocks = append(x.Blocks, page.Tables(page.Capped(t, "in the order of the file", "queue.json, servers[].scores"))...)
	return x
}

func showSection(q *result.Queue) page.Section {
	x := page.Section{ID: "shown", Nav: "Shown", Title: "What the windows show",
		Lead: "A window gives two numbers for three unknowns. At one operating point they show two directions, however many windows there " +
			"are; the sweep would show the rest."}
	t := &page.Table{ID: "shown-table", Caption: "Windows and what they tell apart",
		Cols: []page.Column{{Head: "Server"}, {Head: "Windows", Num: true}, {Head: "Kept", Num: true}, {Head: "Dropped, by reason"},
			{Head: "Rank", Num: true}, {Head: "Condition", Num: true}, {Head: "Not shown"}, {Head: "Sweep that would show it"}}}
	for i := range q.Servers {
		s := &q.Servers[i]
		cells := []page.Cell{page.Name(s.ID), page.Count(s.Windows.Read), page.Count(s.Windows.Kept),
			page.Prose(words.Reasons(s.Windows.Dropped))}
		if id := s.Identify; id != nil {
			cells = append(cells, page.Count(id.Rank), page.Number(id.Condition), page.Prose(directions(id.Null)), page.Prose(sweepOf(id.Sweep)))
		} else {
			cells = append(cells, page.Plain(words.Unknown), page.Plain(words.Unknown), page.Prose(s.Reason), page.Plain(""))
		}
		t.Rows = append(t.Rows, page.Row{Cells: cells})
	}
	x.Blocks = page.Tables(page.Capped(t, "in the order of the file", "queue.json, servers"))
	for i := range q.Servers {
		x.Blocks = append(x.Blocks, page.FindingBlocks(q.Servers[i].ID, q.Servers[i].Findings)...)
	}
	return x
}

func directions(null []result.QueueDirection) string {
	var out []string
	for _, d := range null {
		out = append(out, strings.Join(d.Names, " with "))
	}
	return strings.Join(out, "; ")
}

func sweepOf(points []result.QueuePoint) string {
	var out []string
	for _, p := range points {
		out = append(out, fmt.Sprintf("%.0f/%.0f at %.3g/s", p.PromptTokens, p.OutputTokens, p.RateRPS))
	}
	return strings.Join(out, ", ")
}

func trackSection(q *result.Queue) page.Section {
	x := page.Section{ID: "tracks", Nav: "Tuners", Title: "Online tuners over the same windows",
		Lead: "Mean NIS is 2 for a filter whose noise is right; below it is underconfident, above overconfident. A replica that rejects a " +
			"window takes its covariance back too, so after a lasting jump it rejects all: locked out."}
	t := &page.Table{ID: "track-table", Caption: "Tuners", Cols: []page.Column{{Head: "Server"}, {Head: "Estimator"}, {Head: "Flavour"},
		{Head: "Windows", Num: true}, {Head: "Accepted", Num: true}, {Head: "Mean NIS", Num: true},
		{Head: "Rejected", Num: true}, {Head: "No answer", Num: true}, {Head: "Locked out", Num: true}, {Head: "Final"}, {Head: "Verdict"}}}
	for i := range q.Servers {
		for _, r := range q.Servers[i].Tracks {
			t.Grow(func() page.Row {
				var final []string
				for _, v := range r.Final {
					final = append(final, words.Short(v))
				}
				return page.Row{Cells: []page.Cell{page.Name(q.Servers[i].ID), page.Name(r.Estimator), page.Plain(r.Flavour), page.Count(r.Windows),
					page.Count(r.Accepted), page.Number(r.MeanNIS), page.PercentOf(r.RejectedFrac),
					page.ZeroDim(r.Unpredicted), page.ZeroDim(r.LockedOut), page.Plain(strings.Join(final, " ")), page.Prose(r.Verdict)}}
			})
		}
	}
	x.Blocks = page.Tables(page.Capped(t, "in the order of the file", "queue.json, servers[].tracks"))
	return x
}

func sizeSection(q *result.Queue) page.Section {
	x := page.Section{ID: "sizes", Nav: "Sizes", Title: "The largest rate that meets the targets",
		Lead: "Targets are means, as the autoscalers' are. The simulator ran at the rate with the same parameters."}
	t := &page.Table{ID: "size-table", Caption: "Rates of one replica",
		Cols: []page.Column{{Head: "Server"}, {Head: "Target TTFT ms", Num: true}, {Head: "Target ITL ms", Num: true},
			{Head: "Requests/s", Num: true}, {Head: "Binding"},
			{Head: "TTFT ms", Num: true}, {Head: "ITL ms", Num: true}, {Head: "Simulated TTFT", Num: true}, {Head: "Simulated ITL",
				Num: true}, {Head: "TTFT P95", Num: true}, {Head: "ITL P95", Num: true}}}
	for i := range q.Servers {
		z := q.Servers[i].Sizing
		if z == nil {
			continue
		}
		row := []page.Cell{page.Name(q.Servers[i].ID), page.Num(z.TargetTTFTMs), page.Num(z.TargetITLMs), page.Num(z.RateRPS),
			page.Plain(z.Binding), page.Num(z.TTFTMs), page.Num(z.ITLMs)}
		if p := z.Simulated; p != nil {
			row = append(row, page.Num(p.TTFTMs), page.Num(p.ITLMs), page.Num(p.TTFTP95Ms), page.Num(p.ITLP95Ms))
		} else {
			row = append(row, page.Number(nil), page.Number(nil), page.Number(nil), page.Number(nil))
		}
		t.Rows = append(t.Rows, page.Row{Cells: row})
	}
	x.Blocks = page.Tables(page.Capped(t, "in the order of the file", "queue.json, servers[].sizing"))
	return x
}

func planSection(q *result.Queue) page.Section {
	x := page.Section{ID: "plan", Nav: "Plan", Title: "Allocation",
		Lead: "By priority, largest regret first, as the autoscalers do; the optimum stands beside it for up to ten servers."}
	for _, p := range []struct {
		id, name string
		plan     *result.QueuePlan
	}{{"greedy", "Greedy", q.Plan}, {"optimum", "Optimum", q.Optimum}} {
		if p.plan == nil {
			continue
		}
		t := &page.Table{ID: p.id, Caption: fmt.Sprintf("%s: %s cents per hour, %s unserved", p.name, words.Short(p.plan.Cost),
			words.Plural(len(p.plan.Unserved), "server")),
			Cols: []page.Column{{Head: "Server"}, {Head: "Priority", Num: true}, {Head: "Requests/s", Num: true}, {Head: "Accelerator"},
				{Head: "Replicas", Num: true}, {Head: "Wanted", Num: true}, {Head: "Cents/h", Num: true}, {Head: "Penalty", Num: true}}}
		for _, g := range p.plan.Servers {
			t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Name(g.Name), page.Count(g.Priority), page.Num(g.RateRPS),
				page.Plain(g.Accelerator), page.Count(g.Replicas), page.Count(g.Wanted), page.Num(g.Cost), page.Num(g.Value)}})
		}
		x.Blocks = append(x.Blocks, page.Tables(page.Capped(t, "by name", "queue.json"))...)
	}
	return x
}

func originSection(q *result.Queue) page.Section {
	x := page.Section{ID: "origin", Nav: "Origin", Title: "Provenance", Lead: "The command and its inputs."}
	x.Blocks = append(page.FindingBlocks("Warnings", q.Warnings), page.Block{Heading: "How to reproduce"},
		page.Block{Code: "blis-train " + q.Command})
	t := &page.Table{ID: "inputs", Caption: "Inputs", Closed: true,
		Cols: []page.Column{{Head: "Name"}, {Head: "Bytes", Num: true}, {Head: "SHA-256"}}}
	for _, in := range q.Inputs {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Plain(in.Name), page.Count64(in.Bytes), {Text: in.SHA256, Class: "mono"}}})
	}
	x.Blocks = append(x.Blocks, page.Tables(page.Capped(t, "in the order of the files", "queue.json, inputs"))...)
	return x
}

// figuresOf drops figures without panels.
func figuresOf(list ...*draw.Figure) []*draw.Figure {
	return slices.DeleteFunc(list, func(f *draw.Figure) bool { return f == nil || len(f.Panels) == 0 })
}
