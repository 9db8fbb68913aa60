package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// tutorialPictures are figures of reports of the tutorial: what is judged again to draw
// them, and which it is.
var tutorialPictures = map[string]struct{ judge, figure string }{
	"tutorial-library.svg": {"validate unseen -o judged-library --coefficients coeff/library/b200-sxm-180gb-bf16.yaml", "ecdf"},
	"tutorial-drift.svg":   {"validate out-logs", "drift"},
	"tutorial-replay.svg":  {"validate out", "ecdf"},
}

// largestPicture is what a picture may take in the repository, in bytes.
const largestPicture = 300_000

// landmark is what of an output may not change unnoticed: verdicts, uses and statuses.
var landmark = regexp.MustCompile(`(?m)^(?:\[exit \d+\]|(?:error: )?verdict for \w+: \w+|.*: (?:not )?usable for .*)`)

// quotedErrors are the expected errors that the text explains.
var quotedErrors = regexp.MustCompile(`\*Expected error\*: ([0-9.]+ %) of a step time.*; ([0-9.]+ %) of the median request's TTFT`)

// TestTutorial runs the commands of docs/tutorial.md one after the other; verdicts, uses
// and statuses must be those it shows, and with BLIS_TRAIN_EVAL every line. -update
// rewrites output and pictures.
func TestTutorial(t *testing.T) {
	if testing.Short() {
		t.Skip("short: the tutorial was not walked")
	}
	root := repo.Root(t)
	path := filepath.Join(root, "docs/tutorial.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for _, name := range []string{"testdata", "coeff"} {
		if err := os.Symlink(filepath.Join(root, name), name); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```\n(?:\n```text\n.*?```\n)?")
	got := blocks.ReplaceAllStringFunc(string(text), func(block string) string {
		script := blocks.FindStringSubmatch(block)[1]
		said := walked(t, script)
		if said == "" {
			return "```sh\n" + script + "```\n"
		}
		return "```sh\n" + script + "```\n\n```text\n" + said + "```\n"
	})
	want, have := strings.Join(landmark.FindAllString(string(text), -1), "\n"), strings.Join(landmark.FindAllString(got, -1), "\n")
	if repo.Eval() {
		want, have = string(text), got
	}
	if want != have && !*updateScripts {
		t.Errorf("docs/tutorial.md does not show what its commands print (-update rewrites it): %s", firstDifference(want, have))
	}
	if m := quotedErrors.FindStringSubmatch(got); m == nil || !strings.Contains(got, "expected error: steps "+m[1]+", TTFT "+m[2]) {
		t.Errorf("docs/tutorial.md explains errors %q that no command of it prints", m)
	}
	for name, p := range tutorialPictures {
		checkPicture(t, filepath.Join(root, "docs/img", name), p.judge, p.figure)
	}
	if *updateScripts {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// walked runs the commands of one block and is what they print, a bad status at the end.
func walked(t *testing.T, script string) string {
	t.Helper()
	var out bytes.Buffer
	for _, line := range strings.Split(strings.TrimSpace(strings.ReplaceAll(script, "\\\n", " ")), "\n") {
		if status := run(shellWords(line), strings.NewReader(""), &out, &out); status != 0 {
			fmt.Fprintf(&out, "[exit %d]\n", status)
		}
	}
	return out.String()
}

// shellWords splits a line at spaces outside double quotes.
func shellWords(line string) (words []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words = append(words, part)
			continue
		}
		words = append(words, strings.Fields(part)...)
	}
	return words
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range w {
		if i >= len(g) || w[i] != g[i] {
			return fmt.Sprintf("line %d: got %q, want %q", i+1, strings.Join(g[min(i, len(g)):min(i+1, len(g))], ""), w[i])
		}
	}
	return "more lines"
}

// checkPicture opens a picture of the tutorial; -update draws it anew.
func checkPicture(t *testing.T, path, judge, figure string) {
	t.Helper()
	if *updateScripts {
		words := append([]string{"blis-train"}, strings.Fields(judge+" --quiet --figures figures")...)
		if status := run(words, strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}); status != 0 && status != exitGate {
			t.Errorf("%s: exit %d", judge, status)
		}
		drawn, err := os.ReadFile(filepath.Join("figures", figure+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, drawn, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(text, []byte("<svg ")) || !bytes.HasSuffix(text, []byte("</svg>\n")) || len(text) > largestPicture {
		t.Errorf("%s: %d bytes, want one whole SVG of at most %d", filepath.Base(path), len(text), largestPicture)
	}
}

// TestReadmeForAutoscalers runs the README's commands for autoscalers on the extracted demo.
func TestReadmeForAutoscalers(t *testing.T) {
	root := repo.Root(t)
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	demo := filepath.Join(root, "testdata/traces/demo")
	if said := walked(t, "blis-train extract "+demo+" -o out --quiet"); strings.Contains(said, "[exit") {
		t.Fatal(said)
	}
	_, rest, _ := strings.Cut(string(text), "## Parameters for autoscalers")
	_, rest, _ = strings.Cut(rest, "```sh\n")
	block, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("no block of commands")
	}
	for _, line := range strings.Split(strings.TrimSpace(block), "\n") {
		line, _, _ = strings.Cut(line, " #")
		if said := walked(t, line); strings.Contains(said, "[exit") {
			t.Errorf("%s: %s", line, said)
		}
	}
}
