package validate

import (
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestConfigsWithoutSteps: runs without step times count under their configuration if they train and one by one if they
// test; saturated ones and those of a known scope do not.
func TestConfigsWithoutSteps(t *testing.T) {
	run := func(id string, tp int64, training, seen, saturated bool) *judgedRun {
		d := testkit.Llama8B()
		d.TP = tp
		r := &judgedRun{id: id, training: training, seen: seen}
		r.Deployment = d
		r.Saturation = &rows.LoadVerdicts{Run: rows.LoadVerdict{Saturated: saturated}}
		return r
	}
	steps := run("steps", 1, true, true, false)
	steps.beta = &rows.Table{}
	j := &job{runs: []*judgedRun{
		run("a", 1, true, true, false), run("b", 1, true, false, false), run("c", 2, true, true, false), run("d", 1, false, true, false),
		run("e", 4, false, false, false), run("f", 1, true, true, true), steps,
	}}
	if got := j.configsWithoutSteps(nil, nil); got != nil {
		t.Errorf("no fit: got %+v", got)
	}
	if got := j.configsWithoutSteps(&result.Fit{}, nil); got != nil {
		t.Errorf("a fit of steps: got %+v", got)
	}
	fit := &result.Fit{Requests: &result.RequestLevel{}}
	label := func(i int) string { return configLabels(j.runs)(j.runs[i].Deployment.Config()) }
	got := j.configsWithoutSteps(fit, []result.ConfigErrors{{Scope: label(2)}, {Scope: "e"}})
	want := []struct {
		scope    string
		runs     []string
		seen, of bool
	}{{label(0), []string{"a", "b"}, true, false}, {"d", []string{"d"}, true, true}, {"e", []string{"e"}, false, true}}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i, w := range want {
		if c := got[i]; c.Scope != w.scope || !slices.Equal(c.Runs, w.runs) || c.Seen != w.seen || c.TestRun != w.of || c.Config == "" {
			t.Errorf("%d: got %+v, want %+v", i, c, w)
		}
	}
}

// TestBoundsOfARun: first and last stamp of steps and traced requests; of stock spans only without steps; of clients only
// without any other.
func TestBoundsOfARun(t *testing.T) {
	step := func(at int64) trace.Step { return trace.Step{TsStartNs: at} }
	stock := trace.Request{Source: trace.SourceStock, StartWallNs: some(int64(5)), EndWallNs: some(int64(90))}
	for name, c := range map[string]struct {
		run    trace.Run
		lo, hi int64
		ok     bool
	}{
		"nothing":           {trace.Run{}, 0, 0, false},
		"steps":             {trace.Run{Steps: []trace.Step{step(30), step(10), step(20)}}, 10, 30, true},
		"requests":          {trace.Run{Requests: []trace.Request{{ArrivedNs: some(int64(40)), QueuedNs: some(int64(41))}, {FinishedNs: some(int64(60)), DepartedNs: some(int64(70))}}}, 40, 70, true},
		"queued first":      {trace.Run{Requests: []trace.Request{{QueuedNs: some(int64(41)), FinishedNs: some(int64(60))}}}, 41, 60, true},
		"stock":             {trace.Run{Requests: []trace.Request{stock}}, 5, 90, true},
		"stock and steps":   {trace.Run{Requests: []trace.Request{stock}, Steps: []trace.Step{step(10)}}, 10, 10, true},
		"clients":           {trace.Run{Observed: []trace.ObservedRequest{{SendNs: some(int64(3)), LastChunkNs: some(int64(8))}, {QueuedNs: some(int64(2)), EngineLastNs: some(int64(9))}}}, 2, 9, true},
		"clients and steps": {trace.Run{Observed: []trace.ObservedRequest{{SendNs: some(int64(3))}}, Steps: []trace.Step{step(10)}}, 10, 10, true},
	} {
		if lo, hi, ok := runBoundsNs(&c.run); lo != c.lo || hi != c.hi || ok != c.ok {
			t.Errorf("%s: got %d to %d, %v, want %d to %d, %v", name, lo, hi, ok, c.lo, c.hi, c.ok)
		}
	}
}

// TestPassesFinding: what the passes give, by how their times and contexts were found.
func TestPassesFinding(t *testing.T) {
	if got := passesFinding(&trace.Run{}); got != nil {
		t.Errorf("got %v", got)
	}
	text := func(form, time, contexts string, elapsed float64, constant trace.Opt[float64]) string {
		a := &trace.Aggregate{Contexts: contexts}
		a.Audit.Time, a.Audit.ConstantUs = time, constant
		run := &trace.Run{ID: "r", Aggregate: a, Iterations: []trace.Iteration{{Form: form}, {Form: form, ElapsedUs: elapsed}}}
		return passesFinding(run)[0].Message
	}
	const end = ". The tracing fork would give waits and single requests"
	const passes = "r: 2 passes of an unmodified engine give "
	for time, want := range map[string]string{"cadence": "step times from the stamps of its lines", "elapsed": "step times from the logged elapsed time",
		"ticks": "sums of step times between whole seconds", "": "no step times"} {
		if got := text(trace.IterationLog, time, "", 0, trace.Opt[float64]{}); got != passes+want+" and no KV-read term"+end {
			t.Errorf("%s: got %q", time, got)
		}
	}
	for contexts, want := range map[string]string{"trace": "the KV-read term from the trace's own sums", "client": "the KV-read term from the clients' requests",
		"kv_usage": "the KV-read term from the KV usage, roughly", trace.ContextsMean: "the KV-read term merged with the per-decode term"} {
		if got := text(trace.IterationLog, "", contexts, 0, trace.Opt[float64]{}); got != passes+"no step times and "+want+end {
			t.Errorf("%s: got %q", contexts, got)
		}
	}
	if got := text(trace.IterationChunks, "", "", 0, trace.Opt[float64]{}); got != "r: 2 steps recovered from chunks give step times from the chunks' stamps and the KV-read term by counting"+end {
		t.Errorf("chunks: got %q", got)
	}
	if got := text(trace.IterationLog, "", "", 5, some(1234.0)); !strings.Contains(got, "; 1.23 ms lie between elapsed times. The") {
		t.Errorf("a constant: got %q", got)
	}
	for name, got := range map[string]string{"no elapsed times": text(trace.IterationLog, "", "", 0, some(1234.0)), "no constant": text(trace.IterationLog, "", "", 5, trace.Opt[float64]{})} {
		if strings.Contains(got, "lie between") {
			t.Errorf("%s: got %q", name, got)
		}
	}
}
