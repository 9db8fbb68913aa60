package export

import (
	"cmp"
	_ "embed"
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
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// blisFile is all that BLIS's strict decoder needs of a defaults file: any
// further key would be fatal there.
type blisFile struct {
	Version string    `yaml:"version"`
	Coeffs  blisCoeff `yaml:"trained_physics_coefficients"`
}

type blisCoeff struct {
	Alpha []float64 `yaml:"alpha_coeffs,flow"`
	Beta  []float64 `yaml:"beta_coeffs,flow"`
}

// The versions of BLIS that blis-defaults knows: with --model-config-folder, and with --catalog in its place (#1727).
const (
	blisFolders = "f90a1e3"
	blisCatalog = "2026-09"
)

// blisSettings are its options.
var blisSettings = []Setting{{Key: "version", Usage: "of BLIS: " + blisFolders + " (2026-08-22), " + blisCatalog +
	" (and later: --catalog, whose folder is written too) or kernel (refused: its law reads no betas)", Default: blisFolders,
	OneOf: []string{blisFolders, blisCatalog, "kernel"}}}

// catalogOf are the files of a catalog with the models: config.json with the keys that BLIS reads and the sizes that the step time
// was projected on, and model.yaml (blis-schemas docs/reference/model.md@1b9f636).
func catalogOf(cfgs []result.FitConfig) ([]File, error) {
	var out []File
	for i := range cfgs {
		m := cfgs[i].Deployment.Model.AsBLISReads()
		folder := ".catalog/models/" + slug(model.Name(m.ID)) + "/"
		if slices.ContainsFunc(out, func(f File) bool { return strings.HasPrefix(f.Suffix, folder) }) {
			continue
		}
		doc := map[string]any{"model_type": m.ModelType, "num_hidden_layers": m.NumLayers, "hidden_size": m.HiddenSize,
			"num_attention_heads": m.NumHeads, "num_key_value_heads": m.NumKVHeads, "head_dim": m.HeadDim, "vocab_size": m.VocabSize,
			"intermediate_size": m.IntermediateSize, "hidden_act": "silu", "torch_dtype": "bfloat16"}
		if m.BytesPerActivation == 4 {
			doc["torch_dtype"] = "float32"
		}
		if m.BytesPerWeight != m.BytesPerActivation {
			doc["quantization_config"] = map[string]any{"quant_method": "compressed-tensors", "bits": 8 * m.BytesPerWeight}
		}
		if m.MaxPositionEmbeddings > 0 {
			doc["max_position_embeddings"] = m.MaxPositionEmbeddings
		}
		if m.IsMoE() {
			doc["num_local_experts"], doc["num_experts_per_tok"], doc["moe_intermediate_size"] = m.NumExperts, m.TopK, m.MoEIntermediateSize
			doc["shared_expert_intermediate_size"] = m.SharedExpertSize
			if step := m.NumLayers/m.NumMoELayers - 1; step > 0 {
				doc["interleave_moe_layer_step"], doc["intermediate_size_mlp"] = step, m.IntermediateSize
			}
			if m.NumMoELayers != m.NumLayers/(m.NumLayers/m.NumMoELayers) {
				return nil, trace.Errorf(BadEntry, "%s: got experts in %d of %d layers, want all or one layer in so many: BLIS reads "+
					"no other layout", cfgs[i].Label, m.NumMoELayers, m.NumLayers).WithHint("state model.config in run.yaml")
			}
		}
		config, err := result.Marshal(doc)
		if err != nil {
			return nil, err
		}
		card, err := yaml.Marshal(map[string]any{"name": slug(model.Name(m.ID)), "source": map[string]string{
			"provider": "huggingface", "repo": m.ID, "revision": "main"}})
		if err != nil {
			return nil, err
		}
		out = append(out, File{folder + "config.json", config}, File{folder + "model.yaml", card})
	}
	return out, nil
}

// blisDefaults writes a defaults.yaml for each configuration, one for all of them together, a
// hardware file with the peaks the fit used, and the sidecar with the equivalent command lines.
func blisDefaults(src Source, opt Options) (*Output, error) {
	version := opt.Settings["version"]
	if version == "kernel" {
		return nil, trace.Errorf(NothingToExport, "version: got kernel, which reads no betas, want %s or %s", blisFolders, blisCatalog).
			WithHint("--format blis-scenario writes what BLIS's kernel mode reads")
	}
	cfgs, err := src.Configs(opt.Config)
	if err != nil {
		return nil, err
	}
	entries, warn, err := blisEntries(src, opt, cfgs)
	if err != nil {
		return nil, err
	}
	refused := slices.Concat(stat.Map(entries, func(e blisEntry) []Refusal { return e.refusals(src.Fit) })...)
	forced, err := opt.Refuse(refused, forceHint)
	if err != nil {
		return nil, err
	}
	warn = append(warn, forced...)
	hw, err := blisHardware(cfgs)
	if err != nil {
		return nil, err
	}
	side := src.Sidecar(opt, FormatBLIS, "BLIS (inference-sim/inference-sim) "+cmp.Or(version, blisFolders)+
		", --defaults-filepath; strict decoding, so nothing else may stand in the file")
	var files []File
	if version == blisCatalog {
		if files, err = catalogOf(cfgs); err != nil {
			return nil, err
		}
	}
	var projections []Projected
	for i := range entries {
		e := &entries[i]
		data, err := yaml.Marshal(blisFile{Version: src.Fit.ToolVersion, Coeffs: blisCoeff{Alpha: numbers(e.alpha), Beta: e.beta}})
		if err != nil {
			return nil, err
		}
		files = append(files, File{e.suffix, data})
		side.Values = append(side.Values, sideValues(e.key("alpha_coeffs"), e.alpha)...)
		side.Values = append(side.Values, sideValues(e.key("beta_coeffs"), e.values())...)
		if e.config != nil {
			side.Configs = append(side.Configs, e.side(version))
			projections = append(projections, e.projected())
		}
	}
	side.Warnings = append(src.ValidationWarnings(), warn...)
	out, err := side.Beside(warn, append(files, File{".hardware.json", hw})...)
	if err == nil {
		out.Projections = projections
	}
	return out, err
}

func numbers(values []blisValue) []float64 {
	return stat.Map(values, func(v blisValue) float64 { return v.value })
}

// blisCalib is one entry of BLIS's hardware_config.json. The mfu values are
// read by its roofline model only and are stated as 1: exactly the peaks.
type blisCalib struct {
	TFlopsPeak float64 `json:"TFlopsPeak"`
	TFlopsFP8  float64 `json:"TFlopsFP8"`
	BwPeakTBs  float64 `json:"BwPeakTBs"`
	MfuPrefill float64 `json:"mfuPrefill"`
	MfuDecode  float64 `json:"mfuDecode"`
	MemoryGiB  float64 `json:"MemoryGiB"`
}

// blisHardware writes the peaks the coefficients are ratios of. BLIS must use
// these, or every ratio is off by the quotient of the peaks.
func blisHardware(cfgs []result.FitConfig) ([]byte, error) {
	doc := map[string]blisCalib{}
	for _, c := range cfgs {
		h := c.Deployment.Hardware
		doc[h.Name] = blisCalib{TFlopsPeak: h.TFlopsPeak, TFlopsFP8: h.TFlopsFP8, BwPeakTBs: h.BwPeakTBs, MfuPrefill: 1, MfuDecode: 1,
			MemoryGiB: h.MemoryGB}
	}
	return result.Marshal(doc)
}

// blisHorizon is beyond the end of any workload, us. Without one BLIS stops at twice the last
// arrival, and what is not done by then is missing from its results. (A delay of the cache
// signal of 0 changes nothing for one engine; BLIS otherwise takes a snapshot of its cache
// every 50 ms of simulated time.)
const blisHorizon = int64(1) << 53

// blisCommand is the `blis replay` line that runs a deployment with coefficients as flags, or of the exported file; BLIS wants a
// readable one all the same. FILE, TRACE and MODELDIR are for the reader to fill in.
func blisCommand(version string, d deploy.Deployment, coefficients string) string {
	e := d.Engine
	named := "--model " + files.Word(strings.ToLower(d.Model.ID)) + " --model-config-folder MODELDIR"
	if version == blisCatalog {
		named = "--model " + files.Word(slug(model.Name(d.Model.ID))) + " --catalog FILE.catalog"
	}
	args := []string{
		"blis replay --trace-header TRACE.yaml --trace-data TRACE.csv --results-path results.json",
		"--horizon " + strconv.FormatInt(blisHorizon, 10), "--cache-signal-delay 0",
		"--latency-model trained-physics", coefficients,
		named, "--hardware " + files.Word(d.Hardware.Name), "--hardware-config FILE.hardware.json",
		"--tp " + strconv.FormatInt(d.TP, 10),
		"--max-num-seqs " + strconv.FormatInt(e.MaxNumSeqs, 10),
		"--max-num-batched-tokens " + strconv.FormatInt(e.MaxNumBatchedTokens, 10),
		"--block-size-in-tokens " + strconv.FormatInt(e.BlockSize, 10),
	}
	if d.DP > 1 {
		args = append(args, "--dp "+strconv.FormatInt(d.DP, 10))
	}
	if e.ExpertParallel && d.Model.IsMoE() {
		args = append(args, "--enable-expert-parallel")
	}
	if blocks, _, err := d.KVBlocks(); err == nil {
		args = append(args, "--total-kv-blocks "+strconv.FormatInt(blocks, 10))
	}
	if d.MaxModelLen().OK { // kept within the KV cache: BLIS caps a longer one itself, with a warning
		args = append(args, "--max-model-len "+strconv.FormatInt(d.LongestSequence().V, 10))
	}
	return strings.Join(args, " ")
}

// joined writes numbers so that they read back exactly.
func joined(v []float64) string {
	return strings.Join(stat.Map(v, func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }), ",")
}

func sideValues(key string, values []blisValue) []SideValue {
	var out []SideValue
	for i, v := range values {
		s := SideValue{Key: fmt.Sprintf("%s[%d]", key, i), Name: v.Name, Value: result.OrNull(v.value), Unit: v.Units, CI95: v.ci95,
			Identified: v.identified, Learned: v.learned, Origin: v.origin, Effect: "multiplies " + v.Role}
		if v.value == 0 {
			s.Effect = "0: " + v.Zero
		}
		out = append(out, s)
	}
	return out
}

// blisEntry is one set of coefficients for BLIS: of one configuration, or of all.
type blisEntry struct {
	suffix string            // of the file that holds it
	config *result.FitConfig // nil: all of them
	alpha  []blisValue
	beta   []float64  // by position
	fits   Projection // of config
	region Region
	loads  []LoadPoint // of config
	limits projectionLimits
}

// blisEntries projects the fit on every configuration, and on all of them when there are
// several: that one is FILE, the others are FILE.<label>.yaml.
func blisEntries(src Source, opt Options, cfgs []result.FitConfig) ([]blisEntry, []trace.Finding, error) {
	var warn []trace.Finding
	targets := make([]Target, len(cfgs))
	for i := range cfgs {
		t, err := src.Timer(cfgs[i])
		if err != nil {
			return nil, nil, err
		}
		l, w := opt.MeanLengths(cfgs[i])
		warn = append(warn, w...)
		d := &cfgs[i].Deployment
		targets[i] = Target{Deployment: d, Model: t, Region: RegionOf(d, l.Prompt, l.Output)}
	}
	var out []blisEntry
	if len(targets) > 1 {
		all, err := OnBLIS(targets...)
		if err != nil {
			return nil, nil, err
		}
		joint := blisEntry{beta: all[0].Beta, fits: Projection{Used: make([]bool, len(all[0].Used))}}
		if joint.alpha, err = blisAlphas(src.Fit, nil); err != nil {
			return nil, nil, err
		}
		for _, p := range all {
			for i, used := range p.Used {
				joint.fits.Used[i] = joint.fits.Used[i] || used
			}
		}
		joint.fillUnused()
		out = append(out, joint)
	}
	taken := map[string]int{}
	for i := range cfgs {
		one, err := OnBLIS(targets[i])
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", cfgs[i].Label, err)
		}
		e := blisEntry{config: &cfgs[i], beta: one[0].Beta, fits: one[0], region: targets[i].Region, limits: blisLimits}
		if e.alpha, err = blisAlphas(src.Fit, e.config); err != nil {
			return nil, nil, err
		}
		if len(targets) > 1 {
			e.suffix = "." + slug(cfgs[i].Label)
			if taken[e.suffix]++; taken[e.suffix] > 1 {
				e.suffix += fmt.Sprintf("-%d", taken[e.suffix])
			}
			e.suffix += ".yaml"
		}
		e.fillUnused()
		waitUs, err := e.simulate(&src, func(alpha []float64) (sim.Parts, error) {
			m, err := sim.NewTrainedPhysics(alpha, e.beta, &cfgs[i].Deployment)
			if err != nil {
				return sim.Parts{}, err
			}
			return m.Parts(), nil
		})
		if err != nil {
			return nil, nil, err
		}
		if len(targets) > 1 { // of all together: their mean
			out[0].wait(waitUs / float64(len(targets)))
		}
		out = append(out, e)
	}
	return out, warn, nil
}

// simulate compares the entry with its own model at several loads, and adds the wait that BLIS has not to its delays, us.
func (e *blisEntry) simulate(src *Source, blis ConsumerModel) (waitUs float64, err error) {
	if src.Loads == nil {
		return 0, trace.Errorf(NothingToExport, "%s: no coefficients to simulate with", e.config.Label)
	}
	on, err := src.Loads(e.config.Deployment, numbers(e.alpha), e.region.Prompt, e.region.Output, blis)
	if err != nil {
		return 0, fmt.Errorf("%s: simulated loads: %w", e.config.Label, err)
	}
	e.loads = on.Points
	e.wait(on.WaitUs)
	return on.WaitUs, nil
}

// wait adds the wait for a step that asynchronous scheduling has begun to the delay before the queue.
func (e *blisEntry) wait(us float64) {
	if e.alpha[0].value += us; us > 0 && !strings.HasSuffix(e.alpha[0].origin, blisWait) {
		e.alpha[0].origin += blisWait
	}
}

const blisWait = "; and the wait for the step that async scheduling has begun when a request arrives, which BLIS has not"

// slug is a label as a part of a file name.
func slug(label string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, label), "-.")
}

// fillUnused gives the dispatch term, where the deployment never has it, the value that BLIS
// itself gives it when it is absent: the all-reduce's.
func (e *blisEntry) fillUnused() {
	if !e.fits.Used[blisMoEDispatch] {
		e.beta[blisMoEDispatch] = e.beta[blisAllReduce]
	}
}

func (e *blisEntry) key(name string) string {
	if e.config == nil || e.suffix == "" {
		return name
	}
	return e.config.Label + "." + name
}

// values are the entry's coefficients with what is known of them.
func (e *blisEntry) values() []blisValue {
	out := make([]blisValue, len(formats().Beta))
	for i, t := range formats().Beta {
		v := blisValue{blisTerm: t, value: e.beta[i], identified: "derived", learned: true,
			origin: "projection of the step-time model on all configurations together"}
		if e.config != nil {
			v.origin = "projection of the step-time model on " + e.config.Label
		}
		if e.config != nil && !e.fits.Used[i] {
			v.identified = "not used by this deployment"
			v.learned = false
			v.origin = "nothing: the deployment never has this term"
			if i == blisMoEDispatch {
				v.origin = fmt.Sprintf("copied from %s, as BLIS does when the value is absent; the deployment never has this term",
					formats().Beta[blisAllReduce].Name)
			}
		}
		out[i] = v
	}
	return out
}

// libraryPrior reports that a fit from requests gave every term a value of the library, 0 too: what
// its kernels showed none of.
func libraryPrior(fit *result.Fit) bool {
	return fit.Requests != nil && fit.Requests.Prior == "library"
}

// refusals are terms of the model that no data show and that the configuration would use, and
// a projection that is too far off.
func (e *blisEntry) refusals(fit *result.Fit) []Refusal {
	out := refusals(e.alpha)
	if e.config == nil {
		return out
	}
	for j, c := range fit.Beta.Coefficients {
		if j < len(e.fits.Seen) && e.fits.Seen[j] > 0 && !libraryPrior(fit) && c.Value == 0 && c.CI95Given == "" && c.Identified == "prior-only" {
			out = append(out, Refusal{unlearnedValue, fmt.Sprintf("%s: %s has no value, neither learned nor prior, and this deployment would use it",
				e.config.Label, c.Name)})
		}
	}
	if why := e.tooFar(); len(why) > 0 {
		out = append(out, Refusal{PoorProjection, fmt.Sprintf("%s: BLIS's terms miss the step-time model: %s; %s", e.config.Label,
			strings.Join(why, ", "), e.lacking())})
	}
	for i, v := range e.beta {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			out = append(out, Refusal{impossibleValue, fmt.Sprintf("%s: %s = %g: BLIS stops at start-up with \"must be a finite non-negative "+
				"number\"", e.config.Label, formats().Beta[i].Name, v)})
		}
	}
	return out
}

// tooFar says where a projection is beyond its limits.
func (e *blisEntry) tooFar() []string {
	var out []string
	if all := e.fits.Errors[0]; !(all.MAPE <= e.limits.MAPE) {
		out = append(out, fmt.Sprintf("steps %.1f %% off on average, want at most %g %%", 100*all.MAPE, 100*e.limits.MAPE))
	}
	for _, x := range e.fits.Errors[1:] {
		if !(math.Abs(x.Bias) <= e.limits.Bias) {
			out = append(out, fmt.Sprintf("%s batches %+.1f %% together, want within %g %%", x.Kind, 100*x.Bias, 100*e.limits.Bias))
		}
	}
	for _, p := range e.loads {
		for _, x := range []struct {
			name         string
			ratio, limit float64
		}{{"TTFT", p.TTFTRatio, e.limits.TTFT}, {"ITL", p.ITLRatio, e.limits.ITL}, {"E2E", p.E2ERatio, e.limits.E2E}} {
			if !(math.Abs(x.ratio-1) <= x.limit) {
				out = append(out, fmt.Sprintf("mean %s %.2f times the model's at %.0f %% load, want within %g %%", x.name, x.ratio,
					100*p.LoadFrac, 100*x.limit))
			}
		}
	}
	return out
}

// alwaysCaches is said of a deployment without prefix caching.
const alwaysCaches = "this deployment has prefix caching off, BLIS " + blisFolders + " cannot: shared and preempted prompts cost it less"

// lacking says what the terms of BLIS cannot follow.
func (e *blisEntry) lacking() string {
	worst := e.fits.Errors[1]
	for _, x := range e.fits.Errors[2:] {
		if x.MAPE > worst.MAPE {
			worst = x
		}
	}
	why := "a prompt's time grows otherwise with its length: compute that overlaps with memory reads, or attention far off " +
		"the arithmetic's rate"
	switch {
	case e.limits == kernelLimits:
		why = "the law has no term for the requests of a batch, and one efficiency for all matrix products"
	case e.config.Deployment.Model.IsMoE():
		why = "a step loads the experts that its tokens reach, few in small batches and all in large ones; BLIS loads all of them every time"
	case worst.Kind == decode:
		why = "decode steps follow no straight line in requests and context"
	}
	return fmt.Sprintf("worst for %s batches (%.1f %%): %s", worst.Kind, 100*worst.MAPE, why)
}

// side is the configuration as the sidecar has it.
func (e *blisEntry) side(version string) SideConfig {
	file := "--defaults-filepath FILE" + e.suffix
	flags := "--alpha-coeffs " + joined(numbers(e.alpha)) + " --beta-coeffs " + joined(e.beta) + " " // they win over those of the file
	c := SideConfig{Label: e.config.Label, Seats: e.region.Seats, Loads: e.loads,
		CommandLine: blisCommand(version, e.config.Deployment, flags+file), DefaultsCommandLine: blisCommand(version, e.config.Deployment, file),
		PromptTokens: &e.region.Prompt, OutputTokens: &e.region.Output, Projection: e.errors()}
	if e.fits.Errors[0].MAPE > e.limits.MAPE/2 {
		c.Note = e.lacking()
	}
	if !e.config.Deployment.Engine.PrefixCaching && version != blisCatalog {
		c.Note = strings.TrimPrefix(c.Note+"; "+alwaysCaches, "; ")
	}
	return c
}

// Projected is how well a configuration's file holds its model.
type Projected struct {
	Label  string            `json:"label"`
	File   string            `json:"file"`   // suffix of the file's name
	Errors []projectionError `json:"errors"` // by kind of batch, all of them first
	Loads  []LoadPoint       `json:"simulated_loads"`
	Limits projectionLimits  `json:"limits"` // beyond them the export is refused
}

// projectionLimits are those of a projection: beyond them whoever simulates with it gets other latencies than the model gives.
type projectionLimits struct {
	MAPE float64 `json:"mape"` // all batches
	Bias float64 `json:"bias"` // any kind of batch, either sign
	TTFT float64 `json:"ttft"` // of the ratio from 1, at any load
	ITL  float64 `json:"itl"`
	E2E  float64 `json:"e2e"`
}

// blisLimits are those of trained-physics terms (steps: more than twice what the step-time models themselves are off), kernelLimits of
// the kernel mode's.
var (
	blisLimits   = projectionLimits{MAPE: 0.10, Bias: 0.075, TTFT: 0.10, ITL: 0.05, E2E: 0.10}
	kernelLimits = projectionLimits{MAPE: 0.10, Bias: 0.075, TTFT: 0.10, ITL: 0.05, E2E: 0.05}
)

func (e *blisEntry) projected() Projected {
	return Projected{Label: e.config.Label, File: e.suffix, Errors: e.errors(), Loads: e.loads, Limits: e.limits}
}

// errors are the projection's, as documents have them.
func (e *blisEntry) errors() []projectionError {
	return stat.Map(e.fits.Errors, func(x Error) projectionError {
		return projectionError{Batches: string(cmp.Or(x.Kind, "all")), Steps: x.Steps, MAPE: result.OrNull(x.MAPE),
			Worst: result.OrNull(x.Worst), Bias: result.OrNull(x.Bias)}
	})
}

// Codes of refusals and remarks.
const (
	NothingToExport trace.Code = "nothing_to_export"
	unlearnedValue  trace.Code = "unlearned_value"
	impossibleValue trace.Code = "impossible_value"
	BeyondTraining  trace.Code = "lengths_beyond_training"
	BadEntry        trace.Code = "bad_entry"
	AssumedValue    trace.Code = "assumed_value"
	notValidated    trace.Code = "not_validated"
	NotReproducible trace.Code = "not_reproducible"
	PoorProjection  trace.Code = "poor_projection"
	BadLedger       trace.Code = "bad_ledger"
	NotReplayable   trace.Code = "not_replayable"
	inputChanged    trace.Code = "input_changed"
	notComparable   trace.Code = "not_comparable"
)

// blisModel is the fit's name of BLIS's parameterisation.
const blisModel = "trained-physics"

// blisTerm is one position of BLIS's trained-physics coefficients: its name in the registry, its unit there, what BLIS multiplies it
// with, and what a 0 does inside BLIS.
type blisTerm struct{ Name, Units, Role, Zero string }

//go:embed formats.yaml
var formatsYAML []byte

// formats are the terms of BLIS's steps and delays, and the options and the versions of formats.
var formats = files.Embedded[struct {
	Beta, Alpha []blisTerm
	Options     map[Format][]Setting
	Versions    map[Format][]string
}](formatsYAML, "formats.yaml")

// Positions the exporter treats by name.
const (
	blisAllReduce   = 3
	blisMoEDispatch = 10
)

// blisValue is one value as it will be written.
type blisValue struct {
	blisTerm
	value      float64
	ci95       *[2]float64
	identified string
	learned    bool
	origin     string // where the number comes from
}

// learned reports whether the data show a term: not tagged otherwise and not held at the bound of
// its sign (spec#not-learned).
func learned(c result.Coefficient) bool {
	return !c.NotLearned && c.Identified != "prior-only" && c.Value != 0
}

// blisAlphas takes a0 from the overhead target and a1 from egress, each as the
// median prediction of the fitted model on a configuration (nil: on all of them):
// BLIS has one constant where we have a function. a2 is 0: TTFT and ITL are engine
// times here, so there is nothing left to add per token.
func blisAlphas(fit *result.Fit, c *result.FitConfig) ([]blisValue, error) {
	var out []blisValue
	for i, target := range []string{coeff.Overhead, coeff.Egress} {
		if m := fit.AlphaNamed(target); m != nil && !m.Replay {
			return nil, trace.Errorf(NothingToExport, "alpha target %q is marked replay: false, it may not be added as a delay", m.Target)
		}
		v := blisValue{blisTerm: formats().Alpha[i], origin: fmt.Sprintf("no %s target in the fit", target)}
		if us, scope, ok := fit.MedianDelayUs(target, c); ok {
			v.value = us
			v.learned = true
			v.identified = "within"
			v.origin = fmt.Sprintf("median prediction of the %s target on %s", target, scope)
		}
		out = append(out, v)
	}
	return append(out, blisValue{blisTerm: formats().Alpha[2], learned: true, identified: "by definition",
		origin: "0: TTFT and ITL are measured inside the engine"}), nil
}

// Refusal is one value a consumer should not be given.
type Refusal struct {
	Code     trace.Code
	Sentence string
}

// refusals lists what is wrong with delays, one sentence each.
func refusals(alpha []blisValue) []Refusal {
	var out []Refusal
	for i, v := range alpha {
		at := fmt.Sprintf("alpha[%d] %s = %g %s", i, v.Name, v.value, v.Units)
		switch {
		case !(v.value >= 0) || math.IsInf(v.value, 0):
			out = append(out, Refusal{impossibleValue, at + ": BLIS stops at start-up with \"must be a finite non-negative number\""})
		case !v.learned:
			out = append(out, Refusal{unlearnedValue, at + ": " + v.origin + "; inside BLIS " + v.Zero})
		}
	}
	return out
}

// forceHint stands beside refusals.
const forceHint = "choose other configurations with --config LABEL, or write them all the same with --force %s"

// Refuse turns refusals into an error, but those that the options overrule into warnings. The
// hint takes the codes that would have to be named.
func (o *Options) Refuse(rs []Refusal, hint string) ([]trace.Finding, error) {
	var warn []trace.Finding
	var msg, names []string
	var first trace.Code
	for _, r := range rs {
		if said := (trace.Finding{Code: r.Code, Message: r.Sentence}); o.Overrules(r.Code) {
			warn = stat.AppendNew(warn, said)
			continue
		}
		if slices.Contains(msg, r.Sentence) { // of a configuration with the same label, or of all
			continue
		}
		if msg = append(msg, r.Sentence); first == "" {
			first = r.Code
		}
		names = stat.AppendNew(names, string(r.Code))
	}
	if len(msg) == 0 {
		return warn, nil
	}
	return nil, &trace.Error{Code: first, Msg: strings.Join(msg, "; "), Hint: fmt.Sprintf(hint, strings.Join(names, ","))}
}

// LoadPoint is one load at which a format's terms and the model they stand for were simulated in the
// same traffic.
type LoadPoint struct {
	LoadFrac  float64 `json:"load_frac"` // of the model's capacity
	RateRPS   float64 `json:"rate_rps"`
	TTFTMs    float64 `json:"ttft_ms"` // means of the model
	ITLMs     float64 `json:"itl_ms"`  // of requests' means of their gaps
	E2EMs     float64 `json:"e2e_ms"`
	TTFTRatio float64 `json:"ttft_ratio"` // of the terms over the model
	ITLRatio  float64 `json:"itl_ratio"`
	E2ERatio  float64 `json:"e2e_ratio"`
}

// comparedLoads are the shares of the capacity at which models are compared.
var comparedLoads = []float64{0.3, 0.6, 0.8}

// ComparedRequests are so many.
const ComparedRequests = 1500

// OnLoads are a deployment's loads, and the wait of a request for the step that asynchronous scheduling has begun when it arrives:
// BLIS has no such step, so the wait is added to its delay before the queue.
type OnLoads struct {
	Points []LoadPoint
	WaitUs float64
}

// ConsumerModel is a consumer's model with the delays of a request before the queue, at completion and per token, us.
type ConsumerModel func(alpha []float64) (sim.Parts, error)

// comparison is a deployment under its own model in Poisson traffic, to hold what a consumer makes of it against.
type comparison struct {
	traffic  workload.Traffic
	capacity float64 // requests/s
}

// CompareLoads simulates a deployment with its coefficient set, and as BLIS would with a model of BLIS's (made with the delays of a
// request before the queue, at completion and per token, us), in the same Poisson traffic of log-normal lengths about the means, at
// three loads of the set's capacity.
func CompareLoads(set *coeff.Set, d *deploy.Deployment, alpha []float64, prompt, output float64, blis ConsumerModel) (*OnLoads, error) {
	own, err := sim.EngineOf(d, set)
	if err != nil {
		return nil, err
	}
	c := comparison{traffic: workload.ChatTraffic(d, prompt, output)}
	if c.capacity, err = c.traffic.Capacity(d, own.Latency); err != nil {
		return nil, err
	}
	theirs, out := own, &OnLoads{}
	theirs.Async = false
	theirs.EmptyStepUs = 1
	theirs.IdleSleepUs = 0
	theirs.ScheduleUs = 0
	if own.Async {
		var ms [2][3]float64
		for i, cfg := range []*sim.Config{&own, &theirs} {
			if ms[i], err = meanLatencies(cfg, c.requests(comparedLoads[1])); err != nil {
				return nil, err
			}
		}
		out.WaitUs = math.Max(0, 1e3*(ms[0][0]-ms[1][0]))
	}
	parts, err := blis([]float64{alpha[0] + out.WaitUs, alpha[1], alpha[2]})
	if err != nil {
		return nil, err
	}
	theirs.Apply(parts)
	for _, load := range comparedLoads {
		reqs := c.requests(load)
		a, err := meanLatencies(&own, reqs)
		if err != nil {
			return nil, err
		}
		b, err := meanLatencies(&theirs, reqs)
		if err != nil {
			return nil, err
		}
		out.Points = append(out.Points, LoadPoint{LoadFrac: load, RateRPS: c.traffic.DrawnRate(), TTFTMs: a[0], ITLMs: a[1], E2EMs: a[2],
			TTFTRatio: b[0] / a[0], ITLRatio: b[1] / a[1], E2ERatio: b[2] / a[2]})
	}
	return out, nil
}

// requests are those of a share of the capacity.
func (c *comparison) requests(load float64) []sim.Request {
	c.traffic.Requests = ComparedRequests
	c.traffic.RateRPS = load * c.capacity
	reqs, _ := c.traffic.Draw()
	return reqs
}

// meanLatencies are the means of TTFT, ITL (of requests' means) and E2E of the requests that finish, ms.
func meanLatencies(cfg *sim.Config, reqs []sim.Request) (mean [3]float64, err error) {
	var n [3]float64
	_, err = sim.Stream(*cfg, reqs, nil, sim.InOrder(len(reqs), func(_ int, r *sim.RequestResult) bool {
		if e2e, ok := r.E2EUs(); ok {
			ttft, has := r.TTFTUs()
			itl, gaps := r.ITLUs()
			for i, ok := range []bool{has, gaps, true} {
				if ok {
					mean[i], n[i] = mean[i]+[]float64{ttft, itl, e2e}[i]/1000, n[i]+1
				}
			}
		}
		return true
	}))
	if err == nil && n[2] == 0 {
		err = workload.ErrNothingFinished
	}
	for i := range mean {
		mean[i] /= n[i]
	}
	return mean, err
}
