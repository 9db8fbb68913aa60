package otlp

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/otlp/otlptest"
	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// TestRoundTripThroughProtobuf: JSON and protobuf of the same spans decode alike.
func TestRoundTripThroughProtobuf(t *testing.T) {
	for _, line := range testLines(t) {
		fromJSON, err := decoded(fastParser{}.Json, line)
		if err != nil {
			t.Fatal(err)
		}
		fromProto, err := decoded(fastParser{}.proto, otlptest.Proto(line))
		if err != nil {
			t.Fatal(err)
		}
		if !same(fromJSON, fromProto) {
			t.Errorf("JSON %s\nprotobuf %s", render(fromJSON), render(fromProto))
		}
		checkJSON(t, line)
	}
}

func testLines(t *testing.T) [][]byte {
	t.Helper()
	var out [][]byte
	for _, name := range []string{"smoke.json", "edge.json", "stock.json"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, bytes.Split(bytes.TrimSpace(b), source.Newline)...)
	}
	return out
}
