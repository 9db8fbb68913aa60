package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

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
				must(w.t, os.WriteFile(path, []byte("mine"), 0o644))
			}
			r, err := w.extract()
			return w.refused(r, err)
		})
		add(name+" is a link to a folder of others", func(w *world) error {
			path, precious := filepath.Join(w.dir, name), filepath.Join(w.dir, "precious")
			must(w.t, os.MkdirAll(filepath.Join(precious, "run=smoke"), 0o755))
			w.strange = map[string]string{filepath.Join(precious, "steps.parquet"): "mine",
				filepath.Join(precious, "run=smoke", "steps.parquet"): "mine"}
			for p, text := range w.strange {
				must(w.t, os.WriteFile(p, []byte(text), 0o644))
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
	for name, text := range map[string]string{
		"a bomb of zeros": strings.Repeat("\x00", 1<<26), "a bomb of blanks": strings.Repeat(" ", 1<<26),
		"a bomb of lines": strings.Repeat("{}\n", 1<<23),
	} {
		add(name, func(w *world) error {
			w.put("bomb.gz", gzipped(text))
			must(w.t, w.edit("run.yaml", `traces: "traces.jsonl"`, "traces: [traces.jsonl, bomb.gz]"))
			r, err := w.extract("--max-expansion", "100")
			return w.refused(r, err, "bomb.gz")
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
