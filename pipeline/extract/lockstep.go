package extract

// This file merges the logs of data-parallel ranks that run in lockstep (models with experts) into one
// sequence of passes (spec#wire-lives).

import (
	"errors"
	"iter"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// lockstep merges the logs of the data-parallel ranks of a model with experts into one run
// (spec#wire-lives). Such ranks begin and end each pass together, so a pass takes as long as on the
// rank with the most tokens, and the merged run has that rank's row for each pass. It returns an
// error with the code several_engines if the log of a rank is missing, whose load is then unknown,
// or if the release does not log passes of ranks without load.
func (x *extraction) lockstep() error {
	n, lives := int(x.dep.DP), x.lives
	if n < 2 || !x.dep.Model.IsMoE() || len(lives)+len(x.col.engines) == 0 {
		return nil
	}
	engines := len(slices.CompactFunc(slices.Clone(lives), func(a, b *enginelog.Life) bool {
		return a.Engine == b.Engine
	}))
	release, known := x.dep.Engine.Release()
	switch {
	case len(lives) == 0:
		return trace.Errorf(codeSeveralEngines,
			"got step traces of %d data-parallel ranks in lockstep, which have no number by which steps of "+
				"different ranks can be matched, want the logs of all ranks", n).WithHint("start vLLM with " +
			"--enable-logging-iteration-details and --api-server-count 1")
	case engines != n || len(lives)%n != 0:
		return trace.Errorf(codeSeveralEngines,
			"got logs of %d ranks and %d starts, want all %d of data_parallel_size: a pass lasts as long as on "+
				"the slowest rank", engines, len(lives), n).WithHint("start vLLM with --api-server-count 1, which " +
			"logs every rank, and keep all logs")
	case known && release[0] == 0 && release[1] < 23:
		return trace.Errorf(codeSeveralEngines,
			"got vLLM %s, want 0.23 or newer: before, ranks do not log the passes in which they have no load",
			x.dep.Engine.VLLMVersion)
	}
	x.lives = nil
	for k := range len(lives) / n {
		var ranks []*enginelog.Life
		for i := k; i < len(lives); i += len(lives) / n {
			ranks = append(ranks, lives[i])
		}
		all, err := x.largestRank(ranks, filepath.Join(x.stage, "ranks."+strconv.Itoa(k)))
		if err != nil {
			return err
		}
		x.lives = append(x.lives, all)
	}
	return nil
}

// largestRank writes a table of the passes that all ranks have, with the row of the rank that has
// the most tokens in each, and returns the merged life (the passes of one engine run).
func (x *extraction) largestRank(ranks []*enginelog.Life, dir string) (*enginelog.Life, error) {
	out, err := table.Create[trace.Iteration](dir, table.Iterations, x.o.Format)
	if err != nil {
		return nil, err
	}
	next := make([]func() (trace.Iteration, error, bool), len(ranks))
	heads := make([]trace.Iteration, len(ranks))
	for i, l := range ranks {
		pull, stop := iter.Pull2(fileRows[trace.Iteration](l.Dir, table.Iterations, x.o.Format))
		defer stop()
		next[i] = pull
		heads[i].Index = -1
	}
	all := &enginelog.Life{Engine: ranks[0].Engine, Dir: dir, Stamped: ranks[0].Stamped}
	last := int64(-1)
	// at is the number of the next pass that all ranks have. Every rank is read forward to it; a rank
	// that lacks the pass raises at, and then the others are read forward again.
	for at := int64(0); ; {
		most := &heads[0]
		for i := range heads {
			h, ok := &heads[i], true
			for ok && h.Index < at {
				*h, err, ok = next[i]()
			}
			if err != nil || !ok {
				return all, errors.Join(err, out.Close())
			}
			if at = max(at, h.Index); h.ContextTokens+h.GenerationTokens > most.ContextTokens+most.GenerationTokens {
				most = h
			}
		}
		if slices.ContainsFunc(heads, func(h trace.Iteration) bool { return h.Index != at }) {
			continue
		}
		if gap := at - last - 1; all.Rows > 0 && gap > 0 {
			if all.Missing += gap; all.Missing == gap {
				all.FirstGap = source.Place{File: most.File, Line: most.Line}
			}
		}
		if err := out.Append(*most); err != nil {
			return nil, err
		}
		all.Rows += 1
		last = at
		at += 1
	}
}
