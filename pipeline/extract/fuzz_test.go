package extract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// decode runs one parser over one message and renders what it kept.
func decode(run func([]byte, *builder, *message) *parseError, data []byte) (string, *parseError) {
	var out message
	err := run(bytes.Clone(data), newBuilder(), &out)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, s := range out.spans {
		c := *s
		c.hash, c.resource = 0, 0
		for i := range c.faults {
			c.faults[i].msg = ""
		}
		fmt.Fprintf(&b, "%+v\n", c)
	}
	return b.String(), nil
}

// seeds adds real messages, and cut ones, to a fuzz target.
func seeds(f *testing.F, form form) {
	for _, name := range []string{"smoke.json", "edge.json", "stock.json"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		for _, line := range bytes.Split(bytes.TrimSpace(data), newline) {
			if form == formProto {
				line = toProto(line)
			}
			f.Add(line)
			f.Add(line[:len(line)/2])
		}
	}
}

// FuzzJSON: where both readers take a line they agree; the fast one takes
// every line of valid JSON that the reference takes, and nothing it refuses.
func FuzzJSON(f *testing.F) {
	seeds(f, formLines)
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.IndexByte(data, '\n') >= 0 {
			return
		}
		fast, errFast := decode(fastParser{}.json, data)
		ref, errRef := decode(pdataParser{}.json, data)
		switch {
		case errFast != nil:
			if errFast.at < 0 || errFast.at > len(data) {
				t.Errorf("error outside the text: byte %d of %d", errFast.at, len(data))
			}
		case errRef == nil && oneObject(data) && utf8.Valid(data) && fast != ref:
			t.Errorf("%q:\nfast %s\npdata %s", data, fast, ref)
		}
		if errFast == nil && !manyValid(data) {
			t.Errorf("%q: the fast reader took what is not JSON", data)
		}
	})
}

// oneObject reports that data is one JSON object without repeated or empty
// keys, which the two readers resolve differently.
func oneObject(data []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(data))
	return json.Valid(data) && uniqueKeys(dec) == nil
}

func uniqueKeys(dec *json.Decoder) error {
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	d, ok := tok.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for dec.More() {
		if d == '{' {
			k, err := dec.Token()
			if err != nil {
				return err
			}
			name := strings.ToLower(strings.ReplaceAll(k.(string), "_", ""))
			if seen[name] || name == "" { // the reference takes an empty key for the end
				return fmt.Errorf("repeated or empty %q", k)
			}
			seen[name] = true
		}
		if err := uniqueKeys(dec); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

// manyValid reports that data is a sequence of JSON values.
func manyValid(data []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(data))
	for dec.More() {
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return false
		}
	}
	return true
}

// FuzzProto: both readers agree on a message, or both refuse it; only the fast
// one refuses deep nesting and proto2 groups, which no exporter writes.
func FuzzProto(f *testing.F) {
	seeds(f, formProto)
	f.Fuzz(func(t *testing.T, data []byte) {
		fast, errFast := decode(fastParser{}.proto, data)
		ref, errRef := decode(pdataParser{}.proto, data)
		if errFast == nil && errRef == nil && fast != ref {
			t.Errorf("%x:\nfast %s\npdata %s", data, fast, ref)
		}
		if (errFast == nil) != (errRef == nil) && !(errFast != nil && (strings.Contains(errFast.msg, "nested") || strings.Contains(errFast.msg, "want 0, 1, 2 or 5"))) {
			t.Errorf("%x:\nfast %v\npdata %v", data, errFast, errRef)
		}
	})
}

// FuzzKV: no KV line panics the reader, and each line is kept or counted.
func FuzzKV(f *testing.F) {
	data, err := os.ReadFile(filepath.Join("testdata", "kv_events.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	for _, line := range bytes.Split(bytes.TrimSpace(data), newline) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var out message
		if err := (kvParser{}).json(data, newBuilder(), &out); err == nil && !json.Valid(data) && len(bytes.TrimSpace(data)) > 0 {
			t.Errorf("%q: taken, but not JSON", data)
		}
	})
}
