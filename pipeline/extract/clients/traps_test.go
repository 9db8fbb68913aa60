package clients

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// traceRows is a TraceV2 file of n requests, sent every gapUs, of tokens output tokens
// in chunks chunks, 1 s each.
func traceRows(n int, gapUs int64, tokens, chunks int) []string {
	out := []string{"request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,input_tokens," +
		"output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,server_input_tokens,arrival_time_us," +
		"send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason"}
	for i := range n {
		at := 1_000_000 + int64(i)*gapUs
		out = append(out, fmt.Sprintf("%d,c,t,,,0,,0,true,40,%d,0,0,0,0,0,m,0,40,%d,%d,%d,%d,%d,ok,,stop", i, tokens, at, at, at+100_000,
			at+1_000_000, chunks))
	}
	return out
}

const traceHeader = "trace_version: 2\ntime_unit: us\nmode: real\nwarm_up_requests: %d\nserver:\n    type: vllm\n    model: m\n" +
	"network:\n    measured_rtt_ms: 3\n"

// TestTraps: everything that files of clients are known to get wrong is found by
// name, and what can be put right is.
func TestTraps(t *testing.T) {
	always := []string{"the round trip takes", "neither it nor run.yaml states"}
	reversed := func(rows []string) []string {
		out := slices.Clone(rows)
		slices.Reverse(out[1:])
		return out
	}
	for name, c := range map[string]struct {
		rows   []string
		warmUp int
		says   []string
		is     func(rows []trace.ObservedRequest) bool
	}{
		"clean":   {traceRows(30, 3e6, 10, 10), 0, nil, nil},
		"shuffle": {reversed(traceRows(30, 3e6, 10, 10)), 0, []string{"sent before the one above them"}, nil},
		"warm-up missing": {renumbered(traceRows(30, 300_000, 10, 10), 50), 50, []string{"warm-up are not in the file"},
			func(rows []trace.ObservedRequest) bool {
				return rows[0].LoadOnly.V && rows[3].LoadOnly.V && !rows[4].LoadOnly.V // sent 1.2 s after the first, whose likes take 1 s
			}},
		"warm-up present": {traceRows(30, 300_000, 10, 10), 5, []string{"and the file has 5 of them"}, func(rows []trace.ObservedRequest) bool {
			return rows[4].LoadOnly.V && !rows[5].LoadOnly.V
		}},
		"one chunk more": {traceRows(30, 3e6, 10, 11), 0, []string{"one chunk more than tokens"}, func(rows []trace.ObservedRequest) bool {
			return rows[0].OutputTokens.V == 10 && rows[0].Chunks.V == 10
		}},
		"retokenised": {traceRows(30, 3e6, 8, 10), 0, []string{"chunks count"}, func(rows []trace.ObservedRequest) bool {
			return rows[0].OutputTokens.V == 10
		}},
		"two stamps a token": {traceRows(30, 3e6, 10, 20), 0, []string{"stamps a token"}, func(rows []trace.ObservedRequest) bool {
			return rows[0].OutputTokens.V == 10 && !rows[0].Chunks.OK
		}},
		"capped":      {capped(200, 8, 4e6), 0, []string{"the client kept at most"}, nil},
		"closed loop": {capped(200, 4, 1), 0, nil, nil},
		"columns": {withColumns(traceRows(30, 3e6, 10, 10)), 0, []string{"which are not known and not read"}, func(rows []trace.ObservedRequest) bool {
			return rows[0].FinishReason.OK == false
		}},
		"client's tokens": {replaced(traceRows(30, 3e6, 10, 10), ",m,0,40,", ",m,0,0,"), 0, []string{"the server counted 0"}, nil},
		"wall clock":      {onWallClock(traceRows(30, 1e4, 10, 10)), 0, []string{"of the wall clock"}, nil},
		"prefixes":        {replaced(traceRows(30, 3e6, 10, 10), ",0,,0,true,40", ",0,sys,32,true,8"), 0, []string{"share prefixes"}, nil},
	} {
		got := readFiles(t, map[string]string{"t.csv": strings.Join(c.rows, "\n") + "\n", "t.yaml": fmt.Sprintf(traceHeader, c.warmUp)})
		want := append(slices.Clone(always), c.says...)
		for _, words := range want {
			if !slices.ContainsFunc(got.Findings, func(f trace.Finding) bool { return strings.Contains(f.Message, words) }) {
				t.Errorf("%s: got %v, want one that says %q", name, got.Findings, words)
			}
		}
		if len(got.Findings) != len(want) {
			t.Errorf("%s: got the findings %v, want %q", name, got.Findings, want)
		}
		if c.is != nil && !c.is(got.Requests) {
			t.Errorf("%s: got %+v", name, got.Requests[:6])
		}
	}
	wrong := strings.Replace(fmt.Sprintf(traceHeader, 0), "model: m", "model: m\n    max_num_seqs: 32\n    tensor_parallel: 2", 1)
	got := readFiles(t, map[string]string{"t.csv": strings.Join(traceRows(5, 3e6, 10, 10), "\n"), "t.yaml": wrong})
	if !slices.Contains(found(got), "run_contradicted") {
		t.Errorf("got %v, want that the header denies run.yaml", got.Findings)
	}
}

// onWallClock moves the stamps to 2025.
func onWallClock(rows []string) []string {
	for i := range rows {
		rows[i] = regexp.MustCompile(`,([12]\d{6})`).ReplaceAllString(rows[i], ",175999999$1")
	}
	return rows
}

func replaced(rows []string, from, to string) []string {
	for i := 1; i < len(rows); i++ {
		rows[i] = strings.ReplaceAll(rows[i], from, to)
	}
	return rows
}

// renumbered gives the rows ids from n on.
func renumbered(rows []string, n int) []string {
	for i := 1; i < len(rows); i++ {
		_, rest, _ := strings.Cut(rows[i], ",")
		rows[i] = fmt.Sprintf("%d,%s", n+i-1, rest)
	}
	return rows
}

// capped is a client that sends bursts of twelve requests of 1 s each, but never has
// more than most in flight.
func capped(n, most int, periodUs int64) []string {
	rows := traceRows(1, 1, 10, 10)[:1]
	var busy []int64
	for i := range n {
		at := 1_000_000 + int64(i/12)*periodUs + int64(i%12)*20_000
		if len(busy) >= most {
			at = max(at, busy[len(busy)-most])
		}
		busy = append(busy, at+1_000_000+int64(i))
		rows = append(rows, fmt.Sprintf("%d,c,t,,,0,,0,true,40,10,0,0,0,0,0,m,0,40,%d,%d,%d,%d,10,ok,,stop", i, at, at, at+100_000,
			at+1_000_000+int64(i)))
	}
	return rows
}

// withColumns lacks the last column and has an unknown one.
func withColumns(rows []string) []string {
	for i := range rows {
		value := ",43"
		if i == 0 {
			value = ",shoe_size"
		}
		rows[i] = rows[i][:strings.LastIndexByte(rows[i], ',')] + value
	}
	return rows
}

// TestBlocksHeldAtOnce: requests that hold more than the cache contradict run.yaml, unless they may share what they hold.
func TestBlocksHeldAtOnce(t *testing.T) {
	for caching, odd := range map[bool]bool{false: true, true: false} {
		dep := &deploy.Deployment{TP: 1, Engine: vllm.Engine{BlockSize: 16, KVBlocksGPU: trace.Some(int64(20)), PrefixCaching: caching}}
		c := &Reader{Acc: source.NewAccount(nil)}
		for range 4 {
			c.Requests = append(c.Requests, trace.ObservedRequest{SendNs: trace.Some(int64(1000)), TTFTUs: trace.Some(5.0), E2EUs: trace.Some(500.0),
				PromptTokens: trace.Some(int64(100)), OutputTokens: trace.Some(int64(10))})
		}
		c.checkKVBlocks(dep)
		if got := slices.Contains(found(c), string(source.CodeRunContradicted)); got != odd {
			t.Errorf("prefix caching %v: contradicted %v, want %v (%v)", caching, got, odd, c.Findings)
		}
	}
}

// TestOddUnit: times that no device can have are of another unit.
func TestOddUnit(t *testing.T) {
	dep := &deploy.Deployment{TP: 1, Hardware: deploy.Hardware{BwPeakTBs: 3.35}}
	dep.Model = model.Model{NumLayers: 32, HiddenSize: 4096, HeadDim: 128, NumHeads: 32, NumKVHeads: 8, NumMLPProj: 3,
		IntermediateSize: 14336,
		VocabSize:        128_256, BytesPerWeight: 2, BytesPerLMHead: 2}
	for us, odd := range map[float64]bool{10_000: false, 10: true, 1e9: true} {
		c := &Reader{Acc: source.NewAccount(nil)}
		for range 10 {
			c.Requests = append(c.Requests, trace.ObservedRequest{Success: trace.Some(true), OutputTokens: trace.Some(int64(11)), TTFTUs: trace.Some(5.0),
				E2EUs: trace.Some(5 + 10*us)})
		}
		c.checkTimeUnit(dep)
		if got := slices.Contains(found(c), string(source.CodeRunContradicted)); got != odd {
			t.Errorf("%g us a token: called odd %v, want %v (%v)", us, got, odd, c.Findings)
		}
	}
}
