package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/kernels"
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
		&cli.StringFlag{Name: "spec", Usage: "feature specification `VERSION`: 1.0, 1.1, 1.2, 1.3 or experimental " +
			"(default: the coefficient file's, else 1.1, or 1.3 for unlike layers)"},
	}, kernelFlags())
}

func runFeatures(c *cli.Context, con *console) error {
	if c.String("deployment") != "" {
		return explainKernels(c, con)
	}
	if err := goesWith(c, "--deployment", "tables", "prefill", "decode", "set"); err != nil {
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
	ext, err := readExtract(con, c.Args().First())
	if err != nil {
		return err
	}
	run, err := pickRun(ext, c.String("run"))
	if err != nil {
		return err
	}
	version, err := featuresVersion(c.String("spec"), set, run.Deployment)
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
	if _, err := kernels.Bound(run.Deployment, kernels.Options{}); err != nil && name == "" {
		return nil, nil
	}
	set, _, err := con.loadSetFor(name, run.Deployment)
	return set, err
}

// featuresVersion is the version asked for, which must be the coefficients'.
func featuresVersion(asked string, set *coeff.Set, d *deploy.Deployment) (features.Version, error) {
	switch {
	case asked == "" && set == nil:
		return features.DefaultVersion(d), nil
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
		&cli.StringFlag{Name: "deployment", Usage: "take a step of this run.yaml `FILE` or run folder apart into its kernels"},
		&cli.StringFlag{Name: "tables", Usage: "with --deployment: kernel tables of library build in `FILE`; default the embedded ones"},
		&cli.StringFlag{Name: "prefill", Usage: "with --deployment: prompt chunks `N@CACHED,...`: N new tokens behind CACHED ones"},
		&cli.StringFlag{Name: "decode", Usage: "with --deployment: decodes `NxCONTEXT,...`: N requests with CONTEXT tokens each"},
		&cli.StringSliceFlag{Name: "set", Usage: "with --deployment: supply or override a field of run.yaml, `KEY.PATH=VALUE` (repeatable)"},
	}
}

// kernelsDoc is what features --deployment prints with --json.
type kernelsDoc struct {
	SchemaVersion string      `json:"schema_version"`
	ToolVersion   string      `json:"tool_version"`
	GPU           string      `json:"gpu"`
	Family        string      `json:"family"`
	Judged        string      `json:"judged"` // how far the family was off where it was left out, in words; or why nobody knows
	Operators     []kernelDoc `json:"operators"`
	KernelsMs     float64     `json:"kernels_ms"`
	StepMs        float64     `json:"step_ms"` // with the corrections: the GPU's scale and the host's work
	Terms         []termDoc   `json:"terms"`   // of the coefficients
	PredictedMs   *float64    `json:"predicted_ms"`
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

type termDoc struct {
	Name string  `json:"name"`
	Ms   float64 `json:"ms"`
}

// explainKernels prints the kernels of the step that the flags state.
func explainKernels(c *cli.Context, con *console) error {
	if c.NArg() > 0 {
		return usagef("features --deployment: got the argument %q, want flags only", c.Args().First())
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
	gpu, err := kernels.For(&dep.Hardware)
	if path := c.String("tables"); path != "" {
		gpu, err = readTables(path, con.special)
	}
	if err != nil {
		return err
	}
	step, err := gpu.Bind(dep, kernels.Options{})
	if err != nil {
		return err
	}
	doc := describeKernels(step, dep, batch)
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
		return nil, usagef("features --deployment: missing --prefill or --decode: a step needs a batch")
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

// readTables reads a user's own kernel tables.
func readTables(path string, special bool) (*kernels.GPU, error) {
	data, _, err := folder.ReadInput(path, special)
	if err != nil {
		return nil, err
	}
	return kernels.Read(data, path)
}

func describeKernels(step *kernels.Step, dep *deploy.Deployment, batch []trace.Chunk) *kernelsDoc {
	learned, b := kernels.Learned(), kernels.BatchOf(batch)
	doc := &kernelsDoc{SchemaVersion: result.SchemaVersion, ToolVersion: folder.ToolVersion, GPU: dep.Hardware.Name, Family: step.Family,
		Judged: learned.Sentence(step), Operators: []kernelDoc{}, Terms: []termDoc{}}
	for i, us := range step.Us(&b) {
		if op := &step.Operators[i]; us > 0 {
			doc.Operators = append(doc.Operators, kernelDoc{op.Name, op.Count, op.Shape, op.DType, op.Table, op.Kernel, op.Reached.String(),
				op.Note, us / 1e3})
			doc.KernelsMs += us / 1e3
		}
	}
	x, theta := [kernels.NumStep]float64{}, learned.On(dep.Hardware.Name)
	step.NewPricer().Features(&b, &theta, &x)
	for k, v := range theta {
		doc.StepMs += float64(v*x[k]) / 1e3
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
	con.table(d.Family, cells{"operator", "count", "shape", "dtype", "ms", "reached", "from"}, rows)
	con.sayf("%s", d.Judged)
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
