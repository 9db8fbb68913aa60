package extract

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

func writeDump(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// coreIDs are the ids of the core spans that made it into the tables.
func coreIDs(runs []*trace.Run) string {
	var ids []string
	for _, run := range runs {
		for _, r := range run.Requests {
			ids = append(ids, strings.TrimSuffix(strings.TrimPrefix(r.CoreID.Or("-"), "cmpl-"), "-0-aaaaaaaa"))
		}
	}
	return strings.Join(ids, " ")
}

// TestFlippedByteLosesItsFrameOnly: a stream of several zstd frames loses the
// frame whose byte was flipped, wherever in the frame, and keeps the requests
// before and after; so does a length-prefixed one of either framing.
func TestFlippedByteLosesItsFrameOnly(t *testing.T) {
	forms := map[string]func(n int64) []byte{
		"native json": func(n int64) []byte { return otlpCompress([]byte(otlpRequest(n) + "\n")) },
		"native proto": func(n int64) []byte {
			return otlpCompress(otlpFramed(otlpProto([]byte(otlpRequest(n)))))
		},
		"legacy json": func(n int64) []byte { return otlpFramed(otlpCompress([]byte(otlpRequest(n)))) },
		"legacy proto": func(n int64) []byte {
			return otlpFramed(otlpCompress(otlpProto([]byte(otlpRequest(n)))))
		},
	}
	for name, form := range forms {
		header := 0
		if strings.HasPrefix(name, "legacy") {
			header = 4 // a flip in the length loses the framing
		}
		for _, damaged := range []int64{1, 3, 5} {
			frame := form(damaged)
			for at := header; at < len(frame); at += 1 + len(frame)/5 {
				t.Run(fmt.Sprintf("%s/frame %d byte %d of %d", name, damaged, at, len(frame)), func(t *testing.T) {
					var dump []byte
					var want []string
					for n := int64(1); n <= 5; n++ {
						f := form(n)
						if n == damaged {
							f[at] ^= 0x10
						} else {
							want = append(want, fmt.Sprint(n))
						}
						dump = append(dump, f...)
					}
					doc, runs, err := dumpRun(t, []string{writeDump(t, "traces", dump)}, nil)
					if damaged == 1 && at < header+len(source.ZstdMagic) { // the file cannot be told
						wantNoSpans(t, err, "traces")
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					got := coreIDs(runs)
					if got == "1 2 3 4 5" { // a bit nobody looks at
						return
					}
					if got != strings.Join(want, " ") {
						t.Errorf("got the requests %s, want %v; drops %v", got, want, doc.Runs[0].Examples)
					}
					if doc.Totals.Records.Dropped[string(source.CodeUnreadable)] == 0 || !strings.Contains(doc.Runs[0].Examples[0].What, "byte ") {
						t.Errorf("got the drops %v, want one with the place of the damage", doc.Runs[0].Examples)
					}
				})
			}
		}
	}
}

// TestGapKeepsItsShareOfTheLoss: the bytes of a broken frame count towards the
// bad fraction.
func TestGapKeepsItsShareOfTheLoss(t *testing.T) {
	var dump []byte
	for n := int64(1); n <= 4; n++ {
		f := otlpCompress([]byte(otlpRequest(n) + "\n"))
		if n == 2 {
			f[len(f)/2] ^= 0xff
		}
		dump = append(dump, f...)
	}
	doc, _, err := dumpRun(t, []string{writeDump(t, "traces", dump)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f := doc.Runs[0].Records.BadFrac; f < 0.03 || f > 0.6 {
		t.Errorf("got a bad fraction of %v after one of four frames was lost", f)
	}
	second := bytes.Index(dump[1:], source.ZstdMagic) + 1
	third := second + 1 + bytes.Index(dump[second+1:], source.ZstdMagic)
	if want := fmt.Sprintf("zstd frame at byte %d is broken, read on at byte %d", second,
		third); !strings.Contains(doc.Runs[0].Examples[0].What, want) {
		t.Errorf("got %q, want %q", doc.Runs[0].Examples[0].What, want)
	}
}
