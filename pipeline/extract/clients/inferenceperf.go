package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// This file reads the reports of inference-perf: per_request_lifecycle_metrics.json with its
// requests, and stage_N_ and summary_lifecycle_metrics.json with the means of a stage or a run.

// sniffInferencePerf reports whether a file is per_request_lifecycle_metrics.json.
func sniffInferencePerf(head []byte) bool {
	return isList(head) && containsAll(head, `"start_time"`, `"info"`)
}

// inferencePerfRequest is one request. Stamps are seconds of Python's perf_counter, which is
// CLOCK_MONOTONIC on Linux. Up to v0.3 the figures were in info itself.
type inferencePerfRequest struct {
	Start trace.Opt[float64] `json:"start_time"`
	End   trace.Opt[float64] `json:"end_time"` // of the connection, after the last token
	Error *struct {
		Type    string `json:"error_type"`
		Message string `json:"error_msg"`
	} `json:"error"`
	Info struct {
		Input   trace.Opt[int64] `json:"input_tokens"`
		Output  trace.Opt[int64] `json:"output_tokens"`
		Times   numberList       `json:"output_token_times"` // stamps
		Request struct {
			Text struct {
				Input trace.Opt[int64] `json:"input_tokens"`
			} `json:"text"`
		} `json:"request_metrics"`
		Response *struct {
			Output trace.Opt[int64] `json:"output_tokens"`
			Times  numberList       `json:"output_token_times"`
			Usage  *tokenUsage      `json:"server_usage"`
		} `json:"response_metrics"`
	} `json:"info"`
}

// firstKnown returns the first value that is known.
func firstKnown[T any](values ...trace.Opt[T]) trace.Opt[T] {
	for _, v := range values {
		if v.OK {
			return v
		}
	}
	return trace.Opt[T]{}
}

// request returns the request at a place in the list, from 1, which is its id. Token counts returned by
// the server are preferred to those of the tool.
func (j *inferencePerfRequest) request(place int) trace.ObservedRequest {
	info := &j.Info
	r := trace.ObservedRequest{
		ID:           fmt.Sprint(place),
		Source:       sourceInferencePerf,
		Line:         1,
		PromptTokens: firstKnown(info.Request.Text.Input, info.Input),
		OutputTokens: info.Output,
		Success:      trace.Some(j.Error == nil),
		EndNs:        stampNs(j.End),
	}
	times := info.Times
	if p := info.Response; p != nil {
		r.OutputTokens = firstKnown(p.Output, info.Output)
		times = p.Times
		if u := p.Usage; u != nil {
			r.PromptTokens = firstKnown(u.Prompt, r.PromptTokens)
			r.OutputTokens = firstKnown(u.Completion, r.OutputTokens)
			r.CachedTokens = u.Details.Cached
			r.Reasoning = u.Completions.Reasoning
		}
	}
	if j.Error != nil {
		r.Error = trace.Some(j.Error.Type + ": " + j.Error.Message)
	}
	ttftUs := math.NaN()
	e2eUs := math.NaN()
	switch {
	case len(times) > 0 && j.Start.OK:
		ttftUs = 1e6 * (times[0] - j.Start.V)
		e2eUs = 1e6 * (times[len(times)-1] - j.Start.V)
		times = slices.Compact(times) // since 0.7 each token of a chunk has the chunk's time
		r.Chunks = trace.Some(int64(len(times)))
		for k := 1; k < len(times); k++ {
			r.ChunkGapsUs = append(r.ChunkGapsUs, 1e6*(times[k]-times[k-1]))
		}
	case j.Start.OK && j.End.OK:
		e2eUs = 1e6 * (j.End.V - j.Start.V)
	}
	r.Streaming = trace.Some(len(times) > 0)
	setTimes(&r, stampNs(j.Start), ttftUs, e2eUs)
	return r
}

// readInferencePerf reads the requests one by one. It drops those that are no request, and adds up the
// others for the comparison with the tool's summaries.
func (c *Reader) readInferencePerf(f *clientFile) error {
	w := c.newWalker(f)
	load := c.newLoad(f.src.Name)
	place := 0
	before := len(c.Requests)
	var sums requestSums
	err := w.array(func() error {
		var j inferencePerfRequest
		err := w.decode(&j)
		if err != nil && !errors.As(err, new(*json.UnmarshalTypeError)) { // behind other errors the list cannot be read
			return err
		}
		place++
		if err == nil && !j.Start.OK {
			err = errors.New("got no start_time")
		}
		if err != nil {
			c.dropLine(f.src, 0, 1, fmt.Errorf("request %d: %w", place, err))
			return nil
		}
		r := j.request(place)
		load.extend(&r)
		if j.Error == nil {
			counted := firstKnown(j.Info.Request.Text.Input, j.Info.Input, r.PromptTokens) // by the tool
			sums.add(float64(counted.V), float64(r.OutputTokens.V), nanOr(r.TTFTUs)/1e6, nanOr(j.End)-j.Start.V)
			sums.serverPrompts += float64(r.PromptTokens.Or(counted.V))
		}
		c.addRequest(f.src, r)
		return nil
	})
	c.addLoad(load)
	c.beside = append(c.beside, besideFile{
		name:  f.src.Name,
		form:  "inference-perf",
		sums:  sums,
		sends: sendsOf(c.Requests[before:]),
	})
	return err
}

// sniffStageReport recognises the report of a stage or a run.
func sniffStageReport(head []byte) bool {
	return isObject(head) && containsAll(head, `"load_summary"`, `"successes"`)
}

// stagePaths are the means of a report, in seconds. Older versions have lengths that the client
// counted.
var stagePaths = levelPaths{
	requests:   "successes.count",
	rate:       "successes.throughput.requests_per_sec",
	prompt:     "successes.prompt_tokens.mean;successes.prompt_len.mean",
	output:     "successes.output_tokens.mean;successes.output_len.mean",
	ttft:       "successes.latency.time_to_first_token.mean",
	ttftMedian: "successes.latency.time_to_first_token.median",
	itl:        "successes.latency.time_per_output_token.mean",
	e2e:        "successes.latency.request_latency.mean",
	clients:    "load_summary.concurrency",
	offered:    "load_summary.requested_rate",
	timeMs:     1000,
	e2eMs:      1000,

	cachedTotal: "successes.prompt_tokens.cached",
}

// tpotTol is the relative difference above which the report's own TPOT is reported as wrong. Less comes of
// the means: that of a ratio is not the ratio of the means.
const tpotTol = 0.1

// readStageReport adds the level in the report of one stage, or of a whole run, which names no
// load, to f. The report's TPOT divides by the number of stream stamps, and some versions count two
// stamps for a token. So (latency - TTFT) / (output tokens - 1) is used in its place.
func readStageReport(f *LevelFile, data []byte, name string) error {
	doc, err := decodeObject(data, name)
	if err != nil {
		return err
	}
	l := stagePaths.level(doc, name)
	if l.CachedTokens.V == 0 { // the report has 0 too where no answer stated what was cached
		l.CachedTokens = trace.Opt[float64]{}
	}
	tpotMs := (l.E2EMs - l.TTFTMeanMs) / (l.OutputTokens - 1)
	if tpotMs > 0 && !math.IsInf(tpotMs, 0) {
		if math.Abs(l.ITLMs/tpotMs-1) > tpotTol {
			f.Findings = append(f.Findings, trace.Findingf(CodeClientFile,
				"%s: time_per_output_token: got %.3g ms, but latency, TTFT and %.4g output tokens give %.3g ms; "+
					"the latter is used",
				name, l.ITLMs, l.OutputTokens, tpotMs))
		}
		l.ITLMs = tpotMs
	}
	l.nameStrategy()
	f.addLevel(l, name)
	return nil
}
