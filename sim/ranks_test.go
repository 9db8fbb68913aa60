package sim

import (
	"bufio"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// ranked makes a case one of n data-parallel ranks, in lockstep where the model has experts.
func ranked(cfg Config, n int64, version string) Config {
	d := *cfg.Deployment
	d.DP = n
	d.Engine.VLLMVersion = version
	cfg.Ranks = true
	cfg.Deployment = &d
	return cfg
}

// On ranks everybody leaves once, blocks are conserved, and in lockstep every rank comes to
// every forward pass: the sum of dummies and of steps with tokens is the same on all.
func TestRanksComeToEveryPass(t *testing.T) {
	versions := []string{"0.19.1", "0.24.0", "0.28.0", "0.31.0", "0.33.0"}
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		rng := rand.New(rand.NewPCG(seed, 11))
		cfg = ranked(cfg, 2+rng.Int64N(4), versions[rng.IntN(len(versions))])
		isMoE := rng.IntN(3) > 0
		if isMoE {
			cfg.Deployment.Model.NumExperts = 8
			cfg.Deployment.Model.TopK = 2
		}
		if rng.IntN(2) == 0 {
			setExtra(&cfg.Deployment.Engine, "prefill_schedule_interval", 3)
		}
		res := runChecked(t, cfg, reqs, nil, func(e *Engine, when string) { checkBlocks(t, e, when) })
		for i := range res.Requests {
			if res.Requests[i].Outcome == OutcomeUnfinished {
				t.Errorf("request %d never left", i)
			}
		}
		passes := int64(-1)
		for k, r := range res.Ranks {
			n := r.Steps - r.EmptySteps + r.DummySteps
			switch {
			case !isMoE && r.DummySteps > 0:
				t.Errorf("rank %d of a dense model ran %d dummies", k, r.DummySteps)
			case isMoE && passes >= 0 && n != passes:
				t.Errorf("rank %d: %d steps and %d dummies, want %d passes", k, r.Steps-r.EmptySteps, r.DummySteps, passes)
			}
			passes = n
		}
	})
}

// Ranks of any release that hand prompts on, take them over, speculate or offload: on each of them blocks are conserved over
// park, abort, preemption and the end of a lease, and come back; everybody leaves with exactly its tokens; in lockstep every
// rank comes to every pass, those included in which it only waits for blocks of another server.
func TestNewerRanksConserve(t *testing.T) {
	parked := 0
	for seed := range uint64(cases(t)) {
		cfg, reqs := newerCase(seed)
		rng := rand.New(rand.NewPCG(seed, 12))
		cfg.Deployment.PP = 1
		cfg = ranked(cfg, 2+rng.Int64N(4), cfg.Deployment.Engine.VLLMVersion)
		if cfg.Deployment.Engine.Extra["kv_transfer_config"] == nil && rng.IntN(3) > 0 {
			continue
		}
		isMoE := rng.IntN(4) > 0
		if isMoE {
			cfg.Deployment.Model.NumExperts = 8
			cfg.Deployment.Model.TopK = 2
		}
		engines := map[*Engine]bool{}
		res := runChecked(t, cfg, reqs, nil, func(e *Engine, when string) {
			checkAllBlocks(t, e, when)
			if engines[e] = true; len(e.transfers.parked) > 0 {
				parked++
			}
		})
		for e := range engines {
			checkAllFree(t, e)
		}
		checkOutputs(t, &cfg, reqs, res.Requests)
		passes := func(r *Result) int64 { return r.Steps - r.EmptySteps + r.DummySteps }
		for k, r := range res.Ranks {
			if isMoE && passes(r) != passes(res.Ranks[0]) || !isMoE && r.DummySteps > 0 {
				t.Errorf("rank %d: %d steps and %d dummies, rank 0 %d passes", k, r.Steps-r.EmptySteps, r.DummySteps, passes(res.Ranks[0]))
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d: vLLM %s: %+v", seed, cfg.Deployment.Engine.VLLMVersion, cfg.Deployment)
		}
	}
	if parked == 0 {
		t.Error("nobody was parked")
	}
}

// Ranks of a model without experts are engines of their own: a request sees what it would alone.
func TestDenseRanksAreIndependent(t *testing.T) {
	cfg := DefaultConfig(testkit.Small(100), &Blackbox{Beta: []float64{1000, 10, 100}})
	reqs := []Request{
		{ID: "a", PromptTokens: 20, OutputTokens: 5},
		{ID: "b", PromptTokens: 300, OutputTokens: 3, ArrivalUs: 10},
	}
	both, err := Run(ranked(cfg, 2, "0.33.0"), reqs, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range reqs {
		alone, err := Run(cfg, reqs[i:i+1], nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := both.Requests[i].FinishedUs, alone.Requests[0].FinishedUs; got != want {
			t.Errorf("%s ends at %d us, alone at %d", reqs[i].ID, got.V, want.V)
		}
	}
}

// A rank's load by release: counts of (waiting, running, KV usage), as vLLM's API server scores them.
func TestBalancerScores(t *testing.T) {
	for _, c := range []struct {
		version       string
		first, second float64
		chosen        int
	}{{"0.26.0", 10, 11, 0}, {"0.28.0", 10, 5, 1}} {
		rules, err := (&vllm.Engine{VLLMVersion: c.version}).Rules()
		if err != nil {
			t.Fatal(err)
		}
		s := apiServer{clients: 1, counts: []rankCounts{{0, 10, 0.4}, {2, 3, 0.5}}, inFlight: make([]int64, 2)}
		if a, b := s.loadOf(0, rules.BalancerInFlight), s.loadOf(1, rules.BalancerInFlight); a != c.first || b != c.second {
			t.Errorf("vLLM %s: scores %g and %g, want %g and %g", c.version, a, b, c.first, c.second)
		}
		b := &balancer{rules: rules, ranks: 2, servers: []apiServer{s}}
		if got := b.pickRank(0); got != c.chosen {
			t.Errorf("vLLM %s: sent to %d, want %d", c.version, got, c.chosen)
		}
	}
}

// Equal ranks take turns, and from 0.28 on a full cache with a queue is avoided.
func TestBalancerSpreadsABurst(t *testing.T) {
	for _, version := range []string{"0.19.1", "0.26.0", "0.33.0"} {
		d := testkit.Small(100)
		d.DP, d.Engine.VLLMVersion = 8, version
		setExtra(&d.Engine, "api_server_count", 1)
		rules, err := d.Engine.Rules()
		if err != nil {
			t.Fatal(err)
		}
		b := newBalancer(d, rules)
		sent := make([]int64, d.DP)
		for i := range 80 {
			sent[b.pickRank(i)]++
		}
		for rank, n := range sent {
			if n != 10 {
				t.Errorf("vLLM %s: rank %d got %d of 80, want 10", version, rank, n)
			}
		}
	}
	s := apiServer{clients: 1, counts: []rankCounts{{4, 6, 1}, {4, 6, 0.5}}, inFlight: make([]int64, 2)}
	if a, b := s.loadOf(0, true), s.loadOf(1, true); a != 22 || b != 10 {
		t.Errorf("scores %g and %g, want 10 + 4*6*0.5 = 22 and 10", a, b)
	}
}

// BenchmarkRanks is 100,000 requests on eight ranks in lockstep.
func BenchmarkRanks(b *testing.B) {
	for b.Loop() {
		cfg, reqs := ranksLoad()
		res, err := Stream(cfg, reqs, nil, func(int, *RequestResult) bool { return true })
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(res.Steps), "steps")
	}
}

func ranksLoad() (Config, []Request) {
	d := testkit.Small(20_000, func(e *vllm.Engine) {
		e.MaxNumSeqs = 256
		e.MaxNumBatchedTokens = 8192
		e.BlockSize = 16
	})
	d.Model.NumExperts, d.Model.TopK = 8, 2
	cfg := ranked(DefaultConfig(d, &Blackbox{Beta: []float64{8000, 10, 20}}), 8, "0.33.0")
	cfg.TokenGaps, cfg.RequestGaps = true, true
	rng, at := rand.New(rand.NewPCG(1, 2)), 0.0
	reqs := make([]Request, 100_000)
	for i := range reqs {
		at += rng.ExpFloat64() * 1e6 / 90
		reqs[i] = Request{ArrivalUs: int64(at), PromptTokens: 50 + rng.Int64N(1000), OutputTokens: 20 + rng.Int64N(400)}
	}
	return cfg, reqs
}

// The largest imbalance and the pause of rebalancing count in the passes of all ranks.
func TestExpertsPause(t *testing.T) {
	cfg := DefaultConfig(testkit.Small(100), &Blackbox{Beta: []float64{1000, 0, 0}})
	cfg = ranked(cfg, 2, "0.33.0")
	cfg.Async = false
	cfg.Deployment.Model.NumExperts = 8
	cfg.Deployment.Model.TopK = 2
	e := &cfg.Deployment.Engine
	setExtra(e, "enable_eplb", true)
	setExtra(e, "eplb_config", map[string]any{"step_interval": 4})
	reqs := []Request{{PromptTokens: 16, OutputTokens: 8}}
	end := func(pauseUs int64) int64 {
		cfg.EPLBPauseUs = pauseUs
		res, err := Run(cfg, reqs, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res.Requests[0].FinishedUs.Or(math.MinInt64)
	}
	if got := end(500) - end(0); got != 1000 {
		t.Errorf("two rebalancings of 500 us in 8 passes took %d us, want 1000", got)
	}
}

// API servers turn requests away by what is unfinished, and by prompts without a first token, on all their ranks.
func TestAPIServersTurnAway(t *testing.T) {
	for _, c := range []struct {
		flag, version string
		most          int
		ranks         int64
		turnedAway    string // requests, of six in the same moment and two later
	}{
		{"max_num_queued_reqs", "0.33.0", 2, 1, "2345"}, {"max_num_queued_reqs", "0.33.0", 3, 2, "345"},
		{"max_num_queued_reqs", "0.28.0", 2, 1, ""}, {"max_num_queued_tokens", "0.29.0", 17, 1, "345"},
	} {
		cfg := ranked(DefaultConfig(testkit.Small(100), &Blackbox{Beta: []float64{1000, 10, 100}}), c.ranks, c.version)
		cfg.Ranks = c.ranks > 1
		setExtra(&cfg.Deployment.Engine, c.flag, c.most)
		var reqs []Request
		for i := range 8 {
			reqs = append(reqs, Request{ID: fmt.Sprint(i), PromptTokens: 8, OutputTokens: 5})
			if i > 5 {
				reqs[i].ArrivalUs = 500_000
			}
		}
		res, err := Run(cfg, reqs, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for i := range res.Requests {
			switch r := &res.Requests[i]; {
			case r.Outcome == OutcomeRejected && r.Reason == codeQueueFull:
				got += r.ID
			case r.Outcome != OutcomeFinished:
				t.Errorf("%s: request %d: %s", c.flag, i, r.Outcome)
			}
		}
		if got != c.turnedAway {
			t.Errorf("%s %d, %s, %d ranks: turned away %q, want %q", c.flag, c.most, c.version, c.ranks, got, c.turnedAway)
		}
	}
}

var update = flag.Bool("update", false, "rewrite the logs of testdata/*.txt")

// TestScripts runs the scenarios of testdata: prose, an engine and requests in,
// the event log out. -update rewrites the logs; read the difference.
func TestScripts(t *testing.T) { testkit.Scripts(t, *update, runScript) }

// runScript understands `engine k=v ...`, `step k=v ...` and `request id k=v ...`; # starts prose.
func runScript(t *testing.T, text string) string {
	t.Helper()
	d := testkit.Small(100)
	cfg := DefaultConfig(d, nil)
	var reqs []Request
	for n, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		switch words[0] {
		case "engine":
			for k, v := range testkit.Pairs(t, n, words[1:]) {
				setEngine(t, &cfg, d, k, v)
			}
		case "step":
			p := testkit.Pairs(t, n, words[1:])
			beta := []float64{float64(whole(t, p["base"])), float64(whole(t, p["prefill"])), float64(whole(t, p["decode"]))}
			cfg.Latency = &Blackbox{Beta: beta}
		case "request":
			reqs = append(reqs, requestOfScript(t, words[1], testkit.Pairs(t, n, words[2:])))
		default:
			t.Fatalf("line %d: %q", n+1, line)
		}
	}
	var out strings.Builder
	log := &Log{W: bufio.NewWriter(&out), Requests: reqs}
	if _, err := Run(cfg, reqs, log); err != nil {
		t.Fatal(err)
	}
	if err := log.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func whole(t *testing.T, s string) int64 {
	t.Helper()
	if s == "" {
		return 0
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func setEngine(t *testing.T, cfg *Config, d *deploy.Deployment, k, v string) {
	t.Helper()
	e := &d.Engine
	switch k {
	case "seqs":
		e.MaxNumSeqs = whole(t, v)
	case "budget":
		e.MaxNumBatchedTokens = whole(t, v)
	case "block":
		e.BlockSize = whole(t, v)
	case "blocks":
		e.KVBlocksGPU = trace.Some(whole(t, v))
	case "chunked":
		e.ChunkedPrefill = v == "on"
	case "caching":
		e.PrefixCaching = v == "on"
	case "policy":
		e.SchedulingPolicy = v
	case "long_prefill":
		e.LongPrefillThreshold = whole(t, v)
	case "cpu_blocks":
		e.CPUOffloading, e.KVBlocksCPU = true, whole(t, v)
	case "free_stored":
		cfg.FreeStored = v == "on"
	case "tier": // setting:value,... of the offloading connector
		extra := map[string]any{}
		for _, s := range strings.Split(v, ",") {
			name, value, _ := strings.Cut(s, ":")
			if extra[name] = any(value); value != "arc" {
				extra[name] = whole(t, value)
			}
		}
		extra["offload_prompt_only"] = extra["offload_prompt_only"] != int64(0)
		setExtra(e, "kv_transfer_config", map[string]any{"kv_connector": "OffloadingConnector", "kv_connector_extra_config": extra})
	case "async":
		cfg.Async = v == "on"
	case "overhead":
		cfg.Overhead = Const(whole(t, v))
	case "egress":
		cfg.Egress = Const(whole(t, v))
	case "version":
		e.VLLMVersion = v
	case "pp":
		d.PP = whole(t, v)
	case "dp": // ranks of a model with experts, behind one API server
		d.DP, cfg.Ranks = whole(t, v), true
		d.Model.NumExperts, d.Model.TopK = 8, 2
		setExtra(e, "api_server_count", 1)
	case "graphs":
		setExtra(e, "enforce_eager", v == "off")
	case "maxlen":
		e.MaxModelLen = trace.Some(whole(t, v))
	case "spec": // method:k
		words := strings.Split(v, ":")
		setExtra(e, "speculative_config", map[string]any{"method": words[0], "num_speculative_tokens": whole(t, words[1]),
			"disable_eagle_block_drop": len(words) > 2})
	case "full_prompt", "adaptive":
		flags := map[string]string{"full_prompt": "scheduler_reserve_full_isl", "adaptive": "long_prefill_token_threshold_adaptive"}
		setExtra(e, flags[k], v == "on")
	case "watermark":
		w, err := strconv.ParseFloat(v, 64)
		if err != nil {
			t.Fatal(err)
		}
		setExtra(e, "watermark", w)
	case "active":
		setExtra(e, "max_num_active_seqs", int(whole(t, v)))
	case "connector":
		setExtra(e, "kv_transfer_config", map[string]any{"kv_connector": v})
	case "interval":
		setExtra(e, "prefill_schedule_interval", int(whole(t, v)))
	default:
		t.Fatalf("engine %s=%s", k, v)
	}
}

func setExtra(e *vllm.Engine, flag string, v any) {
	if e.Extra == nil {
		e.Extra = vllm.Values{}
	}
	e.Extra[flag] = v
}

func requestOfScript(t *testing.T, id string, p map[string]string) Request {
	t.Helper()
	r := Request{
		ID: id, ArrivalUs: whole(t, p["at"]), PromptTokens: whole(t, p["prompt"]), OutputTokens: whole(t, p["output"]),
		MaxTokens: whole(t, p["max"]), Priority: whole(t, p["priority"]),
	}
	if g := p["shares"]; g != "" { // shares=<group>:<tokens>
		if _, err := fmt.Sscanf(g, "%d:%d", &r.Group, &r.GroupTokens); err != nil {
			t.Fatal(err)
		}
	}
	if a := p["abort"]; a != "" {
		r.AbortAtUs = trace.Some(whole(t, a))
		r.AbortKind = OutcomeAborted
	}
	r.After, r.With, r.Loop, r.ThinkUs = int(whole(t, p["after"])), int(whole(t, p["with"])), int(whole(t, p["loop"])), whole(t, p["think"])
	r.Queued = p["queued"] != ""
	r.RemotePrefill, r.LoadUs = p["load"] != "", whole(t, p["load"])
	r.RemoteDecode, r.SendUs = p["send"] != "", whole(t, p["send"])
	for _, n := range strings.FieldsFunc(p["accept"], func(c rune) bool { return c == ',' }) {
		r.Accepted = append(r.Accepted, uint8(whole(t, n)))
	}
	return r
}
