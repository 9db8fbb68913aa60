package library

// This file has the types of a published kernel table: one CSV or Parquet file in which
// AIConfigurator published times of one kind of kernel on one GPU.

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// Codes of this package.
const (
	BadTable trace.Code = "bad_kernel_table"    // a file of tables is damaged
	NoRows   trace.Code = "kernel_rows_missing" // a GPU's tables lack a kernel of the deployment
	NoTables trace.Code = "no_kernel_tables"    // no tables of the deployment's GPU
)

// Table is one published table: times by a key and a size.
type Table struct {
	Name        string   `json:"name"`    // gemm, context_attention, ...
	Path        string   `json:"path"`    // of the source, below the systems folder
	Version     string   `json:"version"` // of vLLM, or of the library, whose kernels were measured
	SHA256      string   `json:"sha256"`  // of the source, as its bytes
	SourceBytes int64    `json:"source_bytes"`
	Rows        int      `json:"rows"`    // of all series together
	Columns     []Column `json:"columns"` // of the keys; the last is the size
	Series      []Series `json:"-"`

	Bytes int `json:"bytes"` // packed, in the file

	age int // of the format of its file (magics)
}

// Column is one column of a table's keys.
type Column struct {
	Name  string   `json:"name"`
	Words []string `json:"words,omitempty"` // of a column of text, sorted: a key has the index
}

// Series is the rows of a table with one key, by ascending size.
type Series struct {
	Key []int64 // for each of the table's Columns but the last a number, or the index of a word in Column.Words
	X   []int64 // sizes, in the unit of the last column: tokens, or elements of a collective
	Q   []int16 // the time of each size: log2 of us, times 64 (Quantized); zeroTime for 0
}

// Column returns the index of the named column in Columns and in each Key; -1 if there is none.
func (t *Table) Column(name string) int {
	return slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == name })
}

// Word returns the index of a text in Words, as it is stored in a key; -1 if no row has the text.
func (c *Column) Word(text string) int64 {
	i, ok := slices.BinarySearch(c.Words, text)
	if !ok {
		return -1
	}
	return int64(i)
}

// distinct sorts the values in place and returns each once.
func distinct[T cmp.Ordered](vs []T) []T {
	slices.Sort(vs)
	return slices.Compact(vs)
}
