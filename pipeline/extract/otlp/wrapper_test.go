package otlp

import (
	"fmt"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// TestDocumentsInWrappers: an OTLP document alone, in arrays and in an answer of Tempo, with the place at which it begins.
func TestDocumentsInWrappers(t *testing.T) {
	const doc = `{"resourceSpans":[1]}`
	for text, want := range map[string][]string{
		doc:                          {"0 " + doc},
		`{"other":1}`:                {`0 {"other":1}`},
		`{}`:                         {`0 {}`},
		`[` + doc + `, ` + doc + `]`: {"1 " + doc, "24 " + doc},
		`[[` + doc + `]]`:            {"2 " + doc},
		`[]`:                         nil,
		`{"trace": ` + doc + `}`:     {"10 " + doc},
		`{"batches":[1]}`:            {fmt.Sprintf("%d %s", 11-len(spansStart), doc)},
		`{"trace":{"batches":[1]}}`:  {fmt.Sprintf("%d %s", 20-len(spansStart), doc)},
		`{"batch":[1]}`:              {`0 {"batch":[1]}`},
	} {
		var got []string
		err := eachDocument([]byte(text), func(document []byte, at int) *source.Error {
			got = append(got, fmt.Sprintf("%d %s", at, document))
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
	failed := &source.Error{}
	for _, text := range []string{doc, "[" + doc + "," + doc + "]", `{"trace":` + doc + `}`, `{"batches":[]}`} {
		n := 0
		if err := eachDocument([]byte(text), func([]byte, int) *source.Error { n++; return failed }); err != failed || n != 1 {
			t.Errorf("%s: got %v after %d documents", text, err, n)
		}
	}
	for _, text := range []string{"[1", "[" + doc + "] x"} {
		if err := eachDocument([]byte(text), func([]byte, int) *source.Error { return nil }); err == nil {
			t.Errorf("%s: got no error", text)
		}
	}
}
