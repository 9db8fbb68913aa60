package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/result"
)

func libraryBuildCommand() *cli.Command {
	def := library.DefaultOptions()
	return newCommand(buildLibrary, []cli.Flag{
		&cli.StringFlag{Name: "kernels", Usage: "`FOLDER` with <gpu>.yaml and data/<gpu>"},
		&cli.StringSliceFlag{Name: "points", Usage: "CSV `FILE` of measured points (repeatable)"},
		&cli.StringSliceFlag{Name: "runs", Usage: "`FOLDER` of real runs: step cycles or stock spans (repeatable)"},
		&cli.StringFlag{Name: "rules", Value: string(def.Rules), Usage: "how kernels make a step, `RULES`: engine or composed"},
		&cli.IntFlag{Name: "batches", Value: def.Batches, Usage: "`N` design points per deployment"},
		&cli.StringFlag{Name: "date", Value: def.Date, Usage: "`YYYY-MM-DD` that names the library"},
		&cli.IntFlag{Name: "workers", Usage: "`N` families at a time; 0 uses every core"},
		outFlag("output `FOLDER`"),
	})
}

func libraryShowCommand() *cli.Command {
	return newCommand(showLibrary, []cli.Flag{
		&cli.StringFlag{Name: "kernels", Usage: "also compare the kernel tables in `FOLDER` with those the files were made from; exit 3 " +
			"when one differs"},
	})
}

func buildLibrary(c *cli.Context, con *console) error {
	for _, name := range []string{"kernels", "out"} {
		if c.String(name) == "" {
			return usagef("library build: missing --%s", name)
		}
	}
	o := library.DefaultOptions()
	o.Rules, o.Batches, o.Date, o.Workers = library.Rules(c.String("rules")), c.Int("batches"), c.String("date"), c.Int("workers")
	if err := o.Rules.Check(); err != nil {
		return usagef("--%v", err)
	}
	if o.Batches < 30 || o.Batches > 100_000 {
		return usagef("--batches: got %d, want 30 to 100000", o.Batches)
	}
	src := library.Sources{Kernels: c.String("kernels"), Points: listOf(c, "points"), Runs: listOf(c, "runs")}
	built, err := library.BuildFiles(c.Context, src, o)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.String("out"), 0o755); err != nil {
		return err
	}
	total := 0
	for _, f := range built {
		f.Set.ToolVersion = "library"
		data, err := folder.SetBytes(f.Set)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		total += len(data)
		if err := files.Write(filepath.Join(c.String("out"), f.Name), data); err != nil {
			return err
		}
	}
	con.sayf("wrote %d files, %d kB, to %s", len(built), total/1000, c.String("out"))
	return nil
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
	Files         []libraryFileDoc `json:"files"`
}

type libraryFileDoc struct {
	Name           string  `json:"name"`
	Hardware       string  `json:"hardware"`
	Weights        string  `json:"weights"`
	MoE            bool    `json:"moe"`
	KernelsVLLM    string  `json:"kernels_vllm_version"`
	Samples        int64   `json:"design_points"`
	ExpectedTPOT   float64 `json:"expected_tpot_mape"`
	ExpectedTTFT   float64 `json:"expected_ttft_median_error"`
	Points         int     `json:"measured_points"`
	MeasuredOnGPU  bool    `json:"measured_on_gpu"`
	ScaledTo       string  `json:"kernels_to_servers"` // what the correction says of the GPU, in words
	Representation string  `json:"representation"`
}

// showLibrary lists the embedded files.
func showLibrary(c *cli.Context, con *console) error {
	doc := libraryDoc{SchemaVersion: result.SchemaVersion, ToolVersion: folder.ToolVersion}
	var rows []cells
	for _, name := range coeff.LibraryFiles() {
		s, err := coeff.OpenLibrary(name)
		if err != nil {
			return err
		}
		l := s.Library
		doc.Version = l.Version
		f := libraryFileDoc{Name: name, Hardware: s.TrainedOn.Hardware[0], Weights: l.Weights, MoE: l.MoE,
			KernelsVLLM: strings.Join(s.TrainedOn.VLLMVersions, ", "), Samples: s.TrainedOn.Samples, ExpectedTPOT: l.Expected.TPOTMape,
			ExpectedTTFT: l.Expected.TTFTMedian, Points: l.Expected.Points, MeasuredOnGPU: l.Expected.OnGPU,
			ScaledTo: s.Identifiability[0], Representation: strings.Join(s.Identifiability[1:], "; ")}
		doc.Files = append(doc.Files, f)
		kind, measured := "dense", "other GPUs"
		if l.MoE {
			kind = "experts"
		}
		if l.Expected.OnGPU {
			measured = fmt.Sprintf("%d points", l.Expected.Points)
		}
		rows = append(rows, cells{f.Hardware, f.Weights, kind, "vLLM " + f.KernelsVLLM, fmt.Sprintf("%.0f %%", 100*f.ExpectedTPOT),
			fmt.Sprintf("%.0f %%", 100*f.ExpectedTTFT), measured})
	}
	con.table("library "+doc.Version, cells{"GPU", "weights", "models", "kernels", "TPOT within (mean)", "TTFT within (median)",
		"measured on"}, rows)
	if err := con.document(doc); err != nil || c.String("kernels") == "" {
		return err
	}
	return checkLibrary(con, c.String("kernels"))
}

// checkLibrary compares the kernel tables in dir with the digests in the embedded files.
func checkLibrary(con *console, dir string) error {
	var all export.Inputs
	for _, name := range coeff.LibraryFiles() {
		s, err := coeff.OpenLibrary(name)
		if err != nil {
			return err
		}
		tables := slices.DeleteFunc(s.Inputs, func(in coeff.Input) bool { return !strings.HasSuffix(in.Name, ".parquet") })
		n, changed, err := export.CheckInputs(tables, dir)
		if err != nil {
			return err
		}
		con.warn(changed)
		all = export.Inputs{Verified: all.Verified + n.Verified, Changed: all.Changed + n.Changed, Absent: all.Absent + n.Absent}
	}
	con.sayf("%d files load, %d of their tables compared", len(coeff.LibraryFiles()), all.Verified+all.Changed)
	if all.Changed+all.Absent > 0 {
		return gatef("library: %d tables differ from those the library was made from, %d are not in %s", all.Changed, all.Absent, dir)
	}
	return nil
}
