package table

// This file reads Parquet tables.

import (
	"fmt"
	"io"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/schema"
)

// parquetRows reads the rows of a Parquet file, row group after row group. It reads the columns
// side by side, one page of each at a time.
type parquetRows[T any] struct {
	file   io.ReaderAt
	size   int64
	meta   *metadata.FileMetaData
	cols   []column
	leaves []leaf
	group  int            // the next row group
	skip   func(int) bool // reports the groups to be skipped; nil for none
	left   int64          // rows of the current group that were not yet read
	chunks []chunk        // of the columns in the current group
	open   int64          // bytes of their open pages
	known  int64          // rows of this and the earlier groups
}

// leaf is the place and the physical type of a column in the file. Its levels are those that type
// levels describes.
type leaf struct {
	at       int // among the columns of the file
	physical parquet.Type
	unsigned bool
	maxDef   int32 // definition level of a value
	elemDef  int32 // definition level from which on a list has an element
	maxRep   int32 // repetition level of the second value of a list; 0 for other columns
}

// openParquet reads the footer of a Parquet file of size bytes and finds each of cols in it. It
// returns an error if the file is damaged, has another schema version, or a column is missing or
// has another type.
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

// findLeaf returns the column of the file with the name of c, and an error if there is none, if
// there are several, or if its type cannot have the values of c. It accepts integers of any width
// and optional columns without nulls, because other programs write them.
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
	l.physical = col.PhysicalType()
	l.maxDef = int32(col.MaxDefinitionLevel())
	l.maxRep = int32(col.MaxRepetitionLevel())
	root := s.ColumnRoot(l.at)
	hasShape := root == col.SchemaNode() && l.maxRep == 0
	if c.list {
		hasShape = len(col.ColumnPath()) == 3 && l.maxRep == 1 && root.ConvertedType() == schema.ConvertedTypes.List
		l.elemDef = 1
		if root.RepetitionType() == parquet.Repetitions.Optional {
			l.elemDef = 2
		}
	}
	if !hasShape || !l.holds(c.kind, col) {
		return l, fmt.Errorf("got %s, want %s", typeOf(root, col), c.Type)
	}
	return l, nil
}

// holds reports whether a Parquet column can have values of kind k. It sets l.unsigned for unsigned
// integers.
func (l *leaf) holds(k kind, col *schema.Column) bool {
	logical := col.LogicalType()
	plain := logical == nil || logical.IsNone()
	switch k {
	case kindInt64:
		if i, ok := logical.(interface{ IsSigned() bool }); ok {
			l.unsigned = !i.IsSigned()
			plain = true
		}
		return plain && (l.physical == parquet.Types.Int64 || l.physical == parquet.Types.Int32)
	case kindFloat64:
		return plain && l.physical == parquet.Types.Double
	case kindBool:
		return plain && l.physical == parquet.Types.Boolean
	}
	return col.ConvertedType() == schema.ConvertedTypes.UTF8 && l.physical == parquet.Types.ByteArray
}

// typeOf returns the name of the type of a column of a file, for an error.
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

// rowCount returns the number of rows in the footer, but at most one for each byte of the file,
// because the footer may be damaged.
func (d *parquetRows[T]) rowCount() int { return int(max(0, min(d.meta.NumRows, d.size))) }

// next fills rows and returns how many it filled; 0 at the end of the file.
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
		err := c.readRows(&d.cols[i], n, func(part columnPart) { scatterPart(&d.cols[i], placed(rows), part) })
		if err == nil && d.left == 0 {
			err = c.checkEnd()
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
	d.left = rg.NumRows()
	if d.left < 0 || d.left > maxGroupRows {
		return damaged(fmt.Errorf("got a row group of %d rows, want 0 to %d", d.left, maxGroupRows))
	}
	if d.known += d.left; d.known > freeRows+d.size {
		return damaged(fmt.Errorf("got more than %d rows in a file of %d bytes, want at most one in a byte", d.known, d.size))
	}
	d.open = 0
	for i := range d.cols {
		if err := d.chunks[i].openChunk(d.file, d.size, rg, d.leaves[i], &d.open); err != nil {
			return columnError(&d.cols[i], err)
		}
	}
	return nil
}

// freeRows may be in a table of any size. Our smallest rows, snapshots, take five bytes each when they are packed; a
// column whose values are all equal takes none, so that a file of some kilobytes could have any number of rows.
const freeRows = 1 << 16

// maxGroupRows is larger than the number of rows in a row group of any writer.
const maxGroupRows = 1 << 28
