package pipeline

import (
	"context"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/learn"
	kernelfit "github.com/blis-train/blis-train/pipeline/library"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/result"
)

// FitPoints learns the coefficients of one deployment from tables of load levels: what
// a benchmark printed of each, a closed loop at a concurrency. It writes what Fit
// writes. Codes: bad_points, bad_point_unit, those of the prior and the simulator.
func FitPoints(ctx context.Context, tables []string, dep *deploy.Deployment, o FitOptions) (*result.Fit, error) {
	if o.Out == "" {
		return nil, option.Misusef("fit: --from points needs -o OUT")
	}
	if err := o.resolved(); err != nil {
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
		levels, err := kernelfit.Levels(name, data, dep)
		if err != nil {
			return nil, err
		}
		for i := range levels {
			p := &levels[i]
			reqs, err := p.Requests(p.Harness())
			if err != nil {
				return nil, err
			}
			f.loads = append(f.loads, &learn.Load{Name: in.Name + " " + p.ID, Deployment: dep, Requests: reqs,
				Point: &learn.Point{TTFTMs: p.TTFTMs, TPOTMs: p.TPOTMs}})
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
	return doc, writeFit(o.Out, doc)
}
