package features

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Slots of 1.1 by name, so that a changed list fails loudly.
func slot(t testing.TB, fs []Feature, name string) int {
	t.Helper()
	i := slices.IndexFunc(fs, func(f Feature) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("no feature %q", name)
	}
	return i
}

// spec#chunk-invariance: the sum of prefill_causal_work over the chunks of a prompt of p new tokens
// is p(p+1)/2 for any chunking, and so is f2 over the steps.
func TestChunkInvariance(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	s := space(t, V11, dense(1))
	f2 := slot(t, s.BetaFeatures(), "prefill_attention")
	for range 200 {
		prompt := int64(1 + r.IntN(20000))
		var work, feature float64
		for done := int64(0); done < prompt; {
			n := 1 + r.Int64N(prompt-done)
			in := Sum(V11, []trace.Chunk{{Computed: done, Prompt: prompt, New: n}})
			work += in.PrefillCausalWork
			feature += beta(t, s, in)[f2]
			done += n
		}
		p := float64(prompt)
		if want := p * (p + 1) / 2; work != want {
			t.Fatalf("prompt %d: got work %g, want %g", prompt, work, want)
		}
		whole := beta(t, s, Sum(V11, []trace.Chunk{{Prompt: prompt, New: prompt}}))[f2]
		if math.Abs(feature-whole) > 1e-10*whole {
			t.Fatalf("prompt %d: got f2 %g over chunks, want %g", prompt, feature, whole)
		}
	}
}

// spec#beta-decode-weight-load: f1 + f3 = max(linear compute, weight load).
func TestEqualCoefficientsGiveTheRoofline(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for _, s := range []*Space{space(t, V11, dense(1)), space(t, V11, moe(2))} {
		f1 := slot(t, s.BetaFeatures(), "prefill_linear_compute")
		f3 := slot(t, s.BetaFeatures(), "decode_weight_load")
		for range 500 {
			in := randomStep(r, s)
			x := beta(t, s, in)
			parts := s.Roofline(&in)
			if want := max(parts.LinearS, parts.WeightS); !close(x[f1]+x[f3], want) {
				t.Fatalf("f1 + f3: got %g, want %g", x[f1]+x[f3], want)
			}
		}
	}
}

// Work of a dense model is shared by the group, so that its time-like compute and memory features
// scale with 1/tp.
func TestDenseFeaturesScaleWithOneOverTP(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	one := space(t, V11, dense(1))
	four := space(t, V11, dense(4))
	names := []string{"prefill_linear_compute", "prefill_attention", "decode_weight_load", "decode_attention", "kv_cache_read"}
	for range 200 {
		in := randomStep(r, one)
		a, b := beta(t, one, in), beta(t, four, in)
		for _, name := range names {
			i := slot(t, one.BetaFeatures(), name)
			if math.Abs(a[i]-4*b[i]) > 1e-12*(a[i]+1e-9) {
				t.Fatalf("%s: got %g at tp 1 and %g at tp 4, want a quarter", name, a[i], b[i])
			}
		}
	}
}

// spec#alpha-admission-compute: admission_compute is beta f1 + f2 of an unchunked prefill.
func TestAdmissionComputeIsAnUnchunkedPrefill(t *testing.T) {
	for _, s := range []*Space{space(t, V11, dense(1)), space(t, V11, dense(2)), space(t, V11, moe(4))} {
		f1 := slot(t, s.BetaFeatures(), "prefill_linear_compute")
		f2 := slot(t, s.BetaFeatures(), "prefill_attention")
		a3 := slot(t, s.AlphaFeatures(), "admission_compute")
		for _, p := range []int64{0, 1, 2, 17, 512, 8192, 131072} {
			x := beta(t, s, Sum(V11, []trace.Chunk{{Prompt: p, New: p}}))
			got := alpha(t, s, QueueInput{PromptTokens: float64(p)})[a3]
			if !close(got, x[f1]+x[f2]) {
				t.Errorf("prompt %d: got %g, want %g", p, got, x[f1]+x[f2])
			}
		}
	}
}

// spec#empty-step: an empty step gives 0 in every beta slot except 10, 12, 16 (1.1) or 10, 11 (=
// 1), 12, 16 (1.0), and f13, f14 if transfers happened.
func TestEmptyStep(t *testing.T) {
	nonzero := map[Version][]string{
		V10: {"gqa_efficiency", "fixed_step_overhead", "preemption_overhead", "bias"},
		V11: {"gqa_efficiency", "preemption_overhead", "bias"},
		V12: {"gqa_efficiency", "preemption_overhead", "bias"},
		V13: {"gqa_efficiency", "preemption_overhead", "bias"},

		Experimental: {"gqa_efficiency", "preemption_overhead", "bias"},
	}
	for _, s := range spaces(t) {
		for _, moved := range []float64{0, 3} {
			in := StepInput{PreemptionEMA: 0.5, TransferBlocks: moved, CPUResidentReadBlocks: moved}
			x := beta(t, s, in)
			for i, f := range s.BetaFeatures() {
				want := slices.Contains(nonzero[s.Version()], f.Name) ||
					moved > 0 && s.Deployment().Engine.CPUOffloading && (f.Name == "cpu_offload_transfer" || f.Name == "cpu_offload_kv_read")
				if (x[i] != 0) != want {
					t.Errorf("%s %s: got %g in an empty step with %g transfers; nonzero lists what is not 0 there", s.Version(), f.Name, x[i], moved)
				}
			}
			if s.Version() == V10 && x[slot(t, s.BetaFeatures(), "fixed_step_overhead")] != 1 {
				t.Errorf("1.0 fixed_step_overhead: got %g, want 1", x[slot(t, s.BetaFeatures(), "fixed_step_overhead")])
			}
		}
	}
}

// spec#bounds: upper bounds are never below a legal value.
func TestBoundsNeverTruncateLegalInput(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	for _, s := range spaces(t) {
		if s.Version() == V10 {
			continue
		}
		x := make([]float64, len(s.BetaFeatures()))
		q := make([]float64, len(s.AlphaFeatures()))
		for range 300 {
			in := randomStep(r, s)
			if hits, err := s.Beta(&in, x); err != nil || hits != 0 {
				t.Fatalf("beta: %s, %v", beyond(hits, s.BetaFeatures()), err)
			}
			queue := randomQueue(r, s)
			if hits, err := s.Alpha(&queue, q); err != nil || hits != 0 {
				t.Fatalf("alpha: %s, %v", beyond(hits, s.AlphaFeatures()), err)
			}
		}
		// the largest step a server can be asked for: a million tokens, all seats
		big := s.Sum([]trace.Chunk{{Prompt: 1 << 20, New: 1 << 20}})
		if hits, err := s.Beta(&big, x); err != nil || hits != 0 {
			t.Errorf("1M-token prefill: %s, %v", beyond(hits, s.BetaFeatures()), err)
		}
		full := QueueInput{RunningDepth: 256, WaitingDepth: 1e6, KVUsageRatio: 1, PromptTokens: 1 << 20, PrefixHitRatio: 1}
		if hits, err := s.Alpha(&full, q); err != nil || hits != 0 {
			t.Errorf("a million waiting, a prompt of 2^20 tokens: %s, %v", beyond(hits, s.AlphaFeatures()), err)
		}
	}
}

// beyond names the features whose bound a legal value exceeds.
func beyond(hits Hits, features []Feature) string {
	names := []string{}
	for _, slot := range hits.Slots() {
		names = append(names, features[slot-1].Name)
	}
	return fmt.Sprintf("got values beyond the Bound of %q, want a Bound over every legal value", names)
}

// spec#bound-hits: a value above its bound is clipped and named.
func TestHitsNameTheSlot(t *testing.T) {
	s := space(t, V11, dense(1))
	q := make([]float64, len(s.AlphaFeatures()))
	hits, err := s.Alpha(&QueueInput{RunningDepth: 5 * 256, PreemptionEMA: 1e5, KVUsageRatio: 1}, q)
	if err != nil || !slices.Equal(hits.Slots(), []int{1, 9}) || q[0] != 4 || q[8] != 1e4 || hits.count() != 2 {
		t.Errorf("got %v, %v, %v", q, hits.Slots(), err)
	}
}

// spec#finite: NaN or infinity in any input is an error, never a value.
func TestNaNAndInfAreErrors(t *testing.T) {
	for _, s := range spaces(t) {
		x := make([]float64, len(s.BetaFeatures()))
		q := make([]float64, len(s.AlphaFeatures()))
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			for _, f := range stepFields {
				in := Sum(s.Version(), []trace.Chunk{{Prompt: 10, New: 10}})
				*f.at(&in) = bad
				if _, err := s.Beta(&in, x); trace.CodeOf(err) != BadInput {
					t.Errorf("%s %s = %g: got %v, want %s", s.Version(), f.name, bad, err, BadInput)
				}
			}
			for _, f := range queueFields {
				in := QueueInput{}
				*f.at(&in) = bad
				if _, err := s.Alpha(&in, q); trace.CodeOf(err) != BadInput {
					t.Errorf("%s %s = %g: got %v, want %s", s.Version(), f.name, bad, err, BadInput)
				}
			}
		}
	}
	slow := dense(1)
	slow.Hardware.TFlopsPeak = 1e-9
	s := space(t, V11, slow)
	in := StepInput{PrefillCausalWork: math.MaxFloat64}
	if _, err := s.Beta(&in, make([]float64, len(s.BetaFeatures()))); trace.CodeOf(err) != BadInput {
		t.Errorf("overflow inside a feature: got %v, want %s", err, BadInput)
	}
}

// spec#input-checks: contradictions between the counts of a step.
func TestContradictions(t *testing.T) {
	s := space(t, V11, dense(1))
	legal := Sum(V11, []trace.Chunk{{Prompt: 10, New: 10}, {Computed: 7, Prompt: 5, New: 1}})
	cases := []struct {
		name string
		edit func(*StepInput)
		want trace.Code
	}{
		{"legal", func(*StepInput) {}, ""},
		{"negative", func(in *StepInput) { in.KVReadTokens = -1 }, BadInput},
		{"tokens", func(in *StepInput) { in.ScheduledTokens++ }, BadInput},
		{"decode requests", func(in *StepInput) { in.NumDecodeReqs++ }, BadInput},
		{"prefill without tokens", func(in *StepInput) { in.PrefillTokens = 0; in.ScheduledTokens = 1 }, BadInput},
		{"tokens without prefill", func(in *StepInput) { in.NumPrefillReqs = 0 }, BadInput},
		{"fewer tokens than prefills", func(in *StepInput) { in.NumPrefillReqs = 11 }, BadInput},
		{"sampled", func(in *StepInput) { in.NumSampledSeqs = 3 }, BadInput},
	}
	for _, c := range cases {
		in := legal
		c.edit(&in)
		if _, err := s.Beta(&in, make([]float64, len(s.BetaFeatures()))); trace.CodeOf(err) != c.want {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// The time-like terms together never fall when a token is added, and none but
// decode_weight_load falls alone.
func TestStepFeaturesGrowWithTokens(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	for _, s := range []*Space{space(t, V11, dense(1)), space(t, V11, dense(2)), space(t, V11, moe(1))} {
		weights := slot(t, s.BetaFeatures(), "decode_weight_load")
		mix := slot(t, s.BetaFeatures(), "prefill_decode_mix")
		for range 300 {
			chunks := randomBatch(r)
			before := beta(t, s, s.Sum(chunks))
			after := beta(t, s, s.Sum(append(chunks, trace.Chunk{Prompt: 50, New: 50})))
			var sumBefore, sumAfter float64
			for i, f := range s.BetaFeatures() {
				if f.IsTime() {
					sumBefore += before[i]
					sumAfter += after[i]
				}
				if i != weights && i != mix && after[i] < before[i] {
					t.Fatalf("%s: got %g after %g with 50 more prompt tokens", f.Name, after[i], before[i])
				}
			}
			if sumAfter < sumBefore*(1-1e-12) {
				t.Fatalf("time: got %g s after %g s with 50 more prompt tokens", sumAfter, sumBefore)
			}
		}
	}
}

// The alpha features grow with queue, seats, cache use and prompt.
func TestQueueFeaturesGrowWithLoad(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	s := space(t, V11, moe(2))
	grow := []func(*QueueInput){
		func(q *QueueInput) { q.RunningDepth++ },
		func(q *QueueInput) { q.WaitingDepth++ },
		func(q *QueueInput) { q.KVUsageRatio = min(1, q.KVUsageRatio+0.05) },
		func(q *QueueInput) { q.PromptTokens += 100 },
		func(q *QueueInput) { q.KVFreeBlocks = max(0, q.KVFreeBlocks-10) },
	}
	for range 300 {
		q := randomQueue(r, s)
		q.RunningDepth = min(q.RunningDepth, 255)
		before := alpha(t, s, q)
		for i, g := range grow {
			more := q
			g(&more)
			after := alpha(t, s, more)
			for j := range after {
				if after[j] < before[j]*(1-1e-12) {
					t.Fatalf("change %d, %s: got %g after %g", i, s.AlphaFeatures()[j].Name, after[j], before[j])
				}
			}
		}
	}
}

// The gate is 0 on an idle server, 1 when seats or blocks are full.
func TestGateOpensAndCloses(t *testing.T) {
	for _, s := range spaces(t) {
		for _, c := range []struct{ running, usage, want float64 }{{0, 0, 0}, {256, 0, 1}, {0, 1, 1}, {128, 0.5, 0.75}, {512, 0, 1}} {
			if got := s.gateAt(c.running, c.usage); got != c.want {
				t.Errorf("gate(%g, %g): got %g, want %g", c.running, c.usage, got, c.want)
			}
		}
	}
}

// KV reads scale with 1/tp until KV heads are replicated.
func TestKVReadStopsScalingWhenHeadsAreReplicated(t *testing.T) {
	in := Sum(V11, []trace.Chunk{{Computed: 1000, Prompt: 10, New: 1}})
	f5 := slot(t, BetaFeatures(V11), "kv_cache_read")
	at := func(tp int64) float64 { return beta(t, space(t, V11, dense(tp)), in)[f5] }
	if !close(at(8), at(1)/8) || !close(at(16), at(8)) {
		t.Errorf("got %g, %g, %g at tp 1, 8, 16, want an eighth and then no change", at(1), at(8), at(16))
	}
}

// Collectives and experts cost nothing at tp = 1 and for dense models.
func TestTermsThatNeedADegree(t *testing.T) {
	in := Sum(V11, []trace.Chunk{{Prompt: 100, New: 100}})
	x := beta(t, space(t, V11, dense(1)), in)
	for _, name := range []string{"tp_communication", "moe_activation", "cpu_offload_transfer", "cpu_offload_kv_read"} {
		if v := x[slot(t, BetaFeatures(V11), name)]; v != 0 {
			t.Errorf("%s: got %g on a dense model at tp 1 without offloading, want 0", name, v)
		}
	}
	y := beta(t, space(t, V11, dense(2)), in)
	if y[slot(t, BetaFeatures(V11), "tp_communication")] < 65e-5 {
		t.Errorf("tp_communication: got %g, want at least 65 collectives of 10 us", y[slot(t, BetaFeatures(V11), "tp_communication")])
	}
}

// Every formula, evaluated as text, gives what its function gives, and every
// derived constant what its derivation says.
func TestFormulasSayWhatTheFunctionsDo(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	for _, s := range spaces(t) {
		empty := s.scope(nil, nil, nil)
		for _, c := range s.constants() {
			if c.Formula == "" {
				continue
			}
			if got, err := empty.eval(c.Formula); err != nil || !close(got, c.Value) {
				t.Errorf("%s %s = %s: got %g, %v, want %g", s.Version(), c.Name, c.Formula, got, err, c.Value)
			}
		}
		for range 50 {
			in, q := randomStep(r, s), randomQueue(r, s)
			checkFormulas(t, s, s.inputs(&in), s.BetaFeatures(), beta(t, s, in))
			checkFormulas(t, s, q.Values(), s.AlphaFeatures(), alpha(t, s, q))
		}
		checkFormulas(t, s, s.inputs(&StepInput{}), s.BetaFeatures(), beta(t, s, StepInput{}))
	}
}

func checkFormulas(t *testing.T, s *Space, inputs []Quantity, fs []Feature, x []float64) {
	t.Helper()
	sc := s.scope(inputs, fs, x)
	for i := range fs {
		got, err := sc.eval(fs[i].Formula)
		got = min(got, fs[i].Bound)
		if err != nil || math.Abs(got-x[i]) > 1e-9*math.Abs(x[i])+1e-15 {
			t.Errorf("%s %s = %s: got %g, %v, want %g", s.Version(), fs[i].Name, fs[i].Formula, got, err, x[i])
		}
	}
}

func TestExplainAddsUp(t *testing.T) {
	s := space(t, V11, dense(2))
	in := Sum(V11, []trace.Chunk{{Prompt: 512, New: 512}, {Computed: 99, Prompt: 50, New: 1}})
	coefficients := make([]float64, len(s.BetaFeatures()))
	for i := range coefficients {
		coefficients[i] = float64(i + 1)
	}
	e, err := s.ExplainBeta(&in, coefficients)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i, v := range beta(t, s, in) {
		sum += coefficients[i] * v
	}
	if !close(*e.PredictionUs, sum) || len(e.Features) != len(coefficients) || e.Features[0].Numbers == e.Features[0].Formula {
		t.Errorf("got %g us in %d features (%s), want %g", *e.PredictionUs, len(e.Features), e.Features[0].Numbers, sum)
	}
	if e.Features[10].Numbers != "pos(513)*32*1e-5" {
		t.Errorf("got %q", e.Features[10].Numbers)
	}
	if _, err := s.ExplainBeta(&in, coefficients[:2]); trace.CodeOf(err) != WrongFeatureSet {
		t.Errorf("two coefficients: got %v", err)
	}
}

func TestFeaturesAllocateNothing(t *testing.T) {
	for _, s := range spaces(t) {
		x := make([]float64, len(s.BetaFeatures()))
		q := make([]float64, len(s.AlphaFeatures()))
		in := s.Sum([]trace.Chunk{{Prompt: 512, New: 512}})
		if n := testing.AllocsPerRun(100, func() { _, _ = s.Beta(&in, x) }); n != 0 {
			t.Errorf("%s beta: got %g allocations, want 0", s.Version(), n)
		}
		queue := QueueInput{RunningDepth: 3}
		if n := testing.AllocsPerRun(100, func() { _, _ = s.Alpha(&queue, q) }); n != 0 {
			t.Errorf("%s alpha: got %g allocations, want 0", s.Version(), n)
		}
	}
}

// Every slot carries what the trainer, the report and the explain command need.
func TestListsAreComplete(t *testing.T) {
	for _, v := range Versions() {
		for _, fs := range [][]Feature{BetaFeatures(v), AlphaFeatures(v)} {
			seen := map[string]bool{}
			for i, f := range fs {
				if f.Slot != i+1 || f.Name == "" || f.Kind == "" || f.Doc == "" || f.Formula == "" || !(f.Bound > 0) || !(f.Penalty > 0) ||
					!(f.PenaltyOne > 0) || (f.beta == nil) == (f.alpha == nil) || seen[f.Name] {
					t.Errorf("%s slot %d: incomplete %+v", v, i+1, f)
				}
				seen[f.Name] = true
			}
		}
	}
}

func TestUnknownVersionsAreRefused(t *testing.T) {
	if _, err := New("2.0", dense(1)); trace.CodeOf(err) != UnknownSpecVersion {
		t.Errorf("got %v, want %s", err, UnknownSpecVersion)
	}
	if BetaFeatures("2.0") != nil || AlphaFeatures("") != nil {
		t.Error("an unknown version has features")
	}
}

// Each fault of a deployment has its code.
func TestRejectedDeployments(t *testing.T) {
	cases := []struct {
		name string
		edit func(*deploy.Deployment)
		v10  trace.Code
		v11  trace.Code
	}{
		{"legal", func(*deploy.Deployment) {}, "", ""},
		{"token budget", func(d *deploy.Deployment) { d.Engine.MaxNumBatchedTokens = 0 }, vllm.BadKnobs, vllm.BadKnobs},
		{"seats", func(d *deploy.Deployment) { d.Engine.MaxNumSeqs = -1 }, vllm.BadKnobs, vllm.BadKnobs},
		{"block size", func(d *deploy.Deployment) { d.Engine.BlockSize = 0 }, vllm.BadKnobs, vllm.BadKnobs},
		{"heads", func(d *deploy.Deployment) { d.Model.NumHeads = 0 }, model.BadModel, model.BadModel},
		{"bandwidth", func(d *deploy.Deployment) { d.Hardware.BwPeakTBs = math.NaN() }, deploy.BadHardware, deploy.BadHardware},
		{"tp 0", func(d *deploy.Deployment) { d.TP = 0 }, vllm.BadKnobs, vllm.BadKnobs},
		{"no link", func(d *deploy.Deployment) { d.TP, d.Hardware.InterconnectBandwidthGBs = 2, 0 }, deploy.BadHardware, deploy.BadHardware},
		{"no PCIe", func(d *deploy.Deployment) {
			d.Engine.CPUOffloading = true
			d.Hardware.PCIeBandwidthGBs = 0
		}, deploy.BadHardware,
			deploy.BadHardware},
		{"efficiency", func(d *deploy.Deployment) { d.Hardware.PCIeEfficiency = 0 }, deploy.BadHardware, deploy.BadHardware},
		{"top k", func(d *deploy.Deployment) { d.Model.NumExperts, d.Model.TopK = 8, 9 }, model.BadModel, model.BadModel},
		{"tp 3", func(d *deploy.Deployment) { d.TP = 3 }, "", vllm.BadKnobs},
		{"tp over KV heads", func(d *deploy.Deployment) {
			d.TP = 4
			d.Model.NumHeads = 36
			d.Model.NumKVHeads = 6
		}, "", vllm.BadKnobs},
		{"offloading without blocks", func(d *deploy.Deployment) {
			d.Engine.CPUOffloading = true
			d.Engine.KVBlocksGPU = trace.Opt[int64]{}
		}, "",
			vllm.BadKnobs},
		{"MoE layers", func(d *deploy.Deployment) {
			d.Model.NumExperts = 8
			d.Model.TopK = 2
			d.Model.NumMoELayers = 33
			d.Model.MoEIntermediateSize = 10
		}, "", model.BadModel},
		{"pipeline", func(d *deploy.Deployment) { d.PP = 2 }, "", vllm.UnsupportedEngine},
		{"expert parallel", func(d *deploy.Deployment) { d.Engine.ExpertParallel = true }, "", vllm.UnsupportedEngine},
		{"speculative", func(d *deploy.Deployment) { d.Engine.SpeculativeDecoding = true }, "", vllm.UnsupportedEngine},
	}
	for _, c := range cases {
		d := dense(1)
		c.edit(d)
		_, err10 := New(V10, d)
		_, err11 := New(V11, d)
		if trace.CodeOf(err10) != c.v10 || trace.CodeOf(err11) != c.v11 {
			t.Errorf("%s: got %v and %v, want %q and %q", c.name, err10, err11, c.v10, c.v11)
		}
	}
}

func BenchmarkFeatureVector(b *testing.B) {
	r := rand.New(rand.NewPCG(8, 1))
	for _, v := range Versions() {
		for _, d := range []*deploy.Deployment{dense(2), moe(2)} {
			s := space(b, v, d)
			name := "dense"
			if d.Model.IsMoE() {
				name = "moe"
			}
			inputs := make([]StepInput, 64)
			for i := range inputs {
				inputs[i] = randomStep(r, s)
			}
			queues := make([]QueueInput, 64)
			for i := range queues {
				queues[i] = randomQueue(r, s)
			}
			b.Run("beta/"+string(v)+"/"+name, func(b *testing.B) {
				x := make([]float64, len(s.BetaFeatures()))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := s.Beta(&inputs[i%64], x); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "vectors/s")
			})
			b.Run("alpha/"+string(v)+"/"+name, func(b *testing.B) {
				x := make([]float64, len(s.AlphaFeatures()))
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := s.Alpha(&queues[i%64], x); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "vectors/s")
			})
		}
	}
}

// TestExplainOnChargesFactors: terms, prompt factor and deployment factor add up to what a simulation charges of a step, on
// deployments with both factors, with the device's alone and with none.
func TestExplainOnChargesFactors(t *testing.T) {
	d := dense(2)
	d.Hardware.Name = "H100-SXM-80GB"
	rng := rand.New(rand.NewPCG(42, 1))
	for _, c := range []struct {
		name           string
		prompt, all    map[string]float64
		device         map[string]float64
		wantP, wantAll float64
	}{
		{"both", map[string]float64{d.Label(): 0.98}, map[string]float64{d.Label(): 1.01498}, nil, 0.98, 1.01498},
		{"the device's", nil, nil, map[string]float64{"H100-SXM-80GB": 1.2}, 1, 1.2},
		{"none", nil, nil, nil, 1, 1},
	} {
		set := &coeff.Set{SpecVersion: V11, PromptFactors: c.prompt, DeploymentFactors: c.all, HardwareFactors: c.device}
		s := space(t, V11, d)
		for range s.BetaFeatures() {
			set.Beta = append(set.Beta, coeff.Coefficient{Value: rng.Float64() * 100})
		}
		for range 42 {
			batch := []trace.Chunk{{Computed: 50 + rng.Int64N(900), Prompt: 50, New: 1}}
			if n := 1 + rng.Int64N(600); n%2 == 0 {
				batch = append(batch, trace.Chunk{Prompt: n, New: n})
			}
			in := Sum(V11, batch)
			e, _, err := s.ExplainOn(&in, set, d)
			if err != nil {
				t.Fatal(err)
			}
			sum, want := 0.0, 0.0
			for i, f := range e.Features {
				sum += *f.ContributionUs
				part := set.Beta[i].Value * f.Value * c.wantAll
				if s.beta[i].Prompt {
					part *= c.wantP
				}
				want += part
			}
			for _, f := range e.Factors {
				sum += f.AddedUs
			}
			if e.Factors[0].Value != c.wantP || e.Factors[1].Value != c.wantAll || math.Abs(sum-want) > 1e-9*want ||
				math.Abs(*e.PredictionUs-want) > 1e-9*want {
				t.Fatalf("%s: lines add up to %g, last line %g, want %g us; factors %+v", c.name, sum, *e.PredictionUs, want, e.Factors)
			}
		}
	}
}
