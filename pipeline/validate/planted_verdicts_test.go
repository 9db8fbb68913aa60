package validate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// plantedLoads are from narrow to wide.
var plantedLoads = []struct {
	name string
	make func(n int, seed uint64) []sim.Request
}{
	{"constant lengths, 2/s", func(n int, seed uint64) []sim.Request { return poissonLoad(n, 2, 1024, 128, 0, 1000+seed) }},
	{"wide lengths, 8/s", func(n int, seed uint64) []sim.Request { return poissonLoad(n, 8, 220, 180, 1, 1000+seed) }},
	{"wide lengths, 14/s", func(n int, seed uint64) []sim.Request { return poissonLoad(n, 14, 220, 180, 1, 1000+seed) }},
}

// poissonLoad is n Poisson requests with lognormal lengths of these medians and this standard deviation of
// their logarithms.
func poissonLoad(n int, rps, prompt, output, sd float64, seed uint64) []sim.Request {
	rng := rand.New(rand.NewPCG(seed, 1))
	atUs := 0.0
	reqs := make([]sim.Request, n)
	for i := range reqs {
		// The longest answers end well before the recording does.
		out := min(600, 2+int64(output*math.Exp(sd*rng.NormFloat64())))
		reqs[i] = sim.Request{
			ID: fmt.Sprintf("c%05d", i), ArrivalUs: int64(atUs), OutputTokens: out, MaxTokens: out,
			PromptTokens: min(4000, 8+int64(prompt*math.Exp(sd*rng.NormFloat64()))),
		}
		atUs += rng.ExpFloat64() / rps * 1e6
	}
	return reqs
}

// wrongness is what is believed of the planted server.
type wrongness struct {
	name    string
	believe func(set *coeff.Set, o *Options)
	// Of 100, from 400 requests on.
	leastPass, leastFail, mostFail int
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
	{"right", func(*coeff.Set, *Options) {}, 95, 0, 2},
	{"all x1.03", allTerms(1.03), 0, 0, 2},
	{"all x0.97", allTerms(0.97), 0, 0, 2},
	{"all x1.05", allTerms(1.05), 0, 0, 100}, // either way
	{"all x1.10", allTerms(1.10), 0, 95, 100},
	{"all x0.90", allTerms(0.90), 0, 95, 100},
	{"all x1.20", allTerms(1.20), 0, 95, 100},
	{"weights x1.2", oneTerm("decode_weight_load", 1.2), 0, 95, 100},
	{"prefill x1.2", oneTerm("prefill_linear_compute", 1.2), 0, 0, 100}, // a fourth of TTFT to all of it
	{"overhead x3", overheadTimes(3), 0, 95, 100},
}

// plantedServer records a load on a server with noise.
func plantedServer(t *testing.T, reqs []sim.Request, noise func(sim.Model) sim.Model) *trace.Run {
	t.Helper()
	return recordPlanted(t, plantedSet(), testkit.Llama8B(), reqs, func(c *sim.Config) {
		c.Latency = noise(c.Latency)
		c.Overhead = sim.Const(delayUs)
	})
}

// repeatedNoise multiplies step times by the noise of a recording, from a random step on.
type repeatedNoise struct {
	sim.Model
	ratio []float64
	at    int
}

// StepUs is the time of the step with noise.
func (m *repeatedNoise) StepUs(b *sim.Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	m.at++
	return us * m.ratio[m.at%len(m.ratio)], err
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

// judgePlanted judges what is believed of a recorded server. phases are those of the recording, nil: none.
func judgePlanted(t *testing.T, run *trace.Run, believe func(*coeff.Set, *Options), phases []deploy.Phase) *result.Validation {
	t.Helper()
	j, fit := planJudgement(t, run, believe, phases)
	if err := j.replay(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	v, _ := j.decided(fit)
	return v
}

// failsPlanted reports whether what is believed of a recorded server fails by a gate that needs no replay with
// the noise of its steps: bias or one of paired_err_*. Those replays are nearly all of the time that a judgement
// takes.
func failsPlanted(t *testing.T, run *trace.Run, believe func(*coeff.Set, *Options)) bool {
	t.Helper()
	j, fit := planJudgement(t, run, believe, nil)
	predicted := j.runs[0].pred
	j.runs[0].pred = make([]float64, len(predicted)) // rows without a prediction have no noise
	if err := j.replay(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	j.runs[0].pred = predicted
	v, _ := j.decided(fit)
	for _, g := range v.Gates {
		isPaired := strings.HasPrefix(g.Name, "paired_err_")
		if (isPaired || g.Name == gate.Bias) && g.Pass != nil && !*g.Pass {
			return true
		}
	}
	return false
}

// planJudgement returns the judgement of what is believed of a recorded server, up to the replay.
func planJudgement(t *testing.T, run *trace.Run, believe func(*coeff.Set, *Options), phases []deploy.Phase) (*job, *result.Fit) {
	t.Helper()
	dep := testkit.Llama8B()
	dep.Phases = phases
	o := DefaultOptions()
	o.Noise = "none"
	overheadUs, egressUs := delayUs, 2000.0 // the latter as recordPlanted has it
	o.OverheadUs, o.EgressUs = &overheadUs, &egressUs
	set := plantedSet()
	believe(set, &o)
	var fit *result.Fit
	if len(run.Steps) == 0 {
		fit = &result.Fit{Requests: &result.RequestLevel{}}
	}
	j, err := newJob(context.Background(), set, fit, []Source{sourceOf(run, dep, false)}, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.loadSteps(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if err := j.clean(j.limits()); err != nil {
		t.Fatal(err)
	}
	return j, fit
}

// plantedTally counts the verdicts of the replay gates and of the bias.
type plantedTally struct{ pass, undecided, fail int }

// judge adds the verdict on what is believed of a recorded server.
func (c *plantedTally) judge(t *testing.T, run *trace.Run, believe func(*coeff.Set, *Options)) {
	t.Helper()
	if len(run.Steps) > 0 && failsPlanted(t, run, believe) {
		c.fail++
		return
	}
	c.add(judgePlanted(t, run, believe, nil))
}

func (c *plantedTally) add(v *result.Validation) {
	failed, open := false, false
	for _, g := range v.Gates {
		if gate.JudgesReplay(g.Name) || g.Name == gate.Bias {
			failed = failed || g.Pass != nil && !*g.Pass
			open = open || g.Pass == nil && g.Required
		}
	}
	switch {
	case failed:
		c.fail++
	case open:
		c.undecided++
	default:
		c.pass++
	}
}

// rate is a share of n in percent with its 95 % interval (Wilson).
func rate(k, n int) string {
	const z = 1.96
	p, size := float64(k)/float64(n), float64(n)
	centre := (p + z*z/(2*size)) / (1 + z*z/size)
	half := z * math.Sqrt(p*(1-p)/size+z*z/(4*size*size)) / (1 + z*z/size)
	return fmt.Sprintf("%3.0f (%.0f-%.0f)", 100*p, 100*max(0, centre-half), 100*min(1, centre+half))
}

// TestPlantedVerdicts is a small part of TestEvalPlantedVerdicts: with 400 requests of clients alone, right
// coefficients and those wrong by 3 % are not failed, and those wrong by 10 % are.
func TestPlantedVerdicts(t *testing.T) {
	for _, load := range plantedLoads[:2] {
		var right, near, wrong plantedTally
		for k := range uint64(2) {
			noise := scattered{sigma: 0.03, rng: rand.New(rand.NewPCG(k, 3))}
			run := clientsOf(plantedServer(t, load.make(400, k), func(m sim.Model) sim.Model { noise.Model = m; return &noise }))
			right.add(judgePlanted(t, run, wrongnesses[0].believe, nil))
			near.add(judgePlanted(t, run, allTerms(1.03), nil))
			wrong.add(judgePlanted(t, run, allTerms(1.10), nil))
		}
		if right.pass != 2 || near.fail != 0 || wrong.fail != 2 {
			t.Errorf("%s: right %+v, 3 %% wrong %+v, 10 %% wrong %+v", load.name, right, near, wrong)
		}
	}
}

// quietNoises are the noises of the steps of the real GPU recordings.
func quietNoises(t *testing.T) [][]float64 {
	t.Helper()
	out := t.TempDir()
	runs, err := extract.Discover([]string{repo.Shared(t, "data", "real_step_summaries")})
	if err != nil {
		t.Fatal(err)
	}
	o := extract.DefaultOptions()
	o.Out = out
	ext, err := extract.Run(context.Background(), runs, o)
	if err != nil {
		t.Fatal(err)
	}
	var noises [][]float64
	for i := range ext.Runs {
		run, err := table.Read(table.RunDir(out, ext.Runs[i].ID))
		if err != nil {
			t.Fatal(err)
		}
		dep := ext.Runs[i].Deployment
		space, err := features.New(features.V11, dep)
		if err != nil {
			t.Fatal(err)
		}
		steps, err := rows.Rebuild(run, dep, features.V11)
		if err != nil {
			t.Fatal(err)
		}
		beta, err := steps.Beta(space, rows.Options{Target: coeff.Cadence, Split: 0.8, Stride: 1, Lag: 1})
		if err != nil {
			t.Fatal(err)
		}
		noise := stepNoiseOf(beta, slices.Repeat([]float64{1}, beta.Kept), 0, math.MaxInt64)
		noises = append(noises, noise.ratio)
	}
	return noises
}

// recordQuiet is replication k of a server with the noise of a real GPU.
func recordQuiet(t *testing.T, noises [][]float64, reqs []sim.Request, k int) *trace.Run {
	t.Helper()
	ratio := noises[k%len(noises)]
	at := rand.New(rand.NewPCG(uint64(k), 5)).IntN(len(ratio))
	return plantedServer(t, reqs, func(m sim.Model) sim.Model { return &repeatedNoise{Model: m, ratio: ratio, at: at} })
}

// TestEvalPlantedVerdicts is the table that the thresholds of paired_err_*, ks_* and bias follow from
// (spec#sampling-error): servers with the noise of real GPU recordings, judged by the coefficients that made them and by
// wrong ones. BLIS_TRAIN_EVAL_REPLICATIONS is how many of each, from replication BLIS_TRAIN_EVAL_FIRST on.
func TestEvalPlantedVerdicts(t *testing.T) {
	repo.NeedEval(t)
	replications := fromEnvironment("BLIS_TRAIN_EVAL_REPLICATIONS", 100)
	first := fromEnvironment("BLIS_TRAIN_EVAL_FIRST", 0)
	noises := quietNoises(t)
	for _, record := range []string{"clients", "steps"} {
		t.Run(record, func(t *testing.T) {
			fmt.Printf("%-24s %-7s %5s %-14s %5s  %-14s %-14s %-14s\n", "load", "record", "n", "believed", "of", "pass %", "insufficient %", "fail %")
			for _, load := range plantedLoads {
				for _, n := range []int{80, 200, 500, 2000} {
					t.Run(fmt.Sprintf("%s of %d", load.name, n), func(t *testing.T) {
						t.Parallel()
						of := replications
						if record == "steps" { // each with up to 500 replays of n requests
							of = max(1, replications*min(200, n)/n)
						}
						judgeReplications(t, load.name, record, of, func(k int) *trace.Run {
							k += first
							run := recordQuiet(t, noises, load.make(n, uint64(k)), k)
							if record == "clients" {
								run = clientsOf(run)
							}
							return run
						}, n)
					})
				}
			}
		})
	}
}

// judgeReplications prints and checks the rows of the table for one load, kind of recording and number of
// requests.
func judgeReplications(t *testing.T, load, record string, of int, recording func(k int) *trace.Run, n int) {
	t.Helper()
	tallies := make([]plantedTally, len(wrongnesses))
	for k := range of {
		run := recording(k)
		for i, w := range wrongnesses {
			tallies[i].judge(t, run, w.believe)
		}
	}
	var printed strings.Builder // in one piece, because other loads are judged at the same time
	defer func() { fmt.Print(printed.String()) }()
	for i, w := range wrongnesses {
		c := tallies[i]
		fmt.Fprintf(&printed, "%-24s %-7s %5d %-14s %5d  %-14s %-14s %-14s\n", load, record, n, w.name, of, rate(c.pass, of),
			rate(c.undecided, of), rate(c.fail, of))
		if n < 400 {
			continue
		}
		if 100*c.pass < w.leastPass*of || 100*c.fail > w.mostFail*of || 100*c.fail < w.leastFail*of {
			t.Errorf("%s, %s, %d requests, %s: %+v, want at least %d %% passed, %d to %d %% failed", load, record, n, w.name, c, w.leastPass,
				w.leastFail, w.mostFail)
		}
	}
}

// fromEnvironment is a number that the environment may set.
func fromEnvironment(name string, standard int) int {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return standard
	}
	return n
}

// TestEvalPlantedPhase: a server that is 10 % slower in the second of two phases fails there and is not
// failed in the first, whatever is recorded.
func TestEvalPlantedPhase(t *testing.T) {
	repo.NeedEval(t)
	replications := fromEnvironment("BLIS_TRAIN_EVAL_REPLICATIONS", 100)
	noises := quietNoises(t)
	for _, traced := range []bool{false, true} {
		firstFailed, secondFailed := 0, 0
		of := replications
		if traced {
			of = max(1, replications/5) // each with 99 replays of 800 requests
		}
		for k := range of {
			reqs := plantedLoads[1].make(800, uint64(k))
			cutUs := reqs[400].ArrivalUs
			ratio := noises[k%len(noises)]
			run := plantedServer(t, reqs, func(m sim.Model) sim.Model {
				return &slowerFrom{Model: &repeatedNoise{Model: m, ratio: ratio, at: k}, fromUs: cutUs}
			})
			if !traced {
				run = clientsOf(run)
			}
			cutNs := plantedNs + 1000*cutUs
			v := judgePlanted(t, run, wrongnesses[0].believe, []deploy.Phase{
				{Name: "first", Load: deploy.LoadOpen, StartNs: plantedNs, EndNs: cutNs},
				{Name: "second", Load: deploy.LoadOpen, StartNs: cutNs, EndNs: math.MaxInt64},
			})
			failed := map[string]bool{}
			for _, g := range v.Gates {
				if gate.JudgesReplay(g.Name) && g.Pass != nil && !*g.Pass {
					failed[g.Scope] = true
				}
			}
			firstFailed += one(failed["planted/first"])
			secondFailed += one(failed["planted/second"])
		}
		fmt.Printf("second phase 10 %% slower, steps %v, %d recordings: the first fails in %s %%, the second in %s %%\n", traced, of,
			rate(firstFailed, of), rate(secondFailed, of))
		if 100*firstFailed > 2*of || 100*secondFailed < 95*of {
			t.Errorf("steps %v: the first fails in %d, the second in %d of %d", traced, firstFailed, secondFailed, of)
		}
	}
}

// slowerFrom takes 10 % longer from a moment on.
type slowerFrom struct {
	sim.Model
	fromUs int64
}

// StepUs is the time of the step.
func (m *slowerFrom) StepUs(b *sim.Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	if b.StartUs >= m.fromUs {
		us *= 1.1
	}
	return us, err
}

// TestEvalNumberThatDecides: where a gate has too few requests, recordings with the number that its note
// states are decided in at least 80 of 100.
func TestEvalNumberThatDecides(t *testing.T) {
	repo.NeedEval(t)
	replications := fromEnvironment("BLIS_TRAIN_EVAL_REPLICATIONS", 100)
	stated := regexp.MustCompile(`about (\d+) would decide`)
	tried, decided, outOfReach := 0, 0, 0
	for k := 0; tried < replications && k < 20*replications; k++ {
		// A machine whose speed wanders by 7 % over some hundred steps.
		server := func(n int, seed uint64) *trace.Run {
			noise := scattered{sigma: 0.07, rho: 0.99, rng: rand.New(rand.NewPCG(seed, 3))}
			return clientsOf(plantedServer(t, plantedLoads[1].make(n, seed), func(m sim.Model) sim.Model { noise.Model = m; return &noise }))
		}
		believe := wrongnesses[k%4].believe // right, 3 % wrong either way, 5 % wrong
		v := judgePlanted(t, server(80, uint64(k)), believe, nil)
		for _, g := range v.Gates {
			if !gate.JudgesReplay(g.Name) || g.Pass != nil || !g.Required || tried == replications {
				continue
			}
			if strings.Contains(g.Note, gate.NotWithinReach) {
				outOfReach++
				continue
			}
			m := stated.FindStringSubmatch(g.Note)
			if m == nil {
				continue
			}
			n, _ := strconv.Atoi(m[1])
			tried++
			again := judgePlanted(t, server(n, 10_000+uint64(k)), believe, nil)
			for _, a := range gatesOf(again, g.Name) {
				decided += one(a.Pass != nil)
			}
		}
	}
	fmt.Printf("of %d stated numbers %s %% decide; %d gates are out of reach\n", tried, rate(decided, tried), outOfReach)
	if tried < replications || 100*decided < 80*tried {
		t.Errorf("%d of %d decide, want 80 of 100", decided, tried)
	}
}
