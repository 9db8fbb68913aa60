package library

// This file has the tables of one GPU, their file format (magic, length of the header, header in compressed JSON,
// packed tables in its order), and the embedded files.

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// GPU has the kernel tables of one GPU. It is immutable and safe to share.
type GPU struct {
	Hardware  string   `json:"hardware"`          // the datasheet's name
	Folder    string   `json:"folder"`            // the GPU's name where the tables are published: h100_sxm
	SM        int64    `json:"sm_version"`        // compute capability, times 10
	Bandwidth float64  `json:"mem_bw"`            // B/s
	FLOPS     float64  `json:"bfloat16_tc_flops"` // FLOP/s, dense
	Link      float64  `json:"intra_node_bw"`     // B/s to the other GPUs of a node, one direction
	Tables    []*Table `json:"tables"`

	name   string                // of the file, for messages
	packed map[string]*lazyTable // by the name of the table
	looked sync.Map              // results (lookup) by the key of a look-up, see lookedUp
}

// lazyTable is the packed rows of a table, which are unpacked into the table when it is first used.
type lazyTable struct {
	once sync.Once
	err  error
	data []byte
}

// Write writes the file of a GPU: a header in JSON, then the packed tables.
func (g *GPU) Write(w io.Writer) error {
	var packed [][]byte
	for _, t := range g.Tables {
		stat.SortStable(t.Series, func(a, b Series) int { return slices.Compare(a.Key, b.Key) })
		t.age = present
		data := t.pack()
		t.Bytes = len(data)
		packed = append(packed, data)
	}
	header, err := json.Marshal(g)
	if err != nil {
		return err
	}
	header = compressed(header)
	_, err = fmt.Fprintf(w, "%s%d\n%s\n", magics[present], len(header), header)
	for _, data := range packed {
		if err == nil {
			_, err = w.Write(data)
		}
	}
	return err
}

// Read returns the tables in the file of a GPU. name is the file's name for errors. Code:
// bad_kernel_table.
func Read(data []byte, name string) (*GPU, error) {
	damaged := func(format string, args ...any) error {
		return trace.Errorf(BadTable, "%s: "+format, append([]any{name}, args...)...).WithHint("make it again: blis-train library build")
	}
	age := slices.IndexFunc(magics, func(magic string) bool { return bytes.HasPrefix(data, []byte(magic)) })
	if age < 0 {
		return nil, damaged("got no kernel tables, want a file of blis-train library build")
	}
	rest := data[len(magics[age]):]
	lengthText, rest, hasLength := bytes.Cut(rest, []byte("\n"))
	length := 0 // of the header, which a newline ends; the shortest JSON object is {}
	_, err := fmt.Sscanf(string(lengthText), "%d", &length)
	if !hasLength || err != nil || length < len("{}") || length > maxHeader || length+1 > len(rest) {
		return nil, damaged("got no kernel tables, want a file of blis-train library build")
	}
	g := &GPU{name: name, packed: map[string]*lazyTable{}}
	header := rest[:length]
	if age == present {
		if header, err = decompressed(header, maxHeader); err != nil {
			return nil, damaged("header: %v", err)
		}
	}
	if err := json.Unmarshal(header, g); err != nil {
		return nil, damaged("header: %v", err)
	}
	rest = rest[length+1:]
	for _, t := range g.Tables {
		if t.Bytes < 0 || t.Bytes > len(rest) || len(t.Columns) == 0 || t.Rows < 0 || g.packed[t.Name] != nil {
			return nil, damaged("table %q: got %d bytes, %d columns, %d rows, want at most the %d bytes that are left, 1 or more, 0 or more, and each name once",
				t.Name, t.Bytes, len(t.Columns), t.Rows, len(rest))
		}
		t.age = age
		g.packed[t.Name] = &lazyTable{data: rest[:t.Bytes]}
		rest = rest[t.Bytes:]
	}
	if len(rest) > 0 || !(g.Bandwidth > 0 && g.FLOPS > 0 && g.Link > 0) {
		return nil, damaged("got %d bytes after the last table, mem_bw %g, bfloat16_tc_flops %g, intra_node_bw %g, want none and rates above 0",
			len(rest), g.Bandwidth, g.FLOPS, g.Link)
	}
	return g, nil
}

// Table returns a table, unpacked; nil when the GPU has none of that name.
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

// lookup is the result of looking up a time in the tables. Linear layers and collectives have a
// curve, attention has a grid and its ratio.
type lookup struct {
	curve curve
	grid  grid
	ratio float64 // see attention
	found found
	err   error
}

// lookedUp returns the result of a look-up, which runs once for each key: a struct, of a type of the
// look-up's own, with its arguments. Results are shared: callers do not change them.
func (g *GPU) lookedUp(key any, find func() lookup) lookup {
	if l, ok := g.looked.Load(key); ok {
		return l.(lookup)
	}
	l := find()
	g.looked.Store(key, l)
	return l
}

//go:embed tables/*.kernels
var embedded embed.FS

// GPUs returns the embedded tables, sorted by folder name and parsed once.
var GPUs = sync.OnceValue(func() []*GPU {
	entries, err := embedded.ReadDir("tables")
	if err != nil {
		panic("library: embedded tables: " + err.Error())
	}
	var out []*GPU
	for _, e := range entries {
		data, err := embedded.ReadFile("tables/" + e.Name())
		var g *GPU
		if err == nil {
			g, err = Read(data, "tables/"+e.Name())
		}
		if err != nil {
			panic("library: embedded tables: " + err.Error())
		}
		out = append(out, g)
	}
	return out
})

// For returns the embedded tables of a device. Code: no_kernel_tables.
func For(h *deploy.Hardware) (*GPU, error) {
	all := GPUs()
	if i := slices.IndexFunc(all, func(g *GPU) bool { return g.Hardware == h.Name }); i >= 0 {
		return all[i], nil
	}
	var have []string
	for _, g := range all {
		have = append(have, g.Hardware)
	}
	return nil, trace.Errorf(NoTables, "hardware %s: got no kernel tables of it, want one of %s", h.Name, strings.Join(have, ", ")).
		WithHint("give tables of your own with --library FILE, or simulate with --latency-model roofline")
}

// Versions returns the releases of vLLM whose kernels were measured for the tables, sorted.
func (g *GPU) Versions() []string {
	var versions []string
	for _, t := range g.Tables {
		if strings.Contains(t.Path, "/vllm/") { // the others are of NCCL
			versions = append(versions, t.Version)
		}
	}
	return distinct(versions)
}

// Inputs returns the source files of a GPU's tables, each once.
func (g *GPU) Inputs() []coeff.Input {
	var out []coeff.Input
	for _, t := range g.Tables {
		if !slices.ContainsFunc(out, func(in coeff.Input) bool { return in.Name == t.Path }) {
			out = append(out, coeff.Input{Name: t.Path, Bytes: t.SourceBytes, SHA256: t.SHA256})
		}
	}
	return out
}
