package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// vectorizer returns the beta features of batches under the set's spec version.
func vectorizer(set *coeff.Set) export.Vectorizer {
	return func(d *deploy.Deployment, batch []trace.Chunk) ([]float64, error) {
		p, err := pipeline.NewStepTimes(set, d)
		if err != nil {
			return nil, err
		}
		_, err = p.StepUs(batch)
		return p.Features(), err
	}
}

// readInput reads a file and says what it is, by base name.
func (con *console) readInput(path string) ([]byte, result.Input, error) {
	return folder.ReadInput(path, con.special)
}

// inputsExist reports the first of some names that is no file and no folder, before
// anything else is wrong. Globs, pipes and "" are for their readers.
func inputsExist(names ...string) error {
	for _, name := range names {
		if name == "" || name == "-" || strings.ContainsAny(name, "*?[") {
			continue
		}
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return trace.Errorf(extract.CodeNoRuns, "%s: no such file or folder", name)
		}
	}
	return nil
}

// loadSet reads a coefficient file.
func (con *console) loadSet(path string) (*coeff.Set, result.Input, error) {
	set, in, err := folder.LoadCoefficients(path, con.special)
	if err == nil {
		con.warn(set.FileWarnings())
	}
	return set, in, err
}
