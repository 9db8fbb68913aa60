package report

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// scale says how much a made-up Input holds.
type scale struct {
	runs, configs, cells, gates, findings, bins, drift int
}

var small = scale{runs: 4, configs: 3, cells: 3, gates: 22, findings: 3, bins: 12, drift: 15}

// huge is what the stages hand over after 1M requests and 10M steps, and more:
// hundreds of runs, thousands of gates, findings and cells.
var huge = scale{runs: 400, configs: 60, cells: 40, gates: 6000, findings: 400, bins: 60, drift: 180}

var evil = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>`

func ptr[T any](v T) *T { return &v }

// made builds an Input whose numbers are plausible and seeded; its strings are
// as given, so that a test can plant hostile ones.
func made(sc scale, run func(i int) string) Input {
	r := rand.New(rand.NewPCG(1, 2))
	return Input{Extract: madeExtract(sc, run), Fit: madeFit(sc, run, r), Validation: madeValidation(sc, run, r),
		Inspect: madeInspect(sc, run, r)}
}

func header(command string, sc scale, run func(int) string) result.Header {
	h := result.Header{SchemaVersion: "1", ToolVersion: "v1.0.0", Command: command}
	for i := range sc.runs {
		h.Inputs = append(h.Inputs, result.Input{Name: run(i) + "/traces.jsonl", Bytes: 123456, SHA256: fmt.Sprintf("%064x", i)})
	}
	return h
}

var madeTerms = []struct {
	name, unit string
	value      float64
	id         string
}{
	{"prefill_linear_compute", "us/s", 1.61e6, "within"}, {"prefill_attention", "us/s", 2.4e6, "within"},
	{"decode_weight_load", "us/s", 1.38e6, "between-configs"}, {"decode_attention", "us/s", 0, "prior-only"},
	{"kv_cache_read", "us/s", 1.92e6, "within"}, {"batch_utilization", "us", 812.5, "within"},
	{"moe_activation", "us", 0, "prior-only"}, {"tp_communication", "us/s", 0.93e6, "between-configs"},
	{"fixed_step_overhead", "us/s", 3.2e6, "within"}, {"bias", "us", 2110.25, "between-configs"},
}

var madeRegimes = []string{"decode", "mixed", "prefill"}

func madeErrors(r *rand.Rand, rows int) result.Errors {
	m := 0.02 + 0.1*r.Float64()
	return result.Errors{Rows: rows, MAPE: ptr(m), MAPEConst: ptr(0.14 + r.Float64()*0.1), MAPEFloor: ptr(m * 0.7), Skill: ptr(0.8),
		Bias: ptr(r.Float64()*0.04 - 0.02), WAPE: ptr(m), MedianAPE: ptr(m * 0.6), P95APE: ptr(m * 3), RMSEUs: ptr(900.0),
		MaxErrorRatio: ptr(1.7)}
}

func madeFigures(sc scale, r *rand.Rand) *result.FitFigures {
	f := &result.FitFigures{}
	for k, regime := range madeRegimes {
		for i := range sc.bins {
			x := 4000 * math.Pow(1.13, float64(i%40)) * (1 + 0.6*float64(k))
			f.PredVsMeasured = append(f.PredVsMeasured, result.Bin2D{Regime: regime, X: x, Y: x * math.Exp(0.12*r.NormFloat64()),
				N: 1 + r.IntN(5000)})
		}
		for _, against := range []string{"batch", "context", "time"} {
			for i := range 20 {
				mid := 0.05 * (r.Float64() - 0.5)
				f.Residuals = append(f.Residuals, result.ResidualBand{Against: against, Regime: regime, X: float64(i * 12), P10: mid - 0.1, P50: mid,
					P90: mid + 0.12, N: 90})
			}
		}
		for _, t := range madeTerms {
			f.Contributions = append(f.Contributions, result.Contribution{Regime: regime, Name: t.name, MeanUs: 1000 + 4000*r.Float64()})
		}
	}
	return f
}

func madeFit(sc scale, run func(int) string, r *rand.Rand) *result.Fit {
	f := &result.Fit{
		Header: header("fit --objective cross --recipe relative --seed 1 --spec 1.1", sc, run), TrainingDate: "2026-02-17",
		Options: result.FitOptions{Spec: "1.1", Recipe: "relative", BetaTarget: "cadence", Objective: "cross", Split: 0.8, Seed: 1,
			Bootstraps: 500, Prior: "zero"},
	}
	b := result.Model{Name: "beta", SpecVersion: "1.1", Recipe: "relative", Target: "cadence", Lambda: ptr(0.003), GammaEMA: ptr(0.2),
		ConditionNumber: ptr(812.0), DFEff: ptr(6.7),
		Certificate: &result.Certificate{MaxActiveGradient: 2.1e-12, OK: true}, FoldFingerprints: []string{"a", "b", "c", "d", "e"},
		PipelineLag: map[string]result.RunLag{},
		NullDirections: []string{"decode_weight_load and bias cannot be told apart: only their sum, 14.3 ms, is known; add a model with " +
			"another depth"},
		LocoMedian: ptr(0.049), LocoWorst: ptr(0.118), Reweighting: &result.Reweighting{Passes: 6, BiasBefore: ptr(-0.004), BiasAfter: ptr(0.001),
			Kept: true},
		Rows: result.RowCounts{Read: 12000, Kept: 11000, Holdout: 2200,
			Dropped: map[string]int{"warm_up": 400, "idle_gap": 350, "unknown_batch": 250}},
		BoundHits: []result.BoundHit{{Name: "kv_cache_read", Rows: 3, Share: 0.0003}}, Figures: madeFigures(sc, r)}
	for _, g := range []float64{0.05, 0.2, 0.5} {
		for i, l := range []float64{1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1} {
			b.Grid = append(b.Grid, result.GridPoint{Lambda: l, GammaEMA: g, Within: ptr(0.002 + 0.0001*math.Pow(float64(i-7), 2) + 0.0003*g),
				Cross: ptr(0.004 + 0.0002*math.Pow(float64(i-6), 2)), SE: ptr(0.0002)})
		}
	}
	for _, t := range madeTerms {
		c := result.Coefficient{
			Coefficient: coeff.Coefficient{Name: t.name, Value: t.value, Unit: t.unit, Identified: t.id, Range: &[2]float64{0, 0.031}},
			PriorShare:  ptr(0.02), DF: ptr(0.98), VIF: ptr(3.1), Share: ptr(0.1)}
		if t.value > 0 {
			c.CI95 = &[2]float64{t.value * 0.93, t.value * 1.08}
		}
		if t.unit == "us/s" && t.value > 0 {
			c.ImpliedUtilisation = ptr(1e6 / t.value)
		}
		b.Coefficients = append(b.Coefficients, c)
	}
	for i := range sc.configs {
		f.Configs = append(f.Configs, result.FitConfig{Key: fmt.Sprintf("cfg%02d", i), Label: fmt.Sprintf("Llama-3-8B / H100 / tp%d", i+1),
			Runs:       []string{run(i)},
			Deployment: deploy.Deployment{Engine: vllm.Engine{VLLMVersion: "0.15.1"}}})
		b.Loco = append(b.Loco, result.Loco{Config: fmt.Sprintf("cfg%02d", i), Label: f.Configs[i].Label, Rows: 900,
			MAPE: ptr(0.03 + 0.1*r.Float64()), MAPEConst: ptr(0.2 + 0.2*r.Float64()), MAPEFrozen10: ptr(0.3)})
	}
	for i := range sc.runs {
		id := run(i)
		f.Runs = append(f.Runs, result.FitRun{ID: id, Config: fmt.Sprintf("cfg%02d", i%sc.configs), Used: i != 1, Saturated: i == 1,
			Reason: map[bool]string{true: "saturated: queue_growth, ttft_drift"}[i == 1],
			Steps:  result.StepQuality{Recorded: 3000, Known: 2980, FromSnapshots: 1200, Reconstructed: 1780, KnownShare: ptr(0.993)}})
		b.Rows.ByRun = append(b.Rows.ByRun, result.RunRows{Run: id, Read: 3000, Kept: 2900, Dropped: map[string]int{"warm_up": 100}})
		b.PipelineLag[id] = result.RunLag{Lag: 1, Measured: true}
		for lag := range 3 {
			b.LagEvidence = append(b.LagEvidence, result.LagEvidence{Run: id, Lag: lag,
				HoldoutMAPEPrefill: ptr([]float64{0.42, 0.05, 0.39}[lag] * (0.8 + 0.4*r.Float64())), N: 85, Verdict: "measured"})
		}
		b.TargetAudit = append(b.TargetAudit, result.TargetAudit{Run: id, DurationUsP50: ptr(410.0),
			CadenceUsP50: ptr(46100 * (0.7 + r.Float64())), PhysicalFloorUs: ptr(9800.0),
			ArrivedToQueuedUs:   result.Quantiles{P50: ptr(41000.0), P90: ptr(124000.0)},
			QueuedToScheduledUs: result.Quantiles{P50: ptr(210.0), P90: ptr(1240.0)}, Verdict: "cadence is the step time"})
		for k := range sc.cells {
			b.Cells = append(b.Cells, result.Cell{Run: id, Config: "cfg00", Regime: madeRegimes[k%3],
				Bucket: map[bool]string{true: fmt.Sprintf("%d-%d", k, 2*k)}[k >= 3], Errors: madeErrors(r, 200)})
		}
		for k := range 6 {
			b.Drift = append(b.Drift, result.DriftBlock{Run: id, Block: k, Bias: 0.08 * (r.Float64() - 0.5) * float64(1+i%3), Rows: 80})
		}
		for k := range sc.findings {
			f.Warnings = append(f.Warnings, trace.Findingf("lag_assumed", "%s: lag assumed, finding %d", id, k))
		}
	}
	h := madeErrors(r, 2200)
	tr := madeErrors(r, 8800)
	b.Holdout, b.Train = &h, &tr
	f.Beta = b
	over := result.Model{Name: "overhead", SpecVersion: "1.1", Target: "overhead", Replay: true, Lambda: ptr(0.01),
		Coefficients: b.Coefficients[9:], Interval: &result.IntervalErrors{Rows: 800, ExactRows: 12, InformativeRows: 90, InsideShare: ptr(0.987),
			MedianWidthUs: ptr(42000.0), MedianPredUs: ptr(1900.0)}}
	adm := result.Model{Name: "admission", SpecVersion: "1.1", Target: "admission", Lambda: ptr(0.01), Coefficients: b.Coefficients[5:7],
		TargetErrors: &result.TargetErrors{Rows: 800, MAPE: ptr(1.6), WAPE: ptr(0.6), MAPEWindow10s: ptr(0.21), MAPEConst: ptr(1.9)}}
	f.Alpha = []result.Model{adm, over}
	other := result.Model{Name: "blackbox", Holdout: &tr, Coefficients: b.Coefficients[:3]}
	f.Models = []result.Model{other}
	return f
}

func madeCurves(r *rand.Rand, scaleMs float64, n int) (ecdf [][2]float64, qq [][2]float64) {
	for i := range n {
		q := (float64(i) + 0.5) / float64(n)
		x := scaleMs * math.Exp(0.7*math.Sqrt2*math.Erfinv(2*q-1))
		ecdf = append(ecdf, [2]float64{x, q})
		qq = append(qq, [2]float64{x, x * (1 + 0.05*r.Float64())})
	}
	return ecdf, qq
}

func madeMetric(d, at float64) *result.Metric {
	s := result.SampleStats{P50: at, P90: 2 * at, P99: 4 * at, Mean: 1.2 * at}
	return &result.Metric{KSD: d, PAsymptotic: 0.11, NReal: 240, NSim: 240, BeyondD: ptr(d), ChanceBeyondD: ptr(0.08), ChanceMedian: ptr(0.03),
		DAtQuantile: 0.4, DAtMs: at, DRealCDF: 0.5,
		DSimCDF:       0.5 - d,
		WassersteinMs: 3.1, MedianRelErr: 0.031, MedianRelErrPaired: ptr(0.06), RealVsRealD: ptr(0.08), RealMs: s, SimMs: s}
}

func madeValidation(sc scale, run func(int) string, r *rand.Rand) *result.Validation {
	v := &result.Validation{Header: header("validate --seed 1", sc, run), Verdict: coeff.VerdictFail, Figures: madeFigures(sc, r),
		Options: result.ValidationOptions{Split: 0.8, Seed: 1, Latency: "physics"}}
	for i := range sc.runs {
		vr := result.ValidationRun{ID: run(i), Phase: "open", Load: deploy.LoadOpen,
			Split: result.Split{Kind: result.SplitHoldout, Train: 0.8, Test: 0.2}, Requests: 240, Replayed: 1200,
			Excluded: map[string]int{"aborted": 3}, Figures: &result.RunFigures{},
			Replay:   &result.ReplayQuality{KnownBatchesShare: ptr(0.99), IdenticalBatchesShare: ptr(0.31), Steps: 9000},
			Findings: []trace.Finding{trace.Findingf("machine_drift", "%s: the drift curve leaves 0.9-1.1 (1.34)", run(i))}}
		ms := func(f float64) *result.Metrics {
			return &result.Metrics{TTFT: madeMetric(0.2*f, 90), ITL: madeMetric(0.3*f, 46), E2E: madeMetric(0.12*f, 3200)}
		}
		vr.Metrics, vr.MetricsNoise, vr.MetricsDrift = ms(r.Float64()), ms(r.Float64()*0.5), ms(r.Float64()*0.2)
		e := madeErrors(r, 500)
		vr.Steps = &e
		for k, m := range metricNames {
			base := []float64{90, 46, 3200}[k]
			for j, variant := range []string{result.VariantReal, result.VariantPlain, result.VariantNoise, result.VariantDrift} {
				ecdf, qq := madeCurves(r, base*(1+0.07*float64(j%3)), 200)
				vr.Figures.ECDF = append(vr.Figures.ECDF, result.Curve{Metric: m, Variant: variant, Points: ecdf})
				if j > 0 {
					vr.Figures.QQ = append(vr.Figures.QQ, result.Curve{Metric: m, Variant: variant, Points: qq})
				}
			}
		}
		for k := range sc.drift {
			vr.Drift = append(vr.Drift, result.DriftPoint{StartS: float64(20 * k), Factor: 1 + 0.05*float64(i%4)*math.Sin(float64(k)/3), Rows: 60})
		}
		v.Runs = append(v.Runs, vr)
	}
	names := []string{"beta_mape", "ks_ttft", "ks_itl", "ks_e2e", "median_rel_err_ttft", "beta_skill", "overhead_inside", "beta_mape_loco"}
	for i := range sc.gates {
		g := result.Gate{
			Gate:   coeff.Gate{Name: names[i%len(names)], Scope: run(i % sc.runs), Op: "<", Threshold: 0.15, Value: ptr(0.3 * r.Float64())},
			Source: "what samples of 164 requests differ by chance", Required: true}
		switch i % 7 {
		case 5:
			g.Value = nil
			g.Note = "81 requests compared, needs 164"
		case 6:
			g.Required, g.Note = false, "closed_loop"
		default:
			g.Pass = ptr(*g.Value < g.Threshold)
		}
		v.Gates = append(v.Gates, g)
	}
	v.Diagnoses = []result.Diagnosis{
		{Scope: run(2), Gates: []string{"ks_itl"}, Cause: result.CauseMachineDrift, Evidence: ptr(1.34),
			Sentence: "The machine ran 34 % slower than the model between 120 s and 200 s; the drift-corrected replay passes.", Figure: "drift"},
		{Scope: "all", Gates: []string{"beta_mape", "bias"}, Cause: result.CauseModelError, Regime: "prefill", Term: "prefill_linear_compute",
			Evidence: ptr(-0.61), Sentence: "Prefill steps are predicted 61 % too short, and prefill_linear_compute is the term that " +
				"dominates them.", Figure: "contributions"},
	}
	return v
}

func madeInspect(sc scale, run func(int) string, r *rand.Rand) *result.Inspect {
	in := &result.Inspect{Header: header("inspect", sc, run)}
	checks := []struct {
		name string
		thr  float64
	}{{"failure_share", 0.05}, {"queue_growth_r2", 0.5}, {"preempted_share", 0.15}, {"ttft_drift", 2}, {"e2e_p99_over_p50", 10}}
	for i := range sc.runs {
		ir := result.InspectRun{ID: run(i), Config: "cfg00", Model: "Llama-3-8B", Hardware: "H100", TP: 1, SpanS: ptr(302.4), Saturated: i == 1,
			Requests: result.InspectRequests{Total: 1200, Engine: 1200, Finished: 1190, Aborted: 10},
			Losses:   result.InspectLosses{RecordedStepShare: ptr(1.0), AdjacentShare: ptr(0.99), RecordsDropped: ptr(0)},
			Clocks:   result.InspectClocks{OffsetS: ptr(1771342128.1), OffsetSpreadMs: ptr(0.2), Engines: 1},
			Steps:    result.StepQuality{KnownShare: ptr(0.993)}, Series: &result.LoadSeries{BinS: 2}}
		for k, c := range checks {
			ir.Saturation = append(ir.Saturation, result.SaturationCheck{Name: c.name, Value: ptr(c.thr * (0.1 + r.Float64())), Threshold: c.thr,
				Hit: i == 1 && k < 2, Doc: "a check of the load"})
		}
		for _, n := range coverageNames {
			h := result.Histogram{Name: n.Name, Unit: "tokens", Edges: []float64{0}, Rows: 0}
			for k := range 14 {
				if k > 0 {
					h.Edges = append(h.Edges, math.Pow(2, float64(k)))
				}
				c := int(900 * math.Exp(-math.Pow(float64(k-5), 2)/8) * r.Float64())
				h.Counts = append(h.Counts, c)
				h.Rows += c
			}
			ir.Coverage = append(ir.Coverage, h)
		}
		for k := range 150 {
			ir.Series.Running = append(ir.Series.Running, ptr(20+6*math.Sin(float64(k)/9)+2*r.Float64()))
			ir.Series.Waiting = append(ir.Series.Waiting, ptr(float64(i%2)*float64(k)/9+r.Float64()))
		}
		in.Runs = append(in.Runs, ir)
	}
	in.Identify = &result.Identify{MissingRegimes: []string{"no prefill step of more than 4096 tokens"},
		Experiments: []result.Experiment{{Description: "record 5 minutes of prompts of 8k tokens", Term: "prefill_attention", HalfWidth: ptr(0.4),
			After: ptr(0.08), GainLogDet: 2.3}}}
	return in
}

func madeExtract(sc scale, run func(int) string) *result.Extract {
	e := &result.Extract{Header: header("extract", sc, run)}
	for i := range sc.runs {
		e.Runs = append(e.Runs, result.ExtractRun{ID: run(i), Folder: run(i),
			Records:  result.Records{Read: 25000, Kept: 24950, Dropped: map[string]int64{"foreign_scope": 40, "duplicate_span": 10}},
			Steps:    result.ExtractSteps{StepTotals: result.StepTotals{Summaries: 3000}},
			Requests: result.ExtractRequests{Engine: 1200, APILinked: 1198},
			Files:    []result.ExtractFile{{Input: result.Input{Name: "traces.jsonl", Bytes: 1 << 23}, Kind: "traces", Lines: 900}},
			Examples: []result.Example{{Reason: "duplicate_span", Place: run(i) + "/traces.jsonl:12:40", What: "span seen before"}}})
	}
	e.Totals = result.ExtractTotals{Records: result.Records{Read: 100000, Kept: 99800, Dropped: map[string]int64{"foreign_scope": 200}},
		BytesRead: 1 << 25}
	return e
}

// folder reads the documents of a run folder; a missing one stays nil.
func folder(t *testing.T, dir string) (in Input) {
	t.Helper()
	in.Extract = readDoc[result.Extract](t, dir, "extract.json")
	in.Fit = readDoc[result.Fit](t, dir, "fit.json")
	in.Validation = readDoc[result.Validation](t, dir, "validation.json")
	in.Inspect = readDoc[result.Inspect](t, dir, "inspect.json")
	return in
}

func readDoc[T any](t *testing.T, dir, name string) *T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	doc := new(T)
	if err := result.Read(text, doc); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return doc
}
