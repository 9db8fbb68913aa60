package fit

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
)

// Native builds the artifact of a fit; val, which may be nil, adds the gates.
// The result passes features.CheckSet and coeff.Set.Check. The same fit gives the same set.
func Native(fit *result.Fit, val *result.Validation) (*coeff.Set, error) {
	b := &fit.Beta
	set := &coeff.Set{
		SchemaVersion: coeff.SchemaVersion, ToolVersion: fit.ToolVersion, Platform: fit.Platform, Command: fit.Command, Inputs: fit.Inputs,
		FeatureSet: fit.FeatureSet, Recipe: b.Recipe, Refit: fit.Options.RefitAll,
		TrainedOn: trainedOn(fit), BetaTarget: b.Target,
		Beta: nativeTerms(b.Coefficients), Covariance: b.Covariance,
		Gamma: valueOr(b.GammaEMA, defaultGamma), GammaIdentified: b.GammaIdentified, PipelineLag: b.PipelineLag,
		Certificate: b.Certificate, Identifiability: b.NullDirections, Warnings: fit.AllWarnings(), Configs: nativeConfigs(fit, val),
	}
	set.SpecVersion = coeff.Version(b.SpecVersion)
	set.Gates, set.Purposes, set.ValidatedFor = val.Verdicts()
	set.Residuals = stat.Keyed(b.ResidualQuant, func(r result.RegimeQuantiles) (string, [][2]float64) { return r.Regime, r.Quantiles })
	set.HardwareFactors = stat.Keyed(b.HardwareFactors, func(h result.HardwareFactor) (string, float64) { return h.Hardware, h.Factor })
	set.DeploymentFactors = stat.Keyed(b.DeploymentFactors, func(d result.DeploymentFactor) (string, float64) { return d.Name(), d.Factor })
	set.PromptFactors = stat.Keyed(b.DeploymentFactors, func(d result.DeploymentFactor) (string, float64) { return d.Name(), d.Prompt })
	for i := range fit.Alpha {
		m := &fit.Alpha[i]
		of := func(d result.DeploymentCoefficients) (string, []float64) { return d.Deployment, d.Values }
		set.Alpha = append(set.Alpha, coeff.AlphaModel{
			Target: m.Target, Replay: coeff.Replayable(m.Target), Lambda: valueOr(m.Lambda, 0), Coefficients: nativeTerms(m.Coefficients),
			Covariance: m.Covariance, Deployments: stat.Keyed(m.DeploymentCoefficients, of),
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

func nativeConfigs(fit *result.Fit, val *result.Validation) []coeff.Config {
	var out []coeff.Config
	for i := range fit.Configs {
		c := &fit.Configs[i]
		own := coeff.ConfigOf(&c.Deployment, c.Runs, 0)
		for _, r := range fit.Beta.Rows.ByRegime {
			if r.Config == c.Key {
				own.Samples += int64(r.Rows)
			}
		}
		if features.Layered(coeff.Version(fit.Beta.SpecVersion)) {
			if own.Layers = own.Deployment.LayerSums(); val != nil {
				own.Layers.Judged = fmt.Sprintf("on held-out parts of its own recordings, for %s: %s", val.For, val.Verdict)
			}
		}
		out = append(out, own)
	}
	stat.SortStable(out, func(a, b coeff.Config) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// distinct are the values that the deployments have, sorted.
func distinct[V cmp.Ordered](configs []result.FitConfig, of func(*deploy.Deployment) V) []V {
	all := stat.Map(configs, func(c result.FitConfig) V { return of(&c.Deployment) })
	slices.Sort(all)
	return slices.Compact(all)
}

// trainedOn collects where the coefficients hold, each list sorted.
func trainedOn(fit *result.Fit) coeff.TrainedOn {
	t := coeff.TrainedOn{
		Models:       distinct(fit.Configs, func(d *deploy.Deployment) string { return d.Model.ID }),
		Hardware:     distinct(fit.Configs, func(d *deploy.Deployment) string { return d.Hardware.Name }),
		VLLMVersions: distinct(fit.Configs, func(d *deploy.Deployment) string { return d.Engine.VLLMVersion }),
		TPs:          distinct(fit.Configs, func(d *deploy.Deployment) int64 { return d.TP }),

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
