package identity

// This file has the table of all identities.

import (
	"github.com/blis-train/blis-train/result"
)

// KindLoss is the kind of the identities that count what is missing.
const KindLoss = "loss"

// RepeatsExtraction reports whether an identity repeats what the extraction found. Its sentences are warnings already.
func RepeatsExtraction(name string) bool {
	switch name {
	case "stated_server", "stated_scheduler", "description", "client_totals", "client_load":
		return true
	}
	return false
}

// identities is every identity, in the order in which documents have them.
var identities = []Identity{
	{
		Name: "engine_order", Kind: "order", Streams: "API spans and journeys",
		Holds:     "a request arrives, is queued, is scheduled, gives its first token and its last token in this order",
		Tolerance: "1 ms, and 1 % of the requests",
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: engineOrder,
	},
	{
		Name: "departure_order", Kind: "order", Streams: "API spans and journeys",
		Holds:     "a response departs after the engine made its last token",
		Tolerance: "1 ms, and 1 % of the requests",
		Effect:    result.IdentityFails, Harms: replayAlone, compare: departures,
	},
	{
		Name: "api_delays", Kind: "order", Streams: "API spans and journeys",
		Holds:     "the quickest request is queued soon after its arrival and departs soon after its last token",
		Tolerance: "0.25 s, of at least 20 requests",
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: apiDelays,
	},
	{
		Name: "step_order", Kind: "order", Streams: "journeys and step summaries",
		Holds:     "a request is scheduled, gets its first token and finishes at the time of the steps that its events name, and is scheduled in schedule() of its step",
		Tolerance: "one step before to two after, 20 ms, and 2 % of the events; 1 ms and 2 % of the requests",
		Effect:    result.IdentityFails, Harms: everyPurpose, Causes: "engine_order", compare: stepOrder,
	},
	{
		Name: "step_stamps", Kind: "order", Streams: "step summaries",
		Holds:     "schedule() of a step begins after that of the one before, ends after it began and before the next one begins, and takes the time that is stated",
		Tolerance: "1 % of the steps, none that begins 1 s before the one before; two different batches of an asynchronous engine may begin at once; 1 ms for the end",
		Effect:    result.IdentityFails, Harms: everyPurpose, Causes: "step_rounding", compare: stepStamps,
	},
	{
		Name: "client_order", Kind: "order", Streams: "client timings",
		Holds:     "a client sends a request, gets the first token, the last token and the end in this order",
		Tolerance: "1 us, and 1 % of the requests",
		Effect:    result.IdentityFails, Harms: replayAlone, compare: clientOrder,
	},
	{
		Name: "client_encloses_server", Kind: "order", Streams: "client timings, and journeys or stock spans",
		Holds:     "a client waits at least as long as the server works on its request, and longer by what the way takes",
		Tolerance: "2 ms, and 1 % of the requests; over three times as long in half of them; times of 50 requests and more that grow 1.15 times as fast are left open",
		Effect:    result.IdentityFails, Harms: replayAlone, Causes: "request_rounding", compare: clientEncloses,
	},
	{
		Name: "client_streams", Kind: "order", Streams: "client timings",
		Holds:     "an answer of 8 tokens and more takes time after its first token",
		Tolerance: "10 % of them",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: clientStreams,
	},
	{
		Name: "client_turns", Kind: "order", Streams: "client timings or stock spans",
		Holds:     "first tokens come in the order in which the requests were sent",
		Tolerance: "overtaken by fewer than 3 that were sent 0.1 s later, or by less than 20 ms or 4 times between tokens; 3 % of the requests, and 4",
		Effect:    result.IdentityUndecided, Harms: replayAlone,
		Causes:  "client_order client_encloses_server client_limits span_sums client_units request_rounding request_floor client_clock client_streams client_lengths client_tokens client_totals client_delays",
		compare: clientTurns,
	},
	{
		Name: "client_clock", Kind: "order", Streams: "client timings",
		Holds:     "requests that are numbered, or in the lines of one file, were sent in this order, or in none",
		Tolerance: "back by what the longest request takes and 1 s; more than 2 % of such places are no order, unless all go back by about as much",
		Effect:    result.IdentityNamed, Harms: replayAlone, Causes: "client_order client_limits", compare: clientClock,
	},
	{
		Name: "client_delays", Kind: "order", Streams: "client timings, and journeys, logged passes or the library's kernels",
		Holds:     "the quickest first token, and the last, reach their client soon after the server made them, or could have made the first",
		Tolerance: "0.25 s, of at least 20 requests; 0.5 s by the library, unless 20 requests had the server alone until then",
		Effect:    result.IdentityNamed, Harms: replayAlone, Causes: "span_sums request_rounding client_encloses_server engine_order departure_order client_order client_streams client_totals", compare: clientDelays,
	},

	{
		Name: "step_tokens", Kind: "tokens", Streams: "step summaries or logged passes",
		Holds:     "scheduled tokens are prefill plus decode tokens, a decode without drafts has one, and no more requests run than are running",
		Tolerance: "2 % of the steps; 10 % of logged passes, in which preempted requests may be computed again, and half of those with prompts",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: stepTokens,
	},
	{
		Name: "journey_tokens", Kind: "tokens", Streams: "step summaries and journeys",
		Holds:     "the tokens of a step are what the journeys that run in it advance",
		Tolerance: "2 % of the steps in which as many journeys run as requests",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: journeyTokens,
	},
	{
		Name: "output_steps", Kind: "tokens", Streams: "journeys",
		Holds:     "a request without drafts or preemptions has one output token in each step from its first to its last",
		Tolerance: "2 tokens, and 1 % of the requests",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: outputSteps,
	},
	{
		Name: "client_tokens", Kind: "tokens", Streams: "client timings, and journeys, stock spans or logged passes",
		Holds:     "clients count the prompt and output tokens of the journeys or spans, no more than all passes together, and all of their prompts with all of their outputs",
		Tolerance: "2 tokens and 5 %, and 2 % of the requests; sums: 10 %; 15 % fewer prompt tokens with 95 % of the output tokens",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, Causes: "clients_differ", compare: clientTokens,
	},
	{
		Name: "server_tokens", Kind: "tokens", Streams: "stock spans or client timings, and the log's statistics",
		Holds:     "requests have the prompt and output tokens that the server counts in its log every ten seconds",
		Tolerance: "5 %, a second at each end and cached tokens; 15 % fewer prompts or outputs where the others are complete, which of clients' prompts is named",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, Causes: "client_tokens clients_differ", compare: serverTokens,
	},
	{
		Name: "client_lengths", Kind: "tokens", Streams: "client timings or stock spans",
		Holds:     "times go with the lengths of their own request, not better with another column or with the row beside it",
		Tolerance: "a rank correlation higher by 0.3 and by 4 standard deviations; half of the correlation that the spread of outputs gives",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, Causes: "client_totals", compare: clientLengths,
	},
	{
		Name: "client_chunks", Kind: "tokens", Streams: "client timings",
		Holds:     "the gaps between the chunks of an answer add up to the time after its first token, and it has a chunk a token where most answers do",
		Tolerance: "2 % and 2 ms; 0.3 or 3.3 times as many chunks; 3 % of the answers, and 4",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, Causes: "client_order client_encloses_server client_lengths client_tokens client_streams client_units clients_differ clock_rates step_stamps step_floor client_delays client_limits client_totals", compare: clientChunks,
	},
	{
		Name: "snapshot_tokens", Kind: "tokens", Streams: "snapshots and step summaries",
		Holds:     "the snapshots of all running requests add up to the tokens of the step",
		Tolerance: "2 % of the steps",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: snapshotTokens,
	},
	{
		Name: "snapshot_progress", Kind: "tokens", Streams: "snapshots",
		Holds:     "the computed tokens of a request are those of its snapshot before plus what ran since",
		Tolerance: "2 % of the pairs of snapshots",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: snapshotProgress,
	},
	{
		Name: "snapshot_requests", Kind: "tokens", Streams: "snapshots and journeys",
		Holds:     "a snapshot has the prompt of its journey, and no more computed tokens than the request had",
		Tolerance: "2 % of the snapshots",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: snapshotRequests,
	},
	{
		Name: "cached_tokens", Kind: "tokens", Streams: "journeys or client files, and the deployment",
		Holds:     "cached plus computed tokens are the prompt, and nothing is cached without a prefix cache",
		Tolerance: "2 % of the requests",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: cachedTokens,
	},
	{
		Name: "running_requests", Kind: "requests", Streams: "step summaries and journeys",
		Holds:     "no more journeys run in a step than requests are running",
		Tolerance: "2 % of the steps",
		Effect:    result.IdentityFails, Harms: everyPurpose, compare: runningDepth,
	},
	{
		Name: "waiting_requests", Kind: "requests", Streams: "step summaries and journeys",
		Holds:     "waiting_depth is the number of journeys that are queued and not yet scheduled",
		Tolerance: "2 % of the steps",
		Effect:    result.IdentityFails, Harms: waitsAlone, Causes: "step_stamps", compare: waitingDepth,
	},
	{
		Name: "finished_requests", Kind: "requests", Streams: "step summaries and journeys",
		Holds:     "the steps count as many finished requests and preemptions as journeys have",
		Tolerance: "3, and 2 %",
		Effect:    result.IdentityNamed, Harms: replayAndWaits, Causes: "step_stamps", compare: finishedCounts,
	},
	{
		Name: "scheduler_limits", Kind: "requests", Streams: "step summaries and the deployment",
		Holds:     "no step runs more than max_num_seqs requests or max_num_batched_tokens tokens, or more than long_prefill_token_threshold of a prompt",
		Tolerance: "none",
		Effect:    result.IdentityFails, Harms: replayAndWaits, Causes: "stated_scheduler", compare: limits,
	},
	{
		Name: "model_len", Kind: "requests", Streams: "client timings, journeys or stock spans, and the deployment",
		Holds:     "no request has more prompt and output tokens than max_model_len",
		Tolerance: "2 tokens and 5 %, and 1 % of the requests",
		Effect:    result.IdentityFails, Harms: replayAndWaits, Causes: "journey_tokens client_tokens", compare: modelLen,
	},
	{
		Name: "waiting_reason", Kind: "requests", Streams: "step summaries and the deployment",
		Holds: "a request waits only where max_num_seqs requests run, max_num_batched_tokens are scheduled, or fewer blocks are free than " +
			"the longest prompt takes",
		Tolerance: "10 % of the steps that leave requests waiting, of at least 10",
		Effect:    result.IdentityFails, Harms: replayAndWaits, Causes: "journey_tokens stated_scheduler", compare: waitingReason,
	},
	{
		Name: "chunk_reason", Kind: "requests", Streams: "journeys, step summaries and the deployment",
		Holds:     "a prompt is computed in several chunks only if the step of the first is full to max_num_batched_tokens, with enable_chunked_prefill",
		Tolerance: "10 % of the tokens, and half of such prompts, of at least 3",
		Effect:    result.IdentityFails, Harms: replayAndWaits, Causes: "journey_tokens running_requests stated_scheduler", compare: chunkReason,
	},
	{
		Name: "client_limits", Kind: "requests", Streams: "client timings or stock spans, and the deployment",
		Holds:     "no more than max_num_seqs requests are between their first and their last token",
		Tolerance: "10 % and 2 requests, 2 % of the time; more where the KV cache is full, because preempted requests count too",
		Effect:    result.IdentityFails, Harms: replayAndWaits, Causes: "span_sums request_rounding clients_differ client_order stated_scheduler client_totals", compare: clientLimits,
	},
	{
		Name: "clients_differ", Kind: "requests", Streams: "client timings or stock spans",
		Holds:     "no two requests have the same lengths and times to the microsecond",
		Tolerance: "1 % of the requests; answers of one token may be equal, if they were sent at other times",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: clientsDiffer,
	},
	{
		Name: "times_differ", Kind: "time", Streams: "client timings or stock spans",
		Holds:     "requests of different lengths that were sent at different times do not have equal times, and gaps between chunks are not cut off",
		Tolerance: "fewer than 5 with one time to the ns, or 2 % of the requests; times in whole ms; fewer than 20 gaps between chunks, or 1 %, with the longest of all",
		Effect:    result.IdentityFails, Harms: replayAlone, Causes: "request_rounding clients_differ client_order client_streams", compare: timesEqual,
	},
	{
		Name: "steps_differ", Kind: "time", Streams: "step summaries",
		Holds:     "steps of different batches do not take equal times",
		Tolerance: "fewer than 20 with one time to the ns, or 5 % of the steps; times in whole us",
		Effect:    result.IdentityFails, Harms: everyPurpose, Causes: "step_rounding step_stamps", compare: stepsEqual,
	},
	{
		Name: "client_pace", Kind: "time", Streams: "client timings or stock spans",
		Holds:     "answers that are made at the same time get their tokens at one pace, because each step makes one of every running request",
		Tolerance: "1.5 times, for answers of 16 tokens and more that share 70 % of their time; 30 % of the pairs, of at least 30",
		Effect:    result.IdentityUndecided, Harms: stepsAndReplay,
		Causes: "client_order client_encloses_server client_limits span_sums client_units request_rounding request_floor client_clock client_streams client_lengths " +
			"client_tokens client_totals client_chunks client_turns client_sums clients_differ times_differ answer_passes client_delays journey_tokens clock_rates",
		compare: clientPace,
	},
	{
		Name: "pass_prompts", Kind: "tokens", Streams: "client timings and logged passes",
		Holds:     "a pass with one prompt computes no more tokens than the prompt of the request that gets its first token there has",
		Tolerance: "2 tokens and 5 %; 3 % of such requests, and 4",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, Causes: "cached_tokens client_tokens client_lengths client_totals clients_differ answer_passes pass_order step_work", compare: passPrompts,
	},
	{
		Name: "phase_loads", Kind: "load", Streams: "journeys or client timings, and the deployment",
		Holds:     "the phases of run.yaml have requests, and a closed load holds its number of requests in flight",
		Tolerance: "one phase with requests; a closed load with fewer than 3 clients or 40 requests, or with nine tenths of them in flight at 30 % of the sends",
		Effect:    result.IdentityUndecided, Harms: replayAlone,
		Causes:  "client_order client_encloses_server client_units client_clock request_rounding request_floor answer_passes engine_order api_delays clock_rates",
		compare: phaseLoads,
	},
	{
		Name: "client_passes", Kind: "requests", Streams: "client timings and logged passes",
		Holds:     "requests of clients run when the passes of the log do, if no others are in the log",
		Tolerance: "half of the passes with one prompt agree on the offset of the clocks, and four fifths of the passes on the number of decodes",
		Effect:    result.IdentityNamed, Harms: replayAlone,
		Causes:  "request_rounding clients_differ client_limits client_order client_units client_lengths client_tokens clients_complete passes_complete pass_order client_totals answer_passes client_turns client_delays",
		compare: clientPasses,
	},
	{
		Name: "client_totals", Kind: "tokens", Streams: "files of clients",
		Holds: "the totals and means that a client's file states are those of its requests, and so are the figures that the tool derives for each",
		Tolerance: "2 %; 25 % of E2E, which some clients measure to the end of the connection; no request; derived figures: 2 %, in 3 % of the requests, and 4. " +
			"Means of 0 or 1 that were not computed, and a summary in a file of its own that is 5 % off, are named",
		Effect: result.IdentityFails, Harms: stepsAndReplay, compare: clientTotals,
	},
	{
		Name: "client_load", Kind: "load", Streams: "files of clients",
		Holds: "requests are sent at the rate and up to the limit that a client's file states",
		Tolerance: "10 % and 5 standard deviations of the number of arrivals, half as fast again where they came more slowly; 5 % and one request at once, half where fewer. " +
			"More arrivals leave the verdict open, the others are named",
		Effect: result.IdentityNamed, Harms: replayAlone, compare: clientLoads,
	},
	{
		Name: "budget_reached", Kind: "requests", Streams: "step summaries or logged passes, and the deployment",
		Holds:     "the most tokens of a step that steps of different numbers of decodes have are max_num_batched_tokens",
		Tolerance: "5 steps with prompts and 3 numbers of decodes",
		Effect:    result.IdentityFails, Harms: replayAndWaits, Causes: "scheduler_limits journey_tokens step_tokens stated_scheduler", compare: budgetReached,
	},
	{
		Name: "snapshot_blocks", Kind: "blocks", Streams: "snapshots and the deployment",
		Holds:     "a request of n tokens holds ceil(n / block_size) blocks",
		Tolerance: "one block and those of drafted tokens, and 2 % of the snapshots",
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: blocksOfContext,
	},
	{
		Name: "used_blocks", Kind: "blocks", Streams: "step summaries and snapshots",
		Holds:     "used plus free blocks are the total, and used blocks are those of the running requests less what they share",
		Tolerance: "2 blocks a request, and 2 % of the steps; more with a CPU tier, to which finished requests copy theirs",
		Effect:    result.IdentityFails, Harms: replayAndWaits, Causes: "model_len journey_tokens", compare: usedBlocks,
	},
	{
		Name: "pool_size", Kind: "blocks", Streams: "step summaries and the deployment",
		Holds:     "the KV cache has the blocks that run.yaml states",
		Tolerance: "1 block, and 2 % of the steps",
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: poolSize,
	},
	{
		Name: "memory", Kind: "memory", Streams: "the recorded KV cache and the deployment",
		Holds:     "weights, activations and KV cache fit into memory_gb times gpu_memory_utilization of each GPU",
		Tolerance: "5 %",
		Effect:    result.IdentityFails, Harms: everyPurpose, Causes: "stated_server", compare: memory,
	},
	{
		Name: "pool_of_memory", Kind: "memory", Streams: "the recorded KV cache and the deployment",
		Holds:     "a cache that the engine sized itself is what the weights leave of the memory",
		Tolerance: "15 %; a smaller cache is a violation only where a description that is wrong in one point gives its size",
		Effect:    result.IdentityFails, Harms: everyPurpose, Causes: "stated_server", compare: poolOfMemory,
	},
	{
		Name: "compute_type", Kind: "memory", Streams: "the deployment",
		Holds:     "vLLM computes in types of 16 bits or more",
		Tolerance: "none",
		Effect:    result.IdentityFails, Harms: everyPurpose, compare: computeType,
	},
	{
		Name: "clock_rates", Kind: "time", Streams: "monotonic and wall-clock stamps",
		Holds:     "the run takes as long by the one clock as by the other",
		Tolerance: "5 %, of a run of at least 5 s",
		Effect:    result.IdentityFails, Harms: everyPurpose, compare: clockRates,
	},
	{
		Name: "wall_clocks", Kind: "time", Streams: "monotonic and wall-clock stamps of API spans and step summaries",
		Holds:     "the wall clock is as far from the monotonic one in spans as in steps",
		Tolerance: "60 s",
		Effect:    result.IdentityNamed, Harms: everyPurpose, Causes: "api_delays clock_rates step_stamps", compare: wallClocks,
	},
	{
		Name: "step_rounding", Kind: "time", Streams: "step summaries",
		Holds:     "the stamps of steps are not rounded",
		Tolerance: "a fifth of the mean time of a step",
		Effect:    result.IdentityFails, Harms: everyPurpose, compare: stepRounding,
	},
	{
		Name: "request_rounding", Kind: "time", Streams: "API spans, journeys, and client timings or stock spans",
		Holds:     "the stamps and times of requests are not rounded",
		Tolerance: "a fifth of the mean time to the first token, for E2E of the mean E2E; not loads of a constant rate or equal bursts, whose stamps are on a grid",
		Effect:    result.IdentityFails, Harms: replayAndWaits, Causes: "client_totals", compare: requestRounding,
	},
	{
		Name: "step_floor", Kind: "time", Streams: "step times and the deployment",
		Holds:     "a step takes at least as long as its bytes and operations at the datasheet's peak",
		Tolerance: "20 %, and 5 % of the steps; the longest of a step and the two after it",
		Effect:    result.IdentityFails, Harms: everyPurpose, Causes: "step_rounding step_stamps stated_server", compare: stepFloor,
	},
	{
		Name: "step_work", Kind: "time", Streams: "step times and their batches",
		Holds:     "steps with more work take longer",
		Tolerance: "a rank correlation of 0.15, where the work differs by a factor of 2",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, Causes: "step_rounding step_stamps step_order journey_tokens", compare: stepWork,
	},
	{
		Name: "pass_times", Kind: "time", Streams: "logged passes",
		Holds:     "the elapsed times of passes add up to the busy time",
		Tolerance: "5 % more, and half of it",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: passTimes,
	},
	{
		Name: "pass_order", Kind: "time", Streams: "logged passes",
		Holds:     "the elapsed time of a pass goes with its own tokens, not better with those of the pass beside it",
		Tolerance: "a rank correlation higher by 0.3 and by 4 standard deviations",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: passOrder,
	},
	{
		Name: "pass_units", Kind: "time", Streams: "logged passes",
		Holds:     "a pass that decodes takes about as long as those beside it",
		Tolerance: "a factor of 3, and 3 % of the passes between two others on each side",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, Causes: "pass_times", compare: passUnits,
	},
	{
		Name: "answer_passes", Kind: "time", Streams: "client timings and logged passes",
		Holds: "a request whose pass is known takes as long as this pass to its first token, and as the passes that made the other tokens after it, and all such " +
			"passes are as far from their first tokens",
		Tolerance: "a tenth less, and for the median five times as long; a factor of 1.5 from the median and 20 ms; 3 s; 3 % of the requests, and 4",
		Effect:    result.IdentityFails, Harms: stepsAndReplay,
		Causes:  "client_order client_units client_chunks client_lengths pass_times pass_order pass_units passes_complete client_totals client_delays client_turns client_limits",
		compare: answerPasses,
	},
	{
		Name: "first_passes", Kind: "time", Streams: "client timings and logged passes",
		Holds:     "the time to the first token grows as fast as the elapsed time of the pass that computes the whole prompt, alone or beside two decodes at most",
		Tolerance: "1.15 times as fast either way, beyond the 95 % interval of the slope; 0.5 us a token of the prompt for the front end",
		Effect:    result.IdentityFails, Harms: stepsAndReplay,
		Causes:  "client_order client_units client_lengths pass_times pass_order pass_units passes_complete client_totals",
		compare: firstPasses,
	},
	{
		Name: "step_prior", Kind: "time", Streams: "step times and the library's kernels",
		Holds:     "steps take what the library predicts for the same batches",
		Tolerance: "a ratio of 1.5 either way, by regime; beyond 5 the purposes fail",
		Effect:    result.IdentityNamed, Harms: everyPurpose, Causes: "step_rounding step_stamps step_order clock_rates stated_server", compare: priorOfSteps,
	},
	{
		Name: "client_units", Kind: "time", Streams: "client timings or stock spans",
		Holds: "the times between the tokens of all requests are of one unit",
		Tolerance: "a factor of 50 from their median, and 2 % of the requests; a factor of 2.5 and 16 median deviations from the requests with as many others, in 3 %; " +
			"8 times between tokens after an only token",
		Effect: result.IdentityFails, Harms: stepsAndReplay, Causes: "client_encloses_server client_totals", compare: clientUnits,
	},
	{
		Name: "span_sums", Kind: "time", Streams: "stock spans",
		Holds:     "a span is as long as its E2E, which is at least its time in queue and model; prefill and decode add up to the latter, and end no later than TTFT and E2E",
		Tolerance: "50 ms and 10 %, and 2 % of the spans",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: spanSums,
	},
	{
		Name: "client_sums", Kind: "time", Streams: "client timings or stock spans",
		Holds:     "E2E has the time to the first token once",
		Tolerance: "the times between tokens scatter 1.67 times as much as if it lacked it, or had it twice, where TTFT scatters by 20 %",
		Effect:    result.IdentityNamed, Harms: stepsAndReplay, Causes: "client_order client_units client_encloses_server span_sums client_totals", compare: clientSums,
	},
	{
		Name: "request_floor", Kind: "time", Streams: "client timings, stock spans or load levels, and the deployment",
		Holds:     "tokens take at least as long as reading the weights, and prompts as their arithmetic, at the datasheet's peak",
		Tolerance: "20 % of the medians; of single requests, with answers of 8 tokens and more, 20 % and 3 % of them",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, Causes: "client_encloses_server span_sums client_order client_units client_tokens client_lengths client_chunks client_streams stated_server client_totals", compare: requestFloor,
	},
	{
		Name: "request_prior", Kind: "time", Streams: "client timings and the library's kernels",
		Holds:     "tokens take what the library predicts for as many requests at once",
		Tolerance: "a ratio of 1.5 either way; beyond 5 the purposes fail",
		Effect:    result.IdentityNamed, Harms: stepsAndReplay, Causes: "span_sums stated_server client_totals", compare: priorOfRequests,
	},
	{
		Name: "level_prior", Kind: "time", Streams: "load levels and the library's kernels",
		Holds:     "tokens of load levels take what the library predicts for as many requests at once",
		Tolerance: "a ratio of 1.5 either way, and first tokens that come earlier in 10 % of the levels; beyond 5 the purposes fail",
		Effect:    result.IdentityNamed, Harms: stepsAndReplay, compare: priorOfLevels,
	},
	{
		Name: "level_latency", Kind: "load", Streams: "load levels",
		Holds:     "E2E is TTFT plus the time of the other tokens, and not the time per token times all of them",
		Tolerance: "10 %, and a fifth of the levels; a factor of 3 in any; 0.1 % for the latter",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: levelSums,
	},
	{
		Name: "level_concurrency", Kind: "load", Streams: "load levels",
		Holds:     "the clients of a closed loop are its rate times its latency (Little's law)",
		Tolerance: "15 % more, 30 % fewer, and half of the levels",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: levelLoad,
	},
	{
		Name: "levels_differ", Kind: "load", Streams: "load levels",
		Holds:     "no load level is in the data twice",
		Tolerance: "5 digits",
		Effect:    result.IdentityUndecided, Harms: stepsAndReplay, compare: levelsDiffer,
	},
	{
		Name: "model_name", Kind: "names", Streams: "API spans and the deployment",
		Holds:     "spans name the model of run.yaml",
		Tolerance: "owner and punctuation",
		Effect:    result.IdentityUndecided, Harms: everyPurpose, compare: modelNames,
	},
	{
		Name: "stated_server", Kind: "names", Streams: "logs, client files and the deployment",
		Holds:     "model, dtypes, device and parallel sizes that the files state are those of run.yaml",
		Tolerance: "none",
		Effect:    result.IdentityFails, Harms: everyPurpose, compare: statedServer,
	},
	{
		Name: "stated_scheduler", Kind: "names", Streams: "logs, client files, step summaries and the deployment",
		Holds: "what the files state or show of the scheduler's limits, of prefix caching, chunked prefill and asynchronous scheduling, " +
			"and of the size and number of blocks is what run.yaml states",
		Tolerance: "numbers of blocks printed in rounded tokens",
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: statedScheduler,
	},
	{
		Name: "description", Kind: "names", Streams: "logs, client files and the deployment",
		Holds:     "what else the files state of the server, or make likely, is what run.yaml states",
		Tolerance: "none",
		Effect:    result.IdentityNamed, Harms: everyPurpose, compare: describedAlike,
	},
	{
		Name: "files_whole", Kind: KindLoss, Streams: "all files of the recording",
		Holds:     "no file is cut off",
		Tolerance: "a last line that is cut, which is one record",
		Effect:    result.IdentityUndecided, Harms: everyPurpose, compare: filesWhole,
	},
	{
		Name: "steps_complete", Kind: KindLoss, Streams: "step summaries",
		Holds:     "every step id has a summary, or the share that was to be recorded",
		Tolerance: "5 %",
		Effect:    result.IdentityUndecided, Harms: everyPurpose, Causes: "step_order running_requests", compare: stepsComplete,
	},
	{
		Name: "journeys_complete", Kind: KindLoss, Streams: "step summaries and journeys",
		Holds:     "every running request has a journey",
		Tolerance: "2 % of the running requests",
		Effect:    result.IdentityUndecided, Harms: everyPurpose, Causes: "step_stamps", compare: journeysComplete,
	},
	{
		Name: "sampling_rates", Kind: KindLoss, Streams: "step summaries, journeys, snapshots and the deployment",
		Holds:     "no larger share of a stream is recorded than its sample rate in run.yaml",
		Tolerance: "2 % and 5 standard deviations",
		Effect:    result.IdentityNamed, Harms: everyPurpose, compare: samplingRates,
	},
	{
		Name: "api_spans_complete", Kind: KindLoss, Streams: "API spans and journeys",
		Holds:     "every journey has an API span",
		Tolerance: "2 %",
		Effect:    result.IdentityUndecided, Harms: replayAndWaits, compare: apiSpansComplete,
	},
	{
		Name: "core_spans_complete", Kind: KindLoss, Streams: "API spans and journeys",
		Holds:     "every API span has a journey",
		Tolerance: "2 %",
		Effect:    result.IdentityUndecided, Harms: everyPurpose, compare: coreSpansComplete,
	},
	{
		Name: "events_complete", Kind: KindLoss, Streams: "journeys",
		Holds:     "a journey has all events up to its last",
		Tolerance: "2 %",
		Effect:    result.IdentityUndecided, Harms: replayAndWaits, compare: eventsComplete,
	},
	{
		Name: "snapshots_complete", Kind: KindLoss, Streams: "snapshots and step summaries",
		Holds:     "a step with snapshots has one of every running request, and as many steps have them as were to be recorded",
		Tolerance: "2 %",
		Effect:    result.IdentityUndecided, Harms: stepsAndReplay, Causes: "journey_tokens step_stamps", compare: snapshotsComplete,
	},
	{
		Name: "passes_complete", Kind: KindLoss, Streams: "logged passes",
		Holds:     "the numbers of logged passes have no gap",
		Tolerance: "2 %",
		Effect:    result.IdentityUndecided, Harms: stepsAndReplay, compare: passesComplete,
	},
	{
		Name: "clients_complete", Kind: KindLoss, Streams: "client timings, journeys and logged passes",
		Holds:     "the client has every request that the server served",
		Tolerance: "2 %; a client's file that keeps a sample of its requests is not complete",
		Effect:    result.IdentityUndecided, Harms: replayAlone, Causes: "step_tokens", compare: clientsComplete,
	},
	{
		Name: "server_requests", Kind: KindLoss, Streams: "stock spans or client timings, and the log's statistics",
		Holds:     "the tokens that the server counts in its log every ten seconds are of recorded requests",
		Tolerance: "5 %, and a second at each end",
		Effect:    result.IdentityUndecided, Harms: replayAlone, Causes: "clients_complete server_tokens", compare: serverRequests,
	},
	{
		Name: "kv_events_complete", Kind: KindLoss, Streams: "KV events",
		Holds:     "the block before a stored one was stored",
		Tolerance: "2 %",
		Effect:    result.IdentityUndecided, Harms: replayAlone, compare: kvEventsComplete,
	},
}
