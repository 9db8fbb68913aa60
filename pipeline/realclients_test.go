package pipeline

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
)

// readByHand is what a client file has, read by a script that is not part of this program.
type readByHand struct {
	requests, failed           int
	promptTokens, outputTokens int64   // of those that did not fail
	ttftMs, itlMs, e2eMs       float64 // medians; 0 where the client has none
	gaps                       int
}

// TestRealClients: the files in testdata/clients were written by the clients that their names state, against a stub
// server that streams at the times of a small engine and logs its passes (testdata/clients/README.md). Each gives what
// the file has: requests and failures, the server's token counts where the answers had usage, and the medians of TTFT,
// of the gaps between chunks and of the time to the last chunk, without those of first chunks that are no first tokens.
// Prompts without usage have the log's count, 13 tokens more in chat. The log pairs the requests with its passes; fewer
// where a busy client sent them in another order than they arrived (AIPerf, GuideLLM).
func TestRealClients(t *testing.T) {
	for _, c := range []struct {
		name   string
		want   readByHand
		paired int
		queued int // requests with the server's own queueing delay
	}{
		{"aiperf-chat", readByHand{24, 0, 1712, 418, 292.283, 0.000, 975.779, 215}, 22, 24},
		{"aiperf-errors", readByHand{24, 4, 1510, 361, 139.687, 11.270, 813.521, 341}, 20, 0},
		{"aiperf-hidden", readByHand{24, 0, 1732, 418, 0, 0, 1306.616, 0}, 9, 0},
		{"aiperf-nousage", readByHand{24, 0, 1751, 408, 29.496, 10.950, 250.698, 384}, 24, 0},
		{"aiperf-onechunk", readByHand{24, 0, 1689, 437, 856.878, 0, 1435.135, 0}, 24, 24},
		{"guidellm-completions", readByHand{24, 0, 1699, 342, 24.784, 0, 216.434, 0}, 24, 24},
		{"guidellm-errors", readByHand{23, 4, 1537, 248, 205.982, 0, 485.239, 0}, 10, 0},
		{"guidellm-hidden", readByHand{24, 0, 2011, 342, 0, 0, 260.302, 0}, 22, 0},
		{"guidellm-onechunk", readByHand{24, 0, 2011, 342, 43.648, 0, 209.458, 0}, 24, 24},
		{"inference-perf-chat", readByHand{24, 0, 1440, 384, 119.270, 27.035, 569.903, 360}, 24, 0},
		{"inference-perf-completions", readByHand{24, 0, 1450, 346, 36.999, 10.406, 243.726, 322}, 24, 0},
		{"inference-perf-errors", readByHand{24, 4, 1200, 320, 99.993, 14.660, 471.244, 300}, 20, 0},
		{"inference-perf-nousage", readByHand{24, 0, 1440, 384, 71.421, 12.103, 438.013, 360}, 24, 0},
		{"inference-perf-onechunk", readByHand{24, 0, 1440, 384, 0, 0, 317.060, 0}, 24, 0},
		{"sglang-chat", readByHand{24, 0, 1338, 297, 29.465, 8.570, 147.890, 273}, 24, 0},
		{"sglang-completions", readByHand{24, 0, 1026, 297, 41.200, 12.588, 206.330, 273}, 24, 0},
		{"sglang-merged", readByHand{24, 0, 1338, 297, 0, 0, 447.824, 0}, 24, 0},
		{"sglang-native", readByHand{24, 0, 1026, 297, 33.012, 10.926, 199.500, 273}, 24, 0},
		{"sglang-onechunk", readByHand{24, 0, 1338, 297, 0, 0, 297.055, 0}, 24, 0},
		{"vllm-bench-chat", readByHand{24, 0, 1786, 356, 21.326, 8.527, 197.353, 332}, 24, 0},
		{"vllm-bench-completions", readByHand{24, 0, 1474, 356, 57.115, 13.140, 284.984, 332}, 24, 0},
		{"vllm-bench-errors", readByHand{24, 4, 1577, 308, 25.344, 8.510, 180.750, 288}, 20, 0},
		{"vllm-bench-hidden", readByHand{24, 0, 1786, 356, 0, 0, 255.984, 0}, 24, 0},
		{"vllm-bench-merged", readByHand{24, 0, 1786, 356, 125.609, 68.831, 395.053, 102}, 24, 0},
		{"vllm-bench-nousage", readByHand{24, 0, 1786, 356, 486.880, 1.361, 1121.734, 332}, 24, 0},
		{"vllm-bench-onechunk", readByHand{24, 0, 1786, 356, 0, 0, 168.706, 0}, 24, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, _ := plantedDir(t)
			repo.Write(t, strings.NewReplacer("0.24.0", "0.33.0", "128", "16", "2048", "256").Replace(plantedRun), dir, "run.yaml")
			from := filepath.Join(repo.Root(t), "testdata", "clients")
			files, err := filepath.Glob(filepath.Join(from, c.name+"-*"))
			if err != nil || len(files) < 2 {
				t.Fatalf("got the files %v, %v", files, err)
			}
			for _, file := range files {
				repo.Write(t, repo.Read(t, file), dir, filepath.Base(file))
			}
			run, warnings := extractPlanted(t, dir)
			var got readByHand
			var ttfts, itls, e2es []float64
			paired := 0
			queued := 0
			for i := range run.Observed {
				r := &run.Observed[i]
				got.requests++
				if !r.Success.V {
					got.failed++
					continue
				}
				got.promptTokens += r.PromptTokens.V
				got.outputTokens += r.OutputTokens.V
				if r.TTFTUs.OK {
					ttfts = append(ttfts, r.TTFTUs.V/1e3)
				}
				e2es = append(e2es, r.E2EUs.V/1e3)
				for _, gap := range r.ChunkGapsUs {
					itls = append(itls, gap/1e3)
				}
				if r.Iteration.OK {
					paired++
				}
				if r.QueueUs.OK {
					queued++
				}
			}
			got.gaps = len(itls)
			median := func(values []float64) float64 {
				if len(values) == 0 {
					return 0
				}
				return math.Round(1e3*stat.Median(values)) / 1e3
			}
			got.ttftMs = median(ttfts)
			got.itlMs = median(itls)
			got.e2eMs = median(e2es)
			if got != c.want || paired != c.paired || queued != c.queued {
				t.Errorf("got %+v, %d paired, %d queued, want %+v, %d, %d;\n%s", got, paired, queued, c.want, c.paired, c.queued, warnings)
			}
		})
	}
}
