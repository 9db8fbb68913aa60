package requestfit

// This file proposes which load levels to measure next (blis-train inspect --points N).

import (
	"context"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
)

// Load levels to choose from: tokens of prompts and answers, and clients of a closed loop
// (spec#point-plan).
var (
	gridPrompts = []int64{128, 1024, 4096}
	gridOutputs = []int64{128, 1024}
	gridClients = []int{1, 4, 16, 64}
)

// PlanPoints returns the n load levels of a deployment whose measurement would be most informative
// together, the most informative first (spec#point-plan).
func PlanPoints(ctx context.Context, dep *deploy.Deployment, n int) ([]result.PlannedPoint, error) {
	prior, err := priorFor(dep, fit.DefaultOptions())
	if err != nil {
		return nil, err
	}
	var grid []result.PlannedPoint
	var loads []*Load
	longest := dep.MaxModelLen()
	for _, prompt := range gridPrompts {
		for _, output := range gridOutputs {
			for _, clients := range gridClients {
				isTooLong := longest.OK && prompt+output > longest.V
				if isTooLong || int64(clients) > dep.Engine.MaxNumSeqs {
					continue
				}
				level := Level{Deployment: dep, InputTokens: prompt, OutputTokens: output, Concurrency: clients}
				requests, err := level.Requests(level.Harness())
				if err != nil {
					return nil, err
				}
				grid = append(grid, result.PlannedPoint{InputTokens: prompt, OutputTokens: output, Clients: clients})
				loads = append(loads, &Load{Deployment: dep, Requests: requests})
			}
		}
	}
	if len(loads) == 0 {
		return nil, nil
	}
	chosen, err := Choose(ctx, loads, prior, n, DefaultOptions())
	if err != nil {
		return nil, err
	}
	var planned []result.PlannedPoint
	for _, i := range chosen {
		planned = append(planned, grid[i])
	}
	return planned, nil
}
