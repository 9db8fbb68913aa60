package workload

// This file recognises the format of a workload file and has what the readers share. A file is
// given as bytes; name and line are for error messages.

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Read reads a workload file of a public format, or a generator; the other result is nil. name is
// for messages.
func Read(data []byte, name string) (*Workload, *Generator, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	head, _, _ := bytes.Cut(data, []byte("\n"))
	first := strings.TrimSpace(string(head))
	read := readTraceV2
	switch { // the order matters: a table of lengths, for example, has no mark of its own
	case strings.HasPrefix(first, "{") && !isGeneratorJSON(data):
		read = readJSON
	case isAzure(first):
		read = readAzure
	case IsTraceV2(data): // read is set
	case isLengthTable(first):
		read = readLengthTable
	case isOtherTable(first):
		return nil, nil, &trace.SyntaxError{File: name, Line: 1, Code: codeBadWorkload,
			Msg:  "columns: got " + first + ", want prompt and output (tokens), and arrival (seconds) if requests do not come all at once",
			Hint: "name the columns so in the first line, with commas between them; those of Azure's and Vidur's files are known too"}
	case len(bytes.TrimSpace(data)) == 0:
		return nil, nil, &trace.SyntaxError{File: name, Code: codeBadWorkload,
			Msg: "workload: got an empty file, want requests"}
	case isSpecV2(data):
		g, err := loadSpecV2(data, name)
		return nil, g, err
	default:
		g, err := loadGenerator(bytes.NewReader(data), name)
		return nil, g, err
	}
	w, err := read(data, name)
	return w, nil, err
}

// isGeneratorJSON reports whether a file is one JSON object with a key of a generator (arrivals, stages) or of
// BLIS's workload-spec (version, clients). Both are YAML formats and every JSON document is YAML, so their YAML
// readers read it; other JSON files are lists of requests, for readJSON.
func isGeneratorJSON(data []byte) bool {
	var keys map[string]json.RawMessage
	if json.Unmarshal(data, &keys) != nil {
		return false // several objects, or none
	}
	for _, key := range []string{"arrivals", "stages", "clients", "version"} {
		if _, ok := keys[key]; ok {
			return true
		}
	}
	return false
}

// badLine returns an error in a line of a file.
func badLine(name string, line int, format string, args ...any) error {
	e := trace.Errorf(codeBadWorkload, format, args...)
	return &trace.SyntaxError{File: name, Line: int64(line), Code: codeBadWorkload, Msg: e.Msg}
}

// addFromLine adds a request that was read from a line of a file; it returns an error if its tokens
// or its arrival are out of range.
func (w *Workload) addFromLine(name string, line int, q sim.Request) error {
	if why := tokenRange.Check("tokens", float64(max(q.PromptTokens, q.OutputTokens))); why != "" {
		return badLine(name, line, "%s", why)
	}
	if q.ArrivalUs > sim.LatestUs {
		return badLine(name, line, "arrival: got a time beyond %d us, want at most that", sim.LatestUs)
	}
	w.addRequest(q)
	return nil
}

// earliestWallUs is September 2001 in us since 1970: a later arrival is a stamp of the wall clock.
const earliestWallUs = 1e15

// startAtFirst moves the requests of a part of a longer trace, or of a clock that began before it, so that the first of
// them arrives at 0: the time before it is not simulated time, and throughput is not counted over it. A part is known by
// its first arrival, which is later than twice the longest gap between two others. Stamps of the wall clock stay: the
// summary of a simulation counts from the first.
func (w *Workload) startAtFirst() {
	times := make([]int64, len(w.Requests))
	for i := range w.Requests {
		times[i] = w.Requests[i].ArrivalUs
	}
	slices.Sort(times)
	longest := int64(0)
	for i := 1; i < len(times); i++ {
		longest = max(longest, times[i]-times[i-1])
	}
	if len(times) < 3 || times[0] <= 2*longest || times[0] >= earliestWallUs {
		return
	}
	for i := range w.Requests {
		w.Requests[i].ArrivalUs -= times[0]
		if w.Requests[i].AbortAtUs.OK {
			w.Requests[i].AbortAtUs.V -= times[0]
		}
	}
}

// tokenRange is the range of tokens of a request (spec#value-limits).
var tokenRange, _ = trace.RangeOf("", "tokens")

// checkNotEmpty returns the workload, or an error if it has no requests.
func (w *Workload) checkNotEmpty(name string) (*Workload, error) {
	if len(w.Requests) == 0 {
		return nil, &trace.SyntaxError{File: name, Code: codeBadWorkload,
			Msg: "workload: got no request, want at least one"}
	}
	return w, nil
}

// csvRow is a record of a CSV file with a header line.
type csvRow struct {
	file    string
	line    int
	columns map[string]int // index by name
	fields  []string
	reader  *csv.Reader // has the positions of the fields
}

// field returns the value in the column with a name; "" if the file or the record does not have it.
func (r *csvRow) field(column string) string {
	i, ok := r.columns[column]
	if !ok || i >= len(r.fields) {
		return ""
	}
	return strings.TrimSpace(r.fields[i])
}

// fail returns an error about the value in a column, with its place; of a record that ends before the column the place
// is its last value.
func (r *csvRow) fail(column, format string, args ...any) error {
	line, col := r.reader.FieldPos(min(r.columns[column], len(r.fields)-1))
	return &trace.SyntaxError{File: r.file, Line: int64(line), Col: int64(col), Code: codeBadWorkload,
		Msg: column + ": " + fmt.Sprintf(format, args...)}
}

// readCSV calls each for every record of a CSV file with a header line. required are the columns without which the file
// is an error.
func readCSV(data []byte, name string, required []string, each func(r *csvRow) error) error {
	r := csv.NewReader(bytes.NewReader(data))
	r.FieldsPerRecord = -1
	r.ReuseRecord = true
	head, err := r.Read()
	if err != nil {
		return badLine(name, 1, "header: got %v, want a CSV header", err)
	}
	row := &csvRow{file: name, columns: map[string]int{}, reader: r}
	for i, c := range head {
		c = strings.TrimSpace(c)
		if _, isTwice := row.columns[c]; isTwice && slices.Contains(required, c) {
			_, col := r.FieldPos(i)
			return &trace.SyntaxError{File: name, Line: 1, Col: int64(col), Code: codeBadWorkload,
				Msg: fmt.Sprintf("header: got column %q twice, want it once", c)}
		}
		row.columns[c] = i
	}
	inHeader := len(head)
	for _, c := range required {
		if _, ok := row.columns[c]; !ok {
			return badLine(name, 1, "header: got no column %q, want it", c)
		}
	}
	for {
		row.fields, err = r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil { // a record that cannot be read has no field to ask the line of
			e := &trace.SyntaxError{File: name, Code: codeBadWorkload, Msg: fmt.Sprintf("row: got %v, want CSV", err)}
			if parse := (*csv.ParseError)(nil); errors.As(err, &parse) {
				e.Line = int64(parse.Line)
				e.Col = int64(parse.Column)
				e.Msg = fmt.Sprintf("row: got %v, want CSV", parse.Err)
			}
			return e
		}
		row.line, _ = r.FieldPos(0)
		if len(row.fields) > inHeader { // a comma within a number, or a column without a name
			_, col := r.FieldPos(inHeader)
			return &trace.SyntaxError{File: name, Line: int64(row.line), Col: int64(col), Code: codeBadWorkload,
				Msg: fmt.Sprintf("row: got %d fields, want the %d of the header", len(row.fields), inHeader)}
		}
		if err := each(row); err != nil {
			return err
		}
	}
}

// unread is the value of a key that a format has and this package does not support. It has the
// position of the value, or zeros if the key is absent, null, false or an empty text, which change
// nothing.
type unread struct{ Line, Col int }

// UnmarshalYAML records the position of the value.
func (u *unread) UnmarshalYAML(n *yaml.Node) error {
	off := n.Kind == yaml.ScalarNode &&
		(n.Tag == "!!null" || n.Value == "" || n.Tag == "!!bool" && strings.EqualFold(n.Value, "false"))
	if !off {
		u.Line, u.Col = n.Line, n.Column
	}
	return nil
}
