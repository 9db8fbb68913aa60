package cluster

import (
	"container/list"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/predict"
	"github.com/blis-train/blis-train/trace"
)

// plantBeta are the published blackbox coefficients: us, us per uncached prompt
// token, us per decode token.
var plantBeta = []float64{6910.42, 17.67, 2.84}

// otherBeta and otherAlpha drive the engines of controller kind other-form.
var (
	otherBeta  = []float64{0.15, 0, 1.36, 0.75, 32, 4.4, 126, 0, 0, 1.947}
	otherAlpha = []float64{1500, 700, 0}
)

// noise are the ratios that multiply step times, in every regime: a declared spread
// of a few percent with a longer upper tail.
var noise = []sim.Quantile{{Q: 0.05, Ratio: 0.95}, {Q: 0.25, Ratio: 0.98}, {Q: 0.5, Ratio: 1}, {Q: 0.75, Ratio: 1.03}, {Q: 0.95,
	Ratio: 1.1}}

// defaultDeployment is Llama-3.1-8B on one H100 with the limits of the published
// runs: 2,048 tokens a step, 256 seats.
func defaultDeployment() *deploy.Deployment {
	return &deploy.Deployment{
		Model: deploy.Model{ID: "meta-llama/Llama-3.1-8B", ModelType: "llama", NumLayers: 32, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 8,
			HeadDim: 128, IntermediateSize: 14336, VocabSize: 128256, NumMLPProj: 3, BytesPerParam: 2, BytesPerWeight: 2, BytesPerKV: 2,
			BytesPerActivation: 2, BytesPerLMHead: 2, LinearCompute: "native"},
		Hardware: deploy.Hardware{Name: "H100-SXM-80GB", TFlopsPeak: 989.5, TFlopsFP8: 1979, BwPeakTBs: 3.35, MemoryGB: 80, PCIeBandwidthGBs: 64,
			PCIeEfficiency: 0.75, InterconnectBandwidthGBs: 900},
		TP: 1, PP: 1, DP: 1,
		Engine: deploy.Engine{VLLMVersion: "0.15.1", MaxModelLen: trace.Some[int64](8192), MaxNumSeqs: 256, MaxNumBatchedTokens: 2048,
			ChunkedPrefill: true, PrefixCaching: true, BlockSize: 16, GPUMemoryUtilization: 0.9, KVBlocksGPU: trace.Some[int64](27_678),
			AsyncScheduling: trace.Some(false), SchedulingPolicy: "fcfs"},
	}
}

// plant drives the engines.
type plant struct {
	Name       string
	Deployment *deploy.Deployment
	Set        *coeff.Set // physics coefficients; nil: the published blackbox, or trained-physics with Other
	Other      bool
}

// Config is one engine; its model is not shared between runs.
func (p *plant) Config(seed int64) (sim.Config, error) {
	cfg := sim.DefaultConfig(p.Deployment, nil)
	var m interface{ Parts() sim.Parts }
	var err error
	switch {
	case p.Set != nil:
		if cfg, err = sim.EngineOf(p.Deployment, p.Set); err == nil {
			cfg.Noise = sim.SetNoise(p.Set)
		}
	case p.Other:
		m, err = sim.NewTrainedPhysics(otherAlpha, otherBeta, p.Deployment)
	default:
		m, err = sim.NewBlackbox([]float64{0, 0, 0}, plantBeta)
	}
	if err != nil {
		return cfg, err
	}
	if m != nil {
		cfg.Apply(m.Parts())
	}
	if cfg.Noise == nil {
		cfg.Noise = &sim.Noise{Decode: noise, Prefill: noise, Mixed: noise}
	}
	cfg.Seed = seed
	return cfg, nil
}

// gate is what the gateway predicts with.
type gate struct {
	Kind  string
	Set   *coeff.Set // fitted; nil: the plant's own step times times Scale
	Scale float64
}

// scaled is a latency model that is off by a factor.
type scaled struct {
	sim.Model
	by float64
}

func (s scaled) StepUs(b *sim.Batch) (float64, error) {
	us, err := s.Model.StepUs(b)
	return us * s.by, err
}

// Parts are the engines of one run and what the gate predicts with.
func (g *gate) Parts(p *plant, instances int, seed int64) (parts, error) {
	cfg, err := p.Config(seed)
	if err != nil {
		return parts{}, err
	}
	gate := cfg
	if g.Set != nil {
		if gate, err = sim.EngineOf(p.Deployment, g.Set); err != nil {
			return parts{}, err
		}
	} else if g.Scale != 1 {
		gate.Latency = scaled{cfg.Latency, g.Scale}
	}
	out := parts{Engines: slices.Repeat([]sim.Config{cfg}, instances), Seed: seed}
	out.Plants = slices.Repeat([]*predict.Engine{rolloutOf(&cfg)}, instances)
	out.Controllers = slices.Repeat([]*predict.Engine{rolloutOf(&gate)}, instances)
	if g.Set != nil {
		out.Prior = prior(g.Set)
	}
	return out, nil
}

// calibrationS is how long each of three loads lasts in a calibration run, s.
const calibrationS = 8.0

// Calibration is the requests of a calibration run of one engine: 0.5, 0.7 and 0.9
// of its capacity, on workload groups, whose prompts differ.
func (p *plant) Calibration() ([]sim.Request, error) {
	load := tables().Loads["groups"]
	l := &lab{IsolationOptions: IsolationOptions{Instances: 1}}
	capacity, err := l.probe(p, &gate{Kind: kindSame, Scale: 1}, load.Draw(999, 4000, 0.3))
	if err != nil {
		return nil, err
	}
	var out []sim.Request
	for k, share := range []float64{0.5, 0.7, 0.9} {
		for _, q := range load.Draw(int64(1000+k), share*capacity, calibrationS) {
			q.ID, q.ArrivalUs = fmt.Sprint(len(out)), q.ArrivalUs+int64(float64(k)*calibrationS*1e6)
			out = append(out, q)
		}
	}
	return out, nil
}

// runFiles are the run.yaml, from its form, and the config.json of a recording of a
// deployment.
func runFiles(d *deploy.Deployment, form string) (runYAML, config string) {
	h, e, m := &d.Hardware, &d.Engine, &d.Model
	blocks, _, _ := d.KVBlocks()
	runYAML = fmt.Sprintf(form, h.Name, h.TFlopsPeak, h.TFlopsFP8, h.BwPeakTBs, h.MemoryGB, h.PCIeBandwidthGBs, h.PCIeEfficiency,
		h.InterconnectBandwidthGBs, d.TP, d.PP, d.DP, e.VLLMVersion, d.MaxModelLen().Or(8192), e.MaxNumSeqs, e.MaxNumBatchedTokens,
		e.ChunkedPrefill, e.PrefixCaching, e.BlockSize, blocks, e.IsAsync())
	config = fmt.Sprintf(`{"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":%d,"num_hidden_layers":%d,`+
		`"num_attention_heads":%d,"num_key_value_heads":%d,"head_dim":%d,"intermediate_size":%d,"vocab_size":%d,"torch_dtype":"bfloat16",`+
		`"max_position_embeddings":%d}`, m.HiddenSize, m.NumLayers, m.NumHeads, m.NumKVHeads, m.HeadDim, m.IntermediateSize, m.VocabSize,
		d.MaxModelLen().Or(8192))
	return runYAML, config
}

// maxInstances is how many instances a gateway serves: one bit of a word each.
const maxInstances = 64

// index is which blocks of prompts each instance probably has: for every instance
// the hashes of the blocks sent there, the least recently sent first to go.
// Blocks that no other request can have only take room: they are one node of many.
type index struct {
	capacity int64
	where    map[uint64]uint64 // hash -> instances, one bit each
	lru      []recency
}

// recency orders what one instance was sent, the most recent first.
type recency struct {
	nodes  map[uint64]*list.Element
	order  list.List // of *node
	blocks int64
}

type node struct {
	hash   uint64
	blocks int64 // 1 of shared content, more of a prompt's own
	own    bool
}

// newIndex is an empty index of capacity blocks an instance.
func newIndex(instances int, capacity int64) *index {
	x := &index{capacity: capacity, where: map[uint64]uint64{}, lru: make([]recency, instances)}
	for i := range x.lru {
		x.lru[i].nodes = map[uint64]*list.Element{}
	}
	return x
}

// Match counts the leading blocks each instance has into to.
func (x *index) Match(hashes []uint64, to []int64) {
	clear(to)
	all := uint64(math.MaxUint64)
	if len(to) < maxInstances {
		all = 1<<len(to) - 1
	}
	for n, h := range hashes {
		still := all & x.where[h]
		for lost := all &^ still; lost != 0; lost &= lost - 1 {
			to[bits.TrailingZeros64(lost)] = int64(n)
		}
		if all = still; all == 0 {
			return
		}
	}
	for ; all != 0; all &= all - 1 {
		to[bits.TrailingZeros64(all)] = int64(len(hashes))
	}
}

// Record notes that instance i has the request's blocks now.
func (x *index) Record(r *Request, i int) {
	l := &x.lru[i]
	for _, h := range r.Hashes {
		x.touch(l, i, h, 1, false)
	}
	if own := r.Blocks - int64(len(r.Hashes)); own > 0 {
		x.touch(l, i, ^uint64(r.Index), min(own, x.capacity), true)
	}
}

func (x *index) touch(l *recency, i int, hash uint64, blocks int64, own bool) {
	if at, ok := l.nodes[hash]; ok {
		n := at.Value.(*node)
		l.blocks -= n.blocks
		n.blocks = blocks
		l.order.MoveToFront(at)
	} else {
		l.nodes[hash] = l.order.PushFront(&node{hash: hash, blocks: blocks, own: own})
	}
	if !own {
		x.where[hash] |= 1 << i
	}
	l.blocks += blocks
	for l.blocks > x.capacity {
		x.evict(l, i, l.blocks-x.capacity)
	}
}

// evict forgets up to n blocks of the least recent node.
func (x *index) evict(l *recency, i int, n int64) {
	at := l.order.Back()
	last := at.Value.(*node)
	if last.blocks > n {
		last.blocks -= n
		l.blocks -= n
		return
	}
	l.blocks -= last.blocks
	l.order.Remove(at)
	delete(l.nodes, last.hash)
	if last.own {
		return
	}
	if w := x.where[last.hash] &^ (1 << i); w == 0 {
		delete(x.where, last.hash)
	} else {
		x.where[last.hash] = w
	}
}

// Events is which blocks each engine said it has, some time ago.
type Events struct {
	DelayUs int64
	where   map[uint64]uint64
	queue   []kvEvent
	head    int
}

type kvEvent struct {
	atUs     int64
	hash     uint64
	instance int32
	stored   bool
}

// newEvents is an empty store whose events arrive delayUs after they happened.
func newEvents(delayUs int64) *Events { return &Events{DelayUs: delayUs, where: map[uint64]uint64{}} }

// Add notes an event. Events of one instance come in order; those of several may
// lie a step apart, which moves none beyond another of its own instance.
func (e *Events) Add(instance int, atUs int64, hash uint64, stored bool) {
	e.queue = append(e.queue, kvEvent{atUs, hash, int32(instance), stored})
}

// Match is Index.Match of the events that have arrived by nowUs.
func (e *Events) Match(hashes []uint64, nowUs int64, to []int64) {
	for ; e.head < len(e.queue) && e.queue[e.head].atUs+e.DelayUs <= nowUs; e.head++ {
		ev := &e.queue[e.head]
		if bit := uint64(1) << ev.instance; ev.stored {
			e.where[ev.hash] |= bit
		} else if e.where[ev.hash] &^= bit; e.where[ev.hash] == 0 {
			delete(e.where, ev.hash)
		}
	}
	if e.head > 4096 && 2*e.head > len(e.queue) {
		e.queue, e.head = append(e.queue[:0], e.queue[e.head:]...), 0
	}
	(&index{where: e.where}).Match(hashes, to)
}
