package tracev2

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// FirstColumn starts the CSV.
const FirstColumn = "request_id"

// required are the columns without which a row is no request.
var required = []string{FirstColumn, "input_tokens"}

// maxHeader bounds what may stand before the CSV, bytes.
const maxHeader = 1 << 20

// Reader reads requests row by row.
type Reader struct {
	Header  Header
	Bare    bool // no header stood before the rows, and none was given
	in      *bufio.Reader
	csv     *csv.Reader
	columns []column // of the file; those that say nothing to us have a name only
	before  int64    // lines before the CSV
	line    int64
	history sessions
}

// ErrHeaderOnly says that a file holds a header and no rows: they are in another.
var ErrHeaderOnly = errors.New("got a TraceV2 header without rows: the requests are in the CSV beside it")

// NewReader reads what stands before the rows. header is the one of another
// file, nil for none; one in front of the rows goes before it. Errors:
// tracev2_header, ErrHeaderOnly, and those of in.
func NewReader(in io.Reader, name string, header *Header) (*Reader, error) {
	r := &Reader{in: bufio.NewReader(in), Header: Header{Version: 2}, history: sessions{}}
	text, err := r.preamble()
	switch {
	case err != nil && err != io.EOF:
		return nil, err
	case r.csv == nil && !bytes.Contains(text, []byte("trace_version")):
		return nil, errors.New("not a TraceV2 file: got neither a header (trace_version) nor a request_id column")
	case len(bytes.TrimSpace(text)) > 0:
		if r.Header, err = ParseHeader(text, name); err != nil {
			return nil, err
		}
	case header != nil:
		r.Header = *header
	default:
		r.Bare = true
	}
	if r.csv == nil {
		return r, ErrHeaderOnly
	}
	if err := r.header(); err != nil {
		return nil, err
	}
	r.csv.ReuseRecord = true
	return r, nil
}

// header reads the names of the columns.
func (r *Reader) header() error {
	names, err := r.csv.Read()
	if err != nil {
		return fmt.Errorf("column names: %w", err)
	}
	for _, name := range names {
		name = strings.TrimSpace(name)
		if r.Has(name) {
			return fmt.Errorf("column names: got %q twice", shortened(name))
		}
		r.columns = append(r.columns, columnOf(name))
	}
	for _, name := range required {
		if !r.Has(name) {
			return fmt.Errorf("column names: got no %q, want it", name)
		}
	}
	return nil
}

// Has reports whether the file has a column.
func (r *Reader) Has(name string) bool {
	return slices.ContainsFunc(r.columns, func(c column) bool { return c.name == name })
}

// Differ are the columns that BLIS always writes and the file lacks, and those of
// which nobody here has heard.
func (r *Reader) Differ() (missing, unknown []string) {
	for _, c := range columns {
		if !c.optional && !r.Has(c.name) {
			missing = append(missing, c.name)
		}
	}
	for _, c := range r.columns {
		if !slices.ContainsFunc(columns, func(k column) bool { return k.name == c.name }) {
			unknown = append(unknown, c.name)
		}
	}
	return missing, unknown
}

// preamble reads up to the CSV and returns what stands before it.
func (r *Reader) preamble() (text []byte, err error) {
	for {
		head, _ := r.in.Peek(len(FirstColumn) + 1)
		if string(head) == FirstColumn+"," {
			r.csv = csv.NewReader(r.in)
			r.csv.FieldsPerRecord = -1
			return text, nil
		}
		line, err := r.in.ReadSlice('\n')
		if trimmed := bytes.TrimSpace(line); !bytes.Equal(trimmed, []byte("---")) {
			text = append(text, line...)
		}
		if err == nil {
			r.before++
		}
		switch {
		case len(text) > maxHeader:
			return nil, errors.New("not a TraceV2 file: got no request_id column")
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return text, err
		}
	}
}

// RowError is a row that is no request; those after it can be read.
type RowError struct{ Err error }

func (e *RowError) Error() string { return e.Err.Error() }
func (e *RowError) Unwrap() error { return e.Err }

// Line is the line of the latest row.
func (r *Reader) Line() int64 { return r.line }

// Read reads the next row; io.EOF at the end, a RowError for one that is lost.
func (r *Reader) Read() (rec Record, err error) {
	fields, err := r.csv.Read()
	var parse *csv.ParseError
	switch {
	case errors.As(err, &parse):
		r.line = r.before + int64(parse.StartLine)
		return rec, &RowError{err}
	case err != nil:
		return rec, err
	}
	at, _ := r.csv.FieldPos(0)
	r.line = r.before + int64(at)
	if len(fields) != len(r.columns) {
		return rec, &RowError{fmt.Errorf("got %d fields, want %d", len(fields), len(r.columns))}
	}
	for i := range r.columns {
		if err := rec.set(&r.columns[i], strings.TrimSpace(fields[i])); err != nil {
			return rec, &RowError{fmt.Errorf("%s: %w", r.columns[i].name, err)}
		}
	}
	if err := rec.check(); err != nil {
		return rec, &RowError{err}
	}
	if r.Header.Growth == accumulate {
		if err := r.history.add(&rec); err != nil {
			return rec, &RowError{err}
		}
	}
	return rec, nil
}

// maxTokens and maxUs are far above any request and any clock: sums of them do
// not overflow.
const (
	maxTokens = 1 << 40
	maxUs     = 1 << 53
)

func (r *Record) check() error {
	if r.RequestID == "" {
		return errors.New("got an empty request_id")
	}
	for _, n := range []int64{r.PrefixTokens, r.SuffixTokens, r.OutputTokens, r.ServerPromptTokens} {
		if n < 0 || n > maxTokens {
			return fmt.Errorf("got %d tokens, want 0 to %d", n, int64(maxTokens))
		}
	}
	for _, us := range []int64{r.ArrivalUs, r.SendUs, r.FirstChunkUs, r.LastChunkUs, r.DeadlineUs, r.SLOTargetUs} {
		if us < -maxUs || us > maxUs {
			return fmt.Errorf("got the time %d us, want at most %d", us, int64(maxUs))
		}
	}
	return nil
}

// set takes a field; unknown columns say nothing to us.
func (r *Record) set(c *column, text string) (err error) {
	switch {
	case c.text != nil:
		*c.text(r) = text
	case c.name == "streaming":
		r.Streaming = strings.EqualFold(text, "true") || text == "1"
	case text == "":
	case c.number != nil:
		*c.number(r), err = number(text)
	case c.name == "vllm_priority":
		r.Priority.OK = true
		r.Priority.V, err = number(text)
	}
	return err
}

func number(text string) (int64, error) {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("got %.40q, want an integer", text)
	}
	return v, nil
}

// column is one column: the field of a record it stands for.
type column struct {
	name   string
	text   func(*Record) *string
	number func(*Record) *int64
	// optional columns are written by BLIS where any record has a value.
	optional bool
}

// columns in the order that BLIS writes them; of some the name only is known.
var columns = []column{
	{name: "request_id", text: func(r *Record) *string { return &r.RequestID }}, {name: "client_id"}, {name: "tenant_id"},
	{name: "slo_class", text: func(r *Record) *string { return &r.SLOClass }}, {name: "vllm_priority", optional: true},
	{name: "session_id", text: func(r *Record) *string { return &r.SessionID }},
	{name: "round_index", number: func(r *Record) *int64 { return &r.Round }},
	{name: "prefix_group", text: func(r *Record) *string { return &r.PrefixGroup }},
	{name: "prefix_length", number: func(r *Record) *int64 { return &r.PrefixTokens }}, {name: "streaming"},
	{name: "input_tokens", number: func(r *Record) *int64 { return &r.SuffixTokens }},
	{name: "output_tokens", number: func(r *Record) *int64 { return &r.OutputTokens }}, {name: "text_tokens"}, {name: "image_tokens"},
	{name: "audio_tokens"}, {name: "video_tokens"}, {name: "reason_ratio"}, {name: "model"},
	{name: "deadline_us", number: func(r *Record) *int64 { return &r.DeadlineUs }},
	{name: "slo_target_us", number: func(r *Record) *int64 { return &r.SLOTargetUs }, optional: true},
	{name: "server_input_tokens", number: func(r *Record) *int64 { return &r.ServerPromptTokens }},
	{name: "arrival_time_us", number: func(r *Record) *int64 { return &r.ArrivalUs }},
	{name: "send_time_us", number: func(r *Record) *int64 { return &r.SendUs }},
	{name: "first_chunk_time_us", number: func(r *Record) *int64 { return &r.FirstChunkUs }},
	{name: "last_chunk_time_us", number: func(r *Record) *int64 { return &r.LastChunkUs }},
	{name: "num_chunks", number: func(r *Record) *int64 { return &r.Chunks }},
	{name: "status", text: func(r *Record) *string { return &r.Status }},
	{name: "error_message", text: func(r *Record) *string { return &r.Error }},
	{name: "finish_reason", text: func(r *Record) *string { return &r.FinishReason }}, {name: "x_request_id", optional: true},
	{name: "adapter", optional: true}, {name: "think_time_us", number: func(r *Record) *int64 { return &r.ThinkUs }, optional: true},
}

func columnOf(name string) column {
	for _, c := range columns {
		if c.name == name {
			return c
		}
	}
	return column{name: name}
}
