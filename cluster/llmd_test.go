package cluster

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
)

// routingOf reads the routing part of a cluster.yaml.
func routingOf(t *testing.T, text string) *Routing {
	t.Helper()
	s, err := parseSpec([]byte("routing: "+text), "cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return &s.Routing
}

// endpointsOf are endpoints with predictions: match, uncached tokens in flight, TTFT, headrooms of TTFT and TPOT, requests under way.
func endpointsOf(rows ...[6]float64) (out []endpoint) {
	for i, r := range rows {
		out = append(out, endpoint{
			instance:     i,
			match:        r[0],
			inFlight:     r[1],
			predicted:    !math.IsNaN(r[2]),
			ttftMs:       r[2],
			ttftHeadroom: r[3],
			tpotHeadroom: r[4],
			dispatched:   int64(r[5]),
		})
	}
	return out
}

func numbersOf(all []endpoint) (out []int) {
	for _, e := range all {
		out = append(out, e.instance)
	}
	return out
}

// TestLLMDFilters: the rules of llm-d's filters row by row (router ebab687).
func TestLLMDFilters(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name, filter string
		u            float64 // the draw
		in           []endpoint
		want         []int
	}{
		{"affinity: one endpoint", affinityFilter, 0, endpointsOf([6]float64{}), []int{0}},
		{"affinity: threshold 0", "{type: prefix-cache-affinity-filter, parameters: {affinityThreshold: 0}}", 0,
			endpointsOf([6]float64{1}, [6]float64{}), []int{0, 1}},
		{"affinity: nobody sticky", affinityFilter, 0, endpointsOf([6]float64{0.79}, [6]float64{0.5}), []int{0, 1}},
		{"affinity: at the threshold", affinityFilter, 0, endpointsOf([6]float64{0.8}, [6]float64{0.79}), []int{0}},
		{"affinity: exploration", "{type: prefix-cache-affinity-filter, parameters: {explorationProbability: 0.2}}", 0.19,
			endpointsOf([6]float64{1}, [6]float64{}), []int{0, 1}},
		{"affinity: no exploration", "{type: prefix-cache-affinity-filter, parameters: {explorationProbability: 0.2}}", 0.2,
			endpointsOf([6]float64{1}, [6]float64{}), []int{0}},
		{"affinity: 18.0 s slower by tokens", affinityFilter, 0, endpointsOf([6]float64{1, 15928 * 18}, [6]float64{}), []int{0}},
		{"affinity: more than that", affinityFilter, 0, endpointsOf([6]float64{1, 15928*18 + 1}, [6]float64{}), []int{0, 1}},
		{"affinity: best of the sticky ones", affinityFilter, 0,
			endpointsOf([6]float64{1, 15928 * 30}, [6]float64{0.9, 10}, [6]float64{}), []int{0, 1}},
		{"affinity: penalty 0 always sticks", "{type: prefix-cache-affinity-filter, parameters: {maxTTFTPenaltyMs: 0}}", 0,
			endpointsOf([6]float64{1, 1e9}, [6]float64{}), []int{0}},
		{"affinity: predicted", "{type: prefix-cache-affinity-filter, parameters: {ttftSource: latencyPredictor, maxTTFTPenaltyMs: 5000}}", 0,
			endpointsOf([6]float64{1, 0, 5101}, [6]float64{0, 0, 100}), []int{0, 1}},
		{"affinity: missing is slowest", "{type: prefix-cache-affinity-filter, parameters: {ttftSource: latencyPredictor}}", 0,
			endpointsOf([6]float64{1, 0, nan}, [6]float64{0, 0, 100}), []int{0, 1}},
		{"tier: positive", headroomTier, 0.01, endpointsOf([6]float64{0, 0, 1, 5, 0}, [6]float64{0, 0, 1, -5, 0}), []int{0}},
		{"tier: explores the negative", headroomTier, 0.0099, endpointsOf([6]float64{0, 0, 1, 5, 0}, [6]float64{0, 0, 1, -5, 0}), []int{1}},
		{"tier: zero headroom is positive", headroomTier, 0.5, endpointsOf([6]float64{0, 0, 1, 0, 0}, [6]float64{0, 0, 1, 1, -1}), []int{0}},
		{"tier: unpredicted count as negative", headroomTier, 0.5, endpointsOf([6]float64{0, 0, 1, 3, 0}, [6]float64{0, 0, nan}), []int{0}},
		{"tier: only negative", headroomTier, 0.5, endpointsOf([6]float64{0, 0, 1, -3, 0}, [6]float64{0, 0, 1, -1, 0}), []int{0, 1}},
		{"tier: no prediction at all", headroomTier, 0, endpointsOf([6]float64{0, 0, nan}, [6]float64{0, 0, nan}), []int{0, 1}},
	} {
		r := routingOf(t, "{policy: llmd, filters: ["+c.filter+"]}")
		p := &r.Filters[0].Parameters
		draw := func() float64 { return c.u }
		got := p.keepAffine
		if r.Filters[0].Type == headroomTier {
			got = p.keepTier
		}
		if out := numbersOf(got(c.in, draw)); !slices.Equal(out, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, out, c.want)
		}
	}
}

// TestLLMDScores: the latency scorer row by row. Headrooms of 10, 20 and 60 ms: n = 0, 0.2, 1; least headroom scores most.
func TestLLMDScores(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name, parameters string
		in               []endpoint
		want             []float64
	}{
		{"one dimension", "", endpointsOf([6]float64{0, 0, 1, 10}, [6]float64{0, 0, 1, 20}, [6]float64{0, 0, 1, 60}), []float64{1.01, 0.81, 0.01}},
		{"most", "headroomSelectionStrategy: most", endpointsOf([6]float64{0, 0, 1, 10}, [6]float64{0, 0, 1, 20}, [6]float64{0, 0, 1, 60}),
			[]float64{0.01, 0.21, 1.01}},
		{"both: 0.8 and 0.2", "",
			endpointsOf([6]float64{0, 0, 1, 10, 4}, [6]float64{0, 0, 1, 30, 0}, [6]float64{0, 0, 1, 20, 2}), []float64{0.81, 0.2, 0.51}},
		{"weights of nothing: TTFT", "ttftWeight: 0, tpotWeight: 0", endpointsOf([6]float64{0, 0, 1, 10, 4}, [6]float64{0, 0, 1, 30, 0}),
			[]float64{1.01, 0.01}},
		{"all equal", "", endpointsOf([6]float64{0, 0, 1, 10}, [6]float64{0, 0, 1, 10}), []float64{0.51, 0.51}},
		{"positive alone", "", endpointsOf([6]float64{0, 0, 1, 10}, [6]float64{0, 0, 1, -1}), []float64{0.51, 0}},
		{"unpredicted are positive", "", endpointsOf([6]float64{0, 0, nan}, [6]float64{0, 0, 1, -1, 0, 3}), []float64{0.51, 0}},
		{"idle first", "", endpointsOf([6]float64{0, 0, 1, -9, 0, 0}, [6]float64{0, 0, 1, -1, 0, 2}), []float64{0.51, 0}},
		{"TPOT only before TTFT only", "", endpointsOf([6]float64{0, 0, 1, -1, 0, 2}, [6]float64{0, 0, 1, 0, -9, 2}), []float64{0, 0.51}},
		{"TTFT only before both", "", endpointsOf([6]float64{0, 0, 1, -1, -1, 2}, [6]float64{0, 0, 1, -9, 0, 2}), []float64{0, 0.51}},
		{"negative: least even with most", "headroomSelectionStrategy: most", endpointsOf([6]float64{0, 0, 1, -10, 0, 2},
			[6]float64{0, 0, 1, -50, 0, 2}), []float64{1.01, 0.01}},
		{"idle and negative: least even with most", "headroomSelectionStrategy: most", endpointsOf([6]float64{0, 0, 1, -10, 0, 0},
			[6]float64{0, 0, 1, -50, 0, 0}), []float64{1.01, 0.01}},
		{"no predictions", "", []endpoint{{
			kvUsage: 0.4,
			waiting: 0,
			match:   0.5,
		}, {
			instance: 1,
			kvUsage:  0.1,
			waiting:  4,
		}}, []float64{0.7, 0.3}},
		{"no predictions, KV alone", "compositeKVWeight: 0, compositeQueueWeight: 0, compositePrefixWeight: 0",
			[]endpoint{{kvUsage: 0.25, waiting: 9}, {instance: 1}}, []float64{0.75, 1}},
	} {
		r := routingOf(t, "{policy: llmd, scorers: [{type: latency-scorer, parameters: {"+c.parameters+"}}]}")
		r.Scorer.Parameters.setLatencyScores(c.in)
		for i, want := range c.want {
			if got := c.in[i].score; math.Abs(got-want) > 1e-12 {
				t.Errorf("%s: endpoint %d: got %g, want %g", c.name, i, got, want)
			}
		}
	}
}

// TestLLMDPickers: 10,000 requests on four engines, each picker's shares within 3 standard errors of what it promises.
func TestLLMDPickers(t *testing.T) {
	scores := endpointsOf([6]float64{0, 0, 1, 10}, [6]float64{0, 0, 1, 20}, [6]float64{0, 0, 1, 35}, [6]float64{0, 0, 1, 60}) // 1.01 .81 .51 .01
	for picker, want := range map[string][]float64{
		weightedRandom: {1.01 / 2.34, 0.81 / 2.34, 0.51 / 2.34, 0.01 / 2.34},
		anyEndpoint:    {0.25, 0.25, 0.25, 0.25}, maxScore: {1, 0, 0, 0},
	} {
		r := routingOf(t, fmt.Sprintf("{policy: llmd, filters: [], picker: %s}", picker))
		for _, equal := range []bool{false, true} {
			const n = 10_000
			l := &llmd{filters: []plugin{}, seed: 7, estimate: fixedUs(nil)}
			_, l.scorer, l.picker = r.chain()
			if equal { // 0.51 each
				want = []float64{0.25, 0.25, 0.25, 0.25}
			}
			var count [4]float64
			for k := range n {
				in := slices.Clone(scores)
				for i := range in {
					if equal {
						in[i].ttftHeadroom = 10
					}
				}
				draws := uint64(0)
				count[l.selectInstance(in, func() float64 { draws++; return drawOf(7, k, draws) })]++
			}
			for i, p := range want {
				if se := math.Sqrt(n * p * (1 - p)); math.Abs(count[i]-n*p) > 3*se {
					t.Errorf("%s: endpoint %d: got %g of %d, want %.0f within %.0f", picker, i, count[i], n, n*p, 3*se)
				}
			}
		}
	}
}

func drawOf(seed uint64, request int, k uint64) float64 {
	return stat.Draw(seed, streamLLMD, uint64(request), 0, k)
}

// fixedUs are TTFTs by instance, us.
type fixedUs []float64

func (f fixedUs) TTFT(_ *Request, _ *View, i int) (e estimate, err error) {
	e.Us = f[i]
	return e, nil
}

// TestLLMDRoutes: a request goes where its prefix is and its target holds, the same way each time it is asked.
func TestLLMDRoutes(t *testing.T) {
	cfg := &Config{Spec: Spec{Routing: *routingOf(t, "{policy: llmd, predictor: p.json}")}}
	cfg.Trees = fixedUs{90_000, 20_000, 30_000}
	r, err := newRouter(cfg, nil, tie{}, 3)
	if err != nil {
		t.Fatal(err)
	}
	v := &View{
		BlockSize: 16,
		Snapshots: make([]snapshot, 3),
		Ledger:    newLedger(3, 1),
		Match:     []int64{100, 100, 0},
	}
	for k := range 200 {
		q := &Request{Index: k, PromptTokens: 1600, Blocks: 100, SLOTTFTUs: 50_000}
		got := r.Route(q, v)
		if got != r.Route(q, v) {
			t.Fatalf("request %d: two answers", k)
		}
		if got == 2 {
			t.Errorf("request %d: instance 2 holds nothing of the prompt", k)
		}
		if got == 0 && drawOf(0, k, 3) >= 0.01 && drawOf(0, k, 2) >= 0.01 {
			t.Errorf("request %d: instance 0 misses the target", k)
		}
	}
}

// TestLLMDRefusals: what the router would refuse, and what other policies do not read.
func TestLLMDRefusals(t *testing.T) {
	for text, says := range map[string]string{
		"filters: [queue-filter]": "routing.filters: got \"queue-filter\"",
		"filters: [{type: slo-headroom-tier-filter, parameters: {ttftWeight: 1}}]":                     "\"ttftWeight\", want epsilonExploreNeg",
		"filters: [{type: slo-headroom-tier-filter, parameters: {epsilonExploreNeg: 2}}]":              "probabilities 0 and 2",
		"filters: [{type: prefix-cache-affinity-filter, parameters: {peakPrefillThroughput: 0}}]":      "peakPrefillThroughput: got 0",
		"filters: [{type: prefix-cache-affinity-filter, parameters: {ttftSource: latencyPrediction}}]": "got \"latencyPrediction\"",
		"scorers: [latency-scorer, latency-scorer]":                                                    "got 2 plugins",
		"scorers: [{type: latency-scorer, parameters: {headroomSelectionStrategy: some}}]":             "want least or most",
		"picker: best-picker":                     "routing.picker: got \"best-picker\"",
		"policy: weighted, picker: random-picker": "want policy llmd",
	} {
		if !strings.HasPrefix(text, "policy") {
			text = "policy: llmd, " + text
		}
		_, err := parseSpec([]byte("routing: {"+text+"}"), "cluster.yaml")
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", text, err, says)
		}
	}
}
