package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/result/folder"
)

// demoCommand is the first command of the README and of the tutorial.
var demoCommand = []string{"blis-train", "run", "testdata/traces/demo", "-o", "out"}

// demo is what demoCommand left and printed when a test of this binary first ran it.
var demo struct {
	status         int
	printed        []byte // both streams, as they followed each other
	stdout, stderr []byte
	files          map[string][]byte
}

// inDemoWorld makes a folder the current one in which the named folders of the repository stand, so
// that the commands of a page find them.
func inDemoWorld(t *testing.T, folders ...string) {
	t.Helper()
	root := repo.Root(t)
	t.Chdir(t.TempDir())
	for _, name := range folders {
		if err := os.Symlink(filepath.Join(root, name), name); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
}

// runWords runs a command line in the current folder. The demo runs once in a test binary: later
// calls lay down the same files and print the same text.
func runWords(t *testing.T, words []string, out io.Writer) int {
	t.Helper()
	if !slices.Equal(words, demoCommand) {
		return run(words, strings.NewReader(""), out, out)
	}
	if demo.files == nil {
		runDemo(t)
	} else {
		writeDemo(t, ".")
	}
	out.Write(demo.printed)
	return demo.status
}

// runDemo runs the demo in the current folder, and keeps what it leaves and prints.
func runDemo(t *testing.T) {
	t.Helper()
	var printed, stdout, stderr bytes.Buffer
	demo.status = run(demoCommand, strings.NewReader(""), io.MultiWriter(&stdout, &printed), io.MultiWriter(&stderr, &printed))
	demo.printed = printed.Bytes()
	demo.stdout = stdout.Bytes()
	demo.stderr = stderr.Bytes()
	demo.files = map[string][]byte{}
	must(t, filepath.WalkDir("out", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			demo.files[path] = repo.Read(t, path)
		}
		return err
	}))
}

// writeDemo writes the files that the demo left to a folder.
func writeDemo(t *testing.T, dir string) {
	t.Helper()
	for path, data := range demo.files {
		repo.Write(t, data, dir, path)
	}
}

// fittedSweep is what queue fit left and printed of the bundled sweep.
type fittedSweep struct {
	status         int
	stdout, stderr string
	files          map[string][]byte // by name
}

// sweepFits are the fits of sweepFit, by flavour.
var sweepFits = map[string]fittedSweep{}

// sweepFit returns the fit of the bundled sweep, with online tuners beside it, which is made once in a test binary for
// each flavour of queueing model.
func sweepFit(t testing.TB, flavour string) fittedSweep {
	t.Helper()
	if _, isMade := sweepFits[flavour]; !isMade {
		out := t.TempDir()
		sweep := filepath.Join(repo.Root(t), "testdata", "sweeps", "llama-3.1-8b.csv")
		f := fittedSweep{files: map[string][]byte{}}
		f.status, f.stdout, f.stderr = call("queue", "fit", sweep, "-o", out, "--flavour", flavour, "--track", "--loads", "7", "--queue-ratio", "1",
			"--model", "llama", "--accelerator", "H100")
		for _, name := range []string{folder.QueueFile, "windows.parquet"} {
			f.files[name] = repo.Read(t, out, name)
		}
		sweepFits[flavour] = f
	}
	return sweepFits[flavour]
}
