package clients

// This file reads profile_export.jsonl of AIPerf: one request a line, with its own stamps and metrics. Lines of the
// raw export begin alike (aiperfraw.go).

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// sniffAIPerf reports whether a file is profile_export.jsonl of AIPerf.
func sniffAIPerf(head []byte) bool { return containsAll(head, `"request_start_ns"`, `"metadata"`) }

// readAIPerf reads one request a line.
func (c *Reader) readAIPerf(f *clientFile) error {
	load := c.newLoad(f.src.Name)
	err := c.readLines(f.src, func(line []byte) (trace.ObservedRequest, error) {
		r, err := aiperfRequest(line)
		if err == nil {
			load.extend(&r)
		}
		return r, err
	})
	c.addLoad(load)
	return err
}

// aiperfLine is one request. Stamps are ns of the wall clock, metrics as they are displayed.
type aiperfLine struct {
	Metadata struct {
		ID        string           `json:"x_request_id"`
		Session   int64            `json:"session_num"`
		Turn      int64            `json:"turn_index"`
		Credit    trace.Opt[int64] `json:"credit_issued_ns"`
		Start     trace.Opt[int64] `json:"request_start_ns"`
		End       trace.Opt[int64] `json:"request_end_ns"`
		Phase     string           `json:"benchmark_phase"`
		Cancelled bool             `json:"was_cancelled"`
	} `json:"metadata"`
	Metrics   map[string]aiperfMetric `json:"metrics"`
	StartPerf trace.Opt[int64]        `json:"start_perf_ns"` // of the raw export, as Status and Responses
	Status    trace.Opt[int64]        `json:"status"`
	Responses aiperfMessages          `json:"responses"`
	Error     *struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

// aiperfMetric is a metric of one request, a number or a list, in a unit of its own.
type aiperfMetric struct {
	Value json.RawMessage `json:"value"`
	Unit  string          `json:"unit"`
}

// tokens returns a metric that counts tokens. If it is not a number the result is NaN, which no range
// allows.
func (j *aiperfLine) tokens(key string) trace.Opt[int64] {
	var v trace.Opt[float64]
	if m, ok := j.Metrics[key]; ok && json.Unmarshal(m.Value, &v) != nil {
		v = trace.Some(math.NaN())
	}
	return tokenCount(v)
}

// times decodes a metric into values, a number or a list, and returns the factor from its unit to us.
// If the line does not have the metric, values stay as they are.
func (j *aiperfLine) times(key string, values any) (toUs float64, err error) {
	m, ok := j.Metrics[key]
	if !ok {
		return 1, nil
	}
	if err := json.Unmarshal(m.Value, values); err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	toMs, ok := unitMs[m.Unit]
	if !ok {
		return 0, fmt.Errorf("%s: got the unit %q, want ns, us, ms or sec", key, m.Unit)
	}
	return toMs * 1e3, nil
}

// timeUs returns a metric of the line that is a single time, us; NaN if the line lacks it.
func (j *aiperfLine) timeUs(key string) (float64, error) {
	v := math.NaN()
	toUs, err := j.times(key, &v)
	return v * toUs, err
}

// aiperfRequest returns the request in a line of profile_export.jsonl.
func aiperfRequest(line []byte) (trace.ObservedRequest, error) {
	var parsed aiperfLine
	if err := trace.UnmarshalJSON(line, &parsed); err != nil {
		return trace.ObservedRequest{}, err
	}
	if !parsed.Metadata.Start.OK {
		return trace.ObservedRequest{}, errors.New("got no request_start_ns")
	}
	r := trace.ObservedRequest{
		ID:           parsed.Metadata.ID,
		Source:       sourceAIPerf,
		Aborted:      trace.Some(parsed.Metadata.Cancelled),
		Success:      trace.Some(parsed.Error == nil && !parsed.Metadata.Cancelled),
		SendWallNs:   parsed.Metadata.Start,
		EndNs:        parsed.Metadata.End,
		PromptTokens: firstKnown(parsed.tokens("usage_prompt_tokens"), parsed.tokens("input_sequence_length")),
		OutputTokens: firstKnown(parsed.tokens("usage_completion_tokens"), parsed.tokens("output_sequence_length")),
		CachedTokens: parsed.tokens("usage_prompt_cache_read_tokens"),
		Reasoning:    parsed.tokens("usage_reasoning_tokens"),
	}
	if credit := parsed.Metadata.Credit; credit.OK && credit.V <= parsed.Metadata.Start.V {
		r.ClientWaitUs = trace.Some(float64(parsed.Metadata.Start.V-credit.V) / 1e3)
	}
	if r.ID == "" {
		r.ID = fmt.Sprintf("%d-%d", parsed.Metadata.Session, parsed.Metadata.Turn)
	}
	if !r.PromptTokens.OK {
		r.PromptTokens = parsed.tokens("error_isl")
	}
	if !r.OutputTokens.OK {
		r.OutputTokens = parsed.tokens("output_token_count")
	}
	if parsed.Error != nil {
		r.Error = trace.Some(parsed.Error.Type + ": " + parsed.Error.Message)
	}
	if parsed.Metadata.Phase == deploy.WarmupPhase {
		r.LoadOnly = trace.Some(true)
	}
	if parsed.StartPerf.OK {
		r.Status = trace.Some(parsed.Status.Or(0))
		parsed.Responses.applyTo(&r, parsed.StartPerf)
		return r, nil
	}
	ttftUs, err := parsed.timeUs("time_to_first_token")
	if err != nil {
		return r, err
	}
	visibleUs, err := parsed.timeUs("time_to_first_output_token")
	if err != nil {
		return r, err
	}
	if !math.IsNaN(visibleUs) {
		r.VisibleUs = trace.Some(visibleUs)
	}
	e2eUs, err := parsed.timeUs("request_latency")
	if err != nil {
		return r, err
	}
	toUs, err := parsed.times("inter_chunk_latency", (*numberList)(&r.ChunkGapsUs))
	if err != nil {
		return r, err
	}
	for i := range r.ChunkGapsUs {
		r.ChunkGapsUs[i] *= toUs
	}
	if r.ChunkGapsUs != nil {
		r.Chunks = trace.Some(int64(len(r.ChunkGapsUs) + 1))
	}
	r.Streaming = trace.Some(!math.IsNaN(ttftUs))
	setTimes(&r, parsed.Metadata.Start, ttftUs, e2eUs)
	return r, nil
}
