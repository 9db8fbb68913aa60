package coeff

// This file checks a coefficient set as it is loaded.

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Check applies the rules of loading that do not depend on the features (spec#artifact-load): a known
// schema version, lengths, finite numbers, and no replay of targets that contain queueing time.
func (s *Set) Check() error {
	if s.SchemaVersion != SchemaVersion {
		return trace.Errorf(BadFile, "schema_version: got %q, want %q", s.SchemaVersion, SchemaVersion).
			WithHint("use the blis-train that wrote the file, or fit again")
	}
	err := cmp.Or(checkTerms("beta_coefficients", s.Beta), checkCovariance("covariance", s.Covariance, len(s.Beta)))
	if err != nil {
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
		if err := s.Alpha[i].checkTarget(); err != nil {
			return err
		}
		if i > 0 && s.Alpha[i].Target <= s.Alpha[i-1].Target {
			return trace.Errorf(BadFile, "alpha: got %q after %q, want sorted targets, each once",
				s.Alpha[i].Target, s.Alpha[i-1].Target)
		}
	}
	if err := s.checkConfigs(); err != nil {
		return err
	}
	if s.Gamma < 0 || s.Gamma > 1 {
		return trace.Errorf(BadFile, "gamma: got %g, want 0 to 1", s.Gamma)
	}
	return checkFinite(reflect.ValueOf(s).Elem())
}

// checkConfigs checks that the configurations have the model's widths, without which their features
// cannot be computed. Spec 1.0 reads one width only, and spec 1.3 the sums over unlike layers.
func (s *Set) checkConfigs() error {
	for i := range s.Configs {
		c := &s.Configs[i]
		if c.Layers != nil || c.Deployment.Model.Layered != nil || s.SpecVersion.Base() == flatVersion {
			continue
		}
		m := &c.Deployment.Model
		for _, width := range []struct {
			name  string
			value float64
		}{
			{"head_dim", float64(m.HeadDim)},
			{"bytes_per_weight", m.BytesPerWeight},
			{"bytes_per_kv", m.BytesPerKV},
			{"bytes_per_activation", m.BytesPerActivation},
			{"bytes_per_lm_head", m.BytesPerLMHead},
		} {
			if !(width.value > 0) {
				return trace.Errorf(BadFile, "configs: deployment of %q: model %s: got %g, want > 0", c.Key, width.name, width.value)
			}
		}
	}
	return nil
}

// checkTarget checks the model of one delay: known target, lengths, and no replay of a target that
// contains queueing.
func (m *AlphaModel) checkTarget() error {
	path := "alpha." + m.Target
	if !slices.Contains([]string{Overhead, Admission, Egress, Queue}, m.Target) {
		return trace.Errorf(BadFile, "%s: got an unknown target, want overhead, admission, egress or queue", path)
	}
	if m.Replay && !Replayable(m.Target) {
		return trace.Errorf(BadFile, "%s.replay: got true for a target that contains a wait, want overhead or egress",
			path)
	}
	return cmp.Or(checkTerms(path+".coefficients", m.Coefficients), m.checkDeployments(path+".deployments"),
		checkCovariance(path+".covariance", m.Covariance, len(m.Coefficients)))
}

// checkDeployments checks that each deployment has one value per coefficient.
func (m *AlphaModel) checkDeployments(path string) error {
	for _, name := range slices.Sorted(maps.Keys(m.Deployments)) {
		values := m.Deployments[name]
		if len(values) != len(m.Coefficients) {
			return trace.Errorf(BadFile, "%s.%s: got %d values, want %d", path, name, len(values), len(m.Coefficients))
		}
	}
	return nil
}

// checkTerms checks the values of identified.
func checkTerms(path string, cs []Coefficient) error {
	for i := range cs {
		c := &cs[i]
		if !slices.Contains([]string{"", Within, BetweenConfigs, PriorOnly}, c.Identified) {
			return trace.Errorf(BadFile, "%s[%d].identified: got %q for %s, want within, between-configs or prior-only",
				path, i, c.Identified, c.Name)
		}
	}
	return nil
}

// checkCovariance checks that a covariance is n x n, or absent.
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
	}
	return nil
}

// checkFinite reports the first number in v that is NaN or infinite, with the path of its keys in the file.
func checkFinite(v reflect.Value) error {
	path, number, isFinite := findNotFinite(v)
	if isFinite {
		return nil
	}
	return trace.Errorf(BadFile, "%s: got %g, want a finite number", strings.TrimPrefix(path, "."), number)
}

// findNotFinite returns the first number in v that is NaN or infinite, and the path to it, of which every key begins
// with a stop. isFinite is true if there is none.
func findNotFinite(v reflect.Value) (path string, number float64, isFinite bool) {
	switch v.Kind() {
	case reflect.Float64:
		f := v.Float()
		return "", f, !math.IsNaN(f) && !math.IsInf(f, 0)
	case reflect.Pointer:
		if !v.IsNil() {
			return findNotFinite(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if path, number, isFinite = findNotFinite(v.Index(i)); !isFinite {
				return fmt.Sprintf("[%d]", i) + path, number, false
			}
		}
	case reflect.Map:
		keys := v.MapKeys()
		stat.SortStable(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			if path, number, isFinite = findNotFinite(v.MapIndex(key)); !isFinite {
				return "." + key.String() + path, number, false
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if path, number, isFinite = findNotFinite(v.Field(i)); !isFinite {
				key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
				return "." + key + path, number, false
			}
		}
	}
	return "", 0, true
}

// Outside returns a warning for each property of the deployment that the training data did not
// cover: model, hardware, tensor_parallel_size and minor version of vLLM. If each of the first three
// was covered, but no configuration had all of them, one warning names the combination.
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
	if combination := s.untrainedCombination(d); len(fs) == 0 && combination != nil {
		fs = append(fs, *combination)
	}
	// Patch releases do not change step times, so only major and minor version are compared.
	minor := func(v string) string {
		parts := strings.SplitN(strings.TrimPrefix(v, "v"), ".", 3)
		return strings.Join(parts[:min(2, len(parts))], ".")
	}
	isSameMinor := func(v string) bool { return minor(v) == minor(d.Engine.VLLMVersion) }
	if t := s.TrainedOn.VLLMVersions; len(t) > 0 && !slices.ContainsFunc(t, isSameMinor) {
		fs = append(fs, trace.Findingf(OutsideTraining, "vllm version: got %q, trained on %q", d.Engine.VLLMVersion, t))
	}
	return fs
}

// untrainedCombination returns a warning if no training configuration had the deployment's model,
// GPU and tensor_parallel_size together; nil if one had, or if the file lists no configurations.
func (s *Set) untrainedCombination(d *deploy.Deployment) *trace.Finding {
	if len(s.Configs) == 0 {
		return nil
	}
	var trained []string
	for i := range s.Configs {
		c := &s.Configs[i].Deployment
		if c.Model.ID == d.Model.ID && c.Hardware.Name == d.Hardware.Name && c.TP == d.TP {
			return nil
		}
		trained = append(trained, c.Label())
	}
	slices.Sort(trained)
	found := trace.Findingf(OutsideTraining, "model, hardware and tensor_parallel_size together: got %s, trained on %s",
		d.Label(), strings.Join(slices.Compact(trained), "; "))
	return &found
}
