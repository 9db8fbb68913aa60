package main

import (
	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/result"
)

// Names of files and folders, reading and writing: those of package pipeline.
const (
	extractFile      = pipeline.ExtractFile
	fitFile          = pipeline.FitFile
	coefficientsFile = pipeline.CoefficientsFile
	reportFile       = pipeline.ReportFile
	validationFile   = pipeline.ValidationFile
	simulationFile   = pipeline.SimulationFile
	queueFile        = pipeline.QueueFile
	predictorFile    = pipeline.PredictorFile
	scoresFile       = pipeline.ScoresFile
	predictorReport  = pipeline.PredictorPage
)

func writeDoc(path string, doc any) error { return pipeline.WriteDocument(path, doc) }

func readDoc(path string, doc any) error { return pipeline.ReadDocument(path, doc) }

func readExtract(con *console, dir string) (*result.Extract, error) {
	return pipeline.ReadExtract(dir, con.warn)
}

// stageOf is the stage that wrote a document.
func stageOf(path string) string { return pipeline.StageOf(path) }

// header starts a document, with the pipeline.yaml of the command.
func (con *console) header(command string) result.Header {
	h := result.NewHeader(pipeline.ToolVersion, command)
	h.Config = con.settings.record
	return h
}

// leftOut lists the runs that --only and --exclude leave out.
func leftOut(c *cli.Context, ext *result.Extract) ([]string, error) {
	f := pipeline.Filter{Only: c.StringSlice("only"), Exclude: c.StringSlice("exclude")}
	return f.Rejected(ext)
}

// setBytes is the file a set is saved as.
func setBytes(set *coeff.Set) ([]byte, error) { return pipeline.SetBytes(set) }

func inputOf(name string, data []byte) result.Input { return pipeline.InputOf(name, data) }
