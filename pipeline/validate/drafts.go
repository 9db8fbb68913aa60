package validate

// This file replays runs with speculative decoding of which only a log of passes was recorded. Such
// a log counts the drafted tokens of each pass and not what the model accepted of them
// (spec#replay-drafts).

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Drafts is what is known of the speculative decoding of a run whose steps are fitted without it.
type Drafts struct {
	Deployment *deploy.Deployment  // with speculative_config
	Counted    *result.DraftCounts // by the server; nil: not recorded
}

// draftReplay makes the replayed requests of a run propose and accept drafts.
type draftReplay struct {
	dep          *deploy.Deployment // that the simulator schedules
	most         int64              // num_speculative_tokens
	acceptedFrac float64            // share of the drafted tokens that the server accepted; NaN: unknown
	source       string             // of acceptedFrac
	perDecode    map[string]float64 // drafted tokens in a pass of a decoding request, by phase
}

// newDraftReplay returns how a run's drafts are replayed. It returns nil and why not if run.yaml does
// not state the drafter, or if nothing recorded shows what was accepted.
func newDraftReplay(run *trace.Run, d *Drafts, phases []deploy.Phase) (r *draftReplay, why string) {
	const unknown = "the log does not say what each pass accepted of its drafts: steps are judged, and nothing is replayed"
	if d == nil {
		return nil, unknown
	}
	config, err := d.Deployment.Engine.Speculation()
	if err != nil || config == nil {
		return nil, unknown + "; run.yaml needs vllm.speculative_config"
	}
	r = &draftReplay{most: config.Tokens, acceptedFrac: math.NaN(), perDecode: map[string]float64{}}
	if c := d.Counted; c != nil && c.DraftedTokens > 0 {
		r.acceptedFrac = float64(c.AcceptedTokens) / float64(c.DraftedTokens)
		r.source = c.Source
	}
	if math.IsNaN(r.acceptedFrac) && !hasDraftedStream(run, r.most) {
		return nil, unknown + "; the server's log with its lines of SpecDecoding metrics, an answer of /metrics " +
			"after the benchmark, or the times of all chunks at the client would show it"
	}
	for i := range phases {
		r.perDecode[phases[i].Name] = draftedPerDecode(run, &phases[i])
	}
	r.dep = acceptsAll(d.Deployment, config.Tokens)
	return r, ""
}

// acceptsAll returns the deployment with acceptance rates, without which the simulator refuses most
// methods. The replayed requests have the drafts of each pass, and these rates are not used.
func acceptsAll(dep *deploy.Deployment, drafts int64) *deploy.Deployment {
	rates := make([]any, drafts)
	for i := range rates {
		rates[i] = 1.0
	}
	return dep.WithSpeculation("synthetic_acceptance_rates", rates)
}

// draftedPerDecode returns the drafted tokens in a pass of one decoding request, on average over the
// passes of a phase.
func draftedPerDecode(run *trace.Run, phase *deploy.Phase) float64 {
	tokens := int64(0)
	decodes := int64(0)
	for i := range run.Steps {
		s := &run.Steps[i]
		k := s.ID - run.Aggregate.First
		if s.TsStartNs < phase.StartNs || s.TsStartNs >= phase.EndNs || k < 0 || k >= int64(len(run.Aggregate.Totals)) {
			continue
		}
		tokens += run.Aggregate.Totals[k].Decode
		decodes += run.Aggregate.Totals[k].DecodeReqs
	}
	return float64(tokens-decodes) / math.Max(1, float64(decodes))
}

// streamedPasses returns the number of passes after the first that the chunks of a client's request
// show: with speculative decoding each chunk has the tokens of one pass. Chunks with more tokens than
// a pass can yield were put together on their way, and show nothing.
func streamedPasses(row *trace.ObservedRequest, most int64) (passes, tokens int64, ok bool) {
	if row == nil || !row.OutputTokens.OK || row.N.Or(1) > 1 {
		return 0, 0, false
	}
	passes = int64(len(row.ChunkGapsUs))
	tokens = row.OutputTokens.V - 1
	return passes, tokens, passes > 0 && tokens >= passes && tokens <= passes*(1+most)
}

// hasDraftedStream reports whether the chunks of most client requests show their passes.
func hasDraftedStream(run *trace.Run, most int64) bool {
	shown := 0
	for i := range run.Observed {
		if _, _, ok := streamedPasses(&run.Observed[i], most); ok {
			shown++
		}
	}
	return 2*shown > len(run.Observed)
}

// content returns the content of a phase's requests together with their drafts.
func (r *draftReplay) content(shared Content, phase *deploy.Phase) Content {
	perDecode := r.perDecode[phase.Name]
	n := 0
	return func(o *Request, s *sim.Request) {
		if shared != nil {
			shared(o, s)
		}
		n++
		// Requests start at different parts of the pattern, so that they do not all accept in the same pass.
		const goldenRatio = 0.6180339887498949
		_, start := math.Modf(float64(n) * goldenRatio)
		tokens := s.OutputTokens - 1
		passes, shown, ok := streamedPasses(o.Row, r.most)
		accepted := r.acceptedFrac * perDecode
		switch {
		case ok:
			tokens = shown
			accepted = float64(shown)/float64(passes) - 1
		case math.IsNaN(accepted):
			accepted = 0
		}
		s.Accepted, s.Proposed = spreadDrafts(tokens, accepted, perDecode, start, r.most)
	}
}

// spreadDrafts returns how many drafts each pass of a request accepts and verifies, for a number of
// output tokens after the first and for means over the passes. What is left of a mean after one pass
// is carried to the next; start is what the first pass finds, 0 to 1. A pass verifies at least one
// draft and at most a number of them.
func spreadDrafts(tokens int64, acceptedMean, proposedMean, start float64, most int64) (accepted, proposed []uint8) {
	most = min(most, math.MaxUint8)
	owedAccepted := start
	owedProposed := start
	for yielded := int64(0); yielded < tokens; {
		owedAccepted += acceptedMean
		owedProposed += proposedMean
		a := max(0, min(most, int64(owedAccepted), tokens-yielded-1))
		p := max(1, a, min(most, int64(owedProposed)))
		owedAccepted -= float64(a)
		owedProposed -= float64(p)
		accepted = append(accepted, uint8(a))
		proposed = append(proposed, uint8(p))
		yielded += 1 + a
	}
	return accepted, proposed
}

// finding returns what the replay assumes of drafts.
func (r *draftReplay) finding(run *trace.Run, requests []Request) trace.Finding {
	shown := 0
	for i := range requests {
		if _, _, ok := streamedPasses(requests[i].Row, r.most); ok {
			shown++
		}
	}
	others := "accept none"
	if !math.IsNaN(r.acceptedFrac) {
		others = fmt.Sprintf("accept %.1f %% of their drafts, as %s counts of all", 100*r.acceptedFrac, r.source)
	}
	return trace.Findingf(ReplayAssumes, "run %s: speculative decoding: acceptance is assumed even over the passes of a request: "+
		"%d of %d requests accept what their chunks show on average, the others %s", run.ID, shown, len(requests), others)
}
