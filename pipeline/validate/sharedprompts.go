package validate

import (
	"fmt"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// Content fills in which prompt tokens a recorded request found in the prefix cache or shares with others:
// CachedTokens, Group, Hashes or the like of the simulated request. Nil: no two prompts share any.
type Content func(o *Request, r *sim.Request)

// Shared is what is known about shared prompts, request by request.
type Shared struct {
	Content  Content
	Findings []trace.Finding
	// isUnknown reports requests for which nothing was recorded and nothing is assumed; nil: prefix caching
	// is off.
	isUnknown func(o *Request) bool
}

// sharedGroup is the content group of requests that share what the options assume; the client's own groups
// have the numbers after it.
const sharedGroup = 1

// ContentOf finds what the requests of a run share, from the best source of each: the engine's own
// journey, the cached tokens in the client's row (from usage, or found from the passes), the prefix group
// in it. All others are assumed to share their first sharedPrefix tokens. 0: nothing is assumed, and a
// finding counts them.
func ContentOf(run *trace.Run, dep *deploy.Deployment, requests []Request, sharedPrefix int64) Shared {
	if !dep.Engine.PrefixCaching {
		return Shared{}
	}
	var s Shared
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
	s.isUnknown = func(o *Request) bool {
		inRow := o.Row != nil && (o.Row.CachedTokens.OK || o.Row.PrefixGroup.OK)
		return sharedPrefix == 0 && journey(o) == nil && !inRow
	}
	groups := map[string]uint64{}
	s.Content = func(o *Request, r *sim.Request) {
		row := o.Row
		from := journey(o)
		switch {
		case from != nil:
			r.Group = from.Group
			r.GroupTokens = from.GroupTokens
			r.Hashes = from.Hashes
			r.HashTokens = from.HashTokens
			r.CachedTokens = from.CachedTokens
		case row != nil && row.CachedTokens.OK:
			r.CachedTokens = trace.Some(min(row.CachedTokens.V, r.PromptTokens))
		}
		switch {
		case r.Group != 0 || len(r.Hashes) > 0:
		case row != nil && row.PrefixGroup.OK:
			if groups[row.PrefixGroup.V] == 0 {
				groups[row.PrefixGroup.V] = uint64(len(groups) + sharedGroup + 1)
			}
			r.Group = groups[row.PrefixGroup.V]
			r.GroupTokens = min(row.PrefixTokens.V, r.PromptTokens)
		case from == nil && !r.CachedTokens.OK && sharedPrefix > 0:
			r.Group = sharedGroup
			r.GroupTokens = min(sharedPrefix, r.PromptTokens)
		}
	}
	s.noteAssumptions(run, requests, sharedPrefix, journey)
	return s
}

// howToKnowCached is what to record so that cached tokens are known.
const howToKnowCached = "keep /metrics before and after each load, log the iterations (--enable-logging-iteration-details), have the " +
	"client keep usage (--enable-prompt-tokens-details), or set the key shared-prefix-tokens"

// noteAssumptions adds findings on what is assumed about requests whose sharing was not recorded.
func (s *Shared) noteAssumptions(run *trace.Run, requests []Request, sharedPrefix int64, journey func(*Request) *sim.Request) {
	unknown, estimated, assumed := 0, 0, 0
	for i := range requests {
		o := &requests[i]
		switch {
		case s.isUnknown(o):
			unknown++
		case journey(o) != nil:
		case o.Row != nil && (o.Row.CachedTokens.OK || o.Row.PrefixGroup.OK):
			if o.Row.CachedMin.V != o.Row.CachedMax.V {
				estimated++
			}
		default:
			assumed++
		}
	}
	add := func(format string, args ...any) {
		s.Findings = append(s.Findings, trace.Findingf(ReplayAssumes, "run %s: %s", run.ID, fmt.Sprintf(format, args...)))
	}
	n := len(requests)
	if estimated > 0 {
		add("the cached tokens of %d of %d prompts are shares of what passes, counters or hit rates say of several", estimated, n)
	}
	if assumed > 0 {
		add("%d of %d requests are taken to share their first %d prompt tokens", assumed, n, sharedPrefix)
	}
	if unknown > 0 {
		add("prefix caching is on and nothing says what %d of %d requests share; replayed uncached: %s", unknown, n, howToKnowCached)
	}
}

// whyUndecided is why the replay of a phase is not judged for want of cached tokens; empty: enough are
// known.
func (s *Shared) whyUndecided(requests []Request, p *deploy.Phase) string {
	if s.isUnknown == nil {
		return ""
	}
	unknown, all := 0, 0
	for i := range requests {
		o := &requests[i]
		if o.ArrivalNs < p.StartNs || o.ArrivalNs >= p.EndNs {
			continue
		}
		all++
		guessed := o.Row != nil && o.Row.CachedTokens.OK && !o.Row.KnowsCached()
		if guessed || s.isUnknown(o) {
			unknown++
		}
	}
	if float64(unknown) <= trace.MostGuessed*float64(all) {
		return ""
	}
	return fmt.Sprintf("nobody recorded what %d of %d prompts found in the prefix cache: %s", unknown, all, howToKnowCached)
}

// whyUncounted is why a phase is not judged because the load in the engine's passes is not that of the
// clients' results; empty: it is.
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
		return fmt.Sprintf("%d of %d requests have several answers or were left early, and nothing says when the engine ran them: let clients "+
			"ask for one answer each, to its end", uncounted, all)
	case a.Others > trace.MostGuessed:
		return fmt.Sprintf("no client's result shows %.0f %% of the decodes that ran: keep the results of every client", 100*a.Others)
	}
	return ""
}
