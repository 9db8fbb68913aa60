package sizing

// This file measures one candidate: one kind of server, of which it finds the fewest that meet the
// targets.

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/cluster"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// How much is simulated. Probes decide where to look; a row has the mean of several replications.
const (
	measuredRequests  = 2000
	leastReplications = 6
	mostReplications  = 24
)

// What needs no second look: targets that are missed by this share of the value, and a load this many times the
// highest that meets the targets in a probe.
const (
	farOff      = 1.0 / 3
	clearlyMore = 1.1
)

// Intervals that replications are repeated for: their whole width over the value, for medians, and for means
// and other percentiles. They are widened within these limits to hold a repetition of so many requests.
const (
	narrowMedian       = 0.05
	narrowTail         = 0.15
	highestNarrowed    = 0.95 // of higher percentiles no width is promised
	repetitionRequests = 24_000
)

// widestOf returns how wide the interval of a statistic may be, as a share of its value, before more
// replications are simulated.
func widestOf(quantile float64) float64 {
	if quantile == 0.5 {
		return narrowMedian
	}
	return narrowTail
}

// candidate is one kind of server on its way to a row.
type candidate struct {
	q        *Question
	hardware string // as the question names the GPU
	tp       int64
	ep       bool // expert parallelism
	kind     kind
	asked    predict.Question    // the question's, with this candidate's settings
	server   *predict.Prediction // bound to its step times
	notes    []trace.Finding
	idleS    float64  // warm-up that follows from the answers of an idle server, s
	highest  float64  // highest load of one server that met the targets in a probe; 0: not searched for
	found    capacity // result of the last search, by which fillHeadroom may save one
	warmUpS  float64  // longest warm-up that a closed loop needed so far, s
	// started has what the first simulation of a part of the load needed to be in its steady state.
	started map[startOf]predict.SteadyState
	// probed has what the last probe with these servers and lengths, whatever its amount, needed for that.
	probed map[startOf]predict.SteadyState
}

// row returns the fewest replicas that meet the targets, with their measured latencies.
func (c *candidate) row(ctx context.Context) (Row, error) {
	row := Row{Hardware: c.hardware, TP: c.tp, EP: c.ep, DP: 1, Drafts: c.kind.isDrafting, Pools: c.kind.isPools}
	if sheet, isKnown := deploy.Datasheet(c.hardware); isKnown { // also where the server cannot be built
		row.Hardware = sheet.Name
	}
	server, deployment, err := c.asked.Server(ctx)
	if err != nil {
		return row, err
	}
	if longest := deployment.MaxModelLen(); longest.OK && c.q.Load.Workload != nil {
		if n := c.q.Load.CountLonger(longest.V); n > 0 {
			return row, trace.Errorf(sim.CodeBadConfig, "%d of %d prompts of the workload are longer than %s tokens, the longest sequence of %s",
				n, len(c.q.Load.Workload.Requests), trace.Thousands(longest.V), server.Model).
				WithHint("take a model with longer sequences, or leave these requests out of the workload")
		}
	}
	if c.q.Load.CachedShare > 0 && !deployment.Engine.PrefixCaching {
		return row, trace.Errorf(vllm.BadKnobs, "cached share of prompts: got %g with enable_prefix_caching false, want 0", c.q.Load.CachedShare).
			WithHint("leave --cached out, or state --enable-prefix-caching in --vllm")
	}
	own := *c.q // the requests of this server stay within its longest sequence
	own.Load.Longest = deployment.LongestSequence().V
	c.q = &own
	c.server = server
	c.notes = server.Warnings
	row.Hardware = server.Hardware
	row.DP = server.DP
	if deployment.PP > 1 {
		row.PP = deployment.PP
	}
	row.EP = server.EP
	row.setTrust(server)
	row.Bound = server.Step == nil
	row.Serve = c.serveLine()
	if server.GPUs > int64(c.q.MostGPUs) {
		row.Refused = fmt.Sprintf("needs %d GPUs, more than %d", server.GPUs, c.q.MostGPUs)
		return row, nil
	}
	if c.idleS, err = server.WarmUpS(&c.q.Load, c.q.Seed); err != nil {
		return row, err
	}
	c.warmUpS = c.idleS
	if c.kind.isPools {
		return row, c.pools(ctx, &row)
	}
	n, why, err := c.fewest(ctx)
	if err != nil {
		return row, err
	}
	if n == 0 {
		row.Refused = why
		return row, nil
	}
	samples, n, err := c.confirm(ctx, n, c.measure)
	if err != nil {
		return row, err
	}
	if samples == nil {
		row.Refused = fmt.Sprintf("not met with %d GPUs", int64(c.mostReplicas())*c.server.GPUs)
		return row, nil
	}
	measured, err := c.measuredRow(ctx, row, n, samples)
	if err != nil {
		return row, err
	}
	return *measured, nil
}

// setTrust stores how far the answers of a server can be relied on.
func (r *Row) setTrust(server *predict.Prediction) {
	r.Family = server.Trust.Family
	r.Trust = server.Trust.Sentence
	r.TrustSummary = cmp.Or(server.Trust.Summary, r.Trust)
}

// measuredRow returns the row of n replicas with what their samples measured. Of row it has what does not depend
// on their number.
func (c *candidate) measuredRow(ctx context.Context, row Row, n int, samples []*predict.Sample) (*Row, error) {
	row.Replicas = n
	row.GPUs = int64(n) * c.server.GPUs
	row.Figures = nil
	row.Measured = 0
	c.fillFigures(&row, samples)
	if err := c.fillHeadroom(ctx, &row); err != nil {
		return nil, err
	}
	c.fillPrice(&row)
	return &row, nil
}

// mostReplicas returns the number of replicas that fit on the most GPUs that the question allows.
func (c *candidate) mostReplicas() int { return c.q.MostGPUs / int(c.server.GPUs) }

// isAlike reports whether servers are alike and independent of each other: behind a round-robin router each of
// n servers gets every n-th arrival. One of them is simulated then, for as many requests as all
// would be: n short simulations would hardly leave the state in which they start.
func (c *candidate) isAlike() bool {
	return c.q.Load.RateRPS > 0 && !c.q.Load.IsWorkload() && c.q.Routing == cluster.RouteRoundRobin && !c.kind.isPools
}

// simulate serves the load with n servers, or with one that represents n.
func (c *candidate) simulate(n int, seed int64, measured int) (*predict.Sample, error) {
	load, simulated, sharing := c.simulatedPart(n)
	return c.serve(part{load: load, servers: simulated, sharing: sharing, measured: measured}, seed, c.replicas(simulated))
}

// simulatedPart returns what is simulated for n servers: a load, the number of servers that it goes to, and
// the number of servers that share the arrivals of which the load is a part (servers of predict.Load.Stretch).
func (c *candidate) simulatedPart(n int) (load predict.Load, simulated, sharing int) {
	if c.isAlike() {
		return c.q.Load.WithAmount(c.q.Load.Amount() / float64(n)), 1, n
	}
	return c.q.Load, n, 1
}

// servers simulates the servers of a deployment.
type servers func(sim.Config, []sim.Request) ([]sim.RequestResult, []*sim.Result, error)

// replicas returns a function that simulates requests on n servers behind the router.
func (c *candidate) replicas(n int) servers {
	return func(engine sim.Config, requests []sim.Request) ([]sim.RequestResult, []*sim.Result, error) {
		return cluster.Servers(engine, n, c.q.Routing, requests)
	}
}

// part is what is simulated of the question's load.
type part struct {
	load       predict.Load
	servers    int  // that it goes to
	sharing    int  // servers that share the arrivals of which the load is a part (servers of predict.Load.Stretch)
	measured   int  // requests
	atMeanRate bool // predict.Stretch.AtMeanRate
}

// startOf is what the steady state of a part depends on, whatever the seed.
type startOf struct {
	amount                     float64
	input, output              int64
	servers, sharing, measured int
}

// withoutAmount returns what is the same for all loads of the same lengths.
func (k startOf) withoutAmount() startOf {
	return startOf{input: k.input, output: k.output, servers: k.servers}
}

// serve simulates a part of the load, again with more of it where the servers were not in their steady state.
func (c *candidate) serve(p part, seed int64, by servers) (*predict.Sample, error) {
	key := startOf{amount: p.load.Amount(), input: p.load.InputTokens, output: p.load.OutputTokens,
		servers: p.servers, sharing: p.sharing, measured: p.measured}
	steady, isKnown := c.started[key]
	if !isKnown {
		steady = c.server.SteadyState(p.load, p.servers, c.idleS, p.measured)
		if p.load.Clients > 0 {
			steady.WarmUpS = c.warmUpS
		}
		if p.atMeanRate {
			like := c.probed[key.withoutAmount()]
			steady.BeginLike(&like)
		}
	}
	for {
		s, err := steady.Stretch(seed, p.sharing)
		if err != nil {
			return nil, err
		}
		if p.atMeanRate {
			s.AtMeanRate()
		}
		cfg, err := c.server.Engine(seed)
		if err != nil {
			return nil, err
		}
		requests, engines, err := by(cfg, s.Requests)
		if err != nil {
			return nil, err
		}
		sample := predict.NewSample(requests, engines, s)
		if isKnown || p.load.IsWorkload() || !steady.Lengthen(sample) {
			if c.started == nil {
				c.started = map[startOf]predict.SteadyState{}
				c.probed = map[startOf]predict.SteadyState{}
			}
			c.started[key] = steady
			if p.atMeanRate {
				c.probed[key.withoutAmount()] = steady
			}
			if p.load.Clients > 0 {
				c.warmUpS = max(c.warmUpS, steady.WarmUpS)
			}
			return sample, nil
		}
	}
}

// probeSample simulates one of n servers at a load of its own for as long as a probe takes.
func (c *candidate) probeSample(amount float64, n int) (*predict.Sample, error) {
	load := c.q.Load.WithAmount(amount)
	return c.serve(part{load: load, servers: 1, sharing: n, measured: predict.ProbeRequests, atMeanRate: true}, c.q.Seed, c.replicas(1))
}

// confirm simulates n replicas with several seeds, and more or fewer of them until the fewest that
// meet the targets are found, and returns their samples and number. It returns no samples if no
// number below the limit meets the targets.
func (c *candidate) confirm(ctx context.Context, n int, measure measurement) ([]*predict.Sample, int, error) {
	tried := map[int][]*predict.Sample{}
	farTargets := c.q.Targets.Tightened(predict.EqualErrors(-farOff)) // two simulations that miss by so much decide
	meets := func(n int) (bool, error) {
		if tried[n] == nil {
			samples, err := c.replicate(ctx, n, nil, measure, func(s []*predict.Sample) bool {
				return len(s) >= leastReplications || len(s) == 2 && predict.Broken(s, &farTargets) != ""
			})
			if err != nil {
				return false, err
			}
			tried[n] = samples
		}
		return predict.Broken(tried[n], &c.q.Targets) == "", nil
	}
	// More servers while the targets are missed; fewer if one less meets them too.
	for n >= 1 && n <= c.mostReplicas() {
		ok, err := meets(n)
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			n++
			continue
		}
		// One server less is not tried where each would get clearly more than the highest load.
		isHopeless := n > 1 && c.highest > 0 && c.q.Load.Amount()/float64(n-1) > c.highest*clearlyMore
		if n > 1 && !isHopeless {
			fewer, err := meets(n - 1)
			if err != nil {
				return nil, 0, err
			}
			if fewer {
				n--
				continue
			}
		}
		samples, err := c.replicate(ctx, n, tried[n], measure, c.isNarrow)
		if err != nil {
			return nil, 0, err
		}
		tried[n] = samples // more of them may break what fewer met: then the loop goes on
		if predict.Broken(samples, &c.q.Targets) == "" {
			return samples, n, nil
		}
	}
	return nil, 0, nil
}

// measurement returns a sample of n replicas with a seed.
type measurement func(n int, seed int64) (*predict.Sample, error)

// measure simulates as many requests as a replication of a row has.
func (c *candidate) measure(n int, seed int64) (*predict.Sample, error) {
	return c.simulate(n, seed, c.q.measured)
}

// replicate returns the samples with further ones, one seed after the other, until areEnough
// returns true.
func (c *candidate) replicate(
	ctx context.Context, n int, samples []*predict.Sample, measure measurement, areEnough func([]*predict.Sample) bool,
) ([]*predict.Sample, error) {
	most := c.q.replications
	if c.q.Load.IsRecording() {
		most = 1
	}
	for len(samples) < most && !areEnough(samples) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := measure(n, c.q.Seed+int64(len(samples)))
		if err != nil {
			return nil, err
		}
		samples = append(samples, s)
	}
	return samples, nil
}

// shownFigures returns the statistics of a row: those of the targets, and the usual ones.
func (c *candidate) shownFigures() []predict.Target {
	var out []predict.Target
	add := func(t predict.Target) {
		for _, o := range out {
			if o.Metric == t.Metric && o.Quantile == t.Quantile {
				return
			}
		}
		out = append(out, t)
	}
	if c.q.Targets.Goodput == 0 {
		for _, t := range c.q.Targets.Limits {
			add(t)
		}
	}
	for _, metric := range predict.Metrics {
		for _, quantile := range []float64{0, 0.5, 0.9, 0.95, 0.99} { // 0: the mean
			add(predict.Target{Metric: metric, Quantile: quantile})
		}
	}
	return out
}

// isNarrow reports whether the intervals of the statistics that decide are as narrow as promised.
func (c *candidate) isNarrow(samples []*predict.Sample) bool {
	if len(samples) < leastReplications {
		return false
	}
	for _, t := range c.shownFigures() {
		if t.Quantile > highestNarrowed { // would need far more replications
			continue
		}
		v := predict.ValueOf(samples, func(s *predict.Sample) float64 { return s.Figure(t.Metric, t.Quantile) })
		if width := (v.High - v.Low) / v.Value; !(width <= widestOf(t.Quantile)) {
			return false
		}
	}
	return true
}

// fillFigures sets what the replications measured and whether it meets the targets.
func (c *candidate) fillFigures(row *Row, samples []*predict.Sample) {
	server := c.server.In(&c.q.Load, row.Replicas, samples)
	row.setTrust(server)
	stated := server.StatedErrors(samples)
	for _, t := range c.shownFigures() {
		figure := func(s *predict.Sample) float64 { return s.Figure(t.Metric, t.Quantile) }
		v := predict.Widened(samples, figure, repetitionRequests, widestOf(t.Quantile))
		if c.q.Load.IsRecording() {
			v = samples[0].OfRecording(t.Metric, t.Quantile)
		}
		if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
			continue
		}
		f := Figure{Metric: t.Metric, Statistic: t.Figure(), Ms: v, LimitMs: t.LimitMs}
		if !row.Bound {
			e := stated.Of(t.Metric)
			f.ErrorLow = v.Value / (1 + e)
			f.ErrorHigh = v.Value * (1 + e)
		}
		row.Figures = append(row.Figures, f)
	}
	if c.q.Targets.Goodput > 0 {
		v := predict.ValueOf(samples, func(s *predict.Sample) float64 { return s.Goodput(c.q.Targets.Limits) })
		row.Goodput = &v
	}
	simulated := 1.0 // servers that one simulated server represents
	if c.isAlike() {
		simulated = float64(row.Replicas)
	}
	rate := predict.ValueOf(samples, func(s *predict.Sample) float64 { return simulated * float64(s.Served) / s.ServedS })
	tokens := predict.ValueOf(samples, func(s *predict.Sample) float64 { return simulated * float64(s.Tokens) / s.ServedS })
	rate, tokens = c.q.Load.NoMoreThanArrives(rate, tokens)
	row.RequestsPerS = &rate
	row.TokensPerS = &tokens
	row.InFlight = simulated * predict.ValueOf(samples, func(s *predict.Sample) float64 { return s.MeanInFlight }).Value
	row.Replications = len(samples)
	for _, s := range samples {
		row.Measured += len(s.TTFT)
	}
	tight := c.q.Targets.Tightened(stated)
	switch {
	case row.Bound:
		row.Met = MetBound
	case row.Pools || row.Drafts: // no such server was compared
		row.Met = MetEstimate
	case predict.Broken(samples, &tight) == "":
		row.Met = MetYes
	default:
		row.Met = MetEstimate
	}
}

// fillPrice sets what the deployment costs, where its GPU has a price.
func (c *candidate) fillPrice(row *Row) {
	row.price = math.Inf(1)
	price, known := c.q.Prices[c.hardware]
	if !known {
		return
	}
	perHour := price * float64(row.GPUs)
	perMillion := perHour / 3600 / row.TokensPerS.Value * 1e6
	row.price = perHour
	row.USDPerHour = &perHour
	row.USDPerMToken = &perMillion
}
