package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/result/folder"
)

// This file makes faults in the small documents that commands read beside a recording: clusters, workloads, hardware,
// allocation problems, calibrations of queues and predictors, and tables of load levels.

const faultCluster = `instances:
  - count: 2
snapshot_refresh_us: 10000
admission_latency_us: 5
routing_latency_us: 7
routing:
  policy: weighted
  scorers: "prefix-affinity:4,queue-depth:3"
  index_blocks: 1000
  event_delay_us: 50000
scheduler: priority-fcfs
priorities:
  gold: 5
age_weight: 0.5
retry:
  kind: backoff
  tries: 4
  base_ms: 500
  factor: 2
goodput_slo_targets:
  standard:
    ttft_ms: 50
    itl_ms: 20
    e2e_ms: 5000
transfer:
  bandwidth_gb_s: 25
  latency_us: 50
  proxy_us: 1
shadow_share: 0.5
`

const faultLoad = `requests: 20
arrivals:
  kind: gamma
  rate_rps: 5
  cv: 2
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

const faultSpec = `version: "2"
seed: 7
category: language
aggregate_rate: 40
num_requests: 20
clients:
  - id: chat
    tenant_id: a
    slo_class: critical
    rate_fraction: 1
    arrival:
      process: gamma
      cv: 0.5
    input_distribution:
      type: lognormal
      params:
        mu: 5
        sigma: 0.5
        min: 4
        max: 2000
    output_distribution:
      type: exponential
      params:
        mean: 80
        max: 400
    prefix_group: system
    prefix_length: 64
    slo_target_us: 500000
    timeout: 60000000
`

const faultProblem = `capacity:
  H100: 8
unit_cost:
  H100: 400
servers:
  - name: chat
    model: llama
    priority: 1
    rate_rps: 4
    itl_ms: 100
    ttft_ms: 5000
    prompt_tokens: 512
    output_tokens: 128
`

const faultHardware = `hardware:
  name: mine
  TFlopsPeak: 989.5
  TFlopsFP8: 1979
  BwPeakTBs: 3.35
  memory_gb: 80
  pcie_bandwidth_gb_s: 64
  interconnect_bandwidth_gb_s: 900
  interconnect_latency_us: 10
`

// jsonNumber matches a key of a JSON document whose value is a number.
var jsonNumber = regexp.MustCompile(`"([A-Za-z_0-9]+)":\s*(-?[0-9][0-9.eE+-]*)`)

// faultsOfJSON are forms of numbers that JSON does not have, or that no float64 can be, for numbers of a document, of each
// key the first.
func faultsOfJSON(group, file, text string, args ...string) (out []generatedFault) {
	seen := map[string]bool{}
	for _, m := range jsonNumber.FindAllStringSubmatchIndex(text, -1) {
		key := text[m[2]:m[3]]
		if seen[key] {
			continue
		}
		seen[key] = true
		for _, form := range []string{"NaN", "010", "0x10", "1_000", "1e400", "7x", "--5", "{}", "[1]", `"x"`, "+1", ".5", "Infinity", "'1'"} {
			out = append(out, generatedFault{group: group, name: file + " " + key + ": " + form, args: args, says: filepath.Base(file),
				exits: []int{exitFailed, exitUsage}, file: file, text: text[:m[4]] + form + text[m[5]:], word: text[:m[4]] + `"word"` + text[m[5]:]})
		}
	}
	return out
}

// faultsOfCSV are forms that are no number for every cell with a number of a table's third line.
func faultsOfCSV(group, file, text string, args ...string) (out []generatedFault) {
	lines := strings.Split(text, "\n")
	cells := strings.Split(lines[2], ",")
	for i, cell := range cells {
		if !numeral.MatchString(cell) {
			continue
		}
		for _, form := range []string{"NaN", "0x10", "1_000", "1e400", "7x", "-1", "--5", "1;000"} {
			changed := slices.Clone(lines)
			changed[2] = strings.Join(slices.Replace(slices.Clone(cells), i, i+1, form), ",")
			out = append(out, generatedFault{group: group, name: fmt.Sprintf("%s:3 %s: %s", file, strings.Split(lines[0], ",")[i], form), args: args,
				says: filepath.Base(file), exits: []int{exitFailed, exitUsage, exitOK}, file: file, text: strings.Join(changed, "\n")})
		}
	}
	return out
}

var numeral = regexp.MustCompile(`^-?[0-9][0-9.eE+-]*$`)

// kinds are texts of other kinds than any of the documents, which each reader refuses with the file's name.
var kinds = map[string]string{
	"an empty file": "", "blanks": " \n \n", "a list": "[1, 2]\n", "a number": "7\n", "a text": "hello\n", "NUL": "a: \x00\n", "binary": "\x7fELF\x01\x02\xff\xfe",
	"UTF-16": "\xff\xfea\x00:\x00 \x001\x00", "Latin-1": "a: \xe9\n", "two documents": "a: 1\n---\na: 2\n", "tabs": "a:\n\tb: 1\n", "XML": "<?xml version=\"1.0\"?><a/>\n",
	"Parquet": "PAR1\x00\x00PAR1", "a key twice": "a: 1\na: 2\n", "an unknown key": "nonsense_key: 1\n", "an alias": "a: *b\n", "a tag": "a: !!python/object:os.system x\n",
	"a template": "{{ .Values.a }}\n", "JSON of another": `{"resourceSpans": []}`, "truncated JSON": `{"a": [1, 2`, "gzip": "\x1f\x8b\x08\x00\x00", "a deep nest": strings.Repeat("[", 20_000),
}

// documentFaults goes into a folder with a recording and a calibration, and makes the faults of all the documents.
func documentFaults(t *testing.T) []generatedFault {
	root := repo.Root(t)
	queue := inDocumentWorld(t)
	simulate := []string{"simulate", "--latency-model", "roofline", "--deployment", "in", "-o", "o", "-q", "--force"}
	load := []string{"--input-len", "10", "--output-len", "4", "--num-prompts", "5", "--request-rate", "5"}
	run := string(repo.Read(t, filepath.Join(root, "testdata", "traces", "smoke", "run.yaml")))
	hardware := regexp.MustCompile(`(?m)^hardware:\n(  .*\n)+`).ReplaceAllLiteralString(run, faultHardware)
	predictor := string(repo.Read(t, root, "predictor", "testdata", "predictor.json"))
	sweep := string(repo.Read(t, root, "testdata", "sweeps", "llama-3.1-8b.csv"))
	sweep = strings.Join(strings.SplitAfter(sweep, "\n")[:12], "")
	type document struct {
		group, file, text string
		make              func(group, file, text string, args ...string) []generatedFault
		args              []string
	}
	documents := []document{
		{"clusters", "cluster.yaml", faultCluster, faultsOfYAML, slices.Concat(simulate, load, []string{"--cluster", "cluster.yaml"})},
		{"workloads", "load.yaml", faultLoad, faultsOfYAML, slices.Concat(simulate, []string{"--workload", "load.yaml"})},
		{"workload specifications", "spec.yaml", faultSpec, faultsOfYAML, slices.Concat(simulate, []string{"--workload", "spec.yaml"})},
		{"allocation problems", "problem.yaml", faultProblem, faultsOfYAML, []string{"queue", "allocate", "queue.json", "problem.yaml", "-o", "oq"}},
		{"hardware", "hw/run.yaml", hardware, faultsOfYAML, []string{"simulate", "--latency-model", "roofline", "--deployment", "hw", "-o", "o", "-q", "--force", "--input-len", "10",
			"--output-len", "4", "--num-prompts", "5", "--request-rate", "5"}},
		{"queues", "q.json", queue, faultsOfJSON, []string{"queue", "size", "q.json", "-o", "oq", "--itl-ms", "100", "-q"}},
		{"predictors", "predictor.json", predictor, faultsOfJSON, []string{"export", "--format", "llmd-bulk", "predictor.json", "-o", "op", "--ignore-verdict", "-q"}},
		{"load levels", "sweep.csv", sweep, faultsOfCSV, []string{"queue", "fit", "sweep.csv", "-o", "oq", "-q", "--flavour", "inferno-3p", "--loads", "7", "--model", "m", "--accelerator", "H100"}},
	}
	var out []generatedFault
	for _, d := range documents {
		out = append(out, d.make("numbers of "+d.group, d.file, d.text, d.args...)...)
		for name, text := range kinds {
			out = append(out, generatedFault{group: "kinds of " + d.group, name: d.file + " is " + name, args: d.args, says: filepath.Base(d.file),
				exits: []int{exitFailed, exitUsage}, file: d.file, text: text})
		}
	}
	slices.SortStableFunc(out, func(a, b generatedFault) int { return strings.Compare(a.group+a.name, b.group+b.name) })
	return out
}

// inDocumentWorld makes a folder with a recording and a calibration the current one, and returns its queue.json.
func inDocumentWorld(t *testing.T) string {
	t.Helper()
	queue := string(bundledQueue(t))
	inFaultWorld(t)
	repo.Write(t, queue, "q", "queue.json")
	repo.Write(t, queue, "queue.json")
	repo.Write(t, repo.Read(t, "in", "config.json"), "hw", "config.json")
	return queue
}

// bundledQueue returns the queue.json of the bundled sweep.
func bundledQueue(t *testing.T) []byte {
	t.Helper()
	return sweepFit(t, "inferno-3p").files[folder.QueueFile]
}

// TestDocumentFaults tries every thirtieth.
func TestDocumentFaults(t *testing.T) {
	list := documentFaults(t)
	var sample []generatedFault
	for i := 0; i < len(list); i += 30 {
		sample = append(sample, list[i])
	}
	if len(list) < 1000 || len(sample) < 60 {
		t.Errorf("got %d faults and a sample of %d, want at least 1000 and 60", len(list), len(sample))
	}
	tryGenerated(t, sample)
}

// TestEvalDocumentFaults tries all of them.
func TestEvalDocumentFaults(t *testing.T) {
	repo.NeedEval(t)
	tryGenerated(t, documentFaults(t))
}
