package extract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"unicode/utf8"

	"github.com/blis-train/blis-train/trace"
)

// one decodes one message and keeps its spans, or none of them.
func (p *parsed) one(data []byte, line, offset int64, run func([]byte, *builder, *message) *parseError, bld *builder) {
	from, ignored, kv := len(p.msg.spans), p.msg.ignored, len(p.msg.kv)
	p.msg.texts = false
	err := run(data, bld, &p.msg)
	if err != nil {
		p.msg.spans, p.msg.ignored, p.msg.kv = p.msg.spans[:from], ignored, p.msg.kv[:kv]
		if len(bytes.Trim(data, "\x00")) == 0 {
			p.nul += int64(len(data))
			return
		}
		p.faults = append(p.faults, fail{
			code: CodeUnreadable, line: line, col: int64(err.at) + 1, offset: offset + int64(err.at), bytes: int64(len(data)),
			msg: err.msg, byMessage: p.batch.form == formProto,
		})
		return
	}
	for _, s := range p.msg.spans[from:] {
		s.file, s.line = p.batch.file, line
	}
	for i := range p.msg.kv[kv:] {
		p.msg.kv[kv+i].Line = line
	}
	if p.msg.texts || len(p.msg.spans) > from && !utf8.Valid(data) && p.batch.form == formLines {
		p.texts = append(p.texts, textSpot{line})
	}
}

// freeList recycles the batches' memory: as many buffers as can be under way.
type freeList chan *[]byte

func (f freeList) get(n int) *[]byte {
	select {
	case b := <-f:
		if cap(*b) >= n {
			return b
		}
	default:
	}
	b := make([]byte, 0, n+n/4)
	return &b
}

func (f freeList) put(b *[]byte) {
	if b == nil || cap(*b) > 16*blockBytes {
		return
	}
	select {
	case f <- b:
	default:
	}
}

// stream reads the inputs in order, parses batches on several workers, and
// calls sink with the results in input order, whatever the number of workers.
func stream(ctx context.Context, in []input, p parser, workers int, limits Limits, stdin io.Reader, sink func(*parsed) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type job struct {
		b    *batch
		done chan *parsed
	}
	free := make(freeList, workers+2)
	jobs := make(chan job)
	order := make(chan chan *parsed, workers+1)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			bld := newBuilder()
			for j := range jobs {
				res := parse(j.b, p, bld)
				free.put(j.b.pooled) // spans hold copies
				j.b.data, j.b.pooled = nil, nil
				j.done <- res
			}
		})
	}
	readErr := make(chan error, 1)
	go func() {
		defer close(order)
		defer close(jobs)
		readErr <- readInputs(in, limits, stdin, free, func(b *batch) bool {
			done := make(chan *parsed, 1)
			select {
			case order <- done:
			case <-ctx.Done():
				return false
			}
			select {
			case jobs <- job{b, done}:
				return true
			case <-ctx.Done():
				done <- nil
				return false
			}
		})
	}()
	var sinkErr error
	for done := range order {
		res := <-done
		if res == nil || sinkErr != nil || ctx.Err() != nil {
			continue
		}
		if sinkErr = sink(res); sinkErr != nil {
			cancel()
		}
	}
	group.Wait()
	if sinkErr != nil {
		return sinkErr
	}
	if err := <-readErr; err != nil && err != errStopped {
		return err
	}
	return ctx.Err()
}

// input is one file of a run.
type input struct {
	path  string // as opened; "-" for standard input
	name  string // relative to the run folder, as reported
	joins bool   // the next file belongs to the same rotated set
	size  int64  // bytes, once read
	sum   string // SHA-256, once read
}

// readInputs reads files one after another. A broken file is a fault of that
// file, not the end of the run.
func readInputs(in []input, limits Limits, stdin io.Reader, free freeList, out func(*batch) bool) error {
	r := &reader{out: out, get: free.get}
	for i := range in {
		r.file = int32(i)
		src, err := openFile(in[i].path, in[i].name, stdin, limits)
		if src == nil {
			return fmt.Errorf("open: %w", err)
		}
		r.src, r.dec = src, nil
		if e := asSyntax(err); r.carry != nil && (err == nil || e != nil && e.Code == CodeNotOTLP) {
			src.form, err = formLines, nil // the file goes on inside a line
		}
		if err == nil {
			err = r.read(!in[i].joins)
		}
		if err != nil && err != errStopped {
			err = r.broken(err)
		}
		if err == nil {
			in[i].size, in[i].sum = src.digest()
		}
		src.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// broken reports the rest of a file as lost.
func (r *reader) broken(err error) error {
	f := fail{code: CodeUnreadable, line: r.line, offset: r.src.offset(), bytes: max(1, r.src.size-r.src.offset()), msg: err.Error()}
	if e := asSyntax(err); e != nil {
		f.code, f.msg = e.Code, e.Msg
		if e.Code == CodeNotOTLP || e.Code == CodeNotUTF8 {
			f.line, f.bytes = 1, max(1, r.src.size)
		}
	}
	if !r.fault(f) {
		return errStopped
	}
	return nil
}

func asSyntax(err error) *trace.SyntaxError {
	var e *trace.SyntaxError
	if errors.As(err, &e) {
		return e
	}
	return nil
}
