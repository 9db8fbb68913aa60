package pipeline

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/forms"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
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
	f := &requestFit{o: o, dep: dep, key: dep.Config()}
	var inputs []result.Input
	for _, name := range tables {
		data, in, err := folder.ReadInput(name, o.Special)
		if err != nil {
			return nil, err
		}
		file, err := forms.Read(bytes.NewReader(data), in.Name)
		if err != nil {
			return nil, pathed(err, name)
		}
		f.warn = append(f.warn, file.Findings...)
		for i := range file.Points {
			p := forms.PointOf(&file.Points[i])
			if err := f.level(&p); err != nil {
				return nil, pathed(err, name)
			}
		}
		inputs = append(inputs, in)
		f.runs = append(f.runs, result.FitRun{ID: in.Name, Config: f.key, Used: true})
	}
	prior, err := f.prior()
	if err != nil {
		return nil, err
	}
	doc, err := f.fit(ctx, prior)
	if err != nil {
		return nil, err
	}
	command, err := o.Command()
	if err != nil {
		return nil, err
	}
	doc.Header, doc.Inputs = folder.Header(command, o.Config), inputs
	return doc, WriteFit(ctx, doc, o)
}

// pathed is an error in a file as its reader was given it: readers know base names.
func pathed(err error, path string) error {
	if at := (*trace.SyntaxError)(nil); errors.As(err, &at) && at.File == filepath.Base(path) {
		at.File = path
	}
	return err
}

// level adds one load level, under the harness that it states or is taken to have had.
func (f *requestFit) level(l *trace.LoadPoint) error {
	p, err := learn.LevelOf(l, f.dep)
	if err != nil {
		return err
	}
	reqs, err := p.Requests(p.Harness())
	if err != nil {
		return err
	}
	f.loads = append(f.loads, &learn.Load{Name: l.Name, Tier: tierPoints, Deployment: f.dep, Requests: reqs,
		Point: &learn.Point{TTFTMs: p.TTFTMs, TPOTMs: p.TPOTMs}})
	return nil
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
