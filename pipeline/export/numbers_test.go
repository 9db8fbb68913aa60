package export

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// TestLoadsByHand: with the set's own steps and delays the consumer's latencies are the set's, but for what asynchronous
// scheduling makes; steps twice as long take longer. Every figure of a point is that of its own simulation.
func TestLoadsByHand(t *testing.T) {
	d := testkit.Llama8B()
	d.Engine.KVBlocksGPU = trace.Some[int64](2000)
	d.Engine.AsyncScheduling = trace.Some(true)
	set := testkit.PlantedOn(d)
	alpha := []float64{11, 22, 33}
	var asked []float64
	own, err := sim.EngineOf(d, set)
	if err != nil {
		t.Fatal(err)
	}
	as := func(m sim.Model) ConsumerModel {
		return func(alpha []float64) (sim.Parts, error) {
			asked = alpha
			return sim.Parts{Step: m, Overhead: sim.Const(alpha[0]), Egress: sim.Const(alpha[1]), TokenUs: alpha[2]}, nil
		}
	}
	got, err := CompareLoads(set, d, alpha, 20, 6, as(own.Latency))
	if err != nil || len(got.Points) != 3 {
		t.Fatal(got, err)
	}
	traffic := workload.ChatTraffic(d, 20, 6)
	capacity, err := traffic.Capacity(d, own.Latency)
	if err != nil {
		t.Fatal(err)
	}
	theirs := own
	theirs.Async, theirs.EmptyStepUs, theirs.IdleSleepUs, theirs.ScheduleUs = false, 1, 0, 0
	means := func(cfg sim.Config, load float64) [3]float64 {
		t.Helper()
		traffic.Requests, traffic.RateRPS = 1500, load*capacity
		reqs, _ := traffic.Draw()
		ms, err := meanLatencies(&cfg, reqs)
		if err != nil {
			t.Fatal(err)
		}
		return ms
	}
	// No other wait has a smaller sum of squared relative errors of TTFT.
	var misses [][2]float64 // the wait of a load and its TTFT, us
	for _, load := range []float64{0.3, 0.6, 0.8} {
		ttft := means(own, load)[0]
		misses = append(misses, [2]float64{1e3 * (ttft - means(theirs, load)[0]), 1e3 * ttft})
	}
	squares := func(wait float64) (sum float64) {
		for _, m := range misses {
			sum += math.Pow((wait-m[0])/m[1], 2)
		}
		return sum
	}
	wait := got.WaitUs
	if squares(wait) >= squares(1.001*wait) || squares(wait) >= squares(0.999*wait) {
		t.Errorf("a wait of %g us is not the best of the loads %v", wait, misses)
	}
	if wait == 0 || !near(asked[0], 11+wait) || asked[1] != 22 || asked[2] != 33 {
		t.Errorf("got a wait of %g us and delays %v, want %g", got.WaitUs, asked, wait)
	}
	parts, _ := as(own.Latency)([]float64{11 + wait, 22, 33})
	theirs.Apply(parts)
	for i, load := range []float64{0.3, 0.6, 0.8} {
		a, b := means(own, load), means(theirs, load)
		p := got.Points[i]
		if p.LoadFrac != load || !near(p.TTFTMs, a[0]) || !near(p.ITLMs, a[1]) || !near(p.E2EMs, a[2]) || !near(p.TTFTRatio, b[0]/a[0]) || !near(p.ITLRatio, b[1]/a[1]) || !near(p.E2ERatio, b[2]/a[2]) || !near(p.RateRPS, traffic.DrawnRate()) || math.Abs(p.RateRPS/(load*capacity)-1) > 0.1 {
			t.Errorf("load %g: got %+v, want %v and %v", load, p, a, b)
		}
	}
	if _, err := CompareLoads(set, d, alpha, 20, 6, func([]float64) (sim.Parts, error) { return sim.Parts{}, errors.New("no model") }); err == nil || err.Error() != "no model" {
		t.Errorf("got %v", err)
	}
	other := *set
	other.SpecVersion = "9.9"
	if _, err := CompareLoads(&other, d, alpha, 20, 6, as(own.Latency)); err == nil {
		t.Error("version 9.9: got loads")
	}
}

// TestReplicasByHand: the fewest replicas with which no trigger adds one, and with which the target is met.
func TestReplicasByHand(t *testing.T) {
	d := testkit.Llama8B()
	d.Engine.KVBlocksGPU = trace.Some[int64](2000)
	set := testkit.PlantedOn(d)
	m, err := sim.NewPhysics(set, d)
	if err != nil {
		t.Fatal(err)
	}
	traffic := workload.ChatTraffic(d, 20, 6)
	traffic.Shape.Cached = 5
	capacity, err := traffic.Capacity(d, m)
	if err != nil {
		t.Fatal(err)
	}
	rate := 2.5 * capacity
	src := &Source{Set: func() (*coeff.Set, error) { return set, nil }}
	s := &scaler{Uncached: 15, TTFTMs: 100, Threshold: 0.01, Decode: 0.8, statistic: "mean", Rate: &prefillRate{PerS: 5000}}
	state := func(replicas int) replicaLoad {
		t.Helper()
		own := traffic
		own.Requests, own.RateRPS = 1500, rate/float64(replicas)
		x, err := s.simulateReplica(d, m, &own)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	s.TTFTMs = state(5).ttftMs // so that five are just enough
	if err := s.compareReplicas(src, d, Lengths{Prompt: 20, Output: 6}, rate); err != nil || len(s.Notes) != 1 {
		t.Fatal(s.Notes, err)
	}
	formula := 0
	for n := 3; n <= 32 && formula == 0; n++ { // 2.5 times the capacity of one
		x := state(n)
		if math.Ceil(float64(n)*x.inflight/5000/0.01) <= float64(n) && math.Ceil(float64(n)*x.usage/0.8) <= float64(n) {
			formula = n
		}
	}
	want := fmt.Sprintf("%g requests/s of 20 + 6 tokens: the formula keeps %d replicas (simulated mean TTFT %.0f ms); our simulator needs 5 for the target", rate, formula, state(max(3, formula)).ttftMs)
	if s.Notes[0] != want {
		t.Errorf("got %q, want %q", s.Notes[0], want)
	}
	if err := s.compareReplicas(&Source{}, d, Lengths{Prompt: 20, Output: 6}, rate); err == nil || trace.CodeOf(err) != NothingToExport {
		t.Errorf("no coefficients: got %v", err)
	}
	if err := s.compareReplicas(&Source{Set: func() (*coeff.Set, error) { return nil, errors.New("torn") }}, d, Lengths{Prompt: 20, Output: 6}, rate); err == nil || err.Error() != "torn" {
		t.Errorf("got %v", err)
	}
	s = &scaler{Label: "L", Name: "n", Selector: "{a}", Prometheus: "http://p", Rate: &prefillRate{PerS: 5000}, TTFTMs: 200, Share: 0.5, Uncached: 15, Threshold: 0.0985, Decode: 0.8}
	o := s.object()
	if o.Metadata.Name != "n" || o.Spec.Target.Name != "n" || o.Spec.MinReplicas != 1 || o.Spec.Triggers[0].Metadata.Query != "sum(llm_d_epp_inflight_tokens{a}) / 5000" || o.Spec.Triggers[0].Metadata.Threshold != "0.0985" ||
		o.Spec.Triggers[1].Metadata.Query != "sum(vllm:kv_cache_usage_perc{a})" || o.Spec.Triggers[1].Metadata.Threshold != "0.8" || o.Spec.Triggers[1].MetricType != "AverageValue" || o.Spec.Triggers[0].Metadata.Server != "http://p" {
		t.Errorf("got %+v", o)
	}
	if got := s.comments(); got[2] != "threshold = 0.5 x (TTFT target 200 ms - 15 uncached tokens / V_P)" || got[3] != "decode: replicas = ceil(sum(vllm:kv_cache_usage_perc) / 0.8)" {
		t.Errorf("got %q", got)
	}
}

// TestGatesOnACard: a value or unknown, met, not met or not decided; runs that were used and why others were not.
func TestGatesOnACard(t *testing.T) {
	set := testkit.PlantedOn(testkit.Llama8B())
	value, yes, no := 0.12345, true, false
	set.Gates = []coeff.Gate{{Name: "g1", Scope: "s1", Value: &value, Op: "<=", Threshold: 0.25, Pass: &yes}, {Name: "g2", Scope: "s2", Value: &value, Op: "<=", Threshold: 0.1, Pass: &no}, {Name: "g3", Scope: "s3", Op: "<=", Threshold: 0.5}}
	set.SchemaVersion = coeff.SchemaVersion
	set.Purposes = []coeff.PurposeVerdict{{Purpose: "p1", Scope: "s4", Verdict: "pass"}}
	src := Source{Set: func() (*coeff.Set, error) { return set, nil }, Fit: &result.Fit{Runs: []result.FitRun{{ID: "r1", Used: true}, {ID: "r2", Reason: "too short"}}}}
	out, err := card(src, Options{})
	if err != nil {
		t.Fatal(err)
	}
	page := string(out.Files[0].Data)
	for _, line := range []string{"| g1 | s1 | 0.1235 | <= 0.25 | yes |", "| g2 | s2 | 0.1235 | <= 0.1 | no |", "| g3 | s3 | unknown | <= 0.5 | not decided |", "| p1 | s4 | pass |", "| r1 | yes |  |", "| r2 | no | too short |"} {
		if !strings.Contains(page, line) {
			t.Errorf("got %s, want the line %q", page, line)
		}
	}
}

// TestSourcesThatLackSomething: coefficients, a model, one configuration, a place for the ledger.
func TestSourcesThatLackSomething(t *testing.T) {
	src := &Source{Fit: &result.Fit{Configs: []result.FitConfig{{Key: "a", Label: "A"}, {Key: "b", Label: "B"}}}}
	if _, err := src.onlyConfig(Options{}, FormatCard); err == nil || trace.CodeOf(err) != BadEntry || !strings.Contains(err.Error(), "card: got 2 configurations, want one") || trace.HintOf(err) != `--config "A"` {
		t.Errorf("two: got %v", err)
	}
	if _, err := src.Timer(src.Fit.Configs[0]); err == nil || trace.CodeOf(err) != NothingToExport {
		t.Errorf("no model: got %v", err)
	}
	src.Step = func(deploy.Deployment) (StepTimer, error) { return nil, errors.New("torn") }
	if _, err := src.Timer(src.Fit.Configs[0]); err == nil || err.Error() != "A: torn" {
		t.Errorf("got %v", err)
	}
	if _, err := card(Source{Set: func() (*coeff.Set, error) { return nil, errors.New("torn") }}, Options{}); err == nil || err.Error() != "torn" {
		t.Errorf("got %v", err)
	}
	if _, err := card(Source{Set: func() (*coeff.Set, error) { return nil, nil }}, Options{}); err == nil || trace.CodeOf(err) != unlearnedValue {
		t.Errorf("no coefficients: got %v", err)
	}
	dir := t.TempDir()
	if err := Append(dir, entry(1)); err == nil || !strings.HasPrefix(err.Error(), "ledger: ") {
		t.Errorf("a folder: got %v", err)
	}
	path := filepath.Join(dir, "l")
	for text, want := range map[string]bool{"": false, "a\n": false, "a": true} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		torn, err := endsTorn(f)
		if f.Close(); err != nil || torn != want {
			t.Errorf("%q: got %v, %v", text, torn, err)
		}
		if _, err := endsTorn(f); err == nil {
			t.Error("a closed file: got no error")
		}
		if err := appendLocked(f, nil); err == nil {
			t.Error("a closed file: got no error")
		}
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := appendLocked(f, []byte("x\n")); err == nil || !strings.HasPrefix(err.Error(), "ledger: ") {
		t.Errorf("a file to read alone: got %v", err)
	}
}
