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

// readBulk reads batches, checks every entry against the field table and returns
// all entries. Errors name the line and the entry.
func readBulk(r io.Reader) ([]entry, error) {
	var out []entry
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

func readBatch(text []byte) ([]entry, error) {
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
