package clients

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// sglangLine is a request as SGLang's exporter writes it, with our figures.
const sglangLine = `{"request_parameters": "{\"text\": \"private words\", \"stream\": true}", "id": "r%d", "finish_reason": {"type": "length", ` +
	`"length": 5}, "prompt_tokens": 40, "weight_version": "default", "completion_tokens": 5, "cached_tokens": 16, "e2e_latency": 0.3, ` +
	`"queue_time": 0.01, "request_received_ts": 1795303302.0, "prefill_finished_ts": 1795303302.1, "request_finished_ts": 1795303302.3}` + "\n"

// TestSGLangRequests: a request of the server's export has its lengths, cached tokens and times, in both spellings of the stamps;
// one that was aborted failed, one without a stamp is a drop that says what gives it, and prompts are in no row.
func TestSGLangRequests(t *testing.T) {
	c := readFiles(t, map[string]string{"sglang-request-metrics-20261121_23.log": fmt.Sprintf(sglangLine, 1) +
		strings.Replace(fmt.Sprintf(sglangLine, 2), "prefill_finished_ts", "prefill_finished_time", 1) +
		strings.Replace(fmt.Sprintf(sglangLine, 3), `"length", `, `"abort", `, 1) +
		strings.Replace(fmt.Sprintf(sglangLine, 4), "request_received_ts", "x", 1) + strings.Replace(fmt.Sprintf(sglangLine, 5),
		`{"type": "length", "length": 5}`, "null", 1)})
	if said := fmt.Sprint(c.Acc.ExampleList()); len(c.Requests) != 4 || c.Acc.Dropped[source.CodeUnreadable] != 1 ||
		!strings.Contains(said, "--enable-metrics") {
		t.Fatalf("got %d rows, dropped %v: %+v", len(c.Requests), c.Acc.Dropped, c.Acc.ExampleList())
	}
	for i, r := range c.Requests {
		near := func(got, want float64) bool { return got > want-1 && got < want+1 }
		if r.PromptTokens.V != 40 || r.OutputTokens.V != 5 || r.CachedTokens.V != 16 || !near(r.TTFTUs.V, 1e5) || !near(r.E2EUs.V, 3e5) ||
			r.SendNs.V != 1795303302e9 || r.Success.V == (i == 2) || strings.Contains(fmt.Sprint(r), "private") {
			t.Errorf("got %+v", r)
		}
	}
}

// TestBrokenSGLangRequests: sixty variants with something missing, changed or cut are drops with their line, or rows in range.
func TestBrokenSGLangRequests(t *testing.T) {
	rng := rand.New(rand.NewPCG(39, 10))
	faults := 0
	dir := t.TempDir()
	keys := []string{`"id"`, `"prompt_tokens"`, `"completion_tokens"`, `"cached_tokens"`, `"e2e_latency"`, `"request_received_ts"`,
		`"prefill_finished_ts"`, `"finish_reason"`}
	for k := range 60 {
		line := strings.TrimSpace(fmt.Sprintf(sglangLine, 2))
		key := keys[k%len(keys)]
		at := 30 + rng.IntN(len(line)-31)
		switch k % 5 {
		case 0:
			line = line[:at]
		case 1:
			line = strings.Replace(line, key+": ", key+": -", 1)
		case 2:
			line = strings.Replace(line, key+": ", key+`: "x", "y": `, 1)
		case 3:
			line = strings.Replace(line, key+": ", key+": 1e300, \"y\": ", 1)
		case 4:
			line = line[:at] + []string{"{", "]", "\x00", ",", "}"}[k/5%5] + line[at:]
		}
		c := &Reader{Acc: source.NewAccount(nil)}
		repo.Write(t, fmt.Sprintf(sglangLine, 1)+line+"\n", dir, "m.log")
		in := source.Input{Path: filepath.Join(dir, "m.log"), Name: "m.log"}
		if err := c.ReadFile(&in, source.Options{Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}}); err != nil {
			t.Fatal(err)
		}
		if r := c.Acc.Records(); !r.Balanced() || int(r.Kept) != len(c.Requests) || r.Read != 2 {
			t.Errorf("%d: %+v of %s", k, r, line)
		}
		for _, e := range c.Acc.ExampleList() {
			faults++
			if !strings.HasPrefix(e.Place, "m.log:2") {
				t.Errorf("%d: got the place %s of %s", k, e.Place, line)
			}
		}
	}
	if faults < 40 {
		t.Errorf("%d of 60 broken lines are faults, want at least 40", faults)
	}
}

// TestClientKeepsUsage: cached tokens of the usage that a client keeps as the server sent it.
func TestClientKeepsUsage(t *testing.T) {
	for details, want := range map[string]trace.Opt[int64]{`,"prompt_tokens_details":{"cached_tokens":32}`: trace.Some[int64](32),
		`,"prompt_tokens_details":null`: {}, "": {}} {
		r, err := parseClientLine([]byte(`{"id":"a","send_ns":1,"usage":{"prompt_tokens":40,"completion_tokens":5` + details + `}}`))
		if err != nil || r.CachedTokens != want {
			t.Errorf("%s: got %+v, %v", details, r.CachedTokens, err)
		}
	}
}
