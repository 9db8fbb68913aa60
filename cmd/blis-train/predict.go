package main

// This file is the command predict: latencies and throughput of a server that does not run yet.

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/simulate"
	"github.com/blis-train/blis-train/trace"
)

// predictDoc is what predict --json prints.
type predictDoc struct {
	SchemaVersion string                `json:"schema_version"`
	ToolVersion   string                `json:"tool_version"`
	Points        []*predict.Prediction `json:"points"`
	// Operators are those of one step: with -v of DecodeStep of the one point, with --step of the step in it.
	Operators []kernelDoc `json:"operators,omitempty"`
	KernelsMs float64     `json:"kernels_ms,omitempty"` // the sum of the operators
	StepMs    float64     `json:"step_ms,omitempty"`    // with the corrections: the GPU's scale and the host's work
}

// kernelDoc is an operator of a step in a predictDoc.
type kernelDoc struct {
	Name    string  `json:"name"`
	Count   float64 `json:"count"` // in a step
	Shape   string  `json:"shape"`
	DType   string  `json:"dtype"`
	Table   string  `json:"table"`
	Kernel  string  `json:"kernel"`
	Reached string  `json:"reached"` // measured, interpolated, beyond, substituted or analytic
	Note    string  `json:"note,omitempty"`
	Ms      float64 `json:"ms"` // of all its runs in the step
}

// predictCommand returns the command predict.
func predictCommand() *cli.Command {
	q := predict.DefaultQuestion()
	return newCommand(&cli.Command{
		Name:      "predict",
		ArgsUsage: "[AXIS=VALUES...]",
		Usage:     "TTFT, ITL, throughput and limits of a server that is not running yet",
		Description: `Simulates vLLM serving a model that is built in by name, or any config.json, with the measured kernels of the GPU,
and prints the error that was measured on real servers of this kind, if there were any. Latencies are those of
the steady state; --start adds those of the first requests. Several values after a comma make a sweep. With
--slo it exits 3 where the load misses the targets. Without --model it lists models, GPUs and what was
measured. -v lists the kernels of a step.

Example:
   blis-train predict --model Qwen/Qwen3-32B --hardware H100 --tp 2 --input-len 2000 --output-len 300 --concurrency 32
   blis-train predict --model Qwen/Qwen3-32B --hardware H100 --sweep tp=2,4 concurrency=1..256 --slo ttft=2s,itl=30ms`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "model", Destination: &q.Model,
				Usage: "Hugging Face `NAME` of a built-in model, or the path of a config.json; without it: list " +
					"what there is"},
			&cli.StringFlag{Name: "hardware", Destination: &q.Hardware, Usage: "`GPU`, such as H100"},
			&cli.StringFlag{Name: "tp", Usage: "tensor-parallel size `N`"},
			&cli.BoolFlag{Name: "ep", Usage: "expert parallelism"},
			&cli.Int64Flag{Name: "dp", Usage: "data-parallel size `N`"},
			&cli.StringFlag{Name: "vllm", Destination: &q.Serve, Usage: "more `ARGUMENTS` of vllm serve, in quotes"},
			&cli.StringFlag{Name: "vllm-version", DefaultText: predict.AssumedVersion, Usage: "`RELEASE` of vLLM"},
			&cli.StringFlag{Name: "input-len", DefaultText: fmt.Sprint(q.InputTokens), Usage: "prompt `TOKENS` of a request"},
			&cli.StringFlag{Name: "output-len", DefaultText: fmt.Sprint(q.OutputTokens), Usage: "output `TOKENS` of a request"},
			&cli.StringFlag{Name: "concurrency", DefaultText: "1, without --rate",
				Usage: "closed loop of `N` clients, each sends its next request when its last one is answered"},
			&cli.StringFlag{Name: "rate", Usage: "Poisson arrivals, `RPS` requests per second"},
			&cli.StringFlag{Name: "slo",
				Usage: "check these `TARGETS` and find the highest load that meets them: ttft.p95=1s,tpot.mean=40ms (P90 where no statistic is named), or " +
					"ttft=1s,tpot=40ms,goodput=95%"},
			&cli.BoolFlag{Name: "start", Destination: &q.Start, Usage: "also print the latencies of the first requests after an idle time"},
			&cli.StringFlag{Name: "sweep",
				Usage: "predict all combinations of these `AXES`, such as \"tp=1,2,4 concurrency=1..256\"; a..b doubles from a to b"},
			&cli.StringFlag{Name: "step",
				Usage: "only list the kernels of a step of this `BATCH`, NxCONTEXT,N@CACHED,...: N decodes with " +
					"CONTEXT tokens each, prompt chunks of N tokens after CACHED tokens"},
			&cli.StringFlag{Name: "library",
				Usage: "use the kernel tables in `FILE`, written by library build, in place of the built-in ones"},
			outFlag("of a sweep: draw latency against throughput into `FILE`, an SVG"),
			workersFlag(nil), verboseFlag(),
		},
	}, nil, func(c *cli.Context, con *console) error { return runPredict(c, con, q) })
}

// runPredict answers the question that the flags describe: one prediction, a sweep, or the kernels
// of one step.
func runPredict(c *cli.Context, con *console, q predict.Question) error {
	con.brief = false
	axes := strings.TrimSpace(c.String("sweep") + " " + strings.Join(c.Args().Slice(), " ")) // with and without quotes
	if c.NArg() > 0 && !c.IsSet("sweep") {
		return trace.Hinted(usagef("predict: got argument %q, want flags only, or axes after --sweep",
			c.Args().First()),
			"a model is given as --model NAME, axes as --sweep tp=1,2,4")
	}
	// A flag with several values is an axis of a sweep.
	for _, name := range listFlags {
		if text := c.String(name); strings.Contains(text, ",") {
			axes = strings.TrimSpace(name + "=" + strings.ReplaceAll(text, " ", "") + " " + axes)
		}
	}
	if q.Model == "" && q.Serve == "" && !hasAxis(axes, "model") {
		if c.IsSet("hardware") || axes != "" || slices.ContainsFunc(predictionFlags, c.IsSet) {
			return trace.Hinted(usagef("predict: missing --model NAME or config.json"),
				"blis-train predict alone lists the models")
		}
		return showLibrary(con)
	}
	if err := completeQuestion(c, con, &q, axes); err != nil {
		return err
	}
	doc := &predictDoc{SchemaVersion: result.SchemaVersion, ToolVersion: folder.ToolVersion}
	// The kernels of one step, a sweep, or one prediction.
	if text := c.String("step"); text != "" {
		if err := goesWith(c, "a prediction without --step", append(predictionFlags, "sweep", "out")...); err != nil {
			return err
		}
		if axes != "" {
			return usagef("--step: got the axes %q too, want one server", axes)
		}
		batch, err := parseBatch(text)
		if err != nil {
			return err
		}
		p, err := q.Plan(c.Context, batch)
		if err != nil {
			return err
		}
		doc.addStep(p.Step, new(library.BatchOf(batch)))
		doc.showStep(con, p.Trust.Family)
		con.infof("%s", p.Trust.Sentence)
		return con.document(doc)
	}
	if axes != "" {
		return con.predictSweep(c, q, axes, doc)
	}
	if err := goesWith(c, "a sweep", "out"); err != nil {
		return err
	}
	p, err := q.Predict(c.Context)
	if err != nil {
		return err
	}
	doc.Points = []*predict.Prediction{p}
	if c.Bool("verbose") && p.Step != nil {
		doc.addStep(p.Step, &p.DecodeStep)
	}
	showPrediction(con, &q, p)
	if c.Bool("verbose") {
		showTTFTParts(con, p)
	}
	if doc.Operators != nil {
		doc.showStep(con, fmt.Sprintf("a step of %.0f decodes at %.0f tokens", p.DecodeStep.Decodes,
			p.DecodeStep.DecodeContext/p.DecodeStep.Decodes))
	}
	if err := con.document(doc); err != nil {
		return err
	}
	if p.Met != nil && !*p.Met {
		return gatef("predict: %s misses %s: %s", loadText(p), targetsText(&q.SLO), p.Missed)
	}
	if p.Met != nil && p.Bound {
		return gatef("predict: %s is met by an upper bound only: %s has no kernel tables for this model", targetsText(&q.SLO), p.Hardware)
	}
	return nil
}

// predictionFlags are the flags about requests, which neither the kernels of a step nor the list of models has.
var predictionFlags = []string{"input-len", "output-len", "concurrency", "rate", "slo", "start"}

// listFlags are the flags whose comma-separated values make an axis of a sweep.
var listFlags = []string{"model", "hardware", "tp", "input-len", "output-len", "concurrency", "rate"}

// hasAxis reports whether the axes of a sweep include the one named.
func hasAxis(axes, name string) bool {
	return slices.ContainsFunc(strings.Fields(axes), func(word string) bool { return strings.HasPrefix(word, name+"=") })
}

// completeQuestion checks the question and adds the settings of run.yaml that flags state, the
// latency targets and the kernel tables.
func completeQuestion(c *cli.Context, con *console, q *predict.Question, axes string) (err error) {
	// The question has the first value of each flag; a sweep varies it.
	hasClients := c.IsSet("concurrency")
	hasRate := c.IsSet("rate")
	clients := int64(0)
	for _, f := range []struct {
		name  string
		value *int64
	}{{"input-len", &q.InputTokens}, {"output-len", &q.OutputTokens}, {"concurrency", &clients}} {
		if err := firstWhole(f.name, c.String(f.name), f.value); err != nil {
			return err
		}
	}
	q.Concurrency = int(min(clients, math.MaxInt))
	if hasRate {
		first, _, _ := strings.Cut(c.String("rate"), ",")
		if q.RateRPS, err = strconv.ParseFloat(first, 64); err != nil {
			return usagef("--rate: got %q, want a number of requests per second", c.String("rate"))
		}
	}
	if !hasClients && !hasRate {
		q.Concurrency = 1
	}
	switch {
	case q.Hardware == "" && !hasAxis(axes, "hardware"):
		return usagef("predict: missing --hardware GPU, such as H100")
	case hasClients && hasRate:
		return usagef("--concurrency and --rate: got both, want one")
	}
	if err := q.CheckLoad(); err != nil {
		return err
	}
	q.Set = append(q.Set, settingsOf(c, func(flag string) bool {
		return !hasAxis(axes, flag) // an axis sets it in each question of the sweep
	})...)
	if text := c.String("slo"); text != "" {
		if q.SLO, err = predict.ParseTargets(text); err != nil {
			return err
		}
	}
	if tables := c.String("library"); tables != "" {
		q.GPU, _, err = simulate.TablesFile(tables, con.special)
	}
	return err
}

// settingsOf returns the settings of run.yaml, "path=value" each, that those server flags state which isOne accepts.
func settingsOf(c *cli.Context, isOne func(flag string) bool) (settings []string) {
	for _, s := range predict.ServerFlags {
		if c.IsSet(s.Flag) && isOne(s.Flag) {
			settings = append(settings, fmt.Sprintf("%s=%v", s.Path, c.Value(s.Flag)))
		}
	}
	return settings
}

// firstWhole sets to to the first of the comma-separated whole numbers of a flag; "" leaves it
// unchanged.
func firstWhole(name, text string, to *int64) (err error) {
	if text == "" {
		return nil
	}
	if err := checkThousands(name, text); err != nil {
		return err
	}
	first, _, _ := strings.Cut(text, ",")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		return usagef("--%s: got %q, want a whole number", name, text)
	}
	*to = n
	return nil
}

// parseBatch returns the batch in a text: NxCONTEXT is N decodes behind CONTEXT cached tokens each, N@CACHED a prompt
// chunk of N tokens behind CACHED cached ones.
func parseBatch(text string) (batch []trace.Chunk, err error) {
	for _, word := range strings.Split(text, ",") {
		if n, context, ok := twoCounts(word, "x"); ok && context >= 1 {
			for range n {
				batch = append(batch, trace.Chunk{Computed: context, Prompt: 1, New: 1})
			}
		} else if n, cached, ok := twoCounts(word, "@"); ok {
			batch = append(batch, trace.Chunk{Computed: cached, Prompt: cached + n, New: n})
		} else {
			return nil, usagef("--step: got %q, want NxCONTEXT, as in 32x1000, or N@CACHED, as in 512@1024", word)
		}
	}
	return batch, nil
}

// twoCounts returns the numbers before and after a sign. It is false unless the first is 1 to 1,048,576 and the second 0
// to 2^40.
func twoCounts(word, sign string) (n, tokens int64, ok bool) {
	before, after, _ := strings.Cut(strings.TrimSpace(word), sign)
	n, err := strconv.ParseInt(before, 10, 64)
	tokens, err2 := strconv.ParseInt(after, 10, 64)
	return n, tokens, err == nil && err2 == nil && n >= 1 && n <= 1<<20 && tokens >= 0 && tokens <= 1<<40
}

// addStep adds the time of a step of the batch b, operator by operator, in ms.
func (d *predictDoc) addStep(step *library.Step, b *library.Batch) {
	t := step.Time(b)
	d.KernelsMs = t.KernelsMs
	d.StepMs = t.StepMs
	for i, ms := range t.OperatorsMs {
		if op := &step.Operators[i]; ms > 0 {
			d.Operators = append(d.Operators, kernelDoc{
				Name:    op.Name,
				Count:   op.Count,
				Shape:   op.Shape,
				DType:   op.DType,
				Table:   op.Table,
				Kernel:  op.Kernel,
				Reached: op.Reached.String(),
				Note:    op.Note,
				Ms:      ms,
			})
		}
	}
}

// showStep prints the operators of a step as a table.
func (d *predictDoc) showStep(con *console, title string) {
	var rows []cells
	for _, o := range d.Operators {
		from := strings.TrimSpace(o.Table + " " + o.Kernel)
		if o.Note != "" {
			from += "; " + o.Note
		}
		rows = append(rows, cells{o.Name, o.Count, o.Shape, o.DType, fmt.Sprintf("%.3f", o.Ms), o.Reached, from})
	}
	rows = append(rows, cells{"kernels", "", "", "", fmt.Sprintf("%.3f", d.KernelsMs), "", ""},
		cells{"step", "", "", "", fmt.Sprintf("%.3f", d.StepMs), "", "with the corrections"})
	con.table(title, cells{"operator", "count", "shape", "dtype", "ms", "reached", "from"}, rows)
}

// loadText returns the load of a prediction in words: clients or a rate.
func loadText(p *predict.Prediction) string {
	if p.RateRPS > 0 {
		return fmt.Sprintf("%g requests/s", p.RateRPS)
	}
	return fmt.Sprintf("%d %s", p.Concurrency, plural(p.Concurrency, "client", "clients"))
}

// questionText returns the question in words: server, load and lengths.
func questionText(p *predict.Prediction) string {
	parallel := ""
	if p.DP > 1 {
		parallel = fmt.Sprintf(", dp %d", p.DP)
	}
	if p.EP {
		parallel += ", EP"
	}
	return fmt.Sprintf("%s on %d x %s%s, %s, %s + %s tokens", p.Model, p.GPUs, p.Hardware, parallel, loadText(p),
		trace.Thousands(p.InputTokens),
		trace.Thousands(p.OutputTokens))
}

// showPrediction prints the latencies of a prediction, its throughput, how far it can be trusted,
// and whether it meets the targets.
func showPrediction(con *console, q *predict.Question, p *predict.Prediction) {
	con.warn(p.Warnings)
	var rows []cells
	add := func(name string, f *predict.Figures) {
		rows = append(rows, cells{name, shortMs(f.Mean), shortMs(f.P50), shortMs(f.P90), shortMs(f.P95), shortMs(f.P99)})
	}
	add("TTFT", &p.TTFT)
	add("TPOT", &p.TPOT)
	add("ITL", &p.ITL)
	add("E2E", &p.E2E)
	if p.Start != nil {
		add("TTFT, start", &p.Start.TTFT)
		add("E2E, start", &p.Start.E2E)
	}
	con.table(questionText(p), cells{"ms", "mean", "p50", "p90", "p95", "p99"}, rows)
	printf := func(format string, args ...any) {
		if !con.json && !con.quiet {
			fmt.Fprintf(con.text, format+"\n", args...)
		}
	}
	below := ""
	if p.Bound {
		below = "< "
		printf("bound        no kernel tables: at the datasheet's rates, so that a server's latencies are higher and its throughput lower")
	}
	printf("throughput   %s%s requests/s (other seeds: %s to %s), %s%s output tokens/s per GPU", below, report.Short(p.RequestsPerS),
		report.Short(p.RequestsInterval[0]), report.Short(p.RequestsInterval[1]), below, tokensText(p.TokensPerS))
	if p.Saturated {
		printf("saturated    the engine serves %s of %s requests/s: the queue, TTFT and E2E grow as long as "+
			"this load lasts", report.Short(p.RequestsPerS), report.Short(p.RateRPS))
	}
	rank := ""
	if p.DP > 1 {
		rank = " of a rank"
	}
	printf("KV cache     %s tokens%s of %g bytes a value, at most %.0f %% in use", trace.Thousands(p.KVTokens),
		rank, p.KVBytes, 100*p.KVPeakShare)
	if p.LimitedBy != "" {
		printf("limited by   %s", p.LimitedBy)
	}
	if len(p.Shares) > 0 {
		var parts []string
		for _, s := range p.Shares {
			if s.Share >= 0.005 {
				parts = append(parts, fmt.Sprintf("%s %.0f %%", s.Name, 100*s.Share))
			}
		}
		printf("steps        %s", strings.Join(parts, ", "))
	}
	if p.Met != nil {
		mark := "yes"
		switch {
		case !*p.Met:
			mark = "no (" + p.Missed + ")"
		case p.Bound:
			mark = "by an upper bound only"
		case !*p.MetSurely:
			mark = "? (by the estimate, not by the upper end of its stated error)"
		}
		printf("targets met  %s", mark)
	}
	if m := p.MaxLoad; m != nil {
		printf("highest load %s", highestText(m, &q.SLO, below))
	}
	version := p.Version
	isNamed := func(setting string) bool { return strings.HasPrefix(setting, predict.VersionSetting+"=") }
	if version == predict.AssumedVersion && !slices.ContainsFunc(q.Set, isNamed) {
		version += " (assumed, or --vllm-version)"
	}
	fitted := ""
	if p.FittedLen > 0 {
		fitted = fmt.Sprintf(" --max-model-len %d", p.FittedLen)
	}
	printf("engine       vLLM %s, --max-num-seqs %d --max-num-batched-tokens %d%s", version, p.MaxNumSeqs, p.TokenBudget, fitted)
	if p.Met != nil {
		printf("how many     %s", sizeCommandFor(q, p))
	}
	printf("accuracy     %s", p.Trust.Sentence)
}

// showTTFTParts prints what the mean TTFT consists of.
func showTTFTParts(con *console, p *predict.Prediction) {
	var rows []cells
	for _, part := range p.TTFTParts {
		rows = append(rows, cells{part.Name, shortMs(&part.MeanMs), shortMs(&part.LowMs), shortMs(&part.HighMs)})
	}
	if len(rows) > 0 {
		con.table("TTFT, mean, by part", cells{"part", "ms", "at least", "at most"}, rows)
	}
}

// sizeCommandFor returns the call of the command size that finds deployments for the load and the
// targets of a prediction.
func sizeCommandFor(q *predict.Question, p *predict.Prediction) string {
	load := fmt.Sprintf("--concurrency %d", p.Concurrency)
	if p.RateRPS > 0 {
		load = fmt.Sprintf("--rate %g", p.RateRPS)
	}
	var targets []string
	for _, t := range q.SLO.Limits {
		name := t.Metric + "." + t.Figure()
		if q.SLO.Goodput > 0 {
			name = t.Metric
		}
		targets = append(targets, fmt.Sprintf("%s=%gms", name, t.LimitMs))
	}
	if q.SLO.Goodput > 0 {
		targets = append(targets, fmt.Sprintf("goodput=%.10g%%", 100*q.SLO.Goodput))
	}
	server := []string{"--model", files.Word(cmp.Or(q.Model, p.Model)), "--hardware", p.Hardware}
	for _, setting := range q.Set {
		path, value, _ := strings.Cut(setting, "=")
		if flag := predict.FlagOfSetting(path); flag != "" {
			server = append(server, "--"+flag, value)
		}
	}
	if q.Serve != "" {
		server = append(server, "--vllm", files.Word(q.Serve))
	}
	return fmt.Sprintf("blis-train size %s %s --input-len %d --output-len %d --slo %s", strings.Join(server, " "), load,
		p.InputTokens, p.OutputTokens, strings.Join(targets, ","))
}

// shortMs returns a time in ms with three digits, or with all digits before the point.
func shortMs(v *float64) string {
	if v != nil && *v >= 100 {
		return fmt.Sprintf("%.0f", *v)
	}
	return number(v)
}

// highestText returns the highest load that meets the targets, in words, with the prefix below before its amounts.
func highestText(m *predict.MaxLoad, t *predict.Targets, below string) string {
	load := ""
	switch {
	case m.Concurrency > 0:
		load = fmt.Sprintf("%d %s", m.Concurrency, plural(m.Concurrency, "client", "clients"))
	case m.RateRPS > 0:
		load = report.Short(m.RateRPS) + " requests/s"
	}
	if load == "" {
		text := "none meets " + targetsText(t)
		if m.Breaks != "" {
			text += "; the lowest that was tried: " + m.Breaks
		}
		return text
	}
	text := fmt.Sprintf("%s%s, %s%s output tokens/s per GPU, with %s", below, load, below, tokensText(m.TokensPerS), targetsText(t))
	if m.Breaks != "" {
		text += "; above it " + m.Breaks
	}
	return text
}

// tokensText returns a rate of tokens without decimals.
func tokensText(perS float64) string { return trace.Grouped(fmt.Sprintf("%.0f", perS)) }

// libraryDoc is what predict without a model prints with --json.
type libraryDoc struct {
	SchemaVersion string           `json:"schema_version"`
	ToolVersion   string           `json:"tool_version"`
	Version       string           `json:"library_version"`
	Models        []string         `json:"models"`
	GPUs          []libraryGPU     `json:"gpus"`
	Judged        []library.Judged `json:"judged"`
}

// libraryGPU is a GPU with embedded kernel tables.
type libraryGPU struct {
	Hardware string   `json:"hardware"`
	Tables   int      `json:"tables"`
	Rows     int      `json:"rows"`
	VLLM     []string `json:"vllm_versions"`
}

// printModels prints the built-in models, those of each publisher together; nothing with --json or --quiet.
func (con *console) printModels(names []string) {
	byPublisher := map[string][]string{}
	for _, name := range names {
		publisher, short, _ := strings.Cut(name, "/")
		byPublisher[publisher] = append(byPublisher[publisher], short)
	}
	con.printText(func() string {
		return fmt.Sprintf("%d built-in models (--model PUBLISHER/NAME, or NAME alone):", len(names))
	})
	for _, publisher := range slices.Sorted(maps.Keys(byPublisher)) {
		con.printWrapped("  " + publisher + "/ " + strings.Join(byPublisher[publisher], ", "))
	}
}

// showLibrary prints the built-in models, the embedded kernel tables, and the families of
// deployments whose predictions were compared with servers.
func showLibrary(con *console) error {
	learned := library.Learned()
	doc := libraryDoc{SchemaVersion: result.SchemaVersion, ToolVersion: folder.ToolVersion,
		Version: learned.Version, Models: model.BuiltInIDs(),
		Judged: learned.Judged}
	var rows, judged []cells
	for _, g := range library.GPUs() {
		l := libraryGPU{Hardware: g.Hardware, Tables: len(g.Tables), VLLM: g.Versions()}
		for _, t := range g.Tables {
			l.Rows += t.Rows
		}
		doc.GPUs = append(doc.GPUs, l)
		rows = append(rows, cells{l.Hardware, l.Tables, l.Rows, strings.Join(l.VLLM, ", ")})
	}
	for _, j := range learned.Judged {
		judged = append(judged,
			cells{j.Family, j.Model, fmt.Sprint(j.TP), j.Points, percent(&j.TPOTMape), percent(&j.Intervals.ITL),
				percent(&j.TTFTMedian)})
	}
	if !con.json && !con.quiet {
		con.printModels(doc.Models)
	}
	con.table("kernel tables "+doc.Version, cells{"GPU", "tables", "rows", "kernels of vLLM"}, rows)
	con.table("compared with servers, held out of the fit of the corrections; every other family is not validated",
		cells{"family", "model", "tp", "points", "TPOT within (mean)", "nine in ten", "TTFT within (median)"}, judged)
	return con.document(doc)
}
