package export

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/pipeline/export/scaler"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// The resource as pipeline/export/scaler defines it.
type (
	vaResource    = scaler.VariantAutoscaling
	vaAccelerator = scaler.Accelerator
)

// wva writes one VariantAutoscaling per model, one accelerator entry per
// (hardware, tp) of the fit.
func wva(src Source, opt Options) (*Output, error) {
	cfgs, err := configs(src, opt.Config)
	if err != nil {
		return nil, err
	}
	accs, dup := accelerators(cfgs)
	warn, err := settle(dup, &opt, oneConfigHint)
	if err != nil {
		return nil, err
	}
	side := newSidecar(src, FormatWVA, scaler.WVAReadBy)
	gammaExtra, fromOverhead := overheadMs(src.Fit)
	var order []string
	byModel := map[string]*vaResource{}
	comments := map[string][]string{}
	for i, c := range cfgs {
		acc, sc, note, w, err := wvaAccelerator(src, c, accs[i], opt, gammaExtra)
		if err != nil {
			return nil, err
		}
		warn = append(warn, w...)
		side.Configs = append(side.Configs, sc)
		side.Values = append(side.Values, wvaValues(c.Label, acc, fromOverhead)...)
		id := c.Deployment.Model.ID
		if byModel[id] == nil {
			order = append(order, id)
			byModel[id] = newVA(id, acc.Acc, opt)
		}
		va := byModel[id]
		va.Spec.Profile.Accelerators = append(va.Spec.Profile.Accelerators, acc)
		comments[id] = append(comments[id], note)
	}
	data, err := wvaYAML(order, byModel, comments)
	if err != nil {
		return nil, err
	}
	side.Warnings = append(validationWarnings(src), warn...)
	sideData, err := side.encode()
	if err != nil {
		return nil, err
	}
	return &Output{Files: []File{{"", data}, {SidecarSuffix, sideData}}, Warnings: warn}, nil
}

func newVA(modelID, acc string, opt Options) *vaResource {
	key := opt.SLOClassKey
	if key == "" {
		key = modelID
	}
	return &vaResource{
		APIVersion: "llmd.ai/v1alpha1", Kind: "VariantAutoscaling",
		Metadata: scaler.Metadata{
			Name: resourceName(opt.Name, modelID), Labels: map[string]string{"inference.optimization/acceleratorName": acc},
		},
		Spec: scaler.Spec{ModelID: modelID, SLOClassRef: &scaler.ConfigRef{Name: opt.SLOClassName, Key: key}},
	}
}

// wvaAccelerator linearises one configuration.
func wvaAccelerator(src Source, c result.FitConfig, name accelerator, opt Options, gammaExtra float64) (vaAccelerator, SideConfig, string,
	[]trace.Finding, error) {
	d := c.Deployment
	l, warn := lengthsOf(c, opt)
	t, err := stepTimer(src, c)
	if err != nil {
		return vaAccelerator{}, SideConfig{}, "", nil, err
	}
	largest := d.Seats(l.prompt + l.output)
	dec, err := decodeLine(t, l, largest)
	if err != nil {
		return vaAccelerator{}, SideConfig{}, "", nil, fmt.Errorf("%s: decode: %w", c.Label, err)
	}
	pre, err := prefillLine(t, l, largest, d.Engine.MaxNumBatchedTokens)
	if err != nil {
		return vaAccelerator{}, SideConfig{}, "", nil, fmt.Errorf("%s: prefill: %w", c.Label, err)
	}
	warn = append(warn, lineWarnings(c.Label, "decode", dec)...)
	warn = append(warn, lineWarnings(c.Label, "prefill", pre)...)
	acc := vaAccelerator{
		Acc: name.name, AccCount: name.count,
		PerfParms: scaler.PerfParm{
			Decode:  map[string]string{"alpha": six(dec.coef[0]), "beta": six(dec.coef[1])},
			Prefill: map[string]string{"gamma": six(pre.coef[0] + gammaExtra), "delta": six(pre.coef[1])},
		},
		MaxBatchSize: largest,
	}
	worst := max(dec.maxErr, pre.maxErr)
	mean := (dec.meanErr*float64(dec.points) + pre.meanErr*float64(pre.points)) / float64(dec.points+pre.points)
	sc := SideConfig{Label: c.Label, PromptTokens: &l.prompt, OutputTokens: &l.output, MaxRelErr: &worst, MeanRelErr: &mean,
		GridPoints: dec.points + pre.points}
	note := fmt.Sprintf("%s x%d: mean prompt %.0f, mean output %.0f tokens; off from the physics model by up to %.1f %% (decode) and "+
		"%.1f %% (prefill) for B = 1 to %d",
		acc.Acc, acc.AccCount, l.prompt, l.output, 100*dec.maxErr, 100*pre.maxErr, largest)
	if r := renamedNote(name, c); r != "" {
		note += "; " + r
	}
	return acc, sc, note, warn, nil
}

// wvaYAML writes the resources as one multi-document file with a comment on
// top of each that says what was assumed.
func wvaYAML(order []string, byModel map[string]*vaResource, comments map[string][]string) ([]byte, error) {
	var resources []*vaResource
	var lines [][]string
	for _, id := range order {
		text := []string{"ITL = alpha + beta*B; TTFT = gamma + delta*(input tokens)*B; ms. Straight lines through the physics model:"}
		for _, note := range comments[id] {
			text = append(text, "  "+note)
		}
		resources = append(resources, byModel[id])
		lines = append(lines, append(text, "The label names the accelerator in use and sloClassRef a ConfigMap of yours: edit both."))
	}
	return scaler.WVA(resources, lines)
}

func wvaValues(label string, acc vaAccelerator, gammaNote string) []SideValue {
	at := func(key, unit, text, origin, effect string) SideValue {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic("wva: " + err.Error()) // six wrote it
		}
		return SideValue{Key: label + "." + key, Name: key, Value: &v, Unit: unit, Identified: "derived", Learned: true, Origin: origin,
			Effect: effect}
	}
	p := acc.PerfParms
	return []SideValue{
		at("alpha", "ms", p.Decode["alpha"], "least squares in relative error over decode batches of the physics model", "ITL at an empty batch"),
		at("beta", "ms/request", p.Decode["beta"], "the same", "ITL per sequence in the batch"),
		at("gamma", "ms", p.Prefill["gamma"], "the same over batches of prompts that prefill together; "+gammaNote, "TTFT before any token"),
		at("delta", "ms/token", p.Prefill["delta"], "the same", "TTFT per prompt token and sequence"),
	}
}

// overheadMs is the API overhead that TTFT contains, in ms.
func overheadMs(fit *result.Fit) (float64, string) {
	m := fit.AlphaNamed("overhead")
	if m == nil || m.Interval == nil || m.Interval.MedianPredUs == nil {
		return 0, "without an API overhead (the fit has none)"
	}
	return *m.Interval.MedianPredUs / 1000, fmt.Sprintf("plus the API overhead, %s ms", six(*m.Interval.MedianPredUs/1000))
}

// six prints six significant digits: more than any consumer's float32 keeps.
func six(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// resourceName is a DNS-1123 name.
func resourceName(prefix, modelID string) string {
	s := strings.ToLower(prefix + "-" + registryModel(modelID))
	var b strings.Builder
	for _, r := range s {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			b.WriteRune(r)
		} else {
			b.WriteByte('-')
		}
	}
	return strings.Trim(b.String(), "-.")
}
