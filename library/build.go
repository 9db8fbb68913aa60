package library

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/trace"
)

// Options say how a library is built.
type Options struct {
	Rules   Rules
	Without *deploy.Model // leave this architecture out of the design; nil: none
	Batches int           // design points per deployment
	Seed    uint64
	Workers int
	Date    string // of the library: the day its recipe or its sources changed last
}

// DefaultOptions are those of the embedded library.
func DefaultOptions() Options {
	return Options{Rules: Engine, Batches: 900, Seed: 1, Date: "2026-11-22"}
}

// builder holds what a library is made from.
type builder struct {
	Options
	tables   []*Tables
	families []*fitted
}

// newBuilder loads the tables of every GPU in the folder and fits its families.
func newBuilder(ctx context.Context, dir string, o Options) (*builder, error) {
	gpus, err := gpUs(dir)
	if err != nil {
		return nil, err
	}
	b := &builder{Options: o, tables: make([]*Tables, len(gpus))}
	if err := par.Try(ctx, o.Workers, len(gpus), func(i int) (err error) {
		b.tables[i], err = Load(dir, gpus[i])
		return err
	}, nil); err != nil {
		return nil, err
	}
	var all []*fitted
	for i := range b.tables {
		for _, weights := range []string{libraryBf16, libraryFp8} {
			for _, moe := range []bool{false, true} {
				all = append(all, &fitted{tables: b.tables[i], design: &design{family: family{gpus[i], weights, moe}}})
			}
		}
	}
	if err := par.Try(ctx, o.Workers, len(all), func(i int) (err error) { return all[i].fit(&b.Options) }, nil); err != nil {
		return nil, err
	}
	for _, f := range all {
		if len(f.Y) > 0 {
			b.families = append(b.families, f)
		}
	}
	if err := poolTerms(b.families); err != nil {
		return nil, err
	}
	return b, par.Try(ctx, o.Workers, len(b.families), func(i int) error {
		b.families[i].assess()
		return b.families[i].betweenModels()
	}, nil)
}

// familyOf is the family a deployment belongs to.
func (b *builder) familyOf(d *deploy.Deployment) (*fitted, error) {
	for _, f := range b.families {
		if f.tables.Hardware.Name == d.Hardware.Name && f.family.Weights == weightsOf(&d.Model) && f.family.MoE == d.Model.IsMoE() {
			return f, nil
		}
	}
	return nil, trace.Errorf(noTables, "library: got no coefficients for %s", d.Label())
}

// weightsOf is the kind of a model's weights.
func weightsOf(m *deploy.Model) string {
	if m.BytesPerWeight == 1 && m.LinearCompute == libraryFp8 {
		return libraryFp8
	}
	return libraryBf16
}

// Sources are what a library is made from.
type Sources struct {
	Kernels string   // folder of kernel tables
	Points  []string // files of measured points
	Runs    []string // folders of real runs: step cycles or stock spans
}

// File is one coefficient file of a library.
type File struct {
	Name string
	Set  *coeff.Set
}

// BuildFiles makes the library. The same sources and options give the same files.
func BuildFiles(ctx context.Context, src Sources, o Options) ([]File, error) {
	b, err := newBuilder(ctx, src.Kernels, o)
	if err != nil {
		return nil, err
	}
	e, err := b.read(ctx, src)
	if err != nil {
		return nil, err
	}
	c, err := b.learn(ctx, slices.Concat(e.points, e.served), e.cycles)
	if err != nil {
		return nil, err
	}
	judged, err := b.leaveGroupsOut(ctx, e.points, e.served, e.cycles)
	if err != nil {
		return nil, err
	}
	var out []File
	for _, f := range b.families {
		inputs := slices.Concat(f.tables.Sources, e.inputs) // its GPU's tables and all measurements
		out = append(out, File{f.fileName(), b.artifact(f, c, expectedOn(f.tables.Hardware.Name, judged), inputs)})
	}
	slices.SortStableFunc(out, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// measured is all that real servers said.
type measured struct {
	points, served []*load
	cycles         []*cycles
	inputs         []coeff.Input
}

// read reads points and runs.
func (b *builder) read(ctx context.Context, src Sources) (*measured, error) {
	m := &measured{}
	for _, path := range src.Points {
		points, in, err := readPoints(path)
		if err != nil {
			return nil, err
		}
		ls, err := loads(points, func(p *point) learn.Harness { return p.Harness() })
		if err != nil {
			return nil, err
		}
		m.points, m.inputs = append(m.points, ls...), append(m.inputs, in)
	}
	var err error
	var ins []coeff.Input
	m.cycles, m.served, ins, err = readRuns(ctx, src.Runs)
	m.inputs = append(m.inputs, ins...)
	return m, err
}

// expectedOn is the error of groups on the GPU, left out of the correction; on a
// GPU without any that of the group predicted worst.
func expectedOn(gpu string, judged []judged) coeff.ExpectedError {
	of := func(keep func(group string) bool) coeff.ExpectedError {
		var tpot, ttft []float64
		for i := range judged {
			if j := &judged[i]; keep(j.Group) {
				tpot, ttft = append(tpot, math.Abs(j.TPOTErr)), append(ttft, math.Abs(j.TTFTErr))
			}
		}
		return coeff.ExpectedError{OnGPU: len(tpot) > 0, TPOTMape: stat.Mean(tpot), TTFTMedian: stat.Median(ttft), Points: len(tpot)}
	}
	x := of(func(group string) bool { return strings.HasSuffix(group, ", "+gpu) })
	if !x.OnGPU {
		x = coeff.ExpectedError{}
		for _, j := range judged {
			g := of(func(group string) bool { return group == j.Group })
			x.TPOTMape, x.TTFTMedian, x.Points = max(x.TPOTMape, g.TPOTMape), max(x.TTFTMedian, g.TTFTMedian), len(judged)
		}
	}
	x.TPOTMape, x.TTFTMedian = stat.Round(x.TPOTMape, 2), stat.Round(x.TTFTMedian, 2)
	return x
}

// slot numbers of the terms the correction adds to.
const (
	slotSequences = 6
	slotBias      = 16
	slotBase      = 4   // of the overhead
	seqsUnit      = 256 // sequences per unit of slot 6
)

// setOf is a set of bare coefficients: those of the step time, then those of
// the overhead.
func setOf(values []float64) *coeff.Set {
	s := &coeff.Set{SchemaVersion: coeff.SchemaVersion, SpecVersion: features.V12, FeatureSet: features.SetOf(features.V12),
		Recipe:     "relative",
		BetaTarget: coeff.Cadence, Gamma: features.DefaultGamma, Beta: features.NewCoefficients(features.BetaFeatures(features.V12)),
		Alpha: []coeff.AlphaModel{{Target: coeff.Overhead, Replay: true, Coefficients: features.NewCoefficients(
			features.AlphaFeatures(features.V12))}},
	}
	for i := range s.Beta {
		s.Beta[i].Value = values[i]
	}
	for i := range s.Alpha[0].Coefficients {
		s.Alpha[0].Coefficients[i].Value = values[betaSlots+i]
	}
	return s
}

// family is one coefficient file of the library: a GPU, a kind of weights, and
// dense models or mixtures of experts, whose experts take terms of their own.
type family struct {
	GPU     string // the tables' name: h100_sxm
	Weights string // BF16 | FP8
	MoE     bool
}

// regimeNames are the regimes in words.
var regimeNames = [learn.NumRegimes]string{"decode", "mixed", "prefill"}

// memoryShare of a group's memory may hold weights in a design point.
const memoryShare = 0.85

// deployments are the design's deployments of a family that fit the memory.
func (f family) deployments(h deploy.Hardware, without *deploy.Model) []*deploy.Deployment {
	var out []*deploy.Deployment
	for i := range shapes {
		s := &shapes[i]
		if (s.experts > 0) != f.MoE || without != nil && s.same(without) {
			continue
		}
		caches := []float64{2}
		if f.Weights == libraryFp8 {
			caches = append(caches, 1)
		}
		for _, kvBytes := range caches {
			for _, tp := range []int64{1, 2, 4, 8} {
				d := &deploy.Deployment{Model: s.model(f.Weights, kvBytes), Hardware: h, TP: tp, PP: 1, DP: 1, Engine: designEngine}
				if d.CheckSupported() != nil || d.Model.WeightBytes() > memoryShare*h.MemoryGB*1e9*float64(tp) {
					continue
				}
				out = append(out, d)
			}
		}
	}
	return out
}

// designEngine has vLLM's defaults for servers.
var designEngine = deploy.Engine{MaxNumSeqs: 1024, MaxNumBatchedTokens: 8192, ChunkedPrefill: true, BlockSize: deploy.DefaultBlockSize,
	GPUMemoryUtilization: deploy.DefaultGPUMemoryUtilization, SchedulingPolicy: deploy.DefaultSchedulingPolicy}

// shape is a published architecture.
type shape struct {
	id                                 string
	layers, hidden, heads, kvHeads     int64
	headDim, intermediate, vocabulary  int64
	experts, topK, expertWidth, shared int64 // 0: dense
}

// shapes are the models the design points are drawn for, as their config.json
// on huggingface.co has them: dense from 1 to 123 billion parameters, and the
// mixtures of experts whose experts are in the published tables.
var shapes = []shape{
	{"meta-llama/Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128256, 0, 0, 0, 0},
	{"meta-llama/Llama-3.2-3B", 28, 3072, 24, 8, 128, 8192, 128256, 0, 0, 0, 0},
	{"Qwen/Qwen3-4B", 36, 2560, 32, 8, 128, 9728, 151936, 0, 0, 0, 0},
	{"Qwen/Qwen2.5-7B", 28, 3584, 28, 4, 128, 18944, 152064, 0, 0, 0, 0},
	{"mistralai/Mistral-7B-v0.3", 32, 4096, 32, 8, 128, 14336, 32768, 0, 0, 0, 0},
	{"meta-llama/Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256, 0, 0, 0, 0},
	{"meta-llama/Llama-2-13b-hf", 40, 5120, 40, 40, 128, 13824, 32000, 0, 0, 0, 0},
	{"Qwen/Qwen2.5-14B", 48, 5120, 40, 8, 128, 13824, 152064, 0, 0, 0, 0},
	{"Qwen/Qwen3-32B", 64, 5120, 64, 8, 128, 25600, 151936, 0, 0, 0, 0},
	{"codellama/CodeLlama-34b-hf", 48, 8192, 64, 8, 128, 22016, 32000, 0, 0, 0, 0},
	{"meta-llama/Llama-3.1-70B", 80, 8192, 64, 8, 128, 28672, 128256, 0, 0, 0, 0},
	{"Qwen/Qwen2.5-72B", 80, 8192, 64, 8, 128, 29568, 152064, 0, 0, 0, 0},
	{"mistralai/Mistral-Large-Instruct-2407", 88, 12288, 96, 8, 128, 28672, 32768, 0, 0, 0, 0},
	{"mistralai/Mixtral-8x7B-v0.1", 32, 4096, 32, 8, 128, 14336, 32000, 8, 2, 14336, 0},
	{"mistralai/Mixtral-8x22B-v0.1", 56, 6144, 48, 8, 128, 16384, 32768, 8, 2, 16384, 0},
	{"Qwen/Qwen3-30B-A3B", 48, 2048, 32, 4, 128, 6144, 151936, 128, 8, 768, 0},
	{"Qwen/Qwen3-235B-A22B", 94, 4096, 64, 4, 128, 12288, 151936, 128, 8, 1536, 0},
	{"Qwen/Qwen3-Coder-480B-A35B-Instruct", 62, 6144, 96, 8, 128, 8192, 151936, 160, 8, 2560, 0},
}

// Weights are the kinds of weights the library knows, as file names spell them.
const (
	libraryBf16 = "bf16"
	libraryFp8  = "fp8"
)

// model is the architecture with weights of one kind; the KV cache has kvBytes
// per value.
func (s *shape) model(weights string, kvBytes float64) deploy.Model {
	m := deploy.Model{
		ID: s.id, NumLayers: s.layers, HiddenSize: s.hidden, NumHeads: s.heads, NumKVHeads: s.kvHeads, HeadDim: s.headDim,
		IntermediateSize: s.intermediate, VocabSize: s.vocabulary, NumMLPProj: 3, NumExperts: s.experts, TopK: s.topK,
		MoEIntermediateSize: s.expertWidth, SharedExpertSize: s.shared,
		BytesPerParam: 2, BytesPerWeight: 2, BytesPerKV: kvBytes, BytesPerActivation: 2, BytesPerLMHead: 2, LinearCompute: "native",
	}
	if s.experts > 0 {
		m.NumMoELayers = s.layers
	}
	if weights == libraryFp8 {
		m.BytesPerParam, m.BytesPerWeight, m.LinearCompute = 1, 1, "fp8"
	}
	return m
}

// same reports whether a model has this shape, whatever its name and vocabulary.
func (s *shape) same(m *deploy.Model) bool {
	return s.layers == m.NumLayers && s.hidden == m.HiddenSize && s.heads == m.NumHeads && s.intermediate == m.IntermediateSize &&
		(s.experts == m.NumExperts || s.experts == 0 && !m.IsMoE())
}
