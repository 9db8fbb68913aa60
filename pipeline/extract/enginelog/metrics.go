package enginelog

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

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

// Snapshot is one answer of vLLM's /metrics: its histograms by engine.
type Snapshot struct {
	Name    string
	AtNs    int64 // wall clock: the text's own time stamps, else what the caller knows
	Engines map[string]map[Measure]*Histogram
}

// Histogram is a metric's sum, count and cumulative buckets since the server started.
type Histogram struct {
	Sum, Count float64
	buckets    []bucket
}

// bucket counts the n observations of at most le.
type bucket struct{ le, n float64 }

// IsMetrics reports whether a text is an answer of /metrics of vLLM or SGLang.
func IsMetrics(data []byte) bool {
	text := bytes.TrimSpace(data)
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

// ReadSnapshot returns the metrics in one answer of /metrics. atNs is when it was asked for, which
// is used if the text has no time stamps. Lines of metrics that are not needed are skipped; a
// needed value that is not a number is an error with its line.
func ReadSnapshot(data []byte, name string, atNs int64) (*Snapshot, error) {
	s := &Snapshot{Name: name, AtNs: atNs, Engines: map[string]map[Measure]*Histogram{}}
	number := 0
	for line := range strings.Lines(string(data)) {
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
	for _, histograms := range s.Engines {
		for _, h := range histograms {
			stat.SortStable(h.buckets, func(a, b bucket) int { return cmp.Compare(a.le, b.le) })
		}
	}
	return s, nil
}

// addSample adds the line `name{labels} value [ms]` to the histogram it belongs to.
func (s *Snapshot) addSample(text string) error {
	name, labels, fields := metricLine(text)
	if len(fields) == 0 {
		return nil // all metrics that are read have labels
	}
	part := name[strings.LastIndexByte(name, '_')+1:]
	measure, ok := histogramMetrics[strings.TrimSuffix(name, "_"+part)]
	if !ok {
		return nil
	}
	v, err := strconv.ParseFloat(fields[0], 64)
	if err != nil || math.IsNaN(v) || v < 0 {
		return fmt.Errorf("metric %s: got %q, want a number >= 0", name, fields[0])
	}
	if len(fields) > 1 {
		if ms, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			s.AtNs = ms * 1e6
		}
	}
	h := s.Histogram(metricLabel(labels, "engine"), measure)
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
	for part := range strings.SplitSeq(labels, ",") {
		if k, v, ok := strings.Cut(part, "="); ok && k == name {
			return strings.Trim(v, `"`)
		}
	}
	return ""
}

// Histogram returns the histogram of one engine's measure, empty where the text had none.
func (s *Snapshot) Histogram(engine string, m Measure) *Histogram {
	if s.Engines[engine] == nil {
		s.Engines[engine] = map[Measure]*Histogram{}
	}
	if s.Engines[engine][m] == nil {
		s.Engines[engine][m] = &Histogram{}
	}
	return s.Engines[engine][m]
}

// MedianSince returns the median of the observations between an earlier answer and h: the middle of the
// bucket that contains it. In the last bucket, which has no upper bound, it is the lower bound. It
// is NaN without observations.
func (h *Histogram) MedianSince(before *Histogram) float64 {
	observations := h.Count - before.Count
	lower := 0.0
	for i, b := range h.buckets {
		counted := b.n
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
// engines: prompt tokens looked up and found in the prefix cache, drafted tokens, preemptions.
type Counters struct {
	Name      string
	Queries   int64 // prompt tokens
	Hits      int64 // prompt tokens found in the prefix cache
	Drafted   int64 // tokens
	Preempted int64
	IsSGLang  bool // the size of its pages is not in run.yaml
}

// mostMetricsBytes bounds an answer of /metrics.
const mostMetricsBytes = 64 << 20

// ReadCounters returns the counters in a file. ok is false if those of the prefix cache are
// missing, or if one has a value that is not a count.
func ReadCounters(in *source.Input, how source.Options) (c Counters, ok bool, err error) {
	src, err := source.Open(in, how.Stdin, how.Limits)
	if src == nil {
		return c, false, err
	}
	defer func() {
		in.Size, in.Sum = src.Digest()
		src.Close()
	}()
	if e := source.AsSyntax(err); e != nil && e.Code != source.CodeNotOTLP {
		return c, false, e
	}
	text, err := io.ReadAll(io.LimitReader(src.R, mostMetricsBytes))
	if err != nil {
		return c, false, src.ReadError(err)
	}
	c.Name = in.Name
	counters := map[string]*int64{
		"vllm:prefix_cache_queries_total":         &c.Queries,
		"vllm:prefix_cache_hits_total":            &c.Hits,
		"vllm:spec_decode_num_draft_tokens_total": &c.Drafted,
		"vllm:num_preemptions_total":              &c.Preempted,
		"sglang:prompt_tokens_total":              &c.Queries,
		"sglang:cached_tokens_total":              &c.Hits,
	}
	seen := map[*int64]bool{}
	for line := range strings.Lines(string(text)) {
		name, _, fields := metricLine(line)
		counter := counters[name]
		if counter == nil {
			continue
		}
		if len(fields) == 0 {
			return c, false, nil
		}
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil || !(v >= 0 && v < 1<<53) {
			return c, false, nil
		}
		*counter += int64(v)
		seen[counter] = true
		c.IsSGLang = strings.HasPrefix(name, "sglang:")
	}
	return c, seen[&c.Queries] && seen[&c.Hits], nil
}
