package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestEmptyTextsAreMistakes: a flag with an empty text, as of a shell's variable that is not set, is a mistake and not
// the same as no flag. Only --vllm, further arguments of a server, may have none.
func TestEmptyTextsAreMistakes(t *testing.T) {
	tried := 0
	for _, l := range leaves() {
		for _, f := range l.Flags {
			name := f.Names()[0]
			if name == "vllm" || name == "help" {
				continue
			}
			if takes, ok := f.(interface{ TakesValue() bool }); ok && !takes.TakesValue() {
				continue
			}
			var stdout, stderr strings.Builder
			code := run(append([]string{"blis-train"}, append(strings.Fields(l.name), "--"+name, "")...), strings.NewReader(""), &stdout, &stderr)
			if tried++; code != exitUsage || !strings.Contains(stderr.String(), "--"+name) {
				t.Errorf("%s --%s '': exit %d, want %d: %.200s", l.name, name, code, exitUsage, stderr.String())
			}
		}
	}
	if tried < 200 {
		t.Errorf("tried %d flags, want at least 200", tried)
	}
}

// TestReleasesAreReleases: --vllm-version is a release, or the version of a build between two.
func TestReleasesAreReleases(t *testing.T) {
	for _, c := range []struct {
		version string
		code    int
	}{{"banana", exitUsage}, {"../x", exitUsage}, {"v1", exitUsage}, {"0.15.1", exitOK}, {"v0.15.1rc1", exitOK}, {"0.1.dev12345+g0123abc", exitOK}} {
		var stdout, stderr strings.Builder
		args := []string{"blis-train", "init", "--from-cmdline", "vllm serve org/dense --max-model-len 4096", "--hardware", "H100", "--vllm-version", c.version}
		if code := run(args, strings.NewReader(""), &stdout, &stderr); code != c.code && !(c.code == exitOK && code != exitUsage) {
			t.Errorf("%s: exit %d, want %d: %s", c.version, code, c.code, stderr.String())
		}
	}
}

// TestLinksThatLeadNowhere: a link to nothing or to itself is a mistake that is named, and the hint states where it leads.
func TestLinksThatLeadNowhere(t *testing.T) {
	dir := t.TempDir()
	smoke := filepath.Join(repo.Root(t), "testdata", "traces", "smoke")
	t.Chdir(dir)
	for _, link := range [][2]string{{"nowhere", "dangling"}, {"loop2", "loop1"}, {"loop1", "loop2"}} {
		if err := os.Symlink(link[0], link[1]); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	for _, args := range [][]string{
		{"check", "LINK"}, {"diff", "LINK", "LINK"}, {"export", "LINK", "-o", "e"}, {"extract", "LINK", "-o", "o"}, {"inspect", "LINK"}, {"run", "LINK", "-o", "o"},
		{"plan", "LINK", "-o", "o"}, {"queue", "fit", "LINK", "-o", "o"}, {"queue", "size", "LINK", "-o", "o", "--itl-ms", "5"}, {"log", "LINK"},
		{"init", "--from-log", "LINK"}, {"run", smoke, "-o", "o", "--config", "LINK"},
	} {
		for _, link := range []string{"dangling", "loop1"} {
			call := []string{"blis-train"}
			for _, a := range args {
				call = append(call, strings.ReplaceAll(a, "LINK", link))
			}
			var stdout, stderr strings.Builder
			code := run(call, strings.NewReader(""), &stdout, &stderr)
			said := stderr.String()
			if !strings.Contains(said, link) || strings.Contains(said, "did you mean") || code != exitUsage && (code != exitFailed || link == "dangling") {
				t.Errorf("%v: exit %d: %s", call, code, said)
			}
		}
	}
}
