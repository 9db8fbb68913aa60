package rows

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/blis-train/blis-train/internal/packed"
	"github.com/blis-train/blis-train/trace"
)

// storedHead is a table but for its columns.
type storedHead struct {
	Run, Config, Target string
	Lag, P, Read, Kept  int
	Gamma               float64
	Packed              bool
	Variants            []Variant // without values
	Dropped             []CodeCount
	Hits                []int
	Findings            []trace.Finding
}

// Store writes the table for RestoreTable to read, bit for bit.
func (t *Table) Store(w io.Writer) error {
	h := storedHead{t.Run, t.Config, t.Target, t.Lag, t.P, t.Read, t.Kept, t.Gamma, t.Packed != nil, nil, t.Dropped, t.Hits, t.Findings}
	for _, v := range t.Variants {
		h.Variants = append(h.Variants, Variant{Gamma: v.Gamma, Cols: v.Cols})
	}
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := storeBytes(w, text); err != nil {
		return err
	}
	for _, c := range t.stored() {
		if err == nil {
			err = c.store(w)
		}
	}
	if err == nil && t.Packed != nil {
		err = t.Packed.Store(w)
	}
	return err
}

// storeBuffer is what lies between a file of tables and its disk, bytes.
const storeBuffer = 1 << 18

// StoreTables writes the tables to a file, one behind the other.
func StoreTables(path string, tables ...*Table) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, storeBuffer)
	for _, t := range tables {
		if err == nil {
			err = t.Store(w)
		}
	}
	return errors.Join(err, w.Flush(), f.Close())
}

// RestoreTables reads the tables of a file, n of them.
func RestoreTables(path string, use func(i int, t *Table)) (n int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for r := bufio.NewReaderSize(f, storeBuffer); ; n++ {
		if _, err := r.Peek(1); err == io.EOF {
			return n, nil
		}
		t, err := RestoreTable(r)
		if err != nil {
			return n, fmt.Errorf("%s: %w", path, err)
		}
		use(n, t)
	}
}

// RestoreTable reads a table that Store wrote; nothing else may be given to it.
func RestoreTable(r io.Reader) (*Table, error) {
	text, err := restoreBytes(r)
	if err != nil {
		return nil, err
	}
	var h storedHead
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, err
	}
	t := &Table{Run: h.Run, Config: h.Config, Target: h.Target, Lag: h.Lag, P: h.P, Read: h.Read, Kept: h.Kept, Gamma: h.Gamma,
		Variants: h.Variants, Dropped: h.Dropped, Hits: h.Hits, Findings: h.Findings}
	for k := range t.Variants {
		v := &t.Variants[k]
		v.Values = make([][]float64, len(v.Cols))
	}
	if h.Packed {
		t.Packed = &packed.Floats{}
	}
	for _, c := range t.stored() {
		if err == nil {
			err = c.restore(r)
		}
	}
	if err == nil && h.Packed {
		t.Packed, err = packed.RestoreFloats(r)
	}
	if err != nil {
		return nil, err
	}
	t.check()
	return t, nil
}

// stored are the columns of a table, and what has a value a feature.
func (t *Table) stored() []column {
	all := []column{col[float64]{&t.Min, 1}, col[float64]{&t.Max, 1}}
	t.each(func(c column) { all = append(all, c) })
	return all
}

// store writes the number of values, -1 for a nil column, and the values.
func (c col[T]) store(w io.Writer) error {
	n := int64(len(*c.s))
	if *c.s == nil {
		n = -1
	}
	if err := binary.Write(w, binary.LittleEndian, n); err != nil {
		return err
	}
	list, isText := any(*c.s).([]string)
	if !isText {
		return binary.Write(w, binary.LittleEndian, *c.s)
	}
	for _, s := range list {
		if err := storeBytes(w, []byte(s)); err != nil {
			return err
		}
	}
	return nil
}

func (c col[T]) restore(r io.Reader) error {
	var n int64
	if err := binary.Read(r, binary.LittleEndian, &n); err != nil || n < 0 {
		return err
	}
	*c.s = make([]T, n)
	list, isText := any(*c.s).([]string)
	if !isText {
		return binary.Read(r, binary.LittleEndian, *c.s)
	}
	for i := range list {
		text, err := restoreBytes(r)
		if err != nil {
			return err
		}
		list[i] = string(text)
	}
	return nil
}

func storeBytes(w io.Writer, b []byte) error {
	if err := binary.Write(w, binary.LittleEndian, int64(len(b))); err != nil {
		return err
	}
	_, err := w.Write(b)
	return err
}

func restoreBytes(r io.Reader) ([]byte, error) {
	var n int64
	if err := binary.Read(r, binary.LittleEndian, &n); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
