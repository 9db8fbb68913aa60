package table

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestRowGroupsThatCannotBeOpened: a row group whose footer is damaged is an error, not the end of the table.
func TestRowGroupsThatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	if err := Write(dir, "three", Parquet, []trace.Step{{ID: 1}, {ID: 2}, {ID: 3}}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(d *parquetRows[trace.Step])
		want   string
	}{
		"whole":           {func(*parquetRows[trace.Step]) {}, ""},
		"fewer than no":   {func(d *parquetRows[trace.Step]) { d.meta.RowGroups[0].NumRows = -1 }, "got a row group of -1 rows, want 0 to 268435456"},
		"more than any":   {func(d *parquetRows[trace.Step]) { d.meta.RowGroups[0].NumRows = 1<<28 + 1 }, "got a row group of 268435457 rows, want 0 to 268435456"},
		"more than bytes": {func(d *parquetRows[trace.Step]) { d.meta.RowGroups[0].NumRows = 1<<16 + d.size + 1 }, " bytes, want at most one in a byte"},
		"outside": {func(d *parquetRows[trace.Step]) {
			for _, c := range d.meta.RowGroups[0].Columns {
				c.MetaData.DataPageOffset = d.size
				c.MetaData.DictionaryPageOffset = nil
			}
		}, "column "},
	} {
		c2, err := OpenFile[trace.Step](filepath.Join(dir, "three.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		c.change(c2.rows.(*parquetRows[trace.Step]))
		rows, err := c2.All()
		if c.want == "" {
			if err != nil || len(rows) != 3 {
				t.Errorf("%s: got %d rows, %v", name, len(rows), err)
			}
			continue
		}
		if trace.CodeOf(err) != CodeDamaged || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %d rows, %v, want %s", name, len(rows), err, c.want)
		}
	}
}
