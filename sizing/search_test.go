package sizing

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/library/predict"
)

var errSearch = errors.New("no simulation")

// TestHighestLoadByHand states the loads that a search tries for a server that carries so much.
// TestNotMetByFew: a target that a server meets only with one request at a time needs more GPUs than are allowed. That
// is no target which no load meets.
func TestNotMetByFew(t *testing.T) {
	q := question(predict.Load{RateRPS: 400, InputTokens: 2000, OutputTokens: 50}, "tpot.p99=1h", 1)
	q.Server.Model = "Qwen/Qwen3-8B"
	q.MostGPUs = 64
	c := oneServer(t, q)
	alone, err := c.probeSample(1e-3, 1)
	if err != nil {
		t.Fatal(err)
	}
	q.Targets.Limits[0].LimitMs = 1.001 * alone.Figure(predict.TPOT, 0.99)
	row := answered(t, q).Rows[0]
	if !strings.HasPrefix(row.Refused, "needs some ") || !strings.HasSuffix(row.Refused, " GPUs, more than 64") {
		t.Errorf("got %q, want too many GPUs", row.Refused)
	}
	q.Targets.Limits[0].LimitMs = 0.99 * alone.Figure(predict.TPOT, 0.5)
	if row := answered(t, q).Rows[0]; row.Refused != "not met at any load: tpot p99" {
		t.Errorf("got %q, want a target that no load meets", row.Refused)
	}
}

func TestHighestLoadByHand(t *testing.T) {
	for name, c := range map[string]struct {
		search    loadSearch
		carries   float64
		highest   float64
		isAtLeast bool
		tried     string
		most      float64 // that every trial reports; 0: none is known
	}{
		"met at once and doubled":            {loadSearch{about: 8, least: 1, ratio: 1.5}, 16, 16, true, "8 16", 0},
		"met at once, not doubled":           {loadSearch{about: 8, least: 1, ratio: 1.5}, 15.9, 8 * math.Sqrt2, false, "8 16 11.314", 0},
		"missed between":                     {loadSearch{about: 8, least: 1, ratio: 1.5}, 11, 8, false, "8 16 11.314", 0},
		"halved":                             {loadSearch{about: 8, least: 1, ratio: 1.5}, 3, math.Sqrt(8), false, "8 4 2 2.8284", 0},
		"the least is tried":                 {loadSearch{about: 8, least: 2, ratio: 3}, 2, 2, false, "8 4 2", 0},
		"none down to the least":             {loadSearch{about: 8, least: 2, ratio: 3}, 1.9, 0, false, "8 4 2", 0},
		"bounds at the ratio end it":         {loadSearch{about: 8, least: 2, ratio: 2}, 9, 8, false, "8 16", 0},
		"bounds above the ratio do not":      {loadSearch{about: 8, least: 2, ratio: 1.99}, 9, 8, false, "8 16 11.314", 0},
		"clients are whole":                  {loadSearch{about: 5, least: 1, ratio: 1.01, isWhole: true}, 7, 7, false, "5 10 7 8", 0},
		"half a client is the mean":          {loadSearch{about: 5, least: 1, ratio: 1.01, isWhole: true}, 4, 4, false, "5 2.5 3 4", 0},
		"neighbours end a search of clients": {loadSearch{about: 1, least: 1, ratio: 1.01, isWhole: true}, 1, 1, false, "1 2", 0},
		"far above what it does":             {loadSearch{about: 64, least: 1, ratio: 1.5}, 3, math.Sqrt(8), false, "64 4 2 2.8284", 5},
	} {
		var tried []string
		try := func(amount float64) (bool, float64, error) {
			tried = append(tried, fmt.Sprintf("%.5g", amount))
			return amount <= c.carries, cmp.Or(c.most, math.Inf(1)), nil
		}
		highest, isAtLeast, err := c.search.highest(try)
		if err != nil || !near(highest, c.highest) || isAtLeast != c.isAtLeast || strings.Join(tried, " ") != c.tried {
			t.Errorf("%s: got %g, at least %v, tried %s, %v", name, highest, isAtLeast, strings.Join(tried, " "), err)
		}
		for ends := range tried { // each trial may fail
			k := -1
			_, _, err := c.search.highest(func(amount float64) (bool, float64, error) {
				if k++; k == ends {
					return false, 0, errSearch
				}
				return amount <= c.carries, cmp.Or(c.most, math.Inf(1)), nil
			})
			if !errors.Is(err, errSearch) {
				t.Errorf("%s: trial %d fails: got %v", name, ends, err)
			}
		}
	}
}

// TestFewestByHand states the numbers of servers that a search tries for one that needs so many.
func TestFewestByHand(t *testing.T) {
	for _, c := range []struct {
		base, most, needs, want int
		tried                   string
	}{
		{0, 9, 1, 1, "1"},
		{0, 9, 2, 2, "1 2"},
		{0, 9, 3, 3, "1 2 4 3"},
		{0, 9, 6, 6, "1 2 4 8 6 5"},
		{0, 9, 9, 9, "1 2 4 8 9"},
		{0, 9, 10, 0, "1 2 4 8 9"},
		{0, 1, 2, 0, "1"},
		{10, 40, 11, 11, "11"},
		{10, 40, 15, 15, "11 12 14 18 16 15"},
		{10, 16, 15, 15, "11 12 14 16 15"},
		{10, 13, 14, 0, "11 12 13"},
	} {
		var tried []string
		meets := func(n int) (bool, error) {
			tried = append(tried, fmt.Sprint(n))
			return n >= c.needs, nil
		}
		got, err := fewestAbove(c.base, c.most, meets)
		if err != nil || got != c.want || strings.Join(tried, " ") != c.tried {
			t.Errorf("%+v: got %d, tried %s, %v", c, got, strings.Join(tried, " "), err)
		}
		for ends := range tried {
			k := -1
			_, err := fewestAbove(c.base, c.most, func(n int) (bool, error) {
				if k++; k == ends {
					return false, errSearch
				}
				return n >= c.needs, nil
			})
			if !errors.Is(err, errSearch) {
				t.Errorf("%+v: trial %d fails: got %v", c, ends, err)
			}
		}
	}
}

// TestPoolsByHand states the divisions that are tried where a pool needs so many servers.
func TestPoolsByHand(t *testing.T) {
	ttft := func(prefill, decode int) func(division) string {
		return func(d division) string {
			switch {
			case d.prefill < prefill:
				return "ttft p90"
			case d.decode < decode:
				return "tpot mean"
			}
			return ""
		}
	}
	either := func(why string) func(division) string {
		return func(d division) string {
			if d.prefill+d.decode < 7 {
				return why
			}
			return ""
		}
	}
	for name, c := range map[string]struct {
		at     division
		most   int
		broken func(division) string
		want   division
		why    string
		tried  string
	}{
		"the start is the fewest":       {division{2, 1}, 9, ttft(2, 1), division{2, 1}, "", "2+1 1+1"},
		"prefill, then decode":          {division{1, 1}, 9, ttft(2, 3), division{2, 3}, "", "1+1 2+1 2+2 2+3 1+3"},
		"fewer of both":                 {division{3, 4}, 9, ttft(1, 2), division{1, 2}, "", "3+4 2+4 1+4 1+3 1+2 1+1"},
		"as many as may be":             {division{1, 1}, 5, ttft(2, 3), division{2, 3}, "", "1+1 2+1 2+2 2+3 1+3"},
		"one more than may be":          {division{1, 1}, 4, ttft(2, 3), division{2, 2}, "tpot mean", "1+1 2+1 2+2"},
		"saturated: the smaller pool":   {division{1, 3}, 9, either("saturated"), division{4, 3}, "", "1+3 2+3 3+3 4+3 4+2"},
		"goodput: prefill first":        {division{2, 2}, 9, either("goodput"), division{4, 3}, "", "2+2 3+2 3+3 4+3 4+2"},
		"ten divisions are tried":       {division{1, 1}, 99, ttft(12, 1), division{10, 1}, "ttft p90", "1+1 2+1 3+1 4+1 5+1 6+1 7+1 8+1 9+1 10+1"},
		"the tenth division may do":     {division{1, 1}, 99, ttft(10, 1), division{10, 1}, "", "1+1 2+1 3+1 4+1 5+1 6+1 7+1 8+1 9+1 10+1"},
		"ten further ones for fewer":    {division{30, 1}, 99, ttft(1, 1), division{11, 1}, "", "30+1 29+1 28+1 27+1 26+1 25+1 24+1 23+1 22+1 21+1 20+1 19+1 18+1 17+1 16+1 15+1 14+1 13+1 12+1 11+1"},
		"none is tried beyond the most": {division{4, 3}, 7, ttft(9, 1), division{4, 3}, "ttft p90", "4+3"},
	} {
		run := func(ends int) (division, string, []string, error) {
			var tried []string
			at, why, err := fewestOfPools(c.at, c.most, func(d division) (string, error) {
				if len(tried) == ends {
					return "", errSearch
				}
				tried = append(tried, fmt.Sprintf("%d+%d", d.prefill, d.decode))
				return c.broken(d), nil
			})
			return at, why, tried, err
		}
		at, why, tried, err := run(-1)
		if err != nil || at != c.want || why != c.why || strings.Join(tried, " ") != c.tried {
			t.Errorf("%s: got %+v, %q, tried %s, %v", name, at, why, strings.Join(tried, " "), err)
		}
		for ends := range tried {
			if _, _, _, err := run(ends); !errors.Is(err, errSearch) {
				t.Errorf("%s: trial %d fails: got %v", name, ends, err)
			}
		}
	}
}

// TestStartOfPoolsByHand: the pool of prefill is sized by TTFT with answers of one token, the pool of decode by
// the other targets with prompts that lie in the cache but for a token.
func TestStartOfPoolsByHand(t *testing.T) {
	load := predict.Load{RateRPS: 12, InputTokens: 400, OutputTokens: 50}
	targets := predict.Targets{Goodput: 0.9, Limits: []predict.Target{{Metric: predict.TTFT}, {Metric: predict.TPOT}, {Metric: predict.E2E}, {Metric: predict.ITL}}}
	var asked []predict.Load
	var of []predict.Targets
	carries := []float64{5, 4}
	highest := func(load predict.Load, targets predict.Targets) (float64, error) {
		asked = append(asked, load)
		of = append(of, targets)
		if v := carries[len(asked)-1]; v >= 0 {
			return v, nil
		}
		return 0, errSearch
	}
	at, err := startOfPools(load, targets, highest)
	if err != nil || at != (division{3, 3}) {
		t.Errorf("got %+v, %v, want 12/5 and 12/4 servers", at, err)
	}
	if a, b := asked[0], asked[1]; a.OutputTokens != 1 || a.CachedShare != 0 || a.InputTokens != 400 || b.OutputTokens != 50 || !near(b.CachedShare, 1-1./400) {
		t.Errorf("got loads %+v", asked)
	}
	metrics := func(t predict.Targets) (out []string) {
		for _, l := range t.Limits {
			out = append(out, l.Metric)
		}
		return out
	}
	if a, b := metrics(of[0]), metrics(of[1]); !slices.Equal(a, []string{"ttft"}) || !slices.Equal(b, []string{"tpot", "e2e", "itl"}) || of[0].Goodput != 0.9 || of[1].Goodput != 0.9 {
		t.Errorf("got targets %+v", of)
	}
	// A pool that no target decides keeps up with the load, and has no share of requests to reach. A load that no
	// server carries starts with one.
	asked, of, carries = nil, nil, []float64{0, 13}
	load.InputTokens = 1
	if at, err := startOfPools(load, predict.Targets{Goodput: 0.9, Limits: targets.Limits[:1]}, highest); err != nil || at != (division{1, 1}) || of[1].Goodput != 0 || of[0].Goodput != 0.9 {
		t.Errorf("got %+v of %+v, %v", at, of, err)
	}
	if asked[1].CachedShare != 0.5 {
		t.Errorf("prompts of one token: got a cached share of %g", asked[1].CachedShare)
	}
	for ends := range 2 {
		asked, of, carries = nil, nil, []float64{5, 4}
		carries[ends] = -1
		if _, err := startOfPools(load, targets, highest); !errors.Is(err, errSearch) {
			t.Errorf("search %d fails: got %v", ends, err)
		}
	}
}

// TestSimulatedShareByHand: behind a round-robin router one of n servers is simulated with its part of the
// arrivals, behind another all with all.
func TestSimulatedShareByHand(t *testing.T) {
	c := &candidate{q: &Question{Load: predict.Load{RateRPS: 12}, Routing: cluster.RouteRoundRobin}}
	if load, servers, share := c.simulatedPart(4); load.RateRPS != 3 || servers != 1 || share != 4 {
		t.Errorf("got %+v on %d servers, of %d", load, servers, share)
	}
	c.q.Routing = cluster.RouteLeastRequests
	if load, servers, share := c.simulatedPart(4); load.RateRPS != 12 || servers != 4 || share != 1 {
		t.Errorf("got %+v on %d servers, of %d", load, servers, share)
	}
}

// TestConfirmByHand states which numbers of servers are measured, with which seeds, until the fewest that meet
// a TTFT of 600 ms is found. TTFT of n servers is ms[n] in every sample.
func TestConfirmByHand(t *testing.T) {
	for name, c := range map[string]struct {
		start   int
		highest float64 // of a probe
		most    int     // GPUs
		ms      []float64
		want    int
		counts  string // samples of each number
	}{
		"met, and missed with one less":               {2, 0, 8, []float64{0, 700, 500}, 2, "2:6 1:6"},
		"far from met with one less":                  {2, 0, 8, []float64{0, 901, 500}, 2, "2:6 1:2"},
		"just not far":                                {2, 0, 8, []float64{0, 899, 500}, 2, "2:6 1:6"},
		"one less meets them too":                     {3, 0, 8, []float64{0, 700, 550, 500}, 2, "3:6 2:6 1:6"},
		"missed: one more":                            {1, 0, 8, []float64{0, 700, 600}, 2, "1:6 2:6"},
		"one is the least":                            {1, 0, 8, []float64{0, 100}, 1, "1:6"},
		"not with the most":                           {1, 0, 2, []float64{0, 700, 601}, 0, "1:6 2:6"},
		"one less would clearly get more than probed": {2, 10, 8, []float64{0, 500, 500}, 2, "2:6"},
		"one less would get hardly more":              {2, 11, 8, []float64{0, 500, 500}, 1, "2:6 1:6"},
	} {
		q := onL4(predict.Load{RateRPS: 12, InputTokens: 10, OutputTokens: 10}, "ttft.p90=600ms", 1)
		q.MostGPUs = c.most
		q.Seed = 40
		q.replications = 9
		own := &candidate{q: q, server: &predict.Prediction{GPUs: 1}, highest: c.highest}
		count := func(ends int) (int, []*predict.Sample, string, error) {
			var order []int
			counts := map[int]int{}
			trials := 0
			samples, n, err := own.confirm(t.Context(), c.start, func(n int, seed int64) (*predict.Sample, error) {
				if trials == ends {
					return nil, errSearch
				}
				trials++
				if seed != 40+int64(counts[n]) {
					t.Errorf("%s: sample %d of %d servers has seed %d", name, counts[n], n, seed)
				}
				if counts[n]++; counts[n] == 1 {
					order = append(order, n)
				}
				return servedWithGaps(gaps(), c.ms[n]), nil
			})
			var words []string
			for _, n := range order {
				words = append(words, fmt.Sprintf("%d:%d", n, counts[n]))
			}
			return n, samples, strings.Join(words, " "), err
		}
		n, samples, got, err := count(-1)
		if err != nil || n != c.want || got != c.counts || (samples == nil) != (n == 0) || n > 0 && samples[0].TTFT[0] != c.ms[n] {
			t.Errorf("%s: got %d servers after %s, %v", name, n, got, err)
		}
		for ends := range 6 * len(strings.Fields(c.counts)) {
			if _, _, got, err := count(ends); !errors.Is(err, errSearch) && got != c.counts {
				t.Errorf("%s: sample %d fails: got %v", name, ends, err)
			}
		}
	}
	// Samples that differ are repeated up to the most; of a recording one says all.
	q := onL4(predict.Load{RateRPS: 12, InputTokens: 10, OutputTokens: 10}, "ttft.p90=600ms", 1)
	q.replications = 9
	own := &candidate{q: q, server: &predict.Prediction{GPUs: 1}}
	ms := 0.0
	rising := func(int, int64) (*predict.Sample, error) {
		ms += 50
		return servedWithGaps(gaps(), ms), nil
	}
	if samples, err := own.replicate(t.Context(), 1, nil, rising, own.isNarrow); err != nil || len(samples) != 9 {
		t.Errorf("got %d samples, %v", len(samples), err)
	}
	if samples, err := own.replicate(t.Context(), 1, nil, rising, func(s []*predict.Sample) bool { return len(s) == 7 }); err != nil || len(samples) != 7 {
		t.Errorf("got %d samples, %v", len(samples), err)
	}
	q.Load = predict.Load{Workload: everyFortyMs()}
	if samples, err := own.replicate(t.Context(), 1, nil, rising, own.isNarrow); err != nil || len(samples) != 1 {
		t.Errorf("got %d samples, %v", len(samples), err)
	}
}
