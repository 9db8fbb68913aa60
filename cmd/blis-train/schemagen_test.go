package main

import (
	"path"
	"reflect"
	"strings"
)

// schemaOf is the JSON schema (draft 2020-12) of a document's type: every key it
// can hold, no other. Pointers and unknown-able values may be null, lists and
// maps may be null when nothing was computed, keys with omitempty may be absent.
func schemaOf(title string, doc any) map[string]any {
	g := schemaGen{defs: map[string]any{}}
	s := g.of(reflect.TypeOf(doc))
	root := map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   title,
		"$defs":   g.defs,
	}
	for k, v := range s {
		root[k] = v
	}
	return root
}

// schemaGen collects the named structs it meets under $defs.
type schemaGen struct{ defs map[string]any }

func (g *schemaGen) of(t reflect.Type) map[string]any {
	if v, ok := optionalType(t); ok {
		return nullable(g.of(v))
	}
	switch t.Kind() {
	case reflect.Pointer:
		return nullable(g.of(t.Elem()))
	case reflect.Struct:
		return g.ref(t)
	case reflect.Slice:
		return map[string]any{"type": []string{"array", "null"}, "items": g.of(t.Elem())}
	case reflect.Array:
		return map[string]any{"type": "array", "items": g.of(t.Elem()), "minItems": t.Len(), "maxItems": t.Len()}
	case reflect.Map:
		return map[string]any{"type": []string{"object", "null"}, "additionalProperties": g.of(t.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Interface:
		return map[string]any{}
	}
	return map[string]any{"type": "integer"}
}

// optionalType recognises trace.Opt: a known value or null.
func optionalType(t reflect.Type) (reflect.Type, bool) {
	if t.Kind() == reflect.Struct && strings.HasPrefix(t.Name(), "Opt[") {
		v, _ := t.FieldByName("V")
		return v.Type, true
	}
	return nil, false
}

func nullable(s map[string]any) map[string]any {
	return map[string]any{"anyOf": []any{s, map[string]any{"type": "null"}}}
}

func (g *schemaGen) ref(t reflect.Type) map[string]any {
	name := path.Base(t.PkgPath()) + "." + t.Name()
	if _, seen := g.defs[name]; !seen {
		g.defs[name] = nil // holds the place while the fields are walked
		properties, required := map[string]any{}, []string{}
		g.fields(t, properties, &required)
		g.defs[name] = map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	}
	return map[string]any{"$ref": "#/$defs/" + name}
}

func (g *schemaGen) fields(t reflect.Type, properties map[string]any, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case key == "-" || !f.IsExported():
			continue
		case f.Anonymous && key == "":
			g.fields(f.Type, properties, required)
			continue
		case key == "":
			key = f.Name
		}
		properties[key] = g.of(f.Type)
		if !strings.Contains(options, "omitempty") {
			*required = append(*required, key)
		}
	}
}
