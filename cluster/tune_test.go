package cluster

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/sim"
)

// TestTunableParameters: the range of each parameter of each policy, its middle on a logarithmic scale, and the field of the
// specification that it sets.
func TestTunableParameters(t *testing.T) {
	budget := func(class string) func(*Spec) float64 {
		return func(s *Spec) float64 { return s.Admission.BudgetsMs[class] }
	}
	limit := func(class string) func(*Spec) float64 {
		return func(s *Spec) float64 { return s.Admission.Thresholds[class] }
	}
	weight := func(k int) func(*Spec) float64 {
		return func(s *Spec) float64 {
			var w [2]float64
			fmt.Sscanf(s.Routing.Scorers, "prefix-affinity:%g,queue-depth-effective:%g", &w[0], &w[1])
			return w[k]
		}
	}
	type knob struct {
		name        string
		lo, mid, hi float64
		get         func(*Spec) float64
	}
	weights := []knob{{"pa", 0.5, 2, 8, weight(0)}, {"qd", 0.5, 2, 8, weight(1)}}
	for policy, want := range map[string][]knob{
		"predictive-seed": append([]knob{{"budget_critical_ms", 20, 200, 2000, budget("critical")}, {"budget_standard_ms", 20, 200, 2000, budget("standard")}, {"budget_sheddable_ms", 20, 200, 2000, budget("sheddable")},
			{"step_ms", 1, math.Sqrt(60), 60, func(s *Spec) float64 { return s.Admission.StepMs }}}, weights...),
		"slo-gated": append([]knob{{"threshold_standard", 0.5, 8, 128, limit("standard")}, {"threshold_sheddable", 0.5, 8, 128, limit("sheddable")}}, weights...),
		"probabilistic": append([]knob{{"k", 1, math.Sqrt(1000), 1000, func(s *Spec) float64 { return s.Admission.K }}, {"power", 0.5, math.Sqrt(5), 10, func(s *Spec) float64 { return s.Admission.Power }},
			{"queue_depth_threshold", 1, 10, 100, func(s *Spec) float64 { return s.Admission.QueueThreshold }}}, weights...),
	} {
		got := tunable()[policy]
		if len(got) != len(want) {
			t.Errorf("%s: got %d parameters, want %d", policy, len(got), len(want))
			continue
		}
		middle := make([]float64, len(got))
		for k, w := range want {
			p := got[k]
			middle[k] = 0.5
			if p.Name != w.name || p.Lo != w.lo || p.Hi != w.hi || math.Abs(p.value(0)-w.lo) > 1e-9 || math.Abs(p.value(1)-w.hi) > 1e-9*w.hi || math.Abs(p.value(0.5)-w.mid) > 1e-9*w.mid {
				t.Errorf("%s: got %s from %g by %g to %g, want %+v", policy, p.Name, p.value(0), p.value(0.5), p.value(1), w)
			}
		}
		s := new(tuner).apply(policy, middle)
		for _, w := range want {
			if got := w.get(&s); math.Abs(got-w.mid) > 1e-4*w.mid {
				t.Errorf("%s: %s: got %g, want %g", policy, w.name, got, w.mid)
			}
		}
	}
	if len(tunable()) != 3 {
		t.Errorf("got %d policies", len(tunable()))
	}
	s := specOf("always-admit", scorersNew, "priority-fcfs")
	s.Routing.Scorers = "prefix-affinity:3,queue-depth-effective:2"
	scale := commonScale()
	if scale.set(&s, 0.5); s.Routing.Scorers != "prefix-affinity:1.5,queue-depth-effective:1" || scale.Lo != 0.1 || scale.Hi != 10 {
		t.Errorf("got %s", s.Routing.Scorers)
	}
}

// TestOptimiseOptions: each count at the ends of its range and just beyond, and names that are not known.
func TestOptimiseOptions(t *testing.T) {
	o := DefaultOptimiseOptions()
	if o.Policy != "predictive-seed" || o.Method != methodGP || o.Start != 12 || o.Calls != 30 || o.TrainSeeds != 10 || o.TestSeeds != 20 || !o.Alone || o.Preset != "seed" || o.Seeds != 20 || o.Instances != 8 {
		t.Errorf("got %+v", o)
	}
	for _, c := range []struct {
		change func(o *optimiseOptions)
		want   string // "": it is accepted
	}{
		{func(o *optimiseOptions) {}, ""}, {func(o *optimiseOptions) { o.Policy = "x" }, `--policy: got "x", want predictive-seed, probabilistic, slo-gated`}, {func(o *optimiseOptions) { o.Method = "x" }, `--method: got "x"`}, {func(o *optimiseOptions) { o.Method = methodGrid }, ""},
		{func(o *optimiseOptions) { o.Start = 1 }, "--start, --calls: got 1 and 30"}, {func(o *optimiseOptions) { o.Start = 2 }, ""}, {func(o *optimiseOptions) { o.Calls = -1 }, "got 12 and -1"}, {func(o *optimiseOptions) { o.Calls = 0 }, ""},
		{func(o *optimiseOptions) { o.Calls = 988 }, ""}, {func(o *optimiseOptions) { o.Calls = 989 }, "got 12 and 989"}, {func(o *optimiseOptions) { o.TrainSeeds = 1 }, "got 1 and 20"}, {func(o *optimiseOptions) { o.TrainSeeds = 2 }, ""},
		{func(o *optimiseOptions) { o.TrainSeeds = 100 }, ""}, {func(o *optimiseOptions) { o.TrainSeeds = 101 }, "got 101 and 20"}, {func(o *optimiseOptions) { o.TestSeeds = 1 }, "got 10 and 1"}, {func(o *optimiseOptions) { o.TestSeeds = 2 }, ""},
		{func(o *optimiseOptions) { o.TestSeeds = 1000 }, ""}, {func(o *optimiseOptions) { o.TestSeeds = 1001 }, "got 10 and 1001"}, {func(o *optimiseOptions) { o.Preset = "x" }, `--preset: got "x"`},
		{func(o *optimiseOptions) { o.Preset = "mooncake" }, "--workload: got none, want the Mooncake trace"}, {func(o *optimiseOptions) { o.Preset, o.Workload = "mooncake", "f" }, ""}, {func(o *optimiseOptions) { o.Workload = "f" }, `--workload: got "f" with preset seed`},
	} {
		o := DefaultOptimiseOptions()
		c.change(&o)
		err := o.checkSettings()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", o, err, c.want)
		}
	}
	for _, counts := range [][2]int{{0, 8}, {1001, 8}, {20, 0}, {20, 65}} {
		o := DefaultIsolationOptions()
		o.Seeds, o.Instances = counts[0], counts[1]
		if _, err := Isolation(t.Context(), o); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("got %d and %d, want 1 to 1000 and 1 to 64", counts[0], counts[1])) {
			t.Errorf("%v: got %v", counts, err)
		}
	}
	for _, counts := range [][2]int{{1, 1}, {1000, 64}} {
		o := DefaultIsolationOptions()
		o.Seeds, o.Instances, o.Preset = counts[0], counts[1], "none"
		if _, err := Isolation(t.Context(), o); err == nil || !strings.HasPrefix(err.Error(), `--preset: got "none", want `) {
			t.Errorf("%v: got %v, want an error of the preset alone", counts, err)
		}
	}
}

// TestLoggedCalls: the calls of an interrupted search, without its incomplete last line; a line that is no call is named.
func TestLoggedCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "optimise.jsonl")
	if calls, whole, err := loggedCalls(path); calls != nil || whole != 0 || err != nil {
		t.Errorf("no file: got %v, %d and %v", calls, whole, err)
	}
	text := `{"policy":"a","key":"k","call":0,"method":"gp","x":[0.5,0.25]}` + "\n" + `{"policy":"b","key":"k","call":1,"x":[1]}` + "\n"
	repo.Write(t, text+`{"policy":"c`, path)
	calls, whole, err := loggedCalls(path)
	if err != nil || whole != int64(len(text)) || len(calls) != 2 || calls[0].Policy != "a" || calls[0].Key != "k" || !reflect.DeepEqual(calls[0].X, []float64{0.5, 0.25}) || calls[1].N != 1 {
		t.Errorf("got %+v, %d and %v", calls, whole, err)
	}
	repo.Write(t, text+"x\n", path)
	if _, _, err := loggedCalls(path); err == nil || !strings.HasPrefix(err.Error(), "optimise.jsonl:3") {
		t.Errorf("got %v", err)
	}
}

// TestSearchPoints: the finest grid of 27 and of 26 calls in three dimensions, and the Halton sequence, whose points of a seed
// differ from those of another by a shift.
func TestSearchPoints(t *testing.T) {
	s := search{Dims: 3, Start: 12, Calls: 15}
	for n, want := range map[int][]float64{0: {0, 0, 0}, 1: {0.5, 0, 0}, 2: {1, 0, 0}, 3: {0, 0.5, 0}, 26: {1, 1, 1}} {
		if got := s.gridPoint(n); !reflect.DeepEqual(got, want) {
			t.Errorf("point %d: got %v, want %v", n, got, want)
		}
	}
	s.Calls = 14
	if got := s.gridPoint(3); !reflect.DeepEqual(got, []float64{1, 1, 0}) {
		t.Errorf("26 calls: got %v, want one of two a side", got)
	}
	a, b := halton(0, 2, 5), halton(1, 2, 5)
	for k, want := range []float64{0.25 - 0.5, 2.0/3 - 1.0/3} { // the first points are 1/2 and 1/4, 1/3 and 2/3
		if d := b[k] - a[k] - want; math.Abs(d-math.Round(d)) > 1e-12 {
			t.Errorf("dimension %d: got %g and %g", k, a[k], b[k])
		}
	}
}

// TestRecordedHours: rates, words and equal parts of batches of recorded arrivals.
func TestRecordedHours(t *testing.T) {
	requests := []sim.Request{{ArrivalUs: 0, Hashes: []uint64{1}, HashTokens: 512, PromptTokens: 1000, OutputTokens: 90}, {ArrivalUs: 3_000_000, Hashes: []uint64{1}, HashTokens: 512, PromptTokens: 5, OutputTokens: 5},
		{ArrivalUs: 0, Hashes: []uint64{2}, HashTokens: 512, PromptTokens: 640, OutputTokens: 320}}
	h, err := mooncakeRecording(requests)
	if err != nil {
		t.Fatal(err)
	}
	// Two requests share the 3 s up to the third, whose batch is taken to last as long.
	if !reflect.DeepEqual(h.fromUs, []float64{0, 1.5e6, 3e6}) || !reflect.DeepEqual(h.widthUs, []float64{1.5e6, 1.5e6, 3e6}) || h.lengthUs != 6e6 || h.perSecond() != 0.5 {
		t.Errorf("got %+v", h)
	}
	if q := h.reqs[0]; q.PromptTokens != 62 || q.OutputTokens != 5 || q.HashTokens != 32 || h.reqs[2].PromptTokens != 1 {
		t.Errorf("got %+v", h.reqs)
	}
	if want := "a recorded trace of 3 requests, lengths divided by 16,"; !strings.HasPrefix(h.words(), want) {
		t.Errorf("got %q", h.words())
	}
	h.asTheyAre = true
	if got := h.words(); got != "3 requests of a file, 6 s at 0.5/s, played from a start drawn by seed" {
		t.Errorf("got %q", got)
	}
	if _, err := mooncakeRecording(nil); err == nil {
		t.Error("an empty trace was taken")
	}
	if _, err := mooncakeRecording([]sim.Request{{ArrivalUs: 1}}); err == nil || !strings.Contains(err.Error(), "request 0: got no hash_ids") {
		t.Errorf("got %v", err)
	}
	ratio := priorQuantile(&coeff.Set{Residuals: map[string][][2]float64{"mixed": {{0.1, 0.5}, {0.9, 1.5}}, "decode": {{0.5, 9}}}})
	if math.Abs(ratio(0.5)-1) > 1e-12 || ratio(0.9) != 1.5 || priorQuantile(nil)(0.9) != 1 {
		t.Errorf("got %g and %g", ratio(0.5), ratio(0.9))
	}
	turns := roundRobin{n: 3}
	var order []int
	for range 4 {
		order = append(order, turns.Route(nil, nil))
		turns.Routed(nil, 0)
	}
	if !reflect.DeepEqual(order, []int{0, 1, 2, 0}) {
		t.Errorf("got %v", order)
	}
}
