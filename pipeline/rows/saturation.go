package rows

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// This file runs the five checks for an overloaded server on the phases of
// a run.

// LoadVerdicts are the checks of one run and of each of its phases. Phases are in run.yaml's order
// without the warm-up; a run without phases has one, unnamed.
type LoadVerdicts struct {
	Run    LoadVerdict
	Phases []PhaseVerdict
}

// LoadVerdict has the results of the five checks for an overloaded server over one stretch of time.
type LoadVerdict struct {
	Saturated bool
	Checks    []result.SaturationCheck
}

// PhaseVerdict has the checks of the phase [StartNs, EndNs) on the monotonic clock.
type PhaseVerdict struct {
	Name           string
	Load           string
	StartNs, EndNs int64
	Requests       int // that arrive in it
	Steps          int // that start in it
	LoadVerdict
}

// Hits returns the names of the checks whose value is over the threshold.
func (v LoadVerdict) Hits() []string {
	hits := []string{}
	for _, c := range v.Checks {
		if c.Hit {
			hits = append(hits, c.Name)
		}
	}
	return hits
}

// Phase returns the verdict on the named phase, or on the run when there is none.
func (s *LoadVerdicts) Phase(name string) LoadVerdict {
	for _, p := range s.Phases {
		if p.Name == name {
			return p.LoadVerdict
		}
	}
	return s.Run
}

// Spans returns the saturated phases, without closed loops.
func (s *LoadVerdicts) Spans() []Span {
	var out []Span
	for _, p := range s.Phases {
		if p.Saturated && p.Load != deploy.LoadClosed {
			out = append(out, Span{StartNs: p.StartNs, EndNs: p.EndNs})
		}
	}
	return out
}

// JudgeLoad returns the reason for which a run is excluded from a fit, or an empty reason and the
// saturated spans of a run that is kept.
func JudgeLoad(run *trace.Run, dep *deploy.Deployment) (reason string, spans []Span) {
	s := VerdictsOf(run, dep)
	if s.Run.Saturated {
		return HitText(s.Run.Checks), nil
	}
	return "", s.Spans()
}

// VerdictsOf returns the results of the five checks on every phase (spec#saturation).
//
// A closed loop sends a request only after an answer, so it cannot overload the server: its checks
// are shown and decide nothing. A phase is a closed loop if run.yaml states it, or if the number of
// its requests in flight stays the same. The other phases are open. The run shows the checks of its
// worst open phase (most hits, then the first) and is saturated if all of its open phases are;
// otherwise only those phases are. Without an open phase the checks of the whole run are shown.
func VerdictsOf(run *trace.Run, dep *deploy.Deployment) *LoadVerdicts {
	s := &LoadVerdicts{}
	worst := -1             // index of the open phase with most hits
	areAllSaturated := true // of the open phases
	for i, p := range PhasesOf(run, dep) {
		w := windowOf(run, p)
		v := runFiveChecks(w)
		if p.Load == deploy.LoadClosed || w.holdsLoad() {
			p.Load = deploy.LoadClosed
			v.Saturated = false
		}
		s.Phases = append(s.Phases, PhaseVerdict{
			Name:        p.Name,
			Load:        p.Load,
			StartNs:     p.StartNs,
			EndNs:       p.EndNs,
			Requests:    len(w.requests),
			Steps:       w.steps,
			LoadVerdict: v,
		})
		if p.Load == deploy.LoadClosed {
			continue
		}
		areAllSaturated = areAllSaturated && v.Saturated
		if worst < 0 || len(v.Hits()) > len(s.Phases[worst].Hits()) {
			worst = i
		}
	}
	if worst < 0 {
		s.Run = runFiveChecks(windowOf(run, wholeRun()))
		s.Run.Saturated = false
		return s
	}
	s.Run = s.Phases[worst].LoadVerdict
	s.Run.Saturated = areAllSaturated
	return s
}

// holdsLoad reports whether the number of requests in flight is constant in the window, as in a
// closed loop or with a client at its limit of concurrency. The samples of an API request are one call.
func (w *loadWindow) holdsLoad() bool {
	const neverEnds = int64(1) << 62
	var sent, end []int64
	byID := map[string]int{}
	for _, r := range w.requests {
		at, _ := r.ArrivalNs()
		left, hasLeft := r.DepartureNs()
		if !hasLeft {
			left = neverEnds
		}
		if k, known := byID[r.APIID.V]; known && r.APIID.OK {
			end[k] = max(end[k], left)
			continue
		}
		byID[r.APIID.V] = len(sent)
		sent = append(sent, at)
		end = append(end, left)
	}
	return len(sent) >= stat.FewestCalls && stat.ConcurrencyOf(sent, end).IsClosed()
}

// PhasesOf returns the deployment's phases without the warm-up, or one phase that is the whole run.
func PhasesOf(run *trace.Run, dep *deploy.Deployment) []deploy.Phase {
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

// wholeRun returns an unnamed open phase that every stamp lies in.
func wholeRun() deploy.Phase {
	const all = int64(1) << 62
	return deploy.Phase{StartNs: -all, EndNs: all, Load: deploy.LoadOpen}
}

// loadWindow has the requests that arrive in a stretch of time, in order, and the number of steps
// recorded in it.
type loadWindow struct {
	requests []*trace.Request
	steps    int // recorded
}

// windowOf returns the requests and steps of a phase.
func windowOf(run *trace.Run, p deploy.Phase) loadWindow {
	var w loadWindow
	for i := range run.Requests {
		r := &run.Requests[i]
		if at, ok := r.ArrivalNs(); ok && at >= p.StartNs && at < p.EndNs {
			w.requests = append(w.requests, r)
		}
	}
	slices.SortStableFunc(w.requests, func(a, b *trace.Request) int {
		x, _ := a.ArrivalNs()
		y, _ := b.ArrivalNs()
		return cmp.Compare(x, y)
	})
	for i := range run.Steps {
		if s := &run.Steps[i]; s.TsStartNs >= p.StartNs && s.TsStartNs < p.EndNs {
			w.steps++
		}
	}
	return w
}

// runFiveChecks returns the results of the five checks on the requests of a window.
func runFiveChecks(w loadWindow) LoadVerdict {
	arrivals := make([]stat.Arrival, len(w.requests))
	for i, r := range w.requests {
		at, _ := r.ArrivalNs()
		left, hasLeft := r.DepartureNs()
		ttft, hasTTFT := r.TTFTMs()
		e2e, hasE2E := r.E2EMs()
		arrivals[i] = stat.Arrival{
			At: float64(at), Left: orNaN(float64(left), hasLeft), TTFT: orNaN(ttft, hasTTFT), E2E: orNaN(e2e, hasE2E),
			Ended: r.Success.OK, Failed: r.Failed(), Engine: r.CoreID.OK, Preempted: r.Preemptions.Or(0) > 0,
		}
	}
	checks, saturated := stat.Saturation(arrivals)
	v := LoadVerdict{Saturated: saturated}
	for _, c := range checks {
		v.Checks = append(v.Checks, result.SaturationCheck{Name: c.Name, Value: result.OrNull(c.Value), Threshold: c.Limit, Hit: c.Hit,
			Doc: c.Doc})
	}
	return v
}

// orNaN returns v if it is known, else NaN.
func orNaN(v float64, ok bool) float64 {
	if !ok {
		return math.NaN()
	}
	return v
}

// HitText returns the checks that hit with value and threshold, as text.
func HitText(checks []result.SaturationCheck) string {
	var hits []string
	for _, c := range checks {
		if c.Hit {
			hits = append(hits, fmt.Sprintf("%s %.2f > %.2f", c.Name, *c.Value, c.Threshold))
		}
	}
	if len(hits) == 0 {
		return "requests pile up in the system"
	}
	return strings.Join(hits, ", ")
}
