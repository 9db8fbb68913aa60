package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// maxHeadlines is how many failed gates the head spells out.
const maxHeadlines = 5

func head(in Input) Head {
	h := Head{Class: "none", Badge: "NOT VALIDATED", Kicker: "Latency coefficients from recordings of vLLM", Facts: headFacts(in)}
	if in.Validation == nil {
		h.Sentence = "No validation was run: these coefficients are untested."
		return h
	}
	v := in.Validation
	h.Next, h.Sentence, h.Lines = Next(in), headline(v), Lines(in)
	switch v.Verdict {
	case coeff.VerdictPass:
		h.Class, h.Badge = "pass", "PASS"
	case coeff.VerdictFail:
		h.Class, h.Badge = "fail", "FAIL"
		h.Failed = FirstOf(Failed(Decisive(v)), maxHeadlines, "the gates below")
	case coeff.VerdictNotApplicable:
		h.Class = "insufficient"
		h.Badge = "NOT APPLICABLE"
	default:
		h.Class = "insufficient"
		h.Badge = "INSUFFICIENT DATA"
		h.Failed = FirstOf(Undecided(Decisive(v)), maxHeadlines, "the gates below")
	}
	return h
}

// headline is the verdict on the purpose that decides, in counts of configurations.
func headline(v *result.Validation) string {
	what := purposeNouns[v.For]
	if what == "" {
		what = "their use"
	}
	count := map[string]int{}
	for i := range v.Configs {
		count[v.VerdictFor(v.For, v.Configs[i].Scope).Verdict]++
	}
	n := len(v.Configs)
	pass := count[coeff.VerdictPass]
	switch {
	case n == 0:
		return fmt.Sprintf("For %s: no configuration was compared.", what)
	case pass == n && v.Verdict != coeff.VerdictPass:
		return fmt.Sprintf("For %s: %s, but not all of them together.", what, pluralVerb(n, "configuration passes", "configurations pass"))
	}
	parts := []string{pluralVerb(pass, "configuration passes", "configurations pass")}
	if pass == 0 {
		parts = []string{"no configuration passes"}
	} else if pass < n {
		parts[0] = fmt.Sprintf("%d of %d configurations pass", pass, n)
	}
	for _, w := range []struct{ verdict, one, many string }{{coeff.VerdictFail, "fails", "fail"},
		{coeff.VerdictInsufficient, "lacks data", "lack data"}, {coeff.VerdictNotApplicable, "has nothing to judge", "have nothing to judge"}} {
		if k := count[w.verdict]; k > 0 {
			parts = append(parts, pluralVerb(k, w.one, w.many))
		}
	}
	return fmt.Sprintf("For %s: %s.", what, strings.Join(parts, ", "))
}

// Decisive are the gates of the purpose that decides.
func Decisive(v *result.Validation) []result.Gate {
	return slices.DeleteFunc(slices.Clone(v.Gates), func(g result.Gate) bool { return !isDecisive(v, &g) })
}

// headFacts says what the coefficients are for.
func headFacts(in Input) []Fact {
	var out []Fact
	add := func(name, value string) {
		if value != "" {
			out = append(out, FactOf(name, value))
		}
	}
	if f := in.Fit; f != nil {
		var labels, versions []string
		for _, c := range f.Configs {
			labels = appendNew(labels, c.Label)
			versions = appendNew(versions, c.Deployment.Engine.VLLMVersion)
		}
		add("Fitted on", listOf(labels, 2))
		add("vLLM", listOf(versions, 4))
		add("Runs", runCounts(f))
		add("Model", fmt.Sprintf("spec %s, recipe %s", f.Beta.SpecVersion, f.Beta.Recipe))
		add("Step-time target", f.Beta.Target)
		add("Data up to", f.TrainingDate)
		add("Made by", "blis-train "+f.ToolVersion)
	} else if v := in.Validation; v != nil {
		add("Made by", "blis-train "+v.ToolVersion)
	}
	return out
}

func runCounts(f *result.Fit) string {
	s := fmt.Sprintf("%d fitted of %d", stat.Count(f.Runs, func(r result.FitRun) bool { return r.Used }), len(f.Runs))
	if n := stat.Count(f.Runs, func(r result.FitRun) bool { return r.Saturated }); n > 0 {
		s += fmt.Sprintf(", %d saturated", n)
	}
	return s
}

// line says what the coefficients of one configuration are good for. The report's
// head and the terminal show the same lines.
type line struct {
	Class  string // pass | fail | insufficient | none: of the purpose that decides
	Scope  string // the configuration, or the test run
	Uses   string // purposes that passed, failed and lack data
	Region string // how far the recordings reach; empty: not known
	Error  string // the error to expect; empty: nothing was compared
}

// Lines are one for every configuration and test run of the validation, or of the fit
// without one.
func Lines(in Input) []line {
	if in.Validation == nil {
		return fittedLines(in.Fit)
	}
	var out []line
	for i := range in.Validation.Configs {
		c := &in.Validation.Configs[i]
		out = append(out, line{Scope: c.Scope, Class: classOf(in.Validation.VerdictFor(in.Validation.For, c.Scope).Verdict),
			Uses: uses(in.Validation, c.Scope), Region: region(in.Fit, c), Error: expected(in, c)})
	}
	return out
}

// fittedLines are about coefficients that nothing has judged yet.
func fittedLines(f *result.Fit) []line {
	if f == nil {
		return nil
	}
	var out []line
	for i := range f.Configs {
		c := &f.Configs[i]
		l := line{Scope: c.Label, Class: "none", Uses: "not validated yet", Region: covered(c.Covered)}
		if e := f.HoldoutOf(c.Key); e != nil {
			l.Error = stepTarget(f) + Pct(*e) + " (held-out rows)"
		}
		out = append(out, l)
	}
	return out
}

// classOf is the style of a verdict.
func classOf(verdict string) string {
	if verdict == coeff.VerdictNotApplicable {
		return "none"
	}
	return verdict
}

// uses lists the purposes by what became of them.
func uses(v *result.Validation, scope string) string {
	by := map[string][]string{}
	for _, p := range coeff.Purposes {
		got := v.VerdictFor(p, scope).Verdict
		by[got] = append(by[got], p)
	}
	var parts []string
	for _, w := range []struct{ verdict, words string }{{coeff.VerdictPass, "usable for "}, {coeff.VerdictFail, "not "},
		{coeff.VerdictInsufficient, "too few data for "}} {
		if names := by[w.verdict]; len(names) > 0 {
			parts = append(parts, w.words+strings.Join(names, ", "))
		}
	}
	switch {
	case len(parts) == 0:
		return "nothing could be judged"
	case len(by[coeff.VerdictPass]) == 0 && len(by[coeff.VerdictFail]) > 0:
		parts[0] = "not usable for " + strings.Join(by[coeff.VerdictFail], ", ")
	}
	return strings.Join(parts, "; ")
}

// region is what the recordings behind a configuration cover.
func region(f *result.Fit, c *result.ConfigErrors) string {
	if f == nil {
		return ""
	}
	i := slices.IndexFunc(f.Configs, func(fc result.FitConfig) bool { return fc.Key == c.Config })
	if i < 0 {
		return "never fitted"
	}
	return covered(f.Configs[i].Covered)
}

// covered is a covered region in words (spec#covered-region).
func covered(c *result.Covered) string {
	if c == nil {
		return ""
	}
	load := Plural(int(c.Running), "running request")
	if c.RequestsPerS != nil {
		load += fmt.Sprintf(" (%s/s)", brief(*c.RequestsPerS))
	}
	return fmt.Sprintf("up to %s, prompts of %s and outputs of %s tokens", load, trace.Thousands(c.PromptTokens),
		trace.Thousands(c.OutputTokens))
}

// expected is the mean error of the step time, and the median error of a request in
// the worst of the replays that were judged: those of requests the fit never saw where
// there are enough, else whole phases.
func expected(in Input, c *result.ConfigErrors) string {
	var parts []string
	if c.Steps != nil && c.Steps.MAPE != nil {
		parts = append(parts, stepTarget(in.Fit)+Pct(*c.Steps.MAPE))
	}
	runs := judged(in.Validation, c)
	for _, name := range metricNames {
		worst := -1.0
		for _, r := range runs {
			if m := metric(r.Metrics, name); m != nil && m.MedianRelErrPaired != nil {
				worst = max(worst, *m.MedianRelErrPaired)
			}
		}
		if worst >= 0 {
			parts = append(parts, strings.ToUpper(name)+" "+Pct(worst))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return strings.Join(parts, ", ")
}

// stepTarget says what the error of steps is one of: those of 1.0 are of what the scheduler took.
func stepTarget(f *result.Fit) string {
	if f != nil && f.Beta.Target == coeff.Duration {
		return "step.duration_us (the scheduler's time, not the step's) "
	}
	return "steps "
}

// judged are the replays of a configuration that decide.
func judged(v *result.Validation, c *result.ConfigErrors) (out []*result.ValidationRun) {
	for i := range v.Runs {
		if r := &v.Runs[i]; r.Judged() && slices.Contains(c.Runs, r.ID) {
			out = append(out, r)
		}
	}
	return out
}

// Next says what to do about the verdict, most useful first: what the diagnoses and the findings
// of the fit ask for, each once. Empty without a validation.
func Next(in Input) []string {
	v := in.Validation
	if v == nil {
		return nil
	}
	by := map[string][]result.Diagnosis{}
	for _, d := range v.Diagnoses {
		by[d.Cause] = append(by[d.Cause], d)
	}
	var out []string
	if slices.ContainsFunc(v.Gates, func(g result.Gate) bool { return g.Name == gate.TargetFloor && gateRank(g) == 0 }) {
		out = append(out, "The measured step time is shorter than reading the weights takes, so it cannot be right: correct what "+
			"run.yaml says of the hardware, or, of step traces fitted on duration, fit with the key `beta-target: cadence`. Do this first.")
	}
	unjudged := func(r result.ValidationRun) bool { return r.Undecided != "" }
	if i := slices.IndexFunc(v.Runs, unjudged); i >= 0 && v.Verdict != coeff.VerdictInsufficient {
		out = append(out, fmt.Sprintf("The replay of %s cannot be judged: %s.", strings.TrimSpace(v.Runs[i].ID+" "+v.Runs[i].Phase),
			v.Runs[i].Undecided))
	}
	drifted := driftedRuns(in.Fit)
	if v.Verdict == coeff.VerdictFail && len(drifted)+len(by[result.CauseMachineDrift]) > 0 {
		during := "the recording"
		if len(drifted) > 0 {
			during = listOf(drifted, 3)
		}
		out = append(out, fmt.Sprintf("The machine changed speed during %s: repeat the recording on a quiet machine; until then, judge the "+
			"model by the drift-corrected replay.", during))
	}
	for _, do := range []struct {
		about []result.Diagnosis
		says  string
		of    func(result.Diagnosis) string
	}{
		{by[result.CauseSaturated], "Lower the load of %s: its latencies grow with the length of the recording.", diagnosedScope},
		{by[result.CauseUnseenRegime], "Record load like that of the failing steps, %s: the fit saw none.", diagnosedTerm},
		{by[result.CauseModelError], "Look at the terms that carry the error, %s: record more such steps, or correct what run.yaml says of " +
			"the hardware.", diagnosedTerm},
		{by[result.CauseLag], "Fit %s again: its rows show another lag than the one used.", diagnosedScope},
		{slices.Concat(by[result.CauseHardware], by[result.CauseScheduler]),
			"Compare run.yaml with the server's log for %s: device, KV blocks, scheduler limits.", diagnosedScope},
	} {
		if len(do.about) > 0 {
			out = append(out, fmt.Sprintf(do.says, places(do.about, do.of)))
		}
	}
	if n := shortOfRequests(v.Gates); n > 0 {
		do, want := "Record longer", "requests"
		if in.Fit != nil && in.Fit.Requests != nil && len(in.Fit.Requests.Levels) > 0 {
			do, want = "Measure more load levels", "levels"
		}
		out = append(out, fmt.Sprintf("%s: %s for want of %s; each says how many would decide it.", do,
			pluralVerb(n, "replay gate has no verdict", "replay gates have no verdict"), want))
	}
	switch {
	case v.Verdict == coeff.VerdictFail && len(out) == 0:
		out = append(out, "Compare run.yaml with the server's log (device, KV blocks, scheduler limits), and record the loads with the largest "+
			"errors again.")
	case v.Verdict == coeff.VerdictPass:
		out = append(out, "Use coefficients.yaml, or `blis-train export` for BLIS and autoscalers.")
	}
	return out
}

// places lists what of the diagnoses, each once and a few of many.
func places(ds []result.Diagnosis, of func(result.Diagnosis) string) string {
	var names []string
	for _, d := range ds {
		names = appendNew(names, of(d))
	}
	return listOf(names, 4)
}

func diagnosedScope(d result.Diagnosis) string { return d.Scope }

// diagnosedTerm is "term in mixed steps", as far as it is known.
func diagnosedTerm(d result.Diagnosis) string {
	switch {
	case d.Term == "" && d.Regime == "":
		return d.Scope
	case d.Term == "":
		return d.Regime + " steps"
	case d.Regime == "":
		return d.Term
	}
	return fmt.Sprintf("%s in %s steps", d.Term, d.Regime)
}

// driftedRuns are the runs whose held-out part ran at another speed than what was fitted.
func driftedRuns(f *result.Fit) []string {
	if f == nil {
		return nil
	}
	var out []string
	for _, w := range slices.Concat(f.Warnings, f.Beta.Warnings) {
		run, _, ok := strings.Cut(w.Message, ": ")
		if ok && string(w.Code) == result.CauseMachineDrift && !isComposed(f, run) {
			out = appendNew(out, run)
		}
	}
	return out
}

// isComposed reports whether a run of the fit was put together from measured kernels:
// there was no machine that could have been quieter.
func isComposed(f *result.Fit, run string) bool {
	return slices.ContainsFunc(f.Configs, func(c result.FitConfig) bool {
		return slices.Contains(c.Runs, run) && c.Deployment.IsComposed()
	})
}

// shortOfRequests counts the required gates that lack requests.
func shortOfRequests(gates []result.Gate) int {
	return stat.Count(gates, func(g result.Gate) bool { return gateRank(g) == 1 && strings.HasPrefix(g.Note, gate.InsufficientData) })
}

func provenance(in Input) Section {
	s := Section{ID: "provenance", Nav: "Provenance", Title: "Provenance",
		Lead: "Where every number comes from, and how to get the same bytes again."}
	var docs []document
	if in.Extract != nil {
		docs = append(docs, document{"extract.json", in.Extract.Header})
	}
	if in.Inspect != nil {
		docs = append(docs, document{"inspect.json", in.Inspect.Header})
	}
	if in.Fit != nil {
		docs = append(docs, document{"fit.json", in.Fit.Header})
	}
	if in.Validation != nil {
		docs = append(docs, document{"validation.json", in.Validation.Header})
	}
	if len(docs) == 0 {
		s.Missing = "No result was given."
		return s
	}
	t := documentsLayout.blank()
	var commands []string
	for _, d := range docs {
		t.Put(Name(d.file), Name("blis-train "+d.h.ToolVersion), Plain(d.h.SchemaVersion), Count(len(d.h.Inputs)),
			Cell{Text: d.h.Command, Class: "mono w"})
		if d.h.Command != "" {
			commands = appendNew(commands, "blis-train "+d.h.Command)
		}
	}
	s.Blocks = append(s.Blocks, Tables(t)...)
	if f := in.Fit; f != nil {
		s.Blocks = append(s.Blocks, Block{Facts: knownFacts(fitOptions(f.Options)...)})
	}
	if v := in.Validation; v != nil {
		s.Blocks = append(s.Blocks, Block{Facts: knownFacts(validationOptions(v.Options)...)})
	}
	s.Blocks = append(s.Blocks, Block{Heading: "How to reproduce"},
		Block{Text: "The same inputs and options give the same bytes, whatever the number of workers. Check the inputs' hashes below, " +
			"install the same version, and run:"},
		Block{Code: append(commands, "blis-train check coefficients.yaml --data PARENT --refit   # exit 3: other bytes")})
	s.Blocks = append(s.Blocks, Tables(Capped(inputTable(docs), "in the order of the files", "the JSON files, inputs"))...)
	return s
}

// document is one file the report was made from.
type document struct {
	file string
	h    result.Header
}

// inputTable lists every input once, with the documents made from it.
func inputTable(docs []document) *Table {
	t := inputsLayout.blank()
	index := map[result.Input]int{}
	for _, d := range docs {
		for _, f := range d.h.Inputs {
			i, seen := index[f]
			if !seen {
				i = len(t.Rows)
				index[f] = i
				t.Put(Plain(f.Name), Count(f.Bytes), Cell{Text: f.SHA256, Class: "mono"}, Plain(d.file))
				continue
			}
			if c := &t.Rows[i].Cells[3]; !strings.HasSuffix(c.Text, d.file) {
				c.Text += ", " + d.file
			}
		}
	}
	return t
}

func fitOptions(o result.FitOptions) []Fact {
	out := []Fact{
		FactOf("Spec", o.Spec), FactOf("Recipe", o.Recipe), FactOf("Beta target", o.BetaTarget),
		FactOf("Objective", o.Objective),
		FactOf("Training share", threshold(o.Split)), FactOf("Seed", fmt.Sprint(o.Seed)),
		FactOf("Bootstrap samples", fmt.Sprint(o.Bootstraps)), FactOf("Prior", o.Prior),
	}
	if o.RefitAll {
		out = append(out, FactOf("Refit", "on all rows, hold-out included"))
	}
	if len(o.Without) > 0 {
		out = append(out, FactOf("Without", listOf(o.Without, 8)))
	}
	return out
}

func validationOptions(o result.ValidationOptions) []Fact {
	return []Fact{
		FactOf("Replay latency model", o.Latency), FactOf("Replay overhead", overheadWords(o)),
		FactOf("Replay split", threshold(o.Split)), FactOf("Replay seed", fmt.Sprint(o.Seed)),
	}
}

func glossary() Section {
	t := wordsLayout.blank()
	for _, w := range glossaryEntries {
		t.Put(Name(w.word), Plain(w.meaning))
	}
	return Section{ID: "glossary", Nav: "Words", Title: "Words used here", Blocks: Tables(t)}
}
