package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/library/build"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/simulate"
)

func libraryOptions(string) option.Table {
	return defaults(map[string]any{"date": library.Learned().Version})
}

// buildLibrary packs tables, and learns corrections where there are points.
func buildLibrary(c *cli.Context, con *console) error {
	dirs := listOf(c, "kernels")
	points := listOf(c, "points")
	switch {
	case len(dirs)+len(points) == 0:
		return usagef("library build: missing --kernels or --points")
	case c.String("out") == "" && len(dirs) == 1 && len(points) == 0:
		return checkLibrary(con, dirs[0])
	case c.String("out") == "":
		return usagef("library build: missing --out")
	}
	if err := os.MkdirAll(c.String("out"), 0o755); err != nil {
		return err
	}
	write := func(name string, data []byte) error {
		con.sayf("wrote %s, %d kB", name, (len(data)+999)/1000)
		return files.Write(filepath.Join(c.String("out"), name), data)
	}
	gpus, err := build.Pack(c.Context, dirs, c.Int("workers"))
	if err != nil {
		return err
	}
	for _, g := range gpus {
		var b bytes.Buffer
		if err := errors.Join(g.Write(&b), write(g.Folder+".kernels", b.Bytes())); err != nil {
			return err
		}
	}
	if len(points) == 0 {
		return nil
	}
	m, err := build.Read(c.Context, build.Sources{Points: points, Models: c.String("models"), Runs: listOf(c, "runs")})
	if err != nil {
		return err
	}
	learned, err := m.Learn(c.Context, c.String("date"), c.Int("workers"))
	if err != nil {
		return err
	}
	text, err := build.Text(learned, m.Inputs)
	if err != nil {
		return err
	}
	return write("corrections.yaml", text)
}

// loadSetFor reads a coefficient file, or the library's for the deployment when
// path is the word or empty.
func (con *console) loadSetFor(path string, d *deploy.Deployment) (*coeff.Set, result.Input, error) {
	set, in, sentence, err := simulate.CoefficientsFor(path, d, con.special)
	if err == nil && sentence != "" {
		con.sayf("%s", sentence)
	}
	return set, in, err
}

// checkLibrary compares the kernel tables in dir with the digests in the embedded files.
func checkLibrary(con *console, dir string) error {
	var all export.Inputs
	for _, g := range library.GPUs() {
		if _, err := os.Stat(filepath.Join(dir, g.Folder+".yaml")); err != nil {
			continue // of another folder
		}
		n, changed, err := export.CheckInputs(g.Inputs(), dir)
		if err != nil {
			return err
		}
		con.warn(changed)
		all = export.Inputs{Verified: all.Verified + n.Verified, Changed: all.Changed + n.Changed, Absent: all.Absent + n.Absent}
	}
	con.sayf("%d tables compared", all.Verified+all.Changed)
	if all.Changed+all.Absent > 0 {
		return gatef("library: %d tables differ from those the library was made from, %d are not in %s", all.Changed, all.Absent, dir)
	}
	return nil
}
