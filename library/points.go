package library

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/kernels"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// point is one measured load level of a named server.
type point struct {
	learn.Level
	id, model, system, weights, measured string
	tp, ep                               int64
	relabelled                           bool    // labelled with DP attention: measured with whole experts per GPU and tensor parallelism
	otherTTFTMs, otherTPOTMs             float64 // what AIConfigurator predicts; NaN where it refuses
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
	return &trace.SyntaxError{File: path, Line: line, Col: 1, Code: learn.BadPoints, Msg: "measured points: " + fmt.Sprintf(format, args...),
		Hint: "the columns are " + strings.Join(pointColumns, ",")}
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
	p := &point{id: text["id"], model: text["model"], system: text["system"], weights: text["weights"], measured: text["measured"],
		otherTTFTMs: optional("aiconfigurator_ttft_ms"), otherTPOTMs: optional("aiconfigurator_tpot_ms")}
	p.Level = learn.Level{Version: text["engine_version"], InputTokens: trace.Int(number("input_tokens", 1)),
		OutputTokens: trace.Int(number("output_tokens", 2)), Concurrency: int(number("concurrency", 1)), TTFTMs: number("ttft_ms", 1e-9),
		TPOTMs: number("tpot_ms", 1e-9)}
	p.tp, p.ep = trace.Int(number("tp", 1)), 1
	if optional("moe_ep") > 1 {
		p.ep = p.tp
	}
	if optional("attention_dp") > 1 {
		p.relabelled, p.otherTTFTMs, p.otherTPOTMs = true, math.NaN(), math.NaN()
	}
	return p, failed
}

// load is what a real server was given and how it answered, to be simulated: a measured point, or a recorded run whose requests have
// times but whose steps have none.
type load struct {
	name, group, family string // group: as printed; family: what is left out together
	dep                 *deploy.Deployment
	step                *kernels.Step
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
var pointEngine = deploy.Engine{MaxNumSeqs: 1024, MaxNumBatchedTokens: 8192, ChunkedPrefill: true, BlockSize: deploy.DefaultBlockSize,
	GPUMemoryUtilization: deploy.DefaultGPUMemoryUtilization, SchedulingPolicy: deploy.DefaultSchedulingPolicy}

// load is the point as the public benchmarks of this kind do it: a closed loop, ten requests per client.
func (p *point) load(models string) (*load, error) {
	h, ok := deploy.Datasheet(p.system)
	if !ok {
		return nil, trace.Errorf(deploy.BadHardware, "system: got %q, want a built-in device", p.system)
	}
	decoder, model, err := p.decoder(models)
	if err != nil {
		return nil, err
	}
	d := &deploy.Deployment{Name: p.id, Model: model, Hardware: h, TP: p.tp, PP: 1, DP: 1, Engine: pointEngine}
	d.Engine.VLLMVersion, d.Engine.ExpertParallel = p.Version, p.ep > 1
	p.recipe(d, decoder)
	p.Deployment = d
	family := fmt.Sprintf("%s %s, %s", p.model[strings.Index(p.model, "/")+1:], p.weights, h.Name)
	l := &load{name: p.id, group: family, family: family, dep: d, ttftMs: p.TTFTMs, tpotMs: p.TPOTMs, tpotWeight: 1, point: p}
	if p.ep > 1 {
		l.group += ", EP"
	}
	harness := learn.ConstantHarness
	if p.measured != "" {
		harness = learn.SpreadHarness
	}
	if l.reqs, err = p.Requests(harness); err != nil {
		return nil, err
	}
	l.kvBlocks = kvBlocks(d, decoder)
	l.step, err = kernels.Bound(d, kernels.Options{Decoder: decoder})
	return l, err
}

// recipe are the flags of the public benchmark that most points are of (SemiAnalysisAI/InferenceX, benchmarks/single_node): Llama and
// Kimi on B200 fuse the all-reduce; their caches and that of MiniMax after vLLM 0.17 are fp8; gpt-oss on H100 takes Marlin's experts
// and captures graphs up to 2048 tokens.
func (p *point) recipe(d *deploy.Deployment, m *deploy.Decoder) {
	extra := map[string]any{}
	switch b200 := strings.HasPrefix(d.Hardware.Name, "B200"); {
	case strings.Contains(p.model, "gpt-oss"):
		extra["moe_backend"], extra["max_cudagraph_capture_size"] = "marlin", 2048
	case strings.Contains(p.model, "MiniMax"):
		d.Engine.GPUMemoryUtilization = 0.95
		if !strings.HasPrefix(p.Version, "0.17") {
			m.KVBytes = 1
		}
	case b200:
		m.KVBytes = 1
		if p.tp > 1 {
			extra["compilation_config"] = `{"pass_config":{"fuse_allreduce_rms":true}}`
		}
	}
	d.Engine.Extra = extra
}

// published are the configurations of models that are served under another name, or with weights of another publisher.
var published = map[string]string{"meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
	"moonshotai/Kimi-K2.5": "nvidia/Kimi-K2.5-NVFP4"}

// pointWeights are weights that a point names and its model's configuration does not.
var pointWeights = map[string]deploy.Quant{"fp8": {Algorithm: "fp8", BytesPerWeight: 1, ActivationBits: 8},
	"nvfp4": {Algorithm: "nvfp4", BytesPerWeight: 0.5625, ActivationBits: 4}}

// decoder is the model of a point: <models>/<org>--<name>_config.json.
func (p *point) decoder(models string) (*deploy.Decoder, deploy.Model, error) {
	name := cmp.Or(published[p.model], p.model)
	d, err := deploy.ReadDecoderFile(filepath.Join(models, strings.ReplaceAll(name, "/", "--")+"_config.json"), deploy.ModelOptions{})
	if err != nil {
		return nil, deploy.Model{}, err
	}
	q, asked := pointWeights[p.weights]
	for i := range d.Layers {
		l := &d.Layers[i]
		for _, ls := range [][]deploy.Linear{l.Mixer.Linears, l.FFN.Linears} {
			if asked = asked && ls[0].Quant.Algorithm == "" && l.FFN.Kind == deploy.Dense && l.Mixer.Kind == deploy.GQA; asked {
				for j := range ls {
					ls[j].Quant = q
				}
			}
		}
	}
	m := deploy.Model{ID: p.model}
	if strings.Contains(p.model, "MiniMax-M2") {
		m.ModelType = "minimax_m2"
	}
	return d, m, nil
}

// otherGB is what a GPU's memory holds beside weights and cache.
const otherGB = 4

// kvBlocks are the blocks of KV cache that fit: tokens of whole requests; windows hold no more than they see.
func kvBlocks(d *deploy.Deployment, m *deploy.Decoder) int64 {
	weights := m.WeightBytesPerGPU(deploy.Parallel{TP: d.TP, PP: 1, DP: 1})
	free := float64((1<<30)*(float64(0.99*d.Hardware.MemoryGB*d.Engine.GPUMemoryUtilization)-otherGB)) - weights
	return int64(free / m.Cache(m.KVBytes, d.TP).BytesPerToken / float64(d.Engine.BlockSize))
}

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
		if l.ttftWeight = min(1, ttftCount/float64(size[l.family])); !l.listed() {
			l.tpotWeight, l.ttftWeight = 0, 0
		}
	}
	return out, ins, nil
}

// servedOf is the load of a run of stock spans; nil when it has none. sharedTokens are the first tokens that all prompts share: spans
// count cached tokens as prompt and name no contents.
func servedOf(name string, run *trace.Run, d *deploy.Deployment, sharedTokens int64) (*load, error) {
	var list []*trace.Request
	for i := range run.Requests {
		if r := &run.Requests[i]; r.StartWallNs.OK && r.PromptTokens.OK && r.OutputTokens.Or(0) > 1 && r.StockDecodeUs.OK && r.StockTTFTUs.OK {
			list = append(list, r)
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	slices.SortFunc(list, func(a, b *trace.Request) int { return cmp.Compare(a.StartWallNs.V, b.StartWallNs.V) })
	l := &load{name: name, group: name, family: name, dep: d, tpotWeight: servedCount, ttftWeight: 1}
	n := float64(len(list))
	for _, r := range list {
		l.reqs = append(l.reqs, sim.Request{ArrivalUs: (r.StartWallNs.V - list[0].StartWallNs.V) / 1e3, PromptTokens: r.PromptTokens.V,
			OutputTokens: r.OutputTokens.V, Group: 1, GroupTokens: min(sharedTokens, r.PromptTokens.V)})
		l.ttftMs += r.StockTTFTUs.V / 1e3 / n
		l.tpotMs += r.StockDecodeUs.V / float64(r.OutputTokens.V-1) / 1e3 / n
	}
	var err error
	l.step, err = kernels.Bound(d, kernels.Options{})
	return l, err
}

// cycles are the measured step cycles of one real run: times in us and what they are linear in.
type cycles struct {
	name, gpu string
	us        []float64
	x         [][kernels.NumStep]float64 // columns of kernels.Pricer
}

// readRuns extracts run folders: runs of recorded steps become cycles, runs of stock spans loads.
func readRuns(ctx context.Context, dirs []string) (ys []*cycles, ls []*load, inputs []result.Input, err error) {
	if len(dirs) == 0 {
		return nil, nil, nil, nil
	}
	found, err := extract.Discover(dirs, nil, nil)
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
		shared, err := sharedTokens(dirOf[r.ID])
		if err != nil {
			return nil, nil, nil, err
		}
		l, err := servedOf(r.ID, run, r.Deployment, shared)
		if err != nil {
			return nil, nil, nil, err
		}
		if l != nil {
			ls = append(ls, l)
			continue
		}
		y, err := cyclesOf(r.ID, run, r.Deployment)
		if err != nil {
			return nil, nil, nil, err
		}
		ys = append(ys, y)
	}
	return ys, ls, doc.Inputs, nil
}

// sharedTokens are the first prompt tokens that all requests of a run share, as the profile of its load generator (GuideLLM's
// profile.yaml) says; 0 without one.
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
		} `yaml:"data"`
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
	bound, err := kernels.Bound(d, kernels.Options{})
	if err != nil {
		return nil, err
	}
	price := bound.NewPricer()
	vec := rows.Vectorizer{P: kernels.NumStep, Step: func(in *features.StepInput, _ []trace.Member, x []float64) (features.Hits, error) {
		var to [kernels.NumStep]float64
		price.Columns(&kernels.Batch{Tokens: in.ScheduledTokens, Sequences: in.NumSampledSeqs, Decodes: in.NumDecodeReqs,
			DecodeContext: in.DecodeContextTokens - in.NumDecodeReqs, Prefills: in.NumPrefillReqs, PrefillTokens: in.PrefillTokens,
			PrefillPairs: in.PrefillCausalWork}, &to)
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
		y.us, y.x = append(y.us, tab.Y[i]), append(y.x, [kernels.NumStep]float64(tab.Row(i)))
	}
	return y, nil
}
