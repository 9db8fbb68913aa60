package export

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Native builds the artifact of a fit; val, which may be nil, adds the gates.
// The result passes features.CheckSet and coeff.Set.Check. The same fit gives the same set.
func Native(fit *result.Fit, val *result.Validation) (*coeff.Set, error) {
	b := &fit.Beta
	set := &coeff.Set{
		SchemaVersion: coeff.SchemaVersion, ToolVersion: fit.ToolVersion, Platform: fit.Platform, Command: fit.Command, Inputs: fit.Inputs,
		FeatureSet: fit.FeatureSet, Recipe: b.Recipe, Refit: fit.Options.RefitAll,
		TrainedOn: trainedOn(fit), BetaTarget: b.Target,
		Beta: nativeTerms(b.Coefficients), Covariance: b.Covariance, Residuals: nativeResiduals(b.ResidualQuant),
		Gamma: valueOr(b.GammaEMA, defaultGamma), GammaIdentified: b.GammaIdentified, PipelineLag: b.PipelineLag,
		Gates: nativeGates(val), Purposes: nativePurposes(val), ValidatedFor: validatedFor(val), Certificate: b.Certificate,
		Identifiability: b.NullDirections, Warnings: nativeWarnings(fit), Configs: nativeConfigs(fit, val),
	}
	set.SpecVersion = coeff.Version(b.SpecVersion)
	set.HardwareFactors, set.DeploymentFactors, set.PromptFactors = map[string]float64{}, map[string]float64{}, map[string]float64{}
	for _, h := range b.HardwareFactors {
		set.HardwareFactors[h.Hardware] = h.Factor
	}
	for _, d := range b.DeploymentFactors {
		set.DeploymentFactors[d.Name()], set.PromptFactors[d.Name()] = d.Factor, d.Prompt
	}
	for i := range fit.Alpha {
		m := &fit.Alpha[i]
		set.Alpha = append(set.Alpha, coeff.AlphaModel{
			Target: m.Target, Replay: coeff.Replayable(m.Target), Lambda: valueOr(m.Lambda, 0),
			Coefficients: nativeTerms(m.Coefficients), Covariance: m.Covariance, Deployments: nativeDeployments(m.DeploymentCoefficients),
		})
	}
	sort.Slice(set.Alpha, func(i, j int) bool { return set.Alpha[i].Target < set.Alpha[j].Target })
	err := features.CheckSet(set)
	if err == nil {
		err = set.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("fit.json: %w", err)
	}
	return set, nil
}

// defaultGamma is the EMA's gamma where a fit did not choose one (spec#preemption-average).
const defaultGamma = 0.3

func valueOr(v *float64, def float64) float64 {
	if v == nil {
		return def
	}
	return *v
}

func nativeTerms(cs []result.Coefficient) []coeff.Coefficient {
	return stat.Map(cs, func(c result.Coefficient) coeff.Coefficient { return c.Coefficient })
}

func nativeResiduals(rq []result.RegimeQuantiles) map[string][][2]float64 {
	out := map[string][][2]float64{}
	for _, r := range rq {
		out[r.Regime] = r.Quantiles
	}
	return out
}

func nativeDeployments(ds []result.DeploymentCoefficients) map[string][]float64 {
	out := map[string][]float64{}
	for _, d := range ds {
		out[d.Deployment] = d.Values
	}
	return out
}

func nativeGates(val *result.Validation) []coeff.Gate {
	if val == nil {
		return nil
	}
	return stat.Map(val.Gates, func(g result.Gate) coeff.Gate { return g.Gate })
}

func validatedFor(val *result.Validation) string {
	if val == nil {
		return ""
	}
	return val.For
}

func nativePurposes(val *result.Validation) []coeff.PurposeVerdict {
	if val == nil {
		return nil
	}
	return stat.Map(val.Purposes, func(p result.PurposeVerdict) coeff.PurposeVerdict { return p.PurposeVerdict })
}

// nativeWarnings are the fit's and its models', each once, in that order.
func nativeWarnings(fit *result.Fit) []trace.Finding {
	var out []trace.Finding
	seen := map[trace.Finding]bool{}
	add := func(fs []trace.Finding) {
		for _, f := range fs {
			if !seen[f] {
				seen[f] = true
				out = append(out, f)
			}
		}
	}
	add(fit.Warnings)
	add(fit.Beta.Warnings)
	for i := range fit.Alpha {
		add(fit.Alpha[i].Warnings)
	}
	return out
}

// samplesOf counts the kept beta rows of a configuration.
func samplesOf(fit *result.Fit, key string) int64 {
	var n int64
	for _, r := range fit.Beta.Rows.ByRegime {
		if r.Config == key {
			n += int64(r.Rows)
		}
	}
	return n
}

func nativeConfigs(fit *result.Fit, val *result.Validation) []coeff.Config {
	var out []coeff.Config
	for i := range fit.Configs {
		c := &fit.Configs[i]
		own := coeff.ConfigOf(&c.Deployment, c.Runs, samplesOf(fit, c.Key))
		if features.Layered(coeff.Version(fit.Beta.SpecVersion)) {
			if own.Layers = own.Deployment.LayerSums(); val != nil {
				own.Layers.Judged = fmt.Sprintf("on held-out parts of its own recordings, for %s: %s", val.For, val.Verdict)
			}
		}
		out = append(out, own)
	}
	slices.SortStableFunc(out, func(a, b coeff.Config) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// trainedOn collects where the coefficients hold, each list sorted.
func trainedOn(fit *result.Fit) coeff.TrainedOn {
	models, hw, versions := map[string]bool{}, map[string]bool{}, map[string]bool{}
	tps := map[int64]bool{}
	for i := range fit.Configs {
		d := &fit.Configs[i].Deployment
		models[d.Model.ID], hw[d.Hardware.Name], versions[d.Engine.VLLMVersion] = true, true, true
		tps[d.TP] = true
	}
	t := coeff.TrainedOn{
		Models: slices.Sorted(maps.Keys(models)), Hardware: slices.Sorted(maps.Keys(hw)), VLLMVersions: slices.Sorted(maps.Keys(versions)),
		TPs:  slices.Sorted(maps.Keys(tps)),
		Date: fit.TrainingDate, Samples: int64(fit.Beta.Rows.Kept), Lambda: valueOr(fit.Beta.Lambda, 0),
		Gamma: valueOr(fit.Beta.GammaEMA, defaultGamma), HoldOutRMSE: map[string]float64{},
	}
	if !fit.Options.RefitAll {
		t.Samples -= int64(fit.Beta.Rows.Holdout)
	}
	all := append([]result.Model{fit.Beta}, fit.Alpha...)
	for i := range all {
		if e := all[i].Holdout; e != nil && e.RMSEUs != nil {
			t.HoldOutRMSE[all[i].Target] = *e.RMSEUs
		}
	}
	return t
}
