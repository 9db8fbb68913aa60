package tracev2

// This file reads TraceV2, the trace format of BLIS.

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
	"unsafe"
)

// FirstColumn is the name of the first column of the CSV.
const FirstColumn = "request_id"

// required are the columns that every file must have.
var required = []string{FirstColumn, "input_tokens"}

// maxHeader is the largest size of the header, bytes.
const maxHeader = 1 << 20

// Reader reads a TraceV2 file request by request.
type Reader struct {
	Header  Header
	in      *bufio.Reader
	csv     *csv.Reader     // reads from the first quote on; nil before it
	fields  []string        // of the current line; valid until the next one
	columns []column        // of the file; a column that is not used has a name only
	used    []int           // places of the other columns
	start   int64           // lines of the file before the names of the columns
	before  int64           // lines read without the field csv, which counts its own from 1
	line    int64           // line of the row that was read last, in the file from 1
	rec     Record          // that row
	copies  strings.Builder // the piece of memory with the latest texts of copyOf
	history sessions        // for files whose sessions accumulate
}

// ErrHeaderOnly is the error for a file with a header and no rows, which are in another file.
var ErrHeaderOnly = errors.New("got a TraceV2 header without rows: name the CSV file of its requests as well")

// NewReader returns a reader of a file after it has read the header and the names of the columns.
// header is that of another file, or nil; a header in front of the rows takes precedence. name is
// the file's name for errors. Errors: tracev2_header, ErrHeaderOnly, and those of in.
func NewReader(in io.Reader, name string, header *Header) (*Reader, error) {
	r := &Reader{in: bufio.NewReaderSize(in, 1<<16), Header: Header{Version: 2}, history: sessions{}}
	text, rows, err := r.readPreamble()
	switch {
	case err != nil && err != io.EOF:
		return nil, err
	case !rows && !bytes.Contains(text, []byte("trace_version")):
		return nil, errors.New("not a TraceV2 file: got neither a header (trace_version) nor a request_id column")
	case len(bytes.TrimSpace(text)) > 0:
		if r.Header, err = ParseHeader(text, name); err != nil {
			return nil, err
		}
	case header != nil:
		r.Header = *header
	}
	if !rows {
		return r, ErrHeaderOnly
	}
	return r, r.readColumns()
}

// readColumns reads the names of the columns.
func (r *Reader) readColumns() error {
	names, err := r.nextFields()
	if err != nil {
		return fmt.Errorf("column names: %w", err)
	}
	for _, name := range names {
		name = strings.Clone(strings.TrimSpace(name))
		if r.Has(name) {
			return fmt.Errorf("column names: got %q twice", shortened(name))
		}
		c := columnOf(name)
		if c.isUsed() {
			r.used = append(r.used, len(r.columns))
		}
		r.columns = append(r.columns, c)
	}
	for _, name := range required {
		if !r.Has(name) {
			return fmt.Errorf("column names: got no %q, want it", name)
		}
	}
	return nil
}

// Has reports whether the file has the column name.
func (r *Reader) Has(name string) bool {
	return slices.ContainsFunc(r.columns, func(c column) bool { return c.name == name })
}

// Differ returns the columns that BLIS always writes and the file lacks, and the columns of the file that
// are not BLIS's.
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

// readPreamble reads up to the first line of the CSV and returns the text before it. rows is false
// if there is no CSV.
func (r *Reader) readPreamble() (text []byte, rows bool, err error) {
	for {
		// The CSV begins with the name of its first column.
		head, _ := r.in.Peek(len(FirstColumn) + 1)
		if string(head) == FirstColumn+"," {
			r.start = r.before
			return text, true, nil
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
			return nil, false, errors.New("not a TraceV2 file: got no request_id column")
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return text, false, err
		}
	}
}

// RowError is the error of one row. The rows after it can still be read.
type RowError struct{ Err error }

// Error returns the text of the error.
func (e *RowError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *RowError) Unwrap() error { return e.Err }

// Line returns the line in the file, from 1, of the row that was read last.
func (r *Reader) Line() int64 { return r.line }

// nextFields returns the fields of the next line, valid until the next call. It cuts lines without
// quotes at commas itself, which is faster. From the first quote on, and for a last line without a
// newline, encoding/csv reads the file.
func (r *Reader) nextFields() ([]string, error) {
	for r.csv == nil {
		line, err := r.in.ReadSlice('\n')
		if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
			return nil, err
		}
		if err != nil || bytes.IndexByte(line, '"') >= 0 { // the last line, a very long one, or one with quotes
			r.csv = csv.NewReader(io.MultiReader(bytes.NewReader(slices.Clone(line)), r.in))
			r.csv.FieldsPerRecord = -1
			r.csv.ReuseRecord = true
			break
		}
		r.before++
		if line = bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}); len(line) == 0 {
			continue // encoding/csv skips empty lines as well
		}
		text := unsafe.String(&line[0], len(line))
		from := 0
		r.line = r.before
		r.fields = r.fields[:0]
		for i := range len(text) {
			if text[i] == ',' {
				r.fields = append(r.fields, text[from:i])
				from = i + 1
			}
		}
		r.fields = append(r.fields, text[from:])
		return r.fields, nil
	}
	fields, err := r.csv.Read()
	if parse := (*csv.ParseError)(nil); errors.As(err, &parse) {
		r.line = r.before + int64(parse.StartLine)
		// The text of the error has lines of the CSV, whose first line has the names of the columns.
		earlier := int(r.before - r.start)
		parse.StartLine += earlier
		parse.Line += earlier
		return nil, &RowError{err}
	}
	if err == nil {
		line, _ := r.csv.FieldPos(0)
		r.line = r.before + int64(line)
	}
	return fields, err
}

// Read returns the next row. It returns io.EOF at the end, and a RowError for a row that is not a
// valid request.
func (r *Reader) Read() (Record, error) {
	r.rec = Record{}
	fields, err := r.nextFields()
	if err != nil {
		return r.rec, err
	}
	if len(fields) != len(r.columns) {
		return r.rec, &RowError{fmt.Errorf("got %d fields, want %d", len(fields), len(r.columns))}
	}
	for _, i := range r.used {
		if err := r.setField(&r.columns[i], fields[i]); err != nil {
			return r.rec, &RowError{fmt.Errorf("%s: %w", r.columns[i].name, err)}
		}
	}
	if err := r.rec.checkValues(); err != nil {
		return r.rec, &RowError{err}
	}
	if r.Header.Growth == accumulate {
		if err := r.history.addRound(&r.rec); err != nil {
			return r.rec, &RowError{err}
		}
	}
	return r.rec, nil
}

// maxTokens and maxUs are far above the tokens of any request and any clock (us). Sums of such
// values do not overflow.
const (
	maxTokens = 1 << 40
	maxUs     = 1 << 53
)

// checkValues returns an error if the row has no id, or a count or time beyond the limits.
func (r *Record) checkValues() error {
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

// setField sets the field of the record that belongs to column c from its text.
func (r *Reader) setField(c *column, text string) (err error) {
	switch {
	case c.text != nil:
		text = strings.TrimSpace(text)
		if text != c.last {
			c.last = r.copyOf(text)
		}
		*c.text(&r.rec) = c.last
	case c.number != nil:
		*c.number(&r.rec), _, err = parseInt(text)
	case c.name == streaming:
		text = strings.TrimSpace(text)
		r.rec.Streaming = strings.EqualFold(text, "true") || text == "1"
	case c.name == vllmPriority:
		r.rec.Priority.V, r.rec.Priority.OK, err = parseInt(text)
	}
	return err
}

// copyOf returns a copy of a text. Many copies share one piece of memory: a long file has a different text
// in every row, and the garbage collector would have to visit each copy.
func (r *Reader) copyOf(text string) string {
	const piece = 1 << 13
	from := r.copies.Len()
	if r.copies.Cap()-from < len(text) {
		r.copies.Reset()
		r.copies.Grow(max(piece, len(text)))
		from = 0
	}
	r.copies.WriteString(text)
	return r.copies.String()[from:]
}

// parseInt returns the integer in a field; 0 and false for an empty field.
func parseInt(text string) (v int64, ok bool, err error) {
	if v, err := strconv.Atoi(text); err == nil {
		return int64(v), true, nil
	}
	if text = strings.TrimSpace(text); text == "" {
		return 0, false, nil
	}
	v, err = strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, true, fmt.Errorf("got %.40q, want an integer", text)
	}
	return v, true, nil
}

// Columns that setField knows by name.
const (
	streaming    = "streaming"
	vllmPriority = "vllm_priority"
)

// column is one column of the CSV. text or number returns the field of a record for its values;
// both are nil for a column that is not used, and for those that setField handles by name.
type column struct {
	name     string
	text     func(*Record) *string
	number   func(*Record) *int64
	optional bool   // BLIS writes the column only if a record has a value
	last     string // the text of the row before, which an equal text shares
}

// isUsed reports whether a field of a record has the values of the column.
func (c *column) isUsed() bool {
	return c.text != nil || c.number != nil || c.name == streaming || c.name == vllmPriority
}

// columns are the columns that BLIS writes, in its order.
var columns = []column{
	{name: "request_id", text: func(r *Record) *string { return &r.RequestID }},
	{name: "client_id"},
	{name: "tenant_id"},
	{name: "slo_class", text: func(r *Record) *string { return &r.SLOClass }},
	{name: vllmPriority, optional: true},
	{name: "session_id", text: func(r *Record) *string { return &r.SessionID }},
	{name: "round_index", number: func(r *Record) *int64 { return &r.Round }},
	{name: "prefix_group", text: func(r *Record) *string { return &r.PrefixGroup }},
	{name: "prefix_length", number: func(r *Record) *int64 { return &r.PrefixTokens }},
	{name: streaming},
	{name: "input_tokens", number: func(r *Record) *int64 { return &r.SuffixTokens }},
	{name: "output_tokens", number: func(r *Record) *int64 { return &r.OutputTokens }},
	{name: "text_tokens"},
	{name: "image_tokens"},
	{name: "audio_tokens"},
	{name: "video_tokens"},
	{name: "reason_ratio"},
	{name: "model"},
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
	{name: "finish_reason", text: func(r *Record) *string { return &r.FinishReason }},
	{name: "x_request_id", optional: true},
	{name: "adapter", optional: true},
	{name: "think_time_us", number: func(r *Record) *int64 { return &r.ThinkUs }, optional: true},
}

// columnOf returns the entry of columns with the name, or one with a name only.
func columnOf(name string) column {
	for _, c := range columns {
		if c.name == name {
			return c
		}
	}
	return column{name: name}
}
