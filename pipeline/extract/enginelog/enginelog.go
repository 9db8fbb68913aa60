package enginelog

import (
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// Iterations are those of one batch of lines, with what was lost. lines.go reads the lines of servers' logs by
// their table, stamp.go the times and the JSON that log collectors put around a line, fpm.go Dynamo's forward-pass trace.
type Iterations = source.Lines[row]

// row is an iteration and the engine core, rank or producer that made it.
type row struct {
	trace.Iteration
	Engine, Process string // who ran it, and who wrote its line

	Rate     trace.Opt[float64] // of the prefix cache, in place of an iteration
	BeforeUs trace.Opt[float64] // time of the pass before it
	Accepted float64            // tokens a request took from a pass, with drafts
	Running  int64              // that the next decode has if none ends, and the KV tokens they hold before it
	Held     int64
	PerS     float64 // tokens that SGLang made in a second since the decode before
	Pace     pace
}

// pace is what SGLang's throughputs say of the passes between the decodes of a log so far.
type pace struct {
	Ns, Decodes, Several int64 // stamp of the last decode; decodes, and those with several passes behind the one before
	PerS                 float64
}

// iterationLines is the part that both decoders share.
type iterationLines struct {
	source.LineDecoder[row]
	text *files.Interner // one copy of each engine's name
}

func newIterationLines() iterationLines {
	return iterationLines{func(r *row) *int64 { return &r.Line }, files.NewInterner()}
}
