package extract

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/blis-train/blis-train/pipeline/extract/otlp/otlptest"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// withoutNs is a life as forks before v0.4.0 wrote it: seconds alone.
func withoutNs(s otlptest.Span) otlptest.Span {
	s.Events = slices.Clone(s.Events)
	for i, e := range s.Events {
		from := strings.Index(e, `{"key":"ts.monotonic_ns"`)
		to := from + strings.Index(e[from:], `}},`) + 3
		s.Events[i] = e[:from] + e[to:]
	}
	return s
}

// TestOlderForkForms: each older form (spec#wire-versions) gives the requests and steps
// that today's form gives.
func TestOlderForkForms(t *testing.T) {
	life := otlptest.Life(1e8, 3)
	api := otlptest.API(1, "cmpl-1", 1e8-2e6, 1e8+2e7)
	core := otlptest.Core(1, 0, "cmpl-1-0-aaaaaaaa", life)
	steps := otlptest.StepSpan(1, 3, 4, otlptest.Summary(3, 1e8, true), otlptest.Summary(4, 11e7, false))
	want := readText(t, otlptest.Line("e", core, api, steps))[0]

	whole := steps // one span for the whole life, without attributes
	whole.Name, whole.Attrs = "scheduler_steps", nil
	v030 := whole
	v030.Scope = "vllm.scheduler"
	stock := otlptest.Stock(1, "cmpl-1")
	for name, spans := range map[string][]otlptest.Span{
		"v0.3.0: one step span in the scheduler's scope": {withoutNs(core), api, v030},
		"v0.3.0: stock span beside the fork's":           {withoutNs(core), api, v030, stock},
		"v0.3.2: one step span in a scope of its own":    {withoutNs(core), api, whole},
		"v0.4.0: ts.monotonic_ns":                        {core, api, whole},
	} {
		t.Run(name, func(t *testing.T) {
			doc, runs := readDump(t, []byte(otlptest.Line("e", spans...)))
			got := runs[0]
			if d := different(want.Requests, got.Requests); d != "" {
				t.Errorf("requests (-want +got):\n%s", d)
			}
			if d := cmp.Diff(want.Steps, got.Steps, cmpopts.IgnoreFields(trace.Step{}, "SpanSequence")); d != "" {
				t.Errorf("steps (-want +got):\n%s", d)
			}
			dropped := map[string]int64{}
			if len(spans) == 4 {
				dropped["duplicate"] = 1
			}
			diff(t, "drops", dropped, doc.Totals.Records.Dropped)
		})
	}

	// Before v0.3.0 the journey stood on the request's only span.
	oldest := core
	oldest.Scope, oldest.Name, oldest.Parent, oldest.Events = "vllm.llm_engine", "llm_request", 0, withoutNs(core).Events
	got := readText(t, otlptest.Line("e", oldest))[0].Requests
	if len(got) != 1 || got[0].QueuedNs != want.Requests[0].QueuedNs || got[0].FinishedNs != want.Requests[0].FinishedNs ||
		!got[0].Success.Or(false) || got[0].ArrivedNs.OK {
		t.Errorf("got %+v, want the journey of %+v without an arrival", got, want.Requests[0])
	}

	// Other writers spell names in snake case, or after OTLP before 0.15.
	line := otlptest.Line("e", core, api, steps)
	for _, r := range []*strings.Replacer{
		strings.NewReplacer("resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "spanId", "span_id", "traceId", "trace_id",
			"parentSpanId", "parent_span_id",
			"timeUnixNano", "time_unix_nano", "startTimeUnixNano", "start_time_unix_nano", "endTimeUnixNano", "end_time_unix_nano", "intValue",
			"int_value", "stringValue", "string_value", "doubleValue", "double_value"),
		strings.NewReplacer("scopeSpans", "instrumentationLibrarySpans", `"scope":`, `"instrumentationLibrary":`),
		strings.NewReplacer(`"kind":1`, `"kind":"SPAN_KIND_INTERNAL"`, `"name":"llm_request"`, `"parentSpanId":"","name":"llm_request"`),
		strings.NewReplacer(`"name":"llm_request"`, `"parentSpanId":"0000000000000000","name":"llm_request"`),
	} {
		text := r.Replace(line)
		if text == line {
			t.Errorf("the writer changed nothing")
		}
		if d := cmp.Diff([]*trace.Run{want}, readText(t, text)); d != "" {
			t.Errorf("%.200s\n(-want +got):\n%s", text, d)
		}
	}
}

// TestStockSpans: a stock span is one row with its durations in us and no
// engine stamps.
func TestStockSpans(t *testing.T) {
	run := readText(t, otlptest.Line("e", otlptest.Stock(1, "cmpl-1-0"), otlptest.Stock(2, "cmpl-2-0")))[0]
	if len(run.Requests) != 2 {
		t.Fatalf("got %d requests, want 2", len(run.Requests))
	}
	r := run.Requests[0]
	got := []any{r.Source, r.APIID.V, r.PromptTokens.V, r.OutputTokens.V, r.StockTTFTUs.V, r.StockE2EUs.V, r.StockQueueUs.V,
		r.StockPrefillUs.V, r.StockDecodeUs.OK, r.QueuedNs.OK, r.CoreID.OK, r.Success.V}
	want := []any{"stock", "cmpl-1-0", int64(40), int64(3), 1e5, 3e5, 1e4, 8e4, false, false, false, true}
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(1e-12, 0)); d != "" {
		t.Errorf("row (-want +got):\n%s", d)
	}
}

// TestSeveralSamplesOfOneRequest: n > 1 makes one row per core span, all linked
// to the API span; the prefix links them where the parent is unknown.
func TestSeveralSamplesOfOneRequest(t *testing.T) {
	for _, orphan := range []bool{false, true} {
		api := otlptest.API(1, "cmpl-1", 1e8-2e6, 2e8, otlptest.Int("gen_ai.request.n", 3))
		var spans []otlptest.Span
		for k := range int64(3) {
			core := otlptest.Core(1, k, fmt.Sprintf("%d_cmpl-1-0-aaaaaaaa", k), otlptest.Life(1e8, 3))
			if orphan {
				core.Parent = 0
			}
			spans = append(spans, core)
		}
		run := readText(t, otlptest.Line("e", append(spans, api)...))[0]
		want := map[bool]string{false: "parent", true: "prefix"}[orphan]
		if len(run.Requests) != 3 {
			t.Fatalf("got %d rows, want 3", len(run.Requests))
		}
		for k, r := range run.Requests {
			if r.CoreID.V != fmt.Sprintf("%d_cmpl-1-0-aaaaaaaa", k) || r.Link != want || r.APIID.V != "cmpl-1" || r.N.V != 3 ||
				r.OutputTokens.V != 2 || !r.Success.V {
				t.Errorf("row %d: got %+v, want a success linked by %s", k, r, want)
			}
		}
	}
}

// TestEventsGoThroughRotatedStepSpans: an engine closes its step span every so
// often; the steps and snapshots of its spans are one sequence, whatever the
// order the spans were exported in, and a request's cached tokens come from
// whichever span holds its first snapshot.
func TestEventsGoThroughRotatedStepSpans(t *testing.T) {
	const id = "cmpl-1-0-aaaaaaaa"
	core := otlptest.Core(1, 0, id, otlptest.Life(3e8, 3))
	api := otlptest.API(1, "cmpl-1", 3e8-2e6, 5e8)
	span := func(seq int64, steps ...int64) otlptest.Span {
		var events []string
		for _, n := range steps {
			events = append(events, otlptest.Summary(n, n*1e8, n == 3))
			if n == 3 {
				events = append(events, otlptest.Snapshot(n, id, 1, 3))
			}
		}
		return otlptest.StepSpan(seq, steps[0], steps[len(steps)-1], events...)
	}
	a := span(1, 1, 2)
	b := span(2, 3, 4)
	c := span(3, 5, 6)
	want := readText(t, otlptest.Line("e", a), otlptest.Line("e", b, core, api), otlptest.Line("e", c))
	if got := want[0]; len(got.Steps) != 6 || len(got.Snapshots) != 1 || got.Requests[0].CachedTokens.V != 1 {
		t.Fatalf("got %d steps, %d snapshots, %v cached tokens, want 6, 1, 1", len(got.Steps), len(got.Snapshots), got.Requests[0].CachedTokens)
	}
	for i, s := range want[0].Steps {
		if s.ID != int64(i+1) {
			t.Errorf("row %d: got step %d", i, s.ID)
		}
	}
	got := readText(t, otlptest.Line("e", core, a), otlptest.Line("e", api, c), otlptest.Line("e", b))
	if d := different(withoutPlaces(want), withoutPlaces(got)); d != "" {
		t.Errorf("in another order of export (-first +second):\n%s", d)
	}
}

// lifeOfEngine is n requests of one engine, one every so often from startNs on,
// each with a span of its two steps; ids tell them apart.
func lifeOfEngine(n, from, startNs, everyNs int64) []string {
	var out []string
	for i := range n {
		at, first := startNs+i*everyNs, 2*i+1
		id := fmt.Sprintf("cmpl-%d-0-aaaaaaaa", from+i)
		s := otlptest.StepSpan(i+1, first, first+1, otlptest.Summary(first, at, true), otlptest.Summary(first+1, at+1e7, false))
		s.ID, s.Trace = from<<20|i, from<<20|i
		out = append(out, otlptest.Line("e", otlptest.Core(from+i, 0, id, otlptest.Life(at, first)),
			otlptest.API(from+i, fmt.Sprintf("cmpl-%d", from+i), at-2e6, at+2e7), s))
	}
	return out
}

// TestRestartsAndSiblings: a second life behind the first becomes a run of its
// own; lives whose stamps overlap (a reboot, data-parallel siblings) are
// refused until --split-engines tells them apart.
func TestRestartsAndSiblings(t *testing.T) {
	first := lifeOfEngine(3, 1, 1e9, 2e7)
	for _, c := range []struct {
		name    string
		lines   []string
		refused bool
		want    string
	}{
		{"restart", append(append([]string{}, first...), lifeOfEngine(3, 11, 9e9, 2e7)...), false, "1 2 3/11 12 13"},
		{"reboot", append(append([]string{}, first...), lifeOfEngine(2, 11, 1e9, 2e7)...), true, "1 2 3/11 12"},
		{"siblings", interleave(first, lifeOfEngine(3, 11, 1e9+13e6, 2e7)), true, "1 2 3/11 12 13"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := writeDump(t, "traces.json", []byte(strings.Join(c.lines, "\n")))
			_, _, err := dumpRun(t, []string{path}, nil)
			if refused := err != nil && strings.Contains(err.Error(), string(source.CodeSeveralEngines)); refused != c.refused {
				t.Errorf("got %v, want refused: %v", err, c.refused)
			}
			doc, runs, err := dumpRun(t, []string{path}, func(o *Options) { o.SplitEngines = true })
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, run := range runs {
				got = append(got, coreIDs(runs[i:i+1]))
				if want := fmt.Sprintf("dump.%d", i+1); run.ID != want || len(run.Steps) != 2*len(run.Requests) {
					t.Errorf("got the run %s with %d steps of %d requests, want %s with two of each", run.ID, len(run.Steps), len(run.Requests), want)
				}
			}
			if g := strings.Join(got, "/"); g != c.want {
				t.Errorf("got the requests %s, want %s", g, c.want)
			}
			if r := doc.Totals.Records; !r.Balanced() || len(r.Dropped) > 0 {
				t.Errorf("read %d, kept %d, dropped %v", r.Read, r.Kept, r.Dropped)
			}
		})
	}
}

func interleave(a, b []string) []string {
	var out []string
	for i := range a {
		out = append(out, a[i], b[i])
	}
	return out
}
