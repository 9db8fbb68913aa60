package sizing

import (
	"context"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/library/predict"
)

// Bisections of a load end when its bounds are within this ratio of each other.
const (
	coarseRatio = 1.06
	fineRatio   = 1.03
)

// fewest guesses how many replicas meet the targets: by the highest load of one server where loads can be drawn,
// else by trying 1, 2, 4, ... servers. 0: none do, and why.
func (c *candidate) fewest(ctx context.Context) (n int, why string, err error) {
	if c.q.Load.IsWorkload() {
		return c.fewestByDoubling(ctx)
	}
	asked := c.q.Load.Amount()
	highest, _, broken, err := c.highestLoad(ctx, 1, asked, coarseRatio)
	if err != nil {
		return 0, "", err
	}
	if highest == 0 {
		return 0, "not met at any load: " + broken, nil
	}
	n = int(math.Ceil(asked / highest))
	if n > 1 && c.q.Load.Clients == 0 { // a server behind a router sees smoother arrivals and carries more
		own, _, _, err := c.highestLoad(ctx, n, highest, coarseRatio)
		if err != nil {
			return 0, "", err
		}
		highest = math.Max(highest, own)
		n = int(math.Ceil(asked / highest))
	}
	c.highest = highest
	if n > c.mostReplicas() {
		return 0, fmt.Sprintf("needs some %d GPUs, more than %d", int64(n)*c.server.GPUs, c.q.MostGPUs), nil
	}
	return n, "", nil
}

// leastShare of the asked load is the smallest that is tried on one server.
const leastShare = 1.0 / 4096

// highestLoad returns the highest load of one of n servers that meets the targets in a probe, at
// most twice the asked load; atLeast says that the search ended there. 0: none does, and the target
// that the smallest load breaks.
func (c *candidate) highestLoad(ctx context.Context, n int, asked, ratio float64) (highest float64, atLeast bool, broken string, err error) {
	meets := func(amount float64) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		load := c.q.Load.WithAmount(amount)
		s, err := c.simulate(&load, 1, n, c.q.Seed, probeRequests)
		if err != nil {
			return false, err
		}
		broken = predict.Broken([]*predict.Sample{s}, &c.q.Targets)
		return broken == "", nil
	}
	isClients := c.q.Load.Clients > 0
	lo, hi := 0.0, 0.0
	for amount := asked; amount >= asked*leastShare && (!isClients || amount >= 1); amount /= 2 {
		ok, err := meets(amount)
		if err != nil {
			return 0, false, "", err
		}
		if ok {
			lo = amount
			break
		}
		hi = amount
	}
	if lo == 0 {
		return 0, false, broken, nil
	}
	if hi == 0 {
		if ok, err := meets(2 * lo); err != nil || ok {
			return 2 * lo, true, "", err
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
			return 0, false, "", err
		}
		if ok {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, false, broken, nil
}

// fewestByDoubling tries 1, 2, 4, ... servers on a workload and then the numbers between.
func (c *candidate) fewestByDoubling(ctx context.Context) (n int, why string, err error) {
	broken := ""
	meets := func(n int) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		s, err := c.simulate(&c.q.Load, n, 1, c.q.Seed, probeRequests)
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
	highest, atLeast, _, err := c.highestLoad(ctx, row.Replicas, row.ReplicaLoad, fineRatio)
	if err != nil {
		return err
	}
	row.HighestLoad = math.Max(highest, row.ReplicaLoad) // a probe of one seed may miss what the row meets
	row.HighestAtLeast = atLeast
	row.Headroom = 1 - row.ReplicaLoad/row.HighestLoad
	return nil
}
