package coeff

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"gopkg.in/yaml.v3"
)

// Save checks the set and writes it as YAML. Floats are written shortest
// round-trip, maps with sorted keys: the same set gives the same bytes, and
// reading them back gives the same set.
func (s *Set) Save(w io.Writer) error {
	if err := s.Check(); err != nil {
		return err
	}
	wire, err := s.wire()
	if err != nil {
		return err
	}
	var doc yaml.Node
	if err := doc.Encode(wire); err != nil {
		return fmt.Errorf("encode coefficients: %w", err)
	}
	withPoints(&doc)
	var text bytes.Buffer
	enc := yaml.NewEncoder(&text)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return fmt.Errorf("encode coefficients: %w", err)
	}
	if err := enc.Close(); err != nil {
		return fmt.Errorf("encode coefficients: %w", err)
	}
	if _, err := w.Write(withDigest(text.Bytes())); err != nil {
		return fmt.Errorf("write coefficients: %w", err)
	}
	return nil
}

// withPoints writes 1e-07 as 1.0e-07: readers of YAML 1.1 take a float without
// a point for a string (https://yaml.org/type/float.html).
func withPoints(n *yaml.Node) {
	if n.Tag == "!!float" && !strings.Contains(n.Value, ".") {
		n.Value = strings.Replace(n.Value, "e", ".0e", 1)
	}
	for _, c := range n.Content {
		withPoints(c)
	}
}

func (s *Set) wire() (*wireSet, error) {
	p := wirePhysics{
		SpecVersion: s.SpecVersion, Recipe: s.Recipe, Refit: s.Refit, TrainedOn: s.TrainedOn.wire(), BetaTarget: s.BetaTarget,
		Beta: wireTerms(s.Beta), Alpha: map[string]wireAlpha{}, Covariance: wireRows(s.Covariance),
		Residuals: map[string][]pair{}, Gamma: s.Gamma, PipelineLag: s.PipelineLag,
		Gates: s.Gates, Purposes: s.Purposes, For: s.ValidatedFor,
		Ident: s.Identifiability, Certificate: s.Certificate, Warnings: s.Warnings, Library: s.Library,
	}
	if s.FeatureSet.Hash != "" {
		p.FeatureSet = &s.FeatureSet
	}
	p.Deployments, p.Prompts, p.Devices = wireFactors(s.DeploymentFactors), wireFactors(s.PromptFactors), wireFactors(s.HardwareFactors)
	for _, m := range s.Alpha {
		p.Alpha[m.Target] = wireAlpha{m.Replay, m.Lambda, wireTerms(m.Coefficients), wireRows(m.Covariance), wireDeployments(m.Deployments),
			m.Gamma}
	}
	for _, r := range s.Residuals {
		p.Residuals[r.Regime] = pairs(r.Quantiles)
	}
	for i := range s.Configs {
		c, err := s.Configs[i].wire()
		if err != nil {
			return nil, err
		}
		p.Configs = append(p.Configs, c)
	}
	return &wireSet{s.SchemaVersion, s.ToolVersion, s.Platform, s.Command, s.Inputs, p, ""}, nil
}

func wireFactors(fs []Factor) map[string]float64 {
	if len(fs) == 0 {
		return nil
	}
	out := map[string]float64{}
	for _, f := range fs {
		out[f.Name] = f.Value
	}
	return out
}

func wireDeployments(ds []DeploymentValues) map[string]flow[float64] {
	if len(ds) == 0 {
		return nil
	}
	out := map[string]flow[float64]{}
	for _, d := range ds {
		out[d.Name] = d.Values
	}
	return out
}

func (t *TrainedOn) wire() wireTrainedOn {
	w := wireTrainedOn{Model: t.Models, Hardware: t.Hardware, TP: t.TPs, VLLMVersion: t.VLLMVersions,
		Samples: t.Samples, Lambda: t.Lambda, Gamma: t.Gamma, HoldOutRMSE: map[string]float64{}}
	if t.Date != "" {
		w.TrainingDate = &t.Date
	}
	for _, r := range t.HoldOutRMSE {
		w.HoldOutRMSE[r.Target] = r.Us
	}
	return w
}

func wireTerms(cs []Coefficient) []wireTerm {
	terms := make([]wireTerm, len(cs))
	for i := range cs {
		c := &cs[i]
		terms[i] = wireTerm{wireTermFields: wireTermFields{Name: c.Name, Value: c.Value, Unit: c.Unit, CI95: (*pair)(c.CI95),
			Range: (*pair)(c.Range), Estimate: c.Estimate, EstimateCI95: (*pair)(c.EstimateCI95), Evidence: c.Evidence}}
		if c.Identified != "" {
			terms[i].Identified = &c.Identified
		}
	}
	return terms
}

func wireRows(rows [][]float64) []flow[float64] {
	if rows == nil {
		return nil
	}
	out := make([]flow[float64], len(rows))
	for i := range rows {
		out[i] = rows[i]
	}
	return out
}

func pairs(qs [][2]float64) []pair {
	out := make([]pair, len(qs))
	for i := range qs {
		out[i] = pair(qs[i])
	}
	return out
}
