package enginelog

import (
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// answer is an answer of /metrics of a server with two engines, buckets out of order.
const answer = `# HELP vllm:x y
vllm:num_requests_running{engine="0",model_name="m, n"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m, n"} 4.0
vllm:num_requests_running{engine="1",model_name="m, n"} 5.0
vllm:time_to_first_token_seconds_bucket{engine="0",model_name="m, n",le="+Inf"} 10.0
vllm:time_to_first_token_seconds_bucket{engine="0",model_name="m, n",le="0.5"} 9.0
vllm:time_to_first_token_seconds_bucket{engine="0",model_name="m, n",le="0.1"} 2.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m, n"} 2.5
vllm:time_to_first_token_seconds_count{engine="0",model_name="m, n"} 10.0
vllm:time_per_output_token_seconds_sum{engine="1",model_name="m, n"} 0.25
vllm:e2e_request_latency_seconds_sum{engine="1",model_name="m, n"} 7
vllm:request_prompt_tokens_sum{engine="1",model_name="m, n"} 900
vllm:request_generation_tokens_count{engine="1",model_name="m, n"} 6
vllm:other_total{engine="0"} x
`

// TestReadSnapshot: every figure of an answer, its time from the caller, the header or the lines, and what is refused.
func TestReadSnapshot(t *testing.T) {
	zero, one := Series{"0", "m, n"}, Series{"1", "m, n"}
	s, err := ReadSnapshot([]byte(answer), "m.prom", 77)
	if err != nil {
		t.Fatal(err)
	}
	want := &Snapshot{Name: "m.prom", AtNs: 77, InFlight: map[Series]float64{zero: 7, one: 5}, Engines: map[Series]map[Measure]*Histogram{
		zero: {MeasureTTFT: {2.5, 10, []bucket{{0.1, 2}, {0.5, 9}, {math.Inf(1), 10}}}},
		one:  {MeasureITL: {0.25, 0, nil}, MeasureE2E: {7, 0, nil}, MeasurePrompt: {900, 0, nil}, MeasureOutput: {0, 6, nil}},
	}}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got %+v\nwant %+v", s, want)
	}
	if h := s.Histogram(Series{"2", ""}, MeasureE2E); h.Count != 0 || s.Engines[Series{"2", ""}][MeasureE2E] != h {
		t.Error("a series without observations is empty")
	}
	stamped := strings.Replace(answer, `running{engine="1",model_name="m, n"} 5.0`, `running{engine="1",model_name="m, n"} 5.0 1700000000123`, 1)
	header := "HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 23:21:43 GMT\r\n\r\n"
	for _, c := range []struct {
		text string
		atNs int64
	}{{stamped, 1700000000123000000}, {header + answer, 1795303303000000000}, {header + stamped, 1700000000123000000}} {
		s, err := ReadSnapshot([]byte(c.text), "m.prom", 77)
		if err != nil || s.AtNs != c.atNs || !s.IsStamped || s.InFlight[one] != 5 || !IsMetrics([]byte(c.text)) {
			t.Errorf("got %+v and %v, want %d", s, err, c.atNs)
		}
	}
	for _, c := range []struct{ text, want string }{
		{strings.Replace(answer, "} 2.5", "} -1", 1), `m.prom:8:1: metric vllm:time_to_first_token_seconds_sum: got "-1", want a number >= 0`},
		{header + strings.Replace(answer, "} 3.0", "} NaN", 1), `m.prom:5:1: metric vllm:num_requests_running: got "NaN", want a number >= 0`},
		{strings.Replace(answer, `,le="0.5"`, "", 1), "m.prom:6:1: metric vllm:time_to_first_token_seconds_bucket: got no bound le"},
		{"vllm:num_requests_running{} 3\n", "m.prom:1:1: got no histogram of vLLM, want /metrics of a server that has served"},
	} {
		_, err := ReadSnapshot([]byte(c.text), "m.prom", 77)
		if err == nil || strings.Replace(err.Error(), ":0:", ":1:", 1) != c.want && strings.Replace(c.want, ":1: ", ": ", 1) != err.Error() {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	for text, want := range map[string]bool{"vllm:x{} 1": true, "  sglang:x{} 1": true, "# HELP\nsglang:x": true, "# HELP\nother:x": false, "x vllm:y": false, "": false,
		"HTTP/1.1 200 OK\n\nvllm:x": true} {
		if got := IsMetrics([]byte(text)); got != want {
			t.Errorf("%q: got %t", text, got)
		}
	}
	// The label of another name, a value with commas and quotes missing.
	for _, c := range [][3]string{{`le="1", engine="0"`, "engine", "0"}, {`le="1"`, "engine", ""}, {`le=1`, "le", ""}, {`a="x, le=",le="2"`, "le", "2"}} {
		if got := metricLabel(c[0], c[1]); got != c[2] {
			t.Errorf("%s of %s: got %q, want %q", c[1], c[0], got, c[2])
		}
	}
}

// TestMedianSince: between two answers, 10 observations: 2 up to 0.1, 7 up to 0.5 and 1 above. Half of them are
// reached in the second bucket, whose middle is 0.3.
func TestMedianSince(t *testing.T) {
	inf := math.Inf(1)
	before := &Histogram{Count: 5, buckets: []bucket{{0.1, 1}, {0.5, 4}, {inf, 5}}}
	for _, c := range []struct {
		count float64
		n     [3]float64 // up to 0.1, 0.5 and above, since before
		want  float64
	}{{10, [3]float64{2, 9, 10}, 0.3}, {10, [3]float64{5, 9, 10}, 0.05}, {10, [3]float64{4, 5, 10}, 0.3}, {10, [3]float64{1, 4, 10}, 0.5}, {0, [3]float64{0, 0, 0}, math.NaN()}} {
		after := &Histogram{Count: 5 + c.count, buckets: []bucket{{0.1, 1 + c.n[0]}, {0.5, 4 + c.n[1]}, {inf, 5 + c.n[2]}}}
		if got := after.MedianSince(before); math.Abs(got-c.want) > 1e-12 && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%v: got %g, want %g", c.n, got, c.want)
		}
	}
	// An earlier answer with other buckets is not subtracted.
	if got := (&Histogram{Count: 10, buckets: []bucket{{0.2, 6}, {inf, 10}}}).MedianSince(&Histogram{buckets: []bucket{{0.1, 5}}}); got != 0.1 {
		t.Errorf("got %g", got)
	}
}

// scrapes are three answers of one server and one of another, as AIPerf exports them.
const scrapes = `{"endpoint_url":"a","timestamp_ns":1000,"benchmark_phase":"warmup","metrics":{"vllm:prefix_cache_queries":[{"value":10}],"vllm:prefix_cache_hits":[{"value":3}]}}

{"endpoint_url":"a","timestamp_ns":3000,"benchmark_phase":"main","metrics":{"vllm:prefix_cache_queries_total":[{"value":40},{"value":2}],"vllm:prefix_cache_hits":[{"value":30}],"vllm:num_preemptions":[{"value":4}],"vllm:e2e_request_latency_seconds":[{"labels":{"engine":"0","model_name":"m"},"sum":5,"count":2,"buckets":{"+Inf":2,"1.5":1,"x":9}}],"vllm:num_requests_running":[{"labels":{"engine":"0","model_name":"m"},"value":6}],"vllm:num_requests_waiting":[{"labels":{"engine":"0","model_name":"m"},"value":1}]}}
{"endpoint_url":"a","timestamp_ns":2000,"benchmark_phase":"main","metrics":{}}
{"endpoint_url":"b","timestamp_ns":2500,"benchmark_phase":"warmup","metrics":{"vllm:prefix_cache_queries":[{"value":100}],"vllm:prefix_cache_hits":[{"value":50}],"vllm:spec_decode_num_draft_tokens":[{"value":8}]}}
{"endpoint_url":"a","timestamp_ns":4000,"benchmark_phase":"warmup","metrics":{"vllm:prefix_cache_queries":[{"value":43}],"vllm:prefix_cache_hits":[{"value":31}]}}
`

// TestScrapes: the first and last answer of each server and phase, and the counters of all servers when the export
// begins (server a: 10 and 3, b: 100 and 50) and ends (a: 43 and 31, b the same).
func TestScrapes(t *testing.T) {
	pairs, err := ReadScrapes([]byte(scrapes), "x.jsonl")
	if err != nil || len(pairs) != 3 {
		t.Fatalf("got %d pairs and %v", len(pairs), err)
	}
	for i, want := range []struct {
		name     string
		from, to int64
	}{{"x.jsonl warmup", 1000, 4000}, {"x.jsonl main", 3000, 3000}, {"x.jsonl warmup", 2500, 2500}} {
		a, b := pairs[i][0], pairs[i][1]
		if a.Name != want.name || a.AtNs != want.from || b.AtNs != want.to || !a.IsStamped {
			t.Errorf("got %s from %d to %d, want %+v", a.Name, a.AtNs, b.AtNs, want)
		}
	}
	series := Series{"0", "m"}
	want := &Histogram{5, 2, []bucket{{1.5, 1}, {math.Inf(1), 2}}}
	if s := pairs[1][0]; !reflect.DeepEqual(s.Engines[series][MeasureE2E], want) || s.InFlight[series] != 7 {
		t.Errorf("got %+v", s)
	}
	if _, err := ReadScrapes([]byte("\n{\"timestamp_ns\":0}\n"), "x.jsonl"); err == nil || !strings.HasPrefix(err.Error(), "x.jsonl:2") {
		t.Errorf("an answer without a time: got %v", err)
	}
	for text, want := range map[string]bool{scrapes: true, strings.Replace(scrapes, "endpoint_url", "url", 1): false, strings.Replace(scrapes, "timestamp_ns", "time", 1): false,
		strings.Replace(scrapes, `"metrics"`, `"m"`, 1): false, "[" + scrapes: false, " " + scrapes: true} {
		if got := IsScrapes([]byte(text)); got != want {
			t.Errorf("%.40s: got %t", text, got)
		}
	}
}

// TestReadCounters: the counts of an answer by name, of an export of AIPerf at its two ends, and files that have none.
func TestReadCounters(t *testing.T) {
	const vllmText = "vllm:prefix_cache_queries_total{a=\"0\"} 31654.0\nvllm:prefix_cache_queries_total{a=\"1\"} 6.0\nvllm:prefix_cache_hits_total{a=\"0\"} 21760.0\n" +
		"vllm:num_preemptions_total{a=\"0\"} 3.0\nvllm:spec_decode_num_draft_tokens_total{a=\"0\"} 128.0\n" +
		"vllm:spec_decode_num_accepted_tokens_total{a=\"0\"} 37.0\n"
	const sglangText = "sglang:prompt_tokens_total{a=\"0\"} 12\nsglang:cached_tokens_total{a=\"0\"} 5\n"
	for _, c := range []struct {
		name, text string
		want       []Counters
	}{
		{"vllm", vllmText, []Counters{{"f", 31660, 21760, 128, 37, 3, false}}},
		{"sglang", sglangText, []Counters{{"f", 12, 5, 0, 0, 0, true}}},
		{"scrapes", scrapes, []Counters{{"f", 110, 53, 8, 0, 0, false}, {"f", 143, 81, 8, 0, 0, false}}},
		{"no hits", strings.Replace(vllmText, "hits_total", "misses_total", 1), nil},
		{"no queries", strings.ReplaceAll(vllmText, "queries_total", "questions_total"), nil},
		{"negative", strings.Replace(vllmText, " 3.0", " -3.0", 1), nil},
		{"no count", strings.Replace(vllmText, " 3.0", " 9007199254740992", 1), nil},
		{"just a count", strings.Replace(vllmText, " 3.0", " 9007199254740991", 1), []Counters{{"f", 31660, 21760, 128, 37, 1<<53 - 1, false}}},
		{"no labels", strings.Replace(vllmText, `{a="0"} 3.0`, " 3.0", 1), []Counters{{"f", 31660, 21760, 128, 37, 0, false}}},
		{"no space", strings.Replace(vllmText, "} 3.0", "}3.0", 1), nil},
		{"scrapes without hits", strings.ReplaceAll(scrapes, "cache_hits", "cache_misses"), nil},
	} {
		name := filepath.Join(t.TempDir(), "f")
		repo.Write(t, c.text, name)
		in := source.Input{Path: name, Name: "f"}
		got, err := ReadCounters(&in, source.Options{Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}})
		for i := range got { // which of the lines was last is not fixed
			got[i].IsSGLang = got[i].IsSGLang && c.name == "sglang"
		}
		if err != nil || !reflect.DeepEqual(got, c.want) || in.Size != int64(len(c.text)) || len(in.Sum) != 64 {
			t.Errorf("%s: got %+v and %v, want %+v", c.name, got, err, c.want)
		}
	}
}

// TestLimits: steps of the size that is stated, and of one more; another number of KV blocks contradicts either way, a
// limit that is not stated none.
func TestLimits(t *testing.T) {
	l := LimitsOf(&vllm.Engine{MaxNumSeqs: 4, MaxNumBatchedTokens: 64, KVBlocksGPU: trace.Some(int64(100))})
	l.See(4, 64, 100)
	l.See(4, 63)
	if got := l.Findings("steps"); got != nil {
		t.Errorf("within the limits: got %v", got)
	}
	l.See(5, 64, 99)
	l.See(7, 65, 101)
	l.See(6, 0, 98)
	got := l.Findings("steps")
	want := []string{
		"vllm.max_num_seqs: run.yaml says 4, 3 of 5 steps have another number, up to 7",
		"vllm.max_num_batched_tokens: run.yaml says 64, 1 of 5 steps have another number, up to 65",
		"vllm.kv_blocks_total_gpu: run.yaml says 100, 3 of 5 steps have another number, up to 101",
	}
	if len(got) != 3 {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i].Message != want[i] {
			t.Errorf("got %s, want %s", got[i].Message, want[i])
		}
	}
	none := LimitsOf(&vllm.Engine{})
	none.See(1000, 1000, 1000)
	if got := none.Findings("steps"); got != nil {
		t.Errorf("nothing stated: got %v", got)
	}
}
