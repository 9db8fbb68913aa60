package autoscale

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// randomFleet draws a fleet whose capacity may or may not suffice.
func randomFleet(rng *rand.Rand) (Fleet, []Demand) {
	types := []string{"A100", "H100", "L40S", "MI300X"}[:2+rng.IntN(3)]
	f := Fleet{
		Capacity:        map[string]int{},
		Policy:          policies[rng.IntN(len(policies))],
		DelayBestEffort: rng.IntN(2) == 0,
	}
	cost := map[string]float64{}
	for _, t := range types {
		f.Capacity[t] = rng.IntN(60)
		cost[t] = float64(20 + rng.IntN(300))
	}
	var demands []Demand
	for i := range 1 + rng.IntN(optimumServers) {
		d := Demand{
			Name:        fmt.Sprintf("server-%02d", i),
			Priority:    1 + rng.IntN(3),
			RateRPS:     rng.Float64() * 40,
			MinReplicas: rng.IntN(2),
		}
		if rng.IntN(10) == 0 {
			d.RateRPS = 0
		}
		for _, t := range types {
			for _, units := range []int{1, 2, 4}[:1+rng.IntN(3)] {
				if rng.IntN(3) > 0 {
					d.Options = append(d.Options, Option{
						Accelerator: fmt.Sprintf("%dx%s", units, t),
						Type:        t,
						Units:       units,
						UnitCost:    cost[t],
						RateRPS:     0.5 + rng.Float64()*8*float64(units),
					})
				}
			}
		}
		if len(d.Options) > 0 && rng.IntN(2) == 0 {
			o := d.Options[rng.IntN(len(d.Options))]
			n := 1 + rng.IntN(5)
			d.Current = Placement{o.Accelerator, n, o.UnitCost * float64(o.Units*n)}
			d.Keep = rng.IntN(5) == 0
		}
		demands = append(demands, d)
	}
	return f, demands
}

// checkPlan verifies capacity and priority of a plan.
func checkPlan(t *testing.T, f *Fleet, demands []Demand, p *QueuePlan) {
	t.Helper()
	left := f.available()
	byName := map[string]*Demand{}
	for i := range demands {
		byName[demands[i].Name] = &demands[i]
	}
	units := func(d *Demand, acc string) (string, int) {
		for _, o := range d.Options {
			if o.Accelerator == acc {
				return o.Type, o.Units
			}
		}
		return "", 0
	}
	freed := map[int]map[string]int{} // priority -> units its servers hold
	for _, g := range p.Servers {
		typ, n := units(byName[g.Name], g.Accelerator)
		if left[typ] -= n * g.Replicas; left[typ] < 0 {
			t.Fatalf("%s: %d x %s exceed the capacity of %s", g.Name, g.Replicas, g.Accelerator, typ)
		}
		if g.Full && g.Replicas < g.Wanted || g.Replicas > g.Wanted {
			t.Fatalf("%s: got %d replicas of %d wanted, full %v", g.Name, g.Replicas, g.Wanted, g.Full)
		}
		if freed[g.Priority] == nil {
			freed[g.Priority] = map[string]int{}
		}
		freed[g.Priority][typ] += n * g.Replicas
	}
	for typ, n := range p.Left {
		if left[typ] != n {
			t.Fatalf("left of %s: got %d, want %d", typ, n, left[typ])
		}
	}
	// nobody of a lower priority holds what would have served this one in full; with
	// best effort someone of its own priority may hold a part of it
	partly := slices.ContainsFunc(p.Servers, func(g queueGiven) bool { return g.Replicas > 0 && !g.Full })
	for _, g := range p.Servers {
		if g.Full {
			continue
		}
		for _, c := range byName[g.Name].candidates() {
			room := left[c.typ]
			for prio, held := range freed {
				if prio > g.Priority {
					room += held[c.typ]
				}
			}
			if g.Accelerator != "" {
				if typ, n := units(byName[g.Name], g.Accelerator); typ == c.typ {
					room += n * g.Replicas
				}
			}
			if room >= c.unitsNeeded() && !partly {
				t.Fatalf("%s of priority %d was not served, though lower priorities hold %d of the %d units of %s it needs", g.Name, g.Priority, room,
					c.unitsNeeded(), c.typ)
			}
		}
	}
}

// TestAllocate: 500 random systems; capacity and priorities hold, the input's
// order does not matter, and greedy is compared with the optimum.
func TestAllocate(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 2))
	var ratios []float64
	same := 0
	fewer := 0
	short := 0
	for i := range 500 {
		f, demands := randomFleet(rng)
		p, err := f.Allocate(demands)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, &f, demands, p)
		want, _ := json.Marshal(p)
		for range 3 {
			f, shuffled := shuffle(rng, f, demands)
			q, err := f.Allocate(shuffled)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := json.Marshal(q); string(got) != string(want) {
				t.Fatalf("case %d: another order of the input gives\n%s, want\n%s", i, got, want)
			}
		}
		shared, err := f.Optimum(demands)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, &f, demands, shared)
		checkShared(t, &f, demands, shared)
		f.Policy = policyNone
		best, err := f.Optimum(demands)
		if err != nil {
			t.Fatal(err)
		}
		plain, _ := f.Allocate(demands)
		checkPlan(t, &f, demands, plain)
		checkPlan(t, &f, demands, best)
		if len(plain.Unserved) > 0 {
			short++
		}
		switch {
		case strings.Join(plain.Unserved, " ") != strings.Join(best.Unserved, " "):
			fewer++
			if len(plain.Unserved) < len(best.Unserved) && lexicographic(plain) > lexicographic(best) {
				t.Fatalf("case %d: greedy serves more than the optimum", i)
			}
		default:
			if plain.Value < best.Value-1e-6 {
				t.Fatalf("case %d: greedy has value %g, below the optimum %g", i, plain.Value, best.Value)
			}
			if best.Cost > 0 {
				ratios = append(ratios, plain.Cost/best.Cost)
			}
			if plain.Value <= best.Value+1e-6 {
				same++
			}
		}
	}
	slices.Sort(ratios)
	var sum float64
	for _, r := range ratios {
		sum += r
	}
	t.Logf("allocate: 500 systems, %d short of capacity; greedy = optimum in %d, serves fewer or others in %d; cost ratio greedy/optimum "+
		"mean %.4f, median %.4f, P95 %.4f, worst %.4f",
		short, same, fewer, sum/float64(len(ratios)), ratios[len(ratios)/2], ratios[len(ratios)*95/100], ratios[len(ratios)-1])
}

// checkShared: with a policy that shares what is left, nobody is left with nothing while a
// replica of one of its options fits; greedy and optimum both.
func checkShared(t *testing.T, f *Fleet, demands []Demand, p *QueuePlan) {
	t.Helper()
	for _, g := range p.Servers {
		d := demands[slices.IndexFunc(demands, func(d Demand) bool { return d.Name == g.Name })]
		for _, o := range d.candidates() {
			if f.Policy != policyNone && !f.Unlimited && g.Replicas == 0 && o.Replicas > 0 && o.units <= p.Left[o.typ] {
				t.Fatalf("policy %s: %s has nothing, %d of %s are left", f.Policy, g.Name, p.Left[o.typ], o.typ)
			}
		}
	}
}

// lexicographic is a number that grows with the demands served, first priority first.
func lexicographic(p *QueuePlan) int {
	n := 0
	for _, g := range p.Servers {
		if g.Full {
			n += []int{0, 10000, 100, 1}[g.Priority]
		}
	}
	return n
}

func shuffle(rng *rand.Rand, f Fleet, demands []Demand) (Fleet, []Demand) {
	demands = slices.Clone(demands)
	rng.Shuffle(len(demands), func(i, j int) { demands[i], demands[j] = demands[j], demands[i] })
	for i := range demands {
		demands[i].Options = slices.Clone(demands[i].Options)
		rng.Shuffle(len(demands[i].Options), func(a, b int) {
			o := demands[i].Options
			o[a], o[b] = o[b], o[a]
		})
	}
	return f, demands
}

// TestGreedyByHand: two servers want the same scarce H100s; the one that loses
// more by falling back goes first, whatever it costs.
func TestGreedyByHand(t *testing.T) {
	option := func(acc string, cost, rate float64) Option {
		return Option{
			Accelerator: acc,
			Type:        acc,
			Units:       1,
			UnitCost:    cost,
			RateRPS:     rate,
		}
	}
	f := Fleet{Capacity: map[string]int{"A100": 100, "H100": 2}, Policy: policyNone}
	demands := []Demand{
		{
			Name:     "chat",
			Priority: 1,
			RateRPS:  8,
			Options:  []Option{option("H100", 100, 4), option("A100", 60, 2)},
		}, // 2 H100 = 200 or 4 A100 = 240
		{
			Name:     "code",
			Priority: 1,
			RateRPS:  8,
			Options:  []Option{option("H100", 100, 4), option("A100", 60, 1)},
		}, // 2 H100 = 200 or 8 A100 = 480
	}
	p, err := f.Allocate(demands)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%s %d %s %d %g", p.Servers[0].Accelerator, p.Servers[0].Replicas, p.Servers[1].Accelerator, p.Servers[1].Replicas,
		p.Cost); got != "A100 4 H100 2 440" {
		t.Errorf("got %s, want chat on 4 A100, code on 2 H100, 440 cents/h", got)
	}
}

// TestOptimumIsExact: against all combinations, up to five servers.
func TestOptimumIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 3))
	for i := range 300 {
		f, demands := randomFleet(rng)
		demands = demands[:min(5, len(demands))]
		f.Policy = policyNone
		best, err := f.Optimum(demands)
		if err != nil {
			t.Fatal(err)
		}
		served, value := bruteForce(f.available(), demands)
		if got := lexicographic(best); got != served || !closeTo(best.Value, value, 1e-9) {
			t.Fatalf("case %d: got %d served at value %g, want %d at %g", i, got, best.Value, served, value)
		}
	}
}

// bruteForce tries every combination of candidates.
func bruteForce(left map[string]int, demands []Demand) (served int, value float64) {
	if len(demands) == 0 {
		return 0, 0
	}
	served, value = bruteForce(left, demands[1:])
	for _, c := range demands[0].candidates() {
		if left[c.typ] < c.unitsNeeded() {
			continue
		}
		left[c.typ] -= c.unitsNeeded()
		s, v := bruteForce(left, demands[1:])
		left[c.typ] += c.unitsNeeded()
		s = s + []int{0, 10000, 100, 1}[demands[0].Priority]
		v += c.value
		if s > served || s == served && v < value {
			served, value = s, v
		}
	}
	return served, value
}

// A rate beyond any server's is not served; the number of its replicas does not wrap around.
func TestAbsurdRateIsNotServed(t *testing.T) {
	f := Fleet{Capacity: map[string]int{"H100": 8}, Policy: policyNone}
	plan, err := f.Allocate([]Demand{{
		Name:     "chat",
		Priority: 1,
		RateRPS:  1e300,
		Options:  []Option{{Accelerator: "1xH100", Type: "H100", Units: 1, UnitCost: 400, RateRPS: 5}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if g := plan.Servers[0]; g.Accelerator != "" || g.Replicas != 0 || !slices.Contains(plan.Unserved, "chat") {
		t.Errorf("got %+v, unserved %v, want chat unserved", g, plan.Unserved)
	}
}

// Both autoscalers key a model's numbers by accelerator name: two counts of
// one device must not overwrite each other.
func TestAcceleratorNames(t *testing.T) {
	fit := testkit.ExampleFit()
	got, dup := accelerators(fit.Configs)
	want := []accelerator{{"H100", 1}, {"2xH100", 1}}
	if len(dup) != 0 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v (%v)", got, want, dup)
	}
	got, _ = accelerators(fit.Configs[1:])
	if got[0] != (accelerator{"H100", 2}) {
		t.Errorf("alone: got %v, want 2 units of H100", got[0])
	}
}

func TestDuplicateEntries(t *testing.T) {
	src := exampleSource()
	other := src.Fit.Configs[0]
	other.Key = "c3"
	other.Label = "the same with other knobs"
	src.Fit.Configs = append(src.Fit.Configs, other)
	one, two := writers()
	for _, w := range []export.Writer{one, two} {
		opt := optionsOf(t, w)
		_, err := export.Export(src, w, opt)
		if trace.CodeOf(err) != export.BadEntry || !strings.Contains(err.Error(), "other knobs") {
			t.Errorf("%s: %v", w.Format, err)
		}
		opt.Config = "c3"
		mustExport(t, src, w, opt)
		opt.Config = ""
		opt.Force = string(export.BadEntry)
		mustExport(t, src, w, opt)
	}
	var none []result.FitConfig
	if got, dup := accelerators(none); len(got) != 0 || len(dup) != 0 {
		t.Errorf("no configurations: %v %v", got, dup)
	}
}

// TestDevicesUnderAnyName: a problem counts devices by what they are, and refuses one that it names twice.
func TestDevicesUnderAnyName(t *testing.T) {
	const text = "capacity: {h100_sxm: 16, xeon-amx-1core: 2}\nunit_cost: {%s: 40}\nservers: [{name: a, model: m, rate_rps: 1}]\n"
	p, err := ReadProblem(fmt.Appendf(nil, text, "NVIDIA H100 80GB HBM3"), "p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if p.Capacity["H100-SXM-80GB"] != 16 || p.Capacity["xeon-amx-1core"] != 2 || p.UnitCost["H100-SXM-80GB"] != 40 {
		t.Errorf("got %v and %v", p.Capacity, p.UnitCost)
	}
	if got, want := deviceName("2xH100"), deviceName("2xh100_sxm"); got != want || got != "2xH100-SXM-80GB" {
		t.Errorf("got %q and %q", got, want)
	}
	_, err = ReadProblem(fmt.Appendf(nil, text, "H100: 1, h100_sxm"), "p.yaml")
	if err == nil || !strings.Contains(err.Error(), "another name") {
		t.Errorf("got %v, want two names of one device refused", err)
	}
}

// TestBestEffortLast: three devices, a demand of priority 1 that wants seven and one of priority 2 that wants one. The
// policies of the autoscaler's code divide what is left after each priority, so that the second gets nothing; the rule
// of its first design serves it in full and gives the first what is left.
func TestBestEffortLast(t *testing.T) {
	option := []Option{{Accelerator: "H100", Type: "H100", Units: 1, UnitCost: 1, RateRPS: 1}}
	demands := []Demand{
		{Name: "chat", Priority: 1, RateRPS: 7, Options: option},
		{Name: "batch", Priority: 2, RateRPS: 1, Options: option},
	}
	for rule, want := range map[policy][2]int{ // batch, chat
		policyNone: {1, 0}, policyPriorityExhaustive: {0, 3}, policyPriorityRoundRobin: {0, 3}, policyRoundRobin: {0, 3},
		policyBestEffortLast: {1, 2},
	} {
		f := Fleet{Capacity: map[string]int{"H100": 3}, Policy: rule}
		p, err := f.Allocate(demands)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]int{p.Servers[0].Replicas, p.Servers[1].Replicas}; got != want {
			t.Errorf("%s: got batch %d, chat %d, want %d and %d", rule, got[0], got[1], want[0], want[1])
		}
	}
}

// TestShortNames: a known device has the label of clusters, another keeps its whole name.
func TestShortNames(t *testing.T) {
	for device, want := range map[string]string{"H100-SXM-80GB": "H100", "xeon-amx-1core": "xeon-amx-1core", "my-gpu-96gb": "my-gpu-96gb"} {
		if got := shortName(device); got != want {
			t.Errorf("%s: got %q, want %q", device, got, want)
		}
	}
	if got := askedFor(0).Text; got != report.Unknown {
		t.Errorf("a target that was not given: got %q, want %q", got, report.Unknown)
	}
}
