package clients

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// TestGuideLLMIsStreamed: a result file takes the memory of its rows, not of its
// bytes; what is around the requests may come in any order.
func TestGuideLLMIsStreamed(t *testing.T) {
	const n = 400
	path := filepath.Join(t.TempDir(), "g.json")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	body := strconv.Quote(strings.Repeat("lorem ipsum ", 1<<13)) // 96 kB, as prompts with documents have
	fmt.Fprintf(f, `{"guidellm_version":"0.4.0","args":{"x":[1,{"y":null}]},"benchmarks":[{"metrics":{"a":[1,2]},"requests":{"total":[%s],"errored":null,"successful":[`, body)
	for i := range n {
		if i > 0 {
			fmt.Fprint(f, ",")
		}
		fmt.Fprintf(f, `{"request_id":"r%d","request_start_time":1.5,"prompt_tokens":40,"request_args":{"stream":true,"body":{"max_tokens":8,"prompt":%s}}}`, i, body)
	}
	fmt.Fprint(f, `]},"config":{"strategy":{"type_":"constant"}}}]}`)
	size, _ := f.Seek(0, 1)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	in := []source.Input{{Path: path, Name: "g.json"}}
	c := &Reader{Names: in, Acc: source.NewAccount(nil)}
	if err := c.ReadFile(&in[0], source.Options{Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if len(c.Requests) != n || c.Requests[0].Phase.V != "constant" || c.Requests[n-1].AskedTokens.V != 8 || in[0].Gave != n || c.Acc.Bytes != size {
		t.Errorf("got %d rows, the first %+v, %d of %d bytes", len(c.Requests), c.Requests[0], c.Acc.Bytes, size)
	}
	if grown := int64(after.HeapSys - before.HeapSys); grown > size/3 {
		t.Errorf("the heap grew by %d MB for a file of %d MB", grown>>20, size>>20)
	}
}

// TestBrokenGuideLLM: what is cut or of another form is an error with what was
// read before it.
func TestBrokenGuideLLM(t *testing.T) {
	const good = `{"guidellm_version":"1","benchmarks":[{"requests":{"successful":[{"request_id":"a","request_start_time":1},{"request_id":"b","request_start_time":1}]}}]}`
	type lost = map[string]int64
	for _, c := range []struct {
		text string
		rows int
		lost lost
	}{
		{good, 2, lost{}},
		{good[:len(good)-10], 1, lost{"file_cut": 1}},
		{strings.Replace(good, `[{"request_id":"a","request_start_time":1},`, `[7,`, 1), 0, lost{"unreadable": 1}},
		{strings.Replace(good, `{"successful"`, `[{"successful"`, 1), 0, lost{"unreadable": 1}},
		{strings.Replace(good, `"benchmarks":[`, `"benchmarks":null,"x":[`, 1), 0, lost{"unknown_client_file": 1}},
	} {
		path := filepath.Join(t.TempDir(), "g.json")
		repo.Write(t, c.text, path)
		in := []source.Input{{Path: path, Name: "g.json"}}
		r := &Reader{Names: in, Acc: source.NewAccount(nil)}
		if err := r.ReadFile(&in[0], source.Options{Limits: source.Limits{MaxLine: 1 << 20, MaxExpansion: 100}}); err != nil {
			t.Fatal(err)
		}
		dropped := r.Acc.Records().Dropped
		if len(r.Requests) != c.rows || !maps.Equal(dropped, c.lost) {
			t.Errorf("%s: got %d rows and %v lost, want %d and %v", c.text, len(r.Requests), dropped, c.rows, c.lost)
		}
	}
}
