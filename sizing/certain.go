package sizing

// This file finds deployments that meet the targets also at the upper end of the prediction's stated error.

import (
	"context"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/library/predict"
)

// certainRows returns further deployments of candidates whose row meets the targets by the estimate alone: with so many
// more replicas that they meet them also at the upper end of the stated error. Only those are looked for
// that need fewer GPUs than every deployment on the same GPU that is certain already, and at most
// mostOfCertain times the replicas.
func (q *Question) certainRows(ctx context.Context, candidates []candidate, rows []Row) ([]Row, error) {
	type search struct {
		candidate int // index, of the candidate and of its row
		most      int // replicas that are tried
	}
	var searches []search
	for i := range rows {
		r := &rows[i]
		if r.Met != MetEstimate || r.Pools || r.Drafts {
			continue
		}
		most := min(candidates[i].mostReplicas(), mostOfCertain*r.Replicas)
		for k := range rows {
			if o := &rows[k]; o.Met == MetYes && o.Hardware == r.Hardware {
				most = min(most, int((o.GPUs-1)/candidates[i].server.GPUs))
			}
		}
		if most > r.Replicas {
			searches = append(searches, search{candidate: i, most: most})
		}
	}
	found := make([]*Row, len(searches))
	err := par.Try(ctx, q.Workers, len(searches), func(k int) (err error) {
		s := searches[k]
		found[k], err = candidates[s.candidate].certainRow(ctx, rows[s.candidate], s.most)
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	var out []Row
	for _, r := range found {
		if r != nil {
			out = append(out, *r)
		}
	}
	return out, nil
}

// mostOfCertain is how many times the replicas of a deployment that meets the targets by the estimate are tried.
const mostOfCertain = 4

// certainRow returns the deployment with the fewest replicas, more than those of row and at most so many, that
// meets the targets also at the upper end of the stated error; nil if there is none.
func (c *candidate) certainRow(ctx context.Context, row Row, most int) (*Row, error) {
	meets := func(n int, samples ...*predict.Sample) bool {
		targets := c.q.Targets.Tightened(c.server.In(&c.q.Load, n, samples).StatedErrors(samples))
		return predict.Broken(samples, &targets) == ""
	}
	probed := func(n int) (bool, error) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		s, err := c.probeReplicas(n)
		if err != nil {
			return false, err
		}
		return meets(n, s), nil
	}
	fewest, err := fewestAbove(row.Replicas, most, probed)
	if err != nil || fewest == 0 {
		return nil, err
	}
	// The probe was of one seed; several decide, with more replicas where they miss the targets.
	for n := fewest; n <= most; n++ {
		samples, err := c.replicate(ctx, n, nil, c.measure, c.isNarrow)
		if err != nil {
			return nil, err
		}
		if meets(n, samples...) {
			return c.measuredRow(ctx, row, n, samples)
		}
	}
	return nil, nil
}

// probeReplicas simulates the load on n replicas for as long as a probe takes.
func (c *candidate) probeReplicas(n int) (*predict.Sample, error) {
	if c.isAlike() {
		return c.probeSample(c.q.Load.Amount()/float64(n), n)
	}
	return c.simulate(n, c.q.Seed, predict.ProbeRequests)
}
