package requestfit

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// TestShareWithAWrongPriorByHand: term 1 and the share are only known together (their sum is 1), so that the
// share is as uncertain as the prior of term 1, whose standard error is 1. Term 0 is known exactly. If it lies
// five standard errors from the prior, that of term 1 counts as five times as wide.
func TestShareWithAWrongPriorByHand(t *testing.T) {
	const exact = 1e8
	l := &learner{m: &model{free: []int{0, 1}, mean: []float64{0, 0}, precision: []float64{1, 0, 0, 1}}}
	for off, wantSD := range map[float64]float64{0.5: 1, 5: 5} {
		rows := []shareRow{
			{weight: exact, off: off, by: []float64{1, 0}},
			{weight: exact, off: 1, by: []float64{0, 1}, byShare: 1},
		}
		step, covariance := l.solveWithShare(&state{values: []float64{0, 0}}, rows)
		if math.Abs(step[0]-off) > 1e-6 || math.Abs(step[1]) > 1e-6 || math.Abs(step[2]-1) > 1e-6 {
			t.Errorf("term 0 at %g: got the step %v, want %g, 0 and a share of 1", off, step, off)
		}
		if sd := math.Sqrt(covariance[8]); math.Abs(sd/wantSD-1) > 0.01 {
			t.Errorf("term 0 at %g: got a standard error of the share of %g, want %g", off, sd, wantSD)
		}
	}
}

// handModel is a model of the free columns 1 and 0 of the derivatives, in this order, with the names given.
func handModel(names ...string) *model {
	return &model{names: names, free: []int{1, 0}, beta: 2, sd: []float64{2, 0.5}, mean: []float64{1, 1}, precision: make([]float64, 4)}
}

// TestSharePosteriorByHand: far from 0 the posterior is normal; around 0 its half above it.
func TestSharePosteriorByHand(t *testing.T) {
	for share, s := range map[float64]float64{0: 0, 0.5: math.Ln2, 0.75: 2 * math.Ln2} {
		if !near(pointOf(share), s) || !near(shareOf(s), share) {
			t.Errorf("share %g: got %g, and %g back", share, pointOf(share), shareOf(s))
		}
	}
	far := &shareEstimate{mode: 1, sd: 0.1, assumed: 0.9, along: []float64{2, -3}}
	at, weight := far.posterior()
	if !near(at[0], 1.6/4000/2) || !near(at[1], 1.6/4000*3/2) || len(at) != 4000 { // the middles of 4,000 equal parts up to 6 deviations above
		t.Errorf("got %d points from %g, %g on", len(at), at[0], at[1])
	}
	sum, mean, square := 0.0, 0.0, 0.0
	for k, s := range at {
		sum += weight[k]
		mean += weight[k] * s
		square += weight[k] * (s - 1) * (s - 1)
	}
	if !near(sum, 1) || math.Abs(mean-1) > 1e-6 || math.Abs(math.Sqrt(square)-0.1) > 1e-6 || !(at[0] > 0) || math.Abs(at[len(at)-1]-1.6) > 1e-3 {
		t.Errorf("got a sum of %g, a mean of %g, a deviation of %g, from %g to %g", sum, mean, math.Sqrt(square), at[0], at[len(at)-1])
	}
	low, high := far.interval()
	if math.Abs(low-shareOf(1-0.196)) > 2e-4 || math.Abs(high-shareOf(1+0.196)) > 2e-4 || !far.isPresent() {
		t.Errorf("got %g to %g, want 1.96 deviations either way", low, high)
	}
	// Half a normal: its 95 % quantile is 1.96 deviations, and it begins with 0.
	none := &shareEstimate{mode: 0, sd: 0.1}
	if low, high := none.interval(); low != 0 || math.Abs(high-shareOf(0.196)) > 2e-4 || none.isPresent() {
		t.Errorf("got %g to %g, want 0 to 1.96 deviations", low, high)
	}
	// Two deviations below 0 little is left: the density above falls as exp(-2z - z^2/2).
	below := &shareEstimate{mode: -0.2, sd: 0.1}
	if _, high := below.interval(); !(shareOf(0.06) < high && high < shareOf(0.15)) {
		t.Errorf("got up to %g", high)
	}
	for mode, want := range map[float64]bool{0.1959: false, 0.1961: true} {
		if got := (&shareEstimate{mode: mode, sd: 0.1}).isPresent(); got != want {
			t.Errorf("a mode of %g deviations: got present %v", mode*10, got)
		}
	}
	got := far.result(7)
	if !near(got.Share, shareOf(0.9)) || got.Low != low || got.High != high || got.Requests != 7 {
		t.Errorf("got %+v", got)
	}
	// The mean square of s - assumed is 0.1^2 + 0.1^2, times the products of what moves along.
	for k, want := range []float64{1 + 0.02*4, -0.02 * 6, -0.02 * 6, 1 + 0.02*9} {
		if got := far.widen([]float64{1, 0, 0, 1})[k]; math.Abs(got-want) > 1e-6 {
			t.Errorf("covariance %d: got %g, want %g", k, got, want)
		}
	}
}

// TestAssumedShareByHand: a share is assumed of prompts of which nothing is stated, but for one token of each.
func TestAssumedShareByHand(t *testing.T) {
	l := &Load{Requests: []sim.Request{{PromptTokens: 100}, {PromptTokens: 100}, {PromptTokens: 10}}, Unstated: []bool{true, false, true}}
	own := l.withShare(0.95)
	for i, want := range []int64{95, 0, 9} {
		if got := own.Requests[i].CachedTokens; got.V != want || got.OK != (i != 1) {
			t.Errorf("request %d: got %+v, want %d", i, got, want)
		}
	}
	if l.Requests[0].CachedTokens.OK {
		t.Error("the load itself was changed")
	}
	if own.assume(0); own.Requests[0].CachedTokens.OK {
		t.Error("no share: got cached tokens")
	}
	level := &Load{Point: &Point{}, Unstated: []bool{true, true}, Requests: make([]sim.Request, 2)}
	stated := &Load{Requests: make([]sim.Request, 2)}
	later := &Load{Requests: make([]sim.Request, 3), Unstated: []bool{true, true, true}, later: 1}
	for want, loads := range map[int][]*Load{0: {stated}, 1: {level}, 2: {l}, 4: {l, later}} {
		if got := countUnstated(loads); got != want || hasUnstated(loads) != (want > 0) {
			t.Errorf("got %d without a statement, want %d", got, want)
		}
	}
}

// TestLevelRowByHand: errors of a mean within two standard errors count fully, larger ones less.
func TestLevelRowByHand(t *testing.T) {
	l := &learner{m: handModel("a", "b")}
	row := l.levelRow(10, 10.1, 9.5, []float64{3, 4}, 0.02)
	if !near(row.weight, 1/(0.02*0.02*100)) || !near(row.off, -0.1) || !near(row.byShare, -0.6/0.3) || !slices.Equal(row.by, []float64{4, 3}) {
		t.Errorf("got %+v", row)
	}
	if row = l.levelRow(10, 10*math.Exp(0.08), 9, []float64{3, 4}, 0.02); !near(row.weight, 0.5/(0.02*0.02*100)) {
		t.Errorf("four standard errors: got a weight of %g", row.weight)
	}
	for name, row := range map[string]shareRow{
		"not measured": l.levelRow(0, 1, 1, []float64{3, 4}, 0.02), "no mean": l.levelRow(1, math.NaN(), 1, []float64{3, 4}, 0.02), "none moved": l.levelRow(1, 1, math.Inf(1), []float64{3, 4}, 0.02),
	} {
		if row.weight != 0 || row.by != nil {
			t.Errorf("%s: got %+v", name, row)
		}
	}
}

// TestSmoothedShareByHand: the work of a prompt falls in proportion to the tokens that are computed. A row that
// shows another change moves it as far as the prior allows.
func TestSmoothedShareByHand(t *testing.T) {
	l := &learner{m: handModel("step/prefill_linear_compute", "step/prefill_attention")}
	s := &state{values: []float64{5, 4}}
	rows := []shareRow{{weight: 10, by: []float64{2, 0}, byShare: -10}}
	if !l.smoothShare(rows, s, 0.5) || !near(rows[0].byShare, -10) {
		t.Errorf("what follows from the arithmetic: got %+v", rows)
	}
	// The prior is 1/(0.3*5)^2; a row of 2 that changes by -8 in place of -10 weighs 10 * 0.3^2/2 = 0.45.
	rows = []shareRow{{weight: 10, by: []float64{2, 0}, byShare: -8}}
	along := -5 + 0.45*2*2/(1/2.25+0.45*4)
	if !l.smoothShare(rows, s, 0.5) || !near(rows[0].byShare, 2*along) {
		t.Errorf("got %g, want %g", rows[0].byShare, 2*along)
	}
	// Attention is in proportion to 1 - c^2: at c = 1/2 its derivative by s is -2c/(1+c) = -2/3 of it.
	rows = []shareRow{{weight: 1e-12, by: []float64{0, 3}, byShare: 0}}
	if !l.smoothShare(rows, s, 0.5) || math.Abs(rows[0].byShare+3*4*2/3.) > 1e-6 {
		t.Errorf("attention: got %g, want %g", rows[0].byShare, -3*4*2/3.)
	}
	// A delay outside the engine does not depend on the cache, whatever a row shows.
	l.m = handModel("step/prefill_linear_compute", "overhead/constant")
	l.m.beta = 1
	rows = []shareRow{{weight: 10, by: []float64{0, 3}, byShare: 1}}
	if !l.smoothShare(rows, s, 0.5) || math.Abs(rows[0].byShare) > 1e-6 {
		t.Errorf("a delay: got %g, want 0", rows[0].byShare)
	}
}

// TestRegressionByHand: residuals relative to their scale, weights by Huber's loss, typical errors by kind, and the
// design effect of correlated rows.
func TestRegressionByHand(t *testing.T) {
	values := []float64{2, 3}
	w := &row{kind: rowTTFT, x: []float64{1, 2}, y: 10, scale: 4}
	if got := w.residual(values); got != 0.5 {
		t.Errorf("got a residual of %g, want (10 - 8)/4", got)
	}
	of := func(sd float64) (scale [numRowKinds]float64) {
		scale[rowTTFT] = sd
		return scale
	}
	for sd, want := range map[float64]float64{0.25: 1 / (16 * 0.0625), 0.2: 0.8 / (16 * 0.04), 1: 1. / 16} {
		if got := w.weight(values, of(sd)); !near(got, want) {
			t.Errorf("typical error %g: got a weight of %g, want %g", sd, got, want)
		}
	}
	r := &regression{m: handModel("a", "b")}
	for _, off := range []float64{0.1, -0.3, 0.2} {
		r.addRow(rowSpan, 0, []float64{0, 0}, off, 1)
	}
	r.addRow(rowTTFT, 1, []float64{0, 0}, 0.001, 1)
	r.offset = 2
	r.addRow(rowEgress, 3, []float64{0, 0}, 100, 1)
	if got := r.scales(values); !near(got[rowSpan], 0.2*1.4826) || got[rowTTFT] != 0.005 || !near(got[rowEgress], 148.26) {
		t.Errorf("got typical errors %v", got)
	}
	if b := r.rows[4].block; b != 5 {
		t.Errorf("got block %d, want that of the load", b)
	}
	if got := (&regression{m: r.m}).scales(values); got != leastError || leastError != [numRowKinds]float64{0.002, 0.005, 20} {
		t.Errorf("no rows: got %v", got)
	}
	// Two blocks with scores (1, 2) and (3, -1) at the candidate (2, 3); prior errors 2 and 0.5.
	block := func(score0, score1, g0, g1 float64) *ridge.Gram {
		b := ridge.New(2)
		b.G = []float64{g0, 0, 0, g1}
		b.B = []float64{g0*2 + score0, g1*3 + score1}
		return b
	}
	blocks := []*ridge.Gram{block(1, 2, 0.5, 1), block(3, -1, 0.25, 3)}
	meat := (1+9)*4 + (4+1)*0.25
	bread := 2 * ((0.5+0.25)*4 + (1+3)*0.25)
	if got := r.m.design(blocks, values, 2); !near(got, meat/bread) {
		t.Errorf("got a design effect of %g, want %g", got, meat/bread)
	}
	if r.m.design(blocks, values, 100) != 1.5 || r.m.design(nil, values, 1) != 1.5 {
		t.Error("the least design effect is not kept")
	}
	// Squares of typical errors around their median, and the variance of the blocks' mean errors.
	s := &regression{m: r.m}
	for block, list := range [][]float64{{1, 2, 3}, {5, 6, 7}, {100, 100}} {
		for _, off := range list {
			s.addRow(rowSpan, block, []float64{0, 0}, off, 1)
		}
	}
	s.addRow(rowTTFT, 0, []float64{0, 0}, 4, 1)
	s.addRow(rowTTFT, 0, []float64{0, 0}, 8, 1)
	squares, drift := s.scatter(values)
	sd := 1.4826 * stat.Median([]float64{4.5, 3.5, 2.5, 0.5, 0.5, 1.5, 94.5, 94.5})
	if !near(squares[rowSpan], sd*sd) || !near(squares[rowTTFT], 4*1.4826*1.4826) || squares[rowEgress] != 0 || !near(drift, 8) {
		t.Errorf("got squares %v and a drift of %g, want means 2 and 6 of blocks with three spans", squares, drift)
	}
}

// TestScatterOfAServerByHand: steps vary evenly by sqrt(3) deviations either way, and the speed by time block.
func TestScatterOfAServerByHand(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	cfg := &sim.Config{}
	scatterInto(cfg, result.RequestScatter{}, rng, 100, 3)
	if cfg.Noise != nil || cfg.Drift != nil {
		t.Errorf("no scatter: got %+v, %v", cfg.Noise, cfg.Drift)
	}
	scatterInto(cfg, result.RequestScatter{StepFrac: 0.1, DriftFrac: 0.2}, rng, 100, 3)
	half := math.Sqrt(3) * 0.1
	for _, q := range [][]sim.Quantile{cfg.Noise.Decode, cfg.Noise.Prefill, cfg.Noise.Mixed} {
		if len(q) != 2 || q[0].Q != 0 || q[1].Q != 1 || !near(q[0].Ratio, 1-half) || !near(q[1].Ratio, 1+half) {
			t.Errorf("got %v", q)
		}
	}
	other := rand.New(rand.NewPCG(1, 2))
	if len(cfg.Drift) != 6 {
		t.Fatalf("got %d blocks, want twice three", len(cfg.Drift))
	}
	for b, p := range cfg.Drift {
		if want := math.Max(0.1, 1+0.2*other.NormFloat64()); p.FromUs != int64(100*b) || !near(p.Factor, want) {
			t.Errorf("block %d: got %+v, want %g", b, p, want)
		}
	}
	cfg = &sim.Config{}
	if scatterInto(cfg, result.RequestScatter{StepFrac: 9}, rng, 1, 1); !near(cfg.Noise.Mixed[0].Ratio, 0.05) {
		t.Errorf("got %v, want steps of 5 %% at least", cfg.Noise.Mixed)
	}
	// The errors of a TTFT and outside the engine are those of the recorded requests.
	l := &Load{Requests: make([]sim.Request, 1), Seen: []sim.Measured{{TTFTUs: 9, E2EUs: 9}}, Stamps: []sim.Measured{{TTFTUs: 9, SpanUs: 9}}}
	request := sim.RequestResult{ArrivalUs: 77, OutputTokens: 3}
	request.FirstTokenUs.V, request.FirstTokenUs.OK = 1077, true
	request.FinishedUs.V, request.FinishedUs.OK = 3077, true
	request.DepartedUs.V, request.DepartedUs.OK = 3177, true
	request.Outcome = sim.OutcomeFinished
	m := request.Measured()
	rng, other = rand.New(rand.NewPCG(3, 4)), rand.New(rand.NewPCG(3, 4))
	got := l.withTimes(&sim.Result{Requests: []sim.RequestResult{request}}, result.RequestScatter{TTFTFrac: 0.1, OutsideUs: 30}, rng)
	ttft := 0.1 * other.NormFloat64() * m.TTFTUs
	outside := 30 * other.NormFloat64()
	if got.SentUs[0] != 77 || !near(got.Seen[0].TTFTUs, m.TTFTUs+ttft) || !near(got.Seen[0].E2EUs, m.E2EUs+ttft+outside) || got.Seen[0].SpanUs != 0 ||
		!near(got.Stamps[0].TTFTUs, m.TTFTUs+ttft) || !near(got.Stamps[0].SpanUs, m.SpanUs) || got.Stamps[0].E2EUs != 0 || m.TTFTUs != 1000 || m.SpanUs != 2000 {
		t.Errorf("got %+v of %+v", got, m)
	}
}

// TestSearchStepsByHand: two standard errors a unit, no value below 0; SPSA looks evenly to both sides of where it is.
func TestSearchStepsByHand(t *testing.T) {
	if got := moved([]float64{10, 1}, [][]float64{{1, 0.5}, {0, 2}}, []float64{0.5, -1}); !slices.Equal(got, []float64{11, 0}) {
		t.Errorf("got %v, want 10 + 2*0.5 and, of 1 + 0.5 - 4, 0", got)
	}
	l := &learner{}
	l.Calls = 20
	l.Seed = 5
	var calls [][]float64
	l.spsa(func(z []float64) float64 {
		calls = append(calls, slices.Clone(z))
		return 100 * z[0]
	}, 2)
	if len(calls) != 20 {
		t.Fatalf("got %d calls, want 20", len(calls))
	}
	at := make([]float64, 2)
	for k := 1; k <= 10; k++ {
		up, down := calls[2*k-2], calls[2*k-1]
		c := math.Max(0.01, 0.3/math.Pow(float64(k), 0.101))
		a := 0.5 / math.Pow(float64(k)+1, 0.602)
		for j := range at {
			if !near((up[j]+down[j])/2, at[j]) || !near(math.Abs(up[j]-down[j])/2, c) {
				t.Fatalf("step %d: got %v and %v, want %g either side of %g", k, up, down, c, at[j])
			}
		}
		slope := 100 * (up[0] - down[0]) / (2 * c) // clamped to 1
		for j := range at {
			at[j] -= a * math.Copysign(1, slope) * math.Copysign(1, up[j]-down[j])
		}
	}
	calls = nil
	l.spsa(func(z []float64) float64 {
		calls = append(calls, slices.Clone(z))
		return math.NaN()
	}, 1)
	if last := calls[len(calls)-2:]; last[0][0] != -last[1][0] {
		t.Errorf("values that are none: got %v, want steps around 0", last)
	}
}

// TestFullByHand: the share of max_num_seqs or of the KV cache, whichever is larger, at the 95 % quantile.
func TestFullByHand(t *testing.T) {
	d := h100(t)
	d.Engine.MaxNumSeqs = 40
	d.Engine.KVBlocksGPU.V, d.Engine.KVBlocksGPU.OK = 1000, true
	var running []float64
	for i := range 21 {
		running = append(running, float64(i))
	}
	if got := peakShare(running, []float64{100, 300}, d); !near(got, 19./40) {
		t.Errorf("got %g, want 19 of 40", got)
	}
	if got := peakShare(running, []float64{600, 1000}, d); !near(got, 19*800./16_000) {
		t.Errorf("got %g, want 19 contexts of 800 in 16,000 tokens", got)
	}
	if got := peakShare(nil, nil, d); got != 0 {
		t.Errorf("none: got %g", got)
	}
}

// TestPointObjectiveByHand: TPOT is 1 % off, half a standard error; TTFT 10 %, two and a half, of which the part
// beyond two counts linearly.
func TestPointObjectiveByHand(t *testing.T) {
	d := h100(t)
	l := &Load{Deployment: d, KVBlocks: 2000, Requests: []sim.Request{{PromptTokens: 100, OutputTokens: 4}}}
	m, err := newModel(Roofline(d), d)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := l.config(m, nil)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Gradient = true
	means, err := sim.MeansOf(cfg, l.Requests)
	if err != nil {
		t.Fatal(err)
	}
	p := &Point{TPOTMs: means.TPOTMs * math.Exp(-0.01), TTFTMs: means.TTFTMs * math.Exp(0.1)}
	score := func(p *Point, derivatives bool) *sim.Score {
		cfg, err := l.config(m, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.assess(cfg, l.Requests, make([]float64, len(means.TPOTBy)), derivatives)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	want := 0.01*0.01/2 + 0.25*0.1*0.1*0.8*(1-0.4)
	got := score(p, true)
	if !near(got.Objective, want) || got.Paired != got.Objective || got.Pairs != 2 || got.Steps != means.Steps || len(got.Blocks) != 1 {
		t.Errorf("got %g, want %g", got.Objective, want)
	}
	wTPOT, wTTFT := 1/(p.TPOTMs*p.TPOTMs), 0.8*0.25/(p.TTFTMs*p.TTFTMs)
	for j := range means.TPOTBy {
		b := wTPOT*means.TPOTBy[j]*(p.TPOTMs-means.TPOTMs) + wTTFT*means.TTFTBy[j]*(p.TTFTMs-means.TTFTMs)
		if !near(got.Blocks[0].B[j], b) {
			t.Errorf("derivative %d: got %g, want %g", j, got.Blocks[0].B[j], b)
		}
	}
	if got := score(&Point{TPOTMs: p.TPOTMs}, false); !near(got.Objective, 0.01*0.01/2) || got.Blocks != nil {
		t.Errorf("no TTFT: got %+v", got)
	}
}

// TestLevelsAreSimulatedOncePerCandidate: a fit, the estimate of the share of cached tokens at its end and a second fit
// simulate a load level as often as there are candidates, and once more with another share assumed. What is remembered is
// what a simulation returns.
func TestLevelsAreSimulatedOncePerCandidate(t *testing.T) {
	d := h100(t)
	var loads []*Load
	for _, clients := range []int64{1, 4} {
		point := levelAt(clients, 40, 9)
		l, err := loadOfLevel(&point, d)
		if err != nil {
			t.Fatal(err)
		}
		loads = append(loads, l)
	}
	prior := Roofline(d)
	o := DefaultOptions()
	o.Search = SearchNone
	learned, err := Fit(t.Context(), loads, prior, o)
	if err != nil {
		t.Fatal(err)
	}
	l := loads[1]
	candidates := len(l.simulated)
	if candidates < 2 || candidates != learned.Level.Evaluations {
		t.Errorf("got %d simulations, want %d, those of the fit's evaluations", candidates, learned.Level.Evaluations)
	}
	again, err := Fit(t.Context(), loads, prior, o)
	if err != nil || len(l.simulated) != candidates || again.Level.Objective != learned.Level.Objective {
		t.Errorf("again: got %d simulations, want %d; %v", len(l.simulated), candidates, err)
	}
	m, err := newModel(prior, d)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := l.config(m, m.mean)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Gradient = true
	want, err := sim.MeansOf(cfg, l.Requests)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := l.meansAt(m, m.mean, nil); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if l.assume(0.5); len(l.simulated) != 0 {
		t.Errorf("another share: got %d simulations of the old one", len(l.simulated))
	}
}
