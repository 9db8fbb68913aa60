package sizing

// This file sizes disaggregated prefill: a pool of prefill servers and a pool of decode servers.

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/sim"
)

// mostPoolProbes is how many divisions into prefill and decode servers are tried.
const mostPoolProbes = 10

// division is a number of servers for prefill and one for decode.
type division struct{ prefill, decode int }

// withOneMore returns the division with one server more in the pool that misses a target (predict.Broken).
func (d division) withOneMore(missed string) division {
	isEither := missed == "saturated" || missed == "goodput" // names no metric: the smaller pool grows
	if strings.HasPrefix(missed, predict.TTFT) || isEither && d.prefill <= d.decode {
		d.prefill++
	} else {
		d.decode++
	}
	return d
}

// pools finds the fewest servers for prefill and for decode that meet the targets together, and measures them.
//
// A prefill server alone decides how many of them TTFT needs, and a decode server with all prompts in its cache
// how many TPOT and ITL need. From there both pools are simulated together, with the transfers between them: one
// more server goes to the pool whose target is missed, and then servers are taken away while the targets are met.
func (c *candidate) pools(ctx context.Context, row *Row) error {
	if c.q.Load.RateRPS == 0 || c.q.Load.IsWorkload() {
		row.Refused = "prefill apart from decode is sized for --rate and --input-len only"
		return nil
	}
	if c.server.DP > 1 {
		row.Refused = "prefill apart from decode is not sized with --dp"
		return nil
	}
	at, err := startOfPools(c.q.Load, c.q.Targets, func(load predict.Load, targets predict.Targets) (float64, error) {
		return c.highestAlone(ctx, load, targets)
	})
	if err != nil {
		return err
	}
	most := min(c.mostReplicas(), cluster.MostServers)
	broken := func(d division) (string, error) {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		s, err := c.simulatePools(d, c.q.Seed, predict.ProbeRequests, true)
		if err != nil {
			return "", err
		}
		return predict.Broken([]*predict.Sample{s}, &c.q.Targets), nil
	}
	if at.prefill+at.decode > most {
		row.Refused = fmt.Sprintf("prefill apart from decode: needs some %d GPUs, more than %d", int64(at.prefill+at.decode)*c.server.GPUs, int64(most)*c.server.GPUs)
		return nil
	}
	at, why, err := fewestOfPools(at, most, broken)
	if err != nil {
		return err
	}
	if why != "" {
		row.Refused = fmt.Sprintf("prefill apart from decode: not met with %d + %d servers: %s", at.prefill, at.decode, why)
		return nil
	}
	samples, err := c.measurePools(ctx, &at, most)
	if err != nil {
		return err
	}
	if samples == nil {
		row.Refused = fmt.Sprintf("prefill apart from decode: not met with %d GPUs", int64(most)*c.server.GPUs)
		return nil
	}
	row.Prefill = at.prefill
	row.Replicas = at.prefill + at.decode
	row.GPUs = int64(row.Replicas) * c.server.GPUs
	row.ReplicaLoad = c.q.Load.RateRPS / float64(row.Replicas)
	c.fillFigures(row, samples)
	c.fillPrice(row)
	return nil
}

// fewestOfPools returns the fewest servers for prefill and for decode that meet the targets, searched from a
// division, and at most so many of both. broken returns the target that a division misses, "" if it misses none.
// Where no division that was tried meets the targets, it returns the last one and the target that it misses.
func fewestOfPools(at division, most int, broken func(division) (string, error)) (fewest division, why string, err error) {
	tried := map[division]string{}
	once := func(d division) (string, error) {
		if why, isKnown := tried[d]; isKnown {
			return why, nil
		}
		why, err := broken(d)
		if err == nil {
			tried[d] = why
		}
		return why, err
	}
	// Add servers to the pool that misses its target.
	for {
		why, err := once(at)
		if err != nil {
			return at, "", err
		}
		if why == "" {
			break
		}
		if at.prefill+at.decode >= most || len(tried) >= mostPoolProbes {
			return at, why, nil
		}
		at = at.withOneMore(why)
	}
	// Take servers away while the targets are still met.
	for isFewer := true; isFewer; {
		isFewer = false
		for _, fewer := range []division{
			{prefill: at.prefill - 1, decode: at.decode},
			{prefill: at.prefill, decode: at.decode - 1},
		} {
			if fewer.prefill < 1 || fewer.decode < 1 || len(tried) >= 2*mostPoolProbes {
				continue
			}
			why, err := once(fewer)
			if err != nil {
				return at, "", err
			}
			if why == "" {
				at = fewer
				isFewer = true
				break
			}
		}
	}
	return at, "", nil
}

// measurePools measures a division with several seeds, with one server more in the pool that misses a target as long as one
// does. Two simulations that miss it by far decide.
func (c *candidate) measurePools(ctx context.Context, at *division, most int) ([]*predict.Sample, error) {
	farTargets := c.q.Targets.Tightened(predict.EqualErrors(-farOff))
	for at.prefill+at.decode <= most {
		var samples []*predict.Sample
		for len(samples) < poolReplications && !(len(samples) == 2 && predict.Broken(samples, &farTargets) != "") {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			s, err := c.simulatePools(*at, c.q.Seed+int64(len(samples)), c.q.measured, false)
			if err != nil {
				return nil, err
			}
			samples = append(samples, s)
		}
		missed := predict.Broken(samples, &c.q.Targets)
		if missed == "" {
			return samples, nil
		}
		*at = at.withOneMore(missed)
	}
	return nil, nil
}

// poolReplications is how many simulations of pools a row has at most: each takes as long as several of one server.
const poolReplications = 6

// simulatePools serves the load with a division.
func (c *candidate) simulatePools(d division, seed int64, measured int, atMeanRate bool) (*predict.Sample, error) {
	p := part{load: c.q.Load, servers: d.decode, sharing: 1, measured: measured, atMeanRate: atMeanRate}
	return c.serve(p, seed, func(engine sim.Config, requests []sim.Request) ([]sim.RequestResult, []*sim.Result, error) {
		return cluster.Pools(engine, d.prefill, d.decode, requests)
	})
}

// startOfPools returns the first division of servers between the prefill and the decode pool to try:
// for each pool alone, the number of servers that meets the targets that depend on it. highest returns the
// highest load of one server, 0 where none meets the targets.
func startOfPools(load predict.Load, all predict.Targets, highest func(predict.Load, predict.Targets) (float64, error)) (division, error) {
	count := func(load predict.Load, metrics ...string) (int, error) {
		own := predict.Targets{Goodput: all.Goodput}
		for _, l := range all.Limits {
			if slices.Contains(metrics, l.Metric) {
				own.Limits = append(own.Limits, l)
			}
		}
		if len(own.Limits) == 0 {
			own.Goodput = 0
		}
		carried, err := highest(load, own)
		if err != nil || carried == 0 {
			return 1, err
		}
		return int(math.Ceil(load.RateRPS / carried)), nil
	}
	prompts := load // as a prefill server gets it
	prompts.OutputTokens = 1
	prefill, err := count(prompts, predict.TTFT)
	if err != nil {
		return division{}, err
	}
	answers := load // as a decode server gets it: it computes the last prompt token alone
	answers.CachedShare = 1 - 1/float64(max(2, answers.InputTokens))
	decode, err := count(answers, predict.TPOT, predict.ITL, predict.E2E)
	return division{prefill: prefill, decode: decode}, err
}

// highestAlone returns the highest load of one server of a pool by itself.
func (c *candidate) highestAlone(ctx context.Context, load predict.Load, targets predict.Targets) (float64, error) {
	question := *c.q
	question.Load = load
	question.Targets = targets
	own := *c
	own.q = &question
	own.warmUpS = c.idleS
	found, err := own.highestLoad(ctx, 2, load.RateRPS/2, coarseRatio) // of one of two servers that share the arrivals
	return found.highest, err
}
