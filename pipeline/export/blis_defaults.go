package export

// This file writes a BLIS defaults file.

import (
	"cmp"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// blisFile is a BLIS defaults file with the two keys that it needs. BLIS decodes strictly: a
// further key is a fatal error there.
type blisFile struct {
	Version string    `yaml:"version"`
	Coeffs  blisCoeff `yaml:"trained_physics_coefficients"`
}

// blisCoeff has the coefficients by position: alpha are the delays of a request in us, beta the
// terms of the step time (blisBetaTerms).
type blisCoeff struct {
	Alpha []float64 `yaml:"alpha_coeffs,flow"`
	Beta  []float64 `yaml:"beta_coeffs,flow"`
}

// Versions of BLIS that blis-defaults writes for.
const (
	blisFolders = "f90a1e3" // takes --model-config-folder
	blisCatalog = "2026-09" // takes --catalog in its place (inference-sim #1727)
)

// blisSettings are the options of blis-defaults.
var blisSettings = []Setting{{Key: "version", Usage: "of BLIS: " + blisFolders + " (2026-08-22), " + blisCatalog +
	" (and later: --catalog, whose folder is written too) or kernel (refused: its law reads no betas)",
	Default: blisFolders,
	OneOf:   []string{blisFolders, blisCatalog, "kernel"}}}

// blisDefaults returns the files of format blis-defaults: a defaults.yaml for each configuration,
// one for all of them together, a hardware file with the peaks the fit used, and the sidecar with
// the equivalent command lines.
func blisDefaults(src Source, opt Options) (*Output, error) {
	version := opt.Settings["version"]
	if version == "kernel" {
		return nil, trace.Errorf(NothingToExport,
			"version: got kernel, which reads no betas, want %s or %s", blisFolders, blisCatalog).
			WithHint("--format blis-scenario writes what BLIS's kernel mode reads")
	}
	cfgs, err := src.Configs(opt.Config)
	if err != nil {
		return nil, err
	}
	entries, warn, err := blisEntries(src, opt, cfgs)
	if err != nil {
		return nil, err
	}
	var refused []Refusal
	for i := range entries {
		refused = append(refused, entries[i].refusals(src.Fit)...)
	}
	forced, err := opt.Refuse(refused, forceHint)
	if err != nil {
		return nil, err
	}
	warn = append(warn, forced...)
	hw, err := blisHardware(cfgs)
	if err != nil {
		return nil, err
	}
	side := src.Sidecar(opt, FormatBLIS, "BLIS (inference-sim/inference-sim) "+cmp.Or(version, blisFolders)+
		", --defaults-filepath; strict decoding: no further key is allowed in the file")
	var files []File
	if version == blisCatalog {
		if files, err = catalogOf(cfgs); err != nil {
			return nil, err
		}
	}
	var projections []Projected
	for i := range entries {
		e := &entries[i]
		data, err := yaml.Marshal(blisFile{Version: src.Fit.ToolVersion,
			Coeffs: blisCoeff{Alpha: numbers(e.alpha), Beta: e.beta}})
		if err != nil {
			return nil, err
		}
		data = append([]byte(e.defaultsHead()), data...)
		files = append(files, File{Suffix: e.suffix, Data: data})
		side.Values = append(side.Values, sideValues(e.valueKey("alpha_coeffs"), e.alphaValues())...)
		side.Values = append(side.Values, sideValues(e.valueKey("beta_coeffs"), e.betaValues())...)
		if e.config != nil {
			side.Configs = append(side.Configs, e.sideConfig(version))
			projections = append(projections, e.projected())
		}
	}
	side.Warnings = append(src.ValidationWarnings(), warn...)
	out, err := side.OutputWith(warn, append(files, File{Suffix: ".hardware.json", Data: hw})...)
	if err == nil {
		out.Projections = projections
	}
	return out, err
}

// defaultsLegacy is what help and files state about the format.
const defaultsLegacy = "legacy: for BLIS with --latency-model trained-physics, which its registry no longer has; " +
	"blis-scenario is for BLIS with its latency kernel"

// defaultsHead returns the comment at the head of a defaults.yaml. BLIS refuses keys that it does not
// know, but reads past comments.
func (e *blisEntry) defaultsHead() string {
	head := "# " + defaultsLegacy + ".\n"
	if note := e.waitNote(); note != "" {
		head += "# alpha_coeffs[0]: " + note + ".\n"
	}
	return head
}

// blisCalib is one entry of BLIS's hardware_config.json. Only BLIS's roofline model reads the mfu
// values; with 1 the peaks are used as they are.
type blisCalib struct {
	TFlopsPeak float64 `json:"TFlopsPeak"`
	TFlopsFP8  float64 `json:"TFlopsFP8"`
	BwPeakTBs  float64 `json:"BwPeakTBs"`
	MfuPrefill float64 `json:"mfuPrefill"`
	MfuDecode  float64 `json:"mfuDecode"`
	MemoryGiB  float64 `json:"MemoryGiB"`
}

// blisHardware returns BLIS's hardware_config.json with the peaks of the fit: a coefficient multiplies the time
// that work takes at those peaks, so with other peaks BLIS would predict other times. The GB in which vendors
// print the memory of a GPU are GiB (deploy.Hardware).
func blisHardware(cfgs []result.FitConfig) ([]byte, error) {
	doc := map[string]blisCalib{}
	for _, c := range cfgs {
		h := c.Deployment.Hardware
		doc[h.Name] = blisCalib{TFlopsPeak: h.TFlopsPeak, TFlopsFP8: h.TFlopsFP8, BwPeakTBs: h.BwPeakTBs,
			MfuPrefill: 1, MfuDecode: 1,
			MemoryGiB: h.MemoryGB}
	}
	return result.Marshal(doc)
}
