package enginelog

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// FuzzKV: no KV line panics the reader, and what it takes is JSON.
func FuzzKV(f *testing.F) {
	data := repo.Read(f, "testdata", "kv_events.jsonl")
	for _, line := range bytes.Split(bytes.TrimSpace(data), source.Newline) {
		if len(line) < 400 {
			f.Add(line)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := NewKVDecoder().Line(data, NewKVDecoder().Records()); err == nil && !json.Valid(data) && len(bytes.TrimSpace(data)) > 0 {
			t.Errorf("%q: taken, but not JSON", data)
		}
	})
}
