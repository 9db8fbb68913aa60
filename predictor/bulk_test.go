package predictor

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit/recordings"
	"github.com/blis-train/blis-train/trace"
)

// Batches survive our own reader without loss, every entry passes the field
// table, and the table is the struct.
func TestBulkRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	rows := make([]Row, 2500)
	for i := range rows {
		rows[i] = Row{DecisionNs: rng.Int64N(1 << 60), KVCachePercentage: rng.Float64() * 1.01, InputTokenLength: rng.Int64N(5000),
			NumRequestWaiting: rng.Int64N(20), RunningInflight: rng.Int64N(50), PrefillTokensInFlight: rng.Int64N(9000),
			PrefixCacheScore: rng.Float64(), TTFTMs: 1000 * rng.Float64(), TPOTMs: trace.Opt[float64]{V: rng.Float64() * 50, OK: i%3 > 0}}
	}
	var all []bulkEntry
	for _, tpot := range []bool{false, true} {
		all = append(all, Sample(rows, tpot, 500, 1)...)
	}
	var b bytes.Buffer
	if err := writeBulk(&b, all); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n != (len(all)+999)/1000 {
		t.Errorf("got %d batches for %d entries", n, len(all))
	}
	again, err := readBulk(&b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(all, again) {
		t.Error("the entries changed in a round trip")
	}
	var names []string
	for _, f := range fields() {
		names = append(names, f.Name)
	}
	e := reflect.TypeFor[bulkEntry]()
	for i := range e.NumField() {
		if got := e.Field(i).Tag.Get("json"); got != names[i] {
			t.Errorf("field %d: the struct has %s, the table %s", i, got, names[i])
		}
	}
	if len(names) != e.NumField() || len(names) != 14 {
		t.Errorf("got %d fields in the table and %d in the struct, want 14", len(names), e.NumField())
	}
}

func TestReadBulkRefuses(t *testing.T) {
	good := `"kv_cache_percentage":0.5,"input_token_length":1,"num_request_waiting":0,"num_request_running":0,"actual_ttft_ms":1,"actual_tpot_ms":0,"num_tokens_generated":0,"prefix_cache_score":0`
	for want, text := range map[string]string{
		"kv_cache_percentage: got 1.5":           strings.Replace(good, "0.5", "1.5", 1),
		"input_token_length: got 1.5":            strings.Replace(good, `"input_token_length":1`, `"input_token_length":1.5`, 1),
		"actual_ttft_ms: got x":                  strings.Replace(good, `"actual_ttft_ms":1`, `"actual_ttft_ms":"x"`, 1),
		"prefix_cache_score: missing":            strings.Replace(good, `,"prefix_cache_score":0`, "", 1),
		"got 1 fields that are not in the table": good + `,"surprise":1`,
		"timestamp: got \"yesterday\"":           good + `,"timestamp":"yesterday"`,
		"num_request_waiting: got -1":            strings.Replace(good, `"num_request_waiting":0`, `"num_request_waiting":-1`, 1),
		"pod_type: got 3":                        good + `,"pod_type":3`,
	} {
		_, err := readBulk(strings.NewReader(fmt.Sprintf("\n{\"entries\":[{%s}]}", text)))
		if err == nil || !strings.Contains(err.Error(), "line 2: entry 0: "+want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := readBulk(strings.NewReader(`{}`)); err == nil {
		t.Error("no entries: got no error")
	}
}

// fieldsJSON is the field table of TrainingEntry (llm-d-latency-predictor 04e44cd,
// training/training_server.py): names, types and ranges.
//
//go:embed fields.json
var fieldsJSON []byte

// field is one field of an entry.
type field struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"` // integer | number | string | timestamp
	Min      *float64 `json:"min"`
	Max      *float64 `json:"max"`
	Required bool     `json:"required"`
}

// fields is the committed field table.
func fields() []field {
	var out []field
	if err := json.Unmarshal(fieldsJSON, &out); err != nil {
		panic(err) // compiled in
	}
	return out
}

// readBulk reads batches, checks every entry against the field table and returns
// all entries. Errors name the line and the entry.
func readBulk(r io.Reader) ([]bulkEntry, error) {
	var out []bulkEntry
	lines := bufio.NewReader(r)
	for line := 1; ; line++ {
		text, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(text)) > 0 {
			entries, err := readBatch(text)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
			out = append(out, entries...)
		}
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func readBatch(text []byte) ([]bulkEntry, error) {
	var loose struct {
		Entries []map[string]any `json:"entries"`
	}
	if err := json.Unmarshal(text, &loose); err != nil {
		return nil, err
	}
	if loose.Entries == nil {
		return nil, fmt.Errorf("got no entries, want {\"entries\": [...]}")
	}
	fields := fields()
	for i, e := range loose.Entries {
		if err := checkEntry(fields, e); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	var b struct{ Entries []bulkEntry }
	err := json.Unmarshal(text, &b)
	return b.Entries, err
}

// checkEntry holds an entry against the table.
func checkEntry(fields []field, e map[string]any) error {
	known := 0
	for _, f := range fields {
		v, ok := e[f.Name]
		if !ok {
			if f.Required {
				return fmt.Errorf("%s: missing", f.Name)
			}
			continue
		}
		known++
		if err := f.check(v); err != nil {
			return err
		}
	}
	if known < len(e) {
		return fmt.Errorf("got %d fields that are not in the table", len(e)-known)
	}
	return nil
}

func (f *field) check(v any) error {
	if f.Type == "string" || f.Type == "timestamp" {
		text, ok := v.(string)
		if !ok {
			return fmt.Errorf("%s: got %v, want text", f.Name, v)
		}
		if _, err := time.Parse(time.RFC3339Nano, text); f.Type == "timestamp" && err != nil {
			return fmt.Errorf("%s: got %q, want an RFC 3339 time", f.Name, text)
		}
		return nil
	}
	x, ok := v.(float64)
	switch {
	case !ok:
		return fmt.Errorf("%s: got %v, want a number", f.Name, v)
	case f.Type == "integer" && x != math.Trunc(x):
		return fmt.Errorf("%s: got %g, want a whole number", f.Name, x)
	case f.Min != nil && x < *f.Min || f.Max != nil && x > *f.Max:
		return fmt.Errorf("%s: got %g, want it in its range", f.Name, x)
	}
	return nil
}

var updateColumns = flag.Bool("update-columns", false, "rewrite the table of columns in docs/predictor.md")

const columnsBegin, columnsEnd = "<!-- columns: generated by TestColumnsAreDocumented -->\n", "<!-- end of columns -->\n"

// The table of columns in docs/predictor.md is made of the struct's tags.
func TestColumnsAreDocumented(t *testing.T) {
	const file = "../docs/predictor.md"
	page := string(repo.Read(t, file))
	row := reflect.TypeFor[Row]()
	rows := "| column | type | unit | null | meaning |\n|---|---|---|---|---|\n"
	for i := range row.NumField() {
		f := row.Field(i)
		kind, null := f.Type, ""
		if kind.Kind() == reflect.Struct { // trace.Opt
			kind, null = kind.Field(0).Type, "null"
		}
		rows += fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", f.Tag.Get("col"), kind.Kind(), f.Tag.Get("unit"), null, f.Tag.Get("doc"))
	}
	before, rest, ok1 := strings.Cut(page, columnsBegin)
	_, after, ok2 := strings.Cut(rest, columnsEnd)
	switch want := before + columnsBegin + rows + columnsEnd + after; {
	case !ok1 || !ok2:
		t.Fatalf("%s: no marks around the columns", file)
	case want != page && *updateColumns:
		repo.Write(t, want, file)
	case want != page:
		t.Errorf("%s is stale: go test ./predictor -run TestColumnsAreDocumented -update-columns", file)
	}
}

// The page shows figures, reasons and drops, and keeps names from recordings inert.
func TestScoresPage(t *testing.T) {
	half := 0.5
	s := newScores()
	s.Models = []modelScore{{Scope: "all", Target: targetTTFT, Model: nameTrees, MAPE: &half, Coverage: &half},
		{Scope: "all", Target: targetE2E, Model: namePhysics, Reason: "no coefficients were given"}}
	s.HoldOut = []HoldOut{{Scope: "<b>s1</b>", Target: targetTPOT, Reason: "10 rows, want 30"}}
	s.Runs = []runAccount{{ID: "<script>alert(1)</script>", Requests: 12, Rows: 10, Dropped: map[string]int{"no_arrival": 2}}}
	html, _, err := Page(s)
	if err != nil {
		t.Fatal(err)
	}
	page := string(html)
	for _, want := range []string{"50.0", "no coefficients were given", "10 rows, want 30", "no_arrival 2", "end to end"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<script>alert") || strings.Contains(page, "<b>s1") {
		t.Error("a name from a recording became markup")
	}
}

// Of 100,000 rows in one bucket each is kept with the same chance: over blocks of
// the stream the counts pass a chi-square test, for several seeds.
func TestReservoirIsUniform(t *testing.T) {
	const n, keep, blocks = 100_000, 5000, 100
	for seed := range uint64(5) {
		r := newReservoir[int](1, keep, seed)
		for i := range n {
			r.Add(0, i)
		}
		var count [blocks]float64
		seen := map[int]bool{}
		r.Each(func(_ int, i int, _ float64) {
			count[i*blocks/n]++
			seen[i] = true
		})
		if len(seen) != keep {
			t.Fatalf("seed %d: kept %d different rows, want %d", seed, len(seen), keep)
		}
		chi2 := 0.0
		for _, c := range count {
			chi2 += (c - keep/blocks) * (c - keep/blocks) / (keep / blocks * (1 - keep/float64(n)))
		}
		if chi2 > 149 { // 0.999 quantile at 99 degrees of freedom
			t.Errorf("seed %d: chi-square %.0f over %d blocks of the stream", seed, chi2, blocks)
		}
	}
}

// Weights add up to the rows seen, bucket by bucket and in all; what a bucket
// keeps does not depend on the rows of others.
func TestReservoirWeights(t *testing.T) {
	r := newReservoir[int](3, 10, 1)
	alone := newReservoir[int](3, 10, 1)
	for i := range 1000 {
		in := 0
		if i%10 == 3 {
			in = 2
			alone.Add(2, i)
		}
		r.Add(in, i)
	}
	var sums [3]float64
	var kept, keptAlone []int
	r.Each(func(in int, i int, w float64) {
		sums[in] += w
		if in == 2 {
			kept = append(kept, i)
		}
	})
	alone.Each(func(_ int, i int, _ float64) { keptAlone = append(keptAlone, i) })
	if sums != [3]float64{900, 0, 100} {
		t.Errorf("got weights %v, want 900, 0, 100", sums)
	}
	for k := range kept {
		if kept[k] != keptAlone[k] {
			t.Fatalf("got %v beside other buckets, %v alone", kept, keptAlone)
		}
	}
}

// Ten million rows over all buckets (one in go test) stay below 200 MB.
func TestEvalReservoirMemory(t *testing.T) {
	n := 1_000_000
	if repo.Eval() {
		n = 10_000_000
	}
	r := newReservoir[Row](buckets, 500, 1)
	row := Row{RequestID: "x"}
	for i := range n {
		row.NumRequestWaiting = int64(i % 17)
		row.KVCachePercentage = float64(i%101) / 100
		row.PrefixCacheScore = float64(i%7) / 7
		r.Add(Bucket(&row), row)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d rows seen, heap %d MB", n, m.HeapAlloc>>20)
	if m.HeapAlloc > 200<<20 {
		t.Errorf("heap: got %d MB, want below 200", m.HeapAlloc>>20)
	}
	runtime.KeepAlive(r)
}

// No row at all is one error: the largest drop and what ends it.
func TestNoRowsIsOneError(t *testing.T) {
	d := &RowsDocument{Runs: []runAccount{{Requests: 4000, Dropped: map[string]int{"no_block_hashes": 3990, "no_first_token": 10}},
		{Requests: 2000, Dropped: map[string]int{"no_block_hashes": 1000, "request_in_warm_up": 1000}}}}
	err := d.Check()
	if err == nil || !strings.Contains(err.Error(), "got none of 6000 requests, want at least one; 4990 dropped as no_block_hashes") {
		t.Errorf("got %v, want the largest drop", err)
	}
	for _, want := range []string{"--prefix-score actual", "--shared-prefix-tokens"} {
		if !strings.Contains(trace.HintOf(err), want) {
			t.Errorf("hint: got %q, want %s", trace.HintOf(err), want)
		}
	}
	if d.Runs[1].Rows = 1; d.Check() != nil {
		t.Errorf("one row: got %v, want none", d.Check())
	}
}

// On every real and composed run rows and drops add up to the requests, and where
// every step is recorded the two sources of state agree on at least 99 % of the
// rows of a set. What differs falls between a pick-up or a finish and the next
// schedule(), or inside schedule().
func TestSharedRuns(t *testing.T) { sharedRuns(t, 1500) }

// TestEvalSharedRuns: the same of all runs.
func TestEvalSharedRuns(t *testing.T) {
	repo.NeedEval(t)
	sharedRuns(t, 4000)
}

// sharedRuns wants so many rows of the traced runs at least.
func sharedRuns(t *testing.T, leastReal int) {
	t.Helper()
	for _, c := range []struct {
		set, score string
		least      int // rows
	}{
		{recordings.RealSet, prefixIndex, leastReal}, {"real_stock_otlp", prefixIndex, 677}, {"real_requests_llmservingsim", prefixIndex, 600},
		{"composed", prefixActual, 5700}, // with slow evaluations
	} {
		if c.set == "composed" && !repo.Eval() {
			continue
		}
		var all stateAgreement
		rows := 0
		for _, x := range recordings.Shared(t, c.set) {
			run, o := x.Run, DefaultOptions()
			o.PrefixScore = c.score
			if c.set == "real_stock_otlp" || c.set == "real_requests_llmservingsim" {
				o.Shared = []string{"*prefill*=1024", "*=0"}
			}
			r, err := Build(source{Run: run, Deployment: x.Deployment}, o)
			if err != nil {
				t.Fatal(err)
			}
			sum := len(r.Rows)
			for _, n := range r.Dropped {
				sum += n
			}
			if sum != r.Requests || r.Requests != max(len(run.Requests), len(run.Observed)) && len(run.Requests) == 0 {
				t.Errorf("%s: %d rows and %v, want %d in all", run.ID, len(r.Rows), r.Dropped, r.Requests)
			}
			a := r.Agreement
			t.Logf("%-30s %4d rows of %4d, dropped %v; step and journey state agree on %d of %d (between steps %d, inside schedule() %d, other %d)",
				run.ID, len(r.Rows), r.Requests, r.Dropped, a.Equal, a.Rows, a.Between, a.Inside, a.Other)
			rows += len(r.Rows)
			all.Rows += a.Rows
			all.Equal += a.Equal
			all.Other += a.Other
		}
		t.Logf("%s: %d rows, agreement %d of %d", c.set, rows, all.Equal, all.Rows)
		if rows < c.least || float64(all.Equal) < 0.99*float64(all.Rows) || all.Other > 0 {
			t.Errorf("%s: got %d rows, %d of %d agree, %d unexplained; want at least %d, 99 %%, 0", c.set, rows, all.Equal, all.Rows, all.Other,
				c.least)
		}
	}
}

// KV usage rebuilt from journeys stays within 0.012 of what steps recorded, on
// average over the rows of a run, preempting and prefix-sharing runs included.
func TestRebuiltKVUsage(t *testing.T) { rebuiltKVUsage(t) }

// TestEvalRebuiltKVUsage: the same of all runs.
func TestEvalRebuiltKVUsage(t *testing.T) {
	repo.NeedEval(t)
	rebuiltKVUsage(t)
}

func rebuiltKVUsage(t *testing.T) {
	t.Helper()
	for _, set := range repo.Sets(recordings.RealSet, "composed") {
		for _, x := range recordings.Shared(t, set) {
			run, o := x.Run, DefaultOptions()
			o.PrefixScore = prefixActual
			recorded, err := Build(source{Run: run, Deployment: x.Deployment}, o)
			if err != nil {
				t.Fatal(err)
			}
			b := newRowBuilder(source{Run: run, Deployment: x.Deployment}, o)
			if !b.steps.complete || len(recorded.Rows) == 0 {
				continue
			}
			b.scorePrefixes()
			b.steps.complete = false // as if some were missing
			b.visitDecisions()
			byID := map[string]float64{}
			for _, r := range b.out.Rows {
				byID[r.RequestID] = r.KVCachePercentage
			}
			off := 0.0
			for _, r := range recorded.Rows {
				off += max(r.KVCachePercentage-byID[r.RequestID], byID[r.RequestID]-r.KVCachePercentage) / float64(len(recorded.Rows))
			}
			if len(b.out.Rows) != len(recorded.Rows) || off > 0.012 {
				t.Errorf("%s: got a mean difference of %.4f on %d rows, want at most 0.012 on %d", run.ID, off, len(b.out.Rows), len(recorded.Rows))
			}
		}
	}
}
