package main

// This file is the command size: how many GPUs serve a load within latency targets.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/simulate"
	"github.com/blis-train/blis-train/sizing"
	"github.com/blis-train/blis-train/trace"
)

// sizeDoc is what size --json prints.
type sizeDoc struct {
	SchemaVersion  string           `json:"schema_version"`
	ToolVersion    string           `json:"tool_version"`
	*sizing.Answer                  // nil with Variants
	Variants       []*sizing.Answer `json:"variants,omitempty"` // one for each load, where lengths or rates have several values
}

// sizeCommand returns the command size.
func sizeCommand() *cli.Command {
	q := sizing.DefaultQuestion()
	return newCommand(&cli.Command{
		Name:    "size",
		Aliases: []string{"recommend"},
		Usage:   "how many GPUs serve a load within latency targets",
		Description: `Finds for each GPU and tensor-parallel size the fewest servers behind a router that meet the targets, by
simulating them, and prints a line for each deployment, the smallest or cheapest first. Exits 3 when
none meets the targets.

A target is METRIC.STATISTIC=TIME: ttft, tpot (a request's mean time per output token), itl (every gap between
two tokens) or e2e; mean or a percentile. With goodput=95% the limits are those of a request, and so many
requests meet them all.

Example:
   blis-train size --model Qwen/Qwen3-32B --hardware H100,B200 --rate 20 --input-len 2000 --output-len 300 \
      --slo ttft.p95=1s,tpot.mean=40ms
   blis-train size --model Qwen/Qwen3-32B --hardware H100 --concurrency 256 --slo ttft=2s,tpot=40ms,goodput=95% \
      --price H100=2.5`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "model", Destination: &q.Server.Model,
				Usage: "Hugging Face `NAME` of a built-in model, or the path of a config.json"},
			&cli.StringFlag{Name: "hardware", Usage: "GPUs to compare, `NAMES` such as H100,B200"},
			&cli.StringFlag{Name: "tp", DefaultText: "1,2,4,8", Usage: "tensor-parallel `SIZES` to compare"},
			&cli.StringFlag{Name: "ep", DefaultText: "both, for models with experts",
				Usage: "expert parallelism: `VALUES` true, false, or true,false to compare"},
			&cli.Int64Flag{Name: "dp", Usage: "data-parallel size `N` of each server (vLLM's own balancer)"},
			&cli.BoolFlag{Name: "pools", Destination: &q.Pools, Usage: "also compare separate servers for prefill and for decode (not validated)"},
			&cli.StringFlag{Name: "speculative-config", Destination: &q.Speculative,
				Usage: "also compare speculative decoding: the `JSON` of vLLM's flag, with synthetic_acceptance_length (not validated)"},
			&cli.StringFlag{Name: "vllm", Destination: &q.Server.Serve, Usage: "more `ARGUMENTS` of vllm serve, in quotes"},
			&cli.StringFlag{Name: "vllm-version", DefaultText: predict.AssumedVersion, Usage: "`RELEASE` of vLLM"},
			&cli.StringFlag{Name: "rate", Usage: "Poisson arrivals, `RPS` requests per second in all; several after commas are answered one by one"},
			&cli.IntFlag{Name: "concurrency", Destination: &q.Load.Clients,
				Usage: "closed loop of `N` clients in all, each sends its next request when its last one is answered"},
			&cli.StringFlag{Name: "input-len", DefaultText: fmt.Sprint(q.Load.InputTokens),
				Usage: "prompt `TOKENS` of a request, such as 2000, or 2000,4000 to compare"},
			&cli.StringFlag{Name: "output-len", DefaultText: fmt.Sprint(q.Load.OutputTokens), Usage: "output `TOKENS` of a request, one number or several"},
			&cli.StringFlag{Name: "workload",
				Usage: "requests from a `FILE` in place of the lengths: a trace of Mooncake, Azure, TraceV2 or Weka, a table of lengths, a generator"},
			&cli.IntFlag{Name: "max-requests", Usage: "only the first `N` requests of --workload"},
			&cli.Float64Flag{Name: "cached", Destination: &q.Load.CachedShare, Usage: "`SHARE` of each prompt that is found in the prefix cache, 0 to 1"},
			&cli.StringFlag{Name: "slo", Usage: "limits on latencies, `TARGETS` such as ttft.p95=1s,tpot.mean=40ms (P90 where no statistic is named), or ttft=1s,tpot=40ms,goodput=95%"},
			&cli.StringSliceFlag{Name: "price", Usage: "`GPU=USD` per hour of one GPU (repeatable); rows then go by cost"},
			&cli.StringFlag{Name: "router", Destination: &q.Routing, Value: q.Routing,
				Usage: "`POLICY` between replicas: " + strings.Join(cluster.Routes, ", ")},
			&cli.IntFlag{Name: "max-gpus", Destination: &q.MostGPUs, Value: q.MostGPUs, Usage: "look for deployments of at most `N` GPUs"},
			&cli.Int64Flag{Name: "seed", Destination: &q.Seed, Value: q.Seed, Usage: "`SEED` of lengths and arrivals"},
			outFlag("draw TPOT against throughput of the deployments into `FILE`, an SVG"),
			workersFlag(nil), verboseFlag(),
		},
	}, nil, func(c *cli.Context, con *console) error { return runSize(c, con, q) })
}

// runSize finds the deployments that meet the targets and prints them. It returns an error with
// exit status 3 if there is none.
func runSize(c *cli.Context, con *console, q sizing.Question) error {
	con.brief = false
	if err := completeSizeQuestion(c, con, &q); err != nil {
		return err
	}
	loads, err := sizeLoads(c, q.Load)
	if err != nil {
		return err
	}
	var answers []*sizing.Answer
	unmet := 0
	for _, load := range loads {
		own := q
		own.Load = load
		a, err := own.Answer(c.Context)
		if err != nil {
			return err
		}
		if len(answers) > 0 {
			con.printText(func() string { return "" })
		}
		showSizes(con, a, c.Bool("verbose"))
		answers = append(answers, a)
		if a.Best() == nil {
			unmet++
		}
	}
	if out := c.String("out"); out != "" {
		var points []operatingPoint
		for _, a := range answers {
			for _, p := range sizedPoints(a, true) {
				if len(answers) > 1 {
					p.server += ", " + lengthsText(&a.Load)
				}
				points = append(points, p)
			}
		}
		if err := files.Write(out, loadPicture(points, &q.Targets)); err != nil {
			return err
		}
		con.infof("wrote %s: TPOT against throughput", out)
	}
	doc := &sizeDoc{SchemaVersion: result.SchemaVersion, ToolVersion: folder.ToolVersion, Answer: answers[0]}
	if len(answers) > 1 {
		doc.Answer = nil
		doc.Variants = answers
	}
	if err := con.document(doc); err != nil {
		return err
	}
	switch {
	case unmet == 1 && len(answers) == 1:
		return gatef("size: no deployment meets %s", targetsText(&q.Targets))
	case unmet > 0:
		return gatef("size: no deployment meets %s with %d of %d loads", targetsText(&q.Targets), unmet, len(answers))
	}
	return nil
}

// sizeLoads returns the load with each of the lengths and rates that are given.
func sizeLoads(c *cli.Context, load predict.Load) ([]predict.Load, error) {
	loads := []predict.Load{load}
	for _, f := range []struct {
		name  string
		least float64
		want  string // in the error
		set   func(*predict.Load, float64)
	}{
		{"input-len", 1, "a whole number of at least 1", func(l *predict.Load, v float64) { l.InputTokens = int64(v) }},
		{"output-len", 2, "a whole number of at least 2", func(l *predict.Load, v float64) { l.OutputTokens = int64(v) }},
		{"rate", math.SmallestNonzeroFloat64, "a number above 0", func(l *predict.Load, v float64) { l.RateRPS = v }},
	} {
		text := c.String(f.name)
		if text == "" {
			continue
		}
		var next []predict.Load
		for _, word := range splitList(text) {
			v, err := strconv.ParseFloat(word, 64)
			isWhole := f.name == "rate" || v == math.Trunc(v)
			if err != nil || !(v >= f.least && v < 1e6) || !isWhole {
				return nil, usagef("--%s: got %q, want %s and below 1e6, or several between commas", f.name, word, f.want)
			}
			for _, l := range loads {
				f.set(&l, v)
				next = append(next, l)
			}
		}
		loads = next
	}
	return loads, nil
}

// completeSizeQuestion checks the flags of size, stores in q those that need parsing, and reads the file of
// --workload. Flags of single numbers and texts were stored in q when they were parsed (Destination).
func completeSizeQuestion(c *cli.Context, con *console, q *sizing.Question) (err error) {
	const mostClients = 1 << 16 // of all servers together; predict takes up to 1 << 14 of one
	hasRate := c.IsSet("rate")
	hasClients := c.IsSet("concurrency")
	path := c.String("workload")
	switch {
	case q.Server.Model == "" && q.Server.Serve == "":
		return usagef("size: missing --model NAME or config.json")
	case c.String("hardware") == "":
		return usagef("size: missing --hardware GPUS, such as H100,B200")
	case c.String("slo") == "":
		return usagef("size: missing --slo TARGETS, such as ttft.p95=1s,tpot.mean=40ms")
	case hasRate && hasClients:
		return usagef("--rate and --concurrency: got both, want one")
	case !hasRate && !hasClients && path == "":
		return usagef("size: missing the load: --rate, --concurrency or --workload")
	case hasClients && (q.Load.Clients < 1 || q.Load.Clients > mostClients):
		return usagef("--concurrency: got %d, want 1 to %d clients", q.Load.Clients, mostClients)
	case !(q.Load.CachedShare >= 0 && q.Load.CachedShare < 1):
		return usagef("--cached: got %g, want a share from 0 to below 1", q.Load.CachedShare)
	case c.IsSet("dp") && c.Int64("dp") < 1:
		return usagef("--dp: got %d, want at least 1", c.Int64("dp"))
	case q.MostGPUs < 1 || q.MostGPUs > 1<<16:
		return usagef("--max-gpus: got %d, want 1 to %d", q.MostGPUs, 1<<16)
	case c.IsSet("max-requests") && (path == "" || c.Int("max-requests") < 2):
		return usagef("--max-requests: got %d, want at least 2 requests of a --workload", c.Int("max-requests"))
	case path != "" && (c.IsSet("input-len") || c.IsSet("output-len")):
		return usagef("--workload and --input-len, --output-len: got both, want one")
	}
	if q.Targets, err = predict.ParseTargets(c.String("slo")); err != nil {
		return err
	}
	q.Hardware = splitList(c.String("hardware"))
	if text := c.String("tp"); text != "" {
		q.TP = nil
		for _, word := range splitList(text) {
			n, err := strconv.ParseInt(word, 10, 64)
			if err != nil || n < 1 || n > 1024 {
				return usagef("--tp: got %q, want whole numbers of at least 1, such as 1,2,4", word)
			}
			q.TP = append(q.TP, n)
		}
	}
	for _, word := range splitList(c.String("ep")) {
		on, err := strconv.ParseBool(word)
		if err != nil {
			return usagef("--ep: got %q, want true, false or true,false", word)
		}
		q.EP = append(q.EP, on)
	}
	q.Server.Set = append(q.Server.Set, settingsOf(c, func(flag string) bool { return flag != "tp" && flag != "ep" })...)
	if q.Prices, err = parsePrices(c.StringSlice("price"), q.Hardware); err != nil {
		return err
	}
	q.Workers = c.Int("workers")
	q.Progress = con.progress()
	if path == "" {
		return nil
	}
	q.Load.InputTokens = 0 // the defaults of --input-len and --output-len: the file has the lengths
	q.Load.OutputTokens = 0
	if q.Load.Workload, q.Load.Draw, _, err = simulate.ReadWorkload(path, con.special); err != nil {
		return err
	}
	if n := c.Int("max-requests"); n > 0 && q.Load.Workload != nil && n < len(q.Load.Workload.Requests) {
		q.Load.Workload.Requests = q.Load.Workload.Requests[:n]
	}
	if w := q.Load.Workload; w != nil && !hasRate && !hasClients && !w.HasSessions() &&
		!slices.ContainsFunc(w.Requests, func(r sim.Request) bool { return r.ArrivalUs > 0 }) {
		return usagef("--workload: got %s without arrivals, want --rate or --concurrency beside it", path)
	}
	return nil
}

// splitList returns the words between commas or spaces, each once.
func splitList(text string) []string {
	var words []string
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return words
}

// parsePrices returns the price per hour of each GPU from texts GPU=USD. Every candidate in
// hardware needs one.
func parsePrices(words, hardware []string) (map[string]float64, error) {
	if len(words) == 0 {
		return nil, nil
	}
	prices := map[string]float64{}
	for _, word := range words {
		for _, pair := range splitList(word) {
			gpu, value, _ := strings.Cut(pair, "=")
			usd, err := strconv.ParseFloat(value, 64)
			if err != nil || !(usd > 0) || math.IsInf(usd, 0) || !slices.Contains(hardware, gpu) {
				return nil, usagef("--price: got %q, want GPU=USD per hour of one of the candidates, as in %s=2.5", pair, hardware[0])
			}
			prices[gpu] = usd
		}
	}
	for _, gpu := range hardware {
		if _, ok := prices[gpu]; !ok {
			return nil, usagef("--price: got none of %s, want one for every candidate, or none", gpu)
		}
	}
	return prices, nil
}

// Marks of a row.
const (
	markMet      = "yes"
	markEstimate = "?"
	markNotMet   = "no"
)

// markOf returns the mark of a deployment: yes if it meets the targets also with the stated error,
// ? if only the estimate does, bound if only an upper bound does.
func markOf(r *sizing.Row) string {
	switch r.Met {
	case sizing.MetYes:
		return markMet
	case sizing.MetEstimate:
		return markEstimate
	}
	return sizing.MetBound
}

// showSizes prints the table of deployments, the command line of the first one and how far its
// prediction can be trusted.
func showSizes(con *console, a *sizing.Answer, verbose bool) {
	con.warn(a.Notes)
	con.printText(func() string { return " targets: " + targetsText(&a.Targets) })
	if head, rows := sizeTable(a); len(rows) > 0 {
		con.table(sizeTitle(a), head, rows)
	}
	showRefusals(con, a)
	if con.json || con.quiet {
		return
	}
	best := a.Best()
	if best == nil {
		return
	}
	if plot := paretoPlot(sizedPoints(a, false)); plot != "" {
		con.printText(func() string { return plot })
	}
	showSizeNotes(con, a)
	showServe(con, a, "serve", best)
	// If the first row meets the targets by the estimate only, print also the first that surely does.
	isCertain := func(r sizing.Row) bool { return r.Met == sizing.MetYes }
	if k := slices.IndexFunc(a.Rows, isCertain); k > 0 && best.Met == sizing.MetEstimate {
		showServe(con, a, "first yes", &a.Rows[k])
	}
	showTrust(con, a, verbose)
	if verbose {
		showIntervals(con, best)
	}
}

// loadUnit returns the heading of the column with the load of one replica.
func loadUnit(a *sizing.Answer) string {
	if a.Load.Clients > 0 {
		return "clients"
	}
	return "req/s"
}

// sizeTable returns the head and the rows of the table of deployments, without those that were refused.
func sizeTable(a *sizing.Answer) (head cells, rows []cells) {
	columns := columnsOf(a)
	head = cells{"GPUs", "deployment", loadUnit(a), "spare"}
	for _, t := range columns {
		head = append(head, strings.ToUpper(t.Metric)+" "+t.Figure())
	}
	hasGoodput := a.Targets.Goodput > 0
	if hasGoodput {
		head = append(head, "goodput")
	}
	hasPrice := slices.ContainsFunc(a.Rows, func(r sizing.Row) bool { return r.USDPerHour != nil })
	if hasPrice {
		head = append(head, "USD/h", "per Mtok")
	}
	head = append(head, "met")
	for i := range a.Rows {
		r := &a.Rows[i]
		if r.Refused != "" {
			continue
		}
		gpus := strconv.FormatInt(r.GPUs, 10)
		if r.Bound {
			gpus = ">" + gpus
		}
		row := cells{gpus, deploymentText(r), strconv.FormatFloat(r.ReplicaLoad, 'g', 3, 64), spareText(r)}
		for _, t := range columns {
			row = append(row, figureText(r, t))
		}
		if hasGoodput {
			row = append(row, fmt.Sprintf("%.1f %%", 100*r.Goodput.Value))
		}
		if hasPrice && r.USDPerHour != nil {
			row = append(row, fmt.Sprintf("%.2f", *r.USDPerHour), fmt.Sprintf("%.2f", *r.USDPerMToken))
		}
		rows = append(rows, append(row, markOf(r)))
	}
	return head, rows
}

// spareText returns how far the load of a replica is below the highest with which it meets the targets; "" if that was
// not searched for.
func spareText(r *sizing.Row) string {
	switch {
	case r.HighestLoad == 0:
		return ""
	case r.HighestAtLeast:
		return fmt.Sprintf(">%.0f %%", 100*r.Headroom)
	}
	return fmt.Sprintf("%.0f %%", 100*r.Headroom)
}

// showSizeNotes prints what the words and signs of the table mean, those that it has.
func showSizeNotes(con *console, a *sizing.Answer) {
	printf := func(format string, args ...any) { fmt.Fprintf(con.text, format+"\n", args...) }
	printf("%-12s of one replica; spare is how far that is below the highest that meets the targets", loadUnit(a))
	if slices.ContainsFunc(a.Rows, func(r sizing.Row) bool { return r.Met == sizing.MetEstimate }) {
		printf("?            met by the estimate, not by the upper end of its stated error")
	}
	if slices.ContainsFunc(a.Rows, func(r sizing.Row) bool { return r.Pools && r.Refused == "" }) {
		printf("P+D          P servers for prefill and D for decode behind a proxy, NIXL at 25 GB/s: no such deployment was compared")
	}
	if slices.ContainsFunc(a.Rows, func(r sizing.Row) bool { return r.Drafts && r.Refused == "" }) {
		printf("drafts       speculative decoding with the acceptance that is given: no such deployment was compared")
	}
}

// showServe prints the command line of one server of a row, with a label, and how many of them there are.
func showServe(con *console, a *sizing.Answer, label string, r *sizing.Row) {
	fmt.Fprintf(con.text, "%-12s %s\n", label, r.Serve)
	if r.Replicas > 1 {
		fmt.Fprintf(con.text, "             %d of these behind a %s router\n", r.Replicas, a.Routing)
	}
}

// sizedPoints returns the deployments as points of a plot, with or without bounds.
func sizedPoints(a *sizing.Answer, withBounds bool) []operatingPoint {
	var out []operatingPoint
	for i := range a.Rows {
		r := &a.Rows[i]
		if r.Refused != "" || r.Bound && !withBounds {
			continue
		}
		for _, f := range r.Figures {
			if f.Metric != predict.TPOT || f.Statistic != "mean" || f.Ms.Value <= 0 {
				continue
			}
			load := report.Short(r.ReplicaLoad)
			if a.Load.Clients == 0 {
				load += "/s"
			}
			out = append(out, operatingPoint{
				server:     deploymentText(r),
				load:       load,
				tokensPerS: r.TokensPerS.Value / float64(r.GPUs),
				tpotMs:     f.Ms.Value,
				isBound:    r.Bound,
			})
		}
	}
	return out
}

// sizeTitle returns the question in words, as the title of the table.
func sizeTitle(a *sizing.Answer) string {
	load := fmt.Sprintf("%d clients", a.Load.Clients)
	switch {
	case a.Load.RateRPS > 0:
		load = fmt.Sprintf("%g requests/s", a.Load.RateRPS)
	case a.Load.Clients == 0:
		load = "the workload's arrivals"
	}
	return fmt.Sprintf("%s, %s, %s, vLLM %s (latencies in ms)", a.Model, load, lengthsText(&a.Load), a.Version)
}

// lengthsText returns the lengths of the load's requests.
func lengthsText(l *predict.Load) string {
	if l.InputTokens == 0 {
		return "lengths of the workload"
	}
	return fmt.Sprintf("%s + %s tokens", trace.Thousands(l.InputTokens), trace.Thousands(l.OutputTokens))
}

// targetsText returns the targets in words.
func targetsText(t *predict.Targets) string {
	var words []string
	for _, l := range t.Limits {
		name := l.Metric + " " + l.Figure()
		if t.Goodput > 0 {
			name = l.Metric
		}
		limit := fmt.Sprintf("%g", l.LimitMs)
		if l.LimitMs == math.Trunc(l.LimitMs) {
			limit = trace.Grouped(fmt.Sprintf("%.0f", l.LimitMs))
		}
		words = append(words, fmt.Sprintf("%s <= %s ms", name, limit))
	}
	text := strings.Join(words, ", ")
	if t.Goodput > 0 {
		text = fmt.Sprintf("%.10g %% of requests with %s", 100*t.Goodput, text)
	}
	return text
}

// columnsOf returns the statistics that the table shows: those of the targets, with TTFT, TPOT and
// E2E always there.
func columnsOf(a *sizing.Answer) []predict.Target {
	var out []predict.Target
	if a.Targets.Goodput == 0 {
		out = slices.Clone(a.Targets.Limits)
	}
	for _, usual := range []predict.Target{{Metric: predict.TTFT, Quantile: 0.95}, {Metric: predict.TPOT}, {Metric: predict.E2E}} {
		if len(out) < 4 && !slices.ContainsFunc(out, func(t predict.Target) bool { return t.Metric == usual.Metric }) {
			out = append(out, usual)
		}
	}
	stat.SortStable(out, func(a, b predict.Target) int { return cmp.Compare(metricOrder(a.Metric), metricOrder(b.Metric)) })
	return out
}

// metricOrder returns the place of a metric in the order of the table's columns.
func metricOrder(metric string) int {
	return slices.Index([]string{predict.TTFT, predict.TPOT, predict.ITL, predict.E2E}, metric)
}

// figureText returns the statistic of a deployment that a target names, in ms; "" if there is none.
func figureText(r *sizing.Row, t predict.Target) string {
	for i := range r.Figures {
		if f := &r.Figures[i]; f.Metric == t.Metric && f.Statistic == t.Figure() {
			return shortMs(&f.Ms.Value)
		}
	}
	return ""
}

// deploymentText returns the deployment in a few words: 5 x H100 tp 2 ep, or 2+3 x of prefill and decode servers.
func deploymentText(r *sizing.Row) string {
	count := fmt.Sprint(r.Replicas)
	if r.Pools {
		count = fmt.Sprintf("%d+%d", r.Prefill, r.Replicas-r.Prefill)
	}
	return count + " x " + serverText(r)
}

// serverText returns one server of a row: H100 tp 2 ep drafts.
func serverText(r *sizing.Row) string {
	text := fmt.Sprintf("%s tp %d", shortGPU(r.Hardware), r.TP)
	if r.EP {
		text += " ep"
	}
	if r.DP > 1 {
		text += fmt.Sprintf(" dp %d", r.DP)
	}
	if r.PP > 1 {
		text += fmt.Sprintf(" pp %d", r.PP)
	}
	if r.Drafts {
		text += " drafts"
	}
	return text
}

// showRefusals prints why candidate deployments are not in the table, each reason once.
func showRefusals(con *console, a *sizing.Answer) {
	servers := map[string][]string{}
	var reasons []string
	for i := range a.Rows {
		r := &a.Rows[i]
		if r.Refused == "" {
			continue
		}
		reason := r.Refused
		if r.Hint != "" {
			reason += "; hint: " + r.Hint
		}
		if servers[reason] == nil {
			reasons = append(reasons, reason)
		}
		name := serverText(r)
		if r.Pools {
			name += " pools"
		}
		servers[reason] = append(servers[reason], name)
	}
	for _, reason := range reasons {
		con.infof("%s: %s", strings.Join(servers[reason], ", "), reason)
	}
}

// Lines below the table: the column where their text starts, and where it ends at most.
const (
	labelColumns = 13
	lineColumns  = 100
)

// showTrust prints how far the deployments of the table can be trusted, each sentence once. Where there are
// several, each starts with the servers that it is true of. What is said of single kernels is in the long form only.
func showTrust(con *console, a *sizing.Answer, verbose bool) {
	servers := map[string][]string{}
	var sentences []string
	for i := range a.Rows {
		r := &a.Rows[i]
		if r.Refused != "" {
			continue
		}
		trust := r.TrustSummary
		if verbose {
			trust = r.Trust
		}
		if servers[trust] == nil {
			sentences = append(sentences, trust)
		}
		if name := serverText(r); !slices.Contains(servers[trust], name) {
			servers[trust] = append(servers[trust], name)
		}
	}
	width := min(cmp.Or(con.outWidth, lineColumns), lineColumns) - labelColumns
	for _, sentence := range sentences {
		text := sentence
		if len(sentences) > 1 {
			text = strings.Join(servers[sentence], ", ") + ": " + sentence
		}
		label := "accuracy"
		for _, line := range report.Wrap(text, width, 0) {
			fmt.Fprintf(con.text, "%-*s%s\n", labelColumns, label, line)
			label = ""
		}
	}
}

// showIntervals prints every statistic of a deployment with its interval over other seeds and with
// its stated error.
func showIntervals(con *console, r *sizing.Row) {
	var rows []cells
	for i := range r.Figures {
		f := &r.Figures[i]
		stated := "none"
		if !r.Bound {
			stated = shortMs(&f.ErrorLow) + " to " + shortMs(&f.ErrorHigh)
		}
		rows = append(rows, cells{strings.ToUpper(f.Metric) + " " + f.Statistic, shortMs(&f.Ms.Value),
			shortMs(&f.Ms.Low) + " to " + shortMs(&f.Ms.High), stated})
	}
	con.table(deploymentText(r), cells{"ms", "estimate", "other seeds (95 %)", "stated error (90 %)"}, rows)
}
