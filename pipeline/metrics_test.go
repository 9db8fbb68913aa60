package pipeline

import (
	"bytes"
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/queue"
	"github.com/blis-train/blis-train/pipeline/sweep"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
	"github.com/blis-train/blis-train/trace"
)

// TestMetricsArePoints: answers of /metrics before and after the phases of two
// recordings become operating points. Means and counts are those of the clients and
// of the server's spans, medians lie in their bucket, and the points are fitted as
// those of a sweep are.
func TestMetricsArePoints(t *testing.T) {
	parent := repo.Shared(t, "data", "real_vllm_stock")
	o := DefaultExtractOptions()
	o.Out, o.Batches = t.TempDir(), nil
	ext, err := Extract(context.Background(), []string{parent}, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, src := range FitSources(o.Out, ext) {
		run, err := src.Load()
		if err != nil {
			t.Fatal(err)
		}
		r := &ext.Runs[i]
		dir := filepath.Join(parent, r.Folder)
		out := t.TempDir()
		phases := metricsOf(t, dir, out, r.Deployment.Workload)
		qo := queue.DefaultOptions()
		qo.Sweep.MaxBatch, qo.Sweep.MaxBatchedTokens = 16, 1024
		s, inputs, err := SweepServer([]string{out}, func(name string) ([]byte, result.Input, error) {
			b, err := os.ReadFile(name)
			return b, result.Input{Name: filepath.Base(name)}, err
		}, &qo)
		if err != nil {
			t.Fatal(err)
		}
		if len(inputs) != 2*len(phases) || s.Account.Kept == 0 || len(s.Windows) != s.Account.Kept {
			t.Fatalf("%s: got %d windows of %d answers, %+v", src.ID, len(s.Windows), len(inputs), s.Account)
		}
		for _, w := range s.Windows {
			checkPoint(t, src.ID, run, w.Requests, w.Shape.Prompt, w.Shape.Output, w.TTFTMs)
		}
		if _, _, err := FitQueues(context.Background(), []*queue.Server{s}, &qo, nil); err != nil {
			t.Errorf("%s: %v", src.ID, err)
		}
		t.Logf("%s: %d points of %d answers", src.ID, len(s.Windows), len(inputs))
	}
}

// metricsOf unpacks the answers of a run's phases, written when they were asked for.
func metricsOf(t *testing.T, dir, out string, workload map[string]any) []string {
	t.Helper()
	var names []string
	for _, p := range workload["phases"].([]any) {
		phase := p.(map[string]any)
		name := phase["name"].(string)
		if phase["metrics_before"] == nil {
			continue
		}
		names = append(names, name)
		for _, side := range []string{"before", "after"} {
			packed, err := os.ReadFile(filepath.Join(dir, phase["metrics_"+side].(string)))
			if err != nil {
				t.Fatal(err)
			}
			rd, err := zstd.NewReader(bytes.NewReader(packed))
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(rd)
			rd.Close()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(out, name+"_"+side+".prom")
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
			at := time.Unix(0, int64(phase["metrics_"+side+"_ns"].(int)))
			if err := os.Chtimes(file, at, at); err != nil {
				t.Fatal(err)
			}
		}
	}
	return names
}

// checkPoint compares a point with the phase that has its number of requests.
func checkPoint(t *testing.T, id string, run *trace.Run, requests int, prompt, output, ttftMs float64) {
	t.Helper()
	counts, prompts, outputs, ttfts := map[string]int{}, map[string]float64{}, map[string]float64{}, map[string][]float64{}
	byID := map[string]*trace.Request{}
	for i := range run.Requests {
		byID[strings.TrimSuffix(strings.TrimPrefix(run.Requests[i].APIID.V, "cmpl-"), "-0")] = &run.Requests[i]
	}
	for i := range run.Observed {
		c := &run.Observed[i]
		counts[c.Phase.V]++
		prompts[c.Phase.V] += float64(c.PromptTokens.V)
		outputs[c.Phase.V] += float64(c.OutputTokens.V)
		if r := byID[c.ID]; r != nil {
			ttfts[c.Phase.V] = append(ttfts[c.Phase.V], r.StockTTFTUs.V/1000)
		}
	}
	for phase, n := range counts {
		if n != requests {
			continue
		}
		if p, o := prompts[phase]/float64(n), outputs[phase]/float64(n); math.Abs(p-prompt) > 1e-9*p || math.Abs(o-output) > 1e-9*o {
			continue
		}
		if mean := stat.Mean(ttfts[phase]); len(ttfts[phase]) != n || math.Abs(mean-ttftMs) > 1e-6*mean {
			t.Errorf("%s %s: got a mean TTFT of %.6f ms, the spans' is %.6f (%d of %d)", id, phase, ttftMs, mean, len(ttfts[phase]), n)
		}
		return
	}
	t.Errorf("%s: no phase of %d requests with %.3f and %.3f tokens", id, requests, prompt, output)
}

// TestMetricsText: the median is the middle of its bucket with half its width as
// error, a restart and idle time are no points, and a line that is no number says so.
func TestMetricsText(t *testing.T) {
	text := func(n, sum string, buckets string) []byte {
		var b strings.Builder
		b.WriteString("# HELP vllm:x y\n")
		for _, m := range []string{"time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds",
			"request_prompt_tokens", "request_generation_tokens"} {
			b.WriteString("vllm:" + m + "_count{engine=\"0\"} " + n + "\nvllm:" + m + "_sum{engine=\"0\"} " + sum + "\n")
		}
		return []byte(b.String() + buckets)
	}
	const first = `vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1"} `
	const second = `vllm:time_to_first_token_seconds_bucket{engine="0",le="0.3"} `
	const zero, full = first + "0\n" + second + "0\n", first + "5\n" + second + "20\n"
	var list []*sweep.Snapshot
	for i, b := range [][]byte{text("0", "0", zero), text("20", "4", full), text("20", "4", full), text("3", "1", zero)} {
		s, err := sweep.ReadSnapshot(b, "m", int64(i)*10e9)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, s)
	}
	f := sweep.Between(list)
	if len(f.Points) != 1 || f.Read != 3 || f.Dropped["metrics_reset"] != 1 || f.Dropped["incomplete_benchmark"] != 1 {
		t.Fatalf("got %+v", f)
	}
	p := f.Points[0]
	if p.RateRPS != 2 || math.Abs(p.TTFTMeanMs-200) > 1e-9 || math.Abs(p.TTFTMedianMs-200) > 1e-9 || math.Abs(p.TTFTMedianErrMs-100) > 1e-9 {
		t.Errorf("got %+v, want 2 requests/s, TTFT of 200 ms in a bucket of 200", p)
	}
	if _, err := sweep.ReadSnapshot([]byte("# x vllm:\nvllm:request_prompt_tokens_sum{engine=\"0\"} many\n"), "m", 0); err == nil ||
		!strings.Contains(err.Error(), `m:2: metric vllm:request_prompt_tokens_sum: got "many", want a number >= 0`) {
		t.Errorf("got %v, want file, line and value", err)
	}
}
