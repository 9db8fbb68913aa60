package main

import (
	"fmt"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/result"
)

// dryRunDoc is what --dry-run --json prints.
type dryRunDoc struct {
	SchemaVersion string     `json:"schema_version"`
	Runs          []foundRun `json:"runs"`
}

type foundRun struct {
	ID     string `json:"id"`
	Folder string `json:"folder"`
}

// listRuns answers --dry-run.
func listRuns(con *console, inputs []string, o pipeline.ExtractOptions) error {
	runs, err := pipeline.Discover(inputs, &o)
	if err != nil {
		return err
	}
	doc := dryRunDoc{SchemaVersion: result.SchemaVersion, Runs: []foundRun{}}
	for _, r := range runs {
		doc.Runs = append(doc.Runs, foundRun{r.ID, r.Dir})
		if !con.json {
			fmt.Fprintf(con.out, "%s\t%s\n", files.Line(r.ID), files.Line(r.Dir))
		}
	}
	return con.document(doc)
}
