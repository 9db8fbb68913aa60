package files

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/trace"
)

// This file reads YAML of users strictly: one document, no duplicate or unknown keys, with time and
// memory linear in the size of the text.

// maxKeys bounds a mapping, because yaml.v3 compares every key of a mapping with every other when it
// decodes one.
const maxKeys = 10_000

// ParseYAML returns the document's root, nil for an empty text. Errors are
// [trace.SyntaxError] without a code: no YAML, a second document, a key that
// occurs twice, more than 10,000 keys in a mapping, a number that is not finite.
func ParseYAML(text []byte, file string) (*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	var doc, more yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		e, _ := trace.YAMLError(file, err)
		return nil, e
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		return nil, atNode(&more, file, "got a second document, want one")
	case !errors.Is(err, io.EOF):
		e, _ := trace.YAMLError(file, err)
		return nil, e
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	return doc.Content[0], checkKeys(&doc, file, map[*yaml.Node]bool{})
}

// checkKeys walks the tree as it is written. It does not follow aliases: their target is checked once,
// at its anchor, so that nested aliases do not multiply the work.
func checkKeys(n *yaml.Node, file string, above map[*yaml.Node]bool) error {
	if above[n.Alias] {
		return atNode(n, file, "anchor %q contains itself", n.Value)
	}
	if n.Kind == yaml.MappingNode {
		if len(n.Content) > 2*maxKeys {
			return atNode(n, file, "got a mapping of %d keys, want at most %d", len(n.Content)/2, maxKeys)
		}
		seen := make(map[string]bool, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind == yaml.ScalarNode && seen[key.Value] {
				return &trace.SyntaxError{File: file, Line: int64(key.Line), Col: int64(key.Column), Hint: "keep one of the two",
					Msg: fmt.Sprintf("key %q stands twice", key.Value)}
			}
			seen[key.Value] = true
		}
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!float" {
		if v := 0.0; n.Decode(&v) != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return badNumber(n, file, "a finite number")
		}
	}
	above[n] = true
	defer delete(above, n)
	for _, child := range n.Content {
		if err := checkKeys(child, file, above); err != nil {
			return err
		}
	}
	return nil
}

func badNumber(n *yaml.Node, file, want string) error {
	return &trace.SyntaxError{File: file, Line: int64(n.Line), Col: int64(n.Column), Msg: fmt.Sprintf("got %s, want %s", n.Value, want),
		Hint: "give " + want + ", or leave the key out"}
}

func atNode(n *yaml.Node, file, format string, args ...any) error {
	for n.Line == 0 && len(n.Content) > 0 {
		n = n.Content[0]
	}
	return &trace.SyntaxError{File: file, Line: int64(n.Line), Col: int64(n.Column), Msg: fmt.Sprintf(format, args...)}
}

// DecodeYAML reads the document into a struct; a key that has no field is an error,
// an empty text leaves it as it is. The errors of the library itself come back
// as they are, for [trace.YAMLError].
func DecodeYAML(text []byte, file string, into any) error {
	root, err := ParseYAML(text, file)
	if root == nil || err != nil {
		return err
	}
	if n := fraction(root, reflect.TypeOf(into)); n != nil {
		return badNumber(n, file, "a whole number")
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	return dec.Decode(into)
}

// Embedded reads a document that is part of the program once, when it is first asked for.
func Embedded[T any](text []byte, file string) func() *T {
	return sync.OnceValue(func() *T {
		v := new(T)
		if err := DecodeYAML(text, file, v); err != nil {
			panic(file + ": " + err.Error())
		}
		return v
	})
}

// DecodeYAMLNode is DecodeYAML for a part of a document, into a pointer to a struct or to a map of structs: a decoder of
// the library forgets that keys must be known where a type decodes itself. Errors are [trace.SyntaxError] without a file.
func DecodeYAMLNode(n *yaml.Node, into any) error {
	if err := knownKeys(n, reflect.TypeOf(into).Elem()); err != nil {
		return err
	}
	if n := fraction(n, reflect.TypeOf(into)); n != nil {
		return badNumber(n, "", "a whole number")
	}
	return n.Decode(into)
}

// fraction finds the first number with a fraction for an integer field, which yaml.v3 would truncate
// silently; nil for none.
func fraction(n *yaml.Node, t reflect.Type) (found *yaml.Node) {
	if n.Alias != nil {
		n = n.Alias
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()) {
		return nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return fraction(n, t.Elem())
	case reflect.Int, reflect.Int64:
		if v := 0.0; n.Tag == "!!float" && n.Decode(&v) == nil && v != math.Trunc(v) {
			return n
		}
		return nil
	}
	for i, value := range n.Content {
		of := t
		switch {
		case n.Kind == yaml.MappingNode && i%2 == 0:
			continue
		case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
			f, ok := yamlField(t, n.Content[i-1].Value)
			if !ok {
				continue
			}
			of = f.Type
		case t.Kind() == reflect.Map || t.Kind() == reflect.Slice:
			of = t.Elem()
		default:
			continue
		}
		if found = fraction(value, of); found != nil {
			return found
		}
	}
	return nil
}

// yamlField is the field of a key.
func yamlField(t reflect.Type, key string) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name == key {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func knownKeys(n *yaml.Node, t reflect.Type) error {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); i += 2 {
		key := n.Content[i]
		switch t.Kind() {
		case reflect.Map:
			if err := knownKeys(n.Content[i+1], t.Elem()); err != nil {
				return err
			}
		case reflect.Struct:
			if _, ok := yamlField(t, key.Value); !ok {
				return atNode(key, "", "unknown key %q", key.Value)
			}
		}
	}
	return nil
}
