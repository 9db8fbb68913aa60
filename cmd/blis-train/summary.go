package main

// This file prints the end of a run: warnings, the verdict and what to do next.

import (
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	rows "github.com/blis-train/blis-train/trace/table"
)

// deferWarnings keeps findings for flushWarnings. The long form and the JSON log print them at
// once.
func (con *console) deferWarnings(findings []trace.Finding) {
	if !con.brief || con.log != nil {
		con.warn(findings)
		return
	}
	con.mu.Lock()
	defer con.mu.Unlock()
	for _, f := range findings {
		if !con.warned[f] {
			con.deferred = append(con.deferred, f)
		}
	}
}

// flushWarnings prints what deferWarnings kept: a few in full, more as the number of each code.
func (con *console) flushWarnings() { con.flushWarningsBeside("") }

// touchVerdict are the codes of warnings about what a verdict depends on: what the fit and the
// replays were given, and how the gates were decided. The others are about single coefficients, or
// about files that were read all the same.
var touchVerdict = []trace.Code{
	"async_assumed", "capped_client", "client_load", "client_rate", "client_sample", "client_totals", "clipped_predictions",
	"clock_offset_spread", "document_changed", "full_attention_assumed", "gate_loosened", "incomplete_trace",
	"judged_on_training", "lag_uncertain", "machine_drift", "no_gain", "not_held_out", "not_the_fits_coefficients",
	"replay_unlike", "run_contradicted", "sharing_contradicted", "streams_disagree", "version_assumed", "workload_incomplete",
	"workload_prefix_unknown",
}

// flushWarningsBeside does what flushWarnings does for warnings printed with a verdict: with a pass, those that touch it
// are printed in full. For other verdicts, the codes that may be a reason come first.
func (con *console) flushWarningsBeside(verdict string) {
	var ofFiles, held []trace.Finding // warnings about files, and the others
	for _, f := range con.deferred {
		if extract.IsOfFile(f.Code) {
			ofFiles = append(ofFiles, f)
		} else {
			held = append(held, f)
		}
	}
	con.deferred = nil
	con.warn(ofFiles) // always in full
	if verdict == coeff.VerdictPass && len(held) > fewWarnings {
		con.flushBesidePass(held)
		return
	}
	if len(held) <= fewWarnings {
		con.warn(held)
		return
	}
	count := map[trace.Code]int{}
	var codes []string
	for _, f := range held {
		con.warned[f] = true
		if count[f.Code] == 0 {
			codes = append(codes, string(f.Code))
		}
		count[f.Code]++
	}
	sort.Strings(codes)
	for i, c := range codes {
		if n := count[trace.Code(c)]; n > 1 {
			codes[i] = fmt.Sprintf("%s (%d)", c, n)
		}
	}
	words := strings.Join(codes, ", ")
	if verdict != "" {
		touches := func(code string) bool {
			name, _, _ := strings.Cut(code, " ")
			return slices.Contains(touchVerdict, trace.Code(name))
		}
		touching := slices.DeleteFunc(slices.Clone(codes), func(code string) bool { return !touches(code) })
		if len(touching) > 0 {
			others := slices.DeleteFunc(codes, touches)
			words = strings.Join(touching, ", ") + " may be a reason for the verdict"
			if len(others) > 0 {
				words += "; the others are not: " + strings.Join(others, ", ")
			}
		} else {
			words = "none is a reason for the verdict: " + words
		}
	}
	con.printWrappedAlways(fmt.Sprintf("%d warnings, in full with -v: %s", len(held), words))
}

// flushBesidePass prints the warnings that touch a pass, such as a description that the recording contradicts without
// deciding it, and the number of the others.
func (con *console) flushBesidePass(held []trace.Finding) {
	var touching, others []trace.Finding
	for _, f := range held {
		if slices.Contains(touchVerdict, f.Code) {
			touching = append(touching, f)
		} else {
			others = append(others, f)
			con.warned[f] = true
		}
	}
	con.warn(touching)
	more := ""
	if len(touching) > 0 {
		more = " more"
	}
	if len(others) > 0 {
		con.printWrappedAlways(fmt.Sprintf("%d%s warnings, none touches the verdict (-v prints them)", len(others), more))
	}
}

// printWrappedAlways prints a line on stderr, wrapped, also with --quiet.
func (con *console) printWrappedAlways(s string) {
	con.mu.Lock()
	defer con.mu.Unlock()
	con.clearBar()
	fmt.Fprintln(con.err, wrapped(s, min(con.width, briefWidth)))
}

// printExtractSummary prints the account of an extraction in one line.
func (con *console) printExtractSummary(doc *result.Extract) {
	t := &doc.Totals
	dropped := "none of " + trace.Thousands(t.Records.Read) + " records dropped"
	if n := t.Records.Read - t.Records.Kept; n > 0 {
		dropped = fmt.Sprintf("%s of %s records dropped (%s)", trace.Thousands(n), trace.Thousands(t.Records.Read),
			report.Reasons(t.Records.Dropped))
	}
	// Where the engine recorded no requests, those of the clients count.
	requests := max(t.Requests.Engine+t.Requests.APIOnly+t.Requests.Stock, t.Tables[rows.ObservedRequests])
	steps := trace.Thousands(t.Steps.Summaries) + " steps"
	if passes := passesText(doc); passes != "" {
		steps += ", " + passes
		if t.Steps.Summaries == 0 {
			steps = passes
		}
	}
	s := fmt.Sprintf("extracted %d %s: %s requests, %s; %s", len(doc.Runs), plural(len(doc.Runs), "run", "runs"),
		trace.Thousands(requests), steps, dropped)
	con.note(s)
	if sentence := report.CachedTokens(doc); sentence != "" {
		con.note(sentence)
	}
}

// passesText returns the number of engine passes by the source from which they were read; "" if
// there are none.
func passesText(doc *result.Extract) string {
	var parts []string
	// A run's passes are counted for the first source whose kind of file it has; the last takes the others.
	sources := []struct{ kind, words string }{
		{"iterations", "logged iterations"},
		{"passes", "traced passes"},
		{"", "steps reconstructed from the chunks that clients received"},
	}
	counts := make([]int64, len(sources)) // passes, by source
	for _, r := range doc.Runs {
		for k, s := range sources {
			fromChunks := slices.ContainsFunc(r.Warnings, func(f trace.Finding) bool { return f.Code == "chunk_steps" })
			if s.kind == "" ||
				!fromChunks &&
					slices.ContainsFunc(r.Files, func(f result.ExtractFile) bool { return f.Kind == s.kind }) {
				counts[k] += r.Tables[rows.Iterations]
				break
			}
		}
	}
	for k, n := range counts {
		if n > 0 {
			parts = append(parts, trace.Thousands(n)+" "+sources[k].words)
		}
	}
	return strings.Join(parts, ", ")
}

// note prints a line on stderr, wrapped unless messages are JSON; nothing with --quiet.
func (con *console) note(s string) {
	switch {
	case con.quiet:
	case con.log != nil:
		con.infof("%s", s)
	default:
		con.printWrappedAlways(s)
	}
}

// configurations prints for each configuration what its coefficients can be used for, up to which
// load, and the error to expect.
func (con *console) configurations(in report.Input) {
	for _, l := range report.Lines(in) {
		con.printWrapped(l.Scope + ": " + l.Uses)
		if l.Region != "" {
			con.printWrapped("  " + l.Region)
		}
		if l.Error != "" {
			con.printWrapped("  expected error: " + l.Error)
		}
	}
}

// mostChanges are the changes that the short form prints.
const mostChanges = 12

// setChanges keeps the changes since --baseline until the verdict has been printed.
func (con *console) setChanges(c *result.Changes) { con.changes = c }

// sinceBaseline prints the changes since --baseline, if it was given.
func (con *console) sinceBaseline() {
	c := con.changes
	if c == nil {
		return
	}
	if t := report.ChangesTable(c); len(t.Rows) > 0 {
		more := 0
		if con.brief {
			more = t.First(mostChanges)
		}
		t.Caption = "changed since " + c.Against
		con.printTable(t)
		if more > 0 {
			con.note(fmt.Sprintf("and %d more changes: -v, or the report", more))
		}
	}
	con.note(fmt.Sprintf("since %s: %s, %d figures unchanged", c.Against, report.Plural(len(c.Rows), "change"), c.Same))
	for _, n := range c.Notes {
		con.note("since " + c.Against + ": " + n)
	}
}

// showValidation prints a validation. out is the folder of its results, use what has the judged coefficients.
func (con *console) showValidation(val *result.Validation, f *result.Fit, out, use string) {
	in := report.Input{Fit: f, Validation: val}
	con.showSections(in, "verdict", "replay")
	con.flushWarningsBeside(val.Verdict) // those of the fit
	con.deferWarnings(val.Warnings)
	con.configurations(in)
	con.flushWarningsBeside(val.Verdict)
	con.sinceBaseline()
	for _, s := range report.Failed(report.Decisive(val)) {
		con.note("failed: " + plainSigns.Replace(s))
	}
	for _, s := range diagnosisLines(val) {
		con.note("why: " + s)
	}
	// After a pass, the first action is to use the coefficients. What would decide other purposes is
	// printed if it can be stated in one line.
	next := report.Next(in)
	most := 2
	if val.Verdict == coeff.VerdictPass && report.NextForWaits(val) == "" {
		most = 1
	}
	for _, s := range next[:min(most, len(next))] {
		con.note("next: " + nextWords(s, use))
	}
	con.infof("report: %s", filepath.Join(out, folder.ReportFile))
}

// nextWords is an action of the report for the terminal: it begins small, after "next:", and has use in place of the
// coefficient file.
func nextWords(action, use string) string {
	action = strings.Replace(action, folder.CoefficientsFile, use, 1)
	action = strings.ReplaceAll(action, "`", "")
	return strings.ToLower(action[:1]) + action[1:]
}

// checkSummary returns an error for an unknown format of --summary, before any work, and keeps
// stdout for the summary.
func (con *console) checkSummary(c *cli.Context) error {
	switch format := c.String("summary"); {
	case format == "":
	case format != "markdown":
		return usagef("--summary: got %q, want markdown", format)
	case con.json:
		return usagef("--summary: got --json too, want one of them: both print on stdout")
	default:
		con.summary = true
	}
	return nil
}

// writeVerdict writes the summary of --summary and the JUnit report of --junit.
func (con *console) writeVerdict(c *cli.Context, in report.Input) error {
	if con.summary {
		in.Changes = con.changes
		fmt.Fprint(con.out, report.SummaryMarkdown(in))
	}
	if path := c.String("junit"); path != "" {
		text, err := report.JUnit(in.Validation, c.Bool("allow-insufficient"))
		if err != nil {
			return err
		}
		if con.special {
			return files.WriteSpecial(path, text)
		}
		return files.Write(path, text)
	}
	return nil
}
