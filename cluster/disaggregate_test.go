package cluster

import (
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Prefill and decode instances of any release, alone and full: everybody leaves, no instance keeps a block, every
// request that was answered was moved once, and its tokens are those of one engine.
func TestDisaggregatedRequestsLeave(t *testing.T) {
	for seed := range uint64(40) {
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
		for i, e := range c.engines {
			if i > 1 && seed/4%4 < 2 {
				continue // an idle engine of these releases learns with its next step that its blocks were read
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
