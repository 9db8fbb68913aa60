package predictor

import (
	"encoding/json"
	"io"
	"math"
	"time"
)

// entry is a training row as llm-d's router sends it: a TTFT row carries
// actual_tpot_ms 0 and a TPOT row actual_ttft_ms 0.
type entry struct {
	KVCachePercentage  float64 `json:"kv_cache_percentage"`
	InputTokenLength   int64   `json:"input_token_length"`
	NumRequestWaiting  int64   `json:"num_request_waiting"`
	NumRequestRunning  int64   `json:"num_request_running"`
	ActualTTFTMs       float64 `json:"actual_ttft_ms"`
	ActualTPOTMs       float64 `json:"actual_tpot_ms"`
	NumTokensGenerated int64   `json:"num_tokens_generated"`
	PrefixCacheScore   float64 `json:"prefix_cache_score"`
	PodType            string  `json:"pod_type"`
	PrefillTokens      int64   `json:"prefill_tokens_in_flight"`
	DecodeTokens       int64   `json:"decode_tokens_in_flight"`
	EncoderMatched     int64   `json:"encoder_matched_size"`
	EncoderInput       int64   `json:"encoder_input_size"`
	Timestamp          string  `json:"timestamp"`
}

// batch is the body of POST /add_training_data_bulk.
type batch struct {
	Entries []entry `json:"entries"`
}

// batchEntries is how many entries one batch holds at most.
const batchEntries = 1000

// Sample is the stratified sample of rows for one target: at most
// decision.BucketRows in each bucket, bucket by bucket.
func Sample(rows []Row, tpot bool, seed uint64) []entry {
	r := newReservoir[*Row](buckets, bucketRows, seed)
	for i := range rows {
		row := &rows[i]
		if tpot && !row.TPOTMs.OK {
			continue
		}
		r.Add(Bucket(row), row)
	}
	var out []entry
	r.Each(func(_ int, row *Row, _ float64) { out = append(out, entryOf(row, tpot)) })
	return out
}

// entryOf says what the router feeds, whatever the features of the rows: its
// in-flight count for running, no decode tokens, and no prefix score with TPOT.
// The stamp is the run's clock read as Unix time; only its order means something.
func entryOf(r *Row, tpot bool) entry {
	e := entry{KVCachePercentage: math.Max(0, math.Min(1, r.KVCachePercentage)), InputTokenLength: r.InputTokenLength,
		NumRequestWaiting: r.NumRequestWaiting, NumRequestRunning: r.RunningInflight, PrefillTokens: r.PrefillTokensInFlight,
		Timestamp: time.Unix(0, r.DecisionNs).UTC().Format(time.RFC3339Nano)}
	if tpot {
		e.ActualTPOTMs = r.TPOTMs.V
	} else {
		e.ActualTTFTMs, e.PrefixCacheScore = r.TTFTMs, r.PrefixCacheScore
	}
	return e
}

// writeBulk writes batches, one a line; each line is a body for POST
// /add_training_data_bulk.
func writeBulk(w io.Writer, entries []entry) error {
	enc := json.NewEncoder(w)
	for len(entries) > 0 {
		n := min(len(entries), batchEntries)
		if err := enc.Encode(batch{entries[:n]}); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// ColumnsOf are the columns of a target as XGBoost wants them typed.
func ColumnsOf(tpot bool, features string) []Column {
	var out []Column
	for _, f := range featuresOf(tpot, features) {
		c := Column{f.Name, float}
		switch {
		case f.IsCategory:
			c.Type = category
		case f.Integer:
			c.Type = Int
		}
		out = append(out, c)
	}
	return out
}
