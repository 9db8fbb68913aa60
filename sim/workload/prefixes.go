package workload

// This file finds out what the requests of a recorded run shared in the prefix cache.

import (
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// prefixes is what a recording shows about shared prompt tokens, by request.
type prefixes struct {
	on       bool                             // prefix caching is on
	groups   map[string]trace.ObservedRequest // by core id: the client's records that name a prefix group
	ids      map[string]uint64                // by group name
	inferred map[string]int64                 // by core id: cached tokens, from step totals
	loaded   map[string]int64                 // by core id: tokens loaded from CPU memory, from KV events
	notes    []trace.Finding
}

// newPrefixes collects what run shows about shared prefixes. It notes a finding if prefix caching
// was on and nothing is known.
func newPrefixes(run *trace.Run, d *deploy.Deployment) *prefixes {
	p := &prefixes{on: d.Engine.PrefixCaching, groups: map[string]trace.ObservedRequest{}, ids: map[string]uint64{}}
	if !p.on {
		return p
	}
	for _, o := range run.Observed {
		if o.CoreID.OK && o.PrefixGroup.OK && o.PrefixTokens.OK {
			p.groups[o.CoreID.V] = o
		}
	}
	p.inferred = inferCached(run, d.Engine.IsAsync())
	p.loaded = loadedTokens(run, d)
	known := len(p.groups) + len(p.inferred)
	for i := range run.Requests {
		if run.Requests[i].CachedTokens.OK {
			known++
		}
	}
	if known == 0 {
		p.notes = append(p.notes, trace.Findingf(CodePrefixUnknown,
			"prefix caching is on and no snapshot, KV event or client file states what was shared"))
	}
	return p
}

// apply sets in q what is known of the prefix of recorded request r: its cached tokens and which of them were loaded from
// CPU memory, or else its prefix group.
func (p *prefixes) apply(q *sim.Request, r *trace.Request) {
	if !p.on {
		return
	}
	cached := r.CachedTokens
	if !cached.OK {
		cached.V, cached.OK = p.inferred[r.CoreID.V]
	}
	loaded, isLoaded := p.loaded[r.CoreID.V]
	if isLoaded && !cached.OK { // at least these
		cached = trace.Some(loaded)
	}
	if cached.OK {
		q.CachedTokens = trace.Some(min(cached.V, q.PromptTokens))
		q.LoadedTokens = min(loaded, q.CachedTokens.V)
		return
	}
	if o, ok := p.groups[r.CoreID.V]; ok {
		q.Group = p.groupID(o.PrefixGroup.V)
		q.GroupTokens = o.PrefixTokens.V
	}
}

// RecordsLoads reports whether the KV events of a run say what was loaded from CPU memory: they have transfers.
func RecordsLoads(run *trace.Run) bool {
	return slices.ContainsFunc(run.KVEvents, func(ev trace.KVEvent) bool { return ev.DstMedium.OK })
}

// loadedTokens returns the tokens of each request, by core id, that were loaded from CPU memory before its first step. A load
// is counted in offload blocks (spec#replay-loads, spec#wire-kv-steps).
func loadedTokens(run *trace.Run, d *deploy.Deployment) map[string]int64 {
	firstStep := map[string]int64{}
	for i := range run.Requests {
		if r := &run.Requests[i]; r.CoreID.OK && r.ScheduledStep.OK {
			firstStep[r.CoreID.V] = r.ScheduledStep.V
		}
	}
	chunkTokens := d.Engine.Offload().Blocks * d.Engine.BlockSize
	out := map[string]int64{}
	for i := range run.KVEvents {
		ev := &run.KVEvents[i]
		first, isKnown := firstStep[ev.RequestID.V]
		if ev.Kind == "TransferInitiated" && ev.SrcMedium.V == mediumCPU && isKnown && ev.Step.V <= first {
			out[ev.RequestID.V] = ev.BlockCount.V * chunkTokens
		}
	}
	return out
}

// mediumCPU is the medium of KV events for CPU memory.
const mediumCPU = "CPU"

// groupID returns the number of a group name. Names are numbered from 1 in the order in which they
// are met.
func (p *prefixes) groupID(name string) uint64 {
	id, ok := p.ids[name]
	if !ok {
		id = uint64(len(p.ids) + 1)
		p.ids[name] = id
	}
	return id
}

// inferCached returns the cached tokens of requests, by core id, that have no snapshot of their
// first step. They follow from the totals of a step that computed the whole prompt of one request
// while no other request prefilled: prompt tokens minus prefill tokens of the step. With
// asynchronous scheduling the totals count each first decode as one more prefill token.
func inferCached(run *trace.Run, async bool) map[string]int64 {
	prefilling := map[int64]int{}     // requests whose prompt is computed in the step
	firstDecodes := map[int64]int64{} // first decodes labelled prefill in the step
	for i := range run.Requests {
		r := &run.Requests[i]
		if !r.ScheduledStep.OK {
			continue
		}
		for s := r.ScheduledStep.V; s <= r.FirstTokenStep.Or(r.ScheduledStep.V); s++ {
			prefilling[s]++
		}
		if async && r.FirstTokenStep.OK && r.OutputTokens.Or(0) > 1 {
			firstDecodes[r.FirstTokenStep.V+1]++
		}
	}
	total := map[int64]*trace.Step{} // by number: the steps in which requests were scheduled
	for i := range run.Requests {
		total[run.Requests[i].ScheduledStep.V] = nil
	}
	for i := range run.Steps {
		if _, asked := total[run.Steps[i].ID]; asked {
			total[run.Steps[i].ID] = &run.Steps[i]
		}
	}
	out := map[string]int64{}
	for i := range run.Requests {
		r := &run.Requests[i]
		step := total[r.ScheduledStep.V]
		// Only a request whose prompt was computed in one step, without another prompt in it.
		if r.CachedTokens.OK || !r.CoreID.OK || !r.PromptTokens.OK || step == nil ||
			r.FirstTokenStep != r.ScheduledStep || prefilling[step.ID] != 1 {
			continue
		}
		computed := int64(step.PrefillTokens) - firstDecodes[step.ID]
		if cached := r.PromptTokens.V - computed; computed >= 1 && cached >= 0 && r.Preemptions.Or(0) == 0 {
			out[r.CoreID.V] = cached
		}
	}
	return out
}
