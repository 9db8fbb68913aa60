package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/model"
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
	// with -v: a decode step of the one point; with --step: of that step
	Operators []kernelDoc `json:"operators,omitempty"`
	KernelsMs float64     `json:"kernels_ms,omitempty"`
	// with the corrections: the GPU's scale and the host's work
	StepMs float64 `json:"step_ms,omitempty"`
}

type kernelDoc struct {
	Name    string  `json:"name"`
	Count   float64 `json:"count"` // in a step
	Shape   string  `json:"shape"`
	DType   string  `json:"dtype"`
	Table   string  `json:"table"`
	Kernel  string  `json:"kernel"`
	Reached string  `json:"reached"` // measured, interpolated, beyond, substituted or analytic
	Note    string  `json:"note,omitempty"`
	Ms      float64 `json:"ms"`
}

func predictCommand() *cli.Command {
	q := predict.Question{InputTokens: 1000, OutputTokens: 200}
	return newCommand(&cli.Command{
		Name:      "predict",
		ArgsUsage: "[AXIS=VALUES...]",
		Usage:     "TTFT, ITL, throughput and limits of a server that is not running yet",
		Description: `Simulates vLLM serving a model that is built in by name, or any config.json, with the measured kernels of the GPU,
and prints the error measured on real servers of this kind, or that none was measured. Without --model it
lists models, GPUs and what was measured. -v lists the kernels of a step.

Example:
   blis-train predict --model Qwen/Qwen3-32B --hardware H100 --tp 2 --input-len 2000 --output-len 300 --concurrency 32
   blis-train predict --model Qwen/Qwen3-32B --hardware H100 --sweep tp=2,4 concurrency=1..256 --slo ttft=2s,itl=30ms`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "model", Destination: &q.Model,
				Usage: "Hugging Face `NAME` of a built-in model, or the path of a config.json; without it: list " +
					"what there is"},
			&cli.StringFlag{Name: "hardware", Destination: &q.Hardware, Usage: "`GPU`, such as H100"},
			&cli.Int64Flag{Name: "tp", Usage: "`N` GPUs of --tensor-parallel-size"},
			&cli.BoolFlag{Name: "ep", Usage: "--enable-expert-parallel"},
			&cli.Int64Flag{Name: "dp", Usage: "`N` engines of --data-parallel-size"},
			&cli.StringFlag{Name: "vllm", Destination: &q.Serve, Usage: "more `ARGUMENTS` of vllm serve, in quotes"},
			&cli.Int64Flag{Name: "input-len", Destination: &q.InputTokens, Value: q.InputTokens,
				Usage: "prompt `TOKENS` of a request"},
			&cli.Int64Flag{Name: "output-len", Destination: &q.OutputTokens, Value: q.OutputTokens,
				Usage: "output `TOKENS` of a request"},
			&cli.IntFlag{Name: "concurrency", Destination: &q.Concurrency, DefaultText: "1, without --rate",
				Usage: "closed loop of `N` clients, each sends its next request when its last one is answered"},
			&cli.Float64Flag{Name: "rate", Destination: &q.RateRPS,
				Usage: "Poisson arrivals, `RPS` requests per second"},
			&cli.StringFlag{Name: "slo",
				Usage: "find the highest load that keeps these `LIMITS`, such as ttft=500ms,itl.p99=30ms (P90 " +
					"unless named)"},
			&cli.StringFlag{Name: "sweep",
				Usage: "predict all combinations of these `AXES`, such as \"tp=1,2,4 concurrency=1..256\", as a " +
					"table and a picture; a..b doubles from a to b"},
			&cli.StringFlag{Name: "step",
				Usage: "only list the kernels of a step of this `BATCH`, NxCONTEXT,N@CACHED,...: N decodes with " +
					"CONTEXT tokens each, prompt chunks of N tokens after CACHED tokens"},
			&cli.StringFlag{Name: "library",
				Usage: "kernel tables of library build, `FILE`, in place of the embedded ones"},
			outFlag("with --sweep: SVG `FILE` (default: predict.svg)"),
			workersFlag(), verboseFlag(),
		},
	}, nil, func(c *cli.Context, con *console) error { return runPredict(c, con, q) })
}

func runPredict(c *cli.Context, con *console, q predict.Question) error {
	con.brief = false
	axes := strings.TrimSpace(c.String("sweep") + " " + strings.Join(c.Args().Slice(), " ")) // with and without quotes
	if c.NArg() > 0 && !c.IsSet("sweep") {
		return trace.Hinted(usagef("predict: got argument %q, want flags only, or axes after --sweep",
			c.Args().First()),
			"a model is given as --model NAME, axes as --sweep tp=1,2,4")
	}
	if q.Model == "" && q.Serve == "" && !strings.Contains(axes, "model=") {
		if c.IsSet("hardware") || axes != "" {
			return trace.Hinted(usagef("predict: missing --model NAME or config.json"),
				"blis-train predict alone lists the models")
		}
		return showLibrary(con)
	}
	if err := completeQuestion(c, con, &q); err != nil {
		return err
	}
	doc := &predictDoc{SchemaVersion: result.SchemaVersion, ToolVersion: folder.ToolVersion}
	if text := c.String("step"); text != "" {
		batch, err := parseBatch(text)
		if err != nil {
			return err
		}
		p, err := q.Plan(c.Context)
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
	p, err := q.Predict(c.Context)
	if err != nil {
		return err
	}
	doc.Points = []*predict.Prediction{p}
	if c.Bool("verbose") && p.Step != nil {
		doc.addStep(p.Step, &p.DecodeStep)
	}
	showPrediction(con, p)
	if doc.Operators != nil {
		doc.showStep(con, fmt.Sprintf("a step of %.0f decodes at %.0f tokens", p.DecodeStep.Decodes,
			p.DecodeStep.DecodeContext/p.DecodeStep.Decodes))
	}
	return con.document(doc)
}

// completeQuestion checks the question and adds what flags set in run.yaml, the limits and the tables.
func completeQuestion(c *cli.Context, con *console, q *predict.Question) (err error) {
	const mostClients = 1 << 14
	hasClients := c.IsSet("concurrency")
	hasRate := c.IsSet("rate")
	switch {
	case q.Hardware == "" && !strings.Contains(c.String("sweep"), "hardware="):
		return usagef("predict: missing --hardware GPU, such as H100")
	case q.InputTokens < 1 || q.OutputTokens < 2:
		return usagef("--input-len, --output-len: got %d and %d, want at least 1 and 2", q.InputTokens, q.OutputTokens)
	case hasClients && hasRate:
		return usagef("--concurrency and --rate: got both, want one")
	case hasClients && q.Concurrency < 1 || q.Concurrency > mostClients ||
		hasRate && !(q.RateRPS > 0 && q.RateRPS < 1e6):
		return usagef("--concurrency, --rate: got %d and %g, want 1 to %d clients, or a rate above 0 and below 1e6",
			q.Concurrency, q.RateRPS, mostClients)
	case q.Concurrency == 0 && q.RateRPS == 0:
		q.Concurrency = 1
	}
	for _, s := range []struct{ flag, path string }{
		{"tp", "tensor_parallel_size"},
		{"dp", "data_parallel_size"},
		{"ep", "vllm.enable_expert_parallel"},
	} {
		if c.IsSet(s.flag) {
			q.Set = append(q.Set, fmt.Sprintf("%s=%v", s.path, c.Value(s.flag)))
		}
	}
	if q.SLO, err = predict.ParseSLO(c.String("slo")); err != nil {
		return err
	}
	if tables := c.String("library"); tables != "" {
		q.GPU, _, err = simulate.TablesFile(tables, con.special)
	}
	return err
}

// parseBatch reads decodes NxCONTEXT and prompt chunks N@CACHED.
func parseBatch(text string) (batch []trace.Chunk, err error) {
	for _, word := range strings.Split(text, ",") {
		var n, tokens int64
		if k, _ := fmt.Sscanf(word, "%dx%d", &n, &tokens); k == 2 && n >= 1 && n <= 1<<20 && tokens >= 1 {
			for range n {
				batch = append(batch, trace.Chunk{Computed: tokens, Prompt: 1, New: 1})
			}
		} else if k, _ := fmt.Sscanf(word, "%d@%d", &n, &tokens); k == 2 && n >= 1 && tokens >= 0 {
			batch = append(batch, trace.Chunk{Computed: tokens, Prompt: tokens + n, New: n})
		} else {
			return nil, usagef("--step: got %q, want NxCONTEXT, as in 32x1000, or N@CACHED, as in 512@1024", word)
		}
	}
	return batch, nil
}

// addStep adds the time of a step, operator by operator.
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

// questionText describes the question: server, load and lengths.
func questionText(p *predict.Prediction) string {
	load := fmt.Sprintf("%d %s", p.Concurrency, plural(p.Concurrency, "client", "clients"))
	if p.RateRPS > 0 {
		load = fmt.Sprintf("%g requests/s", p.RateRPS)
	}
	parallel := ""
	if p.DP > 1 {
		parallel = fmt.Sprintf(", dp %d", p.DP)
	}
	if p.EP {
		parallel += ", EP"
	}
	return fmt.Sprintf("%s on %d x %s%s, %s, %s + %s tokens", p.Model, p.GPUs, p.Hardware, parallel, load,
		trace.Thousands(p.InputTokens),
		trace.Thousands(p.OutputTokens))
}

func showPrediction(con *console, p *predict.Prediction) {
	con.warn(p.Warnings)
	var rows []cells
	for _, m := range []struct {
		name string
		f    predict.Figures
	}{{"TTFT", p.TTFT}, {"ITL", p.ITL}, {"E2E", p.E2E}} {
		rows = append(rows, cells{m.name, shortMs(m.f.Mean), shortMs(m.f.P50), shortMs(m.f.P90), shortMs(m.f.P99)})
	}
	con.table(questionText(p), cells{"ms", "mean", "p50", "p90", "p99"}, rows)
	printf := func(format string, args ...any) {
		if !con.json && !con.quiet {
			fmt.Fprintf(con.text, format+"\n", args...)
		}
	}
	printf("throughput   %.2f requests/s, %s output tokens/s per GPU", p.RequestsPerS,
		trace.Grouped(fmt.Sprintf("%.0f", p.TokensPerS)))
	if p.RateRPS > 0 && p.RequestsPerS < 0.9*p.RateRPS {
		printf("saturated    the engine serves %.3g of %.3g requests/s: the queue, TTFT and E2E grow as long as "+
			"this load lasts",
			p.RequestsPerS, p.RateRPS)
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
	if m := p.MaxLoad; m != nil {
		printf("highest load %s", highestText(m))
	}
	printf("engine       vLLM %s, --max-num-seqs %d --max-num-batched-tokens %d", p.Version, p.MaxNumSeqs,
		p.TokenBudget)
	printf("error        %s", p.Trust.Sentence)
}

// shortMs has three digits, or all before the point.
func shortMs(v *float64) string {
	if v != nil && *v >= 100 {
		return fmt.Sprintf("%.0f", *v)
	}
	return number(v)
}

// highestText is the highest load that keeps the bounds, in words.
func highestText(m *predict.MaxLoad) string {
	var slo []string
	for _, b := range m.SLO {
		slo = append(slo, b.String())
	}
	text := "none keeps "
	switch {
	case m.Concurrency > 0:
		text = fmt.Sprintf("%d %s, %.0f output tokens/s per GPU, with ", m.Concurrency, plural(m.Concurrency,
			"client", "clients"), m.TokensPerS)
	case m.RateRPS > 0:
		text = fmt.Sprintf("%.3g requests/s, %.0f output tokens/s per GPU, with ", m.RateRPS, m.TokensPerS)
	}
	text += strings.Join(slo, ", ")
	if m.Breaks != "" {
		text += "; above it " + m.Breaks
	}
	return text
}

// sweep answers all questions of a sweep with a table and a picture.
func (con *console) predictSweep(c *cli.Context, q predict.Question, text string, doc *predictDoc) error {
	qs, err := q.Sweep(text)
	if err != nil {
		return err
	}
	if doc.Points, err = predict.All(c.Context, qs, c.Int("workers")); err != nil {
		return err
	}
	var rows []cells
	answered := 0
	for _, p := range doc.Points {
		load := fmt.Sprint(p.Concurrency)
		if p.RateRPS > 0 {
			load = fmt.Sprintf("%g/s", p.RateRPS)
		}
		if p.Refused != "" {
			rows = append(rows, cells{p.Model, p.Hardware, p.TP, load, p.InputTokens, p.OutputTokens, "", "", "", "",
				p.Refused + "; hint: " + p.Hint})
			continue
		}
		answered++
		last := p.LimitedBy
		if p.MaxLoad != nil {
			last += "; highest load: " + highestText(p.MaxLoad)
		}
		rows = append(rows, cells{p.Model, p.Hardware, p.TP, load, p.InputTokens, p.OutputTokens,
			shortMs(p.TTFT.Mean), shortMs(p.TTFT.P99),
			shortMs(p.ITL.Mean), fmt.Sprintf("%.0f", p.TokensPerS), last})
	}
	con.table("", cells{"model", "GPU", "tp", "load", "input", "output", "TTFT ms", "P99", "ITL ms", "tokens/s/GPU",
		"limited by"}, rows)
	servers := map[string][]string{} // by the error that is known of them
	for _, p := range doc.Points {
		if p.Trust == nil {
			continue
		}
		server := fmt.Sprintf("%s on %d x %s", p.Model, p.GPUs, p.Hardware)
		if known := p.Trust.Sentence; !slices.Contains(servers[known], server) {
			servers[known] = append(servers[known], server)
		}
	}
	for _, known := range slices.Sorted(maps.Keys(servers)) {
		con.infof("%s: %s", strings.Join(servers[known], ", "), known)
	}
	if answered == 0 {
		return trace.Hinted(trace.Errorf("", "%s", doc.Points[0].Refused), doc.Points[0].Hint)
	}
	out := c.String("out")
	if out == "" {
		out = "predict.svg"
	}
	if err := files.Write(out, predictPicture(doc.Points)); err != nil {
		return err
	}
	con.infof("wrote %s: latency against throughput", out)
	return con.document(doc)
}

// libraryDoc is what predict without a model prints with --json.
type libraryDoc struct {
	SchemaVersion string           `json:"schema_version"`
	ToolVersion   string           `json:"tool_version"`
	Version       string           `json:"library_version"`
	Models        []string         `json:"models"`
	GPUs          []libraryGPU     `json:"gpus"`
	Judged        []library.Judged `json:"judged"`
}

type libraryGPU struct {
	Hardware string   `json:"hardware"`
	Tables   int      `json:"tables"`
	Rows     int      `json:"rows"`
	VLLM     []string `json:"vllm_versions"`
}

// showLibrary lists the built-in models, the embedded kernel tables, and the families of deployments that were compared
// with servers.
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
			cells{j.Family, j.Model, fmt.Sprint(j.TP), j.Points, percent(&j.TPOTMape), percent(&j.Interval90),
				percent(&j.TTFTMedian)})
	}
	if !con.json && !con.quiet {
		fmt.Fprintf(con.text, "models: %s\n", strings.Join(doc.Models, " "))
	}
	con.table("kernel tables "+doc.Version, cells{"GPU", "tables", "rows", "kernels of vLLM"}, rows)
	con.table("compared with servers, held out of the fit of the corrections; every other family is not validated",
		cells{"family", "model", "tp", "points", "TPOT within (mean)", "nine in ten", "TTFT within (median)"}, judged)
	return con.document(doc)
}
