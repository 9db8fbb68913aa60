package cluster

import (
	"maps"
	"math"

	"github.com/blis-train/blis-train/pipeline/simulate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
)

// document is simulation.json of a cluster.
type document struct {
	simulate.Document
	Cluster *Part `json:"cluster"`
}

// Part is what a cluster adds to simulation.json.
type Part struct {
	Instances    int                   `json:"instances"`
	Admission    string                `json:"admission_policy"`
	Routing      string                `json:"routing_policy"`
	Scorers      string                `json:"routing_scorers"` // "" unless the policy is weighted
	Scheduler    string                `json:"scheduler"`       // "": the deployment's
	RefreshUs    int64                 `json:"snapshot_refresh_us"`
	Arrived      int                   `json:"arrived"`
	Admitted     int                   `json:"admitted"`
	Rejected     int                   `json:"rejected_requests"`
	Arrivals     int                   `json:"arrivals"` // those that came again included
	Goodput      *float64              `json:"goodput_share"`
	P99Critical  *float64              `json:"ttft_p99_critical_ms"`  // rejected ones as for ever: null when they reach it
	P99Admitted  *float64              `json:"ttft_p99_admitted_ms"`  // of admitted requests
	P99Everybody *float64              `json:"ttft_p99_everybody_ms"` // rejected ones as for ever
	CachedShare  *float64              `json:"cached_token_share"`    // of admitted requests' prompt tokens
	Potential    *float64              `json:"potential_token_share"` // best expectation at arrival, over all arrivals
	PhantomShare *float64              `json:"phantom_hit_share"`     // expected and not found / expected
	Jain         *float64              `json:"jain_fairness"`         // of goodput / arrivals over prefix groups
	OutputPerS   *float64              `json:"output_tokens_per_s"`   // from the first to the last arrival
	Prediction   *AuditPart            `json:"prediction"`            // of admitted requests; null without predictions
	Shadow       *AuditPart            `json:"shadow"`                // of the sample of rejected ones
	Classes      []classPart           `json:"classes"`
	ByInstance   []simulate.EnginePart `json:"by_instance"`
	Transfers    *Transfers            `json:"kv_transfers,omitempty"` // with prefill and decode instances
}

// AuditPart compares predicted with observed TTFT.
type AuditPart struct {
	Requests   int      `json:"requests"`
	MedianAPE  *float64 `json:"median_ape"`
	Bias       *float64 `json:"bias"` // sum predicted / sum observed - 1
	Coverage90 *float64 `json:"coverage_p90"`
	FalseShare *float64 `json:"false_reject_share"` // of rejected ones, who would have met their target
}

// classPart is one class at the gateway.
type classPart struct {
	Name     string   `json:"name"`
	Arrived  int      `json:"arrived"`
	Admitted int      `json:"admitted"`
	Good     int      `json:"good"`
	Goodput  *float64 `json:"goodput_share"`
	Miss     *float64 `json:"ttft_miss_share"`         // of admitted requests
	RuleMiss *float64 `json:"ttft_miss_share_by_rule"` // of those that no floor let in
}

func (s *simulation) part(run *Result, reqs []sim.Request) *Part {
	targets := TargetsOf(reqs) // the workload's own
	maps.Copy(targets, s.spec.ByClass())
	g := reduce(run.Records, targets, window{ToUs: math.MaxInt64})
	p := &Part{Transfers: run.Transfers, Instances: len(run.Engines), Admission: s.spec.Admission.Policy, Routing: s.spec.Routing.Policy,
		Scheduler: s.spec.Scheduler, RefreshUs: s.spec.RefreshUs, Arrived: g.All.Arrived, Admitted: g.All.Admitted, Rejected: g.Shed,
		Arrivals: g.Tries, Goodput: result.OrNull(g.All.Goodput()), P99Critical: result.OrNull(g.Critical),
		P99Admitted: result.OrNull(g.Admitted), P99Everybody: result.OrNull(g.Everybody), CachedShare: result.OrNull(g.CachedShare),
		Potential: result.OrNull(g.PotentialShare), PhantomShare: result.OrNull(g.PhantomShare), Jain: result.OrNull(g.Jain),
		OutputPerS: result.OrNull(g.OutputPerS), Prediction: auditPart(g.Live), Shadow: auditPart(g.Shadow),
		Classes: []classPart{}, ByInstance: make([]simulate.EnginePart, len(run.Engines))}
	if s.spec.Routing.Policy == Weighted {
		p.Scorers = s.spec.Routing.ScorersText()
	}
	for i := range g.Classes {
		c := &g.Classes[i]
		p.Classes = append(p.Classes, classPart{c.Name, c.Arrived, c.Admitted, c.Good, result.OrNull(c.Goodput()),
			result.OrNull(c.MissShare()), result.OrNull(c.RuleMissShare())})
	}
	for i, e := range run.Engines {
		p.ByInstance[i] = simulate.PartOf(e)
		p.ByInstance[i].Role = s.spec.Instances.roles()[i]
	}
	for i := range run.Records {
		if r := &run.Records[i]; r.Admitted() {
			p.ByInstance[r.Instance].Requests++
			if r.Prefill.OK && int(r.Prefill.V) != r.Instance {
				p.ByInstance[r.Prefill.V].Requests++
			}
		}
	}
	return p
}

func auditPart(a audit) *AuditPart {
	if a.N == 0 {
		return nil
	}
	return &AuditPart{a.N, result.OrNull(a.MedianAPE), result.OrNull(a.Bias), result.OrNull(a.Coverage90), result.OrNull(a.FalseShare)}
}
