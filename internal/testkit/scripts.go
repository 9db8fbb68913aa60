package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Scripts runs the scenarios of testdata/*.txt: what stands above the line --- goes to run,
// and what run tells must be what stands below it. With update it is written there instead.
func Scripts(t *testing.T, update bool, run func(t *testing.T, head string) string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			head, want, _ := strings.Cut(string(data), "---\n")
			got := run(t, head)
			if update {
				if err := os.WriteFile(file, []byte(head+"---\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("differs; got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// Pairs are the key=value words of a line of a script, counted from 0.
func Pairs(t *testing.T, line int, words []string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, w := range words {
		k, v, ok := strings.Cut(w, "=")
		if !ok {
			t.Fatalf("line %d: got %q, want key=value", line+1, w)
		}
		out[k] = v
	}
	return out
}
