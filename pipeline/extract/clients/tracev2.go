package clients

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/tracev2"
)

// traceV2 reads a TraceV2 file: the header and the rows, the rows alone, their
// header in a file of the same stem, or that header, which holds no request.
func (c *Reader) traceV2(src *source.Source, in *source.Input, how source.Options) error {
	header, err := c.headerOf(in, how)
	if err != nil {
		return err
	}
	rd, err := tracev2.NewReader(&tally{src.R, &c.Acc.Bytes}, src.Name, header)
	if errors.Is(err, tracev2.ErrHeaderOnly) {
		in.Gave++ // the description of another file's requests
		return nil
	}
	if err != nil {
		return place(src, err)
	}
	f := traceFile{stem: dataStem(src.Name), header: rd.Header, from: len(c.Rows)}
	f.missing, f.unknown = rd.Differ()
	defer func() {
		f.to = len(c.Rows)
		c.traceFiles = append(c.traceFiles, f)
	}()
	for {
		rec, err := rd.Read()
		var lost *tracev2.RowError
		switch {
		case err == io.EOF:
			return nil
		case err != nil && !errors.As(err, &lost):
			return src.ReadError(err)
		}
		c.Acc.Lines++
		if err != nil {
			c.bad(src, rd.Line(), 1, err)
			continue
		}
		if rec.ServerPromptTokens > 0 {
			f.counted++
		}
		row := observed(&rec, rd)
		row.Line = rd.Line()
		c.row(src, row)
	}
}

// place words an error of the stream as one of the file; what the reader says of
// the content stays.
func place(src *source.Source, err error) error {
	if errors.As(err, new(*trace.SyntaxError)) {
		return err
	}
	if source.AsGap(err) != nil || source.IsCut(err) {
		return src.ReadError(err)
	}
	return fmt.Errorf("not a client file: got no JSON, and %w", err)
}

// headerOf finds the header of rows: the client file of the same stem that is YAML.
func (c *Reader) headerOf(in *source.Input, how source.Options) (*tracev2.Header, error) {
	stem, ext := stemOf(in.Path)
	if ext == ".yaml" || ext == ".yml" {
		return nil, nil
	}
	for i := range c.Names {
		other := &c.Names[i]
		if s, ext := stemOf(other.Path); s != stem || ext != ".yaml" && ext != ".yml" {
			continue
		}
		src, err := source.Open(other, how.Stdin, how.Limits)
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

// stemOf is a file name without what says how it is packed and its extension.
func stemOf(path string) (stem, ext string) {
	path = strings.TrimSuffix(strings.TrimSuffix(path, ".gz"), ".zst")
	ext = filepath.Ext(path)
	return strings.TrimSuffix(path, ext), ext
}

// observed is a row as its client saw it.
func observed(rec *tracev2.Record, rd *tracev2.Reader) trace.ObservedRequest {
	has := func(name string, v int64) trace.Opt[int64] { return trace.Opt[int64]{V: v, OK: rd.Has(name)} }
	known := func(us int64) trace.Opt[int64] { return trace.Opt[int64]{V: us * 1000, OK: us > 0} }
	text := func(s string) trace.Opt[string] { return trace.Opt[string]{V: s, OK: s != ""} }
	r := trace.ObservedRequest{
		ID: rec.RequestID, Source: sourceTraceV2, Priority: rec.Priority, SLOClass: text(rec.SLOClass), PrefixGroup: text(rec.PrefixGroup),
		PrefixTokens: has("prefix_length", rec.PrefixTokens), PromptTokens: trace.Some(rec.PromptTokens()),
		OutputTokens: has("output_tokens", rec.OutputTokens), ArrivalNs: has("arrival_time_us", rec.ArrivalUs*1000),
		SendNs: known(rec.SendUs), FirstChunkNs: known(rec.FirstChunkUs), LastChunkNs: known(rec.LastChunkUs),
		Chunks: has("num_chunks", rec.Chunks),
		Error:  text(rec.Error), FinishReason: text(rec.FinishReason),
	}
	if rd.Has("streaming") {
		r.Streaming = trace.Some(rec.Streaming)
	}
	if rd.Has("status") {
		r.Success = trace.Some(rec.Succeeded())
	}
	r.TTFTUs, r.E2EUs = gapUs(r.SendNs, r.FirstChunkNs), gapUs(r.SendNs, r.LastChunkNs)
	return r
}

// isTraceV2 recognises BLIS's traces: a header, rows, or chunks.
func isTraceV2(head []byte) bool {
	return bytes.HasPrefix(head, []byte("trace_version:")) || bytes.HasPrefix(head, []byte("request_id,")) ||
		bytes.HasPrefix(head, []byte("---\ntrace_version:"))
}
