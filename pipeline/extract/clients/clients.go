// Package forms reads every form but OTLP: client.go results of clients, sweep.go load levels,
// lines.go logs, kv.go KV events, prometheus.go metrics; foreign.go refuses what cannot be read.
package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// Sources of observed requests.
const (
	sourceClient   = "client"
	sourceGuideLLM = "guidellm"
	sourceTraceV2  = "tracev2"
	sourceServing  = "llmservingsim"
	sourceBench    = "vllm_bench"
	sourceAIPerf   = "aiperf"
	sourceSGLang   = "sglang"

	sourceInferencePerf = "inference_perf"
)

// Reader reads client-side files; the form is recognised by content.
type Reader struct {
	Names []source.Input
	Acc   *source.Account
	Rows  []trace.ObservedRequest
	Loads []Load // of files that tell how the load was offered

	Points   []trace.LoadPoint // of benchmarks that say levels only
	Findings []trace.Finding   // what was assumed or put right

	traceFiles []traceFile
	chunkSets  []chunkSet
}

// Finish joins what stands in several files and looks for what the forms are known
// to get wrong, once all files are read.
func (c *Reader) Finish(dep *deploy.Deployment) {
	c.joinChunks()
	for i := range c.Rows {
		if r := &c.Rows[i]; r.Streaming.OK && !r.Streaming.V { // its one chunk is the end
			r.FirstChunkNs = trace.Opt[int64]{}
			r.TTFTUs = trace.Opt[float64]{}
			r.ChunkGapsUs = nil
			r.Chunks = trace.Opt[int64]{}
		}
	}
	c.dropRepeatedPoints()
	c.audit(dep)
}

// IsRead says that a file is of a form that Reader knows by itself, by its beginning.
func IsClientFile(head []byte) bool {
	head = bytes.TrimLeft(head, " \t\r\n\ufeff")
	return bytes.Contains(head, []byte(`"guidellm_version"`)) || isAIPerf(head) || isInferencePerf(head) || is(head) ||
		isTraceV2(head) || bytes.HasPrefix(head, sglangHead)
}

func (c *Reader) File(in *source.Input, how source.Options) error {
	src, err := source.Open(in, how.Stdin, how.Limits)
	if src == nil {
		return err
	}
	defer func(before int) {
		c.strays(src, before)
		in.Size, in.Sum = src.Digest()
		in.Gave += int64(len(c.Rows) - before)
		src.Close()
	}(len(c.Rows))
	if e := source.AsSyntax(err); e != nil && e.Code != source.CodeNotOTLP {
		return c.lost(src, e)
	}
	head, _ := src.R.Peek(1 << 15)
	if err := RefuseForeign(src.Name, head); err != nil {
		return err
	}
	switch trimmed := bytes.TrimLeft(head, " \t\r\n"); {
	case len(trimmed) == 0:
		return nil
	case isInferencePerf(trimmed):
		err = c.inferencePerf(src)
	case bytes.Contains(head, []byte(`"guidellm_version"`)) || bytes.Contains(head, []byte(`"benchmarks"`)):
		rows := len(c.Rows)
		if err = c.guideLLM(src); err == nil && len(c.Rows) == rows {
			err = c.points(in, how, "guidellm without a limit on the requests it keeps")
		}
	case isBench(head):
		if err = c.bench(src); err == errNoDetails {
			err = c.points(in, how, "vllm bench serve --save-detailed")
		}
	case isAIPerf(trimmed):
		load := fileLoad(src.Name)
		err = c.lines(src, func(text []byte) (trace.ObservedRequest, error) {
			r, err := aiperfRequest(text)
			if err == nil {
				load.see(&r)
			}
			return r, err
		})
		c.offered(load)
	case is(trimmed):
		err = c.points(in, how, "")
	case bytes.HasPrefix(trimmed, []byte(chunkHeader)):
		err = c.chunkFile(src)
		in.Gave++
	case trimmed[0] != '{':
		err = c.traceV2(src, in, how)
	default:
		rows := len(c.Rows)
		if err = c.lines(src, clientLine); err == nil && len(c.Rows) == rows {
			return unknownFile(src.Name, trimmed)
		}
	}
	if err != nil {
		return c.lost(src, err)
	}
	return c.Acc.Err
}

// Keys names the keys of the first JSON object of a file, or how it begins.
func DescribeHead(head []byte) string {
	var first map[string]json.RawMessage
	if json.NewDecoder(bytes.NewReader(head)).Decode(&first) != nil {
		line, _, _ := bytes.Cut(head, []byte("\n"))
		return fmt.Sprintf("the first line %.60q", bytes.TrimRight(line, "\r"))
	}
	list := slices.Sorted(maps.Keys(first))
	return "the keys " + strings.Join(list[:min(len(list), 8)], ", ")
}

// unknownFile is the error of a file that gave no request.
func unknownFile(name string, head []byte) error {
	return trace.Errorf(source.CodeUnknownFile, "%s: got a client file of unknown kind (%s), want the result of vllm bench serve, GuideLLM, AIPerf, "+
		"genai-perf or inference-perf, TraceV2, a table of load levels, or lines with id and send_ns", name,
		DescribeHead(head)).WithHint("leave it out of `files.client_requests` in run.yaml")
}

// lost counts the unread rest of a file as one dropped record.
func (c *Reader) lost(src *source.Source, err error) error {
	c.Acc.Read++
	rest := max(1, src.Size-src.Offset())
	c.Acc.BadBytes += rest
	c.Acc.Bytes += rest
	code := source.CodeUnreadable
	if e := source.AsSyntax(err); e != nil {
		code, err = e.Code, errors.New(e.Msg) // the place names the file
	}
	c.Acc.Drop(code, 1, source.Place{File: src.Name}, "%v", err)
	return c.Acc.Err
}

// Limits of what clients say (spec#value-limits).
var observedRanges = trace.RangesOf[trace.ObservedRequest]()

// row counts one record and keeps it where its values can be.
func (c *Reader) row(src *source.Source, r trace.ObservedRequest) {
	c.Acc.Read++
	why := observedRanges.Check(&r)
	reversed := func(from, to trace.Opt[int64]) bool { return from.OK && to.OK && to.V < from.V }
	if why == "" && (reversed(r.FirstChunkNs, r.LastChunkNs) || reversed(r.SendNs, r.EndNs)) {
		why = "its stamps run backwards"
	}
	if why == "" && r.OutputTokens.OK && r.OutputTokens.V == 0 && len(r.ChunkGapsUs) > 0 {
		why = fmt.Sprintf("output_tokens: got 0, want at least 1 beside %d chunks", 1+len(r.ChunkGapsUs))
	}
	if why != "" {
		c.Acc.Drop(source.CodeBadRecord, 1, source.Place{File: src.Name, Line: r.Line}, "request %s: %s", r.ID, why)
		return
	}
	c.Acc.Keep(1)
	c.Rows = append(c.Rows, r)
}

// strays drops the requests of a file, which stand from a place on, with a stamp that is far from
// the others of its kind.
func (c *Reader) strays(src *source.Source, from int) {
	names := [...]string{"arrival_ns", "send_ns", "first_chunk_ns", "last_chunk_ns", "end_ns", "send_wall_ns", "queued_ns", "scheduled_ns",
		"engine_first_ns", "engine_last_ns"}
	of := func(r *trace.ObservedRequest) [len(names)]trace.Opt[int64] {
		return [...]trace.Opt[int64]{r.ArrivalNs, r.SendNs, r.FirstChunkNs, r.LastChunkNs, r.EndNs, r.SendWallNs, r.QueuedNs, r.ScheduledNs,
			r.EngineFirstNs, r.EngineLastNs}
	}
	var clocks [len(names)]source.Stamps
	for i := range c.Rows[from:] {
		for k, at := range of(&c.Rows[from+i]) {
			if at.OK {
				clocks[k].See(at.V)
			}
		}
	}
	if !slices.ContainsFunc(clocks[:], func(s source.Stamps) bool { return s.AnyStray() }) {
		return
	}
	kept := slices.DeleteFunc(c.Rows[from:], func(r trace.ObservedRequest) bool {
		for k, at := range of(&r) {
			if why := clocks[k].Check(names[k], at.V); at.OK && why != "" {
				c.Acc.Keep(-1)
				c.Acc.Drop(source.CodeBadRecord, 1, source.Place{File: src.Name, Line: r.Line}, "request %s: %s", r.ID, why)
				return true
			}
		}
		return false
	})
	c.Rows = c.Rows[:from+len(kept)]
}

func (c *Reader) bad(src *source.Source, line, n int64, err error) {
	code := source.CodeUnreadable
	if e := source.AsSyntax(err); e != nil {
		code, err = e.Code, errors.New(e.Msg)
	}
	c.Acc.Read++
	c.Acc.BadBytes += n
	c.Acc.Drop(code, 1, source.Place{File: src.Name, Line: line}, "client request: %v", err)
}

// lines reads one JSON object a line, a request each.
func (c *Reader) lines(src *source.Source, parse func(text []byte) (trace.ObservedRequest, error)) error {
	for line := int64(1); ; line++ {
		text, n, err := readLine(src)
		g := source.AsGap(err)
		switch {
		case g != nil: // the line it cut is lost with it
			c.Acc.Bytes += g.Lost
			c.bad(src, line, max(1, g.Lost), g)
		case n > src.Limits.MaxLine:
			c.Acc.Lines++
			c.Acc.Bytes += n
			c.bad(src, line, n, src.Errorf(source.CodeOverLimit, "line of more than %d bytes (--max-line)", src.Limits.MaxLine))
		case len(bytes.TrimSpace(text)) > 0:
			c.line(src, line, text, parse)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil && g == nil {
			return src.ReadError(err)
		}
	}
}

// line takes one line.
func (c *Reader) line(src *source.Source, line int64, text []byte, parse func(text []byte) (trace.ObservedRequest, error)) {
	c.Acc.Lines++
	c.Acc.Bytes += int64(len(text))
	row, err := parse(text)
	if err != nil {
		c.bad(src, line, int64(len(text)), err)
		return
	}
	row.Line = line
	c.row(src, row)
}

// readLine reads a line of n bytes; of one above the limit there is no text.
func readLine(src *source.Source) (text []byte, n int64, err error) {
	for {
		part, err := src.R.ReadSlice('\n')
		n += int64(len(part))
		if n <= src.Limits.MaxLine {
			text = append(text, part...)
		} else {
			text = nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, n, err
		}
	}
}
