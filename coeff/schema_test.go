package coeff_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

const schemaFile = "../docs/schema/coefficients.schema.json"

// asJSON turns a YAML text into the values a JSON schema judges.
func asJSON(t *testing.T, text string) any {
	t.Helper()
	var values any
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Every file we write is valid against its schema, and the schema refuses what Load refuses.
func TestFilesFollowTheirSchema(t *testing.T) {
	s := schema(t)
	text := save(t, sample())
	if err := s.Validate(asJSON(t, text)); err != nil {
		t.Error(err)
	}
	for name, edit := range map[string][2]string{
		"unknown key":   {"command:", "surprise: 1\ncommand:"},
		"spec version":  {`spec_version: "1.1"`, `spec_version: "2.0"`},
		"wait as delay": {"replay: false", "replay: true"},
		"unit":          {"unit: us/s", "unit: ms"},
		"text":          {"value: 250000", "value: x"},
	} {
		bad := strings.Replace(text, edit[0], edit[1], 1)
		if bad == text {
			t.Fatalf("%s: nothing was changed", name)
		}
		if err := s.Validate(asJSON(t, bad)); err == nil {
			t.Errorf("%s: the schema accepts it", name)
		}
	}
}
