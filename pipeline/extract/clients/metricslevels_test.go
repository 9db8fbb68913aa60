package clients

import (
	"math"
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
