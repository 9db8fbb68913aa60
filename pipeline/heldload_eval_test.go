package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// heldServer is a quiet server with few seats, as a run folder states it, and the truth about its steps: the library's
// coefficients, all 6 % slower.
type heldServer struct {
	text  string // run.yaml
	model []byte // config.json
	dep   *deploy.Deployment
	truth *coeff.Set
}

func newHeldServer(t *testing.T) *heldServer {
	t.Helper()
	model, err := os.ReadFile(filepath.Join(repo.Root(t), "testdata/traces/smoke/config.json"))
	if err != nil {
		t.Fatal(err)
	}
	s := &heldServer{model: model, text: `name: "held"
model: {id: "meta-llama/Llama-3.1-8B", config: "config.json", dtype: "bfloat16", kv_cache_dtype: "bfloat16"}
hardware: {name: "H100-SXM-80GB"}
tensor_parallel_size: 1
vllm: {version: "0.15.1", max_model_len: 8192, max_num_seqs: 48, max_num_batched_tokens: 8192, enable_prefix_caching: false,
  kv_blocks_total_gpu: 27000}
`}
	dir := t.TempDir()
	s.write(t, dir, nil)
	if s.dep, err = deploy.LoadRun(dir); err != nil {
		t.Fatal(err)
	}
	set, err := fit.LibraryFor(s.dep)
	if err != nil {
		t.Fatal(err)
	}
	s.truth = set
	for i := range set.Beta {
		set.Beta[i].Value *= 1.06
	}
	return s
}

// requests are n with lognormal lengths, rate a second; 0: all at once.
func (s *heldServer) requests(n int, rate float64, seed uint64) []sim.Request {
	rng := rand.New(rand.NewPCG(seed, 0x4e1d))
	at := 0.0
	out := make([]sim.Request, n)
	for i := range out {
		if rate > 0 {
			at += rng.ExpFloat64() / rate * 1e6
		}
		tokens := 2 + int64(150*math.Exp(0.5*rng.NormFloat64()))
		out[i] = sim.Request{ID: fmt.Sprint(i), ArrivalUs: int64(at), OutputTokens: tokens, MaxTokens: tokens,
			PromptTokens: 1 + int64(400*math.Exp(0.6*rng.NormFloat64()))}
	}
	return out
}

// serve is what the server makes of requests, with steps that scatter by 3 %.
func (s *heldServer) serve(t *testing.T, requests []sim.Request, seed int64) *sim.Result {
	t.Helper()
	model, err := sim.NewPhysics(s.truth, s.dep)
	if err != nil {
		t.Fatal(err)
	}
	c := sim.DefaultConfig(s.dep, model)
	c.Seed = seed
	c.Overhead = sim.Const(9000)
	q := []sim.Quantile{{Q: 0, Ratio: 0.95}, {Q: 1, Ratio: 1.05}}
	c.Noise = &sim.Noise{Decode: q, Prefill: q, Mixed: q}
	res, err := sim.Run(c, requests, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// capacity is the throughput with all seats taken, requests a second: of the answers between a fifth and four fifths.
func (s *heldServer) capacity(t *testing.T) float64 {
	t.Helper()
	res := s.serve(t, s.requests(1500, 0, 1), 1)
	var ended []int64
	for i := range res.Requests {
		ended = append(ended, res.Requests[i].DepartedUs.V)
	}
	slices.Sort(ended)
	return 900 / (float64(ended[1200]-ended[300]) / 1e6)
}

// write writes the run folder, with a TraceV2 file of a result; nil: without.
func (s *heldServer) write(t *testing.T, dir string, res *sim.Result) {
	t.Helper()
	repo.Write(t, s.text, dir, "run.yaml")
	repo.Write(t, s.model, dir, "config.json")
	if res != nil {
		writeTraceV2(t, dir, res)
	}
}

// writeTraceV2 writes what clients measured of a result.
func writeTraceV2(t *testing.T, dir string, res *sim.Result) {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintln(&b, "request_id,prefix_group,prefix_length,streaming,input_tokens,output_tokens,server_input_tokens,"+
		"arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status")
	for i := range res.Requests {
		r := &res.Requests[i]
		m := r.Measured()
		first := r.ArrivalUs + int64(m.TTFTUs)
		last := first
		if r.OutputTokens > 1 { // else there is no span
			last += int64(m.SpanUs)
		}
		fmt.Fprintf(&b, "%d,,0,true,%d,%d,%d,%d,%d,%d,%d,%d,ok\n", i, r.PromptTokens, r.OutputTokens, r.PromptTokens,
			r.ArrivalUs, r.ArrivalUs, first, last, r.OutputTokens)
	}
	repo.Write(t, b.String(), dir, "trace.csv")
}

// TestEvalHeldLoads: closed loops at a server's capacity, whatever run.yaml calls them, are judged and pass, their
// capacity within 5 %; open arrivals 5 % above the capacity are saturated in 95 of 100 recordings, and at nine tenths
// of it in at most 2.
func TestEvalHeldLoads(t *testing.T) {
	repo.NeedEval(t)
	s := newHeldServer(t)
	capacity := s.capacity(t)
	t.Logf("capacity %.2f requests/s", capacity)
	saturated := func(factor float64) int {
		const recordings = 100
		hit := make([]bool, recordings)
		err := par.Try(context.Background(), 0, recordings, func(k int) error {
			seed := uint64(1000*factor) + uint64(k)
			res := s.serve(t, s.requests(2000, factor*capacity, seed), int64(seed))
			run := &trace.Run{ID: "open"}
			for i := range res.Requests {
				r := &res.Requests[i]
				m := r.Measured()
				first := 1000 * (r.ArrivalUs + int64(m.TTFTUs))
				run.Observed = append(run.Observed, trace.ObservedRequest{ID: r.ID, SendNs: trace.Some(1000 * r.ArrivalUs),
					FirstChunkNs: trace.Some(first), LastChunkNs: trace.Some(first + 1000*int64(m.SpanUs)),
					PromptTokens: trace.Some(r.PromptTokens), OutputTokens: trace.Some(r.OutputTokens), Success: trace.Some(true)})
			}
			hit[k] = validate.OfClients(run, s.dep).Run.Saturated
			return nil
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, h := range hit {
			if h {
				n++
			}
		}
		t.Logf("2000 open arrivals at %.2f times the capacity: %d of %d recordings saturated", factor, n, recordings)
		return n
	}
	if n := saturated(1.05); n < 95 {
		t.Errorf("5 %% above the capacity: %d of 100 are saturated, want at least 95", n)
	}
	if n := saturated(0.9); n > 2 {
		t.Errorf("at 0.9 of the capacity: %d of 100 are saturated, want at most 2", n)
	}
	const loops = 20
	passed := 0
	for k := range loops {
		clients := []int{48, 64, 32, 96}[k%4]
		w := &workload.Workload{Requests: s.requests(600, 0, uint64(700+k))}
		if err := w.Close(workload.Loop{Clients: clients, RampUs: 2e6}); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "held")
		s.write(t, dir, s.serve(t, w.Requests, int64(k)))
		o := DefaultRunOptions()
		o.Extract.Out = filepath.Join(t.TempDir(), "out")
		got, err := Run(context.Background(), []string{dir}, o)
		if err != nil {
			t.Fatal(err)
		}
		v := got.Validation
		first := &v.Runs[0]
		if c := first.Metrics.Capacity; c == nil || first.Load != deploy.LoadClosed {
			t.Errorf("loop %d of %d clients: got a load %s without capacity", k, clients, first.Load)
		} else {
			t.Logf("loop %d of %d clients: %s, capacity %.2f recorded, %.2f simulated", k, clients, v.Verdict, c.RecordedRPS, c.SimulatedRPS)
		}
		if v.Verdict == coeff.VerdictPass {
			passed++
			continue
		}
		for _, g := range v.Gates {
			if g.Required && (g.Pass == nil || !*g.Pass) {
				t.Logf("   %s of %s: %v %s", g.Name, g.Scope, deref(g.Value), g.Note)
			}
		}
	}
	if passed < loops-1 {
		t.Errorf("%d of %d closed loops at capacity pass, want at least %d", passed, loops, loops-1)
	}
}

func deref(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}
