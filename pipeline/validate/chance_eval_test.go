package validate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// scattered multiplies step times by log-normal ratios of mean 1, each correlated with the
// one before.
type scattered struct {
	sim.Model
	rng        *rand.Rand
	sigma, rho float64
	z          float64
}

// StepUs is the scattered time of the step.
func (m *scattered) StepUs(b *sim.Batch) (float64, error) {
	us, err := m.Model.StepUs(b)
	m.z = m.rho*m.z + math.Sqrt(1-m.rho*m.rho)*m.rng.NormFloat64()
	return us * math.Exp(m.sigma*m.z-m.sigma*m.sigma/2), err
}

// scatters are the residuals of the planted servers: of single steps, and of some tens together.
var scatters = []scattered{{sigma: 0.1}, {sigma: 0.12}, {sigma: 0.07, rho: 0.9}, {sigma: 0.05, rho: 0.97}}

// TestEvalReplayGates plants servers whose residuals scatter. The gates of the replay alone pass
// the model that made the recording in 95 of 100, and fail a wrong one in 90 of 100; where the KV
// cache is nearly full, small differences grow, and some recordings decide nothing, but the right
// model is not failed for it. Every recording counts, also where chance reaches a threshold: the
// paired errors, which chance hardly moves, decide there too.
func TestEvalReplayGates(t *testing.T) {
	repo.NeedEval(t)
	slower := func(set *coeff.Set, _ *deploy.Deployment) {
		for j := range set.Beta {
			set.Beta[j].Value *= 1.3
		}
	}
	half := func(_ *coeff.Set, d *deploy.Deployment) { d.Engine.KVBlocksGPU.V /= 2 }
	for _, c := range []struct {
		name                                 string
		pressed                              bool
		change                               func(*coeff.Set, *deploy.Deployment)
		leastPassed, leastFailed, mostFailed int // of 100
	}{
		{"the right model", false, nil, 95, 0, 5},
		{"the right model, KV cache nearly full", true, nil, 70, 0, 5},
		{"all step times x1.3", false, slower, 0, 90, 100},
		{"half the KV blocks, nearly full", true, half, 0, 90, 100},
	} {
		passed := 0
		failed := 0
		for k := range simulations {
			v := plantedVerdict(t, uint64(k), c.pressed, c.change)
			pass, fail := judgedByReplay(v.Gates)
			passed += one(pass)
			failed += one(fail)
		}
		fmt.Printf("%-38s of %d: %3d pass, %3d fail\n", c.name, simulations, passed, failed)
		if passed < c.leastPassed || failed < c.leastFailed || failed > c.mostFailed {
			t.Errorf("%s: want at least %d passed, %d to %d failed", c.name, c.leastPassed, c.leastFailed, c.mostFailed)
		}
	}
}

const simulations = 100

// plantedVerdict judges a recording of its own scatter and load against what is believed of it.
func plantedVerdict(t *testing.T, k uint64, pressed bool, change func(*coeff.Set, *deploy.Deployment)) *result.Validation {
	t.Helper()
	dep, rps := plantedDeployment(t), 4.0
	if pressed {
		dep.Engine.KVBlocksGPU = trace.Some[int64](100)
		rps = 5 // just enough
	}
	truth := testkit.PlantedOn(dep)
	run := recordPlanted(t, truth, dep, plantedLoad(400, rps, 100+k), func(c *sim.Config) {
		s := scatters[k%uint64(len(scatters))]
		s.Model, s.rng = c.Latency, rand.New(rand.NewPCG(k, 3))
		c.Latency = &s
	})
	set, believed := copyOf(truth), *dep
	if change != nil {
		change(set, &believed)
	}
	o := DefaultOptions()
	o.Noise = "none"
	return validateValidate(t, set, []Source{sourceOf(run, &believed, false)}, o)
}

// judgedByReplay reports whether all replay gates pass, and whether one fails.
func judgedByReplay(gates []result.Gate) (pass, fail bool) {
	pass = true
	for _, g := range gates {
		if gate.JudgesReplay(g.Name) {
			pass = pass && g.Pass != nil && *g.Pass
			fail = fail || g.Pass != nil && !*g.Pass
		}
	}
	return pass, fail
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
