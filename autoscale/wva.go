package autoscale

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	llm "github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// steadyState simulates a deployment at several loads, with mean lengths in tokens and the API overhead
// in ms, and fits the autoscaler's four parameters to it.
type steadyState func(d *deploy.Deployment, overheadMs, prompt, output float64) (*steady, error)

// wva writes the resources of a fit under its own coefficients.
func wva(src export.Source, opt export.Options) (*export.Output, error) {
	return wvaOf(src, opt, func(d *deploy.Deployment, overheadMs, prompt, output float64) (*steady, error) {
		if src.Set == nil {
			return nil, trace.Errorf(export.NothingToExport, "no coefficients to simulate with")
		}
		set, err := src.Set()
		if err != nil {
			return nil, err
		}
		step, err := sim.NewPhysics(set, d)
		if err != nil {
			return nil, err
		}
		return SteadyState(d, step, overheadMs, prompt, output)
	})
}

// wvaOf writes one VariantAutoscaling per model, one accelerator entry per
// (hardware, tp) of the fit.
func wvaOf(src export.Source, opt export.Options, steady steadyState) (*export.Output, error) {
	cfgs, err := src.Configs(opt.Config)
	if err != nil {
		return nil, err
	}
	if err := readerOf(QueueWVA4P).CheckVersion(opt.Settings["version"]); err != nil {
		return nil, err
	}
	accs, dup := accelerators(cfgs)
	warn, err := opt.Refuse(dup, oneConfigHint)
	if err != nil {
		return nil, err
	}
	side := src.Sidecar(opt, QueueWVA4P, wvaReadBy)
	var file resourceFile
	for i, c := range cfgs {
		overhead, fromOverhead := overheadMs(src.Fit, &c)
		acc, sc, note, w, err := simulated(c, accs[i], opt, overhead, steady)
		if err != nil {
			return nil, err
		}
		warn = append(warn, w...)
		side.Configs = append(side.Configs, sc)
		side.Values = append(side.Values, wvaValues(c.Label, acc, fromOverhead)...)
		file.add(c.Deployment.Model.ID, acc, note, opt.Settings,
			"ITL = alpha + beta*B; TTFT = wait + gamma + delta*(input tokens)*B; ms. Fitted to the simulated steady state:")
	}
	data, err := file.write()
	if err != nil {
		return nil, err
	}
	side.Warnings = append(src.ValidationWarnings(), warn...)
	return side.Beside(warn, export.File{Data: data})
}

// resourceFile is one resource a model, each under its comment lines.
type resourceFile struct {
	resources []*variantAutoscaling
	comments  [][]string
}

// add puts an accelerator, with a note on it, into the resource of its model. A model's first makes the resource, under a title and in the
// shape of the consumer's version: up to v0.0.5 it names a service class.
func (f *resourceFile) add(modelID string, acc Accelerator, note string, o export.Settings, title string) *variantAutoscaling {
	k := slices.IndexFunc(f.resources, func(r *variantAutoscaling) bool { return r.Spec.ModelID == modelID })
	if k < 0 {
		k = len(f.resources)
		r := &variantAutoscaling{
			APIVersion: "llmd.ai/v1alpha1", Kind: "VariantAutoscaling", Spec: spec{ModelID: modelID},
			Metadata: metadata{Name: resourceName(o["name"], modelID), Labels: map[string]string{"inference.optimization/acceleratorName": acc.Acc}},
		}
		if namesServiceClass(o["version"]) {
			r.Spec.SLOClassRef = &configRef{Name: o["slo-class-name"], Key: cmp.Or(o["slo-class-key"], modelID)}
		}
		f.resources = append(f.resources, r)
		f.comments = append(f.comments, []string{title})
	}
	r := f.resources[k]
	r.Spec.Profile.Accelerators = append(r.Spec.Profile.Accelerators, acc)
	f.comments[k] = append(f.comments[k], "  "+note)
	return r
}

// Errors of the consumer's formula above which a steady state is warned about.
const (
	poorSteadyTTFT = 0.15
	poorSteadyITL  = 0.10
)

// simulated simulates one configuration and takes the parameters that give its latencies.
func simulated(c result.FitConfig, name accelerator, opt export.Options, overheadMs float64, steady steadyState) (Accelerator,
	export.SideConfig, string, []trace.Finding, error) {
	d := c.Deployment
	l, warn := opt.MeanLengths(c)
	s, err := steady(&d, overheadMs, l.Prompt, l.Output)
	if err != nil {
		return Accelerator{}, export.SideConfig{}, "", nil, fmt.Errorf("%s: steady state: %w", c.Label, err)
	}
	acc := Accelerator{
		Acc: name.name, AccCount: name.count, PerfParms: perfParm{
			Decode:  map[string]string{"alpha": six(s.Params.AlphaMs), "beta": six(s.Params.BetaMs)},
			Prefill: map[string]string{"gamma": six(s.Params.GammaMs), "delta": six(s.Params.DeltaMs)},
		},
		MaxBatchSize: d.Seats(l.Prompt + l.Output),
	}
	text, far := steadyText(s.Points)
	if far != "" {
		warn = append(warn, trace.Findingf(export.PoorProjection, "%s: the autoscaler's formula %s", c.Label, far))
	}
	sc := export.SideConfig{Label: c.Label, Seats: acc.MaxBatchSize, PromptTokens: &l.Prompt, OutputTokens: &l.Output, Steady: s.Points}
	note := fmt.Sprintf("%s x%d: mean prompt %.0f, mean output %.0f tokens; off from the simulator (TTFT / ITL) by %s", acc.Acc, acc.AccCount,
		l.Prompt, l.Output, text)
	if r := renamedNote(name, c); r != "" {
		note += "; " + r
	}
	return acc, sc, note, warn, nil
}

// steadyText is the consumer's error by load, and what is wrong with the worst of them.
func steadyText(points []export.SteadyPoint) (text, far string) {
	var parts []string
	worst := 0.0
	for _, p := range points {
		at := fmt.Sprintf("at %.0f %% of the capacity", 100*p.LoadFrac)
		if p.TTFTErr == nil || p.ITLErr == nil {
			return strings.Join(append(parts, "no answer "+at), ", "), "has no answer " + at
		}
		parts = append(parts, fmt.Sprintf("%+.0f / %+.0f %% at %.0f %%", 100**p.TTFTErr, 100**p.ITLErr, 100*p.LoadFrac))
		if e := max(math.Abs(*p.TTFTErr)/poorSteadyTTFT, math.Abs(*p.ITLErr)/poorSteadyITL); e > max(1, worst) {
			worst = e
			far = fmt.Sprintf("is off by %+.0f %% in TTFT and %+.0f %% in ITL %s", 100**p.TTFTErr, 100**p.ITLErr, at)
		}
	}
	return strings.Join(parts, ", ") + " load", far
}

func wvaValues(label string, acc Accelerator, overheadNote string) (out []export.SideValue) {
	const origin = "least squares of TTFT and ITL, solved by the autoscaler's own formula, against the simulator at six loads"
	p := acc.PerfParms
	for _, of := range [][5]string{{"alpha", "ms", p.Decode["alpha"], origin, "ITL at an empty batch"},
		{"beta", "ms/request", p.Decode["beta"], origin, "ITL per sequence in the batch"},
		{"gamma", "ms", p.Prefill["gamma"], origin + "; " + overheadNote, "TTFT before any token"},
		{"delta", "ms/token", p.Prefill["delta"], origin, "TTFT per prompt token and sequence"}} {
		v, _ := strconv.ParseFloat(of[2], 64) // six wrote it
		out = append(out, derived(label, of[0], of[1], v, of[3], of[4]))
	}
	return out
}

// overheadMs is the API overhead that TTFT contains on a configuration, in ms.
func overheadMs(fit *result.Fit, c *result.FitConfig) (float64, string) {
	us, scope, ok := fit.MedianDelayUs(coeff.Overhead, c)
	if !ok {
		return 0, "without an API overhead (the fit has none)"
	}
	return us / 1000, fmt.Sprintf("plus the API overhead on %s, %s ms", scope, six(us/1000))
}

// six prints six significant digits: more than any consumer's float32 keeps.
func six(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// resourceName is a DNS-1123 name.
func resourceName(prefix, modelID string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(prefix+"-"+llm.Name(modelID)))
	return strings.Trim(name, "-.")
}

// accelerator is how the autoscalers name what a configuration runs on: both
// key a model's performance by this name, so a model may have one entry each.
type accelerator struct {
	name  string
	count int64 // units of it per replica
}

// accelerators names the configurations. A device is called by its short name
// with one unit per rank, "H100" x 2; where a model runs on several counts of
// one device, all but the single one become units of their own, "2xH100" x 1,
// which the reader must know as an accelerator of that multiplicity.
func accelerators(cfgs []result.FitConfig) ([]accelerator, []export.Refusal) {
	type key struct{ model, name string }
	counts := map[key]map[int64]bool{}
	plain := make([]accelerator, len(cfgs))
	for i, c := range cfgs {
		d := c.Deployment
		plain[i] = accelerator{shortName(d.Hardware.Name), max(1, d.TP) * max(1, d.PP)}
		k := key{d.Model.ID, plain[i].name}
		if counts[k] == nil {
			counts[k] = map[int64]bool{}
		}
		counts[k][plain[i].count] = true
	}
	var out []export.Refusal
	first := map[string]string{}
	for i, c := range cfgs {
		a := &plain[i]
		if len(counts[key{c.Deployment.Model.ID, a.name}]) > 1 && a.count > 1 {
			*a = accelerator{fmt.Sprintf("%dx%s", a.count, a.name), 1}
		}
		id := c.Deployment.Model.ID + "\x00" + a.name
		if other, ok := first[id]; ok {
			out = append(out, export.Refusal{Code: export.BadEntry,
				Sentence: fmt.Sprintf("%s and %s would both be %q of one model; the reader keeps the last", other, c.Label, a.name)})
			continue
		}
		first[id] = c.Label
	}
	return plain, out
}

// shortName is the device's name as clusters label it: "H100" of "H100-SXM-80GB".
func shortName(hw string) string {
	if name, ok := deploy.SpelledBy(deploy.Cluster, hw); ok {
		return name
	}
	name, _, _ := strings.Cut(hw, "-")
	return name
}

// renamedNote says which names the reader must be told about.
func renamedNote(a accelerator, c result.FitConfig) string {
	if n := max(1, c.Deployment.TP) * max(1, c.Deployment.PP); a.count != n {
		return fmt.Sprintf("%s stands for %d x %s", a.name, n, shortName(c.Deployment.Hardware.Name))
	}
	return ""
}

// variantAutoscaling is the resource of llmd.ai/v1alpha1 as workload-variant-autoscaler
// v0.0.1 to v0.4.2 define it (api/v1alpha1/variantautoscaling_types.go). SLOClassRef is
// there up to v0.0.5, spec.variantCost from v0.0.5.
type variantAutoscaling struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       spec     `yaml:"spec"`
}

// metadata of a resource.
type metadata struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
}

// spec of a VariantAutoscaling.
type spec struct {
	ModelID     string     `yaml:"modelID"`
	SLOClassRef *configRef `yaml:"sloClassRef,omitempty"`
	Profile     struct {
		Accelerators []Accelerator `yaml:"accelerators"` // what the model runs on
	} `yaml:"modelProfile"`
	VariantCost string `yaml:"variantCost,omitempty"` // cents per replica and hour
}

// configRef names a key of a configMap.
type configRef struct {
	Name string `yaml:"name"`
	Key  string `yaml:"key"`
}

// Accelerator is a model on one accelerator.
type Accelerator struct {
	Acc          string   `yaml:"acc"`
	AccCount     int64    `yaml:"accCount"`
	PerfParms    perfParm `yaml:"perfParms"`
	MaxBatchSize int64    `yaml:"maxBatchSize"`
}

// perfParm holds the four parameters as strings, in ms, as the CRD wants them.
type perfParm struct {
	Decode  map[string]string `yaml:"decodeParms"`
	Prefill map[string]string `yaml:"prefillParms"`
}

// wvaReadBy says who reads a VariantAutoscaling with parameters.
const wvaReadBy = "workload-variant-autoscaler v0.0.1 to v0.4.2; v0.5.0 removed these fields from the CRD"

// write is the resources as one multi-document file.
func (f *resourceFile) write() ([]byte, error) {
	var buf bytes.Buffer
	for i, r := range f.resources {
		if i > 0 {
			buf.WriteString("---\n")
		}
		fmt.Fprintf(&buf, "# Read by %s.\n", wvaReadBy)
		last := "The label names the accelerator in use: edit it."
		if r.Spec.SLOClassRef != nil {
			last = "The label names the accelerator in use and sloClassRef a ConfigMap of yours: edit both."
		}
		for _, line := range append(f.comments[i], last) {
			fmt.Fprintf(&buf, "# %s\n", files.Line(line))
		}
		enc := yaml.NewEncoder(&buf)
		enc.SetIndent(2)
		if err := enc.Encode(r); err != nil {
			return nil, err
		}
		if err := enc.Close(); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), nil
}

// modelEntry is one model on one accelerator in llm-inferno's model-data.json (optimizer-light pkg/config/types.go@77615bd).
// PerfParms has the name ServiceParms inside workload-variant-autoscaler; one of the two is there.
type modelEntry struct {
	Name         string `json:"name"`
	Acc          string `json:"acc"`
	AccCount     int64  `json:"accCount"`
	MaxBatchSize int64  `json:"maxBatchSize"`
	// AtTokens is the mean output length behind MaxBatchSize: the optimizer scales the
	// batch by AtTokens over the load's mean output length.
	AtTokens     int64  `json:"atTokens"`
	PerfParms    *parms `json:"perfParms,omitempty"`
	ServiceParms *parms `json:"serviceParms,omitempty"`
}

// parms are ms, ms per computed token and ms per KV token read.
type parms struct {
	Alpha float64 `json:"alpha"`
	Beta  float64 `json:"beta"`
	Gamma float64 `json:"gamma"`
}

// infernoReadBy says who reads model-data.json.
const infernoReadBy = "llm-inferno optimizer-light and control-loop (2026): iteration ms = alpha + beta*computed tokens + " +
	"gamma*KV tokens read"

// Inferno writes model-data.json.
func Inferno(models []modelEntry) ([]byte, error) {
	return result.Marshal(map[string][]modelEntry{"models": models})
}

// exact prints a number so that reading it gives the same number.
func exact(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// lineWriter writes the iteration lines of configurations, one entry each, in the form of a consumer.
func lineWriter(format export.Format, readBy string, write func([]modelEntry) ([]byte, error)) func(export.Source, export.Options) (
	*export.Output, error) {
	return func(src export.Source, opt export.Options) (*export.Output, error) {
		if err := readerOf(format).CheckVersion(opt.Settings["version"]); err != nil && format == InfernoModels {
			return nil, err
		}
		cfgs, err := src.Configs(opt.Config)
		if err != nil {
			return nil, err
		}
		accs, dup := accelerators(cfgs)
		warn, err := opt.Refuse(dup, oneConfigHint)
		if err != nil {
			return nil, err
		}
		side := src.Sidecar(opt, format, readBy)
		models := []modelEntry{}
		for i, c := range cfgs {
			m, sc, w, err := infernoEntry(src, c, accs[i], opt, format == InfernoModels)
			if err != nil {
				return nil, err
			}
			models = append(models, m)
			side.Configs = append(side.Configs, sc)
			side.Values = append(side.Values, infernoValues(c.Label, *m.PerfParms)...)
			warn = append(warn, w...)
		}
		data, err := write(models)
		if err != nil {
			return nil, err
		}
		side.Warnings = append(src.ValidationWarnings(), warn...)
		return side.Beside(warn, export.File{Data: data})
	}
}

// simulatedModel is the latency of vLLM's simulated model: the line's terms, a sequence that decodes being one computed token.
func simulatedModel(models []modelEntry) ([]byte, error) {
	if len(models) != 1 {
		return nil, trace.Errorf(export.BadEntry, "got %d configurations, want one: a config.json is of one engine", len(models)).
			WithHint("--config LABEL")
	}
	p := models[0].PerfParms
	return result.Marshal(map[string]any{"latency": struct {
		Type     string  `json:"type"`
		BaseMs   float64 `json:"base_ms"`
		Prefill  float64 `json:"prefill_ms_per_token"`
		Decode   float64 `json:"decode_ms_per_seq"`
		Context  float64 `json:"ctx_ms_per_ktoken"`
		IsLength bool    `json:"deterministic_length"`
	}{"linear", p.Alpha, p.Beta, p.Beta, 1e3 * p.Gamma, true}})
}

func infernoEntry(src export.Source, c result.FitConfig, name accelerator, opt export.Options, isSized bool) (modelEntry, export.SideConfig,
	[]trace.Finding, error) {
	d := c.Deployment
	l, warn := opt.MeanLengths(c)
	beyond, err := opt.Refuse(extrapolated(c, l), lengthsHint)
	if err != nil {
		return modelEntry{}, export.SideConfig{}, nil, err
	}
	warn = append(warn, beyond...)
	t, err := src.Timer(c)
	if err != nil {
		return modelEntry{}, export.SideConfig{}, nil, err
	}
	largest := d.Seats(l.Prompt + l.Output)
	it, err := iterationLine(t, l, largest, d.Engine.MaxNumBatchedTokens, isSized)
	switch {
	case err != nil:
		return modelEntry{}, export.SideConfig{}, nil, fmt.Errorf("%s: %w", c.Label, err)
	case it.maxErr > poorLine:
		warn = append(warn, trace.Findingf(export.PoorProjection, "%s: the iteration line is off by up to %.0f %% of the physics model on its "+
			"grid (mean %.1f %%)", c.Label, 100*it.maxErr, 100*it.meanErr))
	case it.least > 1:
		warn = append(warn, trace.Findingf(narrowLine, "%s: the iteration line holds from %d requests in a batch on, within %.0f %% of "+
			"the physics model; with fewer it says up to %.0f %% more", c.Label, it.least, 100*it.maxErr, 100*it.above))
	}
	m := modelEntry{
		Name: llm.Name(d.Model.ID), Acc: name.name, AccCount: name.count,
		MaxBatchSize: largest, AtTokens: max(1, trace.Int(math.Floor(l.Output+0.5))),
		PerfParms: &parms{Alpha: it.coef[0], Beta: it.coef[1], Gamma: it.coef[2]},
	}
	sc := export.SideConfig{Label: c.Label, Seats: largest, PromptTokens: &l.Prompt, OutputTokens: &l.Output,
		MaxRelErr: &it.maxErr, MeanRelErr: &it.meanErr,
		GridPoints: it.points, ValidFor: validity(c, l, [2]int64{it.least, largest}, d.Engine.MaxNumBatchedTokens), Note: renamedNote(name, c)}
	return m, sc, warn, nil
}

// lengthsHint says what to do about lengths beyond the training; %s are the codes.
const lengthsHint = "give --prompt-tokens and --output-tokens within the training, train on longer requests, or take the extrapolation " +
	"with --force %s"

// extrapolated are the mean lengths beyond the longest that the configuration was trained on.
func extrapolated(c result.FitConfig, l export.Lengths) (out []export.Refusal) {
	if c.Covered == nil {
		return nil
	}
	for _, of := range []struct {
		what    string
		mean    float64
		longest int64
	}{{"prompt", l.Prompt, c.Covered.PromptTokens}, {"output", l.Output, c.Covered.OutputTokens}} {
		if of.longest > 0 && of.mean > float64(of.longest) {
			out = append(out, export.Refusal{Code: export.BeyondTraining, Sentence: fmt.Sprintf("%s: got a mean %s of %.0f tokens, "+
				"want at most %d, the longest of the training", c.Label, of.what, of.mean, of.longest)})
		}
	}
	return out
}

// validity is the range of the grid that the line was fitted on, and of what the training reached.
func validity(c result.FitConfig, l export.Lengths, requests [2]int64, budget int64) *export.Validity {
	context := func(depth float64) int64 { return trace.Int((l.Prompt + l.Output/2) * depth) }
	v := &export.Validity{Requests: requests, ContextTokens: [2]int64{context(iterationDepths[0]), context(iterationDepths[2])},
		ChunkTokens: [2]int64{0, min(max(1, trace.Int(l.Prompt)), budget-1)}}
	if c.Covered != nil {
		v.LongestPrompt = c.Covered.PromptTokens
		v.LongestOutput = c.Covered.OutputTokens
		v.MostRunning = c.Covered.Running
	}
	return v
}

func infernoValues(label string, p parms) []export.SideValue {
	const origin = "non-negative least squares in relative error over a grid of batches, depths and prompt chunks of the physics model"
	return []export.SideValue{
		derived(label, "alpha", "ms", p.Alpha, origin, "time of an iteration before any token"),
		derived(label, "beta", "ms/token", p.Beta, origin, "time per computed token"),
		derived(label, "gamma", "ms/token", p.Gamma, origin, "time per KV token read"),
	}
}

// derived is a value of a configuration that follows from learned coefficients.
func derived(label, key, unit string, v float64, origin, effect string) export.SideValue {
	return export.SideValue{Key: label + "." + key, Name: key, Value: result.OrNull(v), Unit: unit, Identified: "derived", Learned: true,
		Origin: origin, Effect: effect}
}

// poorLine is the relative error on the grid above which a line is warned about.
const poorLine = 0.10

// batchSizes are 1, 2, 4, ... and the largest.
func batchSizes(largest int64) []int64 {
	var out []int64
	for b := int64(1); b < largest; b *= 2 {
		out = append(out, b)
	}
	return append(out, largest)
}

// decodes is a batch of n decodes in the middle of their output.
func decodes(n int64, l export.Lengths) []trace.Chunk {
	c := trace.Chunk{Computed: trace.Int(float64(l.Prompt) + l.Output/2), Prompt: trace.Int(l.Prompt), New: 1}
	return slices.Repeat([]trace.Chunk{c}, int(n))
}

// line is a non-negative linear model of a quantity and how well it holds on the grid it was fitted on.
type line struct {
	coef            []float64
	maxErr, meanErr float64 // relative
	points          int
	least           int64   // requests of a batch from which on it was fitted
	above           float64 // relative, at worst, with fewer requests
}

// fitLine minimises the sum of squared relative errors of y over x'c with c >=
// 0. With at most three columns every active set is tried, which is exact.
func fitLine(x [][]float64, y []float64) line {
	p := len(x[0])
	gram := make([]float64, p*p)
	sums := make([]float64, p)
	for i := range x {
		for r := range p {
			u := x[i][r] / y[i]
			sums[r] += u
			for c := range p {
				gram[r*p+c] += u * x[i][c] / y[i]
			}
		}
	}
	best, bestSSE := make([]float64, p), math.Inf(1)
	for set := 1; set < 1<<p; set++ {
		var cols []int
		for _, j := range []int{0, 1, 2}[:p] {
			if set&(1<<j) != 0 {
				cols = append(cols, j)
			}
		}
		k := len(cols)
		a := make([]float64, k*k)
		z := make([]float64, k)
		c := make([]float64, p)
		var scale []float64 // of the columns, so that their pivots can be compared
		for _, j := range cols {
			scale = append(scale, math.Sqrt(gram[j*p+j]))
		}
		for r, jr := range cols {
			z[r] = sums[jr] / scale[r]
			for q, jq := range cols {
				a[r*k+q] = gram[jr*p+jq] / (scale[r] * scale[q])
			}
		}
		if slices.Min(scale) == 0 || stat.Cholesky(a, k) < k {
			continue
		}
		if stat.CholeskySolve(a, k, z); slices.Min(z) < 0 {
			continue
		}
		for r, j := range cols {
			c[j] = z[r] / scale[r]
		}
		var sse float64
		for i := range x {
			r := 1 - ridge.Dot(x[i], c)/y[i]
			sse += r * r
		}
		if sse < bestSSE {
			best, bestSSE = c, sse
		}
	}
	l := line{coef: best, points: len(y)}
	for _, e := range l.errors(x, y) {
		l.maxErr = math.Max(l.maxErr, math.Abs(e))
		l.meanErr += math.Abs(e) / float64(len(y))
	}
	return l
}

// errors are relative, signed, of each point.
func (l *line) errors(x [][]float64, y []float64) []float64 {
	out := make([]float64, len(y))
	for i := range x {
		out[i] = ridge.Dot(x[i], l.coef)/y[i] - 1
	}
	return out
}

// iterationDepths are the depths of the contexts on the grid of [iterationLine], times the mean one.
var iterationDepths = []float64{0.25, 1, 2}

// iterationLine is ms = alpha + beta*computed tokens + gamma*KV tokens read, over decode batches at three depths, alone and with prompt
// chunks of three sizes. For what only sizes engines, and so fills them, it is the line of the most batches, from half
// of the largest on at the latest, that is within poorLine of the model and says no less of smaller ones; the whole line where none is.
func iterationLine(t export.StepTimer, l export.Lengths, largest, budget int64, isSized bool) (line, error) {
	var x [][]float64
	var y []float64
	prompt := max(1, trace.Int(l.Prompt))
	sizes := batchSizes(largest)
	for _, b := range sizes {
		for _, depth := range iterationDepths {
			deep := export.Lengths{Prompt: l.Prompt * depth, Output: l.Output * depth}
			for _, chunk := range []int64{0, min(prompt, 64), min(prompt, 512), prompt} {
				batch := decodes(b, deep)
				if chunk = min(chunk, budget-b); chunk > 0 {
					batch = append(batch, trace.Chunk{Prompt: chunk, New: chunk})
				}
				us, err := t.StepUs(batch)
				if err != nil {
					return line{}, err
				}
				var computed, read float64
				for _, c := range batch {
					computed += float64(c.New)
					read += float64(c.Computed + c.New)
				}
				x = append(x, []float64{1, computed, read})
				y = append(y, us/1000)
			}
		}
	}
	whole := fitLine(x, y)
	whole.least = 1
	for i, b := range sizes {
		k := i * len(y) / len(sizes)
		if of := fitLine(x[k:], y[k:]); isSized && i+2 <= len(sizes) && of.maxErr <= poorLine {
			if rest := append(of.errors(x[:k], y[:k]), 0); slices.Min(rest) >= -poorLine {
				of.least, of.above = b, slices.Max(rest)
				return of, nil
			}
		}
	}
	return whole, nil
}
