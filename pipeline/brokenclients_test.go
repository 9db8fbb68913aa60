package pipeline

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/validate/planted"
)

// TestBrokenClientFiles: what is broken about a client's files has a finding or a
// counted drop of its own.
func TestBrokenClientFiles(t *testing.T) {
	edit := func(name string, change func(text string) string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(change(string(b))), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, dir string)
		code  string
	}{
		"nothing":       {func(*testing.T, string) {}, ""},
		"truncated CSV": {edit("trace.csv", func(s string) string { return s[:len(s)-60] }), "unreadable"},
		"ms as us": {func(t *testing.T, dir string) {
			edit("trace.csv", func(s string) string { return strings.ReplaceAll(s, "000000", "") })(t, dir)
			edit("trace.yaml", func(s string) string { return strings.Replace(s, "time_unit: us", "time_unit: ms", 1) })(t, dir)
		}, `time_unit: got "ms", want microseconds`},
		"truncated JSON": {func(t *testing.T, dir string) {
			const cut = `{"load_summary":{"requested_rate":2},"successes":{"count":10,"lat`
			if err := os.WriteFile(filepath.Join(dir, "stage_0_lifecycle_metrics.json"), []byte(cut), 0o644); err != nil {
				t.Fatal(err)
			}
		}, "bad_sweep"},
		"warm-up missing": {edit("trace.yaml", func(s string) string {
			return strings.Replace(s, "warm_up_requests: 0", "warm_up_requests: 200", 1)
		}), "warmup_"},
	} {
		parent := t.TempDir()
		dir, dep := chunkRun(t, parent, "r")
		recordChunks(t, dir, dep, planted.Set(dep), 4, 30, 0)
		if err := os.Remove(filepath.Join(dir, "trace.itl.csv")); err != nil {
			t.Fatal(err)
		}
		c.spoil(t, dir)
		eo := DefaultExtractOptions()
		eo.Out, eo.MaxBadFrac = t.TempDir(), 1
		ext, err := Extract(context.Background(), []string{parent}, eo)
		var text string
		if err != nil {
			text = err.Error()
		}
		if ext != nil {
			for _, f := range ext.Runs[0].Warnings {
				text += " " + string(f.Code) + ": " + f.Message
			}
			for code := range ext.Runs[0].Records.Dropped {
				text += " " + code
			}
		}
		if !strings.Contains(text, c.code) || c.code == "" && (strings.Contains(text, "unreadable") || strings.Contains(text, "implausible")) {
			t.Errorf("%s: got %q, want %q", name, text, c.code)
		}
	}
}
