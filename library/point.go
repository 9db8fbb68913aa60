package library

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/pipeline/learn"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// point is one measured load level of a named server.
type point struct {
	learn.Level
	ID, Model, System, Weights string
	TP                         int64
	OtherTTFTMs, OtherTPOTMs   float64 // what AIConfigurator predicts; NaN where it refuses
}

// Group names the points judged together: model, weights and GPU.
func (p *point) Group() string {
	return p.Deployment.Model.ID + " " + p.Weights + ", " + p.Deployment.Hardware.Name
}

// pointColumns are those a file of points must have.
var pointColumns = []string{"id", "model", "system", "weights", "tp", "input_tokens", "output_tokens", "concurrency", "ttft_ms", "tpot_ms"}

// readPoints reads measured points: a CSV with the columns of pointColumns, and
// beside it models/<name>/config.json of every model in it. Codes: bad_points,
// and those of deploy.LoadModel.
func readPoints(path string) ([]point, coeff.Input, error) {
	data, err := files.ReadAll(path)
	if err != nil {
		return nil, coeff.Input{}, err
	}
	points, err := parsePoints(path, data)
	return points, folder.InputOf(filepath.Base(path), data), err
}

// parsePoints reads rows of pointColumns.
func parsePoints(path string, data []byte) ([]point, error) {
	models := map[string]deploy.Model{}
	r := csv.NewReader(bytes.NewReader(data))
	header, err := r.Read()
	if err != nil {
		return nil, badPoints(path, 1, "got no header (%v), want %s", err, strings.Join(pointColumns, ","))
	}
	for _, want := range pointColumns {
		if !slices.Contains(header, want) {
			return nil, badPoints(path, 1, "got no column %q, want it", want)
		}
	}
	var out []point
	for line := int64(2); ; line++ {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, badPoints(path, line, "%v", err)
		}
		p, err := pointRow(path, line, header, row)
		if err != nil {
			return nil, err
		}
		if p.Deployment, err = p.deployment(filepath.Dir(path), models); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, line, err)
		}
		if err := p.CheckUnit(path, line); err != nil {
			return nil, err
		}
		out = append(out, *p)
	}
	if len(out) == 0 {
		return nil, badPoints(path, 2, "got no row, want measured points")
	}
	return out, nil
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
	p := &point{ID: text["id"], Model: text["model"], System: text["system"], Weights: text["weights"],
		OtherTTFTMs: optional("aiconfigurator_ttft_ms"), OtherTPOTMs: optional("aiconfigurator_tpot_ms")}
	p.Level = learn.Level{Version: text["engine_version"], InputTokens: int64(number("input_tokens", 1)),
		OutputTokens: int64(number("output_tokens", 2)), Concurrency: int(number("concurrency", 1)), TTFTMs: number("ttft_ms", 1e-9),
		TPOTMs: number("tpot_ms", 1e-9)}
	p.TP = int64(number("tp", 1))
	return p, failed
}

// deployment is what the row ran on, as far as it is stated.
func (p *point) deployment(dir string, models map[string]deploy.Model) (*deploy.Deployment, error) {
	h, ok := deploy.Datasheet(p.System)
	if !ok {
		return nil, trace.Errorf(deploy.BadHardware, "system: got %q, want a built-in device", p.System)
	}
	key := p.Model + " " + p.Weights
	m, ok := models[key]
	if !ok {
		name := strings.ToLower(filepath.Base(p.Model))
		file := filepath.Join(dir, "models", name, "config.json")
		f, err := files.Open(file, false)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		o := deploy.ModelOptions{ID: name}
		if p.Weights == libraryFp8 {
			o.Quantization = libraryFp8
		}
		if m, err = deploy.LoadModel(f, file, o); err != nil {
			return nil, err
		}
		models[key] = m
	}
	d := &deploy.Deployment{Name: p.ID, Model: m, Hardware: h, TP: p.TP, PP: 1, DP: 1, Engine: designEngine}
	d.Engine.VLLMVersion = p.Version
	if strings.HasPrefix(h.Name, "B200") && p.TP > 1 { // the public recipe of that benchmark; rows do not state their flags
		d.Engine.Extra = map[string]any{"compilation_config": `{"pass_config":{"enable_fi_allreduce_fusion":true}}`}
	}
	return d, d.Check()
}

// load is what a real server was given and how it answered, to be simulated: a
// measured point, or a recorded run whose requests have times but whose steps
// have none.
type load struct {
	name, group    string
	dep            *deploy.Deployment
	reqs           []sim.Request
	ttftMs, tpotMs float64 // means over requests
	tpotWeight     float64 // what the two count as, in points
	ttftWeight     float64
}

// What a recorded run counts as, in points of which each is a run of its own.
const servedCount = 5

// servedOf is the load of a run of stock spans; nil when it has none. sharedTokens
// are the first tokens that all prompts share: spans count cached tokens as
// prompt and name no contents.
func servedOf(name string, run *trace.Run, d *deploy.Deployment, sharedTokens int64) *load {
	var rows []*trace.Request
	for i := range run.Requests {
		if r := &run.Requests[i]; r.StartWallNs.OK && r.PromptTokens.OK && r.OutputTokens.Or(0) > 1 && r.StockDecodeUs.OK && r.StockTTFTUs.OK {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	slices.SortFunc(rows, func(a, b *trace.Request) int { return cmp.Compare(a.StartWallNs.V, b.StartWallNs.V) })
	l := &load{name: name, group: name, dep: d, tpotWeight: servedCount, ttftWeight: 1}
	for _, r := range rows {
		l.reqs = append(l.reqs, sim.Request{ArrivalUs: (r.StartWallNs.V - rows[0].StartWallNs.V) / 1e3, PromptTokens: r.PromptTokens.V,
			OutputTokens: r.OutputTokens.V, Group: 1, GroupTokens: min(sharedTokens, r.PromptTokens.V)})
		l.ttftMs += r.StockTTFTUs.V / 1e3 / float64(len(rows))
		l.tpotMs += r.StockDecodeUs.V / float64(r.OutputTokens.V-1) / 1e3 / float64(len(rows))
	}
	return l
}

// load is the point under the harness; its group counts ttftCount points of TTFT.
func (p *point) load(h learn.Harness, groupSize int) (*load, error) {
	reqs, err := p.Requests(h)
	return &load{name: p.ID, group: p.Group(), dep: p.Deployment, reqs: reqs, ttftMs: p.TTFTMs, tpotMs: p.TPOTMs,
		tpotWeight: 1, ttftWeight: min(1, ttftCount/float64(groupSize))}, err
}

// loads are the points, each under the harness of its group.
func loads(points []point, harness func(p *point) learn.Harness) ([]*load, error) {
	size := map[string]int{}
	for i := range points {
		size[points[i].Group()]++
	}
	out := make([]*load, len(points))
	for i := range points {
		p := &points[i]
		var err error
		if out[i], err = p.load(harness(p), size[p.Group()]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// simulate runs one load with a coefficient set.
func (l *load) simulate(set *coeff.Set, gradient bool) (*sim.Means, error) {
	step, err := sim.NewPhysics(set, l.dep)
	if err != nil {
		return nil, err
	}
	cfg := sim.DefaultConfig(l.dep, step)
	if cfg.Overhead, err = sim.NewAlphaDelay(set, coeff.Overhead, l.dep); err != nil {
		return nil, err
	}
	cfg.Gradient = gradient
	return sim.MeansOf(cfg, l.reqs)
}
