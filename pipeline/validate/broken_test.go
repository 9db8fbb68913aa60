package validate

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
)

// TestBrokenOnPurpose breaks one thing at a time in a recording whose truth is known: the
// right purpose fails, and the diagnosis names the cause or says unknown, never another.
// TestEvalBrokenOnPurpose does the same to twenty composed runs.
func TestBrokenOnPurpose(t *testing.T) {
	dep := plantedDeployment(t)
	dep.Engine.KVBlocksGPU = trace.Some(int64(110))
	truth := testkit.PlantedOn(dep)
	const term = "decode_weight_load"
	for _, c := range []struct {
		what, purpose, cause, mentions string
		set                            func(*coeff.Set)
		dep                            func(*deploy.Deployment)
		record                         func(*trace.Run)
	}{
		{what: "nothing", purpose: ""},
		{what: "a term x3", purpose: coeff.PurposeSteps, cause: result.CauseModelError, mentions: term,
			set: func(s *coeff.Set) { setTerm(s, term, 3*termOf(s, term)) }},
		{what: "lag", purpose: coeff.PurposeSteps, cause: result.CauseLag, mentions: "a lag of 0",
			set: func(s *coeff.Set) { s.PipelineLag = map[string]coeff.RunLag{"planted": {Lag: 1, Measured: true}} }},
		{what: "KV blocks x0.5", purpose: coeff.PurposeReplay, cause: result.CauseScheduler, mentions: "KV blocks",
			dep: func(d *deploy.Deployment) { d.Engine.KVBlocksGPU.V /= 2 }},
		{what: "device", purpose: coeff.PurposeSteps, cause: result.CauseHardware, mentions: "hardware",
			dep: func(d *deploy.Deployment) { d.Hardware, _ = deploy.Datasheet("L40S") }},
		{what: "targets shuffled", purpose: coeff.PurposeSteps, record: shuffleSteps},
	} {
		set, d := copyOf(truth), *dep
		run := recordPlanted(t, truth, dep, plantedLoad(400, 4, 9), nil)
		if c.set != nil {
			c.set(set)
		}
		if c.dep != nil {
			c.dep(&d)
		}
		if c.record != nil {
			c.record(run)
		}
		v := validateValidate(t, set, []Source{sourceOf(run, &d, true)}, DefaultOptions())
		steps, replay := v.VerdictFor(coeff.PurposeSteps, coeff.ScopeAll).Verdict, v.VerdictFor(coeff.PurposeReplay, coeff.ScopeAll).Verdict
		if c.purpose == "" {
			if steps != coeff.VerdictPass || replay != coeff.VerdictPass || len(v.Diagnoses) > 0 {
				t.Errorf("%s: got steps %s, replay %s, %v", c.what, steps, replay, v.Diagnoses)
			}
			continue
		}
		if replay != coeff.VerdictFail || (steps == coeff.VerdictFail) != (c.purpose == coeff.PurposeSteps) || len(v.Diagnoses) == 0 {
			t.Errorf("%s: got steps %s, replay %s, %d diagnoses, want %s to fail", c.what, steps, replay, len(v.Diagnoses), c.purpose)
		}
		for _, x := range v.Diagnoses {
			if x.Cause != result.CauseUnknown && (x.Cause != c.cause || !strings.Contains(x.Sentence+" "+x.Term, c.mentions)) {
				t.Errorf("%s: %s: got %s: %s", c.what, x.Scope, x.Cause, x.Sentence)
			}
			t.Logf("%s: %s: %s: %s", c.what, x.Scope, x.Cause, x.Sentence)
		}
	}
}

// shuffleSteps deals the intervals between steps out at random.
func shuffleSteps(r *trace.Run) {
	var gaps []int64
	for i := 1; i < len(r.Steps); i++ {
		gaps = append(gaps, r.Steps[i].TsStartNs-r.Steps[i-1].TsStartNs)
	}
	rand.New(rand.NewPCG(7, 7)).Shuffle(len(gaps), func(a, b int) { gaps[a], gaps[b] = gaps[b], gaps[a] })
	old := slices.Clone(r.Steps)
	for i := 1; i < len(r.Steps); i++ {
		r.Steps[i].TsStartNs = r.Steps[i-1].TsStartNs + gaps[i-1]
		r.Steps[i].TsEndNs = r.Steps[i].TsStartNs + old[i].TsEndNs - old[i].TsStartNs
	}
}
