package library

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// TestDamagedFilesOfTables: what a file of tables is refused for, and that what is written is read.
func TestDamagedFilesOfTables(t *testing.T) {
	g := &GPU{Hardware: "H", Bandwidth: 1e12, FLOPS: 2e12, Link: 3e11, Tables: []*Table{
		{Name: "b", Path: "x/vllm/b", Version: "0.2", SHA256: "sb", SourceBytes: 12, Rows: 2, Columns: []Column{{Name: "n"}, {Name: "x"}}, Series: []Series{{Key: []int64{7}, X: []int64{1}, Q: []int16{9}}, {Key: []int64{3}, X: []int64{1}, Q: []int16{4}}}},
		{Name: "a", Path: "x/vllm/a", Version: "0.1", SHA256: "sa", SourceBytes: 11, Rows: 1, Columns: []Column{{Name: "n"}, {Name: "x"}}, Series: []Series{{Key: []int64{5}, X: []int64{1}, Q: []int16{3}}}},
		{Name: "c", Path: "x/nccl/a", Version: "0.9", SHA256: "sc", SourceBytes: 13, Columns: []Column{{Name: "x"}}},
		{Name: "d", Path: "x/vllm/a", Version: "0.1", SHA256: "sa", SourceBytes: 11, Columns: []Column{{Name: "x"}}},
	}}
	var file bytes.Buffer
	if err := g.Write(&file); err != nil {
		t.Fatal(err)
	}
	got, err := Read(file.Bytes(), "tables/h")
	if err != nil {
		t.Fatal(err)
	}
	table, err := got.Table("b")
	if err != nil || len(table.Series) != 2 || table.Series[0].Key[0] != 3 || table.Series[1].Q[0] != 9 {
		t.Errorf("got %+v, %v, want both series, by key", table, err)
	}
	if none, err := got.Table("z"); none != nil || err != nil {
		t.Errorf("no table: got %v, %v", none, err)
	}
	if v := got.Versions(); !slices.Equal(v, []string{"0.1", "0.2"}) {
		t.Errorf("got releases %v", v)
	}
	if in := fmt.Sprint(got.Inputs()); in != "[{x/vllm/b 12 sb} {x/vllm/a 11 sa} {x/nccl/a 13 sc}]" {
		t.Errorf("got inputs %s", in)
	}
	s := &Step{GPU: got, Operators: []Operator{{found: found{Table: "a", Version: "0.1"}}, {found: found{Table: "nccl", Version: "2"}}, {found: found{Table: ""}}, {found: found{Table: "b", Version: "0.2"}}, {found: found{Table: "b", Version: "0.2"}}}}
	if v := s.Versions(); !slices.Equal(v, []string{"0.1", "0.2"}) {
		t.Errorf("of a step: got releases %v", v)
	}
	if in := fmt.Sprint(s.Inputs()); in != "[{x/vllm/b 12 sb} {x/vllm/a 11 sa}]" {
		t.Errorf("of a step: got inputs %s", in)
	}
	whole := file.String()
	first, rest, _ := strings.Cut(strings.TrimPrefix(whole, magics[present]), "\n")
	length, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	header, err := decompressed([]byte(rest[:length]), maxHeader)
	if err != nil {
		t.Fatal(err)
	}
	with := func(from, to string) string { // the file with another header
		changed := compressed([]byte(strings.Replace(string(header), from, to, 1)))
		return fmt.Sprintf("%s%d\n%s%s", magics[present], len(changed), changed, rest[length:])
	}
	for name, c := range map[string]struct{ file, want string }{
		"another magic":      {"X" + whole, "got no kernel tables"},
		"no size":            {magics[present] + "\n", "got no kernel tables"},
		"a size of 1":        {magics[present] + "1\n{}{}", "got no kernel tables"},
		"too short":          {whole[:len(magics[present])+20], "got no kernel tables"},
		"no line":            {strings.TrimSpace(magics[present]), "got no kernel tables"},
		"no header":          {magics[present] + "5\n{a}  \n", "header: "},
		"no JSON":            {with("{", "["), "header: "},
		"a table cut off":    {whole[:len(whole)-1], `table "d": got `},
		"more after":         {whole + "x", "got 1 bytes after the last table, mem_bw 1e+12"},
		"no bandwidth":       {with(`"mem_bw":1000000000000`, `"mem_bw":0`), "got 0 bytes after the last table, mem_bw 0"},
		"a table twice":      {with(`"name":"a"`, `"name":"b"`), `table "b": got `},
		"no arithmetic":      {with(`"bfloat16_tc_flops":2000000000000`, `"bfloat16_tc_flops":0`), "got 0 bytes after"},
		"no link":            {with(`"intra_node_bw":300000000000`, `"intra_node_bw":0`), "got 0 bytes after"},
		"a header of 10 GiB": {magics[present] + "10737418240\n{}\n", "got no kernel tables"},
		"a header of 2 MiB":  {with("{", "{"+strings.Repeat(" ", 2<<20)), "header: got more than 1048576 bytes"},
	} {
		if _, err := Read([]byte(c.file), "h"); err == nil || trace.CodeOf(err) != BadTable || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	torn := &GPU{name: "h", Tables: []*Table{{Name: "a"}}, packed: map[string]*lazyTable{"a": {data: []byte("no Brotli")}}}
	if _, err := torn.Table("a"); err == nil || !strings.Contains(err.Error(), "h: table a: ") || trace.CodeOf(err) != BadTable {
		t.Errorf("got %v", err)
	}
}

// TestDamagedTables: counts are checked before memory is taken for them.
func TestDamagedTables(t *testing.T) {
	packed := func(values ...int64) []byte {
		var data []byte
		for _, v := range values {
			data = binary.AppendVarint(data, v)
		}
		return compressed(data)
	}
	columns := []Column{{Name: "w", Words: []string{"a"}}, {Name: "x"}}
	for name, c := range map[string]struct {
		data []byte
		rows int
		want string // "" is no error
	}{
		"one row":        {packed(1, 0, 0, 1, 4, 17), 1, ""},
		"no numbers":     {packed(), 1, "got 0 series"},
		"fewer than 0":   {packed(-1), 1, "got -1 series, want at most"},
		"too many":       {packed(4_194_305, 0), 1, fmt.Sprintf("got %d series, want at most %d", 4_194_305, 4_194_304)},
		"another word":   {packed(1, -1, 0, 1, 4, 17), 1, "column w: got word -1, want one of 1"},
		"no rows":        {packed(1, 0, 0, 0), 1, "got 0 rows of a series, want 1 to"},
		"too many rows":  {packed(1, 0, 0, 4_194_305), 1, fmt.Sprintf("got %d rows of a series", 4_194_305)},
		"another list":   {packed(1, 0, 2), 1, "unexpected EOF"},
		"a list below 0": {packed(1, 0, -1), 1, "unexpected EOF"},
		"of two":         {packed(1, 0, 0, 1, 4, 17), 2, "got 1 rows, want 2"},
		"a number more":  {packed(1, 0, 0, 1, 4, 17, 3), 1, "unexpected EOF"},
		"a number less":  {packed(1, 0, 0, 1, 4), 1, "unexpected EOF"},
	} {
		got := &Table{Columns: columns, Rows: c.rows}
		err := got.unpack(c.data)
		if c.want == "" {
			if err != nil || got.Series[0].X[0] != 4 || got.Series[0].Q[0] != 17 {
				t.Errorf("%s: got %+v, %v", name, got.Series, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// TestPlansThatAreRefused and why.
func TestPlansThatAreRefused(t *testing.T) {
	g := handGPU("H100-SXM-80GB", 90)
	for name, c := range map[string]struct {
		change func(d *deploy.Deployment, g *GPU)
		want   string
	}{
		"float32":         {func(d *deploy.Deployment, _ *GPU) { d.Model.BytesPerActivation, d.Model.BytesPerWeight = 4, 4 }, "dtype: got values of 4 bytes"},
		"stages":          {func(d *deploy.Deployment, _ *GPU) { d.PP = 2 }, "pipeline_parallel_size: got 2, want 1"},
		"no such dtype":   {func(d *deploy.Deployment, g *GPU) { delete(g.packed, "gemm") }, "gemm"},
		"no attention":    {func(d *deploy.Deployment, g *GPU) { delete(g.packed, "context_attention") }, "context_attention"},
		"heads of no row": {func(d *deploy.Deployment, _ *GPU) { d.Model.NumKVHeads, d.Model.NumHeads = 3, 3 }, "num_key_value_heads 3"},
	} {
		own := handGPU("H100-SXM-80GB", 90)
		d := deploymentOn(t, "H100", 1, "native")
		c.change(d, own)
		if _, err := own.Bind(d, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	d := deploymentOn(t, "A100", 1, "native")
	if _, err := Bound(d, Options{GPU: g}); err == nil || !strings.Contains(err.Error(), "--library: got tables of H100-SXM-80GB, want those of A100-SXM-80GB") {
		t.Errorf("tables of another GPU: got %v", err)
	}
	d.Hardware.Name = "Q1"
	if _, err := Bound(d, Options{}); err == nil || !strings.Contains(err.Error(), "hardware Q1: got no kernel tables of it, want one of ") || !strings.Contains(err.Error(), "H100-SXM-80GB") {
		t.Errorf("no tables: got %v", err)
	}
	many := deploymentOn(t, "H100", 16, "native")
	many.Engine.Extra = map[string]any{"enforce_eager": true}
	s, err := g.Bind(many, Options{})
	if s == nil || !slices.Contains(s.Unjudged, "no table knows the network between more than 8 GPUs") || !slices.Contains(s.Unjudged, "no server without CUDA graphs was measured") {
		t.Errorf("16 GPUs: got %+v, %v", s, err)
	}
	if few, _ := g.Bind(deploymentOn(t, "H100", 8, "native"), Options{}); few == nil || len(few.Unjudged) != 0 {
		t.Errorf("8 GPUs: got %+v", few)
	}
}

// TestSumsOfABatch: two decodes of which one has the longer context, a chunk behind a prefix and one that begins.
func TestSumsOfABatch(t *testing.T) {
	got := BatchOf([]trace.Chunk{{Computed: 300, Prompt: 100, New: 1}, {Computed: 900, Prompt: 100, New: 1}, {}, {Computed: 50, Prompt: 70, New: 20}, {Prompt: 30, New: 30}})
	if want := (Batch{Tokens: 52, Sequences: 4, Decodes: 2, DecodeContext: 1200, LongestDecode: 900, Prefills: 2, PrefillTokens: 50, PrefillPairs: 20*50 + 210 + 465}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestProductsOfOtherTypes: rows of fp8 serve int8, rows of bfloat16 serve a type that no row has, by the bytes of the weights.
func TestProductsOfOtherTypes(t *testing.T) {
	g := handGPU("H100-SXM-80GB", 90)
	wide, _, err := g.gemm(bf16, 512, 4096)
	if err != nil {
		t.Fatal(err)
	}
	narrow, _, err := g.gemm(fp8, 512, 4096)
	if err != nil {
		t.Fatal(err)
	}
	int8, from, err := g.gemm("int8", 512, 4096)
	if err != nil || from.Note != "int8, from fp8 by the bytes of its weights" || from.Reached != Substituted || !near(int8.usAt(64, 1), narrow.usAt(64, 1)+2) {
		t.Errorf("int8: got %+v, %v, %g us, want 2 us more than those of fp8, %g", from, err, int8.usAt(64, 1), narrow.usAt(64, 1))
	}
	four, from, err := g.gemm("nvfp4", 512, 4096)
	if err != nil || !strings.HasPrefix(from.Note, "nvfp4, from bfloat16 by the bytes of its weights") || four.usAt(1, 1) >= wide.usAt(1, 1) {
		t.Errorf("nvfp4: got %+v, %v, %g us, want less than %g", from, err, four.usAt(1, 1), wide.usAt(1, 1))
	}
	empty := &GPU{name: "x", packed: map[string]*lazyTable{}}
	if _, _, err := empty.gemm(bf16, 1, 1); err == nil {
		t.Error("no table of products: got a time")
	}
	l := &lazyTable{}
	l.once.Do(func() {})
	empty.packed["gemm"] = l
	empty.Tables = []*Table{handTable("gemm", "1", []string{"gemm_dtype", "n", "k"}, [][]any{{fp8}, {8}, {8}}, "m", []int64{1}, func(func(string) float64, float64) float64 { return 1 })}
	if _, _, err := empty.gemm(bf16, 8, 8); err == nil || !strings.Contains(err.Error(), "gemm_dtype bfloat16") {
		t.Errorf("no rows of bfloat16: got %v", err)
	}
	// No layer takes less than reading its weights: 65,536 x 16,384 of two bytes at 2 TB/s take 1074 us.
	fast := handGPU("H100-SXM-80GB", 90)
	for _, table := range fast.Tables {
		if table.Name == "gemm" {
			for i := range table.Series {
				for k := range table.Series[i].Q {
					table.Series[i].Q[k] = 0
				}
			}
		}
	}
	if c, _, err := fast.gemm(bf16, 65536, 16384); err != nil || !near(c.usAt(1, 1), 1e6*65536*16384*2/2e12) {
		t.Errorf("rows of 1 us: got %g us, %v, want the time of reading", c.usAt(1, 1), err)
	}
}

// TestAttentionOfOtherHeads: between measured numbers of heads, beyond them in proportion, and at a window.
func TestAttentionOfOtherHeads(t *testing.T) {
	g := handGPU("H100-SXM-80GB", 90)
	of := func(h heads) (float64, float64, found) {
		t.Helper()
		h.kvDType = bf16
		grid, ratio, from, err := g.attention("generation_attention", h)
		if err != nil {
			t.Fatal(err)
		}
		return grid.usAt(8, 1024), ratio, from
	}
	eight, ratio, from := of(heads{query: 8, kvHeads: 1, dim: 128})
	if ratio != 1 || from.Reached != Measured || !near(eight, Us(Quantized(7+8*128*1024/1e6+8./9))) {
		t.Errorf("8 heads: got %g us, %g, %+v", eight, ratio, from)
	}
	sixteen, _, _ := of(heads{query: 16, kvHeads: 1, dim: 128})
	twelve, _, from := of(heads{query: 12, kvHeads: 1, dim: 128})
	if from.Reached != Interpolated || twelve <= eight || twelve >= sixteen {
		t.Errorf("12 heads: got %g us, %+v, want between %g and %g", twelve, from, eight, sixteen)
	}
	// Twelve lie half-way from 8 to 16, also those of each of two heads of the cache.
	if want := (eight + sixteen) / 2; !near(twelve, want) {
		t.Errorf("12 heads: got %g us, want %g", twelve, want)
	}
	if both, ratio, from := of(heads{query: 24, kvHeads: 2, dim: 128}); ratio != 2 || from.Reached != Interpolated || !near(both, twelve) {
		t.Errorf("24 heads, two of the cache: got %g us, %g, %+v, want %g of twice the batch", both, ratio, from, twelve)
	}
	most, _, _ := of(heads{query: 32, kvHeads: 1, dim: 128})
	if more, ratio, from := of(heads{query: 96, kvHeads: 2, dim: 128}); ratio != 2 || from.Note != "48 query heads, scaled from 32" || !near(more, 1.5*most) {
		t.Errorf("96 heads, two of the cache: got %g us, %g, %+v", more, ratio, from)
	}
	more, _, from := of(heads{query: 48, kvHeads: 1, dim: 128})
	if from.Reached != Substituted || from.Note != "48 query heads, scaled from 32" || !near(more, 1.5*most) {
		t.Errorf("48 heads: got %g us, %+v, want 1.5 times %g", more, from, most)
	}
	if _, ratio, _ := of(heads{query: 32, kvHeads: 16, dim: 128}); ratio != 2 {
		t.Errorf("16 of the cache: got %g times the batch of 8", ratio)
	}
	long, _, _ := g.mustAttention(t, "generation_attention", heads{query: 8, kvHeads: 1, dim: 128, kvDType: bf16})
	window, _, from := g.mustAttention(t, "generation_attention", heads{query: 8, kvHeads: 1, dim: 128, kvDType: bf16, window: 1024})
	if !near(window.usAt(8, 16384), long.usAt(8, 1024)) || window.usAt(8, 128) != long.usAt(8, 128) || !strings.Contains(from.Note, "full attention") {
		t.Errorf("a window of 1024: got %g us at 16,384, %+v, want %g", window.usAt(8, 16384), from, long.usAt(8, 1024))
	}
	if _, _, _, err := g.attention("generation_attention", heads{query: 7, kvHeads: 7, dim: 128, kvDType: bf16}); err != nil && !strings.Contains(err.Error(), "num_heads 7") {
		t.Errorf("7 heads: got %v", err)
	}
	if _, _, _, err := (&GPU{packed: map[string]*lazyTable{}}).attention("generation_attention", heads{}); err == nil {
		t.Error("no table of attention: got a time")
	}
}

func (g *GPU) mustAttention(t *testing.T, name string, h heads) (grid, float64, found) {
	t.Helper()
	out, ratio, from, err := g.attention(name, h)
	if err != nil {
		t.Fatal(err)
	}
	return out, ratio, from
}

// TestWordsOfADomain: which steps run in graphs, sizes of models, and the axes at their ends.
func TestWordsOfADomain(t *testing.T) {
	d := deploymentOn(t, "H100", 1, "native")
	if got := graphsOf(d); got != "all small steps" {
		t.Errorf("got %q", got)
	}
	if largestGraphOf(d) == 0 {
		t.Error("got no graphs")
	}
	d.Engine.Extra = map[string]any{"enforce_eager": true}
	if got := graphsOf(d); got != "no steps" || largestGraphOf(d) != 0 {
		t.Errorf("got %q, %d", got, largestGraphOf(d))
	}
	only, err := deploy.LoadSettings("model.id=Qwen/Qwen3-8B", "hardware.name=H100", "vllm.version=0.19.0", "vllm.max_num_seqs=512", "vllm.max_num_batched_tokens=8192", `vllm.compilation_config={"cudagraph_mode": "FULL_DECODE_ONLY"}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := graphsOf(only); got != "decodes alone" {
		t.Errorf("got %q", got)
	}
	if all, active := parametersOf(only); all != 8.19 || active != 7.57 {
		t.Errorf("got %g and %g e9 parameters", all, active)
	}
	if all, active := parametersOf(&deploy.Deployment{}); all != 0 || active != 0 {
		t.Errorf("no layers: got %g and %g", all, active)
	}
	m := &Domain{Parameters: [2]float64{8, 70}, ActiveParameters: [2]float64{8, 70}}
	for n, want := range map[float64]string{4: "", 3.9: "parameters 3.9e9, measured 8e9 to 70e9", 140: "", 141: "parameters 141e9, measured 8e9 to 70e9", 0: ""} {
		if got := strings.Join(m.Outside(&Asked{Parameters: n, ActiveParameters: n}), "; "); got != want {
			t.Errorf("%ge9 parameters: got %q, want %q", n, got, want)
		}
	}
	m = &Domain{Parameters: [2]float64{100, 100}, ActiveParameters: [2]float64{10, 10}}
	if got := strings.Join(m.Outside(&Asked{Parameters: 201, ActiveParameters: 21}), "; "); got != "parameters 201e9, measured 100e9; parameters of a token 21e9, measured 10e9" {
		t.Errorf("got %q", got)
	}
	c := &Corrections{Judged: []Judged{
		{Measured: Domain{InputTokens: [2]int64{100, 200}, OutputTokens: [2]int64{10, 20}, Clients: [2]int64{4, 8}, BatchedTokens: [2]int64{1000, 2000}, Parameters: [2]float64{8, 9}, ActiveParameters: [2]float64{3, 4}, KVBytes: []float64{2}}},
		{Measured: Domain{InputTokens: [2]int64{50, 300}, OutputTokens: [2]int64{11, 19}, Clients: [2]int64{5, 9}, BatchedTokens: [2]int64{900, 1900}, Parameters: [2]float64{7, 8.5}, ActiveParameters: [2]float64{3.5, 5}}},
	}}
	all := c.measuredOfAll()
	if all.InputTokens != [2]int64{50, 300} || all.OutputTokens != [2]int64{10, 20} || all.Clients != [2]int64{4, 9} || all.BatchedTokens != [2]int64{900, 2000} || all.Parameters != [2]float64{7, 9} || all.ActiveParameters != [2]float64{3, 5} {
		t.Errorf("got %+v", all)
	}
	if decode, prompt := (&Step{}).UnmeasuredShares(&[NumStep]float64{}, 1, &Asked{}); decode != 1 || prompt != 1 {
		t.Errorf("no operators: got %g and %g", decode, prompt)
	}
}
