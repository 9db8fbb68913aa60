package main_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

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
