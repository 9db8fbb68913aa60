package autoscale

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
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestMetricsArePoints: answers of /metrics before and after the phases of two
// recordings become operating points. Means and counts are those of the clients and
// of the server's spans, medians lie in their bucket, and the points are fitted as
// those of a sweep are.
func TestMetricsArePoints(t *testing.T) {
	parent := repo.Shared(t, "data", "real_vllm_stock")
	o := pipeline.DefaultExtractOptions()
	o.Out, o.Batches = t.TempDir(), nil
	ext, err := pipeline.Extract(context.Background(), []string{parent}, o)
	if err != nil {
		t.Fatal(err)
	}
	for i, src := range pipeline.FitSources(o.Out, ext) {
		run, err := src.Load()
		if err != nil {
			t.Fatal(err)
		}
		r := &ext.Runs[i]
		dir := filepath.Join(parent, r.Folder)
		out := t.TempDir()
		phases := metricsOf(t, dir, out, r.Deployment.Workload)
		qo := DefaultOptions()
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
		if _, _, err := FitQueues(context.Background(), []*Server{s}, &qo, nil); err != nil {
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
