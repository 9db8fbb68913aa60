package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/autoscale"
	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/predictor"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var updateSchemas = flag.Bool("update-schemas", false, "rewrite docs/schema")

var documents = map[string]any{
	"extract":    result.Extract{},
	"fit":        result.Fit{},
	"validation": result.Validation{},
	"inspect":    result.Inspect{},
	"queue":      autoscale.Queue{},

	"experiment":       cluster.Document{},
	"optimise":         cluster.OptimiseDoc{},
	"predictor":        predictor.Document{},
	"predictor_rows":   predictor.RowsDocument{},
	"predictor_scores": predictor.Scores{},
}

// TestSchemasAreCurrent: docs/schema says what the structs say.
func TestSchemasAreCurrent(t *testing.T) {
	for name, doc := range documents {
		want, err := result.Marshal(schemaOf(name+".json of blis-train", doc))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("..", "..", "docs", "schema", name+".schema.json")
		if *updateSchemas {
			repo.Write(t, want, path)
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			continue
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is stale: go test ./cmd/blis-train -run TestSchemas -update-schemas", path)
		}
	}
}

// TestSchemasAcceptAndRefuse: a written document passes; a foreign key, a wrong
// type and a missing key do not.
func TestSchemasAcceptAndRefuse(t *testing.T) {
	for name, doc := range documents {
		schema := compile(t, name)
		text, err := result.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		var good map[string]any
		if err := json.Unmarshal(text, &good); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(good); err != nil {
			t.Errorf("%s: an empty document is refused: %v", name, err)
		}
		good["surprise"] = 1.0
		if schema.Validate(good) == nil {
			t.Errorf("%s: an unknown key passes", name)
		}
		delete(good, "surprise")
		good["command"] = 3.0
		if schema.Validate(good) == nil {
			t.Errorf("%s: a number passes for a string", name)
		}
		delete(good, "command")
		if schema.Validate(good) == nil {
			t.Errorf("%s: a missing key passes", name)
		}
	}
}

func compile(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join("..", "..", "docs", "schema", name+".schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

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

// TestDocumentsFollowTheirSchemas: every file that a whole run and an inspection
// write is validated against docs/schema.
func TestDocumentsFollowTheirSchemas(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	traces := filepath.Join("..", "..", "testdata", "traces", "smoke")
	for _, args := range [][]string{
		{"run", traces, "-o", out, "--bootstraps", "50", "--quiet"},
		{"inspect", out, "-o", out, "--quiet"},
	} {
		var stderr strings.Builder
		if code := run(append([]string{"blis-train"}, args...), strings.NewReader(""), io.Discard, &stderr); code != exitOK && code != exitGate {
			t.Fatalf("%v: exit %d: %s", args, code, stderr.String())
		}
	}
	for _, name := range []string{"extract", "fit", "validation", "inspect"} {
		schema, err := jsonschema.NewCompiler().Compile(filepath.Join("..", "..", "docs", "schema", name+".schema.json"))
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(out, name+".json"))
		if err != nil {
			t.Error(err)
			continue
		}
		var doc any
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(doc); err != nil {
			t.Errorf("%s.json: %v", name, err)
		}
	}
}
