package validate

import (
	"math"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// TestPriorJudgesTheDescription: a server whose steps take 1.4 times what the library predicts is not named,
// one at 1.7 times, or at 1/1.7, is, one at 6 times fails, and one on a device without tables is not judged.
func TestPriorJudgesTheDescription(t *testing.T) {
	dep := testkit.Llama8B()
	dep.Hardware, _ = deploy.Datasheet("H100")
	library, err := fit.LibraryFor(dep)
	if err != nil {
		t.Fatal(err)
	}
	load := plantedLoad(300, 12, 3)
	for i := range load {
		load[i].PromptTokens *= 8
		load[i].OutputTokens *= 4
		load[i].MaxTokens = load[i].OutputTokens
	}
	for _, c := range []struct {
		factor         float64
		device, status string
		effect         string
	}{
		{1, "", result.IdentityHolds, ""},
		{1.4, "", result.IdentityHolds, ""},
		{1 / 1.4, "", result.IdentityHolds, ""},
		{1.7, "", result.IdentityViolated, result.IdentityNamed},
		{1 / 1.7, "", result.IdentityViolated, result.IdentityNamed},
		{6, "", result.IdentityViolated, result.IdentityFails},
		{1.7, "MY-GPU", result.IdentityNotChecked, ""},
	} {
		truth := copyOf(library)
		for j := range truth.Beta {
			truth.Beta[j].Value *= c.factor
		}
		run := recordPlanted(t, truth, dep, load, nil)
		described := *dep
		if c.device != "" {
			described.Hardware.Name = c.device
		}
		got, err := Inspect(run, &described, Inspection{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range got.Identities {
			id := &got.Identities[i]
			if id.Name != "step_prior" {
				continue
			}
			if id.Status != c.status || id.Effect != c.effect {
				t.Errorf("%.3g times on %q: got %s %s, want %s %s: %s", c.factor, c.device, id.Status, id.Effect, c.status, c.effect, id.Sentence)
			}
			if id.Largest != nil && math.Abs(math.Log(*id.Largest/c.factor)) > 0.07 {
				t.Errorf("%.3g times: measured as %.3g", c.factor, *id.Largest)
			}
		}
	}
}

// TestTimesOfAnotherServer: steps that are shorter than those of the described device and like those of another fail, longer
// ones leave the verdict open, and so do steps that are 1.4 times as long beside a cache of 0.6 times the size. A device
// that only run.yaml knows is named where its figures are not those of the device that it is as fast as.
func TestTimesOfAnotherServer(t *testing.T) {
	load := plantedLoad(300, 12, 3)
	for i := range load {
		load[i].PromptTokens *= 20
		load[i].OutputTokens *= 4
		load[i].MaxTokens = load[i].OutputTokens
	}
	device := func(name string) deploy.Hardware {
		h, ok := deploy.Datasheet(name)
		if !ok {
			t.Fatalf("no device %s", name)
		}
		return h
	}
	rebadged := func(name string) deploy.Hardware {
		h := device(name)
		h.Name = "MY-GPU"
		return h
	}
	for _, c := range []struct {
		what      string
		ran       string  // the device that the steps are of
		factor    float64 // on the times of all steps
		cache     float64 // its blocks, over those that fill the memory; 0: not recorded
		described deploy.Hardware
		change    func(*deploy.Deployment) // of the description; nil: none
		status    string
		effect    string
		sentence  string // a part of it
	}{
		{"shorter", "H100", 1, 0, device("A100"), nil, result.IdentityViolated, result.IdentityFails, "those measured on H100-SXM-80GB explain all"},
		{"longer", "A100", 1, 0, device("H100"), nil, result.IdentityViolated, result.IdentityUndecided, "those measured on A100-SXM-80GB explain all"},
		{"longer as nothing known is", "H100", 1.7, 0, device("H100"), nil, result.IdentityViolated, result.IdentityNamed, "may be wrong"},
		{"its own figures", "H100", 1, 0, rebadged("H100"), nil, result.IdentityNotChecked, "", "no kernel tables"},
		{"figures of another", "H100", 1, 0, rebadged("B200"), nil, result.IdentityViolated, result.IdentityNamed, "the figures of another device"},
		{"slow and full", "H100", 1.4, 1, device("H100"), nil, result.IdentityHolds, "", ""},
		{"small cache", "H100", 1.2, 0.6, device("H100"), nil, result.IdentityHolds, "", ""},
		{"slow, small cache", "H100", 1.4, 0.6, device("H100"), nil, result.IdentityViolated, result.IdentityUndecided, "a size of the model"},
		{"slow, stated cache", "H100", 1.4, 0.6, device("H100"), func(d *deploy.Deployment) {
			d.Engine.Extra = vllm.Values{"kv_cache_memory_bytes": 30e9}
		}, result.IdentityHolds, "", ""},
	} {
		server := testkit.Llama8B()
		server.Hardware = device(c.ran)
		if c.cache > 0 {
			blocks, err := server.EstimateKVBlocks()
			if err != nil {
				t.Fatal(err)
			}
			server.Engine.KVBlocksGPU = trace.Some(int64(c.cache * float64(blocks)))
		}
		library, err := fit.LibraryFor(server)
		if err != nil {
			t.Fatal(err)
		}
		truth := copyOf(library)
		for j := range truth.Beta {
			truth.Beta[j].Value *= c.factor
		}
		run := recordPlanted(t, truth, server, load, nil)
		described := *server
		described.Hardware = c.described
		if c.change != nil {
			c.change(&described)
		}
		got, err := Inspect(run, &described, Inspection{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range got.Identities {
			id := &got.Identities[i]
			if id.Name == "step_prior" && (id.Status != c.status || id.Effect != c.effect || !strings.Contains(id.Sentence, c.sentence)) {
				t.Errorf("%s: got %s %s %q, want %s %s %q", c.what, id.Status, id.Effect, id.Sentence, c.status, c.effect, c.sentence)
			}
		}
	}
}

// TestDoubtsOfADocument: a contradiction that decides nothing is a warning of the validation, once for a run.
func TestDoubtsOfADocument(t *testing.T) {
	dep := testkit.Llama8B()
	dep.Hardware, _ = deploy.Datasheet("H100")
	library, err := fit.LibraryFor(dep)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		factor float64 // on the times of all steps
		want   int     // warnings
	}{{1, 0}, {1.7, 1}} {
		truth := copyOf(library)
		for j := range truth.Beta {
			truth.Beta[j].Value *= c.factor
		}
		run := recordPlanted(t, truth, dep, plantedLoad(200, 4, 3), nil)
		v := validateValidate(t, truth, []Source{sourceOf(run, dep, true)}, DefaultOptions())
		doubts := v.Doubts()
		if len(doubts) != c.want || c.want > 0 && !strings.Contains(doubts[0].Message, "step_prior: ") {
			t.Errorf("%.3g times: got the doubts %v, want %d of step_prior", c.factor, doubts, c.want)
		}
		if steps := v.VerdictFor("steps", "all").Verdict; steps != "pass" {
			t.Errorf("%.3g times: got %s for steps, want pass", c.factor, steps)
		}
	}
}

// TestContradictionDecides: what a contradiction harms fails with the sentence as its cause, what it does
// not harm stays as it was; a loss leaves no pass.
func TestContradictionDecides(t *testing.T) {
	dep := plantedDeployment(t)
	truth := testkit.PlantedOn(dep)
	verdicts := func(change func(*trace.Run)) (*result.Validation, map[string]string) {
		run := recordPlanted(t, truth, dep, plantedLoad(200, 2, 9), nil)
		change(run)
		v := validateValidate(t, truth, []Source{sourceOf(run, dep, true)}, DefaultOptions())
		out := map[string]string{}
		for _, purpose := range []string{"steps", "replay", "waits"} {
			out[purpose] = v.VerdictFor(purpose, "all").Verdict
		}
		return v, out
	}
	_, honest := verdicts(func(*trace.Run) {})
	if honest["steps"] != "pass" || honest["replay"] != "pass" {
		t.Fatalf("honest: got %v", honest)
	}
	for what, c := range map[string]struct {
		change        func(*trace.Run)
		steps, replay string
		sentence      string
	}{
		"waiting_depth": {func(r *trace.Run) {
			for i := range r.Steps {
				r.Steps[i].WaitingDepth = 1000
			}
		}, "pass", "pass", "waiting_depth"},
		"departures": {func(r *trace.Run) {
			for i := range r.Requests {
				r.Requests[i].ArrivedNs.V -= 50e6
				r.Requests[i].DepartedNs.V -= 50e6
			}
		}, "pass", "fail", "departs before the engine finished"},
		"step stamps": {func(r *trace.Run) {
			for i := range r.Steps {
				r.Steps[i].TsStartNs = plantedNs + (r.Steps[i].TsStartNs-plantedNs)/100
				r.Steps[i].TsEndNs = plantedNs + (r.Steps[i].TsEndNs-plantedNs)/100
			}
		}, "fail", "fail", "shorter than reading their weights"},
		"a tenth of the journeys": {func(r *trace.Run) {
			var kept []trace.Request
			for i := range r.Requests {
				if i%10 > 0 {
					kept = append(kept, r.Requests[i])
				}
			}
			r.Requests = kept
		}, "insufficient", "insufficient", "journeys were lost"},
	} {
		v, got := verdicts(c.change)
		if got["steps"] != c.steps || got["replay"] != c.replay || got["waits"] == "pass" {
			t.Errorf("%s: got %v, want steps %s, replay %s and no pass of waits", what, got, c.steps, c.replay)
		}
		found := false
		for _, g := range v.Gates {
			found = found || strings.HasPrefix(g.Name, "contradictions_") && strings.Contains(g.Note, c.sentence)
		}
		if !found {
			t.Errorf("%s: no gate says %q", what, c.sentence)
		}
	}
}
