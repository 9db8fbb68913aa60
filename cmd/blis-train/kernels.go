package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// kernelFlags are what features takes to look the kernels of a step up.
func kernelFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "tables", Usage: "take a step apart into the kernel times published in `FOLDER`, with <gpu>.yaml and data/<gpu>"},
		&cli.StringFlag{Name: "deployment", Usage: "with --tables: run.yaml `FILE` or run folder, what runs"},
		&cli.StringFlag{Name: "prefill", Usage: "with --tables: prompt chunks `N@CACHED,...`: N new tokens behind CACHED ones"},
		&cli.StringFlag{Name: "decode", Usage: "with --tables: decodes `NxCONTEXT,...`: N requests with CONTEXT tokens each"},
		&cli.StringFlag{Name: "rules", Value: string(library.Engine), Usage: "with --tables: how kernels make a step, `RULES`: engine " +
			"(vLLM's) or composed (the composed data sets')"},
		&cli.StringSliceFlag{Name: "set", Usage: "with --tables: supply or override a field of run.yaml, `KEY.PATH=VALUE` (repeatable)"},
	}
}

// kernelsDoc is what features --tables prints with --json.
type kernelsDoc struct {
	SchemaVersion string      `json:"schema_version"`
	ToolVersion   string      `json:"tool_version"`
	GPU           string      `json:"gpu"`
	VLLMVersion   string      `json:"tables_vllm_version"`
	Rules         string      `json:"rules"`
	AllReduce     string      `json:"all_reduce,omitempty"` // how the engine reduces this step's activations
	Parts         []kernelDoc `json:"parts"`
	TotalMs       float64     `json:"total_ms"` // without the host's work
	Terms         []termDoc   `json:"terms"`    // of the coefficients
	PredictedMs   *float64    `json:"predicted_ms"`
}

type kernelDoc struct {
	Name     string  `json:"name"`
	Ms       float64 `json:"ms"`
	Share    float64 `json:"share"`    // of the total
	Measured bool    `json:"measured"` // from a table; false: charged by its bytes
}

type termDoc struct {
	Name string  `json:"name"`
	Ms   float64 `json:"ms"`
}

// explainKernels prints the kernels of the step that the flags state.
func explainKernels(c *cli.Context, con *console) error {
	if c.String("deployment") == "" {
		return usagef("features --tables: missing --deployment")
	}
	if c.NArg() > 0 {
		return usagef("features --tables: got the argument %q, want flags only", c.Args().First())
	}
	if err := goesWith(c, "an extracted folder", "run", "step", "spec"); err != nil {
		return err
	}
	batch, err := parseBatch(c.String("prefill"), c.String("decode"))
	if err != nil {
		return err
	}
	dep, err := loadDeployment(c.String("deployment"), listOf(c, settingFlag)...)
	if err != nil {
		return err
	}
	rules := library.Rules(c.String("rules"))
	if err := rules.Check(); err != nil {
		return &usageError{msg: "--" + err.Error()}
	}
	tables, err := library.Load(c.String("tables"), dep.Hardware.Name)
	if err != nil {
		return err
	}
	stepper, err := tables.For(dep, rules)
	if err != nil {
		return err
	}
	doc := describeKernels(tables, stepper, rules, batch)
	if name := c.String("coefficients"); name != "" {
		set, _, err := con.loadSet(name)
		if err != nil {
			return err
		}
		p, err := pipeline.NewStepTimes(set, dep)
		if err != nil {
			return err
		}
		if err := doc.addTerms(p, batch); err != nil {
			return err
		}
	}
	doc.show(con)
	return con.document(doc)
}

// parseBatch reads prompt chunks N@CACHED and decodes NxCONTEXT.
func parseBatch(prefill, decode string) ([]trace.Chunk, error) {
	var batch []trace.Chunk
	for _, word := range words(prefill) {
		n, cached, ok := twoNumbers(word, "@")
		if !ok || n < 1 {
			return nil, usagef("--prefill: got %q, want N@CACHED with N >= 1, as in 512@1024", word)
		}
		batch = append(batch, trace.Chunk{Computed: cached, Prompt: cached + n, New: n})
	}
	for _, word := range words(decode) {
		n, context, ok := twoNumbers(word, "x")
		if !ok || n < 1 || n > 1<<20 || context < 1 {
			return nil, usagef("--decode: got %q, want NxCONTEXT with N and CONTEXT >= 1, as in 32x1000", word)
		}
		for range n {
			batch = append(batch, trace.Chunk{Computed: context, Prompt: 1, New: 1})
		}
	}
	if len(batch) == 0 {
		return nil, usagef("features --tables: missing --prefill or --decode: a step needs a batch")
	}
	return batch, nil
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// twoNumbers reads two whole numbers >= 0 around a separator.
func twoNumbers(word, sep string) (a, b int64, ok bool) {
	left, right, found := strings.Cut(word, sep)
	a, err1 := strconv.ParseInt(left, 10, 64)
	b, err2 := strconv.ParseInt(right, 10, 64)
	return a, b, found && err1 == nil && err2 == nil && a >= 0 && b >= 0 && a <= 1<<40 && b <= 1<<40
}

func describeKernels(t *library.Tables, s *library.Stepper, rules library.Rules, batch []trace.Chunk) *kernelsDoc {
	parts := s.StepMs(batch)
	doc := &kernelsDoc{SchemaVersion: result.SchemaVersion, ToolVersion: folder.ToolVersion, GPU: t.GPU, VLLMVersion: t.Version,
		Rules: string(rules), Parts: []kernelDoc{}, TotalMs: parts.TotalMs(), Terms: []termDoc{}}
	if rules == library.Engine && parts[library.AllReduce] > 0 {
		tokens := 0.0
		for _, c := range batch {
			tokens += float64(c.New)
		}
		doc.AllReduce = s.Way(tokens)
	}
	for p := range library.NumParts {
		if parts[p] > 0 {
			doc.Parts = append(doc.Parts, kernelDoc{p.String(), parts[p], parts[p] / doc.TotalMs, p.Measured()})
		}
	}
	return doc
}

// addTerms adds what each term of the coefficients says of the same step.
func (d *kernelsDoc) addTerms(p *pipeline.StepTimes, batch []trace.Chunk) error {
	us, err := p.StepUs(batch)
	if err != nil {
		return err
	}
	ms := us / 1e3
	d.PredictedMs = &ms
	for _, t := range p.Terms() {
		if t.Us != 0 {
			d.Terms = append(d.Terms, termDoc{t.Name, t.Us / 1e3})
		}
	}
	return nil
}

func (d *kernelsDoc) show(con *console) {
	title := fmt.Sprintf("%s, tables of vLLM %s, %s rules", d.GPU, d.VLLMVersion, d.Rules)
	if d.AllReduce != "" {
		title += ", all-reduce by " + d.AllReduce
	}
	var rows []cells
	for _, p := range d.Parts {
		source := "table"
		if !p.Measured {
			source = "bytes"
		}
		rows = append(rows, cells{p.Name, fmt.Sprintf("%.3f", p.Ms), fmt.Sprintf("%.1f", 100*p.Share), source})
	}
	rows = append(rows, cells{"kernels", fmt.Sprintf("%.3f", d.TotalMs), "100.0", "without the host's work"})
	con.table(title, cells{"part", "ms", "%", "from"}, rows)
	if d.PredictedMs == nil {
		return
	}
	rows = rows[:0]
	for _, t := range d.Terms {
		rows = append(rows, cells{t.Name, fmt.Sprintf("%.3f", t.Ms)})
	}
	rows = append(rows, cells{"predicted", fmt.Sprintf("%.3f", *d.PredictedMs)})
	con.table("the coefficients' terms of the same step", cells{"term", "ms"}, rows)
}
