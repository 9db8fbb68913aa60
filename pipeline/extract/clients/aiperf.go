package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// isAIPerf recognises profile_export.jsonl of AIPerf.
func isAIPerf(head []byte) bool {
	return bytes.Contains(head, []byte(`"request_start_ns"`)) && bytes.Contains(head, []byte(`"metadata"`))
}

// aiperfValue is a metric of one request, a number or a list, in a unit of its own.
type aiperfValue struct {
	Value json.RawMessage `json:"value"`
	Unit  string          `json:"unit"`
}

// aiperfLine is one request: stamps are ns of the wall clock, metrics as displayed.
type aiperfLine struct {
	Metadata struct {
		ID        string           `json:"x_request_id"`
		Session   int64            `json:"session_num"`
		Turn      int64            `json:"turn_index"`
		Start     trace.Opt[int64] `json:"request_start_ns"`
		End       trace.Opt[int64] `json:"request_end_ns"`
		Phase     string           `json:"benchmark_phase"`
		Cancelled bool             `json:"was_cancelled"`
	} `json:"metadata"`
	Metrics map[string]aiperfValue `json:"metrics"`
	Error   *struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

// count is a metric that counts tokens.
func (j *aiperfLine) count(key string) trace.Opt[int64] {
	var v trace.Opt[float64]
	if m, ok := j.Metrics[key]; ok && json.Unmarshal(m.Value, &v) != nil {
		v = trace.Some(math.NaN())
	}
	return optCount(v)
}

// us is a time; a unit nobody knows makes it an error.
func (j *aiperfLine) us(key string, to any, scale *float64) error {
	m, ok := j.Metrics[key]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(m.Value, to); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	*scale, ok = millis[m.Unit]
	if *scale *= 1e3; !ok {
		return fmt.Errorf("%s: got the unit %q, want ns, us, ms or sec", key, m.Unit)
	}
	return nil
}

// aiperfRequest reads a line of profile_export.jsonl.
func aiperfRequest(text []byte) (trace.ObservedRequest, error) {
	var j aiperfLine
	if err := trace.UnmarshalJSON(text, &j); err != nil {
		return trace.ObservedRequest{}, err
	}
	if !j.Metadata.Start.OK {
		return trace.ObservedRequest{}, fmt.Errorf("got no request_start_ns")
	}
	r := trace.ObservedRequest{ID: j.Metadata.ID, Source: sourceAIPerf, Aborted: trace.Some(j.Metadata.Cancelled), EndNs: j.Metadata.End,
		PromptTokens: j.count("input_sequence_length"), OutputTokens: j.count("output_sequence_length"), SendWallNs: j.Metadata.Start}
	if r.ID == "" {
		r.ID = fmt.Sprintf("%d-%d", j.Metadata.Session, j.Metadata.Turn)
	}
	if !r.PromptTokens.OK {
		r.PromptTokens = j.count("error_isl")
	}
	if !r.OutputTokens.OK {
		r.OutputTokens = j.count("output_token_count")
	}
	if j.Error != nil {
		r.Error = trace.Some(j.Error.Type + ": " + j.Error.Message)
	}
	r.Success = trace.Some(j.Error == nil && !j.Metadata.Cancelled)
	if j.Metadata.Phase == deploy.WarmupPhase {
		r.LoadOnly = trace.Some(true)
	}
	ttft := math.NaN()
	e2e := math.NaN()
	scale := 1.0
	if err := j.us("time_to_first_token", &ttft, &scale); err != nil {
		return r, err
	}
	ttft *= scale
	if err := j.us("request_latency", &e2e, &scale); err != nil {
		return r, err
	}
	e2e *= scale
	if err := j.us("inter_chunk_latency", (*numbers)(&r.ChunkGapsUs), &scale); err != nil {
		return r, err
	}
	for i := range r.ChunkGapsUs {
		r.ChunkGapsUs[i] *= scale
	}
	if r.ChunkGapsUs != nil {
		r.Chunks = trace.Some(int64(len(r.ChunkGapsUs) + 1))
	}
	r.Streaming = trace.Some(!math.IsNaN(ttft))
	timed(&r, j.Metadata.Start, ttft, e2e)
	return r, nil
}

// timed gives a request its send stamp, and the stamps of chunks that its times say;
// NaN is unknown.
func timed(r *trace.ObservedRequest, sent trace.Opt[int64], ttftUs, e2eUs float64) {
	r.SendNs = sent
	if !math.IsNaN(ttftUs) {
		r.TTFTUs = trace.Some(ttftUs)
		r.FirstChunkNs = trace.Opt[int64]{V: sent.V + trace.Int(ttftUs*1e3), OK: sent.OK}
	}
	if !math.IsNaN(e2eUs) {
		r.E2EUs = trace.Some(e2eUs)
		r.LastChunkNs = trace.Opt[int64]{V: sent.V + trace.Int(e2eUs*1e3), OK: sent.OK}
	}
}
