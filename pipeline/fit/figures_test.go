package fit

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// near reports whether two numbers agree within a billionth.
func near(got, want float64) bool { return math.Abs(got-want) <= 1e-9*math.Max(1, math.Abs(want)) }

// constantRun is a run of 40 steps of one length, whose only term is the bias.
func constantRun(t *testing.T, run, config string, us float64) *rows.Table {
	return planted(run, config, 40, func(int) ([]float64, float64) { return vector(t, nil), us })
}

// TestPriorOfTwoConfigurations: the mean of their sets, their mean covariance and the covariance between them; terms
// that no set has are wide; and the error of the sets alone on the measured steps.
func TestPriorOfTwoConfigurations(t *testing.T) {
	f := fitterOf(t, constantRun(t, "a", "X/a", 1000), constantRun(t, "b", "X/b", 2000))
	bias, batch := slot(t, "bias"), slot(t, "batch_utilization")
	p := len(features.BetaFeatures(features.V11))
	set := func(first, second, variance float64) *coeff.Set {
		s := &coeff.Set{SpecVersion: features.V11, Beta: make([]coeff.Coefficient, p), Origin: coeff.OriginHand}
		for range p {
			s.Covariance = append(s.Covariance, make([]float64, p))
		}
		s.Beta[bias].Value, s.Beta[batch].Value, s.Covariance[bias][bias] = first, second, variance
		return s
	}
	byModel := map[string]*coeff.Set{"X/a": set(1100, 2, 100), "X/b": set(1400, 6, 300)}
	f.o.Prior = "x"
	f.o.Library = func(d *deploy.Deployment) (*coeff.Set, error) { return byModel[d.Model.ID], nil }
	for _, p := range f.used {
		f.out.Configs = append(f.out.Configs, result.FitConfig{Key: p.Config, Deployment: p.Src.Deployment})
	}
	pool := Pooled(tablesOf(f.used, func(p *Run) *rows.Table { return p.Beta }), nil)
	s := &Solved{Pool: pool, Terms: featureTerms(features.BetaFeatures(features.V11), 2, PriorZero)}
	s.Opt = ridgeOptions(s.Terms, EpsBetaUs, f.o)
	if err := f.setPrior(s); err != nil {
		t.Fatal(err)
	}
	if m := f.prior.mean; m[bias] != 1250 || m[batch] != 4 || f.prior.means[0][bias] != 1100 || f.prior.means[1][batch] != 6 {
		t.Errorf("got means %v and %v", m, f.prior.means)
	}
	// 150 and 2 to both sides of the means.
	cov := func(j, k int) float64 { return f.prior.cov[j*p+k] }
	if cov(bias, bias) != 200+150*150 || cov(bias, batch) != 300 || cov(batch, bias) != 300 || cov(batch, batch) != 4 {
		t.Errorf("got variances %g and %g, covariances %g and %g", cov(bias, bias), cov(batch, batch), cov(bias, batch), cov(batch, bias))
	}
	for j, term := range s.Terms {
		if j == bias || j == batch {
			continue
		}
		want := 300.0 * 300
		if term.IsTime {
			want = 1e12
		}
		if cov(j, j) != want {
			t.Errorf("%s: got a variance of %g, want %g", term.Name, cov(j, j), want)
		}
		// The diagonal is raised by a millionth.
		if got := s.Opt.Precision[j*p+j] * want; math.Abs(got-1/(1+1e-6)) > 1e-9 {
			t.Errorf("%s: got a precision of %g of 1/%g", term.Name, got, want)
		}
	}
	if len(f.out.Warnings) != 1 || f.out.Warnings[0].Code != coeff.HandMade || !s.Opt.Posterior || len(s.Opt.Lambdas) != 1 {
		t.Errorf("got warnings %v, posterior %v, lambdas %v", f.out.Warnings, s.Opt.Posterior, s.Opt.Lambdas)
	}
	// 10 % too long on the first, 30 % too short on the second.
	if got, want := f.uncalibratedError(s), math.Sqrt((0.01+0.09)/2); !near(got, want) {
		t.Errorf("error without the measurements: got %g, want %g", got, want)
	}
	f.o.Library = func(*deploy.Deployment) (*coeff.Set, error) {
		return &coeff.Set{SpecVersion: features.V12, Covariance: make([][]float64, 3)}, nil
	}
	if err := f.setPrior(s); err == nil || !strings.Contains(err.Error(), "--prior x: got a set of version 1.2 with 3 rows of covariance, want version 1.1 with 16") {
		t.Errorf("another version: got %v", err)
	}
	f.o.Library = func(*deploy.Deployment) (*coeff.Set, error) { return nil, fmt.Errorf("gone") }
	if err := f.setPrior(s); err == nil || err.Error() != "--prior x: gone" {
		t.Errorf("no set: got %v", err)
	}
}

// TestSharesOfThePrior: each term has rows of its own, whose information is a multiple of the prior's; the share that
// the data decide follows from that multiple alone.
func TestSharesOfThePrior(t *testing.T) {
	const lambda = 0.02
	cases := []struct {
		ratio    float64 // information of the data over that of the prior
		evidence string
		share    float64 // of the prior
	}{
		{1, "data 0.50, prior 0.50", 0.5}, {3, "data 0.75, prior 0.25", 0.25}, {0, "prior", 1}, {0.0098, "prior", 1 / 1.0098}, {0.0103, "data 0.01, prior 0.99", 1 / 1.0103},
		{98, "data 0.99, prior 0.01", 1.0 / 99}, {100, "data", 1.0 / 101},
	}
	p := len(cases)
	precision := func(j int) float64 { return float64(j + 2) }
	f := fitterOf(t)
	f.out.Configs = []result.FitConfig{{Key: "c"}}
	f.prior = &libraryPrior{mean: make([]float64, p), cov: make([]float64, p*p), name: "library"}
	s := &Solved{Terms: make([]Term, p), Pool: &Pool{Configs: []string{"c"}}, Train: &ridge.Data{P: p}, Fit: ridge.Fit{Lambda: lambda, Beta: make([]float64, p)}}
	s.Opt = ridge.DefaultOptions(p)
	s.Opt.Prior, s.Opt.Precision = f.prior.mean, make([]float64, p*p)
	out := &result.Model{Coefficients: make([]result.Coefficient, p)}
	for j, c := range cases {
		s.Opt.Precision[j*p+j] = precision(j)
		f.prior.cov[j*p+j] = 1 / precision(j)
		x := make([]float64, p)
		// One of p rows of the target 10: G/Q is x^2/(100 p), which is to be ratio*lambda*precision.
		x[j] = math.Sqrt(c.ratio * lambda * precision(j) * 100 * float64(p))
		s.Train.X = append(s.Train.X, x...)
		s.Train.Y = append(s.Train.Y, 10)
		s.Train.Config = append(s.Train.Config, 0)
		s.Train.Regime = append(s.Train.Regime, 0)
		s.Weights = append(s.Weights, 1)
		out.Coefficients[j].NotLearned = true
		if j%2 == 0 {
			f.prior.mean[j] = 1
		}
	}
	f.provenance(s, out)
	for j, c := range cases {
		got := out.Coefficients[j]
		if got.Evidence != c.evidence || math.Abs(*got.PriorShare-c.share) > 1e-9 {
			t.Errorf("%g times the prior's information: got %q and %g, want %q and %g", c.ratio, got.Evidence, *got.PriorShare, c.evidence, c.share)
		}
		if want := c.evidence == "data" || j%2 != 0; got.NotLearned != want {
			t.Errorf("%g times the prior's information: got not learned %v, want %v", c.ratio, got.NotLearned, want)
		}
	}
}

// TestKindsOfStepsByHand: counts at and above the first bin of each kind, over two runs.
func TestKindsOfStepsByHand(t *testing.T) {
	a, b := &Run{}, &Run{}
	a.Coverage = rows.Coverage{Heavy: 3,
		DecodeBatch: result.Histogram{Edges: []float64{0, 1, 2, 4, 16, 32, 64}, Counts: []int{1, 2, 4, 8, 16, 32, 0}},
		Context:     result.Histogram{Edges: []float64{0, 2048, 4096, 8192}, Counts: []int{5, 6, 7, 0}},
		KVUsage:     result.Histogram{Edges: []float64{0.8, 0.9}, Counts: []int{9, 11}}}
	b.Coverage = rows.Coverage{Heavy: 4,
		DecodeBatch: result.Histogram{Edges: []float64{0, 16}, Counts: []int{100, 1}},
		Context:     result.Histogram{Edges: []float64{0, 8192}, Counts: []int{0, 1}},
		KVUsage:     result.Histogram{Edges: []float64{0.9, 0.95}, Counts: []int{1, 2}}}
	k := kindsOfSteps([]*Run{a, b})
	if k.ManyPrefillTokens != 7 || k.LargestBatch != 32 || k.LargeDecodes != 32 || k.SmallDecodes != 107 || k.LongestContext != 8192 ||
		k.LongContexts != 8 || k.FullCache != 14 {
		t.Errorf("got %+v", k)
	}
}

// TestRelativeHalfWidths: half the interval over the estimate.
func TestRelativeHalfWidths(t *testing.T) {
	for name, c := range map[string]struct {
		of   ridge.Interval
		want float64 // NaN: none
	}{
		"both sides":            {ridge.Interval{Lo: 2, Hi: 12, Center: 8, Method: ridge.FromBlocks}, 0.5},
		"no interval":           {ridge.Interval{Lo: 2, Hi: 12, Center: 8, Method: ridge.FromNothing}, math.NaN()},
		"an estimate of 0":      {ridge.Interval{Hi: 12, Method: ridge.FromBlocks}, math.NaN()},
		"ends below its centre": {ridge.Interval{Hi: 4, Center: 8, Method: ridge.FromBlocks}, 0},
		"infinite":              {ridge.Interval{Hi: math.Inf(1), Center: 8, Method: ridge.FromBlocks}, math.NaN()},
	} {
		got := relativeHalfWidth(c.of)
		if (got == nil) != math.IsNaN(c.want) || got != nil && *got != c.want {
			t.Errorf("%s: got %v, want %g", name, got, c.want)
		}
	}
}

// TestFloorsOfAnIteration: reading the weights, the linear layers of a token at peak, and a token's KV, of a model
// whose sizes are small enough to count.
func TestFloorsOfAnIteration(t *testing.T) {
	d := testkit.Llama8B()
	space, err := features.New(features.V11, d)
	if err != nil {
		t.Fatal(err)
	}
	m, h := &d.Model, &d.Hardware
	hidden, head := float64(m.HiddenSize), float64(m.HeadDim)
	layer := hidden*head*float64(m.NumHeads+2*m.NumKVHeads) + head*float64(m.NumHeads)*hidden + 3*hidden*float64(m.IntermediateSize)
	layers, vocabulary := layer*float64(m.NumLayers), hidden*float64(m.VocabSize)
	got := floorsOf(space)
	want := [3]float64{
		(layers*m.BytesPerWeight + vocabulary*m.BytesPerLMHead) / (h.BwPeakTBs * 1e6),
		2 * layers / (h.TFlopsPeak * 1e6),
		2 * float64(m.NumLayers*m.NumKVHeads*m.HeadDim) * m.BytesPerKV / (h.BwPeakTBs * 1e6),
	}
	for k := range want {
		if math.Abs(got[k]/want[k]-1) > 1e-9 {
			t.Errorf("floor %d: got %g us, want %g", k, got[k], want[k])
		}
	}
}

// oneTermSums are batches of the three regimes in turn, whose only term is the bias.
func oneTermSums(t *testing.T, batches, fitted int, us [NumRegimes]float64) (s *kernelSums, bias int) {
	bias = slices.IndexFunc(features.BetaFeatures(features.V12), func(f features.Feature) bool { return f.Name == "bias" })
	s = &kernelSums{version: features.V12}
	s.data.P = len(features.BetaFeatures(features.V12))
	for i := range batches {
		x := make([]float64, s.data.P)
		x[bias] = 1
		s.data.X = append(s.data.X, x...)
		s.data.Y = append(s.data.Y, us[int32(i)%NumRegimes])
		s.data.Config = append(s.data.Config, 0)
		s.data.Regime = append(s.data.Regime, int32(i)%NumRegimes)
		if i < fitted {
			s.fitted = append(s.fitted, int32(i))
		} else {
			s.judging = append(s.judging, int32(i))
		}
	}
	s.weights = ridge.Weights(&s.data, s.options(0))
	return s, bias
}

// TestCovarianceOfALibrarysTerm: a term of 110 us for kernels of 100 us. Its representation is off by 10 us in three rows of
// each of three regimes, the family by a tenth, and a source of uncertainty moves all batches by 5 us.
func TestCovarianceOfALibrarysTerm(t *testing.T) {
	s, bias := oneTermSums(t, 12, 9, [NumRegimes]float64{100, 100, 100})
	moved := make([]float64, 12)
	for i := range moved {
		moved[i] = 5
	}
	s.sources = [][]float64{moved, moved}
	beta := make([]float64, s.data.P)
	beta[bias] = 110
	cov, err := s.covariance(beta, 0.1)
	if err != nil {
		t.Fatal(err)
	}
	shrunk := 5 / (1 + 1e-3)
	if got, want := cov[bias][bias], 1/(9.0/100+1.0/90_000)+11*11+2*shrunk*shrunk; math.Abs(got-want) > 1e-3 {
		t.Errorf("got a variance of %g us^2, want %g", got, want)
	}
	for j := range cov {
		if j != bias && (cov[j][j] != 0 || cov[j][bias] != 0 || cov[bias][j] != 0) {
			t.Errorf("term %d: got %g and %g", j, cov[j][j], cov[j][bias])
		}
	}
	if lo, hi := s.featureRange(bias); lo != 1 || hi != 1 {
		t.Errorf("got a range of %g to %g", lo, hi)
	}
	s.data.X[3*s.data.P+bias], s.data.X[5*s.data.P+bias] = 0.25, 7
	if lo, hi := s.featureRange(bias); lo != 0.25 || hi != 7 {
		t.Errorf("got a range of %g to %g", lo, hi)
	}
	if got := s.medianErrors(beta, []int32{0, 3, 1, 2, 11}); !slices.Equal(got, []float64{(0.1 + 0.725) / 2, 0.1, 0.1}) {
		t.Errorf("got median errors %v", got)
	}
}

// TestLibraryFitBalancesRegimes: two regimes of 100 us and one of 130. The least absolute error alone would give
// it up; its weight grows until the error is shared.
func TestLibraryFitBalancesRegimes(t *testing.T) {
	s, bias := oneTermSums(t, 90, 90, [NumRegimes]float64{100, 100, 130})
	beta, err := s.fit()
	if err != nil || !(beta[bias] > 104 && beta[bias] < 128) {
		t.Errorf("got %g us, %v, want a time between 104 and 128", beta[bias], err)
	}
	even, bias := oneTermSums(t, 90, 90, [NumRegimes]float64{100, 100, 100})
	if beta, err := even.fit(); err != nil || math.Abs(beta[bias]-100/(1+1e-3)) > 0.01 {
		t.Errorf("equal batches: got %g us, %v", beta[bias], err)
	}
	o := s.options(7)
	for j, f := range features.BetaFeatures(features.V12) {
		want := 0.0
		if f.CoefficientUnit() == "us/s" {
			want = 7
		}
		if o.Prior[j] != want {
			t.Errorf("%s: drawn towards %g, want %g", f.Name, o.Prior[j], want)
		}
	}
}

// TestTwoSmallest: positions, without what is not a number; of equal numbers the first.
func TestTwoSmallest(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		v            []float64
		best, second int
	}{
		{nil, -1, -1}, {[]float64{nan, nan}, -1, -1}, {[]float64{nan, 3}, 1, -1}, {[]float64{1, 2, 3}, 0, 1}, {[]float64{3, 2, 1}, 2, 1},
		{[]float64{2, 3, 1}, 2, 0}, {[]float64{1, 3, 2}, 0, 2}, {[]float64{5, 5, 5}, 0, 1}, {[]float64{1, nan, 2}, 0, 2}, {[]float64{2, 1, 1}, 1, 2},
	} {
		if best, second := twoSmallest(c.v); best != c.best || second != c.second {
			t.Errorf("%v: got %d and %d, want %d and %d", c.v, best, second, c.best, c.second)
		}
	}
}

// TestVariantsByHand: what each proposed deployment changes, and in which cases it is proposed.
func TestVariantsByHand(t *testing.T) {
	base := deploy.Deployment{TP: 2, Model: model.Model{NumLayers: 11, NumMoELayers: 5, HiddenSize: 100, IntermediateSize: 400, NumHeads: 16, NumKVHeads: 4}}
	base.Hardware, _ = deploy.Datasheet("L4")
	of := func(base deploy.Deployment) (out []string) {
		for _, v := range variants(base) {
			d, m := &v.dep, &v.dep.Model
			layers := ""
			if m.Layered != nil {
				layers = fmt.Sprintf(" cut to %d", len(m.Layered.Layers))
			}
			out = append(out, fmt.Sprintf("%s: tp %d, %d+%d layers, %dx%d, heads %d/%d, experts %d of %d of %d, %s%s", v.what, d.TP, m.NumLayers, m.NumMoELayers,
				m.HiddenSize, m.IntermediateSize, m.NumHeads, m.NumKVHeads, m.TopK, m.NumExperts, m.MoEIntermediateSize, d.Hardware.Name, layers))
		}
		return out
	}
	compare := func(what string, got, want []string) {
		if !slices.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	device := base.Hardware.Name
	compare("grouped heads", of(base), []string{
		"tensor_parallel_size 4: tp 4, 11+5 layers, 100x400, heads 16/4, experts 0 of 0 of 0, " + device,
		"tensor_parallel_size 1: tp 1, 11+5 layers, 100x400, heads 16/4, experts 0 of 0 of 0, " + device,
		"a model of half the depth (5 layers): tp 2, 5+2 layers, 100x400, heads 16/4, experts 0 of 0 of 0, " + device,
		"a model of half the width (hidden size 50): tp 2, 11+5 layers, 50x200, heads 8/2, experts 0 of 0 of 0, " + device,
		"a model with as many KV heads as heads (16): tp 2, 11+5 layers, 100x400, heads 16/16, experts 0 of 0 of 0, " + device,
		"a mixture-of-experts model (8 experts, 2 of them per token): tp 2, 11+11 layers, 100x400, heads 16/4, experts 2 of 8 of 400, " + device,
		"another device (A100-SXM-80GB): tp 2, 11+5 layers, 100x400, heads 16/4, experts 0 of 0 of 0, A100-SXM-80GB",
		"another device (H100-SXM-80GB): tp 2, 11+5 layers, 100x400, heads 16/4, experts 0 of 0 of 0, H100-SXM-80GB",
	})
	base.TP, base.Model.NumKVHeads, base.Model.NumExperts = 1, 16, 2
	base.Hardware, _ = deploy.Datasheet("H100")
	compare("a head of KV for each", of(base), []string{
		"tensor_parallel_size 2: tp 2, 11+5 layers, 100x400, heads 16/16, experts 0 of 2 of 0, H100-SXM-80GB",
		"a model of half the depth (5 layers): tp 1, 5+2 layers, 100x400, heads 16/16, experts 0 of 2 of 0, H100-SXM-80GB",
		"a model of half the width (hidden size 50): tp 1, 11+5 layers, 50x200, heads 8/8, experts 0 of 2 of 0, H100-SXM-80GB",
		"a model with an eighth of the KV heads: tp 1, 11+5 layers, 100x400, heads 16/2, experts 0 of 2 of 0, H100-SXM-80GB",
		"another device (A100-SXM-80GB): tp 1, 11+5 layers, 100x400, heads 16/16, experts 0 of 2 of 0, A100-SXM-80GB",
	})
	base.TP, base.Model.NumKVHeads = 5, 7
	base.Model.Layered = &model.Decoder{Layers: make([]model.Layer, 11)}
	compare("unlike layers", of(base), []string{
		"the model's first 5 layers: tp 5, 11+5 layers, 100x400, heads 16/7, experts 0 of 2 of 0, H100-SXM-80GB cut to 5",
		"another device (A100-SXM-80GB): tp 5, 11+5 layers, 100x400, heads 16/7, experts 0 of 2 of 0, A100-SXM-80GB cut to 11",
	})
	if len(base.Model.Layered.Layers) != 11 {
		t.Errorf("the base itself is cut to %d layers", len(base.Model.Layered.Layers))
	}
}

// TestLoadsByHand: batches within the limits of an engine of 5 requests and 100 tokens a step and sequences of 300.
func TestLoadsByHand(t *testing.T) {
	d := testkit.Llama8B()
	d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens, d.Engine.MaxModelLen = 5, 100, trace.Some(int64(300))
	d.Engine.KVBlocksGPU = trace.Some(int64(100000))
	of := func() (out []string) {
		for _, l := range loadsOf(d) {
			text := l.what + ":"
			for _, b := range l.batches {
				last := b[len(b)-1]
				text += fmt.Sprintf(" %d of %d+%d", len(b), b[0].Computed, last.New)
			}
			out = append(out, text)
		}
		return out
	}
	want := []string{
		"decode batches from 1 to 5 at short contexts: 1 of 256+1 2 of 256+1 4 of 256+1",
		"decodes at contexts from 64 to 300 tokens: 5 of 64+1 5 of 128+1 5 of 256+1",
		"single prompts of very different length: 1 of 0+32 1 of 0+64",
		"prompts beside decodes: 5 of 256+32 5 of 256+64",
	}
	if got := of(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens = 1, 31
	if got := of(); len(got) != 2 || !strings.HasPrefix(got[0], "decode batches from 1 to 1") || !strings.HasPrefix(got[1], "decodes at contexts") {
		t.Errorf("no prompts fit: got %q", got)
	}
	all := joinedLoad([]load{{batches: make([][]trace.Chunk, 2)}, {batches: make([][]trace.Chunk, 3)}})
	if len(all.batches) != 5 {
		t.Errorf("got %d batches of all loads, want 5", len(all.batches))
	}
	for name, c := range map[string]struct {
		shrink []float64
		want   int
	}{"none": {[]float64{0.9, 1}, -1}, "one": {[]float64{0.95, 0.899}, 1}, "the smallest": {[]float64{0.8, 0.5, 0.6}, 1}, "the first of equals": {[]float64{1, 0.5, 0.5}, 1}} {
		if got := mostShrunk(c.shrink); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
		// The same ratios as those of one term over several proposals.
		var ranked []ridge.Proposal
		for k, v := range c.shrink {
			ranked = append(ranked, ridge.Proposal{Index: k, Shrink: []float64{1, v}})
		}
		got := -1
		if p := bestFor(ranked, 1); p != nil {
			got = p.Index
		}
		if got != c.want {
			t.Errorf("%s over proposals: got %d, want %d", name, got, c.want)
		}
	}
}

// TestHeldOutScores: those of configurations held out, chosen without them where there are three; else of the folds.
func TestHeldOutScores(t *testing.T) {
	sel := &ridge.Selection{Index: 1, Grid: []ridge.Point{{FoldScores: []float64{9}}, {FoldScores: []float64{1, 2}}}}
	if got, part := heldOutScores(sel); !slices.Equal(got, []float64{1, 2}) || part != result.HeldOutBlocks {
		t.Errorf("folds: got %v of %s", got, part)
	}
	sel.Grid[1].Loco = []float64{3, 4}
	if got, part := heldOutScores(sel); !slices.Equal(got, []float64{3, 4}) || part != result.HeldOutConfigs {
		t.Errorf("two configurations: got %v of %s", got, part)
	}
	sel.Nested = []ridge.Nested{{Inner: 8, Outer: 5}, {Inner: 8, Outer: 6}, {Inner: 8, Outer: 7}}
	if got, part := heldOutScores(sel); !slices.Equal(got, []float64{5, 6, 7}) || part != result.HeldOutConfigs {
		t.Errorf("three: got %v of %s", got, part)
	}
	with := []Source{{ID: "a", Rows: "x"}}
	without := withoutStoredRows(with)
	if with[0].Rows != "x" || without[0].Rows != "" || without[0].ID != "a" {
		t.Errorf("stored rows: got %q and %q", with[0].Rows, without[0].Rows)
	}
}

// TestTrainedOnByHand: the properties of two configurations, each sorted and once; samples without the hold-out unless it
// is refitted; the errors of targets that have a hold-out.
func TestTrainedOnByHand(t *testing.T) {
	config := func(id, device, version string, tp int64) result.FitConfig {
		c := result.FitConfig{}
		c.Deployment.Model.ID, c.Deployment.Hardware.Name, c.Deployment.Engine.VLLMVersion, c.Deployment.TP = id, device, version, tp
		return c
	}
	f := &result.Fit{TrainingDate: "2026-01-02", Configs: []result.FitConfig{config("z", "H100", "0.9.1", 4), config("a", "H100", "0.8.2", 2), config("z", "A100", "0.9.1", 2)}}
	f.Beta.Rows.Kept, f.Beta.Rows.Holdout, f.Beta.Target = 50, 8, coeff.Cadence
	f.Beta.Lambda, f.Beta.GammaEMA = testkit.Ptr(0.25), testkit.Ptr(0.5)
	f.Beta.Holdout = &result.Errors{RMSEUs: testkit.Ptr(11)}
	f.Alpha = []result.Model{{Target: coeff.Egress}, {Target: coeff.Queue}}
	f.Alpha[1].Holdout = &result.Errors{RMSEUs: testkit.Ptr(22)}
	got := trainedOn(f)
	if !slices.Equal(got.Models, []string{"a", "z"}) || !slices.Equal(got.Hardware, []string{"A100", "H100"}) || !slices.Equal(got.VLLMVersions, []string{"0.8.2", "0.9.1"}) ||
		!slices.Equal(got.TPs, []int64{2, 4}) || got.Date != "2026-01-02" || got.Samples != 42 || got.Lambda != 0.25 || got.Gamma != 0.5 ||
		len(got.HoldOutRMSE) != 2 || got.HoldOutRMSE[coeff.Cadence] != 11 || got.HoldOutRMSE[coeff.Queue] != 22 {
		t.Errorf("got %+v", got)
	}
	f.Options.RefitAll = true
	f.Beta.Lambda, f.Beta.GammaEMA = nil, nil
	if got := trainedOn(f); got.Samples != 50 || got.Lambda != 0 || got.Gamma != 0.3 {
		t.Errorf("refitted: got %+v", got)
	}
	o := BareOptions()
	if o.Split != 0.8 || o.Bootstraps != 500 || o.Seed != 1 || o.MaxRows != rows.DefaultMaxRows || o.Spec != "" || o.Recipe != "" || o.AlphaTargets != nil || o.Models != nil {
		t.Errorf("bare options: got %+v", o)
	}
}

// TestJoinedSlices: what two slices of a run have in common, and what adds up.
func TestJoinedSlices(t *testing.T) {
	table := func(n int) *rows.Table {
		return &rows.Table{Run: "r", P: 1, Read: n, Kept: n, X: make([]float64, n), Y: make([]float64, n)}
	}
	part := func(saturated bool, kept int, wall int64, rate float64) *Run {
		return &Run{runFacts: runFacts{Saturated: saturated, WallNs: wall, Lengths: lengths{1, 20, 3}, Findings: []trace.Finding{{Message: fmt.Sprint(kept)}}},
			Spans: []rows.Span{{StartNs: wall}}, Covered: &result.Covered{Running: int64(rate), RequestsPerS: &rate}, kept: kept,
			Alpha: map[string]*rows.Table{coeff.Queue: table(kept + 1)}}
	}
	p, q := part(true, 4, 70, 5), part(true, 6, 50, 9)
	q.Beta, q.Alpha[coeff.Egress] = table(2), table(1)
	p.join(q)
	if !p.Saturated || p.kept != 10 || p.WallNs != 70 || p.Lengths != (lengths{2, 40, 6}) || len(p.Spans) != 2 || len(p.Findings) != 2 || p.Covered.Running != 9 ||
		*p.Covered.RequestsPerS != 9 || p.Beta != q.Beta || p.Frozen != nil || p.Alpha[coeff.Queue].Kept != 12 || p.Alpha[coeff.Egress].Kept != 1 {
		t.Errorf("got %+v", p)
	}
	p.join(part(false, 1, 90, 1))
	if p.Saturated || p.kept != 11 || p.WallNs != 90 {
		t.Errorf("a slice that is not saturated: got %+v", p)
	}
	if p.join(part(true, 0, 0, 0)); p.Saturated {
		t.Error("a run is saturated only if every slice is")
	}
}

// TestSaturatedSlices: a saturated slice is left out as a whole, of another the spans that lie inside it; requests
// of other slices take no part in the judgement.
func TestSaturatedSlices(t *testing.T) {
	request := func(at int64) trace.Request { return trace.Request{ArrivedNs: trace.Some(at)} }
	run := &trace.Run{Slice: &trace.Slice{FromNs: 10e9, ToNs: 20e9, FirstNs: 0, LastNs: 40e9}, Requests: []trace.Request{request(5e9), request(12e9), request(25e9)}}
	spans := []rows.Span{{StartNs: 0, EndNs: 10e9}, {StartNs: 5e9, EndNs: 11e9}, {StartNs: 13e9, EndNs: 14e9}, {StartNs: 19e9, EndNs: 30e9}, {StartNs: 20e9, EndNs: 21e9}}
	for name, c := range map[string]struct {
		reason string
		keep   bool
		want   []rows.Span
		found  string
	}{
		"some spans":       {"", false, []rows.Span{{StartNs: 10e9, EndNs: 11e9}, {StartNs: 13e9, EndNs: 14e9}, {StartNs: 19e9, EndNs: 20e9}}, ""},
		"the slice":        {"queue", false, []rows.Span{{StartNs: 10e9, EndNs: 20e9}}, "r"},
		"the slice, kept":  {"queue", true, nil, "r"},
		"some spans, kept": {"", true, nil, ""},
	} {
		p := &Run{Src: Source{ID: "r"}}
		judged := -1
		p.Src.Judge = func(run *trace.Run) (string, []rows.Span) {
			judged = len(run.Requests)
			return c.reason, spans
		}
		p.excludeSaturated(run, Options{KeepSaturated: c.keep})
		if judged != 1 || !slices.Equal(p.Spans, c.want) || p.Saturated != (c.reason != "") || len(p.Findings) != len(c.found) || p.Reason != "" {
			t.Errorf("%s: got spans %v, saturated %v, findings %v, judged by %d requests", name, p.Spans, p.Saturated, p.Findings, judged)
		}
		for _, f := range p.Findings {
			if f.Code != rows.Saturated || !strings.Contains(f.Message, "queue") || !strings.Contains(f.Message, "10") || !strings.Contains(f.Message, "20") {
				t.Errorf("%s: got %+v", name, f)
			}
		}
	}
	for name, c := range map[string]struct {
		reason string
		keep   bool
		why    string
		want   []rows.Span
	}{
		"some spans":     {"", false, "", spans},
		"the run":        {"queue", false, "saturated: queue", []rows.Span{{StartNs: math.MinInt64, EndNs: math.MaxInt64}}},
		"the run, kept":  {"queue", true, "", nil},
		"no span, kept ": {"", true, "", nil},
	} {
		p := &Run{Src: Source{ID: "r", Judge: func(*trace.Run) (string, []rows.Span) { return c.reason, spans }}}
		p.excludeSaturated(&trace.Run{}, Options{KeepSaturated: c.keep})
		if !slices.Equal(p.Spans, c.want) || p.Saturated != (c.reason != "") || p.Reason != c.why || (len(p.Findings) > 0) != p.Saturated {
			t.Errorf("%s: got spans %v, reason %q, findings %v", name, p.Spans, p.Reason, p.Findings)
		}
	}
}

// TestRunsOfTheDocument: which runs are used, what their configurations are called and how long their requests are.
func TestRunsOfTheDocument(t *testing.T) {
	fact := func(config, reason string, wall int64, l lengths) *runFacts {
		f := &runFacts{Config: config, Reason: reason, WallNs: wall, Lengths: l, Saturated: reason != ""}
		f.Deployment.Model.ID = strings.ToLower(config)
		f.Findings = []trace.Finding{{Message: config + reason}}
		return f
	}
	day := int64(86_400e9)
	out := &result.Fit{}
	describeRuns(out, []string{"r1", "r2", "r3", "r4", "r5"}, []*runFacts{fact("A", "", day, lengths{1, 10, 4}), fact("a", "", 0, lengths{0, 0, 0}),
		fact("A", "", 3*day, lengths{3, 50, 6}), fact("B", "left out", 9*day, lengths{1, 1, 1}), fact("c", "", 0, lengths{2, 6, 8})})
	var got []string
	for _, c := range out.Configs {
		line := fmt.Sprintf("%s %v labelled by key %v", c.Key, c.Runs, c.Label == c.Key)
		if c.MeanPromptTokens != nil {
			line += fmt.Sprintf(" %g %g", *c.MeanPromptTokens, *c.MeanOutputTokens)
		}
		got = append(got, line)
	}
	want := []string{"A [r1 r3] labelled by key true 15 2.5", "a [r2] labelled by key true", "c [r5] labelled by key false 3 4"}
	if !slices.Equal(got, want) || out.TrainingDate != "1970-01-10" {
		t.Errorf("got %q of %s, want %q", got, out.TrainingDate, want)
	}
	for k, r := range out.Runs {
		left := k == 3
		if r.Used == left || r.Saturated != left || (r.Reason == "left out") != left || r.ID != fmt.Sprintf("r%d", k+1) || len(r.Findings) != 1 {
			t.Errorf("got %+v", r)
		}
	}
}

// TestSmallFigures: the floors, grids, spreads and shares that documents have of a model.
func TestSmallFigures(t *testing.T) {
	for target, want := range map[string]float64{coeff.Queue: 100, coeff.Overhead: 1000, coeff.Admission: 1000, coeff.Egress: 1000} {
		if got := epsOf(target); got != want {
			t.Errorf("%s: got a floor of %g us, want %g", target, got, want)
		}
	}
	o := ridge.DefaultOptions(1)
	waitOptions(&o)
	if !o.Proportional || !o.SmallestWithin || len(o.Lambdas) != 7 || o.Lambdas[0] != 1e-6 || o.Lambdas[6] != 1e-3 {
		t.Errorf("waits: got %+v", o)
	}
	pool := &Pool{Train: make([]int32, 6)}
	used := []*Run{{}, {}}
	if got := alphaPerStep(pool, used); got != 6 {
		t.Errorf("no steps: got %g rows a step", got)
	}
	used[0].Quality.Recorded, used[1].Quality.Recorded = 20, 28
	if got := alphaPerStep(pool, used); got != 0.125 {
		t.Errorf("got %g rows a step, want 1/8", got)
	}
	if got := clipped([]float64{-1, 0, 2}); !slices.Equal(got, []float64{0, 0, 2}) {
		t.Errorf("got %v", got)
	}
	if got := rowsWhere([]int32{4, 5, 4}, func(c int32) bool { return c == 4 }); !slices.Equal(got, []int32{0, 2}) {
		t.Errorf("got rows %v", got)
	}
	for name, c := range map[string]struct {
		of            []*float64
		median, worst float64 // NaN: none
	}{"three": {[]*float64{testkit.Ptr(0.3), nil, testkit.Ptr(0.1), testkit.Ptr(0.7)}, 0.3, 0.7}, "none": {[]*float64{nil}, math.NaN(), math.NaN()}} {
		var list []result.Loco
		for _, v := range c.of {
			list = append(list, result.Loco{MAPE: v})
		}
		median, worst := locoMAPEs(list)
		if math.IsNaN(c.median) != (median == nil) || math.IsNaN(c.worst) != (worst == nil) || median != nil && (*median != c.median || *worst != c.worst) {
			t.Errorf("%s: got %v and %v", name, median, worst)
		}
	}
	f := &fitter{}
	for _, stride := range []int{4, 0, 3} {
		f.used = append(f.used, &Run{Src: Source{Stride: stride}})
		if got, want := f.leastStride(), map[int]int{1: 4, 2: 1, 3: 1}[len(f.used)]; got != want {
			t.Errorf("%d runs: got a stride of %d, want %d", len(f.used), got, want)
		}
	}
	grid := GridPoints([]ridge.Selection{{Gamma: 0.5, Grid: []ridge.Point{{Lambda: 1, Within: 2, Cross: math.NaN(), SE: 3}, {Lambda: 4, Within: 5, Cross: 6, SE: 7}}}})
	if len(grid) != 2 || grid[0].Lambda != 1 || grid[0].GammaEMA != 0.5 || *grid[0].Within != 2 || grid[0].Cross != nil || *grid[0].SE != 3 || *grid[1].Cross != 6 {
		t.Errorf("got %+v", grid)
	}
	frozen := FrozenGrid([]ridge.FrozenFit{{}, {Grid: []ridge.FrozenPoint{{Lambda: 8, Mean: 9}}}}, []float64{0.1, 0.2})
	if len(frozen) != 1 || frozen[0].Lambda != 8 || frozen[0].GammaEMA != 0.2 || *frozen[0].Within != 9 {
		t.Errorf("got %+v", frozen)
	}
	scores := Selections{Frozen: []ridge.FrozenFit{{Index: 1, Grid: []ridge.FrozenPoint{{Score: 1}, {Score: 2}}}}}.scores([]float64{0.25})
	if len(scores) != 1 || scores[0].Gamma != 0.25 || scores[0].Grid[0].Within != 2 || !slices.Equal(scores[0].Grid[0].FoldScores, []float64{2}) {
		t.Errorf("got %+v", scores)
	}
	out := &result.Model{Coefficients: make([]result.Coefficient, 2)}
	setFoldSpreads(out, &ridge.Selection{FoldBetas: [][]float64{{3, -1}, {1, 5}, {2, 0}}})
	if *out.Coefficients[0].FoldSpread != [2]float64{1, 3} || *out.Coefficients[1].FoldSpread != [2]float64{-1, 5} {
		t.Errorf("got spreads %v and %v", *out.Coefficients[0].FoldSpread, *out.Coefficients[1].FoldSpread)
	}
	none := &result.Model{Coefficients: make([]result.Coefficient, 1)}
	if setFoldSpreads(none, &ridge.Selection{}); none.Coefficients[0].FoldSpread != nil {
		t.Errorf("no folds: got %v", *none.Coefficients[0].FoldSpread)
	}
	cert := certificateOf(&ridge.Fit{Cert: ridge.Certificate{MinZero: -1e-3, MaxActive: 2e-9}})
	if *cert.MinZeroGradient != -1e-3 || cert.MaxActiveGradient != 2e-9 || cert.OK {
		t.Errorf("got %+v", cert)
	}
	s := &Solved{Terms: []Term{{Name: "a"}, {Name: "b"}}, Fit: ridge.Fit{Beta: []float64{10, 2}},
		Train: &ridge.Data{P: 2, X: []float64{1, 10, 3, 5}, Y: []float64{0, 0}}}
	if got := meanShares(s); got[0] != 40.0/70 || got[1] != 30.0/70 || !slices.Equal(s.Names(), []string{"a", "b"}) {
		t.Errorf("got shares %v of %v", got, s.Names())
	}
	for _, c := range []struct {
		term        Term
		value, want float64
	}{{Term{IsTime: true}, 4e6, 0.25}, {Term{PerUs: true}, 4, 0.25}, {Term{}, 4, 0}, {Term{IsTime: true}, 0, 0}, {Term{PerUs: true}, -1, 0}} {
		got := impliedUtilisation(&c.term, c.value)
		if (got == nil) != (c.want == 0) || got != nil && *got != c.want {
			t.Errorf("%+v: got a utilisation of %v", c, got)
		}
	}
}

// TestRowsAtABound: 10 of 10000 rows at the bound of a feature are counted, 11 are named too.
func TestRowsAtABound(t *testing.T) {
	for hits, named := range map[int]int{10: 0, 11: 1} {
		s := &Solved{Terms: []Term{{Name: "a"}, {Name: "b"}}, Pool: &Pool{Tables: []*rows.Table{{Read: 4000, Hits: []int{0, 4}}, {Read: 6000, Hits: []int{0, hits - 4}}}}}
		out := &result.Model{}
		countBoundHits(s, out)
		if len(out.BoundHits) != 1 || out.BoundHits[0].Name != "b" || out.BoundHits[0].Rows != hits || out.BoundHits[0].Share != float64(hits)/10000 || len(out.Warnings) != named {
			t.Errorf("%d rows: got %+v and %v", hits, out.BoundHits, out.Warnings)
		}
	}
	tables := []*rows.Table{
		{Run: "r", Config: "x", Read: 9, Kept: 3, Regime: []rows.Regime{rows.Decode, rows.Mixed, rows.Decode}, Steps: []float64{2, 3, 5}},
		{Run: "s", Config: "y", Read: 8, Kept: 1, Regime: []rows.Regime{rows.Decode}, Steps: []float64{7}},
	}
	tables[0].Filter("odd", func(i int) bool { return i != 1 })
	got := RowCounts(tables)
	if got.Read != 17 || got.Kept != 3 || got.Dropped["odd"] != 1 || len(got.ByRun) != 2 || got.ByRun[0].Read != 9 || got.ByRun[0].Kept != 2 || got.ByRun[0].Dropped["odd"] != 1 ||
		!slices.Equal(got.ByRegime, []result.RegimeRows{{Config: "x", Regime: "decode", Rows: 2, Steps: 7}, {Config: "y", Regime: "decode", Rows: 1, Steps: 7}}) {
		t.Errorf("got %+v", got)
	}
}

// TestWhetherGammaIsKnown: another than the default is, and the default where nothing is as good; a term that no
// row shows is not named.
func TestWhetherGammaIsKnown(t *testing.T) {
	gammas := []float64{0.1, features.DefaultGamma, 0.9}
	for _, c := range []struct {
		name           string
		chosen         int
		within         []int
		most           float64
		known, warning bool
	}{
		{"another", 2, []int{1, 2}, 1, true, false}, {"the default alone", 1, []int{1}, 1, true, false}, {"the default of two", 1, []int{0, 1}, 1, false, true},
		{"no preemption", 1, []int{0, 1}, 0, false, false},
	} {
		out := &result.Model{Coefficients: make([]result.Coefficient, 2)}
		out.Coefficients[1].Range = &[2]float64{0, c.most}
		noteGamma(gammas, c.chosen, c.within, 1, out)
		if *out.GammaIdentified != c.known || (len(out.Warnings) == 1) != c.warning {
			t.Errorf("%s: got %v and %v", c.name, *out.GammaIdentified, out.Warnings)
		}
		for _, w := range out.Warnings {
			if w.Code != NotIdentified || !strings.Contains(w.Message, "0.1") || strings.Contains(w.Message, "0.9") {
				t.Errorf("%s: got %+v", c.name, w)
			}
		}
	}
	c := &coeff.Coefficient{CI95: &[2]float64{2, 5}, Estimate: testkit.Ptr(3), EstimateCI95: &[2]float64{1, 4}}
	if widenInterval(c, ridge.Interval{Lo: 1.5, Hi: 4.5, Method: ridge.FromBlocks}); *c.CI95 != [2]float64{1.5, 5} || *c.EstimateCI95 != [2]float64{1, 4.5} {
		t.Errorf("got %v and %v", *c.CI95, *c.EstimateCI95)
	}
	if widenInterval(c, ridge.Interval{Method: ridge.FromNothing}); c.CI95 != nil || c.Estimate != nil || c.EstimateCI95 != nil {
		t.Errorf("another that is unknown: got %+v", c)
	}
	f := &fitter{}
	if f.contextsMerged() {
		t.Error("no run has merged contexts")
	}
	f.prepared = []*Run{{Contexts: trace.ContextsMean}, {runFacts: runFacts{Reason: "left out"}}}
	if !f.contextsMerged() {
		t.Error("the only run that is used has the mean context")
	}
	if f.prepared = append(f.prepared, &Run{}); f.contextsMerged() {
		t.Error("one run has contexts of its own")
	}
}

// TestMeasuredRatios: quantiles of measured over predicted times of the hold-out, by regime, without outliers and
// predictions of 0.
func TestMeasuredRatios(t *testing.T) {
	table := constantRun(t, "r", "X/a", 0)
	table.P, table.X = 1, make([]float64, 40)
	pred := make([]float64, 40)
	for i := range table.Y {
		pred[i] = 10
		table.Y[i] = 10 * float64(i)
		table.HoldOut[i] = i >= 30
	}
	table.Regime[39] = rows.Mixed
	pred[38] = 0
	pool := Pooled([]*rows.Table{table}, nil)
	s := &Solved{Pool: pool, Data: pool.Data, Pred: pred, Fit: ridge.Fit{Beta: []float64{1}}}
	got := s.Ratios()
	if len(got) != 2 || got[0].Regime != "decode" || got[0].Rows != 8 || got[1].Regime != "mixed" || got[1].Rows != 1 || len(got[0].Quantiles) != 17 {
		t.Fatalf("got %+v", got)
	}
	// 30 to 37, and 39.
	for _, q := range got[0].Quantiles {
		if want := 30 + 7*q[0]; !near(q[1], want) {
			t.Errorf("quantile %g: got %g, want %g", q[0], q[1], want)
		}
	}
	if got[1].Quantiles[8] != [2]float64{0.5, 39} {
		t.Errorf("got %v", got[1].Quantiles)
	}
	none := &Solved{Pool: &Pool{}}
	if got := RelErr(none, 1); !math.IsNaN(got) {
		t.Errorf("no hold-out: got an error of %g", got)
	}
	s.Data = &ridge.Data{P: 1, X: []float64{1, 1, 1}, Y: []float64{9, 100, 200}, Config: []int32{0, 0, 0}, Regime: []int32{0, 0, 0}}
	s.Pool = &Pool{Hold: []int32{1, 2}}
	s.Opt = ridge.DefaultOptions(1)
	s.Fit.Beta[0] = 130
	// 30 % too long and 35 % too short, each with the weight of its own size.
	if got, want := RelErr(s, 1), math.Sqrt((0.3*0.3+0.35*0.35)/2); !near(got, want) {
		t.Errorf("got an error of %g, want %g", got, want)
	}
}

// TestMeanDelaysByHand: measured and predicted means by regime; predictions below 0 count as 0.
func TestMeanDelaysByHand(t *testing.T) {
	a := &alphaFit{s: &Solved{Fit: ridge.Fit{Beta: []float64{10}}, Opt: ridge.DefaultOptions(1),
		Train: &ridge.Data{P: 1, X: []float64{1, 3, -5, 2}, Y: []float64{8, 40, 12, 100}, Config: make([]int32, 4), Run: make([]int32, 4),
			Regime: []int32{int32(rows.Idle), int32(rows.Idle), int32(rows.Idle), int32(rows.Waiting)}}}}
	got := a.meanDelays()
	if len(got) != 2 || got[0].Regime != rows.Idle.String() || got[0].Rows != 3 || !near(got[0].MeasuredUs, 20) || !near(got[0].PredictedUs, 40.0/3) ||
		got[1].Regime != rows.Waiting.String() || got[1].Rows != 1 || got[1].MeasuredUs != 100 || got[1].PredictedUs != 20 {
		t.Errorf("got %+v", got)
	}
	a.s.Train.Regime = make([]int32, 4)
	for i := range a.s.Train.Regime {
		a.s.Train.Regime[i] = int32(rows.Waiting)
	}
	if got := a.meanDelays(); len(got) != 1 || got[0].Rows != 4 || got[0].MeasuredUs != 40 {
		t.Errorf("waiting only: got %+v", got)
	}
	a.s.Train.X = []float64{1, -1, 2, -2}
	if got := a.meanDelays(); len(got) != 1 || got[0].CI95 != nil {
		t.Errorf("rows that determine no mean: got %+v", got)
	}
}

// TestGramFiguresOfRuns: of the runs that are used, at the lag of each.
func TestGramFiguresOfRuns(t *testing.T) {
	share := func(v ...float64) (out []*float64) {
		for _, x := range v {
			out = append(out, result.OrNull(x))
		}
		return out
	}
	run := func(config, reason string, lag, rows int, within []*float64) gramRun {
		r := gramRun{runFacts: runFacts{Config: config, Reason: reason, Lag: result.RunLag{Lag: lag}}}
		r.Lags[lag] = gramLagFigures{Read: rows + 5, Kept: rows, Dropped: map[string]int{"odd": 5}, Within: within}
		return r
	}
	nan := math.NaN()
	g := &gramFit{terms: make([]Term, 3), file: ridge.File{Runs: []string{"r0", "r1", "r2", "r3"}}, runs: []gramRun{
		run("a", "", 0, 10, share(0.2, nan, 0.4)), run("a", "", 2, 20, share(0.1, nan, 0.9)), run("a", "left out", 1, 40, share(1, 1, 1)), run("b", "", 1, 80, share(0.5))}}
	if got := g.withinVariation("a"); got[0] != 0.2 || !math.IsNaN(got[1]) || got[2] != 0.9 {
		t.Errorf("a: got %v", got)
	}
	if got := g.withinVariation("b"); got[0] != 0.5 || !math.IsNaN(got[1]) || !math.IsNaN(got[2]) {
		t.Errorf("b: got %v", got)
	}
	out := &result.Model{}
	g.countRows(out)
	if r := out.Rows; r.Read != 125 || r.Kept != 110 || r.Dropped["odd"] != 15 || len(r.ByRun) != 3 || r.ByRun[1].Run != "r1" || r.ByRun[1].Read != 25 || r.ByRun[1].Kept != 20 ||
		r.ByRun[2].Run != "r3" || r.ByRun[2].Dropped["odd"] != 5 {
		t.Errorf("got %+v", r)
	}
	want := map[string]string{}
	for _, k := range commonMeta {
		want[k] = "x"
	}
	for _, k := range commonMeta {
		got := map[string]string{}
		for _, j := range commonMeta {
			got[j] = "x"
		}
		if err := sameMeta(want, got); err != nil {
			t.Error(err)
		}
		got[k] = "y"
		if err := sameMeta(want, got); trace.CodeOf(err) != features.WrongFeatureSet || !strings.Contains(err.Error(), "gram: "+k+`: got "y", want "x"`) {
			t.Errorf("%s: got %v", k, err)
		}
	}
	if _, err := mergeGrams(nil); trace.CodeOf(err) != rows.BadOption || !strings.Contains(err.Error(), "--from-gram: got no file, want one or more") {
		t.Errorf("no file: got %v", err)
	}
}

// TestFormsByHand: few terms are chosen for a smaller mean, unbounded ones only for a gain beyond its error.
func TestFormsByHand(t *testing.T) {
	for name, c := range map[string]struct {
		recipe, prior string
		spec          features.Version
		selection     string
		forms, least  bool
	}{
		"relative":        {Relative, PriorZero, features.V11, SelectMinimum, true, true},
		"one error":       {Relative, PriorZero, features.V11, SelectOneStandard, true, false},
		"roofline":        {Relative, PriorRoofline, features.V11, SelectMinimum, true, true},
		"a set":           {Relative, PriorLibrary, features.V12, SelectMinimum, false, true},
		"frozen":          {Frozen, PriorZero, features.V10, SelectMinimum, false, false},
		"components":      {Relative, PriorZero, "1.1+principal-components", SelectMinimum, false, true},
		"frozen, one err": {Frozen, PriorZero, features.V10, SelectOneStandard, false, false},
	} {
		o := Options{Recipe: c.recipe, Prior: c.prior, Spec: c.spec, Selection: c.selection}
		var opt ridge.Options
		o.setSelection(&opt)
		if o.hasForms() != c.forms || opt.SmallestWithin != c.least || opt.EachBlock != (c.recipe == Relative) {
			t.Errorf("%s: got forms %v, the smallest %v, each block %v", name, o.hasForms(), opt.SmallestWithin, opt.EachBlock)
		}
	}
	forms := []form{{name: "a", sels: []ridge.Selection{{}, {Lambda: 0.5, Objective: ridge.Within, Index: 1, Grid: []ridge.Point{{}, {FoldScores: []float64{1, 2, 3}}}}}},
		{name: "b", sels: []ridge.Selection{{}, {Lambda: 2, Objective: ridge.Cross, Grid: []ridge.Point{{Loco: []float64{4, 4}}}}}}}
	got := describeForms(forms, 1, 1)
	if len(got) != 2 || got[0].Name != "a" || *got[0].Lambda != 0.5 || *got[0].Score != 2 || !near(*got[0].SE, 1/math.Sqrt(3)) || got[0].HeldOut != 3 || got[0].Objective != "within" ||
		got[0].Chosen || got[1].Name != "b" || *got[1].Score != 4 || *got[1].SE != 0 || got[1].HeldOut != 2 || got[1].Objective != "cross" || !got[1].Chosen {
		t.Errorf("got %+v", got)
	}
	for _, f := range newForms([]Term{{Name: "prefill_linear_compute", Unit: "us/s"}, {Name: "bias", Unit: "us"}, {Name: "decode_attention", Unit: "us/s"}}) {
		want := map[string][]float64{FormBounded: {5e6, math.Inf(1), 5e6}, FormFewTerms: {5e6, math.Inf(1), 0}, FormUnbounded: nil}[f.name]
		if !slices.Equal(f.upper, want) {
			t.Errorf("%s: got limits %v, want %v", f.name, f.upper, want)
		}
	}
}

// TestStoredRowsAreRefused: a folder that cannot be written, one without a run, and one with fewer tables than its run names.
func TestStoredRowsAreRefused(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	src := Source{ID: "r", Load: func() (*trace.Run, error) { return nil, fmt.Errorf("torn") }}
	if err := StoreRows(context.Background(), src, Quick(), gone); err == nil {
		t.Error("a folder that does not exist: no error")
	}
	if err := StoreRows(context.Background(), src, Quick(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "torn") {
		t.Errorf("a run that cannot be read: got %v", err)
	}
	if _, err := restore(Source{Rows: gone}); err == nil {
		t.Error("no run is stored: no error")
	}
	if _, err := Make(context.Background(), src, Quick(), features.Gammas()); err == nil || !strings.Contains(err.Error(), "torn") {
		t.Errorf("made: got %v", err)
	}
	if _, err := newFitter(t.Context(), []Source{src}, Quick(), nil); err == nil || !strings.Contains(err.Error(), "torn") {
		t.Errorf("fitted: got %v", err)
	}
	if all, err := (&Run{Src: Source{Rows: gone}}).restoreOther(Blackbox); all != nil || err != nil {
		t.Errorf("no rows of another model: got %v, %v", all, err)
	}
}

// TestUsableRuns: a saturated run takes part for its rows if another run does, and for nothing else.
func TestUsableRuns(t *testing.T) {
	run := func(id, reason string, saturated bool, kept int) *Run {
		p := &Run{Src: Source{ID: id}, runFacts: runFacts{Reason: reason, Saturated: saturated}}
		if kept >= 0 {
			p.Beta = &rows.Table{Kept: kept}
		}
		return p
	}
	for name, c := range map[string]struct {
		runs []*Run
		want string
	}{
		"all":                 {[]*Run{run("a", "", false, 3), run("b", "", false, 3)}, "ab"},
		"one row":             {[]*Run{run("a", "", false, 3), run("b", "saturated: x", true, 1)}, "ab"},
		"no row":              {[]*Run{run("a", "saturated: x", true, 0), run("b", "", false, 3)}, "b"},
		"no table":            {[]*Run{run("a", "saturated: x", true, -1), run("b", "", false, 3)}, "b"},
		"another reason":      {[]*Run{run("a", "no steps", false, 3), run("b", "", false, 3)}, "b"},
		"saturated ones only": {[]*Run{run("a", "saturated: x", true, 3), run("b", "saturated: x", true, 3)}, ""},
		"kept":                {[]*Run{run("a", "", true, 3)}, "a"},
	} {
		got := ""
		for _, p := range usable(c.runs) {
			if got += p.Src.ID; p.Reason != "" {
				t.Errorf("%s: %s is used and left out: %s", name, p.Src.ID, p.Reason)
			}
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestPooledFactorsByHand: deployment A has runs of two configurations with log factors 0.2 and 0.4, B one of -0.2. The
// runs of A lie 0.1 from their median, which is a variance of pi/2 * 0.01 * 2/1; what is beyond it between the
// medians 0.3 and -0.2 shrinks them, and nothing is left between configurations.
func TestPooledFactorsByHand(t *testing.T) {
	s := &Solved{Pool: &Pool{Configs: []string{"a1", "a2", "b1"}}, Terms: []Term{{}}, Fit: ridge.Fit{Beta: []float64{10}}, Data: &ridge.Data{P: 1}}
	byRun := []runTotals{{config: 0, rows: 5}, {config: 1, rows: 7}, {config: 2, rows: 9}, {config: 2}}
	pooled := func(logs [][2]float64) map[string]result.DeploymentFactor {
		out := &result.Model{}
		poolFactors(s, []string{"A", "A", "B"}, byRun, logs, out)
		by := map[string]result.DeploymentFactor{}
		for _, d := range out.DeploymentFactors {
			by[d.Deployment+d.Config] = d
		}
		return by
	}
	variance := math.Pi / 2 * 0.01 * 2
	between := ((0.09 - variance/2) + (0.04 - variance)) / 2
	first, second := 0.3*between/(between+variance/2), -0.2*between/(between+variance)
	got := pooled([][2]float64{{0.2, 0.2}, {0.4, 0.4}, {-0.2, -0.2}, {9, 9}})
	for name, want := range map[string]result.DeploymentFactor{
		"A": {Factor: math.Exp(first), Runs: 2, Rows: 12}, "Aa1": {Factor: math.Exp(first), Runs: 1, Rows: 5}, "Aa2": {Factor: math.Exp(first), Runs: 1, Rows: 7},
		"B": {Factor: math.Exp(second), Runs: 1, Rows: 9}, "Bb1": {Factor: math.Exp(second), Runs: 1, Rows: 9},
	} {
		if d := got[name]; !near(d.Factor, want.Factor) || !near(d.Prompt, 1) || d.Runs != want.Runs || d.Rows != want.Rows {
			t.Errorf("%s: got %+v, want a factor of %g of %d runs and %d rows", name, d, want.Factor, want.Runs, want.Rows)
		}
	}
	// Prompt work on top of the rest; equal runs are not shrunk.
	got = pooled([][2]float64{{0.5, 0.7}, {0.5, 0.7}, {-0.1, -0.4}, {9, 9}})
	if d := got["A"]; !near(d.Factor, math.Exp(0.5)) || !near(d.Prompt, math.Exp(0.2)) {
		t.Errorf("A: got %+v", d)
	}
	if d := got["Bb1"]; !near(d.Factor, math.Exp(-0.1)) || !near(d.Prompt, math.Exp(-0.3)) || !near(s.betaIn(2)[0], 10*math.Exp(-0.1)) {
		t.Errorf("B: got %+v and coefficients %v", d, s.betaIn(2))
	}
	one := &Solved{Train: &ridge.Data{Y: []float64{100, 200, 999}, Steps: []float64{1, 2, 1}, Config: []int32{4, 4, 5}}}
	if e := trainErrors(one, []float64{110, 160, 0}, 4); e.Rows != 2 || !near(e.MAPE, 0.15) || !near(e.Bias, -0.1) || e.MAPEConst != 0 {
		t.Errorf("got %+v", e)
	}
}

// TestBlocksThatTeach: without one block of time the rows of the others are trained on, of the hold-out too, but no
// outliers and no rows of a phase without blocks.
func TestBlocksThatTeach(t *testing.T) {
	table := constantRun(t, "r", "X/a", 100)
	p := &Run{Src: Source{ID: "r"}}
	p.Src.Deployment.Phases = []deploy.Phase{{Name: "first"}, {Name: "second"}}
	p.Blocks = []result.CrossBlocks{{Run: "r", Phase: "second"}}
	c := &crossFitter{fitter: &fitter{used: []*Run{{}, p}}}
	by := c.blocksByPhase("r")
	if len(by) != 1 || by[1] != &p.Blocks[0] {
		t.Errorf("got blocks %v", by)
	}
	if out := c.without(&Pool{Tables: []*rows.Table{table}, Train: []int32{1}, Hold: []int32{2}}, 0); out.Train != nil || out.Hold != nil {
		t.Errorf("rows outside of all phases: got %v and %v", out.Train, out.Hold)
	}
}

// TestRunsOfAGramFile: runs whose lags are recorded, given or out of range, that were left out or have no rows.
func TestRunsOfAGramFile(t *testing.T) {
	given := func(lag int) *int { return &lag }
	const two = `{"config": "c", "lag": {"lag": 2, "measured": true}, "lags": [{"kept": 1}, {"kept": 0}, {"kept": 3}]}`
	for _, c := range []struct {
		name, text string
		lag        *int
		want       result.RunLag
		reason     string
		err        string
	}{
		{"recorded", two, nil, result.RunLag{Lag: 2, Measured: true}, "", ""},
		{"the same", two, given(2), result.RunLag{Lag: 2, Measured: true}, "", ""},
		{"another", two, given(0), result.RunLag{Lag: 0}, "", ""},
		{"without rows", two, given(1), result.RunLag{Lag: 1}, "no beta rows", ""},
		{"too large", two, given(reconstruct.Lags), result.RunLag{}, "", fmt.Sprintf("gram: run r: lag %d, want 0 to %d", reconstruct.Lags, reconstruct.Lags-1)},
		{"negative", `{"lag": {"lag": -1}}`, nil, result.RunLag{}, "", "gram: run r: lag -1, want"},
		{"with a reason", `{"reason": "odd", "lag": {"lag": 1}}`, nil, result.RunLag{Lag: 1}, "odd", ""},
		{"no JSON", `{`, nil, result.RunLag{}, "", "gram: run r:"},
		{"not in the file", "", nil, result.RunLag{}, "left out", ""},
	} {
		g := &gramFit{file: ridge.File{Runs: []string{"r"}, Meta: map[string]string{}}, out: &result.Fit{}}
		g.o.Lag = c.lag
		if c.text != "" {
			g.file.Meta[metaRunPrefix+"r"] = c.text
		}
		err := g.describeRuns()
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.err)
			}
			continue
		}
		if r := g.runs[0]; err != nil || r.Lag != c.want || r.Reason != c.reason || (c.text != "") != (len(g.out.Runs) == 1) {
			t.Errorf("%s: got %+v, %v, want lag %+v and reason %q", c.name, r, err, c.want, c.reason)
		}
	}
	// Cells are those of each run's lag, by configuration and run.
	cell := func(config, run int32, n int64) ridge.Cell {
		return ridge.Cell{CellKey: ridge.CellKey{Config: config, Run: run}, Gram: ridge.Gram{N: n}}
	}
	g := &gramFit{gammas: []float64{0, 1}, runs: make([]gramRun, 3)}
	g.runs[0].Lag.Lag, g.runs[2].Lag.Lag = 1, 1
	g.runs[2].Reason = "odd"
	for k := range 2 * reconstruct.Lags * len(g.gammas) {
		g.file.Sets = append(g.file.Sets, &ridge.Cells{List: []ridge.Cell{cell(1, 0, int64(100*k)), cell(0, 1, int64(100*k+1)), cell(0, 2, int64(100*k+2))}})
	}
	for _, c := range []struct {
		gamma int
		hold  bool
		want  []int // rows: of run 1 at lag 0, then of run 0 at lag 1
	}{{0, false, []int{1, 400}}, {0, true, []int{101, 500}}, {1, false, []int{201, 600}}, {1, true, []int{301, 700}}} {
		var got []int
		for _, x := range g.cellsAt(c.gamma, c.hold).List {
			got = append(got, int(x.N))
		}
		if !slices.Equal(got, c.want) || len(g.file.Sets[0].List) != 3 {
			t.Errorf("gamma %d, held out %v: got cells of %v rows, want %v", c.gamma, c.hold, got, c.want)
		}
	}
}

// TestBatchesOfExperiments: loads end below the longest sequence and at the scheduler's limits.
func TestBatchesOfExperiments(t *testing.T) {
	for _, c := range []struct {
		blocks, seqs, tokens              int64
		batches, contexts, prompts, mixed int
	}{
		{64, 4, 64, 3, 2, 2, 1},  // 256 tokens: contexts 64 and 128, prompts 32 and 64, and 32 beside three decodes
		{65, 4, 512, 3, 3, 4, 4}, // 260 tokens: contexts to 256 and prompts to 256
		{64, 4, 512, 3, 2, 3, 3},
		{65, 1, 512, 1, 3, 4, 0},
		{65, 8, 135, 4, 3, 3, 3}, // 128 tokens beside seven decodes
		{65, 8, 134, 4, 3, 3, 2},
	} {
		d := testkit.Small(c.blocks)
		d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens = c.seqs, c.tokens
		var want, got []int
		for _, n := range []int{c.batches, c.contexts, c.prompts, c.mixed} {
			if n > 0 {
				want = append(want, n)
			}
		}
		for _, l := range loadsOf(d) {
			got = append(got, len(l.batches))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v, longest %v: got loads of %v batches, want %v", c, d.LongestSequence(), got, want)
		}
	}
}

// TestStridesOfSources: of sources that have more rows than are fitted, each configuration keeps its part.
func TestStridesOfSources(t *testing.T) {
	d := testkit.Small(64)
	sources := []Source{{Deployment: *d, Most: 1000}, {Deployment: *d, Most: 500}}
	if found := RowsLearned(sources, 2000); len(found) != 0 || sources[0].Stride != 1 || sources[1].Stride != 1 {
		t.Errorf("all rows: got %v and strides %d and %d", found, sources[0].Stride, sources[1].Stride)
	}
	if found := RowsLearned(sources, 300); len(found) != 1 || sources[0].Stride != 5 || sources[1].Stride != 5 {
		t.Errorf("a fifth: got %v and strides %d and %d", found, sources[0].Stride, sources[1].Stride)
	}
}
