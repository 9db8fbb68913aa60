package source

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/blis-train/blis-train/internal/files"
)

// This file stores decoded batches, so that several processes can decode the parts of a large file. Store
// writes the decoded batches of one part to a file. For an Input whose Stored lists these files, Stream
// returns the same records as for the file itself, but divided into other batches. A sink must therefore
// not depend on where batches begin.

// Store decodes an input that is a part of a file and writes its batches to w.
func Store[R records](ctx context.Context, in Input, o Options, fresh func() Decoder[R], w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<18)
	o.unnumbered = true
	codec := files.NewCodec[Parsed[R]]()
	packed := []byte(nil)
	err := Stream(ctx, []Input{in}, o, fresh, func(p *Parsed[R]) error {
		packed = codec.Append(packed[:0], p)
		if r, ok := any(p.Records).(interface{ Free() }); ok {
			r.Free()
		}
		if _, err := out.Write(binary.AppendUvarint(nil, uint64(len(packed)))); err != nil {
			return err
		}
		_, err := out.Write(packed)
		return err
	})
	if err != nil {
		return err
	}
	return out.Flush()
}

// openStored opens the stored batches of an input.
func openStored(from *Input) (*Source, error) {
	s := &Source{Name: from.Name, form: formStored}
	var parts []io.Reader // in order
	for _, name := range from.Stored {
		f, err := files.Open(name, false)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.close = append(s.close, func() { f.Close() })
		parts = append(parts, f)
	}
	s.readFrom(io.MultiReader(parts...))
	return s, nil
}

// stored returns the next stored batch.
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
