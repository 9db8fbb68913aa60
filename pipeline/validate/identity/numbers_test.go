package identity

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// onH100 are the facts of a run without records on the datasheet's H100.
func onH100() *facts {
	f := emptyFacts()
	f.dep.Hardware, _ = deploy.Datasheet("H100")
	return f
}

// TestPriceOfABatch: the library's time is the sum of its columns with their weights, the least one without launches outside
// CUDA graphs.
func TestPriceOfABatch(t *testing.T) {
	f := onH100()
	price := f.pricer()
	step, err := library.Bound(f.dep, library.Options{})
	if err != nil {
		t.Fatal(err)
	}
	theta := library.Learned().On(f.dep.Hardware.Name)
	eager := map[int]bool{library.EagerLayer: true, library.EagerExperts: true, library.EagerLatent: true, library.EagerWhole: true, library.EagerFP8: true}
	for _, b := range []library.Batch{{Tokens: 4, Sequences: 4, Decodes: 4, DecodeContext: 4000}, {Tokens: 2000, Sequences: 1, Prefills: 1, PrefillTokens: 2000, PrefillPairs: 2e6}} {
		var columns [library.NumStep]float64
		step.NewPricer().Features(&b, &theta, &columns)
		var most float64
		for k := range columns {
			most += theta[k] * columns[k]
		}
		step.NewPricer().Columns(&b, &columns)
		var least float64
		for k := range columns {
			if !eager[k] {
				least += theta[k] * columns[k]
			}
		}
		got := price(&b)
		if math.Abs(got.leastUs-least) > 1e-6*least || math.Abs(got.mostUs-most) > 1e-6*most || !(least > 100) || most < least {
			t.Errorf("got %+v, want %g to %g", got, least, most)
		}
	}
	f.dep.Hardware.Name = "none"
	if f.pricer() != nil {
		t.Error("another device has a price")
	}
	in := features.StepInput{ScheduledTokens: 9, NumSampledSeqs: 3, NumDecodeReqs: 2, DecodeContextTokens: 102, NumPrefillReqs: 1, PrefillTokens: 7, PrefillCausalWork: 28}
	if got, want := batchOf(&in), (library.Batch{Tokens: 9, Sequences: 3, Decodes: 2, DecodeContext: 100, Prefills: 1, PrefillTokens: 7, PrefillPairs: 28}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	in.DecodeContextTokens = 1
	if got := batchOf(&in); got.DecodeContext != 0 {
		t.Errorf("got %+v", got)
	}
}

// TestPriorOfLevels: load levels at multiples of the library's times of their decodes and prompts.
func TestPriorOfLevels(t *testing.T) {
	f := onH100()
	f.price = f.pricer()
	const prompt, output = 1000, 101
	decode := f.decodeTime(1, prompt+float64(output/2)+0.5)
	first := f.prefillTime(prompt)
	// At 1e-6 requests a second prompts take no time and one request decodes alone.
	with := func(n int, times, ttft float64, change func(p *trace.LoadPoint)) reading {
		own := onH100()
		for range n {
			p := trace.LoadPoint{RateRPS: trace.Some(1e-6), PromptTokens: prompt, OutputTokens: output, TPOTMs: times * decode.mostUs / 1e3, TTFTMs: trace.Some(ttft * first.leastUs / 1e3)}
			if times < 1 {
				p.TPOTMs = times * decode.leastUs / 1e3
			}
			if change != nil {
				change(&p)
			}
			own.run.Points = append(own.run.Points, p)
		}
		return priorOfLevels(own)
	}
	wanted{6, 0, 1, false, ""}.compare(t, "as predicted", with(3, 1, 1, nil))
	wanted{6, 0, 1.49, false, ""}.compare(t, "just below", with(3, 1.49, 1, nil))
	wanted{6, 3, 1.51, true, "tokens after the first take 1.51 times"}.compare(t, "just above", with(3, 1.51, 1, nil))
	wanted{6, 3, 0.66, true, "tokens after the first take 0.66 times"}.compare(t, "too short", with(3, 0.66, 1, nil))
	wanted{6, 3, 0.5, true, "first tokens come in 0.5 times"}.compare(t, "early first tokens", with(3, 1, 0.5, nil))
	wanted{6, 0, 1, false, ""}.compare(t, "late first tokens", with(3, 1, 7, nil))
	wanted{3, 0, 1, false, ""}.compare(t, "no TTFT", with(3, 1, 1, func(p *trace.LoadPoint) { p.TTFTMs.OK = false }))
	wanted{text: "no kernel tables of H100-SXM-80GB for this model, or fewer than 3 levels"}.compare(t, "two levels", with(2, 1, 1, nil))
	wanted{text: "fewer than 3 levels"}.compare(t, "experts apart", with(3, 1, 1, func(p *trace.LoadPoint) { p.EP = trace.Some(int64(2)) }))
	wanted{text: "fewer than 3 levels"}.compare(t, "ranks", with(3, 1, 1, func(p *trace.LoadPoint) { p.DP = trace.Some(int64(2)) }))
	wanted{6, 0, 1, false, ""}.compare(t, "one rank", with(3, 1, 1, func(p *trace.LoadPoint) { p.DP, p.EP = trace.Some(int64(1)), trace.Some(int64(1)) }))
	wanted{text: "no load levels"}.compare(t, "no level", priorOfLevels(onH100()))
	// One GPU of two takes longer than both: levels of tp 2 with the times of tp 1 are slow.
	if r := with(3, 1, 1, func(p *trace.LoadPoint) { p.TP = trace.Some(int64(2)) }); !(r.largest > 1.2) {
		t.Errorf("of two GPUs: got %+v", r)
	}
	for _, c := range []struct {
		p        trace.LoadPoint
		rate, in float64
	}{
		{trace.LoadPoint{RateRPS: trace.Some(2.0), OutputTokens: 101, TPOTMs: 20}, 2, 4},
		{trace.LoadPoint{Clients: trace.Some(int64(4)), TTFTMs: trace.Some(1000.0), OutputTokens: 101, TPOTMs: 10}, 2, 2},
		{trace.LoadPoint{OfferedRPS: trace.Some(3.0), OutputTokens: 101, TPOTMs: 1}, 3, 1},
		{trace.LoadPoint{OutputTokens: 101, TPOTMs: 1}, 0, 1},
	} {
		if rate, in := levelRate(&c.p), inFlight(&c.p); math.Abs(rate-c.rate) > 1e-9 || math.Abs(in-c.in) > 1e-9 {
			t.Errorf("%+v: got %g requests/s and %g in flight, want %g and %g", c.p, rate, in, c.rate, c.in)
		}
	}
}

// TestFloorOfLevels: load levels at multiples of the physical floor of their device and number of GPUs.
func TestFloorOfLevels(t *testing.T) {
	const context = 1000 + 20/2
	floors := func(tp int64, computed float64) (gapMs, promptMs float64) {
		d := onH100().dep
		d.TP = tp
		space, err := features.New(features.DefaultVersion(d), d)
		if err != nil {
			t.Fatal(err)
		}
		decode := space.Roofline(&features.StepInput{ScheduledTokens: 1, DecodeTokens: 1, NumDecodeReqs: 1, NumSampledSeqs: 1, DecodeContextTokens: context, KVReadTokens: context})
		prompt := space.Roofline(&features.StepInput{ScheduledTokens: computed, PrefillTokens: computed, NumPrefillReqs: 1, NumSampledSeqs: 1})
		return 1e3 * math.Max(decode.LinearS, decode.WeightS+decode.KVS), 1e3 * math.Max(prompt.LinearS, prompt.WeightS)
	}
	gap, prompt := floors(1, 1000)
	gapOfTwo, promptOfTwo := floors(2, 1000)
	_, promptOf600 := floors(1, 600)
	with := func(n int, gap, prompt float64, change func(f *facts, p *trace.LoadPoint)) reading {
		f := onH100()
		f.dep.Engine.PrefixCaching = true
		for range n {
			p := trace.LoadPoint{PromptTokens: 1000, OutputTokens: 20, TPOTMs: gap, TTFTMs: trace.Some(prompt)}
			change(f, &p)
			f.run.Points = append(f.run.Points, p)
		}
		return requestFloor(f)
	}
	none := func(*facts, *trace.LoadPoint) {}
	uncached := func(f *facts, _ *trace.LoadPoint) { f.dep.Engine.PrefixCaching = false }
	wanted{3, 0, 2, false, ""}.compare(t, "prompts that may be cached", with(3, 2*gap, 3*prompt, none))
	wanted{6, 0, 2, false, ""}.compare(t, "without a cache", with(3, 2*gap, 3*prompt, uncached))
	wanted{6, 6, 0.79, true, "tokens after the first take 0.79 times what one request alone takes at the peak of H100-SXM-80GB with tp 1"}.compare(t, "below", with(3, 0.79*gap, 3*prompt, uncached))
	wanted{6, 0, 0.81, false, ""}.compare(t, "above", with(3, 0.81*gap, 3*prompt, uncached))
	wanted{6, 6, 0.7, true, "first tokens take 0.7 times"}.compare(t, "first tokens", with(3, 2*gap, 0.7*prompt, uncached))
	wanted{6, 0, 1.5, false, ""}.compare(t, "400 of 1000 cached", with(3, 2*gap, 1.5*promptOf600, func(_ *facts, p *trace.LoadPoint) { p.CachedTokens = trace.Some(400.0) }))
	wanted{6, 0, 1.1, false, ""}.compare(t, "two GPUs", with(3, 1.1*gapOfTwo, 3*promptOfTwo, func(f *facts, p *trace.LoadPoint) {
		f.dep.Engine.PrefixCaching = false
		p.TP = trace.Some(int64(2))
	}))
	wanted{6, 0, 1.1, false, ""}.compare(t, "the first level on two GPUs", with(3, 1.1*gap, 3*prompt, func(f *facts, p *trace.LoadPoint) {
		f.dep.Engine.PrefixCaching = false
		if len(f.run.Points) == 0 {
			p.TP = trace.Some(int64(2))
			p.TPOTMs = 1.1 * gapOfTwo
		}
	}))
	for name, change := range map[string]func(*facts, *trace.LoadPoint){
		"experts apart": func(_ *facts, p *trace.LoadPoint) { p.EP = trace.Some(int64(2)) },
		"ranks":         func(_ *facts, p *trace.LoadPoint) { p.DP = trace.Some(int64(2)) },
	} {
		wanted{text: "fewer than 20 requests or load levels"}.compare(t, name, with(3, gap, prompt, change))
	}
	wanted{3, 0, 2, false, ""}.compare(t, "one rank", with(3, 2*gap, 3*prompt, func(_ *facts, p *trace.LoadPoint) { p.EP, p.DP = trace.Some(int64(1)), trace.Some(int64(1)) }))
	wanted{text: "fewer than 3 requests or load levels"}.compare(t, "two levels", with(2, gap, prompt, none))
}

// TestOtherPools: the description, wrong in one point, that gives the recorded number of blocks.
func TestOtherPools(t *testing.T) {
	const eight = 1 // bytes
	of := func(change func(d *deploy.Deployment), blocks func(d *deploy.Deployment)) *facts {
		f := onH100()
		change(f.dep)
		d := *f.dep
		blocks(&d)
		n, err := d.EstimateKVBlocks()
		if err != nil {
			t.Fatal(err)
		}
		f.dep.Engine.KVBlocksGPU = trace.Some(n)
		return f
	}
	kv := func(d *deploy.Deployment) { d.Model.BytesPerKV *= 2 }
	weights := func(d *deploy.Deployment) { d.Model.BytesPerWeight, d.Model.BytesPerLMHead = 2, 2 }
	for name, c := range map[string]struct {
		f    *facts
		want string
	}{
		"cache": {of(func(d *deploy.Deployment) { d.Model.BytesPerKV = eight }, kv), "kv_cache_dtype in run.yaml may be wrong: values of twice the bytes give this size"},
		"weights": {of(func(d *deploy.Deployment) {
			d.Model.BytesPerWeight, d.Model.BytesPerLMHead, d.Engine.GPUMemoryUtilization = eight, eight, 0.4
		}, weights), "dtype or quantization in run.yaml may be wrong: weights of twice the bytes give this size"},
		"weights beside a head of 16 bits": {of(func(d *deploy.Deployment) { d.Model.BytesPerWeight, d.Engine.GPUMemoryUtilization = eight, 0.4 }, weights),
			"dtype or quantization in run.yaml may be wrong: weights of twice the bytes give this size"},
		"weights of 4 bits": {of(func(d *deploy.Deployment) { d.Model.BytesPerWeight, d.Engine.GPUMemoryUtilization = 0.5, 0.4 }, weights),
			"dtype or quantization in run.yaml may be wrong: weights of 16 bits give this size"},
		"both": {of(func(d *deploy.Deployment) {
			d.Model.BytesPerKV, d.Model.BytesPerWeight, d.Model.BytesPerLMHead, d.Engine.GPUMemoryUtilization = eight, eight, eight, 0.4
		}, func(d *deploy.Deployment) { kv(d); weights(d) }), "dtype or quantization, and kv_cache_dtype, in run.yaml may be wrong: twice the bytes give this size"},
		"heads": {of(func(*deploy.Deployment) {}, func(d *deploy.Deployment) { d.Model.NumKVHeads *= 2 }), "num_key_value_heads of the model may be wrong: 16 give this size"},
		"size of a head": {of(func(d *deploy.Deployment) { d.Model.HeadDim /= 2 }, func(d *deploy.Deployment) { d.Model.HeadDim *= 2 }),
			"head_dim of the model may be wrong: 128, hidden_size / num_attention_heads, gives this size"},
		"memory": {of(func(*deploy.Deployment) {}, func(d *deploy.Deployment) { d.Hardware, _ = deploy.Datasheet("B200") }),
			"hardware in run.yaml may be wrong: the memory of "},
		"itself": {of(func(*deploy.Deployment) {}, func(*deploy.Deployment) {}), ""},
	} {
		if got := c.f.otherPool(c.f.dep.Engine.KVBlocksGPU.V); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	f := onH100()
	f.dep.Engine.KVBlocksGPU = trace.Some(int64(0))
	wanted{text: "the size of the KV cache is not recorded"}.compare(t, "no blocks", poolOfMemory(f))
	f.dep.Engine.KVBlocksGPU.V = 100
	f.dep.Engine.GPUMemoryUtilization = 0.1 // 8 GB, fewer than the weights
	wanted{1, 1, math.Inf(1), true, "the engine has 100 blocks where none would fit"}.comparePool(t, "no room", poolOfMemory(f))
	f.dep.Model.Sizes = &model.StatedSizes{}
	wanted{text: "run.yaml states the sizes of the model"}.compare(t, "stated sizes", poolOfMemory(f))
	f.dep.Hardware.Name = "none"
	wanted{text: "none is not a device of the library"}.compare(t, "another device", poolOfMemory(f))
}

// comparePool compares a reading whose largest departure is not finite.
func (w wanted) comparePool(t *testing.T, name string, got reading) {
	t.Helper()
	if got.checked != w.checked || got.violated != w.violated || got.largest != w.largest || got.broken != w.broken || !strings.Contains(got.sentence, w.text) {
		t.Errorf("%s: got %+v, want %+v", name, got, w)
	}
}

// TestContradictionsOfADescription: each finding of a setting is counted where its kind of setting is.
func TestContradictionsOfADescription(t *testing.T) {
	f := emptyFacts()
	for _, setting := range []string{"hardware.name", "vllm.max_num_seqs", "vllm.version", ""} {
		f.Findings = append(f.Findings, trace.Finding{Code: source.CodeRunContradicted, Setting: setting, Message: "<" + setting + ">"})
	}
	f.Findings = append(f.Findings, trace.Finding{Code: source.CodeCut, Setting: "hardware.name", Message: "<cut>"})
	counts := map[string]int{}
	for name, r := range map[string]reading{"server": statedServer(f), "scheduler": statedScheduler(f), "other": describedAlike(f)} {
		for _, w := range f.Findings {
			if strings.Contains(r.sentence, w.Message) {
				counts[w.Message]++
			}
		}
		if n := 1 + strings.Count(r.sentence, "; "); !r.broken || r.violated != n || r.largest != float64(n) || r.checked != 1 {
			t.Errorf("%s: got %+v", name, r)
		}
	}
	if fmt.Sprint(counts) != "map[<>:1 <hardware.name>:1 <vllm.max_num_seqs>:1 <vllm.version>:1]" {
		t.Errorf("got %v", counts)
	}
	if r := statedServer(f); !strings.Contains(r.sentence, "<hardware.name>") {
		t.Errorf("server: got %+v", r)
	}
	if r := statedScheduler(f); !strings.Contains(r.sentence, "<vllm.max_num_seqs>") {
		t.Errorf("scheduler: got %+v", r)
	}
	wanted{1, 0, 0, false, ""}.compare(t, "nothing", statedServer(emptyFacts()))
}

// TestCountedContradictions: the contradictions of rows that were rebuilt once, at the limit of 2 %.
func TestCountedContradictions(t *testing.T) {
	f := emptyFacts()
	wanted{text: "the batches were not rebuilt"}.compare(t, "no rows", f.countedContradictions())
	f.Steps = &rows.Steps{}
	f.Steps.Quality.FromJourneys, f.Steps.Quality.Contradictions = 98, 2
	wanted{100, 2, 0.02, false, ""}.compare(t, "2 %", f.countedContradictions())
	f.Steps.Quality.FromJourneys = 97
	wanted{99, 2, 2.0 / 99, true, "2 of 99 steps count other tokens than the journeys in them advanced"}.compare(t, "more", f.countedContradictions())
}

// TestOthersOfCounters: requests of others by counters of the server, and tokens of a log that no client asked for.
func TestOthersOfCounters(t *testing.T) {
	f := emptyFacts()
	for i := range 80 {
		f.run.Observed = append(f.run.Observed, trace.ObservedRequest{ID: fmt.Sprintf("%c%c", 'a'+i%26, 'a'+i/26), OutputTokens: trace.Some(int64(11))})
	}
	f.run.Aggregate = &trace.Aggregate{Others: 0.2}
	if r := clientsComplete(f); r.violated != 20 || r.checked != 100 || r.largest != 0.2 || !strings.HasPrefix(r.sentence, "about 20 requests of the server") {
		t.Errorf("a fifth of others: got %+v", r)
	}
	for _, others := range []float64{0, 1, -1} {
		f.run.Aggregate.Others = others
		if r := clientsComplete(f); r.violated != 0 {
			t.Errorf("others %g: got %+v", others, r)
		}
	}
	f.run.Aggregate = nil
	f.dep.Engine.SpeculativeDecoding = false
	log := func(tokens int64) *facts {
		own := *f
		run := *f.run
		own.run = &run
		for i := range int64(10) {
			own.run.Iterations = append(own.run.Iterations, trace.Iteration{Form: trace.IterationLog, Index: i, GenerationTokens: tokens})
		}
		return &own
	}
	if r := log(106).decodesOfOthers(); r.broken { // 800 of 1060, more than 75 %
		t.Errorf("a few others: got %+v", r)
	}
	if r := log(107).decodesOfOthers(); !r.broken || r.effect != result.IdentityNamed || r.checked != 80 { // 800 of 1070
		t.Errorf("others: got %+v", r)
	}
	if r := log(0).decodesOfOthers(); r.broken {
		t.Errorf("no tokens: got %+v", r)
	}
	f.run.Observed[3].OutputTokens.OK = false
	if r := log(107).decodesOfOthers(); r.broken {
		t.Errorf("unknown outputs: got %+v", r)
	}
}

// TestTimesOfLoads: requests of clients by their own stamps or by those of the engine, of spans without clients, and those that
// count for nothing.
func TestTimesOfLoads(t *testing.T) {
	some := trace.Some[int64]
	f := emptyFacts()
	f.dep.Engine.PrefixCaching = false
	of := func(change func(o *trace.ObservedRequest)) trace.ObservedRequest {
		o := trace.ObservedRequest{SendNs: some(5_000_000), TTFTUs: trace.Some(700.0), E2EUs: trace.Some(1700.0), PromptTokens: some(40), OutputTokens: some(11), CachedTokens: some(8)}
		change(&o)
		return o
	}
	f.run.Observed = []trace.ObservedRequest{
		of(func(*trace.ObservedRequest) {}),
		of(func(o *trace.ObservedRequest) {
			o.TTFTUs.OK = false
			o.QueuedNs, o.EngineFirstNs, o.EngineLastNs = some(90_000_000), some(90_300_000), some(92_300_000)
		}),
		of(func(o *trace.ObservedRequest) { o.ArrivalNs, o.SendNs.OK = some(200_000_000), false }),
		of(func(o *trace.ObservedRequest) { o.Success = trace.Some(false) }),
		of(func(o *trace.ObservedRequest) { o.N = some(2) }),
		of(func(o *trace.ObservedRequest) { o.E2EUs.OK = false }),
		of(func(o *trace.ObservedRequest) { o.SendNs.OK = false }),
	}
	f.listRequests()
	var got []string
	for _, l := range f.loads {
		got = append(got, fmt.Sprint(l.sentUs, l.ttftUs, l.e2eUs, l.itlUs, l.prompt, l.output, l.cached, l.knowsCached, l.isPlanned, l.isAlone))
	}
	if want := "5000 700 1700 100 40 11 8 true false true|90000 300 2300 200 40 11 8 true false true|200000 700 1700 100 40 11 8 true true true"; strings.Join(got, "|") != want {
		t.Errorf("got %s, want %s", strings.Join(got, "|"), want)
	}
	f = emptyFacts()
	span := trace.Request{Source: trace.SourceStock, StartWallNs: some(6_000_000), StockTTFTUs: trace.Some(20.0), StockE2EUs: trace.Some(220.0), PromptTokens: some(7), OutputTokens: some(3)}
	other := span
	other.Source = trace.Request{}.Source
	f.run.Requests = []trace.Request{span, other}
	f.listRequests()
	if len(f.loads) != 1 || f.loads[0].sentUs != 6000 || f.loads[0].itlUs != 100 || f.loads[0].prompt != 7 {
		t.Errorf("spans: got %+v", f.loads)
	}
}

// TestEarlyFirstTokens: more than a tenth of the first tokens before their prompts' kernels are named, unless another departure is.
func TestEarlyFirstTokens(t *testing.T) {
	var r reading
	if r.nameEarly(10, 100, "requests", "X"); r.broken {
		t.Errorf("a tenth: got %+v", r)
	}
	if r.nameEarly(11, 100, "requests", "X"); !r.broken || r.violated != 11 || r.effect != result.IdentityNamed ||
		!strings.HasPrefix(r.sentence, "in 11 of 100 requests the first token comes earlier than the kernels of the prompt allow on X") {
		t.Errorf("more: got %+v", r)
	}
	for _, r := range []reading{{broken: true}, {why: "x"}} {
		if r.nameEarly(11, 100, "requests", "X"); r.violated != 0 || r.sentence != "" {
			t.Errorf("got %+v", r)
		}
	}
}

// TestPassesOfOtherTimes: elapsed times that go with their tokens, with those of the pass before, and with none.
func TestPassesOfOtherTimes(t *testing.T) {
	with := func(n int, us func(i int, tokens []int64) float64) reading {
		f := emptyFacts()
		var tokens []int64
		for i := range n {
			tokens = append(tokens, 10+int64(i*7919%n)*10)
		}
		for i := range n {
			f.run.Iterations = append(f.run.Iterations, trace.Iteration{Form: trace.IterationLog, Index: int64(i), ContextTokens: tokens[i], GenerationTokens: 5, ElapsedUs: us(i, tokens)})
		}
		// Passes far from prompts do not count.
		for i := range 5 {
			f.run.Iterations = append(f.run.Iterations, trace.Iteration{Form: trace.IterationLog, Index: int64(n + i), GenerationTokens: 5, ElapsedUs: 1})
		}
		return passOrder(f)
	}
	own := func(i int, tokens []int64) float64 { return float64(100 + tokens[i]) }
	before := func(i int, tokens []int64) float64 { return float64(100 + tokens[max(0, i-1)]) }
	none := func(i int, tokens []int64) float64 { return float64(100 + i*104729%211) }
	if r := with(211, own); r.broken || r.checked != 212 { // the first of the five is beside a prompt
		t.Errorf("own: got %+v", r)
	}
	if r := with(211, before); !r.broken || r.violated != 212 || !strings.Contains(r.sentence, "the elapsed time goes with the tokens of the pass before (rank correlation 0.99, with their own -0.47)") {
		t.Errorf("before: got %+v", r)
	}
	if r := with(211, none); !r.broken || r.violated != 212 || !(r.largest > 0.85) || !strings.HasPrefix(r.sentence, "the elapsed times of 212 passes with and beside prompts do not go with their tokens") {
		t.Errorf("none: got %+v", r)
	}
	if r := with(150, func(i int, tokens []int64) float64 { return float64(100 + i*104729%211) }); r.broken {
		t.Errorf("few: got %+v", r)
	}
	wanted{text: "fewer than 50 logged passes"}.compare(t, "48", with(48, own))
	f := emptyFacts()
	f.run.Iterations = []trace.Iteration{{Form: trace.IterationLog, Sampled: true}}
	wanted{text: "not every pass is logged"}.compare(t, "sampled", passOrder(f))
	f.run.Iterations = []trace.Iteration{{Form: trace.IterationChunks}}
	wanted{text: "not every pass is logged"}.compare(t, "chunks", passOrder(f))
}
