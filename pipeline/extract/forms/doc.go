// Package iteration turns what unmodified engines write of each pass into rows
// of iterations: log.go reads the lines of vLLM's server log, stamp.go the times
// that log collectors put before a line, wrap.go the JSON they put around it,
// fpm.go Dynamo's forward-pass trace.
package forms

import (
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// Records are the iterations of one batch of lines, with what was lost.
type Records struct {
	Rows   []row
	Bad    []bad
	Other  int64 // lines of a log without an iteration
	before struct {
		rows, bad int
		other     int64
	}
}

// row is an iteration and the engine core, rank or producer that made it.
type row struct {
	trace.Iteration
	Engine string
}

// bad is a record that could not be read whole.
type bad struct {
	Line int64
	What string
}

// Mark notes where a message begins.
func (r *Records) Mark() {
	r.before.rows, r.before.bad, r.before.other = len(r.Rows), len(r.Bad), r.Other
}

// Undo forgets what a broken message gave.
func (r *Records) Undo() {
	r.Rows, r.Bad, r.Other = r.Rows[:r.before.rows], r.Bad[:r.before.bad], r.before.other
}

// Keep gives what a message gave its line.
func (r *Records) Keep(_ int32, line int64) {
	for i := range r.Rows[r.before.rows:] {
		r.Rows[r.before.rows+i].Line = line
	}
	for i := range r.Bad[r.before.bad:] {
		r.Bad[r.before.bad+i].Line = line
	}
}

// Number makes lines count from the file's start: so many stand before the batch.
func (r *Records) Number(before int64) {
	for i := range r.Rows {
		r.Rows[i].Line += before
	}
	for i := range r.Bad {
		r.Bad[i].Line += before
	}
}

func (r *Records) bad(what []byte) {
	const most = 120
	r.Bad = append(r.Bad, bad{What: string(what[:min(len(what), most)])})
}

// names keeps one copy of each engine's name.
type names = source.Interner
