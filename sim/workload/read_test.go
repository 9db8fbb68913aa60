package workload

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/sim"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

func load(t *testing.T, text string) *Workload {
	t.Helper()
	w, _, err := Read([]byte(text), "w")
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// The public formats, field by field.
func TestFormats(t *testing.T) {
	m := load(t, `{"timestamp": 27, "input_length": 600, "output_length": 5, "hash_ids": [7, 9]}`+"\n")
	if q := m.Requests[0]; q.ArrivalUs != 27000 || q.PromptTokens != 600 || q.OutputTokens != 5 || len(q.Hashes) != 2 || q.HashTokens != 512 {
		t.Errorf("mooncake: %+v", q)
	}
	a := load(t, "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,300,10\r\n2023-11-16 18:17:04.0319600,200,0\r\n")
	if q := a.Requests[1]; q.ArrivalUs != 52000 || q.PromptTokens != 200 || q.OutputTokens != 1 {
		t.Errorf("azure: %+v", q)
	}
	v := load(t, "request_id,slo_class,prefix_group,prefix_length,input_tokens,output_tokens,deadline_us,server_input_tokens,"+
		"arrival_time_us,send_time_us,vllm_priority\n"+
		"0,chat,sys,64,100,5,9000,104,10,30,2\n1,,,,50,6,0,0,40,0,0\n")
	if q := v.Requests[0]; q.ArrivalUs != 30 || q.PromptTokens != 104 || q.Group != 1 || q.GroupTokens != 64 ||
		q.AbortAtUs.V != 9000 || q.AbortKind != sim.OutcomeTimedOut || q.Priority != 2 || q.SLOClass != "chat" {
		t.Errorf("tracev2: %+v", q)
	}
	if q := v.Requests[1]; q.ArrivalUs != 40 || q.PromptTokens != 50 || q.AbortAtUs.OK {
		t.Errorf("tracev2: %+v", q)
	}
}

// Errors name file and line, and of a CSV file the column.
func TestBadWorkloads(t *testing.T) {
	for text, want := range map[string]string{
		"": "empty file",
		"{\"timestamp\": 0, \"input_length\": 0, \"output_length\": 1}\n": "w:1: mooncake request",
		"{\"timestamp\": 0,\n":                                                                                 "w:1: ",
		"TIMESTAMP,ContextTokens\n":                                                                            `no column "GeneratedTokens"`,
		"TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,1\n":                                                  "w:2:1: TIMESTAMP",
		"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:04,7,-1\n":                                  `w:2:23: GeneratedTokens: got "-1" tokens, want >= 0`,
		"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:04,7\n":                                     `w:2:21: GeneratedTokens: got "" tokens, want >= 0`,
		"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:04,7,\"1\n":                                 `w:2:26: row: got extraneous or missing " in quoted-field, want CSV`,
		"arrival,prompt,output\n0,1,1\n\"1\", 4x,1\n":                                                          `w:3:5: prompt: got "4x", want a whole number of at least 1`,
		"arrival,prompt,output,prompt\n0,1,1,2\n":                                                              `w:1:23: header: got column "prompt" twice, want it once`,
		"arrival,prompt,output\n0,1,1\n0,1,000,1\n":                                                            `w:3:9: row: got 4 fields, want the 3 of the header`,
		"arrival,prompt,output\n-1,1,1\n":                                                                      `w:2:1: arrival: got "-1", want seconds of at least 0`,
		"prompt,sent_at,output\n1,1,1\n":                                                                       `w:1:8: columns: got "sent_at" and no arrival`,
		"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:04,1,1\n2023-11-16 18:17:03,1,1\n":          "w:3:1: TIMESTAMP",
		"request_id,input_tokens,output_tokens,arrival_time_us\n0,x,1,1\n":                                     "w:2: input_tokens",
		"requests: 3\nspeed: 1\n":                                                                              "speed",
		"requests: 0\n":                                                                                        "want >= 1",
		"requests: 1\narrivals: {kind: uniform}\n":                                                             `w:2:18: arrivals.kind: got "uniform", want`,
		"requests: 1\narrivals:\n  kind: poisson\nprompt: {kind: constant, value: 3}\n":                        "w:3:3: arrivals.rate_rps: got 0, want > 0",
		"arrivals: {kind: poisson}\nstages:\n- {requests: 5, rate_rps: 1}\n- {requests: -1, rate_rps: 2}\n":    "w:4:3: stages[1]: got -1 requests",
		"arrivals: {kind: poisson}\nrequests: -1\n":                                                            "w:2:11: requests, max_tokens: got -1 and 0",
		"requests: 1\narrivals: {kind: never}\n":                                                               "arrivals.kind",
		"requests: 1\narrivals: {kind: poisson}\n":                                                             "arrivals",
		"requests: 1\narrivals: {kind: constant, rate_rps: 1}\nprompt: {kind: uniform, min: 5, max: 2}\n":      "prompt",
		"requests: 1\narrivals: {kind: constant, rate_rps: 1}\nprompt: {kind: constant, value: 3}\noutput: {}": "output.kind",
	} {
		_, _, err := Read([]byte(text), "w")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// Generated arrivals have their rate and spread, lengths their mean, and the
// same seed gives the same requests.
func TestGeneratorStatistics(t *testing.T) {
	for _, a := range []struct {
		spec ArrivalSpec
		cv   float64
	}{
		{ArrivalSpec{Kind: "constant", RateRPS: 10}, 0},
		{ArrivalSpec{Kind: "poisson", RateRPS: 10}, 1},
		{ArrivalSpec{Kind: "gamma", RateRPS: 10, CV: 2}, 2},
		{ArrivalSpec{Kind: "gamma", RateRPS: 10, CV: 0.5}, 0.5},
	} {
		g := Generator{Requests: 20000, Arrivals: a.spec, Prompt: LengthSpec{Kind: "lognormal", Mean: 300, Sigma: 0.8},
			Output: LengthSpec{Kind: "empirical", Values: []int64{10, 30}}}
		w, err := g.Generate(9)
		if err != nil {
			t.Fatal(err)
		}
		again, err := g.Generate(9)
		if err != nil {
			t.Fatal(err)
		}
		var gaps, squares, prompt, output float64
		n := float64(len(w.Requests))
		for i := range w.Requests {
			if w.Requests[i].ArrivalUs != again.Requests[i].ArrivalUs || w.Requests[i].PromptTokens != again.Requests[i].PromptTokens {
				t.Fatal("two draws of one seed differ")
			}
			prompt += float64(w.Requests[i].PromptTokens) / n
			output += float64(w.Requests[i].OutputTokens) / n
			if i > 0 {
				gap := float64(w.Requests[i].ArrivalUs-w.Requests[i-1].ArrivalUs) / 1e6
				gaps, squares = gaps+gap/n, squares+gap*gap/n
			}
		}
		cv := math.Sqrt(max(0, squares-gaps*gaps)) / gaps
		if math.Abs(gaps-0.1) > 0.01 || math.Abs(cv-a.cv) > 0.1*max(0.2, a.cv) || math.Abs(prompt-300) > 8 || math.Abs(output-20) > 0.3 {
			t.Errorf("%+v: mean gap %.4f s, cv %.3f, prompt %.1f, output %.2f", a.spec, gaps, cv, prompt, output)
		}
	}
	bursts := Generator{Requests: 6, Arrivals: ArrivalSpec{Kind: "bursts", Burst: 3, EveryS: 2},
		Prompt: LengthSpec{Kind: "constant", Value: 1}, Output: LengthSpec{Kind: "constant", Value: 1}}
	w, _ := bursts.Generate(1)
	if w.Requests[2].ArrivalUs != 0 || w.Requests[3].ArrivalUs != 2_000_000 {
		t.Errorf("bursts: %+v", w.Requests)
	}
	closed := bursts
	closed.Arrivals = ArrivalSpec{Kind: "closed", Clients: 2, ThinkMs: 5}
	w, _ = closed.Generate(1)
	if w.Requests[1].Queued || !w.Requests[2].Queued || w.Requests[5].Loop != 1 || w.Requests[5].ThinkUs != 5000 {
		t.Errorf("closed: %+v", w.Requests[5])
	}
}

func FuzzRead(f *testing.F) {
	f.Add("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,300,10\n")
	f.Add(`{"timestamp": 27, "input_length": 600, "output_length": 5, "hash_ids": [7, 9]}`)
	f.Add("request_id,input_tokens,output_tokens,arrival_time_us\n0,1,1,1\n")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "requests") {
			return // a generator may ask for any number of requests
		}
		w, _, err := Read([]byte(text), "w")
		if err == nil && len(w.Requests) == 0 {
			t.Error("no error and no request")
		}
	})
}

// Stages are stretches at a rate each, one after another.
func TestGeneratorStages(t *testing.T) {
	const text = "arrivals: {kind: constant}\nstages: [{requests: 3, rate_rps: 1}, {requests: 2, rate_rps: 4}]\n" +
		"prompt: {kind: constant, value: 5}\noutput: {kind: constant, value: 2}\n"
	g, err := loadGenerator(strings.NewReader(text), "load.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w, err := g.Generate(1)
	if err != nil {
		t.Fatal(err)
	}
	var at []int64
	for _, q := range w.Requests {
		at = append(at, q.ArrivalUs)
	}
	if want := []int64{0, 1_000_000, 2_000_000, 2_250_000, 2_500_000}; !slices.Equal(at, want) {
		t.Errorf("got arrivals %v, want %v", at, want)
	}
	for _, bad := range []string{"requests: 3\n" + text, strings.Replace(text, "constant}", "closed, clients: 2}", 1),
		strings.Replace(text, "rate_rps: 4", "rate_rps: 0", 1)} {
		if _, err := loadGenerator(strings.NewReader(bad), "load.yaml"); err == nil || !strings.Contains(err.Error(), "stages") || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want an error about stages for %q", err, bad)
		}
	}
}

// Times that no clock reaches are refused as such, on every processor alike: they
// became negative numbers, or on others large ones.
func TestTimesBeyondTheClockAreRefused(t *testing.T) {
	for v, want := range map[float64]int64{
		0: 0, 1.4: 1, 1.5: 2, 1e300: sim.LatestUs + 1, math.Inf(1): sim.LatestUs + 1, -1e300: -1, math.Inf(-1): -1, -0.2: 0} {
		if got := sim.ToUs(v); got != want {
			t.Errorf("%g us: got %d, want %d", v, got, want)
		}
	}
	if got := sim.ToUs(math.NaN()); got != sim.LatestUs+1 {
		t.Errorf("NaN: got %d", got)
	}
	for text, want := range map[string]string{
		"requests: 3\narrivals: {kind: poisson, rate_rps: 1e-300}\nprompt: {kind: uniform, min: 5, max: 9}\noutput: {kind: uniform, min: 1, " +
			"max: 2}\n": "beyond 10000000000000000 us",
		"requests: 3\narrivals: {kind: closed, clients: 2, think_ms: 1e300}\nprompt: {kind: uniform, min: 5, max: 9}\noutput: {kind: uniform, " +
			"min: 1, max: 2}\n": "at most 1e16 us",
		`{"timestamp": 1e300, "input_length": 5, "output_length": 5, "hash_ids": []}`: "beyond 10000000000000000 us",
	} {
		w, g, err := Read([]byte(text), "w")
		if err == nil && g != nil {
			w, err = g.Generate(1)
		}
		if err == nil {
			_, err = sim.Run(sim.Config{}, w.Requests, nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: got %v, want %s", text, err, want)
		}
	}
}

// A key that the kind has no use for is a mistake: nothing of a workload is ignored.
func TestKeysOfOtherKindsAreRefused(t *testing.T) {
	const rest = "output: {kind: constant, value: 20}\n"
	const poisson, fixed = "arrivals: {kind: poisson, rate_rps: 5}\n", "prompt: {kind: constant, value: 5}\n"
	for text, want := range map[string]string{
		"arrivals: {kind: poisson, rate_rps: 5, burst: 3}\n" + fixed:         "arrivals.burst: got it with kind poisson",
		"arrivals: {kind: closed, clients: 5, rate_rps: 3}\n" + fixed:        "arrivals.rate_rps: got it with kind closed",
		poisson + "prompt: {kind: constant, value: 5, sigma: 1}\n":           "prompt.sigma: got it with kind constant",
		poisson + "prompt: {kind: uniform, min: 1, max: 5, values: [2]}\n":   "prompt.values: got it with kind uniform",
		poisson + fixed + "prefix: {groups: 3}\n":                            "prefix: got 3 groups of 0 tokens at share 0",
		poisson + fixed + "classes: [{name: a, share: 1, ttft_ms: 1e300}]\n": `class "a": got share 1, targets 1e+300 and 0 ms`,
		poisson + fixed + "classes: [{name: a, share: 1, ttft_ms: 1e-4}]\n":  `class "a": got share 1, targets 0.0001 and 0 ms`,
	} {
		if _, _, err := Read([]byte("requests: 3\n"+text+rest), "w"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// TestOfClients: requests that clients alone recorded are a workload: they arrive when they were sent.
func TestOfClients(t *testing.T) {
	run := &trace.Run{ID: "clients", Observed: []trace.ObservedRequest{
		{ID: "a", SendNs: trace.Some(int64(5e9)), PromptTokens: trace.Some(int64(100)), OutputTokens: trace.Some(int64(10)), Success: trace.Some(true)},
		{ID: "b", SendNs: trace.Some(int64(6e9)), PromptTokens: trace.Some(int64(50)), OutputTokens: trace.Some(int64(5)), Success: trace.Some(true)},
		{ID: "failed", SendNs: trace.Some(int64(7e9)), PromptTokens: trace.Some(int64(50)), Success: trace.Some(false)},
		{ID: "no start", PromptTokens: trace.Some(int64(50)), OutputTokens: trace.Some(int64(5)), Success: trace.Some(true)},
	}}
	w, err := FromRun(OfClients(run), &deploy.Deployment{}, RunOptions{})
	if err != nil || len(w.Requests) != 2 || w.Requests[1].ArrivalUs != 1_000_000 || w.Requests[0].PromptTokens != 100 || w.Requests[1].OutputTokens != 5 {
		t.Errorf("got %+v, %v, want a and b a second apart", w, err)
	}
	for i := range run.Observed { // answers that nobody counted
		run.Observed[i].OutputTokens = trace.Opt[int64]{}
		run.Observed[i].AskedTokens = trace.Some(int64(12))
	}
	run.Observed[0].Chunks = trace.Some(int64(9))
	w, err = FromRun(OfClients(run), &deploy.Deployment{}, RunOptions{})
	if err != nil || len(w.Requests) != 2 || w.Requests[0].OutputTokens != 9 || w.Requests[1].OutputTokens != 12 {
		t.Errorf("uncounted: got %+v, %v, want 9 chunks and 12 tokens that were asked for", w, err)
	}
}

// TestTablesAsTheyAreWritten: headers in quotes, zones in Azure's times of 2024, and a column of text named as the
// tokens are.
func TestTablesAsTheyAreWritten(t *testing.T) {
	for name, text := range map[string]string{
		"azure 2024": "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,300,10\n2024-05-10 00:00:02+00:00,200,8\n",
		"quotes":     "\"TIMESTAMP\",\"ContextTokens\",\"GeneratedTokens\"\n\"2023-11-16 18:17:03.0099300\",300,10\n\"2023-11-16 18:17:05\",\"200\",8\n",
		"text":       "\"arrival\",\"prompt\",\"prompt_tokens\",\"output_tokens\"\n0.009930,\"a, b\",300,10\n2,c,200,8\n",
	} {
		w := load(t, text)
		if q := w.Requests[1]; len(w.Requests) != 2 || q.ArrivalUs != 1990070 || q.PromptTokens != 200 || q.OutputTokens != 8 {
			t.Errorf("%s: got %+v", name, q)
		}
	}
}

// TestArrivalsAreNotGuessed: times of arrival that are not read are refused, not taken for requests that all come at
// once, and a table with other columns than Azure's is not read as one.
func TestArrivalsAreNotGuessed(t *testing.T) {
	const lengths = "prompt_tokens,output_tokens\n0,100,10\n500,100,10\n"
	for text, want := range map[string]string{
		"arrival_ms," + lengths:          `columns: got "arrival_ms" and no arrival`,
		"timestamp," + lengths:           `columns: got "timestamp" and no arrival`,
		"Start Time," + lengths:          `columns: got "Start Time" and no arrival`,
		"TIMESTAMP," + lengths:           `columns: got "TIMESTAMP" and no arrival`,
		"Timestamp,Model,Request\n":      "columns: got Timestamp,Model,Request, want prompt and output",
		"arrival;prompt;output\n0;9;9\n": "columns: got arrival;prompt;output, want prompt and output",
		"{\"timestamp\": 5, \"input_length\": 9, \"output_length\": 1}\n{\"input_length\": 9, \"output_length\": 1}\n": "w:2: timestamp: got 1 of 2 requests with one, want all or none",
		"{\"input_length\": 9, \"output_length\": 1}\n{\"timestamp\": 5, \"input_length\": 9, \"output_length\": 1}\n": "w:2: timestamp: got 1 of 2 requests with one, want all or none",
	} {
		if _, _, err := Read([]byte(text), "w"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
	for _, columns := range []string{"turn", "steps", "ttft_ms", "e2e_time_s", "latency"} { // no times of arrival
		if w := load(t, columns+","+lengths); len(w.Requests) != 2 {
			t.Errorf("%s: got %d requests, want 2", columns, len(w.Requests))
		}
	}
}

// TestPartOfTraceV2: rows of a clock that began long before begin at 0, with their deadlines; others, and stamps of the
// wall clock, keep their times.
func TestPartOfTraceV2(t *testing.T) {
	for first, want := range map[int64]int64{1_800_000_000: 0, 900_000: 900_000, 1_800_000_000_000_000: 1_800_000_000_000_000} {
		text := "request_id,input_tokens,output_tokens,deadline_us,arrival_time_us,send_time_us\n"
		for i := range int64(4) {
			text += fmt.Sprintf("%d,100,5,%d,%d,0\n", i, first+500_000*i+9000, first+500_000*i)
		}
		w := load(t, text)
		for i, q := range w.Requests {
			if at := want + 500_000*int64(i); q.ArrivalUs != at || q.AbortAtUs.V != at+9000 {
				t.Errorf("first at %d us: request %d: got %d and %d us", first, i, q.ArrivalUs, q.AbortAtUs.V)
			}
		}
	}
}

// TestPartOfMooncake: the last lines of a trace begin at 0, those of a whole one keep their times.
func TestPartOfMooncake(t *testing.T) {
	for first, want := range map[int]int64{1_800_000: 0, 900: 900_000} {
		var text strings.Builder
		for i := range 4 {
			fmt.Fprintf(&text, `{"timestamp": %d, "input_length": 600, "output_length": 5, "hash_ids": [7, %d]}`+"\n", first+500*i, i)
		}
		w := load(t, text.String())
		if got, last := w.Requests[0].ArrivalUs, w.Requests[3].ArrivalUs; got != want || last != want+1_500_000 {
			t.Errorf("first at %d ms: got %d and %d us", first, got, last)
		}
	}
}

// TestHashesOfOtherBlocks: more hash ids than a prompt has blocks stand for smaller blocks than are counted.
func TestHashesOfOtherBlocks(t *testing.T) {
	for text, want := range map[string]string{
		`{"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [1, 2, 3]}`:     "w:1: hash_ids: got 3 for a prompt of 1024 tokens, want at most 2",
		`{"block_size": 64, "requests": [{"t": 0, "in": 65, "out": 5, "hash_ids": [1, 2, 3]}]}`: "w:1: request 1: hash_ids: got 3 for a prompt of 65 tokens, want at most 2",
	} {
		if _, _, err := Read([]byte(text), "w"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	load(t, `{"timestamp": 0, "input_length": 1025, "output_length": 5, "hash_ids": [1, 2, 3]}`)
}

// TestMaxTokensEndOutputs: an output ends at the max_tokens of its request, as in vLLM.
func TestMaxTokensEndOutputs(t *testing.T) {
	_, g, err := Read([]byte("requests: 40\narrivals: {kind: constant, rate_rps: 1}\nprompt: {kind: constant, value: 9}\n"+
		"output: {kind: uniform, min: 10, max: 20}\nmax_tokens: 15\n"), "w")
	if err != nil {
		t.Fatal(err)
	}
	w, err := g.Generate(1)
	if err != nil {
		t.Fatal(err)
	}
	atLimit := 0
	for _, q := range w.Requests {
		if q.OutputTokens > 15 || q.MaxTokens != 15 {
			t.Errorf("request %s: got %d tokens of at most %d, want at most 15", q.ID, q.OutputTokens, q.MaxTokens)
		}
		if q.OutputTokens == 15 {
			atLimit++
		}
	}
	if atLimit < 10 || atLimit == len(w.Requests) { // 6 of 11 lengths
		t.Errorf("got %d of 40 outputs at the limit", atLimit)
	}
}
