package trace

// This file has the row of a load level of a benchmark.

// LoadPoint is one row of `points`: one load level as a benchmark printed it, over the requests that
// succeeded.
type LoadPoint struct {
	Name         string       `col:"point" doc:"file, and line or benchmark in it"`
	Strategy     string       `col:"strategy" doc:"how the load was offered, as the tool calls it; concurrent@N is a closed loop of N clients"`
	Requests     Opt[int64]   `col:"requests" unit:"requests" doc:"that succeeded"`
	Clients      Opt[int64]   `col:"clients" unit:"requests" doc:"of a closed loop, as stated"`
	OfferedRPS   Opt[float64] `col:"offered_rps" unit:"1/s" doc:"rate of open arrivals, as stated"`
	RateRPS      Opt[float64] `col:"rate_rps" unit:"1/s" doc:"requests that succeeded, over the time it took"`
	PromptTokens float64      `col:"prompt_tokens" unit:"tokens" doc:"mean prompt length"`
	PromptSD     Opt[float64] `col:"prompt_sd" unit:"tokens" doc:"its standard deviation"`
	OutputTokens float64      `col:"output_tokens" unit:"tokens" doc:"mean output length"`
	OutputSD     Opt[float64] `col:"output_sd" unit:"tokens" doc:"its standard deviation"`
	TTFTMs       Opt[float64] `col:"ttft_ms" unit:"ms" doc:"mean time to first token"`
	TTFTMedianMs Opt[float64] `col:"ttft_median_ms" unit:"ms" doc:"its median"`
	TPOTMs       float64      `col:"tpot_ms" unit:"ms" doc:"mean time per output token after the first"`
	E2EMs        Opt[float64] `col:"e2e_ms" unit:"ms" doc:"mean latency of a request"`
	CachedTokens Opt[float64] `col:"cached_tokens" unit:"tokens" doc:"mean prompt tokens from the prefix cache, by the server or by what the prompts share; null: not stated"`
	TP           Opt[int64]   `col:"tp" doc:"tensor parallel size the level was measured at; null: run.yaml's"`
	EP           Opt[int64]   `col:"ep" doc:"expert parallel size; above 1: experts lie on several devices whole; null: run.yaml's"`
	DP           Opt[int64]   `col:"dp" doc:"data parallel size, whose ranks share the clients or the rate; null: run.yaml's"`
	File         string       `col:"file" doc:"input file, relative to the run directory"`
	Line         int64        `col:"line" doc:"line in a table; 0 in a document"`
}
