package source

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// What a decoder made of a part of a file can wait on disk for who reads the whole: Store
// writes it, an Input whose Stored names the files of its parts gives Stream the same batches
// as the file itself, cut elsewhere. So nothing that a sink sees may depend on where batches
// begin.

// Storable are records that can wait on disk.
type Storable interface {
	Records
	Transfer(x *Pen) // every field, in or out
}

// Store decodes an input that is a part and writes what it holds.
func Store[R Storable](ctx context.Context, in Input, o Options, fresh func() Decoder[R], w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<18)
	o.unnumbered = true
	var x Pen
	err := Stream(ctx, []Input{in}, o, fresh, func(p *Parsed[R]) error {
		x.B = x.B[:0]
		p.Transfer(&x)
		p.Records.Transfer(&x)
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

// Transfer is every field of a batch's result but its records.
func (p *Parsed[R]) Transfer(x *Pen) {
	is := int64(p.Batch.form)
	for _, v := range []*int64{&is, &p.lines, &p.bytes, &p.numbers} {
		x.Int(v)
	}
	p.Batch.form = form(is)
	Repeated(x, &p.faults, func(f *fault) {
		for _, v := range []*int64{&f.line, &f.col, &f.offset, &f.bytes} {
			x.Int(v)
		}
		code := string(f.code)
		x.Text(&code)
		x.Text(&f.msg)
		x.Flag(&f.byMessage)
		f.code = trace.Code(code)
	})
}

// restore fills the result of a batch from what was stored.
func (p *Parsed[R]) restore(text []byte) error {
	records := any(p.Records).(interface{ Transfer(x *Pen) }) // Store took no others
	return Restore(text, p.Batch.File, p, records)
}

// Restore fills what a pen wrote one after another, of the records of a file.
func Restore(text []byte, file int32, into ...interface{ Transfer(x *Pen) }) error {
	x := &Pen{B: text, File: file, reading: true, texts: map[string]string{}}
	for _, v := range into {
		v.Transfer(x)
	}
	if x.bad || len(x.B) > 0 {
		return fmt.Errorf("%d stored bytes do not fit their type", len(text))
	}
	return nil
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
func (r *reader) stored(buf *[]byte) (*Batch, error) {
	n, err := binary.ReadUvarint(r.src.R)
	if err != nil {
		return nil, err // io.EOF between batches
	}
	to := bytes.NewBuffer((*buf)[:0])
	if _, err := io.CopyN(to, r.src.R, int64(n)); err != nil {
		return nil, fmt.Errorf("stored batch of %d bytes: %w", n, err)
	}
	*buf = to.Bytes()
	return &Batch{form: formStored, data: *buf}, nil
}

// Pen writes fields after B, or reads them from B, with one description for both. What does
// not fit is bad, and sticks.
type Pen struct {
	B       []byte
	File    int32 // of the records
	reading bool
	bad     bool
	texts   map[string]string
	scratch []byte
}

// Stores reports that fields are written.
func (x *Pen) Stores() bool { return !x.reading }

// take is the next n bytes.
func (x *Pen) take(n uint64) []byte {
	if uint64(len(x.B)) < n {
		x.bad, x.B = true, nil
		return nil
	}
	v := x.B[:n]
	x.B = x.B[n:]
	return v
}

func (x *Pen) Int(v *int64) {
	if !x.reading {
		x.B = binary.AppendVarint(x.B, *v)
		return
	}
	n, k := binary.Varint(x.B)
	*v = n
	if k <= 0 {
		x.bad, x.B = true, nil
		return
	}
	x.B = x.B[k:]
}

// Fixed is bytes whose number is known.
func (x *Pen) Fixed(b []byte) {
	if !x.reading {
		x.B = append(x.B, b...)
		return
	}
	copy(b, x.take(uint64(len(b))))
}

func (x *Pen) Word(v *uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], *v)
	x.Fixed(b[:])
	*v = binary.LittleEndian.Uint64(b[:])
}

func (x *Pen) Float(v *float64) {
	w := math.Float64bits(*v)
	x.Word(&w)
	*v = math.Float64frombits(w)
}

func (x *Pen) Flag(v *bool) {
	var b [1]byte
	if *v {
		b[0] = 1
	}
	x.Fixed(b[:])
	*v = b[0] == 1
}

func (x *Pen) Text(v *string) {
	n := int64(len(*v))
	x.Int(&n)
	if !x.reading {
		x.B = append(x.B, *v...)
		return
	}
	*v = x.shared(x.take(uint64(n)))
}

// shared is a text, one for equal ones.
func (x *Pen) shared(b []byte) string {
	if s, ok := x.texts[string(b)]; ok {
		return s
	}
	s := string(b)
	x.texts[s] = s
	return s
}

// Optional is a value that may be absent.
func Optional[T any](x *Pen, v *trace.Opt[T], value func(*T)) {
	if x.Flag(&v.OK); v.OK {
		value(&v.V)
	}
}

// Repeated is a list of values.
func Repeated[T any](x *Pen, list *[]T, value func(*T)) {
	n := int64(len(*list))
	x.Int(&n)
	if x.reading {
		if n < 0 || n > int64(len(x.B)) { // a value takes a byte at least
			x.bad, n = true, 0
		}
		*list = append((*list)[:0], make([]T, n)...)
	}
	for i := range *list {
		value(&(*list)[i])
	}
}

// TableRows is a list of rows of a table.
func TableRows[T any](x *Pen, codec *table.Codec[T], list *[]T) {
	Repeated(x, list, func(row *T) {
		if x.reading {
			n, k := binary.Uvarint(x.B)
			x.take(uint64(max(k, 0)))
			if b := x.take(n); k <= 0 || codec.Decode(b, row, x.shared) != nil {
				x.bad = true
			}
			return
		}
		x.scratch = codec.Append(x.scratch[:0], row)
		x.B = append(binary.AppendUvarint(x.B, uint64(len(x.scratch))), x.scratch...)
	})
}
