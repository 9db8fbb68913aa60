package export

import (
	"fmt"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/result"
)

// blisFile is all that BLIS's strict decoder needs of a defaults file: any
// further key would be fatal there.
type blisFile struct {
	Version string    `yaml:"version"`
	Coeffs  blisCoeff `yaml:"trained_physics_coefficients"`
}

type blisCoeff struct {
	Alpha []float64 `yaml:"alpha_coeffs,flow"`
	Beta  []float64 `yaml:"beta_coeffs,flow"`
}

// blisDefaults writes a defaults.yaml for each configuration, one for all of them together, a
// hardware file with the peaks the fit used, and the sidecar with the equivalent command lines.
func blisDefaults(src Source, opt Options) (*Output, error) {
	cfgs, err := src.Configs(opt.Config)
	if err != nil {
		return nil, err
	}
	entries, warn, err := blisEntries(src, opt, cfgs)
	if err != nil {
		return nil, err
	}
	var refused []Refusal
	for _, e := range entries {
		refused = append(refused, e.refusals(src.Fit)...)
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
	side := src.Sidecar(opt, FormatBLIS, "BLIS (inference-sim/inference-sim), --defaults-filepath; strict decoding, so nothing else may "+
		"stand in the file")
	var files []File
	var projections []Projected
	for i := range entries {
		e := &entries[i]
		data, err := yaml.Marshal(blisFile{Version: src.Fit.ToolVersion, Coeffs: blisCoeff{Alpha: numbers(e.alpha), Beta: e.beta}})
		if err != nil {
			return nil, err
		}
		files = append(files, File{e.suffix, data})
		side.Values = append(side.Values, sideValues(e.key("alpha_coeffs"), e.alpha)...)
		side.Values = append(side.Values, sideValues(e.key("beta_coeffs"), e.values())...)
		if e.config != nil {
			side.Configs = append(side.Configs, e.side())
			projections = append(projections, e.projected())
		}
	}
	side.Warnings = append(src.ValidationWarnings(), warn...)
	out, err := side.Beside(warn, append(files, File{".hardware.json", hw})...)
	if err == nil {
		out.Projections = projections
	}
	return out, err
}

func numbers(values []blisValue) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = v.value
	}
	return out
}

// blisCalib is one entry of BLIS's hardware_config.json. The mfu values are
// read by its roofline model only and are stated as 1: exactly the peaks.
type blisCalib struct {
	TFlopsPeak float64 `json:"TFlopsPeak"`
	TFlopsFP8  float64 `json:"TFlopsFP8"`
	BwPeakTBs  float64 `json:"BwPeakTBs"`
	MfuPrefill float64 `json:"mfuPrefill"`
	MfuDecode  float64 `json:"mfuDecode"`
	MemoryGiB  float64 `json:"MemoryGiB"`
}

// blisHardware writes the peaks the coefficients are ratios of. BLIS must use
// these, or every ratio is off by the quotient of the peaks.
func blisHardware(cfgs []result.FitConfig) ([]byte, error) {
	doc := map[string]blisCalib{}
	for _, c := range cfgs {
		h := c.Deployment.Hardware
		doc[h.Name] = blisCalib{TFlopsPeak: h.TFlopsPeak, TFlopsFP8: h.TFlopsFP8, BwPeakTBs: h.BwPeakTBs, MfuPrefill: 1, MfuDecode: 1,
			MemoryGiB: h.MemoryGB}
	}
	return result.Marshal(doc)
}

// flagsCommand is the `blis replay` line that runs a deployment with the given
// coefficients as flags, which win over those of the defaults file; BLIS wants
// a readable one all the same. FILE, TRACE and MODELDIR are for the reader to
// fill in.
func flagsCommand(d deploy.Deployment, alpha, beta []float64, suffix string) string {
	return blisCommand(d, "--alpha-coeffs "+joined(alpha)+" --beta-coeffs "+joined(beta)+" --defaults-filepath FILE"+suffix)
}

// defaultsCommand is the same line with the coefficients read from the
// exported file.
func defaultsCommand(d deploy.Deployment, suffix string) string {
	return blisCommand(d, "--defaults-filepath FILE"+suffix)
}

// blisHorizon is beyond the end of any workload, us. Without one BLIS stops at twice the last
// arrival, and what is not done by then is missing from its results. (A delay of the cache
// signal of 0 changes nothing for one engine; BLIS otherwise takes a snapshot of its cache
// every 50 ms of simulated time.)
const blisHorizon = int64(1) << 53

func blisCommand(d deploy.Deployment, coefficients string) string {
	e := d.Engine
	args := []string{
		"blis replay --trace-header TRACE.yaml --trace-data TRACE.csv --results-path results.json",
		"--horizon " + strconv.FormatInt(blisHorizon, 10), "--cache-signal-delay 0",
		"--latency-model trained-physics", coefficients,
		"--model " + files.Word(strings.ToLower(d.Model.ID)), "--model-config-folder MODELDIR",
		"--hardware " + files.Word(d.Hardware.Name), "--hardware-config FILE.hardware.json",
		"--tp " + strconv.FormatInt(d.TP, 10),
		"--max-num-seqs " + strconv.FormatInt(e.MaxNumSeqs, 10),
		"--max-num-batched-tokens " + strconv.FormatInt(e.MaxNumBatchedTokens, 10),
		"--block-size-in-tokens " + strconv.FormatInt(e.BlockSize, 10),
	}
	if blocks, _, err := d.KVBlocks(); err == nil {
		args = append(args, "--total-kv-blocks "+strconv.FormatInt(blocks, 10))
	}
	if d.MaxModelLen().OK { // kept within the KV cache: BLIS caps a longer one itself, with a warning
		args = append(args, "--max-model-len "+strconv.FormatInt(d.LongestSequence().V, 10))
	}
	return strings.Join(args, " ")
}

// joined writes numbers so that they read back exactly.
func joined(v []float64) string {
	s := make([]string, len(v))
	for i, x := range v {
		s[i] = strconv.FormatFloat(x, 'g', -1, 64)
	}
	return strings.Join(s, ",")
}

func sideValues(key string, values []blisValue) []SideValue {
	var out []SideValue
	for i, v := range values {
		s := SideValue{Key: fmt.Sprintf("%s[%d]", key, i), Name: v.name, Value: result.OrNull(v.value), Unit: v.units, CI95: v.ci95,
			Identified: v.identified, Learned: v.learned, Origin: v.origin, Effect: "multiplies " + v.role}
		if v.value == 0 {
			s.Effect = "0: " + v.zero
		}
		out = append(out, s)
	}
	return out
}
