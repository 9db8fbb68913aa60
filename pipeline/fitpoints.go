package pipeline

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/extract/forms"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// FitPoints learns the coefficients of one deployment from load levels: what
// benchmarks printed of each, in any form that sweep reads. It writes what Fit
// writes. Codes: unknown_client_file, bad_points, those of the prior
// and the simulator.
func FitPoints(ctx context.Context, tables []string, dep *deploy.Deployment, o FitOptions) (*result.Fit, error) {
	if o.Out == "" {
		return nil, option.Misusef("fit: --from points needs -o OUT")
	}
	if err := errors.Join(o.ResolveFor(nil), o.checkRequests(), o.unused(true)); err != nil {
		return nil, err
	}
	release, err := folder.Claim(o.Out, o.Force)
	if err != nil {
		return nil, err
	}
	defer release()
	ext := &result.Extract{Header: folder.Header("fit --from points", o.Config), Runs: []result.ExtractRun{levelsRun(dep)}}
	r := &ext.Runs[0]
	var points []trace.LoadPoint
	for _, name := range tables {
		data, in, err := folder.ReadInput(name, o.Special)
		if err != nil {
			return nil, err
		}
		file, err := forms.Read(bytes.NewReader(data), in.Name)
		if err != nil {
			return nil, pathed(err, name)
		}
		r.Warnings = append(r.Warnings, file.Findings...)
		for i := range file.Points {
			p := forms.PointOf(&file.Points[i])
			if _, err := learn.LevelOf(&p, dep); err != nil {
				return nil, pathed(err, name)
			}
			points = append(points, p)
		}
		ext.Inputs = append(ext.Inputs, in)
		r.Files = append(r.Files, result.ExtractFile{Input: in, Kind: "client_requests"})
	}
	t := Tables{Extract: ext, Dir: o.Out, Warnings: r.Warnings}
	if err := t.writeLevels(points, o.Force); err != nil {
		return nil, err
	}
	command, err := o.Command()
	if err != nil {
		return nil, err
	}
	doc, err := fitRequests(ctx, t, folder.Header(command, o.Config), o)
	if err != nil {
		return nil, err
	}
	doc.Warnings = joined(t.Warnings, doc.Warnings)
	return doc, WriteFit(ctx, doc, o)
}

// levelsRun is the run that load levels stand for.
func levelsRun(d *deploy.Deployment) result.ExtractRun {
	return result.ExtractRun{ID: "levels", Folder: ".", Deployment: d, Scopes: []result.ScopeCount{}, Examples: []result.Example{},
		Warnings: []trace.Finding{}, Engine: result.ExtractEngine{InstanceID: "1", VLLMVersion: d.Engine.VLLMVersion, Model: d.Model.ID,
			Hardware: d.Hardware.Name, TP: d.TP}}
}

// writeLevels writes the levels as the table of the one run, and extract.json: what reads
// extracted folders reads them.
func (t *Tables) writeLevels(points []trace.LoadPoint, force bool) error {
	stage, remove, err := files.Temporary(t.Dir, ".stage-levels-")
	if err != nil {
		return err
	}
	defer remove()
	r, dir := &t.Runs[0], table.RunDir(stage, t.Runs[0].ID)
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
	r.TableFiles, r.Tables = []result.Input{in}, map[string]int64{table.Points: n}
	r.Records = result.Records{Read: n, Kept: n, Dropped: map[string]int64{}}
	t.Totals.Records, t.Totals.Tables = r.Records, r.Tables
	if err := (&extract.Entry{Results: t.Runs}).Adopt(stage, extract.Options{Out: t.Dir, Force: force}); err != nil {
		return err
	}
	return folder.WriteDocument(filepath.Join(t.Dir, folder.ExtractFile), t.Extract)
}

// pathed is an error in a file as its reader was given it: readers know base names.
func pathed(err error, path string) error {
	if at := (*trace.SyntaxError)(nil); errors.As(err, &at) && at.File == filepath.Base(path) {
		at.File = path
	}
	return err
}

// levelLoad is a load level under the harness that it states or is taken to have had.
func levelLoad(l *trace.LoadPoint, d *deploy.Deployment) (*learn.Load, error) {
	p, err := learn.LevelOf(l, d)
	if err != nil {
		return nil, err
	}
	reqs, err := p.Requests(p.Harness())
	return &learn.Load{Name: l.Name, Tier: tierPoints, Deployment: p.Deployment, Requests: reqs,
		Point: &learn.Point{TTFTMs: p.TTFTMs, TPOTMs: p.TPOTMs}}, err
}

// keptUp is the share of an offered rate below which a server was overrun.
const keptUp = 0.8

// overrun warns of a level whose arrivals the server could not keep up with.
func overrun(l *trace.LoadPoint) []trace.Finding {
	if !l.OfferedRPS.OK || !l.RateRPS.OK || l.Clients.OK || l.RateRPS.V >= keptUp*l.OfferedRPS.V {
		return nil
	}
	return []trace.Finding{trace.Findingf(rows.Saturated, "%s: served %.3g of %.3g requests/s: the level teaches how long it was "+
		"recorded as well as what a step costs", l.Name, l.RateRPS.V, l.OfferedRPS.V)}
}

// leaveFull leaves out the load levels that say that the KV cache is larger than stated.
func (f *requestFit) leaveFull(prior *learn.Prior) error {
	var left []*learn.Load
	for _, l := range f.loads {
		ttft, full, err := l.Full(prior)
		if err != nil {
			return err
		}
		if !full {
			left = append(left, l)
			continue
		}
		f.warn = append(f.warn, trace.Findingf(learn.ReplayUnlike, "%s: left out: the simulated server runs out of KV blocks (TTFT %.4g ms), "+
			"the measured one did not (%.4g ms); is its KV cache of another type or size?", l.Name, ttft, l.Point.TTFTMs))
	}
	f.loads = left
	return nil
}

// Load levels to choose from: tokens of prompts and answers, clients of a closed loop
// (spec#point-plan).
var (
	gridPrompts = []int64{128, 1024, 4096}
	gridOutputs = []int64{128, 1024}
	gridClients = []int{1, 4, 16, 64}
)

// planPoints are the n load levels of a deployment that would teach most together, the
// most telling first.
func planPoints(ctx context.Context, dep *deploy.Deployment, n int) ([]result.PlannedPoint, error) {
	f := &requestFit{dep: dep, o: DefaultFitOptions()}
	if err := f.o.ResolveFor(nil); err != nil {
		return nil, err
	}
	prior, err := f.prior()
	if err != nil {
		return nil, err
	}
	var grid []result.PlannedPoint
	var loads []*learn.Load
	longest := dep.MaxModelLen()
	for _, prompt := range gridPrompts {
		for _, output := range gridOutputs {
			for _, clients := range gridClients {
				if longest.OK && prompt+output > longest.V || int64(clients) > dep.Engine.MaxNumSeqs {
					continue
				}
				p := learn.Level{Deployment: dep, InputTokens: prompt, OutputTokens: output, Concurrency: clients}
				reqs, err := p.Requests(p.Harness())
				if err != nil {
					return nil, err
				}
				grid = append(grid, result.PlannedPoint{InputTokens: prompt, OutputTokens: output, Clients: clients})
				loads = append(loads, &learn.Load{Deployment: dep, Requests: reqs})
			}
		}
	}
	if len(loads) == 0 {
		return nil, nil
	}
	chosen, err := learn.Choose(ctx, loads, prior, n, learn.DefaultOptions())
	if err != nil {
		return nil, err
	}
	return stat.Map(chosen, func(i int) result.PlannedPoint { return grid[i] }), nil
}
