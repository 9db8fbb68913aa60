package cluster

// This file decides about the four published statements, H14-1 to H14-4, from contrasts of the
// experiment (spec#verdicts). A contrast is a paired difference over seeds; a verdict needs every
// precondition of its statement.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// The verdicts on a published statement (spec#verdicts).
const (
	confirmed    = "CONFIRMED"
	refuted      = "REFUTED"
	inconclusive = "INCONCLUSIVE"
	notTestable  = "NOT TESTABLE"
)

// fewestSeeds is the number of seeds that a verdict needs. With fewer, no p of a sign-flip test can
// be below 5 % after Holm's correction for four or more endpoints.
const fewestSeeds = 8

// statement is one of the four published statements, with the contrasts that decide it and the
// preconditions that the runs do not meet.
type statement struct {
	id, text string
	blocked  []string      // preconditions that are not met
	evidence []contrastDoc // each is above 0 if the statement holds
}

// addVerdicts sets d.Verdicts to the verdicts on all four statements for the lab's own gate
// (spec#verdicts).
func (l *lab) addVerdicts(d *Document) {
	own := l.sides()
	d.Verdicts = l.verdicts(d, append([]statement{l.equalTailStatement(d, own.main)}, l.beyondFirst(d, own)...))
}

// beyondFirst returns the statements H14-2 to H14-4. H14-1 needs the frontier cells, which are not
// run for rivals.
func (l *lab) beyondFirst(d *Document, s sides) []statement {
	return []statement{l.cacheStatement(d, s), l.latencyStatement(s), throughput(s)}
}

// verdicts returns a verdict on each statement. The p values of all evidence in the list are
// corrected together by Holm's method. d has the figures that the reasons name.
func (l *lab) verdicts(d *Document, list []statement) []verdictDoc {
	var p []float64
	for _, s := range list {
		for _, e := range s.evidence {
			p = append(p, knownOrNaN(e.P))
		}
	}
	holm := stat.Holm(p)
	k := 0
	var out []verdictDoc
	for _, s := range list {
		for i := range s.evidence {
			s.evidence[i].Holm = result.OrNull(holm[k])
			k++
		}
		out = append(out, s.verdict(l, d))
	}
	return out
}

// knownOrNaN returns *v, and NaN for nil.
func knownOrNaN(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// verdict decides about one statement: NOT TESTABLE if a precondition is not met, CONFIRMED if
// every contrast is significantly above 0 (interval and corrected p), REFUTED if one is
// significantly below 0, otherwise INCONCLUSIVE. With preconditions met, fewer than fewestSeeds
// seeds are inconclusive.
func (s *statement) verdict(l *lab, d *Document) verdictDoc {
	v := verdictDoc{ID: s.id, Statement: s.text, Evidence: s.evidence, Verdict: inconclusive}
	if v.Evidence == nil {
		v.Evidence = []contrastDoc{}
	}
	above := 0
	below := 0
	missing := 0
	for _, e := range s.evidence {
		switch {
		case e.Lo == nil || e.Hi == nil || e.Holm == nil:
			missing++
		case *e.Lo > 0 && *e.Holm <= 0.05:
			above++
		case *e.Hi < 0 && *e.Holm <= 0.05:
			below++
		}
	}
	switch {
	case len(s.blocked) > 0:
		v.Verdict = notTestable
		v.Why = strings.Join(s.blocked, "; ")
	case len(l.seeds) < fewestSeeds:
		v.Why = fmt.Sprintf("%d seeds are too few for a verdict, at least %d are needed", len(l.seeds), fewestSeeds)
	case missing > 0 || len(s.evidence) == 0:
		v.Why = "an endpoint has no finite difference"
	case below > 0:
		v.Verdict = refuted
		v.Why = "an endpoint lies below its bound, and its interval excludes 0"
	case above == len(s.evidence):
		v.Verdict = confirmed
		v.Why = "every endpoint lies above its bound, and its interval excludes 0"
	default:
		v.Why = "an endpoint is not significant: its interval contains 0, or its corrected p is above 0.05"
	}
	v.Why += fmt.Sprintf(" (preset %s, %s, rho %.2f, %g s of arrivals, %d seeds)", d.Preset, d.Label, d.Rho,
		d.HorizonS, len(d.Seeds))
	return v
}

// carryVerdicts appends to the reason of each verdict with which kinds of coefficients in the gate
// it was confirmed too. A statement that is confirmed only with the engines' own coefficients (kind
// same) is an upper bound that no fitted gate reached.
func carryVerdicts(d *Document) {
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		var holds, fails []string
		for _, c := range d.Controllers {
			switch c.Verdicts[v.ID] {
			case "":
			case confirmed:
				holds = append(holds, c.Kind)
			default:
				fails = append(fails, c.Kind)
			}
		}
		switch {
		case len(holds) == 0:
		case slices.Equal(holds, []string{kindSame}):
			v.Why += "; confirmed only for controller same, the upper bound"
		case len(fails) == 0:
			v.Why += "; confirmed for every controller: " + strings.Join(holds, ", ")
		default:
			v.Why += "; confirmed for controllers " + strings.Join(holds, ", ") + ", not for " + strings.Join(fails,
				", ")
		}
	}
}

// selectionBlocks returns the unmet preconditions that the statements H14-1 and H14-2 share: the
// predictive gate must reject more than 5 %, and cached tokens must differ between requests, or
// there is nothing to select by.
func selectionBlocks(d *Document, main []*outcome) (blocked []string) {
	rejects := 1 - stat.Mean(valuesOf(main, figureBy("admitted_share")))
	if rejects <= 0.05 {
		blocked = append(blocked, fmt.Sprintf("predictive rejects %.1f %%, want more than 5 %%", 100*rejects))
	}
	if cv := knownOrNaN(d.MatchedCV); !(cv > 0.2) {
		blocked = append(blocked,
			fmt.Sprintf("matched tokens hardly differ between requests (CV %.2f, want above 0.2): there is nothing "+
				"cache-aware to select on", cv))
	}
	return blocked
}

// equalTailStatement returns statement H14-1: it compares the frontiers of the two gates at
// settings that give class critical the same P99 of TTFT.
func (l *lab) equalTailStatement(d *Document, main []*outcome) statement {
	s := statement{
		id:      "H14-1",
		text:    "at equal critical P99 predictive admits at least 30 % more than slo-gated, and its goodput is higher",
		blocked: selectionBlocks(d, main),
	}
	gate := l.frontierPoints(policyGated)
	ours := l.frontierPoints(policyPredictive)
	// By seed, at the common P99: what predictive does, and what it has to exceed.
	var admitted, admittedBound, goodput, goodputBound []float64
	for k := range l.seeds {
		at, ok := commonP99(gate[k], ours[k])
		if !ok {
			continue
		}
		a := pointAt(ours[k], at)
		b := pointAt(gate[k], at)
		admitted = append(admitted, a.admitted)
		admittedBound = append(admittedBound, 1.3*b.admitted)
		goodput = append(goodput, a.goodput)
		goodputBound = append(goodputBound, b.goodput)
	}
	if len(admitted) < len(l.seeds)/2 {
		s.blocked = append(s.blocked, fmt.Sprintf("the two frontiers share a critical P99 with %d of %d seeds", len(admitted), len(l.seeds)))
		return s
	}
	s.evidence = []contrastDoc{
		pairedContrast(policyPredictive, "1.3 x slo-gated, same critical P99", "admitted_share", admitted, admittedBound),
		pairedContrast(policyPredictive, "slo-gated, same critical P99", "goodput", goodput, goodputBound)}
	return s
}

// point is one setting of a gate with one seed: P99 of TTFT of class critical in ms, and admitted
// share and goodput in [0, 1].
type point struct{ p99, admitted, goodput float64 }

// frontierPoints returns, for each seed, the settings of a gate in increasing order of the critical
// class's P99. Settings without a finite P99 are omitted.
func (l *lab) frontierPoints(policy string) [][]point {
	out := make([][]point, len(l.seeds))
	for i := range l.cells {
		c := &l.cells[i]
		if c.Role != roleFrontier || c.Spec.Admission.Policy != policy {
			continue
		}
		for k, r := range l.runs[i] {
			if math.IsInf(r.Critical, 0) || math.IsNaN(r.Critical) {
				continue
			}
			out[k] = append(out[k], point{
				p99:      r.Critical,
				admitted: r.All.AdmittedShare(),
				goodput:  r.All.Goodput(),
			})
		}
	}
	for k := range out {
		stat.SortStable(out[k], func(a, b point) int { return cmp.Compare(a.p99, b.p99) })
	}
	return out
}

// commonP99 returns the middle of the range of critical P99, in ms, that both frontiers cover;
// false if they do not overlap.
func commonP99(a, b []point) (float64, bool) {
	if len(a) == 0 || len(b) == 0 {
		return 0, false
	}
	lo := math.Max(a[0].p99, b[0].p99)
	hi := math.Min(a[len(a)-1].p99, b[len(b)-1].p99)
	return (lo + hi) / 2, lo <= hi
}

// pointAt returns the frontier f at the critical P99 x, by linear interpolation; outside its range
// the nearest point.
func pointAt(f []point, x float64) point {
	i := 0
	for i < len(f)-2 && f[i+1].p99 < x {
		i++
	}
	a := f[i]
	b := f[min(i+1, len(f)-1)] // a itself on a frontier of one point
	t := 0.0
	if b.p99 > a.p99 {
		t = math.Max(0, math.Min(1, (x-a.p99)/(b.p99-a.p99)))
	}
	return point{
		p99:      x,
		admitted: a.admitted + t*(b.admitted-a.admitted),
		goodput:  a.goodput + t*(b.goodput-a.goodput),
	}
}

// cacheStatement returns statement H14-2: the predictive gate selects requests of which more tokens
// are expected in a cache than a random gate with the same reject rates does.
func (l *lab) cacheStatement(d *Document, r sides) statement {
	s := statement{
		id: "H14-2",
		text: "rejecting by prediction raises the potential cached share of all arrivals above that of a random " +
			"gate with the same rates",
		blocked: selectionBlocks(d, r.main),
	}
	window := l.preset.Seconds - l.preset.WarmupS
	if window < 10*d.LifetimeS {
		s.blocked = append(s.blocked,
			fmt.Sprintf("the window of %g s is shorter than ten lifetimes of %.1f s", window, d.LifetimeS))
	}
	s.evidence = []contrastDoc{cellContrast(mainCell, matchedCell, r.main, r.matched, "potential_share")}
	return s
}

// latencyStatement returns statement H14-3: the P99 of TTFT of admitted requests stays below 100 ms
// at almost the goodput of slo-gated.
func (l *lab) latencyStatement(r sides) statement {
	s := statement{
		id: "H14-3",
		text: "pooled P99 of admitted requests stays below 100 ms, at a goodput no more than 1 point below " +
			"configuration 2 (" + gatedCell + ")",
	}
	window := l.preset.Seconds - l.preset.WarmupS
	if window < 30 {
		s.blocked = append(s.blocked, fmt.Sprintf("the window of %g s is shorter than 30 s", window))
	}
	if !l.isStationary(r.main) {
		s.blocked = append(s.blocked, "the queue of admitted requests grows: not stationary")
	}
	main, second := r.main, r.gated
	limit := slices.Repeat([]float64{100}, len(l.seeds))
	floor := valuesOf(second, figureBy("goodput"))
	for i := range floor {
		floor[i] -= 0.01
	}
	s.evidence = []contrastDoc{
		pairedContrast("100 ms", mainCell, "ttft_p99_admitted_ms", limit,
			valuesOf(main, figureBy("ttft_p99_admitted_ms"))),
		pairedContrast(mainCell, gatedCell+" less 1 point", "goodput", valuesOf(main, figureBy("goodput")), floor)}
	return s
}

// throughput returns statement H14-4: output tokens per second stay at 95 % or more of slo-gated's.
func throughput(r sides) statement {
	main := r.main
	second := valuesOf(r.gated, figureBy("output_tokens_per_s"))
	for i := range second {
		second[i] *= 0.95
	}
	return statement{
		id:   "H14-4",
		text: "output tokens per second stay at 95 % of configuration 2 (" + gatedCell + ") or above",
		evidence: []contrastDoc{pairedContrast(mainCell, "0.95 x "+gatedCell, "output_tokens_per_s",
			valuesOf(main, figureBy("output_tokens_per_s")), second)},
	}
}
