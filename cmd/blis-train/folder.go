package main

import (
	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/result"
)

// Names of files and folders, reading and writing: those of package pipeline.
const (
	extractFile      = folder.ExtractFile
	fitFile          = folder.FitFile
	coefficientsFile = folder.CoefficientsFile
	reportFile       = folder.ReportFile
	validationFile   = folder.ValidationFile
	simulationFile   = folder.SimulationFile
	queueFile        = folder.QueueFile
	predictorFile    = folder.PredictorFile
	scoresFile       = folder.ScoresFile
	predictorReport  = folder.PredictorPage
)

func writeDoc(path string, doc any) error { return folder.WriteDocument(path, doc) }

func (con *console) readDoc(path string, doc any) error {
	return folder.ReadDocument(path, doc, con.warn)
}

func readExtract(con *console, dir string) (*result.Extract, error) {
	return folder.ReadExtract(dir, con.warn)
}

// stageOf is the stage that wrote a document.
func stageOf(path string) string { return folder.StageOf(path) }

// header starts a document, with the pipeline.yaml of the command.
func (con *console) header(command string) result.Header {
	h := result.NewHeader(folder.ToolVersion, command)
	h.Config = con.settings.record
	return h
}

// leftOut lists the runs that --only and --exclude leave out.
func (con *console) leftOut(c *cli.Context, ext *result.Extract) ([]string, error) {
	f := pipeline.Filter{Only: listOf(c, "only"), Exclude: listOf(c, "exclude")}
	return f.Rejected(ext, con.warn)
}

// setBytes is the file a set is saved as.
func setBytes(set *coeff.Set) ([]byte, error) { return folder.SetBytes(set) }
