package cluster

import (
	"bytes"
	"context"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
)

// quick is one seed with the engines' own coefficients in the gate.
func quick(t *testing.T, preset string, workers int) *Document {
	t.Helper()
	d, err := run(context.Background(), IsolationOptions{Preset: preset, Seeds: 1, Workers: workers, Instances: 8}, inputs{
		plant: plant{Name: "blackbox", Deployment: defaultDeployment()}, gate: gate{Kind: kindSame, Scale: 1},
		others: []rival{{Plant: plant{Name: "trained-physics", Deployment: defaultDeployment(), Other: true},
			Gate: gate{Kind: kindOtherForm, Scale: 1}}}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The preset seed has thirteen cells on equal arrivals, says that its first two
// statements cannot be tested, and is the same for any number of workers.
func TestSeedPreset(t *testing.T) {
	d := quick(t, "seed", 1)
	var one, two bytes.Buffer
	if err := result.Write(&one, d); err != nil {
		t.Fatal(err)
	}
	if err := result.Write(&two, quick(t, "seed", 3)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("other bytes with three workers")
	}
	cells := 0
	for _, c := range d.Cells {
		if c.Role == roleCell {
			cells++
		}
	}
	if cells != 13 || len(d.Published) != 5 || len(d.Transient) != 3 {
		t.Errorf("got %d cells, %d published, %d transient, want 13, 5, 3", cells, len(d.Published), len(d.Transient))
	}
	for _, v := range d.Verdicts {
		if testable := v.ID == "H14-4"; (v.Verdict == notTestable) == testable || v.Verdict == confirmed || v.Verdict == refuted {
			t.Errorf("%s: got %s (%s)", v.ID, v.Verdict, v.Why)
		}
	}
	for _, at := range d.Loads {
		for _, c := range at.Contrasts {
			if own := c.A == gatedCell || c.A == mainCell || c.A == noFloorCell || c.A == sizeCell; own && at.Rho == quietRho &&
				c.Figure == "goodput" && *c.Effect != 0 {
				t.Errorf("%s at rho %g: got %g on goodput, want none", c.A, at.Rho, *c.Effect)
			}
		}
	}
	other := d.Controllers[1]
	if math.Abs(other.Rho-d.Rho) > 0.01 || other.RateRPS == d.RateRPS || !(*other.Admitted < 0.95) {
		t.Errorf("other engines: got rho %g at %g/s, admitted %g, want rho %g at a rate of their own, and rejects", other.Rho, other.RateRPS,
			*other.Admitted, d.Rho)
	}
	if a, b, c := *d.Transient[0].P99Ms, *d.Transient[1].P99Ms, *d.Transient[2].P99Ms; !(a < b && b < c) {
		t.Errorf("P99 after 0.25, 1 and 4 s: got %g, %g, %g ms, want it to grow", a, b, c)
	}
}

// lines are frontiers on which predictive admits and serves by factors of the gate.
func lines(admits, serves float64) *lab {
	l := &lab{seeds: seedsOf(12), preset: presets[1]}
	for _, policy := range []string{"slo-gated", "predictive"} {
		for k := range 4 {
			c := cell{Role: roleFrontier, Spec: specOf(policy, scorersNew, "fcfs")}
			var runs []*outcome
			for s := range l.seeds {
				o := fake(100+50*float64(k), 0.3+0.1*float64(k), 0.2+0.05*float64(k), float64(s))
				if policy == "predictive" {
					o = fake(100+50*float64(k), admits*(0.3+0.1*float64(k)), serves*(0.2+0.05*float64(k)), float64(s))
				}
				runs = append(runs, o)
			}
			l.cells, l.runs = append(l.cells, c), append(l.runs, runs)
		}
	}
	return l
}

func TestFrontiersAreCompared(t *testing.T) {
	for _, c := range []struct {
		admits, serves float64
		want           string
	}{{1.5, 1.2, confirmed}, {1.1, 1.2, refuted}, {1.5, 0.8, refuted}, {1.5, 1, inconclusive}} {
		l := lines(c.admits, c.serves)
		s := statement{id: "x"}
		gate, ours := l.frontier("slo-gated"), l.frontier("predictive")
		var a, b, g, h []float64
		for k := range l.seeds {
			at, ok := common(gate[k], ours[k])
			if !ok {
				t.Fatal("no common level")
			}
			p, q := at.on(ours[k]), at.on(gate[k])
			a, b, g, h = append(a, p.admitted), append(b, 1.3*q.admitted), append(g, p.goodput), append(h, q.goodput)
		}
		s.evidence = []contrastDoc{pairedContrast("a", "b", "x", a, b), pairedContrast("g", "h", "x", g, h)}
		for i := range s.evidence {
			s.evidence[i].Holm = s.evidence[i].P
		}
		if v := s.verdict(l, &Document{}); v.Verdict != c.want {
			t.Errorf("admits %g, serves %g: got %s, want %s", c.admits, c.serves, v.Verdict, c.want)
		}
	}
}

// Arrivals, lengths, groups and classes of a request do not depend on the others.
func TestLoadsAreKeyed(t *testing.T) {
	for name, l := range loads {
		if name == recorded || name == given {
			continue
		}
		long, short := l.Draw(7, 100, 20), l.Draw(7, 100, 10)
		if len(short) == 0 || len(long) <= len(short) {
			t.Fatalf("%s: %d and %d requests", name, len(long), len(short))
		}
		for i := range short {
			if l.Newcomer {
				break // half-time is elsewhere
			}
			if long[i].ArrivalUs != short[i].ArrivalUs || long[i].PromptTokens != short[i].PromptTokens || long[i].SLOClass != short[i].SLOClass {
				t.Fatalf("%s: request %d differs", name, i)
			}
		}
		classes := map[string]int{}
		for _, q := range long {
			classes[q.SLOClass]++
		}
		if min(classes["critical"], classes["standard"], classes["sheddable"]) < len(long)/4 {
			t.Errorf("%s: classes %v", name, classes)
		}
		if l.Newcomer != slices.ContainsFunc(long, func(q simRequest) bool { return q.Group == newcomerGroup }) {
			t.Errorf("%s: newcomer %v", name, l.Newcomer)
		}
		gaps := 0.0
		for i := 1; i < len(long); i++ {
			gaps += float64(long[i].ArrivalUs-long[i-1].ArrivalUs) / 1e6
		}
		if rate := float64(len(long)-1) / gaps; math.Abs(rate-100) > 15 {
			t.Errorf("%s: rate %g, want 100", name, rate)
		}
	}
}

type simRequest = sim.Request

// A recorded hour arrives at the rate that is asked for, its batches spread; lengths
// shrink, who shares what with whom does not; a second pass shares with itself alone.
func TestRecordedHourIsPlayed(t *testing.T) {
	var reqs []sim.Request
	for i := range 100 { // ten batches of ten; each shares its first span with all, its second with its batch
		reqs = append(reqs, sim.Request{ArrivalUs: int64(i/10) * 3_000_000, PromptTokens: 1600, OutputTokens: 160, HashTokens: 512,
			Hashes: []uint64{1, uint64(2 + i/10)}})
	}
	l, err := loadOf(recorded, reqs)
	if err != nil {
		t.Fatal(err)
	}
	got := l.Draw(7, 50, 4) // two passes
	if len(got) < 190 || len(got) > 210 {
		t.Fatalf("got %d requests in 4 s, want about 200", len(got))
	}
	batches, firsts := map[uint64]int{}, map[uint64]int{}
	for i, q := range got {
		if q.PromptTokens != 100 || q.OutputTokens != 10 || q.HashTokens != 32 || q.SLOTTFTUs == 0 {
			t.Fatalf("request %d: got %+v", i, q)
		}
		if i > 0 && q.ArrivalUs < got[i-1].ArrivalUs || math.Abs(float64(q.ArrivalUs)-float64(i)*20_000) > 60_000 {
			t.Fatalf("request %d at %d us, the one before at %d", i, q.ArrivalUs, got[max(0, i-1)].ArrivalUs)
		}
		batches[q.Hashes[1]]++
		firsts[q.Hashes[0]]++
	}
	if len(firsts) < 2 || len(firsts) > 3 || len(batches) < 20 || len(batches) > 22 {
		t.Errorf("got %d first and %d second spans, want one and ten a pass", len(firsts), len(batches))
	}
	if again := l.Draw(7, 50, 2); again[50].ArrivalUs != got[50].ArrivalUs || again[50].SLOClass != got[50].SLOClass {
		t.Error("a request depends on how long arrivals last")
	}
	for _, bad := range [][]sim.Request{nil, {{PromptTokens: 5}}, {{PromptTokens: 5, Hashes: []uint64{1}, HashTokens: 512}}} {
		if _, err := loadOf(recorded, bad); err == nil {
			t.Errorf("%v: got a workload, want an error", bad)
		}
	}
}

// Requests of a file keep what they are; faster loads have them come faster, and a seed
// starts where its draw says.
func TestGivenRequestsArePlayed(t *testing.T) {
	var reqs []sim.Request
	for i := range 100 {
		reqs = append(reqs, sim.Request{ArrivalUs: 5_000 + int64(i)*10_000, PromptTokens: int64(100 + i), OutputTokens: 7, Group: 3,
			GroupTokens: 64, SLOClass: []string{"critical", "chat"}[i%2], SLOITLUs: []int64{0, 20_000}[i%2]})
	}
	l, err := loadOf(given, reqs)
	if err != nil {
		t.Fatal(err)
	}
	got, other := l.Draw(7, 200, 2), l.Draw(8, 200, 2)
	if len(got) != 400 || digestOf(got) == digestOf(other) {
		t.Fatalf("got %d requests in 2 s, want 400, and others of another seed", len(got))
	}
	for i, q := range got {
		from := int64(got[0].PromptTokens-100) + int64(i)
		want := reqs[from%100]
		want.ID, want.ArrivalUs = strconv.Itoa(i), int64(i)*5_000
		if want.SLOClass == "critical" {
			want.SLOTTFTUs = 200_000
		}
		if !reflect.DeepEqual(q, want) {
			t.Fatalf("request %d: got %+v, want %+v", i, q, want)
		}
	}
	waits, differs := slices.Clone(reqs), slices.Clone(reqs)
	waits[5].After, differs[5].SLOITLUs = 3, 10_000
	for _, bad := range [][]sim.Request{nil, reqs[:1], waits, differs} {
		if _, err := loadOf(given, bad); err == nil {
			t.Errorf("%d requests: got a workload, want an error", len(bad))
		}
	}
}

// A confirmation says for which coefficients it holds.
func TestConfirmationSaysWhereItHolds(t *testing.T) {
	for _, c := range []struct{ same, fitted, want string }{
		{confirmed, inconclusive, "only for controller same"},
		{confirmed, confirmed, "for every controller"},
		{inconclusive, confirmed, "for controllers fitted, not for same"},
	} {
		d := &Document{Verdicts: []verdictDoc{{ID: "H14-4", Verdict: confirmed}},
			Controllers: []controllerDoc{{Kind: kindFitted, Verdicts: map[string]string{"H14-4": c.fitted}},
				{Kind: kindSame, Verdicts: map[string]string{"H14-4": c.same}}}}
		if carry(d); !strings.Contains(d.Verdicts[0].Why, c.want) {
			t.Errorf("same %s, fitted %s: got %q, want %q", c.same, c.fitted, d.Verdicts[0].Why, c.want)
		}
	}
}

// fake is a run with a few figures.
func fake(p99, admitted, good, jitter float64) *outcome {
	n := 100_000
	wobble := 1 + 0.01*math.Sin(jitter*7)
	return &outcome{Goodput: &Goodput{All: Class{Arrived: n, Admitted: int(admitted * wobble * float64(n)),
		Good: int(good * (2 - wobble) * float64(n))},
		Critical: tail{P99: p99 + jitter}}}
}
