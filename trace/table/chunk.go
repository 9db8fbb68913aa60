package table

// This file reads the values of one Parquet column.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/metadata"
)

// chunk reads the values of one column in one row group, page by page. Parquet stores definition
// and repetition levels with the values, as type levels describes.
type chunk struct {
	leaf
	pages *pages
	left  int  // levels of the current page that were not yet read
	defs  runs // definition levels of the page
	reps  runs // repetition levels of the page
	refs  runs // indices into the dictionary
	isRef bool // the values of the page are refs
	plain plain
	dict  values  // the distinct values of the dictionary page
	vals  values  // values that were read last
	def   []int32 // definition levels that were read last
	rep   []int32 // repetition levels that were read last
	idx   []int32 // dictionary indices that were read last
	ahead bool    // of a list column: the repetition level 0 of the next row was read, and no more of it
}

// openChunk makes c read the column l of row group rg from a file of size bytes. The buffers of c
// are reused. open counts the bytes of the open pages of all columns.
func (c *chunk) openChunk(f io.ReaderAt, size int64, rg *metadata.RowGroupMetaData, l leaf, open *int64) error {
	md, err := rg.ColumnChunk(l.at)
	if err != nil {
		return err
	}
	from := md.DataPageOffset()
	if at := md.DictionaryPageOffset(); md.HasDictionaryPage() && at > 0 {
		from = min(from, at)
	}
	n := md.TotalCompressedSize()
	if from < 0 || n < 0 || from > size || n > size-from {
		return fmt.Errorf("its pages are at bytes %d to %d of a file of %d", from, from+n, size)
	}
	if md.Type() != l.physical || md.CryptoMetadata() != nil {
		return errors.New("its pages are of another type than its schema, or encrypted")
	}
	*c = chunk{
		leaf:  l,
		pages: newPages(f, from, n, int(md.Compression()), open),
		vals:  c.vals, // these buffers are reused
		def:   c.def,
		rep:   c.rep,
		idx:   c.idx,
	}
	return nil
}

// page opens the next data page, and reads a dictionary page before it. It returns io.EOF at the
// end of the chunk.
func (c *chunk) page() error {
	for {
		h, data, err := c.pages.next()
		switch {
		case err != nil:
			return err
		case h.kind == pageDictionary:
			if c.dict, err = c.dictionary(&h, data); err != nil {
				return err
			}
		case h.kind == pageData || h.kind == pageDataV2:
			return c.data(&h, data)
		}
	}
}

// dictionary returns the distinct values in a dictionary page.
func (c *chunk) dictionary(h *pageHeader, data []byte) (v values, err error) {
	if h.encoding != encPlain && h.encoding != encPlainRef {
		return v, fmt.Errorf("got a dictionary of encoding %d, want PLAIN", h.encoding)
	}
	least := int64(1) // bytes of a value
	if c.physical == parquet.Types.ByteArray {
		least = 4 // its length
	}
	if h.values*least > int64(len(data)) {
		return v, errShort
	}
	p := plain{b: data}
	return v, p.readValues(&v, c.leaf, int(h.values))
}

// data begins a data page, which has repetition levels, definition levels and values in this order.
func (c *chunk) data(h *pageHeader, data []byte) (err error) {
	c.left = int(h.values)
	if h.kind == pageDataV2 {
		c.reps = runs{b: data[:h.repBytes], width: bits.Len32(uint32(c.maxRep))}
		c.defs = runs{b: data[h.repBytes : h.repBytes+h.defBytes], width: bits.Len32(uint32(c.maxDef))}
		data = data[h.repBytes+h.defBytes:]
	} else {
		if c.reps, data, err = levelsOf(data, c.maxRep, h.repEncoding); err == nil {
			c.defs, data, err = levelsOf(data, c.maxDef, h.defEncoding)
		}
		if err != nil {
			return err
		}
	}
	// The values themselves, or indices into the dictionary of the chunk.
	c.isRef = false
	switch {
	case h.encoding == encPlain:
		c.plain = plain{b: data}
	case h.encoding == encRuns && c.physical == parquet.Types.Boolean && len(data) >= 4:
		c.plain = plain{runs: runs{b: data[4:], width: 1}, isRuns: true} // after their length of 4 bytes
	case h.encoding == encRef || h.encoding == encPlainRef:
		c.isRef = true
		if len(data) == 0 { // a page of nulls
			c.refs = runs{}
			return nil
		}
		c.refs = runs{b: data[1:], width: int(data[0])} // the first byte is the number of bits of an index
		if data[0] > 32 {
			return fmt.Errorf("got indices of %d bits, want at most 32", data[0])
		}
	default:
		return fmt.Errorf("got the encoding %s, want PLAIN or RLE_DICTIONARY", parquet.Encoding(h.encoding))
	}
	return nil
}

// levelsOf returns the levels at the start of a data page of version 1, and the rest of the page.
// most is the highest level.
func levelsOf(data []byte, most int32, encoding int64) (runs, []byte, error) {
	if most == 0 {
		return runs{}, data, nil
	}
	if encoding != encRuns {
		return runs{}, nil, fmt.Errorf("got levels of encoding %d, want RLE", encoding)
	}
	if len(data) < 4 {
		return runs{}, nil, errShort
	}
	n := int64(binary.LittleEndian.Uint32(data))
	if n > int64(len(data)-4) {
		return runs{}, nil, errShort
	}
	return runs{b: data[4 : 4+n], width: bits.Len32(uint32(most))}, data[4+n:], nil
}

// readRows reads the values of column col in the next n rows and calls use with the part that each
// page has of them.
func (c *chunk) readRows(col *column, n int, use func(columnPart)) error {
	if col.list {
		return c.readLists(n, use)
	}
	for at := 0; at < n; {
		if c.left == 0 {
			if err := c.page(); err != nil {
				return early(err)
			}
			continue
		}
		k := min(c.left, n-at)
		c.left -= k
		// Only known values are stored; the definition levels have a 1 for each of them.
		known := k
		c.def = c.def[:0]
		if c.maxDef > 0 {
			c.def = resize(c.def, k)
			if !c.defs.readInto(c.def) {
				return errShort
			}
			known = 0
			for _, d := range c.def {
				known += int(d) // 0 or 1
			}
			if known < k && !col.Nullable {
				return errNull
			}
		}
		if err := c.readValues(known); err != nil {
			return err
		}
		use(columnPart{from: at, def: c.def, max: 1, values: c.vals})
		at += k
	}
	return nil
}

// early returns the error of a chunk that ended with fewer values than its row group has rows.
func early(err error) error {
	if err == io.EOF {
		return errors.New("got fewer values than rows")
	}
	return err
}

// readLists reads the lists in the next n rows. A row ends where the next one begins, so the first
// level of the row after them is read ahead.
func (c *chunk) readLists(n int, use func(columnPart)) error {
	// row is the row whose list is being read; -1 before the first level of row 0.
	for row := -1; !c.ahead || row < n-1; {
		if c.left == 0 {
			switch err := c.page(); {
			case err == io.EOF && row == n-1:
				return nil
			case err != nil:
				return early(err)
			}
			continue
		}
		from := row
		known, err := c.listLevels(&row, n)
		if err == nil {
			err = c.readValues(known)
		}
		if err != nil {
			return err
		}
		use(columnPart{from: from, def: c.def, rep: c.rep, max: c.maxDef, values: c.vals})
	}
	return nil
}

// maxElements bounds the elements of the lists that are read at once, in up to 4,096 rows. A page of a few bytes can
// have as many equal ones as it likes.
const maxElements = 1 << 24

// listLevels reads the levels of the current page that belong to the rows before row n, and returns
// how many values these levels have. row is the current row, which it advances. At the first level
// of row n it sets c.ahead.
func (c *chunk) listLevels(row *int, n int) (known int, err error) {
	c.def = c.def[:0]
	c.rep = c.rep[:0]
	for c.left > 0 {
		var level [1]int32 // 0 if the level was read ahead
		if !c.ahead && !c.reps.readInto(level[:]) {
			return 0, errShort
		}
		// A repetition level of 0 begins a row, another continues its list.
		isFirst := level[0] == 0
		c.ahead = isFirst && *row == n-1
		switch {
		case c.ahead:
			return known, nil
		case isFirst:
			*row++
		case *row < 0:
			return 0, errors.New("got a list that belongs to no row")
		}
		if c.rep = append(c.rep, level[0]); len(c.rep) > maxElements {
			return 0, fmt.Errorf("got lists of more than %d elements in %d rows", maxElements, n)
		}
		if !c.defs.readInto(level[:]) {
			return 0, errShort
		}
		if level[0] >= c.elemDef {
			known++
			if level[0] != c.maxDef {
				return 0, errNullInList
			}
		}
		c.def = append(c.def, level[0])
		c.left--
	}
	return known, nil
}

// checkEnd returns an error if a value of the chunk remains after the last row.
func (c *chunk) checkEnd() error {
	for c.left == 0 {
		if err := c.page(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
	return errors.New("got more values than rows")
}

// readValues reads the next n values of the page into c.vals.
func (c *chunk) readValues(n int) error {
	if !c.isRef {
		return c.plain.readValues(&c.vals, c.leaf, n)
	}
	c.idx = resize(c.idx, n)
	if !c.refs.readInto(c.idx) {
		return errShort
	}
	ok := true
	switch c.physical {
	case parquet.Types.Int32, parquet.Types.Int64:
		c.vals.ints, ok = lookUp(c.vals.ints, c.dict.ints, c.idx)
	case parquet.Types.Double:
		c.vals.floats, ok = lookUp(c.vals.floats, c.dict.floats, c.idx)
	case parquet.Types.Boolean:
		c.vals.bools, ok = lookUp(c.vals.bools, c.dict.bools, c.idx)
	default:
		c.vals.texts, ok = lookUp(c.vals.texts, c.dict.texts, c.idx)
	}
	if !ok {
		return errors.New("got an index beyond its dictionary")
	}
	return nil
}

// lookUp returns the entries of dict at the indices idx, in dst if it is large enough. It returns
// false for an index beyond the dictionary.
func lookUp[V any](dst, dict []V, idx []int32) ([]V, bool) {
	dst = resize(dst, len(idx))
	for i, k := range idx {
		if uint32(k) >= uint32(len(dict)) {
			return dst, false
		}
		dst[i] = dict[k]
	}
	return dst, true
}

// resize returns a slice of n elements with any values: buf if it is large enough, else a new
// slice.
func resize[V any](buf []V, n int) []V {
	if cap(buf) < n {
		return make([]V, n)
	}
	return buf[:n]
}
