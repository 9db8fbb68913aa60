package cluster

import (
	"cmp"
	"container/list"
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/forecast"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// load is a closed set of workloads; a new one needs a new name.
type load struct {
	Name      string
	Groups    int      // prefix groups, by Zipf's law
	Prefix    [2]int64 // tokens, log-uniform over groups
	Own       [2]int64 // tokens behind the prefix, uniform
	Unique    float64  // share of prompts without a group
	UniqueLen [2]int64 `yaml:"unique_len"`
	Output    [2]int64 // tokens, uniform
	CV        float64  // of gaps between arrivals; 1: Poisson
	Newcomer  bool     // one more group from half-time, with a fifth of the grouped requests
	hour      *hour    // what was recorded, instead of the draws above but for the class
}

// loadOf is the workload of a name.
func loadOf(name string, requests []sim.Request) (load, error) {
	l := tables().Loads[name]
	var err error
	switch name {
	case recorded:
		l.hour, err = hourOf(requests)
	case given:
		l.hour, err = givenOf(requests)
	}
	if l.hour != nil && !(l.hour.lengthUs > 0) {
		err = trace.Errorf(codeBadSpec, "preset %s: got requests of one moment, want arrivals over time", name)
	}
	return l, err
}

// Words say what a load is.
func (l *load) Words() string {
	if l.hour != nil {
		return l.hour.words()
	}
	s := fmt.Sprintf("one prefix of %d tokens", l.Prefix[0])
	if l.Groups > 1 {
		s = fmt.Sprintf("%d prefix groups of %d to %d tokens", l.Groups, l.Prefix[0], l.Prefix[1])
	}
	s += fmt.Sprintf(", %d to %d own tokens", l.Own[0], l.Own[1])
	if l.Unique > 0 {
		s += fmt.Sprintf(", %.0f %% unique prompts of %d to %d", 100*l.Unique, l.UniqueLen[0], l.UniqueLen[1])
	}
	s += fmt.Sprintf(", %d to %d outputs, gaps of CV %g, 33/34/33 %% critical, standard, sheddable", l.Output[0], l.Output[1], l.CV)
	if l.Newcomer {
		s += ", one more group from half-time"
	}
	return s
}

// newcomerGroup is the group that comes at half-time.
const newcomerGroup = 1000

// publishedTargets are the published budgets as promises (sheddable stricter than standard is
// odd, and kept).
var publishedTargets = map[string]target{"critical": {TTFTUs: 200_000}, "standard": {TTFTUs: 500_000}, "sheddable": {TTFTUs: 300_000}}

// Streams of the draws of a request: each of its properties has its own, so that none
// shifts another.
const (
	streamArrival = 10 + iota
	streamLength
	streamGroup
	streamClass
)

// stream is a generator of its own for one property of one request.
type stream struct {
	pcg rand.PCG
	rng *rand.Rand
}

func (s *stream) of(seed int64, kind, request int) *rand.Rand {
	s.pcg.Seed(uint64(seed), uint64(kind)<<40|uint64(request))
	return s.rng
}

func between(rng *rand.Rand, r [2]int64) int64 { return r[0] + rng.Int64N(r[1]-r[0]+1) }

// Draw makes the requests of one seed: arrivals at a rate for some seconds.
func (l *load) Draw(seed int64, rate, seconds float64) []sim.Request {
	s := &stream{}
	s.rng = rand.New(&s.pcg)
	if l.hour != nil {
		return l.hour.draw(s, seed, rate, seconds)
	}
	var out []sim.Request
	at, shape := 0.0, 1/(l.CV*l.CV)
	for i := 0; ; i++ {
		if rng := s.of(seed, streamArrival, i); l.CV == 1 {
			at += rng.ExpFloat64() / rate * 1e6
		} else {
			at += workload.Gamma(rng, shape) / shape / rate * 1e6
		}
		if at >= seconds*1e6 {
			return out
		}
		out = append(out, l.request(s, seed, i, at, seconds))
	}
}

func (l *load) request(s *stream, seed int64, i int, at, seconds float64) sim.Request {
	q := s.arrival(seed, i, at)
	rng := s.of(seed, streamGroup, i)
	unique := rng.Float64() < l.Unique
	rank := l.zipf(rng.Float64())
	fresh := rng.Float64() < 0.2
	if l.Newcomer && fresh && at >= seconds*1e6/2 {
		rank = newcomerGroup - 1
	}
	rng = s.of(seed, streamLength, i)
	q.OutputTokens = between(rng, l.Output)
	if own := between(rng, l.Own); unique {
		q.PromptTokens = between(rng, l.UniqueLen)
	} else {
		q.Group, q.GroupTokens = uint64(rank+1), l.prefixOf(rank)
		q.PromptTokens = q.GroupTokens + own
	}
	return q
}

// arrival is request i with its class.
func (s *stream) arrival(seed int64, i int, at float64) sim.Request {
	q := sim.Request{ID: strconv.Itoa(i), ArrivalUs: sim.ToUs(at)}
	switch u := s.of(seed, streamClass, i).Float64(); {
	case u < 0.33:
		q.SLOClass = "critical"
	case u < 0.67:
		q.SLOClass = "standard"
	default:
		q.SLOClass = "sheddable"
	}
	q.SLOTTFTUs = int64(publishedTargets[q.SLOClass].TTFTUs)
	return q
}

// zipf is a rank below Groups with weight 1/(rank+1).
func (l *load) zipf(u float64) int {
	sum := 0.0
	for k := range l.Groups {
		sum += 1 / float64(k+1)
	}
	for k := range l.Groups {
		if u -= 1 / float64(k+1) / sum; u < 0 {
			return k
		}
	}
	return l.Groups - 1
}

// prefixOf is a group's prefix, the same for every seed, whole blocks.
func (l *load) prefixOf(rank int) int64 {
	if l.Prefix[0] == l.Prefix[1] {
		return l.Prefix[0]
	}
	u := rand.New(rand.NewPCG(uint64(rank), 77)).Float64()
	lo := math.Log(float64(l.Prefix[0]))
	hi := math.Log(float64(l.Prefix[1]))
	return int64(math.Exp(lo+u*(hi-lo))) / 16 * 16
}

// digestOf sums up what arrives.
func digestOf(reqs []sim.Request) string {
	h := fnv.New64a()
	for i := range reqs {
		q := &reqs[i]
		fmt.Fprintln(h, q.ArrivalUs, q.PromptTokens, q.OutputTokens, q.Group, q.GroupTokens, q.Hashes, q.SLOClass)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// recorded is the name of the preset and workload that come from a recorded trace.
const recorded = "mooncake"

// shrink divides lengths and hash spans of the recorded hour, which keeps who shares
// what with whom: the longest prompt of the public trace has 126,195 tokens, the
// engines take 8,192.
const shrink = 16

// given is the name of the preset and workload that come from a file, as they are.
const given = "workload"

// hour is recorded requests: lengths, content ids and times of arrival.
type hour struct {
	reqs      []sim.Request
	fromUs    []float64 // of the place in which each request arrives
	widthUs   []float64 // of that place
	lengthUs  float64
	asTheyAre bool // with classes of their own; otherwise those are drawn
}

// givenOf takes requests as they are. Classes without any target have the published ones.
func givenOf(reqs []sim.Request) (*hour, error) {
	h := &hour{reqs: slices.Clone(reqs), fromUs: make([]float64, len(reqs)), widthUs: make([]float64, len(reqs)), asTheyAre: true}
	promised := TargetsOf(reqs)
	for i := range h.reqs {
		q := &h.reqs[i]
		if q.After > 0 || q.Loop > 0 || q.With > 0 {
			return nil, trace.Errorf(codeBadSpec,
				"preset %s: request %d: got one that waits for another, want arrivals that all policies share", given, i).
				WithHint("give a workload of open arrivals: clients with a rate, not a concurrency")
		}
		if promised[q.SLOClass] == (target{}) {
			q.SLOTTFTUs = int64(publishedTargets[q.SLOClass].TTFTUs)
		} else if TargetsOf(h.reqs[i : i+1])[q.SLOClass] != promised[q.SLOClass] {
			return nil, trace.Errorf(codeBadSpec, "preset %s: request %d: got other targets than others of class %q, want one of each class",
				given, i, q.SLOClass)
		}
	}
	slices.SortStableFunc(h.reqs, func(a, b sim.Request) int { return cmp.Compare(a.ArrivalUs, b.ArrivalUs) })
	for i := range h.reqs {
		h.fromUs[i] = float64(h.reqs[i].ArrivalUs - h.reqs[0].ArrivalUs)
	}
	if n := len(reqs); n > 1 {
		last := h.fromUs[n-1]
		h.lengthUs = last + last/float64(n-1)
	}
	return h, nil
}

// perSecond is the rate at which the requests came.
func (h *hour) perSecond() float64 { return float64(len(h.reqs)) / h.lengthUs * 1e6 }

// hourOf takes requests with content ids in the order of their arrival.
func hourOf(reqs []sim.Request) (*hour, error) {
	if len(reqs) == 0 {
		return nil, trace.Errorf(codeBadSpec, "preset %s: got no requests, want a Mooncake trace", recorded)
	}
	h := &hour{reqs: slices.Clone(reqs), fromUs: make([]float64, len(reqs)), widthUs: make([]float64, len(reqs))}
	slices.SortStableFunc(h.reqs, func(a, b sim.Request) int { return cmp.Compare(a.ArrivalUs, b.ArrivalUs) })
	last := h.reqs[len(reqs)-1].ArrivalUs
	gapUs := float64(last) / float64(len(reqs)) // of the last batch: as long as the one before it
	for from := 0; from < len(reqs); {
		to := from + 1
		for to < len(reqs) && h.reqs[to].ArrivalUs == h.reqs[from].ArrivalUs {
			to++
		}
		if to < len(reqs) {
			gapUs = float64(h.reqs[to].ArrivalUs - h.reqs[from].ArrivalUs)
		}
		for i := from; i < to; i++ {
			h.widthUs[i] = gapUs / float64(to-from)
			h.fromUs[i] = float64(h.reqs[i].ArrivalUs) + float64(i-from)*h.widthUs[i]
		}
		from = to
	}
	for i := range h.reqs {
		q := &h.reqs[i]
		if len(q.Hashes) == 0 || q.HashTokens%shrink != 0 {
			return nil, trace.Errorf(codeBadSpec, "preset %s: request %d: got no hash_ids of spans of whole %d tokens, want a Mooncake trace",
				recorded, i, shrink)
		}
		q.PromptTokens = max(1, q.PromptTokens/shrink)
		q.OutputTokens = max(1, q.OutputTokens/shrink)
		q.HashTokens = q.HashTokens / shrink
	}
	h.lengthUs = float64(last) + gapUs
	return h, nil
}

func (h *hour) words() string {
	if h.asTheyAre {
		return fmt.Sprintf("%d requests of a file, %.3g s at %.3g/s, played from a start drawn by seed", len(h.reqs), h.lengthUs/1e6,
			h.perSecond())
	}
	return fmt.Sprintf("a recorded trace of %d requests, lengths divided by %d, played faster from a start drawn by seed, "+
		"33/34/33 %% critical, standard, sheddable", len(h.reqs), shrink)
}

// draw plays the hour from a start of its own for each seed, as fast as the rate
// wants. When it ends it begins again, with other content.
func (h *hour) draw(s *stream, seed int64, rate, seconds float64) []sim.Request {
	n := len(h.reqs)
	first := s.of(seed, streamGroup, 0).IntN(n)
	faster := rate * h.lengthUs / 1e6 / float64(n)
	var out []sim.Request
	startUs := 0.0
	for i := 0; ; i++ {
		j, pass := (first+i)%n, (first+i)/n
		at := float64(pass)*h.lengthUs + h.fromUs[j] + h.widthUs[j]*s.of(seed, streamArrival, i).Float64()
		if i == 0 {
			startUs = at
		}
		if at = (at - startUs) / faster; at >= seconds*1e6 {
			return out
		}
		q, from := s.arrival(seed, i, at), &h.reqs[j]
		if h.asTheyAre {
			id, us := q.ID, q.ArrivalUs
			q = *from
			q.ID, q.ArrivalUs = id, us
		}
		q.PromptTokens = from.PromptTokens
		q.OutputTokens = from.OutputTokens
		q.Hashes = from.Hashes
		q.HashTokens = from.HashTokens
		if pass > 0 {
			q.Hashes = slices.Clone(q.Hashes)
			for k := range q.Hashes {
				q.Hashes[k] += uint64(pass) << 40
			}
		}
		out = append(out, q)
	}
}

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
		Model: model.Model{ID: "meta-llama/Llama-3.1-8B", ModelType: "llama", NumLayers: 32, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 8,
			HeadDim: 128, IntermediateSize: 14336, VocabSize: 128256, NumMLPProj: 3, BytesPerParam: 2, BytesPerWeight: 2, BytesPerKV: 2,
			BytesPerActivation: 2, BytesPerLMHead: 2, LinearCompute: "native"},
		Hardware: deploy.Hardware{Name: "H100-SXM-80GB", TFlopsPeak: 989.5, TFlopsFP8: 1979, BwPeakTBs: 3.35, MemoryGB: 80, PCIeBandwidthGBs: 64,
			PCIeEfficiency: 0.75, InterconnectBandwidthGBs: 900},
		TP: 1, PP: 1, DP: 1,
		Engine: vllm.Engine{VLLMVersion: "0.15.1", MaxModelLen: trace.Some[int64](8192), MaxNumSeqs: 256, MaxNumBatchedTokens: 2048,
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
	out.Plants = slices.Repeat([]*forecast.Engine{rolloutOf(&cfg)}, instances)
	out.Controllers = slices.Repeat([]*forecast.Engine{rolloutOf(&gate)}, instances)
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
			q.ID = fmt.Sprint(len(out))
			q.ArrivalUs += int64(float64(k) * calibrationS * 1e6)
			out = append(out, q)
		}
	}
	return out, nil
}

// runFiles are the run.yaml, from its form, and the config.json of a recording of a
// deployment.
func runFiles(d *deploy.Deployment, form string) (runYAML, config string) {
	h := &d.Hardware
	e := &d.Engine
	m := &d.Model
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
		e.queue = append(e.queue[:0], e.queue[e.head:]...)
		e.head = 0
	}
	(&index{where: e.where}).Match(hashes, to)
}
