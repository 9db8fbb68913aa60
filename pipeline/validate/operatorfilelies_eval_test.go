package validate_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestEvalOperatorFileLies tells the lies of operatorFileLies in copies of run folders: each is named in one of them at least, and
// at least 44 in every one.
func TestEvalOperatorFileLies(t *testing.T) {
	repo.NeedEval(t)
	tellFileLies(t, operatorFileLies(), 44)
}

// iterationNumber finds the number of a pass in a line of vLLM's log.
var iterationNumber = regexp.MustCompile(`Iteration\((\d+)\)`)

// eachNumber replaces the number that the first group of a pattern finds.
func eachNumber(pattern *regexp.Regexp, text string, change func(v float64) string) string {
	return pattern.ReplaceAllStringFunc(text, func(found string) string {
		at := pattern.FindStringSubmatchIndex(found)
		v, _ := strconv.ParseFloat(found[at[2]:at[3]], 64)
		return found[:at[2]] + change(v) + found[at[3]:]
	})
}

// operatorFileLies are told in the files as people who operate servers come to tell them: settings of another start, restarts
// within a log, files that were joined, sorted, cut or converted, counts of another tokenizer, copies.
func operatorFileLies() []fileLie {
	const client = "client_requests.jsonl"
	bothBench := ofBench + " " + ofPhases
	server := "stated_server stated_scheduler description pool_of_memory pool_size memory refused"
	benchFiles := func(f *runFolder) []string {
		var names []string
		for _, name := range []string{"bench.json", "bench_near.json", "bench_open.json", "bench_c16.json", "bench_c8.json", "bench_c4.json"} {
			if _, err := os.Stat(filepath.Join(f.dir, name)); err == nil {
				names = append(names, name)
			}
		}
		return names
	}
	inBench := func(changes ...func(doc map[string]any)) func(*runFolder) {
		return func(f *runFolder) {
			for _, name := range benchFiles(f) {
				f.document(name, func(doc map[string]any) {
					for _, change := range changes {
						change(doc)
					}
				})
			}
		}
	}
	set := func(key, value string) func(*runFolder) {
		return func(f *runFolder) { f.set(key, value) }
	}
	replace := func(file, was, is string) func(*runFolder) {
		return func(f *runFolder) {
			f.edit(file, func(text string) string {
				if !strings.Contains(text, was) {
					f.t.Fatalf("%s has no %q", file, was)
				}
				return strings.ReplaceAll(text, was, is)
			})
		}
	}
	number := func(v any) int64 {
		n, _ := v.(json.Number).Int64()
		return n
	}
	stamps := []string{"send_ns", "first_chunk_ns", "last_chunk_ns", "end_ns", "headers_ns", "intended_ns"}
	moved := func(row map[string]any, byNs int64) {
		for _, key := range stamps {
			if row[key] != nil {
				row[key] = number(row[key]) + byNs
			}
		}
	}
	return []fileLie{
		// run.yaml
		{"kv_blocks_total_gpu in tokens", bothBench, server, func(f *runFolder) {
			if filepath.Base(f.dir) == ofBench {
				f.set("kv_blocks_total_gpu", "432016")
			} else {
				f.set("kv_blocks_total_gpu", "131072")
			}
		}},
		{"num_gpu_blocks_override of another start", ofBench + " " + ofPhases + " " + ofTraces, server, set("num_gpu_blocks_override", "900")},
		{"speculative_config of another start", bothBench, server, set("speculative_config", "'{\"method\":\"ngram\",\"num_speculative_tokens\":3,\"prompt_lookup_max\":4}'")},
		{"max_model_len below the longest request", bothBench, server + " model_len", set("max_model_len", "512")},
		{"long_prefill_token_threshold of another start", bothBench, server, set("long_prefill_token_threshold", "64")},
		{"bandwidth in GB/s", ofTraces + " " + ofGPU + " " + ofClient, server + " step_floor", func(f *runFolder) {
			f.edit("run.yaml", func(text string) string {
				return eachNumber(regexp.MustCompile(`BwPeakTBs: ([0-9.]+)`), text, func(v float64) string { return fmt.Sprint(v * 1000) })
			})
		}},
		{"peak in GFLOP/s", ofTraces + " " + ofGPU, server + " step_floor", func(f *runFolder) {
			f.edit("run.yaml", func(text string) string {
				return eachNumber(regexp.MustCompile(`TFlopsPeak: ([0-9.]+)`), text, func(v float64) string { return fmt.Sprint(v * 1000) })
			})
		}},
		{"peak in PFLOP/s", ofTraces + " " + ofGPU, server + " step_floor", func(f *runFolder) {
			f.edit("run.yaml", func(text string) string {
				return eachNumber(regexp.MustCompile(`TFlopsPeak: ([0-9.]+)`), text, func(v float64) string { return fmt.Sprint(v / 1000) })
			})
		}},
		{"memory in MB", ofTraces + " " + ofGPU, server, func(f *runFolder) {
			f.edit("run.yaml", func(text string) string {
				return eachNumber(regexp.MustCompile(`memory_gb: ([0-9.]+)`), text, func(v float64) string { return fmt.Sprint(v * 1000) })
			})
		}},
		{"device of another name with its own figures", ofGPU, server + " step_prior", replace("run.yaml", "H100-SXM-80GB", "L40S")},
		{"config.json of a mixture of experts", ofTraces + " " + ofGPU, server + " step_prior step_floor", func(f *runFolder) {
			f.document("config.json", func(doc map[string]any) {
				doc["architectures"], doc["model_type"] = []any{"MixtralForCausalLM"}, "mixtral"
				doc["num_local_experts"], doc["num_experts_per_tok"] = 8, 2
			})
		}},
		{"config.json with as many KV heads as heads", ofTraces + " " + ofGPU, server, func(f *runFolder) {
			f.document("config.json", func(doc map[string]any) { doc["num_key_value_heads"] = doc["num_attention_heads"] })
		}},
		{"phases an hour later", ofPhases + " " + ofClient, "phase_loads, clock is -3600", func(f *runFolder) {
			f.edit("run.yaml", func(text string) string {
				for _, key := range []string{"start_ns", "end_ns"} {
					text = eachNumber(regexp.MustCompile(`\b`+key+`: ([0-9]+)`), text, func(v float64) string { return fmt.Sprintf("%.0f", v+3600e9) })
				}
				return text
			})
		}},
		{"open phases stated closed", ofPhases + " " + ofClient, "phase_loads", replace("run.yaml", "load: open", "load: closed")},

		// the log
		{"server restarted within the log", bothBench, "log_restarted several_engines passes_complete client_passes refused", func(f *runFolder) {
			n := strings.Count(f.read("server.log"), "Iteration(")
			seen := 0
			f.lines("server.log", func(_ int, line string) []string {
				if strings.Contains(line, "Iteration(") {
					if seen++; seen > n/2 {
						line = eachNumber(iterationNumber, line, func(v float64) string { return fmt.Sprintf("%.0f", v-float64(n/2)) })
					}
				}
				return []string{line}
			})
		}},
		{"each line of the log twice", bothBench, "pass_times client_tokens passes_complete duplicate engine_log description several_engines log_restarted client_passes refused", func(f *runFolder) {
			f.lines("server.log", func(_ int, line string) []string { return []string{line, line} })
		}},
		{"log sorted by its text", bothBench, "duplicate incomplete_trace log_restarted several_engines passes_complete client_passes client_tokens refused description pass_times answer_passes", func(f *runFolder) {
			f.edit("server.log", func(text string) string {
				lines := strings.Split(strings.TrimSpace(text), "\n")
				slices.Sort(lines)
				return strings.Join(lines, "\n") + "\n"
			})
		}},
		{"log of the other server before it", bothBench, "log_restarted several_engines stated_server stated_scheduler description refused client_tokens passes_complete", func(f *runFolder) {
			other := ofPhases
			if filepath.Base(f.dir) == ofPhases {
				other = ofBench
			}
			f.edit("server.log", func(text string) string {
				return plainText(f.t, filepath.Join(folderOf(f.t, other), "server.log.zst")) + text
			})
		}},
		{"elapsed rounded to 100 ms", ofPhases, "refused pass_rounding pass_times answer_passes pass_order step_work", func(f *runFolder) {
			f.lines("server.log", eachElapsed(func(_ int, ms float64) float64 { return float64(int(ms/100+0.5)) * 100 }))
		}},
		{"elapsed is the mean of twenty passes", bothBench, "step_floor pass_order step_work answer_passes pass_rounding passes_differ", func(f *runFolder) {
			var all []float64
			f.lines("server.log", eachElapsed(func(_ int, ms float64) float64 {
				all = append(all, ms)
				return ms
			}))
			k := 0
			f.lines("server.log", eachElapsed(func(_ int, ms float64) float64 {
				from := k / 20 * 20
				to := min(len(all), from+20)
				k++
				sum := 0.0
				for _, v := range all[from:to] {
					sum += v
				}
				return sum / float64(to-from)
			}))
		}},
		{"only passes with prompts were logged", bothBench, "passes_complete", func(f *runFolder) {
			f.lines("server.log", func(_ int, line string) []string {
				if strings.Contains(line, "0 context requests, 0 context tokens") {
					return nil
				}
				return []string{line}
			})
		}},

		// vllm bench
		{"results: prompts by another tokenizer, totals anew", bothBench, "client_tokens clients_complete client_passes client_file", inBench(column("input_lens", func(_ int, v float64) float64 { return float64(int(v * 1.2)) }), withTotals)},
		{"results: prompts of the next row, totals anew", bothBench, "client_tokens clients_complete client_passes client_lengths client_file", inBench(func(doc map[string]any) {
			list := doc["input_lens"].([]any)
			first := list[0]
			copy(list, list[1:])
			list[len(list)-1] = first
		}, withTotals)},
		{"results: TTFT rounded to 0.1 s, totals anew", bothBench, "first_token_unknown client_streams request_rounding client_order answer_passes", inBench(column("ttfts", func(_ int, v float64) float64 { return float64(int(v*10+0.5)) / 10 }), withTotals)},
		{"results: gaps cut at 15 ms, totals anew", bothBench, "request_floor answer_passes client_chunks client_units times_differ client_pace gaps_differ", inBench(column("itls", func(_ int, v float64) float64 { return min(v, 0.015) }), withTotals)},
		{"results: a tenth of the requests again, totals anew", bothBench, "clients_differ client_tokens clients_complete client_passes client_chunks", inBench(func(doc map[string]any) {
			n := len(doc["input_lens"].([]any))
			for key, value := range doc {
				list, ok := value.([]any)
				if !ok || len(list) != n {
					continue
				}
				for i := 0; i < n; i += 10 {
					again := list[i]
					if key == "start_times" {
						again = again.(float64) + 0.004
					}
					list = append(list, again)
				}
				doc[key] = list
			}
		}, withTotals)},
		{"results: failed requests counted as answers of no time", bothBench, "client_totals client_order client_units bad_record request_floor answer_passes first_token_unknown client_file clients_complete failed_requests client_tokens", inBench(func(doc map[string]any) {
			for i := range doc["ttfts"].([]any) {
				if i%10 == 0 {
					doc["ttfts"].([]any)[i] = 0.0
					doc["itls"].([]any)[i] = []any{}
					doc["output_lens"].([]any)[i] = 1.0
				}
			}
		}, withTotals)},
		{"results: starts of every file from 0", ofPhases, "client_passes client_clock client_limits clients_overlap client_load", inBench(func(doc map[string]any) {
			list := doc["start_times"].([]any)
			first := list[0].(float64)
			for i := range list {
				list[i] = list[i].(float64) - first
			}
		})},
		{"results: starts in the order of the ends", bothBench, "client_passes client_turns answer_passes client_limits client_order client_tokens", inBench(func(doc map[string]any) {
			list := doc["start_times"].([]any)
			for i := range list {
				sum := doc["ttfts"].([]any)[i].(float64)
				for _, gap := range doc["itls"].([]any)[i].([]any) {
					sum += gap.(float64)
				}
				list[i] = list[i].(float64) + sum
			}
		}, withTotals)},
		{"results: cut in the middle", bothBench, "files_whole clients_complete refused unreadable bad_record file_cut", func(f *runFolder) {
			for _, name := range benchFiles(f) {
				f.edit(name, func(text string) string { return text[:len(text)/2] })
			}
		}},
		{"results: twice in one file", bothBench, "refused unreadable bad_record clients_differ duplicate clients_complete client_tokens", func(f *runFolder) {
			for _, name := range benchFiles(f) {
				f.edit(name, func(text string) string { return strings.TrimSpace(text) + "\n" + text })
			}
		}},
		{"results: one of the files replaced by another", ofPhases, "clients_differ client_passes client_load clients_complete client_tokens duplicate", func(f *runFolder) {
			f.write("bench_near.json", f.read("bench_open.json"))
		}},
		{"results: one file left out", ofPhases, "clients_complete", func(f *runFolder) {
			f.write("bench_near.json", "{}")
		}},
		{"results: limit of clients of another run", bothBench, "client_load", inBench(func(doc map[string]any) { doc["max_concurrency"] = 1.0 })},

		// client_requests.jsonl beside traces
		{"client: UTF-16", ofClient, "refused unreadable bad_record clients_complete", func(f *runFolder) {
			f.edit(client, func(text string) string {
				out := []byte{0xff, 0xfe}
				for _, unit := range utf16.Encode([]rune(text)) {
					out = append(out, byte(unit), byte(unit>>8))
				}
				return string(out)
			})
		}},
		{"client: prompts by another tokenizer", ofClient, "client_tokens", func(f *runFolder) {
			f.rows(client, func(_ int, row map[string]any) map[string]any {
				u := row["usage"].(map[string]any)
				u["prompt_tokens"] = number(u["prompt_tokens"]) * 6 / 5
				row["prompt_tokens"] = u["prompt_tokens"]
				return row
			})
		}},
		{"client: ids cut to 16 characters", ofClient, "joined, requests have no core span", func(f *runFolder) {
			f.rows(client, func(_ int, row map[string]any) map[string]any {
				id := row["id"].(string)
				row["id"] = id[:min(16, len(id))]
				return row
			})
		}},
		{"client: retries under the same id", ofClient, "duplicate clients_differ clients_complete", func(f *runFolder) {
			f.lines(client, func(i int, line string) []string {
				if i%10 != 0 {
					return []string{line}
				}
				var row map[string]any
				dec := json.NewDecoder(strings.NewReader(line))
				dec.UseNumber()
				if err := dec.Decode(&row); err != nil {
					f.t.Fatal(err)
				}
				moved(row, 7e9)
				again, _ := json.Marshal(row)
				return []string{line, string(again)}
			})
		}},
		{"client: stamps of the wall clock", ofClient, "wall, are of the wall clock", func(f *runFolder) {
			f.rows(client, func(_ int, row map[string]any) map[string]any {
				moved(row, number(row["send_wall_ns"])-number(row["send_ns"]))
				return row
			})
		}},
		{"client: the proxy's errors are successes", ofClient, "clients_complete client_encloses_server client_tokens failed_requests client_chunks client_order bad_record first_token_unknown", func(f *runFolder) {
			f.rows(client, func(i int, row map[string]any) map[string]any {
				if i%8 == 0 {
					row["first_chunk_ns"], row["last_chunk_ns"] = number(row["send_ns"])+2_000_000, number(row["send_ns"])+2_000_000
					row["end_ns"] = row["last_chunk_ns"]
					row["itl_us"] = []any{}
					row["chunks"] = 1
				}
				return row
			})
		}},
		{"client: answers not streamed", ofClient, "client_streams first_token_unknown", func(f *runFolder) {
			f.rows(client, func(_ int, row map[string]any) map[string]any {
				row["first_chunk_ns"] = row["last_chunk_ns"]
				row["itl_us"] = []any{}
				row["chunks"] = 1
				return row
			})
		}},

		// traces
		{"traces: ids of steps restart in the middle", ofTraces + " " + ofGPU + " " + ofClient, "step_stamps step_order clock_rates duplicate steps_complete several_engines refused journeys_complete journey_tokens output_steps snapshot_tokens snapshot_progress", func(f *runFolder) {
			text := f.read("traces.jsonl")
			most := 0.0
			eachNumber(regexp.MustCompile(`"step\.id","value":\{"intValue":"(\d+)"`), text, func(v float64) string {
				most = max(most, v)
				return ""
			})
			f.write("traces.jsonl", regexp.MustCompile(`("[a-z_.]*step[a-z_.]*","value":\{"intValue":")(\d+)"`).ReplaceAllStringFunc(text, func(found string) string {
				if strings.Contains(found, "_us") || strings.Contains(found, "_ns") || strings.Contains(found, "sequence") {
					return found
				}
				at := strings.LastIndex(found, `"intValue":"`) + len(`"intValue":"`)
				v, _ := strconv.ParseFloat(found[at:len(found)-1], 64)
				if v > most/2 {
					v -= float64(int(most / 2))
				}
				return fmt.Sprintf(`%s%.0f"`, found[:at], v)
			}))
		}},
		{"traces: wall clock in us", ofTraces + " " + ofClient, "clock_rates wall_clocks refused bad_stamp run_contradicted unreadable bad_record", func(f *runFolder) {
			f.edit("traces.jsonl", func(text string) string {
				return regexp.MustCompile(`(TimeUnixNano|timeUnixNano)":"(\d+)\d{3}"`).ReplaceAllString(text, `$1":"$2"`)
			})
		}},
		{"traces: monotonic stamps of events in ms", ofTraces + " " + ofClient, "engine_order step_order api_delays departure_order clock_rates client_encloses_server refused bad_stamp", func(f *runFolder) {
			f.edit("traces.jsonl", func(text string) string {
				return regexp.MustCompile(`("event\.ts\.monotonic","value":\{"doubleValue":)([0-9.]+)`).ReplaceAllStringFunc(text, func(found string) string {
					at := strings.LastIndex(found, ":") + 1
					v, _ := strconv.ParseFloat(found[at:], 64)
					return fmt.Sprintf("%s%.6f", found[:at], v*1000)
				})
			})
		}},
		{"traces: every twentieth number damaged", ofTraces, "steps_complete journeys_complete refused unreadable bad_record bad_value step_tokens journey_tokens", func(f *runFolder) {
			k := 0
			f.edit("traces.jsonl", func(text string) string {
				return regexp.MustCompile(`("batch\.scheduled_tokens","value":\{"intValue":")(\d+)"`).ReplaceAllStringFunc(text, func(found string) string {
					if k++; k%20 == 0 {
						return found[:len(found)-1] + `0"`
					}
					return found
				})
			})
		}},
	}
}
