package features

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// dense returns an 8B-like model on an H100.
func dense(tp int64) *deploy.Deployment {
	h, _ := deploy.Datasheet("H100")
	return &deploy.Deployment{
		Hardware: h, TP: tp, PP: 1, DP: 1,
		Model: model.Model{ID: "dense", NumLayers: 32, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 8, HeadDim: 128, IntermediateSize: 14336,
			VocabSize: 128256, NumMLPProj: 3, BytesPerParam: 2, BytesPerWeight: 2, BytesPerKV: 2, BytesPerActivation: 2, BytesPerLMHead: 2,
			LinearCompute: "native"},
		Engine: vllm.Engine{MaxNumSeqs: 256, MaxNumBatchedTokens: 8192, ChunkedPrefill: true, BlockSize: 16,
			KVBlocksGPU: trace.Some(int64(4000))},
	}
}

// moe is dense with experts in half its layers, a shared expert and offloading.
func moe(tp int64) *deploy.Deployment {
	d := dense(tp)
	m := &d.Model
	m.NumExperts = 16
	m.TopK = 2
	m.MoEIntermediateSize = 1408
	m.NumMoELayers = 16
	m.SharedExpertSize = 2816
	m.BytesPerWeight, m.LinearCompute = 1, "fp8"
	d.Engine.CPUOffloading = true
	d.Engine.KVBlocksCPU = 2000
	return d
}

func space(t testing.TB, v Version, d *deploy.Deployment) *Space {
	t.Helper()
	s, err := New(v, d)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func beta(t testing.TB, s *Space, in StepInput) []float64 {
	t.Helper()
	x := make([]float64, len(s.BetaFeatures()))
	if _, err := s.Beta(&in, x); err != nil {
		t.Fatal(err)
	}
	return x
}

func alpha(t testing.TB, s *Space, in QueueInput) []float64 {
	t.Helper()
	x := make([]float64, len(s.AlphaFeatures()))
	if _, err := s.Alpha(&in, x); err != nil {
		t.Fatal(err)
	}
	return x
}

// randomBatch is a legal batch: prefill chunks at any depth and decodes.
func randomBatch(r *rand.Rand) []trace.Chunk {
	var chunks []trace.Chunk
	for range r.IntN(6) {
		prompt := int64(1 + r.IntN(8000))
		computed := r.Int64N(prompt)
		chunks = append(chunks, trace.Chunk{Computed: computed, Prompt: prompt, New: 1 + r.Int64N(prompt-computed)})
	}
	for range r.IntN(200) {
		prompt := int64(1 + r.IntN(8000))
		chunks = append(chunks, trace.Chunk{Computed: prompt + r.Int64N(2000), Prompt: prompt, New: 1})
	}
	return chunks
}

func randomStep(r *rand.Rand, s *Space) StepInput {
	in := s.Sum(randomBatch(r))
	in.RunningDepth = in.NumPrefillReqs + in.NumDecodeReqs
	in.PreemptionEMA = r.Float64()
	in.TransferBlocks, in.CPUResidentReadBlocks = float64(r.IntN(100)), float64(r.IntN(100))
	return in
}

func randomQueue(r *rand.Rand, s *Space) QueueInput {
	in := QueueInput{RunningDepth: float64(r.IntN(257)), WaitingDepth: float64(r.IntN(1000)), KVUsageRatio: r.Float64(),
		PromptTokens: float64(r.IntN(8000)), PrefixHitRatio: r.Float64(), PreemptionEMA: r.Float64(), KVFreeBlocks: float64(r.IntN(4000))}
	in.KVFreeBytes = s.KVFreeBytes(4000, in.KVUsageRatio)
	return in
}

func close(got, want float64) bool {
	return math.Abs(got-want) <= 1e-12*math.Max(math.Abs(got), math.Abs(want))
}

func spaces(t testing.TB) []*Space {
	var all []*Space
	for _, v := range Versions() {
		for _, tp := range []int64{1, 2, 16} {
			all = append(all, space(t, v, dense(tp)), space(t, v, moe(tp)))
		}
	}
	for name := range unlike {
		all = append(all, space(t, V13, layered(t, name, 2)))
	}
	return all
}
