package validate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/reconstruct/logged"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// runFolder is a copy of a run folder whose files are not compressed.
type runFolder struct {
	t   *testing.T
	dir string
}

// copyRun copies a run folder.
func copyRun(t *testing.T, from string) *runFolder {
	t.Helper()
	f := &runFolder{t, filepath.Join(t.TempDir(), filepath.Base(from))}
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() && filepath.Ext(e.Name()) != ".md" {
			f.write(strings.TrimSuffix(e.Name(), ".zst"), plainText(t, filepath.Join(from, e.Name())))
		}
	}
	f.edit("run.yaml", func(text string) string { return strings.ReplaceAll(text, ".zst", "") })
	return f
}

// plainText is the text of a file, decompressed.
func plainText(t *testing.T, name string) string {
	t.Helper()
	if filepath.Ext(name) != ".zst" {
		return string(repo.Read(t, name))
	}
	src, err := source.Open(&source.Input{Path: name, Name: filepath.Base(name)}, nil, source.Limits{MaxExpansion: 1000})
	if src == nil {
		t.Fatal(err)
	}
	defer src.Close()
	text, err := io.ReadAll(src.R)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (f *runFolder) write(name, text string) { repo.Write(f.t, text, f.dir, name) }

func (f *runFolder) read(name string) string { return string(repo.Read(f.t, f.dir, name)) }

// edit changes the text of a file.
func (f *runFolder) edit(name string, change func(text string) string) {
	f.write(name, change(f.read(name)))
}

// set gives a key of run.yaml another value, wherever it stands, or adds it to vllm.
func (f *runFolder) set(key, value string) {
	f.edit("run.yaml", func(text string) string {
		at := strings.Index(text, key+":")
		if at < 0 {
			if inline := strings.Index(text, "vllm: {"); inline >= 0 {
				return text[:inline] + "vllm: {" + key + ": " + value + ", " + text[inline+len("vllm: {"):]
			}
			return strings.Replace(text, "vllm:\n", "vllm:\n  "+key+": "+value+"\n", 1)
		}
		end := at + strings.IndexAny(text[at:], ",}\n")
		return text[:at] + key + ": " + value + text[end:]
	})
}

// lines changes the lines of a file: change returns what stands in the place of one.
func (f *runFolder) lines(name string, change func(i int, line string) []string) {
	f.edit(name, func(text string) string {
		var out []string
		for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
			out = append(out, change(i, line)...)
		}
		return strings.Join(out, "\n") + "\n"
	})
}

// document changes a JSON document.
func (f *runFolder) document(name string, change func(doc map[string]any)) {
	f.edit(name, func(text string) string {
		var doc map[string]any
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			f.t.Fatal(name, err)
		}
		change(doc)
		changed, err := json.Marshal(doc)
		if err != nil {
			f.t.Fatal(err)
		}
		return string(changed)
	})
}

// rows changes the JSON objects of a file of lines; a nil one is left out.
func (f *runFolder) rows(name string, change func(i int, row map[string]any) map[string]any) {
	f.lines(name, func(i int, line string) []string {
		var row map[string]any
		dec := json.NewDecoder(strings.NewReader(line))
		dec.UseNumber()
		if err := dec.Decode(&row); err != nil {
			f.t.Fatal(name, err)
		}
		if row = change(i, row); row == nil {
			return nil
		}
		changed, err := json.Marshal(row)
		if err != nil {
			f.t.Fatal(err)
		}
		return []string{string(changed)}
	})
}

// fileLie is a corruption of the files of a run folder.
type fileLie struct {
	what   string
	runs   string // names of the folders it is told in
	causes string // identities, codes of findings, or refused; after a comma, words that a sentence has to have
	tell   func(f *runFolder)
}

// inspectFolder reads a folder as the program does, and returns the violated identities, the codes of findings and drops, and
// the code "refused" with the reason if it cannot be read.
func inspectFolder(t *testing.T, dir string) (names, codes, texts []string) {
	t.Helper()
	refused := func(err error) (names, codes, texts []string) { return nil, []string{"refused"}, []string{err.Error()} }
	runs, err := extract.Discover([]string{dir})
	if err != nil {
		return refused(err)
	}
	o := extract.DefaultOptions()
	o.Out = t.TempDir()
	ext, err := extract.Run(context.Background(), runs, o)
	if err != nil {
		return refused(err)
	}
	for i := range ext.Runs {
		r := &ext.Runs[i]
		run, err := table.ReadLean(table.RunDir(o.Out, r.ID))
		if err != nil {
			t.Fatal(err)
		}
		if err := run.EachSnapshot(func(s *trace.Snapshot) { run.Snapshots = append(run.Snapshots, *s) }); err != nil {
			t.Fatal(err)
		}
		run.Stored = nil
		dep := r.Deployment
		if len(run.Iterations) > 0 && len(run.Steps) == 0 {
			dep = dep.WithoutDrafts()
		}
		if err := logged.Fill(run, r.Deployment); err != nil {
			return refused(err)
		}
		got, err := validate.Inspect(run, dep, validate.Inspection{Extract: r})
		if err != nil {
			return refused(err)
		}
		names = append(names, violations(&got)...)
		for k := range got.Identities {
			if id := &got.Identities[k]; id.Status == result.IdentityViolated {
				texts = append(texts, id.Sentence)
			}
		}
		for _, w := range r.Warnings {
			codes = append(codes, string(w.Code))
			texts = append(texts, w.Message)
		}
		for code := range r.Records.Dropped {
			codes = append(codes, code)
		}
		if got.Unfit {
			codes = append(codes, "unfit")
			texts = append(texts, got.Reason)
		}
	}
	return names, codes, texts
}

// column changes the values of a list of a bench result.
func column(key string, change func(i int, v float64) float64) func(doc map[string]any) {
	return func(doc map[string]any) {
		list := doc[key].([]any)
		for i, v := range list {
			switch v := v.(type) {
			case float64:
				list[i] = change(i, v)
			case []any:
				for k := range v {
					v[k] = change(i, v[k].(float64))
				}
			}
		}
	}
}

// halveLists cuts the lists of a bench result that have a value for each request.
func halveLists(doc map[string]any) {
	n := len(doc["input_lens"].([]any))
	for key := range doc {
		if list, ok := doc[key].([]any); ok && len(list) == n {
			doc[key] = list[:n/2]
		}
	}
}

// withTotals computes the totals of a bench result anew, as a script that changed its lists does.
func withTotals(doc map[string]any) {
	sum := func(list any) (s, n float64) {
		for _, v := range list.([]any) {
			switch v := v.(type) {
			case float64:
				s, n = s+v, n+1
			case []any:
				for _, g := range v {
					s, n = s+g.(float64), n+1
				}
			}
		}
		return s, n
	}
	doc["total_input_tokens"], doc["completed"] = sum(doc["input_lens"])
	doc["total_output_tokens"], _ = sum(doc["output_lens"])
	ttft, n := sum(doc["ttfts"])
	doc["mean_ttft_ms"] = 1e3 * ttft / n
	itl, gaps := sum(doc["itls"])
	doc["mean_itl_ms"] = 1e3 * itl / gaps
	delete(doc, "mean_e2el_ms")
	doc["num_prompts"] = n
	delete(doc, "request_rate")
	delete(doc, "max_concurrency")
	delete(doc, "duration")
}

// elapsed finds the elapsed time in a line of vLLM's log.
const elapsed = "iteration elapsed time: "

// eachElapsed changes the elapsed time of the passes of a log.
func eachElapsed(change func(i int, ms float64) float64) func(i int, line string) []string {
	return func(i int, line string) []string {
		before, rest, found := strings.Cut(line, elapsed)
		if !found {
			return []string{line}
		}
		number, after, _ := strings.Cut(rest, " ms")
		ms, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return []string{line}
		}
		return []string{fmt.Sprintf("%s%s%.2f ms%s", before, elapsed, change(i, ms), after)}
	}
}

// Names of run folders whose files are corrupted.
const (
	ofBench   = "planted" // one result of vllm bench, and a log with its start
	ofPhases  = "stock"   // several results, and a log with its start
	ofClient  = "gqa-low" // traces and client_requests.jsonl
	ofTraces  = "b200-llama-3.1-8b-tp1"
	ofGPU     = "h100-llama-3.1-8b-tp1"
	ofSpans   = "jan20-codellama-train-1"
	inServing = "RTXPRO6000-Llama-3.1-8B-tp1"
)

// folderOf is the run folder of a name.
func folderOf(t *testing.T, name string) string {
	t.Helper()
	traces := filepath.Join(repo.Root(t), "testdata", "traces")
	data := repo.Shared(t, "data")
	for _, dir := range []string{filepath.Join(traces, name), filepath.Join(traces, "real", name), filepath.Join(traces, "demo", name),
		filepath.Join(data, "composed", name), filepath.Join(data, "real_stock_otlp", name), filepath.Join(data, "real_requests_llmservingsim", name)} {
		if _, err := os.Stat(filepath.Join(dir, "run.yaml")); err == nil {
			return dir
		}
	}
	t.Fatalf("%s: no run folder", name)
	return ""
}

// fileLies are told in the files themselves: keys of run.yaml, files of another run, cut and merged files, units and columns.
func fileLies() []fileLie {
	set := func(key, value string) func(*runFolder) {
		return func(f *runFolder) { f.set(key, value) }
	}
	inBench := func(changes ...func(doc map[string]any)) func(*runFolder) {
		return func(f *runFolder) {
			for _, name := range []string{"bench.json", "bench_near.json", "bench_open.json"} {
				if _, err := os.Stat(filepath.Join(f.dir, name)); err == nil {
					f.document(name, func(doc map[string]any) {
						for _, change := range changes {
							change(doc)
						}
					})
				}
			}
		}
	}
	every := func(n int, factor float64) func(i int, v float64) float64 {
		return func(i int, v float64) float64 {
			if i%n == 0 {
				return v * factor
			}
			return v
		}
	}
	const client = "client_requests.jsonl"
	number := func(v any) int64 {
		n, _ := v.(json.Number).Int64()
		return n
	}
	bothBench := ofBench + " " + ofPhases
	server := "stated_server stated_scheduler description pool_of_memory memory refused"
	return []fileLie{
		// run.yaml
		{"max_num_seqs halved", bothBench, server, func(f *runFolder) { f.set("max_num_seqs", "8") }},
		{"max_num_seqs of another server", bothBench + " " + ofTraces, server + " waiting_reason scheduler_limits", set("max_num_seqs", "512")},
		{"max_num_batched_tokens x4", bothBench, server, set("max_num_batched_tokens", "8192")},
		{"block_size", bothBench + " " + ofTraces + " " + ofClient, server + " snapshot_blocks used_blocks", set("block_size", "64")},
		{"kv_blocks_total_gpu", bothBench + " " + ofTraces + " " + ofClient, server + " pool_size", set("kv_blocks_total_gpu", "4321")},
		{"tensor_parallel_size", bothBench + " " + ofTraces + " " + ofGPU, server + " step_prior", set("tensor_parallel_size", "2")},
		{"pipeline_parallel_size", bothBench + " " + ofTraces + " " + ofGPU, server + " step_prior", set("pipeline_parallel_size", "2")},
		{"data_parallel_size", bothBench + " " + ofTraces + " " + ofGPU, server + " step_prior not_modelled", set("data_parallel_size", "2")},
		{"version", bothBench, server, set("version", "0.10.0")},
		{"async_scheduling", bothBench, server, set("async_scheduling", "true")},
		{"enable_prefix_caching", bothBench, server, func(f *runFolder) {
			if strings.Contains(f.read("run.yaml"), "enable_prefix_caching: true") {
				f.set("enable_prefix_caching", "false")
			} else {
				f.set("enable_prefix_caching", "true")
			}
		}},
		{"enable_chunked_prefill", bothBench, server, set("enable_chunked_prefill", "false")},
		{"scheduling_policy", bothBench, server, set("scheduling_policy", "priority")},
		{"max_model_len", bothBench, server + " model_len", set("max_model_len", "2048")},
		{"enforce_eager", bothBench, server, func(f *runFolder) {
			if strings.Contains(f.read("run.yaml"), "enforce_eager: true") {
				f.set("enforce_eager", "false")
			} else {
				f.set("enforce_eager", "true")
			}
		}},
		{"dtype", bothBench, server, func(f *runFolder) {
			f.edit("run.yaml", func(text string) string {
				if strings.Contains(text, "  dtype: bfloat16") {
					return strings.Replace(text, "  dtype: bfloat16", "  dtype: float32", 1)
				}
				return strings.Replace(text, "model: {id: m", "model: {id: m, dtype: float32", 1)
			})
		}},
		{"kv_cache_dtype", bothBench + " " + ofTraces + " " + ofGPU, server, func(f *runFolder) {
			f.edit("run.yaml", func(text string) string {
				for _, was := range []string{"kv_cache_dtype: bfloat16", "kv_cache_dtype: \"bfloat16\"", "kv_cache_dtype: auto", "kv_cache_dtype: \"auto\""} {
					if strings.Contains(text, was) {
						return strings.Replace(text, was, "kv_cache_dtype: fp8", 1)
					}
				}
				return strings.Replace(text, "model: {id: m", "model: {id: m, kv_cache_dtype: fp8", 1)
			})
		}},
		{"quantization", ofBench, server, set("quantization", "fp8")},
		{"gpu_memory_utilization", ofTraces + " " + ofGPU, server, set("gpu_memory_utilization", "0.6")},
		{"kv_cache_memory_bytes", ofBench + " " + ofTraces, server, set("kv_cache_memory_bytes", "1000000000")},
		{"device", ofBench, server + " step_prior step_floor request_prior", func(f *runFolder) {
			f.edit("run.yaml", func(text string) string {
				for _, was := range []string{"H100-SXM-80GB", "B200", "H100"} {
					if strings.Contains(text, was) {
						return strings.ReplaceAll(text, was, "L40S")
					}
				}
				return text
			})
		}},
		{"config.json of another model", ofTraces + " " + ofGPU + " " + ofBench, server + " step_prior step_floor request_prior request_floor", func(f *runFolder) {
			f.document("config.json", func(doc map[string]any) { doc["num_hidden_layers"], doc["intermediate_size"] = 80, 28672 })
		}},
		{"config.json of a smaller model", ofTraces + " " + ofGPU + " " + ofBench, server + " step_prior step_floor request_prior", func(f *runFolder) {
			f.document("config.json", func(doc map[string]any) {
				doc["num_hidden_layers"], doc["hidden_size"], doc["num_attention_heads"] = 16, 2048, 16
			})
		}},
		{"model id of another model", ofTraces + " " + ofGPU, server + " model_name", func(f *runFolder) {
			f.edit("run.yaml", func(text string) string { return strings.Replace(text, "Llama-3.1-8B", "Qwen2.5-14B", 1) })
		}},
		{"limits of run.yaml in another order of size", bothBench, server, func(f *runFolder) {
			f.set("max_num_seqs", "2048")
			f.set("max_num_batched_tokens", "128")
		}},

		// the log
		{"log twice in one file", bothBench, "pass_times clients_complete client_tokens passes_complete description stated_scheduler refused duplicate engine_log client_passes log_restarted several_engines", func(f *runFolder) {
			f.edit("server.log", func(text string) string { return text + text })
		}},
		{"a third of the log's passes lost in the middle", bothBench, "passes_complete clients_complete client_tokens", func(f *runFolder) {
			n := strings.Count(f.read("server.log"), "\n")
			f.lines("server.log", func(i int, line string) []string {
				if i > n/3 && i < 2*n/3 {
					return nil
				}
				return []string{line}
			})
		}},
		{"every tenth pass lost", bothBench, "passes_complete", func(f *runFolder) {
			f.lines("server.log", func(i int, line string) []string {
				if i > 100 && i%10 == 0 {
					return nil
				}
				return []string{line}
			})
		}},
		{"log cut at half", bothBench, "clients_complete passes_complete client_tokens answer_passes client_passes", func(f *runFolder) {
			f.edit("server.log", func(text string) string { return text[:len(text)/2] })
		}},
		{"elapsed in s", bothBench, "pass_times answer_passes step_floor", func(f *runFolder) {
			f.lines("server.log", eachElapsed(func(_ int, ms float64) float64 { return ms / 100 }))
		}},
		{"every seventh elapsed x100", bothBench, "pass_times pass_units answer_passes pass_order", func(f *runFolder) {
			f.lines("server.log", eachElapsed(every(7, 100)))
		}},
		{"elapsed of the second half / 10", bothBench, "pass_times pass_units answer_passes step_floor", func(f *runFolder) {
			n := strings.Count(f.read("server.log"), "\n")
			f.lines("server.log", eachElapsed(func(i int, ms float64) float64 {
				if i > n/2 {
					return ms / 10
				}
				return ms
			}))
		}},
		{"log of the other server", bothBench, "client_tokens client_passes clients_complete stated_server stated_scheduler description refused", func(f *runFolder) {
			other := ofPhases
			if filepath.Base(f.dir) == ofPhases {
				other = ofBench
			}
			f.write("server.log", plainText(f.t, filepath.Join(folderOf(f.t, other), "server.log.zst")))
		}},
		{"half of the log's lines of a second engine", bothBench, "passes_complete clients_complete client_tokens engines_complete refused several_engines client_passes answer_passes", func(f *runFolder) {
			f.lines("server.log", func(i int, line string) []string {
				if i%2 == 0 {
					line = strings.Replace(line, "Engine 000: Iteration", "Engine 001: Iteration", 1)
				}
				return []string{line}
			})
		}},

		// vllm bench
		{"results: TTFT in ms", bothBench, "client_totals client_order client_delays request_rounding unit bad_record client_tokens", inBench(column("ttfts", every(1, 1e3)))},
		{"results: TTFT in ms, totals anew", bothBench, "client_totals client_order client_delays answer_passes client_turns client_limits client_sums", inBench(column("ttfts", every(1, 1e3)), withTotals)},
		{"results: every tenth gap list x10", bothBench, "client_totals client_units", inBench(column("itls", every(10, 10)))},
		{"results: every tenth gap list x10, totals anew", bothBench, "client_units answer_passes client_turns", inBench(column("itls", every(10, 10)), withTotals)},
		{"results: every tenth gap list / 10, totals anew", bothBench, "client_units answer_passes request_floor first_token_unknown", inBench(column("itls", every(10, 0.1)), withTotals)},
		{"results: gaps in ms, totals anew", bothBench, "client_units answer_passes client_limits client_passes run_contradicted", inBench(column("itls", every(1, 1e3)), withTotals)},
		{"results: every tenth output x10", bothBench, "client_totals", inBench(column("output_lens", every(10, 10)))},
		{"results: every tenth output x10, totals anew", bothBench, "client_chunks client_units client_tokens answer_passes client_file", inBench(column("output_lens", every(10, 10)), withTotals)},
		{"results: prompts asked for", bothBench, "client_totals client_passes", inBench(column("input_lens", func(int, float64) float64 { return 160 }))},
		{"results: prompts asked for, totals anew", bothBench, "client_tokens clients_complete client_passes client_lengths request_prior", inBench(column("input_lens", func(int, float64) float64 { return 64 }), withTotals)},
		{"results: prompts in words, totals anew", bothBench, "client_tokens clients_complete client_file", inBench(column("input_lens", func(_ int, v float64) float64 { return float64(int(v * 3 / 4)) }), withTotals)},
		{"results: starts in ms", bothBench, "client_totals client_load request_rounding client_limits", inBench(column("start_times", every(1, 1e3)))},
		{"results: starts in ms, totals anew", bothBench, "client_passes client_order request_rounding client_limits answer_passes", inBench(column("start_times", every(1, 1e3)), withTotals)},
		{"results: starts shuffled, totals anew", bothBench, "client_passes answer_passes client_clock client_turns client_limits client_tokens", inBench(func(doc map[string]any) {
			list := doc["start_times"].([]any)
			rand.New(rand.NewPCG(9, 9)).Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
		}, withTotals)},
		{"results: half of the requests lost", bothBench, "client_totals", inBench(func(doc map[string]any) {
			halveLists(doc)
		})},
		{"results: half of the requests lost, totals anew", bothBench, "clients_complete client_tokens refused", inBench(func(doc map[string]any) {
			halveLists(doc)
		}, withTotals)},
		{"results: one list of another length", bothBench, "refused unreadable bad_record", inBench(func(doc map[string]any) { doc["ttfts"] = doc["ttfts"].([]any)[1:] })},
		{"results: other model", bothBench, server, inBench(func(doc map[string]any) { doc["model_id"] = "Qwen/Qwen2.5-7B" })},
		{"results: rate of another run", ofBench, "client_load", inBench(func(doc map[string]any) { doc["request_rate"] = 16.0 })},
		{"results of the other server", bothBench, "client_tokens clients_complete client_passes client_totals stated_server description refused answer_passes", func(f *runFolder) {
			if filepath.Base(f.dir) == ofBench {
				f.write("bench.json", plainText(f.t, filepath.Join(folderOf(f.t, ofPhases), "bench_near.json.zst")))
			} else {
				f.write("bench_near.json", plainText(f.t, filepath.Join(folderOf(f.t, ofBench), "bench.json.zst")))
			}
		}},

		// client_requests.jsonl beside traces
		{"client: file of another run", ofClient, "client_tokens client_encloses_server clients_complete client_file refused join", func(f *runFolder) {
			f.write(client, plainText(f.t, filepath.Join(folderOf(f.t, "gqa-async"), client+".zst")))
		}},
		{"client: ids of the next line", ofClient, "client_encloses_server client_tokens", func(f *runFolder) {
			var ids []any
			f.rows(client, func(_ int, row map[string]any) map[string]any {
				ids = append(ids, row["id"])
				return row
			})
			f.rows(client, func(i int, row map[string]any) map[string]any {
				row["id"] = ids[(i+1)%len(ids)]
				return row
			})
		}},
		{"client: usage swapped", ofClient, "client_tokens bad_record", func(f *runFolder) {
			f.rows(client, func(_ int, row map[string]any) map[string]any {
				u := row["usage"].(map[string]any)
				u["prompt_tokens"], u["completion_tokens"] = u["completion_tokens"], u["prompt_tokens"]
				return row
			})
		}},
		{"client: gaps in ms", ofClient, "client_chunks", func(f *runFolder) {
			f.rows(client, func(_ int, row map[string]any) map[string]any {
				gaps := row["itl_us"].([]any)
				for k := range gaps {
					us, _ := gaps[k].(json.Number).Float64()
					gaps[k] = us / 1e3
				}
				return row
			})
		}},
		{"client: first chunk is the end", ofClient, "client_streams client_chunks first_token_unknown", func(f *runFolder) {
			f.rows(client, func(_ int, row map[string]any) map[string]any {
				row["first_chunk_ns"] = row["last_chunk_ns"]
				return row
			})
		}},
		{"client: stamps in us", ofClient, "client_encloses_server client_rounding request_rounding run_contradicted client_chunks bad_stamp", func(f *runFolder) {
			f.rows(client, func(_ int, row map[string]any) map[string]any {
				for _, key := range []string{"send_ns", "first_chunk_ns", "last_chunk_ns", "end_ns", "headers_ns", "intended_ns"} {
					if row[key] != nil {
						row[key] = number(row[key]) / 1000
					}
				}
				return row
			})
		}},
		{"client: every tenth line's stamps in us", ofClient, "client_encloses_server client_chunks bad_record client_clock stray_stamp bad_stamp", func(f *runFolder) {
			f.rows(client, func(i int, row map[string]any) map[string]any {
				for _, key := range []string{"send_ns", "first_chunk_ns", "last_chunk_ns", "end_ns"} {
					if row[key] != nil && i%10 == 0 {
						row[key] = number(row[key]) / 1000
					}
				}
				return row
			})
		}},
		{"client: half of the file lost", ofClient, "clients_complete", func(f *runFolder) {
			f.rows(client, func(i int, row map[string]any) map[string]any {
				if i%2 == 0 {
					return nil
				}
				return row
			})
		}},
		{"client: every line twice", ofClient, "clients_differ duplicate clients_complete", func(f *runFolder) {
			f.lines(client, func(_ int, line string) []string { return []string{line, line} })
		}},
		{"client: a fifth of the sends 5 s early", ofClient, "client_encloses_server client_turns client_delays client_order client_units client_arrivals", func(f *runFolder) {
			f.rows(client, func(i int, row map[string]any) map[string]any {
				if i%5 == 0 {
					row["send_ns"] = number(row["send_ns"]) - 5e9
				}
				return row
			})
		}},
		{"client: a fifth of the ends 5 s late", ofClient, "client_encloses_server client_chunks client_units client_order", func(f *runFolder) {
			f.rows(client, func(i int, row map[string]any) map[string]any {
				if i%5 == 0 && row["last_chunk_ns"] != nil {
					row["last_chunk_ns"] = number(row["last_chunk_ns"]) + 5e9
					row["end_ns"] = number(row["end_ns"]) + 5e9
				}
				return row
			})
		}},

		// traces
		{"traces: every twentieth line lost", ofTraces + " " + ofGPU + " " + ofClient, "steps_complete journeys_complete api_spans_complete core_spans_complete", func(f *runFolder) {
			f.lines("traces.jsonl", func(i int, line string) []string {
				if i%20 == 7 {
					return nil
				}
				return []string{line}
			})
		}},
		{"traces: second half lost", ofTraces + " " + ofGPU + " " + ofClient, "steps_complete journeys_complete clients_complete core_spans_complete file_cut refused", func(f *runFolder) {
			f.edit("traces.jsonl", func(text string) string { return text[:len(text)/2] })
		}},
		{"traces: twice", ofTraces + " " + ofGPU + " " + ofClient, "duplicate", func(f *runFolder) {
			f.edit("traces.jsonl", func(text string) string { return text + text })
		}},
		{"traces of another run behind it", ofClient, "step_stamps clock_rates duplicate steps_complete several_engines refused step_order client_file model_name", func(f *runFolder) {
			f.edit("traces.jsonl", func(text string) string {
				return text + plainText(f.t, filepath.Join(folderOf(f.t, "gqa-async"), "traces.jsonl.zst"))
			})
		}},
		{"traces of another run", ofTraces, "pool_of_memory pool_size memory step_prior model_name snapshot_blocks", func(f *runFolder) {
			f.write("traces.jsonl", plainText(f.t, filepath.Join(folderOf(f.t, "a100-codellama-34b-tp2"), "traces.jsonl.zst")))
		}},
		{"traces: steps of another run", ofClient, "step_order clock_rates journey_tokens running_requests steps_complete", func(f *runFolder) {
			isStep := func(line string) bool { return strings.Contains(line, "BATCH_SUMMARY") }
			var other []string
			for line := range strings.SplitSeq(plainText(f.t, filepath.Join(folderOf(f.t, "gqa-async"), "traces.jsonl.zst")), "\n") {
				if isStep(line) {
					other = append(other, line)
				}
			}
			f.edit("traces.jsonl", func(text string) string {
				lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(text), "\n"), isStep)
				return strings.Join(append(lines, other...), "\n") + "\n"
			})
		}},
	}
}

// TestEvalFileLies tells the lies of fileLies in copies of run folders: each is named in one of them at least, and at least 64 in
// every one.
func TestEvalFileLies(t *testing.T) {
	repo.NeedEval(t)
	tellFileLies(t, fileLies(), 64)
}

// tellFileLies tells lies in copies of run folders: each is to be named in one of them at least, and at least so many in every one.
func tellFileLies(t *testing.T, all []fileLie, leastRight int) {
	t.Helper()
	plain := map[string][]string{}
	right := 0
	for _, l := range all {
		told, named := 0, 0
		unrelated := 0
		for _, name := range strings.Fields(l.runs) {
			from := folderOf(t, name)
			if plain[name] == nil {
				plain[name], _, _ = inspectFolder(t, copyRun(t, from).dir)
			}
			f := copyRun(t, from)
			l.tell(f)
			got, codes, texts := inspectFolder(t, f.dir)
			told++
			names, _, _ := strings.Cut(l.causes, ", ")
			isCause := func(name string) bool { return slices.Contains(strings.Fields(names), name) }
			isNamed := slices.ContainsFunc(codes, isCause)
			for _, words := range strings.Split(l.causes, ", ")[1:] {
				isNamed = isNamed || slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, words) })
			}
			var others []string
			for _, n := range got {
				switch {
				case isCause(n):
					isNamed = true
				case !slices.Contains(plain[name], n) && !slices.Contains(others, n):
					others = append(others, n)
				}
			}
			if isNamed {
				named++
			}
			unrelated = max(unrelated, len(others))
			if !isNamed || len(others) > 1 || testing.Verbose() && os.Getenv("TEXTS") != "" {
				t.Logf("%s: %s: named %v, got %v and %v, others %v: %.1500s", name, l.what, isNamed, got, codes, others, strings.Join(texts, " | "))
			}
		}
		if named == told && unrelated <= 1 {
			right++
		} else {
			t.Logf("%s: named in %d of %d recordings, beside up to %d that are unrelated", l.what, named, told, unrelated)
		}
		if named == 0 {
			t.Errorf("%s: named in none of %d recordings", l.what, told)
		}
	}
	t.Logf("right in every recording: %d of %d lies", right, len(all))
	if right < leastRight {
		t.Errorf("got %d lies that are named in every recording, want at least %d of %d", right, leastRight, len(all))
	}
}
