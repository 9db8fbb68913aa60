package build

// This file exports step times as forward-pass times in AIConfigurator's format.

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// FormatFPM is the format of forward-pass times that AIConfigurator 0.12 and AISimulate 0.13 read.
const FormatFPM export.Format = "aic-fpm"

// Writers returns the export formats of this package.
func Writers() []export.Writer {
	return []export.Writer{{
		Format: FormatFPM,
		Write:  forwardPasses,
		Settings: []export.Setting{
			{Key: "backend-version", Usage: "VERSION of vLLM that names the folder; default the deployment's"}},
	}}
}

// fpmRow is a row of fpm_forward_perf.parquet (aiconfigurator 095f58a, perf_database/fpm_forward.rs).
type fpmRow struct {
	CellID       string  `col:"cell_id" doc:"configuration, by what it was made: of a model"`
	Model        string  `col:"model_path" doc:"Hugging Face id"`
	System       string  `col:"system" doc:"GPU"`
	Backend      string  `col:"backend" doc:"engine"`
	Version      string  `col:"backend_version" doc:"its version"`
	Weights      string  `col:"weight_quantization" doc:"of weights"`
	GEMM         string  `col:"gemm_quant_mode" doc:"of matrix products"`
	MoE          string  `col:"moe_quant_mode" doc:"of experts"`
	FMHA         string  `col:"fmha_quant_mode" doc:"of attention"`
	Comm         string  `col:"comm_quant_mode" doc:"of collectives"`
	KV           string  `col:"kv_cache_dtype" doc:"of the KV cache"`
	MoEBackend   string  `col:"moe_backend" doc:"kernel of experts"`
	Attention    string  `col:"attention_backend" doc:"kernel of attention"`
	Kind         string  `col:"workload_kind" doc:"prefill or decode"`
	Policy       string  `col:"partition_policy" doc:"how totals are split over requests"`
	TP           int64   `col:"tp" doc:"tensor parallel"`
	PP           int64   `col:"pp" doc:"pipeline parallel"`
	DP           int64   `col:"dp" doc:"data parallel"`
	MoETP        int64   `col:"moe_tp" doc:"tensor parallel of experts"`
	MoEEP        int64   `col:"moe_ep" doc:"expert parallel"`
	CP           int64   `col:"cp" doc:"context parallel"`
	Batch        int64   `col:"batch_size" doc:"requests"`
	PrefillToken int64   `col:"total_prefill_tokens" unit:"tokens" doc:"computed of prompts"`
	KVTokens     int64   `col:"total_kv_read_tokens" unit:"tokens" doc:"in the cache before the pass"`
	WideEP       bool    `col:"enable_wideep" doc:"experts over many nodes"`
	EPLB         bool    `col:"enable_eplb" doc:"experts are balanced"`
	LatencyMs    float64 `col:"latency_ms" unit:"ms" doc:"of the pass"`
}

// fpmMetadata is the metadata file of the table. Its reader accepts only the measurement policy of
// single samples, so cell_id is what marks the times as those of a model.
type fpmMetadata struct {
	Schema      string `json:"schema_name"`
	Version     int    `json:"schema_version"`
	Coordinates string `json:"coordinate_system"`
	Policy      string `json:"measurement_policy"`
	System      string `json:"system"`
	Backend     string `json:"backend"`
	Release     string `json:"backend_version"`
	SHA256      string `json:"parquet_sha256"`
	Rows        int    `json:"row_count"`
}

// fpmPrefix begins every cell_id, to mark the times as those of a model.
const fpmPrefix = "blis-train-model:"

// forwardPasses returns the table and the metadata of one GPU and engine version, as files below
// the output path. All chosen configurations are in one table.
func forwardPasses(src export.Source, opt export.Options) (*export.Output, error) {
	cfgs, err := src.Configs(opt.Config)
	if err != nil {
		return nil, err
	}
	first := &cfgs[0].Deployment
	system, ok := deploy.SpelledBy(deploy.AIConfigurator, first.Hardware.Name)
	if !ok {
		return nil, trace.Errorf(export.BadEntry, "%s: AIConfigurator has no system for %q", cfgs[0].Label, first.Hardware.Name)
	}
	release := cmp.Or(opt.Settings["backend-version"], first.Engine.VLLMVersion)
	if !files.IsName(release) { // it becomes a folder
		return nil, option.Misusef("--option backend-version: got %q, want the name of a folder, such as 0.15.1", release)
	}
	side := src.Sidecar(opt, FormatFPM, "AIConfigurator 0.12 (--forward-model fpm --systems-paths FILE,default), AISimulate 0.13 "+
		"(estimation_mode: fpm_interpolation); "+system+".yaml is to be copied beside data/")
	var rows []fpmRow
	for i := range cfgs {
		c := &cfgs[i]
		if c.Deployment.Hardware.Name != first.Hardware.Name {
			return nil, trace.Errorf(export.BadEntry, "%s and %s: got two GPUs, want one a table", cfgs[0].Label, c.Label).
				WithHint(fmt.Sprintf("--config %q", c.Label))
		}
		t, err := src.Timer(*c)
		if err != nil {
			return nil, err
		}
		own, err := fpmRows(c, t, system, release)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Label, err)
		}
		rows = append(rows, own...)
		side.Configs = append(side.Configs, export.SideConfig{
			Label:      c.Label,
			GridPoints: len(own),
			Seats:      c.Deployment.Engine.MaxNumSeqs,
			Note: fmt.Sprintf("times of a model, not measured: cell_id begins %s; prefill beside decodes is what the reader adds up itself; it "+
				"finds the rows by --gemm-quant-mode %s --moe-quant-mode %s --kvcache-quant-mode %s", fpmPrefix, own[0].GEMM, own[0].MoE, own[0].KV),
		})
	}
	data, err := parquetOf(rows)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(data)
	meta, err := result.Marshal(fpmMetadata{
		Schema:      "aic_fpm_forward_perf",
		Version:     6,
		Coordinates: "iteration_totals_balanced_v1",
		Policy:      "dynamo_native_single_sample_v1",
		System:      system,
		Backend:     "vllm",
		Release:     release,
		SHA256:      hex.EncodeToString(sum[:]),
		Rows:        len(rows),
	})
	if err != nil {
		return nil, err
	}
	side.Warnings = src.ValidationWarnings()
	at := "/data/" + system + "/vllm/" + release + "/fpm_forward_perf"
	return side.OutputWith(nil, export.File{Suffix: at + ".parquet", Data: data}, export.File{Suffix: at + ".metadata.json", Data: meta})
}

// parquetOf returns the bytes of a Parquet table.
func parquetOf(rows []fpmRow) ([]byte, error) {
	dir, err := os.MkdirTemp("", "fpm")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := table.Write(dir, "fpm", table.Parquet, rows); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "fpm.parquet"))
}

// fpmGrid returns whole numbers from least to most, each about a quarter larger than the one
// before.
func fpmGrid(least, most int64) (out []int64) {
	for v := least; v < most; v = max(v+1, v+v/4) {
		out = append(out, v)
	}
	return append(out, most)
}

// AIConfigurator's names of number formats.
const (
	bf16 = "bfloat16"
	fp8  = "fp8"
)

// fpmRows returns the passes of one configuration: decodes by batch and total context, prompts by
// batch, new tokens and context. The grids are rectangular because the reader never extrapolates.
func fpmRows(c *result.FitConfig, timer export.StepTimer, system, release string) ([]fpmRow, error) {
	d := &c.Deployment
	e, m := &d.Engine, &d.Model
	blocks, _, err := d.KVBlocks()
	if err != nil {
		return nil, err
	}
	kvName := bf16
	if m.BytesPerKV < 2 {
		kvName = fp8
	}
	gemm, experts := "", "" // dtypes of the first linear layer and of the experts, in AIConfigurator's words
	for _, l := range cmp.Or(m.Decoder, m.Layers()).Layers {
		if l.Mixer != nil && gemm == "" {
			gemm = library.DTypeOf(&l.Mixer.Linears[0].Quant)
		}
		if l.FFN != nil && l.FFN.Kind == model.Experts {
			i := slices.IndexFunc(l.FFN.Linears, func(l model.Linear) bool { return l.Placement == model.ByExpert })
			experts = library.DTypeOf(&l.FFN.Linears[i].Quant)
		}
	}
	row := fpmRow{ // what all rows of the configuration have in common
		CellID:     fpmPrefix + c.Key,
		Model:      m.ID,
		System:     system,
		Backend:    "vllm",
		Version:    release,
		Weights:    gemm,
		GEMM:       gemm,
		MoE:        cmp.Or(experts, gemm),
		FMHA:       bf16,
		Comm:       "half",
		KV:         kvName,
		MoEBackend: "auto",
		Attention:  "auto",
		Policy:     "balanced_v1",
		TP:         d.TP,
		PP:         d.PP,
		DP:         d.DP,
		MoETP:      1,
		MoEEP:      1,
		CP:         1,
	}
	switch {
	case m.IsMoE() && e.ExpertParallel:
		row.MoEEP = d.TP * d.DP
	case m.IsMoE():
		row.MoETP = d.TP * d.DP
	}
	// Every row is one pass whose requests share its tokens evenly.
	var out []fpmRow
	add := func(kind string, requests, tokens, context int64) error {
		us, err := timer.StepUs(balancedBatch(requests, tokens, context))
		if err != nil {
			return err
		}
		if !(us > 0) || math.IsInf(us, 0) {
			return trace.Errorf(export.PoorProjection, "%d requests, %d prompt and %d context tokens: got %g us, want above 0", requests, tokens,
				context, us)
		}
		row.Kind = kind
		row.Batch = requests
		row.PrefillToken = tokens
		row.KVTokens = context
		row.LatencyMs = us / 1e3
		out = append(out, row)
		return nil
	}
	tokens := blocks * e.BlockSize                                   // room in the KV cache
	for requests := int64(1); requests <= e.MaxNumSeqs; requests++ { // all: between batches the reader goes by its own roofline
		for _, context := range append([]int64{1}, fpmGrid(1024, tokens)...) {
			if err := add("decode", requests, 0, context); err != nil {
				return nil, err
			}
		}
	}
	prompts, err := refinedGrid(timer, fpmGrid(1, e.MaxNumBatchedTokens))
	if err != nil {
		return nil, err
	}
	longest := d.LongestSequence().Or(tokens)
	for _, requests := range fpmGrid(1, e.MaxNumBatchedTokens/16) { // prompts of 16 tokens and more fill a pass
		contexts := append([]int64{0}, fpmGrid(64, min(tokens, requests*longest))...)
		for _, promptTokens := range prompts {
			for _, context := range contexts {
				if promptTokens < requests {
					continue
				}
				if err := add("prefill", requests, promptTokens, context); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

// straight is the relative distance that a prompt's time may have from the line between its
// neighbours on the grid.
const straight = 0.003

// refinedGrid returns the grid with prompt lengths added where the time of one prompt is not
// linear, which is where arithmetic becomes slower than reading memory: intervals are halved until their
// middle is within straight of the line between their ends, or they have at most 3 tokens.
func refinedGrid(t export.StepTimer, grid []int64) ([]int64, error) {
	var failed error
	us := func(tokens int64) float64 {
		v, err := t.StepUs(balancedBatch(1, tokens, 0))
		failed = errors.Join(failed, err)
		return v
	}
	out := grid[:1:1]
	var split func(lo, hi int64)
	split = func(lo, hi int64) {
		mid := (lo + hi) / 2
		if at := us(mid); hi-lo > 3 && math.Abs(0.5*(us(lo)+us(hi))-at) > straight*at {
			split(lo, mid)
			split(mid, hi)
			return
		}
		out = append(out, hi)
	}
	for i := 1; i < len(grid); i++ {
		split(grid[i-1], grid[i])
	}
	return out, failed
}

// balancedBatch returns a pass of n requests that share the new prompt tokens and the context evenly, as
// AIConfigurator's partition policy balanced_v1 states of a row; the first requests have one more where n
// does not divide a total. With 0 new prompt tokens every request decodes one.
func balancedBatch(n, tokens, context int64) []trace.Chunk {
	out := make([]trace.Chunk, n)
	for i := range n {
		part := func(total int64) int64 {
			if i < total%n {
				return total/n + 1
			}
			return total / n
		}
		had := part(context)
		if tokens == 0 {
			had = max(1, had)
			out[i] = trace.Chunk{Computed: had, Prompt: had, New: 1}
			continue
		}
		computed := part(tokens)
		out[i] = trace.Chunk{Computed: had, Prompt: had + computed, New: computed}
	}
	return out
}
