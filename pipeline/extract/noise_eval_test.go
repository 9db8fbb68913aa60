package extract

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/trace/table"
)

// noisyLog writes a log of about so many bytes: nine lines in ten are others, two
// engines alternate, lines are coloured, torn, glued and end in CRLF, and one engine
// starts again halfway. It returns the iterations that are whole and the torn ones.
func noisyLog(t testing.TB, w *bufio.Writer, bytes int64) (whole, torn int64) {
	t.Helper()
	others := []string{
		`(APIServer pid=3115) INFO:     127.0.0.1:42636 - "POST /v1/completions HTTP/1.1" 200 OK`,
		"\x1b[0;36m(EngineCore_DP0 pid=77)\x1b[0;0m INFO 11-21 23:21:43 [kv_cache_utils.py:1] GPU KV cache size: 87,296 tokens",
		"(APIServer pid=7) INFO 11-21 23:21:43 [loggers.py:123] Engine 000: Avg prompt throughput: 5.0 tokens/s, GPU KV cache usage: 3.1%",
		"Loading: 100%|##########| 4/4 [00:01<00:00,  3.1it/s]\r",
	}
	written, index, pause := int64(0), [2]int{}, 0
	for n := 0; written < bytes; n++ {
		for k := range 9 {
			line := others[(n+k)%len(others)]
			if k%3 == 0 {
				line += "\r"
			}
			m, _ := w.WriteString(line + "\n")
			written += int64(m)
		}
		e := n % 2
		if written > bytes/2 && e == 0 && pause == 0 {
			index[0], pause = 0, 60
		}
		at := n/200 + pause
		line := fmt.Sprintf("\x1b[32m(APIServer pid=7)\x1b[0m INFO 11-%02d %02d:%02d:%02d [loggers.py:199] Engine %03d: Iteration(%d): "+
			"0 context requests, 0 context tokens, 2 generation requests, 2 generation tokens, "+
			"iteration elapsed time: 49.21 ms, GPU KV cache usage: 0.4%%\r\n", 1+at/86400%28, at/3600%24, at/60%60, at%60, e, index[e])
		switch {
		case n%1000 == 999:
			line = line[:130] + "\n"
			torn++
		case n%1000 == 500:
			line = "(APIServer pid=7) (EngineCore pid=8) " + line
			whole++
		default:
			whole++
		}
		index[e]++
		m, _ := w.WriteString(line)
		written += int64(m)
	}
	return whole, torn
}

// TestNoisyLog: of a log full of other lines, colours, torn lines, two engines and a
// restart, over a rotated set, every whole iteration is kept and every torn one
// counted; with BLIS_TRAIN_EVAL=1 a gigabyte, its speed and memory printed.
func TestNoisyLog(t *testing.T) {
	size, eval := int64(4<<20), repo.Eval()
	if eval {
		size = 1 << 30
	}
	dir := upstreamFolder(t, upstreamRun)
	f, err := os.Create(filepath.Join(dir, "server.log.1"))
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	whole, torn := noisyLog(t, w, size)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var tail strings.Builder
	z := gzip.NewWriter(&tail)
	fmt.Fprint(z, strings.Repeat(logLine(7, 0, 0), 1)+logLine(7, 1, 1)+strings.Repeat("noise\n", 1<<16))
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "other.log.gz"), tail.String()[:tail.Len()-20]) // a killed writer
	start := time.Now()
	doc, err := extractArgs(t, filepath.Join(t.TempDir(), "out"), nil, dir)
	took := time.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	kept, r := int64(0), doc.Runs[0].Records
	for i := range doc.Runs {
		kept += doc.Runs[i].Tables[table.Iterations]
	}
	if kept != whole+2 || r.Kept != kept || r.Dropped["unreadable"] != torn+1 || len(doc.Runs) != 4 || !r.Balanced() {
		t.Errorf("got %d iterations in %d runs, account %+v; want %d in 4, %d torn and a cut file", kept, len(doc.Runs), r, whole+2, torn)
	}
	if eval {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Printf("  %d MB of log, %d iterations: %.1f s with tables, two workers, %.0f MB/s; heap held %d MB\n",
			size>>20, whole, took.Seconds(), float64(size)/1e6/took.Seconds(), m.HeapSys>>20)
	}
}
