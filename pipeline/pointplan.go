package pipeline

import (
	"context"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/result"
)

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
