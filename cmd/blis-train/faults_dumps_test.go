package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(text))
	z.Close()
	return b.String()
}

func zstded(text string) string {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(true))
	if err != nil {
		panic(err)
	}
	return string(z.EncodeAll([]byte(text), nil))
}

// dump replaces the dump by one of another name.
func (w *world) dump(name, text string) {
	must(w.t, os.Remove(filepath.Join(w.in, "traces.jsonl")))
	w.put(name, text)
	must(w.t, w.edit("run.yaml", `traces: "traces.jsonl"`, "traces: "+name))
}

// flipped is text with one bit of byte at turned.
func flipped(text string, at int) string {
	b := []byte(text)
	b[at] ^= 1 << (at % 7)
	return string(b)
}

const parts = 12

// damaged are dumps that are cut, overwritten or packed badly.
func damaged() (out []fault) {
	const group = "damaged or truncated dumps"
	add := func(name string, change func(w *world, text string), check func(w *world) error) {
		out = append(out, fault{group, name, func(w *world) error { change(w, w.get("traces.jsonl")); return check(w) }})
	}
	loud := func(w *world) error { return w.loud() }
	same := func(w *world) error { return w.same() }
	for k := range parts {
		at := func(text string) int { // never at the end of a line
			n := len(text) * (2*k + 1) / (2 * parts)
			for text[n-1] == '\n' || text[n] == '\n' {
				n++
			}
			return n
		}
		add(fmt.Sprintf("plain, cut at %d/%d", k, parts), func(w *world, s string) { w.put("traces.jsonl", s[:at(s)]) }, loud)
		add(fmt.Sprintf("gzip, cut at %d/%d", k, parts), func(w *world, s string) { z := gzipped(s); w.dump("t.json.gz", z[:at(z)]) }, loud)
		add(fmt.Sprintf("zstd, cut at %d/%d", k, parts), func(w *world, s string) { z := zstded(s); w.dump("t.json.zst", z[:at(z)]) }, loud)
		add(fmt.Sprintf("gzip, a bit at %d/%d", k, parts), func(w *world, s string) { z := gzipped(s); w.dump("t.json.gz", flipped(z, at(z))) },
			loud)
		add(fmt.Sprintf("zstd, a bit at %d/%d", k, parts), func(w *world, s string) { z := zstded(s); w.dump("t.json.zst", flipped(z, at(z))) },
			loud)
		add(fmt.Sprintf("64 NULs at %d/%d", k, parts), func(w *world, s string) {
			n := at(s)
			w.put("traces.jsonl", s[:n]+strings.Repeat("\x00", 64)+s[n+64:])
		}, loud)
		add(fmt.Sprintf("garbage in a line at %d/%d", k, parts), func(w *world,
			s string) {
			n := at(s)
			w.put("traces.jsonl", s[:n]+"\xff<html>\x01"+s[n:])
		}, loud)
	}
	add("byte order mark", func(w *world, s string) { w.put("traces.jsonl", "\xef\xbb\xbf"+s) }, same)
	add("CRLF", func(w *world, s string) { w.put("traces.jsonl", strings.ReplaceAll(s, "\n", "\r\n")) }, same)
	add("blank lines", func(w *world, s string) { w.put("traces.jsonl", strings.ReplaceAll(s, "\n", "\n\n \n")) }, same)
	add("no last newline", func(w *world, s string) { w.put("traces.jsonl", strings.TrimSuffix(s, "\n")) }, same)
	add("gzip of gzip", func(w *world, s string) { w.dump("t.json.gz", gzipped(gzipped(s))) }, same)
	add("a line of garbage", func(w *world, s string) { w.put("traces.jsonl", "<html>\n"+s) },
		func(w *world) error { return errors.Join(w.loud()) })
	add("UTF-16", func(w *world, s string) { w.put("traces.jsonl", "\xff\xfe{\x00") }, loud)
	add("deeply nested", func(w *world, s string) { w.put("traces.jsonl", strings.Repeat(`{"resourceSpans":[`, 20000)+"\n"+s) }, loud)
	return out
}

// order are dumps in another order, repeated or rotated.
func order() (out []fault) {
	const group = "order, duplicates and rotation"
	add := func(name string, try func(w *world, lines []string) error) {
		out = append(out, fault{group, name, func(w *world) error { return try(w, strings.SplitAfter(w.get("traces.jsonl"), "\n")) }})
	}
	for _, window := range []int{2, 5, 10, 1000} {
		for seed := range uint64(4) {
			add(fmt.Sprintf("shuffled within %d lines, %d", window, seed), func(w *world, lines []string) error {
				rng := rand.New(rand.NewPCG(seed, 7))
				for from := 0; from < len(lines); from += window {
					part := lines[from:min(from+window, len(lines))]
					rng.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
				}
				w.put("traces.jsonl", strings.Join(lines, ""))
				return w.same()
			})
		}
	}
	for k := range 8 {
		add(fmt.Sprintf("line %d/8 twice", k), func(w *world, lines []string) error {
			n := k * len(lines) / 8
			w.put("traces.jsonl", strings.Join(lines[:n+1], "")+strings.Join(lines[n:], ""))
			return w.same()
		})
		for _, scheme := range [][3]string{
			{"traces.jsonl.2", "traces.jsonl.1", "traces.jsonl"}, {"traces.jsonl.2.gz", "traces.jsonl.1.gz", "traces.jsonl"},
			{"traces-2026-01-01T00-00-00.000.jsonl", "traces-2026-01-01T00-00-01.000-size.jsonl", "traces.jsonl"},
			{"traces.jsonl-20260101", "traces.jsonl-20260102", "traces.jsonl"},
		} {
			add(fmt.Sprintf("rotated as %s, cut at %d/8", scheme[0], k), func(w *world, lines []string) error {
				text := strings.Join(lines, "")
				a := (k*len(text) + len(text)/2) / 17
				b := a + (len(text)-a)/2
				must(w.t, w.edit("run.yaml", "files:\n  traces: \"traces.jsonl\"\n  kv_events: \"kv_events.jsonl\"\n", ""))
				for i, part := range []string{text[:a], text[a:b], text[b:]} {
					if strings.HasSuffix(scheme[i], ".gz") {
						part = gzipped(part)
					}
					w.put(scheme[i], part)
				}
				return w.same()
			})
		}
	}
	add("everything twice", func(w *world, lines []string) error {
		w.put("traces.jsonl", strings.Join(lines, "")+strings.Join(lines, ""))
		return w.same()
	})
	add("two files with the same lines", func(w *world, lines []string) error {
		w.put("again.jsonl", strings.Join(lines, ""))
		must(w.t, w.edit("run.yaml", `traces: "traces.jsonl"`, "traces: [traces.jsonl, again.jsonl]"))
		return w.same()
	})
	return out
}

// foreign are files that are something else than their place says.
func foreign() (out []fault) {
	const group = "foreign and untyped files"
	for name, text := range map[string]string{
		"empty": "", "blank": " \n\n", "HTML": "<html><body>502</body></html>\n", "PNG": "\x89PNG\r\n\x1a\n\x00\x00", "a JSON array": `[{"a": 1}]`,
		"a JSON object": `{"a": {"b": [1, 2]}}`, "JSON lines": "{\"a\": 1}\n{\"a\": 2}\n", "a CSV": "a,b\n1,2\n", "XML": "<?xml version='1.0'?><x/>",
		"metrics": `{"resourceMetrics":[{"scopeMetrics":[]}]}` + "\n", "YAML": "a: 1\nb: [2]\n", "a number": "42\n", "zeros": strings.Repeat("\x00", 4096),
		"MessagePack": "\x92\x01\x02", "a header alone, of no version": "trace_version: 77\n",
	} {
		for _, kind := range []string{"traces", "kv_events", "client_requests"} {
			out = append(out, fault{group, name + " for " + kind, func(w *world) error {
				w.put("foreign.file", text)
				must(w.t, w.edit("run.yaml", `traces: "traces.jsonl"`, map[string]string{
					"traces": "traces: [traces.jsonl, foreign.file]", "kv_events": `traces: "traces.jsonl"`,
					"client_requests": "traces: traces.jsonl\n  client_requests: foreign.file",
				}[kind]))
				if kind == "kv_events" {
					must(w.t, w.edit("run.yaml", `kv_events: "kv_events.jsonl"`, "kv_events: [kv_events.jsonl, foreign.file]"))
				}
				r, err := w.extract()
				return w.refused(r, err, "foreign.file")
			}})
		}
	}
	sortByName(out)
	return out
}

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
	write := func(w *world, path, text string) { repo.Write(w.t, text, path) }
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
	repo.Write(w.t, options[0]+"\n", name)
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

// settings are descriptions and options that cannot be meant.
func settings() (out []fault) {
	const group = "configuration and options"
	for _, c := range [][2]string{
		{"max_num_seqs: 4", "max_num_seqs: -4"}, {"max_num_seqs: 4", "max_num_seqs: four"}, {"max_num_seqs: 4", "max_num_seqs: 1e99"},
		{"max_num_seqs: 4", "max_num_sequences: 4"}, {"max_num_seqs: 4", "max_num_seqs: 4\n  max_num_seqs: 5"},
		{"block_size: 16", "block_size: 0"},
		{"block_size: 16", "block_size: [16]"}, {"BwPeakTBs: 3.35", "BwPeakTBs: 3350000"}, {"BwPeakTBs: 3.35", "BwPeakTBs: -1"},
		{"BwPeakTBs: 3.35", "BwPeakTBs: .nan"}, {"BwPeakTBs: 3.35", "BwPeakTBs: .inf"}, {"TFlopsPeak: 989.5", "TFlopsPeak: 9e15"},
		{"config: \"config.json\"", "config: missing.json"}, {"config: \"config.json\"", "config: ."},
		{"config: \"config.json\"", "config: traces.jsonl"},
		{"scheduling_policy: \"fcfs\"", "scheduling_policy: lifo"}, {"tensor_parallel_size: 1", "tensor_parallel_size: 0"},
		{"tracing:", "tracing: &a\n  <<: *a"}, {"tracing:", "\ttracing:"},
		{"files:", "files: x\nfiles:"}, {"traces: \"traces.jsonl\"", "traces: nothing-*.jsonl"}, {"traces: \"traces.jsonl\"", "traces: 7"},
		{"traces: \"traces.jsonl\"", "traces: ../../../../../../etc/passwd"}, {"gpu_memory_utilization: 0.9", "gpu_memory_utilization: 90"},
		{"dtype: \"bfloat16\"", "dtype: float7"}, {"step_tracing_sample_rate: 1.0", "step_tracing_sample_rate: 100"},
		{"provenance:", "---\nprovenance:"}, {"provenance:", "surprise: 1\nprovenance:"}, {"name: \"smoke\"", "name: [smoke]"},
	} {
		out = append(out, fault{group, "run.yaml with " + strings.ReplaceAll(c[1], "\n", "; "), func(w *world) error {
			if err := w.edit("run.yaml", c[0], c[1]); err != nil {
				return err
			}
			r, err := w.extract()
			return w.refused(r, err)
		}})
	}
	for _, c := range [][2]string{
		{`"hidden_size": `, `"hidden_size": -`}, {`"num_hidden_layers": `, `"num_hidden_layers": 1e400, "x": `}, {`"hidden_size": `, `"hidden": `}, {`{`, `[`},
	} {
		out = append(out, fault{group, "config.json with " + c[1], func(w *world) error {
			if err := w.edit("config.json", c[0], c[1]); err != nil {
				return err
			}
			r, err := w.extract()
			return w.refused(r, err)
		}})
	}
	for _, flags := range []string{
		"--workers -1", "--workers x", "--format csv", "--max-bad-frac 2", "--max-bad-frac -1", "--max-bad-frac NaN",
		"--max-line 0",
		"--max-line 9223372036854775808", "--max-expansion 0", "--set x", "--set =1", "--set vllm.nothing=1", "--set vllm.max_num_seqs=x",
		"--only [",
		"--only nobody", "--exclude *", "--config missing.yaml", "--frobnicate", "--set vllm.max_num_seqs=-1",
	} {
		out = append(out, fault{group, flags, func(w *world) error {
			r, err := w.call(append([]string{"extract", w.in, "-o", w.out}, strings.Fields(flags)...)...)
			return w.refused(r, err)
		}})
	}
	for _, args := range []string{
		"extract", "extract in", "extract missing -o out2", "fit missing", "validate missing", "inspect missing", "export missing", "simulate",
		"simulate --requests -1",
		"run", "run missing -o out2", "diff missing missing", "nonsense", "extract in -o in/run.yaml", "fit in",
	} {
		out = append(out, fault{group, "the call " + args, func(w *world) error {
			r, err := w.call(strings.Fields(args)...)
			return w.refused(r, err)
		}})
	}
	return out
}

// names are names of runs, models and files with something in them.
func names() (out []fault) {
	const group = "names and injection"
	for _, name := range []string{
		`\e[2J\e]0;title\a`, `a\nb`, `a\rb`, `a\x00b`, `../../etc/x`, `/etc/x`, `..`, `.`, `a/b`, `-rf`, `$(touch x)`, "`touch x`", `a;b`, `<script>x</script>`,
		`\u202Eabc`, `\u009b31m`, `run=x`, ` `, `\t`, strings.Repeat("n", 300), strings.Repeat("é", 200), `CON`, `a:b`, `*`, `%s%n`,
	} {
		for _, field := range []string{`name: "smoke"`, `name: "H100-SXM-80GB"`} {
			out = append(out, fault{group, fmt.Sprintf("%.30q for %s", name, field), func(w *world) error {
				if err := w.edit("run.yaml", field, `name: "`+name+`"`); err != nil {
					return err
				}
				r, err := w.call("run", w.in, "-o", w.out, "--max-bad-frac", "1", "--bootstraps", "50")
				if err != nil {
					return err
				}
				return errors.Join(printable(r.stdout), printable(r.stderr), w.inside())
			}})
		}
	}
	return out
}

// printable: no control character reaches a terminal.
func printable(text string) error {
	for _, c := range text {
		if c != '\n' && c != '\t' && !unicode.IsPrint(c) && c != ' ' {
			return fmt.Errorf("prints the character %U", c)
		}
	}
	return nil
}

// inside: nothing was written beside the output folder.
func (w *world) inside() error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if n := e.Name(); n != "in" && n != "out" && n != "notes.txt" {
			return fmt.Errorf("wrote %s beside the output folder", n)
		}
	}
	tables, err := os.ReadDir(filepath.Join(w.out, "tables"))
	for _, e := range tables {
		if !strings.HasPrefix(e.Name(), "run=") && e.Name() != "mine.txt" {
			return fmt.Errorf("wrote tables/%s", e.Name())
		}
	}
	return err
}

// numbers are values that no recording can hold.
func numbers() (out []fault) {
	const group = "numbers (overflow, NaN, units)"
	for _, attr := range []string{
		"step.id", "step.ts_start_ns", "step.ts_end_ns", "step.duration_us", "queue.running_depth", "batch.scheduled_tokens",
		"batch.num_prefill_reqs",
		"kv.blocks_total_gpu", "request.num_prompt_tokens", "request.num_computed_tokens",
	} {
		for _, value := range []string{`"9223372036854775808"`, `"-9223372036854775809"`, `"1e3"`, `"x"`, `{}`, `"1.5"`} {
			out = append(out, fault{group, attr + " is " + value, func(w *world) error {
				text := w.get("traces.jsonl")
				at := strings.Index(text, `"`+attr+`","value":{"intValue":`)
				if at < 0 {
					return fmt.Errorf("the recording has no %s", attr)
				}
				at += len(attr) + len(`"","value":{"intValue":`)
				end := at + strings.Index(text[at:], "}")
				w.put("traces.jsonl", text[:at]+value+text[end:])
				return w.loud()
			}})
		}
	}
	for _, c := range []string{"x,1,1,1", "1,-5,1,1", "1,99999999999999999999,1,1", "1,1,1,NaN", "1,1,1,1e9", "1,1.5,1,1",
		"1,1,1,9223372036854775807", "1,9223372036854775807,1,1"} {
		out = append(out, fault{group, "a TraceV2 row of " + c, func(w *world) error {
			w.put("c.csv", "request_id,input_tokens,output_tokens,arrival_time_us\n"+c+"\n")
			if strings.HasPrefix(c, "x,") { // a name, not a number
				w.put("c.csv", "request_id,input_tokens,output_tokens,arrival_time_us\n1,x,1,1\n")
			}
			must(w.t, w.edit("run.yaml", `traces: "traces.jsonl"`, "traces: traces.jsonl\n  client_requests: c.csv"))
			r, err := w.extract()
			return w.refused(r, err, "c.csv")
		}})
	}
	return out
}
