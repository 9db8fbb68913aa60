package extract

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/otlp/otlptest"
	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// TestPromptsOfAPISpans: API spans that state other prompt tokens than their journeys are named with their number, and one of
// many is not.
func TestPromptsOfAPISpans(t *testing.T) {
	const states = `"gen_ai.usage.prompt_tokens","value":{"intValue":"4"}`
	var honest []string
	for n := range int64(200) {
		honest = append(honest, otlptest.Request(n+1))
	}
	if !strings.Contains(honest[0], states) {
		t.Fatalf("got %s, want %s in it", honest[0], states)
	}
	for _, c := range []struct {
		other int
		want  string
	}{
		{0, ""},
		{1, ""},
		{30, "30 of 200 API spans state other prompt tokens than the journeys of their requests, by up to 5"},
	} {
		lines := append([]string{}, honest...)
		for i := range c.other {
			lines[i] = strings.ReplaceAll(lines[i], states, strings.ReplaceAll(states, `"4"`, `"9"`))
		}
		doc, _, err := dumpRun(t, []string{writeDump(t, "traces.json", []byte(strings.Join(lines, "\n")))}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, w := range doc.Runs[0].Warnings {
			if w.Code == source.CodeAPITokens {
				got, _, _ = strings.Cut(w.Message, ": ")
			}
		}
		if got != c.want {
			t.Errorf("%d other prompts: got %q, want %q", c.other, got, c.want)
		}
	}
}
