package sizing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/library/predict"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// TestReasonsOfRefusals: why a kind of server is no row, with the numbers of GPUs.
func TestReasonsOfRefusals(t *testing.T) {
	refused := func(q *Question) string {
		t.Helper()
		r := answered(t, q).Rows[0]
		if r.Refused == "" || r.Met != "" || r.Replicas != 0 || r.GPUs != 0 {
			t.Errorf("got %+v", r)
		}
		return r.Refused
	}
	load := predict.Load{RateRPS: 400, InputTokens: 300, OutputTokens: 3}
	few := onL4(load, "ttft.p90=600ms", 2)
	few.MostGPUs = 4
	if got := refused(few); !strings.HasPrefix(got, "needs some ") || !strings.HasSuffix(got, " GPUs, more than 4") {
		t.Errorf("got %q", got)
	}
	// Far above what one server takes, the number of servers grows with the load.
	few.Load.RateRPS = 4e5
	many, most := 0, 0
	if got := refused(few); true {
		fmt.Sscanf(got, "needs some %d GPUs", &many)
	}
	few.Load.RateRPS = 9e5
	if got := refused(few); true {
		fmt.Sscanf(got, "needs some %d GPUs", &most)
	}
	if math.Abs(float64(most)/float64(many)-9./4) > 0.2 {
		t.Errorf("got %d GPUs for 400,000 requests/s and %d for 900,000", many, most)
	}
	few.MostGPUs = 1
	if got := refused(few); got != "needs 2 GPUs, more than 1" {
		t.Errorf("got %q", got)
	}
	if got := refused(onL4(load, "ttft.p90=1ms", 1)); got != "not met at any load: ttft p90" {
		t.Errorf("got %q", got)
	}
	recorded := onL4(predict.Load{Workload: everyFortyMs()}, "ttft.p90=1ms", 2)
	recorded.MostGPUs = 5
	if got := refused(recorded); got != "not met with 4 GPUs: ttft p90" {
		t.Errorf("got %q", got)
	}
	// A probe may meet what the replications miss with as many servers as there may be.
	q := onL4(predict.Load{RateRPS: 12, InputTokens: 10, OutputTokens: 10}, "ttft.p90=600ms", 1)
	q.MostGPUs = 7
	own := &candidate{q: q, server: &predict.Prediction{GPUs: 2}}
	late := func(int, int64) (*predict.Sample, error) { return servedWithGaps(gaps(), 700), nil }
	if samples, n, err := own.confirm(t.Context(), 2, late); err != nil || samples != nil || n != 0 {
		t.Errorf("got %d samples of %d servers, %v", len(samples), n, err)
	}
}

// TestProgressAndNotes: the candidates that are done are reported, and a warning of several candidates is one note.
func TestProgressAndNotes(t *testing.T) {
	q := onL4(predict.Load{RateRPS: 1, InputTokens: 100, OutputTokens: 3}, "ttft.p90=10s", 1, 2)
	var told []string
	q.Workers = 1
	q.Progress = func(stage string, done, total int64, unit string) {
		told = append(told, fmt.Sprintf("%s %d/%d %s", stage, done, total, unit))
	}
	a := answered(t, q)
	if !slices.Equal(told, []string{"size 1/2 deployments", "size 2/2 deployments"}) {
		t.Errorf("got %q", told)
	}
	for i, n := range a.Notes {
		if slices.Contains(a.Notes[:i], n) {
			t.Errorf("twice: %v", n)
		}
	}
	c := oneServer(t, q)
	for _, w := range c.server.Warnings {
		if !slices.Contains(a.Notes, w) {
			t.Errorf("got %v, want %v among them", a.Notes, w)
		}
	}
	if a.Model == "" || a.Version != c.server.Version || a.Routing != q.Routing || len(a.Targets.Limits) != 1 || a.Load.RateRPS != 1 {
		t.Errorf("got %+v", a)
	}
}

// TestSearchesForCertainRows: only rows that meet the targets by the estimate are searched for more replicas, within the GPUs
// that are left and below those of every certain row on the same GPU.
func TestSearchesForCertainRows(t *testing.T) {
	q := onL4(predict.Load{RateRPS: 12, InputTokens: 10, OutputTokens: 10}, "ttft.p90=600ms", 1)
	q.MostGPUs = 16
	for name, rows := range map[string][]Row{
		"certain": {{Met: MetYes, Replicas: 2, GPUs: 2}}, "bounds": {{Met: MetBound, Replicas: 2, GPUs: 2}}, "pools": {{Met: MetEstimate, Pools: true, Replicas: 2, GPUs: 2}}, "drafts": {{Met: MetEstimate, Drafts: true, Replicas: 2, GPUs: 2}},
		"refused": {{Refused: "x"}}, "as many as may be": {{Met: MetEstimate, Replicas: 16, GPUs: 16}}, "a certain one with one GPU more": {{Hardware: "L4", Met: MetEstimate, Replicas: 2, GPUs: 2}, {Hardware: "L4", Met: MetYes, GPUs: 3}},
	} {
		candidates := make([]candidate, len(rows)) // no simulation can be made of these
		for i := range candidates {
			candidates[i] = candidate{q: q, server: &predict.Prediction{GPUs: 1}}
		}
		if got, err := q.certainRows(t.Context(), candidates, rows); err != nil || len(got) != 0 {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// TestLongPromptsOfAWorkload: the prompts that no server of the model takes are counted, with what to do about them.
func TestLongPromptsOfAWorkload(t *testing.T) {
	w := &workload.Workload{Requests: slices.Clone(everyFortyMs().Requests)} // of 200 to 259 tokens
	q := onL4(predict.Load{Workload: w}, "ttft.p90=100ms", 1)
	q.Server.Set = append(q.Server.Set, "vllm.max_model_len=258")
	all, err := q.candidates()
	if err != nil {
		t.Fatal(err)
	}
	row, err := all[0].row(t.Context())
	if err == nil || !strings.Contains(err.Error(), "of 60 prompts of the workload are longer than 258 tokens, the longest sequence of ") ||
		trace.HintOf(err) != "take a model with longer sequences, or leave these requests out of the workload" || row.Replicas != 0 || row.Hardware != "L4-24GB" || row.TP != 1 || row.DP != 1 {
		t.Errorf("got %+v, %v", row, err)
	}
	// A search that is cancelled keeps what is known of the server.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, load := range map[string]predict.Load{"arrivals": {RateRPS: 3, InputTokens: 100, OutputTokens: 3}, "clients": {Clients: 3, InputTokens: 100, OutputTokens: 3}} {
		own := onL4(load, "ttft.p90=1s", 2)
		c := oneServer(t, own)
		c.server = nil
		row, err := c.row(ctx)
		if !errors.Is(err, context.Canceled) || row.TP != 2 || row.Serve == "" || row.Refused != "" {
			t.Errorf("%s: got %+v, %v", name, row, err)
		}
	}
}

// TestCachedShareNeedsTheCache: a server without a prefix cache finds no part of a prompt there.
func TestCachedShareNeedsTheCache(t *testing.T) {
	for serve, want := range map[string]string{"": "", "--no-enable-prefix-caching": "cached share of prompts: got 0.9 with enable_prefix_caching false, want 0"} {
		q := onL4(predict.Load{RateRPS: 1, InputTokens: 100, OutputTokens: 3, CachedShare: 0.9}, "ttft.p90=10s", 1)
		q.Server.Serve = serve
		_, err := q.Answer(t.Context())
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && (!strings.Contains(got, want) || trace.HintOf(err) == "") {
			t.Errorf("%q: got %v, want %q", serve, err, want)
		}
	}
}

// TestExpertParallelismInArguments: expert parallelism that the arguments of vllm serve state is one candidate.
func TestExpertParallelismInArguments(t *testing.T) {
	q := onL4(predict.Load{RateRPS: 1, InputTokens: 100, OutputTokens: 3}, "ttft.p90=10s", 2)
	q.Server.Model = "Qwen/Qwen3-30B-A3B"
	q.Hardware = []string{"H100"}
	for serve, want := range map[string]int{"": 2, "--enable-expert-parallel": 1} {
		q.Server.Serve = serve
		all, err := q.candidates()
		if err != nil || len(all) != want {
			t.Errorf("%q: got %d candidates, want %d; %v", serve, len(all), want, err)
		}
	}
}

// TestExpertParallelismOverRanks: data-parallel ranks of one GPU each may spread the experts, too; one GPU alone may not.
func TestExpertParallelismOverRanks(t *testing.T) {
	q := onL4(predict.Load{RateRPS: 1, InputTokens: 100, OutputTokens: 3}, "ttft.p90=10s", 1)
	q.Server.Model = "Qwen/Qwen3-30B-A3B"
	q.Hardware = []string{"H100"}
	for ranks, want := range map[string][]bool{"1": {false}, "4": {false, true}} {
		q.Server.Set = []string{"data_parallel_size=" + ranks}
		all, err := q.candidates()
		if err != nil {
			t.Fatal(err)
		}
		var got []bool
		for i := range all {
			got = append(got, all[i].ep)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s ranks: got expert parallelism %v, want %v", ranks, got, want)
		}
	}
}

// TestPipelineStages: a row states the stages that the arguments of vllm serve have, which its GPUs count.
func TestPipelineStages(t *testing.T) {
	for serve, want := range map[string]int64{"": 0, "--pipeline-parallel-size 2": 2} {
		q := onL4(predict.Load{RateRPS: 1, InputTokens: 100, OutputTokens: 3}, "ttft.p90=10s", 1)
		q.Server.Serve = serve
		r := answered(t, q).Rows[0]
		if r.PP != want || r.GPUs != int64(r.Replicas)*r.TP*r.DP*max(1, want) {
			t.Errorf("%q: got %d stages and %d GPUs of %d replicas, want %d", serve, r.PP, r.GPUs, r.Replicas, want)
		}
	}
}

// TestRefusalsNameTheGPU: a row that is refused has the GPU's full name as the others have, and the one error of a
// question that no server answers keeps its code and hint.
func TestRefusalsNameTheGPU(t *testing.T) {
	q := onL4(predict.Load{RateRPS: 1, InputTokens: 100, OutputTokens: 3}, "ttft.p90=10s", 1, 4)
	q.Server.Model = "meta-llama/Llama-3.3-70B-Instruct" // 141 GB of weights
	q.Hardware = []string{"H100"}
	a, err := q.Answer(t.Context())
	if err != nil || len(a.Rows) != 2 || a.Rows[0].Refused != "" || a.Rows[1].Refused == "" {
		t.Fatalf("got %+v, %v, want 4 GPUs and a refusal of one", a, err)
	}
	for i := range a.Rows {
		if got := a.Rows[i].Hardware; got != "H100-SXM-80GB" {
			t.Errorf("row %d: got %s", i, got)
		}
	}
	q.TP = []int64{1}
	if _, err := q.Answer(t.Context()); trace.CodeOf(err) != deploy.BadHardware || trace.HintOf(err) == "" {
		t.Errorf("no server: got %v with code %q and hint %q", err, trace.CodeOf(err), trace.HintOf(err))
	}
}

// TestContradictoryExpertParallelism: --ep that contradicts the arguments of vllm serve is an error that names both, or a
// refused row where another value does not.
func TestContradictoryExpertParallelism(t *testing.T) {
	q := onL4(predict.Load{RateRPS: 1, InputTokens: 100, OutputTokens: 3}, "ttft.p90=10s", 2)
	q.Server.Model = "Qwen/Qwen3-30B-A3B"
	q.Hardware = []string{"H100"}
	const contradiction = "vllm.enable_expert_parallel: got %t in --vllm and %t beside it"
	for serve, on := range map[string]bool{"--enable-expert-parallel": true, "--no-enable-expert-parallel": false} {
		q.Server.Serve = serve
		q.EP = []bool{!on}
		want := fmt.Sprintf(contradiction, on, !on)
		if _, err := q.Answer(t.Context()); err == nil || !strings.Contains(err.Error(), want) || trace.HintOf(err) != "say it once, in --vllm or as --ep" {
			t.Errorf("%s: got %v with the hint %q, want %s", serve, err, trace.HintOf(err), want)
		}
		q.EP = []bool{on}
		if _, err := q.Answer(t.Context()); err != nil {
			t.Errorf("%s and --ep %t: got %v", serve, on, err)
		}
	}
	q.Server.Serve = "--enable-expert-parallel"
	q.EP = []bool{true, false}
	a, err := q.Answer(t.Context())
	if err != nil || len(a.Rows) != 2 || !strings.Contains(a.Rows[1].Refused, fmt.Sprintf(contradiction, true, false)) {
		t.Errorf("both: got %+v, %v", a, err)
	}
}

// lasting is a context that is cancelled once it was asked so often.
type lasting struct {
	context.Context
	left int
}

func (c *lasting) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestSearchesThatAreCancelled: wherever a search is cancelled, it reports that and no number of servers.
func TestSearchesThatAreCancelled(t *testing.T) {
	with := func(load predict.Load) *candidate { return oneServer(t, onL4(load, "ttft.p90=500ms", 1)) }
	clients := with(predict.Load{Clients: 200, InputTokens: 300, OutputTokens: 3})
	arrivals := with(predict.Load{RateRPS: 60, InputTokens: 300, OutputTokens: 3})
	for _, c := range []struct {
		c     *candidate
		tries []int // how often the search asks; the last answer is the number of servers
		want  int
	}{{clients, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}, 10}, {arrivals, []int{0, 3, 13}, 3}, {with(predict.Load{Workload: everyFortyMs()}), []int{0, 1}, 1}} {
		for i, left := range c.tries {
			n, why, err := c.c.fewest(&lasting{t.Context(), left})
			if isLast := i == len(c.tries)-1; isLast && (n != c.want || why != "" || err != nil) || !isLast && (n != 0 || !errors.Is(err, context.Canceled)) {
				t.Errorf("%+v after %d: got %d, %q, %v", c.c.q.Load, left, n, why, err)
			}
		}
	}
	if clients.highest != 21 || math.Abs(arrivals.highest-26.92) > 0.01 {
		t.Errorf("got %g clients and %g requests/s of a server", clients.highest, arrivals.highest)
	}
	apart := with(predict.Load{RateRPS: 3, InputTokens: 300, OutputTokens: 3})
	for _, left := range []int{0, 8, 11} {
		row := Row{}
		err := apart.pools(&lasting{t.Context(), left}, &row)
		if done := left == 11; done && (err != nil || row.Prefill != 1 || row.Replicas != 2) || !done && (!errors.Is(err, context.Canceled) || row.Refused != "" || row.Replicas > 0) {
			t.Errorf("prefill apart after %d: got %+v, %v", left, row, err)
		}
	}
}
