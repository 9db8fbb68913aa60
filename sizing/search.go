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
	about := asked
	if c.q.Load.Clients == 0 {
		about = min(asked, c.mostRate())
	}
	alone, err := c.highestLoad(ctx, 1, about, coarseRatio)
	if err != nil {
		return 0, "", err
	}
	if alone.highest == 0 {
		return 0, "not met at any load: " + alone.broken, nil
	}
	highest := alone.highest
	n = int(math.Ceil(asked / highest))
	if n > 1 && c.q.Load.Clients == 0 { // a server behind a router gets smoother arrivals and serves more load
		shared, err := c.highestLoad(ctx, n, math.Max(highest, asked/float64(n)), fineRatio)
		for err == nil && shared.isAtLeast && shared.highest < asked { // smoother arrivals more than double it
			shared, err = c.highestLoad(ctx, n, shared.highest, fineRatio)
		}
		if err != nil {
			return 0, "", err
		}
		c.found = shared
		highest = math.Max(highest, shared.highest)
		n = int(math.Ceil(asked / highest))
	}
	c.highest = highest
	if n > c.mostReplicas() {
		return 0, fmt.Sprintf("needs some %d GPUs, more than %d", int64(n)*c.server.GPUs, c.q.MostGPUs), nil
	}
	return n, "", nil
}

// mostRate returns requests per second that no server of the candidate reaches: twice what it served if as many requests as
// may run were answered as fast as on an idle server. (An answer is longer than its time among the running ones.)
func (c *candidate) mostRate() float64 {
	return 2 * float64(c.server.MaxNumSeqs*c.server.DP) * predict.WarmUpAnswers / c.idleS
}

// The smallest rate that is tried on one server is leastShare of the first, or the rate at which an idle server would be
// busy for leastBusy of the time, whichever is less: a request now and then. Only there nothing waits for anything.
const (
	leastShare = 1.0 / 16384
	leastBusy  = 1e-4
)

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
	search := loadSearch{about: about, least: min(about*leastShare, leastBusy*predict.WarmUpAnswers/c.idleS), ratio: ratio}
	if c.q.Load.Clients > 0 {
		search.least = 1
		search.isWhole = true
	}
	var err error
	out.highest, out.isAtLeast, err = search.highest(func(amount float64) (meets bool, most float64, err error) {
		if err := ctx.Err(); err != nil {
			return false, 0, err
		}
		s, err := c.probeSample(amount, n)
		if err != nil {
			return false, 0, err
		}
		most = math.Inf(1)
		if s.Saturated && s.ServedS > 0 {
			most = farAbove * float64(s.Served) / s.ServedS
		}
		out.broken = predict.Broken([]*predict.Sample{s}, &c.q.Targets)
		return out.broken == "", most, nil
	})
	return out, err
}

// farAbove is how many times what an overloaded server answers it certainly does not answer at any load, although it may
// lose time to preemptions.
const farAbove = 2

// loadSearch is a search for the highest load that meets the targets.
type loadSearch struct {
	about   float64 // tried first
	least   float64 // the smallest that is tried
	ratio   float64 // of the bounds between which the search ends
	isWhole bool    // loads are whole numbers, of clients
}

// trial reports whether a load meets the targets, and returns a load above which no server meets them as far as this trial
// shows, +Inf if it does not.
type trial func(amount float64) (meets bool, most float64, err error)

// highest returns the highest load that meets the targets, 0 where none does. It halves the load until the
// targets are met, or doubles it once where they are met at once, and then bisects. It reports
// isAtLeast where also the doubled load meets them.
func (s *loadSearch) highest(try trial) (highest float64, isAtLeast bool, err error) {
	lo := 0.0           // highest load so far that meets the targets; 0: none yet
	hi := 0.0           // lowest load so far that does not; 0: none yet
	most := math.Inf(1) // loads above it do not
	for amount := s.about; amount >= s.least; amount /= 2 {
		if amount > most {
			hi = amount
			continue
		}
		var ok bool
		ok, most, err = try(amount)
		if err != nil {
			return 0, false, err
		}
		if ok {
			lo = amount
			break
		}
		hi = amount
	}
	if lo == 0 {
		return 0, false, nil
	}
	if hi == 0 {
		ok, _, err := try(2 * lo)
		if err != nil || ok {
			return 2 * lo, true, err
		}
		hi = 2 * lo
	}
	for hi/lo > s.ratio {
		mid := math.Sqrt(lo * hi)
		if s.isWhole {
			mid = math.Floor((lo + hi) / 2)
			if mid <= lo {
				break
			}
		}
		ok, _, err := try(mid)
		if err != nil {
			return 0, false, err
		}
		if ok {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, false, nil
}

// fewestByDoubling returns the fewest servers that meet the targets on a workload: it tries 1, 2,
// 4, ... and then the numbers between.
func (c *candidate) fewestByDoubling(ctx context.Context) (n int, why string, err error) {
	broken := ""
	meets := func(n int) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		s, err := c.simulate(n, c.q.Seed, predict.ProbeRequests)
		if err != nil {
			return false, err
		}
		broken = predict.Broken([]*predict.Sample{s}, &c.q.Targets)
		return broken == "", nil
	}
	n, err = fewestAbove(0, c.mostReplicas(), meets)
	if err == nil && n == 0 {
		why = fmt.Sprintf("not met with %d GPUs: %s", int64(c.mostReplicas())*c.server.GPUs, broken)
	}
	return n, why, err
}

// fewestAbove returns the fewest servers, more than base and at most so many, that meet the targets: it
// tries 1, 2, 4, ... more than base, and then the numbers between. It returns 0 if the most do not meet them.
func fewestAbove(base, most int, meets func(n int) (bool, error)) (int, error) {
	lo := base // does not meet them, or is not asked for
	hi := base + 1
	for {
		ok, err := meets(hi)
		if err != nil {
			return 0, err
		}
		if ok {
			break
		}
		if hi == most {
			return 0, nil
		}
		lo = hi
		hi = min(most, base+2*(hi-base))
	}
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		ok, err := meets(mid)
		if err != nil {
			return 0, err
		}
		if ok {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi, nil
}

// fillHeadroom compares the load of a replica with the highest that meets the targets.
func (c *candidate) fillHeadroom(ctx context.Context, row *Row) error {
	row.ReplicaLoad = c.q.Load.Amount() / float64(row.Replicas)
	if c.q.Load.IsWorkload() {
		if c.q.Load.Clients == 0 { // the workload has arrivals of its own, or they are drawn
			row.ReplicaLoad = row.RequestsPerS.Value / float64(row.Replicas)
		}
		return nil
	}
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
