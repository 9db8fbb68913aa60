package otlp

// Message is what a decoder finds in the OTLP messages of one batch.
type Message struct {
	Spans   []*Span
	Ignored int64   // metrics or logs objects
	Texts   []int64 // lines with invalid Unicode
	strange bool    // invalid Unicode was replaced in the message being read
	before  struct {
		spans   int
		ignored int64
	}
}

func (m *Message) Mark() {
	m.before.spans, m.before.ignored, m.strange = len(m.Spans), m.Ignored, false
}

func (m *Message) Undo() { m.Spans, m.Ignored = m.Spans[:m.before.spans], m.before.ignored }

func (m *Message) Keep(file int32, line int64) {
	for _, s := range m.Spans[m.before.spans:] {
		s.File, s.Line = file, line
	}
	if m.strange {
		m.Texts = append(m.Texts, line)
	}
}

func (m *Message) Number(before int64) {
	for _, s := range m.Spans {
		s.Line += before
	}
	for i := range m.Texts {
		m.Texts[i] += before
	}
}
