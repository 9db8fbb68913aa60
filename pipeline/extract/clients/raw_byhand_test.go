package clients

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// TestMessagesOfAnAnswer: chunks are what has text, reasoning too; the last usage and the last metrics count.
func TestMessagesOfAnAnswer(t *testing.T) {
	data := func(atNs int64, values ...string) string {
		var packets []string
		for _, v := range values {
			text, _ := json.Marshal(v)
			packets = append(packets, fmt.Sprintf(`{"name":"data","value":%s}`, text))
		}
		return fmt.Sprintf(`{"perf_ns":%d,"packets":[%s]}`, atNs, strings.Join(packets, ","))
	}
	messages := func(list ...string) (m aiperfMessages) {
		if err := json.Unmarshal([]byte("["+strings.Join(list, ",")+"]"), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	whole := messages(
		data(1_000_000, `{"choices":[{"delta":{"role":"assistant"}}]}`),
		data(2_000_000, `{"choices":[{"delta":{"reasoning":"hm"}}],"usage":{"prompt_tokens":1}}`),
		data(3_500_000, `{"choices":[{"delta":{"reasoning_content":"hm"}}]}`),
		data(5_500_000, `{"choices":[{"delta":{"content":"a"}}]}`, `no JSON`),
		data(8_500_000, `{"choices":[{"text":"b"}]}`),
		data(9_500_000, `{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":16},"completion_tokens_details":{"reasoning_tokens":2}},"metrics":{"queue_time_ms":7,"time_to_first_token_ms":8,"generation_time_ms":9}}`, `[DONE]`),
	)
	start := some[int64](500_000)
	r := trace.ObservedRequest{SendWallNs: some[int64](100e9)}
	whole.applyTo(&r, start)
	if r.PromptTokens.V != 30 || r.OutputTokens.V != 5 || r.CachedTokens.V != 16 || r.Reasoning.V != 2 || r.QueueUs != some(7000.) || r.ServerTTFTUs != some(8000.) || r.ServerGenUs != some(9000.) || !r.Streaming.V {
		t.Errorf("got %+v", r)
	}
	if r.Chunks.V != 4 || !slices.Equal(r.ChunkGapsUs, []float64{1500, 2000, 3000}) || r.VisibleUs != some(5000.) || r.TTFTUs != some(1500.) || r.E2EUs != some(8000.) || r.SendNs.V != 100e9 || r.FirstChunkNs.V != 100e9+1_500_000 || r.LastChunkNs.V != 100e9+8e6 {
		t.Errorf("got %+v", r)
	}
	// Without a start only the counts are known; without chunks nothing was streamed.
	r = trace.ObservedRequest{SendWallNs: some[int64](100e9)}
	if whole.applyTo(&r, trace.Opt[int64]{}); r.TTFTUs.OK || r.Chunks.OK || !r.Streaming.V || r.OutputTokens.V != 5 || r.SendNs.V != 100e9 {
		t.Errorf("no start: got %+v", r)
	}
	r = trace.ObservedRequest{SendWallNs: some[int64](100e9)}
	if messages(data(1, `{"usage":{"completion_tokens":5}}`)).applyTo(&r, start); r.Streaming != some(false) || r.TTFTUs.OK || r.OutputTokens.V != 5 || r.VisibleUs.OK {
		t.Errorf("no chunk: got %+v", r)
	}
	r = trace.ObservedRequest{}
	if messages(data(2_500_000, `{"choices":[{"delta":{"reasoning":"hm"}}]}`)).applyTo(&r, start); r.VisibleUs.OK || r.Chunks.V != 1 || r.TTFTUs != some(2000.) || len(r.ChunkGapsUs) != 0 {
		t.Errorf("reasoning alone: got %+v", r)
	}
	// A mean time between tokens gives the time of all; one token has none.
	for tokens, want := range map[int64]trace.Opt[float64]{5: some(4 * 2500.), 2: some(2500.), 1: {}} {
		r := trace.ObservedRequest{OutputTokens: some(tokens)}
		m := &serverMetrics{MeanITL: some(2.5)}
		if m.applyTo(&r); r.ServerGenUs != want {
			t.Errorf("%d tokens: got %+v, want %+v", tokens, r.ServerGenUs, want)
		}
	}
}

// TestRawAndExportAreOne: the two records of a request are joined where id and time are those of each other.
func TestRawAndExportAreOne(t *testing.T) {
	export := func(id string, atNs int64) trace.ObservedRequest {
		return trace.ObservedRequest{ID: id, Source: sourceAIPerf, SendWallNs: some(atNs), PromptTokens: some[int64](10), OutputTokens: some[int64](20), E2EUs: some(5.), VisibleUs: some(1.)}
	}
	raw := func(id string, atNs int64) trace.ObservedRequest {
		return trace.ObservedRequest{ID: id, Source: sourceAIPerf, SendWallNs: some(atNs), Status: some[int64](200), PromptTokens: some[int64](11), CachedTokens: some[int64](4), Reasoning: some[int64](3), VisibleUs: some(2.), QueueUs: some(6.), ServerTTFTUs: some(7.), ServerGenUs: some(8.)}
	}
	c := &Reader{Acc: source.NewAccount(nil), Requests: []trace.ObservedRequest{export("a", 1), export("b", 2), raw("a", 1), raw("b", 99), raw("c", 3), raw("a", 1)}}
	c.Requests[5].Source = "other"
	c.requestFiles = []requestFile{{name: "export", from: 0, to: 2}, {name: "raw", from: 2, to: 3}, {name: "rest", from: 3, to: 6}, {name: "empty", from: 6, to: 6}}
	c.Loads = []Load{{Name: "1", file: "export"}, {Name: "2", file: "raw"}, {Name: "3", file: "rest"}, {Name: "4", file: "empty"}}
	c.joinRaw()
	if len(c.Requests) != 5 || c.Requests[2].ID != "b" || len(c.Findings) != 1 || !strings.HasPrefix(c.Findings[0].Message, "1 requests are in AIPerf's export and in its raw export") {
		t.Fatalf("got %+v, %v", c.Requests, c.Findings)
	}
	want := export("a", 1)
	want.Status, want.PromptTokens, want.CachedTokens, want.Reasoning, want.QueueUs, want.ServerTTFTUs, want.ServerGenUs = some[int64](200), some[int64](11), some[int64](4), some[int64](3), some(6.), some(7.), some(8.)
	if got := c.Requests[0]; got.Status != want.Status || got.PromptTokens != want.PromptTokens || got.OutputTokens != want.OutputTokens || got.CachedTokens != want.CachedTokens || got.Reasoning != want.Reasoning || got.VisibleUs != want.VisibleUs || got.QueueUs != want.QueueUs || got.ServerTTFTUs != want.ServerTTFTUs || got.ServerGenUs != want.ServerGenUs || got.E2EUs != want.E2EUs {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := c.Requests[1]; got.Status.OK || got.QueueUs.OK {
		t.Errorf("of another time: got %+v", got)
	}
	var loads []string
	for _, l := range c.Loads {
		loads = append(loads, l.file)
	}
	if !slices.Equal(loads, []string{"export", "rest", "empty"}) || c.requestFiles[1] != (requestFile{name: "raw", from: 2, to: 2}) || c.requestFiles[2] != (requestFile{name: "rest", from: 2, to: 5}) {
		t.Errorf("got loads of %v, files %+v", loads, c.requestFiles)
	}
	alone := &Reader{Acc: source.NewAccount(nil), Requests: []trace.ObservedRequest{export("a", 1), export("b", 2)}}
	if alone.joinRaw(); len(alone.Requests) != 2 || len(alone.Findings) != 0 {
		t.Errorf("got %+v", alone)
	}
}

// TestNamesOfLoads: names of strategies, of loads that have one already, and of the traces of chunk files.
func TestNamesOfLoads(t *testing.T) {
	for want, c := range map[string]struct {
		rate    float64
		streams int64
	}{"k@2.5": {2.5, 0}, "k@1.235": {1.23456, 7}, "k@7": {0, 7}, "k": {0, 0}} {
		if got := strategyName("k", c.rate, c.streams); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	c := &Reader{}
	for _, want := range []string{"a", "a.2", "a.3"} {
		got := c.unusedLoad("a")
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		c.Loads = append(c.Loads, Load{Name: got})
	}
	for strategy, want := range map[string]bool{"throughput": true, "concurrent@8": true, "synchronous": false, "constant@2": false} {
		if got := (&Level{Strategy: strategy}).Closed(); got != want {
			t.Errorf("%s: got closed %v", strategy, got)
		}
	}
	// Two traces with the same ids: chunks are of the trace of the same stem.
	row := func(id string) trace.ObservedRequest {
		return trace.ObservedRequest{ID: id, Source: sourceTraceV2, SendNs: some[int64](0)}
	}
	c = &Reader{Acc: source.NewAccount(nil), Requests: []trace.ObservedRequest{row("1"), row("1"), row("2"), {ID: "1", Source: "other"}}}
	c.traceFiles = []traceFile{{stem: "one", from: 0, to: 1}, {stem: "two", from: 1, to: 3}}
	for i, want := range []string{"one", "two", "two", ""} {
		if got := c.traceStemOf(i); got != want {
			t.Errorf("request %d: got %q, want %q", i, got, want)
		}
	}
	c.chunkSets = []chunkSet{{file: "two.itl.csv", chunks: map[string][]chunk{"1": {{2, 40_000}, {0, 10_000}, {1, 20_000}}, "9": {{0, 1}, {1, 2}}}}}
	c.joinChunks()
	if c.Requests[0].Chunks.OK || c.Requests[1].Chunks.V != 3 || !slices.Equal(c.Requests[1].ChunkGapsUs, []float64{10, 20}) || c.Requests[1].TTFTUs != some(10.) || c.Requests[1].E2EUs != some(40.) || c.Requests[3].Chunks.OK || c.Acc.Read != 5 || c.Acc.Kept != 3 || c.Acc.Dropped[CodeClientFile] != 2 {
		t.Errorf("got %+v, %+v", c.Requests, c.Acc)
	}
	for status, want := range map[int64]bool{0: true, 199: false, 200: true, 299: true, 300: false} {
		j := clientJSON{}
		if status > 0 {
			j.Status = some(status)
		}
		if got := j.clientRequest(); got.Success.V != want {
			t.Errorf("status %d: got success %v", status, got.Success)
		}
	}
	for text, v := range map[string]any{"x": "x", "1.5": 1.5, "7": float64(7), `{"a":1}`: map[string]any{"a": 1}} {
		if got := optText(v); !got.OK || got.V != text {
			t.Errorf("%v: got %+v, want %q", v, got, text)
		}
	}
	if optText(nil).OK {
		t.Error("null: got a text")
	}
}

// TestDataSetsByHand: which synthetic prompts share how many tokens.
func TestDataSetsByHand(t *testing.T) {
	for name, c := range map[string]struct {
		doc  string
		n    int
		want dataset
	}{
		"random":              {`{"dataset_name":"random","random_prefix_len":12}`, 1, dataset{isStated: true, prefix: 12}},
		"random, none":        {`{"dataset_name":"random-ids"}`, 1, dataset{isStated: true, prefix: 0}},
		"random, negative":    {`{"dataset_name":"random","random_prefix_len":-1}`, 1, dataset{isStated: true, prefix: 0}},
		"sonnet":              {`{"dataset_name":"sonnet"}`, 1, dataset{isStated: true, prefix: sonnetPrefixLen}},
		"repeated often":      {`{"dataset_name":"prefix_repetition","prefix_repetition_num_prefixes":2,"prefix_repetition_prefix_len":9}`, 40, dataset{isStated: true, prefix: 9}},
		"repeated less":       {`{"dataset_name":"prefix_repetition","prefix_repetition_num_prefixes":2,"prefix_repetition_prefix_len":9}`, 39, dataset{}},
		"repeated by default": {`{"dataset_name":"prefix_repetition"}`, 1 << 20, dataset{isStated: true, prefix: repetitionPrefixLen}},
		"real":                {`{"dataset_name":"sharegpt"}`, 1, dataset{}},
	} {
		var doc map[string]any
		if err := json.Unmarshal([]byte(c.doc), &doc); err != nil {
			t.Fatal(err)
		}
		if got := benchDataset(doc, c.n); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
	for input, want := range map[string]dataset{
		`{"prompt":{"input_tokens":{"mean":100}}}`: {isStated: true, prefix: 0}, `{"prompt":{}}`: {}, `{"prompt":{"input_tokens":{"mean":100}},"file":"x"}`: {}, `{"prompt":{"input_tokens":{"mean":100}},"public_dataset":"x"}`: {},
		`{"prompt":{"input_tokens":{"mean":100}},"conversation":{"turn":{"mean":1}}}`: {isStated: true, prefix: 0}, `{"prompt":{"input_tokens":{"mean":100}},"conversation":{"turn":{"mean":2}}}`: {},
		`{"prompt":{"input_tokens":{"mean":100},"prefix_prompt":{"pool_size":1,"length":7}}}`: {isStated: true, prefix: 7}, `{"prompt":{"input_tokens":{"mean":100},"prefix_prompt":{"pool_size":2,"length":7}}}`: {}, `{"prompt":{"input_tokens":{"mean":100},"prefix_prompt":{"length":7}}}`: {isStated: true, prefix: 0},
		`{"prompt":{"input_tokens":{"mean":100},"prefix_prompt":{"shared_system_prompt_length":5}}}`: {isStated: true, prefix: 5}, `{"prompt":{"input_tokens":{"mean":100},"prefix_prompt":{"pool_size":1,"length":3,"shared_system_prompt_length":5}}}`: {isStated: true, prefix: 5},
		`{"prompt":{"input_tokens":{"mean":100},"prefix_prompt":{"prefix_reuse_rate":0.1}}}`: {}, `{"prompt":{"input_tokens":{"mean":100},"prefix_prompt":{"user_context_prompt_length":1}}}`: {},
	} {
		var doc map[string]any
		if err := json.Unmarshal([]byte(`{"input_config":{"input":`+input+`}}`), &doc); err != nil {
			t.Fatal(err)
		}
		if got := aiperfDataset(doc); got != want {
			t.Errorf("%s: got %+v, want %+v", input, got, want)
		}
	}
	if got := aiperfDataset(map[string]any{}); got != (dataset{}) {
		t.Errorf("no input: got %+v", got)
	}
	for head, want := range map[string]bool{`# AIPerf Server Metrics Export`: true, `{"probe_type": 1, "rtt_ns": 2}`: true, `{"probe_type": 1}`: false, `{}`: false} {
		if got := IsCompanion([]byte(head)); got != want {
			t.Errorf("%s: got %v", head, got)
		}
	}
}
