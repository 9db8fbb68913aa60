package forms

import (
	"bytes"
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// logDecoder finds the passes in lines of a server's log. Nothing is expected at a line's
// start: two processes may write into one line, and collectors, colours and progress bars
// stand before the text.
type logDecoder struct {
	iterationLines
	plain []byte // the line without colours
}

// mostShown is how much of a torn line a message shows.
const mostShown = 120

// newLogDecoder reads the lines of a server's log.
func newLogDecoder() source.Decoder[*Iterations] {
	return &logDecoder{iterationLines: newIterationLines()}
}

// Texts of vLLM's lines: up to 0.25 the engine core writes them, from 0.26 on the front end does,
// with the engine before them.
var (
	elapsedMark = []byte("iteration elapsed time:")
	engineMark  = []byte("Engine ")
	coreMark    = []byte("(EngineCore")
	frontMarks  = [][]byte{[]byte("(APIServer"), []byte("(ApiServer_")} // one, several
	byteMark    = []byte(`"MESSAGE":[`)                                 // journald, when the text holds escape sequences
)

// HasIteration reports whether a line holds a pass of an engine's log.
func HasIteration(line []byte) bool {
	out := &Iterations{}
	newLogDecoder().Line(line, out)
	return slices.ContainsFunc(out.Rows, func(r row) bool { return !r.Rate.OK })
}

func (d *logDecoder) Line(line []byte, out *Iterations) *source.Error {
	rows, bad := len(out.Rows), len(out.Bad)
	if formOf(line) != nil || bytes.Contains(line, byteMark) {
		text, inner := unwrap(line)
		text = d.uncoloured(text)
		if f := formOf(text); f != nil {
			d.passes(f, text, leading(line).better(inner), out)
		}
	} else if bytes.Contains(line, elapsedMark) { // its beginning is lost
		out.Bad = append(out.Bad, source.BadLine{What: string(line[:min(len(line), mostShown)])})
	}
	if len(out.Rows) == rows && len(out.Bad) == bad {
		out.Other++
	}
	return nil
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
// that both forms agree. Process is who wrote the line, nothing where it does not say.
func engineOf(before, _ []byte) (engine, process []byte) {
	if at := bytes.LastIndex(before, engineMark); at >= 0 {
		rest := before[at+len(engineMark):]
		if n := digits(rest); n > 0 && bytes.Equal(bytes.TrimRight(rest[n:], " "), []byte(":")) {
			front := max(bytes.LastIndex(before, frontMarks[0]), bytes.LastIndex(before, frontMarks[1]))
			return logNumber(rest[:n]), bracketed(before, front)
		}
	}
	at := bytes.LastIndex(before, coreMark)
	process = bracketed(before, at)
	if rest, ok := bytes.CutPrefix(process, []byte("EngineCore_DP")); ok && digits(rest) > 0 {
		return logNumber(rest[:digits(rest)]), process
	}
	return []byte("0"), process
}

// bracketed is the text in the parentheses that open at a place of text; nothing below 0.
func bracketed(text []byte, at int) []byte {
	if at < 0 {
		return nil
	}
	name, _, _ := bytes.Cut(text[at+1:], []byte(")"))
	return name
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

// isStages recognises a lifecycle report of inference-perf.
func isStages(head []byte) bool {
	return bytes.Contains(head, []byte(`"load_summary"`)) && bytes.Contains(head, []byte(`"successes"`))
}

// tpotTol is by how much the file's own TPOT may miss what latency, TTFT and output
// tokens say.
const tpotTol = 0.1

// stage reads the report of one stage, or of a whole run, which names no load. Times
// are seconds. Its TPOT divides by the stamps it took of the stream, which in some
// versions are two a token: what latency, TTFT and tokens say goes before it.
func (f *File) stage(doc any, name string) {
	p := forms().Stage.point(doc, name)
	if gap := (p.E2EMs - p.TTFTMeanMs) / (p.OutputTokens - 1); gap > 0 && !math.IsInf(gap, 0) {
		if math.Abs(p.ITLMs/gap-1) > tpotTol {
			f.Findings = append(f.Findings, trace.Findingf(CodeClientFile, "%s: time_per_output_token: got %.3g ms, but latency, TTFT and "+
				"%.4g output tokens say %.3g ms; the latter is used", name, p.ITLMs, p.OutputTokens, gap))
		}
		p.ITLMs = gap
	}
	p.offered()
	f.keep(p, name)
}
