package identity

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestReasonsOfAnEmptyRun: each identity says what a run without records lacks.
func TestReasonsOfAnEmptyRun(t *testing.T) {
	reasons := map[string]string{
		"step_order":         "no step summaries",
		"step_stamps":        "no step summaries",
		"scheduled_ahead":    "no step summaries",
		"client_turns":       "fewer than 50 requests with times of clients or stock spans",
		"client_clock":       "fewer than 50 requests in a known order",
		"client_delays":      "fewer than 20 requests with times of client and server",
		"journey_tokens":     "no journeys beside step summaries",
		"output_steps":       "no journey states the steps of its first and last token",
		"first_passes":       "fewer than 20 requests whose pass is known and has their whole prompt almost alone, or no different passes",
		"server_tokens":      noCounts,
		"server_requests":    noCounts,
		"client_tokens":      "no journeys, spans or complete passes beside the requests of clients",
		"client_lengths":     "fewer than 50 requests with times of clients or stock spans",
		"client_chunks":      "fewer than 50 answers with chunks",
		"snapshot_tokens":    "no step has a snapshot of every running request",
		"snapshot_progress":  "no request has two snapshots",
		"snapshot_requests":  "no request has both a journey and a snapshot",
		"running_requests":   "no journeys beside step summaries",
		"waiting_requests":   "no journeys beside step summaries",
		"finished_requests":  "no journeys beside step summaries",
		"waiting_reason":     "no step summaries",
		"chunk_reason":       "no step summaries",
		"engine_ranks":       "run.yaml states one rank behind an API server",
		"runs_differ":        "no other run with step times",
		"client_limits":      "no requests with times of clients or stock spans",
		"clients_differ":     "no times finer than 1 ms",
		"times_differ":       "no times finer than 1 ms",
		"steps_differ":       "fewer than 50 step summaries",
		"client_pace":        "fewer than 30 pairs of answers that are made at the same time",
		"pass_prompts":       "fewer than 50 requests whose pass is known and has one prompt",
		"phase_loads":        "run.yaml states the load of no phase, or there are fewer than 50 requests",
		"client_passes":      "no logged passes beside 50 requests of clients",
		"client_totals":      "no requests of clients",
		"client_load":        "no requests of clients",
		"snapshot_blocks":    "no snapshots",
		"used_blocks":        "no step summaries",
		"pool_size":          "run.yaml does not state kv_blocks_total_gpu, or no step summaries have it",
		"clock_rates":        "no stream has stamps of both clocks",
		"wall_clocks":        "not both streams have stamps of both clocks",
		"step_rounding":      "no step summaries",
		"request_rounding":   "fewer than 50 stamps of one kind",
		"step_floor":         "no step with a known batch and a recorded successor",
		"step_work":          "fewer than 200 steps with a known batch, and with their neighbours",
		"pass_times":         "no logged passes",
		"pass_order":         "fewer than 50 logged passes",
		"pass_units":         "fewer than 200 logged passes that decode between others",
		"answer_passes":      "fewer than 50 requests whose pass is known",
		"step_prior":         "no step with a known batch and a recorded successor",
		"client_units":       "fewer than 20 requests with a TPOT",
		"client_sums":        "fewer than 100 requests with a TPOT",
		"request_floor":      "fewer than 20 requests or load levels with a TPOT",
		"request_prior":      "the library has no kernel tables of H100 for this model",
		"level_prior":        "no load levels",
		"level_latency":      "no load level has TTFT and E2E",
		"level_concurrency":  "no load level states its clients, its rate and its latency",
		"levels_differ":      "fewer than two load levels",
		"model_name":         "no span names a model",
		"steps_complete":     "no step summaries",
		"journeys_complete":  "no journeys",
		"sampling_rates":     "fewer than 50 step summaries",
		"api_spans_complete": "no core spans", "core_spans_complete": "no API spans", "events_complete": "no core spans",
		"snapshots_complete": "no snapshots",
		"passes_complete":    "no passes that are numbered",
		"clients_complete":   "no requests of clients",
		"kv_events_complete": "no KV events",
	}
	logged := ofSteps(60, 0, trace.Step{ID: 1, RunningDepth: 1}, nil)
	logged.run.Aggregate = &trace.Aggregate{}
	ofSummaries := []string{"step_order", "step_stamps", "running_requests", "waiting_requests", "finished_requests", "waiting_reason", "chunk_reason", "steps_differ",
		"used_blocks", "step_rounding", "steps_complete", "journeys_complete", "sampling_rates"}
	for i := range identities {
		id := &identities[i]
		if r := id.compare(emptyFacts()); r.why != reasons[id.Name] {
			t.Errorf("%s of an empty run: got %q, want %q", id.Name, r.why, reasons[id.Name])
		}
		// The steps of logged passes are no summaries.
		if slices.Contains(ofSummaries, id.Name) {
			if r := id.compare(logged); r.why != reasons[id.Name] {
				t.Errorf("%s of a log: got %q, want %q", id.Name, r.why, reasons[id.Name])
			}
		}
	}
}

// TestSnapshotCounts: two requests in two steps. One has 32 prompt tokens, so 2 blocks of 16 and then 3, and the other one 8.
func TestSnapshotCounts(t *testing.T) {
	base := snapshotCounts{steps: 2, rows: 4, depth: 4, complete: 2, progress: 2, compared: 4, blocks: 4, usedSteps: 2}
	for _, c := range []struct {
		name   string
		change func(f *facts, s []trace.Snapshot)
		want   func(c *snapshotCounts)
	}{
		{"as they are", func(*facts, []trace.Snapshot) {}, func(*snapshotCounts) {}},
		{"a block ahead", func(_ *facts, s []trace.Snapshot) { s[0].BlocksAllocated = 3 }, func(*snapshotCounts) {}},
		{"two blocks ahead, one more than are in use", func(_ *facts, s []trace.Snapshot) { s[0].BlocksAllocated = 4 }, func(c *snapshotCounts) {
			c.blocksOff, c.worstOff, c.usedOff, c.worstUsed = 1, 2, 1, 1
		}},
		{"a block too few", func(_ *facts, s []trace.Snapshot) { s[0].BlocksAllocated = 1 }, func(c *snapshotCounts) { c.blocksOff, c.worstOff = 1, 1 }},
		{"six blocks in use of nobody", func(f *facts, _ []trace.Snapshot) { f.run.Steps[0].BlocksFree = 91 }, func(*snapshotCounts) {}},
		{"seven blocks", func(f *facts, _ []trace.Snapshot) { f.run.Steps[0].BlocksFree = 90 }, func(c *snapshotCounts) { c.usedOff, c.worstUsed = 1, 7 }},
		{"seven blocks with a CPU tier", func(f *facts, _ []trace.Snapshot) { f.run.Steps[0].BlocksFree, f.dep.Engine.CPUOffloading = 90, true }, func(*snapshotCounts) {}},
		{"seven fewer in use than requests have", func(f *facts, s []trace.Snapshot) {
			f.run.Steps[0].BlocksFree, s[0].BlocksAllocated, s[1].BlocksAllocated = 93, 7, 7
		}, func(c *snapshotCounts) { c.blocksOff, c.worstOff, c.usedOff, c.worstUsed = 2, 6, 1, 7 }},
		{"six fewer", func(f *facts, s []trace.Snapshot) {
			f.run.Steps[0].BlocksFree, s[0].BlocksAllocated, s[1].BlocksAllocated = 92, 7, 7
		}, func(c *snapshotCounts) { c.blocksOff, c.worstOff = 2, 6 }},
		{"seven fewer, shared", func(f *facts, s []trace.Snapshot) {
			f.run.Steps[0].BlocksFree, s[0].BlocksAllocated, s[1].BlocksAllocated = 93, 7, 7
			f.dep.Engine.PrefixCaching = true
		}, func(c *snapshotCounts) { c.blocksOff, c.worstOff = 2, 6 }},
		{"another sum", func(f *facts, _ []trace.Snapshot) { f.run.Steps[0].ScheduledTokens = 41 }, func(c *snapshotCounts) { c.tokens = 1 }},
		{"a step without one", func(_ *facts, s []trace.Snapshot) { s[2].Orphan = true }, func(c *snapshotCounts) {
			c.rows, c.complete, c.progress, c.compared, c.blocks, c.usedSteps, c.orphanSteps = 3, 1, 1, 3, 3, 1, 1
		}},
		{"of no step", func(_ *facts, s []trace.Snapshot) { s[3].StepID = 9 }, func(c *snapshotCounts) {
			c.rows, c.complete, c.progress, c.compared, c.blocks, c.usedSteps = 3, 1, 1, 3, 3, 1
		}},
		{"a token further", func(_ *facts, s []trace.Snapshot) { s[2].ComputedTokens = 33 }, func(c *snapshotCounts) { c.jumps = 1 }},
		{"further after steps between", func(f *facts, s []trace.Snapshot) {
			f.run.Steps[1].ID, s[2].StepID, s[3].StepID, s[2].ComputedTokens = 3, 3, 3, 36
		}, func(*snapshotCounts) {}},
		{"back after steps between", func(f *facts, s []trace.Snapshot) {
			f.run.Steps[1].ID, s[2].StepID, s[3].StepID, s[2].ComputedTokens, s[2].BlocksAllocated = 3, 3, 3, 31, 2
		}, func(c *snapshotCounts) { c.jumps = 1 }},
		{"after a preemption", func(_ *facts, s []trace.Snapshot) { s[2].Preemptions = 1 }, func(c *snapshotCounts) { c.progress = 1 }},
		{"twice in a step", func(_ *facts, s []trace.Snapshot) { s[1] = s[0] }, func(c *snapshotCounts) { c.jumps, c.tokens = 1, 1 }},
		{"another prompt", func(f *facts, _ []trace.Snapshot) { f.run.Requests[0].PromptTokens.V = 31 }, func(c *snapshotCounts) { c.unlike = 2 }},
		{"all its tokens", func(_ *facts, s []trace.Snapshot) { s[2].ComputedTokens = 37 }, func(c *snapshotCounts) { c.jumps = 1 }},
		{"more than its tokens", func(_ *facts, s []trace.Snapshot) { s[2].ComputedTokens = 38 }, func(c *snapshotCounts) { c.jumps, c.unlike = 1, 1 }},
		{"negative", func(_ *facts, s []trace.Snapshot) { s[0].ComputedTokens, s[0].BlocksAllocated = -1, 2 }, func(c *snapshotCounts) {
			c.jumps, c.unlike = 1, 1
		}},
		{"no journey", func(f *facts, _ []trace.Snapshot) { f.run.Requests[1].PromptTokens.OK = false }, func(c *snapshotCounts) { c.compared = 2 }},
		{"one that stands still", func(f *facts, s []trace.Snapshot) { s[3].ScheduledTokens, f.run.Steps[1].ScheduledTokens = 0, 1 }, func(c *snapshotCounts) { c.blocks = 3 }},
	} {
		f := emptyFacts()
		f.dep.Engine.BlockSize = 16
		f.dep.Engine.PrefixCaching = false
		f.run.Steps = []trace.Step{
			{ID: 1, RunningDepth: 2, ScheduledTokens: 40, BlocksTotal: 100, BlocksFree: 97},
			{ID: 2, RunningDepth: 2, ScheduledTokens: 2, BlocksTotal: 100, BlocksFree: 96},
		}
		f.run.Requests = []trace.Request{
			{CoreID: trace.Some("a"), PromptTokens: trace.Some[int64](32), OutputTokens: trace.Some[int64](4)},
			{CoreID: trace.Some("b"), PromptTokens: trace.Some[int64](8), OutputTokens: trace.Some[int64](4)},
		}
		f.run.Snapshots = []trace.Snapshot{
			{StepID: 1, CoreID: "a", PromptTokens: 32, ScheduledTokens: 32, BlocksAllocated: 2},
			{StepID: 1, CoreID: "b", PromptTokens: 8, ScheduledTokens: 8, BlocksAllocated: 1},
			{StepID: 2, CoreID: "a", PromptTokens: 32, ComputedTokens: 32, ScheduledTokens: 1, BlocksAllocated: 3},
			{StepID: 2, CoreID: "b", PromptTokens: 8, ComputedTokens: 8, ScheduledTokens: 1, BlocksAllocated: 1},
		}
		c.change(f, f.run.Snapshots)
		want := base
		c.want(&want)
		if err := f.countSnapshots(); err != nil || f.snapshot != want {
			t.Errorf("%s: got %+v and %v, want %+v", c.name, f.snapshot, err, want)
		}
	}
	f := emptyFacts()
	f.run.Aggregate = &trace.Aggregate{Drafts: true}
	for computed, want := range map[int64]int{9: 1, 10: 0, 11: 0, 13: 0} {
		if got := f.jumped(&lastSeen{step: 1, computed: 10, scheduled: 3}, &trace.Snapshot{StepID: 2, ComputedTokens: computed}); got != want {
			t.Errorf("%d tokens after 10 and 3 drafted: got %d jumps, want %d", computed, got, want)
		}
	}
}

// TestTwoOfAHundred: two values of a hundred may contradict, three may not.
func TestTwoOfAHundred(t *testing.T) {
	f := emptyFacts()
	for _, c := range []struct {
		name, text string
		read       func(*facts) reading
		set        func(n int)
	}{
		{"sums", "in 3 of 100 steps the snapshots of all running requests", snapshotTokens, func(n int) { f.snapshot = snapshotCounts{complete: 100, tokens: int64(n)} }},
		{"progress", "in 3 of 100 pairs of snapshots", snapshotProgress, func(n int) { f.snapshot = snapshotCounts{progress: 100, jumps: n} }},
		{"requests", "3 of 100 snapshots have another prompt length", snapshotRequests, func(n int) { f.snapshot = snapshotCounts{compared: 100, unlike: n} }},
	} {
		c.set(2)
		wanted{100, 2, 0.02, false, ""}.compare(t, c.name, c.read(f))
		c.set(3)
		wanted{100, 3, 0.03, true, c.text}.compare(t, c.name, c.read(f))
	}
	cached := func(odd int, tokens int64, hasCache bool) *facts {
		f := emptyFacts()
		f.dep.Engine.PrefixCaching = hasCache
		for i := range 50 {
			q := trace.Request{PromptTokens: trace.Some[int64](10), CachedTokens: trace.Some[int64](0)}
			if i < odd {
				q.CachedTokens.V = tokens
			}
			f.run.Requests = append(f.run.Requests, q)
			f.run.Observed = append(f.run.Observed, trace.ObservedRequest{PromptTokens: trace.Some[int64](10), CachedTokens: trace.Some[int64](0)})
		}
		f.run.Requests = append(f.run.Requests, trace.Request{PromptTokens: trace.Some[int64](10), CachedTokens: trace.Some[int64](99), Preemptions: trace.Some[int64](1)},
			trace.Request{CachedTokens: trace.Some[int64](99)})
		return f
	}
	wanted{100, 0, 0, false, ""}.compare(t, "all but one", cachedTokens(cached(3, 9, true)))
	wanted{100, 2, 4, false, ""}.compare(t, "two", cachedTokens(cached(2, 14, true)))
	wanted{100, 3, 0, true, "3 of 100 requests have as many cached tokens as prompt tokens, or more"}.compare(t, "all", cachedTokens(cached(3, 10, true)))
	wanted{100, 3, 0, true, "3 of 100"}.compare(t, "negative", cachedTokens(cached(3, -1, true)))
	wanted{100, 3, 0, true, "3 of 100 requests have cached tokens, and run.yaml says enable_prefix_caching false"}.compare(t, "no cache", cachedTokens(cached(3, 5, false)))
	wanted{100, 0, 0, false, ""}.compare(t, "none cached", cachedTokens(cached(3, 0, false)))
	single := cached(0, 0, true)
	for i := range 3 {
		single.run.Requests[i].PromptTokens.V, single.run.Requests[i].CachedTokens.V = 1, 1
	}
	wanted{100, 3, 0, true, "3 of 100"}.compare(t, "prompts of one token", cachedTokens(single))

	outside := func(odd int, ns int64) *facts {
		f := emptyFacts()
		for i := range int64(100) {
			f.run.Steps = append(f.run.Steps, trace.Step{ID: 7 + i, TsStartNs: i * 10e6, TsEndNs: i*10e6 + 1e6})
			q := trace.Request{ScheduledNs: trace.Some(i * 10e6), ScheduledStep: trace.Some(7 + i)}
			if i < int64(odd) {
				q.ScheduledNs.V += ns
			}
			f.run.Requests = append(f.run.Requests, q)
		}
		for _, step := range []int64{6, 107, 1000} { // not recorded
			f.run.Requests = append(f.run.Requests, trace.Request{ScheduledNs: trace.Some[int64](9e9), ScheduledStep: trace.Some(step)})
		}
		return f
	}
	wanted{100, 0, 0, false, ""}.compare(t, "1 ms after the end", outside(50, 2e6).scheduledOutside())
	wanted{100, 2, 4, false, ""}.compare(t, "two of a hundred", outside(2, 5e6).scheduledOutside())
	wanted{100, 3, 4, true, "3 of 100 requests were first scheduled outside of schedule()"}.compare(t, "three", outside(3, 5e6).scheduledOutside())
	wanted{100, 3, 3, true, "by up to 3 ms"}.compare(t, "before", outside(3, -3e6).scheduledOutside())
}

// TestFinishedCounts: three more finished requests, or preemptions, than journeys have may be an accident.
func TestFinishedCounts(t *testing.T) {
	of := func(finished, preempted int64, change func(f *facts)) reading {
		f := ofSteps(10, 0, trace.Step{}, nil)
		f.lives = make([]reconstruct.Life, 1)
		f.run.Steps[3].NumFinished = int32(finished)
		f.run.Steps[4].NumPreempted = int32(preempted)
		for i := range 11 {
			q := trace.Request{CoreID: trace.Some("c"), FinishedNs: trace.Some[int64](1)}
			q.FinishedNs.OK = i > 0
			f.run.Requests = append(f.run.Requests, q)
		}
		f.run.Requests[2].Preemptions = trace.Some[int64](2)
		if change != nil {
			change(f)
		}
		return finishedCounts(f)
	}
	wanted{10, 0, 0, false, ""}.compare(t, "three more", of(13, 5, nil))
	wanted{10, 4, 4, true, "steps count 14 finished requests where 10 journeys finished"}.compare(t, "four more", of(14, 2, nil))
	wanted{10, 4, -4, true, "steps count 6 finished requests"}.compare(t, "four fewer", of(6, 2, nil))
	wanted{10, 4, 4, true, "steps count 6 preemptions where journeys have 2"}.compare(t, "four preemptions more", of(10, 6, nil))
	wanted{10, 4, 4, true, "finished"}.compare(t, "both", of(14, 9, nil))
	wanted{text: "3 steps have no summary, and may have counted some"}.compare(t, "steps are lost", of(14, 9, func(f *facts) { f.run.Steps[9].ID = 13 }))
	wanted{text: "journeys are sampled"}.compare(t, "sampled", of(14, 9, func(f *facts) { f.dep.Tracing.JourneySampleRate = trace.Some(0.5) }))
}

// TestFinerThanAMillisecond: times in whole ms that are equal may be so by chance.
func TestFinerThanAMillisecond(t *testing.T) {
	of := func(sentUs, ttftUs, e2eUs float64) *facts {
		f := emptyFacts()
		for i := range 20 {
			f.loads = append(f.loads, clientRequest{sentUs: sentUs * float64(i+1), prompt: float64(10 + i), output: float64(20 + i), ttftUs: ttftUs, e2eUs: e2eUs})
		}
		return f
	}
	for _, c := range []struct {
		sentUs, ttftUs, e2eUs float64
		differ, equal         wanted
	}{
		{2000, 2000, 9000, wanted{text: "no times finer than 1 ms"}, wanted{text: "no times finer than 1 ms"}},
		{2000, 2000, 9000.5, wanted{text: "no times finer than 1 ms"}, wanted{20, 20, 1, true, "20 of 20 requests of different lengths that were sent at different times have the same time of the whole request, 9.0005 ms"}},
		{2000, 2000.25, 9000, wanted{text: "no times finer than 1 ms"}, wanted{20, 20, 1, true, "the same time to the first token, 2.00025 ms"}},
		{2000.25, 2000, 9000.5, wanted{checked: 20}, wanted{20, 20, 1, true, "time of the whole request"}},
		{2000, 2000.25, 9000.5, wanted{checked: 20}, wanted{40, 20, 1, true, "time to the first token"}},
	} {
		f := of(c.sentUs, c.ttftUs, c.e2eUs)
		c.differ.compare(t, fmt.Sprint("requests that differ ", c), clientsDiffer(f))
		c.equal.compare(t, fmt.Sprint("times that are equal ", c), timesEqual(f))
	}
}

// TestDelaysOfClients: twenty requests whose first token, or whose end, comes later for the client than in the server.
func TestDelaysOfClients(t *testing.T) {
	of := func(n int, firstUs, endUs float64) *facts {
		f := emptyFacts()
		for i := range n {
			id := trace.Some(fmt.Sprint("c", i))
			f.run.Requests = append(f.run.Requests, trace.Request{CoreID: id, ArrivedNs: at(0), FirstTokenNs: at(1000), FinishedNs: at(5000)})
			more := float64(i) * 10
			f.run.Observed = append(f.run.Observed, trace.ObservedRequest{CoreID: id, TTFTUs: trace.Some(1000 + firstUs + more), E2EUs: trace.Some(5000 + endUs + more)})
		}
		return f
	}
	wanted{20, 0, 0.25, false, ""}.compare(t, "a quarter of a second", clientDelays(of(20, 250e3, 250e3)))
	wanted{20, 20, 0.251, true, "each of 20 requests takes the client at least 0.251 s longer to the first token than the server took"}.compare(t, "more", clientDelays(of(20, 251e3, 400e3)))
	wanted{20, 20, 0.3, true, "each of 20 requests ends for the client at least 0.3 s later than in the server"}.compare(t, "the end", clientDelays(of(20, 1e3, 300e3)))
	wanted{text: "fewer than 20 requests with times of client and server"}.compare(t, "19", clientDelays(of(19, 300e3, 300e3)))
}

// TestBatchesOfPrompts: the batches that the library is asked for.
func TestBatchesOfPrompts(t *testing.T) {
	f := emptyFacts()
	var got []library.Batch
	f.price = func(b *library.Batch) priorTime {
		got = append(got, *b)
		return priorTime{1, 2}
	}
	prefill := func(n, computed float64) library.Batch {
		return library.Batch{Tokens: n, Sequences: 1, Prefills: 1, PrefillTokens: n, PrefillPairs: n*computed + n*(n+1)/2}
	}
	e := &f.dep.Engine
	for _, c := range []struct {
		name              string
		budget, threshold int64
		chunked           bool
		ask               func() priorTime
		want              []library.Batch
	}{
		{"chunks of the budget", 40, 0, true, func() priorTime { return f.prefillTime(100) }, []library.Batch{prefill(40, 0), prefill(40, 40), prefill(20, 80)}},
		{"of the threshold", 40, 30, true, func() priorTime { return f.prefillTime(90) }, []library.Batch{prefill(30, 0), prefill(30, 30), prefill(30, 60)}},
		{"a threshold above the budget", 40, 50, true, func() priorTime { return f.prefillTime(80) }, []library.Batch{prefill(40, 0), prefill(40, 40)}},
		{"not in chunks", 40, 30, false, func() priorTime { return f.prefillTime(100) }, []library.Batch{prefill(100, 0)}},
		{"no token", 40, 0, true, func() priorTime { return f.prefillTime(0) }, []library.Batch{prefill(1, 0)}},
		{"beside half a decode", 40, 0, true, func() priorTime { return f.mixedTime(100, 0.5, 50) },
			[]library.Batch{{Tokens: 101, Sequences: 2, Decodes: 1, DecodeContext: 50, Prefills: 1, PrefillTokens: 100, PrefillPairs: 5050}}},
		{"beside four", 40, 0, true, func() priorTime { return f.mixedTime(10, 4, 50) },
			[]library.Batch{{Tokens: 14, Sequences: 5, Decodes: 4, DecodeContext: 200, Prefills: 1, PrefillTokens: 10, PrefillPairs: 55}}},
		{"three decodes", 40, 0, true, func() priorTime { return f.decodeTime(3, 50) }, []library.Batch{{Tokens: 3, Sequences: 3, Decodes: 3, DecodeContext: 150}}},
	} {
		got = nil
		e.MaxNumBatchedTokens, e.LongPrefillThreshold, e.ChunkedPrefill = c.budget, c.threshold, c.chunked
		sum := c.ask()
		if n := float64(len(c.want)); !slices.Equal(got, c.want) || sum != (priorTime{n, 2 * n}) {
			t.Errorf("%s: got %v of %+v, want %+v", c.name, sum, got, c.want)
		}
	}
	got = nil
	if f.prefillTime(6400); len(got) != 64 || got[63] != prefill(100, 6300) {
		t.Errorf("a long prompt: got %d batches, want 64", len(got))
	}
}

// TestOvertaken: requests that are sent every 0.1 s and wait 0.05 s for their first token, but for some that wait 0.5 s.
func TestOvertaken(t *testing.T) {
	of := func(slow int, gapUs, slowUs float64) *facts {
		f := emptyFacts()
		for i := range 60 {
			l := clientRequest{sentUs: float64(i) * 100e3, ttftUs: 50e3, itlUs: gapUs, output: 8}
			if i%10 == 0 && i/10 < slow {
				l.ttftUs = slowUs
			}
			f.loads = append(f.loads, l)
		}
		return f
	}
	wanted{60, 5, 0.15, true, "5 of 60 requests get their first token after at least 3 requests that were sent later, by up to 0.15 s"}.compare(t, "five", clientTurns(of(5, 1e3, 500e3)))
	wanted{60, 4, 0.15, false, ""}.compare(t, "four", clientTurns(of(4, 1e3, 500e3)))
	wanted{60, 0, 0, false, ""}.compare(t, "within four gaps", clientTurns(of(5, 40e3, 500e3)))
	wanted{60, 0, 0, false, ""}.compare(t, "after two", clientTurns(of(5, 1e3, 349e3)))
	wanted{60, 0, 0, false, ""}.compare(t, "20 ms", clientTurns(of(5, 1e3, 370e3)))
	wanted{60, 5, 0.021, true, ""}.compare(t, "21 ms", clientTurns(of(5, 1e3, 371e3)))
	for _, c := range []struct {
		change func(f *facts)
		want   string
	}{
		{func(f *facts) { f.dep.Engine.SchedulingPolicy = "priority" }, "scheduling_policy priority changes the order of prompts"},
		{func(f *facts) { f.dep.Engine.LongPrefillThreshold = 512 }, "long_prefill_token_threshold changes the order of first tokens"},
		{func(f *facts) { f.dep.DP = 2 }, "several engines have queues of their own"},
		{func(f *facts) { f.dep.Engine.Extra = map[string]any{otherReasonsToWait[0]: 1} }, otherReasonsToWait[0] + " changes the order of prompts"},
	} {
		f := of(5, 1e3, 500e3)
		c.change(f)
		wanted{text: c.want}.compare(t, c.want, clientTurns(f))
	}
	f := emptyFacts()
	if got := f.medianGapUs(); got != 0 {
		t.Errorf("got a gap of %g us without answers", got)
	}
	f.loads = []clientRequest{{itlUs: 3, output: 8}, {itlUs: 5, output: 8}, {itlUs: 9, output: 8}, {itlUs: 99, output: 7}, {output: 20}}
	if got := f.medianGapUs(); got != 5 {
		t.Errorf("got a median gap of %g us, want 5", got)
	}
	// 15 values on each side are beside a value.
	logs := make([]float64, 40)
	for i := range logs {
		logs[i] = float64(i)
	}
	ratios, scatter := ratiosToNeighbours(logs)
	if ratios[20] != 0 || ratios[0] != -7.5 || ratios[1] != -7 || ratios[39] != 7.5 || scatter != 2.75 {
		t.Errorf("beside each other: got %v and a scatter of %g", ratios, scatter)
	}
}

// TestLimitsOfSteps: 8 requests and 100 tokens in a step.
func TestLimitsOfSteps(t *testing.T) {
	of := func(running, tokens int64) reading {
		f := ofSteps(10, 1, trace.Step{RunningDepth: 8, ScheduledTokens: 100}, func(s *trace.Step) { s.RunningDepth, s.ScheduledTokens = int32(running), int32(tokens) })
		f.dep.Engine.MaxNumSeqs, f.dep.Engine.MaxNumBatchedTokens, f.dep.Engine.LongPrefillThreshold = 8, 100, 0
		return limits(f)
	}
	wanted{10, 0, 0, false, ""}.compare(t, "at both", of(8, 100))
	wanted{10, 1, 1.25, true, "1 of 10 steps run more than max_num_seqs 8 of run.yaml allows, up to 1.25 times"}.compare(t, "ten requests", of(10, 100))
	wanted{10, 1, 1.01, true, "max_num_batched_tokens 100"}.compare(t, "a token more", of(8, 101))
	wanted{10, 1, 1.125, true, "max_num_batched_tokens 100"}.compare(t, "both", of(9, 101))
}

// TestPromptsOfPasses: a pass may compute 2 tokens and 5 % more than the prompt of 100 tokens that ends in it.
func TestPromptsOfPasses(t *testing.T) {
	of := func(odd int, tokens, cached int64) reading {
		f := emptyFacts()
		for i := range int64(60) {
			f.run.Iterations = append(f.run.Iterations, trace.Iteration{Form: trace.IterationLog, Index: i, ContextReqs: 1, ContextTokens: 100})
			o := trace.ObservedRequest{Iteration: trace.Some(i), PromptTokens: trace.Some[int64](100)}
			if i < int64(odd) {
				f.run.Iterations[i].ContextTokens = tokens
				o.CachedTokens = trace.Some(cached)
			}
			f.run.Observed = append(f.run.Observed, o)
		}
		return passPrompts(f)
	}
	wanted{60, 0, 0, false, ""}.compare(t, "seven more", of(5, 107, 0))
	wanted{60, 5, 8, true, "in 5 of 60 passes with one prompt more prompt tokens were computed than the request has that got its first token there, by up to 8"}.compare(t, "eight more", of(5, 108, 0))
	wanted{60, 4, 8, false, ""}.compare(t, "of four", of(4, 108, 0))
	wanted{60, 5, 20, true, ""}.compare(t, "with cached ones", of(5, 90, 30))
}

// TestOthersOfALog: 40 of the 100 output tokens of a log are the clients', and answers of one token have none after the first.
func TestOthersOfALog(t *testing.T) {
	of := func(change func(f *facts)) reading {
		f := emptyFacts()
		for i := range int64(50) {
			f.run.Iterations = append(f.run.Iterations, trace.Iteration{Form: trace.IterationLog, Index: i, GenerationTokens: 2})
		}
		for _, n := range []int64{21, 21, 1, 0} {
			f.run.Observed = append(f.run.Observed, trace.ObservedRequest{OutputTokens: trace.Some(n)})
		}
		change(f)
		return f.decodesOfOthers()
	}
	if r := of(func(*facts) {}); r.checked != 4 || r.violated != 1 || math.Abs(r.largest-0.6) > 1e-9 || !r.broken || r.effect != result.IdentityNamed {
		t.Errorf("got %+v, want 60 %% of the tokens of others", r)
	}
	for name, change := range map[string]func(f *facts){
		"sampled":      func(f *facts) { f.run.Iterations[3].Sampled = true },
		"another form": func(f *facts) { f.run.Iterations[3].Form = trace.IterationTensorRT },
		"uncounted":    func(f *facts) { f.run.Observed[0].OutputTokens.OK = false },
		"gaps":         func(f *facts) { f.run.Iterations[49].Index = 90 },
		"three of four": func(f *facts) {
			f.run.Observed[0].OutputTokens.V = 56
		},
	} {
		if r := of(change); r.broken || r.checked != 0 {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}

// TestTimesThatDoNotGoWithLengths: times that are as many for answers of 11 tokens as for those of 101, and fewer for the longer ones.
func TestTimesThatDoNotGoWithLengths(t *testing.T) {
	of := func(n int, ofTime func(i int) float64) reading {
		var r reading
		var times, lengths []float64
		for i := range n {
			times = append(times, ofTime(i))
			lengths = append(lengths, []float64{11, 101}[i%2])
		}
		r.goesAtAll(times, lengths, "the time")
		return r
	}
	wide := func(i int) float64 { return []float64{1, 1, 100, 100}[i%4] }
	if r := of(800, wide); !r.broken || r.violated != 800 || math.Abs(r.largest-0.5) > 1e-9 {
		t.Errorf("unrelated times of twice the spread: got %+v, want 0.5", r)
	}
	if r := of(200, wide); r.broken {
		t.Errorf("fewer of them: got %+v", r)
	}
	if r := of(200, func(i int) float64 { return []float64{1, 1, 10, 10}[i%4] }); !r.broken || math.Abs(r.largest-1) > 1e-9 {
		t.Errorf("of the same spread: got %+v, want 1", r)
	}
	if r := of(200, func(i int) float64 { return []float64{10, 1}[i%2] }); !r.broken || math.Abs(r.largest-2) > 1e-9 {
		t.Errorf("the other way round: got %+v, want 2", r)
	}
	if r := of(49, func(i int) float64 { return []float64{10, 1}[i%2] }); r.broken {
		t.Errorf("49 requests: got %+v", r)
	}
	if r := of(200, func(i int) float64 { return []float64{10, 0}[i%2] }); r.broken {
		t.Errorf("a half without times: got %+v", r)
	}
}

// TestSumsOfChunks: the gaps between chunks add up to the time after the first token within 2 % and 2 ms.
func TestSumsOfChunks(t *testing.T) {
	of := func(odd int, moreUs float64, chunks int64) reading {
		return clientChunks(servedBy(func(i int, o *trace.ObservedRequest) {
			if i < odd {
				o.ChunkGapsUs = append(slices.Clone(o.ChunkGapsUs), moreUs)
				o.Chunks.V = chunks
			}
		}))
	}
	wanted{100, 0, 1, false, ""}.compare(t, "within 2 % and 2 ms", of(5, 4e3, 11))
	wanted{100, 5, 5, true, "in 5 of 100 answers the gaps between chunks do not add up to the time after the first token, by up to 5 ms"}.compare(t, "5 ms", of(5, 5e3, 11))
	wanted{100, 5, 5.5, true, "5 of 100 answers have other numbers of chunks than of tokens, by up to 5.5 times"}.compare(t, "few chunks", of(5, 0, 2))
	wanted{100, 4, 5.5, false, ""}.compare(t, "of four", of(4, 0, 2))
	wanted{100, 0, 2.75, false, ""}.compare(t, "not so few", of(5, 0, 4))
	wanted{100, 5, 4, true, ""}.compare(t, "many chunks", of(5, 0, 44))
	drafting := servedBy(func(i int, o *trace.ObservedRequest) {
		if i < 4 {
			o.ChunkGapsUs = append(slices.Clone(o.ChunkGapsUs), 5e3)
		}
	})
	drafting.run.Aggregate = &trace.Aggregate{Drafts: true} // chunks of several tokens: only the sums are compared, and four of a hundred are too few
	wanted{100, 0, 0, false, ""}.compare(t, "drafts", clientChunks(drafting))
}

// TestGapsBesideEqualTimes: times that are equal are named before gaps that were cut off, and gaps in whole ms are not named.
func TestGapsBesideEqualTimes(t *testing.T) {
	f := emptyFacts()
	for i := range 20 {
		f.loads = append(f.loads, clientRequest{sentUs: float64(i), prompt: float64(i), output: float64(i), ttftUs: 1000.5, e2eUs: 5000.25 + float64(i)})
		f.run.Observed = append(f.run.Observed, trace.ObservedRequest{ChunkGapsUs: []float64{1.5, 2.5, 3.5, 9.5}})
	}
	wanted{40, 20, 1, true, "time to the first token"}.compare(t, "both", timesEqual(f))
	for i := range f.loads {
		f.loads[i].ttftUs += float64(i)
	}
	wanted{80, 20, 0.25, true, "20 of 80 gaps between chunks take exactly 0.0095 ms, the longest of all"}.compare(t, "gaps", timesEqual(f))
	for i := range f.run.Observed {
		f.run.Observed[i].ChunkGapsUs = []float64{1000, 2000, 3000, 9500.5}
	}
	wanted{40, 0, 0, false, ""}.compare(t, "whole ms", timesEqual(f))
}

// TestCopiedTimesOfLevels: fine times that occur at another load too were copied, and coarse ones may be equal by chance.
func TestCopiedTimesOfLevels(t *testing.T) {
	of := func(ttftMs, tpotMs float64) reading {
		f := emptyFacts()
		for k := range 3 {
			f.run.Points = append(f.run.Points, level(func(p *trace.LoadPoint) { p.TTFTMs.V, p.TPOTMs, p.RateRPS.V = ttftMs, tpotMs, float64(k+1) }))
		}
		return levelsDiffer(f)
	}
	wanted{3, 2, 2, true, "2 of 3 load levels have the times of another one, to 5 digits, at another load: rows were copied"}.compare(t, "fine", of(1000.4, 10.123))
	wanted{3, 0, 0, false, ""}.compare(t, "a coarse TTFT", of(1000, 10.123))
	wanted{3, 0, 0, false, ""}.compare(t, "a coarse TPOT", of(1000.4, 10.1))
	one := emptyFacts()
	one.run.Points = []trace.LoadPoint{level(func(p *trace.LoadPoint) { p.TTFTMs.OK = false }), level(func(p *trace.LoadPoint) { p.E2EMs.OK = false }), level(func(p *trace.LoadPoint) { p.E2EMs.V = 0 })}
	wanted{text: "no load level has TTFT and E2E"}.compare(t, "half of the times", levelSums(one))
}

// TestTimesOfBusySteps: only time between steps that run requests is measured by stamps.
func TestTimesOfBusySteps(t *testing.T) {
	f := emptyFacts()
	at := int64(0)
	for i := range int64(100) {
		s := trace.Step{ID: i, TsStartNs: at, RunningDepth: 1}
		at += 10e6 + i%3*1e6
		if i%10 == 5 {
			s.RunningDepth = 0
			at += 1000e6
		}
		f.run.Steps = append(f.run.Steps, s)
	}
	// Of the 99 gaps 20 are next to a step that runs nothing. The others take 11 ms on average.
	r := stepRounding(f)
	if math.Abs(r.largest-1.0/11) > 0.003 || r.checked != 100 {
		t.Errorf("got %+v, want a grid of 1 ms in 11 ms", r)
	}
	if f.lookaheadBlocks() != 1 || f.lookaheadTokens() != 0 {
		t.Errorf("got %d blocks ahead without drafts", f.lookaheadBlocks())
	}
}

// TestDelaysOfALog: the delays that a log shows of requests that found the server idle, and times that are longer than those of kernels.
func TestDelaysOfALog(t *testing.T) {
	of := func(n int, delaysUs ...float64) *facts {
		f := emptyFacts()
		f.run.Aggregate = &trace.Aggregate{DelaysUs: delaysUs}
		for range n {
			f.loads = append(f.loads, clientRequest{prompt: 1000, cached: 200, ttftUs: 500_000})
		}
		return f
	}
	wanted{20, 20, 0.3, true, "each of 20 requests takes the client at least 0.3 s longer to the first token than the server took"}.compare(t, "a log", clientDelays(of(20, 100e3, 900e3, 300e3)))
	wanted{20, 0, 0.2, false, ""}.compare(t, "short delays", clientDelays(of(20, 100e3, 900e3, 200e3)))
	wanted{text: "fewer than 20 requests"}.compare(t, "no delays", clientDelays(of(20)))
	priced := of(20)
	priced.price = fakePrice // at most 2 us for each of the 800 tokens, and 20 for the sequence
	wanted{20, 0, 0.49838, false, ""}.compare(t, "within half a second of the kernels", clientDelays(priced))
	for i := range priced.loads {
		priced.loads[i].isAlone = true
	}
	wanted{20, 20, 0.49838, true, "than its prompt's kernels take on"}.compare(t, "alone", clientDelays(priced))
	priced.loads[0].isAlone = false
	wanted{20, 0, 0.49838, false, ""}.compare(t, "one beside another", clientDelays(priced))
	for i := range priced.loads {
		priced.loads[i].ttftUs = 503_000
	}
	wanted{20, 20, 0.50138, true, "kernels"}.compare(t, "more than half a second", clientDelays(priced))
}

// TestWhatIsNotCounted: records that lack what an identity compares are not among those that it checks.
func TestWhatIsNotCounted(t *testing.T) {
	f := emptyFacts()
	pass := func(ns int64, us float64) trace.Iteration {
		return trace.Iteration{StampNs: trace.Some(ns), ElapsedUs: us}
	}
	sampled, unstamped := pass(90e9, 9e9), pass(90e9, 9e9)
	sampled.Sampled, unstamped.StampNs.OK = true, false
	f.run.Iterations = []trace.Iteration{pass(1e9, 2e6), sampled, unstamped, pass(90e9, 0), pass(11e9, 3e6)}
	wanted{2, 0, 0.5, false, ""}.compare(t, "passes", f.elapsedOverSpan())
	f.run.Iterations[4].StampNs.V = 6e9
	wanted{2, 0, 1, false, ""}.compare(t, "of 5 s", f.elapsedOverSpan())
	f.run.Iterations[4].StampNs.V = 6e9 - 1e3
	wanted{}.compare(t, "of less", f.elapsedOverSpan())

	f = emptyFacts()
	for i := range int64(3) {
		f.run.Steps = append(f.run.Steps, trace.Step{TsEndNs: i * 1e9, WallNs: 100e9 + i*1e9})
		f.run.Requests = append(f.run.Requests, trace.Request{ArrivedNs: trace.Some(i * 1e9), StartWallNs: trace.Some(170e9 + i*1e9)})
	}
	f.run.Steps = append(f.run.Steps, trace.Step{TsEndNs: 1e9}, trace.Step{TsEndNs: 1e9}, trace.Step{TsEndNs: 1e9}, trace.Step{TsEndNs: 1e9})
	wanted{6, 3, 70, true, "the wall clock of API spans is 70 s from that of the steps"}.compare(t, "wall clocks", wallClocks(f))
	for i := range f.run.Requests {
		f.run.Requests[i].StartWallNs.V -= 10e9
	}
	wanted{6, 0, 60, false, ""}.compare(t, "60 s", wallClocks(f))

	f = emptyFacts()
	f.run.Observed = clients(1000, 1001, 1004)
	if got := f.missingNumbers(); got != 2 {
		t.Errorf("got %d missing numbers, want 2", got)
	}
	f.run.Observed = clients(1, 13)
	if got := f.missingNumbers(); got != 0 {
		t.Errorf("got %d missing numbers of two far from each other, want 0", got)
	}
	f.run.Observed = clients(1, 8)
	if got := f.missingNumbers(); got != 6 {
		t.Errorf("got %d missing numbers between 1 and 8, want 6", got)
	}

	wanted{text: "all requests wait about as long for their first token"}.compare(t, "sums", clientSums(servedBy(nil)))
	f = emptyFacts()
	for i := range 55 {
		l := clientRequest{itlUs: 10e3, output: 8, ttftUs: 1000, e2eUs: 71e3}
		if i < 5 {
			l = clientRequest{output: 1, ttftUs: 1000, e2eUs: 201e3}
		}
		f.loads = append(f.loads, l)
	}
	wanted{55, 5, 20, true, "5 of 55 answers have one token and go on after it, for up to 200 ms, where others have a token every 10 ms"}.compare(t, "one token", clientUnits(f))
	for i := range 5 {
		f.loads[i].e2eUs = 81e3
	}
	wanted{50, 0, 1, false, ""}.compare(t, "of eight gaps", clientUnits(f))

	equal := emptyFacts()
	for i := range 20 {
		l := clientRequest{sentUs: float64(i), prompt: float64(i), output: float64(i), ttftUs: 1000.5 + float64(i), e2eUs: 5000.5 + float64(i)}
		if i < 5 {
			l.ttftUs = 999.5
		}
		equal.loads = append(equal.loads, l)
	}
	wanted{40, 5, 0.25, true, "5 of 20 requests of different lengths"}.compare(t, "five equal times", timesEqual(equal))
	equal.loads[4].ttftUs = 998.5
	wanted{40, 0, 0, false, ""}.compare(t, "four", timesEqual(equal))

	f = emptyFacts()
	for i := range int64(60) {
		f.run.Iterations = append(f.run.Iterations, trace.Iteration{Form: trace.IterationLog, Index: i, ContextReqs: 1, ContextTokens: 500})
		o := trace.ObservedRequest{Iteration: trace.Some(i), PromptTokens: trace.Some[int64](100)}
		switch {
		case i < 52:
			f.run.Iterations[i].ContextTokens = 100
		case i == 52:
			o.Iteration.OK = false
		case i == 53:
			o.Engine = trace.Some[int64](1)
		case i == 54:
			o.PromptTokens.OK = false
		case i == 55:
			f.run.Iterations[i].ContextReqs = 2
		case i == 56:
			f.run.Iterations[i].Form = trace.IterationTensorRT
		case i == 57:
			f.run.Observed = append(f.run.Observed, o)
		default:
			o.Success = trace.Some(false)
		}
		f.run.Observed = append(f.run.Observed, o)
	}
	if r := passPrompts(f); r.checked != 52 || r.violated != 0 {
		t.Errorf("prompts of passes: got %+v, want 52 without a difference", r)
	}
}

// TestEdgesOfComparisons: two of a hundred requests may differ from their journeys, times that are rounded may begin anywhere, numbers may
// fall, and short answers have no pace.
func TestEdgesOfComparisons(t *testing.T) {
	tokens := func(odd int) reading {
		f := emptyFacts()
		for i := range 100 {
			id := trace.Some(fmt.Sprint("c", i))
			f.run.Requests = append(f.run.Requests, trace.Request{CoreID: id, PromptTokens: trace.Some[int64](100), OutputTokens: trace.Some[int64](9)})
			o := trace.ObservedRequest{CoreID: id, PromptTokens: trace.Some[int64](100), OutputTokens: trace.Some[int64](9)}
			if i < odd {
				o.PromptTokens.V = 150
			}
			f.run.Observed = append(f.run.Observed, o)
		}
		return clientTokens(f)
	}
	wanted{100, 2, 50, false, ""}.compare(t, "two of a hundred", tokens(2))
	wanted{100, 3, 50, true, "3 of 100 requests have other prompt or output tokens in the client's file than by the server, by up to 50"}.compare(t, "three", tokens(3))

	var stamps roundedTimes
	for i := range int64(100) {
		stamps.us = append(stamps.us, 123_456+(7_919_123*i%1_000_003+50_000)/100_000*100_000+i%2)
	}
	if got := stamps.roundedUs(); got != 100_000 {
		t.Errorf("rounded to 100 ms from 123.456 ms on: got %g us", got)
	}

	f := emptyFacts()
	f.run.Observed = clients(8, 1, 5)
	if got := f.missingNumbers(); got != 5 {
		t.Errorf("got %d missing numbers of 8, 1 and 5, want 5", got)
	}

	paced := emptyFacts()
	for i := range int64(40) {
		paced.run.Observed = append(paced.run.Observed, answer(i*1000, 15, 5), answer(i*1000+1, 15, 20))
	}
	paced.listRequests()
	wanted{text: "fewer than 30 pairs"}.compare(t, "short answers", clientPace(paced))
}
