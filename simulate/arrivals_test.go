package simulate

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestWorkloadFiles: plain tables, Vidur's, a TraceV2 header in place of its CSV, and a generator in JSON are read as what they
// are.
func TestWorkloadFiles(t *testing.T) {
	dir := t.TempDir()
	const rows = "request_id,streaming,input_tokens,output_tokens,arrival_time_us,send_time_us,status\n" +
		"0,true,100,20,0,0,ok\n1,true,90,21,500000,500000,ok\n"
	for name, text := range map[string]string{
		"plain.csv":   "arrival,prompt,output\n0,100,20\n0.5,90,21\n",
		"vidur.csv":   "arrived_at,num_prefill_tokens,num_decode_tokens\n3,100,20\n3.5,90,21\n",
		"lengths.csv": "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n100,20,120,5\n90,21,111,4.3\n",
		"trace.csv":   rows,
		"trace.yaml":  "trace_version: 2\ntime_unit: us\nmode: real\nwarm_up_requests: 0\n",
		"load.json":   "{\n  \"requests\": 2,\n  \"arrivals\": {\"kind\": \"constant\", \"rate_rps\": 2},\n  \"prompt\": {\"kind\": \"constant\", \"value\": 100},\n  \"output\": {\"kind\": \"constant\", \"value\": 20}\n}\n",
		"lost.yaml":   "trace_version: 2\ntime_unit: us\n",
	} {
		repo.Write(t, text, dir, name)
	}
	for name, second := range map[string]struct{ arrivalUs, prompt, output int64 }{
		"plain.csv":   {500_000, 90, 21},
		"vidur.csv":   {500_000, 90, 21},
		"lengths.csv": {0, 90, 21},
		"trace.csv":   {500_000, 90, 21},
		"trace.yaml":  {500_000, 90, 21},
		"load.json":   {500_000, 100, 20},
	} {
		w, draw, _, err := ReadWorkload(filepath.Join(dir, name), false)
		if err == nil && draw != nil {
			w, err = draw(1)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(w.Requests) != 2 {
			t.Errorf("%s: got %d requests, want 2", name, len(w.Requests))
			continue
		}
		gap := w.Requests[1].ArrivalUs - w.Requests[0].ArrivalUs
		if q := w.Requests[1]; gap != second.arrivalUs || q.PromptTokens != second.prompt || q.OutputTokens != second.output {
			t.Errorf("%s: got %d us, %d and %d tokens, want %+v", name, gap, q.PromptTokens, q.OutputTokens, second)
		}
	}
	if _, _, _, err := ReadWorkload(filepath.Join(dir, "lost.yaml"), false); err == nil {
		t.Error("a header without its rows is read")
	}
}

// TestDrawnRequests: the requests that a generator draws while the simulation runs are those that it draws before: with every
// part of a generator, at another rate and not all of them. Where all are needed at once, they are drawn before.
func TestDrawnRequests(t *testing.T) {
	const rest = "prompt: {kind: lognormal, mean: 300, sigma: 0.8}\noutput: {kind: uniform, min: 10, max: 200}\nmax_tokens: 100\n" +
		"prefix: {groups: 3, tokens: 64, share: 0.5}\nclasses: [{name: a, share: 1, ttft_ms: 5, priority: 1}, {name: b, share: 2}]\n"
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text  string
		set   func(o *Options)
		drawn int // while the simulation runs
	}{
		"poisson": {"requests: 50\narrivals: {kind: poisson, rate_rps: 5}\n" + rest, func(*Options) {}, 50},
		"gamma":   {"requests: 50\narrivals: {kind: gamma, rate_rps: 5, cv: 2}\n" + rest, func(o *Options) { o.RateScale = 3 }, 50},
		"bursts":  {"requests: 50\narrivals: {kind: bursts, burst: 7, every_s: 3}\n" + rest, func(o *Options) { o.MaxRequests = 20 }, 20},
		"stages":  {"stages: [{requests: 20, rate_rps: 2}, {requests: 10, rate_rps: 8}]\narrivals: {kind: constant}\n" + rest, func(o *Options) { o.MaxRequests = 40 }, 30},
		"closed":  {"requests: 50\narrivals: {kind: closed, clients: 4}\n" + rest, func(*Options) {}, 0},
		"clients": {"requests: 50\narrivals: {kind: poisson, rate_rps: 5}\n" + rest, func(o *Options) { o.Concurrency = 4 }, 0},
		"events":  {"requests: 50\narrivals: {kind: poisson, rate_rps: 5}\n" + rest, func(o *Options) { o.EventLog = "events" }, 0},
		"point": {"", func(o *Options) {
			o.Workload, o.Requests, o.RateRPS, o.InputTokens, o.OutputTokens, o.RangeRatio = "", 50, 3, 100, 20, 0.5
		}, 50},
	} {
		o := DefaultOptions()
		o.Workload = filepath.Join(dir, name+".yaml")
		repo.Write(t, c.text, o.Workload)
		c.set(&o)
		s := &Simulation{o: &o}
		if err := s.LoadWorkload(); err != nil {
			t.Fatal(err)
		}
		want, err := s.Requests(3)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.requests(3)
		if err != nil || got.drawn.N != c.drawn || got.len() != len(want) {
			t.Errorf("%s: got %d drawn of %d and %v, want %d of %d", name, got.drawn.N, got.len(), err, c.drawn, len(want))
			continue
		}
		list := got.list
		for range got.drawn.N {
			list = append(list, got.drawn.Next())
		}
		if d := cmp.Diff(want, list); d != "" {
			t.Errorf("%s:\n%s", name, d)
		}
	}
	s := &Simulation{o: &Options{Requests: 1, RangeRatio: 2}}
	if err := s.LoadWorkload(); err == nil {
		t.Error("lengths below 0 were drawn")
	}
}
