package fit

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestLineOfARun: steps predicted by a constant, the tokens and the KV tokens read; and the hardware's least times.
func TestLineOfARun(t *testing.T) {
	src := Bundled(t)[0]
	it, err := FitIteration(context.Background(), src, Quick())
	if err != nil || it.Model == nil {
		t.Fatal(it, err)
	}
	var names []string
	for _, c := range it.Model.Coefficients {
		names = append(names, c.Name)
	}
	if strings.Join(names, " ") != "alpha beta gamma" || it.Reason != "" || len(it.Us) < 100 || len(it.Us) != len(it.PredUs) || len(it.Us) != len(it.TimeNs) || !slices.IsSorted(it.TimeNs) || it.Lengths[0] == nil || it.Lengths[1] == nil || *it.Lengths[0] <= *it.Lengths[1]/100 {
		t.Errorf("got %q, %q, %d steps, lengths %v", names, it.Reason, len(it.Us), it.Lengths)
	}
	var ratios []float64
	for i := range it.Us {
		ratios = append(ratios, it.PredUs[i]/it.Us[i])
	}
	if m := stat.Median(ratios); m < 0.7 || m > 1.3 {
		t.Errorf("predictions are %g times the steps", m)
	}
	run, err := src.Load()
	if err != nil {
		t.Fatal(err)
	}
	if prompts, outputs := meansOf(run); math.Abs(*it.Lengths[0]-prompts) > 1e-9 || math.Abs(*it.Lengths[1]-outputs) > 1e-9 {
		t.Errorf("got lengths %g and %g, want %g and %g", *it.Lengths[0], *it.Lengths[1], prompts, outputs)
	}
	h, m := &src.Deployment.Hardware, &src.Deployment.Model
	// A token of KV has keys and values of every layer, in bytes of the cache.
	kv := 2 * float64(m.NumLayers*m.NumKVHeads*m.HeadDim) * m.BytesPerKV / (h.BwPeakTBs * 1e6) / float64(src.Deployment.TP)
	if math.Abs(it.FloorUs[2]/kv-1) > 1e-6 || it.FloorUs[0] < 20*it.FloorUs[1] || it.FloorUs[1] <= 0 {
		t.Errorf("got least times %v, want %g us for a token of KV", it.FloorUs, kv)
	}
	by := &Iteration{Model: &result.Model{}}
	for _, v := range []float64{100, 2, -1} {
		by.Model.Coefficients = append(by.Model.Coefficients, result.Coefficient{Coefficient: coeff.Coefficient{Value: v}})
	}
	by.predict(&rows.Table{P: 3, Kept: 3, X: []float64{1, 5, 10, 1, 0, 100, 1, 0, 99}, Y: []float64{7, 8, 9}, TimeNs: []int64{70, 80, 90}})
	if !slices.Equal(by.PredUs, []float64{100, 1}) || !slices.Equal(by.Us, []float64{7, 9}) || !slices.Equal(by.TimeNs, []int64{70, 90}) {
		t.Errorf("got %v, %v, %v: a prediction of 0 is left out", by.PredUs, by.Us, by.TimeNs)
	}
	for _, name := range []string{Linear3, TrainedPhysics} {
		terms := basisTerms(name, 2)
		heavy := 0
		for _, term := range terms {
			if term.penalty == 100 {
				heavy++
			}
		}
		if heavy != map[bool]int{true: 1}[name == TrainedPhysics] || terms[0].Constant != (name == Linear3) {
			t.Errorf("%s: got %+v", name, terms)
		}
	}
	for _, term := range basisTerms(TrainedPhysics, 1) {
		if term.penalty != 1 {
			t.Errorf("one configuration: got %+v", term)
		}
	}
	torn := src
	torn.Load = func() (*trace.Run, error) { return nil, os.ErrNotExist }
	if _, err := FitIteration(context.Background(), torn, Quick()); err == nil {
		t.Errorf("a run that is gone: got %v", err)
	}
	bad := Quick()
	bad.Split = 2
	if _, err := FitIteration(context.Background(), src, bad); err == nil {
		t.Error("a split of 2 is fitted")
	}
}

// meansOf returns the mean prompt and answer of a run's requests that succeeded.
func meansOf(run *trace.Run) (prompts, outputs float64) {
	n := 0.0
	for i := range run.Requests {
		r := &run.Requests[i]
		if run.AsksFor(r) && r.Success.Or(false) && r.PromptTokens.OK && r.OutputTokens.OK {
			n++
			prompts += float64(r.PromptTokens.V)
			outputs += float64(r.OutputTokens.V)
		}
	}
	return prompts / n, outputs / n
}

// TestLibrarysSet: its terms with ranges and intervals, the overhead's constant, and what it says of itself.
func TestLibrarysSet(t *testing.T) {
	d := testkit.Llama8B()
	d.Hardware, _ = deploy.Datasheet("H100")
	set, err := LibraryFor(d)
	if err != nil {
		t.Fatal(err)
	}
	learned := library.Learned()
	us, _ := learned.Value(library.NumStep, "")
	base := set.Alpha[0].Coefficients[3]
	if base.Value != us || base.Identified != coeff.BetweenConfigs || base.Evidence != "silicon" || set.Alpha[0].Coefficients[0].Identified != coeff.PriorOnly {
		t.Errorf("got %+v, want a constant of %g us", base, us)
	}
	if set.SpecVersion != features.V12 || set.BetaTarget != coeff.Cadence || set.Configs != nil || set.TrainedOn.Samples != 300 || set.TrainedOn.Lambda != 1e-3 || set.TrainedOn.Date != learned.Version || set.Library.Version != learned.Version || set.Library.Family == "" || len(set.Identifiability) != 3 || !strings.HasPrefix(set.Identifiability[0], "decode batches: the terms hold the sums of kernels within ") {
		t.Errorf("got %+v, %+v", set.TrainedOn, set.Library)
	}
	shown := 0
	for j, c := range set.Beta {
		if c.Range == nil {
			if c.Identified != coeff.PriorOnly || c.CI95 != nil {
				t.Errorf("%s: no batch has it: got %+v", c.Name, c)
			}
			continue
		}
		shown++
		half := 1.959963984540054 * math.Sqrt(set.Covariance[j][j])
		if c.Identified != coeff.Within || c.Evidence != "kernels+silicon" || c.Range[0] > c.Range[1] || math.Abs(c.CI95[1]-c.Value-half) > 1e-9*half || math.Abs(c.CI95[0]-math.Max(0, c.Value-half)) > 1e-9*half {
			t.Errorf("got %+v, want an interval of %g", c, half)
		}
	}
	if shown < 5 {
		t.Errorf("got %d terms that batches show", shown)
	}
	d.Hardware.Name = "Q1"
	if _, err := LibraryFor(d); err == nil || trace.CodeOf(err) != notInLibrary || trace.HintOf(err) == "" {
		t.Errorf("no tables: got %v", err)
	}
}

// TestPriorsOfOptions: the caller's, the library's, a file's, or none of that name.
func TestPriorsOfOptions(t *testing.T) {
	own := &coeff.Set{}
	sets, err := PriorSets(&Options{Prior: "x", Library: func(*deploy.Deployment) (*coeff.Set, error) { return own, nil }})
	if got, _ := sets(nil); err != nil || got != own {
		t.Errorf("the caller's: got %v, %v", got, err)
	}
	d := testkit.Llama8B()
	d.Hardware, _ = deploy.Datasheet("H100")
	if sets, err = PriorSets(&Options{Prior: PriorLibrary}); err != nil {
		t.Fatal(err)
	}
	if got, err := sets(d); err != nil || got.Library == nil {
		t.Errorf("the library's: got %v, %v", got, err)
	}
	name := filepath.Join("..", "..", "coeff", "testdata", "example", "coefficients.yaml")
	if sets, err = PriorSets(&Options{Prior: name}); err != nil {
		t.Fatal(err)
	}
	if got, err := sets(d); err != nil || len(got.Beta) == 0 {
		t.Errorf("a file's: got %v, %v", got, err)
	}
	if _, err := PriorSets(&Options{Prior: "no such file"}); err == nil || trace.CodeOf(err) != rows.BadOption || !strings.Contains(err.Error(), `--prior: got "no such file", want zero, roofline, library or a coefficient file`) {
		t.Errorf("no file: got %v", err)
	}
	broken := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(broken, []byte("schema_version: 9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := PriorSets(&Options{Prior: broken}); err == nil {
		t.Error("a file of another version is a prior")
	}
}

// TestDataThatContradictAPrior: a configuration whose steps take twice the prior's, in its standard errors; one within them is not named.
func TestDataThatContradictAPrior(t *testing.T) {
	p := len(features.BetaFeatures(features.V11))
	for _, c := range []struct {
		factor, sd float64
		want       int
	}{{2, 0.1, 1}, {0.5, 0.1, 1}, {1.1, 0.01, 0}, {1.17, 0.01, 1}, {2, 0.24, 0}, {2, 0.23, 1}} {
		f := fitterOf(t)
		f.out.Configs = []result.FitConfig{{Key: "H100/a"}, {Key: "L4/b"}}
		f.out.Configs[0].Deployment.Hardware.Name = "H100"
		prior := &libraryPrior{mean: make([]float64, p), cov: make([]float64, p*p), name: "library"}
		bias := slot(t, "bias")
		prior.mean[bias] = 1000
		prior.cov[bias*p+bias] = (1000 * c.sd) * (1000 * c.sd)
		f.prior = prior
		s := &Solved{Terms: make([]Term, p), Pool: &Pool{Configs: []string{"H100/a", "L4/b"}}, Train: &ridge.Data{P: p}}
		for range 5 {
			s.Train.X = append(s.Train.X, vector(t, nil)...)
			s.Train.Y = append(s.Train.Y, 1000*c.factor)
			s.Train.Config = append(s.Train.Config, 0)
		}
		got := f.contradictions(s)
		if len(got) != c.want || c.want > 0 && (got[0].Code != Implausible || !strings.Contains(got[0].Message, "H100")) {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	f := fitterOf(t)
	f.out.Configs = []result.FitConfig{{Key: "a"}}
	f.out.Configs[0].Deployment.Hardware.Name = "L4"
	if f.hardwareOf("a") != "L4" || f.hardwareOf("b") != "" {
		t.Errorf("got %q and %q", f.hardwareOf("a"), f.hardwareOf("b"))
	}
	f.provenance(nil, nil) // without a prior nothing is set
}

// TestQueuesOfDeployments: each has coefficients near the common ones, at which its own delays have the right sum.
func TestQueuesOfDeployments(t *testing.T) {
	slow := plantedQueue("b", "L4/b", 2500, 4)
	for i := range slow.Y {
		slow.Y[i] *= 3
	}
	a, m := fitQueue(t, plantedQueue("a", "H100/a", 2500, 4), slow)
	if len(a.byDeployment) != 2 || len(m.Coefficients) == 0 {
		t.Fatalf("got coefficients on %d deployments", len(a.byDeployment))
	}
	for _, on := range a.byDeployment {
		mine := rowsWhere(a.s.Train.Config, func(c int32) bool {
			return a.s.Pool.Configs[c] == map[bool]string{true: "H100/a", false: "L4/b"}[strings.Contains(on.Deployment, "H100")]
		})
		if on.Rows != len(mine) || on.Lambda == nil || len(on.Values) != a.s.Data.P {
			t.Errorf("got %+v of %d rows", on, len(mine))
		}
		d := a.s.Train.Subset(mine)
		measured, predicted, common := 0.0, 0.0, 0.0
		for i := range d.Y {
			measured += d.Y[i]
			predicted += ridge.Dot(d.Row(i), on.Values)
			common += ridge.Dot(d.Row(i), a.s.Fit.Beta)
		}
		if math.Abs(predicted/measured-1) > 0.1 || math.Abs(common/measured-1) < math.Abs(predicted/measured-1) {
			t.Errorf("%s: predictions add up to %g of what was measured, the common ones to %g", on.Deployment, predicted/measured, common/measured)
		}
	}
	names := make([]string, len(a.s.Pool.Configs))
	few, err := a.fitWaitsOf("none", names)
	if err != nil || few.Lambda != nil || few.Rows != 0 || !slices.Equal(few.Values, a.s.Fit.Beta) {
		t.Errorf("no rows: got %+v, %v, want the common coefficients", few, err)
	}
}
