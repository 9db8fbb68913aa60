package otlp

import (
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestStockTimesAreMicroseconds: each duration in seconds has a value of its own.
func TestStockTimesAreMicroseconds(t *testing.T) {
	a := &attrs{}
	for s, v := range map[slot]float64{stockTTFT: 0.001, stockE2E: 0.002, stockQueue: 0.003, stockPrefill: 0.004, stockDecode: 0.005, stockInference: 0.006} {
		a.storeFloat(s, v)
	}
	got := a.stockTimes()
	for name, v := range map[string]struct {
		got  trace.Opt[float64]
		want float64
	}{
		"TTFT": {got.TTFTUs, 1000}, "E2E": {got.E2EUs, 2000}, "queue": {got.QueueUs, 3000}, "prefill": {got.PrefillUs, 4000},
		"decode": {got.DecodeUs, 5000}, "inference": {got.InferUs, 6000},
	} {
		if !v.got.OK || math.Abs(v.got.V-v.want) > 1e-9 {
			t.Errorf("%s: got %v us, want %g", name, v.got, v.want)
		}
	}
	if none := (&attrs{}).stockTimes(); none != (StockTimes{}) {
		t.Errorf("without attributes: got %+v", none)
	}
	if got := secondsToNs(1.5); got != 1_500_000_000 {
		t.Errorf("1.5 s: got %d ns", got)
	}
	b := newBuilder()
	b.beginSpan()
	if got := b.clampNs(math.MaxInt64); got != math.MaxInt64 || b.cur.Bad != "" {
		t.Errorf("63 bits: got %d %q", got, b.cur.Bad)
	}
	if got := b.clampNs(math.MaxInt64 + 1); got != math.MaxInt64 || b.cur.Bad == "" {
		t.Errorf("64 bits: got %d %q", got, b.cur.Bad)
	}
}

// summary returns the attributes of a step of 3 prompts with 30 tokens and 5 decodes.
func summary(change map[slot]int64) *attrs {
	a := &attrs{}
	values := map[slot]int64{
		stepID: 7, stepTsStart: 1_000_000, stepTsEnd: 3_500_000, stepDuration: 2500, queueRunning: 8, queueWaiting: 2,
		batchPrefillReqs: 3, batchPrefill: 30, batchDecodeReqs: 5, batchDecode: 5, batchScheduled: 35, batchFinished: 1, batchPreempted: 0,
		kvTotal: 100, kvFree: 60,
	}
	for s, v := range values {
		if w, isChanged := change[s]; isChanged {
			v = w
		}
		a.store(s, attrKeys[s].want, v, nil)
	}
	a.storeFloat(kvUsage, 0.4)
	return a
}

func TestStepsThatContradictThemselves(t *testing.T) {
	const day = 86_400e9
	for _, c := range []struct {
		name   string
		change map[slot]int64
		want   string // of the fault; empty: the step is kept
	}{
		{"consistent", nil, ""},
		{"tokens do not add up", map[slot]int64{batchScheduled: 36}, "batch:"},
		{"prompt tokens without a prompt", map[slot]int64{batchPrefillReqs: 0}, "batch:"},
		{"a prompt without tokens", map[slot]int64{batchPrefill: 0, batchScheduled: 5}, "batch:"},
		{"decode tokens without a decode", map[slot]int64{batchDecodeReqs: 0}, "batch:"},
		{"a decode without tokens", map[slot]int64{batchDecode: 0, batchScheduled: 30}, "batch:"},
		{"as many prompts as run", map[slot]int64{queueRunning: 5}, ""},
		{"more decodes than run", map[slot]int64{queueRunning: 4}, "batch.num_decode_reqs:"},
		{"all blocks are free", map[slot]int64{kvFree: 100}, ""},
		{"more are free than there are", map[slot]int64{kvFree: 101}, "kv."},
		{"ends when it starts", map[slot]int64{stepTsEnd: 1_000_000}, ""},
		{"ends before", map[slot]int64{stepTsEnd: 999_999}, "step.ts_end_ns - step.ts_start_ns, us:"},
		{"takes a day", map[slot]int64{stepTsEnd: 1_000_000 + day}, ""},
		{"and more", map[slot]int64{stepTsEnd: 1_000_000 + day + 1000}, "step.ts_end_ns - step.ts_start_ns, us:"},
	} {
		b := newBuilder()
		b.beginSpan()
		b.ev = *summary(c.change)
		b.addSummary(9)
		fault := ""
		for _, f := range b.cur.Faults {
			fault += strings.TrimPrefix(f.Msg, StepSummary.String()+": ")
		}
		kept := len(b.rows.Steps) == 1
		if kept != (c.want == "") || !strings.HasPrefix(fault, c.want) || fault != "" && c.want == "" {
			t.Errorf("%s: got kept %v, %q, want %q", c.name, kept, fault, c.want)
		}
		if c.change == nil {
			want := trace.Step{ID: 7, TsStartNs: 1_000_000, TsEndNs: 3_500_000, DurationUs: 2500, RunningDepth: 8, WaitingDepth: 2, NumPrefillReqs: 3,
				NumDecodeReqs: 5, ScheduledTokens: 35, PrefillTokens: 30, DecodeTokens: 5, NumFinished: 1, KVUsage: 0.4, BlocksTotal: 100, BlocksFree: 60, WallNs: 9}
			if b.rows.Steps[0] != want || b.cur.FirstStep != 7 || b.cur.LastStep != 7 {
				t.Errorf("got %+v, want %+v", b.rows.Steps[0], want)
			}
		}
	}
}

func TestClassesOfSpans(t *testing.T) {
	for _, c := range []struct {
		scope, name string
		hasJourney  bool
		want        Class
	}{
		{"vllm.api", "llm_request", false, ClassAPI},
		{"vllm.api", "llm_core", false, ClassForeign},
		{"vllm.scheduler", "llm_core", false, ClassCore},
		{"vllm.scheduler", "scheduler_steps_1", false, ClassStep},
		{"vllm.scheduler.step", "scheduler_steps", false, ClassStep},
		{"vllm.api", "scheduler_steps", false, ClassForeign},
		{"vllm.scheduler.step", "steps", false, ClassForeign},
		{"vllm.llm_engine", "llm_request", true, ClassCore},
		{"vllm.llm_engine", "llm_request", false, ClassStock},
		{"vllm.tracing.otel", "llm_request", false, ClassStock},
		{"vllm.tracing.otel", "other", false, ClassForeign},
		{"other", "llm_request", false, ClassForeign},
	} {
		if got := classify(&Span{Scope: c.scope, Name: c.name}, c.hasJourney); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	// Every event belongs to the spans of one class.
	for e := range numEvents {
		want := ClassStep
		first := stepID
		switch {
		case strings.HasPrefix(e.String(), "api."):
			want, first = ClassAPI, apiTs
		case strings.HasPrefix(e.String(), "journey."):
			want, first = ClassCore, journeyType
		}
		for _, class := range []Class{ClassAPI, ClassCore, ClassStep, ClassStock, ClassForeign} {
			if got := class.allows(e); got != (class == want) {
				t.Errorf("%s in class %v: got %v", e, class, got)
			}
		}
		if firstSlot[e] != first {
			t.Errorf("%s: got the slot %s first, want %s", e, attrKeys[firstSlot[e]].key, attrKeys[first].key)
		}
		s := &Span{Class: want}
		s.Counts[e] = 3
		other := &Span{Class: ClassStock}
		other.Counts[e] = 3
		s.dropForeignEvents()
		other.dropForeignEvents()
		if s.Counts[e] != 3 || len(s.Others) != 0 || other.Counts[e] != 0 || len(other.Others) != 1 || other.Others[0].N != 3 {
			t.Errorf("%s: got counts %d and %d, others %v and %v", e, s.Counts[e], other.Counts[e], s.Others, other.Others)
		}
	}
}

func TestSlots(t *testing.T) {
	if got := slotRange(2, 4); got != 0b11100 {
		t.Errorf("slots 2 to 4: got %b", got)
	}
	if got := slotRange(3, 3); got != 0b1000 {
		t.Errorf("slot 3: got %b", got)
	}
	for text, want := range map[string]int{"1.5}": 3, "0.25,": 4, "12": 2, "": 0, ".5": 0, "01": 0, "0": 1, "x": 0, "-1": 0} {
		if _, n := quickDouble([]byte(text)); n != want {
			t.Errorf("%q: got %d bytes of a number, want %d", text, n, want)
		}
	}
	if v, n := quickDouble([]byte("12.75}}")); v != 12.75 || n != 5 {
		t.Errorf("got %g in %d bytes, want 12.75 in 5", v, n)
	}
}
