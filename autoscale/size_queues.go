package autoscale

// This file is `queue size` and `queue allocate`: it sizes the servers of queue.json and allocates
// the replicas of a fleet.

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/trace"
)

// SizeOptions are the options of `queue size`.
type SizeOptions struct {
	Targets        Targets
	Prompt, Output float64 // mean lengths in place of those of the windows, tokens; 0 for these
	Concurrency    int     // largest max_num_seqs that is considered; the smallest good one is sought. 0: the server's own
	Requests       int     // number of requests simulated at the rate that was found; 0 for no simulation
	Seed           uint64
	Workers        int
}

// mostWanted is an upper bound of targets and lengths, ms or tokens.
const mostWanted = 1e8

// leastWanted is a lower bound of targets, ms or tokens per second: no server is so fast, and nobody wants so little.
const leastWanted = 1e-6

// mostSeats is an upper bound of max_num_seqs.
const mostSeats = 1 << 14

// checkFor returns an error for options out of range or that flavour f does not have.
func (o *SizeOptions) checkFor(f Flavour) error {
	for _, v := range []struct {
		name  string
		value float64 // 0: not given
		least float64
	}{
		{"ttft-ms", o.Targets.TTFTMs, leastWanted},
		{"itl-ms", o.Targets.ITLMs, leastWanted},
		{"tps", o.Targets.TPS, leastWanted},
		{"prompt-tokens", o.Prompt, 1},
		{"output-tokens", o.Output, 1},
	} {
		if v.value != 0 && !(v.value >= v.least && v.value <= mostWanted) {
			return option.Misusef("--%s: got %g, want a number from %g to %g", v.name, v.value, v.least, float64(mostWanted))
		}
	}
	switch {
	case o.Concurrency < 0,
		o.Concurrency > mostSeats,
		o.Concurrency > 0 && f != inferno3P:
		return option.Misusef("--concurrency: got %d with flavour %s, want 1 to %d and %s, whose reader searches so", o.Concurrency, f, mostSeats,
			inferno3P)
	case o.Requests < 0:
		return option.Misusef("--simulate: got %d requests, want >= 0", o.Requests)
	case o.Requests > 0 && f == wvA4P:
		return option.Misusef("--simulate: got flavour %s, whose parameters are no step time, want one of three "+
			"parameters", f)
	}
	return nil
}

// SizeQueues sets the sizing of every server of a document, and simulates the server at that rate
// if asked to. A server without parameters, or whose targets cannot be met at any load, gets a
// finding; it is an error if that is so for all servers.
func SizeQueues(ctx context.Context, doc *Queue, o SizeOptions) error {
	if err := o.checkFor(Flavour(doc.Flavour)); err != nil {
		return err
	}
	failed := make([]error, len(doc.Servers))
	findings := make([][]trace.Finding, len(doc.Servers))
	err := par.Try(ctx, o.Workers, len(doc.Servers), func(i int) error {
		s := &doc.Servers[i]
		s.Sizing = nil
		z, err := sizedOf(s, Flavour(doc.Flavour), o.Prompt, o.Output)
		if err != nil {
			failed[i] = err
			return nil
		}
		size, err := z.Size(o.Targets)
		if o.Concurrency > 0 {
			size, err = z.leastSeats(o.Targets, o.Concurrency)
		}
		if err != nil {
			failed[i] = err
			return nil
		}
		findings[i] = slices.Concat(size.Findings, outsideFitted(s.Fitted, &z, &size), outsideJudged(&z, &size))
		s.Sizing = &size.QueueSizing
		if o.Requests == 0 {
			return nil
		}
		size.Simulated, err = simulate(z.params, z.limits, trafficOf(z.shape, size.RateRPS, o.Requests, o.Seed), ctx.Done())
		if err == nil {
			findings[i] = append(findings[i], uncertain(size.Simulated)...)
		}
		return err
	}, nil)
	if err != nil {
		return err
	}
	sized := 0
	for i, why := range failed {
		if why == nil {
			sized++
		} else if coded := (*trace.Error)(nil); errors.As(why, &coded) {
			findings[i] = []trace.Finding{{Code: coded.Code, Message: coded.Msg}}
		}
		for _, f := range findings[i] {
			doc.Warnings = append(doc.Warnings,
				trace.Finding{Code: f.Code, Message: doc.Servers[i].ID + ": " + f.Message})
		}
	}
	if sized == 0 {
		return errors.Join(failed...)
	}
	return nil
}

// mostSimulatedError is the standard error of a simulated mean, as a share of it, above which it is no check of a sizing.
const mostSimulatedError = 0.05

// uncertain returns a finding where too few requests were simulated. Near the highest rate the number in the system
// changes so slowly that even the standard error, which is from blocks of requests, is too small.
func uncertain(s *queueSimPoint) []trace.Finding {
	share := s.TTFTSeMs / s.TTFTMs
	if !(share > mostSimulatedError) {
		return nil
	}
	return []trace.Finding{trace.Findingf(sizingRemark, "simulated TTFT of %s ms: its standard error is %.0f %%, and more near the highest rate: "+
		"%s requests are too few to judge the rate; --simulate some %s", trace.Thousands(int64(math.Round(s.TTFTMs))), 100*share,
		trace.Thousands(int64(s.Requests)), trace.Thousands(int64(10*s.Requests)))}
}

// AllocateQueues allocates a fleet to the demands of a problem with the servers of a document:
// greedily as the autoscalers do, and optimally for up to optimumServers demands.
func AllocateQueues(doc *Queue, p *Problem) error {
	demands, findings, err := p.Demands(doc)
	if err != nil {
		return err
	}
	doc.Warnings = append(doc.Warnings, findings...)
	plan, err := p.Allocate(demands)
	if err != nil {
		return err
	}
	best, err := p.Optimum(demands)
	if err != nil {
		return err
	}
	for i := range demands {
		if len(demands[i].candidates()) > 0 {
			continue
		}
		plan.NoOption = append(plan.NoOption, demands[i].Name)
		if best != nil {
			best.NoOption = append(best.NoOption, demands[i].Name)
		}
	}
	doc.Plan, doc.Optimum = plan, best
	return nil
}
