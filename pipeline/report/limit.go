package report

import "strings"

// limit cuts and cleans every string that may have come from a recording.
func (p *page) limit() {
	p.Head.Sentence = Limited(p.Head.Sentence)
	for i := range p.Head.Lines {
		l := &p.Head.Lines[i]
		l.Scope, l.Uses, l.Region, l.Error = Limited(l.Scope), Limited(l.Uses), Limited(l.Region), Limited(l.Error)
	}
	p.Head.Failed, p.Head.Next = LimitAll(p.Head.Failed), LimitAll(p.Head.Next)
	limitFacts(p.Head.Facts)
	for i := range p.Sections {
		for j := range p.Sections[i].Blocks {
			p.Sections[i].Blocks[j].limit()
		}
	}
}

func limitFacts(fs []Fact) {
	for i := range fs {
		fs[i].Value = Limited(fs[i].Value)
	}
}

// limit does the same to one block. Text inside figures is limited
// where it is written.
func (b *Block) limit() {
	b.Heading, b.Text = Limited(b.Heading), Limited(b.Text)
	limitFacts(b.Facts)
	for i := range b.Cards {
		b.Cards[i].Value, b.Cards[i].Sub = Limited(b.Cards[i].Value), Limited(b.Cards[i].Sub)
	}
	b.List = LimitAll(b.List)
	b.Code = strings.Join(LimitAll(strings.Split(b.Code, "\n")), "\n")
	for i := range b.Causes {
		c := &b.Causes[i]
		c.Label, c.Scope, c.Sentence, c.Gates = Limited(c.Label), Limited(c.Scope), Limited(c.Sentence), Limited(c.Gates)
	}
	for i := range b.Findings {
		b.Findings[i].Code = Limited(b.Findings[i].Code)
		b.Findings[i].Messages = LimitAll(b.Findings[i].Messages)
	}
	if b.Table != nil {
		b.Table.limit()
	}
	if b.Fold != nil {
		b.Fold.Title = Limited(b.Fold.Title)
		for i := range b.Fold.Blocks {
			b.Fold.Blocks[i].limit()
		}
	}
	if f := b.Figure; f != nil {
		f.Title, f.Note, f.More = Limited(f.Title), Limited(f.Note), Limited(f.More)
		for i := range f.Legend {
			f.Legend[i].Text = Limited(f.Legend[i].Text)
		}
	}
}

func (t *Table) limit() {
	t.Caption, t.Note, t.More = Limited(t.Caption), Limited(t.Note), Limited(t.More)
	for i := range t.Cols {
		t.Cols[i].Head, t.Cols[i].Help = Limited(t.Cols[i].Head), Limited(t.Cols[i].Help)
	}
	for _, r := range t.Rows {
		for i := range r.Cells {
			r.Cells[i].Text, r.Cells[i].Sub = Limited(r.Cells[i].Text), Limited(r.Cells[i].Sub)
		}
	}
}
