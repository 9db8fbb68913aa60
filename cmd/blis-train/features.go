package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func featuresCommand() *cli.Command {
	return newCommand(runFeatures, []cli.Flag{
		&cli.StringFlag{Name: "run", Usage: "run `ID` (may be left out when there is one run)"},
		&cli.Int64Flag{Name: "step", Usage: "`N`, the step id", Required: false},
		&cli.StringFlag{Name: "coefficients", Usage: "coefficient `FILE|library` for the contributions; default the library's where it has " +
			"the run's GPU"},
		&cli.StringFlag{Name: "spec", Usage: "feature specification `VERSION`: 1.0, 1.1, 1.2 or experimental " +
			"(default: the coefficient file's, else 1.1)"},
	}, kernelFlags())
}

func runFeatures(c *cli.Context, con *console) error {
	if c.String("tables") != "" {
		return explainKernels(c, con)
	}
	if err := goesWith(c, "--tables", "deployment", "prefill", "decode", "rules", "set"); err != nil {
		return err
	}
	if c.NArg() != 1 {
		return usagef("features: got %d arguments, want one extracted folder", c.NArg())
	}
	if !c.IsSet("step") {
		return usagef("features: missing --step N")
	}
	set, err := con.featuresSet(c)
	if err != nil {
		return err
	}
	version, err := featuresVersion(c.String("spec"), set)
	if err != nil {
		return err
	}
	ext, err := readExtract(con, c.Args().First())
	if err != nil {
		return err
	}
	run, err := pickRun(ext, c.String("run"))
	if err != nil {
		return err
	}
	doc, err := pipeline.ExplainStep(c.Args().First(), run, c.Int64("step"), version, set)
	if err != nil {
		return err
	}
	showFeatures(con, doc)
	return con.document(doc)
}

// featuresSet is the coefficient file asked for. Without one it is the library's,
// unless another version is asked for or the library has none for the run.
func (con *console) featuresSet(c *cli.Context) (*coeff.Set, error) {
	name := c.String("coefficients")
	if name != "" && name != folder.LibraryWord {
		set, _, err := con.loadSet(name)
		return set, err
	}
	if v := c.String("spec"); name == "" && v != "" && v != string(features.V12) {
		return nil, nil
	}
	ext, err := readExtract(con, c.Args().First())
	if err != nil {
		return nil, err
	}
	run, err := pickRun(ext, c.String("run"))
	if err != nil {
		return nil, err
	}
	if _, err := coeff.LibraryFileFor(run.Deployment); err != nil && name == "" {
		return nil, nil
	}
	set, _, err := con.loadSetFor(name, run.Deployment)
	return set, err
}

// featuresVersion is the version asked for, which must be the coefficients'.
func featuresVersion(asked string, set *coeff.Set) (features.Version, error) {
	switch {
	case asked == "" && set == nil:
		return features.V11, nil
	case asked == "":
		return set.SpecVersion, nil
	}
	v := features.Version(asked)
	if err := features.CheckVersion(v); err != nil {
		return "", usagef("--spec: %v", err)
	}
	if set != nil && set.SpecVersion != v {
		return "", usagef("--spec: got %s, but the coefficients are for %s", v, set.SpecVersion)
	}
	return v, nil
}

// pickRun finds the run by id; without one there must be exactly one.
func pickRun(ext *result.Extract, id string) (*result.ExtractRun, error) {
	var ids []string
	for i := range ext.Runs {
		if r := &ext.Runs[i]; r.ID == id || id == "" && len(ext.Runs) == 1 {
			return r, nil
		}
		ids = append(ids, ext.Runs[i].ID)
	}
	if id == "" {
		return nil, usagef("features: missing --run ID, one of %s", strings.Join(ids, ", "))
	}
	err := trace.Errorf("", "no run %q in the folder, want one of %s", id, strings.Join(ids, ", "))
	if s := nearest(id, ids); s != "" {
		return nil, err.WithHint(fmt.Sprintf("did you mean --run %s?", s))
	}
	return nil, err
}

func showFeatures(con *console, doc *pipeline.StepExplanation) {
	e := doc.Explanation
	con.table(fmt.Sprintf("run %s, step %d: batch (%s)", doc.Run, doc.Step, doc.Source),
		cells{"request", "phase", "computed", "prompt", "new"}, memberRows(doc.Members))
	con.table("inputs", cells{"name", "value", "unit"}, quantityRows(e.Inputs, false))
	con.table("constants of spec "+string(e.SpecVersion), cells{"name", "value", "unit", "derived"}, quantityRows(e.Constants, true))
	var rs []cells
	for _, f := range e.Features {
		value := fmt.Sprintf("%.6g %s", f.Value, strings.TrimPrefix(f.Unit, "1"))
		if f.BoundHit {
			value += " (bound)"
		}
		rs = append(rs, cells{f.Slot, f.Name, strings.TrimSpace(value), number(f.Coefficient), optional(f.ContributionUs, 1, "%.1f"),
			f.Formula + "\n= " + f.Numbers})
	}
	for _, f := range e.Factors {
		rs = append(rs, cells{"", f.Name, fmt.Sprintf("%.6g", f.Value), "", fmt.Sprintf("%.1f", f.AddedUs), ""})
	}
	con.table("features", cells{"slot", "name", "value", "coefficient", "us", "formula"}, rs)
	con.table("step time", cells{"", "us"}, []cells{
		{"physical floor W/Bw", micros(e.FloorUs)}, {"predicted", micros(e.PredictionUs)},
		{fmt.Sprintf("measured (lag %d)", *doc.Lag), micros(doc.MeasuredUs)}})
	con.warn(doc.Warnings)
}

func memberRows(members []pipeline.BatchMember) []cells {
	var rs []cells
	for _, m := range members {
		rs = append(rs, cells{m.Request, m.Phase, m.Computed, m.Prompt, m.New})
	}
	return rs
}

func quantityRows(qs []features.Quantity, derived bool) []cells {
	var rs []cells
	for _, q := range qs {
		row := cells{q.Name, fmt.Sprintf("%.8g", q.Value), q.Unit}
		if derived {
			row = append(row, q.Formula)
		}
		rs = append(rs, row)
	}
	return rs
}

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
		return usagef("--%v", err)
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
