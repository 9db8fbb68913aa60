package deploy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
)

// section reads one mapping of run.yaml: every getter marks its key as known,
// done reports the rest. The first error of the whole document is kept.
type section struct {
	doc   *document
	path  string // "vllm", "" for the top level
	node  *yaml.Node
	known []string
}

// document is one run.yaml being read.
type document struct {
	file    string
	err     error
	missing []string // paths of required fields that are absent
	sheets  []Hardware
	drafts  string // the config.json that was read of a draft model
}

func (d *document) fail(at *yaml.Node, code trace.Code, hint, format string, args ...any) {
	if d.err != nil {
		return
	}
	e := &trace.SyntaxError{File: d.file, Code: code, Msg: fmt.Sprintf(format, args...), Hint: hint}
	if at != nil {
		e.Line, e.Col = int64(at.Line), int64(at.Column)
	}
	d.err = e
}

// sectionOf checks that node is a mapping.
func (d *document) sectionOf(node *yaml.Node, path string) *section {
	s := &section{doc: d, path: path}
	switch {
	case node == nil || isNull(node):
	case node.Kind != yaml.MappingNode:
		d.fail(node, badRunYAML, "", "%s: got %s, want a mapping", cmp.Or(path, "run.yaml"), kindName(node))
	default:
		s.node = node
	}
	return s
}

func (s *section) pathOf(key string) string {
	if s.path == "" {
		return key
	}
	return s.path + "." + key
}

// find marks the key as known and returns its value, nil when absent or null.
func (s *section) find(key string) *yaml.Node {
	s.known = append(s.known, key)
	if v := resolve(s.at(key)); !isNull(v) {
		return v
	}
	return nil
}

func (s *section) at(key string) *yaml.Node {
	for i := 0; s.node != nil && i < len(s.node.Content); i += 2 {
		if s.node.Content[i].Value == key {
			return s.node.Content[i+1]
		}
	}
	return nil
}

// present reports whether the key stands in the file, null or not.
func (s *section) present(key string) bool {
	return s.at(key) != nil
}

func (s *section) sub(key string) *section { return s.doc.sectionOf(s.find(key), s.pathOf(key)) }

func (s *section) text(key, def string) string {
	n := s.find(key)
	if n == nil {
		return def
	}
	if n.Kind != yaml.ScalarNode {
		s.doc.fail(n, badRunYAML, "", "%s: got %s, want a string", s.pathOf(key), kindName(n))
	}
	return n.Value
}

// valueType is the name of a number's type, auto or one whose bytes are known.
func (s *section) valueType(key, def string, bytes func(name string) float64, want string) string {
	v := s.text(key, def)
	if v != "" && v != "auto" && bytes(v) == 0 {
		s.doc.fail(s.find(key), model.UnsupportedModel, "auto takes the model's own", "%s: got %q, want %s", s.pathOf(key), v, want)
	}
	return v
}

func (s *section) oneOf(key, def string, legal ...string) string {
	v := s.text(key, def)
	if !slices.Contains(legal, v) {
		s.doc.fail(s.find(key), badRunYAML, "", "%s: got %q, want %s", s.pathOf(key), v, trace.OneOf(legal))
	}
	return v
}

// scalarOf is a scalar with one of some tags, as parse reads it; unknown where it is absent or something else.
func scalarOf[T any](s *section, key, want string, tags []string, parse func(text string) (T, error)) (out trace.Opt[T]) {
	n := s.find(key)
	if n == nil {
		return out
	}
	v, err := parse(n.Value)
	if n.Kind != yaml.ScalarNode || !slices.Contains(tags, n.Tag) || err != nil {
		s.doc.fail(n, badRunYAML, "", "%s: got %s, want %s", s.pathOf(key), kindName(n), want)
		return out
	}
	return trace.Some(v)
}

func (s *section) integer(key string) trace.Opt[int64] {
	return scalarOf(s, key, "an integer", []string{"!!int"}, func(text string) (int64, error) {
		return strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	})
}

// mostSetting is above every count that a server was ever given.
const mostSetting = 1 << 32

// atLeast is integer with a lower bound.
func (s *section) atLeast(key string, least int64, unit string) trace.Opt[int64] {
	v := s.integer(key)
	if v.OK && v.V < least {
		s.doc.fail(s.find(key), badRunYAML, "", "%s: got %d, want >= %d %s", s.pathOf(key), v.V, least, unit)
	}
	if unit != "ns" && v.V > mostSetting {
		s.doc.fail(s.find(key), badRunYAML, "", "%s: got %d, want at most %d %s", s.pathOf(key), v.V, int64(mostSetting), unit)
	}
	return v
}

func (s *section) number(key, unit string) trace.Opt[float64] {
	return scalarOf(s, key, "a number in "+unit, []string{"!!int", "!!float"}, func(text string) (float64, error) {
		v, err := strconv.ParseFloat(text, 64)
		if math.IsNaN(v) || math.IsInf(v, 0) {
			err = strconv.ErrRange
		}
		return v, err
	})
}

// within is number with legal bounds, both included.
func (s *section) within(key, unit string, lo, hi float64) trace.Opt[float64] {
	v := s.number(key, unit)
	if v.OK && !(v.V >= lo && v.V <= hi) {
		s.doc.fail(s.find(key), badRunYAML, "0.9 is 90 %", "%s: got %g, want %g..%g %s", s.pathOf(key), v.V, lo, hi, unit)
	}
	return v
}

func (s *section) boolean(key string) trace.Opt[bool] {
	return scalarOf(s, key, "true or false", []string{"!!bool"}, func(text string) (bool, error) {
		return strings.EqualFold(text, "true"), nil
	})
}

// names is a string or a list of strings; null and absent are none.
func (s *section) names(key string) []string {
	n := s.find(key)
	if n == nil {
		return nil
	}
	if n.Kind == yaml.ScalarNode {
		return []string{n.Value}
	}
	if n.Kind != yaml.SequenceNode {
		s.doc.fail(n, badRunYAML, "", "%s: got %s, want a file name, a glob, a list of them or null", s.pathOf(key), kindName(n))
		return nil
	}
	var names []string
	for _, item := range n.Content {
		if resolve(item).Kind != yaml.ScalarNode {
			s.doc.fail(item, badRunYAML, "", "%s: got %s in the list, want a file name or a glob", s.pathOf(key), kindName(item))
			return nil
		}
		names = append(names, resolve(item).Value)
	}
	return names
}

// free is any mapping, carried into provenance.
func (s *section) free(key string) map[string]any {
	n := s.find(key)
	if n == nil {
		return nil
	}
	var values map[string]any
	if err := n.Decode(&values); err != nil {
		s.doc.fail(n, badRunYAML, "", "%s: got %s, want a mapping", s.pathOf(key), kindName(n))
	}
	return values
}

// require notes the path as missing unless it was found.
func (s *section) require(found bool, key string) {
	if !found {
		s.doc.missing = append(s.doc.missing, s.pathOf(key))
	}
}

// rest returns the keys no getter asked for, in file order.
func (s *section) rest() []*yaml.Node {
	if s.node == nil {
		return nil
	}
	var rest []*yaml.Node
	for i := 0; i < len(s.node.Content); i += 2 {
		if key := s.node.Content[i]; !slices.Contains(s.known, key.Value) {
			rest = append(rest, key)
		}
	}
	return rest
}

// done fails on the first unknown key, with the nearest known one.
func (s *section) done() {
	if rest := s.rest(); len(rest) > 0 {
		s.unknown(rest[0], s.known)
	}
}

func (s *section) unknown(key *yaml.Node, legal []string) {
	hint := ""
	if elsewhere, ok := runKeys().Own[key.Value]; ok && elsewhere != "" && elsewhere != s.pathOf(key.Value) {
		hint = fmt.Sprintf("did you mean %s?", elsewhere)
	} else if near := files.Nearest(key.Value, legal); near != "" {
		hint = fmt.Sprintf("did you mean %s?", s.pathOf(near))
	}
	s.doc.fail(key, unknownKey, hint, "unknown key %q, want one of docs/run-yaml.md", s.pathOf(key.Value))
}

func resolve(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool {
	return n == nil || n.Kind == 0 || n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

func kindName(n *yaml.Node) string {
	switch resolve(n).Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		return strconv.Quote(resolve(n).Value)
	}
	return "nothing"
}
