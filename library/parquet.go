package library

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/folder"
	"github.com/blis-train/blis-train/trace"
)

// columns are the wanted columns of one file; a missing optional column is nil.
type columns struct {
	path  string
	n     int
	ints  map[string][]int64
	texts map[string][]string
	nums  map[string][]float64
}

// want lists a table's columns. A name ending in "?" may be missing.
type want struct {
	ops   []string // what op_name may say
	ints  []string
	texts []string
}

const latencyColumn = "latency"

// readTable reads the wanted columns of a Parquet file, checks the operation,
// and that every latency is a positive number. The input is called name.
func readTable(path, name string, w want) (*columns, coeff.Input, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, coeff.Input{}, err
	}
	src := folder.InputOf(name, data)
	c, err := decodeTable(path, data, w)
	if err != nil {
		return nil, src, err
	}
	for i, v := range c.nums[latencyColumn] {
		if !(v > 0 && v < 1e9) {
			return nil, src, trace.Errorf(badTable, "%s: row %d: latency: got %g, want a positive number of ms", path, i+1, v)
		}
	}
	return c, src, c.checkOp(w.ops)
}

// decodeTable reads the columns. The reader panics on some damaged files; that
// is an error of the file like any other.
func decodeTable(path string, data []byte, w want) (c *columns, err error) {
	defer func() {
		if p := recover(); p != nil {
			c, err = nil, damaged(path, fmt.Errorf("%v", p))
		}
	}()
	rd, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		return nil, damaged(path, err)
	}
	defer rd.Close()
	c = &columns{path: path, n: int(rd.NumRows()), ints: map[string][]int64{}, texts: map[string][]string{}, nums: map[string][]float64{}}
	if c.n == 0 {
		return nil, trace.Errorf(badTable, "%s: got no rows, want measurements", path)
	}
	for _, name := range w.texts {
		if err := column(c, rd, name, c.texts, (*file.ByteArrayColumnChunkReader).ReadBatch, textOf()); err != nil {
			return nil, err
		}
	}
	for _, name := range w.ints {
		if err := column(c, rd, name, c.ints, (*file.Int64ColumnChunkReader).ReadBatch, same[int64]); err != nil {
			return nil, err
		}
	}
	return c, column(c, rd, latencyColumn, c.nums, (*file.Float64ColumnChunkReader).ReadBatch, same[float64])
}

func damaged(path string, err error) error {
	return trace.Errorf(badTable, "%s: got a damaged file (%v), want Parquet", path, err).WithHint("fetch the file again")
}

func same[T any](v T) T { return v }

// textOf copies strings out of the reader's pages, one copy per distinct value.
func textOf() func(parquet.ByteArray) string {
	seen := map[string]string{}
	return func(b parquet.ByteArray) string {
		s, ok := seen[string(b)]
		if !ok {
			s = string(b)
			seen[s] = s
		}
		return s
	}
}

// column reads one column of all row groups into dst[name]. R is the reader of
// the column's physical type, P its value.
func column[R file.ColumnChunkReader, P, V any](c *columns, rd *file.Reader, name string, dst map[string][]V,
	read func(R, int64, []P, []int16, []int16) (int64, int, error), conv func(P) V) error {
	name, optional := strings.CutSuffix(name, "?")
	at := rd.MetaData().Schema.ColumnIndexByName(name)
	if at < 0 {
		if optional {
			return nil
		}
		return trace.Errorf(badTable, "%s: got no column %q, want it", c.path, name)
	}
	values := make([]V, 0, c.n)
	page, defs := make([]P, 4096), make([]int16, 4096)
	for g := range rd.NumRowGroups() {
		chunk, err := rd.RowGroup(g).Column(at)
		if err != nil {
			return damaged(c.path, err)
		}
		r, ok := chunk.(R)
		if !ok {
			return trace.Errorf(badTable, "%s: column %q: got %v, want another type", c.path, name, chunk.Type())
		}
		for r.HasNext() {
			n, got, err := read(r, int64(len(page)), page, defs, nil)
			if err != nil {
				return damaged(c.path, err)
			}
			if int64(got) != n {
				return trace.Errorf(badTable, "%s: column %q: got an empty value after row %d, want none", c.path, name, len(values)+got)
			}
			if n == 0 {
				break
			}
			for _, v := range page[:got] {
				values = append(values, conv(v))
			}
		}
	}
	if len(values) != c.n {
		return trace.Errorf(badTable, "%s: column %q: got %d values, want %d", c.path, name, len(values), c.n)
	}
	dst[name] = values
	return nil
}

// checkOp refuses a file of another operation.
func (c *columns) checkOp(ops []string) error {
	for i, op := range c.texts["op_name"] {
		if !slices.Contains(ops, op) {
			return trace.Errorf(badTable, "%s: row %d: op_name: got %q, want %s", c.path, i+1, op, trace.OneOf(ops)).
				WithHint("put the table of the right operation in this place")
		}
	}
	return nil
}

// int is a value of an optional whole-number column.
func (c *columns) int(name string, i int, def int64) int64 {
	if v := c.ints[name]; v != nil {
		return v[i]
	}
	return def
}
