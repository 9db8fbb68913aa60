package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// stockRun writes the folder of README's stock path: the log of a planted server and the result of
// `vllm bench serve --save-result --save-detailed` of 400 prompts at 4 requests a second. Steps scatter by
// noise. run.yaml is of the server, but for what edit changes.
func stockRun(t *testing.T, noise float64, edit func(string) string) string {
	t.Helper()
	dir, dep := plantedDir(t)
	load := stockLoad
	load.noise = noise
	recording := recordPlanted(t, dep, load)
	repo.Write(t, recording.log, dir, "server.log")
	repo.Write(t, writeVLLMBench(recording.view(recordedAs{usage: true}), recordedAs{}), dir, "openai-4.0qps-m.json")
	repo.Write(t, edit(plantedRun), dir, "run.yaml")
	return dir
}

func sum(values []int64) (total int64) {
	for _, v := range values {
		total += v
	}
	return total
}

// stockPathLies are what run.yaml may state wrongly of the server whose log states it.
var stockPathLies = []struct{ name, from, to, setting string }{
	{"max_num_seqs 64 for 128", "max_num_seqs: 128", "max_num_seqs: 64", "vllm.max_num_seqs"},
	{"max_num_seqs 1024 for 128", "max_num_seqs: 128", "max_num_seqs: 1024", "vllm.max_num_seqs"},
	{"max_num_batched_tokens 512 for 2048", "max_num_batched_tokens: 2048", "max_num_batched_tokens: 512", "vllm.max_num_batched_tokens"},
	{"max_num_batched_tokens 8192 for 2048", "max_num_batched_tokens: 2048", "max_num_batched_tokens: 8192", "vllm.max_num_batched_tokens"},
	{"block_size 32 for 16", "async", "block_size: 32, async", "vllm.kv_blocks_total_gpu"}, // the log states tokens
	{"half of the KV blocks", "kv_blocks_total_gpu: 27000", "kv_blocks_total_gpu: 13500", "vllm.kv_blocks_total_gpu"},
	{"twice the KV blocks", "kv_blocks_total_gpu: 27000", "kv_blocks_total_gpu: 54000", "vllm.kv_blocks_total_gpu"},
	{"prefix caching on", "enable_prefix_caching: false", "enable_prefix_caching: true", "vllm.enable_prefix_caching"},
	{"chunked prefill off", "async", "enable_chunked_prefill: false, async", "vllm.enable_chunked_prefill"},
	{"scheduling by priority", "async", "scheduling_policy: priority, async", "vllm.scheduling_policy"},
	{"max_model_len 2048 for 8192", "async", "max_model_len: 2048, async", "vllm.max_model_len"},
	{"two GPUs", "vllm:", "tensor_parallel_size: 2\nvllm:", "tensor_parallel_size"},
}

// TestEvalStockPath: README's stock path, 400 prompts of a quiet planted server, passes; with a setting in run.yaml
// that the server's log states differently, the replay does not pass, and that setting is named.
func TestEvalStockPath(t *testing.T) {
	repo.NeedEval(t)
	judged := func(name string, edit func(string) string) *RunResult {
		dir := stockRun(t, 0.02, edit)
		o := DefaultRunOptions()
		o.Extract.Out = filepath.Join(t.TempDir(), "out")
		got, err := Run(context.Background(), []string{dir}, o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return nil
		}
		v := got.Validation
		fmt.Printf("  %s: %s for %v %v\n", name, v.Verdict, v.For, v.Missing)
		for _, g := range v.Gates {
			if g.Pass == nil && g.Required || g.Pass != nil && !*g.Pass {
				fmt.Printf("    gate %s %s: %s\n", g.Name, g.Scope, g.Note)
			}
		}
		return got
	}
	if honest := judged("as it was", func(run string) string { return run }); honest != nil && honest.Validation.Verdict != coeff.VerdictPass {
		t.Errorf("as it was: got %s, want pass", honest.Validation.Verdict)
	}
	// Elapsed times are then no step times, so that nothing can be fitted.
	dir := stockRun(t, 0.02, func(run string) string {
		return strings.Replace(run, "async_scheduling: false", "async_scheduling: true", 1)
	})
	o := DefaultRunOptions()
	o.Extract.Out = filepath.Join(t.TempDir(), "out")
	if _, err := Run(context.Background(), []string{dir}, o); err == nil || !strings.Contains(err.Error(), "scheduling is asynchronous by run.yaml") {
		t.Errorf("asynchronous scheduling: got %v, want an error that names it", err)
	}
	for _, c := range stockPathLies {
		got := judged(c.name, func(run string) string { return strings.Replace(run, c.from, c.to, 1) })
		if got == nil {
			continue
		}
		if verdict := got.Validation.VerdictFor(coeff.PurposeReplay, coeff.ScopeAll).Verdict; verdict == coeff.VerdictPass {
			t.Errorf("%s: the replay passes", c.name)
		}
		isNamed := slices.ContainsFunc(got.Extract.Runs[0].Warnings, func(w trace.Finding) bool { return w.Setting == c.setting })
		isReason := slices.ContainsFunc(got.Validation.Diagnoses, func(d result.Diagnosis) bool {
			return d.Cause == result.CauseStreams && strings.Contains(d.Sentence, c.setting)
		})
		if !isNamed || !isReason {
			t.Errorf("%s: named by the extraction %v, by a diagnosis %v, want both to name %s", c.name, isNamed, isReason, c.setting)
		}
	}
}

// TestEvalUnstatedSharing: the result file alone, of a server with prefix caching: it does not state what the
// prompts share, so that the replay is not judged, with the estimate and what to state in the reason; stated
// by the option, by run.yaml or by the file, it is.
func TestEvalUnstatedSharing(t *testing.T) {
	repo.NeedEval(t)
	nothing := int64(0)
	for name, c := range map[string]struct {
		option        *int64
		inRun, inFile bool
	}{
		"not stated":    {},
		"by the option": {option: &nothing},
		"by run.yaml":   {inRun: true},
		"by the file":   {inFile: true},
	} {
		dir := stockRun(t, 0.02, func(run string) string {
			run = strings.Replace(run, "enable_prefix_caching: false", "enable_prefix_caching: true", 1)
			if c.inRun {
				run += "client: {shared_prefix_tokens: 0}\n"
			}
			return run
		})
		if err := os.Remove(filepath.Join(dir, "server.log")); err != nil {
			t.Fatal(err)
		}
		if c.inFile { // vllm bench serve --metadata dataset_name=random
			file := filepath.Join(dir, "openai-4.0qps-m.json")
			repo.Write(t, strings.Replace(string(repo.Read(t, file)), `"burstiness"`, `"dataset_name":"random","burstiness"`, 1), file)
		}
		o := DefaultRunOptions()
		o.Extract.Out = filepath.Join(t.TempDir(), "out")
		o.Fit.From = fit.FromRequests.Name
		o.Fit.Shared = c.option
		o.Validate.SharedPrefix = c.option
		got, err := Run(context.Background(), []string{dir}, o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		v := got.Validation
		share := got.Fit.Requests.CachedShare
		why := ""
		for _, r := range v.Runs {
			why = cmp.Or(why, r.Undecided)
		}
		fmt.Printf("  %-14s %s; share %v; %s\n", name, v.Verdict, share, why)
		isStated := c.option != nil || c.inRun || c.inFile
		if (share == nil) != isStated || (why == "") != isStated || isStated == (v.Verdict == coeff.VerdictInsufficient) {
			t.Errorf("%s: got %s, share %v, undecided %q", name, v.Verdict, share, why)
		}
		if !isStated && (share.Low > 0 || !strings.Contains(why, share.String()) || !strings.Contains(why, "client or one of phases in run.yaml")) {
			t.Errorf("%s: got %v in %q, want the estimate and the key", name, share, why)
		}
	}
}
