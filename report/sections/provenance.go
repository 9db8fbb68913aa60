package sections

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/report/input"
	"github.com/blis-train/blis-train/report/page"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
)

func Provenance(in input.Input) page.Section {
	s := page.Section{ID: "provenance", Nav: "Provenance", Title: "Provenance",
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
	t := &page.Table{ID: "documents", Caption: "Documents", Cols: []page.Column{{Head: "File"}, {Head: "Made by"}, {Head: "Schema"},
		{Head: "Inputs", Num: true}, {Head: "Command"}}}
	var commands []string
	for _, d := range docs {
		t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{
			page.Name(d.file), page.Name("blis-train " + d.h.ToolVersion), page.Plain(d.h.SchemaVersion), page.Count(len(d.h.Inputs)),
			{Text: d.h.Command, Class: "mono w"}}})
		if d.h.Command != "" {
			commands = words.AppendNew(commands, "blis-train "+d.h.Command)
		}
	}
	s.Blocks = append(s.Blocks, page.Tables(t)...)
	if f := in.Fit; f != nil {
		s.Blocks = append(s.Blocks, page.Block{Facts: knownFacts(fitOptions(f.Options)...)})
	}
	if v := in.Validation; v != nil {
		s.Blocks = append(s.Blocks, page.Block{Facts: knownFacts(validationOptions(v.Options)...)})
	}
	s.Blocks = append(s.Blocks, page.Block{Heading: "How to reproduce"},
		page.Block{Text: "The same inputs and options give the same bytes, whatever the number of workers. Check the inputs' hashes below, " +
			"install the same version, and run:"},
		page.Block{Code: strings.Join(append(commands, "blis-train check coefficients.yaml --data PARENT --refit   # exit 3: other bytes"),
			"\n")})
	s.Blocks = append(s.Blocks, page.Tables(page.Capped(inputTable(docs), "in the order of the files", "the JSON files, inputs"))...)
	return s
}

// document is one file the report was made from.
type document struct {
	file string
	h    result.Header
}

// inputTable lists every input once, with the documents made from it.
func inputTable(docs []document) *page.Table {
	t := &page.Table{ID: "inputs", Caption: "Inputs", Closed: true, Cols: []page.Column{{Head: "Name"}, {Head: "Bytes", Num: true},
		{Head: "SHA-256"}, {Head: "Read for"}}}
	index := map[result.Input]int{}
	for _, d := range docs {
		for _, f := range d.h.Inputs {
			i, seen := index[f]
			if !seen {
				i = len(t.Rows)
				index[f] = i
				t.Rows = append(t.Rows, page.Row{Cells: []page.Cell{page.Plain(f.Name), page.Count64(f.Bytes), {Text: f.SHA256, Class: "mono"},
					page.Plain(d.file)}})
				continue
			}
			if c := &t.Rows[i].Cells[3]; !strings.HasSuffix(c.Text, d.file) {
				c.Text += ", " + d.file
			}
		}
	}
	return t
}

func fitOptions(o result.FitOptions) []page.Fact {
	out := []page.Fact{
		page.FactOf("Spec", o.Spec), page.FactOf("Recipe", o.Recipe), page.FactOf("Beta target", o.BetaTarget),
		page.FactOf("Objective", o.Objective),
		page.FactOf("Training share", words.Threshold(o.Split)), page.FactOf("Seed", fmt.Sprint(o.Seed)),
		page.FactOf("Bootstrap samples", fmt.Sprint(o.Bootstraps)), page.FactOf("Prior", o.Prior),
	}
	if o.RefitAll {
		out = append(out, page.FactOf("Refit", "on all rows, hold-out included"))
	}
	if len(o.Without) > 0 {
		out = append(out, page.FactOf("Without", words.ListOf(o.Without, 8)))
	}
	return out
}

func validationOptions(o result.ValidationOptions) []page.Fact {
	return []page.Fact{
		page.FactOf("Replay latency model", o.Latency), page.FactOf("Replay overhead", overheadWords(o)),
		page.FactOf("Replay split", words.Threshold(o.Split)), page.FactOf("Replay seed", fmt.Sprint(o.Seed)),
	}
}
