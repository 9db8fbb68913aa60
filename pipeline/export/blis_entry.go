package export

// This file makes the coefficients of a configuration in the terms of BLIS's step-time models, and
// refuses those that differ too much from the fitted model.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// numbers returns the numbers of values.
func numbers(values []blisValue) []float64 {
	var out []float64
	for _, v := range values {
		out = append(out, v.value)
	}
	return out
}

// sideValues returns values in the form of the sidecar, under key[0], key[1], ...
func sideValues(key string, values []blisValue) []SideValue {
	var out []SideValue
	for i, v := range values {
		s := SideValue{Key: fmt.Sprintf("%s[%d]", key, i), Name: v.Name, Value: result.OrNull(v.value),
			Unit: v.Units, CI95: v.ci95,
			Identified: v.identified, Learned: v.learned, Origin: v.origin, Effect: "multiplies " + v.Role}
		if v.value == 0 {
			s.Effect = "0: " + v.Zero
		}
		out = append(out, s)
	}
	return out
}

// blisEntry is one set of coefficients for BLIS, of one configuration or of all together. The
// step-time coefficients are a projection (projection.go): BLIS's terms fitted to the step times
// that the model predicts.
type blisEntry struct {
	suffix string            // of the file's name
	config *result.FitConfig // nil: all together
	alpha  []blisValue
	waitUs float64   // of alpha[0]: the wait that addWait has added
	beta   []float64 // by position of blisBetaTerms
	// The fields below describe config; of all together only fits.Used is set.
	fits   Projection       // BLIS's terms fitted to the step times, with its errors
	region Region           // the batches that matter
	loads  []LoadPoint      // simulated comparisons with the fitted model
	limits projectionLimits // of the errors, beyond which the export is refused
	// isKernelMode: the terms are those of BLIS's kernel mode, not of its trained-physics model.
	isKernelMode bool
}

// blisEntries returns the projections of the fit on the configurations, and warnings. With several
// configurations the first entry is a projection on all together and becomes FILE; the others
// become FILE.<label>.yaml.
func blisEntries(src Source, opt Options, cfgs []result.FitConfig) ([]blisEntry, []trace.Finding, error) {
	var warn []trace.Finding
	targets := make([]Target, len(cfgs))
	for i := range cfgs {
		timer, err := src.Timer(cfgs[i])
		if err != nil {
			return nil, nil, err
		}
		lengths, assumed := opt.MeanLengths(cfgs[i])
		warn = append(warn, assumed...)
		d := &cfgs[i].Deployment
		targets[i] = Target{Deployment: d, Model: timer, Region: RegionOf(d, lengths.Prompt, lengths.Output)}
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
	// An entry for each configuration alone, of which BLIS's terms can follow the step times better.
	taken := map[string]int{} // uses of a suffix: labels with the same file name get numbers
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
		waitUs, err := e.compareLoads(&src, func(alpha []float64) (sim.Parts, error) {
			m, err := sim.NewTrainedPhysics(alpha, e.beta, &cfgs[i].Deployment)
			if err != nil {
				return sim.Parts{}, err
			}
			return m.Parts(), nil
		})
		if err != nil {
			return nil, nil, err
		}
		if len(targets) > 1 { // the entry of all together gets the mean wait
			out[0].addWait(waitUs / float64(len(targets)))
		}
		out = append(out, e)
	}
	return out, warn, nil
}

// compareLoads simulates the entry and the fitted model at several loads and sets e.loads. It adds
// to the entry's delays the wait for the step that asynchronous scheduling has already begun, which
// BLIS does not model, and returns that wait in us.
func (e *blisEntry) compareLoads(src *Source, blis ConsumerModel) (waitUs float64, err error) {
	if src.Loads == nil {
		return 0, trace.Errorf(NothingToExport, "%s: no coefficients to simulate with", e.config.Label)
	}
	on, err := src.Loads(e.config.Deployment, numbers(e.alpha), e.region.Prompt, e.region.Output, blis)
	if err != nil {
		return 0, fmt.Errorf("%s: simulated loads: %w", e.config.Label, err)
	}
	e.loads = on.Points
	e.addWait(on.WaitUs)
	return on.WaitUs, nil
}

// addWait adds the wait for a step that asynchronous scheduling has begun, us, to the delay before
// the queue.
func (e *blisEntry) addWait(us float64) {
	e.alpha[0].value += us
	e.waitUs += us
}

// waitNote states how much of the delay before the queue is the wait for a step that asynchronous
// scheduling has begun; empty if none of it is. BLIS begins a step when the one before it ends, so it
// needs that time in the delay. A simulator with asynchronous scheduling of its own has it already.
func (e *blisEntry) waitNote() string {
	if !(e.waitUs > 0) {
		return ""
	}
	return fmt.Sprintf("%.1f us of it are the wait for the step that async scheduling has begun when a request arrives, "+
		"which BLIS does not model; a simulator with async scheduling, such as blis-train simulate, needs %.1f us",
		e.waitUs, e.alpha[0].value-e.waitUs)
}

// alphaValues returns the delays with their origins.
func (e *blisEntry) alphaValues() []blisValue {
	out := slices.Clone(e.alpha)
	if note := e.waitNote(); note != "" {
		out[0].origin += "; " + note
	}
	return out
}

// slug returns a label as a part of a file name: lower-case letters, digits, dots and dashes,
// shortened where it is long.
func slug(label string) string {
	return files.ShortName(strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, label), "-."))
}

// fillUnused sets the dispatch term of a deployment that never uses it to the value that BLIS
// itself assumes for an absent one: the coefficient of the all-reduce.
func (e *blisEntry) fillUnused() {
	if !e.fits.Used[blisMoEDispatch] {
		e.beta[blisMoEDispatch] = e.beta[blisAllReduce]
	}
}

// valueKey returns the key of a value in the sidecar, with the configuration's label unless the
// file is the main one.
func (e *blisEntry) valueKey(name string) string {
	if e.config == nil || e.suffix == "" {
		return name
	}
	return e.config.Label + "." + name
}

// betaValues returns the entry's step-time coefficients with the origin of each.
func (e *blisEntry) betaValues() []blisValue {
	out := make([]blisValue, len(blisBetaTerms))
	for i, t := range blisBetaTerms {
		v := blisValue{blisTerm: t, value: e.beta[i], identified: "derived", learned: true,
			origin: "projection of the step-time model on all configurations together"}
		if e.config != nil {
			v.origin = "projection of the step-time model on " + e.config.Label
		}
		if e.config != nil && !e.fits.Used[i] {
			v.identified = "not used by this deployment"
			v.learned = false
			v.origin = "nothing: the deployment never uses this term"
			if i == blisMoEDispatch {
				v.origin = fmt.Sprintf("copied from %s, as BLIS does when the value is absent; the deployment "+
					"never uses this term",
					blisBetaTerms[blisAllReduce].Name)
			}
		}
		out[i] = v
	}
	return out
}

// libraryPrior reports whether a fit from requests used the library's coefficients as prior. Then
// every term has a value, and a 0 means that the library's kernels do no such work.
func libraryPrior(fit *result.Fit) bool {
	return fit.Requests != nil && fit.Requests.Prior == "library"
}

// refusals returns the reasons not to export the entry: terms that the configuration uses without a
// fitted or prior value, a projection beyond its limits, and values that are not finite.
func (e *blisEntry) refusals(fit *result.Fit) []Refusal {
	out := refusals(e.alpha)
	if e.config == nil {
		return out
	}
	// Terms of the fitted model that the deployment's batches have but that no data and no prior gave a
	// value.
	for j, c := range fit.Beta.Coefficients {
		isUsed := j < len(e.fits.Seen) && e.fits.Seen[j] > 0
		hasNoValue := c.Value == 0 && c.CI95Given == "" && c.Identified == coeff.PriorOnly
		if isUsed && hasNoValue && !libraryPrior(fit) {
			out = append(out, Refusal{
				Code: unlearnedValue,
				Sentence: fmt.Sprintf("%s: %s has no value, neither learned nor prior, and this deployment would use it",
					e.config.Label, c.Name),
			})
		}
	}
	if why := e.errorsBeyondLimits(); len(why) > 0 {
		out = append(out, Refusal{
			Code: PoorProjection,
			Sentence: fmt.Sprintf("%s: BLIS's terms miss the step-time model: %s; %s", e.config.Label,
				strings.Join(why, ", "), e.likelyCause()),
		})
	}
	for i, v := range e.beta {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			out = append(out, Refusal{
				Code: impossibleValue,
				Sentence: fmt.Sprintf("%s: %s = %g: BLIS stops at start-up with \"must be a finite non-negative "+
					"number\"", e.config.Label, blisBetaTerms[i].Name, v),
			})
		}
	}
	return out
}

// errorsBeyondLimits returns a description of each error of the projection that exceeds its limit.
func (e *blisEntry) errorsBeyondLimits() []string {
	var out []string
	if all := e.fits.overall(); !(all.MAPE <= e.limits.MAPE) {
		out = append(out, fmt.Sprintf("steps %.1f %% off on average, want at most %g %%", 100*all.MAPE,
			100*e.limits.MAPE))
	}
	for _, x := range e.fits.byKind() {
		if !(math.Abs(x.Bias) <= e.limits.Bias) {
			out = append(out, fmt.Sprintf("%s batches %+.1f %% together, want within %g %%", x.Kind, 100*x.Bias,
				100*e.limits.Bias))
		}
	}
	for _, p := range e.loads {
		for _, x := range []struct {
			name         string
			ratio, limit float64
		}{
			{name: "TTFT", ratio: p.TTFTRatio, limit: e.limits.TTFT},
			{name: "ITL", ratio: p.ITLRatio, limit: e.limits.ITL},
			{name: "E2E", ratio: p.E2ERatio, limit: e.limits.E2E},
		} {
			if !(math.Abs(x.ratio-1) <= x.limit) {
				out = append(out,
					fmt.Sprintf("mean %s %.2f times the model's at %.0f %% load, want within %g %%", x.name, x.ratio,
						100*p.LoadFrac, 100*x.limit))
			}
		}
	}
	return out
}

// alwaysCaches is the warning about a deployment without prefix caching.
const alwaysCaches = "this deployment has prefix caching off, BLIS " + blisFolders +
	" always caches: shared and preempted prompts cost less there"

// worstKind returns the error of the kind of batch that BLIS's terms miss most, as far as the limits that are exceeded
// concern it. Where kinds are off together beyond their limit it is the one with the largest such error (byBias),
// else the one with the largest error on average. Gaps between tokens have no steps of prompts alone, and a first token
// comes from no step of decodes alone: where only those times are beyond their limit, the kind is left out.
func (e *blisEntry) worstKind() (worst Error, byBias bool) {
	for _, x := range e.fits.byKind() {
		if off := math.Abs(x.Bias); off > e.limits.Bias && off > math.Abs(worst.Bias) {
			worst = x
			byBias = true
		}
	}
	if byBias {
		return worst, true
	}
	isBeyond := func(ratio, limit float64) bool { return !(math.Abs(ratio-1) <= limit) }
	isAnyTime := !(e.fits.overall().MAPE <= e.limits.MAPE)
	isFirst, isGap := false, false
	for _, p := range e.loads {
		isAnyTime = isAnyTime || isBeyond(p.E2ERatio, e.limits.E2E)
		isFirst = isFirst || isBeyond(p.TTFTRatio, e.limits.TTFT)
		isGap = isGap || isBeyond(p.ITLRatio, e.limits.ITL)
	}
	leftOut := kind("") // none
	switch {
	case isAnyTime || isFirst == isGap:
	case isGap:
		leftOut = prefill
	default:
		leftOut = decode
	}
	for _, x := range e.fits.byKind() {
		if x.Kind != leftOut && (worst.Kind == "" || x.MAPE > worst.MAPE) {
			worst = x
		}
	}
	return worst, false
}

// likelyCause returns which kind of batch BLIS's terms miss most, and the most likely reason: what the terms cannot
// represent there (sim/latency/trained_physics_model.go of inference-sim@f90a1e3; for the kernel mode see
// kernel_mode.go). Whether that is the reason is not tested.
func (e *blisEntry) likelyCause() string {
	worst, byBias := e.worstKind()
	off := fmt.Sprintf("%.1f %% on average", 100*worst.MAPE)
	if byBias {
		off = fmt.Sprintf("%+.1f %% together", 100*worst.Bias)
	}
	why := "the time of a prompt does not grow with its length as BLIS's terms do: compute overlaps with memory reads, or " +
		"attention runs far from the rate of matrix products"
	switch {
	case e.isKernelMode:
		why = "the kernel mode has no term for the number of requests in a batch, and one efficiency for all matrix products"
	case e.config.Deployment.Model.IsMoE():
		why = "a step loads the experts that its tokens reach, few in small batches and all in large ones; BLIS loads all of them every time"
	case worst.Kind == decode:
		why = "decode steps are not linear in requests and context"
	}
	return fmt.Sprintf("worst for %s batches (%s); a likely cause: %s", worst.Kind, off, why)
}

// sideConfig returns the configuration's entry in the sidecar. In its command line the flags take
// precedence over the values in the file.
func (e *blisEntry) sideConfig(version string) SideConfig {
	file := "--defaults-filepath FILE" + e.suffix
	flags := "--alpha-coeffs " + joined(numbers(e.alpha)) + " --beta-coeffs " + joined(e.beta) + " "
	c := SideConfig{Label: e.config.Label, Seats: e.region.Seats, Loads: e.loads,
		CommandLine:         blisCommand(version, e.config.Deployment, flags+file),
		DefaultsCommandLine: blisCommand(version, e.config.Deployment, file),
		PromptTokens:        &e.region.Prompt, OutputTokens: &e.region.Output, Projection: e.documentErrors()}
	if e.fits.overall().MAPE > e.limits.MAPE/2 {
		c.Note = e.likelyCause()
	}
	if !e.config.Deployment.Engine.PrefixCaching && version != blisCatalog {
		c.Note = strings.TrimPrefix(c.Note+"; "+alwaysCaches, "; ")
	}
	return c
}

// Projected is the error of a configuration's file against its model.
type Projected struct {
	Label  string            `json:"label"`
	File   string            `json:"file"`   // suffix of the file's name
	Errors []projectionError `json:"errors"` // all batches first, then by kind
	Loads  []LoadPoint       `json:"simulated_loads"`
	Limits projectionLimits  `json:"limits"` // the export is refused beyond them
}

// projectionLimits bound the errors of a projection. Beyond them a simulation with the projected terms
// gives visibly other latencies than the model.
type projectionLimits struct {
	MAPE float64 `json:"mape"` // all batches
	Bias float64 `json:"bias"` // any kind of batch, either sign
	TTFT float64 `json:"ttft"` // |ratio - 1| at any load; so ITL and E2E
	ITL  float64 `json:"itl"`
	E2E  float64 `json:"e2e"`
}

// blisLimits are the limits of trained-physics terms, kernelLimits those of the kernel mode. The MAPE
// of steps may be more than twice the error of the step-time models themselves.
var (
	blisLimits   = projectionLimits{MAPE: 0.10, Bias: 0.075, TTFT: 0.10, ITL: 0.05, E2E: 0.10}
	kernelLimits = projectionLimits{MAPE: 0.10, Bias: 0.075, TTFT: 0.10, ITL: 0.05, E2E: 0.05}
)

// projected returns the errors of the entry in the form of documents.
func (e *blisEntry) projected() Projected {
	return Projected{Label: e.config.Label, File: e.suffix, Errors: e.documentErrors(), Loads: e.loads,
		Limits: e.limits}
}

// documentErrors returns the projection's errors in the form of documents.
func (e *blisEntry) documentErrors() []projectionError {
	var out []projectionError
	for _, x := range e.fits.Errors {
		out = append(out, projectionError{
			Batches: string(cmp.Or(x.Kind, "all")),
			Steps:   x.Steps,
			MAPE:    result.OrNull(x.MAPE),
			Worst:   result.OrNull(x.Worst),
			Bias:    result.OrNull(x.Bias),
		})
	}
	return out
}

// blisModel is the fit's name of BLIS's parameterisation.
const blisModel = "trained-physics"

// blisValue is one value as it will be written, with its uncertainty and origin.
type blisValue struct {
	blisTerm
	value      float64
	ci95       *[2]float64
	identified string
	learned    bool
	origin     string // where the number comes from
	note       string // what a reader of the file must know about it; empty: nothing
}

// learned reports whether the data determine a coefficient: it is not marked as undetermined, not
// only prior, and not at the bound of its sign, 0 (spec#not-learned).
func learned(c result.Coefficient) bool {
	return !c.NotLearned && c.Identified != "prior-only" && c.Value != 0
}

// blisAlphas returns the delays of a request for BLIS: a0 from the overhead target and a1 from
// egress, in us. Each is the median prediction of the fitted model on a configuration (nil: on all
// of them), because BLIS has a constant where the fit has a function. a2 is 0: TTFT and ITL are
// measured inside the engine here, so no time per token is left.
func blisAlphas(fit *result.Fit, c *result.FitConfig) ([]blisValue, error) {
	var out []blisValue
	for i, target := range []string{coeff.Overhead, coeff.Egress} {
		if m := fit.AlphaNamed(target); m != nil && !m.Replay {
			return nil, trace.Errorf(NothingToExport,
				"alpha target %q is marked replay: false, it may not be added as a delay", m.Target)
		}
		v := blisValue{blisTerm: blisAlphaTerms[i], origin: fmt.Sprintf("no %s target in the fit", target)}
		if us, of, ok := fit.MedianDelayUs(target, c); ok {
			v.value = us
			v.learned = true
			v.identified = "within"
			v.origin = fmt.Sprintf("median prediction of the %s target%s", target, of)
		}
		out = append(out, v)
	}
	return append(out, blisValue{blisTerm: blisAlphaTerms[2], learned: true, identified: "by definition",
		origin: "0: TTFT and ITL are measured inside the engine"}), nil
}
