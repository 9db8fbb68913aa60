package otlp

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// TestRoundTripThroughProtobuf: JSON and protobuf of the same spans decode alike.
func TestRoundTripThroughProtobuf(t *testing.T) {
	for _, line := range testLines(t) {
		fromJSON, err := decoded(parseJSON, line)
		if err != nil {
			t.Fatal(err)
		}
		fromProto, err := decoded(parseProto, asProto(line))
		if err != nil {
			t.Fatal(err)
		}
		if !same(fromJSON, fromProto) {
			t.Errorf("JSON %s\nprotobuf %s", render(fromJSON), render(fromProto))
		}
		checkJSON(t, line)
	}
}

func testLines(t testing.TB) [][]byte {
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

// asProto turns a line of OTLP/JSON into protobuf as the collector writes it; nil
// when the line is no OTLP.
func asProto(line []byte) []byte {
	var u ptrace.JSONUnmarshaler
	t, err := u.UnmarshalTraces(line)
	if err != nil {
		return nil
	}
	var m ptrace.ProtoMarshaler
	b, _ := m.MarshalTraces(t)
	return b
}

// TestReadersAgreeOnRecordings: on lines of real dumps our JSON reader keeps what OpenTelemetry's keeps.
func TestReadersAgreeOnRecordings(t *testing.T) {
	lines := 0
	for _, name := range []string{"smoke/traces.jsonl", "collector_formats/json/traces.json", "real_vllm_cpu/gqa-overflow/traces.jsonl.zst"} {
		f, err := os.Open(repo.Shared(t, "data", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		in := io.Reader(f)
		if filepath.Ext(name) == ".zst" {
			z, err := zstd.NewReader(f)
			if err != nil {
				t.Fatal(err)
			}
			defer z.Close()
			in = z
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			checkJSON(t, bytes.TrimRight(line, "\n"))
			lines++
		}
	}
	if lines < 100 {
		t.Errorf("got %d lines, want 100 or more", lines)
	}
}
