package deploy

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// disputed are figures of truth.csv that its own sources contradict, and what we get less than they say.
var disputed = map[string]struct {
	key  string
	less float64
	why  string
}{
	// Norms, sinks, router and attention biases (13,952 and 13,856 parameters a layer) are passed by every token, as they are
	// counted for all other models.
	"openai--gpt-oss-120b": {"active_params", -502272, "small parameters of a layer are active"},
	"openai--gpt-oss-20b":  {"active_params", -332544, "small parameters of a layer are active"},
	// Only experts were converted to NVFP4; quant_method fp8 holds for the rest, and vLLM's fp8 reads no key ignore. The row
	// has one of the shared experts' three matrices at 16 bit (hidden x width x layers x (1 - 2^-14)) and attention at fp8.
	"nvidia--DeepSeek-V4-Flash-NVFP4": {"weight_bytes", 360688128, "a third of the shared experts taken at 16 bit"},
	"nvidia--DeepSeek-V4-Pro-NVFP4":   {"weight_bytes", 1343143872, "a third of the shared experts taken at 16 bit"},
	// mtp.layers.0* is of the multi-token-prediction layer; the row leaves the decoder's first experts at 16 bit.
	"nvidia--Qwen3.5-122B-A10B-NVFP4": {"weight_bytes", 3472883712, "mtp.layers.0* taken for layer 0: 1.4375 B x 3 x 256 x 1024 x 3072"},
	"nvidia--Qwen3.5-397B-A17B-NVFP4": {"weight_bytes", 9261023232, "mtp.layers.0* taken for layer 0: 1.4375 B x 3 x 512 x 1024 x 4096"},
	// quantized_layers names lm_head (W4A16_NVFP4). The publisher's files of the second (huggingface.co, revision 1355db6) are 23.5 GB in
	// all: ours with 1.69 GB of multi-token prediction and 0.89 GB of encoder are 23.4, the row's 24.1.
	"nvidia--Qwen3.6-27B-NVFP4":     {"weight_bytes", 1827635200, "lm_head is named in quantized_layers: 1.4375 B x 248320 x 5120"},
	"nvidia--Qwen3.6-35B-A3B-NVFP4": {"weight_bytes", 731054080, "lm_head is named in quantized_layers: 1.4375 B x 248320 x 2048"},
	// Neither the config nor a file beside it says that anything is quantized: 16 bit, with a warning.
	lightning: {"weight_bytes", 19379542656 - 63155880576, "no file states a quantization"},
}

// published are why a publisher's total parameters are more than 1 % off, and by how much, %.
var published = map[string]struct {
	off float64
	why string
}{
	"deepseek-ai--DeepSeek-V4-Pro":               {-1.7, "rounded to 1.6 T"},
	"moonshotai--Kimi-K2-Instruct":               {-1.3, "rounded to 1 T and more; the published bytes agree to 0.01 %"},
	"moonshotai--Kimi-K2.5":                      {-1.3, "as Kimi-K2; the published bytes agree to 0.2 %"},
	"meta-llama--Llama-4-Scout-17B-16E-Instruct": {-1.1, "the published total has the image encoder"},
	"Qwen--Qwen3-1.7B":                           {1.2, "named after 1.7 B"},
	"XiaomiMiMo--MiMo-7B-Base":                   {8.9, "named after 7 B"},
}

const lightning = "nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4"

// TestDecodersMatchTruth compares every published configuration with figures that another program computed.
func TestDecodersMatchTruth(t *testing.T) {
	dir := repo.Shared(t, "data", "models_hf")
	f, err := os.Open(filepath.Join(dir, "truth.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	stated := 0
	for _, row := range rows[1:] {
		name := strings.ReplaceAll(row[0], "/", "--")
		t.Run(name, func(t *testing.T) {
			config, err := os.ReadFile(filepath.Join(dir, name+"_config.json"))
			if err != nil {
				t.Fatal(err)
			}
			quant, _ := os.ReadFile(filepath.Join(dir, name+"_hf_quant_config.json"))
			d, err := ReadDecoder(config, quant, name, ModelOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if quantized := strings.Contains(strings.Join(d.Warnings, " "), "says quantized"); quantized != (name == lightning) {
				t.Errorf("warnings: got %q", d.Warnings)
			}
			if total, err := strconv.ParseFloat(row[column["published_total_B"]], 64); err == nil {
				stated++
				if off := 100 * (float64(d.TotalParams())/1e9/total - 1); !(math.Abs(off-published[name].off) <= 1) || published[name].off != 0 &&
					math.Abs(off-published[name].off) > 0.05 {
					t.Errorf("total_params: %.2f %% off the published %g B, want at most 1 %% but for what is explained", off, total)
				}
			}
			full, shipped := d.Cache(2, 1), d.Cache(d.KVBytes, 1)
			for _, c := range []struct {
				key string
				got float64
			}{{"total_params", float64(d.TotalParams())}, {"active_params", float64(d.ActiveParams())}, {"weight_bytes", d.WeightBytes()},
				{"kv_bytes_per_token", full.BytesPerToken}, {"state_bytes_per_request", full.StateBytes},
				{"kv_bytes_per_token_shipped", shipped.BytesPerToken}, {"window_bytes_per_token", full.WindowPerToken},
				{"window_bytes_full", full.WindowBytes}} {
				want, err := strconv.ParseFloat(row[column[c.key]], 64)
				if err != nil {
					t.Fatal(err)
				}
				if x, ok := disputed[name]; ok && x.key == c.key {
					want -= x.less
				} else if ok && x.why == "no file states a quantization" && c.key == "kv_bytes_per_token_shipped" {
					want = full.BytesPerToken
				}
				if !(math.Abs(c.got-want) <= 1e-9*math.Abs(want)) {
					t.Errorf("%s: got %.2f, want %.2f (%+.2f)", c.key, c.got, want, c.got-want)
				}
			}
		})
	}
	t.Logf("%d of %d publishers state a total: all within 1 %% but %d, which are explained", stated, len(rows)-1, len(published))
	if stated < 42 {
		t.Errorf("%d published totals, want 42", stated)
	}
}

// TestModelsPageIsGenerated compares docs/models.md with what the reader makes of every published configuration; -update
// rewrites it.
func TestModelsPageIsGenerated(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(repo.Shared(t, "data", "models_hf"), "*_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(modelsPage)
	for _, name := range files {
		if !strings.HasSuffix(name, "_hf_quant_config.json") {
			b.WriteString(modelsRow(t, name))
		}
	}
	const page = "../docs/models.md"
	if *update {
		repo.Write(t, b.String(), page)
	} else if b.String() != string(repo.Read(t, page)) {
		t.Errorf("%s is out of date; rerun with -update", page)
	}
}

const modelsPage = `# Models

What ` + "`blis-train inspect --model`" + ` reads of published configurations, generated from them. [How](spec.md#model-layers) layers are read and added up.
Layers are counted by their mixer. GB are 1e9 bytes of weights per GPU of a tensor-parallel group of 1 and 8; "-" where vLLM would not load it
so. KV bytes per token and state bytes per request are those of the whole model: the cache at 16 bit, and in the type the checkpoint asks for.
The last column: the [specifications](spec.md#model-refused) that say steps of the model, and what older ones cannot say of it.

| model | layers | parameters, 1e9 | active | GB, tp 1 | GB, tp 8 | KV B/token, 16 bit | shipped | window + state, MB | specifications |
|---|---|---|---|---|---|---|---|---|---|
`

func modelsRow(t *testing.T, name string) string {
	d, err := ReadDecoderFile(name, ModelOptions{})
	if err != nil {
		t.Fatal(err)
	}
	perGPU := func(tp int64) string {
		s, err := d.Sizes(Parallel{TP: tp, PP: 1, DP: 1})
		if err != nil {
			return "-"
		}
		return fmt.Sprintf("%.1f", s.WeightBytesPerGPU/1e9)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	quant, err := os.ReadFile(QuantConfigName(name))
	if err != nil {
		quant = nil
	}
	m, err := LoadModel(f, "config.json", ModelOptions{QuantConfig: quant})
	if err != nil {
		t.Error(err)
	}
	answered := "1.0 to 1.3"
	if why := m.WhyLayered(); why != "" {
		answered = "1.3: " + strings.Replace(why, "got ", "", 1)
	}
	full, shipped := d.Cache(2, 1), d.Cache(d.KVBytes, 1)
	id := strings.Replace(strings.TrimSuffix(filepath.Base(name), "_config.json"), "--", "/", 1)
	return fmt.Sprintf("| %s | %s | %.2f | %.2f | %s | %s | %.0f | %.0f | %.1f | %s |\n", id, d.InWords(), float64(d.TotalParams())/1e9,
		float64(d.ActiveParams())/1e9, perGPU(1), perGPU(8), full.BytesPerToken, shipped.BytesPerToken,
		(full.WindowBytes+full.StateBytes)/1e6, answered)
}
