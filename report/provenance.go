package report

// This file makes the section on where the results come from.

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/result"
)

// provenanceSection returns the section on the documents behind the report, their inputs and
// options.
func provenanceSection(in Input) Section {
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

// document is one of the files from which the report was made.
type document struct {
	file string
	h    result.Header // its version, command and inputs
}

// inputTable returns every input once, with the documents made from it.
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

// fitOptions returns the options of a fit as facts.
func fitOptions(o result.FitOptions) []Fact {
	out := []Fact{
		FactOf("Spec", o.Spec), FactOf("Recipe", o.Recipe), FactOf("Beta target", o.BetaTarget),
		FactOf("Objective", o.Objective),
		FactOf("Training share", percentThreshold(o.Split)), FactOf("Seed", fmt.Sprint(o.Seed)),
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

// validationOptions returns the options of a validation as facts.
func validationOptions(o result.ValidationOptions) []Fact {
	return []Fact{
		FactOf("Replay latency model", o.Latency), FactOf("Replay overhead", overheadWords(o)),
		FactOf("Replay split", percentThreshold(o.Split)), FactOf("Replay seed", fmt.Sprint(o.Seed)),
	}
}
