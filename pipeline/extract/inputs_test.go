package extract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// readText extracts one dump given as lines, and wants no drops.
func readText(t *testing.T, lines ...string) []*trace.Run {
	t.Helper()
	doc, runs := readDump(t, []byte(strings.Join(lines, "\n")+"\n"))
	if len(doc.Totals.Records.Dropped) > 0 {
		t.Errorf("got the drops %v (%v), want none", doc.Totals.Records.Dropped, doc.Runs[0].Examples)
	}
	return runs
}

func readDump(t *testing.T, dump []byte) (*result.Extract, []*trace.Run) {
	t.Helper()
	doc, runs, err := dumpRun(t, []string{writeDump(t, "traces", dump)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return doc, runs
}

// withoutPlaces clears what depends on how lines are cut and files are named.
func withoutPlaces(runs []*trace.Run) []*trace.Run {
	for _, run := range runs {
		for i := range run.Requests {
			r := &run.Requests[i]
			r.File, r.CoreLine, r.APILine = "", trace.Opt[int64]{}, trace.Opt[int64]{}
		}
	}
	return runs
}

// TestEveryContainerHoldsTheSameTables: the same requests as JSON lines, as one
// document, as protobuf, and in every compression, whatever the file's name.
func TestEveryContainerHoldsTheSameTables(t *testing.T) {
	lines := goodLines(3)
	text := strings.Join(lines, "\n") + "\n"
	var pretty bytes.Buffer
	one := strings.Join(lines, "")
	one = strings.ReplaceAll(one, `]}{"resourceSpans":[`, `,`)
	if err := json.Indent(&pretty, []byte(one), "", "  "); err != nil {
		t.Fatal(err)
	}
	proto := protoMessages(lines)
	var legacyJSON, legacyProto, frames []byte
	for _, line := range lines {
		legacyJSON = append(legacyJSON, otlpFramed(otlpCompress([]byte(line)))...)
		legacyProto = append(legacyProto, otlpFramed(otlpCompress(otlpProto([]byte(line))))...)
		frames = append(frames, otlpCompress([]byte(line+"\n"))...)
	}
	skippable := append([]byte{0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'}, frames...)
	want := withoutPlaces(readText(t, lines...))
	if got := coreIDs(want); got != "1 2 3" {
		t.Fatalf("got the requests %s, want 1 2 3", got)
	}
	for name, dump := range map[string][]byte{
		"one line": []byte(one), "pretty document": pretty.Bytes(), "no last newline": []byte(strings.TrimSuffix(text, "\n")), "protobuf": proto,
		"zstd": otlpCompress([]byte(text)), "zstd frames": frames, "skippable frame": skippable, "zstd protobuf": otlpCompress(proto),
		"legacy zstd json": legacyJSON, "legacy zstd protobuf": legacyProto, "gzip": gzipped([]byte(text)),
		"gzip members":  append(gzipped([]byte(lines[0]+"\n")), gzipped([]byte(lines[1]+"\n"+lines[2]))...),
		"gzip protobuf": gzipped(proto), "gzip of zstd": gzipped(frames), "gzip of legacy": gzipped(legacyProto),
	} {
		t.Run(name, func(t *testing.T) {
			for _, file := range []string{"traces.jsonl", "traces.pb.zst"} {
				doc, runs, err := dumpRun(t, []string{writeDump(t, file, dump)}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if d := different(want, withoutPlaces(runs)); d != "" || len(doc.Totals.Records.Dropped) > 0 {
					t.Errorf("drops %v, tables (-want +got):\n%s", doc.Totals.Records.Dropped, d)
				}
				piped, runs, err := dumpRun(t, []string{"-"}, func(o *Options) { o.Stdin = bytes.NewReader(dump) })
				if err != nil {
					t.Fatal(err)
				}
				if d := different(want, withoutPlaces(runs)); d != "" || piped.Runs[0].Files[0].Name != "-" {
					t.Errorf("from standard input %q (-want +got):\n%s", piped.Runs[0].Files[0].Name, d)
				}
			}
		})
	}
}

// TestRotatedSetIsReadInTimeOrder: backups of both namings by time, then the
// live file, whatever the order they are given in; a line cut by the rotation
// is one line.
func TestRotatedSetIsReadInTimeOrder(t *testing.T) {
	lines := goodLines(4)
	all := strings.Join(lines, "\n") + "\n"
	at := len(lines[0]) + len(lines[1])/2
	dir := t.TempDir()
	parts := []struct{ name, text string }{
		{"traces.json", all[at+2000:]},
		{"traces-2026-11-20T10-00-00.000-size.json", all[at : at+2000]},
		{"traces-2026-11-20T09-00-00.000.json", all[:at]},
	}
	var files []string
	for _, p := range parts {
		files = append(files, filepath.Join(dir, p.name))
		if err := os.WriteFile(files[len(files)-1], []byte(p.text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	doc, runs, err := dumpRun(t, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := coreIDs(runs); got != "1 2 3 4" || len(doc.Totals.Records.Dropped) > 0 {
		t.Errorf("got the requests %s and the drops %v, want 1 2 3 4 and none", got, doc.Runs[0].Examples)
	}
	if got := doc.Runs[0].Files[0].Name; got != "traces-2026-11-20T09-00-00.000.json" {
		t.Errorf("got %s first, want the oldest backup", got)
	}
}

// TestGroupByTree: a folder in run.yaml stands for every file below it, each
// service an engine run of its own.
func TestGroupByTree(t *testing.T) {
	dir := t.TempDir()
	for service, n := range map[string]int64{"alpha": 1, "beta": 40} {
		text := ""
		for i := n; i < n+3; i++ {
			text += strings.Replace(otlpRequest(i), `"engine"`, fmt.Sprintf("%q", service), 1) + "\n"
		}
		text = strings.ReplaceAll(text, fmt.Sprintf("steps_%d", n+1), "steps_1")
		path := filepath.Join(dir, "dumps", service, "traces.json")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := RunDir{ID: "tree", Dir: dir, Folder: ".", Deployment: &deploy.Deployment{Name: "tree",
		Files: deploy.Files{Traces: []string{"dumps"}}}}
	o := DefaultOptions()
	o.Out = t.TempDir()
	doc, err := Run(context.Background(), []RunDir{run}, o)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range doc.Runs {
		got = append(got, fmt.Sprintf("%s: %d requests, %d steps", r.ID, r.Requests.Engine, r.Steps.Summaries))
	}
	if d := cmp.Diff([]string{"tree.1: 3 requests, 6 steps", "tree.2: 3 requests, 6 steps"}, got); d != "" {
		t.Errorf("runs (-want +got):\n%s", d)
	}
	if got := doc.Runs[0].Files[0].Name; got != "dumps/alpha/traces.json" {
		t.Errorf("got the file %s, want it relative to the folder", got)
	}
}

// TestSeveralInputsAtOnce: files, folders and globs of one call make the runs
// they name, each once.
func TestSeveralInputsAtOnce(t *testing.T) {
	src := filepath.Join("..", "..", "testdata", "traces", "smoke")
	parent := t.TempDir()
	for _, id := range []string{"a", "b", "deep/c"} {
		dir := filepath.Join(parent, id)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"run.yaml", "config.json"} {
			b, err := os.ReadFile(filepath.Join(src, name))
			if err != nil {
				t.Fatal(err)
			}
			b = bytes.Replace(b, []byte(`name: "smoke"`), []byte("name: "+filepath.Base(id)), 1)
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	dump := filepath.Join(parent, "b", "extra.json")
	if err := os.WriteFile(dump, []byte(otlpRequest(1)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{parent}, "a b c"},
		{[]string{filepath.Join(parent, "a"), filepath.Join(parent, "deep")}, "a c"},
		{[]string{filepath.Join(parent, "[ab]"), filepath.Join(parent, "a")}, "a b"},
		{[]string{filepath.Join(parent, "a"), dump}, "a b"},
		{[]string{filepath.Join(parent, "b", "*.json")}, "b"},
	} {
		runs, err := Discover(c.args, nil, nil)
		if err != nil {
			t.Errorf("%v: %v", c.args, err)
			continue
		}
		var ids []string
		for _, r := range runs {
			ids = append(ids, r.ID)
		}
		if got := strings.Join(ids, " "); got != c.want {
			t.Errorf("%v: got the runs %s, want %s", c.args, got, c.want)
		}
	}
	_, err := Discover([]string{filepath.Join(parent, "b"), dump}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "extra.json") {
		t.Errorf("got %v, want an error that names the dump inside a given run folder", err)
	}
}
