package extract

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"
)

// toProto turns a line of OTLP/JSON into protobuf as the collector writes it.
func toProto(line []byte) []byte {
	var u ptrace.JSONUnmarshaler
	t, err := u.UnmarshalTraces(line)
	if err != nil {
		return nil
	}
	var m ptrace.ProtoMarshaler
	b, _ := m.MarshalTraces(t)
	return b
}

// TestRoundTripThroughProtobuf: JSON and protobuf of the same spans decode alike.
func TestRoundTripThroughProtobuf(t *testing.T) {
	for _, line := range testLines(t) {
		fromJSON, err := decoded(fastParser{}.json, line)
		if err != nil {
			t.Fatal(err)
		}
		fromProto, err := decoded(fastParser{}.proto, toProto(line))
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
		out = append(out, bytes.Split(bytes.TrimSpace(b), newline)...)
	}
	return out
}
