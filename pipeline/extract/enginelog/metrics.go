package enginelog

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// This file reads answers of /metrics in Prometheus' text format (spec#wire-metrics).

// Measure names what a histogram of a Snapshot measures.
type Measure string

// The measures of vLLM's requests: times in seconds, lengths in tokens.
const (
	MeasureTTFT   Measure = "ttft"
	MeasureITL    Measure = "itl"
	MeasureE2E    Measure = "e2e"
	MeasurePrompt Measure = "prompt"
	MeasureOutput Measure = "output"
)

// histogramMetrics are vLLM's names of the measures. The inter-token latency was called
// time_per_output_token in older releases.
var histogramMetrics = map[string]Measure{
	"vllm:time_to_first_token_seconds":   MeasureTTFT,
	"vllm:inter_token_latency_seconds":   MeasureITL,
	"vllm:time_per_output_token_seconds": MeasureITL,
	"vllm:e2e_request_latency_seconds":   MeasureE2E,
	"vllm:request_prompt_tokens":         MeasurePrompt,
	"vllm:request_generation_tokens":     MeasureOutput,
}

// Series has the labels that tell the metrics of one engine and model from others in the same answer.
type Series struct{ Engine, Model string }

// Snapshot is one answer of vLLM's /metrics: its histograms by series.
type Snapshot struct {
	Name string // of the file, for errors
	AtNs int64  // wall clock: when it was asked for, by the text itself, else what the caller knows
	// IsStamped is set if the text states AtNs. Otherwise it is the time of a file, which may be that of a copy.
	IsStamped bool
	Engines   map[Series]map[Measure]*Histogram
	InFlight  map[Series]float64 // requests that ran or waited at that moment; none where the text has no gauge
}

// inFlightMetrics are the gauges of the requests in the engine.
var inFlightMetrics = []string{"vllm:num_requests_running", "vllm:num_requests_waiting"}

// Histogram is a metric's sum, count and cumulative buckets since the server started.
type Histogram struct {
	Sum, Count float64
	buckets    []bucket
}

// bucket counts the n observations of at most le, all smaller ones included, as Prometheus does.
type bucket struct{ le, n float64 }

// IsMetrics reports whether a text is an answer of /metrics of vLLM or SGLang.
func IsMetrics(data []byte) bool {
	text, _ := cutHeader(bytes.TrimSpace(data))
	text = bytes.TrimSpace(text)
	for _, prefix := range []string{"vllm:", "sglang:"} {
		if bytes.HasPrefix(text, []byte(prefix)) {
			return true
		}
		if bytes.HasPrefix(text, []byte("#")) && bytes.Contains(text, []byte("\n"+prefix)) {
			return true
		}
	}
	return false
}

// cutHeader separates an answer from the HTTP header that `curl -i` writes before it, and returns the time
// that the header states, ns of the wall clock; 0 without one.
func cutHeader(data []byte) (text []byte, atNs int64) {
	if !bytes.HasPrefix(data, []byte("HTTP/")) {
		return data, 0
	}
	for line := range bytes.Lines(data) {
		data = data[len(line):]
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), ":")
		if name == "" {
			break
		}
		if strings.EqualFold(name, "date") {
			if at, err := time.Parse(time.RFC1123, strings.TrimSpace(value)); err == nil {
				atNs = at.UnixNano()
			}
		}
	}
	return data, atNs
}

// newSnapshot returns an answer without metrics.
func newSnapshot(name string, atNs int64) *Snapshot {
	return &Snapshot{Name: name, AtNs: atNs, Engines: map[Series]map[Measure]*Histogram{}, InFlight: map[Series]float64{}}
}

// ReadSnapshot returns the metrics in one answer of /metrics. atNs is when it was asked for, which
// is used if the text states no time. Lines of metrics that are not needed are skipped; a
// needed value that is not a number is an error with its line.
func ReadSnapshot(data []byte, name string, atNs int64) (*Snapshot, error) {
	s := newSnapshot(name, atNs)
	text, statedNs := cutHeader(data)
	header := string(data[:len(data)-len(text)])
	if statedNs > 0 {
		s.AtNs = statedNs
		s.IsStamped = true
	}
	number := strings.Count(header, "\n") // of the line
	for line := range strings.Lines(string(text)) {
		number++
		if !strings.HasPrefix(line, "vllm:") {
			continue
		}
		if err := s.addSample(strings.TrimSpace(line)); err != nil {
			return nil, &trace.SyntaxError{
				File: name,
				Line: int64(number),
				Code: source.CodeUnknownFile,
				Msg:  err.Error(),
			}
		}
	}
	if len(s.Engines) == 0 {
		return nil, &trace.SyntaxError{
			File: name,
			Line: 1,
			Code: source.CodeUnknownFile,
			Msg:  "got no histogram of vLLM, want /metrics of a server that has served",
		}
	}
	s.sortBuckets()
	return s, nil
}

// sortBuckets sorts the buckets of all histograms by their bounds.
func (s *Snapshot) sortBuckets() {
	for _, histograms := range s.Engines {
		for _, h := range histograms {
			stat.SortStable(h.buckets, func(a, b bucket) int { return cmp.Compare(a.le, b.le) })
		}
	}
}

// addSample adds the line `name{labels} value [ms]` to the histogram it belongs to.
func (s *Snapshot) addSample(text string) error {
	name, labels, fields := metricLine(text)
	if len(fields) == 0 {
		return nil // all metrics that are read have labels
	}
	series := Series{metricLabel(labels, "engine"), metricLabel(labels, "model_name")}
	part := name[strings.LastIndexByte(name, '_')+1:]
	measure, ok := histogramMetrics[strings.TrimSuffix(name, "_"+part)]
	isGauge := slices.Contains(inFlightMetrics, name)
	if !ok && !isGauge {
		return nil
	}
	v, err := strconv.ParseFloat(fields[0], 64)
	if err != nil || math.IsNaN(v) || v < 0 {
		return fmt.Errorf("metric %s: got %q, want a number >= 0", name, fields[0])
	}
	if len(fields) > 1 {
		if ms, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			s.AtNs = ms * 1e6
			s.IsStamped = true
		}
	}
	if isGauge {
		s.InFlight[series] += v
		return nil
	}
	h := s.Histogram(series, measure)
	switch part {
	case "sum":
		h.Sum = v
	case "count":
		h.Count = v
	case "bucket":
		le, err := strconv.ParseFloat(metricLabel(labels, "le"), 64)
		if err != nil {
			return fmt.Errorf("metric %s: got no bound le", name)
		}
		h.buckets = append(h.buckets, bucket{le, v})
	}
	return nil
}

// metricLine returns the parts of a line `name{labels} value [ms]`: the name, the labels, and the
// value and time stamp as fields. A line without labels has no fields.
func metricLine(text string) (name, labels string, fields []string) {
	name, rest, _ := strings.Cut(text, "{")
	labels, value, _ := strings.Cut(rest, "} ")
	return name, labels, strings.Fields(value)
}

// metricLabel returns the value of a label; "" without one.
func metricLabel(labels, name string) string {
	for labels != "" {
		key, rest, ok := strings.Cut(labels, `="`)
		if !ok {
			return ""
		}
		value, after, _ := strings.Cut(rest, `"`) // values may have commas
		if strings.Trim(key, ", ") == name {
			return value
		}
		labels = after
	}
	return ""
}

// Histogram returns the histogram of a measure of one series, empty where the text had none.
func (s *Snapshot) Histogram(of Series, m Measure) *Histogram {
	if s.Engines[of] == nil {
		s.Engines[of] = map[Measure]*Histogram{}
	}
	if s.Engines[of][m] == nil {
		s.Engines[of][m] = &Histogram{}
	}
	return s.Engines[of][m]
}

// MedianSince returns the median of the observations between an earlier answer and h: the middle of the
// bucket that contains it. In the last bucket, which has no upper bound, it is the lower bound. It
// is NaN without observations.
func (h *Histogram) MedianSince(before *Histogram) float64 {
	observations := h.Count - before.Count
	lower := 0.0 // bound of the bucket
	for i, b := range h.buckets {
		counted := b.n // observations since then of at most b.le
		if i < len(before.buckets) && before.buckets[i].le == b.le {
			counted -= before.buckets[i].n
		}
		if counted >= observations/2 && observations > 0 {
			if math.IsInf(b.le, 1) {
				return lower
			}
			return (lower + b.le) / 2
		}
		lower = b.le
	}
	return math.NaN()
}

// Counters are what one answer of /metrics counted since the server started, over all of its
// engines: prompt tokens looked up and found in the prefix cache, drafted and accepted tokens,
// preemptions.
type Counters struct {
	Name      string
	Queries   int64 // prompt tokens
	Hits      int64 // prompt tokens found in the prefix cache
	Drafted   int64 // tokens
	Accepted  int64 // drafted tokens
	Preempted int64 // preemptions of requests
	IsSGLang  bool  // the size of its pages is not in run.yaml
}

// mostMetricsBytes bounds an answer of /metrics.
const mostMetricsBytes = 64 << 20

// counterNames are the metrics of Counters. AIPerf names counters without _total.
var counterNames = map[string]func(c *Counters) *int64{
	"vllm:prefix_cache_queries":            func(c *Counters) *int64 { return &c.Queries },
	"vllm:prefix_cache_hits":               func(c *Counters) *int64 { return &c.Hits },
	"vllm:spec_decode_num_draft_tokens":    func(c *Counters) *int64 { return &c.Drafted },
	"vllm:spec_decode_num_accepted_tokens": func(c *Counters) *int64 { return &c.Accepted },
	"vllm:num_preemptions":                 func(c *Counters) *int64 { return &c.Preempted },
	"sglang:prompt_tokens":                 func(c *Counters) *int64 { return &c.Queries },
	"sglang:cached_tokens":                 func(c *Counters) *int64 { return &c.Hits },
}

// addTo adds a sample v of the metric name (without _total) to the counter that it belongs to, if any, and notes in
// seen which fields of c had a sample. Several samples, of engines or models, add up. It returns false for a value that
// is no count.
func (c *Counters) addTo(name string, v float64, seen map[*int64]bool) bool {
	counter := counterNames[name]
	if counter == nil {
		return true
	}
	if !(v >= 0 && v < 1<<53) {
		return false
	}
	*counter(c) += int64(v)
	seen[counter(c)] = true
	c.IsSGLang = strings.HasPrefix(name, "sglang:")
	return true
}

// ReadCounters returns the counters in a file: one answer of /metrics, or the first and the last of AIPerf's
// export. It returns none if those of the prefix cache are missing, or if one has a value that is not a count.
func ReadCounters(in *source.Input, how source.Options) (list []Counters, err error) {
	src, err := source.Open(in, how.Stdin, how.Limits)
	if src == nil {
		return nil, err
	}
	defer func() {
		in.Size, in.Sum = src.Digest()
		src.Close()
	}()
	if e := source.AsSyntax(err); e != nil && e.Code != source.CodeNotOTLP {
		return nil, e
	}
	text, err := io.ReadAll(io.LimitReader(src.R, mostMetricsBytes))
	if err != nil {
		return nil, src.ReadError(err)
	}
	if IsScrapes(text) {
		return countersOfScrapes(text, in.Name), nil
	}
	c := Counters{Name: in.Name}
	seen := map[*int64]bool{}
	for line := range strings.Lines(string(text)) {
		name, _, fields := metricLine(line)
		family, isTotal := strings.CutSuffix(name, "_total")
		if !isTotal || counterNames[family] == nil {
			continue
		}
		if len(fields) == 0 {
			return nil, nil
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil || !c.addTo(family, v, seen) {
			return nil, nil
		}
	}
	if !seen[&c.Queries] || !seen[&c.Hits] {
		return nil, nil
	}
	return []Counters{c}, nil
}
