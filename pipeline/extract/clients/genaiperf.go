package clients

import (
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// This file reads the summaries of genai-perf and AIPerf, as JSON and as CSV.

// sniffPerfSummary reports whether a file is the JSON summary.
func sniffPerfSummary(head []byte) bool {
	return isObject(head) && (containsAll(head, `"request_latency"`, `"avg"`) ||
		containsAll(head, `"request_throughput"`, `"input_config"`))
}

// sniffPerfTable reports whether a file is the CSV summary.
func sniffPerfTable(head []byte) bool {
	columns := firstRecord(head)
	return len(columns) > 1 && columns[0] == "Metric"
}

// unitMs maps the units of times that the tools use to ms.
var unitMs = map[string]float64{"ns": 1e-6, "us": 1e-3, "ms": 1, "sec": 1e3, "s": 1e3, "seconds": 1e3}

// perfPaths are the metrics of a summary; concurrency and request_rate are the load that was
// offered, which the JSON has in its configuration.
var perfPaths = levelPaths{
	requests:   "request_count.avg",
	rate:       "request_throughput.avg",
	prompt:     "input_sequence_length.avg",
	promptSD:   "input_sequence_length.std",
	output:     "output_sequence_length.avg",
	outputSD:   "output_sequence_length.std",
	ttft:       "time_to_first_token.avg",
	ttftMedian: "time_to_first_token.p50",
	itl:        "inter_token_latency.avg",
	e2e:        "request_latency.avg",
	clients:    "concurrency",
	offered:    "request_rate",

	cached:      "usage_prompt_cache_read_tokens.avg",
	cachedTotal: "total_usage_prompt_cache_read_tokens.avg",
}

// perfTimes are the metrics that are times, each in a unit of its own.
var perfTimes = []string{"time_to_first_token", "inter_token_latency", "request_latency"}

// addPerfLevel adds the level of a summary, given as metrics by name, each an object of statistics (avg,
// p50) with a unit. Times are converted to ms first. A time of an unknown unit counts as absent.
func (f *LevelFile) addPerfLevel(metrics map[string]any, name string) {
	for _, key := range perfTimes {
		m, ok := metrics[key].(map[string]any)
		if !ok {
			continue
		}
		unit, _ := m["unit"].(string)
		ms, isKnown := unitMs[strings.ToLower(unit)]
		if !isKnown { // then ms is 0, and so are the times: not given
			f.Findings = append(f.Findings, trace.Findingf(CodeClientFile,
				"%s: %s: got the unit %q, want ns, us, ms or sec; the metric is not used", name, key, unit))
		}
		metrics[key] = map[string]any{"avg": numberAt(m, "avg") * ms, "p50": numberAt(m, "p50") * ms}
	}
	l := perfPaths.level(metrics, name)
	l.setDataset(aiperfDataset(metrics))
	l.nameStrategy()
	f.addLevel(l, name)
}

// perfLoads are the places in the JSON's copy of the configuration that have the offered load: of AIPerf,
// of genai-perf, of a sweep by AIPerf, and of the phase called profiling, which newer
// configurations of AIPerf name or list.
var perfLoads = []string{
	"input_config.loadgen.",
	"input_config.perf_analyzer.stimulus.",
	"run_info.variation_values.phases.profiling.",
	"input_config.phases.profiling.",
}

// readPerfSummary reads the JSON summary, which is one level.
func readPerfSummary(f *LevelFile, data []byte, name string) error {
	doc, err := decodeObject(data, name)
	if err != nil {
		return err
	}
	for _, prefix := range perfLoads {
		clients := numberAt(doc, prefix+"concurrency")
		rate := numberAt(doc, prefix+"request_rate")
		if clients != 0 || rate != 0 {
			doc["concurrency"] = clients
			doc["request_rate"] = rate
			break
		}
	}
	f.addPerfLevel(doc, name)
	return nil
}

// readPerfTable reads the CSV summary: a table of metrics with percentiles, and below it one of
// single values. It does not state the load.
func readPerfTable(f *LevelFile, data []byte, name string) error {
	rows, _, err := readCSV(data, name)
	if err != nil {
		return err
	}
	metrics := map[string]any{}
	var header []string
	for _, row := range rows {
		if row[0] == "Metric" {
			header = row
			continue
		}
		key, unit := perfMetricName(row[0])
		if _, isTwice := metrics[key]; isTwice {
			continue
		}
		m := map[string]any{"unit": unit}
		for k, text := range row[:min(len(row), len(header))] {
			column := header[k]
			if column == "Value" {
				column = "avg"
			}
			m[column] = strings.ReplaceAll(text, ",", "")
		}
		metrics[key] = m
	}
	f.addPerfLevel(metrics, name)
	return nil
}

// perfMetricName returns the key that the JSON has for a metric, and its unit, of a name in the CSV:
// `Time to First Token (ms)` is time_to_first_token, ms.
func perfMetricName(text string) (key, unit string) {
	words, rest, _ := strings.Cut(text, " (")
	return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(words), " ", "_")), strings.TrimSuffix(rest, ")")
}
