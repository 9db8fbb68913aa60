package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Code names one kind of drop, warning, finding or rejection. Codes are part
// of the outputs' promise: add freely, never rename.
//
// Every Code is declared as a constant of this type beside the code that emits
// it and described in cmd/blis-train/codes.yaml; `blis-train explain` and docs/codes.md
// come from that file and a test finds constants without an entry.
type Code string

// Finding is a coded message that does not stop the work: it is printed,
// written to the output file and shown in the report.
type Finding struct {
	Code    Code   `json:"code" yaml:"code"`
	Message string `json:"message" yaml:"message"`
}

// Findingf builds a Finding.
func Findingf(code Code, format string, args ...any) Finding {
	return Finding{Code: code, Message: fmt.Sprintf(format, args...)}
}

// SyntaxError is a bad place in an input: "file:line:col: msg". Line and Col
// count from 1; 0 means unknown and is left out.
type SyntaxError struct {
	File      string
	Line, Col int64
	Code      Code
	Msg       string // what, got X, want Y
	Hint      string // one command or action to try; empty for none
}

func (e *SyntaxError) Error() string {
	switch {
	case e.Line == 0:
		return fmt.Sprintf("%s: %s", e.File, e.Msg)
	case e.Col == 0:
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Msg)
}

// Position is the line and the column, both from 1, of the last of the first offset bytes
// of a text: of the character that a [json.SyntaxError] of that offset means.
func Position(text []byte, offset int64) (line, col int64) {
	before := text[:min(offset, int64(len(text)))]
	line = int64(bytes.Count(before, []byte("\n"))) + 1
	col = int64(len(before) - bytes.LastIndexByte(before, '\n') - 1)
	return line, max(1, col)
}

// Error is a coded failure without a place in a file.
type Error struct {
	Code Code
	Msg  string
	Hint string
}

func (e *Error) Error() string {
	if e.Code == "" {
		return e.Msg
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Msg)
}

// Errorf builds an Error without a hint.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// WithHint sets the hint and returns e.
func (e *Error) WithHint(hint string) *Error {
	e.Hint = hint
	return e
}

// hinted is an error with a hint of its own.
type hinted struct {
	err  error
	hint string
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

// Hinted adds a hint to an error; its text stays.
func Hinted(err error, hint string) error { return &hinted{err, hint} }

// CodeOf is the code of an error; "" where there is none.
func CodeOf(err error) Code {
	if coded, ok := errors.AsType[*Error](err); ok {
		return coded.Code
	}
	if syntax, ok := errors.AsType[*SyntaxError](err); ok {
		return syntax.Code
	}
	return ""
}

// HintOf is the hint of an error, the outermost one; "" where there is none.
func HintOf(err error) string {
	if added, ok := errors.AsType[*hinted](err); ok {
		return added.hint
	}
	if syntax, ok := errors.AsType[*SyntaxError](err); ok && syntax.Hint != "" {
		return syntax.Hint
	}
	if coded, ok := errors.AsType[*Error](err); ok {
		return coded.Hint
	}
	return ""
}

// Thousands prints a count, thousands apart, as all messages and tables do.
func Thousands(n int64) string {
	if n < 0 {
		return "-" + Thousands(-n)
	}
	return Grouped(strconv.FormatInt(n, 10))
}

// Grouped puts a comma between the thousands of some digits.
func Grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// UnmarshalJSON is that of encoding/json for texts in which no object has a key twice.
func UnmarshalJSON(text []byte, v any) error {
	err := json.Unmarshal(text, v)
	if e := TwiceKey(text); err == nil && e != nil {
		err = fmt.Errorf("%d:%d: %s", e.Line, e.Col, e.Msg)
	}
	return err
}

// mostListed is how many keys of an object are compared one by one.
const mostListed = 24

// TwiceKey is the error of a valid JSON text of which an object has a key twice: JSON leaves open
// which of them counts.
func TwiceKey(text []byte) *SyntaxError {
	type object struct {
		list []string
		all  map[string]bool
	}
	var open []*object // nil for a list
	isKey := false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '{':
			open, isKey = append(open, &object{}), true
		case '[':
			open, isKey = append(open, nil), false
		case '}', ']':
			open, isKey = open[:max(0, len(open)-1)], false
		case ',':
			isKey = len(open) > 0 && open[len(open)-1] != nil
		case '"':
			from := i + 1
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			if !isKey {
				continue
			}
			isKey = false
			o := open[len(open)-1]
			key := string(text[from:min(i, len(text))])
			isTwice := o.all[key]
			for _, k := range o.list {
				isTwice = isTwice || k == key
			}
			if isTwice {
				line, col := Position(text, int64(i))
				return &SyntaxError{Line: line, Col: col, Msg: fmt.Sprintf("got the key %.40q twice in one object", key)}
			}
			if o.list = append(o.list, key); len(o.list) > mostListed && o.all == nil {
				o.all = map[string]bool{}
			}
			if o.all != nil {
				for _, k := range o.list {
					o.all[k] = true
				}
				o.list = o.list[:0]
			}
		}
	}
	return nil
}

// YAMLError turns an error of the YAML library into a place in file and a
// message in our form; of several errors it keeps the first. key is the unknown
// key the error is about, "" for every other error.
func YAMLError(file string, err error) (e *SyntaxError, key string) {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	msg = strings.TrimSpace(strings.TrimPrefix(msg, "unmarshal errors:"))
	msg, _, _ = strings.Cut(msg, "\n")
	e = &SyntaxError{File: file, Msg: msg}
	if n, _ := fmt.Sscanf(msg, "line %d:", &e.Line); n == 1 {
		_, e.Msg, _ = strings.Cut(msg, ": ")
	}
	if err == io.EOF {
		e.Msg = "got an empty file"
	}
	if name, rest, ok := strings.Cut(strings.TrimPrefix(e.Msg, "field "), " not found in type "); ok && rest != "" {
		e.Msg = fmt.Sprintf("unknown key %q", name)
		return e, name
	}
	if value, kind, ok := strings.Cut(strings.TrimPrefix(e.Msg, "cannot unmarshal "), " into "); ok {
		tag, text, scalar := strings.Cut(value, " ")
		got := "a list"
		switch {
		case scalar:
			got = fmt.Sprintf("%q", strings.Trim(text, "`"))
		case tag == "!!map":
			got = "a mapping"
		}
		e.Msg = fmt.Sprintf("got %s, want %s", got, kindInWords(kind))
	}
	return e, ""
}

// kindInWords names a Go type as a reader of YAML knows it.
func kindInWords(kind string) string {
	switch {
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "an integer"
	case strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "bool":
		return "true or false"
	case kind == "string":
		return "text"
	case strings.HasPrefix(kind, "[]"):
		return "a list"
	}
	return "a mapping"
}

// OneOf lists names for "want one of": "a", "a or b", "a, b or c".
func OneOf[T ~string](names []T) string {
	var b strings.Builder
	for i, name := range names {
		switch {
		case i > 0 && i == len(names)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(name))
	}
	return b.String()
}

// Opt is a value that may be unknown. The zero Opt is unknown; on disk it is null.
type Opt[T any] struct {
	V  T
	OK bool
}

// Some returns a known value.
func Some[T any](v T) Opt[T] { return Opt[T]{V: v, OK: true} }

// Or returns the value, or def when unknown.
func (o Opt[T]) Or(def T) T {
	if o.OK {
		return o.V
	}
	return def
}

// MarshalJSON writes null for unknown.
func (o Opt[T]) MarshalJSON() ([]byte, error) {
	if !o.OK {
		return []byte("null"), nil
	}
	return json.Marshal(o.V)
}

// UnmarshalJSON reads null as unknown.
func (o *Opt[T]) UnmarshalJSON(b []byte) error {
	if bytes.Equal(bytes.TrimSpace(b), []byte("null")) {
		*o = Opt[T]{}
		return nil
	}
	o.OK = true
	return json.Unmarshal(b, &o.V)
}

// MarshalYAML writes null for unknown.
func (o Opt[T]) MarshalYAML() (any, error) {
	if !o.OK {
		return nil, nil
	}
	return o.V, nil
}
