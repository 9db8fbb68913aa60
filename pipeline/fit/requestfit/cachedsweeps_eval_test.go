package requestfit

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// sweepLevel is one level of a planted sweep, with the figures that a benchmark prints.
type sweepLevel struct {
	clients, requests int
	prompt, output    float64
	cached            float64 // mean of a prompt
	sim.Means
}

func (l *sweepLevel) e2eMs() float64 { return l.TTFTMs + l.TPOTMs*(l.output-1) }
func (l *sweepLevel) rate() float64  { return float64(l.clients) / l.e2eMs() * 1e3 }

// plantedSweep measures six levels of a server, with a share of all prompt tokens cached.
func plantedSweep(t *testing.T, d *deploy.Deployment, truth *coeff.Set, share float64) []sweepLevel {
	t.Helper()
	levels := []sweepLevel{
		{clients: 1, prompt: 1000, output: 100},
		{clients: 2, prompt: 4000, output: 100},
		{clients: 4, prompt: 1000, output: 200},
		{clients: 8, prompt: 2000, output: 150},
		{clients: 16, prompt: 500, output: 200},
		{clients: 32, prompt: 1000, output: 150},
	}
	for i := range levels {
		l := &levels[i]
		l.requests = 20 * l.clients
		l.cached = share * l.prompt
		point := trace.LoadPoint{
			Clients:      trace.Some(int64(l.clients)),
			Requests:     trace.Some(int64(l.requests)),
			PromptTokens: l.prompt,
			OutputTokens: l.output,
			CachedTokens: trace.Some(l.cached),
			TPOTMs:       20, // of any size that the device can have
		}
		load, err := loadOfLevel(&point, d)
		if err != nil {
			t.Fatal(err)
		}
		if l.Means, err = load.means(&Prior{Name: "truth", Set: truth}); err != nil {
			t.Fatal(err)
		}
	}
	return levels
}

// sweepFormats write a level as each client does; stated is whether with what the server counted as cached.
var sweepFormats = map[string]func(l *sweepLevel, stated bool) string{
	"inference-perf, a sum": func(l *sweepLevel, stated bool) string {
		cached := 0.0
		if stated {
			cached = l.cached * float64(l.requests)
		}
		return fmt.Sprintf(`{"load_summary":{"concurrency":%d},"successes":{"count":%d,"throughput":{"requests_per_sec":%g},`+
			`"prompt_tokens":{"mean":%g,"cached":%g},"output_tokens":{"mean":%g},"latency":{"time_to_first_token":{"mean":%g},`+
			`"time_per_output_token":{"mean":%g},"request_latency":{"mean":%g}}}}`, l.clients, l.requests, l.rate(), l.prompt, cached, l.output,
			l.TTFTMs/1e3, l.TPOTMs/1e3, l.e2eMs()/1e3)
	},
	"AIPerf, a mean": func(l *sweepLevel, stated bool) string {
		cached := ""
		if stated {
			cached = fmt.Sprintf(`"usage_prompt_cache_read_tokens":{"unit":"tokens","avg":%g},`, l.cached)
		}
		return aiperfSummary(l, cached)
	},
	"AIPerf, a sum": func(l *sweepLevel, stated bool) string {
		cached := ""
		if stated {
			cached = fmt.Sprintf(`"total_usage_prompt_cache_read_tokens":{"unit":"tokens","avg":%g},`, l.cached*float64(l.requests))
		}
		return aiperfSummary(l, cached)
	},
	"SGLang, a sum": func(l *sweepLevel, stated bool) string {
		cached := ""
		if stated {
			cached = fmt.Sprintf(`,"cache_report":{"total_cached_tokens":%g}`, l.cached*float64(l.requests))
		}
		n := float64(l.requests)
		return fmt.Sprintf(`{"backend":"sglang","dataset_name":"sharegpt","completed":%d,"total_input_tokens":%g,"total_output_tokens":%g,`+
			`"request_rate":"inf","max_concurrency":%d,"request_throughput":%g,"mean_ttft_ms":%g,"mean_tpot_ms":%g,"mean_e2e_latency_ms":%g%s}`,
			l.requests, n*l.prompt, n*l.output, l.clients, l.rate(), l.TTFTMs, l.TPOTMs, l.e2eMs(), cached)
	},
}

func aiperfSummary(l *sweepLevel, cached string) string {
	return fmt.Sprintf(`{%s"request_count":{"unit":"requests","avg":%d},"request_throughput":{"unit":"requests/sec","avg":%g},`+
		`"input_sequence_length":{"unit":"tokens","avg":%g},"output_sequence_length":{"unit":"tokens","avg":%g},`+
		`"time_to_first_token":{"unit":"ms","avg":%g},"inter_token_latency":{"unit":"ms","avg":%g},"request_latency":{"unit":"ms","avg":%g},`+
		`"input_config":{"loadgen":{"concurrency":%d}}}`, cached, l.requests, l.rate(), l.prompt, l.output, l.TTFTMs, l.TPOTMs, l.e2eMs(), l.clients)
}

// TestEvalCachedSweeps: sweeps of one server with half of all prompt tokens cached give the cost of a prompt
// token that they give with caching off: within 10 %, and within the interval, in the formats of three
// clients; where the file does not state what was cached, the interval is wider and holds it too.
func TestEvalCachedSweeps(t *testing.T) {
	repo.NeedEval(t)
	d := h100(t)
	d.Engine.PrefixCaching = true
	off := *d
	off.Engine.PrefixCaching = false
	set, err := fit.LibraryFor(d)
	if err != nil {
		t.Fatal(err)
	}
	prior := &Prior{Name: "library", Set: set}
	m, err := newModel(prior, d)
	if err != nil {
		t.Fatal(err)
	}
	truth := m.setOf(m.mean)
	for j := range truth.Beta {
		truth.Beta[j].Value *= 1.1
	}
	o := DefaultOptions()
	o.Search = SearchNone
	const term = "prefill_linear_compute"
	fitted := func(on *deploy.Deployment, levels []sweepLevel, write func(*sweepLevel, bool) string, stated bool) *Learned {
		var loads []*Load
		for i := range levels {
			f, err := clients.ReadLevels(strings.NewReader(write(&levels[i], stated)), fmt.Sprintf("level%d.json", i))
			if err != nil || len(f.Levels) != 1 {
				t.Fatal(err, f)
			}
			p := f.Levels[0].LoadPoint()
			load, err := loadOfLevel(&p, on)
			if err != nil {
				t.Fatal(err)
			}
			loads = append(loads, load)
		}
		got, err := fitShare(context.Background(), loads, nil, prior, o)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	plain := plantedSweep(t, &off, truth, 0)
	cached := plantedSweep(t, d, truth, 0.5)
	for name, write := range sweepFormats {
		want, _, _ := intervalOf(fitted(&off, plain, write, false), term)
		got := fitted(d, cached, write, true)
		value, low, high := intervalOf(got, term)
		fmt.Printf("  %-22s caching off %.4g; half cached, stated: %.4g (%.4g to %.4g)", name, want, value, low, high)
		if got.Level.CachedShare != nil || value < 0.9*want || value > 1.1*want || want < low || want > high {
			t.Errorf("%s: got %g (%g to %g), want %g within 10 %% and within the interval", name, value, low, high, want)
		}
		absent := fitted(d, cached, write, false)
		value, from, to := intervalOf(absent, term)
		fmt.Printf("; not stated: %.4g (%.4g to %.4g), %s\n", value, from, to, absent.Level.CachedShare)
		e := absent.Level.CachedShare
		if e == nil || to-from < 1.2*(high-low) || want < from || want > to || e.Low > 0.5 || e.High < 0.5 {
			t.Errorf("%s, not stated: got %g to %g, %v, want a wider interval with %g, and half cached", name, from, to, e, want)
		}
	}
}
