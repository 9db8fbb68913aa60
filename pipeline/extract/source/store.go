package source

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace/table"
)

// What a decoder made of a part of a file can wait on disk for who reads the whole: Store
// writes it, an Input whose Stored names the files of its parts gives Stream the same batches
// as the file itself, cut elsewhere. So nothing that a sink sees may depend on where batches
// begin.

// storable are records that can wait on disk.
type storable interface {
	records
	Transfer(x *table.Pen, file int32) // every field, in or out, of the records of a file
}

// Store decodes an input that is a part and writes what it holds.
func Store[R storable](ctx context.Context, in Input, o Options, fresh func() Decoder[R], w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<18)
	o.unnumbered = true
	var x table.Pen
	err := Stream(ctx, []Input{in}, o, fresh, func(p *Parsed[R]) error {
		x.B = x.B[:0]
		p.transfer(&x)
		p.Records.Transfer(&x, p.Batch.File)
		if _, err := out.Write(binary.AppendUvarint(nil, uint64(len(x.B)))); err != nil {
			return err
		}
		_, err := out.Write(x.B)
		return err
	})
	if err != nil {
		return err
	}
	return out.Flush()
}

// transfer is every field of a batch's result but its records.
func (p *Parsed[R]) transfer(x *table.Pen) {
	is := int64(p.Batch.form)
	for _, v := range []*int64{&is, &p.lines, &p.bytes, &p.numbers} {
		x.Int(v)
	}
	p.Batch.form = form(is)
	table.Repeated(x, &p.faults, func(f *fault) {
		for _, v := range []*int64{&f.line, &f.col, &f.offset, &f.bytes} {
			x.Int(v)
		}
		x.Text((*string)(&f.code))
		x.Text(&f.msg)
		x.Flag(&f.byMessage)
	})
}

// restore fills the result of a batch from what was stored.
func (p *Parsed[R]) restore(text []byte) error {
	x := table.Reading(text, NewInterner().Get)
	p.transfer(x)
	any(p.Records).(storable).Transfer(x, p.Batch.File) // Store took no others
	return x.End()
}

// openStored opens what was stored of an input, part after part.
func openStored(from *Input) (*Source, error) {
	s := &Source{Name: from.Name, form: formStored}
	var parts []io.Reader
	for _, name := range from.Stored {
		f, err := files.Open(name, false)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.close = append(s.close, func() { f.Close() })
		parts = append(parts, f)
	}
	s.over(io.MultiReader(parts...))
	return s, nil
}

// stored is the next batch that was stored.
func (r *reader) stored(buf *[]byte) (*batch, error) {
	n, err := binary.ReadUvarint(r.src.R)
	if err != nil {
		return nil, err // io.EOF between batches
	}
	to := bytes.NewBuffer((*buf)[:0])
	if _, err := io.CopyN(to, r.src.R, int64(n)); err != nil {
		return nil, fmt.Errorf("stored batch of %d bytes: %w", n, err)
	}
	*buf = to.Bytes()
	return &batch{form: formStored, data: *buf}, nil
}
