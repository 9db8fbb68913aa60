package validate

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func inspected(t *testing.T, change func(*trace.Run)) result.InspectRun {
	t.Helper()
	dep := plantedDeployment(t)
	run := recordPlanted(t, testkit.PlantedOn(dep), dep, plantedLoad(150, 2, 11), nil)
	if change != nil {
		change(run)
	}
	out, err := Inspect(run, dep, Inspection{})
	if err != nil {
		t.Fatal(err)
	}
	return out
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
	if r.Series == nil || len(r.Series.Running) != 200 {
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
				r.Steps[i].TsStartNs = plantedNs + int64(i)*1000 // steps of 1 us
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
		{incomplete, func(r *trace.Run) { r.Requests[3].DroppedEvents = 2 }},
		{incomplete, func(r *trace.Run) {
			var kept []trace.Step
			for i, s := range r.Steps {
				if i%3 == 0 {
					kept = append(kept, s)
				}
			}
			r.Steps = kept
		}},
		{clockJump, func(r *trace.Run) { r.Requests[5].ScheduledNs.V = r.Requests[5].ArrivedNs.V - 1 }},
		{clockJump, func(r *trace.Run) {
			for i := range r.Steps[:len(r.Steps)/2] {
				r.Steps[i].WallNs += 3e9
			}
		}},
		{incomplete, func(r *trace.Run) {
			for i := range r.Requests[:20] {
				r.Requests[i].APIID = trace.Opt[string]{}
			}
		}},
		{stopStringEnds, func(r *trace.Run) { r.Requests[7].FinishStatus = trace.Some(trace.FinishAborted) }},
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
