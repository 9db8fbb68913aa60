package files

// This file reads the mappings of a YAML document into fields, with the place of each mistake.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/trace"
)

// Key is one key of a YAML mapping and the place that its value is stored in.
type Key struct {
	Name string
	// Into points to the value: a string, bool, int64, float64, [trace.Opt] of one of the latter
	// three, list of strings, map[string]any or any. What it points to is the default: it stays where the
	// key is absent or null.
	Into  any
	Unit  string   // of a number, for messages
	Range *Range   // of a number; nil: any
	OneOf []string // the legal values of a string; nil: any
}

// Range has the legal values of a number, both ends included.
type Range struct{ Min, Max float64 }

// mostCount is above any realistic count in a server's settings.
const mostCount = 1 << 32

// AtLeast returns the range of a count that is n or more.
func AtLeast(n int64) *Range { return &Range{float64(n), mostCount} }

// Within returns the range from lo to hi.
func Within(lo, hi float64) *Range { return &Range{lo, hi} }

// Reader reads a document's mappings key by key. It continues after an error, so that a caller can
// collect missing keys, and keeps the first error, a [trace.SyntaxError] with the place.
type Reader struct {
	File string
	Code trace.Code // of a value of the wrong type or outside its range
	Err  error
}

// Fail sets r.Err to an error at the place of a node, unless there is an earlier one.
func (r *Reader) Fail(at *yaml.Node, code trace.Code, hint, format string, args ...any) {
	if r.Err != nil {
		return
	}
	e := &trace.SyntaxError{File: r.File, Code: code, Msg: fmt.Sprintf(format, args...), Hint: hint}
	if at != nil {
		e.Line, e.Col = int64(at.Line), int64(at.Column)
	}
	r.Err = e
}

// Section is a mapping of the document, from which values are read by key. An absent section has no
// keys.
type Section struct {
	reader *Reader
	path   string // "vllm"; "" for the document itself
	node   *yaml.Node
	known  []string
}

// Section returns the mapping at a node. For a node that is absent or null it is empty; any other
// value is an error. path names the section in messages; it is "" for the document itself.
func (r *Reader) Section(node *yaml.Node, path string) *Section {
	s := &Section{reader: r, path: path}
	switch node = ResolveAlias(node); {
	case IsNull(node):
	case node.Kind != yaml.MappingNode:
		r.Fail(node, r.Code, "", "%s: got %s, want a mapping", cmp.Or(path, "run.yaml"), kindName(node))
	default:
		s.node = node
	}
	return s
}

// PathOf returns the full path of a key of the section.
func (s *Section) PathOf(key string) string {
	if s.path == "" {
		return key
	}
	return s.path + "." + key
}

// Known returns the keys that were asked for.
func (s *Section) Known() []string { return s.known }

// Has reports whether the key is in the file, with a value or null.
func (s *Section) Has(key string) bool { return s.rawValue(key) != nil }

// Value returns the value of a key, nil where it is absent or null.
func (s *Section) Value(key string) *yaml.Node {
	s.known = append(s.known, key)
	if v := ResolveAlias(s.rawValue(key)); !IsNull(v) {
		return v
	}
	return nil
}

// rawValue returns the node of a key's value, aliases and null included; nil if the key is absent.
func (s *Section) rawValue(key string) *yaml.Node {
	if s.node == nil {
		return nil
	}
	for i := 0; i < len(s.node.Content); i += 2 {
		if s.node.Content[i].Value == key {
			return s.node.Content[i+1]
		}
	}
	return nil
}

// Sub returns the section under a key.
func (s *Section) Sub(key string) *Section {
	return s.reader.Section(s.Value(key), s.PathOf(key))
}

// Items returns the sections of a list of mappings under a key, with their nodes, by which callers give the
// place of a mistake in an item.
func (s *Section) Items(key string) (items []*Section, nodes []*yaml.Node) {
	list := s.Value(key)
	if list == nil {
		return nil, nil
	}
	if list.Kind != yaml.SequenceNode {
		s.reader.Fail(list, s.reader.Code, "", "%s: got %s, want a list", s.PathOf(key), kindName(list))
		return nil, nil
	}
	for _, node := range list.Content {
		items = append(items, s.reader.Section(node, s.PathOf(key)+"[]"))
		nodes = append(nodes, node)
	}
	return items, nodes
}

// Others returns the keys that were not asked for, in file order.
func (s *Section) Others() []*yaml.Node {
	if s.node == nil {
		return nil
	}
	var others []*yaml.Node
	for i := 0; i < len(s.node.Content); i += 2 {
		if key := s.node.Content[i]; !slices.Contains(s.known, key.Value) {
			others = append(others, key)
		}
	}
	return others
}

// Read stores the values of keys that are present and not null.
func (s *Section) Read(keys ...Key) {
	for i := range keys {
		k := &keys[i]
		n := s.Value(k.Name)
		if n == nil {
			continue
		}
		switch into := k.Into.(type) {
		case *string:
			s.readString(n, k, into)
		case *bool:
			if v := s.readBool(n, k); v.OK {
				*into = v.V
			}
		case *int64:
			if v := s.readInt(n, k); v.OK {
				*into = v.V
			}
		case *float64:
			if v := s.readFloat(n, k); v.OK {
				*into = v.V
			}
		case *trace.Opt[bool]:
			*into = s.readBool(n, k)
		case *trace.Opt[int64]:
			*into = s.readInt(n, k)
		case *trace.Opt[float64]:
			*into = s.readFloat(n, k)
		case *[]string:
			*into = s.readNames(n, k)
		case *any:
			if err := n.Decode(into); err != nil {
				s.reader.Fail(n, s.reader.Code, "", "%s: %v", s.PathOf(k.Name), err)
			}
		case *map[string]any:
			if err := n.Decode(into); err != nil {
				s.failType(n, k, "a mapping")
			}
		default:
			panic(fmt.Sprintf("files: key %s goes into a %T", k.Name, k.Into))
		}
	}
}

// failType records an error for a value of the wrong type.
func (s *Section) failType(n *yaml.Node, k *Key, want string) {
	s.reader.Fail(n, s.reader.Code, "", "%s: got %s, want %s", s.PathOf(k.Name), kindName(n), want)
}

// readString stores a string. It records an error for another type, and for a word that is not in
// OneOf.
func (s *Section) readString(n *yaml.Node, k *Key, into *string) {
	if n.Kind != yaml.ScalarNode {
		s.failType(n, k, "a string")
	}
	if k.OneOf != nil && !slices.Contains(k.OneOf, n.Value) {
		s.reader.Fail(n, s.reader.Code, "", "%s: got %q, want %s", s.PathOf(k.Name), n.Value, trace.OneOf(k.OneOf))
	}
	*into = n.Value
}

// readBool returns a boolean; unknown, with an error recorded, for another type.
func (s *Section) readBool(n *yaml.Node, k *Key) trace.Opt[bool] {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
		s.failType(n, k, "true or false")
		return trace.Opt[bool]{}
	}
	return trace.Some(strings.EqualFold(n.Value, "true"))
}

// readInt returns an integer; unknown, with an error recorded, for another type. It records an
// error for a value outside the range.
func (s *Section) readInt(n *yaml.Node, k *Key) trace.Opt[int64] {
	v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 10, 64)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil {
		s.failType(n, k, "an integer")
		return trace.Opt[int64]{}
	}
	if k.Range != nil && float64(v) < k.Range.Min {
		s.reader.Fail(n, s.reader.Code, "", "%s: got %d, want >= %.0f %s", s.PathOf(k.Name), v, k.Range.Min, k.Unit)
	}
	if k.Range != nil && float64(v) > k.Range.Max {
		s.reader.Fail(n, s.reader.Code, "", "%s: got %d, want at most %.0f %s", s.PathOf(k.Name), v, k.Range.Max, k.Unit)
	}
	return trace.Some(v)
}

// readFloat returns a number; unknown, with an error recorded, for another type. It records an
// error for a value outside the range.
func (s *Section) readFloat(n *yaml.Node, k *Key) trace.Opt[float64] {
	v, err := strconv.ParseFloat(n.Value, 64)
	isNumber := n.Kind == yaml.ScalarNode && (n.Tag == "!!int" || n.Tag == "!!float")
	if !isNumber || err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		s.failType(n, k, "a number in "+k.Unit)
		return trace.Opt[float64]{}
	}
	if k.Range != nil && !(v >= k.Range.Min && v <= k.Range.Max) {
		s.reader.Fail(n, s.reader.Code, "0.9 is 90 %", "%s: got %g, want %g..%g %s", s.PathOf(k.Name), v, k.Range.Min, k.Range.Max, k.Unit)
	}
	return trace.Some(v)
}

// readNames returns the file names in a value that is one name or a list of them.
func (s *Section) readNames(n *yaml.Node, k *Key) []string {
	if n.Kind == yaml.ScalarNode {
		return []string{n.Value}
	}
	if n.Kind != yaml.SequenceNode {
		s.failType(n, k, "a file name, a glob, a list of them or null")
		return nil
	}
	var names []string
	for _, item := range n.Content {
		if ResolveAlias(item).Kind != yaml.ScalarNode {
			s.reader.Fail(item, s.reader.Code, "", "%s: got %s in the list, want a file name or a glob", s.PathOf(k.Name), kindName(item))
			return nil
		}
		names = append(names, ResolveAlias(item).Value)
	}
	return names
}

// ResolveAlias returns the target of an alias, or the node itself.
func ResolveAlias(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// IsNull reports whether a node is absent or null.
func IsNull(n *yaml.Node) bool {
	return n == nil || n.Kind == 0 || n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// kindName returns the kind of a node's value in words, for a message.
func kindName(n *yaml.Node) string {
	switch n = ResolveAlias(n); n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		return strconv.Quote(n.Value)
	}
	return "nothing"
}
