package pipeline

// This file fits coefficients to load levels of a benchmark in place of tables.

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// FitPoints fits the coefficients of one deployment to load levels, the figures that benchmarks
// print for each load, in any form that clients.ReadLevels reads. It writes the files of Fit, and
// the levels in the form of an extracted folder, and returns the fit. Codes: unknown_client_file,
// bad_points, and those of the prior and the simulator.
func FitPoints(ctx context.Context, tables []string, dep *deploy.Deployment, o FitOptions) (*result.Fit, error) {
	if o.Out == "" {
		return nil, option.Misusef("fit: --from points needs -o OUT")
	}
	if err := errors.Join(o.ResolveFor(nil), o.checkValues(), o.checkApplies(fit.FromPoints)); err != nil {
		return nil, err
	}
	release, err := folder.Claim(o.Out, o.Force)
	if err != nil {
		return nil, err
	}
	defer release()
	t, points, err := readLevels(tables, dep, o)
	if err != nil {
		return nil, err
	}
	if err := t.writeLevels(points, o.Force); err != nil {
		return nil, err
	}
	command, err := o.Command()
	if err != nil {
		return nil, err
	}
	requests, err := t.requests(o)
	if err != nil {
		return nil, err
	}
	doc, err := t.learn(ctx, requestfit.Points{Requests: requests}, o.Options, folder.Header(command, o.Config), o.Progress)
	if err != nil {
		return nil, err
	}
	return doc, WriteFit(ctx, doc, o)
}

// levelsRun is the id of the one run that load levels make.
const levelsRun = "levels"

// readLevels returns tables of load levels as the one run of a folder at o.Out, and the levels.
func readLevels(tables []string, dep *deploy.Deployment, o FitOptions) (Tables, []trace.LoadPoint, error) {
	run := result.ExtractRun{
		ID:         levelsRun,
		Folder:     ".",
		Deployment: dep,
		Scopes:     []result.ScopeCount{},
		Examples:   []result.Example{},
		Warnings:   []trace.Finding{},
		Engine: result.ExtractEngine{
			InstanceID:  "1",
			VLLMVersion: dep.Engine.VLLMVersion,
			Model:       dep.Model.ID,
			Hardware:    dep.Hardware.Name,
			TP:          dep.TP,
		},
	}
	ext := &result.Extract{Header: folder.Header("fit --from points", o.Config)}
	var points []trace.LoadPoint
	for _, name := range tables {
		data, in, err := folder.ReadInput(name, o.Special)
		if err != nil {
			return Tables{}, nil, err
		}
		file, err := clients.ReadLevels(bytes.NewReader(data), in.Name)
		if err != nil {
			return Tables{}, nil, withPath(err, name)
		}
		run.Warnings = append(run.Warnings, file.Findings...)
		for i := range file.Levels {
			p := file.Levels[i].LoadPoint()
			if _, err := requestfit.LevelOf(&p, dep); err != nil {
				return Tables{}, nil, withPath(err, name)
			}
			points = append(points, p)
		}
		ext.Inputs = append(ext.Inputs, in)
		run.Files = append(run.Files, result.ExtractFile{Input: in, Kind: "client_requests"})
	}
	if len(points) == 0 {
		why := "got none"
		if len(run.Warnings) > 0 {
			why = run.Warnings[len(run.Warnings)-1].Message
		}
		return Tables{}, nil, trace.Errorf(clients.CodeClientFile, "no load level can be used: %s", why)
	}
	ext.Runs = []result.ExtractRun{run}
	return Tables{Extract: ext, Dir: o.Out, Warnings: run.Warnings}, points, nil
}

// writeLevels writes the levels as the table of the one run, and extract.json, so that the stages
// that read extracted folders can read them.
func (t *Tables) writeLevels(points []trace.LoadPoint, force bool) error {
	stage, remove, err := files.Temporary(t.Dir, ".stage-levels-")
	if err != nil {
		return err
	}
	defer remove()
	dir := table.RunDir(stage, levelsRun)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if err := table.Write(dir, table.Points, table.Parquet, points); err != nil {
		return err
	}
	_, in, err := folder.ReadInput(filepath.Join(dir, table.Points+"."+string(table.Parquet)), false)
	if err != nil {
		return err
	}
	n := int64(len(points))
	r := &t.Runs[0]
	r.TableFiles = []result.Input{in}
	r.Tables = map[string]int64{table.Points: n}
	r.Records = result.Records{Read: n, Kept: n, Dropped: map[string]int64{}}
	t.Totals.Records = r.Records
	t.Totals.Tables = r.Tables
	if err := (&extract.Entry{Results: t.Runs}).Adopt(stage, extract.Options{Out: t.Dir, Force: force}); err != nil {
		return err
	}
	return folder.WriteDocument(filepath.Join(t.Dir, folder.ExtractFile), t.Extract)
}

// withPath returns an error of a reader with the path that the user gave in place of the base name.
func withPath(err error, path string) error {
	if at := (*trace.SyntaxError)(nil); errors.As(err, &at) && at.File == filepath.Base(path) {
		at.File = path
	}
	return err
}
