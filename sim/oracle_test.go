package sim

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// oracleScenario is a scenario of the oracle that runs vLLM's own scheduler
// (../shared/tools/vllm_oracle, README.md describes the form).
type oracleScenario struct {
	Name        string
	Engine      oracleEngine
	Requests    []*oracleRequest
	MaxSteps    int64   `json:"max_steps"`
	StepSeconds float64 `json:"step_seconds"`
}

type oracleEngine struct {
	NumBlocks   int64          `json:"num_blocks"`
	BlockSize   int64          `json:"block_size"`
	Seqs        int64          `json:"max_num_seqs"`
	Active      *int64         `json:"max_num_active_seqs"`
	Budget      int64          `json:"max_num_batched_tokens"`
	Scheduled   int64          `json:"max_num_scheduled_tokens"`
	MaxLen      int64          `json:"max_model_len"`
	Chunked     *bool          `json:"enable_chunked_prefill"`
	Caching     bool           `json:"enable_prefix_caching"`
	Reserve     *bool          `json:"scheduler_reserve_full_isl"`
	Watermark   float64        `json:"watermark"`
	Threshold   int64          `json:"long_prefill_token_threshold"`
	Adaptive    bool           `json:"long_prefill_token_threshold_adaptive"`
	Policy      string         `json:"policy"`
	Async       bool           `json:"async_scheduling"`
	PP          int64          `json:"pipeline_parallel_size"`
	Interval    int64          `json:"prefill_schedule_interval"`
	Runner      string         `json:"model_runner"`
	Connector   bool           `json:"kv_connector"`
	Speculative map[string]any `json:"speculative"`
	Offload     map[string]any `json:"offload"` // of testdata/interop/offload_oracle.py
}

type oracleRequest struct {
	ID            string
	ArrivalStep   *int64           `json:"arrival_step"`
	ArrivalTime   *float64         `json:"arrival_time"`
	PromptLen     int64            `json:"prompt_len"`
	PromptIDs     []int64          `json:"prompt_ids"`
	Prompt        []map[string]any `json:"prompt"`
	MaxTokens     int64            `json:"max_tokens"`
	OutputLen     *int64           `json:"output_len"`
	Priority      int64
	Accept        []int64
	Drafts        []int64
	AbortStep     *int64 `json:"abort_step"`
	AbortWhen     string `json:"abort_when"`
	RemotePrefill bool   `json:"remote_prefill"`
	LoadDone      *int64 `json:"load_done_step"`
	LoadSteps     *int64 `json:"load_steps"`
	RemoteDecode  bool   `json:"remote_decode"`
	SendDone      *int64 `json:"send_done_step"`
	SendSteps     *int64 `json:"send_steps"`

	index  int
	tokens []uint64 // of the prompt
}

// oracleTrace is what one vLLM made of a scenario.
type oracleTrace struct {
	scenario, version string
	lines             []map[string]any
}

// TestOracle runs the oracle's scenarios, of the random ones another quarter for each version, and compares every
// step with what vLLM's own scheduler does in each version. BLIS_TRAIN_ORACLE names another folder of scenarios
// and traces, of any names, all of which are run: *.json, *.jsonl and *.jsonl.gz.
func TestOracle(t *testing.T) { testOracle(t, 4) }

// TestEvalOracle: the same with every random scenario.
func TestEvalOracle(t *testing.T) {
	repo.NeedEval(t)
	testOracle(t, 1)
}

// testOracle takes one of so many of the random scenarios.
func testOracle(t *testing.T, every int) {
	t.Helper()
	dir := os.Getenv("BLIS_TRAIN_ORACLE")
	if dir != "" {
		every = 1
	} else {
		dir = "../../shared/tools/vllm_oracle"
		if _, err := os.Stat(dir); err != nil {
			t.Skipf("no recorded schedules: %v (BLIS_TRAIN_ORACLE names a folder)", err)
		}
	}
	scenarios, traces := readOracle(t, dir, every)
	if len(traces) == 0 {
		t.Fatalf("%s: no traces", dir)
	}
	type count struct{ runs, differ, steps int }
	counts := map[string]*count{}
	for _, tr := range traces {
		s := scenarios[tr.scenario]
		if s == nil {
			t.Errorf("%s: a trace of vLLM %s without its scenario", tr.scenario, tr.version)
			continue
		}
		c := counts[tr.version]
		if c == nil {
			c = &count{}
			counts[tr.version] = c
		}
		c.runs++
		n, diff := compareOracle(s, tr)
		c.steps += n
		if diff != "" {
			if c.differ++; c.differ <= 8 {
				t.Errorf("vLLM %s, %s: %s", tr.version, tr.scenario, diff)
			}
		}
	}
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		c := counts[v]
		t.Logf("vLLM %-7s %5d scenarios, %7d steps, %d differ", v, c.runs, c.steps, c.differ)
		if c.differ > 8 {
			t.Errorf("vLLM %s: %d of %d scenarios differ", v, c.differ, c.runs)
		}
	}
}

// The CPU tier of vLLM's own connector and LMCache's decide as theirs do, beside asynchronous scheduling and drafts too (recorded
// by testdata/interop/offload_oracle.py and lmcache_oracle.py).
func TestTierSchedules(t *testing.T) {
	t.Setenv("BLIS_TRAIN_ORACLE", "testdata/tier")
	TestOracle(t)
}

// readOracle reads the scenarios and traces of a folder. Of each compressed file of traces, which are those of random
// scenarios, it takes one of every so many, beginning with another one in each file.
func readOracle(t *testing.T, dir string, every int) (map[string]*oracleScenario, []*oracleTrace) {
	scenarios := map[string]*oracleScenario{}
	traces := []*oracleTrace{}
	packed := 0 // compressed files so far
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(filepath.Base(path), ".json") {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		var r io.Reader = bufio.NewReader(f)
		at, step := 0, 1 // the next trace is taken if at is a multiple of step
		taken := false
		if strings.HasSuffix(path, ".gz") {
			packed++
			at, step = packed, every
			if r, err = gzip.NewReader(r); err != nil {
				return err
			}
		}
		for dec := json.NewDecoder(r); ; {
			var text json.RawMessage
			if err := dec.Decode(&text); err == io.EOF {
				return nil
			} else if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			switch {
			case bytes.Contains(text, []byte(`"requests"`)):
				s := newOracleScenario()
				if err := json.Unmarshal(text, s); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				scenarios[s.Name] = s
			case bytes.HasPrefix(text, []byte(`{"scenario"`)):
				var head struct{ Scenario, VLLM string }
				if err := json.Unmarshal(text, &head); err != nil {
					return err
				}
				if taken = at%step == 0; taken {
					traces = append(traces, &oracleTrace{scenario: head.Scenario, version: head.VLLM})
				}
				at++
			case taken:
				var line map[string]any
				if err := json.Unmarshal(text, &line); err != nil {
					return err
				}
				last := traces[len(traces)-1]
				last.lines = append(last.lines, line)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios {
		s.resolve()
	}
	return scenarios, traces
}

func newOracleScenario() *oracleScenario {
	return &oracleScenario{MaxSteps: 400, Engine: oracleEngine{BlockSize: 16, Seqs: 128, Budget: 8192, MaxLen: 4096, Policy: "fcfs", PP: 1}}
}

// resolve fills defaults and makes token ids: equal ids are equal tokens.
func (s *oracleScenario) resolve() {
	byID := map[string]*oracleRequest{}
	named := func(what string, i int64) uint64 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s %d", what, i)
		return h.Sum64()
	}
	for i, r := range s.Requests {
		r.index = i
		byID[r.ID] = r
		if r.MaxTokens == 0 {
			r.MaxTokens = 16
		}
		if r.OutputLen == nil {
			r.OutputLen = &r.MaxTokens
		}
		step := int64(1)
		switch {
		case r.ArrivalTime != nil:
			step = 1 + int64(math.Ceil(*r.ArrivalTime/s.StepSeconds-1e-9))
		case r.ArrivalStep != nil:
			step = *r.ArrivalStep
		}
		r.ArrivalStep = &step
		own := int64(0)
		ownTokens := func(n int64) {
			for range n {
				r.tokens = append(r.tokens, named("own "+r.ID, own))
				own++
			}
		}
		whole := func(v any) int64 { f, _ := v.(float64); return int64(f) }
		ids := func(list []int64) {
			for _, v := range list {
				r.tokens = append(r.tokens, named("id", v))
			}
		}
		switch {
		case r.PromptIDs != nil:
			ids(r.PromptIDs)
		case r.Prompt == nil:
			ownTokens(r.PromptLen)
		}
		for _, part := range r.Prompt {
			switch {
			case part["shared"] != nil:
				for j := range whole(part["len"]) {
					r.tokens = append(r.tokens, named("shared "+part["shared"].(string), j))
				}
			case part["request"] != nil:
				other := byID[part["request"].(string)]
				r.tokens = append(r.tokens, other.tokens...)
				for j := range whole(part["outputs"]) {
					r.tokens = append(r.tokens, other.output(j))
				}
			case part["own"] != nil:
				ownTokens(whole(part["own"]))
			default:
				var list []int64
				for _, v := range part["ids"].([]any) {
					list = append(list, whole(v))
				}
				ids(list)
			}
		}
	}
}

// output is the content of an output token; a stop token is one like any other.
func (r *oracleRequest) output(i int64) uint64 {
	if i == *r.OutputLen-1 && *r.OutputLen < r.MaxTokens {
		return 7
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "output %s %d", r.ID, i)
	return h.Sum64()
}

// deployment is the engine of the scenario in a version. What the version does not know is left out.
func (s *oracleScenario) deployment(version string) *deploy.Deployment {
	e := &s.Engine
	d := &deploy.Deployment{TP: 1, PP: e.PP, DP: 1, Engine: vllm.Engine{
		VLLMVersion: version, MaxModelLen: trace.Some(e.MaxLen), MaxNumSeqs: e.Seqs, MaxNumBatchedTokens: e.Budget,
		ChunkedPrefill: e.Chunked == nil || *e.Chunked, PrefixCaching: e.Caching, BlockSize: e.BlockSize,
		KVBlocksGPU: trace.Some(e.NumBlocks), SchedulingPolicy: e.Policy, LongPrefillThreshold: e.Threshold,
		AsyncScheduling: trace.Some(e.Async), Extra: vllm.Values{},
	}}
	x := d.Engine.Extra
	if e.Active != nil {
		x["max_num_active_seqs"] = int(*e.Active)
	}
	if e.Reserve != nil {
		x["scheduler_reserve_full_isl"] = *e.Reserve
	}
	if e.Watermark > 0 {
		x["watermark"] = e.Watermark
	}
	if e.Adaptive {
		x["long_prefill_token_threshold_adaptive"] = true
	}
	if e.Interval > 1 {
		x["prefill_schedule_interval"] = int(e.Interval)
	}
	if e.Connector {
		x["kv_transfer_config"] = map[string]any{"kv_connector": "NixlConnector"}
	}
	if e.Offload != nil {
		whole := func(key string) int64 { f, _ := e.Offload[key].(float64); return int64(f) }
		extra := maps.Clone(e.Offload)
		if d.Engine.CPUOffloading = true; d.Engine.IsSince([2]int{0, 26}) {
			extra["blocks_per_chunk"] = whole("blocks_per_chunk")
		} else {
			extra["block_size"] = whole("blocks_per_chunk") * e.BlockSize
		}
		d.Engine.KVBlocksCPU = whole("chunks") * whole("blocks_per_chunk")
		name := "OffloadingConnector"
		if e.Offload["lmcache"] == true {
			name = "LMCacheConnectorV1"
			extra = map[string]any{}
			for _, key := range []string{"chunk_size", "cache_policy", "save_decode_cache", "min_retrieve_tokens"} {
				extra["lmcache."+key] = e.Offload[key]
			}
			d.Engine.KVBlocksCPU = whole("chunks") * whole("chunk_size") / e.BlockSize
		}
		x["kv_transfer_config"] = map[string]any{"kv_connector": name,
			"kv_role": "kv_both", "kv_connector_extra_config": extra}
		d.Model = model.Model{NumLayers: 1, NumKVHeads: 1, HeadDim: 1, BytesPerKV: 2}
	}
	if e.Speculative != nil {
		spec := maps.Clone(e.Speculative)
		delete(spec, "accept")
		delete(spec, "accept_default")
		x["speculative_config"] = spec
	}
	return d
}

// oracleRun drives one engine pass by pass, as the oracle's loop does.
type oracleRun struct {
	*Engine
	s       *oracleScenario
	reqs    []Request
	line    map[string]any
	step    int64
	aborted map[int]bool
	left    int // requests that have not finished
	// Steps by request.
	sentAt, parkedAt map[int]int64
	passes           map[int64]int64 // of the loop, that formed a step
}

func bytesOf(list []int64) []uint8 {
	var out []uint8
	for _, v := range list {
		out = append(out, uint8(v))
	}
	return out
}

func newOracleRun(s *oracleScenario, version string) (*oracleRun, error) {
	cfg := DefaultConfig(s.deployment(version), &Blackbox{Beta: []float64{1000, 0, 0}})
	r := &oracleRun{s: s, aborted: map[int]bool{}, left: len(s.Requests), sentAt: map[int]int64{}, parkedAt: map[int]int64{},
		passes: map[int64]int64{}}
	for _, q := range s.Requests {
		req := Request{ID: q.ID, ArrivalUs: int64(q.index), PromptTokens: int64(len(q.tokens)),
			OutputTokens: *q.OutputLen, MaxTokens: q.MaxTokens,
			Priority: q.Priority, Hashes: slices.Clone(q.tokens), HashTokens: 1, Proposed: bytesOf(q.Drafts),
			RemotePrefill: q.RemotePrefill, RemoteDecode: q.RemoteDecode}
		for i := range *q.OutputLen {
			req.Hashes = append(req.Hashes, q.output(i))
		}
		req.HashedTokens = int64(len(req.Hashes))
		if s.Engine.Speculative != nil {
			req.Accepted = acceptedBy(s.Engine.Speculative, q.Accept, q.MaxTokens)
		}
		r.reqs = append(r.reqs, req)
	}
	e, err := NewEngine(cfg, r, Hooks{})
	if err != nil {
		return nil, err
	}
	r.Engine = e
	if s.Engine.Runner == "v1" {
		e.rules.ModelRunnerV2 = false
	}
	e.setDepth()
	if s.Engine.Scheduled > 0 && e.rules.AsyncWithPP { // read from 0.19 on
		e.budget = s.Engine.Scheduled
	}
	e.transfers.onPark = func(q *seq) {
		r.note("parked", q.req.ID)
		r.parkedAt[q.idx] = r.step
	}
	if tier := tierOf(e); tier == nil {
		e.transfers.isDone = r.transferredInScenario
	} else {
		tier.isDone = func(t *transfer) bool {
			key := "store_steps"
			if t.load {
				key = "load_steps"
			}
			delay, _ := s.Engine.Offload[key].(float64)
			return t.sync || t.waitStep > 0 && t.waitStep <= tier.landed || r.passes[tier.landed] >= r.passes[t.step]+int64(delay)
		}
	}
	return r, nil
}

// acceptedBy is a request's script of accepted drafts for n verifies: its own, else the
// engine's, and behind its end the engine's default.
func acceptedBy(spec map[string]any, own []int64, n int64) []uint8 {
	def, _ := spec["accept_default"].(float64)
	if script, _ := spec["accept"].([]any); own == nil {
		for _, v := range script {
			own = append(own, int64(v.(float64)))
		}
	}
	out := bytesOf(own)
	for int64(len(out)) < n {
		out = append(out, uint8(def))
	}
	return out
}

func (r *oracleRun) transferredInScenario(q *seq) bool {
	o := r.s.Requests[q.idx]
	at := r.parkedAt[q.idx]
	due := o.LoadDone
	n := o.LoadSteps
	if q.status == statusDone && q.remote.freeUs > 0 && !slices.Contains(r.transfers.parked, q) {
		at = r.sentAt[q.idx]
		due = o.SendDone
		n = o.SendSteps
	}
	ok := false
	switch {
	case due != nil:
		ok = r.step >= *due
	case n != nil:
		ok = r.step >= at+*n
	default:
		ok = r.step >= at+1
	}
	return ok
}

func (r *oracleRun) note(field string, v any) {
	list, _ := r.line[field].([]any)
	r.line[field] = append(list, v)
}

func (r *oracleRun) set(field, id string, v any) {
	m, _ := r.line[field].(map[string]any)
	if m == nil {
		m = map[string]any{}
		r.line[field] = m
	}
	m[id] = v
}

// Step and Event make the run an observer.
func (r *oracleRun) Step(v *StepView) {}

func (r *oracleRun) Event(ev *Event) {
	switch ev.Kind {
	case Preempted:
		r.note("preempted", r.reqs[ev.Request].ID)
	case Finished:
		status := map[string]string{trace.FinishStopped: "stopped", trace.FinishLength: "length_capped", trace.FinishAborted: "aborted"}
		r.set("finished", r.reqs[ev.Request].ID, status[ev.FinishStatus])
		r.left--
		r.sentAt[ev.Request] = r.step
	}
}

func (r *oracleRun) abortDue(when string) {
	var due []int32
	for i, o := range r.s.Requests {
		if o.AbortStep == nil || r.aborted[i] || i >= len(r.visits) || r.visits[i] == nil || r.visits[i].s == nil || r.step < *o.AbortStep {
			continue
		}
		if w := cmp.Or(o.AbortWhen, "before_schedule"); w == when || r.step > *o.AbortStep {
			due = append(due, int32(i))
			r.aborted[i] = true
			r.note("aborted", o.ID)
		}
	}
	for _, i := range due {
		r.reqs[i].AbortKind = OutcomeAborted
	}
	r.aborts = append(r.aborts, due...)
	r.processAborts()
}

// pass is one turn of the engine's loop.
func (r *oracleRun) pass() error {
	if !r.hasWork() && len(r.flight) == 0 { // blocks stay for another server
		return nil
	}
	tier := 0
	if c := tierOf(r.Engine); c != nil {
		tier = c.t1.length + c.t2.length
	}
	if err := r.beginStep(); err != nil {
		return err
	}
	if r.Engine.step != r.lastScheduled() {
		r.describe()
		r.describeTier(tier)
	}
	if r.phase == busy && len(r.flight) > 0 {
		r.abortDue("before_update")
		before := map[int]int64{}
		items := slices.Clone(r.flight[0].items)
		for _, it := range items {
			before[int(it.idx)] = r.outputsOf(int(it.idx))
		}
		r.landStep()
		for _, it := range items {
			if got := r.outputsOf(int(it.idx)) - before[int(it.idx)]; got > 0 {
				r.set("delivered", r.reqs[it.idx].ID, float64(got))
			}
		}
	}
	r.phase = ready
	return nil
}

// outputsOf is the output tokens of a request so far.
func (r *oracleRun) outputsOf(i int) int64 {
	v := r.visits[i]
	if v.s != nil {
		return v.s.outputs
	}
	return v.res.OutputTokens
}

func (r *oracleRun) lastScheduled() int64 {
	n, _ := r.line["scheduled_step"].(int64)
	return n
}

// describe notes the batch just formed.
func (r *oracleRun) describe() {
	r.passes[r.Engine.step] = r.step
	f := &r.flight[len(r.flight)-1]
	r.line["sched"] = map[string]any{}
	r.line["computed"] = map[string]any{}
	for i := range f.items {
		it := &f.items[i]
		id := it.s.req.ID
		r.set("sched", id, float64(it.n))
		r.set("computed", id, float64(it.s.computed))
		if it.drafts > 0 {
			r.set("drafts", id, float64(it.drafts))
		}
		if it.fresh {
			r.set("admitted", id, float64(it.s.computed-it.n))
		}
	}
	r.line["free"] = float64(r.pool.Free)
	running := []any{}
	for _, s := range r.running {
		running = append(running, s.req.ID)
	}
	r.line["running"] = running
	r.line["waiting"] = r.numWaiting()
}

// tierOf is the CPU tier of the engine's connector; nil without one.
func tierOf(e *Engine) *cpuTier {
	switch c := e.connector.(type) {
	case *offloading:
		return &c.cpuTier
	case *lmcache:
		return &c.cpuTier
	}
	return nil
}

// describeTier notes what the CPU tier, which had so many chunks, took in and gave up with the batch just formed.
func (r *oracleRun) describeTier(had int) {
	tier := tierOf(r.Engine)
	if tier == nil {
		return
	}
	for _, t := range tier.flying {
		if tier.set.LMCache && !t.load && t.gpuBlocks > 0 && t.step == r.Engine.step {
			r.note("stores", float64(len(t.hashes)))
		}
	}
	if c, ok := r.connector.(*offloading); ok {
		for _, t := range c.planned {
			r.note("stores", float64(len(t.hashes)))
			had += len(t.hashes)
		}
	}
	r.line["tier"] = float64(tier.t1.length + tier.t2.length)
	if had -= tier.t1.length + tier.t2.length; had > 0 {
		r.line["evicted"] = float64(had)
	}
}

// compareOracle runs the scenario next to its trace: steps compared, and the first difference.
func compareOracle(s *oracleScenario, tr *oracleTrace) (steps int, diff string) {
	r, err := newOracleRun(s, tr.version)
	if err != nil {
		return 0, err.Error()
	}
	defer func() {
		if p := recover(); p != nil {
			diff = fmt.Sprintf("step %d: panic: %v", r.step, p)
		}
	}()
	todo := slices.Clone(s.Requests)
	slices.SortStableFunc(todo, func(a, b *oracleRequest) int { return cmp.Compare(*a.ArrivalStep, *b.ArrivalStep) })
	order, next := int64(0), 0
	for next < len(tr.lines) {
		r.step++
		r.Engine.now = r.step * 1_000_000
		want := tr.lines[next]
		if want["end"] == true {
			if bad := r.compareEnd(want); bad != "" && r.step <= s.MaxSteps {
				return steps, bad
			}
			return steps, ""
		}
		r.line = map[string]any{"scheduled_step": r.Engine.step}
		for len(todo) > 0 && *todo[0].ArrivalStep <= r.step {
			i := todo[0].index
			todo = todo[1:]
			r.newVisit(i, &r.reqs[i])
			v := r.visits[i]
			v.res = r.reqs[i].result(order)
			order++
			r.enqueue(i, 0)
			r.note("arrived", r.reqs[i].ID)
		}
		for _, q := range r.inbox {
			r.pickUp(q)
		}
		r.inbox = r.inbox[:0]
		r.abortDue("before_schedule")
		sends := slices.ContainsFunc(r.transfers.leaving, func(q *seq) bool { return q.req.RemoteDecode })
		idle := !r.hasWork() && len(r.flight) == 0 && !sends
		if idle {
			if r.line["arrived"] == nil && r.line["aborted"] == nil {
				if len(todo) == 0 {
					return steps, fmt.Sprintf("step %d: idle, want %v", r.step, want)
				}
				r.step = *todo[0].ArrivalStep - 1
				continue
			}
		} else {
			if err := r.pass(); err != nil {
				return steps, err.Error()
			}
			r.line["free_end"] = float64(r.pool.Free)
		}
		r.line["step"] = float64(r.step)
		if bad := compareLine(r.line, want); bad != "" {
			return steps, fmt.Sprintf("step %v: %s", want["step"], bad)
		}
		steps++
		next++
		if idle && len(todo) > 0 {
			r.step = *todo[0].ArrivalStep - 1
		}
	}
	return steps, "the trace has no end"
}

func (r *oracleRun) compareEnd(want map[string]any) string {
	unfinished, _ := want["unfinished"].([]any)
	if want["error"] == nil && len(unfinished) != r.left {
		return fmt.Sprintf("end: %d requests left, want %v", r.left, unfinished)
	}
	return ""
}

// compareLine is the first field that differs.
func compareLine(got, want map[string]any) string {
	for _, field := range []string{"step", "arrived", "aborted", "sched", "drafts", "admitted", "preempted", "parked", "computed", "free",
		"running", "delivered", "finished", "stores", "evicted", "tier", "free_end"} {
		g, w := got[field], want[field]
		if a, ok := g.([]any); ok && field == "preempted" {
			sortAny(a)
			b, _ := w.([]any)
			sortAny(b)
		}
		if !reflect.DeepEqual(g, w) {
			a, _ := json.Marshal(g)
			b, _ := json.Marshal(w)
			return fmt.Sprintf("%s: got %s, want %s", field, a, b)
		}
	}
	if w, ok := want["waiting"].([]any); ok && got["waiting"] != len(w) {
		return fmt.Sprintf("waiting: got %v, want %v", got["waiting"], w)
	}
	return ""
}

func sortAny(list []any) {
	slices.SortFunc(list, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}

// newerCase is randomCase under another release, with what only newer engines do: drafts,
// pipeline stages, prompts from other servers, holds and headroom. Priorities are kept.
func newerCase(seed uint64) (Config, []Request) {
	cfg, reqs := randomCase(seed)
	rng := rand.New(rand.NewPCG(seed, 40))
	e := &cfg.Deployment.Engine
	e.VLLMVersion = []string{"0.15.1", "0.19.1", "0.23.0", "0.24.0", "0.26.0", "0.28.0", "0.31.0", "0.33.0"}[rng.IntN(8)]
	e.Extra = vllm.Values{}
	e.CPUOffloading = false
	switch rng.IntN(4) {
	case 0:
		k := 1 + rng.IntN(4)
		method := []string{"eagle3", "mtp", "ngram", "draft_model"}[rng.IntN(4)]
		e.Extra["speculative_config"] = map[string]any{"method": method, "num_speculative_tokens": k}
		e.MaxNumBatchedTokens += e.MaxNumSeqs
	case 1:
		cfg.Deployment.PP = int64(2 + rng.IntN(2))
	case 2: // before 0.31 loads that have arrived may wait for ever behind a request that thrashes
		e.VLLMVersion = []string{"0.31.0", "0.33.0"}[rng.IntN(2)]
		e.Extra["kv_transfer_config"] = map[string]any{"kv_connector": "NixlConnector"}
		for i := range reqs {
			reqs[i].RemotePrefill = rng.IntN(3) == 0
			reqs[i].RemoteDecode = !reqs[i].RemotePrefill && rng.IntN(6) == 0
			reqs[i].LoadUs, reqs[i].SendUs = rng.Int64N(3000), rng.Int64N(3000)
		}
	}
	if slow := rng.IntN(4) == 0; slow && len(e.Extra) == 0 && cfg.Deployment.PP <= 1 { // a CPU tier whose copies take a step or more
		cfg.FreeStored = seed%2 == 0
		e.CPUOffloading, e.PrefixCaching, e.KVBlocksCPU = true, true, 4+rng.Int64N(40)
		m := &cfg.Deployment.Model
		m.NumLayers = 1
		m.NumKVHeads = 1
		m.HeadDim = 100
		m.BytesPerKV = 1
		cfg.Deployment.Hardware.PCIeBandwidthGBs = []float64{0.0005, 0.01, 10}[rng.IntN(3)]
		cfg.Deployment.Hardware.PCIeEfficiency = 1
		if name := []string{"", "LMCacheConnectorV1", "LMCacheMPConnector"}[rng.IntN(3)]; name != "" {
			e.PrefixCaching = rng.IntN(4) > 0
			e.VLLMVersion = []string{"0.15.1", "0.23.0", "0.31.0", "0.33.0"}[rng.IntN(4)] // between, two may preempt each other for ever
			e.Extra["kv_transfer_config"] = map[string]any{"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": map[string]any{
				"lmcache.chunk_size": e.BlockSize * (1 + rng.Int64N(3)), "lmcache.save_decode_cache": rng.IntN(2) == 0,
				"lmcache.cache_policy": []string{"LRU", "fifo", "lfu", "mru"}[rng.IntN(4)]}}
		}
	}
	if rng.IntN(4) == 0 {
		e.Extra["watermark"] = 0.1
	}
	if rng.IntN(4) == 0 {
		e.Extra["prefill_schedule_interval"] = 1 + rng.IntN(4)
	}
	if rng.IntN(4) == 0 {
		e.Extra["max_num_active_seqs"] = 1 + rng.IntN(int(e.MaxNumSeqs))
	}
	for i := range reqs {
		n := rng.IntN(8)
		for range n {
			reqs[i].Accepted = append(reqs[i].Accepted, uint8(rng.IntN(5)))
		}
	}
	return cfg, reqs
}

// verifies watches a run: what a verify scheduled is one token, the drafts it accepted (outputs
// it added) and those it rejected (tokens taken back from what was computed).
type verifies struct {
	open           []verify
	step           int64 // that is to land next
	seen, rejected int64
}

type verify struct {
	s                    *seq
	n, computed, outputs int64
}

func (w *verifies) look(t *testing.T, e *Engine) {
	if len(e.flight) > 0 && e.flight[0].step == w.step {
		w.open = w.open[:0] // not yet: what a later schedule() has added is part of its state
	} else {
		for _, v := range w.open {
			if v.s.status != statusRunning || v.s.outputs >= v.s.target {
				continue
			}
			accepted := v.s.outputs - v.outputs - 1
			rejected := v.computed - v.s.computed
			if w.seen, w.rejected = w.seen+1, w.rejected+rejected; v.n != accepted+rejected+1 || accepted < 0 || rejected < 0 {
				t.Errorf("step %d: %d tokens scheduled, %d accepted, %d rejected", w.step, v.n, accepted, rejected)
			}
		}
		w.open = w.open[:0]
	}
	if len(e.flight) == 0 {
		w.step = 0
		return
	}
	w.step = e.flight[0].step
	for _, it := range e.flight[0].items {
		s := it.s
		decodes := s.computed-max(s.flying, it.n) == s.tokens()-1 // it does not compute again what a preemption took
		if decodes && it.drafts > 0 && !it.fresh && s.status == statusRunning && !s.drains && int32(s.idx) == it.idx {
			w.open = append(w.open, verify{s, it.n, s.computed, s.outputs})
		}
	}
}

// Under every release: blocks are conserved over park, abort, flush and preemption, everybody
// leaves, and who finishes has exactly its tokens; a verify of n tokens is one token, the
// drafts it accepts and those it rejects; and first come, first served: nobody is admitted
// before one that was picked up earlier.
func TestNewerEnginesConserve(t *testing.T) {
	var seen, rejected int64
	defer func() {
		if t.Logf("%d verifies, %d drafts rejected", seen, rejected); rejected == 0 {
			t.Error("no verify was seen")
		}
	}()
	for seed := range uint64(cases(t)) {
		cfg, reqs := newerCase(seed)
		var engine *Engine
		watch := &verifies{}
		res := runChecked(t, cfg, reqs, nil, func(e *Engine, when string) {
			engine = e
			if when == "iteration" {
				watch.look(t, e)
			}
			checkAllBlocks(t, e, when)
			for _, v := range e.visits {
				if v != nil && v.s != nil && (v.s.computed < 0 || v.s.inFlight < 0 || v.s.flying < 0 || v.s.stale < 0) {
					t.Errorf("%s: request %d: %+v", when, v.s.idx, *v.s)
				}
			}
			for i := range e.cur {
				if it := &e.cur[i]; when == "schedule" && int64(it.drafts) >= it.n && it.drafts > 0 {
					t.Errorf("step %d: %d drafts of %d tokens", e.step, it.drafts, it.n)
				}
			}
		})
		if engine != nil {
			checkAllFree(t, engine)
			checkTier(t, engine)
		}
		seen += watch.seen
		rejected += watch.rejected
		checkOrder(t, &cfg, reqs, res.Requests)
		if res.AcceptedTokens > res.DraftTokens || res.DraftTokens > 0 && res.Verifies == 0 {
			t.Errorf("%d drafts, %d accepted in %d verifies", res.DraftTokens, res.AcceptedTokens, res.Verifies)
		}
		checkOutputs(t, &cfg, reqs, res.Requests)
		if t.Failed() {
			t.Fatalf("seed %d: vLLM %s: %+v", seed, cfg.Deployment.Engine.VLLMVersion, cfg.Deployment)
		}
	}
}

// checkAllBlocks checks that every block is free, or held by somebody inside or leaving.
func checkAllBlocks(t *testing.T, e *Engine, when string) {
	var held []*held
	for _, v := range e.visits {
		if v != nil && v.s != nil {
			held = append(held, &v.s.held)
		}
	}
	for _, s := range e.transfers.leaving {
		held = append(held, &s.held)
	}
	for i := range e.frees.waiting {
		held = append(held, &e.frees.waiting[i].held)
	}
	if err := e.pool.Check(held); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}

// checkOutputs checks that everybody has left, and who finished with its tokens.
func checkOutputs(t *testing.T, cfg *Config, reqs []Request, res []RequestResult) {
	for i := range res {
		r, q := &res[i], &reqs[i]
		want := min(q.OutputTokens, cfg.Deployment.Engine.MaxModelLen.V-q.PromptTokens)
		done := r.FinishStatus == trace.FinishStopped || r.FinishStatus == trace.FinishLength
		if r.Outcome == OutcomeUnfinished || done && r.OutputTokens != want {
			t.Errorf("request %d: %d tokens, want %d: %+v", i, r.OutputTokens, want, r)
		}
	}
}

// checkAllFree checks that an engine whose requests have left has its blocks back.
func checkAllFree(t *testing.T, e *Engine) {
	free, held := e.pool.Free, map[int32]bool{}
	for _, s := range e.transfers.leaving { // before 0.23 an idle engine does not look whether they were read
		if len(s.held.IDs) == 0 {
			free += s.held.N
		}
		for _, b := range s.held.IDs {
			held[b] = true
		}
	}
	if free+int64(len(held)) != e.pool.Total || e.rules.LeavingIsWork && len(e.transfers.leaving) > 0 {
		t.Errorf("%d of %d blocks free at the end", e.pool.Free, e.pool.Total)
	}
}

// checkTier checks that the tier has no more chunks than fit, and that the chunks in use, which are never evicted, are part of
// a copy or of the stores of a finished request that still keeps its blocks.
func checkTier(t *testing.T, e *Engine) {
	t.Helper()
	tier := tierOf(e)
	if tier != nil && tier.t1.length+tier.t2.length > tier.capacity {
		t.Errorf("%d chunks, want at most %d", tier.t1.length+tier.t2.length, tier.capacity)
	}
	own, isOwn := e.connector.(*offloading)
	if !isOwn {
		return
	}
	var used []uint64
	for _, x := range slices.Concat(own.flying, own.planned) {
		used = append(used, x.hashes...)
	}
	for _, s := range e.transfers.leaving {
		used = append(used, s.offload.storing...)
	}
	for h, x := range own.index {
		if x.refs != 0 && !slices.Contains(used, h) {
			t.Errorf("chunk %x is in use for ever: %d", h, x.refs)
		}
	}
}

// From 0.22 on a finished request's blocks are free before they are copied to the CPU tier, and the
// step that takes one waits for the copy; before, who needs them waits for them to come free.
func TestCopiedBlocksAreFreeAtOnce(t *testing.T) {
	run := func(version string, gbs float64) (started, first int64) {
		d := testkit.Small(6, func(e *vllm.Engine) {
			e.VLLMVersion = version
			e.BlockSize = 4
			e.PrefixCaching = true
			e.CPUOffloading = true
			e.KVBlocksCPU = 40
		})
		cfg := DefaultConfig(d, &Blackbox{Beta: []float64{100, 0, 0}})
		cfg.Async = false
		d.Hardware.PCIeBandwidthGBs = gbs
		d.Hardware.PCIeEfficiency = 1
		d.Model.NumLayers = 1
		d.Model.NumKVHeads = 1
		d.Model.HeadDim = 100
		d.Model.BytesPerKV = 1
		res, err := Run(cfg, []Request{{PromptTokens: 8, OutputTokens: 1}, {PromptTokens: 23, OutputTokens: 1}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := &res.Requests[1]
		return r.ScheduledUs.V, r.FirstTokenUs.V - r.ScheduledUs.V
	}
	for _, c := range []struct {
		version string
		gbs     float64
		waits   bool // to be admitted
		flushes bool // in its step
	}{{"0.20.2", 0.001, true, false}, {"0.22.1", 0.001, false, true}, {"0.33.0", 0.001, false, true}, {"0.33.0", 1000, false, false}} {
		started, first := run(c.version, c.gbs)
		if started > 100 != c.waits || first > 100 != c.flushes {
			t.Errorf("vLLM %s, %g GB/s: admitted at %d us, first token %d us later, want waiting %t and %t", c.version, c.gbs, started, first,
				c.waits, c.flushes)
		}
	}
}

// checkOrder checks that requests are first admitted in the order of their pick-up.
func checkOrder(t *testing.T, cfg *Config, reqs []Request, res []RequestResult) {
	if e := &cfg.Deployment.Engine; e.SchedulingPolicy == "priority" || e.CPUOffloading { // who waits for a load is passed over
		return
	}
	for i := range res {
		for j := range res {
			a, b := &res[i], &res[j]
			if reqs[i].RemotePrefill || !b.ScheduledUs.OK || !a.QueuedUs.OK || a.QueuedStep >= b.QueuedStep {
				continue
			}
			if left := a.FinishedUs.OK && a.FinishedUs.V <= b.ScheduledUs.V; !left && (!a.ScheduledUs.OK || a.ScheduledStep > b.ScheduledStep) {
				t.Errorf("request %d was picked up in step %d and admitted in %d, request %d in %d and %d", i, a.QueuedStep, a.ScheduledStep,
					j, b.QueuedStep, b.ScheduledStep)
			}
		}
	}
}
