package validate

import (
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
	"github.com/blis-train/blis-train/trace"
)

// Names and thresholds of the five saturation checks (03 section 2). Two or more
// hits make a run or a phase saturated.
const (
	CheckFailureShare   = "failure_share"
	CheckQueueRising    = "queue_rising_r2"
	CheckPreemptedShare = "preempted_share"
	CheckTTFTDrift      = "ttft_drift"
	CheckE2ETail        = "e2e_p99_over_p50"

	hitsThatSaturate = 2
	minCheckRequests = 9 // below it the time-order checks say nothing
)

var checks = []struct {
	name, doc string
	threshold float64
	value     func(window) *float64
}{
	{CheckFailureShare, "failed requests / ended requests; requests the client gave up do not count", 0.05, failureShare},
	{CheckQueueRising, "R2 of the requests in the system at each arrival against time, where they rise; null while the offered load itself rises", 0.5, queueRising},
	{CheckPreemptedShare, "requests preempted at least once / requests of the engine", 0.15, preemptedShare},
	{CheckTTFTDrift, "median TTFT of the last third of the requests / of the first third", 2, ttftDrift},
	{CheckE2ETail, "P99 / P50 of E2E", 10, e2eTail},
}

// Saturation is the verdict on one run and on each of its phases. Phases are in
// run.yaml's order without the warm-up; a run without phases has one, unnamed.
type Saturation struct {
	Run    Verdict
	Phases []PhaseVerdict
}

// Verdict holds the five checks of one stretch of time.
type Verdict struct {
	Saturated bool
	Checks    []result.SaturationCheck
}

// PhaseVerdict is the verdict on [StartNs, EndNs) of the monotonic clock.
type PhaseVerdict struct {
	Name           string
	Load           string
	StartNs, EndNs int64
	Verdict
}

// Hits lists the names of the checks over their threshold.
func (v Verdict) Hits() []string {
	hits := []string{}
	for _, c := range v.Checks {
		if c.Hit {
			hits = append(hits, c.Name)
		}
	}
	return hits
}

// Phase returns the verdict on the named phase, or on the run when there is none.
func (s *Saturation) Phase(name string) Verdict {
	for _, p := range s.Phases {
		if p.Name == name {
			return p.Verdict
		}
	}
	return s.Run
}

// Spans are the saturated open phases.
func (s *Saturation) Spans() []rows.Span {
	var out []rows.Span
	for _, p := range s.Phases {
		if p.Saturated && p.Load != deploy.LoadClosed {
			out = append(out, rows.Span{StartNs: p.StartNs, EndNs: p.EndNs})
		}
	}
	return out
}

// Judge is the reason for which a run is left out of a fit, empty for none, and
// the saturated spans of one that is kept.
func Judge(run *trace.Run, dep *deploy.Deployment) (reason string, spans []rows.Span) {
	s := Saturate(run, dep)
	if s.Run.Saturated {
		return hitText(s.Run.Checks), nil
	}
	return "", s.Spans()
}

// Saturate runs the five checks on every phase. The run shows the checks of its
// worst open phase (most hits, then the first) and is saturated when all of its
// open phases are; otherwise only those spans are. A closed loop holds the load
// at what the server can do, so it cannot overrun it: its checks are shown and
// decide nothing. Without an open phase the whole run is checked.
func Saturate(run *trace.Run, dep *deploy.Deployment) *Saturation {
	s := &Saturation{}
	worst, all := -1, true
	for i, p := range phasesOf(run, dep) {
		v := check(windowOf(run, p))
		s.Phases = append(s.Phases, PhaseVerdict{p.Name, p.Load, p.StartNs, p.EndNs, v})
		if p.Load == deploy.LoadClosed {
			continue
		}
		all = all && v.Saturated
		if worst < 0 || len(v.Hits()) > len(s.Phases[worst].Hits()) {
			worst = i
		}
	}
	if worst < 0 {
		s.Run = check(windowOf(run, wholeRun()))
		return s
	}
	s.Run = s.Phases[worst].Verdict
	s.Run.Saturated = all
	return s
}

// phasesOf are the deployment's phases but the warm-up, or the whole run.
func phasesOf(run *trace.Run, dep *deploy.Deployment) []deploy.Phase {
	var out []deploy.Phase
	for _, p := range dep.Phases {
		if p.Name != deploy.WarmupPhase {
			if p.Load == "" {
				p.Load = deploy.LoadOpen
			}
			out = append(out, p)
		}
	}
	if len(dep.Phases) == 0 {
		out = []deploy.Phase{wholeRun()}
	}
	return out
}

// wholeRun is an unnamed open phase that holds every stamp.
func wholeRun() deploy.Phase {
	const all = int64(1) << 62
	return deploy.Phase{StartNs: -all, EndNs: all, Load: deploy.LoadOpen}
}

// window is what the checks look at: requests in order of arrival and steps.
type window struct {
	requests []*trace.Request
	steps    []trace.Step
}

func windowOf(run *trace.Run, p deploy.Phase) window {
	var w window
	for i := range run.Requests {
		r := &run.Requests[i]
		if at, ok := arrivalNs(r); ok && at >= p.StartNs && at < p.EndNs {
			w.requests = append(w.requests, r)
		}
	}
	slices.SortStableFunc(w.requests, func(a, b *trace.Request) int {
		x, _ := arrivalNs(a)
		y, _ := arrivalNs(b)
		return int(max(-1, min(1, x-y)))
	})
	for _, s := range run.Steps {
		if s.TsStartNs >= p.StartNs && s.TsStartNs < p.EndNs {
			w.steps = append(w.steps, s)
		}
	}
	return w
}

// arrivalNs is ARRIVED, else QUEUED, else the stock span's wall-clock start.
func arrivalNs(r *trace.Request) (int64, bool) {
	for _, at := range []trace.Opt[int64]{r.ArrivedNs, r.QueuedNs} {
		if at.OK {
			return at.V, true
		}
	}
	return r.StartWallNs.V, r.StartWallNs.OK && r.Source == trace.SourceStock
}

func check(w window) Verdict {
	v := Verdict{}
	hits := 0
	for _, c := range checks {
		value := c.value(w)
		hit := value != nil && *value > c.threshold
		if hit {
			hits++
		}
		v.Checks = append(v.Checks, result.SaturationCheck{
			Name: c.name, Value: value, Threshold: c.threshold, Hit: hit, Doc: c.doc,
		})
	}
	v.Saturated = hits >= hitsThatSaturate
	return v
}

func failureShare(w window) *float64 {
	failed, ended := 0, 0
	for _, r := range w.requests {
		if !r.Success.OK {
			continue
		}
		ended++
		if isFailure(r) {
			failed++
		}
	}
	return share(failed, ended)
}

// clientDisconnect is the reason of an abort that the client asked for.
const clientDisconnect = "client_disconnect"

// isFailure reports a request that ended without success through no wish of its client.
func isFailure(r *trace.Request) bool {
	return r.Success.OK && !r.Success.V && !isClientAbort(r)
}

func isClientAbort(r *trace.Request) bool {
	if !r.Success.OK || r.Success.V {
		return false
	}
	if r.AbortReason.OK {
		return r.AbortReason.V == clientDisconnect
	}
	return r.FinishStatus.Or("") == trace.FinishAborted
}

func preemptedShare(w window) *float64 {
	preempted, engine := 0, 0
	for _, r := range w.requests {
		if !r.CoreID.OK {
			continue
		}
		engine++
		if r.Preemptions.Or(0) > 0 {
			preempted++
		}
	}
	return share(preempted, engine)
}

// queueRising is R2 of the queue against time, 0 where it falls. The queue is
// everything in the system, running included, at each arrival: an engine with
// many seats lets its batch grow long before anything waits. After the last
// arrival every queue falls, so nothing is read there.
func queueRising(w window) *float64 {
	var x, y, leaves []float64
	for _, r := range w.requests {
		at, _ := arrivalNs(r)
		if end, ok := departureNs(r); ok {
			x, leaves = append(x, float64(at)), append(leaves, float64(end))
		}
	}
	if len(x) < minCheckRequests || isRamp(x) {
		return nil
	}
	slices.Sort(leaves)
	gone := 0
	for i, at := range x {
		for gone < len(leaves) && leaves[gone] <= at {
			gone++
		}
		y = append(y, float64(i-gone))
	}
	slope, r2 := line(x, y)
	if slope <= 0 {
		r2 = 0
	}
	return &r2
}

// rampFactor is how much faster the last third of the arrivals may come than
// the first before the load itself is a ramp.
const rampFactor = 1.5

// isRamp reports whether the offered load rises over the arrivals (sorted, ns): a
// growing number of requests in the system then says nothing about saturation.
func isRamp(arrivals []float64) bool {
	n := len(arrivals)
	third := n / 3
	first, last := arrivals[third]-arrivals[0], arrivals[n-1]-arrivals[n-1-third]
	return last > 0 && first/last > rampFactor
}

// departureNs is when the request left, on the clock of arrivalNs.
func departureNs(r *trace.Request) (int64, bool) {
	if r.Source == trace.SourceStock {
		return r.StartWallNs.V + int64(r.StockE2EUs.V*1e3), r.StockE2EUs.OK && r.StartWallNs.OK
	}
	for _, at := range []trace.Opt[int64]{r.DepartedNs, r.FinishedNs, r.AbortedNs} {
		if at.OK {
			return at.V, true
		}
	}
	return 0, false
}

// line is the least-squares slope of y over x and its R2 (0 when y is constant).
func line(x, y []float64) (slope, r2 float64) {
	mx, my := stat.Mean(x), stat.Mean(y)
	var sxx, sxy, syy float64
	for i := range x {
		sxx += (x[i] - mx) * (x[i] - mx)
		sxy += (x[i] - mx) * (y[i] - my)
		syy += (y[i] - my) * (y[i] - my)
	}
	if sxx == 0 || syy == 0 {
		return 0, 0
	}
	return sxy / sxx, sxy * sxy / (sxx * syy)
}

func ttftDrift(w window) *float64 {
	var ttft []float64
	for _, r := range w.requests {
		if v, ok := TTFTMs(r); ok {
			ttft = append(ttft, v)
		}
	}
	third := len(ttft) / 3
	if len(ttft) < minCheckRequests {
		return nil
	}
	first, last := stat.Median(ttft[:third]), stat.Median(ttft[len(ttft)-third:])
	if first <= 0 {
		return nil
	}
	ratio := last / first
	return &ratio
}

func e2eTail(w window) *float64 {
	var e2e []float64
	for _, r := range w.requests {
		if v, ok := E2EMs(r); ok {
			e2e = append(e2e, v)
		}
	}
	if len(e2e) < minCheckRequests {
		return nil
	}
	o := stat.Sorted(e2e)
	if stat.Quantile(o, 0.5) <= 0 {
		return nil
	}
	ratio := stat.Quantile(o, 0.99) / stat.Quantile(o, 0.5)
	return &ratio
}

func share(part, whole int) *float64 {
	if whole == 0 {
		return nil
	}
	s := float64(part) / float64(whole)
	return &s
}
