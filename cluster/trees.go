package cluster

// This file estimates TTFT with the boosted trees of a predictor.

import (
	"errors"
	"math"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/sim/forecast"
)

// trees is an estimator that uses the boosted trees of a predictor file (docs/predictor.md).
// Columns that the gateway's view does not have are unknown (NaN).
type trees struct {
	model   *forest.Evaluated
	columns []column
	x       []float64 // memory for the values of the columns
	Outside int       // number of estimates for values outside the range that the trees were trained on
}

// column computes one column from the view of an instance.
type column func(r *Request, v *View, i int) float64

// newTrees returns an estimator with the target ttft_ms of a predictor file.
func newTrees(p *forest.Predictor) (*trees, error) {
	m := p.Target("ttft_ms")
	if m == nil {
		return nil, errors.New("predictor: got no target ttft_ms, want one")
	}
	full := false // the file has more columns than llm-d, in which two of llm-d's have another meaning
	for _, c := range m.Columns {
		full = full || c.Name == "own_uncached_tokens"
	}
	t := &trees{model: m, x: make([]float64, len(m.Columns))}
	for _, c := range m.Columns {
		read := columns[c.Name]
		switch {
		case full && c.Name == "num_request_running":
			read = batchSize
		case full && c.Name == "decode_tokens_in_flight":
			read = decodeTokens
		case read == nil:
			read = func(*Request, *View, int) float64 { return math.NaN() }
		}
		t.columns = append(t.columns, read)
	}
	return t, nil
}

// TTFT estimates the time to the first token of r on instance i with the trees.
func (t *trees) TTFT(r *Request, v *View, i int) (estimate, error) {
	for k, read := range t.columns {
		t.x[k] = read(r, v, i)
	}
	ms, outside := t.model.Predict(t.x)
	if outside {
		t.Outside++
	}
	return estimate{TTFT: forecast.TTFT{Us: ms * 1e3, LikelyUs: ms * 1e3}, Queued: v.Snapshots[i].QueueDepth > 0}, nil
}

// batchSize returns the running requests of instance i at the last scrape.
func batchSize(_ *Request, v *View, i int) float64 {
	return float64(v.Snapshots[i].BatchSize)
}

// decodeTokens returns the estimated context tokens of the decodes of instance i: their prompts and
// half a mean answer each.
func decodeTokens(_ *Request, v *View, i int) float64 {
	a := &v.Ledger.Of[i]
	return float64(a.DecodeToks) + float64(a.Decodes)*v.Ledger.MeanOutputs()/2
}

// prefixScore returns the share of the prompt that is expected in the cache of instance i.
func prefixScore(r *Request, v *View, i int) float64 {
	return float64(v.CachedTokens(r, i)) / float64(r.PromptTokens)
}

// columns are the columns of a predictor's rows that a view can fill, by name (docs/predictor.md).
var columns = map[string]column{
	"is_queued": func(_ *Request, v *View, i int) float64 {
		return math.Min(1, float64(v.Snapshots[i].QueueDepth))
	},
	"kv_cache_percentage":      func(_ *Request, v *View, i int) float64 { return v.Snapshots[i].KVUsage() },
	"input_token_length":       func(r *Request, _ *View, _ int) float64 { return float64(r.PromptTokens) },
	"num_request_waiting":      func(_ *Request, v *View, i int) float64 { return float64(v.Snapshots[i].QueueDepth) },
	"num_request_running":      func(_ *Request, v *View, i int) float64 { return float64(v.Ledger.Of[i].InFlight) },
	"prefill_tokens_in_flight": func(_ *Request, v *View, i int) float64 { return float64(v.Ledger.Of[i].All.Tokens) },
	"decode_tokens_in_flight":  scoreZero,
	"encoder_matched_size":     scoreZero,
	"encoder_input_size":       scoreZero,
	"num_tokens_generated":     scoreZero,
	"pod_type_cat":             scoreZero,
	"prefix_cache_score":       prefixScore,
	"effective_input_tokens": func(r *Request, v *View, i int) float64 {
		return (1 - prefixScore(r, v, i)) * float64(r.PromptTokens)
	},
	"prefill_score_bucket": func(r *Request, v *View, i int) float64 {
		return math.Min(3, math.Floor(4*prefixScore(r, v, i)))
	},
	"own_uncached_tokens": func(r *Request, v *View, i int) float64 {
		return float64(max(1, r.PromptTokens-v.CachedTokens(r, i)))
	},
	"tokens_waiting_ahead": func(_ *Request, v *View, i int) float64 { return float64(v.Ledger.Of[i].All.Tokens) },
	"requests_ahead":       func(_ *Request, v *View, i int) float64 { return float64(v.Ledger.Of[i].All.Requests) },
	"decode_batch":         func(_ *Request, v *View, i int) float64 { return float64(v.Ledger.Of[i].Decodes) },
	"mean_context": func(r *Request, v *View, i int) float64 {
		return decodeTokens(r, v, i) / math.Max(1, float64(v.Ledger.Of[i].Decodes))
	},
	"free_blocks": func(_ *Request, v *View, i int) float64 { return float64(v.Snapshots[i].FreeBlocks) },
	"recent_prompt_tokens_per_s": func(_ *Request, v *View, i int) float64 {
		return v.Ledger.Of[i].inbound.tokens.perSecond(v.NowUs)
	},
	"mean_output_tokens": func(_ *Request, v *View, _ int) float64 {
		if m := v.Ledger.MeanOutputs(); m > 0 {
			return m
		}
		return math.NaN()
	},
}

// scoreZero returns 0: the value of a column of the trees that is always 0 in this simulation.
func scoreZero(*Request, *View, int) float64 { return 0 }
