package main

// This file is the command library, which builds and checks the kernel tables.

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
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/simulate"
	"github.com/blis-train/blis-train/trace"
)

// libraryCommand returns the command library.
func libraryCommand() *cli.Command {
	return newParent(&cli.Command{
		Name:  "library",
		Usage: "kernel times for deployments that were not traced",
		Description: `The tables that ship with this tool: kernel times measured inside vLLM on nine GPUs, and corrections learned from measured servers.
predict, simulate, features and export add them up over a deployment when no coefficients are given.

Example:
   blis-train library build --kernels systems -o tables`,
		Subcommands: []*cli.Command{libraryBuildCommand()},
	})
}

// libraryBuildCommand returns the command library build.
func libraryBuildCommand() *cli.Command {
	var dirs, points, runs []string
	return newCommand(&cli.Command{
		Name:  "build",
		Usage: "make a file of tables from published or own measurements, and the corrections from measured servers",
		Description: `Example:
   blis-train library build --kernels systems -o tables`,
		Flags: []cli.Flag{
			&cli.GenericFlag{Name: "kernels", Value: option.List(&dirs),
				Usage: "`FOLDER` with GPU.yaml and data/GPU (repeatable)"},
			&cli.GenericFlag{Name: "points", Value: option.List(&points),
				Usage: "CSV `FILE` of measured points (repeatable)"},
			&cli.StringFlag{Name: "flags", Usage: "CSV `FILE` with what the points' servers ran"},
			&cli.StringFlag{Name: "models", Usage: "`FOLDER` with the config.json of the points' models"},
			&cli.GenericFlag{Name: "runs", Value: option.List(&runs),
				Usage: "`FOLDER` of real runs: step cycles or stock spans (repeatable)"},
			&cli.StringFlag{Name: "date", Value: library.Learned().Version,
				Usage: "`YYYY-MM-DD` that names the corrections"},
			&cli.IntFlag{Name: "workers", Usage: "`N` tables or simulations at a time; 0: every core"},
			outFlag("output `FOLDER`; without it --kernels is compared with what the embedded tables were made " +
				"from, exit 3 when one differs"),
		},
	}, nil, func(c *cli.Context, con *console) error { return buildLibrary(c, con, dirs, points, runs) })
}

// buildLibrary writes one file of kernel tables for each GPU in the folders dirs, and
// corrections.yaml if there are measured points. With one folder alone and no --out it writes
// nothing and compares the folder with the embedded tables (checkLibrary).
func buildLibrary(c *cli.Context, con *console, dirs, points, runs []string) error {
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
		if err := files.Write(filepath.Join(c.String("out"), name), data); err != nil {
			return err
		}
		con.infof("wrote %s, %d kB", name, (len(data)+999)/1000)
		return nil
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
		packed, err := library.Read(b.Bytes(), g.Folder)
		if err != nil {
			return err
		}
		for _, r := range packed.ReplacedRows(model.BuiltInIDs()) {
			con.infof("  %s %s: up to %.1f times as long as other rows allow; in %d plans of built-in models others stand in",
				r.Table, r.DType, r.Most, r.Plans)
		}
	}
	if len(points) == 0 {
		return nil
	}
	m, err := build.Read(c.Context, build.Sources{Points: points, Flags: c.String("flags"), Models: c.String("models"), Runs: runs})
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

// loadSetFor returns the coefficients of a file for the deployment, or the library's if path is the
// word for it or empty. It prints the file's warnings.
func (con *console) loadSetFor(path string, d *deploy.Deployment) (*coeff.Set, result.Input, error) {
	set, in, sentence, err := simulate.CoefficientsFor(path, d, con.special)
	if err != nil {
		return nil, in, err
	}
	if sentence != "" {
		con.infof("%s", sentence)
	}
	con.warn(set.FileWarnings())
	return set, in, nil
}

// checkLibrary compares the kernel tables in the folder dir with the digests in the embedded files.
// It returns an error if one differs or there is none.
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
		all = export.Inputs{Verified: all.Verified + n.Verified, Changed: all.Changed + n.Changed,
			Absent: all.Absent + n.Absent}
	}
	if all == (export.Inputs{}) {
		return trace.Errorf(library.NoTables, build.NoSheets, dir)
	}
	con.infof("%d tables compared", all.Verified+all.Changed)
	if all.Changed+all.Absent > 0 {
		return gatef("library: %d tables differ from those the library was made from, %d are not in %s",
			all.Changed, all.Absent, dir)
	}
	return nil
}
