package forms

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
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

// perfMetric is one metric: what it is over the requests, in a unit of its own.
type perfMetric struct {
	Unit string  `json:"unit"`
	Avg  float64 `json:"avg"`
	P50  float64 `json:"p50"`
	Std  float64 `json:"std"`
}

// millis are the units of times, in ms.
var millis = map[string]float64{"ns": 1e-6, "us": 1e-3, "ms": 1, "sec": 1e3, "s": 1e3, "seconds": 1e3}

// perfPoint makes a point of metrics by name.
func (f *File) perfPoint(m map[string]perfMetric, p Point, name string) {
	times := func(key string) (avg, p50 float64) {
		v, ok := m[key]
		scale, known := millis[strings.ToLower(v.Unit)]
		if ok && !known {
			f.Findings = append(f.Findings, trace.Findingf(remark, "%s: %s: got the unit %q, want ns, us, ms or sec; "+
				"the metric is left out", name, key, v.Unit))
			return math.NaN(), math.NaN()
		}
		return v.Avg * scale, v.P50 * scale
	}
	p.Sweep, p.Requests, p.RateRPS = name, int(m["request_count"].Avg), m["request_throughput"].Avg
	p.PromptTokens, p.PromptSD = m["input_sequence_length"].Avg, m["input_sequence_length"].Std
	p.OutputTokens, p.OutputSD = m["output_sequence_length"].Avg, m["output_sequence_length"].Std
	p.TTFTMeanMs, p.TTFTMedianMs = times("time_to_first_token")
	p.ITLMs, _ = times("inter_token_latency")
	p.E2EMs, _ = times("request_latency")
	p.offered()
	f.keep(p, name)
}

// perf reads the JSON summary. The load stands in the configuration that the file
// repeats, in another place in each generation of the tools.
func (f *File) perf(data []byte, name string) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return syntax(name, data, err)
	}
	metrics := map[string]perfMetric{}
	for key, raw := range all {
		var m perfMetric
		if json.Unmarshal(raw, &m) == nil && m.Unit != "" {
			metrics[key] = m
		}
	}
	var load struct {
		Input struct {
			Loadgen  perfLoad `json:"loadgen"` // AIPerf
			Analyzer struct {
				Stimulus perfLoad `json:"stimulus"`
			} `json:"perf_analyzer"` // genai-perf
		} `json:"input_config"`
		Run struct {
			Values map[string]any `json:"variation_values"`
		} `json:"run_info"` // of a sweep by AIPerf
	}
	// A part of another shape than all known ones tells no load.
	for key, to := range map[string]any{"input_config": &load.Input, "run_info": &load.Run} {
		if raw := all[key]; raw != nil {
			_ = json.Unmarshal(raw, to)
		}
	}
	var p Point
	for _, l := range []perfLoad{load.Input.Loadgen, load.Input.Analyzer.Stimulus,
		{number(load.Run.Values["phases.profiling.concurrency"]),
			number(load.Run.Values["phases.profiling.request_rate"])}, phaseLoad(all["input_config"])} {
		if p.Clients == 0 && p.OfferedRPS == 0 {
			p.Clients, p.OfferedRPS = int(l.Concurrency), l.Rate
		}
	}
	f.perfPoint(metrics, p, name)
	return nil
}

// perfLoad is how a load was offered.
type perfLoad struct {
	Concurrency float64 `json:"concurrency"`
	Rate        float64 `json:"request_rate"`
}

// phaseLoad is the load of the phase called profiling, which newer configurations
// of AIPerf list or name.
func phaseLoad(config json.RawMessage) perfLoad {
	var named struct {
		Phases struct {
			Profiling perfLoad `json:"profiling"`
		} `json:"phases"`
	}
	if json.Unmarshal(config, &named) == nil && named.Phases.Profiling != (perfLoad{}) {
		return named.Phases.Profiling
	}
	var listed struct {
		Phases []struct {
			Name string `json:"name"`
			perfLoad
		} `json:"phases"`
	}
	if json.Unmarshal(config, &listed) == nil {
		for _, ph := range listed.Phases {
			if ph.Name == "profiling" {
				return ph.perfLoad
			}
		}
	}
	return perfLoad{}
}

func number(v any) float64 {
	n, _ := v.(float64)
	return n
}

// perfTable reads the CSV summary: a table of metrics with percentiles, one of
// single values below it. It names no load.
func (f *File) perfTable(rows [][]string, name string) error {
	metrics := map[string]perfMetric{}
	var header []string
	for _, row := range rows {
		if row[0] == "Metric" {
			header = row
			continue
		}
		key, unit := perfName(row[0])
		m := perfMetric{Unit: unit}
		for k, text := range row {
			v, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
			if err != nil || k >= len(header) {
				continue
			}
			switch header[k] {
			case "avg", "Value":
				m.Avg = v
			case "p50":
				m.P50 = v
			case "std":
				m.Std = v
			}
		}
		if _, twice := metrics[key]; !twice {
			metrics[key] = m
		}
	}
	f.perfPoint(metrics, Point{}, name)
	return nil
}

// perfName is `Time to First Token (ms)` as the JSON calls it, and its unit.
func perfName(text string) (key, unit string) {
	words, rest, _ := strings.Cut(text, " (")
	return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(words), " ", "_")), strings.TrimSuffix(rest, ")")
}
