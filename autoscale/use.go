package autoscale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// SizeOptions say what `queue size` looks for.
type SizeOptions struct {
	Targets        Targets
	Prompt, Output float64 // lengths instead of the windows'; 0 = theirs
	Concurrency    int     // seats at most, of which the fewest near the peak are looked for; 0: those of the server
	Requests       int     // simulated at the rate found; 0 = none
	Seed           uint64
	Workers        int
}

// mostWanted is above any target or length, ms or tokens.
const mostWanted = 1e8

// mostSeats is above any max_num_seqs.
const mostSeats = 1 << 14

// check refuses options that are no lengths, no targets, or of another flavour.
func (o *SizeOptions) check(f Flavour) error {
	for _, v := range []struct {
		name  string
		value float64
	}{{"ttft-ms", o.Targets.TTFTMs}, {"itl-ms", o.Targets.ITLMs}, {"tps", o.Targets.TPS}, {"prompt-tokens", o.Prompt},
		{"output-tokens", o.Output}} {
		if !(v.value >= 0 && v.value <= mostWanted) {
			return option.Misusef("--%s: got %g, want a number from 0 to %g", v.name, v.value, mostWanted)
		}
	}
	switch {
	case o.Concurrency < 0 || o.Concurrency > mostSeats || o.Concurrency > 0 && f != inferno3P:
		return option.Misusef("--concurrency: got %d with flavour %s, want 1 to %d and %s, whose reader searches so", o.Concurrency, f, mostSeats,
			inferno3P)
	case o.Requests < 0:
		return option.Misusef("--simulate: got %d requests, want >= 0", o.Requests)
	case o.Requests > 0 && f == wvA4P:
		return option.Misusef("--simulate: got flavour %s, whose parameters are no step time, want one of three parameters", f)
	}
	return nil
}

// SizeQueues finds the rate of every server of a document, and simulates it. A server whose
// targets no load meets, or that has no parameters, gets a finding; it is an error when all
// are like that.
func SizeQueues(ctx context.Context, doc *Queue, o SizeOptions) error {
	if err := o.check(Flavour(doc.Flavour)); err != nil {
		return err
	}
	failed := make([]error, len(doc.Servers))
	findings := make([][]trace.Finding, len(doc.Servers))
	err := par.Try(ctx, o.Workers, len(doc.Servers), func(i int) error {
		s := &doc.Servers[i]
		s.Sizing = nil
		z, err := sizedOf(s, Flavour(doc.Flavour), o.Prompt, o.Output)
		if err != nil {
			failed[i] = err
			return nil
		}
		size, err := z.Size(o.Targets)
		if o.Concurrency > 0 {
			size, err = z.leastSeats(o.Targets, o.Concurrency)
		}
		if err != nil {
			failed[i] = err
			return nil
		}
		findings[i], s.Sizing = size.Findings, &size.QueueSizing
		if o.Requests > 0 {
			size.Simulated, err = simulate(z.p, z.v, trafficOf(z.s, size.RateRPS, o.Requests, o.Seed), ctx.Done())
		}
		return err
	}, nil)
	if err != nil {
		return err
	}
	sized := 0
	for i, why := range failed {
		if why == nil {
			sized++
		} else if coded := (*trace.Error)(nil); errors.As(why, &coded) {
			findings[i] = []trace.Finding{{Code: coded.Code, Message: coded.Msg}}
		}
		for _, f := range findings[i] {
			doc.Warnings = append(doc.Warnings, trace.Finding{Code: f.Code, Message: doc.Servers[i].ID + ": " + f.Message})
		}
	}
	if sized == 0 {
		return errors.Join(failed...)
	}
	return nil
}

// AllocateQueues places a problem's demands with the servers of a document, greedily as the
// autoscalers do, and to the optimum for up to ten of them.
func AllocateQueues(doc *Queue, p *Problem) error {
	demands, findings, err := p.Demands(doc)
	if err != nil {
		return err
	}
	doc.Warnings = append(doc.Warnings, findings...)
	plan, err := p.Allocate(demands)
	if err != nil {
		return err
	}
	best, err := p.Optimum(demands)
	if err != nil {
		return err
	}
	doc.Plan, doc.Optimum = plan, best
	return nil
}

// ValidateQueues scores the parameters of a document on servers made of other recordings,
// each by the fitted server of the same id, or by the one named.
func ValidateQueues(ctx context.Context, fitted *Queue, servers []*Server, by string, o *Options, requests int) ([]QueueServer, error) {
	out := make([]QueueServer, len(servers))
	err := par.Try(ctx, o.Workers, len(servers), func(i int) error {
		id := cmp.Or(by, servers[i].ID)
		from := fitted.Server(id)
		if from == nil {
			var known []string
			for _, q := range fitted.Servers {
				known = append(known, q.ID)
			}
			return trace.Errorf(badModel, "parameters of server %q: got none, have %s", id,
				trace.OneOf(known)).WithHint("--server ID takes those of another server")
		}
		doc, err := validateServer(from, servers[i], o, requests, ctx.Done())
		if err == nil {
			out[i] = *doc
		}
		return err
	}, nil)
	return out, err
}

// Page is the page of queue.json as one HTML file, and its sections: the parameters and where
// they come from, how well they hold, what online tuners would have said, and what follows.
func Page(q *Queue) ([]byte, []report.Section, error) {
	return report.Page(headOf(q), []report.Section{
		parameterSection(q), scoreSection(q), showSection(q), trackSection(q), sizeSection(q), planSection(q),
		originSection(q),
	})
}

const (
	simBlock   = 16  // tokens of a KV block
	warmUpFrac = 0.1 // of the requests, left out
	simBlocks  = 20  // of requests behind the standard errors
)

// simulatedEngine is the engine with a server's limits; without a size of the KV cache it has
// room for every seat.
func simulatedEngine(v Limits, longest int64) *deploy.Deployment {
	var kv int64
	if v.KVTokens != nil {
		kv = trace.Int(math.Trunc(*v.KVTokens)) / simBlock
	}
	if kv == 0 {
		kv = min(vllm.MaxKVBlocks, int64(v.MaxBatch+1)*(longest/simBlock+1))
	}
	return &deploy.Deployment{TP: 1, PP: 1, DP: 1, Engine: vllm.Engine{
		MaxNumSeqs: int64(v.MaxBatch), MaxNumBatchedTokens: int64(v.MaxBatchedTokens), ChunkedPrefill: true, BlockSize: simBlock,
		KVBlocksGPU: trace.Some(kv), MaxModelLen: trace.Some(int64(math.MaxInt32)), AsyncScheduling: trace.Some(v.Async),
		SchedulingPolicy: "fcfs",
	}}
}

// simulate runs the traffic through an engine whose steps take alpha + beta*computed +
// gamma*read. The waiting room is as large as it needs to be.
func simulate(p params, v Limits, t workload.Traffic, done <-chan struct{}) (*queueSimPoint, error) {
	reqs, _ := t.Draw()
	v.MaxBatchedTokens = cmp.Or(v.MaxBatchedTokens, defaultMaxBatchedTokens)
	step, err := sim.NewLinear3([]float64{1000 * p.AlphaMs, 1000 * p.BetaMs, 1000 * p.GammaMs})
	if err != nil {
		return nil, err
	}
	longest := slices.MaxFunc(reqs, func(a, b sim.Request) int {
		return int(a.PromptTokens + a.OutputTokens - b.PromptTokens - b.OutputTokens)
	})
	cfg := sim.DefaultConfig(simulatedEngine(v, longest.PromptTokens+longest.OutputTokens), step)
	cfg.Overhead = sim.Const(1000 * v.OverheadMs)
	cfg.Async = v.Async
	cfg.Done = done
	return play(cfg, reqs)
}

// play runs requests, and says what they experienced after the warm-up.
func play(cfg sim.Config, reqs []sim.Request) (*queueSimPoint, error) {
	m := meter{from: int(warmUpFrac * float64(len(reqs))), n: len(reqs)}
	if _, err := sim.Stream(cfg, reqs, nil, sim.InOrder(len(reqs), m.add)); err != nil {
		return nil, err
	}
	return m.point()
}

// meter collects what requests experienced, by blocks of them.
type meter struct {
	from, n   int
	ttft, itl []float64 // ms, per request
	sums      [simBlocks]struct{ ttft, decode, gaps, n float64 }
}

func (m *meter) add(i int, r *sim.RequestResult) bool {
	ttft, ok := r.TTFTUs()
	if i < m.from || !ok || !r.FinishedUs.OK {
		return true
	}
	b := &m.sums[(i-m.from)*simBlocks/(m.n-m.from)]
	b.n++
	b.ttft += ttft / 1000
	m.ttft = append(m.ttft, ttft/1000)
	if itl, ok := r.ITLUs(); ok {
		b.decode += itl / 1000 * float64(r.OutputTokens-1)
		b.gaps += float64(r.OutputTokens - 1)
		m.itl = append(m.itl, itl/1000)
	}
	return true
}

func (m *meter) point() (*queueSimPoint, error) {
	if len(m.ttft) == 0 {
		return nil, workload.ErrNothingFinished
	}
	var ttft, itl []float64
	var sumTTFT, decode, gaps float64
	for _, b := range m.sums {
		sumTTFT += b.ttft
		decode += b.decode
		gaps += b.gaps
		if b.n > 0 && b.gaps > 0 {
			ttft = append(ttft, b.ttft/b.n)
			itl = append(itl, b.decode/b.gaps)
		}
	}
	p := &queueSimPoint{Requests: len(m.ttft), TTFTMs: sumTTFT / float64(len(m.ttft)), TTFTP95Ms: stat.Quantile(stat.Sorted(m.ttft), 0.95)}
	if gaps > 0 {
		p.ITLMs, p.ITLP95Ms = decode/gaps, stat.Quantile(stat.Sorted(m.itl), 0.95)
		p.TTFTSeMs, p.ITLSeMs = stat.StdErr(ttft), stat.StdErr(itl)
	}
	return p, nil
}

// steady are the parameters of a queueing model that give a deployment's simulated steady state.
type steady struct {
	Params params
	Points []export.SteadyPoint // simulated, and what the fitted model says of it
}

// steadyLoads are the shares of the capacity that are simulated.
var steadyLoads = []float64{0.1, 0.2, 0.35, 0.5, 0.65, 0.8}

const (
	steadyRequests = 1500 // at each load
	steadyRoom     = 10   // waiting room per seat, as workload-variant-autoscaler allocates
)

// SteadyState simulates a deployment at six loads, Poisson arrivals and log-normal lengths about
// the means, and fits wva-4p to mean TTFT and ITL there: what an autoscaler that solves this model
// needs in order to see what the deployment does, waits and prefills beside decodes included.
func SteadyState(d *deploy.Deployment, step sim.Model, overheadMs, prompt, output float64) (*steady, error) {
	seats := int(d.Seats(prompt + output))
	v := Limits{MaxBatch: seats, Queue: steadyRoom * seats, MaxBatchedTokens: int(d.Engine.MaxNumBatchedTokens), OverheadMs: overheadMs}
	t := workload.ChatTraffic(d, prompt, output)
	capacity, err := t.Capacity(d, step)
	if err != nil {
		return nil, err
	}
	out := &steady{}
	var windows []window
	for _, load := range steadyLoads {
		t.Requests = steadyRequests
		t.RateRPS = load * capacity
		cfg := sim.DefaultConfig(d, step)
		cfg.Overhead = sim.Const(1000 * overheadMs)
		reqs, drawn := t.Draw()
		got, err := play(cfg, reqs)
		if err != nil {
			return nil, err
		}
		rate := t.DrawnRate()
		windows = append(windows, window{Requests: got.Requests, RateRPS: rate, Shape: drawn, Limits: v,
			TTFTMs: got.TTFTMs, ITLMs: got.ITLMs, TTFTSeMs: got.TTFTSeMs, ITLSeMs: got.ITLSeMs})
		out.Points = append(out.Points, export.SteadyPoint{LoadFrac: load, RateRPS: rate, TTFTMs: got.TTFTMs, ITLMs: got.ITLMs})
	}
	o := defaultFit(wvA4P)
	o.Physical = startOf(windows)
	fit, err := Fit(windows, o)
	if err != nil {
		return nil, err
	}
	out.Params = fromVector(fit.X)
	for i := range windows {
		p := &out.Points[i]
		if ttft, itl, ok := predictWindow(wvA4P, &windows[i], fit.X, asSized); ok {
			p.TTFTErr, p.ITLErr = result.OrNull(ttft/p.TTFTMs-1), result.OrNull(itl/p.ITLMs-1)
		}
	}
	return out, nil
}

// startOf reads the four-parameter form off the lightest and the heaviest load: what stands where
// the loads show no more.
func startOf(w []window) []float64 {
	lo, hi := &w[0], &w[len(w)-1]
	busy := math.Max(1, hi.RateRPS/1000*hi.ITLMs*hi.Shape.Output) // requests in service, about
	slope := func(a, b float64) float64 { return math.Max(b-a, 1e-3*a) / busy }
	return []float64{lo.ITLMs, slope(lo.ITLMs, hi.ITLMs), lo.TTFTMs, slope(lo.TTFTMs, hi.TTFTMs) / hi.Shape.Prompt}
}

// Limits of a validation: the errors that an autoscaler can live with.
const (
	MaxTTFTWape = 0.20
	MaxITLWape  = 0.10
)

// validateServer scores the parameters of an earlier fit on the windows of a server they have not
// seen, beside the medians of the fitted windows and, for flavours whose parameters are a
// step time, the simulator with the same parameters (requests > 0). The document is the
// fitted server's, with the scores of set "validation" and this server's windows.
func validateServer(fitted *QueueServer, s *Server, o *Options, requests int, done <-chan struct{}) (*QueueServer, error) {
	f := &Calibrated{Server: s}
	f.describe(o)
	doc := f.Doc
	doc.Physical = fitted.Physical
	doc.Effective = fitted.Effective
	doc.Steps = fitted.Steps
	if s.Reason != "" {
		return &doc, nil
	}
	if len(s.Windows) == 0 {
		var why []string
		for _, reason := range slices.Sorted(maps.Keys(doc.Windows.Dropped)) {
			why = append(why, fmt.Sprintf("%s %d", reason, doc.Windows.Dropped[reason]))
		}
		doc.Reason = trace.Errorf(noWindows, "no window is left (%s)", strings.Join(why, ", ")).Error()
		return &doc, nil
	}
	for _, e := range []struct {
		name   string
		params []queueParameter
	}{{estEffective, fitted.Effective}, {estPhysical, fitted.Physical}} {
		if len(e.params) == 0 {
			continue
		}
		x := valuesOf(e.params)
		doc.Scores = append(doc.Scores, scoreOf(e.name, validation, evaluate(s.Windows, o.Flavour, x, asSized)))
		if o.Flavour == wvA4P || requests == 0 {
			continue
		}
		score, err := s.simulated(fromVector(x), requests, done)
		if err != nil {
			return nil, err
		}
		doc.Scores = append(doc.Scores, scoreOf("simulator:"+e.name, validation, score))
	}
	if l := fitted.Load; l != nil {
		constant := []window{{TTFTMs: l.TTFTMs, ITLMs: l.ITLMs}}
		doc.Scores = append(doc.Scores, scoreOf(estConstant, validation, evaluateConstant(constant, s.Windows)))
	}
	return &doc, nil
}

// validation is the set of windows of another recording.
const validation = "validation"

func valuesOf(params []queueParameter) []float64 {
	var out []float64
	for _, q := range params {
		out = append(out, q.Value)
	}
	return out
}

// simulated scores the simulator on the windows: each window's rate and lengths, n requests.
func (s *Server) simulated(p params, n int, done <-chan struct{}) (queueScore, error) {
	var failed error
	score := evaluateAny(s.Windows, func(_ int, w *window) (ttft, itl float64, ok bool) {
		got, err := simulate(p, w.Limits, trafficOf(w.Shape, w.RateRPS, n, 1), done)
		if err != nil {
			failed = err
			return 0, 0, false
		}
		return got.TTFTMs, got.ITLMs, got.ITLMs > 0
	})
	return score, failed
}

// Passed reports whether the effective parameters of a validated server, or the physical
// ones without them, are within the limits.
func Passed(s *QueueServer) bool {
	for _, x := range s.Scores {
		if x.Set == validation && (x.Estimator == estEffective || x.Estimator == estPhysical && len(s.Effective) == 0) {
			return x.Unpredicted == 0 && x.TTFTWape != nil && *x.TTFTWape <= MaxTTFTWape && *x.ITLWape <= MaxITLWape
		}
	}
	return false
}

// summarize says how consistent a filter's run was: MeanNIS is 2 for one whose noise is right; below 2 it is underconfident
// (its R or P is too large), above 2 overconfident. Innovations that are white leave nothing to learn.
func summarize(windows []window, steps []step) queueTrack {
	s := queueTrack{Windows: len(steps)}
	var nis float64
	predicted, rejected := 0, 0
	var innovations [2][]float64
	for i := range steps {
		st := &steps[i]
		if st.Accepted() {
			s.Accepted++
			s.LockedOut = 0
		} else {
			s.LockedOut++
		}
		if math.IsNaN(st.NIS) {
			s.Unpredicted++
			continue
		}
		predicted++
		nis += st.NIS
		if st.Verdict == rejectedNIS || st.Verdict == acceptedOpening {
			rejected++
		}
		w := &windows[st.Window]
		innovations[0] = append(innovations[0], st.Innovation[0]/w.TTFTMs)
		innovations[1] = append(innovations[1], st.Innovation[1]/w.ITLMs)
	}
	if predicted > 0 {
		s.MeanNIS = result.OrNull(nis / float64(predicted))
		s.RejectedFrac = float64(rejected) / float64(predicted)
	}
	for m := range innovations {
		s.Whiteness[m] = result.OrNull(lag1(innovations[m]))
	}
	return s
}

// lag1 is the correlation of neighbours; NaN below three values.
func lag1(v []float64) float64 {
	if len(v) < 3 {
		return math.NaN()
	}
	mean := stat.Mean(v)
	var next, all float64
	for i, x := range v {
		all += (x - mean) * (x - mean)
		if i > 0 {
			next += (x - mean) * (v[i-1] - mean)
		}
	}
	if all == 0 {
		return math.NaN()
	}
	return next / all
}

// evaluate scores parameters on windows; those without a prediction are counted apart.
func evaluate(windows []window, f Flavour, x []float64, as observation) queueScore {
	return evaluateAny(windows, func(_ int, w *window) (float64, float64, bool) { return predictWindow(f, w, x, as) })
}

// evaluateConstant scores the medians of the training windows.
func evaluateConstant(train, windows []window) queueScore {
	var ttfts, itls []float64
	for _, w := range train {
		ttfts = append(ttfts, w.TTFTMs)
		itls = append(itls, w.ITLMs)
	}
	ttft := stat.Median(ttfts)
	itl := stat.Median(itls)
	return evaluateAny(windows, func(int, *window) (float64, float64, bool) { return ttft, itl, len(train) > 0 })
}

// evaluateAny scores any predictor: TTFT and ITL of window i in ms, or none. WAPE is the sum of absolute errors over
// the sum of observations, the bias that of signed errors.
func evaluateAny(windows []window, predicted func(i int, w *window) (ttft, itl float64, ok bool)) queueScore {
	var s queueScore
	var ttft, itl, ttftOff, itlOff, ttftBias, itlBias float64
	for i := range windows {
		w := &windows[i]
		a, b, ok := predicted(i, w)
		if !ok {
			s.Unpredicted++
			continue
		}
		s.Windows++
		ttft, itl = ttft+w.TTFTMs, itl+w.ITLMs
		ttftOff = ttftOff + math.Abs(a-w.TTFTMs)
		itlOff = itlOff + math.Abs(b-w.ITLMs)
		ttftBias = ttftBias + (a - w.TTFTMs)
		itlBias = itlBias + (b - w.ITLMs)
	}
	s.TTFTWape, s.TTFTBias = result.OrNull(ttftOff/ttft), result.OrNull(ttftBias/ttft)
	s.ITLWape, s.ITLBias = result.OrNull(itlOff/itl), result.OrNull(itlBias/itl)
	return s
}

// evaluateAhead scores what an online estimator predicted of each window before it used it.
func evaluateAhead(windows []window, steps []step) queueScore {
	var used []window
	for _, s := range steps {
		used = append(used, windows[s.Window])
	}
	return evaluateAny(used, func(i int, w *window) (ttft, itl float64, ok bool) {
		y := steps[i].Innovation
		return w.TTFTMs - y[0], w.ITLMs - y[1], y != [2]float64{}
	})
}

// Limits of the gates that a calibration passes before an autoscaler gets it (spec#queue-verdict).
const (
	maxHeldTTFTWape = 0.25
	maxHeldITLWape  = 0.10
)

// verdict judges the parameters by the windows they were not fitted to: the fitted ones by those of a fit to the
// training windows, the physical ones, of a server without fitted ones, as they are. Null without parameters.
func (f *Calibrated) verdict() *coeff.Judgement {
	q := &f.Doc
	params, by := q.Effective, estEffective
	if len(params) == 0 {
		params, by = q.Physical, estPhysical
	}
	if len(params) == 0 {
		return nil
	}
	v := &coeff.Judgement{Verdict: coeff.VerdictPass}
	var ttft, itl *float64
	for i := range q.Scores {
		if s := &q.Scores[i]; s.Set == holdOut && s.Estimator == by && s.Unpredicted == 0 {
			ttft, itl = s.TTFTWape, s.ITLWape
		}
	}
	none := fmt.Sprintf("%d windows, none predicted of a hold-out; %d and more have one", len(f.Windows), leastHoldOut)
	v.AtMost("hold_out_ttft_wape", q.ID, ttft, maxHeldTTFTWape, none)
	v.AtMost("hold_out_itl_wape", q.ID, itl, maxHeldITLWape, none)
	unknown := 0.0
	for _, p := range params {
		if p.Identified != measured && p.Identified != held {
			unknown++
		}
	}
	v.AtMost("parameters_neither_measured_nor_held", q.ID, &unknown, 0, "")
	v.AtMost("hold_out_load_outside_fitted", q.ID, f.outside(), 0, none)
	return v
}

// outside is by what share of the fitted loads' nearer end the median load of the hold-out is beyond them, requests/s;
// nil without a hold-out.
func (f *Calibrated) outside() *float64 {
	if f.Split >= len(f.Windows) || f.Split == 0 {
		return nil
	}
	var rates []float64
	for _, w := range f.Windows {
		rates = append(rates, w.RateRPS)
	}
	lo := slices.Min(rates[:f.Split])
	hi := slices.Max(rates[:f.Split])
	mid := stat.Median(rates[f.Split:])
	return new(max(0, mid/hi-1, 1-mid/lo))
}

// VerdictOf is the worst verdict of the servers that an export takes (id; "": all), with what failed or is missing. Servers of
// an older file without one were not validated.
func (q *Queue) VerdictOf(id string) (verdict string, why []string) {
	for i := range q.Servers {
		s := &q.Servers[i]
		if s.Verdict == nil || id != "" && id != s.ID {
			continue
		}
		verdict = coeff.WorseVerdict(verdict, s.Verdict.Verdict)
		why = append(why, s.Verdict.Failed()...)
	}
	return verdict, why
}

// Of an engine that is sought: requests of a simulated window, output tokens of them all, passes with a quarter of both before one
// with all, the difference of logarithms that slopes are taken over, and the relative error of every mean besides its scatter.
const (
	engineRequests = 4000
	engineTokens   = 12e6
	enginePasses   = 3
	engineStep     = 0.01
	engineFloor    = 0.002
	engineHuber    = 1.345
)

// engine is what alpha, beta and gamma the simulator needs in order to show what the windows show (spec#queue-simulated).
type engine struct {
	at        []float64    // logarithms of the parameters that were simulated
	residuals []float64    // logarithms of observed over simulated TTFT and ITL of each window, in standard deviations
	slopes    [][3]float64 // of the simulated ones by the parameters' logarithms, likewise
}

// lawsOf are the laws of output lengths that the windows' spreads leave open: without any spread a constant and an exponential one.
func lawsOf(windows []window) []workload.Law {
	switch cv2 := stat.Median(stat.Map(windows, func(w window) float64 { return w.Shape.OutputCV2 })); {
	case cv2 == 0:
		return []workload.Law{workload.ConstantLaw, workload.ExponentialLaw}
	case cv2 > 0.8 && cv2 < 1.25:
		return []workload.Law{workload.ExponentialLaw}
	}
	return []workload.Law{workload.LogNormalLaw}
}

// newEngine goes from a flavour's parameters x, by way of the corrected model's, to the engine's. nil for wva-4p, whose parameters are no
// iteration's, and where a window cannot be simulated.
func newEngine(windows []window, x []float64, law workload.Law, f Flavour) *engine {
	o, tokens := defaultFit(corrected), 0.0
	o.Near = x
	near, err := Fit(windows, o)
	if f == wvA4P || err != nil {
		return nil
	}
	for i := range windows {
		tokens += windows[i].Shape.Output
	}
	e := &engine{at: logs(near.X)}
	n := int(math.Min(engineRequests, engineTokens/tokens))
	for range enginePasses {
		if !e.look(windows, law, n/4) {
			return nil
		}
		e.at, _ = e.step(make([]int, len(windows)), -1)
	}
	if !e.look(windows, law, n) {
		return nil
	}
	return e
}

// look simulates every window. Drawn lengths and rates are not quite the windows': the corrected model says what that does.
func (e *engine) look(windows []window, law workload.Law, requests int) bool {
	e.residuals = make([]float64, 2*len(windows))
	e.slopes = make([][3]float64, 2*len(windows))
	for i := range windows {
		w, as := &windows[i], windows[i]
		t := workload.Traffic{Shape: w.Shape, Prompts: workload.LogNormalLaw, Output: law, RateRPS: w.RateRPS, Requests: requests,
			Seed: uint64(i + 1)}
		_, drawn := t.Draw()
		got, err := simulate(fromVector(exp(e.at)), w.Limits, t, nil)
		if err != nil || !(got.ITLSeMs > 0) {
			return false
		}
		as.Shape, as.RateRPS = drawn, t.DrawnRate()
		var near [5][2]float64 // a step up in each direction, none, and none of what was drawn
		for j := range near {
			of, z := w, append([]float64(nil), e.at...)
			if j < 3 {
				z[j] += engineStep
			} else if j == 4 {
				of = &as
			}
			var ok bool
			if near[j][0], near[j][1], ok = predictWindow(corrected, of, exp(z), asSized); !ok {
				return false
			}
		}
		both := math.Sqrt(1 + float64(got.Requests)/float64(cmp.Or(w.Requests, got.Requests))) // the window scatters too
		for m, v := range [2][3]float64{{w.TTFTMs, got.TTFTMs, got.TTFTSeMs}, {w.ITLMs, got.ITLMs, got.ITLSeMs}} {
			se := math.Hypot(both*v[2]/v[1], engineFloor)
			e.residuals[2*i+m] = math.Log(v[0]/v[1]*near[4][m]/near[3][m]) / se
			for j := range 3 {
				e.slopes[2*i+m][j] = math.Log(near[j][m]/near[3][m]) / engineStep / se
			}
		}
	}
	return true
}

// step are the logarithms of the parameters, with standard errors, that explain the residuals of the windows of other groups than
// one; residuals far beyond the others' weigh less (Huber).
func (e *engine) step(group []int, without int) (x, se []float64) {
	a := make([]float64, 9)
	g := make([]float64, 3)
	scale := [2]float64{}
	for m := range scale {
		var size []float64
		for i := range group {
			size = append(size, math.Abs(e.residuals[2*i+m]))
		}
		scale[m] = math.Max(1, madToSigma*stat.Median(size))
	}
	for i, r := range e.residuals {
		if group[i/2] == without {
			continue
		}
		one := 1 / scale[i%2]
		weight := math.Min(one, engineHuber/math.Max(math.Abs(r), 1e-9)) * one
		for x := range 3 {
			g[x] -= weight * r * e.slopes[i][x]
			for y := range 3 {
				a[3*x+y] += weight * e.slopes[i][x] * e.slopes[i][y]
			}
		}
	}
	x, se = append(x, e.at...), make([]float64, 3)
	cov := stat.Inverse(a, 3)
	for j, d := range solveDamped(a, g, 1e-9) {
		if x[j] += d; cov != nil {
			se[j] = math.Sqrt(cov[4*j])
		}
	}
	return x, se
}

// Codes of the queueing product.
const (
	badModel         trace.Code = "bad_queue_model"
	targetBelowRange trace.Code = "target_below_range"
	sizingRemark     trace.Code = "sizing_remark"
	noWindows        trace.Code = "no_windows"
	fewRequests      trace.Code = "few_requests"
	closedLoop       trace.Code = "closed_loop_window"
	noLatency        trace.Code = "no_latency"
	beyondLoads      trace.Code = "beyond_loads"
	unknownFormat    trace.Code = "unknown_export_format"
	narrowLine       trace.Code = "narrow_line"
)

// Codes of other packages that mean the same here.
const (
	badOption         = rows.BadOption
	heldParameter     = fit.NotIdentified
	unlikelyParameter = fit.Implausible
	saturatedWindow   = rows.Saturated
)
