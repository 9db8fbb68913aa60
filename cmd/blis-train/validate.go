package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/pipeline/validate/gates"
	"github.com/blis-train/blis-train/report/input"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func validateCommand() *cli.Command {
	return &cli.Command{
		Name:      "validate",
		Usage:     "replay the traces with fitted coefficients and judge them",
		ArgsUsage: "OUT",
		Description: "Compares predicted steps with recorded ones and replays every phase through the simulator:\n" +
			"plain (which gates), with noise, and drift-corrected. Runs the fit did not use are test runs.\n" +
			"Writes validation.json and report.html; exit 3 when a gate fails.\n\n" +
			"Example:\n   blis-train validate --fit out/fit.json out",
		Flags: flags([]cli.Flag{
			&cli.StringFlag{Name: "fit", Usage: "the `FILE` fit.json to judge (default: OUT/fit.json)"},
			&cli.StringFlag{Name: "coefficients", Usage: "judge this coefficient `FILE` in place of the fit's own"},
			outFlag("`FOLDER` of the results (default: OUT itself)"), configFlag(), ledgerFlag(),
		}, validateFlags(), []cli.Flag{
			&cli.Float64Flag{Name: "split", Value: validate.DefaultOptions().Split, Usage: "training `SHARE` of each phase, at least the fit's (its default)"},
			&cli.Int64Flag{Name: "seed", Value: validate.DefaultOptions().Seed, Usage: "`SEED` of the noise"},
			&cli.BoolFlag{Name: "force", Usage: "accept an output folder that holds foreign files"},
			&cli.IntFlag{Name: "workers", Usage: "`N` workers; 0 uses every core"},
		}, talkFlags()),
		Action: runValidate,
	}
}

// validateFlags are the options of a validation; run has them too.
func validateFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "steps-only", Usage: "no replay: teacher-forced errors only"},
		&cli.StringFlag{Name: "noise", Value: "residual", Usage: "noisy replays beside the plain one, `KIND`: residual or none"},
		&cli.Float64Flag{Name: "overhead-us", Value: -1, Usage: "constant overhead in `US` in place of the overhead coefficients; -1: those"},
		&cli.Float64Flag{Name: "egress-us", Value: -1, Usage: "constant egress in `US`; -1: the egress coefficients"},
		&cli.BoolFlag{Name: "idle-delays", Usage: "take overhead and egress from requests that met an idle server"},
		&cli.Int64Flag{Name: "shared-prefix-tokens", Usage: "first `N` prompt tokens that requests share where the recording does not say"},
		&cli.StringFlag{Name: "latency", Value: "physics", Usage: "step time `MODEL` of the replay: physics or roofline"},
		&cli.StringSliceFlag{Name: "gate", Usage: "threshold of a gate, `NAME=VALUE` (repeatable)"},
		&cli.StringFlag{Name: "gates", Usage: "`list` prints every gate with threshold and source"},
		&cli.BoolFlag{Name: "require-all-gates", Usage: "exit 3 when a required gate cannot be judged"},
		&cli.StringFlag{Name: "figures", Usage: "export every figure of the report as SVG and PNG to `DIR`"},
	}
}

func validateOptions(c *cli.Context, given settings) (validate.Options, error) {
	o := validate.DefaultOptions()
	o.Split, o.Seed, o.Workers = c.Float64("split"), c.Int64("seed"), c.Int("workers")
	o.StepsOnly, o.IdleDelays, o.SharedPrefix = c.Bool("steps-only"), c.Bool("idle-delays"), c.Int64("shared-prefix-tokens")
	switch c.String("noise") {
	case "residual":
	case "none":
		o.Noise = false
	default:
		return o, usagef("--noise: got %q, want residual or none", c.String("noise"))
	}
	for name, to := range map[string]**float64{"overhead-us": &o.OverheadUs, "egress-us": &o.EgressUs} {
		if v := c.Float64(name); v != -1 {
			*to = &v
		}
	}
	if err := pipeline.UseLatency(&o, c.String("latency")); err != nil {
		return o, &usageError{msg: err.Error()}
	}
	o.Thresholds, o.ThresholdsFrom = map[string]float64{}, map[string]string{}
	for name, v := range given.gates {
		o.Thresholds[name], o.ThresholdsFrom[name] = v, given.record.File.Name
	}
	for _, g := range c.StringSlice("gate") {
		name, text, ok := strings.Cut(g, "=")
		v, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			return o, usagef("--gate: got %q, want NAME=VALUE", g)
		}
		o.Thresholds[name], o.ThresholdsFrom[name] = v, "--gate"
	}
	if err := gates.CheckThresholds(o.Thresholds); err != nil {
		return o, &usageError{msg: err.Error(), hint: "--gates list prints the names"}
	}
	return o, nil
}

// listGates answers --gates list.
func listGates(c *cli.Context, con *console) (bool, error) {
	switch c.String("gates") {
	case "":
		return false, nil
	case "list":
	default:
		return false, usagef("--gates: got %q, want list", c.String("gates"))
	}
	if con.json {
		return true, con.document(gates.Defaults())
	}
	var rows []table.Row
	for _, t := range gates.Defaults() {
		rows = append(rows, table.Row{t.Name, t.Op, t.Limit, t.Doc, t.Source})
	}
	con.table("gates", table.Row{"name", "op", "threshold", "what is compared", "why"}, rows)
	con.sayf("the clause of a gate is its name with dashes: %s#gate-beta-mape", result.Book)
	return true, nil
}

func runValidate(c *cli.Context) error {
	con, err := newConsole(c)
	if err != nil {
		return err
	}
	if done, err := listGates(c, con); done || err != nil {
		return err
	}
	if c.NArg() != 1 {
		return usagef("validate: got %d arguments, want one extracted folder", c.NArg())
	}
	if con.settings, err = applyConfig(c, con, c.String("config"), "validate"); err != nil {
		return err
	}
	o, err := validateOptions(c, con.settings)
	if err != nil {
		return err
	}
	in := c.Args().First()
	out := c.String("out")
	if out == "" {
		out = in
	}
	if err := con.claim(out, c.Bool("force") || out == in); err != nil {
		return err
	}
	ext, err := readExtract(con, in)
	if err != nil {
		return err
	}
	fitPath := c.String("fit")
	if fitPath == "" {
		fitPath = filepath.Join(in, fitFile)
	}
	doc, err := fitToJudge(c, in, fitPath)
	if err != nil {
		return err
	}
	val, err := doValidate(c, con, in, out, ext, doc, o)
	if err != nil {
		return err
	}
	if err := con.appendLedger(c.String("ledger"), "validate", val.Header, doc, val, filepath.Join(out, validationFile)); err != nil {
		return err
	}
	if err := con.document(val); err != nil {
		return err
	}
	return verdict(c, con, val)
}

// fitToJudge reads the report of the fit. With --coefficients alone there may be none.
func fitToJudge(c *cli.Context, in, path string) (*result.Fit, error) {
	doc := &result.Fit{}
	err := readDoc(path, doc)
	switch {
	case err == nil:
		return doc, nil
	case errors.Is(err, fs.ErrNotExist) && c.String("coefficients") != "" && c.String("fit") == "":
		return nil, nil
	}
	return nil, &hinted{err, fmt.Sprintf("blis-train fit %s", in)}
}

// judgeSet validates the fit's own coefficients, or those of --coefficients.
func judgeSet(c *cli.Context, con *console, in string, ext *result.Extract, doc *result.Fit, o validate.Options) (*result.Validation, error) {
	h := con.header(pipeline.ValidateCommand(o))
	path := c.String("coefficients")
	if path == "" {
		return pipeline.Validate(c.Context, in, ext, doc, o, h)
	}
	set, file, err := con.loadSet(path)
	if err != nil {
		return nil, err
	}
	h.Command += " --coefficients " + file.Name
	val, err := pipeline.ValidateSet(c.Context, in, ext, set, doc, o, h)
	if err == nil {
		val.Inputs = append(append([]result.Input{}, val.Inputs...), file)
	}
	return val, err
}

// skipReplay turns the replays off when nothing says how long a request takes to
// reach the engine (01 Y-1): the steps are judged all the same, and it is said.
func skipReplay(c *cli.Context, con *console, doc *result.Fit, o *validate.Options) error {
	if o.StepsOnly || o.OverheadUs != nil || o.IdleDelays {
		return nil
	}
	if path := c.String("coefficients"); path != "" {
		set, _, err := con.loadSet(path)
		if err != nil {
			return err
		}
		if m := set.AlphaModel(coeff.Overhead); m != nil && m.Replay {
			return nil
		}
	} else if doc == nil || slices.ContainsFunc(doc.Alpha, func(m result.Model) bool { return m.Target == coeff.Overhead && m.Replay }) {
		return nil
	}
	o.StepsOnly = true
	con.warn([]trace.Finding{trace.Findingf(validate.CodeNoOverhead, "no overhead coefficients: the replays are skipped; --overhead-us or --idle-delays replays without them")})
	return nil
}

// doValidate judges the fit, writes validation.json and report.html to out and
// prints the judgement.
func doValidate(c *cli.Context, con *console, in, out string, ext *result.Extract, doc *result.Fit, o validate.Options) (*result.Validation, error) {
	o.Progress = con.progress()
	if doc != nil && !c.IsSet("split") {
		o.Split = doc.Options.Split
	}
	if err := skipReplay(c, con, doc, &o); err != nil {
		return nil, err
	}
	val, err := judgeSet(c, con, in, ext, doc, o)
	if err != nil {
		return nil, err
	}
	if err := writeDoc(filepath.Join(out, validationFile), val); err != nil {
		return nil, err
	}
	showValidation(con, val)
	inspection, err := pipeline.Inspect(c.Context, in, ext, doc, con.header("inspect"), nil)
	if err != nil {
		return nil, err
	}
	if err := writeReport(c, out, input.Input{Extract: withoutRuntime(ext), Fit: doc, Validation: val, Inspect: inspection}); err != nil {
		return nil, err
	}
	con.sayf("report: %s", filepath.Join(out, reportFile))
	return val, nil
}

// withoutRuntime drops what differs between two runs on the same inputs.
func withoutRuntime(ext *result.Extract) *result.Extract {
	clean := *ext
	clean.Seconds, clean.PeakRSSBytes = nil, nil
	return &clean
}

// verdict turns the judgement into the exit code (design 06).
func verdict(c *cli.Context, con *console, val *result.Validation) error {
	switch {
	case val.Verdict == result.VerdictFail:
		n, failed := failedGates(val.Gates)
		return gatef("verdict fail: %d %s failed (%s)", n, plural(n, "gate", "gates"), strings.Join(failed, "; "))
	case val.Verdict == result.VerdictInsufficient:
		msg := "verdict insufficient: " + strings.Join(val.Missing, "; ")
		if c.Bool("require-all-gates") {
			return gatef("%s", msg)
		}
		con.line("info", msg)
		return nil
	}
	con.sayf("verdict pass: every gate passed%s", loosenedText(val))
	return nil
}

// loosenedText says how many gates passed by a threshold looser than the default.
func loosenedText(val *result.Validation) string {
	n := 0
	for _, f := range val.Warnings {
		if f.Code == gates.CodeLoosened {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d of them loosened", n)
}

// failedGates counts the failed gates and names each with its value, the first
// one's where several scopes fail.
func failedGates(gates []result.Gate) (n int, sentences []string) {
	first, times := map[string]result.Gate{}, map[string]int{}
	var names []string
	for _, g := range gates {
		if g.Pass == nil || *g.Pass {
			continue
		}
		if n++; times[g.Name] == 0 {
			names, first[g.Name] = append(names, g.Name), g
		}
		times[g.Name]++
	}
	const most = 4
	for i, name := range names {
		if i == most {
			sentences = append(sentences, fmt.Sprintf("and %d more", len(names)-most))
			break
		}
		g := first[name]
		s := fmt.Sprintf("%s %s, want %s %g", name, number(g.Value), g.Op, g.Threshold)
		if times[name] > 1 {
			s = fmt.Sprintf("%s in %d scopes, the first %s, want %s %g", name, times[name], number(g.Value), g.Op, g.Threshold)
		}
		sentences = append(sentences, s)
	}
	return n, sentences
}

// showValidation prints the judgement for people: failed gates first.
func showValidation(con *console, val *result.Validation) {
	con.table("replay, hold-out requests (KS, median relative error)", table.Row{"run", "phase", "split", "n", "TTFT", "ITL", "E2E", "drift-corrected TTFT", "ITL", "E2E", "note"}, replayRows(val))
	failed, silent := openGates(val.Gates)
	con.table("failed gates", table.Row{"gate", "scope", "value", "want", "note"}, failed)
	con.table("gates not judged", table.Row{"gates", "scopes", "why"}, silent)
	said := map[string]bool{}
	for _, d := range val.Diagnoses {
		if !said[d.Sentence] { // with one configuration "all" says the same again
			said[d.Sentence] = true
			con.sayf("diagnosis: %s: %s", d.Scope, d.Sentence)
		}
	}
	con.warn(val.Warnings)
}

// openGates are the failed gates, and those not judged grouped by reason.
func openGates(gates []result.Gate) (failed, silent []table.Row) {
	names, scopes := map[string]map[string]bool{}, map[string]map[string]bool{}
	var reasons []string
	for _, g := range gates {
		switch {
		case g.Pass == nil:
			if names[g.Note] == nil {
				reasons = append(reasons, g.Note)
				names[g.Note], scopes[g.Note] = map[string]bool{}, map[string]bool{}
			}
			names[g.Note][g.Name], scopes[g.Note][g.Scope] = true, true
		case !*g.Pass:
			failed = append(failed, table.Row{g.Name, g.Scope, number(g.Value), g.Op + " " + fmt.Sprintf("%g", g.Threshold), g.Note})
		}
	}
	for _, why := range reasons {
		silent = append(silent, table.Row{fewOf(names[why]), fewOf(scopes[why]), why})
	}
	return failed, silent
}

// fewOf prints up to three members of a set and how many more there are.
func fewOf(set map[string]bool) string {
	all := make([]string, 0, len(set))
	for name := range set {
		all = append(all, name)
	}
	sort.Strings(all)
	if n := len(all); n > 3 {
		return strings.Join(all[:3], ", ") + fmt.Sprintf(" and %d more", n-3)
	}
	return strings.Join(all, ", ")
}

func replayRows(val *result.Validation) []table.Row {
	var out []table.Row
	for _, r := range val.Runs {
		if r.Metrics == nil {
			continue
		}
		note := r.Load
		if r.Saturated {
			note = "saturated, excluded"
		} else if !r.Sufficient {
			note += ", insufficient data"
		}
		row := table.Row{r.ID, r.Phase, r.Split.Kind, r.Requests, metricText(r.Metrics.TTFT), metricText(r.Metrics.ITL), metricText(r.Metrics.E2E)}
		if d := r.MetricsDrift; d != nil {
			row = append(row, metricText(d.TTFT), metricText(d.ITL), metricText(d.E2E))
		} else {
			row = append(row, "-", "-", "-")
		}
		out = append(out, append(row, note))
	}
	return out
}

func metricText(m *result.Metric) string {
	if m == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f %3.0f %%", m.KSD, 100*m.MedianRelErr)
}
