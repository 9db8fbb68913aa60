package library

import (
	"math"
	"testing"

	"github.com/blis-train/blis-train/deploy"
)

// TestWholeSequences: where FlashAttention 2 runs one block a multiprocessor, decodes wait for the longest context once sequences are not
// split any more, and each query head reads its context beside prompts. The times are of one layer of Llama-3.1-8B.
func TestWholeSequences(t *testing.T) {
	decodes := Batch{Tokens: 44, Sequences: 44, Decodes: 44, DecodeContext: 44 * 1409, LongestDecode: 4740}
	few := Batch{Tokens: 32, Sequences: 32, Decodes: 32, DecodeContext: 32 * 1409, LongestDecode: 4740}
	beside := Batch{Tokens: 300, Sequences: 45, Decodes: 44, DecodeContext: 44 * 1409, Prefills: 1, PrefillTokens: 256, PrefillPairs: 256 * 257 / 2}
	for _, c := range []struct {
		gpu    string
		b      Batch
		alike  float64 // us of the decodes alone, all of the mean context
		longer float64 // us of the batch
	}{
		{"RTX-PRO-6000", decodes, 168.3, 301.1}, // 4,740 tokens of 1,417 us / (128 x 4,095) x 188 / 8,
		{"RTX-PRO-6000", few, 112.6, 112.6},
		{"RTX-PRO-6000", beside, 168.3, 327.1}, // 44 x 32 / 188 blocks of 1,409 tokens at 0.031 us
		{"L40S", decodes, 405.7, 475.0},
		{"H100", decodes, 101.6, 101.6},
		{"H100", beside, 101.6, 101.6},
	} {
		d, err := deploy.LoadSettings("model.id=meta-llama/Llama-3.1-8B-Instruct", "hardware.name="+c.gpu, "vllm.version=0.19.0",
			"tensor_parallel_size=1", "vllm.kv_blocks_total_gpu=20000", "vllm.max_model_len=10000", "vllm.max_num_seqs=256",
			"vllm.max_num_batched_tokens=2048")
		if err != nil {
			t.Fatal(err)
		}
		s := bound(t, d)
		us := func(b Batch) float64 {
			in := s.stateOf(&b)
			for i := range s.Operators {
				if s.Operators[i].Name == "attention_decode" {
					return s.Operators[i].us(&in)
				}
			}
			return math.NaN()
		}
		alike := c.b
		alike.LongestDecode, alike.Prefills, alike.Tokens, alike.Sequences = 0, 0, c.b.Decodes, c.b.Decodes
		if got := us(alike); !(math.Abs(got-c.alike) < 0.1) {
			t.Errorf("%s, %g decodes alike: got %.1f us, want %.1f", c.gpu, c.b.Decodes, got, c.alike)
		}
		if got := us(c.b); !(math.Abs(got-c.longer) < 0.1) {
			t.Errorf("%s, %+v: got %.1f us, want %.1f", c.gpu, c.b, got, c.longer)
		}
	}
}
