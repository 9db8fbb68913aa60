package identity

// This file has the table of all identities.

import (
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// nsPerMs is the number of nanoseconds in a millisecond: stamps are in ns, and tolerances state ms.
const nsPerMs = 1_000_000

// KindLoss is the kind of the identities that count what is missing.
const KindLoss = "loss"

// RepeatsExtraction reports whether an identity repeats what the extraction found. Its sentences are warnings already.
func RepeatsExtraction(name string) bool {
	return slices.ContainsFunc(identities, func(id Identity) bool { return id.Name == name && id.repeats })
}

// percent returns a share as tolerances state it.
func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }

// partOf returns the tolerance of isPart: up to how many of the values (what) may be unlike the rest.
func partOf(what string) string {
	return fmt.Sprintf("%s of %s, and %d", percent(mostApart), what, fewestApart-1)
}

// identities is every identity, in the order in which documents have them.
var identities = []Identity{
	{
		Name: "engine_order", Kind: "order", Streams: "API spans and journeys",
		Holds:     "a request arrives, is queued, is scheduled, gives its first token and its last token in this order",
		Tolerance: fmt.Sprintf("%d ms, and %s of the requests", clockSlackNs/nsPerMs, percent(mostBackwards)),
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: engineOrder,
	},
	{
		Name: "departure_order", Kind: "order", Streams: "API spans and journeys",
		Holds:     "a response departs after the engine made its last token",
		Tolerance: fmt.Sprintf("%d ms, and %s of the requests", clockSlackNs/nsPerMs, percent(mostBackwards)),
		Effect:    result.IdentityFails, Harms: replayAlone, compare: departures,
	},
	{
		Name: "api_delays", Kind: "order", Streams: "API spans and journeys",
		Holds:     "the quickest request is queued soon after its arrival and departs soon after its last token",
		Tolerance: fmt.Sprintf("%g s, of at least %d requests", longestOfLeast, fewestDelays),
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: apiDelays,
	},
	{
		Name: "step_order", Kind: "order", Streams: "journeys and step summaries",
		Holds: "a request is scheduled, gets its first token and finishes at the time of the steps that its events name, and is scheduled in schedule() of its step",
		Tolerance: fmt.Sprintf("one step before to two after, %d ms, and %s of the events; %d ms and %s of the requests", stepSlackNs/nsPerMs,
			percent(mostOffSteps), clockSlackNs/nsPerMs, percent(mostOffSteps)),
		Effect: result.IdentityFails, Harms: everyPurpose, compare: stepOrder,
		Causes: []string{"engine_order"},
	},
	{
		Name: "scheduled_ahead", Kind: "order", Streams: "journeys, step summaries and the deployment",
		Holds: "a step is scheduled before the first tokens of the step before with asynchronous scheduling, and after them without",
		Tolerance: fmt.Sprintf("%s of at least %d first tokens, of steps with two requests and more; not with pipeline stages; open where it "+
			"is the version's default", percent(mostUnahead), fewestAhead),
		Effect: result.IdentityFails, Harms: replayAndWaits, compare: scheduledAhead,
		Causes: []string{
			"step_order", "step_stamps", "step_rounding", "request_rounding", "engine_order", "clock_rates", "steps_complete", "running_requests",
		},
	},
	{
		Name: "step_stamps", Kind: "order", Streams: "step summaries",
		Holds: "schedule() of a step begins after that of the one before, ends after it began and before the next one begins, and takes the time that is stated",
		Tolerance: fmt.Sprintf("%s of the steps, none that begins %g s before the one before; two different batches of an asynchronous engine "+
			"may begin at once; %d ms for the end", percent(mostBackwards), restartNs/1e9, clockSlackNs/nsPerMs),
		Effect: result.IdentityFails, Harms: everyPurpose, compare: stepStamps,
		Causes: []string{"step_rounding"},
	},
	{
		Name: "client_order", Kind: "order", Streams: "client timings",
		Holds:     "a client sends a request, gets the first token, the last token and the end in this order",
		Tolerance: "1 us, and " + percent(mostBackwards) + " of the requests",
		Effect:    result.IdentityFails, Harms: replayAlone, compare: clientOrder,
	},
	{
		Name: "client_encloses_server", Kind: "order", Streams: "client timings, and journeys or stock spans",
		Holds: "a client waits at least as long as the server works on its request, and longer by the network",
		Tolerance: fmt.Sprintf("%d ms, and %s of the requests; over three times as long in half of them; times of %d requests and more that "+
			"grow %g times as fast are left open", clientSlackUs/1000, percent(mostBackwards), fewestOfPart, mostClientFactor),
		Effect: result.IdentityFails, Harms: replayAlone, compare: clientEncloses,
		Causes: []string{"request_rounding"},
	},
	{
		Name: "client_streams", Kind: "order", Streams: "client timings",
		Holds:     fmt.Sprintf("an answer of %d tokens and more takes time after its first token", leastStreamed),
		Tolerance: percent(mostUnstreamed) + " of them",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: clientStreams,
	},
	{
		Name: "client_turns", Kind: "order", Streams: "client timings or stock spans",
		Holds: "first tokens come in the order in which the requests were sent",
		Tolerance: fmt.Sprintf("overtaken by fewer than %d that were sent %g s later, or by less than %g ms or %d times between tokens; %s", overtakers,
			laterUs/1e6, overtakeUs/1e3, overtakeGaps, partOf("the requests")),
		Effect: result.IdentityUndecided, Harms: replayAlone, compare: clientTurns,
		Causes: []string{
			"client_order", "client_encloses_server", "client_limits", "span_sums", "client_units", "request_rounding",
			"request_floor", "client_clock", "client_streams", "client_lengths", "client_tokens", "client_totals",
			"client_delays",
		},
	},
	{
		Name: "client_clock", Kind: "order", Streams: "client timings",
		Holds: "requests that are numbered, or in the lines of one file, were sent in this order, or in none",
		Tolerance: fmt.Sprintf("back by what the longest request takes and %g s; more than %s of such places are no order, unless all go back "+
			"by about as much", clockBackNs/1e9, percent(mostJumpShare)),
		Effect: result.IdentityNamed, Harms: replayAlone, compare: clientClock,
		Causes: []string{"client_order", "client_limits"},
	},
	{
		Name: "client_delays", Kind: "order", Streams: "client timings, and journeys, logged passes or the library's kernels",
		Holds: "the quickest first token, and the last, reach their client soon after the server made them, or could have made the first",
		Tolerance: fmt.Sprintf("%g s, of at least %d requests; %g s by the library, unless %d requests had the server alone until then",
			longestOfLeast, fewestDelays, longestOfPriced, fewestDelays),
		Effect: result.IdentityNamed, Harms: replayAlone, compare: clientDelays,
		Causes: []string{
			"span_sums", "request_rounding", "client_encloses_server", "engine_order", "departure_order", "client_order",
			"client_streams", "client_totals",
		},
	},

	{
		Name: "step_tokens", Kind: "tokens", Streams: "step summaries or logged passes",
		Holds: "scheduled tokens are prefill plus decode tokens, a decode without drafts has one, and no more requests run than are running",
		Tolerance: fmt.Sprintf("%s of the steps; %s of logged passes, in which preempted requests may be computed again, and half of those with "+
			"prompts", percent(mostOffSteps), percent(mostResumed)),
		Effect: result.IdentityFails, Harms: stepsAndReplay, compare: stepTokens,
	},
	{
		Name: "journey_tokens", Kind: "tokens", Streams: "step summaries and journeys",
		Holds:     "the tokens of a step are what the journeys that run in it advance",
		Tolerance: percent(mostOffSteps) + " of the steps in which as many journeys run as requests",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: journeyTokens,
	},
	{
		Name: "output_steps", Kind: "tokens", Streams: "journeys",
		Holds: "a request without drafts or preemptions has one output token in each step from its first to its last",
		Tolerance: fmt.Sprintf("%d tokens, and %s of the requests; none in half of at least %d that reached their length", slackTokens,
			percent(mostBackwards), fewestExact),
		Effect: result.IdentityFails, Harms: stepsAndReplay, compare: outputSteps,
	},
	{
		Name: "api_tokens", Kind: "tokens", Streams: "API spans and journeys",
		Holds:     "an API span states the prompt tokens of its journey",
		Tolerance: percent(mostBackwards) + " of the requests",
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: apiTokens, repeats: true,
		Causes: []string{"journey_tokens", "snapshot_requests"},
	},
	{
		Name: "client_tokens", Kind: "tokens", Streams: "client timings, and journeys, stock spans or logged passes",
		Holds: "clients count the prompt and output tokens of the journeys or spans, no more than all passes together, and all of their prompts " +
			"with all of their outputs",
		Tolerance: fmt.Sprintf("%d tokens and %s, and %s of the requests; sums: %s; %s fewer prompt tokens with %s of the output tokens", slackTokens,
			percent(slackShare), percent(mostOffSteps), percent(mostOtherSums), percent(mostOfPrompts), percent(1-mostOfOthers)),
		Effect: result.IdentityFails, Harms: stepsAndReplay, compare: clientTokens,
		Causes: []string{"clients_differ"},
	},
	{
		Name: "server_tokens", Kind: "tokens", Streams: "stock spans or client timings, and the log's statistics",
		Holds: "requests have the prompt and output tokens that the server counts in its log every ten seconds",
		Tolerance: fmt.Sprintf("%s, a second at each end and cached tokens; %s fewer prompts or outputs where the others are complete, which of "+
			"clients' prompts is named", percent(countTolerance), percent(mostOneSided)),
		Effect: result.IdentityFails, Harms: stepsAndReplay, compare: serverTokens,
		Causes: []string{"client_tokens", "clients_differ"},
	},
	{
		Name: "client_lengths", Kind: "tokens", Streams: "client timings or stock spans",
		Holds: "times correlate with the lengths of their own request, not better with another column or with the row beside it",
		Tolerance: fmt.Sprintf("a rank correlation higher by %g and by %d standard deviations; half of the correlation that the spread of outputs "+
			"gives", rankMargin, rankDeviations),
		Effect: result.IdentityFails, Harms: stepsAndReplay, compare: clientLengths,
		Causes: []string{"client_totals"},
	},
	{
		Name: "client_chunks", Kind: "tokens", Streams: "client timings",
		Holds: "the gaps between the chunks of an answer add up to the time after its first token, and it has a chunk a token where most answers do",
		Tolerance: fmt.Sprintf("%s and %d ms; %g or %.2g times as many chunks; %s", percent(gapShare), clientSlackUs/1000, chunkShare, 1/chunkShare,
			partOf("the answers")),
		Effect: result.IdentityFails, Harms: stepsAndReplay, compare: clientChunks,
		Causes: []string{
			"client_order", "client_encloses_server", "client_lengths", "client_tokens", "client_streams", "client_units",
			"clients_differ", "clock_rates", "step_stamps", "step_floor", "client_delays", "client_limits",
			"client_totals",
		},
	},
	{
		Name: "snapshot_tokens", Kind: "tokens", Streams: "snapshots and step summaries",
		Holds:     "the snapshots of all running requests add up to the tokens of the step",
		Tolerance: percent(mostOffSteps) + " of the steps",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: snapshotTokens,
	},
	{
		Name: "snapshot_progress", Kind: "tokens", Streams: "snapshots",
		Holds:     "the computed tokens of a request are those of its snapshot before plus what ran since",
		Tolerance: percent(mostOffSteps) + " of the pairs of snapshots",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: snapshotProgress,
	},
	{
		Name: "snapshot_requests", Kind: "tokens", Streams: "snapshots and journeys",
		Holds:     "a snapshot has the prompt of its journey, and no more computed tokens than the request had",
		Tolerance: percent(mostOffSteps) + " of the snapshots",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: snapshotRequests,
	},
	{
		Name: "cached_tokens", Kind: "tokens", Streams: "journeys or client files, and the deployment",
		Holds:     "cached plus computed tokens are the prompt, and nothing is cached without a prefix cache",
		Tolerance: percent(mostOffSteps) + " of the requests",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: cachedTokens,
	},
	{
		Name: "running_requests", Kind: "requests", Streams: "step summaries and journeys",
		Holds:     "no more journeys run in a step than requests are running",
		Tolerance: percent(mostOffSteps) + " of the steps",
		Effect:    result.IdentityFails, Harms: everyPurpose, compare: runningDepth,
	},
	{
		Name: "waiting_requests", Kind: "requests", Streams: "step summaries and journeys",
		Holds:     "waiting_depth is the number of journeys that are queued and not yet scheduled",
		Tolerance: percent(mostOffSteps) + " of the steps",
		Effect:    result.IdentityFails, Harms: waitsAlone, compare: waitingDepth,
		Causes: []string{"step_stamps"},
	},
	{
		Name: "finished_requests", Kind: "requests", Streams: "step summaries and journeys",
		Holds:     "the steps count as many finished requests and preemptions as journeys have",
		Tolerance: fmt.Sprintf("%d, and %s", mostMiscounted, percent(mostOffSteps)),
		Effect:    result.IdentityNamed, Harms: replayAndWaits, compare: finishedCounts,
		Causes: []string{"step_stamps"},
	},
	{
		Name: "scheduler_limits", Kind: "requests", Streams: "step summaries and the deployment",
		Holds: "no step runs more than max_num_seqs (or max_num_active_seqs) requests or max_num_batched_tokens (or max_num_scheduled_tokens) tokens, " +
			"or more than long_prefill_token_threshold of a prompt",
		Tolerance: "none",
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: limits,
		Causes: []string{"stated_scheduler"},
	},
	{
		Name: "model_len", Kind: "requests", Streams: "client timings, journeys or stock spans, and the deployment",
		Holds:     "no request has more prompt and output tokens than max_model_len",
		Tolerance: fmt.Sprintf("%d tokens and %s, and %s of the requests", slackTokens, percent(slackShare), percent(mostBackwards)),
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: modelLen,
		Causes: []string{"journey_tokens", "client_tokens"},
	},
	{
		Name: "engine_ranks", Kind: "requests", Streams: "API spans, journeys, step summaries and the deployment",
		Holds: "with data_parallel_size above 1 one engine has a part of the requests of its API server",
		Tolerance: fmt.Sprintf("fewer than %d requests, or than %d at once for each rank; %s of them in other engines; ranks with API servers of "+
			"their own", fewestJoined, atOnceOfRank, percent(mostElsewhere)),
		Effect: result.IdentityFails, Harms: replayAndWaits, compare: engineRanks,
		Causes: []string{"core_spans_complete", "stated_server"},
	},
	{
		Name: "waiting_reason", Kind: "requests", Streams: "step summaries and the deployment",
		Holds: "a request waits only where max_num_seqs (or max_num_active_seqs) requests run, max_num_batched_tokens (or " +
			"max_num_scheduled_tokens) are scheduled, or fewer blocks are free than the longest prompt takes",
		Tolerance: fmt.Sprintf("%s of the steps that leave requests waiting, of at least %d", percent(mostUnreasoned), fewestWaiting),
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: waitingReason,
		Causes: []string{"journey_tokens", "stated_scheduler"},
	},
	{
		Name: "chunk_reason", Kind: "requests", Streams: "journeys, step summaries and the deployment",
		Holds: "a prompt is computed in several chunks only if the step of the first is full to max_num_batched_tokens (or max_num_scheduled_tokens), " +
			"with enable_chunked_prefill, or it is longer than long_prefill_token_threshold",
		Tolerance: fmt.Sprintf("%s of the tokens, and half of such prompts, of at least %d; none without enable_chunked_prefill where the step shows it", percent(1-budgetShare),
			fewestChunked),
		Effect: result.IdentityFails, Harms: replayAndWaits, compare: chunkReason,
		Causes: []string{"journey_tokens", "running_requests", "stated_scheduler"},
	},
	{
		Name: "client_limits", Kind: "requests", Streams: "client timings or stock spans, and the deployment",
		Holds: "no more than max_num_seqs requests are between their first and their last token",
		Tolerance: fmt.Sprintf("%s and %d requests, %s of the time; more where the KV cache is full, because preempted requests count too",
			percent(overSeqs-1), slackSeqs, percent(mostTimeOverSeqs)),
		Effect: result.IdentityFails, Harms: replayAndWaits, compare: clientLimits,
		Causes: []string{
			"span_sums", "request_rounding", "clients_differ", "client_order", "stated_scheduler", "client_totals",
		},
	},
	{
		Name: "clients_differ", Kind: "requests", Streams: "client timings or stock spans",
		Holds:     "no two requests have the same lengths and times to the microsecond",
		Tolerance: percent(mostBackwards) + " of the requests; answers of one token may be equal, if they were sent at other times",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: clientsDiffer,
	},
	{
		Name: "times_differ", Kind: "time", Streams: "client timings or stock spans",
		Holds: "requests of different lengths that were sent at different times do not have equal times, and gaps between chunks are not cut off",
		Tolerance: fmt.Sprintf("fewer than %d with one time to the ns, or %s of the requests; times in whole ms; fewer than %d gaps between chunks, "+
			"or %s, with the longest of all", fewestEqual, percent(mostEqual), fewestCutOff, percent(mostCutOff)),
		Effect: result.IdentityFails, Harms: replayAlone, compare: timesEqual,
		Causes: []string{"request_rounding", "clients_differ", "client_order", "client_streams"},
	},
	{
		Name: "steps_differ", Kind: "time", Streams: "step summaries",
		Holds: "steps of different batches do not take equal times",
		Tolerance: fmt.Sprintf("fewer than %d with one time to the ns, or with fewer than %d different numbers of tokens, or %s of the steps; times "+
			"in whole us", fewestEqualSteps, fewestEqualBatches, percent(mostEqualSteps)),
		Effect: result.IdentityFails, Harms: everyPurpose, compare: stepsEqual,
		Causes: []string{"step_rounding", "step_stamps"},
	},
	{
		Name: RunsDiffer, Kind: "time", Streams: "step times of all runs",
		Holds:     "no two runs have stretches of steps with equal times",
		Tolerance: fmt.Sprintf("%s of the stretches of %d step times; times so coarse that a run has stretches twice", percent(MostCopied), CopiedSteps),
		Effect:    result.IdentityFails, Harms: everyPurpose, compare: runsDiffer,
	},
	{
		Name: "client_pace", Kind: "time", Streams: "client timings or stock spans",
		Holds: "answers that are made at the same time get their tokens at one pace, because each step makes one of every running request",
		Tolerance: fmt.Sprintf("%g times, for answers of %d tokens and more that share %s of their time; %s of the pairs, of at least %d", mostPaces,
			leastPaced, percent(leastShared), percent(mostUnpaced), fewestPairs),
		Effect: result.IdentityUndecided, Harms: stepsAndReplay, compare: clientPace,
		Causes: []string{
			"client_order", "client_encloses_server", "client_limits", "span_sums", "client_units", "request_rounding",
			"request_floor", "client_clock", "client_streams", "client_lengths", "client_tokens", "client_totals",
			"client_chunks", "client_turns", "client_sums", "clients_differ", "times_differ", "answer_passes",
			"client_delays", "journey_tokens", "clock_rates",
		},
	},
	{
		Name: "pass_prompts", Kind: "tokens", Streams: "client timings and logged passes",
		Holds:     "a pass with one prompt computes no more tokens than the prompt of the request that gets its first token there has",
		Tolerance: fmt.Sprintf("%d tokens and %s; %s", slackTokens, percent(slackShare), partOf("such requests")),
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: passPrompts,
		Causes: []string{
			"cached_tokens", "client_tokens", "client_lengths", "client_totals", "clients_differ", "answer_passes",
			"pass_order", "step_work",
		},
	},
	{
		Name: "phase_loads", Kind: "load", Streams: "journeys or client timings, and the deployment",
		Holds: "the phases of run.yaml have requests, and a closed load holds its number of requests in flight",
		Tolerance: fmt.Sprintf("one phase with requests; a closed load with fewer than %d clients or %d requests, or with nine tenths of them in "+
			"flight at %s of the sends", fewestLoop, 2*stat.FewestCalls, percent(leastPlateau)),
		Effect: result.IdentityUndecided, Harms: replayAlone, compare: phaseLoads,
		Causes: []string{
			"client_order", "client_encloses_server", "client_units", "client_clock", "request_rounding", "request_floor",
			"answer_passes", "engine_order", "api_delays", "clock_rates",
		},
	},
	{
		Name: "client_passes", Kind: "requests", Streams: "client timings and logged passes",
		Holds:     "requests of clients run when the passes of the log do, if no others are in the log",
		Tolerance: "half of the passes with one prompt agree on the offset of the clocks, and four fifths of the passes on the number of decodes",
		Effect:    result.IdentityNamed, Harms: replayAlone, compare: clientPasses,
		Causes: []string{
			"request_rounding", "clients_differ", "client_limits", "client_order", "client_units", "client_lengths",
			"client_tokens", "clients_complete", "passes_complete", "pass_order", "client_totals", "answer_passes",
			"client_turns", "client_delays",
		},
	},
	{
		Name: "client_totals", Kind: "tokens", Streams: "files of clients",
		Holds: "the totals and means that a client's file states are those of its requests, and so are the figures that the tool derives for each",
		Tolerance: "2 %; 25 % of E2E, which some clients measure to the end of the connection; no request; derived figures: 2 %, in 3 % of the " +
			"requests, and 4. Means of 0 or 1 that were not computed, and a summary in a file of its own that is 5 % off, are named",
		Effect: result.IdentityFails, Harms: stepsAndReplay, compare: clientTotals, repeats: true,
	},
	{
		Name: "client_load", Kind: "load", Streams: "files of clients",
		Holds: "requests are sent at the rate and up to the limit that a client's file states",
		Tolerance: "10 % and 5 standard deviations of the number of arrivals, half as fast again where they came more slowly; 5 % and one request " +
			"at once, half where fewer. More arrivals leave the verdict open, the others are named",
		Effect: result.IdentityNamed, Harms: replayAlone, compare: clientLoads, repeats: true,
	},
	{
		Name: "budget_reached", Kind: "requests", Streams: "step summaries or logged passes, and the deployment",
		Holds:     "the most tokens of a step that steps of different numbers of decodes have are max_num_batched_tokens",
		Tolerance: fmt.Sprintf("%d steps with prompts and %d numbers of decodes", fewestFull, fewestCounts),
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: budgetReached,
		Causes: []string{"scheduler_limits", "journey_tokens", "step_tokens", "stated_scheduler"},
	},
	{
		Name: "snapshot_blocks", Kind: "blocks", Streams: "snapshots and the deployment",
		Holds:     "a request of n tokens holds ceil(n / block_size) blocks",
		Tolerance: "one block and those of drafted tokens, and " + percent(mostOffSteps) + " of the snapshots",
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: blocksOfContext,
	},
	{
		Name: "used_blocks", Kind: "blocks", Streams: "step summaries and snapshots",
		Holds: "used plus free blocks are the total, and used blocks are those of the running requests less what they share",
		Tolerance: fmt.Sprintf("%d blocks a request, and %s of the steps; more with a CPU tier, to which finished requests copy theirs", blockSlack,
			percent(mostOffSteps)),
		Effect: result.IdentityFails, Harms: replayAndWaits, compare: usedBlocks,
		Causes: []string{"model_len", "journey_tokens"},
	},
	{
		Name: "pool_size", Kind: "blocks", Streams: "step summaries and the deployment",
		Holds:     "the KV cache has the blocks that run.yaml states",
		Tolerance: "1 block, and " + percent(mostOffSteps) + " of the steps",
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: poolSize,
	},
	{
		Name: "memory", Kind: "memory", Streams: "the recorded KV cache and the deployment",
		Holds:     "weights, activations and KV cache fit into memory_gb times gpu_memory_utilization of each GPU",
		Tolerance: percent(memorySlack),
		Effect:    result.IdentityFails, Harms: everyPurpose, compare: memory,
		Causes: []string{"stated_server"},
	},
	{
		Name: "pool_of_memory", Kind: "memory", Streams: "the recorded KV cache and the deployment",
		Holds:     "a cache that the engine sized itself is what the weights leave of the memory",
		Tolerance: percent(poolTolerance) + "; a smaller cache is a violation only where a description that is wrong in one point gives its size",
		Effect:    result.IdentityFails, Harms: everyPurpose, compare: poolOfMemory,
		Causes: []string{"stated_server"},
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
		Tolerance: fmt.Sprintf("%s, of a run of at least %d s", percent(clockTolerance), leastSpanS),
		Effect:    result.IdentityFails, Harms: everyPurpose, compare: clockRates,
	},
	{
		Name: "wall_clocks", Kind: "time", Streams: "monotonic and wall-clock stamps of API spans and step summaries",
		Holds:     "the wall clock is as far from the monotonic one in spans as in steps",
		Tolerance: fmt.Sprintf("%d s", clocksApartS),
		Effect:    result.IdentityNamed, Harms: everyPurpose, compare: wallClocks,
		Causes: []string{"api_delays", "clock_rates", "step_stamps"},
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
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: requestRounding,
		Causes: []string{"client_totals"},
	},
	{
		Name: "step_floor", Kind: "time", Streams: "step times and the deployment",
		Holds:     "a step takes at least as long as its bytes and operations at the datasheet's peak",
		Tolerance: fmt.Sprintf("%s, and %s of the steps; the longest of a step and the two after it", percent(1-floorShare), percent(mostBelowFloor)),
		Effect:    result.IdentityFails, Harms: everyPurpose, compare: stepFloor,
		Causes: []string{"step_rounding", "step_stamps", "stated_server"},
	},
	{
		Name: "step_work", Kind: "time", Streams: "step times and their batches",
		Holds:     "steps with more work take longer",
		Tolerance: fmt.Sprintf("a rank correlation of %g, where the work differs by a factor of %d", leastWorkRank, leastWorked),
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: stepWork,
		Causes: []string{"step_rounding", "step_stamps", "step_order", "journey_tokens"},
	},
	{
		Name: "pass_times", Kind: "time", Streams: "logged passes",
		Holds:     "the elapsed times of passes add up to the busy time",
		Tolerance: percent(clockTolerance) + " more, and half of it",
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: passTimes,
	},
	{
		Name: "pass_order", Kind: "time", Streams: "logged passes",
		Holds:     "the elapsed time of a pass correlates with its own tokens, not better with those of the pass beside it",
		Tolerance: fmt.Sprintf("a rank correlation higher by %g and by %d standard deviations", rankMargin, rankDeviations),
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: passOrder,
	},
	{
		Name: "pass_units", Kind: "time", Streams: "logged passes",
		Holds:     "a pass that decodes takes about as long as those beside it",
		Tolerance: fmt.Sprintf("a factor of %d, and %s of the passes between two others on each side", mostPassRatio, percent(mostApart)),
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: passUnits,
		Causes: []string{"pass_times"},
	},
	{
		Name: "answer_passes", Kind: "time", Streams: "client timings and logged passes",
		Holds: "a request whose pass is known takes as long as this pass to its first token, and as the passes that made the other tokens after " +
			"it, and all such passes are as far from their first tokens",
		Tolerance: fmt.Sprintf("a tenth less, and for the median five times as long; a factor of %g from the median and %g ms; %g s; %s", passFactor,
			passSlackUs/1e3, pairSlackNs/1e9, partOf("the requests")),
		Effect: result.IdentityFails, Harms: stepsAndReplay, compare: answerPasses,
		Causes: []string{
			"client_order", "client_units", "client_chunks", "client_lengths", "pass_times", "pass_order", "pass_units",
			"passes_complete", "client_totals", "client_delays", "client_turns", "client_limits",
		},
	},
	{
		Name: "first_passes", Kind: "time", Streams: "client timings and logged passes",
		Holds: "the time to the first token grows as fast as the elapsed time of the pass that computes the whole prompt, alone or beside two decodes at most",
		Tolerance: fmt.Sprintf("%g times as fast either way, beyond the 95 %% interval of the slope; %g us a token of the prompt for the front end",
			mostFirstScale, frontTokenUs),
		Effect: result.IdentityFails, Harms: stepsAndReplay, compare: firstPasses,
		Causes: []string{
			"client_order", "client_units", "client_lengths", "pass_times", "pass_order", "pass_units", "passes_complete",
			"client_totals",
		},
	},
	{
		Name: "step_prior", Kind: "time", Streams: "step times and the library's kernels",
		Holds: "steps take what the library predicts for the same batches",
		Tolerance: fmt.Sprintf("a ratio of %g either way, by regime; beyond %g, or as short as on another device, the purposes fail; as long as on "+
			"another device, or %g beside a smaller KV cache than described, they are open", priorNamed, priorUnusable, priorBesides),
		Effect: result.IdentityNamed, Harms: everyPurpose, compare: priorOfSteps,
		Causes: []string{"step_rounding", "step_stamps", "step_order", "clock_rates", "stated_server"},
	},
	{
		Name: "client_units", Kind: "time", Streams: "client timings or stock spans",
		Holds: "the times between the tokens of all requests are of one unit",
		Tolerance: fmt.Sprintf("a factor of %d from their median, and %s of the requests; a factor of %g and %d median deviations from the requests "+
			"with as many others, in %s; %d times between tokens after an only token", mostUnits, percent(mostOffSteps), leastFactor,
			mostScatters, percent(mostApart), mostSingle),
		Effect: result.IdentityFails, Harms: stepsAndReplay, compare: clientUnits,
		Causes: []string{"client_encloses_server", "client_totals"},
	},
	{
		Name: "span_sums", Kind: "time", Streams: "stock spans",
		Holds: "a span is as long as its E2E, which is at least its time in queue and model; prefill and decode add up to the latter, and end " +
			"no later than TTFT and E2E",
		Tolerance: fmt.Sprintf("%d ms and %s, and %s of the spans", spanSlackUs/1000, percent(spanSlackShare), percent(mostOffSteps)),
		Effect:    result.IdentityFails, Harms: stepsAndReplay, compare: spanSums,
	},
	{
		Name: "client_sums", Kind: "time", Streams: "client timings or stock spans",
		Holds: "E2E has the time to the first token once",
		Tolerance: fmt.Sprintf("the times between tokens scatter %g times as much as if it lacked it, or had it twice, where TTFT scatters by %s",
			leastLessScatter, percent(leastWaits)),
		Effect: result.IdentityNamed, Harms: stepsAndReplay, compare: clientSums,
		Causes: []string{"client_order", "client_units", "client_encloses_server", "span_sums", "client_totals"},
	},
	{
		Name: "request_floor", Kind: "time", Streams: "client timings, stock spans or load levels, and the deployment",
		Holds: "tokens take at least as long as reading the weights, and prompts as their arithmetic, at the datasheet's peak",
		Tolerance: fmt.Sprintf("%s of the medians; of single requests, with answers of %d tokens and more, %s and %s of them", percent(1-floorShare),
			leastStreamed, percent(1-floorShare), percent(mostApart)),
		Effect: result.IdentityFails, Harms: stepsAndReplay, compare: requestFloor,
		Causes: []string{
			"client_encloses_server", "span_sums", "client_order", "client_units", "client_tokens", "client_lengths",
			"client_chunks", "client_streams", "stated_server", "client_totals",
		},
	},
	{
		Name: "request_prior", Kind: "time", Streams: "client timings and the library's kernels",
		Holds: "tokens take what the library predicts for as many requests at once",
		Tolerance: fmt.Sprintf("a ratio of %g either way, and first tokens that come earlier in %s of the requests; beyond %g the purposes fail; beside a "+
			"smaller KV cache than described they are open", priorNamed, percent(mostEarly), priorUnusable),
		Effect: result.IdentityNamed, Harms: stepsAndReplay, compare: priorOfRequests,
		Causes: []string{"span_sums", "stated_server", "client_totals"},
	},
	{
		Name: "level_prior", Kind: "time", Streams: "load levels and the library's kernels",
		Holds: "tokens of load levels take what the library predicts for as many requests at once",
		Tolerance: fmt.Sprintf("a ratio of %g either way, and first tokens that come earlier in %s of the levels; beyond %g the purposes fail; beside a "+
			"smaller KV cache than described they are open", priorNamed, percent(mostEarly), priorUnusable),
		Effect: result.IdentityNamed, Harms: stepsAndReplay, compare: priorOfLevels,
	},
	{
		Name: "level_latency", Kind: "load", Streams: "load levels",
		Holds: "E2E is TTFT plus the time of the other tokens, and not the time per token times all of them",
		Tolerance: fmt.Sprintf("%s, and a fifth of the levels; a factor of %g in any; %s for the latter", percent(sumTolerance), otherUnit,
			percent(wholeTolerance)),
		Effect: result.IdentityFails, Harms: stepsAndReplay, compare: levelSums,
	},
	{
		Name: "level_concurrency", Kind: "load", Streams: "load levels",
		Holds:     "the clients of a closed loop are its rate times its latency (Little's law)",
		Tolerance: fmt.Sprintf("%s more, %s fewer, and half of the levels", percent(littleTolerance), percent(2*littleTolerance)),
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
		Effect:    result.IdentityFails, Harms: everyPurpose, compare: statedServer, repeats: true,
	},
	{
		Name: "stated_scheduler", Kind: "names", Streams: "logs, client files, step summaries and the deployment",
		Holds: "what the files state or show of the scheduler's limits, of prefix caching, chunked prefill and asynchronous scheduling, and of " +
			"the size and number of blocks is what run.yaml states",
		Tolerance: "numbers of blocks printed in rounded tokens",
		Effect:    result.IdentityFails, Harms: replayAndWaits, compare: statedScheduler, repeats: true,
	},
	{
		Name: "description", Kind: "names", Streams: "logs, client files and the deployment",
		Holds:     "what else the files state of the server, or make likely, is what run.yaml states",
		Tolerance: "none",
		Effect:    result.IdentityNamed, Harms: everyPurpose, compare: describedAlike, repeats: true,
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
		Tolerance: percent(stepLossTolerance),
		Effect:    result.IdentityUndecided, Harms: everyPurpose, compare: stepsComplete,
		Causes: []string{"step_order", "running_requests"},
	},
	{
		Name: "journeys_complete", Kind: KindLoss, Streams: "step summaries and journeys",
		Holds:     "every running request has a journey",
		Tolerance: percent(lossTolerance) + " of the running requests",
		Effect:    result.IdentityUndecided, Harms: everyPurpose, compare: journeysComplete,
		Causes: []string{"step_stamps"},
	},
	{
		Name: "sampling_rates", Kind: KindLoss, Streams: "step summaries, journeys, snapshots and the deployment",
		Holds:     "no larger share of a stream is recorded than its sample rate in run.yaml",
		Tolerance: fmt.Sprintf("%s and %d standard deviations", percent(lossTolerance), rateDeviations),
		Effect:    result.IdentityNamed, Harms: everyPurpose, compare: samplingRates,
	},
	{
		Name: "api_spans_complete", Kind: KindLoss, Streams: "API spans and journeys",
		Holds:     "every journey has an API span",
		Tolerance: percent(lossTolerance),
		Effect:    result.IdentityUndecided, Harms: replayAndWaits, compare: apiSpansComplete,
	},
	{
		Name: "core_spans_complete", Kind: KindLoss, Streams: "API spans and journeys",
		Holds:     "every API span has a journey",
		Tolerance: percent(lossTolerance),
		Effect:    result.IdentityUndecided, Harms: everyPurpose, compare: coreSpansComplete,
	},
	{
		Name: "events_complete", Kind: KindLoss, Streams: "journeys",
		Holds:     "a journey has all events up to its last",
		Tolerance: percent(lossTolerance),
		Effect:    result.IdentityUndecided, Harms: replayAndWaits, compare: eventsComplete,
	},
	{
		Name: "snapshots_complete", Kind: KindLoss, Streams: "snapshots and step summaries",
		Holds:     "a step with snapshots has one of every running request, and as many steps have them as were to be recorded",
		Tolerance: percent(lossTolerance),
		Effect:    result.IdentityUndecided, Harms: stepsAndReplay, compare: snapshotsComplete,
		Causes: []string{"journey_tokens", "step_stamps"},
	},
	{
		Name: "passes_complete", Kind: KindLoss, Streams: "logged passes",
		Holds:     "the numbers of logged passes have no gap",
		Tolerance: percent(lossTolerance),
		Effect:    result.IdentityUndecided, Harms: stepsAndReplay, compare: passesComplete,
	},
	{
		Name: "clients_complete", Kind: KindLoss, Streams: "client timings, journeys and logged passes",
		Holds:     "the client has every request that the server served",
		Tolerance: percent(lossTolerance) + "; a client's file that keeps a sample of its requests is not complete",
		Effect:    result.IdentityUndecided, Harms: replayAlone, compare: clientsComplete,
		Causes: []string{"step_tokens"},
	},
	{
		Name: "server_requests", Kind: KindLoss, Streams: "stock spans or client timings, and the log's statistics",
		Holds:     "the tokens that the server counts in its log every ten seconds are of recorded requests",
		Tolerance: percent(countTolerance) + ", and a second at each end",
		Effect:    result.IdentityUndecided, Harms: replayAlone, compare: serverRequests,
		Causes: []string{"clients_complete", "server_tokens"},
	},
	{
		Name: "kv_events_complete", Kind: KindLoss, Streams: "KV events",
		Holds:     "the block before a stored one was stored",
		Tolerance: percent(lossTolerance),
		Effect:    result.IdentityUndecided, Harms: replayAlone, compare: kvEventsComplete,
	},
}
