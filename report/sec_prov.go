package report

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/result"
)

func provenanceSection(in Input) section {
	s := section{ID: "provenance", Nav: "Provenance", Title: "Provenance",
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
	t := &table{ID: "documents", Caption: "Documents", Cols: []column{{Head: "File"}, {Head: "Made by"}, {Head: "Schema"}, {Head: "Inputs", Num: true}, {Head: "Command"}}}
	var commands []string
	for _, d := range docs {
		t.Rows = append(t.Rows, row{Cells: []cell{
			name(d.file), name("blis-train " + d.h.ToolVersion), text(d.h.SchemaVersion), count(len(d.h.Inputs)), {Text: d.h.Command, Class: "mono w"}}})
		if d.h.Command != "" {
			commands = appendNew(commands, "blis-train "+d.h.Command)
		}
	}
	s.Blocks = append(s.Blocks, tables(t)...)
	if f := in.Fit; f != nil {
		s.Blocks = append(s.Blocks, block{Facts: knownFacts(fitOptions(f.Options)...)})
	}
	if v := in.Validation; v != nil {
		s.Blocks = append(s.Blocks, block{Facts: knownFacts(validationOptions(v.Options)...)})
	}
	s.Blocks = append(s.Blocks, block{Heading: "How to reproduce"},
		block{Text: "The same inputs and options give the same bytes, whatever the number of workers. Check the inputs' hashes below, install the same version, and run:"},
		block{Code: strings.Join(append(commands, "blis-train reproduce coefficients.yaml --data PARENT   # exit 3 when the bytes differ"), "\n")})
	s.Blocks = append(s.Blocks, tables(capped(inputTable(docs), "in the order of the files", "the JSON files, inputs"))...)
	return s
}

// document is one file the report was made from.
type document struct {
	file string
	h    result.Header
}

// inputTable lists every input once, with the documents made from it.
func inputTable(docs []document) *table {
	t := &table{ID: "inputs", Caption: "Inputs", Closed: true, Cols: []column{{Head: "Name"}, {Head: "Bytes", Num: true}, {Head: "SHA-256"}, {Head: "Read for"}}}
	index := map[result.Input]int{}
	for _, d := range docs {
		for _, f := range d.h.Inputs {
			i, seen := index[f]
			if !seen {
				i = len(t.Rows)
				index[f] = i
				t.Rows = append(t.Rows, row{Cells: []cell{text(f.Name), count64(f.Bytes), {Text: f.SHA256, Class: "mono"}, text(d.file)}})
				continue
			}
			if c := &t.Rows[i].Cells[3]; !strings.HasSuffix(c.Text, d.file) {
				c.Text += ", " + d.file
			}
		}
	}
	return t
}

func fitOptions(o result.FitOptions) []fact {
	out := []fact{
		{"Spec", o.Spec}, {"Recipe", o.Recipe}, {"Beta target", o.BetaTarget}, {"Objective", o.Objective},
		{"Training share", thresholdPct(o.Split)}, {"Seed", fmt.Sprint(o.Seed)}, {"Bootstrap samples", fmt.Sprint(o.Bootstraps)}, {"Prior", o.Prior},
	}
	if o.RefitAll {
		out = append(out, fact{"Refit", "on all rows, hold-out included"})
	}
	if len(o.Without) > 0 {
		out = append(out, fact{"Without", listOf(o.Without, 8)})
	}
	return out
}

func validationOptions(o result.ValidationOptions) []fact {
	return []fact{
		{"Replay latency model", o.Latency}, {"Replay overhead", overheadWords(o)}, {"Replay split", thresholdPct(o.Split)}, {"Replay seed", fmt.Sprint(o.Seed)},
	}
}

func glossarySection() section {
	return section{ID: "glossary", Nav: "Words", Title: "Words used here", Blocks: []block{{Table: &table{ID: "words", Caption: "Words",
		Cols: []column{{Head: "Word"}, {Head: "Meaning"}},
		Rows: []row{
			term("step", "one engine iteration; its time is the cadence, the distance between the starts of two steps"),
			term("regime", "what a step holds: decode (one token for each of its requests), prefill (prompt chunks only), or mixed"),
			term("TTFT", "time to first token: FIRST_TOKEN − ARRIVED"),
			term("ITL", "inter-token latency, one value per request: (FINISHED − FIRST_TOKEN) / (output tokens − 1)"),
			term("E2E", "end to end: DEPARTED − ARRIVED"),
			term("overhead", "what passes before a request reaches the engine's input queue; a replay adds it"),
			term("admission", "SCHEDULED − ARRIVED: the whole wait; an estimate for admission control, never added in a replay"),
			term("egress", "DEPARTED − FINISHED"),
			term("MAPE, WAPE", "mean of |error|/measured; sum of |error| over sum of measured"),
			term("floor, skill", "MAPE of the nearest measured neighbours, which is the noise; skill is 1 at the floor and 0 at the best constant"),
			term("KS D", "two-sample Kolmogorov-Smirnov statistic: the largest vertical gap between two empirical distributions, 0 to 1"),
			term("lag", "how many steps lie between a schedule call and the interval that its execution fills; 1 with asynchronous scheduling"),
			term("identified", "within: the data of one configuration know the term; between-configs: only the comparison of configurations does; prior-only: nothing does"),
		}}}}}
}

func term(word, meaning string) row { return row{Cells: []cell{name(word), text(meaning)}} }
