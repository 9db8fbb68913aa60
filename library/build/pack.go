package build

// This file packs the published Parquet tables of a GPU into the tables of package library.

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unique"

	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/file"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
)

// columns has the columns of one Parquet file, by name.
type columns struct {
	n     int                  // rows
	names []string             // of ints and texts, which may be keys, in the order of the file
	ints  map[string][]int64   // keys and sizes
	texts map[string][]string  // keys
	nums  map[string][]float64 // times
}

// readColumns returns the columns of text, int64 and double of a whole Parquet file. The Parquet
// library panics on some damaged files; that becomes an error.
func readColumns(path string, data []byte) (c *columns, err error) {
	defer func() {
		if p := recover(); p != nil {
			c = nil
			err = damagedFile(path, fmt.Errorf("%v", p))
		}
	}()
	rd, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		return nil, damagedFile(path, err)
	}
	defer rd.Close()
	c = &columns{
		n:     int(rd.NumRows()),
		ints:  map[string][]int64{},
		texts: map[string][]string{},
		nums:  map[string][]float64{},
	}
	if c.n == 0 {
		return nil, trace.Errorf(library.BadTable, "%s: got no rows, want measurements", path)
	}
	schema := rd.MetaData().Schema
	for at := range schema.NumColumns() {
		name := schema.Column(at).Name()
		switch kind := schema.Column(at).PhysicalType(); kind {
		case parquet.Types.ByteArray:
			c.names = append(c.names, name)
			interned := func(b parquet.ByteArray) string { return unique.Make(string(b)).Value() }
			err = column(path, rd, at, c.n, c.texts, (*file.ByteArrayColumnChunkReader).ReadBatch, interned)
		case parquet.Types.Int64:
			c.names = append(c.names, name)
			err = column(path, rd, at, c.n, c.ints, (*file.Int64ColumnChunkReader).ReadBatch, same[int64])
		case parquet.Types.Double:
			err = column(path, rd, at, c.n, c.nums, (*file.Float64ColumnChunkReader).ReadBatch, same[float64])
		default:
			err = trace.Errorf(library.BadTable, "%s: column %q: got %v, want text, int64 or double", path, name, kind)
		}
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

// damagedFile returns the error of a damaged Parquet file.
func damagedFile(path string, err error) error {
	return trace.Errorf(library.BadTable, "%s: got a damaged file (%v), want Parquet", path, err).WithHint("fetch the file again")
}

// same returns v.
func same[T any](v T) T { return v }

// column reads the column at an index, of n values in all row groups, into dst under its name. R is the reader of the
// column's physical type, P its value, which conv converts.
func column[R file.ColumnChunkReader, P, V any](
	path string,
	rd *file.Reader,
	at, n int,
	dst map[string][]V,
	read func(R, int64, []P, []int16, []int16) (int64, int, error),
	conv func(P) V,
) error {
	name := rd.MetaData().Schema.Column(at).Name()
	values := make([]V, 0, n)
	page := make([]P, 4096)
	defs := make([]int16, 4096)
	for g := range rd.NumRowGroups() {
		chunk, err := rd.RowGroup(g).Column(at)
		if err != nil {
			return damagedFile(path, err)
		}
		for r := chunk.(R); r.HasNext(); {
			levels, got, err := read(r, int64(len(page)), page, defs, nil)
			if err != nil {
				return damagedFile(path, err)
			}
			if int64(got) != levels { // a null has a level and no value
				return trace.Errorf(library.BadTable, "%s: column %q: got an empty value after row %d, want none", path, name, len(values)+got)
			}
			if levels == 0 { // a damaged chunk may claim more and have none
				break
			}
			for _, v := range page[:got] {
				values = append(values, conv(v))
			}
		}
	}
	if len(values) != n {
		return trace.Errorf(library.BadTable, "%s: column %q: got %d values, want %d", path, name, len(values), n)
	}
	dst[name] = values
	return nil
}

// sizes are the columns that may be a table's size: the first with more than one value is.
var sizes = []string{"m", "seq_len", "num_tokens", "num_token", "message_size", "isl", "step"}

// unused are columns that no lookup asks for; op_name counts where it has several values.
var unused = []string{"framework", "device", "architecture", "op_name"}

// times are the columns of times. A file with several of them makes a table of each.
var times = []struct {
	column string
	suffix string  // of the table's name
	us     float64 // of one unit
}{
	{column: "latency", us: 1e3},
	{column: "dispatch_avg_t_us", suffix: "_dispatch", us: 1},
	{column: "combine_avg_t_us", suffix: "_combine", us: 1},
	{column: "dispatch_transmit_us", suffix: "_dispatch", us: 1},
	{column: "combine_transmit_us", suffix: "_combine", us: 1},
}

// tablesOf returns the tables of one file: every row, by key and size. rel is the path below the systems folder.
func tablesOf(path, rel string, data []byte) ([]*library.Table, error) {
	columns, err := readColumns(path, data)
	if err != nil {
		return nil, err
	}
	in := folder.InputOf(rel, data)
	name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".parquet"), "_perf")
	var out []*library.Table
	for _, t := range times {
		values := columns.nums[t.column] // in t.us
		if values == nil {
			continue
		}
		table := &library.Table{
			Name:        name + t.suffix,
			Path:        rel,
			Version:     filepath.Base(filepath.Dir(path)),
			SHA256:      in.SHA256,
			SourceBytes: in.Bytes,
			Rows:        columns.n,
		}
		keys, err := columns.keys(table, path)
		if err != nil {
			return nil, err
		}
		for i, v := range values {
			if !(v >= 0 && v*t.us < 1e9) {
				return nil, trace.Errorf(library.BadTable, "%s: row %d: %s: got %g, want a time of 0 to 1e9 us", path, i+1, t.column, v)
			}
		}
		order := make([]int, columns.n)
		for i := range order {
			order[i] = i
		}
		stat.SortStable(order, func(a, b int) int { return slices.Compare(keys[a], keys[b]) })
		// Rows of one key follow each other now, by ascending size, and become one series.
		width := len(table.Columns) - 1 // of a key without its size
		for _, i := range order {
			key, size := keys[i][:width], keys[i][width]
			n := len(table.Series)
			if n == 0 || !slices.Equal(table.Series[n-1].Key, key) {
				table.Series = append(table.Series, library.Series{Key: key})
				n++
			}
			last := &table.Series[n-1]
			last.X = append(last.X, size)
			last.Q = append(last.Q, library.Quantized(values[i]*t.us))
		}
		out = append(out, table)
	}
	if len(out) == 0 {
		return nil, trace.Errorf(library.BadTable, "%s: got no column latency, want times", path)
	}
	return out, nil
}

// keys sets the table's columns and returns every row's values in their order: words by their
// index, the size last.
func (c *columns) keys(t *library.Table, path string) ([][]int64, error) {
	size := ""
	for _, name := range sizes {
		vs := c.ints[name]
		varies := slices.ContainsFunc(vs, func(v int64) bool { return v != vs[0] })
		if varies {
			size = name
			break
		}
	}
	if size == "" {
		return nil, trace.Errorf(library.BadTable, "%s: got no size, want one of %s with more than one value", path, strings.Join(sizes, ", "))
	}
	rows := make([][]int64, c.n)
	ops := slices.Compact(slices.Sorted(slices.Values(c.texts["op_name"])))
	names := slices.DeleteFunc(slices.Clone(c.names), func(name string) bool {
		switch {
		case name == size:
			return true
		case size == "seq_len" && name == "num_tokens": // follows from it
			return true
		case name == "op_name" && len(ops) >= 2:
			return false
		}
		return slices.Contains(unused, name)
	})
	for _, name := range append(names, size) {
		column := library.Column{Name: name}
		if texts := c.texts[name]; texts != nil {
			column.Words = slices.Compact(slices.Sorted(slices.Values(texts)))
			for i, text := range texts {
				rows[i] = append(rows[i], column.Word(text))
			}
		} else {
			for i, v := range c.ints[name] {
				rows[i] = append(rows[i], v)
			}
		}
		t.Columns = append(t.Columns, column)
	}
	return rows, nil
}

// NoSheets is the error about a folder without a GPU's file.
const NoSheets = "%s: got no <gpu>.yaml, want kernel tables, as in the systems folder of the aiconfigurator-core package"

// Pack returns the tables of every GPU in the folders, which have the layout of AIConfigurator's
// systems folder: <gpu>.yaml and data/<gpu>/<family>/<framework>/<version>/*.parquet. Of several
// versions of a table it uses the newest.
func Pack(ctx context.Context, dirs []string, workers int) ([]*library.GPU, error) {
	var out []*library.GPU
	for _, dir := range dirs {
		sheets, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil || len(sheets) == 0 {
			return nil, trace.Errorf(library.NoTables, NoSheets, dir)
		}
		for _, path := range sheets {
			g, err := readSheet(path)
			if err != nil {
				return nil, err
			}
			if err := packTables(ctx, g, dir, workers); err != nil {
				return nil, err
			}
			out = append(out, g)
		}
	}
	return out, nil
}

// packTables reads all tables of a GPU.
func packTables(ctx context.Context, g *library.GPU, dir string, workers int) error {
	paths, err := filepath.Glob(filepath.Join(dir, "data", g.Folder, "*", "*", "*", "*.parquet"))
	if err != nil {
		return err
	}
	// Of the versions of a table only the newest stays.
	versionOf := func(path string) string { return filepath.Base(filepath.Dir(path)) }
	tableOf := func(path string) string { // its family, framework and file
		return filepath.Join(filepath.Dir(filepath.Dir(path)), filepath.Base(path))
	}
	newest := map[string]string{} // path by table
	for _, path := range paths {
		if old := newest[tableOf(path)]; old == "" || compareVersions(versionOf(path), versionOf(old)) > 0 {
			newest[tableOf(path)] = path
		}
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return newest[tableOf(path)] != path })
	tables := make([][]*library.Table, len(paths))
	if err := par.Try(ctx, workers, len(paths), func(i int) error {
		data, err := files.ReadAll(paths[i])
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, paths[i])
		if err != nil {
			return err
		}
		tables[i], err = tablesOf(paths[i], filepath.ToSlash(rel), data)
		return err
	}, nil); err != nil {
		return err
	}
	g.Tables = slices.Concat(tables...)
	if len(g.Tables) == 0 {
		return trace.Errorf(library.NoTables, "%s: got no <family>/<framework>/<version>/*.parquet, want the tables of %s",
			filepath.Join(dir, "data", g.Folder), g.Folder)
	}
	return nil
}

// readSheet returns the figures of a GPU in <gpu>.yaml.
func readSheet(path string) (*library.GPU, error) {
	data, err := files.ReadAll(path)
	if err != nil {
		return nil, err
	}
	var sheet struct {
		GPU struct {
			Bandwidth  float64 `yaml:"mem_bw"`
			FLOPS      float64 `yaml:"bfloat16_tc_flops"`
			Capability int64   `yaml:"sm_version"`
		} `yaml:"gpu"`
		Node struct {
			Link float64 `yaml:"intra_node_bw"`
		} `yaml:"node"`
	}
	root, err := files.ParseYAML(data, path)
	if root != nil && err == nil {
		err = root.Decode(&sheet)
	}
	if err != nil {
		return nil, trace.Errorf(library.BadTable, "%s: %v", path, err)
	}
	g := &library.GPU{
		Folder:    strings.TrimSuffix(filepath.Base(path), ".yaml"),
		SM:        sheet.GPU.Capability,
		Bandwidth: sheet.GPU.Bandwidth,
		FLOPS:     sheet.GPU.FLOPS,
		Link:      sheet.Node.Link,
	}
	if g.SM <= 0 || !(g.Bandwidth > 0 && g.FLOPS > 0 && g.Link > 0) {
		return nil, trace.Errorf(library.BadTable, "%s: got no gpu.sm_version, gpu.mem_bw, gpu.bfloat16_tc_flops or node.intra_node_bw, want "+
			"all four", path)
	}
	h, ok := deploy.Datasheet(g.Folder)
	if !ok {
		return nil, trace.Errorf(deploy.BadHardware, "%s: got %q, want the name of a built-in device", path, g.Folder)
	}
	g.Hardware = h.Name
	return g, nil
}

// compareVersions returns the order of two versions, 0.9.1 before 0.14.0; what is not a number
// counts as 0.
func compareVersions(a, b string) int {
	return cmp.Or(slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		n, _ := strconv.Atoi(x)
		m, _ := strconv.Atoi(y)
		return cmp.Compare(n, m)
	}), strings.Compare(a, b))
}

// distinct returns the distinct values, sorted.
func distinct[T cmp.Ordered](vs []T) []T {
	slices.Sort(vs)
	return slices.Compact(vs)
}
