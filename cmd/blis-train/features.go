package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	embedded "github.com/blis-train/blis-train/coeff/library"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	tables "github.com/blis-train/blis-train/trace/table"
)

func featuresCommand() *cli.Command {
	return &cli.Command{
		Name:      "features",
		Usage:     "explain one step: inputs, every feature with its formula, the prediction per term; or its kernels",
		ArgsUsage: "OUT",
		Description: "Reads the extracted tables of one run and shows how the step's feature vector comes about.\n" +
			"With a coefficient file it adds what each term contributes to the prediction, and what was measured.\n" +
			"With --tables it looks every kernel of a stated step up in published tables of the GPU (the systems folder of\n" +
			"the aiconfigurator-core package) and prints the step part by part, beside the terms of a coefficient file.\n\n" +
			"Example:\n   blis-train features out --run gqa-async --step 100 --coefficients out/coefficients.yaml\n" +
			"   blis-train features --tables systems --deployment run.yaml --prefill 512@0,512@1024 --decode 32x1000",
		Flags: flags([]cli.Flag{
			&cli.StringFlag{Name: "run", Usage: "run `ID` (may be left out when there is one run)"},
			&cli.Int64Flag{Name: "step", Usage: "`N`, the step id", Required: false},
			&cli.StringFlag{Name: "coefficients", Usage: "coefficient `FILE|library` for the contributions; default the library's where it has " +
				"the run's GPU"},
			&cli.StringFlag{Name: "spec", Usage: "feature specification `VERSION`: 1.0, 1.1, 1.2 or experimental " +
				"(default: the coefficient file's, else 1.1)"},
		}, kernelFlags(), talkFlags()),
		Action: withConsole(runFeatures),
	}
}

// featuresDoc is what features --json prints.
type featuresDoc struct {
	SchemaVersion string                `json:"schema_version"`
	ToolVersion   string                `json:"tool_version"`
	Run           string                `json:"run"`
	Step          int64                 `json:"step"`
	Source        string                `json:"source"`      // rich | journey | approximate
	MeasuredUs    *float64              `json:"measured_us"` // cadence of the interval that holds the step's execution
	Lag           *int                  `json:"lag"`
	Members       []memberDoc           `json:"members"`
	Explanation   *features.Explanation `json:"explanation"`
	Warnings      []trace.Finding       `json:"warnings"`
}

// memberDoc is one request's part of the batch.
type memberDoc struct {
	Request  string `json:"request"`
	Phase    string `json:"phase"`
	Computed int64  `json:"computed_tokens"`
	Prompt   int64  `json:"prompt_tokens"`
	New      int64  `json:"new_tokens"`
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
	doc, err := explainStep(con, c.Args().First(), c.String("run"), c.Int64("step"), version, set)
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
	if _, err := embedded.FileFor(run.Deployment); err != nil && name == "" {
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
		return "", &usageError{msg: "--spec: " + err.Error()}
	}
	if set != nil && set.SpecVersion != v {
		return "", usagef("--spec: got %s, but the coefficients are for %s", v, set.SpecVersion)
	}
	return v, nil
}

func explainStep(con *console, out, id string, step int64, version features.Version, set *coeff.Set) (*featuresDoc, error) {
	ext, err := readExtract(con, out)
	if err != nil {
		return nil, err
	}
	run, err := pickRun(ext, id)
	if err != nil {
		return nil, err
	}
	recorded, err := tables.Read(tables.RunDir(out, run.ID))
	if err != nil {
		return nil, err
	}
	steps, err := rows.Rebuild(recorded, run.Deployment, version)
	if err != nil {
		return nil, err
	}
	st := steps.At(step)
	if st == nil {
		return nil, trace.Errorf("", "run %q has no step %d, want %d..%d", run.ID, step, steps.First, steps.First+int64(steps.Len())-1)
	}
	if !st.Known() {
		return nil, trace.Errorf(rows.UnknownBatch, "the batch of step %d of run %q is unknown: %s", step, run.ID, st.Reason).
			WithHint("record journeys at rate 1.0 and snapshots with --step-tracing-rich-subsample-rate 1.0")
	}
	space, err := features.New(version, run.Deployment)
	if err != nil {
		return nil, err
	}
	return describeStep(steps, st, space, set)
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

func describeStep(steps *rows.Steps, st *rows.Step, space *features.Space, set *coeff.Set) (*featuresDoc, error) {
	gamma, lag := features.DefaultGamma, rows.AssumedLag(steps.Dep)
	var coefficients []float64
	if set != nil {
		gamma, coefficients = set.Gamma, coeff.Values(set.Beta)
		if l, known := set.PipelineLag[steps.Run.ID]; known {
			lag = l.Lag
		}
	}
	in := st.In
	in.PreemptionEMA = emaAt(steps.Run, steps.Version, st.ID, gamma)
	e, err := space.ExplainBeta(&in, coefficients)
	if err != nil {
		return nil, err
	}
	doc := &featuresDoc{SchemaVersion: result.SchemaVersion, ToolVersion: folder.ToolVersion, Run: steps.Run.ID, Step: st.ID,
		Source: st.Tag.String(), Lag: &lag, MeasuredUs: cadenceUs(steps.Run, st.ID+int64(lag)), Members: []memberDoc{}, Explanation: e,
		Warnings: []trace.Finding{}}
	members, err := steps.Members(st.ID)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		phase := "prefill"
		if m.IsDecode() {
			phase = "decode"
		}
		doc.Members = append(doc.Members, memberDoc{m.CoreID, phase, m.Computed, m.Prompt, m.New})
	}
	if set != nil {
		p := features.BetaPredictor(features.On(set, steps.Dep))
		x, hits := make([]float64, len(e.Features)), features.Hits(0)
		for i, f := range e.Features {
			x[i] = f.Value
			if f.BoundHit {
				hits |= 1 << i
			}
		}
		if _, err := p.Predict(x, hits); err != nil {
			return nil, err
		}
		doc.Warnings = append(append(doc.Warnings, p.Warnings()...), set.Outside(steps.Dep)...)
	}
	return doc, nil
}

// emaAt is the preemption average after the last recorded step up to id.
func emaAt(run *trace.Run, v features.Version, id int64, gamma float64) float64 {
	average, ema := features.Average{Version: v, Gamma: gamma}, 0.0
	for i := range run.Steps {
		if s := &run.Steps[i]; s.ID <= id {
			ema = average.Step(s.TsStartNs, float64(s.NumPreempted), float64(s.RunningDepth))
		}
	}
	return ema
}

// cadenceUs is the time from the start of step id to the start of the next
// one, when both were recorded.
func cadenceUs(run *trace.Run, id int64) *float64 {
	for i := 0; i+1 < len(run.Steps); i++ {
		if run.Steps[i].ID == id && run.Steps[i+1].ID == id+1 {
			us := rows.SpanUs(run.Steps[i].TsStartNs, run.Steps[i+1].TsStartNs)
			return &us
		}
	}
	return nil
}

func showFeatures(con *console, doc *featuresDoc) {
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
	con.table("features", cells{"slot", "name", "value", "coefficient", "us", "formula"}, rs)
	con.table("step time", cells{"", "us"}, []cells{
		{"physical floor W/Bw", micros(e.FloorUs)}, {"predicted", micros(e.PredictionUs)},
		{fmt.Sprintf("measured (lag %d)", *doc.Lag), micros(doc.MeasuredUs)}})
	con.warn(doc.Warnings)
}

func memberRows(members []memberDoc) []cells {
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
