package deploy

import (
	"strings"
	"testing"
)

// TestStatedValuesAreChecked: a command line with which vLLM does not start is refused with the flag and the range; one
// whose other value is a default, or depends on a model that is not known, is not.
func TestStatedValuesAreChecked(t *testing.T) {
	const known = "Qwen/Qwen3-8B" // 36 layers, 32 heads
	for _, c := range []struct{ model, flags, want string }{
		{known, "--max-num-seqs 0", "--max-num-seqs: got 0, want >= 1 requests"},
		{"my/own", "--max-num-seqs 0", "--max-num-seqs: got 0, want >= 1 requests"},
		{known, "--max-num-seqs 1", ""},
		{known, "--gpu-memory-utilization 1.01", "--gpu-memory-utilization: got 1.01, want 0..1 share of device memory"},
		{known, "--gpu-memory-utilization 1", ""},
		{known, "--kv-cache-dtype fp4", `--kv-cache-dtype: got "fp4", want auto`},
		{known, "--dtype int8", `--dtype: got "int8", want auto`},
		{known, "--scheduling-policy lifo", `--scheduling-policy: got "lifo", want fcfs or priority`},
		{known, "--tensor-parallel-size 3", "--tensor-parallel-size: got 3, want a divisor of 32 attention heads"},
		{"my/own", "--tensor-parallel-size 3", ""},
		{known, "--tensor-parallel-size 4", ""},
		{known, "--pipeline-parallel-size 37", "--pipeline-parallel-size: got 37, want at most the model's 36 layers"},
		{known, "--enable-expert-parallel", "--enable-expert-parallel: got a model without experts"},
		{known, "--max-num-seqs 65 --max-num-batched-tokens 64", "--max-num-batched-tokens: got 64, want at least max_num_seqs 65"},
		{"my/own", "--max-num-seqs 65 --max-num-batched-tokens 64", "--max-num-batched-tokens: got 64, want at least max_num_seqs 65"},
		{known, "--max-num-seqs 64 --max-num-batched-tokens 64", ""},
		{known, "--max-num-batched-tokens 64", ""},
	} {
		stated, err := FromCommandLine("vllm serve "+c.model+" "+c.flags, nil)
		if err != nil {
			t.Fatal(err)
		}
		draft := NewDraft()
		draft.Set("hardware.name", "a device of one's own")
		draft.Merge(stated)
		draft.FillDefaults()
		switch err = draft.CheckStated(stated); {
		case c.want == "" && err != nil:
			t.Errorf("%s %s: got %v", c.model, c.flags, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), "command line: "+c.want)):
			t.Errorf("%s %s: got %v, want %s", c.model, c.flags, err, c.want)
		}
	}
}
