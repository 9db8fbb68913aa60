package extract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/pairing"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// softLimit is how much memory the Go runtime aims to stay below during an
// extraction, bytes: what it holds does not grow with the input but for about
// 150 bytes a request and 20 a span.
const softLimit = 200 << 20

// logLimit is the same while nothing but lines of logs is read, beside fewRequests
// of clients at most.
const (
	logLimit    = 60 << 20
	fewRequests = 20_000
)

// BoundMemory makes the garbage collector work harder only where memory nears
// softLimit; a smaller limit of the environment stays. The result undoes it.
func BoundMemory() (undo func()) {
	old := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(old, softLimit))
	return func() { debug.SetMemoryLimit(old) }
}

// Run extracts the runs into o.Out and returns the document that stands in
// extract.json. When the unreadable share of a run is above MaxBadFrac, or a run
// among others gives nothing, the files are written all the same and the error says so.
func Run(ctx context.Context, runs []RunDir, o Options) (*result.Extract, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := cleanStages(o.Out); err != nil {
		return nil, err
	}
	o.Stdin = source.UntilDone(ctx, o.Stdin)
	rejects, err := openRejects(&o)
	if err != nil {
		return nil, err
	}
	defer rejects.abort()
	old := loadCache(o.Out)
	entries, bad, err := extractAll(ctx, runs, &o, old, rejects)
	if err != nil {
		return nil, err
	}
	return assemble(entries, bad, &o, old, rejects)
}

// Failed is a run folder that gave nothing, and why.
type Failed struct {
	ID  string
	Err error
}

// mostTold is how many failed runs are told of one by one.
const mostTold = 20

// LeftOut is the error of failed runs among so many; the hint says how to do without them.
func LeftOut(bad []Failed, of int) error {
	if len(bad) == 0 {
		return nil
	}
	if of == 1 {
		return bad[0].Err
	}
	hint := "to go on without them:"
	errs := []error{nil}
	for _, b := range bad[:min(mostTold, len(bad))] {
		if why := trace.HintOf(b.Err); why != "" {
			b.Err = fmt.Errorf("%w (%s)", b.Err, why)
		}
		hint = hint + " --exclude " + b.ID
		errs = append(errs, b.Err)
	}
	if len(bad) > mostTold {
		hint += " and so on"
	}
	errs[0] = trace.Hinted(trace.Errorf(codeNoInput, "%d of %d runs give nothing", len(bad), of), hint)
	return errors.Join(errs...)
}

// One extracts one run folder into o.Out/tables and writes no document: the work of Run on
// one of its folders.
func One(ctx context.Context, run *RunDir, o Options) (*Entry, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	x := &extraction{run: run, o: &o}
	defer x.close()
	if err := x.read(ctx); err != nil {
		return nil, x.failed(err)
	}
	entry, err := x.finish(ctx)
	if err != nil {
		return nil, x.failed(err)
	}
	return entry, nil
}

// Assemble writes extract.json of run folders that One extracted: folders[i] holds the
// tables of entries[i], sorted by id, which get names in o.Out; bad are those that failed. Its
// result is that of Run.
func Assemble(entries []*Entry, folders []string, bad []Failed, o Options) (*result.Extract, error) {
	if err := cleanStages(o.Out); err != nil {
		return nil, err
	}
	old := loadCache(o.Out)
	if err := invalidate(o.Out); err != nil {
		return nil, err
	}
	for i, e := range entries {
		for k := range e.Results {
			r := &e.Results[k]
			if len(e.Results) > 1 && slices.ContainsFunc(entries, func(other *Entry) bool { return strings.EqualFold(other.ID, r.ID) }) {
				return nil, sameRunID(r.ID, k, len(e.Results), e.Folder)
			}
		}
		if err := e.Adopt(folders[i], o); err != nil {
			return nil, err
		}
	}
	return assemble(entries, bad, &o, old, nil)
}

// assemble writes what the entries make together.
func assemble(entries []*Entry, bad []Failed, o *Options, old *cache, rejects *rejects) (*result.Extract, error) {
	leftOut := LeftOut(bad, len(bad)+len(entries))
	if leftOut != nil && len(entries) == 0 {
		return nil, leftOut
	}
	fresh := newCache(o)
	fresh.Runs = append(fresh.Runs, stat.Map(entries, func(e *Entry) Entry { return *e })...)
	doc, tooBad := DocumentOf(entries, *o)
	doc.LeftOut = append(doc.LeftOut, stat.Map(bad, func(b Failed) string { return b.ID })...)
	if err := finish(o.Out, doc, fresh, old, rejects); err != nil {
		return nil, err
	}
	return doc, errors.Join(leftOut, tooBad)
}

// DocumentOf is what the entries make together. Its error, beside the document, names the runs
// of which more than MaxBadFrac is unreadable.
func DocumentOf(entries []*Entry, o Options) (*result.Extract, error) {
	doc := &result.Extract{Header: result.NewHeader(o.ToolVersion, o.Table().Command("extract")), Runs: []result.ExtractRun{}}
	doc.Config = o.Config
	var tooBad []error
	for _, entry := range entries {
		doc.Runs = append(doc.Runs, entry.Results...)
		doc.Inputs = append(doc.Inputs, stat.Map(entry.Results[0].Files, func(f result.ExtractFile) result.Input { return f.Input })...)
		doc.Totals.BytesRead += entry.Bytes
		doc.Totals.LinesRead += entry.Lines
		if frac := entry.Results[0].Records.BadFrac; frac > o.MaxBadFrac {
			tooBad = append(tooBad, badError(&entry.Results[0], frac, o.MaxBadFrac))
		}
	}
	doc.SumRuns()
	return doc, errors.Join(tooBad...)
}

// badError names the first unreadable place of a run.
func badError(r *result.ExtractRun, frac, limit float64) error {
	where := ""
	for _, e := range r.Examples {
		if source.ByError[e.Reason] {
			where = "; first: " + e.Place + ": " + e.What
			break
		}
	}
	return trace.Errorf(codeTooManyBad, "run %s: %.2f %% of the input is unreadable, want at most %.2f %%%s", r.ID, 100*frac,
		100*limit, where).
		WithHint(fmt.Sprintf("--max-bad-frac %.2g accepts the loss", roundUp(frac)))
}

func roundUp(f float64) float64 { return float64(int(f*100)+1) / 100 }

// extractAll extracts the runs, or takes what the cache has of them; bad are those whose inputs
// are at fault. With several workers the tables of one run are written while the next is read, so
// that no core waits at the end of a run; with --why-rejected not, because the
// records rejected in both passes stand in one file in order.
func extractAll(ctx context.Context, runs []RunDir, o *Options, old *cache, rejects *rejects) (entries []*Entry, bad []Failed, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	made := make([]*Entry, len(runs))
	errs := make([]error, len(runs))
	ids := stat.Map(runs, func(r RunDir) string { return r.ID })
	written := make(chan error, 1) // what ends all, of the run being written
	written <- nil
	for i := range runs {
		if errs[i] = runs[i].Bad; errs[i] != nil {
			continue
		}
		if made[i] = old.lookup(&runs[i], o); made[i] != nil {
			continue
		}
		x := &extraction{run: &runs[i], o: o, rejects: rejects, ids: ids}
		err := x.read(ctx)
		if earlier := <-written; earlier != nil {
			x.close()
			return nil, nil, earlier
		}
		finish := func() {
			if err == nil {
				made[i], err = x.finish(ctx)
			}
			x.close()
			if err != nil {
				err = x.failed(err)
			}
			if err != nil && !x.endsAll(ctx, err) {
				errs[i], err = err, nil
			}
			if err != nil {
				cancel()
			}
			written <- err
		}
		if o.workers() > 1 && rejects == nil {
			go finish()
		} else {
			finish()
		}
	}
	err = <-written
	for i := range runs {
		if errs[i] != nil {
			bad = append(bad, Failed{runs[i].ID, errs[i]})
		} else {
			entries = append(entries, made[i])
		}
	}
	return entries, bad, err
}

// endsAll reports that an error is no fault of the run's inputs: the call ended, or tables cannot be
// written.
func (x *extraction) endsAll(ctx context.Context, err error) bool {
	at := (*fs.PathError)(nil)
	moved := (*os.LinkError)(nil)
	return ctx.Err() != nil || trace.CodeOf(err) == CodeNotOurs || errors.As(err, &moved) ||
		errors.As(err, &at) && strings.HasPrefix(at.Path, filepath.Join(x.o.Out, tablesDir))
}

// extraction is the work on one run folder: read, then finish, then close.
type extraction struct {
	run     *RunDir
	o       *Options
	rejects *rejects
	ids     []string // of every run folder of this call
	acc     *source.Account
	stage   string
	unstage func() // removes it
	set     *inputSet
	stamps  []fileStamp // of the inputs before they were read
	col     *collector
	kv      *enginelog.KVCollector
	dep     *deploy.Deployment // run.yaml's, with the phases that client files tell
	obs     []trace.ObservedRequest
	points  []trace.LoadPoint
	clients []trace.Finding // of the clients' files
	iter    *enginelog.Lives
	lives   []*enginelog.Life
	empty   []trace.Finding // files that gave nothing
	paired  *pairing.Pairing
	told    [][]result.CachedTokens   // of each engine
	served  [][]trace.ObservedRequest // by the life of an engine, where there are several
}

func (x *extraction) failed(err error) error { return fmt.Errorf("run %s: %w", x.run.ID, err) }

// read reads the inputs of a run folder.
func (x *extraction) read(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	x.acc, x.dep = source.New(nil), x.run.Deployment
	if x.rejects != nil {
		x.acc.Reject = func(r source.Rejected) error { r.Run = x.run.ID; return x.rejects.enc.Encode(r) }
	}
	x.stage = filepath.Join(x.o.Out, tablesDir, stagePrefix+x.run.ID)
	if _, err := folderOf(x.stage); err != nil {
		return err
	}
	if err := os.MkdirAll(x.stage, 0o755); err != nil {
		return err
	}
	x.unstage = files.Staged(x.stage)
	if x.set, err = x.run.open(); err != nil {
		return err
	}
	x.set.stored(x.run.Stored)
	x.stamps = oldEnough(x.set.stamps())
	return x.inputs(ctx)
}

// close gives up what is still being written; after finish it only tidies up.
func (x *extraction) close() {
	if x.col != nil {
		x.col.Close()
	}
	if x.iter != nil {
		x.iter.Abort()
	}
	if x.unstage != nil {
		x.unstage()
	}
}

// finish joins what was read and writes the tables of the engine runs.
func (x *extraction) finish(ctx context.Context) (*Entry, error) {
	for _, f := range x.set.unread {
		if f.lost {
			x.acc.Read++
			x.acc.Drop(source.CodeUnreadable, 1, source.Place{File: f.Name}, "%s", f.why)
		}
	}
	if x.col.Empty() && len(x.obs)+len(x.points) == 0 && x.iter.Empty() {
		return nil, x.noSpans(x.set)
	}
	var err error
	if x.empty, err = x.set.empty(x.acc.ExampleList()); err != nil {
		return nil, err
	}
	x.serve()
	x.account()
	if err := x.col.Finish(x.o.SplitEngines, x.obs); err != nil {
		return nil, err
	}
	results, err := x.write(ctx)
	if err != nil {
		return nil, err
	}
	entry := &Entry{
		ID: x.run.ID, Folder: x.run.Folder, Deployment: deploymentHash(x.run.Deployment), Stamps: x.stamps, Digest: x.set.digest(),
		Bytes: x.set.bytes(), Lines: x.acc.Lines, Results: results,
	}
	for i := range entry.Results {
		entry.Results[i].Files = x.set.files()
	}
	return entry, nil
}

// noSpans is the error of a run whose inputs held nothing of use.
func (x *extraction) noSpans(set *inputSet) error {
	names := stat.Map(slices.Concat(set.traces, set.clients, set.logs, set.passes), func(in source.Input) string { return in.Name })
	if rest, err := x.run.unnamed(set); err == nil {
		if err := refuseForeign(rest); err != nil {
			return err
		}
	}
	why := ""
	hint := "is tracing on? --otlp-traces-endpoint, --enable-journey-tracing, --step-tracing-enabled"
	if len(set.logs) > 0 && len(set.traces) == 0 {
		why = "; the log holds no iteration"
		hint = "start vLLM with --enable-logging-iteration-details (0.14 or newer; from 0.26 without --disable-log-stats)"
		if _, servers := x.dep.Balanced(); servers > 1 {
			hint += ", and with --api-server-count 1: of several API servers, as many as data-parallel ranks unless told, none writes statistics"
		}
	}
	for _, e := range x.acc.ExampleList() {
		if source.ByError[e.Reason] {
			why = "; " + e.Place + ": " + e.What
			hint = "point at the output of the collector's file exporter, or correct `files` in run.yaml"
			break
		}
		if why == "" {
			why = "; " + e.Place + ": " + e.What
		}
	}
	return trace.Errorf(codeNoInput, "got neither a vLLM span nor a client request in %s%s",
		cmp.Or(strings.Join(names, ", "), "the folder"), why).WithHint(hint)
}

// inputs streams every input into the collectors.
func (x *extraction) inputs(ctx context.Context) error {
	o, set := x.o, x.set
	mem := &source.Memory{Dir: x.stage, Limit: o.Memory}
	if err := refuseForeign(set.traces); err != nil {
		return err
	}
	// gathers the spans of the named inputs
	x.col = &collector{names: set.traces, acc: x.acc, mem: mem, stage: mem.Dir, format: o.Format, seen: spanSet{}, byID: map[digest]int32{},
		pack: newPacking(mem), journeys: mem.Spool(), clocks: map[clockKey]*source.Stamps{}}
	x.col.stated = x.dep.Engine
	done, total := int64(0), set.bytes()
	how := o.streaming()
	how.Progress = func(n int64) {
		done += n
		o.Progress.Report("extract "+x.run.ID, min(done, total), total, "B")
	}
	if err := source.Stream(ctx, set.traces, how, otlp.NewDecoder, x.col.Add); err != nil {
		return err
	}
	if len(set.kv) > 0 {
		x.kv = enginelog.NewKVCollector(set.kv, x.acc, mem)
		if err := source.Stream(ctx, set.kv, how, enginelog.NewKVDecoder, x.kv.Add); err != nil {
			return err
		}
	}
	cl := &clients.Reader{Names: set.clients, Acc: x.acc}
	for i := range set.clients {
		if err := cl.File(&set.clients[i], how); err != nil {
			return err
		}
	}
	cl.Finish(x.run.Deployment)
	x.obs = cl.Rows
	x.points = cl.Points
	x.clients = cl.Findings
	x.phases(cl.Loads)
	return x.iterations(ctx, how)
}

// phases makes phases of the loads that clients offered one after another, where
// run.yaml names none, and puts the clients' requests into their phases.
func (x *extraction) phases(loads []clients.Load) {
	stat.SortStable(loads, func(a, b clients.Load) int { return cmp.Compare(a.StartNs, b.StartNs) })
	if len(loads) == 0 {
		return
	}
	apart := len(x.run.Deployment.Phases) == 0
	for i := 1; i < len(loads); i++ {
		apart = apart && loads[i-1].EndNs <= loads[i].StartNs
	}
	if apart {
		dep := *x.run.Deployment
		for _, l := range loads {
			p := deploy.Phase{Name: l.Name, Load: deploy.LoadOpen, StartNs: l.StartNs, EndNs: l.EndNs}
			if l.Closed {
				p.Load = deploy.LoadClosed
			}
			dep.Phases = append(dep.Phases, p)
		}
		x.dep = &dep
	}
	for i := range x.obs {
		if r := &x.obs[i]; !r.Phase.OK && r.SendNs.OK {
			if p := x.dep.PhaseAt(r.SendNs.V); p != nil {
				r.Phase = trace.Some(p.Name)
			}
		}
	}
}

// iterations streams server logs and forward-pass traces.
func (x *extraction) iterations(ctx context.Context, how source.Options) error {
	x.iter = enginelog.NewLives(x.acc, x.stage, x.o.Format)
	x.iter.Beyond = enginelog.LimitsOf(&x.dep.Engine)
	if x.col.Empty() && len(x.obs) < fewRequests { // nothing is held that grows with the input
		old := debug.SetMemoryLimit(-1)
		debug.SetMemoryLimit(min(old, logLimit))
		defer debug.SetMemoryLimit(old)
	}
	err := x.iter.Logs(ctx, x.set.logs, how)
	if err == nil {
		err = x.iter.Passes(ctx, x.set.passes, how)
	}
	if err != nil {
		return err
	}
	if x.lives, err = x.iter.Close(); err != nil {
		return err
	}
	if err := errors.Join(x.cached(how), x.lockstep()); err != nil {
		return err
	}
	return x.chunks()
}

// chunks makes iterations of the chunks that clients received, where nobody recorded
// what the engine did (spec#chunk-steps).
func (x *extraction) chunks() error {
	if !x.col.Empty() || len(x.lives) > 0 {
		return nil
	}
	steps, q := recoverSteps(x.obs, &x.dep.Engine)
	if q.Clusters == 0 {
		return nil
	}
	words := fmt.Sprintf("%d clusters of chunks, of %.1f %% of the tokens; in %.1f %% every running request has exactly one; a chunk comes "+
		"%.2g, %.2g, %.2g ms "+
		"(p50, p90, p99) behind the first of its step, which takes %.3g ms", q.Clusters, 100*q.TokenShare, 100*q.WholeShare, q.JitterUs[0]/1e3,
		q.JitterUs[1]/1e3, q.JitterUs[2]/1e3, q.StepUs/1e3)
	if why := q.Verdict(); why != "" {
		x.clients = append(x.clients, trace.Findingf(codeChunkSteps, "%s; they are no steps: %s", words, why))
		return nil
	}
	x.clients = append(x.clients, trace.Findingf(codeChunkSteps, "%s; %d steps are known", words, len(steps)))
	dir := filepath.Join(x.stage, "chunks")
	x.lives = []*enginelog.Life{{Rows: int64(len(steps)), Dir: dir}}
	return table.Write(dir, table.Iterations, x.o.Format, steps)
}

// output writes the tables of the i-th engine run.
func (x *extraction) output(i int) (*output, error) {
	w := &output{Dir: filepath.Join(x.stage, "run."+strconv.Itoa(i)), Tables: map[string]int64{}}
	if i < x.col.Runs() {
		var err error
		if w, err = x.col.Write(i, x.dep, x.kv); err != nil {
			return nil, err
		}
	}
	if i == 0 {
		if err := table.Write(w.Dir, table.Points, x.o.Format, x.points); err != nil {
			return nil, err
		}
		if len(x.points) > 0 {
			w.Tables[table.Points] = int64(len(x.points))
		}
	}
	if i >= len(x.lives) {
		return w, nil
	}
	if i < len(x.served) && i > 0 {
		if err := table.Write(w.Dir, table.ObservedRequests, x.o.Format, x.served[i]); err != nil {
			return nil, err
		}
		w.Tables[table.ObservedRequests] = int64(len(x.served[i]))
	}
	l := x.lives[i]
	w.Tables[table.Iterations] = l.Rows
	if err := os.MkdirAll(w.Dir, 0o755); err != nil {
		return nil, err
	}
	name := table.Iterations + "." + string(x.o.Format)
	return w, os.Rename(filepath.Join(l.Dir, name), filepath.Join(w.Dir, name))
}

// write writes the tables of each engine run and gives them their final names.
func (x *extraction) write(ctx context.Context) ([]result.ExtractRun, error) {
	n := max(x.col.Runs(), len(x.lives))
	outputs := make([]*output, n)
	for i := range n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var err error
		if outputs[i], err = x.output(i); err != nil {
			return nil, err
		}
	}
	if x.acc.Err != nil {
		return nil, x.acc.Err
	}
	records := x.acc.Records()
	if !records.Balanced() {
		return nil, fmt.Errorf("extract: account does not balance: read %d, kept %d, dropped %v", records.Read, records.Kept, records.Dropped)
	}
	var out []result.ExtractRun
	for i, w := range outputs {
		id, err := x.nameOf(i, n)
		if err != nil {
			return nil, err
		}
		files, err := tableFiles(w.Dir)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(invalidate(x.o.Out), publish(w.Dir, table.RunDir(x.o.Out, id), files, x.o.Force)); err != nil {
			return nil, err
		}
		r := x.result(id, i, n, w, records)
		r.TableFiles = files
		x.batches(&r)
		out = append(out, r)
	}
	return out, nil
}

// nameOf is the id of the i-th of n engine runs; another folder may not have it.
func (x *extraction) nameOf(i, n int) (string, error) {
	if n == 1 {
		return x.run.ID, nil
	}
	id := x.run.ID + "." + strconv.Itoa(i+1)
	if slices.ContainsFunc(x.ids, func(other string) bool { return strings.EqualFold(other, id) }) {
		return "", sameRunID(id, i, n, x.run.Dir)
	}
	return id, nil
}

// sameRunID is the error of the i-th of n engine runs in dir whose id a run folder has.
func sameRunID(id string, i, n int, dir string) error {
	return trace.Errorf(codeDuplicateRunID, "run id %q is used by a run folder, and by engine run %d of %d in %s", id, i+1, n, dir).
		WithHint(otherName)
}

// maxBatchRows bounds the memory of Batches: about 150 bytes a row.
const maxBatchRows = 1 << 19

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
		r.Warnings = append(r.Warnings, trace.Findingf(codeNotRebuilt, "%d rows, above the %d whose batches are counted here; fit.json has "+
			"the figures", rows, maxBatchRows))
		return
	}
	q, err := x.o.Batches(table.RunDir(x.o.Out, r.ID), r.Deployment)
	if err != nil {
		r.Warnings = append(r.Warnings, trace.Findingf(codeNotRebuilt, "%v", err))
		return
	}
	r.Steps.Reconstructed = trace.Some(int64(q.Reconstructed))
	r.Steps.Unknown = trace.Some(int64(q.Recorded - q.Known))
	r.Steps.Contradictions = trace.Some(int64(q.Contradictions))
}

// result is the entry of one engine run in extract.json. The account of a
// folder with several engine runs stands with the first of them.
func (x *extraction) result(id string, i, n int, w *output, records result.Records) result.ExtractRun {
	dep := *x.dep
	r := result.ExtractRun{
		ID: id, Folder: x.run.Folder, Tables: w.Tables, Steps: w.Steps, Requests: w.Requests,
		Records: result.Records{Dropped: map[string]int64{}}, Scopes: []result.ScopeCount{}, Examples: []result.Example{},
		Warnings: []trace.Finding{},
		Engine: result.ExtractEngine{InstanceID: strconv.Itoa(i + 1), VLLMVersion: dep.Engine.VLLMVersion, Model: dep.Model.ID,
			Hardware: dep.Hardware.Name, TP: dep.TP},
		Losses: result.Losses{OrphanSnapshots: w.Orphans}, Deployment: &dep,
	}
	if median, spread, ok := x.col.Clock(); ok {
		r.Clock = result.ExtractClock{OffsetNs: trace.Some(median), SpreadNs: trace.Some(spread)}
	}
	if i < len(x.told) {
		r.CachedTokens = x.told[i]
	}
	if i == 0 {
		r.Records, r.Scopes, r.Examples = records, x.acc.ScopeCounts(), x.acc.ExampleList()
		r.Losses.DroppedSpanEvents = x.acc.LostEvents
		r.Losses.TruncatedMessages = x.acc.Truncated
		r.Losses.DuplicateSpans = x.acc.Duplicates
	}
	r.Warnings = x.warnings(&r, i, n, w)
	return r
}

// firstUnreadable says where the first line or message that cannot be read stands; behind
// the end of a broken file nothing is read.
func firstUnreadable(examples []result.Example) string {
	i := slices.IndexFunc(examples, func(e result.Example) bool { return e.Reason == source.CodeUnreadable })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("; first: %s: %s", examples[i].Place, examples[i].What)
}

// warnings are the findings of one engine run.
func (x *extraction) warnings(r *result.ExtractRun, i, n int, w *output) []trace.Finding {
	dep := r.Deployment
	if len(x.lives) > 0 {
		dep = dep.WithoutDrafts() // its passes count them
	}
	out := append(slices.Clone(w.Warnings), dep.Assumed()...)
	add := func(on bool, code trace.Code, format string, args ...any) {
		if on {
			out = append(out, trace.Findingf(code, format, args...))
		}
	}
	l := r.Losses
	if i == 0 {
		out = append(append(append(out, x.empty...), x.clients...), x.set.contradicted...)
		if x.iter != nil {
			out = append(out, x.iter.Beyond.Findings("passes")...)
		}
		ids := x.col.NoIDs()
		add(ids > 0, codeIncomplete, "%d spans without a span id are told apart by their content", ids)
	}
	if i < len(x.lives) {
		l := x.lives[i]
		add(l.Backwards > 0, codeClockOffset, "%d iterations are stamped before the one before them, first %s", l.Backwards, l.FirstBack)
		add(l.Missing > 0, codeIncomplete, "%d of %d iterations between the first and the last are missing, first before %s", l.Missing,
			l.Rows+l.Missing, l.FirstGap)
	}
	add(n > 1, codeSeveralEngines, "engine run %d of %d in this dump", i+1, n)
	add(l.DroppedSpanEvents > 0, codeIncomplete, "the SDK dropped %d span events; set OTEL_SPAN_EVENT_COUNT_LIMIT=100000 when "+
		"recording", l.DroppedSpanEvents)
	add(l.OrphanSnapshots > 0, codeIncomplete, "%d snapshots have no BATCH_SUMMARY", l.OrphanSnapshots)
	add(l.TruncatedMessages > 0, source.CodeUnreadable, "%d lines or messages were unreadable (%.3f %% of what was read)%s",
		l.TruncatedMessages, 100*r.Records.BadFrac, firstUnreadable(r.Examples))
	add(r.Records.Dropped[string(codeConflict)] > 0, codeConflict,
		"%d records of spans that repeat ids with another content; the first is kept", r.Records.Dropped[string(codeConflict)])
	add(r.Records.Dropped[string(source.CodeNulPadding)] > 0, source.CodeNulPadding, "NUL padding at the end of the input")
	span := r.Steps.Summaries + r.Steps.Missing
	add(r.Steps.Missing > 0, codeIncomplete, "%d of %d step ids between the first and the last are missing", r.Steps.Missing, span)
	add(r.Requests.APIUnlinked > 0, codeIncomplete, "%d of %d core spans have no API span", r.Requests.APIUnlinked, r.Requests.Engine)
	add(r.Requests.StopString > 0, codeStopString, "%d requests ended by a stop string (core aborted, API departed) count as successes",
		r.Requests.StopString)
	add(i == 0 && len(x.acc.BadText) > 0, codeInvalidText, "invalid Unicode replaced in %d lines, first %s", len(x.acc.BadText),
		strings.Join(x.acc.BadText[:min(1, len(x.acc.BadText))], ""))
	add(r.Clock.SpreadNs.V > 10e6, codeClockOffset, "wall - monotonic spreads over %.1f ms", float64(r.Clock.SpreadNs.V)/1e6)
	if out == nil {
		out = []trace.Finding{}
	}
	return out
}
