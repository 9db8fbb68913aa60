package main

// This file predicts many points, for predict with axes such as tp=1,2,4.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/trace"
)

// predictSweep predicts all points of a sweep and prints a table and a plot; with -o it writes a
// picture. text has the axes.
func (con *console) predictSweep(c *cli.Context, q predict.Question, text string, doc *predictDoc) error {
	qs, err := q.Sweep(text)
	if err != nil {
		return err
	}
	// An axis would override the one value of its flag. A flag with several values is the axis itself.
	for _, axis := range append(listFlags, "ep") {
		flag := axis
		switch {
		case axis == "rate" && c.IsSet("concurrency"):
			flag = "concurrency"
		case axis == "concurrency" && c.IsSet("rate"):
			flag = "rate"
		}
		if hasAxis(text, axis) && c.IsSet(flag) && (flag != axis || !strings.Contains(c.String(flag), ",")) {
			return usagef("--%s and the axis %s: got both, want one", flag, axis)
		}
	}
	if doc.Points, err = predict.All(c.Context, qs, c.Int("workers")); err != nil {
		return err
	}
	// Upper bounds come after all estimates, because the two are not comparable.
	stat.SortStable(doc.Points, func(a, b *predict.Prediction) int {
		switch {
		case a.Bound == b.Bound:
			return 0
		case a.Bound:
			return 1
		}
		return -1
	})
	answered := 0
	met := 0 // points that meet the targets by an estimate, not only by a bound
	for _, p := range doc.Points {
		if p.Refused == "" {
			answered++
		}
		if p.Met != nil && *p.Met && !p.Bound {
			met++
		}
	}
	for _, p := range doc.Points {
		con.warn(newWarnings(doc.Points, p))
	}
	if answered > 0 {
		showSweep(con, doc.Points, &q.SLO)
	}
	showSweepRefusals(con, doc.Points)
	if answered == 0 {
		return trace.Hinted(trace.Errorf("", "%s", doc.Points[0].Refused), doc.Points[0].Hint)
	}
	con.printText(func() string { return paretoPlot(paretoPoints(doc.Points)) })
	showAccuracies(con, doc.Points)
	if out := c.String("out"); out != "" {
		if err := files.Write(out, loadPicture(predictedPoints(doc.Points), &q.SLO)); err != nil {
			return err
		}
		con.infof("wrote %s: latency against throughput", out)
	}
	if err := con.document(doc); err != nil {
		return err
	}
	if len(q.SLO.Limits) > 0 && met == 0 {
		return gatef("predict: no point meets %s", targetsText(&q.SLO))
	}
	return nil
}

// newWarnings returns the warnings of a point that no point before it has.
func newWarnings(points []*predict.Prediction, p *predict.Prediction) []trace.Finding {
	var out []trace.Finding
	for _, w := range p.Warnings {
		isOld := false
		for _, o := range points[:slices.Index(points, p)] {
			isOld = isOld || slices.Contains(o.Warnings, w)
		}
		if !isOld {
			out = append(out, w)
		}
	}
	return out
}

// sweepColumn is a column of a sweep's table: its heading, and the value of a point.
type sweepColumn struct {
	head string
	of   func(*predict.Prediction) string
}

// sweepAxes are the columns that describe a point; those that are the same in all points go into the title.
var sweepAxes = []sweepColumn{
	{"model", func(p *predict.Prediction) string { return p.Model[strings.LastIndex(p.Model, "/")+1:] }},
	{"GPU", func(p *predict.Prediction) string { return p.Hardware }},
	{"tp", func(p *predict.Prediction) string { return fmt.Sprint(p.TP) }},
	{"EP", func(p *predict.Prediction) string {
		if p.EP {
			return "yes"
		}
		return ""
	}},
	{"load", func(p *predict.Prediction) string {
		if p.RateRPS > 0 {
			return fmt.Sprintf("%g/s", p.RateRPS)
		}
		return fmt.Sprint(p.Concurrency)
	}},
	{"input", func(p *predict.Prediction) string { return trace.Thousands(p.InputTokens) }},
	{"output", func(p *predict.Prediction) string { return trace.Thousands(p.OutputTokens) }},
}

// mostSweepAxes is the number of axes up to which the table has room for the column of what limits
// a point.
const mostSweepAxes = 4

// showSweep prints the table of the points that could be predicted.
func showSweep(con *console, points []*predict.Prediction, targets *predict.Targets) {
	points = slices.DeleteFunc(slices.Clone(points), func(p *predict.Prediction) bool { return p.Refused != "" })
	// Axes with different values become columns; the value that all points share goes into the title.
	var varied []sweepColumn
	title := []string{points[0].Model, points[0].Hardware}
	for _, a := range sweepAxes {
		isVaried := slices.ContainsFunc(points, func(p *predict.Prediction) bool { return a.of(p) != a.of(points[0]) })
		switch {
		case isVaried:
			varied = append(varied, a)
		case a.head != "model" && a.head != "GPU" && a.of(points[0]) != "":
			title = append(title, a.head+" "+a.of(points[0]))
		}
		if isVaried && a.head == "model" {
			title[0] = "several models"
		}
		if isVaried && a.head == "GPU" {
			title[1] = "several GPUs"
		}
	}
	figures := sweepFigures(targets)
	hasTargets := len(targets.Limits) > 0
	hasLimits := len(varied) <= mostSweepAxes && !hasTargets
	var head cells
	for _, a := range varied {
		head = append(head, a.head)
	}
	for _, f := range figures {
		head = append(head, strings.ToUpper(f.Metric)+" "+f.Figure())
	}
	head = append(head, "tok/s/GPU")
	if hasTargets {
		head = append(head, "met", "highest")
	}
	if hasLimits {
		head = append(head, "limited by")
	}
	var rows []cells
	for _, p := range points {
		above := "" // before latencies
		below := "" // before throughputs
		if p.Bound {
			above = "> "
			below = "< "
		}
		var row cells
		for _, a := range varied {
			row = append(row, a.of(p))
		}
		for _, f := range figures {
			row = append(row, above+shortMs(predictedFigure(p, f)))
		}
		row = append(row, below+tokensText(p.TokensPerS))
		if hasTargets {
			row = append(row, metMark(p), highestLoad(p.MaxLoad, below))
		}
		if hasLimits {
			limit, _, _ := strings.Cut(p.LimitedBy, " (")
			if p.Saturated {
				limit = "saturated"
			}
			row = append(row, limit)
		}
		rows = append(rows, row)
	}
	name := strings.Join(title, ", ") + " (latencies in ms)"
	if hasTargets {
		name += ": " + targetsText(targets)
	}
	con.table(name, head, rows)
}

// sweepFigures returns the latencies of a sweep's table, as targets without a limit: those of the targets, filled up to
// three with the usual ones of other metrics. Limits of goodput are of single requests, and name no statistic.
func sweepFigures(targets *predict.Targets) []predict.Target {
	out := slices.Clone(targets.Limits)
	if targets.Goodput > 0 {
		out = nil
	}
	for _, usual := range []predict.Target{{Metric: predict.TTFT}, {Metric: predict.TTFT, Quantile: 0.95}, {Metric: predict.TPOT}} {
		same := func(t predict.Target) bool {
			return t.Metric == usual.Metric && (t.Quantile == usual.Quantile || len(targets.Limits) > 0)
		}
		if len(out) < 3 && !slices.ContainsFunc(out, same) {
			out = append(out, usual)
		}
	}
	order := func(t predict.Target) int { return slices.Index(predict.Metrics, t.Metric) }
	stat.SortStable(out, func(a, b predict.Target) int { return cmp.Compare(order(a), order(b)) })
	return out
}

// predictedFigure returns the statistic of a point that a target names; nil if the point does not
// have it.
func predictedFigure(p *predict.Prediction, t predict.Target) *float64 {
	f := map[string]*predict.Figures{predict.TTFT: &p.TTFT, predict.TPOT: &p.TPOT, predict.ITL: &p.ITL, predict.E2E: &p.E2E}[t.Metric]
	return map[string]*float64{"mean": f.Mean, "p50": f.P50, "p90": f.P90, "p95": f.P95, "p99": f.P99}[t.Figure()]
}

// metMark returns whether a point meets the targets: yes, no, or bound if only an upper bound of
// its throughput does.
func metMark(p *predict.Prediction) string {
	switch {
	case !*p.Met:
		return markNotMet
	case p.Bound:
		return "bound"
	}
	return markMet
}

// highestLoad returns the highest load that meets the targets, after the prefix below; "" if it was
// not searched for.
func highestLoad(m *predict.MaxLoad, below string) string {
	switch {
	case m == nil:
		return ""
	case m.RateRPS > 0:
		return below + report.Short(m.RateRPS) + "/s"
	}
	return below + trace.Thousands(int64(m.Concurrency))
}

// showSweepRefusals prints why points could not be predicted, each reason once with the servers
// that it is true of.
func showSweepRefusals(con *console, points []*predict.Prediction) {
	servers := map[string][]string{}
	var reasons []string
	for _, p := range points {
		if p.Refused == "" {
			continue
		}
		reason := p.Refused
		if p.Hint != "" {
			reason += "; hint: " + p.Hint
		}
		if servers[reason] == nil {
			reasons = append(reasons, reason)
		}
		server := fmt.Sprintf("%s on %s tp %d", p.Model, p.Hardware, max(1, p.TP))
		if !slices.Contains(servers[reason], server) {
			servers[reason] = append(servers[reason], server)
		}
	}
	for _, reason := range reasons {
		con.infof("%s: %s", strings.Join(servers[reason], ", "), reason)
	}
}

// showAccuracies prints how far the points can be trusted, each sentence once with the servers that
// it is true of.
func showAccuracies(con *console, points []*predict.Prediction) {
	servers := map[string][]string{}
	var sentences []string
	for _, p := range points {
		if p.Trust == nil {
			continue
		}
		sentence := p.Trust.Sentence
		if servers[sentence] == nil {
			sentences = append(sentences, sentence)
		}
		server := fmt.Sprintf("%s on %d x %s", p.Model, p.GPUs, p.Hardware)
		if !slices.Contains(servers[sentence], server) {
			servers[sentence] = append(servers[sentence], server)
		}
	}
	for _, sentence := range sentences {
		con.infof("accuracy: %s: %s", strings.Join(servers[sentence], ", "), sentence)
	}
}

// Size of the terminal's plot, in characters.
const (
	plotColumns = 64
	plotRows    = 12
)

// paretoPoints returns the estimates of a sweep by their servers.
func paretoPoints(points []*predict.Prediction) []operatingPoint {
	var out []operatingPoint
	for _, p := range points {
		if p.Refused != "" || p.Bound || p.TPOT.Mean == nil || *p.TPOT.Mean <= 0 {
			continue
		}
		name := fmt.Sprintf("%d x %s", p.GPUs, p.Hardware)
		if p.Model != points[0].Model {
			name = p.Model + " on " + name
		}
		out = append(out, operatingPoint{server: name, tokensPerS: p.TokensPerS, tpotMs: *p.TPOT.Mean})
	}
	return out
}

// paretoPlot returns a plot in characters of output tokens per second of a user against those of a
// GPU. Each server has a letter, upper case where no other point is better in both; the list below the
// plot has it in upper case if one of the server's points is. It returns "" for fewer than three estimates.
func paretoPlot(points []operatingPoint) string {
	type dot struct {
		x      float64 // tokens/s per GPU
		y      float64 // tokens/s per user
		letter int     // index of the server in names
	}
	var dots []dot
	var names []string
	for _, p := range points {
		if !slices.Contains(names, p.server) {
			names = append(names, p.server)
		}
		dots = append(dots, dot{x: p.tokensPerS, y: 1e3 / p.tpotMs, letter: slices.Index(names, p.server)})
	}
	if len(dots) < 3 || len(names) > 26 {
		return ""
	}
	// The plot starts at 0 and ends at the largest values.
	mostX, mostY := 0.0, 0.0
	for _, d := range dots {
		mostX = math.Max(mostX, d.x)
		mostY = math.Max(mostY, d.y)
	}
	isServerBest := make([]bool, len(names))
	grid := make([][]byte, plotRows)
	for i := range grid {
		grid[i] = []byte(strings.Repeat(" ", plotColumns))
	}
	// draw writes the letters of the points that no other point beats in both, or of the others.
	draw := func(isBest bool) {
		for _, d := range dots {
			isBeaten := slices.ContainsFunc(dots, func(o dot) bool { return o.x >= d.x && o.y >= d.y && o != d && (o.x > d.x || o.y > d.y) })
			letter := byte('a' + d.letter)
			if !isBeaten {
				letter = byte('A' + d.letter)
				isServerBest[d.letter] = true
			}
			if isBeaten != isBest {
				row := plotRows - 1 - int(d.y/mostY*(plotRows-1)+0.5)
				grid[row][int(d.x/mostX*(plotColumns-1)+0.5)] = letter
			}
		}
	}
	// The best points last, so that they overwrite others in the same place.
	draw(false)
	draw(true)
	lines := []string{fmt.Sprintf("%7.0f output tokens/s of a user; capitals: no other point is better in both", mostY)}
	for i, row := range grid {
		mark := "│"
		if i == 0 {
			mark = "┤"
		}
		lines = append(lines, strings.TrimRight("        "+mark+string(row), " "))
	}
	right := fmt.Sprintf("%.0f output tokens/s of a GPU", mostX)
	lines = append(lines, "       0└"+strings.Repeat("─", plotColumns), fmt.Sprintf("        0%*s", plotColumns-1, right))
	for i, name := range names {
		letter := 'a' + i
		if isServerBest[i] {
			letter = 'A' + i
		}
		lines = append(lines, fmt.Sprintf("        %c %s", letter, name))
	}
	return strings.Join(lines, "\n") + "\n"
}
