package validate

import (
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// violatedOf are the names of the identities that a recording violates, by their effect.
func violatedOf(t *testing.T, run *trace.Run, dep *deploy.Deployment, findings ...trace.Finding) map[string]string {
	t.Helper()
	got, err := Inspect(run, dep, Inspection{Extract: &result.ExtractRun{Warnings: findings}})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, id := range got.Identities {
		if id.Status == result.IdentityViolated {
			out[id.Name] = id.Effect
		}
	}
	return out
}

// TestSettingsThatBind: on a server whose limits keep requests waiting, a run.yaml that states more or less than the
// server had contradicts the recording.
func TestSettingsThatBind(t *testing.T) {
	for _, c := range []struct {
		what     string
		limit    func(*deploy.Deployment) // of the server
		state    func(*deploy.Deployment) // in run.yaml
		of       func(*trace.Run) *trace.Run
		violated string // the identity; empty: none
	}{
		{"as it was", nil, nil, whole, ""},
		{"as its clients saw it", nil, nil, timedClients, ""},
		{"max_num_seqs x4", nil, func(d *deploy.Deployment) { d.Engine.MaxNumSeqs *= 4 }, whole, "waiting_reason"},
		{"max_num_seqs / 2", nil, func(d *deploy.Deployment) { d.Engine.MaxNumSeqs /= 2 }, whole, "scheduler_limits"},
		{"max_num_seqs / 2, clients", nil, func(d *deploy.Deployment) { d.Engine.MaxNumSeqs /= 2 }, timedClients, "client_limits"},
		{"few tokens", fewTokens, nil, whole, ""},
		{"max_num_batched_tokens x4", fewTokens, func(d *deploy.Deployment) { d.Engine.MaxNumBatchedTokens *= 4 }, whole, "waiting_reason"},
		{"max_num_batched_tokens / 2", fewTokens, func(d *deploy.Deployment) { d.Engine.MaxNumBatchedTokens /= 2 }, whole, "scheduler_limits"},
		{"few blocks", fewBlocks, nil, whole, ""},
		{"blocks x2", fewBlocks, func(d *deploy.Deployment) { d.Engine.KVBlocksGPU.V *= 2 }, whole, "pool_size"},
	} {
		server := testkit.Llama8B()
		server.Engine.MaxNumSeqs = 16
		if c.limit != nil {
			c.limit(server)
		}
		run := c.of(recordPlanted(t, plantedSet(), server, poissonLoad(300, 60, 400, 60, 0.5, 5), nil))
		stated := *server
		if c.state != nil {
			c.state(&stated)
		}
		violated := violatedOf(t, run, &stated)
		delete(violated, "step_prior") // the planted server is no H100
		delete(violated, "request_prior")
		if _, isNamed := violated[c.violated]; c.violated == "" && len(violated) > 0 || c.violated != "" && !isNamed {
			t.Errorf("%s: violated %v, want %q", c.what, violated, c.violated)
		}
	}
}

func whole(r *trace.Run) *trace.Run { return r }

// timedClients are the recording's clients with the times that an extraction computes.
func timedClients(r *trace.Run) *trace.Run {
	run := clientsOf(r)
	for i := range run.Observed {
		o := &run.Observed[i]
		o.TTFTUs = trace.Some(float64(o.FirstChunkNs.V-o.SendNs.V) / 1e3)
		o.E2EUs = trace.Some(float64(o.LastChunkNs.V-o.SendNs.V) / 1e3)
	}
	return run
}

// fewTokens are so few in a step that prompts wait for them.
func fewTokens(d *deploy.Deployment) { d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens = 256, 512 }

// fewBlocks are so few that requests wait for them.
func fewBlocks(d *deploy.Deployment) {
	d.Engine.MaxNumSeqs, d.Engine.KVBlocksGPU = 256, trace.Some[int64](600)
}

// TestContradictedSettings: a setting that the server's log states differently is named by an identity that
// makes unusable what depends on it.
func TestContradictedSettings(t *testing.T) {
	run := recordPlanted(t, plantedSet(), testkit.Llama8B(), plantedLoads[1].make(40, 1), nil)
	for setting, want := range map[string]struct{ identity, effect string }{
		"tensor_parallel_size":        {"stated_server", result.IdentityFails},
		"hardware.name":               {"stated_server", result.IdentityFails},
		"model.dtype":                 {"stated_server", result.IdentityFails},
		"vllm.max_num_seqs":           {"stated_scheduler", result.IdentityFails},
		"vllm.max_num_batched_tokens": {"stated_scheduler", result.IdentityFails},
		"vllm.block_size":             {"stated_scheduler", result.IdentityFails},
		"vllm.kv_blocks_total_gpu":    {"stated_scheduler", result.IdentityFails},
		"vllm.enable_prefix_caching":  {"stated_scheduler", result.IdentityFails},
		"vllm.enforce_eager":          {"description", result.IdentityNamed},
		"vllm.version":                {"description", result.IdentityNamed},
		"":                            {"description", result.IdentityNamed},
	} {
		finding := trace.Findingf(source.CodeRunContradicted, "%s: another", setting).About(setting)
		violated := violatedOf(t, run, testkit.Llama8B(), finding)
		if violated[want.identity] != want.effect {
			t.Errorf("%q: violated %v, want %s: %s", setting, violated, want.identity, want.effect)
		}
	}
	got, err := Inspect(run, testkit.Llama8B(), Inspection{Extract: &result.ExtractRun{Warnings: []trace.Finding{
		trace.Findingf(source.CodeRunContradicted, "vllm.max_num_seqs: another").About("vllm.max_num_seqs")}}})
	if err != nil {
		t.Fatal(err)
	}
	if hasCode(got.Findings, StreamsDisagree) {
		t.Errorf("a warning of the extraction is repeated: %v", got.Findings)
	}
	for _, use := range got.Usable {
		isHarmed := slices.Contains([]string{"replay", "waits"}, use.Purpose)
		if isHarmed == (use.Status == result.UseAllowed) && use.Purpose != "transfer" {
			t.Errorf("%s is %s", use.Purpose, use.Status)
		}
	}
}
