package library

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// load is what a real server was given and how it answered, to be simulated: a
// measured point, or a recorded run whose requests have times but whose steps
// have none.
type load struct {
	name, group    string
	dep            *deploy.Deployment
	reqs           []sim.Request
	ttftMs, tpotMs float64 // means over requests
	tpotWeight     float64 // what the two count as, in points
	ttftWeight     float64
}

// What a recorded run counts as, in points of which each is a run of its own.
const servedCount = 5

// servedOf is the load of a run of stock spans; nil when it has none. sharedTokens
// are the first tokens that all prompts share: spans count cached tokens as
// prompt and name no contents.
func servedOf(name string, run *trace.Run, d *deploy.Deployment, sharedTokens int64) *load {
	var rows []*trace.Request
	for i := range run.Requests {
		if r := &run.Requests[i]; r.StartWallNs.OK && r.PromptTokens.OK && r.OutputTokens.Or(0) > 1 && r.StockDecodeUs.OK && r.StockTTFTUs.OK {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	slices.SortFunc(rows, func(a, b *trace.Request) int { return cmp.Compare(a.StartWallNs.V, b.StartWallNs.V) })
	l := &load{name: name, group: name, dep: d, tpotWeight: servedCount, ttftWeight: 1}
	for _, r := range rows {
		l.reqs = append(l.reqs, sim.Request{ArrivalUs: (r.StartWallNs.V - rows[0].StartWallNs.V) / 1e3, PromptTokens: r.PromptTokens.V,
			OutputTokens: r.OutputTokens.V, Group: 1, GroupTokens: min(sharedTokens, r.PromptTokens.V)})
		l.ttftMs += r.StockTTFTUs.V / 1e3 / float64(len(rows))
		l.tpotMs += r.StockDecodeUs.V / float64(r.OutputTokens.V-1) / 1e3 / float64(len(rows))
	}
	return l
}
