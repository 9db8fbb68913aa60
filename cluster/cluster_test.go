package cluster

import (
	"bufio"
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// mixture is n requests at a rate: prompts of 16 to 1,200 tokens, a half with one of
// eight prefixes, three classes with targets.
func mixture(seed uint64, n int, perSecond float64) []sim.Request {
	rng := rand.New(rand.NewPCG(seed, 7))
	reqs := make([]sim.Request, n)
	at := 0.0
	names := []string{"critical", "standard", "sheddable"}
	for i := range reqs {
		at += rng.ExpFloat64() / perSecond * 1e6
		reqs[i] = sim.Request{
			ID:           strconv.Itoa(i),
			ArrivalUs:    int64(at),
			PromptTokens: 16 + rng.Int64N(1200),
			OutputTokens: 1 + rng.Int64N(120),
			SLOClass:     names[rng.IntN(3)],
			SLOTTFTUs:    300_000,
		}
		if rng.IntN(2) == 0 {
			reqs[i].Group = 1 + rng.Uint64N(8)
			reqs[i].GroupTokens = min(reqs[i].PromptTokens, 256)
		}
	}
	return reqs
}

func physical(t testing.TB, mutate ...func(*vllm.Engine)) sim.Config {
	t.Helper()
	d := testkit.Llama8B()
	d.Engine.PrefixCaching = true
	d.Engine.MaxNumBatchedTokens = 2048
	for _, m := range mutate {
		m(&d.Engine)
	}
	m, err := sim.NewPhysics(testkit.Planted(), d)
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.DefaultConfig(d, m)
	cfg.Overhead = sim.Const(800)
	cfg.Egress = sim.Const(150)
	return cfg
}

func several(n int, cfg sim.Config) []sim.Config {
	out := make([]sim.Config, n)
	for i := range out {
		out[i] = cfg
	}
	return out
}

func plain(engines []sim.Config) *Config {
	return &Config{
		Spec:   Spec{Routing: Routing{Policy: RoundRobin, IndexUpdate: OnRoute}},
		parts:  parts{Engines: engines},
		Policy: Always{},
	}
}

// One instance gives the log of the engine alone, byte for byte, whatever the
// gateway watches: open, closed, with priorities, samples and aborts.
func TestOneInstanceIsTheEngine(t *testing.T) {
	closedLoop := mixture(3, 300, 20)
	for i := range closedLoop {
		if i >= 12 {
			closedLoop[i].Loop = 1
			closedLoop[i].Queued = true
			closedLoop[i].ThinkUs = int64(i%3) * 1000
		} else {
			closedLoop[i].Loop = 1
		}
	}
	chained := mixture(4, 300, 20)
	for i := range chained {
		if i%3 == 2 {
			chained[i].After = i
			chained[i].ThinkUs = 5000
			chained[i].ArrivalUs = 0
		}
		if i%7 == 3 {
			chained[i].AbortAfterUs = trace.Some(int64(40_000))
			chained[i].AbortKind = sim.OutcomeAborted
		}
	}
	for name, reqs := range map[string][]sim.Request{"open": mixture(1, 600, 40), "closed": closedLoop, "chained": chained} {
		for _, async := range []bool{false, true} {
			cfg := physical(t, func(e *vllm.Engine) { e.AsyncScheduling = trace.Some(async) })
			cfg.Async = async
			cfg.Noise = &sim.Noise{Decode: []sim.Quantile{{Q: 0.1, Ratio: 0.9}, {Q: 0.9, Ratio: 1.2}}}
			var alone, together bytes.Buffer
			log := &sim.Log{W: bufio.NewWriter(&alone), Requests: reqs}
			want, err := sim.Run(cfg, reqs, log)
			if err != nil {
				t.Fatal(err)
			}
			log.Flush()
			c := plain([]sim.Config{cfg})
			c.RefreshUs = 50_000
			c.Routing.Policy = LeastLoaded
			log = &sim.Log{W: bufio.NewWriter(&together), Requests: reqs}
			c.Observe = func(int) sim.Observer { return log }
			got, err := Run(c, reqs)
			if err != nil {
				t.Fatal(err)
			}
			log.Flush()
			if alone.Len() < 10_000 || !bytes.Equal(alone.Bytes(), together.Bytes()) {
				t.Errorf("%s, async %v: logs of %d and %d bytes differ", name, async, alone.Len(), together.Len())
			}
			for i := range want.Requests {
				if !reflect.DeepEqual(want.Requests[i], got.Records[i].RequestResult) {
					t.Fatalf("%s: request %d: got %+v, want %+v", name, i, got.Records[i].RequestResult, want.Requests[i])
				}
			}
		}
	}
}

// Eight instances served in turn are eight engines that each get every eighth request.
func TestRoundRobinIsSeparateRuns(t *testing.T) {
	reqs := mixture(2, 1600, 200)
	cfg := physical(t)
	got, err := Run(plain(several(8, cfg)), reqs)
	if err != nil {
		t.Fatal(err)
	}
	for k := range 8 {
		var part []sim.Request
		for i := k; i < len(reqs); i += 8 {
			part = append(part, reqs[i])
		}
		want, err := sim.Run(cfg, part, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range part {
			if rec := got.Records[k+8*i]; rec.Instance != k || !reflect.DeepEqual(want.Requests[i], rec.RequestResult) {
				t.Fatalf("instance %d, its request %d: got %+v, want %+v", k, i, rec.RequestResult, want.Requests[i])
			}
		}
	}
}

// One prompt of constant time a step and Poisson arrivals are the queue M/D/1: mean
// wait rho*D/(2*(1-rho)) (Pollaczek and Khinchine), within the 99 % interval of
// batch means.
func TestWaitOfMD1(t *testing.T) {
	const service, n, batches = 1000, 20_000, 40
	for _, rho := range []float64{0.5, 0.8, 0.95} {
		d := testkit.Small(1000, func(e *vllm.Engine) { e.MaxNumSeqs, e.MaxNumBatchedTokens = 1, 4 })
		cfg := sim.DefaultConfig(d, &sim.Blackbox{Beta: []float64{service, 0, 0}})
		cfg.EmptyStepUs = 1 // the engine looks for work once more after the last request
		rng := rand.New(rand.NewPCG(1, uint64(100*rho)))
		reqs := make([]sim.Request, n)
		at := 0.0
		free := 0.0
		byHand := 0.0 // waits by Lindley's recursion, without an engine
		for i := range reqs {
			at += rng.ExpFloat64() / rho * service
			reqs[i] = sim.Request{ArrivalUs: int64(at), PromptTokens: 4, OutputTokens: 1}
			free = math.Max(free, at)
			byHand += (free - at) / n
			free += service
		}
		res, err := Run(plain([]sim.Config{cfg}), reqs)
		if err != nil {
			t.Fatal(err)
		}
		mean, squares := 0.0, 0.0
		for b := range batches {
			sum := 0.0
			for _, r := range res.Records[b*n/batches : (b+1)*n/batches] {
				sum += float64(r.FirstTokenUs.V - service - r.ArrivalUs)
			}
			x := sum / (n / batches)
			mean += x / batches
			squares += x * x / batches
		}
		half := 2.7079 * math.Sqrt((squares-mean*mean)/(batches-1)) // t of 39 degrees of freedom, 99.5 %
		want := rho * service / (2 * (1 - rho))
		t.Logf("rho %.2f: mean wait %.1f +- %.1f us, M/D/1 %.1f us", rho, mean, half, want)
		if math.Abs(mean-byHand) > 1 {
			t.Errorf("rho %.2f: mean wait %.1f us, by hand %.1f", rho, mean, byHand)
		}
		if math.Abs(mean-want) > half {
			t.Errorf("rho %.2f: mean wait %.1f us, want %.1f within %.1f", rho, mean, want, half)
		}
	}
}

// A copy of an engine goes on as the engine does, and leaves it alone.
func TestCloneGoesOnAsItsOriginal(t *testing.T) {
	for _, async := range []bool{false, true} {
		cfg := physical(t, func(e *vllm.Engine) { e.KVBlocksGPU = trace.Some(int64(900)) })
		cfg.Async = async
		cfg.Noise = &sim.Noise{Decode: []sim.Quantile{{Q: 0.1, Ratio: 0.9}, {Q: 0.9, Ratio: 1.2}}}
		reqs := mixture(5, 200, 60)
		stamps := func(into map[int]sim.RequestResult) sim.Hooks {
			return sim.Hooks{Left: func(i int, _ int64, r *sim.RequestResult) { into[i] = *r }}
		}
		ours := map[int]sim.RequestResult{}
		copied := map[int]sim.RequestResult{}
		e, err := sim.NewEngine(cfg, nil, stamps(ours))
		if err != nil {
			t.Fatal(err)
		}
		for i := range reqs {
			if err := e.RunTo(reqs[i].ArrivalUs); err != nil {
				t.Fatal(err)
			}
			if err := e.Arrive(i, &reqs[i], reqs[i].ArrivalUs); err != nil {
				t.Fatal(err)
			}
		}
		c := e.Clone(stamps(copied))
		for _, x := range []*sim.Engine{c, e} {
			if err := x.RunTo(math.MaxInt64); err != nil {
				t.Fatal(err)
			}
		}
		if len(copied) < 20 {
			t.Fatalf("only %d requests were inside", len(copied))
		}
		preempted := false
		for i, r := range copied {
			if preempted = preempted || r.Preemptions > 0; !reflect.DeepEqual(r, ours[i]) {
				t.Fatalf("request %d: the copy has %+v, the engine %+v", i, r, ours[i])
			}
		}
		if !preempted {
			t.Error("nobody was preempted: blocks were not short")
		}
	}
}
