package features

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

// goldenFile is the part of a golden vector file that concerns features.
type goldenFile struct {
	Relative float64                          `json:"tolerance_relative"`
	Absolute float64                          `json:"tolerance_absolute_zero"`
	Beta     []string                         `json:"beta_features"`
	AlphaF   []string                         `json:"alpha_features"`
	Bounds   map[Version]map[string][]float64 `json:"bounds"`
	Cases    []goldenCase                     `json:"test_cases"`
	EMA      []goldenEMA                      `json:"ema_cases"`
	BadConf  []goldenCase                     `json:"rejected_configs"`
	BadInput []goldenCase                     `json:"rejected_inputs"`
	Sourcing map[string]json.RawMessage       `json:"sourcing_cases"`
}

type goldenCase struct {
	ID        string             `json:"id"`
	Version   Version            `json:"spec_version"`
	Kind      string             `json:"kind"`
	Config    goldenConfig       `json:"config"`
	Alpha     map[string]float64 `json:"alpha_input"`
	Beta      map[string]float64 `json:"beta_input"`
	Input     map[string]float64 `json:"input"`
	Physics   map[string]float64 `json:"expected_physics_config"`
	WantAlpha []float64          `json:"expected_alpha_features"`
	WantBeta  []float64          `json:"expected_beta_features"`
	HitsAlpha []int              `json:"expected_alpha_bound_hits"`
	HitsBeta  []int              `json:"expected_beta_bound_hits"`
	Reason    trace.Code         `json:"reason"`
}

type goldenEMA struct {
	ID        string    `json:"id"`
	Gamma     float64   `json:"gamma"`
	Preempted []float64 `json:"num_preempted"`
	Running   []float64 `json:"running_depth"`
	Initial   float64   `json:"initial"`
	Want      []float64 `json:"expected"`
}

type goldenConfig struct {
	Model    deploy.Model    `json:"model"`
	Hardware deploy.Hardware `json:"hardware"`
	TP       int64           `json:"tp"`
	VLLM     struct {
		MaxNumSeqs      int64            `json:"max_num_seqs"`
		MaxTokens       int64            `json:"max_batched_tokens"`
		Chunked         bool             `json:"chunked_prefill_enabled"`
		Offloading      bool             `json:"cpu_offloading"`
		BlockSize       int64            `json:"block_size_tokens"`
		BlocksGPU       trace.Opt[int64] `json:"total_kv_blocks_gpu"`
		BlocksCPU       int64            `json:"total_kv_blocks_cpu"`
		Memory          float64          `json:"gpu_memory_utilization"`
		PrefixCaching   bool             `json:"prefix_caching_enabled"`
		PP              int64            `json:"pipeline_parallel_size"`
		ExpertParallel  bool             `json:"enable_expert_parallel"`
		ExpertParallel2 bool             `json:"expert_parallel"`
		Speculative     bool             `json:"speculative_decoding"`
	} `json:"vllm"`
}

func (c goldenConfig) deployment() *deploy.Deployment {
	v := c.VLLM
	return &deploy.Deployment{
		Model: c.Model, Hardware: c.Hardware, TP: c.TP, PP: max(1, v.PP), DP: 1,
		Engine: deploy.Engine{
			MaxNumSeqs: v.MaxNumSeqs, MaxNumBatchedTokens: v.MaxTokens, ChunkedPrefill: v.Chunked, CPUOffloading: v.Offloading,
			BlockSize: v.BlockSize, KVBlocksGPU: v.BlocksGPU, KVBlocksCPU: v.BlocksCPU, GPUMemoryUtilization: v.Memory,
			PrefixCaching: v.PrefixCaching, ExpertParallel: v.ExpertParallel || v.ExpertParallel2, SpeculativeDecoding: v.Speculative,
		},
	}
}

// goldenFiles reads the file BLIS_TRAIN_GOLDEN names, or the package's copy,
// which is split by version.
func goldenFiles(t *testing.T) []goldenFile {
	t.Helper()
	names, err := filepath.Glob("testdata/features_golden*.json")
	if err != nil {
		t.Fatal(err)
	}
	if name := os.Getenv("BLIS_TRAIN_GOLDEN"); name != "" {
		names = []string{name}
	}
	files := make([]goldenFile, len(names))
	for i, name := range names {
		text := repo.Read(t, name)
		if err := json.Unmarshal(text, &files[i]); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for j := range files[i].Cases {
			files[i].Cases[j].Config.setDefaults()
		}
		for j := range files[i].BadConf {
			files[i].BadConf[j].Config.setDefaults()
		}
	}
	if len(files) == 0 {
		t.Fatal("no golden files")
	}
	return files
}

// setDefaults is the default latency for vectors that leave it out.
func (c *goldenConfig) setDefaults() {
	if c.Hardware.InterconnectLatencyUs == 0 {
		c.Hardware.InterconnectLatencyUs = deploy.DefaultLatencyUs
	}
}

// near compares at the vectors' own tolerance.
func (f *goldenFile) near(got, want float64) bool {
	if want == 0 {
		return math.Abs(got) <= f.Absolute
	}
	return math.Abs(got-want) <= f.Relative*math.Abs(want)
}

// Constants, features, bounds, the preemption average and every rejection agree with an independent
// implementation to 1e-10 (spec#numbers).
func TestGolden(t *testing.T) {
	counts := map[string]int{}
	for _, f := range goldenFiles(t) {
		for _, c := range f.Cases {
			t.Run(c.ID, func(t *testing.T) { f.checkCase(t, c) })
			counts["features "+string(c.Version)]++
		}
		for _, c := range f.BadConf {
			t.Run(c.ID, func(t *testing.T) { checkRejectedConfig(t, c) })
			counts["rejected configs"]++
		}
		for _, c := range f.BadInput {
			t.Run(c.ID, func(t *testing.T) { checkRejectedInput(t, c) })
			counts["rejected inputs"]++
		}
		for _, c := range f.EMA {
			t.Run(c.ID, func(t *testing.T) { f.checkEMA(t, c) })
			counts["ema"]++
		}
		if f.AlphaF != nil {
			f.checkLists(t)
			counts["slot lists"]++
		}
	}
	for _, kind := range []string{"features 1.0", "features 1.1", "rejected configs", "rejected inputs", "ema", "slot lists"} {
		fmt.Printf("golden: %d cases of %s\n", counts[kind], kind)
		if counts[kind] == 0 {
			t.Errorf("golden: no case of %s", kind)
		}
	}
}

func (f *goldenFile) checkCase(t *testing.T, c goldenCase) {
	s, err := New(c.Version, c.Config.deployment())
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]float64{}
	for _, v := range s.constants() {
		constants[v.Name] = v.Value
	}
	for name, want := range c.Physics {
		got, ok := constants[name]
		if !ok || !f.near(got, want) {
			t.Errorf("%s: got %v (%v), want %v", name, got, ok, want)
		}
	}
	var in StepInput
	fill(t, c.Beta, in.Set)
	x := make([]float64, len(s.BetaFeatures()))
	hits, err := s.Beta(&in, x)
	f.compare(t, s.BetaFeatures(), f.Beta, x, c.WantBeta, hits, c.HitsBeta, err)

	var q QueueInput
	fill(t, c.Alpha, q.Set)
	x = make([]float64, len(s.AlphaFeatures()))
	hits, err = s.Alpha(&q, x)
	f.compare(t, s.AlphaFeatures(), f.AlphaF, x, c.WantAlpha, hits, c.HitsAlpha, err)
}

// compare looks slots up by name, so that a slot the vectors do not know yet is
// left to its own test.
func (f *goldenFile) compare(t *testing.T, fs []Feature, names []string, got, want []float64, hits Hits, wantHits []int, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if len(names) != len(want) {
		t.Fatalf("the file has %d values for %d names", len(want), len(names))
	}
	for k, name := range names {
		i := slices.IndexFunc(fs, func(f Feature) bool { return f.Name == name })
		if i < 0 {
			t.Fatalf("no feature %q", name)
		}
		if !f.near(got[i], want[k]) {
			t.Errorf("%s: got %v, want %v", name, got[i], want[k])
		}
		if wantHits != nil && hits.has(i+1) != slices.Contains(wantHits, k+1) {
			t.Errorf("%s: got bound hit %v, want slots %v", name, hits.has(i+1), wantHits)
		}
	}
}

func fill(t *testing.T, fields map[string]float64, set func(string, float64) bool) {
	t.Helper()
	for name, v := range fields {
		if !set(name, v) {
			t.Fatalf("input field %q is unknown", name)
		}
	}
}

func checkRejectedConfig(t *testing.T, c goldenCase) {
	_, err := New(c.Version, c.Config.deployment())
	if code := trace.CodeOf(err); code != c.Reason {
		t.Errorf("got %q (%v), want %q", code, err, c.Reason)
	}
}

func checkRejectedInput(t *testing.T, c goldenCase) {
	s, err := New(c.Version, c.Config.deployment())
	if err != nil {
		t.Fatal(err)
	}
	if c.Kind == "alpha" {
		var q QueueInput
		fill(t, c.Input, q.Set)
		_, err = s.Alpha(&q, make([]float64, len(s.AlphaFeatures())))
	} else {
		var in StepInput
		fill(t, c.Input, in.Set)
		_, err = s.Beta(&in, make([]float64, len(s.BetaFeatures())))
	}
	if code := trace.CodeOf(err); code != c.Reason {
		t.Errorf("got %q (%v), want %q", code, err, c.Reason)
	}
}

func (f *goldenFile) checkEMA(t *testing.T, c goldenEMA) {
	ema := c.Initial
	for i := range c.Preempted {
		ema = EMA(ema, c.Gamma, c.Preempted[i], c.Running[i])
		if !f.near(ema, c.Want[i]) {
			t.Errorf("step %d: got %v, want %v", i, ema, c.Want[i])
		}
	}
}

func (f *goldenFile) checkLists(t *testing.T) {
	for _, v := range Versions() {
		if got := Names(BetaFeatures(v)); len(got) < len(f.Beta) || !slices.Equal(got[:len(f.Beta)], f.Beta) {
			t.Errorf("%s beta names: got %v, want %v first", v, got, f.Beta)
		}
		if got := Names(AlphaFeatures(v)); len(got) < len(f.AlphaF) || !slices.Equal(got[:len(f.AlphaF)], f.AlphaF) {
			t.Errorf("%s alpha names: got %v, want %v first", v, got, f.AlphaF)
		}
		checkBounds(t, v, "beta", BetaFeatures(v), f.Bounds[v]["beta"])
		checkBounds(t, v, "alpha", AlphaFeatures(v), f.Bounds[v]["alpha"])
	}
}

func checkBounds(t *testing.T, v Version, model string, fs []Feature, want []float64) {
	t.Helper()
	for i := range want {
		if fs[i].Bound != want[i] {
			t.Errorf("%s %s bound of %s: got %g, want %g", v, model, fs[i].Name, fs[i].Bound, want[i])
		}
	}
}

// Values lists the input's fields under the names that golden vectors and formulas use.
func (in *QueueInput) Values() []Quantity {
	values := make([]Quantity, len(queueFields))
	for i, f := range queueFields {
		values[i] = Quantity{Name: f.name, Value: *f.at(in), Unit: f.unit}
	}
	return values
}

// Set stores v under the field's name and reports whether there is one.
func (in *StepInput) Set(name string, v float64) bool {
	for _, f := range stepFields {
		if f.name == name {
			*f.at(in) = v
			return true
		}
	}
	return false
}

// Set stores v under the field's name and reports whether there is one.
func (in *QueueInput) Set(name string, v float64) bool {
	for _, f := range queueFields {
		if f.name == name {
			*f.at(in) = v
			return true
		}
	}
	return false
}
