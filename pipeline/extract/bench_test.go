package extract

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-faster/jx"
	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// benchCopies is how often each composed run is repeated: 3 copies make 1.4 GB.
const benchCopies = 3

// shift is how far numbers move from one copy of a run to the next, so that
// the copies read as one long life of one engine.
var shift = map[string]int64{
	"step.id": 10000, "scheduler.step": 10000, "scheduler.span_sequence": 1000, "scheduler.step_range_start": 10000,
	"scheduler.step_range_end": 10000,
	"step.ts_start_ns":         1e13, "step.ts_end_ns": 1e13, "ts.monotonic_ns": 1e13,
}

// grow rewrites a line of a dump as the n-th copy of it: step ids, sequences
// and stamps go on, ids differ.
func grow(dst, line []byte, n int64) []byte {
	id := fmt.Sprintf("%04x", n)
	for len(line) > 0 {
		at := bytes.IndexByte(line, '"')
		if at < 0 {
			return append(dst, line...)
		}
		dst = append(dst, line[:at+1]...)
		line = line[at+1:]
		switch {
		case bytes.HasPrefix(line, []byte(`traceId":"`)):
			dst = append(append(dst, line[:10]...), id...)
			line = line[14:]
		case bytes.HasPrefix(line, []byte(`cmpl-`)):
			dst = append(append(dst, "cmpl-"...), id...)
			line = line[9:]
		case bytes.HasPrefix(line, []byte(`chatcmpl-`)):
			dst = append(append(dst, "chatcmpl-"...), id...)
			line = line[13:]
		case bytes.HasPrefix(line, []byte(`key":"`)):
			end := bytes.IndexByte(line[6:], '"') + 6
			by, ok := shift[string(line[6:end])]
			const mid = `","value":{"intValue":"`
			if ok && bytes.HasPrefix(line[end:], []byte(mid)) {
				from := end + len(mid)
				to := from + bytes.IndexByte(line[from:], '"')
				v, _ := strconv.ParseInt(string(line[from:to]), 10, 64)
				dst = strconv.AppendInt(append(dst, line[:from]...), v+by*n, 10)
				line = line[to:]
			}
		}
	}
	return dst
}

// benchParent makes (once) a PARENT of all composed runs, each repeated and
// uncompressed, and returns it with its bytes of traces.
func benchParent(b *testing.B) (string, int64) {
	src := repo.Shared(b, "data", "composed")
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("blis-train-bench-%d", benchCopies))
	runs, err := filepath.Glob(filepath.Join(src, "*", "traces.jsonl.zst"))
	if err != nil || len(runs) == 0 {
		b.Skip("no composed runs")
	}
	total := int64(0)
	for _, r := range runs {
		to := filepath.Join(dir, filepath.Base(filepath.Dir(r)))
		out := filepath.Join(to, "traces.jsonl")
		if !exists(out) {
			if err := growRun(filepath.Dir(r), to, benchCopies); err != nil {
				b.Fatal(err)
			}
		}
		st, err := os.Stat(out)
		if err != nil {
			b.Fatal(err)
		}
		total += st.Size()
	}
	return dir, total
}

// growRun writes copies of a run as one long run folder.
func growRun(from, to string, copies int64) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	yaml, err := os.ReadFile(filepath.Join(from, "run.yaml"))
	if err != nil {
		return err
	}
	yaml = bytes.ReplaceAll(yaml, []byte("traces.jsonl.zst"), []byte("traces.jsonl"))
	yaml = bytes.ReplaceAll(yaml, []byte(`"kv_events.jsonl.zst"`), []byte("null"))
	config, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		return err
	}
	lines, err := readLines(filepath.Join(from, "traces.jsonl.zst"))
	if err != nil {
		return err
	}
	tmp, err := os.Create(filepath.Join(to, "traces.tmp"))
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(tmp, 1<<20)
	var buf []byte
	for n := range copies {
		for _, l := range lines {
			buf = grow(buf[:0], l, n)
			w.Write(buf)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	tmp.Close()
	if err := os.WriteFile(filepath.Join(to, "run.yaml"), yaml, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(to, "config.json"), config, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), filepath.Join(to, "traces.jsonl"))
}

func readLines(path string) ([][]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	data, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	lines := bytes.SplitAfter(data, source.Newline)
	for len(lines) > 0 && !bytes.HasSuffix(lines[len(lines)-1], source.Newline) { // a line that was cut
		lines = lines[:len(lines)-1]
	}
	return lines, nil
}

func benchExtract(b *testing.B, change func(*Options)) {
	dir, total := benchParent(b)
	runs, err := Discover([]string{dir})
	if err != nil {
		b.Fatal(err)
	}
	defer BoundMemory()() // as the command does
	b.SetBytes(total)
	b.ResetTimer()
	for range b.N {
		o := DefaultOptions()
		o.Out, o.MaxBadFrac = b.TempDir(), 1
		change(&o)
		if _, err := Run(context.Background(), runs, o); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExtract is the whole extraction, files in, tables out, in MB/s of input.
func BenchmarkExtract(b *testing.B) {
	for _, n := range []int{1, 2} {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			defer onCores(n)()
			benchExtract(b, func(o *Options) { o.Workers = n })
		})
	}
}

// onCores gives n workers n cores, the garbage collector included.
func onCores(n int) (undo func()) {
	old := runtime.GOMAXPROCS(n)
	return func() { runtime.GOMAXPROCS(old) }
}

// eachLine reads the bench dumps line by line, n files at a time, each goroutine
// with the function that parser makes for it.
func eachLine(b *testing.B, dir string, n int, parser func() func([]byte) error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "traces.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			parse := parser()
			r := bufio.NewReaderSize(nil, 16<<20)
			for k := next.Add(1) - 1; k < int64(len(files)); k = next.Add(1) - 1 {
				if err := lines(files[k], r, parse); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func lines(name string, r *bufio.Reader, parse func([]byte) error) error {
	fd, err := os.Open(name)
	if err != nil {
		return err
	}
	defer fd.Close()
	r.Reset(fd)
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 1 {
			if err := parse(line); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// BenchmarkBareJX walks the same bytes with the tokenizer alone; two walks side
// by side say what a second core of this machine is worth.
func BenchmarkBareJX(b *testing.B) {
	for _, n := range []int{1, 2} {
		b.Run(fmt.Sprintf("workers=%d", n), func(b *testing.B) {
			defer onCores(n)()
			dir, total := benchParent(b)
			b.SetBytes(total)
			b.ResetTimer()
			for range b.N {
				eachLine(b, dir, n, func() func([]byte) error {
					d := &jx.Decoder{}
					return func(line []byte) error {
						d.ResetBytes(line)
						return d.Skip()
					}
				})
			}
		})
	}
}

// BenchmarkBarePdata builds the object tree of the same bytes, one core.
func BenchmarkBarePdata(b *testing.B) {
	defer onCores(1)()
	dir, total := benchParent(b)
	b.SetBytes(total)
	b.ResetTimer()
	for range b.N {
		eachLine(b, dir, 1, func() func([]byte) error {
			var u ptrace.JSONUnmarshaler
			return func(line []byte) error {
				_, err := u.UnmarshalTraces(line)
				return err
			}
		})
	}
}
