package autoscale

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// isNear reports whether two numbers agree but for rounding.
func isNear(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(b)) }

// TestIntervalsAreWidenedByHand: a parameter of 1 whose logarithm lies from -1 to 1 by the curvature, so that the
// width is 2. The jackknife only widens it; the simulator's interval is used also where it is narrower, and holds
// the value. More than twice the width is a finding.
func TestIntervalsAreWidenedByHand(t *testing.T) {
	one := func(centre, half float64) logInterval { return logInterval{[]float64{centre}, []float64{half}} }
	for _, c := range []struct {
		name       string
		method     string
		given      []logInterval
		held       bool
		lo, hi     float64
		modelError float64 // NaN: none
		want       string
		found      bool
	}{
		{"narrower", byJackknife, []logInterval{one(0, 0.5)}, false, -1, 1, 1, byCurvature, false},
		{"to one side", byJackknife, []logInterval{one(0.5, 1.5)}, false, -1, 2, 1.5, byJackknife, false},
		{"almost twice", byJackknife, []logInterval{one(0, 1.99)}, false, -1.99, 1.99, 1.99, byJackknife, false},
		{"more than twice", byJackknife, []logInterval{one(0, 2.01)}, false, -2.01, 2.01, 2.01, byJackknife, true},
		{"held", byJackknife, []logInterval{one(0, 2.01)}, true, -1, 1, math.NaN(), byCurvature, false},
		{"too few groups", byJackknife, []logInterval{{[]float64{0}, nil}}, false, -1, 1, math.NaN(), byCurvature, false},
		{"simulated", bySimulator, []logInterval{one(0.2, 0.3)}, false, -0.1, 0.5, 0.3, bySimulator, false},
		{"simulated, beside the value", bySimulator, []logInterval{one(0.6, 0.2)}, false, 0, 0.8, 0.4, bySimulator, false},
		{"two laws", bySimulator, []logInterval{one(0.2, 0.3), one(-0.2, 0.1)}, false, -0.3, 0.5, 0.4, bySimulator, false},
		{"simulated, wide", bySimulator, []logInterval{one(0, 2.01)}, false, -2.01, 2.01, 2.01, bySimulator, true},
		{"simulated, held", bySimulator, []logInterval{one(0.2, 0.3)}, true, -1, 1, math.NaN(), byCurvature, false},
	} {
		params := []queueParameter{{Name: "alpha_ms", Value: 1, CI95: &[2]float64{math.Exp(-1), math.E}}}
		found := widenTo(params, c.given, []bool{c.held}, c.method)
		q := &params[0]
		modelError := math.NaN()
		if q.ModelError != nil {
			modelError = *q.ModelError
		}
		if !isNear(q.CI95[0], math.Exp(c.lo)) || !isNear(q.CI95[1], math.Exp(c.hi)) || q.CI95Method != c.want ||
			!isNear(modelError, c.modelError) && !(math.IsNaN(modelError) && math.IsNaN(c.modelError)) {
			t.Errorf("%s: got %v, %s, %g, want exp(%g) to exp(%g), %s, %g", c.name, *q.CI95, q.CI95Method, modelError, c.lo, c.hi, c.want, c.modelError)
		}
		if (len(found) == 1) != c.found || c.found && !strings.HasPrefix(found[0].Message, "alpha_ms: the queueing model's own error moves it 2.0 times as much") {
			t.Errorf("%s: got %v", c.name, found)
		}
	}
	params := []queueParameter{{Name: "alpha_ms", Value: 1}}
	if found := widenTo(params, []logInterval{one(0, 9)}, []bool{false}, bySimulator); len(found) != 0 || params[0].CI95 != nil || params[0].CI95Method != "" || params[0].ModelError != nil {
		t.Errorf("without an interval: got %v, %+v", found, params[0])
	}
}

// TestParametersWithoutBoundsAreNotMeasured: an interval that is missing, has no ends or spans more than a factor of
// 1,000 measures nothing, and the document can be written. The jackknife's half width may be beyond all numbers.
func TestParametersWithoutBoundsAreNotMeasured(t *testing.T) {
	for _, c := range []struct {
		ci         *[2]float64
		half       float64 // of the jackknife
		identified string
		ends       bool
	}{
		{&[2]float64{0.9, 1.1}, 0.1, measured, true},
		{&[2]float64{0.0101, 10}, 0, measured, true},
		{&[2]float64{0.0099, 10}, 0, unknown, true},
		{&[2]float64{0.9, 1.1}, 4, unknown, true},
		{&[2]float64{0.9, 1.1}, 800, unknown, false},
		{&[2]float64{0.9, 1.1}, math.Inf(1), unknown, false},
		{&[2]float64{0.9, 1.1}, math.NaN(), unknown, false},
		{&[2]float64{0, math.Inf(1)}, 1, unknown, false},
		{nil, 1, unknown, false},
	} {
		q := []queueParameter{{Name: "gamma", Value: 1, CI95: c.ci, Identified: measured}}
		widenTo(q, []logInterval{{[]float64{0}, []float64{c.half}}}, []bool{false}, byJackknife)
		found := q[0].judgeInterval()
		if q[0].Identified != c.identified || (q[0].CI95 != nil) != c.ends || found != (c.identified == unknown) {
			t.Errorf("%v, jackknife %g: got %+v, %t", c.ci, c.half, q[0], found)
		}
		if _, err := result.Marshal(q); err != nil {
			t.Errorf("jackknife %g: %v", c.half, err)
		}
	}
	q := queueParameter{Identified: held}
	if found := q.judgeInterval(); q.Identified != held || found {
		t.Errorf("held: got %+v, %t", q, found)
	}
	if got := (&problem{basis: identity(1)}).parameterCovariance([]float64{1e200}, []float64{1}, 1); got != nil {
		t.Errorf("covariance: got %v, want none", got)
	}
}

// TestVarianceOfResidualsByHand: four residuals of 4, -9, 1 and 16 have weights 0.375, 0.25, 0.75 and 0.1875, so that
// their weighted squares are 2.25, 5.0625, 0.5625 and 9: 16.875 / 1.5625, times 4 / 2 with two directions.
func TestVarianceOfResidualsByHand(t *testing.T) {
	x := []float64{8, 0.05, 1e-4}
	s := plantedServer(t, inferno3P, x, 2, 4)
	p := &problem{o: &fitOptions{Flavour: inferno3P}, windows: s.Windows, sigma: [][2]float64{{0.01, 0.02}, {0.05, 0.025}}, scale: [2]float64{1, 2},
		base: logsOf(x), basis: [][]float64{{1, 0, 0}, {0, 1, 0}}, power: true}
	for i, r := range [][2]float64{{4 * 0.01, -9 * 0.04}, {1 * 0.05, 16 * 0.05}} {
		w := &p.windows[i]
		ttft, itl, _ := predictWindow(inferno3P, w, x, asSized)
		w.TTFTMs, w.ITLMs = ttft/(1+r[0]), itl/(1+r[1])
	}
	z := []float64{0, 0}
	if got := p.residualVariance(z); !isNear(got, 21.6) {
		t.Errorf("got %g, want 21.6", got)
	}
	p.power = false
	if got := p.residualVariance(z); got != 1 {
		t.Errorf("with standard errors: got %g, want 1", got)
	}
	p.power, p.windows = true, p.windows[:1]
	if got := p.residualVariance(z); got != 1 {
		t.Errorf("as many directions as residuals: got %g, want 1", got)
	}
	// Directions (0.6, 0.8) and (-0.8, 0.6) of two parameters, 2 and 5, with variances 2 and 1: the logarithms have
	// 1.36, 0.48 and 1.64.
	p.basis = [][]float64{{0.6, 0.8}, {-0.8, 0.6}}
	got := p.parameterCovariance([]float64{2, 5}, []float64{2, 0, 0, 1}, 0.5)
	for i, want := range [][]float64{{0.5 * 4 * 1.36, 0.5 * 10 * 0.48}, {0.5 * 10 * 0.48, 0.5 * 25 * 1.64}} {
		for j := range want {
			if !isNear(got[i][j], want[j]) {
				t.Errorf("covariance %d, %d: got %g, want %g", i, j, got[i][j], want[j])
			}
		}
	}
}

// TestFittingBatchesByHand: prompts of 100 tokens, answers of 50 and 60 tokens a step. In c chunks a prompt takes 100/c
// tokens of a step.
func TestFittingBatchesByHand(t *testing.T) {
	for _, c := range []struct {
		flavour Flavour
		chunks  float64
		want    float64
	}{
		{corrected, 1, -40}, {corrected, 2, 10}, {corrected, 3, 26}, {corrected, 99, 58}, {corrected, 100, math.Inf(1)},
		{inferno3P, 1, 0}, // 51 * (60 - 100) / 150 is no batch
		{inferno3P, 2, 3}, // 52 * 10 / 150 = 3.47
		{inferno3P, 4, 12},
		{inferno3P, 100, 59},
	} {
		m := &model{flavour: c.flavour, shape: shape{Prompt: 100, Output: 50}, limits: Limits{MaxBatch: 64, MaxBatchedTokens: 60}}
		if got := m.fitting(c.chunks); got != c.want {
			t.Errorf("%s, %g chunks: got %g, want %g", c.flavour, c.chunks, got, c.want)
		}
	}
}

// TestAllocationsOfADocument: findings of the demands follow the warnings of the document; without an answer the error
// is returned and the document has no plan.
func TestAllocationsOfADocument(t *testing.T) {
	document := func() *Queue {
		q := example(corrected)
		q.Servers[0].Model = "m"
		other := q.Servers[0]
		other.ID, other.Accelerator, other.AccCount, other.Effective = "l4", "L4", 1, nil
		q.Servers = append(q.Servers, other)
		q.Warnings = []trace.Finding{{Code: "earlier", Message: "first"}}
		return q
	}
	fleet := func() *Problem {
		p, err := ReadProblem([]byte(fleetOfChat), "fleet.yaml")
		if err != nil {
			t.Fatal(err)
		}
		p.UnitCost[deviceName("L4")] = 100
		p.Servers = p.Servers[:1]
		return p
	}
	q := document()
	if err := AllocateQueues(q, fleet()); err != nil || q.Plan == nil || q.Optimum == nil {
		t.Fatalf("got %+v, %+v, %v", q.Plan, q.Optimum, err)
	}
	if len(q.Warnings) != 2 || q.Warnings[0].Code != "earlier" || q.Warnings[1].Code != badModel || !strings.HasPrefix(q.Warnings[1].Message, "small on l4: ") {
		t.Errorf("got %v", q.Warnings)
	}
	for want, change := range map[string]func(p *Problem){
		`unit_cost: got none for "L4", want cents per device and hour`: func(p *Problem) { delete(p.UnitCost, deviceName("L4")) },
		`saturation policy: got "odd", want `:                          func(p *Problem) { p.Policy = "odd" },
		`server "small": got tps 5 and rate_rps 9, want one of them`:   func(p *Problem) { p.Servers[0].TPS = 5 },
		`server "small": want a name, each once`:                       func(p *Problem) { p.Servers = append(p.Servers, p.Servers[0]) },
	} {
		p, q := fleet(), document()
		change(p)
		if err := AllocateQueues(q, p); err == nil || !strings.Contains(err.Error(), want) || q.Plan != nil || q.Optimum != nil {
			t.Errorf("got %+v, %v, want %s", q.Plan, err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := SizeQueues(ctx, document(), SizeOptions{Targets: Targets{TTFTMs: 500, ITLMs: 40}}); !errors.Is(err, context.Canceled) {
		t.Errorf("sizes after the end: got %v", err)
	}
}

// TestDroppedRowsOfASweep: rows that the reader of the table drops are counted with those that give no window.
func TestDroppedRowsOfASweep(t *testing.T) {
	const table = "input_tokens,output_tokens,rate_rps,ttft_ms,tpot_ms\n100,20,2,40,10\n100,20,2,40,10\n100,20,1,30,9\n100,20,2,40,10\n100,20,3,50,1e9\n100,20,4,80,12\n"
	o := DefaultOptions()
	o.Sweep.MaxBatch, o.Sweep.Loads = 64, 2
	s, _, err := SweepServer([]string{"t.csv"}, func(string) ([]byte, result.Input, error) { return []byte(table), result.Input{Name: "t.csv"}, nil }, &o)
	if err != nil {
		t.Fatal(err)
	}
	if want := (map[string]int{"duplicate": 2, "incomplete_benchmark": 1, "beyond_loads": 1}); !maps.Equal(s.Account.Dropped, want) || s.Account.Read != 6 || s.Account.Kept != 2 {
		t.Errorf("got %+v, want %v", s.Account, want)
	}
	if !slices.ContainsFunc(s.Findings, func(f trace.Finding) bool { return f.Code == "duplicate" }) {
		t.Errorf("got %v", s.Findings)
	}
}

// TestServersOfNoRun: an output folder whose runs are all left out has no servers, which is no error.
func TestServersOfNoRun(t *testing.T) {
	o := DefaultOptions()
	servers, err := RunServers(context.Background(), t.TempDir(), &result.Extract{}, nil, &o, nil)
	if err != nil || servers == nil || len(servers) != 0 {
		t.Errorf("got %v, %v", servers, err)
	}
}
