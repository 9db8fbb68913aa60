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
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/pairing"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// This file extracts one run folder: it reads all inputs into collectors, joins their records and
// returns the entry of the folder in extract.json.

// extraction is the work on one run folder. Call readFolder, then finish, then close.
type extraction struct {
	run     *RunDir
	o       *Options
	rejects *rejects        // writes rejected.jsonl; nil without --why-rejected
	ids     []string        // of every run folder of this call
	acc     *source.Account // of records read, kept and dropped
	stage   string          // the folder of tables before they have their final names
	unstage func()          // removes it
	inputs  *inputSet
	stamps  []fileStamp        // of the inputs before they were read; nil if too recent to be relied on
	dep     *deploy.Deployment // run.Deployment; a copy of it once phases come from client files

	// What was read.
	spans    *collector              // of the dumps
	kvEvents *enginelog.KVCollector  // nil without a file of them
	observed []trace.ObservedRequest // requests as clients recorded them
	points   []trace.LoadPoint       // load levels of benchmarks
	logs     *enginelog.Lives        // reads logs and forward-pass traces into tables of passes
	lives    []*enginelog.Life       // those tables: one for each start of an engine that a log shows

	// What follows from it.
	paired *pairing.Pairing // client requests and the logged passes in which their prompts ended
	// cachedSum has, for each engine run, the sums of its requests' cached tokens by phase.
	cachedSum [][]result.CachedTokens
	counted   []result.ServerCount      // tokens that the log counts, beside those of requests
	drafts    *result.DraftCounts       // what the server counted of speculative decoding; nil: nothing
	served    [][]trace.ObservedRequest // by index in lives: its requests; nil if there is one life
	clients   []trace.Finding           // about the clients' files
	empty     []trace.Finding           // about files without a record
}

// failed returns an error with the id of the run.
func (x *extraction) failed(err error) error { return fmt.Errorf("run %s: %w", x.run.ID, err) }

// readFolder reads all inputs of the run folder x.run into the collectors of x; tables are written to a
// temporary folder (x.stage).
func (x *extraction) readFolder(ctx context.Context) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	x.dep = x.run.Deployment
	x.acc = source.NewAccount(nil)
	if x.rejects != nil {
		x.acc.Reject = func(r source.Rejected) error {
			r.Run = x.run.ID
			return x.rejects.enc.Encode(r)
		}
	}
	x.stage = filepath.Join(x.o.Out, tablesDir, stagePrefix+x.run.ID)
	if _, err := isFolder(x.stage); err != nil {
		return err
	}
	if err := os.MkdirAll(x.stage, 0o755); err != nil {
		return err
	}
	x.unstage = files.Staged(x.stage)
	if x.inputs == nil { // cache.lookup has found them otherwise
		if x.inputs, err = x.run.findInputs(); err != nil {
			return err
		}
	}
	x.inputs.useStored(x.run.Stored)
	// Before the files are read, so that a file that changes meanwhile is read again by the next call.
	x.stamps = oldEnough(x.inputs.stamps())
	return x.readInputs(ctx)
}

// close removes temporary files, and abandons tables that are not finished.
func (x *extraction) close() {
	if x.spans != nil {
		x.spans.Close()
	}
	if x.logs != nil {
		x.logs.Abort()
	}
	if x.unstage != nil {
		x.unstage()
	}
}

// finish joins the records, writes the tables of the engine runs and returns the entry of the run
// folder. Every file must have been read: whether a run has no record, or a file gave none, is
// known only then.
func (x *extraction) finish(ctx context.Context) (*Entry, error) {
	// A broken file counts as one lost record, so that it is part of the share of unreadable input.
	for _, f := range x.inputs.unread {
		if f.lost {
			x.acc.Read++
			x.acc.Drop(source.CodeUnreadable, 1, source.Place{File: f.Name}, "%s", f.why)
		}
	}
	if x.spans.Empty() && len(x.observed)+len(x.points) == 0 && x.logs.Empty() {
		return nil, x.noRecords(x.inputs)
	}
	var err error
	if x.empty, err = x.inputs.checkGave(x.acc.ExampleList()); err != nil {
		return nil, err
	}
	x.assignServed() // before col.Finish: it drops API spans of no known engine
	x.countCached()
	if err := x.spans.Finish(x.o.SplitEngines, x.observed); err != nil {
		return nil, err
	}
	results, err := x.write(ctx)
	if err != nil {
		return nil, err
	}
	entry := &Entry{
		ID:         x.run.ID,
		Folder:     x.run.Folder,
		Deployment: deploymentHash(x.run.Deployment),
		Stamps:     x.stamps,
		Digest:     x.inputs.digest(),
		Bytes:      x.inputs.bytes(),
		Lines:      x.acc.Lines,
		Results:    results,
	}
	for i := range entry.Results {
		entry.Results[i].Files = x.inputs.files()
	}
	return entry, nil
}

// noRecords returns the error of a run without any record. It names the likeliest reason: an export
// of another tool, a log without iterations, an unreadable file, or else the first record that was
// dropped.
func (x *extraction) noRecords(set *inputSet) error {
	var names []string
	for _, in := range slices.Concat(set.traces, set.clients, set.logs, set.passes) {
		names = append(names, in.Name)
	}
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
		if _, apiServers := x.dep.Balanced(); apiServers > 1 {
			hint += ", and with --api-server-count 1: several API servers, of which vLLM starts one for each data-parallel rank by default, " +
				"write no statistics"
		}
	}
	if len(names) == 0 {
		for _, f := range slices.Concat(set.unread, x.run.spansBelow()) { // the first file that is not read
			why = "; " + f.Name + ": not read; " + f.why
			hint = "put a recording into the folder, or name it under `files` in run.yaml"
			break
		}
	}
	for _, e := range x.acc.ExampleList() {
		if source.ByError[e.Reason] { // the input could not be read
			why = "; " + e.Place + ": " + e.What
			hint = "point at the output of the collector's file exporter, or correct `files` in run.yaml"
			if strings.Contains(e.What, "cut off") {
				hint = "copy the file again, whole"
			}
			break
		}
		if why == "" {
			why = "; " + e.Place + ": " + e.What
		}
	}
	return trace.Errorf(codeNoInput, "got neither a vLLM span nor a client request in %s%s",
		cmp.Or(strings.Join(names, ", "), "the folder"), why).WithHint(hint)
}

// readInputs streams every input into its collector: spans first, then KV events, clients' results,
// and logs last, because pairing their passes with prompts needs the clients' requests.
func (x *extraction) readInputs(ctx context.Context) error {
	o, set := x.o, x.inputs
	mem := &source.Memory{Dir: x.stage, Limit: o.Memory}
	if err := refuseForeign(set.traces); err != nil {
		return err
	}
	x.spans = &collector{
		names:    set.traces,
		acc:      x.acc,
		mem:      mem,
		stage:    mem.Dir,
		format:   o.Format,
		seen:     spanSet{},
		byID:     map[digest]int32{},
		pack:     newPacking(mem),
		journeys: mem.Spool(),
		clocks:   map[clockKey]*source.Stamps{},
		stated:   x.dep.Engine,
	}
	done := int64(0)
	total := set.bytes()
	how := o.streaming()
	how.Progress = func(n int64) {
		done += n // beyond total for pipes, whose size is unknown, and files that grow
		o.Progress.Report("extract "+x.run.ID, min(done, total), total, "B")
	}
	if err := source.Stream(ctx, set.traces, how, otlp.NewDecoder, x.spans.Add); err != nil {
		return err
	}
	if len(set.kv) > 0 {
		x.kvEvents = enginelog.NewKVCollector(set.kv, x.acc, mem)
		if err := source.Stream(ctx, set.kv, how, enginelog.NewKVDecoder, x.kvEvents.Add); err != nil {
			return err
		}
	}
	cl := &clients.Reader{Names: set.clients, Acc: x.acc, Memory: o.ClientMemory}
	for i := range set.clients {
		if err := cl.ReadFile(&set.clients[i], how); err != nil {
			return err
		}
	}
	cl.Finish(x.run.Deployment)
	x.observed = cl.Requests
	x.points = cl.Points
	x.clients = cl.Findings
	x.setPhases(cl.Loads)
	return x.readIterations(ctx, how)
}

// setPhases makes a phase of each load that a client offered, if run.yaml has no phases. Loads that
// overlap make none, because a time belongs to at most one phase. Then it sets the phase of each
// client request by its send time.
func (x *extraction) setPhases(loads []clients.Load) {
	stat.SortStable(loads, func(a, b clients.Load) int { return cmp.Compare(a.StartNs, b.StartNs) })
	if len(loads) == 0 {
		return
	}
	overlap := false
	for i := 1; i < len(loads); i++ {
		if loads[i-1].EndNs > loads[i].StartNs {
			overlap = true
		}
	}
	if len(x.run.Deployment.Phases) == 0 && !overlap {
		x.phasesOfLoads(loads)
	}
	x.alignPhases(loads) // only does something if run.yaml has phases
	for i := range x.observed {
		if r := &x.observed[i]; !r.Phase.OK && r.SendNs.OK {
			if p := x.dep.PhaseAt(r.SendNs.V); p != nil {
				r.Phase = trace.Some(p.Name)
			}
		}
	}
}

// readIterations reads server logs and forward-pass traces into tables of passes. Then it finds what
// these show of the clients' requests: cached tokens, and encoders that ran meanwhile. Without logs
// and spans it makes passes of the chunks that clients received.
func (x *extraction) readIterations(ctx context.Context, how source.Options) error {
	x.logs = enginelog.NewLives(x.acc, x.stage, x.o.Format)
	x.logs.Beyond = enginelog.LimitsOf(&x.dep.Engine)
	// Log lines are garbage as soon as they are parsed. Without spans and many requests the heap that
	// lives is small, so a lower limit makes the collector run earlier and keeps the process small.
	if x.spans.Empty() && len(x.observed) < fewRequests {
		old := debug.SetMemoryLimit(-1)
		debug.SetMemoryLimit(min(old, logLimit))
		defer debug.SetMemoryLimit(old)
	}
	err := x.logs.Logs(ctx, x.inputs.logs, how)
	if err == nil {
		err = x.logs.Passes(ctx, x.inputs.passes, how)
	}
	if err != nil {
		return err
	}
	if x.lives, err = x.logs.Close(); err != nil {
		return err
	}
	if len(x.logs.Statistics) > 0 {
		x.spans.stock = &tokenTimes{}
	}
	// In this order: lockstep merges the lives of ranks, to which the indexes of the first two refer.
	if err := errors.Join(x.findCached(how), x.markEncoderRequests(), x.lockstep()); err != nil {
		return err
	}
	return x.stepsOfChunks()
}

// mostChunks is the number of chunks of answers of which steps are made: each takes about 100 bytes meanwhile.
const mostChunks = 3_000_000

// stepsOfChunks makes iterations of the chunks that clients received, if neither spans nor logs
// record the steps of the engine: the chunks of one step arrive together (spec#chunk-steps).
func (x *extraction) stepsOfChunks() error {
	if !x.spans.Empty() || len(x.lives) > 0 {
		return nil
	}
	chunks := 0
	for i := range x.observed {
		chunks += len(x.observed[i].ChunkGapsUs)
	}
	if chunks > mostChunks {
		x.clients = append(x.clients, trace.Findingf(codeChunkSteps, "the answers have %d chunks; steps are made of at most %d",
			chunks, mostChunks))
		return nil
	}
	steps, q := reconstruct.FromChunks(x.observed, &x.dep.Engine)
	if q.Clusters == 0 {
		return nil
	}
	words := fmt.Sprintf("%d clusters of chunks, of %.1f %% of the tokens; in %.1f %% every running request has "+
		"exactly one chunk; a chunk comes %.2g, %.2g, %.2g ms (p50, p90, p99) after the first of its step, which "+
		"takes %.3g ms",
		q.Clusters, 100*q.TokenShare, 100*q.WholeShare, q.JitterUs[0]/1e3, q.JitterUs[1]/1e3, q.JitterUs[2]/1e3,
		q.StepUs/1e3)
	if why := q.Problem(); why != "" {
		x.clients = append(x.clients, trace.Findingf(codeChunkSteps, "%s; no steps are made of them: %s", words, why))
		return nil
	}
	x.clients = append(x.clients, trace.Findingf(codeChunkSteps, "%s; %d steps are known", words, len(steps)))
	dir := filepath.Join(x.stage, "chunks")
	// From here on they are written like the passes of a log, of an engine without a name.
	x.lives = []*enginelog.Life{{Rows: int64(len(steps)), Dir: dir}}
	return table.Write(dir, table.Iterations, x.o.Format, steps)
}

// endsAll reports whether an error ends the whole extraction, and not that of one run folder: the
// context ended, or the output folder cannot be written, which the next run folder would meet too.
func (x *extraction) endsAll(ctx context.Context, err error) bool {
	if ctx.Err() != nil || trace.CodeOf(err) == CodeNotOurs {
		return true
	}
	// Only tables are renamed, to their final names (publish).
	if _, isRename := errors.AsType[*os.LinkError](err); isRename {
		return true
	}
	pathErr, ok := errors.AsType[*fs.PathError](err)
	return ok && strings.HasPrefix(pathErr.Path, filepath.Join(x.o.Out, tablesDir))
}
