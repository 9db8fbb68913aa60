package predict

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/simulate"
)

// TestEvalOneTimeModel compares closed loops of the accuracy page's servers, as predict and as simulate with the library's coefficients
// give them: one deployment has one time of a step. What the terms of an export give stands beside them.
func TestEvalOneTimeModel(t *testing.T) {
	repo.NeedEval(t)
	var p strings.Builder
	p.WriteString("\n| server | clients | predict: requests/s, ITL ms | simulate | off, % | terms of an export | off, % |\n|---|---|---|---|---|---|---|\n")
	for _, c := range []struct {
		model, hardware string
		tp              int
		dense           bool
	}{
		{"nvidia/Llama-3.1-70B-Instruct-FP8", "H100", 4, true},
		{"nvidia/Llama-3.1-70B-Instruct-FP8", "B200", 2, true},
		{"Qwen/Qwen3-32B", "H100", 4, true},
		{"MiniMaxAI/MiniMax-M2.5", "B200", 4, false},
		{"nvidia/Kimi-K2.5-NVFP4", "B200", 8, false},
		{"openai/gpt-oss-120b", "H100", 4, false},
	} {
		for _, clients := range []int{8, 64, 256} {
			set := []string{"vllm.version=0.19.0", fmt.Sprintf("tensor_parallel_size=%d", c.tp)}
			q := Question{Model: c.model, Hardware: c.hardware, InputTokens: 1024, OutputTokens: 256, Concurrency: clients, Set: set}
			a, err := q.Predict(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			run := fmt.Sprintf("name: loop\nmodel: {id: %s}\nhardware: {name: %s}\ntensor_parallel_size: %d\nvllm: {version: 0.19.0, max_num_seqs: %d, "+
				"max_num_batched_tokens: %d, max_model_len: 16384}\n", c.model, c.hardware, c.tp, a.MaxNumSeqs, a.TokenBudget)
			path := filepath.Join(t.TempDir(), "run.yaml")
			if err := os.WriteFile(path, []byte(run), 0o644); err != nil {
				t.Fatal(err)
			}
			load := q.load()
			warmUpS, err := a.WarmUpS(&load, 1)
			if err != nil {
				t.Fatal(err)
			}
			// served serves the steady state of the loop with the engine of simulate, or of predict.
			served := func(engine func(seed int64) (sim.Config, error)) (requests, itlMs float64) {
				stretch, err := load.Stretch(1, 2*clients, warmUpS, 1)
				if err != nil {
					t.Fatal(err)
				}
				cfg, err := engine(1)
				if err != nil {
					t.Fatal(err)
				}
				res, err := sim.Run(cfg, stretch.Requests, nil)
				if err != nil {
					t.Fatal(err)
				}
				s := NewSample(res.Requests, []*sim.Result{res}, stretch)
				return float64(s.Served) / s.ServedS, s.Figure(ITL, 0)
			}
			simulated := func(model string) (requests, itlMs float64) {
				o := simulate.DefaultOptions()
				o.Deployment = path
				o.Coefficients = simulate.LibraryWord
				o.Model = model
				o.Out = t.TempDir()
				o.InputTokens = 1024
				o.OutputTokens = 256
				o.Concurrency = clients
				o.KVBlocks = a.options.KVBlocks
				s, err := simulate.New(context.Background(), &o)
				if err != nil {
					t.Fatal(err)
				}
				return served(s.Engine)
			}
			rps, itlMs := served(a.Engine)
			own, ownITL := simulated(simulate.ModelAuto)
			terms, termsITL := simulated(simulate.ModelPhysics)
			off, offITL := 100*(own/rps-1), 100*(ownITL/itlMs-1)
			fmt.Fprintf(&p, "| %s, %d x %s | %d | %.3g, %.3g | %.3g, %.3g | %+.1f, %+.1f | %.3g, %.3g | %+.1f, %+.1f |\n", c.model, c.tp, c.hardware, clients,
				rps, itlMs, own, ownITL, off, offITL, terms, termsITL, 100*(terms/rps-1), 100*(termsITL/itlMs-1))
			most := 5.0
			if c.dense {
				most = 2
			}
			if math.Abs(off) > most || math.Abs(offITL) > most {
				t.Errorf("%s, %d clients: got %.1f %% in throughput and %.1f %% in ITL, want at most %g", c.model, clients, off, offITL, most)
			}
		}
	}
	t.Log(p.String())
}
