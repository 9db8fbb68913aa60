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
// rank with the most tokens, and the merged run has that rank's row for each pass. A life is the passes
// of one rank from one start to its end; x.lives has those of a rank together, in the order of starts.
// It returns an error with the code several_engines if the log of a rank is missing, whose load is then
// unknown, or if the release does not log passes of ranks without load.
func (x *extraction) lockstep() error {
	n := int(x.dep.DP)
	lives := x.lives
	if n < 2 || !x.dep.Model.IsMoE() || len(lives)+len(x.spans.engines) == 0 {
		return nil
	}
	ranksLogged := len(slices.CompactFunc(slices.Clone(lives), func(a, b *enginelog.Life) bool {
		return a.Engine == b.Engine
	}))
	release, known := x.dep.Engine.Release()
	switch {
	case len(lives) == 0:
		return trace.Errorf(source.CodeSeveralEngines,
			"got step traces of %d data-parallel ranks in lockstep, which have no number by which steps of "+
				"different ranks can be matched, want the logs of all ranks", n).WithHint("start vLLM with " +
			"--enable-logging-iteration-details and --api-server-count 1")
	case ranksLogged != n || len(lives)%n != 0:
		return trace.Errorf(source.CodeSeveralEngines,
			"got logs of %d ranks and %d starts, want all %d of data_parallel_size: a pass lasts as long as on "+
				"the slowest rank", ranksLogged, len(lives), n).WithHint("start vLLM with --api-server-count 1, which " +
			"logs every rank, and keep all logs")
	case known && release[0] == 0 && release[1] < 23:
		return trace.Errorf(source.CodeSeveralEngines,
			"got vLLM %s, want 0.23 or newer: before, ranks do not log the passes in which they have no load",
			x.dep.Engine.VLLMVersion)
	}
	x.lives = nil
	starts := len(lives) / n // of each rank
	for k := range starts {
		var ranks []*enginelog.Life // the k-th life of each rank
		for i := k; i < len(lives); i += starts {
			ranks = append(ranks, lives[i])
		}
		merged, err := x.largestRank(ranks, filepath.Join(x.stage, "ranks."+strconv.Itoa(k)))
		if err != nil {
			return err
		}
		x.lives = append(x.lives, merged)
	}
	return nil
}

// largestRank writes a table of the passes that all ranks have, with the row of the rank that has
// the most tokens in each, and returns the merged life (the passes of one engine run). It ends with the
// first rank that has no further pass.
func (x *extraction) largestRank(ranks []*enginelog.Life, dir string) (*enginelog.Life, error) {
	out, err := table.Create[trace.Iteration](dir, table.Iterations, x.o.Format)
	if err != nil {
		return nil, err
	}
	next := make([]func() (trace.Iteration, error, bool), len(ranks)) // reads the next pass of each rank
	heads := make([]trace.Iteration, len(ranks))                      // the pass that each rank has reached
	for i, l := range ranks {
		pull, stop := iter.Pull2(fileRows[trace.Iteration](l.Dir, table.Iterations, x.o.Format))
		defer stop()
		next[i] = pull
		heads[i].Index = -1
	}
	merged := &enginelog.Life{Engine: ranks[0].Engine, Dir: dir, Stamped: ranks[0].Stamped}
	last := int64(-1) // number of the pass that was written last
	// pass is the number of the next pass that all ranks have. Every rank is read forward to it; a rank
	// that lacks the pass raises it, and then the others are read forward again.
	for pass := int64(0); ; {
		most := &heads[0]
		for i := range heads {
			h := &heads[i]
			ok := true
			for ok && h.Index < pass {
				*h, err, ok = next[i]()
			}
			if err != nil || !ok {
				return merged, errors.Join(err, out.Close())
			}
			pass = max(pass, h.Index)
			if h.ContextTokens+h.GenerationTokens > most.ContextTokens+most.GenerationTokens {
				most = h
			}
		}
		if slices.ContainsFunc(heads, func(h trace.Iteration) bool { return h.Index != pass }) {
			continue
		}
		if gap := pass - last - 1; merged.Rows > 0 && gap > 0 {
			if merged.Missing == 0 {
				merged.FirstGap = source.Place{File: most.File, Line: most.Line}
			}
			merged.Missing += gap
		}
		if err := out.Append(*most); err != nil {
			return nil, err
		}
		merged.Rows++
		last = pass
		pass++
	}
}
