package otlp

import (
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Message is what a decoder finds in the OTLP messages of one batch.
type Message struct {
	Spans   []*Span
	Ignored []signals
	Texts   []int64 // lines with invalid Unicode
	strange bool    // invalid Unicode was replaced in the message being read
	others  int64   // metrics or logs objects in it
	before  struct{ spans int }
}

// signals are metrics or logs objects of a line.
type signals struct{ Line, N int64 }

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
		m.Ignored = append(m.Ignored, signals{line, m.others})
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
func (m *Message) Transfer(x *table.Pen, file int32) {
	table.Repeated(x, &m.Texts, x.Int)
	table.Repeated(x, &m.Ignored, func(s *signals) {
		x.Int(&s.Line)
		x.Int(&s.N)
	})
	table.Repeated(x, &m.Spans, func(s **Span) {
		if *s == nil {
			*s = &Span{}
		}
		(*s).File = file
		(*s).transfer(x)
	})
}

func (s *Span) transfer(x *table.Pen) {
	class := int64(s.Class)
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
		table.Optional(x, v, x.Text)
	}
	for _, v := range []*trace.Opt[int64]{&s.Prompt, &s.Completion, &s.MaxTokens, &s.N, &s.Sequence} {
		table.Optional(x, v, x.Int)
	}
	for i := range s.Stock {
		table.Optional(x, &s.Stock[i], x.Float)
	}
	table.Repeated(x, &s.API, func(e *apiEvent) {
		name := int64(e.Name)
		for _, v := range []*int64{&name, &e.TsNs, &e.wallNs} {
			x.Int(v)
		}
		e.Name = eventName(name)
		table.Optional(x, &e.Reason, x.Text)
	})
	table.Rows(x, journeyCodec, &s.Journey)
	s.transferRows(x)
	for i := range s.Counts {
		n := int64(s.Counts[i])
		x.Int(&n)
		s.Counts[i] = int32(n)
	}
	table.Repeated(x, &s.Others, x.Text)
	table.Repeated(x, &s.Faults, func(f *fault) {
		event := int64(f.event)
		x.Int(&event)
		f.event = eventName(event)
		x.Text((*string)(&f.Code))
		x.Text(&f.Msg)
	})
}

func (s *Span) transferRows(x *table.Pen) {
	has := s.Rows != nil
	if x.Flag(&has); !has {
		return
	}
	if s.Rows == nil {
		s.Rows = rowPool.Get().(*StepRows)
	}
	table.Rows(x, stepCodec, &s.Rows.Steps)
	table.Rows(x, snapCodec, &s.Rows.Snaps)
	if x.Stores() {
		s.Rows.Free()
		s.Rows = nil
	}
}
