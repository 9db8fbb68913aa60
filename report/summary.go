package report

// This file writes the summary of a validation in Markdown, for CI jobs.

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/result"
)

// Largest numbers of rows in a summary.
const (
	maxSummaryGates   = 20
	maxSummaryChanges = 20
)

// SummaryMarkdown returns the verdict in GitHub-flavoured Markdown for the summary of a CI job: the
// head of the report, the gates that failed, and the changes since a baseline.
func SummaryMarkdown(in Input) string {
	var b strings.Builder
	h := headOf(in)
	fmt.Fprintf(&b, "## blis-train: %s\n\n%s\n\n", h.Badge, escapeMarkdown(h.Sentence))
	if len(h.Lines) > 0 {
		t := NewTable("", "", "configuration", "usable for", "covered", "expected error")
		for _, l := range h.Lines {
			t.Add(l.Scope, l.Uses, l.Region, l.Error)
		}
		b.WriteString(t.Markdown(escapeMarkdown) + "\n")
	}
	if len(h.Next) > 0 {
		b.WriteString("**What to do next**\n\n")
		for i, s := range h.Next {
			fmt.Fprintf(&b, "%d. %s\n", i+1, escapeMarkdown(s))
		}
		b.WriteString("\n")
	}
	if in.Validation != nil {
		b.WriteString(failedMarkdown(in.Validation))
	}
	if in.Changes != nil {
		b.WriteString(changesMarkdown(in.Changes))
	}
	return b.String()
}

// failedMarkdown returns explanations and a table of the failed gates; "" if none failed.
func failedMarkdown(v *result.Validation) string {
	var failed []result.Gate
	for _, g := range Decisive(v) {
		if gateRank(g) == rankFailed {
			failed = append(failed, g)
		}
	}
	if len(failed) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "**%s failed**\n\n", Plural(len(failed), "gate"))
	for _, sentence := range Failed(failed) {
		fmt.Fprintf(&b, "- %s\n", escapeMarkdown(sentence))
	}
	b.WriteString("\n")
	t := gatesLayout.blank()
	for _, g := range failed {
		t.Rows = append(t.Rows, gateRow(g))
	}
	return b.String() + cutMarkdown(t, maxSummaryGates, "validation.json")
}

// cutMarkdown returns the first rows of a table, and a line that names the file with the others.
func cutMarkdown(t *Table, most int, where string) string {
	more := ""
	if n := t.First(most); n > 0 {
		more = fmt.Sprintf("\nAnd %d more in %s.\n", n, where)
	}
	return t.Markdown(escapeMarkdown) + more + "\n"
}

// changesMarkdown returns the number of changes and a table of them.
func changesMarkdown(c *result.Changes) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**Since %s:** %s, %s as they were\n\n", escapeMarkdown(c.Against), Plural(len(c.Rows), "change"), Plural(c.Same, "figure"))
	t := ChangesTable(c)
	if len(t.Rows) == 0 {
		return b.String()
	}
	return b.String() + cutMarkdown(t, maxSummaryChanges, "the report")
}

// escapeMarkdown returns a text that is safe inside Markdown. Names come from recordings and can
// contain the start of a table cell, tag, link or mention. Code between backticks stays code.
func escapeMarkdown(s string) string {
	return markdownEscapes.Replace(limitText(s))
}

var markdownEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", "\\|", "[", "\\[", "]", "\\]", "*", "\\*", "_",
	"\\_", "@", "&#64;", "\\", "\\\\", "\n", " ")
