package validate

import (
	"context"
	"fmt"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/validate/gates"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// job is one call of Run.
type job struct {
	set     *coeff.Set
	o       *Options
	rules   *gates.Rules
	sources []Source
	all     []*judgedRun
	entries [][]result.ValidationRun
	warned  []trace.Finding
	refit   bool // the coefficients saw the hold-out too
	done    <-chan struct{}
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
