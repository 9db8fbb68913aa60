package features

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
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
	Model    model.Model     `json:"model"`
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
		Engine: vllm.Engine{
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

// bruteModel is a model as testdata/layer_work.py reads it.
type bruteModel struct {
	Name   string         `json:"name"`
	TP     int64          `json:"tp"`
	DP     int64          `json:"dp"`
	EP     bool           `json:"ep"`
	Layers *model.Decoder `json:"layers"`
	space  *Space
}

// TestLayersAgainstBruteForce compares the work of 1.3 with testdata/layer_work.py, which goes over every layer, matrix, rank and
// query-key pair: 30 steps of each small model and of published ones whose layers are unlike. Without python3 (or
// BLIS_TRAIN_PYTHON) with numpy the small ones are held against what it said, which -update-python writes.
func TestLayersAgainstBruteForce(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	python := os.Getenv("BLIS_TRAIN_PYTHON")
	if python == "" {
		python = "python3"
	}
	models := bruteModels(t)
	fixture := filepath.Join("testdata", "layer_work.json")
	_, err := exec.Command(python, "-c", "import numpy").CombinedOutput()
	isKept := err != nil // what the script said of the small models
	if isKept {
		t.Logf("%s has no numpy: the small models against %s", python, fixture)
		models = models[:2*len(unlike)]
	}
	r := rand.New(rand.NewPCG(11, 1))
	var steps [][]trace.Chunk
	for len(steps) < 30 {
		var chunks []trace.Chunk
		for range 1 + r.IntN(6) {
			c := trace.Chunk{Computed: r.Int64N(2500), New: 1}
			if c.Prompt = c.Computed; r.IntN(3) == 0 {
				c.New = 1 + r.Int64N(300)
				c.Prompt += c.New
			}
			chunks = append(chunks, c)
		}
		steps = append(steps, chunks)
	}
	h := dense(1).Hardware
	given := map[string]any{"peak": h.TFlopsPeak * 1e12, "fast": h.TFlopsFP8 * 1e12, "bandwidth": h.BwPeakTBs * 1e12, "models": models}
	var lists [][][3]int64
	for _, s := range steps {
		var list [][3]int64
		for _, c := range s {
			list = append(list, [3]int64{c.Computed, c.Prompt, c.New})
		}
		lists = append(lists, list)
	}
	given["steps"] = lists
	text, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	if isKept {
		out, err = os.ReadFile(fixture)
	} else {
		cmd := exec.Command(python, "-B", filepath.Join("testdata", "layer_work.py"))
		cmd.Stdin = bytes.NewReader(text)
		out, err = cmd.Output()
	}
	var want [][][5]float64
	if err == nil {
		err = json.Unmarshal(out, &want)
	}
	if err != nil || len(want) != len(models) {
		t.Fatalf("got %d answers, %v, %.200s", len(want), err, out)
	}
	if *updatePython && !isKept {
		small, _ := json.Marshal(want[:2*len(unlike)])
		repo.Write(t, small, fixture)
	}
	worst := 0.0
	for i, m := range models {
		for k, chunks := range steps {
			in := m.space.Sum(chunks)
			x := beta(t, m.space, in)
			for j, got := range []float64{x[0], x[2] + x[16], x[1], x[3], x[4]} {
				off := math.Abs(got-want[i][k][j]) / math.Max(want[i][k][j], 1e-30)
				if worst = max(worst, off); off > 1e-9 && got+want[i][k][j] > 0 {
					t.Errorf("%s tp %d dp %d, step %d, %s: got %v s, want %v", m.Name, m.TP, m.DP, k,
						[]string{"linear", "weights", "prefill attention", "decode attention", "cache"}[j], got, want[i][k][j])
				}
			}
		}
	}
	t.Logf("%d models x %d steps: at most %.1g off", len(models), len(steps), worst)
}

// bruteModels are the small ones and, where they lie beside the repository, the published ones with unlike layers.
func bruteModels(t *testing.T) []*bruteModel {
	var out []*bruteModel
	add := func(name string, tp, dp int64, model model.Model) {
		d := dense(tp)
		d.Model = model
		if d.Model.IsMoE() {
			d.DP, d.Engine.ExpertParallel = dp, dp > 1
		}
		if sp, err := New(V13, d); err == nil {
			out = append(out, &bruteModel{name, tp, max(1, d.DP), d.Engine.ExpertParallel, d.Model.Layers(), sp})
		} else {
			t.Logf("%s tp %d: %v", name, tp, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(unlike)) {
		for _, tp := range []int64{1, 2} {
			add(name, tp, tp, layered(t, name, tp).Model)
		}
	}
	files, _ := filepath.Glob(filepath.Join(repo.Root(t), "..", "shared", "data", "models_hf", "*_config.json"))
	for i, file := range files {
		config, err := os.ReadFile(file)
		if err != nil || len(config) == 0 {
			continue
		}
		quant, _ := os.ReadFile(model.QuantConfigName(file))
		model, err := model.Load(bytes.NewReader(config), file, model.Options{QuantConfig: quant})
		if err == nil && model.Layered != nil && i%2 == 0 {
			add(filepath.Base(file), 4, 2, model)
		}
	}
	return out
}

// A fit made with another list under the same version is refused, and the
// message names the terms that differ.
func TestFeatureSetsNameTheTermsThatDiffer(t *testing.T) {
	ours := SetOf(V11)
	beta := Names(BetaFeatures(V11))
	alpha := Names(AlphaFeatures(V11))
	if len(ours.Hash) != 16 || len(ours.Beta) != len(beta) || SetOf(V10).Hash == ours.Hash {
		t.Fatalf("got %+v", ours)
	}
	if err := checkFeatures(ours, V11, beta, alpha); err != nil {
		t.Error(err)
	}
	if err := checkFeatures(coeff.FeatureSet{}, V11, nil, nil); err != nil {
		t.Errorf("a file without a set: %v", err)
	}
	grown := coeff.FeatureSet{Hash: "0", Beta: append(slices.Clone(ours.Beta), "abcdef"), Alpha: slices.Clone(ours.Alpha)}
	grown.Beta[0] = "000000"
	grown.Alpha[2] = "111111"
	err := checkFeatures(grown, V11, append(slices.Clone(beta[:15]), "single_prefill"), alpha)
	if trace.CodeOf(err) != WrongFeatureSet {
		t.Fatalf("got %v, want %s", err, WrongFeatureSet)
	}
	for _, want := range []string{"single_prefill is not in this build", beta[15] + " is not in the file",
		beta[0] + " has another definition", alpha[2] + " has another definition"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err.Error(), want)
		}
	}
	moved := coeff.FeatureSet{Hash: "1", Beta: slices.Clone(ours.Beta), Alpha: ours.Alpha}
	moved.Beta[0], moved.Beta[1] = ours.Beta[1], ours.Beta[0]
	swapped := slices.Clone(beta)
	swapped[0], swapped[1] = beta[1], beta[0]
	if err := checkFeatures(moved, V11, swapped, alpha); err == nil || !strings.Contains(err.Error(), "another order of terms") {
		t.Errorf("got %v", err)
	}
}

// Every part of a definition is in its digest.
func TestDigestCoversTheDefinition(t *testing.T) {
	base := BetaFeatures(V11)[0]
	seen := map[string]bool{base.digest(): true}
	for _, change := range []func(*Feature){
		func(f *Feature) { f.Name = "x" }, func(f *Feature) { f.Kind = Ratio }, func(f *Feature) { f.Formula += "*2" },
		func(f *Feature) { f.Bound *= 2 }, func(f *Feature) { f.Prompt = !f.Prompt },
	} {
		f := base
		change(&f)
		if d := f.digest(); seen[d] {
			t.Errorf("%+v has the digest %s of another", f, d)
		} else {
			seen[d] = true
		}
	}
}

// released are the lists of the released versions: how many slots, and a hash of everything that
// is said of each. Never edit an entry: a coefficient file that names its version would mean
// something else in this build. A new term goes to the experimental lists; a new version gets lists
// and an entry of its own.
var released = map[Version][2]string{
	V10: {"16", "6a6f16e9697a3d23a1a819a3cb9775e87d436f96fdddd20c741722a704bfc4c1"},
	V11: {"16", "193f3737e5092f3659ef2c3cf0906c356dff407d92da0b26aa30a53d508287a0"},
	V12: {"20", "5262e96918944fdf22f2776a055e02531c58c63730cb5c25eac8c0a528db396b"},
	V13: {"20", "1a0648bc2b2d94233a361366b91a693de52f54e14f909c4878958656b23b0317"},
}

func TestReleasedListsNeverChange(t *testing.T) {
	for v, want := range released {
		beta := describe(BetaFeatures(v))
		alpha := describe(AlphaFeatures(v))
		got := [2]string{fmt.Sprint(len(BetaFeatures(v))), fmt.Sprintf("%x", sha256.Sum256([]byte(beta+"\n"+alpha)))}
		if got != want {
			t.Errorf("version %s is released and its features changed: got %q, want %q; put the term into the list experimental\n%s\n%s",
				v, got, want, beta, alpha)
		}
	}
	if len(Versions()) != len(released)+1 {
		t.Errorf("got versions %v, want one entry in released for each but %s", Versions(), Experimental)
	}
}

// describe is every slot with all its data, one a line; what its function computes is the formula,
// by another test.
func describe(fs []Feature) string {
	lines := make([]string, len(fs))
	for i := range fs {
		f := &fs[i]
		lines[i] = fmt.Sprintf("%d %s %s %g %g %t %t %g %s", f.Slot, f.Name, f.Kind, f.Penalty, f.PenaltyOne, f.Free, f.Prompt,
			f.Bound, f.Formula)
	}
	return strings.Join(lines, "\n")
}

// No version shares its list with another: an append to one must not show in a second.
func TestListsAreTheirOwn(t *testing.T) {
	seen := map[uintptr]Version{}
	for _, v := range Versions() {
		for _, fs := range [][]Feature{BetaFeatures(v), AlphaFeatures(v)} {
			at := reflect.ValueOf(fs).Pointer()
			if other, ok := seen[at]; ok {
				t.Errorf("versions %s and %s share a list", other, v)
			}
			seen[at] = v
		}
	}
}

func llama(tp int64) *deploy.Deployment {
	return &deploy.Deployment{
		Model: model.Model{NumLayers: 32, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 8, HeadDim: 128, IntermediateSize: 14336,
			VocabSize: 128256, NumMLPProj: 3, BytesPerWeight: 2, BytesPerKV: 2, BytesPerActivation: 2, BytesPerLMHead: 2},
		Hardware: deploy.Hardware{TFlopsPeak: 989.5, BwPeakTBs: 3.35}, TP: tp, PP: 1, DP: 1,
	}
}

// The formulas of the basis, written once more the slow way.
func TestTrainedPhysicsAgainstLongForm(t *testing.T) {
	for _, tp := range []int64{1, 2, 4} {
		d := llama(tp)
		b, err := NewTrainedPhysics(d)
		if err != nil {
			t.Fatal(err)
		}
		batch := []trace.Chunk{{Computed: 0, Prompt: 700, New: 512}, {Computed: 300, Prompt: 400, New: 100},
			{Computed: 1000, Prompt: 900, New: 1}, {Computed: 64, Prompt: 64, New: 1}}
		x := make([]float64, len(TrainedPhysicsBeta()))
		s := BasisSum(batch)
		b.Beta(&s, x)
		L := 32.0
		hid := 4096.0
		dKV := 1024.0
		dff := 14336.0
		H := 32.0
		dh := 128.0
		n := float64(tp)
		peak, bw := 989.5e6, 3.35e6
		attn := 4 * (H / n) * dh * (512*(700+256.0) + 100*(400+50.0))
		want := []float64{
			prefillCompute:  (2*L*612*hid*(2*hid+2*dKV)/n + L*attn + 6*hid*dff*612*L/n) / peak,
			decodeCompute:   (2*L*2*hid*(2*hid+2*dKV)/n + L*4*(H/n)*(1064)*dh + 6*hid*dff*2*L/n) / peak,
			basisWeightLoad: (L*hid*(2*hid+2*dKV) + 3*hid*dff*L) * 2 / n / bw,
			allReduce:       2 * L * 614 * hid * 2 * 2 * (n - 1) / n / bw,
			perLayer:        32, perRequest: 4, PerStep: 1, perMoELayer: 0,
			prefillKV: 4 * L * dKV * 612 / n / bw, decodeKV: 4 * L * dKV * (1064 + 2) / n / bw, moEDispatch: 0,
		}
		for i := range want {
			if math.Abs(x[i]-want[i]) > 1e-12*math.Max(1, want[i]) {
				t.Errorf("tp %d %s: got %g, want %g", tp, TrainedPhysicsBeta()[i].Name, x[i], want[i])
			}
		}
	}
}

// The number of betas selects the formula: an explicit 0 is not an absent one.
func TestLengthSelectsFormula(t *testing.T) {
	b, err := NewTrainedPhysics(llama(1))
	if err != nil {
		t.Fatal(err)
	}
	s := BasisSum([]trace.Chunk{{Computed: 3000, Prompt: 10, New: 1}})
	x := make([]float64, len(TrainedPhysicsBeta()))
	short := b.StepUs(&s, []float64{0, 1, 0, 0, 0, 0, 0, 0}, x)
	long := b.StepUs(&s, []float64{0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, x)
	if short != math.Max(x[decodeCompute], x[decodeKV]) || long != x[decodeCompute] || short <= long {
		t.Errorf("8 betas: %g, 10 betas: %g, compute %g, kv %g", short, long, x[decodeCompute], x[decodeKV])
	}
	if CheckBetas(make([]float64, 6)) == nil || CheckBetas(make([]float64, 12)) == nil || CheckBetas([]float64{0, 0, 0, 0, 0, 0, -1}) == nil {
		t.Error("CheckBetas accepts 6, 12 or negative values")
	}
}

// Kept for parity: the prefill attention of the basis is 1.5 P^2 for one chunk
// and falls towards P^2 when the prompt is split, where the causal count is P^2/2 always.
func TestPrefillAttnGap(t *testing.T) {
	one := BasisSum([]trace.Chunk{{Computed: 0, Prompt: 1024, New: 1024}})
	var split Step
	for c := int64(0); c < 1024; c += 64 {
		split.Add(trace.Chunk{Computed: c, Prompt: 1024, New: 64})
	}
	if one.PrefillAttn != 1.5*1024*1024 || split.PrefillAttn != 1024*(1024+32) {
		t.Errorf("one chunk %g, sixteen %g", one.PrefillAttn, split.PrefillAttn)
	}
}

// TestTermsAreTheStep: the dot product of terms and betas is the step time for
// every number of betas.
func TestTermsAreTheStep(t *testing.T) {
	d := llama(2)
	b, err := NewTrainedPhysics(d)
	if err != nil {
		t.Fatal(err)
	}
	all := []float64{0.4, 0.3, 1.3, 0.7, 31, 4.4, 120, 9, 0.2, 1.9, 0.6}
	x := make([]float64, len(TrainedPhysicsBeta()))
	for n := 7; n <= len(all); n++ {
		for _, chunk := range []trace.Chunk{{Computed: 0, Prompt: 700, New: 512}, {Computed: 4000, Prompt: 900, New: 1}} {
			s := BasisSum([]trace.Chunk{chunk, {Computed: 30, Prompt: 30, New: 1}})
			y, sum := b.StepUs(&s, all[:n], x), 0.0
			for j, v := range Terms(x, make([]float64, n)) {
				sum += v * all[j]
			}
			if math.Abs(sum/y-1) > 1e-12 {
				t.Errorf("%d betas: terms give %g us, the step lasts %g", n, sum, y)
			}
		}
	}
}

// A way to fit behind a version changes no feature, and stands behind those that are not frozen.
func TestComponentsBehindAVersion(t *testing.T) {
	for _, v := range []Version{V11, V12, Experimental} {
		if got, want := SetOf(v+Components), SetOf(v); got.Hash != want.Hash || !(v + Components).InComponents() || v.InComponents() {
			t.Errorf("%s: hash %s, want %s", v, got.Hash, want.Hash)
		}
	}
	for v, want := range map[Version]string{
		"1.1+queue-pole":              "alone or with +principal-components",
		V10 + Components:              "want 1.1, 1.2, 1.3 or experimental, alone",
		V11 + Components + Components: "alone or with",
		"2.0" + Components:            "want 1.1, 1.2, 1.3 or experimental, alone",
		"2.0":                         "want 1.0, 1.1, 1.2, 1.3 or experimental",
	} {
		if err := CheckVersion(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", v, err, want)
		}
		if BetaFeatures(v) != nil || AlphaFeatures(v) != nil {
			t.Errorf("%s has features", v)
		}
	}
}
