package autoscale

// This file makes the sections of the page of queue.json (page.go).

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/report"
)

// headOf returns the head of the page: how many servers have parameters, and the options of the
// fit.
func headOf(q *Queue) report.Head {
	h := report.Head{
		Class:    "none",
		Badge:    "QUEUE",
		Kicker:   "Parameters of an autoscaler's queueing model",
		Sentence: "The flavours of queueing models beside the simulator.",
	}
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
		h.Sentence = fmt.Sprintf("%d of %s have effective parameters of %s.", fitted, report.Plural(len(q.Servers),
			"server"), q.Flavour)
	}
	h.Failed = report.FirstOf(h.Failed, 12, "queue.json")
	h.Facts = []report.Fact{
		report.FactOf("Flavour", q.Flavour), report.FactOf("Window",
			fmt.Sprintf("%g s every %g s, at least %d requests, by %s",
				q.Options.WindowS,
				q.Options.HopS, q.Options.MinRequests, q.Options.Semantics)),
		report.FactOf("Hold-out", report.Pct(q.Options.HoldOut)+" of the windows"), report.FactOf("Waiting room",
			fmt.Sprintf("%g times the seats", q.Options.QueueRatio)),
	}
	return h
}

// parameterSection returns the physical and the effective parameters of each server.
func parameterSection(q *Queue) report.Section {
	x := report.Section{
		ID:    "parameters",
		Nav:   "Parameters",
		Title: "Parameters, physical and effective",
		Lead: "Physical: what the steps say. Effective: what the queueing model needs to give the windows' " +
			"latencies. The shift between them is the model's error; held: the windows do not determine it.",
	}
	cols := report.ColumnsOf("Server", "From", "Parameter", "# Value", "95 %", "Unit", "Identified",
		"# Floor ? what the hardware allows",
		"# Utilisation ? floor / value", "# Shift ? effective / physical",
		"# Prior ? share of what is known that the physical value brought")
	x.Blocks = serverTable(q, "parameter-table", "Parameters", "servers", cols,
		func(s *QueueServer, add func(...report.Cell)) {
			for _, set := range []struct {
				name string
				list []queueParameter
			}{{"steps", s.Physical}, {"latencies", s.Effective}} {
				for _, p := range set.list {
					add(report.Name(s.ID), report.Plain(set.name), report.Name(p.Name), report.Num(p.Value),
						span(p.CI95), report.Plain(p.Unit),
						report.Plain(p.Identified), report.Number(p.Floor), report.Number(p.Utilisation),
						report.Number(p.Shift),
						report.Percent(p.PriorShare))
				}
			}
		})
	return x
}

// serverTable returns a table of the rows that function rows adds for each server, no block if there are none; key is
// where queue.json has them.
func serverTable(
	q *Queue,
	id, caption, key string,
	cols []report.Column,
	rows func(s *QueueServer, add func(cells ...report.Cell)),
) []report.Block {
	t := &report.Table{ID: id, Caption: caption, Cols: cols}
	for i := range q.Servers {
		rows(&q.Servers[i], t.Put)
	}
	return report.Tables(report.Capped(t, "in the order of the file", "queue.json, "+key))
}

// span returns the text of an interval.
func span(b *[2]float64) report.Cell {
	if b == nil {
		return report.Plain(report.Unknown)
	}
	return report.Cell{Text: report.Short(b[0]) + " to " + report.Short(b[1]), Class: "nb"}
}

// scoreSection returns the errors of each estimator on windows.
func scoreSection(q *Queue) report.Section {
	x := report.Section{
		ID:    "scores",
		Nav:   "Errors",
		Title: "Errors on windows",
		Lead: "WAPE of the windows' mean TTFT and ITL. The constant is the median of the training windows; a " +
			"model must beat it to be worth anything. one_ahead: each window predicted from those before it.",
	}
	x.Blocks = report.FigureBlocks([]*report.Figure{scoreFigure(q, "ttft", "TTFT"), scoreFigure(q, "itl", "ITL")})
	cols := report.ColumnsOf("Server", "Estimator", "Windows of", "# Windows", "# TTFT WAPE", "# TTFT bias",
		"# ITL WAPE", "# ITL bias",
		"# No answer")
	scores := serverTable(q, "score-table", "Errors by estimator", "servers[].scores", cols,
		func(of *QueueServer, add func(...report.Cell)) {
			for _, s := range of.Scores {
				add(report.Name(of.ID), report.Name(s.Estimator), report.Plain(s.Set), report.Count(s.Windows),
					report.Percent(s.TTFTWape),
					report.Shown(s.TTFTBias, report.Signed), report.Percent(s.ITLWape),
					report.Shown(s.ITLBias, report.Signed),
					report.ZeroDim(s.Unpredicted))
			}
		})
	x.Blocks = append(x.Blocks, scores...)
	return x
}

// showSection returns which directions of the parameters the windows of each server determine, and
// the findings.
func showSection(q *Queue) report.Section {
	x := report.Section{
		ID:    "shown",
		Nav:   "Shown",
		Title: "What the windows show",
		Lead: "A window gives two numbers for three unknowns. At one operating point they show two directions, " +
			"however many windows there are; the sweep would show the rest.",
	}
	cols := report.ColumnsOf("Server", "# Windows", "# Kept", "Dropped, by reason", "# Rank", "# Condition",
		"Not shown",
		"Sweep that would show it")
	x.Blocks = serverTable(q, "shown-table", "Windows and what they tell apart", "servers", cols, func(s *QueueServer,
		add func(...report.Cell)) {
		cells := []report.Cell{report.Name(s.ID), report.Count(s.Windows.Read), report.Count(s.Windows.Kept),
			report.Prose(report.Reasons(s.Windows.Dropped))}
		if id := s.Identify; id != nil {
			add(append(cells, report.Count(id.Rank), report.Number(id.Condition), report.Prose(directionNames(id.Null)),
				report.Prose(sweepOf(id.Sweep)))...)
		} else {
			add(append(cells, report.Plain(report.Unknown), report.Plain(report.Unknown), report.Prose(s.Reason),
				report.Plain(""))...)
		}
	})
	for i := range q.Servers {
		x.Blocks = append(x.Blocks, report.FindingBlocks(q.Servers[i].ID, q.Servers[i].Findings)...)
	}
	return x
}

// directionNames returns the parameters of each undetermined direction.
func directionNames(null []queueDirection) string {
	var texts []string
	for _, d := range null {
		texts = append(texts, strings.Join(d.Names, " with "))
	}
	return strings.Join(texts, "; ")
}

// sweepOf returns the proposed operating points as a text: prompt/output tokens at a rate.
func sweepOf(points []queuePoint) string {
	var out []string
	for _, p := range points {
		out = append(out, fmt.Sprintf("%.0f/%.0f at %.3g/s", p.PromptTokens, p.OutputTokens, p.RateRPS))
	}
	return strings.Join(out, ", ")
}

// trackSection returns the results of the online estimators.
func trackSection(q *Queue) report.Section {
	x := report.Section{
		ID:    "tracks",
		Nav:   "Tuners",
		Title: "Online tuners over the same windows",
		Lead: "Mean NIS is 2 for a filter whose noise is right; below it is underconfident, above overconfident. " +
			"A replica that rejects a window takes its covariance back too, so after a lasting jump it rejects all: " +
			"locked out.",
	}
	cols := report.ColumnsOf("Server", "Estimator", "Flavour", "# Windows", "# Accepted", "# Mean NIS",
		"# Rejected", "# No answer",
		"# Locked out", "Final", "Verdict")
	x.Blocks = serverTable(q, "track-table", "Tuners", "servers[].tracks", cols,
		func(s *QueueServer, add func(...report.Cell)) {
			for _, r := range s.Tracks {
				var final []string
				for _, x := range r.Final {
					final = append(final, report.Short(x))
				}
				add(report.Name(s.ID), report.Name(r.Estimator), report.Plain(r.Flavour), report.Count(r.Windows),
					report.Count(r.Accepted),
					report.Number(r.MeanNIS), report.PercentOf(r.RejectedFrac), report.ZeroDim(r.Unpredicted),
					report.ZeroDim(r.LockedOut),
					report.Plain(strings.Join(final, " ")), report.Prose(r.Verdict))
			}
		})
	return x
}

// sizeSection returns the largest rates that meet the targets.
func sizeSection(q *Queue) report.Section {
	x := report.Section{
		ID:    "sizes",
		Nav:   "Sizes",
		Title: "The largest rate that meets the targets",
		Lead: "Targets are means, as the autoscalers' are. The simulator ran at the rate with the same parameters. " +
			"Replicas are those that the target TPS needs, seats (max_num_seqs) the fewest near the peak; –: not asked for.",
	}
	cols := report.ColumnsOf("Server", "# Target TTFT ms", "# Target ITL ms", "# Target TPS", "# Requests/s",
		"Binding", "# Replicas",
		"# Seats", "# TTFT ms", "# ITL ms", "# Simulated TTFT", "# Simulated ITL", "# TTFT P95", "# ITL P95")
	x.Blocks = serverTable(q, "size-table", "Rates of one replica", "servers[].sizing", cols,
		func(s *QueueServer, add func(...report.Cell)) {
			z := s.Sizing
			if z == nil {
				return
			}
			row := []report.Cell{report.Name(s.ID), askedFor(z.TargetTTFTMs), askedFor(z.TargetITLMs),
				askedFor(z.TargetTPS),
				report.Num(z.RateRPS), report.Plain(z.Binding), askedFor(float64(z.Replicas)),
				askedFor(float64(z.Concurrency)),
				report.Num(z.TTFTMs), report.Num(z.ITLMs)}
			if p := z.Simulated; p != nil {
				add(append(row, report.Num(p.TTFTMs), report.Num(p.ITLMs), report.Num(p.TTFTP95Ms),
					report.Num(p.ITLP95Ms))...)
			} else {
				add(append(row, report.Number(nil), report.Number(nil), report.Number(nil), report.Number(nil))...)
			}
		})
	return x
}

// askedFor returns the cell of a target, or of a number found for one; 0 is none.
func askedFor(v float64) report.Cell {
	if v == 0 {
		return report.Number(nil)
	}
	return report.Num(v)
}

// planSection returns the greedy and the best allocation.
func planSection(q *Queue) report.Section {
	x := report.Section{
		ID:    "plan",
		Nav:   "Plan",
		Title: "Allocation",
		Lead: "By priority, largest regret first, as the autoscalers do; the optimum is shown for up to " +
			"ten servers.",
	}
	for _, p := range []struct {
		id, name string
		plan     *QueuePlan
	}{{"greedy", "Greedy", q.Plan}, {"optimum", "Optimum", q.Optimum}} {
		if p.plan == nil {
			continue
		}
		t := report.NewTable(p.id, fmt.Sprintf("%s: %s cents per hour, %s unserved", p.name, report.Short(p.plan.Cost),
			report.Plural(len(p.plan.Unserved), "server")),
			"Server", "# Priority", "# Requests/s", "Accelerator", "# Replicas", "# Wanted", "# Cents/h", "# Penalty")
		for _, g := range p.plan.Servers {
			t.Put(report.Name(g.Name), report.Count(g.Priority), report.Num(g.RateRPS), report.Plain(g.Accelerator),
				report.Count(g.Replicas), report.Count(g.Wanted), report.Num(g.Cost), report.Num(g.Value))
		}
		x.Blocks = append(x.Blocks, report.Tables(report.Capped(t, "by name", "queue.json"))...)
	}
	return x
}

// originSection returns the command, its inputs and the warnings.
func originSection(q *Queue) report.Section {
	x := report.Section{
		ID:    "origin",
		Nav:   "Origin",
		Title: "Provenance",
		Lead:  "The command and its inputs.",
	}
	x.Blocks = append(report.FindingBlocks("Warnings", q.Warnings), report.Block{Heading: "How to reproduce"},
		report.Block{Code: []string{"blis-train " + q.Command}})
	t := &report.Table{
		ID:      "inputs",
		Caption: "Inputs",
		Closed:  true,
		Cols:    report.ColumnsOf("Name", "# Bytes", "SHA-256"),
	}
	for _, in := range q.Inputs {
		t.Put(report.Plain(in.Name), report.Count(in.Bytes), report.Cell{Text: in.SHA256, Class: "mono"})
	}
	x.Blocks = append(x.Blocks, report.Tables(report.Capped(t, "in the order of the files", "queue.json, inputs"))...)
	return x
}

// shownSets are the sets of windows that the figure of errors may show, the most convincing first.
var shownSets = []string{"validation", "hold_out", "train"}

// scoreFigure draws the error of each estimator on each server as a matrix, on windows that it has
// not seen if there are any; nil without errors.
func scoreFigure(q *Queue, id, metric string) *report.Figure {
	var servers, estimators []string
	for i := range q.Servers {
		id := q.Servers[i].ID
		for _, s := range q.Servers[i].Scores {
			if !slices.Contains(shownSets, s.Set) {
				continue
			}
			if !slices.Contains(servers, id) {
				servers = append(servers, id)
			}
			if !slices.Contains(estimators, s.Estimator) {
				estimators = append(estimators, s.Estimator)
			}
		}
	}
	h := report.HeatOf(servers, estimators, "estimator")
	h.Log = true
	known := false
	for i := range q.Servers {
		row := slices.Index(servers, q.Servers[i].ID)
		for _, set := range slices.Backward(shownSets) { // the most telling is written last
			for _, s := range q.Servers[i].Scores {
				v := s.ITLWape
				if id == "ttft" {
					v = s.TTFTWape
				}
				if s.Set != set || v == nil {
					continue
				}
				known = true
				col := slices.Index(estimators, s.Estimator)
				h.Value[row][col] = v
				h.Tip[row][col] = fmt.Sprintf("%s on %s: %s WAPE %s on %s of %s", s.Estimator, q.Servers[i].ID,
					metric, report.Pct(*v),
					report.Plural(s.Windows, "window"), set)
			}
		}
	}
	if !known {
		return nil
	}
	return &report.Figure{
		ID:    "errors-" + id,
		Title: metric + ": WAPE by server and estimator",
		Note: "Stronger colour is worse. Windows of a validation, else of the hold-out, else the fitted ones; the " +
			"table states which. A dash is an estimator without an answer.",
		Panels: report.BothWidths("matrix of "+metric+" errors by server and estimator; the table below holds the "+
			"numbers", h.Draw),
	}
}
