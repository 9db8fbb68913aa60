package tracev2

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// file holds every column: prefix groups, a session of three rounds, tokens as
// the server counted them, a row that failed.
const file = `request_id,client_id,tenant_id,slo_class,vllm_priority,session_id,round_index,prefix_group,prefix_length,streaming,` +
	`input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,slo_target_us,` +
	`server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason,` +
	`x_request_id,adapter,think_time_us
0,c,t,chat,2,,0,sys,512,true,100,7,100,0,0,0,0,m,0,90,0,10,20,30,40,7,ok,,stop,u-0,,0
1,c,t,chat,0,,0,sys,512,true,100,7,100,0,0,0,0.25,m,300000010,0,640,10,20,30,40,7,ok,,stop,u-1,lora,0
2,c,t,,0,s,0,sys,512,false,30,5,30,0,0,0,0,,0,0,0,100,0,0,0,0,ok,,,,,0
3,c,t,,0,s,1,sys,512,false,20,6,20,0,0,0,0,,0,0,0,200,0,0,0,0,timeout,"no answer, in time",,,,1500
4,c,t,,0,s,2,,0,false,10,4,10,0,0,0,0,,0,0,0,300,0,0,0,0,incomplete,,,,,2500
`

const header = "trace_version: 3\ntime_unit: microseconds\nmode: real\nwarm_up_requests: 1\nserver:\n    model: m\n"

func readAll(t *testing.T, text string, h *Header) (*Reader, []Record) {
	t.Helper()
	r, err := NewReader(strings.NewReader(text), "f", h)
	if err != nil {
		t.Fatal(err)
	}
	var recs []Record
	for {
		rec, err := r.Read()
		if err == io.EOF {
			return r, recs
		}
		if err != nil {
			t.Fatalf("line %d: %v", r.Line(), err)
		}
		recs = append(recs, rec)
	}
}

// TestRowsAreRead: a file with prefix groups, sessions and tokens as the server counted them.
func TestRowsAreRead(t *testing.T) {
	r, recs := readAll(t, header+"---\n"+file, nil)
	if r.Header != (Header{Version: 3, TimeUnit: "microseconds", Mode: "real", WarmUpRequests: 1, Server: Server{Model: "m"}}) ||
		r.Line() != 13 {
		t.Errorf("got %+v, line %d", r.Header, r.Line())
	}
	want := Record{RequestID: "1", SLOClass: "chat", Priority: trace.Some[int64](0), PrefixGroup: "sys", PrefixTokens: 512, Streaming: true,
		SuffixTokens: 100, OutputTokens: 7, DeadlineUs: 300000010, ServerPromptTokens: 640, ArrivalUs: 10, SendUs: 20, FirstChunkUs: 30,
		LastChunkUs: 40, Chunks: 7, Status: "ok", FinishReason: "stop"}
	if d := cmp.Diff(want, recs[1], cmpopts.IgnoreUnexported(Record{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if r := recs[3]; r.SessionID != "s" || r.Round != 1 || r.Status != "timeout" || r.Error != "no answer, in time" || r.Streaming {
		t.Errorf("got %+v", r)
	}
	if _, bare := readAll(t, file, nil); cmp.Diff(recs, bare, cmpopts.IgnoreUnexported(Record{})) != "" {
		t.Error("rows without a header differ")
	}
}

// TestPromptIsPrefixAndSuffix: input_tokens stand beside prefix_length; what the
// server counted is the whole; sessions grow where the header says so.
func TestPromptIsPrefixAndSuffix(t *testing.T) {
	for _, c := range []struct {
		growth string
		want   []int64
	}{
		{"", []int64{612, 640, 542, 532, 10, 10}},
		{accumulate, []int64{612, 640, 542, 567, 583, 10}}, // 542 + 5 + 20, 567 + 6 + 10, and a request of no session after them
	} {
		_, recs := readAll(t, file+"5,c,t,,0,,0,,0,false,10,4,10,0,0,0,0,,0,0,0,300,0,0,0,0,ok,,,,,0\n", &Header{Version: 2, Growth: c.growth})
		var got []int64
		for i := range recs {
			got = append(got, recs[i].PromptTokens())
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("growth %q: prompts (-want +got):\n%s", c.growth, d)
		}
	}
}

// TestHeaderIsRead: what it says is used or refused, never ignored.
func TestHeaderIsRead(t *testing.T) {
	for text, want := range map[string]string{
		"trace_version: 4\n":                                     "trace_version: got 4",
		"time_unit: microseconds\n":                              "trace_version: got 0",
		"trace_version: 2\ntime_unit: ms\n":                      `time_unit: got "ms"`,
		"trace_version: 2\nsession_context_growth: Accumulate\n": `got "Accumulate"`,
		"trace_version: two\n":                                   "header",
		"trace_version: 2\ntrace_version: 3\n":                   "twice",
		"trace_version: [\n":                                     "f:",
		"<html>\n":                                               "header",
	} {
		_, err := NewReader(strings.NewReader(text+file), "f", nil)
		if e := (*trace.SyntaxError)(nil); !errors.As(err, &e) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q with a place", text, err, want)
		}
	}
	if _, err := NewReader(strings.NewReader(header), "f", nil); !errors.Is(err, ErrHeaderOnly) {
		t.Errorf("got %v of a header alone", err)
	}
	r, _ := readAll(t, "trace_version: 2\nsession_context_growth: accumulate\n"+file, &Header{Version: 2})
	if r.Header.Growth != accumulate {
		t.Error("a header in front of the rows goes before another one")
	}
}

// TestLostRows: a row that is no request is one error with its line; those after
// it are read.
func TestLostRows(t *testing.T) {
	const head = "request_id,session_id,round_index,input_tokens,output_tokens\n"
	for row, want := range map[string]string{
		"1,,0,x,1":                   "input_tokens",
		"1,,0,-1,1":                  "got -1 tokens",
		"1,,0,9223372036854775807,1": "tokens",
		",,0,1,1":                    "empty request_id",
		"1,,0,1":                     "got 4 fields",
		"1,s,2,1,1":                  "round 2 after -1",
		"1,s,0,a\"b,1":               "bare",
	} {
		r, err := NewReader(strings.NewReader("trace_version: 2\nsession_context_growth: accumulate\n"+head+"0,,0,1,1\n"+row+"\n2,,0,1,1\n"), "f",
			nil)
		if err != nil {
			t.Fatal(err)
		}
		var lost *RowError
		if _, err := r.Read(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(); !errors.As(err, &lost) || !strings.Contains(err.Error(), want) || r.Line() != 5 {
			t.Errorf("%q: got %v at line %d, want %q at 5", row, err, r.Line(), want)
		}
		if rec, err := r.Read(); err != nil || rec.RequestID != "2" {
			t.Errorf("%q: got %v and %v after it", row, rec, err)
		}
	}
	for _, names := range []string{"request_id,input_tokens,input_tokens", "request_id,output_tokens"} {
		if _, err := NewReader(strings.NewReader(names+"\n1,2,3\n"), "f", nil); err == nil {
			t.Errorf("%s: got no error", names)
		}
	}
}

// TestTimesOfSends: the time of the send, or else the planned arrival.
func TestTimesOfSends(t *testing.T) {
	for sendUs, want := range map[int64]int64{0: 70, 1: 1, 90: 90} {
		if got := (&Record{ArrivalUs: 70, SendUs: sendUs}).SentUs(); got != want {
			t.Errorf("sent at %d us, planned at 70: got %d, want %d", sendUs, got, want)
		}
	}
}

// TestLimitsOfValues: the largest count and the times farthest from 0 are read, and the next ones are not.
func TestLimitsOfValues(t *testing.T) {
	for _, c := range []struct {
		column string
		value  int64
		want   string // part of the error, "" without one
	}{
		{"input_tokens", 1 << 40, ""},
		{"input_tokens", 1<<40 + 1, "got 1099511627777 tokens, want 0 to 1099511627776"},
		{"output_tokens", 0, ""},
		{"output_tokens", -1, "got -1 tokens"},
		{"prefix_length", 1<<40 + 1, "got 1099511627777 tokens"},
		{"server_input_tokens", 1<<40 + 1, "got 1099511627777 tokens"},
		{"arrival_time_us", 1 << 53, ""},
		{"arrival_time_us", -1 << 53, ""},
		{"arrival_time_us", 1<<53 + 1, "got the time 9007199254740993 us, want at most 9007199254740992"},
		{"arrival_time_us", -1<<53 - 1, "got the time -9007199254740993 us"},
		{"send_time_us", 1<<53 + 1, "got the time"},
		{"first_chunk_time_us", 1<<53 + 1, "got the time"},
		{"last_chunk_time_us", 1<<53 + 1, "got the time"},
		{"deadline_us", 1<<53 + 1, "got the time"},
		{"slo_target_us", 1<<53 + 1, "got the time"},
	} {
		other := "input_tokens"
		if c.column == other {
			other = "output_tokens"
		}
		r, err := NewReader(strings.NewReader(fmt.Sprintf("trace_version: 2\nrequest_id,%s,%s\na,1,%d\n", other, c.column, c.value)), "f", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %d: got %v, want %q", c.column, c.value, err, c.want)
		}
	}
}

// FuzzReader: no text panics the reader or keeps it.
func FuzzReader(f *testing.F) {
	f.Add(header + file)
	f.Add("trace_version: 2\nsession_context_growth: accumulate\n" + file)
	f.Add("request_id,input_tokens\n1,\"2\n3,4\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := NewReader(strings.NewReader(text), "f", nil)
		if err != nil {
			return
		}
		for n := 0; ; n++ {
			rec, err := r.Read()
			if err == io.EOF {
				return
			}
			if err == nil && rec.PromptTokens() < 0 {
				t.Errorf("got a prompt of %d tokens", rec.PromptTokens())
			}
			if n > len(text) {
				t.Fatal("got more rows than bytes")
			}
		}
	})
}

// TestPlainLinesAreCSV: lines without quotes, which are cut at their commas, give what the csv package makes of them: records,
// lost rows, the words of both and their lines. A quoted column name has it read the whole file.
func TestPlainLinesAreCSV(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	parts := []string{"1", "0", "-7", "+3", " 5", "5 ", "\u00a08", "9\u2003", "x", "", " ", "\t2\r", "99999999999999999999",
		"true", "ok", "g1", "\"q,1\"", "a\"b", "\"two\nlines\"", "\"open"}
	ends := []string{"\n", "\n", "\n", "\r\n", "\n\n", "\n\r\n", "\r\r\n"}
	names := []string{"input_tokens", "output_tokens", "slo_class", "streaming", "vllm_priority", "status", "unheard_of"}
	for i := range 4000 {
		var rows strings.Builder
		plain := rng.IntN(4) > 0
		for range 1 + rng.IntN(8) {
			fields := []string{"r" + strconv.Itoa(i)}
			for range names[rng.IntN(2):] {
				at := rng.IntN(len(parts))
				if plain {
					at %= len(parts) - 4
				}
				if rng.IntN(2) == 0 {
					at = 0
				}
				fields = append(fields, parts[at])
			}
			rows.WriteString(strings.Join(fields, ",") + ends[rng.IntN(len(ends))])
		}
		text := strings.TrimRight(rows.String(), "\n"[:rng.IntN(2)])
		var want, got []string
		for k, list := range []*[]string{&want, &got} {
			first := []string{"\"input_tokens\"", "input_tokens"}[k]
			r, err := NewReader(strings.NewReader("trace_version: 2\nrequest_id,"+first+","+strings.Join(names[1:], ",")+"\n"+text), "f", nil)
			if err != nil {
				t.Fatal(err)
			}
			for err != io.EOF {
				var rec Record
				rec, err = r.Read()
				if err != nil && !errors.As(err, new(*RowError)) && err != io.EOF {
					t.Fatal(err)
				}
				*list = append(*list, fmt.Sprintf("%d: %+v, %v", r.Line(), rec, err))
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%q: (-csv +cut):\n%s", text, d)
		}
	}
}

// TestColumnsThatDiffer: a column of another program is unknown, and one that BLIS always writes is missing.
func TestColumnsThatDiffer(t *testing.T) {
	r, _ := readAll(t, header+"---\n"+file, nil)
	if missing, unknown := r.Differ(); missing != nil || unknown != nil {
		t.Errorf("a file of BLIS: got %v missing, %v unknown", missing, unknown)
	}
	other := strings.Replace(strings.Replace(file, "tenant_id", "colour", 1), "x_request_id", "y_request_id", 1)
	r, _ = readAll(t, header+"---\n"+other, nil)
	missing, unknown := r.Differ()
	if !cmp.Equal(missing, []string{"tenant_id"}) || !cmp.Equal(unknown, []string{"colour", "y_request_id"}) {
		t.Errorf("got %v missing, %v unknown", missing, unknown)
	}
}
