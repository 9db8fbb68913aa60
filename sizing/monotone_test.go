package sizing

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/library/predict"
)

// dominated are pairs of GPUs with kernel tables, the second in nothing less than the first.
var dominated = [][2]string{{"H100", "H200"}, {"H200", "B200"}, {"H100", "B200"}, {"A100", "H100"}, {"L40S", "H100"}, {"B200", "B300"}}

// TestDominated checks the pairs by their datasheets.
func TestDominated(t *testing.T) {
	for _, pair := range dominated {
		a, okA := deploy.Datasheet(pair[0])
		b, okB := deploy.Datasheet(pair[1])
		if !okA || !okB || b.BwPeakTBs < a.BwPeakTBs || b.TFlopsPeak < a.TFlopsPeak || b.MemoryGB < a.MemoryGB ||
			b.InterconnectBandwidthGBs < a.InterconnectBandwidthGBs {
			t.Errorf("%v: want the second in nothing less than the first, got %+v and %+v", pair, a, b)
		}
	}
}

// isMonotone asks n random questions and variants of each that can need no more: of the same with a target twice
// as loose, half the load, and a GPU that is in nothing less. One more replica carries no less in all.
func isMonotone(t *testing.T, n int) {
	rng := rand.New(rand.NewPCG(57, 1))
	models := []struct {
		name string
		tp   []int64
	}{{"Qwen/Qwen3-32B", []int64{2, 4}}, {"meta-llama/Llama-3.1-8B", []int64{1, 2}}, {"Qwen/Qwen3-30B-A3B", []int64{2}}}
	for k := range n {
		load := predict.Load{RateRPS: 1 + 5*rng.Float64(), InputTokens: 200 + rng.Int64N(800), OutputTokens: 5 + rng.Int64N(15)}
		m := models[rng.IntN(len(models))]
		pair := dominated[rng.IntN(len(dominated))]
		ask := func(hardware, slo string, load predict.Load) *Question {
			q := question(load, slo, m.tp[k%len(m.tp)])
			q.Server.Model = m.name
			q.Hardware = []string{hardware}
			return q
		}
		gpus := func(q *Question) int64 {
			if r := answered(t, q).Best(); r != nil {
				return r.GPUs
			}
			return 1 << 30
		}
		const tight, loose = "ttft.p90=400ms,tpot.mean=30ms", "ttft.p90=800ms,tpot.mean=60ms"
		needs := gpus(ask(pair[0], tight, load))
		half := load
		half.RateRPS /= 2
		for _, v := range []struct {
			what string
			gpus int64
		}{
			{"a looser target", gpus(ask(pair[0], loose, load))},
			{"half the load", gpus(ask(pair[0], tight, half))},
			{pair[1], gpus(ask(pair[1], tight, load))},
		} {
			if v.gpus > needs {
				t.Errorf("question %d (%s on %s, %+v): %d GPUs, %s: %d", k, m.name, pair[0], load, needs, v.what, v.gpus)
			}
		}
		c := oneServer(t, ask(pair[1], tight, load))
		carries := func(n int) float64 {
			found, err := c.highestLoad(context.Background(), n, load.RateRPS, fineRatio)
			if err != nil {
				t.Fatal(err)
			}
			return float64(n) * found.highest
		}
		few := 1 + rng.IntN(8)
		if fewer, more := carries(few), carries(few+1); more < fewer {
			t.Errorf("question %d (%s on %s, %+v): %d replicas carry %.3g requests/s, %d carry %.3g", k, m.name, pair[1], load, few, fewer, few+1, more)
		}
	}
}

// TestMonotone asks three questions, TestEvalMonotone forty.
func TestMonotone(t *testing.T) { isMonotone(t, 3) }

func TestEvalMonotone(t *testing.T) {
	repo.NeedEval(t)
	isMonotone(t, 40)
}

// TestLoopsAndArrivals: see loopsAndArrivals.
func TestLoopsAndArrivals(t *testing.T) { loopsAndArrivals(t, 5, 2, 400, []float64{0.4}) }
