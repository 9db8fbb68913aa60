package validate

// This file decides which prompt tokens of a replayed request the simulated prefix cache may find,
// from the best of several sources that a run can have.

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// Content fills in which prompt tokens a recorded request found in the prefix cache or shares with others:
// CachedTokens, Group, Hashes or the like of the simulated request. Nil: no two prompts share any.
type Content func(o *Request, r *sim.Request)

// Sharing is what is known of shared prompts besides the tables of a run and its run.yaml.
type Sharing struct {
	PrefixTokens *int64 // stated by the option: first tokens that all prompts share; nil: not stated
	// Estimate is applied to prompts of which nothing else is known; nil: they are replayed uncached.
	Estimate *result.CachedShare
}

// Shared is what is known about shared prompts, request by request.
type Shared struct {
	Content  Content
	Findings []trace.Finding
	source   func(o *Request) sharingSource
	sources  []sharingSource     // by request; nil: prefix caching is off
	unsure   []bool              // by request: a count of the server that does not show how it is divided among several
	estimate *result.CachedShare // Sharing.Estimate
}

// sharingSource is where the knowledge of a prompt's shared tokens comes from, best last.
type sharingSource int

const (
	sharingUnknown  sharingSource = iota
	sharingStated                 // the option or run.yaml
	sharingOfClient               // the client's file: a prefix group, or that the prompt shares nothing
	sharingCounted                // the server: usage, the passes of its log, its counters
	sharingTraced                 // the engine's journeys
)

// sharedGroup is the content group of requests that share what is stated; the client's own groups have
// the numbers after it.
const sharedGroup = 1

// ContentOf returns what the prompts of a run's requests share (spec#shared-prompts), from the best
// source of each: the engine's own journey; the cached tokens in the client's row (from usage, or
// found from the passes); what the client's file states of it; what the option or run.yaml states
// of all. Requests of which nothing is known are counted by a finding, and sources that contradict
// each other are named in one.
func ContentOf(run *trace.Run, dep *deploy.Deployment, requests []Request, known Sharing) Shared {
	if !dep.Engine.PrefixCaching {
		return Shared{}
	}
	s := Shared{estimate: known.Estimate}
	byID := map[string]*sim.Request{} // of the engine's journeys
	if w, err := workload.FromRun(run, dep, workload.RunOptions{}); err == nil {
		for i := range w.Requests {
			byID[w.Requests[i].ID] = &w.Requests[i]
		}
		for _, n := range w.Notes {
			if n.Code == workload.CodePrefixUnknown {
				s.Findings = append(s.Findings, trace.Findingf(ReplayAssumes, "run %s: %s", run.ID, n.Message))
			}
		}
	}
	journey := func(o *Request) *sim.Request {
		if o.Row != nil && o.Row.CoreID.OK {
			return byID[o.Row.CoreID.V]
		}
		return byID[o.ID]
	}
	stated := func(o *Request) trace.Opt[int64] {
		if known.PrefixTokens != nil {
			return trace.Some(*known.PrefixTokens)
		}
		return dep.SharedPrefixAt(o.ArrivalNs)
	}
	// isUnsure: the row's cached tokens are the request's assumed share of a sum over several requests.
	isUnsure := func(o *Request) bool { return o.Row != nil && o.Row.CachedTokens.OK && !o.Row.KnowsCached() }
	isDivided := dividesCounted(requests, stated, isUnsure)
	source := func(o *Request) sharingSource {
		row := o.Row
		switch {
		case journey(o) != nil:
			return sharingTraced
		case isDivided && isUnsure(o) && stated(o).OK: // the statement makes up the counted sum
			return sharingStated
		case row != nil && row.CachedTokens.OK:
			return sharingCounted
		case row != nil && (row.PrefixGroup.OK || row.SharesNothing()):
			return sharingOfClient
		case stated(o).OK:
			return sharingStated
		}
		return sharingUnknown
	}
	s.source = source
	for i := range requests {
		o := &requests[i]
		s.sources = append(s.sources, source(o))
		s.unsure = append(s.unsure, isUnsure(o) && s.sources[i] == sharingCounted)
	}
	groups := map[string]uint64{} // numbers of the client's prefix groups, by name
	s.Content = func(o *Request, r *sim.Request) {
		row := o.Row
		from := source(o)
		switch from {
		case sharingTraced:
			j := journey(o)
			r.Group = j.Group
			r.GroupTokens = j.GroupTokens
			r.Hashes = j.Hashes
			r.HashTokens = j.HashTokens
			r.CachedTokens = j.CachedTokens
			r.LoadedTokens = j.LoadedTokens
		case sharingCounted:
			r.CachedTokens = trace.Some(min(row.CachedTokens.V, r.PromptTokens))
		case sharingStated:
			if n := stated(o).V; n > 0 {
				r.Group = sharedGroup
				r.GroupTokens = min(n, r.PromptTokens)
			}
		case sharingUnknown:
			r.CachedTokens = estimatedTokens(known.Estimate, r.PromptTokens)
		}
		// The client's prefix group, where it is the source, and as the content to share where only a
		// number of cached tokens was set.
		if row != nil && row.PrefixGroup.OK && r.Group == 0 && len(r.Hashes) == 0 {
			if groups[row.PrefixGroup.V] == 0 {
				groups[row.PrefixGroup.V] = uint64(len(groups) + sharedGroup + 1)
			}
			r.Group = groups[row.PrefixGroup.V]
			r.GroupTokens = min(row.PrefixTokens.V, r.PromptTokens)
		}
	}
	s.noteAssumptions(run, requests, stated)
	s.noteContradictions(run, dep, requests, known, journey)
	return s
}

// dividesCounted reports whether what is stated of the prompts of which the server counted only a sum
// makes up that sum, to within [trace.MostGuessed] of the prompts. The statement then shows how the
// sum is divided.
func dividesCounted(requests []Request, stated func(*Request) trace.Opt[int64], isUnsure func(*Request) bool) bool {
	var counted, divided, prompts int64
	for i := range requests {
		o := &requests[i]
		if !isUnsure(o) || !stated(o).OK {
			continue
		}
		counted += o.Row.CachedTokens.V
		divided += min(stated(o).V, o.Prompt)
		prompts += o.Prompt
	}
	return math.Abs(float64(counted-divided)) <= trace.MostGuessed*float64(prompts)
}

// IsUnstated reports a request of which nothing is known or stated.
func (s *Shared) IsUnstated(o *Request) bool { return s.source != nil && s.source(o) == sharingUnknown }

// estimatedTokens returns the cached tokens of a prompt by an estimate; unknown without one, or
// where it found no sign of any.
func estimatedTokens(e *result.CachedShare, prompt int64) trace.Opt[int64] {
	if e == nil || !(e.Share > 0) {
		return trace.Opt[int64]{}
	}
	return trace.Some(min(prompt-1, trace.Int(e.Share*float64(prompt))))
}

// howToKnowCached is what to record or to state so that cached tokens are known.
const howToKnowCached = "state what prompts share: shared_prefix_tokens under client or one of phases in run.yaml, or " +
	"--shared-prefix-tokens TOKENS (0: nothing, as random prompts do); or record it: have the client keep usage " +
	"(--enable-prompt-tokens-details), log the iterations (--enable-logging-iteration-details), or keep /metrics before and after each load"

// noteAssumptions adds findings on what is assumed about requests whose sharing was not recorded.
func (s *Shared) noteAssumptions(run *trace.Run, requests []Request, stated func(*Request) trace.Opt[int64]) {
	unknown, divided := 0, 0
	byTokens := map[int64]int{} // requests by the prefix that is stated of them
	for i := range requests {
		o := &requests[i]
		switch s.sources[i] {
		case sharingUnknown:
			unknown++
		case sharingStated:
			byTokens[stated(o).V]++
		case sharingCounted, sharingOfClient:
			if o.Row.CachedMin.V != o.Row.CachedMax.V {
				divided++
			}
		}
	}
	add := func(format string, args ...any) {
		s.Findings = append(s.Findings, trace.Findingf(ReplayAssumes, "run %s: %s", run.ID, fmt.Sprintf(format, args...)))
	}
	n := len(requests)
	if divided > 0 {
		add("the cached tokens of %d of %d prompts are shares of what passes, counters or hit rates say of several", divided, n)
	}
	for _, tokens := range slices.Sorted(maps.Keys(byTokens)) {
		if tokens == 0 {
			add("%d of %d prompts share nothing, as stated", byTokens[tokens], n)
			continue
		}
		add("%d of %d prompts share their first %d tokens, as stated", byTokens[tokens], n, tokens)
	}
	switch {
	case unknown > 0 && s.estimate == nil:
		add("prefix caching is on and nothing states what %d of %d prompts share; replayed uncached: %s", unknown, n, howToKnowCached)
	case unknown > 0:
		add("prefix caching is on and nothing states what %d of %d prompts share: %s", unknown, n, s.estimate)
	}
}

// sharedByMost is the share of prompt tokens by which two sources may differ without being named: first
// prompts of a group find nothing cached, and blocks that are not full are never shared.
const sharedByMost = trace.MostGuessed

// noteContradictions names sources that state different shares of the prompt tokens, with both figures.
func (s *Shared) noteContradictions(run *trace.Run, dep *deploy.Deployment, requests []Request, known Sharing,
	journey func(*Request) *sim.Request) {
	// The sources, better ones first, and what each of them gives as the cached tokens of a request.
	names := [...]string{"the server counted", "the client's file states", "--shared-prefix-tokens states", "run.yaml or profile.yaml states"}
	var cached [len(names)]func(o *Request) trace.Opt[float64]
	seen := map[string]bool{} // groups with a prompt before this one
	// whole returns the tokens in full blocks, of which a prompt leaves at least its last token to compute.
	whole := func(tokens, prompt int64) float64 {
		size := max(1, dep.Engine.BlockSize)
		return float64(max(0, min(tokens, prompt-1)) / size * size)
	}
	cached[0] = func(o *Request) trace.Opt[float64] {
		if j := journey(o); j != nil {
			return trace.Opt[float64]{V: float64(j.CachedTokens.V), OK: j.CachedTokens.OK}
		}
		if o.Row == nil || !o.Row.CachedTokens.OK {
			return trace.Opt[float64]{}
		}
		return trace.Some(float64(o.Row.CachedTokens.V)) // or a share of a sum: sums are compared
	}
	cached[1] = func(o *Request) trace.Opt[float64] {
		switch row := o.Row; {
		case row == nil:
			return trace.Opt[float64]{}
		case row.PrefixGroup.OK && row.PrefixTokens.V > 0:
			if !seen[row.PrefixGroup.V] { // the first prompt of a group finds nothing
				seen[row.PrefixGroup.V] = true
				return trace.Some(0.0)
			}
			return trace.Some(whole(row.PrefixTokens.V, o.Prompt))
		default:
			return trace.Opt[float64]{OK: row.SharesNothing()}
		}
	}
	cached[2] = func(o *Request) trace.Opt[float64] {
		if known.PrefixTokens == nil {
			return trace.Opt[float64]{}
		}
		return trace.Some(whole(*known.PrefixTokens, o.Prompt))
	}
	cached[3] = func(o *Request) trace.Opt[float64] {
		n := dep.SharedPrefixAt(o.ArrivalNs)
		return trace.Opt[float64]{V: whole(n.V, o.Prompt), OK: n.OK}
	}
	// Sums of tokens over the requests of which both sources of a pair (better, worse) know something.
	var both [len(names)][len(names)]struct{ better, worse, prompts float64 }
	for i := range requests {
		o := &requests[i]
		var values [len(names)]trace.Opt[float64]
		for k, of := range cached {
			values[k] = of(o)
		}
		for k := range values {
			for j := k + 1; j < len(values); j++ {
				if values[k].OK && values[j].OK {
					sum := &both[k][j]
					sum.better += values[k].V
					sum.worse += values[j].V
					sum.prompts += float64(o.Prompt)
				}
			}
		}
	}
	for k := range names {
		for j := k + 1; j < len(names); j++ {
			sum := both[k][j]
			if !(math.Abs(sum.better-sum.worse) > sharedByMost*sum.prompts) {
				continue
			}
			s.Findings = append(s.Findings, trace.Findingf(SharingContradicted,
				"run %s: %s %.3g %% of the prompt tokens as cached, %s %.3g %%: the former is used", run.ID,
				names[k], 100*sum.better/sum.prompts, names[j], 100*sum.worse/sum.prompts))
		}
	}
}

// whyUndecided returns the reason why the replay of a phase is not validated because cached tokens
// are not known; "" if enough are known, or estimated to be few.
func (s *Shared) whyUndecided(requests []Request, p *deploy.Phase) string {
	if s.sources == nil {
		return ""
	}
	unknown, all := 0, 0
	for i := range requests {
		o := &requests[i]
		if o.ArrivalNs < p.StartNs || o.ArrivalNs >= p.EndNs {
			continue
		}
		all++
		if s.unsure[i] || s.sources[i] == sharingUnknown && !s.estimate.IsSmall() {
			unknown++
		}
	}
	if float64(unknown) <= trace.MostGuessed*float64(all) {
		return ""
	}
	why := fmt.Sprintf("it was not recorded what %d of %d prompts found in the prefix cache", unknown, all)
	if s.estimate != nil {
		why += fmt.Sprintf(" (%s)", s.estimate)
	}
	return why + ": " + howToKnowCached
}

// whyLoadsUnknown returns the reason why a phase is not validated, of whose requests these are the simulated ones, because it
// was not recorded which of their cached tokens came from CPU memory, which takes a copy, and which were on the GPU; "" if it
// is known, or if few had cached tokens.
func whyLoadsUnknown(run *trace.Run, dep *deploy.Deployment, requests []sim.Request) string {
	if !dep.Engine.CPUOffloading || workload.RecordsLoads(run) {
		return ""
	}
	cached := 0
	for i := range requests {
		if requests[i].CachedTokens.V > 0 {
			cached++
		}
	}
	if float64(cached) <= trace.MostGuessed*float64(len(requests)) {
		return ""
	}
	return fmt.Sprintf("cpu_offloading: the recording does not say which blocks came from CPU memory, and %d of %d prompts had cached tokens: "+
		"record KV events (--kv-events-config)", cached, len(requests))
}

// whyUncounted returns the reason why a phase is not validated because the load in the engine's
// passes is not that of the clients' results; "" if it is.
func whyUncounted(a *trace.Aggregate, requests []Request, p *deploy.Phase) string {
	if a == nil {
		return ""
	}
	uncounted, all := 0, 0
	for i := range requests {
		o := &requests[i]
		if o.Row == nil || o.ArrivalNs < p.StartNs || o.ArrivalNs >= p.EndNs {
			continue
		}
		all++
		if o.Row.Uncounted() && o.Row.LastChunkNs.OK {
			uncounted++
		}
	}
	switch {
	case float64(uncounted) > trace.MostGuessed*float64(all):
		return fmt.Sprintf("%d of %d requests have several answers or were left early, and it is not known when the engine ran them: let clients "+
			"ask for one answer each, to its end", uncounted, all)
	case a.Others > trace.MostGuessed:
		return fmt.Sprintf("no client's result shows %.0f %% of the decodes that ran: keep the results of every client", 100*a.Others)
	}
	return ""
}
