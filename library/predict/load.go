package predict

// This file draws the requests of a load: those that are measured, with a warm-up before and load
// after them.

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// Load is what a deployment has to serve: a rate of Poisson arrivals, clients of a closed loop, or a workload.
type Load struct {
	RateRPS      float64 `json:"rate_rps,omitempty"`
	Clients      int     `json:"concurrency,omitempty"`
	InputTokens  int64   `json:"input_tokens,omitempty"`
	OutputTokens int64   `json:"output_tokens,omitempty"`
	// CachedShare is the share of every prompt that is found in the prefix cache.
	CachedShare float64 `json:"cached_share,omitempty"`
	// Workload replaces lengths and, without RateRPS and Clients, arrivals too.
	Workload *workload.Workload `json:"-"`
	// Draw draws a workload for each seed, in place of Workload.
	Draw func(seed int64) (*workload.Workload, error) `json:"-"`
	// Tail is the least number of requests that arrive after the measured ones, where arrivals are drawn at a rate.
	Tail int `json:"-"`
	// InFlight is the number of requests that are in the system when the load begins, where arrivals are drawn at a rate.
	// Of their answers all parts from none to nearly all are made by then.
	InFlight int `json:"-"`
	// Before is how many requests of a closed loop come before the measured ones beyond two of each client.
	Before int `json:"-"`
	// Longest is max_model_len, which no drawn request exceeds; 0: no limit.
	Longest int64 `json:"-"`
}

// Stretch is a part of a load: requests before and after the measured ones bring a server into its steady
// state and keep it there.
type Stretch struct {
	Requests    []sim.Request
	from, until int // the measured requests are those from index from to before until; 0 and 0 where they are not consecutive
	// drawnExcess is by what share more requests of a workload arrived than its rate has, by the chance of the draw.
	drawnExcess float64
	// meanSpanS is the mean over seeds of the time from the first measured arrival to the last; 0: arrivals are not
	// drawn at a rate.
	meanSpanS float64
}

// AtMeanRate scales the times of arrivals so that the measured ones take exactly as long as on average: with
// few requests the chance of how many arrive would decide more than the load does.
func (s *Stretch) AtMeanRate() {
	if s.meanSpanS == 0 || s.until-s.from < 2 {
		return
	}
	spanUs := float64(s.Requests[s.until-1].ArrivalUs - s.Requests[s.from].ArrivalUs)
	for i := range s.Requests {
		r := &s.Requests[i]
		r.ArrivalUs = sim.ToUs(float64(r.ArrivalUs) * s.meanSpanS * 1e6 / spanUs)
	}
}

// Stretch returns the requests of one seed: so many measured requests after warmUpS seconds of
// load, followed by load until they are answered. With servers above 1, RateRPS is the rate of one of so
// many servers behind a round-robin router, which gets every servers-th of Poisson arrivals: their gaps
// are gamma-distributed with a coefficient of variation of 1/sqrt(servers). A closed loop and a workload
// do not use servers.
//
// A closed loop has two requests of each client (and Before) before the measured ones, and one and a half after them,
// so that all clients still send while the last measured request is answered. It starts its clients
// evenly over warmUpS seconds. Started together, the first requests of all clients would wait for each
// other, and they would be the tenth with the largest TTFT. Benchmarks warm up for the same reason.
func (l *Load) Stretch(seed int64, measured int, warmUpS float64, servers int) (*Stretch, error) {
	if l.IsWorkload() {
		return l.drawWorkload(seed, measured, warmUpS)
	}
	before := 2*l.Clients + l.Before
	after := l.Clients + l.Clients/2
	if l.Clients == 0 { // arrivals of warmUpS seconds on both sides
		before = int(math.Ceil(l.RateRPS * warmUpS))
		after = max(before, l.Tail)
		before += l.InFlight
	}
	g := workload.Generator{
		Requests: before + measured + after,
		Prompt:   spread(l.InputTokens),
		Output:   spread(l.OutputTokens),
		Arrivals: workload.ArrivalSpec{Kind: "gamma", RateRPS: l.RateRPS, CV: 1 / math.Sqrt(float64(servers))},
	}
	if l.Clients > 0 {
		g.Arrivals = workload.ArrivalSpec{Kind: "closed", Clients: l.Clients, RampS: warmUpS}
	}
	if err := g.Check(); err != nil {
		return nil, err
	}
	w, err := g.Generate(seed)
	if err != nil {
		return nil, err
	}
	if l.Longest > 0 {
		for i := range w.Requests {
			r := &w.Requests[i]
			r.PromptTokens = max(1, min(r.PromptTokens, l.Longest-r.OutputTokens))
		}
	}
	l.markCached(w.Requests)
	if l.Clients == 0 {
		startWith(w.Requests, l.InFlight)
	}
	s := &Stretch{Requests: w.Requests, from: before, until: before + measured}
	if l.Clients == 0 {
		s.meanSpanS = float64(measured-1) / l.RateRPS
	}
	s.markUnmeasured()
	return s, nil
}

// startWith lets the first n requests be in the system when the load begins: of the k-th of them k/n of the answer is made,
// and with its prompt in the KV cache. The others arrive from then on.
func startWith(requests []sim.Request, n int) {
	if n == 0 {
		return
	}
	beginUs := requests[n-1].ArrivalUs
	for i := range requests {
		r := &requests[i]
		r.ArrivalUs = max(0, r.ArrivalUs-beginUs)
		if i >= n {
			continue
		}
		made := int64(float64(r.OutputTokens) * (float64(i) + 0.5) / float64(n))
		r.PromptTokens += made
		r.OutputTokens -= made
		r.CachedTokens.V = r.PromptTokens - 1
		r.CachedTokens.OK = true
	}
}

// Start returns the first requests of an idle server, all of them measured: the first request of
// each client, sent together, or the arrivals of the first warmUpS seconds.
func (l *Load) Start(seed int64, warmUpS float64) (*Stretch, error) {
	if l.Clients > 0 {
		warmUpS = 0 // sent together
	}
	s, err := l.Stretch(seed, 1, warmUpS, 1)
	if err != nil {
		return nil, err
	}
	first := l.Clients
	if l.Clients == 0 {
		first = max(1, s.from)
	}
	s.from, s.until = 0, first
	s.markUnmeasured()
	return s, nil
}

// IsRecording reports whether every seed has the same requests at the same times: a workload with arrivals of its
// own, which a rate only scales. Arrivals of sessions, and of a workload without any, are drawn at the rate.
func (l *Load) IsRecording() bool {
	if l.Workload == nil || l.Clients != 0 {
		return false
	}
	isDrawn := l.RateRPS > 0 && (l.Workload.HasSessions() || lastArrivalUs(l.Workload.Requests) == 0)
	return !isDrawn
}

// IsWorkload reports whether requests come from a workload and not from lengths.
func (l *Load) IsWorkload() bool { return l.Workload != nil || l.Draw != nil }

// spread returns lengths distributed evenly around a number of tokens, which is their mean.
func spread(tokens int64) workload.LengthSpec {
	half := (tokens + perSpread - 1) / perSpread // rounded up: short lengths differ too
	half = max(0, min(half, tokens-2))           // two tokens at least: an answer of one has no TPOT
	return workload.LengthSpec{Kind: "uniform", Min: tokens - half, Max: tokens + half}
}

// drawWorkload returns the requests of a workload: with its arrivals, scaled to the rate if one is
// given, or with Poisson arrivals if it has none, or sent by clients. Rounds of a session wait for
// the answer to the round before.
func (l *Load) drawWorkload(seed int64, measured int, warmUpS float64) (*Stretch, error) {
	own := workload.Workload{}
	if l.Draw != nil {
		w, err := l.Draw(seed)
		if err != nil {
			return nil, err
		}
		own = *w
	} else {
		own = *l.Workload
		own.Requests = slices.Clone(own.Requests)
	}
	if len(own.Requests) < 2 {
		return nil, trace.Errorf(sim.CodeBadConfig, "workload: got %d requests, want at least 2", len(own.Requests))
	}
	l.markCached(own.Requests)
	hasSessions := own.HasSessions()
	excess := 0.0
	spanS := float64(lastArrivalUs(own.Requests)) / 1e6 // 0: the workload has no arrivals
	if hasSessions {
		own.CloseSessions(nil)
	}
	switch {
	case l.Clients > 0:
		s := &Stretch{from: 2 * l.Clients}
		own.Requests = repeated(own.Requests, measured+4*l.Clients)
		s.until = len(own.Requests) - 2*l.Clients
		err := own.Close(workload.Loop{Clients: l.Clients, RampUs: sim.ToUs(warmUpS * 1e6)})
		s.Requests = own.Requests
		s.markUnmeasured()
		return s, err
	case hasSessions && l.RateRPS > 0:
		excess = drawSessions(own.Requests, l.RateRPS, seed)
	case spanS > 0 && l.RateRPS > 0:
		own.Scale(l.RateRPS * spanS / float64(len(own.Requests)))
	case l.RateRPS > 0:
		excess = drawArrivals(own.Requests, l.RateRPS, seed)
	case spanS == 0:
		return nil, trace.Errorf(sim.CodeBadConfig, "workload: got requests without arrivals, want a rate or clients").
			WithHint("give --rate or --concurrency")
	}
	if !hasSessions {
		sortByArrival(own.Requests)
	}
	s := recordedStretch(own.Requests, warmUpS)
	s.drawnExcess = excess
	return s, nil
}

// lastArrivalUs returns the latest arrival, us.
func lastArrivalUs(requests []sim.Request) int64 {
	last := int64(0)
	for i := range requests {
		last = max(last, requests[i].ArrivalUs)
	}
	return last
}

// CountLonger returns the number of the workload's prompts that leave no room for an output token within
// the longest sequence of the server (max_model_len).
func (l *Load) CountLonger(longest int64) int {
	n := 0
	for i := range l.Workload.Requests {
		if l.Workload.Requests[i].PromptTokens >= longest {
			n++
		}
	}
	return n
}

// repeated returns the requests followed by as many copies of them as make at least n. Each copy has
// sessions of its own: a session shares no prefix with its copies.
func repeated(requests []sim.Request, n int) []sim.Request {
	out := requests
	for len(out) < n {
		first := len(out)
		for i := range requests {
			r := requests[i]
			r.ID = fmt.Sprintf("%s+%d", r.ID, len(out))
			if r.After > 0 { // the position, from 1, of the round before
				r.After += first
			}
			r.Hashes = slices.Clone(r.Hashes)
			for k := range r.Hashes {
				r.Hashes[k] ^= uint64(first) << 40 // another prefix block than in any other copy
			}
			out = append(out, r)
		}
	}
	return out
}

// drawSessions gives the first rounds of sessions Poisson arrivals, in a random order, at the rate of sessions with
// which all rounds together arrive at the rate that is asked. It returns by what share of them more arrived than the
// rate has in that time.
func drawSessions(requests []sim.Request, rateRPS float64, seed int64) (excess float64) {
	var first []int
	for i := range requests {
		if requests[i].After == 0 {
			first = append(first, i)
		}
	}
	rng := rand.New(rand.NewPCG(uint64(seed), arrivalStream))
	rng.Shuffle(len(first), func(i, j int) { first[i], first[j] = first[j], first[i] })
	perS := rateRPS * float64(len(first)) / float64(len(requests)) // sessions
	atS := 0.0
	for _, i := range first {
		atS += rng.ExpFloat64() / perS
		requests[i].ArrivalUs = sim.ToUs(atS * 1e6)
	}
	return 1 - atS*perS/float64(len(first))
}

// drawArrivals gives requests Poisson arrivals in a random order, so that a table sorted by length is no load
// that grows. It returns the same as drawSessions.
func drawArrivals(requests []sim.Request, rateRPS float64, seed int64) (excess float64) {
	rng := rand.New(rand.NewPCG(uint64(seed), arrivalStream))
	rng.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
	atS := 0.0
	for i := range requests {
		atS += rng.ExpFloat64() / rateRPS
		requests[i].ArrivalUs = sim.ToUs(atS * 1e6)
	}
	return 1 - atS*rateRPS/float64(len(requests))
}

// arrivalStream separates these random numbers from others of the same seed.
const arrivalStream = 0xa771

// markCached states of every prompt that the load's CachedShare of it is in the prefix cache.
func (l *Load) markCached(requests []sim.Request) {
	if l.CachedShare == 0 {
		return
	}
	for i := range requests {
		r := &requests[i]
		r.CachedTokens.V = int64(l.CachedShare * float64(r.PromptTokens))
		r.CachedTokens.OK = true
	}
}

// recordedStretch returns a stretch with the arrivals unchanged. The first and the last warmUpS
// seconds, a fifth of the recording each at most, are not measured. Later rounds of sessions have
// no arrival of their own yet: they are measured if the round before them is.
func recordedStretch(requests []sim.Request, warmUpS float64) *Stretch {
	s := &Stretch{Requests: requests}
	lastUs := lastArrivalUs(requests)
	edgeUs := min(sim.ToUs(warmUpS*1e6), lastUs/5)
	for i := range requests {
		r := &requests[i]
		if r.After > 0 {
			r.Unmeasured = requests[r.After-1].Unmeasured
			continue
		}
		r.Unmeasured = r.ArrivalUs < edgeUs || r.ArrivalUs > lastUs-edgeUs
	}
	return s
}

// markUnmeasured marks the requests of warm-up and cool-down, which the simulator keeps out of its distribution of
// token gaps and a Sample out of its latencies.
func (s *Stretch) markUnmeasured() {
	for i := range s.Requests {
		s.Requests[i].Unmeasured = i < s.from || i >= s.until
	}
}

// sortByArrival sorts requests by arrival.
func sortByArrival(requests []sim.Request) {
	stat.SortStable(requests, func(a, b sim.Request) int { return cmp.Compare(a.ArrivalUs, b.ArrivalUs) })
}

// Amount returns the load as a number: requests per second or clients.
func (l *Load) Amount() float64 {
	if l.Clients > 0 {
		return float64(l.Clients)
	}
	return l.RateRPS
}

// WithAmount returns the load with another number.
func (l Load) WithAmount(amount float64) Load {
	if l.Clients > 0 {
		l.Clients = max(1, int(math.Floor(amount)))
	} else {
		l.RateRPS = amount
	}
	return l
}
