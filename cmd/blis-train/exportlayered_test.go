package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/folder"
)

// TestExportOfUnlikeLayers: a planted set of spec 1.3 and the library's are written for models of latent and sparse attention, windows and
// experts behind dense layers, one of them with expert parallelism, in every format that a step time is enough for; a line of full
// engines holds the library's gpt-oss and MiniMax.
func TestExportOfUnlikeLayers(t *testing.T) {
	configs := repo.Shared(t, "data", "models_hf")
	for _, m := range []struct {
		id, file, device, engine string
		tp                       int
	}{
		{"deepseek-ai/DeepSeek-V3.2", "deepseek-ai--DeepSeek-V3.2", "H200-SXM-141GB", "  enable_expert_parallel: true\n", 8},
		{"moonshotai/Kimi-K2.5", "moonshotai--Kimi-K2.5", "H200-SXM-141GB", "", 8},
		{"openai/gpt-oss-120b", "openai--gpt-oss-120b", "H100-SXM-80GB", "", 2},
		{"MiniMaxAI/MiniMax-M2.5", "MiniMaxAI--MiniMax-M2.5", "H200-SXM-141GB", "", 4},
	} {
		dir := t.TempDir()
		repo.Write(t, repo.Read(t, configs, m.file+"_config.json"), dir, "config.json")
		repo.Write(t, fmt.Sprintf("model: {id: %s, config: config.json}\nhardware: {name: %s}\ntensor_parallel_size: %d\nvllm:\n"+
			"  version: \"0.24.0\"\n  max_model_len: 8192\n  max_num_seqs: 128\n  max_num_batched_tokens: 8192\n"+
			"  enable_prefix_caching: true\n  kv_blocks_total_gpu: 20000\n%s", m.id, m.device, m.tp, m.engine), dir, "run.yaml")
		run, set := filepath.Join(dir, "run.yaml"), filepath.Join(dir, "coefficients.yaml")
		d, err := loadDeployment(run)
		must(t, err)
		planted := testkit.PlantedOn(d)
		planted.SpecVersion = features.V13
		planted.Beta = layeredTerms(planted.Beta)
		data, err := folder.SetBytes(planted)
		must(t, err)
		repo.Write(t, data, set)
		for _, f := range []string{"native", "inferno-models", "keda-token-aware", "llmd-epp", "aic-fpm", "blis-defaults"} {
			for from, given := range map[string][]string{"planted": {"--coefficients", set}, "library": nil} {
				out := filepath.Join(dir, from+f)
				args := append([]string{"export", "--format", f, "--deployment", run, "-o", out}, given...)
				if f == "keda-token-aware" {
					args = append(args, "--option", "ttft-ms=20000")
				}
				isForced := f == "blis-defaults" || f == "inferno-models" && (from == "planted" || strings.Contains(m.id, "DeepSeek") ||
					strings.Contains(m.id, "Kimi")) // no line holds what a step reads of its experts
				if isForced {
					args = append(args, "--force", "poor_projection,unlearned_value")
				}
				if code, _, stderr := call(args...); code != exitOK {
					t.Errorf("%s: %s %s: %s", m.id, from, f, strings.TrimSpace(stderr))
					continue
				}
				if _, err := os.Stat(out); err != nil {
					t.Errorf("%s: %v", m.id, err)
				}
			}
		}
	}
}

// layeredTerms are coefficients by name in the order of spec 1.3.
func layeredTerms(of []coeff.Coefficient) []coeff.Coefficient {
	out := features.NewCoefficients(features.BetaFeatures(features.V13))
	for i := range out {
		for _, c := range of {
			if c.Name == out[i].Name {
				out[i].Value, out[i].Identified = c.Value, c.Identified
			}
		}
	}
	return out
}
