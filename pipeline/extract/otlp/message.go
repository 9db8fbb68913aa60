package otlp

import (
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Message is what a decoder finds in the OTLP messages of one batch.
type Message struct {
	Spans   []*Span
	Ignored []Signals
	Texts   []int64 // lines with invalid Unicode
	strange bool    // invalid Unicode was replaced in the message being read
	others  int64   // metrics or logs objects in it
	before  struct{ spans int }
}

// Signals are metrics or logs objects of a line.
type Signals struct{ Line, N int64 }

func (m *Message) Mark() { m.before.spans, m.others, m.strange = len(m.Spans), 0, false }

func (m *Message) Undo() { m.Spans = m.Spans[:m.before.spans] }

func (m *Message) Keep(file int32, line int64) {
	for _, s := range m.Spans[m.before.spans:] {
		s.File, s.Line = file, line
	}
	if m.strange {
		m.Texts = append(m.Texts, line)
	}
	if m.others > 0 {
		m.Ignored = append(m.Ignored, Signals{line, m.others})
	}
}

func (m *Message) Number(before int64) {
	for _, s := range m.Spans {
		s.Line += before
	}
	for i := range m.Texts {
		m.Texts[i] += before
	}
	for i := range m.Ignored {
		m.Ignored[i].Line += before
	}
}

var (
	stepCodec    = table.NewCodec[trace.Step]()
	snapCodec    = table.NewCodec[trace.Snapshot]()
	journeyCodec = table.NewCodec[trace.JourneyEvent]()
)

// Transfer stores the message, or restores it; one that was stored is of no more use.
func (m *Message) Transfer(x *source.Pen) {
	source.Repeated(x, &m.Texts, x.Int)
	source.Repeated(x, &m.Ignored, func(s *Signals) {
		x.Int(&s.Line)
		x.Int(&s.N)
	})
	source.Repeated(x, &m.Spans, func(s **Span) {
		if *s == nil {
			*s = &Span{}
		}
		(*s).transfer(x)
	})
}

func (s *Span) transfer(x *source.Pen) {
	class := int64(s.Class)
	s.File = x.File
	for _, v := range []*int64{&class, &s.StartNs, &s.EndNs, &s.DroppedEvents, &s.Line, &s.FirstStep, &s.LastStep} {
		x.Int(v)
	}
	s.Class = Class(class)
	for _, v := range []*string{&s.Scope, &s.Name} {
		x.Text(v)
	}
	x.Fixed(s.TraceID[:])
	x.Fixed(s.SpanID[:])
	x.Fixed(s.Parent[:])
	x.Flag(&s.HasParent)
	x.Flag(&s.FarTime)
	x.Word(&s.Resource)
	x.Word(&s.Hash)
	for _, v := range []*trace.Opt[string]{&s.RequestID, &s.Route, &s.Model} {
		source.Optional(x, v, x.Text)
	}
	for _, v := range []*trace.Opt[int64]{&s.Prompt, &s.Completion, &s.MaxTokens, &s.N, &s.Sequence} {
		source.Optional(x, v, x.Int)
	}
	for i := range s.Stock {
		source.Optional(x, &s.Stock[i], x.Float)
	}
	source.Repeated(x, &s.API, func(e *APIEvent) {
		name := int64(e.Name)
		for _, v := range []*int64{&name, &e.TsNs, &e.wallNs} {
			x.Int(v)
		}
		e.Name = EventName(name)
		source.Optional(x, &e.Reason, x.Text)
	})
	source.TableRows(x, journeyCodec, &s.Journey)
	s.transferRows(x)
	for i := range s.Counts {
		n := int64(s.Counts[i])
		x.Int(&n)
		s.Counts[i] = int32(n)
	}
	source.Repeated(x, &s.Others, x.Text)
	source.Repeated(x, &s.Faults, func(f *Fault) {
		event, code := int64(f.event), string(f.Code)
		x.Int(&event)
		x.Text(&code)
		x.Text(&f.Msg)
		f.event, f.Code = EventName(event), trace.Code(code)
	})
}

func (s *Span) transferRows(x *source.Pen) {
	has := s.Rows != nil
	if x.Flag(&has); !has {
		return
	}
	if s.Rows == nil {
		s.Rows = rowPool.Get().(*StepRows)
	}
	source.TableRows(x, stepCodec, &s.Rows.Steps)
	source.TableRows(x, snapCodec, &s.Rows.Snaps)
	if x.Stores() {
		s.Rows.Free()
		s.Rows = nil
	}
}
