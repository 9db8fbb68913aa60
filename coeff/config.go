package coeff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/trace"
)

// wireConfig keeps a deployment under the keys of its JSON form, so that the
// names in a coefficient file are those of run.yaml and of our other documents.
type wireConfig struct {
	Key        string       `yaml:"key"`
	Label      string       `yaml:"label"`
	Runs       flow[string] `yaml:"runs"`
	Samples    int64        `yaml:"n_samples"`
	Deployment yaml.Node    `yaml:"deployment"`
}

func (c *Config) wire() (wireConfig, error) {
	text, err := json.Marshal(&c.Deployment)
	if err != nil {
		return wireConfig{}, fmt.Errorf("encode deployment of %s: %w", c.Key, err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	node, err := nodeOf(dec)
	if err != nil {
		return wireConfig{}, fmt.Errorf("encode deployment of %s: %w", c.Key, err)
	}
	dropKeys(node, "name", "tracing", "files") // of one run, not of a configuration
	return wireConfig{c.Key, c.Deployment.Label(), c.Runs, c.Samples, *node}, nil
}

func dropKeys(n *yaml.Node, keys ...string) {
	kept := n.Content[:0]
	for i := 0; i+1 < len(n.Content); i += 2 {
		if !slices.Contains(keys, n.Content[i].Value) {
			kept = append(kept, n.Content[i], n.Content[i+1])
		}
	}
	n.Content = kept
}

func (w *wireConfig) config() (Config, error) {
	c := Config{Key: w.Key, Runs: w.Runs, Samples: w.Samples}
	var values any
	if err := w.Deployment.Decode(&values); err != nil {
		return c, trace.Errorf(BadFile, "configs: deployment of %q: %v", w.Key, err)
	}
	text, err := json.Marshal(values)
	if err != nil {
		return c, trace.Errorf(BadFile, "configs: deployment of %q: %v", w.Key, err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c.Deployment); err != nil {
		return c, trace.Errorf(BadFile, "configs: deployment of %q: %s", w.Key, strings.TrimPrefix(err.Error(), "json: "))
	}
	if err := c.Deployment.Check(); err != nil {
		return c, trace.Errorf(BadFile, "configs: deployment of %q: %v", w.Key, err)
	}
	return c, nil
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
		return container(dec, t)
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

func container(dec *json.Decoder, open json.Delim) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	if open == '[' {
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
}

// SortConfigs puts configurations into the order Save expects: by key.
func SortConfigs(cs []Config) {
	slices.SortStableFunc(cs, func(a, b Config) int { return strings.Compare(a.Key, b.Key) })
}
