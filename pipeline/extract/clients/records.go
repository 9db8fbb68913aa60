package clients

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file counts, checks and keeps the records of client files, whatever their form.

// observedRanges are the limits of a request's values (spec#value-limits).
var observedRanges = trace.RangesOf[trace.ObservedRequest]()

// addRequest counts one request and adds it to c.Requests, unless a value is out of its range or its values
// contradict each other.
func (c *Reader) addRequest(src *source.Source, r trace.ObservedRequest) {
	c.Acc.Read++
	why := observedRanges.Check(&r)
	isBackwards := func(from, to trace.Opt[int64]) bool { return from.OK && to.OK && to.V < from.V }
	switch {
	case why != "":
	case isBackwards(r.FirstChunkNs, r.LastChunkNs) || isBackwards(r.SendNs, r.EndNs):
		why = "its stamps run backwards"
	case r.OutputTokens.OK && r.OutputTokens.V == 0 && len(r.ChunkGapsUs) > 0:
		why = fmt.Sprintf("output_tokens: got 0, want at least 1 with %d chunks", 1+len(r.ChunkGapsUs))
	}
	if why != "" {
		c.dropRequest(src, &r, why)
		return
	}
	c.Acc.Keep(1)
	c.countRequest(src, &r)
	c.Requests = append(c.Requests, r)
}

// dropRequest counts a request as dropped.
func (c *Reader) dropRequest(src *source.Source, r *trace.ObservedRequest, why string) {
	at := source.Place{File: src.Name, Line: r.Line}
	c.Acc.Drop(source.CodeBadRecord, 1, at, "request %s: %s", r.ID, why)
}

// clockNames are the stamps of a request, in the order of clocksOf.
var clockNames = [...]string{"arrival_ns", "send_ns", "first_chunk_ns", "last_chunk_ns", "end_ns", "send_wall_ns",
	"queued_ns", "scheduled_ns", "engine_first_ns", "engine_last_ns"}

// clocksOf returns the stamps of a request.
func clocksOf(r *trace.ObservedRequest) [len(clockNames)]trace.Opt[int64] {
	return [...]trace.Opt[int64]{r.ArrivalNs, r.SendNs, r.FirstChunkNs, r.LastChunkNs, r.EndNs, r.SendWallNs,
		r.QueuedNs, r.ScheduledNs, r.EngineFirstNs, r.EngineLastNs}
}

// dropStrayStamps drops the requests of one file, those from index from on, that have a stamp far
// from the same stamp of all other requests.
func (c *Reader) dropStrayStamps(src *source.Source, from int) {
	var clocks [len(clockNames)]source.Stamps
	for i := range c.Requests[from:] {
		for k, stamp := range clocksOf(&c.Requests[from+i]) {
			if stamp.OK {
				clocks[k].See(stamp.V)
			}
		}
	}
	isStray := func(s source.Stamps) bool { return s.AnyStray() }
	if !slices.ContainsFunc(clocks[:], isStray) {
		return
	}
	isDropped := make([]bool, len(c.Requests))
	for i := from; i < len(c.Requests); i++ {
		r := &c.Requests[i]
		why := ""
		for k, stamp := range clocksOf(r) {
			if stamp.OK && why == "" {
				why = clocks[k].Check(clockNames[k], stamp.V)
			}
		}
		if why != "" {
			c.Acc.Keep(-1)
			c.dropRequest(src, r, why)
			isDropped[i] = true
		}
	}
	c.removeRequests(isDropped)
}

// dropRest counts the unread rest of a file as one dropped record.
func (c *Reader) dropRest(src *source.Source, err error) error {
	rest := max(1, src.Size-src.Offset())
	if source.IsCut(err) {
		err = src.ReadError(err)
	}
	c.Acc.Bytes += rest
	c.dropUnreadable(source.Place{File: src.Name}, rest, "", err)
	return c.Acc.Err
}

// dropLine counts a line or element of so many bytes that is no request.
func (c *Reader) dropLine(src *source.Source, line, bytes int64, err error) {
	c.dropUnreadable(source.Place{File: src.Name, Line: line}, bytes, "client request: ", err)
}

// dropUnreadable counts a record that cannot be read, with its bytes.
func (c *Reader) dropUnreadable(at source.Place, bytes int64, what string, err error) {
	code := source.CodeUnreadable
	if e := source.AsSyntax(err); e != nil {
		code = e.Code
		err = errors.New(e.Msg) // the place names the file
	}
	c.Acc.Read++
	c.Acc.BadBytes += bytes
	c.Acc.Drop(code, 1, at, "%s%v", what, err)
}

// readEachLine returns the reader of a file with one request a line, for which it is an error to have none.
func readEachLine(parse func(line []byte) (trace.ObservedRequest, error)) requestReader {
	return func(c *Reader, f *clientFile) error {
		before := len(c.Requests)
		if err := c.readLines(f.src, parse); err != nil {
			return err
		}
		if len(c.Requests) == before {
			return errNoRequest
		}
		return nil
	}
}

// readLines reads a file with one request a line. A line that is too long, that parse refuses or that lies
// in a broken part of the file is dropped, and reading goes on behind it.
func (c *Reader) readLines(src *source.Source, parse func(line []byte) (trace.ObservedRequest, error)) error {
	most := min(src.Limits.MaxLine, maxValue)
	for number := int64(1); c.full == nil; number++ {
		blank := blankLines(src)
		number += blank
		c.Acc.Bytes += blank
		text, size, err := readLine(src, most)
		gap := source.AsGap(err)
		switch {
		case gap != nil: // the line that the gap cut is lost with it
			c.Acc.Bytes += gap.Lost
			c.dropLine(src, number, max(1, gap.Lost), gap)
		case size > most:
			c.Acc.Lines++
			c.Acc.Bytes += size
			c.dropLine(src, number, size,
				src.Errorf(source.CodeOverLimit, "line of more than %d bytes (--max-line, at most 16 MB of a client)", most))
		case len(bytes.TrimSpace(text)) > 0:
			c.Acc.Lines++
			c.Acc.Bytes += size
			r, err := parse(text)
			if err != nil {
				c.dropLine(src, number, size, err)
				break
			}
			r.Line = number
			c.addRequest(src, r)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil && gap == nil {
			return src.ReadError(err)
		}
	}
	return c.full
}

// blankLines skips the empty lines that are in the buffer, all at once, and returns their number.
func blankLines(src *source.Source) int64 {
	buffered, _ := src.R.Peek(src.R.Buffered())
	n := len(buffered) - len(bytes.TrimLeft(buffered, "\n"))
	src.R.Discard(n)
	return int64(n)
}

// readLine returns a line and its size in bytes. A line of more bytes than most has no text.
func readLine(src *source.Source, most int64) (text []byte, size int64, err error) {
	for {
		part, err := src.R.ReadSlice('\n')
		size += int64(len(part))
		if size <= most {
			text = append(text, part...)
		} else {
			text = nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, size, err
		}
	}
}

// setTimes sets the send stamp of a request, and the times and stamps of its first and last
// chunk; NaN is unknown.
func setTimes(r *trace.ObservedRequest, sent trace.Opt[int64], ttftUs, e2eUs float64) {
	r.SendNs = sent
	if !math.IsNaN(ttftUs) {
		r.TTFTUs = trace.Some(ttftUs)
	}
	if !math.IsNaN(e2eUs) {
		r.E2EUs = trace.Some(e2eUs)
	}
	if !sent.OK {
		return
	}
	if r.TTFTUs.OK {
		r.FirstChunkNs = trace.Some(sent.V + trace.Int(ttftUs*1e3))
	}
	if r.E2EUs.OK {
		r.LastChunkNs = trace.Some(sent.V + trace.Int(e2eUs*1e3))
	}
}

// setTimesFromStamps sets TTFT and E2E of a request whose stamps are known.
func setTimesFromStamps(r *trace.ObservedRequest) {
	r.TTFTUs = sinceUs(r.SendNs, r.FirstChunkNs)
	r.E2EUs = sinceUs(r.SendNs, r.LastChunkNs)
}

// sinceUs returns the time between two stamps, unknown where one of them is.
func sinceUs(from, to trace.Opt[int64]) trace.Opt[float64] {
	if !from.OK || !to.OK {
		return trace.Opt[float64]{}
	}
	return trace.Some(float64(to.V-from.V) / 1000)
}

// stampNs returns a stamp in seconds as ns.
func stampNs(seconds trace.Opt[float64]) trace.Opt[int64] {
	return trace.Opt[int64]{V: trace.Int(seconds.V * 1e9), OK: seconds.OK}
}

// tokenCount returns a number of tokens that a file gives as a float.
func tokenCount(v trace.Opt[float64]) trace.Opt[int64] {
	return trace.Opt[int64]{V: trace.Count(v.V), OK: v.OK}
}

// nanOr returns the value, NaN when it is unknown.
func nanOr(v trace.Opt[float64]) float64 { return v.Or(math.NaN()) }
