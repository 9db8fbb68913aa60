package coeff

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// Check applies the rules of loading that need no knowledge of features (spec#artifact-load): known schema,
// lengths, finite numbers, and no wait marked as a delay.
func (s *Set) Check() error {
	if s.SchemaVersion != SchemaVersion {
		return trace.Errorf(BadFile, "schema_version: got %q, want %q", s.SchemaVersion, SchemaVersion).
			WithHint("use the blis-train that wrote the file, or fit again")
	}
	if err := checkTerms("beta_coefficients", s.Beta); err != nil {
		return err
	}
	if err := checkCovariance("covariance", s.Covariance, len(s.Beta)); err != nil {
		return err
	}
	for _, factors := range []map[string]float64{s.DeploymentFactors, s.PromptFactors, s.HardwareFactors} {
		for _, name := range slices.Sorted(maps.Keys(factors)) {
			if f := factors[name]; !(f > 0) || math.IsInf(f, 0) {
				return trace.Errorf(BadFile, "factor of %s: got %g, want a finite number above 0", name, f)
			}
		}
	}
	for i := range s.Alpha {
		if err := s.Alpha[i].check(); err != nil {
			return err
		}
		if i > 0 && s.Alpha[i].Target <= s.Alpha[i-1].Target {
			return trace.Errorf(BadFile, "alpha: got %q after %q, want sorted targets, each once", s.Alpha[i].Target, s.Alpha[i-1].Target)
		}
	}
	if err := s.Library.check(); err != nil {
		return err
	}
	return s.checkNumbers()
}

func (m *AlphaModel) check() error {
	path := "alpha." + m.Target
	if !slices.Contains([]string{Overhead, Admission, Egress, Queue}, m.Target) {
		return trace.Errorf(BadFile, "%s: got an unknown target, want overhead, admission, egress or queue", path)
	}
	if m.Replay && !Replayable(m.Target) {
		return trace.Errorf(BadFile, "%s.replay: got true for a target that contains a wait, want overhead or egress", path)
	}
	if err := finite(path+".lambda", m.Lambda); err != nil {
		return err
	}
	if err := checkTerms(path+".coefficients", m.Coefficients); err != nil {
		return err
	}
	if err := m.checkDeployments(path + ".deployments"); err != nil {
		return err
	}
	return checkCovariance(path+".covariance", m.Covariance, len(m.Coefficients))
}

func (m *AlphaModel) checkDeployments(path string) error {
	for _, name := range slices.Sorted(maps.Keys(m.Deployments)) {
		values := m.Deployments[name]
		if len(values) != len(m.Coefficients) {
			return trace.Errorf(BadFile, "%s.%s: got %d values, want %d", path, name, len(values), len(m.Coefficients))
		}
		if err := finite(path+"."+name, values...); err != nil {
			return err
		}
	}
	return nil
}

func checkTerms(path string, cs []Coefficient) error {
	for i := range cs {
		c := &cs[i]
		if !slices.Contains([]string{"", Within, BetweenConfigs, PriorOnly}, c.Identified) {
			return trace.Errorf(BadFile, "%s[%d].identified: got %q for %s, want within, between-configs or prior-only", path, i,
				c.Identified, c.Name)
		}
		if err := finite(fmt.Sprintf("%s[%d].value", path, i), c.numbers()...); err != nil {
			return err
		}
	}
	return nil
}

func (c *Coefficient) numbers() []float64 {
	all := []float64{c.Value}
	if c.Estimate != nil {
		all = append(all, *c.Estimate)
	}
	for _, pair := range []*[2]float64{c.CI95, c.FoldSpread, c.EstimateCI95, c.Range} {
		if pair != nil {
			all = append(all, pair[:]...)
		}
	}
	return all
}

func checkCovariance(path string, rows [][]float64, n int) error {
	if len(rows) == 0 {
		return nil
	}
	if len(rows) != n {
		return trace.Errorf(BadFile, "%s: got %d rows, want %d", path, len(rows), n)
	}
	for i, row := range rows {
		if len(row) != n {
			return trace.Errorf(BadFile, "%s[%d]: got %d columns, want %d", path, i, len(row), n)
		}
		if err := finite(fmt.Sprintf("%s[%d]", path, i), row...); err != nil {
			return err
		}
	}
	return nil
}

func (s *Set) checkNumbers() error {
	if err := finite("gamma", s.Gamma); err != nil {
		return err
	}
	if err := finite("trained_on.lambda", s.TrainedOn.Lambda, s.TrainedOn.Gamma); err != nil {
		return err
	}
	for _, target := range slices.Sorted(maps.Keys(s.TrainedOn.HoldOutRMSE)) {
		if err := finite("trained_on.hold_out_rmse."+target, s.TrainedOn.HoldOutRMSE[target]); err != nil {
			return err
		}
	}
	for _, regime := range slices.Sorted(maps.Keys(s.Residuals)) {
		for _, q := range s.Residuals[regime] {
			if err := finite("residual_quantiles."+regime, q[:]...); err != nil {
				return err
			}
		}
	}
	return s.checkVerdicts()
}

// checkVerdicts covers the numbers that no prediction uses.
func (s *Set) checkVerdicts() error {
	for _, g := range s.Gates {
		if g.Value != nil {
			if err := finite("gates."+g.Name, *g.Value); err != nil {
				return err
			}
		}
		if err := finite("gates."+g.Name, g.Threshold); err != nil {
			return err
		}
	}
	if c := s.Certificate; c != nil {
		if c.MinZeroGradient != nil {
			if err := finite("certificate.min_zero_gradient", *c.MinZeroGradient); err != nil {
				return err
			}
		}
		return finite("certificate.max_active_gradient", c.MaxActiveGradient)
	}
	return nil
}

func finite(path string, values ...float64) error {
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return trace.Errorf(BadFile, "%s: got %g, want a finite number", path, v)
		}
	}
	return nil
}

// Outside lists what of the deployment the coefficients were not trained on: model, hardware, tp,
// minor version of vLLM. Empty when all of it was.
func (s *Set) Outside(d *deploy.Deployment) []trace.Finding {
	var fs []trace.Finding
	if t := s.TrainedOn.Models; len(t) > 0 && !slices.Contains(t, d.Model.ID) {
		fs = append(fs, trace.Findingf(OutsideTraining, "model: got %q, trained on %q", d.Model.ID, t))
	}
	if t := s.TrainedOn.Hardware; len(t) > 0 && !slices.Contains(t, d.Hardware.Name) {
		fs = append(fs, trace.Findingf(OutsideTraining, "hardware: got %q, trained on %q", d.Hardware.Name, t))
	}
	if t := s.TrainedOn.TPs; len(t) > 0 && !slices.Contains(t, d.TP) {
		fs = append(fs, trace.Findingf(OutsideTraining, "tensor_parallel_size: got %d, trained on %d", d.TP, t))
	}
	minor := func(v string) string { // patch releases do not change the engine
		parts := strings.SplitN(strings.TrimPrefix(v, "v"), ".", 3)
		return strings.Join(parts[:min(2, len(parts))], ".")
	}
	same := func(v string) bool { return minor(v) == minor(d.Engine.VLLMVersion) }
	if t := s.TrainedOn.VLLMVersions; len(t) > 0 && !slices.ContainsFunc(t, same) {
		fs = append(fs, trace.Findingf(OutsideTraining, "vllm version: got %q, trained on %q", d.Engine.VLLMVersion, t))
	}
	return fs
}
