package main

import (
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/sim"
)

// A fit that cannot measure the lag and a simulation of the same run.yaml
// agree on asynchronous scheduling, whatever the version says.
func TestFitAndSimulationAgreeOnAsyncScheduling(t *testing.T) {
	for _, version := range []string{"0.11.0", "0.13.2", "0.14.0", "0.15rc1", "0.15.1", "nightly", "main", "", "0.1.dev7+gabc"} {
		d := &deploy.Deployment{Engine: deploy.Engine{VLLMVersion: version}}
		async := sim.DefaultConfig(d, nil).Async
		if lag := rows.AssumedLag(d); (lag == 1) != async {
			t.Errorf("version %q: the fit assumes lag %d, the simulator schedules asynchronously: %v", version, lag, async)
		}
	}
}
