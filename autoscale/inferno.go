package autoscale

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// lineWriter writes the iteration lines of configurations, one entry each, in the form of a consumer.
func lineWriter(format export.Format, readBy string, write func([]modelEntry) ([]byte, error)) func(export.Source, export.Options) (
	*export.Output, error) {
	return func(src export.Source, opt export.Options) (*export.Output, error) {
		if err := readerOf(format).CheckVersion(opt.Settings["version"]); err != nil {
			return nil, err
		}
		return inferno(src, opt, src.Sidecar(opt, format, readBy), write)
	}
}

func inferno(src export.Source, opt export.Options, side *export.Sidecar, write func([]modelEntry) ([]byte, error)) (*export.Output,
	error) {
	cfgs, err := src.Configs(opt.Config)
	if err != nil {
		return nil, err
	}
	accs, dup := accelerators(cfgs)
	warn, err := opt.Refuse(dup, oneConfigHint)
	if err != nil {
		return nil, err
	}
	models := []modelEntry{}
	for i, c := range cfgs {
		m, sc, w, err := infernoEntry(src, c, accs[i], opt)
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

func infernoEntry(src export.Source, c result.FitConfig, name accelerator, opt export.Options) (modelEntry, export.SideConfig,
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
	it, err := iterationLine(t, l, largest, d.Engine.MaxNumBatchedTokens)
	if err != nil {
		return modelEntry{}, export.SideConfig{}, nil, fmt.Errorf("%s: %w", c.Label, err)
	}
	warn = append(warn, lineWarnings(c.Label, "iteration", it)...)
	m := modelEntry{
		Name: deploy.ModelName(d.Model.ID), Acc: name.name, AccCount: name.count,
		MaxBatchSize: largest, AtTokens: max(1, trace.Int(math.Floor(l.Output+0.5))),
		PerfParms: &parms{Alpha: it.coef[0], Beta: it.coef[1], Gamma: it.coef[2]},
	}
	sc := export.SideConfig{Label: c.Label, Seats: largest, PromptTokens: &l.Prompt, OutputTokens: &l.Output,
		MaxRelErr: &it.maxErr, MeanRelErr: &it.meanErr,
		GridPoints: it.points, ValidFor: validity(c, l, largest, d.Engine.MaxNumBatchedTokens), Note: renamedNote(name, c)}
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
func validity(c result.FitConfig, l export.Lengths, largest, budget int64) *export.Validity {
	context := func(depth float64) int64 { return trace.Int((l.Prompt + float64(l.Output/2)) * depth) }
	v := &export.Validity{Requests: [2]int64{1, largest}, ContextTokens: [2]int64{context(iterationDepths[0]), context(iterationDepths[2])},
		ChunkTokens: [2]int64{0, min(max(1, trace.Int(l.Prompt)), budget-1)}}
	if c.Covered != nil {
		v.LongestPrompt, v.LongestOutput, v.MostRunning = c.Covered.PromptTokens, c.Covered.OutputTokens, c.Covered.Running
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
	c := trace.Chunk{Computed: trace.Int(float64(l.Prompt) + float64(l.Output/2)), Prompt: trace.Int(l.Prompt), New: 1}
	return slices.Repeat([]trace.Chunk{c}, int(n))
}

// line is a non-negative linear model of a quantity and how well it holds on
// the grid it was fitted on.
type line struct {
	coef            []float64
	maxErr, meanErr float64 // relative
	points          int
}

// fitLine minimises the sum of squared relative errors of y over x'c with c >=
// 0. With at most three columns every active set is tried, which is exact.
func fitLine(x [][]float64, y []float64) line {
	p := len(x[0])
	best, bestSSE := make([]float64, p), math.Inf(1)
	for set := 1; set < 1<<p; set++ {
		c, ok := solveSubset(x, y, set)
		if !ok {
			continue
		}
		var sse float64
		for i := range x {
			r := 1 - dot(x[i], c)/y[i]
			sse += float64(r * r)
		}
		if sse < bestSSE {
			best, bestSSE = c, sse
		}
	}
	l := line{coef: best, points: len(y)}
	for i := range x {
		e := math.Abs(dot(x[i], best)/y[i] - 1)
		l.maxErr = math.Max(l.maxErr, e)
		l.meanErr += e / float64(len(y))
	}
	return l
}

// solveSubset solves the relative least squares over the columns in set; ok is
// false when it is singular or a coefficient comes out negative.
func solveSubset(x [][]float64, y []float64, set int) ([]float64, bool) {
	p := len(x[0])
	var cols []int
	scale := make([]float64, p) // column norms, so that the pivots compare
	for j := range p {
		if set&(1<<j) == 0 {
			continue
		}
		for i := range x {
			scale[j] += x[i][j] * x[i][j] / (y[i] * y[i])
		}
		if scale[j] == 0 {
			return nil, false
		}
		scale[j] = math.Sqrt(scale[j])
		cols = append(cols, j)
	}
	k := len(cols)
	a := make([][]float64, k)
	for r, jr := range cols {
		a[r] = make([]float64, k+1)
		for i := range x {
			u := x[i][jr] / (y[i] * scale[jr])
			for c, jc := range cols {
				a[r][c] += u * x[i][jc] / (y[i] * scale[jc])
			}
			a[r][k] += u
		}
	}
	z, ok := eliminate(a)
	if !ok {
		return nil, false
	}
	coef := make([]float64, p)
	for r, j := range cols {
		if z[r] < 0 {
			return nil, false
		}
		coef[j] = z[r] / scale[j]
	}
	return coef, true
}

// eliminate solves the augmented system in place by Gauss with row pivots;
// rows are scaled to a unit diagonal, so a pivot below 1e-12 is singular.
func eliminate(a [][]float64) ([]float64, bool) {
	k := len(a)
	for c := range k {
		p := c
		for r := c + 1; r < k; r++ {
			if math.Abs(a[r][c]) > math.Abs(a[p][c]) {
				p = r
			}
		}
		if math.Abs(a[p][c]) < 1e-12 {
			return nil, false
		}
		a[c], a[p] = a[p], a[c]
		for r := c + 1; r < k; r++ {
			f := a[r][c] / a[c][c]
			for j := c; j <= k; j++ {
				a[r][j] -= float64(f * a[c][j])
			}
		}
	}
	z := make([]float64, k)
	for r := k - 1; r >= 0; r-- {
		s := a[r][k]
		for j := r + 1; j < k; j++ {
			s -= float64(a[r][j] * z[j])
		}
		z[r] = s / a[r][r]
	}
	return z, true
}

func dot(a, b []float64) float64 {
	var s float64
	for i := range a {
		s += float64(a[i] * b[i])
	}
	return s
}

// iterationDepths are the depths of the contexts on the grid of [iterationLine], times the mean one.
var iterationDepths = []float64{0.25, 1, 2}

// iterationLine is ms = alpha + beta*computed tokens + gamma*KV tokens read,
// over decode batches at three depths, alone and with prompt chunks of three sizes.
func iterationLine(t export.StepTimer, l export.Lengths, largest, budget int64) (line, error) {
	var x [][]float64
	var y []float64
	prompt := max(1, trace.Int(l.Prompt))
	for _, b := range batchSizes(largest) {
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
				x, y = append(x, []float64{1, computed, read}), append(y, us/1000)
			}
		}
	}
	return fitLine(x, y), nil
}

// lineWarnings warns about lines that miss the physics by more than 10 %.
func lineWarnings(label, what string, l line) []trace.Finding {
	if l.maxErr <= poorLine {
		return nil
	}
	return []trace.Finding{trace.Findingf(export.PoorProjection, "%s: the %s line is off by up to %.0f %% of the physics model on its grid "+
		"(mean %.1f %%)", label, what, 100*l.maxErr, 100*l.meanErr)}
}
