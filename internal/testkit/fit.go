package testkit

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Ptr points at a value.
func Ptr(v float64) *float64 { return &v }

// DeploymentOf is an 8B model on one H100 with the given tp.
func DeploymentOf(tp int64) deploy.Deployment {
	return deploy.Deployment{
		Name: "run-a", Provenance: "made up",
		Model: deploy.Model{ID: "meta-llama/Llama-3.1-8B", ModelType: "llama", NumLayers: 32, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 8,
			HeadDim:          128,
			IntermediateSize: 14336, VocabSize: 128256, NumMLPProj: 3, BytesPerParam: 2, BytesPerWeight: 2, BytesPerKV: 2, BytesPerActivation: 2,
			BytesPerLMHead: 2, LinearCompute: "native"},
		Hardware: deploy.Hardware{Name: "H100-SXM-80GB", TFlopsPeak: 989.5, TFlopsFP8: 1979, BwPeakTBs: 3.35, MemoryGB: 80, PCIeBandwidthGBs: 64,
			PCIeEfficiency: 0.75, InterconnectBandwidthGBs: 900, InterconnectLatencyUs: 10},
		TP: tp, PP: 1, DP: 1,
		Engine: deploy.Engine{VLLMVersion: "0.15.1", MaxModelLen: trace.Some[int64](8192), MaxNumSeqs: 64, MaxNumBatchedTokens: 2048,
			ChunkedPrefill: true, BlockSize: 16,
			GPUMemoryUtilization: 0.9, KVBlocksGPU: trace.Some[int64](4000), SchedulingPolicy: "fcfs"},
	}
}

// ExampleFit is a fit with every part an exporter reads; edit it in tests.
func ExampleFit() *result.Fit {
	fit := &result.Fit{
		Header: result.Header{SchemaVersion: result.SchemaVersion, ToolVersion: "0.1.0", Command: "fit --seed 1",
			Inputs: []result.Input{{Name: "run-a/traces.jsonl", Bytes: 10, SHA256: "ab"}}},
		Runs: []result.FitRun{{ID: "run-a", Config: "c1", Used: true}, {ID: "run-b", Config: "c1", Used: false, Saturated: true}},
		Configs: []result.FitConfig{
			{Key: "c1", Label: "Llama-3.1-8B/H100-SXM-80GB/tp1", Runs: []string{"run-a"}, Deployment: DeploymentOf(1), MeanPromptTokens: Ptr(300),
				MeanOutputTokens: Ptr(100)},
			{Key: "c2", Label: "Llama-3.1-8B/H100-SXM-80GB/tp2", Runs: []string{"run-c"}, Deployment: DeploymentOf(2)},
		},
		Beta: result.Model{Name: "beta", Holdout: &result.Errors{Rows: 50, MAPE: Ptr(0.05), MAPEConst: Ptr(0.2), Skill: Ptr(0.9)},
			LocoMedian: Ptr(0.07), LocoWorst: Ptr(0.1), Rows: result.RowCounts{Read: 110, Kept: 100}},
		Alpha: []result.Model{
			{Name: "egress", Target: "egress", Replay: true, TargetErrors: &result.TargetErrors{MedianPredUs: Ptr(250.5)}},
			{Name: "overhead", Target: "overhead", Replay: true, Interval: &result.IntervalErrors{MedianPredUs: Ptr(1800.25),
				InsideShare: Ptr(0.97)}},
		},
		TrainingDate: "2026-02-17",
	}
	tp := result.Model{Name: "trained-physics", Holdout: &result.Errors{Rows: 50, MAPE: Ptr(0.06)}}
	values := []float64{1.4, 0.2, 1.25, 0.5, 30.5, 4.25, 120.125, 0, 0.75, 1.5, 0}
	for i, t := range features.TrainedPhysicsBeta {
		c := result.Coefficient{Coefficient: coeff.Coefficient{
			Name: t.Name, Value: values[i], Unit: t.Unit, Identified: "within", CI95: &[2]float64{values[i] * 0.9, values[i] * 1.1},
		}}
		if values[i] == 0 {
			c.Identified, c.NotLearned, c.CI95 = "prior-only", true, nil
		}
		tp.Coefficients = append(tp.Coefficients, c)
	}
	fit.Models = []result.Model{{Name: "blackbox"}, tp}
	return fit
}

// PhysicsFit is ExampleFit with beta and alpha coefficients of spec 1.1.
func PhysicsFit() *result.Fit {
	fit := ExampleFit()
	terms := func(fs []features.Feature, base float64) []result.Coefficient {
		var cs []result.Coefficient
		for i, f := range fs {
			v := base * float64(i+1)
			cs = append(cs, result.Coefficient{Coefficient: coeff.Coefficient{
				Name: f.Name, Value: v, Unit: f.CoefficientUnit(), CI95: &[2]float64{0.9 * v, 1.1 * v}, Identified: "within", Range: &[2]float64{0, 1},
			}})
		}
		return cs
	}
	fit.Options.Spec = "1.1"
	fit.Beta.SpecVersion, fit.Beta.Recipe, fit.Beta.Target = "1.1", "relative", "cadence"
	fit.Beta.Coefficients = terms(features.BetaFeatures(features.V11), 1000.0/3)
	fit.Beta.Lambda, fit.Beta.GammaEMA = Ptr(1e-4), Ptr(0.3)
	fit.Beta.Holdout.RMSEUs = Ptr(321.5)
	fit.Beta.Rows.Holdout = 20
	fit.Beta.Rows.ByRegime = []result.RegimeRows{{Config: "c1", Regime: "decode", Rows: 60}, {Config: "c1", Regime: "mixed", Rows: 15},
		{Config: "c2", Regime: "decode", Rows: 25}}
	fit.Beta.PipelineLag = map[string]result.RunLag{"run-c": {Lag: 1}, "run-a": {Lag: 0, Measured: true}}
	fit.Beta.ResidualQuant = []result.RegimeQuantiles{{Rows: 9, Regime: "decode",
		Quantiles: [][2]float64{{0.05, 0.9}, {0.5, 1}, {0.95, 1.2}}}}
	fit.Beta.NullDirections = []string{"only the sum of two terms is known"}
	fit.Beta.Certificate = &result.Certificate{MaxActiveGradient: 1e-12, OK: true}
	for i := range fit.Alpha {
		fit.Alpha[i].SpecVersion = "1.1"
		fit.Alpha[i].Coefficients = terms(features.AlphaFeatures(features.V11), 10)
	}
	fit.Beta.HardwareFactors = []result.HardwareFactor{{Hardware: "b", Factor: 0.9}, {Hardware: "a", Factor: 1.1}}
	fit.Alpha[0], fit.Alpha[1] = fit.Alpha[1], fit.Alpha[0] // unsorted on purpose
	return fit
}
