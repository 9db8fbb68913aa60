package source

// This file keeps the account of the records of a run folder: read, kept, and dropped for a reason,
// with examples and places (spec#wire-losses).

import (
	"fmt"
	"sort"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// ByError contains the reasons for drops that count as unreadable input. Records dropped for other
// reasons were readable but are not used.
var ByError = map[trace.Code]bool{CodeUnreadable: true, CodeCut: true, CodeOverLimit: true, CodeBadRecord: true, CodeNotOTLP: true}

// maxExamples is the number of drops that extract.json shows for each reason.
const maxExamples = 3

// Account counts the records of one run folder (spec#wire-losses).
type Account struct {
	Read, Kept int64                // records; Read is Kept and the sum of Dropped at the end
	Dropped    map[trace.Code]int64 // records by reason
	examples   map[trace.Code][]result.Example
	scopes     map[scopeKey]int64
	Bytes      int64                // decompressed
	BadBytes   int64                // of them unreadable
	Lines      int64                // lines or messages
	Truncated  int64                // of them unreadable
	Duplicates int64                // spans that came twice
	LostEvents int64                // span events that the producer dropped before writing
	BadText    []string             // places at which invalid Unicode was replaced
	Reject     func(Rejected) error // called with every drop; may be nil
	Err        error                // the first error of Reject
}

// scopeKey identifies an event by its name and the scope (instrumentation library) that recorded it.
type scopeKey struct{ scope, event string }

// Rejected is one line of --why-rejected: one or more records dropped for one
// reason at one place.
type Rejected struct {
	Run     string     `json:"run"`
	File    string     `json:"file"`
	Line    int64      `json:"line"`
	Col     int64      `json:"col,omitempty"`
	Reason  trace.Code `json:"reason"`
	What    string     `json:"what"`
	Records int64      `json:"records"`
}

// NewAccount returns an empty account. reject is called with every drop and may be nil.
func NewAccount(reject func(Rejected) error) *Account {
	return &Account{
		Dropped:  map[trace.Code]int64{},
		examples: map[trace.Code][]result.Example{},
		scopes:   map[scopeKey]int64{},
		Reject:   reject,
	}
}

// Place is where a record is in an input.
type Place struct {
	File      string
	Line, Col int64
}

// String returns the place in the form file:line:col.
func (p Place) String() string {
	e := trace.SyntaxError{File: p.File, Line: p.Line, Col: p.Col}
	s := e.Error()
	return s[:len(s)-2] // without the ": " before an empty message
}

// Drop counts n records dropped for one reason.
func (a *Account) Drop(code trace.Code, n int64, at Place, format string, args ...any) {
	if n == 0 {
		return
	}
	a.Dropped[code] += n
	isExample := len(a.examples[code]) < maxExamples
	if !isExample && a.Reject == nil {
		return
	}
	what := fmt.Sprintf(format, args...)
	if isExample {
		a.examples[code] = append(a.examples[code], result.Example{Reason: code, Place: at.String(), What: what})
	}
	if a.Reject != nil && a.Err == nil {
		a.Err = a.Reject(Rejected{File: at.File, Line: at.Line, Col: at.Col, Reason: code, What: what, Records: n})
	}
}

// Keep counts n records as kept in a table. A negative n takes back records that were dropped after
// they had been counted.
func (a *Account) Keep(n int64) { a.Kept += n }

// Scope counts n events of a name in a scope of spans. With an empty name it counts spans.
func (a *Account) Scope(scope, event string, n int64) { a.scopes[scopeKey{scope, event}] += n }

// Records returns the account as written to extract.json. BadFrac, the unreadable share, is the larger of
// that of the bytes and that of the records: a file cut in half may be one lost record.
func (a *Account) Records() result.Records {
	r := result.Records{Read: a.Read, Kept: a.Kept, Dropped: map[string]int64{}}
	bad := int64(0)
	for code, n := range a.Dropped {
		r.Dropped[string(code)] = n
		if ByError[code] {
			bad += n
		}
	}
	r.BadFrac = max(float64(a.BadBytes)/float64(max(1, a.Bytes)), float64(bad)/float64(max(1, a.Read)))
	return r
}

// ScopeCounts returns what Scope counted, sorted.
func (a *Account) ScopeCounts() []result.ScopeCount {
	out := []result.ScopeCount{}
	for k, n := range a.scopes {
		out = append(out, result.ScopeCount{Scope: k.scope, Event: k.event, Count: n})
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Scope != out[j].Scope {
			return out[i].Scope < out[j].Scope
		}
		return out[i].Event < out[j].Event
	})
	return out
}

// ExampleList returns the first drops of each reason, sorted by reason.
func (a *Account) ExampleList() []result.Example {
	out := []result.Example{}
	for _, list := range a.examples {
		out = append(out, list...)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Reason < out[j].Reason })
	return out
}

// Reasons for drops. CodeNotOTLP is also the code of the error of a refused file.
const (
	CodeUnreadable trace.Code = "unreadable"
	CodeCut        trace.Code = "file_cut"
	CodeOverLimit  trace.Code = "over_limit"
	CodeBadRecord  trace.Code = "bad_record"
	CodeDuplicate  trace.Code = "duplicate"
	CodeNulPadding trace.Code = "nul_padding"
	CodeNotOTLP    trace.Code = "not_otlp"
)
