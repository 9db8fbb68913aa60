package validate_test

import (
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

// asClients keeps what clients saw of a traced recording.
func asClients(h *honest) *honest {
	c := *h
	c.name += "/clients"
	c.kind = client
	c.findings = nil
	c.load = func() *trace.Run {
		full := h.load()
		run := &trace.Run{ID: full.ID}
		for i := range full.Requests {
			q := &full.Requests[i]
			if !q.ArrivedNs.OK || !q.DepartedNs.OK || !q.FirstTokenNs.OK {
				continue
			}
			run.Observed = append(run.Observed, trace.ObservedRequest{
				ID: q.CoreID.V, Source: "client", SendNs: q.ArrivedNs, FirstChunkNs: q.FirstTokenNs, LastChunkNs: q.DepartedNs,
				PromptTokens: q.PromptTokens, OutputTokens: q.OutputTokens, Success: trace.Some(true),
				TTFTUs: trace.Some(float64(q.FirstTokenNs.V-q.ArrivedNs.V) / 1e3), E2EUs: trace.Some(float64(q.DepartedNs.V-q.ArrivedNs.V) / 1e3),
			})
		}
		return run
	}
	return &c
}

// sureLies are further lies that are named in every recording that they fit: about the order of steps and events,
// lengths of clients, journeys and passes, answers that come at once, repeated levels, sample rates, step times on a
// grid and rounded ends of answers.
func sureLies(t *testing.T) []lie {
	t.Helper()
	sure := []string{
		"all engine stamps 0.2 s early", "client: outputs twice", "client: prompts and outputs swapped", "client: TTFT is E2E", "client: TTFT 0",
		"two tokens a step, no drafts stated", "passes: elapsed of the next pass", "passes: decodes halved", "levels: TPOT with the first token",
		"levels: every row but one figure twice",

		"steps stated as sampled at a tenth", "steps on a regular grid", "clients: the proxy flushes twice a second", "levels: a row of totals",
	}
	chosen := slices.DeleteFunc(append(furtherLies(), operatorLies()...), func(l lie) bool { return !slices.Contains(sure, l.what) })
	if len(chosen) != len(sure) {
		t.Fatalf("got %d lies, want %d", len(chosen), len(sure))
	}
	return chosen
}

// TestFurtherLies: none of the sure lies about a recording of the repository passes unnamed.
func TestFurtherLies(t *testing.T) {
	recordings := bundled(t)
	recordings = append(recordings, asClients(recordings[0]))
	outcomes := tellLiesOnce(t, recordings, sureLies(t))
	if len(outcomes) != len(sureLies(t)) {
		t.Errorf("%d of %d lies fit a recording", len(outcomes), len(sureLies(t)))
	}
	wantAllNamed(t, outcomes)
}

// TestEvalFurtherLies tells the further lies about more recordings: each is named in one of them at least, and at
// least 30 in every one.
func TestEvalFurtherLies(t *testing.T) {
	repo.NeedEval(t)
	recordings := recordingsOfLies(t)
	for _, h := range recordings {
		if h.kind == traced && h.isGPU {
			recordings = append(recordings, asClients(h))
		}
	}
	all := furtherLies()
	right := 0
	for what, o := range tellLies(t, recordings, all, false) {
		switch {
		case o.named == o.told && o.unrelated <= 1:
			right++
		case o.named == 0 || o.unrelated > 1:
			t.Errorf("%s: named in %d of %d recordings, beside up to %d that are unrelated", what, o.named, o.told, o.unrelated)
		default:
			t.Logf("%s: named in %d of %d recordings", what, o.named, o.told)
		}
	}
	t.Logf("right in every recording: %d of %d lies", right, len(all))
	if right < 30 {
		t.Errorf("got %d lies that are named in every recording, want at least 30 of %d", right, len(all))
	}
}

// sheet describes another device.
func sheet(name string) func(*deploy.Deployment) {
	return func(d *deploy.Deployment) { d.Hardware, _ = deploy.Datasheet(name) }
}

// furtherLies are lies of which most show only in recordings that reached the limit, or whose model and device the
// library has. No stream of one recording shows a client's clock that runs 1 % fast, a log's clock that is 20 s late,
// a limit of the scheduler that was never reached, or half of a client's requests lost where nothing numbers them.
func furtherLies() []lie {
	every := traced + stock + client
	return []lie{
		{what: "quantised weights fp8", kinds: every, gpu: true, causes: "pool_of_memory step_prior request_prior memory", dep: func(d *deploy.Deployment) {
			d.Model.BytesPerWeight /= 2
			d.Model.Decoder = nil
		}},
		{what: "quantised weights int4", kinds: every, gpu: true, causes: "pool_of_memory step_prior request_prior memory", dep: func(d *deploy.Deployment) {
			d.Model.BytesPerWeight /= 4
			d.Model.Decoder = nil
		}},
		{what: "max_num_batched_tokens x4", kinds: traced, causes: "waiting_reason journey_tokens chunk_reason", dep: func(d *deploy.Deployment) { d.Engine.MaxNumBatchedTokens *= 4 }},
		{what: "max_num_seqs x4", kinds: traced, causes: "waiting_reason", dep: func(d *deploy.Deployment) { d.Engine.MaxNumSeqs *= 4 }},
		{what: "pp 2", kinds: every, gpu: true, causes: "pool_of_memory memory step_prior request_prior", dep: func(d *deploy.Deployment) { d.PP = 2 }},
		{what: "tp x2", kinds: client + stock, gpu: true, causes: "request_prior pool_of_memory", dep: func(d *deploy.Deployment) { d.TP *= 2 }},
		{what: "tp x4", kinds: client + stock, gpu: true, causes: "request_prior", dep: func(d *deploy.Deployment) { d.TP *= 4 }},
		{what: "H200 for it", kinds: every, gpu: true, causes: "pool_of_memory memory step_prior request_prior", dep: sheet("H200")},
		{what: "B200 for it", kinds: every, gpu: true, causes: "pool_of_memory memory step_prior request_prior", dep: sheet("B200")},
		{what: "A100 for it", kinds: every, gpu: true, causes: "pool_of_memory memory step_prior request_prior step_floor", dep: sheet("A100-80GB")},
		{what: "H100 for it", kinds: every, gpu: true, causes: "pool_of_memory memory step_prior request_prior step_floor", dep: sheet("H100")},
		{what: "L40S for it", kinds: client + stock, gpu: true, causes: "pool_of_memory memory step_prior request_prior step_floor", dep: sheet("L40S")},
		{what: "model of four times the size", kinds: every, gpu: true, causes: "pool_of_memory memory step_prior request_prior step_floor model_name", dep: func(d *deploy.Deployment) {
			d.Model.NumLayers = d.Model.NumLayers * 5 / 2
			d.Model.HiddenSize *= 2
			d.Model.IntermediateSize *= 2
			d.Model.NumHeads *= 2
			d.Model.Decoder = nil
		}},
		{what: "model of a third of the size", kinds: every, gpu: true, causes: "pool_of_memory memory step_prior request_prior step_floor model_name", dep: func(d *deploy.Deployment) {
			d.Model.HiddenSize /= 2
			d.Model.IntermediateSize /= 2
			d.Model.Decoder = nil
		}},
		{what: "chunked prefill off", kinds: traced, causes: "chunk_reason", dep: func(d *deploy.Deployment) { d.Engine.ChunkedPrefill = false }},
		{what: "prefix caching off while prompts hit", kinds: every, causes: "cached_tokens journey_tokens request_prior", dep: func(d *deploy.Deployment) { d.Engine.PrefixCaching = false },
			run: func(r *trace.Run) {
				eachRequest(func(q *trace.Request) { q.CachedTokens = trace.Some(q.PromptTokens.V / 32 * 16) })(r)
				eachObserved(func(o *trace.ObservedRequest) { o.CachedTokens = trace.Some(o.PromptTokens.V / 32 * 16) })(r)
			}},
		{what: "client: every other request lost", kinds: client + stock, causes: "clients_complete", run: func(r *trace.Run) {
			var out []trace.ObservedRequest
			for i := range r.Observed {
				if i%2 == 0 {
					out = append(out, r.Observed[i])
				}
			}
			r.Observed = out
		}},
		{what: "client: every request twice", kinds: client + stock, causes: "clients_differ clients_complete client_limits client_tokens request_prior", run: func(r *trace.Run) {
			r.Observed = append(r.Observed, r.Observed...)
		}},
		{what: "journeys: every request twice", kinds: traced, causes: "finished_requests running_requests waiting_requests journey_tokens clients_complete step_floor", run: func(r *trace.Run) {
			n := len(r.Requests)
			r.Requests = append(r.Requests, r.Requests...)
			for i := n; i < 2*n; i++ {
				r.Requests[i].CoreID.V += "x"
				r.Requests[i].APIID.V += "x"
			}
		}},
		{what: "client: prompts and outputs swapped", kinds: client + stock, causes: "request_prior client_encloses_server client_lengths client_tokens", run: eachObserved(func(o *trace.ObservedRequest) {
			o.PromptTokens, o.OutputTokens = o.OutputTokens, o.PromptTokens
		})},
		{what: "journeys: prompts and outputs swapped", kinds: traced, causes: "journey_tokens snapshot_requests output_steps client_tokens cached_tokens", run: eachRequest(func(o *trace.Request) {
			o.PromptTokens, o.OutputTokens = o.OutputTokens, o.PromptTokens
		})},
		{what: "client: prompts of the next request", kinds: client + stock, causes: "request_prior client_lengths client_tokens clients_complete", run: func(r *trace.Run) {
			n := len(r.Observed)
			for i := range n - 1 {
				r.Observed[i].PromptTokens = r.Observed[i+1].PromptTokens
			}
		}},
		{what: "client: outputs halved", kinds: client + stock, causes: "request_prior client_lengths client_tokens clients_complete", run: eachObserved(func(o *trace.ObservedRequest) {
			o.OutputTokens.V = (o.OutputTokens.V + 1) / 2
		})},
		{what: "client: outputs twice", kinds: client + stock, causes: "request_prior client_lengths client_tokens clients_complete", run: eachObserved(func(o *trace.ObservedRequest) {
			o.OutputTokens.V *= 2
		})},
		{what: "client: prompts twice", kinds: client + stock, causes: "request_prior client_lengths client_tokens clients_complete", run: eachObserved(func(o *trace.ObservedRequest) {
			o.PromptTokens.V *= 2
		})},
		{what: "client: prompts x4", kinds: client + stock, causes: "request_prior client_lengths client_tokens clients_complete", run: eachObserved(func(o *trace.ObservedRequest) {
			o.PromptTokens.V *= 4
		})},
		{what: "client: TTFT 0", kinds: client + stock, causes: "client_order request_prior client_limits", run: eachObserved(func(o *trace.ObservedRequest) { o.TTFTUs.V = 0 })},
		{what: "client: TTFT is E2E", kinds: client + stock, causes: "client_streams request_prior", run: eachObserved(func(o *trace.ObservedRequest) { o.TTFTUs.V = o.E2EUs.V })},
		{what: "client: send times in ms taken for us", kinds: client + stock, causes: "client_limits", run: func(r *trace.Run) {
			if len(r.Observed) == 0 || !r.Observed[0].SendNs.OK {
				return
			}
			origin := r.Observed[0].SendNs.V
			eachObserved(func(o *trace.ObservedRequest) { o.SendNs.V = origin + (o.SendNs.V-origin)/1000 })(r)
		}},
		{what: "journeys' stamps x1000", kinds: traced, causes: "engine_order departure_order step_order client_encloses_server", run: func(r *trace.Run) {
			origin := r.Steps[0].TsStartNs
			eachRequest(func(q *trace.Request) {
				for _, at := range []*trace.Opt[int64]{&q.QueuedNs, &q.ScheduledNs, &q.FirstTokenNs, &q.FinishedNs} {
					at.V = origin + (at.V-origin)*1000
				}
			})(r)
		}},
		{what: "journeys' engine stamps 3 s late", kinds: traced, causes: "engine_order departure_order step_order api_delays client_encloses_server", run: eachRequest(func(q *trace.Request) {
			for _, at := range []*trace.Opt[int64]{&q.QueuedNs, &q.ScheduledNs, &q.FirstTokenNs, &q.FinishedNs} {
				at.V += 3e9
			}
		})},
		{what: "steps' stamps 3 s late", kinds: traced, causes: "engine_order departure_order step_order", run: eachStep(func(s *trace.Step) { s.TsStartNs += 3e9; s.TsEndNs += 3e9 })},
		{what: "all engine stamps 0.2 s early", kinds: traced, causes: "engine_order departure_order step_order", run: func(r *trace.Run) {
			eachStep(func(s *trace.Step) { s.TsStartNs -= 2e8; s.TsEndNs -= 2e8 })(r)
		}},
		{what: "journeys: outputs halved", kinds: traced, causes: "output_steps snapshot_requests", run: eachRequest(func(q *trace.Request) { q.OutputTokens.V = (q.OutputTokens.V + 1) / 2 })},
		{what: "two tokens a step, no drafts stated", kinds: traced, causes: "output_steps", run: eachRequest(func(q *trace.Request) { q.OutputTokens.V *= 2 })},
		{what: "passes: decodes halved", kinds: stock, causes: "client_tokens clients_complete", run: func(r *trace.Run) {
			for i := range r.Iterations {
				r.Iterations[i].GenerationReqs /= 2
				r.Iterations[i].GenerationTokens /= 2
			}
		}},
		{what: "passes: context tokens x4", kinds: stock, causes: "client_tokens scheduler_limits", run: func(r *trace.Run) {
			for i := range r.Iterations {
				r.Iterations[i].ContextTokens *= 4
			}
		}},
		{what: "passes: elapsed of the next pass", kinds: stock, causes: "pass_order", run: func(r *trace.Run) {
			n := len(r.Iterations)
			for i := range n - 1 {
				r.Iterations[i].ElapsedUs = r.Iterations[i+1].ElapsedUs
			}
		}},
		{what: "client: TTFT in s taken for ms", kinds: client + stock, causes: "client_encloses_server request_prior client_limits", run: eachObserved(func(o *trace.ObservedRequest) { o.TTFTUs.V /= 1000 })},
		{what: "client: E2E in us taken for ms", kinds: client + stock, causes: "client_encloses_server request_prior client_limits", run: eachObserved(func(o *trace.ObservedRequest) { o.E2EUs.V *= 1000 })},
		{what: "journeys: arrivals 2 s early", kinds: traced, causes: "api_delays client_encloses_server", run: eachRequest(func(q *trace.Request) { q.ArrivedNs.V -= 2e9 })},
		{what: "journeys: departures 2 s late", kinds: traced, causes: "api_delays", run: eachRequest(func(q *trace.Request) { q.DepartedNs.V += 2e9 })},
		{what: "journeys: first tokens 1 s late", kinds: traced, causes: "step_order client_encloses_server", run: eachRequest(func(q *trace.Request) {
			q.FirstTokenNs.V = min(q.FirstTokenNs.V+1e9, q.FinishedNs.V)
		})},
		{what: "steps: one more preemption each", kinds: traced, causes: "finished_requests", run: eachStep(func(s *trace.Step) { s.NumPreempted++ })},
		{what: "passes: prefill and decode swapped", kinds: stock, causes: "client_tokens clients_complete step_tokens answer_passes", run: func(r *trace.Run) {
			for i := range r.Iterations {
				it := &r.Iterations[i]
				it.ContextTokens, it.GenerationTokens = it.GenerationTokens, it.ContextTokens
				it.ContextReqs, it.GenerationReqs = it.GenerationReqs, it.ContextReqs
			}
		}},
		{what: "levels: rate a GPU", kinds: levels, causes: "level_concurrency", run: eachLevel(func(p *trace.LoadPoint) { p.RateRPS.V /= 2 })},
		{what: "levels: prompts and outputs swapped", kinds: levels, causes: "level_latency level_prior level_concurrency", run: eachLevel(func(p *trace.LoadPoint) {
			p.PromptTokens, p.OutputTokens = p.OutputTokens, p.PromptTokens
		})},
		{what: "levels: TPOT with the first token", kinds: levels, causes: "level_latency", run: eachLevel(func(p *trace.LoadPoint) { p.TPOTMs = p.E2EMs.V / p.OutputTokens })},
		{what: "levels: TPOT of half the tokens", kinds: levels, causes: "level_latency", run: eachLevel(func(p *trace.LoadPoint) { p.TPOTMs *= 2 })},
		{what: "levels: prompts x2", kinds: levels, gpu: true, causes: "level_prior", run: eachLevel(func(p *trace.LoadPoint) { p.PromptTokens *= 2 })},
		{what: "levels: E2E is TTFT", kinds: levels, causes: "level_latency", run: eachLevel(func(p *trace.LoadPoint) { p.TTFTMs = p.E2EMs })},
		{what: "levels: tp x2", kinds: levels, gpu: true, causes: "level_prior", run: eachLevel(func(p *trace.LoadPoint) { p.TP.V *= 2 })},
		{what: "levels: tp / 2", kinds: levels, gpu: true, causes: "level_prior", run: eachLevel(func(p *trace.LoadPoint) { p.TP.V = max(1, p.TP.V/2) })},
		{what: "levels: A100", kinds: levels, gpu: true, causes: "level_prior", dep: sheet("A100-80GB")},
		{what: "levels: H200", kinds: levels, gpu: true, causes: "level_prior pool_of_memory", dep: sheet("H200")},
		{what: "levels: every row but one figure twice", kinds: levels, causes: "levels_differ", run: func(r *trace.Run) {
			more := slices.Clone(r.Points)
			for i := range more {
				more[i].TTFTMs.V *= 1.0000001
			}
			r.Points = append(r.Points, more...)
		}},
	}
}
