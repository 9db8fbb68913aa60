package workload

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// prefixes knows which requests of a run share tokens.
type prefixes struct {
	on     bool
	groups map[string]trace.ObservedRequest // by core id
	ids    map[string]uint64                // by group name
	notes  []trace.Finding
}

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
	known := len(p.groups)
	for i := range run.Requests {
		if run.Requests[i].CachedTokens.OK {
			known++
		}
	}
	if known == 0 {
		p.notes = append(p.notes, trace.Findingf(CodePrefixUnknown, "prefix caching is on and no snapshot, KV event or client file says what was shared"))
	}
	return p
}

// apply sets what is known of the request's prefix.
func (p *prefixes) apply(q *sim.Request, r *trace.Request) {
	if !p.on {
		return
	}
	if r.CachedTokens.OK {
		q.CachedTokens = trace.Some(min(r.CachedTokens.V, q.PromptTokens))
		return
	}
	if o, ok := p.groups[r.CoreID.V]; ok {
		q.Group, q.GroupTokens = p.group(o.PrefixGroup.V), o.PrefixTokens.V
	}
}

// group numbers group names in the order they are met, from 1.
func (p *prefixes) group(name string) uint64 {
	id, ok := p.ids[name]
	if !ok {
		id = uint64(len(p.ids) + 1)
		p.ids[name] = id
	}
	return id
}
