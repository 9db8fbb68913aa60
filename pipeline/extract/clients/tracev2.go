package clients

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/tracev2"
)

// This file reads BLIS's traces (TraceV2): a YAML header and CSV rows, in one file or in two of
// the same stem. chunks.go reads the times of their chunks.

// sniffTraceV2 reports whether a file begins with a header or rows of TraceV2.
func sniffTraceV2(head []byte) bool {
	for _, prefix := range []string{"trace_version:", "---\ntrace_version:", "request_id,"} {
		if bytes.HasPrefix(head, []byte(prefix)) {
			return true
		}
	}
	return false
}

// traceFile is one TraceV2 file: which requests it gave, and what findTraps needs of it, which looks for known errors
// once all files are read.
type traceFile struct {
	stem           string // of its name, as traceStem returns it
	header         tracev2.Header
	from, to       int      // of Reader.Requests
	serverCounted  int      // prompts whose tokens the server counted
	missingColumns []string // that the version should have
	unknownColumns []string
}

// readTraceV2 reads a file with header and rows, rows whose header is in a file of the same stem,
// or that header, which has no request (spec#wire-tracev2). A file that can only be read in part stays listed in
// c.traceFiles with the requests before the fault, because those are kept.
func (c *Reader) readTraceV2(file *clientFile) error {
	src := file.src
	header, err := c.findTraceHeader(file)
	if err != nil {
		return err
	}
	// countingReader adds the bytes to the account, and ends the reading where the requests take too much memory.
	rd, err := tracev2.NewReader(&countingReader{c, src.R}, src.Name, header)
	if errors.Is(err, tracev2.ErrHeaderOnly) {
		file.in.Gave++ // a header counts as a record, because it describes another file's requests
		return nil
	}
	if err != nil {
		return placeTraceError(src, err)
	}
	f := traceFile{stem: traceStem(src.Name), header: rd.Header, from: len(c.Requests)}
	f.missingColumns, f.unknownColumns = rd.Differ()
	defer func() {
		f.to = len(c.Requests)
		c.traceFiles = append(c.traceFiles, f)
	}()
	for {
		rec, err := rd.Read()
		if err == io.EOF {
			return nil
		}
		var badRow *tracev2.RowError
		if err != nil && !errors.As(err, &badRow) {
			return src.ReadError(err)
		}
		c.Acc.Lines++ // a row counts as a line, although a quoted text may hold several
		if err != nil {
			const unreadable = 1 // bytes: a CSV reader does not state how long the row is
			c.dropLine(src, rd.Line(), unreadable, err)
			continue
		}
		if rec.ServerPromptTokens > 0 {
			f.serverCounted++
		}
		r := traceRequest(&rec, rd)
		r.Line = rd.Line()
		c.addRequest(src, r)
	}
}

// placeTraceError returns an error of reading the file with the file's name; errors in the content
// keep their text.
func placeTraceError(src *source.Source, err error) error {
	if errors.As(err, new(*trace.SyntaxError)) {
		return err
	}
	if source.AsGap(err) != nil || source.IsCut(err) {
		return src.ReadError(err)
	}
	return fmt.Errorf("not a client file: got no JSON, and %w", err)
}

// findTraceHeader returns the header of rows: that in the client file of the same stem that is
// YAML; nil for a file that is YAML itself, and for rows without such a file.
func (c *Reader) findTraceHeader(file *clientFile) (*tracev2.Header, error) {
	stem, ext := stemOf(file.in.Path)
	if isYAML(ext) {
		return nil, nil
	}
	for i := range c.Names {
		other := &c.Names[i]
		if otherStem, ext := stemOf(other.Path); otherStem != stem || !isYAML(ext) {
			continue
		}
		src, err := source.Open(other, file.how.Stdin, file.how.Limits)
		if src == nil {
			return nil, err
		}
		defer src.Close()
		rd, err := tracev2.NewReader(src.R, other.Name, nil)
		if err != nil && !errors.Is(err, tracev2.ErrHeaderOnly) {
			return nil, err
		}
		return &rd.Header, nil
	}
	return nil, nil
}

// isYAML reports whether a file extension is one of YAML.
func isYAML(ext string) bool { return ext == ".yaml" || ext == ".yml" }

// traceRequest returns the request of a row as its client saw it (spec#wire-tracev2). A stamp of 0 us and a
// column that the file does not have are unknown.
func traceRequest(rec *tracev2.Record, rd *tracev2.Reader) trace.ObservedRequest {
	column := func(name string, v int64) trace.Opt[int64] { return trace.Opt[int64]{V: v, OK: rd.Has(name)} }
	stamp := func(us int64) trace.Opt[int64] { return trace.Opt[int64]{V: us * 1000, OK: us > 0} }
	text := func(s string) trace.Opt[string] { return trace.Opt[string]{V: s, OK: s != ""} }
	r := trace.ObservedRequest{
		ID:           rec.RequestID,
		Source:       sourceTraceV2,
		Priority:     rec.Priority,
		SLOClass:     text(rec.SLOClass),
		PrefixGroup:  text(rec.PrefixGroup),
		PrefixTokens: column("prefix_length", rec.PrefixTokens),
		PromptTokens: trace.Some(rec.PromptTokens()),
		OutputTokens: column("output_tokens", rec.OutputTokens),
		ArrivalNs:    column("arrival_time_us", rec.ArrivalUs*1000),
		SendNs:       stamp(rec.SendUs),
		FirstChunkNs: stamp(rec.FirstChunkUs),
		LastChunkNs:  stamp(rec.LastChunkUs),
		Chunks:       column("num_chunks", rec.Chunks),
		Error:        text(rec.Error),
		FinishReason: text(rec.FinishReason),
	}
	// No group and a length of 0 state that the prompt shares nothing, unless it contains the earlier rounds
	// of its session.
	if rec.Accumulates || !rd.Has("prefix_group") {
		if r.SharesNothing() {
			r.PrefixTokens = trace.Opt[int64]{}
		}
	}
	if rd.Has("streaming") {
		r.Streaming = trace.Some(rec.Streaming)
	}
	if rd.Has("status") {
		r.Success = trace.Some(rec.Succeeded())
	}
	setTimesFromStamps(&r)
	return r
}
