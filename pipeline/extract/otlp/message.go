package otlp

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

func (m *Message) Keep(line int64) {
	for _, s := range m.Spans[m.before.spans:] {
		s.Line = line
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

// Free gives the rows of spans back that nobody collects.
func (m *Message) Free() {
	for _, s := range m.Spans {
		if s.Rows != nil {
			s.Rows.Free()
		}
	}
}
