package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// parquetRows reads the rows of a Parquet file: row group after row group, all
// columns side by side, each a page at a time.
type parquetRows[T any] struct {
	file   io.ReaderAt
	size   int64
	meta   *metadata.FileMetaData
	cols   []column
	leaves []leaf
	group  int            // the next one
	skip   func(int) bool // leaves groups out; nil: none
	left   int64          // rows of the group
	chunks []chunk
}

// leaf is where a column stands in the file and how.
type leaf struct {
	at       int
	physical parquet.Type
	unsigned bool
	maxDef   int32
	elemDef  int32 // definition level from which on a list has an element
	maxRep   int32
}

func openParquet[T any](f io.ReaderAt, size int64, cols []column) (rows[T], error) {
	rd, err := file.NewParquetReader(io.NewSectionReader(f, 0, size))
	if err != nil {
		return nil, damaged(err)
	}
	meta := rd.MetaData()
	if v := meta.KeyValueMetadata().FindValue(metaVersion); v != nil {
		if err := checkVersion(*v); err != nil {
			return nil, err
		}
	}
	d := &parquetRows[T]{file: f, size: size, meta: meta, chunks: make([]chunk, len(cols))}
	for i := range cols {
		l, err := findLeaf(meta.Schema, &cols[i])
		if err == errMissing && cols[i].mayMiss {
			continue
		}
		if err != nil {
			return nil, columnError(&cols[i], err)
		}
		d.leaves = append(d.leaves, l)
		d.cols = append(d.cols, cols[i])
	}
	return d, nil
}

// findLeaf finds a column by name and compares its form with the column's:
// integers of any width and optional columns without nulls, as other programs
// write them, will do.
func findLeaf(s *schema.Schema, c *column) (leaf, error) {
	l := leaf{at: -1}
	for i := range s.NumColumns() {
		if s.ColumnRoot(i).Name() != c.Name {
			continue
		}
		if l.at >= 0 {
			return l, errRepeated
		}
		l.at = i
	}
	if l.at < 0 {
		return l, errMissing
	}
	col := s.Column(l.at)
	l.physical, l.maxDef, l.maxRep = col.PhysicalType(), int32(col.MaxDefinitionLevel()), int32(col.MaxRepetitionLevel())
	root := s.ColumnRoot(l.at)
	shape := root == col.SchemaNode() && l.maxRep == 0
	if c.list {
		shape = len(col.ColumnPath()) == 3 && l.maxRep == 1 && root.ConvertedType() == schema.ConvertedTypes.List
		l.elemDef = 1
		if root.RepetitionType() == parquet.Repetitions.Optional {
			l.elemDef = 2
		}
	}
	if !shape || !l.holds(c.kind, col) {
		return l, fmt.Errorf("got %s, want %s", typeOf(root, col), c.Type)
	}
	return l, nil
}

// holds reports whether values of the kind are written in the Parquet column.
func (l *leaf) holds(k kind, col *schema.Column) bool {
	logical := col.LogicalType()
	plain := logical == nil || logical.IsNone()
	switch k {
	case kindInt64:
		if i, ok := logical.(interface{ IsSigned() bool }); ok {
			l.unsigned, plain = !i.IsSigned(), true
		}
		return plain && (l.physical == parquet.Types.Int64 || l.physical == parquet.Types.Int32)
	case kindFloat64:
		return plain && l.physical == parquet.Types.Double
	case kindBool:
		return plain && l.physical == parquet.Types.Boolean
	}
	return col.ConvertedType() == schema.ConvertedTypes.UTF8 && l.physical == parquet.Types.ByteArray
}

// typeOf names the type of a column of a file.
func typeOf(root schema.Node, col *schema.Column) string {
	t := col.PhysicalType().String()
	if l := col.LogicalType(); l != nil && !l.IsNone() {
		t += " (" + l.String() + ")"
	}
	if root != col.SchemaNode() {
		t = "nested " + t
	}
	return t
}

// count does not trust the file beyond a row for each byte.
func (d *parquetRows[T]) count() int { return int(max(0, min(d.meta.NumRows, d.size))) }

// next fills rows and returns how many there were; 0 at the end.
func (d *parquetRows[T]) next(rows []T) (int, error) {
	for d.left == 0 {
		for d.skip != nil && d.group < len(d.meta.RowGroups) && d.skip(d.group) {
			d.group++
		}
		if d.group == len(d.meta.RowGroups) {
			return 0, nil
		}
		if err := d.openGroup(); err != nil {
			return 0, err
		}
	}
	n := int(min(d.left, int64(len(rows))))
	d.left -= int64(n)
	for i := range d.cols {
		c := &d.chunks[i]
		err := c.read(&d.cols[i], n, func(part columnPart) { scatterPart(&d.cols[i], rows, part) })
		if err == nil && d.left == 0 {
			err = c.end()
		}
		if err != nil {
			return 0, columnError(&d.cols[i], err)
		}
	}
	return n, nil
}

// openGroup begins the next row group.
func (d *parquetRows[T]) openGroup() error {
	rg := metadata.NewRowGroupMetaData(d.meta.RowGroups[d.group], d.meta.Schema, d.meta.WriterVersion(), nil)
	d.group++
	if d.left = rg.NumRows(); d.left < 0 || d.left > maxGroupRows {
		return damaged(fmt.Errorf("got a row group of %d rows, want 0 to %d", d.left, maxGroupRows))
	}
	for i := range d.cols {
		if err := d.chunks[i].open(d.file, d.size, rg, d.leaves[i]); err != nil {
			return columnError(&d.cols[i], err)
		}
	}
	return nil
}

// maxGroupRows is more than any writer puts into a row group.
const maxGroupRows = 1 << 28

// chunk reads the values of one column in one row group.
type chunk struct {
	leaf
	pages *pages
	left  int // levels of the page that are still to come
	defs  runs
	reps  runs
	refs  runs // indices into the dictionary
	isRef bool
	plain plain
	dict  values
	vals  values
	def   []int32
	rep   []int32
	idx   []int32
	ahead bool // of a list: the first level of the next row was read
}

func (c *chunk) open(f io.ReaderAt, size int64, rg *metadata.RowGroupMetaData, l leaf) error {
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
		return fmt.Errorf("its pages stand at bytes %d to %d of a file of %d", from, from+n, size)
	}
	if md.Type() != l.physical || md.CryptoMetadata() != nil {
		return errors.New("its pages are of another type than its schema, or encrypted")
	}
	*c = chunk{leaf: l, pages: newPages(f, from, n, int(md.Compression())), vals: c.vals, def: c.def, rep: c.rep, idx: c.idx}
	return nil
}

// page opens the next data page; io.EOF at the end.
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

// dictionary reads a page of distinct values.
func (c *chunk) dictionary(h *pageHeader, data []byte) (v values, err error) {
	if h.encoding != encPlain && h.encoding != encPlainRef {
		return v, fmt.Errorf("got a dictionary of encoding %d, want PLAIN", h.encoding)
	}
	if h.values > int64(len(data)) { // every value takes a byte at least
		return v, errShort
	}
	p := plain{b: data}
	return v, p.fill(&v, c.leaf, int(h.values))
}

// data begins a data page: its levels, then its values.
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
	c.isRef = false
	switch {
	case h.encoding == encPlain:
		c.plain = plain{b: data}
	case h.encoding == encRuns && c.physical == parquet.Types.Boolean && len(data) >= 4:
		c.plain = plain{runs: runs{b: data[4:], width: 1}, isRuns: true}
	case h.encoding == encRef || h.encoding == encPlainRef:
		c.isRef = true
		if len(data) == 0 { // a page of nulls
			c.refs = runs{}
			return nil
		}
		c.refs = runs{b: data[1:], width: int(data[0])}
		if data[0] > 32 {
			return fmt.Errorf("got indices of %d bits, want at most 32", data[0])
		}
	default:
		return fmt.Errorf("got the encoding %s, want PLAIN or RLE_DICTIONARY", parquet.Encoding(h.encoding))
	}
	return nil
}

// levelsOf cuts the levels off a version 1 page.
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

// read reads n rows and hands them over page by page.
func (c *chunk) read(col *column, n int, use func(columnPart)) error {
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
		known := k
		c.def = c.def[:0]
		if c.maxDef > 0 {
			c.def = resize(c.def, k)
			if !c.defs.fill(c.def) {
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
		if err := c.take(known); err != nil {
			return err
		}
		use(columnPart{from: at, def: c.def, max: 1, values: c.vals})
		at += k
	}
	return nil
}

// early is the error of pages that end before their rows do.
func early(err error) error {
	if err == io.EOF {
		return errors.New("got fewer values than rows")
	}
	return err
}

// readLists reads the lists of n rows: a row ends where the next begins.
func (c *chunk) readLists(n int, use func(columnPart)) error {
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
			err = c.take(known)
		}
		if err != nil {
			return err
		}
		use(columnPart{from: from, def: c.def, rep: c.rep, max: c.maxDef, values: c.vals})
	}
	return nil
}

// listLevels reads the levels of a page up to row n, of which it sets ahead,
// counts the rows and returns how many values there are.
func (c *chunk) listLevels(row *int, n int) (known int, err error) {
	c.def, c.rep = c.def[:0], c.rep[:0]
	for c.left > 0 {
		var level [1]int32
		if !c.ahead && !c.reps.fill(level[:]) {
			return 0, errShort
		}
		switch c.ahead = level[0] == 0 && *row == n-1; {
		case c.ahead:
			return known, nil
		case level[0] == 0:
			*row++
		case *row < 0:
			return 0, errors.New("got a list that belongs to no row")
		}
		c.rep = append(c.rep, level[0])
		if !c.defs.fill(level[:]) {
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

// end checks that no value is left.
func (c *chunk) end() error {
	for c.left == 0 {
		if err := c.page(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
	return errors.New("got more values than rows")
}

// take reads the next n values of the page.
func (c *chunk) take(n int) error {
	if !c.isRef {
		return c.plain.fill(&c.vals, c.leaf, n)
	}
	c.idx = resize(c.idx, n)
	if !c.refs.fill(c.idx) {
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

// resize is buf with n elements, whatever they are.
func resize[V any](buf []V, n int) []V {
	if cap(buf) < n {
		return make([]V, n)
	}
	return buf[:n]
}

// plain reads values that stand one after another.
type plain struct {
	b      []byte
	bit    int // of booleans
	runs   runs
	isRuns bool
}

// fill reads n values into v.
func (p *plain) fill(v *values, l leaf, n int) error {
	width := 0
	switch l.physical {
	case parquet.Types.Int64, parquet.Types.Double:
		width = 8
	case parquet.Types.Int32:
		width = 4
	}
	if len(p.b) < n*width {
		return errShort
	}
	switch l.physical {
	case parquet.Types.Int64:
		v.ints = resize(v.ints, n)
		for i := range v.ints {
			v.ints[i] = int64(binary.LittleEndian.Uint64(p.b[8*i:]))
			if l.unsigned && v.ints[i] < 0 {
				return fmt.Errorf("got %d, want at most %d", uint64(v.ints[i]), int64(math.MaxInt64))
			}
		}
	case parquet.Types.Int32:
		v.ints = resize(v.ints, n)
		for i := range v.ints {
			u := binary.LittleEndian.Uint32(p.b[4*i:])
			if v.ints[i] = int64(int32(u)); l.unsigned {
				v.ints[i] = int64(u)
			}
		}
	case parquet.Types.Double:
		v.floats = resize(v.floats, n)
		for i := range v.floats {
			v.floats[i] = math.Float64frombits(binary.LittleEndian.Uint64(p.b[8*i:]))
		}
	case parquet.Types.Boolean:
		v.bools = resize(v.bools, n)
		return p.fillBools(v.bools)
	default:
		v.texts = resize(v.texts, n)
		return p.fillTexts(v.texts)
	}
	p.b = p.b[n*width:]
	return nil
}

func (p *plain) fillBools(dst []bool) error {
	if p.isRuns {
		ints := make([]int32, len(dst))
		if !p.runs.fill(ints) {
			return errShort
		}
		for i, v := range ints {
			dst[i] = v == 1
		}
		return nil
	}
	if len(p.b)*8-p.bit < len(dst) {
		return errShort
	}
	for i := range dst {
		dst[i] = p.b[p.bit>>3]>>(p.bit&7)&1 == 1
		p.bit++
	}
	return nil
}

func (p *plain) fillTexts(dst []string) error {
	for i := range dst {
		if len(p.b) < 4 {
			return errShort
		}
		n := int64(binary.LittleEndian.Uint32(p.b))
		if n > int64(len(p.b)-4) {
			return errShort
		}
		dst[i] = string(p.b[4 : 4+n])
		p.b = p.b[4+n:]
	}
	return nil
}

// runs reads Parquet's mixture of repeated and bit-packed values.
type runs struct {
	b      []byte
	width  int // bits of a value
	left   int // values of the run
	value  int32
	isSame bool   // the run is of one value
	packed []byte // of a bit-packed run
	bit    int
}

// fill reads len(dst) values; false when there are fewer.
func (r *runs) fill(dst []int32) bool {
	for len(dst) > 0 {
		if r.left == 0 && !r.run() {
			return false
		}
		n := min(r.left, len(dst))
		r.left -= n
		if r.isSame {
			for i := range dst[:n] {
				dst[i] = r.value
			}
		} else {
			r.unpack(dst[:n])
		}
		dst = dst[n:]
	}
	return true
}

// run begins the next run.
func (r *runs) run() bool {
	head, n := binary.Uvarint(r.b)
	if n <= 0 || head>>1 == 0 || head>>1 > math.MaxInt32/8 {
		return false
	}
	r.b = r.b[n:]
	if head&1 == 0 {
		size := (r.width + 7) / 8
		if len(r.b) < size {
			return false
		}
		var v [4]byte
		copy(v[:], r.b[:size])
		r.left, r.value, r.isSame = int(head>>1), int32(binary.LittleEndian.Uint32(v[:])), true
		r.b = r.b[size:]
		return true
	}
	size := int(head>>1) * r.width // eight values take width bytes
	if size > len(r.b) {           // the last group may be cut where its values end
		size = len(r.b)
	}
	r.left = int(head>>1) * 8
	r.packed = r.b[:size]
	r.bit = 0
	r.isSame = false
	if r.width > 0 {
		r.left = min(r.left, size*8/r.width)
	}
	r.b = r.b[size:]
	return r.left > 0
}

// unpack reads values of a bit-packed run, which holds them.
func (r *runs) unpack(dst []int32) {
	mask := uint64(1)<<r.width - 1
	for i := range dst {
		at, shift := r.bit>>3, r.bit&7
		var word uint64
		if at+8 <= len(r.packed) {
			word = binary.LittleEndian.Uint64(r.packed[at:])
		} else {
			var tail [8]byte
			copy(tail[:], r.packed[at:])
			word = binary.LittleEndian.Uint64(tail[:])
		}
		dst[i] = int32(word >> shift & mask)
		r.bit += r.width
	}
}
