package clients

// This file reads SGLang's export of request metrics.

import (
	"bytes"
	"errors"

	"github.com/blis-train/blis-train/trace"
)

// sglangHead begins the lines of SGLang's --export-metrics-to-file. The request_parameters are
// not read: they hold prompts.
var sglangHead = []byte(`{"request_parameters":`)

// sniffSGLang reports whether a file is an export of SGLang's request metrics.
func sniffSGLang(head []byte) bool { return bytes.HasPrefix(head, sglangHead) }

// sglangRequest returns the request in a line of sglang-request-metrics-*.log: the meta_info of an
// answer as the server saw it. Stamps are seconds of the server's wall clock, and the first token
// is stamped when the prefill has finished.
//
// Source: sgl-project/sglang observability/request_metrics_exporter.py and req_time_stats.py, whose
// stamps end in _ts or, in other versions, in _time.
func sglangRequest(line []byte) (trace.ObservedRequest, error) {
	var parsed struct {
		ID          string             `json:"id"`
		Prompt      trace.Opt[int64]   `json:"prompt_tokens"`
		Output      trace.Opt[int64]   `json:"completion_tokens"`
		Cached      trace.Opt[int64]   `json:"cached_tokens"`
		E2E         trace.Opt[float64] `json:"e2e_latency"`
		Received    trace.Opt[float64] `json:"request_received_ts"`
		PrefillTs   trace.Opt[float64] `json:"prefill_finished_ts"`
		PrefillTime trace.Opt[float64] `json:"prefill_finished_time"`
		Finish      struct {
			Type string `json:"type"`
		} `json:"finish_reason"`
	}
	if err := trace.UnmarshalJSON(line, &parsed); err != nil {
		return trace.ObservedRequest{}, err
	}
	if !parsed.Received.OK || parsed.ID == "" {
		return trace.ObservedRequest{},
			errors.New("got no id and request_received_ts, want those of a server with --enable-metrics")
	}
	r := trace.ObservedRequest{
		ID:           parsed.ID,
		Source:       sourceSGLang,
		PromptTokens: parsed.Prompt,
		OutputTokens: parsed.Output,
		CachedTokens: parsed.Cached,
		Success:      trace.Some(parsed.Finish.Type != "abort"),
		SendWallNs:   stampNs(parsed.Received),
	}
	first := parsed.PrefillTs.Or(nanOr(parsed.PrefillTime))
	setTimes(&r, r.SendWallNs, 1e6*(first-parsed.Received.V), 1e6*nanOr(parsed.E2E))
	return r, nil
}
