package build

import (
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// TestServedLoad: of two requests of stock spans, 5 ms apart, TTFT is 20 and 40 ms, and 10 and 5 ms pass a token after
// the first; 64 tokens are of all prompts.
func TestServedLoad(t *testing.T) {
	d, err := deploy.LoadSettings("model.id=meta-llama/Llama-3.1-8B-Instruct", "hardware.name=RTX-PRO-6000", "vllm.version=0.19.0",
		"tensor_parallel_size=1", "vllm.max_num_seqs=128", "vllm.max_num_batched_tokens=2048")
	if err != nil {
		t.Fatal(err)
	}
	const wall = int64(1_777_142_838e9)
	span := func(atNs, prompt, output int64, ttftUs, decodeUs float64) trace.Request {
		return trace.Request{
			StartWallNs: trace.Some(wall + atNs), PromptTokens: trace.Some(prompt), OutputTokens: trace.Some(output),
			StockTTFTUs: trace.Some(ttftUs), StockDecodeUs: trace.Some(decodeUs),
		}
	}
	noDecode := span(0, 100, 11, 1, 1)
	noDecode.StockDecodeUs = trace.Opt[float64]{}
	run := &trace.Run{Requests: []trace.Request{
		span(5e6, 50, 21, 40e3, 100e3), span(0, 100, 11, 20e3, 100e3),
		span(0, 100, 1, 1, 1), noDecode, {}, // no TPOT
	}}
	d.Client.SharedPrefixTokens = trace.Some(int64(64))
	l, err := servedOf("run", run, d)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(l.ttftMs-30) > 1e-9 || math.Abs(l.tpotMs-7.5) > 1e-9 || len(l.reqs) != 2 {
		t.Errorf("got TTFT %g and TPOT %g ms of %d requests, want 30, 7.5 and 2", l.ttftMs, l.tpotMs, len(l.reqs))
	}
	for i, want := range [][4]int64{{0, 100, 11, 64}, {5000, 50, 21, 50}} { // no more than the prompt is shared
		if r := l.reqs[i]; [4]int64{r.ArrivalUs, r.PromptTokens, r.OutputTokens, r.GroupTokens} != want || r.Group != 1 {
			t.Errorf("request %d: got %+v, want %v", i, r, want)
		}
	}
	if l, err := servedOf("run", &trace.Run{Requests: run.Requests[2:]}, d); l != nil || err != nil {
		t.Errorf("no usable span: got %v, %v", l, err)
	}
}

// TestEvenBatches: 10 tokens of 3 requests are 4, 3 and 3.
func TestEvenBatches(t *testing.T) {
	chunk := func(computed, prompt, n int64) trace.Chunk {
		return trace.Chunk{Computed: computed, Prompt: prompt, New: n}
	}
	for _, c := range []struct {
		n, tokens, context int64
		want               []trace.Chunk
	}{
		{3, 0, 10, []trace.Chunk{chunk(4, 4, 1), chunk(3, 3, 1), chunk(3, 3, 1)}},
		{3, 0, 1, []trace.Chunk{chunk(1, 1, 1), chunk(1, 1, 1), chunk(1, 1, 1)}},
		{3, 11, 10, []trace.Chunk{chunk(4, 8, 4), chunk(3, 7, 4), chunk(3, 6, 3)}},
		{1, 5, 0, []trace.Chunk{chunk(0, 5, 5)}},
	} {
		if got := balancedBatch(c.n, c.tokens, c.context); !slices.Equal(got, c.want) {
			t.Errorf("%d requests, %d tokens, %d context: got %+v, want %+v", c.n, c.tokens, c.context, got, c.want)
		}
	}
}

// bent is a time of 1000 us up to 100 tokens and 10 us a token above.
type bent struct{}

func (bent) StepUs(batch []trace.Chunk) (float64, error) {
	return math.Max(1000, 10*float64(batch[0].New)), nil
}

// TestGridWhereTimesBend: a line needs no points between 200 and 400 tokens; the bend at 100 gets some.
func TestGridWhereTimesBend(t *testing.T) {
	got, err := refinedGrid(bent{}, []int64{1, 64, 200, 400})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(got) || got[0] != 1 || !slices.Contains(got, 200) || got[len(got)-1] != 400 || got[len(got)-2] != 200 || got[1] != 64 {
		t.Errorf("got %v, want 1, 64, points around 100, 200, 400", got)
	}
	time := func(n int64) float64 { return math.Max(1000, 10*float64(n)) }
	for i := 1; i < len(got); i++ {
		lo, hi := got[i-1], got[i]
		mid := (lo + hi) / 2
		if off := math.Abs(0.5*(time(lo)+time(hi)) - time(mid)); hi-lo > 3 && off > 0.003*time(mid) {
			t.Errorf("between %d and %d tokens the time is off by %g us", lo, hi, off)
		}
	}
}

func TestServedFlags(t *testing.T) {
	row := func(change ...string) map[string]string {
		text := map[string]string{"tp": "2", "dp": "1", "max_num_seqs": "64", "max_num_batched_tokens": "2048", "gpu_memory_utilization": "0.9",
			"expert_parallel": "1"}
		for i := 0; i < len(change); i += 2 {
			text[change[i]] = change[i+1]
		}
		return text
	}
	s, err := servedRow("f", 3, row())
	if err != nil || s.TP != 2 || s.DP != 1 || s.MaxNumSeqs != 64 || s.TokenBudget != 2048 || s.MemoryShare != 0.9 || !s.ExpertParallel {
		t.Errorf("got %+v, %v", s, err)
	}
	for _, c := range []struct {
		column, text string
		isGood       bool
	}{
		{"tp", "1", true}, {"tp", "0", false}, {"tp", "", false}, {"dp", "-1", false}, {"max_num_seqs", "1.5", false},
		{"max_num_batched_tokens", "99999999999999", false}, {"gpu_memory_utilization", "1", true}, {"gpu_memory_utilization", "1.01", false},
		{"gpu_memory_utilization", "0", false}, {"gpu_memory_utilization", "NaN", false}, {"further_vllm_keys", `{"a": 1}`, true}, {"further_vllm_keys", `[`, false},
	} {
		if _, err := servedRow("f", 3, row(c.column, c.text)); (err == nil) != c.isGood {
			t.Errorf("%s %q: got %v", c.column, c.text, err)
		}
	}
}
