package coeff_test

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	. "github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// TestLibraryFilesLoad: every file loads under this build's features, is its
// own deployment's answer, has a covariance, an expected error and an overhead,
// and together they are small.
func TestLibraryFilesLoad(t *testing.T) {
	total := 0
	for _, name := range LibraryFiles() {
		s, err := OpenLibrary(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text, _ := LibraryText(name)
		total += len(text)
		if s.Library == nil || s.SpecVersion != features.V12 || len(s.Covariance) != len(s.Beta) || s.AlphaModel(Overhead) == nil {
			t.Errorf("%s: got library %v, spec %s, %d rows of covariance", name, s.Library, s.SpecVersion, len(s.Covariance))
			continue
		}
		if e := s.Library.Expected; !(e.TPOTMape > 0 && e.TTFTMedian > 0) || e.Points == 0 {
			t.Errorf("%s: expected error %+v, want measured ones", name, e)
		}
		if got, err := LibraryFileFor(libraryDeployment(s.TrainedOn.Hardware[0], s.Library.Weights, s.Library.MoE, 1)); got != name {
			t.Errorf("%s: its own deployment's file is %q (%v)", name, got, err)
		}
	}
	if total > 2e6 || len(LibraryFiles()) == 0 {
		t.Errorf("%d files of %d bytes, want some and less than 2 MB", len(LibraryFiles()), total)
	}
}

// TestLibraryInputsAreTheSharedTables: the files carry the digests of the tables they name.
func TestLibraryInputsAreTheSharedTables(t *testing.T) {
	root := repo.Shared(t, "data", "kernels")
	for _, name := range LibraryFiles() {
		s, err := OpenLibrary(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, in := range s.Inputs {
			if !strings.HasSuffix(in.Name, ".parquet") {
				continue
			}
			data := repo.Read(t, root, in.Name)
			if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != in.SHA256 {
				t.Errorf("%s: %s has another digest: make library", name, in.Name)
			}
		}
	}
}

func libraryDeployment(hardware, weights string, moe bool, tp int64) *deploy.Deployment {
	h, _ := deploy.Datasheet(hardware)
	d := &deploy.Deployment{Hardware: h, TP: tp, PP: 1, DP: 1, Model: deploy.Model{ID: "m", NumLayers: 32, HiddenSize: 4096, NumHeads: 32,
		NumKVHeads: 8, HeadDim: 128, IntermediateSize: 14336, VocabSize: 128256, NumMLPProj: 3, BytesPerParam: 2, BytesPerWeight: 2,
		BytesPerKV:         2,
		BytesPerActivation: 2, BytesPerLMHead: 2, LinearCompute: "native"}}
	d.Engine = deploy.Engine{VLLMVersion: "0.16.0", MaxNumSeqs: 256, MaxNumBatchedTokens: 8192, ChunkedPrefill: true, BlockSize: 16,
		GPUMemoryUtilization: 0.9}
	if weights == "fp8" {
		d.Model.BytesPerWeight, d.Model.LinearCompute = 1, "fp8"
	}
	if moe {
		d.Model.NumExperts, d.Model.TopK, d.Model.MoEIntermediateSize, d.Model.NumMoELayers = 8, 2, 14336, 32
	}
	return d
}

// stepMs is the library's time of n decodes at 1000 tokens and a prompt.
func stepMs(t *testing.T, d *deploy.Deployment, n int, prompt int64) float64 {
	t.Helper()
	set, _, err := LibraryFor(d)
	if err != nil {
		t.Fatal(err)
	}
	space, err := features.New(set.SpecVersion, d)
	if err != nil {
		t.Fatal(err)
	}
	var batch []trace.Chunk
	for range n {
		batch = append(batch, trace.Chunk{Computed: 1000, Prompt: 1, New: 1})
	}
	if prompt > 0 {
		batch = append(batch, trace.Chunk{Prompt: prompt, New: prompt})
	}
	in, x := space.Sum(batch), make([]float64, len(set.Beta))
	if _, err := space.Beta(&in, x); err != nil {
		t.Fatal(err)
	}
	return features.On(set, d).Predict(x) / 1e3
}

// TestLibraryReferenceSteps: an 8 B model takes what such servers are known to take, the
// order of GPUs, ranks and engines is that of reality, and nothing falls when work is added.
func TestLibraryReferenceSteps(t *testing.T) {
	h100 := libraryDeployment("H100", "bf16", false, 1)
	if ms := stepMs(t, h100, 1, 0); ms < 5 || ms > 9 { // 16 GB over 3.35 TB/s is 4.8 ms
		t.Errorf("one decode on H100: got %.2f ms, want 5 to 9", ms)
	}
	if ms := stepMs(t, h100, 0, 8192); ms < 170 || ms > 320 { // 132 TFLOP at 990 TFLOP/s is 133 ms
		t.Errorf("8192 prompt tokens on H100: got %.1f ms, want 170 to 320", ms)
	}
	for _, faster := range [][2]string{{"H100", "A100"}, {"B200", "H100"}, {"A100", "L40S"}} {
		a, b := stepMs(t, libraryDeployment(faster[0], "bf16", false, 1), 32, 0), stepMs(t, libraryDeployment(faster[1], "bf16", false, 1), 32, 0)
		if a >= b {
			t.Errorf("32 decodes: %s takes %.2f ms, %s %.2f", faster[0], a, faster[1], b)
		}
	}
	sync := libraryDeployment("H100", "bf16", false, 1)
	sync.Engine.VLLMVersion = "0.12.0"
	if a, b := stepMs(t, sync, 32, 0), stepMs(t, h100, 32, 0); a < b+0.3 {
		t.Errorf("32 decodes, synchronous: got %.2f ms, asynchronous %.2f", a, b)
	}
	if a, b := stepMs(t, libraryDeployment("H100", "fp8", false, 1), 8, 0), stepMs(t, h100, 8, 0); a >= b {
		t.Errorf("8 decodes with fp8 weights: got %.2f ms, bf16 %.2f", a, b)
	}
	last := 0.0
	for _, n := range []int{1, 8, 64, 256} {
		ms := stepMs(t, h100, n, 512)
		if ms < last {
			t.Errorf("%d decodes and a prompt: got %.2f ms after %.2f with fewer", n, ms, last)
		}
		last = ms
	}
}

func TestDeploymentsOutsideTheLibraryAreNamed(t *testing.T) {
	d := libraryDeployment("H100", "bf16", false, 1)
	d.Model.BytesPerWeight = 0.5
	_, _, err := LibraryFor(d)
	if trace.CodeOf(err) != NotInLibrary || !strings.Contains(err.Error(), "4-bit") ||
		!strings.Contains(err.Error(), "H100-SXM-80GB fp8") {
		t.Errorf("got %v, want %s with what there is", err, NotInLibrary)
	}
}

// TestLibraryCovarianceIsOne: symmetric and without negative variances, so that it can be a prior.
func TestLibraryCovarianceIsOne(t *testing.T) {
	for _, name := range LibraryFiles() {
		s, err := OpenLibrary(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range s.Covariance {
			for j, v := range row {
				limit := math.Sqrt(s.Covariance[i][i] * s.Covariance[j][j])
				if math.Abs(v) > limit*(1+1e-9) || math.Abs(v-s.Covariance[j][i]) > 1e-9*limit {
					t.Fatalf("%s: covariance of %s and %s: got %g", name, s.Beta[i].Name, s.Beta[j].Name, v)
				}
			}
		}
	}
}
