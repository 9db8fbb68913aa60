package extract

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/blis-train/blis-train/vllm"
)

// stepSpans makes n spans of ten steps each; the last step of every other span has its
// snapshots spread over this span and the next.
func stepSpans(n int) []*otlp.StepRows {
	spans := make([]*otlp.StepRows, n+1)
	for i := range spans {
		spans[i] = &otlp.StepRows{}
	}
	for id := int64(1); id <= int64(10*n); id++ {
		at := int(id-1) / 10
		spans[at].Steps = append(spans[at].Steps, trace.Step{ID: id, TsStartNs: 100 * id, RunningDepth: 3})
		for r := range 3 {
			if id%20 == 0 && r == 2 {
				at++
			}
			spans[at].Snaps = append(spans[at].Snaps, trace.Snapshot{StepID: id, CoreID: fmt.Sprint("request-", r+int(id)/7), ScheduledTokens: 1,
				ComputedTokens: id})
		}
	}
	return spans
}

// writeSpans writes spans as the tables of one engine, and reads what snapshots say of requests.
func writeSpans(t *testing.T, format table.Format, spans []*otlp.StepRows) (map[string][]byte, map[digest]sighting, *stepTables) {
	t.Helper()
	dir := t.TempDir()
	mem := &source.Memory{Dir: t.TempDir(), Limit: 4096}
	defer mem.Close()
	m, err := newStepTables(dir, format, source.NewAccount(nil), source.Place{}, mem)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range spans {
		if err := m.addSpan(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	return tablesTableFiles(t, dir), sighted(t, m), m
}

// sighted are the first sightings of the requests.
func sighted(t *testing.T, m *stepTables) map[digest]sighting {
	t.Helper()
	out := map[digest]sighting{}
	err := m.eachSeen(func(_ int64, s *sighting) {
		if _, again := out[s.ID]; !again {
			out[s.ID] = *s
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tableFiles reads the files of a folder.
func tablesTableFiles(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, name := range names {
		if files[filepath.Base(name)], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestLateStepSpans: spans that were exported after those of later steps, as
// retries are, end up where they belong: same bytes, same figures as in order,
// in both formats.
func TestLateStepSpans(t *testing.T) {
	for _, format := range []table.Format{table.Parquet, table.Arrow} {
		want, requests, ordered := writeSpans(t, format, stepSpans(40))
		if len(want) != 2 || ordered.isLate {
			t.Fatalf("%s: got %d files and late rows, want 2 and none", format, len(want))
		}
		spans := stepSpans(40)
		behind := append(append(append([]*otlp.StepRows{}, spans[:5]...), spans[7:]...), spans[5:7]...)
		got, late, m := writeSpans(t, format, behind)
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s: the tables differ", format)
		}
		if !m.isLate || !reflect.DeepEqual(m.out, ordered.out) || len(late) == 0 || !reflect.DeepEqual(late, requests) ||
			m.acc.Kept != ordered.acc.Kept {
			t.Errorf("%s: late rows: %t, got %+v, want the figures of the ordered spans %+v", format, m.isLate, m.out.steps, ordered.out.steps)
		}
	}
}

// TestRepeatedStepRows: of a step or snapshot recorded twice the first stays,
// the other is a counted drop, in time or late.
func TestRepeatedStepRows(t *testing.T) {
	spans := stepSpans(3)
	again := stepSpans(3)
	_, _, m := writeSpans(t, table.Parquet, []*otlp.StepRows{spans[0], again[0], spans[1], spans[2], spans[3], again[1]})
	// 10 steps and 29 snapshots of the first span, all of the second
	if got, want := m.acc.Dropped[source.CodeDuplicate], int64(10+29+10+30); got != want {
		t.Errorf("dropped: got %d, want %d", got, want)
	}
	if got, want := m.acc.Kept, int64(30+90); got != want {
		t.Errorf("kept: got %d, want %d", got, want)
	}
}

// TestForgottenRequests: of requests not shown for long only a sighting is left, and who
// comes back is known by the first.
func TestForgottenRequests(t *testing.T) {
	span := &otlp.StepRows{}
	const n = 5 * forgetAfter
	for id := int64(1); id <= n; id++ {
		span.Steps = append(span.Steps, trace.Step{ID: id, TsStartNs: 100 * id})
		ids := []string{fmt.Sprint("request-", id/16)}
		if id == 3 || id == n {
			ids = append(ids, "back")
		}
		for _, name := range ids {
			span.Snaps = append(span.Snaps, trace.Snapshot{StepID: id, CoreID: name, ScheduledTokens: 1, ComputedTokens: id})
		}
	}
	held := 0
	m, err := newStepTables(t.TempDir(), table.Parquet, source.NewAccount(nil), source.Place{}, &source.Memory{Dir: t.TempDir(), Limit: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer m.mem.Close()
	for part := range slices.Chunk(span.Steps, forgetAfter/4) {
		rows := &otlp.StepRows{Steps: part}
		for _, s := range span.Snaps {
			if s.StepID >= part[0].ID && s.StepID <= part[len(part)-1].ID {
				rows.Snaps = append(rows.Snaps, s)
			}
		}
		if err := m.addSpan(rows); err != nil {
			t.Fatal(err)
		}
		held = max(held, len(m.owners))
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	if most := 2*forgetAfter/16 + 2; held > most {
		t.Errorf("got %d requests in memory, want at most %d", held, most)
	}
	seen := sighted(t, m)
	if got, want := len(seen), n/16+2; got != want {
		t.Errorf("got %d requests, want %d", got, want)
	}
	if got := seen[digestID("back")]; !got.IsSeen || got.Step != 3 || got.Computed != 3 {
		t.Errorf("got %+v of a request that came back, want its first step", got)
	}
}

// TestLateRowsBeyondLimits: a span that comes late does not hide the steps that
// contradict run.yaml.
func TestLateRowsBeyondLimits(t *testing.T) {
	m, err := newStepTables(t.TempDir(), table.Parquet, source.NewAccount(nil), source.Place{}, &source.Memory{Dir: t.TempDir(), Limit: 4096})
	if err != nil {
		t.Fatal(err)
	}
	defer m.mem.Close()
	m.stated = vllm.Engine{MaxNumSeqs: 2}
	m.out.beyond = enginelog.LimitsOf(&m.stated)
	spans := stepSpans(3) // of ten steps with 3 requests each
	for _, i := range []int{0, 2, 1} {
		if err := m.addSpan(spans[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	want := "vllm.max_num_seqs: run.yaml says 2, 30 of 30 steps have another number, up to 3"
	if got := m.out.beyond.Findings("steps"); len(got) != 1 || got[0].Message != want {
		t.Errorf("got %v, want %q", got, want)
	}
}

// TestLateExports: lines in any order, with some of them lost, are one run with
// the tables that the lines in order give; so are two lives behind one another.
func TestLateExports(t *testing.T) {
	one := lifeOfEngine(40, 1, 1e9, 2e7)
	two := append(append([]string{}, one...), lifeOfEngine(30, 101, 9e9, 2e7)...)
	sparse := append(append([]string{}, one[:7]...), one[19:]...)
	for name, lines := range map[string][]string{"one life": one, "two lives": two, "lost spans": sparse} {
		want := withoutPlaces(readText(t, lines...))
		for seed := range uint64(3) {
			for _, window := range []int{2, 10, len(lines)} {
				if name == "two lives" && window > 30 {
					continue // nobody says which life a span is of when both are in pieces
				}
				got := withoutPlaces(readText(t, shuffled(lines, window, seed)...))
				if d := different(want, got); d != "" {
					t.Fatalf("%s, shuffled within %d lines, seed %d: got %d runs (-want +got):\n%.600s", name, window, seed, len(got), d)
				}
			}
		}
	}
}

// shuffled moves lines by less than window places.
func shuffled(lines []string, window int, seed uint64) []string {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := append([]string{}, lines...)
	for from := 0; from < len(out); from += window {
		part := out[from:min(from+window, len(out))]
		rng.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
	}
	return out
}

// TestLogrotateOrder: the sets that logrotate makes are found and read from the
// oldest to the live file, a line that a rotation cut among them.
func TestLogrotateOrder(t *testing.T) {
	lines := lifeOfEngine(6, 1, 1e9, 2e7)
	want := withoutPlaces(readText(t, lines...))
	all := strings.Join(lines, "\n") + "\n"
	cut := []int{0, len(all) / 5, len(all) / 2, len(all) - 700, len(all)}
	for _, names := range [][]string{
		{"traces.jsonl.10", "traces.jsonl.9", "traces.jsonl.1", "traces.jsonl"},
		{"traces.json.3.gz", "traces.json.2.gz", "traces.json.1", "traces.json"},
		{"traces.json-20251231", "traces.json-20260101-1767225600", "traces.json-20260102.gz", "traces.json"},
	} {
		dir := smallRun(t, t.TempDir(), "a", nil)
		os.Remove(filepath.Join(dir, "traces.jsonl"))
		for i, name := range names {
			part := []byte(all[cut[i]:cut[i+1]])
			if strings.HasSuffix(name, ".gz") {
				part = gzipped(part)
			}
			repo.Write(t, string(part), dir, name)
		}
		runs, err := Discover([]string{dir})
		if err != nil {
			t.Fatal(err)
		}
		in, err := runs[0].traces()
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, f := range in {
			order = append(order, f.Name)
		}
		if d := cmp.Diff(names, order); d != "" {
			t.Errorf("order (-want +got):\n%s", d)
			continue
		}
		var files []string
		for _, f := range in {
			files = append(files, f.Path)
		}
		doc, got, err := dumpRun(t, files, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := different(want, withoutPlaces(got)); d != "" || len(doc.Totals.Records.Dropped) > 0 {
			t.Errorf("%v: dropped %v (-want +got):\n%.600s", names, doc.Totals.Records.Dropped, d)
		}
	}
}

// TestSiblingsWithLostSpans: two engines that write into one dump stay apart
// where spans of one are lost.
func TestSiblingsWithLostSpans(t *testing.T) {
	a := lifeOfEngine(12, 1, 1e9, 2e7)
	b := lifeOfEngine(12, 101, 1e9+13e6, 2e7)
	lines := interleave(a, b)
	_, runs, err := dumpRun(t, []string{writeDump(t, "traces.json", []byte(strings.Join(append(lines[:8], lines[11:]...), "\n")))},
		func(o *Options) { o.SplitEngines = true })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, run := range runs {
		got = append(got, fmt.Sprintf("%d steps of %s", len(run.Steps), coreIDs(runs[i:i+1])))
	}
	if len(got) != 2 {
		t.Fatalf("got %q, want two engines", got)
	}
}

// TestCachedTokens: on recordings of unmodified vLLM, what the passes tell of each request is
// what the server's usage said: equal where it is called exact, else within its bounds; and
// the hits of each phase are the server's counters, to the token.
func TestCachedTokens(t *testing.T) { cachedTokens(t, false) }

// TestEvalCachedTokens: the same of all recordings with counters.
func TestEvalCachedTokens(t *testing.T) {
	repo.NeedEval(t)
	cachedTokens(t, true)
}

func cachedTokens(t *testing.T, slow bool) {
	t.Helper()
	for _, c := range []struct {
		set, name         string
		exact, of, engine int
	}{
		{"real_vllm_stock2", "prefix-growth", 230, 296, 1}, {"real_vllm_stock2", "spec-ngram", 268, 268, 1},
		{"real_vllm_stock2", "dp2", 156, 156, 2},
		// With slow evaluations also recordings in which the cache gave little.
		{"real_vllm_stock", "gqa-a", 927, 929, 1}, {"real_vllm_stock", "mha-core", 988, 990, 1},
	} {
		if c.set == "real_vllm_stock" && !slow {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			dir := repo.Shared(t, "data", c.set, c.name)
			doc, out := byDefault(t, testkit.WithoutUsage(t, dir))
			runs, err := readAll(out)
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
			real := testkit.Usage(t, dir)
			exact := 0
			all := 0
			bad := 0
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
	for name, e := range map[string]vllm.Engine{"": {}, "cpu_offloading": {CPUOffloading: true},
		"long_prefill_token_threshold": {LongPrefillThreshold: 512},
		"max_num_partial_prefills":     {Extra: vllm.Values{"max_num_partial_prefills": 2.0}},
		"kv_transfer_config":           {Extra: vllm.Values{"kv_transfer_config": map[string]any{"kv_connector": "X"}}}} {
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
	doc, _ := byDefault(t, root)
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
	if len(folders) != 54 || counted != 26 {
		t.Errorf("got %d recordings and %d phases with counters, want 54 and 26", len(folders), counted)
	}
}

// TestOtherCounters: where a counter is another than the passes make it, by a token or a block, that is said, and nothing that
// they tell of those prompts is used.
func TestOtherCounters(t *testing.T) {
	from := testkit.WithoutUsage(t, repo.Shared(t, "data", "real_vllm_stock2", "prefix-growth"))
	hits := regexp.MustCompile(`(prefix_cache_hits_total\{.*\} )(\S+)`)
	for _, off := range []float64{1, -32} { // no whole block more, blocks fewer
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
		doc, runs := extracted(t, nil, dir)
		for i := range runs[0].Observed {
			if r := &runs[0].Observed[i]; r.CachedTokens.OK == (r.Phase.V == "open") {
				t.Errorf("%+g: %s: got %+v cached tokens", off, r.ID, r.CachedTokens)
			}
		}
		if !slices.ContainsFunc(doc.Runs[0].Warnings, func(f trace.Finding) bool {
			return strings.Contains(f.Message, fmt.Sprintf("the server counted %.0f cached tokens, the passes give 20928 to 20928", 20928+off))
		}) {
			t.Errorf("%+g: not said: %v", off, doc.Runs[0].Warnings)
		}
	}
}

// byDefault extracts what lies below a folder by the default options.
func byDefault(t *testing.T, root string) (doc *result.Extract, out string) {
	t.Helper()
	dirs, err := Discover([]string{root})
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out = t.TempDir()
	if doc, err = Run(context.Background(), dirs, o); err != nil {
		t.Fatal(err)
	}
	return doc, o.Out
}
