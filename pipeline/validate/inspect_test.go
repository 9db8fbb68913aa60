package validate

import (
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

func inspected(t *testing.T, change func(*trace.Run)) result.InspectRun {
	t.Helper()
	dep := plantedDeployment(t)
	run := plant(t, plantedSet(dep), dep, plantedLoad(150, 2, 11), nil)
	if change != nil {
		change(run)
	}
	out, err := Inspect(run, dep, Inspection{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func hasCode(findings []trace.Finding, code trace.Code) bool {
	return slices.ContainsFunc(findings, func(f trace.Finding) bool { return f.Code == code })
}

func TestInspectAGoodRunIsFit(t *testing.T) {
	r := inspected(t, nil)
	if r.Unfit || r.Reason != "" || r.Saturated {
		t.Errorf("got unfit: %s", r.Reason)
	}
	if r.Requests.Total != 150 || r.Requests.Finished != 150 || r.Steps.Recorded == 0 || *r.Steps.KnownShare < 0.99 {
		t.Errorf("got %+v, %+v", r.Requests, r.Steps)
	}
	if r.Audit == nil || r.Audit.CadenceUsP50 == nil || *r.Audit.DurationUsP50 >= *r.Audit.CadenceUsP50 {
		t.Errorf("audit: got %+v", r.Audit)
	}
	if len(r.Coverage) != 4 || r.Coverage[1].Rows == 0 || len(r.Coverage[1].Edges) != len(r.Coverage[1].Counts) {
		t.Errorf("coverage: got %+v", r.Coverage)
	}
	if r.Series == nil || len(r.Series.Running) != seriesBins {
		t.Error("no load series")
	}
}

// TestInspectUnfitForOneReason: each fault gives its sentence.
func TestInspectUnfitForOneReason(t *testing.T) {
	cases := []struct {
		change func(*trace.Run)
		want   string
	}{
		{func(r *trace.Run) { *r = trace.Run{ID: r.ID} }, "is empty"},
		{func(r *trace.Run) { r.Steps, r.Snapshots = nil, nil }, "no step summaries"},
		{func(r *trace.Run) {
			for i := range r.Requests[:60] {
				r.Requests[i].Preemptions, r.Requests[i].Success = trace.Some(int64(1)), trace.Some(false)
				r.Requests[i].AbortReason = trace.Some("generation_error")
			}
		}, "is saturated: failure_share"},
		{func(r *trace.Run) {
			for i := range r.Steps {
				r.Steps[i].TsStartNs = plantedBaseNs + int64(i)*1000 // steps of 1 us
			}
		}, "below the"},
	}
	for _, c := range cases {
		r := inspected(t, c.change)
		if !r.Unfit || !strings.Contains(r.Reason, c.want) || strings.Count(r.Reason, "\n") != 0 {
			t.Errorf("want %q, got %q", c.want, r.Reason)
		}
	}
}

func TestInspectFindings(t *testing.T) {
	cases := []struct {
		code   trace.Code
		change func(*trace.Run)
	}{
		{CodeLossyRun, func(r *trace.Run) { r.Requests[3].DroppedEvents = 2 }},
		{CodeSparseSteps, func(r *trace.Run) {
			var kept []trace.Step
			for i, s := range r.Steps {
				if i%3 == 0 {
					kept = append(kept, s)
				}
			}
			r.Steps = kept
		}},
		{CodeNegativeIntervals, func(r *trace.Run) { r.Requests[5].ScheduledNs.V = r.Requests[5].ArrivedNs.V - 1 }},
		{CodeClockJump, func(r *trace.Run) {
			for i := range r.Steps[:len(r.Steps)/2] {
				r.Steps[i].WallNs += 3e9
			}
		}},
		{CodeUnlinkedRequests, func(r *trace.Run) {
			for i := range r.Requests[:20] {
				r.Requests[i].APIID = trace.Opt[string]{}
			}
		}},
		{CodeStopStringEnds, func(r *trace.Run) { r.Requests[7].FinishStatus = trace.Some(trace.FinishAborted) }},
	}
	base := inspected(t, nil)
	for _, c := range cases {
		if hasCode(base.Findings, c.code) {
			t.Errorf("%s is found in a good run", c.code)
		}
		if r := inspected(t, c.change); !hasCode(r.Findings, c.code) {
			t.Errorf("%s: got %v", c.code, r.Findings)
		}
	}
}

// TestIdleDelaysComeFromRequestsAlone: busy requests hide their overhead.
func TestIdleDelaysComeFromRequestsAlone(t *testing.T) {
	stock := func(startS, queue, prefill, ttft, infer, e2e float64) trace.Request {
		us := func(s float64) trace.Opt[float64] { return trace.Some(s * 1e6) }
		return trace.Request{Source: trace.SourceStock, StartWallNs: trace.Some(int64(startS * 1e9)), EndWallNs: trace.Some(int64((startS + e2e) * 1e9)),
			StockQueueUs: us(queue), StockPrefillUs: us(prefill), StockTTFTUs: us(ttft), StockInferUs: us(infer), StockE2EUs: us(e2e)}
	}
	run := &trace.Run{Requests: []trace.Request{
		stock(0, 0, 0.1, 0.103, 1, 1.005),   // alone: 3 ms before, 2 ms after
		stock(10, 0, 0.1, 0.105, 1, 1.009),  // alone: 5 and 4
		stock(10.5, 0, 0.1, 0.150, 1, 1.06), // not alone
	}}
	idle, ok := MeasureIdle(run)
	if !ok || idle.Requests != 2 || idle.OverheadUs < 3999 || idle.OverheadUs > 4001 || idle.EgressUs < 2999 || idle.EgressUs > 3001 {
		t.Errorf("got %+v, %v", idle, ok)
	}
	if _, ok := MeasureIdle(&trace.Run{}); ok {
		t.Error("nothing to measure on an empty run")
	}
}

// TestObservedAssumesWhatItSays: a missing ARRIVED is QUEUED less half a step.
func TestObservedAssumesWhatItSays(t *testing.T) {
	dep := plantedDeployment(t)
	run := plant(t, plantedSet(dep), dep, plantedLoad(60, 2, 12), nil)
	half := halfStepNs(run)
	run.Requests[4].ArrivedNs = trace.Opt[int64]{}
	obs, findings := observed(run)
	if !hasCode(findings, CodeArrivedAssumed) || len(obs) != 60 || half <= 0 {
		t.Fatalf("got %v, %d requests, half a step %d ns", findings, len(obs), half)
	}
	for _, o := range obs {
		if o.id == run.Requests[4].CoreID.V && o.arrivalNs != run.Requests[4].QueuedNs.V-half {
			t.Errorf("arrival: got %d", o.arrivalNs)
		}
	}
}

// TestObservedSamplesOfOneRequestShareADeparture: E2E belongs to the last one.
func TestObservedSamplesOfOneRequestShareADeparture(t *testing.T) {
	dep := plantedDeployment(t)
	run := plant(t, plantedSet(dep), dep, plantedLoad(10, 2, 13), nil)
	for i := range 2 {
		run.Requests[i].APIID, run.Requests[i].N = trace.Some("both"), trace.Some(int64(2))
	}
	last := 0
	if run.Requests[1].FinishedNs.V > run.Requests[0].FinishedNs.V {
		last = 1
	}
	obs, _ := observed(run)
	for _, o := range obs {
		if o.group != "" && o.e2eMs.OK != (o.id == run.Requests[last].CoreID.V) {
			t.Errorf("%s: E2E known %v", o.id, o.e2eMs.OK)
		}
	}
}

// TestClientTimingsAreReplayedAndNeverGate.
func TestClientTimingsAreReplayedAndNeverGate(t *testing.T) {
	dep := plantedDeployment(t)
	set := plantedSet(dep)
	full := plant(t, set, dep, plantedLoad(200, 2, 14), nil)
	run := &trace.Run{ID: "planted"}
	for i := range full.Requests {
		r := &full.Requests[i]
		run.Observed = append(run.Observed, trace.ObservedRequest{ID: r.CoreID.V, Source: "client", SendNs: r.ArrivedNs, FirstChunkNs: r.FirstTokenNs,
			LastChunkNs: r.DepartedNs, PromptTokens: r.PromptTokens, OutputTokens: r.OutputTokens, Success: trace.Some(true)})
	}
	o := DefaultOptions()
	zero := 2000.0
	o.OverheadUs, o.EgressUs = &zero, &zero
	v := validate(t, set, []Source{sourceOf(run, dep, false)}, o)
	r := v.Runs[0]
	if r.Source != sourceClient || r.Requests != 200 || r.Metrics.TTFT.KSD > 0.02 || r.Metrics.E2E.KSD > 0.02 {
		t.Errorf("got %s, %d requests, %+v", r.Source, r.Requests, r.Metrics)
	}
	for _, g := range gatesOf(v, GateKSTTFT) {
		if g.Pass != nil {
			t.Errorf("gate %s was judged", g.Scope)
		}
	}
}

// TestNoisyReplayUsesTheArtifactsResiduals: residual quantiles of the artifact widen the replay.
func TestNoisyReplayUsesTheArtifactsResiduals(t *testing.T) {
	dep := plantedDeployment(t)
	set := plantedSet(dep)
	noise := &sim.Noise{Decode: []sim.Quantile{{Q: 0, Ratio: 0.5}, {Q: 1, Ratio: 1.5}}, Mixed: []sim.Quantile{{Q: 0, Ratio: 0.5}, {Q: 1, Ratio: 1.5}}, Prefill: []sim.Quantile{{Q: 0, Ratio: 0.5}, {Q: 1, Ratio: 1.5}}}
	run := plant(t, set, dep, plantedLoad(300, 2, 15), func(c *sim.Config) { c.Noise = noise })
	v := validate(t, set, []Source{sourceOf(run, dep, false)}, DefaultOptions())
	r := v.Runs[0]
	if r.MetricsNoise != nil {
		t.Error("the artifact has no residuals: metrics_noise must be null")
	}
	if r.MetricsDrift == nil || r.MetricsDrift.ITL.KSD > 0.08 || r.MetricsDrift.ITL.KSD >= r.Metrics.ITL.KSD {
		t.Errorf("ITL: plain %v, with the run's residuals %+v", r.Metrics.ITL.KSD, r.MetricsDrift)
	}
	if r.MetricsDrift.ITL.MedianRelErrPaired != nil || r.MetricsDrift.ITL.NSim != noiseReplications*r.MetricsDrift.ITL.NReal {
		t.Errorf("replications: got %d simulated of %d", r.MetricsDrift.ITL.NSim, r.MetricsDrift.ITL.NReal)
	}
}
