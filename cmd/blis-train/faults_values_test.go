// The files faults*_test.go try hand-made faults on the program: damaged, foreign and hostile
// recordings, tables, settings and surroundings, each with what must happen. A sample runs
// with every test, all of them with `make eval`.
package main_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	blistrain "github.com/blis-train/blis-train/cmd/blis-train"
	"github.com/blis-train/blis-train/internal/repo"
)

// Every number that a reader takes becomes, one at a time, what it cannot be; keys are left out or
// stand twice. What must come of it: an error that names the file, a record dropped and counted
// (or a warning), or the result of the sound file, but for values that are unknown now. Another
// result without a word fails, and so do a panic and more than patience.

// patience is how long a call may take, ten seconds, and what a busy machine takes of them.
const patience = 40 * time.Second

// reader is a form of input: a sound example of it and the call that reads it.
type reader struct {
	name  string
	file  string            // of the sound example, which is changed
	texts map[string]string // files of the folder
	call  []string
	// legal are leaves that may be any number, by their paths.
	legal string
}

// markOf is what the lines of a log have that are changed, where it is not vLLM's.
var markOf = map[string]string{"sglang.log": "Prefill batch", "trt.log": "host_step_time"}

// leaf is a scalar of a text, and where it stands.
type leaf struct {
	path     string
	from, to int
}

// tamper is one change of a text: what it is called and what comes of it.
type tamper struct{ name, text string }

// leavesOf are the scalars of JSON documents one after another, of each path the middle one, and
// where objects begin.
func leavesOf(text string) (leaves, objects []leaf) {
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	found := map[string][]leaf{}
	var order []string
	note := func(kind, path string, from, to int) {
		key := kind + path
		if found[key] == nil {
			order = append(order, key)
		}
		found[key] = append(found[key], leaf{path, from, to})
	}
	var value func(path string, depth int) bool
	value = func(path string, depth int) bool {
		from := int(dec.InputOffset())
		t, err := dec.Token()
		if err != nil {
			return false
		}
		to := int(dec.InputOffset())
		for from < to && strings.ContainsRune(" \t\r\n:,", rune(text[from])) {
			from++
		}
		switch t {
		case json.Delim('{'):
			note("o", path, from, to)
			name := ""
			for dec.More() {
				k, _ := dec.Token()
				key := k.(string)
				at := int(dec.InputOffset())
				value(path+"."+key+name, depth+1)
				if key == "key" { // of an attribute
					name = "(" + strings.Trim(strings.TrimLeft(text[at:int(dec.InputOffset())], " :"), `"`) + ")"
				}
			}
			dec.Token()
		case json.Delim('['):
			for i := 0; dec.More(); i++ {
				part := "[]"
				if strings.HasPrefix(text, "[17") && (depth == 0 || depth == 2) { // KV events are arrays whose places say what they are
					part = fmt.Sprintf("[%d]", i)
				}
				value(path+part, depth+1)
			}
			dec.Token()
		default:
			note("l", path, from, to)
		}
		return true
	}
	for value("", 0) {
	}
	for _, key := range order {
		list := found[key]
		if l := list[len(list)/2]; key[0] == 'l' {
			leaves = append(leaves, l)
		} else {
			objects = append(objects, l)
		}
	}
	return leaves, objects
}

var (
	numeral  = regexp.MustCompile(`^"?-?[0-9][0-9.eE+-]*"?$`)
	yamlLine = regexp.MustCompile(`(?m)^([ -]*)([A-Za-z_][A-Za-z_0-9]*): *([^\n#]+)$`)
	counted  = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)
)

// impossible are the values for a number.
var impossible = []string{"null", "-1", "1e30", "1e308", "9223372036854775807", `"x"`, "{}"}

func tampersOfJSON(text, legal string) (out []tamper) {
	leaves, objects := leavesOf(text)
	skip := regexp.MustCompile("^(" + legal + ")( = .*)?$")
	for _, l := range leaves {
		old := text[l.from:l.to]
		if !numeral.MatchString(old) {
			continue
		}
		for _, v := range impossible {
			if v == "1e30" && strings.Contains(l.path, "step") {
				v = "1000000000000"
			}
			if old[0] == '"' && v[0] != '"' && v[0] != 'n' && v[0] != '{' {
				v = `"` + v + `"`
			}
			if what := l.path + " = " + v; legal == "" || !skip.MatchString(what) {
				out = append(out, tamper{what, text[:l.from] + v + text[l.to:]})
			}
		}
	}
	for _, o := range objects {
		first := regexp.MustCompile(`^\{\s*("[^"]*"\s*:\s*("[^"]*"|[^{}\[\],"]+)),`).FindStringSubmatch(text[o.from:])
		if first != nil {
			out = append(out, tamper{o.path + " twice " + first[1], text[:o.to] + first[1] + "," + text[o.to:]})
		}
	}
	return out
}

func tampersOfYAML(text, legal string) (out []tamper) {
	skip := regexp.MustCompile("^(" + legal + ")$")
	for _, m := range yamlLine.FindAllStringSubmatchIndex(text, -1) {
		key, value := text[m[4]:m[5]], text[m[6]:m[7]]
		if legal != "" && skip.MatchString(key) {
			continue
		}
		out = append(out, tamper{key + " twice", text[:m[1]] + "\n" + strings.ReplaceAll(text[m[0]:m[1]], "- ", "  ") + text[m[1]:]})
		if !numeral.MatchString(strings.TrimSpace(value)) {
			continue
		}
		for _, v := range []string{".nan", ".inf", "-.inf", "-1", "1e308", "9223372036854775807", "x", "[1]", "{}"} {
			out = append(out, tamper{key + " = " + v, text[:m[6]] + v + text[m[7]:]})
		}
	}
	return out
}

// tampersOfLines changes each number of the middle line that holds mark.
func tampersOfLines(text, mark string, values ...string) (out []tamper) {
	lines := strings.Split(text, "\n")
	var at []int
	for i, l := range lines {
		if strings.Contains(l, mark) {
			at = append(at, i)
		}
	}
	i := at[len(at)/2]
	line := lines[i]
	from := strings.Index(lines[i], mark)
	for k, m := range counted.FindAllStringIndex(line[from:], -1) {
		for _, v := range values {
			changed := slices.Clone(lines)
			changed[i] = line[:from+m[0]] + v + line[from+m[1]:]
			out = append(out, tamper{fmt.Sprintf("number %d of a line = %s", k, v), strings.Join(changed, "\n")})
		}
	}
	gone := slices.Delete(slices.Clone(lines), i, i+1)
	return append(out, tamper{"a line is missing", strings.Join(gone, "\n")},
		tamper{"a line is torn", strings.Join(slices.Replace(slices.Clone(lines), i, i+1, line[:len(line)-len(line[from:])/2]), "\n")})
}

func (r *reader) tampers() []tamper {
	text := r.texts[r.file]
	switch {
	case strings.HasSuffix(r.file, ".yaml"):
		return tampersOfYAML(text, r.legal)
	case strings.HasSuffix(r.file, ".log"):
		return tampersOfLines(text, cmp.Or(markOf[r.file], "Iteration("), "x", "-1", "9000000000000000000", "99999999999999999999", "1e30", "")
	case strings.HasSuffix(r.file, ".prom"):
		return tampersOfLines(text, "} ", "x", "-1", "NaN", "+Inf", "1e308")
	case strings.HasSuffix(r.file, ".csv"):
		return tampersOfLines(text, ",", "x", "-1", "9223372036854775807", "1e308", "NaN", "Inf")
	}
	return tampersOfJSON(text, r.legal)
}

const runText = `name: r
model: {id: m, config: config.json, dtype: bfloat16}
hardware: {name: H100-SXM-80GB}
tensor_parallel_size: 1
vllm: {version: 0.15.1, max_model_len: 4096, max_num_seqs: 64, max_num_batched_tokens: 2048, block_size: 16, kv_blocks_total_gpu: 20000}
files: {%s}
`

// valueReaders are the forms of input, by example.
func valueReaders(t testing.TB) (list []reader) {
	smoke := map[string]string{}
	for _, name := range []string{"traces.jsonl", "kv_events.jsonl", "run.yaml", "config.json"} {
		b, err := os.ReadFile(filepath.Join(recording, name))
		must(t, err)
		smoke[name] = string(b)
	}
	extract := []string{"extract", ".", "-o", "out", "--json", "--max-bad-frac", "1"}
	list = append(list, reader{"OTLP", "traces.jsonl", smoke, extract, `.*\.(flags|kind|code)|.*(span_sequence|blocks_cached_gpu|num_output_tokens|num_preemptions|blocks_allocated_gpu)\).intValue = null`}, reader{"KV events", "kv_events.jsonl", smoke, extract, `\[1\]\[\]\[[1-3]\](\[\])?`},
		reader{"run.yaml", "run.yaml", smoke, extract, ""}, reader{"config.json", "config.json", smoke, extract, `\.(bos|eos|pad)_token_id.*|\.pretraining_tp`})
	client := func(name, file, text string) {
		texts := map[string]string{"config.json": smoke["config.json"], "run.yaml": fmt.Sprintf(runText, "client_requests: "+file), file: text}
		list = append(list, reader{name, file, texts, extract, `.*(session_num|turn_index|\.code|version|priority|created|rps|date|index)|.*(concurrency|last_token_ts|server_usage.prompt_tokens) = null`})
	}
	many := func(n int, each func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(each(i))
		}
		return b.String()
	}
	list0 := func(n int, each func(i int) string) string {
		return strings.TrimSuffix(many(n, func(i int) string { return each(i) + "," }), ",")
	}
	client("client requests", "client.jsonl", many(9, func(i int) string {
		return fmt.Sprintf(`{"id":"q%d","prompt_tokens":40,"output_tokens":5,"prefix_tokens":16,"prefix_group":"a","n":1,"stream":true,"intended_ns":%d,"send_ns":%d,"send_wall_ns":%d,"first_chunk_ns":%d,"last_chunk_ns":%d,"end_ns":%d,"status":200,"usage":{"prompt_tokens":40,"completion_tokens":5},"chunks":5,"itl_us":[50000,50000,50000,50000]}`+"\n",
			i, int(2e9)+i*1e9, int(2e9)+i*1e9, 1760000000000000000+i*1e9, int(2.1e9)+i*1e9, int(2.3e9)+i*1e9, int(2.3e9)+i*1e9)
	}))
	numbers := func(v string) string { return list0(9, func(int) string { return v }) }
	client("vllm bench", "bench.json", fmt.Sprintf(`{"date":"20261121-232246","backend":"vllm","completed":9,"failed":0,"total_input_tokens":360,"max_concurrency":4,
"input_lens":[%s],"output_lens":[%s],"ttfts":[%s],"itls":[%s],"start_times":[%s],"generated_texts":[""],"errors":[%s]}`, numbers("40"), numbers("5"), numbers("0.1"),
		numbers("[0.05,0.05,0.05,0.05]"), list0(9, func(i int) string { return fmt.Sprint(100 + i) }), numbers(`""`)))
	client("vllm bench, summary", "level.json", `{"completed":10,"total_input_tokens":1000,"total_output_tokens":500,"request_rate":2.0,"request_throughput":2.0,"max_concurrency":4,"mean_ttft_ms":50.0,"median_ttft_ms":45.0,"mean_tpot_ms":10.0,"mean_itl_ms":10.0,"duration":5.0,"mean_e2el_ms":500.0}`)
	client("GuideLLM", "guide.json", fmt.Sprintf(`{"metadata":{"version":1,"guidellm_version":"0.4.0"},"benchmarks":[{"config":{"strategy":{"type_":"constant"}},"requests":{"successful":[%s],"errored":[],"incomplete":[]}}]}`,
		list0(9, func(i int) string {
			return fmt.Sprintf(`{"request_id":"g%d","request_type":"text_completions","request_start_time":%d.0,"request_end_time":%d.3,"request_latency":0.3,"prompt_tokens":40,"output_tokens":5,"time_to_first_token_ms":100.0,"request_args":{"stream":true,"body":{"max_tokens":8}},"info":{"timings":{"targeted_start":0.99}}}`, i, 1000+i, 1000+i)
		})))
	client("AIPerf", "aiperf.jsonl", many(9, func(i int) string {
		return fmt.Sprintf(`{"metadata":{"session_num":%d,"x_request_id":"a%d","turn_index":0,"request_start_ns":%d,"request_end_ns":%d,"benchmark_phase":"profiling","was_cancelled":false},"metrics":{"input_sequence_length":{"value":40,"unit":"tokens"},"time_to_first_token":{"value":100.0,"unit":"ms"},"request_latency":{"value":0.3,"unit":"sec"},"output_sequence_length":{"value":5,"unit":"tokens"},"inter_chunk_latency":{"value":[50,50,50,50],"unit":"ms"}}}`+"\n",
			i, i, int(2e9)+i*1e9, int(2.3e9)+i*1e9)
	}))
	client("inference-perf", "perreq.json", "["+list0(9, func(i int) string {
		return fmt.Sprintf(`{"start_time":%d.0,"end_time":%d.3,"request":"{}","info":{"request_metrics":{"text":{"input_tokens":38}},"response_metrics":{"output_tokens":4,"server_usage":{"prompt_tokens":40,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":16}},"output_token_times":[%d.1,%d.15,%d.2,%d.25,%d.3]}},"error":null}`,
			2+i, 2+i, 2+i, 2+i, 2+i, 2+i, 2+i)
	})+"]")
	client("llmservingsim", "serving.jsonl", many(9, func(i int) string {
		return fmt.Sprintf(`{"request_id":"s%d","input_toks":40,"output_toks":5,"arrival_time":%d.0,"queued_ts":%d.0,"scheduled_ts":%d.01,"first_token_ts":%d.1,"last_token_ts":%d.3}`+"\n",
			i, 1700000000+i, 100+i, 100+i, 100+i, 100+i)
	}))
	client("TraceV2", "t.csv", ""+
		"request_id,input_tokens,output_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status\n"+
		many(9, func(i int) string {
			return fmt.Sprintf("r%d,40,5,%d,%d,%d,%d,5,ok\n", i, 1000000*i, 1000000*i+1, 1000000*i+100000, 1000000*i+300000)
		}))
	client("load levels", "levels.csv", "input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms,e2e_ms\n"+
		"122,52,1,30,4,250\n122,52,2,32,4.2,260\n122,52,4,35,4.5,270\n")
	client("genai-perf", "perf.json", `{"request_throughput":{"unit":"requests/sec","avg":2.0},"request_latency":{"unit":"ms","avg":500.0,"p50":490.0},"time_to_first_token":{"unit":"ms","avg":50.0,"p50":45.0},"inter_token_latency":{"unit":"ms","avg":10.0,"p50":10.0},"input_sequence_length":{"unit":"tokens","avg":100.0,"std":3.0},"output_sequence_length":{"unit":"tokens","avg":50.0,"std":2.0},"request_count":{"unit":"requests","avg":10.0},"input_config":{"loadgen":{"concurrency":4}}}`)
	engine := func(name, key, file, text string) {
		texts := map[string]string{"config.json": smoke["config.json"], "run.yaml": fmt.Sprintf(runText, key+": "+file), file: text}
		list = append(list, reader{name, file, texts, extract, `.*(timestamp|version|dp_rank|queued.*var_.*|queued.*decode_kv.*)`})
	}
	engine("vLLM log", "iterations", "server.log", many(40, func(i int) string {
		return fmt.Sprintf("(EngineCore pid=1) INFO 11-21 23:%02d:%02d [core.py:452] Iteration(%d): 1 context requests, 200 context tokens, "+
			"2 generation requests, 2 generation tokens, iteration elapsed time: 26.08 ms\n", i/60, i%60, 7+i)
	}))
	engine("FPM", "iterations", "fpm.jsonl", many(9, func(i int) string {
		return fmt.Sprintf(`{"timestamp":12,"event":{"schema":"dynamo.fpm.trace.v1","source":{"namespace":"ns","producer_id":"p1"},"capture_mode":"full","observed_at_unix_ms":%d,"fpm":{"version":1,"worker_id":"w7","dp_rank":0,"counter_id":%d,"wall_time":0.0125,"scheduled_requests":{"num_prefill_requests":2,"sum_prefill_tokens":300,"var_prefill_length":25.5,"sum_prefill_kv_tokens":64,"num_decode_requests":3,"sum_decode_kv_tokens":900,"var_decode_kv_tokens":4},"queued_requests":{"num_prefill_requests":5,"sum_prefill_tokens":700,"num_decode_requests":1}}}}`+"\n",
			1795303303123+100*i, 41+i)
	}))
	list = append(list, reader{"metrics", "b.prom", map[string]string{"a.prom": prom(0), "b.prom": prom(100), "c.prom": prom(200)},
		[]string{"queue", "fit", "a.prom", "b.prom", "c.prom", "-o", "q", "--json"}, ""})
	return list
}

// prom is an answer of /metrics after n requests. Those after the first hundred are longer and slower, so that a queueing
// model can be fitted.
func prom(n int) string {
	at := 1795303303000 + 1000*n
	var b strings.Builder
	for _, m := range []struct {
		name        string
		each, later float64
	}{{"time_to_first_token_seconds", 0.05, 0.3}, {"inter_token_latency_seconds", 0.01, 0.02}, {"request_prompt_tokens", 100, 2000},
		{"request_generation_tokens", 50, 100},
		{"e2e_request_latency_seconds", 0.5, 2.3}} {
		for _, le := range []string{"0.02", "0.1", "200.0", "+Inf"} {
			count := n
			if f, _ := strconv.ParseFloat(le, 64); le != "+Inf" && f < m.each {
				count = 0
			}
			fmt.Fprintf(&b, "vllm:%s_bucket{engine=\"0\",le=\"%s\",model_name=\"m\"} %d %d\n", m.name, le, count, at)
		}
		fmt.Fprintf(&b, "vllm:%s_sum{engine=\"0\",model_name=\"m\"} %g %d\nvllm:%s_count{engine=\"0\",model_name=\"m\"} %d %d\n", m.name,
			float64(min(n, 100))*m.each+float64(max(n-100, 0))*m.later, at, m.name, n, at)
	}
	return b.String()
}

// documents are what a finished run leaves, and the calls that read them.
func documents(t testing.TB, program string) (list []reader) {
	w := newWorld(t, program, t.TempDir(), nil)
	r, err := w.call("run", w.in, "-o", w.out, "--bootstraps", "50", "--quiet")
	must(t, err)
	if r.code == 1 || r.code == 2 {
		t.Fatal(r.stderr)
	}
	texts := w.texts("in", "out")
	with := func(name, text string) map[string]string {
		out := map[string]string{name: text}
		for k, v := range texts {
			out[k] = v
		}
		return out
	}
	add := func(file string, call ...string) { list = append(list, reader{file, file, texts, call, ""}) }
	add("out/extract.json", "inspect", "out", "--json")
	add("out/fit.json", "export", "--format", "native", "out/fit.json", "-o", "exported", "--ignore-verdict")
	add("out/validation.json", "export", "--format", "native", "out/fit.json", "--validation", "out/validation.json", "-o", "exported",
		"--ignore-verdict")
	add("out/coefficients.yaml", "simulate", "--coefficients", "out/coefficients.yaml", "--deployment", "in", "--workload", "in",
		"-o", "again", "--json")
	list = append(list, reader{"pipeline.yaml", "p.yaml", with("p.yaml", "fit:\n  seed: 7\n  max-rows: 100000\n"+
		"validate:\n  overhead-us: 900\ngates:\n  beta_mape: 0.2\n"),
		[]string{"run", "in", "-o", "again", "--config", "p.yaml", "--json"}, ""})
	job := filepath.Join(w.dir, "job")
	if r, err := w.call("plan", w.in, "-o", job, "--bootstraps", "50", "--quiet"); err != nil || r.code != 0 {
		t.Fatal(r.stderr)
	}
	texts = w.texts("in", "job")
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if strings.HasSuffix(name, ".json") && strings.HasPrefix(name, "job/") {
			list = append(list, reader{name, name, texts, []string{"collect", "job"}, `.*inputs\[\]\.bytes`}) // part of a task's id
		}
	}
	return list
}

// texts are the files below folders.
func (w *world) texts(folders ...string) map[string]string {
	out := map[string]string{}
	for _, folder := range folders {
		for name, text := range files(w.t, filepath.Join(w.dir, folder)) {
			out[filepath.Join(folder, name)] = text
		}
	}
	return out
}

// outcomeOf is what a call gives and says.
type outcomeOf struct {
	code                  int
	printed, result, said string // on standard output; the same and files, without digests; on standard error
	late                  bool
}

var unsettled = regexp.MustCompile(`"(document_digest|sha256|bytes|size|bytes_read|lines_read|digest)": *("[^"]*"|[0-9]+)`)

// inThisProcess in place of a program: the calls run in this process, which spares the start of another.
const inThisProcess = ""

// callIn calls the program in a folder.
func callIn(dir, program string, args []string) outcomeOf {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out, errs strings.Builder
	if program == inThisProcess {
		before, err := os.Getwd()
		if err == nil {
			err = os.Chdir(dir)
		}
		if err != nil {
			panic(err)
		}
		defer os.Chdir(before)
		ended := make(chan int, 1)
		go func() {
			ended <- blistrain.Run(append([]string{"blis-train"}, args...), strings.NewReader(""), &out, &errs)
		}()
		select {
		case code := <-ended:
			return outcomeOf{code: code, printed: out.String(), result: out.String(), said: errs.String()}
		case <-ctx.Done():
			return outcomeOf{late: true}
		}
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Stdout = &out
	cmd.Stderr = &errs
	cmd.WaitDelay = time.Second
	cmd.Run()
	return outcomeOf{
		code:    cmd.ProcessState.ExitCode(),
		printed: out.String(),
		result:  out.String(),
		said:    errs.String(),
		late:    ctx.Err() != nil,
	}
}

// try calls the program on the reader's files with the text in place of its file.
func (r *reader) try(program, dir, text string) (o outcomeOf) {
	for _, name := range []string{"out", "again", "q", "exported"} {
		if _, isInput := r.texts[name+"/extract.json"]; !isInput {
			os.RemoveAll(filepath.Join(dir, name))
		}
	}
	os.WriteFile(filepath.Join(dir, r.file), []byte(text), 0o644)
	o = callIn(dir, program, r.call)
	o.result = unsettled.ReplaceAllString(o.result, "")
	if b, err := os.ReadFile(filepath.Join(dir, "exported")); err == nil {
		o.result += unsettled.ReplaceAllString(string(b), "")
	}
	if slices.Contains(r.call, "--model") { // what was assumed, and what it warns of
		var doc struct{ Defaulted, Warnings any }
		json.Unmarshal([]byte(o.printed), &doc)
		o.said += fmt.Sprint(doc)
	}
	if r.call[0] == "extract" && o.code == 0 {
		o.said += said(o.printed)
		o.result = ""
		if s, err := stateOf(filepath.Join(dir, "out")); err == nil {
			for _, id := range slices.Sorted(maps.Keys(s.runs)) {
				o.result += s.runs[id]
			}
			o.said += s.notes
		}
	}
	return o
}

// said are the drops and warnings of extract.json.
func said(text string) string {
	var doc struct {
		Runs []struct {
			Records struct {
				Dropped map[string]int64 `json:"dropped"`
			} `json:"records"`
			Examples []any `json:"examples"`
			Warnings []any `json:"warnings"`
		} `json:"runs"`
	}
	json.Unmarshal([]byte(text), &doc)
	return fmt.Sprint(doc)
}

// class is what became of a tamper: refused, counted, harmless, or what is wrong.
func (r *reader) class(clean, got outcomeOf) (class, wrong string) {
	switch {
	case got.late:
		return "", "hangs"
	case strings.Contains(got.said, "goroutine ") || strings.Contains(got.said, "internal error"):
		return "", "panics: " + got.said
	case got.code == 1 || got.code == 2:
		if !strings.Contains(got.said, "error:") || !strings.Contains(got.said, filepath.Base(r.file)) {
			return "", fmt.Sprintf("an error without its place: %.300s", got.said)
		}
		return "refused", ""
	case got.said != clean.said:
		return "counted", ""
	case got.result == clean.result || less(clean.result, got.result):
		return "harmless", ""
	}
	return "", "another result without a word: " + firstDifference(clean.result, got.result)
}

// less says that two results differ in what is unknown in the second alone.
func less(clean, got string) bool {
	c := json.NewDecoder(strings.NewReader(clean))
	g := json.NewDecoder(strings.NewReader(got))
	for {
		var a, b any
		errA, errB := c.Decode(&a), g.Decode(&b)
		if errA == io.EOF && errB == io.EOF {
			return true
		}
		if errA != nil || errB != nil || !lessValue(a, b) {
			return false
		}
	}
}

func lessValue(a, b any) bool {
	switch b := b.(type) {
	case nil:
		return true
	case map[string]any:
		m, ok := a.(map[string]any)
		for k := range b {
			ok = ok && lessValue(m[k], b[k])
		}
		return ok
	case []any:
		l, ok := a.([]any)
		if ok = ok && len(l) == len(b); ok {
			for i := range b {
				ok = ok && lessValue(l[i], b[i])
			}
		}
		return ok
	}
	return a == b
}

func firstDifference(a, b string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	cut := func(s string) string { return s[max(0, min(i-80, len(s))):min(len(s), i+60)] }
	return fmt.Sprintf("%q became %q", cut(a), cut(b))
}

// How many tampers of one reader are tried at most, evenly chosen: of a sample, and of all.
const (
	sampleOfReader = 8
	mostOfReader   = 250
)

// testValues tries every n-th tamper of every reader, but at most most of them; least is how many there must be of all readers together.
func testValues(t *testing.T, n, most, least int, program string, readers []reader) {
	all := 0
	for _, r := range readers {
		dir := t.TempDir()
		for name, text := range r.texts {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			must(t, os.MkdirAll(filepath.Join(dir, "job", "receipts"), 0o755))
			repo.Write(t, text, dir, name)
		}
		clean := r.try(program, dir, r.texts[r.file])
		if clean.code == 1 || clean.code == 2 || clean.result == "" {
			t.Errorf("%s: the sound file: exit %d: %.600s", r.name, clean.code, clean.said)
			continue
		}
		classes := map[string]int{}
		list := r.tampers()
		n := max(n, (len(list)+most-1)/most)
		for i := all % n; i < len(list); i += n {
			class, wrong := r.class(clean, r.try(program, dir, list[i].text))
			if classes[class]++; wrong != "" {
				t.Errorf("%s: %s: %s", r.name, list[i].name, wrong)
			}
		}
		tried := classes["refused"] + classes["counted"] + classes["harmless"] + classes[""]
		t.Logf("%-22s %4d tried: %4d refused, %4d counted, %4d harmless, %4d wrong", r.name, tried, classes["refused"], classes["counted"],
			classes["harmless"], classes[""])
		all += tried
	}
	if t.Logf("%d in all", all); all < least {
		t.Errorf("got %d, want at least %d", all, least)
	}
}

// TestImpossibleValues tries a sample.
func TestImpossibleValues(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	testValues(t, 20, sampleOfReader, 80, inThisProcess, append(valueReaders(t), documents(t, programOf(t))...))
}

// TestEvalImpossibleValues tries all.
func TestEvalImpossibleValues(t *testing.T) {
	repo.NeedEval(t)
	program := programOf(t)
	testValues(t, 1, mostOfReader, 800, program, append(valueReaders(t), documents(t, program)...))
}

// TestEvalImpossibleDocuments tries the other engines' forms, the models' configurations, workloads
// and what the neighbours' commands leave.
func TestEvalImpossibleDocuments(t *testing.T) {
	repo.NeedEval(t)
	program := programOf(t)
	testValues(t, 1, mostOfReader, 800, program, slices.Concat(otherForms(t), modelReaders(t), otherDocuments(t, program)))
}

// programOf is the program: the tests' own binary, which TestMain makes the command when it is
// called by that name.
func programOf(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	program := filepath.Join(t.TempDir(), "blis-train")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if err := os.Symlink(self, program); err != nil {
		t.Skipf("no symbolic links here: %v", err)
	}
	return program
}

const recording = "../../testdata/traces/smoke"

// newWorld copies the recording and lays strangers' files around it.
func newWorld(t testing.TB, program, dir string, clean *state) *world {
	w := &world{t: t, program: program, dir: dir, in: filepath.Join(dir, "in"), out: filepath.Join(dir, "out"), clean: clean}
	must(t, os.MkdirAll(w.in, 0o755))
	entries, err := os.ReadDir(recording)
	must(t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(recording, e.Name()))
		must(t, err)
		w.put(e.Name(), string(b))
	}
	return w
}

// all are the faults of every group.
func all() []fault {
	return slices.Concat(damaged(), order(), foreign(), tables(), cache(), settings(), names(), surroundings(), numbers(), interrupts())
}

// tryAll tries faults and counts those that pass, by group in order. With isHere calls that need no process of their own
// are made in this one.
func tryAll(t *testing.T, list []fault, isHere bool) {
	program := programOf(t)
	first := newWorld(t, program, t.TempDir(), nil)
	r, err := first.extract()
	must(t, err)
	if r.code != 0 {
		t.Fatalf("the clean recording: %s", r.stderr)
	}
	clean, err := stateOf(first.out)
	must(t, err)
	var groups []string
	tried := map[string]int{}
	passed := map[string]int{}
	slowest := time.Duration(0)
	for i, f := range list {
		if !slices.Contains(groups, f.group) {
			groups = append(groups, f.group)
		}
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		w := newWorld(t, program, dir, clean)
		w.isHere = isHere
		w.strangers()
		start := time.Now()
		err := f.try(w)
		slowest = max(slowest, time.Since(start))
		if err == nil {
			err = w.strangersStay()
		}
		tried[f.group]++
		if err != nil {
			t.Errorf("%s: %s: %v", f.group, f.name, err)
		} else {
			passed[f.group]++
		}
		os.RemoveAll(dir)
	}
	sum, good := 0, 0
	for _, g := range groups {
		t.Logf("%-36s %3d of %3d", g, passed[g], tried[g])
		sum, good = sum+tried[g], good+passed[g]
	}
	t.Logf("%-36s %3d of %3d, the slowest took %.1f s", "all", good, sum, slowest.Seconds())
}

// sampleOfGroup is how many faults of each group are tried without BLIS_TRAIN_EVAL.
const sampleOfGroup = 2

// TestFaultsSample tries some faults of each group.
func TestFaultsSample(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	byGroup := map[string][]fault{}
	list := all()
	for _, f := range list {
		byGroup[f.group] = append(byGroup[f.group], f)
	}
	var sample []fault
	for i, f := range list {
		if i == 0 || list[i-1].group != f.group {
			of := byGroup[f.group]
			for k := range sampleOfGroup {
				sample = append(sample, of[k*len(of)/sampleOfGroup])
			}
		}
	}
	if len(list) < 400 || len(sample) < 20 {
		t.Errorf("got %d faults and a sample of %d, want at least 400 and 20", len(list), len(sample))
	}
	tryAll(t, sample, true)
}

// TestEvalFaults tries all of them.
func TestEvalFaults(t *testing.T) {
	repo.NeedEval(t)
	tryAll(t, all(), false)
}

// mutant is a file of a finished run and the call that reads it.
type mutant struct {
	kind, file string
	call       []string
	mayChange  bool // a recording has no checksum: its values are what it says
}

func mutantFiles() []mutant {
	inspect := []string{"inspect", "out", "--json", "--quiet"}
	list := []mutant{
		{"extract.json", "out/extract.json", inspect, false},
		{"fit.json", "out/fit.json", []string{"export", "--format", "native", "out/fit.json", "-o", "exported", "--ignore-verdict", "--quiet"},
			false},
		{"coefficients.yaml", "out/coefficients.yaml", []string{"simulate", "--coefficients", "out/coefficients.yaml", "--deployment", "in",
			"--workload", "in", "-o", "again", "--json", "--quiet"}, false},
		{"dumps", "in/traces.jsonl", []string{"extract", "in", "-o", "again", "--json", "--quiet", "--max-bad-frac", "1"}, true},
	}
	for _, name := range tableNames {
		list = append(list, mutant{"tables", "out/tables/run=smoke/" + name + ".parquet", inspect, false})
	}
	return list
}

// byteMutant changes one byte.
func byteMutant(rng *rand.Rand, text string) string {
	b := []byte(text)
	b[rng.IntN(len(b))] ^= byte(1 + rng.IntN(255))
	return string(b)
}

// structuralMutant removes, repeats, moves or replaces a piece of a text: a line
// where it has several, else some bytes.
func structuralMutant(rng *rand.Rand, text string) string {
	parts := strings.SplitAfter(text, "\n")
	if len(parts) < 8 || strings.HasPrefix(text, "PAR1") {
		parts = nil
		for rest := text; rest != ""; {
			n := min(len(rest), 1+len(text)/64)
			parts, rest = append(parts, rest[:n]), rest[n:]
		}
	}
	i := rng.IntN(len(parts))
	j := rng.IntN(len(parts))
	switch rng.IntN(5) {
	case 0:
		parts = slices.Delete(slices.Clone(parts), i, i+1)
	case 1:
		parts = slices.Insert(slices.Clone(parts), i, parts[j])
	case 2:
		parts = slices.Clone(parts)
		parts[i], parts[j] = parts[j], parts[i]
	case 3:
		parts = parts[:i]
	default:
		parts = slices.Clone(parts)
		parts[i] = strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return '0' + (r-'0'+1)%10
			}
			return r
		}, parts[i])
	}
	return strings.Join(parts, "")
}

// outcome is what a call gave and said.
type outcome struct{ result, said string }

var ofDocument = regexp.MustCompile(`"document_digest": "[0-9a-f]*"`)

func (w *world) outcome(args []string) (outcome, error) {
	r, err := w.call(args...)
	o := outcome{r.stdout, fmt.Sprint(r.code, r.stderr)}
	if at := strings.Index(o.result, `"inputs"`); at >= 0 { // the hash of what was read is not a result of it
		if end := strings.Index(o.result[at:], "]"); end > 0 {
			o.result = o.result[:at] + o.result[at+end:]
		}
	}
	o.result = ofDocument.ReplaceAllString(o.result, "") // nor is the digest over that hash
	exported, _ := os.ReadFile(filepath.Join(w.dir, "exported"))
	os.RemoveAll(filepath.Join(w.dir, "exported"))
	os.RemoveAll(filepath.Join(w.dir, "again"))
	o.result += string(exported)
	return o, err
}

// TestEvalMutants: no changed byte and no changed piece of a file makes the
// program panic or hang; where another result comes out, it said so.
func TestEvalMutants(t *testing.T) {
	repo.NeedEval(t)
	w := newWorld(t, programOf(t), t.TempDir(), nil)
	if r, err := w.call("run", w.in, "-o", w.out, "--bootstraps", "50", "--quiet"); err != nil || r.code == 1 || r.code == 2 {
		t.Fatalf("%v: %s", err, r.stderr)
	}
	list := mutantFiles()
	tried := map[string]int{}
	silent := map[string]int{}
	rng := rand.New(rand.NewPCG(14, 14))
	for i, m := range list {
		path := filepath.Join(w.dir, m.file)
		text, err := os.ReadFile(path)
		must(t, err)
		clean, err := w.outcome(m.call)
		must(t, err)
		if clean.result == "" {
			t.Fatalf("%v gives nothing: %s", m.call, clean.said)
		}
		for k := range (1500 + len(list) - 1 - i) / len(list) {
			mutate := byteMutant
			if k%3 == 2 {
				mutate = structuralMutant
			}
			changed := mutate(rng, string(text))
			repo.Write(t, changed, path)
			got, err := w.outcome(m.call)
			tried[m.kind]++
			if err != nil {
				t.Errorf("%s, mutant %d: %v", m.file, k, err)
			}
			if got.result != clean.result && got.said == clean.said && !m.mayChange {
				silent[m.kind]++
			}
		}
		repo.Write(t, text, path)
	}
	for _, kind := range []string{"tables", "extract.json", "fit.json", "coefficients.yaml", "dumps"} {
		t.Logf("%-20s %4d mutants, %d other results without a word", kind, tried[kind], silent[kind])
		if silent[kind] > 0 {
			t.Errorf("%s: %d mutants gave another result in silence", kind, silent[kind])
		}
	}
}
