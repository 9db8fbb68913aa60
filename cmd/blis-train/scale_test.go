//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/shard"
)

// sameDocuments are those that many processes must write as one does.
var sameDocuments = []string{"extract.json", "fit.json", "coefficients.yaml", "validation.json"}

// processes runs the built program as processes.
type processes struct {
	exe string
	rng *rand.Rand
	cpu float64 // seconds of all its processes
	mu  sync.Mutex
}

func newProcesses(t *testing.T) *processes {
	t.Helper()
	repo.NeedEval(t)
	s := &processes{exe: filepath.Join(t.TempDir(), "blis-train"), rng: rand.New(rand.NewPCG(24, 1))}
	if text, err := exec.Command("go", "build", "-trimpath", "-o", s.exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	return s
}

// call runs a command; exit 3, a verdict, is none of its failures. die kills it after that
// long; 0: never.
func (s *processes) call(die time.Duration, args ...string) (stdout string, killed bool, err error) {
	var out, talk bytes.Buffer
	cmd := exec.Command(s.exe, args...)
	cmd.Stdout, cmd.Stderr = &out, &talk
	if err := cmd.Start(); err != nil {
		return "", false, err
	}
	if die > 0 {
		stop := time.AfterFunc(die, func() { _ = cmd.Process.Kill() })
		defer stop.Stop()
	}
	err = cmd.Wait()
	s.mu.Lock()
	s.cpu += (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	s.mu.Unlock()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return out.String(), true, nil
	}
	if code := cmd.ProcessState.ExitCode(); code == exitGate {
		err = nil
	} else if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, talk.String())
	}
	return out.String(), false, err
}

func (s *processes) must(t *testing.T, args ...string) string {
	t.Helper()
	out, _, err := s.call(0, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// work does the tasks in random order on n processes at a time; each says what to do with
// one of them.
func (s *processes) work(t *testing.T, ids []string, n int, each func(id string) error) {
	t.Helper()
	s.rng.Shuffle(len(ids), func(a, b int) { ids[a], ids[b] = ids[b], ids[a] })
	queue := make(chan string, len(ids))
	errs := make(chan error, len(ids))
	for _, id := range ids {
		queue <- id
	}
	close(queue)
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			for id := range queue {
				errs <- each(id)
			}
		})
	}
	group.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// finish has the passes of a plan done, n processes at a time.
func (s *processes) finish(t *testing.T, job string, n int) {
	t.Helper()
	for {
		open := strings.Fields(s.must(t, "collect", job, "-q", "--workers", "0"))
		if len(open) == 0 {
			return
		}
		s.work(t, open, n, func(id string) error {
			_, _, err := s.call(0, "task", job, id, "-q", "--workers", strconv.Itoa(max(1, 2/len(open))))
			return err
		})
	}
}

// sameAs compares the documents of two output folders.
func sameAs(t *testing.T, what, got, want string) {
	t.Helper()
	for _, name := range sameDocuments {
		a, errA := os.ReadFile(filepath.Join(got, name))
		b, errB := os.ReadFile(filepath.Join(want, name))
		if err := errors.Join(errA, errB); err != nil {
			t.Error(err)
		} else if !bytes.Equal(a, b) {
			t.Errorf("%s: %s differs from that of one process", what, name)
		}
	}
}

// generatedDump writes a run folder whose dump has about the given bytes.
func (s *processes) generatedDump(t *testing.T, bytes int64) string {
	t.Helper()
	dir := t.TempDir()
	demo := repo.Root(t) + "/testdata/traces/demo/b200-llama-3.1-8b-tp1"
	text, err := os.ReadFile(filepath.Join(demo, "run.yaml"))
	config, err2 := os.ReadFile(filepath.Join(demo, "config.json"))
	const bytesPerRequest = 42_650
	load := fmt.Sprintf("requests: %d\narrivals: {kind: poisson, rate_rps: 8}\nprompt: {kind: lognormal, mean: 400, sigma: 0.9}\n"+
		"output: {kind: uniform, min: 10, max: 250}\n", bytes/bytesPerRequest)
	err = errors.Join(err, err2, os.WriteFile(filepath.Join(dir, "config.json"), config, 0o644),
		os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(strings.Replace(string(text), "traces.jsonl.zst", "traces.jsonl", 1)), 0o644),
		os.WriteFile(filepath.Join(dir, "..", "load.yaml"), []byte(load), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	noisy := filepath.Join(out, "noisy.yaml")
	repo.Write(t, "simulate: {noise: residual}\n", noisy)
	s.must(t, "run", filepath.Dir(demo), "-o", filepath.Join(out, "fit"), "-q", "--bootstraps", "50")
	s.must(t, "simulate", "--deployment", dir, "--workload", filepath.Join(dir, "..", "load.yaml"), "--coefficients",
		filepath.Join(out, "fit", "coefficients.yaml"), "--config", noisy, "-o", filepath.Join(out, "sim"), "-q",
		"--emit-otlp", filepath.Join(dir, "traces.jsonl"))
	return dir
}

// TestEvalRunMemory does the whole pipeline on a dump of 2 GB: the process stays below 450 MB.
func TestEvalRunMemory(t *testing.T) {
	s := newProcesses(t)
	dir := s.generatedDump(t, 2e9)
	c := measure(t, []string{s.exe, "run", dir, "-o", filepath.Join(t.TempDir(), "out"), "--quiet", "--ignore-verdict"})
	t.Log(c)
	if c.peakMB == 0 || c.peakMB >= 450 {
		t.Errorf("peak memory: got %.0f MB, want < 450", c.peakMB)
	}
}

// TestEvalScaleEqual compares one process on 1, 2 and 8 workers with seven processes that
// do the tasks of a plan in random order, and prints what both cost.
func TestEvalScaleEqual(t *testing.T) {
	s := newProcesses(t)
	const dumpBytes = 2e9
	for name, data := range map[string]func() string{
		"demo":          func() string { return filepath.Join(repo.Root(t), "testdata", "traces", "demo") },
		"real_vllm_cpu": func() string { return repo.Shared(t, "data", "real_vllm_cpu") },
		"composed":      func() string { return repo.Shared(t, "data", "composed") },
		"2 GB":          func() string { return s.generatedDump(t, dumpBytes) },
	} {
		t.Run(name, func(t *testing.T) {
			in, out := data(), t.TempDir()
			one := filepath.Join(out, "one")
			var took [2]struct{ wall, cpu float64 }
			measured := func(k int, do func()) {
				start, cpu := time.Now(), s.cpu
				do()
				took[k].wall = time.Since(start).Seconds()
				took[k].cpu = s.cpu - cpu
			}
			measured(0, func() { s.must(t, "run", in, "-o", one, "-q", "--workers", "2") })
			measured(1, func() {
				s.must(t, "plan", in, "-o", filepath.Join(out, "job"), "-q", "--part-bytes", "67108864")
				s.finish(t, filepath.Join(out, "job"), 7)
			})
			sameAs(t, "7 processes", filepath.Join(out, "job", "out"), one)
			for _, workers := range []string{"1", "8"} {
				dir := filepath.Join(out, workers)
				s.must(t, "run", in, "-o", dir, "-q", "--workers", workers)
				sameAs(t, workers+" workers", dir, one)
			}
			s.prism(t, in, one, out)
			fmt.Printf("%s: run %.1f s wall, %.1f s CPU; plan, task, collect %.1f s wall, %.1f s CPU: x%.2f and x%.2f\n", name,
				took[0].wall, took[0].cpu, took[1].wall, took[1].cpu, took[1].wall/took[0].wall, took[1].cpu/took[0].cpu)
		})
	}
}

// prism has blis-train-beam do the same with Prism, on parts that cut every long line.
func (s *processes) prism(t *testing.T, in, one, out string) {
	t.Helper()
	exe := os.Getenv("BLIS_TRAIN_BEAM")
	if exe == "" {
		t.Log("Prism: skipped, BLIS_TRAIN_BEAM names no binary (make beam)")
		return
	}
	beam := &processes{exe: exe}
	for _, part := range []string{"268435456", "67108864", "3145728", "1048576"} {
		dir := filepath.Join(out, "prism"+part)
		start := time.Now()
		beam.must(t, "run", in, "-o", dir, "--runner", "prism", "--part-bytes", part)
		sameAs(t, "Prism, parts of "+part+" bytes", filepath.Join(dir, "out"), one)
		fmt.Printf("Prism, parts of %s bytes: %.1f s wall, %.1f s CPU in all\n", part, time.Since(start).Seconds(), beam.cpu)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEvalScaleCost measures what a byte costs in each pass, on a generated dump of 200 MB
// that one core reads, and prints what 100 TB would. The passes fit and limits and collect read
// no more rows than --max-rows, however many there are: what they take is not a price of a byte.
func TestEvalScaleCost(t *testing.T) {
	s := newProcesses(t)
	const (
		dumpBytes, wanted = 200e6, 100e12
		shared            = 1.5  // engine, skew and retries
		dollars           = 0.05 // a core-hour, assumed
		mostDollars       = 300
	)
	in := s.generatedDump(t, dumpBytes)
	job := filepath.Join(t.TempDir(), "job")
	st, err := os.Stat(filepath.Join(in, "traces.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	s.must(t, "plan", in, "-o", job, "-q", "--part-bytes", "67108864")
	sum, once := 0.0, 0.0
	fmt.Printf("| pass | MB a second and core | core-h of 100 TB |\n|---|---|---|\n")
	for {
		before := s.cpu
		open := strings.Fields(s.must(t, "collect", job, "-q", "--workers", "1"))
		once += s.cpu - before
		if len(open) == 0 {
			fmt.Printf("| `fit`, `limits`, `collect` | %.1f CPU-s in all | bounded by `--max-rows` |\n", once)
			break
		}
		pass, _, _ := strings.Cut(open[0], "-")
		before = s.cpu
		s.work(t, open, 1, func(id string) error {
			_, _, err := s.call(0, "task", job, id, "-q", "--workers", "1")
			return err
		})
		if pass == "fit" || pass == "limits" {
			once += s.cpu - before
			continue
		}
		rate := float64(st.Size()) / (s.cpu - before)
		hours := wanted / rate / 3600
		fmt.Printf("| `%s` | %.0f | %.0f |\n", pass, rate/1e6, hours)
		sum += hours
	}
	fmt.Printf("| sum; x%.1f | | %.0f; %.0f |\n%.1f h on 100 cores, $%.0f at $%.2f a core-hour\n", shared, sum, shared*sum, shared*sum/100,
		shared*sum*dollars, dollars)
	if shared*sum*dollars > mostDollars {
		t.Errorf("100 TB would cost $%.0f, want at most $%d: several times what docs/scale-out.md says", shared*sum*dollars, mostDollars)
	}
}

// TestEvalScaleFaults does every task twice, kills and delays some, kills the driver at
// twenty points, damages a receipt, makes two that differ and fills the disk: the bytes are
// those of one process after going on, or there is one error that says what is wrong.
func TestEvalScaleFaults(t *testing.T) {
	s := newProcesses(t)
	in := filepath.Join(repo.Root(t), "testdata", "traces", "demo")
	out := t.TempDir()
	one := filepath.Join(out, "one")
	job := filepath.Join(out, "job")
	start := time.Now()
	s.must(t, "run", in, "-o", one, "-q", "--bootstraps", "50")
	whole := time.Since(start)
	s.must(t, "plan", in, "-o", job, "-q", "--bootstraps", "50")
	var late []string
	kills, calls := 0, 0
	for {
		open := strings.Fields(s.must(t, "collect", job, "-q"))
		if len(open) == 0 {
			break
		}
		late = append(late, open[0])
		s.work(t, append(open, open...), 4, func(id string) error {
			s.mu.Lock()
			die := time.Duration(0)
			if calls++; s.rng.Float64() < 0.05 || calls%5 == 1 { // of so few tasks some must die
				die = time.Duration(s.rng.Int64N(int64(whole / 4)))
			}
			s.mu.Unlock()
			_, killed, err := s.call(die, "task", job, id, "-q")
			s.mu.Lock()
			defer s.mu.Unlock()
			if killed {
				kills++
			}
			return err
		})
	}
	sameAs(t, "every task twice, some killed", filepath.Join(job, "out"), one)
	for _, id := range late { // twins that end after everything else
		s.must(t, "task", job, id, "-q")
	}
	start = time.Now()
	s.must(t, "collect", job, "-q")
	collected := time.Since(start)
	sameAs(t, "late twins", filepath.Join(job, "out"), one)
	died := 0
	for k := range 20 {
		if _, killed, err := s.call(collected*time.Duration(k+1)/21, "collect", job, "-q"); err != nil {
			t.Fatal(err)
		} else if killed {
			died++
		}
		wholeJSON(t, job)
	}
	s.must(t, "collect", job, "-q")
	sameAs(t, "driver killed", filepath.Join(job, "out"), one)
	s.corrupt(t, job)
	s.finish(t, job, 2)
	sameAs(t, "receipt damaged", filepath.Join(job, "out"), one)
	garbage := strings.Fields(s.must(t, "collect", job, "--gc", "--remove"))
	if again := s.must(t, "collect", job, "--gc"); again != "" {
		t.Errorf("gc: %s is left", again)
	}
	s.must(t, "collect", job, "-q")
	fmt.Printf("%d calls of task, %d killed; %d of 20 drivers killed; %d pieces of garbage\n", calls, kills, died, len(garbage))
	s.damaged(t, in, one, out)
	s.full(t, in, one, out)
	s.differ(t, job)
}

// wholeJSON fails on a document of the job that is cut.
func wholeJSON(t *testing.T, job string) {
	t.Helper()
	err := filepath.WalkDir(job, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".json" {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && !json.Valid(bytes.TrimLeft(text, "0123456789abcdef")) { // the cache has its sum in front
			t.Errorf("%s: half a document", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// receiptsOf are the receipts of a job.
func receiptsOf(t *testing.T, job string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(job, "receipts", "*.json"))
	if err != nil || len(names) == 0 {
		t.Fatalf("got %v, %v", names, err)
	}
	return names
}

// corrupt damages one receipt; collect opens its task again.
func (s *processes) corrupt(t *testing.T, job string) {
	t.Helper()
	name := receiptsOf(t, job)[0]
	if err := os.Truncate(name, 30); err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(filepath.Base(name), ".")
	if open := strings.Fields(s.must(t, "collect", job, "-q")); len(open) != 1 || open[0] != id {
		t.Errorf("got %v open, want %s", open, id)
	}
}

// damaged changes a byte of the rows that the fit reads: its task says so, theirs is open again.
func (s *processes) damaged(t *testing.T, in, one, out string) {
	t.Helper()
	job := filepath.Join(out, "damaged")
	open := strings.Fields(s.must(t, "plan", in, "-o", job, "-q", "--bootstraps", "50"))
	for !strings.HasPrefix(open[0], "fit-") {
		for _, id := range open {
			s.must(t, "task", job, id, "-q")
		}
		open = strings.Fields(s.must(t, "collect", job, "-q"))
	}
	names, err := filepath.Glob(filepath.Join(job, "data", "rows-*", "rows.bin"))
	if err != nil || len(names) == 0 {
		t.Fatalf("got %v, %v", names, err)
	}
	text := repo.Read(t, names[0])
	text[len(text)/2]++
	repo.Write(t, text, names[0])
	if _, _, err := s.call(0, "task", job, open[0], "-q"); err == nil || !strings.Contains(err.Error(), "result_damaged") {
		t.Errorf("got %v, want result_damaged", err)
	}
	if open := s.must(t, "collect", job, "-q"); !strings.HasPrefix(open, "rows-") {
		t.Errorf("got %q open, want the rows", open)
	}
	s.finish(t, job, 2)
	sameAs(t, "rows damaged", filepath.Join(job, "out"), one)
}

// differ adds the receipt of a twin that wrote other bytes; collect refuses to go on.
func (s *processes) differ(t *testing.T, job string) {
	t.Helper()
	name := receiptsOf(t, job)[0]
	id, _, _ := strings.Cut(filepath.Base(name), ".")
	twin := shard.Job{Dir: job}
	task, err := twin.Task(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := twin.Do(t.Context(), task, func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "entry.json"), []byte("{}"), 0o644)
	}); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.call(0, "collect", job, "-q")
	if err == nil || !strings.Contains(err.Error(), "receipts_differ") {
		t.Errorf("got %v, want receipts_differ", err)
	}
}

// full has a task done on a disk without room, then with.
func (s *processes) full(t *testing.T, in, one, out string) {
	t.Helper()
	disk := filepath.Join(out, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=48k"); err != nil {
		t.Logf("full disk: skipped, no tmpfs: %v", err)
		return
	}
	defer func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	}()
	job := filepath.Join(disk, "job")
	ids := strings.Fields(s.must(t, "plan", in, "-o", job, "-q", "--bootstraps", "50"))
	_, _, err := s.call(0, "task", job, ids[0], "-q")
	if err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("got %v, want no space left", err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	s.finish(t, job, 2)
	sameAs(t, "disk was full", filepath.Join(job, "out"), one)
}

// killable are calls of run that differ in what they read, learn and write.
var killable = [][]string{{}, {"--bootstraps", "60"}, {"--exclude", "*-async"}, {"--prior", "zero"},
	{"--gate", "beta_mape=0.5"}, {"--set", "vllm.max_num_seqs=128"}}

// killed kills so many calls of run at random moments, and after each goes on, with the same options or
// with others: what stands there in the end is, file by file, what a call that nobody killed writes.
func (s *processes) killed(t *testing.T, in string, times int, options [][]string) {
	t.Helper()
	out := t.TempDir()
	whole := time.Duration(0)
	clean := make([]map[string]string, len(options))
	call := func(dir string, k int, die time.Duration) bool {
		_, killed, err := s.call(die, append([]string{"run", in, "-o", dir, "-q", "--bootstraps", "50"}, options[k]...)...)
		if err != nil {
			t.Fatalf("killed before: %v", err)
		}
		return killed
	}
	for k := range options {
		dir := filepath.Join(out, strconv.Itoa(k))
		start := time.Now()
		call(dir, k, 0)
		whole = max(whole, time.Since(start))
		clean[k] = filesOf(t, dir)
	}
	dir, died := filepath.Join(out, "killed"), 0
	for i := 0; died < times && i < 12*times; i++ { // some calls end before they are killed, more on a busy machine
		if call(dir, s.rng.IntN(len(options)), 1+time.Duration(s.rng.Int64N(int64(whole)))) {
			died++
		}
		k := s.rng.IntN(len(options))
		call(dir, k, 0)
		got := filesOf(t, dir)
		for name, text := range clean[k] {
			if got[name] != text {
				t.Errorf("kill %d, options %v: %s differs from that of a call that nobody killed", i, options[k], name)
			}
		}
		for name := range got {
			if _, there := clean[k][name]; !there {
				t.Errorf("kill %d, options %v: %s is left over", i, options[k], name)
			}
		}
		if i%10 == 9 { // a folder of its own from time to time
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d calls were killed", died)
	if died < times {
		t.Errorf("got %d calls that were killed, want %d", died, times)
	}
}

// filesOf are the files below a folder but the cache, which has times in it.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == ".extract-cache.json" {
			return err
		}
		text, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir+"/")] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestKilledRunsGoOn is TestEvalKills on a short recording.
func TestKilledRunsGoOn(t *testing.T) {
	s := &processes{exe: filepath.Join(t.TempDir(), "blis-train"), rng: rand.New(rand.NewPCG(36, 1))}
	self, err := os.Executable()
	if err == nil {
		err = os.Symlink(self, s.exe)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.killed(t, filepath.Join(repo.Root(t), "testdata", "traces", "smoke"), 3, killable[:2])
}

// TestEvalKills kills two hundred calls of run, and every other stage at ten points: called again, it ends with the same bytes.
func TestEvalKills(t *testing.T) {
	s := newProcesses(t)
	s.killed(t, filepath.Join(repo.Root(t), "testdata", "traces", "real"), 200, killable)
	in := filepath.Join(repo.Root(t), "testdata", "traces", "demo")
	done := filepath.Join(t.TempDir(), "done")
	b200 := filepath.Join(in, "b200-llama-3.1-8b-tp1")
	s.must(t, "run", in, "-o", done, "-q", "--bootstraps", "50")
	for _, args := range [][]string{
		{"plan", in, "-o", "OUT", "--part-bytes", "1048576"},
		{"extract", in, "-o", "OUT"},
		{"fit", done, "-o", "OUT", "--bootstraps", "50"},
		{"validate", done, "-o", "OUT"},
		{"export", done + "/fit.json", "--format", "native", "--ignore-verdict", "-o", "OUT/c.yaml"},
		{"queue", "fit", done, "-o", "OUT"},
		{"predictor", "rows", done, "-o", "OUT", "--shared-prefix-tokens", "64"},
		{"simulate", "--deployment", b200, "--workload", b200, "--coefficients", done + "/coefficients.yaml", "-o", "OUT"},
		{"experiment", "isolation", "--preset", "seed", "--seeds", "1", "-o", "OUT"},
	} {
		call := func(dir string) []string {
			return append(strings.Fields(strings.ReplaceAll(strings.Join(args, " "), "OUT", dir)), "-q")
		}
		start, first := time.Now(), t.TempDir()
		s.must(t, call(first)...)
		whole := time.Since(start)
		want := filesOf(t, first)
		died := 0
		for k := range 10 {
			dir := t.TempDir()
			_, killed, err := s.call(whole*time.Duration(k+1)/10, call(dir)...)
			noErr(t, err)
			if killed {
				died++
			}
			s.must(t, call(dir)...)
			for name, text := range filesOf(t, dir) {
				if !strings.Contains(name, ".tmp") && want[name] != text {
					t.Errorf("%s killed: %s differs", args[0], name)
				}
			}
		}
		fmt.Printf("%s: %d of 10 killed\n", strings.Join(args[:2], " "), died)
	}
}
