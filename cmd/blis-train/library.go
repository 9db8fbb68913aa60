package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/kernels"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/result"
)

func libraryBuildCommand() *cli.Command {
	return newCommand(buildLibrary, []cli.Flag{
		&cli.StringSliceFlag{Name: "kernels", Usage: "`FOLDER` with <gpu>.yaml and data/<gpu> (repeatable)"},
		&cli.StringSliceFlag{Name: "points", Usage: "CSV `FILE` of measured points (repeatable)"},
		&cli.StringFlag{Name: "models", Usage: "`FOLDER` with the config.json of the points' models"},
		&cli.StringSliceFlag{Name: "runs", Usage: "`FOLDER` of real runs: step cycles or stock spans (repeatable)"},
		&cli.StringFlag{Name: "date", Value: kernels.Learned().Version, Usage: "`YYYY-MM-DD` that names the corrections"},
		&cli.IntFlag{Name: "workers", Usage: "`N` tables or simulations at a time; 0 uses every core"},
		outFlag("output `FOLDER`"),
	})
}

func libraryShowCommand() *cli.Command {
	return newCommand(showLibrary, []cli.Flag{
		&cli.StringFlag{Name: "kernels", Usage: "also compare the kernel tables in `FOLDER` with those the files were made from; exit 3 " +
			"when one differs"},
	})
}

// buildLibrary packs tables, and learns corrections where there are points.
func buildLibrary(c *cli.Context, con *console) error {
	dirs, points := listOf(c, "kernels"), listOf(c, "points")
	switch {
	case len(dirs)+len(points) == 0:
		return usagef("library build: missing --kernels or --points")
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
	gpus, err := library.Pack(c.Context, dirs, c.Int("workers"))
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
	m, err := library.Read(c.Context, library.Sources{Points: points, Models: c.String("models"), Runs: listOf(c, "runs")})
	if err != nil {
		return err
	}
	learned, err := m.Learn(c.Context, c.String("date"), c.Int("workers"))
	if err != nil {
		return err
	}
	text, err := library.Text(learned, m.Inputs)
	if err != nil {
		return err
	}
	return write("corrections.yaml", text)
}

// loadSetFor reads a coefficient file, or the library's for the deployment when
// path is the word or empty.
func (con *console) loadSetFor(path string, d *deploy.Deployment) (*coeff.Set, result.Input, error) {
	set, in, sentence, err := folder.CoefficientsFor(path, d, con.special)
	if err == nil && sentence != "" {
		con.sayf("%s", sentence)
	}
	return set, in, err
}

// libraryDoc is what library show --json prints.
type libraryDoc struct {
	SchemaVersion string           `json:"schema_version"`
	ToolVersion   string           `json:"tool_version"`
	Version       string           `json:"library_version"`
	GPUs          []libraryGPU     `json:"gpus"`
	Judged        []kernels.Judged `json:"judged"`
}

type libraryGPU struct {
	Hardware string   `json:"hardware"`
	Tables   int      `json:"tables"`
	Rows     int      `json:"rows"`
	VLLM     []string `json:"vllm_versions"`
}

// showLibrary lists the embedded tables and the families that were compared with servers.
func showLibrary(c *cli.Context, con *console) error {
	learned := kernels.Learned()
	doc := libraryDoc{SchemaVersion: result.SchemaVersion, ToolVersion: folder.ToolVersion, Version: learned.Version, Judged: learned.Judged}
	var rows, judged []cells
	for _, g := range kernels.GPUs() {
		l := libraryGPU{Hardware: g.Hardware, Tables: len(g.Tables)}
		for _, t := range g.Tables {
			if l.Rows += t.Rows; strings.Contains(t.Path, "/vllm/") {
				l.VLLM = append(l.VLLM, t.Version)
			}
		}
		slices.Sort(l.VLLM)
		l.VLLM = slices.Compact(l.VLLM)
		doc.GPUs = append(doc.GPUs, l)
		rows = append(rows, cells{l.Hardware, l.Tables, l.Rows, strings.Join(l.VLLM, ", ")})
	}
	for _, j := range learned.Judged {
		judged = append(judged, cells{j.Family, j.Model, fmt.Sprint(j.TP), j.Points, percent(&j.TPOTMape), percent(&j.Interval90),
			percent(&j.TTFTMedian)})
	}
	con.table("library "+doc.Version, cells{"GPU", "tables", "rows", "kernels of vLLM"}, rows)
	con.table("compared with servers, left out of the corrections; all else is unjudged", cells{"family", "model", "tp", "points",
		"TPOT within (mean)", "nine in ten", "TTFT within (median)"}, judged)
	if err := con.document(doc); err != nil || c.String("kernels") == "" {
		return err
	}
	return checkLibrary(con, c.String("kernels"))
}

// checkLibrary compares the kernel tables in dir with the digests in the embedded files.
func checkLibrary(con *console, dir string) error {
	var all export.Inputs
	for _, g := range kernels.GPUs() {
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
