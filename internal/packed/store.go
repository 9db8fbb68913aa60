package packed

import (
	"encoding/binary"
	"io"
)

// Store writes the sealed list for RestoreFloats to read.
func (f *Floats) Store(w io.Writer) error {
	f.Seal()
	if err := binary.Write(w, binary.LittleEndian, []int64{int64(f.width), int64(f.n), int64(len(f.list))}); err != nil {
		return err
	}
	for _, b := range f.list {
		if err := binary.Write(w, binary.LittleEndian, []int64{int64(b.from), int64(len(b.data))}); err != nil {
			return err
		}
		if _, err := w.Write(b.data); err != nil {
			return err
		}
	}
	return nil
}

// RestoreFloats reads a list that Store wrote; nothing else may be given to it.
func RestoreFloats(r io.Reader) (*Floats, error) {
	head := make([]int64, 3)
	if err := binary.Read(r, binary.LittleEndian, head); err != nil {
		return nil, err
	}
	f := &Floats{width: int(head[0]), n: int(head[1]), list: make([]block, head[2])}
	for k := range f.list {
		if err := binary.Read(r, binary.LittleEndian, head[:2]); err != nil {
			return nil, err
		}
		f.list[k] = block{int(head[0]), make([]byte, head[1])}
		if _, err := io.ReadFull(r, f.list[k].data); err != nil {
			return nil, err
		}
	}
	return f, nil
}
