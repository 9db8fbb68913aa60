package autoscale

// This file turns recordings into servers with windows, times in which the load was steady, and fits the queueing model of
// every server.

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Where the windows of a server come from.
const (
	fromRecording = "recording"
	fromSweep     = "sweep"
)

// Server is one engine with the windows that were measured of it.
type Server struct {
	ID, Source, Model, Accelerator string
	AccCount                       int64
	Limits                         Limits
	Windows                        []window
	Account                        queueAccount
	Physical                       *Physical          // nil without step traces
	Deployment                     *deploy.Deployment // nil for a sweep
	Reason                         string             // why its windows are not used; "" if they are
	Findings                       []trace.Finding
}

// limitsOf returns the limits of a deployment's engine on batch, queue, tokens of a step, length of a request
// and KV cache. KVTokens is nil if the size of the cache is unknown. The overhead is not set here, because
// it does not follow from the deployment; see idleOverheadMs.
func limitsOf(d *deploy.Deployment, o *Options) Limits {
	s := Limits{
		MaxBatch:         int(d.Engine.MaxNumSeqs),
		Queue:            o.waiting(int(d.Engine.MaxNumSeqs)),
		MaxBatchedTokens: int(d.Engine.MaxNumBatchedTokens),
		Async:            d.Engine.IsAsync(),
	}
	if longest := d.MaxModelLen(); longest.OK {
		s.MaxModelLen = longest.V
	}
	if blocks, _, err := d.KVBlocks(); err == nil && blocks > 0 {
		s.KVTokens = new(float64(blocks * d.Engine.BlockSize))
	}
	return s
}

// idleOverheadMs returns the time from the arrival at the API to the engine's input queue, ms, as
// the fifth percentile of ARRIVED to QUEUED (spec#queue-overhead). A request is picked up (QUEUED)
// between two steps, so only those that meet an idle engine, or the very end of a step, show the
// overhead alone. ok is false without API spans.
func idleOverheadMs(run *trace.Run) (ms float64, ok bool) {
	var waits []float64
	for i := range run.Requests {
		if r := &run.Requests[i]; r.ArrivedNs.OK && r.QueuedNs.OK && r.QueuedNs.V >= r.ArrivedNs.V {
			waits = append(waits, float64(r.QueuedNs.V-r.ArrivedNs.V)/1e6)
		}
	}
	if len(waits) == 0 {
		return 0, false
	}
	return stat.Quantile(stat.Sorted(waits), overheadQuantile), true
}

// overheadQuantile is the quantile of ARRIVED to QUEUED that is taken as the overhead.
const overheadQuantile = 0.05

// serverOfRun returns the server of a recording. Its windows are cut from the engine's own records
// of requests or, without any, from the clients'.
func serverOfRun(id string, run *trace.Run, d *deploy.Deployment, o *Options) (*Server, error) {
	s := &Server{
		ID:          id,
		Source:      fromRecording,
		Deployment:  d,
		Limits:      limitsOf(d, o),
		Model:       d.Model.ID,
		Accelerator: d.Hardware.Name,
		AccCount:    d.TP,
		Account:     queueAccount{Dropped: map[string]int{}},
	}
	var known bool
	if s.Limits.OverheadMs, known = idleOverheadMs(run); !known {
		s.Findings = append(s.Findings, trace.Findingf(heldParameter,
			"%s: no ARRIVED stamps: overhead taken as 0 ms", id))
	}
	samples, skipped := fromRequests(run.Requests)
	if len(samples) == 0 {
		samples, skipped = fromObserved(run.Observed)
	}
	s.Account.Skipped = skipped
	cut := o.Cut
	cut.Limits, cut.Name = s.Limits, id
	windows, account, err := Cut(samples, spansOf(samples, rows.VerdictsOf(run, d)), cut)
	if err != nil {
		return nil, err
	}
	s.Windows = windows
	s.Account.Read = account.Windows
	s.Account.Kept = len(windows)
	if overlapOf(windows) > 1 {
		s.Account.Independent = independentWindows(windows)
	}
	for code, n := range account.Dropped {
		s.Account.Dropped[string(code)] = n
	}
	if why, _ := rows.JudgeLoad(run, d); why != "" {
		s.Reason = "saturated: " + why
	}
	return s, nil
}

// spansOf returns the phases of a run within the times of its arrivals, each with the reason if it
// cannot be used.
func spansOf(samples []sample, judged *rows.LoadVerdicts) []Span {
	var out []Span
	first, last := arrivalSpan(samples)
	for _, p := range judged.Phases {
		span := Span{Phase: p.Name, StartNs: max(p.StartNs, first), EndNs: min(p.EndNs, last)}
		switch {
		case p.Load == deploy.LoadClosed:
			span.Drop = closedLoop
		case p.Saturated:
			span.Drop = saturatedWindow
		}
		out = append(out, span)
	}
	return out
}

// arrivalSpan returns the first and the last arrival of the samples, ns.
func arrivalSpan(samples []sample) (first, last int64) {
	first, last = math.MaxInt64, math.MinInt64
	for i := range samples {
		first = min(first, samples[i].ArrivedNs)
		last = max(last, samples[i].ArrivedNs)
	}
	return first, last
}

// CommandLine returns the field `command` of queue.json: the subcommand with every option that can
// change its numbers.
func CommandLine(verb string, o *Options) string {
	r := o.Record()
	return fmt.Sprintf("queue %s --flavour %s --hold-out %g --hop %gs --loads %d --max-num-batched-tokens %d "+
		"--max-num-seqs %d --min-requests %d --queue-ratio %g --semantics %s --ttft %s --window %gs", verb,
		o.Flavour, r.HoldOut, r.HopS, o.Sweep.Loads, o.Sweep.MaxBatchedTokens,
		o.Sweep.MaxBatch, r.MinRequests, r.QueueRatio, r.Semantics, r.Observation, r.WindowS)
}

// RunServers returns a server for every run of output folder out except those named in without,
// with windows and physical parameters.
func RunServers(
	ctx context.Context,
	out string,
	ext *result.Extract,
	without []string,
	o *Options,
	progress trace.Progress,
) ([]*Server, error) {
	sources := pipeline.FitSources(out, ext)
	sources = slices.DeleteFunc(sources, func(s fit.Source) bool { return slices.Contains(without, s.ID) })
	servers := make([]*Server, len(sources))
	err := par.TryPure(ctx, o.Workers, len(sources), func(i int) error {
		src := sources[i]
		run, err := src.Load()
		if err != nil {
			return err
		}
		servers[i], err = serverOfRun(src.ID, run, &src.Deployment, o)
		if err != nil {
			return err
		}
		src.Load = func() (*trace.Run, error) { return run, nil }
		return servers[i].SetPhysical(ctx, src, fit.DefaultOptions())
	}, func(done int) { progress.Report("queue", int64(done), int64(len(sources)), "runs") })
	if err != nil {
		return nil, err
	}
	return servers, nil
}

// FitQueues fits every server. more, unless nil, adds further results to each server and returns
// their rows. FitQueues also returns the rows of windows.parquet, in the order of the servers.
func FitQueues(
	ctx context.Context,
	servers []*Server,
	o *Options,
	more func(*Calibrated, *Options) []WindowRow,
) ([]*Calibrated, []WindowRow, error) {
	fitted := make([]*Calibrated, len(servers))
	extra := make([][]WindowRow, len(servers))
	err := par.TryPure(ctx, o.Workers, len(servers), func(i int) (err error) {
		if fitted[i], err = calibrate(servers[i], o); err != nil {
			return fmt.Errorf("%s: %w", servers[i].ID, err)
		}
		if more != nil {
			extra[i] = more(fitted[i], o)
		}
		return nil
	}, nil)
	if err != nil {
		return nil, nil, err
	}
	var rows []WindowRow
	for i, f := range fitted {
		rows = append(append(rows, f.Rows(o.Flavour)...), extra[i]...)
	}
	return fitted, rows, nil
}
