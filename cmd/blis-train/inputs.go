package main

// This file reads the files that arguments and flags name.

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
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// vectorizer returns a function that computes the features of the step time of a batch, of the
// version of features that the coefficient set is for.
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

// readInput returns the content of a file and its description as an input of a document, by base
// name.
func (con *console) readInput(path string) ([]byte, result.Input, error) {
	return folder.ReadInput(path, con.special)
}

// inputsExist returns an error for the first name that is neither a file nor a folder. It accepts
// globs, "-" and "", which the code that reads them checks.
func inputsExist(names ...string) error {
	for _, name := range names {
		if name == "" || name == "-" || strings.ContainsAny(name, "*?[") {
			continue
		}
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return trace.Errorf(extract.CodeNoRuns, "%s: no such file or folder", name).WithHint(absentHint(name))
		}
	}
	return nil
}

// loadSet returns the coefficients of a file and the file's description as an input, and prints the
// file's warnings.
func (con *console) loadSet(path string) (*coeff.Set, result.Input, error) {
	set, in, err := folder.LoadCoefficients(path, con.special)
	if err == nil {
		con.warn(set.FileWarnings())
	}
	return set, in, err
}

// loadDeployment returns the deployment that a run.yaml describes. path is the file or its folder;
// set are values of --set.
func loadDeployment(path string, set ...string) (*deploy.Deployment, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		return deploy.LoadRun(path, set...)
	}
	return deploy.LoadRunFile(path, set...)
}

// readDoc reads a JSON document into doc and prints its warnings.
func (con *console) readDoc(path string, doc any) error {
	return folder.ReadDocument(path, doc, con.warn)
}

// readAs returns a document of the type T and the file's description as an input.
func readAs[T any](con *console, path string) (*T, result.Input, error) {
	_, in, err := con.readInput(path)
	if err != nil {
		return nil, in, err
	}
	doc := new(T)
	return doc, in, con.readDoc(path, doc)
}

// readExtract returns the document extract.json of a folder, and prints its warnings.
func readExtract(con *console, dir string) (*result.Extract, error) {
	return extract.ReadDocument(dir, con.warn)
}

// header returns the header of a document that the command writes, with the pipeline.yaml that the
// command read.
func (con *console) header(command string) result.Header {
	h := result.NewHeader(folder.ToolVersion, command)
	h.Config = con.settings.record
	return h
}
