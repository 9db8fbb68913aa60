package fit

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestFrozenComparisonIsClean: a step of a second among steps of 1 ms is no row of the frozen recipe. Without it the steps of
// 1 ms predict those of 2 ms, and these predict the former, by their times alone.
func TestFrozenComparisonIsClean(t *testing.T) {
	of := func(run, config string, us, last float64) *rows.Table {
		table := planted(run, config, 100, func(i int) ([]float64, float64) {
			y := us * (1 + 0.01*float64(i%5-2))
			if i == 70 {
				y = last
			}
			return vector(t, nil)[:len(features.BetaFeatures(features.V10))], y
		})
		table.P = len(features.BetaFeatures(features.V10))
		table.Min, table.Max = table.Min[:table.P], table.Max[:table.P]
		return table
	}
	f := &fitter{o: Quick()}
	s := &Solved{Pool: &Pool{Configs: []string{"X/a", "X/b", "X/other"}}}
	if got := f.frozenLoco(s); got != nil {
		t.Errorf("no run with such rows: got %v", got)
	}
	f.used = []*Run{{Frozen: of("a", "X/a", 1000, 1e6)}, {}, {Frozen: of("b", "X/b", 2000, 2000)}, {Frozen: &rows.Table{}}}
	got := f.frozenLoco(s)
	if len(got) != 3 || math.Abs(got[0]-1) > 0.02 || math.Abs(got[1]-0.5) > 0.02 || !math.IsNaN(got[2]) {
		t.Errorf("got errors of %v, want 1, 0.5 and none", got)
	}
	f.used = f.used[:1]
	if got := f.frozenLoco(s); len(got) != 3 || !math.IsNaN(got[0]) {
		t.Errorf("one configuration: got %v", got)
	}
	f.o.Spec = features.V10
	if got := f.frozenLoco(s); got != nil {
		t.Errorf("the frozen recipe itself: got %v", got)
	}
}

// TestUncertaintyOfExperts: where another distribution of tokens over experts takes longer the difference is one source, and where
// it takes less another one.
func TestUncertaintyOfExperts(t *testing.T) {
	d := mixture(t)
	step, err := library.Bound(d, library.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := newKernelSums(d, step)
	if err != nil {
		t.Fatal(err)
	}
	n := len(s.sources) - 2*len(expertSpread)
	longer, shorter := 0, 0
	for k, o := range expertSpread {
		other, err := library.Bound(d, o)
		if err != nil {
			t.Fatal(err)
		}
		q := NewDraws(5, 1)
		pricer, otherPricer := step.NewPricer(), other.NewPricer()
		for i := range 450 {
			batch := library.BatchOf(Within(q.Batch(int32(i)%NumRegimes, nil), &d.Engine))
			off := otherPricer.Parts(&batch)[library.Experts] - pricer.Parts(&batch)[library.Experts]
			more, less := s.sources[n+2*k][i], s.sources[n+2*k+1][i]
			if more < 0 || less < 0 || more != 0 && less != 0 || math.Abs(more-less-off) > 1e-9*math.Abs(off) {
				t.Fatalf("%+v, batch %d: got %g more and %g less, want %g in all", o, i, more, less, off)
			}
			if more > 0 {
				longer++
			}
			if less > 0 {
				shorter++
			}
		}
	}
	if longer == 0 || shorter == 0 {
		t.Errorf("%d batches take longer and %d less: the case shows nothing", longer, shorter)
	}
}

// TestOneContradictingStep: configurations without rows are passed over, and one row suffices.
func TestOneContradictingStep(t *testing.T) {
	p := len(features.BetaFeatures(features.V11))
	bias := slot(t, "bias")
	f := fitterOf(t)
	f.out.Configs = []result.FitConfig{{Key: "a"}, {Key: "b"}, {Key: "c"}}
	f.prior = &libraryPrior{mean: make([]float64, p), cov: make([]float64, p*p), name: "library"}
	f.prior.mean[bias], f.prior.cov[bias*p+bias] = 1000, 100
	s := &Solved{Terms: make([]Term, p), Pool: &Pool{Configs: []string{"a", "b", "c"}}, Train: &ridge.Data{P: p}}
	for _, row := range []struct {
		us     float64
		config int32
	}{{2000, 1}, {1000, 2}} {
		s.Train.X = append(s.Train.X, vector(t, nil)...)
		s.Train.Y = append(s.Train.Y, row.us)
		s.Train.Config = append(s.Train.Config, row.config)
	}
	if got := f.contradictions(s); len(got) != 1 || got[0].Code != Implausible {
		t.Errorf("got %v, want a finding of the second configuration", got)
	}
}

// TestErrorsOfSolutions: rows whose squares are above the largest number are an error of both recipes.
func TestErrorsOfSolutions(t *testing.T) {
	for scale, fails := range map[float64]bool{1: false, 1e200: true} {
		table := planted("r", "gpu/a", 200, func(int) ([]float64, float64) {
			x := vector(t, nil)
			for j := range x {
				x[j] *= scale
			}
			return x, 1000
		})
		pool := Pooled([]*rows.Table{table}, nil)
		terms := featureTerms(features.BetaFeatures(features.V11), 1, PriorZero)
		s := &Solved{Pool: pool, Terms: terms, Opt: ridgeOptions(terms, EpsBetaUs, Quick())}
		if err := s.SolveAt(Selections{}, 0, false); (err != nil) != fails || fails && s.Frozen != nil {
			t.Errorf("rows times %g: got %v", scale, err)
		}
	}
}

// TestThinnedRowsAreNamed: a fit of 1000 of 5000 rows names how many it learns from.
func TestThinnedRowsAreNamed(t *testing.T) {
	run := &trace.Run{ID: "decodes"}
	for id := range int64(60) {
		run.Steps = append(run.Steps, trace.Step{ID: id, TsStartNs: id * 10e6, TsEndNs: id*10e6 + 1e6, DurationUs: 120, RunningDepth: 1, NumDecodeReqs: 1, DecodeTokens: 1,
			ScheduledTokens: 1, BlocksTotal: 100, BlocksFree: 50, KVUsage: 0.5})
		run.Snapshots = append(run.Snapshots, trace.Snapshot{StepID: id, CoreID: "r", Phase: "DECODE", PromptTokens: 5, ComputedTokens: 6 + id, ScheduledTokens: 1})
	}
	sources := []Source{{ID: "decodes", Deployment: *testkit.Llama8B(), Load: func() (*trace.Run, error) { return run, nil }}}
	for most, want := range map[int64]int{1000: 0, 5000: 1} {
		o := Quick()
		o.MaxRows = 1000
		sources[0].Most = most
		f, err := newFitter(context.Background(), sources, o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.out.Warnings; len(got) != want || want > 0 && !strings.Contains(got[0].Message, "about 1000 rows") {
			t.Errorf("%d rows: got %v", most, got)
		}
	}
}

// mixture is a model of experts on a device that the library has kernel tables of.
func mixture(t *testing.T) *deploy.Deployment {
	t.Helper()
	d, err := deploy.LoadSettings("hardware.name=H100", "vllm.version=0.15.1", "vllm.max_num_seqs=64", "vllm.max_num_batched_tokens=2048", "vllm.max_model_len=4096", "model.id=mistralai/Mixtral-8x7B-v0.1", "tensor_parallel_size=2")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestSumsOfFewRows: a run with as many training rows as there are folds has sums outside of them, by regime; one with a row
// more has cells of its blocks.
func TestSumsOfFewRows(t *testing.T) {
	o, err := Quick().Resolve()
	if err != nil {
		t.Fatal(err)
	}
	folds := ridge.DefaultOptions(1).Folds
	for n, outside := range map[int]bool{1: true, folds: true, folds + 1: false} {
		table := planted("r", "X/a", n+1, func(int) ([]float64, float64) { return vector(t, nil), 100 })
		for i := range table.HoldOut {
			table.HoldOut[i] = i == n
		}
		train, hold, err := gramCells(table, features.DefaultGamma, 1, o)
		if err != nil {
			t.Fatal(err)
		}
		count := func(c *ridge.Cells) (n int) {
			for i := range c.List {
				n += int(c.List[i].N)
			}
			return n
		}
		if count(train) != n || count(hold) != 1 || hold.List[0].Block != -1 {
			t.Errorf("%d rows: got %d training rows, %d of the hold-out", n, count(train), count(hold))
		}
		if got := len(train.List) == 1 && train.List[0].Block == -1; got != outside {
			t.Errorf("%d rows: got cells %+v, want them outside of folds: %v", n, train.List, outside)
		}
	}
	none := planted("r", "X/a", 0, nil)
	if train, hold, err := gramCells(none, 0.3, 2, o); err != nil || train.List != nil || hold.List != nil || train.Lag != 2 || train.Gamma != 0.3 {
		t.Errorf("no rows: got %+v, %+v, %v", train, hold, err)
	}
}

// TestRunsWithoutRowsOfAModel: runs that have no table or no row of a model are left out of its fit.
func TestRunsWithoutRowsOfAModel(t *testing.T) {
	table := planted("r", "X/a", 40, func(i int) ([]float64, float64) {
		return []float64{1, float64(i % 7), float64(i % 3)}, 100 + 10*float64(i%7)
	})
	table.P, table.Min, table.Max, table.Hits = 3, table.Min[:3], table.Max[:3], table.Hits[:min(3, len(table.Hits))]
	f := fitterOf(t, constantRun(t, "r", "X/a", 100))
	got, err := f.otherModel([]*rows.Table{nil, {}, table}, Blackbox)
	if err != nil || len(got.Coefficients) != 3 || got.Rows.Kept != 40 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := f.otherModel([]*rows.Table{nil, {}}, Blackbox); err == nil || err.Error() != "no training rows with known requests" {
		t.Errorf("no rows: got %v", err)
	}
}

// TestOperatorsOfOneTable: operators that one table covers in the same way share the source of their error.
func TestOperatorsOfOneTable(t *testing.T) {
	step := &library.Step{Operators: make([]library.Operator, 6)}
	for i, table := range []string{"a", "b", "a", "a", "b", "a"} {
		step.Operators[i].Table = table
	}
	step.Operators[3].Reached, step.Operators[5].Reached = 1, 1
	want := []int{0, 1, 0, 2, 1, 2}
	for i, at := range sourcesOf(step) {
		if at != library.NumStep+want[i] {
			t.Errorf("operator %d: got the source %d, want %d after those of the corrections", i, at-library.NumStep, want[i])
		}
	}
}

// TestWhyThereAreNoFrozenRows: a run of one configuration is told why it could have no rows with features of version 1.0, once.
func TestWhyThereAreNoFrozenRows(t *testing.T) {
	for name, c := range map[string]struct {
		chunked bool
		want    []string
	}{
		"chunked prefill without snapshots": {true, []string{"r: chunked_without_snapshots: run r: spec 1.0 with chunked prefill: got no complete step snapshots, want some"}},
		"whole prompts":                     {false, nil},
	} {
		dep := testkit.Llama8B()
		dep.Engine.ChunkedPrefill = c.chunked
		p := &Run{Src: Source{ID: "r", Deployment: *dep}}
		p.makeTable10(&rows.Steps{Run: &trace.Run{ID: "r", Steps: []trace.Step{{ID: 1}}}, Dep: dep}, Options{OneConfig: true})
		var got []string
		for _, f := range p.Findings {
			got = append(got, f.Message)
			if f.Code != ModelSkipped {
				t.Errorf("%s: got the code %s", name, f.Code)
			}
		}
		if !slices.Equal(got, c.want) || p.Frozen != nil {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
