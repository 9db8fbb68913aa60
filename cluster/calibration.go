package cluster

// This file makes coefficients for the gate (the admission policy that predicts TTFT) without a
// real recording: it simulates one engine of the plant (the simulated engines of an experiment),
// records the simulation as a trace dump and runs the ordinary extract, fit and validate stages on
// the dump.

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sim"
)

// calibrationRun is run.yaml of a calibration run, as a fmt template that runFiles fills in.
//
//go:embed calibration_run.yaml
var calibrationRun string

// calibrated returns coefficients that are fitted to a simulated calibration run of one engine of
// plant p: three loads of 0.5, 0.7 and 0.9 of the engine's capacity. The run is recorded, extracted
// and fitted like a real one, in a temporary folder that is removed at the end.
func calibrated(ctx context.Context, p *plant, workers int) (*coeff.Set, error) {
	dir, remove, err := files.Temporary("", "blis-train-calibration-")
	if err != nil {
		return nil, err
	}
	defer remove()
	in := filepath.Join(dir, "calibration")
	out := filepath.Join(dir, "out")
	if err := os.Mkdir(in, 0o777); err != nil {
		return nil, err
	}
	if err := recordCalibration(p, in); err != nil {
		return nil, err
	}
	o := pipeline.DefaultRunOptions()
	o.Extract.Out, o.Extract.Workers = out, workers
	// The gate reads coefficients and residuals alone: few bootstrap draws are enough, and no replay.
	o.Fit.Bootstraps = 50
	o.Validate.StepsOnly = true
	if _, err := pipeline.Run(ctx, []string{in}, o); err != nil {
		return nil, fmt.Errorf("calibration run: %w", err)
	}
	set, _, err := folder.LoadCoefficients(filepath.Join(out, folder.CoefficientsFile), false)
	return set, err
}

// recordCalibration simulates the calibration run and writes it into the existing folder `in` as a
// run folder: run.yaml, config.json and traces.jsonl (OTLP spans).
func recordCalibration(p *plant, in string) error {
	cfg, err := p.Config(calibrationSeed)
	if err != nil {
		return err
	}
	reqs, err := p.Calibration()
	if err != nil {
		return err
	}
	run, model := runFiles(p.Deployment, calibrationRun)
	for name, text := range map[string]string{"run.yaml": run, "config.json": model} {
		if err := os.WriteFile(filepath.Join(in, name), []byte(text), 0o666); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(in, "traces.jsonl"))
	if err != nil {
		return err
	}
	defer f.Close()
	dump, err := sim.NewDump(f, nil, p.Deployment, reqs, sim.DefaultDumpOptions(p.Deployment))
	if err != nil {
		return err
	}
	res, err := sim.Run(cfg, reqs, dump)
	if err != nil {
		return err
	}
	return errors.Join(dump.Close(res.Steps), f.Close())
}
