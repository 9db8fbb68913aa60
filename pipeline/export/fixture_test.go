package export

import (
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func ptr(v float64) *float64 { return &v }

// deployment is an 8B model on one H100 with the given tp.
func deployment(tp int64) deploy.Deployment {
	return deploy.Deployment{
		Name: "run-a", Provenance: "made up",
		Model: deploy.Model{ID: "meta-llama/Llama-3.1-8B", ModelType: "llama", NumLayers: 32, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 8, HeadDim: 128,
			IntermediateSize: 14336, VocabSize: 128256, NumMLPProj: 3, BytesPerParam: 2, BytesPerWeight: 2, BytesPerKV: 2, BytesPerActivation: 2, BytesPerLMHead: 2, LinearCompute: "native"},
		Hardware: deploy.Hardware{Name: "H100-SXM-80GB", TFlopsPeak: 989.5, TFlopsFP8: 1979, BwPeakTBs: 3.35, MemoryGB: 80, PCIeBandwidthGBs: 64, PCIeEfficiency: 0.75, InterconnectBandwidthGBs: 900, InterconnectLatencyUs: 10},
		TP:       tp, PP: 1, DP: 1,
		Engine: deploy.Engine{VLLMVersion: "0.15.1", MaxModelLen: trace.Some[int64](8192), MaxNumSeqs: 64, MaxNumBatchedTokens: 2048, ChunkedPrefill: true, BlockSize: 16,
			GPUMemoryUtilization: 0.9, KVBlocksGPU: trace.Some[int64](4000), SchedulingPolicy: "fcfs"},
	}
}

// exampleFit is a fit with every part an exporter reads; edit it in tests.
func exampleFit() *result.Fit {
	fit := &result.Fit{
		Header: result.Header{SchemaVersion: result.SchemaVersion, ToolVersion: "0.1.0", Command: "fit --seed 1", Inputs: []result.Input{{Name: "run-a/traces.jsonl", Bytes: 10, SHA256: "ab"}}},
		Runs:   []result.FitRun{{ID: "run-a", Config: "c1", Used: true}, {ID: "run-b", Config: "c1", Used: false, Saturated: true}},
		Configs: []result.FitConfig{
			{Key: "c1", Label: "Llama-3.1-8B/H100-SXM-80GB/tp1", Runs: []string{"run-a"}, Deployment: deployment(1), MeanPromptTokens: ptr(300), MeanOutputTokens: ptr(100)},
			{Key: "c2", Label: "Llama-3.1-8B/H100-SXM-80GB/tp2", Runs: []string{"run-c"}, Deployment: deployment(2)},
		},
		Beta: result.Model{Name: "beta", Holdout: &result.Errors{Rows: 50, MAPE: ptr(0.05), MAPEConst: ptr(0.2), Skill: ptr(0.9)}, LocoMedian: ptr(0.07), LocoWorst: ptr(0.1), Rows: result.RowCounts{Read: 110, Kept: 100}},
		Alpha: []result.Model{
			{Name: "egress", Target: "egress", Replay: true, TargetErrors: &result.TargetErrors{MedianPredUs: ptr(250.5)}},
			{Name: "overhead", Target: "overhead", Replay: true, Interval: &result.IntervalErrors{MedianPredUs: ptr(1800.25), InsideShare: ptr(0.97)}},
		},
		TrainingDate: "2026-02-17",
	}
	tp := result.Model{Name: blisModel, Holdout: &result.Errors{Rows: 50, MAPE: ptr(0.06)}}
	values := []float64{1.4, 0.2, 1.25, 0.5, 30.5, 4.25, 120.125, 0, 0.75, 1.5, 0}
	for i, t := range blisBeta {
		c := result.Coefficient{Coefficient: coeff.Coefficient{
			Name: t.name, Value: values[i], Unit: t.units, Identified: "within", CI95: &[2]float64{values[i] * 0.9, values[i] * 1.1},
		}}
		if values[i] == 0 {
			c.Identified, c.NotLearned, c.CI95 = "prior-only", true, nil
		}
		tp.Coefficients = append(tp.Coefficients, c)
	}
	fit.Models = []result.Model{{Name: "blackbox"}, tp}
	return fit
}

func exampleSource() Source {
	return Source{
		Fit: exampleFit(), FitInput: result.Input{Name: "fit.json", Bytes: 1234, SHA256: "cafe"},
		Step: func(d deploy.Deployment) (StepTimer, error) { return affine{2000, 8 / float64(d.TP), 0.02}, nil },
	}
}

// affine is a step time that is exactly the consumers' line: base us, us per
// computed token, us per KV token read.
type affine struct{ base, computed, read float64 }

func (a affine) StepUs(batch []trace.Chunk) (float64, error) {
	us := a.base
	for _, c := range batch {
		us += a.computed*float64(c.New) + a.read*float64(c.Computed+c.New)
	}
	return us, nil
}

// code is the code of err, or "".
func code(err error) trace.Code {
	for ; err != nil; err = unwrap(err) {
		switch e := err.(type) {
		case *trace.Error:
			return e.Code
		case *trace.SyntaxError:
			return e.Code
		}
	}
	return ""
}

func unwrap(err error) error {
	u, ok := err.(interface{ Unwrap() error })
	if !ok {
		return nil
	}
	return u.Unwrap()
}

func mustExport(t *testing.T, src Source, f Format, opt Options) *Output {
	t.Helper()
	out, err := Export(src, f, opt)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func fileOf(t *testing.T, out *Output, suffix string) []byte {
	t.Helper()
	for _, f := range out.Files {
		if f.Suffix == suffix {
			return f.Data
		}
	}
	t.Fatalf("no file with suffix %q", suffix)
	return nil
}
