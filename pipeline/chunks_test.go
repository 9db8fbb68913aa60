package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace/table"
)

// chunkLog notes the chunks that clients receive of a simulated engine.
type chunkLog struct {
	chunks map[int][]int64 // by request, us
	steps  int             // with work
	hidden int             // of them that deliver nothing
}

func (l *chunkLog) Step(v *sim.StepView) {
	if v.PrefillTokens+v.DecodeTokens == 0 {
		return
	}
	l.steps++
	delivered := false
	for _, m := range v.Members {
		if m.New > 0 && m.Computed+m.New >= m.Prompt {
			l.chunks[m.Request] = append(l.chunks[m.Request], v.EndUs)
			delivered = true
		}
	}
	if !delivered {
		l.hidden++
	}
}

func (l *chunkLog) Event(*sim.Event) {}

// recordChunks simulates a load and writes what a client of it would: TraceV2 and its
// chunk file, stamps of the wall clock, each chunk late by up to jitterUs.
func recordChunks(t *testing.T, dir string, dep *deploy.Deployment, set *coeff.Set, rate float64, n int, jitterUs float64) *chunkLog {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(10*rate), 7))
	reqs, at := make([]sim.Request, n), 0.0
	for i := range reqs {
		at += rng.ExpFloat64() / rate
		length := func(median, spread, most float64) int64 {
			return int64(math.Min(most, math.Max(4, median*math.Exp(spread*rng.NormFloat64()))))
		}
		reqs[i] = sim.Request{ArrivalUs: int64(1e6 * at), PromptTokens: length(600, 0.9, 6000), OutputTokens: length(60, 0.7, 400)}
	}
	steps, err := sim.NewPhysics(set, dep)
	if err != nil {
		t.Fatal(err)
	}
	overhead, err := sim.NewAlphaDelay(set, coeff.Overhead, dep)
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.DefaultConfig(dep, steps)
	cfg.Overhead = overhead
	log := &chunkLog{chunks: map[int][]int64{}}
	if _, err := sim.Run(cfg, reqs, log); err != nil {
		t.Fatal(err)
	}
	const base = int64(1_760_000_000e6)
	var rows, chunks bytes.Buffer
	rows.WriteString("request_id,streaming,input_tokens,output_tokens,server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us," +
		"last_chunk_time_us,num_chunks,status\n")
	chunks.WriteString("request_id,chunk_index,timestamp_us\n")
	for i := range reqs {
		var stamps []int64
		for k, us := range log.chunks[i] {
			us += base + 1500 + int64(jitterUs*rng.Float64())
			if k > 0 {
				us = max(us, stamps[k-1]+1)
			}
			stamps = append(stamps, us)
			fmt.Fprintf(&chunks, "%d,%d,%d\n", i, k, us)
		}
		sent := base + reqs[i].ArrivalUs
		n := reqs[i].PromptTokens
		fmt.Fprintf(&rows, "%d,true,%d,%d,%d,%d,%d,%d,%d,%d,ok\n", i, n, len(stamps), n, sent, sent, stamps[0],
			stamps[len(stamps)-1], len(stamps))
	}
	for name, text := range map[string]string{"trace.csv": rows.String(), "trace.itl.csv": chunks.String(),
		"trace.yaml": "trace_version: 2\ntime_unit: us\nmode: real\nwarm_up_requests: 0\n"} {
		repo.Write(t, text, dir, name)
	}
	return log
}

// chunkRun makes a run folder of the demo's deployment.
func chunkRun(t *testing.T, parent, name string) (string, *deploy.Deployment) {
	t.Helper()
	dir := filepath.Join(parent, name)
	demo := filepath.Join(repo.Root(t), "testdata", "traces", "demo", "b200-llama-3.1-8b-tp1")
	config := repo.Read(t, demo, "config.json")
	run := "name: " + name + "\nmodel: {id: m, config: config.json}\nhardware: {name: H100-SXM-80GB}\nvllm: {version: " +
		"0.15.1, max_num_seqs: 128, max_num_batched_tokens: 2048, enable_prefix_caching: false, kv_blocks_total_gpu: 40000, " +
		"async_scheduling: false}\n"
	for file, text := range map[string][]byte{"config.json": config, "run.yaml": []byte(run)} {
		repo.Write(t, text, dir, file)
	}
	dep, err := deploy.LoadRun(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, dep
}

// TestStepsFromChunks: from the chunks of all clients at three loads the steps that
// delivered something are recovered, and their fit has the planted step times.
func TestStepsFromChunks(t *testing.T) {
	parent := t.TempDir()
	var truth *coeff.Set
	var dep *deploy.Deployment
	var logs []*chunkLog
	for _, rate := range []float64{2, 5, 8} {
		var dir string
		dir, dep = chunkRun(t, parent, fmt.Sprintf("r%g", rate))
		truth = testkit.PlantedOn(dep)
		logs = append(logs, recordChunks(t, dir, dep, truth, rate, 150, 300))
	}
	eo := DefaultExtractOptions()
	eo.Out = t.TempDir()
	ext, err := Extract(context.Background(), []string{parent}, eo)
	if err != nil {
		t.Fatal(err)
	}
	for i := range ext.Runs {
		r := &ext.Runs[i]
		n, want := r.Tables[table.Iterations], logs[i].steps-logs[i].hidden
		t.Logf("%s: %d of %d steps (%d more deliver nothing): %v", r.ID, n, want, logs[i].hidden, r.Warnings[len(r.Warnings)-1].Message)
		if float64(n) < 0.99*float64(want) {
			t.Errorf("%s: got %d steps, want 99 %% of %d: %v", r.ID, n, want, r.Warnings)
		}
	}
	o := DefaultFitOptions()
	doc, err := Fit(context.Background(), eo.Out, o)
	if err != nil {
		t.Fatal(err)
	}
	if doc.Requests != nil {
		t.Fatal("the fit is from requests, want steps")
	}
	b, err := CoefficientFile(doc, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := coeff.Load(bytes.NewReader(b), "coefficients.yaml", features.CheckSet)
	if err != nil {
		t.Fatal(err)
	}
	want, have := stepTimes(t, truth, dep), stepTimes(t, got, dep)
	for k := range want {
		off := have[k]/want[k] - 1
		t.Logf("batch %v: %.0f us, planted %.0f (%+.2f %%)", referenceBatches[k], have[k], want[k], 100*off)
		if math.Abs(off) > 0.01 {
			t.Errorf("batch %v: got %.0f us, want %.0f within 1 %%", referenceBatches[k], have[k], want[k])
		}
	}
}
