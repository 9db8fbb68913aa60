package identity

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// answer is a request of a client that was sent so many ms after the start, took 50 ms to its first token and then made so many tokens, one
// in so many ms.
func answer(sentMs, tokens int64, gapMs float64) trace.ObservedRequest {
	sendNs := 1e12 + sentMs*1e6
	afterUs := float64(tokens-1) * gapMs * 1e3
	return trace.ObservedRequest{
		SendNs: trace.Some(sendNs), FirstChunkNs: trace.Some(sendNs + 50e6), LastChunkNs: trace.Some(sendNs + 50e6 + int64(afterUs*1e3)), PromptTokens: trace.Some[int64](100),
		OutputTokens: trace.Some(tokens), TTFTUs: trace.Some(50e3), E2EUs: trace.Some(50e3 + afterUs), Success: trace.Some(true), Phase: trace.Some("load"),
	}
}

// TestClientPace: of pairs of answers that share 95 of 105 ms and more, those whose times between tokens differ over 1.5 times are counted.
func TestClientPace(t *testing.T) {
	pairs := func(n, unlike int, gapMs float64) *facts {
		f := emptyFacts()
		for i := range n {
			f.run.Observed = append(f.run.Observed, answer(int64(i)*1000, 20, 5))
			other := answer(int64(i)*1000+10, 20, 5)
			if i < unlike { // as many tokens in the same time
				other = answer(int64(i)*1000+10, 1+int64(19*5/gapMs), gapMs)
			}
			f.run.Observed = append(f.run.Observed, other)
		}
		f.listRequests()
		return f
	}
	wanted{30, 0, 1, false, ""}.compare(t, "one pace", clientPace(pairs(30, 0, 5)))
	wanted{30, 9, 2.5, false, ""}.compare(t, "nine pairs of thirty", clientPace(pairs(30, 9, 2)))
	wanted{30, 10, 2.5, true, "of 30 pairs of answers that are made at the same time 10 differ over 1.5 times"}.compare(t, "ten pairs", clientPace(pairs(30, 10, 2)))
	wanted{text: "fewer than 30 pairs"}.compare(t, "few pairs", clientPace(pairs(29, 29, 2)))
	several := pairs(30, 30, 2)
	several.dep.DP = 2
	wanted{text: "several engines"}.compare(t, "two engines", clientPace(several))
}

// TestPhaseLoads: phases without requests, and a load that is stated closed and holds no number in flight.
func TestPhaseLoads(t *testing.T) {
	loaded := func(kind string, gapMs func(i int) int64, tokens func(i int) int64) *facts {
		f := emptyFacts()
		f.dep.Phases = []deploy.Phase{{Name: "load", StartNs: 1e12, EndNs: 2e12, Load: kind}}
		at := int64(0)
		for i := range 60 {
			f.run.Observed = append(f.run.Observed, answer(at, tokens(i), 10))
			at += gapMs(i)
		}
		return f
	}
	held := func(int) int64 { return 60 } // each of 250 ms: five at a time
	uneven := func(i int) int64 {         // bursts of ten every 3 s
		if i%10 == 9 {
			return 3000
		}
		return 1
	}
	even := func(int) int64 { return 21 }
	mixed := func(i int) int64 { return int64(11 + i%7*3) }
	wanted{checked: 1}.compare(t, "closed", phaseLoads(loaded(deploy.LoadClosed, held, even)))
	wanted{checked: 1}.compare(t, "open", phaseLoads(loaded(deploy.LoadOpen, uneven, mixed)))
	if r := phaseLoads(loaded(deploy.LoadClosed, uneven, mixed)); !r.broken || r.violated != 1 || !strings.Contains(r.sentence, "load closed") {
		t.Errorf("open, stated closed: got %+v", r)
	}
	elsewhere := loaded(deploy.LoadOpen, uneven, mixed)
	elsewhere.dep.Phases[0].Name = "other"
	wanted{1, 1, 0, true, "none of 60 requests is in the phases of run.yaml (other)"}.compare(t, "another phase", phaseLoads(elsewhere))
	wanted{text: "states the load of no phase"}.compare(t, "no phases", phaseLoads(emptyFacts()))
	// Journeys are in phases by their arrival.
	traced := loaded(deploy.LoadOpen, uneven, mixed)
	for i := range traced.run.Observed {
		o := &traced.run.Observed[i]
		traced.run.Requests = append(traced.run.Requests, trace.Request{ArrivedNs: o.SendNs, DepartedNs: o.LastChunkNs})
	}
	wanted{checked: 1}.compare(t, "journeys", phaseLoads(traced))
	traced.dep.Phases[0].EndNs = 1e12
	wanted{1, 1, 0, true, "none of 60 requests"}.compare(t, "journeys later", phaseLoads(traced))
}

// TestStepsDiffer: twenty steps of five different batches and one time, more than a twentieth of all.
func TestStepsDiffer(t *testing.T) {
	steps := func(n, equal int, tokens func(i int) int64) *facts {
		f := emptyFacts()
		at := int64(1)
		for i := range n {
			f.run.Steps = append(f.run.Steps, trace.Step{ID: int64(i), TsStartNs: at, RunningDepth: 1, ScheduledTokens: int32(tokens(i))})
			at += 10_000_001 + int64(i)*1001
			if i < equal {
				at += 5_000_000 - int64(i)*1001
			}
		}
		return f
	}
	five := func(i int) int64 { return int64(i % 5) }
	wanted{100, 0, 0, false, ""}.compare(t, "no equal ones", stepsEqual(steps(101, 1, func(int) int64 { return 0 })))
	wanted{100, 19, 0.19, false, ""}.compare(t, "nineteen", stepsEqual(steps(101, 19, five)))
	wanted{100, 20, 0.2, true, "20 of 100 steps of different batches take 15 ms"}.compare(t, "twenty", stepsEqual(steps(101, 20, five)))
	if r := stepsEqual(steps(101, 20, func(i int) int64 { return int64(i % 4) })); r.broken {
		t.Errorf("twenty of four batches: got %+v", r)
	}
	if r := stepsEqual(steps(401, 20, five)); r.broken {
		t.Errorf("twenty of four hundred: got %+v", r)
	}
}

// TestSamplingRates: a stated rate below what was recorded, by more than 2 % and five standard deviations.
func TestSamplingRates(t *testing.T) {
	stated := func(rate float64, missing int) *facts {
		f := emptyFacts()
		f.run.Steps = stepsWithout(1000, missing)
		f.dep.Tracing.StepSampleRate = trace.Some(rate)
		return f
	}
	wanted{1, 0, 0, false, ""}.compare(t, "half of them", samplingRates(stated(0.5, 500)))
	wanted{1, 0, 0, false, ""}.compare(t, "by chance", samplingRates(stated(0.5, 405))) // 0.5 + 0.02 + 5 x 0.0158 = 0.599
	if r := samplingRates(stated(0.5, 400)); !r.broken || !strings.Contains(r.sentence, "step_tracing_sample_rate 0.5, and 60 % of 1000 were recorded") {
		t.Errorf("more than by chance: got %+v", r)
	}
	wanted{text: "no sample rate below 1"}.compare(t, "all", samplingRates(stated(1, 0)))
	snapshots := stated(1, 0)
	for i := range snapshots.run.Steps {
		snapshots.run.Steps[i].RunningDepth = 3
	}
	snapshots.dep.Tracing.RichSubsampleRate = trace.Some(0.1)
	snapshots.snapshot.steps = 160 // 0.1 + 0.02 + 5 x 0.0095 = 0.167
	wanted{1, 0, 0, false, ""}.compare(t, "snapshots by chance", samplingRates(snapshots))
	snapshots.snapshot.steps = 170
	if r := samplingRates(snapshots); !r.broken || !strings.Contains(r.sentence, "rich_subsample_rate") {
		t.Errorf("snapshots: got %+v", r)
	}
}

// TestPassPrompts: a pass computes no more of a prompt than its request has.
func TestPassPrompts(t *testing.T) {
	of := func(unlike int, prompt int64) *facts {
		f := servedBy(func(i int, o *trace.ObservedRequest) {
			if i < unlike {
				o.PromptTokens.V = prompt
			}
		})
		for i := range f.run.Iterations {
			f.run.Iterations[i].Form = trace.IterationLog
		}
		return f
	}
	wanted{checked: 100}.compare(t, "as they are", passPrompts(of(0, 0)))
	wanted{checked: 100}.compare(t, "longer ones, in several chunks", passPrompts(of(100, 900)))
	wanted{checked: 100}.compare(t, "within the tolerance", passPrompts(of(100, 475))) // 500 - 475 = 2 + 23
	wanted{100, 4, 100, false, ""}.compare(t, "four", passPrompts(of(4, 400)))
	wanted{100, 5, 100, true, "in 5 of 100 passes with one prompt more prompt tokens were computed"}.compare(t, "five", passPrompts(of(5, 400)))
}

// TestDecodesOfOthers: a quarter of the decodes of a log may be of no client's request.
func TestDecodesOfOthers(t *testing.T) {
	without := func(lost int) *facts {
		f := servedBy(nil)
		for i := range f.run.Iterations {
			f.run.Iterations[i].Form = trace.IterationLog
		}
		f.run.Observed = f.run.Observed[:len(f.run.Observed)-lost]
		return f
	}
	if r := clientsComplete(without(22)); r.broken { // the passes with prompts count one token each here: 78 x 10 of 1,000
		t.Errorf("22 of 100 requests lost: got %+v", r)
	}
	wanted{70, 1, 0.3, true, "a client's file is missing"}.compare(t, "30 of 100 requests lost", clientsComplete(without(30)))
}

// TestUntimedAnswers: streamed answers without a time to the first token are named where others have one.
func TestUntimedAnswers(t *testing.T) {
	without := func(n int) *facts {
		return servedBy(func(i int, o *trace.ObservedRequest) {
			o.TTFTUs.OK = i >= n
		})
	}
	wanted{96, 0, 0, false, ""}.compare(t, "four", clientStreams(without(4)))
	wanted{100, 5, 0.05, true, "5 of 100 answers of 8 tokens and more have no time to the first token"}.compare(t, "five", clientStreams(without(5)))
	wanted{text: "not recorded"}.compare(t, "all", reading{why: "not recorded"})
}

// TestGapsCutOff: twenty gaps and more of the longest time of all, where others are measured finely.
func TestGapsCutOff(t *testing.T) {
	cut := func(most float64) *facts {
		return servedBy(func(i int, o *trace.ObservedRequest) {
			for k := range o.ChunkGapsUs {
				o.ChunkGapsUs[k] = min(most, 10e3+float64(10*i+k)+0.5)
			}
		})
	}
	for _, c := range []struct {
		most float64
		want bool
	}{{1e6, false}, {10_982, false}, {10_980, true}} { // 18 and 20 of a thousand
		var r reading
		cut(c.most).gapsCutOff(&r)
		if r.broken != c.want {
			t.Errorf("%g us: got %+v", c.most, r)
		}
	}
}

// TestNearlyRounded: times that were rounded and then converted are multiples but for the last digits.
func TestNearlyRounded(t *testing.T) {
	times := func(roundUs int64) roundedTimes {
		var out roundedTimes
		for i := range int64(100) {
			out.us = append(out.us, (7_919_123*i%1_000_003+roundUs/2)/roundUs*roundUs+i%2)
		}
		return out
	}
	for roundUs, want := range map[int64]float64{100_000: 100_000, 20_000: 20_000, 1000: 1000, 7: 0} {
		stamps := times(roundUs)
		if got := stamps.roundedUs(); got != want {
			t.Errorf("rounded to %d us: got %g, want %g", roundUs, got, want)
		}
	}
}

// TestWiderWeights: weights that are stated as 8 bits wide and give a cache of 8 to 15 % too many blocks are named where 16 bits give
// the recorded size.
func TestWiderWeights(t *testing.T) {
	f := emptyFacts()
	f.dep.Hardware, _ = deploy.Datasheet("H100")
	blocks, err := f.dep.EstimateKVBlocks()
	if err != nil {
		t.Fatal(err)
	}
	f.dep.Engine.KVBlocksGPU = trace.Some(blocks)
	if r := poolOfMemory(f); r.broken {
		t.Errorf("as it is: got %+v", r)
	}
	f.dep.Model.BytesPerWeight = 1
	if r := poolOfMemory(f); !r.broken || !strings.Contains(r.sentence, "weights of twice the bytes give this size") {
		t.Errorf("weights of 8 bits: got %+v", r)
	}
	f.dep.Engine.KVBlocksGPU.V = blocks * 104 / 100
	if r := poolOfMemory(f); r.broken {
		t.Errorf("another size: got %+v", r)
	}
}
