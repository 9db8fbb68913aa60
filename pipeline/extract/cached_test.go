package extract

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
)

// TestCachedTokens: on recordings of unmodified vLLM, what the passes tell of each request is
// what the server's usage said: equal where it is called exact, else within its bounds; and
// the hits of each phase are the server's counters, to the token.
func TestCachedTokens(t *testing.T) {
	for _, c := range []struct {
		set, name         string
		exact, of, engine int
	}{
		{"real_vllm_stock2", "prefix-growth", 230, 296, 1}, {"real_vllm_stock2", "spec-ngram", 268, 268, 1},
		{"real_vllm_stock", "gqa-a", 927, 929, 1}, {"real_vllm_stock", "mha-core", 988, 990, 1}, {"real_vllm_stock2", "dp2", 156, 156, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := repo.Shared(t, "data", c.set, c.name)
			dirs, err := Discover([]string{dir}, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			o := DefaultOptions()
			o.Out = t.TempDir()
			doc, err := Run(context.Background(), dirs, o)
			if err != nil {
				t.Fatal(err)
			}
			runs, err := readAll(o.Out)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range doc.Runs[0].CachedTokens {
				t.Logf("%+v", a)
				if a.CounterTokens.OK && a.Unpaired == 0 && a.CounterTokens.V != a.HitTokens {
					t.Errorf("phase %s: %d tokens from the cache, the server counted %d", a.Phase, a.HitTokens, a.CounterTokens.V)
				}
			}
			for _, w := range doc.Runs[0].Warnings {
				t.Logf("%s: %s", w.Code, w.Message)
			}
			if r := doc.Runs[0].Records; !r.Balanced() {
				t.Errorf("account: %+v", r)
			}
			real, exact, all, bad := testkit.Usage(t, dir), 0, 0, 0
			bySource := map[string][2]int{}
			for _, run := range runs {
				for i := range run.Observed {
					r := &run.Observed[i]
					all++
					h, known := real[r.ID]
					n := bySource[r.CachedSource.V]
					n[0]++
					if known && r.CachedTokens.V == h {
						n[1]++
					}
					bySource[r.CachedSource.V] = n
					if r.CachedSource.V == trace.CachedExact {
						exact++
						if known && h != r.CachedTokens.V {
							bad++
							t.Errorf("%s: got exactly %d cached tokens, the server said %d", r.ID, r.CachedTokens.V, h)
						}
					}
					if known && r.CachedMin.OK && (h < r.CachedMin.V || h > r.CachedMax.V) {
						t.Errorf("%s: the server said %d cached tokens, not within %d and %d", r.ID, h, r.CachedMin.V, r.CachedMax.V)
					}
				}
			}
			t.Logf("%s: %d of %d exact (%d known wrong), requests and right ones by source %v", c.name, exact, all, bad, bySource)
			if exact < c.exact || all != c.of {
				t.Errorf("got %d of %d requests exactly, want at least %d of %d", exact, all, c.exact, c.of)
			}
		})
	}
}

// TestUncountable: what makes passes hold other tokens than what prompts lacked is named.
func TestUncountable(t *testing.T) {
	for name, e := range map[string]deploy.Engine{"": {}, "cpu_offloading": {CPUOffloading: true},
		"long_prefill_token_threshold": {LongPrefillThreshold: 512},
		"max_num_partial_prefills":     {Extra: deploy.Values{"max_num_partial_prefills": 2.0}},
		"kv_transfer_config":           {Extra: deploy.Values{"kv_transfer_config": map[string]any{"kv_connector": "X"}}}} {
		if got := uncountable(&e); !strings.Contains(got, name) || (got == "") != (name == "") {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// TestSGLangCounters: SGLang's counters tell what prompts had together, whatever its pages; too large ones, those that are no
// counts and answers without one tell nothing.
func TestSGLangCounters(t *testing.T) {
	const bench = `{"date": "x", "backend": "sglang", "completed": 2, "total_input_tokens": 201, "max_concurrency": null, "input_lens": [101, 100],
"output_lens": [2, 2], "ttfts": [0.5, 0.25], "itls": [[0.1], [0.2]], "start_times": [100.0, 101.0], "generated_texts": ["a", "b"], "errors": ["", ""]}`
	for metrics, want := range map[string]int64{
		`sglang:cached_tokens_total{cache_source="device"} 90.0` + "\n" + `sglang:cached_tokens_total{cache_source="host"} 9.0`: 99,
		`sglang:cached_tokens_total{model_name="m"} 0.0`:                                                                        0,
		`sglang:cached_tokens_total{model_name="m"} 2001.0`:                                                                     -1,
		`sglang:cached_tokens_total{model_name="m"} NaN`:                                                                        -1,
		`sglang:cached_tokens_total{model_name="m"} -7`:                                                                         -1,
		`sglang:cached_tokens_total{model_name="m"} `:                                                                           -1,
		`sglang:generation_tokens_total{model_name="m"} 12`:                                                                     -1,
	} {
		dir := upstreamFolder(t, upstreamRun)
		repo.Write(t, bench, dir, "bench.json")
		for k, text := range []string{`sglang:prompt_tokens_total{model_name="m"} 0.0` + "\n" + `sglang:cached_tokens_total{model_name="m"} 0.0`,
			`sglang:prompt_tokens_total{model_name="m"} 201.0` + "\n" + metrics} {
			repo.Write(t, "# HELP sglang:x\n"+text+"\n", dir, []string{"before.prom", "after.prom"}[k])
		}
		out := t.TempDir()
		if _, err := extractArgs(t, out, nil, dir); err != nil {
			t.Fatal(err)
		}
		runs, err := readAll(out)
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for i := range runs[0].Observed {
			if r := &runs[0].Observed[i]; r.CachedTokens.OK {
				sum += r.CachedTokens.V
			} else {
				sum = -1
			}
		}
		if sum != want {
			t.Errorf("%s: got %d cached tokens, want %d", metrics, sum, want)
		}
	}
}

// TestEvalEveryRecording: of every recording read = kept + dropped, and the cached tokens of its log's prompts are the
// server's counters to the token, over all stretches that two answers of /metrics enclose; where one counter is another
// by a token or a block, that is said and nothing that the passes tell of these prompts is used.
func TestEvalEveryRecording(t *testing.T) {
	repo.NeedEval(t)
	root := repo.Shared(t, "data")
	dirs, err := Discover([]string{root}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out = t.TempDir()
	doc, err := Run(context.Background(), dirs, o)
	if err != nil {
		t.Fatal(err)
	}
	folders, counted := map[string]bool{}, 0
	for i := range doc.Runs {
		r := &doc.Runs[i]
		folders[r.Folder] = true
		dropped := int64(0)
		for _, n := range r.Records.Dropped {
			dropped += n
		}
		if r.Records.Read != r.Records.Kept+dropped || i == 0 && r.Records.Read == 0 {
			t.Errorf("%s: read %d, kept %d, dropped %v", r.ID, r.Records.Read, r.Records.Kept, r.Records.Dropped)
		}
		words := ""
		for _, a := range r.CachedTokens {
			if a.CounterTokens.OK {
				counted++
				words += fmt.Sprintf("; %s %d = %d", a.Phase, a.HitTokens, a.CounterTokens.V)
				if a.CounterTokens.V != a.HitTokens || a.Unpaired > 0 {
					t.Errorf("%s, %s: %+v", r.ID, a.Phase, a)
				}
			}
		}
		fmt.Printf("  %-44s read %6d = kept %6d + dropped %5d%s\n", r.ID, r.Records.Read, r.Records.Kept, dropped, words)
	}
	if len(folders) != 44 || counted != 26 {
		t.Errorf("got %d recordings and %d phases with counters, want 44 and 26", len(folders), counted)
	}
}

// TestOtherCounters: where a counter is another than the passes make it, by a token or a block, that is said, and nothing that
// they tell of those prompts is used.
func TestOtherCounters(t *testing.T) {
	from := repo.Shared(t, "data", "real_vllm_stock2", "prefix-growth")
	hits := regexp.MustCompile(`(prefix_cache_hits_total\{.*\} )(\S+)`)
	for _, off := range []float64{1, 32, -32} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"metrics_open_after.prom", "metrics_turns_before.prom", "metrics_turns_after.prom"} {
			text := string(testkit.Unpacked(t, filepath.Join(from, name+".zst")))
			if err := os.Remove(filepath.Join(dir, name+".zst")); err != nil {
				t.Fatal(err)
			}
			repo.Write(t, hits.ReplaceAllStringFunc(text, func(m string) string {
				at := hits.FindStringSubmatch(m)
				n, err := strconv.ParseFloat(at[2], 64)
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprintf("%s%.0f", at[1], n+off)
			}), dir, name)
		}
		out := t.TempDir()
		doc, err := extractArgs(t, out, nil, dir)
		if err != nil {
			t.Fatal(err)
		}
		runs, err := readAll(out)
		if err != nil {
			t.Fatal(err)
		}
		for i := range runs[0].Observed {
			if r := &runs[0].Observed[i]; r.CachedTokens.OK == (r.Phase.V == "open") {
				t.Errorf("%+g: %s: got %+v cached tokens", off, r.ID, r.CachedTokens)
			}
		}
		if !slices.ContainsFunc(doc.Runs[0].Warnings, func(f trace.Finding) bool {
			return strings.Contains(f.Message, fmt.Sprintf("the server counted %.0f cached tokens, the passes make 20928 to 20928", 20928+off))
		}) {
			t.Errorf("%+g: not said: %v", off, doc.Runs[0].Warnings)
		}
	}
}
