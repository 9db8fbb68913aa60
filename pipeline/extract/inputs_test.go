package extract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/otlp/otlptest"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
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
			r.File = ""
			r.CoreLine = trace.Opt[int64]{}
			r.APILine = trace.Opt[int64]{}
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
		legacyJSON = append(legacyJSON, otlptest.Framed(otlptest.Compress([]byte(line)))...)
		legacyProto = append(legacyProto, otlptest.Framed(otlptest.Compress(otlptest.Proto([]byte(line))))...)
		frames = append(frames, otlptest.Compress([]byte(line+"\n"))...)
	}
	skippable := append([]byte{0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'}, frames...)
	want := withoutPlaces(readText(t, lines...))
	if got := coreIDs(want); got != "1 2 3" {
		t.Fatalf("got the requests %s, want 1 2 3", got)
	}
	for name, dump := range map[string][]byte{
		"one line": []byte(one), "pretty document": pretty.Bytes(), "no last newline": []byte(strings.TrimSuffix(text, "\n")), "protobuf": proto,
		"zstd": otlptest.Compress([]byte(text)), "zstd frames": frames, "skippable frame": skippable, "zstd protobuf": otlptest.Compress(proto),
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
		repo.Write(t, p.text, files[len(files)-1])
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
			text += strings.Replace(otlptest.Request(i), `"engine"`, fmt.Sprintf("%q", service), 1) + "\n"
		}
		text = strings.ReplaceAll(text, fmt.Sprintf("steps_%d", n+1), "steps_1")
		path := filepath.Join(dir, "dumps", service, "traces.json")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		repo.Write(t, text, path)
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
			b := repo.Read(t, src, name)
			b = bytes.Replace(b, []byte(`name: "smoke"`), []byte("name: "+filepath.Base(id)), 1)
			repo.Write(t, b, dir, name)
		}
	}
	dump := filepath.Join(parent, "b", "extra.json")
	repo.Write(t, otlptest.Request(1), dump)
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
		runs, err := Discover(c.args)
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
	_, err := Discover([]string{filepath.Join(parent, "b"), dump})
	if err == nil || !strings.Contains(err.Error(), "extra.json") {
		t.Errorf("got %v, want an error that names the dump inside a given run folder", err)
	}
}

// smallMaxLine is the limit of these tests, so that lines above it are small.
const smallMaxLine = 64 << 10

// wildLines is a dump with something of everything that can stand in one: good spans,
// those that repeat and differ, other signals, broken lines, lines that are too long for
// one read or for us, blank ones, CRLF, NUL bytes.
func wildLines(t *testing.T, rng *rand.Rand) []string {
	t.Helper()
	smoke := repo.Read(t, "..", "..", "testdata", "traces", "smoke", "traces.jsonl")
	lines := strings.Split(strings.TrimSuffix(string(smoke), "\n"), "\n")
	dump := repo.Read(t, rejectedDump(t).Dir, "traces.jsonl")
	lines = append(lines, strings.Split(string(dump), "\n")...)
	lines = append(lines, goodLines(40)...)
	for _, n := range []int{smallMaxLine, smallMaxLine + 1, 3 << 20} {
		lines = append(lines, `{"resourceSpans":[],"x":"`+strings.Repeat("y", n)+`"}`)
	}
	lines = append(lines, "", "\r", strings.Repeat("\x00", 300), "\x00", `{"resourceMetrics":[]}{"resourceLogs":[]}`,
		strings.Replace(otlptest.Request(77), "cmpl-77", "cmpl-\xff77", 1), goodLines(3)[1]+"\r", `{"resourceSpans":`)
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
func TestPartsGiveTheSameBytes(t *testing.T) { partsGiveTheSameBytes(t, false) }

// TestEvalPartsGiveTheSameBytes: the same of longer parts too.
func TestEvalPartsGiveTheSameBytes(t *testing.T) {
	repo.NeedEval(t)
	partsGiveTheSameBytes(t, true)
}

func partsGiveTheSameBytes(t *testing.T, withLong bool) {
	t.Helper()
	rng := rand.New(rand.NewPCG(24, 6))
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := wildLines(t, rng)
	var proto, framed []byte
	for i, line := range append(goodLines(60), goodLines(5)...) {
		msg := otlptest.Proto([]byte(line))
		if i%9 == 4 {
			msg = msg[:len(msg)-3]
		}
		proto = append(proto, otlptest.Framed(msg)...)
		framed = append(framed, otlptest.Framed(enc.EncodeAll(msg, nil))...)
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
				repo.Write(t, text, run.Dir, name)
				run.Files = append(run.Files, filepath.Join(run.Dir, name))
				size += len(text)
			}
			slices.Sort(run.Files)
			want, entry, n := inParts(t, run, 0, rng)
			if n != 0 {
				t.Fatalf("got %d pieces, want none", n)
			}
			cuts := 0
			lengths := []int64{int64(size)/40 + rng.Int64N(999), int64(size) / 200}
			if withLong {
				lengths = append(lengths, int64(size)/2+1, int64(size)/7)
			}
			for _, every := range lengths {
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

// outputs reads every file below out except the cache, by relative name.
func outputs(t testing.TB, out string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.Walk(out, func(p string, st os.FileInfo, err error) error {
		if err != nil || st.IsDir() || filepath.Base(p) == cacheName {
			return err
		}
		rel, _ := filepath.Rel(out, p)
		files[rel], err = os.ReadFile(p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func extractTo(t testing.TB, parent string, change func(*Options)) string {
	t.Helper()
	runs, err := Discover([]string{parent})
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out = filepath.Join(t.TempDir(), "out")
	o.MaxBadFrac = 1
	if change != nil {
		change(&o)
	}
	if _, err := Run(context.Background(), runs, o); err != nil {
		t.Fatal(err)
	}
	return o.Out
}

func compareOutputs(t testing.TB, want, got map[string][]byte, skip string) {
	t.Helper()
	var names []string
	for name := range want {
		names = append(names, name)
	}
	sort.Strings(names)
	if len(got) != len(want) {
		t.Errorf("got %d files, want %d", len(got), len(want))
	}
	for _, name := range names {
		if name != skip && !bytes.Equal(want[name], got[name]) {
			t.Errorf("%s differs (%d and %d bytes)", name, len(want[name]), len(got[name]))
		}
	}
}

// TestSameBytesForAnyWorkers: the same inputs give the same bytes whatever the
// number of workers, and whether sorted tables spill or not.
func TestSameBytesForAnyWorkers(t *testing.T) {
	for _, set := range []string{"smoke60", "real_vllm_cpu/mha-mixed"} {
		dir := repo.Shared(t, "data", set)
		want := outputs(t, extractTo(t, dir, func(o *Options) { o.Workers = 1 }))
		compareOutputs(t, want, outputs(t, extractTo(t, dir, func(o *Options) { o.Workers = 8 })), "")
		compareOutputs(t, want, outputs(t, extractTo(t, dir, func(o *Options) { o.Workers, o.Memory = 2, 4096 })), "")
	}
}

// TestUnchangedInputIsNotParsedAgain, and a changed one is.
func TestUnchangedInputIsNotParsedAgain(t *testing.T) {
	src := repo.Shared(t, "data", "smoke")
	dir := t.TempDir()
	for _, name := range []string{"run.yaml", "config.json", "traces.jsonl", "kv_events.jsonl"} {
		b := repo.Read(t, src, name)
		repo.Write(t, b, dir, name)
	}
	runs, err := Discover([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out = filepath.Join(t.TempDir(), "out")
	o.MaxBadFrac = 1
	parsed := 0
	o.Progress = func(stage string, _, _ int64, _ string) { parsed++ }
	run := func(want bool) map[string][]byte {
		t.Helper()
		parsed = 0
		if _, err := Run(context.Background(), runs, o); err != nil {
			t.Fatal(err)
		}
		if (parsed > 0) != want {
			t.Errorf("parsed: got %v, want %v", parsed > 0, want)
		}
		return outputs(t, o.Out)
	}
	first := run(true)
	compareOutputs(t, first, run(false), "")
	o.Force = true
	compareOutputs(t, first, run(true), "")
	o.Force = false
	traces := filepath.Join(dir, "traces.jsonl")
	b, _ := os.ReadFile(traces)
	if err := os.WriteFile(traces, b, 0o644); err != nil { // new time, same bytes
		t.Fatal(err)
	}
	compareOutputs(t, first, run(false), "")
	folder := table.RunDir(o.Out, runs[0].ID) // a call that replaced the tables was killed before its last write
	whole := readManifest(folder)
	both := manifest{Files: slices.Concat(whole.Files, whole.Files)}
	if err := both.write(folder); err != nil {
		t.Fatal(err)
	}
	compareOutputs(t, first, run(true), "")
	if !slices.Equal(readManifest(folder).Files, whole.Files) {
		t.Errorf("manifest: got %v, want %v", readManifest(folder).Files, whole.Files)
	}
	repo.Write(t, append(b, '\n'), traces)
	run(true)
}

const smallRunYAML = `name: %s
model: {config: %s}
hardware: {name: H100}
vllm: {version: 0.15.1, max_num_seqs: 256, max_num_batched_tokens: 8192}
`

// smallRun writes a run folder of a few requests and returns its name.
func smallRun(t *testing.T, parent, id string, lines []string) string {
	t.Helper()
	dir := filepath.Join(parent, id)
	repo.Write(t, fmt.Sprintf(smallRunYAML, id, "config.json"), dir, "run.yaml")
	repo.Write(t, modelConfig(t), dir, "config.json")
	repo.Write(t, strings.Join(lines, "\n")+"\n", dir, "traces.jsonl")
	return dir
}

func modelConfig(t *testing.T) string {
	t.Helper()
	b := repo.Read(t, "..", "..", "testdata", "traces", "smoke", "config.json")
	return string(b)
}

// extractArgs extracts what args name and returns the document.
func extractArgs(t *testing.T, out string, set []string, args ...string) (*result.Extract, error) {
	t.Helper()
	runs, err := Discover(args, set...)
	if err != nil {
		return nil, err
	}
	o := DefaultOptions()
	o.Out = out
	o.MaxBadFrac = 1
	o.Workers = 2
	o.Set = set
	return Run(context.Background(), runs, o)
}

// extracted extracts folders afresh and reads all runs back.
func extracted(t *testing.T, set []string, dirs ...string) (*result.Extract, []*trace.Run) {
	t.Helper()
	out := t.TempDir()
	doc, err := extractArgs(t, out, set, dirs...)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := readAll(out)
	if err != nil {
		t.Fatal(err)
	}
	return doc, runs
}

// passesOf are the number, first and last index of each run's iterations.
func passesOf(runs []*trace.Run) string {
	var got []string
	for _, r := range runs {
		it := r.Iterations
		got = append(got, fmt.Sprintf("%d %d..%d", len(it), it[0].Index, it[len(it)-1].Index))
	}
	return strings.Join(got, ", ")
}

// sameAsFresh extracts again into out and compares with a fresh folder.
func sameAsFresh(t *testing.T, out string, set []string, args ...string) *result.Extract {
	t.Helper()
	doc, err := extractArgs(t, out, set, args...)
	if err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	if _, err := extractArgs(t, fresh, set, args...); err != nil {
		t.Fatal(err)
	}
	compareOutputs(t, outputs(t, fresh), outputs(t, out), "")
	return doc
}

// TestStaleCache: whatever can matter to the tables or to extract.json makes the
// second call equal a fresh one, and stands among the inputs.
func TestStaleCache(t *testing.T) {
	for _, c := range []struct {
		name   string
		set    []string
		change func(dir string)
		input  string
	}{
		{"--set", []string{"vllm.max_num_seqs=7"}, func(string) {}, "run.yaml"},
		{"hardware.json", nil, func(dir string) {
			repo.Write(t, `{"H100": {"TFlopsPeak": 1, "BwPeakTBs": 2}}`, dir, "hardware.json")
		}, "hardware.json"},
		{"a model file of another name", nil, func(dir string) {
			repo.Write(t, fmt.Sprintf(smallRunYAML, "a", "model.json"), dir, "run.yaml")
			repo.Write(t, strings.Replace(modelConfig(t), `"vocab_size": `, `"vocab_size": 1`, 1), dir, "model.json")
		}, "model.json"},
		{"same size and time", nil, func(dir string) {
			path := filepath.Join(dir, "traces.jsonl")
			st, _ := os.Stat(path)
			repo.Write(t, strings.Join(goodLines(3), "\n")[:len(goodLines(3)[0])]+"\n"+strings.Join(goodLines(3)[1:], "\n ")+"\n", path)
			os.Truncate(path, st.Size())
			os.Chtimes(path, st.ModTime(), st.ModTime())
		}, "traces.jsonl"},
		{"a dump more", nil, func(dir string) { repo.Write(t, otlptest.Request(9)+"\n", dir, "traces-2.jsonl") }, "traces-2.jsonl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			dir := smallRun(t, t.TempDir(), "a", goodLines(3))
			sameAsFresh(t, out, nil, dir)
			c.change(dir)
			doc := sameAsFresh(t, out, c.set, dir)
			if !slices.ContainsFunc(doc.Inputs, func(in result.Input) bool { return in.Name == c.input }) {
				t.Errorf("got the inputs %v, want %s among them", doc.Inputs, c.input)
			}
		})
	}
}

// TestChangedCacheIsNotBelieved: what somebody wrote into the cache is in no document.
func TestChangedCacheIsNotBelieved(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	dir := smallRun(t, t.TempDir(), "a", goodLines(9))
	sameAsFresh(t, out, nil, dir)
	text := string(repo.Read(t, out, cacheName))
	for _, changed := range []string{strings.Replace(text, `"finished":`, `"finished":9`, 1), text[:len(text)/2], text[1:], "\n{}", ""} {
		repo.Write(t, changed, out, cacheName)
		sameAsFresh(t, out, nil, dir)
	}
}

// TestCrashBetweenTablesAndDocument: tables of other options are published and
// the program dies before extract.json: no document describes tables that are
// not there, and the next call of either kind equals a fresh one.
func TestCrashBetweenTablesAndDocument(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	dir := smallRun(t, t.TempDir(), "a", goodLines(9))
	sameAsFresh(t, out, nil, dir)
	kept := repo.Read(t, out, cacheName)
	repo.Write(t, strings.Join(goodLines(3), "\n")+"\n", dir, "traces.jsonl")
	runs, err := Discover([]string{dir})
	if err != nil {
		t.Fatal(err)
	}
	o := DefaultOptions()
	o.Out = out
	ctx, cancel := context.WithCancel(context.Background())
	x := &extraction{run: &runs[0], o: &o}
	if err := x.readFolder(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := x.finish(ctx); err != nil {
		t.Fatal(err)
	}
	cancel()
	if exists(filepath.Join(out, documentName)) {
		t.Error("extract.json stands beside tables it does not describe")
	}
	repo.Write(t, strings.Join(goodLines(9), "\n")+"\n", dir, "traces.jsonl")
	repo.Write(t, string(kept), out, cacheName)
	if doc := sameAsFresh(t, out, nil, dir); doc.Runs[0].Steps.Summaries != 18 {
		t.Errorf("got %d steps, want 18", doc.Runs[0].Steps.Summaries)
	}
}

// TestDamagedTableIsRebuilt: a table that is cut, overwritten, missing or of
// another run is made anew by the next call.
func TestDamagedTableIsRebuilt(t *testing.T) {
	parent := t.TempDir()
	smallRun(t, parent, "a", goodLines(3))
	smallRun(t, parent, "b", goodLines(5))
	for name, damage := range map[string]func(steps string){
		"cut":         func(steps string) { os.Truncate(steps, 100) },
		"empty":       func(steps string) { os.Truncate(steps, 0) },
		"missing":     func(steps string) { os.Remove(steps) },
		"overwritten": func(steps string) { b, _ := os.ReadFile(steps); b[len(b)/2] ^= 1; os.WriteFile(steps, b, 0o644) },
		"of another": func(steps string) {
			b, _ := os.ReadFile(strings.Replace(steps, "run=a", "run=b", 1))
			os.WriteFile(steps, b, 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			sameAsFresh(t, out, nil, parent)
			damage(filepath.Join(table.RunDir(out, "a"), "steps.parquet"))
			sameAsFresh(t, out, nil, parent)
		})
	}
}

// TestStrayTemporariesAreCleaned, and nothing else.
func TestStrayTemporariesAreCleaned(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	dir := smallRun(t, t.TempDir(), "a", goodLines(3))
	sameAsFresh(t, out, nil, dir)
	mine := []string{
		".extract-cache.json.tmp00112233", "fit.json.tmp0a0b0c0d", "tables/run=a/.manifest.json.tmp00112233",
		"tables/" + stagePrefix + "a/0/.steps-1.tmp",
	}
	others := []string{"notes.tmp", "fit.json.tmp", "extract.json.tmp12345678.bak", "tables/.stage-mine/x"}
	for _, name := range append(slices.Clone(mine), others...) {
		repo.Write(t, "x", out, name)
	}
	if _, err := extractArgs(t, out, nil, dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range mine {
		if exists(filepath.Join(out, name)) {
			t.Errorf("%s is still there", name)
		}
	}
	for _, name := range others {
		if !exists(filepath.Join(out, name)) {
			t.Errorf("%s is gone, and it is not ours", name)
		}
	}
}

// TestSplitRunKeepsOthersID: the second life of one folder may not take the id
// of another folder.
func TestSplitRunKeepsOthersID(t *testing.T) {
	parent := t.TempDir()
	smallRun(t, parent, "a", append(lifeOfEngine(3, 1, 1e9, 2e7), lifeOfEngine(3, 11, 9e9, 2e7)...))
	smallRun(t, parent, "a.1", goodLines(3))
	_, err := extractArgs(t, filepath.Join(t.TempDir(), "out"), nil, parent)
	if err == nil || !strings.Contains(err.Error(), `run a: duplicate_run_id: run id "a.1" is used`) {
		t.Errorf("got %v, want %s of a.1", err, codeDuplicateRunID)
	}
}

// TestIDsThatCaseAloneTellsApart are one folder on many file systems.
func TestIDsThatCaseAloneTellsApart(t *testing.T) {
	parent := t.TempDir()
	smallRun(t, parent, "H100-a", goodLines(3))
	smallRun(t, parent, "b", goodLines(3))
	smallRun(t, parent, "h100-A", goodLines(3))
	_, err := Discover([]string{parent})
	if trace.CodeOf(err) != codeDuplicateRunID || !strings.Contains(err.Error(), "differ by case only") {
		t.Errorf("got %v, want %s", err, codeDuplicateRunID)
	}
	all, err := Find([]string{parent})
	if err != nil {
		t.Fatal(err)
	}
	if runs, err := Select(all, nil, []string{"h100-*"}); err != nil || len(runs) != 2 {
		t.Errorf("got %d runs, %v, want the two others", len(runs), err)
	}
}

// TestOnlyOwnTablesAreRemoved: the tables of a run that is not part of a call
// go, as it says; files of others and tables that were changed stay, as it says.
func TestOnlyOwnTablesAreRemoved(t *testing.T) {
	parent := t.TempDir()
	out := filepath.Join(t.TempDir(), "out")
	for _, id := range []string{"a", "b", "c"} {
		smallRun(t, parent, id, goodLines(3))
	}
	sameAsFresh(t, out, nil, parent)
	changed := filepath.Join(table.RunDir(out, "c"), "steps.parquet")
	others := []string{filepath.Join(table.RunDir(out, "b"), "notes.txt"), filepath.Join(out, tablesDir, "thesis", "chapter.md"), changed,
		filepath.Join(out, tablesDir, "run=mine", "steps.parquet")}
	for _, name := range others {
		repo.Write(t, "mine", name)
	}
	doc, err := extractArgs(t, out, nil, filepath.Join(parent, "a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range others {
		if b, _ := os.ReadFile(name); string(b) != "mine" {
			t.Errorf("%s is gone, and it is not ours", name)
		}
		if !strings.Contains(strings.Join(doc.Left, "\n"), strings.TrimSuffix(name, "/chapter.md")) {
			t.Errorf("got %q, want a word on %s", doc.Left, name)
		}
	}
	if exists(filepath.Join(table.RunDir(out, "b"), "steps.parquet")) || len(doc.Removed) != 2 {
		t.Errorf("got %q removed, want the tables of b and c", doc.Removed)
	}
	if b, _ := os.ReadFile(filepath.Join(out, documentName)); bytes.Contains(b, []byte("notes.txt")) {
		t.Error("extract.json depends on what stood in the folder before")
	}
}

// TestForeignTableIsNotReplaced without --force.
func TestForeignTableIsNotReplaced(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	dir := smallRun(t, t.TempDir(), "a", goodLines(3))
	mine := filepath.Join(table.RunDir(out, "a"), "steps.parquet")
	repo.Write(t, "mine", mine)
	_, err := extractArgs(t, out, nil, dir)
	if b, _ := os.ReadFile(mine); trace.CodeOf(err) != CodeNotOurs || string(b) != "mine" {
		t.Errorf("got %v and %q, want %s and the file as it was", err, b, CodeNotOurs)
	}
}

// TestLinksAreNotFollowed: what is behind a link in the output folder is never
// written, cleaned or removed.
func TestLinksAreNotFollowed(t *testing.T) {
	dir := smallRun(t, t.TempDir(), "a", goodLines(3))
	for _, link := range []string{"tables", "tables/run=a", "tables/run=old", "tables/" + stagePrefix + "a"} {
		t.Run(link, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			precious := filepath.Join(t.TempDir(), "precious")
			repo.Write(t, "mine", precious, "steps.parquet")
			repo.Write(t, "mine", precious, "run=old", "steps.parquet")
			if err := os.MkdirAll(filepath.Dir(filepath.Join(out, link)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(precious, filepath.Join(out, link)); err != nil {
				t.Skipf("no symbolic links here: %v", err)
			}
			_, err := extractArgs(t, out, nil, dir)
			if refused := err != nil; refused == (link == "tables/run=old") {
				t.Errorf("got %v", err)
			}
			left := outputs(t, precious)
			if len(left) != 2 || string(left["steps.parquet"]) != "mine" || string(left["run=old/steps.parquet"]) != "mine" {
				t.Errorf("behind the link there is %v", left)
			}
		})
	}
}

// TestTablesAreComparedWithDocument: rows and identity of every table.
func TestTablesAreComparedWithDocument(t *testing.T) {
	parent := t.TempDir()
	smallRun(t, parent, "a", goodLines(3))
	smallRun(t, parent, "b", goodLines(5))
	out := filepath.Join(t.TempDir(), "out")
	doc, err := extractArgs(t, out, nil, parent)
	if err != nil {
		t.Fatal(err)
	}
	if w, err := CheckTables(out, doc); err != nil || len(w) > 0 {
		t.Fatalf("got %v and %v of fresh tables", w, err)
	}
	run, err := table.Read(table.RunDir(out, "a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(dir string) error
		code   trace.Code
	}{
		{"missing", func(dir string) error { return os.Remove(filepath.Join(dir, "steps.parquet")) }, table.CodeDamaged},
		{"of another run", func(dir string) error {
			return os.Rename(filepath.Join(filepath.Dir(dir), "run=b", "steps.parquet"), filepath.Join(dir, "steps.parquet"))
		}, table.CodeDamaged},
		{"unknown", func(dir string) error {
			return table.Write(dir, table.KVEvents, table.Arrow, []trace.KVEvent{{Kind: "x"}})
		}, table.CodeDamaged},
		{"a row less", func(dir string) error { return table.Write(dir, table.Steps, table.Parquet, run.Steps[1:]) }, table.CodeDamaged},
		{"rewritten", func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "steps.parquet")), table.Write(dir, table.Steps, table.Arrow, run.Steps))
		}, table.CodeDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := extractArgs(t, out, nil, parent); err != nil {
				t.Fatal(err)
			}
			if err := c.change(table.RunDir(out, "a")); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(filepath.Join(table.RunDir(out, "a"), "kv_events.arrow"))
			w, err := CheckTables(out, doc)
			switch {
			case c.name == "rewritten" && (err != nil || len(w) != 1 || w[0].Code != c.code):
				t.Errorf("got %v and %v, want a warning", w, err)
			case c.name != "rewritten" && (trace.CodeOf(err) != c.code || trace.HintOf(err) == ""):
				t.Errorf("got %v, want %s", err, c.code)
			}
			os.Remove(filepath.Join(table.RunDir(out, "a"), "steps.arrow"))
		})
	}
}

// TestStandardInputIsReadAgain: a second call into the same folder has the records of its own standard input, and not what
// the first stored.
func TestStandardInputIsReadAgain(t *testing.T) {
	out := t.TempDir()
	for n := 1; n <= 2; n++ {
		doc, _, err := dumpRun(t, []string{"-"}, func(o *Options) {
			o.Out = out
			o.Stdin = strings.NewReader(strings.Repeat(otlptest.Request(1), n))
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := doc.Runs[0].Files[0].Bytes; got != int64(n*len(otlptest.Request(1))) {
			t.Errorf("call %d: got %d bytes of standard input, want %d", n, got, n*len(otlptest.Request(1)))
		}
	}
}

// TestOldFilesNeedNoHash: inputs that were left alone for a while are known by
// their stamps, the inode's among them.
func TestOldFilesNeedNoHash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	repo.Write(t, "x", path)
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if at := changeTime(st); at != 0 && time.Since(time.Unix(0, at)) > time.Hour {
		t.Errorf("got the change time %d of a new file", at)
	}
	now := time.Now().UnixNano()
	if s := oldEnough([]fileStamp{{"x", 1, 1e9, now}}); s != nil {
		t.Errorf("got %v of a file that changed just now", s)
	}
	if s := oldEnough([]fileStamp{{"x", 1, 1e9, now - 3e9}}); s == nil {
		t.Error("got no stamps of an old file")
	}
}
