package clients

// This file reads profile_export_raw.jsonl of AIPerf (--export-level raw): one request a line, with every message
// of its answer as it came. It is the only file of AIPerf with vLLM's times of a request.

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// aiperfMessages are the messages of an answer, in the order in which they came. A packet is a field of
// a server-sent event: its name and its value.
type aiperfMessages []struct {
	AtNs    trace.Opt[int64] `json:"perf_ns"` // monotonic
	Packets []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"packets"`
}

// aiperfEvent is what is read of one event of a stream, as OpenAI-compatible servers send it.
type aiperfEvent struct {
	Choices []struct {
		Text  string   `json:"text"` // of a completion
		Delta struct { // of a chat
			Content   string `json:"content"`
			Reasoning string `json:"reasoning"`
			Thought   string `json:"reasoning_content"` // the name of the same in other releases
		} `json:"delta"`
	} `json:"choices"`
	Usage   *tokenUsage    `json:"usage"`
	Metrics *serverMetrics `json:"metrics"`
}

// applyTo sets what the messages of an answer show of a request that was sent at startNs (monotonic): the
// times of its chunks, its usage, and the server's times. A chunk is a message with text, be it of the
// answer or of reasoning.
func (m aiperfMessages) applyTo(r *trace.ObservedRequest, startNs trace.Opt[int64]) {
	var stampsNs []int64       // of the chunks
	visibleNs := int64(0)      // of the first chunk that is not reasoning; 0: none so far
	var metrics *serverMetrics // the last message has them
	for _, message := range m {
		for _, packet := range message.Packets {
			var event aiperfEvent
			if packet.Name != "data" || json.Unmarshal([]byte(packet.Value), &event) != nil {
				continue
			}
			for _, choice := range event.Choices {
				isVisible := choice.Text != "" || choice.Delta.Content != ""
				if isVisible && visibleNs == 0 {
					visibleNs = message.AtNs.V
				}
				if isVisible || choice.Delta.Reasoning != "" || choice.Delta.Thought != "" {
					stampsNs = append(stampsNs, message.AtNs.V)
				}
			}
			if u := event.Usage; u != nil {
				r.PromptTokens = firstKnown(u.Prompt, r.PromptTokens)
				r.OutputTokens = firstKnown(u.Completion, r.OutputTokens)
				r.CachedTokens = firstKnown(u.Details.Cached, r.CachedTokens)
				r.Reasoning = firstKnown(u.Completions.Reasoning, r.Reasoning)
			}
			if event.Metrics != nil {
				metrics = event.Metrics
			}
		}
	}
	metrics.applyTo(r)
	r.Streaming = trace.Some(len(stampsNs) > 0)
	if len(stampsNs) == 0 || !startNs.OK {
		setTimes(r, r.SendWallNs, math.NaN(), math.NaN())
		return
	}
	r.Chunks = trace.Some(int64(len(stampsNs)))
	for k := 1; k < len(stampsNs); k++ {
		r.ChunkGapsUs = append(r.ChunkGapsUs, float64(stampsNs[k]-stampsNs[k-1])/1e3)
	}
	if visibleNs > 0 {
		r.VisibleUs = trace.Some(float64(visibleNs-startNs.V) / 1e3)
	}
	setTimes(r, r.SendWallNs, float64(stampsNs[0]-startNs.V)/1e3, float64(stampsNs[len(stampsNs)-1]-startNs.V)/1e3)
}

// joinRaw makes one request of each pair of records that AIPerf writes of it: that of profile_export.jsonl, with
// what the client derived, and that of profile_export_raw.jsonl, with what the server stated. Only the latter
// has a status.
func (c *Reader) joinRaw() {
	exported := map[string]int{} // index in c.Requests by id
	for i := range c.Requests {
		if r := &c.Requests[i]; r.Source == sourceAIPerf && !r.Status.OK {
			exported[r.ID] = i
		}
	}
	isJoined := make([]bool, len(c.Requests))
	joined := 0
	for i := range c.Requests {
		raw := &c.Requests[i]
		k, ok := exported[raw.ID]
		if raw.Source != sourceAIPerf || !raw.Status.OK || !ok || c.Requests[k].SendWallNs != raw.SendWallNs {
			continue
		}
		r := &c.Requests[k]
		r.Status = raw.Status
		r.PromptTokens = firstKnown(raw.PromptTokens, r.PromptTokens)
		r.OutputTokens = firstKnown(raw.OutputTokens, r.OutputTokens)
		r.CachedTokens = firstKnown(raw.CachedTokens, r.CachedTokens)
		r.Reasoning = firstKnown(raw.Reasoning, r.Reasoning)
		r.VisibleUs = firstKnown(r.VisibleUs, raw.VisibleUs)
		r.QueueUs = raw.QueueUs
		r.ServerTTFTUs = raw.ServerTTFTUs
		r.ServerGenUs = raw.ServerGenUs
		isJoined[i] = true
		joined++
	}
	if joined == 0 {
		return
	}
	// A file whose requests are all joined is the load of the other file once more.
	for _, f := range c.requestFiles {
		if f.to > f.from && !slices.Contains(isJoined[f.from:f.to], false) {
			c.dropLoads(f.name)
		}
	}
	c.removeRequests(isJoined)
	c.addFinding(CodeClientFile, "%d requests are in AIPerf's export and in its raw export: they are one request each, with the times that "+
		"the client derived and the server's own figures", joined)
}
