package library

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// part is one kind of kernel of a step.
type part uint8

// The parts of a step, in the order of a layer.
const (
	norm part = iota
	qkv
	rope
	kvWrite
	prefillAttention
	decodeAttention
	oProj
	AllReduce
	gateUp
	activation
	down
	router
	experts
	sharedExpert
	embedding
	lmHead
	logitsGather
	sampling
	NumParts
)

var partNames = [NumParts]string{"norm", "qkv", "rope", "kv_write", "prefill_attention", "decode_attention", "o_proj", "all_reduce",
	"gate_up", "activation", "down", "router", "experts", "shared_expert", "embedding", "lm_head", "logits_gather", "sampling"}

// String is the part's name in tables.
func (p part) String() string { return partNames[p] }

// Measured reports whether the part's time comes from a table; the others are
// charged by their bytes.
func (p part) Measured() bool {
	switch p {
	case norm, rope, kvWrite, activation, embedding, sampling:
		return false
	}
	return true
}

// parts are the milliseconds of each part, all layers together.
type parts [NumParts]float64

// TotalMs is the whole step.
func (p *parts) TotalMs() float64 {
	sum := 0.0
	for _, v := range p {
		sum += v
	}
	return sum
}

// StepMs is what the batch's kernels take, by part. It allocates nothing. An
// empty batch takes no time.
func (s *Stepper) StepMs(batch []trace.Chunk) parts {
	var p parts
	var tokens, seqs, decodes, context float64
	for _, c := range batch {
		if c.New == 0 {
			continue
		}
		tokens += float64(c.New)
		seqs++
		if c.IsDecode() {
			decodes++
			context += float64(c.Computed)
			continue
		}
		p[prefillAttention] += s.prefillMs(float64(c.New), float64(c.Computed), p[prefillAttention] == 0)
	}
	if seqs == 0 {
		return p
	}
	run, captured := tokens, true
	if s.rules == Engine {
		run, captured = s.graphs.Tokens(tokens)
	}
	layers := float64(s.layers)
	p[prefillAttention] *= layers
	if decodes > 0 {
		p[decodeAttention] = layers * s.generation.at(decodes*s.generationRatio, context/decodes)
	}
	for i := range s.linear {
		l := &s.linear[i]
		p[l.part] += float64(l.times * l.ms.at(run, 1))
	}
	for i := range s.moved {
		m := &s.moved[i]
		p[m.part] += float64(m.times * (float64(m.bytesPerToken*run*s.msPerByte) + launchMs))
	}
	p[lmHead] = s.head.at(seqs, 1)
	s.collectives(&p, run, seqs, captured)
	if s.rules == Engine {
		p[sampling] = float64(s.vocabBytes*seqs*s.msPerByte) + launchMs
	}
	return p
}

// Rules say how an engine puts kernels together.
type Rules string

// Engine is vLLM's own way; Composed that of the composed data sets, whose
// steps are sums of the same tables: custom all-reduce at every size, two per
// layer and none of the embedding; KV writes, embedding, sampling and the
// logits' gather in the host term.
const (
	Engine   Rules = "engine"
	Composed Rules = "composed"
)

// allRules lists the rules, the default first.
func allRules() []Rules { return []Rules{Engine, Composed} }

// Check refuses unknown rules.
func (r Rules) Check() error {
	if r != Engine && r != Composed {
		return trace.Errorf(unknownRules, "rules: got %q, want %s", string(r), trace.OneOf(allRules()))
	}
	return nil
}

// distribution is how tokens spread over experts, as the tables name it:
// routers trained for balance are still skewed.
const distribution = "power_law_1.2"

// clean is how the rules read a measured curve.
func (r Rules) clean(c *curve) *curve {
	if r == Engine {
		return c.envelope()
	}
	return c
}

// readRuns extracts run folders: runs of recorded steps become cycles, runs of
// stock spans loads. Code: no_evidence for a run that has neither.
func readRuns(ctx context.Context, dirs []string) (ys []*cycles, ls []*load, inputs []coeff.Input, err error) {
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
		if l := servedOf(r.ID, run, r.Deployment, shared); l != nil {
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

// sharedTokens are the first prompt tokens that all requests of a run share, as
// the profile of its load generator (GuideLLM's profile.yaml) says; 0 without one.
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
	err = decodeYAML(text, path, &profile)
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
	tab, err := steps.Beta(space, rows.Options{Lag: rows.AssumedLag(d)})
	if err != nil {
		return nil, err
	}
	rows.Clean([]*rows.Table{tab}, rows.Relative)
	y := &cycles{name: name, dep: d}
	y.P = betaSlots
	for i := range tab.Kept {
		y.X, y.Y = append(y.X, tab.Row(i)...), append(y.Y, tab.Y[i])
		y.Steps = append(y.Steps, tab.Steps[i])
		y.Regime = append(y.Regime, int32(tab.Regime[i]))
	}
	return y, nil
}
