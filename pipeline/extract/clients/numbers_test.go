package clients

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// reading reads one file and returns its reader and error, which names the file.
func reading(name, text string) (*Reader, error) {
	c := &Reader{Acc: source.NewAccount(nil)}
	how := source.Options{Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}, Stdin: strings.NewReader(text)}
	err := c.ReadFile(&source.Input{Path: "-", Name: name}, how)
	return c, err
}

// TestRecordsThatAreDropped: one good record beside one that is not, in each form: what is read, why the other is dropped, and
// its line.
func TestRecordsThatAreDropped(t *testing.T) {
	const aiperf = `{"metadata":{"x_request_id":"a","request_start_ns":1000000000,"benchmark_phase":"profiling"},"metrics":{}}` + "\n"
	for name, c := range map[string]struct {
		text, where, why string
		read             int64
	}{
		"AIPerf's time": {aiperf + strings.Replace(aiperf, `"metrics":{}`, `"metrics":{"time_to_first_token":{"value":"soon","unit":"ms"}}`, 1),
			"f:2", "time_to_first_token: json: cannot unmarshal string", 2},
		"AIPerf's unit": {aiperf + strings.Replace(aiperf, `"metrics":{}`, `"metrics":{"time_to_first_token":{"value":1,"unit":"h"}}`, 1),
			"f:2", `time_to_first_token: got the unit "h", want ns, us, ms or sec`, 2},
		"AIPerf's tokens": {aiperf + strings.Replace(aiperf, `"metrics":{}`, `"metrics":{"output_token_count":{"value":"many","unit":"tokens"}}`, 1),
			"f:2", "output_tokens", 2},
		"GuideLLM's start": {`{"guidellm_version":"1","benchmarks":[{"requests":{"successful":[{"request_id":"a"},{"request_id":"b","request_start_time":1}]}}]}`,
			"f:1", "request a: got no request_start_time", 2},
		"inference-perf's start": {`[{"end_time":2.3,"request":"{}","info":{"input_tokens":38}},{"start_time":2.0,"end_time":2.3,"info":{"input_tokens":38}}]`,
			"f", "request 1: got no start_time", 2},
		"a chunk without tokens": {`{"id":"a","send_ns":1000000000,"first_chunk_ns":1100000000,"last_chunk_ns":1200000000,"usage":{"prompt_tokens":4,"completion_tokens":2}}` + "\n" +
			`{"id":"b","send_ns":1200000000,"end_ns":1100000000,"usage":{"prompt_tokens":4,"completion_tokens":2}}` + "\n", "f:2", "its stamps run backwards", 2},
	} {
		r, err := reading("f", c.text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var dropped int64
		for _, n := range r.Acc.Dropped {
			dropped += n
		}
		if r.Acc.Read != c.read || dropped != 1 || len(r.Requests) != int(c.read)-1 {
			t.Errorf("%s: read %d, dropped %d, kept %d", name, r.Acc.Read, dropped, len(r.Requests))
		}
		var texts []string
		for _, f := range r.Acc.ExampleList() {
			texts = append(texts, f.Place+" "+f.What)
		}
		if got := strings.Join(texts, "\n"); !strings.Contains(got, c.where) || !strings.Contains(got, c.why) {
			t.Errorf("%s: got %q, want %s at %s", name, got, c.why, c.where)
		}
	}
}

// TestFilesThatAreRefused: files without a request and files that are cut, by their error.
func TestFilesThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"id":"a"`: "f",
		`{"x_id":"a","e":1,"d":1,"c":1,"b":1,"z":1,"y":1,"w":1,"v":1}` + "\n": "the keys b, c, d, e, v, w, x_id, y",
		"no json at all\r\nand more":                                          "not a client file: got no JSON, and not a TraceV2 file",
		`{"guidellm_version":"1","guidellm_version":"2","benchmarks":[]}`:     `got the key "guidellm_version" twice in one object`,
	} {
		r, err := reading("f", text)
		got := fmt.Sprint(err)
		for _, f := range r.Acc.ExampleList() {
			got += "\n" + f.What
		}
		if len(r.Requests) > 0 || !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %q", text, got, want)
		}
	}
}

// TestStrayStamps: a request whose clock is far from that of the others is dropped, the others are kept in order.
func TestStrayStamps(t *testing.T) {
	var lines []string
	for i := range 40 {
		at := 1_793_491_200_000_000_000 + int64(i)*1_000_000_000
		if i == 7 {
			at -= 300 * 24 * 3600 * 1_000_000_000
		}
		lines = append(lines, fmt.Sprintf(`{"id":"%d","send_ns":%d,"first_chunk_ns":%d,"last_chunk_ns":%d,"usage":{"prompt_tokens":4,"completion_tokens":2}}`, i, at,
			at+100_000_000, at+200_000_000))
	}
	r, err := reading("f", strings.Join(lines, "\n")+"\n")
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range r.Requests {
		ids = append(ids, r.Requests[i].ID)
	}
	if got := strings.Join(ids[:min(9, len(ids))], " "); len(ids) != 39 || got != "0 1 2 3 4 5 6 8 9" {
		t.Errorf("got %d requests, the first %s", len(ids), got)
	}
	if rec := r.Acc.Records(); !rec.Balanced() || r.Acc.Read != 40 {
		t.Errorf("account: %+v", rec)
	}
}

// TestChunksThatAreDropped: rows of a chunk file that are no CSV, have other fields, or negative numbers.
func TestChunksThatAreDropped(t *testing.T) {
	for fields, want := range map[string]string{
		"a,1,2":    "",
		"a,0,0":    "",
		"a,-1,2":   `got the index "-1" at "2" us, want integers of at least 0`,
		"a,1,-2":   `got the index "1" at "-2" us`,
		"a,x,2":    `got the index "x"`,
		"a,1,2,3":  "got 4 fields, want 3",
		"a,1,soon": `at "soon" us`,
	} {
		index, us, err := parseChunk(strings.Split(fields, ","))
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || index != 0 || us != 0) {
			t.Errorf("%s: got %d, %d, %v, want %q", fields, index, us, err, want)
		}
	}
	r, err := reading("t.itl.csv", "request_id,chunk_index,timestamp_us\n1,0,4100000\n1,\"1\"x,4200000\n1,-2,4300000\n")
	if err != nil || len(r.chunkSets) != 1 || len(r.chunkSets[0].chunks["1"]) != 1 || r.chunkSets[0].chunks["1"][0] != (chunk{0, 4_100_000_000}) {
		t.Fatalf("got %+v, %v", r.chunkSets, err)
	}
	var dropped int64
	for _, n := range r.Acc.Dropped {
		dropped += n
	}
	var texts []string
	for _, f := range r.Acc.ExampleList() {
		texts = append(texts, f.Place+" "+f.What)
	}
	if got := strings.Join(texts, "\n"); dropped != 2 || !strings.Contains(got, "t.itl.csv:3") {
		t.Errorf("dropped %d: %s", dropped, got)
	}
}

// TestLevelsThatAreDropped: tables of load levels, what of them is read, and the findings of the rest.
func TestLevelsThatAreDropped(t *testing.T) {
	const head = "input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms\n"
	for text, want := range map[string]string{
		head:                                     "f:2:1: measured points: got no row, want measured points",
		"input_tokens;output_tokens\n1;2\n":      "",
		"i\x00n\x00p\x00u\x00t\x00,\x00x\n1,2\n": "the file is UTF-16",
	} {
		_, err := ReadLevels(strings.NewReader(text), "f")
		e := source.AsSyntax(err)
		if err == nil || want != "" && !strings.Contains(fmt.Sprint(err), want) && (e == nil || !strings.Contains(e.Hint, want)) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	f, err := ReadLevels(strings.NewReader(head+"100,20,4,50,10\n"), "f")
	if err != nil || f.Read != 1 || len(f.Levels) != 1 {
		t.Fatalf("got %+v, %v", f, err)
	}
	if l := f.Levels[0]; l.PromptTokens != 100 || l.OutputTokens != 20 || l.Clients != 4 || l.TTFTMeanMs != 50 || l.ITLMs != 10 {
		t.Errorf("got %+v", l)
	}
	good := f.Levels[0]
	for _, c := range []struct {
		change func(l *Level)
		want   string
		kept   int
	}{
		{func(*Level) {}, "", 1},
		{func(l *Level) { l.TTFTMedianMs, l.TTFTMeanMs = 5, -3 }, "here: mean TTFT: got -3 ms; only the median is used", 1},
		{func(l *Level) { l.TTFTMedianMs, l.TTFTMeanMs = 5, 0 }, "here: mean TTFT: got 0 ms; only the median is used", 1},
		{func(l *Level) { l.TTFTMedianMs, l.TTFTMeanMs = 5, 1e-3 }, "", 1},
		{func(l *Level) { l.PromptTokens = 0.5 }, "here: mean lengths: got 0.5 and 20 tokens, want at least 1", 0},
		{func(l *Level) { l.PromptTokens = 1 }, "", 1},
		{func(l *Level) { l.OutputTokens = 0 }, "here: output tokens: got 0, want > 0", 0},
		{func(l *Level) { l.ITLMs = 0 }, "here: ITL: got 0, want > 0", 0},
		{func(l *Level) { l.CachedTokens = trace.Some(101.0) }, "here: cached tokens: got 101 of prompts of 100 tokens", 1},
		{func(l *Level) { l.CachedTokens = trace.Some(100.0) }, "", 1},
		{func(l *Level) { l.Clients = 100_000 }, "", 1},
		{func(l *Level) { l.Clients = 100_001 }, "here: clients and parallel sizes: got 100001, want at most 100000", 0},
		{func(l *Level) { l.OutputSD = -1 }, "here: requests in flight, spread of lengths: got 0, 0 and -1", 0},
		{func(l *Level) { l.Clients, l.RateRPS = 0, 1e-7 }, "here: request rate or clients: got 1e-07, want > 1e-06", 0},
	} {
		l := good
		c.change(&l)
		file := LevelFile{Dropped: map[trace.Code]int{}}
		file.addLevel(l, "here")
		got := ""
		if len(file.Findings) > 0 {
			got = file.Findings[0].Message
		}
		if len(file.Levels) != c.kept || file.Read != 1 || file.Dropped[codeIncomplete] != 1-c.kept || !strings.HasPrefix(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%s: kept %d of %d, dropped %v, found %q", c.want, len(file.Levels), file.Read, file.Dropped, got)
		}
	}
}

// TestNamesOfRequestsWithoutOne: AIPerf's requests without an id are named by session and turn.
func TestNamesOfRequestsWithoutOne(t *testing.T) {
	var j aiperfLine
	j.Metadata.Session, j.Metadata.Turn, j.Metadata.Start = 3, 2, trace.Some(int64(9))
	if r, err := j.request(); err != nil || r.ID != "3-2" {
		t.Errorf("got %q, %v", r.ID, err)
	}
	j.Metadata.ID = "x"
	j.StartPerf, j.Status = trace.Some(int64(5)), trace.Some(int64(503))
	if r, err := j.request(); err != nil || r.ID != "x" || r.Status != trace.Some(int64(503)) {
		t.Errorf("got %+v, %v", r, err)
	}
	j.Status = trace.Opt[int64]{}
	if r, _ := j.request(); r.Status != trace.Some(int64(0)) {
		t.Errorf("no status: got %+v", r.Status)
	}
	j.Metadata.Start.OK = false
	if _, err := j.request(); err == nil || err.Error() != "got no request_start_ns" {
		t.Errorf("got %v", err)
	}
}

// TestRestOfAFile: the part of a file that is not read counts as one dropped record of its bytes.
func TestRestOfAFile(t *testing.T) {
	text := `[{"start_time":2.0,"end_time":2.3,"request":"{}","info":{"input_tokens":38}},x` + strings.Repeat(" ", 1<<17)
	path := filepath.Join(t.TempDir(), "per_request_lifecycle_metrics.json")
	repo.Write(t, text, path)
	c := &Reader{Acc: source.NewAccount(nil)}
	if err := c.ReadFile(&source.Input{Path: path, Name: "f"}, source.Options{Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}}); err != nil {
		t.Fatal(err)
	}
	if c.Acc.Bytes != int64(len(text)) || len(c.Requests) != 1 {
		t.Errorf("got %d bytes of %d, %d requests, dropped %v", c.Acc.Bytes, len(text), len(c.Requests), c.Acc.Dropped)
	}
}

// TestTimesOfBenchByHand: a first token after 500 ms and gaps of 100 and 200 ms end 800 ms after the start.
func TestTimesOfBenchByHand(t *testing.T) {
	c := readFiles(t, map[string]string{"bench.json": benchText})
	if len(c.Requests) != 2 || len(c.Acc.Dropped) != 0 {
		t.Fatalf("got %d requests, dropped %v", len(c.Requests), c.Acc.Dropped)
	}
	two := readFiles(t, map[string]string{"bench.json": benchText + benchText})
	if len(two.Requests) != 4 || len(two.Acc.Dropped) != 0 || two.Requests[3].Line != 2 || two.Requests[3].ID != "bench.2-1" {
		t.Errorf("two results: got %+v, dropped %v", two.Requests, two.Acc.Dropped)
	}
	for n := 1; n < len(benchText); n += 15 { // a second result that is cut anywhere
		cut := readFiles(t, map[string]string{"bench.json": benchText + benchText[:n]})
		list := cut.Acc.ExampleList()
		if len(cut.Requests) != 2 || len(list) != 1 || list[0].Reason != source.CodeCut || !strings.HasPrefix(list[0].What, "result 2 of the file: ") {
			t.Errorf("a second of %d bytes: got %d requests, %v", n, len(cut.Requests), list)
		}
	}
	r := &c.Requests[0]
	if !near(r.TTFTUs.V, 500_000) || !near(r.E2EUs.V, 800_000) || r.Chunks.V != 3 || len(r.ChunkGapsUs) != 2 || !near(r.ChunkGapsUs[1], 200_000) ||
		r.FirstChunkNs.V-r.SendNs.V != 500_000_000 || r.LastChunkNs.V-r.SendNs.V != 800_000_000 {
		t.Errorf("got %+v", r)
	}
}

// TestFindingsThatDropNothing: a level whose cached tokens cannot be is kept without them: a finding, and no drop.
func TestFindingsThatDropNothing(t *testing.T) {
	const head = "input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms,cached_tokens\n"
	c := readFiles(t, map[string]string{"levels.csv": head + "100,20,4,50,10,101\n" + "100,20,8,60,11,100\n"})
	if list := c.Acc.ExampleList(); len(c.Points) != 2 || c.Acc.Read != 2 || len(list) != 0 {
		t.Errorf("got %d levels of %d, dropped %v", len(c.Points), c.Acc.Read, list)
	}
	if got := messages(c); !strings.Contains(got, "cached tokens: got 101 of prompts of 100 tokens") {
		t.Errorf("got %q", got)
	}
}
