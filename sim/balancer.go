package sim

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/vllm"
)

// balancer sends requests to ranks as the API servers of vLLM do (v1/engine/core_client.py,
// DPLBAsyncMPClient, of 0.19.1 to 0.33.0): each server goes by the counts that the coordinator
// publishes every 100 ms and by what it has sent itself. Requests come to the servers in
// turn. With an external balancer each rank has a server of its own, with a hybrid one each node.
type balancer struct {
	rules       vllm.Rules
	ranks       int // behind one server
	servers     []apiServer
	next        int
	publishedUs int64
	of          []int32 // by request: its server and rank
}

// apiServer is what one server knows of its ranks.
type apiServer struct {
	first    int // of its ranks
	clients  int64
	start    int // where the scan begins, so that ties do not favour one rank
	counts   []rankCounts
	inFlight []int64 // requests that it has sent and that have not left
}

// rankCounts are a rank's as published.
type rankCounts struct {
	waiting, running int64
	usage            float64 // of the KV cache
}

// publishEveryUs is the coordinator's interval.
const publishEveryUs = 100_000

func newBalancer(d *deploy.Deployment, rules vllm.Rules) *balancer {
	b := &balancer{rules: rules, publishedUs: -1}
	ranks, clients := d.Balanced()
	b.ranks = int(ranks)
	for first := int64(0); first < d.DP; first += ranks {
		for k := range clients {
			b.servers = append(b.servers, apiServer{first: int(first), clients: clients, start: int(ranks * k / clients),
				counts: make([]rankCounts, ranks), inFlight: make([]int64, ranks)})
		}
	}
	return b
}

// publish tells all servers the counts of all ranks, where a moment of publishing has come up to atUs.
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
			s.counts[i] = rankCounts{int64(e.numWaiting()), int64(len(e.running)), 1 - float64(e.pool.Free)/float64(max(1, e.pool.Total))}
		}
	}
}

// pick is the rank of request i.
func (b *balancer) pick(i int) int {
	at := b.next
	b.next = (b.next + 1) % len(b.servers)
	s := &b.servers[at]
	best, least := 0, 0.0
	for k := range b.ranks {
		rank := (s.start + k) % b.ranks
		if score := s.score(rank, b.rules.BalancerInFlight); k == 0 || score < least {
			best, least = rank, score
		}
	}
	s.counts[best].waiting += s.clients
	s.inFlight[best]++
	if b.rules.BalancerRotates {
		s.start = (s.start + 1) % b.ranks
	}
	for len(b.of) <= i {
		b.of = append(b.of, 0)
	}
	b.of[i] = int32(at*b.ranks + best)
	return s.first + best
}

// score is a rank's load; the lowest gets the request.
func (s *apiServer) score(rank int, inFlight bool) float64 {
	c := &s.counts[rank]
	if !inFlight {
		return float64(4*c.waiting + c.running)
	}
	load := max(s.clients*s.inFlight[rank], c.waiting+c.running)
	return float64(load) + 6*float64(c.waiting)*max(0, c.usage-0.5)
}

// left forgets a request that has left.
func (b *balancer) left(i int) {
	if i < len(b.of) {
		b.servers[int(b.of[i])/b.ranks].inFlight[int(b.of[i])%b.ranks]--
	}
}
