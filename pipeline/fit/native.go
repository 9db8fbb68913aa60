package fit

// This file makes the coefficient set of a fit, the content of coefficients.yaml.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
)

// Native makes the coefficient set, the content of coefficients.yaml, of a fit. val may be nil;
// otherwise its gates, verdicts and doubts become part of the set. The set passes features.CheckSet and
// coeff.Set.Check.
func Native(fit *result.Fit, val *result.Validation) (*coeff.Set, error) {
	b := &fit.Beta
	set := &coeff.Set{
		SchemaVersion:   coeff.SchemaVersion,
		ToolVersion:     fit.ToolVersion,
		Platform:        fit.Platform,
		Command:         fit.Command,
		Inputs:          fit.Inputs,
		SpecVersion:     coeff.Version(b.SpecVersion),
		FeatureSet:      fit.FeatureSet,
		Recipe:          b.Recipe,
		Refit:           fit.Options.RefitAll,
		TrainedOn:       trainedOn(fit),
		BetaTarget:      b.Target,
		Beta:            nativeTerms(b.Coefficients),
		Covariance:      b.Covariance,
		Gamma:           valueOr(b.GammaEMA, features.DefaultGamma),
		GammaIdentified: b.GammaIdentified,
		PipelineLag:     b.PipelineLag,
		Certificate:     b.Certificate,
		Identifiability: b.NullDirections,
		Warnings:        append(fit.AllWarnings(), val.Doubts()...),
		Configs:         nativeConfigs(fit, val),
	}
	set.Gates, set.Purposes, set.ValidatedFor = val.Verdicts()
	set.Residuals = map[string][][2]float64{}
	for _, r := range b.ResidualQuant {
		set.Residuals[r.Regime] = r.Quantiles
	}
	set.HardwareFactors = map[string]float64{}
	for _, h := range b.HardwareFactors {
		set.HardwareFactors[h.Hardware] = h.Factor
	}
	set.DeploymentFactors = map[string]float64{}
	set.PromptFactors = map[string]float64{}
	for _, d := range b.DeploymentFactors {
		set.DeploymentFactors[d.Name()] = d.Factor
		set.PromptFactors[d.Name()] = d.Prompt
	}
	for i := range fit.Alpha {
		m := &fit.Alpha[i]
		alpha := coeff.AlphaModel{
			Target:       m.Target,
			Replay:       coeff.Replayable(m.Target),
			Lambda:       valueOr(m.Lambda, 0),
			Coefficients: nativeTerms(m.Coefficients),
			Covariance:   m.Covariance,
			Deployments:  map[string][]float64{},
		}
		for _, d := range m.DeploymentCoefficients {
			alpha.Deployments[d.Deployment] = d.Values
		}
		set.Alpha = append(set.Alpha, alpha)
	}
	stat.SortStable(set.Alpha, func(a, b coeff.AlphaModel) int { return strings.Compare(a.Target, b.Target) })
	err := features.CheckSet(set)
	if err == nil {
		err = set.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("fit.json: %w", err)
	}
	return set, nil
}

// valueOr returns the value that v points to, def for nil.
func valueOr(v *float64, def float64) float64 {
	if v == nil {
		return def
	}
	return *v
}

// nativeTerms returns the coefficients without what only fit.json has.
func nativeTerms(cs []result.Coefficient) []coeff.Coefficient {
	var out []coeff.Coefficient
	for i := range cs {
		out = append(out, cs[i].Coefficient)
	}
	return out
}

// nativeConfigs returns the configurations of the fit, sorted by key, with their numbers of rows.
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
		// A set of a version for unlike layers has the sums over the layers with it, so that a program can
		// predict without the model's layers (spec#layer-sums).
		if features.Layered(coeff.Version(fit.Beta.SpecVersion)) {
			own.Layers = own.Deployment.LayerSums()
			if val != nil {
				own.Layers.Judged = fmt.Sprintf("on held-out parts of its own recordings, for %s: %s", val.For, val.Verdict)
			}
		}
		out = append(out, own)
	}
	stat.SortStable(out, func(a, b coeff.Config) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// distinct returns the different values of a property over the configurations, sorted.
func distinct[V cmp.Ordered](configs []result.FitConfig, of func(*deploy.Deployment) V) []V {
	var all []V
	for i := range configs {
		all = append(all, of(&configs[i].Deployment))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// trainedOn returns what the coefficients were trained on, each list sorted.
func trainedOn(fit *result.Fit) coeff.TrainedOn {
	t := coeff.TrainedOn{
		Models:       distinct(fit.Configs, func(d *deploy.Deployment) string { return d.Model.ID }),
		Hardware:     distinct(fit.Configs, func(d *deploy.Deployment) string { return d.Hardware.Name }),
		VLLMVersions: distinct(fit.Configs, func(d *deploy.Deployment) string { return d.Engine.VLLMVersion }),
		TPs:          distinct(fit.Configs, func(d *deploy.Deployment) int64 { return d.TP }),

		Date:        fit.TrainingDate,
		Samples:     int64(fit.Beta.Rows.Kept),
		Lambda:      valueOr(fit.Beta.Lambda, 0),
		Gamma:       valueOr(fit.Beta.GammaEMA, features.DefaultGamma),
		HoldOutRMSE: map[string]float64{}, // us, by target
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
