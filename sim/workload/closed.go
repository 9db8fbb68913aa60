package workload

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Loop is a closed loop: each of Clients sends its next request when its last
// one has been answered.
type Loop struct {
	Clients int
	ThinkUs int64 // between an answer and the client's next request
	RampUs  int64 // the clients start evenly over this time
	// KeepArrivals makes it a cap instead: a request is sent at its arrival, or
	// as soon after it as fewer than Clients are in flight.
	KeepArrivals bool
}

// Check verifies the loop.
func (l Loop) Check() error {
	if l.Clients < 1 || l.ThinkUs < 0 || l.RampUs < 0 || max(l.ThinkUs, l.RampUs) > sim.LatestUs {
		return trace.Errorf(codeBadWorkload, "closed loop: got %d clients, think time %d us, ramp %d us, want >= 1, >= 0, >= 0, at most 1e16 us",
			l.Clients, l.ThinkUs, l.RampUs)
	}
	return nil
}

// Close makes the workload a closed loop: its requests in their order, from one
// queue that all clients share. Requests that follow another one already (After)
// and further samples (With) stay where they are. Recorded stops of requests are
// counted from their arrival.
func (w *Workload) Close(l Loop) error {
	if err := l.Check(); err != nil {
		return err
	}
	heads := release(w.Requests)
	if !l.KeepArrivals {
		slices.SortStableFunc(heads, func(a, b int) int { return cmp.Compare(w.Requests[a].ArrivalUs, w.Requests[b].ArrivalUs) })
	}
	for n, i := range heads {
		q := &w.Requests[i]
		if !l.KeepArrivals {
			q.ArrivalUs = 0
		}
		q.Loop, q.Queued = 1, n >= l.Clients
		switch {
		case q.Queued:
			q.ThinkUs = l.ThinkUs
		case !l.KeepArrivals:
			q.ArrivalUs = l.RampUs * int64(n) / int64(min(l.Clients, len(heads)))
		}
	}
	return nil
}

// release frees the requests of their recorded moments: stops count from the
// arrival, and the overhead is the simulator's. It returns those that a client
// sends of its own accord, in workload order.
func release(requests []sim.Request) []int {
	var heads []int
	for i := range requests {
		q := &requests[i]
		if q.AbortAtUs.OK {
			q.AbortAfterUs = trace.Some(q.AbortAtUs.V - q.ArrivalUs)
			q.AbortAtUs = trace.Opt[int64]{}
		}
		q.EnqueueUs = trace.Opt[int64]{}
		if q.After == 0 && q.With == 0 {
			heads = append(heads, i)
		}
	}
	return heads
}

// concurrency is how a recorded workload was sent, as far as the recording shows.
type concurrency struct {
	Clients      int     // requests in flight at once, at most
	PlateauShare float64 // of the sends after the first Clients: with at least 9/10 of Clients in flight, itself included
	ThinkP90Us   float64 // between an answer and the send that followed it
	MeanGapUs    float64 // between sends
}

// IsClosed reports whether that looks like a closed loop: in flight is always
// about the same number, and every answer is followed by a send long before an
// arrival that does not wait would be due. A loop whose clients think long is not
// told from open arrivals.
func (c concurrency) IsClosed() bool {
	return c.PlateauShare >= 0.9 && c.ThinkP90Us < c.MeanGapUs/2
}

// Concurrency reads off how the workload of a recorded run was sent.
func (w *Workload) Concurrency(run *trace.Run) concurrency { return ConcurrencyOf(w.calls(run)) }

// ConcurrencyOf is that of calls in the order they were sent.
func ConcurrencyOf(calls []Call) concurrency {
	var c concurrency
	var ends []int64
	inFlight := make([]int, len(calls))
	for n, k := range calls {
		gone, _ := slices.BinarySearch(ends, k.SentNs+1)
		inFlight[n] = n - gone + 1
		c.Clients = max(c.Clients, inFlight[n])
		at, _ := slices.BinarySearch(ends, k.EndNs)
		ends = slices.Insert(ends, at, k.EndNs)
	}
	later := calls[min(c.Clients, len(calls)):]
	if len(later) == 0 {
		return c
	}
	think := stat.Map(thinkTimes(calls, c.Clients)[c.Clients:], func(us int64) float64 { return float64(us) })
	slices.Sort(think)
	c.ThinkP90Us = stat.Quantile(think, 0.9)
	c.MeanGapUs = float64(calls[len(calls)-1].SentNs-calls[0].SentNs) / 1e3 / float64(len(calls)-1)
	for _, n := range inFlight[c.Clients:] {
		if 10*n+5 >= 9*c.Clients { // 9/10 of them, rounded
			c.PlateauShare += 1 / float64(len(later))
		}
	}
	return c
}

// Call is one request of a client: all samples under one API request.
type Call struct {
	Samples       []int // positions in the workload, the first one first
	SentNs, EndNs int64
}

// calls are the calls behind the workload by the time they were sent. A call
// that has no end stays in flight.
func (w *Workload) calls(run *trace.Run) []Call {
	var calls []Call
	byID := map[string]int{}
	for i, row := range w.Rows {
		r := &run.Requests[row]
		sent, _ := arrivalNs(r, RunOptions{})
		end := max(r.DepartedNs.V, r.AbortedNs.V)
		if !r.DepartedNs.OK && !r.AbortedNs.OK {
			end = r.FinishedNs.Or(1 << 62)
		}
		k, known := byID[r.APIID.V]
		if !known || !r.APIID.OK {
			if r.APIID.OK {
				byID[r.APIID.V] = len(calls)
			}
			calls = append(calls, Call{[]int{i}, sent, end})
			continue
		}
		c := &calls[k]
		c.Samples = append(c.Samples, i)
		c.SentNs = min(c.SentNs, sent)
		c.EndNs = max(c.EndNs, end)
	}
	slices.SortStableFunc(calls, func(a, b Call) int { return cmp.Compare(a.SentNs, b.SentNs) })
	return calls
}

// Reclose gives a recorded closed loop its clients back: the first of them send
// when they did, every later request waits for an answer instead of its recorded
// moment, and for as long as the client then took in the recording.
//
// A recording does not say which answer a request followed; the most recent one
// that nobody had followed yet stands for it, which matters for think times only.
func (w *Workload) Reclose(run *trace.Run) (Loop, error) {
	calls := w.calls(run)
	return RecloseCalls(w.Requests, calls, ConcurrencyOf(calls).Clients)
}

// RecloseCalls is Reclose for requests whose calls, in the order they were sent, are
// known, with a number of clients.
func RecloseCalls(requests []sim.Request, calls []Call, clients int) (Loop, error) {
	loop := Loop{Clients: clients}
	if err := loop.Check(); err != nil {
		return loop, err
	}
	release(requests)
	think := thinkTimes(calls, clients)
	for n, c := range calls {
		q := &requests[c.Samples[0]]
		q.Loop, q.Queued = 1, n >= clients
		if q.Queued {
			q.ArrivalUs, q.ThinkUs = 0, think[n]
		}
		for _, i := range c.Samples[1:] {
			requests[i].With = c.Samples[0] + 1
			requests[i].ArrivalUs = q.ArrivalUs
		}
	}
	return loop, nil
}

// thinkTimes are the us between each call and the answer it followed; what
// followed none takes the median.
func thinkTimes(calls []Call, clients int) []int64 {
	byEnd := stat.Map(calls, func(c Call) int64 { return c.EndNs })
	slices.Sort(byEnd)
	think := make([]int64, len(calls))
	known := []int64(nil)
	var free []int64 // answers that nobody followed yet
	for n, c := range calls {
		for len(byEnd) > 0 && byEnd[0] <= c.SentNs {
			free, byEnd = append(free, byEnd[0]), byEnd[1:]
		}
		think[n] = -1
		if last := len(free) - 1; n >= clients && last >= 0 {
			think[n], free = ceilDiv(c.SentNs-free[last], 1000), free[:last]
			known = append(known, think[n])
		}
	}
	slices.Sort(known)
	for n := range think {
		if think[n] < 0 && len(known) > 0 {
			think[n] = known[len(known)/2]
		}
		think[n] = max(0, think[n])
	}
	return think
}

// Point is one load level of a benchmark: lengths, and how requests were sent.
type Point struct {
	Requests                  int
	InputTokens, OutputTokens int64
	// RangeRatio spreads both lengths evenly over (1 - r) to (1 + r) times, as
	// vllm bench serve --random-range-ratio does.
	RangeRatio float64
	// RateRPS sends Poisson arrivals; 0: all at once.
	RateRPS float64
	// Concurrency is the most requests in flight; 0: no limit. Without a rate it
	// is a closed loop.
	Concurrency int
}

// Workload draws the point's requests; the same seed gives the same ones.
func (p Point) Workload(seed int64) (*Workload, error) {
	if !(p.RangeRatio >= 0 && p.RangeRatio < 1) || p.RateRPS < 0 || p.Concurrency < 0 {
		return nil, trace.Errorf(codeBadWorkload, "point: got range ratio %g, rate %g/s, concurrency %d, want 0 <= ratio < 1, >= 0, >= 0",
			p.RangeRatio, p.RateRPS, p.Concurrency)
	}
	length := func(n int64) LengthSpec {
		lo := float64(n) * (1 - p.RangeRatio)
		hi := float64(n) * (1 + p.RangeRatio)
		return LengthSpec{Kind: "uniform", Min: max(1, int64(lo)), Max: int64(hi)}
	}
	g := Generator{
		Requests: p.Requests, Prompt: length(p.InputTokens), Output: length(p.OutputTokens),
		Arrivals: ArrivalSpec{Kind: "bursts", Burst: max(1, p.Requests), EveryS: 1},
	}
	if p.RateRPS > 0 {
		g.Arrivals = ArrivalSpec{Kind: "poisson", RateRPS: p.RateRPS}
	}
	if err := g.Check(); err != nil {
		return nil, err
	}
	w, err := g.Generate(seed)
	if err != nil || p.Concurrency == 0 {
		return w, err
	}
	return w, w.Close(Loop{Clients: p.Concurrency, KeepArrivals: p.RateRPS > 0})
}

// round is a request's place in its session: the position of the round before, from 1 (0: it is
// the first or in no session), and the recorded think time between the two, us.
type round struct {
	before  int
	thinkUs int64
}

// HasSessions reports whether some request follows another one of its session.
func (w *Workload) HasSessions() bool {
	return slices.ContainsFunc(w.rounds, func(r round) bool { return r.before > 0 })
}

// CloseSessions has each round of a session arrive when the one before has been answered and its
// reader has thought: by think, us, or as recorded where that is nil. First rounds come at their
// recorded times; stops count from the arrival.
func (w *Workload) CloseSessions(think func() int64) {
	release(w.Requests)
	for i, r := range w.rounds[:len(w.Requests)] {
		if r.before == 0 {
			continue
		}
		q := &w.Requests[i]
		if q.After, q.ArrivalUs, q.ThinkUs = r.before, 0, r.thinkUs; think != nil {
			q.ThinkUs = think()
		}
	}
}

// EarlyRounds tells, of each result in workload order, whether it is a round of a session that came
// before the answer of the round before, as it may at recorded times.
func (w *Workload) EarlyRounds() func(*sim.RequestResult) bool {
	var left []int64
	return func(r *sim.RequestResult) bool {
		before := w.rounds[len(left)].before
		left = append(left, r.DepartedUs.Or(math.MaxInt64))
		return before > 0 && r.ArrivalUs < left[before-1]
	}
}

// ThinkTime draws think times, us, from what a user states: constant:value=500ms, or
// lognormal:mu=2.0,sigma=0.6,min=3s,max=30s, mu and sigma of the logarithm of seconds.
func ThinkTime(text string, seed int64) (func() int64, error) {
	kind, rest, _ := strings.Cut(text, ":")
	allowed := map[string][]string{"constant": {"value"}, "lognormal": {"mu", "sigma", "min", "max"}}[kind]
	v := map[string]float64{"max": math.MaxInt32}
	for part := range strings.SplitSeq(rest, ",") {
		name, said, _ := strings.Cut(part, "=")
		x, err := strconv.ParseFloat(said, 64)
		if span, wrong := time.ParseDuration(said); err != nil && wrong == nil && name != "mu" && name != "sigma" {
			x, err = span.Seconds(), nil
		}
		if err != nil || !slices.Contains(allowed, name) || math.Abs(x) > math.MaxInt32 || math.IsNaN(x) || name != "mu" && x < 0 {
			return nil, fmt.Errorf("got %q, want constant:value=500ms or lognormal:mu=2.0,sigma=0.6,min=3s,max=30s", text)
		}
		v[name] = x
	}
	if _, ok := v[allowed[0]]; !ok || v["min"] > v["max"] {
		return nil, fmt.Errorf("got %q, want %s, and min at most max", text, allowed[0])
	}
	rng := rand.New(rand.NewPCG(uint64(seed), 0x7417))
	return func() int64 {
		s := v["value"]
		if kind == "lognormal" {
			s = max(v["min"], min(v["max"], math.Exp(v["mu"]+v["sigma"]*rng.NormFloat64())))
		}
		return sim.ToUs(s * 1e6)
	}, nil
}

// Workload is a list of requests for sim.Run and where it came from.
type Workload struct {
	Requests []sim.Request
	// BaseNs is the monotonic stamp of simulated time 0 (extracted runs): us =
	// ceil((ns - BaseNs)/1000).
	BaseNs int64
	// Rows[i] is the row of the extracted run behind Requests[i].
	Rows []int
	// Notes say what was assumed.
	Notes []trace.Finding

	rounds []round // of sessions, by request; nil: the format has none
}

// Us converts a monotonic stamp to simulated time, rounded up.
func (w *Workload) Us(ns int64) int64 { return ceilDiv(ns-w.BaseNs, 1000) }

func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

// RunOptions choose what of an extracted run becomes a workload.
type RunOptions struct {
	// FromNs and ToNs keep requests that arrive in [FromNs, ToNs); 0 = no limit.
	FromNs, ToNs int64
	// Phase keeps one phase; empty = all.
	Phase string
	// Queued takes the pick-up stamp as the moment a request reaches the input
	// queue (teacher-forced replays). Otherwise it arrives at ARRIVED and the
	// simulator adds the overhead.
	Queued bool
	// MissingArrivalUs is subtracted from QUEUED where ARRIVED is unknown: half a step (spec#replay-requests).
	MissingArrivalUs int64
	// BaseNs sets simulated time 0; 0 = the earliest arrival kept.
	BaseNs int64
}

// FromRun makes the workload of an extracted run: arrivals, lengths, aborts at
// their recorded end, and what is known about shared prefixes, in this order:
// the content ids of content (by core id, from KV events), the prefix
// groups of the client's file, the cached tokens of first snapshots.
func FromRun(run *trace.Run, d *deploy.Deployment, opt RunOptions) (*Workload, error) {
	w := &Workload{}
	prefixes := newPrefixes(run, d)
	var skipped, guessed int
	for row := range run.Requests {
		r := &run.Requests[row]
		at, ok := arrivalNs(r, opt)
		if !ok || opt.FromNs != 0 && at < opt.FromNs || opt.ToNs != 0 && at >= opt.ToNs || opt.Phase != "" && r.Phase.Or("") != opt.Phase {
			continue
		}
		q, ok := requestOf(r)
		if !ok {
			skipped++
			continue
		}
		if !r.ArrivedNs.OK {
			guessed++
		}
		prefixes.apply(&q, r)
		w.Requests = append(w.Requests, q)
		w.Rows = append(w.Rows, row)
	}
	w.sortByArrival(run, opt)
	w.place(run, opt)
	w.Notes = append(w.Notes, prefixes.notes...)
	if skipped > 0 {
		w.Notes = append(w.Notes, trace.Findingf(CodeIncomplete, "%d requests without prompt length were left out", skipped))
	}
	if guessed > 0 {
		w.Notes = append(w.Notes, trace.Findingf(CodeIncomplete,
			"%d requests without ARRIVED: QUEUED less %d us stands for it", guessed, opt.MissingArrivalUs))
	}
	if len(w.Requests) == 0 {
		return nil, trace.Errorf(codeBadWorkload, "run %q: got no request with arrival and prompt length, want at least one", run.ID)
	}
	return w, nil
}

// Codes of this package.
const (
	CodeIncomplete    trace.Code = "workload_incomplete"
	CodePrefixUnknown trace.Code = "workload_prefix_unknown"
	codeBadWorkload   trace.Code = "bad_workload"
)

func arrivalNs(r *trace.Request, opt RunOptions) (int64, bool) {
	switch {
	case opt.Queued:
		return r.QueuedNs.V, r.QueuedNs.OK
	case r.ArrivedNs.OK:
		return r.ArrivedNs.V, true
	}
	return r.QueuedNs.V - opt.MissingArrivalUs*1000, r.QueuedNs.OK
}

// requestOf fills everything but times and prefixes.
func requestOf(r *trace.Request) (sim.Request, bool) {
	if !r.PromptTokens.OK || r.PromptTokens.V < 1 || r.Source == trace.SourceFork && !r.CoreID.OK {
		return sim.Request{}, false
	}
	out := max(1, r.OutputTokens.Or(1))
	q := sim.Request{ID: r.CoreID.Or(r.APIID.V), PromptTokens: r.PromptTokens.V, OutputTokens: out, MaxTokens: max(out, r.MaxTokens.Or(out))}
	if r.FinishStatus.OK && r.FinishStatus.V == trace.FinishStopped && q.MaxTokens == q.OutputTokens {
		q.MaxTokens++ // it stopped by itself at its cap: keep the status
	}
	return q, true
}

// place sets the times.
func (w *Workload) place(run *trace.Run, opt RunOptions) {
	w.BaseNs = opt.BaseNs
	if w.BaseNs == 0 {
		w.BaseNs = earliest(run, w.Rows, opt)
	}
	for i, row := range w.Rows {
		r, q := &run.Requests[row], &w.Requests[i]
		at, _ := arrivalNs(r, opt)
		q.ArrivalUs = max(0, w.Us(at))
		w.placeAbort(r, q)
	}
}

// sortByArrival orders requests by the full stamp, so that equal microseconds
// keep the recorded order.
func (w *Workload) sortByArrival(run *trace.Run, opt RunOptions) {
	order := make([]int, len(w.Rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, _ := arrivalNs(&run.Requests[w.Rows[a]], opt)
		y, _ := arrivalNs(&run.Requests[w.Rows[b]], opt)
		return cmp.Compare(x, y)
	})
	requests, rows := w.Requests, w.Rows
	w.Requests = make([]sim.Request, len(rows))
	w.Rows = make([]int, len(rows))
	for i, j := range order {
		w.Requests[i], w.Rows[i] = requests[j], rows[j]
	}
}

func earliest(run *trace.Run, rows []int, opt RunOptions) int64 {
	first := int64(0)
	for i, row := range rows {
		at, _ := arrivalNs(&run.Requests[row], opt)
		if i == 0 || at < first {
			first = at
		}
	}
	return first
}

// placeAbort ends an aborted request where the recording did. A stop string is
// an abort for the engine and a success for the client.
func (w *Workload) placeAbort(r *trace.Request, q *sim.Request) {
	aborted := r.FinishStatus.Or("") == trace.FinishAborted || r.FinishStatus.Or("") == trace.FinishError
	end := r.FinishedNs
	if !end.OK {
		end = r.AbortedNs
		aborted = aborted || r.AbortedNs.OK
	}
	if !aborted || !end.OK {
		return
	}
	q.AbortAtUs = trace.Some(max(q.ArrivalUs, w.Us(end.V)))
	q.AbortKind = sim.OutcomeAborted
	if r.Success.Or(false) {
		q.AbortKind = sim.OutcomeFinished
	}
	q.OutputTokens = max(q.OutputTokens+1, r.MaxTokens.Or(0))
	q.MaxTokens = max(q.MaxTokens, q.OutputTokens)
}
