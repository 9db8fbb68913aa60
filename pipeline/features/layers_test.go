package features

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
)

// unlike are small models of every kind of layer.
var unlike = map[string]string{
	"window": `{"model_type":"gemma3_text","num_hidden_layers":7,"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,
		"head_dim":16,"intermediate_size":128,"sliding_window":100,"vocab_size":256,"torch_dtype":"bfloat16"}`,
	"chunk": `{"model_type":"llama4_text","num_hidden_layers":8,"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,
		"head_dim":16,"intermediate_size":128,"intermediate_size_mlp":256,"num_local_experts":8,"num_experts_per_tok":1,
		"interleave_moe_layer_step":2,"attention_chunk_size":128,"vocab_size":256,"torch_dtype":"bfloat16"}`,
	"sparse mla": `{"model_type":"deepseek_v32","num_hidden_layers":5,"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":4,
		"q_lora_rank":32,"kv_lora_rank":16,"qk_rope_head_dim":8,"qk_nope_head_dim":8,"v_head_dim":16,"index_n_heads":4,
		"index_head_dim":128,"index_topk":64,"n_routed_experts":8,"n_shared_experts":1,"num_experts_per_tok":2,
		"moe_intermediate_size":32,"intermediate_size":128,"first_k_dense_replace":1,"vocab_size":256,"torch_dtype":"bfloat16"}`,
	"mla": `{"model_type":"deepseek_v3","num_hidden_layers":5,"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":4,
		"q_lora_rank":32,"kv_lora_rank":16,"qk_rope_head_dim":8,"qk_nope_head_dim":8,"v_head_dim":16,
		"n_routed_experts":8,"n_shared_experts":1,"num_experts_per_tok":2,
		"moe_intermediate_size":32,"intermediate_size":128,"first_k_dense_replace":1,"vocab_size":256,"torch_dtype":"bfloat16"}`,
	"hybrid": `{"model_type":"qwen3_next","num_hidden_layers":8,"hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,
		"head_dim":16,"intermediate_size":128,"linear_num_key_heads":2,"linear_num_value_heads":4,"linear_key_head_dim":16,
		"linear_value_head_dim":16,"linear_conv_kernel_dim":4,"num_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":32,
		"shared_expert_intermediate_size":32,"vocab_size":256,"torch_dtype":"bfloat16"}`,
}

// layered is a deployment of one of them.
func layered(t testing.TB, name string, tp int64) *deploy.Deployment {
	t.Helper()
	d := dense(tp)
	var err error
	if d.Model, err = model.Load(strings.NewReader(unlike[name]), name, model.Options{}); err != nil {
		t.Fatal(err)
	}
	if d.Model.Layered == nil {
		t.Fatalf("%s: layers that older versions can say", name)
	}
	return d
}

// For models of equal layers 1.3 has the slots of 1.2, to the last bit; the router of experts alone is counted at 16 bit.
func TestEqualLayersAreThoseOf12(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	bf16 := moe(4)
	bf16.Model.BytesPerWeight = 2
	bf16.Model.LinearCompute = "native"
	fp8 := dense(2)
	fp8.Model.BytesPerWeight = 1
	fp8.Model.LinearCompute = "fp8"
	for _, d := range []*deploy.Deployment{dense(1), dense(4), dense(16), bf16, fp8} {
		old, now := space(t, V12, d), space(t, V13, d)
		for range 200 {
			in, q := randomStep(r, now), randomQueue(r, now)
			for i, v := range beta(t, now, in) {
				if want := beta(t, old, in)[i]; v != want {
					t.Errorf("tp %d %s: got %v, want %v", d.TP, now.BetaFeatures()[i].Name, v, want)
				}
			}
			for i, v := range alpha(t, now, q) {
				if want := alpha(t, old, q)[i]; !close(v, want) {
					t.Errorf("tp %d %s: got %v, want %v", d.TP, now.AlphaFeatures()[i].Name, v, want)
				}
			}
		}
	}
}

// Pairs and entries within a reach are those counted one query at a time.
func TestReachesCountPairs(t *testing.T) {
	for _, r := range []model.Reach{{}, {Window: 5}, {Chunk: 4}, {TopK: 7}, {Ratio: 4, TopK: 3}, {Ratio: 4}, {Ratio: 8, TopK: 1}} {
		for c := range int64(60) {
			for n := int64(1); n < 40; n++ {
				pairs := int64(0)
				for j := c + 1; j <= c+n; j++ { // the query that is the j-th token
					entries := j
					switch {
					case r.Chunk > 0:
						entries = (j-1)%r.Chunk + 1
					case r.Ratio > 0:
						entries = j / r.Ratio
					}
					if most := r.Window + r.TopK; most > 0 {
						entries = min(entries, most)
					}
					pairs += entries
				}
				if got := r.Pairs(c, n); got != pairs {
					t.Fatalf("%+v, %d cached, %d new: got %d pairs, want %d", r, c, n, got, pairs)
				}
				if n == 1 && r.Ratio == 0 && r.Read(c, 1) != pairs {
					t.Fatalf("%+v, %d cached: a decode reads %d entries, want %d", r, c, r.Read(c, 1), pairs)
				}
			}
		}
	}
}

// Specifications up to 1.2 refuse what they cannot say, by name.
func TestUnlikeLayersAreRefusedBefore13(t *testing.T) {
	for name := range unlike {
		for _, v := range []Version{V10, V11, V12} {
			if _, err := New(v, layered(t, name, 1)); err == nil || !strings.Contains(err.Error(), "layer") {
				t.Errorf("%s of %s: got %v, want a refusal that names the layer", v, name, err)
			}
		}
	}
}
