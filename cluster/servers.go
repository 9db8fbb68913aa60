package cluster

// This file simulates several servers behind a router without a gate, for the sizing of deployments.

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Routings of [Servers]: round-robin; the server with the fewest unfinished requests; the server
// with the best score, in which the share of the prompt that it probably has cached counts twice as
// much as having few requests.
const (
	RouteRoundRobin    = "round-robin"
	RouteLeastRequests = "least-requests"
	RoutePrefix        = "prefix-affinity"
)

// Routes are all routings.
var Routes = []string{RouteRoundRobin, RouteLeastRequests, RoutePrefix}

// MostServers is how many servers one gateway can have.
const MostServers = maxInstances

// Servers simulates n equal servers on one clock behind a router that admits every request, sees
// the state of the servers without delay and takes no time itself. It returns the results of the
// requests in workload order and those of the engines. n is at most [MostServers], except with
// round-robin and arrivals that are independent of answers: each server's share of the requests is
// then known beforehand, and servers are simulated one after another. Code of errors:
// bad_cluster_spec.
func Servers(engine sim.Config, n int, routing string, reqs []sim.Request) (requests []sim.RequestResult, engines []*sim.Result, err error) {
	if n == 1 {
		res, err := sim.Run(engine, reqs, nil)
		if err != nil {
			return nil, nil, err
		}
		return res.Requests, []*sim.Result{res}, nil
	}
	if routing == RouteRoundRobin && !followsAnswers(reqs) {
		return separateServers(engine, n, reqs)
	}
	var policy, scorers string
	switch routing {
	case RouteRoundRobin:
		policy = RoundRobin
	case RouteLeastRequests:
		policy = LeastLoaded
	case RoutePrefix:
		policy = Weighted
		scorers = "prefix-affinity:2,queue-depth-effective:1"
	default:
		return nil, nil, trace.Errorf(codeBadSpec, "router: got %q, want %s, %s or %s", routing, RouteRoundRobin, RouteLeastRequests, RoutePrefix)
	}
	return gateway(engine, reqs, func(s *Spec) {
		s.Instances.Groups = []group{{Count: n}}
		s.Routing.Policy = policy
		s.Routing.Scorers = cmp.Or(scorers, s.Routing.Scorers)
	})
}

// Pools simulates prefill and decode servers of one kind behind a router of the default policy, as vLLM's NIXL connector
// and a proxy arrange them (spec#cluster-disaggregated), with the default transfer times of a cluster file.
// Results are in workload order. At most [MostServers] in all. Code of errors: bad_cluster_spec.
func Pools(engine sim.Config, prefill, decode int, reqs []sim.Request) (requests []sim.RequestResult, engines []*sim.Result, err error) {
	return gateway(engine, reqs, func(s *Spec) {
		s.Instances.Groups = []group{{Count: prefill, Role: rolePrefill}, {Count: decode, Role: roleDecode}}
	})
}

// gateway simulates servers on one clock behind a router that admits every request, sees their state without
// delay and takes no time itself. set makes the instances and the routing of the spec, which has the defaults
// of cluster.yaml.
func gateway(engine sim.Config, reqs []sim.Request, set func(*Spec)) (requests []sim.RequestResult, engines []*sim.Result, err error) {
	spec := defaultSpec()
	spec.RefreshUs = 0
	set(&spec)
	if err := spec.Check(); err != nil {
		return nil, nil, err
	}
	p := parts{Seed: engine.Seed}
	for range spec.Instances.Count() {
		p.Engines = append(p.Engines, engine)
	}
	out, err := Run(spec.Build(p), reqs)
	if err != nil {
		return nil, nil, err
	}
	requests = make([]sim.RequestResult, len(out.Records))
	for i := range out.Records {
		requests[i] = out.Records[i].RequestResult
	}
	return requests, out.Engines, nil
}

// followsAnswers reports whether some request arrives only after another one's answer, or together with
// another as a further sample of it (With): servers that get their requests beforehand cannot have these.
func followsAnswers(reqs []sim.Request) bool {
	return slices.ContainsFunc(reqs, func(r sim.Request) bool { return r.After > 0 || r.Loop > 0 || r.With > 0 })
}

// separateServers simulates n servers that share nothing but the order of arrivals: the i-th
// request to arrive goes to server i mod n. A server that gets no request has no result.
func separateServers(engine sim.Config, n int, reqs []sim.Request) ([]sim.RequestResult, []*sim.Result, error) {
	order := make([]int, len(reqs))
	for i := range order {
		order[i] = i
	}
	stat.SortStable(order, func(a, b int) int { return cmp.Compare(reqs[a].ArrivalUs, reqs[b].ArrivalUs) })
	all := make([]sim.RequestResult, len(reqs))
	var engines []*sim.Result
	for k := range n {
		var members []int
		var own []sim.Request
		for at := k; at < len(order); at += n {
			members = append(members, order[at])
			own = append(own, reqs[order[at]])
		}
		if len(own) == 0 {
			continue
		}
		c := engine
		c.Seed += int64(k) << 32 // as cluster.start seeds instance k
		res, err := sim.Run(c, own, nil)
		if err != nil {
			return nil, nil, err
		}
		for j, i := range members {
			all[i] = res.Requests[j]
		}
		engines = append(engines, res)
	}
	return all, engines, nil
}
