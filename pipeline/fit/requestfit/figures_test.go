package requestfit

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/sim"
)

// TestStepByHand: the most likely value of one term by a replay, by the regression on stamps, by the prior and, with
// damping, by its present value.
func TestStepByHand(t *testing.T) {
	gram := func(g, mean float64) *ridge.Gram {
		return &ridge.Gram{P: 1, N: 4, W: 4, Q: g * mean * mean, G: []float64{g}, B: []float64{g * mean}}
	}
	from := &state{values: []float64{3}}
	nothing := evidence{sum: ridge.New(1), variance: 1, design: 1}
	replays := evidence{sum: gram(12, 5), variance: 2, design: 3} // counts as 2 at 5
	stamps := &evidence{sum: gram(20, 7), design: 5}              // counts as 4 at 7
	for name, c := range map[string]struct {
		replays evidence
		stamps  *evidence
		damping float64
		want    float64
	}{
		"nothing":               {nothing, nil, 0, 1},
		"replays":               {replays, nil, 0, (2*5 + 0.5*1) / 2.5},
		"stamps":                {nothing, stamps, 0, (4*7 + 0.5*1) / 4.5},
		"both":                  {replays, stamps, 0, (2*5 + 4*7 + 0.5*1) / 6.5},
		"damped":                {replays, nil, 2, (2*5 + 0.5*1 + 5*3) / 7.5},
		"nothing, damped":       {nothing, nil, 2, (0.5*1 + 1*3) / 1.5},
		"both, damped slightly": {replays, stamps, 0.1, (2*5 + 4*7 + 0.5*1 + 0.65*3) / 7.15},
	} {
		l := &learner{m: &model{free: []int{0}, mean: []float64{1}, precision: []float64{0.5}}, stamps: c.stamps}
		got, err := l.step(from, c.replays, c.damping)
		if err != nil || len(got) != 1 || !near(got[0], c.want) {
			t.Errorf("%s: got %v, %v, want %g", name, got, err, c.want)
		}
	}
	// 12*(5-3)^2 of four rows over two twins.
	l := &learner{m: &model{free: []int{0}, sd: []float64{1}, precision: []float64{1}}, loads: []*Load{{}}}
	l.Twins = 2
	from.blocks = []*ridge.Gram{gram(5, 5), gram(7, 5)}
	if e := l.weigh(from); e.sum.N != 8 || e.sum.G[0] != 12 || !near(e.variance, 48.0/4) {
		t.Errorf("got %+v", e)
	}
	from.values = []float64{5}
	if e := l.weigh(from); e.variance != 1e-5 || e.design != 1.5 {
		t.Errorf("without error: got %+v", e)
	}
	l.loads[0].Point = &Point{}
	if e := l.weigh(from); e.variance != 0.02*0.02 || e.design != 1 {
		t.Errorf("a point: got %+v", e)
	}
}

// TestFreeColumnsOfAModel: the terms with a variance, then the constants of the delays and the overhead's work per
// prompt token, each with its column, mean and standard error.
func TestFreeColumnsOfAModel(t *testing.T) {
	d := h100(t)
	set := Roofline(d).Set
	alpha := features.AlphaFeatures(set.SpecVersion)
	place := func(name string) int {
		return slices.IndexFunc(alpha, func(f features.Feature) bool { return f.Name == name })
	}
	base, compute := place("base_bias"), place("admission_compute")
	steps := len(set.Beta)
	space, err := features.New(set.SpecVersion, d)
	if err != nil {
		t.Fatal(err)
	}
	prompt := make([]float64, len(alpha))
	if _, err := space.Alpha(&features.QueueInput{PromptTokens: 1000, KVFreeBlocks: 1}, prompt); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		overhead, egress         float64 // constants of the prior's set
		mean, sd, after, afterSD float64
	}{
		"no delays":       {0, 0, 3000, 10_000, 500, 3000},
		"delays":          {4000, 700, 4000, 4000, 700, 3000},
		"a short egress":  {100, 200, 100, 100, 500, 3000},
		"an egress alone": {0, 501, 3000, 10_000, 501, 3000},
	} {
		own := *set
		own.Alpha = nil
		for target, us := range map[string]float64{coeff.Egress: c.egress, coeff.Overhead: c.overhead} {
			a := coeff.AlphaModel{Target: target, Replay: true, Coefficients: features.NewCoefficients(alpha)}
			a.Coefficients[base].Value = us
			own.Alpha = append(own.Alpha, a)
		}
		m, err := newModel(&Prior{Name: "x", Set: &own}, d)
		if err != nil {
			t.Fatal(err)
		}
		type column struct {
			at       int
			mean, sd float64
		}
		got := map[string]column{}
		for k, n := range m.names {
			got[n] = column{m.free[k], m.mean[k], m.sd[k]}
		}
		for n, want := range map[string]column{
			"overhead/base_bias":         {steps + base, c.mean, c.sd},
			"overhead/admission_compute": {steps + compute, 0, 3 * 1000 / prompt[compute]},
			"egress/base_bias":           {steps + len(alpha) + base, c.after, c.afterSD},
		} {
			if g := got[n]; g.at != want.at || g.mean != want.mean || !near(g.sd, want.sd) {
				t.Errorf("%s: %s: got %+v, want %+v", name, n, g, want)
			}
		}
		for k, j := range m.free[:m.beta] {
			sd := math.Sqrt(own.Covariance[j][j])
			if m.names[k] != "step/"+own.Beta[j].Name || m.mean[k] != own.Beta[j].Value || !near(m.sd[k], sd) {
				t.Errorf("%s: column %d: got %s, %g and %g", name, j, m.names[k], m.mean[k], m.sd[k])
			}
		}
		if len(m.free) != m.beta+3 {
			t.Errorf("%s: got %d free columns beyond %d of steps", name, len(m.free), m.beta)
		}
	}
	m := &model{names: []string{"a", "b"}}
	row := make([]float64, 2)
	m.setNamed(row, "a", 5)
	m.setNamed(row, "c", 7)
	if !slices.Equal(row, []float64{5, 0}) {
		t.Errorf("got %v", row)
	}
}

// TestSmallSearchSteps: below the clamp a step goes down the slope, at each point half the difference of both
// sides over the perturbation.
func TestSmallSearchSteps(t *testing.T) {
	l := &learner{}
	l.Calls, l.Seed = 8, 3
	var calls []float64
	l.spsa(func(z []float64) float64 {
		calls = append(calls, z[0])
		return 0.25*z[0]*z[0] + 0.1*z[0]
	}, 1)
	if len(calls) != 8 {
		t.Fatalf("got %d calls", len(calls))
	}
	at := 0.0
	for k := 1; k <= 4; k++ {
		if mid := (calls[2*k-2] + calls[2*k-1]) / 2; !near(mid, at) {
			t.Errorf("step %d: got around %g, want %g", k, mid, at)
		}
		at -= 0.5 / math.Pow(float64(k)+0.4, 0.602) * (0.5*at + 0.1)
	}
}

// TestStampsWithoutGaps: requests of one token end no gap between tokens, and requests without both stamps take no part.
func TestStampsWithoutGaps(t *testing.T) {
	l := twoRequests(t)
	l.Requests[1].OutputTokens, l.Stamps[1].SpanUs, l.Seen[1].SpanUs = 1, 0, 0
	o := occupancyOf(t, l)
	if o == nil || !slices.Equal(o.stamped, []int{0, 1}) || len(o.stretches) != 1 || o.stretches[0].toUs != 5000 {
		t.Fatalf("got %+v", o)
	}
	l.Requests[0].OutputTokens, l.Stamps[0].SpanUs, l.Seen[0].SpanUs = 1, 0, 0
	if o := occupancyOf(t, l); o != nil {
		t.Errorf("one token each: got %+v", o)
	}
	l = twoRequests(t)
	l.Stamps[0].TTFTUs = math.NaN()
	if o := occupancyOf(t, l); o == nil || !slices.Equal(o.stamped, []int{1}) {
		t.Errorf("no first token: got %+v", o)
	}
	l = twoRequests(t)
	l.Stamps[1].SpanUs = math.NaN()
	if o := occupancyOf(t, l); o == nil || !slices.Equal(o.stamped, []int{0}) {
		t.Errorf("no last token: got %+v", o)
	}
	none := twoRequests(t)
	none.Stamps = nil
	m, err := newModel(Roofline(l.Deployment), l.Deployment)
	if err != nil {
		t.Fatal(err)
	}
	// The second load's rows are of other blocks of time than the first's.
	r := &repeats{learner: &learner{m: m, loads: []*Load{twoRequests(t), twoRequests(t)}}, values: m.mean}
	r.BlockUs = 500
	if n := r.countBlocks(); n != 3 {
		t.Errorf("got %d blocks, want those of a request sent at 1000 us", n)
	}
	reg, err := r.regression(r.loads)
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[int]int{}
	for _, row := range reg.rows {
		blocks[row.block/3]++
	}
	if len(blocks) != 2 || blocks[0] == 0 || blocks[0] != blocks[1] {
		t.Errorf("got rows of blocks %v", blocks)
	}
}

// TestWhatCannotBeReplayed: a load on a deployment that cannot be simulated is an error of whatever replays it, not a fit
// without it.
func TestWhatCannotBeReplayed(t *testing.T) {
	good := twoRequests(t)
	good.KVBlocks = 2000
	prior := Roofline(good.Deployment)
	broken := twoRequests(t)
	d := *broken.Deployment
	d.Model.HeadDim = 0
	broken.Deployment, broken.KVBlocks = &d, 2000
	o := DefaultOptions()
	o.Passes, o.Twins = 1, 1
	for name, replay := range map[string]func() error{
		"fit":      func() error { _, err := Fit(t.Context(), []*Load{good, broken}, prior, o); return err },
		"choice":   func() error { _, err := Choose(t.Context(), []*Load{good, broken}, prior, 1, o); return err },
		"replay":   func() error { _, err := broken.Predict(prior.Set); return err },
		"likeness": func() error { found, err := broken.Unlike(prior.Set); return cmpFound(found != nil, err) },
		"cache": func() error {
			level := *broken
			level.Point = &Point{TTFTMs: 1}
			_, full, err := level.Full(prior)
			return cmpFound(full, err)
		},
		"means": func() error { _, err := broken.means(prior); return err },
	} {
		if err := replay(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if ms, full, err := good.Full(prior); ms != 0 || full || err != nil {
		t.Errorf("requests, not a level: got %g ms, %v, %v", ms, full, err)
	}
	if found, err := (&Load{Point: &Point{}}).Unlike(nil); found != nil || err != nil {
		t.Errorf("a level, not requests: got %v, %v", found, err)
	}
	// Times that were not measured do not count; three times the measured one is unlike.
	got, err := good.Predict(prior.Set)
	if err != nil {
		t.Fatal(err)
	}
	for factor, want := range map[float64]int{1: 0, 2.99: 0, 3.01: 1, 1 / 2.99: 0, 1 / 3.01: 1} {
		l := *good
		l.Seen = slices.Clone(good.Seen)
		l.Seen[0].TTFTUs, l.Seen[1].TTFTUs = got[0].TTFTUs*factor, math.NaN()
		if found, err := l.Unlike(prior.Set); err != nil || len(found) != want {
			t.Errorf("%g times the simulated TTFT: got %v, %v", factor, found, err)
		}
		l.Seen[1].TTFTUs = 0
		if found, err := l.Unlike(prior.Set); err != nil || len(found) != want {
			t.Errorf("%g times, and one of 0: got %v, %v", factor, found, err)
		}
	}
	stopped := *good
	stopped.Seen = []sim.Measured{{TTFTUs: math.NaN()}, {}}
	if found, err := stopped.Unlike(prior.Set); found != nil || err != nil {
		t.Errorf("nothing measured: got %v, %v", found, err)
	}
}

// cmpFound is an error if there is one, and says what was found in its place.
func cmpFound(found bool, err error) error {
	if err != nil || !found {
		return err
	}
	return fmt.Errorf("found something: %v", found)
}

// TestBlocksOfALoad: five blocks from the first to the last request, and an embargo of the longest latency.
func TestBlocksOfALoad(t *testing.T) {
	l := twoRequests(t)
	l.Run, l.Phase, l.OriginNs = "r", "p", 5_000_000
	l.SentUs[1] = 100_000
	b := l.blocks()
	const first, block, latency = 5_000_000, 20_000_000, 8_000_000 // the last token of the second request is 8 ms after it was sent
	for ns, want := range map[int64]int{first: 0, first + block - 1: 0, first + block + 1: 1, first + 3*block + 1: 3, first + 5*block: 4} {
		if got := b.Block(ns); b.Run != "r" || b.Phase != "p" || got != want {
			t.Errorf("%d ns: got block %d of %+v, want %d", ns, got, b, want)
		}
	}
	for ns, want := range map[int64]bool{first: false, first + block + latency - 1e3: false, first + block + latency + 1e3: true, first + 5*block: true} {
		if got := b.Teaches(0, ns); got != want {
			t.Errorf("%d ns without the first block: got %v, want %v", ns, got, want)
		}
	}
	if got := countMeasured([]*Load{l, l}); got != 4 {
		t.Errorf("got %d measured requests", got)
	}
	for left, other := range map[int]int{0: 1, 4: 0} {
		without := l.without(&b, left)
		gone, stays := 1-other, other
		if isMeasured(&without.Seen[gone]) || isNumber(without.Stamps[gone].TTFTUs) || !isMeasured(&without.Seen[stays]) || !isNumber(without.Stamps[stays].TTFTUs) || !isMeasured(&l.Seen[gone]) {
			t.Errorf("without block %d: got %v and %v", left, without.Seen, without.Stamps)
		}
	}
}

// TestEquationsOfFreeColumns: the error of the free columns' equations at any values is that of all columns with these values beside the
// fixed ones of the set, times the weight.
func TestEquationsOfFreeColumns(t *testing.T) {
	d := h100(t)
	own := *Roofline(d).Set
	alpha := features.AlphaFeatures(own.SpecVersion)
	own.Alpha = []coeff.AlphaModel{{Target: coeff.Overhead, Replay: true, Coefficients: features.NewCoefficients(alpha)}}
	for j := range own.Alpha[0].Coefficients {
		own.Alpha[0].Coefficients[j].Value = float64(7 + j) // most of them fixed
	}
	m, err := newModel(&Prior{Name: "x", Set: &own}, d)
	if err != nil {
		t.Fatal(err)
	}
	load := &Load{Deployment: d}
	l := &learner{m: m, loads: []*Load{load}}
	p := len(m.theta(load, m.mean))
	b := &ridge.Gram{P: p, N: 9, W: 4, Q: 1e9, B: make([]float64, p), G: make([]float64, p*p)}
	for j := range p {
		b.B[j] = float64(j%5) - 1
		for k := range p {
			b.G[j*p+k] = 1 / float64(1+j+k)
		}
	}
	got := l.freeColumns(load, b, 2.5)
	if got.P != len(m.free) || got.N != 9 || got.W != 10 {
		t.Errorf("got %d columns of %d rows of weight %g, want %d, 9 and 10", got.P, got.N, got.W, len(m.free))
	}
	for _, scale := range []float64{0, 1, 3} {
		values := make([]float64, len(m.free))
		for k := range values {
			values[k] = scale * float64(k+1)
		}
		all := m.theta(load, make([]float64, len(m.free)))
		for k, j := range m.free {
			all[j] = values[k]
		}
		if g, want := got.SSE(values), 2.5*b.SSE(all); !(want > 0) || math.Abs(g-want) > 1e-9*want {
			t.Errorf("at %g: got an error of %g, want %g", scale, g, want)
		}
	}
	from := &state{}
	if got, err := l.biasRemoved(from, nil, nil, true); got != from || err != nil {
		t.Errorf("after a search: got %v, %v", got, err)
	}
	// One direction of which the data have three parts of four: its gradient varies by 5, and four draws removed its bias.
	r := &repeats{learner: &learner{m: &model{free: []int{0}, beta: 1, precision: []float64{1}}}}
	want := ((1+0.25)*47/(46-0.75)*5 + 1) / 16
	if got, err := r.sandwich([]float64{3}, []float64{5}, 4); err != nil || !near(got[0], want) {
		t.Errorf("got a variance of %v, %v, want %g", got, err, want)
	}
	r.m.beta = 0
	if got, err := r.sandwich([]float64{3}, []float64{5}, 4); err != nil || !near(got[0], want+math.Pow(0.475/1.959963984540054, 2)) {
		t.Errorf("a delay: got a variance of %v, %v", got, err)
	}
	if _, err := r.sandwich([]float64{-1}, []float64{5}, 4); err == nil {
		t.Error("no information at all: got no error")
	}
}
