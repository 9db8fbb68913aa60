package clients

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
)

// TestMetricsText: the median is the middle of its bucket, a restart and idle time are no points, and a line that is no
// number says so.
func TestMetricsText(t *testing.T) {
	text := func(n, sum string, buckets string) []byte {
		var b strings.Builder
		b.WriteString("# HELP vllm:x y\n")
		for _, m := range []string{"time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds",
			"request_prompt_tokens", "request_generation_tokens"} {
			b.WriteString("vllm:" + m + "_count{engine=\"0\"} " + n + "\nvllm:" + m + "_sum{engine=\"0\"} " + sum)
			if strings.HasSuffix(m, "tokens") {
				b.WriteString("00") // 20 a request
			}
			b.WriteString("\n")
		}
		running := " 0\n"
		if n == "0" {
			running = " 1\n"
		}
		b.WriteString("vllm:num_requests_running{engine=\"0\"}" + running)
		return []byte(b.String() + buckets)
	}
	const first = `vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} `
	const second = `vllm:time_to_first_token_seconds_bucket{engine="0",le="0.3"} `
	const zero, full = first + "0\n" + second + "0\n", first + "5\n" + second + "20\n"
	var list []*enginelog.Snapshot
	for i, b := range [][]byte{text("0", "0", zero), text("20", "4", full), text("20", "4", full), text("3", "1", zero)} {
		s, err := enginelog.ReadSnapshot(b, "m", int64(i)*10e9)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	f := LevelsBetween(list)
	if len(f.Levels) != 1 || f.Read != 3 || f.Dropped[codeIncomplete] != 2 {
		t.Fatalf("got %+v", f)
	}
	p := f.Levels[0]
	if p.RateRPS != 2 || math.Abs(p.TTFTMeanMs-200) > 1e-9 || math.Abs(p.TTFTMedianMs-200) > 1e-9 {
		t.Errorf("got %+v, want 2 requests/s, TTFT of 200 ms in a bucket of 200", p)
	}
	if _, err := enginelog.ReadSnapshot([]byte("# x vllm:\nvllm:request_prompt_tokens_sum{engine=\"0\"} many\n"), "m", 0); err == nil ||
		!strings.Contains(err.Error(), `m:2: metric vllm:request_prompt_tokens_sum: got "many", want a number >= 0`) {
		t.Errorf("got %v, want file, line and value", err)
	}
}

// answerOf is an answer of /metrics of one model after n requests of 0.2 s each, with a number of requests in flight.
func answerOf(model string, n, inFlight int) string {
	var b strings.Builder
	labels := fmt.Sprintf(`{engine="0",model_name="%s"}`, model)
	for _, m := range []string{"time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds",
		"request_prompt_tokens", "request_generation_tokens"} {
		each := 0.2
		if strings.HasSuffix(m, "tokens") {
			each = 20
		}
		fmt.Fprintf(&b, "vllm:%s_count%s %d\nvllm:%s_sum%s %g\n", m, labels, n, m, labels, each*float64(n))
	}
	fmt.Fprintf(&b, "vllm:time_to_first_token_seconds_bucket%s,le=\"0.3\"} %d\n", strings.TrimSuffix(labels, "}"), n)
	fmt.Fprintf(&b, "vllm:num_requests_running%s %d\n", labels, inFlight)
	return b.String()
}

// TestFileTimesAreNoClock: the times of two files are those of the answers in them only where rate x E2E is what the
// server had in flight; the date of an HTTP header is always.
func TestFileTimesAreNoClock(t *testing.T) {
	for name, c := range map[string]struct {
		seconds  float64 // between the files
		inFlight int
		header   bool
		levels   int
	}{
		"the server's own times":         {20, 2, false, 1}, // 200 requests of 0.2 s in 20 s are 2 in flight
		"copied at once":                 {0.01, 2, false, 0},
		"copied a day later":             {86_400, 2, false, 0},
		"nothing in flight at both ends": {20, 0, false, 0},
		"the header states when":         {0.01, 0, true, 1},
	} {
		var list []*enginelog.Snapshot
		for i, n := range []int{0, 200} {
			text := "# HELP vllm:x y\n" + answerOf("m", n, c.inFlight)
			if c.header {
				text = fmt.Sprintf("HTTP/1.1 200 OK\r\ndate: Sat, 01 Nov 2025 10:00:%02d GMT\r\nserver: uvicorn\r\n\r\n", 20*i) + text
			}
			if !enginelog.IsMetrics([]byte(text)) {
				t.Fatalf("%s: no metrics", name)
			}
			s, err := enginelog.ReadSnapshot([]byte(text), "m", int64(1e9*c.seconds)*int64(i)+1e18)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, s)
		}
		f := LevelsBetween(list)
		if len(f.Levels) != c.levels || f.Read != 1 {
			t.Errorf("%s: got %d levels of %d, want %d: %v", name, len(f.Levels), f.Read, c.levels, f.Findings)
		}
		if c.levels == 1 && len(f.Levels) == 1 && math.Abs(f.Levels[0].RateRPS-10) > 1e-9 {
			t.Errorf("%s: got %g requests/s, want 10", name, f.Levels[0].RateRPS)
		}
	}
}

// TestTwoModelsAreTwoSeries: two model_name label sets in one answer are two levels with their own figures.
func TestTwoModelsAreTwoSeries(t *testing.T) {
	var list []*enginelog.Snapshot
	for i, n := range []int{0, 100} {
		text := answerOf("a", n, 1) + answerOf("b,c", 3*n, 3) // names may have commas
		s, err := enginelog.ReadSnapshot([]byte(text), "m", int64(i)*20e9)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	f := LevelsBetween(list)
	if len(f.Levels) != 2 || f.Levels[0].RateRPS != 5 || f.Levels[1].RateRPS != 15 ||
		f.Levels[1].Sweep != "metrics, engine 0, model b,c" {
		t.Errorf("got %+v, %v; want 5 and 15 requests/s", f.Levels, f.Findings)
	}
}

// TestScrapesOfAIPerf: its cumulative export has times, so a phase is a level of its first and last answer.
func TestScrapesOfAIPerf(t *testing.T) {
	line := func(endpoint, phase string, second, n int) string {
		sample := func(sum float64) string {
			return fmt.Sprintf(`[{"labels":{"engine":"0","model_name":"m"},"buckets":{"0.1":0,"0.3":%d,"+Inf":%d},"sum":%g,"count":%d}]`, n, n, sum*float64(n), n)
		}
		return fmt.Sprintf(`{"endpoint_url":"%s","timestamp_ns":%d,"benchmark_phase":"%s","metrics":{`+
			`"vllm:time_to_first_token_seconds":%s,"vllm:inter_token_latency_seconds":%s,"vllm:e2e_request_latency_seconds":%s,`+
			`"vllm:request_prompt_tokens":%s,"vllm:request_generation_tokens":%s,`+
			`"vllm:num_requests_running":[{"labels":{"engine":"0","model_name":"m"},"value":2.0}]}}`+"\n", endpoint,
			int64(1_760_000_000e9)+int64(second)*1e9, phase, sample(0.2), sample(0.01), sample(1), sample(512), sample(100))
	}
	text := line("http://a", "warmup", 0, 0) + line("http://a", "warmup", 5, 20) + line("http://a", "profiling", 6, 20) +
		line("http://b", "profiling", 6, 0) + line("http://a", "profiling", 30, 100) + line("http://a", "profiling", 46, 220) +
		line("http://b", "profiling", 46, 80)
	if !enginelog.IsScrapes([]byte(text)) || IsClientFile([]byte(text)) {
		t.Fatal("the export is not recognised")
	}
	pairs, err := enginelog.ReadScrapes([]byte(text), "server_metrics_export.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	f := LevelsOfScrapes(pairs)
	var rates []float64
	for _, l := range f.Levels {
		rates = append(rates, l.RateRPS)
	}
	if !slices.Equal(rates, []float64{4, 5, 2}) || f.Levels[1].TTFTMedianMs != 200 {
		t.Errorf("got rates %v, want 4 of the warm-up, then 5 and 2: %+v", rates, f)
	}
	if _, err := enginelog.ReadScrapes([]byte(text+"{\n"), "x.jsonl"); err == nil || !strings.HasPrefix(err.Error(), "x.jsonl:8") {
		t.Errorf("got %v, want the line of what is no answer", err)
	}
}

// FuzzSnapshot: no text panics the reader of /metrics, and what it takes can be
// compared with itself.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte("# HELP vllm:x y\nvllm:request_prompt_tokens_sum{engine=\"0\"} 3 17\n" +
		"vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"+Inf\"} 3\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := enginelog.ReadSnapshot(data, "m", 0)
		if err != nil {
			return
		}
		if got := LevelsBetween([]*enginelog.Snapshot{s, s}); len(got.Levels) > 0 {
			t.Errorf("got %+v between equal answers", got.Levels)
		}
	})
}
