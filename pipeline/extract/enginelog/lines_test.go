package enginelog

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// passesIn are the passes of a log, as its engines' tables would hold them.
func passesIn(t *testing.T, text string) (rows []passRecord, bad, other int64) {
	t.Helper()
	d := newLogDecoder()
	out := &passLines{}
	for line := range strings.Lines(text) {
		if err := d.Line([]byte(strings.TrimSuffix(line, "\n")), out); err != nil {
			t.Fatal(err)
		}
	}
	last, all := map[string]int{}, out.Rows
	out.Rows = nil
	for _, next := range all {
		k, ok := last[next.Engine]
		if ok && next.Form == trace.IterationSGLang && next.Process != out.Rows[k].Process {
			out.Other++
			continue
		}
		out.Rows = append(out.Rows, next)
		i := len(out.Rows) - 1
		r := &out.Rows[i]
		if r.Index == unnumbered {
			if r.Index = 0; ok {
				r.Index = out.Rows[k].Index + 1
			}
		}
		if ok {
			completePass(&out.Rows[k], r)
		}
		last[r.Engine] = i
	}
	return out.Rows, int64(len(out.Bad)), out.Other
}

const sglangLog = `[2026-03-01 10:00:00 DP0 TP0] max_total_num_tokens=100000, chunked_prefill_size=8192
[2026-03-01 10:00:01 DP0 TP0] Prefill batch, #new-seq: 2, #new-token: 500, #cached-token: 128, token usage: 0.01, #running-req: 3, #queue-req: 4, #pending-token: 70, cuda graph: False, input throughput (token/s): 10.50
[2026-03-01 10:00:01 DP0 TP1] Prefill batch, #new-seq: 2, #new-token: 500, #cached-token: 128, token usage: 0.01, #running-req: 3, #queue-req: 4
[2026-03-01 10:00:02 DP0 TP0] Decode batch, #running-req: 5, #token: 1000, token usage: 0.02, cuda graph: True, gen throughput (token/s): 100.00, #queue-req: 0
[2026-03-01 10:00:02 DP0 TP0] Decode batch, #running-req: 5, #token: 1005, token usage: 0.02, accept len: 1.00, cuda graph: True, gen throughput (token/s): 100.00, #queue-req: 0
[2026-03-01 10:00:03 DP0 TP0] Decode batch, #running-req: 5, #token: 1205, token usage: 0.02, cuda graph: True, gen throughput (token/s): 100.00, #queue-req: 0
2026-03-01T10:00:04.123456789Z [2026-03-01 10:00:04] Prefill batch [17]. #new-seq: 1, #new-token: 10, #cached-token: 0, cache hit rate: 1.00%, full token usage: 0.30, swa token usage: 0.10, #running-req: 0, #queue-req: 0
`

// TestSGLangLines: figures are found by name in old and new lines; a decode that follows one of
// the same requests by more tokens than a pass makes is one of several.
func TestSGLangLines(t *testing.T) {
	rows, bad, other := passesIn(t, sglangLog)
	if len(rows) != 5 || bad != 0 || other != 2 {
		t.Fatalf("got %d passes, %d bad and %d other lines, want 5, 0 and 2: %+v", len(rows), bad, other, rows)
	}
	p := rows[0]
	if p.ContextReqs != 2 || p.ContextTokens != 500 || p.ContextKVTokens.V != 128 || p.KVUsage.V != 0.01 || p.QueuedContext.V != 4 ||
		p.QueuedTokens.V != 70 || p.Engine != "sglang 0" || p.StampStepNs.V != 1e9 {
		t.Errorf("prefill: got %+v", p)
	}
	if d := rows[1]; d.GenerationReqs != 5 || d.GenerationTokens != 5 || d.DecodeKVTokens.V != 1000 || d.Index != 1 {
		t.Errorf("decode: got %+v", d)
	}
	if rows[2].Sampled || !rows[3].Sampled {
		t.Errorf("got sampled %v and %v, want the second only", rows[2].Sampled, rows[3].Sampled)
	}
	if last := rows[4]; last.Index != 17 || last.KVUsage.OK || last.StampStepNs.V != 1 || last.Engine != "sglang 0" {
		t.Errorf("older line: got %+v", last)
	}
}

// TestSampledDecodes: prompts between two decodes do not hide that many passes lie between them.
func TestSampledDecodes(t *testing.T) {
	for passes, sampled := range map[int64]bool{1: false, 40: true} {
		a := passRecord{Iteration: trace.Iteration{Form: trace.IterationSGLang, GenerationReqs: 4, DecodeKVTokens: trace.Some(int64(1000))}}
		p := passRecord{Iteration: trace.Iteration{Form: trace.IterationSGLang, ContextReqs: 1, ContextTokens: 200}}
		p.ContextKVTokens = trace.Some(int64(64))
		b := passRecord{Iteration: trace.Iteration{Form: trace.IterationSGLang, GenerationReqs: 5, DecodeKVTokens: trace.Some(1264 + 5*passes)}}
		completePass(&passRecord{}, &a)
		completePass(&a, &p)
		completePass(&p, &b)
		if a.Sampled || p.Sampled || b.Sampled != sampled {
			t.Errorf("%d passes: got sampled %v, %v, %v, want the last %v", passes, a.Sampled, p.Sampled, b.Sampled, sampled)
		}
	}
}

const tensorrtLog = `[03/01/2026-10:00:00] [TRT-LLM] [I] iter = 1, global_rank = 0, rank = 0, currank_total_requests = 0/1, host_step_time = 250.1ms, prev_device_step_time = N/A, timestamp = 2026-03-01 10:00:00, num_scheduled_requests: 1, states = {'num_ctx_requests': 1, 'num_ctx_tokens': 300, 'num_generation_tokens': 0}
[TRT-LLM] [I] iter = 2, global_rank = 0, rank = 0, num_scheduled_requests = 3, kv_cache_util = 0.112, currank_total_requests = 0/1, host_step_time = 4.08ms, prev_device_step_time = 243.13ms, timestamp = 2026-03-01 10:00:01, states = {'num_ctx_requests': 1, 'num_ctx_tokens': 40, 'num_generation_tokens': 2, 'cached_kv_tokens': 64}
[TRT-LLM] [I] iter = 3, global_rank = 1, rank = 1, num_scheduled_requests = 2, host_step_time = 4.08ms, prev_device_step_time = 9.5ms, timestamp = 2026-03-01 10:00:01, states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 2}
[TRT-LLM] [I] iter = 3, global_rank = 0, rank = 0, num_scheduled_requests = 2, host_step_time = 5.00ms, prev_device_step_time = 9.5ms, timestamp = 2026-03-01 10:00:01, states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 2}
`

// TestMonthFirst: TensorRT-LLM's stamps are read with the year first or last; other texts are no stamps.
func TestMonthFirst(t *testing.T) {
	want := tensorrtStamp(nil, []byte("timestamp = 2026-08-23 10:00:01, states"))
	if got := tensorrtStamp(nil, []byte("timestamp = 08-23-2026 10:00:01, states")); got != want || want.stepNs != 1e9 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, text := range []string{"timestamp = 23-08-2026 10:00:01", "timestamp = 08-23-", "timestamp = 08-23-2026", "time"} {
		if got := tensorrtStamp(nil, []byte(text)); got.stepNs != 0 {
			t.Errorf("%s: got %+v, want none", text, got)
		}
	}
}

// TestSGLangHybridLines: models with windows or states name their full attention's pool.
func TestSGLangHybridLines(t *testing.T) {
	rows, bad, _ := passesIn(t, `[2026-04-18 23:02:14] Prefill batch, #new-seq: 1, #new-token: 2048, #cached-token: 64, full token usage: 0.36, mamba usage: 0.03, #running-req: 0
[2026-04-18 23:02:15] Decode batch, #running-req: 2, #full token: 95186, full token usage: 0.36, mamba num: 2, mamba usage: 0.03, cuda graph: True, gen throughput (token/s): 0.14, #queue-req: 3
[2026-04-18 23:02:16] Decode batch. #running-req: 4, #full token: 96000, full token usage: 0.40, #swa token: 900, swa token usage: 0.10, #running-req per DP: [1, 2], #queue-req: 0
`)
	if len(rows) != 3 || bad != 0 || rows[1].DecodeKVTokens.V != 95186 || rows[1].KVUsage.OK || rows[1].QueuedContext.V != 3 ||
		rows[2].GenerationReqs != 4 || rows[2].DecodeKVTokens.V != 96000 {
		t.Errorf("got %d bad lines, %+v", bad, rows)
	}
}

// TestSGLangInterval: the throughputs of most decodes show that a log has one of several, whatever ran between;
// throughputs that never change show nothing.
func TestSGLangInterval(t *testing.T) {
	for name, c := range map[string]struct {
		perS    func(k int) float64
		sampled bool
	}{
		"each":         {func(k int) float64 { return float64(1+k%3) / 0.01 }, false},
		"one in three": {func(k int) float64 { return 3.1 * float64(1+k%3) / 0.01 }, true},
		"constant":     {func(int) float64 { return 5000 }, false},
	} {
		var log strings.Builder
		for k := range 30 {
			fmt.Fprintf(&log, "2026-03-01T10:00:%02d.%02d0000Z [2026-03-01 10:00:%02d] Decode batch, #running-req: %d, #token: %d, "+
				"token usage: 0.02, gen throughput (token/s): %.2f, #queue-req: 0\n", k/100, k%100, k/100, 1+k%3, 100-k, c.perS(k))
		}
		rows, bad, _ := passesIn(t, log.String())
		if len(rows) != 30 || bad != 0 || rows[29].Sampled != c.sampled {
			t.Errorf("%s: %d decodes, %d bad, sampled %v, want %v: %+v", name, len(rows), bad, rows[29].Sampled, c.sampled, rows[29])
		}
	}
}

// TestTensorRTLines: the device time of a pass is in the line behind it; other ranks are copies.
func TestTensorRTLines(t *testing.T) {
	rows, bad, _ := passesIn(t, tensorrtLog)
	if len(rows) != 3 || bad != 0 {
		t.Fatalf("got %d passes and %d bad lines, want 3 and 0: %+v", len(rows), bad, rows)
	}
	for i, want := range []float64{243130, 9500, 5000} {
		if rows[i].ElapsedUs != want {
			t.Errorf("pass %d: got %g us, want %g", i+1, rows[i].ElapsedUs, want)
		}
	}
	if p := rows[1]; p.GenerationReqs != 2 || p.GenerationTokens != 2 || p.ContextReqs != 1 || p.ContextTokens != 40 ||
		p.ContextKVTokens.V != 64 || p.KVUsage.V != 0.112 || p.StampStepNs.V != 1e9 {
		t.Errorf("got %+v", p)
	}
}

const statsLog = `{"cpuMemUsage":0,"inflightBatchingStats":{"numContextRequests":1,"numCtxTokens":300,"numCtxKvTokens":64,"numGenRequests":0,"numGenKvTokens":0},"iter":7,"iterLatencyMS":12.5,"kvCacheStats":{"maxNumBlocks":100},"numActiveRequests":1,"numQueuedRequests":3,"specDecodingStats":null,"timestamp":"03-01-2026 10:00:01.500000"}
[{"iter": 8, "iterLatencyMS": 4.25, "inflightBatchingStats": {"numContextRequests": 0, "numCtxTokens": 0, "numGenRequests": 2}, "specDecodingStats": {"numDraftTokens": 3, "iterLatencyMS": 9.0}, "timestamp": "03-01-2026 10:00:02.250000"}, {"iter": 9, "iterLatencyMS": 4.5, "attentionDpRank": 1, "inflightBatchingStats": {"numContextRequests": 0, "numCtxTokens": 0, "numGenRequests": 1, "numGenKvTokens": 801}, "timestamp": ""}]
{"iter": 9, "iterLatencyMS": 5.0, "inflightBatchingStats": {"numContextRequests": 2, "numCtxTokens": 0, "numGenRequests": 0}, "timestamp": "03-01-2026 10:00:03.000000"}
[]
`

// TestTensorRTStatistics: get_stats and /metrics write objects or arrays of them; prompts whose tokens
// are not counted are faults, and stamps of a pass's beginning tell no cadence.
func TestTensorRTStatistics(t *testing.T) {
	rows, bad, other := passesIn(t, statsLog)
	if len(rows) != 3 || bad != 1 || other != 1 {
		t.Fatalf("got %d passes, %d bad and %d other lines, want 3, 1 and 1: %+v", len(rows), bad, other, rows)
	}
	if p := rows[0]; p.Index != 7 || p.ElapsedUs != 12500 || p.ContextReqs != 1 || p.ContextTokens != 300 || p.ContextKVTokens.V != 64 ||
		p.QueuedContext.V != 3 || p.StampNs.OK {
		t.Errorf("got %+v", p)
	}
	if p := rows[1]; p.ElapsedUs != 4250 || p.GenerationReqs != 2 || p.GenerationTokens != 5 || p.DecodeKVTokens.OK ||
		p.Engine != "tensorrt 0" {
		t.Errorf("got %+v", p)
	}
	if p := rows[2]; p.Engine != "tensorrt 1" || p.DecodeKVTokens.V != 801 || p.StampNs.OK {
		t.Errorf("got %+v", p)
	}
}

// TestBrokenPassLines: of sixty variants of each form with something missing, changed or cut,
// every line is a pass, a counted fault or another line, and no figure is out of its range.
func TestBrokenPassLines(t *testing.T) {
	for name, text := range map[string]string{"sglang": sglangLog, "tensorrt": tensorrtLog, "statistics": statsLog,
		"vllm": strings.Repeat(front32+"\n"+core25+"\n", 2),
		"hit rates": strings.Repeat("INFO 11-23 08:52:49 [loggers.py:335] Engine 001: Avg prompt throughput: 53.4 tokens/s, Running: 2 reqs, "+
			"GPU KV cache usage: 2.0%, Prefix cache hit rate: 12.5%\n", 2)} {
		lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
		rng := rand.New(rand.NewPCG(39, uint64(len(name))))
		faults := 0
		for k := range 60 {
			line := lines[1+k%(len(lines)-1)]
			if len(line) < 4 {
				line = lines[0]
			}
			at := rng.IntN(len(line) - 1)
			switch k % 6 {
			case 0:
				line = line[:at]
			case 1:
				line = line[:at] + line[at+1:]
			case 2:
				line = strings.Replace(line, ": ", ": -", 1+k%4)
			case 3:
				line = strings.ReplaceAll(line, "0", "99999999999999999999")
			case 4:
				line = line[:at] + line
			case 5:
				line = strings.ReplaceAll(line, fmt.Sprint(k%10), "x")
			}
			rows, bad, other := passesIn(t, strings.TrimSuffix(line, "\n")+"\n")
			if int64(len(rows))+bad+other < 1 {
				t.Errorf("%s %d: nothing came of %q", name, k, line)
			}
			faults += int(bad)
			for _, r := range rows {
				if r.ContextReqs < 0 || r.ContextTokens < r.ContextReqs || r.GenerationReqs < 0 || r.KVUsage.V > 1 || r.ElapsedUs < 0 ||
					r.HitRate.V > 1 || r.HitRate.V < 0 || (r.Form == trace.IterationLog) != (name == "vllm") && !r.isStatistics() {
					t.Errorf("%s %d: got %+v of %q", name, k, r, line)
				}
			}
		}
		if faults < 10 && name != "hit rates" { // other lines
			t.Errorf("%s: %d of 60 broken lines are faults, want at least 10", name, faults)
		}
	}
}

// TestHitRateLines: the hit rate of the prefix cache is read from vLLM's line of statistics, with the engine it is of.
func TestHitRateLines(t *testing.T) {
	const stats = "Avg prompt throughput: 53.4 tokens/s, Running: 2 reqs, GPU KV cache usage: 2.0%, "
	for line, want := range map[string]struct {
		engine string
		share  float64
	}{
		"INFO 11-23 08:52:49 [loggers.py:335] Engine 001: " + stats + "Prefix cache hit rate: 12.5%":    {"1", 0.125},
		`{"log":"Engine 000: ` + stats + `Prefix cache hit rate: 0.0%, MM cache hit rate: 3.0%\n"}`:     {"0", 0},
		"\x1b[36m(APIServer pid=1)\x1b[0;0m INFO Engine 012: " + stats + "Prefix cache hit rate: 50.0%": {"12", 0.5},
		stats + "External prefix cache hit rate: 50.0%":                                                 {},
		stats + "Prefix cache hit rate: GPU: 0.00%":                                                     {},
		stats + "Prefix cache hit rate: 112.0%":                                                         {},
	} {
		got := read(t, newLogDecoder(), line).Rows
		if want.engine == "" && len(got) == 0 {
			continue
		}
		if len(got) != 1 || got[0].Engine != want.engine || got[0].HitRate.V != want.share {
			t.Errorf("%s: got %+v, want %+v", line, got, want)
		}
	}
}
