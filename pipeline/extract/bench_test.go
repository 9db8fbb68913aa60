package extract

import (
	"bufio"
	"bytes"
	"context"
	"errors"
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

	"github.com/blis-train/blis-train/internal/files"
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

// benchDump names the dump of each run of the benchmarks, uncompressed or as zstd.
var benchDump = map[string]string{"plain": "traces.jsonl", "zstd": "traces.jsonl.zst"}

// benchParent makes (once) a PARENT of all composed runs, each repeated and
// in a form of benchDump, and returns it with the bytes of its traces uncompressed.
func benchParent(b *testing.B, form string) (string, int64) {
	src := repo.Shared(b, "data", "composed")
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("blis-train-bench-%d-%s", benchCopies, form))
	runs, err := filepath.Glob(filepath.Join(src, "*", "traces.jsonl.zst"))
	if err != nil || len(runs) == 0 {
		b.Skip("no composed runs")
	}
	total := int64(0)
	for _, r := range runs {
		to := filepath.Join(dir, filepath.Base(filepath.Dir(r)))
		n, err := growRun(filepath.Dir(r), to, form)
		if err != nil {
			b.Fatal(err)
		}
		total += n
	}
	return dir, total
}

// growRun writes copies of a run as one long run folder, unless it is there, and returns the bytes
// of its dump uncompressed.
func growRun(from, to, form string) (int64, error) {
	size := filepath.Join(to, "bytes.txt") // written last
	if text, err := os.ReadFile(size); err == nil {
		return strconv.ParseInt(string(text), 10, 64)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return 0, err
	}
	yaml, err := os.ReadFile(filepath.Join(from, "run.yaml"))
	if err != nil {
		return 0, err
	}
	yaml = bytes.ReplaceAll(yaml, []byte("traces.jsonl.zst"), []byte(benchDump[form]))
	yaml = bytes.ReplaceAll(yaml, []byte(`"kv_events.jsonl.zst"`), []byte("null"))
	config, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(to, "run.yaml"), yaml, 0o644); err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(to, "config.json"), config, 0o644); err != nil {
		return 0, err
	}
	total, err := growDump(filepath.Join(from, "traces.jsonl.zst"), filepath.Join(to, benchDump[form]))
	if err != nil {
		return 0, err
	}
	return total, os.WriteFile(size, strconv.AppendInt(nil, total, 10), 0o644)
}

// growDump writes copies of a dump as one and returns its bytes uncompressed. The name of the new
// dump says whether it is compressed.
func growDump(from, to string) (total int64, err error) {
	lines, err := readLines(from)
	if err != nil {
		return 0, err
	}
	file, err := os.Create(to)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	out := bufio.NewWriterSize(file, 1<<20)
	var w io.WriteCloser = uncompressed{out}
	if filepath.Ext(to) == ".zst" {
		if w, err = zstd.NewWriter(out); err != nil {
			return 0, err
		}
	}
	var buf []byte
	for n := range int64(benchCopies) {
		for _, l := range lines {
			buf = grow(buf[:0], l, n)
			if _, err := w.Write(buf); err != nil {
				return 0, err
			}
			total += int64(len(buf))
		}
	}
	return total, errors.Join(w.Close(), out.Flush())
}

// uncompressed passes writes on as they are.
type uncompressed struct{ io.Writer }

func (uncompressed) Close() error { return nil }

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

// eachForm runs a benchmark on plain and on zstd dumps, with n workers on n cores.
func eachForm(b *testing.B, workers []int, bench func(b *testing.B, form string, workers int)) {
	for _, form := range []string{"plain", "zstd"} {
		for _, n := range workers {
			b.Run(fmt.Sprintf("%s/workers=%d", form, n), func(b *testing.B) {
				defer onCores(n)()
				bench(b, form, n)
			})
		}
	}
}

// BenchmarkExtract is the whole extraction, files in, tables out, in MB/s of uncompressed input.
func BenchmarkExtract(b *testing.B) {
	eachForm(b, []int{1, 2}, func(b *testing.B, form string, workers int) {
		dir, total := benchParent(b, form)
		runs, err := Discover([]string{dir})
		if err != nil {
			b.Fatal(err)
		}
		defer BoundMemory()() // as the command does
		b.SetBytes(total)
		b.ResetTimer()
		for range b.N {
			o := DefaultOptions()
			o.Out, o.MaxBadFrac, o.Workers = b.TempDir(), 1, workers
			if _, err := Run(context.Background(), runs, o); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// onCores gives n workers n cores, the garbage collector included.
func onCores(n int) (undo func()) {
	old := runtime.GOMAXPROCS(n)
	return func() { runtime.GOMAXPROCS(old) }
}

// benchDumps returns the names of the dumps, and sets the bytes of the benchmark to theirs.
func benchDumps(b *testing.B, form string) []string {
	dir, total := benchParent(b, form)
	names, err := filepath.Glob(filepath.Join(dir, "*", benchDump[form]))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(total)
	return names
}

// benchLines reads the dumps line by line, a goroutine a worker, each with the function that parser
// makes for it.
func benchLines(b *testing.B, form string, workers int, parser func() func([]byte) error) {
	names := benchDumps(b, form)
	b.ResetTimer()
	for range b.N {
		var next atomic.Int64
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				parse := parser()
				r := bufio.NewReaderSize(nil, 16<<20)
				for k := next.Add(1) - 1; k < int64(len(names)); k = next.Add(1) - 1 {
					if err := lines(names[k], r, parse); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
}

// lines calls parse with each line of a dump, read through r.
func lines(name string, r *bufio.Reader, parse func([]byte) error) error {
	fd, err := os.Open(name)
	if err != nil {
		return err
	}
	defer fd.Close()
	r.Reset(fd)
	if filepath.Ext(name) == ".zst" {
		z, err := zstd.NewReader(fd, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return err
		}
		defer z.Close()
		r.Reset(z)
	}
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
	eachForm(b, []int{1, 2}, func(b *testing.B, form string, workers int) {
		benchLines(b, form, workers, func() func([]byte) error {
			d := &jx.Decoder{}
			return func(line []byte) error {
				d.ResetBytes(line)
				return d.Skip()
			}
		})
	})
}

// BenchmarkBareDigest computes the SHA-256 of the same files, as extraction does.
func BenchmarkBareDigest(b *testing.B) {
	eachForm(b, []int{1}, func(b *testing.B, form string, _ int) {
		names := benchDumps(b, form)
		b.ResetTimer()
		for range b.N {
			for _, name := range names {
				if _, _, err := files.Hash(name); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// BenchmarkBarePdata builds the object tree of the same bytes, one core.
func BenchmarkBarePdata(b *testing.B) {
	eachForm(b, []int{1}, func(b *testing.B, form string, workers int) {
		benchLines(b, form, workers, func() func([]byte) error {
			var u ptrace.JSONUnmarshaler
			return func(line []byte) error {
				_, err := u.UnmarshalTraces(line)
				return err
			}
		})
	})
}
