package build

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// llama is the configuration of a dense model with grouped-query attention.
const llama = `{"model_type":"llama","hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"intermediate_size":14336,"vocab_size":128256,"torch_dtype":"bfloat16"}`

// pointsText are measured points, one a line.
func pointsText(lines ...string) string {
	return "id,model,system,weights,tp,input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms,engine_version,measured,moe_ep,attention_dp,aiconfigurator_ttft_ms,aiconfigurator_tpot_ms\n" +
		strings.Join(lines, "\n") + "\n"
}

// TestPointRows: each figure of a point has a value of its own, and what another tool predicts counts where it means the same deployment.
func TestPointRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "points.csv")
	read := func(line string) (*point, error) {
		repo.Write(t, pointsText(line), path)
		list, _, err := readPoints(path, nil)
		if err != nil {
			return nil, err
		}
		return list[0], nil
	}
	p, err := read("p1,org/m,H100,fp8,4,100,20,3,31.5,7.25,0.11.0,2026-01-02,2,1,30,7")
	want := &point{id: "p1", model: "org/m", system: "H100", weights: "fp8", measured: "2026-01-02", tp: 4, ep: 4, otherTTFTMs: 30, otherTPOTMs: 7,
		Level: requestfit.Level{Version: "0.11.0", InputTokens: 100, OutputTokens: 20, Concurrency: 3, TTFTMs: 31.5, TPOTMs: 7.25}}
	if err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v, %v\nwant %+v", p, err, want)
	}
	if p, err = read("p1,org/m,H100,fp8,4,1,2,1,1e-9,1e-9,,,1,2,30,7"); err != nil || p.ep != 1 || !math.IsNaN(p.otherTTFTMs) || !math.IsNaN(p.otherTPOTMs) || p.measured != "" {
		t.Errorf("whole experts on each GPU: got %+v, %v", p, err)
	}
	for column, text := range map[string]string{"input_tokens": "0.5", "output_tokens": "1", "concurrency": "0", "ttft_ms": "0", "tpot_ms": "Inf", "tp": ""} {
		values := map[string]string{"input_tokens": "100", "output_tokens": "20", "concurrency": "3", "ttft_ms": "31.5", "tpot_ms": "7.25", "tp": "4"}
		values[column] = text
		line := "p1,org/m,H100,fp8," + values["tp"] + "," + values["input_tokens"] + "," + values["output_tokens"] + "," + values["concurrency"] + "," + values["ttft_ms"] + "," + values["tpot_ms"] + ",,,,,,"
		least := map[string]string{"output_tokens": "2", "ttft_ms": "1e-09", "tpot_ms": "1e-09"}[column]
		if least == "" {
			least = "1"
		}
		want := fmt.Sprintf("%s:2:1: measured points: %s: got %q, want a number of at least %s", path, column, text, least)
		if _, err := read(line); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", column, err, want)
		}
	}
	for text, want := range map[string]string{"id\n": ":1:1: measured points: got no rows (<nil>), want id,model,system,", strings.Replace(pointsText("a"), "tpot_ms", "tpot", 1): "measured points: got no rows (record on line 2: wrong number of fields)",
		strings.Replace(pointsText("p1,org/m,H100,fp8,4,1,2,1,1,1,,,,,,"), ",tpot_ms", ",tpot", 1): `:1:1: measured points: got no column "tpot_ms", want it`} {
		repo.Write(t, text, path)
		if _, _, err := readPoints(path, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	// A model with one dated point is of a benchmark that dates its points.
	repo.Write(t, pointsText("a,org/m,H100,,1,1,2,1,1,1,,day,,,,", "b,org/m,H100,,1,1,2,2,1,1,,,,,,", "c,org/n,H100,,1,1,2,2,1,1,,,,,,"), path)
	list, _, err := readPoints(path, map[string]*served{"b": {TP: 8, ExpertParallel: true}, "c": {TP: 8}})
	if err != nil || list[0].measured != "day" || list[1].measured != "undated" || list[2].measured != "" {
		t.Errorf("got %+v, %v", list, err)
	}
	if a, b, c := list[0], list[1], list[2]; a.tp != 1 || a.ep != 1 || b.tp != 8 || b.ep != 8 || c.tp != 8 || c.ep != 1 || a.served != nil || b.served == nil {
		t.Errorf("got %d %d, %d %d, %d %d", a.tp, a.ep, b.tp, b.ep, c.tp, c.ep)
	}
	one := *want
	for share, isCopy := range map[float64]bool{0.00099: true, 0.00101: false, -0.00099: true, -0.00101: false} {
		ttft, tpot, tokens := one, one, one
		ttft.TTFTMs *= 1 + share
		tpot.TPOTMs *= 1 + share
		tokens.InputTokens++
		if one.copies(&ttft) != isCopy || one.copies(&tpot) != isCopy || one.copies(&tokens) || !one.copies(&one) {
			t.Errorf("%g: got copies %t and %t", share, one.copies(&ttft), one.copies(&tpot))
		}
	}
}

// TestLoadsOfPoints: what a point's server is taken to run, and what its figures count as.
func TestLoadsOfPoints(t *testing.T) {
	dir := t.TempDir()
	repo.Write(t, llama, dir, "org--m_config.json")
	repo.Write(t, llama, dir, "meta-llama--Meta-Llama-3.1-70B_config.json")
	repo.Write(t, pointsText(
		"a,org/m,H100,fp8,2,100,4,1,20,8,,day,2,,,", "b,org/m,H100,fp8,2,100,4,2,21,8,,,1,,,", "c,org/m,H100,fp8,2,100,4,3,22,8,0.15.0,,,,,", "d,org/m,H100,fp8,2,100,4,4,22,8,,,,,,",
		"e,org/m,H100,fp8,2,100,4,5,22,8,,,,,,", "f,meta-llama/Llama-3.1-70B,H100,bf16,4,100,4,6,22,8,,,,,,"), dir, "points.csv")
	repo.Write(t, "id,tp,dp,expert_parallel,max_num_seqs,max_num_batched_tokens,gpu_memory_utilization,further_vllm_keys\na,2,1,1,64,2048,0.9,\nf,4,1,0,64,2048,0.9,\n", dir, "flags.csv")
	src := &Sources{Points: []string{filepath.Join(dir, "points.csv")}, Flags: filepath.Join(dir, "flags.csv"), Models: dir}
	ls, ins, err := loadsOf(src)
	if err != nil || len(ls) != 6 || len(ins) != 2 {
		t.Fatalf("got %d loads, %d inputs, %v", len(ls), len(ins), err)
	}
	a, b, c, f := ls[0], ls[1], ls[2], ls[5]
	if a.family != "m fp8, H100-SXM-80GB" || a.group != "m fp8, H100-SXM-80GB, EP" || b.group != b.family || f.family != "Llama-3.1-70B bf16, H100-SXM-80GB" {
		t.Errorf("got groups %q, %q, %q", a.group, b.group, f.group)
	}
	if a.tpotWeight != 1 || a.ttftWeight != 0.8 || f.ttftWeight != 1 || b.ttftWeight != 0 || b.tpotWeight != 0 { // TTFTs of 5 points count as 4
		t.Errorf("got weights %g and %g, %g, %g", a.tpotWeight, a.ttftWeight, f.ttftWeight, b.ttftWeight)
	}
	if e := a.dep.Engine; e.VLLMVersion != "0.11.0" || !e.AsyncScheduling.V || !e.ExpertParallel || !e.ChunkedPrefill || a.dep.TP != 2 || a.dep.PP != 1 || a.dep.DP != 1 {
		t.Errorf("got %+v", a.dep)
	}
	if e := f.dep.Engine; e.VLLMVersion != "" || e.AsyncScheduling.OK || c.dep.Engine.VLLMVersion != "0.15.0" || c.dep.Engine.AsyncScheduling.OK || c.dep.Engine.MaxNumBatchedTokens != 8192 {
		t.Errorf("got %+v and %+v", e, c.dep.Engine)
	}
	quant := func(l *load) model.Quant { return l.dep.Model.Layered.Layers[0].FFN.Linears[0].Quant }
	if q := quant(a); q.Algorithm != "fp8" || q.BytesPerWeight != 1 || q.ActivationBits != 8 || a.dep.Model.Layered.Layers[31].Mixer.Linears[0].Quant != q || quant(f).Algorithm != "" {
		t.Errorf("got %+v and %+v", q, quant(f))
	}
	if len(a.reqs) != 10 || len(f.reqs) != 60 || a.kvBlocks <= 0 || a.step == nil || f.reqs[0].PromptTokens != 100 || f.reqs[59].OutputTokens != 4 {
		t.Errorf("got %d and %d requests, %d blocks", len(a.reqs), len(f.reqs), a.kvBlocks)
	}
	varies := func(l *load) bool {
		return slices.ContainsFunc(l.reqs, func(r sim.Request) bool { return r.PromptTokens != l.reqs[0].PromptTokens })
	}
	if !varies(a) || varies(f) {
		t.Error("the dated benchmark draws lengths, the other does not")
	}
	for _, c := range []struct{ old, new, want string }{{"H100", "H1", `system: got "H1", want a built-in device`}, {"org/m", "org/x", "org--x_config.json"}} {
		repo.Write(t, strings.Replace(pointsText("a,org/m,H100,fp8,2,100,4,1,20,8,,day,2,,,"), c.old, c.new, 1), dir, "points.csv")
		if _, _, err := loadsOf(src); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "points.csv: a: ") {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// TestQueueGrows: a request that waits twice as long as its prompt takes does not make a queue, one that waits longer does, and those after it
// are not measured.
func TestQueueGrows(t *testing.T) {
	d, err := deploy.LoadSettings("model.id=meta-llama/Llama-3.1-8B-Instruct", "hardware.name=RTX-PRO-6000", "vllm.version=0.19.0",
		"tensor_parallel_size=1", "vllm.max_num_seqs=128", "vllm.max_num_batched_tokens=2048")
	if err != nil {
		t.Fatal(err)
	}
	for waitNs, want := range map[int64]bool{200: false, 201: true} {
		run := &trace.Run{}
		for i, wait := range []int64{0, waitNs, 0} {
			at := int64(1000 * i)
			run.Observed = append(run.Observed, trace.ObservedRequest{SendWallNs: trace.Some(at), QueuedNs: trace.Some(at), ScheduledNs: trace.Some(at + wait), EngineFirstNs: trace.Some(at + wait + 100),
				EngineLastNs: trace.Some(at + wait + 100 + 30000), PromptTokens: trace.Some(int64(5)), OutputTokens: trace.Some(int64(3))})
		}
		l, err := observedOf("r", run, d)
		if err != nil || l.reqs[0].Unmeasured || l.reqs[1].Unmeasured != want || l.reqs[2].Unmeasured != want {
			t.Errorf("a wait of %d ns: got %+v, %v", waitNs, l.reqs, err)
		}
		if !l.inProcess || l.tpotWeight != 5 || l.ttftWeight != 5 || l.name != "r" || l.group != "r" || l.family != "r" || !slices.Equal(l.tpots, []float64{0.015, 0.015, 0.015}) || len(l.ttfts) != 3 {
			t.Errorf("got %+v", l)
		}
		near(t, "TTFT of the second", l.ttfts[1], float64(waitNs+100)/1e6)
	}
}

// TestCycleTimes: the longer of the kernels and of the host that launches them counts, and its features alone.
func TestCycleTimes(t *testing.T) {
	var theta [library.NumStep]float64
	for k := range theta {
		theta[k] = library.Parameters[k].Mean
	}
	var x [library.NumStep]float64
	x[library.ScaleGPU], x[library.HostStep] = 100, 1
	x[library.EagerLayer] = 0.5 // 75 us
	slow := x
	slow[library.EagerLayer] = 2 // 300 us
	y := &cycles{name: "y", gpu: "H100-SXM-80GB", us: []float64{150, 250}, x: [][library.NumStep]float64{x, slow}}
	us, kept := y.timeOf(0, &theta)
	near(t, "kernels", us, 300)
	if kept[library.EagerLayer] != 0 || kept[library.ScaleGPU] != 100 {
		t.Errorf("got %v", kept)
	}
	us, kept = y.timeOf(1, &theta)
	near(t, "launches", us, 500)
	if kept[library.EagerLayer] != 2 || kept[library.ScaleGPU] != 0 || y.x[1][library.ScaleGPU] != 100 {
		t.Errorf("got %v", kept)
	}
	// The evidence of both: 300 for 150 us and 500 for 250 us, which count as 15 points together.
	c := newCorrection([]string{"H100-SXM-80GB"})
	for i, e := range c.evidenceOf(nil, nil, []*cycles{y}) {
		near(t, "log", e.log, math.Log(2))
		near(t, "host_step_us", e.by[library.HostStep], 1/[]float64{300, 500}[i])
		near(t, "gpu_scale of the GPU", e.by[16], []float64{100.0 / 300, 0}[i])
		if e.sd != 0.025 || e.weight != 7.5 {
			t.Errorf("got %+v", e)
		}
	}
}

// TestEvidenceOfLoads: TPOT and TTFT, moved along their derivatives from where they were simulated; a TTFT is not taken below a twentieth of
// the measured one.
func TestEvidenceOfLoads(t *testing.T) {
	c := newCorrection(nil)
	at := slices.Clone(c.Theta)
	at[15] -= 1000 // simulated with an overhead of 7000
	by := func(v float64) []float64 {
		out := make([]float64, 18)
		out[15] = v
		return out
	}
	l := &load{dep: &deploy.Deployment{}, ttftMs: 100, tpotMs: 10, tpotWeight: 3, ttftWeight: 2}
	of := map[*load]means{l: {Means: &sim.Means{TTFTMs: 50, TPOTMs: 19, TTFTBy: by(0.03), TPOTBy: by(0.001)}, at: at}}
	es := c.evidenceOf([]*load{l}, of, nil)
	near(t, "TPOT", es[0].log, math.Log(20.0/10))
	near(t, "TTFT", es[1].log, math.Log(80.0/100))
	near(t, "TPOT by the overhead", es[0].by[15], 0.001/20)
	near(t, "TTFT by the overhead", es[1].by[15], 0.03/80)
	if len(es) != 2 || es[0].sd != 0.05 || es[0].weight != 3 || es[1].sd != 0.3 || es[1].weight != 2 {
		t.Errorf("got %+v", es)
	}
	of[l].TTFTBy[15] = -0.049
	near(t, "the least TTFT", c.evidenceOf([]*load{l}, of, nil)[1].log, math.Log(5.0/100))
	l.inProcess = true
	es = c.evidenceOf([]*load{l}, of, nil)
	near(t, "TTFT in the server's process", es[1].log, math.Log(50.0/100))
	near(t, "TPOT in the server's process", es[0].log, math.Log(19.0/10))
}

// TestPerShare: errors by the shares of time that rest on no measured kernel, without those of a family and of unknown flags.
func TestPerShare(t *testing.T) {
	one := func(family string, s *served, tpotErr, ttftErr float64) judged {
		return judged{load: &load{step: &library.Step{Family: family}, ttftMs: 100, tpotMs: 10, point: &point{served: s, Level: requestfit.Level{OutputTokens: 11}}},
			tpotErr: tpotErr, ttftErr: ttftErr, decodeShare: 0.4, promptShare: 0.5}
	}
	known := &served{}
	// 210 of 200 ms: 0.05; its inverse 10/210.
	list := []judged{one("F", known, 0.1, 0), one("G", known, 0, -0.2), one("F", nil, 9, 9)}
	got := perShare(list, "G")
	near(t, "ITL", got.ITL, 0.25)
	near(t, "TTFT", got.TTFT, 0)
	near(t, "E2E", got.E2E, 0.125)
	near(t, "throughput", got.Throughput, 0.119)
	got = perShare(list, "F") // 180 of 200 ms: 0.1, and 20/180
	if got != (library.Intervals{TTFT: 0.4, ITL: 0, E2E: 0.25, Throughput: 0.278}) {
		t.Errorf("got %+v", got)
	}
	if got := perShare(list, ""); got != (library.Intervals{TTFT: 0.4, ITL: 0.25, E2E: 0.25, Throughput: 0.278}) {
		t.Errorf("of all: got %+v", got)
	}
	if got := perShare(list[2:], ""); got != (library.Intervals{}) {
		t.Errorf("of none: got %+v", got)
	}
	widest := widestOf([]library.Judged{{Intervals: library.Intervals{TTFT: 1, ITL: 5, E2E: 3, Throughput: 7}}, {Intervals: library.Intervals{TTFT: 2, ITL: 4, E2E: 6, Throughput: 1}}})
	if widest != (library.Intervals{TTFT: 2, ITL: 5, E2E: 6, Throughput: 7}) {
		t.Errorf("got %+v", widest)
	}
	j := (&load{ttftMs: 100, tpotMs: 10}).judged(90, 12)
	near(t, "TTFT error", j.ttftErr, -0.1)
	near(t, "TPOT error", j.tpotErr, 0.2)
}

// latencyRow is a row of a table of times, in ms.
type latencyRow struct {
	Framework string  `col:"framework" doc:"not used"`
	Op        string  `col:"op_name" doc:"kernel"`
	Type      string  `col:"gemm_dtype" doc:"number format"`
	M         int64   `col:"m" doc:"rows"`
	N         int64   `col:"n" doc:"columns"`
	Step      int64   `col:"step" doc:"of the sizes the last"`
	Latency   float64 `col:"latency" doc:"ms"`
}

// commRow is a row of a table of two times, in us.
type commRow struct {
	Tokens   int64   `col:"num_token" doc:"size"`
	Dispatch float64 `col:"dispatch_avg_t_us" doc:"us"`
	Combine  float64 `col:"combine_avg_t_us" doc:"us"`
}

// parquetFile are rows as a Parquet file.
func parquetFile[T any](t *testing.T, rows []T) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := table.Write(dir, "x", table.Parquet, rows); err != nil {
		t.Fatal(err)
	}
	return repo.Read(t, dir, "x.parquet")
}

// TestTablesOfAFile: rows by key and size, words by their index, and times in us to a 64th of an octave; what is no table is refused.
func TestTablesOfAFile(t *testing.T) {
	rows := []latencyRow{{"f", "a", "fp8", 8, 2, 3, 0.002}, {"f", "a", "bf16", 4, 2, 3, 0.004}, {"f", "a", "fp8", 4, 2, 3, 0}, {"f", "a", "fp8", 4, 1, 3, 999999}}
	path := filepath.Join("systems", "v1", "gemm_perf.parquet")
	got, err := tablesOf(path, "rel", parquetFile(t, rows))
	if err != nil || len(got) != 1 {
		t.Fatalf("got %d tables, %v", len(got), err)
	}
	q := func(us float64) int16 { return int16(math.Round(64 * math.Log2(us))) }
	want := []library.Series{{Key: []int64{0, 2, 3}, X: []int64{4}, Q: []int16{q(4)}}, {Key: []int64{1, 1, 3}, X: []int64{4}, Q: []int16{q(999999000)}},
		{Key: []int64{1, 2, 3}, X: []int64{4, 8}, Q: []int16{library.Quantized(0), q(2)}}}
	columns := []library.Column{{Name: "gemm_dtype", Words: []string{"bf16", "fp8"}}, {Name: "n"}, {Name: "step"}, {Name: "m"}}
	if g := got[0]; g.Name != "gemm" || g.Version != "v1" || g.Path != "rel" || g.Rows != 4 || len(g.SHA256) != 64 || g.SourceBytes == 0 || !reflect.DeepEqual(g.Series, want) || !reflect.DeepEqual(g.Columns, columns) {
		t.Errorf("got %+v", g)
	}
	// Two kernels in one file are told apart.
	rows[0].Op = "b"
	if got, err = tablesOf(path, "rel", parquetFile(t, rows)); err != nil || got[0].Columns[0].Name != "op_name" || len(got[0].Series) != 4 {
		t.Errorf("got %+v, %v", got, err)
	}
	two, err := tablesOf("v2/alltoall.parquet", "rel", parquetFile(t, []commRow{{4, 7, 20}, {8, 9, 999999999}}))
	if err != nil || len(two) != 2 || two[0].Name != "alltoall_dispatch" || two[1].Name != "alltoall_combine" || !slices.Equal(two[0].Series[0].Q, []int16{q(7), q(9)}) || len(two[0].Series[0].Key) != 0 {
		t.Errorf("got %+v, %v", two, err)
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"a time of a thousand seconds": {parquetFile(t, []latencyRow{{M: 1, Latency: 1}, {M: 2, Latency: 1e6}}), "row 2: latency: got 1e+06, want a time of 0 to 1e9 us"},
		"a negative time":              {parquetFile(t, []latencyRow{{M: 1, Latency: -1}, {M: 2}}), "row 1: latency: got -1, want a time of 0 to 1e9 us"},
		"no size":                      {parquetFile(t, []latencyRow{{M: 1}, {M: 1}}), "got no size, want one of m, seq_len, num_tokens, num_token, message_size, isl, step with more than one value"},
		"no time": {parquetFile(t, []struct {
			M int64 `col:"m" doc:"size"`
		}{{1}, {2}}), "got no column latency, want times"},
		"another type": {parquetFile(t, []struct {
			M bool `col:"m" doc:"size"`
		}{{true}}), `column "m": got BOOLEAN, want text, int64 or double`},
		"no file": {[]byte("PAR1"), "got a damaged file ("},
	} {
		_, err := tablesOf("f.parquet", "rel", c.data)
		if err == nil || trace.CodeOf(err) != library.BadTable || !strings.HasPrefix(err.Error(), "bad_kernel_table: f.parquet: "+c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// TestSystemsFolder: of two versions of a table the newest, the figures of a GPU, and what a sheet must have.
func TestSystemsFolder(t *testing.T) {
	dir := t.TempDir()
	const sheet = "gpu: {mem_bw: 3e12, bfloat16_tc_flops: 9e14, sm_version: 90}\nnode: {intra_node_bw: 4e11}\n"
	repo.Write(t, sheet, dir, "h100_sxm.yaml")
	file := parquetFile(t, []latencyRow{{M: 1, Latency: 1}, {M: 2, Latency: 1}})
	for _, name := range []string{"gemm/vllm/0.9.1/gemm_perf.parquet", "gemm/vllm/0.14.0/gemm_perf.parquet", "gemm/other/0.1/gemm_perf.parquet", "gemm/vllm/0.9.1/moe_perf.parquet"} {
		repo.Write(t, file, dir, "data", "h100_sxm", name)
	}
	got, err := Pack(context.Background(), []string{dir}, 2)
	if err != nil || len(got) != 1 {
		t.Fatalf("got %v, %v", got, err)
	}
	var names []string
	for _, of := range got[0].Tables {
		names = append(names, of.Path)
	}
	if g := got[0]; g.Hardware != "H100-SXM-80GB" || g.Folder != "h100_sxm" || g.SM != 90 || g.Bandwidth != 3e12 || g.FLOPS != 9e14 || g.Link != 4e11 ||
		!slices.Equal(names, []string{"data/h100_sxm/gemm/other/0.1/gemm_perf.parquet", "data/h100_sxm/gemm/vllm/0.14.0/gemm_perf.parquet", "data/h100_sxm/gemm/vllm/0.9.1/moe_perf.parquet"}) {
		t.Errorf("got %+v, %v", g, names)
	}
	for _, c := range []struct{ old, new, want string }{
		{"3e12", "0", "got no gpu.sm_version, gpu.mem_bw, gpu.bfloat16_tc_flops or node.intra_node_bw, want all four"}, {"9e14", "-1", "got no gpu.sm_version"}, {"90", "0", "got no gpu.sm_version"},
		{"4e11", ".inf", "got .inf, want a finite number"}, {"{mem", "[mem", "h100_sxm.yaml"},
	} {
		repo.Write(t, strings.Replace(sheet, c.old, c.new, 1), dir, "h100_sxm.yaml")
		if _, err := Pack(context.Background(), []string{dir}, 1); err == nil || trace.CodeOf(err) != library.BadTable || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", c.new, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "h100_sxm.yaml")); err != nil {
		t.Fatal(err)
	}
	repo.Write(t, sheet, dir, "abacus.yaml")
	if _, err := Pack(context.Background(), []string{dir}, 1); trace.CodeOf(err) != deploy.BadHardware || !strings.Contains(err.Error(), `got "abacus", want the name of a built-in device`) {
		t.Errorf("got %v", err)
	}
	repo.Write(t, sheet, dir, "h200_sxm.yaml")
	if err := os.Remove(filepath.Join(dir, "abacus.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := Pack(context.Background(), []string{dir}, 1); trace.CodeOf(err) != library.NoTables || !strings.Contains(err.Error(), "want the tables of h200_sxm") {
		t.Errorf("got %v", err)
	}
}

// flat takes 1000 us and a microsecond for each token that is computed or in the cache.
type flat struct{ failsAt int }

func (f flat) StepUs(batch []trace.Chunk) (float64, error) {
	us := 1000.0
	for _, c := range batch {
		us += float64(c.New + c.Computed)
	}
	if len(batch) == f.failsAt {
		return 0, errors.New("no time")
	}
	return us, nil
}

// TestForwardRows: the grids of a small engine with 2 requests, 64 tokens a step and 128 blocks, and every column of a row.
func TestForwardRows(t *testing.T) {
	if got := fpmGrid(1, 10); !slices.Equal(got, []int64{1, 2, 3, 4, 5, 6, 7, 8, 10}) {
		t.Errorf("got %v", got)
	}
	if got := fpmGrid(64, 130); !slices.Equal(got, []int64{64, 80, 100, 125, 130}) || !slices.Equal(fpmGrid(64, 5), []int64{5}) {
		t.Errorf("got %v", got)
	}
	d, err := deploy.LoadSettings("model.id=meta-llama/Llama-3.1-8B-Instruct", "hardware.name=H100", "vllm.version=0.24.0", "tensor_parallel_size=1", "vllm.max_num_seqs=2",
		"vllm.max_num_batched_tokens=64", "vllm.kv_blocks_total_gpu=128", "vllm.max_model_len=100", "vllm.enforce_eager=true")
	if err != nil {
		t.Fatal(err)
	}
	c := &result.FitConfig{Key: "key", Label: "label", Deployment: *d}
	rows, err := fpmRows(c, flat{}, "h100_sxm", "v9")
	if err != nil {
		t.Fatal(err)
	}
	first := fpmRow{CellID: "blis-train-model:key", Model: "meta-llama/Meta-Llama-3.1-8B", System: "h100_sxm", Backend: "vllm", Version: "v9", Weights: "bfloat16", GEMM: "bfloat16", MoE: "bfloat16",
		FMHA: "bfloat16", Comm: "half", KV: "bfloat16", MoEBackend: "auto", Attention: "auto", Kind: "decode", Policy: "balanced_v1", TP: 1, PP: 1, DP: 1, MoETP: 1, MoEEP: 1, CP: 1,
		Batch: 1, KVTokens: 1, LatencyMs: 1.002}
	if rows[0] != first {
		t.Errorf("got %+v\nwant %+v", rows[0], first)
	}
	at := map[string]float64{}
	contexts := map[int64][]int64{}
	for _, r := range rows {
		at[fmt.Sprint(r.Kind, r.Batch, r.PrefillToken, r.KVTokens)] = r.LatencyMs
		if r.Kind == "decode" || r.PrefillToken == 64 {
			contexts[r.Batch+10*r.PrefillToken] = append(contexts[r.Batch+10*r.PrefillToken], r.KVTokens)
		}
	}
	// Decodes to 2048 tokens, the cache; prompts to the longest sequence of each request.
	if !slices.Equal(contexts[1], []int64{1, 1024, 1280, 1600, 2000, 2048}) || !slices.Equal(contexts[2], contexts[1]) || contexts[3] != nil {
		t.Errorf("decodes: got %v", contexts)
	}
	if !slices.Equal(contexts[641], []int64{0, 64, 80, 100}) || !slices.Equal(contexts[642], []int64{0, 64, 80, 100, 125, 156, 195, 200}) || contexts[645] != nil || contexts[644] == nil {
		t.Errorf("prompts: got %v", contexts)
	}
	if at[fmt.Sprint("decode", 2, 0, 2048)] != 3.05 || at[fmt.Sprint("prefill", 2, 64, 80)] != 1.144 || at[fmt.Sprint("prefill", 2, 1, 0)] != 0 || at[fmt.Sprint("prefill", 2, 2, 0)] != 1.002 {
		t.Errorf("got %v", at)
	}
	c.Deployment.Model.BytesPerKV = 1
	c.Deployment.Hardware.Name = "H100-SXM-80GB"
	opt := export.Options{Settings: export.Settings{"backend-version": "v9"}}
	src := export.Source{Fit: &result.Fit{Configs: []result.FitConfig{*c}}, Step: func(deploy.Deployment) (export.StepTimer, error) { return flat{}, nil }}
	out, err := forwardPasses(src, opt)
	if err != nil {
		t.Fatal(err)
	}
	var meta fpmMetadata
	if err := json.Unmarshal(out.Files[1].Data, &meta); err != nil || out.Files[1].Suffix != "/data/h100_sxm/vllm/v9/fpm_forward_perf.metadata.json" || out.Files[0].Suffix != "/data/h100_sxm/vllm/v9/fpm_forward_perf.parquet" ||
		meta.Schema != "aic_fpm_forward_perf" || meta.Coordinates != "iteration_totals_balanced_v1" || meta.Policy != "dynamo_native_single_sample_v1" || meta.System != "h100_sxm" || meta.Backend != "vllm" || meta.Release != "v9" || meta.Rows != len(rows) {
		t.Errorf("got %+v, %v", meta, err)
	}
	for _, c := range []struct {
		change func(src *export.Source, opt *export.Options)
		want   string
	}{
		{func(_ *export.Source, opt *export.Options) { opt.Settings = export.Settings{"backend-version": "a/b"} }, `--option backend-version: got "a/b", want the name of a folder, such as 0.15.1`},
		{func(src *export.Source, _ *export.Options) {
			src.Step = func(deploy.Deployment) (export.StepTimer, error) { return flat{2}, nil }
		}, "label: no time"},
		{func(src *export.Source, _ *export.Options) {
			other := src.Fit.Configs[0]
			other.Label, other.Deployment.Hardware.Name = "other", "H200-SXM-141GB"
			src.Fit = &result.Fit{Configs: []result.FitConfig{src.Fit.Configs[0], other}}
		}, "bad_entry: label and other: got two GPUs, want one a table"},
		{func(src *export.Source, _ *export.Options) {
			own := src.Fit.Configs[0]
			own.Deployment.Hardware.Name = "abacus"
			src.Fit = &result.Fit{Configs: []result.FitConfig{own}}
		}, `bad_entry: label: AIConfigurator has no system for "abacus"`},
	} {
		src, opt := src, opt
		c.change(&src, &opt)
		if _, err := forwardPasses(src, opt); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	zero := func(us float64) error {
		_, err := fpmRows(c, constantTime(us), "h100_sxm", "v9")
		return err
	}
	if err := zero(0); err == nil || err.Error() != "poor_projection: 1 requests, 0 prompt and 1 context tokens: got 0 us, want above 0" || trace.CodeOf(err) != export.PoorProjection {
		t.Errorf("got %v", err)
	}
	if err := zero(math.Inf(1)); err == nil {
		t.Error("an endless step was written")
	}
	if _, err := refinedGrid(flat{1}, []int64{1, 64}); err == nil || !strings.Contains(err.Error(), "no time") {
		t.Errorf("got %v", err)
	}
}

// constantTime is the time of every step, us.
type constantTime float64

func (us constantTime) StepUs([]trace.Chunk) (float64, error) { return float64(us), nil }

// TestRunsOfServers: a run whose client has the engine's stamps becomes a load, extracted from its folder; no folders give nothing.
func TestRunsOfServers(t *testing.T) {
	dir := t.TempDir()
	repo.Write(t, "model: {id: meta-llama/Llama-3.1-8B-Instruct}\nhardware: {name: RTX-PRO-6000}\ntensor_parallel_size: 1\nvllm: {version: \"0.19.0\", max_num_seqs: 128, max_num_batched_tokens: 2048}\n", dir, "run", "run.yaml")
	repo.Write(t, `{"request_id":"1","input_toks":40,"output_toks":5,"arrival_time":100.0,"queued_ts":1.0,"scheduled_ts":1.01,"first_token_ts":1.06,"last_token_ts":1.26}`+"\n"+
		`{"request_id":"2","input_toks":50,"output_toks":3,"arrival_time":101.0,"queued_ts":2.0,"scheduled_ts":2.0,"first_token_ts":2.08,"last_token_ts":2.10}`+"\n", dir, "run", "requests.jsonl")
	ys, ls, inputs, err := readRuns(context.Background(), []string{filepath.Join(dir, "run")})
	if err != nil || len(ys) != 0 || len(ls) != 1 || len(inputs) == 0 {
		t.Fatalf("got %d runs of steps, %d loads, %d inputs, %v", len(ys), len(ls), len(inputs), err)
	}
	l := ls[0]
	near(t, "TTFT", l.ttftMs, (60+80)/2.0)
	near(t, "TPOT", l.tpotMs, (50+10)/2.0)
	if len(l.reqs) != 2 || l.reqs[1].ArrivalUs != 1_000_000 || l.reqs[1].PromptTokens != 50 || !l.inProcess {
		t.Errorf("got %+v", l)
	}
	if ys, ls, inputs, err := readRuns(context.Background(), nil); ys != nil || ls != nil || inputs != nil || err != nil {
		t.Errorf("no folders: got %v, %v, %v, %v", ys, ls, inputs, err)
	}
	if _, _, _, err := readRuns(context.Background(), []string{filepath.Join(dir, "none")}); err == nil {
		t.Error("a folder that is missing was read")
	}
}
