package extract

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/pairing"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/blis-train/blis-train/vllm"
)

// inputSet is the files of one run folder.
type inputSet struct {
	config, traces, kv, clients, logs, passes []source.Input  // logs and passes: the two forms of iterations
	metrics                                   []source.Input  // answers of /metrics
	unread                                    []unread        // files with the name of a recording that nothing reads
	contradicted                              []trace.Finding // what logs say of the engine that run.yaml says otherwise
}

// open resolves the file names of a run.
func (d *RunDir) open() (*inputSet, error) {
	s := &inputSet{}
	var err error
	if s.traces, err = d.traces(); err != nil {
		return nil, err
	}
	if s.kv, err = d.inputs("kv_events", d.Deployment.Files.KVEvents); err != nil {
		return nil, err
	}
	if s.clients, err = d.inputs("client_requests", d.Deployment.Files.ClientRequests); err != nil {
		return nil, err
	}
	if err = d.found(s); err != nil {
		return nil, err
	}
	for _, p := range d.Deployment.Read {
		in := source.Input{Path: p, Name: d.relative(p)}
		if err := hashFile(&in); err != nil {
			return nil, err
		}
		s.config = append(s.config, in)
	}
	return s, nil
}

// hashFile fills size and sum by reading the file; a pipe is none.
func hashFile(in *source.Input) (err error) {
	in.Size, in.Sum, err = files.Hash(in.Path)
	return err
}

// inputOf is a file as documents name it.
func inputOf(path, name string) (in result.Input, err error) {
	in.Name = name
	in.Bytes, in.SHA256, err = files.Hash(path)
	return in, err
}

// kinds lists the files with what they are, in a fixed order.
func (s *inputSet) kinds() []struct {
	kind string
	list []source.Input
} {
	return []struct {
		kind string
		list []source.Input
	}{{"configuration", s.config}, {kindTraces, s.traces}, {kindKV, s.kv}, {"client_requests", s.clients},
		{"iterations", s.logs}, {"passes", s.passes}, {"metrics", s.metrics}}
}

func (s *inputSet) files() []result.ExtractFile {
	out := []result.ExtractFile{}
	for _, k := range s.kinds() {
		out = append(out, stat.Map(k.list, func(f source.Input) result.ExtractFile {
			return result.ExtractFile{Kind: k.kind, Input: result.Input{Name: f.Name, Bytes: f.Size, SHA256: f.Sum}}
		})...)
	}
	return out
}

// hash reads every file to fill its sum.
func (s *inputSet) hash() error {
	for _, k := range s.kinds() {
		for i := range k.list {
			if err := hashFile(&k.list[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// empty finds the inputs that gave no record. One that was named is an error
// when none of its files gave any; else each of them is a warning.
func (s *inputSet) empty(examples []result.Example) (warnings []trace.Finding, err error) {
	for _, k := range s.kinds()[1:] {
		gave := map[string]int64{}
		for _, f := range k.list {
			gave[f.Asked] += f.Gave
		}
		for _, f := range k.list {
			why := ""
			if i := slices.IndexFunc(examples, func(e result.Example) bool {
				return e.Place == f.Name || strings.HasPrefix(e.Place, f.Name+":")
			}); i >= 0 {
				why = "; " + examples[i].Place + ": " + examples[i].What
			}
			switch {
			case f.Gave > 0:
			case f.Asked != "" && gave[f.Asked] == 0:
				return nil, trace.Errorf(codeNoInput, "%s (%s) gives nothing: no record of %s in it%s", f.Name, f.Asked, k.kind, why).
					WithHint("correct the name, or leave it out of `files` in run.yaml")
			default:
				warnings = append(warnings, trace.Findingf(codeNoInput, "%s gives nothing: no record of %s in it%s", f.Name, k.kind, why))
			}
		}
	}
	return append(warnings, s.notRead()...), nil
}

// mostNamed is how many files one warning names.
const mostNamed = 8

// notRead names the files that nothing reads, those with one reason in one warning.
func (s *inputSet) notRead() (warnings []trace.Finding) {
	names := map[string][]string{}
	var reasons []string
	for _, f := range s.unread {
		if names[f.why] == nil {
			reasons = append(reasons, f.why)
		}
		names[f.why] = append(names[f.why], f.Name)
	}
	for _, why := range reasons {
		list, more := names[why], ""
		if n := len(list); n > mostNamed {
			list = list[:mostNamed]
			more = fmt.Sprintf(" and %d more", n-mostNamed)
		}
		warnings = append(warnings, trace.Findingf(codeNoInput, "%s%s: not read; %s", strings.Join(list, ", "), more, why))
	}
	return warnings
}

// digest is one hash over names and hashes.
func (s *inputSet) digest() string {
	h := sha256.New()
	for _, f := range s.files() {
		fmt.Fprintf(h, "%s %s %s\n", f.Kind, f.Name, f.SHA256)
	}
	for _, f := range s.unread {
		fmt.Fprintf(h, "unread %s %s\n", f.Name, f.why)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// stamps are the names, sizes and times of the files; standard input has none,
// so that it is always read.
func (s *inputSet) stamps() []fileStamp {
	var out []fileStamp
	add := func(f *source.Input) {
		st, err := os.Stat(f.Path)
		if err != nil {
			out = append(out, fileStamp{Name: f.Name, Bytes: -1, ModTime: -1})
			return
		}
		out = append(out, fileStamp{f.Name, st.Size(), st.ModTime().UnixNano(), changeTime(st)})
	}
	for _, k := range s.kinds() {
		for i := range k.list {
			add(&k.list[i])
		}
	}
	for i := range s.unread {
		add(&s.unread[i].Input)
	}
	return out
}

// bytes is the size of all files as they stand.
func (s *inputSet) bytes() int64 {
	return stat.Sum(s.sizes(), func(f Sized) int64 { return max(0, f.Bytes) })
}

// fileStamp is what a file looked like.
type fileStamp struct {
	Name       string `json:"name"`
	Bytes      int64  `json:"bytes"`
	ModTime    int64  `json:"mod_time_ns"`
	ChangeTime int64  `json:"change_time_ns"` // of its inode, which no program can set; 0 where there is none
}

// changeTime is the time of the last change of a file's inode.
func changeTime(st fs.FileInfo) int64 {
	v := reflect.Indirect(reflect.ValueOf(st.Sys()))
	if v.Kind() != reflect.Struct {
		return 0
	}
	for _, name := range []string{"Ctim", "Ctimespec"} { // Linux, BSD
		if t := v.FieldByName(name); t.IsValid() {
			return t.FieldByName("Sec").Int()*1e9 + t.FieldByName("Nsec").Int()
		}
	}
	return 0
}

// young is how coarse the clock of a file system may be: a file changed again
// within it may keep its stamp.
const young = 2 * time.Second

// oldEnough gives the stamps, or nil when one is too young to tell later changes.
func oldEnough(stamps []fileStamp) []fileStamp {
	limit := time.Now().Add(-young).UnixNano()
	for _, s := range stamps {
		if s.ModTime > limit || s.ChangeTime > limit {
			return nil
		}
	}
	return stamps
}

// Options says what to extract and how.
type Options struct {
	Out          string       // output folder
	Workers      int          // parsing goroutines; 0 = every core
	Format       table.Format // parquet | arrow
	MaxBadFrac   float64      // share of unreadable input that fails the run, 0..1
	MaxLine      int64        // bytes of one line or message
	MaxExpansion int64        // decompressed bytes per compressed byte, of what grows beyond files.FreeExpansion
	SplitEngines bool         // go on when engine runs overlap in time
	WhyRejected  bool         // write OUT/rejected.jsonl
	Force        bool         // parse again even when nothing changed
	Memory       int          // bytes all rows that wait to be sorted may hold before they spill
	Set          []string     // what overrides run.yaml, "key.path=value": recorded, not applied here (see Discover)
	ToolVersion  string
	Config       *result.Config // the pipeline.yaml that set options, for extract.json; nil for none
	Stdin        io.Reader
	Progress     trace.Progress
	free         int64 // in place of files.FreeExpansion; 0: that

	// Batches finds out what ran in each step of a run from its tables; nil, or
	// a run above maxBatchRows, leaves those figures of extract.json null.
	Batches func(runDir string, dep *deploy.Deployment) (result.StepQuality, error)
}

// DefaultOptions are the defaults of every option.
func DefaultOptions() Options {
	return Options{Format: table.Parquet, MaxBadFrac: 0.01, MaxLine: 128 << 20, MaxExpansion: files.MaxExpansion, Memory: 16 << 20}
}

// Check reports the first option out of bounds.
func (o *Options) Check() error {
	switch {
	case o.Out == "":
		return errors.New("extract: Out: got an empty name, want a folder")
	case o.Workers < 0:
		return fmt.Errorf("extract: --workers: got %d, want 0 or more", o.Workers)
	case o.Format != table.Parquet && o.Format != table.Arrow:
		return fmt.Errorf("extract: --format: got %q, want parquet or arrow", o.Format)
	case !(o.MaxBadFrac >= 0 && o.MaxBadFrac <= 1):
		return fmt.Errorf("extract: --max-bad-frac: got %v, want 0..1", o.MaxBadFrac)
	case o.MaxLine < 1<<10:
		return fmt.Errorf("extract: --max-line: got %d, want at least 1024 bytes", o.MaxLine)
	case o.MaxExpansion < 1:
		return fmt.Errorf("extract: --max-expansion: got %d, want 1 or more", o.MaxExpansion)
	}
	return nil
}

// Table is the options of an extraction as flags and as recorded.
func (o *Options) Table() option.Table {
	return option.Table{
		option.String("format", &o.Format, "table `FORMAT`: parquet or arrow").Recorded(),
		option.Real("max-bad-frac", &o.MaxBadFrac, "fail above this `SHARE` of unreadable input; 0 is any loss"),
		option.Whole("max-line", &o.MaxLine, "drop lines and messages of more `BYTES`").Recorded(),
		option.Whole("max-expansion", &o.MaxExpansion, "stop a compressed file that grows beyond 1 GB and `N` times its size").Recorded(),
		option.Switch("split-engines", &o.SplitEngines, "accept several engines whose stamps overlap: <id>.1, <id>.2").Recorded(),
		option.Switch("why-rejected", &o.WhyRejected, "write every dropped record with its reason to OUT/rejected.jsonl"),
		option.List("set", &o.Set, "supply or override a field of run.yaml, `KEY.PATH=VALUE` (repeatable)").Recorded(),
		option.Whole("workers", &o.Workers, "`N` workers; 0 uses every core"),
		option.Switch("force", &o.Force, "redo work and accept an output folder that holds foreign files"),
	}
}

func (o *Options) streaming() source.Options {
	limits := source.Limits{MaxLine: o.MaxLine, MaxExpansion: o.MaxExpansion, Free: cmp.Or(o.free, files.FreeExpansion)}
	return source.Options{Workers: o.workers(), Limits: limits, Stdin: o.Stdin}
}

func (o *Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// spanKey identifies a span (OTLP: trace id and span id together).
type spanKey struct {
	Trace [16]byte
	Span  [8]byte
}

// collector gathers the spans of one run folder in input order.
type collector struct {
	names    []source.Input
	acc      *source.Account
	mem      *source.Memory
	stage    string // folder of the tables while they are written
	format   table.Format
	seen     spanSet
	cores    []core           // in the order of their first span
	byID     map[digest]int32 // cores by id; the last of equal ones
	ids      texts            // of cores
	apis     []api
	engines  []*engine
	order    int64
	noIDs    int64 // spans without a span id
	pack     packing
	journeys *source.Spool // journey events by core
	offsets  source.Sample // wall - monotonic, of journey events
	clocks   map[clockKey]*source.Stamps
	wall     source.Stamps // of spans and their events
	stepIDs  source.Stamps // as journeys say them
	observed []trace.ObservedRequest

	stated vllm.Engine // as run.yaml says
}

// dir is where the tables of the n-th engine found are written.
func (c *collector) dir(n int) string { return filepath.Join(c.stage, strconv.Itoa(n)) }

// Runs is how many engine runs there are.
func (c *collector) Runs() int { return max(1, len(c.engines)) }

// Clock is the offset wall - monotonic of the requests' events, ns.
func (c *collector) Clock() (median, spread int64, ok bool) { return c.offsets.Spread() }

// Close gives up what is still being written.
func (c *collector) Close() {
	for _, e := range c.engines {
		e.tables.abort()
	}
	c.mem.Close()
}

func (c *collector) at(s *otlp.Span) source.Place {
	return source.Place{File: c.names[s.File].Name, Line: s.Line}
}

// core is one engine request as collected: what every one of them holds in memory. The rest
// waits as a coreRow.
type core struct {
	id     text
	row    int64 // where its coreRow stands
	snap   int64 // where the sighting of its snapshots stands; -1 for none
	snapBy int32 // the engine of the sighting
	engine int32
	api    int32 // -1 for none
	link   linkWay
}

// api is one llm_request span of the API process, or a stock span; the rest waits as an apiRow.
type api struct {
	row      int64
	engine   int32
	isLinked bool
	isStock  bool
}

// linkWay is how a core span found its API span.
type linkWay uint8

const (
	linkNone linkWay = iota
	linkParent
	linkPrefix
)

func (w linkWay) String() string { return [...]string{"none", "parent", "prefix"}[w] }

// engine is one life of one engine: an uninterrupted sequence of step ids.
type engine struct {
	resource  uint64
	stretches []stretch // its spans, by step id
	lastFirst int64     // first step of its last span
	lastOrder int64     // position of the step span that came last in the input
	order     int64     // position of the one that came first
	begin     int64     // where the run begins in the input
	minNs     int64
	maxNs     int64
	tables    *stepTables
	spans     int64
}

// cached finds the pass in which each client's prompt ended and how much of it the prefix
// cache held, from the passes of the log and the counters of /metrics (spec#counted-hits).
func (x *extraction) cached(how source.Options) error {
	answers, err := x.counters(how)
	if err != nil {
		return err
	}
	for i := range x.obs {
		if r := &x.obs[i]; r.CachedTokens.OK {
			r.CachedSource = trace.Some(trace.CachedUsage)
		}
	}
	e := &x.dep.Engine
	if len(x.obs) == 0 || !e.PrefixCaching && len(x.lives) == 0 {
		return nil
	}
	if why := uncountable(e); why != "" && len(x.lives) > 0 {
		x.clients = append(x.clients, trace.Findingf(codeIncomplete, "%s: what of prompts was cached cannot be told from the log; ask for usage "+
			"with --enable-prompt-tokens-details", why))
		return nil
	}
	noHits := len(answers) > 0 && !slices.ContainsFunc(answers, func(c enginelog.Counters) bool { return c.Hits > 0 })
	rules := pairing.Rules{Block: e.BlockSize, Budget: e.MaxNumBatchedTokens, Chunked: e.ChunkedPrefill, Caching: e.PrefixCaching && !noHits,
		Speculative: e.SpeculativeDecoding, Ahead: e.IsAsync()}
	if len(x.lives) > 0 && strings.HasPrefix(x.lives[0].Engine, trace.IterationSGLang) ||
		slices.ContainsFunc(answers, func(c enginelog.Counters) bool { return c.IsSGLang }) {
		rules.Block = 1
	}
	g, err := pairing.Pair(x.obs, rules, len(x.lives), x.inLogOrder)
	if err != nil || g == nil {
		return err
	}
	g.Fill()
	x.clients = append(x.clients, g.Check(answers)...)
	if e.SpeculativeDecoding && len(x.lives) > 0 {
		x.clients = append(x.clients, trace.Findingf(clients.CodeClientFile, "%s", g.Drafts(answers)))
	}
	if len(x.col.cores) == 0 { // else journeys tell
		x.clients = append(x.clients, g.Rate(x.iter.HitRates)...)
	}
	x.paired = g
	if len(x.lives) > 0 {
		x.clients = append(x.clients, g.Preempted(answers)...)
	}
	if lost := stat.Sum(g.Account(0), func(a result.CachedTokens) int { return a.Unpaired }); lost > 0 && len(x.lives) > 0 && e.PrefixCaching {
		x.clients = append(x.clients, trace.Findingf(codeIncomplete, "the passes of %d of %d prompts are not found by counting (passes lost, "+
			"other clients, failed requests, preemption): what the prefix cache gave them is not known", lost, len(x.obs)))
	}
	return nil
}

// account sums up what the prefix cache gave the requests that each engine keeps.
func (x *extraction) account() {
	if x.paired == nil || !x.dep.Engine.PrefixCaching {
		return
	}
	x.told = append(x.told, x.paired.Account(0))
	for i := range x.served {
		x.told = append(x.told[:i], x.paired.Account(int64(i)+1))
	}
}

// uncountable names what makes passes hold other tokens than the parts of prompts that were in no cache.
func uncountable(e *vllm.Engine) string {
	switch n, _ := e.Extra["max_num_partial_prefills"].(float64); {
	case e.LongPrefillThreshold > 0:
		return "long_prefill_token_threshold cuts prompts in passes that are not full"
	case n > 1:
		return "max_num_partial_prefills lets several prompts go on at once"
	case e.CPUOffloading || e.Extra["kv_transfer_config"] != nil:
		return "KV that is loaded from elsewhere (cpu_offloading, kv_transfer_config) looks like a hit in the prefix cache"
	}
	return ""
}

// counters reads the answers of /metrics in the run folder.
func (x *extraction) counters(how source.Options) (out []enginelog.Counters, err error) {
	for i := range x.set.metrics {
		in := &x.set.metrics[i]
		c, ok, err := enginelog.ReadCounters(in, how)
		if err != nil {
			return nil, err
		}
		x.acc.Read++
		in.Gave++
		if !ok {
			x.acc.Drop(codeIgnoredSignal, 1, source.Place{File: in.Name}, "metrics without the counts of the prefix cache's queries and hits")
			continue
		}
		x.acc.Keep(1)
		out = append(out, c)
	}
	return out, x.acc.Err
}

// serve gives the clients' requests to the engines that served them, where logs hold several
// and no step traces tell: phase by phase, where the counts leave one way for nearly all.
// The others, and spans that name no engine, are in no table: a replay would meet another
// engine's load.
func (x *extraction) serve() {
	if len(x.lives) < 2 || len(x.col.engines)+len(x.col.cores) > 0 {
		return
	}
	drop := func(n int64, what string) {
		if n > 0 {
			x.acc.Keep(-n)
			x.acc.Drop(codeSeveralEngines, n, source.Place{File: x.lives[0].Engine}, "%s", what)
			x.clients = append(x.clients, trace.Findingf(codeSeveralEngines, "%d %s: they are in no table, and no replay has them", n, what))
		}
	}
	drop(int64(len(x.col.apis)), "spans of requests do not name which of the engines served them")
	x.col.apis = nil
	unknown := map[string]int64{}
	all := map[string]int64{}
	for i := range x.obs {
		r := &x.obs[i]
		if all[r.Phase.V]++; !r.Engine.OK {
			unknown[r.Phase.V]++
		}
	}
	x.served = make([][]trace.ObservedRequest, len(x.lives))
	left := map[string]int64{}
	for i := range x.obs {
		r := &x.obs[i]
		if p := r.Phase.V; !r.Engine.OK || float64(unknown[p]) > trace.MostGuessed*float64(all[p]) {
			r.Engine = trace.Opt[int64]{}
			left[p]++
		} else {
			x.served[r.Engine.V-1] = append(x.served[r.Engine.V-1], *r)
		}
	}
	for _, phase := range slices.Sorted(maps.Keys(left)) {
		drop(left[phase], fmt.Sprintf("of %d requests of phase %q: the passes of the engines do not tell for %d which engine served them",
			all[phase], phase, unknown[phase]))
	}
	for _, rows := range x.served {
		slices.SortStableFunc(rows, func(a, b trace.ObservedRequest) int {
			return cmp.Or(cmp.Compare(sendTime(&a), sendTime(&b)), cmp.Compare(a.ID, b.ID))
		})
	}
	x.obs = x.served[0]
}

// lockstep makes one run of the logs of data-parallel ranks whose model has experts: a pass begins and ends on all of
// them, so it takes as long as on the rank with the most tokens, whose row stands for it (spec#wire-lives). Code:
// several_engines where ranks are missing, whose load nobody knows, or the release does not log passes without load.
func (x *extraction) lockstep() error {
	n, lives := int(x.dep.DP), x.lives
	if n < 2 || !x.dep.Model.IsMoE() || len(lives)+len(x.col.engines) == 0 {
		return nil
	}
	engines := len(slices.CompactFunc(slices.Clone(lives), func(a, b *enginelog.Life) bool { return a.Engine == b.Engine }))
	v, known := x.dep.Engine.Release()
	switch {
	case len(lives) == 0:
		return trace.Errorf(codeSeveralEngines, "got step traces of %d data-parallel ranks in lockstep, whose steps no number joins, want "+
			"the logs of all ranks", n).WithHint("start vLLM with --enable-logging-iteration-details and --api-server-count 1")
	case engines != n || len(lives)%n != 0:
		return trace.Errorf(codeSeveralEngines, "got logs of %d ranks and %d starts, want all %d of data_parallel_size: a pass lasts as long as "+
			"on the slowest rank", engines, len(lives), n).WithHint("start vLLM with --api-server-count 1, which logs every rank, and keep all logs")
	case known && v[0] == 0 && v[1] < 23:
		return trace.Errorf(codeSeveralEngines, "got vLLM %s, want 0.23 or newer: before, ranks do not log the passes in which they have no load",
			x.dep.Engine.VLLMVersion)
	}
	x.lives = nil
	for k := range len(lives) / n {
		var ranks []*enginelog.Life
		for i := k; i < len(lives); i += len(lives) / n {
			ranks = append(ranks, lives[i])
		}
		all, err := x.slowest(ranks, filepath.Join(x.stage, "ranks."+strconv.Itoa(k)))
		if err != nil {
			return err
		}
		x.lives = append(x.lives, all)
	}
	return nil
}

// slowest writes the passes that all ranks have.
func (x *extraction) slowest(ranks []*enginelog.Life, dir string) (*enginelog.Life, error) {
	out, err := table.Create[trace.Iteration](dir, table.Iterations, x.o.Format)
	if err != nil {
		return nil, err
	}
	next := make([]func() (trace.Iteration, error, bool), len(ranks))
	heads := make([]trace.Iteration, len(ranks))
	for i, l := range ranks {
		pull, stop := iter.Pull2(fileRows[trace.Iteration](l.Dir, table.Iterations, x.o.Format))
		defer stop()
		next[i], heads[i].Index = pull, -1
	}
	all := &enginelog.Life{Engine: ranks[0].Engine, Dir: dir}
	last := int64(-1)
	for at := int64(0); ; {
		most := &heads[0]
		for i := range heads {
			h, ok := &heads[i], true
			for ok && h.Index < at {
				*h, err, ok = next[i]()
			}
			if err != nil || !ok {
				return all, errors.Join(err, out.Close())
			}
			if at = max(at, h.Index); h.ContextTokens+h.GenerationTokens > most.ContextTokens+most.GenerationTokens {
				most = h
			}
		}
		if slices.ContainsFunc(heads, func(h trace.Iteration) bool { return h.Index != at }) {
			continue
		}
		if gap := at - last - 1; all.Rows > 0 && gap > 0 {
			if all.Missing += gap; all.Missing == gap {
				all.FirstGap = source.Place{File: most.File, Line: most.Line}
			}
		}
		if err := out.Append(*most); err != nil {
			return nil, err
		}
		all.Rows += 1
		last = at
		at += 1
	}
}

// inLogOrder calls add with the iterations of all lives as they stand in the logs.
func (x *extraction) inLogOrder(add func(engine int, it *trace.Iteration)) error {
	place := map[string]int{}
	for i, in := range slices.Concat(x.set.logs, x.set.passes) {
		place[in.Name] = i
	}
	next := make([]func() (trace.Iteration, error, bool), len(x.lives))
	heads := make([]*trace.Iteration, len(x.lives))
	for i, l := range x.lives {
		pull, stop := iter.Pull2(fileRows[trace.Iteration](l.Dir, table.Iterations, x.o.Format))
		defer stop()
		next[i], heads[i] = pull, &trace.Iteration{Line: -1}
	}
	for {
		first := -1
		for i, h := range heads {
			if h != nil && h.Line < 0 { // taken
				it, err, ok := next[i]()
				if err != nil {
					return err
				}
				if h = &it; !ok {
					h = nil
				}
				heads[i] = h
			}
			if h != nil && (first < 0 || cmp.Or(cmp.Compare(place[h.File], place[heads[first].File]), cmp.Compare(h.Line, heads[first].Line)) < 0) {
				first = i
			}
		}
		if first < 0 {
			return nil
		}
		add(first, heads[first])
		heads[first] = &trace.Iteration{Line: -1}
	}
}
