package extract

import (
	"fmt"
	"sort"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// byError are the reasons that count towards the bad fraction; the others are
// drops by rule.
var byError = map[trace.Code]bool{
	CodeUnreadable: true, CodeLineTooLong: true, CodeExpansion: true, CodeBadAttribute: true,
	CodeMissingAttribute: true, CodeMissingID: true, CodeBadEvent: true, CodeNotOTLP: true, CodeNotUTF8: true,
}

// maxExamples is how many drops of each reason extract.json shows.
const maxExamples = 3

// account counts the records of one run folder.
type account struct {
	read, kept int64
	dropped    map[trace.Code]int64
	examples   map[trace.Code][]result.Example
	scopes     map[scopeKey]int64
	bytes      int64 // decompressed
	badBytes   int64
	lines      int64
	truncated  int64
	duplicates int64
	lostEvents int64
	badText    []string // places of replaced Unicode
	reject     func(Rejected) error
	err        error
}

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

func newAccount(reject func(Rejected) error) *account {
	return &account{dropped: map[trace.Code]int64{}, examples: map[trace.Code][]result.Example{}, scopes: map[scopeKey]int64{}, reject: reject}
}

// place names where a record stands.
type place struct {
	file      string
	line, col int64
}

func (p place) String() string {
	e := trace.SyntaxError{File: p.file, Line: p.line, Col: p.col}
	s := e.Error()
	return s[:len(s)-2] // without the ": " before an empty message
}

// drop counts n records dropped for one reason.
func (a *account) drop(code trace.Code, n int64, at place, format string, args ...any) {
	if n == 0 {
		return
	}
	a.dropped[code] += n
	want := len(a.examples[code]) < maxExamples
	if !want && a.reject == nil {
		return
	}
	what := fmt.Sprintf(format, args...)
	if want {
		a.examples[code] = append(a.examples[code], result.Example{Reason: code, Place: at.String(), What: what})
	}
	if a.reject != nil && a.err == nil {
		a.err = a.reject(Rejected{File: at.file, Line: at.line, Col: at.col, Reason: code, What: what, Records: n})
	}
}

// take counts what a batch lost, apart from its spans and KV events.
func (a *account) take(p *parsed, name string) {
	a.lines += p.lines
	a.bytes += p.bytes
	for _, f := range p.faults {
		a.read++
		a.badBytes += f.bytes
		if p.bytes == 0 || p.batch.form == formProto {
			a.bytes += f.bytes
		}
		if f.code == CodeUnreadable {
			a.truncated++
		}
		unit := ""
		if f.byMessage {
			unit = "message "
		}
		a.drop(f.code, 1, place{name, f.line, f.col}, "%s(byte %d) %s", unit, f.offset, f.msg)
	}
	if p.nul > 0 {
		a.read++
		a.drop(CodeNulPadding, 1, place{file: name, line: p.first + p.lines - 1}, "%d trailing NUL bytes", p.nul)
	}
	if n := p.msg.ignored; n > 0 {
		a.read += n
		a.drop(CodeIgnoredSignal, n, place{file: name, line: p.first}, "metrics or logs")
	}
	for _, line := range p.texts {
		a.badText = append(a.badText, fmt.Sprintf("%s:%d", name, line))
	}
}

// keep counts n records that made it into a table.
func (a *account) keep(n int64) { a.kept += n }

// seen counts a span and its events by scope and name.
func (a *account) seen(s *span) {
	a.read += 1 + s.events()
	a.scopes[scopeKey{s.scope, ""}]++
	for e, n := range s.counts {
		if n > 0 {
			a.scopes[scopeKey{s.scope, eventNames[e]}] += int64(n)
		}
	}
	for _, name := range s.others {
		a.scopes[scopeKey{s.scope, name}]++
	}
}

// records is the account as it stands in extract.json.
func (a *account) records() result.Records {
	r := result.Records{Read: a.read, Kept: a.kept, Dropped: map[string]int64{}}
	bad := int64(0)
	for code, n := range a.dropped {
		r.Dropped[string(code)] = n
		if byError[code] {
			bad += n
		}
	}
	r.BadFrac = badFrac(a.badBytes, a.bytes, bad, a.read)
	return r
}

func badFrac(badBytes, bytes, bad, read int64) float64 {
	return max(float64(badBytes)/float64(max(1, bytes)), float64(bad)/float64(max(1, read)))
}

func (a *account) scopeCounts() []result.ScopeCount {
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

func (a *account) exampleList() []result.Example {
	out := []result.Example{}
	for _, list := range a.examples {
		out = append(out, list...)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Reason < out[j].Reason })
	return out
}
