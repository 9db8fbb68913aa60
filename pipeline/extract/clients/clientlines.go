package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/blis-train/blis-train/trace"
)

// This file reads client_requests.jsonl, one JSON object a line (spec#wire-client), and
// llmservingsim's requests.jsonl, which has other keys.

// tokenUsage is the usage that an OpenAI-compatible server returns with an answer.
type tokenUsage struct {
	Prompt     trace.Opt[int64] `json:"prompt_tokens"`
	Completion trace.Opt[int64] `json:"completion_tokens"`
	Details    struct {
		Cached trace.Opt[int64] `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	Completions struct {
		Reasoning trace.Opt[int64] `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
}

// clientJSON is a line of either file; unknown keys are allowed.
type clientJSON struct {
	// client_requests.jsonl
	trace.ObservedRequest
	PrefixGroup any            `json:"prefix_group"`
	Error       any            `json:"error"`
	ITLUs       numberList     `json:"itl_us"`
	Usage       *tokenUsage    `json:"usage"`
	Metrics     *serverMetrics `json:"metrics"`

	// llmservingsim's requests.jsonl, stamps in seconds
	RequestID   string             `json:"request_id"`
	InputToks   trace.Opt[int64]   `json:"input_toks"`
	OutputToks  trace.Opt[int64]   `json:"output_toks"`
	ArrivalTime trace.Opt[float64] `json:"arrival_time"`
	QueuedTs    trace.Opt[float64] `json:"queued_ts"`
	ScheduledTs trace.Opt[float64] `json:"scheduled_ts"`
	FirstTs     trace.Opt[float64] `json:"first_token_ts"`
	LastTs      trace.Opt[float64] `json:"last_token_ts"`
}

// errNoID is the error of a line that names no request.
var errNoID = errors.New(`got neither "id" nor "request_id"`)

// parseClientLine returns the request in a line of client_requests.jsonl, requests.jsonl or
// SGLang's export; one file may have lines of several forms.
func parseClientLine(line []byte) (trace.ObservedRequest, error) {
	if len(bytes.TrimSpace(line)) < len(`{"id":""}`) { // too short for any request
		return trace.ObservedRequest{}, errNoID
	}
	if sniffSGLang(line) {
		return sglangRequest(line)
	}
	var j clientJSON
	if err := trace.UnmarshalJSON(line, &j); err != nil {
		return trace.ObservedRequest{}, err
	}
	switch {
	case j.ID != "":
		return j.clientRequest(), nil
	case j.RequestID != "":
		return j.servingRequest(), nil
	}
	return trace.ObservedRequest{}, errNoID
}

// clientRequest returns a request of client_requests.jsonl. The server's usage takes precedence
// over the client's own counts.
func (j *clientJSON) clientRequest() trace.ObservedRequest {
	r := j.ObservedRequest
	r.Source = sourceClient
	r.PrefixGroup = optText(j.PrefixGroup)
	r.ChunkGapsUs = j.ITLUs
	r.Error = optText(j.Error)
	if j.Usage != nil {
		if j.Usage.Prompt.OK {
			r.PromptTokens = j.Usage.Prompt
		}
		r.OutputTokens = j.Usage.Completion
		if j.Usage.Details.Cached.OK {
			r.CachedTokens = j.Usage.Details.Cached
		}
		r.Reasoning = j.Usage.Completions.Reasoning
	}
	j.Metrics.applyTo(&r)
	isGoodStatus := !j.Status.OK || j.Status.V >= 200 && j.Status.V < 300
	r.Success = trace.Some(!r.Error.OK && !j.Aborted.V && isGoodStatus)
	setTimesFromStamps(&r)
	return r
}

// servingRequest returns a request of llmservingsim: its arrival is on the client's wall clock, the
// other stamps are on the engine's monotonic clock.
func (j *clientJSON) servingRequest() trace.ObservedRequest {
	return trace.ObservedRequest{
		ID:            j.RequestID,
		Source:        sourceServing,
		PromptTokens:  j.InputToks,
		OutputTokens:  j.OutputToks,
		AskedTokens:   j.OutputToks, // the file has one number for both
		SendWallNs:    stampNs(j.ArrivalTime),
		QueuedNs:      stampNs(j.QueuedTs),
		ScheduledNs:   stampNs(j.ScheduledTs),
		EngineFirstNs: stampNs(j.FirstTs),
		EngineLastNs:  stampNs(j.LastTs),
		Success:       trace.Some(j.LastTs.OK),
	}
}

// optText returns a JSON value as text; null is unknown.
func optText(v any) trace.Opt[string] {
	switch v := v.(type) {
	case nil:
		return trace.Opt[string]{}
	case string:
		return trace.Some(v)
	case float64:
		return trace.Some(strconv.FormatFloat(v, 'g', -1, 64))
	}
	text, _ := json.Marshal(v)
	return trace.Some(string(text))
}
