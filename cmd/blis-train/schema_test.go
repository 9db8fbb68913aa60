package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/blis-train/blis-train/autoscale"
	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/predictor"
	"github.com/blis-train/blis-train/result"
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
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
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
