package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/result"
)

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
