package trace

// This file has errors and findings with codes, and the place of a mistake in a file.

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Code is the name of one kind of drop, warning, finding or error. Other programs read codes, so they
// are added but never renamed.
//
// Every Code is declared as a constant of this type in the package that emits it and described in
// cmd/blis-train/codes.yaml. `blis-train explain` and docs/codes.md come from that file, and a test
// finds constants without an entry.
type Code string

// Finding is a coded message that does not stop the work: it is printed,
// written to the output file and shown in the report.
type Finding struct {
	Code    Code   `json:"code" yaml:"code"`
	Message string `json:"message" yaml:"message"`
	// Setting is the key of run.yaml that a recording or a log contradicts, of a finding about one.
	Setting string `json:"setting,omitempty" yaml:"setting,omitempty"`
}

// About returns the finding with the key of run.yaml that it contradicts.
func (f Finding) About(setting string) Finding {
	f.Setting = setting
	return f
}

// Findingf returns a Finding with the code and the formatted message.
func Findingf(code Code, format string, args ...any) Finding {
	return Finding{Code: code, Message: fmt.Sprintf(format, args...)}
}

// SyntaxError is an error with a place in an input: "file:line:col: msg". Line and Col count from 1; 0
// is unknown and not printed.
type SyntaxError struct {
	File      string
	Line, Col int64
	Code      Code
	Msg       string // what, got X, want Y
	Hint      string // one command or action to try; empty for none
}

// Error returns "file:line:col: message", without the parts that are unknown.
func (e *SyntaxError) Error() string {
	switch {
	case e.Line == 0:
		return fmt.Sprintf("%s: %s", e.File, e.Msg)
	case e.Col == 0:
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg)
	}
	place := fmt.Sprintf("%s:%d:%d", e.File, e.Line, e.Col)
	return strings.TrimPrefix(place, ":") + ": " + e.Msg // the caller may know the file alone
}

// Position returns the line and the column, both from 1, of the character at which a
// [json.SyntaxError] with the offset occurred. The offset includes that character.
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

// Error returns the code and the message.
func (e *Error) Error() string {
	if e.Code == "" {
		return e.Msg
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Msg)
}

// Errorf returns an Error with the code and the formatted message, without a hint.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// WithHint sets the hint and returns e.
func (e *Error) WithHint(hint string) *Error {
	e.Hint = hint
	return e
}

// hinted is an error to which [Hinted] added a hint.
type hinted struct {
	err  error
	hint string
}

// Error returns the text of the error without the hint.
func (e *hinted) Error() string { return e.err.Error() }

// Unwrap returns the error without the hint.
func (e *hinted) Unwrap() error { return e.err }

// Hinted returns err with a hint, which [HintOf] finds. The text of the error does not change.
func Hinted(err error, hint string) error { return &hinted{err, hint} }

// CodeOf returns the code of an error, or of one that it wraps; "" if it has none.
func CodeOf(err error) Code {
	if coded, ok := errors.AsType[*Error](err); ok {
		return coded.Code
	}
	if syntax, ok := errors.AsType[*SyntaxError](err); ok {
		return syntax.Code
	}
	return ""
}

// HintOf returns the outermost hint of an error; "" if it has none.
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
