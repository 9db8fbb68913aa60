package build

// This file reads measured points, means of load levels on named servers, and makes the load that a
// simulation has to serve for each.

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// point is one measured load level of a named server.
type point struct {
	requestfit.Level // the load, and its measured means
	id               string
	model            string  // Hugging Face name
	system           string  // GPU
	weights          string  // their quantization, as the point's label has it
	measured         string  // date; "": not stated
	tp               int64   // tensor-parallel ranks
	ep               int64   // ranks over which whole experts are spread; 1: experts are divided
	served           *served // what ran; nil: unknown, and the labels are taken

	otherTTFTMs, otherTPOTMs float64 // what AIConfigurator predicts; NaN where it refuses
}

// pointColumns are those a file of points must have.
var pointColumns = []string{"id", "model", "system", "weights", "tp", "input_tokens", "output_tokens", "concurrency", "ttft_ms", "tpot_ms"}

// repeatShare is by how much two rows of one deployment and load may differ and still count as
// copies of one measurement.
const repeatShare = 1e-3

// readPoints returns the measured points in a CSV file with the columns of pointColumns. Rows
// labelled attention_dp above 1 are read as tensor parallel with whole experts, which their values
// show them to be. Copies count once. Code: bad_points.
func readPoints(path string, flags map[string]*served) ([]*point, result.Input, error) {
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
	dated := map[string]bool{} // by model: whether any of its points states a date
	for i, row := range list[1:] {
		p, err := pointRow(path, int64(i+2), list[0], row)
		if err != nil {
			return nil, in, err
		}
		if s := flags[p.id]; s != nil {
			p.served = s
			p.tp = s.TP
			p.ep = 1
			if s.ExpertParallel {
				p.ep = s.TP
			}
		}
		dated[p.model] = dated[p.model] || p.measured != ""
		if !slices.ContainsFunc(out, p.copies) {
			out = append(out, p)
		}
	}
	// Points with a date are of the public benchmark that draws lengths (see load), and so are the others of their
	// models.
	for _, p := range out {
		if dated[p.model] {
			p.measured = cmp.Or(p.measured, "undated")
		}
	}
	return out, in, nil
}

// copies reports whether another row is a copy of this measurement.
func (p *point) copies(o *point) bool {
	near := func(a, b float64) bool { return math.Abs(a/b-1) < repeatShare }
	return p.model == o.model && p.weights == o.weights && p.system == o.system && p.tp == o.tp && p.ep == o.ep &&
		p.InputTokens == o.InputTokens && p.OutputTokens == o.OutputTokens && p.Concurrency == o.Concurrency &&
		near(p.TTFTMs, o.TTFTMs) && near(p.TPOTMs, o.TPOTMs)
}

// badPoints returns an error about a row of points.
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

// pointRow returns the point in one row.
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
		// The server ran tensor parallelism with whole experts; AIConfigurator predicted what the label states.
		p.otherTTFTMs = math.NaN()
		p.otherTPOTMs = math.NaN()
	}
	return p, failed
}

// load is a load on a real server, which is simulated, with the measured latencies. It comes from a
// measured point, or from a recorded run whose requests have times but whose steps have none.
type load struct {
	name           string
	group          string // as printed
	family         string // model, weights and GPU: points that are held out together
	dep            *deploy.Deployment
	step           *library.Step
	kvBlocks       int64
	reqs           []sim.Request
	ttftMs, tpotMs float64   // measured means over requests
	tpotWeight     float64   // as how many points tpotMs counts in a fit
	ttftWeight     float64   // as how many points ttftMs counts
	point          *point    // nil: a run
	inProcess      bool      // the client runs in the server's process: TTFT has no front end
	ttfts, tpots   []float64 // ms of each request, where they are known
}

// servedCount is how many measured points a recorded run counts as.
const servedCount = 5

// pointEngine has vLLM's defaults for `vllm serve`.
var pointEngine = vllm.Engine{
	MaxNumSeqs:          1024,
	MaxNumBatchedTokens: 8192,
	ChunkedPrefill:      true,
}.WithDefaults()

// load returns the load of the point as public benchmarks of this kind apply it: a closed loop, ten
// requests per client.
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
	if p.Version == "" && p.measured != "" { // the engine of late 2025, with --async-scheduling, which its TPOT shows
		d.Engine.VLLMVersion = undatedVersion
		d.Engine.AsyncScheduling = trace.Some(true)
	}
	d.Engine.ExpertParallel = p.ep > 1
	if p.served != nil {
		if err := p.served.apply(d, decoder); err != nil {
			return nil, err
		}
	}
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
	if l.kvBlocks, err = d.EstimateKVBlocks(); err != nil {
		return nil, err
	}
	l.step, err = library.Bound(d, library.Options{Decoder: decoder})
	return l, err
}

// undatedVersion is the release of vLLM at the date of the points that state none, October to
// December 2025.
const undatedVersion = "0.11.0"

// published maps models that are served under another name, or with another publisher's weights, to
// the model whose configuration is read.
var published = map[string]string{"meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
	"moonshotai/Kimi-K2.5": "nvidia/Kimi-K2.5-NVFP4"}

// pointWeights has quantizations that a point states and its model's configuration does not.
var pointWeights = map[string]model.Quant{"fp8": {Algorithm: "fp8", BytesPerWeight: 1, ActivationBits: 8},
	"nvfp4": {Algorithm: "nvfp4", BytesPerWeight: 0.5625, ActivationBits: 4}}

// decoder returns the model of a point, as layers and as a model: <models>/<org>--<name>_config.json. Quantized weights
// that the point states replace those of an unquantized dense model.
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
	m := model.Model{ID: p.model, Layered: d}
	if strings.Contains(p.model, "MiniMax-M2") {
		m.ModelType = "minimax_m2"
	}
	return d, m, nil
}

// loadsOf returns the points of some files as loads.
func loadsOf(src *Sources) ([]*load, []result.Input, error) {
	var out []*load
	var ins []result.Input
	var flags map[string]*served
	if src.Flags != "" {
		var in result.Input
		var err error
		if flags, in, err = readFlags(src.Flags); err != nil {
			return nil, nil, err
		}
		ins = append(ins, in)
	}
	size := map[string]int{} // points of a family
	for _, path := range src.Points {
		points, in, err := readPoints(path, flags)
		if err != nil {
			return nil, nil, err
		}
		ins = append(ins, in)
		for _, p := range points {
			l, err := p.load(src.Models)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %s: %w", path, p.id, err)
			}
			out = append(out, l)
			size[l.family]++
		}
	}
	for _, l := range out {
		l.ttftWeight = min(1, ttftCount/float64(size[l.family]))
		if !l.listed() || l.point.served == nil { // rows of unknown flags are predicted, and not used to learn corrections
			l.tpotWeight = 0
			l.ttftWeight = 0
		}
	}
	return out, ins, nil
}
