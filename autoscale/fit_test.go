package autoscale

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

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

func exampleSource() export.Source {
	return export.Source{
		Fit:      testkit.ExampleFit(),
		FitInput: result.Input{Name: "fit.json", Bytes: 1234, SHA256: "cafe"},
		Step:     func(d deploy.Deployment) (export.StepTimer, error) { return affine{2000, 8 / float64(d.TP), 0.02}, nil },
	}
}

// exampleSteady is a steady state that was not simulated.
func exampleSteady(*deploy.Deployment, float64, float64, float64) (*steady, error) {
	return &steady{Params: params{AlphaMs: 2.5, BetaMs: 0.01302084, GammaMs: 31, DeltaMs: 0.0002},
		Points: []export.SteadyPoint{
			{LoadFrac: 0.2, RateRPS: 1, TTFTMs: 30, ITLMs: 3, TTFTErr: testkit.Ptr(0.02), ITLErr: testkit.Ptr(-0.01)},
			{LoadFrac: 0.8, RateRPS: 4, TTFTMs: 50, ITLMs: 4, TTFTErr: testkit.Ptr(0.2), ITLErr: testkit.Ptr(0.01)},
		}}, nil
}

// optionsOf are the options of an export from a fit, with KEY=VALUE words of the format.
func optionsOf(t *testing.T, w export.Writer, words ...string) export.Options {
	t.Helper()
	s, err := export.ParseSettings(w.Format, w.Settings, words)
	if err != nil {
		t.Fatal(err)
	}
	return export.Options{Settings: s}
}

// writers are the formats of a fit, the steady state of the first given.
func writers() (wva4p, infernoModels export.Writer) {
	w := Writers()
	w[0].Write = func(src export.Source, opt export.Options) (*export.Output, error) {
		return wvaOf(src, opt, exampleSteady)
	}
	return w[0], w[1]
}

func mustExport(t *testing.T, src export.Source, w export.Writer, opt export.Options) *export.Output {
	t.Helper()
	out, err := export.Export(src, w, opt)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func fileOf(t *testing.T, out *export.Output, suffix string) []byte {
	t.Helper()
	for _, f := range out.Files {
		if f.Suffix == suffix {
			return f.Data
		}
	}
	t.Fatalf("no file with suffix %q", suffix)
	return nil
}

// The four parameters of the steady state come back as strings, with what the consumer's formula
// makes of them, in the shape of the consumer's version.
func TestWVASteadyState(t *testing.T) {
	w, _ := writers()
	src := exampleSource()
	src.Fit.Configs = src.Fit.Configs[:1]
	if _, err := export.Export(src, Writers()[0], optionsOf(t, w)); trace.CodeOf(err) != export.NothingToExport {
		t.Errorf("without a model: %v", err)
	}
	for _, tc := range []struct {
		version string
		class   bool
	}{{"", true}, {"v0.0.2", true}, {"v0.0.5", true}, {"v0.4.1", false}, {"v0.4.2", false}} {
		src = exampleSource()
		src.Fit.Configs = src.Fit.Configs[:1]
		opt := optionsOf(t, w, "version="+tc.version)
		opt.PromptTokens = 200
		out := mustExport(t, src, w, opt)
		data := fileOf(t, out, "")
		var va variantAutoscaling
		dec := yaml.NewDecoder(bytes.NewReader(data))
		dec.KnownFields(true)
		if err := dec.Decode(&va); err != nil {
			t.Fatal(err)
		}
		if va.APIVersion != "llmd.ai/v1alpha1" || va.Kind != "VariantAutoscaling" || va.Spec.ModelID != "meta-llama/Llama-3.1-8B" ||
			(va.Spec.SLOClassRef != nil) != tc.class || tc.class != strings.Contains(string(data), "sloClassRef") {
			t.Errorf("%q: resource %+v", tc.version, va)
		}
		acc := va.Spec.Profile.Accelerators[0]
		if d, p := acc.PerfParms.Decode, acc.PerfParms.Prefill; d["alpha"] != "2.5" || d["beta"] != "0.0130208" || p["gamma"] != "31" ||
			p["delta"] != "0.0002" {
			t.Errorf("%q: %v and %v", tc.version, d, p)
		}
		if acc.MaxBatchSize != 64 || acc.AccCount != 1 || acc.Acc != "H100" {
			t.Errorf("accelerator %+v", acc)
		}
		for _, part := range []string{"v0.0.1 to v0.4.2", "mean prompt 200", "+2 / -1 % at 20 %"} {
			if !strings.Contains(string(data), part) {
				t.Errorf("%q: no %q in the comment:\n%s", tc.version, part, data)
			}
		}
		if !slices.ContainsFunc(out.Warnings, func(f trace.Finding) bool {
			return f.Code == export.PoorProjection && strings.Contains(f.Message, "+20 % in TTFT and +1 % in ITL at 80 %")
		}) {
			t.Errorf("%q: no warning about the load at which the formula is off: %v", tc.version, out.Warnings)
		}
	}
}

func TestInfernoRecoversALine(t *testing.T) {
	src := exampleSource()
	_, w := writers()
	out := mustExport(t, src, w, optionsOf(t, w))
	var doc struct{ Models []modelEntry }
	dec := json.NewDecoder(bytes.NewReader(fileOf(t, out, "")))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Models) != 2 {
		t.Fatalf("%d models", len(doc.Models))
	}
	for i, want := range []parms{{Alpha: 2, Beta: 0.008, Gamma: 0.00002}, {Alpha: 2, Beta: 0.004, Gamma: 0.00002}} {
		got := doc.Models[i].PerfParms
		for _, d := range []float64{got.Alpha/want.Alpha - 1, got.Beta/want.Beta - 1, got.Gamma/want.Gamma - 1} {
			if math.Abs(d) > 1e-9 {
				t.Errorf("model %d: got %+v, want %+v", i, got, want)
			}
		}
	}
	if doc.Models[0].AtTokens != 100 || doc.Models[1].AtTokens != 128 {
		t.Errorf("atTokens %d and %d", doc.Models[0].AtTokens, doc.Models[1].AtTokens)
	}
	if !slices.ContainsFunc(out.Warnings, func(f trace.Finding) bool { return f.Code == export.AssumedValue }) {
		t.Error("no warning about assumed lengths of the second configuration")
	}
}

// TestInfernoBeyondTraining: mean lengths that no training request reached are refused by name, and the sidecar says where
// the line holds.
func TestInfernoBeyondTraining(t *testing.T) {
	src := exampleSource()
	for i := range src.Fit.Configs {
		src.Fit.Configs[i].Covered = &result.Covered{Running: 9, PromptTokens: 900, OutputTokens: 300}
	}
	_, w := writers()
	opt := optionsOf(t, w)
	for _, c := range []struct{ prompt, output float64 }{{901, 100}, {500, 301}} {
		opt.PromptTokens = c.prompt
		opt.OutputTokens = c.output
		opt.Force = ""
		if _, err := export.Export(src, w, opt); trace.CodeOf(err) != export.BeyondTraining {
			t.Errorf("%+v: got %v, want %s", c, err, export.BeyondTraining)
		}
		opt.Force = string(export.BeyondTraining)
		out := mustExport(t, src, w, opt)
		if !slices.ContainsFunc(out.Warnings, func(f trace.Finding) bool { return f.Code == export.BeyondTraining }) {
			t.Errorf("%+v: forced without a word", c)
		}
	}
	opt.PromptTokens = 900
	opt.OutputTokens = 300
	opt.Force = ""
	out := mustExport(t, src, w, opt)
	var side export.Sidecar
	if err := json.Unmarshal(fileOf(t, out, export.SidecarSuffix), &side); err != nil {
		t.Fatal(err)
	}
	c := side.Configs[0]
	if v := c.ValidFor; v == nil || v.Requests != [2]int64{1, c.Seats} || v.ContextTokens != [2]int64{263, 2100} || v.LongestPrompt != 900 ||
		v.LongestOutput != 300 || v.MostRunning != 9 || v.ChunkTokens[1] != 900 {
		t.Errorf("got %+v", v)
	}
}

// The active-set search never returns a negative slope and finds the constrained optimum.
func TestFitLineNonNegative(t *testing.T) {
	x := [][]float64{{1, 1}, {1, 2}, {1, 4}, {1, 8}}
	y := []float64{10, 9, 8, 7}
	l := fitLine(x, y)
	if l.coef[1] != 0 || l.coef[0] < 7 || l.coef[0] > 10 || l.maxErr == 0 {
		t.Errorf("falling data: %+v, want a constant", l)
	}
	var sse func(c float64) float64 = func(c float64) (s float64) {
		for _, v := range y {
			s += (1 - c/v) * (1 - c/v)
		}
		return
	}
	if sse(l.coef[0]) > sse(l.coef[0]*1.001) || sse(l.coef[0]) > sse(l.coef[0]*0.999) {
		t.Error("not the minimum")
	}
}

// A hardware name may hold a line end; it must not become a line of YAML.
func TestWVACommentsCannotAddKeys(t *testing.T) {
	src := exampleSource()
	for i := range src.Fit.Configs {
		src.Fit.Configs[i].Label = "x\nspec: {modelID: forged}\u0085kind: Forged\u2028a: 1"
		src.Fit.Configs[i].Deployment.Hardware.Name = "H100\nkind: Forged"
	}
	w, _ := writers()
	opt := optionsOf(t, w, "name=n", "slo-class-name=s")
	opt.Force = string(export.BadEntry)
	out := mustExport(t, src, w, opt)
	dec := yaml.NewDecoder(bytes.NewReader(out.Files[0].Data))
	for {
		var va map[string]any
		if err := dec.Decode(&va); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if va["kind"] != "VariantAutoscaling" || len(va) != 4 || va["spec"].(map[string]any)["modelID"] == "forged" {
			t.Errorf("got %v", va)
		}
	}
}

// wvaFields are the fields that a version's own types have, of those that carry parameters, every one of them required there:
// api/v1alpha1/variantautoscaling_types.go of workload-variant-autoscaler at the commit.
var wvaFields = []struct {
	version, commit string
	fields          []string
}{
	{"v0.0.2", "b8295467c42d084238393a4845b096c47aed7171", append([]string{"spec.sloClassRef.key", "spec.sloClassRef.name"}, wvaCommon...)},
	{"v0.4.2", "ce3959806d1063d7ada71e64ce2a130a4107545d", wvaCommon}, // 0.4.1 and 0.4.2
}

var wvaCommon = []string{"apiVersion", "kind", "metadata.labels.inference.optimization/acceleratorName", "metadata.name", "spec.modelID",
	"spec.modelProfile.accelerators[].acc", "spec.modelProfile.accelerators[].accCount", "spec.modelProfile.accelerators[].maxBatchSize",
	"spec.modelProfile.accelerators[].perfParms.decodeParms.alpha", "spec.modelProfile.accelerators[].perfParms.decodeParms.beta",
	"spec.modelProfile.accelerators[].perfParms.prefillParms.delta", "spec.modelProfile.accelerators[].perfParms.prefillParms.gamma"}

// TestWVAFields: the file of each version has that version's fields, no other, and parameters as strings.
func TestWVAFields(t *testing.T) {
	for _, of := range wvaFields {
		w, _ := writers()
		out := mustExport(t, exampleSource(), w, optionsOf(t, w, "version="+of.version))
		var doc any
		if err := yaml.Unmarshal(fileOf(t, out, ""), &doc); err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		leaves(doc, "", got)
		fields := slices.Sorted(slices.Values(of.fields))
		if have := slices.Sorted(maps.Keys(got)); !slices.Equal(have, fields) {
			t.Errorf("%s (%s): fields %q, want %q", of.version, of.commit, have, fields)
		}
		for name, v := range got {
			if _, text := v.(string); strings.Contains(name, "Parms.") && !text {
				t.Errorf("%s: %s is %v, want a string", of.version, name, v)
			}
		}
	}
}

// leaves are the values of a document by their path; those of lists share one.
func leaves(v any, at string, out map[string]any) {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			leaves(x, strings.TrimPrefix(at+"."+k, "."), out)
		}
	case []any:
		for _, x := range v {
			leaves(x, at+"[]", out)
		}
	default:
		out[at] = v
	}
}

// TestSteadyState: with the parameters of a simulated steady state the four-parameter formula gives
// the simulator's TTFT and ITL at the loads it was fitted to.
func TestSteadyState(t *testing.T) {
	d := simulatedEngine(Limits{MaxBatch: 64, MaxBatchedTokens: 2048}, 2000)
	step, err := sim.NewLinear3([]float64{6600, 20, 0.05})
	if err != nil {
		t.Fatal(err)
	}
	s, err := SteadyState(d, step, 2, 300, 120)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Points) != len(steadyLoads) {
		t.Fatalf("got %d points", len(s.Points))
	}
	for _, p := range s.Points {
		ttft, itl := *p.TTFTErr, *p.ITLErr
		t.Logf("load %.2f, %.3g requests/s: TTFT %.4g ms %+.1f %%, ITL %.4g ms %+.1f %%", p.LoadFrac, p.RateRPS, p.TTFTMs, 100*ttft,
			p.ITLMs, 100*itl)
		if !(math.Abs(ttft) <= 0.15 && math.Abs(itl) <= 0.10) {
			t.Errorf("load %.2f: TTFT %+.1f %%, ITL %+.1f %%, want within 15 and 10 %%", p.LoadFrac, 100*ttft, 100*itl)
		}
	}
}

// TestVerdictOfCalibrations: parameters are handed on when a hold-out within the fitted loads bears them out, refused after an
// overload stage, and not judged without a hold-out.
func TestVerdictOfCalibrations(t *testing.T) {
	truth := []float64{8, 0.05, 1e-4}
	windows := func(rates ...float64) (out []window) {
		for i, r := range rates {
			w := window{
				RateRPS: r,
				Limits:  Limits{MaxBatch: 64, Queue: 640, MaxBatchedTokens: 2048},
				Shape:   shape{Prompt: 100 + 150*float64(i%4), Output: 60 + 40*float64(i%3)},
			}
			ttft, itl, ok := predictWindow(inferno3P, &w, truth, asSized)
			if !ok {
				t.Fatalf("no prediction at %g/s", r)
			}
			w.TTFTMs = ttft
			w.ITLMs = itl
			w.TTFTSeMs = ttft / 50
			w.ITLSeMs = itl / 100
			w.StartNs, w.EndNs = int64(i)*60e9, int64(i+1)*60e9 // those of a recording
			out = append(out, w)
		}
		return out
	}
	steady := windows(1, 4, 8, 2, 6, 3, 7, 5, 2, 4, 6, 3)
	overload := windows(1, 4, 8, 2, 6, 3, 7, 5, 9, 9.5, 9.6, 9.7)
	for i := 8; i < len(overload); i++ {
		overload[i].TTFTMs *= 170
	}
	for _, c := range []struct {
		name    string
		windows []window
		want    string
		gates   []string
	}{
		{"steady", steady, coeff.VerdictPass, nil},
		{"overload stage", overload, coeff.VerdictFail, []string{"hold_out_ttft_wape", "hold_out_load_outside_fitted"}},
		{"eight windows", steady[:8], coeff.VerdictInsufficient, nil},
	} {
		o := DefaultOptions()
		o.Flavour = inferno3P
		f, err := calibrate(&Server{ID: "s", Windows: c.windows}, &o)
		if err != nil || f.Doc.Verdict == nil {
			t.Fatalf("%s: %v, %s", c.name, err, f.Doc.Reason)
		}
		got, why := (&Queue{Servers: []QueueServer{f.Doc}}).VerdictOf("")
		if got != c.want {
			t.Errorf("%s: got %s (%v), want %s", c.name, got, why, c.want)
		}
		for _, name := range c.gates {
			if !strings.Contains(strings.Join(why, "; "), name) {
				t.Errorf("%s: %v does not name %s", c.name, why, name)
			}
		}
	}
}

// saturating is a step whose experts are all read from some tokens on.
type saturating struct{}

func (saturating) StepUs(batch []trace.Chunk) (float64, error) {
	tokens := 0.0
	for _, c := range batch {
		tokens += float64(c.New)
	}
	return 4000 + 20*tokens + 15000*(1-math.Exp(-tokens/20)), nil
}

// TestLineOfFullEngines: where steps of few requests are shorter than any line says, the line for what fills engines holds from a number
// of requests on and never says less; for what simulates engines it is the line of all batches.
func TestLineOfFullEngines(t *testing.T) {
	l := export.Lengths{Prompt: 512, Output: 128}
	of, err := iterationLine(saturating{}, l, 256, 2048, true)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := iterationLine(saturating{}, l, 256, 2048, false)
	if err != nil {
		t.Fatal(err)
	}
	if of.least < 2 || of.least > 128 || of.maxErr > 0.10 || of.above < 1 || whole.maxErr < 0.20 || whole.least != 1 {
		t.Errorf("got %+v, and %+v of all", of, whole)
	}
	for n := int64(1); n <= 256; n++ {
		us, _ := saturating{}.StepUs(decodeBatch(n, l))
		said := of.coef[0] + of.coef[1]*float64(n) + of.coef[2]*float64(n*576)
		if off := said*1e3/us - 1; off < -0.1 || off > of.above+1e-9 || n >= of.least && off > 0.1 {
			t.Errorf("%d decodes: the line is %+.1f %% off, from %d on within 10 %%", n, 100*off, of.least)
		}
	}
}

// simulatedSweep is the windows of one simulated sweep: shapes by shares of capacity, requests a point.
func simulatedSweep(t *testing.T, p params, law workload.Law, shapes []shape, requests int, seed uint64) []window {
	t.Helper()
	limits := Limits{MaxBatch: 64, Queue: 640}
	var out []window
	for i, s := range shapes {
		m, err := newModel(inferno3P, p, s, limits)
		if err != nil {
			t.Fatal(err)
		}
		for k, load := range []float64{0.15, 0.35, 0.5, 0.65, 0.8} {
			traffic := workload.Traffic{
				Shape:     s,
				PromptLaw: workload.ConstantLaw,
				OutputLaw: law,
				RateRPS:   load * m.MaxRateRPS(),
				Requests:  requests,
				Seed:      seed*100 + uint64(5*i+k),
			}
			at, err := simulate(p, limits, traffic, nil)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, window{
				Name:     "sweep",
				Requests: requests,
				RateRPS:  traffic.RateRPS,
				Limits:   limits,
				Shape:    s,
				TTFTMs:   at.TTFTMs,
				ITLMs:    at.ITLMs,
				TTFTSeMs: at.TTFTSeMs,
				ITLSeMs:  at.ITLSeMs,
			})
			if law == workload.ExponentialLaw {
				out[len(out)-1].Shape.OutputCV2 = 1
			}
		}
	}
	return out
}

// Intervals of sweeps hold the truth: of 40 simulated sweeps, with constant and with exponential outputs, each parameter of inferno-3p lies
// inside in 36 at least. Half widths of 10, 30 and 30 % were asked for. The recordings would allow them (the Cramer-Rao bound that is
// printed), and corrected reaches the first two; inferno-3p, which knows means alone, is itself off by as much as its intervals say.
func TestEvalSweepIntervals(t *testing.T) {
	repo.NeedEval(t)
	laws := []workload.Law{workload.ConstantLaw, workload.ExponentialLaw}
	coverage(t, inferno3P, laws, 20, 2000, [3]int{36, 36, 36}, [3]float64{0.1, 0.3, 0.3})
	coverage(t, corrected, laws, 20, 2000, [3]int{36, 36, 36}, [3]float64{0.1, 0.3, 0.3})
	coverage(t, inferno3P, laws, 1, 250, [3]int{}, [3]float64{math.Inf(1), math.Inf(1), math.Inf(1)})
}

// The same of one sweep: the machinery, and that a jackknife is the wider one.
func TestSweepIntervals(t *testing.T) {
	coverage(t, inferno3P, []workload.Law{workload.ExponentialLaw}, 1, 250, [3]int{}, [3]float64{math.Inf(1), math.Inf(1), math.Inf(1)})
}

func coverage(t *testing.T, f Flavour, laws []workload.Law, sweeps, requests int, least [3]int, widest [3]float64) {
	truth := params{AlphaMs: 10, BetaMs: 0.03, GammaMs: 4e-5}
	shapes := []shape{{Prompt: 256, Output: 128}, {Prompt: 512, Output: 256}, {Prompt: 1024, Output: 128}, {Prompt: 2048, Output: 64}}
	var inside [3]int
	var half, off [3][]float64
	jack, info := 0, make([]float64, 9)
	opt := defaultFit(f)
	for _, law := range laws {
		for k := range sweeps {
			w := simulatedSweep(t, truth, law, shapes, requests, uint64(k+1))
			addInformation(info, w, truth)
			for i := range w { // as benchmarks write them
				w[i].TTFTSeMs, w[i].ITLSeMs = 0, 0
			}
			all, err := Fit(w, opt)
			if err != nil {
				t.Fatal(err)
			}
			list := (&Server{}).effective(f, all)
			widenIntervals(list, w, all, opt)
			for j, want := range truth.Vector(f) {
				q := &list[j]
				if q.CI95[0] <= want && want <= q.CI95[1] {
					inside[j]++
				}
				if q.CI95Method == bySimulator {
					jack++
				}
				half[j] = append(half[j], math.Sqrt(q.CI95[1]/q.CI95[0])-1)
				off[j] = append(off[j], math.Abs(q.Value/want-1))
			}
		}
	}
	n := len(laws) * sweeps
	for i := range info {
		info[i] /= float64(n)
	}
	bound := stat.Inverse(info, 3)
	for j, name := range f.Parameters() {
		t.Logf("%s %s: inside in %d of %d, median half width %.1f %%, off by %.1f %% in the median; a sweep's bound %.1f %%", f, name, inside[j],
			n, 100*stat.Median(half[j]), 100*stat.Median(off[j]), 196*math.Sqrt(bound[4*j]))
		if inside[j] < least[j] || stat.Median(half[j]) > widest[j] {
			t.Errorf("%s %s: inside in %d of %d sweeps, half width %.3f; want %d and at most %g", f, name, inside[j], n, stat.Median(half[j]),
				least[j], widest[j])
		}
	}
	if jack == 0 {
		t.Error("no interval is the jackknife's")
	}
}

// addInformation adds what the means of a sweep say of the logarithms of the parameters (Fisher): slopes of the corrected model, which
// follows the simulator, and the means' own standard errors.
func addInformation(info []float64, windows []window, truth params) {
	const step = 1.01
	for i := range windows {
		w := &windows[i]
		var slopes [2][3]float64
		for j := range 3 {
			x := truth.Vector(corrected)
			x[j] *= step
			upTTFT, upITL, _ := predictWindow(corrected, w, x, asSized)
			x[j] /= step * step
			ttft, itl, _ := predictWindow(corrected, w, x, asSized)
			slopes[0][j], slopes[1][j] = (upTTFT-ttft)/w.TTFTSeMs, (upITL-itl)/w.ITLSeMs
		}
		for _, s := range slopes {
			for j := range 9 {
				info[j] += s[j/3] * s[j%3] / math.Pow(2*math.Log(step), 2)
			}
		}
	}
}
