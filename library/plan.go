package library

// This file makes the plan of a step: it walks through the layers of a model and adds an operator for
// each kernel that vLLM launches.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Kind is the kind of an operator, which decides the corrections of its time.
type Kind uint8

// The kinds.
const (
	Compute Kind = iota
	Experts
	Collective
	numKinds
)

// Operator is one line of the plan of a step: a kernel of one shape, and how often it runs.
type Operator struct {
	Name  string
	Count float64 // runs in a step
	Shape string  // for people
	DType string  // of its weights or of the KV cache, in the tables' words; "": of neither
	Kind  Kind
	found // where the time is from

	depends driver
	us      func(in *state) float64 // time of one run
	// measured is the time of the operator's own rows, where other rows replaced or lowered it in us; nil: us.
	measured func(in *state) float64
}

// driver is the quantity of a batch that an operator's time depends on.
type driver uint8

const (
	onTokens    driver = iota // padded to the captured sizes; of experts also on all ranks' tokens
	onSequences               // that sample
	onDecodes                 // and their contexts; does not run without one
	onPrefills                // their chunks and cached tokens; does not run without one
)

// The time of a kernel that is in no table is assumed: the bytes that it moves, and its launch. What it
// takes beyond that is fitted, as the correction SmallKernel.
const (
	movedShare = 0.8 // of the memory bandwidth
	launchUs   = 2   // per kernel
	samplingUs = 30  // of the sampler's kernels together, per step
)

// Options are settings of a plan that are not part of a deployment.
type Options struct {
	// GPU has the tables; nil: the embedded ones of the deployment's hardware.
	GPU *GPU
	// Decoder is the model as layers; nil: the deployment's.
	Decoder *model.Decoder
	// Load is how tokens spread over experts, a distribution of the tables: balanced,
	// power_law_1.01, power_law_1.2; "": defaultLoad.
	Load string
	// RawExperts keeps the times of experts as measured, also where more tokens took less.
	RawExperts bool
	// BF16 treats all weights as bfloat16.
	BF16 bool
}

// defaultLoad is skewed, as routers are even when they were trained for balance.
const defaultLoad = "power_law_1.2"

// binder makes the plan of one step.
type binder struct {
	g      *GPU
	d      *deploy.Deployment
	m      *model.Decoder // the model as layers
	tp     int64          // tensor-parallel ranks of one engine
	ranks  int64          // data-parallel engines in lockstep, over which experts are spread; 1 for dense models
	o      Options
	s      *Step       // the result
	usByte float64     // us per byte that a kernel without a table moves
	fused  fusedReduce // the all-reduce that contains the norm
	failed error       // the first error
}

// Bind returns the plan of a deployment's step, one operator for each kernel shape. Codes:
// kernel_rows_missing, and those of deploy.
func (g *GPU) Bind(d *deploy.Deployment, o Options) (*Step, error) {
	o.Load = cmp.Or(o.Load, defaultLoad)
	m := cmp.Or(o.Decoder, d.Model.Decoder)
	if m == nil {
		m = d.Model.Layers()
	}
	if m.DTypeBytes > 2 {
		return nil, trace.Errorf(vllm.BadKnobs, "dtype: got values of %g bytes, want bfloat16 or float16: no table has other kernels", m.DTypeBytes).
			WithHint("leave out --dtype, or simulate with --latency-model roofline")
	}
	ranks := int64(1) // the engines of a dense model are independent
	if d.Model.IsMoE() {
		ranks = max(1, d.DP)
	}
	s := &Step{
		GPU:         g,
		TP:          d.TP,
		Ranks:       ranks,
		graphs:      d.GraphSizes(),
		decodesOnly: d.Engine.GraphsOfDecodesOnly(),
		sync:        !d.Engine.IsAsync(),
	}
	s.spreadExperts = d.Model.IsMoE() && d.Engine.ExpertParallel && d.TP*ranks > 1
	s.Family, s.DType = family(d, m)
	b := &binder{
		g:      g,
		d:      d,
		m:      m,
		tp:     d.TP,
		ranks:  ranks,
		o:      o,
		s:      s,
		usByte: 1e6 / (movedShare * d.Hardware.BwPeakTBs * 1e12),
	}
	// What no table or no server has shown.
	if d.PP > 1 {
		return nil, trace.Errorf(NoRows, "pipeline_parallel_size: got %d, want 1: no table holds what passes between stages", d.PP)
	}
	if d.TP*ranks > 8 {
		b.addUnjudged("no table knows the network between more than 8 GPUs")
	}
	if ranks > 1 {
		b.addUnjudged("data-parallel attention was never compared with a server")
	}
	if s.graphs == nil {
		b.addUnjudged("no server without CUDA graphs was measured")
	}
	// The operators: embedding, mixers, FFNs, norms, all-reduces, head. Each mixer and each FFN has a norm
	// before it and, with tensor parallelism, an all-reduce behind it; one norm more is before the head, one
	// all-reduce more behind the embedding, whose vocabulary is divided among the ranks.
	b.fused = b.fusedReduce()
	b.addMoved("embedding", 1, float64(2*m.Hidden)*m.DTypeBytes) // a row of the matrix is read and written
	mixersAndFFNs := 0.0
	for _, c := range countParts(m.Layers, func(l *model.Layer) *model.Mixer { return l.Mixer }, func(m *model.Mixer) *[]model.Linear { return &m.Linears }) {
		b.addMixer(c.part, c.times)
		mixersAndFFNs += c.times
		if c.part.Kind == model.MLA {
			s.latentLayers += c.times
		}
	}
	for _, c := range countParts(m.Layers, func(l *model.Layer) *model.FFN { return l.FFN }, func(f *model.FFN) *[]model.Linear { return &f.Linears }) {
		b.addFFN(c.part, c.times)
		mixersAndFFNs += c.times
		if c.part.Kind == model.Experts {
			s.expertLayers += c.times
		}
	}
	s.Layers = mixersAndFFNs / 2
	b.addNorms(mixersAndFFNs + 1)
	if l := &m.Layers[0]; l.Mixer != nil && l.Mixer.Kind == model.Compressed { // DeepSeek-V4
		b.addConnections(s.Layers)
	}
	b.addAllReduce("all_reduce", mixersAndFFNs+1, float64(m.Hidden)*m.DTypeBytes, true)
	b.addHead()
	// Count the kernels without a table. Norms that are part of a fused all-reduce are no kernels.
	for _, op := range s.Operators {
		if op.Reached == Analytic && !(op.Name == "norm" && b.fused.most > 0) {
			s.small += op.Count
		}
	}
	return s, b.failed
}

// layerPart is a mixer or an FFN, with the number of layers that have it.
type layerPart[T any] struct {
	part  *T
	times float64
}

// countParts returns the distinct mixers, or FFNs, of the layers in order of appearance, so that an
// operator is bound once for all layers that have it. partOf returns the mixer or the FFN of a layer;
// nil if it has none. linearsOf returns the place of a part's matrices. Parts are the same if their JSON is, which does
// not tell nil from an empty list.
func countParts[T any](layers []model.Layer, partOf func(*model.Layer) *T, linearsOf func(*T) *[]model.Linear) []layerPart[T] {
	// Most of a part are its matrices, which are compared without reflection.
	isSame := func(a, b *T) bool {
		if !slices.Equal(*linearsOf(a), *linearsOf(b)) {
			return false
		}
		restA, restB := *a, *b
		*linearsOf(&restA) = nil
		*linearsOf(&restB) = nil
		return reflect.DeepEqual(&restA, &restB)
	}
	byJSON := map[string]int{} // index in out
	var out []layerPart[T]
	for i := range layers {
		part := partOf(&layers[i])
		if part == nil {
			continue
		}
		// Most are equal to one before in every field; comparing is faster than encoding.
		k := slices.IndexFunc(out, func(p layerPart[T]) bool { return isSame(p.part, part) })
		if k < 0 {
			key, err := json.Marshal(part)
			if err != nil {
				panic("library: " + err.Error())
			}
			var ok bool
			if k, ok = byJSON[string(key)]; !ok {
				k = len(out)
				byJSON[string(key)] = k
				out = append(out, layerPart[T]{part: part})
			}
		}
		out[k].times++
	}
	return out
}

// fails reports whether err is an error, and keeps the first one.
func (b *binder) fails(err error) bool {
	b.failed = cmp.Or(b.failed, err)
	return err != nil
}

// addUnjudged adds a reason why the plan counts as not validated (compared with measured servers),
// also if servers of its family were.
func (b *binder) addUnjudged(why string) {
	if !slices.Contains(b.s.Unjudged, why) {
		b.s.Unjudged = append(b.s.Unjudged, why)
	}
}

// addOperator appends an operator to the plan.
func (b *binder) addOperator(op Operator) {
	if op.unlike {
		b.addUnjudged("no measured " + op.Table + " of this kind")
	}
	b.s.Operators = append(b.s.Operators, op)
}

// addMoved adds a kernel that no table has, which runs `times` times in a step. The time of one run is
// estimated: the bytes that it moves for the step's tokens, CUDA graph padding included (state.run), at
// usByte us each, plus one launch.
func (b *binder) addMoved(name string, times, bytesPerToken float64) {
	if times == 0 {
		return
	}
	perToken := bytesPerToken * b.usByte
	b.addOperator(Operator{
		Name:  name,
		Count: times,
		Shape: fmt.Sprintf("%.0f B per token", bytesPerToken),
		found: found{Reached: Analytic},
		us:    func(in *state) float64 { return in.run*perToken + launchUs },
	})
}

// addNorms adds the norms, which read and write the hidden state and the residual of each token. A
// fused all-reduce contains them, up to its largest size.
func (b *binder) addNorms(times float64) {
	bytes := float64(b.m.Hidden) * b.m.DTypeBytes // of one token's hidden state
	perToken := 4 * bytes * b.usByte
	most := b.fused.most
	b.addOperator(Operator{
		Name:  "norm",
		Count: times,
		Shape: fmt.Sprintf("%.0f B per token", 4*bytes),
		found: found{Reached: Analytic},
		us: func(in *state) float64 {
			if in.run*bytes <= most {
				return 0
			}
			return in.run*perToken + launchUs
		},
	})
}
