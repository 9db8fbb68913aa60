package predictor

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/blis-train/blis-train/predictor/decision"
)

// fieldsJSON is the field table of TrainingEntry (llm-d-latency-predictor 04e44cd,
// training/training_server.py): names, types and ranges.
//
//go:embed fields.json
var fieldsJSON []byte

// field is one field of an entry.
type field struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"` // integer | number | string | timestamp
	Min      *float64 `json:"min"`
	Max      *float64 `json:"max"`
	Required bool     `json:"required"`
}

// fields is the committed field table.
func fields() []field {
	var out []field
	if err := json.Unmarshal(fieldsJSON, &out); err != nil {
		panic(err) // compiled in
	}
	return out
}

// Entry is a training row as llm-d's router sends it: a TTFT row carries
// actual_tpot_ms 0 and a TPOT row actual_ttft_ms 0.
type Entry struct {
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
	Entries []Entry `json:"entries"`
}

// batchEntries is how many entries one batch holds at most.
const batchEntries = 1000

// Sample is the stratified sample of rows for one target: at most
// decision.BucketRows in each bucket, bucket by bucket.
func Sample(rows []decision.Row, tpot bool, seed uint64) []Entry {
	r := decision.NewReservoir[*decision.Row](decision.Buckets, decision.BucketRows, seed, false)
	for i := range rows {
		row := &rows[i]
		if tpot && !row.TPOTMs.OK {
			continue
		}
		r.Add(decision.Bucket(row), row)
	}
	var out []Entry
	r.Each(func(_ int, row *decision.Row, _ float64) { out = append(out, entryOf(row, tpot)) })
	return out
}

// entryOf says what the router feeds, whatever the features of the rows: its
// in-flight count for running, no decode tokens, and no prefix score with TPOT.
// The stamp is the run's clock read as Unix time; only its order means something.
func entryOf(r *decision.Row, tpot bool) Entry {
	e := Entry{KVCachePercentage: math.Max(0, math.Min(1, r.KVCachePercentage)), InputTokenLength: r.InputTokenLength,
		NumRequestWaiting: r.NumRequestWaiting, NumRequestRunning: r.RunningInflight, PrefillTokens: r.PrefillTokensInFlight,
		Timestamp: time.Unix(0, r.DecisionNs).UTC().Format(time.RFC3339Nano)}
	if tpot {
		e.ActualTPOTMs = r.TPOTMs.V
	} else {
		e.ActualTTFTMs, e.PrefixCacheScore = r.TTFTMs, r.PrefixCacheScore
	}
	return e
}

// WriteBulk writes batches, one a line; each line is a body for POST
// /add_training_data_bulk.
func WriteBulk(w io.Writer, entries []Entry) error {
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

// readBulk reads batches, checks every entry against the field table and returns
// all entries. Errors name the line and the entry.
func readBulk(r io.Reader) ([]Entry, error) {
	var out []Entry
	lines := bufio.NewReader(r)
	for line := 1; ; line++ {
		text, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(text)) > 0 {
			entries, err := readBatch(text)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
			out = append(out, entries...)
		}
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func readBatch(text []byte) ([]Entry, error) {
	var loose struct {
		Entries []map[string]any `json:"entries"`
	}
	if err := json.Unmarshal(text, &loose); err != nil {
		return nil, err
	}
	if loose.Entries == nil {
		return nil, fmt.Errorf("got no entries, want {\"entries\": [...]}")
	}
	fields := fields()
	for i, e := range loose.Entries {
		if err := checkEntry(fields, e); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	var b batch
	err := json.Unmarshal(text, &b)
	return b.Entries, err
}

// checkEntry holds an entry against the table.
func checkEntry(fields []field, e map[string]any) error {
	known := 0
	for _, f := range fields {
		v, ok := e[f.Name]
		if !ok {
			if f.Required {
				return fmt.Errorf("%s: missing", f.Name)
			}
			continue
		}
		known++
		if err := f.check(v); err != nil {
			return err
		}
	}
	if known < len(e) {
		return fmt.Errorf("got %d fields that are not in the table", len(e)-known)
	}
	return nil
}

func (f *field) check(v any) error {
	if f.Type == "string" || f.Type == "timestamp" {
		text, ok := v.(string)
		if !ok {
			return fmt.Errorf("%s: got %v, want text", f.Name, v)
		}
		if _, err := time.Parse(time.RFC3339Nano, text); f.Type == "timestamp" && err != nil {
			return fmt.Errorf("%s: got %q, want an RFC 3339 time", f.Name, text)
		}
		return nil
	}
	x, ok := v.(float64)
	switch {
	case !ok:
		return fmt.Errorf("%s: got %v, want a number", f.Name, v)
	case f.Type == "integer" && x != math.Trunc(x):
		return fmt.Errorf("%s: got %g, want a whole number", f.Name, x)
	case f.Min != nil && x < *f.Min || f.Max != nil && x > *f.Max:
		return fmt.Errorf("%s: got %g, want it in its range", f.Name, x)
	}
	return nil
}

// ColumnsOf are the columns of a target as XGBoost wants them typed.
func ColumnsOf(tpot bool, features string) []Column {
	var out []Column
	for _, f := range decision.FeaturesOf(tpot, features) {
		c := Column{f.Name, float}
		switch {
		case f.Category:
			c.Type = category
		case f.Integer:
			c.Type = Int
		}
		out = append(out, c)
	}
	return out
}
