package cluster

import (
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Prefill and decode instances of any release, alone and full: everybody leaves, no instance keeps a block, every
// request that was answered was moved once, and its tokens are those of one engine. So do instances of data-parallel ranks,
// as many or not on both sides, in lockstep or not; on each rank of one in lockstep the passes are the same.
func TestDisaggregatedRequestsLeave(t *testing.T) {
	for seed := range uint64(200) {
		reqs := mixture(seed, 200, 30)
		for i := range reqs {
			if i%9 == 4 {
				reqs[i].AbortAfterUs, reqs[i].AbortKind = trace.Some(int64(3000*(i%7))), sim.OutcomeAborted
			}
		}
		d := testkit.Small(60 + 40*int64(seed%4))
		d.Engine.VLLMVersion = []string{"0.15.1", "0.19.1", "0.24.0", "0.33.0"}[seed/4%4]
		d.Engine.PrefixCaching = seed%3 > 0
		d.Engine.Extra = map[string]any{"kv_transfer_config": map[string]any{"kv_connector": "NixlConnector"}}
		d.Model.NumLayers, d.Model.NumKVHeads, d.Model.HeadDim, d.Model.BytesPerKV = 10, 8, 128, 2
		ec := sim.DefaultConfig(d, &sim.Blackbox{Beta: []float64{1000, 10, 100}})
		ec.Async = seed%2 == 1
		cfg := plain(several(4, ec))
		isMoE := seed%4 > 0
		for i := range cfg.Engines {
			own := *d
			own.DP = []int64{1, 2, 1, 3, 2}[(seed/40+uint64(i/2))%5]
			if isMoE {
				own.Model.NumExperts, own.Model.TopK = 8, 2
			}
			cfg.Engines[i].Deployment = &own
		}
		cfg.Routing.Policy = []string{RoundRobin, LeastLoaded}[seed%2]
		cfg.Instances.Groups = []group{{Count: 2, Role: roleDecode}, {Count: 2, Role: rolePrefill}}
		cfg.Transfer = transferSpec{BandwidthGBs: 1, LatencyUs: 50, ProxyUs: int64(seed) * 10, Shared: seed%5 > 0}
		c, err := newCluster(cfg, reqs)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.run()
		if err != nil {
			t.Fatal(err)
		}
		answered := 0
		for i := range res.Records {
			r := &res.Records[i]
			switch r.Outcome {
			case sim.OutcomeUnfinished:
				t.Errorf("seed %d: %s never left", seed, r.ID)
			case sim.OutcomeRejected: // before 0.31 some wait for ever
				if q, e := &reqs[i], &d.Engine; seed/4%4 > 1 && (q.PromptTokens+q.OutputTokens)/e.BlockSize < e.KVBlocksGPU.V {
					t.Errorf("seed %d: %s of %d and %d tokens is rejected: %s", seed, r.ID, q.PromptTokens, q.OutputTokens, r.Reason)
				}
			case sim.OutcomeFinished:
				answered++
				if !r.Prefill.OK || r.Instance > 1 || r.Prefill.V < 2 || r.FirstTokenUs.V <= r.ScheduledUs.V {
					t.Errorf("seed %d: %s went by %v to %d, first token at %d", seed, r.ID, r.Prefill, r.Instance, r.FirstTokenUs.V)
				}
				if r.OutputTokens != reqs[i].OutputTokens && !r.LengthCapped {
					t.Errorf("seed %d: %s got %d tokens, want %d", seed, r.ID, r.OutputTokens, reqs[i].OutputTokens)
				}
			}
		}
		for i, e := range res.Engines {
			for k, r := range e.Ranks {
				first := e.Ranks[0]
				passes, want := r.Steps-r.EmptySteps+r.DummySteps, first.Steps-first.EmptySteps+first.DummySteps
				if isMoE && passes != want || !isMoE && r.DummySteps > 0 {
					t.Errorf("seed %d: rank %d of instance %d: %d passes and %d of the first, %d dummies", seed, k, i, passes, want, r.DummySteps)
				}
			}
			if n := cfg.Engines[i].Deployment.DP; int64(len(e.Ranks)) != n && n > 1 {
				t.Errorf("seed %d: instance %d has %d ranks, want %d", seed, i, len(e.Ranks), n)
			}
		}
		for i, e := range c.engines {
			if v := seed / 4 % 4; v == 1 || v == 0 && i > 1 {
				continue // an idle engine of these releases learns with its next step that its blocks were read, or an aborted load is over
			}
			if in := e.Inside(); in.FreeBlocks != in.TotalBlocks {
				t.Errorf("seed %d: instance %d keeps %d of %d blocks", seed, i, in.TotalBlocks-in.FreeBlocks, in.TotalBlocks)
			}
		}
		if answered == 0 || res.Transfers.Count < answered/2 {
			t.Errorf("seed %d: %d transfers for %d answers", seed, res.Transfers.Count, answered)
		}
	}
}

// Two requests that never meet, handed from two ranks in lockstep to three: by hand. vLLM 0.24 breaks ties by the place, so
// the balancers send both to the first ranks, and the others run dummies alone. A pass of the prefill instance takes 1000 us
// and 10 us for each of 32 tokens. The decode instance gets the request 100 us later; in its first iteration the first rank parks it
// (200 us), sleeps 1000 us with nothing to do and runs a dummy of 1100 us, for which the others have waited. The two blocks
// of 2 x 10 layers x 8 heads x 128 x 2 bytes for each of 16 tokens come in 1311 us at 1 GB/s, and 50. The second iteration
// begins without them and ends with them, the third computes the last prompt token, in the 1100 us of the dummies, two decodes follow.
// Without experts nobody waits for anybody: the first rank takes what an engine alone does.
func TestHandedFromRankToRankByHand(t *testing.T) {
	run := func(experts, prefill, decode int64) *Result {
		d := testkit.Small(100)
		d.Engine.VLLMVersion, d.Engine.BlockSize, d.Engine.MaxNumBatchedTokens = "0.24.0", 16, 2048
		d.Engine.Extra = map[string]any{"kv_transfer_config": map[string]any{"kv_connector": "NixlConnector"}, "api_server_count": 1}
		d.Model.NumLayers, d.Model.NumKVHeads, d.Model.HeadDim, d.Model.BytesPerKV, d.Model.NumExperts, d.Model.TopK = 10, 8, 128, 2, experts, 2
		ec := sim.DefaultConfig(d, &sim.Blackbox{Beta: []float64{1000, 10, 100}})
		ec.Async = false
		cfg := plain(several(2, ec))
		cfg.Instances.Groups = []group{{Count: 1, Role: rolePrefill}, {Count: 1, Role: roleDecode}}
		cfg.Transfer = transferSpec{BandwidthGBs: 1, LatencyUs: 50, ProxyUs: 100, Shared: true}
		for i, dp := range []int64{prefill, decode} {
			own := *d
			own.DP = dp
			cfg.Engines[i].Deployment = &own
		}
		res, err := Run(cfg, []sim.Request{{PromptTokens: 32, OutputTokens: 3}, {PromptTokens: 32, OutputTokens: 3, ArrivalUs: 300_000}})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	res, alone := run(8, 2, 3), run(0, 1, 1)
	dense := run(0, 2, 3)
	handed := int64(1000 + 10*32 + 100)
	first := handed + 2*(200+1000+1100) + 1100
	for i := range res.Records {
		r := &res.Records[i]
		if got := r.FirstTokenUs.V - r.ArrivalUs; got != first {
			t.Errorf("request %d: first token after %d us, want %d", i, got, first)
		}
		if got := r.FinishedUs.V - r.FirstTokenUs.V; got != 2*1100 {
			t.Errorf("request %d: two more tokens after %d us, want 2200", i, got)
		}
		if got, want := dense.Records[i].FinishedUs, alone.Records[i].FinishedUs; got != want {
			t.Errorf("request %d: without experts ends at %d us, on engines alone at %d", i, got.V, want.V)
		}
	}
	for i, e := range res.Engines {
		for k, r := range e.Ranks {
			if want := map[bool]int64{true: 2}[k == 0]; r.Sent != want || k > 0 && r.Steps > 0 {
				t.Errorf("instance %d, rank %d: %d requests in %d steps, want %d", i, k, r.Sent, r.Steps, want)
			}
		}
	}
	if got := *res.Transfers; got != (Transfers{Count: 2, Bytes: 2 * 2 * 655_360, Us: 2 * (1311 + 50)}) {
		t.Errorf("transfers %+v", got)
	}
}

// Each rank has a link of its own: two prompts that go from two ranks to two at once do not wait for each other, from one
// rank to two they do.
func TestRanksHaveLinksOfTheirOwn(t *testing.T) {
	for _, c := range []struct{ prefill, decode, us int64 }{{2, 2, 2 * 1361}, {1, 2, 2*1361 + 1311}, {2, 1, 2*1361 + 1311}} {
		d := testkit.Small(100)
		d.Engine.VLLMVersion, d.Engine.BlockSize, d.Engine.MaxNumBatchedTokens = "0.33.0", 16, 2048
		d.Engine.Extra = map[string]any{"kv_transfer_config": map[string]any{"kv_connector": "NixlConnector"}}
		d.Model.NumLayers, d.Model.NumKVHeads, d.Model.HeadDim, d.Model.BytesPerKV = 10, 8, 128, 2
		cfg := plain(several(2, sim.DefaultConfig(d, &sim.Blackbox{Beta: []float64{1000, 0, 0}})))
		cfg.Instances.Groups = []group{{Count: 1, Role: rolePrefill}, {Count: 1, Role: roleDecode}}
		cfg.Transfer = transferSpec{BandwidthGBs: 1, LatencyUs: 50, Shared: true}
		for i, dp := range []int64{c.prefill, c.decode} {
			own := *d
			own.DP = dp
			cfg.Engines[i].Deployment = &own
		}
		res, err := Run(cfg, []sim.Request{{PromptTokens: 32, OutputTokens: 3}, {PromptTokens: 32, OutputTokens: 3}})
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Transfers.Us; got != c.us {
			t.Errorf("%d and %d ranks: transfers of %d us, want %d", c.prefill, c.decode, got, c.us)
		}
	}
}
