package library

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// Tables are the measured kernels of one GPU. They are immutable after Load
// and safe to share.
type Tables struct {
	GPU      string          // the folder's name: h100_sxm
	Hardware deploy.Hardware // the built-in datasheet of that GPU
	Version  string          // vLLM version of the linear layers' table
	Sources  []coeff.Input   // every file read, in path order

	capability int64   // compute capability x 10: 90
	bandwidth  float64 // B/s of one GPU
	flops      float64 // 16-bit FLOP/s of one GPU
	link       float64 // B/s of one GPU to the others, one direction
	dir        string
	paths      map[string]string // table name -> path in messages
	gemm       map[gemmKey]*curve
	context    map[attentionKey]*grid
	generation map[attentionKey]*grid
	allReduce  map[reduceKey]*curve
	nccl       map[reduceKey]*curve
	moe        map[moeKey]*curve
}

type gemmKey struct {
	dtype string
	n, k  int64
}

type attentionKey struct {
	kvDType        string
	headDim        int64
	heads, kvHeads int64 // per GPU
}

// reduceKey is a way to reduce (graph, eager) or a collective (all_reduce,
// all_gather) among a number of GPUs; sizes are bytes.
type reduceKey struct {
	how  string
	gpus int64
}

type moeKey struct {
	dtype                        string
	hidden, inter, topK, experts int64
	tp, ep                       int64
	distribution                 string
}

// gpUs lists the GPUs whose datasheet lies in the folder, sorted.
func gpUs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".yaml"); ok && !e.IsDir() {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, trace.Errorf(noTables, "%s: got no <gpu>.yaml, want kernel tables", dir).
			WithHint("name the systems folder of the aiconfigurator-core package")
	}
	return names, nil
}

// gpuOf finds the folder's GPU for a device name: its own name or one of the
// built-in datasheets' (H100-SXM-80GB, H100).
func gpuOf(dir, hardware string) (string, error) {
	names, err := gpUs(dir)
	if err != nil {
		return "", err
	}
	sheet, known := deploy.Datasheet(hardware)
	for _, name := range names {
		own, ok := deploy.Datasheet(name)
		if name == hardware || known && ok && own.Name == sheet.Name {
			return name, nil
		}
	}
	return "", trace.Errorf(noTables, "%s: hardware %q: got no tables of it, want one of %s", dir, hardware, strings.Join(names, ", "))
}

// Load reads the tables of a device, which may be named as in the folder or as
// in run.yaml. Of several vLLM versions of a table the newest is taken.
func Load(dir, hardware string) (*Tables, error) {
	gpu, err := gpuOf(dir, hardware)
	if err != nil {
		return nil, err
	}
	sheet, _ := deploy.Datasheet(gpu)
	t := &Tables{GPU: gpu, Hardware: sheet, dir: dir, paths: map[string]string{}}
	if err := t.readSheet(); err != nil {
		return nil, err
	}
	if t.context, err = t.attention(contextFile, "context_attention", true); err != nil {
		return nil, err
	}
	if t.generation, err = t.attention(generationFile, "generation_attention", false); err != nil {
		return nil, err
	}
	for _, load := range []func() error{t.loadGEMM, t.loadAllReduce, t.loadNCCL, t.loadMoE} {
		if err := load(); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(t.Sources, func(a, b coeff.Input) int { return cmp.Compare(a.Name, b.Name) })
	return t, nil
}

// readSheet takes what the rules need from <gpu>.yaml.
func (t *Tables) readSheet() error {
	path := filepath.Join(t.dir, t.GPU+".yaml")
	data, err := files.ReadAll(path)
	if err != nil {
		return err
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
	if err := decodeYAML(data, path, &sheet); err != nil {
		return trace.Errorf(badTable, "%s: %v", path, err)
	}
	t.capability, t.bandwidth, t.flops, t.link = sheet.GPU.Capability, sheet.GPU.Bandwidth, sheet.GPU.FLOPS, sheet.Node.Link
	if t.capability <= 0 || t.bandwidth <= 0 || t.flops <= 0 || t.link <= 0 {
		return trace.Errorf(badTable, "%s: got no gpu.sm_version, gpu.mem_bw, gpu.bfloat16_tc_flops or node.intra_node_bw, want all four", path)
	}
	return nil
}

// decodeYAML reads what it has fields for of a YAML document of others, with keys of their own.
func decodeYAML(text []byte, path string, into any) error {
	root, err := files.ParseYAML(text, path)
	if root == nil || err != nil {
		return err
	}
	return root.Decode(into)
}

// read finds the newest version of a table and reads it.
func read[T any, P tableRow[T]](t *Tables, folder, framework, file string, ops ...string) ([]T, error) {
	base := filepath.Join(t.dir, "data", t.GPU, folder, framework)
	versions, err := os.ReadDir(base)
	if err != nil {
		return nil, t.missing(base, file, err)
	}
	slices.SortStableFunc(versions, func(a, b os.DirEntry) int { return compareVersions(b.Name(), a.Name()) })
	for _, v := range versions {
		path := filepath.Join(base, v.Name(), file)
		rel, _ := filepath.Rel(t.dir, path)
		rows, src, err := readTable[T, P](path, filepath.ToSlash(rel), ops)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		t.Sources = append(t.Sources, src)
		t.paths[file] = path
		if file == gemmFile {
			t.Version = v.Name()
		}
		return rows, nil
	}
	return nil, t.missing(base, file, fs.ErrNotExist)
}

func (t *Tables) missing(base, file string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return trace.Errorf(noTables, "%s: got no <version>/%s, want the table", base, file)
	}
	return err
}

// compareVersions orders 0.9.1 before 0.14.0; what is not a number counts as 0.
func compareVersions(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		var x, y int
		if i < len(as) {
			x, _ = strconv.Atoi(as[i])
		}
		if i < len(bs) {
			y, _ = strconv.Atoi(bs[i])
		}
		if x != y {
			return cmp.Compare(x, y)
		}
	}
	return strings.Compare(a, b)
}

// Names of the files.
const (
	gemmFile       = "gemm_perf.parquet"
	contextFile    = "context_attention_perf.parquet"
	generationFile = "generation_attention_perf.parquet"
	allReduceFile  = "custom_allreduce_perf.parquet"
	ncclFile       = "nccl_perf.parquet"
	moeFile        = "moe_perf.parquet"
)

func (t *Tables) loadGEMM() error {
	rows, err := read[gemmRow](t, "gemm", "vllm", gemmFile, "gemm")
	if err != nil {
		return err
	}
	samples := make([]sample[gemmKey], len(rows))
	f := floor{}
	for i, r := range rows {
		samples[i] = sample[gemmKey]{gemmKey{r.DType, r.N, r.K}, float64(r.M), r.Kernel, r.Ms}
		if r.DType == bf16 {
			f.add(2*float64(r.M)*float64(r.N)*float64(r.K)/t.flops, 2*float64(r.M*r.N+r.N*r.K+r.M*r.K)/t.bandwidth, r.Ms)
		}
	}
	t.gemm = curves(samples)
	return f.check(t.paths[gemmFile])
}

// attention reads prefills (a prompt without cached tokens) or decodes (a context of step tokens).
func (t *Tables) attention(file, op string, prefill bool) (map[attentionKey]*grid, error) {
	measurements, err := read[attentionRow](t, "attention", "vllm", file, op)
	if err != nil {
		return nil, err
	}
	type rowKey struct {
		attentionKey
		batch int64
	}
	var samples []sample[rowKey]
	f := floor{}
	for _, r := range measurements {
		s, key := r.Step, attentionKey{r.KVDType, r.HeadDim, r.Heads, r.KVHeads}
		if r.Window.Or(0) != 0 || r.Beams.Or(1) != 1 || prefill && r.Step != 0 {
			continue
		}
		if prefill {
			s = r.Prompt
		}
		samples = append(samples, sample[rowKey]{rowKey{key, r.Batch}, float64(s), r.Kernel, r.Ms})
		if key.kvDType == bf16 {
			pairs, tokens := float64(r.Batch)*float64(s), float64(r.Batch*s)
			if prefill {
				pairs *= float64(s) / 2
			}
			f.add(4*pairs*float64(key.heads*key.headDim)/t.flops, 4*tokens*float64(key.kvHeads*key.headDim)/t.bandwidth, r.Ms)
		}
	}
	rows := curves(samples)
	keys := make([]rowKey, 0, len(rows))
	for k := range rows {
		keys = append(keys, k)
	}
	slices.SortStableFunc(keys, func(a, b rowKey) int { return cmp.Compare(a.batch, b.batch) })
	grids := map[attentionKey]*grid{}
	for _, k := range keys {
		g := grids[k.attentionKey]
		if g == nil {
			g = &grid{}
			grids[k.attentionKey] = g
		}
		g.x, g.rows = append(g.x, float64(k.batch)), append(g.rows, *rows[k])
	}
	return grids, f.check(t.paths[file])
}

func (t *Tables) loadAllReduce() error {
	rows, err := read[allReduceRow](t, "comm", "vllm", allReduceFile, allReduce)
	if err != nil {
		return err
	}
	var all []collective
	for _, r := range rows {
		_, how, _ := strings.Cut(r.Backend, "_")
		all = append(all, collective{r.kernelTime, r.DType, how, r.GPUs, r.Size})
	}
	t.allReduce, err = t.collectives(all, allReduceFile, "allreduce_dtype")
	return err
}

func (t *Tables) loadNCCL() error {
	rows, err := read[ncclRow](t, "comm", "nccl", ncclFile, allReduce, allGather, "alltoall", "reduce_scatter")
	if err != nil {
		return err
	}
	var all []collective
	for _, r := range rows {
		all = append(all, collective{r.kernelTime, r.DType, r.Op, r.GPUs, r.Size})
	}
	t.nccl, err = t.collectives(all, ncclFile, "nccl_dtype")
	return err
}

// collective is what one row says of an exchange, size in elements.
type collective struct {
	kernelTime
	dtype, how string
	gpus, size int64
}

// collectives reads sizes in elements of a 16-bit dtype as bytes.
func (t *Tables) collectives(all []collective, file, dtype string) (map[reduceKey]*curve, error) {
	var samples []sample[reduceKey]
	f := floor{}
	for _, c := range all {
		if !slices.Contains([]string{bf16, "half", "float16"}, c.dtype) {
			continue
		}
		bytes := 2 * float64(c.size)
		samples = append(samples, sample[reduceKey]{reduceKey{c.how, c.gpus}, bytes, c.Kernel, c.Ms})
		f.add(0, bytes/t.link, c.Ms)
	}
	if len(samples) == 0 {
		return nil, trace.Errorf(badTable, "%s: column %s: got no 16-bit rows, want some", t.paths[file], dtype)
	}
	return curves(samples), f.check(t.paths[file])
}

func (t *Tables) loadMoE() error {
	rows, err := read[moeRow](t, "moe", "vllm", moeFile, "moe")
	if coded := (*trace.Error)(nil); errors.As(err, &coded) && coded.Code == noTables {
		return nil // a folder of dense models only
	}
	if err != nil {
		return err
	}
	samples := make([]sample[moeKey], len(rows))
	f := floor{}
	for i, r := range rows {
		k := moeKey{r.DType, r.Hidden, r.Inter, r.TopK, r.Experts, r.TP, r.EP, r.Distribution}
		tokens := float64(r.Tokens)
		samples[i] = sample[moeKey]{k, tokens, r.Kernel, r.Ms}
		if k.dtype == bf16 {
			params := 3 * float64(k.hidden) * float64(k.inter) / float64(k.tp*k.ep)
			f.add(2*tokens*float64(k.topK)*params/t.flops, 2*min(float64(k.experts), tokens*float64(k.topK)/8)*params/t.bandwidth, r.Ms)
		}
	}
	t.moe = curves(samples)
	return f.check(t.paths[moeFile])
}

// floor compares times with what the GPU could do at best: the median ratio of
// the large rows, where launches no longer count, tells milliseconds from
// microseconds and seconds.
type floor struct{ ratios []float64 }

const (
	floorRowMs    = 0.1  // rows whose floor is at least this long are compared
	leastOfFloor  = 0.2  // a median below: no GPU is that fast
	mostOverFloor = 50.0 // a median above: not ms
)

func (f *floor) add(computeS, memoryS, ms float64) {
	if best := 1e3 * max(computeS, memoryS); best >= floorRowMs {
		f.ratios = append(f.ratios, ms/best)
	}
}

func (f *floor) check(path string) error {
	if len(f.ratios) == 0 {
		return nil
	}
	slices.Sort(f.ratios)
	if r := f.ratios[len(f.ratios)/2]; r < leastOfFloor || r > mostOverFloor {
		return trace.Errorf(badTable, "%s: latency: the large rows take %.3g times the GPU's best time, want %g..%g", path, r, leastOfFloor,
			mostOverFloor).
			WithHint(fmt.Sprintf("latencies are milliseconds; multiply them by %g", unitFactor(r)))
	}
	return nil
}

// unitFactor is the power of a thousand that brings a ratio back to order one.
func unitFactor(ratio float64) float64 {
	if ratio > 1 {
		return 1e-3
	}
	return 1e3
}

// Codes of loading tables and of looking a deployment up in them.
const (
	noTables     trace.Code = "no_kernel_tables"
	badTable     trace.Code = "bad_kernel_table"
	noRows       trace.Code = "kernel_rows_missing"
	unknownRules trace.Code = "unknown_kernel_rules"
)
