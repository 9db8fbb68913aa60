package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/blis-train/blis-train/trace"
)

// usage is what an OpenAI-style server says that an answer used.
type usage struct {
	Prompt     trace.Opt[int64] `json:"prompt_tokens"`
	Completion trace.Opt[int64] `json:"completion_tokens"`
	Details    struct {
		Cached trace.Opt[int64] `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// clientJSON is a line of client_requests.jsonl (spec#wire-client) or of
// llmservingsim's requests.jsonl; unknown keys are allowed.
type clientJSON struct {
	trace.ObservedRequest         // of client_requests.jsonl
	PrefixGroup           any     `json:"prefix_group"`
	Error                 any     `json:"error"`
	ITLUs                 numbers `json:"itl_us"`
	Usage                 *usage  `json:"usage"`

	RequestID   string             `json:"request_id"`
	InputToks   trace.Opt[int64]   `json:"input_toks"`
	OutputToks  trace.Opt[int64]   `json:"output_toks"`
	ArrivalTime trace.Opt[float64] `json:"arrival_time"`
	QueuedTs    trace.Opt[float64] `json:"queued_ts"`
	ScheduledTs trace.Opt[float64] `json:"scheduled_ts"`
	FirstTs     trace.Opt[float64] `json:"first_token_ts"`
	LastTs      trace.Opt[float64] `json:"last_token_ts"`
}

func clientLine(text []byte) (trace.ObservedRequest, error) {
	if bytes.HasPrefix(text, sglangHead) {
		return sglangRequest(text)
	}
	var j clientJSON
	if err := trace.UnmarshalJSON(text, &j); err != nil {
		return trace.ObservedRequest{}, err
	}
	switch {
	case j.ID != "":
		return j.client(), nil
	case j.RequestID != "":
		return j.serving(), nil
	}
	return trace.ObservedRequest{}, errors.New(`got neither "id" nor "request_id"`)
}

// client is a request of client_requests.jsonl.
func (j *clientJSON) client() trace.ObservedRequest {
	r := j.ObservedRequest
	r.Source, r.PrefixGroup, r.ChunkGapsUs, r.Error = sourceClient, optText(j.PrefixGroup), j.ITLUs, optText(j.Error)
	if j.Usage != nil {
		if j.Usage.Prompt.OK {
			r.PromptTokens = j.Usage.Prompt
		}
		r.OutputTokens = j.Usage.Completion
		if j.Usage.Details.Cached.OK {
			r.CachedTokens = j.Usage.Details.Cached
		}
	}
	r.Success = trace.Some(!r.Error.OK && !j.Aborted.V && (!j.Status.OK || j.Status.V >= 200 && j.Status.V < 300))
	r.TTFTUs, r.E2EUs = gapUs(r.SendNs, r.FirstChunkNs), gapUs(r.SendNs, r.LastChunkNs)
	return r
}

func gapUs(from, to trace.Opt[int64]) trace.Opt[float64] {
	if !from.OK || !to.OK {
		return trace.Opt[float64]{}
	}
	return trace.Some(float64(to.V-from.V) / 1000)
}

// optText is a JSON value as text; null is unknown.
func optText(v any) trace.Opt[string] {
	switch v := v.(type) {
	case nil:
		return trace.Opt[string]{}
	case string:
		return trace.Some(v)
	case float64:
		return trace.Some(strconv.FormatFloat(v, 'g', -1, 64))
	}
	b, _ := json.Marshal(v)
	return trace.Some(string(b))
}

// serving is a request of llmservingsim: arrival on the client's wall clock,
// the rest on the engine's monotonic clock.
func (j *clientJSON) serving() trace.ObservedRequest {
	r := trace.ObservedRequest{
		ID: j.RequestID, Source: sourceServing, PromptTokens: j.InputToks, OutputTokens: j.OutputToks, AskedTokens: j.OutputToks,
		SendWallNs: optNs(j.ArrivalTime, 1e9), QueuedNs: optNs(j.QueuedTs, 1e9), ScheduledNs: optNs(j.ScheduledTs, 1e9),
		EngineFirstNs: optNs(j.FirstTs, 1e9), EngineLastNs: optNs(j.LastTs, 1e9),
	}
	r.Success = trace.Some(j.LastTs.OK)
	return r
}

// optNs scales a stamp to ns.
func optNs(v trace.Opt[float64], scale float64) trace.Opt[int64] {
	return trace.Opt[int64]{V: trace.Int(v.V * scale), OK: v.OK}
}

// optCount is a number of tokens.
func optCount(v trace.Opt[float64]) trace.Opt[int64] {
	return trace.Opt[int64]{V: trace.Count(v.V), OK: v.OK}
}

// nanOr is the value, NaN when unknown.
func nanOr(v trace.Opt[float64]) float64 { return v.Or(math.NaN()) }
