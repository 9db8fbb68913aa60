package forms

import (
	"bytes"
	"math"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// logDecoder finds the iterations in lines of a server's log. Nothing is
// expected at a line's start: two processes may write into one line, and
// collectors, colours and progress bars stand before the text.
type logDecoder struct {
	iterationLines
	plain []byte // the line without colours
}

// mostShown is how much of a torn iteration a message shows.
const mostShown = 120

// newLogDecoder reads the lines of a vLLM log.
func newLogDecoder() source.Decoder[*Iterations] {
	return &logDecoder{iterationLines: newIterationLines()}
}

// Texts of the two forms: up to 0.25 the engine core writes the line, from 0.26
// on the front end does, with the engine before it.
var (
	mark        = []byte("Iteration(")
	elapsedMark = []byte("iteration elapsed time:")
	engineMark  = []byte("Engine ")
	coreMark    = []byte("(EngineCore")
	byteMark    = []byte(`"MESSAGE":[`) // journald, when the text holds escape sequences
	statsMark   = []byte("Avg prompt throughput: ")
)

// rateLabel stands before the share of the prompt tokens of the last 1000 requests that the
// prefix cache held, in the line that vLLM logs every ten seconds (0.32.0, v1/metrics/stats.py).
const rateLabel = "Prefix cache hit rate: "

// HasIteration reports whether a text holds a pass of an engine's log.
func HasIteration(text []byte) bool {
	d, out := newLogDecoder(), &Iterations{}
	for line := range bytes.Lines(text) {
		if d.Line(line, out); len(out.Rows) > 0 && !out.Rows[len(out.Rows)-1].Rate.OK {
			return true
		}
	}
	return false
}

func (d *logDecoder) Line(line []byte, out *Iterations) *source.Error {
	other, _ := formOf(line)
	if other == nil && !bytes.Contains(line, mark) && !bytes.Contains(line, byteMark) {
		if bytes.Contains(line, elapsedMark) { // its beginning is lost
			out.Bad = append(out.Bad, source.BadLine{What: string(line[:min(len(line), mostShown)])})
			return nil
		}
		if before, stats, ok := bytes.Cut(line, statsMark); ok {
			text, _ := behind(stats, rateLabel)
			f := figures{text: text, ok: true}
			if v := f.decimal("%") / 100; f.ok && v <= 1 {
				out.Rows = append(out.Rows, row{Rate: trace.Some(v), Engine: d.text.Get(engineOf(before))})
			}
		}
		out.Other++
		return nil
	}
	rows, bad := len(out.Rows), len(out.Bad)
	at := leading(line)
	text, inner := unwrap(line)
	if other != nil {
		d.other(d.uncoloured(text), at.better(inner), out)
	} else {
		d.iterations(text, at.better(inner), out)
	}
	if len(out.Rows) == rows && len(out.Bad) == bad {
		out.Other++
	}
	return nil
}

// iterations reads every iteration of one line's text.
func (d *logDecoder) iterations(text []byte, outer stamp, out *Iterations) {
	text = d.uncoloured(text)
	for {
		at := bytes.Index(text, mark)
		if at < 0 {
			return
		}
		var f figures
		n, ok := f.read(text[at+len(mark):])
		if !ok {
			if digits(text[at+len(mark):]) > 0 || bytes.Contains(text[at:], elapsedMark) { // else another program's word
				out.Bad = append(out.Bad, source.BadLine{What: string(text[at:min(len(text), at+mostShown)])})
			}
			text = text[at+len(mark):]
			continue
		}
		before := text[:at]
		f.it.Form = trace.IterationLog
		outer.better(vllmStamp(before)).set(&f.it)
		out.Rows = append(out.Rows, row{Iteration: f.it, Engine: d.text.Get(engineOf(before))})
		text = text[at+len(mark)+n:]
	}
}

// uncoloured is text without ANSI sequences (ESC [ ... letter).
func (d *logDecoder) uncoloured(text []byte) []byte {
	if bytes.IndexByte(text, 0x1b) < 0 {
		return text
	}
	d.plain = d.plain[:0]
	for i := 0; i < len(text); i++ {
		if text[i] != 0x1b {
			d.plain = append(d.plain, text[i])
			continue
		}
		if i++; i < len(text) && text[i] == '[' {
			for i++; i < len(text) && (text[i] < 0x40 || text[i] > 0x7e); i++ {
			}
		}
	}
	return d.plain
}

// engineOf names the engine core that stands last before an iteration: `Engine
// NNN: ` of the front end, else `(EngineCore_DPk pid=N)`; the number alone, so
// that both forms agree.
func engineOf(before []byte) []byte {
	if at := bytes.LastIndex(before, engineMark); at >= 0 {
		rest := before[at+len(engineMark):]
		if n := digits(rest); n > 0 && bytes.Equal(bytes.TrimRight(rest[n:], " "), []byte(":")) {
			return logNumber(rest[:n])
		}
	}
	if at := bytes.LastIndex(before, coreMark); at >= 0 {
		if rest, ok := bytes.CutPrefix(before[at+len(coreMark):], []byte("_DP")); ok {
			if n := digits(rest); n > 0 {
				return logNumber(rest[:n])
			}
		}
	}
	return []byte("0")
}

func digits(b []byte) int {
	n := 0
	for n < len(b) && b[n]-'0' <= 9 {
		n++
	}
	return n
}

// logNumber is a decimal without leading zeros.
func logNumber(b []byte) []byte {
	for len(b) > 1 && b[0] == '0' {
		b = b[1:]
	}
	return b
}

// figures reads the text behind `Iteration(`.
type figures struct {
	it   trace.Iteration
	text []byte
	at   int
	ok   bool
}

// read fills it and returns the length of what it took.
func (f *figures) read(text []byte) (int, bool) {
	f.text, f.ok = text, true
	it := &f.it
	it.Index = f.integer("): ")
	it.ContextReqs = f.integer(" context requests, ")
	it.ContextTokens = f.integer(" context tokens, ")
	it.GenerationReqs = f.integer(" generation requests, ")
	it.GenerationTokens = f.integer(" generation tokens, iteration elapsed time: ")
	it.ElapsedUs = 1000 * f.decimal(" ms")
	if !f.ok {
		return 0, false
	}
	if it.Dummy = f.take(" (dummy)"); f.usage() {
		if f.take(", encoder inputs: ") {
			it.EncoderInputs = trace.Some(f.integer(""))
			if f.take(", encoder output embeddings: ") {
				it.EncoderOutputs = trace.Some(f.integer(""))
			}
		}
		it.Dummy = f.take(" (dummy)") || it.Dummy
	}
	return f.at, f.ok
}

// usage reads `, <device> KV cache usage: P%`; the device's word varies.
func (f *figures) usage() bool {
	const name = " KV cache usage: "
	rest := f.text[f.at:]
	at := bytes.Index(rest[:min(len(rest), 40)], []byte(name))
	if !bytes.HasPrefix(rest, []byte(", ")) || at < 0 {
		return false
	}
	start := f.at
	f.at += at + len(name)
	v := f.decimal("%")
	if !f.ok { // a torn end: the figures before it are whole
		f.at, f.ok = start, true
		return false
	}
	f.it.KVUsage = trace.Some(v / 100)
	return true
}

func (f *figures) take(word string) bool {
	if !f.ok || !bytes.HasPrefix(f.text[f.at:], []byte(word)) {
		return false
	}
	f.at += len(word)
	return true
}

// integer reads a count and the word behind it.
func (f *figures) integer(word string) int64 {
	if !f.ok {
		return 0
	}
	n := digits(f.text[f.at:])
	v, err := strconv.ParseInt(source.Text(f.text[f.at:f.at+n]), 10, 64)
	f.at += n
	f.ok = err == nil && f.take(word)
	return v
}

// decimal reads a finite number that is not negative, and the word behind it.
func (f *figures) decimal(word string) float64 {
	if !f.ok {
		return 0
	}
	n := digits(f.text[f.at:])
	if rest := f.text[f.at+n:]; n > 0 && len(rest) > 0 && rest[0] == '.' {
		n += 1 + digits(rest[1:])
	}
	v, err := strconv.ParseFloat(source.Text(f.text[f.at:f.at+n]), 64)
	f.at += n
	f.ok = err == nil && !math.IsInf(v, 0) && f.take(word)
	return v
}
