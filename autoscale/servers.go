package autoscale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract/forms"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// CommandLine is the `command` of queue.json: the verb and every option that can change
// its numbers.
func CommandLine(verb string, o *Options) string {
	r := o.Record()
	return fmt.Sprintf("queue %s --flavour %s --hold-out %g --hop %gs --loads %d --max-num-batched-tokens %d --max-num-seqs %d "+
		"--min-requests %d "+
		"--queue-ratio %g --semantics %s --ttft %s --window %gs", verb, o.Flavour, r.HoldOut, r.HopS, o.Sweep.Loads, o.Sweep.MaxBatchedTokens,
		o.Sweep.MaxBatch,
		r.MinRequests, r.QueueRatio, r.Semantics, r.Observation, r.WindowS)
}

// RunServers makes a server of every run of an output folder but those named: its windows,
// and the physical parameters that its steps give.
func RunServers(ctx context.Context, out string, ext *result.Extract, without []string, o *Options,
	progress trace.Progress) ([]*Server, error) {
	sources := pipeline.FitSources(out, ext)
	sources = slices.DeleteFunc(sources, func(s fit.Source) bool { return slices.Contains(without, s.ID) })
	servers := make([]*Server, len(sources))
	err := par.Try(ctx, o.Workers, len(sources), func(i int) error {
		src := sources[i]
		run, err := src.Load()
		if err != nil {
			return err
		}
		if servers[i], err = serverOfRun(src.ID, run, &src.Deployment, o); err != nil {
			return err
		}
		src.Load = func() (*trace.Run, error) { return run, nil }
		return servers[i].SetPhysical(src, fit.DefaultOptions())
	}, func(done int) { progress.Report("queue", int64(done), int64(len(sources)), "runs") })
	return servers, err
}

// SweepServer makes one server of benchmark files; a folder stands for the JSON and CSV
// files in it.
func SweepServer(paths []string, read func(path string) ([]byte, result.Input, error), o *Options) (*Server, []result.Input,
	error) {
	names, err := sweepFiles(paths)
	if err != nil {
		return nil, nil, err
	}
	var points []forms.Point
	var inputs []result.Input
	var findings []trace.Finding
	account := queueAccount{Dropped: map[string]int{}}
	var snapshots []*forms.Snapshot
	take := func(f *forms.File) {
		points, findings = append(points, f.Points...), append(findings, f.Findings...)
		account.Read += f.Read
		for code, n := range f.Dropped {
			account.Dropped[string(code)] += n
		}
	}
	for _, name := range names {
		data, in, err := read(name)
		if err != nil {
			return nil, nil, err
		}
		if forms.IsMetrics(data) {
			s, err := forms.ReadSnapshot(data, in.Name, writtenNs(name))
			if err != nil {
				return nil, nil, err
			}
			inputs, snapshots = append(inputs, in), append(snapshots, s)
			continue
		}
		f, err := forms.Read(bytes.NewReader(data), in.Name) // the document must not know the folder
		if err != nil {
			if at := (*trace.SyntaxError)(nil); errors.As(err, &at) {
				at.File = name
			}
			return nil, nil, err
		}
		inputs = append(inputs, in)
		take(f)
	}
	if len(snapshots) > 0 {
		take(forms.Between(snapshots))
		o.Sweep.Mean = true // exact, while a median is known to its bucket
	}
	id := o.Sweep.Model
	if id == "" {
		id = "sweep"
	}
	s := serverOfSweep(id, points, o)
	s.Findings = append(s.Findings, findings...)
	s.Account.Read = account.Read
	for code, n := range account.Dropped {
		s.Account.Dropped[code] += n
	}
	return s, inputs, nil
}

// writtenNs is when a file was written: an answer of /metrics bears no time.
func writtenNs(name string) int64 {
	st, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return st.ModTime().UnixNano()
}

// sweepFiles are the files behind the arguments, those of folders sorted.
func sweepFiles(paths []string) ([]string, error) {
	var names []string
	for _, p := range paths {
		if st, err := os.Stat(p); err != nil || !st.IsDir() {
			names = append(names, p)
			continue
		}
		for _, pattern := range []string{"*.json", "*.csv", "*.prom"} {
			found, err := filepath.Glob(filepath.Join(p, pattern))
			if err != nil {
				return nil, err
			}
			names = append(names, found...)
		}
	}
	if len(names) == 0 {
		return nil, trace.Errorf(forms.CodeUnknownFile, "%s: got neither extract.json nor benchmark files, want one of them", paths[0]).
			WithHint("blis-train extract RUNDIR -o OUT makes an extracted folder")
	}
	return names, nil
}

// FitQueues fits every server and lets more, unless nil, add to each. The rows are those
// of windows.parquet, in the servers' order.
func FitQueues(ctx context.Context, servers []*Server, o *Options,
	more func(*Calibrated, *Options) []WindowRow) ([]*Calibrated, []WindowRow, error) {
	fitted, extra := make([]*Calibrated, len(servers)), make([][]WindowRow, len(servers))
	err := par.Try(ctx, o.Workers, len(servers), func(i int) (err error) {
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
