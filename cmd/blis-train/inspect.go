package main

// This file is the command inspect, which checks data before any fit, or sizes a model.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
)

// inspectCommand returns the command inspect.
func inspectCommand() *cli.Command {
	o := pipeline.DefaultInspectOptions()
	groups := []group{{name: "extract", options: o.Flags()}}
	return newCommand(&cli.Command{
		Name:      "inspect",
		ArgsUsage: "RUNDIR|PARENT|OUT...",
		Usage:     "check the data before any fit: losses, clocks, saturation, coverage, targets; or describe a model",
		Description: `Reads run directories, or folders that extract has written. Exit status 3 when a run is unfit for
fitting, with the reason in one sentence. With -o it writes inspect.json.

With --model it reads a Hugging Face config.json instead and prints its layers, parameters and bytes;
exit status 1 with the reason when it cannot be read, or vLLM would not load it at these parallel sizes.

Example:
   blis-train inspect testdata/traces/real
   blis-train inspect --model config.json --tp 8 --json`,
		Flags: slices.Concat(
			[]cli.Flag{
				&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Destination: &o.Extract.Out,
					Usage: "`FOLDER` of inspect.json (default: none is written)"},
				configFlag(),
				verboseFlag(),
			},
			groups[0].options,
			[]cli.Flag{
				dryRunFlag(),
				&cli.StringFlag{Name: "model",
					Usage: "print layers and sizes of this `CONFIG.json` and stop; hf_quant_config.json in its " +
						"folder is read as well"},
				&cli.Int64Flag{Name: "tp", Value: 1, Usage: "with --model: tensor-parallel size `N`"},
				&cli.Int64Flag{Name: "dp", Value: 1, Usage: "with --model: data-parallel size `N`"},
				&cli.BoolFlag{Name: "ep", Usage: "with --model: --enable-expert-parallel"},
			}),
	}, groups, func(c *cli.Context, con *console) error { return runInspect(c, con, &o) })
}

// runInspect prints what the recordings or extracted folders in the arguments can be used for, and
// with --model the sizes of a model.
func runInspect(c *cli.Context, con *console, o *pipeline.InspectOptions) error {
	con.brief = false // also without -v the tables are printed, all but one (showInspect)
	if c.IsSet("model") {
		return inspectModel(c, con)
	}
	if err := goesWith(c, "--model", "tp", "dp", "ep"); err != nil {
		return err
	}
	par.LeanHeap()
	inputs := c.Args().Slice()
	if len(inputs) == 0 {
		return usagef("inspect: got no argument, want a run directory, a parent of them or an extracted folder")
	}
	_, raw := pipeline.Extracted(inputs)
	if len(raw) == 0 { // --max-bad-frac and --workers may be the environment's
		err := goesWith(c, "recordings", "only", "exclude", "set", "split-engines", "why-rejected", "format",
			"max-line", "max-expansion", "max-client-memory", "dry-run")
		if err != nil {
			return err
		}
	}
	if err := con.configure(c, c.String("config"), c.Args().Slice()); err != nil {
		return err
	}
	con.completeExtract(c, &o.Extract)
	if c.Bool("dry-run") && len(raw) > 0 {
		return listRuns(con, raw, o.Extract)
	}
	doc, err := pipeline.Inspect(c.Context, inputs, *o)
	if err != nil {
		return err
	}
	con.showInspect(doc, c.Bool("verbose"))
	if err := con.document(doc); err != nil {
		return err
	}
	return unfitError(con, doc)
}

// unfitError returns an error with one sentence for each run that cannot be used for a fit; nil if
// there is none.
func unfitError(con *console, doc *result.Inspect) error {
	var reasons []string
	for _, r := range doc.Runs {
		if r.Unfit {
			reasons = append(reasons, r.Reason)
		}
	}
	if len(reasons) == 0 {
		con.infof("inspect: %d %s, all fit to be fitted", len(doc.Runs), plural(len(doc.Runs), "run", "runs"))
		return nil
	}
	return gatef("%s", strings.Join(reasons, "; "))
}

// showInspect prints the document of inspect. Only long prints the statement of every comparison
// between streams, which fills several screens; those that are violated are always printed.
func (con *console) showInspect(doc *result.Inspect, long bool) {
	if !long {
		con.leftOut = report.IdentitiesTable
	}
	con.showSections(report.Input{Inspect: doc}, "data", "audit")
	for i := range doc.Runs {
		showUsable(con, &doc.Runs[i])
		showSources(con, &doc.Runs[i])
		showLearnable(con, &doc.Runs[i])
		showPlanned(con, &doc.Runs[i])
	}
	for _, r := range doc.Runs {
		con.warn(r.Findings)
	}
	showIdentify(con, doc.Identify)
}

// showUsable prints for which purposes a run can be used, by comparing its streams of records with
// each other.
func showUsable(con *console, r *result.InspectRun) {
	holds, violated := 0, 0
	for i := range r.Identities {
		switch r.Identities[i].Status {
		case result.IdentityHolds:
			holds++
		case result.IdentityViolated:
			violated++
		}
	}
	if holds+violated == 0 {
		return
	}
	var allowed, refused []string
	for _, use := range r.Usable {
		switch use.Status {
		case result.UseAllowed:
			allowed = append(allowed, use.Purpose)
		default:
			refused = append(refused, fmt.Sprintf("%s %s (%s)", use.Purpose, use.Status, strings.Join(use.Because, ", ")))
		}
	}
	line := fmt.Sprintf("%s: %d of %d comparisons between its streams hold (-v lists them)", r.ID, holds, holds+violated)
	if len(allowed) > 0 {
		line += "; usable for " + strings.Join(allowed, ", ")
	}
	if len(refused) > 0 {
		line += "; " + strings.Join(refused, "; ")
	}
	con.infof("%s", line)
}

// showSources prints what was recorded, what each source is good for, and what one more flag of the
// server or client would add.
func showSources(con *console, r *result.InspectRun) {
	var rows []cells
	for _, s := range r.Sources {
		got := s.Got
		if !s.Found {
			got = "missing"
		}
		rows = append(rows, cells{s.Source, got, s.Teaches, s.Adds})
	}
	con.table("sources of "+r.ID, cells{"source", "got", "teaches", "one flag more"}, rows)
}

// showLearnable prints what the requests or load levels of a run without steps show.
func showLearnable(con *console, r *result.InspectRun) {
	if len(r.Learnable) == 0 {
		return
	}
	var rows []cells
	for _, d := range r.Learnable {
		verdict := "missing"
		if d.Shown {
			verdict = "shown"
		}
		rows = append(rows, cells{d.Direction, d.ShownBy, d.Got, verdict, d.Adds})
	}
	con.table(fmt.Sprintf("what can be learned from the %s of %s", r.Tier, r.ID), cells{"direction",
		"what shows it", "in these data", "",
		"what would add it"}, rows)
	if n := r.NoiseFloor; n != nil {
		con.infof("%s: replays whose sends differ by a millisecond differ by %.1f %% in TTFT and %.1f %% in span: "+
			"no fit can beat that",
			r.ID, 100*n.TTFTFrac, 100*n.SpanFrac)
	}
}

// showPlanned prints the load levels that are worth measuring next.
func showPlanned(con *console, r *result.InspectRun) {
	var rows []cells
	for i, p := range r.Planned {
		rows = append(rows, cells{i + 1, p.InputTokens, p.OutputTokens, p.Clients})
	}
	con.table("most informative load levels for "+r.ID, cells{"", "input tokens", "output tokens", "clients"}, rows)
}

// showIdentify prints which terms the data can tell apart, and the experiments that would help.
func showIdentify(con *console, id *result.Identify) {
	if id == nil {
		return
	}
	var terms, experiments []cells
	for _, t := range id.Terms {
		terms = append(terms, cells{t.Name, t.Identified, number(t.DF), number(t.VIF), percent(t.HalfWidth)})
	}
	for _, e := range id.Experiments {
		experiments = append(experiments,
			cells{e.Description, e.Term, percent(e.HalfWidth), percent(e.After), fmt.Sprintf("%.1f", e.GainLogDet)})
	}
	con.table("what these data identify", cells{"term", "identified", "df", "VIF", "95 % half width"}, terms)
	con.table("experiments, most informative first",
		cells{"experiment", "shrinks", "half width now", "after", "log det gain"}, experiments)
	for _, s := range id.NullDirections {
		con.infof("not told apart: %s", s)
	}
	for _, s := range id.MissingRegimes {
		con.infof("missing: %s", s)
	}
	con.warn(id.Warnings)
}

// inspectModel prints the layers and sizes of the model of --model. It returns an error (exit
// status 1) if the file cannot be read, or if vLLM would not load the model at the parallel sizes.
func inspectModel(c *cli.Context, con *console) error {
	if c.NArg() > 0 {
		return usagef("inspect --model: got %s, want no run directory with --model", c.Args().First())
	}
	p := model.Parallel{TP: c.Int64("tp"), PP: 1, DP: c.Int64("dp"), Experts: c.Bool("ep")}
	d, err := model.ReadDecoderFile(c.String("model"), model.Options{})
	if err != nil {
		return err
	}
	s, err := d.Sizes(p)
	if err != nil {
		return err
	}
	showModel(con, s, p)
	return con.document(s)
}

// showModel prints the layers and sizes of a model at the parallel sizes p.
func showModel(con *console, s *model.Sizes, p model.Parallel) {
	var layers []cells
	for _, l := range s.Layers {
		layers = append(layers,
			cells{l.Count, l.Mixer, l.FFN, fmt.Sprintf("%.1f M", l.Params/1e6), strings.Join(l.Weights, ", ")})
	}
	con.table("layers", cells{"layers", "mixer", "ffn", "parameters each", "weights"}, layers)
	con.table("sizes", cells{"", ""}, []cells{
		{"parameters", fmt.Sprintf("%.2f B, %.2f B active", s.TotalParams/1e9, s.ActiveParams/1e9)},
		{"weights", fmt.Sprintf("%.2f GB", s.WeightBytes/1e9)},
		{fmt.Sprintf("weights per GPU, tp %d dp %d", p.TP, p.DP), fmt.Sprintf("%.2f GB", s.WeightBytesPerGPU/1e9)},
		{"KV cache per token, 16 bit", fmt.Sprintf("%.0f B", s.KVBytesPerToken)},
		{fmt.Sprintf("KV cache per token and GPU, %g B a value", s.BytesPerKV),
			fmt.Sprintf("%.0f B", s.KVBytesPerTokenGPU)},
		{"windows per request, 16 bit", fmt.Sprintf("%.1f MB", s.WindowBytes/1e6)},
		{"state per request", fmt.Sprintf("%.1f MB", s.StateBytesPerRequest/1e6)},
	})
	if s.KV != nil {
		con.infof("KV cache: %d %s, blocks of %d tokens, %.2f MB each on a GPU", len(s.KV.Groups),
			plural(len(s.KV.Groups), "group", "groups"),
			s.KV.Groups[len(s.KV.Groups)-1].Block, s.KV.BlockBytes/1e6)
	}
	if len(s.Defaulted) > 0 {
		con.infof("not stated, taken as the family's default: %s", strings.Join(s.Defaulted, ", "))
	}
	for _, w := range s.Warnings {
		con.infof("warning: %s", w)
	}
}
