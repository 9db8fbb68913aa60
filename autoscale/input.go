package autoscale

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Sources of a server's windows.
const (
	fromRecording = "recording"
	fromSweep     = "sweep"
)

// Server is one engine as its windows see it.
type Server struct {
	ID, Source, Model, Accelerator string
	AccCount                       int64
	Limits                         Limits
	Windows                        []window
	Account                        queueAccount
	Physical                       *Physical          // nil without step traces
	Deployment                     *deploy.Deployment // nil for a sweep
	Reason                         string             // why its windows are not used; empty when they are
	Findings                       []trace.Finding
}

// limitsOf are a deployment's limits. The overhead is not one of them: see idleOverheadMs.
func limitsOf(d *deploy.Deployment, o *Options) Limits {
	s := Limits{
		MaxBatch: int(d.Engine.MaxNumSeqs), Queue: o.waiting(int(d.Engine.MaxNumSeqs)),
		MaxBatchedTokens: int(d.Engine.MaxNumBatchedTokens), Async: d.Engine.IsAsync(),
	}
	if blocks, _, err := d.KVBlocks(); err == nil && blocks > 0 {
		s.KVTokens = new(float64(blocks * d.Engine.BlockSize))
	}
	return s
}

// idleOverheadMs is the time from the arrival at the API to the engine's input queue: the
// fifth percentile of ARRIVED to QUEUED. QUEUED is a pick-up between two steps, so only
// requests that meet an idle engine, or the very end of a step, show the overhead alone
// (spec#queue-overhead). ok is false without API spans.
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

const overheadQuantile = 0.05

// serverOfRun makes the server of a recording: its windows, cut from the engine's own requests,
// or from what clients saw where there are none.
func serverOfRun(id string, run *trace.Run, d *deploy.Deployment, o *Options) (*Server, error) {
	s := &Server{
		ID: id, Source: fromRecording, Deployment: d, Limits: limitsOf(d, o),
		Model: d.Model.ID, Accelerator: d.Hardware.Name, AccCount: d.TP,
		Account: queueAccount{Dropped: map[string]int{}},
	}
	var known bool
	if s.Limits.OverheadMs, known = idleOverheadMs(run); !known {
		s.Findings = append(s.Findings, trace.Findingf(heldParameter, "%s: no ARRIVED stamps: overhead taken as 0 ms", id))
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
	for code, n := range account.Dropped {
		s.Account.Dropped[string(code)] = n
	}
	if why, _ := rows.JudgeLoad(run, d); why != "" {
		s.Reason = "saturated: " + why
	}
	return s, nil
}

// spansOf are the phases of a run as stretches to cut, those that cannot be used with the
// reason. A run without phases is one stretch, from its first arrival to its last.
func spansOf(samples []sample, judged *rows.LoadVerdicts) []Span {
	var out []Span
	for _, p := range judged.Phases {
		span := Span{Phase: p.Name, StartNs: p.StartNs, EndNs: p.EndNs}
		switch {
		case p.Load == deploy.LoadClosed:
			span.Drop = closedLoop
		case p.Saturated:
			span.Drop = saturatedWindow
		}
		first, last := arrivalSpan(samples)
		span.StartNs = max(p.StartNs, first)
		span.EndNs = min(p.EndNs, last)
		out = append(out, span)
	}
	return out
}

// arrivalSpan is the time of arrivals, [first, last].
func arrivalSpan(samples []sample) (first, last int64) {
	first, last = math.MaxInt64, math.MinInt64
	for i := range samples {
		first = min(first, samples[i].ArrivedNs)
		last = max(last, samples[i].ArrivedNs)
	}
	return first, last
}

// serverOfSweep makes one server of the benchmarks of a sweep over lengths and loads.
func serverOfSweep(id string, points []clients.Level, o *Options) *Server {
	s := &Server{
		ID: id, Source: fromSweep, Model: o.Sweep.Model, Accelerator: o.Sweep.Accelerator, AccCount: o.Sweep.AccCount,
		Limits:  Limits{MaxBatch: o.Sweep.MaxBatch, Queue: o.waiting(o.Sweep.MaxBatch), MaxBatchedTokens: o.Sweep.MaxBatchedTokens},
		Account: queueAccount{Read: len(points), Dropped: map[string]int{}},
	}
	taken := map[string]int{}
	for _, p := range byRate(points) {
		switch w, ok := s.windowOf(&p, o); {
		case p.Closed():
			s.Account.Dropped[string(closedLoop)]++
		case o.Sweep.Loads > 0 && taken[p.Sweep] == o.Sweep.Loads:
			s.Account.Dropped[string(beyondLoads)]++
		case !ok:
			s.Account.Dropped[string(noLatency)]++
		default:
			taken[p.Sweep]++
			s.Windows = append(s.Windows, w)
		}
	}
	s.Account.Kept = len(s.Windows)
	return s
}

// byRate sorts the benchmarks of each sweep by their rate; sweeps stay in their order.
func byRate(points []clients.Level) []clients.Level {
	order := map[string]int{}
	points = slices.Clone(points)
	for i := range points {
		points[i].RateRPS = cmp.Or(points[i].RateRPS, points[i].OfferedRPS)
		if _, seen := order[points[i].Sweep]; !seen {
			order[points[i].Sweep] = len(order)
		}
	}
	stat.SortStable(points, func(a, b clients.Level) int {
		return cmp.Or(cmp.Compare(order[a.Sweep], order[b.Sweep]), cmp.Compare(a.RateRPS, b.RateRPS))
	})
	return points
}

func (s *Server) windowOf(p *clients.Level, o *Options) (window, bool) {
	cv2 := func(mean, sd float64) float64 {
		if !(mean > 0 && sd > 0) { // a report without spreads
			return 0
		}
		return sd * sd / (mean * mean)
	}
	w := window{
		Name: p.Sweep, Phase: p.Strategy, Requests: p.Requests, Arrivals: p.Requests, RateRPS: p.RateRPS, Limits: s.Limits, Shape: shape{
			Prompt: p.PromptTokens, Output: p.OutputTokens, PromptCV2: cv2(p.PromptTokens, p.PromptSD), OutputCV2: cv2(p.OutputTokens, p.OutputSD),
		},
		TTFTMs: p.TTFTMedianMs, ITLMs: p.ITLMs,
	}
	if o.Sweep.Mean {
		w.TTFTMs = p.TTFTMeanMs
	}
	return w, w.TTFTMs > 0
}

// CommandLine is the `command` of queue.json: the verb and every option that can change
// its numbers.
func CommandLine(verb string, o *Options) string {
	r := o.Record()
	return fmt.Sprintf("queue %s --flavour %s --hold-out %g --hop %gs --loads %d --max-num-batched-tokens %d --max-num-seqs %d "+
		"--min-requests %d "+
		"--queue-ratio %g --semantics %s --ttft %s --window %gs", verb, o.Flavour, r.HoldOut, r.HopS, o.Sweep.Loads, o.Sweep.MaxBatchedTokens,
		o.Sweep.MaxBatch, r.MinRequests, r.QueueRatio, r.Semantics, r.Observation, r.WindowS)
}

// RunServers makes a server of every run of an output folder but those named: its windows,
// and the physical parameters that its steps give.
func RunServers(ctx context.Context, out string, ext *result.Extract, without []string, o *Options,
	progress trace.Progress) ([]*Server, error) {
	sources := pipeline.FitSources(out, ext)
	sources = slices.DeleteFunc(sources, func(s fit.Source) bool { return slices.Contains(without, s.ID) })
	servers := make([]*Server, len(sources))
	err := par.TryPure(ctx, o.Workers, len(sources), func(i int) error {
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
	if err != nil {
		return nil, err
	}
	return servers, nil
}

// SweepServer makes one server of benchmark files; a folder stands for the JSON and CSV
// files in it.
func SweepServer(paths []string, read func(path string) ([]byte, result.Input, error), o *Options) (*Server, []result.Input, error) {
	names, err := sweepFiles(paths)
	if err != nil {
		return nil, nil, err
	}
	var points []clients.Level
	var inputs []result.Input
	var findings []trace.Finding
	account := queueAccount{Dropped: map[string]int{}}
	var snapshots []*enginelog.Snapshot
	take := func(f *clients.LevelFile) {
		points = append(points, f.Levels...)
		findings = append(findings, f.Findings...)
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
		if enginelog.IsMetrics(data) {
			s, err := enginelog.ReadSnapshot(data, in.Name, writtenNs(name))
			if err != nil {
				return nil, nil, err
			}
			inputs = append(inputs, in)
			snapshots = append(snapshots, s)
			continue
		}
		f, err := clients.ReadLevels(bytes.NewReader(data), in.Name) // the document must not know the folder
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
		take(clients.LevelsBetween(snapshots))
		o.Sweep.Mean = true // exact, while a median is known to its bucket
	}
	if inTable := func(p clients.Level) bool { return p.Line > 0 && p.TTFTMeanMs > 0 }; !o.Sweep.Median && len(points) > 0 &&
		!slices.ContainsFunc(points, func(p clients.Level) bool { return !inTable(p) }) {
		o.Sweep.Mean = true // a table that has the means, which the model's answers are
	}
	s := serverOfSweep(cmp.Or(o.Sweep.Model, "sweep"), points, o)
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
		return nil, trace.Errorf(source.CodeUnknownFile, "%s: got neither extract.json nor benchmark files, want one of them", paths[0]).
			WithHint("blis-train extract RUNDIR -o OUT makes an extracted folder")
	}
	return names, nil
}

// FitQueues fits every server and lets more, unless nil, add to each. The rows are those
// of windows.parquet, in the servers' order.
func FitQueues(ctx context.Context, servers []*Server, o *Options, more func(*Calibrated, *Options) []WindowRow) ([]*Calibrated,
	[]WindowRow, error) {
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

// Physical is what the steps of a recording say of an iteration.
type Physical struct {
	Params params         // ms; of the three-parameter flavours
	CI95   [3]*[2]float64 // ms
	Floor  [3]float64     // ms: what the hardware allows
	Bound  [3]bool        // not shown by the steps: the floor stands in
	Errors *result.Errors // on the steps' hold-out
	// Lengths the four-parameter form is made at.
	Prompt, Output float64
	steps          *fit.Iteration // measured and predicted times of the steps
}

// SetPhysical fits the run's steps: iteration = alpha + beta*(tokens computed) +
// gamma*(KV tokens read) is a linear model of a step, thousands of rows with their
// composition instead of two means a minute (spec#queue-physical). A run without step rows gets a finding.
func (s *Server) SetPhysical(src fit.Source, o fit.Options) error {
	it, err := fit.FitIteration(src, o)
	if err != nil {
		return err
	}
	s.Findings = append(s.Findings, it.Findings...)
	if it.Model == nil {
		s.Findings = append(s.Findings, trace.Findingf(heldParameter, "%s: %s", s.ID, it.Reason))
		return nil
	}
	p := &Physical{Errors: it.Model.Holdout}
	names := corrected.Parameters()
	values := [3]float64{}
	scale := meanScale(it.Model.Train) / 1000
	for i, c := range it.Model.Coefficients {
		values[i], p.Floor[i] = c.Value*scale, it.FloorUs[i]/1000
		p.CI95[i] = s.interval(names[i], values[i], c.CI95)
		if values[i] > 0 {
			continue
		}
		values[i] = p.Floor[i]
		p.Bound[i] = true
		p.CI95[i] = nil
		s.Findings = append(s.Findings, trace.Findingf(heldParameter,
			"%s: %s is not shown by the steps; the hardware's %.3g ms stands in", s.ID, names[i], p.Floor[i]))
	}
	p.Params = params{AlphaMs: values[0], BetaMs: values[1], GammaMs: values[2]}
	if it.Lengths[0] != nil {
		p.Prompt = *it.Lengths[0]
		p.Output = *it.Lengths[1]
	}
	p.steps = it
	s.Physical = p
	return nil
}

// interval is that of the fit without penalty, ms. Its weights do not follow the typical step, so
// it needs no scale; it reaches to the value, which the penalty may have moved out of it.
func (s *Server) interval(name string, value float64, us *[2]float64) *[2]float64 {
	if us == nil {
		return nil
	}
	out := &[2]float64{us[0] / 1000, us[1] / 1000}
	if value < out[0] || value > out[1] {
		s.Findings = append(s.Findings, trace.Findingf(heldParameter,
			"%s: %s of %.4g ms stood outside %.4g to %.4g ms, the interval of the fit without penalty", s.ID, name, value, out[0], out[1]))
		out[0], out[1] = math.Min(out[0], value), math.Max(out[1], value)
	}
	return out
}

// meanScale makes a fit in relative error, which follows the typical step, predict the sum of
// the training steps: queueing models predict means, and rare long steps are part of them.
func meanScale(e *result.Errors) float64 {
	if e == nil || e.Bias == nil || !(*e.Bias > -1) {
		return 1
	}
	return 1 / (1 + *e.Bias)
}

// vector is the physical parameters as the flavour has them. The four-parameter form is
// the same iteration at the mean lengths: a decode of n requests computes n tokens and
// reads n(k + m/2), a prefill of n prompts computes and reads n k, so that its delta is
// beta + gamma. Nil without step traces.
func (p *Physical) vector(f Flavour) []float64 {
	switch {
	case p == nil:
		return nil
	case f != wvA4P:
		return p.Params.Vector(f)
	}
	q := p.Params
	return []float64{q.AlphaMs, q.BetaMs + q.GammaMs*(p.Prompt+p.Output/2), q.AlphaMs, q.BetaMs + q.GammaMs}
}

// units of the parameters, in the flavour's order.
func units(f Flavour) []string {
	if f == wvA4P {
		return []string{"ms", "ms/request", "ms", "ms/(token request)"}
	}
	return []string{"ms/iteration", "ms/token computed", "ms/KV token read"}
}

// document is the parameters with what is known of them.
func (p *Physical) document(f Flavour) []queueParameter {
	if p == nil {
		return nil
	}
	var out []queueParameter
	x := p.vector(f)
	for i, name := range f.Parameters() {
		q := queueParameter{Name: name, Unit: units(f)[i], Value: x[i], Identified: measured}
		if f != wvA4P {
			q.CI95, q.Floor = p.CI95[i], result.OrNull(p.Floor[i])
			q.Utilisation = result.OrNull(p.Floor[i] / x[i])
			if p.Bound[i] {
				q.Identified = atBound
			}
		}
		out = append(out, q)
	}
	return out
}

// How a parameter came to its value.
const (
	measured = "measured" // the data show it
	held     = "held"     // at the physical value: the windows do not determine it
	atBound  = "bound"    // at the hardware's limit
)

// judge adds findings on effective parameters below the hardware's limit, and on those that
// are far from the physical ones.
func (s *Server) judge(f Flavour, params []queueParameter) (out []trace.Finding) {
	for i := range params {
		q := &params[i]
		if q.Utilisation != nil && *q.Utilisation > 1 {
			out = append(out, trace.Findingf(unlikelyParameter, "%s: %s of %.3g ms is below the hardware's %.3g ms (implied utilisation %.2f)",
				s.ID, q.Name, q.Value, *q.Floor, *q.Utilisation))
		}
		if q.Shift != nil && math.Abs(math.Log(*q.Shift)) > math.Ln2 {
			out = append(out, trace.Findingf(unlikelyParameter, "%s: effective %s is %.2g times the physical one (%s)", s.ID, q.Name, *q.Shift, f))
		}
	}
	return out
}

// speeds are how slow the machine's steps were in each window, relative to the median of the
// first `split` of them: nil without steps.
func (s *Server) speeds(split int) []float64 {
	if s.Physical == nil || split == 0 {
		return nil
	}
	out := make([]float64, len(s.Windows))
	for i := range s.Windows {
		out[i] = s.Physical.speedIn(&s.Windows[i])
	}
	usual := stat.Median(out[:split])
	for i := range out {
		out[i] /= usual
	}
	return out
}

// speedIn is measured over predicted time of the steps that begin in the window.
func (p *Physical) speedIn(w *window) float64 {
	lo, _ := slices.BinarySearch(p.steps.TimeNs, w.StartNs)
	hi, _ := slices.BinarySearch(p.steps.TimeNs, w.EndNs)
	return validate.DriftOf(p.steps.TimeNs[lo:hi], p.steps.Us[lo:hi], p.steps.PredUs[lo:hi], false).At(w.StartNs)
}

// atSpeed scores parameters whose times follow the machine: no forecast, since it reads the
// windows' own steps, but what is left of a miss when the machine's part is taken out.
func atSpeed(windows []window, f Flavour, x, speed []float64) queueScore {
	return evaluateAny(windows, func(i int, w *window) (ttft, itl float64, ok bool) {
		scaled := slices.Clone(x)
		for j := range scaled {
			scaled[j] *= speed[i]
		}
		return predictWindow(f, w, scaled, asSized)
	})
}
