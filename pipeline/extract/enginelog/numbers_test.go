package enginelog

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// examplesOf are the drops of an account: reason, place and text.
func examplesOf(acc *source.Account) []string {
	var out []string
	for _, e := range acc.ExampleList() {
		out = append(out, fmt.Sprintf("%s %s %s", e.Reason, e.Place, e.What))
	}
	return out
}

// TestEpochs: seconds, milliseconds, microseconds and nanoseconds since 1970, told apart by their digits, and years that
// int64 nanoseconds hold.
func TestEpochs(t *testing.T) {
	wall := func(ns, step int64) stamp { return stamp{ns, step, true} }
	unix := func(year int, month time.Month, day, hour, minute, second int) int64 {
		return time.Date(year, month, day, hour, minute, second, 0, time.UTC).UnixNano()
	}
	for text, want := range map[string]stamp{
		"1795303303":                            wall(1795303303000000000, 1000000000),
		"1795303303.5":                          wall(1795303303500000000, 100000000),
		"1795303303.123456":                     wall(1795303303123456000, 1000),
		"1795303303.12345678":                   wall(1795303303123456780, 10),
		"1795303303." + strings.Repeat("1", 29): wall(1795303303111111111, 1), // 40 bytes
		"1795303303." + strings.Repeat("1", 30): {},
		"1795303303123":                         wall(1795303303123000000, 1000000),
		"1795303303123456":                      wall(1795303303123456000, 1000),
		"1795303303123456789":                   wall(1795303303123456789, 1),
		"179530330":                             {},
		"17953033031":                           {},
		"1795303303123.5":                       {},
		"1795303303.":                           {},
		"1795303303.5x":                         {},
		"179530330x":                            {},
		"1970-12-31T23:59:59Z":                  {},
		"1971-01-01T00:00:00Z":                  wall(unix(1971, 1, 1, 0, 0, 0), 1000000000),
		"2200-12-31T23:59:59Z":                  wall(unix(2200, 12, 31, 23, 59, 59), 1000000000),
		"2201-01-01T00:00:00Z":                  {},
		"2026-11-21 23:21:43.12+0030":           wall(unix(2026, 11, 21, 22, 51, 43)+120000000, 10000000),
		"2027-01-02 00:00:03,25":                {ns: 86403250000000, stepNs: 10000000}, // a day and 3.25 s
	} {
		if got := parseStamp([]byte(text)); got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
	}
}

// TestStampsInLines: times that begin anywhere in a line, and figures that are none.
func TestStampsInLines(t *testing.T) {
	const noon = int64(1793534400) * 1000000000 // 2026-11-01 12:00:00 UTC
	// 1 November is the 306th day of a leap year, the 305th of 2026.
	leap := stamp{ns: (305*86400 + 12*3600) * 1000000000, stepNs: 1000000000}
	plain := stamp{ns: (304*86400 + 12*3600) * 1000000000, stepNs: 1000000000}
	wall := func(step int64) stamp { return stamp{noon, step, true} }
	for line, want := range map[string]stamp{
		"Nov 01 12:00:00":                             leap,
		"Nov 01 12:00:00.250 host":                    {ns: leap.ns + 250000000, stepNs: 1000000},
		"x Nov  1 12:00:00":                           leap,
		"Nox 01 12:00:00":                             {},
		"Nov 01 12:00:0":                              {},
		"Nov":                                         {},
		"ovD 01 12:00:00":                             {}, // no beginning of a month's name
		"2026-11-01 12:00:00":                         plain,
		"2026/11/01 12:00:00":                         plain,
		"2026-11-01T12:00:00Z":                        wall(1000000000),
		"2026-11-01T12:00:00.000Z and more":           wall(1000000),
		"(2026-11-01 13:30:00,00+01:30)":              wall(10000000),
		"(2026-11-01 10:30:00.0-0130)":                wall(100000000),
		"2026-11-01 12:00:00.":                        plain,
		"2026-11-01 12:00:00. x":                      plain,
		"2026-11-01x12:00:00":                         {},
		"2026-11-01 12.00:00":                         {},
		"2026-11-01 12:00:0":                          {},
		"ts=1793534400.000000":                        wall(1000),
		"ts=1793534400":                               {}, // a figure
		"1793534400 x":                                wall(1000000000),
		"[1793534400] x":                              wall(1000000000),
		"ts=1793534400.0a":                            {},
		"ts=1793534400.0-1":                           {},
		"a1793534400.0":                               {},
		"z_1793534400.0":                              {},
		"#1793534400.0":                               {},
		"9.1793534400.0":                              {},
		"/1793534400.0":                               wall(100000000),
		"2026-11-01 12:00:00 2026-11-01T12:00:00.00Z": wall(10000000),
	} {
		if got := lineStamp([]byte(line)); got != want {
			t.Errorf("%s: got %+v, want %+v", line, got, want)
		}
	}
	coarse, fine := stamp{1, 10, false}, stamp{2, 9, true}
	for _, c := range [][3]stamp{{coarse, fine, fine}, {fine, coarse, fine}, {{}, coarse, coarse}, {coarse, {}, coarse}, {coarse, {3, 10, true}, coarse}} {
		if got := c[0].finer(c[1]); got != c[2] {
			t.Errorf("%+v and %+v: got %+v", c[0], c[1], got)
		}
	}
}

// TestEngineStamps: the times that engines write before their words.
func TestEngineStamps(t *testing.T) {
	at := stamp{ns: ((31+1)*86400 + 3*3600 + 4*60 + 5) * 1000000000, stepNs: 1000000000} // 2 February
	for before, want := range map[string]stamp{
		"INFO 02-02 03:04:05 [core.py:1] ":                at,
		"02-02 03:04:05 [core.py:1] ":                     at,
		"2-02 03:04:05 [core.py:1] ":                      {},
		"INFO 02-02 03:04:05 [core.py:1] request [7, 8] ": at,
		"INFO 02-02 03:04:05 ":                            {},
	} {
		if got := vllmStamp([]byte(before), nil); got != want {
			t.Errorf("vLLM, %s: got %+v, want %+v", before, got, want)
		}
	}
	for before, want := range map[string]stamp{
		"[2026-02-02 03:04:05 DP0 TP1] ": at,
		"[2026-02-02 03:04:05.250 TP1] ": {ns: at.ns + 250000000, stepNs: 1000000},
		"[a] [2026-02-02 03:04:05] ":     at,
		"2026-02-02 03:04:05":            at,
		"[2026-02-02] ":                  {},
	} {
		if got := sglangStamp([]byte(before), nil); got != want {
			t.Errorf("SGLang, %s: got %+v, want %+v", before, got, want)
		}
	}
}

// TestRanks: which engine made a pass and which process wrote its line.
func TestRanks(t *testing.T) {
	show := func(engine, process []byte) string {
		if engine == nil {
			return "a copy"
		}
		return string(engine) + " " + string(process)
	}
	for before, want := range map[string]string{
		"":                                     "0 ",
		"Engine 007: ":                         "7 ",
		"Engine 000: ":                         "0 ",
		"(APIServer pid=5) x Engine 012: ":     "12 APIServer pid=5",
		"(ApiServer_3 pid=5) x Engine 1:":      "1 ApiServer_3 pid=5",
		"(EngineCore pid=3) ":                  "0 EngineCore pid=3",
		"(EngineCore_DP02 pid=3) ":             "2 EngineCore_DP02 pid=3",
		"(EngineCore_DPx pid=3) ":              "0 EngineCore_DPx pid=3",
		"(EngineCore_DP1 pid=3) Engine is up ": "1 EngineCore_DP1 pid=3",
		"(EngineCore_DP1 pid=3) Engine 4 up ":  "1 EngineCore_DP1 pid=3",
	} {
		if got := show(vllmEngine([]byte(before), nil)); got != want {
			t.Errorf("vLLM, %q: got %s, want %s", before, got, want)
		}
	}
	for before, want := range map[string]string{
		"[2026-02-02 03:04:05] ":              "0 0",
		"[2026-02-02 03:04:05 DP03 TP10] ":    "3 10",
		"[2026-02-02 03:04:05 DP3 PP0 TP10] ": "3 10",
		"[2026-02-02 03:04:05 DP3 PP1 TP10] ": "a copy",
		"[2026-02-02 03:04:05 DP TPx TP1x] ":  "0 0",
	} {
		if got := show(sglangRank([]byte(before), nil)); got != want {
			t.Errorf("SGLang, %q: got %s, want %s", before, got, want)
		}
	}
	for text, want := range map[string]string{
		`{"iter":1}`:                          "0 ",
		`{"attentionDpRank": 03}`:             "3 ",
		`{"attentionDpRank":null}`:            "0 ",
		"global_rank = 0, rank = 0, x":        "0 ",
		"global_rank = 0, rank = 2, x":        "a copy",
		"global_rank = 9, rank = 0, rank = 1": "0 ",
		"rank = x":                            "0 ",
	} {
		if got := show(tensorrtRank(nil, []byte(text))); got != want {
			t.Errorf("TensorRT-LLM, %q: got %s, want %s", text, got, want)
		}
	}
	for behind, want := range map[string]int64{" [17], x": 17, " [017]": 17, " [123456789012345678]": 123456789012345678,
		" [1234567890123456789]": unnumbered, ", x": unnumbered, " []": unnumbered, "[17]": unnumbered} {
		if got := sglangIndex([]byte(behind)); got != want {
			t.Errorf("%q: got number %d, want %d", behind, got, want)
		}
	}
}

// TestFiguresOfLines: the largest value of each kind of figure, the next one, and what a fault shows.
func TestFiguresOfLines(t *testing.T) {
	vllm := func(index, context, ms, rest string) string {
		return "Iteration(" + index + "): 1 context requests, " + context + " context tokens, 0 generation requests, 0 generation tokens, iteration elapsed time: " + ms + " ms" + rest
	}
	const prefill = "Prefill batch, #new-seq: 1, #new-token: 9, #cached-token: 0, "
	const decode = "Decode batch, #running-req: 1, #token: 9, "
	const tensorrt = "iter = 1, host_step_time = 1ms, 'num_ctx_requests': 1, 'num_ctx_tokens': 9, 'num_generation_tokens': 0, num_scheduled_requests = 1, "
	for line, want := range map[string]string{
		vllm("9007199254740992", "9", "1", ""):                                        "",
		vllm("9007199254740994", "9", "1", ""):                                        `Iteration("9007199254740994): "`,
		vllm("1", "1099511627776", "1", ""):                                           "",
		vllm("1", "1099511627777", "1", ""):                                           ` context requests, "1099511627777 context tokens, "`,
		vllm("1", "9", "1e300", ""):                                                   "",
		vllm("1", "9", "1e309", ""):                                                   `iteration elapsed time: "1e309 ms"`,
		vllm("1", "9", "-1", ""):                                                      `iteration elapsed time: "-1 ms"`,
		vllm("1", "9", "1", ", KV cache usage: 1e9%"):                                 "",
		vllm("1", "9", "1", ", KV cache usage: 1.1e9%"):                               ` KV cache usage: "1.1e9%"`,
		vllm("1", "0", "1", ""):                                                       "counts that contradict each other",
		vllm("1", "1", "1", ""):                                                       "",
		"Iteration(3): x iteration elapsed time: 1 ms":                                `): "x iteration elapsed"`, // as much as the unit is long
		"Iteration(3): iteration elapsed time: 1 ms":                                  `): "iteration elapsed t"`,
		prefill + "token usage: 1":                                                    "",
		prefill + "token usage: 1.01":                                                 `token usage: "1.01"`,
		prefill + "#queue-req: 1099511627777":                                         `#queue-req: "1099511627777"`,
		prefill + "#queue-req: 0.5":                                                   `#queue-req: "0.5"`,
		"Prefill batch, #new-seq: 1, #cached-token: 0, x":                             "no #new-token: ",
		"Prefill batch, #new-seq: 10, #new-token: 9, #cached-token: 0":                "counts that contradict each other",
		decode + "gen throughput (token/s): 1e9":                                      "",
		decode + "gen throughput (token/s): 2e9":                                      `gen throughput (token/s): "2e9"`,
		decode + "accept len: 1000.0":                                                 "",
		decode + "accept len: 1000.1":                                                 `accept len: "1000.1"`,
		tensorrt + "prev_device_step_time = 1e9ms":                                    "",
		tensorrt + "prev_device_step_time = 1.1e9ms":                                  `prev_device_step_time = "1.1e9ms"`,
		tensorrt + "prev_device_step_time = N/A":                                      "",
		tensorrt + "prev_device_step_time = none":                                     `prev_device_step_time = "no"`,
		strings.Replace(tensorrt, "'num_ctx_tokens': 9", "'num_ctx_tokens': null", 1): `'num_ctx_tokens': ""`,
		strings.Replace(tensorrt, "requests = 1", "requests = 0", 1):                  "counts that contradict each other",
		`{"iter":1,"iterLatencyMS":1,"numContextRequests":0,"numCtxTokens":0,"numCtxKvTokens":null,"numGenRequests":1}`: "",
		`{"iter":1,"iterLatencyMS":1,"numContextRequests":0,"numCtxTokens":0}`:                                          `no "numGenRequests":`,
		"10 context tokens, iteration elapsed time: 5 ms" + strings.Repeat("x", 80):                                     "10 context tokens, iteration elapsed time: 5 ms" + strings.Repeat("x", 73), // 120 bytes
	} {
		out := newLogDecoder().Records()
		newLogDecoder().Line([]byte(line), out)
		got := ""
		if len(out.Bad) > 0 {
			got = out.Bad[0].What
		}
		if got != want || len(out.Rows)+len(out.Bad) != 1 || out.Other != 0 {
			t.Errorf("%s:\ngot %d passes, fault %q, want %q", line, len(out.Rows), got, want)
		}
	}
	// Words that no record can be made of are another line.
	for _, line := range []string{"Avg prompt throughput: 1.0 tokens/s", "SpecDecoding metrics: Accepted: 0 tokens, Drafted: 0 tokens", "Prefill batch", "", "a {",
		"[2026-02-02 03:04:05 PP1] " + prefill} {
		out := newLogDecoder().Records()
		newLogDecoder().Line([]byte(line), out)
		if out.Other != 1 || len(out.Rows)+len(out.Bad) != 0 {
			t.Errorf("%s: got %d passes and %v", line, len(out.Rows), out.Bad)
		}
	}
}

// TestColours: escape sequences are taken out wherever they are, those that are cut too.
func TestColours(t *testing.T) {
	d := newLogDecoder().(*logDecoder)
	for text, want := range map[string]string{
		"plain":                       "plain",
		"a\x1b[0;36mb\x1b[0mc":        "abc",
		"a\x1b[@b\x1b[1~c\x1b[1\x3f2": "abc", // the first and the last final letter, none
		"a\x1bcd":                     "ad",
		"a\x1b":                       "a",
		"a\x1b[":                      "a",
	} {
		if got := string(d.withoutColours([]byte(text))); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestWrappedLines: the text of a line and its time, from the JSON around it.
func TestWrappedLines(t *testing.T) {
	const text = "Prefill batch, #new-seq: 1"
	second := stamp{1795303303000000000, 1000000000, true}
	for line, want := range map[string]struct {
		text string
		at   stamp
	}{
		text:                                     {text, stamp{}},
		"\ufeff {\"log\":\"" + text + "\"}":      {text, stamp{}},
		`{"msg":"` + text + `","ts":1795303303}`: {text, second},
		`{"x":{"ts":1},"ts":"1795303303","message":"` + text + `"}`:              {text, second},
		`{"message":"` + text + `","time":1795303303,"@timestamp":1795303303.5}`: {text, stamp{1795303303500000000, 100000000, true}},
		`{"message":"` + text + `","time":null,"asctime":[1]}`:                   {text, stamp{}},
		`{"message":"` + text + `","log":"another"}`:                             {text, stamp{}},
		`{"message":"` + text + `","log":7}`:                                     {text, stamp{}},
		`{"MESSAGE":[80,114,101,102,105,108,108,32,98,97,116,99,104,0,255]}`:     {"Prefill batch\x00\xff", stamp{}},
		`{"MESSAGE":[80,114,101,102,105,108,108,32,98,97,116,99,104,256]}`:       {`{"MESSAGE":[80,114,101,102,105,108,108,32,98,97,116,99,104,256]}`, stamp{}},
		`{"MESSAGE":[80,114,101,102,105,108,108,32,98,97,116,99,104,-1]}`:        {`{"MESSAGE":[80,114,101,102,105,108,108,32,98,97,116,99,104,-1]}`, stamp{}},
		`{"message":"another","ts":-5}`:                                          {`{"message":"another","ts":-5}`, stamp{}},
	} {
		got, at := unwrap([]byte(line))
		if string(got) != want.text || at != want.at {
			t.Errorf("%s: got %q at %+v, want %+v", line, got, at, want)
		}
	}
	for text, want := range map[string][]string{`[{"a":{"b":1}}, {"c":2}]`: {`{"a":{"b":1}}`, `{"c":2}`}, `} {"a":1} }`: {`{"a":1}`}, `x {"a":{"b":1}`: {`{"a":{"b":1}`}, "x": nil} {
		var got []string
		for _, object := range jsonObjects([]byte(text)) {
			got = append(got, string(object))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestFPMFaults: what is wrong about a pass that cannot be read, and values at the edge of what can.
func TestFPMFaults(t *testing.T) {
	wrapped := fpmWrapped + fpmNative + "}}"
	replace := func(text, from, to string) string { return strings.Replace(text, from, to, 1) }
	for line, want := range map[string]string{
		`{"schema":"x"}`:                                                         `schema: got "", want "dynamo.fpm.trace.v1"`,
		replace(wrapped, "trace.v1", "trace.v2"):                                 `schema: got "dynamo.fpm.trace.v2", want "dynamo.fpm.trace.v1"`,
		replace(fpmNamed, `"wall_time":0.0125,`, ""):                             `schema: got "", want "dynamo.fpm.trace.v1"`,
		`[1,"w7",0,41,0.0125]`:                                                   "got no fpm with wall_time and scheduled_requests",
		fpmWrapped + "null}}":                                                    "got no fpm with wall_time and scheduled_requests",
		replace(fpmNamed, `"version":1`, `"version":2`):                          "fpm version: got 2, want 1",
		replace(fpmNamed, "0.0125", "1e6"):                                       "",
		replace(fpmNamed, "0.0125", "1000001"):                                   "wall_time: got 1.000001e+06 s, want seconds of one pass",
		replace(fpmNamed, "0.0125", "-0.5"):                                      "wall_time: got -0.5 s, want seconds of one pass",
		replace(fpmNamed, "0.0125", "0"):                                         "",
		replace(fpmNamed, "25.5", "0"):                                           "",
		replace(fpmNamed, "25.5", "-0.5"):                                        "got -0.5, want a variance",
		replace(fpmNamed, `"sum_prefill_tokens":300`, `"sum_prefill_tokens":-3`): "got -3, want a count",
		replace(fpmNamed, `"sum_prefill_tokens":300`, `"sum_prefill_tokens":0`):  "",
		fpmDynamo[:len(fpmDynamo)-1] + ",1]":                                     "got more than 7 fields of a pass",
		fpmNative[:len(fpmNative)-1] + ",1]":                                     "got more than 8 fields of a pass",
		fpmOlder[:len(fpmOlder)-1] + ",1]":                                       "got more than 5 fields of a pass",
		replace(fpmDynamo, ",4.0]", "]"):                                         "got fewer or more than 7 counts of a batch",
		replace(fpmDynamo, ",4.0]", ",4.0,5]"):                                   "got fewer or more than 7 counts of a batch",
		replace(fpmDynamo, ",10,0.0]", ",10]"):                                   "got fewer or more than 6 counts of a batch",
		replace(wrapped, "1795303303123", "-1"):                                  "observed_at_unix_ms: got -1, want ms since 1970",
		replace(wrapped, "1795303303123", "9223372036854"):                       "observed_at_unix_ms: got 9223372036854, want ms since 1970",
		replace(wrapped, "1795303303123", "9223372036853"):                       "",
		wrapped: "",
	} {
		out := &passLines{}
		got := ""
		if err := newFPMDecoder().Line([]byte(line), out); err != nil {
			got = err.Msg
		}
		if got != want {
			t.Errorf("%s:\ngot %q, want %q", line, got, want)
		}
	}
	for line, want := range map[string]string{
		replace(fpmNamed, `"dp_rank":0`, `"dp_rank":3`):                "w7.dp3",
		replace(fpmNamed, `"worker_id":"w7"`, `"worker_id":12`):        "12",
		replace(wrapped, `"w7"`, `""`):                                 "tcp://a:1",
		replace(replace(wrapped, `"w7"`, `""`), `"tcp://a:1"`, "null"): "",
	} {
		if rows := read(t, newFPMDecoder(), line).Rows; len(rows) != 1 || rows[0].Engine != want {
			t.Errorf("%s: got %+v, want engine %q", line, rows, want)
		}
	}
	rows := read(t, newFPMDecoder(), replace(wrapped, `"full"`, `"sampled"`), replace(wrapped, "1795303303123", "0"), wrapped).Rows
	if len(rows) != 3 || !rows[0].Sampled || rows[1].Sampled || !rows[0].StampNs.OK || rows[1].StampNs.OK || rows[1].StampStepNs.OK {
		t.Errorf("got %+v", rows)
	}
}

// TestSeveralPasses: a decode that was logged for several passes has the tokens of at least two, or follows another
// decode with a number in between; its KV tokens grow by 4 requests' and, with drafts, by three tokens each.
func TestSeveralPasses(t *testing.T) {
	last := passRecord{Running: 4, HeldTokens: 1000}
	last.Index = 7
	for _, c := range []struct {
		name             string
		running, prompts int64
		accepted         float64
		grown, index     int64
		want             bool
	}{
		{"1.75 tokens each", 4, 0, 0, 7, 8, false},
		{"2 tokens each", 4, 0, 0, 8, 8, true},
		{"5.75 tokens each of drafts", 4, 0, 3, 23, 8, false},
		{"6 tokens each of drafts", 4, 0, 3, 24, 8, true},
		{"half a token is accepted", 4, 0, 0.5, 7, 8, false},
		{"a request ended", 5, 0, 0, 800, 8, false},
		{"a number is missing", 4, 0, 0, 4, 9, true},
		{"a number is missing behind prompts", 4, 1, 0, 4, 9, false},
	} {
		before := last
		before.Running, before.ContextReqs = c.running, c.prompts
		next := passRecord{AcceptedTokens: c.accepted}
		next.GenerationReqs, next.Index, next.DecodeKVTokens = 4, c.index, trace.Some(1000+c.grown)
		followSGLang(&before, &next)
		if next.Sampled != c.want || next.Running != 4 || next.HeldTokens != 1000+c.grown {
			t.Errorf("%s: got %+v, want sampled %t", c.name, next, c.want)
		}
	}
	prompt := passRecord{}
	prompt.ContextReqs, prompt.ContextTokens, prompt.ContextKVTokens = 2, 30, trace.Some(int64(7))
	last.Pace = decodePace{Decodes: 3}
	followSGLang(&last, &prompt)
	if prompt.Running != 6 || prompt.HeldTokens != 1037 || prompt.Pace != last.Pace || prompt.Sampled {
		t.Errorf("prompts: got %+v", prompt)
	}
}

// TestDecodePace: one decode of 4 requests with 2 tokens each, 0.1 s after the one before: 12 tokens are as many as 1.5
// passes make.
func TestDecodePace(t *testing.T) {
	for _, c := range []struct {
		name   string
		lastNs int64
		stepNs int64
		perS   float64
		want   decodePace
	}{
		{"12 tokens", 1000000000, 1000, 120, decodePace{1100000000, 120, 1, 0}},
		{"12.1 tokens", 1000000000, 1000, 121, decodePace{1100000000, 121, 1, 1}},
		{"whole seconds", 1000000000, 1000000000, 121, decodePace{1100000000, 121, 0, 0}},
		{"just finer than a second", 1000000000, 999999999, 121, decodePace{1100000000, 121, 1, 1}},
		{"the throughput of before", 1000000000, 1000, 50, decodePace{1100000000, 50, 0, 0}},
		{"the first", 0, 1000, 121, decodePace{1100000000, 121, 0, 0}},
	} {
		p := decodePace{LastNs: c.lastNs, LastPerS: 50}
		r := passRecord{TokensPerS: c.perS}
		r.StampNs, r.StampStepNs = trace.Some(int64(1100000000)), trace.Some(c.stepNs)
		if p.addDecode(&r, 2, 4); p != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, p, c.want)
		}
	}
	for _, c := range []struct {
		decodes, several int64
		want             bool
	}{{4, 4, false}, {5, 3, true}, {5, 2, false}, {6, 3, false}} {
		if p := (decodePace{Decodes: c.decodes, SeveralFor: c.several}); p.isSampled() != c.want {
			t.Errorf("%d of %d: got %t", c.several, c.decodes, p.isSampled())
		}
	}
}

// TestDropsOfPasses: what the account shows of passes that were dropped, with their places.
func TestDropsOfPasses(t *testing.T) {
	const at = "23:36:06"
	_, acc, _ := livesOf(t, pass(7, 0, 4, at, "5"), pass(7, 0, 4, at, "5"), "tokens, iteration elapsed time: 5 ms", pass(7, 0, 5, at, "0.0004"),
		pass(7, 0, 6, "23:36:08", "62500"), pass(7, 0, 7, "23:36:07", "60100"))
	want := []string{
		"bad_record server.log:4 iteration 5: elapsed: got 0.4 us, want at least 1 for a pass with tokens",
		"bad_record server.log:5 iteration 6: elapsed: got 62.5 s, want at most 62 s, which is a minute more than since the one before",
		"bad_record server.log:6 iteration 7: elapsed: got 60.1 s, want at most 61 s, which is a minute more than since the one before",
		"duplicate server.log:2 iteration 4 of engine 0 after 4",
		"unreadable server.log:3 got a torn iteration: tokens, iteration elapsed time: 5 ms",
	}
	got := examplesOf(acc)
	if !reflect.DeepEqual(got, slices.Concat(want[:2], want[3:])) {
		t.Errorf("got %s", strings.Join(got, "\n"))
	}
}

// TestCheckPass: a pass without tokens takes any time, one with tokens at least a microsecond; stamps of other clocks
// are not compared, and those that go back allow a minute.
func TestCheckPass(t *testing.T) {
	with := func(f func(r *passRecord)) *passRecord {
		r := &passRecord{Iteration: trace.Iteration{Form: trace.IterationLog, ContextReqs: 1, ContextTokens: 1, ElapsedUs: 61000001,
			StampNs: trace.Some(int64(5000000000)), StampStepNs: trace.Some(int64(1000000000))}}
		f(r)
		return r
	}
	last := func(f func(r *passRecord)) *Life { return &Life{last: *with(f)} }
	at := func(ns int64) func(r *passRecord) { return func(r *passRecord) { r.StampNs.V = ns } }
	same := func(*passRecord) {}
	for name, c := range map[string]struct {
		life *Life
		pass *passRecord
		good bool
	}{
		"a second later":             {last(at(4000000000)), with(same), false},
		"1.1 s later":                {last(at(3900000000)), with(same), true},
		"two seconds back":           {last(at(7000000000)), with(func(r *passRecord) { r.ElapsedUs = 60000000 }), true},
		"two seconds back, too long": {last(at(7000000000)), with(func(r *passRecord) { r.ElapsedUs = 60000001 }), false},
		"the first":                  {nil, with(same), true},
		"no stamp":                   {last(same), with(func(r *passRecord) { r.StampNs.OK = false }), true},
		"no stamp before":            {last(func(r *passRecord) { r.StampNs.OK = false }), with(same), true},
		"another clock":              {last(func(r *passRecord) { r.StampWall = true }), with(same), true},
		"no time":                    {nil, with(func(r *passRecord) { r.ElapsedUs = 0.99 }), false},
		"a microsecond":              {nil, with(func(r *passRecord) { r.ElapsedUs = 1 }), true},
		"no time, no tokens":         {nil, with(func(r *passRecord) { r.ElapsedUs, r.ContextReqs, r.ContextTokens = 0, 0, 0 }), true},
		"no time, decodes": {nil, with(func(r *passRecord) {
			r.ElapsedUs, r.ContextReqs, r.ContextTokens, r.GenerationReqs, r.GenerationTokens = 0, 0, 0, 1, 1
		}), false},
		"no time, without load":      {nil, with(func(r *passRecord) { r.ElapsedUs, r.Dummy = 0, true }), true},
		"no time, of another engine": {nil, with(func(r *passRecord) { r.ElapsedUs, r.Form = 0, trace.IterationSGLang }), true},
		"a share above 1":            {nil, with(func(r *passRecord) { r.KVUsage = trace.Some(1.5) }), false},
	} {
		if why := checkPass(c.life, c.pass); (why == "") != c.good {
			t.Errorf("%s: got %q", name, why)
		}
	}
	for name, c := range map[string]struct {
		last, next trace.Iteration
		want       bool
	}{
		"a second later":        {with(at(4000000000)).Iteration, with(same).Iteration, true},
		"less":                  {with(at(4000000001)).Iteration, with(same).Iteration, false},
		"64 back":               {trace.Iteration{Index: 70}, trace.Iteration{Index: 6}, true},
		"63 back":               {trace.Iteration{Index: 70}, trace.Iteration{Index: 7}, false},
		"64 back, other clocks": {trace.Iteration{Index: 70, StampWall: true, StampNs: trace.Some(int64(9))}, trace.Iteration{Index: 6, StampNs: trace.Some(int64(9))}, true},
		"to 0":                  {trace.Iteration{Index: 3}, trace.Iteration{}, true},
	} {
		if got := isRestart(&c.last, &c.next); got != c.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

// TestWhichLife: a pass continues the life whose index it follows, then that of its process, then the last written to;
// a life without one of the latest 64 passes is over.
func TestWhichLife(t *testing.T) {
	older := &Life{Engine: "older", process: "a", lastPass: 10}
	older.last.Index = 4
	newer := &Life{Engine: "newer", process: "b", lastPass: 70}
	newer.last.Index = 90
	for _, c := range []struct {
		name    string
		index   int64
		process string
		passes  int64
		want    *Life
	}{
		{"follows the older", 5, "b", 73, older},
		{"follows the older, which is over", 5, "a", 74, newer},
		{"of the older's process", 50, "a", 73, older},
		{"follows the newer, of the older's process", 91, "a", 73, newer},
		{"of neither", 50, "c", 73, newer},
		{"the newer is over as well", 5, "c", 500, newer},
	} {
		l := &Lives{open: map[string][]*Life{"k": {older, newer}}, passes: map[string]int64{"k": c.passes}}
		r := &passRecord{Process: c.process}
		r.Index = c.index
		if got := l.findLife("k", r); got != c.want {
			t.Errorf("%s: got %s", c.name, got.Engine)
		}
	}
	if got := (&Lives{}).findLife("k", &passRecord{}); got != nil {
		t.Errorf("of no life: got %+v", got)
	}
}

// TestTooManyLives: the life beyond the 1024th is dropped, and a pass of one that is open is not.
func TestTooManyLives(t *testing.T) {
	acc := source.NewAccount(nil)
	c := NewLives(acc, t.TempDir(), table.Parquet)
	c.lives = make([]*Life, 1024)
	r := &passRecord{Engine: "7"}
	r.Index, r.Line, r.File = 3, 12, "f"
	if err := c.addPass("k", nil, r); err != nil {
		t.Fatal(err)
	}
	want := []string{"bad_record f:12 iteration 3 of engine 7: got more than 1024 engines and restarts in one run"}
	if got := examplesOf(acc); !reflect.DeepEqual(got, want) || acc.Kept != 0 {
		t.Errorf("got %v", got)
	}
}

// TestCopiesOfRanks: of SGLang's tensor-parallel ranks the first that writes counts, and passes without a number are
// numbered; passes with an encoder are counted.
func TestCopiesOfRanks(t *testing.T) {
	line := func(rank string, tokens int) string {
		return fmt.Sprintf("[2026-02-02 03:04:05 %s] Prefill batch, #new-seq: 1, #new-token: %d, #cached-token: 0", rank, tokens)
	}
	encoder := func(inputs, embeddings int) string {
		return fmt.Sprintf("Engine 003: Iteration(%d): 1 context requests, 9 context tokens, 0 generation requests, 0 generation tokens, iteration elapsed time: 1 ms, "+
			"encoder inputs: %d, encoder output embeddings: %d", inputs+2*embeddings, inputs, embeddings)
	}
	c, acc, got := livesOf(t, line("TP1", 5), line("TP0", 5), line("TP1", 6), encoder(0, 0), encoder(1, 0), encoder(0, 1))
	want := []life{{"3", 3, 0, 0, 0, 0, 0, []int64{0, 1, 2}}, {"sglang 0", 2, 0, 2, 0, 0, 0, []int64{0, 1}}}
	if !reflect.DeepEqual(got, want) || acc.Read != 5 || c.Encoders != 2 {
		t.Errorf("got %+v, %d read, %d with an encoder", got, acc.Read, c.Encoders)
	}
	counts := map[string]int64{}
	for _, s := range acc.ScopeCounts() {
		counts[s.Event] = s.Count
	}
	if counts["other lines"] != 1 || counts["iterations"] != 5 {
		t.Errorf("got %v", counts)
	}
}

// TestRestartUnderAnotherRank: 64 passes of another rank, more than two seconds after the last of the one that is read, are
// those of an engine that started again; fewer, earlier ones and those after which the rank goes on are copies.
func TestRestartUnderAnotherRank(t *testing.T) {
	line := func(second int, rank string) string {
		return fmt.Sprintf("[2026-02-02 03:%02d:%02d%s] Prefill batch, #new-seq: 1, #new-token: 5, #cached-token: 0", second/60, second%60, rank)
	}
	after := func(n, second int, own ...string) []string {
		lines := []string{line(10, " TP1")}
		for range n {
			lines = append(lines, line(second, ""))
		}
		return append(lines, own...)
	}
	for _, c := range []struct {
		name  string
		lines []string
		rows  []int64
		other int64
	}{
		{"64", after(64, 13), []int64{1, 64}, 0},
		{"then it goes on", after(64, 13, line(14, ""), line(13, "")), []int64{1, 66}, 0},
		{"63", after(63, 13), []int64{1}, 63},
		{"too early", after(64, 12), []int64{1}, 64},
		{"the rank goes on", after(63, 13, line(13, " TP1"), line(13, ""), line(99, "")), []int64{2}, 65},
		{"two other ranks", after(63, 13, line(13, " TP2"), line(14, "")), []int64{1, 64}, 1},
	} {
		_, acc, got := livesOf(t, c.lines...)
		var rows []int64
		var passes int64
		for _, l := range got {
			rows = append(rows, l.rows)
			passes += l.rows
		}
		counts := map[string]int64{}
		for _, s := range acc.ScopeCounts() {
			counts[s.Event] = s.Count
		}
		if !reflect.DeepEqual(rows, c.rows) || counts["other lines"] != c.other || counts["iterations"] != passes || acc.Read != passes || acc.Kept != passes {
			t.Errorf("%s: got lives of %v passes, %v, %d read, %d kept", c.name, rows, counts, acc.Read, acc.Kept)
		}
	}
}

// TestStatisticsBeyondTheLimit: a line of statistics that is not kept is counted.
func TestStatisticsBeyondTheLimit(t *testing.T) {
	const rate = "(APIServer pid=1) INFO 11-21 23:21:43 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, " +
		"Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.4%, Prefix cache hit rate: 12.5%\n"
	dir := t.TempDir()
	name := filepath.Join(dir, "server.log")
	repo.Write(t, strings.Repeat(rate, 3), name)
	acc := source.NewAccount(nil)
	c := NewLives(acc, dir, table.Parquet)
	c.Statistics = make([]Statistics, 1<<18-1)
	how := source.Options{Workers: 1, Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}}
	if err := c.Logs(context.Background(), []source.Input{{Path: name, Name: "server.log"}}, how); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int64{}
	for _, s := range acc.ScopeCounts() {
		counts[s.Event] = s.Count
	}
	if len(c.Statistics) != 1<<18 || counts["statistics beyond the limit"] != 2 || counts["other lines"] != 3 {
		t.Errorf("got %d, %v", len(c.Statistics), counts)
	}
}

// TestScrapesAtTheirEnds: a histogram's figures are summed over samples of one series, a gauge over both metrics, and
// the counters are those of the first and the last answer of each server.
func TestScrapesAtTheirEnds(t *testing.T) {
	text := `{"endpoint_url":"a","timestamp_ns":20,"benchmark_phase":"p","metrics":{"vllm:request_prompt_tokens":[{"sum":3,"count":2},{"sum":5,"count":4,"buckets":{"2":1,"NaN":7}}],"vllm:prefix_cache_hits":[{"value":1}],"vllm:prefix_cache_queries":[{"value":2}],"vllm:num_requests_running":[{"value":3},{"value":4}],"vllm:num_requests_swapped":[{"value":9}]}}
{"endpoint_url":"a","timestamp_ns":10,"benchmark_phase":"q","metrics":{"vllm:prefix_cache_hits":[{"value":11}],"vllm:prefix_cache_queries":[{"value":12}]}}
{"endpoint_url":"a","timestamp_ns":20,"benchmark_phase":"p","metrics":{"vllm:prefix_cache_hits":[{"value":21}],"vllm:prefix_cache_queries":[{"value":22}]}}
`
	pairs, err := ReadScrapes([]byte(text), "f")
	if err != nil || len(pairs) != 2 {
		t.Fatalf("got %d pairs, %v", len(pairs), err)
	}
	s := pairs[0][0]
	if h := s.Histogram(Series{}, MeasurePrompt); h.Sum != 8 || h.Count != 6 || !reflect.DeepEqual(h.buckets, []bucket{{2, 1}}) {
		t.Errorf("got %+v", h)
	}
	if s.InFlight[Series{}] != 7 || s.AtNs != 20 || pairs[0][1].AtNs != 20 || pairs[0][1] == s {
		t.Errorf("got %+v", s)
	}
	got := countersOfScrapes([]byte(text), "f")
	want := []Counters{{"f", 12, 11, 0, 0, 0, false}, {"f", 2, 1, 0, 0, 0, false}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, bad := range []string{"{}\n", "x\n", "", strings.Replace(text, `"value":12`, `"value":-1`, 1)} {
		if got := countersOfScrapes([]byte(bad), "f"); got != nil {
			t.Errorf("%s: got %+v", bad, got)
		}
	}
	if _, err := ReadScrapes([]byte("\nx\n"), "f"); err == nil || err.Error() != "f:2: got no answer of /metrics (invalid character 'x' looking for beginning of value), want timestamp_ns and metrics" {
		t.Errorf("got %v", err)
	}
	if got := (&Histogram{Count: 4, buckets: []bucket{{math.Inf(1), 4}}}).MedianSince(&Histogram{}); got != 0 {
		t.Errorf("above all bounds: got %g", got)
	}
}
