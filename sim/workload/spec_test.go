package workload

import (
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/tracev2"
)

// testSpec is a specification of two clients.
const testSpec = `version: "2"
seed: 7
category: language
aggregate_rate: 40
num_requests: 4000
clients:
  - id: chat
    tenant_id: a
    slo_class: critical
    rate_fraction: 0.75
    arrival: {process: poisson}
    input_distribution: {type: lognormal, params: {mu: 5, sigma: 0.5, min: 4, max: 2000}}
    output_distribution: {type: exponential, params: {mean: 80, max: 400}}
    prefix_group: system
    prefix_length: 64
    slo_target_us: 500000
  - id: batch
    tenant_id: b
    slo_class: batch
    rate_fraction: 0.25
    arrival: {process: gamma, cv: 0.5}
    input_distribution: {type: gaussian, params: {mean: 300, std_dev: 80, min: 10, max: 600}}
    output_distribution: {type: empirical, params: {"10": 0.5, "50": 0.5}}
    timeout: 60000000
`

func readSpec(t *testing.T, text string) *Workload {
	t.Helper()
	w, g, err := Read([]byte(text), "spec.yaml")
	if err != nil || w != nil {
		t.Fatalf("got %v (%v), want a generator", w, err)
	}
	if w, err = g.Generate(1); err != nil {
		t.Fatal(err)
	}
	return w
}

// clientFigures are counts, rates and mean lengths of the requests of one class.
type clientFigures struct {
	n                    int
	rate, prompt, output float64 // requests/s and tokens
}

func figures(requests []sim.Request, class string) (f clientFigures) {
	for i := range requests {
		if q := &requests[i]; q.SLOClass == class {
			f.n++
			f.prompt += float64(q.PromptTokens)
			f.output += float64(q.OutputTokens)
		}
	}
	f.prompt = f.prompt / float64(f.n)
	f.output = f.output / float64(f.n)
	f.rate = float64(f.n) / float64(requests[len(requests)-1].ArrivalUs) * 1e6
	return f
}

func near(t *testing.T, what string, got, want, relative float64) {
	t.Helper()
	if !(math.Abs(got-want) <= relative*want) {
		t.Errorf("%s: got %g, want %g within %g", what, got, want, relative)
	}
}

// TestSpecV2: counts, rates, lengths, prefixes and limits are those that the specification states.
func TestSpecV2(t *testing.T) {
	w := readSpec(t, testSpec)
	if len(w.Requests) != 4000 || !slices.IsSortedFunc(w.Requests, func(a, b sim.Request) int { return int(a.ArrivalUs - b.ArrivalUs) }) {
		t.Fatalf("got %d requests, want 4000 in order of arrival", len(w.Requests))
	}
	chat := figures(w.Requests, "critical")
	batch := figures(w.Requests, "batch")
	near(t, "rate of chat, 1/s", chat.rate, 30, 0.05)
	near(t, "rate of batch, 1/s", batch.rate, 10, 0.08)
	near(t, "prompt of chat", chat.prompt, 64+math.Exp(5+0.125), 0.05)
	near(t, "output of chat", chat.output, 80*(1-math.Exp(-5)), 0.05)
	near(t, "prompt of batch", batch.prompt, 300, 0.03)
	near(t, "output of batch", batch.output, 30, 0.05)
	for i := range w.Requests {
		q := &w.Requests[i]
		isChat := q.SLOClass == "critical"
		if isChat != (q.Group == 1 && q.GroupTokens == 64) || isChat != (q.SLOTTFTUs == 500000) || isChat == q.AbortAfterUs.OK ||
			q.AbortAfterUs.Or(60e6) != 60e6 {
			t.Fatalf("request %d: got %+v", i, *q)
		}
	}
	same := func(a, b sim.Request) bool { return a.ArrivalUs == b.ArrivalUs && a.PromptTokens == b.PromptTokens }
	if again := readSpec(t, testSpec); !slices.EqualFunc(w.Requests, again.Requests, same) {
		t.Error("the same seed gives other requests")
	}
}

// TestSpecV2Targets: classes have the targets that the specification promises; a client's own
// target holds where its class has none.
func TestSpecV2Targets(t *testing.T) {
	w := readSpec(t, strings.Replace(testSpec, "clients:",
		"goodput_slo_targets: {batch: {ttft_ms: 900, itl_ms: 40.5}, critical: {e2e_ms: 20000}}\nclients:", 1))
	want := map[string][3]int64{"batch": {900_000, 40_500, 0}, "critical": {500_000, 0, 20_000_000}}
	for i := range w.Requests {
		q := &w.Requests[i]
		if got := [3]int64{q.SLOTTFTUs, q.SLOITLUs, q.SLOE2EUs}; got != want[q.SLOClass] {
			t.Fatalf("request %d of class %s: got %v us, want %v", i, q.SLOClass, got, want[q.SLOClass])
		}
	}
}

// TestSpecV2Windows: a client is active in its windows alone, and a Weibull client keeps its rate.
func TestSpecV2Windows(t *testing.T) {
	text := strings.Replace(testSpec, "    timeout: 60000000\n", "    lifecycle: {windows: [{start_us: 10000000, end_us: 20000000}]}\n", 1)
	text = strings.Replace(text, "num_requests: 4000", "horizon: 100000000", 1)
	text = strings.Replace(text, "{process: poisson}", "{process: weibull, cv: 1.5}", 1)
	w := readSpec(t, text)
	n := map[string]int{}
	for i := range w.Requests {
		q := &w.Requests[i]
		n[q.SLOClass]++
		if q.SLOClass == "batch" && (q.ArrivalUs < 10e6 || q.ArrivalUs >= 20e6) || q.ArrivalUs >= 100e6 {
			t.Fatalf("%s at %d us", q.SLOClass, q.ArrivalUs)
		}
	}
	near(t, "chat in 100 s", float64(n["critical"]), 3000, 0.08)
	near(t, "batch in 10 s", float64(n["batch"]), 100, 0.6)
}

// TestSpecV2Concurrency: a client with a concurrency is a closed loop.
func TestSpecV2Concurrency(t *testing.T) {
	w := readSpec(t, `version: "2"
num_requests: 100
clients:
  - {id: x, concurrency: 8, think_time_us: 1000, input_distribution: {type: constant, params: {value: 100}},
     output_distribution: {type: constant, params: {value: 10}}}
`)
	queued := 0
	for i := range w.Requests {
		if w.Requests[i].Queued {
			queued++
		}
	}
	if len(w.Requests) != 100 || queued != 92 {
		t.Errorf("got %d requests, %d of them queued, want 100 and 92", len(w.Requests), queued)
	}
}

// TestSpecV2Refused: what would make another workload is refused by its name.
func TestSpecV2Refused(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"clients:", "cohorts: [{id: x}]\nclients:", "got cohorts, which is not read"},
		{"clients:", "servegen_data: {path: x}\nclients:", "got servegen_data"},
		{"clients:", "inference_perf: {x: 1}\nclients:", "got inference_perf"},
		{"clients:", "goodput_slo_targets: {batch: {itl_ms: -1}}\nclients:", "goodput_slo_targets.batch: got -1 ms, want 0 to"},
		{"clients:", "goodput_slo_targets: {batch: {ttft: 1}}\nclients:", "ttft"},
		{"    timeout:", "    network: {rtt_ms: 1}\n    timeout:", "got clients[1].network"},
		{"    timeout:", "    reasoning: {}\n    timeout:", "got clients[1].reasoning"},
		{"    timeout:", "    multimodal: {}\n    timeout:", "got clients[1].multimodal"},
		{"    timeout:", "    adapter: x\n    timeout:", "got clients[1].adapter"},
		{"    timeout:", "    closed_loop: true\n    timeout:", "got clients[1].closed_loop"},
		{"    timeout:", "    lifecycle: {windows: [{start_us: 0, end_us: 9, trace_rate: 3}]}\n    timeout:", "windows[0].trace_rate"},
		{"type: gaussian,", "type: gaussian, file: x.csv,", "got clients[1].input_distribution.file"},
		{"    timeout:", "    time_out: 3\n    timeout:", "time_out"},
		{`version: "2"`, `version: "1"`, `version: got "1"`}, {"category: language", "category: reasoning", "category: got"},
		{"num_requests: 4000", "num_requests: 0", "want one of them"}, {"aggregate_rate: 40", "aggregate_rate: 0", "rate_fraction: got"},
		{"process: gamma", "process: pareto", "arrival.process: got"}, {"cv: 0.5", "cv: 0", "arrival.cv: got 0"},
		{"type: gaussian", "type: normal", "input_distribution: type: got"}, {"std_dev: 80, ", "", "params.std_dev: missing"},
		{"std_dev: 80", "std_dev: 80, sigma: 3", "params.sigma: got it"}, {`"10": 0.5`, `"ten": 0.5`, `params: got "ten"`},
		{"rate_fraction: 0.25", "concurrency: 4", "concurrency: got it beside other clients"},
	} {
		_, _, err := Read([]byte(strings.Replace(testSpec, c.from, c.to, 1)), "spec.yaml")
		if trace.CodeOf(err) != codeBadWorkload || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %s with %q", c.to, err, codeBadWorkload, c.want)
		}
	}
}

// TestSpecV2BLIS: a blis binary makes as many requests of the specification, at the same rates and lengths.
func TestSpecV2BLIS(t *testing.T) {
	blis := repo.BLIS(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"spec.yaml": testSpec, "defaults.yaml": `{version: "1"}`,
		"hardware.json": `{"H100": {"TFlopsPeak": 989, "BwPeakTBs": 3.35, "mfuPrefill": 0.5, "mfuDecode": 0.5, "MemoryGiB": 80}}`,
		"config.json": `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
 "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
 "hidden_act": "silu", "max_position_embeddings": 131072}`} {
		repo.Write(t, text, dir, name)
	}
	cmd := exec.Command(blis, strings.Fields("run --model x --hardware H100 --tp 1 --latency-model roofline --model-config-folder . "+
		"--hardware-config hardware.json --total-kv-blocks 100000 --workload-spec spec.yaml --horizon 1000000000 --trace-output theirs")...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out[max(0, len(out)-2000):])
	}
	text := repo.Read(t, dir, "theirs.yaml")
	header, err := tracev2.ParseHeader(text, "theirs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rows := repo.Read(t, dir, "theirs.csv")
	theirs, err := ReadTraceV2(rows, "theirs.csv", &header)
	if err != nil {
		t.Fatal(err)
	}
	ours := readSpec(t, testSpec)
	if len(theirs.Requests) != len(ours.Requests) {
		t.Errorf("got %d requests, want %d", len(ours.Requests), len(theirs.Requests))
	}
	for _, class := range []string{"critical", "batch"} {
		a := figures(ours.Requests, class)
		b := figures(theirs.Requests, class)
		t.Logf("%s: ours %+v, theirs %+v", class, a, b)
		near(t, class+" requests", float64(a.n), float64(b.n), 0.1)
		near(t, class+" rate", a.rate, b.rate, 0.1) // four standard errors
		near(t, class+" prompt", a.prompt, b.prompt, 0.05)
		near(t, class+" output", a.output, b.output, 0.08)
	}
}

// TestTraceV2PrefixGroups: prompts are the group's prefix and the request's own
// tokens, a mean of 809 and not of 297.
func TestTraceV2PrefixGroups(t *testing.T) {
	var csv strings.Builder
	csv.WriteString("request_id,prefix_group,prefix_length,input_tokens,output_tokens,arrival_time_us\n")
	for i := range 200 {
		fmt.Fprintf(&csv, "%d,g%d,512,%d,5,%d\n", i, i%3, 297-100+2*(i%101), i*1000)
	}
	fmt.Fprintf(&csv, "200,,512,297,5,200000\n") // without a group nothing is shared
	w := load(t, csv.String())
	var sum int64
	for _, r := range w.Requests[:200] {
		sum += r.PromptTokens
		if r.GroupTokens != 512 || r.Group == 0 {
			t.Fatalf("got %+v, want a group that shares 512 tokens", r)
		}
	}
	if mean := float64(sum) / 200; mean < 805 || mean > 813 {
		t.Errorf("got prompts of %.0f tokens, want 809", mean)
	}
	if r := w.Requests[200]; r.PromptTokens != 297 || r.Group != 0 {
		t.Errorf("got %+v, want 297 tokens of its own", r)
	}
}

// TestTraceV2Sessions: rounds that accumulate share what was said before, and
// the group's prefix with other sessions.
func TestTraceV2Sessions(t *testing.T) {
	const rows = "request_id,session_id,round_index,prefix_group,prefix_length,input_tokens,output_tokens,arrival_time_us\n" +
		"0,a,0,sys,64,100,16,0\n1,b,0,sys,64,100,16,0\n2,a,1,sys,64,40,16,9\n3,a,2,,0,40,16,20\n"
	w := load(t, "trace_version: 2\nsession_context_growth: accumulate\n"+rows)
	want := []int64{164, 164, 220, 276}
	for i, r := range w.Requests {
		if r.PromptTokens != want[i] {
			t.Errorf("request %d: got %d prompt tokens, want %d", i, r.PromptTokens, want[i])
		}
	}
	for _, c := range []struct {
		a, b   int
		shared int64 // tokens
	}{{0, 1, 64}, {0, 2, 160}, {2, 3, 208}} {
		if got := shared(&w.Requests[c.a], &w.Requests[c.b]); got != c.shared {
			t.Errorf("requests %d and %d share %d tokens, want %d", c.a, c.b, got, c.shared)
		}
	}
	if plain := load(t, rows); plain.Requests[3].PromptTokens != 40 || plain.Requests[2].PromptTokens != 104 {
		t.Errorf("got %d and %d prompt tokens of independent rounds", plain.Requests[2].PromptTokens, plain.Requests[3].PromptTokens)
	}
	if _, _, err := Read([]byte("trace_version: 9\n"+rows), "w"); err == nil || !strings.Contains(err.Error(), "trace_version: got 9") {
		t.Errorf("got %v of an unknown version", err)
	}
	if _, _, err := Read([]byte("trace_version: 2\n"), "w"); err == nil || !strings.Contains(err.Error(), "name the CSV file") {
		t.Errorf("got %v of a header alone", err)
	}
}

// shared is how many leading tokens two requests have in common, in blocks of 16.
func shared(a, b *sim.Request) (tokens int64) {
	const block = 16
	content := func(r *sim.Request, own uint64) sim.Content {
		return sim.Content{
			PromptTokens: r.PromptTokens, Group: r.Group, GroupTokens: r.GroupTokens, Hashes: r.Hashes, HashTokens: r.HashTokens, Own: own,
		}
	}
	x, y := content(a, 1), content(b, 2)
	for n := int64(0); ; n++ {
		h, own := x.Block(n, block)
		if g, _ := y.Block(n, block); own || h != g {
			return n * block
		}
	}
}
