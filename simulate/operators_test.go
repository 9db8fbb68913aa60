package simulate

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// offRoofline are layers whose measured kernels are faster than their work allows, or many times slower.
var offRoofline = map[string]string{
	"moe ffn of 512 experts, 4096 x 2688, fp8": "ModelOpt's fp8 rows on Hopper take 2.4 to 3.9 times what bfloat16's " +
		"of the same shape do, for every shape; an answer names them as slower than bfloat16's",
	"moe ffn of 256 experts, 7168 x 2048, fp8_block": "the published rows of few tokens read fewer experts than uniform routing touches: " +
		"64 tokens take the time of 153 experts' bytes, of 223 expected; rows of other models with as many experts do not",
}

// TestOperatorsOverRoofline holds the work that 1.3 adds up for each kind of mixer and ffn against measured kernels: what one layer's
// operators take on an H200 with tokens spread evenly over experts, over the larger of its FLOP at peak rate and its bytes at full
// bandwidth. Between 1 and 10, or explained; kinds without rows are named.
func TestOperatorsOverRoofline(t *testing.T) { operatorsOverRoofline(t, 4) }

// TestEvalOperatorsOverRoofline: the same of every built-in model.
func TestEvalOperatorsOverRoofline(t *testing.T) {
	repo.NeedEval(t)
	operatorsOverRoofline(t, 1)
}

func operatorsOverRoofline(t *testing.T, every int) {
	t.Helper()
	steps := map[string][]trace.Chunk{"64 decodes at 4000": slices.Repeat([]trace.Chunk{{Computed: 4000, Prompt: 3000, New: 1}}, 64),
		"a prompt of 8192": {{Prompt: 8192, New: 8192}}}
	ratios := map[string][]float64{}
	missing := map[string]error{}
	for i, id := range model.BuiltInIDs() {
		if i%every > 0 {
			continue
		}
		d, err := deploy.LoadSettings("model.id="+id, "hardware.name=H200", "vllm.version=0.24.0", "vllm.max_num_seqs=256",
			"vllm.max_num_batched_tokens=8192", "vllm.max_model_len=10000", "vllm.kv_blocks_total_gpu=20000")
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		whole := d.Model.Decoder
		var seen []model.Layer
		one := func(l model.Layer, kind string) {
			if slices.ContainsFunc(seen, func(s model.Layer) bool { return reflect.DeepEqual(s, l) }) {
				return
			}
			seen = append(seen, l)
			us := func(layers []model.Layer, b []trace.Chunk) (measured, roofline float64, err error) {
				own, dep := *whole, *d
				own.Layers = layers
				dep.Model.Layered = &own
				dep.Model.Decoder = &own
				step, err := library.Bound(&dep, library.Options{Load: "balanced"})
				if err != nil {
					return 0, 0, err
				}
				batch := library.BatchOf(b)
				for _, us := range step.Us(&batch) {
					measured += us
				}
				space, err := features.New(features.V13, &dep)
				if err != nil {
					return 0, 0, err
				}
				in := space.Sum(b)
				x := make([]float64, len(space.BetaFeatures()))
				if _, err := space.Beta(&in, x); err != nil {
					return 0, 0, err
				}
				return measured, 1e6 * (x[0] + x[2] + max(x[1]+x[3], x[4])), nil
			}
			for what, b := range steps {
				m2, r2, err := us([]model.Layer{l, l}, b)
				m1, r1, err1 := us([]model.Layer{l}, b)
				if err != nil || err1 != nil {
					if missing[kind] == nil {
						missing[kind] = err
					}
					continue
				}
				key, v := kind+", "+what, (m2-m1)/(r2-r1)
				ratios[key] = append(ratios[key], v)
				name := kind
				if f := l.FFN; f != nil && f.Kind == model.Experts {
					name = fmt.Sprintf("%s of %d experts, %d x %d, %s", kind, f.Experts, whole.Hidden, f.Width,
						f.Linears[len(f.Linears)-1].Quant.Algorithm)
				}
				switch why := offRoofline[name]; {
				case !(v >= 1 && v <= 10) && why == "":
					t.Errorf("%s: %s, %s: %.1f us of a roofline of %.1f, want 1 to 10 times", id, name, what, m2-m1, r2-r1)
				case !(v >= 1 && v <= 10):
					t.Logf("%s: %s, %s: %.2f: %s", id, name, what, v, why)
				}
			}
		}
		for i := range whole.Layers {
			l := &whole.Layers[i]
			if l.Mixer != nil {
				one(model.Layer{Mixer: l.Mixer}, (&model.Layer{Mixer: l.Mixer}).Kind())
			}
			if l.FFN != nil {
				one(model.Layer{FFN: l.FFN}, string(l.FFN.Kind)+" ffn")
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(ratios)) {
		r := ratios[key]
		slices.Sort(r)
		t.Logf("%-40s %3d layers: %6.2f to %6.2f, median %6.2f", key, len(r), r[0], r[len(r)-1], r[len(r)/2])
	}
	for _, kind := range slices.Sorted(maps.Keys(missing)) {
		if ratios[kind+", a prompt of 8192"] == nil {
			t.Logf("%s: not measured: %v", kind, missing[kind])
		}
	}
	if len(ratios) < 20 {
		t.Errorf("%d kinds of layers and steps were measured, want 20", len(ratios))
	}
}
