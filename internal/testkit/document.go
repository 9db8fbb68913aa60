package testkit

// This file compares documents with those in testdata.

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var updateDocuments = flag.Bool("update-documents", false, "rewrite the documents in testdata that tests compare with")

// Document compares every value of a document with testdata/NAME.json: names, flags and whole numbers exactly, others to
// one in a million, because the last digits depend on the architecture, and sentences by the numbers in them. The
// keys in without are not compared, wherever they are. With -update-documents it rewrites the
// file instead.
func Document(t *testing.T, name string, doc any, without ...string) {
	t.Helper()
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	got := withoutKeys(decoded(t, text), without)
	file := filepath.Join("testdata", name+".json")
	if *updateDocuments {
		text, err := json.MarshalIndent(got, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	differ := differences("", got, decoded(t, text))
	for _, d := range differ[:min(len(differ), 20)] {
		t.Error(d)
	}
	if len(differ) > 0 {
		t.Logf("%d values differ from %s; if they should, rewrite it with -update-documents", len(differ), file)
	}
}

// decoded returns a JSON text as values, with its numbers as they are written.
func decoded(t *testing.T, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// withoutKeys returns the value without these keys of its objects.
func withoutKeys(v any, keys []string) any {
	switch x := v.(type) {
	case map[string]any:
		for k := range x {
			if slices.Contains(keys, k) {
				delete(x, k)
			} else {
				x[k] = withoutKeys(x[k], keys)
			}
		}
	case []any:
		for i := range x {
			x[i] = withoutKeys(x[i], keys)
		}
	}
	return v
}

// differences returns a line for each value in which two JSON values differ.
func differences(path string, got, want any) []string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		keys := map[string]bool{}
		for k := range g {
			keys[k] = true
		}
		for k := range w {
			keys[k] = true
		}
		var out []string
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			at := strings.TrimPrefix(path+"."+k, ".")
			a, inGot := g[k]
			b, inWant := w[k]
			if inGot == inWant {
				out = append(out, differences(at, a, b)...)
				continue
			}
			out = append(out, fmt.Sprintf("%s: got %s, want %s", at, inWords(a, inGot), inWords(b, inWant)))
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok {
			break
		}
		if len(g) != len(w) {
			return []string{fmt.Sprintf("%s: got %d elements, want %d", path, len(g), len(w))}
		}
		var out []string
		for i := range w {
			out = append(out, differences(fmt.Sprintf("%s[%d]", path, i), g[i], w[i])...)
		}
		return out
	case json.Number:
		if g, ok := got.(json.Number); ok && (g == w || areNear(g, w)) {
			return nil
		}
	case string:
		if g, ok := got.(string); ok && (g == w || haveSameNumbers(g, w)) {
			return nil
		}
	default:
		if got == want {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s: got %s, want %s", path, inWords(got, true), inWords(want, true))}
}

// areNear reports whether two numbers that are not whole differ by less than one in a million.
func areNear(a, b json.Number) bool {
	_, isWholeA := a.Int64()
	_, isWholeB := b.Int64()
	x, errA := a.Float64()
	y, errB := b.Float64()
	isWhole := isWholeA == nil && isWholeB == nil
	return errA == nil && errB == nil && !isWhole && math.Abs(x-y) <= 1e-6*math.Abs(y)+1e-12
}

// number matches a number in a sentence.
var number = regexp.MustCompile(`[0-9][0-9,]*\.?[0-9]*(e[+-]?[0-9]+)?`)

// haveSameNumbers reports whether two texts are sentences with the same numbers in the same order.
func haveSameNumbers(a, b string) bool {
	return strings.Contains(a, " ") && strings.Contains(b, " ") && slices.Equal(number.FindAllString(a, -1), number.FindAllString(b, -1))
}

// inWords returns a JSON value as short text.
func inWords(v any, exists bool) string {
	if !exists {
		return "no such key"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%.200s", text)
}
