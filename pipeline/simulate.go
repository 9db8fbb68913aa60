package pipeline

// This file is the command simulate for one engine, with its output files.

import (
	"context"
	"path/filepath"

	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/simulate"
)

// Simulate simulates a workload on one engine, writes simulation.json and requests.parquet to
// o.Out, and returns the document.
func Simulate(ctx context.Context, o simulate.Options) (*simulate.Document, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	release, err := folder.Claim(o.Out, o.Force)
	if err != nil {
		return nil, err
	}
	defer release()
	doc, err := simulate.Run(ctx, o)
	if err != nil {
		return nil, err
	}
	return doc, folder.WriteDocument(filepath.Join(o.Out, folder.SimulationFile), doc)
}
