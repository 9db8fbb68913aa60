package enginelog

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace"
)

// A pass by names and in the orders of the structs: Dynamo's and SGLang's, native vLLM's, SGLang's
// of before.
const (
	fpmBatches = `{"num_prefill_requests":2,"sum_prefill_tokens":300,"var_prefill_length":25.5,"sum_prefill_kv_tokens":64,` +
		`"num_decode_requests":3,"sum_decode_kv_tokens":900,"var_decode_kv_tokens":4},"queued_requests":{"num_prefill_requests":5,` +
		`"sum_prefill_tokens":700,"var_prefill_length":0,"num_decode_requests":1,"sum_decode_kv_tokens":10,"var_decode_kv_tokens":0}`
	fpmNamed  = `{"version":1,"worker_id":"w7","dp_rank":0,"counter_id":41,"wall_time":0.0125,"scheduled_requests":` + fpmBatches + `}`
	fpmScoped = `{"version":1,"worker_id":"w7","dp_rank":0,"counter_id":41,"timing_scope":"execute_model_cuda","wall_time":0.0125,` +
		`"scheduled_requests":` + fpmBatches + `}`
	fpmLists   = `0.0125,[2,300,25.5,64,3,900,4.0],[5,700,0.0,1,10,0.0]]`
	fpmDynamo  = `[1,"w7",0,41,` + fpmLists
	fpmNative  = `[1,"w7",0,41,"execute_model_cuda",` + fpmLists
	fpmOlder   = `["w7",0,` + fpmLists
	fpmWrapped = `{"event":{"schema":"dynamo.fpm.trace.v1","source":{"producer_id":"tcp://a:1"},"capture_mode":"full",` +
		`"observed_at_unix_ms":1795303303123,"sequence":41,"fpm":`
)

// fpmRow is the pass of the texts above.
func fpmRow() passRecord {
	return passRecord{Engine: "w7", Iteration: trace.Iteration{Index: 41, Form: trace.IterationFPM, ElapsedUs: 12500,
		ContextReqs: 2, ContextTokens: 300, GenerationReqs: 3, GenerationTokens: 3, PromptVariance: trace.Some(25.5),
		ContextKVTokens: trace.Some[int64](64), DecodeKVTokens: trace.Some[int64](900), DecodeKVVariance: trace.Some(4.0),
		QueuedContext: trace.Some[int64](5), QueuedTokens: trace.Some[int64](700), QueuedDecode: trace.Some[int64](1), Line: 1}}
}

// TestFPMForms: the same pass from every form, alone and in an envelope, which has its stamp; a
// file of each is known by its beginning.
func TestFPMForms(t *testing.T) {
	for name, text := range map[string]string{"names": fpmNamed, "names with a scope": fpmScoped, "list": fpmDynamo,
		"list with a scope": fpmNative, "list without version and counter": fpmOlder} {
		want := fpmRow()
		if text == fpmOlder {
			want.Index = unnumbered
		}
		for _, line := range []string{text, strings.ReplaceAll(strings.ReplaceAll(text, ",", " , "), ":", " : ")} {
			if diff := cmp.Diff([]passRecord{want}, read(t, newFPMDecoder(), line).Rows); diff != "" {
				t.Errorf("%s: (-want +got):\n%s", name, diff)
			}
		}
		want.Index = 41
		stamp{1795303303123 * 1e6, 1e6, true}.set(&want.Iteration)
		if diff := cmp.Diff([]passRecord{want}, read(t, newFPMDecoder(), fpmWrapped+text+`}}`).Rows); diff != "" {
			t.Errorf("%s in an envelope: (-want +got):\n%s", name, diff)
		}
		for _, head := range []string{text, fpmWrapped + text + `}}`} {
			if !IsPassTrace([]byte(head + "\n" + head)) {
				t.Errorf("%s: not known by its beginning: %s", name, head)
			}
		}
	}
	for _, other := range []string{``, `[1.1,[["BlockStored",[1],null,[1],16,null,"GPU",null]],0,null]`, `{"id":"1"}`, `[{"start_time":1}]`} {
		if IsPassTrace([]byte(other)) {
			t.Errorf("%s: taken for passes", other)
		}
	}
}

// TestBrokenPasses: of sixty variants of each form with something missing, changed or cut, each
// is a fault with a place, or leaves the counts and the time as they were.
func TestBrokenPasses(t *testing.T) {
	rng := rand.New(rand.NewPCG(39, 13))
	for name, text := range map[string]string{"names": fpmNamed, "scope": fpmScoped, "list": fpmDynamo, "native": fpmNative, "older": fpmOlder,
		"envelope": fpmWrapped + fpmNative + `}}`} {
		faults := 0
		for k := range 60 {
			at := 1 + rng.IntN(len(text)-2)
			broken := text
			switch k % 6 {
			case 0:
				broken = text[:at]
			case 1:
				broken = strings.Replace(text, "0.0125", []string{"-1", "1e400", `"x"`, "null", "1e13", "[1]", "", "{}", "NaN", "0.01.2"}[k/6], 1)
			case 2:
				broken = strings.Replace(text, []string{"300", "900", "64", "700", "25.5"}[k/6%5], []string{"-3", `"x"`}[k/30], 1)
			case 3:
				broken = text[:at] + strings.Replace(text[at:], []string{",", "0", "]"}[k/6%3], "", 1)
			case 4:
				broken = text[:at] + []string{"x", "]", "\x00", `"`, ",,"}[k/6%5] + text[at:]
			case 5:
				broken = strings.Replace(text, "version", "\\u00", 1) + "}"
			}
			out := &passLines{}
			err := newFPMDecoder().Line([]byte(broken), out)
			if err != nil {
				if faults++; err.Msg == "" {
					t.Errorf("%s %d: %v says nothing", name, k, err)
				}
				continue
			}
			want, got := fpmRow(), out.Rows[0].Iteration
			if k%6 < 2 && got.ElapsedUs != want.ElapsedUs && broken != text ||
				got.ContextReqs < 0 || got.ContextTokens < 0 || got.GenerationReqs < 0 {
				t.Errorf("%s %d: got %+v of %q", name, k, got, broken)
			}
		}
		if faults < 40 {
			t.Errorf("%s: %d of 60 broken passes are faults, want at least 40", name, faults)
		}
	}
}

// packed is a value as msgpack writes it.
func packed(v any) []byte {
	switch v := v.(type) {
	case string:
		return append([]byte{0xd9, byte(len(v))}, v...)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return binary.BigEndian.AppendUint64([]byte{0xd3}, uint64(n))
		}
		f, _ := v.Float64()
		return binary.BigEndian.AppendUint64([]byte{0xcb}, math.Float64bits(f))
	case []any:
		out := []byte{0xdc, 0, byte(len(v))}
		for _, x := range v {
			out = append(out, packed(x)...)
		}
		return out
	case map[string]any:
		out := []byte{0xde, 0, byte(len(v))}
		for k, x := range v {
			out = append(append(out, packed(k)...), packed(x)...)
		}
		return out
	}
	return []byte{0xc0}
}

// TestRecorder: the messages of an engine, recorded in Python, are the passes; gaps of sequence
// numbers and messages that cannot be read are counted.
func TestRecorder(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("skipped: no python3 on PATH")
	}
	var in strings.Builder
	send := func(sequence uint64, payload []byte) {
		in.WriteString(hex.EncodeToString(binary.BigEndian.AppendUint64(nil, sequence)) + " " + hex.EncodeToString(payload) + "\n")
	}
	texts := []string{fpmNamed, fpmScoped, fpmDynamo, fpmNative, fpmOlder}
	for i, text := range texts {
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		var v any
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		send(uint64(41+2*i), packed(v))
	}
	whole := packed([]any{json.Number("1"), "w"})
	for i, bad := range [][]byte{{}, whole[:4], append(bytes.Clone(whole), 0), {0xc1}, packed("text"), {0xdd, 255, 255, 255, 255},
		bytes.Repeat([]byte{0x91}, 99), packed(json.Number("1e999"))} {
		send(uint64(50+i), bad)
	}
	cmdline := exec.Command(python, filepath.Join(repo.Root(t), "python", "tests", "recorder.py"))
	cmdline.Stdin = strings.NewReader(in.String())
	out, err := cmdline.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if want := "13 messages, 4 missing between sequence numbers, 8 unreadable"; lines[len(lines)-1] != want {
		t.Errorf("got %q, want %q", lines[len(lines)-1], want)
	}
	rows := read(t, newFPMDecoder(), lines[:len(lines)-1]...).Rows
	if len(rows) != len(texts) {
		t.Fatalf("got %d passes, want %d", len(rows), len(texts))
	}
	for i := range rows {
		want := fpmRow()
		if want.Line = int64(i + 1); texts[i] == fpmOlder {
			want.Index = 49
		}
		stamp{1795303303123 * 1e6, 1e6, true}.set(&want.Iteration)
		if diff := cmp.Diff(want, rows[i]); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", texts[i], diff)
		}
	}
}
