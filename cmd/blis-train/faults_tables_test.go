package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func sortByName(list []fault) {
	slices.SortFunc(list, func(a, b fault) int { return strings.Compare(a.name, b.name) })
}

var tableNames = []string{"requests", "journey_events", "steps", "snapshots", "kv_events"}

// tables are extracted tables, and the document beside them, that were changed.
func tables() (out []fault) {
	const group = "tables (type, count, identity)"
	add := func(name string, change func(w *world, path, text string)) {
		for _, table := range tableNames {
			out = append(out, fault{group, table + ": " + name, func(w *world) error {
				path, err := w.extracted(table)
				if err != nil {
					return err
				}
				b, err := os.ReadFile(path)
				must(w.t, err)
				change(w, path, string(b))
				r, err := w.call("inspect", w.out, "--quiet")
				if err == nil && !r.said(table) {
					err = fmt.Errorf("exit %d and not a word of the table: %.300s", r.code, r.stderr)
				}
				return err
			}})
		}
	}
	write := func(w *world, path, text string) { must(w.t, os.WriteFile(path, []byte(text), 0o644)) }
	for k := range 5 {
		add(fmt.Sprintf("cut at %d/5", k), func(w *world, path, s string) { write(w, path, s[:k*len(s)/5]) })
		add(fmt.Sprintf("a bit at %d/5", k), func(w *world, path, s string) { write(w, path, flipped(s, k*len(s)/5+1)) })
	}
	add("missing", func(w *world, path, _ string) { must(w.t, os.Remove(path)) })
	add("text", func(w *world, path, _ string) { write(w, path, "not a table\n") })
	add("another's columns", func(w *world, path, _ string) {
		other := "steps"
		if strings.Contains(path, "steps.") {
			other = "snapshots"
		}
		b, err := os.ReadFile(filepath.Join(filepath.Dir(path), other+".parquet"))
		must(w.t, err)
		write(w, path, string(b))
	})
	add("a row more than counted", func(w *world, path, s string) {
		name := strings.TrimSuffix(filepath.Base(path), ".parquet")
		doc := filepath.Join(w.out, "extract.json")
		b, err := os.ReadFile(doc)
		must(w.t, err)
		from := strings.Index(string(b), `"tables"`)
		at := from + strings.Index(string(b)[from:], `"`+name+`": `) + len(name) + 4
		write(w, doc, string(b)[:at]+"1"+string(b)[at:])
		write(w, path, s[:len(s)-1]+s[len(s)-1:]+"x")
	})
	return out
}

// extracted extracts the recording and names the file of a table.
func (w *world) extracted(table string) (string, error) {
	r, err := w.extract()
	if err == nil && r.code != 0 {
		err = errors.New(r.stderr)
	}
	return filepath.Join(w.out, "tables", "run=smoke", table+".parquet"), err
}

// settingsOfRuns are options of a whole run that give another result: flags, or the text of
// a file for --config.
var settingsOfRuns = [][]string{
	nil, {"--set", "vllm.max_num_seqs=8"}, {"--set", "hardware.BwPeakTBs=2"}, {"extract: {format: arrow}"}, {"fit: {seed: 7}"},
	{"--set", "name=other"}, {"extract: {max-line: 4000000}"}, {"--bootstraps", "60"}, {"extract: {why-rejected: true}"},
}

// flags are options as the command takes them.
func (w *world) flags(options []string) []string {
	if len(options) != 1 {
		return options
	}
	name := filepath.Join(w.dir, "settings.yaml")
	must(w.t, os.WriteFile(name, []byte(options[0]+"\n"), 0o666))
	return []string{"--config", name}
}

// cache are second calls into a folder that is not what the first call left.
func cache() (out []fault) {
	const group = "cache and crash"
	again := func(w *world, options []string) error {
		return w.freshEqual(append([]string{"run", w.in, "--max-bad-frac", "1", "--bootstraps", "50"}, w.flags(options)...)...)
	}
	first := func(w *world, options []string) error {
		_, err := w.call(append([]string{"run", w.in, "-o", w.out, "--max-bad-frac", "1", "--quiet", "--bootstraps", "50"},
			w.flags(options)...)...)
		return err
	}
	for i, options := range settingsOfRuns {
		out = append(out, fault{group, fmt.Sprintf("options %v after others", options), func(w *world) error {
			return errors.Join(first(w, settingsOfRuns[(i+1)%len(settingsOfRuns)]), again(w, options))
		}})
	}
	for name, change := range map[string]func(w *world){
		"a dump more": func(w *world) {
			line, _, _ := strings.Cut(w.get("traces.jsonl"), "\n")
			w.put("more.jsonl", line+"\n")
			must(w.t, w.edit("run.yaml", `traces: "traces.jsonl"`, "traces: [traces.jsonl, more.jsonl]"))
		},
		"a line less": func(w *world) {
			s := w.get("traces.jsonl")
			w.put("traces.jsonl", s[strings.Index(s, "\n")+1:])
		},
		"hardware.json": func(w *world) { w.put("hardware.json", `{"H100-SXM-80GB": {"TFlopsPeak": 1, "BwPeakTBs": 1}}`) },
		"a model file":  func(w *world) { must(w.t, w.edit("config.json", `"vocab_size": `, `"vocab_size": 1`)) },
		"run.yaml":      func(w *world) { must(w.t, w.edit("run.yaml", "max_num_seqs: 4", "max_num_seqs: 5")) },
		"the same length": func(w *world) {
			s := w.get("kv_events.jsonl")
			w.put("kv_events.jsonl", strings.Replace(s, "BlockStored", "BlockStoreD", 1))
		},
	} {
		out = append(out, fault{group, "the recording changed: " + name, func(w *world) error {
			err := first(w, nil)
			change(w)
			return errors.Join(err, again(w, nil))
		}})
	}
	for _, name := range []string{"extract.json", "fit.json", "validation.json", "coefficients.yaml", ".extract-cache.json",
		"tables/run=smoke/steps.parquet", "tables/run=smoke/requests.parquet"} {
		for how, change := range map[string]func(path string) error{
			"removed": os.Remove, "cut": func(p string) error { return os.Truncate(p, 40) },
			"empty": func(p string) error { return os.Truncate(p, 0) },
		} {
			out = append(out, fault{group, name + " " + how, func(w *world) error {
				return errors.Join(first(w, nil), change(filepath.Join(w.out, name)), again(w, nil))
			}})
		}
	}
	for k := range 50 {
		options := func(i int) []string { return settingsOfRuns[(k+i)%len(settingsOfRuns)] }
		out = append(out, fault{group, fmt.Sprintf("killed after %d ms", 4+5*k), func(w *world) error {
			return errors.Join(first(w, options(0)), w.killed(time.Duration(4+5*k)*time.Millisecond, options(3)), again(w, options(1)))
		}})
	}
	sortByName(out)
	return out
}

// killed starts a whole run and kills it.
func (w *world) killed(after time.Duration, options []string) error {
	cmd := exec.Command(w.program, append([]string{"run", w.in, "-o", w.out, "--max-bad-frac", "1", "--bootstraps", "50"},
		w.flags(options)...)...)
	if err := cmd.Start(); err != nil {
		return err
	}
	time.Sleep(after)
	cmd.Process.Kill()
	cmd.Wait()
	return nil
}
