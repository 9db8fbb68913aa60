package extract

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// damaged is an entry of corrupted/expected.json.
type damaged struct {
	Good       *content `json:"good_records"`
	BadLine    int64    `json:"bad_line"`
	BadMessage int64    `json:"bad_message"`
	Duplicates *content `json:"duplicates"`
	Should     string   `json:"should"`
}

// accepted are the damaged inputs that are read without any complaint.
var accepted = map[string]bool{
	"blank_lines.json": true, "bomb_many_lines.json.zst": true, "concatenated_frames.json.zst": true, "crlf.json": true,
	"line_split_over_rotation/": true, "no_final_newline.json": true, "not_traces.json": true, "pretty_printed.json": true,
	"single_line_30mb.json.zst": true, "skippable_frame.json.zst": true, "snake_case.json": true, "two_lines_glued.json": true,
	"unquoted_ints.json": true, "utf8_bom.json": true, "wrong_extension.json": true, "wrong_extension.json.zst": true,
	"zero_length_message.pb": true,
	"duplicate_export.json":  true, "duplicate_conflicting.json": true, "nul_tail.json": true, "invalid_utf8.json": true,
	"lone_surrogate.json": true,
	"empty.json":          true, "only_newlines.json": true,
}

// slow are inputs that expand to gigabytes. bomb_legacy.pb.zst does too, and is always tried.
var slow = map[string]bool{"bomb_many_lines.json.zst": true, "bomb_one_line.json.zst": true}

func testCorrupted(t *testing.T, dir string) int {
	b := repo.Read(t, dir, "expected.json")
	var doc struct {
		Files map[string]damaged `json:"files"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range doc.Files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		t.Run("corrupted/"+strings.TrimSuffix(name, "/"), func(t *testing.T) {
			if slow[name] {
				repo.NeedEval(t)
				t.Parallel()
			}
			testDamaged(t, filepath.Join(dir, name), name, doc.Files[name])
		})
	}
	return len(names)
}

func testDamaged(t *testing.T, path, name string, want damaged) {
	files := []string{path}
	if strings.HasSuffix(name, "/") {
		files = dumpFiles(t, path)
	}
	doc, _, err := dumpRun(t, files, nil)
	if want.Good != nil && len(want.Good.Spans) == 0 {
		wantNoSpans(t, err, name)
		return
	}
	if err != nil {
		t.Fatalf("got %v, want the good records (%s)", err, want.Should)
	}
	spans, events := spanCounts(doc)
	if want.Good != nil {
		all := content{Spans: map[string]int64{}, Events: map[string]int64{}}
		merge(all.Spans, want.Good.Spans)
		merge(all.Events, want.Good.Events)
		if want.Duplicates != nil {
			merge(all.Spans, want.Duplicates.Spans)
			merge(all.Events, want.Duplicates.Events)
			n := int64(0)
			for _, c := range want.Duplicates.Spans {
				n += c
			}
			diff(t, "duplicate spans", n, doc.Totals.Losses.DuplicateSpans)
		}
		if name == "duplicate_conflicting.json" {
			if doc.Runs[0].Records.Dropped[string(codeConflict)] == 0 {
				t.Error("the conflict is not reported")
			}
		} else {
			diff(t, "spans", all.Spans, spans)
			diff(t, "events", all.Events, events)
		}
	}
	lost := doc.Totals.Records.Dropped[string(source.CodeUnreadable)] + doc.Totals.Records.Dropped[string(source.CodeCut)] + doc.Totals.Records.Dropped[string(source.CodeOverLimit)]
	switch {
	case accepted[name] && lost > 0:
		t.Errorf("got complaints %v, want none (%s)", doc.Runs[0].Examples, want.Should)
	case !accepted[name] && lost == 0 && name != "flipped_byte.pb":
		t.Errorf("got no complaint, want one (%s)", want.Should)
	}
	if at := max(want.BadLine, want.BadMessage); at > 0 && lost > 0 {
		for _, e := range doc.Runs[0].Examples {
			if source.ByError[e.Reason] {
				wantPlace(t, e.Place, name, at)
				break
			}
		}
	}
}

// wantPlace checks that the first example names the file and the line or message.
func wantPlace(t *testing.T, place, name string, line int64) {
	t.Helper()
	e := trace.SyntaxError{File: filepath.Base(name), Line: line}
	prefix := strings.TrimSuffix(e.Error(), ": ")
	if place != prefix && !strings.HasPrefix(place, prefix+":") {
		t.Errorf("got the place %s, want %s", place, prefix)
	}
}

func wantNoSpans(t *testing.T, err error, name string) {
	t.Helper()
	if trace.CodeOf(err) != codeNoInput || !strings.Contains(err.Error(), filepath.Base(name)) {
		t.Errorf("got %v, want %s naming %s", err, codeNoInput, name)
	}
}

// testEdge compares the attributes of the edge.values scope inside the reader;
// its spans are skipped from the tables.
func testEdge(t *testing.T, files []string, want content) {
	if want.EdgeInts == nil {
		return
	}
	got := edgeValues(t, files)
	for k, v := range want.EdgeInts {
		if got.ints[k] != v {
			t.Errorf("edge %s: got %q, want %q", k, got.ints[k], v)
		}
	}
	for k, v := range want.EdgeStrings {
		if g, ok := got.strs[k]; !ok || g != v {
			t.Errorf("edge %s: got %q, want %q", k, g, v)
		}
	}
	for k, v := range want.EdgeDoubles {
		if f, ok := v.(float64); ok && got.floats[k] != f {
			t.Errorf("edge %s: got %v, want %v", k, got.floats[k], f)
		}
	}
}

// edge is what the low-level readers decode of one span's attributes.
type edge struct {
	ints, strs map[string]string
	floats     map[string]float64
}

// edgeValues walks the dump with the readers' own primitives and collects the
// attributes of the edge.values scope.
func edgeValues(t *testing.T, files []string) edge {
	t.Helper()
	out := edge{map[string]string{}, map[string]string{}, map[string]float64{}}
	err := source.Stream(context.Background(), inReadingOrder(asInputs(files)),
		source.Options{Workers: 1, Limits: source.Limits{MaxLine: 1 << 27, MaxExpansion: 20000}},
		func() source.Decoder[*otlp.Batch] { return edgeParser{&out} }, func(*source.Parsed[*otlp.Batch]) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func asInputs(files []string) []source.Input {
	var in []source.Input
	for _, f := range files {
		in = append(in, source.Input{Path: f, Name: filepath.Base(f)})
	}
	return in
}

// readAll reads every run of an output folder, sorted by id.
func readAll(out string) ([]*trace.Run, error) {
	ids, err := table.RunIDs(out)
	if err != nil {
		return nil, err
	}
	runs := make([]*trace.Run, len(ids))
	for i, id := range ids {
		if runs[i], err = table.Read(table.RunDir(out, id)); err != nil {
			return nil, err
		}
	}
	return runs, nil
}
