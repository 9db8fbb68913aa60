package extract

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Options says what to extract and how.
type Options struct {
	Out          string       // output folder
	Workers      int          // parsing goroutines; 0 = every core
	Parser       string       // fast | pdata
	Format       table.Format // parquet | arrow
	MaxBadFrac   float64      // share of unreadable input that fails the run, 0..1
	MaxLine      int64        // bytes of one line or message
	MaxExpansion int64        // decompressed bytes per compressed byte
	SplitEngines bool         // go on when engine runs overlap in time
	WhyRejected  bool         // write OUT/rejected.jsonl
	Force        bool         // parse again even when nothing changed
	Memory       int          // bytes all rows that wait to be sorted may hold before they spill
	Set          []string     // what overrides run.yaml, "key.path=value": recorded, not applied here (see Discover)
	ToolVersion  string
	Config       *result.Config // the pipeline.yaml that set options, for extract.json; nil for none
	Stdin        io.Reader
	Progress     trace.Progress

	// Batches finds out what ran in each step of a run from its tables; nil, or
	// a run above maxBatchRows, leaves those figures of extract.json null.
	Batches func(runDir string, dep *deploy.Deployment) (result.StepQuality, error)
}

// maxBatchRows bounds the memory of Batches: about 150 bytes a row.
const maxBatchRows = 1 << 19

// DefaultOptions are the defaults of every option.
func DefaultOptions() Options {
	return Options{Parser: "fast", Format: table.Parquet, MaxBadFrac: 0.01, MaxLine: 128 << 20, MaxExpansion: 12000, Memory: 24 << 20}
}

// Check reports the first option out of bounds.
func (o *Options) Check() error {
	switch {
	case o.Out == "":
		return errors.New("extract: Out: got an empty name, want a folder")
	case o.Workers < 0:
		return fmt.Errorf("extract: --workers: got %d, want 0 or more", o.Workers)
	case o.Parser != "fast" && o.Parser != "pdata":
		return fmt.Errorf("extract: --parser: got %q, want fast or pdata", o.Parser)
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

// command is the call as recorded in extract.json: the stage and the options
// that can change the result, sorted.
func (o *Options) command() string {
	c := fmt.Sprintf("extract --format %s --max-expansion %d --max-line %d --parser %s", o.Format, o.MaxExpansion, o.MaxLine, o.Parser)
	if o.SplitEngines {
		c += " --split-engines"
	}
	for _, s := range slices.Sorted(slices.Values(o.Set)) {
		c += " --set " + s
	}
	return c
}

func (o *Options) parser() parser {
	if o.Parser == "pdata" {
		return pdataParser{}
	}
	return fastParser{}
}

func (o *Options) limits() Limits { return Limits{MaxLine: o.MaxLine, MaxExpansion: o.MaxExpansion} }

func (o *Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// softLimit is how much memory the Go runtime aims to stay below during an
// extraction, bytes: what it holds does not grow with the input but for a few
// hundred bytes a request.
const softLimit = 240 << 20

// BoundMemory makes the garbage collector work harder only where memory nears
// softLimit; a smaller limit of the environment stays. The result undoes it.
func BoundMemory() (undo func()) {
	old := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(old, softLimit))
	return func() { debug.SetMemoryLimit(old) }
}

// Names in the output folder.
const (
	tablesDir    = "tables"
	rejectedName = "rejected.jsonl"
	documentName = "extract.json"
	stagePrefix  = ".stage-"
)

// Run extracts the runs into o.Out and returns the document that stands in
// extract.json. When the unreadable share of a run is above MaxBadFrac the
// files are written all the same and the error says so.
func Run(ctx context.Context, runs []RunDir, o Options) (*result.Extract, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := cleanStages(o.Out); err != nil {
		return nil, err
	}
	o.Stdin = untilDone(ctx, o.Stdin)
	rejects, err := openRejects(&o)
	if err != nil {
		return nil, err
	}
	defer rejects.abort()
	old := loadCache(o.Out, &o)
	fresh := newCache(&o)
	doc := &result.Extract{Header: result.NewHeader(o.ToolVersion, o.command()), Runs: []result.ExtractRun{}}
	doc.Config = o.Config
	entries, err := extractAll(ctx, runs, &o, old, rejects)
	if err != nil {
		return nil, err
	}
	var tooBad []error
	for _, entry := range entries {
		fresh.Runs = append(fresh.Runs, *entry)
		doc.Runs = append(doc.Runs, entry.Results...)
		doc.Inputs = append(doc.Inputs, entry.inputs()...)
		doc.Totals.BytesRead += entry.Bytes
		doc.Totals.LinesRead += entry.Lines
		if frac := entry.Results[0].Records.BadFrac; frac > o.MaxBadFrac {
			tooBad = append(tooBad, badError(&entry.Results[0], frac, o.MaxBadFrac))
		}
	}
	doc.SumRuns()
	if err := finish(o.Out, doc, fresh, rejects); err != nil {
		return nil, err
	}
	return doc, errors.Join(tooBad...)
}

// badError names the first unreadable place of a run.
func badError(r *result.ExtractRun, frac, limit float64) error {
	where := ""
	for _, e := range r.Examples {
		if byError[e.Reason] {
			where = "; first: " + e.Place + ": " + e.What
			break
		}
	}
	return trace.Errorf(CodeTooManyBad, "run %s: %.2f %% of the input is unreadable, want at most %.2f %%%s", r.ID, 100*frac, 100*limit, where).
		WithHint(fmt.Sprintf("--max-bad-frac %.2g accepts the loss", roundUp(frac)))
}

func roundUp(f float64) float64 { return float64(int(f*100)+1) / 100 }

// extractAll extracts the runs, or takes what the cache has of them. With
// several workers the tables of one run are written while the next is read, so
// that no core waits at the end of a run; with --why-rejected not, because the
// records rejected in both passes stand in one file in order.
func extractAll(ctx context.Context, runs []RunDir, o *Options, old *cache, rejects *rejects) ([]*cacheEntry, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	entries := make([]*cacheEntry, len(runs))
	written := make(chan error, 1) // the result of the run being written
	written <- nil
	for i := range runs {
		if entries[i] = old.lookup(&runs[i], o); entries[i] != nil {
			continue
		}
		x := &extraction{run: &runs[i], o: o, rejects: rejects}
		err := x.read(ctx)
		if earlier := <-written; earlier != nil {
			x.close()
			return nil, earlier
		}
		if err != nil {
			x.close()
			return nil, x.failed(err)
		}
		finish := func() {
			var err error
			if entries[i], err = x.finish(ctx); err != nil {
				cancel()
				err = x.failed(err)
			}
			x.close()
			written <- err
		}
		if o.workers() > 1 && rejects == nil {
			go finish()
		} else {
			finish()
		}
	}
	return entries, <-written
}

// extraction is the work on one run folder: read, then finish, then close.
type extraction struct {
	run     *RunDir
	o       *Options
	rejects *rejects
	acc     *account
	stage   string
	set     *inputSet
	stamps  []fileStamp // of the inputs before they were read
	col     *collector
	kv      *kvCollector
	obs     []trace.ObservedRequest
}

func (x *extraction) failed(err error) error { return fmt.Errorf("run %s: %w", x.run.ID, err) }

// read reads the inputs of a run folder.
func (x *extraction) read(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	x.acc = newAccount(nil)
	if x.rejects != nil {
		x.acc.reject = func(r Rejected) error { r.Run = x.run.ID; return x.rejects.write(r) }
	}
	x.stage = filepath.Join(x.o.Out, tablesDir, stagePrefix+x.run.ID)
	if err := os.MkdirAll(x.stage, 0o755); err != nil {
		return err
	}
	if x.set, err = x.open(); err != nil {
		return err
	}
	x.stamps = x.set.stamps()
	return x.inputs(ctx)
}

// close gives up what is still being written; after finish it only tidies up.
func (x *extraction) close() {
	if x.col != nil {
		x.col.close()
	}
	if x.stage != "" {
		os.RemoveAll(x.stage)
	}
}

// finish joins what was read and writes the tables of the engine runs.
func (x *extraction) finish(ctx context.Context) (*cacheEntry, error) {
	col, set := x.col, x.set
	if len(col.cores)+len(col.apis)+len(col.engines)+len(x.obs) == 0 {
		return nil, x.noSpans(set)
	}
	if err := col.finishSteps(); err != nil {
		return nil, err
	}
	if err := col.partition(x.o.SplitEngines); err != nil {
		return nil, err
	}
	col.join()
	col.placeAPIs()
	col.joinObserved(x.obs)
	results, err := x.write(ctx)
	if err != nil {
		return nil, err
	}
	entry := &cacheEntry{ID: x.run.ID, Folder: x.run.Folder, Stamps: x.stamps, Bytes: set.bytes(), Lines: x.acc.lines, Results: results}
	entry.Digest = set.digest()
	for i := range entry.Results {
		entry.Results[i].Files = set.files()
	}
	return entry, nil
}

// noSpans is the error of a run whose inputs held nothing of use.
func (x *extraction) noSpans(set *inputSet) error {
	var names []string
	for _, in := range slices.Concat(set.traces, set.clients) {
		names = append(names, in.name)
	}
	why, hint := "", "is tracing on? --otlp-traces-endpoint, --enable-journey-tracing, --step-tracing-enabled"
	for _, e := range x.acc.exampleList() {
		if byError[e.Reason] {
			why, hint = "; "+e.Place+": "+e.What, "point at the output of the collector's file exporter, or correct `files` in run.yaml"
			break
		}
		if e.Reason == CodeForeignScope && why == "" {
			why = "; " + e.Place + ": " + e.What
		}
	}
	return trace.Errorf(CodeNoSpans, "got neither a vLLM span nor a client request in %s%s", strings.Join(names, ", "), why).WithHint(hint)
}

// inputs streams every input into the collectors.
func (x *extraction) inputs(ctx context.Context) error {
	o, set := x.o, x.set
	mem := &memory{dir: x.stage, limit: o.Memory}
	x.col = newCollector(set.traces, x.acc, mem, o.Format)
	done, total := int64(0), set.bytes()
	report := func(sink func(*parsed) error) func(*parsed) error {
		last := int64(0)
		return func(p *parsed) error {
			if p.batch.read < last {
				last = 0
			}
			done += p.batch.read - last
			last = p.batch.read
			o.Progress.Report("extract "+x.run.ID, min(done, total), total, "B")
			return sink(p)
		}
	}
	if err := stream(ctx, set.traces, o.parser(), o.workers(), o.limits(), o.Stdin, report(x.col.add)); err != nil {
		return err
	}
	if len(set.kv) > 0 {
		x.kv = newKVCollector(set.kv, x.acc, mem)
		if err := stream(ctx, set.kv, kvParser{}, o.workers(), o.limits(), o.Stdin, report(x.kv.add)); err != nil {
			return err
		}
	}
	cl := &clients{names: set.clients, acc: x.acc}
	for i := range set.clients {
		if err := cl.file(&set.clients[i], o.limits(), o.Stdin); err != nil {
			return err
		}
	}
	x.obs = cl.rows
	return nil
}

// write writes the tables of each engine run and gives them their final names.
func (x *extraction) write(ctx context.Context) ([]result.ExtractRun, error) {
	col := x.col
	n := max(1, len(col.engines))
	writers := make([]*writer, n)
	for i := range n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		w := &writer{c: col, engine: int32(i), dir: col.tablesDir(i), format: x.o.Format, dep: x.run.Deployment}
		if err := os.MkdirAll(w.dir, 0o755); err != nil {
			return nil, err
		}
		if err := w.all(x.kv, col.observedOf(x.obs, int32(i))); err != nil {
			return nil, err
		}
		writers[i] = w
	}
	if x.acc.err != nil {
		return nil, x.acc.err
	}
	records := x.acc.records()
	if !records.Balanced() {
		return nil, fmt.Errorf("extract: account does not balance: read %d, kept %d, dropped %v", records.Read, records.Kept, records.Dropped)
	}
	var out []result.ExtractRun
	for i, w := range writers {
		id := x.run.ID
		if n > 1 {
			id += "." + strconv.Itoa(i+1)
		}
		if err := publish(w.dir, table.RunDir(x.o.Out, id)); err != nil {
			return nil, err
		}
		r := x.result(id, i, n, w, records, col)
		x.batches(&r)
		out = append(out, r)
	}
	return out, nil
}

// batches fills the figures of the rebuilt batches; a run that cannot be
// rebuilt keeps nulls and a warning.
func (x *extraction) batches(r *result.ExtractRun) {
	if x.o.Batches == nil || r.Steps.Summaries == 0 {
		return
	}
	rows := int64(0)
	for _, n := range r.Tables {
		rows += n
	}
	if rows > maxBatchRows {
		r.Warnings = append(r.Warnings, trace.Findingf(CodeNotRebuilt, "%d rows, above the %d whose batches are counted here; fit.json has the figures", rows, maxBatchRows))
		return
	}
	q, err := x.o.Batches(table.RunDir(x.o.Out, r.ID), r.Deployment)
	if err != nil {
		r.Warnings = append(r.Warnings, trace.Findingf(CodeNotRebuilt, "%v", err))
		return
	}
	r.Steps.Reconstructed = trace.Some(int64(q.Reconstructed))
	r.Steps.Unknown = trace.Some(int64(q.Recorded - q.Known))
	r.Steps.Contradictions = trace.Some(int64(q.Contradictions))
}

// publish puts the finished folder of a run in the place of an older one.
func publish(from, to string) error {
	old := filepath.Join(filepath.Dir(to), stagePrefix+"old-"+filepath.Base(to))
	if err := os.RemoveAll(old); err != nil {
		return err
	}
	if err := os.Rename(to, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return os.RemoveAll(old)
}

// result is the entry of one engine run in extract.json. The account of a
// folder with several engine runs stands with the first of them.
func (x *extraction) result(id string, i, n int, w *writer, records result.Records, col *collector) result.ExtractRun {
	dep := *x.run.Deployment
	r := result.ExtractRun{
		ID: id, Folder: x.run.Folder, Tables: w.out.tables, Steps: w.out.steps, Requests: w.out.requests,
		Records: result.Records{Dropped: map[string]int64{}}, Scopes: []result.ScopeCount{}, Examples: []result.Example{}, Warnings: []trace.Finding{},
		Engine: result.ExtractEngine{InstanceID: strconv.Itoa(i + 1), VLLMVersion: dep.Engine.VLLMVersion, Model: dep.Model.ID, Hardware: dep.Hardware.Name, TP: dep.TP},
		Losses: result.Losses{OrphanSnapshots: w.out.orphans}, Deployment: &dep,
	}
	if median, spread, ok := col.offsets.stats(); ok {
		r.Clock = result.ExtractClock{OffsetNs: trace.Some(median), SpreadNs: trace.Some(spread)}
	}
	if i == 0 {
		r.Records, r.Scopes, r.Examples = records, x.acc.scopeCounts(), x.acc.exampleList()
		r.Losses.DroppedSpanEvents, r.Losses.TruncatedMessages, r.Losses.DuplicateSpans = x.acc.lostEvents, x.acc.truncated, x.acc.duplicates
	}
	r.Warnings = x.warnings(&r, i, n, w, col)
	return r
}

// warnings are the findings of one engine run.
func (x *extraction) warnings(r *result.ExtractRun, i, n int, w *writer, col *collector) []trace.Finding {
	out := append(slices.Clone(w.out.warnings), r.Deployment.Assumed()...)
	add := func(on bool, code trace.Code, format string, args ...any) {
		if on {
			out = append(out, trace.Findingf(code, format, args...))
		}
	}
	l := r.Losses
	add(n > 1, CodeSplitRuns, "engine run %d of %d in this dump", i+1, n)
	add(l.DroppedSpanEvents > 0, CodeLostEvents, "the SDK dropped %d span events; set OTEL_SPAN_EVENT_COUNT_LIMIT=100000 when recording", l.DroppedSpanEvents)
	add(l.OrphanSnapshots > 0, CodeOrphanSnapshots, "%d snapshots have no BATCH_SUMMARY", l.OrphanSnapshots)
	add(l.TruncatedMessages > 0, CodeUnreadable, "%d lines or messages were unreadable (%.3f %% of the input)", l.TruncatedMessages, 100*r.Records.BadFrac)
	add(r.Records.Dropped[string(CodeConflict)] > 0, CodeConflict, "%d records of spans that repeat ids with another content; the first is kept", r.Records.Dropped[string(CodeConflict)])
	add(r.Records.Dropped[string(CodeNulPadding)] > 0, CodeNulPadding, "NUL padding at the end of the input")
	span := r.Steps.Summaries + r.Steps.Missing
	add(r.Steps.Missing > 0, CodeMissingSteps, "%d of %d step ids between the first and the last are missing", r.Steps.Missing, span)
	add(r.Requests.APIUnlinked > 0, CodeUnlinked, "%d of %d core spans have no API span", r.Requests.APIUnlinked, r.Requests.Engine)
	add(r.Requests.StopString > 0, CodeStopString, "%d requests ended by a stop string (core aborted, API departed) count as successes", r.Requests.StopString)
	add(i == 0 && len(x.acc.badText) > 0, CodeInvalidText, "invalid Unicode replaced in %d lines, first %s", len(x.acc.badText), first(x.acc.badText))
	add(r.Clock.SpreadNs.V > 10e6, CodeClockOffset, "wall - monotonic spreads over %.1f ms", float64(r.Clock.SpreadNs.V)/1e6)
	if out == nil {
		out = []trace.Finding{}
	}
	return out
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// cleanStages removes what an interrupted call left behind.
func cleanStages(out string) error {
	entries, err := os.ReadDir(filepath.Join(out, tablesDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), stagePrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(out, tablesDir, e.Name())))
		}
	}
	return err
}

// finish writes extract.json and the cache, and removes the tables of runs
// that are not part of this call.
func finish(out string, doc *result.Extract, fresh *cache, rejects *rejects) error {
	ids, err := table.RunIDs(out)
	if err == nil {
		for _, id := range ids {
			if doc.Run(id) == nil {
				if err := os.RemoveAll(table.RunDir(out, id)); err != nil {
					return err
				}
			}
		}
	}
	if err := rejects.close(); err != nil {
		return err
	}
	b, err := result.Marshal(doc)
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(out, documentName), b); err != nil {
		return err
	}
	b, err = json.Marshal(fresh)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(out, cacheName), b)
}

// writeFile writes under a temporary name and renames.
func writeFile(path string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".tmp*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

// rejects writes rejected.jsonl; a nil one does nothing.
type rejects struct {
	tmp  *os.File
	path string
	enc  *json.Encoder
}

func openRejects(o *Options) (*rejects, error) {
	path := filepath.Join(o.Out, rejectedName)
	if !o.WhyRejected {
		return nil, nil
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp(o.Out, rejectedName+".tmp*")
	if err != nil {
		return nil, err
	}
	return &rejects{tmp: tmp, path: path, enc: json.NewEncoder(tmp)}, nil
}

func (r *rejects) write(line Rejected) error { return r.enc.Encode(line) }

func (r *rejects) close() error {
	if r == nil || r.tmp == nil {
		return nil
	}
	err := errors.Join(r.tmp.Chmod(0o644), r.tmp.Close())
	if err == nil {
		err = os.Rename(r.tmp.Name(), r.path)
	}
	if err == nil {
		r.tmp = nil
	}
	return err
}

func (r *rejects) abort() {
	if r != nil && r.tmp != nil {
		r.tmp.Close()
		os.Remove(r.tmp.Name())
	}
}
