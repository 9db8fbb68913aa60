package report

import "strings"

// limit cuts and cleans every string that may have come from a recording.
func (p *page) limit() {
	p.Head.Sentence = limited(p.Head.Sentence)
	for i := range p.Head.Lines {
		l := &p.Head.Lines[i]
		l.Scope, l.Uses, l.Region, l.Error = limited(l.Scope), limited(l.Uses), limited(l.Region), limited(l.Error)
	}
	p.Head.Failed, p.Head.Next = limitAll(p.Head.Failed), limitAll(p.Head.Next)
	limitFacts(p.Head.Facts)
	for i := range p.Sections {
		for j := range p.Sections[i].Blocks {
			p.Sections[i].Blocks[j].limit()
		}
	}
}

func limitFacts(fs []Fact) {
	for i := range fs {
		fs[i].Value = limited(fs[i].Value)
	}
}

// limit does the same to one block. Text inside figures is limited
// where it is written.
func (b *Block) limit() {
	b.Heading, b.Text = limited(b.Heading), limited(b.Text)
	limitFacts(b.Facts)
	for i := range b.Cards {
		b.Cards[i].Value, b.Cards[i].Sub = limited(b.Cards[i].Value), limited(b.Cards[i].Sub)
	}
	b.List = limitAll(b.List)
	b.Code = strings.Join(limitAll(strings.Split(b.Code, "\n")), "\n")
	for i := range b.Causes {
		c := &b.Causes[i]
		c.Label, c.Scope, c.Sentence, c.Gates = limited(c.Label), limited(c.Scope), limited(c.Sentence), limited(c.Gates)
	}
	for i := range b.Findings {
		b.Findings[i].Code = limited(b.Findings[i].Code)
		b.Findings[i].Messages = limitAll(b.Findings[i].Messages)
	}
	if b.Table != nil {
		b.Table.limit()
	}
	if b.Fold != nil {
		b.Fold.Title = limited(b.Fold.Title)
		for i := range b.Fold.Blocks {
			b.Fold.Blocks[i].limit()
		}
	}
	if f := b.Figure; f != nil {
		f.Title, f.Note, f.More = limited(f.Title), limited(f.Note), limited(f.More)
		for i := range f.Legend {
			f.Legend[i].Text = limited(f.Legend[i].Text)
		}
	}
}

func (t *Table) limit() {
	t.Caption, t.Note, t.More = limited(t.Caption), limited(t.Note), limited(t.More)
	for i := range t.Cols {
		t.Cols[i].Head, t.Cols[i].Help = limited(t.Cols[i].Head), limited(t.Cols[i].Help)
	}
	for _, r := range t.Rows {
		for i := range r.Cells {
			r.Cells[i].Text, r.Cells[i].Sub = limited(r.Cells[i].Text), limited(r.Cells[i].Sub)
		}
	}
}
