package enginelog

import (
	"bytes"
	"math"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file finds the passes in the lines of an engine's log (spec#wire-iterations,
// spec#wire-other-engines). Which lines are read is the table lineForms; what is special to an
// engine is in vllmlines.go, sglanglines.go and tensorrtlines.go.

// lineForms are the lines that are read. The first whose mark a line contains reads it.
var lineForms = []*lineForm{
	&vllmIteration,
	&vllmStatistics,
	&vllmDrafts,
	&sglangPrefill,
	&sglangDecode,
	&tensorrtLine,
	&tensorrtStatistics,
}

// lineForm is one kind of log line: a text (the mark) that each record contains, and the figures of the
// record with the texts before them. A line may contain several records, because two processes may write
// into one line. A record ends at the mark of the next one or, if figures come before the mark, at the end
// of the line or JSON object.
type lineForm struct {
	form        string // as trace.Iteration.Form; "" for statistics, which are no pass
	mark        []byte
	isMarkFirst bool // the mark comes before all figures of the record
	isJSON      bool // records are JSON objects, in arrays or alone

	// stamp reads the time that the engine itself writes, from the text before and of the
	// record; nil where that time is no end of a pass.
	stamp func(before, text []byte) stamp

	// engine reads which engine or rank made the pass and which process wrote the line. No
	// engine: a copy that another rank wrote of the same pass.
	engine func(before, text []byte) (engine, process []byte)

	fields []lineField
}

// lineField is a figure of a line.
type lineField struct {
	label      string // text before it (behindLabel)
	otherLabel string // that other versions have; "" for none
	unit       string // text behind it
	isNeeded   bool   // without it there is no record
	value      valueKind
	set        func(r *passRecord, v float64)
}

// valueKind limits the values of a figure; the least is 0.
type valueKind struct {
	max     float64
	isWhole bool
}

var (
	count        = valueKind{max: 1 << 40, isWhole: true}
	passIndex    = valueKind{max: 1 << 53, isWhole: true}
	milliseconds = valueKind{max: 1e9}
	rate         = valueKind{max: 1e9}
	fraction     = valueKind{max: 1}
	percent      = valueKind{max: 100}
)

// setIndex and the functions below set a field that several forms of lines have.
func setIndex(r *passRecord, v float64) { r.Index = int64(v) }

// setElapsedMs sets the elapsed time of the pass from ms.
func setElapsedMs(r *passRecord, v float64) { r.ElapsedUs = 1000 * v }

// setContextReqs sets the number of requests with prompt tokens.
func setContextReqs(r *passRecord, v float64) { r.ContextReqs = int64(v) }

// setContextTokens sets the prompt tokens that the pass computed.
func setContextTokens(r *passRecord, v float64) { r.ContextTokens = int64(v) }

// setContextKVTokens sets the tokens that the requests with prompt tokens had in the KV cache before.
func setContextKVTokens(r *passRecord, v float64) { r.ContextKVTokens = trace.Some(int64(v)) }

// setGenerationReqs sets the number of decoding requests.
func setGenerationReqs(r *passRecord, v float64) { r.GenerationReqs = int64(v) }

// setGenerationTokens sets the tokens that the pass computed for decoding requests.
func setGenerationTokens(r *passRecord, v float64) { r.GenerationTokens = int64(v) }

// setDecodeKVTokens sets the tokens that the decoding requests had in the KV cache.
func setDecodeKVTokens(r *passRecord, v float64) { r.DecodeKVTokens = trace.Some(int64(v)) }

// setQueuedReqs sets the number of waiting requests.
func setQueuedReqs(r *passRecord, v float64) { r.QueuedContext = trace.Some(int64(v)) }

// setKVUsage sets the share of the KV cache in use.
func setKVUsage(r *passRecord, v float64) { r.KVUsage = trace.Some(v) }

// setDecodes sets the generation requests of an engine that generates one token for each.
func setDecodes(r *passRecord, v float64) {
	r.GenerationReqs = int64(v)
	r.GenerationTokens = int64(v)
}

// formOf returns the form of the records that a line contains; nil for other lines.
func formOf(line []byte) *lineForm {
	for _, f := range lineForms {
		if bytes.Contains(line, f.mark) {
			return f
		}
	}
	return nil
}

// logDecoder finds the passes in lines of a server's log. Nothing is expected at the start of a
// line: collectors, colours and progress bars come before the text.
type logDecoder struct {
	passDecoder
	plain []byte // buffer for a line without colours
}

// newLogDecoder returns a decoder of the lines of a server's log.
func newLogDecoder() source.Decoder[*passLines] {
	return &logDecoder{passDecoder: newPassDecoder()}
}

// HasPass reports whether a line contains a pass of an engine.
func HasPass(line []byte) bool {
	out := &passLines{}
	newLogDecoder().Line(line, out)
	for _, r := range out.Rows {
		if !r.isStatistics() {
			return true
		}
	}
	return false
}

// StampOfPass returns the stamp of the first pass in a line, ns, and whether it counts from 1970 UTC, as in
// [trace.Iteration]; ok is false for a line without a pass, or with a pass without a stamp.
func StampOfPass(line []byte) (ns int64, isWall, ok bool) {
	out := &passLines{}
	newLogDecoder().Line(line, out)
	for _, r := range out.Rows {
		if !r.isStatistics() {
			return r.StampNs.V, r.StampWall, r.StampNs.OK
		}
	}
	return 0, false, false
}

// HasStatistics reports whether a line is one of vLLM's statistics.
func HasStatistics(line []byte) bool { return bytes.Contains(line, vllmStatistics.mark) }

// mostShown is how much of a torn line a message shows, bytes.
const mostShown = 120

// journalBytes is how journald writes a text with escape sequences: as a list of its bytes, in which no
// mark can be found before they are decoded.
var journalBytes = []byte(`"MESSAGE":[`)

// Line reads the records of one line into out and returns nil. A line without a record counts as
// other. Most lines of a log have none, so a mark is searched for before anything else is done.
func (d *logDecoder) Line(line []byte, out *passLines) *source.Error {
	rows := len(out.Rows)
	bad := len(out.Bad)
	switch {
	case formOf(line) != nil || bytes.Contains(line, journalBytes):
		text, jsonStamp := unwrap(line)
		text = d.withoutColours(text)
		if f := formOf(text); f != nil {
			d.readRecords(f, text, lineStamp(line).finer(jsonStamp), out)
		}
	case bytes.Contains(line, elapsedMark):
		// The beginning of the line is lost, and with it the mark.
		out.Bad = append(out.Bad, source.BadLine{What: string(line[:min(len(line), mostShown)])})
	}
	if len(out.Rows) == rows && len(out.Bad) == bad {
		out.Other++
	}
	return nil
}

// withoutColours returns the text without ANSI sequences (ESC [ ... letter).
func (d *logDecoder) withoutColours(text []byte) []byte {
	const escape = 0x1b
	if bytes.IndexByte(text, escape) < 0 {
		return text
	}
	d.plain = d.plain[:0]
	for i := 0; i < len(text); i++ {
		if text[i] != escape {
			d.plain = append(d.plain, text[i])
			continue
		}
		i++
		if i < len(text) && text[i] == '[' {
			i++
			for i < len(text) && (text[i] < 0x40 || text[i] > 0x7e) { // up to the final letter
				i++
			}
		}
	}
	return d.plain
}

// readRecords reads the records of a line, all of one form. outer is the stamp that a collector or logger
// gave the line.
func (d *logDecoder) readRecords(f *lineForm, text []byte, outer stamp, out *passLines) {
	if f.isJSON {
		for _, object := range jsonObjects(text) {
			d.readRecord(f, nil, object, outer, out)
		}
		return
	}
	for from := 0; from < len(text); {
		// A record ends where the next mark begins.
		mark := from + bytes.Index(text[from:], f.mark)
		to := len(text)
		if next := bytes.Index(text[mark+len(f.mark):], f.mark); next >= 0 {
			to = mark + len(f.mark) + next
		}
		if f.isMarkFirst {
			d.readRecord(f, text[:mark], text[mark:to], outer, out)
		} else { // figures may come before the mark
			d.readRecord(f, text[from:mark], text[from:to], outer, out)
		}
		from = to
	}
}

// readRecord reads one record, whose figures are in text; before is the line up to it.
func (d *logDecoder) readRecord(f *lineForm, before, text []byte, outer stamp, out *passLines) {
	var r passRecord
	engine, process := f.engine(before, text)
	problem, isRecord := f.parse(text, &r)
	isStatistics := f.form == ""
	switch {
	case !isRecord || engine == nil || isStatistics && !r.isStatistics():
		return // another program's words, or a copy of another rank's
	case problem != "":
		out.Bad = append(out.Bad, source.BadLine{What: problem})
		return
	}
	r.Form = f.form
	if f.stamp != nil {
		outer.finer(f.stamp(before, text)).set(&r.Iteration)
	}
	if f.form != trace.IterationLog && !isStatistics { // vLLM's engine core keeps its bare number
		engine = append([]byte(f.form+" "), engine...)
	}
	r.Engine = d.names.Get(engine)
	r.Process = d.names.Get(process)
	out.Rows = append(out.Rows, r)
}

// parse sets the figures of a record in r. problem is the name of the one that is wrong; "" if none
// is. isRecord is false for another text with the same mark, in which no figure is found.
func (f *lineForm) parse(text []byte, r *passRecord) (problem string, isRecord bool) {
	behindMark := text[min(len(text), len(f.mark)):] // of forms with isMarkFirst
	switch f.form {
	case trace.IterationLog:
		r.Dummy = bytes.Contains(text, []byte(" (dummy)"))
		if digits(behindMark) == 0 && !bytes.Contains(text, elapsedMark) {
			return "", false // another program's
		}
	case trace.IterationSGLang:
		r.Index = sglangIndex(behindMark)
	default:
		r.Index = unnumbered
	}
	found := false
	for i := range f.fields {
		field := &f.fields[i]
		figure, isThere := field.find(text)
		if !isThere {
			if field.isNeeded && problem == "" {
				problem = "no " + field.label
			}
			continue
		}
		found = true
		v, isKnown, ok := field.parse(figure)
		if !ok {
			shown := min(len(figure), figureLength(figure)+len(field.unit), mostShown)
			return field.label + strconv.Quote(string(figure[:shown])), true
		}
		if isKnown {
			field.set(r, v)
		}
	}
	if problem == "" && (r.GenerationReqs < 0 || r.ContextReqs > r.ContextTokens) {
		problem = "counts that contradict each other"
	}
	return problem, found
}

// find returns the text behind the label of a figure, without leading spaces.
func (l *lineField) find(text []byte) ([]byte, bool) {
	figure, ok := behindLabel(text, l.label)
	if !ok && l.otherLabel != "" {
		figure, ok = behindLabel(text, l.otherLabel)
	}
	return bytes.TrimLeft(figure, " "), ok
}

// parse returns the number at the start of a text. isKnown is false if the engine wrote that it
// does not know the figure, or if the line is cut there and the figure is not needed. ok is false
// if there is no number.
func (l *lineField) parse(figure []byte) (v float64, isKnown, ok bool) {
	isNull := bytes.HasPrefix(figure, []byte("N/A")) || bytes.HasPrefix(figure, []byte("null"))
	if isNull && !l.isNeeded {
		return 0, false, true
	}
	n := figureLength(figure)
	hasUnit := bytes.HasPrefix(figure[n:], []byte(l.unit))
	if !hasUnit && !l.isNeeded && n == len(figure) {
		return 0, false, true
	}
	v, err := strconv.ParseFloat(source.Text(figure[:n]), 64)
	switch {
	case err != nil || !hasUnit || figure[0] == '+':
		return 0, false, false
	case !(v >= 0 && v <= l.value.max) || l.value.isWhole && v != math.Trunc(v):
		return 0, false, false
	}
	return v, true, true
}

// figureLength returns how many bytes of a text may belong to the number it begins with: digits, points,
// signs and exponents. Whether they are a number is decided by ParseFloat.
func figureLength(text []byte) int {
	n := 0
	for n < len(text) && (text[n]-'0' <= 9 || bytes.IndexByte([]byte(".-+eE"), text[n]) >= 0) {
		n++
	}
	return n
}

// behindLabel returns the text behind a label. A label that is a word must not be the end of a longer
// one: before it is the beginning of the text, a comma, a point or a bracket.
func behindLabel(text []byte, label string) ([]byte, bool) {
	for from := 0; ; {
		i := bytes.Index(text[from:], []byte(label))
		if i < 0 {
			return nil, false
		}
		at := from + i
		isWord := label[0] != ' ' && label[0] != ')' // others cannot be the end of a longer word
		before := bytes.TrimRight(text[:at], " ")
		if !isWord || len(before) == 0 || bytes.IndexByte([]byte(",.{[]"), before[len(before)-1]) >= 0 {
			return text[at+len(label):], true
		}
		from = at + len(label)
	}
}

// jsonObjects returns the outermost JSON objects of a line; one that is cut is the last.
func jsonObjects(text []byte) [][]byte {
	var out [][]byte
	depth := 0
	from := 0
	for i, b := range text {
		switch {
		case b == '{':
			if depth == 0 {
				from = i
			}
			depth++
		case b == '}' && depth > 0:
			depth--
			if depth == 0 {
				out = append(out, text[from:i+1])
			}
		}
	}
	if depth > 0 {
		out = append(out, text[from:])
	}
	return out
}

// digits returns how many decimal digits a text begins with.
func digits(b []byte) int {
	n := 0
	for n < len(b) && b[n]-'0' <= 9 {
		n++
	}
	return n
}

// withoutZeros returns a decimal number without leading zeros.
func withoutZeros(b []byte) []byte {
	for len(b) > 1 && b[0] == '0' {
		b = b[1:]
	}
	return b
}
