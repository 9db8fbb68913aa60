package coeff

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/strictyaml"
	"github.com/blis-train/blis-train/trace"
)

// maxFile is far above any coefficient file: one of a thousand runs has 3 MiB.
const maxFile = 64 << 20

// Load reads a coefficient file strictly: unknown keys, wrong lengths, names, units and versions
// and numbers that are not finite are errors at their line (spec#artifact-load). file is the name in
// messages; terms compares the terms with their features: features.CheckSet, nil for no comparison. The flat form of
// spec 1.0, alpha_coefficients and beta_coefficients as bare lists, is accepted too; its alpha is the
// queue target.
func Load(r io.Reader, file string, terms func(*Set) error) (*Set, error) {
	text, err := files.ReadBounded(r, file, maxFile)
	if err != nil {
		return nil, err
	}
	var wire wireSet
	if err := strictyaml.Decode(text, file, &wire); err != nil {
		return nil, yamlError(file, err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, yamlError(file, io.EOF)
	}
	s, err := wire.set()
	if err == nil && terms != nil {
		err = terms(s)
	}
	if err == nil {
		err = s.Check()
	}
	if err != nil {
		return nil, placed(file, text, err)
	}
	if wire.Digest != "" && !intact(text) {
		s.Changed = true
		if found := s.Doubts(); !slices.Contains(s.Warnings, found[0]) {
			s.Warnings = append(found, s.Warnings...)
		}
	}
	return s, nil
}

func (w *wireSet) set() (*Set, error) {
	p := &w.Physics
	s := &Set{
		SchemaVersion: w.SchemaVersion, ToolVersion: w.ToolVersion, Platform: w.Platform, Command: w.Command, Inputs: w.Inputs,
		SpecVersion: p.SpecVersion, Recipe: p.Recipe, Refit: p.Refit, TrainedOn: p.TrainedOn.set(), BetaTarget: p.BetaTarget,
		Covariance: rows(p.Covariance), Gamma: p.Gamma, PipelineLag: p.PipelineLag, Gates: p.Gates, Purposes: p.Purposes, ValidatedFor: p.For,
		Identifiability: p.Ident, Certificate: p.Certificate, Warnings: p.Warnings, Library: p.Library,
	}
	if p.FeatureSet != nil {
		s.FeatureSet = *p.FeatureSet
	}
	var err error
	if s.Beta, err = p.terms("beta_coefficients", p.Beta); err != nil {
		return nil, err
	}
	if err := w.flatAlpha(s); err != nil {
		return nil, err
	}
	s.DeploymentFactors, s.PromptFactors, s.HardwareFactors = factorsOf(p.Deployments), factorsOf(p.Prompts), factorsOf(p.Devices)
	for _, target := range slices.Sorted(maps.Keys(p.Alpha)) {
		a := p.Alpha[target]
		terms, err := p.terms("alpha."+target+".coefficients", a.Coefficients)
		if err != nil {
			return nil, err
		}
		s.Alpha = append(s.Alpha, AlphaModel{target, a.Replay, a.Lambda, terms, rows(a.Covariance), deploymentsOf(a.Deployments), a.Gamma})
	}
	for _, regime := range slices.Sorted(maps.Keys(p.Residuals)) {
		s.Residuals = append(s.Residuals, RegimeQuantiles{regime, quantiles(p.Residuals[regime])})
	}
	for _, c := range p.Configs {
		config, err := c.config()
		if err != nil {
			return nil, err
		}
		s.Configs = append(s.Configs, config)
	}
	return s, nil
}

func factorsOf(m map[string]float64) []Factor {
	var out []Factor
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, Factor{name, m[name]})
	}
	return out
}

func deploymentsOf(m map[string]flow[float64]) []DeploymentValues {
	var out []DeploymentValues
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, DeploymentValues{name, m[name]})
	}
	return out
}

// flatAlpha takes the flat alpha of a spec 1.0 file as its queue target.
func (w *wireSet) flatAlpha(s *Set) error {
	p := &w.Physics
	if p.FlatAlpha == nil {
		return nil
	}
	if p.SpecVersion != flatVersion {
		return trace.Errorf(BadFile, "alpha_coefficients: got the flat form with spec_version %s, want alpha.<target>.coefficients",
			p.SpecVersion)
	}
	if w.SchemaVersion == "" { // the frozen text has no schema of ours
		s.SchemaVersion = SchemaVersion
	}
	terms, err := p.terms("alpha_coefficients", p.FlatAlpha)
	if err != nil {
		return err
	}
	s.Alpha = []AlphaModel{{Target: Queue, Lambda: p.TrainedOn.Lambda, Coefficients: terms}}
	if s.BetaTarget == "" {
		s.BetaTarget = Duration
	}
	return nil
}

// terms converts coefficients; those of a flat list have values alone.
func (p *wirePhysics) terms(path string, ts []wireTerm) ([]Coefficient, error) {
	cs := make([]Coefficient, len(ts))
	for i, t := range ts {
		cs[i] = Coefficient{Name: t.Name, Value: t.Value, Unit: t.Unit, CI95: (*[2]float64)(t.CI95),
			Estimate: t.Estimate, EstimateCI95: (*[2]float64)(t.EstimateCI95), Range: (*[2]float64)(t.Range), Evidence: t.Evidence}
		if t.Identified != nil {
			cs[i].Identified = *t.Identified
		}
		if t.flat && p.SpecVersion != flatVersion {
			return nil, trace.Errorf(BadFile, "%s[%d]: got a bare number, want {name, value, unit, ...}", path, i)
		}
	}
	return cs, nil
}

func (w *wireTrainedOn) set() TrainedOn {
	t := TrainedOn{Models: w.Model, Hardware: w.Hardware, TPs: w.TP, VLLMVersions: w.VLLMVersion,
		Samples: w.Samples, Lambda: w.Lambda, Gamma: w.Gamma}
	if w.TrainingDate != nil {
		t.Date = *w.TrainingDate
	}
	for _, target := range slices.Sorted(maps.Keys(w.HoldOutRMSE)) {
		t.HoldOutRMSE = append(t.HoldOutRMSE, TargetRMSE{target, w.HoldOutRMSE[target]})
	}
	return t
}

func rows(in []flow[float64]) [][]float64 {
	if len(in) == 0 {
		return nil
	}
	out := make([][]float64, len(in))
	for i := range in {
		out[i] = in[i]
	}
	return out
}

func quantiles(in []pair) [][2]float64 {
	out := make([][2]float64, len(in))
	for i := range in {
		out[i] = in[i]
	}
	return out
}

// yamlError gives an error of the YAML decoder its place and code.
func yamlError(file string, err error) error {
	var keyed *keyError
	if errors.As(err, &keyed) {
		return &trace.SyntaxError{File: file, Line: int64(keyed.line), Col: int64(keyed.col), Code: BadFile, Msg: keyed.Error()}
	}
	if placed := (*trace.SyntaxError)(nil); errors.As(err, &placed) {
		placed.Code = BadFile
		return placed
	}
	e, key := trace.YAMLError(file, err)
	e.Code = BadFile
	switch {
	case key != "":
		e.Code, e.Msg = BadFile, (&keyError{key: key}).Error()
	case errors.Is(err, io.EOF):
		e.Msg += ", want a coefficient set"
	}
	return e
}

// keyError is an unknown key found by a decoder of ours.
type keyError struct {
	key       string
	line, col int
}

func (e *keyError) Error() string {
	return fmt.Sprintf("unknown key %q, want one of docs/coefficients.md", e.key)
}

func knownKeys(n *yaml.Node, legal ...string) error {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if key := n.Content[i]; !slices.Contains(legal, key.Value) {
			return &keyError{key.Value, key.Line, key.Column}
		}
	}
	return nil
}

// placed turns a coded error whose message starts with the path of a key into
// one with the line of that key.
func placed(file string, text []byte, err error) error {
	var coded *trace.Error
	if !errors.As(err, &coded) {
		return fmt.Errorf("%s: %w", file, err)
	}
	line, col := place(text, coded.Msg)
	return &trace.SyntaxError{File: file, Line: line, Col: col, Code: coded.Code, Msg: coded.Msg, Hint: coded.Hint}
}

// place finds the key path that the message starts with, below
// physics_coefficients or at the top; 0, 0 when there is none.
func place(text []byte, msg string) (line, col int64) {
	var doc yaml.Node
	if yaml.Unmarshal(text, &doc) != nil || len(doc.Content) == 0 {
		return 0, 0
	}
	path, _, _ := strings.Cut(msg, ": ")
	path, _, _ = strings.Cut(path, " ")
	keys := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
	for _, start := range []*yaml.Node{child(doc.Content[0], "physics_coefficients"), doc.Content[0]} {
		n := start
		for _, key := range keys {
			next := child(n, key)
			if next == nil {
				break
			}
			n = next
		}
		if n != nil && n != start {
			return int64(n.Line), int64(n.Column)
		}
	}
	return 0, 0
}

// child returns the value under a key, or the item at a decimal index.
func child(n *yaml.Node, key string) *yaml.Node {
	if n == nil {
		return nil
	}
	if n.Kind == yaml.SequenceNode {
		var i int
		if c, _ := fmt.Sscanf(key, "%d", &i); c == 1 && i >= 0 && i < len(n.Content) {
			return n.Content[i]
		}
		return nil
	}
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
