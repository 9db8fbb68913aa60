package kernels

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Codes of this package.
const (
	BadTable trace.Code = "bad_kernel_table"
	NoRows   trace.Code = "kernel_rows_missing"
	NoTables trace.Code = "no_kernel_tables"
)

// Table is one published table: times by a key and a size.
type Table struct {
	Name        string   `json:"name"` // gemm, context_attention, ...
	Path        string   `json:"path"` // of the source, below the systems folder
	Version     string   `json:"version"`
	SHA256      string   `json:"sha256"` // of the source, as its bytes
	SourceBytes int64    `json:"source_bytes"`
	Rows        int      `json:"rows"`
	Columns     []Column `json:"columns"` // of the keys; the last is the size
	Series      []Series `json:"-"`

	Bytes int `json:"bytes"` // packed, in the file
}

// Column is one column of a table's keys.
type Column struct {
	Name  string   `json:"name"`
	Words []string `json:"words,omitempty"` // of a column of text, sorted: a key holds the place
}

// Series are the rows with one key, by ascending size.
type Series struct {
	Key, X []int64
	Q      []int16 // log2 of the time in us, times 64; zeroTime for 0
}

const (
	perOctave = 64
	zeroTime  = math.MinInt16
	magic     = "BLISKERN1\n"
	maxHeader = 1 << 20
	maxRows   = 1 << 22 // of one table
)

// Quantized is a time in us as a file holds it.
func Quantized(us float64) int16 {
	if us <= 0 {
		return zeroTime
	}
	return int16(math.Round(perOctave * stat.Log(us) / math.Ln2))
}

// Us is the time of a row.
func Us(q int16) float64 {
	if q == zeroTime {
		return 0
	}
	return octaves()[int(q)-math.MinInt16]
}

// octaves are the times of all codes: the lookups of a deployment read thousands.
var octaves = sync.OnceValue(func() []float64 {
	out := make([]float64, 1<<16)
	for i := range out {
		out[i] = stat.Exp(float64(i+math.MinInt16) / perOctave * math.Ln2)
	}
	return out
})

// pack is the table's rows, delta-coded and compressed. Series must be sorted by key, rows by size.
func (t *Table) pack() []byte {
	var out []byte
	put := func(v int64) { out = binary.AppendVarint(out, v) }
	put(int64(len(t.Series)))
	for j := range len(t.Columns) - 1 {
		last := int64(0)
		for i := range t.Series {
			put(t.Series[i].Key[j] - last)
			last = t.Series[i].Key[j]
		}
	}
	var lists [][]int64 // of sizes: most series share one
	for i := range t.Series {
		x := t.Series[i].X
		k := slices.IndexFunc(lists, func(l []int64) bool { return slices.Equal(l, x) })
		if k >= 0 {
			put(int64(k))
			continue
		}
		put(int64(len(lists)))
		lists = append(lists, x)
		put(int64(len(x)))
		last := int64(0)
		for _, v := range x {
			put(v - last)
			last = v
		}
	}
	first := int64(0)
	for i := range t.Series {
		last := first
		for j, q := range t.Series[i].Q {
			put(int64(q) - last)
			if last = int64(q); j == 0 {
				first = last
			}
		}
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic("kernels: " + err.Error())
	}
	return enc.EncodeAll(out, nil)
}

// unpack fills Series from what pack made.
func (t *Table) unpack(packed []byte) (err error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<28))
	if err != nil {
		return err
	}
	defer dec.Close()
	data, err := dec.DecodeAll(packed, nil)
	if err != nil {
		return err
	}
	bad := false
	get := func() int64 {
		v, n := binary.Varint(data)
		if n <= 0 {
			bad = true
			return 0
		}
		data = data[n:]
		return v
	}
	n := get()
	if bad || n < 0 || n > maxRows {
		return fmt.Errorf("got %d series, want at most %d", n, maxRows)
	}
	t.Series = make([]Series, n)
	width := len(t.Columns) - 1
	keys := make([]int64, int(n)*width)
	for i := range t.Series {
		t.Series[i].Key = keys[i*width : (i+1)*width]
	}
	for j := range width {
		last := int64(0)
		for i := range t.Series {
			last += get()
			t.Series[i].Key[j] = last
			if words := t.Columns[j].Words; words != nil && (last < 0 || last >= int64(len(words))) {
				return fmt.Errorf("column %s: got word %d, want one of %d", t.Columns[j].Name, last, len(words))
			}
		}
	}
	var lists [][]int64
	rows := 0
	for i := range t.Series {
		k := get()
		if k == int64(len(lists)) {
			m := get()
			if m < 1 || m > maxRows {
				return fmt.Errorf("got %d rows of a series, want 1 to %d", m, maxRows)
			}
			x, last := make([]int64, m), int64(0)
			for j := range x {
				last += get()
				x[j] = last
			}
			lists = append(lists, x)
		}
		if bad || k < 0 || k >= int64(len(lists)) {
			return io.ErrUnexpectedEOF
		}
		t.Series[i].X = lists[k]
		rows += len(lists[k])
	}
	if rows != t.Rows || rows > maxRows {
		return fmt.Errorf("got %d rows, want %d", rows, t.Rows)
	}
	qs, first := make([]int16, rows), int64(0)
	for i := range t.Series {
		last := first
		t.Series[i].Q, qs = qs[:len(t.Series[i].X)], qs[len(t.Series[i].X):]
		for j := range t.Series[i].Q {
			last += get()
			if t.Series[i].Q[j] = int16(last); j == 0 {
				first = last
			}
		}
	}
	if bad || len(data) > 0 {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// GPU are the tables of one GPU. It is immutable and safe to share.
type GPU struct {
	Hardware  string   `json:"hardware"` // the datasheet's name
	Folder    string   `json:"folder"`   // the GPU's name where the tables are published: h100_sxm
	SM        int64    `json:"sm_version"`
	Bandwidth float64  `json:"mem_bw"`            // B/s
	FLOPS     float64  `json:"bfloat16_tc_flops"` // FLOP/s, dense
	Link      float64  `json:"intra_node_bw"`     // B/s to the other GPUs of a node, one direction
	Tables    []*Table `json:"tables"`

	name   string // in messages
	packed map[string]*lazyTable
}

type lazyTable struct {
	once sync.Once
	err  error
	data []byte
}

// Write is the file of a GPU: a header of JSON, then the tables as packed.
func (g *GPU) Write(w io.Writer) error {
	var packed [][]byte
	for _, t := range g.Tables {
		slices.SortStableFunc(t.Series, func(a, b Series) int { return slices.Compare(a.Key, b.Key) })
		data := t.pack()
		t.Bytes = len(data)
		packed = append(packed, data)
	}
	header, err := json.Marshal(g)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%d\n%s\n", magic, len(header), header)
	for _, data := range packed {
		if err == nil {
			_, err = w.Write(data)
		}
	}
	return err
}

// Read is a GPU's file, called name in messages. Code: bad_kernel_table.
func Read(data []byte, name string) (*GPU, error) {
	damaged := func(format string, args ...any) error {
		return trace.Errorf(BadTable, "%s: "+format, append([]any{name}, args...)...).WithHint("make it again: blis-train library build")
	}
	rest, ok := bytes.CutPrefix(data, []byte(magic))
	size, rest, ok2 := bytes.Cut(rest, []byte("\n"))
	n := 0
	if _, err := fmt.Sscanf(string(size), "%d", &n); !ok || !ok2 || err != nil || n < 2 || n > maxHeader || n+1 > len(rest) {
		return nil, damaged("got no kernel tables, want a file of blis-train library build")
	}
	g := &GPU{name: name, packed: map[string]*lazyTable{}}
	if err := json.Unmarshal(rest[:n], g); err != nil {
		return nil, damaged("header: %v", err)
	}
	rest = rest[n+1:]
	for _, t := range g.Tables {
		if t.Bytes < 0 || t.Bytes > len(rest) || len(t.Columns) == 0 || t.Rows < 0 || g.packed[t.Name] != nil {
			return nil, damaged("table %q: got %d bytes, want at most the %d that are left", t.Name, t.Bytes, len(rest))
		}
		g.packed[t.Name], rest = &lazyTable{data: rest[:t.Bytes]}, rest[t.Bytes:]
	}
	if len(rest) > 0 || !(g.Bandwidth > 0 && g.FLOPS > 0 && g.Link > 0) {
		return nil, damaged("got %d bytes after the last table, mem_bw %g, want none and a datasheet", len(rest), g.Bandwidth)
	}
	return g, nil
}

// Table is a table, unpacked; nil when the GPU has none of that name.
func (g *GPU) Table(name string) (*Table, error) {
	l := g.packed[name]
	if l == nil {
		return nil, nil
	}
	t := g.Tables[slices.IndexFunc(g.Tables, func(t *Table) bool { return t.Name == name })]
	l.once.Do(func() {
		if err := t.unpack(l.data); err != nil {
			l.err = trace.Errorf(BadTable, "%s: table %s: %v", g.name, name, err).WithHint("make it again: blis-train library build")
		}
	})
	return t, l.err
}

// Column is the place of a column in the keys; -1 without it.
func (t *Table) Column(name string) int {
	return slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == name })
}

// Word is the place of a word in a column of text; -1 without it.
func (c *Column) Word(text string) int64 {
	i, ok := slices.BinarySearch(c.Words, text)
	if !ok {
		return -1
	}
	return int64(i)
}

// distinct sorts and drops repeats.
func distinct[T cmp.Ordered](vs []T) []T {
	slices.Sort(vs)
	return slices.Compact(vs)
}

//go:embed tables/*.kernels
var embedded embed.FS

// GPUs are the embedded tables, by folder name. They are parsed once.
var GPUs = sync.OnceValue(func() []*GPU {
	entries, err := embedded.ReadDir("tables")
	if err != nil {
		panic("kernels: embedded tables: " + err.Error())
	}
	var out []*GPU
	for _, e := range entries {
		data, err := embedded.ReadFile("tables/" + e.Name())
		var g *GPU
		if err == nil {
			g, err = Read(data, "tables/"+e.Name())
		}
		if err != nil {
			panic("kernels: embedded tables: " + err.Error())
		}
		out = append(out, g)
	}
	return out
})

// For are the embedded tables of a deployment's GPU. Code: no_kernel_tables.
func For(h *deploy.Hardware) (*GPU, error) {
	all := GPUs()
	if i := slices.IndexFunc(all, func(g *GPU) bool { return g.Hardware == h.Name }); i >= 0 {
		return all[i], nil
	}
	have := stat.Map(all, func(g *GPU) string { return g.Hardware })
	return nil, trace.Errorf(NoTables, "hardware %s: got no kernel tables of it, want one of %s", h.Name, strings.Join(have, ", ")).
		WithHint("give tables of your own with --library FILE, or simulate with --latency-model roofline")
}
