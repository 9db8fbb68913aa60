package pipeline

import (
	"context"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// TestStrippedRecordings: a recording of shared prefixes that keeps only a part of what it had. Without any source the replay
// is not judged, and terminal and verdict say what would tell; counters and logged hit rates tell the sum, and that no single
// prompt's is known; little of a cache needs no more than that.
// An evaluation takes the other parts too, and for the last of it a recording of 929 requests.
func TestStrippedRecordings(t *testing.T) { strippedRecordings(t, false) }

// TestEvalStrippedRecordings: the parts that TestStrippedRecordings does not take.
func TestEvalStrippedRecordings(t *testing.T) {
	repo.NeedEval(t)
	strippedRecordings(t, true)
}

func strippedRecordings(t *testing.T, eval bool) {
	t.Helper()
	for _, c := range []struct {
		set, name, keeps, drops string // files; lines of the log
		said                    string
		share                   float64 // of the prompt tokens
		judged, eval            bool
	}{
		{"real_vllm_stock2", "prefix-growth", `^bench`, ``, "what the prefix cache gave 296 prompts is not known", 0, false, false},
		{"real_vllm_stock2", "prefix-growth", `^(bench|traces)`, ``, "what the prefix cache gave 296 prompts is not known", 0, false, true},
		{"real_vllm_stock2", "prefix-growth", `^(bench|server)`, `Iteration\(`, "68 % of prompt tokens", 0.6826, false, false},
		{"real_vllm_stock2", "prefix-growth", `^(bench|server)`, `Iteration\(|hit rate`, "what the prefix cache gave 296 prompts is not", 0,
			false, true},
		{"real_vllm_stock2", "prefix-growth", `^(bench|metrics)`, ``, "68 % of prompt tokens came from the prefix cache (from the server's counters", 0.6826,
			false, false},
		{"real_vllm_stock", "gqa-a", `^(bench|server)`, `Iteration\(`, "(from the log's hit rates, for all prompts together", 0.004, true, true},
	} {
		if c.eval != eval {
			continue
		}
		t.Run(c.name+" "+c.keeps+c.drops, func(t *testing.T) {
			from := repo.Shared(t, "data", c.set, c.name)
			dir := t.TempDir()
			names, err := filepath.Glob(filepath.Join(from, "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range names {
				name := filepath.Base(path)
				switch {
				case name == "run.yaml":
					text := string(repo.Read(t, path))
					if !strings.Contains(c.keeps, "traces") {
						text = strings.Replace(text, "traces: traces.jsonl.zst", "traces: null", 1)
					}
					repo.Write(t, text, dir, name)
				case name == "server.log.zst" && strings.Contains(c.keeps, "server"):
					repo.Write(t, regexp.MustCompile(`(?m)^.*(`+c.drops+`).*\n`).ReplaceAllString(string(testkit.Unpacked(t, path)), ""),
						dir, "server.log")
				case name == "config.json" || regexp.MustCompile(c.keeps).MatchString(name):
					repo.Write(t, repo.Read(t, path), dir, name)
				}
			}
			o := DefaultRunOptions()
			o.Extract.Out = t.TempDir()
			o.Fit.Bootstraps = 50
			o.Validate.Noise = "none" // the gates need no such replays
			got, err := Run(context.Background(), []string{dir}, o)
			if err != nil {
				t.Fatal(err)
			}
			if words := report.CachedTokens(got.Extract); !strings.Contains(words, c.said) {
				t.Errorf("got %q, want %q", words, c.said)
			}
			run, err := table.Read(table.RunDir(o.Extract.Out, got.Extract.Runs[0].ID), table.ObservedRequests)
			if err != nil {
				t.Fatal(err)
			}
			hits, prompts := 0.0, 0.0
			for i := range run.Observed {
				r := &run.Observed[i]
				hits += float64(r.CachedTokens.V)
				prompts += float64(r.PromptTokens.V)
				if r.CachedSource.V == trace.CachedExact {
					t.Errorf("%s: called exact", r.ID)
				}
			}
			if off := hits/prompts - c.share; off < -0.002 || off > 0.002 {
				t.Errorf("got %.4f of the prompt tokens cached, want %.4f", hits/prompts, c.share)
			}
			v, judged := got.Validation, false
			for _, g := range v.Gates {
				if strings.HasPrefix(g.Name, "ks_") {
					judged = judged || g.Value != nil
				}
			}
			said := strings.Join(append(report.Next(report.Input{Fit: got.Fit, Validation: v}), report.Undecided(report.Decisive(v))...), "\n")
			if judged != c.judged || v.Verdict == coeff.VerdictPass ||
				!c.judged && !(strings.Contains(said, "--enable-prompt-tokens-details") && strings.Contains(said, "/metrics")) {
				t.Errorf("replays judged: %v, want %v; verdict %s\n%s", judged, c.judged, v.Verdict, said)
			}
		})
	}
}
