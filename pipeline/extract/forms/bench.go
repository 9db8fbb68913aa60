package forms

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// isBench recognises the result of `vllm bench serve --save-result`.
func isBench(head []byte) bool {
	return bytes.Contains(head, []byte(`"total_input_tokens"`)) && bytes.Contains(head, []byte(`"completed"`))
}

// rate is a request rate, which vLLM writes as a number or as "inf".
type rate float64

func (r *rate) UnmarshalJSON(b []byte) error {
	v, err := strconv.ParseFloat(strings.Trim(string(b), `"`), 64)
	if err != nil || math.IsInf(v, 0) {
		v = 0
	}
	*r = rate(v)
	return nil
}

// bench reads the summary of vllm bench serve: means over the requests that
// completed, times in ms.
func (f *File) bench(data []byte, name string) error {
	var d struct {
		Completed   int     `json:"completed"`
		Input       float64 `json:"total_input_tokens"`
		Output      float64 `json:"total_output_tokens"`
		Rate        rate    `json:"request_rate"`
		Concurrency int     `json:"max_concurrency"`
		Throughput  float64 `json:"request_throughput"`
		TTFT        float64 `json:"mean_ttft_ms"`
		TTFTMedian  float64 `json:"median_ttft_ms"`
		TPOT        float64 `json:"mean_tpot_ms"`
		E2E         float64 `json:"mean_e2el_ms"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return syntax(name, data, err)
	}
	n := float64(d.Completed)
	p := Point{Sweep: name, Requests: d.Completed, RateRPS: d.Throughput, PromptTokens: d.Input / n, OutputTokens: d.Output / n,
		TTFTMeanMs:   d.TTFT,
		TTFTMedianMs: d.TTFTMedian, ITLMs: d.TPOT, E2EMs: d.E2E, Clients: d.Concurrency, OfferedRPS: float64(d.Rate)}
	if p.Clients == 0 && p.OfferedRPS == 0 {
		p.Clients = d.Completed // all at once
	}
	p.offered()
	f.keep(p, name)
	return nil
}
