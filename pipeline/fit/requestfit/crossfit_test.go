package requestfit

import (
	"context"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
)

// crossLoads are two planted loads as runs have them, with step times that scatter by 5 %.
func crossLoads(t *testing.T, requests int) (prior *Prior, loads []*Load) {
	t.Helper()
	truth, prior, _ := plant(t)
	quantiles := []sim.Quantile{{Q: 0, Ratio: 0.9}, {Q: 1, Ratio: 1.1}}
	noise := &sim.Noise{Decode: quantiles, Prefill: quantiles, Mixed: quantiles}
	for k, rate := range []float64{4, 9} {
		l := plantedNoisy(t, h100(t), truth, rate, requests, uint64(40+k), noise)
		l.Run = []string{"slow", "fast"}[k]
		loads = append(loads, l)
	}
	return prior, loads
}

// crossed fits the first four fifths of loads as a document does, and then without each block.
func crossed(t *testing.T, prior *Prior, loads []*Load, o Options) *result.CrossFits {
	t.Helper()
	c := &collection{whole: loads, deployment: loads[0].Deployment}
	var early []*Load
	for _, l := range loads {
		early = append(early, l.Before(0.8))
	}
	answer, err := Fit(context.Background(), early, prior, o)
	if err != nil {
		t.Fatal(err)
	}
	cross, found, err := c.crossFit(answer)
	if err != nil || len(found) > 0 {
		t.Fatal(err, found)
	}
	return cross
}

// setWith is the prior's set with the values of a fit without a block.
func setWith(t *testing.T, prior *Prior, l *Load, f *result.CrossFit) *coeff.Set {
	t.Helper()
	m, err := newModel(prior, l.Deployment)
	if err != nil {
		t.Fatal(err)
	}
	set := m.setOf(m.mean)
	for j, v := range f.Beta {
		set.Beta[j].Value = v
	}
	for _, a := range f.Alpha {
		for j, v := range a.Values {
			set.AlphaModel(a.Target).Coefficients[j].Value = v
		}
	}
	return set
}

// distance is how far the values of a fit without a block are from those of another fit of the same requests:
// the root mean square over independent directions, in standard errors of that fit.
func distance(t *testing.T, f *result.CrossFit, of *Learned) float64 {
	t.Helper()
	m := of.equations.m
	set := setWith(t, &Prior{Name: "answer", Set: of.Set}, of.equations.loads[0], f)
	n := len(m.free)
	var covariance []float64
	off := make([]float64, n)
	for k := range n {
		covariance = append(covariance, of.Covariance[k]...)
		off[k] = m.coefficientOf(set, k).Value - m.coefficientOf(of.Set, k).Value
	}
	inverse := stat.Inverse(covariance, n)
	sum := 0.0
	for i := range n {
		sum += off[i] * ridge.Dot(inverse[i*n:(i+1)*n], off)
	}
	return math.Sqrt(sum / float64(n))
}

// mostDistance is how near a fit of simulated recordings, which scatter, comes to itself without the bias of simulated recordings.
const mostDistance = 0.75

// TestCrossFits makes the fits without each block of two loads once, and compares them with a whole fit of the same
// requests and with the fits of loads in which one block is slow.
func TestCrossFits(t *testing.T) { testCrossFits(t, 120, slowBlock) }

// TestEvalCrossFits: the same of more requests, and with a whole fit without another block too.
func TestEvalCrossFits(t *testing.T) {
	repo.NeedEval(t)
	testCrossFits(t, 150, 0, slowBlock)
}

// testCrossFits compares the fits without the blocks that are meant with whole fits; slowBlock is one of them.
func testCrossFits(t *testing.T, requests int, blocks ...int) {
	t.Helper()
	prior, loads := crossLoads(t, requests)
	o := DefaultOptions()
	o.Search = SearchNone
	cross := crossed(t, prior, loads, o)
	wholes := map[int]*Learned{}
	for _, block := range blocks {
		wholes[block] = wholeFit(t, prior, loads, cross, block, o)
	}
	t.Run("equal whole fits", func(t *testing.T) { checkEqualWholeFits(t, prior, loads, cross, wholes, o) })
	t.Run("never saw their block", func(t *testing.T) { checkNeverSawTheirBlock(t, prior, loads, cross, wholes[slowBlock], o) })
}

// checkEqualWholeFits: a fit without a block, which makes no simulated recordings, is the whole fit of the
// same requests, and predicts the same of the block's requests. So does a fit that ends as early as its objective
// is settled, and one that goes on until steps gain less than 1 %.
func checkEqualWholeFits(t *testing.T, prior *Prior, loads []*Load, cross *result.CrossFits, wholes map[int]*Learned, o Options) {
	for block, whole := range wholes {
		if d := distance(t, &cross.Fits[block], whole); d > mostDistance {
			t.Errorf("block %d: the cross-fit is %.2f standard errors from the whole fit, want at most %.2f", block, d, mostDistance)
		}
		settled := setWith(t, prior, loads[0], &cross.Fits[block])
		of := whole.equations.learner
		l := &learner{Options: o, ctx: context.Background(), loads: of.loads, twins: of.twins, m: of.m}
		start, seen, err := l.anchored()
		if err != nil {
			t.Fatal(err)
		}
		far, _, err := l.best(start, seen)
		if err != nil {
			t.Fatal(err)
		}
		for i, load := range loads {
			inBlock := func(q int) bool { return cross.Blocks[i].Block(load.OriginNs+1000*load.sent(q)) == block }
			if off := medianE2EError(t, load, settled, whole.Set, inBlock); off > 0.005 {
				t.Errorf("block %d of %s: E2E with the cross-fit and the whole fit differ by %.2f %% in the median, want at most 0.5",
					block, load.Run, 100*off)
			}
			if off := medianE2EError(t, load, settled, l.m.setOf(far.values), inBlock); off > 0.005 {
				t.Errorf("block %d of %s: E2E with the cross-fit and a fit of more passes differ by %.2f %% in the median, want at most 0.5",
					block, load.Run, 100*off)
			}
		}
	}
}

// medianE2EError is by how much the E2E of the requests that are meant differ in replays with two sets.
func medianE2EError(t *testing.T, load *Load, a, b *coeff.Set, isMeant func(request int) bool) float64 {
	t.Helper()
	timesA, err := load.Predict(a)
	if err != nil {
		t.Fatal(err)
	}
	timesB, err := load.Predict(b)
	if err != nil {
		t.Fatal(err)
	}
	var off []float64
	for q := range timesA {
		if isMeant(q) {
			off = append(off, math.Abs(timesA[q].E2EUs/timesB[q].E2EUs-1))
		}
	}
	return stat.Median(off)
}

func wholeFit(t *testing.T, prior *Prior, loads []*Load, cross *result.CrossFits, block int, o Options) *Learned {
	t.Helper()
	var left []*Load
	for i, l := range loads {
		left = append(left, l.without(&cross.Blocks[i], block))
	}
	whole, err := Fit(context.Background(), left, prior, o)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// slowBlock is the block in which checkNeverSawTheirBlock makes the server slow.
const slowBlock = 2

// checkNeverSawTheirBlock: a server that takes half as long again in one block moves the answer and the fits
// without the other blocks. The fit without that block is the same to the last bit.
func checkNeverSawTheirBlock(t *testing.T, prior *Prior, loads []*Load, before *result.CrossFits, whole *Learned, o Options) {
	for i, l := range loads {
		seen := slices.Clone(l.Seen)
		for q := range seen {
			if before.Blocks[i].Block(l.OriginNs+1000*l.sent(q)) == slowBlock {
				seen[q].TTFTUs *= 1.5
				seen[q].SpanUs *= 1.5
				seen[q].E2EUs *= 1.5
			}
		}
		l.Seen = seen
	}
	after := crossed(t, prior, loads, o)
	if !reflect.DeepEqual(after.Fits[slowBlock], before.Fits[slowBlock]) {
		t.Errorf("the fit without the slow block is %+v, and was %+v", after.Fits[slowBlock], before.Fits[slowBlock])
	}
	if d := distance(t, &after.Fits[0], whole); d < 2*mostDistance {
		t.Errorf("a fit with the slow block is %.2f standard errors from the one without, want more", d)
	}
}
