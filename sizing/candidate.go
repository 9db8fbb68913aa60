package sizing

import (
	"context"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/trace"
)

// How much is simulated. Probes decide where to look; a row has the mean of several replications.
const (
	probeRequests     = 500
	measuredRequests  = 1200
	leastReplications = 4
	mostReplications  = 24
	warmUpAnswers     = 3 // a warm-up lasts so many answers of an idle server, each under load somewhat longer
	mostWarmUpS       = 300
)

// Intervals that replications are repeated for: their whole width over the value, for means and medians, and for
// percentiles above.
const (
	narrowMedian = 0.05
	narrowTail   = 0.15
)

// candidate is one kind of server on its way to a row.
type candidate struct {
	q        *Question
	hardware string
	tp       int64
	ep       bool
	asked    predict.Question
	server   *predict.Prediction // bound to its step times
	notes    []trace.Finding
	warmUpS  float64
}

// row finds the fewest replicas that meet the targets and measures them.
func (c *candidate) row(ctx context.Context) (Row, error) {
	row := Row{Hardware: c.hardware, TP: c.tp, EP: c.ep, DP: 1}
	server, _, err := c.asked.Server(ctx)
	if err != nil {
		return row, err
	}
	c.server = server
	c.notes = server.Warnings
	row.Hardware = server.Hardware
	row.DP = server.DP
	row.Family = server.Trust.Family
	row.Trust = server.Trust.Sentence
	row.Bound = server.Step == nil
	row.Serve = c.serveLine()
	if err := c.measureIdle(); err != nil {
		return row, err
	}
	n, why, err := c.fewest(ctx)
	if err != nil {
		return row, err
	}
	if n == 0 {
		row.Refused = why
		return row, nil
	}
	samples, n, err := c.confirm(ctx, n)
	if err != nil {
		return row, err
	}
	if samples == nil {
		row.Refused = fmt.Sprintf("not met with %d GPUs", int64(c.mostReplicas())*c.server.GPUs)
		return row, nil
	}
	row.Replicas = n
	row.GPUs = int64(n) * server.GPUs
	c.fillFigures(&row, samples)
	if err := c.fillHeadroom(ctx, &row); err != nil {
		return row, err
	}
	c.fillPrice(&row)
	return row, nil
}

func (c *candidate) mostReplicas() int { return max(1, c.q.MostGPUs/int(c.server.GPUs)) }

// measureIdle times a request that finds the server idle: how long a warm-up has to be.
func (c *candidate) measureIdle() error {
	idle := Load{InputTokens: c.q.Load.InputTokens, OutputTokens: c.q.Load.OutputTokens, Clients: 1}
	load := &idle
	if c.q.Load.isWorkload() {
		own := c.q.Load
		own.RateRPS = 0
		own.Clients = 1
		load = &own
	}
	s, err := c.simulate(load, 1, 1, c.q.Seed, 8)
	if err != nil {
		return err
	}
	if len(s.e2e) == 0 {
		return trace.Errorf("", "no request of this length completes")
	}
	c.warmUpS = math.Min(mostWarmUpS, warmUpAnswers*stat.Mean(s.e2e)/1e3)
	return nil
}

// simulate serves a load with n servers; share is how many servers the drawn arrivals are divided among.
func (c *candidate) simulate(load *Load, n, share int, seed int64, measured int) (*sample, error) {
	s, err := load.draw(seed, measured, c.warmUpS, share)
	if err != nil {
		return nil, err
	}
	cfg, err := c.server.Engine(seed)
	if err != nil {
		return nil, err
	}
	return simulate(cfg, n, c.q.Routing, s)
}

// confirm measures n replicas with several seeds, and more or fewer of them until the fewest that meet the
// targets are found. No samples: none below the limit do.
func (c *candidate) confirm(ctx context.Context, n int) ([]*sample, int, error) {
	tried := map[int][]*sample{}
	meets := func(n int) (bool, error) {
		if tried[n] == nil {
			samples, err := c.replicate(ctx, n, nil, func(s []*sample) bool { return len(s) >= leastReplications })
			if err != nil {
				return false, err
			}
			tried[n] = samples
		}
		return brokenTarget(tried[n], &c.q.Targets) == "", nil
	}
	for n >= 1 && n <= c.mostReplicas() {
		ok, err := meets(n)
		if err != nil {
			return nil, 0, err
		}
		if !ok {
			n++
			continue
		}
		if n > 1 {
			fewer, err := meets(n - 1)
			if err != nil {
				return nil, 0, err
			}
			if fewer {
				n--
				continue
			}
		}
		samples, err := c.replicate(ctx, n, tried[n], c.isNarrow)
		if err != nil {
			return nil, 0, err
		}
		if tried[n] = samples; brokenTarget(samples, &c.q.Targets) == "" {
			return samples, n, nil
		}
	}
	return nil, 0, nil
}

// replicate repeats the simulation of n servers with one seed after the other, after those that there are
// already, until they are enough.
func (c *candidate) replicate(ctx context.Context, n int, samples []*sample, areEnough func([]*sample) bool) ([]*sample, error) {
	for len(samples) < mostReplications && !areEnough(samples) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := c.simulate(&c.q.Load, n, 1, c.q.Seed+int64(len(samples)), measuredRequests)
		if err != nil {
			return nil, err
		}
		samples = append(samples, s)
	}
	return samples, nil
}

// shownFigures are the statistics of a row: those of the targets, and the usual ones.
func (c *candidate) shownFigures() []Target {
	var out []Target
	add := func(t Target) {
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
	for _, metric := range metrics {
		for _, quantile := range []float64{0, 0.5, 0.9, 0.95, 0.99} {
			add(Target{Metric: metric, Quantile: quantile})
		}
	}
	return out
}

// isNarrow reports whether the intervals of the statistics that decide are as narrow as promised.
func (c *candidate) isNarrow(samples []*sample) bool {
	if len(samples) < leastReplications {
		return false
	}
	for _, t := range c.shownFigures() {
		if t.Quantile > 0.95 {
			continue
		}
		v := valueOf(samples, func(s *sample) float64 { return s.figure(t.Metric, t.Quantile) })
		width := (v.High - v.Low) / v.Value
		if widest := narrowTail; t.Quantile > 0.5 && !(width <= widest) || t.Quantile <= 0.5 && !(width <= narrowMedian) {
			return false
		}
	}
	return true
}

// valueOf is the mean of a statistic over replications with its 95 % interval.
func valueOf(samples []*sample, of func(*sample) float64) Value {
	var values []float64
	for _, s := range samples {
		values = append(values, of(s))
	}
	mean, low, high := stat.MeanInterval(values)
	if len(values) == 1 {
		low, high = mean, mean
	}
	return Value{Value: mean, Low: low, High: high}
}

// brokenTarget is the first target that the replications miss on average; "": they meet all.
func brokenTarget(samples []*sample, t *Targets) string {
	rising := 0
	for _, s := range samples {
		if s.rising {
			rising++
		}
	}
	if 2*rising > len(samples) {
		return "saturated"
	}
	if t.Goodput > 0 {
		if valueOf(samples, func(s *sample) float64 { return s.goodput(t.Limits) }).Value < t.Goodput {
			return "goodput"
		}
		return ""
	}
	for _, l := range t.Limits {
		if v := valueOf(samples, func(s *sample) float64 { return s.figure(l.Metric, l.Quantile) }); !(v.Value <= l.LimitMs) {
			return l.Metric + " " + l.Figure()
		}
	}
	return ""
}

// fillFigures sets what the replications measured and whether it meets the targets.
func (c *candidate) fillFigures(row *Row, samples []*sample) {
	ttftError, tpotError := c.server.StatedError()
	for _, t := range c.shownFigures() {
		v := valueOf(samples, func(s *sample) float64 { return s.figure(t.Metric, t.Quantile) })
		if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
			continue
		}
		e := errorOf(t.Metric, ttftError, tpotError)
		row.Figures = append(row.Figures, Figure{
			Metric:    t.Metric,
			Statistic: t.Figure(),
			Ms:        v,
			ErrorLow:  v.Value / (1 + e),
			ErrorHigh: v.Value * (1 + e),
			LimitMs:   t.LimitMs,
		})
	}
	if c.q.Targets.Goodput > 0 {
		v := valueOf(samples, func(s *sample) float64 { return s.goodput(c.q.Targets.Limits) })
		row.Goodput = &v
	}
	rate := valueOf(samples, func(s *sample) float64 { return float64(s.served) / s.spanS })
	tokens := valueOf(samples, func(s *sample) float64 { return float64(s.tokens) / s.spanS })
	row.RequestsPerS = &rate
	row.TokensPerS = &tokens
	row.InFlight = valueOf(samples, func(s *sample) float64 { return s.meanInFlight }).Value
	row.Replications = len(samples)
	for _, s := range samples {
		row.Measured += len(s.ttft)
	}
	tight := c.q.Targets.tightened(ttftError, tpotError)
	switch {
	case row.Bound:
		row.Met = MetBound
	case brokenTarget(samples, &tight) == "":
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
