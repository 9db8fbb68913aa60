package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/vllm"
)

// This file makes faults from tables: forms of numbers times every flag and key that takes one, values that vLLM
// refuses times every flag of its command line. Each is refused with its name, or means what it looks like.

// numberForms are texts that YAML, Python or a shell would take for another number than a person does, or that are
// no number. The second field is the number that a reader may take it for; "" where it has to refuse it.
var numberForms = []struct{ text, same string }{
	{"010", "10"}, {"0x10", ""}, {"1_000", ""}, {"0b11", ""}, {"0o17", ""}, {"1,000", ""}, {"7x", ""}, {"1e400", ""}, {"\u0663", ""},
	{"NaN", ""}, {"0x1p4", ""}, {"--5", ""}, {"190:20", ""},
}

// generatedFault is one call, or one file, that has to be refused as a mistake.
type generatedFault struct {
	group, name string
	args        []string
	says        string // what the message has to contain
	exits       []int  // that are right
	file, text  string // written before the call, where there is one
	word        string // the file with a word in place of the number: where that is accepted the value is a text
}

// faultsOfFlags are the forms of numbers for every flag that takes a number, of every command.
func faultsOfFlags() (out []generatedFault) {
	for _, l := range leaves() {
		for _, f := range l.Flags {
			plain := option.Plain(f)
			_, isFloat := plain.(*cli.Float64Flag)
			switch plain.(type) {
			case *cli.IntFlag, *cli.Int64Flag, *cli.Float64Flag:
			default:
				continue
			}
			name := f.Names()[0]
			for _, form := range numberForms {
				if form.same != "" && isFloat {
					continue // the same number
				}
				out = append(out, generatedFault{group: "numbers of flags", name: l.name + " --" + name + " " + form.text,
					args: append(strings.Fields(l.name), "--"+name+"="+form.text), says: "--" + name, exits: []int{exitUsage}})
			}
		}
	}
	return out
}

// numericLine matches a line of a YAML file whose value is a number.
var numericLine = regexp.MustCompile(`(?m)^(\s*(?:- )?([A-Za-z_][A-Za-z_0-9.-]*):\s+)(-?[0-9][0-9.e+-]*)(\s*(?:#.*)?)$`)

// faultsOfYAML are the forms of numbers for every number of a YAML file. The file is written to the folder, and read
// by the call.
func faultsOfYAML(group, file, text string, args ...string) (out []generatedFault) {
	for _, m := range numericLine.FindAllStringSubmatchIndex(text, -1) {
		key := text[m[4]:m[5]]
		for _, form := range numberForms {
			if form.same != "" {
				continue
			}
			line := 1 + strings.Count(text[:m[0]], "\n")
			out = append(out, generatedFault{group: group, name: fmt.Sprintf("%s:%d %s: %s", file, line, key, form.text), args: args,
				says: filepath.Base(file), exits: []int{exitFailed, exitUsage, exitGate}, file: file, text: text[:m[6]] + form.text + text[m[7]:],
				word: text[:m[6]] + "word" + text[m[7]:]})
		}
	}
	return out
}

// faultsOfConfig are the forms of numbers for every number that pipeline.yaml may set.
func faultsOfConfig() (out []generatedFault) {
	for _, l := range leaves() {
		if !slices.Contains([]string{"extract", "fit", "validate", "run"}, l.name) {
			continue
		}
		for _, f := range l.Flags {
			switch option.Plain(f).(type) {
			case *cli.IntFlag, *cli.Int64Flag, *cli.Float64Flag:
			default:
				continue
			}
			name := f.Names()[0]
			for _, form := range numberForms {
				if form.same == "" {
					out = append(out, generatedFault{group: "numbers of pipeline.yaml", name: l.name + ": " + name + ": " + form.text,
						args: []string{"run", "in", "-o", "o", "--config", "p.yaml"}, says: "p.yaml", exits: []int{exitFailed, exitUsage},
						file: "p.yaml", text: l.name + ":\n  " + name + ": " + form.text + "\n"})
				}
			}
		}
	}
	return out
}

// faultsOfServe are values with which `vllm serve` does not start, for every flag whose values are known.
func faultsOfServe() (out []generatedFault) {
	add := func(words, flag string) {
		out = append(out, generatedFault{group: "values that vLLM refuses", name: words,
			args: []string{"predict", "--model", "qwen3-8b", "--hardware", "H100", "--vllm", words}, says: flag, exits: []int{exitUsage}})
	}
	for _, f := range vllm.AllFlags() {
		flag := "--" + strings.ReplaceAll(f.Name, "_", "-")
		var values []string
		for _, v := range []string{"maybe", "-3", "1.5", "x", "{", "7", "[]", "70000.5", "nan"} {
			if vllm.RefusedValue(f.Name, vllm.FlagValue(f.Name, v)) != "" {
				values = append(values, v)
			}
		}
		for _, v := range values[:min(len(values), 4)] {
			add(flag+"="+v, flag)
		}
	}
	for _, config := range []string{`{"levle":3}`, `{"cudagraph_mod":"FULL"}`, `{"custom_op":[]}`, `{"cudagraph_capture_size":[1]}`,
		`{"pas_config":{}}`, `{"use_inductors":true}`, `{"compile_size":[1]}`, `{"splitting_op":[]}`} {
		add("--compilation-config '"+config+"'", "--compilation-config")
	}
	for _, inner := range []string{"levle=3", "cudagraph_mod=FULL", "cudagraph_mode=HALF", "cudagraph_capture_sizes=0", "mode=9"} {
		add("--compilation-config."+inner, "--compilation-config")
	}
	return out
}

// generatedFaults are all of them. coefficients is a coefficient file.
func generatedFaults(t *testing.T) []generatedFault {
	traces := filepath.Join(repo.Root(t), "testdata", "traces")
	var out []generatedFault
	for _, run := range []string{"smoke/run.yaml", "real/gqa-low/run.yaml", "demo/a100-codellama-34b-tp2/run.yaml"} {
		text := string(repo.Read(t, filepath.Join(traces, run)))
		out = append(out, faultsOfYAML("numbers of run.yaml", "in/run.yaml", text, "extract", "in", "-o", "o", "--dry-run")...)
	}
	coefficients := string(repo.Read(t, repo.Root(t), "coeff", "testdata", "example", folder.CoefficientsFile))
	out = append(out, faultsOfYAML("numbers of coefficient files", "c.yaml", coefficients, "check", "c.yaml")...)
	return slices.Concat(out, faultsOfFlags(), faultsOfConfig(), faultsOfServe())
}

// tryGenerated tries faults in the current folder and returns how many of each group were refused.
func tryGenerated(t *testing.T, list []generatedFault) map[string]int {
	counts := map[string]int{}
	slowest := time.Duration(0)
	for _, f := range list {
		if f.file != "" {
			repo.Write(t, f.text, filepath.FromSlash(f.file))
		}
		type answer struct {
			code int
			said string
		}
		done := make(chan answer, 1)
		start := time.Now()
		go func() {
			var out, errs bytes.Buffer
			code := run(append([]string{"blis-train"}, f.args...), strings.NewReader(""), &out, &errs)
			done <- answer{code, errs.String()}
		}()
		select {
		case a := <-done:
			slowest = max(slowest, time.Since(start))
			switch {
			case strings.Contains(a.said, "goroutine ") || strings.Contains(a.said, "internal error"):
				t.Errorf("%s: %s: panics: %.300s", f.group, f.name, a.said)
			case a.code == exitOK && f.word != "" && isText(t, f):
				counts["text"]++
			case !slices.Contains(f.exits, a.code):
				t.Errorf("%s: %s: exit %d, want %v: %.300s", f.group, f.name, a.code, f.exits, a.said)
			case !strings.Contains(a.said, f.says):
				t.Errorf("%s: %s: got %.300q, want %q in it", f.group, f.name, a.said, f.says)
			default:
				counts[f.group]++
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: %s: hangs", f.group, f.name)
		}
	}
	all := 0
	for _, n := range counts {
		all += n
	}
	t.Logf("%d of %d faults refused, the slowest in %s: %v", all, len(list), slowest, counts)
	return counts
}

// isText reports whether a file is accepted with a word where the fault has a number.
func isText(t *testing.T, f generatedFault) bool {
	repo.Write(t, f.word, filepath.FromSlash(f.file))
	return run(append([]string{"blis-train"}, f.args...), strings.NewReader(""), io.Discard, io.Discard) == exitOK
}

// inFaultWorld makes a folder with a recording, for the calls that read one, the current one.
func inFaultWorld(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "in"), os.DirFS(filepath.Join(repo.Root(t), "testdata", "traces", "smoke"))); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
}

// TestGeneratedFaults tries every fortieth.
func TestGeneratedFaults(t *testing.T) {
	list := generatedFaults(t)
	inFaultWorld(t)
	var sample []generatedFault
	for i := 0; i < len(list); i += 40 {
		sample = append(sample, list[i])
	}
	if len(list) < 400 || len(sample) < 60 {
		t.Errorf("got %d faults and a sample of %d, want at least 400 and 60", len(list), len(sample))
	}
	tryGenerated(t, sample)
}

// TestEvalGeneratedFaults tries all of them.
func TestEvalGeneratedFaults(t *testing.T) {
	repo.NeedEval(t)
	list := generatedFaults(t)
	inFaultWorld(t)
	tryGenerated(t, list)
}
