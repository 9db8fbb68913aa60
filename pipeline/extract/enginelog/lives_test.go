package enginelog

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/blis-train/blis-train/vllm"
)

// pass is a line of vLLM's log: one prefill of 10 tokens and two decodes in ms.
func pass(process, engine, index int, clock string, ms string) string {
	return fmt.Sprintf("(EngineCore_DP%d pid=%d) INFO 11-21 %s [core.py:452] Iteration(%d): 1 context requests, 10 context tokens, 2 generation requests, "+
		"2 generation tokens, iteration elapsed time: %s ms", engine, process, clock, index, ms)
}

// part returns lines of consecutive passes of a process at one time.
func part(process, first, last int, clock string) (lines []string) {
	for i := first; i <= last; i++ {
		lines = append(lines, pass(process, 0, i, clock, "5"))
	}
	return lines
}

// counted returns the indices from first to last.
func counted(first, last int64) (indices []int64) {
	for i := first; i <= last; i++ {
		indices = append(indices, i)
	}
	return indices
}

// life is what a test states of a life.
type life struct {
	engine                            string
	rows, missing, stamped, backwards int64
	firstGap, firstBack               int64 // lines
	indices                           []int64
}

// livesOf reads lines of a log.
func livesOf(t *testing.T, lines ...string) (*Lives, *source.Account, []life) {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "server.log")
	repo.Write(t, strings.Join(lines, "\n")+"\n", name)
	acc := source.NewAccount(nil)
	c := NewLives(acc, filepath.Join(dir, "stage"), table.Parquet)
	c.Beyond = LimitsOf(&vllm.Engine{MaxNumSeqs: 3, MaxNumBatchedTokens: 11})
	if !c.Empty() {
		t.Error("no pass was read yet")
	}
	in := []source.Input{{Path: name, Name: "server.log"}}
	how := source.Options{Workers: 1, Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}}
	if err := c.Logs(context.Background(), in, how); err != nil {
		t.Fatal(err)
	}
	list, err := c.Close()
	if err != nil {
		t.Fatal(err)
	}
	var out []life
	for _, l := range list {
		run, err := table.Read(l.Dir, table.Iterations)
		if err != nil {
			t.Fatal(err)
		}
		one := life{l.Engine, l.Rows, l.Missing, l.Stamped, l.Backwards, l.FirstGap.Line, l.FirstBack.Line, nil}
		for _, r := range run.Iterations {
			one.indices = append(one.indices, r.Index)
		}
		out = append(out, one)
	}
	return c, acc, out
}

// TestLives: one life of passes in order; two engines; a gap; a restart by its stamp, by its process and by its index; a
// repeated pass; a stamp that goes back; and passes that are impossible.
func TestLives(t *testing.T) {
	const at = "23:36:06"
	unstamped := func(index int) string {
		return fmt.Sprintf("Iteration(%d): 1 context requests, 10 context tokens, 2 generation requests, 2 generation tokens, iteration elapsed time: 5 ms", index)
	}
	for _, c := range []struct {
		name           string
		lines          []string
		want           []life
		kept, dup, bad int64
		beyond, torn   int
	}{
		{"in order", []string{pass(7, 0, 4, at, "5"), pass(7, 0, 5, at, "6"), "other"}, []life{{"0", 2, 0, 2, 0, 0, 0, []int64{4, 5}}}, 2, 0, 0, 2, 0},
		{"two engines", []string{pass(7, 1, 4, at, "5"), pass(8, 0, 1, at, "6")}, []life{{"0", 1, 0, 1, 0, 0, 0, []int64{1}}, {"1", 1, 0, 1, 0, 0, 0, []int64{4}}}, 2, 0, 0, 2, 0},
		{"a gap of two", []string{pass(7, 0, 4, at, "5"), pass(7, 0, 7, at, "6"), pass(7, 0, 9, at, "6")}, []life{{"0", 3, 3, 3, 0, 2, 0, []int64{4, 7, 9}}}, 3, 0, 0, 3, 0},
		{"repeated", []string{pass(7, 0, 4, at, "5"), pass(7, 0, 4, at, "5"), pass(7, 0, 5, at, "5")}, []life{{"0", 2, 0, 2, 0, 0, 0, []int64{4, 5}}}, 2, 1, 0, 3, 0},
		{"starts again a second later", []string{pass(7, 0, 4, at, "5"), pass(7, 0, 2, "23:36:07", "5")},
			[]life{{"0", 1, 0, 1, 0, 0, 0, []int64{4}}, {"0", 1, 0, 1, 0, 0, 0, []int64{2}}}, 2, 0, 0, 2, 0},
		{"another process", []string{pass(7, 0, 4, at, "5"), pass(8, 0, 9, at, "5")}, []life{{"0", 1, 0, 1, 0, 0, 0, []int64{4}}, {"0", 1, 0, 1, 0, 0, 0, []int64{9}}}, 2, 0, 0, 2, 0},
		{"another process goes on", []string{pass(7, 0, 4, at, "5"), pass(8, 0, 5, at, "5")}, []life{{"0", 2, 0, 2, 0, 0, 0, []int64{4, 5}}}, 2, 0, 0, 2, 0},
		{"two servers in one file", []string{pass(7, 0, 4, at, "5"), pass(8, 0, 90, at, "5"), pass(7, 0, 5, at, "5"), pass(8, 0, 91, at, "5")},
			[]life{{"0", 2, 0, 2, 0, 0, 0, []int64{4, 5}}, {"0", 2, 0, 2, 0, 0, 0, []int64{90, 91}}}, 4, 0, 0, 4, 0},
		{"a stamp two seconds back", []string{pass(7, 0, 4, at, "5"), pass(7, 0, 5, "23:36:04", "5"), pass(7, 0, 6, "23:36:03", "5")}, []life{{"0", 3, 0, 3, 0, 0, 0, []int64{4, 5, 6}}}, 3, 0, 0, 3, 0},
		{"a stamp three seconds back", []string{pass(7, 0, 4, at, "5"), pass(7, 0, 5, "23:36:03", "5"), pass(7, 0, 6, "23:36:00", "5")}, []life{{"0", 3, 0, 3, 2, 0, 2, []int64{4, 5, 6}}}, 3, 0, 0, 3, 0},
		{"no time", []string{pass(7, 0, 4, at, "0.0009"), pass(7, 0, 5, at, "0.001")}, []life{{"0", 1, 0, 1, 0, 0, 0, []int64{5}}}, 1, 0, 1, 1, 0},
		{"longer than since the one before and a minute", []string{pass(7, 0, 4, at, "70000"), pass(7, 0, 5, "23:36:08", "62000"), pass(7, 0, 6, "23:36:10", "62001")},
			[]life{{"0", 2, 0, 2, 0, 0, 0, []int64{4, 5}}}, 2, 0, 1, 2, 0},
		{"torn", []string{"10 context tokens, iteration elapsed time: 5 ms", pass(7, 0, 4, at, "5")}, []life{{"0", 1, 0, 1, 0, 0, 0, []int64{4}}}, 1, 0, 0, 1, 1},
		{"63 back without stamps", []string{unstamped(70), unstamped(7)}, []life{{"0", 1, 0, 0, 0, 0, 0, []int64{70}}}, 1, 1, 0, 2, 0},
		{"64 back without stamps", []string{unstamped(70), unstamped(6)}, []life{{"0", 1, 0, 0, 0, 0, 0, []int64{70}}, {"0", 1, 0, 0, 0, 0, 0, []int64{6}}}, 2, 0, 0, 2, 0},
		{"back to 0 without stamps", []string{unstamped(9), unstamped(0)}, []life{{"0", 1, 0, 0, 0, 0, 0, []int64{9}}, {"0", 1, 0, 0, 0, 0, 0, []int64{0}}}, 2, 0, 0, 2, 0},
		{"parts in another order", slices.Concat(part(7, 200, 300, "23:38:00"), part(7, 100, 199, "23:37:00"), part(7, 0, 99, "23:36:00")),
			[]life{{"0", 301, 0, 301, 0, 0, 0, counted(0, 300)}}, 301, 0, 0, 301, 0},
		{"parts in the order of their names", slices.Concat(part(7, 0, 99, "23:36:00"), part(7, 300, 400, "23:39:00"), part(7, 100, 199, "23:37:00"),
			part(7, 200, 299, "23:38:00")), []life{{"0", 401, 0, 401, 0, 0, 0, counted(0, 400)}}, 401, 0, 0, 401, 0},
		{"the second part first", slices.Concat(part(7, 100, 199, "23:37:00"), part(7, 0, 99, "23:36:00"), part(7, 200, 299, "23:38:00")),
			[]life{{"0", 300, 0, 300, 0, 0, 0, counted(0, 299)}}, 300, 0, 0, 300, 0},
		{"a part before the whole log", slices.Concat(part(7, 100, 199, "23:37:00"), part(7, 0, 99, "23:36:00"), part(7, 100, 199, "23:37:00")),
			[]life{{"0", 200, 0, 200, 0, 0, 0, counted(0, 199)}}, 200, 100, 0, 300, 0},
		{"the log and a part of it", slices.Concat(part(7, 0, 99, "23:36:00"), part(7, 100, 199, "23:37:00"), part(7, 0, 99, "23:36:00")),
			[]life{{"0", 200, 0, 200, 0, 0, 0, counted(0, 199)}}, 200, 100, 0, 300, 0},
		{"a restart before its engine's first start", slices.Concat(part(7, 0, 99, "23:38:00"), part(7, 0, 199, "23:36:00")),
			[]life{{"0", 200, 0, 200, 0, 0, 0, counted(0, 199)}, {"0", 100, 0, 100, 0, 0, 0, counted(0, 99)}}, 300, 0, 0, 300, 0},
		{"a restart whose end comes first", slices.Concat(part(7, 100, 199, "23:39:00"), part(7, 0, 299, "23:36:00"), part(7, 0, 99, "23:38:00")),
			[]life{{"0", 300, 0, 300, 0, 0, 0, counted(0, 299)}, {"0", 200, 0, 200, 0, 0, 0, counted(0, 199)}}, 500, 0, 0, 500, 0},
		{"parts of two processes", slices.Concat(part(8, 100, 199, "23:38:00"), part(7, 0, 99, "23:36:00")),
			[]life{{"0", 100, 0, 100, 0, 0, 0, counted(100, 199)}, {"0", 100, 0, 100, 0, 0, 0, counted(0, 99)}}, 200, 0, 0, 200, 0},
		{"passes that no part has", slices.Concat(part(7, 200, 299, "23:38:00"), part(7, 0, 99, "23:36:00")),
			[]life{{"0", 200, 100, 200, 0, 1, 0, append(counted(0, 99), counted(200, 299)...)}}, 200, 0, 0, 200, 0},
	} {
		lives, acc, got := livesOf(t, c.lines...)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
		if acc.Kept != c.kept || acc.Dropped[source.CodeDuplicate] != c.dup || acc.Dropped[source.CodeBadRecord] != c.bad ||
			acc.Dropped[source.CodeUnreadable] != int64(c.torn) || acc.Read != c.kept+c.dup+c.bad+int64(c.torn) || lives.Empty() {
			t.Errorf("%s: got %d read, %d kept and %v", c.name, acc.Read, acc.Kept, acc.Dropped)
		}
		want := fmt.Sprintf("vllm.max_num_batched_tokens: run.yaml says 11, %d of %d passes have another number, up to 12", c.beyond, c.beyond)
		if f := lives.Beyond.Findings("passes"); len(f) != 1 || f[0].Message != want {
			t.Errorf("%s: got %v, want %s", c.name, f, want)
		}
	}
}

// TestPassTraces: a trace of forward passes is read as one life of its producer.
func TestPassTraces(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "fpm.jsonl")
	repo.Write(t, fpmNamed+"\n"+"{}\n", name)
	acc := source.NewAccount(nil)
	c := NewLives(acc, dir, table.Parquet)
	how := source.Options{Workers: 1, Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}, AnyText: true}
	if err := c.Passes(context.Background(), []source.Input{{Path: name, Name: "fpm.jsonl"}}, how); err != nil {
		t.Fatal(err)
	}
	list, err := c.Close()
	want := fpmRow()
	if err != nil || len(list) != 1 || list[0].Rows != 1 || list[0].Engine != want.Engine || list[0].last.Index != want.Index || acc.Kept != 1 {
		t.Errorf("got %+v, %v, %d kept", list, err, acc.Kept)
	}
	counts := map[string]int64{}
	for _, s := range acc.ScopeCounts() {
		counts[s.Scope+" "+s.Event] = s.Count
	}
	if counts[FPMSchema+" iterations"] != 1 || c.Encoders != 0 {
		t.Errorf("got %v", counts)
	}
	c = NewLives(acc, filepath.Join(dir, "other"), table.Parquet)
	c.Abort()
}

// TestHitRatesAndPasses: a logged hit rate is kept for its engine, logged drafts are summed, and neither is a pass.
func TestHitRatesAndPasses(t *testing.T) {
	const rate = "(APIServer pid=1) INFO 11-21 23:21:43 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, " +
		"Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.4%, Prefix cache hit rate: 12.5%"
	const drafts = "(APIServer pid=1) INFO 11-21 23:21:43 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 1.80, " +
		"Accepted throughput: 28.60 tokens/s, Drafted throughput: 130.89 tokens/s, Accepted: 286 tokens, Drafted: 1309 tokens, " +
		"Per-position acceptance rate: 0.439, 0.193, 0.092, 0.075, Avg Draft acceptance rate: 21.8%"
	c, acc, _ := livesOf(t, rate, pass(7, 0, 4, "23:21:43", "5"), drafts, strings.Replace(drafts, "286", "14", 1))
	if want := (DraftCounts{Drafted: 2 * 1309, Accepted: 286 + 14}); c.Drafts != want {
		t.Errorf("got %+v, want %+v", c.Drafts, want)
	}
	want := []Statistics{{Engine: "0", HitFrac: 0.125, PromptRate: 1, OutputRate: 2, KVUsage: 0.004, StampNs: trace.Some(int64(28164103e9)), StampStepNs: 1e9}}
	if !reflect.DeepEqual(c.Statistics, want) {
		t.Errorf("got %+v, want %+v", c.Statistics, want)
	}
	for _, s := range acc.ScopeCounts() {
		if want := map[string]int64{"other lines": 3, "iterations": 1}[s.Event]; s.Scope != "vllm.log" || s.Count != want {
			t.Errorf("got %+v", s)
		}
	}
	if HasPass([]byte(rate)) || !HasPass([]byte(core25)) || HasPass([]byte("text")) {
		t.Error("a hit rate is no pass")
	}
}
