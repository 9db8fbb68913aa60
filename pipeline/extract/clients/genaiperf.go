package clients

import (
	"bytes"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// perfHeader begins the CSV of AIPerf and of genai-perf.
const perfHeader = "Metric,"

// isPerf recognises the summaries of AIPerf and genai-perf.
func isPerf(head []byte) bool {
	return bytes.Contains(head, []byte(`"request_latency"`)) && bytes.Contains(head, []byte(`"avg"`)) ||
		bytes.Contains(head, []byte(`"request_throughput"`)) && bytes.Contains(head, []byte(`"input_config"`))
}

// millis are the units of times, in ms.
var millis = map[string]float64{"ns": 1e-6, "us": 1e-3, "ms": 1, "sec": 1e3, "s": 1e3, "seconds": 1e3}

// perfTimes are the metrics that are times, each in a unit of its own.
var perfTimes = []string{"time_to_first_token", "inter_token_latency", "request_latency"}

// perfPoint makes a point of metrics by name, and of the load that was offered.
func (f *LevelFile) perfPoint(metrics map[string]any, name string) {
	for _, key := range perfTimes {
		m, ok := metrics[key].(map[string]any)
		if !ok {
			continue
		}
		unit, _ := m["unit"].(string)
		scale, known := millis[strings.ToLower(unit)]
		if !known {
			f.Findings = append(f.Findings, trace.Findingf(CodeClientFile, "%s: %s: got the unit %q, want ns, us, ms or sec; "+
				"the metric is left out", name, key, unit))
		}
		metrics[key] = map[string]any{"avg": numberAt(m, "avg") * scale, "p50": numberAt(m, "p50") * scale}
	}
	p := forms().Perf.point(metrics, name)
	p.offered()
	f.addLevel(p, name)
}

// perfLoads are where the load stands in the configuration that the file repeats: of AIPerf, of
// genai-perf, of a sweep by AIPerf, and of the phase called profiling, which newer
// configurations of AIPerf name or list.
var perfLoads = []string{"input_config.loadgen.", "input_config.perf_analyzer.stimulus.",
	"run_info.variation_values.phases.profiling.", "input_config.phases.profiling."}

// perf reads the JSON summary.
func (f *LevelFile) perf(doc map[string]any, name string) {
	for _, at := range perfLoads {
		clients := numberAt(doc, at+"concurrency")
		rate := numberAt(doc, at+"request_rate")
		if clients != 0 || rate != 0 {
			doc["concurrency"], doc["request_rate"] = clients, rate
			break
		}
	}
	f.perfPoint(doc, name)
}

// perfTable reads the CSV summary: a table of metrics with percentiles, one of
// single values below it. It names no load.
func (f *LevelFile) perfTable(rows [][]string, name string) {
	metrics := map[string]any{}
	var header []string
	for _, row := range rows {
		if row[0] == "Metric" {
			header = row
			continue
		}
		key, unit := perfName(row[0])
		m := map[string]any{"unit": unit}
		for k, text := range row[:min(len(row), len(header))] {
			column := header[k]
			if column == "Value" {
				column = "avg"
			}
			m[column] = strings.ReplaceAll(text, ",", "")
		}
		if _, twice := metrics[key]; !twice {
			metrics[key] = m
		}
	}
	f.perfPoint(metrics, name)
}

// perfName is `Time to First Token (ms)` as the JSON calls it, and its unit.
func perfName(text string) (key, unit string) {
	words, rest, _ := strings.Cut(text, " (")
	return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(words), " ", "_")), strings.TrimSuffix(rest, ")")
}
