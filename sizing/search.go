package sizing

// This file searches for the highest load that one of several servers carries, from which the number
// of servers follows.

import (
	"context"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/library/predict"
)

// Bisections of a load end when its bounds are within this ratio of each other.
const (
	coarseRatio = 1.1
	fineRatio   = 1.03
)

// fewest returns a guess of how many replicas meet the targets: by the highest load of one server
// if loads can be drawn, else by trying 1, 2, 4, ... servers. It returns 0 and the reason if no
// number does.
func (c *candidate) fewest(ctx context.Context) (n int, why string, err error) {
	if c.q.Load.IsWorkload() {
		return c.fewestByDoubling(ctx)
	}
	asked := c.q.Load.Amount()
	alone, err := c.highestLoad(ctx, 1, asked, coarseRatio)
	if err != nil {
		return 0, "", err
	}
	if alone.highest == 0 {
		return 0, "not met at any load: " + alone.broken, nil
	}
	n = int(math.Ceil(asked / alone.highest))
	if n > 1 && c.q.Load.Clients == 0 { // a server behind a router gets smoother arrivals and serves more load
		own, err := c.highestLoad(ctx, n, math.Max(alone.highest, asked/float64(n)), fineRatio)
		for err == nil && own.isAtLeast && own.highest < asked { // smoother arrivals more than double it
			own, err = c.highestLoad(ctx, n, own.highest, fineRatio)
		}
		if err != nil {
			return 0, "", err
		}
		c.found = own
		alone.highest = math.Max(alone.highest, own.highest)
		n = int(math.Ceil(asked / alone.highest))
	}
	c.highest = alone.highest
	if n > c.mostReplicas() {
		return 0, fmt.Sprintf("needs some %d GPUs, more than %d", int64(n)*c.server.GPUs, c.q.MostGPUs), nil
	}
	return n, "", nil
}

// leastShare of the asked load is the smallest that is tried on one server.
const leastShare = 1.0 / 4096

// capacity is the highest load of one of several servers that meets the targets in a probe.
type capacity struct {
	servers   int
	highest   float64 // 0: none does
	isAtLeast bool    // the search ended there
	broken    string  // the target that the smallest load, or the next higher one, breaks
}

// highestLoad searches for the highest load of one of n servers, at most twice the load that is given.
func (c *candidate) highestLoad(ctx context.Context, n int, about, ratio float64) (capacity, error) {
	out := capacity{servers: n}
	meets := func(amount float64) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		broken, err := c.probe(amount, n)
		out.broken = broken
		return broken == "", err
	}
	// Halve the load until the targets are met, double it once where they are met at once, then
	// bisect.
	isClients := c.q.Load.Clients > 0
	lo, hi := 0.0, 0.0
	for amount := about; amount >= c.q.Load.Amount()*leastShare && (!isClients || amount >= 1); amount /= 2 {
		ok, err := meets(amount)
		if err != nil {
			return out, err
		}
		if ok {
			lo = amount
			break
		}
		hi = amount
	}
	if lo == 0 {
		return out, nil
	}
	if hi == 0 {
		if ok, err := meets(2 * lo); err != nil || ok {
			out.highest = 2 * lo
			out.isAtLeast = true
			return out, err
		}
		hi = 2 * lo
	}
	for hi/lo > ratio {
		mid := math.Sqrt(lo * hi)
		if isClients {
			mid = math.Floor((lo + hi) / 2)
			if mid <= lo {
				break
			}
		}
		ok, err := meets(mid)
		if err != nil {
			return out, err
		}
		if ok {
			lo = mid
		} else {
			hi = mid
		}
	}
	out.highest = lo
	return out, nil
}

// fewestByDoubling returns the fewest servers that meet the targets on a workload: it tries 1, 2,
// 4, ... and then the numbers between.
func (c *candidate) fewestByDoubling(ctx context.Context) (n int, why string, err error) {
	broken := ""
	meets := func(n int) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		s, err := c.simulate(n, c.q.Seed, probeRequests)
		if err != nil {
			return false, err
		}
		broken = predict.Broken([]*predict.Sample{s}, &c.q.Targets)
		return broken == "", nil
	}
	lo, hi := 0, 1
	for {
		ok, err := meets(hi)
		if err != nil {
			return 0, "", err
		}
		if ok {
			break
		}
		lo = hi
		if hi == c.mostReplicas() {
			return 0, fmt.Sprintf("not met with %d GPUs: %s", int64(hi)*c.server.GPUs, broken), nil
		}
		hi = min(2*hi, c.mostReplicas())
	}
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		ok, err := meets(mid)
		if err != nil {
			return 0, "", err
		}
		if ok {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi, "", nil
}

// fillHeadroom compares the load of a replica with the highest that meets the targets.
func (c *candidate) fillHeadroom(ctx context.Context, row *Row) error {
	if c.q.Load.IsWorkload() {
		row.ReplicaLoad = row.RequestsPerS.Value / float64(row.Replicas)
		return nil
	}
	row.ReplicaLoad = c.q.Load.Amount() / float64(row.Replicas)
	found := c.found
	if found.servers != row.Replicas {
		var err error
		if found, err = c.highestLoad(ctx, row.Replicas, row.ReplicaLoad, fineRatio); err != nil {
			return err
		}
	}
	row.HighestLoad = math.Max(found.highest, row.ReplicaLoad) // a probe of one seed may miss what the row meets
	row.HighestAtLeast = found.isAtLeast
	row.Headroom = 1 - row.ReplicaLoad/row.HighestLoad
	return nil
}
