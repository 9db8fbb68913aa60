package forms

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math"

	"github.com/blis-train/blis-train/trace"
)

// isStages recognises a lifecycle report of inference-perf.
func isStages(head []byte) bool {
	return bytes.Contains(head, []byte(`"load_summary"`)) && bytes.Contains(head, []byte(`"successes"`))
}

// spread is a metric of inference-perf.
type spread struct {
	Mean   float64 `json:"mean"`
	Median float64 `json:"median"`
}

// tpotTol is by how much the file's own TPOT may miss what latency, TTFT and output
// tokens say.
const tpotTol = 0.1

// stage reads the report of one stage, or of a whole run, which names no load. Times
// are seconds. Its TPOT divides by the stamps it took of the stream, which in some
// versions are two a token: what latency, TTFT and tokens say goes before it.
func (f *File) stage(data []byte, name string) error {
	var d struct {
		Load struct {
			Requested   float64 `json:"requested_rate"`
			Concurrency int     `json:"concurrency"`
		} `json:"load_summary"`
		Successes struct {
			Count   int `json:"count"`
			Latency struct {
				E2E  spread `json:"request_latency"`
				TTFT spread `json:"time_to_first_token"`
				TPOT spread `json:"time_per_output_token"`
			} `json:"latency"`
			Throughput struct {
				Requests float64 `json:"requests_per_sec"`
			} `json:"throughput"`
			PromptLen    spread `json:"prompt_len"`    // older versions
			Prompt       spread `json:"prompt_tokens"` // as the server counted
			OutputLen    spread `json:"output_len"`
			OutputServer spread `json:"output_tokens"`
		} `json:"successes"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return syntax(name, data, err)
	}
	s := &d.Successes
	p := Point{Sweep: name, Requests: s.Count, RateRPS: s.Throughput.Requests, Clients: d.Load.Concurrency, OfferedRPS: d.Load.Requested,
		PromptTokens: cmp.Or(s.Prompt.Mean, s.PromptLen.Mean), OutputTokens: cmp.Or(s.OutputServer.Mean, s.OutputLen.Mean),
		TTFTMeanMs: 1e3 * s.Latency.TTFT.Mean, TTFTMedianMs: 1e3 * s.Latency.TTFT.Median, E2EMs: 1e3 * s.Latency.E2E.Mean,
		ITLMs: 1e3 * s.Latency.TPOT.Mean}
	if gap := (p.E2EMs - p.TTFTMeanMs) / (p.OutputTokens - 1); gap > 0 && !math.IsInf(gap, 0) {
		if math.Abs(p.ITLMs/gap-1) > tpotTol {
			f.Findings = append(f.Findings, trace.Findingf(remark, "%s: time_per_output_token: got %.3g ms, but latency, TTFT and "+
				"%.4g output tokens say %.3g ms; the latter is used", name, p.ITLMs, p.OutputTokens, gap))
		}
		p.ITLMs = gap
	}
	p.offered()
	f.keep(p, name)
	return nil
}
