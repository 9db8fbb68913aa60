package extract

import (
	"fmt"
	"math"
	"os"
	"sort"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

// TestServerEqualsClient: for every real run the requests that completed and
// failed, and the tokens of each request, equal what the client saw, warm-up
// included; and the decodes of the recorded batches sum to the output tokens
// less one per request wherever every step was recorded with its snapshots.
func TestServerEqualsClient(t *testing.T) {
	out := extractTo(t, realRuns(t), nil)
	runs, err := readAll(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		t.Run(run.ID, func(t *testing.T) {
			compareClient(t, run)
			compareDecodes(t, run)
		})
	}
}

// served is what the server recorded of one client request: all samples of n.
type served struct {
	prompt, output int64
	success        bool
	samples        int
}

func servedByID(run *trace.Run) map[string]*served {
	out := map[string]*served{}
	for _, r := range run.Requests {
		if !r.APIID.OK {
			continue
		}
		id := strings.TrimPrefix(strings.TrimPrefix(r.APIID.V, "chat"), "cmpl-")
		s := out[id]
		if s == nil {
			s = &served{success: true}
			out[id] = s
		}
		s.samples++
		s.prompt = r.PromptTokens.V
		s.output += r.OutputTokens.V
		s.success = s.success && r.Success.Or(false)
	}
	return out
}

func compareClient(t *testing.T, run *trace.Run) {
	server := servedByID(run)
	var differ []string
	completed, failed := 0, 0
	for i := range run.Observed {
		o := &run.Observed[i]
		s := server[o.ID]
		if o.Success.V {
			completed++
		} else {
			failed++
		}
		switch {
		case s == nil:
			differ = append(differ, o.ID+": the server has no such request")
		case s.success != o.Success.V:
			differ = append(differ, fmt.Sprintf("%s: server success %v, client %v", o.ID, s.success, o.Success.V))
		case o.Success.V && (s.prompt != o.PromptTokens.V || s.output != o.OutputTokens.V):
			differ = append(differ, fmt.Sprintf("%s: server %d + %d tokens, client %d + %d", o.ID, s.prompt, s.output, o.PromptTokens.V,
				o.OutputTokens.V))
		case !o.CoreID.OK:
			differ = append(differ, o.ID+": not joined to a core span")
		}
		delete(server, o.ID)
	}
	for id := range server {
		differ = append(differ, id+": the client has no such request")
	}
	sort.Strings(differ)
	for _, d := range differ {
		t.Error(d)
	}
	fmt.Printf("%s: %d completed and %d failed at client and server, %d differences\n", run.ID, completed, failed, len(differ))
}

// compareDecodes sums decodes over batches. A decode is a chunk of one token
// with the whole prompt in KV (spec#phases); a request's first token comes from its
// prefill, and each RESUME after it yields one more from a recomputed prefill.
// Aborted requests are left out (a token in flight is never delivered).
func compareDecodes(t *testing.T, run *trace.Run) {
	decodes := map[string]int64{}
	complete := map[string]bool{}
	for _, r := range run.Requests {
		complete[r.CoreID.V] = r.Success.Or(false) && r.FinishStatus.V == trace.FinishLength
	}
	resumed := map[string]int64{} // RESUMEs after the first token
	started := map[string]bool{}
	for _, e := range run.Events {
		switch {
		case e.Kind == trace.FirstToken:
			started[e.CoreID] = true
		case e.Kind == trace.Scheduled && e.ScheduleKind.V == "RESUME" && started[e.CoreID]:
			resumed[e.CoreID]++
		}
	}
	withSnaps := map[int64]bool{}
	for _, s := range run.Snapshots {
		withSnaps[s.StepID] = true
		if (trace.Chunk{Computed: s.ComputedTokens, Prompt: s.PromptTokens, New: s.ScheduledTokens}).IsDecode() {
			decodes[s.CoreID]++
		}
	}
	first, last := int64(math.MaxInt64), int64(0)
	for _, s := range run.Steps {
		if s.RunningDepth > 0 && !withSnaps[s.ID] {
			t.Logf("%s: step %d has no snapshots; decodes not compared", run.ID, s.ID)
			return
		}
		first, last = min(first, s.ID), max(last, s.ID)
	}
	if int64(len(run.Steps)) != last-first+1 {
		t.Logf("%s: steps are missing; decodes not compared", run.ID)
		return
	}
	checked, wrong := 0, 0
	for _, r := range run.Requests {
		if !complete[r.CoreID.V] {
			continue
		}
		checked++
		if got, want := decodes[r.CoreID.V], r.OutputTokens.V-1-resumed[r.CoreID.V]; got != want {
			wrong++
			if wrong <= 5 {
				t.Errorf("%s: got %d decode tokens, want %d", r.CoreID.V, got, want)
			}
		}
	}
	fmt.Printf("%s: decodes of %d requests equal output tokens less one (%d resumed)\n", run.ID, checked-wrong, len(resumed))
}

// TestKilledExtractionLeavesNothingUnderAFinalName kills the process at random
// points (the test binary runs itself), then reruns.
func TestKilledExtractionLeavesNothingUnderAFinalName(t *testing.T) {
	if dir := os.Getenv("EXTRACT_KILL_OUT"); dir != "" {
		killedExtraction(t, dir)
		return
	}
	testKills(t, 3)
}

// TestEvalKilledTwentyTimes is the same at twenty points.
func TestEvalKilledTwentyTimes(t *testing.T) {
	repo.NeedEval(t)
	testKills(t, 20)
}
