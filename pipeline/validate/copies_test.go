package validate

import (
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate/identity"
	"github.com/blis-train/blis-train/result"
)

// TestCopies: a run of which a part is in a run before it is a copy, and fails. Runs of other times are none, nor are runs whose
// times are so coarse that one has its own stretches twice.
func TestCopies(t *testing.T) {
	times := func(n int, us func(i int) float64) []float64 {
		var out []float64
		for i := range n {
			out = append(out, us(i))
		}
		return out
	}
	first := times(400, func(i int) float64 { return 5000 + float64(i*i%977)/1000 })
	other := times(400, func(i int) float64 { return 5000 + float64(i*i*i%991)/1000 })
	coarse := times(400, func(i int) float64 { return 5000 + 1000*float64(i%3) })
	run := func(id string, us []float64) *judgedRun {
		return &judgedRun{id: id, beta: &rows.Table{Y: us}, stored: stored{Identities: []result.Identity{{Name: identity.RunsDiffer, Status: result.IdentityNotChecked}}}}
	}
	for _, c := range []struct {
		name string
		last []float64
		want string
	}{
		{"the whole", first, result.IdentityViolated},
		{"its first 30 %", first[:120], result.IdentityViolated},
		{"30 % behind another run", slices.Concat(other, first[:120]), result.IdentityViolated},
		{"another run", other[:200], result.IdentityHolds},
		{"a run in whole ms", coarse, result.IdentityNotChecked},
		{"a few steps", first[:30], result.IdentityNotChecked},
	} {
		j := &job{runs: []*judgedRun{run("a", first), run("b", coarse), run("c", c.last)}}
		j.compareRuns()
		got := j.runs[2].Identities[0]
		if got.Status != c.want {
			t.Errorf("%s: got %s (%d of %d), want %s", c.name, got.Status, got.Violated, got.Checked, c.want)
		}
		isNamed := len(j.runs[2].Findings) == 1 && strings.Contains(got.Sentence, "in run a") && got.Effect == result.IdentityFails
		if (c.want == result.IdentityViolated) != isNamed {
			t.Errorf("%s: got %q, findings %v", c.name, got.Sentence, j.runs[2].Findings)
		}
		if earlier := j.runs[0].Identities[0]; earlier.Status != result.IdentityNotChecked || len(j.runs[0].Findings) > 0 {
			t.Errorf("%s: the first run got %+v", c.name, earlier)
		}
	}
}
