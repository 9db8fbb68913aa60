package predict

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// onH100 is a question about a GPU with kernel tables, and a model with experts over two GPUs.
func onH100(serve string, set ...string) Question {
	return Question{Model: "mistralai/Mixtral-8x7B-v0.1", Hardware: "H100", Serve: "--tensor-parallel-size 2 " + serve, Set: set,
		InputTokens: 1000, OutputTokens: 100, Concurrency: 4}
}

// everyStep is a model whose steps take so many us.
type everyStep float64

func (m everyStep) StepUs(*sim.Batch) (float64, error) {
	if m < 0 {
		return 0, errors.New("no time")
	}
	return float64(m), nil
}

// TestStepsAreDivided: a step's time is divided among its operators, and what they do not take is the host's. One step in
// sixteen is divided, and only where that is asked.
func TestStepsAreDivided(t *testing.T) {
	q := onH100("")
	p, _, err := q.Server(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	batch := sim.Batch{StepID: 7}
	batch.AddPrefill(0, 300, 300)
	batch.AddDecodes(5, 4000, 255)
	kernels := batch.Kernels()
	var want [numShares]float64
	scale := library.Learned().On("H100-SXM-80GB")[library.ScaleGPU]
	if p.Hardware != "H100-SXM-80GB" || scale == 1 || scale == 0 {
		t.Fatalf("got %s, a scale of %g", p.Hardware, scale)
	}
	one := p.Step.Us(&library.Batch{Tokens: 1, Sequences: 1})
	some := p.Step.Us(&library.Batch{Tokens: 256, Sequences: 1})
	kernelsUs := 0.0
	for i, us := range p.Step.Us(&kernels) {
		us *= scale
		kernelsUs += us
		reads := 0.0
		switch name := p.Step.Operators[i].Name; {
		case p.Step.Operators[i].Kind == library.Collective:
			want[collectives] += us
			continue
		case name == "attention_decode":
			want[readKV] += us
			continue
		case name == "attention_prefill":
			want[computeTokens] += us
			continue
		case p.Step.Operators[i].Kind == library.Experts:
			reads = some[i] * scale
		case p.Step.Operators[i].Table == "":
			want[smallKernels] += us
			continue
		default:
			reads = one[i] * scale
		}
		want[readWeights] += min(us, reads)
		want[computeTokens] += us - min(us, reads)
	}
	want[hostWork] = 500
	for k, us := range want {
		if us <= 0 {
			t.Errorf("%s: the test divides nothing, operators %+v", shareNames[k], p.Step.Operators)
		}
	}
	w := newStepBreakdown(p.Step, p.Hardware)
	w.Model = everyStep(kernelsUs + 500)
	w.divides = true
	for range 16 {
		if us, err := w.StepUs(&batch); err != nil || us != kernelsUs+500 {
			t.Fatalf("got %g us, %v", us, err)
		}
	}
	for k := range want {
		if !near(w.us[k], want[k]) {
			t.Errorf("%s: got %g us, want %g", shareNames[k], w.us[k], want[k])
		}
	}
	if _, err := w.StepUs(&batch); err != nil || !near(w.us[readKV], 2*want[readKV]) {
		t.Errorf("the 17th step: got %g us, %v, want it divided too", w.us[readKV], err)
	}
	parts := w.prompts.steps[7]
	theta := library.Learned().On(p.Hardware)
	if want := p.Step.NewPricer().TimeParts(&kernels, &theta); parts != want || parts[library.LinearTime] == 0 {
		t.Errorf("the parts of the step with a prompt: got %v, want %v", parts, want)
	}
	decodes := sim.Batch{StepID: 8}
	decodes.AddDecodes(5, 4000, 255)
	short := newStepBreakdown(p.Step, p.Hardware)
	short.Model = everyStep(1)
	if _, err := short.StepUs(&decodes); err != nil || short.us != [numShares]float64{} || len(short.prompts.steps) != 0 {
		t.Errorf("not asked: got %v, %v, %v", short.us, short.prompts.steps, err)
	}
	short.steps = 0
	short.divides = true
	if _, err := short.StepUs(&decodes); err != nil || short.us[hostWork] != 0 || short.us[readWeights] <= 0 {
		t.Errorf("a step shorter than its kernels: got %v, %v, want none of the host", short.us, err)
	}
	short.Model = everyStep(-1)
	short.steps = 0
	had := short.us
	if _, err := short.StepUs(&decodes); err == nil || short.us != had {
		t.Errorf("a step without a time: got %v, %v", short.us, err)
	}
}

// TestWhatDescribesTheServer of an answer, and the options of its simulation.
func TestWhatDescribesTheServer(t *testing.T) {
	q := onH100("--enable-expert-parallel --data-parallel-size 2 --max-num-seqs 9 --max-num-batched-tokens 777", "vllm.version=0.21.0")
	q.RateRPS = 3
	q.Concurrency = 0
	p, d, err := q.Server(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if p.TP != 2 || p.DP != 2 || p.GPUs != 4 || !p.EP || p.Version != "0.21.0" || p.MaxNumSeqs != 9 || p.TokenBudget != 777 || p.KVBytes != 2 ||
		p.InputTokens != 1000 || p.OutputTokens != 100 || p.Concurrency != 0 || p.RateRPS != 3 || p.Bound || p.LatencyModel == "" || p.Trust == nil || p.Step == nil {
		t.Errorf("got %+v", p)
	}
	blocks, _, err := d.KVBlocks()
	if o := &p.options; err != nil || o.RangeRatio != 0.02 || o.InputTokens != 1000 || o.OutputTokens != 100 || o.RateRPS != 3 || o.Concurrency != 0 || o.KVBlocks != blocks || p.KVTokens != 16*blocks {
		t.Errorf("got %+v for %d blocks, %d tokens, %v", o, blocks, p.KVTokens, err)
	}
	for _, f := range p.Warnings {
		if strings.HasPrefix(f.Message, "data_parallel_size: ") {
			t.Errorf("all ranks are simulated: got %q", f.Message)
		}
	}
	if cfg, err := p.Engine(1); err != nil || !cfg.Ranks {
		t.Errorf("two ranks: got %v, %v", cfg.Ranks, err)
	}
	if d.Name != "mixtral-8x7b-v0.1" {
		t.Errorf("got the name %q", d.Name)
	}
	alone := onL4(4, 0)
	again := trace.Findingf(trace.Code("x"), "said twice")
	if d, _, err = alone.Deployment(); err != nil {
		t.Fatal(err)
	}
	if p, err = alone.prepare(context.Background(), d, []trace.Finding{again, again}); err != nil || !slices.Equal(p.Warnings, []trace.Finding{again}) || p.EP {
		t.Errorf("got warnings %v, %v", p.Warnings, err)
	}
	if cfg, err := p.Engine(1); err != nil || cfg.Ranks {
		t.Errorf("one rank: got %v, %v", cfg.Ranks, err)
	}
	gpu := q
	gpu.GPU = p.options.GPU
	if gpu.GPU != nil {
		t.Error("the question names no tables")
	}
	if tables, err := library.For(&d.Hardware); err == nil {
		t.Errorf("got tables of an L4: %+v", tables)
	}
}

// TestRoomForAModel: the fewest GPUs with room are named, up to 16; beyond them another GPU is.
func TestRoomForAModel(t *testing.T) {
	for _, c := range []struct {
		model, hardware, serve string
		input                  int64
		want                   string
	}{
		{"meta-llama/Llama-3.1-405B-Instruct", "H100", "", 100, "raise --tp to 16"},
		{"meta-llama/Llama-3.1-405B-Instruct", "L4", "", 100, "take a GPU with more memory, or weights of fewer bits"},
		{"meta-llama/Llama-3.1-8B-Instruct", "L4", "--max-model-len 131072", 60_000, "raise --tp to 2"},
	} {
		q := Question{Model: c.model, Hardware: c.hardware, Serve: c.serve, InputTokens: c.input, OutputTokens: 10, Concurrency: 1}
		_, d, err := q.Server(context.Background())
		if err == nil || trace.HintOf(err) != c.want || d == nil {
			t.Errorf("%s on %s: got %v, hint %q, want %q", c.model, c.hardware, err, trace.HintOf(err), c.want)
		}
	}
	d, _, err := (&Question{Model: "meta-llama/Llama-3.1-8B-Instruct", Hardware: "L4"}).Deployment()
	if err != nil {
		t.Fatal(err)
	}
	other := errors.New("of another kind")
	if got := hintAtMemory(other, d, 10); got != other {
		t.Errorf("got %v", got)
	}
}

// TestLongestSequenceThatFits: where the KV cache has no room for a request of max_model_len, vLLM does not start. The
// longest that fits is taken, unless it is stated.
func TestLongestSequenceThatFits(t *testing.T) {
	const mixed = "openai/gpt-oss-20b" // every second layer has a window
	for _, c := range []struct {
		model, serve string
		set          []string
		want         string // the warning or the error
		longest      int64
	}{
		{"meta-llama/Llama-3.1-8B", "", nil, "does not start without --max-model-len 48688, which is taken: the KV cache has no room for a request of the model's 131072 tokens", 48688},
		{"meta-llama/Llama-3.1-8B", "--max-model-len auto", nil, "", 48688},
		{"meta-llama/Llama-3.1-8B", "--max-model-len=-1", nil, "", 48688},
		{"meta-llama/Llama-3.1-8B", "--max-model-len 48704", nil, "", 48704}, // with the null block
		{"meta-llama/Llama-3.1-8B", "--max-model-len 48705", nil, "max_model_len: got 48705, want at most 48688: vLLM does not start", 48705},
		{"meta-llama/Llama-3.1-8B", "--tensor-parallel-size 2", nil, "", 131072},
		{"meta-llama/Llama-3.1-8B", "--num-gpu-blocks-override 100", nil, "", 131072}, // as stated
		{mixed, "--gpu-memory-utilization 0.7", nil, "--max-model-len ", 0},
	} {
		q := Question{Model: c.model, Hardware: "L4", Serve: c.serve, Set: c.set, InputTokens: 100, OutputTokens: 10, Concurrency: 1}
		p, d, err := q.Server(t.Context())
		got := fmt.Sprint(err)
		if err == nil {
			got = ""
			for _, w := range p.Warnings {
				if w.Code == lengthFitted {
					got = w.Message
				}
			}
		}
		longest := d.MaxModelLen().V
		if !strings.Contains(got, c.want) || c.want == "" && got != "" || c.longest > 0 && longest != c.longest {
			t.Errorf("%s %s: got %q and %d tokens, want %q and %d", c.model, c.serve, got, longest, c.want, c.longest)
		}
		if err == nil && (p.FittedLen > 0) != (got != "") || p.FittedLen > 0 && p.FittedLen != longest {
			t.Errorf("%s %s: got %d as the needed length", c.model, c.serve, p.FittedLen)
		}
		if c.model != mixed {
			continue
		}
		// No block more fits: a block of tokens for each of two groups, beside the window.
		pool, _ := d.Model.Layers().KVPool(d.Parallel(), d.Engine.BlockSize)
		blocks, _, err := d.KVBlocks()
		if at := pool.RequestBlocks(longest, d.Engine.MaxNumBatchedTokens); err != nil || at > blocks || len(pool.Groups) < 2 ||
			pool.RequestBlocks(longest+d.Engine.BlockSize, d.Engine.MaxNumBatchedTokens) <= blocks {
			t.Errorf("%s: %d tokens need %d of %d blocks", mixed, longest, at, blocks)
		}
	}
}

// TestMemoryThatDoesNotExist: a KV cache that is stated is no larger than the memory that the weights leave, with or
// without a simulation.
func TestMemoryThatDoesNotExist(t *testing.T) {
	for _, c := range []struct{ model, hardware, serve, want string }{
		// 2 MiB a block, 80 GiB less 1 % that the driver takes, 61 GiB of weights on two GPUs and 0.5 GiB of the context
		{"Qwen/Qwen3-32B", "H100", "-tp 2 --kv-cache-memory-bytes 500G", "KV cache: got 255999 blocks, want at most 24671: a device has 80 GiB for weights and cache"},
		{"Qwen/Qwen3-32B", "H100", "-tp 2 --num-gpu-blocks-override 24673", "KV cache: got 24672 blocks, want at most 24671"},
		{"Qwen/Qwen3-32B", "H100", "-tp 2 --num-gpu-blocks-override 24672", ""},
		{"Qwen/Qwen3-32B", "H100", "-tp 2 --kv-cache-memory-bytes 30G", ""},
		{"meta-llama/Llama-3.1-405B-Instruct", "H100", "--num-gpu-blocks-override 1000", "KV cache: got 999 blocks, want at most 0"},
	} {
		q := Question{Model: c.model, Hardware: c.hardware, Serve: c.serve, InputTokens: 100, OutputTokens: 10, Concurrency: 1}
		_, _, err := q.Server(t.Context())
		_, planErr := q.Plan(t.Context(), []trace.Chunk{{Prompt: 1, New: 1}})
		if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(got, c.want) || fmt.Sprint(planErr) != got {
			t.Errorf("%s %s: got %v and %v, want %q", c.model, c.serve, err, planErr, c.want)
		}
	}
}

// TestOverloadedServer: ten times the rate that the server can do.
func TestOverloadedServer(t *testing.T) {
	q := onL4(0, 300)
	q.SLO = Targets{Limits: []Target{{E2E, 0.5, 1e9}}}
	p, _, err := q.Server(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	load := q.load()
	if err := p.simulateLoad(&load, 1, &q.SLO); err != nil {
		t.Fatal(err)
	}
	if !p.Saturated || p.Missed != "saturated" || *p.Met || *p.MetSurely || p.Trust == nil || !strings.Contains(strings.Join(p.Trust.Outside, ";")+p.Trust.Sentence+p.Trust.Unjudged, "") {
		t.Errorf("got saturated %v, missed %q, met %v, surely %v, %+v", p.Saturated, p.Missed, *p.Met, *p.MetSurely, p.Trust)
	}
	slow := onL4(2, 0)
	if p, _, err = slow.Server(context.Background()); err != nil {
		t.Fatal(err)
	}
	load = slow.load()
	if err := p.simulateLoad(&load, 1, &Targets{Limits: []Target{{TPOT, 0, 1}}}); err != nil {
		t.Fatal(err)
	}
	if p.Saturated || p.Missed != "tpot mean" || *p.Met || *p.MetSurely {
		t.Errorf("got saturated %v, missed %q, met %v, surely %v", p.Saturated, p.Missed, *p.Met, *p.MetSurely)
	}
	// Two clients are in every step but those with a prompt.
	if want := (library.Batch{Tokens: 2, Sequences: 2, Decodes: 2, DecodeContext: 2 * 210}); p.DecodeStep != want {
		t.Errorf("got a step of %+v, want %+v", p.DecodeStep, want)
	}
	if p.TTFTParts != nil || p.Shares != nil {
		t.Errorf("on the roofline: got parts %v, shares %v", p.TTFTParts, p.Shares)
	}
	warmUpS, err := p.WarmUpS(&load, 1)
	if err != nil {
		t.Fatal(err)
	}
	byRate := Load{RateRPS: 50, InputTokens: 200, OutputTokens: 20}
	if same, err := p.WarmUpS(&byRate, 1); err != nil || same != warmUpS || warmUpS < 3*0.9 || warmUpS > 3*1.1 { // an answer of 20 tokens takes 1 s
		t.Errorf("a warm-up of %g s, at a rate of %g s, %v", warmUpS, same, err)
	}
	if _, err := p.WarmUpS(&Load{Clients: 1}, 1); err == nil {
		t.Error("a load without lengths has a warm-up")
	}
	tooLong := Load{Clients: 1, InputTokens: 4000, OutputTokens: 10}
	few := slow
	few.Set = append(few.Set, "vllm.kv_blocks_total_gpu=100")
	small, _, err := few.Server(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := small.WarmUpS(&tooLong, 1); err == nil || !strings.HasPrefix(err.Error(), "bad_sim_config: no request of this length completes: the KV cache holds ") ||
		trace.HintOf(err) != "shorten --input-len and --output-len, or raise --tp" {
		t.Errorf("a request that no server can hold: got %v", err)
	}
	if err := p.simulateLoad(&Load{Clients: 1}, 1, &Targets{}); err == nil {
		t.Error("a load without lengths is simulated")
	}
	if err := p.simulateStart(&Load{Clients: 1}, 1); err == nil {
		t.Error("a load without lengths starts")
	}
	if _, err := p.searchMaxLoad(&Load{Clients: 1}, 1, &Targets{}); err == nil {
		t.Error("a load without lengths has a highest amount")
	}
}

// TestPartsOfASimulation: the parts of the TTFT of every replication, and the mean of as many requests as are measured.
func TestPartsOfASimulation(t *testing.T) {
	q := onH100("")
	q.OutputTokens = 3
	q.Concurrency = 1
	p, _, err := q.Server(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	load := q.load()
	if err := p.simulateLoad(&load, 0.1, &Targets{}); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, part := range p.TTFTParts {
		sum += part.MeanMs
	}
	if sum <= 0 || math.Abs(sum-*p.TTFT.Mean) > 0.005*sum { // parts below half a microsecond are left out
		t.Errorf("parts of %g ms, a TTFT of %g: %+v", sum, *p.TTFT.Mean, p.TTFTParts)
	}
	shares := 0.0
	for _, s := range p.Shares {
		shares += s.Share
	}
	if !near(shares, 1) || p.Met != nil || p.MetSurely != nil || p.Missed != "" {
		t.Errorf("got %v, %v, %v, %q", p.Shares, p.Met, p.MetSurely, p.Missed)
	}
	if perRequest := p.TokensPerS * float64(p.GPUs) / p.RequestsPerS; math.Abs(perRequest-3) > 0.1 {
		t.Errorf("got %g tokens of a request, want 3, as asked", perRequest)
	}
}

// TestHighestNumberOfClients: it meets the target, one more does not, and what is tried stays within four times the seats.
func TestHighestNumberOfClients(t *testing.T) {
	q := onL4(5, 0)
	p, _, err := q.Server(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	load := q.load()
	got, err := p.searchMaxLoad(&load, 1, &Targets{Limits: []Target{{TPOT, 0, 54}}})
	if err != nil || got.Concurrency == 0 || got.RateRPS != 0 {
		t.Fatalf("got %+v, %v", got, err)
	}
	for clients, want := range map[int]string{got.Concurrency: "", got.Concurrency + 1: got.Breaks} {
		own := load.WithAmount(float64(clients))
		s, err := p.probe(own, 1)
		if err != nil {
			t.Fatal(err)
		}
		if text := brokenText(s, &Targets{Limits: []Target{{TPOT, 0, 54}}}); text != want {
			t.Errorf("%d clients: got %q, want %q", clients, text, want)
		}
		if perS := float64(s.Tokens) / s.ServedS; want == "" && perS != got.TokensPerS {
			t.Errorf("got %g tokens/s, want %g", got.TokensPerS, perS)
		}
	}
	p.MaxNumSeqs = 1 // 1, 2 and 4 clients are tried, and 8, which is beyond four times the seats, is not
	if got, err = p.searchMaxLoad(&load, 1, &Targets{Limits: []Target{{TPOT, 0, 1e6}}}); err != nil || got.Concurrency != 7 || got.Breaks != "" {
		t.Errorf("one seat: got %+v, %v, want 7 clients", got, err)
	}
	if none, err := p.searchMaxLoad(&load, 1, &Targets{Limits: []Target{{TPOT, 0, 1}}}); err != nil || none.Concurrency != 0 || none.Breaks == "" {
		t.Errorf("a target no load meets: got %+v, %v", none, err)
	}
}

// TestEdgesOfSweepsAndModels: ranges at their ends, models that are no model.
func TestEdgesOfSweepsAndModels(t *testing.T) {
	for text, want := range map[string]string{"1..1": "1", "0.5..1": "0.5 1", "3..11": "3 6", "1..1048576": "21", "2..1": "", "0..1": "", "-1..1": "", "1..x": "", "x..1": "", "1..1048577": ""} {
		got, err := axisValues("rate", text)
		if want == "21" {
			if err != nil || len(got) != 21 || got[20] != "1.048576e+06" {
				t.Errorf("%s: got %q, %v", text, got, err)
			}
			continue
		}
		if (err == nil) != (want != "") || err == nil && strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
	var q Question
	if err := q.setAxis("concurrency", "1073741824"); err != nil || q.Concurrency != 1<<30 {
		t.Errorf("got %+v, %v", q, err)
	}
	for _, name := range []string{"", "no/such/model"} {
		if _, _, err := (&Question{Model: name, Hardware: "H100"}).Deployment(); err == nil || !strings.Contains(err.Error(), "model") {
			t.Errorf("%q: got %v", name, err)
		}
	}
	if _, _, err := (&Question{Serve: "--tensor-parallel-size", Hardware: "H100"}).Deployment(); err == nil {
		t.Error("a flag without its value is read")
	}
	broken := &Question{Model: "no/such/model"}
	if p, err := broken.Predict(context.Background()); err == nil || p != nil {
		t.Errorf("got %v, %v", p, err)
	}
	if p, err := broken.Plan(context.Background(), nil); err == nil || p != nil {
		t.Errorf("got %v, %v", p, err)
	}
	if p, d, err := broken.Server(context.Background()); err == nil || p != nil || d != nil {
		t.Errorf("got %v, %v, %v", p, d, err)
	}
	l4 := onL4(1, 0)
	if p, err := l4.Plan(context.Background(), []trace.Chunk{{Prompt: 1, New: 1}}); err == nil || p != nil {
		t.Errorf("a plan without tables: got %v, %v", p, err)
	}
	l4.InputTokens = 0
	if p, err := l4.Predict(context.Background()); err == nil || p != nil {
		t.Errorf("no prompt: got %v, %v", p, err)
	}
	l4.InputTokens = 1 << 30
	if p, err := l4.Predict(context.Background()); err == nil || p != nil {
		t.Errorf("a prompt beyond the model: got %v, %v", p, err)
	}
}

// TestStretchesOfServers: behind a router in turn a server's arrivals come evenly; prompts are cached in part; a loop over a
// workload measures none of its first rounds.
func TestStretchesOfServers(t *testing.T) {
	load := Load{RateRPS: 10, InputTokens: 100, OutputTokens: 5, CachedShare: 0.5}
	for share, want := range map[int]float64{1: 1, 16: 0.25} {
		s, err := load.Stretch(1, 2000, 0, share)
		if err != nil {
			t.Fatal(err)
		}
		var gaps []float64
		for i := range s.Requests[1:] {
			gaps = append(gaps, float64(s.Requests[i+1].ArrivalUs-s.Requests[i].ArrivalUs))
		}
		if cv := stat.StdErr(gaps) * math.Sqrt(float64(len(gaps))) / stat.Mean(gaps); math.Abs(cv-want) > 0.1*want {
			t.Errorf("one of %d servers: gaps vary by %g of their mean, want %g", share, cv, want)
		}
		if r := &s.Requests[3]; !r.CachedTokens.OK || r.CachedTokens.V != r.PromptTokens/2 {
			t.Errorf("got %+v, want half of the prompt cached", r)
		}
	}
	w := &workload.Workload{}
	for i := range 30 {
		w.Requests = append(w.Requests, sim.Request{PromptTokens: int64(10 + i), OutputTokens: 3, MaxTokens: 3})
	}
	load = Load{Workload: w, Clients: 2, CachedShare: 0.5}
	s, err := load.Stretch(1, 20, 1, 1)
	if err != nil || s.from != 4 || s.until != 26 || !s.Requests[3].Unmeasured || s.Requests[4].Unmeasured || s.Requests[25].Unmeasured || !s.Requests[26].Unmeasured ||
		s.Requests[5].CachedTokens != trace.Some[int64](7) {
		t.Errorf("got %d to %d, %+v, %v", s.from, s.until, s.Requests, err)
	}
	late := &workload.Workload{Requests: []sim.Request{{ID: "b", PromptTokens: 5, ArrivalUs: 9e6}, {ID: "a", PromptTokens: 5, ArrivalUs: 1e6}}}
	if s, err = (&Load{Workload: late}).Stretch(1, 1, 0, 1); err != nil || s.Requests[0].ID != "a" || late.Requests[0].ID != "b" {
		t.Errorf("got %+v, %v, want them by arrival, and the workload as it was", s.Requests, err)
	}
	idle := Load{Clients: 3, InputTokens: 100, OutputTokens: 5}
	if s, err = idle.Start(1, 5); err != nil || s.Requests[2].ArrivalUs != 0 || s.until != 3 {
		t.Errorf("the start of a loop: got %+v, %v, want all clients at once", s, err)
	}
	slow := Load{RateRPS: 0.1, InputTokens: 100, OutputTokens: 5}
	if s, err = slow.Start(1, 0); err != nil || s.until != 1 {
		t.Errorf("no arrival in the time: got %+v, %v, want the first", s, err)
	}
	var sessions []sim.Request
	for range 500 {
		sessions = append(sessions, sim.Request{})
	}
	drawSessions(sessions, 10, 1)
	ordered := slices.IsSortedFunc(sessions, func(a, b sim.Request) int { return int(a.ArrivalUs - b.ArrivalUs) })
	if lastS := float64(lastArrivalUs(sessions)) / 1e6; ordered || math.Abs(lastS-50) > 3*math.Sqrt(500)/10 {
		t.Errorf("got the last session at %g s, in order: %v", lastS, ordered)
	}
}

// TestSamplesOutOfOrder: the results come in another order than the requests arrived.
func TestSamplesOutOfOrder(t *testing.T) {
	us := trace.Some[int64]
	answered := func(atMs, tokens int64) sim.RequestResult {
		at := atMs * 1000
		return sim.RequestResult{ArrivalUs: at, FirstTokenUs: us(at + 100*atMs), FinishedUs: us(at + 500_000), DepartedUs: us(at + 500_000), OutputTokens: tokens, Outcome: sim.OutcomeFinished}
	}
	m := NewSample([]sim.RequestResult{answered(3000, 7), answered(1000, 2), answered(2000, 3)}, nil, &Stretch{Requests: make([]sim.Request, 3), drawnExcess: 0.125})
	if !reflect.DeepEqual(m.TTFT, []float64{100, 200, 300}) || m.ServedS != 2 || m.Served != 2 || m.Tokens != 10 || m.excess != 0.125 || !near(m.MeanInFlight, 0.5) {
		t.Errorf("got %+v", m)
	}
	unanswered := sim.RequestResult{ArrivalUs: 5_000_000, FirstTokenUs: us(5_100_000)}
	if m = NewSample([]sim.RequestResult{unanswered}, nil, &Stretch{Requests: make([]sim.Request, 1)}); m.lost != 1 || len(m.TTFT) != 0 || m.MeanInFlight != 0 {
		t.Errorf("an answer without its end: got %+v", m)
	}
	// A server that falls behind: request k is answered after k times as long as requests take to arrive.
	var results []sim.RequestResult
	for k := range int64(400) {
		at := k * 10_000
		results = append(results, sim.RequestResult{ArrivalUs: at, QueuedUs: us(at), FirstTokenUs: us(5*at + 1), FinishedUs: us(5*at + 2), DepartedUs: us(5*at + 2), OutputTokens: 2, Outcome: sim.OutcomeFinished})
	}
	if m = NewSample(results, nil, &Stretch{Requests: make([]sim.Request, 400)}); !m.Saturated {
		t.Error("a growing queue: got no saturation")
	}
	closed := &Stretch{Requests: make([]sim.Request, 400)}
	for i := range closed.Requests[1:] {
		closed.Requests[i+1].After = i + 1
	}
	if m = NewSample(results, nil, closed); m.Saturated != !sim.IsClosedLoop(closed.Requests) {
		t.Errorf("a closed loop: got saturated %v", m.Saturated)
	}
	if got := (Target{Quantile: 0.9999994}).Figure(); got != "p99.9999" {
		t.Errorf("got %q, want six digits", got)
	}
}
