package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// isInferencePerf recognises per_request_lifecycle_metrics.json of inference-perf.
func isInferencePerf(head []byte) bool {
	return len(head) > 0 && head[0] == '[' && bytes.Contains(head, []byte(`"start_time"`)) && bytes.Contains(head, []byte(`"info"`))
}

// inferencePerfRequest is one request; stamps are seconds of Python's perf_counter,
// which is CLOCK_MONOTONIC on Linux. Up to 0.3 the figures stood in info itself.
type inferencePerfRequest struct {
	Start trace.Opt[float64] `json:"start_time"`
	End   trace.Opt[float64] `json:"end_time"`
	Error *struct {
		Type    string `json:"error_type"`
		Message string `json:"error_msg"`
	} `json:"error"`
	Info struct {
		Input   trace.Opt[int64] `json:"input_tokens"`
		Output  trace.Opt[int64] `json:"output_tokens"`
		Times   numbers          `json:"output_token_times"`
		Request struct {
			Text struct {
				Input trace.Opt[int64] `json:"input_tokens"`
			} `json:"text"`
		} `json:"request_metrics"`
		Response *struct {
			Output trace.Opt[int64] `json:"output_tokens"`
			Times  numbers          `json:"output_token_times"`
			Usage  *usage           `json:"server_usage"`
		} `json:"response_metrics"`
	} `json:"info"`
}

// knownOf is the first value that is there.
func knownOf[T any](values ...trace.Opt[T]) trace.Opt[T] {
	return values[max(0, slices.IndexFunc(values, func(v trace.Opt[T]) bool { return v.OK }))]
}

func (j *inferencePerfRequest) row(index int) trace.ObservedRequest {
	i := &j.Info
	r := trace.ObservedRequest{ID: fmt.Sprint(index), Source: sourceInferencePerf, PromptTokens: knownOf(i.Request.Text.Input, i.Input),
		OutputTokens: i.Output, Success: trace.Some(j.Error == nil), EndNs: optNs(j.End, 1e9)}
	times := i.Times
	if p := i.Response; p != nil {
		r.OutputTokens = knownOf(p.Output, i.Output)
		times = p.Times
		if u := p.Usage; u != nil {
			r.PromptTokens, r.OutputTokens = knownOf(u.Prompt, r.PromptTokens), knownOf(u.Completion, r.OutputTokens)
			r.CachedTokens = u.Details.Cached
		}
	}
	if j.Error != nil {
		r.Error = trace.Some(j.Error.Type + ": " + j.Error.Message)
	}
	ttft, e2e := math.NaN(), math.NaN()
	if len(times) > 0 && j.Start.OK {
		ttft = 1e6 * (times[0] - j.Start.V)
		e2e = 1e6 * (times[len(times)-1] - j.Start.V)
		r.Chunks = trace.Some(int64(len(times)))
		for k := 1; k < len(times); k++ {
			r.ChunkGapsUs = append(r.ChunkGapsUs, 1e6*(times[k]-times[k-1]))
		}
	} else if j.Start.OK && j.End.OK {
		e2e = 1e6 * (j.End.V - j.Start.V)
	}
	r.Streaming = trace.Some(len(times) > 0)
	timed(&r, optNs(j.Start, 1e9), ttft, e2e)
	return r
}

// inferencePerf reads the requests one by one.
func (c *Reader) inferencePerf(src *source.Source) error {
	c.Acc.Lines++
	w := walker{json.NewDecoder(&tally{src.R, &c.Acc.Bytes})}
	load := fileLoad(src.Name)
	index := 0
	err := w.array(func() error {
		var j inferencePerfRequest
		err := w.decode(&j)
		if err != nil && !errors.As(err, new(*json.UnmarshalTypeError)) {
			return err
		}
		if index++; err == nil && !j.Start.OK {
			err = errors.New("got no start_time")
		}
		if err != nil {
			c.bad(src, 0, 1, fmt.Errorf("request %d: %w", index, err))
			return nil
		}
		r := j.row(index)
		r.Line = 1
		load.see(&r)
		c.row(src, r)
		return nil
	})
	c.offered(load)
	return err
}

// isStages recognises a lifecycle report of inference-perf.
func isStages(head []byte) bool {
	return bytes.Contains(head, []byte(`"load_summary"`)) && bytes.Contains(head, []byte(`"successes"`))
}

// tpotTol is by how much the file's own TPOT may miss what latency, TTFT and output
// tokens say.
const tpotTol = 0.1

// stage reads the report of one stage, or of a whole run, which names no load. Times
// are seconds. Its TPOT divides by the stamps it took of the stream, which in some
// versions are two a token: what latency, TTFT and tokens say goes before it.
func (f *LevelFile) stage(doc any, name string) {
	p := forms().Stage.point(doc, name)
	if gap := (p.E2EMs - p.TTFTMeanMs) / (p.OutputTokens - 1); gap > 0 && !math.IsInf(gap, 0) {
		if math.Abs(p.ITLMs/gap-1) > tpotTol {
			f.Findings = append(f.Findings, trace.Findingf(CodeClientFile, "%s: time_per_output_token: got %.3g ms, but latency, TTFT and "+
				"%.4g output tokens say %.3g ms; the latter is used", name, p.ITLMs, p.OutputTokens, gap))
		}
		p.ITLMs = gap
	}
	p.offered()
	f.addLevel(p, name)
}
