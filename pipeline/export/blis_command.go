package export

// This file writes the command by which BLIS simulates a deployment with the coefficients.

import (
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/model"
)

// blisHorizon is beyond the end of any workload, us. Without a horizon BLIS stops at twice the last
// arrival and omits unfinished requests from its results.
const blisHorizon = int64(1) << 53

// blisCommand returns the `blis replay` line that simulates a deployment. version is that of BLIS.
// coefficients are the flags with the coefficients or the name of the exported file. FILE, TRACE
// and MODELDIR are placeholders for the reader to fill in.
func blisCommand(version string, d deploy.Deployment, coefficients string) string {
	e := d.Engine
	modelFlags := "--model " + files.Word(strings.ToLower(d.Model.ID)) + " --model-config-folder MODELDIR"
	if version == blisCatalog {
		modelFlags = "--model " + files.Word(slug(model.Name(d.Model.ID))) + " --catalog FILE.catalog"
	}
	args := []string{
		"blis replay --trace-header TRACE.yaml --trace-data TRACE.csv --results-path results.json",
		"--horizon " + strconv.FormatInt(blisHorizon, 10),
		// With one engine the delay changes no result; without the flag BLIS copies its cache every
		// 50 ms of simulated time.
		"--cache-signal-delay 0",
		"--latency-model trained-physics", coefficients,
		modelFlags, "--hardware " + files.Word(d.Hardware.Name), "--hardware-config FILE.hardware.json",
		"--tp " + strconv.FormatInt(d.TP, 10),
		"--max-num-seqs " + strconv.FormatInt(e.MaxNumSeqs, 10),
		"--max-num-batched-tokens " + strconv.FormatInt(e.MaxNumBatchedTokens, 10),
		"--block-size-in-tokens " + strconv.FormatInt(e.BlockSize, 10),
	}
	if d.DP > 1 {
		args = append(args, "--dp "+strconv.FormatInt(d.DP, 10))
	}
	if e.ExpertParallel && d.Model.IsMoE() {
		args = append(args, "--enable-expert-parallel")
	}
	if blocks, _, err := d.KVBlocks(); err == nil {
		args = append(args, "--total-kv-blocks "+strconv.FormatInt(blocks, 10))
	}
	if d.MaxModelLen().OK { // within the KV cache: BLIS would cap a longer one itself, with a warning
		args = append(args, "--max-model-len "+strconv.FormatInt(d.LongestSequence().V, 10))
	}
	return strings.Join(args, " ")
}

// joined returns numbers as text, separated by commas, with the digits that read back exactly.
func joined(values []float64) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = strconv.FormatFloat(v, 'g', -1, 64)
	}
	return strings.Join(texts, ",")
}
