package rows_test

import (
	"fmt"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// A prompt of 3000 tokens under a budget of 2048 runs in two chunks and then
// decodes twice; no snapshots are needed to know it.
func ExampleRebuild() {
	dep := &deploy.Deployment{Engine: vllm.Engine{VLLMVersion: "0.15.1", MaxNumBatchedTokens: 2048, ChunkedPrefill: true,
		AsyncScheduling: trace.Some(false)}}
	run := &trace.Run{ID: "demo",
		Requests: []trace.Request{{Source: trace.SourceFork, CoreID: trace.Some("a"), APIID: trace.Some("a"),
			PromptTokens: trace.Some(int64(3000)), OutputTokens: trace.Some(int64(3)), FinishStatus: trace.Some(trace.FinishLength),
			ScheduledStep: trace.Some(int64(1)), FirstTokenStep: trace.Some(int64(2)), FinishedStep: trace.Some(int64(4))}},
		Steps: []trace.Step{
			{ID: 1, RunningDepth: 1, NumPrefillReqs: 1, PrefillTokens: 2048, ScheduledTokens: 2048},
			{ID: 2, RunningDepth: 1, NumPrefillReqs: 1, PrefillTokens: 952, ScheduledTokens: 952},
			{ID: 4, RunningDepth: 1, NumDecodeReqs: 1, DecodeTokens: 1, ScheduledTokens: 1}, // step 3 was not recorded
		}}
	steps, err := rows.Rebuild(run, dep, features.V11)
	if err != nil {
		fmt.Println(err)
		return
	}
	steps.Each(func(st *rows.Step, members []trace.Member) {
		m := members[0]
		fmt.Printf("step %d %s: %s runs %d tokens behind %d, causal work %.0f\n", st.ID, st.Tag, m.CoreID, m.New, m.Computed,
			st.In.PrefillCausalWork)
	})
	// Output:
	// step 1 journey: a runs 2048 tokens behind 0, causal work 2098176
	// step 2 journey: a runs 952 tokens behind 2048, causal work 2403324
	// step 3 journey: a runs 1 tokens behind 3000, causal work 0
	// step 4 journey: a runs 1 tokens behind 3001, causal work 0
}
