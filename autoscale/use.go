package autoscale

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/option"
	"github.com/blis-train/blis-train/pipeline/report"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
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
	failed, findings := make([]error, len(doc.Servers)), make([][]trace.Finding, len(doc.Servers))
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
			known := stat.Map(fitted.Servers, func(q QueueServer) string { return q.ID })
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
		kv = min(deploy.MaxKVBlocks, int64(v.MaxBatch+1)*(longest/simBlock+1))
	}
	return &deploy.Deployment{TP: 1, PP: 1, DP: 1, Engine: deploy.Engine{
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
	cfg.Overhead, cfg.Async, cfg.Done = sim.Const(1000*v.OverheadMs), v.Async, done
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
		b.decode += float64(itl / 1000 * float64(r.OutputTokens-1))
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
		sumTTFT, decode, gaps = sumTTFT+b.ttft, decode+b.decode, gaps+b.gaps
		if b.n > 0 && b.gaps > 0 {
			ttft, itl = append(ttft, b.ttft/b.n), append(itl, b.decode/b.gaps)
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
		t.Requests, t.RateRPS = steadyRequests, load*capacity
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
