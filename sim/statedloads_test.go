package sim

import (
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// loads is an Observer that keeps the chunks that each request loaded from the tier at first.
type loads map[int]int64

func (loads) Step(*StepView) {}
func (loads) Event(*Event)   {}
func (l loads) KV(ev *KVEvent) {
	if _, again := l[ev.Request]; ev.Kind == transferInitiated && !ev.ToCPU && !again {
		l[ev.Request] = ev.Blocks
	}
}

// TestStatedLoads: where a recording states which cached tokens were loaded from CPU memory, a replay without the contents of
// the prompts schedules every request when the recorded engine did. Without that statement requests are early.
func TestStatedLoads(t *testing.T) {
	for _, c := range []struct {
		version string
		chunk   int64
	}{{"0.15.1", 1}, {"0.22.0", 1}, {"0.15.1", 4}, {"0.33.0", 1}} {
		cfg := DefaultConfig(testkit.Small(80, func(e *vllm.Engine) {
			e.VLLMVersion = c.version
			e.PrefixCaching, e.CPUOffloading, e.KVBlocksCPU = true, true, 4000
			e.BlockSize = 4
			if c.chunk > 1 {
				e.Extra = map[string]any{"kv_transfer_config": map[string]any{"kv_connector": "OffloadingConnector",
					"kv_connector_extra_config": map[string]any{"block_size": c.chunk * e.BlockSize}}}
			}
		}), &Blackbox{Beta: []float64{1000, 5, 5}})
		cfg.Deployment.Hardware.PCIeBandwidthGBs, cfg.Deployment.Hardware.PCIeEfficiency = 0.05, 1 // loads that take some steps
		if got := cfg.Deployment.Engine.Offload().Blocks; got != c.chunk {
			t.Fatalf("%s: chunks of %d blocks, want %d", c.version, got, c.chunk)
		}
		var reqs []Request
		for i := range 60 {
			reqs = append(reqs, Request{ArrivalUs: int64(i) * 40_000, PromptTokens: 100, OutputTokens: 8, Group: 1 + uint64(i%6), GroupTokens: 80})
		}
		loaded := loads{}
		recorded, err := Run(cfg, reqs, loaded)
		if err != nil {
			t.Fatal(err)
		}
		if len(loaded) < 10 {
			t.Fatalf("%s: %d requests loaded anything, want more", c.version, len(loaded))
		}
		shifted := map[bool]int{} // requests that are scheduled at another time, by whether loads are stated
		for _, states := range []bool{false, true} {
			var replayed []Request
			for i, r := range reqs {
				r.Group, r.GroupTokens = 0, 0
				r.CachedTokens = trace.Some(recorded.Requests[i].CachedTokens)
				if states {
					r.LoadedTokens = min(loaded[i]*c.chunk*cfg.Deployment.Engine.BlockSize, r.CachedTokens.V)
				}
				replayed = append(replayed, r)
			}
			got, err := Run(cfg, replayed, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := range reqs {
				if got.Requests[i].ScheduledUs != recorded.Requests[i].ScheduledUs {
					shifted[states]++
				}
			}
			if states && got.LoadedBlocks != recorded.LoadedBlocks {
				t.Errorf("%s: %d blocks were loaded, want %d", c.version, got.LoadedBlocks, recorded.LoadedBlocks)
			}
		}
		if shifted[true] > 0 || shifted[false] < 10 {
			t.Errorf("%s, chunks of %d: %d requests are scheduled at another time than recorded, want none, and %d without the loads stated",
				c.version, c.chunk, shifted[true], shifted[false])
		}
	}
}
