package admission

import (
	"math"

	"github.com/blis-train/blis-train/predict"
	"github.com/blis-train/blis-train/sim/gateway"
)

// Estimator says how long from now the first token of a request takes on an
// instance, us, and whether others are served before it.
type Estimator interface {
	TTFTUs(r *gateway.Request, v *gateway.View, instance int) (us float64, queued bool, err error)
}

// Rollout plays the instance forward on what the gateway knows.
type Rollout struct {
	Engines     []*predict.Engine // by instance; instances may share one
	ByPriority  bool              // engines serve better classes first
	IgnoreCache bool              // a control: nothing counts as cached
}

// TTFTUs is predict's rollout over the ledger and the snapshot.
func (o *Rollout) TTFTUs(r *gateway.Request, v *gateway.View, i int) (float64, bool, error) {
	e := o.Engines[i]
	own := predict.Request{PromptTokens: r.PromptTokens, CachedTokens: v.CachedTokens(r, i)}
	if o.IgnoreCache {
		own.CachedTokens = 0
	}
	a := &v.Ledger.Of[i]
	mean := v.Ledger.MeanOutputs()
	s := predict.State{Decodes: a.Decodes, DecodeTokens: a.DecodeToks + int64(float64(a.Decodes)*mean/2), OutputTokens: mean,
		FreeBlocks: v.Snapshots[i].FreeBlocks, ComingPerS: v.Ledger.InboundPerS(i, v.NowUs)}
	overhead, err := e.OverheadUs(&s, &own)
	if err != nil {
		return 0, false, err
	}
	if err := o.inStep(e, v, i, int64(overhead), &s); err != nil {
		return 0, false, err
	}
	o.ahead(r, v, i, &s)
	us, err := e.TTFTUs(&s, &own)
	if err != nil || s.AheadTokens == 0 || !o.ByPriority {
		return us, s.AheadTokens > 0, err
	}
	share, err := o.betterShare(e, r, v, &s)
	if err != nil || share == 0 {
		return us, true, err
	}
	s.AheadTokens, s.AheadRequests = 0, 0
	alone, err := e.TTFTUs(&s, &own) // the wait for work ahead is what better classes stretch
	return alone + max(0, us-alone)/(1-share), true, err
}

// inStep finds the step under way: when it started, and whose prompts are in it.
func (o *Rollout) inStep(e *predict.Engine, v *gateway.View, i int, overhead int64, s *predict.State) error {
	a := &v.Ledger.Of[i]
	us, err := e.DecodeStepUs(s.Decodes, s.DecodeTokens)
	if err != nil {
		return err
	}
	start := v.NowUs - int64(us/2)
	s.SinceStepUs = math.NaN()
	if snap := &v.Snapshots[i]; snap.StepStartUs >= 0 && snap.AtUs == v.NowUs {
		start = snap.StepStartUs
		s.SinceStepUs = float64(v.NowUs - start)
	} else if full, fullUs, err := e.FullStep(s.Decodes, s.DecodeTokens); err != nil {
		return err
	} else if longest := us + (fullUs-us)*math.Min(1, float64(a.All.Tokens)/float64(full)); a.FirstUs >= 0 &&
		float64(v.NowUs-a.FirstUs) < longest {
		start = a.FirstUs // a first token is the end of a step, and so the start of the next
		s.SinceStepUs = float64(v.NowUs - start)
	}
	room, _, err := e.FullStep(s.Decodes, s.DecodeTokens)
	if err != nil {
		return err
	}
	take := func(q *gateway.Queue) {
		v.Ledger.Waiting(q, func(sentUs, tokens int64) bool {
			if sentUs+overhead > start || room == 0 {
				return false
			}
			n := min(tokens, room)
			s.StepTokens, room = s.StepTokens+n, room-n
			if n == tokens {
				s.StepRequests++
			}
			return true
		})
	}
	if !o.ByPriority {
		take(&a.All)
		return nil
	}
	for _, c := range v.Ledger.ByPriority() {
		take(&a.Pending[c])
	}
	return nil
}

// ahead is the work that is served before the request, less what the step under
// way computes of it.
func (o *Rollout) ahead(r *gateway.Request, v *gateway.View, i int, s *predict.State) {
	a := &v.Ledger.Of[i]
	tokens, requests := a.All.Tokens, a.All.Requests
	if o.ByPriority {
		tokens, requests = 0, 0
		for c := range a.Pending {
			if v.Ledger.Classes[c].Priority >= r.Priority {
				tokens, requests = tokens+a.Pending[c].Tokens, requests+a.Pending[c].Requests
			}
		}
	}
	s.AheadTokens = max(0, tokens-s.StepTokens)
	s.AheadRequests = max(0, requests-s.StepRequests)
	if s.AheadTokens > 0 {
		s.AheadRequests = max(1, s.AheadRequests)
	} else {
		s.AheadRequests = 0
	}
}

// betterShare is the share of an engine's prefill rate that better classes take.
func (o *Rollout) betterShare(e *predict.Engine, r *gateway.Request, v *gateway.View, s *predict.State) (float64, error) {
	perS := 0.0
	for c := range v.Ledger.Classes {
		if k := &v.Ledger.Classes[c]; k.Priority > r.Priority {
			perS += k.TokensPerS(v.NowUs)
		}
	}
	if perS == 0 {
		return 0, nil
	}
	tokens, us, err := e.FullStep(s.Decodes, s.DecodeTokens)
	if err != nil {
		return 0, err
	}
	return math.Min(0.9, perS/float64(len(v.Snapshots))/(float64(tokens)/us*1e6)), nil
}
