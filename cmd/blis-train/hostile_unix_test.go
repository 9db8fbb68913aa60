//go:build unix

package main

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
)

// special are the things that may stand where a file of ours should be: where they lead, nothing
// of ours may go.
var special = map[string]func(path, outside string) error{
	"link":          func(path, outside string) error { return os.Symlink(outside, path) },
	"dangling link": func(path, outside string) error { return os.Symlink(outside+".new", path) },
	"link to zero":  func(path, _ string) error { return os.Symlink("/dev/zero", path) },
	"pipe":          func(path, _ string) error { return syscall.Mkfifo(path, 0o644) },
	"socket":        func(path, _ string) error { return syscall.Mknod(path, syscall.S_IFSOCK|0o644, 0) },
}

// calling runs a command in this process; one that does not end is a hang.
func calling(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	var out, errs bytes.Buffer
	done := make(chan int, 1)
	go func() { done <- run(append([]string{"blis-train"}, args...), strings.NewReader(""), &out, &errs) }()
	select {
	case code = <-done:
		return code, errs.String()
	case <-time.After(2 * time.Minute):
		t.Fatalf("%v hangs", args)
	}
	return 0, ""
}

// namesIn are the files and folders below a folder; of links, pipes and sockets the kind.
func namesIn(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != dir {
			out = append(out, strings.TrimPrefix(path, dir+"/")+" "+d.Type().String())
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return out
}

// linkTree makes the files of a folder appear in another one: hard links, because stages replace files
// and change none.
func linkTree(t *testing.T, from, to string) {
	t.Helper()
	noErr(t, filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		return os.Link(path, filepath.Join(to, rel))
	}))
}

// TestOutputsAreFiles puts a link, a pipe or a socket, in turn, under every name that a stage writes, files and folders,
// one at a time: the stage refuses it before it writes anything.
func TestOutputsAreFiles(t *testing.T) {
	testOutputsAreFiles(t, 1)
}

// TestEvalOutputsAreFiles puts each of them under every name.
func TestEvalOutputsAreFiles(t *testing.T) {
	repo.NeedEval(t)
	testOutputsAreFiles(t, len(special))
}

// testOutputsAreFiles puts so many kinds of special files under each name.
func testOutputsAreFiles(t *testing.T, most int) {
	t.Helper()
	traces := filepath.Join(repo.Root(t), "testdata", "traces")
	in := filepath.Join(traces, "smoke")
	base := t.TempDir()
	out := func(name string) string { return filepath.Join(base, name) }
	must := func(args ...string) {
		if code, said := calling(t, args...); code != exitOK && code != exitGate {
			t.Fatalf("%v: exit %d: %s", args, code, said)
		}
	}
	real := filepath.Join(traces, "real")
	must("run", filepath.Join(real, "gqa-low"), "-o", out("real"), "-q", "--bootstraps", "50")
	must("plan", in, "-o", out("plan"), "-q", "--bootstraps", "50")
	for open := []string{""}; len(open) > 0; {
		must("collect", out("plan"), "-q", "--tasks-dir", out("list"))
		must("task", out("plan"), "--tasks-dir", out("list"), "-q")
		open = namesIn(t, out("list"))
	}
	noErr(t, os.RemoveAll(out("plan/out")))
	for name, stage := range map[string]struct {
		from string   // output folder that stands there before; "": none
		args []string // OUT is the folder of the trial
	}{
		"extract":  {args: []string{"extract", in, "-o", "OUT", "-q"}},
		"inspect":  {args: []string{"inspect", in, "-o", "OUT", "-q"}},
		"fit":      {"real", []string{"fit", "OUT", "-q", "--bootstraps", "50", "--force"}},
		"validate": {"real", []string{"validate", "OUT", "-q", "--figures", "OUT/figures", "--steps-only"}},
		"run": {args: []string{"run", in, "-o", "OUT", "-q", "--bootstraps", "50", "--junit", "OUT/gates.tmp.xml",
			"--ledger", "OUT/ledger.tmp"}},
		"simulate": {args: []string{"simulate", "--latency-model", "roofline", "--deployment", in, "--input-len", "10", "--output-len", "4",
			"--num-prompts", "5", "--request-rate", "5", "-o", "OUT", "--emit-otlp", "OUT/dump.tmp.jsonl", "-q"}},
		"export":    {args: []string{"export", out("real/fit.json"), "--format", "native", "-o", "OUT/c.yaml", "-q", "--ignore-verdict"}},
		"queue":     {args: []string{"queue", "fit", out("real"), "-o", "OUT", "-q"}},
		"predictor": {"real", []string{"predictor", "rows", "OUT", "-q"}},
		"init":      {args: []string{"init", "--from-cmdline", "vllm serve m", "-o", "OUT/run.yaml", "--force", "-q"}},
		"plan":      {args: []string{"plan", in, "-o", "OUT", "-q", "--tasks-dir", "OUT/list"}},
		"collect":   {"plan", []string{"collect", "OUT", "-q"}},
	} {
		t.Run(name, func(t *testing.T) {
			trial := 0
			prepare := func() (dir, outside string, args []string) {
				trial++
				dir = filepath.Join(t.TempDir(), "out")
				outside = filepath.Join(t.TempDir(), "precious")
				noErr(t, os.MkdirAll(dir, 0o755))
				if stage.from != "" {
					linkTree(t, out(stage.from), dir)
				}
				noErr(t, os.WriteFile(outside, []byte("mine"), 0o644))
				for _, a := range stage.args {
					args = append(args, strings.ReplaceAll(a, "OUT", dir))
				}
				return dir, outside, args
			}
			dir, _, args := prepare()
			before := namesIn(t, dir)
			code, said := calling(t, args...)
			if code != exitOK && code != exitGate {
				t.Fatalf("%v: exit %d: %s", args, code, said)
			}
			tried := 0
			for _, entry := range namesIn(t, dir) {
				rel, kind, _ := strings.Cut(entry, " ")
				isNew := !slices.Contains(before, entry)
				if name == "collect" && !isNew || stage.from != "" && !isNew && kind[0] == 'd' ||
					strings.Count(rel, "/") > 1 && !strings.HasSuffix(rel, "steps.parquet") {
					continue
				}
				kinds := slices.Sorted(maps.Keys(special))
				if strings.Contains(rel, "/") {
					kinds = []string{"link", "pipe"}
				}
				for range min(most, len(kinds)) {
					what := kinds[tried%len(kinds)]
					dir, outside, args := prepare()
					at := filepath.Join(dir, rel)
					noErr(t, os.RemoveAll(at))
					noErr(t, os.MkdirAll(filepath.Dir(at), 0o755))
					noErr(t, special[what](at, outside))
					there := namesIn(t, dir)
					code, said := calling(t, args...)
					tried++
					text, err := os.ReadFile(outside)
					_, fresh := os.Lstat(outside + ".new")
					switch now := namesIn(t, dir); {
					case err != nil || string(text) != "mine" || fresh == nil:
						t.Errorf("%s at %s: written to: %q, %v", what, rel, text, err)
					case code != exitFailed || !strings.Contains(said, "special_file") && !strings.Contains(said, "not_our_file"):
						t.Errorf("%s at %s: got exit %d and %q, want a refusal", what, rel, code, said)
					case !slices.Equal(there, now):
						t.Errorf("%s at %s: refused, but behind writing: %v, before %v", what, rel, now, there)
					}
				}
			}
			t.Logf("%d trials", tried)
		})
	}
}
