package predict

// This file has the statistics of simulated requests: means and percentiles over replications with
// their intervals.

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/simulate"
)

// Sample is what the measured requests of one simulation experienced, ms, each list in order of arrival.
type Sample struct {
	TTFT, TPOT, E2E []float64       // of the requests that were answered; TPOT 0 for an answer of one token, which has none
	oneToken        []int           // places in these lists of the answers of one token, ascending
	gaps            *stat.Histogram // between tokens, us
	lost            int             // measured requests that got no answer
	ServedS         float64         // from the first measured answer to the last: the served interval
	Served          int             // requests that were answered in that time
	Tokens          int64           // their output tokens
	MeanInFlight    float64         // requests in the system, averaged from the first measured arrival to the last
	Saturated       bool            // more is offered than the servers do
	Preempted       bool            // requests lost their KV cache to others
	// Drained: measured requests were answered after the last request of all was admitted, without the prompts that a
	// load that goes on brings.
	Drained bool

	startS float64 // when the first measured request arrived, s

	// excess is by how much more than the asked rate arrived while requests were measured, as a share. Its mean
	// over seeds is 0. Of loads that are not drawn at a rate it is 0.
	excess float64
	// Of a load that is drawn at a rate, as shares of the measured requests: by how much the number in the system grew
	// from the first measured arrival to the last, and how many fewer left per second than the rate has.
	grew, behind float64

	mu     sync.Mutex
	sorted map[string][]float64 // see ascending
}

// NewSample returns the latencies of a stretch that these engines served.
func NewSample(requests []sim.RequestResult, engines []*sim.Result, s *Stretch) *Sample {
	out := &Sample{gaps: stat.NewHistogram()}
	for _, e := range engines {
		if e.Gaps != nil {
			out.gaps.Merge(e.Gaps)
		}
		out.Preempted = out.Preempted || e.Preemptions > 0
	}
	out.addRequests(requests, s)
	return out
}

// addRequests reads the requests' results.
func (m *Sample) addRequests(requests []sim.RequestResult, s *Stretch) {
	order := make([]int, len(requests))
	for i := range order {
		order[i] = i
	}
	stat.SortStable(order, func(a, b int) int { return cmp.Compare(requests[a].ArrivalUs, requests[b].ArrivalUs) })
	var arrivals []stat.Arrival
	for _, i := range order {
		if s.Requests[i].Unmeasured {
			continue
		}
		r := &requests[i]
		ttft, hasTTFT := r.TTFTUs()
		e2e, hasE2E := r.E2EUs()
		arrivals = append(arrivals, simulate.ArrivalOf(r))
		if !hasTTFT || !hasE2E {
			m.lost++
			continue
		}
		m.TTFT = append(m.TTFT, ttft/1e3)
		m.E2E = append(m.E2E, e2e/1e3)
		tpot, hasTPOT := r.ITLUs()
		if !hasTPOT {
			tpot = 0
			m.oneToken = append(m.oneToken, len(m.TPOT))
		}
		m.TPOT = append(m.TPOT, tpot/1e3)
	}
	if len(arrivals) == 0 {
		return
	}
	first := arrivals[0].At // us
	last := arrivals[len(arrivals)-1].At
	firstLeft, lastLeft := math.Inf(1), math.Inf(-1) // when the first and the last measured answer ended, us
	for i := range arrivals {
		if left := arrivals[i].Left; !math.IsNaN(left) {
			firstLeft = math.Min(firstLeft, left)
			lastLeft = math.Max(lastLeft, left)
		}
	}
	if !sim.IsClosedLoop(s.Requests) {
		lastAdmitted := firstLeft
		for i := range requests {
			if at := requests[i].ScheduledUs; at.OK {
				lastAdmitted = math.Max(lastAdmitted, float64(at.V))
			}
		}
		m.Drained = lastLeft > lastAdmitted
		if lastAdmitted > firstLeft {
			lastLeft = math.Min(lastLeft, lastAdmitted)
		}
	}
	m.startS = first / 1e6
	m.ServedS = math.Max(0, lastLeft-firstLeft) / 1e6
	m.excess = s.drawnExcess
	if s.meanSpanS > 0 {
		m.excess = 1 - (last-first)/1e6/s.meanSpanS
	}
	// All requests count here, also those that are not measured: they are in the system at the same time.
	gone := 0.0 // from the first measured arrival to the last
	for i := range requests {
		r := &requests[i]
		left := last
		if r.DepartedUs.OK {
			left = float64(r.DepartedUs.V)
		}
		from := math.Max(float64(r.ArrivalUs), first)
		if until := math.Min(left, last); until > from && last > first {
			m.MeanInFlight += (until - from) / (last - first)
		}
		if r.DepartedUs.OK && left > first && left <= last {
			gone++
		}
		if r.DepartedUs.OK && r.Outcome == sim.OutcomeFinished && left > firstLeft && left <= lastLeft {
			m.Served++
			m.Tokens += r.OutputTokens
		}
	}
	if s.meanSpanS > 0 && last > first {
		n := float64(len(arrivals) - 1)
		m.grew = 1 - gone/n
		m.behind = 1 - gone/n*s.meanSpanS*1e6/(last-first)
	}
	if !sim.IsClosedLoop(s.Requests) {
		_, m.Saturated = stat.Overloaded(arrivals, s.inSystemAt(requests, first))
	}
	if m.Saturated {
		m.countParts(requests, firstLeft, lastLeft)
	}
}

// countParts counts as served in an interval, us, the part of each answer that was made in it, as if answers were made
// evenly from when their request is first scheduled. An overloaded server may admit requests in waves which end together:
// how many of them end in an interval depends on where it begins and ends. After the interval the simulation may run out
// of prompts and end answers sooner than the load would: one that ends there takes as long as the mean of those that
// end in the interval, at least.
func (m *Sample) countParts(requests []sim.RequestResult, fromUs, untilUs float64) {
	var took []float64 // by the answers that ended in the interval, us
	for i := range requests {
		if began, left, ok := servedFrom(&requests[i]); ok && left > fromUs && left <= untilUs {
			took = append(took, left-began)
		}
	}
	meanTook := 0.0
	if len(took) > 0 {
		meanTook = stat.Mean(took)
	}
	served, tokens := 0.0, 0.0
	for i := range requests {
		r := &requests[i]
		began, left, ok := servedFrom(r)
		made := math.Min(left, untilUs) - math.Max(began, fromUs)
		if !ok || made <= 0 {
			continue
		}
		whole := left - began
		if left > untilUs {
			whole = math.Max(whole, meanTook)
		}
		served += made / whole
		tokens += made / whole * float64(r.OutputTokens)
	}
	m.Served = int(math.Round(served))
	m.Tokens = int64(math.Round(tokens))
}

// servedFrom returns when a request was first scheduled and when its answer ended, us; ok is false without an answer.
func servedFrom(r *sim.RequestResult) (began, left float64, ok bool) {
	ok = r.ScheduledUs.OK && r.DepartedUs.OK && r.Outcome == sim.OutcomeFinished
	return float64(r.ScheduledUs.V), float64(r.DepartedUs.V), ok
}

// inSystemAt returns when the requests left, us, that are not measured, arrived before a time and were in the system then;
// +Inf for one that did not leave.
func (s *Stretch) inSystemAt(requests []sim.RequestResult, timeUs float64) (left []float64) {
	for i := range requests {
		r := &requests[i]
		if !s.Requests[i].Unmeasured || float64(r.ArrivalUs) >= timeUs {
			continue
		}
		leftUs := math.Inf(1)
		if r.DepartedUs.OK {
			leftUs = float64(r.DepartedUs.V)
		}
		if leftUs > timeUs {
			left = append(left, leftUs)
		}
	}
	return left
}

// Figure returns a statistic of the sample, ms: quantile 0 is the mean. NaN without values; a
// request without an answer counts as one that took for ever.
func (m *Sample) Figure(metric string, quantile float64) float64 {
	if metric == ITL {
		switch {
		case m.gaps.N() == 0:
			return math.NaN()
		case quantile == 0:
			return m.gaps.Mean() / 1e3
		}
		return m.gaps.Quantile(quantile) / 1e3
	}
	values := m.of(metric)
	switch {
	case len(values)+m.lost == 0:
		return math.NaN()
	case quantile == 0 && m.lost > 0:
		return math.Inf(1)
	case quantile == 0:
		return stat.Mean(values)
	}
	return stat.Quantile(m.ascending(metric), quantile)
}

// ascending returns the values of a metric in order, infinite ones of lost requests last. They are sorted
// once, because a search asks every replication again after each further one.
func (m *Sample) ascending(metric string) []float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if sorted := m.sorted[metric]; sorted != nil {
		return sorted
	}
	sorted := slices.Clone(m.of(metric))
	for range m.lost {
		sorted = append(sorted, math.Inf(1))
	}
	slices.Sort(sorted)
	if m.sorted == nil {
		m.sorted = map[string][]float64{}
	}
	m.sorted[metric] = sorted
	return sorted
}

// of returns the values of a metric: of TPOT those of the answers of more than one token, as benchmarks do.
func (m *Sample) of(metric string) []float64 {
	values := m.ofEach(metric)
	if metric != TPOT || len(m.oneToken) == 0 {
		return values
	}
	var out []float64
	for i, v := range values {
		if _, isOne := slices.BinarySearch(m.oneToken, i); !isOne {
			out = append(out, v)
		}
	}
	return out
}

// ofEach returns the values of a metric that every answer has one of; TPOT 0 for an answer of one token.
func (m *Sample) ofEach(metric string) []float64 {
	switch metric {
	case TTFT:
		return m.TTFT
	case TPOT:
		return m.TPOT
	}
	return m.E2E
}

// Goodput returns the share of measured requests that meet all limits themselves.
func (m *Sample) Goodput(limits []Target) float64 {
	met := 0
	for i := range m.TTFT {
		keepsAll := true
		for _, l := range limits {
			keepsAll = keepsAll && m.ofEach(l.Metric)[i] <= l.LimitMs
		}
		if keepsAll {
			met++
		}
	}
	return float64(met) / float64(max(1, len(m.TTFT)+m.lost))
}

// Value is a figure and its 95 % interval of sampling.
type Value struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// times returns the figure and its interval multiplied by a factor.
func (v Value) times(factor float64) Value {
	return Value{Value: v.Value * factor, Low: v.Low * factor, High: v.High * factor}
}

// NoMoreThanArrives returns requests and output tokens that are served per second, both lowered where the requests are more
// than the rate at which they are drawn, by the chance of the draws: in the long run no more is served than arrives.
func (l *Load) NoMoreThanArrives(requests, tokens Value) (Value, Value) {
	if l.RateRPS == 0 || l.IsWorkload() || requests.Value <= l.RateRPS {
		return requests, tokens
	}
	share := l.RateRPS / requests.Value
	return requests.times(share), tokens.times(share)
}

// leastControlled is how many replications a regression on the excess of arrivals needs.
const leastControlled = 6

// ValueOf returns the mean of a statistic over replications with the interval; of one replication it has no width.
//
// Near saturation a statistic depends most on how many requests happened to arrive. The mean of that number is
// known, and with enough replications the statistic is taken where its regression on the excess of arrivals has
// no excess (a control variate).
func ValueOf(samples []*Sample, of func(*Sample) float64) Value {
	e := estimateOf(samples, of)
	return Value{Value: e.mean, Low: e.mean - e.half, High: e.mean + e.half}
}

// estimate is the mean of a statistic over replications.
type estimate struct {
	mean     float64
	half     float64 // half width of the 95 % interval of the mean
	slope    float64 // of the statistic by the excess of arrivals; 0 without a regression
	residual float64 // standard deviation between replications that the excess does not explain
}

// estimateOf returns the mean of a statistic over replications, at no excess of arrivals where there
// are enough replications to know how the statistic depends on it.
func estimateOf(samples []*Sample, of func(*Sample) float64) estimate {
	var values, excess []float64
	isFinite := true
	for _, s := range samples {
		v := of(s)
		values = append(values, v)
		excess = append(excess, s.excess)
		isFinite = isFinite && !math.IsNaN(v) && !math.IsInf(v, 0)
	}
	mean, _, high := stat.MeanInterval(values)
	n := float64(len(values))
	out := estimate{mean: mean, half: high - mean, residual: stat.StdErr(values) * math.Sqrt(n)}
	if len(values) == 1 {
		out.half, out.residual = 0, 0
	}
	// Regression of the statistic on the excess of arrivals.
	meanExcess := stat.Mean(excess)
	var sumSquares, sumProducts float64
	for i, x := range excess {
		sumSquares += (x - meanExcess) * (x - meanExcess)
		sumProducts += (x - meanExcess) * (values[i] - mean)
	}
	if len(values) < leastControlled || !isFinite || sumSquares == 0 {
		return out
	}
	slope := sumProducts / sumSquares
	squares := 0.0
	for i, x := range excess {
		off := values[i] - mean - slope*(x-meanExcess)
		squares += off * off
	}
	degrees := n - 2
	residual := math.Sqrt(squares / degrees)
	// The regression's value at no excess, with the interval of a regression line there.
	return estimate{
		mean:     mean - slope*meanExcess,
		half:     stat.StudentT(0.975, degrees) * residual * math.Sqrt(1/n+meanExcess*meanExcess/sumSquares),
		slope:    slope,
		residual: residual,
	}
}

// blocksOfRecording is how many parts of a recording its intervals are of.
const blocksOfRecording = 10

// OfRecording returns a statistic of a load whose arrivals were recorded, so that replications with
// other seeds have the same arrivals. Its interval follows from the differences between parts of the
// recording, as if they were other hours of the same traffic. Gaps between tokens are not known
// by part: their statistic varies as that of TPOT.
func (m *Sample) OfRecording(metric string, quantile float64) Value {
	value := m.Figure(metric, quantile)
	byPart := metric
	if metric == ITL {
		byPart = TPOT
	}
	whole := m.Figure(byPart, quantile)
	values := m.of(byPart)
	var parts []float64
	for k := range blocksOfRecording {
		// The values of any metric, put into the place of TTFT, for the statistic of one list.
		part := Sample{TTFT: values[k*len(values)/blocksOfRecording : (k+1)*len(values)/blocksOfRecording]}
		parts = append(parts, part.Figure(TTFT, quantile))
	}
	half := stat.StudentT(0.975, blocksOfRecording-1) * stat.StdErr(parts) / whole * value
	if math.IsNaN(half) || math.IsInf(half, 0) {
		half = 0
	}
	return Value{Value: value, Low: value - half, High: value + half}
}

// Widened returns the interval of [ValueOf] so that it also contains, in 19 of 20 cases, the mean of a
// repetition of so many requests with other seeds, in which more or fewer requests arrive than on
// average. It is made no wider for that than widest times the value: at the edge of saturation a
// repetition may lie anywhere.
func Widened(samples []*Sample, of func(*Sample) float64, requests int, widest float64) Value {
	e := estimateOf(samples, of)
	half := e.half
	measured := 0
	for _, s := range samples {
		measured += len(s.TTFT) + s.lost
	}
	perReplication := float64(measured) / float64(len(samples))
	// The variance of a repetition's statistic: that of one replication shrinks with the number of requests; that of
	// the excess of Poisson arrivals, by which the slope acts, is 1/requests.
	variance := (e.residual*e.residual*perReplication + e.slope*e.slope) / float64(requests)
	own := e.half / normal95 // standard error of the mean itself
	repeated := normal95 * math.Sqrt(variance+own*own)
	half = math.Max(half, math.Min(repeated, widest/2*math.Abs(e.mean)))
	return Value{Value: e.mean, Low: e.mean - half, High: e.mean + half}
}

// normal95 is how many standard deviations 95 % of a normal distribution lie within.
const normal95 = 1.96

// Broken returns the first target that replications miss on average, as a short text ("ttft p95", "goodput"); "": they
// meet all. A server that is saturated in most replications, or falls behind in all of them together, misses any target.
func Broken(samples []*Sample, t *Targets) string {
	saturated := 0
	for _, s := range samples {
		if s.Saturated {
			saturated++
		}
	}
	if 2*saturated > len(samples) || fallBehind(samples) {
		return brokenSaturated
	}
	if t.Goodput > 0 {
		if ValueOf(samples, func(s *Sample) float64 { return s.Goodput(t.Limits) }).Value < t.Goodput {
			return "goodput"
		}
		return ""
	}
	for _, l := range t.Limits {
		if (l.Metric == TPOT || l.Metric == ITL) && allOfOneToken(samples) {
			continue // no answer has a gap
		}
		if v := ValueOf(samples, func(s *Sample) float64 { return s.Figure(l.Metric, l.Quantile) }); !(v.Value <= l.LimitMs) {
			return l.Metric + " " + l.Figure()
		}
	}
	return ""
}

// allOfOneToken reports whether every request was answered, with one token.
func allOfOneToken(samples []*Sample) bool {
	for _, s := range samples {
		if s.lost > 0 || len(s.TPOT) == 0 || len(s.oneToken) < len(s.TPOT) {
			return false
		}
	}
	return true
}

// fallBehind reports whether replications together show an overload that may be too small for each of them: the number in
// the system grows by more than leastOverload of the arrivals, and significantly fewer requests leave than the rate has.
func fallBehind(samples []*Sample) bool {
	if len(samples) < 2 {
		return false
	}
	grew := ValueOf(samples, func(s *Sample) float64 { return s.grew })
	behind := ValueOf(samples, func(s *Sample) float64 { return s.behind })
	return grew.Value > leastOverload && behind.Low > 0
}

// brokenSaturated is the target that a server misses which does not keep up with its load.
const brokenSaturated = "saturated"
