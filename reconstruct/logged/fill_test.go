package logged

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// engine makes a recording with known times: requests arrive at random, every
// running one decodes in each pass, prompts run whole under the budget.
type engine struct {
	async     bool
	constant  float64 // us between passes
	seconds   float64 // of load
	stampStep int64
	clients   bool
	counted   bool    // the passes that ended prompts are known
	gap       float64 // mean time between arrivals, s
}

const logStart = int64(1_700_000_000e9) // wall clock of the log; clients count from 0

// truth is what really ran in each pass.
type truth struct {
	us, contexts []float64 // time of the pass; contexts of its decodes
}

func (e engine) record() (*trace.Run, truth) {
	type request struct{ prompt, output, done int64 }
	run := &trace.Run{ID: "made"}
	var tr truth
	var running []*request
	var send []float64
	at := 0.0
	now := 0.0
	scheduled := 0.0
	for k := uint64(0); at < e.seconds; k++ {
		at += -e.gap * math.Log(1-stat.Draw(7, k))
		send = append(send, at)
	}
	observed := make([]trace.ObservedRequest, len(send))
	owner := map[*request]int{}
	next, before := 0, 4000.0 // us of the pass before
	for next < len(send) || len(running) > 0 {
		if len(running) == 0 && send[next] > now {
			now = send[next]
		}
		var it trace.Iteration
		us, contexts := 5000.0, 0.0
		for _, r := range running {
			contexts += float64(r.prompt + r.done)
			it.GenerationReqs++
		}
		us += 150*float64(it.GenerationReqs) + 0.4*contexts
		var fresh []*request
		until := now
		if e.async && len(running) > 0 {
			until = scheduled
		}
		scheduled = now // the next batch, as this one begins to run
		for next < len(send) && send[next] <= until && it.ContextTokens < 1500 {
			r := &request{prompt: 100 + int64(stat.DrawN(400, 11, uint64(next))), output: 5 + int64(stat.DrawN(60, 13, uint64(next)))}
			owner[r] = next
			fresh = append(fresh, r)
			it.ContextReqs++
			it.ContextTokens += r.prompt
			next++
		}
		us += 40 * float64(it.ContextTokens)
		us *= 1 + 0.04*(stat.Draw(17, uint64(len(run.Iterations)))-0.5)
		it.GenerationTokens = it.GenerationReqs
		now += us/1e6 + e.constant/1e6
		wait := us
		if e.async { // the result of the batch before, already under way
			wait = math.Max(20, before-300)
		}
		before = us
		it.ElapsedUs = math.Round(wait/10) * 10
		it.Index = int64(len(run.Iterations))
		it.Form = trace.IterationLog
		stamp := now
		if e.async {
			stamp = now - us/1e6 // its line is written when the batch before ended
		}
		ns := logStart + int64(stamp*1e9)
		it.StampNs, it.StampStepNs, it.StampWall = trace.Some(ns/e.stampStep*e.stampStep), trace.Some(e.stampStep), e.stampStep < 1e9
		run.Iterations = append(run.Iterations, it)
		tr.us = append(tr.us, us+e.constant)
		tr.contexts = append(tr.contexts, contexts)
		for _, r := range append(slices.Clone(running), fresh...) {
			r.done++
			o := &observed[owner[r]]
			seen := int64((now + 0.004) * 1e9)
			if r.done == 1 {
				*o = trace.ObservedRequest{ID: fmt.Sprint(owner[r]), Iteration: trace.Opt[int64]{V: it.Index, OK: e.counted},
					SendNs: trace.Some(int64(send[owner[r]] * 1e9)), FirstChunkNs: trace.Some(seen),
					PromptTokens: trace.Some(r.prompt), OutputTokens: trace.Some(r.output), TTFTUs: trace.Some((now + 0.004 - send[owner[r]]) * 1e6)}
			}
			o.LastChunkNs = trace.Some(seen)
		}
		running = slices.DeleteFunc(append(running, fresh...), func(r *request) bool { return r.done >= r.output })
	}
	if e.clients {
		run.Observed = observed
	}
	return run, tr
}

func deployment(t testing.TB, change func(*deploy.Deployment)) *deploy.Deployment {
	t.Helper()
	dep, err := deploy.LoadRun(repo.Root(t) + "/testdata/traces/real/gqa-low")
	if err != nil {
		t.Fatal(err)
	}
	dep.Phases, dep.Hardware.BwPeakTBs = nil, 1 // so that reading the weights takes 0.3 ms
	dep.Engine.MaxNumBatchedTokens = 2048
	if change != nil {
		change(dep)
	}
	return dep
}

func asynchronous(is bool) func(*deploy.Deployment) {
	return func(d *deploy.Deployment) { d.Engine.AsyncScheduling = trace.Some(is) }
}

// errorsOf are the relative errors of the times of passes and of contexts, medians.
func errorsOf(run *trace.Run, tr truth) (times, contexts float64) {
	var e, c []float64
	k := 0
	for i, s := range run.Steps {
		t := &run.Aggregate.Totals[s.ID-1]
		if t.Prefill+t.Decode == 0 {
			continue
		}
		if i+1 < len(run.Steps) && !t.NoStart {
			e = append(e, math.Abs(float64(run.Steps[i+1].TsStartNs-s.TsStartNs)/1000-tr.us[k])/tr.us[k])
		}
		if tr.contexts[k] > 0 {
			c = append(c, math.Abs(t.DecodeContext-tr.contexts[k])/tr.contexts[k])
		}
		k++
	}
	return stat.Median(e), stat.Median(c)
}

// TestTimes: what stands for the time of a pass, and how near it comes.
func TestTimes(t *testing.T) {
	for _, c := range []struct {
		name   string
		engine engine
		dep    func(*deploy.Deployment)
		time   string
		most   float64 // median error of the times
	}{
		{"precise stamps", engine{constant: 1500, seconds: 60, stampStep: 1000, gap: 0.2}, asynchronous(false), timeCadence, 0.001},
		{"whole seconds", engine{constant: 1500, seconds: 60, stampStep: 1e9, gap: 0.05}, asynchronous(false), timeElapsed, 0.02},
		{"whole seconds, nothing stated", engine{constant: 1500, seconds: 60, stampStep: 1e9, gap: 0.05},
			func(d *deploy.Deployment) {
				d.Engine.AsyncScheduling = trace.Opt[bool]{}
				d.Engine.VLLMVersion = "0.11.0"
			}, timeElapsed, 0.02},
		{"whole seconds, short bursts, clients", engine{constant: 1500, seconds: 60, stampStep: 1e9, gap: 0.2, clients: true},
			asynchronous(false), timeElapsed, 0.02},
		{"asynchronous, precise stamps", engine{async: true, seconds: 60, stampStep: 1000, gap: 0.1}, asynchronous(true), timeCadence, 1},
		{"asynchronous, whole seconds of 20 minutes", engine{async: true, seconds: 1200, stampStep: 1e9, gap: 0.03},
			asynchronous(true), timeTicks, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			run, tr := c.engine.record()
			if err := Fill(run, deployment(t, c.dep)); err != nil {
				t.Fatal(err)
			}
			a := run.Aggregate
			if a.Refused != nil || a.Audit.Time != c.time {
				t.Fatalf("got %q, %v, audit %+v, want %s", a.Audit.Time, a.Refused, a.Audit, c.time)
			}
			if c.time == timeTicks {
				checkTicks(t, run)
				return
			}
			if times, _ := errorsOf(run, tr); times > c.most {
				t.Errorf("got times off by %.2g (median), want %.2g; audit %+v", times, c.most, a.Audit)
			}
			if got := a.Audit.ConstantUs.V; c.dep != nil && !c.engine.async && math.Abs(got-c.engine.constant) > 200 {
				t.Errorf("got a constant of %.0f us, want %.0f", got, c.engine.constant)
			}
		})
	}
}

// checkTicks: recorded steps are whole seconds apart, and between them lie known
// passes.
func checkTicks(t *testing.T, run *trace.Run) {
	t.Helper()
	if len(run.Steps) < 300/2 {
		t.Errorf("got %d recorded steps", len(run.Steps))
	}
	for i := 1; i < len(run.Steps); i++ {
		if d := run.Steps[i].TsStartNs - run.Steps[i-1].TsStartNs; d%secondNs != 0 || d <= 0 || run.Steps[i].ID-run.Steps[i-1].ID < 2 {
			t.Fatalf("step %d: %d ns after step %d", run.Steps[i].ID, d, run.Steps[i-1].ID)
		}
	}
}

// TestDrafts: with speculative decoding in run.yaml passes keep their requests and count drafted tokens
// as decoded and sampled.
func TestDrafts(t *testing.T) {
	run, _ := engine{constant: 1000, seconds: 60, stampStep: 1000, gap: 0.2, clients: true}.record()
	drafted := int64(0)
	for i := range run.Iterations {
		it := &run.Iterations[i]
		it.GenerationTokens += 2 * it.GenerationReqs
		drafted += it.GenerationTokens
	}
	if err := Fill(run, deployment(t, func(d *deploy.Deployment) {
		asynchronous(false)(d)
		d.Engine.SpeculativeDecoding = true
		d.Engine.Extra = vllm.Values{"speculative_config": map[string]any{"method": "ngram"}}
	})); err != nil || run.Aggregate.Refused != nil {
		t.Fatal(err, run.Aggregate.Refused)
	}
	for _, tt := range run.Aggregate.Totals {
		drafted -= tt.Decode
		if tt.Decode != 3*tt.DecodeReqs || tt.Sampled != tt.PrefillReqs+tt.Decode || tt.Decode+tt.Prefill > 0 && !tt.Known {
			t.Fatalf("got %+v, want three tokens a decode, all sampled", tt)
		}
	}
	if drafted != 0 || !run.Aggregate.Drafts {
		t.Errorf("%d tokens are missing", drafted)
	}
}

// TestRefusals: elapsed of an asynchronous engine is refused whatever run.yaml says,
// and so is what cannot be a time series; every refusal has its cure.
func TestRefusals(t *testing.T) {
	async := engine{async: true, seconds: 40, stampStep: 1e9, gap: 0.1}
	for _, c := range []struct {
		name   string
		engine engine
		dep    func(*deploy.Deployment)
		change func(*trace.Iteration)
		code   trace.Code
	}{
		{"stated", async, asynchronous(true), nil, codeNoStepTimes},
		{"stated wrongly", async, asynchronous(false), nil, codeNoStepTimes},
		{"not stated, old version", async,
			func(d *deploy.Deployment) {
				d.Engine.AsyncScheduling = trace.Opt[bool]{}
				d.Engine.VLLMVersion = "0.11.0"
			}, nil, codeNoStepTimes},
		{"no stamps", async, asynchronous(false), func(it *trace.Iteration) { it.StampNs = trace.Opt[int64]{} }, codeNoStepTimes},
		{"samples", async, nil, func(it *trace.Iteration) { it.Sampled = true }, codeNoStepTimes},
		{"speculative", async, nil, func(it *trace.Iteration) { it.GenerationTokens *= 2 }, codeNoStepTimes},
	} {
		run, _ := c.engine.record()
		for i := range run.Iterations {
			if c.change != nil {
				c.change(&run.Iterations[i])
			}
		}
		if err := Fill(run, deployment(t, c.dep)); err != nil {
			t.Fatal(err)
		}
		r := run.Aggregate.Refused
		if r == nil || r.Code != c.code || r.Hint == "" || len(run.Steps) > 0 {
			t.Errorf("%s: got %v, %d steps, want %s", c.name, r, len(run.Steps), c.code)
		}
	}
}

// TestContexts: with clients contexts are those of the requests that ran; without
// anything they are one mean, and the run says that terms are merged.
func TestContexts(t *testing.T) {
	for _, c := range []struct {
		name     string
		engine   engine
		usage    bool
		contexts string
		most     float64
	}{
		{"clients", engine{constant: 1000, seconds: 60, stampStep: 1000, gap: 0.2, clients: true}, false, contextsClient, 0.02},
		{"clients, whole seconds", engine{constant: 1000, seconds: 60, stampStep: 1e9, gap: 0.2, clients: true}, false, contextsClient, 0.02},
		{"asynchronous, clients, counted", engine{async: true, constant: 1000, seconds: 60, stampStep: 1000, gap: 0.1, clients: true,
			counted: true}, false, contextsClient, 0.02},
		{"nothing", engine{constant: 1000, seconds: 60, stampStep: 1000, gap: 0.2}, false, contextsMean, 1},
	} {
		run, tr := c.engine.record()
		if err := Fill(run, deployment(t, asynchronous(c.engine.async))); err != nil {
			t.Fatal(err)
		}
		a := run.Aggregate
		_, contexts := errorsOf(run, tr)
		if a.Contexts != c.contexts || contexts > c.most {
			t.Errorf("%s: got contexts from %s, off by %.2g (median), want %s and %.2g; %v", c.name, a.Contexts, contexts, c.contexts, c.most,
				a.Findings)
		}
		merged := slices.ContainsFunc(a.Findings, func(f trace.Finding) bool { return f.Code == ContextsMerged })
		if merged != (c.contexts == contextsMean) {
			t.Errorf("%s: got %v", c.name, a.Findings)
		}
		if c.engine.clients && (len(a.DelaysUs) == 0 || math.Abs(stat.Median(a.DelaysUs)-4000) > 1500 && !strings.Contains(c.name, "whole")) {
			t.Errorf("%s: got delays of idle requests %v, want 4 ms", c.name, a.DelaysUs)
		}
	}
}

// TestContextsOfOthers: answers in one piece, several of a call and those left early are placed; where they, or requests that no
// result shows, leave one mean for all contexts, the passes teach no step times.
func TestContextsOfOthers(t *testing.T) {
	for _, c := range []struct {
		name   string
		spoil  func(run *trace.Run, k int) bool // whether the row stays
		most   float64                          // contexts may be off by; 0: refused
		others float64
	}{
		{"as it is", func(*trace.Run, int) bool { return true }, 0.02, 0},
		{"half in one piece", func(run *trace.Run, k int) bool {
			if k%2 == 0 {
				run.Observed[k].FirstChunkNs = trace.Opt[int64]{}
			}
			return true
		}, 0.02, 0},
		{"a fifth left early", func(run *trace.Run, k int) bool {
			if o := &run.Observed[k]; k%5 == 0 {
				o.Success, o.Aborted, o.Chunks, o.OutputTokens = trace.Some(false), trace.Some(true), o.OutputTokens, trace.Opt[int64]{}
			}
			return true
		}, 0.02, 0},
		{"one in 25 by others", func(_ *trace.Run, k int) bool { return k%25 > 0 }, 0.02, 0.04},
		{"a third by others", func(_ *trace.Run, k int) bool { return k%3 > 0 }, 0, 0.33},
		{"all in one piece", func(run *trace.Run, k int) bool { run.Observed[k].FirstChunkNs = trace.Opt[int64]{}; return true }, 0, 0},
		{"half failed", func(run *trace.Run, k int) bool {
			if o := &run.Observed[k]; k%2 == 0 {
				*o = trace.ObservedRequest{SendNs: o.SendNs, PromptTokens: o.PromptTokens, Success: trace.Some(false)}
			}
			return true
		}, 0, 0.5},
	} {
		run, tr := engine{constant: 1000, seconds: 60, stampStep: 1000, gap: 0.05, clients: true}.record()
		var left []trace.ObservedRequest
		for k := range run.Observed {
			if c.spoil(run, k) {
				left = append(left, run.Observed[k])
			}
		}
		run.Observed = left
		if err := Fill(run, deployment(t, asynchronous(false))); err != nil {
			t.Fatal(err)
		}
		a := run.Aggregate
		if (a.Refused != nil) != (c.most == 0) || math.Abs(a.Others-c.others) > 0.04 {
			t.Errorf("%s: got %v, %.2f of the decodes by others, contexts %s, want refused: %v, %.2f; %v", c.name, a.Refused, a.Others, a.Contexts,
				c.most == 0, c.others, a.Findings)
			continue
		}
		if _, contexts := errorsOf(run, tr); c.most > 0 && contexts > c.most {
			t.Errorf("%s: got contexts off by %.2g, want %.2g", c.name, contexts, c.most)
		}
	}
}

// FuzzFill: no sequence of iterations panics; steps come in order with finite sums,
// or the run is refused.
func FuzzFill(f *testing.F) {
	dep := deployment(f, asynchronous(false))
	run, _ := engine{constant: 500, seconds: 3, stampStep: 1e9, gap: 0.2}.record()
	var seed []byte
	for i := range run.Iterations {
		it := &run.Iterations[i]
		seed = binary.LittleEndian.AppendUint16(seed, uint16(it.ContextTokens))
		seed = append(seed, byte(it.ContextReqs), byte(it.GenerationReqs), byte(it.ElapsedUs/100), byte(i%7))
	}
	f.Add(seed, int64(1e9), true)
	f.Add(seed[:30], int64(1000), false)
	f.Fuzz(func(t *testing.T, data []byte, step int64, clients bool) {
		if step <= 0 || step > 1e9 || len(data) > 6*5000 {
			return
		}
		run := &trace.Run{ID: "fuzz"}
		stamp, index := int64(1e18), int64(0)
		for ; len(data) >= 6; data = data[6:] {
			index += 1 + int64(data[5]&1)*int64(data[4])
			it := trace.Iteration{Index: index, Form: trace.IterationLog, ContextTokens: int64(binary.LittleEndian.Uint16(data)),
				ContextReqs: int64(data[2]), GenerationReqs: int64(data[3]), GenerationTokens: int64(data[3]) + int64(data[5]>>6),
				ElapsedUs: float64(data[4]) * 100, Dummy: data[5]&32 > 0}
			stamp += int64(data[4])*1e5 + int64(data[5]&8)*1e8 - int64(data[5]&16)*1e7
			if data[5]&2 == 0 {
				it.StampNs, it.StampStepNs = trace.Some(stamp/step*step), trace.Some(step)
			}
			run.Iterations = append(run.Iterations, it)
			if clients && it.ContextReqs > 0 {
				run.Observed = append(run.Observed, trace.ObservedRequest{SendNs: trace.Some(stamp - 1e18 - 1e8),
					FirstChunkNs: trace.Some(stamp - 1e18), LastChunkNs: trace.Some(stamp - 1e18 + int64(data[2])*1e8),
					PromptTokens: trace.Some(it.ContextTokens), OutputTokens: trace.Some(int64(data[2])), TTFTUs: trace.Some(1e5)})
			}
		}
		if len(run.Iterations) == 0 {
			return
		}
		if err := Fill(run, dep); err != nil {
			t.Fatal(err)
		}
		if run.Aggregate.Refused != nil && len(run.Steps) > 0 {
			t.Errorf("refused with %d steps", len(run.Steps))
		}
		for i := range run.Steps {
			if i > 0 && (run.Steps[i].ID <= run.Steps[i-1].ID || run.Steps[i].TsStartNs < run.Steps[i-1].TsStartNs) {
				t.Fatalf("step %+v after %+v", run.Steps[i], run.Steps[i-1])
			}
		}
		for i := range run.Aggregate.Totals {
			tt := &run.Aggregate.Totals[i]
			for _, v := range []float64{tt.CausalWork, tt.DecodeContext, tt.PrefillContext} {
				if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
					t.Fatalf("got %+v", tt)
				}
			}
			if tt.Prefill < 0 || tt.Decode < 0 || tt.PrefillReqs < 0 || tt.Sampled < 0 {
				t.Fatalf("got %+v", tt)
			}
		}
	})
}
