package coeff

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// maxFile is far above any coefficient file: one of a thousand runs has 3 MiB.
const maxFile = 64 << 20

// document is the file (spec#artifact): what made the set, the set, and the digest of both.
type document struct {
	SchemaVersion string  `yaml:"schema_version"`
	ToolVersion   string  `yaml:"tool_version"`
	Platform      string  `yaml:"platform,omitempty"`
	Command       string  `yaml:"command"`
	Inputs        []Input `yaml:"inputs"`
	Physics       physics `yaml:"physics_coefficients"`
	Digest        string  `yaml:"digest,omitempty"` // the last line
}

// physics is a set, and what only spec 1.0's flat form has.
type physics struct {
	Set       `yaml:",inline"`
	FlatAlpha []Coefficient `yaml:"alpha_coefficients,omitempty"` // read only
}

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
	var doc document
	if err = files.DecodeYAML(text, file, &doc); err == nil && len(bytes.TrimSpace(text)) == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, yamlError(file, text, err)
	}
	s := &doc.Physics.Set
	s.SchemaVersion, s.ToolVersion, s.Platform, s.Command, s.Inputs = doc.SchemaVersion, doc.ToolVersion, doc.Platform, doc.Command, doc.Inputs
	err = s.addFlat(doc.Physics.FlatAlpha)
	if err == nil && terms != nil {
		err = terms(s)
	}
	if err == nil {
		err = s.Check()
	}
	if err != nil {
		return nil, placed(file, text, err)
	}
	if doc.Digest != "" && !intact(text) {
		s.Changed = filepath.Base(file)
		if found := s.FileWarnings(); !slices.Contains(s.Warnings, found[0]) {
			s.Warnings = append(found, s.Warnings...)
		}
	}
	return s, nil
}

// addFlat takes the flat alpha of a spec 1.0 file as its queue target.
func (s *Set) addFlat(alpha []Coefficient) error {
	if alpha == nil {
		return nil
	}
	if s.SpecVersion != flatVersion {
		return trace.Errorf(BadFile, "alpha_coefficients: got the flat form with spec_version %s, want alpha.<target>.coefficients",
			s.SpecVersion)
	}
	s.SchemaVersion = cmp.Or(s.SchemaVersion, SchemaVersion) // the frozen text has no schema of ours
	s.Alpha = []AlphaModel{{Target: Queue, Lambda: s.TrainedOn.Lambda, Coefficients: alpha}}
	s.BetaTarget = cmp.Or(s.BetaTarget, Duration)
	return nil
}

// Save checks the set and writes it as YAML. Floats are written shortest
// round-trip, maps with sorted keys: the same set gives the same bytes, and
// reading them back gives the same set.
func (s *Set) Save(w io.Writer) error {
	if err := s.Check(); err != nil {
		return err
	}
	var doc yaml.Node
	if err := doc.Encode(&document{s.SchemaVersion, s.ToolVersion, s.Platform, s.Command, s.Inputs, physics{Set: *s}, ""}); err != nil {
		return fmt.Errorf("encode coefficients: %w", err)
	}
	layOut(&doc)
	var text bytes.Buffer
	enc := yaml.NewEncoder(&text)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(&doc), enc.Close()); err != nil {
		return fmt.Errorf("encode coefficients: %w", err)
	}
	if _, err := w.Write(withDigest(files.Readable(text.Bytes()))); err != nil {
		return fmt.Errorf("write coefficients: %w", err)
	}
	return nil
}

// digestKey begins the last line of a coefficient file: the SHA-256 of the lines
// before it. A file without the line is of an older version or written by hand.
const digestKey = "digest: "

// withDigest is the text with its digest line.
func withDigest(text []byte) []byte {
	return fmt.Appendf(bytes.Clone(text), "%s\"%x\"\n", digestKey, sha256.Sum256(text))
}

// Body is a coefficient file up to its digest, and whether it has one.
func Body(text []byte) (body []byte, bound bool) {
	if at := bytes.LastIndex(text, []byte("\n"+digestKey)); at >= 0 {
		return text[:at+1], true
	}
	return text, false
}

// intact reports whether the last line is the digest of those before it, however
// lines end.
func intact(text []byte) bool {
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	body, bound := Body(text)
	return bound && bytes.Equal(withDigest(body), text)
}

// FileWarnings are what a user of the set must hear of its file: that it was changed after
// it was written. They stand among the set's warnings too.
func (s *Set) FileWarnings() []trace.Finding {
	if s.Changed == "" {
		return nil
	}
	return []trace.Finding{trace.Findingf(DocumentChanged, "%s was changed after it was written; its values are used as they stand",
		s.Changed)}
}

// yamlError gives an error of reading the document its place and code.
func yamlError(file string, text []byte, err error) error {
	if _, ok := errors.AsType[*trace.Error](err); ok {
		return placed(file, text, err)
	}
	e, ok := errors.AsType[*trace.SyntaxError](err)
	if !ok {
		e, _ = trace.YAMLError(file, err)
	}
	if strings.HasPrefix(e.Msg, "unknown key ") {
		e.Msg += ", want one of docs/coefficients.md"
	}
	if e.Code = BadFile; errors.Is(err, io.EOF) {
		e.Msg += ", want a coefficient set"
	}
	e.File = file
	return e
}

// placed turns a coded error whose message starts with the path of a key into
// one with the line of that key.
func placed(file string, text []byte, err error) error {
	coded, ok := errors.AsType[*trace.Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", file, err)
	}
	line, col := place(text, coded.Msg)
	return &trace.SyntaxError{File: file, Line: line, Col: col, Code: coded.Code, Msg: coded.Msg, Hint: coded.Hint}
}

// place finds the key path that the message starts with, below
// physics_coefficients or at the top; 0, 0 when there is none.
func place(text []byte, msg string) (line, col int64) {
	root, err := files.ParseYAML(text, "")
	if root == nil || err != nil {
		return 0, 0
	}
	path, _, _ := strings.Cut(msg, ": ")
	path, _, _ = strings.Cut(path, " ")
	keys := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
	for _, start := range []*yaml.Node{child(root, "physics_coefficients"), root} {
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

// Where the file's form is not that of the structs.

// layOut writes lists of numbers on one line, an empty text that stands for an unknown one as null, and
// 1e-07 as 1.0e-07: readers of YAML 1.1 take a float without a point for a string (https://yaml.org/type/float.html).
func layOut(n *yaml.Node) {
	isNumber := func(n *yaml.Node) bool { return n.Tag == "!!float" || n.Tag == "!!int" }
	switch {
	case n.Tag == "!!float" && !strings.Contains(n.Value, "."):
		n.Value = strings.Replace(n.Value, "e", ".0e", 1)
	case n.Kind == yaml.SequenceNode && !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return !isNumber(c) }):
		n.Style = yaml.FlowStyle
	}
	for i, c := range n.Content {
		isUnknown := n.Kind == yaml.MappingNode && i%2 == 1 && c.Kind == yaml.ScalarNode && c.Value == "" &&
			slices.Contains([]string{"identified", "training_date"}, n.Content[i-1].Value)
		if isUnknown {
			*c = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
		}
		layOut(c)
	}
}

// MarshalYAML writes a coefficient in the file's order, which has the estimate behind what is said of the value.
func (c Coefficient) MarshalYAML() (any, error) {
	type plain Coefficient
	var n yaml.Node
	if err := n.Encode(plain(c)); err != nil {
		return nil, err
	}
	var value, estimate, evidence []*yaml.Node
	for i := 0; i < len(n.Content); i += 2 {
		to := &value
		switch n.Content[i].Value {
		case "estimate", "estimate_ci95":
			to = &estimate
		case "evidence":
			to = &evidence
		}
		*to = append(*to, n.Content[i:i+2]...)
	}
	n.Content = slices.Concat(value, estimate, evidence)
	return &n, nil
}

// UnmarshalYAML reads a coefficient; that of the flat form is its bare value.
func (c *Coefficient) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&c.Value)
	}
	type plain Coefficient
	return files.DecodeYAMLNode(n, (*plain)(c))
}

// oneOrMany is a bare value when there is one, else a list on one line.
type oneOrMany[T any] []T

// MarshalYAML writes it.
func (l oneOrMany[T]) MarshalYAML() (any, error) {
	if len(l) == 1 {
		return l[0], nil
	}
	var n yaml.Node
	err := n.Encode([]T(l))
	n.Style = yaml.FlowStyle
	return &n, err
}

// UnmarshalYAML reads either form; null is none.
func (l *oneOrMany[T]) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		return n.Decode((*[]T)(l))
	}
	if n.Tag == "!!null" {
		return nil
	}
	*l = make([]T, 1)
	return n.Decode(&(*l)[0])
}

// alphaModels stand in the file by target.
type alphaModels []AlphaModel

// MarshalYAML writes them.
func (l alphaModels) MarshalYAML() (any, error) {
	byTarget := stat.Keyed(l, func(m AlphaModel) (string, AlphaModel) { return m.Target, m })
	return byTarget, nil
}

// UnmarshalYAML reads them, sorted by target.
func (l *alphaModels) UnmarshalYAML(n *yaml.Node) error {
	var byTarget map[string]AlphaModel
	if err := files.DecodeYAMLNode(n, &byTarget); err != nil {
		return err
	}
	for _, target := range slices.Sorted(maps.Keys(byTarget)) {
		m := byTarget[target]
		m.Target = target
		*l = append(*l, m)
	}
	return nil
}

// writtenConfig is a configuration as it stands in the file: its deployment under the keys of its JSON form, so that
// names are those of run.yaml and of our other documents.
type writtenConfig struct {
	Key        string   `yaml:"key"`
	Label      string   `yaml:"label"`
	Runs       []string `yaml:"runs,flow"`
	Samples    int64    `yaml:"n_samples"`
	Deployment any      `yaml:"deployment"`
	Layers     any      `yaml:"layer_sums,omitempty"`
}

// MarshalYAML writes a configuration.
func (c Config) MarshalYAML() (any, error) {
	node, err := jsonNode(&c.Deployment)
	if err != nil {
		return nil, fmt.Errorf("deployment of %s: %w", c.Key, err)
	}
	kept := node.Content[:0]
	for i := 0; i+1 < len(node.Content); i += 2 { // three are of one run, not of a configuration
		if !slices.Contains([]string{"name", "tracing", "files"}, node.Content[i].Value) {
			kept = append(kept, node.Content[i], node.Content[i+1])
		}
	}
	node.Content = kept
	w := writtenConfig{c.Key, c.Deployment.Label(), c.Runs, c.Samples, node, nil}
	if c.Layers != nil {
		w.Layers, err = jsonNode(c.Layers)
	}
	return w, err
}

// jsonNode is a value's JSON form as a YAML node.
func jsonNode(v any) (*yaml.Node, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return nodeOf(dec)
}

// UnmarshalYAML reads a configuration and checks its deployment.
func (c *Config) UnmarshalYAML(n *yaml.Node) error {
	var w writtenConfig
	if err := files.DecodeYAMLNode(n, &w); err != nil {
		return err
	}
	c.Key, c.Runs, c.Samples = w.Key, w.Runs, w.Samples
	err := fromJSON(w.Deployment, &c.Deployment)
	if err == nil {
		err = c.Deployment.Check()
	}
	if err == nil && w.Layers != nil {
		if err = fromJSON(w.Layers, &c.Layers); err == nil && !reflect.DeepEqual(c.Layers.Work, c.Deployment.LayerSums().Work) {
			err = errors.New("layer_sums: got other sums than its layers come to, want those or none")
		}
	}
	if err != nil {
		return trace.Errorf(BadFile, "configs: deployment of %q: %s", w.Key, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// fromJSON reads a decoded document strictly.
func fromJSON(doc, into any) error {
	text, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// nodeOf turns the next JSON value into a YAML node, key order and number
// spelling kept.
func nodeOf(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		if t == '[' {
			n = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
		}
		for dec.More() {
			item, err := nodeOf(dec)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, item)
		}
		_, err := dec.Token()
		return n, err
	case json.Number:
		tag := "!!int"
		if strings.ContainsAny(t.String(), ".eE") {
			tag = "!!float"
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: t.String()}, nil
	}
	n := &yaml.Node{}
	return n, n.Encode(token)
}

// Check applies the rules of loading that need no knowledge of features (spec#artifact-load): known schema,
// lengths, finite numbers, and no wait marked as a delay.
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
		if err := s.Alpha[i].check(); err != nil {
			return err
		}
		if i > 0 && s.Alpha[i].Target <= s.Alpha[i-1].Target {
			return trace.Errorf(BadFile, "alpha: got %q after %q, want sorted targets, each once", s.Alpha[i].Target, s.Alpha[i-1].Target)
		}
	}
	if s.Gamma < 0 || s.Gamma > 1 {
		return trace.Errorf(BadFile, "gamma: got %g, want 0 to 1", s.Gamma)
	}
	return finite("", reflect.ValueOf(s).Elem())
}

func (m *AlphaModel) check() error {
	path := "alpha." + m.Target
	if !slices.Contains([]string{Overhead, Admission, Egress, Queue}, m.Target) {
		return trace.Errorf(BadFile, "%s: got an unknown target, want overhead, admission, egress or queue", path)
	}
	if m.Replay && !Replayable(m.Target) {
		return trace.Errorf(BadFile, "%s.replay: got true for a target that contains a wait, want overhead or egress", path)
	}
	return cmp.Or(checkTerms(path+".coefficients", m.Coefficients), m.checkDeployments(path+".deployments"),
		checkCovariance(path+".covariance", m.Covariance, len(m.Coefficients)))
}

func (m *AlphaModel) checkDeployments(path string) error {
	for _, name := range slices.Sorted(maps.Keys(m.Deployments)) {
		values := m.Deployments[name]
		if len(values) != len(m.Coefficients) {
			return trace.Errorf(BadFile, "%s.%s: got %d values, want %d", path, name, len(values), len(m.Coefficients))
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
	}
	return nil
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
	}
	return nil
}

// finite says which number of a value is none, by the path of its keys in the file.
func finite(path string, v reflect.Value) error {
	in := func(at string, part reflect.Value) error { return finite(strings.TrimPrefix(path+at, "."), part) }
	var err error
	switch v.Kind() {
	case reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			err = trace.Errorf(BadFile, "%s: got %g, want a finite number", path, f)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			err = finite(path, v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := 0; i < v.Len() && err == nil; i++ {
			err = in(fmt.Sprintf("[%d]", i), v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for i := 0; i < len(keys) && err == nil; i++ {
			err = in("."+keys[i].String(), v.MapIndex(keys[i]))
		}
	case reflect.Struct:
		for i := 0; i < v.NumField() && err == nil; i++ {
			key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
			err = in("."+key, v.Field(i))
		}
	}
	return err
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

// Codes of coefficient files and predictions.
const (
	BadFile               trace.Code = "bad_coefficient_file"
	OutsideTraining       trace.Code = "outside_training"
	ImpossibleCoefficient trace.Code = "impossible_coefficient"
	DocumentChanged       trace.Code = "document_changed" // or a coefficient file
)
