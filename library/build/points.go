package build

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/blis-train/blis-train/vllm"
)

// point is one measured load level of a named server.
type point struct {
	requestfit.Level
	id, model, system, weights, measured string
	tp, ep                               int64
	flags                                []string // of its server, that change kernels and not the family
	otherTTFTMs, otherTPOTMs             float64  // what AIConfigurator predicts; NaN where it refuses
}

// pointColumns are those a file of points must have.
var pointColumns = []string{"id", "model", "system", "weights", "tp", "input_tokens", "output_tokens", "concurrency", "ttft_ms", "tpot_ms"}

// repeatShare is by how much two rows of one deployment and load may differ and still be one measurement, copied.
const repeatShare = 1e-3

// readPoints reads measured points: a CSV with the columns of pointColumns. Rows labelled attention_dp above 1 are taken as tensor
// parallel with whole experts, which is what their values are. Copies count once. Code: bad_points.
func readPoints(path string) ([]*point, result.Input, error) {
	data, err := files.ReadAll(path)
	if err != nil {
		return nil, result.Input{}, err
	}
	in := folder.InputOf(filepath.Base(path), data)
	list, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil || len(list) < 2 {
		return nil, in, badPoints(path, 1, "got no rows (%v), want %s", err, strings.Join(pointColumns, ","))
	}
	for _, want := range pointColumns {
		if !slices.Contains(list[0], want) {
			return nil, in, badPoints(path, 1, "got no column %q, want it", want)
		}
	}
	var out []*point
	dated := map[string]bool{}
	for i, row := range list[1:] {
		p, err := pointRow(path, int64(i+2), list[0], row)
		if err != nil {
			return nil, in, err
		}
		dated[p.model] = dated[p.model] || p.measured != ""
		if !slices.ContainsFunc(out, p.copies) {
			out = append(out, p)
		}
	}
	for _, p := range out {
		if dated[p.model] { // of the public benchmark that draws lengths
			p.measured = cmp.Or(p.measured, "undated")
		}
	}
	return out, in, nil
}

// copies reports whether another row is this measurement.
func (p *point) copies(o *point) bool {
	near := func(a, b float64) bool { return math.Abs(a/b-1) < repeatShare }
	return p.model == o.model && p.weights == o.weights && p.system == o.system && p.tp == o.tp && p.ep == o.ep &&
		p.InputTokens == o.InputTokens && p.OutputTokens == o.OutputTokens && p.Concurrency == o.Concurrency &&
		near(p.TTFTMs, o.TTFTMs) && near(p.TPOTMs, o.TPOTMs)
}

func badPoints(path string, line int64, format string, args ...any) error {
	return &trace.SyntaxError{
		File: path,
		Line: line,
		Col:  1,
		Code: requestfit.BadPoints,
		Msg:  "measured points: " + fmt.Sprintf(format, args...),
		Hint: "the columns are " + strings.Join(pointColumns, ","),
	}
}

// pointRow reads one row.
func pointRow(path string, line int64, header, row []string) (*point, error) {
	text := map[string]string{}
	for i, name := range header {
		text[name] = row[i]
	}
	var failed error
	number := func(name string, least float64) float64 {
		v, err := strconv.ParseFloat(text[name], 64)
		if err != nil || !(v >= least) || math.IsInf(v, 0) {
			failed = errors.Join(failed, badPoints(path, line, "%s: got %q, want a number of at least %g", name, text[name], least))
		}
		return v
	}
	optional := func(name string) float64 {
		v, err := strconv.ParseFloat(text[name], 64)
		if err != nil {
			return math.NaN()
		}
		return v
	}
	p := &point{
		id:          text["id"],
		model:       text["model"],
		system:      text["system"],
		weights:     text["weights"],
		measured:    text["measured"],
		otherTTFTMs: optional("aiconfigurator_ttft_ms"),
		otherTPOTMs: optional("aiconfigurator_tpot_ms"),
	}
	p.Level = requestfit.Level{
		Version:      text["engine_version"],
		InputTokens:  trace.Int(number("input_tokens", 1)),
		OutputTokens: trace.Int(number("output_tokens", 2)),
		Concurrency:  int(number("concurrency", 1)),
		TTFTMs:       number("ttft_ms", 1e-9),
		TPOTMs:       number("tpot_ms", 1e-9),
	}
	p.tp = trace.Int(number("tp", 1))
	p.ep = 1
	if optional("moe_ep") > 1 {
		p.ep = p.tp
	}
	if optional("attention_dp") > 1 {
		p.otherTTFTMs = math.NaN()
		p.otherTPOTMs = math.NaN() // measured with whole experts per GPU and tensor parallelism
	}
	return p, failed
}

// load is what a real server was given and how it answered, to be simulated: a measured point, or a recorded run whose requests have
// times but whose steps have none.
type load struct {
	name, group, family string // group: as printed; family: what is left out together
	dep                 *deploy.Deployment
	step                *library.Step
	kvBlocks            int64
	reqs                []sim.Request
	ttftMs, tpotMs      float64 // means over requests
	tpotWeight          float64 // what the two count as, in points
	ttftWeight          float64
	point               *point // nil: a run
}

// What a recorded run counts as, in points of which each is a run of its own.
const servedCount = 5

// pointEngine has vLLM's defaults for servers.
var pointEngine = vllm.Engine{
	MaxNumSeqs:          1024,
	MaxNumBatchedTokens: 8192,
	ChunkedPrefill:      true,
}.WithDefaults()

// load is the point as the public benchmarks of this kind do it: a closed loop, ten requests per client.
func (p *point) load(models string) (*load, error) {
	h, ok := deploy.Datasheet(p.system)
	if !ok {
		return nil, trace.Errorf(deploy.BadHardware, "system: got %q, want a built-in device", p.system)
	}
	decoder, m, err := p.decoder(models)
	if err != nil {
		return nil, err
	}
	d := &deploy.Deployment{
		Name:     p.id,
		Model:    m,
		Hardware: h,
		TP:       p.tp,
		PP:       1,
		DP:       1,
		Engine:   pointEngine,
	}
	d.Engine.VLLMVersion = p.Version
	d.Engine.ExpertParallel = p.ep > 1
	p.recipe(d, decoder)
	p.Deployment = d
	family := fmt.Sprintf("%s %s, %s", p.model[strings.Index(p.model, "/")+1:], p.weights, h.Name)
	l := &load{
		name:       p.id,
		group:      family,
		family:     family,
		dep:        d,
		ttftMs:     p.TTFTMs,
		tpotMs:     p.TPOTMs,
		tpotWeight: 1,
		point:      p,
	}
	if p.ep > 1 {
		l.group += ", EP"
	}
	harness := requestfit.ConstantHarness
	if p.measured != "" {
		harness = requestfit.SpreadHarness
	}
	if l.reqs, err = p.Requests(harness); err != nil {
		return nil, err
	}
	// the blocks of KV cache that fit: tokens of whole requests; windows hold no more than they see
	weights := decoder.WeightBytesPerGPU(model.Parallel{TP: d.TP, PP: 1, DP: 1})
	free := (1<<30)*(0.99*d.Hardware.MemoryGB*d.Engine.GPUMemoryUtilization-otherGB) - weights
	l.kvBlocks = int64(free / decoder.Cache(decoder.KVBytes, d.TP).BytesPerToken / float64(d.Engine.BlockSize))
	l.step, err = library.Bound(d, library.Options{Decoder: decoder})
	return l, err
}

// recipe are the flags of the public benchmark that most points are of (SemiAnalysisAI/InferenceX, benchmarks/single_node): Llama and
// Kimi on B200 fuse the all-reduce; their caches and that of MiniMax after vLLM 0.17 are fp8; gpt-oss on H100 takes Marlin's experts
// and captures graphs up to 2048 tokens.
func (p *point) recipe(d *deploy.Deployment, m *model.Decoder) {
	d.Engine.Extra = map[string]any{}
	switch b200 := strings.HasPrefix(d.Hardware.Name, "B200"); {
	case strings.Contains(p.model, "gpt-oss"):
		d.Engine.Extra["moe_backend"] = "marlin"
		d.Engine.Extra["max_cudagraph_capture_size"] = 2048
		p.flags = []string{"--max-cudagraph-capture-size 2048"}
	case strings.Contains(p.model, "MiniMax"):
		d.Engine.GPUMemoryUtilization = 0.95
		if !strings.HasPrefix(p.Version, "0.17") {
			m.KVBytes = 1
			p.flags = []string{"--kv-cache-dtype fp8"}
		}
	case b200:
		if m.KVBytes, p.flags = 1, []string{"--kv-cache-dtype fp8"}; p.tp > 1 {
			d.Engine.Extra["compilation_config"] = `{"pass_config":{"fuse_allreduce_rms":true}}`
			p.flags = append(p.flags, "fuse_allreduce_rms")
		}
	}
}

// published are the configurations of models that are served under another name, or with weights of another publisher.
var published = map[string]string{"meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
	"moonshotai/Kimi-K2.5": "nvidia/Kimi-K2.5-NVFP4"}

// pointWeights are weights that a point names and its model's configuration does not.
var pointWeights = map[string]model.Quant{"fp8": {Algorithm: "fp8", BytesPerWeight: 1, ActivationBits: 8},
	"nvfp4": {Algorithm: "nvfp4", BytesPerWeight: 0.5625, ActivationBits: 4}}

// decoder is the model of a point: <models>/<org>--<name>_config.json.
func (p *point) decoder(models string) (*model.Decoder, model.Model, error) {
	name := cmp.Or(published[p.model], p.model)
	d, err := model.ReadDecoderFile(filepath.Join(models, strings.ReplaceAll(name, "/", "--")+"_config.json"), model.Options{})
	if err != nil {
		return nil, model.Model{}, err
	}
	q, asked := pointWeights[p.weights]
	for i := range d.Layers {
		l := &d.Layers[i]
		for _, ls := range [][]model.Linear{l.Mixer.Linears, l.FFN.Linears} {
			// Weights are replaced only while every layer so far is dense, unquantized and has grouped-query attention.
			asked = asked && ls[0].Quant.Algorithm == "" && l.FFN.Kind == model.Dense && l.Mixer.Kind == model.GQA
			if !asked {
				continue
			}
			for j := range ls {
				ls[j].Quant = q
			}
		}
	}
	m := model.Model{ID: p.model}
	if strings.Contains(p.model, "MiniMax-M2") {
		m.ModelType = "minimax_m2"
	}
	return d, m, nil
}

// otherGB is the GPU memory that neither weights nor the KV cache use.
const otherGB = 4

// loadsOf are the points of some files, each under the harness of its group.
func loadsOf(paths []string, models string) ([]*load, []result.Input, error) {
	var out []*load
	var ins []result.Input
	size := map[string]int{}
	for _, path := range paths {
		points, in, err := readPoints(path)
		if err != nil {
			return nil, nil, err
		}
		ins = append(ins, in)
		for _, p := range points {
			l, err := p.load(models)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %s: %w", path, p.id, err)
			}
			out = append(out, l)
			size[l.family]++
		}
	}
	for _, l := range out {
		l.ttftWeight = min(1, ttftCount/float64(size[l.family]))
		if !l.listed() {
			l.tpotWeight = 0
			l.ttftWeight = 0
		}
	}
	return out, ins, nil
}

// servedOf is the load of a run of stock spans; nil without spans. Spans count cached tokens as prompt and
// do not identify contents, so the tokens that all prompts share come from the run's folder.
func servedOf(name string, run *trace.Run, d *deploy.Deployment, dir string) (*load, error) {
	var list []*trace.Request
	for i := range run.Requests {
		r := &run.Requests[i]
		hasTimes := r.StartWallNs.OK && r.StockDecodeUs.OK && r.StockTTFTUs.OK
		if hasTimes && r.PromptTokens.OK && r.OutputTokens.Or(0) > 1 {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	slices.SortFunc(list, func(a, b *trace.Request) int { return cmp.Compare(a.StartWallNs.V, b.StartWallNs.V) })
	shared, err := sharedTokens(dir)
	if err != nil {
		return nil, err
	}
	l := &load{
		name:       name,
		group:      name,
		family:     name,
		dep:        d,
		tpotWeight: servedCount,
		ttftWeight: 1,
	}
	n := float64(len(list))
	for _, r := range list {
		l.reqs = append(l.reqs, sim.Request{
			ArrivalUs:    (r.StartWallNs.V - list[0].StartWallNs.V) / 1e3,
			PromptTokens: r.PromptTokens.V,
			OutputTokens: r.OutputTokens.V,
			Group:        1,
			GroupTokens:  min(shared, r.PromptTokens.V),
		})
		l.ttftMs += r.StockTTFTUs.V / 1e3 / n
		l.tpotMs += r.StockDecodeUs.V / float64(r.OutputTokens.V-1) / 1e3 / n
	}
	l.step, err = library.Bound(d, library.Options{})
	return l, err
}

// cycles are the measured step cycles of one real run: times in us and what they are linear in.
type cycles struct {
	name, gpu string
	us        []float64
	x         [][library.NumStep]float64 // columns of kernels.Pricer
}

// readRuns extracts run folders: runs of recorded steps become cycles, runs of stock spans loads.
func readRuns(ctx context.Context, dirs []string) (ys []*cycles, ls []*load, inputs []result.Input, err error) {
	if len(dirs) == 0 {
		return nil, nil, nil, nil
	}
	found, err := extract.Discover(dirs)
	if err != nil {
		return nil, nil, nil, err
	}
	tmp, remove, err := files.Temporary("", "blis-train-library-")
	if err != nil {
		return nil, nil, nil, err
	}
	defer remove()
	o := extract.DefaultOptions()
	o.Out = tmp
	doc, err := extract.Run(ctx, found, o)
	if err != nil {
		return nil, nil, nil, err
	}
	dirOf := map[string]string{}
	for _, d := range found {
		dirOf[d.ID] = d.Dir
	}
	for _, r := range doc.Runs {
		run, err := table.Read(table.RunDir(tmp, r.ID))
		if err != nil {
			return nil, nil, nil, err
		}
		l, err := servedOf(r.ID, run, r.Deployment, dirOf[r.ID])
		if l != nil {
			ls = append(ls, l)
		} else if err == nil {
			var y *cycles
			y, err = cyclesOf(r.ID, run, r.Deployment)
			ys = append(ys, y)
		}
		if err != nil {
			return nil, nil, nil, err
		}
	}
	return ys, ls, doc.Inputs, nil
}

// sharedTokens is the number of first prompt tokens that all requests of a run share, from the profile of
// its load generator (GuideLLM's profile.yaml); 0 without a profile.
func sharedTokens(dir string) (int64, error) {
	path := filepath.Join(dir, "profile.yaml")
	text, err := files.ReadAll(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var profile struct {
		Data struct {
			PrefixTokens int64 `yaml:"prefix_tokens"`
		}
	}
	root, err := files.ParseYAML(text, path)
	if root == nil || err != nil {
		return 0, err
	}
	err = root.Decode(&profile)
	return profile.Data.PrefixTokens, err
}

// cyclesOf are the clean rows of one run.
func cyclesOf(name string, run *trace.Run, d *deploy.Deployment) (*cycles, error) {
	steps, err := rows.Rebuild(run, d, features.V12)
	if err != nil {
		return nil, err
	}
	space, err := features.New(features.V12, d)
	if err != nil {
		return nil, err
	}
	bound, err := library.Bound(d, library.Options{})
	if err != nil {
		return nil, err
	}
	price := bound.NewPricer()
	vec := rows.Vectorizer{P: library.NumStep, Step: func(in *features.StepInput, _ []trace.Member, x []float64) (features.Hits, error) {
		var to [library.NumStep]float64
		price.Columns(&library.Batch{
			Tokens:        in.ScheduledTokens,
			Sequences:     in.NumSampledSeqs,
			Decodes:       in.NumDecodeReqs,
			DecodeContext: in.DecodeContextTokens - in.NumDecodeReqs,
			Prefills:      in.NumPrefillReqs,
			PrefillTokens: in.PrefillTokens,
			PrefillPairs:  in.PrefillCausalWork,
		}, &to)
		copy(x, to[:])
		return 0, nil
	}}
	tab, err := steps.BetaBasis(space, vec, rows.Options{Lag: rows.AssumedLag(d)})
	if err != nil {
		return nil, err
	}
	rows.Clean([]*rows.Table{tab}, rows.Relative)
	y := &cycles{name: name, gpu: d.Hardware.Name}
	for i := range tab.Kept {
		y.us = append(y.us, tab.Y[i])
		y.x = append(y.x, [library.NumStep]float64(tab.Row(i)))
	}
	return y, nil
}

// FormatFPM are forward-pass times as AIConfigurator 0.12 and AISimulate 0.13 take them.
const FormatFPM export.Format = "aic-fpm"

// Writers are the formats of this package.
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

// fpmMetadata is the metadata file of the table. Its reader accepts only the measurement policy of single
// samples, so cell_id states that the times come from a model.
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

// fpmPrefix begins every cell_id: the times are of a model.
const fpmPrefix = "blis-train-model:"

// forwardPasses writes the pair of one GPU and engine version under FILE as its root, all chosen configurations of them in one table.
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
	meta, err := result.Marshal(fpmMetadata{"aic_fpm_forward_perf", 6, "iteration_totals_balanced_v1", "dynamo_native_single_sample_v1",
		system, "vllm", release, hex.EncodeToString(sum[:]), len(rows)})
	if err != nil {
		return nil, err
	}
	side.Warnings = src.ValidationWarnings()
	at := "/data/" + system + "/vllm/" + release + "/fpm_forward_perf"
	return side.Beside(nil, export.File{Suffix: at + ".parquet", Data: data}, export.File{Suffix: at + ".metadata.json", Data: meta})
}

// parquetOf are the bytes of a table.
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

// fpmGrid are whole numbers from least to most, about a quarter apart.
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

// fpmRows are the passes of one configuration: decodes by batch and total context, prompts by batch, new tokens and context,
// rectangular because the reader never extrapolates.
func fpmRows(c *result.FitConfig, t export.StepTimer, system, release string) ([]fpmRow, error) {
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
	gemm, experts := "", ""
	for _, l := range cmp.Or(m.Decoder, m.Layers()).Layers {
		if l.Mixer != nil && gemm == "" {
			gemm = library.DTypeOf(&l.Mixer.Linears[0].Quant)
		}
		if l.FFN != nil && l.FFN.Kind == model.Experts {
			i := slices.IndexFunc(l.FFN.Linears, func(l model.Linear) bool { return l.Placement == model.ByExpert })
			experts = library.DTypeOf(&l.FFN.Linears[i].Quant)
		}
	}
	row := fpmRow{
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
	var out []fpmRow
	add := func(kind string, n, tokens, context int64) error {
		us, err := t.StepUs(balancedBatch(n, tokens, context))
		if err != nil {
			return err
		}
		if !(us > 0) || math.IsInf(us, 0) {
			return trace.Errorf(export.PoorProjection, "%d requests, %d prompt and %d context tokens: got %g us, want above 0", n, tokens,
				context, us)
		}
		row.Kind = kind
		row.Batch = n
		row.PrefillToken = tokens
		row.KVTokens = context
		row.LatencyMs = us / 1e3
		out = append(out, row)
		return nil
	}
	tokens := blocks * e.BlockSize
	for n := int64(1); n <= e.MaxNumSeqs; n++ { // all: between batches the reader goes by its own roofline
		for _, context := range append([]int64{1}, fpmGrid(1024, tokens)...) {
			if err := add("decode", n, 0, context); err != nil {
				return nil, err
			}
		}
	}
	prompts, err := refinedGrid(t, fpmGrid(1, e.MaxNumBatchedTokens))
	if err != nil {
		return nil, err
	}
	longest := d.LongestSequence().Or(tokens)
	for _, n := range fpmGrid(1, e.MaxNumBatchedTokens/16) {
		contexts := append([]int64{0}, fpmGrid(64, min(tokens, n*longest))...)
		for _, of := range prompts {
			for _, context := range contexts {
				if of < n {
					continue
				}
				if err := add("prefill", n, of, context); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

// straight is how far a prompt's time may be from the line between its neighbours on the grid.
const straight = 0.003

// refinedGrid puts lengths of prompts between those of the grid where a pass of one prompt is no line: where arithmetic takes over from memory.
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

// balancedBatch is a pass of n requests that share the tokens and the context evenly; without tokens they decode.
func balancedBatch(n, tokens, context int64) []trace.Chunk {
	out := make([]trace.Chunk, n)
	for i := range n {
		part := func(total int64) int64 { return total/n + min(1, max(0, total%n-i)) }
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
