package extract

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// TestPlansByHand: the size of a plan and its largest task, and what has changed since it was made.
func TestPlansByHand(t *testing.T) {
	p := &Planned{Inputs: []Sized{{"traces", "a", 100}, {"log", "a", 300}, {"log", "b", 200}}}
	if p.Bytes() != 600 || p.Longest() != (Sized{"log", "a", 300}) {
		t.Errorf("got %d bytes, the longest %+v", p.Bytes(), p.Longest())
	}
	part := func(kind, name string, from, to int64) Piece {
		c := Piece{Kind: kind, Name: name}
		c.Part = &source.Part{From: from, To: to}
		return c
	}
	p.Pieces = []Piece{part("log", "a", 0, 120), part("log", "a", 120, 300), {Kind: "traces", Name: "a"}, part("other", "b", 0, 999)}
	if p.Longest() != (Sized{"log", "b", 200}) {
		t.Errorf("in parts of up to 180: got %+v", p.Longest())
	}
	dir := t.TempDir()
	repo.Write(t, "model: {id: meta-llama/Llama-3.1-8B}\nhardware: {name: L4}\nvllm: {version: 0.24.0, max_num_seqs: 8, max_num_batched_tokens: 512}\n", dir, "run.yaml")
	repo.Write(t, `{"resourceSpans":[]}`+"\n", dir, "traces.jsonl")
	runs, err := Find([]string{dir})
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	plan, err := runs[0].Plan(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Inputs) != 2 || plan.Inputs[1] != (Sized{"traces", "traces.jsonl", 21}) || plan.Dir != dir {
		t.Errorf("got %+v", plan)
	}
	if d, err := plan.Open(nil); err != nil || d.ID != runs[0].ID || d.Dir != dir {
		t.Errorf("got %+v, %v", d, err)
	}
	for want, change := range map[string]func(p *Planned){
		"run.yaml or what it names is not what was planned": func(p *Planned) { p.Deployment = "x" },
		"traces.jsonl of 21 bytes is not what was planned":  func(p *Planned) { p.Inputs = []Sized{p.Inputs[0], {"traces", "traces.jsonl", 20}} },
		"got 2 inputs, want the 3 that were planned":        func(p *Planned) { p.Inputs = append(slices.Clone(p.Inputs), Sized{"log", "b", 1}) },
	} {
		own := *plan
		change(&own)
		if _, err := own.Open(nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	none := *plan
	none.Inputs = nil
	if _, err := none.Open(nil); err == nil || !strings.Contains(err.Error(), "is not what was planned") {
		t.Errorf("an input more: got %v", err)
	}
	// A folder with recordings and without extract.json has the command that is missing.
	if _, err := ReadDocument(dir, nil); err == nil || !strings.Contains(trace.HintOf(err), "holds recordings: blis-train extract "+dir) {
		t.Errorf("got %v, %q", err, trace.HintOf(err))
	}
	if _, err := (&RunDir{ID: "r", Dir: dir, Files: []string{"-"}}).Plan(0); err == nil || !strings.Contains(err.Error(), "got standard input, want files") {
		t.Errorf("got %v", err)
	}
}

// TestFoldersByHand: which folders are run folders, and what an argument stands for.
func TestFoldersByHand(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/run.yaml", "b/c/run.yaml", "dump/x.jsonl", "dump2/y.pb.gz", "dump3/config.json", "empty/notes.txt", "two/run.yaml",
		"a/.old/run.yaml", ".snapshot/a/run.yaml", "b/.ipynb_checkpoints/run.yaml", ".named/run.yaml"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		repo.Write(t, "", dir, name)
	}
	below := func(name string) (out []string) {
		list, err := runsBelow(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			rel, _ := filepath.Rel(dir, d.Dir)
			out = append(out, filepath.ToSlash(rel)+" "+filepath.ToSlash(d.Folder))
		}
		return out
	}
	for name, want := range map[string][]string{"a": {"a ."}, "b": {"b/c c"}, "dump": {"dump ."}, "dump2": {"dump2 ."}, "dump3": {"dump3 ."}, "empty": nil, ".named": {".named ."}} {
		if got := below(name); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if got := below("."); len(got) != 3 {
		t.Errorf("got %q, want the three with a run.yaml that are not hidden", got)
	}
	for arg, want := range map[string]int{"-": 1, filepath.Join(dir, "a"): 1, filepath.Join(dir, "dump*"): 3} {
		if got, err := expandArg(arg); err != nil || len(got) != want {
			t.Errorf("%s: got %q, %v", arg, got, err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]string{"none*": "no such file or folder", "[": "syntax error in pattern", "link": "no such file"} {
		if _, err := expandArg(filepath.Join(dir, arg)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", arg, err, want)
		}
	}
	for name, want := range map[string]string{"My run/1": "My-run-1", "..a..": "a", "--": "folder", "": "folder"} {
		if got := runID(name, "/tmp/folder"); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
	if got := runID("/", "/"); got != "run" {
		t.Errorf("got %q, want run", got)
	}
	if !isDir(dir) || isDir(filepath.Join(dir, "a/run.yaml")) || isDir(filepath.Join(dir, "no")) {
		t.Error("got other folders")
	}
	if _, err := Find([]string{filepath.Join(dir, "empty")}); err == nil || !strings.Contains(err.Error(), "no run folder") {
		t.Errorf("got %v", err)
	}
}

// TestEncodersByHand: which requests ran while an encoder did, by the passes of an engine.
func TestEncodersByHand(t *testing.T) {
	p := &passTimes{}
	for i := range int64(8) {
		it := trace.Iteration{Index: 10 + i, ElapsedUs: 100}
		if i == 3 {
			it.EncoderInputs = trace.Some(int64(1))
		}
		if i == 7 {
			it.EncoderOutputs = trace.Some(int64(2))
		}
		p.addPass(&it)
	}
	if !slices.Equal(p.encoders, []int{0, 0, 0, 1, 1, 1, 1, 2}) || p.sumUs[7] != 800 || p.index[7] != 17 {
		t.Errorf("got %+v", p)
	}
	for _, c := range []struct {
		pass    int64
		ttftUs  float64
		outputs int64
		want    bool
	}{
		{12, 250, 1, false},                     // passes 10 to 12
		{12, 250, 2, true},                      // its second token is of pass 13
		{14, 100, 1, false}, {14, 101, 1, true}, // the pass alone, and the one before
		{14, 100, 3, false}, {14, 100, 4, true}, // up to pass 16, and 17
		{17, 1, 9, true}, {16, 1, 1, false}, {16, 1, 0, false},
		{99, 1, 1, true}, // not logged
	} {
		r := &trace.ObservedRequest{Iteration: trace.Some(c.pass), TTFTUs: trace.Some(c.ttftUs), OutputTokens: trace.Some(c.outputs)}
		if got := p.sawEncoder(r); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	x := &extraction{observed: make([]trace.ObservedRequest, 2), logs: &enginelog.Lives{}, inputs: &inputSet{}}
	x.observed[0].Iteration = trace.Some(int64(3)) // of an engine that is not there
	if err := x.markEncoderRequests(); err != nil || x.observed[0].LoadOnly.OK {
		t.Errorf("no encoder: got %+v, %v", x.observed, err)
	}
	x.logs.Encoders = 4
	if err := x.markEncoderRequests(); err != nil || !x.observed[0].LoadOnly.V || !x.observed[1].LoadOnly.V || len(x.clients) != 1 || x.clients[0].Code != clients.CodeClientFile ||
		!strings.HasPrefix(x.clients[0].Message, "2 of 2 requests ran while 4 passes ran a multimodal encoder, or may have (the passes of 2 are not known)") {
		t.Errorf("got %+v, %v, %v", x.observed, x.clients, err)
	}
}

// TestObservedOfEngines: each request of clients is of one engine: that of its core span, else the first.
func TestObservedOfEngines(t *testing.T) {
	row := func(id string, core trace.Opt[string]) trace.ObservedRequest {
		return trace.ObservedRequest{ID: id, CoreID: core}
	}
	c := &collector{engines: make([]*engine, 2), cores: []core{{engine: 0}, {engine: 1}}, byID: map[digest]int32{digestID("one"): 0, digestID("two"): 1}}
	c.observed = []trace.ObservedRequest{row("a", trace.Some("two")), row("b", trace.Some("one")), row("c", trace.Opt[string]{}), row("d", trace.Some("gone"))}
	ids := func(engine int32) (out string) {
		for _, r := range c.observedOf(engine) {
			out += r.ID
		}
		return out
	}
	if ids(0) != "bcd" || ids(1) != "a" {
		t.Errorf("got %q and %q", ids(0), ids(1))
	}
	c.engines = c.engines[:1]
	if ids(0) != "abcd" {
		t.Errorf("one engine: got %q", ids(0))
	}
	for want, r := range map[int64]trace.ObservedRequest{
		1: {SendNs: trace.Some(int64(1)), ArrivalNs: trace.Some(int64(2))}, 2: {ArrivalNs: trace.Some(int64(2)), SendWallNs: trace.Some(int64(3))}, 3: {SendWallNs: trace.Some(int64(3)), QueuedNs: trace.Some(int64(4))}, 4: {QueuedNs: trace.Some(int64(4))}, 0: {},
	} {
		if got := sendTime(&r); got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	}
}
