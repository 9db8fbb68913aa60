package autoscale

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
	"gonum.org/v1/gonum/mat"
)

// truth are the parameters behind the windows of these tests.
var truth = map[Flavour][]float64{
	wvA4P:     {7, 0.05, 20, 1e-4},
	wvA3P:     {6.6, 0.02, 5e-5},
	inferno3P: {6.6, 0.02, 5e-5},
	corrected: {6.6, 0.02, 5e-5},
}

// multiLoad makes n windows, one minute each, whose shape and load go through a
// cycle; x(i) are the parameters of window i, and noise the relative standard
// deviation of TTFT and ITL.
func multiLoad(t testing.TB, f Flavour, n int, x func(i int) []float64, noise float64, rng *rand.Rand) []window {
	return multiLoadAs(t, f, n, x, noise, rng, asSized)
}

func multiLoadAs(t testing.TB, f Flavour, n int, x func(i int) []float64, noise float64, rng *rand.Rand, as observation) []window {
	t.Helper()
	shapes := []shape{{Prompt: 256, Output: 128}, {Prompt: 1024, Output: 256}, {Prompt: 128, Output: 512}, {Prompt: 2048, Output: 64}}
	loads := []float64{0.2, 0.5, 0.7, 0.35, 0.6}
	out := make([]window, n)
	for i := range out {
		w := window{
			StartNs:  int64(i) * 60e9,
			EndNs:    int64(i+1) * 60e9,
			Requests: 100,
			Arrivals: 100,
			Shape:    shapes[i%len(shapes)],
			Limits:   Limits{MaxBatch: 64, Queue: 640, MaxBatchedTokens: 8192},
		}
		m, err := newModel(f, fromVector(truth[f]), w.Shape, w.Limits)
		if err != nil {
			t.Fatal(err)
		}
		w.RateRPS = loads[i%len(loads)] * m.MaxRateRPS()
		var ok bool
		if w.TTFTMs, w.ITLMs, _, ok = solveWindow(f, &w, x(i), as); !ok {
			t.Fatal("no prediction")
		}
		if noise > 0 {
			w.TTFTMs *= math.Exp(noise * rng.NormFloat64())
			w.ITLMs *= math.Exp(noise * rng.NormFloat64())
			w.TTFTSeMs = noise * w.TTFTMs
			w.ITLSeMs = noise * w.ITLMs
		}
		out[i] = w
	}
	return out
}

func constant(x []float64) func(int) []float64 { return func(int) []float64 { return x } }

func TestLinearObservationIsThePlainKalmanFilter(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 10))
	const n, m = 3, 2
	h := mat.NewDense(m, n, []float64{1, 2.5, -0.5, 0.3, 4, 1.5})
	q := mat.NewDense(n, n, []float64{0.01, 0.002, 0, 0.002, 0.02, 0, 0, 0, 0.03})
	r := []float64{0.5, 0.25}
	observe := func(x []float64) ([]float64, bool) {
		var z mat.VecDense
		z.MulVec(h, mat.NewVecDense(n, append([]float64(nil), x...)))
		return z.RawVector().Data, true
	}
	g := gaussian{mat.NewVecDense(n, []float64{1, -2, 3}), scaledIdentity(n, 2)}
	// the plain filter, with H as it is and the covariance in information form
	x := mat.NewVecDense(n, []float64{1, -2, 3})
	p := scaledIdentity(n, 2)
	for step := range 200 {
		z := []float64{-5.5 + 0.3*rng.NormFloat64(), -3.2 + 0.3*rng.NormFloat64()} // near H (1, -2, 3): no state comes near 0
		_, nis, failed := g.cycle(observe, z, q, r)
		if failed != "" {
			t.Fatal(failed)
		}
		var info, inv, weighted mat.Dense
		p.Add(p, q)
		var y, hx mat.VecDense
		hx.MulVec(h, x)
		y.SubVec(mat.NewVecDense(m, z), &hx)
		var s, sInv mat.Dense
		s.Product(h, p, h.T())
		s.Add(&s, mat.NewDiagDense(m, r))
		if err := sInv.Inverse(&s); err != nil {
			t.Fatal(err)
		}
		wantNIS := mat.Inner(&y, &sInv, &y)
		if err := info.Inverse(p); err != nil {
			t.Fatal(err)
		}
		rInv := mat.NewDiagDense(m, []float64{1 / r[0], 1 / r[1]})
		weighted.Product(h.T(), rInv, h)
		info.Add(&info, &weighted)
		if err := inv.Inverse(&info); err != nil {
			t.Fatal(err)
		}
		p = mat.DenseCopyOf(&inv)
		var step1, step2 mat.VecDense
		step1.MulVec(h.T(), mat.NewVecDense(m, []float64{y.AtVec(0) / r[0], y.AtVec(1) / r[1]}))
		step2.MulVec(p, &step1)
		x.AddVec(x, &step2)
		for i := range n {
			same(t, step, "state", g.x.AtVec(i), x.AtVec(i), 1e-12)
			for j := range n {
				same(t, step, "covariance", g.p.At(i, j), p.At(i, j), 1e-12)
			}
		}
		same(t, step, "nis", nis, wantNIS, 1e-10)
	}
}

func same(t *testing.T, step int, what string, got, want, tol float64) {
	t.Helper()
	if math.Abs(got-want) > tol*math.Max(1, math.Abs(want)) {
		t.Fatalf("step %d, %s: got %.17g, want %.17g", step, what, got, want)
	}
}

// TestJoseph: at the optimal gain it is (I-KH)P.
func TestJoseph(t *testing.T) {
	p := mat.NewDense(3, 3, []float64{2, 0.3, 0.1, 0.3, 1, -0.2, 0.1, -0.2, 0.5})
	h := mat.NewDense(2, 3, []float64{1, 2, 0.5, -1, 0.3, 2})
	r := []float64{0.1, 0.2}
	sInv, _, _ := innovationOf([]float64{1, 1}, h, p, r)
	var k mat.Dense
	k.Product(p, h.T(), sInv)
	got := joseph(p, &k, h, r)
	g := gaussian{mat.NewVecDense(3, nil), mat.DenseCopyOf(p)}
	g.correct([]float64{0, 0}, h, sInv)
	if !mat.EqualApprox(got, g.p, 1e-13) {
		t.Errorf("got %v, want %v", mat.Formatted(got), mat.Formatted(g.p))
	}
}

// TestConsistency: over 2,000 windows whose noise and drift are what the filter
// is told, the mean NIS is 2 and 2.5 percent are beyond the gate.
func TestConsistency(t *testing.T) {
	const noise = 0.05
	for _, f := range []Flavour{inferno3P, corrected, wvA4P} {
		rng := rand.New(rand.NewPCG(22, 11))
		o := defaultRobust(f)
		o.Floor = 0
		o.Start = truth[f]
		o.StartSD = 0.05
		theta := logsOf(truth[f])
		drift := func(i int) []float64 {
			if i > 0 {
				for j := range theta { // pulled back, so that 33 hours stay in range
					theta[j] += driftPerHour*math.Sqrt(1.0/60)*rng.NormFloat64() - (theta[j]-math.Log(truth[f][j]))*2e-2
				}
			}
			return expsOf(theta)
		}
		w := multiLoad(t, f, 2000, drift, noise, rng)
		s := summarize(w, Robust(w, o))
		t.Logf("%s: mean NIS %.3f, rejected %.2f %%, whiteness %.3f %.3f", f, *s.MeanNIS, 100*s.RejectedFrac, *s.Whiteness[0], *s.Whiteness[1])
		if *s.MeanNIS < 1.8 || *s.MeanNIS > 2.2 || s.RejectedFrac < 0.015 || s.RejectedFrac > 0.035 {
			t.Errorf("%s: mean NIS %.3f and %.2f %% rejected, want 1.8..2.2 and 1.5..3.5 %%", f, *s.MeanNIS, 100*s.RejectedFrac)
		}
	}
}

// TestJump: alpha doubles at window 50. The replica rejects every window from
// then on, because a rejection takes its covariance back too; ours is there
// within five windows.
func TestJump(t *testing.T) {
	const at = 50
	for _, o := range []replicaOptions{wvaTuner, modelTuner} {
		f := o.Flavour
		rng := rand.New(rand.NewPCG(22, 12))
		after := append([]float64(nil), truth[f]...)
		after[0] *= 2
		w := multiLoadAs(t, f, 150, func(i int) []float64 {
			if i < at {
				return truth[f]
			}
			return after
		}, 0.02, rng, asTuned)
		o.Start = truth[f]
		if o.Name == "model-tuner" {
			o.ExpectedTTFTMs, o.ExpectedITLMs = 0, 0 // constants of 51 and 10 ms of noise hide any jump
			o.ErrorLevel = 0.05
		}
		steps := Replica(w, o)
		s := summarize(w, steps)
		if s.LockedOut < len(w)-at {
			t.Errorf("%s: %d windows rejected at the end, want all %d after the jump", o.Name, s.LockedOut, len(w)-at)
		}
		if x := steps[len(steps)-1].X[0]; math.Abs(x/truth[f][0]-1) > 0.2 {
			t.Errorf("%s: alpha at the end is %.3g, want it stuck near %.3g", o.Name, x, truth[f][0])
		}
		r := defaultRobust(f)
		r.Start, r.Observation = truth[f], asTuned
		ours := Robust(w, r)
		delay := lag(ours, at, 0, after[0], 0.1)
		t.Logf("%s: replica alpha %.2f after %d rejections; robust within 10 %% of %.2f after %d windows", o.Name, steps[len(steps)-1].X[0],
			s.LockedOut, after[0], delay)
		if delay < 0 || delay > 5 {
			t.Errorf("%s: robust needs %d windows, want at most 5", f, delay)
		}
		for i := at + delay; i < len(ours); i++ {
			if e := math.Abs(ours[i].X[0]/after[0] - 1); e > 0.1 {
				t.Errorf("%s: alpha %.0f %% off again at window %d", f, 100*e, i)
			}
		}
	}
}

// TestFitRecovers: without noise the batch fit returns what made the windows.
func TestFitRecovers(t *testing.T) {
	for _, f := range flavours {
		w := multiLoad(t, f, 40, constant(truth[f]), 0, nil)
		got, err := Fit(w, defaultFit(f))
		if err != nil {
			t.Fatal(err)
		}
		for j, name := range f.Parameters() {
			if math.Abs(got.X[j]/truth[f][j]-1) > 1e-6 {
				t.Errorf("%s %s: got %.9g, want %.9g (objective %g)", f, name, got.X[j], truth[f][j], got.Objective)
			}
		}
		if got.NelderMead < got.Objective*(1-1e-6) && got.Objective > 1e-12 {
			t.Errorf("%s: Nelder-Mead finds %g, below %g", f, got.NelderMead, got.Objective)
		}
	}
}

// TestFitCovers: with known noise the 95 % intervals hold the truth about as often.
func TestFitCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 13))
	f := inferno3P
	hits, all := 0, 0
	for range 20 {
		o := defaultFit(f)
		o.Floor = 0
		got, err := Fit(multiLoad(t, f, 40, constant(truth[f]), 0.03, rng), o)
		if err != nil {
			t.Fatal(err)
		}
		for j := range got.X {
			all++
			if got.Lo[j] <= truth[f][j] && truth[f][j] <= got.Hi[j] {
				hits++
			}
		}
	}
	if share := float64(hits) / float64(all); share < 0.88 || share > 0.99 {
		t.Errorf("95 %% intervals hold the truth in %.1f %% of %d cases", 100*share, all)
	}
}

// onePoint is a server that always sees the same load.
func onePoint(t testing.TB, f Flavour, n int, noise float64, rng *rand.Rand) []window {
	w := multiLoad(t, f, 1, constant(truth[f]), 0, nil)
	out := make([]window, n)
	for i := range out {
		out[i] = w[0]
		out[i].TTFTMs *= math.Exp(noise * rng.NormFloat64())
		out[i].ITLMs *= math.Exp(noise * rng.NormFloat64())
		out[i].TTFTSeMs = noise * w[0].TTFTMs
		out[i].ITLSeMs = noise * w[0].ITLMs
	}
	return out
}

func TestSingleOperatingPointIsRefused(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 14))
	for _, f := range flavours {
		w := onePoint(t, f, 50, 0.02, rng)
		_, err := Fit(w, defaultFit(f))
		if trace.CodeOf(err) != noWindows {
			t.Fatalf("%s: got %v, want %s", f, err, noWindows)
		}
		if !strings.Contains(trace.HintOf(err), "1024/512 tokens") || !strings.Contains(err.Error(), "changes neither TTFT nor ITL") {
			t.Errorf("%s: got %q, hint %q: want the direction and the sweep", f, err.Error(), trace.HintOf(err))
		}
		t.Logf("%v\nhint: %s", err, trace.HintOf(err))
	}
}

// TestSingleOperatingPointIsHeld: with physical values the unseen direction stays there.
func TestSingleOperatingPointIsHeld(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 15))
	f := corrected
	w := onePoint(t, f, 50, 0.01, rng)
	o := defaultFit(f)
	o.Physical = []float64{truth[f][0] * 0.8, truth[f][1] * 1.1, truth[f][2] * 3}
	got, err := Fit(w, o)
	if err != nil {
		t.Fatal(err)
	}
	s := evaluate(w, f, got.X, asSized)
	if *s.TTFTWape > 0.02 || *s.ITLWape > 0.02 {
		t.Errorf("got WAPE %.3f and %.3f on its own windows, want the noise of 1 %%", *s.TTFTWape, *s.ITLWape)
	}
	if len(got.Evaluated.Null) != 1 || len(got.Findings) != 1 || got.Findings[0].Code != heldParameter {
		t.Fatalf("got %d unseen directions and %v, want one of each", len(got.Evaluated.Null), got.Findings)
	}
	if got.Evaluated.After > 1000 {
		t.Errorf("the proposed sweep has condition number %g, want it to identify all", got.Evaluated.After)
	}
	held := 0
	for j := range got.X {
		if got.Held[j] {
			held++
			if r := got.X[j] / o.Physical[j]; r < 0.9 || r > 1.1 {
				t.Errorf("parameter %d is tagged as held and moved by %.2f", j, r)
			}
		}
	}
	if held == 0 {
		t.Errorf("no parameter is tagged: %+v", got)
	}
}

// TestAboveCapacity: rates beyond what the parameters can serve neither panic nor
// give NaN, in every estimator and flavour.
func TestAboveCapacity(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 16))
	for _, f := range flavours {
		w := multiLoad(t, f, 40, constant(truth[f]), 0.02, rng)
		for i := range w {
			w[i].RateRPS *= 5
		}
		for _, o := range []replicaOptions{wvaTuner, modelTuner} {
			o.Flavour = f
			steps := Replica(w, o)
			finite(t, string(f)+" "+o.Name, steps)
			if s := summarize(w, steps); o.Name == "wva" && s.Unpredicted == 0 {
				t.Errorf("%s: the replica has an answer above capacity, the original does not", f)
			}
		}
		finite(t, string(f)+" robust", Robust(w, defaultRobust(f)))
		finite(t, string(f)+" sliding", sliding(w, f, nil))
		if got, err := Fit(w, defaultFit(f)); err == nil {
			for _, x := range got.X {
				if !(x > 0) || math.IsInf(x, 0) {
					t.Errorf("%s: fit gives %v", f, got.X)
				}
			}
		}
	}
}

func finite(t *testing.T, what string, steps []step) {
	t.Helper()
	for _, s := range steps {
		for _, x := range s.X {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				t.Fatalf("%s: state %v at window %d", what, s.X, s.Window)
			}
		}
	}
}

// TestSlidingFollows: the refit over ten windows is at the new value once they are all new.
func TestSlidingFollows(t *testing.T) {
	f := inferno3P
	after := []float64{truth[f][0] * 2, truth[f][1], truth[f][2]}
	w := multiLoad(t, f, 80, func(i int) []float64 {
		if i < 40 {
			return truth[f]
		}
		return after
	}, 0, nil)
	steps := sliding(w, f, nil)
	if got := steps[39].X[0] / truth[f][0]; math.Abs(got-1) > 1e-4 {
		t.Errorf("before the jump: alpha off by %g", got-1)
	}
	if got := steps[50].X[0] / after[0]; math.Abs(got-1) > 1e-4 {
		t.Errorf("ten windows after it: alpha off by %g", got-1)
	}
	one := sliding(onePoint(t, f, 20, 0, rand.New(rand.NewPCG(1, 1))), f, nil)
	if v := one[19].Verdict; v != heldBack {
		t.Errorf("one operating point: got %s, want %s", v, heldBack)
	}
}

// lag is the number of windows after a jump at window `at` until parameter j
// first comes within tol of want; -1 when it never does.
func lag(steps []step, at, j int, want, tol float64) int {
	for i := at; i < len(steps); i++ {
		if math.Abs(steps[i].X[j]/want-1) <= tol {
			return i - at + 1
		}
	}
	return -1
}

// BenchmarkTrack is 10,000 windows through each tracker, N = 64.
func BenchmarkTrack(b *testing.B) {
	w := multiLoad(b, inferno3P, 10_000, constant(truth[inferno3P]), 0.03, rand.New(rand.NewPCG(22, 20)))
	for _, run := range []struct {
		name string
		of   func() []step
	}{
		{"replica", func() []step { return Replica(w, modelTuner) }},
		{"robust", func() []step { return Robust(w, defaultRobust(inferno3P)) }},
		{"sliding", func() []step { return sliding(w, inferno3P, nil) }},
	} {
		b.Run(run.name, func(b *testing.B) {
			for range b.N {
				if len(run.of()) != len(w) {
					b.Fatal("windows lost")
				}
			}
			b.ReportMetric(float64(len(w))*float64(b.N)/b.Elapsed().Seconds(), "windows/s")
		})
	}
}

// BenchmarkFit is a batch fit of 128 points at N = 256.
func BenchmarkFit(b *testing.B) {
	for _, f := range []Flavour{inferno3P, corrected} {
		b.Run(string(f), func(b *testing.B) {
			w := multiLoad(b, f, 128, constant(truth[f]), 0.03, rand.New(rand.NewPCG(22, 21)))
			for i := range w {
				w[i].Limits.MaxBatch = 256
				w[i].Limits.Queue = 256
			}
			for range b.N {
				if _, err := Fit(w, defaultFit(f)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// naiveReplica is the filter of a replica in the plain covariance form: matrices written out with loops, S inverted by
// its determinant, and (I - KH)P as it stands. It returns the state and the covariance after each window.
func naiveReplica(windows []window, o replicaOptions, x []float64) (xs [][]float64, ps [][][]float64) {
	n := len(x)
	p := make([][]float64, n)
	for i := range p {
		p[i] = make([]float64, n)
		p[i][i] = o.Percent * x[i] * o.Percent * x[i]
	}
	for k := range windows {
		w := &windows[k]
		start := append([]float64(nil), x...)
		clamp := func(x []float64) {
			for i := range x {
				x[i] = math.Min(math.Max(x[i], o.Low*start[i]), o.High*start[i])
			}
		}
		predict := func(x []float64) [2]float64 {
			ttft, itl, _, _ := solveWindow(o.Flavour, w, x, asTuned)
			return [2]float64{ttft, itl}
		}
		var h [2][]float64
		for c := range 2 {
			h[c] = make([]float64, n)
		}
		for i := range n {
			step := replicaStep * math.Abs(x[i])
			up, down := append([]float64(nil), x...), append([]float64(nil), x...)
			up[i] += step
			down[i] -= step
			a, b := predict(up), predict(down)
			for c := range 2 {
				h[c][i] = (a[c] - b[c]) / (2 * step)
			}
		}
		for i := range n {
			p[i][i] += o.Percent * x[i] * o.Percent * x[i]
		}
		z := [2]float64{w.TTFTMs, w.ITLMs}
		hx := predict(x)
		var s [2][2]float64
		ph := make([][2]float64, n) // P H'
		for i := range n {
			for c := range 2 {
				for j := range n {
					ph[i][c] += p[i][j] * h[c][j]
				}
			}
		}
		for a := range 2 {
			for b := range 2 {
				for i := range n {
					s[a][b] += h[a][i] * ph[i][b]
				}
			}
			r := o.ErrorLevel / tunerPercentile * z[a]
			s[a][a] += r * r
		}
		det := s[0][0]*s[1][1] - s[0][1]*s[1][0]
		inv := [2][2]float64{{s[1][1] / det, -s[0][1] / det}, {-s[1][0] / det, s[0][0] / det}}
		gain := make([][2]float64, n)
		for i := range n {
			for c := range 2 {
				gain[i][c] = ph[i][0]*inv[0][c] + ph[i][1]*inv[1][c]
			}
			x[i] += gain[i][0]*(z[0]-hx[0]) + gain[i][1]*(z[1]-hx[1])
		}
		next := make([][]float64, n)
		for i := range n {
			next[i] = make([]float64, n)
			for j := range n {
				next[i][j] = p[i][j]
				for m := range n {
					next[i][j] -= (gain[i][0]*h[0][m] + gain[i][1]*h[1][m]) * p[m][j]
				}
			}
		}
		p = next
		clamp(x)
		xs = append(xs, append([]float64(nil), x...))
		stored := make([][]float64, n)
		for i := range p {
			stored[i] = append([]float64(nil), p[i]...)
		}
		ps = append(ps, stored)
	}
	return xs, ps
}

// TestFoundingTunerIsThePlainFilter: the filter of four states, alpha, beta, gamma and delta, has on 20 tracks with
// planted parameters and changing loads the state and the covariance of the plain covariance form.
func TestFoundingTunerIsThePlainFilter(t *testing.T) {
	for track := range 20 {
		rng := rand.New(rand.NewPCG(60, uint64(track)))
		planted := append([]float64(nil), truth[wvA4P]...)
		for i := range planted {
			planted[i] *= math.Exp(0.1 * rng.NormFloat64())
		}
		o := foundingTuner
		o.FreeUpdates = math.MaxInt // the plain filter has no gate
		for _, x := range planted {
			o.Start = append(o.Start, x*math.Exp(0.05*rng.NormFloat64()))
		}
		windows := multiLoadAs(t, wvA4P, 40, constant(planted), 0.02, rng, asTuned)
		steps := Replica(windows, o)
		xs, ps := naiveReplica(windows, o, append([]float64(nil), o.Start...))
		for k := range steps {
			if steps[k].Verdict != accepted {
				t.Fatalf("track %d, window %d: %s", track, k, steps[k].Verdict)
			}
			for i := range xs[k] {
				if d := math.Abs(steps[k].X[i]/xs[k][i] - 1); d > 1e-9 {
					t.Fatalf("track %d, window %d, state %d: got %.17g, want %.17g", track, k, i, steps[k].X[i], xs[k][i])
				}
				for j := range xs[k] {
					scale := math.Sqrt(ps[k][i][i] * ps[k][j][j])
					if d := math.Abs(steps[k].P[i][j]-ps[k][i][j]) / scale; d > 1e-9 {
						t.Fatalf("track %d, window %d, covariance %d, %d: got %.17g, want %.17g", track, k, i, j, steps[k].P[i][j], ps[k][i][j])
					}
				}
			}
		}
	}
}

// TestFixedLoadIdentifiesNothing: at one load the document of a track says that the parameters are not identified,
// and with changing loads it does not.
func TestFixedLoadIdentifiesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(60, 60))
	varied := multiLoadAs(t, wvA4P, 40, constant(truth[wvA4P]), 0.02, rng, asTuned)
	fixed := make([]window, len(varied))
	for i := range fixed {
		fixed[i] = varied[5*(i/5)]
		fixed[i].Shape, fixed[i].RateRPS = varied[0].Shape, varied[0].RateRPS
		fixed[i].TTFTMs, fixed[i].ITLMs = varied[0].TTFTMs*(1+0.01*rng.NormFloat64()), varied[0].ITLMs*(1+0.01*rng.NormFloat64())
	}
	for name, windows := range map[string][]window{"varied": varied, "fixed": fixed} {
		f := &Calibrated{Server: &Server{Windows: windows}}
		o := foundingTuner
		o.Start = truth[wvA4P]
		doc := f.trackDoc(run{"replica:wva-4p", wvA4P, asTuned, Replica(windows, o)})
		says := strings.Contains(doc.Verdict, "not identified")
		if says != (name == "fixed") || strings.Join(doc.Names, " ") != "alpha beta gamma delta" {
			t.Errorf("%s: got %q of %v, want whether they are not identified", name, doc.Verdict, doc.Names)
		}
		if doc.Whiteness[0] == nil || doc.Whiteness[1] == nil {
			t.Errorf("%s: got no whiteness of the innovations", name)
		}
	}
}
