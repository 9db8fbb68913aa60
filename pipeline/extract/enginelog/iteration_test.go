package enginelog

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// core25 and front32 are lines as vLLM 0.25.1 and 0.32.0 write them.
const (
	core25  = `(EngineCore pid=3267) INFO 11-21 23:36:06 [core.py:452] Iteration(7): 0 context requests, 0 context tokens, 2 generation requests, 2 generation tokens, iteration elapsed time: 26.08 ms`
	front32 = `(APIServer pid=1769) INFO 11-21 23:21:43 [loggers.py:199] Engine 001: Iteration(8): 1 context requests, 212 context tokens, 1 generation requests, 1 generation tokens, iteration elapsed time: 180.68 ms, CPU KV cache usage: 0.4%`
)

const (
	day      = int64(24 * 3600)
	november = (305 + 20) * day // 21 November of a leap year
)

func local(h, m, s int64) stamp {
	return stamp{(november + h*3600 + m*60 + s) * 1e9, 1e9, false}
}

func wall(ns, step int64) stamp { return stamp{ns, step, true} }

// at2321 is 2026-11-21T23:21:43.123456789Z.
const at2321 = int64(1795303303123456789)

func logRow(at stamp, line int64) passRecord {
	r := passRecord{Engine: "1", Iteration: trace.Iteration{Index: 8, Form: trace.IterationLog,
		ContextReqs: 1, ContextTokens: 212, GenerationReqs: 1, GenerationTokens: 1, ElapsedUs: 180680, KVUsage: trace.Some(0.004), Line: line}}
	at.set(&r.Iteration)
	return r
}

func coreRow(at stamp, line int64) passRecord {
	r := passRecord{Engine: "0", Iteration: trace.Iteration{Index: 7, Form: trace.IterationLog,
		GenerationReqs: 2, GenerationTokens: 2, ElapsedUs: 26080, Line: line}}
	at.set(&r.Iteration)
	return r
}

// read gives the lines to a decoder as the reader of files does.
func read(t testing.TB, d source.Decoder[*passLines], lines ...string) *passLines {
	t.Helper()
	out := d.Records()
	for i, line := range lines {
		out.Mark()
		if err := d.Line([]byte(line), out); err != nil {
			out.Undo()
			t.Logf("line %d: %v", i+1, err)
			continue
		}
		out.Keep(int64(i + 1))
	}
	for i := range out.Rows {
		out.Rows[i].Process = ""
	}
	return out
}

// TestPrefixes: every prefix that collectors put before or around a line gives
// the same iteration and the finest stamp of the line.
func TestPrefixes(t *testing.T) {
	micro := at2321 / 1000 * 1000
	text := front32[strings.Index(front32, "Iteration"):]
	list := func(b []byte) string { return strings.ReplaceAll(fmt.Sprint(b), " ", ",") }
	for _, c := range []struct {
		name, line string
		at         stamp
	}{
		{"bare", front32, local(23, 21, 43)},
		{"docker logs --timestamps", "2026-11-21T23:21:43.123456789Z " + front32, wall(at2321, 1)},
		{"kubectl with a zone", "2026-11-22T00:21:43.123456789+01:00 " + front32, wall(at2321, 1)},
		{"docker json-file", `{"log":"` + front32 + `\n","stream":"stdout","time":"2026-11-21T23:21:43.123456789Z"}`, wall(at2321, 1)},
		{"CRI", "2026-11-21T23:21:43.123456789Z stdout F " + front32, wall(at2321, 1)},
		{"journald short-iso-precise", "2026-11-21T23:21:43.123456+0000 host vllm[12]: " + front32, wall(micro, 1000)},
		{"journald json", `{"__REALTIME_TIMESTAMP":"` + fmt.Sprint(micro/1000) + `","MESSAGE":"` + front32 + `"}`, wall(micro, 1000)},
		{"journald json, bytes", `{"MESSAGE":` + list([]byte("\x1b[32m"+front32)) + `,"__REALTIME_TIMESTAMP":"` + fmt.Sprint(micro/1000) + `"}`, wall(micro, 1000)},
		{"ts %.s", fmt.Sprintf("%d.%06d ", at2321/1e9, at2321%1e9/1000) + front32, wall(micro, 1000)},
		{"JSON logging", `{"asctime":"2026-11-21 23:21:43,123","levelname":"INFO","message":"Engine 001: ` + text + `"}`,
			stamp{local(23, 21, 43).ns + 123e6 - day*1e9, 1e6, false}}, // 2026 has no 29 February
		{"asctime", "2026-11-21 23:21:43,123 INFO vllm.v1.metrics.loggers: Engine 001: " + text,
			stamp{local(23, 21, 43).ns + 123e6 - day*1e9, 1e6, false}},
		{"colours", "\x1b[0;36m(APIServer pid=1769)\x1b[0;0m INFO 11-21 23:21:43 [loggers.py:199] Engine 001: " + text, local(23, 21, 43)},
		{"progress bar", "Loading: 100%|█████| 4/4\r" + front32 + "\r", local(23, 21, 43)},
		{"glued prefix", "(APIServer pid=3115) (EngineCore pid=3267) " + front32, local(23, 21, 43)},
	} {
		got := read(t, newLogDecoder(), c.line)
		if diff := cmp.Diff([]passRecord{logRow(c.at, 1)}, got.Rows); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestIterationForms: both forms of the line and what may follow.
func TestIterationForms(t *testing.T) {
	base := front32[:strings.Index(front32, ", CPU")]
	with := func(f func(*trace.Iteration)) passRecord {
		r := logRow(local(23, 21, 43), 1)
		r.KVUsage = trace.Opt[float64]{}
		f(&r.Iteration)
		return r
	}
	for _, c := range []struct {
		name, line string
		want       []passRecord
		bad        int
	}{
		{"core", core25, []passRecord{coreRow(local(23, 36, 6), 1)}, 0},
		{"dummy, core", base + " (dummy)", []passRecord{with(func(it *trace.Iteration) { it.Dummy = true })}, 0},
		{"dummy, front end", base + " (dummy), GPU KV cache usage: 12.5%",
			[]passRecord{with(func(it *trace.Iteration) { it.Dummy, it.KVUsage = true, trace.Some(0.125) })}, 0},
		{"multimodal", base + ", GPU KV cache usage: 50.0%, encoder inputs: 4, encoder output embeddings: 3520",
			[]passRecord{with(func(it *trace.Iteration) {
				it.KVUsage, it.EncoderInputs, it.EncoderOutputs = trace.Some(0.5), trace.Some[int64](4), trace.Some[int64](3520)
			})}, 0},
		{"two in one line", core25 + front32, []passRecord{coreRow(local(23, 36, 6), 1), logRow(local(23, 21, 43), 1)}, 0},
		{"rank of an older process", strings.Replace(core25, "(EngineCore ", "(EngineCore_DP0 ", 1), []passRecord{coreRow(local(23, 36, 6), 1)}, 0},
		{"torn", front32[:120], nil, 1},
		{"torn in the usage", front32[:len(front32)-6], []passRecord{with(func(*trace.Iteration) {})}, 0},
		{"torn, then whole", front32[:120] + core25, []passRecord{coreRow(local(23, 36, 6), 1)}, 1},
		{"negative time", strings.Replace(core25, "26.08", "-26.08", 1), nil, 1},
		{"not a number", strings.Replace(core25, "26.08", "nan", 1), nil, 1},
		{"count beyond 64 bits", strings.Replace(core25, "0 context tokens", "99999999999999999999 context tokens", 1), nil, 1},
		{"a part of a request", strings.Replace(core25, "0 context tokens", "0.5 context tokens", 1), nil, 1},
		{"a sign", strings.Replace(core25, "0 context tokens", "+0 context tokens", 1), nil, 1},
		{"another program's word", "solver: Iteration(s) done", nil, 0},
	} {
		got := read(t, newLogDecoder(), c.line)
		if diff := cmp.Diff(c.want, got.Rows); diff != "" || len(got.Bad) != c.bad {
			t.Errorf("%s: %d bad, want %d (-want +got):\n%s", c.name, len(got.Bad), c.bad, diff)
		}
	}
}

// TestStamps: no time is invented from what is no time.
func TestStamps(t *testing.T) {
	for _, text := range []string{"", "hello world", "2026-13-01T00:00:00Z", "1234567890123456789012",
		"9999999999.5x", "1795303303.", "2026-11-21T23:21:43", "1969-01-01T00:00:00Z"} {
		if got := parseStamp([]byte(text)); got.isWall {
			t.Errorf("%q: got %+v, want no wall clock", text, got)
		}
	}
	if got := vllmStamp([]byte("INFO 13-41 99:00:00 [x] "), nil); got.stepNs != 0 {
		t.Errorf("got %+v, want none", got)
	}
}

// TestStampAnywhere: the best stamp of a line is found behind prefixes, in brackets and among a logger's own
// words; figures of the line are no stamps.
func TestStampAnywhere(t *testing.T) {
	const wall = 1793491200123 * 1e6 // 2026-11-01 00:00:00.123 UTC
	text := core25[strings.Index(core25, "Iteration("):]
	for prefix, want := range map[string]stamp{
		"(APIServer pid=7) [plugin] INFO 2026-11-01 00:00:00,123 [loggers.py:199] Engine 000: ":       {stepNs: 1e6},
		"[pod/x/vllm] 2026-11-01T00:00:00.123456789Z (APIServer pid=7) INFO 11-01 00:00:00 [l.py:1] ": {ns: wall + 456789, stepNs: 1, isWall: true},
		"[2026-11-01T00:00:00.123] (APIServer pid=7) INFO 11-01 00:00:00 [l.py:1] ":                   {stepNs: 1e6},
		"vllm-1  | 2026-11-01T00:00:00.123456Z (APIServer pid=7) INFO 11-01 00:00:00 [l.py:1] ":       {ns: wall + 456000, stepNs: 1000, isWall: true},
		"default/pod-7 › vllm 2026-11-01T01:30:00,123+0130 ":                                          {ns: wall, stepNs: 1e6, isWall: true},
		"Nov 01 00:00:00.123456 host vllm[77]: INFO 11-01 00:00:00 [l.py:1] ":                         {stepNs: 1000},
		"web.1: 2026/11/01 00:00:00.123456 INFO 11-01 00:00:00 [l.py:1] ":                             {stepNs: 1000},
		"[1793491200.123456, {\"log\": \"INFO 11-01 00:00:00 [l.py:1] ":                               {ns: wall + 456000, stepNs: 1000, isWall: true},
		"2026-11-01T00:00:00.123456789Z stdout F INFO 11-01 00:00:00 [l.py:1] ":                       {ns: wall + 456789, stepNs: 1, isWall: true},
		"node-3 k8s_vllm <2026-11-01T00:00:00.123Z> INFO 11-01 00:00:00 [l.py:1] ":                    {ns: wall, stepNs: 1e6, isWall: true},
		"level=info ts=1793491200.123 ":                                                               {ns: wall, stepNs: 1e6, isWall: true},
		"INFO 11-01 00:00:00 [l.py:1] request cmpl-1793491200.5x-2 ":                                  {stepNs: 1e9},
		"INFO [l.py:1] build 2026-11-01 ":                                                             {},
	} {
		rows := read(t, newLogDecoder(), prefix+text).Rows
		if len(rows) != 1 {
			t.Errorf("%s: got %d passes", prefix, len(rows))
			continue
		}
		it := rows[0].Iteration
		if it.StampStepNs.V != want.stepNs || it.StampWall != want.isWall || want.isWall && it.StampNs.V != want.ns {
			t.Errorf("%s: got %d in steps of %d (wall %v), want %+v", prefix, it.StampNs.V, it.StampStepNs.V, it.StampWall, want)
		}
	}
}

// fpmEventLine is a record as Dynamo's documentation shows it, with our figures.
const fpmEventLine = `{"timestamp":12,"event":{"schema":"dynamo.fpm.trace.v1","source":{"namespace":"ns","component":"backend","producer_id":"p1"},"capture_mode":"full",
"observed_at_unix_ms":1795303303123,"fpm":{"version":1,"worker_id":"w7","dp_rank":0,"counter_id":41,"wall_time":0.0125,"scheduled_requests":{"num_prefill_requests":2,
"sum_prefill_tokens":300,"var_prefill_length":25.5,"sum_prefill_kv_tokens":64,"num_decode_requests":3,"sum_decode_kv_tokens":900,"var_decode_kv_tokens":4},
"queued_requests":{"num_prefill_requests":5,"sum_prefill_tokens":700,"var_prefill_length":0,"num_decode_requests":1,"sum_decode_kv_tokens":10,"var_decode_kv_tokens":0}}}}`

func TestFPM(t *testing.T) {
	want := passRecord{Engine: "w7", Iteration: trace.Iteration{Index: 41, Form: trace.IterationFPM, ElapsedUs: 12500,
		ContextReqs: 2, ContextTokens: 300, GenerationReqs: 3, GenerationTokens: 3, PromptVariance: trace.Some(25.5),
		ContextKVTokens: trace.Some[int64](64), DecodeKVTokens: trace.Some[int64](900), DecodeKVVariance: trace.Some(4.0),
		QueuedContext: trace.Some[int64](5), QueuedTokens: trace.Some[int64](700), QueuedDecode: trace.Some[int64](1), Line: 1}}
	stamp{1795303303123 * 1e6, 1e6, true}.set(&want.Iteration)
	if diff := cmp.Diff([]passRecord{want}, read(t, newFPMDecoder(), fpmEventLine).Rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for from, to := range map[string]string{
		`"full"`: `"sampled"`, `"dp_rank":0`: `"dp_rank":2`, `"worker_id":"w7",`: ``,
	} {
		if got := read(t, newFPMDecoder(), strings.Replace(fpmEventLine, from, to, 1)).Rows; len(got) != 1 || cmp.Equal(got[0], want) {
			t.Errorf("%s: got %+v, want another row", to, got)
		}
	}
	for from, to := range map[string]string{
		"trace.v1": "trace.v2", `"version":1`: `"version":2`, `0.0125`: `-1`, `"wall_time":0.0125,`: ``,
		`"sum_prefill_tokens":300`: `"sum_prefill_tokens":-3`, `}}}}`: `}}}`,
	} {
		if got := read(t, newFPMDecoder(), strings.Replace(fpmEventLine, from, to, 1)).Rows; len(got) != 0 {
			t.Errorf("%s: got %+v, want an error", to, got)
		}
	}
}

// TestRealLogs: the recordings of unmodified vLLM, by the figures of their README.
func TestRealLogs(t *testing.T) {
	root := repo.Shared(t, "data", "real_vllm_stock")
	for run, want := range map[string]int{"gqa-a": 5953, "mha-core": 8946} {
		in := []source.Input{{Path: filepath.Join(root, run, "server.log.zst"), Name: run}}
		var rows, rates, bad int
		var last, generated, context int64 = -1, 0, 0
		how := source.Options{Workers: 2, AnyText: true, Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 1000}}
		err := source.Stream(t.Context(), in, how, newLogDecoder, func(p *source.Parsed[*passLines]) error {
			p.Account(source.NewAccount(nil), run)
			for _, r := range p.Records.Rows {
				if r.isStatistics() {
					if r.HitRate.OK {
						rates++
					}
					continue
				}
				rows++
				if r.Index != last+1 {
					t.Errorf("%s line %d: iteration %d after %d", run, r.Line, r.Index, last)
				}
				last = r.Index
				generated += r.GenerationTokens
				context += r.ContextTokens
			}
			bad += len(p.Records.Bad)
			return nil
		})
		if err != nil || rows != want || bad != 0 || rates == 0 {
			t.Errorf("%s: got %d iterations, %d bad, %d hit rates, %v; want %d, none, some", run, rows, bad, rates, err, want)
		}
		t.Logf("%s: %d iterations, %d context and %d generation tokens", run, rows, context, generated)
	}
}

// FuzzLog and FuzzFPM: no line panics a reader, and a stamp that is given is in
// range.
func FuzzLog(f *testing.F) {
	docker := `{"log":"` + core25 + `\n","time":"2026-11-21T23:21:43Z"}`
	for _, s := range []string{core25, front32, "2026-11-21T23:21:43.123456789Z " + core25, docker} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkRows(t, read(t, newLogDecoder(), string(data))) })
}

func FuzzFPM(f *testing.F) {
	f.Add([]byte(fpmEventLine))
	f.Fuzz(func(t *testing.T, data []byte) { checkRows(t, read(t, newFPMDecoder(), string(data))) })
}

func checkRows(t *testing.T, got *passLines) {
	for _, r := range got.Rows {
		negative := min(r.ContextReqs, r.ContextTokens, r.GenerationReqs, r.GenerationTokens) < 0 || r.ElapsedUs < 0
		if negative || r.StampNs.OK && (r.StampNs.V < 0 || r.StampStepNs.V < 1) {
			t.Errorf("got %+v", r)
		}
	}
}

// BenchmarkLog is the speed on log text of which one line in ten is an iteration.
func BenchmarkLog(b *testing.B) {
	d := newLogDecoder()
	other := []byte(`(APIServer pid=3115) INFO:     127.0.0.1:42636 - "POST /v1/completions HTTP/1.1" 200 OK and more text to fill the line`)
	line := []byte(front32)
	b.SetBytes(int64(9*len(other) + len(line)))
	b.ReportAllocs()
	out := d.Records()
	for b.Loop() {
		out.Rows = out.Rows[:0]
		for range 9 {
			d.Line(other, out)
		}
		d.Line(line, out)
	}
}
