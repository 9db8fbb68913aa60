package extract

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// This file has the calls that extract run folders: Run for all in this process, One and Assemble for
// one process a folder.

// softLimit is the memory limit of the Go runtime during an extraction, bytes. Memory does not grow
// with the input except for about 150 bytes a request and 20 a span.
const softLimit = 200 << 20

// logLimit replaces softLimit while log lines are read, if there are no spans and fewer than
// fewRequests requests of clients. Such a run needs little memory.
const (
	logLimit    = 60 << 20
	fewRequests = 20_000
)

// BoundMemory sets the memory limit of the Go runtime to softLimit, near which the garbage
// collector works harder. A lower limit set in the environment is kept. undo restores the limit
// that was set before.
func BoundMemory() (undo func()) {
	old := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(old, softLimit))
	return func() { debug.SetMemoryLimit(old) }
}

// Run extracts the runs into o.Out and returns the document written to extract.json. If more than
// MaxBadFrac of a run is unreadable, or one run of several cannot be extracted, everything else is
// written and the error names these runs.
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
	old := loadCache(o.Out) // what an earlier call extracted, to be used where nothing changed
	entries, bad, err := extractAll(ctx, runs, &o, old, rejects)
	if err != nil {
		return nil, err
	}
	return assemble(entries, bad, &o, old, rejects)
}

// Failed is a run folder that could not be extracted.
type Failed struct {
	ID  string
	Err error
}

// mostListed is the number of failed runs whose errors are listed.
const mostListed = 20

// FailedRuns returns the error that lists the failed ones of n runs. Its hint is the --exclude option
// that leaves them out.
func FailedRuns(failed []Failed, n int) error {
	if len(failed) == 0 {
		return nil
	}
	if n == 1 {
		return failed[0].Err
	}
	hint := "to go on without them:"
	var errs []error
	for _, f := range failed[:min(mostListed, len(failed))] {
		if why := trace.HintOf(f.Err); why != "" {
			f.Err = fmt.Errorf("%w (%s)", f.Err, why)
		}
		hint += " --exclude " + f.ID
		errs = append(errs, f.Err)
	}
	if len(failed) > mostListed {
		hint += " and so on"
	}
	summary := trace.Hinted(trace.Errorf(codeNoInput, "%d of %d runs could not be extracted", len(failed), n), hint)
	return errors.Join(append([]error{summary}, errs...)...)
}

// One extracts one run folder into o.Out/tables and returns its entry of the document. It writes no
// document and uses no cache: Assemble does that for the folders that several processes extracted.
func One(ctx context.Context, run *RunDir, o Options) (*Entry, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	x := &extraction{run: run, o: &o}
	defer x.close()
	if err := x.readFolder(ctx); err != nil {
		return nil, x.failed(err)
	}
	entry, err := x.finish(ctx)
	if err != nil {
		return nil, x.failed(err)
	}
	return entry, nil
}

// Assemble writes extract.json for run folders that One extracted, sorted by id, and returns it.
// folders[i] has the tables of entries[i], which are moved to o.Out. bad are the runs that failed.
// The result is the same as that of Run.
func Assemble(entries []*Entry, folders []string, bad []Failed, o Options) (*result.Extract, error) {
	if err := cleanStages(o.Out); err != nil {
		return nil, err
	}
	old := loadCache(o.Out)
	if err := invalidate(o.Out); err != nil {
		return nil, err
	}
	for i, e := range entries {
		// The engine runs of a folder with several have ids of their own (ID.1, ID.2, ...). Run checks
		// them against the other folders in idOf; One, which knew one folder, could not.
		for k := range e.Results {
			r := &e.Results[k]
			isTaken := slices.ContainsFunc(entries, func(other *Entry) bool {
				return strings.EqualFold(other.ID, r.ID)
			})
			if len(e.Results) > 1 && isTaken {
				return nil, runIDTaken(r.ID, k, len(e.Results), e.Folder)
			}
		}
		if err := e.Adopt(folders[i], o); err != nil {
			return nil, err
		}
	}
	return assemble(entries, bad, &o, old, nil)
}

// assemble writes the document and the cache of the entries, and returns the document. bad are the
// runs that failed, old is the cache of the call before. If no run was extracted nothing is written.
func assemble(entries []*Entry, bad []Failed, o *Options, old *cache, rejects *rejects) (*result.Extract, error) {
	failed := FailedRuns(bad, len(bad)+len(entries))
	if failed != nil && len(entries) == 0 {
		return nil, failed
	}
	fresh := newCache(o)
	for _, e := range entries {
		fresh.Runs = append(fresh.Runs, *e)
	}
	doc, tooBad := DocumentOf(entries, *o)
	for _, b := range bad {
		doc.LeftOut = append(doc.LeftOut, b.ID)
	}
	if err := writeDocument(o.Out, doc, fresh, old, rejects); err != nil {
		return nil, err
	}
	return doc, errors.Join(failed, tooBad)
}

// DocumentOf returns the document of the entries. Its error, which comes together with the
// document, names the runs of which more than MaxBadFrac is unreadable.
func DocumentOf(entries []*Entry, o Options) (*result.Extract, error) {
	doc := &result.Extract{Header: result.NewHeader(o.ToolVersion, option.Command("extract", o.Flags())),
		Runs: []result.ExtractRun{}}
	doc.Config = o.Config
	var tooBad []error
	for _, entry := range entries {
		doc.Runs = append(doc.Runs, entry.Results...)
		// All engine runs of a folder have the same files, and the first has the account of records.
		for _, f := range entry.Results[0].Files {
			doc.Inputs = append(doc.Inputs, f.Input)
		}
		doc.Totals.BytesRead += entry.Bytes
		doc.Totals.LinesRead += entry.Lines
		if frac := entry.Results[0].Records.BadFrac; frac > o.MaxBadFrac {
			tooBad = append(tooBad, badError(&entry.Results[0], frac, o.MaxBadFrac))
		}
	}
	doc.SumRuns()
	return doc, errors.Join(tooBad...)
}

// badError returns the error of a run of which more than limit is unreadable, with the first
// unreadable place. frac is its unreadable share, 0..1.
func badError(r *result.ExtractRun, frac, limit float64) error {
	where := ""
	for _, e := range r.Examples {
		if source.ByError[e.Reason] {
			where = "; first: " + e.Place + ": " + e.What
			break
		}
	}
	return trace.Errorf(codeTooManyBad,
		"run %s: %.2f %% of the input is unreadable, want at most %.2f %%%s", r.ID, 100*frac,
		100*limit, where).
		WithHint(fmt.Sprintf("--max-bad-frac %.2g accepts the loss", roundUp(frac)))
}

// roundUp returns a share rounded up to two decimals, so that --max-bad-frac with this value
// accepts it.
func roundUp(f float64) float64 { return float64(int(f*100)+1) / 100 }

// extractAll extracts the runs or finds them in the cache. bad are runs whose inputs cannot be
// extracted; err ended the whole extraction. With several workers the tables of one run are written
// while the next run is read, so that no core is idle. With --why-rejected they are written before,
// because reading and writing both add to rejected.jsonl, which has the order of the runs.
func extractAll(ctx context.Context, runs []RunDir, o *Options, old *cache, rejects *rejects) (entries []*Entry,
	bad []Failed, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	made := make([]*Entry, len(runs))
	errs := make([]error, len(runs))
	ids := make([]string, len(runs))
	for i := range runs {
		ids[i] = runs[i].ID
	}
	// written receives, after each run, the error that ends the whole extraction, or nil.
	// At most one run's tables are written at a time.
	written := make(chan error, 1)
	written <- nil
	for i := range runs {
		if errs[i] = runs[i].Bad; errs[i] != nil {
			continue
		}
		entry, set := old.lookup(&runs[i], o)
		if entry != nil {
			made[i] = entry
			continue
		}
		x := &extraction{run: &runs[i], o: o, rejects: rejects, ids: ids, inputs: set}
		err := x.readFolder(ctx)
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
				errs[i] = err // of this run alone: the others go on
				err = nil
			}
			if err != nil {
				cancel() // ends the reading of the next run
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
