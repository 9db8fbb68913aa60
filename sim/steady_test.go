package sim

import (
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
)

// The steady path and the memory of failed admissions give what the general
// path gives, request by request.
func TestSteadyPathIsExact(t *testing.T) {
	steady := 0
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		cfg.Deployment.Engine.CPUOffloading = false
		fast := runChecked(t, cfg, reqs, nil, func(e *Engine, when string) {
			if when == "schedule" && e.cur == nil && e.batch.Tokens() > 0 {
				steady++
			}
			checkBlocks(t, e, when)
		})
		all := make([]RequestResult, len(reqs))
		d, err := newDriver(cfg, reqs, nil, func(i int, r *RequestResult) bool {
			all[i] = *r
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
		d.quick, d.memo = false, false
		slow, err := d.run()
		if err != nil {
			t.Fatal(err)
		}
		if slow.Requests = all; !reflect.DeepEqual(fast, slow) {
			t.Errorf("the steady path differs")
		}
	})
	if steady == 0 {
		t.Error("no steady step was taken")
	}
	t.Logf("%d steady steps", steady)
}

// A step allocates nothing, whatever path it takes: 10,000 more steps cost no allocation.
func TestNoAllocationPerStep(t *testing.T) {
	allocs := func(caching, async bool, tokens int64) float64 {
		d := testkit.Llama8B()
		d.Engine.PrefixCaching, d.Engine.MaxModelLen = caching, trace.Opt[int64]{}
		m, err := NewPhysics(testkit.Planted(), d)
		if err != nil {
			t.Fatal(err)
		}
		cfg := DefaultConfig(d, m)
		cfg.Async = async
		reqs := []Request{{PromptTokens: 100, OutputTokens: tokens}, {PromptTokens: 200, OutputTokens: tokens / 2}}
		return testing.AllocsPerRun(1, func() {
			if _, err := Run(cfg, reqs, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
	for _, c := range []struct {
		caching, async bool
		slack          float64 // growth of tables with the blocks registered, logarithmic
	}{{false, false, 2}, {false, true, 2}, {true, false, 60}, {true, true, 60}} {
		short, long := allocs(c.caching, c.async, 100), allocs(c.caching, c.async, 10100)
		if long-short > c.slack {
			t.Errorf("caching %t async %t: %g allocations for 100 tokens, %g for 10,100", c.caching, c.async, short, long)
		}
	}
}
