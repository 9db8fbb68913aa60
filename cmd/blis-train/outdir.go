package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sort"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/result"
)

// Names of a run folder (design 06). Anything else in an output folder is foreign.
const (
	extractFile      = "extract.json"
	fitFile          = "fit.json"
	validationFile   = "validation.json"
	coefficientsFile = "coefficients.yaml"
	reportFile       = "report.html"
	inspectFile      = "inspect.json"
	simulationFile   = "simulation.json"
	predictorFile    = "predictor.json"
	scoresFile       = "predictor_scores.json"
	predictorReport  = "predictor.html"
)

var ownNames = map[string]bool{
	"tables": true, extractFile: true, fitFile: true, validationFile: true, coefficientsFile: true, reportFile: true,
	inspectFile: true, simulationFile: true, "requests.parquet": true, "rows.parquet": true, "rows": true,
	"rejected.jsonl": true, queueFile: true, "windows.parquet": true, ".extract-cache.json": true, "figures": true,
	predictorFile: true, scoresFile: true, predictorReport: true, pipeline.PredictorRowsFile: true,
}

// prepareOut makes the output folder, or refuses one that holds files which
// are not ours unless force is set.
func prepareOut(dir string, force bool) error {
	if dir == "" {
		return usagef("missing -o OUT")
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return os.MkdirAll(dir, 0o777)
	}
	if err != nil {
		return err
	}
	var foreign []string
	for _, e := range entries {
		name := e.Name()
		if strings.Contains(name, ".tmp") {
			continue
		}
		if !ownNames[name] {
			foreign = append(foreign, name)
		}
	}
	sort.Strings(foreign)
	if len(foreign) > 0 && !force {
		return &usageError{
			msg:  fmt.Sprintf("%s: the output folder holds files that are not ours (%s)", dir, strings.Join(foreign[:min(3, len(foreign))], ", ")),
			hint: "choose another folder, or add --force to write beside them",
		}
	}
	return nil
}

// maxInput is far above any document or workload file.
const maxInput = 4 << 30

// writeDoc writes a document of package result.
func writeDoc(path string, doc any) error {
	b, err := result.Marshal(doc)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return files.Write(path, b)
}

// readDoc reads a document of package result.
func readDoc(path string, doc any) error {
	f, err := files.Open(path, false)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := result.Read(io.LimitReader(f, maxInput), doc); err != nil {
		return notOurs(path, err)
	}
	return nil
}

// notOurs is err, or says which stage wrote the file when it is another stage's document.
func notOurs(path string, err error) error {
	if stage := stageOf(path); stage != "" {
		return fmt.Errorf("%s: got a file that %s wrote: %w", path, stage, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// stageOf is the stage that wrote the JSON document at path, "" when unknown.
func stageOf(path string) string {
	var head result.Header
	data, err := files.Read(path, maxInput, false)
	if err != nil || json.Unmarshal(data, &head) != nil {
		return ""
	}
	stage, _, _ := strings.Cut(head.Command, " ")
	return stage
}
