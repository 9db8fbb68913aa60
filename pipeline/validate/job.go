package validate

import (
	"context"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// job is one call of Run.
type job struct {
	set     *coeff.Set
	o       *Options
	rules   *rules
	sources []Source
	all     []*judgedRun
	entries [][]result.ValidationRun
	warned  []trace.Finding
	refit   bool // the coefficients saw the hold-out too
	done    <-chan struct{}
}

// newJob checks what Run is given.
func newJob(ctx context.Context, set *coeff.Set, fit *result.Fit, sources []Source, o Options) (*job, error) {
	o, err := o.resolve()
	if err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		return nil, trace.Errorf(nothingToJudge, "got no run, want at least one")
	}
	if err := checkSplit(fit, o.Split); err != nil {
		return nil, err
	}
	j := &job{set: set, o: &o, sources: sources, all: make([]*judgedRun, len(sources)), entries: make([][]result.ValidationRun, len(sources))}
	j.rules, _ = newRules(o.Thresholds)
	j.warned = append(j.warned, j.rules.Loosen(o.ThresholdsFrom)...)
	if sources[0].Stride == 0 {
		j.sources = slices.Clone(sources)
		j.warned = append(j.warned, RowsJudged(fit, j.sources, o)...)
	}
	j.done = ctx.Done()
	j.refit = set.Refit || fit != nil && fit.Options.RefitAll
	return j, nil
}

// each runs work for every source on o.Workers goroutines.
func (j *job) each(ctx context.Context, what string, work func(i int) error) error {
	n := len(j.sources)
	return par.Try(ctx, j.o.Workers, n, func(i int) error {
		if err := work(i); err != nil {
			return fmt.Errorf("validate %s of run %s: %w", what, j.sources[i].ID, err)
		}
		return nil
	}, func(done int) { j.o.Progress.Report("validate "+what, int64(done), int64(n), "runs") })
}
