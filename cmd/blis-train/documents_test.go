package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

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
