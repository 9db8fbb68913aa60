package sim

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// warner is a model of 700 us that warns.
type warner struct{ fails bool }

func (w warner) StepUs(*Batch) (float64, error) {
	if w.fails {
		return 0, errors.New("no time")
	}
	return 700, nil
}
func (warner) Warnings() []trace.Finding { return []trace.Finding{{Code: "w"}} }

// TestModelsAroundAModel: the drafter's passes are added where a token is sampled, the exchange where ranks run in lockstep.
func TestModelsAroundAModel(t *testing.T) {
	plain := testkit.Llama8B()
	if got := WithDrafter(warner{}, plain); got != Model(warner{}) {
		t.Errorf("no drafter: got %T", got)
	}
	if got := WithExchange(warner{}, plain); got != Model(warner{}) {
		t.Errorf("one rank: got %T", got)
	}
	of := func(settings ...string) *deploy.Deployment {
		t.Helper()
		d, err := deploy.LoadSettings(append([]string{"hardware.name=H100", "vllm.version=0.19.0", "vllm.max_num_seqs=64", "vllm.max_num_batched_tokens=2048", "vllm.max_model_len=4096"}, settings...)...)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	drafts := of("model.id=deepseek-ai/DeepSeek-V3", "tensor_parallel_size=8", `vllm.speculative_config={"method":"mtp","num_speculative_tokens":3}`)
	us, passes := drafts.DrafterUs()
	m := WithDrafter(warner{}, drafts)
	one := NewBatch(nil)
	one.AddDecodes(2, 100, 10)
	if got, err := m.StepUs(one); err != nil || us <= 0 || passes < 1 || !close9(got, 700+us*float64(passes)) {
		t.Errorf("got %g us, %v, want 700 and %d passes of %g", got, err, passes, us)
	}
	if got, err := m.StepUs(NewBatch(nil)); err != nil || got != 700 {
		t.Errorf("no token: got %g us, %v", got, err)
	}
	if w := m.(*drafting).Warnings(); len(w) != 1 || w[0].Code != "w" {
		t.Errorf("got %v", w)
	}
	if w := (&drafting{Model: sevenUs{}}).Warnings(); w != nil {
		t.Errorf("a model without warnings: got %v", w)
	}
	spread := of("model.id=Qwen/Qwen3-30B-A3B", "data_parallel_size=4", "vllm.enable_expert_parallel=true")
	e := WithExchange(warner{}, spread)
	one.Among = &features.Group{Tokens: 128}
	if got, err := e.StepUs(one); err != nil || !close9(got, 700+spread.ExchangeUs(128)) || got == 700 {
		t.Errorf("128 tokens: got %g us, %v, want 700 and %g", got, err, spread.ExchangeUs(128))
	}
	one.Among = nil
	if got, err := e.StepUs(one); err != nil || got != 700 {
		t.Errorf("alone: got %g us, %v", got, err)
	}
	for _, m := range []Model{WithDrafter(warner{fails: true}, drafts), WithExchange(warner{fails: true}, spread)} {
		if _, err := m.StepUs(one); err == nil {
			t.Errorf("%T: a model without a time: got none", m)
		}
	}
}

// sevenUs is a model of 7 us without warnings.
type sevenUs struct{}

func (sevenUs) StepUs(*Batch) (float64, error) { return 7, nil }

// TestStepsOfTables: the sum of the corrections times the kernels' times, which are the derivatives.
func TestStepsOfTables(t *testing.T) {
	d := testkit.Llama8B()
	d.Hardware, _ = deploy.Datasheet("H100")
	s, err := library.Bound(d, library.Options{})
	if err != nil {
		t.Fatal(err)
	}
	theta := library.Learned().On(d.Hardware.Name)
	m := NewTables(s, theta)
	b := NewBatch(nil)
	b.AddPrefill(0, 400, 400)
	b.AddDecodes(7, 7000, 440)
	got, err := m.StepUs(b)
	if err != nil {
		t.Fatal(err)
	}
	in := b.Kernels()
	if in.Tokens != 407 || in.Sequences != 8 || in.Decodes != 7 || in.DecodeContext != 7000 || in.Prefills != 1 || in.PrefillTokens != 400 || in.PrefillPairs != 400*401/2 || in.Run != 0 {
		t.Errorf("got %+v", in)
	}
	var x [library.NumStep]float64
	s.NewPricer().Features(&in, &theta, &x)
	want := 0.0
	for i := range x {
		want += theta[i] * x[i]
	}
	if got != want || want < 1000 || !slices.Equal(m.Features(), x[:]) {
		t.Errorf("got %g us and %v, want %g and %v", got, m.Features(), want, x)
	}
	b.Among = &features.Group{Tokens: 900, Padded: 512, Imbalance: 1.5}
	if in = b.Kernels(); in.Run != 512 || in.All != 900 || in.Imbalance != 1.5 {
		t.Errorf("ranks: got %+v", in)
	}
}

// TestModelsThatAreRefused: other numbers of coefficients, versions that do not exist, and targets that include queueing.
func TestModelsThatAreRefused(t *testing.T) {
	d := testkit.Llama8B()
	set := testkit.PlantedOn(d)
	other := *set
	other.SpecVersion = "9.9"
	if m, err := NewPhysics(&other, d); err == nil || m != nil {
		t.Errorf("version 9.9: got %v, %v", m, err)
	}
	if m, err := NewAlphaDelay(&other, coeff.Overhead, d); err == nil || m != nil {
		t.Errorf("version 9.9: got %v, %v", m, err)
	}
	if m, err := NewAlphaDelay(set, coeff.Queue, d); err == nil || m != nil {
		t.Errorf("a delay with queueing: got %v, %v", m, err)
	}
	if cfg, err := EngineOf(d, &other); err == nil || cfg.Latency != nil {
		t.Errorf("version 9.9: got %v, %v", cfg, err)
	}
	cfg, err := EngineOf(d, set)
	if err != nil || cfg.GammaEMA != set.Gamma || cfg.Latency == nil {
		t.Errorf("got %+v, %v", cfg, err)
	}
	three := []float64{1.9, 2.9, 3.9}
	if m, err := NewBlackbox([]float64{1}, three); err == nil || m != nil {
		t.Errorf("one alpha: got %v", m)
	}
	if m, err := NewBlackbox(three, []float64{1, 2}); err == nil || m != nil || err.Error() != "bad_coefficient_file: blackbox beta coefficients: got 2 values, want 3" {
		t.Errorf("two betas: got %v, %v", m, err)
	}
	if m, err := NewTrainedPhysics(three, []float64{1}, d); err == nil || m != nil {
		t.Errorf("one beta: got %v", m)
	}
	if m, err := NewTrainedPhysics([]float64{1}, make([]float64, 10), d); err == nil || m != nil {
		t.Errorf("one alpha: got %v", m)
	}
	m, err := NewTrainedPhysics(three, make([]float64, 10), d)
	if err != nil {
		t.Fatal(err)
	}
	p := m.Parts()
	if p.Overhead != Delay(Const(1)) || p.Egress != Delay(Const(2)) || p.TokenUs != 3 {
		t.Errorf("got %+v, want whole microseconds", p)
	}
	b := NewBatch(nil)
	b.AddDecodes(1, 10, 1)
	if us, err := m.StepUs(b); err != nil || us != 1 {
		t.Errorf("no coefficient above 0: got %g us, %v, want at least 1", us, err)
	}
}

// TestRecordedStamps: of steps 5 to 7, of which 6 was not recorded.
func TestRecordedStamps(t *testing.T) {
	r := &Recorded{First: 5, Start: []int64{100, Unknown, 300}, End: []int64{150, Unknown, 360}, FallbackUs: 0.5}
	for step, want := range map[int64][2]int64{4: {9, -1}, 5: {100, 150}, 6: {9, -1}, 7: {300, 360}, 8: {9, -1}} {
		end, ok := r.EndUs(step, 0)
		if got := r.StartUs(step, 9); got != want[0] || ok != (want[1] >= 0) || ok && end != want[1] {
			t.Errorf("step %d: got %d to %d, %v, want %v", step, got, end, ok, want)
		}
	}
	if us, err := r.StepUs(nil); us != 1 || err != nil {
		t.Errorf("got %g us, %v", us, err)
	}
	c := &Content{chain: []uint64{1, 2}}
	own := c.Clone()
	own.chain[0] = 9
	if c.chain[0] != 1 || len(own.chain) != 2 {
		t.Errorf("got %v and %v", c.chain, own.chain)
	}
	if set, ok := DrawBeta(&coeff.Set{}, nil); ok || set == nil {
		t.Errorf("no covariance: got %v, %v", set, ok)
	}
	if set, ok := DrawBeta(&coeff.Set{Beta: make([]coeff.Coefficient, 2), Covariance: make([][]float64, 1)}, nil); ok || len(set.Beta) != 2 {
		t.Errorf("a covariance of fewer terms: got %v, %v", set, ok)
	}
}

// TestMeansOfALoad: of two measured requests the means of their times and derivatives; a third is not measured.
func TestMeansOfALoad(t *testing.T) {
	d := testkit.Llama8B()
	set := testkit.PlantedOn(d)
	cfg, err := EngineOf(d, set)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Gradient = true
	reqs := []Request{{PromptTokens: 100, OutputTokens: 4}, {PromptTokens: 900, OutputTokens: 7, ArrivalUs: 900_000}, {PromptTokens: 50, OutputTokens: 3, ArrivalUs: 2_000_000, Unmeasured: true}}
	got, err := MeansOf(cfg, reqs)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Restarts = true
	ttft, itl := 0.0, 0.0
	ttftBy, itlBy := make([]float64, len(got.TTFTBy)), make([]float64, len(got.TTFTBy))
	res, err := Stream(cfg, reqs, nil, func(i int, r *RequestResult) bool {
		if i == 2 {
			return true
		}
		a, _ := r.TTFTUs()
		b, _ := r.ITLUs()
		ttft += a / 2e3
		itl += b / 2e3
		for j := range ttftBy {
			ttftBy[j] += r.Gradient.TTFT.By[j] / 2e3
			itlBy[j] += r.Gradient.Span.By[j] / float64(reqs[i].OutputTokens-1) / 2e3
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Requests != 2 || !close9(got.TTFTMs, ttft) || !close9(got.TPOTMs, itl) || got.Steps != res.Steps || len(got.TTFTBy) == 0 || len(got.TTFTBy) != len(got.TPOTBy) {
		t.Errorf("got %+v, want %g and %g ms", got, ttft, itl)
	}
	for j := range got.TTFTBy {
		if math.Abs(got.TTFTBy[j]-ttftBy[j]) > 1e-12*ttftBy[j] || math.Abs(got.TPOTBy[j]-itlBy[j]) > 1e-12*itlBy[j] {
			t.Errorf("derivative %d: got %g and %g, want %g and %g", j, got.TTFTBy[j], got.TPOTBy[j], ttftBy[j], itlBy[j])
		}
	}
	cfg.Latency = warner{}
	if _, err := MeansOf(cfg, reqs); err == nil {
		t.Error("a model without derivatives has some")
	}
	cfg.Gradient = false
	cfg.Latency = warner{fails: true}
	if _, err := MeansOf(cfg, reqs); err == nil {
		t.Error("a model without a time: got means")
	}
}

// TestDraftsOfASequence: as recorded, else drawn by the rates.
func TestDraftsOfASequence(t *testing.T) {
	sp := &speculation{}
	s := &seq{req: &Request{Accepted: []uint8{2, 0, 5}}}
	for i, want := range []int64{2, 0, 3, 0} { // at most three are verified, and beyond the recording none is accepted
		if got := sp.accepted(s, 3); got != want {
			t.Errorf("recorded, step %d: got %d accepted, want %d", i, got, want)
		}
	}
}
