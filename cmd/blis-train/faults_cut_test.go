package main_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// cutFiles are the examples of a form of input, cut: compressed and cut at several places, and JSON cut within a
// value. Plain text that is cut at the end of a line, or within a number of a CSV, looks like a shorter file.
func (r *reader) cutFiles() (out []tamper) {
	text := r.texts[r.file]
	cut := func(what, whole string, at int) {
		out = append(out, tamper{fmt.Sprintf("%s, cut at %d of %d", what, at, len(whole)), whole[:at]})
	}
	zip, zst := gzipped(text), zstded(text)
	for k := range 4 {
		cut("gzip", zip, len(zip)*(2*k+2)/9)
		cut("zstd", zst, len(zst)*(2*k+2)/9)
	}
	cut("gzip", zip, len(zip)-5)
	cut("zstd", zst, len(zst)-2)
	if !strings.Contains(filepath.Ext(r.file), "json") {
		return out
	}
	for k := range 5 {
		at := len(text) * (2*k + 1) / 11
		for text[at-1] == '\n' || text[at] == '\n' || text[at-1] == '}' {
			at++
		}
		cut("plain", text, at)
	}
	return out
}

// testCuts tries every n-th cut file of every reader.
func testCuts(t *testing.T, n, least int, program string) {
	all := 0
	for _, r := range valueReaders(t) {
		if filepath.Base(r.file) == "run.yaml" || r.file == "config.json" {
			continue
		}
		dir := t.TempDir()
		for name, text := range r.texts {
			repo.Write(t, text, dir, filepath.FromSlash(name))
		}
		clean := r.try(program, dir, r.texts[r.file])
		for i, c := range r.cutFiles() {
			if (all+i)%n != 0 {
				continue
			}
			class, wrong := r.class(clean, r.try(program, dir, c.text))
			if class != "refused" && class != "counted" {
				t.Errorf("%s: %s: %s %s, want it refused or counted", r.name, c.name, class, wrong)
			}
		}
		all += len(r.cutFiles())
	}
	t.Logf("%d cut files", all)
	if all < least {
		t.Errorf("got %d cut files, want %d", all, least)
	}
}

// TestCutFiles tries a sample.
func TestCutFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	testCuts(t, 67, 150, inThisProcess)
}

// TestEvalCutFiles tries all.
func TestEvalCutFiles(t *testing.T) {
	repo.NeedEval(t)
	testCuts(t, 1, 150, programOf(t))
}
