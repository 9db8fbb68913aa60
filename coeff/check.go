package coeff

import (
	"fmt"
	"math"
	"slices"

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
	for _, f := range slices.Concat(s.DeploymentFactors, s.PromptFactors, s.HardwareFactors) {
		if err := finite("factor of "+f.Name, f.Value); err != nil {
			return err
		}
		if f.Value <= 0 {
			return trace.Errorf(BadFile, "factor of %s: got %g, want a number above 0", f.Name, f.Value)
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

// Names lists the coefficients' names in order.
func Names(cs []Coefficient) []string {
	out := make([]string, len(cs))
	for i := range cs {
		out[i] = cs[i].Name
	}
	return out
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
	for i, d := range m.Deployments {
		at := path + "." + d.Name
		if len(d.Values) != len(m.Coefficients) {
			return trace.Errorf(BadFile, "%s: got %d values, want %d", at, len(d.Values), len(m.Coefficients))
		}
		if err := finite(at, d.Values...); err != nil {
			return err
		}
		if i > 0 && d.Name <= m.Deployments[i-1].Name {
			return trace.Errorf(BadFile, "%s: got %q after %q, want sorted names, each once", path, d.Name, m.Deployments[i-1].Name)
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
	for _, pair := range []*[2]float64{c.CI95, c.EstimateCI95, c.Range} {
		if pair != nil {
			all = append(all, pair[:]...)
		}
	}
	return all
}

func checkCovariance(path string, rows [][]float64, n int) error {
	if rows == nil {
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
	for _, r := range s.TrainedOn.HoldOutRMSE {
		if err := finite("trained_on.hold_out_rmse."+r.Target, r.Us); err != nil {
			return err
		}
	}
	for _, r := range s.Residuals {
		for _, q := range r.Quantiles {
			if err := finite("residual_quantiles."+r.Regime, q[:]...); err != nil {
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

// Outside lists what of the deployment the coefficients were not trained on: model, hardware, tp.
// Empty when all of it was.
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
	return fs
}
