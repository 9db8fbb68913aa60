package library

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

const fixture = "testdata/systems"

// mixtral is a deployment whose every shape is in the fixture's tables.
func mixtral() *deploy.Deployment {
	d := llama()
	m := &d.Model
	m.NumExperts, m.TopK, m.MoEIntermediateSize, m.NumMoELayers, m.IntermediateSize = 8, 2, 14336, 32, 14336
	return d
}

func llama() *deploy.Deployment {
	h, _ := deploy.Datasheet("H100")
	d := &deploy.Deployment{Hardware: h, TP: 1, PP: 1, DP: 1}
	d.Model = deploy.Model{ID: "llama", NumLayers: 32, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 8, HeadDim: 128, IntermediateSize: 8192,
		VocabSize: 65536, NumMLPProj: 3, BytesPerParam: 2, BytesPerWeight: 2, BytesPerKV: 2, BytesPerActivation: 2, BytesPerLMHead: 2,
		LinearCompute: "native"}
	d.Engine = deploy.Engine{VLLMVersion: "0.15.1", MaxNumSeqs: 256, MaxNumBatchedTokens: 8192, ChunkedPrefill: true, BlockSize: 16,
		GPUMemoryUtilization: 0.9}
	return d
}

func loaded(t testing.TB) *Tables {
	t.Helper()
	tables, err := Load(fixture, "H100")
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

func bound(t testing.TB, d *deploy.Deployment, rules Rules) *Stepper {
	t.Helper()
	s, err := loaded(t).For(d, rules)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// decodes are n requests with context tokens each.
func decodes(n, context int64) []trace.Chunk {
	batch := make([]trace.Chunk, n)
	for i := range batch {
		batch[i] = trace.Chunk{Computed: context, Prompt: 1, New: 1}
	}
	return batch
}

func prompt(cached, n int64) trace.Chunk {
	return trace.Chunk{Computed: cached, Prompt: cached + n, New: n}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-12*math.Abs(want) {
		t.Errorf("%s: got %.15g, want %.15g", what, got, want)
	}
}

// raw is the published time of one row.
func raw(t *testing.T, tables *Tables, n, k int64, m float64) float64 {
	t.Helper()
	c := tables.gemm[gemmKey{bf16, n, k}]
	if c == nil {
		t.Fatalf("no column %d x %d", n, k)
	}
	return c.at(m, 1)
}

func TestEveryPartOfAStepIsItsTablesRow(t *testing.T) {
	tables, d := loaded(t), llama()
	s := bound(t, d, Composed)
	p := s.StepMs(decodes(8, 1023))
	near(t, "o_proj", p[oProj], 32*raw(t, tables, 4096, 4096, 8))
	near(t, "gate_up", p[gateUp], 32*raw(t, tables, 16384, 4096, 8))
	near(t, "down", p[down], 32*raw(t, tables, 4096, 8192, 8))
	near(t, "lm_head", p[lmHead], raw(t, tables, 65536, 4096, 8))
	near(t, "qkv, between two columns", p[qkv],
		32*math.Exp(math.Log(raw(t, tables, 4096, 4096, 8))*(1-math.Log2(1.5))+math.Log(raw(t, tables, 8192, 4096, 8))*math.Log2(1.5)))
	g := tables.generation[attentionKey{bf16, 128, 32, 8}]
	near(t, "decode attention", p[decodeAttention], 32*g.at(8, 1023))
	near(t, "norm", p[norm], 64*(8*4*4096*2*1e3/(0.8*3.35e12)+0.002))
	near(t, "rope", p[rope], 32*(8*2*(4096+1024)*2*1e3/(0.8*3.35e12)+0.002))
	near(t, "activation", p[activation], 32*(8*3*8192*2*1e3/(0.8*3.35e12)+0.002))
	if p[kvWrite] != 0 || p[sampling] != 0 || p[AllReduce] != 0 {
		t.Errorf("parts of the host term: got %v", p)
	}
	sum := 0.0
	for _, v := range p {
		sum += v
	}
	near(t, "total", p.TotalMs(), sum)
}

func TestPrefillBehindCachedTokensIsItsShareOfPairs(t *testing.T) {
	s := bound(t, llama(), Composed)
	whole, late := s.StepMs([]trace.Chunk{prompt(0, 2048)}), s.StepMs([]trace.Chunk{prompt(1536, 512)})
	near(t, "late chunk", late[prefillAttention], whole[prefillAttention]*(2048.0*2048-1536*1536)/(2048*2048))
	beyond, last := s.StepMs([]trace.Chunk{prompt(0, 32768)}), s.StepMs([]trace.Chunk{prompt(0, 16384)})
	near(t, "beyond the table quadratic", beyond[prefillAttention], 4*last[prefillAttention])
	two, one := s.StepMs([]trace.Chunk{prompt(0, 512), prompt(0, 512)}), s.StepMs([]trace.Chunk{prompt(0, 512)})
	near(t, "chunks one by one", two[prefillAttention], 2*one[prefillAttention])
	e := bound(t, llama(), Engine)
	two = e.StepMs([]trace.Chunk{prompt(0, 512), prompt(0, 512)})
	near(t, "one launch for all chunks", two[prefillAttention], 2*one[prefillAttention]-32*e.context.y[0])
}

func TestEngineReadsTablesFromBelowAndPads(t *testing.T) {
	s := bound(t, llama(), Engine)
	for i := range s.linear {
		for j := 1; j < len(s.linear[i].ms.y); j++ {
			if s.linear[i].ms.y[j] < s.linear[i].ms.y[j-1] {
				t.Fatalf("%s: more tokens in less time", s.linear[i].part)
			}
		}
	}
	near(t, "17 tokens run as 24", bound(t, llama(), Engine).StepMs(decodes(17, 100))[gateUp], s.StepMs(decodes(24, 100))[gateUp])
}

func TestHeadsBeyondTheTableAreMoreRequests(t *testing.T) {
	d := llama()
	d.Model.NumHeads, d.Model.NumKVHeads, d.Model.HiddenSize = 64, 16, 4096 // = twice the requests of 32 and 8
	d.Model.HeadDim = 128
	a, b := bound(t, d, Composed).StepMs(decodes(8, 1023)), bound(t, llama(), Composed).StepMs(decodes(16, 1023))
	near(t, "decode attention", a[decodeAttention], b[decodeAttention])
	d = llama()
	d.Model.NumHeads, d.Model.NumKVHeads = 24, 8 // no rows between 32 and 8 and nothing below
	if _, err := loaded(t).For(d, Engine); trace.CodeOf(err) != noRows || !strings.Contains(err.Error(), "nearest 32 and 8") {
		t.Errorf("24 and 8 heads: got %v", err)
	}
}

func TestCollectivesFollowTheEngine(t *testing.T) {
	for _, c := range []struct {
		capability, gpus int64
		bytes            float64
		symmetric        bool
		want             string
	}{
		{90, 8, 256*kib - 1, true, wayCustom}, {90, 8, 256 * kib, true, waySymmetric}, {90, 8, 64 * mib, true, waySymmetric},
		{90, 8, 64*mib + 1, true, wayNCCL},
		{90, 2, 8*mib - 1, true, wayCustom}, {90, 2, 8 * mib, true, waySymmetric}, {90, 8, 8*mib - 1, false, wayCustom},
		{90, 8, 8 * mib, false, wayNCCL},
		{80, 4, 8*mib - 1, true, wayCustom}, {80, 4, 8 * mib, true, wayNCCL}, {100, 2, 2 * mib, true, waySymmetric},
		{100, 2, 8*mib + 1, true, wayNCCL},
	} {
		if got := way(c.capability, c.gpus, c.bytes, c.symmetric); got != c.want {
			t.Errorf("%d GPUs of capability %d, %g B, symmetric %v: got %s, want %s", c.gpus, c.capability, c.bytes, c.symmetric, got, c.want)
		}
	}
	d := llama()
	d.TP, d.Model.NumHeads, d.Model.NumKVHeads = 2, 64, 16
	tables := loaded(t)
	e, c := bound(t, d, Engine), bound(t, d, Composed)
	at := func(how string, bytes float64) float64 { return tables.allReduce[reduceKey{how, 2}].at(bytes, 1) }
	pe, pc := e.StepMs(decodes(16, 100)), c.StepMs(decodes(16, 100))
	near(t, "composed: two per layer", pc[AllReduce], 64*at(graph, 16*8192))
	if pe[AllReduce] > 65*at(graph, 16*8192) || pe[logitsGather] <= 0 {
		t.Errorf("engine: got all-reduce %g, gather %g", pe[AllReduce], pe[logitsGather])
	}
	large := []trace.Chunk{prompt(0, 2048)}
	if way := e.Way(2048); way != waySymmetric {
		t.Errorf("16 MiB over 2 GPUs: got %s", way)
	}
	near(t, "beyond the largest graph", e.StepMs(large)[AllReduce], 65*at(eager, 2048*8192))
	d.Engine.VLLMVersion = "0.10.0"
	old := bound(t, d, Engine)
	near(t, "before symmetric memory", old.StepMs(large)[AllReduce], 65*tables.nccl[reduceKey{allReduce, 2}].at(2048*8192, 1))
}

func TestExpertsAndFP8(t *testing.T) {
	d := mixtral()
	p := bound(t, d, Composed).StepMs(decodes(32, 100))
	near(t, "experts", p[experts], 32*loaded(t).moe[moeKey{bf16, 4096, 14336, 2, 8, 1, 1, distribution}].at(32, 1))
	if p[gateUp] != 0 || p[router] <= 0 {
		t.Errorf("mixture of experts: got gate_up %g, router %g", p[gateUp], p[router])
	}
	d = llama()
	d.Model.BytesPerWeight, d.Model.LinearCompute = 1, fp8
	a, b := bound(t, d, Composed).StepMs(decodes(1, 1)), bound(t, llama(), Composed).StepMs(decodes(1, 1))
	if a[gateUp] >= b[gateUp] || a[lmHead] != b[lmHead] {
		t.Errorf("fp8: got gate_up %g of %g, lm_head %g of %g: the head stays 16-bit", a[gateUp], b[gateUp], a[lmHead], b[lmHead])
	}
}

func TestWhatTheTablesLackIsNamed(t *testing.T) {
	tables := loaded(t)
	for name, c := range map[string]struct {
		change func(*deploy.Deployment)
		rules  Rules
		code   trace.Code
		text   string
	}{
		"4-bit weights": {func(d *deploy.Deployment) { d.Model.BytesPerWeight = 0.5 }, Engine, noRows, `gemm_dtype: got no "int4_wo", want one of bfloat16, fp8`},
		"fp8 cache":     {func(d *deploy.Deployment) { d.Model.BytesPerKV = 1 }, Engine, noRows, `kv_cache_dtype: got no "fp8", want one of bfloat16`},
		"head size":     {func(d *deploy.Deployment) { d.Model.HeadDim = 96 }, Engine, noRows, "head_dim: got no 96, want one of [128]"},
		"number of GPUs": {func(d *deploy.Deployment) { d.TP, d.Model.NumHeads, d.Model.NumKVHeads = 16, 128, 32 }, Engine, noRows,
			"num_gpus: got no 16, want one of [2 4 8]"},
		"expert shape": {func(d *deploy.Deployment) { *d = *mixtral(); d.Model.TopK = 3 }, Engine, noRows,
			"nearest hidden_size 4096, inter_size 14336, topk 2 of 8 experts"},
		"experts over tp": {func(d *deploy.Deployment) { *d = *mixtral(); d.TP = 4 }, Engine, noRows, "moe_tp_size: got no 4"},
		"rules":           {func(*deploy.Deployment) {}, "mine", unknownRules, `got "mine", want engine or composed`},
	} {
		d := llama()
		c.change(d)
		if _, err := tables.For(d, c.rules); trace.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v, want %s: %s", name, err, c.code, c.text)
		}
	}
	if _, err := Load(fixture, "A100"); trace.CodeOf(err) != noTables || !strings.Contains(err.Error(), "h100_sxm") {
		t.Errorf("another GPU: got %v", err)
	}
	if _, err := Load("testdata", "H100"); trace.CodeOf(err) != noTables {
		t.Errorf("no tables: got %v", err)
	}
}

// copied is the fixture in a folder of its own.
func copied(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(fixture)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestBadTablesAreRefusedByName(t *testing.T) {
	const base = "data/h100_sxm/"
	gemm, context := base+"gemm/vllm/0.24.0/gemm_perf.parquet", base+"attention/vllm/0.24.0/context_attention_perf.parquet"
	write := func(to string, data []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			repo.Write(t, data, dir, to)
		}
	}
	read := func(name string) []byte {
		data := repo.Read(t, name)
		return data
	}
	whole := read(filepath.Join(fixture, gemm))
	for name, c := range map[string]struct {
		damage func(*testing.T, string)
		code   trace.Code
		text   string
	}{
		"truncated":      {write(gemm, whole[:len(whole)/2]), badTable, "damaged"},
		"empty":          {write(gemm, nil), badTable, "damaged"},
		"LFS pointer":    {write(gemm, []byte("version https://git-lfs.github.com/spec/v1\n")), badTable, "damaged"},
		"another op":     {write(context, read(filepath.Join(fixture, strings.Replace(context, "context", "generation", 1)))), badTable, `op_name: got "generation_attention", want context_attention`},
		"another table":  {write(gemm, read(filepath.Join(fixture, context))), badTable, "column gemm_dtype: not in the file"},
		"microseconds":   {write(gemm, read("testdata/gemm_in_microseconds.parquet")), badTable, "times the GPU's best time"},
		"sheet, no yaml": {write("h100_sxm.yaml", []byte("gpu: [")), badTable, "h100_sxm.yaml"},
		"sheet, no bw":   {write("h100_sxm.yaml", []byte("gpu: {sm_version: 90}")), badTable, "mem_bw"},
	} {
		dir := copied(t)
		c.damage(t, dir)
		if _, err := Load(dir, "H100"); trace.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v, want %s: %s", name, err, c.code, c.text)
		}
	}
	dir := copied(t)
	if err := os.Remove(filepath.Join(dir, gemm)); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir, "H100"); trace.CodeOf(err) != noTables || !strings.Contains(err.Error(), "gemm_perf.parquet") {
		t.Errorf("missing table: got %v", err)
	}
}

func TestNewestVersionAndDigests(t *testing.T) {
	dir := copied(t)
	old := filepath.Join(dir, "data/h100_sxm/gemm/vllm/0.9.1")
	if err := os.MkdirAll(old, 0o700); err != nil {
		t.Fatal(err)
	}
	repo.Write(t, "older", old, gemmFile)
	tables, err := Load(dir, "H100-SXM-80GB")
	if err != nil {
		t.Fatal(err)
	}
	if tables.Version != "0.24.0" || len(tables.Sources) != 6 || len(tables.Sources[0].SHA256) != 64 {
		t.Errorf("got version %s and sources %v", tables.Version, tables.Sources)
	}
}

func TestStepMsAllocatesNothing(t *testing.T) {
	s, batch := bound(t, mixtral(), Engine), append(decodes(64, 1000), prompt(512, 512))
	if n := testing.AllocsPerRun(100, func() { s.StepMs(batch) }); n != 0 {
		t.Errorf("got %g allocations, want 0", n)
	}
	if p := s.StepMs(nil); p.TotalMs() != 0 {
		t.Errorf("empty batch: got %v", p)
	}
}

func BenchmarkStepMs(b *testing.B) {
	s, batch := bound(b, mixtral(), Engine), append(decodes(256, 1000), prompt(512, 512), prompt(0, 512))
	b.ReportAllocs()
	for b.Loop() {
		s.StepMs(batch)
	}
}

func BenchmarkLoad(b *testing.B) {
	dir := repo.Shared(b, "data", "kernels")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load(dir, "H100"); err != nil {
			b.Fatal(err)
		}
	}
}

var update = flag.Bool("update", false, "rewrite deploy/interconnect from ../shared/data/kernels")

// TestInterconnectsAreTheTables compares the curves built into deploy with the
// published tables they are taken from.
func TestInterconnectsAreTheTables(t *testing.T) {
	dir := repo.Shared(t, "data", "kernels")
	gpus, err := gpUs(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, gpu := range gpus {
		tables, err := Load(dir, gpu)
		if err != nil {
			t.Fatal(err)
		}
		want := interconnectFile(tables)
		path := filepath.Join("..", "deploy", "interconnect", tables.Hardware.Name+".json")
		if *update {
			repo.Write(t, want, path)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s differs from the tables: go test ./library -run Interconnects -update (%v)", path, err)
		}
		if a, _ := deploy.AllReduceOf(gpu, 2); !*update && a == nil {
			t.Errorf("%s: no curve", gpu)
		}
	}
}

// interconnectFile holds the curves of each number of GPUs, inside CUDA graphs
// and outside: vLLM's own all-reduce, and NCCL's at the sizes vLLM hands to it.
// Outside graphs only what is larger than any captured step is kept.
func interconnectFile(t *Tables) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n  \"name\": %q,\n  \"source\": \"ai-dynamo/aiconfigurator 095f58a51 (Apache-2.0), data/%s/comm: vLLM's "+
		"all-reduce, NCCL where vLLM uses it\"", t.Hardware.Name, t.GPU)
	for _, how := range []string{graph, eager} {
		fmt.Fprintf(&b, ",\n  \"all_reduce_%s_us\": {", how)
		for i, gpus := range []int64{2, 4, 8} {
			own, nccl := t.allReduce[reduceKey{how, gpus}].envelope(), t.nccl[reduceKey{allReduce, gpus}].envelope()
			fmt.Fprintf(&b, "%s\n    \"%d\": [", strings.Repeat(",", min(i, 1)), gpus)
			comma := ""
			for j, bytes := range own.x {
				ms := own.y[j]
				if way(t.capability, gpus, bytes, true) == wayNCCL {
					ms = nccl.at(bytes, 1)
				}
				if bytes > 512*mib || how == eager && bytes < mib {
					continue
				}
				fmt.Fprintf(&b, "%s[%.0f, %g]", comma, bytes, math.Round(ms*1e5)/1e2)
				comma = ", "
			}
			b.WriteString("]")
		}
		b.WriteString("\n  }")
	}
	b.WriteString("\n}\n")
	return b.String()
}
