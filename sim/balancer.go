package sim

// This file sends requests to data-parallel ranks.

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/vllm"
)

// balancer sends requests to data-parallel ranks as the API servers of vLLM do
// (vllm/v1/engine/core_client.py: DPLBAsyncMPClient.get_core_engine_for_request(), 0.19.1 to 0.33.0).
// Each server chooses the rank with the lowest load by the counts that the coordinator publishes every
// 100 ms and by the requests that it has sent since. Requests go to the servers in turn. With an
// external load balancer there is one server for each rank, with a hybrid one for each node.
type balancer struct {
	rules       vllm.Rules
	ranks       int // number of ranks behind one server
	servers     []apiServer
	nextServer  int     // gets the next request
	publishedUs int64   // time of the last publication; -1 before the first
	slots       []int32 // for each request: server * ranks + place of its rank behind that server
}

// splitSlot returns the server of an entry of slots, and the place of its rank behind the server.
func (b *balancer) splitSlot(slot int32) (server *apiServer, place int) {
	return &b.servers[int(slot)/b.ranks], int(slot) % b.ranks
}

// apiServer is one API server's view of its ranks.
type apiServer struct {
	first    int          // its first rank; counts, inFlight and start count ranks from there
	clients  int64        // number of API servers of the same ranks
	start    int          // rank at which the search begins, so that ties do not favour one rank
	counts   []rankCounts // by rank, as last published
	inFlight []int64      // by rank: requests that it has sent and that have not left
}

// rankCounts is the load of a rank as published by the coordinator.
type rankCounts struct {
	waiting, running int64
	kvUsage          float64 // share of the KV cache
}

// publishEveryUs is the coordinator's interval (coordinator.py).
const publishEveryUs = 100_000

// newBalancer returns the balancer of deployment d before any counts were published: an API server
// for each client process and set of ranks.
func newBalancer(d *deploy.Deployment, rules vllm.Rules) *balancer {
	ranks, clients := d.Balanced()
	b := &balancer{rules: rules, ranks: int(ranks), publishedUs: -1}
	for first := int64(0); first < d.DP; first += ranks {
		for k := range clients {
			b.servers = append(b.servers, apiServer{
				first:    int(first),
				clients:  clients,
				start:    int(ranks * k / clients),
				counts:   make([]rankCounts, ranks),
				inFlight: make([]int64, ranks),
			})
		}
	}
	return b
}

// publish copies the present counts of all ranks to all servers if a multiple of publishEveryUs has
// passed since the last call that did.
func (b *balancer) publish(ranks []*Engine, atUs int64) {
	tick := atUs / publishEveryUs * publishEveryUs
	if tick <= b.publishedUs {
		return
	}
	b.publishedUs = tick
	for k := range b.servers {
		s := &b.servers[k]
		for i := range s.counts {
			e := ranks[s.first+i]
			s.counts[i] = rankCounts{
				waiting: int64(e.numWaiting()),
				running: int64(len(e.running)),
				kvUsage: 1 - float64(e.pool.Free)/float64(max(1, e.pool.Total)),
			}
		}
	}
}

// pickRank returns the rank for request i and counts the request as sent (core_client.py:
// DPLBAsyncMPClient.get_core_engine_for_request()).
func (b *balancer) pickRank(i int) int {
	server := b.nextServer
	b.nextServer = (b.nextServer + 1) % len(b.servers)
	s := &b.servers[server]
	best, least := 0, 0.0
	for k := range b.ranks {
		rank := (s.start + k) % b.ranks
		load := s.loadOf(rank, b.rules.BalancerInFlight)
		if k == 0 || load < least {
			best, least = rank, load
		}
	}
	s.counts[best].waiting += s.clients // until the next publication; the other servers send as many
	s.inFlight[best]++
	if b.rules.BalancerRotates { // since 0.26
		s.start = (s.start + 1) % b.ranks
	}
	for len(b.slots) <= i {
		b.slots = append(b.slots, 0)
	}
	b.slots[i] = int32(server*b.ranks + best)
	return s.first + best
}

// loadOf returns the load of a rank, with the weights of vLLM's score: 4 for each waiting request and
// 1 for each running one. The lowest gets the next request. Since 0.28 (inFlight) it is the number of
// waiting and running requests, at least that of requests in flight from all servers, plus 6 for each
// waiting one times the part of the KV usage above one half.
func (s *apiServer) loadOf(rank int, inFlight bool) float64 {
	c := &s.counts[rank]
	if !inFlight {
		return float64(4*c.waiting + c.running)
	}
	load := max(s.clients*s.inFlight[rank], c.waiting+c.running)
	return float64(load) + 6*float64(c.waiting)*max(0, c.kvUsage-0.5)
}

// forget removes request i, which has left its engine, from the server's requests in flight.
func (b *balancer) forget(i int) {
	if i < len(b.slots) {
		server, place := b.splitSlot(b.slots[i])
		server.inFlight[place]--
	}
}
