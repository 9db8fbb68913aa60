package coeff

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
	"gopkg.in/yaml.v3"
)

// This file has the YAML form of a set where it differs from the structs.

// layOutNode writes lists of numbers on one line, unknown texts as null, and 1e-07 as 1.0e-07, because
// YAML 1.1 reads a float without a decimal point as a string (https://yaml.org/type/float.html).
func layOutNode(n *yaml.Node) {
	isNumber := func(n *yaml.Node) bool { return n.Tag == "!!float" || n.Tag == "!!int" }
	// The content of a mapping is its keys and values in turn.
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
		if i%2 == 0 && c.Value == "fold_spread" && n.Kind == yaml.MappingNode && isOutside(n, n.Content[i+1]) {
			c.HeadComment = "value lies outside of fold_spread: it is refitted on all measurements, each fold on a part"
		}
		layOutNode(c)
	}
}

// isOutside reports whether the value of a coefficient lies outside of its spread over the folds.
func isOutside(coefficient, foldSpread *yaml.Node) bool {
	var value float64
	var spread []float64
	at := childNode(coefficient, "value")
	if at == nil || at.Decode(&value) != nil || foldSpread.Decode(&spread) != nil || len(spread) != 2 {
		return false
	}
	return value < spread[0] || value > spread[1]
}

// fileCoefficient is a [Coefficient] in the order of the file's keys: the fields of the value, then of the estimate, then
// the evidence.
type fileCoefficient struct {
	Name         string      `yaml:"name"`
	Value        float64     `yaml:"value"`
	Unit         string      `yaml:"unit"`
	CI95         *[2]float64 `yaml:"ci95"`
	CI95Given    string      `yaml:"ci95_given,omitempty"`
	FoldSpread   *[2]float64 `yaml:"fold_spread,omitempty"`
	Identified   string      `yaml:"identified"`
	Range        *[2]float64 `yaml:"range"`
	Estimate     *float64    `yaml:"estimate,omitempty"`
	EstimateCI95 *[2]float64 `yaml:"estimate_ci95,omitempty"`
	Evidence     string      `yaml:"evidence,omitempty"`
}

// MarshalYAML returns a coefficient in the order of the file's keys.
func (c Coefficient) MarshalYAML() (any, error) {
	return fileCoefficient{Name: c.Name, Value: c.Value, Unit: c.Unit, CI95: c.CI95, CI95Given: c.CI95Given, FoldSpread: c.FoldSpread,
		Identified: c.Identified, Range: c.Range, Estimate: c.Estimate, EstimateCI95: c.EstimateCI95, Evidence: c.Evidence}, nil
}

// heading returns the comment at the head of a coefficient file: how many terms it has, why so many,
// and the units of its figures.
func (s *Set) heading() string {
	text := fmt.Sprintf("Coefficients of spec %s: %d terms of an engine step", s.SpecVersion, len(s.Beta))
	if len(s.Alpha) > 0 {
		text += fmt.Sprintf(" and %d of each delay of a request", len(s.Alpha[0].Coefficients))
	}
	const founding = 16 // step terms of spec 1.0 and 1.1
	if len(s.Beta) > founding {
		text += ".\nThe founding spec has 16 + 11. Terms 17 to 20 are for weight loads hidden behind prompt work, activations," +
			"\nall-reduces and experts that a step loads: with 16 terms the median error against published kernel times" +
			"\nis 11 %, with 20 it is 2 % (docs/decisions/0015)"
	} else {
		text += ", those of the founding spec (16 + 11)"
	}
	return text + `.
Units: a term's value, ci95, estimate, estimate_ci95 and fold_spread have its unit: us, or us/s (us of time per second
of the feature: 1.0e+6 is the nominal time). range: the feature itself, s where the unit is us/s, else a number.
covariance: products of the terms' units. hold_out_rmse: us. deployment, prompt and hardware factors,
residual_quantiles, lambda and gamma: ratios. Numbers have every digit, so that predictions can be reproduced;
ci95 states how many of them the data support.
fold_spread: least and largest value over the folds. value is refitted on all measurements and can lie outside.
trained_on and configs: model, device and parallel sizes are what run.yaml and config.json say of the server.`
}

// UnmarshalYAML reads a coefficient, in spec 1.0's flat form a bare value.
func (c *Coefficient) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return files.DecodeYAMLNode(n, &c.Value)
	}
	type plain Coefficient
	if err := files.DecodeYAMLNode(n, (*plain)(c)); err != nil {
		return err
	}
	if value := childNode(n, "value"); value == nil || value.Tag == "!!null" {
		return trace.Errorf(BadFile, "coefficient %q in line %d: got no value, want a number", c.Name, n.Line)
	}
	return nil
}

// oneOrMany is a list that the file has as a bare value when it has one entry, else as a list on
// one line.
type oneOrMany[T any] []T

// MarshalYAML returns the bare value or the list.
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

// alphaModels are a mapping by target in the file.
type alphaModels []AlphaModel

// MarshalYAML returns the mapping.
func (l alphaModels) MarshalYAML() (any, error) {
	byTarget := make(map[string]AlphaModel, len(l))
	for _, m := range l {
		byTarget[m.Target] = m
	}
	return byTarget, nil
}

// UnmarshalYAML reads the mapping, sorted by target.
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

// writtenConfig is a configuration in the form of the file. The deployment has the keys of its JSON
// form, which are those of run.yaml and of the other documents.
type writtenConfig struct {
	Key        string   `yaml:"key"`
	Label      string   `yaml:"label"`
	Runs       []string `yaml:"runs,flow"`
	Samples    int64    `yaml:"n_samples"`
	Deployment any      `yaml:"deployment"`
	Layers     any      `yaml:"layer_sums,omitempty"`
}

// MarshalYAML returns the configuration, without what describes a single run.
func (c Config) MarshalYAML() (any, error) {
	node, err := jsonNode(&c.Deployment)
	if err != nil {
		return nil, fmt.Errorf("deployment of %s: %w", c.Key, err)
	}
	kept := node.Content[:0]
	for i := 0; i+1 < len(node.Content); i += 2 {
		// These three describe a single run, and a configuration can have several.
		if !slices.Contains([]string{"name", "tracing", "files"}, node.Content[i].Value) {
			kept = append(kept, node.Content[i], node.Content[i+1])
		}
	}
	node.Content = kept
	w := writtenConfig{
		Key:        c.Key,
		Label:      c.Deployment.Label(),
		Runs:       c.Runs,
		Samples:    c.Samples,
		Deployment: node,
	}
	if c.Layers != nil {
		w.Layers, err = jsonNode(c.Layers)
	}
	return w, err
}

// jsonNode returns the JSON form of a value as a YAML node.
func jsonNode(v any) (*yaml.Node, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return nodeOfJSON(dec)
}

// UnmarshalYAML reads a configuration and checks its deployment.
func (c *Config) UnmarshalYAML(n *yaml.Node) error {
	var w writtenConfig
	if err := files.DecodeYAMLNode(n, &w); err != nil {
		return err
	}
	c.Key = w.Key
	c.Runs = w.Runs
	c.Samples = w.Samples
	err := fromJSON(w.Deployment, &c.Deployment)
	if err == nil {
		err = c.Deployment.Check()
	}
	if err == nil && w.Layers != nil {
		err = fromJSON(w.Layers, &c.Layers)
		if err == nil && !reflect.DeepEqual(c.Layers.Work, c.Deployment.LayerSums().Work) {
			err = errors.New("layer_sums: got sums that do not match the deployment's layers, want matching ones or none")
		}
	}
	if err != nil {
		return trace.Errorf(BadFile, "configs: deployment of %q: %s", w.Key, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// fromJSON decodes a document, which was read as YAML, through its JSON form; unknown keys are
// errors.
func fromJSON(doc, into any) error {
	text, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// nodeOfJSON returns the next JSON value as a YAML node. It keeps the order of keys and the
// spelling of numbers.
func nodeOfJSON(dec *json.Decoder) (*yaml.Node, error) {
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
			item, err := nodeOfJSON(dec)
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
