package library

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// readRuns extracts run folders: runs of recorded steps become cycles, runs of
// stock spans loads. Code: no_evidence for a run that has neither.
func readRuns(ctx context.Context, dirs []string) (ys []*cycles, ls []*load, inputs []coeff.Input, err error) {
	if len(dirs) == 0 {
		return nil, nil, nil, nil
	}
	found, err := extract.Discover(dirs, nil, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	tmp, err := os.MkdirTemp("", "blis-train-library-")
	if err != nil {
		return nil, nil, nil, err
	}
	defer os.RemoveAll(tmp)
	o := extract.DefaultOptions()
	o.Out = tmp
	doc, err := extract.Run(ctx, found, o)
	if err != nil {
		return nil, nil, nil, err
	}
	dirOf := map[string]string{}
	for _, d := range found {
		dirOf[d.ID] = d.Dir
	}
	for _, r := range doc.Runs {
		run, err := table.Read(table.RunDir(tmp, r.ID))
		if err != nil {
			return nil, nil, nil, err
		}
		shared, err := sharedTokens(dirOf[r.ID])
		if err != nil {
			return nil, nil, nil, err
		}
		if l := servedOf(r.ID, run, r.Deployment, shared); l != nil {
			ls = append(ls, l)
			continue
		}
		y, err := cyclesOf(r.ID, run, r.Deployment)
		if err != nil {
			return nil, nil, nil, err
		}
		ys = append(ys, y)
	}
	return ys, ls, doc.Inputs, nil
}

// sharedTokens are the first prompt tokens that all requests of a run share, as
// the profile of its load generator (GuideLLM's profile.yaml) says; 0 without one.
func sharedTokens(dir string) (int64, error) {
	path := filepath.Join(dir, "profile.yaml")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var profile struct {
		Data struct {
			PrefixTokens int64 `yaml:"prefix_tokens"`
		} `yaml:"data"`
	}
	err = decodeYAML(text, path, &profile)
	return profile.Data.PrefixTokens, err
}

// cyclesOf are the clean rows of one run.
func cyclesOf(name string, run *trace.Run, d *deploy.Deployment) (*cycles, error) {
	steps, err := rows.Rebuild(run, d, features.V12)
	if err != nil {
		return nil, err
	}
	space, err := features.New(features.V12, d)
	if err != nil {
		return nil, err
	}
	tab, err := steps.Beta(space, rows.Options{Lag: rows.AssumedLag(d)})
	if err != nil {
		return nil, err
	}
	rows.Clean([]*rows.Table{tab}, rows.Relative)
	y := &cycles{name: name, dep: d}
	y.P = betaSlots
	for i := range tab.Kept {
		y.X, y.Y = append(y.X, tab.Row(i)...), append(y.Y, tab.Y[i])
		y.Steps = append(y.Steps, tab.Steps[i])
		y.Regime = append(y.Regime, int32(tab.Regime[i]))
	}
	return y, nil
}
