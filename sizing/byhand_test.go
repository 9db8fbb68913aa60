package sizing

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// served is a sample of answers with these times in ms, 100 of which and 5,000 tokens were served in 4 s.
func served(ttft ...float64) *predict.Sample { return servedWithGaps(nil, ttft...) }

// servedWithGaps is such a sample with the gaps between tokens.
func servedWithGaps(gaps *stat.Histogram, ttft ...float64) *predict.Sample {
	s := predict.NewSample(nil, []*sim.Result{{Gaps: gaps}}, &predict.Stretch{})
	s.TTFT, s.ServedS, s.Served, s.Tokens, s.MeanInFlight = ttft, 4, 100, 5000, 7
	for _, ms := range ttft {
		s.TPOT = append(s.TPOT, ms/10)
		s.E2E = append(s.E2E, ms*2)
	}
	return s
}

// gaps of 20 ms.
func gaps() *stat.Histogram {
	h := stat.NewHistogram()
	h.Add(20_000, 1)
	return h
}

// handCandidate is a candidate whose server has two GPUs and states errors of its family.
func handCandidate(t *testing.T, load predict.Load, slo string) *candidate {
	t.Helper()
	q := onL4(load, slo, 1)
	c := oneServer(t, q)
	return c
}

// TestDefaultsByHand: what a question asks that states nothing.
func TestDefaultsByHand(t *testing.T) {
	q := DefaultQuestion()
	if !slices.Equal(q.TP, []int64{1, 2, 4, 8}) || q.Load.InputTokens != 1000 || q.Load.OutputTokens != 200 || q.Routing != cluster.RouteRoundRobin || q.MostGPUs != 512 || q.Seed != 1 || q.measured != 2000 || q.replications != 24 {
		t.Errorf("got %+v", q)
	}
	for quantile, want := range map[float64]float64{0: 0.15, 0.5: 0.05, 0.9: 0.15} {
		if got := widestOf(quantile); got != want {
			t.Errorf("quantile %g: got %g", quantile, got)
		}
	}
	server := &predict.Prediction{GPUs: 2, DP: 3, Model: "org/name"}
	for most, want := range map[int]int{1: 0, 2: 1, 3: 1, 4: 2, 5: 2, 9: 4} {
		c := &candidate{q: &Question{MostGPUs: most}, server: server}
		if got := c.mostReplicas(); got != want {
			t.Errorf("%d GPUs: got %d replicas", most, got)
		}
	}
	for name, c := range map[string]struct {
		load    predict.Load
		routing string
		kind    kind
		want    bool
	}{
		"arrivals":            {predict.Load{RateRPS: 1}, cluster.RouteRoundRobin, kind{}, true},
		"clients":             {predict.Load{Clients: 1}, cluster.RouteRoundRobin, kind{}, false},
		"another router":      {predict.Load{RateRPS: 1}, cluster.RouteLeastRequests, kind{}, false},
		"a workload":          {predict.Load{RateRPS: 1, Workload: &workload.Workload{}}, cluster.RouteRoundRobin, kind{}, false},
		"prefill and decode":  {predict.Load{RateRPS: 1}, cluster.RouteRoundRobin, kind{isPools: true}, false},
		"speculative decodes": {predict.Load{RateRPS: 1}, cluster.RouteRoundRobin, kind{isDrafting: true}, true},
	} {
		own := &candidate{q: &Question{Load: c.load, Routing: c.routing}, kind: c.kind}
		if got := own.isAlike(); got != c.want {
			t.Errorf("%s: got alike %v", name, got)
		}
	}
	busy := &candidate{server: &predict.Prediction{MaxNumSeqs: 8, DP: 3}, idleS: 6} // 3 answers of 2 s
	if got := busy.mostRate(); got != 24 {
		t.Errorf("24 requests at a time of 2 s each: got %g requests/s, want twice their 12", got)
	}
	c := &candidate{q: &Question{}, server: server, tp: 4}
	for serve, want := range map[string]string{
		" --max-num-seqs 8 ":                              " --max-num-seqs 8",
		"vllm serve org/name --max-num-seqs 8":            " --max-num-seqs 8",
		"serve org/name -tp 4 --max-num-seqs=8 -dp=3 -O2": " --max-num-seqs=8 -O2",
		"VLLM_X=1 vllm serve --model org/name --no-async-scheduling --tensor_parallel_size 4 2>log":     " --no-async-scheduling",
		`--hf-overrides '{"a": 1}' --enable-expert-parallel`:                                            ` --hf-overrides '{"a": 1}'`,
		"docker run vllm/vllm-openai:v0.19.0 --model org/name --cudagraph-capture-sizes 1 2 4 --seed 1": " --cudagraph-capture-sizes 1 2 4 --seed 1",
	} {
		c.q.Server.Serve = serve
		if got := c.serveLine(); got != "vllm serve org/name --tensor-parallel-size 4 --data-parallel-size 3"+want {
			t.Errorf("%q: got %s", serve, got)
		}
	}
	c.kind.flag, c.q.Server.Serve = "--x 'y'", ""
	server.DP = 1
	server.EP = true
	if got := c.serveLine(); got != "vllm serve org/name --tensor-parallel-size 4 --enable-expert-parallel --x 'y'" {
		t.Errorf("got %s", got)
	}
	all := (&Question{Speculative: "{s}", Pools: true}).kinds()
	if len(all) != 3 || all[0].flag != "" || !all[1].isDrafting || all[1].flag != "--speculative-config '{s}'" || !slices.Equal(all[1].set, []string{"vllm.speculative_config={s}"}) || !all[2].isPools || all[2].flag != "--kv-transfer-config '"+nixl+"'" ||
		!slices.Equal(all[2].set, []string{"vllm.kv_transfer_config=" + nixl}) {
		t.Errorf("got %+v", all)
	}
	if got := (&Question{}).kinds(); len(got) != 1 || got[0].isPools || got[0].isDrafting {
		t.Errorf("got %+v", got)
	}
}

// TestFiguresByHand states every figure of a row of three replicas that two samples measured.
func TestFiguresByHand(t *testing.T) {
	c := handCandidate(t, predict.Load{RateRPS: 80, InputTokens: 300, OutputTokens: 10}, "ttft.p90=600ms,tpot.mean=80ms,ttft.p90=9s")
	names := func() (out []string) {
		for _, f := range c.shownFigures() {
			out = append(out, f.Metric+" "+f.Figure())
		}
		return out
	}
	if got := names(); len(got) != 4*5 || got[0] != "ttft p90" || got[1] != "tpot mean" || got[2] != "ttft mean" || got[3] != "ttft p50" || got[len(got)-1] != "e2e p99" {
		t.Errorf("got %q", got)
	}
	row := Row{Replicas: 3, GPUs: 6}
	c.fillFigures(&row, []*predict.Sample{served(100, 200, 300), served(200, 300, 400)})
	stated := c.server.StatedErrors(nil)
	ttft, tpot := stated.TTFT, stated.TPOT
	for _, f := range row.Figures {
		switch f.Metric + " " + f.Statistic {
		case "ttft mean":
			if !near(f.Ms.Value, 250) || f.LimitMs != 0 || !near(f.ErrorLow, 250/(1+ttft)) || !near(f.ErrorHigh, 250*(1+ttft)) {
				t.Errorf("got %+v", f)
			}
		case "ttft p90":
			if !near(f.Ms.Value, 330) || f.LimitMs != 600 {
				t.Errorf("got %+v", f)
			}
		case "tpot mean":
			if !near(f.Ms.Value, 25) || f.LimitMs != 80 || !near(f.ErrorHigh, 25*(1+tpot)) {
				t.Errorf("got %+v", f)
			}
		case "e2e p50":
			if !near(f.Ms.Value, 500) || !near(f.ErrorHigh, 500*(1+(ttft+tpot)/2)) {
				t.Errorf("got %+v", f)
			}
		}
		if f.Metric == predict.ITL {
			t.Errorf("gaps that were not measured: got %+v", f)
		}
	}
	if len(row.Figures) != 15 || row.Goodput != nil || !near(row.RequestsPerS.Value, 3*25) || !near(row.TokensPerS.Value, 3*1250) || row.InFlight != 21 || row.Replications != 2 || row.Measured != 6 {
		t.Errorf("got %d figures, %+v", len(row.Figures), row)
	}
	c.q.Load.RateRPS = 60 // no more is served than arrives
	capped := Row{Replicas: 3}
	if c.fillFigures(&capped, []*predict.Sample{served(100), served(200)}); !near(capped.RequestsPerS.Value, 60) || !near(capped.TokensPerS.Value, 60*50) {
		t.Errorf("got %+v requests/s and %+v tokens/s, want 60 and 3000", capped.RequestsPerS, capped.TokensPerS)
	}
	c.q.Load.RateRPS = 80
	c.hardware = "L4"
	if c.fillPrice(&row); !near(*row.USDPerHour, 4.8) || !near(*row.USDPerMToken, 4.8/3600/3750*1e6) || row.price != *row.USDPerHour {
		t.Errorf("got %g USD per hour, %g per million tokens", *row.USDPerHour, *row.USDPerMToken)
	}
	c.hardware = "none"
	if row = (Row{TokensPerS: row.TokensPerS}); true {
		if c.fillPrice(&row); row.USDPerHour != nil || !math.IsInf(row.price, 1) {
			t.Errorf("a GPU without a price: got %+v", row)
		}
	}
	// Behind another router all servers are simulated.
	c.q.Routing = cluster.RouteLeastRequests
	row = Row{Replicas: 3}
	if c.fillFigures(&row, []*predict.Sample{served(100)}); row.RequestsPerS.Value != 25 || row.InFlight != 7 {
		t.Errorf("got %+v", row)
	}
	// A share of requests: the limits of statistics are not shown.
	c.q.Targets, _ = predict.ParseTargets("ttft=250ms,goodput=50%")
	row = Row{Replicas: 1}
	if c.fillFigures(&row, []*predict.Sample{served(100, 200, 300, 400)}); row.Goodput == nil || row.Goodput.Value != 0.5 || names()[0] != "ttft mean" {
		t.Errorf("got %+v", row.Goodput)
	}
	// How a row meets its targets.
	for _, w := range []struct {
		row  Row
		ms   float64
		want string
	}{{Row{}, 1, MetYes}, {Row{}, 250, MetEstimate}, {Row{Pools: true}, 1, MetEstimate}, {Row{Drafts: true}, 1, MetEstimate}, {Row{Bound: true}, 1, MetBound}} {
		row := w.row
		row.Replicas = 1
		if c.fillFigures(&row, []*predict.Sample{served(w.ms)}); row.Met != w.want {
			t.Errorf("%+v at %g ms: got %s, want %s", w.row, w.ms, row.Met, w.want)
		}
	}
}

// TestNarrowByHand: intervals are narrow where six samples agree: those of medians to 5 %, the others to 15 %.
// The interval of six values that are d off their mean by turns is 2.5706 d / sqrt(5) wide to either side.
func TestNarrowByHand(t *testing.T) {
	c := handCandidate(t, predict.Load{RateRPS: 40, InputTokens: 300, OutputTokens: 10}, "ttft.p90=600ms")
	samples := func(n int, median, tail float64) (out []*predict.Sample) {
		for i := range n {
			sign := float64(1 - 2*(i%2))
			out = append(out, servedWithGaps(gaps(), 100, 200+sign*median, 300+sign*tail))
		}
		return out
	}
	at := func(width float64) float64 { return width * math.Sqrt(5) / (2 * 2.5706) }
	for name, w := range map[string]struct {
		n            int
		median, tail float64
		want         bool
	}{
		"six alike":             {6, 0, 0, true},
		"five alike":            {5, 0, 0, false},
		"medians just narrow":   {6, 0.99 * at(0.05) * 200, 0, true},
		"medians just too wide": {6, 1.01 * at(0.05) * 200, 0, false},
		"p95 just narrow":       {6, 0, 0.99 * at(0.15) * 290 / 0.9, true},
		"p95 just too wide":     {6, 0, 1.01 * at(0.15) * 290 / 0.9, false},
	} {
		if got := c.isNarrow(samples(w.n, w.median, w.tail)); got != w.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// TestHeadroomByHand: of a workload the load of a replica is what it answers.
func TestHeadroomByHand(t *testing.T) {
	c := &candidate{q: &Question{Load: predict.Load{Workload: &workload.Workload{}}}}
	row := Row{Replicas: 4, RequestsPerS: &predict.Value{Value: 10}}
	if err := c.fillHeadroom(t.Context(), &row); err != nil || row.ReplicaLoad != 2.5 || row.HighestLoad != 0 {
		t.Errorf("got %+v, %v", row, err)
	}
	c.q.Load.Clients = 20 // which send its requests
	row = Row{Replicas: 4, RequestsPerS: &predict.Value{Value: 10}}
	if err := c.fillHeadroom(t.Context(), &row); err != nil || row.ReplicaLoad != 5 || row.HighestLoad != 0 {
		t.Errorf("clients: got %+v, %v, want 5 of a replica", row, err)
	}
	c = &candidate{q: &Question{Load: predict.Load{RateRPS: 12}}, found: capacity{servers: 4, highest: 8, isAtLeast: true}}
	if err := c.fillHeadroom(t.Context(), &row); err != nil || row.ReplicaLoad != 3 || row.HighestLoad != 8 || !row.HighestAtLeast || !near(row.Headroom, 1-3./8) {
		t.Errorf("got %+v, %v", row, err)
	}
	c.found.highest = 2 // a probe may miss what the row meets
	if err := c.fillHeadroom(t.Context(), &row); err != nil || row.HighestLoad != 3 || row.Headroom != 0 {
		t.Errorf("got %+v, %v", row, err)
	}
}

// TestRefusalsByHand: what is not sized.
func TestRefusalsByHand(t *testing.T) {
	pools := func(load predict.Load, dp int64) string {
		c := &candidate{q: &Question{Load: load}, server: &predict.Prediction{DP: dp, GPUs: 1}}
		row := Row{}
		if err := c.pools(t.Context(), &row); err != nil {
			t.Fatal(err)
		}
		return row.Refused
	}
	for want, got := range map[string]string{
		"for --rate and --input-len only": pools(predict.Load{Clients: 3}, 1),
		"not sized with --dp":             pools(predict.Load{RateRPS: 3}, 2),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := pools(predict.Load{RateRPS: 3, Workload: &workload.Workload{}}, 1); !strings.Contains(got, "for --rate and --input-len only") {
		t.Errorf("got %q", got)
	}
	few := onL4(predict.Load{RateRPS: 1, InputTokens: 100, OutputTokens: 5}, "ttft.p90=10s", 1)
	few.Pools = true
	few.MostGPUs = 1
	answer, err := few.Answer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r := answer.Rows[len(answer.Rows)-1]; !r.Pools || r.Refused != "prefill apart from decode: needs some 2 GPUs, more than 1" {
		t.Errorf("got %+v", r)
	}
	few.MostGPUs = 2
	if answer, err = few.Answer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(answer.Rows, func(r Row) bool { return r.Pools && r.Refused == "" }) {
		t.Errorf("as many GPUs as are needed: got %+v", answer.Rows)
	}
	long := onL4(predict.Load{Workload: everyFortyMs()}, "ttft.p90=100ms", 1)
	long.Server.Set = append(long.Server.Set, "vllm.max_model_len=250")
	if _, err := long.Answer(t.Context()); err == nil || !strings.Contains(err.Error(), "10 of 60 prompts of the workload are longer than 250 tokens") {
		t.Errorf("got %v", err)
	}
}

// TestOrderOfRowsByHand: each row comes before all behind it, by GPUs and by price.
func TestOrderOfRowsByHand(t *testing.T) {
	byGPUs := []Row{
		{Met: MetYes, GPUs: 2, Headroom: 0.3, price: 9}, {Met: MetEstimate, GPUs: 2, Headroom: 0.2, price: 8}, {Met: MetYes, GPUs: 2, Headroom: 0.9, Drafts: true, price: 7},
		{Met: MetYes, GPUs: 2, Headroom: 0.8, Pools: true, price: 6}, {Met: MetYes, GPUs: 3, Headroom: 0.9, price: 5}, {Met: MetBound, Bound: true, GPUs: 1, price: 1}, {Met: MetBound, Bound: true, GPUs: 2, price: 0},
		{Bound: true, GPUs: 0, price: 0}, {Met: MetYes, Refused: "x", GPUs: 1, price: 1},
	}
	byPrice := slices.Clone(byGPUs)
	slices.Reverse(byPrice[:5])
	byPrice[5], byPrice[6] = byPrice[6], byPrice[5]
	for name, rows := range map[string][]Row{"GPUs": byGPUs, "price": byPrice} {
		for i := range rows {
			for j := range rows {
				if got := compareRows(&rows[i], &rows[j], name == "price"); got != cmp.Compare(i, j) {
					t.Errorf("by %s: rows %d and %d compare as %d", name, i, j, got)
				}
			}
		}
	}
}
