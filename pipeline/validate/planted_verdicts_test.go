package validate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// plantedLoads are from narrow to wide.
var plantedLoads = []struct {
	name string
	make func(n int, seed uint64) []sim.Request
}{
	{"constant lengths, 2/s", func(n int, seed uint64) []sim.Request { return poissonLoad(n, 2, 1024, 128, 0, seed) }},
	{"wide lengths, 8/s", func(n int, seed uint64) []sim.Request { return poissonLoad(n, 8, 220, 180, 1, seed) }},
	{"wide lengths, 16/s", func(n int, seed uint64) []sim.Request { return poissonLoad(n, 16, 220, 180, 1, seed) }},
}

// poissonLoad is n Poisson requests with lognormal lengths of these medians and this standard deviation of
// their logarithms.
func poissonLoad(n int, rps, prompt, output, sd float64, seed uint64) []sim.Request {
	rng := rand.New(rand.NewPCG(seed, 1))
	atUs := 0.0
	reqs := make([]sim.Request, n)
	for i := range reqs {
		out := 2 + int64(output*math.Exp(sd*rng.NormFloat64()))
		reqs[i] = sim.Request{
			ID: fmt.Sprintf("c%05d", i), ArrivalUs: int64(atUs), OutputTokens: min(out, 2000), MaxTokens: min(out, 2000),
			PromptTokens: min(4000, 8+int64(prompt*math.Exp(sd*rng.NormFloat64()))),
		}
		atUs += rng.ExpFloat64() / rps * 1e6
	}
	return reqs
}

// wrongness is what is believed of the planted server.
type wrongness struct {
	name   string
	change func(set *coeff.Set, o *Options)
}

func allTerms(factor float64) func(*coeff.Set, *Options) {
	return func(set *coeff.Set, _ *Options) {
		for j := range set.Beta {
			set.Beta[j].Value *= factor
		}
	}
}

func oneTerm(name string, factor float64) func(*coeff.Set, *Options) {
	return func(set *coeff.Set, _ *Options) { setTerm(set, name, factor*termOf(set, name)) }
}

const delayUs = 5000.0

func overheadTimes(factor float64) func(*coeff.Set, *Options) {
	return func(_ *coeff.Set, o *Options) { us := factor * delayUs; o.OverheadUs = &us }
}

var wrongnesses = []wrongness{
	{"right", func(*coeff.Set, *Options) {}},
	{"all x1.03", allTerms(1.03)},
	{"all x0.97", allTerms(0.97)},
	{"all x1.05", allTerms(1.05)},
	{"all x1.10", allTerms(1.10)},
	{"all x0.90", allTerms(0.90)},
	{"all x1.20", allTerms(1.20)},
	{"prefill x1.2", oneTerm("prefill_linear_compute", 1.2)},
	{"weights x1.2", oneTerm("decode_weight_load", 1.2)},
	{"overhead x3", overheadTimes(3)},
}

// plantedServer records a load on a server with noise.
func plantedServer(t *testing.T, load func(n int, seed uint64) []sim.Request, n int, seed uint64, noise scattered) *trace.Run {
	t.Helper()
	dep := testkit.Llama8B()
	return recordPlanted(t, plantedSet(), dep, load(n, 1000+seed), func(c *sim.Config) {
		noise.Model, noise.rng = c.Latency, rand.New(rand.NewPCG(seed, 3))
		c.Latency = &noise
		c.Overhead = sim.Const(delayUs)
	})
}

// plantedSet has the coefficients of the planted servers, all of them identified.
func plantedSet() *coeff.Set {
	set := testkit.Planted()
	set.BetaTarget = coeff.Cadence
	for j := range set.Beta {
		set.Beta[j].Identified = coeff.Within
	}
	set.Configs = []coeff.Config{coeff.ConfigOf(testkit.Llama8B(), []string{"planted"}, 1000)}
	return set
}

// clientsOf is the recording as its clients saw it.
func clientsOf(full *trace.Run) *trace.Run {
	run := &trace.Run{ID: full.ID}
	for i := range full.Requests {
		r := &full.Requests[i]
		run.Observed = append(run.Observed, trace.ObservedRequest{
			ID: r.CoreID.V, Source: "client", SendNs: r.ArrivedNs, FirstChunkNs: r.FirstTokenNs, LastChunkNs: r.DepartedNs,
			PromptTokens: r.PromptTokens, OutputTokens: r.OutputTokens, Success: trace.Some(true),
		})
	}
	return run
}

func judgePlanted(t *testing.T, run *trace.Run, w wrongness, traced bool) *result.Validation {
	t.Helper()
	dep := testkit.Llama8B()
	o := DefaultOptions()
	o.Noise = "none"
	o.Workers = 1
	overheadUs, egressUs := delayUs, 2000.0
	o.OverheadUs, o.EgressUs = &overheadUs, &egressUs
	set := copyOf(plantedSet())
	w.change(set, &o)
	var fit *result.Fit
	if !traced {
		fit = &result.Fit{Requests: &result.RequestLevel{}}
	}
	v, err := Run(context.Background(), set, fit, []Source{{ID: run.ID, Load: func() (*trace.Run, *deploy.Deployment, error) { return run, dep, nil }}}, o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPlantedExplore(t *testing.T) {
	if os.Getenv("EXPLORE") == "" {
		t.Skip()
	}
	var reps, nMax int
	fmt.Sscan(os.Getenv("EXPLORE"), &reps, &nMax)
	noises := []scattered{{sigma: 0.03}, {sigma: 0.1}, {sigma: 0.02, rho: 0.97}, {sigma: 0.05, rho: 0.99}}
	for _, traced := range []bool{false, true} {
		if traced && os.Getenv("TRACED") == "" {
			continue
		}
		for _, load := range plantedLoads {
			for _, n := range []int{80, 200, 400, 2000} {
				if n > nMax {
					continue
				}
				runs := make([]*trace.Run, reps)
				for k := range reps {
					runs[k] = plantedServer(t, load.make, n, uint64(k), noises[k%len(noises)])
					if !traced {
						runs[k] = clientsOf(runs[k])
					}
				}
				for _, w := range wrongnesses {
					var pass, few, fail int
					failed := map[string]int{}
					open := map[string]int{}
					values := map[string][]float64{}
					for _, run := range runs {
						v := judgePlanted(t, run, w, traced)
						worst := 0
						for _, g := range v.Gates {
							if !gate.JudgesReplay(g.Name) && g.Name != gate.Bias {
								continue
							}
							if g.Value != nil {
								values[g.Name] = append(values[g.Name], *g.Value)
							}
							switch {
							case g.Pass == nil && g.Required:
								worst = max(worst, 1)
								open[g.Name]++
							case g.Pass != nil && !*g.Pass:
								worst = 2
								failed[g.Name]++
							}
						}
						switch worst {
						case 0:
							pass++
						case 1:
							few++
						default:
							fail++
						}
					}
					var parts []string
					for name, v := range values {
						slices.Sort(v)
						parts = append(parts, fmt.Sprintf("%s %d/%d med %.3f max %.3f", strings.ReplaceAll(name, "paired_err", "pe"), failed[name], open[name], v[len(v)/2], v[len(v)-1]))
					}
					slices.Sort(parts)
					fmt.Printf("%-22s traced %-5v n %4d %-14s pass %3d few %3d fail %3d | %s\n", load.name, traced, n, w.name, pass, few, fail, strings.Join(parts, "; "))
				}
			}
		}
	}
}
