package library

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/sim/kernels"
	"github.com/blis-train/blis-train/trace"
)

// TestEmbeddedRowsAreTheirSources: every row of every published table is in the embedded file, within 0.6 %, and nothing else is.
func TestEmbeddedRowsAreTheirSources(t *testing.T) {
	dirs := []string{repo.Shared(t, "data", "kernels"), repo.Shared(t, "data", "kernels_more")}
	total := 0
	for _, g := range kernels.GPUs() {
		for _, of := range g.Tables {
			i := slices.IndexFunc(dirs, func(dir string) bool {
				_, err := os.Stat(filepath.Join(dir, of.Path))
				return err == nil
			})
			if i < 0 {
				t.Errorf("%s: got no source", of.Path)
				continue
			}
			table, err := g.Table(of.Name)
			if err != nil {
				t.Fatal(err)
			}
			total += compareRows(t, table, filepath.Join(dirs[i], of.Path))
		}
	}
	if total < 2_000_000 {
		t.Errorf("compared %d rows, want those of nine GPUs", total)
	}
}

// compareRows compares a table with its source, row by row.
func compareRows(t *testing.T, table *kernels.Table, path string) int {
	t.Helper()
	c, err := readColumns(path, repo.Read(t, path))
	if err != nil {
		t.Fatal(err)
	}
	var us []float64
	for _, time := range times {
		if v := c.nums[time.column]; v != nil && strings.HasSuffix(table.Name, time.suffix) {
			us = make([]float64, len(v))
			for i := range v {
				us[i] = v[i] * time.us
			}
		}
	}
	seen, rows, width := 0, 0, len(table.Columns)-1
	for i := range table.Series {
		rows += len(table.Series[i].X)
	}
	for i, want := range us {
		var key []int64
		for j := range table.Columns {
			if texts := c.texts[table.Columns[j].Name]; texts != nil {
				key = append(key, table.Columns[j].Word(texts[i]))
			} else {
				key = append(key, c.ints[table.Columns[j].Name][i])
			}
		}
		at, ok := slices.BinarySearchFunc(table.Series, key[:width], func(s kernels.Series, k []int64) int { return slices.Compare(s.Key, k) })
		if !ok {
			t.Fatalf("%s: row %d is not in the file", path, i+1)
		}
		s := &table.Series[at]
		for j, x := range s.X {
			if got := kernels.Us(s.Q[j]); x == key[width] && math.Abs(got-want) <= 0.006*want {
				seen++
				break
			}
		}
	}
	if seen != len(us) || rows != len(us) {
		t.Errorf("%s, table %s: %d of %d rows within 0.6 %%, %d rows in the file", path, table.Name, seen, len(us), rows)
	}
	return seen
}

// TestPackedFileIsRead: a folder of tables becomes a file that is read back; what is damaged is said.
func TestPackedFileIsRead(t *testing.T) {
	gpus, err := Pack(context.Background(), []string{filepath.Join("testdata", "systems")}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := gpus[0].Write(&b); err != nil {
		t.Fatal(err)
	}
	g, err := kernels.Read(b.Bytes(), "mine")
	if err != nil || g.Hardware != "H100-SXM-80GB" || len(g.Tables) != len(gpus[0].Tables) {
		t.Fatalf("got %v, %v", g, err)
	}
	for _, of := range g.Tables {
		table, err := g.Table(of.Name)
		if err != nil {
			t.Fatal(err)
		}
		compareRows(t, table, filepath.Join("testdata", "systems", of.Path))
	}
	for _, cut := range []int{0, 5, 40, b.Len() - 3} {
		if _, err := kernels.Read(b.Bytes()[:cut], "mine"); trace.CodeOf(err) != kernels.BadTable {
			t.Errorf("%d bytes: got %v", cut, err)
		}
	}
	spoiled := bytes.Clone(b.Bytes())
	for i := b.Len() - 60; i < b.Len(); i++ {
		spoiled[i] ^= 0x5a
	}
	if g, err := kernels.Read(spoiled, "mine"); err == nil {
		if _, err = g.Table(g.Tables[len(g.Tables)-1].Name); trace.CodeOf(err) != kernels.BadTable {
			t.Errorf("a spoiled table: got %v", err)
		}
	}
	if _, err := Pack(context.Background(), []string{"testdata"}, 1); trace.CodeOf(err) != kernels.NoTables {
		t.Errorf("a folder without datasheets: got %v", err)
	}
}

// TestCopiesCountOnce: rows of one deployment and load with equal values are one measurement; those labelled with DP attention are
// tensor parallel with whole experts.
func TestCopiesCountOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "points.csv")
	text := "id,model,system,weights,engine_version,tp,attention_dp,moe_ep,input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms,measured\n" +
		"a,o/m,h100_sxm,bfloat16,0.12.0,4,1,4,1024,128,8,100,10,\nb,o/m,h100_sxm,bfloat16,0.12.0,4,4,16,1024,128,8,100.05,10.001,\n" +
		"c,o/m,h100_sxm,bfloat16,0.12.0,4,1,4,1024,128,8,120,10,\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, _, err := readPoints(path)
	if err != nil || len(got) != 2 || got[0].ep != 4 || got[1].id != "c" {
		t.Errorf("got %d points, %v", len(got), err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(text, ",10,\nb", ",-1,\nb", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err = readPoints(path); err == nil || !strings.Contains(err.Error(), `points.csv:2:1: measured points: tpot_ms: got "-1"`) {
		t.Errorf("got %v", err)
	}
}
