package extract

// This file writes the tables of every engine run of a folder and makes their entries of extract.json,
// with the warnings.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// output writes the tables of the i-th engine run and returns what it wrote. Engine runs come from
// step spans (x.spans) or, without these, from logs: a life is one start of an engine there (x.lives). Load
// levels of benchmarks do not name an engine, so they are with the first run.
func (x *extraction) output(i int) (*output, error) {
	w := &output{Dir: filepath.Join(x.stage, "run."+strconv.Itoa(i)), Tables: map[string]int64{}}
	if i < x.spans.Runs() {
		var err error
		if w, err = x.spans.Write(i, x.dep, x.kvEvents); err != nil {
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
	if i < len(x.served) && i > 0 { // those of the first engine are among the tables of x.spans
		if err := table.Write(w.Dir, table.ObservedRequests, x.o.Format, x.served[i]); err != nil {
			return nil, err
		}
		w.Tables[table.ObservedRequests] = int64(len(x.served[i]))
	}
	life := x.lives[i] // its table of passes was written while the log was read
	w.Tables[table.Iterations] = life.Rows
	if err := os.MkdirAll(w.Dir, 0o755); err != nil {
		return nil, err
	}
	name := table.Iterations + "." + string(x.o.Format)
	return w, os.Rename(filepath.Join(life.Dir, name), filepath.Join(w.Dir, name))
}

// write writes the tables of each engine run, gives them their final names, and returns the entries
// of extract.json. No table gets its final name before all are written and the account of records
// balances.
func (x *extraction) write(ctx context.Context) ([]result.ExtractRun, error) {
	n := max(x.spans.Runs(), len(x.lives))
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
		return nil, fmt.Errorf("extract: account does not balance: read %d, kept %d, dropped %v", records.Read,
			records.Kept, records.Dropped)
	}
	x.counted = x.countServer()
	ids := make([]string, n)
	for i := range ids {
		var err error
		if ids[i], err = x.idOf(i, n); err != nil {
			return nil, err
		}
	}
	var out []result.ExtractRun
	for i, w := range outputs {
		id := ids[i]
		files, err := tableFiles(w.Dir)
		if err != nil {
			return nil, err
		}
		if err := invalidate(x.o.Out); err != nil {
			return nil, err
		}
		if err := publish(w.Dir, table.RunDir(x.o.Out, id), files, x.o.Force); err != nil {
			return nil, err
		}
		r := x.result(id, i, n, w, records)
		r.TableFiles = files
		x.countBatches(&r)
		out = append(out, r)
	}
	return out, nil
}

// idOf returns the id of the i-th of n engine runs: that of the run folder, or with several ID.1, ID.2
// and so on. It is an error if another run folder has that id.
func (x *extraction) idOf(i, n int) (string, error) {
	if n == 1 {
		return x.run.ID, nil
	}
	id := x.run.ID + "." + strconv.Itoa(i+1)
	if slices.ContainsFunc(x.ids, func(other string) bool { return strings.EqualFold(other, id) }) {
		return "", runIDTaken(id, i, n, x.run.Dir)
	}
	return id, nil
}

// runIDTaken returns the error of the i-th (from 0) of n engine runs of a folder, whose id is that of
// another run folder.
func runIDTaken(id string, i, n int, dir string) error {
	return trace.Errorf(codeDuplicateRunID,
		"run id %q is used by a run folder, and by engine run %d of %d in %s", id, i+1, n, dir).
		WithHint(otherName)
}

// maxBatchRows is the largest number of rows for which Options.Batches is called, which needs about
// 150 bytes of memory for each.
const maxBatchRows = 1 << 19

// countBatches sets the figures of extract.json that need reconstructed batches. If a run cannot be
// reconstructed they stay null, with a warning.
func (x *extraction) countBatches(r *result.ExtractRun) {
	if x.o.Batches == nil || r.Steps.Summaries == 0 {
		return
	}
	rows := int64(0)
	for _, n := range r.Tables {
		rows += n
	}
	if rows > maxBatchRows {
		r.Warnings = append(r.Warnings, trace.Findingf(codeNotRebuilt,
			"the figures of reconstructed batches are in fit.json only: the tables have %d rows, more than %d",
			rows, maxBatchRows))
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

// result returns the entry of the i-th of n engine runs in extract.json, of which w was written. If a
// folder has several engine runs, the first one gets the account of records, which is of all files.
func (x *extraction) result(id string, i, n int, w *output, records result.Records) result.ExtractRun {
	dep := *x.dep
	r := result.ExtractRun{
		ID:       id,
		Folder:   x.run.Folder,
		Tables:   w.Tables,
		Steps:    w.Steps,
		Requests: w.Requests,
		Records:  result.Records{Dropped: map[string]int64{}},
		Scopes:   []result.ScopeCount{},
		Examples: []result.Example{},
		Warnings: []trace.Finding{},
		Engine: result.ExtractEngine{
			InstanceID:  strconv.Itoa(i + 1),
			VLLMVersion: dep.Engine.VLLMVersion,
			Model:       dep.Model.ID,
			Hardware:    dep.Hardware.Name,
			TP:          dep.TP,
		},
		Losses:     result.Losses{OrphanSnapshots: w.Orphans},
		Deployment: &dep,
	}
	median, spread, ok := x.spans.Clock()
	if n > 1 { // after a restart of the machine the monotonic clock begins anew
		median, spread, ok = w.offsets.Spread()
	}
	if ok {
		r.Clock = result.ExtractClock{OffsetNs: trace.Some(median), SpreadNs: trace.Some(spread)}
	}
	r.Drafts = x.drafts
	if i < len(x.cachedSum) {
		r.CachedTokens = x.cachedSum[i]
	}
	if i == 0 {
		r.Counted = x.counted
		r.Records = records
		r.Scopes = x.acc.ScopeCounts()
		r.Examples = x.acc.ExampleList()
		r.Losses.DroppedSpanEvents = x.acc.LostEvents
		r.Losses.TruncatedMessages = x.acc.Truncated
		r.Losses.DuplicateSpans = x.acc.Duplicates
	}
	r.Warnings = x.warnings(&r, i, n, w)
	return r
}

// mostClockSpreadNs is how far the offset of the wall clock from the monotonic clock may vary, from its
// 10th to its 90th percentile, without a warning.
const mostClockSpreadNs = 10e6

// firstUnreadable returns the place of the first unreadable line or message, as the end of a warning.
func firstUnreadable(examples []result.Example) string {
	i := slices.IndexFunc(examples, func(e result.Example) bool { return e.Reason == source.CodeUnreadable })
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("; first: %s: %s", examples[i].Place, examples[i].What)
}

// IsOfFile reports whether a warning is about a file that could not be read, or not to its end. Reports list
// such warnings before all others.
func IsOfFile(code trace.Code) bool {
	return code == source.CodeCut || code == codeNoInput || code == source.CodeUnreadable
}

// unreadFiles returns the warnings about files that could not be read, or not to their end. engine is
// the number of the engine run, from 0; those about whole files are with the first.
func (x *extraction) unreadFiles(r *result.ExtractRun, engine int) (out []trace.Finding) {
	for _, e := range r.Examples {
		if e.Reason == source.CodeCut {
			out = append(out, trace.Findingf(source.CodeCut, "%s: %s", e.Place, e.What))
		}
	}
	if engine == 0 {
		out = append(out, x.empty...)
	}
	if n := r.Losses.TruncatedMessages; n > 0 {
		what := "lines or messages were"
		if n == 1 {
			what = "line or message was"
		}
		out = append(out, trace.Findingf(source.CodeUnreadable, "%d %s unreadable (%.3f %% of what was read)%s",
			n, what, 100*r.Records.BadFrac, firstUnreadable(r.Examples)))
	}
	return out
}

// warnings returns the warnings of the i-th of n engine runs, those about files first. What is true of
// the whole run folder is with the first engine run.
func (x *extraction) warnings(r *result.ExtractRun, i, n int, w *output) []trace.Finding {
	dep := r.Deployment
	if len(x.lives) > 0 {
		// The passes of a log count drafted tokens, so speculative decoding is no unmodelled setting here.
		dep = dep.WithoutDrafts()
	}
	out := x.unreadFiles(r, i)
	out = append(out, w.Warnings...)
	out = append(out, dep.Assumed()...)
	if unlike := dep.AgainstDatasheet(); unlike != "" {
		out = append(out, trace.Finding{Code: source.CodeRunContradicted, Message: unlike})
	}
	add := func(holds bool, code trace.Code, format string, args ...any) {
		if holds {
			out = append(out, trace.Findingf(code, format, args...))
		}
	}
	l := r.Losses
	if i == 0 {
		out = append(out, x.clients...)
		out = append(out, x.inputs.below...)
		out = append(out, x.inputs.contradicted...)
		if x.logs != nil {
			out = append(out, x.logs.Beyond.Findings("passes")...)
		}
		ids := x.spans.NoIDs()
		add(ids > 0, codeIncomplete, "%d spans without a span id are distinguished by their content", ids)
	}
	if i < len(x.lives) {
		l := x.lives[i]
		isStampless := l.Stamped == 0 && l.Rows > 0 && l.Engine != "" // passes that were found behind clients' chunks have no engine and no stamps
		add(isStampless, codeIncomplete, "none of %d logged passes has a stamp, so nothing but their elapsed times "+
			"shows how long a step took; save the log with docker logs --timestamps or kubectl logs --timestamps", l.Rows)
		add(l.Backwards > 0, codeClockOffset,
			"%d iterations are stamped before the one before them, first %s", l.Backwards, l.FirstBack)
		add(l.Missing > 0, codeIncomplete,
			"%d of %d iterations between the first and the last are missing, first before %s", l.Missing,
			l.Rows+l.Missing, l.FirstGap)
	}
	add(n > 1, source.CodeSeveralEngines, "engine run %d of %d in this dump", i+1, n)
	add(l.DroppedSpanEvents > 0, codeIncomplete,
		"the SDK dropped %d span events; set OTEL_SPAN_EVENT_COUNT_LIMIT=100000 when recording", l.DroppedSpanEvents)
	add(l.OrphanSnapshots > 0, codeIncomplete, "%d snapshots have no BATCH_SUMMARY", l.OrphanSnapshots)
	add(r.Records.Dropped[string(codeConflict)] > 0, codeConflict,
		"%d records repeat the id of an earlier span with other content; the first is kept",
		r.Records.Dropped[string(codeConflict)])
	add(r.Records.Dropped[string(source.CodeNulPadding)] > 0, source.CodeNulPadding,
		"NUL padding at the end of the input")
	add(r.Steps.Missing > 0, codeIncomplete,
		"%d of %d step ids between the first and the last are missing", r.Steps.Missing,
		r.Steps.Summaries+r.Steps.Missing)
	add(r.Requests.APIUnlinked > 0, codeIncomplete, "%d of %d core spans have no API span", r.Requests.APIUnlinked,
		r.Requests.Engine)
	add(r.Requests.StopString > 0, codeStopString,
		"%d requests ended by a stop string (core aborted, API departed) count as successes",
		r.Requests.StopString)
	if i == 0 && len(x.acc.BadText) > 0 {
		add(true, codeInvalidText, "invalid Unicode replaced in %d lines, first %s", len(x.acc.BadText),
			x.acc.BadText[0])
	}
	// The wall clock was set or drifted during the run, so times of the two clocks may differ by milliseconds.
	add(r.Clock.SpreadNs.V > mostClockSpreadNs, codeClockOffset, "wall - monotonic spreads over %.1f ms",
		float64(r.Clock.SpreadNs.V)/1e6)
	if out == nil {
		out = []trace.Finding{}
	}
	return out
}
