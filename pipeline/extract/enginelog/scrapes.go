package enginelog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file reads server_metrics_export.jsonl of AIPerf: cumulative answers of /metrics with their times, one line an
// answer (spec#wire-metrics).

// scrapeLine is one answer of one server.
type scrapeLine struct {
	Endpoint string                    `json:"endpoint_url"` // the server
	AtNs     int64                     `json:"timestamp_ns"` // wall clock
	Phase    string                    `json:"benchmark_phase"`
	Metrics  map[string][]scrapeSample `json:"metrics"` // by name, a sample for each set of labels
}

// scrapeSample is a value of a counter or gauge, or a histogram with its cumulative buckets.
type scrapeSample struct {
	Labels  map[string]string  `json:"labels"`
	Value   *float64           `json:"value"`
	Buckets map[string]float64 `json:"buckets"`
	Sum     float64            `json:"sum"`
	Count   float64            `json:"count"`
}

// IsScrapes reports whether a file is server_metrics_export.jsonl, by its beginning.
func IsScrapes(head []byte) bool {
	line, _, _ := bytes.Cut(bytes.TrimSpace(head), []byte("\n"))
	for _, key := range []string{`"endpoint_url"`, `"timestamp_ns"`, `"metrics"`} {
		if !bytes.Contains(line, []byte(key)) {
			return false
		}
	}
	return bytes.HasPrefix(line, []byte("{"))
}

// scrapePair has the first and the last answer of a server in a phase of the benchmark.
type scrapePair struct{ first, last scrapeLine }

// readScrapes returns the first and last answer of each server and phase, in the order in which they begin.
func readScrapes(data []byte, name string) ([]scrapePair, error) {
	type key struct{ endpoint, phase string }
	places := map[key]int{} // index in pairs
	var pairs []scrapePair
	number := int64(0) // of the line
	for text := range bytes.Lines(data) {
		number++
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		var line scrapeLine
		if err := json.Unmarshal(text, &line); err != nil || line.AtNs <= 0 {
			return nil, &trace.SyntaxError{File: name, Line: number, Code: source.CodeUnknownFile,
				Msg: fmt.Sprintf("got no answer of /metrics (%v), want timestamp_ns and metrics", err)}
		}
		group := key{line.Endpoint, line.Phase}
		k, ok := places[group]
		if !ok {
			places[group] = len(pairs)
			pairs = append(pairs, scrapePair{first: line, last: line})
			continue
		}
		if line.AtNs > pairs[k].last.AtNs {
			pairs[k].last = line
		}
	}
	return pairs, nil
}

// ReadScrapes returns the answers of AIPerf's export that begin and end a phase of a server, in pairs.
func ReadScrapes(data []byte, name string) ([][2]*Snapshot, error) {
	pairs, err := readScrapes(data, name)
	if err != nil {
		return nil, err
	}
	var out [][2]*Snapshot
	for i := range pairs {
		first := pairs[i].first.snapshot(name)
		last := pairs[i].last.snapshot(name)
		out = append(out, [2]*Snapshot{first, last})
	}
	return out, nil
}

// snapshot returns the answer with its histograms and gauges.
func (l *scrapeLine) snapshot(name string) *Snapshot {
	s := newSnapshot(strings.TrimSpace(name+" "+l.Phase), l.AtNs)
	s.IsStamped = true
	for metric, samples := range l.Metrics {
		measure, isHistogram := histogramMetrics[metric]
		for _, sample := range samples {
			series := Series{sample.Labels["engine"], sample.Labels["model_name"]}
			switch {
			case isHistogram:
				h := s.Histogram(series, measure)
				h.Sum += sample.Sum
				h.Count += sample.Count
				for bound, n := range sample.Buckets {
					if le, err := strconv.ParseFloat(bound, 64); err == nil && !math.IsNaN(le) {
						h.buckets = append(h.buckets, bucket{le, n})
					}
				}
			case sample.Value != nil && (metric == inFlightMetrics[0] || metric == inFlightMetrics[1]):
				s.InFlight[series] += *sample.Value
			}
		}
	}
	s.sortBuckets()
	return s
}

// countersOfScrapes returns what all servers together had counted when the export begins, and when it ends;
// none if those of the prefix cache are missing, or if one has a value that is not a count.
func countersOfScrapes(data []byte, name string) []Counters {
	pairs, err := readScrapes(data, name)
	if err != nil || len(pairs) == 0 {
		return nil
	}
	first := map[string]*scrapeLine{} // by endpoint, over all phases
	last := map[string]*scrapeLine{}
	for i := range pairs {
		p := &pairs[i]
		if f := first[p.first.Endpoint]; f == nil || p.first.AtNs < f.AtNs {
			first[p.first.Endpoint] = &p.first
		}
		if l := last[p.last.Endpoint]; l == nil || p.last.AtNs > l.AtNs {
			last[p.last.Endpoint] = &p.last
		}
	}
	var out []Counters
	for _, lines := range []map[string]*scrapeLine{first, last} {
		c := Counters{Name: name}
		seen := map[*int64]bool{}
		for _, line := range lines {
			for metric, samples := range line.Metrics {
				for _, sample := range samples {
					if sample.Value != nil && !c.addTo(strings.TrimSuffix(metric, "_total"), *sample.Value, seen) {
						return nil
					}
				}
			}
		}
		if !seen[&c.Queries] || !seen[&c.Hits] {
			return nil
		}
		out = append(out, c)
	}
	return out
}
