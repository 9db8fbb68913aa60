package extract

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// smallMaxLine is the limit of these tests, so that lines above it are small.
const smallMaxLine = 64 << 10

// wildLines is a dump with something of everything that can stand in one: good spans,
// those that repeat and differ, other signals, broken lines, lines that are too long for
// one read or for us, blank ones, CRLF, NUL bytes.
func wildLines(t *testing.T, rng *rand.Rand) []string {
	t.Helper()
	smoke, err := os.ReadFile(filepath.Join("..", "..", "testdata", "traces", "smoke", "traces.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(smoke), "\n"), "\n")
	dump, err := os.ReadFile(filepath.Join(rejectedDump(t).Dir, "traces.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines = append(lines, strings.Split(string(dump), "\n")...)
	lines = append(lines, goodLines(40)...)
	for _, n := range []int{smallMaxLine, smallMaxLine + 1, 3 << 20} {
		lines = append(lines, `{"resourceSpans":[],"x":"`+strings.Repeat("y", n)+`"}`)
	}
	lines = append(lines, "", "\r", strings.Repeat("\x00", 300), "\x00", `{"resourceMetrics":[]}{"resourceLogs":[]}`,
		strings.Replace(otlpRequest(77), "cmpl-77", "cmpl-\xff77", 1), goodLines(3)[1]+"\r", `{"resourceSpans":`)
	rng.Shuffle(len(lines), func(a, b int) { lines[a], lines[b] = lines[b], lines[a] })
	return lines
}

// inParts extracts a run folder whose inputs are cut into parts of so many bytes, all pieces
// done in random order, and returns its files and its entry.
func inParts(t *testing.T, run RunDir, every int64, rng *rand.Rand) (map[string][]byte, *Entry, int) {
	t.Helper()
	p, err := run.Plan(every)
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.MaxBadFrac, o.MaxLine, o.Workers = 1, smallMaxLine, 1+rng.IntN(3)
	folders := make([]string, len(p.Pieces))
	for _, i := range rng.Perm(len(folders)) {
		o.Out = t.TempDir()
		folders[i] = o.Out
		if err := p.Pieces[i].Do(context.Background(), o); err != nil {
			t.Fatal(err)
		}
	}
	if run.Stored, err = Gather(p.Pieces, folders, func(folder string) string { return folder }); err != nil {
		t.Fatal(err)
	}
	o.Out = t.TempDir()
	e, err := One(context.Background(), &run, o)
	if err != nil {
		t.Fatal(err)
	}
	e.Stamps = nil
	return outputs(t, o.Out), e, len(p.Pieces)
}

// TestPartsGiveTheSameBytes: a run folder read in parts of any length gives the entry and the
// tables of one that is read whole, byte for byte: lines, messages, messages compressed one
// by one, KV events, and the files of a rotated set that end inside lines.
func TestPartsGiveTheSameBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(24, 6))
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := wildLines(t, rng)
	var proto, framed []byte
	for i, line := range append(goodLines(60), goodLines(5)...) {
		msg := otlpProto([]byte(line))
		if i%9 == 4 {
			msg = msg[:len(msg)-3]
		}
		proto = append(proto, otlpFramed(msg)...)
		framed = append(framed, otlpFramed(enc.EncodeAll(msg, nil))...)
	}
	text := strings.Join(lines, "\n")
	for name, dump := range map[string]map[string]string{
		"lines":               {"traces.jsonl": text + "\n"},
		"no newline at end":   {"traces.jsonl": text},
		"messages":            {"traces.pb": string(proto)},
		"messages, cut short": {"traces.pb": string(cut(proto, 7))},
		"frames":              {"traces.zst": string(framed)},
		"rotated, cut in a line": {"traces-2025-01-01T00-00-00.000.jsonl": text[:len(text)/2],
			"traces-2025-01-01T00-00-01.000.jsonl": text[len(text)/2:] + "\n",
			"traces.jsonl":                         strings.Join(goodLines(90)[40:], "\n")},
	} {
		t.Run(name, func(t *testing.T) {
			run := rejectedDump(t)
			if err := os.Remove(run.Files[0]); err != nil {
				t.Fatal(err)
			}
			run.Files = nil
			size := 0
			for name, text := range dump {
				put(t, filepath.Join(run.Dir, name), text)
				run.Files, size = append(run.Files, filepath.Join(run.Dir, name)), size+len(text)
			}
			slices.Sort(run.Files)
			want, entry, n := inParts(t, run, 0, rng)
			if n != 0 {
				t.Fatalf("got %d pieces, want none", n)
			}
			cuts := 0
			for _, every := range []int64{int64(size)/2 + 1, int64(size) / 7, int64(size)/40 + rng.Int64N(999), int64(size) / 200} {
				files, got, n := inParts(t, run, max(every, 50), rng)
				compareOutputs(t, want, files, "")
				if d := different(entry, got); d != "" {
					t.Errorf("parts of %d bytes: the entry differs:\n%s", every, d)
				}
				cuts += n
			}
			if cuts < 10 {
				t.Errorf("got %d pieces in all, want more", cuts)
			}
			fmt.Printf("%s: %d pieces, %v dropped\n", name, cuts, entry.Results[0].Records.Dropped)
		})
	}
}
