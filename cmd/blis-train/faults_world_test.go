package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// limit is when a call counts as hanging: these recordings take milliseconds, on a
// machine of two busy cores seconds.
const limit = 2 * time.Minute

// fault is one thing that is wrong, and what must be true afterwards.
type fault struct {
	group, name string
	try         func(w *world) error
}

// world is a recording, an output folder and files of somebody else.
type world struct {
	t       testing.TB
	program string
	dir     string // everything below it
	in, out string
	clean   *state // of the recording without a fault
	strange map[string]string
	isHere  bool // calls that have no standard input are made in this process, which spares the start of another
}

// reply is what a call left.
type reply struct {
	code           int
	stdout, stderr string
	late           bool
}

// said reports whether the program told of something.
func (r *reply) said(words ...string) bool {
	for _, w := range words {
		if strings.Contains(r.stderr, w) {
			return true
		}
	}
	return false
}

// call runs the program; the things that may never happen are errors.
func (w *world) call(args ...string) (*reply, error) { return w.callWith(nil, args...) }

func (w *world) callWith(stdin io.Reader, args ...string) (*reply, error) {
	if w.isHere && stdin == nil {
		o := callIn(w.dir, inThisProcess, args)
		r := &reply{o.code, o.printed, o.said, o.late}
		return r, r.check()
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.program, args...)
	var out, errs bytes.Buffer
	cmd.Dir = w.dir
	cmd.Stdin = stdin
	cmd.Stdout = &out
	cmd.Stderr = &errs
	err := cmd.Run()
	r := &reply{cmd.ProcessState.ExitCode(), out.String(), errs.String(), ctx.Err() != nil}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return r, err
	}
	return r, r.check()
}

// check are the promises that hold whatever is wrong.
func (r *reply) check() error {
	switch {
	case r.late:
		return fmt.Errorf("hangs: nothing within %s", limit)
	case strings.Contains(r.stderr, "goroutine ") || strings.Contains(r.stderr, "internal error"):
		return fmt.Errorf("panics: %.400s", r.stderr)
	case !slices.Contains([]int{0, 1, 2, 3}, r.code):
		return fmt.Errorf("ends with exit code %d: %.300s", r.code, r.stderr)
	case r.code != 0 && !r.said("error:"):
		return fmt.Errorf("ends with exit code %d and no word", r.code)
	}
	return nil
}

// state is what tables hold, without places in files.
type state struct {
	runs  map[string]string // id -> contents
	notes string            // codes of drops and warnings
}

// stateOf reads an output folder.
func stateOf(out string) (*state, error) {
	s := &state{runs: map[string]string{}}
	text, err := os.ReadFile(filepath.Join(out, "extract.json"))
	if err != nil {
		return nil, err
	}
	var doc result.Extract
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	var notes []string
	for _, r := range doc.Runs {
		run, err := table.Read(table.RunDir(out, r.ID))
		if err != nil {
			return nil, err
		}
		s.runs[r.ID] = contents(run)
		for reason := range r.Records.Dropped {
			notes = append(notes, reason)
		}
		for _, f := range r.Warnings {
			notes = append(notes, string(f.Code))
		}
		if !r.Records.Balanced() {
			return nil, fmt.Errorf("run %s: read %d, kept %d, dropped %v", r.ID, r.Records.Read, r.Records.Kept, r.Records.Dropped)
		}
	}
	slices.Sort(notes)
	s.notes = strings.Join(notes, " ")
	return s, nil
}

func contents(run *trace.Run) string {
	for i := range run.Requests {
		r := &run.Requests[i]
		r.File = ""
		r.CoreLine = trace.Opt[int64]{}
		r.APILine = trace.Opt[int64]{}
	}
	for i := range run.KVEvents {
		run.KVEvents[i].Line = 0
	}
	for i := range run.Observed {
		run.Observed[i].Line = 0
	}
	run.ID = ""
	b, err := json.Marshal(run)
	if err != nil {
		panic(err) // two runs that cannot be written would look alike
	}
	return string(b)
}

func (s *state) equal(o *state) bool {
	if len(s.runs) != len(o.runs) {
		return false
	}
	for id, text := range s.runs {
		if o.runs[id] != text {
			return false
		}
	}
	return true
}

// extract extracts the recording into the output folder.
func (w *world) extract(more ...string) (*reply, error) {
	return w.call(append([]string{"extract", w.in, "-o", w.out, "--max-bad-frac", "1", "--quiet"}, more...)...)
}

// loud: nothing is lost in silence. Where the tables differ from those of the
// clean recording the program failed, or it said so in words.
func (w *world) loud(more ...string) error {
	r, err := w.extract(more...)
	if err != nil || r.code != 0 {
		return err
	}
	got, err := stateOf(w.out)
	switch {
	case err != nil:
		return err
	case !got.equal(w.clean) && got.notes == w.clean.notes:
		return errors.New("silent loss: exit 0, other tables, no drop and no warning")
	}
	return nil
}

// same: the tables are those of the clean recording, and nothing failed.
func (w *world) same(more ...string) error {
	r, err := w.extract(more...)
	if err != nil {
		return err
	}
	if r.code != 0 {
		return fmt.Errorf("refused: %.300s", r.stderr)
	}
	got, err := stateOf(w.out)
	if err == nil && !got.equal(w.clean) {
		err = fmt.Errorf("other tables (notes %q)", got.notes)
	}
	return err
}

// refused: the call fails with one of the words.
func (w *world) refused(r *reply, err error, words ...string) error {
	switch {
	case err != nil:
		return err
	case r.code == 0:
		return errors.New("accepted in silence")
	case len(words) > 0 && !r.said(words...):
		return fmt.Errorf("refused without %q: %.300s", words, r.stderr)
	}
	return nil
}

// put writes a file of the recording.
func (w *world) put(name, text string) {
	repo.Write(w.t, text, w.in, name)
}

// get reads one.
func (w *world) get(name string) string {
	b, err := os.ReadFile(filepath.Join(w.in, name))
	must(w.t, err)
	return string(b)
}

// edit replaces once in a file of the recording.
func (w *world) edit(name, old, new string) error {
	text := w.get(name)
	if !strings.Contains(text, old) {
		return fmt.Errorf("%s holds no %q", name, old)
	}
	w.put(name, strings.Replace(text, old, new, 1))
	return nil
}

// freshEqual runs the program again into out, and once into a new folder: both
// must hold the same files.
func (w *world) freshEqual(stage ...string) error {
	if r, err := w.call(append(slices.Clone(stage), "-o", w.out, "--quiet")...); err != nil || r.code == 1 || r.code == 2 {
		return errors.Join(err, fmt.Errorf("exit %d: %.300s", r.code, r.stderr))
	}
	fresh := filepath.Join(w.dir, "fresh")
	defer os.RemoveAll(fresh)
	if r, err := w.call(append(slices.Clone(stage), "-o", fresh, "--quiet")...); err != nil || r.code == 1 || r.code == 2 {
		return errors.Join(err, fmt.Errorf("exit %d: %.300s", r.code, r.stderr))
	}
	got := files(w.t, w.out)
	want := files(w.t, fresh)
	for name, text := range want {
		if got[name] != text {
			return fmt.Errorf("%s differs from that of a fresh folder", name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok && w.strange[filepath.Join(w.out, name)] == "" {
			return fmt.Errorf("%s is not in a fresh folder", name)
		}
	}
	return nil
}

// files are the files below a folder but the cache, which has times in it.
func files(t testing.TB, dir string) map[string]string {
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || d.Name() == ".extract-cache.json" {
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(dir, p)
		out[rel] = string(b)
		return err
	})
	must(t, err)
	return out
}

// strangers lays files of somebody else around; none of them may go.
func (w *world) strangers() {
	w.strange = map[string]string{}
	for _, name := range []string{"notes.txt", "out/tables/run=mine/thesis.parquet", "out/tables/mine.txt", "in/notes.md"} {
		path := filepath.Join(w.dir, name)
		must(w.t, os.MkdirAll(filepath.Dir(path), 0o755))
		repo.Write(w.t, name, path)
		w.strange[path] = name
	}
}

func (w *world) strangersStay() error {
	for path, text := range w.strange {
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			return fmt.Errorf("deleted or changed %s, which is not its own", path)
		}
	}
	return nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// surroundings are links, devices, permissions and disks.
func surroundings() (out []fault) {
	const group = "file system"
	add := func(name string, try func(w *world) error) { out = append(out, fault{group, name, try}) }
	inputs := []string{"traces.jsonl", "kv_events.jsonl", "run.yaml", "config.json"}
	for _, name := range inputs {
		replace := func(how string, put func(path string) error) {
			add(name+" is "+how, func(w *world) error {
				path := filepath.Join(w.in, name)
				must(w.t, os.Remove(path))
				must(w.t, put(path))
				r, err := w.extract()
				return w.refused(r, err)
			})
		}
		replace("missing", func(string) error { return nil })
		replace("a folder", func(p string) error { return os.Mkdir(p, 0o755) })
		replace("a pipe", func(p string) error { return mkfifo(p) })
		replace("a link to nothing", func(p string) error { return os.Symlink("nowhere", p) })
		replace("a link to itself", func(p string) error { return os.Symlink(filepath.Base(p), p) })
		replace("a link to a device", func(p string) error { return os.Symlink("/dev/zero", p) })
		add(name+" is a link to the file", func(w *world) error {
			path := filepath.Join(w.in, name)
			must(w.t, os.Rename(path, filepath.Join(w.dir, name)))
			must(w.t, os.Symlink(filepath.Join("..", name), path))
			if name == "config.json" { // leads out of the run folder
				r, err := w.extract()
				return w.refused(r, err)
			}
			return w.same()
		})
	}
	for _, name := range []string{"out", "out/tables", "out/tables/run=smoke", "out/extract.json"} {
		add(name+" is a file or folder of the wrong kind", func(w *world) error {
			path := filepath.Join(w.dir, name)
			must(w.t, os.MkdirAll(filepath.Dir(path), 0o755))
			if name == "out" || name == "out/tables" {
				must(w.t, os.RemoveAll(path))
				w.strange = nil
			}
			if name == "out/extract.json" {
				must(w.t, os.MkdirAll(filepath.Join(path, "x"), 0o755))
			} else {
				repo.Write(w.t, "mine", path)
			}
			r, err := w.extract()
			return w.refused(r, err)
		})
		add(name+" is a link to a folder of others", func(w *world) error {
			path := filepath.Join(w.dir, name)
			precious := filepath.Join(w.dir, "precious")
			must(w.t, os.MkdirAll(filepath.Join(precious, "run=smoke"), 0o755))
			w.strange = map[string]string{filepath.Join(precious, "steps.parquet"): "mine",
				filepath.Join(precious, "run=smoke", "steps.parquet"): "mine"}
			for p, text := range w.strange {
				repo.Write(w.t, text, p)
			}
			must(w.t, os.RemoveAll(path))
			must(w.t, os.MkdirAll(filepath.Dir(path), 0o755))
			must(w.t, os.Symlink(precious, path))
			_, err := w.extract()
			return err
		})
	}
	for _, blocks := range []int{0, 1, 4, 8, 16, 24, 40, 64, 100, 200} {
		add(fmt.Sprintf("no room for files of more than %d blocks", blocks), func(w *world) error {
			r, err := w.limited(fmt.Sprintf("ulimit -f %d", blocks), "run", w.in, "-o", w.out, "--max-bad-frac", "1", "--bootstraps", "50",
				"--quiet")
			if err != nil {
				return err
			}
			if r.code == 1 || r.code == 2 {
				return w.freshEqual("run", w.in, "--max-bad-frac", "1", "--bootstraps", "50")
			}
			return nil
		})
	}
	for _, files := range []int{10, 12, 14, 16, 20} {
		add(fmt.Sprintf("at most %d open files", files), func(w *world) error {
			r, err := w.limited(fmt.Sprintf("ulimit -n %d", files), "extract", w.in, "-o", w.out, "--max-bad-frac", "1", "--quiet")
			if err != nil || r.code != 0 {
				return err
			}
			return w.same()
		})
	}
	add("standard output is full", func(w *world) error {
		r, err := w.limited("exec >/dev/full", "extract", w.in, "-o", w.out, "--json")
		return w.refused(r, err)
	})
	return out
}

// limited runs the program in a shell that sets something up first.
func (w *world) limited(setup string, args ...string) (*reply, error) {
	cmd := exec.Command("sh", append([]string{"-c", setup + `; exec "$@"`, "sh", w.program}, args...)...)
	var errs bytes.Buffer
	cmd.Dir, cmd.Stderr = w.dir, &errs
	err := cmd.Run()
	r := &reply{code: cmd.ProcessState.ExitCode(), stderr: errs.String()}
	if err != nil && cmd.ProcessState == nil {
		return r, err
	}
	return r, r.check()
}

// interrupts are signals at some moment, and requests that are far too large.
func interrupts() (out []fault) {
	const group = "interrupts and size"
	add := func(name string, try func(w *world) error) { out = append(out, fault{group, name, try}) }
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for _, ms := range []int{3, 10, 25, 50, 90} {
			for _, args := range [][]string{{"run", "in", "-o", "out", "--bootstraps", "3000", "--max-bad-frac", "1"},
				{"extract", "-", "-o", "out", "--set", "x=1"}} {
				add(fmt.Sprintf("%s after %d ms of %s %s", sig, ms, args[0], args[1]), func(w *world) error {
					again := []string{args[0], w.in, "--max-bad-frac", "1"}
					if args[0] == "run" {
						again = append(again, "--bootstraps", "50")
					}
					return errors.Join(w.interrupted(sig, time.Duration(ms)*time.Millisecond, args), w.freshEqual(again...))
				})
			}
		}
	}
	for _, args := range []string{
		"simulate --coeffs none --requests 1000000000000000", "extract in -o out2 --max-line 9000000000000000000 --set vllm.max_num_seqs=0",
		"validate in --max-requests 99999999999999999999", "run in -o out2 --bootstraps 9999999999999999999",
	} {
		add(args, func(w *world) error {
			r, err := w.call(strings.Fields(args)...)
			return w.refused(r, err)
		})
	}
	return out
}

// interrupted: after the first signal the program ends within five seconds.
func (w *world) interrupted(sig syscall.Signal, after time.Duration, args []string) error {
	cmd := exec.Command(w.program, args...)
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer pipe.Close()
	var errs bytes.Buffer
	cmd.Dir, cmd.Stderr = w.dir, &errs
	if err := cmd.Start(); err != nil {
		return err
	}
	time.Sleep(after)
	cmd.Process.Signal(sig)
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		cmd.Process.Kill()
		<-done
		return errors.New("hangs: more than 5 s after the first signal")
	}
	if strings.Contains(errs.String(), "goroutine ") {
		return fmt.Errorf("panics: %.300s", errs.String())
	}
	return nil
}

// otherForms are the other engines' logs and benchmarks, by example.
func otherForms(t testing.TB) (list []reader) {
	config, err := os.ReadFile(filepath.Join(recording, "config.json"))
	must(t, err)
	extract := []string{"extract", ".", "-o", "out", "--json", "--max-bad-frac", "1"}
	add := func(name, key, file, text, legal string) {
		texts := map[string]string{"config.json": string(config), "run.yaml": fmt.Sprintf(runText, key+": "+file), file: text}
		list = append(list, reader{name: name, file: file, texts: texts, call: extract, legal: legal})
	}
	lines := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.NewReplacer("SS", fmt.Sprintf("%02d", i%60), "MM", fmt.Sprintf("%02d", i/60), "II", fmt.Sprint(i+1)).
				Replace(format) + "\n")
		}
		return b.String()
	}
	add("SGLang log", "iterations", "sglang.log", lines(90, "[2026-03-01 10:MM:SS TP0] Prefill batch, #new-seq: 2, #new-token: 500, "+
		"#cached-token: 128, "+
		"token usage: 0.01, #running-req: 3, #queue-req: 4, cuda graph: False, input throughput (token/s): 10.50"), "")
	add("TensorRT-LLM log", "iterations", "trt.log", lines(90, "[03/01/2026-10:MM:SS] [TRT-LLM] [I] iter = II, global_rank = 0, rank = 0, "+
		"currank_total_requests = 0/1, host_step_time = 250.1ms, prev_device_step_time = 249.0ms, timestamp = 2026-03-01 10:MM:SS, "+
		"num_scheduled_requests: 1, states = {'num_ctx_requests': 1, 'num_ctx_tokens': 300, 'num_generation_tokens': 0}"), "")
	add("sglang.bench_serving", "client_requests", "run.jsonl", strings.Repeat(`{"backend": "sglang", "dataset_name": "random", "request_rate": 4.0, `+
		`"max_concurrency": 2, "duration": 1.5, "completed": 2, "total_input_tokens": 30, "total_output_tokens": 6, "request_throughput": 1.33, `+
		`"mean_e2e_latency_ms": 150.0, "mean_ttft_ms": 100.0, "median_ttft_ms": 100.0, "mean_tpot_ms": 25.0, "input_lens": [10, 20], `+
		`"output_lens": [3, 3], "ttfts": [0.1, 0.1], "itls": [[0.02, 0.03], [0.03, 0.02]], "generated_texts": ["a", "b"], "errors": ["", ""]}`+"\n", 3),
		`.*(request_rate|duration|request_throughput|mean_e2e_latency_ms|mean_ttft_ms|median_ttft_ms|mean_tpot_ms|total_output_tokens|max_concurrency)`)
	add("InferenceX", "client_requests", "agg.json", `[{"hw": "b200", "conc": 16, "model": "m", "framework": "vllm", "precision": "fp8", "isl": 1024, "osl": 256, `+
		`"tp": 4, "ep": 4, "dp_attention": "false", "disagg": false, "spec_decoding": "none", "tput_per_gpu": 900.5, "output_tput_per_gpu": 180.1, `+
		`"mean_ttft": 0.25, "median_ttft": 0.2, "p99_ttft": 0.9, "mean_tpot": 0.012, "mean_intvty": 83.3, "mean_itl": 0.012, "mean_e2el": 3.31}]`,
		`.*(tput_per_gpu|output_tput_per_gpu|p99_ttft|mean_intvty)`)
	return list
}

// modelReaders are configurations of unlike models, sized by inspect.
func modelReaders(t testing.TB) (list []reader) {
	folder := repo.Shared(t, "data", "models_hf")
	for _, name := range []string{"deepseek-ai--DeepSeek-V3.2", "openai--gpt-oss-120b", "Qwen--Qwen3.5-35B-A3B", "moonshotai--Kimi-K2.5",
		"nvidia--Llama-3_3-Nemotron-Super-49B-v1", "mistralai--Mixtral-8x7B-v0.1", "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
		"google--gemma-4-26B-A4B"} {
		b, err := os.ReadFile(filepath.Join(folder, name+"_config.json"))
		must(t, err)
		list = append(list, reader{name: name, file: "config.json", texts: map[string]string{"config.json": string(b)},
			call: []string{"inspect", "--model", "config.json", "--json"}, legal: `.*(_token_id|_token_ids|token_index|token_type_id|pretraining_tp|initializer_range)(\[\])?.*`})
	}
	return list
}

const loadText = `requests: 40
arrivals: {kind: gamma, rate_rps: 5, cv: 2}
prompt:
  kind: lognormal
  mean: 300
  sigma: 0.8
  min: 4
  max: 2000
output:
  kind: uniform
  min: 10
  max: 60
max_tokens: 100
prefix:
  groups: 8
  tokens: 128
  share: 0.5
`

const clusterText = `instances:
  - count: 2
snapshot_refresh_us: 10000
shadow_share: 0.5
routing:
  policy: weighted
  scorers: "prefix-affinity:4,queue-depth:3"
goodput_slo_targets:
  standard:
    ttft_ms: 50
    e2e_ms: 5000
`

// otherDocuments are workloads, clusters and what the neighbours' commands leave, and the calls that read them.
func otherDocuments(t testing.TB, program string) (list []reader) {
	w := newWorld(t, program, t.TempDir(), nil)
	do := func(args ...string) {
		t.Helper()
		r, err := w.call(args...)
		must(t, err)
		if r.code == 1 || r.code == 2 {
			t.Fatal(args, r.stderr)
		}
	}
	deployment := map[string]string{}
	for name, text := range w.texts("in") {
		if !strings.Contains(name, "traces") && !strings.Contains(name, "kv_events") {
			deployment[name] = text
		}
	}
	simulate := func(name, file, text, legal string, more ...string) {
		texts := map[string]string{file: text, "load.yaml": loadText}
		for k, v := range deployment {
			texts[k] = v
		}
		texts[file] = text
		call := append([]string{"simulate", "--latency-model", "roofline", "--deployment", "in", "-o", "again", "--json"}, more...)
		list = append(list, reader{name: name, file: file, texts: texts, call: call, legal: legal})
	}
	var mooncake, azure strings.Builder
	azure.WriteString("TIMESTAMP,ContextTokens,GeneratedTokens\n")
	for i := range 9 {
		fmt.Fprintf(&mooncake, `{"timestamp": %d, "input_length": 60, "output_length": 5, "hash_ids": [%d]}`+"\n", 1000*i, i+1)
		fmt.Fprintf(&azure, "2023-11-16 18:17:%02d.9799600,300,10\n", i)
	}
	simulate("generator", "load.yaml", loadText, "cv|sigma", "--workload", "load.yaml")
	simulate("cluster", "cluster.yaml", clusterText, "snapshot_refresh_us|ttft_ms|e2e_ms", "--workload", "load.yaml",
		"--cluster", "cluster.yaml")
	simulate("Mooncake", "mooncake.jsonl", mooncake.String(), `.*hash_ids.*`, "--workload", "mooncake.jsonl")
	simulate("Azure", "azure.csv", azure.String(), "", "--workload", "azure.csv")

	sweep, err := filepath.Abs("../../testdata/sweeps/llama-3.1-8b.csv")
	must(t, err)
	real, err := filepath.Abs("../../testdata/traces/real")
	must(t, err)
	// The queueing parameters, the predictor and the ledger.
	do("queue", "fit", sweep, "-o", "q", "--flavour", "inferno-3p", "--loads", "7", "--queue-ratio", "1", "--model", "llama",
		"--accelerator", "H100", "--quiet")
	do("run", "in", "-o", "out", "--bootstraps", "50", "--quiet", "--ledger", "ledger.jsonl")
	do("predictor", "fit", real, "-o", "p", "--fit", "none", "--quiet")
	problem := "capacity:\n  H100: 8\nunit_cost:\n  H100: 400\nservers:\n  - name: chat\n    model: llama\n    priority: 1\n" +
		"    rate_rps: 40\n" +
		"    itl_ms: 12\n    prompt_tokens: 512\n    output_tokens: 128\n"
	text := func(name string) string {
		b, err := os.ReadFile(filepath.Join(w.dir, name))
		must(t, err)
		return string(b)
	}
	add := func(file, legal string, texts map[string]string, call ...string) {
		list = append(list, reader{name: file + " by " + call[0] + " " + call[1], file: file, texts: texts, call: call, legal: legal})
	}
	queue := map[string]string{"queue.json": text("q/queue.json"), "problem.yaml": problem}
	add("queue.json", "", queue, "queue", "size", "queue.json", "-o", "again", "--itl-ms", "12", "--json")
	add("queue.json", "", queue, "export", "--format", "inferno-models", "queue.json", "-o", "exported", "--ignore-verdict")
	add("problem.yaml", "priority|itl_ms", queue, "queue", "allocate", "queue.json", "problem.yaml", "-o", "again", "--json")
	add("ledger.jsonl", `.*(tool_version|headline|bytes).*`, map[string]string{"ledger.jsonl": text("ledger.jsonl")}, "log", "ledger.jsonl", "--json")
	add("predictor.json", "", map[string]string{"predictor.json": text("p/predictor.json")}, "export", "--format",
		"predictor-xgboost", "predictor.json", "-o", "exported", "--ignore-verdict")
	coefficients := map[string]string{"coefficients.yaml": text("out/coefficients.yaml")}
	for k, v := range deployment {
		coefficients[k] = v
	}
	add("coefficients.yaml", "", coefficients, "check", "coefficients.yaml", "--against", "in", "--json", "--ignore-verdict")
	other := map[string]string{"coefficients.yaml": text("out/coefficients.yaml"), "b.yaml": text("out/coefficients.yaml")}
	add("b.yaml", "", other, "diff", "coefficients.yaml", "b.yaml", "--json")
	return list
}
