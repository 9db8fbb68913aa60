package extract

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/blis-train/blis-train/vllm"
)

// textsOf are findings with their codes.
func textsOf(list []trace.Finding) []string {
	out := []string{}
	for _, f := range list {
		out = append(out, string(f.Code)+": "+f.Message)
	}
	return out
}

// TestColumnsOfJourneyEvents: what each kind of event sets; of two of one kind the first stamp stays.
func TestColumnsOfJourneyEvents(t *testing.T) {
	some := trace.Some[int64]
	at := func(kind string, ns, step int64, change func(*trace.JourneyEvent)) trace.JourneyEvent {
		ev := trace.JourneyEvent{Kind: kind, TsNs: some(ns), Step: some(step)}
		if change != nil {
			change(&ev)
		}
		return ev
	}
	events := []trace.JourneyEvent{
		at("QUEUED", 10, 1, func(e *trace.JourneyEvent) { e.PrefillTotal, e.DecodeMax = some(100), some(7) }),
		at("QUEUED", 11, 2, nil),
		at("SCHEDULED", 20, 3, func(e *trace.JourneyEvent) { e.ScheduleKind = trace.Some("FIRST") }),
		at("SCHEDULED", 21, 4, func(e *trace.JourneyEvent) { e.ScheduleKind = trace.Some("RESUME") }),
		at("FIRST_TOKEN", 30, 5, func(e *trace.JourneyEvent) { e.PrefillTotal = some(101) }),
		at("PREEMPTED", 31, 6, func(e *trace.JourneyEvent) { e.Preemptions = some(2) }),
		at("FIRST_TOKEN", 32, 7, nil),
		at("FINISHED", 40, 8, func(e *trace.JourneyEvent) {
			e.FinishStatus, e.DecodeDone, e.DecodeMax = trace.Some("length"), some(6), some(8)
		}),
	}
	var r trace.Request
	head := coreHead{LastNs: math.MinInt64, SchedStep: -1}
	for i := range events {
		setFromEvent(&r, &events[i])
		head.noteEvent(&events[i])
	}
	want := trace.Request{QueuedNs: some(10), QueuedStep: some(1), ScheduledNs: some(20), ScheduledStep: some(3), FirstTokenNs: some(30), FirstTokenStep: some(5),
		FinishedNs: some(40), FinishedStep: some(8), FinishStatus: trace.Some("length"), OutputTokens: some(6), PromptTokens: some(101), MaxTokens: some(8),
		Preemptions: some(2)}
	if d := cmp.Diff(want, r); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if want := (coreHead{LastNs: 40, LastStep: 8, SchedNs: 20, SchedStep: 3}); head != want {
		t.Errorf("got %+v, want %+v", head, want)
	}
	// A resumption sets nothing, an event without a kind of scheduling is the first; stamps may come out of order.
	var resumed trace.Request
	setFromEvent(&resumed, &events[3])
	if resumed.ScheduledNs.OK {
		t.Errorf("a resumption: got %+v", resumed)
	}
	unnamed := at("SCHEDULED", 0, 0, nil)
	setFromEvent(&resumed, &unnamed)
	if !resumed.ScheduledNs.OK {
		t.Error("an older fork's SCHEDULED is not used")
	}
	late := coreHead{LastNs: 50, SchedStep: -1}
	late.noteEvent(&unnamed)
	noStep := trace.JourneyEvent{Kind: "SCHEDULED", TsNs: some(60)}
	late.noteEvent(&noStep)
	if want := (coreHead{LastNs: 60}); late != want {
		t.Errorf("got %+v, want %+v", late, want)
	}
	noStamp := coreHead{SchedStep: -1}
	noStamp.noteEvent(&trace.JourneyEvent{Kind: "SCHEDULED", Step: some(9)})
	if want := (coreHead{LastStep: 9, SchedStep: -1}); noStamp != want {
		t.Errorf("got %+v, want %+v", noStamp, want)
	}
}

// TestColumnsOfAPISpans: the stamps, the route and the ids are those of the API span, the token counts only where the engine has none.
func TestColumnsOfAPISpans(t *testing.T) {
	some := trace.Some[int64]
	p := &apiRow{apiHead: apiHead{Key: spanKey{[16]byte{0xab}, [8]byte{0x12}}, Line: 44, File: 1}, request: trace.Request{
		APIID: trace.Some("cmpl-1"), Route: trace.Some("/v1/completions"), Model: trace.Some("api"), ArrivedNs: some(1), HandoffNs: some(2),
		FirstResponseNs: some(3), DepartedNs: some(4), AbortedNs: some(5), AbortReason: trace.Some("gone"), PromptTokens: some(6), OutputTokens: some(7),
		MaxTokens: some(8), N: some(9), StartWallNs: some(10), EndWallNs: some(11),
	}}
	want := p.request
	want.APISpanID, want.APILine = trace.Some("1200000000000000"), some(44)
	r := trace.Request{StartWallNs: some(900), EndWallNs: some(901), Model: trace.Some("core")}
	fillAPI(&r, p)
	if d := cmp.Diff(want, r); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	r = trace.Request{PromptTokens: some(60), OutputTokens: some(70), MaxTokens: some(80), Model: trace.Some("core")}
	want.PromptTokens, want.OutputTokens, want.MaxTokens, want.Model = some(60), some(70), some(80), trace.Some("core")
	p.request.Model = trace.Opt[string]{}
	fillAPI(&r, p)
	if d := cmp.Diff(want, r); d != "" {
		t.Errorf("counts of the engine (-want +got):\n%s", d)
	}

	c := &collector{names: []source.Input{{Name: "a"}, {Name: "b"}}}
	want = p.request
	want.Source, want.Link, want.File, want.APILine, want.Success = "fork", "none", "b", some(44), trace.Some(true)
	want.TraceID, want.APISpanID = trace.Some("ab"+strings.Repeat("0", 30)), trace.Some("1200000000000000")
	if d := cmp.Diff(want, c.requestOfAPI(p, false)); d != "" {
		t.Errorf("alone (-want +got):\n%s", d)
	}
	for n, ok := range map[trace.Opt[int64]]bool{some(1): true, some(0): false, {}: false} {
		p.request.OutputTokens = n
		want.OutputTokens, want.Source, want.Success = n, "stock", trace.Some(ok)
		if d := cmp.Diff(want, c.requestOfAPI(p, true)); d != "" {
			t.Errorf("stock (-want +got):\n%s", d)
		}
	}
	no, yes := trace.Some(false), trace.Some(true)
	for _, c := range []struct {
		r    trace.Request
		want trace.Opt[bool]
	}{
		{trace.Request{DepartedNs: some(1), AbortedNs: some(1), FinishStatus: trace.Some("aborted")}, yes},
		{trace.Request{AbortedNs: some(1), FinishStatus: trace.Some("stopped")}, no},
		{trace.Request{FinishStatus: trace.Some("stopped")}, yes}, {trace.Request{FinishStatus: trace.Some("length")}, yes},
		{trace.Request{FinishStatus: trace.Some("aborted")}, no}, {trace.Request{}, trace.Opt[bool]{}},
	} {
		if got := success(&c.r); got != c.want {
			t.Errorf("%+v: got %v, want %v", c.r, got, c.want)
		}
	}
	for route, want := range map[string]bool{"": false, "/v1/completions": false, "/v1/chat/completions": false, "/v1/embeddings": true, "/pooling": true} {
		if got := lacksCoreSpans(route); got != want {
			t.Errorf("route %q: got pooling %v", route, got)
		}
	}
	for core, want := range map[string]string{
		"cmpl-ab-0-12345678": "cmpl-ab-0 cmpl-ab cmpl-ab-0-12345678", "chatcmpl-ab-12345678": "chatcmpl-ab chatcmpl-ab-12345678",
		"3_cmpl-ab-0-x": "cmpl-ab-0 cmpl-ab cmpl-ab-0-x", "plain": "plain", "_a-b": "_a _a-b", "x_a-b": "x_a x_a-b", "12_plain": "plain", "7-8-x": "7-8 7 7-8-x", "-8-x": "-8 -8-x",
		"a--x": "a- a--x",
	} {
		if got := strings.Join(apiIDs(core), " "); got != want {
			t.Errorf("%s: got %q, want %q", core, got, want)
		}
	}
}

func TestFiguresOfRequests(t *testing.T) {
	some := trace.Some[int64]
	yes, no := trace.Some(true), trace.Some(false)
	span := trace.Some("c")
	dep := &deploy.Deployment{Phases: []deploy.Phase{{Name: "warm", StartNs: 100, EndNs: 200}, {Name: "load", StartNs: 200, EndNs: 300}}}
	dep.Engine.MaxModelLen = some(50)
	w := &writer{dep: dep}
	for _, r := range []trace.Request{
		{Source: "stock", Success: yes, PromptTokens: some(50)},
		{Source: "fork", Success: no, AbortedNs: some(1), PromptTokens: some(51)},
		{Source: "fork", CoreID: span, Link: "none", PromptTokens: some(70), FinishStatus: trace.Some("aborted")},
		{Source: "fork", CoreID: span, Link: "none", Success: yes, PromptTokens: some(60)},
		{Source: "fork", CoreID: span, Link: "parent", Success: yes, DepartedNs: some(1), FinishStatus: trace.Some("aborted")},
		{Source: "fork", CoreID: span, Link: "prefix", Success: yes, DepartedNs: some(1), FinishStatus: trace.Some("stopped")},
		{Source: "fork", CoreID: span, Link: "prefix", Success: no, File: "f", CoreLine: some(12), APILine: some(13), QueuedNs: some(9), ScheduledNs: some(8)},
		{Source: "fork", Success: no, File: "g", APILine: some(14), QueuedNs: some(9), ScheduledNs: some(8)},
	} {
		w.countRequest(&r)
	}
	want := result.ExtractRequests{Engine: 5, APILinked: 3, APIUnlinked: 2, APIOnly: 2, Stock: 1, Finished: 4, Failed: 3, Open: 1, Aborted: 2, StopString: 1}
	if d := cmp.Diff(want, w.out.Requests); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if w.tooLong != 3 || w.longestPrompt != 70 || w.backwards != 2 || w.firstBackwards.String() != "f:12" {
		t.Errorf("got %d prompts longer than 50, up to %d, and %d backwards, first %s; want 3, 70, 2, f:12", w.tooLong, w.longestPrompt, w.backwards, w.firstBackwards)
	}
	for _, c := range []struct {
		arrived, queued trace.Opt[int64]
		want            string
	}{{some(99), some(150), ""}, {some(100), some(250), "warm"}, {some(199), some(250), "warm"}, {some(200), some(150), "load"},
		{trace.Opt[int64]{}, some(299), "load"}, {trace.Opt[int64]{}, some(300), ""}, {}} {
		r := trace.Request{ArrivedNs: c.arrived, QueuedNs: c.queued}
		if w.setPhase(&r); r.Phase.V != c.want || r.Phase.OK != (c.want != "") {
			t.Errorf("%+v: got phase %q", c, r.Phase.V)
		}
	}
	for rate, want := range map[trace.Opt[float64]]bool{{}: true, trace.Some(1.0): true, trace.Some(0.5): false} {
		dep.Tracing.JourneySampleRate = rate
		w.strays = false
		got := w.sampledAll()
		if w.strays = true; got != want || w.sampledAll() {
			t.Errorf("rate %v: got %v, and %v with strays", rate, got, w.sampledAll())
		}
	}
	dep.Tracing.JourneySampleRate = trace.Opt[float64]{}
	// Client requests without a core span are told where there are core spans, of all requests.
	rows := []trace.ObservedRequest{{CoreID: span}, {}, {}}
	for _, c := range []struct {
		cores  int
		rows   []trace.ObservedRequest
		strays bool
		want   int
	}{{1, rows, false, 1}, {0, rows, false, 0}, {1, rows[:1], false, 0}, {1, rows, true, 0}} {
		w := &writer{dep: dep, strays: c.strays, c: &collector{cores: make([]core, c.cores)}}
		if w.warnUnjoined(c.rows); len(w.out.Warnings) != c.want {
			t.Errorf("%+v: got %v", c, w.out.Warnings)
		} else if c.want > 0 && w.out.Warnings[0].Message != "2 of 3 client requests have no core span" {
			t.Errorf("got %v", w.out.Warnings)
		}
	}
}

// TestSumsOfSightings: the first snapshot with scheduled tokens is used, and the request behind the one found last is looked for first.
func TestSumsOfSightings(t *testing.T) {
	o := &owner{}
	for _, s := range []trace.Snapshot{
		{StepID: 3, PromptTokens: 100},
		{StepID: 4, ScheduledTokens: 1, ComputedTokens: 32, PromptTokens: 100, EffectivePromptLen: trace.Some(int64(68))},
		{StepID: 5, ScheduledTokens: 2, ComputedTokens: 64, PromptTokens: 100},
	} {
		o.sight(&s)
	}
	if want := (sighting{IsSeen: true, Step: 4, Computed: 32, Hit: trace.Some(int64(32))}); o.sighting != want {
		t.Errorf("got %+v, want %+v", o.sighting, want)
	}
	unknown := &owner{}
	if unknown.sight(&trace.Snapshot{StepID: 1, ScheduledTokens: 9}); unknown.Hit.OK {
		t.Errorf("no effective length: got %+v", unknown)
	}
	s := sightings{owners: map[string]*owner{}}
	for _, id := range []string{"a", "b", "c", "d"} {
		o, next := s.ownerOf(id, 0)
		if o.id != id || next != 0 || o.last != math.MinInt64 {
			t.Errorf("%s is new: got %+v, %d", id, o, next)
		}
		s.before = append(s.before, o)
	}
	for _, c := range []struct {
		id          string
		guess, next int
	}{{"a", 0, 1}, {"b", 0, 2}, {"c", 0, 0}, {"d", 2, 4}, {"d", 3, 4}, {"a", 4, 4}, {"b", 1, 2}} {
		if o, next := s.ownerOf(c.id, c.guess); o != s.owners[c.id] || next != c.next {
			t.Errorf("%+v: got %s, %d", c, o.id, next)
		}
	}
}

// TestOrderOfRotatedFiles: by their stamps, their dates, or from the highest number; the live file is last.
func TestOrderOfRotatedFiles(t *testing.T) {
	input := func(names ...string) (in []source.Input) {
		for _, n := range names {
			in = append(in, source.Input{Name: n})
		}
		return in
	}
	joined := func(in []source.Input) string {
		var out []string
		for _, f := range in {
			name := f.Name
			if f.Joins {
				name += " +"
			}
			out = append(out, name)
		}
		return strings.Join(out, ", ")
	}
	for _, c := range []struct{ got, want string }{
		{joined(inReadingOrder(input("t.json", "t.json.1", "t.json.10.gz", "t.json.2.gz", "a.json"))),
			"a.json, t.json.10.gz +, t.json.2.gz +, t.json.1 +, t.json"},
		{joined(inReadingOrder(input("t.log", "t.log-20260921", "t.log-20260920.gz", "t.log-20260920-2.zst"))),
			"t.log-20260920.gz +, t.log-20260920-2.zst +, t.log-20260921 +, t.log"},
		{joined(inReadingOrder(input("t.json", "t-2026-09-14T05-02-14.173.json.gz", "t-2026-09-14T05-02-14.172-size.json", "u.pb"))),
			"t-2026-09-14T05-02-14.172-size.json +, t-2026-09-14T05-02-14.173.json.gz +, t.json, u.pb"},
		{joined(inReadingOrder(input("t.json.gz", "t.json.1", "t.csv.1", "t.csv"))), "t.csv, t.csv.1, t.json.1 +, t.json.gz"},
		{joined(inSegmentOrder(input("a.x.10.jsonl", "a.x.9.jsonl.gz", "a.y.1.jsonl.zst", "plain"))), "a.x.9.jsonl.gz, a.x.10.jsonl, a.y.1.jsonl.zst, plain"},
	} {
		if c.got != c.want {
			t.Errorf("got  %s\nwant %s", c.got, c.want)
		}
	}
	in := input("a.1.jsonl")
	in[0].Joins = true
	if inSegmentOrder(in)[0].Joins {
		t.Error("a part of a trace continues in the next")
	}
}

// TestRequestsOfEngines: which of several engine runs served a request, by its events, its place or its step.
func TestRequestsOfEngines(t *testing.T) {
	c := &collector{engines: []*engine{
		{resource: 1, minNs: 100, order: 1, lastOrder: 5, begin: 1}, {resource: 1, minNs: 200, order: 6, lastOrder: 9, begin: 6}, {resource: 2, minNs: 50, order: 2, lastOrder: 8, begin: 2},
	}}
	for resource, want := range map[uint64][]int{1: {0, 1}, 2: {2}, 3: {0, 1, 2}} {
		if got := c.siblings(resource); !slices.Equal(got, want) {
			t.Errorf("process %d: got the engines %v, want %v", resource, got, want)
		}
	}
	for _, x := range []struct {
		of   []int
		want bool
	}{{[]int{0, 1}, true}, {[]int{0, 2}, false}, {[]int{2, 1}, false}, {[]int{0}, true}} {
		if got := c.inTurn(x.of); got != x.want {
			t.Errorf("%v: got one after another %v", x.of, got)
		}
	}
	steps := []stepTimes{{7: {100, 110}, 8: {300, 310}}, {7: {120, 130}}, {7: {140, 150}}}
	for _, x := range []struct {
		name     string
		head     coreHead
		disjoint bool
		want     int
	}{
		{"alone in its process", coreHead{Resource: 2, LastNs: 1, SchedNs: 1}, true, 2},
		{"before the second", coreHead{Resource: 1, LastNs: 199}, true, 0},
		{"with the second", coreHead{Resource: 1, LastNs: 200}, true, 1},
		{"before all", coreHead{Resource: 1, LastNs: 3}, true, 0},
		{"by its place, first", coreHead{Resource: 1, Order: 5, LastNs: 999}, false, 0},
		{"by its place, second", coreHead{Resource: 1, Order: 6}, false, 1},
		{"within a step", coreHead{Resource: 3, SchedStep: 7, SchedNs: 125}, false, 1},
		{"nearest behind", coreHead{Resource: 3, SchedStep: 7, SchedNs: 134}, false, 1},
		{"nearest before", coreHead{Resource: 3, SchedStep: 7, SchedNs: 136}, false, 2},
		{"equally near", coreHead{Resource: 3, SchedStep: 7, SchedNs: 135}, false, 1},
		{"a step of one", coreHead{Resource: 3, SchedStep: 8, SchedNs: 140}, false, 0},
		{"a step of none", coreHead{Resource: 3, SchedStep: 9, SchedNs: 140}, false, 0},
	} {
		if got := c.engineOfCore(&x.head, x.disjoint, steps); got != x.want {
			t.Errorf("%s: got engine %d, want %d", x.name, got, x.want)
		}
	}
	// Of a KV event: that of its request, else by its time, which is the wall clock's 1000 ns later.
	c.engines = c.engines[:2]
	c.cores, c.byID = []core{{engine: 0}, {engine: 1}}, map[digest]int32{digestID("x"): 1}
	c.offsets.Add(1000)
	for _, x := range []struct {
		ns   float64
		id   trace.Opt[string]
		want int32
	}{{1100, trace.Some("x"), 1}, {1100, trace.Some("y"), 0}, {1199, trace.Opt[string]{}, 0}, {1200, trace.Opt[string]{}, 1}, {3, trace.Opt[string]{}, 0}} {
		if got := c.engineOfKV(&trace.KVEvent{WallS: x.ns / 1e9, RequestID: x.id}); got != x.want {
			t.Errorf("%+v: got engine %d", x, got)
		}
	}
	c.engines = c.engines[:1]
	if got := c.engineOfKV(&trace.KVEvent{WallS: 1, RequestID: trace.Some("x")}); got != 0 {
		t.Errorf("one engine alone: got %d", got)
	}
}

// TestPhasesOfTheClientsClock: phases of 100 s, and files of 60 s that were sent by a clock 1000 s ahead.
func TestPhasesOfTheClientsClock(t *testing.T) {
	const s = int64(1e9)
	phases := []deploy.Phase{{Name: "a", StartNs: 0, EndNs: 100 * s}, {Name: "b", StartNs: 200 * s, EndNs: 300 * s}, {Name: "c", StartNs: 400 * s, EndNs: 500 * s}}
	load := func(name string, fromS, toS int64) clients.Load {
		return clients.Load{Name: name, StartNs: fromS * s, EndNs: toS * s, IsClosed: name == "closed"}
	}
	for _, c := range []struct {
		name  string
		loads []clients.Load
		sends []int64 // s
		want  string
		first deploy.Phase // of the run as it is used
	}{
		{"as they are", []clients.Load{load("a", 20, 80), load("b", 220, 280)}, []int64{20, 220, 420}, "", phases[0]},
		{"one is empty", []clients.Load{load("a", 20, 80), load("b", 220, 280)}, []int64{20, 220, 320},
			"no request lies in phases c of run.yaml; 2 of 3 requests lie in a phase", phases[0]},
		{"ahead", []clients.Load{load("a", 1020, 1080), load("b", 1220, 1280), load("x", 1420, 1480)}, []int64{1020, 1220, 1430},
			"the clients' clock is 980 s ahead of the phases of run.yaml (at most 40 s more): with the stamps as they are, 0 of 3 requests lie in a phase and 0 of 3 " +
				"files in one of their own, with the offset 3; the phases are moved by it", deploy.Phase{Name: "a", StartNs: 980 * s, EndNs: 1080 * s}},
		{"nearer to the phase before", []clients.Load{load("x", 104, 194)}, []int64{150},
			"the clients' clock is 94 s ahead of the phases of run.yaml (at most 10 s more): with the stamps as they are, 0 of 1 requests lie in a phase and 0 of 1 " +
				"files in one of their own, with the offset 1; the phases are moved by it", deploy.Phase{Name: "a", StartNs: 94 * s, EndNs: 194 * s}},
		{"nearer to the phase after", []clients.Load{load("x", 106, 196)}, []int64{150},
			"the clients' clock is -104 s ahead of the phases of run.yaml (at most 10 s more): with the stamps as they are, 0 of 1 requests lie in a phase and 0 of 1 " +
				"files in one of their own, with the offset 1; the phases are moved by it", deploy.Phase{Name: "a", StartNs: -104 * s, EndNs: -4 * s}},
		{"longer than any phase", []clients.Load{load("closed", 1000, 1200), load("b", 2000, 2200)}, []int64{1000, 2000},
			"none of 2 requests lies in a phase of run.yaml, and with no offset of the clients' clock does one of 2 files fit into one: the phases are of another recording " +
				"or in another unit than ns; they are not used, each file is one", deploy.Phase{Name: "closed", Load: deploy.LoadClosed, StartNs: 1000 * s, EndNs: 1200 * s}},
		{"one of three fits", []clients.Load{load("x", 1000, 1060), load("y", 1061, 1170), load("z", 1171, 1290)}, []int64{50},
			"1 of 1 requests lie in a phase of run.yaml, and no offset of the clients' clock brings more than 1 of 3 files into one phase each: the phases are not used, each " +
				"file is one", deploy.Phase{Name: "x", Load: deploy.LoadOpen, StartNs: 1000 * s, EndNs: 1060 * s}},
	} {
		x := &extraction{run: &RunDir{Deployment: &deploy.Deployment{Phases: slices.Clone(phases)}}, spans: &collector{}}
		x.dep = x.run.Deployment
		for _, at := range c.sends {
			x.observed = append(x.observed, trace.ObservedRequest{SendNs: trace.Some(at * s)})
		}
		x.alignPhases(c.loads)
		if c.want != "" {
			c.want = "client_file: " + c.want
		}
		if got := strings.Join(textsOf(x.clients), "; "); got != c.want {
			t.Errorf("%s: got\n%s, want\n%s", c.name, got, c.want)
		}
		if d := cmp.Diff(c.first, x.dep.Phases[0]); d != "" {
			t.Errorf("%s: (-want +got):\n%s", c.name, d)
		}
		if d := cmp.Diff(phases, x.run.Deployment.Phases); d != "" {
			t.Errorf("%s: the phases of run.yaml changed (-want +got):\n%s", c.name, d)
		}
	}
}

// TestLateFirstChunks: one engine with 40 passes of 10 ms. An answer of 11 tokens takes 100 ms in the log; what a client saw of it is late where that is less than 75 ms.
func TestLateFirstChunks(t *testing.T) {
	dir := t.TempDir()
	passes := make([]trace.Iteration, 40)
	for i := range passes {
		passes[i] = trace.Iteration{Index: int64(100 + i), ElapsedUs: 10e3, File: "log", Line: int64(i + 1)}
	}
	if err := table.Write(dir, table.Iterations, table.Parquet, passes); err != nil {
		t.Fatal(err)
	}
	answer := func(pass, tokens int64, shownUs float64) trace.ObservedRequest {
		return trace.ObservedRequest{Iteration: trace.Some(pass), OutputTokens: trace.Some(tokens), TTFTUs: trace.Some(50e3), E2EUs: trace.Some(50e3 + shownUs),
			Chunks: trace.Some(int64(1)), FirstChunkNs: trace.Some(int64(7))}
	}
	for _, c := range []struct {
		name    string
		late    int
		shownUs float64
		intime  int
		change  func(x *extraction)
		dropped int
	}{
		{"five late ones of five", 5, 74.9e3, 0, nil, 5},
		{"four", 4, 74.9e3, 0, nil, 0},
		{"just in time", 5, 75.1e3, 0, nil, 0},
		{"a fifth of all", 5, 74.9e3, 20, nil, 25},
		{"less than a fifth", 5, 74.9e3, 21, nil, 0},
		{"two passes at a time, in time", 5, 35.1e3, 0, func(x *extraction) { x.dep.Engine.AsyncScheduling = trace.Some(true) }, 0},
		{"two passes at a time, late", 5, 34.9e3, 0, func(x *extraction) { x.dep.Engine.AsyncScheduling = trace.Some(true) }, 5},
		{"drafts", 5, 74.9e3, 0, func(x *extraction) { x.dep.Engine.SpeculativeDecoding = true }, 0},
		{"no log", 5, 74.9e3, 0, func(x *extraction) { x.lives = nil }, 0},
		{"passes not known", 5, 74.9e3, 0, func(x *extraction) {
			for i := range x.observed {
				x.observed[i].Iteration = trace.Opt[int64]{}
			}
		}, 0},
		{"passes of no log", 5, 74.9e3, 0, func(x *extraction) {
			for i := range x.observed {
				x.observed[i].Iteration.V = 99
			}
		}, 0},
		{"one more without a pass", 5, 74.9e3, 0, func(x *extraction) {
			x.observed = append(x.observed, answer(0, 11, 0), answer(0, 11, 0))
			x.observed[5].Iteration, x.observed[6].Iteration, x.observed[6].Chunks = trace.Opt[int64]{}, trace.Opt[int64]{}, trace.Opt[int64]{}
		}, 6},
	} {
		x := &extraction{o: &Options{Format: table.Parquet}, dep: &deploy.Deployment{}, inputs: &inputSet{}, lives: []*enginelog.Life{{Dir: dir}}}
		x.dep.Engine.AsyncScheduling = trace.Some(false)
		for range c.late {
			x.observed = append(x.observed, answer(105, 11, c.shownUs))
		}
		for range c.intime {
			x.observed = append(x.observed, answer(100, 11, 100e3))
		}
		if c.change != nil {
			c.change(x)
		}
		if err := x.dropLateFirst(); err != nil {
			t.Fatal(err)
		}
		got := 0
		for i := range x.observed {
			if !x.observed[i].TTFTUs.OK {
				got++
			}
		}
		if got != c.dropped || (got > 0) != (len(x.clients) == 1) {
			t.Errorf("%s: got %d answers without a TTFT, want %d; %v", c.name, got, c.dropped, x.clients)
		}
		if c.dropped == 25 && !strings.Contains(x.clients[0].Message, "the tokens of 5 of 25 answers with fewer chunks than tokens took longer than from the first chunk to the "+
			"last (in the median 100 and 74.9 ms)") {
			t.Errorf("got %v", x.clients)
		}
		if c.dropped == 25 && !strings.HasSuffix(x.clients[0].Message, "TTFT and ITL of 25 such answers are not used, E2E is") {
			t.Errorf("got %v", x.clients)
		}
	}
}

// TestSettingsAgainstCounting and what the server counted of drafts.
func TestSettingsAgainstCounting(t *testing.T) {
	for _, c := range []struct {
		e    vllm.Engine
		want string
	}{
		{vllm.Engine{}, ""},
		{vllm.Engine{LongPrefillThreshold: 1}, "long_prefill_token_threshold cuts prompts in passes that are not full"},
		{vllm.Engine{Extra: map[string]any{"max_num_partial_prefills": 1.0}}, ""},
		{vllm.Engine{Extra: map[string]any{"max_num_partial_prefills": 2}}, "max_num_partial_prefills lets several prompts go on at once"}, // as YAML has it
		{vllm.Engine{Extra: map[string]any{"max_num_partial_prefills": 2.0}}, "max_num_partial_prefills lets several prompts go on at once"},
		{vllm.Engine{CPUOffloading: true}, "KV that is loaded from elsewhere (cpu_offloading, kv_transfer_config) looks like a hit in the prefix cache"},
		{vllm.Engine{Extra: map[string]any{"kv_transfer_config": "{}"}},
			"KV that is loaded from elsewhere (cpu_offloading, kv_transfer_config) looks like a hit in the prefix cache"},
	} {
		if got := uncountable(&c.e); got != c.want {
			t.Errorf("%+v: got %q, want %q", c.e, got, c.want)
		}
	}
	answers := []enginelog.Counters{{Name: "m1", Drafted: 10, Accepted: 4}, {Name: "m2", Drafted: 30, Accepted: 20}, {Name: "m3", Drafted: 20, Accepted: 9}}
	for _, c := range []struct {
		speculative bool
		logged      int64
		answers     []enginelog.Counters
		want        *result.DraftCounts
	}{
		{false, 5, answers, nil},
		{true, 1, answers, &result.DraftCounts{DraftedTokens: 1, AcceptedTokens: 7, Source: "the log"}},
		{true, 0, answers, &result.DraftCounts{DraftedTokens: 30, AcceptedTokens: 20, Source: "m2"}},
		{true, 0, answers[:1], &result.DraftCounts{DraftedTokens: 10, AcceptedTokens: 4, Source: "m1"}},
		{true, 0, []enginelog.Counters{{Name: "m0"}}, nil},
		{true, 0, nil, nil},
	} {
		x := &extraction{dep: &deploy.Deployment{}, logs: &enginelog.Lives{}}
		x.dep.Engine.SpeculativeDecoding = c.speculative
		x.logs.Drafts.Drafted, x.logs.Drafts.Accepted = c.logged, 7
		if d := cmp.Diff(c.want, x.countDrafts(c.answers)); d != "" {
			t.Errorf("%+v: (-want +got):\n%s", c, d)
		}
	}
}

// TestDividedAmongEngines: a phase in which more than 5 % of the requests have no engine is in no table.
func TestDividedAmongEngines(t *testing.T) {
	x := &extraction{acc: source.NewAccount(nil), spans: &collector{apis: make([]api, 3)}, lives: []*enginelog.Life{{Engine: "log a"}, {Engine: "log b"}}}
	add := func(phase string, engine int64, ns int64, id string) {
		r := trace.ObservedRequest{ID: id, Phase: trace.Some(phase), SendNs: trace.Some(ns)}
		if engine > 0 {
			r.Engine = trace.Some(engine)
		}
		x.observed = append(x.observed, r)
	}
	for i := range int64(19) { // a twentieth of the phase has no engine
		add("good", 1+i%2, 100-i, fmt.Sprintf("g%02d", i))
	}
	add("good", 0, 5, "none")
	add("bad", 1, 1, "b1")
	add("bad", 0, 2, "b2")
	add("bad", 0, 3, "b3")
	x.assignServed()
	want := []string{
		"several_engines: 3 spans of requests do not name the engine that served them: they are in no table and in no replay",
		`several_engines: 3 of 3 requests of phase "bad": for 2 of them the passes do not show which engine served them: they are in no table and in no replay`,
		`several_engines: 1 of 20 requests of phase "good": for 1 of them the passes do not show which engine served them: they are in no table and in no replay`,
	}
	if d := cmp.Diff(want, textsOf(x.clients)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if len(x.served) != 2 || len(x.served[0]) != 10 || len(x.served[1]) != 9 || x.served[0][0].ID != "g18" || x.served[1][8].ID != "g01" {
		t.Errorf("got %d and %d requests, want 10 and 9 sorted by their sends", len(x.served[0]), len(x.served[1]))
	}
	if d := cmp.Diff(x.served[0], x.observed); d != "" || len(x.spans.apis) != 0 || x.acc.Kept != -7 || x.acc.Dropped[source.CodeSeveralEngines] != 7 {
		t.Errorf("got %d kept, %v dropped, %d API spans %s", x.acc.Kept, x.acc.Dropped, len(x.spans.apis), d)
	}
	for _, ns := range []struct {
		r    trace.ObservedRequest
		want int64
	}{
		{trace.ObservedRequest{SendNs: trace.Some(int64(1)), ArrivalNs: trace.Some(int64(2)), SendWallNs: trace.Some(int64(3)), QueuedNs: trace.Some(int64(4))}, 1},
		{trace.ObservedRequest{ArrivalNs: trace.Some(int64(2)), SendWallNs: trace.Some(int64(3)), QueuedNs: trace.Some(int64(4))}, 2},
		{trace.ObservedRequest{SendWallNs: trace.Some(int64(3)), QueuedNs: trace.Some(int64(4))}, 3},
		{trace.ObservedRequest{QueuedNs: trace.Some(int64(4))}, 4}, {trace.ObservedRequest{}, 0},
	} {
		if got := sendTime(&ns.r); got != ns.want {
			t.Errorf("got %d, want %d", got, ns.want)
		}
	}
}

// TestWarningsOfAnEngine: every warning about the records, with its figures, in its order.
func TestWarningsOfAnEngine(t *testing.T) {
	dep := &deploy.Deployment{TP: 4}
	dep.Engine.VLLMVersion, dep.Model.ID, dep.Hardware.Name = "0.21.0", "m/x", "H100"
	dep.DP, dep.PP = 1, 1
	x := &extraction{
		run: &RunDir{Folder: "f"}, dep: dep, acc: source.NewAccount(nil), spans: &collector{noIDs: 3}, inputs: &inputSet{below: []trace.Finding{{Code: "b", Message: "below"}},
			contradicted: []trace.Finding{{Code: "c", Message: "contradicted"}}},
		clients: []trace.Finding{{Code: "k", Message: "client"}}, empty: []trace.Finding{{Code: "e", Message: "empty"}},
		drafts: &result.DraftCounts{DraftedTokens: 5}, cachedSum: [][]result.CachedTokens{{{Phase: "p"}}},
		lives: []*enginelog.Life{{Engine: "log", Rows: 40, Backwards: 2, FirstBack: source.Place{File: "log", Line: 8}, Missing: 10, FirstGap: source.Place{File: "log", Line: 9}}},
	}
	x.acc.LostEvents, x.acc.Truncated, x.acc.Duplicates, x.acc.BadText = 11, 12, 13, []string{"t:1", "t:2"}
	x.acc.Scope("s", "", 6)
	x.acc.Drop(source.CodeCut, 1, source.Place{File: "cut", Line: 1}, "ends")
	x.acc.Drop(source.CodeUnreadable, 1, source.Place{File: "bad", Line: 2}, "no JSON")
	w := &output{Orphans: 14, Tables: map[string]int64{"steps": 3}, Warnings: []trace.Finding{{Code: "w", Message: "written"}}}
	w.Steps.Summaries, w.Steps.Missing = 15, 5
	w.offsets.Add(1_000_000)
	w.offsets.Add(13_000_000)
	w.Requests = result.ExtractRequests{Engine: 16, APIUnlinked: 7, StopString: 8}
	records := result.Records{BadFrac: 0.125, Dropped: map[string]int64{"duplicate_conflict": 9, "nul_padding": 1}}
	got := x.result("id", 0, 2, w, records)
	want := []string{
		"file_cut: cut:1: ends", "e: empty",
		"unreadable: 12 lines or messages were unreadable (12.500 % of what was read); first: bad:2: no JSON",
		"w: written", "k: client", "b: below", "c: contradicted",
		"incomplete_trace: 3 spans without a span id are distinguished by their content",
		"incomplete_trace: none of 40 logged passes has a stamp, so nothing but their elapsed times shows how long a step took; save the log with docker logs --timestamps or " +
			"kubectl logs --timestamps",
		"clock_offset_spread: 2 iterations are stamped before the one before them, first log:8",
		"incomplete_trace: 10 of 50 iterations between the first and the last are missing, first before log:9",
		"several_engines: engine run 1 of 2 in this dump",
		"incomplete_trace: the SDK dropped 11 span events; set OTEL_SPAN_EVENT_COUNT_LIMIT=100000 when recording",
		"incomplete_trace: 14 snapshots have no BATCH_SUMMARY",
		"duplicate_conflict: 9 records repeat the id of an earlier span with other content; the first is kept",
		"nul_padding: NUL padding at the end of the input",
		"incomplete_trace: 5 of 20 step ids between the first and the last are missing",
		"incomplete_trace: 7 of 16 core spans have no API span",
		"stop_string_finish: 8 requests ended by a stop string (core aborted, API departed) count as successes",
		"invalid_unicode: invalid Unicode replaced in 2 lines, first t:1",
		"clock_offset_spread: wall - monotonic spreads over 12.0 ms",
	}
	if d := cmp.Diff(want, textsOf(got.Warnings)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if e := (result.ExtractEngine{InstanceID: "1", VLLMVersion: "0.21.0", Model: "m/x", Hardware: "H100", TP: 4}); got.Engine != e {
		t.Errorf("got %+v, want %+v", got.Engine, e)
	}
	if l := (result.Losses{DroppedSpanEvents: 11, TruncatedMessages: 12, OrphanSnapshots: 14, DuplicateSpans: 13}); got.Losses != l {
		t.Errorf("got %+v, want %+v", got.Losses, l)
	}
	if got.ID != "id" || got.Folder != "f" || got.Clock.SpreadNs != trace.Some(int64(12_000_000)) || !got.Clock.OffsetNs.OK || got.Drafts != x.drafts ||
		len(got.CachedTokens) != 1 || len(got.Scopes) != 1 || len(got.Examples) != 2 || got.Records.BadFrac != 0.125 || got.Tables["steps"] != 3 ||
		got.Steps != w.Steps || got.Requests != w.Requests {
		t.Errorf("got %+v", got)
	}
	// Of the second engine run nothing of what belongs to the whole folder, and nothing that did not happen.
	x.spans = &collector{}
	second := x.result("id", 1, 2, &output{}, records)
	if d := cmp.Diff([]string{"several_engines: engine run 2 of 2 in this dump"}, textsOf(second.Warnings)); d != "" {
		t.Errorf("the second (-want +got):\n%s", d)
	}
	if second.CachedTokens != nil || second.Losses != (result.Losses{}) || len(second.Scopes)+len(second.Examples) != 0 || second.Engine.InstanceID != "2" {
		t.Errorf("the second: got %+v", second)
	}
	x = &extraction{run: x.run, dep: dep, acc: source.NewAccount(nil), spans: &collector{}, inputs: &inputSet{}}
	if one := x.result("id", 0, 1, &output{}, result.Records{}); len(one.Warnings) != 0 || one.Warnings == nil {
		t.Errorf("nothing happened: got %v", one.Warnings)
	}
	x.acc.Truncated = 1
	if one := x.result("id", 0, 1, &output{}, result.Records{}); len(one.Warnings) != 1 ||
		one.Warnings[0].Message != "1 line or message was unreadable (0.000 % of what was read)" {
		t.Errorf("got %v", one.Warnings)
	}
	x.acc.Truncated = 0
	x.spans.noIDs = 1
	if one := x.result("id", 0, 1, &output{}, result.Records{}); len(one.Warnings) != 1 || one.Warnings[0].Message != "1 spans without a span id are distinguished by their content" {
		t.Errorf("one span without an id: got %v", one.Warnings)
	}
	x.spans.noIDs = 0
	x.lives = []*enginelog.Life{{Engine: "log"}}
	if one := x.result("id", 0, 1, &output{}, result.Records{}); len(one.Warnings) != 0 {
		t.Errorf("a log without passes: got %v", one.Warnings)
	}
	x.lives = []*enginelog.Life{{Engine: "log", Rows: 40, Stamped: 1}} // with stamps, none missing
	if one := x.result("id", 0, 1, &output{}, result.Records{}); len(one.Warnings) != 0 {
		t.Errorf("a whole log: got %v", one.Warnings)
	}
	x.spans.offsets.Add(0)
	x.spans.offsets.Add(10e6)
	if one := x.result("id", 0, 1, &output{}, result.Records{}); len(one.Warnings) != 0 {
		t.Errorf("a spread of 10 ms: got %v", one.Warnings)
	}
	for code, want := range map[trace.Code]bool{source.CodeCut: true, codeNoInput: true, source.CodeUnreadable: true, codeIncomplete: false} {
		if IsOfFile(code) != want {
			t.Errorf("%s: got %v", code, !want)
		}
	}
}

func TestFiguresOfBatches(t *testing.T) {
	for _, c := range []struct {
		name      string
		summaries int64
		rows      int64
		err       error
		want      string
	}{
		{"counted", 3, 1 << 19, nil, "4 12 5 []"},
		{"too many rows", 3, 1<<19 + 1, nil, "null null null [batches_not_counted: the figures of reconstructed batches are in fit.json only: the tables have 524289 rows, more than 524288]"},
		{"no steps", 0, 9, nil, "null null null []"},
		{"an error", 3, 9, errors.New("torn"), "null null null [batches_not_counted: torn]"},
	} {
		r := &result.ExtractRun{ID: "r", Tables: map[string]int64{"a": c.rows - 4, "b": 4}}
		r.Steps.Summaries = c.summaries
		x := &extraction{o: &Options{Out: "out", Batches: func(dir string, _ *deploy.Deployment) (result.StepQuality, error) {
			if dir != filepath.Join("out", "tables", "run=r") {
				t.Errorf("got the folder %s", dir)
			}
			return result.StepQuality{Recorded: 20, Known: 8, Reconstructed: 4, Contradictions: 5}, c.err
		}}}
		x.countBatches(r)
		word := func(n trace.Opt[int64]) string {
			if !n.OK {
				return "null"
			}
			return fmt.Sprint(n.V)
		}
		if got := fmt.Sprint(word(r.Steps.Reconstructed), " ", word(r.Steps.Unknown), " ", word(r.Steps.Contradictions), " ", textsOf(r.Warnings)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestBoundsOfOptions(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(o *Options)
		want   string
	}{
		{"defaults", func(o *Options) {}, ""},
		{"no folder", func(o *Options) { o.Out = "" }, "extract: Out: got an empty name, want a folder"},
		{"no workers", func(o *Options) { o.Workers = 0 }, ""},
		{"less", func(o *Options) { o.Workers = -1 }, "extract: --workers: got -1, want 0 or more"},
		{"arrow", func(o *Options) { o.Format = "arrow" }, ""},
		{"csv", func(o *Options) { o.Format = "csv" }, `extract: --format: got "csv", want parquet or arrow`},
		{"no loss", func(o *Options) { o.MaxBadFrac = 0 }, ""},
		{"any loss", func(o *Options) { o.MaxBadFrac = 1 }, ""},
		{"more", func(o *Options) { o.MaxBadFrac = 1.01 }, "extract: --max-bad-frac: got 1.01, want 0..1"},
		{"less", func(o *Options) { o.MaxBadFrac = -0.01 }, "extract: --max-bad-frac: got -0.01, want 0..1"},
		{"NaN", func(o *Options) { o.MaxBadFrac = math.NaN() }, "extract: --max-bad-frac: got NaN, want 0..1"},
		{"1 KiB", func(o *Options) { o.MaxLine = 1024 }, ""},
		{"less", func(o *Options) { o.MaxLine = 1023 }, "extract: --max-line: got 1023, want at least 1024 bytes"},
		{"one", func(o *Options) { o.MaxExpansion = 1 }, ""},
		{"none", func(o *Options) { o.MaxExpansion = 0 }, "extract: --max-expansion: got 0, want 1 or more"},
		{"1 MiB", func(o *Options) { o.ClientMemory = 1 << 20 }, ""},
		{"less", func(o *Options) { o.ClientMemory = 1<<20 - 1 }, "extract: --max-client-memory: got 1048575, want at least 1048576 bytes"},
	} {
		o := DefaultOptions()
		o.Out = "x"
		c.change(&o)
		got := ""
		if err := o.Check(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	o := DefaultOptions()
	if o.MaxBadFrac != 0.01 || o.MaxLine != 134217728 || o.Memory != 16777216 || o.Format != "parquet" {
		t.Errorf("got the defaults %+v", o)
	}
	if o.Workers = 3; o.workers() != 3 || o.streaming().Workers != 3 || o.streaming().Limits.MaxLine != o.MaxLine || o.streaming().Limits.MaxExpansion != o.MaxExpansion {
		t.Errorf("got %d workers, %+v", o.workers(), o.streaming())
	}
	if o.Workers = 0; o.workers() < 1 {
		t.Errorf("got %d workers", o.workers())
	}
}

func TestRunsThatFailed(t *testing.T) {
	if err := FailedRuns(nil, 3); err != nil {
		t.Errorf("none: got %v", err)
	}
	one := errors.New("torn")
	if err := FailedRuns([]Failed{{"a", one}}, 1); err != one {
		t.Errorf("one of one: got %v", err)
	}
	err := FailedRuns([]Failed{{"a", one}, {"b", trace.Hinted(errors.New("no file"), "add it")}}, 3)
	if got := err.Error(); got != "no_input: 2 of 3 runs could not be extracted\ntorn\nno file (add it)" {
		t.Errorf("got %q", got)
	}
	if got := trace.HintOf(err); got != "to go on without them: --exclude a --exclude b" {
		t.Errorf("got the hint %q", got)
	}
	var many []Failed
	for i := range 21 {
		many = append(many, Failed{fmt.Sprint(i), one})
	}
	for n, want := range map[int]string{20: " --exclude 19", 21: " --exclude 19 and so on"} {
		err := FailedRuns(many[:n], 30)
		if lines := strings.Count(err.Error(), "torn"); lines != 20 || !strings.HasSuffix(trace.HintOf(err), want) {
			t.Errorf("%d of 30: got %d lines and %q", n, lines, trace.HintOf(err))
		}
	}
	r := &result.ExtractRun{ID: "r", Examples: []result.Example{{Reason: "duplicate", Place: "x:1", What: "twice"}, {Reason: source.CodeUnreadable, Place: "y:2", What: "no JSON"}}}
	err = badError(r, 0.125, 0.01)
	if got := err.Error(); got != "too_many_bad_records: run r: 12.50 % of the input is unreadable, want at most 1.00 %; first: y:2: no JSON" {
		t.Errorf("got %q", got)
	}
	if got := trace.HintOf(err); got != "--max-bad-frac 0.13 accepts the loss" {
		t.Errorf("got the hint %q", got)
	}
}

// TestLogsOfRanks: which logs of ranks in lockstep are refused.
func TestLogsOfRanks(t *testing.T) {
	for _, c := range []struct {
		name    string
		logs    int
		starts  int // of each log
		engines int // with step traces
		version string
		dense   bool
		want    string
	}{
		{"one log is missing", 1, 1, 0, "0.25.0", false, "got logs of 1 ranks and 1 starts, want all 2 of data_parallel_size: a pass lasts as long as on the slowest rank"},
		{"one too many", 3, 1, 0, "0.25.0", false, "got logs of 3 ranks and 3 starts, want all 2 of data_parallel_size: a pass lasts as long as on the slowest rank"},
		{"step traces", 0, 0, 1, "0.25.0", false, "got step traces of 2 data-parallel ranks in lockstep, which have no number by which steps of different ranks can be matched, " +
			"want the logs of all ranks"},
		{"an old release", 2, 1, 0, "0.22.9", false, "got vLLM 0.22.9, want 0.23 or newer: before, ranks do not log the passes in which they have no load"},
		{"a model without experts", 1, 1, 0, "0.25.0", true, ""},
		{"nothing", 0, 0, 0, "0.25.0", false, ""},
	} {
		x := &extraction{dep: &deploy.Deployment{DP: 2}, spans: &collector{engines: make([]*engine, c.engines)}}
		x.dep.Engine.VLLMVersion = c.version
		if !c.dense {
			x.dep.Model.NumExperts = 8
		}
		for i := range c.logs {
			for range c.starts {
				x.lives = append(x.lives, &enginelog.Life{Engine: fmt.Sprint("rank ", i)})
			}
		}
		got := ""
		if err := x.lockstep(); err != nil {
			got = strings.TrimPrefix(err.Error(), "several_engines: ")
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// TestStrayRowsByHand: of a span of steps 100 to 104, 10 ms apart, rows a day and more away from the middle one or with an id beyond what its stamp allows are dropped.
func TestStrayRowsByHand(t *testing.T) {
	const ms, day = int64(1e6), int64(24 * 3600 * 1e9)
	for _, c := range []struct {
		name   string
		change func(s *otlp.Span)
		steps  string
		snaps  string
		from   int64
		to     int64
	}{
		{"as they should be", func(s *otlp.Span) {}, "100 101 102 103 104", "100 104", 100, 104},
		{"a stamp of a day before", func(s *otlp.Span) { s.Rows.Steps[0].TsStartNs = s.Rows.Steps[2].TsStartNs - day }, "100 101 102 103 104", "100 104", 100, 104},
		{"earlier", func(s *otlp.Span) { s.Rows.Steps[0].TsStartNs = s.Rows.Steps[2].TsStartNs - day - 1 }, "101 102 103 104", "100 104", 101, 104},
		{"wall clock, a day later", func(s *otlp.Span) { s.Rows.Steps[4].WallNs = s.Rows.Steps[2].WallNs + day }, "100 101 102 103 104", "100 104", 100, 104},
		{"wall clock, later", func(s *otlp.Span) { s.Rows.Steps[4].WallNs = s.Rows.Steps[2].WallNs + day + 1 }, "100 101 102 103", "100 104", 100, 103},
		{"an id that just fits", func(s *otlp.Span) { s.Rows.Steps[4].ID = 102 + 4096 + 20*ms/100_000 }, fmt.Sprint("100 101 102 103 ", 102+4096+20*ms/100_000), "100 104", 100, 104},
		{"an id beyond", func(s *otlp.Span) { s.Rows.Steps[4].ID = 103 + 4096 + 20*ms/100_000 }, "100 101 102 103", "100 104", 100, 103},
		{"snapshots at the ends", func(s *otlp.Span) {
			s.Rows.Snaps[0].StepID, s.Rows.Snaps[1].StepID = 100-4096, 104+4096
		}, "100 101 102 103 104", fmt.Sprint(100-4096, " ", 104+4096), 100, 104},
		{"snapshots beyond", func(s *otlp.Span) {
			s.Rows.Snaps[0].StepID, s.Rows.Snaps[1].StepID = 99-4096, 105+4096
		}, "100 101 102 103 104", "", 100, 104},
		{"a first step of the span that is none", func(s *otlp.Span) { s.FirstStep = 99 - 4096 }, "100 101 102 103 104", "100 104", 100, 104},
		{"a last one", func(s *otlp.Span) { s.LastStep = 105 + 4096 }, "100 101 102 103 104", "100 104", 100, 104},
		{"one that may be", func(s *otlp.Span) { s.LastStep = 104 + 4096 }, "100 101 102 103 104", "100 104", 100, 104 + 4096},
		{"two rows", func(s *otlp.Span) {
			s.Rows.Steps = s.Rows.Steps[:2]
			s.Rows.Steps[0].TsStartNs -= 9 * day
		}, "100 101", "100 104", 100, 104},
	} {
		s := &otlp.Span{FirstStep: 100, LastStep: 104, Rows: &otlp.StepRows{Snaps: []trace.Snapshot{{StepID: 100}, {StepID: 104}}}}
		for i := range int64(5) {
			s.Rows.Steps = append(s.Rows.Steps, trace.Step{ID: 100 + i, TsStartNs: 50*day + 10*ms*i, WallNs: 90*day + 10*ms*i})
		}
		c.change(s)
		before := len(s.Rows.Steps) + len(s.Rows.Snaps)
		x := &collector{names: []source.Input{{Name: "f"}}, acc: source.NewAccount(nil)}
		x.dropStrayRows(s)
		var steps, snaps []string
		for _, row := range s.Rows.Steps {
			steps = append(steps, fmt.Sprint(row.ID))
		}
		for _, row := range s.Rows.Snaps {
			snaps = append(snaps, fmt.Sprint(row.StepID))
		}
		if strings.Join(steps, " ") != c.steps || strings.Join(snaps, " ") != c.snaps || s.FirstStep != c.from || s.LastStep != c.to {
			t.Errorf("%s: got steps %v, snapshots %v, %d to %d", c.name, steps, snaps, s.FirstStep, s.LastStep)
		}
		if n := x.acc.Dropped[source.CodeBadRecord]; n != int64(before-len(steps)-len(snaps)) {
			t.Errorf("%s: %d rows are counted as dropped", c.name, n)
		}
	}
}

// TestStepsOfFewChunks: without chunks there is nothing to say; of too many no steps are made, and with passes of the
// engine none are needed.
func TestStepsOfFewChunks(t *testing.T) {
	x := &extraction{dep: &deploy.Deployment{}, spans: &collector{}, observed: []trace.ObservedRequest{{}, {}}}
	if err := x.stepsOfChunks(); err != nil || len(x.clients) != 0 || x.lives != nil {
		t.Errorf("no chunks: got %v, %v, %v", x.clients, x.lives, err)
	}
	x.observed[1].ChunkGapsUs = make([]float64, mostChunks)
	x.observed[0].ChunkGapsUs = make([]float64, 1)
	x.lives = []*enginelog.Life{{}}
	if err := x.stepsOfChunks(); err != nil || len(x.clients) != 0 {
		t.Errorf("with passes: got %v, %v", x.clients, err)
	}
	x.lives = nil
	if err := x.stepsOfChunks(); err != nil || len(x.clients) != 1 || x.lives != nil ||
		x.clients[0].Message != "the answers have 3000001 chunks; steps are made of at most 3000000" {
		t.Errorf("too many: got %v, %v", x.clients, err)
	}
}

// TestLargestRank: of passes that two ranks have, the row with more tokens counts; a pass that one lacks is missing, and
// the place is that of the pass behind it.
func TestLargestRank(t *testing.T) {
	dir := t.TempDir()
	pass := func(index, context, generation, line int64) trace.Iteration {
		it := trace.Iteration{ContextTokens: context, GenerationTokens: generation}
		it.Index, it.File, it.Line = index, "log", line
		return it
	}
	x := &extraction{o: &Options{Format: table.Arrow}}
	merged := func(name string, a, b []trace.Iteration) (*enginelog.Life, []trace.Iteration) {
		t.Helper()
		var ranks []*enginelog.Life
		for i, rows := range [][]trace.Iteration{a, b} {
			d := filepath.Join(dir, name+string(rune('a'+i)))
			if err := table.Write(d, table.Iterations, table.Arrow, rows); err != nil {
				t.Fatal(err)
			}
			ranks = append(ranks, &enginelog.Life{Engine: fmt.Sprint("rank ", i), Dir: d, Stamped: int64(7 + i)})
		}
		out := filepath.Join(dir, name)
		life, err := x.largestRank(ranks, out)
		if err != nil {
			t.Fatal(err)
		}
		var rows []trace.Iteration
		for r, err := range fileRows[trace.Iteration](out, table.Iterations, table.Arrow) {
			if err != nil {
				t.Fatal(err)
			}
			rows = append(rows, r)
		}
		return life, rows
	}
	life, rows := merged("gap", []trace.Iteration{pass(3, 10, 1, 1), pass(4, 0, 5, 2), pass(6, 2, 2, 3), pass(7, 1, 1, 4)},
		[]trace.Iteration{pass(3, 9, 1, 11), pass(4, 6, 0, 12), pass(5, 1, 1, 13), pass(6, 0, 4, 14), pass(7, 1, 0, 15), pass(8, 1, 1, 16)})
	var lines []int64
	for _, r := range rows {
		lines = append(lines, r.Line)
	}
	if life.Rows != 4 || life.Missing != 1 || life.FirstGap != (source.Place{File: "log", Line: 3}) || life.Engine != "rank 0" || life.Stamped != 7 ||
		!slices.Equal(lines, []int64{1, 12, 3, 4}) {
		t.Errorf("got %+v with lines %v", life, lines)
	}
	life, _ = merged("whole", []trace.Iteration{pass(5, 1, 1, 1), pass(6, 1, 1, 2)}, []trace.Iteration{pass(5, 1, 1, 1), pass(6, 1, 1, 2)})
	if life.Rows != 2 || life.Missing != 0 || life.FirstGap != (source.Place{}) {
		t.Errorf("without a gap: got %+v", life)
	}
}

// TestOrderOfLogs: logs are read in the order of their first passes; a rotated set stays together, and without stamps,
// or with stamps of two clocks, the order of the names is kept.
func TestOrderOfLogs(t *testing.T) {
	pass := func(stamp string, index int) string {
		return fmt.Sprintf("(APIServer pid=7) INFO %s [loggers.py:199] Engine 000: Iteration(%d): 1 context requests, 9 context tokens, "+
			"0 generation requests, 0 generation tokens, iteration elapsed time: 9.90 ms\n", stamp, index)
	}
	const start = "(APIServer pid=7) INFO 10-09 08:00:00 [api_server.py:1] vLLM API server version 0.24.0\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"numbers": {map[string]string{"s-10.log": pass("10-09 09:10:00", 500), "s-9.log": start + pass("10-09 09:00:00", 0)}, "s-9.log s-10.log"},
		"names":   {map[string]string{"a.log": start + pass("10-09 09:00:00", 0), "b.log": pass("10-09 09:10:00", 500)}, "a.log b.log"},
		"rotated": {map[string]string{"s.log.2": pass("10-09 09:00:00", 0), "s.log.1": "no pass\n", "s.log": pass("10-09 09:20:00", 900), "a.log": pass("10-09 10:00:00", 5)},
			"s.log.2 s.log.1 s.log a.log"},
		"new year":    {map[string]string{"a.log": pass("01-01 00:10:00", 500), "b.log": pass("12-31 23:50:00", 0)}, "b.log a.log"},
		"no stamps":   {map[string]string{"a.log": pass("10-09 09:10:00", 500), "b.log": strings.ReplaceAll(pass("10-09 09:00:00", 0), " 10-09 09:00:00", "")}, "a.log b.log"},
		"no pass":     {map[string]string{"a.log": pass("10-09 09:10:00", 500), "b.log": start, "c.log": pass("10-09 09:00:00", 0)}, "c.log b.log a.log"},
		"two clocks":  {map[string]string{"a.log": pass("10-09 09:10:00", 500), "b.log": "2025-10-09T08:00:00.5Z " + pass("10-09 08:00:00", 0)}, "a.log b.log"},
		"equal times": {map[string]string{"a.log": pass("10-09 09:00:00", 5), "b.log": pass("10-09 09:00:00", 0)}, "a.log b.log"},
	} {
		dir := t.TempDir()
		var in []source.Input
		for _, file := range slices.Sorted(maps.Keys(c.files)) {
			path := filepath.Join(dir, file)
			if err := os.WriteFile(path, []byte(c.files[file]), 0o666); err != nil {
				t.Fatal(err)
			}
			in = append(in, source.Input{Path: path, Name: file})
		}
		var got []string
		for _, f := range inOrderOfPasses(inReadingOrder(in)) {
			got = append(got, f.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %v, want %s", name, got, c.want)
		}
	}
}
