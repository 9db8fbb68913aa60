package validate

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit/planted"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// plantedNs is the stamp of simulated time 0.
const plantedNs = planted.StartNs

// plantedDeployment is that of a recording of the repository, without its phases.
func plantedDeployment(t *testing.T) *deploy.Deployment {
	t.Helper()
	dep, err := deploy.LoadRun(filepath.Join(repo.Root(t), "testdata/traces/real/gqa-low"))
	if err != nil {
		t.Fatal(err)
	}
	dep.Phases = nil
	return dep
}

// setTerm gives a term a value that the data identify.
func setTerm(set *coeff.Set, name string, v float64) {
	for i := range set.Beta {
		if set.Beta[i].Name == name {
			set.Beta[i].Value = v
			set.Beta[i].Identified = coeff.Within
			return
		}
	}
	panic("no term " + name)
}

// termOf is the value of a term.
func termOf(set *coeff.Set, name string) float64 {
	for _, c := range set.Beta {
		if c.Name == name {
			return c.Value
		}
	}
	panic("no term " + name)
}

// copyOf is a set whose coefficients may be changed.
func copyOf(s *coeff.Set) *coeff.Set {
	c := *s
	c.Beta = append([]coeff.Coefficient{}, s.Beta...)
	return &c
}

// plantedLoad is planted.Load.
func plantedLoad(n int, rps float64, seed uint64) []sim.Request { return planted.Load(n, rps, seed) }

// recordPlanted is planted.Record.
func recordPlanted(t *testing.T, set *coeff.Set, dep *deploy.Deployment, reqs []sim.Request, change func(*sim.Config)) *trace.Run {
	t.Helper()
	return planted.Record(t, set, dep, reqs, change)
}

// hasCode reports a finding of the code.
func hasCode(findings []trace.Finding, code trace.Code) bool {
	return slices.ContainsFunc(findings, func(f trace.Finding) bool { return f.Code == code })
}
