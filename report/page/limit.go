package page

import (
	"strings"

	"github.com/blis-train/blis-train/report/words"
)

// limit cuts and cleans every string that may have come from a recording.
func (p *page) limit() {
	p.Head.Sentence = words.Limited(p.Head.Sentence)
	for i := range p.Head.Lines {
		l := &p.Head.Lines[i]
		l.Scope, l.Uses, l.Region, l.Error = words.Limited(l.Scope), words.Limited(l.Uses), words.Limited(l.Region), words.Limited(l.Error)
	}
	p.Head.Failed, p.Head.Next = words.LimitAll(p.Head.Failed), words.LimitAll(p.Head.Next)
	limitFacts(p.Head.Facts)
	for i := range p.Sections {
		for j := range p.Sections[i].Blocks {
			p.Sections[i].Blocks[j].limit()
		}
	}
}

func limitFacts(fs []Fact) {
	for i := range fs {
		fs[i].Value = words.Limited(fs[i].Value)
	}
}

// limit does the same to one block. Text inside figures is limited
// where it is written.
func (b *Block) limit() {
	b.Heading, b.Text = words.Limited(b.Heading), words.Limited(b.Text)
	limitFacts(b.Facts)
	for i := range b.Cards {
		b.Cards[i].Value, b.Cards[i].Sub = words.Limited(b.Cards[i].Value), words.Limited(b.Cards[i].Sub)
	}
	b.List = words.LimitAll(b.List)
	b.Code = strings.Join(words.LimitAll(strings.Split(b.Code, "\n")), "\n")
	for i := range b.Causes {
		c := &b.Causes[i]
		c.Label, c.Scope, c.Sentence, c.Gates = words.Limited(c.Label), words.Limited(c.Scope), words.Limited(c.Sentence), words.Limited(c.Gates)
	}
	for i := range b.Findings {
		b.Findings[i].Code = words.Limited(b.Findings[i].Code)
		b.Findings[i].Messages = words.LimitAll(b.Findings[i].Messages)
	}
	if b.Table != nil {
		b.Table.limit()
	}
	if b.Fold != nil {
		b.Fold.Title = words.Limited(b.Fold.Title)
		for i := range b.Fold.Blocks {
			b.Fold.Blocks[i].limit()
		}
	}
	if f := b.Figure; f != nil {
		f.Title, f.Note, f.More = words.Limited(f.Title), words.Limited(f.Note), words.Limited(f.More)
		for i := range f.Legend {
			f.Legend[i].Text = words.Limited(f.Legend[i].Text)
		}
	}
}

func (t *Table) limit() {
	t.Caption, t.Note, t.More = words.Limited(t.Caption), words.Limited(t.Note), words.Limited(t.More)
	for i := range t.Cols {
		t.Cols[i].Head, t.Cols[i].Help = words.Limited(t.Cols[i].Head), words.Limited(t.Cols[i].Help)
	}
	for _, r := range t.Rows {
		for i := range r.Cells {
			r.Cells[i].Text, r.Cells[i].Sub = words.Limited(r.Cells[i].Text), words.Limited(r.Cells[i].Sub)
		}
	}
}
