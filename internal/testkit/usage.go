package testkit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/internal/repo"
)

// Usage reads usage_PHASE.jsonl.zst of a recording: the server's own count of the prompt
// tokens each request found in its prefix cache, by the request's id in the bench file.
func Usage(t testing.TB, dir string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	names, err := filepath.Glob(filepath.Join(dir, "usage_*.jsonl.zst"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		phase := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "usage_"), ".jsonl.zst")
		for line := range bytes.Lines(Unpacked(t, name)) {
			var u struct {
				Index  int   `json:"index"`
				Cached int64 `json:"cached_tokens"`
			}
			if err := json.Unmarshal(line, &u); err != nil {
				t.Fatal(err)
			}
			out[fmt.Sprintf("%s-%d", phase, u.Index)] = u.Cached
		}
	}
	return out
}

// Unpacked is the content of a zstd file.
func Unpacked(t testing.TB, name string) []byte {
	t.Helper()
	r, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	text, err := r.DecodeAll(repo.Read(t, name), nil)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
