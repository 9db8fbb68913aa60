package requestfit

// This file makes loads of a recorded run: one for each phase that was not saturated, with the
// requests that a replay sends and the times that it is compared with.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// LoadsOf returns a load for every phase of a run: its requests, when they were sent, and the times
// measured of each. They come from the clients' records, or from spans if there are none. Saturated
// phases are excluded unless saturated is set. shared is the number of first prompt tokens that
// requests share if the recording does not state it; nil: not stated.
func LoadsOf(run *trace.Run, dep *deploy.Deployment, saturated bool, shared *int64) ([]*Load, []trace.Finding) {
	// validate.Requests prefers journeys (spans with the events inside the engine) to clients' records. Where
	// there are clients' records the journeys are taken away; stock spans stay, because they give the
	// requests' order at the server.
	clients := *run
	if len(run.Observed) > 0 {
		isJourney := func(r trace.Request) bool { return r.Source != trace.SourceStock }
		clients.Requests = slices.DeleteFunc(slices.Clone(run.Requests), isJourney)
	}
	obs, findings := validate.Requests(&clients)
	if len(obs) == 0 { // no usable client's record
		obs, findings = validate.Requests(run)
	}
	content := validate.ContentOf(run, dep, obs, validate.Sharing{PrefixTokens: shared})
	findings = append(findings, content.Findings...)
	verdicts := verdictsOf(run, dep)
	tier := TierSpans
	if len(run.Observed) > 0 {
		tier = TierRequests
	}
	var loads []*Load
	for _, p := range rows.PhasesOf(run, dep) {
		if v := verdicts.Phase(p.Name); v.Saturated && !saturated {
			findings = append(findings, trace.Finding{
				Code:    rows.Saturated,
				Message: report.PhaseSaturated(run.ID, p.Name, rows.HitText(v.Checks)),
			})
			continue
		}
		reqs, seen, more := validate.Workload(obs, &p, content.Content)
		findings = append(findings, more...)
		if len(reqs) == 0 {
			continue
		}
		l := &Load{
			Name:       run.ID + " " + p.Name,
			Run:        run.ID,
			Phase:      p.Name,
			OriginNs:   seen[0].ArrivalNs,
			Tier:       tier,
			Deployment: dep,
			Requests:   reqs,
		}
		for i := range seen {
			l.Unstated = append(l.Unstated, content.IsUnstated(&seen[i]))
			l.Seen = append(l.Seen, measuredTimes(&seen[i]))
			l.Stamps = append(l.Stamps, stampsOf(&seen[i]))
			l.SentUs = append(l.SentUs, (seen[i].ArrivalNs-seen[0].ArrivalNs)/1000)
		}
		loads = append(loads, l)
	}
	return slices.Clip(loads), findings
}

// verdictsOf returns which phases of the run are saturated: by its spans, or by its clients' records
// if it has no spans.
func verdictsOf(run *trace.Run, dep *deploy.Deployment) *rows.LoadVerdicts {
	if len(run.Requests) == 0 {
		return validate.OfClients(run, dep)
	}
	return rows.VerdictsOf(run, dep)
}

// measuredTimes returns the times by which a request is compared; NaN for those that are unknown, and
// all of a request that did not succeed.
func measuredTimes(o *validate.Request) sim.Measured {
	none := math.NaN()
	m := sim.Measured{TTFTUs: none, SpanUs: none, E2EUs: none}
	if o.Excluded != "" {
		return m
	}
	if o.TTFTMs.OK {
		m.TTFTUs = 1e3 * o.TTFTMs.V
	}
	if o.ITLMs.OK && o.Output > 1 {
		m.SpanUs = 1e3 * o.ITLMs.V * float64(o.Output-1)
	}
	if o.E2EMs.OK {
		m.E2EUs = 1e3 * o.E2EMs.V
	}
	return m
}

// stampsOf returns the times of a request's tokens, for the reconstruction of who decoded
// when. They include requests that the client aborted: until then such a request took
// part in every step.
func stampsOf(o *validate.Request) sim.Measured {
	whole := *o
	whole.Excluded = ""
	m := measuredTimes(&whole)
	if o.Excluded != "" && o.EndNs.OK && o.TTFTMs.OK {
		m.SpanUs = math.Max(0, float64(o.EndNs.V-o.ArrivalNs)/1e3-m.TTFTUs)
	}
	return m
}
