package library

import (
	"bytes"
	"cmp"
	"embed"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/model"
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
	return int16(math.Round(perOctave * math.Log(us) / math.Ln2))
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
		out[i] = math.Exp(float64(i+math.MinInt16) / perOctave * math.Ln2)
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
		t.Series[i].Q = qs[:len(t.Series[i].X)]
		qs = qs[len(t.Series[i].X):]
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

// What no kernel table knows, in few numbers that a step's time is linear in; never one per model, which would not transfer.
const (
	ScaleGPU     = iota // of all kernels of one GPU
	ScaleExpert         // of experts, on top: added to the GPU's
	ScaleReduce         // of collectives, on top
	HostStep            // us per step
	HostRank            // us per step and further tensor-parallel rank
	HostSequence        // us per running sequence
	SyncStep            // us per step of an engine that schedules synchronously, on top
	SyncSequence        // us per sequence of such an engine, on top
	ScalePrompt         // of all kernels of a step with prompts, on top: clocks under long load, which no repeated kernel shows
	SmallKernel         // us per kernel that no table holds, on top of its bytes and launchUs
	EagerLayer          // us in which the host launches a layer of a step that no CUDA graph runs, at least
	NumStep
)

// Parameter is one number of the corrections: its name, its prior and its least value.
type Parameter struct {
	Name              string
	Mean, SD, AtLeast float64
}

// Parameters are those of a step, then Overhead: us before a request reaches the engine. A synchronous engine pays its host in every
// step; an asynchronous one prepares a step while the GPU runs the one before and pays what cannot overlap.
var Parameters = [NumStep + 1]Parameter{
	ScaleGPU:     {"gpu_scale", 1, 0.004, 0.5},
	ScaleExpert:  {"expert_scale", 0, 0.006, -0.5},
	ScaleReduce:  {"collective_scale", 0, 0.01, -0.5},
	HostStep:     {"host_step_us", 200, 30, 0},
	HostRank:     {"host_rank_us", 80, 20, 0},
	HostSequence: {"host_sequence_us", 0, 1, 0},
	SyncStep:     {"sync_step_us", 900, 400, 0},
	SyncSequence: {"sync_sequence_us", 10, 30, 0},
	ScalePrompt:  {"prompt_scale", 0, 0.05, -0.5},
	SmallKernel:  {"small_kernel_us", 0.5, 0.25, 0},
	EagerLayer:   {"eager_layer_us", 450, 50, 0},
	NumStep:      {"overhead_us", 8_000, 3_000, 0},
}

// Corrections are the values, each with its standard error, and how predictions with them did.
type Corrections struct {
	Version string                `yaml:"version"`
	GPUs    map[string][2]float64 `yaml:"gpu_scale"` // by datasheet name; others take 1
	Step    map[string][2]float64 `yaml:"common"`    // by Parameter.Name
	Judged  []Judged              `yaml:"judged"`
}

// Judged is a family that was compared with servers, left out of the corrections: ratios.
type Judged struct {
	Family     string   `yaml:"family" json:"family"`
	Model      string   `yaml:"model" json:"model"`
	TP         []int64  `yaml:"tp,flow" json:"tp"`
	Flags      []string `yaml:"flags,omitempty" json:"flags,omitempty"` // of the servers, that change kernels, and of how many points
	Points     int      `yaml:"points" json:"points"`
	TPOTMape   float64  `yaml:"tpot_mape" json:"tpot_mape"`
	TTFTMedian float64  `yaml:"ttft_median" json:"ttft_median"`
	Interval90 float64  `yaml:"tpot_interval_90" json:"tpot_interval_90"` // half width: nine in ten left-out errors are within it
}

//go:embed corrections.yaml
var corrections []byte

// Learned are the embedded corrections.
var Learned = files.Embedded[Corrections](corrections, "corrections.yaml")

// YAML is the corrections' file.
func (c *Corrections) YAML() ([]byte, error) { return yaml.Marshal(c) }

// Value is a parameter on a GPU and its standard error; what was not learned is its prior.
func (c *Corrections) Value(k int, gpu string) (value, se float64) {
	p := &Parameters[k]
	if k == ScaleGPU {
		if v, ok := c.GPUs[gpu]; ok {
			return v[0], v[1]
		}
	} else if v, ok := c.Step[p.Name]; ok {
		return v[0], v[1]
	}
	return p.Mean, p.SD
}

// On are the values of a step on one GPU.
func (c *Corrections) On(gpu string) (out [NumStep]float64) {
	for k := range out {
		out[k], _ = c.Value(k, gpu)
	}
	return out
}

// OverheadUs is what a request takes before it reaches the engine.
func (c *Corrections) OverheadUs() float64 {
	us, _ := c.Value(NumStep, "")
	return us
}

// unjudgedInterval is the least half width of the 90 % interval where nothing was compared.
const unjudgedInterval = 0.3

// JudgedAs is how the step's own family did; nil with the reason where no server of it was measured.
func (c *Corrections) JudgedAs(s *Step) (*Judged, string) {
	i := slices.IndexFunc(c.Judged, func(j Judged) bool { return j.Family == s.Family })
	switch {
	case len(s.Unjudged) > 0:
		return nil, strings.Join(s.Unjudged, "; ")
	case i < 0:
		return nil, "no server of " + s.Family + " was measured"
	case !slices.Contains(c.Judged[i].TP, s.TP):
		return nil, fmt.Sprintf("%s: compared at tp %v, not at %d", s.Family, c.Judged[i].TP, s.TP)
	}
	return &c.Judged[i], ""
}

// Sentence says how far predictions of a step can be trusted: its own family's left-out error, or that it is unjudged.
func (c *Corrections) Sentence(s *Step) string {
	j, why := c.JudgedAs(s)
	if j == nil {
		return fmt.Sprintf("unjudged (%s): TPOT may be off by %.0f %% or more", why, 100*unjudgedInterval)
	}
	of := strings.Join(append([]string{j.Model}, j.Flags...), " with ")
	return fmt.Sprintf("judged on %d measured points of %s, left out: TPOT within %.0f %% (mean), nine in ten within %.0f %%, "+
		"TTFT within %.0f %% (median)", j.Points, of, 100*j.TPOTMape, 100*j.Interval90, 100*j.TTFTMedian)
}

// Bound is the plan of a deployment from the tables of its GPU. Codes: no_kernel_tables, kernel_rows_missing.
func Bound(d *deploy.Deployment, o Options) (*Step, error) {
	if g := o.GPU; g != nil && g.Hardware != d.Hardware.Name {
		return nil, trace.Errorf(NoTables, "--library: got tables of %s, want those of %s", g.Hardware, d.Hardware.Name)
	} else if g != nil {
		s, err := g.Bind(d, o)
		if err == nil {
			s.Unjudged = append(s.Unjudged, "tables of one's own")
		}
		return s, err
	}
	g, err := For(&d.Hardware)
	if err != nil {
		return nil, err
	}
	return g.Bind(d, o)
}

// Features are what a step's time is linear in at some corrections: us per unit of each (spec#library-step).
func (p *Pricer) Features(b *Batch, theta, x *[NumStep]float64) {
	p.Columns(b, x)
	Slower(theta, x)
}

// Columns are the features before it is known whether kernels or launches take longer.
func (p *Pricer) Columns(b *Batch, x *[NumStep]float64) {
	parts := p.Parts(b)
	*x = [NumStep]float64{ScaleGPU: parts.Total(), ScaleExpert: parts[Experts], ScaleReduce: parts[Collective], HostStep: 1,
		HostRank: float64(p.TP - 1), HostSequence: b.Sequences, SmallKernel: p.small}
	if p.sync {
		x[SyncStep], x[SyncSequence] = 1, b.Sequences
	}
	if b.Prefills > 0 {
		x[ScalePrompt] = parts.Total()
	}
	if !p.Captured(b) {
		x[EagerLayer] = p.Layers
	}
}

// kernelTimes are the columns that the GPU takes.
var kernelTimes = []int{ScaleGPU, ScaleExpert, ScaleReduce, ScalePrompt, SmallKernel}

// Slower leaves of a step outside a CUDA graph what takes longer: its kernels, or the host that launches them one by one.
func Slower(theta, x *[NumStep]float64) {
	us := stat.Sum(kernelTimes, func(k int) float64 { return theta[k] * x[k] })
	if us >= theta[EagerLayer]*x[EagerLayer] {
		x[EagerLayer] = 0
		return
	}
	for _, k := range kernelTimes {
		x[k] = 0
	}
}

// Batch is one step as sums over its sequences, in tokens and requests.
type Batch struct {
	Tokens        float64 // scheduled
	Sequences     float64 // that sample
	Decodes       float64
	DecodeContext float64 // sum over decodes of the tokens cached before the step
	Prefills      float64 // chunks
	PrefillTokens float64
	PrefillPairs  float64 // sum over chunks of n c + n (n+1)/2
	// Run is what the rank computes beside others in lockstep, All what all of them do; 0: a captured size, all ranks alike.
	Run, All float64
	// Imbalance is the busiest rank's tokens for its experts over the mean, beside what the tables' routing has; 0: 1.
	Imbalance float64
}

// BatchOf adds up a batch.
func BatchOf(chunks []trace.Chunk) (b Batch) {
	for _, c := range chunks {
		n, cached := float64(c.New), float64(c.Computed)
		if n == 0 {
			continue
		}
		b.Tokens += n
		b.Sequences += 1
		if c.IsDecode() {
			b.Decodes += 1
			b.DecodeContext += cached
			continue
		}
		b.Prefills += 1
		b.PrefillTokens += n
		b.PrefillPairs += n*cached + n*(n+1)/2
	}
	return b
}

// state is what operators see of a batch.
type state struct {
	run              float64 // tokens, padded to the captured size
	all, routed      float64 // of all ranks in lockstep; as the busiest rank's experts see them
	captured         bool
	sequences        float64
	decodes, context float64 // context: the mean
	prefills         float64
	chunk, cached    float64 // of the mean prefill chunk
}

// Parts are the times of a step's kernels in us, by kind.
type Parts [numKinds]float64

// Total is the whole step.
func (p *Parts) Total() float64 { return p[Compute] + p[Experts] + p[Collective] }

// stateOf is the batch as operators see it.
func (s *Step) stateOf(b *Batch) state {
	in := state{sequences: b.Sequences, decodes: b.Decodes, prefills: b.Prefills}
	in.run, in.captured = s.graphs.Tokens(max(b.Tokens, b.Run))
	in.all = in.run * float64(s.Ranks)
	if b.Run > 0 { // ranks run a graph together, all padded alike, or none does
		in.run, in.all, in.captured = b.Run, b.All, in.captured && b.All == in.all
	}
	in.routed = in.all * max(1, b.Imbalance)
	if b.Decodes > 0 {
		in.context = b.DecodeContext / b.Decodes
	}
	if b.Prefills > 0 {
		in.chunk = b.PrefillTokens / b.Prefills
		in.cached = math.Max(0, (b.PrefillPairs/b.Prefills-in.chunk*(in.chunk+1)/2)/in.chunk)
	}
	return in
}

// runs reports whether an operator runs in a batch at all.
func (op *Operator) runs(in *state) bool {
	return op.depends != onDecodes && op.depends != onPrefills || op.depends == onDecodes && in.decodes > 0 ||
		op.depends == onPrefills && in.prefills > 0
}

// Us are the times of all operators in a batch, in the plan's order.
func (s *Step) Us(b *Batch) []float64 {
	in := s.stateOf(b)
	out := make([]float64, len(s.Operators))
	for i := range s.Operators {
		if op := &s.Operators[i]; op.runs(&in) {
			out[i] = op.Count * op.us(&in)
		}
	}
	return out
}

// Captured reports whether a CUDA graph runs the step.
func (s *Step) Captured(b *Batch) bool { return s.stateOf(b).captured }

// Pricer prices many steps: what depends on tokens or on sequences alone is added up once per number. It is not for several
// goroutines at once.
type Pricer struct {
	*Step
	byTokens    map[tokens]Parts
	bySequences map[float64]Parts
	others      []int // operators that depend on contexts
}

// tokens are what operators that depend on nothing else see.
type tokens struct {
	run, all float64
	captured bool
}

// NewPricer prices a step.
func (s *Step) NewPricer() *Pricer {
	p := &Pricer{Step: s, byTokens: map[tokens]Parts{}, bySequences: map[float64]Parts{}}
	for i := range s.Operators {
		if d := s.Operators[i].depends; d == onDecodes || d == onPrefills {
			p.others = append(p.others, i)
		}
	}
	return p
}

// Parts prices a batch.
func (p *Pricer) Parts(b *Batch) Parts {
	in := p.stateOf(b)
	key := tokens{in.run, in.all, in.captured}
	out, ok := p.byTokens[key]
	if !ok {
		out = p.sum(onTokens, &in)
		p.byTokens[key] = out
	}
	more, ok := p.bySequences[in.sequences]
	if !ok {
		more = p.sum(onSequences, &in)
		p.bySequences[in.sequences] = more
	}
	for k, us := range more {
		out[k] += us
	}
	for _, i := range p.others {
		if op := &p.Operators[i]; op.runs(&in) {
			out[op.Kind] += op.Count * op.us(&in)
		}
	}
	return out
}

// sum is what depends on one number of the batch.
func (p *Pricer) sum(d driver, in *state) Parts {
	var out Parts
	for i := range p.Operators {
		if op := &p.Operators[i]; op.depends == d {
			out[op.Kind] += op.Count * op.us(in)
		}
	}
	return out
}

// Versions are the releases of vLLM whose kernels the step is priced by, sorted.
func (s *Step) Versions() []string {
	own := stat.Filter(s.Operators, func(op Operator) bool { return op.Version != "" && !strings.HasPrefix(op.Table, "nccl") })
	return distinct(stat.Map(own, func(op Operator) string { return op.Version }))
}

// Versions are the releases of vLLM whose kernels the tables hold, sorted.
func (g *GPU) Versions() []string {
	own := stat.Filter(g.Tables, func(t *Table) bool { return strings.Contains(t.Path, "/vllm/") })
	return distinct(stat.Map(own, func(t *Table) string { return t.Version }))
}

// Inputs are the tables it is priced by, with the digests of their sources.
func (s *Step) Inputs() []coeff.Input {
	return slices.DeleteFunc(s.GPU.Inputs(), func(in coeff.Input) bool {
		return !slices.ContainsFunc(s.Operators, func(op Operator) bool {
			t, err := s.GPU.Table(op.Table)
			return err == nil && t != nil && t.Path == in.Name
		})
	})
}

// Inputs are the sources of a GPU's tables, each once.
func (g *GPU) Inputs() []coeff.Input {
	var out []coeff.Input
	for _, t := range g.Tables {
		if !slices.ContainsFunc(out, func(in coeff.Input) bool { return in.Name == t.Path }) {
			out = append(out, coeff.Input{Name: t.Path, Bytes: t.SourceBytes, SHA256: t.SHA256})
		}
	}
	return out
}

// backendOf is what kernels of experts an engine is told to use; "": its own choice.
func backendOf(d *deploy.Deployment) string {
	name, _ := d.Engine.Extra["moe_backend"].(string)
	return strings.TrimPrefix(name, "auto")
}

// family names what decides how well a step is known: the kind of ffn and its dtype, the kinds of attention, whole experts per
// GPU, and the GPU.
func family(d *deploy.Deployment, m *model.Decoder) (name, dtype string) {
	kind := "dense"
	var attention []string
	for i := range m.Layers {
		if x := m.Layers[i].Mixer; x != nil {
			name := string(x.Kind)
			if x.Index != nil {
				name += " sparse"
			}
			if x.Window > 0 {
				name += " window"
			}
			attention = append(attention, name)
		}
		f := m.Layers[i].FFN
		if f == nil {
			continue
		}
		for j := range f.Linears {
			l := &f.Linears[j]
			if routed := l.Placement == model.ByExpert; routed || kind == "dense" && l.Placement == model.ShardedIn {
				dtype = dtypesOf(&l.Quant)[0]
				if routed {
					kind = "experts"
				}
			}
		}
	}
	out := kind + " " + dtype + ", " + strings.Join(distinct(attention), " and ")
	if d.Engine.ExpertParallel {
		out += ", EP"
	}
	if backend := backendOf(d); backend != "" && kind == "experts" { // other kernels
		out += ", " + backend
	}
	return out + ", " + d.Hardware.Name, dtype
}
