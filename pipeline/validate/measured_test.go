package validate

import (
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
)

// TestIdleDelaysComeFromRequestsAlone: busy requests hide their overhead.
func TestIdleDelaysComeFromRequestsAlone(t *testing.T) {
	stock := func(startS, queue, prefill, ttft, infer, e2e float64) trace.Request {
		us := func(s float64) trace.Opt[float64] { return trace.Some(s * 1e6) }
		return trace.Request{Source: trace.SourceStock, StartWallNs: trace.Some(int64(startS * 1e9)),
			EndWallNs:    trace.Some(int64((startS + e2e) * 1e9)),
			StockQueueUs: us(queue), StockPrefillUs: us(prefill), StockTTFTUs: us(ttft), StockInferUs: us(infer), StockE2EUs: us(e2e)}
	}
	run := &trace.Run{Requests: []trace.Request{
		stock(0, 0, 0.1, 0.103, 1, 1.005),   // alone: 3 ms before, 2 ms after
		stock(10, 0, 0.1, 0.105, 1, 1.009),  // alone: 5 and 4
		stock(10.5, 0, 0.1, 0.150, 1, 1.06), // not alone
	}}
	idle, ok := measureIdle(run)
	if !ok || idle.OverheadUs < 3999 || idle.OverheadUs > 4001 || idle.EgressUs < 2999 || idle.EgressUs > 3001 {
		t.Errorf("got %+v, %v", idle, ok)
	}
	if _, ok := measureIdle(&trace.Run{}); ok {
		t.Error("nothing to measure on an empty run")
	}
}

// TestObservedAssumesWhatItSays: a missing ARRIVED is QUEUED less half a step.
func TestObservedAssumesWhatItSays(t *testing.T) {
	dep := plantedDeployment(t)
	run := recordPlanted(t, testkit.PlantedOn(dep), dep, plantedLoad(60, 2, 12), nil)
	half := halfStepNs(run)
	run.Requests[4].ArrivedNs = trace.Opt[int64]{}
	obs, findings := Requests(run)
	if !hasCode(findings, ReplayAssumes) || len(obs) != 60 || half <= 0 {
		t.Fatalf("got %v, %d requests, half a step %d ns", findings, len(obs), half)
	}
	for _, o := range obs {
		if o.ID == run.Requests[4].CoreID.V && o.ArrivalNs != run.Requests[4].QueuedNs.V-half {
			t.Errorf("arrival: got %d", o.ArrivalNs)
		}
	}
}

// TestObservedSamplesOfOneRequestShareADeparture: E2E belongs to the last one.
func TestObservedSamplesOfOneRequestShareADeparture(t *testing.T) {
	dep := plantedDeployment(t)
	run := recordPlanted(t, testkit.PlantedOn(dep), dep, plantedLoad(10, 2, 13), nil)
	for i := range 2 {
		run.Requests[i].APIID, run.Requests[i].N = trace.Some("both"), trace.Some(int64(2))
	}
	last := 0
	if run.Requests[1].FinishedNs.V > run.Requests[0].FinishedNs.V {
		last = 1
	}
	obs, _ := Requests(run)
	for _, o := range obs {
		if o.Group != "" && o.E2EMs.OK != (o.ID == run.Requests[last].CoreID.V) {
			t.Errorf("%s: E2E known %v", o.ID, o.E2EMs.OK)
		}
	}
}
